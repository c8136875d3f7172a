/*
 * Covering ground, the side that a debugger talks to: see ground.h.
 */
#include "replayer/ground.h"
#include "replayer/land.h"
#include "replayer/tail.h"
#include "replayer/wire.h"
#include "replayer/worker.h"

#include <stdlib.h>

#define AT_ONCE 4u /* processes that do so at the same time, and other ones */

struct rp_ground {
	struct rp_worker worker;
	bool over;		   /* nothing more will come */
	bool filling;		   /* of known ground it brings full checkpoints */
	struct rp_thread_pos from; /* where it began */
	struct rp_space *space;	   /* at the last checkpoint that came */
	struct rp_tail tail;	   /* the same */
};

/* ---- life ------------------------------------------------------------------------------------ */

/* Nothing more is expected of it. */
static void end(struct rp_ground *g)
{
	rp_worker_end(&g->worker);
	g->over = true;
	rp_tail_free(&g->tail);
	rp_space_unref(g->space);
	g->space = NULL;
}

void rp_ground_free(struct rp_ground *g)
{
	if (!g)
		return;
	end(g);
	free(g);
}

/* That of the thread in hand. */
static void forget(struct replay *r)
{
	rp_ground_free(r->threads[r->selected].ground);
	r->threads[r->selected].ground = NULL;
	r->cs->held = false;
}

/* The thread stands at a full checkpoint: a copy of this process goes on from here. */
static void start(struct replay *r, struct rp_ground *g)
{
	rp_memview_bases(r->mv, rp_tail_set, &g->tail);
	g->space = rp_space_ref(r->th->space);
	if (g->tail.failed || !rp_worker_start(&g->worker, r, rp_ground_work))
		end(g);
	r->cs->held = !g->over;
	r->cs->hold = r->cs->hold_full = g->from = r->cs->list[r->cs->base - 1]->pos;
}

/* Whether what lies behind the last checkpoint is worth a process; who makes full checkpoints of
 * known ground would go for it. */
static bool worth_it(const struct replay *r)
{
	const struct rp_thread *th = r->th;
	const struct rp_ground *g = r->threads[r->selected].ground;
	const unsigned others = rp_workers() - (g && !g->over);
	uint64_t upto = r->cs->n ? r->cs->list[r->cs->n - 1]->pos.steps : th->info->first_steps;

	if (upto < th->e->steps)
		upto = th->e->steps;
	return !r->cs->whole && others < AT_ONCE && th->end_steps > upto &&
	       th->end_steps - upto >= r->ground_worth && rp_worker_possible(r);
}

bool rp_ground_likely(const struct replay *r)
{
	const struct rp_ground *g = r->threads[r->selected].ground;

	return g && !g->filling ? !g->over : worth_it(r);
}

/* From `here`, which is a full checkpoint, to the last one of all. False: that was interrupted. If
 * it cannot be, the thread is elsewhere. */
static bool to_last(struct replay *r, const struct rp_thread_pos *here)
{
	const uint64_t seq_stop = r->th->seq_stop;
	const struct rp_thread_pos last = r->cs->list[r->cs->n - 1]->pos;
	const bool anchored = r->cs->anchored, cancelled = r->cancelled;
	const struct rp_thread_pos anchor = r->cs->anchor;

	if (!rp_thread_pos_cmp(&last, here))
		return true;
	/* the way back is not to be a long one */
	r->cs->anchored = true;
	r->cs->anchor = *here;
	r->cancelled = false;
	r->th->seq_stop = UINT64_MAX;
	bool good = !rp_land_last(r, &last, NULL) || !r->cancelled;
	r->th->seq_stop = seq_stop;
	r->cancelled |= cancelled;
	r->cs->anchored = anchored;
	r->cs->anchor = anchor;
	return good;
}

bool rp_ground_have(struct replay *r)
{
	struct rp_timeline *line = &r->threads[r->selected];
	struct rp_thread_pos here;
	struct rp_ground *g = NULL;

	if (line->ground && !line->ground->filling)
		return !line->ground->over;
	if (!worth_it(r))
		return false;
	forget(r); /* what nobody knows comes first */
	rp_checkpoint_take(r->cs);
	if (!rp_checkpoint_here(r->cs))
		return false;
	rp_thread_pos(r->th, &here);
	/* whoever lands may put an end to line->ground, so that is nothing yet */
	if (to_last(r, &here) && (g = calloc(1, sizeof(*g)))) {
		g->worker.to = g->worker.from = -1;
		g->over = rp_checkpoint_next(r->cs) || !rp_checkpoint_here(r->cs);
		line->ground = g;
		if (!g->over)
			start(r, g);
	}
	rp_stand_again(r, &here);
	return g && !g->over;
}

