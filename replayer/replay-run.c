/*
 * Running forward to a condition (replay-conditions.c).
 */
#include "replayer/ground.h"
#include "replayer/land.h"

#include <string.h>

#define BEGINNING 8u /* times as long: an interval that a survey has a process begun for */

/* One step, with the conditions on. What was hit comes first: going on from there, nobody would
 * tell. */
static enum rp_thread_stop watched_step(struct replay *r)
{
	enum rp_thread_stop res = rp_thread_step(r->th);

	return res == THREAD_INTERRUPTED && r->mv->hit.hit ? THREAD_REQUEST : res;
}

/* A watched access in a REP instruction was noticed after the fact: go to the exact iteration,
 * forward from `from` (not after it). Who is interrupted on the way stands before the instruction,
 * where what is kept of the watched bytes is as of then. */
static enum rp_thread_stop refine_forward(struct replay *r, const struct rp_thread_pos *from)
{
	enum rp_thread_stop res;

	struct rp_thread_pos start = r->mv->hit.before, now;
	struct dj_error err;

	start.rep = 0;
	if (rp_thread_pos_cmp(&start, from) < 0)
		start = *from;
	rp_watch_again(r, start.steps);
	rp_conditions(r, false); /* no move is to stop for what was hit */
	if (replay_move(r, &start, &err)) {
		if (!r->cancelled)
			return THREAD_FAILED;
		rp_stand_again(r, &start);
		rp_thread_pos(r->th, &now);
		return rp_thread_pos_cmp(&now, &start) ? THREAD_FAILED : THREAD_INTERRUPTED;
	}
	rp_conditions(r, true);
	do
		res = watched_step(r);
	while (res == THREAD_LIMIT && r->th->e->in_rep);
	return res;
}

/* ---- skipping ---------------------------------------------------------------------------- */

bool rp_lines_quiet(const struct replay *r, const struct rp_lines *lines)
{
	for (size_t i = 0; i < r->nbreaks; i++) {
		uint64_t at = r->breaks[i].addr;
		if (lines ? rp_lines_met(lines, LINE_RAN, at, at)
			  : rp_line_log_met(&r->mv->lines, LINE_RAN, at, at))
			return false;
	}
	return rp_memview_watches_quiet(r->mv, lines);
}

struct rp_upto rp_upto_here(const struct replay *r)
{
	const struct rp_thread *th = r->th;
	struct rp_upto here = { .calls = th->events - th->signals_total,
				.signals = th->signals_total,
				.forks = th->forks,
				.image = th->space->image_steps };

	rp_thread_pos(th, &here.pos);
	return here;
}

struct rp_upto rp_upto_checkpoint(const struct rp_checkpoint *c)
{
	return (struct rp_upto){ .pos = c->pos,
				 .calls = c->events - c->signals_total,
				 .signals = c->signals_total,
				 .forks = c->forks,
				 .image = c->space->image_steps };
}

bool rp_same_events(const struct replay *r, const struct rp_upto *a, const struct rp_upto *b)
{
	return (!r->signals || a->signals == b->signals) &&
	       (!r->catching || a->calls == b->calls) && a->forks == b->forks &&
	       a->image == b->image;
}

/* Survey in so many parts, and add to *met in how many of them something may be that is looked
 * for. */
static bool parts_met(struct replay *r, const struct rp_thread_pos *from,
		      const struct rp_thread_pos *to, unsigned parts, size_t *met)
{
	if (!rp_land_survey(r, from, to, parts))
		return false;
	for (size_t i = rp_checkpoint_count(r->cs, from);
	     i < r->cs->n && rp_thread_pos_cmp(&r->cs->list[i]->pos, to) <= 0; i++)
		*met += !rp_lines_quiet(r, &r->cs->list[i]->lines);
	return true;
}

