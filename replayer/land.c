/*
 * Landing, the side that a debugger talks to: see land.h.
 */
#include "replayer/land.h"
#include "replayer/ground.h"
#include "replayer/keep.h"
#include "replayer/wire.h"
#include "replayer/worker.h"

#include <stdlib.h>
#include <string.h>

#define AT_ONCE 8u     /* processes, of other kinds as well */
#define LEAD	20000u /* instructions before a position that are left to the emulator */

struct rp_lander {
	struct rp_worker worker;
	uint64_t number;
};

static uint64_t landers; /* ever begun */

void rp_lander_free(struct rp_lander *l)
{
	if (!l)
		return;
	rp_worker_end(&l->worker);
	free(l);
}

static void give_up(struct replay *r)
{
	rp_lander_free(r->threads[r->selected].lander);
	r->threads[r->selected].lander = NULL;
}

/* There are too many processes: those that land other threads go. */
static void make_way(struct replay *r)
{
	for (uint32_t i = 0; i < r->nthreads && rp_workers() >= AT_ONCE; i++) {
		if (i == r->selected)
			continue;
		rp_lander_free(r->threads[i].lander);
		r->threads[i].lander = NULL;
	}
}

/* Begin one that has all full checkpoints of the thread in hand. */
static bool begin(struct replay *r)
{
	struct rp_lander *l;

	give_up(r);
	make_way(r);
	l = rp_workers() < AT_ONCE ? calloc(1, sizeof(*l)) : NULL;
	if (!l)
		return false;
	l->number = ++landers;
	for (size_t i = 0; i < r->cs->n; i++)
		if (!r->cs->list[i]->light)
			r->cs->list[i]->lander = l->number;
	if (rp_worker_start(&l->worker, r, rp_land_work)) {
		r->threads[r->selected].lander = l;
		return true;
	}
	free(l);
	return false;
}

/* The last full checkpoint up to `to`; one at the beginning if there is none. */
static struct rp_checkpoint *last_full(struct replay *r, const struct rp_thread_pos *to)
{
	const struct rp_thread_pos first = { .steps = r->th->info->first_steps };
	size_t n = rp_checkpoint_full(r->cs, rp_checkpoint_count(r->cs, to));

	if (n)
		return r->cs->list[n - 1];
	if (rp_checkpoint_go(r->cs, &first, NULL))
		return NULL;
	rp_checkpoint_take(r->cs);
	return rp_checkpoint_here(r->cs) ? r->cs->list[0] : NULL;
}

/* One that the process has, too, if that is hardly further away. */
static struct rp_checkpoint *common(struct replay *r, const struct rp_thread_pos *to)
{
	const struct rp_lander *l = r->threads[r->selected].lander;
	struct rp_checkpoint *last = last_full(r, to), *c = last;
	size_t n = rp_checkpoint_count(r->cs, to); /* that may have been the end of some */

	if (!last)
		return NULL;
	while (l && n && (r->cs->list[n - 1]->light || r->cs->list[n - 1]->lander != l->number))
		n--;
	if (l && n)
		c = r->cs->list[n - 1];
	if (l && n && last->pos.steps - c->pos.steps <= r->land_worth)
		return c;
	return begin(r) ? last : NULL;
}

static void *base_version(void *ctx, uint64_t key)
{
	return rp_memview_base(ctx, key);
}

/* What has come of an answer: the last checkpoint, and the mappings there. */
struct got {
	struct rp_thread_pos pos;
	struct rp_space *space;
};

