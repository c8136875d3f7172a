/* A change of protection that is let through (maplog.c, doc/mappings.md). */
#ifndef DEJA_RECORDER_PERMIT_H
#define DEJA_RECORDER_PERMIT_H

#include <stdbool.h>
#include <stdint.h>

struct rec_thread;

/* An mprotect that the cache makes, once. */
struct rec_permitted {
	uint64_t start, end; /* whole pages; end 0: there is none */
	uint64_t length;     /* as the program has it */
	uint32_t prot;
	uint64_t steps; /* where, plus 1 */
};

/* An mprotect that has to do with code has come to the supervisor: true if the cache makes it,
 * once, and nothing is translated from there until the log is drained. In hand, and nothing of
 * deja's is in the way; to be called once for a position. */
bool rec_permit(struct rec_thread *t);

#endif
