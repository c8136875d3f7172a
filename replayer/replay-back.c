/*
 * Running backward to a condition.
 *
 * The interval from the newest checkpoint to here is run forward once, remembering the last place
 * where a condition held; if there is none, the interval before it is searched, and so on.
 * Intervals whose undo log shows that nothing watched can have changed are skipped.
 */
#include "replayer/replay-internal.h"

#include <string.h>

/* The last condition met on the way forward through an interval. */
struct last {
	bool found;
	struct replay_stop stop;
	struct rp_thread_pos pos;   /* where to stop for it */
	bool before;		    /* one position earlier, that is */
	bool refine;		    /* a watch in a REP instruction: some iteration of it */
	struct rp_thread_pos after; /* where it was noticed */
};

static void remember(struct replay *r, struct last *last, const struct replay_stop *stop,
		     const struct rp_thread_pos *hi, bool newest)
{
	struct last l = { .found = true, .stop = *stop };

	rp_thread_pos(r->th, &l.after);
	l.pos = l.after;
	if (stop->reason == REPLAY_WATCH) {
		l.pos = r->mv->hit.before;
		l.refine = r->mv->hit.in_rep;
	} else if (stop->reason == REPLAY_EXECED) {
		l.before = true;
	} else if (stop->reason == REPLAY_FORKED) {
		return; /* tells a debugger nothing backwards */
	} else if (rp_thread_pos_cmp(&l.pos, hi) >= 0 &&
		   (newest || stop->reason != REPLAY_SYSCALL_RETURN)) {
		return; /* the end of the interval belongs to the next */
	}
	*last = l;
}

/* Run from here, the interval's beginning, to `hi`. */
static int search(struct replay *r, const struct rp_thread_pos *hi, bool newest, struct last *last)
{
	struct replay_stop stop;
	struct rp_thread_pos now;

	last->found = false;
	memset(&stop, 0, sizeof(stop));
	if (rp_position_condition(r, &stop, true))
		remember(r, last, &stop, hi, newest);
	for (;;) {
		rp_conditions(r, true);
		int res = replay_run_to(r, hi, rp_events_wanted(r), true);
		memset(&stop, 0, sizeof(stop));
		bool found = rp_reason_of(r, res, &stop);
		if (found && res != THREAD_END && res != THREAD_FAILED &&
		    res != THREAD_INTERRUPTED) {
			remember(r, last, &stop, hi, newest);
			/* a breakpoint where another condition stopped us has its say, too */
			rp_thread_pos(r->th, &now);
			if (stop.reason != REPLAY_BREAK && rp_thread_pos_cmp(&now, hi) < 0 &&
			    rp_position_condition(r, &stop, true))
				remember(r, last, &stop, hi, newest);
		}
		rp_conditions(r, false);
		if (res == THREAD_LIMIT || res == THREAD_END)
			return THREAD_LIMIT;
		if (res == THREAD_FAILED || res == THREAD_INTERRUPTED)
			return res;
	}
}

/* The last iteration within the REP instruction at l->pos that hits a watch. */
static int refine_backward(struct replay *r, struct last *l)
{
	struct rp_thread_pos at = l->pos, found = l->pos;

	at.rep = found.rep = 0;
	if (replay_move(r, &at, &l->stop.err))
		return -1;
	for (;;) {
		rp_thread_pos(r->th, &at);
		if (rp_thread_pos_cmp(&at, &l->after) >= 0)
			break;
		rp_conditions(r, true);
		enum rp_thread_stop res = rp_thread_step(r->th);
		if (r->mv->hit.hit) {
			found = at;
			rp_fill(r, &l->stop, REPLAY_WATCH);
		}
		rp_conditions(r, false);
		if (rp_move_failed(r, res, &l->stop.err))
			return -1;
		if (res == THREAD_END)
			break;
	}
	l->pos = found;
	return 0;
}

