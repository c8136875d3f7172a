/*
 * What a replay may cost, and how often it looks up from its work.
 *
 * A trace decides how much there is to do: how many records have their place at one position, how
 * often an instruction repeats, how much memory is touched. So whatever goes on for as long as a
 * trace likes asks here now and then (rp_thread_pulse() in thread.h): whether somebody wants it to
 * stop, and whether the memory that the process has taken is in proportion to what the trace has
 * shown of the recorded program's.
 */
#ifndef DEJA_REPLAYER_PATIENCE_H
#define DEJA_REPLAYER_PATIENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rp_patience {
	bool (*poll)(void *ctx); /* true: stop; may be NULL */
	void *ctx;
	uint64_t due;	    /* when to ask again, in milliseconds */
	uint64_t allowance; /* units of work before it is interrupted anyhow; UINT64_MAX: any */
	uint64_t machine;   /* bytes that this host can spare */
	bool fixed;	    /* they are the user's own limit */
	unsigned users;	    /* threads that are replayed at the same time; 0 is 1 */
	uint64_t *most;	    /* the largest claim of any of them, shared; NULL: `own` */
	uint64_t own;
	uint64_t before;      /* bytes that the process had taken before, for something else */
	size_t (*kept)(void); /* bytes that are kept within a budget of their own; NULL: none */
	int statm;	      /* /proc/self/statm, or -1 */
};

enum rp_patience_end { PATIENCE_LASTS, PATIENCE_INTERRUPTED, PATIENCE_MEMORY };

/* Milliseconds, of a clock that goes on evenly. */
uint64_t rp_patience_now(void);

void rp_patience_init(struct rp_patience *p, bool (*poll)(void *ctx), void *ctx);
void rp_patience_free(struct rp_patience *p);
/* Bytes that the process has taken by now. */
uint64_t rp_patience_taken(const struct rp_patience *p);

/*
 * Look up, if it is time. `work`: what was done since the last call, 1 for some 10 nanoseconds or
 * less. `claim`: bytes that the recorded program is known to have mapped.
 */
enum rp_patience_end rp_patience_look(struct rp_patience *p, uint64_t work, uint64_t claim);

/* So much was done of what is allowed, elsewhere. */
static inline void rp_patience_charge(struct rp_patience *p, uint64_t work)
{
	if (p && p->allowance != UINT64_MAX)
		p->allowance = p->allowance > work ? p->allowance - work : 0;
}

/* The most that all checkpoints of this process should take; UINT64_MAX: as much as they like. */
uint64_t rp_patience_kept(const struct rp_patience *p, uint64_t claim);

/* The most that a replay may take, for a message. */
uint64_t rp_patience_limit(const struct rp_patience *p, uint64_t claim);

#endif
