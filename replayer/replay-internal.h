/*
 * Inside the replay interface (replay.h): shared by replay.c (opening, state), replay-move.c
 * (positions), replay-run.c (running to a condition) and replay-copy.c.
 */
#ifndef DEJA_REPLAYER_REPLAY_INTERNAL_H
#define DEJA_REPLAYER_REPLAY_INTERNAL_H

#include "replayer/checkpoint.h"
#include "replayer/lookahead.h"
#include "replayer/memview.h"
#include "replayer/replay.h"
#include "replayer/thread.h"

#include <stdatomic.h>

#define BLOOM_BITS 65536u

struct replay_thread_state {
	struct rp_thread *th;
	struct rp_memview *mv;
	struct rp_checkpoints cs;
};

struct replay_watch {
	int id;
	uint64_t addr, len;
	unsigned kind;
};

struct replay {
	struct dj_trace *t;
	struct rp_space_names names;
	struct replay_thread_state *threads; /* as the trace numbers them; opened when needed */
	size_t nthreads, current;

	/* the current thread's */
	struct rp_thread *th;
	struct rp_memview *mv;
	struct rp_checkpoints *cs;

	/* conditions */
	struct replay_break {
		uint64_t addr;
		unsigned count;
	} * breaks;
	size_t nbreaks, breaks_cap;
	uint64_t bloom[BLOOM_BITS / 64]; /* by the low bits of breakpoint addresses */
	uint32_t break_generation;	 /* changes with them; never 0 */
	struct replay_watch *watches;
	size_t nwatches;
	int next_watch;
	bool catching;
	uint64_t *catch;
	size_t ncatch; /* 0: all */
	uint64_t signals;
	bool signal_told; /* the signal arriving at this position has been reported */

	bool (*poll)(void *);
	void *poll_ctx;
	atomic_bool interrupt;

	uint64_t spacing; /* instructions between checkpoints */
	bool in_copy;
	struct rp_thread_pos copy_origin;
	uint64_t copy_end;
	void (*output)(void *ctx, const void *bytes, size_t len); /* of copies */
	void *output_ctx;

	struct rp_lookahead look; /* from look_pos, if looked */
	bool looked;
	struct rp_thread_pos look_pos;

	struct replay_mapping *maps;
	size_t maps_cap;
};

/* For tests: checkpoints of the current thread. */
void replay_limits(struct replay *r, uint64_t spacing, size_t max, size_t budget);

/* How running on went: rp_thread_run()'s answers, or interrupted. */
enum { RUN_INTERRUPTED = 100 };

/* Run forward to `to`, making checkpoints: at the usual distance, or, if `dense`, ever denser
 * towards `to`, for going back from there. Interruptible if asked. */
int replay_run_to(struct replay *r, const struct rp_thread_pos *to, unsigned events, bool dense,
		  bool interruptible);
/* Move exactly. */
int replay_move(struct replay *r, const struct rp_thread_pos *to, struct dj_error *err);
/* Move to the position before this one. 1 if this is the beginning, -1 on error. */
int replay_move_back(struct replay *r, struct dj_error *err);
/* Whether to stop running soon. */
bool replay_interrupted(struct replay *r);
/* replay-copycall.c; ctx is the replay */
bool rp_copycall_answer(void *ctx, uint64_t *result);
void replay_to_pos(const struct replay *r, const struct rp_thread_pos *p, struct replay_pos *pos);
int replay_select(struct replay *r, size_t index, struct dj_error *err);

#endif
