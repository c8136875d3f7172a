/*
 * A thread's steps: those that records make (system calls, natively executed instructions,
 * signals), those that the emulator makes, and running on until something is reached.
 *
 * An instruction that cannot go on without a record is a divergence.
 */
#include "replayer/thread-internal.h"
#include "replayer/memview.h"

#include <inttypes.h>

#define GO_STEPS    16384u /* instructions executed in one go: some tens of microseconds */
#define RECORD_WORK 10
#define YIELD_WORK  1000000 /* of a REP instruction's part */

/* ---- records that are a step -------------------------------------------------------------- */

static void ordered_event(struct rp_thread *th)
{
	th->events++;
	th->event_steps = th->e->steps;
}

/* The step that began at `from` is done, if it is: settle at the new position. */
static enum rp_thread_stop arrived(struct rp_thread *th, uint64_t from)
{
	if (th->e->steps != from) {
		th->signals = 0;
		if (th->order)
			rp_thread_ordered(th);
	}
	return rp_thread_settle(th);
}

/* The emulator was asked to stop: by a callback that found a reason, or by the memory view. If by
 * both, what was hit comes first: nobody would tell later. */
static enum rp_thread_stop requested(struct rp_thread *th)
{
	enum rp_thread_stop halted = th->halted;

	if (halted == THREAD_INTERRUPTED && th->mem && th->mem->hit.hit)
		return THREAD_REQUEST;
	th->halted = THREAD_LIMIT;
	return halted == THREAD_LIMIT ? THREAD_REQUEST : halted;
}

static enum rp_thread_stop do_syscall(struct rp_thread *th, const struct dj_record *r)
{
	struct emu *e = th->e;
	uint8_t code[2];

	if (rp_thread_fetch(th, e->cpu.rip, code, 2) == 2 && (code[0] != 0x0f || code[1] != 0x05))
		return rp_thread_diverged(th, "the trace has a system call here");
	rp_thread_hear(th, r);
	rp_thread_flush_imports(th);
	th->last_sysno = e->cpu.gpr[DJ_RAX];
	th->last_result = r->result;
	if (th->mem) {
		rp_memview_ran(th->mem, e->cpu.rip, e->cpu.rip + 1);
		rp_memview_syscall(th->mem, e->cpu.gpr, r->result);
	}
	e->cpu.gpr[DJ_RAX] = r->result;
	e->cpu.gpr[DJ_R11] = r->r11;
	e->cpu.rip += 2;
	e->cpu.gpr[DJ_RCX] = e->cpu.rip;
	e->steps++;
	ordered_event(th);
	rp_thread_advance(th);
	return arrived(th, e->steps - 1);
}

/* Whether a natively executed instruction is one whose order others can see. */
static bool effects_ordered(const struct emu *e, const struct dj_record *r)
{
	struct insn in;

	return r->why != DJ_WHY_TSC &&
	       insn_decode_as(e->kind, &in, r->insn, r->insn_len, e->cpu.rip) > 0 &&
	       insn_is_ordered(&in);
}

/* It counts, whoever has executed it. */
static void count_order(struct emu *e, const struct dj_record *r)
{
	if (!effects_ordered(e, r))
		return;
	e->fences++;
	e->fence_steps = e->steps;
}

static enum rp_thread_stop do_effects(struct rp_thread *th, const struct dj_record *r)
{
	struct emu *e = th->e;
	uint8_t code[sizeof(r->insn)];

	if (r->insn_len && r->insn_len <= sizeof(code) &&
	    rp_thread_fetch(th, e->cpu.rip, code, r->insn_len) == r->insn_len &&
	    memcmp(code, r->insn, r->insn_len))
		return rp_thread_diverged(th, "the trace has another instruction here");
	rp_thread_hear(th, r);
	rp_thread_flush_imports(th);
	if (th->mem)
		rp_memview_ran(th->mem, e->cpu.rip, e->cpu.rip + 1);
	if (th->mem || (th->hearer && th->hearer->access))
		rp_thread_native_accesses(th, r);
	uint64_t from = e->cpu.rip;
	emu_set_regs(e, &r->regs, r->mask);
	e->in_rep = false;
	e->rep_iter = 0;
	e->steps++;
	if (e->cpu.rip != from + r->insn_len)
		rp_thread_see(th, REPLAY_SEE_ENTRY, from);
	count_order(e, r);
	th->count_effects++;
	rp_thread_advance(th);
	return arrived(th, e->steps - 1);
}

