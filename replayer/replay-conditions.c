/*
 * What a replay may be told to stop for, forward (replay-run.c) and back (replay-back.c).
 *
 * Conditions are watched while running: breakpoints by the emulator's stop_at, watched memory by
 * the memory view, the rest at the records.
 */
#include "replayer/keep.h"
#include "replayer/replay-internal.h"

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

bool rp_breaks_at(struct replay *r, uint64_t rip)
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

	return e->steps != th->resume_steps && rp_breaks_at(running, e->cpu.rip);
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

bool rp_caught(const struct replay *r, uint64_t sysno)
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
	/* What has asked the emulator to stop, and was not heard, is not to stop it later: a
	 * breakpoint there would go unnoticed. */
	if (r->th->halted == THREAD_LIMIT)
		r->th->e->stop_requested = false;
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
	if (rp_thread_syscall_here(r->th, &sysno) && rp_caught(r, sysno)) {
		rp_fill(r, stop, REPLAY_SYSCALL_ENTRY);
		stop->sysno = sysno;
		return true;
	}
	if (breaks && !r->th->e->in_rep && rp_breaks_at(r, r->th->e->cpu.rip)) {
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
		if (!rp_caught(r, th->sysno))
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

bool rp_signal_first(struct replay *r, struct replay_stop *stop)
{
	return !r->signal_told && reported(r, rp_thread_signal_here(r->th)) &&
	       rp_position_condition(r, stop, false);
}
