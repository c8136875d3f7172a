/*
 * Running backward to a condition.
 *
 * The interval from the newest checkpoint to here is run forward once, remembering the last place
 * where a condition held; if there is none, the interval before it is searched, and so on.
 * Intervals in which nothing watched can have changed are skipped, as what changed from one
 * checkpoint to the next tells.
 */
#include "replayer/land.h"

#include <string.h>

#define SOON 80u /* milliseconds that nobody notices who has interrupted */

static void remember(struct replay *r, struct rp_hunt *h, const struct replay_stop *stop)
{
	const struct rp_thread_pos *hi = &h->hi.pos;
	struct rp_last l = { .found = true, .stop = *stop };
	uint64_t within;

	rp_thread_pos(r->th, &l.after);
	rp_thread_seq(r->th, &l.seq, &within);
	l.pos = l.after;
	if (stop->reason == REPLAY_WATCH) {
		l.pos = r->mv->hit.before;
		l.refine = r->mv->hit.in_rep;
		l.unsure = r->mv->hit.unsure;
	} else if (stop->reason == REPLAY_EXECED) {
		l.before = true;
	} else if (rp_thread_pos_cmp(&l.pos, hi) >= 0 && !h->inclusive &&
		   (h->newest ||
		    (stop->reason != REPLAY_SYSCALL_RETURN && stop->reason != REPLAY_FORKED))) {
		return; /* the end of the interval belongs to the next */
	}
	h->last = l;
}

/* Run from here, the interval's beginning, to its end. That leaves checkpoints, ever denser towards
 * the end, for going on from what is found. After a long search in vain it does not: they took a
 * quarter of the time, and what they save if something is found is no more than has been searched.
 */
static int search(struct replay *r, struct rp_hunt *h)
{
	const struct rp_thread_pos *hi = &h->hi.pos;
	const bool pass = h->searched && h->searched >= hi->steps - r->th->e->steps;
	struct replay_stop stop;
	struct rp_thread_pos now;

	memset(&stop, 0, sizeof(stop));
	if (rp_position_condition(r, &stop, true))
		remember(r, h, &stop);
	for (;;) {
		rp_conditions(r, true);
		int res = pass ? rp_pass_to(r, hi, rp_events_wanted(r))
			       : replay_run_to(r, hi, rp_events_wanted(r), true);
		memset(&stop, 0, sizeof(stop));
		bool found = rp_reason_of(r, res, &stop);
		if (found && res != THREAD_END && res != THREAD_FAILED &&
		    res != THREAD_INTERRUPTED) {
			remember(r, h, &stop);
			/* a breakpoint where another condition stopped us has its say, too */
			rp_thread_pos(r->th, &now);
			if (stop.reason != REPLAY_BREAK &&
			    rp_thread_pos_cmp(&now, hi) < h->inclusive &&
			    rp_position_condition(r, &stop, true))
				remember(r, h, &stop);
		}
		rp_conditions(r, false);
		if (res == THREAD_LIMIT || res == THREAD_END)
			return THREAD_LIMIT;
		if (res == THREAD_FAILED || res == THREAD_INTERRUPTED)
			return res;
	}
}