static enum rp_thread_stop do_signal(struct rp_thread *th, const struct dj_record *r)
{
	struct emu *e = th->e;

	rp_thread_hear(th, r);
	rp_thread_flush_imports(th);
	/* a breakpoint at the interrupted instruction counts, executed or not */
	if (th->mem)
		rp_memview_ran(th->mem, e->cpu.rip, e->cpu.rip + 1);
	if (th->mem && r->length)
		rp_memview_learn(th->mem, r->addr, r->bytes, r->length);
	if (r->mask) {
		uint64_t from = e->cpu.rip;
		emu_set_regs(e, &r->regs, r->mask);
		e->in_rep = false;
		e->rep_iter = 0;
		rp_thread_see(th, REPLAY_SEE_SIGNAL, from);
	}
	th->signals++;
	th->signals_total++;
	if (th->order)
		rp_thread_ordered(th);
	ordered_event(th);
	rp_thread_advance(th);
	return rp_thread_settle(th);
}

/* A record for a later iteration of the REP instruction at rip: the iteration at which the
 * count register is r->rep, counted from the instruction's start. */
static uint64_t iteration_of(const struct rp_thread *th, const struct dj_record *r)
{
	uint64_t rcx = th->e->cpu.gpr[DJ_RCX];

	if (r->rep > rcx)
		return UINT64_MAX;
	/* addr32: the upper half is gone after the first iteration */
	if (rcx >> 32 && r->rep <= (uint32_t)rcx) {
		struct insn in;
		if (emu_peek(th->e, &in) && in.addr32)
			rcx = (uint32_t)rcx;
	}
	return th->e->rep_iter + (rcx - r->rep);
}

/* Run the REP instruction at rip until `iter` iterations are done. */
static enum rp_thread_stop run_iterations(struct rp_thread *th, uint64_t iter)
{
	struct emu *e = th->e;
	uint64_t from = e->steps, n = iter - e->rep_iter, rcx = e->cpu.gpr[DJ_RCX];
	struct insn in;

	if (!emu_peek(e, &in) || !(in.attr & INSN_A_REP))
		return rp_thread_diverged(th, "the trace has a repeat instruction here");
	if (in.addr32)
		rcx = (uint32_t)rcx;
	if (iter < e->rep_iter || n > rcx)
		return rp_thread_diverged(th, "the trace has more iterations here");
	enum emu_stop why = emu_run_rep(e, rcx - n);
	if (why != EMU_STOP_STEPS && why != EMU_STOP_REQUEST && why != EMU_STOP_YIELD)
		return rp_thread_stuck(th, why);
	enum rp_thread_stop res = arrived(th, from);
	if (res == THREAD_LIMIT && why == EMU_STOP_YIELD)
		return rp_thread_pulse(th, YIELD_WORK);
	return res == THREAD_LIMIT && why == EMU_STOP_REQUEST ? requested(th) : res;
}

/* Execute one instruction or iteration; in_hook if its imports wait for their loads. */
static enum rp_thread_stop run_single(struct rp_thread *th, bool in_hook)
{
	struct emu *e = th->e;
	uint64_t from = e->steps;
	unsigned hooks = e->hooks;

	if (in_hook) {
		th->used = 0;
		e->hooks |= EMU_HOOK_IMPORT;
	}
	enum emu_stop why = emu_step(e);
	e->hooks = hooks;
	if (why != EMU_STOP_STEPS && why != EMU_STOP_REQUEST)
		return rp_thread_stuck(th, why);
	if (in_hook) {
		if (th->used != th->nimports)
			return rp_thread_diverged(
				th,
				"the instruction before did not make load %u, for which "
				"the trace has 0x%" PRIx64,
				th->imports[th->used].ordinal, th->imports[th->used].addr);
		th->nimports = 0;
	}
	enum rp_thread_stop res = arrived(th, from);
	return res == THREAD_LIMIT && why == EMU_STOP_REQUEST ? requested(th) : res;
}

/* ---- running ------------------------------------------------------------------------------ */

/* The signal whose delivery is the next step. */
const struct dj_record *rp_thread_signal_here(const struct rp_thread *th)
{
	const struct dj_record *r = th->next;

	if (!rp_thread_here(th) || r->kind != DJ_REC_SIGNAL)
		return NULL;
	return r->rep && rp_thread_count_reg(th, r->rep) != r->rep ? NULL : r;
}

