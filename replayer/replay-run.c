/*
 * Running forward to a condition; and what the conditions are, for running back (replay-back.c).
 *
 * Conditions are watched while running: breakpoints by the emulator's stop_at, watched memory by
 * the memory view, the rest at the records.
 */
#include "replayer/ground.h"
#include "replayer/keep.h"
#include "replayer/land.h"

#include <string.h>

#define BEGINNING 8u /* times as long: an interval that a survey has a process begun for */

static bool is_break(const struct replay *r, uint64_t rip)
{
	uint64_t bit = rip % BLOOM_BITS;

	if (!(r->bloom[bit / 64] >> bit % 64 & 1))
		return false;
	for (size_t i = 0; i < r->nbreaks; i++)
		if (r->breaks[i].addr == rip)
			return true;
	return false;
}

/* Whether there is a breakpoint, and whoever set it wants to hear of it now. */
static bool breaks_at(struct replay *r, uint64_t rip)
{
	bool holds;

	if (!is_break(r, rip))
		return false;
	if (!r->holds || r->in_copy)
		return true;
	r->asking = true;
	holds = r->holds(r->holds_ctx, r->selected, rip);
	r->asking = false;
	return holds;
}

/* The emulator asks before each instruction; ctx is the thread, whose place this file knows
 * through one pointer, since one replay runs at a time in a thread of the process. */
static _Thread_local struct replay *running;

static bool stop_at(void *ctx, struct emu *e)
{
	const struct rp_thread *th = ctx;

	return e->steps != th->resume_steps && breaks_at(running, e->cpu.rip);
}

/* Asked once per block of code and generation: breakpoints are few. */
static bool stop_within(void *ctx, uint64_t lo, uint64_t hi)
{
	(void)ctx;
	for (size_t i = 0; i < running->nbreaks; i++)
		if (running->breaks[i].addr >= lo && running->breaks[i].addr < hi)
			return true;
	return false;
}

static bool caught(const struct replay *r, uint64_t sysno)
{
	if (!r->catching)
		return false;
	for (size_t i = 0; i < r->ncatch; i++)
		if (r->catch[i] == sysno)
			return true;
	return r->ncatch == 0;
}

static bool reported(const struct replay *r, const struct dj_record *sig)
{
	return sig && sig->signo < 64 && r->signals >> sig->signo & 1;
}

unsigned rp_events_wanted(const struct replay *r)
{
	return (r->catching ? THREAD_EV_SYSCALL | THREAD_EV_RETURN : 0u) |
	       (r->signals ? THREAD_EV_SIGNAL : 0u) | THREAD_EV_EXEC | THREAD_EV_FORK;
}

/* Turn the conditions on or off in the thread. */
void rp_conditions(struct replay *r, bool on)
{
	running = on ? r : NULL;
	r->th->e->stop_at = on && r->nbreaks ? stop_at : NULL;
	r->th->e->stop_within = stop_within;
	r->th->e->stop_generation = r->break_generation;
	r->th->e->exact = on && r->nwatches;
	r->mv->watching = on;
	rp_watch_set(r);
	r->mv->hit.hit = false;
}

void rp_fill(struct replay *r, struct replay_stop *stop, enum replay_reason reason)
{
	struct replay_thread who;

	struct rp_thread_pos here;

	if (reason == REPLAY_FAILED && r->cancelled)
		reason = REPLAY_INTERRUPTED;
	rp_thread_pos(r->th, &here);
	if (reason == REPLAY_FAILED && rp_keep_refuse(r, &here))
		dj_fail(&r->th->err, 2,
			"the index beside the trace is wrong; it is not used any more");
	stop->reason = reason;
	replay_pos(r, &stop->pos);
	replay_thread(r, &who);
	stop->pid = who.pid;
	stop->tid = who.tid;
	stop->exited = r->th->exited;
	stop->status = r->th->status;
	if (reason == REPLAY_FAILED)
		stop->err = r->th->err;
	if (reason == REPLAY_WATCH) {
		stop->watch = r->mv->hit.id;
		stop->watch_addr = r->mv->hit.addr;
	}
}

void rp_failed(struct replay *r, struct replay_stop *stop, const struct dj_error *err)
{
	rp_fill(r, stop, REPLAY_FAILED);
	if (stop->reason == REPLAY_FAILED)
		stop->err = *err;
}