bool rp_survey(struct replay *r, struct rp_survey *s, const struct rp_thread_pos *from,
	       const struct rp_thread_pos *to)
{
	/* to begin a process is to have most of this one's memory copied, page by page */
	const uint64_t worth = r->survey_worth * (r->threads[r->selected].lander ? 1 : BEGINNING);
	size_t met = 0;

	if (r->in_copy || from->rep || to->rep || to->steps - from->steps < worth)
		return false;
	if (s->pause) {
		s->pause--;
		return false;
	}
	/* most that are of no use show it in their first quarter */
	const struct rp_thread_pos quarter = { .steps = from->steps +
							(to->steps - from->steps) / 4 };
	if (parts_met(r, from, &quarter, RP_SURVEY_PARTS / 4, &met) && met < RP_SURVEY_PARTS / 4 &&
	    parts_met(r, &quarter, to, RP_SURVEY_PARTS * 3 / 4, &met) && met < RP_SURVEY_PARTS / 4)
		return true;
	s->of_no_use += s->of_no_use < 20;
	s->pause = 1u << s->of_no_use;
	return false;
}

/* The same before checkpoint list[i], which is known to lie behind something. */
static bool survey_before(struct replay *r, struct rp_survey *s, size_t i)
{
	if (!rp_checkpoint_full(r->cs, i)) /* the thread would have to go to the beginning */
		return false;
	const struct rp_thread_pos from = r->cs->list[i - 1]->pos, to = r->cs->list[i]->pos;
	return rp_survey(r, s, &from, &to) && !r->cancelled;
}

/* The last checkpoint up to which nothing that is looked for can have happened; from `at`, which
 * becomes its position. With `cover`, ground that was not covered is. */
static void quiet_upto(struct replay *r, struct rp_survey *s, struct rp_thread_pos *at, bool cover)
{
	for (;;) {
		size_t i = rp_checkpoint_count(r->cs, at);
		if (i == r->cs->n && (!cover || !rp_ground_more(r, NULL, NULL)))
			return;
		i = rp_checkpoint_count(r->cs, at);
		if (i == r->cs->n)
			continue; /* it was one in the middle */
		const struct rp_checkpoint *c = r->cs->list[i];
		const struct rp_upto there = rp_upto_checkpoint(c), here = rp_upto_here(r);
		if (c->seq >= r->th->seq_stop || !rp_same_events(r, &here, &there))
			return;
		if (rp_lines_quiet(r, &c->lines))
			*at = c->pos;
		else if (!survey_before(r, s, i))
			return;
	}
}

/* Go forward to the last checkpoint up to which nothing that is looked for can have happened. -1:
 * there is something to tell, and *res says what of. */
static int skip(struct replay *r, struct rp_survey *s, struct replay_stop *stop, int *res,
		bool cover)
{
	struct rp_thread_pos now, to;

	if (r->in_copy || (r->observer.kinds && !r->th->e->unseen))
		return 0;
	rp_thread_pos(r->th, &now);
	to = now;
	quiet_upto(r, s, &to, cover);
	bool near = to.steps < now.steps + r->near;
	if (near && !r->cancelled)
		return 0;
	if (!near && (r->cancelled ? rp_land_at_once(r, &to, &r->th->err)
				   : rp_land(r, &to, false, &r->th->err) && !r->cancelled)) {
		*res = THREAD_FAILED;
		rp_fill(r, stop, REPLAY_FAILED);
		return -1;
	}
	*res = THREAD_BREAK;
	rp_thread_pos(r->th, &to);
	if (rp_thread_pos_cmp(&to, &now) && rp_position_condition(r, stop, true))
		return -1;
	if (!r->cancelled)
		return 0;
	*res = THREAD_INTERRUPTED;
	rp_fill(r, stop, REPLAY_INTERRUPTED);
	return -1;
}

/* ---- forward ---------------------------------------------------------------------------- */