bool rp_thread_syscall_here(struct rp_thread *th, uint64_t *sysno)
{
	uint8_t code[2];

	/* one that does not come back has no record but EXIT */
	if (th->exited && !th->next && rp_thread_fetch(th, th->e->cpu.rip, code, 2) == 2 &&
	    code[0] == 0x0f && code[1] == 0x05) {
		*sysno = th->e->cpu.gpr[DJ_RAX];
		return true;
	}
	if (!rp_thread_here(th) || th->next->kind != DJ_REC_SYSCALL)
		return false;
	*sysno = th->e->cpu.gpr[DJ_RAX];
	return true;
}

bool rp_thread_order_here(struct rp_thread *th)
{
	struct insn in;

	if (th->order || rp_thread_signal_here(th))
		return true;
	if (rp_thread_here(th) && th->next->kind == DJ_REC_SYSCALL)
		return true;
	if (!th->ordered_fences)
		return false;
	if (rp_thread_here(th) && th->next->kind == DJ_REC_EFFECTS)
		return effects_ordered(th->e, th->next);
	return emu_peek(th->e, &in) && insn_is_ordered(&in);
}

/* Whether the next step is an event that is to be stopped before. */
static bool out_of_turn(struct rp_thread *th)
{
	return rp_thread_next_seq(th) >= th->seq_stop && rp_thread_order_here(th);
}

/* So far back from number `seq` next. In a trace that may be as large as it likes. */
static uint64_t farther(uint64_t back, uint64_t seq)
{
	if (!back)
		return 64;
	return back < seq / 64 ? back * 64 : seq;
}

uint64_t rp_thread_steps_before(struct dj_trace *t, uint32_t thread, uint64_t seq)
{
	uint64_t safe = 0, back = 0;

	for (bool all = false; !safe && !all; back = farther(back, seq)) {
		const struct dj_record *r;
		struct dj_error err;
		struct dj_cursor *c = dj_cursor_new(t, thread, &err);
		all = back >= seq;

		if (!c || (!all && dj_cursor_seek_seq(c, seq - back, &err)))
			all = true;
		else
			while ((r = dj_cursor_next(c, &err))) {
				const bool digest =
					r->kind == DJ_REC_DIGEST && r->seq != DJ_SEQ_UNKNOWN;
				if (!digest && r->kind != DJ_REC_SEQ)
					continue;
				if (r->seq > seq || (digest && r->seq == seq))
					break;
				safe = r->steps;
			}
		dj_cursor_free(c);
	}
	return safe;
}

/* Run to `until`, but pass no fence that is to be stopped before. */
static enum emu_stop run_in_turn(struct rp_thread *th, uint64_t until)
{
	struct emu *e = th->e;
	uint64_t next;

	const bool any = th->seq_stop == UINT64_MAX || !th->ordered_fences;
	if (!any && e->steps < th->seq_safe && until > th->seq_safe)
		until = th->seq_safe;
	if (any || e->steps < th->seq_safe)
		return th->fast && fast_fits(th->fast) ? fast_run(th->fast, until)
						       : emu_run(e, until);
	next = rp_thread_next_seq(th);
	e->fence_limit = e->fences;
	if (next < th->seq_stop)
		e->fence_limit += th->seq_stop - next;
	e->hooks |= EMU_HOOK_FENCE;
	enum emu_stop why = emu_run(e, until);
	e->hooks &= ~(unsigned)EMU_HOOK_FENCE;
	return why;
}

bool rp_thread_at_end(const struct rp_thread *th)
{
	return th->exited ? !th->next : !th->next && th->e->steps >= th->end_steps;
}

/* Whether the gathered imports can be applied before the instruction: they belong to its
 * first load, before which it stores nothing that matters to them. */
static bool imports_early(const struct rp_thread *th)
{
	for (size_t i = 0; i < th->nimports; i++)
		if (th->imports[i].ordinal)
			return false;
	return true;
}

/* Go on to `to` or the next record, whichever comes first; not past one step of the kinds
 * that records make. */
static enum rp_thread_stop run_chunk(struct rp_thread *th, const struct rp_thread_pos *to)
{
	struct emu *e = th->e;
	const struct dj_record *r = th->next;
	bool in_step = to->steps == e->steps && to->signals == th->signals; /* iterations only */
	const struct dj_record *sig = rp_thread_signal_here(th);

