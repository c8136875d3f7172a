/*
 * Checkpoints of one thread: positions that it can be put back to at once, because what
 * changed since is in undo logs (undo.h).
 *
 * Checkpoint i's log spans from it to checkpoint i+1, the newest's to the current position.
 * Going back to one applies the logs from the newest down to its own and drops the
 * checkpoints after it. The beginning of history needs no log: there everything is fresh.
 * When there are too many, or they hold too much, neighbours merge, those first that
 * are close together for their distance from here: so the newest part stays densest.
 */
#ifndef DEJA_REPLAYER_CHECKPOINT_H
#define DEJA_REPLAYER_CHECKPOINT_H

#include "replayer/memview.h"
#include "replayer/thread.h"

struct rp_checkpoint {
	struct rp_thread_pos pos;
	struct emu_cpu cpu;
	uint64_t fences, fence_steps, rep_iter;
	bool in_rep, exited;
	int32_t status;
	uint64_t events, event_steps, signals_total, forks, last_sysno, last_result;
	uint64_t seq; /* number of the last ordered event */
	struct rp_numbers numbers;
	struct dj_mark mark;
	struct rp_space *space;
	struct rp_undo log;
};

struct rp_checkpoints {
	struct rp_thread *th;
	struct rp_memview *mem;
	struct rp_checkpoint **list; /* by position */
	size_t n, cap;
	size_t max;    /* how many to keep */
	size_t budget; /* bytes of logs to keep, about */
	size_t pinned; /* the first so many never merge or go (a throw-away copy's origin) */
};

void rp_checkpoints_init(struct rp_checkpoints *cs, struct rp_thread *th, struct rp_memview *mem);
void rp_checkpoints_free(struct rp_checkpoints *cs);
/* One here, unless there is. Without memory there is none, which only costs time later. */
void rp_checkpoint_take(struct rp_checkpoints *cs);
/* Put the thread back to the last checkpoint (or the beginning) not after `pos`, which must not
 * be after the current position. */
int rp_checkpoint_back(struct rp_checkpoints *cs, const struct rp_thread_pos *pos,
		       struct dj_error *err);
/* Forget them all (the thread went back to its beginning or is given up). */
void rp_checkpoints_clear(struct rp_checkpoints *cs);
/* The newest checkpoint, NULL if there is only the beginning. */
struct rp_checkpoint *rp_checkpoint_newest(const struct rp_checkpoints *cs);

#endif
