/*
 * Landing: how the thread in hand gets to a position in ground that was covered.
 *
 * From the last full checkpoint before it the emulator replays a hundred million instructions a
 * second. Where that would take long, a process of its own (worker.h) does most of it in generated
 * code: a copy of this one that has all the checkpoints that there were when it began, and those
 * that it has made since. It is told where from and where to, goes there, and hands back a full
 * checkpoint. It lives on for the next time, with what it has translated.
 *
 * Whether what it says is right has been found out before, when the ground was covered by the same
 * code (ground.h); digests on the way are compared all the same. If it fails the emulator goes.
 */
#ifndef DEJA_REPLAYER_LAND_H
#define DEJA_REPLAYER_LAND_H

#include "replayer/replay-internal.h"

struct rp_lander;

/* Put the thread to `to`, which is a position. With `dense` there are checkpoints on the way,
 * denser towards it: for going back from there. Where it was interrupted, which is an error and
 * r->cancelled, it stays. */
int rp_land(struct replay *r, const struct rp_thread_pos *to, bool dense, struct dj_error *err);
/* The same, without dense checkpoints and for once: nobody is begun who has memory at many
 * positions on the way (rp_ground_fill()). */
int rp_land_last(struct replay *r, const struct rp_thread_pos *to, struct dj_error *err);
/* Somewhere up to `to` from where the emulator goes on; not back from where it is, if `to` is
 * ahead. */
int rp_land_before(struct replay *r, const struct rp_thread_pos *to, bool dense,
		   struct dj_error *err);
/* Somewhere up to `to` and not before where it is, without replaying: who waits has lost patience.
 */
int rp_land_at_once(struct replay *r, const struct rp_thread_pos *to, struct dj_error *err);
/* Find out in which of so many parts of the way from `from`, a checkpoint or the beginning, to `to`
 * which lines were met: light checkpoints between them, and one at `to` or its lines. The thread
 * may be elsewhere then. False: that cannot be; r->cancelled: it was interrupted. */
bool rp_land_survey(struct replay *r, const struct rp_thread_pos *from,
		    const struct rp_thread_pos *to, unsigned parts);
void rp_lander_free(struct rp_lander *l);

#define RP_SURVEY_PARTS 16u

/* What it is asked. */
struct rp_landing {
	struct rp_thread_pos from, to; /* from is that of a full checkpoint that both have */
	struct rp_thread_pos since;    /* a survey: from there on */
	uint64_t dense;
	uint64_t parts; /* not 0: a survey, in so many */
};
/* land-work.c: in the process of its own. */
_Noreturn void rp_land_work(struct replay *r, int in, int out);

#endif