	if (sig)
		return do_signal(th, sig);
	if (th->nimports) {
		if (!imports_early(th))
			return run_single(th, true);
		rp_thread_flush_imports(th);
		if (th->imports_rep)
			return run_single(th, false);
	}
	if (rp_thread_here(th)) {
		if (r->kind == DJ_REC_SYSCALL)
			return do_syscall(th, r);
		if (r->kind == DJ_REC_EFFECTS)
			return do_effects(th, r);
		/* an import or a signal at a later iteration */
		uint64_t iter = iteration_of(th, r);
		if (iter == UINT64_MAX)
			return rp_thread_diverged(th, "the trace has %s at repeat count %" PRIu64,
						  dj_record_kind_name(r->kind), r->rep);
		return run_iterations(th, in_step && to->rep < iter ? to->rep : iter);
	}
	if (in_step)
		return run_iterations(th, to->rep);

	uint64_t from = e->steps, until = to->steps;
	if (until - from > GO_STEPS && !(th->fast && fast_fits(th->fast)))
		until = from + GO_STEPS;
	if (r && r->steps < until)
		until = r->steps;
	if (!r && th->end_steps < until)
		until = th->end_steps;
	if (th->order)
		until = from + 1;
	enum rp_thread_stop res;
	enum emu_stop why = run_in_turn(th, until);
	switch (why) {
	case EMU_STOP_STEPS:
	case EMU_STOP_FENCE:
		return arrived(th, from);
	case EMU_STOP_BREAK:
		res = arrived(th, from);
		return res == THREAD_LIMIT ? THREAD_BREAK : res;
	case EMU_STOP_REQUEST:
		res = arrived(th, from);
		return res == THREAD_LIMIT ? requested(th) : res;
	case EMU_STOP_YIELD:
		res = arrived(th, from);
		return res == THREAD_LIMIT ? rp_thread_pulse(th, YIELD_WORK) : res;
	default:
		if (e->steps != from)
			th->signals = 0;
		/* a breakpoint where nothing can be executed comes first */
		if (e->steps != from && e->stop_at && e->stop_at(th, e))
			return THREAD_BREAK;
		return rp_thread_stuck(th, why);
	}
}

/* An event to stop for, at the position just reached. */
static bool event_here(struct rp_thread *th, unsigned events)
{
	if ((events & THREAD_EV_RETURN) && th->call_passed) {
		th->event = THREAD_EV_RETURN;
		th->sysno = th->last_sysno;
	} else if ((events & THREAD_EV_EXEC) && th->exec_passed)
		th->event = THREAD_EV_EXEC;
	else if ((events & THREAD_EV_FORK) && th->fork_passed)
		th->event = THREAD_EV_FORK;
	else if ((events & THREAD_EV_SIGNAL) && rp_thread_signal_here(th))
		th->event = THREAD_EV_SIGNAL;
	else if ((events & THREAD_EV_SYSCALL) && rp_thread_syscall_here(th, &th->sysno))
		th->event = THREAD_EV_SYSCALL;
	else
		return false;
	return true;
}

/* Whether the instruction at the position has got iterations or signals to go on to without
 * being completed: `to` may name a position that does not exist. */
static bool stays_within(const struct rp_thread *th, const struct rp_thread_pos *to)
{
	struct insn in;
	uint64_t rcx = th->e->cpu.gpr[DJ_RCX];

	if (to->signals > th->signals)
		return rp_thread_here(th) &&
		       (th->next->kind == DJ_REC_SIGNAL || th->next->kind == DJ_REC_IMPORT);
	if (rp_thread_here(th) && th->next->kind != DJ_REC_IMPORT &&
	    th->next->kind != DJ_REC_SIGNAL)
		return false;
	if (!emu_peek(th->e, &in) || !(in.attr & INSN_A_REP))
		return false;
	return to->rep - th->e->rep_iter < (in.addr32 ? (uint32_t)rcx : rcx);
}

/* Apply what an interruption left. */
static enum rp_thread_stop resettle(struct rp_thread *th)
{
	if (!th->unsettled)
		return THREAD_LIMIT;
	th->unsettled = false;
	return rp_thread_settle(th);
}

