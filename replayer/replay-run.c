/*
 * Running to a condition, both ways.
 *
 * Forwards the conditions are watched while running: breakpoints by the emulator's stop_at,
 * watched memory by the memory view, the rest at the records. Backwards, the interval from the
 * newest checkpoint to here is run forward once, remembering the last place where a
 * condition held; if there is none, the interval before it is searched, and so on.
 * Intervals whose undo log shows that nothing watched can have changed are skipped.
 */
#include "replayer/replay-internal.h"

#include <string.h>

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

/* The emulator asks before each instruction; ctx is the thread, whose place this file knows
 * through one pointer, since one replay runs at a time in a thread of the process. */
static _Thread_local struct replay *running;

static bool stop_at(void *ctx, struct emu *e)
{
	const struct rp_thread *th = ctx;

	return is_break(running, e->cpu.rip) && e->steps != th->resume_steps;
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

static unsigned events_wanted(const struct replay *r)
{
	return (r->catching ? THREAD_EV_SYSCALL | THREAD_EV_RETURN : 0u) |
	       (r->signals ? THREAD_EV_SIGNAL : 0u) | THREAD_EV_EXEC | THREAD_EV_FORK;
}

/* Turn the conditions on or off in the thread. */
static void conditions(struct replay *r, bool on)
{
	running = on ? r : NULL;
	r->th->e->stop_at = on && r->nbreaks ? stop_at : NULL;
	r->th->e->stop_within = stop_within;
	r->th->e->stop_generation = r->break_generation;
	r->th->e->exact = on && r->nwatches;
	r->mv->watching = on;
	r->mv->hit.hit = false;
}

static void fill(struct replay *r, struct replay_stop *stop, enum replay_reason reason)
{
	struct replay_thread who;

	if (reason == REPLAY_FAILED && r->cancelled)
		reason = REPLAY_INTERRUPTED;
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

/* Conditions that hold at a position rather than on the way to it. */
static bool position_condition(struct replay *r, struct replay_stop *stop, bool breaks)
{
	const struct dj_record *sig = rp_thread_signal_here(r->th);
	uint64_t sysno;

	if (reported(r, sig)) {
		fill(r, stop, REPLAY_SIGNAL);
		stop->signo = (int)sig->signo;
		r->signal_told = true;
		return true;
	}
	if (rp_thread_syscall_here(r->th, &sysno) && caught(r, sysno)) {
		fill(r, stop, REPLAY_SYSCALL_ENTRY);
		stop->sysno = sysno;
		return true;
	}
	if (breaks && !r->th->e->in_rep && is_break(r, r->th->e->cpu.rip)) {
		fill(r, stop, REPLAY_BREAK);
		return true;
	}
	return false;
}

/* What rp_thread_run() stopped for, as a reason; false if it is nothing anyone asked for. */
static bool reason_of(struct replay *r, int res, struct replay_stop *stop)
{
	struct rp_thread *th = r->th;

	switch (res) {
	case THREAD_BREAK:
		/* a signal that arrives here comes before the instruction */
		if (reported(r, rp_thread_signal_here(th)))
			return position_condition(r, stop, false);
		fill(r, stop, REPLAY_BREAK);
		return true;
	case THREAD_REQUEST:
		if (!r->mv->hit.hit)
			return false;
		fill(r, stop, REPLAY_WATCH);
		return true;
	case THREAD_END:
		fill(r, stop, REPLAY_END);
		return true;
	case THREAD_FAILED:
		fill(r, stop, REPLAY_FAILED);
		return true;
	case THREAD_INTERRUPTED:
		fill(r, stop, REPLAY_INTERRUPTED);
		return true;
	case THREAD_EVENT:
		break;
	default:
		return false;
	}
	switch (th->event) {
	case THREAD_EV_SYSCALL:
	case THREAD_EV_SIGNAL:
		return position_condition(r, stop, false);
	case THREAD_EV_RETURN:
		if (!caught(r, th->sysno))
			return position_condition(r, stop, true);
		fill(r, stop, REPLAY_SYSCALL_RETURN);
		stop->sysno = th->sysno;
		return true;
	case THREAD_EV_EXEC:
		fill(r, stop, REPLAY_EXECED);
		return true;
	default:
		fill(r, stop, REPLAY_FORKED);
		stop->child = th->fork_pid;
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
	conditions(r, true);
	do
		res = rp_thread_step(r->th);
	while (res == THREAD_LIMIT && r->th->e->in_rep);
	return res;
}

/* ---- forward ---------------------------------------------------------------------------- */

static void continue_forward(struct replay *r, struct replay_stop *stop)
{
	const struct rp_thread_pos far = { .steps = UINT64_MAX };
	struct rp_thread_pos from;

	if (!r->signal_told && reported(r, rp_thread_signal_here(r->th))) {
		position_condition(r, stop, false);
		return;
	}
	for (;;) {
		rp_thread_pos(r->th, &from);
		r->signal_told = false;
		conditions(r, true);
		r->th->e->unseen = r->in_copy;
		int res = replay_run_to(r, &far, events_wanted(r), false);
		r->th->e->unseen = true;
		if (res == THREAD_REQUEST && r->mv->hit.hit && r->mv->hit.in_rep && !r->in_copy)
			res = refine_forward(r, &from);
		bool done = reason_of(r, res, stop);
		conditions(r, false);
		if (done)
			return;
	}
}

static void step_forward(struct replay *r, struct replay_stop *stop)
{
	uint64_t sysno = UINT64_MAX, image = r->th->space->image_steps;
	struct replay_stop at;

	bool call = rp_thread_syscall_here(r->th, &sysno);
	r->signal_told = false;
	conditions(r, true);
	r->th->e->unseen = r->in_copy;
	enum rp_thread_stop res = rp_thread_step(r->th);
	r->th->e->unseen = true;
	if (!reason_of(r, res, stop)) {
		if (call && caught(r, sysno)) {
			fill(r, stop, REPLAY_SYSCALL_RETURN);
			stop->sysno = sysno;
		} else if (position_condition(r, &at, false)) {
			*stop = at;
		} else if (r->th->space->image_steps != image) {
			fill(r, stop, REPLAY_EXECED);
		} else {
			fill(r, stop, REPLAY_STEPPED);
		}
	}
	conditions(r, false);
}

void replay_step_range(struct replay *r, uint64_t lo, uint64_t hi, struct replay_stop *stop)
{
	uint64_t n = 0;

	memset(stop, 0, sizeof(*stop));
	r->cancelled = false;
	rp_begin_move(r);
	if (!r->signal_told && reported(r, rp_thread_signal_here(r->th))) {
		position_condition(r, stop, false);
		return;
	}
	do {
		step_forward(r, stop);
		uint64_t rip = r->th->e->cpu.rip;
		if (stop->reason != REPLAY_STEPPED)
			return;
		if (rip < lo || rip >= hi)
			return;
		if (!r->th->e->in_rep && is_break(r, rip)) {
			fill(r, stop, REPLAY_BREAK);
			return;
		}
	} while (++n % 50000 || !replay_interrupted(r));
	fill(r, stop, REPLAY_INTERRUPTED);
}

/* ---- backward --------------------------------------------------------------------------- */

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
	if (position_condition(r, &stop, true))
		remember(r, last, &stop, hi, newest);
	for (;;) {
		conditions(r, true);
		int res = replay_run_to(r, hi, events_wanted(r), true);
		memset(&stop, 0, sizeof(stop));
		bool found = reason_of(r, res, &stop);
		if (found && res != THREAD_END && res != THREAD_FAILED &&
		    res != THREAD_INTERRUPTED) {
			remember(r, last, &stop, hi, newest);
			/* a breakpoint where another condition stopped us has its say, too */
			rp_thread_pos(r->th, &now);
			if (stop.reason != REPLAY_BREAK && rp_thread_pos_cmp(&now, hi) < 0 &&
			    position_condition(r, &stop, true))
				remember(r, last, &stop, hi, newest);
		}
		conditions(r, false);
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
		conditions(r, true);
		enum rp_thread_stop res = rp_thread_step(r->th);
		if (r->mv->hit.hit) {
			found = at;
			fill(r, &l->stop, REPLAY_WATCH);
		}
		conditions(r, false);
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

static void continue_backward(struct replay *r, struct replay_stop *stop)
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
				fill(r, stop, REPLAY_FAILED);
				return;
			}
			fill(r, stop, REPLAY_BEGIN);
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
				fill(r, stop, REPLAY_FAILED);
				return;
			}
			if (res == THREAD_INTERRUPTED) {
				fill(r, stop, REPLAY_INTERRUPTED);
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

static void step_backward(struct replay *r, struct replay_stop *stop)
{
	struct rp_thread_pos at, now;
	uint64_t image = r->th->space->image_steps;
	int res;

	r->signal_told = false;
	rp_thread_pos(r->th, &now);
	res = replay_move_back(r, &stop->err);
	if (res) {
		fill(r, stop, res > 0 ? REPLAY_BEGIN : REPLAY_FAILED);
		return;
	}
	if (r->nwatches) {
		/* do the step once more to see what it touches */
		rp_thread_pos(r->th, &at);
		rp_checkpoint_take(r->cs);
		conditions(r, true);
		rp_thread_step(r->th);
		struct rp_memview_hit hit = r->mv->hit;
		conditions(r, false);
		if (replay_move(r, &at, &stop->err)) {
			fill(r, stop, REPLAY_FAILED);
			return;
		}
		if (hit.hit) {
			r->mv->hit = hit;
			fill(r, stop, REPLAY_WATCH);
			return;
		}
	}
	if (position_condition(r, stop, false))
		return;
	fill(r, stop, r->th->space->image_steps != image ? REPLAY_EXECED : REPLAY_STEPPED);
}

/* ---- the interface -------------------------------------------------------------------------- */

/* A throw-away copy has no history of its own. */
static bool copy_cannot(struct replay *r, enum replay_dir dir, struct replay_stop *stop)
{
	if (!r->in_copy || dir == REPLAY_FORWARD)
		return false;
	fill(r, stop, REPLAY_BEGIN);
	return true;
}

void replay_step(struct replay *r, enum replay_dir dir, struct replay_stop *stop)
{
	memset(stop, 0, sizeof(*stop));
	r->cancelled = false;
	rp_begin_move(r);
	if (copy_cannot(r, dir, stop))
		return;
	if (dir == REPLAY_FORWARD)
		step_forward(r, stop);
	else
		step_backward(r, stop);
}

void replay_continue(struct replay *r, enum replay_dir dir, struct replay_stop *stop)
{
	memset(stop, 0, sizeof(*stop));
	r->cancelled = false;
	rp_begin_move(r);
	if (copy_cannot(r, dir, stop))
		return;
	if (dir == REPLAY_FORWARD)
		continue_forward(r, stop);
	else
		continue_backward(r, stop);
}