/* ---- what comes ------------------------------------------------------------------------------ */

/* Attach the checkpoint in the message. */
static bool attach(struct replay *r, struct rp_ground *g, uint64_t length)
{
	struct rp_checkpoints *cs = r->cs;
	struct rp_checkpoint *c =
		rp_wire_get(g->worker.in, length, r->th, g->space, rp_tail_get, &g->tail);
	const struct rp_thread_pos hold = cs->hold, since = cs->hold_full;

	if (!c)
		return false;
	rp_worker_next(&g->worker, length);
	if (rp_thread_pos_cmp(&c->pos, &hold) <= 0 || c->pos.steps > r->th->end_steps) {
		rp_checkpoint_free(c);
		return false;
	}
	rp_tail_follow(&g->tail, &c->changes);
	rp_space_unref(g->space);
	g->space = rp_space_ref(c->space);
	cs->hold = c->pos; /* it must not go as soon as it has come */
	if (!c->light)
		cs->hold_full = c->pos;
	bool good = !g->tail.failed;
	if (!good)
		rp_checkpoint_free(c);
	if (!good || !rp_checkpoint_add(cs, c, &since)) {
		cs->hold = hold;
		cs->hold_full = since;
		return false;
	}
	return true;
}

/* Wait for one more checkpoint. False: there will be none any more, or somebody waits. */
static bool more(struct replay *r, struct rp_ground *g, bool (*busy)(void *ctx), void *ctx)
{
	uint64_t length;

	switch (rp_worker_wait(&g->worker, r, &length, busy, ctx)) {
	case WORKER_SAID:
		if (attach(r, g, length))
			return true;
		break;
	case WORKER_BUSY:
		r->cancelled |= !busy;
		return false;
	case WORKER_OVER:
		break;
	}
	/* at its end it says nothing more; what lies behind its last word is not far */
	end(g);
	r->cs->held = false;
	return false;
}

bool rp_ground_more(struct replay *r, bool (*busy)(void *ctx), void *ctx)
{
	return rp_ground_have(r) && more(r, r->threads[r->selected].ground, busy, ctx);
}

/* Have full checkpoints made from list[n - 1] on, which is one. */
static struct rp_ground *fill_from(struct replay *r, size_t n)
{
	struct rp_timeline *line = &r->threads[r->selected];
	struct rp_thread_pos from = r->cs->list[n - 1]->pos;
	struct rp_ground *g;

	forget(r);
	if (rp_workers() >= AT_ONCE || !rp_worker_possible(r) ||
	    rp_checkpoint_go(r->cs, &from, NULL))
		return NULL;
	g = line->ground = calloc(1, sizeof(*g));
	if (!g)
		return NULL;
	g->worker.to = g->worker.from = -1;
	g->filling = true;
	start(r, g);
	return g;
}

uint64_t rp_sparse(const struct replay *r)
{
	uint64_t part = (r->th->end_steps - r->th->info->first_steps) / 32;

	return part > r->fill_worth ? part : r->fill_worth;
}

bool rp_ground_fill(struct replay *r, size_t n, const struct rp_thread_pos *to,
		    bool (*busy)(void *ctx), void *ctx)
{
	struct rp_ground *g = r->threads[r->selected].ground;
	bool good = g && g->filling && !g->over &&
		    rp_thread_pos_cmp(&r->cs->hold, &r->cs->list[n - 1]->pos) >= 0 &&
		    rp_thread_pos_cmp(&r->cs->hold, to) <= 0;

	if (g && !g->filling && !g->over)
		return false;
	if (!good)
		g = fill_from(r, n);
	while (g && !g->over && rp_thread_pos_cmp(&r->cs->hold, to) < 0)
		if (!more(r, g, busy, ctx))
			return !g->over;
	/* behind the last checkpoint nothing is known to be filled */
	if (g && !g->over &&
	    rp_thread_pos_cmp(&r->cs->hold, &r->cs->list[r->cs->n - 1]->pos) >= 0) {
		end(g);
		r->cs->held = false;
	}
	return false;
}

bool rp_ground_filled(const struct replay *r, size_t n)
{
	const struct rp_ground *g = r->threads[r->selected].ground;

	return !g || rp_thread_pos_cmp(&g->from, &r->cs->list[n - 1]->pos) <= 0;
}

bool rp_ground_cover(struct replay *r, const struct rp_thread_pos *to)
{
	while (!r->cs->n || rp_thread_pos_cmp(&r->cs->list[r->cs->n - 1]->pos, to) < 0)
		if (!rp_ground_more(r, NULL, NULL))
			return !r->cancelled;
	return true;
}