/* What there is to stop for at a position just reached, or THREAD_LIMIT. */
static enum rp_thread_stop wanted_here(struct rp_thread *th, unsigned events)
{
	struct rp_thread_pos pos;

	if (events && event_here(th, events))
		return THREAD_EVENT;
	if (!th->e->stop_at)
		return THREAD_LIMIT;
	rp_thread_pos(th, &pos);
	if (pos.rep)
		return THREAD_LIMIT;
	/* asked here because the records at this position may change what the instruction finds;
	 * once asked, the emulator need not */
	th->resume_steps = UINT64_MAX;
	bool stop = th->e->stop_at(th, th->e);
	th->resume_steps = pos.steps;
	return stop ? THREAD_BREAK : THREAD_LIMIT;
}

static enum rp_thread_stop run_to(struct rp_thread *th, const struct rp_thread_pos *to,
				  unsigned events)
{
	struct rp_thread_pos pos;
	uint64_t before = th->e->steps;
	bool unsettled = th->unsettled;

	if (th->div.found)
		return THREAD_FAILED;
	if (!unsettled)
		th->call_passed = th->exec_passed = th->fork_passed = false;
	enum rp_thread_stop res = resettle(th);
	if (res == THREAD_LIMIT && unsettled)
		res = wanted_here(th, events);
	if (res != THREAD_LIMIT)
		return res;
	th->call_passed = false;
	rp_thread_pos(th, &pos);
	th->resume_steps = pos.steps;
	while (rp_thread_pos_cmp(&pos, to) < 0) {
		if (rp_thread_at_end(th))
			return th->damaged ? THREAD_FAILED : THREAD_END;
		if (pos.steps == to->steps && !stays_within(th, to))
			return THREAD_LIMIT;
		if (th->seq_stop != UINT64_MAX && out_of_turn(th)) {
			th->event = THREAD_EV_ORDER;
			return THREAD_EVENT;
		}
		bool call = rp_thread_here(th) && th->next->kind == DJ_REC_SYSCALL && !th->nimports;
		/* here, where all that this position may be stopped for has been looked at */
		res = rp_thread_pulse(th, RECORD_WORK + pos.steps - before);
		before = pos.steps;
		if (res == THREAD_LIMIT) {
			th->call_passed = call;
			res = run_chunk(th, to);
		}
		if (res == THREAD_LIMIT)
			res = wanted_here(th, events);
		if (res != THREAD_LIMIT)
			return res;
		th->call_passed = false;
		rp_thread_pos(th, &pos);
	}
	return THREAD_LIMIT;
}

enum rp_thread_stop rp_thread_interrupted(struct rp_thread *th, const struct rp_thread_pos *since,
					  unsigned events)
{
	struct rp_thread_pos pos;

	if (th->mem && th->mem->hit.hit) {
		th->e->stop_requested = false;
		return THREAD_REQUEST;
	}
	rp_thread_pos(th, &pos);
	enum rp_thread_stop res = THREAD_LIMIT;
	if (!th->unsettled && rp_thread_pos_cmp(&pos, since))
		res = wanted_here(th, events);
	return res == THREAD_LIMIT ? THREAD_INTERRUPTED : res;
}

enum rp_thread_stop rp_thread_run(struct rp_thread *th, const struct rp_thread_pos *to,
				  unsigned events)
{
	enum rp_thread_stop res = run_to(th, to, events);

	if (th->fast)
		fast_rest(th->fast);
	return res;
}

enum rp_thread_stop rp_thread_step(struct rp_thread *th)
{
	struct rp_thread_pos to;

	if (th->div.found)
		return THREAD_FAILED;
	enum rp_thread_stop settled = resettle(th);
	if (settled == THREAD_LIMIT)
		settled = rp_thread_pulse(th, RECORD_WORK);
	if (settled != THREAD_LIMIT)
		return settled;
	if (rp_thread_at_end(th))
		return th->damaged ? THREAD_FAILED : THREAD_END;
	rp_thread_pos(th, &to);
	th->resume_steps = to.steps;
	if (rp_thread_signal_here(th) || (rp_thread_here(th) && (th->next->kind == DJ_REC_SYSCALL ||
								 th->next->kind == DJ_REC_EFFECTS)))
		return run_chunk(th, &(struct rp_thread_pos){ .steps = UINT64_MAX });
	if (th->nimports && imports_early(th))
		rp_thread_flush_imports(th);
	return run_single(th, th->nimports != 0);
}
