/* Mapping calls that the cache makes (maplog.c, doc/mappings.md). */
#ifndef DEJA_RECORDER_PERMIT_H
#define DEJA_RECORDER_PERMIT_H

#include <stdbool.h>
#include <stdint.h>

struct rec_process;
struct rec_thread;

/* An mprotect, or an mmap of a file, that the cache makes, once. */
struct rec_permitted {
	int call;	     /* which; 0: there is none */
	uint64_t start, end; /* whole pages; 0: of a file, where the kernel likes */
	uint64_t length;     /* as the program has it */
	uint32_t prot;
	uint64_t steps; /* where, plus 1 */
	uint64_t flags, offset;
	int32_t module; /* that the file is, or -1, */
	char *path;	/* and what the program calls it */
};

/* What is known of those of all threads of a process. */
struct rec_logged {
	struct rec_permitted permit;
	uint64_t n;	     /* entries of their logs that have been dealt with */
	uint64_t overtaken;  /* up to this one a later fact has come before theirs */
	unsigned next_range; /* which T_DATA is the oldest */
	unsigned closed;     /* for so many threads nobody makes one in the cache */
	bool held;	     /* somebody has waited for T_MAPS in this round (loop.c) */
	uint64_t owner;	     /* who has T_MAPS, so often found there, since then */
	unsigned tries;
	int64_t since;
};

/* An mprotect that has to do with code has come to the supervisor, or an mmap of a file: true if
 * the cache makes it, once, and nothing is translated from there until the log is drained. In hand,
 * and nothing of deja's is in the way; to be called once for a position. */
bool rec_permit(struct rec_thread *t);
void rec_permit_free(struct rec_process *proc);

#endif