/* Put the checkpoint in the message among the others; one to land at is gone to. */
static bool attach(struct replay *r, struct rp_lander *l, uint64_t length,
		   const struct rp_landing *q, struct got *got)
{
	struct rp_checkpoint *c =
		rp_wire_get(l->worker.in, length, r->th, got->space, base_version, r->mv);
	const struct rp_thread_pos since = got->pos;
	struct rp_thread_pos here;

	if (!c)
		return false;
	rp_worker_next(&l->worker, length);
	rp_space_unref(got->space);
	got->space = rp_space_ref(c->space);
	got->pos = c->pos;
	if (c->light != (bool)q->parts || rp_thread_pos_cmp(&c->pos, &since) <= 0 ||
	    rp_thread_pos_cmp(&c->pos, &q->to) > 0) {
		rp_checkpoint_free(c);
		return false;
	}
	if (!q->parts)
		c->lander = l->number;
	/* it must not become light, or go, as soon as it has come */
	bool anchored = r->cs->anchored;
	struct rp_thread_pos anchor = r->cs->anchor;
	r->cs->anchored = true;
	r->cs->anchor = got->pos;
	bool added = q->parts ? rp_checkpoint_part(r->cs, c, &since)
			      : rp_checkpoint_add(r->cs, c, &since);
	r->cs->anchored = anchored;
	r->cs->anchor = anchor;
	if (!added || q->parts)
		return added;
	if (rp_checkpoint_go(r->cs, &got->pos, &r->th->err))
		return false;
	rp_thread_pos(r->th, &here);
	return !rp_thread_pos_cmp(&here, &got->pos);
}

/* Ask, and take what it answers: true if that leads to q->to. `over`: the process had ended. */
static bool ask(struct replay *r, struct rp_lander *l, const struct rp_landing *q, struct got *got,
		bool *over)
{
	uint64_t length;

	*over = !rp_worker_ask(&l->worker, q, sizeof(*q));
	if (*over || (!q->parts && rp_checkpoint_go(r->cs, &q->from, &r->th->err)))
		return false;
	for (;;) {
		switch (rp_worker_wait(&l->worker, r, &length, NULL, NULL)) {
		case WORKER_SAID:
			if (length == RP_WIRE_HEAD)
				break;
			if (!attach(r, l, length, q, got))
				return false;
			continue;
		case WORKER_BUSY:
			r->cancelled = true;
			return false;
		case WORKER_OVER:
			*over = true;
			return false;
		}
		break;
	}
	bool good = !memcmp(l->worker.in, rp_wire_good, RP_WIRE_HEAD);
	rp_worker_next(&l->worker, length);
	return good && !rp_thread_pos_cmp(&got->pos, &q->to);
}

/* Have a process do it, from the last full checkpoint up to `first`. False: it cannot, and the
 * thread may be anywhere before. */
static bool by_process(struct replay *r, const struct rp_thread_pos *first, struct rp_landing *q)
{
	const struct rp_checkpoint *c;
	bool over = true;

	/* it ends when it has enough; another has what this process got from it */
	for (unsigned tries = 0; over && !r->cancelled && tries < 2; tries++) {
		if (!rp_worker_possible(r) || !(c = common(r, first)))
			return false;
		q->from = c->pos;
		struct got got = { q->parts ? q->since : q->from, rp_space_ref(c->space) };
		bool good = ask(r, r->threads[r->selected].lander, q, &got, &over);
		rp_space_unref(got.space);
		if (good)
			return true;
		r->landers_over += over;
		r->landings_failed += !over && !r->cancelled;
		give_up(r);
	}
	r->not_landed += over;
	return false;
}

bool rp_land_survey(struct replay *r, const struct rp_thread_pos *from,
		    const struct rp_thread_pos *to, unsigned parts)
{
	struct rp_landing q = { .since = *from, .to = *to, .parts = parts };

	bool good = by_process(r, from, &q);
	r->surveys += good;
	return good;
}

/* How many instructions generated code must save to be worth it, behind the full checkpoint
 * list[n - 1]: as many pages have to be handed back as change up to the next one, at most. */
static uint64_t worth(const struct replay *r, size_t n)
{
	while (n < r->cs->n && r->cs->list[n]->light)
		n++;
	return r->land_worth + (n < r->cs->n ? r->land_page * r->cs->list[n]->changes.n : 0);
}

/* To the last full checkpoint; if that is a bad one that was kept, without any. */
static int go(struct replay *r, const struct rp_thread_pos *to, struct dj_error *err)
{
	if (!rp_checkpoint_go(r->cs, to, err) || rp_keep_refuse(r, to))
		return 0;
	return -1;
}

/* Up to `upto`, which is not behind `to`, where generated code is worth it; else from where the
 * thread is, or from the last checkpoint. With `again` somebody may come there once more. */
