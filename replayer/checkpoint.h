/*
 * Checkpoints of one thread: positions that it can be put to at once, from wherever it is.
 *
 * History does not change, so a checkpoint is good for ever: going back leaves those that come
 * later. A checkpoint holds registers and the like, and what memory has changed since the one
 * before it (versions.h), the first since the beginning of history, where everything is fresh. The
 * thread has come from one of them, its base: going to another is going over the changes between
 * the two.
 *
 * When there are too many some go, and when they hold too much some become light: those first that
 * are close together. How close they may be grows with the distance from here, up to what makes
 * them even over the rest of what has been replayed: so the part around the user is densest, and
 * nothing is far from one.
 *
 * A light one has all but the memory. It says where something may have happened and where not, and
 * who wants to stand there replays from the last full one (land.h). So light ones are worth keeping
 * where there is room for hardly any memory.
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
	uint64_t order;
	struct dj_mark mark;
	struct rp_space *space;
	bool light;		   /* without memory: nothing is in `changes` */
	uint64_t lander;	   /* the last process that knows it (land.h), by number */
	struct rp_changes changes; /* since the last full checkpoint before */
	struct rp_lines lines;	   /* since the checkpoint before, of either kind */
};

struct rp_checkpoints {
	struct rp_thread *th;
	struct rp_memview *mem;
	struct rp_checkpoint **list; /* by position */
	size_t n, cap;
	size_t base;   /* the thread has come from list[base - 1], a full one; 0: the beginning */
	bool anchored; /* the user is not where the thread is, but at a checkpoint `anchor` */
	struct rp_thread_pos anchor;
	/* the checkpoint at `hold` is kept, with all that was met up to it, and the one at
	 * `hold_full` stays full */
	bool held;
	struct rp_thread_pos hold, hold_full;
	bool whole;   /* they reach to where the thread's history ends */
	bool indexed; /* some come from what was kept (keep.h) */
	bool filled;  /* as many of them are full as there is room for */
	size_t max;   /* how many to keep; SIZE_MAX: none goes, but some become light */
	size_t all; /* if not 0: all stay as they are, and together take no more bytes than that */
	size_t budget; /* bytes that all checkpoints of the process may take, about */
};

void rp_checkpoints_init(struct rp_checkpoints *cs, struct rp_thread *th, struct rp_memview *mem,
			 size_t budget);
void rp_checkpoints_free(struct rp_checkpoints *cs);
/* A full one here, unless there is. Without memory there is none, which only costs time later. */
void rp_checkpoint_take(struct rp_checkpoints *cs);
/* A light one here, behind all others. */
void rp_checkpoint_note(struct rp_checkpoints *cs);
/* A light one here that is not one of them, with the lines met since lines were last taken; NULL:
 * there is none. */
struct rp_checkpoint *rp_checkpoint_light(struct rp_checkpoints *cs);
/* One that comes from elsewhere: its changes are those since the full checkpoint at `since`, which
 * is there. It is given up if there is one already, unless that is light and it is not. False
 * without memory. */
bool rp_checkpoint_add(struct rp_checkpoints *cs, struct rp_checkpoint *c,
		       const struct rp_thread_pos *since);
void rp_checkpoint_free(struct rp_checkpoint *c);
/* Put a light one with the lines met since `since` among them; where there is one it gets these
 * lines. False: there is none at or behind `since` that they could be counted from; c is freed. */
bool rp_checkpoint_part(struct rp_checkpoints *cs, struct rp_checkpoint *c,
			const struct rp_thread_pos *since);
/* As many become light or go as there are too many: after `max` was SIZE_MAX for a while. */
void rp_checkpoints_thin(struct rp_checkpoints *cs);
/* Nobody will go back before list[n], so that the checkpoints up to there are not needed. */
void rp_checkpoints_shed(struct rp_checkpoints *cs, size_t n);
/* Nor forward from there, to those that were taken behind it. */
void rp_checkpoints_cut(struct rp_checkpoints *cs);
/* How many checkpoints there are up to and including `pos`: list[n - 1] is the last of them. */
size_t rp_checkpoint_count(const struct rp_checkpoints *cs, const struct rp_thread_pos *pos);
/* How many there are before it. */
size_t rp_checkpoint_before(const struct rp_checkpoints *cs, const struct rp_thread_pos *pos);
/* How many of the first n there are up to and including the last full one of them. */
size_t rp_checkpoint_full(const struct rp_checkpoints *cs, size_t n);
/* The last full one up to here, and the first of either kind after here; NULL if there is none. */
struct rp_checkpoint *rp_checkpoint_last(const struct rp_checkpoints *cs);
struct rp_checkpoint *rp_checkpoint_next(const struct rp_checkpoints *cs);
/* Whether there is a full one at this very position. */
bool rp_checkpoint_here(const struct rp_checkpoints *cs);
/* Whether none of [addr, last] was written, or also not read, from checkpoint list[i] to `to`,
 * which lies behind it. False also if that is not known. */
bool rp_checkpoint_quiet(const struct rp_checkpoints *cs, size_t i, const struct rp_thread_pos *to,
			 uint64_t addr, uint64_t last, bool reads);
/* Put the thread to the last full checkpoint (or the beginning) not after `pos`. */
int rp_checkpoint_go(struct rp_checkpoints *cs, const struct rp_thread_pos *pos,
		     struct dj_error *err);

#endif