/* The last iteration within the REP instruction at l->pos that hits a watch. */
static int refine_backward(struct replay *r, struct rp_last *l)
{
	struct rp_thread_pos at = l->pos, found = l->pos;

	at.rep = found.rep = 0;
	if (replay_move(r, &at, &l->stop.err))
		return -1;
	if (r->watch_how == WATCH_BACK)
		rp_watch_back(r);
	for (;;) {
		rp_thread_pos(r->th, &at);
		if (rp_thread_pos_cmp(&at, &l->after) >= 0)
			break;
		rp_conditions(r, true);
		enum rp_thread_stop res = rp_thread_step(r->th);
		if (r->mv->hit.hit) {
			found = at;
			l->unsure = r->mv->hit.unsure;
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

void rp_stop_at_last(struct replay *r, struct rp_last *l, struct replay_stop *stop)
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

/* Whether nothing that is looked for can have happened from checkpoint list[i] on to the hunt's
 * end. */
static bool quiet(struct replay *r, size_t i, const struct rp_hunt *h)
{
	const struct rp_upto there = rp_upto_checkpoint(r->cs->list[i]);
	const struct rp_lines *lines = NULL;
	struct rp_thread_pos now;

	if (!rp_same_events(r, &there, &h->hi))
		return false;
	/* a call or a signal at the very end is not counted yet, nor has the instruction run */
	if (h->inclusive && (r->signals || r->catching || r->nbreaks))
		return false;
	rp_thread_pos(r->th, &now);
	if (i + 1 < r->cs->n)
		lines = &r->cs->list[i + 1]->lines;
	else if (r->cs->base > i + 1 || rp_thread_pos_cmp(&now, &h->hi.pos) < 0)
		return false; /* it has not come from there, or from before */
	return rp_lines_quiet(r, lines);
}

void rp_hunt_begin(struct replay *r, struct rp_hunt *h, bool inclusive)
{
	uint64_t within;

	*h = (struct rp_hunt){ .hi = rp_upto_here(r), .inclusive = inclusive, .newest = true };
	h->origin = h->clear = h->hi.pos;
	rp_thread_seq(r->th, &h->seq, &within);
}

/* From where to search, list[i - 1] being the last checkpoint before the hunt's end: how many
 * checkpoints lie up to there. If that one is light somebody would have to replay the way to it,
 * which takes about as long as to search it. So the search begins at the last full one (or at the
 * beginning), if it does not have to go further for that than it has gone already, and there is
 * nothing on the way that could be skipped. */
static size_t begin_of(const struct replay *r, const struct rp_hunt *h, size_t i)
{
	size_t full = rp_checkpoint_full(r->cs, i);

	if (full == i)
		return i;
	uint64_t from = full ? r->cs->list[full - 1]->pos.steps : r->th->info->first_steps;
	uint64_t near = r->cs->list[i - 1]->pos.steps;
	if (near - from > h->hi.pos.steps - near + h->searched)
		return i;
	for (size_t k = full; k < i; k++)
		if (rp_lines_quiet(r, &r->cs->list[k]->lines))
			return i;
	return full;
}

enum rp_thread_stop rp_hunt_on(struct replay *r, struct rp_hunt *h, struct dj_error *err)
{
	const struct rp_thread_pos begin = { .steps = r->th->info->first_steps };
	enum rp_thread_stop res = THREAD_LIMIT;

	if (rp_thread_pos_cmp(&h->hi.pos, &begin) <= 0 && !h->inclusive)
		return THREAD_END;
	h->clear = h->hi.pos;
	size_t i = rp_checkpoint_before(r->cs, &h->hi.pos);
	bool skip = i && quiet(r, i - 1, h);
	if (!skip) {
		const struct rp_thread_pos from = i ? r->cs->list[i - 1]->pos : begin;
		bool parts = !h->inclusive && rp_survey(r, &h->survey, &from, &h->hi.pos);
		if (r->cancelled)
			return THREAD_INTERRUPTED;
		i = parts ? rp_checkpoint_before(r->cs, &h->hi.pos)
			  : rp_checkpoint_count(r->cs, &from);
		skip = parts && i && quiet(r, i - 1, h);
	}
	if (!skip)
		i = begin_of(r, h, i);
	struct rp_checkpoint *c = i ? r->cs->list[i - 1] : NULL;
	struct rp_upto lo = c ? rp_upto_checkpoint(c) : (struct rp_upto){ .pos = begin };
	uint64_t seq = c ? c->seq : rp_thread_first_seq(r->th->info);
	if (!skip) {
		if (rp_land(r, &lo.pos, true, err))
			return r->cancelled ? THREAD_INTERRUPTED : THREAD_FAILED;
		if (r->watch_how == WATCH_BACK)
			rp_watch_back(r);
		res = search(r, h);
		h->searched += h->hi.pos.steps - lo.pos.steps;
		if (res == THREAD_FAILED)
			dj_fail(err, r->th->err.exit_status, "%s", r->th->err.text);
		if (res == THREAD_INTERRUPTED) /* the interval is still to be searched */
			return res;
	}
	h->hi = lo;
	h->seq = seq;
	h->newest = h->inclusive = false;
	return res;
}

void rp_hunt_leave(struct replay *r, const struct rp_hunt *h)
{
	struct rp_thread_pos to = h->origin;
	size_t i = rp_checkpoint_before(r->cs, &h->clear);

	while (i < r->cs->n && r->cs->list[i]->light)
		i++;
	if (i < r->cs->n && rp_thread_pos_cmp(&r->cs->list[i]->pos, &to) < 0)
		to = r->cs->list[i]->pos;
	rp_stand_soon(r, &to, SOON);
}

void rp_continue_backward(struct replay *r, struct replay_stop *stop)
{
	struct rp_thread_pos begin = { .steps = r->th->info->first_steps };
	enum rp_thread_stop res;
	struct dj_error err;
	struct rp_hunt h;

	r->signal_told = false;
	rp_hunt_begin(r, &h, false);
	do
		res = rp_hunt_on(r, &h, &err);
	while (res == THREAD_LIMIT && !h.last.found);
	if (res == THREAD_END && replay_move(r, &begin, &err))
		res = THREAD_FAILED;
	if (res == THREAD_END)
		rp_fill(r, stop, REPLAY_BEGIN);
	else if (res == THREAD_INTERRUPTED)
		rp_fill(r, stop, REPLAY_INTERRUPTED);
	else if (res == THREAD_FAILED)
		rp_failed(r, stop, &err);
	else
		rp_stop_at_last(r, &h.last, stop);
	if (stop->reason == REPLAY_INTERRUPTED) {
		rp_hunt_leave(r, &h);
		rp_fill(r, stop, REPLAY_INTERRUPTED);
	}
}

void rp_step_backward(struct replay *r, struct replay_stop *stop)
{
	struct rp_thread_pos at;
	uint64_t image = r->th->space->image_steps;
	int res;

	r->signal_told = false;
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
		enum rp_thread_stop step = rp_thread_step(r->th);
		struct rp_memview_hit hit = r->mv->hit;
		rp_conditions(r, false);
		/* who was interrupted before it has not seen */
		bool unseen = step == THREAD_INTERRUPTED && !hit.hit;
		r->cancelled |= unseen;
		if (unseen || replay_move(r, &at, &stop->err)) {
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
