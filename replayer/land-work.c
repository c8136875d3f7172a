/*
 * Landing, in the process that does it: see land.h.
 */
#include "replayer/land.h"
#include "replayer/trail.h"
#include "replayer/wire.h"
#include "replayer/worker.h"

#include <stdlib.h>
#include <unistd.h>

#define AT_ONCE ((size_t)512 << 20) /* bytes of checkpoints on the way to one place */
#define START	500000u /* instructions at a program's start, where mappings come and go */

struct work {
	struct replay *r;
	int out;
	bool said; /* something, of this landing */
	struct rp_wire wire;
	struct rp_space *sent;
};

/* Hand it back. */
static bool say(struct work *w, const struct rp_checkpoint *c)
{
	rp_wire_put(&w->wire, c, w->r->th->e, w->sent);
	w->said = true;
	if (w->wire.failed || !rp_work_say(w->out, w->wire.bytes, w->wire.n))
		return false;
	rp_space_unref(w->sent);
	w->sent = rp_space_ref(c->space);
	return true;
}

/* Say all full checkpoints behind `from`, up to where the thread is. */
static bool say_from(struct work *w, const struct rp_thread_pos *from)
{
	const struct rp_checkpoints *cs = w->r->cs;

	for (size_t i = rp_checkpoint_count(cs, from); i < cs->base; i++) {
		const struct rp_checkpoint *c = cs->list[i];
		if (!c->light && !say(w, c))
			return false;
	}
	return true;
}

/* On to there. */
static bool run_to(struct work *w, const struct rp_thread_pos *to)
{
	struct rp_thread *th = w->r->th;
	struct rp_thread_pos now;

	if (rp_thread_run(th, to, 0) != THREAD_LIMIT)
		return false;
	rp_thread_pos(th, &now);
	return !rp_thread_pos_cmp(&now, to);
}

/* The same, with a full checkpoint. */
static bool go_on(struct work *w, const struct rp_thread_pos *to)
{
	if (!run_to(w, to))
		return false;
	rp_checkpoint_take(w->r->cs);
	return !rp_trail_strays(w->r->th->mem) && rp_checkpoint_here(w->r->cs);
}

/* A light one where the thread is; with `tell` the other side is told of it. */
static bool note(struct work *w, bool tell)
{
	struct rp_checkpoint *c = rp_checkpoint_light(w->r->cs);
	bool good = c && !rp_trail_strays(w->r->th->mem) && (!tell || say(w, c));

	if (c)
		rp_checkpoint_free(c);
	return good;
}

/* From the beginning the emulator goes first, if it is farther to `to` than that: of two mappings
 * that share pages of the shadow, as a loader's may, generated code does not tell which was meant.
 */
static bool start(struct work *w, const struct rp_thread_pos *to)
{
	struct rp_thread *th = w->r->th;
	const struct rp_thread_pos next = { .steps = th->info->first_steps + START };
	struct fast *fast = th->fast;

	if (th->e->steps != th->info->first_steps || to->steps <= next.steps)
		return true;
	th->fast = NULL;
	bool good = run_to(w, &next);
	th->fast = fast;
	return good;
}

/* From where the thread is. */
static bool survey(struct work *w, const struct rp_landing *q)
{
	const uint64_t part = (q->to.steps - q->since.steps) / q->parts;

	if (!run_to(w, &q->since) || !note(w, false))
		return false;
	for (uint64_t i = 1; i < q->parts; i++) {
		const struct rp_thread_pos next = { .steps = q->since.steps + i * part };
		if (!run_to(w, &next) || !note(w, true))
			return false;
	}
	return run_to(w, &q->to) && note(w, true);
}

static bool land(struct work *w, const struct rp_landing *q)
{
	struct rp_thread *th = w->r->th;
	struct rp_thread_pos at = q->from, now;

	if (rp_checkpoint_go(w->r->cs, &at, NULL))
		return false;
	rp_thread_pos(th, &now);
	if (rp_thread_pos_cmp(&now, &at) != 0)
		_exit(1); /* it is not known here: whoever asks begins another process */
	rp_space_unref(w->sent);
	w->sent = rp_space_ref(th->space);
	if (!start(w, q->parts ? &q->since : &q->to))
		return false;
	if (q->parts)
		return survey(w, q);
	while (rp_thread_pos_cmp(&at, &q->to) < 0) {
		struct rp_thread_pos next = q->to, before = at;
		uint64_t left = q->to.steps - th->e->steps; /* the emulator may have been ahead */
		if (q->dense && left / 2 >= w->r->land_worth)
			next = (struct rp_thread_pos){ .steps = th->e->steps + left / 2 };
		if (!go_on(w, &next) || !say_from(w, &before))
			return false;
		at = next;
	}
	return true;
}

/* The same once more, with more care, if that is what was missing. (What has been said already was
 * right, but would be said twice.) */
static bool land_apart(struct work *w, const struct rp_landing *q)
{
	struct rp_memview *mv = w->r->th->mem;

	if (w->said || !rp_trail_strays(mv))
		return false;
	rp_trail_leave(mv);
	return rp_trail_tell_apart(mv) && land(w, q);
}

void rp_land_work(struct replay *r, int in, int out)
{
	struct work w = { .r = r, .out = out };
	const size_t held = rp_versions_held();
	struct rp_landing q;

	rp_work_begin(r, in, out);
	/* Where a landing begins is a full one that both sides have. This side is as full as that
	 * is whose copy it is, so each one more would take its place from another. */
	r->cs->all = held + r->land_most + AT_ONCE;
	while (rp_work_hear(in, &q, sizeof(q))) {
		w.said = false;
		bool good = land(&w, &q) || land_apart(&w, &q);
		if (!rp_work_say(out, good ? rp_wire_good : rp_wire_bad, RP_WIRE_HEAD) || !good)
			break;
		if (rp_versions_held() > held + r->land_most)
			break;
	}
	_exit(0);
}
