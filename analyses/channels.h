/*
 * Pipes, sockets and files as a recording has them: for what a system call read from a descriptor,
 * the system call of the same recording, in any process, that wrote it, and where in memory it had
 * it from. Found by following descriptors: what opens, copies, inherits and closes them, and how
 * many bytes each call moved.
 */
#ifndef DEJA_ANALYSES_CHANNELS_H
#define DEJA_ANALYSES_CHANNELS_H

#include "analyses/log.h"

struct ana_channels;

/* A pass over the whole recording; moves the replay. NULL with err. */
struct ana_channels *ana_channels_new(struct ana_job *job, struct replay *r, struct dj_error *err);
void ana_channels_free(struct ana_channels *c);

struct ana_channel_source {
	struct replay_pos pos;	/* of the call that wrote it */
	uint64_t addr, size;	/* where that had it, in its process */
	char through[300];	/* "a pipe", "the file /tmp/x" */
	struct replay_pos made; /* the pipe's or socket pair's */
	bool is_made;
};
/* The system call at `pos` read to memory at `at`: where these `size` bytes came from, or fewer if
 * the rest was written by another call. Moves the replay. False: nobody in the recording is known
 * to have written it. */
bool ana_channel_source(struct ana_channels *c, const struct replay_pos *pos, uint64_t at,
			uint64_t size, struct ana_channel_source *out);

#endif