/* Conditions that hold at a position rather than on the way to it. */
bool rp_position_condition(struct replay *r, struct replay_stop *stop, bool breaks)
{
	const struct dj_record *sig = rp_thread_signal_here(r->th);
	uint64_t sysno;

	if (reported(r, sig)) {
		rp_fill(r, stop, REPLAY_SIGNAL);
		stop->signo = (int)sig->signo;
		r->signal_told = true;
		return true;
	}
	if (rp_thread_syscall_here(r->th, &sysno) && caught(r, sysno)) {
		rp_fill(r, stop, REPLAY_SYSCALL_ENTRY);
		stop->sysno = sysno;
		return true;
	}
	if (breaks && !r->th->e->in_rep && breaks_at(r, r->th->e->cpu.rip)) {
		rp_fill(r, stop, REPLAY_BREAK);
		return true;
	}
	return false;
}

/* What rp_thread_run() stopped for, as a reason; false if it is nothing anyone asked for. */
bool rp_reason_of(struct replay *r, int res, struct replay_stop *stop)
{
	struct rp_thread *th = r->th;

	switch (res) {
	case THREAD_BREAK:
		/* a signal that arrives here comes before the instruction */
		if (reported(r, rp_thread_signal_here(th)))
			return rp_position_condition(r, stop, false);
		rp_fill(r, stop, REPLAY_BREAK);
		return true;
	case THREAD_REQUEST:
		if (!r->mv->hit.hit)
			return false;
		rp_fill(r, stop, REPLAY_WATCH);
		return true;
	case THREAD_END:
		rp_fill(r, stop, REPLAY_END);
		return true;
	case THREAD_FAILED:
		rp_fill(r, stop, REPLAY_FAILED);
		return true;
	case THREAD_INTERRUPTED:
		rp_fill(r, stop, REPLAY_INTERRUPTED);
		return true;
	case THREAD_EVENT:
		break;
	default:
		return false;
	}
	switch (th->event) {
	case THREAD_EV_ORDER:
		return false;
	case THREAD_EV_SYSCALL:
	case THREAD_EV_SIGNAL:
		return rp_position_condition(r, stop, false);
	case THREAD_EV_RETURN:
		if (!caught(r, th->sysno))
			return rp_position_condition(r, stop, true);
		rp_fill(r, stop, REPLAY_SYSCALL_RETURN);
		stop->sysno = th->sysno;
		return true;
	case THREAD_EV_EXEC:
		rp_fill(r, stop, REPLAY_EXECED);
		return true;
	default:
		rp_fill(r, stop, REPLAY_FORKED);
		stop->child = th->fork_pid;
		stop->how = th->fork_what;
		return true;
	}
}

/* A watched access in a REP instruction was noticed after the fact: go to the exact iteration,
 * forward from `from` (not after it) or the last one before `end`. */
static enum rp_thread_stop refine_forward(struct replay *r, const struct rp_thread_pos *from)
{
	enum rp_thread_stop res;

	struct rp_thread_pos start = r->mv->hit.before;
	struct dj_error err;

	start.rep = 0;
	if (rp_thread_pos_cmp(&start, from) < 0)
		start = *from;
	if (replay_move(r, &start, &err))
		return r->cancelled ? THREAD_INTERRUPTED : THREAD_FAILED;
	rp_watch_again(r);
	rp_conditions(r, true);
	do
		res = rp_thread_step(r->th);
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

bool rp_signal_first(struct replay *r, struct replay_stop *stop)
{
	return !r->signal_told && reported(r, rp_thread_signal_here(r->th)) &&
	       rp_position_condition(r, stop, false);
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
	enum rp_thread_stop res = rp_thread_step(r->th);
	r->th->e->unseen = true;
	if (res == THREAD_INTERRUPTED && r->mv->hit.hit)
		res = THREAD_REQUEST;
	if (!rp_reason_of(r, res, stop)) {
		if (call && caught(r, sysno)) {
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
		if (!r->th->e->in_rep && breaks_at(r, rip)) {
			rp_fill(r, stop, REPLAY_BREAK);
			return;
		}
	} while (++n % 50000 || !replay_interrupted(r));
	rp_fill(r, stop, REPLAY_INTERRUPTED);
}

/* ---- the interface -------------------------------------------------------------------------- */

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
	r->cancelled = false;
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
	r->cancelled = false;
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
	r->cancelled = false;
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
