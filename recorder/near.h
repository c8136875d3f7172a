/* Threads that stop again and again, and the supervisor, on one processor; the essay is in near.c.
 */
#ifndef DEJA_RECORDER_NEAR_H
#define DEJA_RECORDER_NEAR_H

#include <stdbool.h>
#include <stdint.h>

struct rec_recording;
struct rec_thread;

/* Of a recording. */
struct rec_nearness {
	int64_t last;	/* when a thread last went on; nanoseconds of CLOCK_MONOTONIC */
	unsigned stops; /* so many in a row, each soon after that */
	bool seen;	/* somebody has opened what shows where threads may be */
};

/* Whether the thread, which is about to go on, had better do so on the processor that the
 * supervisor is on. If so the supervisor stays there; if not it may go wherever it likes. */
bool rec_near(struct rec_thread *t);

/* The program has opened this file of /proc. */
void rec_near_opened(struct rec_recording *rec, const char *path);

#endif