bool rp_run_forward(struct replay *r, uint64_t seq_stop, struct replay_stop *stop, int *res)
{
	const struct rp_thread_pos far = { .steps = UINT64_MAX };
	const uint64_t began = r->th->e->steps;
	struct rp_survey survey = { 0 };
	struct rp_thread_pos from;

	r->signal_told = false;
	r->th->seq_stop = seq_stop;
	r->th->e->unseen = r->in_copy;
	int skipped;
	do {
		skipped = skip(r, &survey, stop, res, r->th->e->steps - began >= r->ground_first);
		rp_thread_pos(r->th, &from);
		/* behind the next checkpoint there may be something to skip again */
		const struct rp_checkpoint *next = r->in_copy ? NULL : rp_checkpoint_next(r->cs);
		struct rp_thread_pos to = next ? next->pos : far, now;
		if (!next && !r->in_copy && rp_ground_likely(r))
			to.steps = from.steps + r->ground_first;
		if (skipped < 0)
			break;
		rp_conditions(r, true);
		*res = replay_run_to(r, &to, rp_events_wanted(r), false);
		rp_thread_pos(r->th, &now);
		if (*res == THREAD_LIMIT && !rp_thread_pos_cmp(&now, &from))
			*res = replay_run_to(r, &far, rp_events_wanted(r), false);
		if (*res == THREAD_LIMIT) {
			rp_conditions(r, false);
			/* a light checkpoint becomes full */
			if (next && !rp_thread_pos_cmp(&now, &to))
				rp_checkpoint_take(r->cs);
		}
	} while (*res == THREAD_LIMIT);
	r->th->seq_stop = UINT64_MAX;
	r->th->e->unseen = true;
	if (skipped < 0)
		return true;
	/* what there is to tell where it was interrupted would not be told when it goes on */
	if (*res == THREAD_INTERRUPTED)
		*res = rp_thread_interrupted(r->th, &from, rp_events_wanted(r));
	if (*res == THREAD_REQUEST && r->mv->hit.hit && r->mv->hit.in_rep && !r->in_copy)
		*res = refine_forward(r, &from);
	bool done = rp_reason_of(r, *res, stop);
	if (r->th->halted == THREAD_INTERRUPTED) {
		/* by a callback, while the thread came to something else: not to be taken for
		 * another interruption later */
		r->th->halted = THREAD_LIMIT;
		if (!done || *res == THREAD_END) {
			*res = THREAD_INTERRUPTED;
			done = rp_reason_of(r, *res, stop);
		}
	}
	rp_conditions(r, false);
	return done;
}

static void continue_forward(struct replay *r, struct replay_stop *stop)
{
	int res;

	if (rp_signal_first(r, stop))
		return;
	while (!rp_run_forward(r, UINT64_MAX, stop, &res))
		;
}

static void step_forward(struct replay *r, struct replay_stop *stop)
{
	uint64_t sysno = UINT64_MAX, image = r->th->space->image_steps;
	struct replay_stop at;

	bool call = rp_thread_syscall_here(r->th, &sysno);
	r->signal_told = false;
	rp_conditions(r, true);
	r->th->e->unseen = r->in_copy;
	enum rp_thread_stop res = watched_step(r);
	r->th->e->unseen = true;
	if (!rp_reason_of(r, res, stop)) {
		if (call && rp_caught(r, sysno)) {
			rp_fill(r, stop, REPLAY_SYSCALL_RETURN);
			stop->sysno = sysno;
		} else if (rp_position_condition(r, &at, false)) {
			*stop = at;
		} else if (r->th->space->image_steps != image) {
			rp_fill(r, stop, REPLAY_EXECED);
		} else {
			rp_fill(r, stop, REPLAY_STEPPED);
		}
	}
	rp_conditions(r, false);
}

/* Whether anybody wants to know what other threads do meanwhile. */
bool rp_curious(const struct replay *r)
{
	return r->nbreaks || r->nwatches || r->catching || r->signals;
}

/* The same, with what other threads of the scope do before it. */
static void step_all_forward(struct replay *r, struct replay_stop *stop)
{
	uint32_t thread = r->selected;

	if (!rp_alone(r) && rp_curious(r) && !rp_thread_at_end(r->th) &&
	    (thread != r->moment.thread || rp_thread_order_here(r->th))) {
		if (rp_all_forward(r, thread, stop))
			return;
	} else {
		rp_begin_move(r);
	}
	step_forward(r, stop);
}

