/* What is to be seen at a position of a recording: registers, stack memory, samples of everything
 * that is mapped, and all that the thread has met. */
#ifndef DEJA_TESTS_SEEN_H
#define DEJA_TESTS_SEEN_H

#include "replayer/replay-internal.h"

/* Open a recording; if it cannot be, say why and exit with status 2. */
struct replay *open_or_exit(const char *path);

#define STACK  512
#define SPARSE 1500 /* more of them, byte by byte: some may not be known */

struct state {
	struct replay_pos pos;
	struct dj_regs regs;
	size_t known;
	uint8_t stack[STACK], sparse[SPARSE], sparse_known[SPARSE];
	uint64_t samples; /* of all mappings */
	uint64_t met;	  /* the whole of it */
};

/* Look there; at what is mapped and what was met only if `all`. */
void look(struct replay *r, struct state *s, bool all);
/* Look again: 0 if it is the same, otherwise say what is not. */
unsigned compare(struct replay *r, const struct state *was, const char *what);

#endif