static int land(struct replay *r, const struct rp_thread_pos *upto, const struct rp_thread_pos *to,
		bool dense, bool again, struct dj_error *err)
{
	size_t n = rp_checkpoint_full(r->cs, rp_checkpoint_count(r->cs, to));
	uint64_t from = n ? r->cs->list[n - 1]->pos.steps : r->th->info->first_steps;
	struct rp_thread_pos now;

	rp_thread_pos(r->th, &now);
	bool ahead = rp_thread_pos_cmp(&now, to) <= 0;
	if (ahead && now.steps > from)
		from = now.steps;
	if (!n && r->cs->indexed && last_full(r, to))
		n = 1;
	if (again && !r->in_copy && n && r->cs->indexed && !r->cs->filled &&
	    upto->steps > r->cs->list[n - 1]->pos.steps + rp_sparse(r)) {
		/* of the memory little was kept here: who goes there once goes there again */
		rp_ground_fill(r, n, upto, NULL, NULL);
		if (r->cancelled)
			return dj_fail(err, 1, "interrupted");
		n = rp_checkpoint_full(r->cs, rp_checkpoint_count(r->cs, to));
		from = n ? r->cs->list[n - 1]->pos.steps : r->th->info->first_steps;
		rp_thread_pos(r->th, &now);
		ahead = rp_thread_pos_cmp(&now, to) <= 0;
		if (ahead && now.steps > from)
			from = now.steps;
	}
	if (!r->in_copy && upto->steps > from && upto->steps - from >= worth(r, n)) {
		struct rp_landing q = { .to = *upto, .dense = dense };
		if (by_process(r, upto, &q)) {
			r->landed++;
			return 0;
		}
		if (r->cancelled)
			return dj_fail(err, 1, "interrupted");
		rp_thread_pos(r->th, &now);
		ahead = rp_thread_pos_cmp(&now, to) <= 0;
	}
	n = rp_checkpoint_full(r->cs, rp_checkpoint_count(r->cs, to));
	if (ahead && (!n || now.steps + r->near >= r->cs->list[n - 1]->pos.steps))
		return 0;
	return go(r, to, err);
}

int rp_land_at_once(struct replay *r, const struct rp_thread_pos *to, struct dj_error *err)
{
	size_t n = rp_checkpoint_full(r->cs, rp_checkpoint_count(r->cs, to));
	struct rp_thread_pos now;

	rp_thread_pos(r->th, &now);
	if (!n || rp_thread_pos_cmp(&r->cs->list[n - 1]->pos, &now) <= 0)
		return 0;
	return go(r, to, err);
}

int rp_land_before(struct replay *r, const struct rp_thread_pos *to, bool dense,
		   struct dj_error *err)
{
	struct rp_thread_pos upto = { .steps = to->steps };

	/* behind the last checkpoint nothing is known to be there */
	if (r->cs->n && r->cs->list[r->cs->n - 1]->pos.steps < upto.steps)
		upto.steps = r->cs->list[r->cs->n - 1]->pos.steps;
	upto.steps = upto.steps > r->th->info->first_steps + LEAD ? upto.steps - LEAD
								  : r->th->info->first_steps;
	return land(r, &upto, to, dense, true, err);
}

static int land_at(struct replay *r, const struct rp_thread_pos *to, bool dense, bool again,
		   struct dj_error *err)
{
	size_t n = rp_checkpoint_count(r->cs, to);
	struct rp_thread_pos now;

	if (n && !r->cs->list[n - 1]->light && !rp_thread_pos_cmp(&r->cs->list[n - 1]->pos, to))
		return go(r, to, err);
	if (land(r, to, to, dense, again, err))
		return -1;
	bool (*stop_at)(void *, struct emu *) = r->th->e->stop_at;
	r->th->e->stop_at = NULL;
	r->mv->watching = false;
	enum rp_thread_stop res = replay_run_to(r, to, 0, dense);
	r->th->e->stop_at = stop_at;
	if (rp_move_failed(r, res, err))
		return -1;
	rp_thread_pos(r->th, &now);
	if (!rp_thread_pos_cmp(&now, to))
		rp_checkpoint_take(r->cs); /* the light one there becomes full */
	return 0;
}

int rp_land(struct replay *r, const struct rp_thread_pos *to, bool dense, struct dj_error *err)
{
	return land_at(r, to, dense, true, err);
}

int rp_land_last(struct replay *r, const struct rp_thread_pos *to, struct dj_error *err)
{
	return land_at(r, to, false, false, err);
}