static void step_range(struct replay *r, uint64_t lo, uint64_t hi, struct replay_stop *stop)
{
	uint64_t n = 0;

	do {
		step_all_forward(r, stop);
		uint64_t rip = r->th->e->cpu.rip;
		if (stop->reason != REPLAY_STEPPED)
			return;
		if (rip < lo || rip >= hi)
			return;
		if (!r->th->e->in_rep && rp_breaks_at(r, rip)) {
			rp_fill(r, stop, REPLAY_BREAK);
			return;
		}
	} while (++n % 50000 || !replay_interrupted(r));
	rp_fill(r, stop, REPLAY_INTERRUPTED);
}

/* ---- the interface -------------------------------------------------------------------------- */

void rp_forget_interruption(struct replay *r)
{
	r->cancelled = false;
	for (uint32_t i = 0; i < r->nthreads; i++) {
		struct rp_thread *th = r->threads[i].th;
		if (!th || th->halted != THREAD_INTERRUPTED)
			continue;
		th->halted = THREAD_LIMIT;
		th->e->stop_requested = false;
	}
}

/* A throw-away copy has no history of its own. */
static bool copy_cannot(struct replay *r, enum replay_dir dir, struct replay_stop *stop)
{
	if (!r->in_copy || dir == REPLAY_FORWARD)
		return false;
	rp_fill(r, stop, REPLAY_BEGIN);
	return true;
}

void replay_step(struct replay *r, enum replay_dir dir, struct replay_stop *stop)
{
	memset(stop, 0, sizeof(*stop));
	rp_forget_interruption(r);
	if (copy_cannot(r, dir, stop))
		return;
	if (dir == REPLAY_BACKWARD) {
		rp_step_all_backward(r, stop);
		return;
	}
	if (rp_alone(r) || rp_watch_forward(r))
		step_all_forward(r, stop);
	else
		rp_fill(r, stop, REPLAY_INTERRUPTED);
	rp_watch_stopped(r);
}

static void go_on(struct replay *r, enum replay_dir dir, struct replay_stop *stop)
{
	if (!rp_alone(r)) {
		if (dir == REPLAY_FORWARD) {
			if (rp_watch_forward(r))
				rp_all_forward(r, REPLAY_ALL, stop);
			else
				rp_fill(r, stop, REPLAY_INTERRUPTED);
			rp_watch_stopped(r);
		} else {
			rp_continue_all_backward(r, stop);
		}
		return;
	}
	rp_begin_move(r);
	if (dir == REPLAY_FORWARD)
		continue_forward(r, stop);
	else
		rp_continue_backward(r, stop);
}

void replay_continue(struct replay *r, enum replay_dir dir, struct replay_stop *stop)
{
	const bool told = r->signal_told;
	struct replay_pos began, now;

	memset(stop, 0, sizeof(*stop));
	rp_forget_interruption(r);
	if (copy_cannot(r, dir, stop))
		return;
	replay_pos(r, &began);
	go_on(r, dir, stop);
	replay_pos(r, &now);
	if (stop->reason == REPLAY_INTERRUPTED && !replay_pos_cmp(&now, &began))
		r->signal_told = told; /* nothing has moved */
}

void replay_step_range(struct replay *r, uint64_t lo, uint64_t hi, struct replay_stop *stop)
{
	memset(stop, 0, sizeof(*stop));
	rp_forget_interruption(r);
	if (r->selected != r->moment.thread)
		r->signal_told = false;
	if (rp_signal_first(r, stop)) {
		rp_begin_move(r);
		return;
	}
	if (rp_alone(r) || rp_watch_forward(r))
		step_range(r, lo, hi, stop);
	else
		rp_fill(r, stop, REPLAY_INTERRUPTED);
	rp_watch_stopped(r);
}