static void stop_at_last(struct replay *r, struct last *l, struct replay_stop *stop)
{
	*stop = l->stop;
	if ((l->refine && refine_backward(r, l)) || replay_move(r, &l->pos, &stop->err) ||
	    (l->before && replay_move_back(r, &stop->err) < 0)) {
		stop->reason = r->cancelled ? REPLAY_INTERRUPTED : REPLAY_FAILED;
	} else {
		*stop = l->stop;
		r->signal_told = stop->reason == REPLAY_SIGNAL;
	}
	replay_pos(r, &stop->pos);
}

/* What had happened up to the end of the interval that is searched next. */
struct upto {
	struct rp_thread_pos pos;
	uint64_t calls, signals, image;
};

/* Whether nothing that is looked for can have happened from checkpoint c to there. */
static bool quiet(struct replay *r, struct rp_checkpoint *c, const struct upto *hi)
{
	if (r->nbreaks || (r->signals && hi->signals != c->signals_total) ||
	    (r->catching && hi->calls != c->events - c->signals_total) ||
	    hi->image != c->space->image_steps)
		return false;
	return rp_memview_watches_quiet(r->mv, &c->log);
}

void rp_continue_backward(struct replay *r, struct replay_stop *stop)
{
	struct rp_thread_pos begin = { .steps = r->th->info->first_steps };
	struct upto hi = { .calls = r->th->events - r->th->signals_total,
			   .signals = r->th->signals_total,
			   .image = r->th->space->image_steps };
	bool newest = true;
	struct last last;

	r->signal_told = false;
	rp_thread_pos(r->th, &hi.pos);
	for (;;) {
		if (rp_thread_pos_cmp(&hi.pos, &begin) <= 0) {
			struct dj_error err;
			if (replay_move(r, &begin, &err)) {
				stop->err = err;
				rp_fill(r, stop, REPLAY_FAILED);
				return;
			}
			rp_fill(r, stop, REPLAY_BEGIN);
			return;
		}
		size_t i = r->cs->n;
		while (i > 0 && rp_thread_pos_cmp(&r->cs->list[i - 1]->pos, &hi.pos) >= 0)
			i--;
		struct rp_checkpoint *c = i ? r->cs->list[i - 1] : NULL;
		struct upto lo = { .pos = begin };
		if (c)
			lo = (struct upto){ .pos = c->pos,
					    .calls = c->events - c->signals_total,
					    .signals = c->signals_total,
					    .image = c->space->image_steps };
		if (!c || !quiet(r, c, &hi)) {
			int res = THREAD_FAILED;
			if (rp_checkpoint_back(r->cs, &lo.pos, &stop->err) == 0)
				res = search(r, &hi.pos, newest, &last);
			if (res == THREAD_FAILED) {
				rp_fill(r, stop, REPLAY_FAILED);
				return;
			}
			if (res == THREAD_INTERRUPTED) {
				rp_fill(r, stop, REPLAY_INTERRUPTED);
				return;
			}
			if (last.found) {
				stop_at_last(r, &last, stop);
				return;
			}
		}
		hi = lo;
		newest = false;
	}
}

void rp_step_backward(struct replay *r, struct replay_stop *stop)
{
	struct rp_thread_pos at, now;
	uint64_t image = r->th->space->image_steps;
	int res;

	r->signal_told = false;
	rp_thread_pos(r->th, &now);
	res = replay_move_back(r, &stop->err);
	if (res) {
		rp_fill(r, stop, res > 0 ? REPLAY_BEGIN : REPLAY_FAILED);
		return;
	}
	if (r->nwatches) {
		/* do the step once more to see what it touches */
		rp_thread_pos(r->th, &at);
		rp_checkpoint_take(r->cs);
		rp_conditions(r, true);
		rp_thread_step(r->th);
		struct rp_memview_hit hit = r->mv->hit;
		rp_conditions(r, false);
		if (replay_move(r, &at, &stop->err)) {
			rp_fill(r, stop, REPLAY_FAILED);
			return;
		}
		if (hit.hit) {
			r->mv->hit = hit;
			rp_fill(r, stop, REPLAY_WATCH);
			return;
		}
	}
	if (rp_position_condition(r, stop, false))
		return;
	rp_fill(r, stop, r->th->space->image_steps != image ? REPLAY_EXECED : REPLAY_STEPPED);
}
