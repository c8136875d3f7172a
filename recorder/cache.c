/* Stops in translated code: traps that generated code makes for us, interruptions, and the way from
 * anywhere in the cache to a place where the thread can be taken in hand. */
#include "recorder/ahead.h"

#include <errno.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

/* Address bits 48 and up are a copy of bit 47, else a branch there is refused (SDM vol.
 * 1, 3.3.7.1). With 57-bit addresses more is allowed: trying natively finds out. */
static bool canonical(uint64_t addr)
{
	return (uint64_t)((int64_t)(addr << 16) >> 16) == addr;
}

/* In hand at the target of an indirect branch: go back to before the branch. False if that cannot
 * be had. */
static bool undo_branch(struct rec_thread *t)
{
	uint64_t pc = tr_branch(t->proc->tr, (uint32_t)*rec_tcb(t, T_BRANCH));
	uint8_t code[INSN_MAX];
	struct insn in;
	size_t got = pc ? rec_read(t->proc, pc, code, sizeof(code)) : 0;
	if (!got || insn_decode(&in, code, got, pc) <= 0 ||
	    !(in.attr & (INSN_A_RET | INSN_A_INDIRECT)))
		return false;
	t->steps--;
	rec_lagged_set(t, t->steps);
	if (in.attr & INSN_A_RET) {
		t->regs.rsp -= 8 + (in.imm_size ? in.imm & 0xffff : 0);
	} else if (in.attr & INSN_A_CALL) {
		rec_import(t, t->regs.rsp, 8);
		t->regs.rsp += 8;
	}
	t->regs.rip = pc;
	return true;
}

/* So many places at most a signal is held back for the sake of flags. The translator takes them for
 * dead where they are overwritten within a fragment and what it looks at behind that, which is
 * fewer. */
#define BEYOND 200

/* On from a stop in the middle of a fragment. That SIGTRAP's handler is to be put back is no reason
 * to go to a boundary (sigtrap.c). Whoever was on its way to one stays on it: others may wait for
 * that. */
static enum rec_state go_past(struct rec_thread *t, struct user_regs_struct *r)
{
	r->rip += 4;
	r->orig_rax = (unsigned long long)-1;
	if (rec_set_regs(t, r))
		return REC_KILLED;
	if (t->state == REC_BOUNDARY || t->n_pending || rec_idle_wants(t) ||
	    rec_digest_is_due(t, rec_lagged(t)) || rec_keyframe_wants(t))
		return rec_step_to_boundary(t);
	rec_run(t, REC_CONT, 0);
	return REC_CACHE;
}

static enum rec_state ring_full(struct rec_thread *t, struct user_regs_struct *r)
{
	rec_count(t, REC_COUNT_RING);
	rec_ring_hand_over(t);
	if (rec_ring_failed(t)) {
		t->rec->cut = true;
		return REC_KILLED;
	}
	return go_past(t, r);
}

enum rec_state rec_order_on(struct rec_thread *t)
{
	struct user_regs_struct r;
	t->order.waits = false;
	return rec_get_regs(t, &r) ? REC_KILLED : go_past(t, &r);
}

/* An indirect branch to what is in no table. */
static enum rec_state ibl_miss(struct rec_thread *t, struct user_regs_struct *r)
{
	struct tr_where w = { .flags = TR_FLAGS_SAVED, .spilled = 2 | TR_HOME_BIT, .pc = r->r11 };
	rec_count(t, REC_COUNT_INDIRECT);
	rec_take(t, r, &w);
	if (!canonical(w.pc) && undo_branch(t))
		return rec_native_begin(t); /* which faults */
	struct tr_frag *f;
	rec_ahead_note(t, w.pc, true);
	tr_expect_indirect(t->proc->tr);
	if (rec_fragment(t, w.pc, &f) == TR_FOUND)
		tr_add_indirect(t->proc->tr, f);
	return REC_IN_HAND;
}

/* A trap of ours in the cache (int3), the thread being stopped behind it. */
static enum rec_state our_trap(struct rec_thread *t, struct user_regs_struct *r)
{
	uint32_t runtime;
	const struct tr_stop *stop = tr_stop_at(t->proc->tr, r->rip - 1, r->r11, &runtime);
	t->stops++;
	if (runtime == STOP_RING_FULL)
		return ring_full(t, r);
	if (runtime == STOP_ORDER) {
		rec_count(t, REC_COUNT_ORDER);
		rec_order_wait(t, r->rcx);
		return t->order.waits ? t->state : go_past(t, r);
	}
	if (runtime == STOP_IBL_MISS)
		return ibl_miss(t, r);
	if (!stop) {
		rec_fatal(t->rec, "trap at %#llx in the cache, where no stop is",
			  (unsigned long long)r->rip);
		return REC_KILLED;
	}
	struct tr_where w = {
		.flags = TR_FLAGS_HW, .spilled = TR_HOME_BIT, .pc = stop->pc, .lag = stop->lag
	};
	rec_take(t, r, &w);
	rec_late_due(t);
	if (t->n_pending) { /* first the signal; then it comes here again */
		t->flags_lost = stop->kind != TR_STOP_SYSCALL && stop->kind != TR_STOP_NATIVE &&
				!rec_flags_known(t);
		return REC_IN_HAND;
	}
	switch (stop->kind) {
	case TR_STOP_LINK:
	case TR_STOP_BRANCH:
		rec_count(t, REC_COUNT_LINK);
		rec_ahead_note(t, w.pc, false);
		break;
	case TR_STOP_SYSCALL:
		rec_count(t, REC_COUNT_SYSCALL);
		rec_check_call(t);
		rec_late_call(t);
		return rec_syscall(t);
	case TR_STOP_NATIVE:
		return rec_native_begin(t);
	case TR_STOP_FACTS: /* rec_take() has made them hold */
		rec_count(t, REC_COUNT_FACTS);
		break;
	case TR_STOP_CHANGED:
		rec_count(t, REC_COUNT_CHANGED);
		rec_code_changed(t->proc, w.pc);
		break;
	}
	return REC_IN_HAND;
}

/* The clock has asked the thread to stop when it was in no system call; meanwhile it has begun one,
 * which now returns EINTR although there was no signal. (Calls that return one of the kernel's
 * restart codes are made again by the kernel.) Make it again. Two cannot be: what close closes is
 * closed, what connect connects is on its way. */
static bool make_again(struct rec_thread *t)
{
	struct user_regs_struct r;
	struct tr_where w;
	if (!t->asked || rec_get_regs(t, &r) || (int64_t)r.rax != -EINTR ||
	    (int64_t)r.orig_rax < 0 || r.orig_rax == SYS_close || r.orig_rax == SYS_connect ||
	    !tr_locate(t->proc->tr, r.rip, *rec_tcb(t, T_RT_RET), &w) || !w.after_syscall ||
	    rec_signal_waits(t))
		return false;
	r.rip -= 2;
	r.rax = r.orig_rax;
	r.orig_rax = (unsigned long long)-1;
	return !rec_set_regs(t, &r);
}

/* The clock interrupted a thread that computes (clock.c), or the process was continued. */
static enum rec_state interrupted(struct rec_thread *t)
{
	struct user_regs_struct r;
	if (t->helper.by && !rec_get_regs(t, &r) && rec_helper_holds(t, &r))
		return REC_CACHE;
	if (t->proc->gather.by || t->group->leaving || rec_trap_held(t) || t->idle.brought_out ||
	    rec_late(t)) {
		t->idle.brought_out = false;
		return rec_bring_out(t);
	}
	bool again = make_again(t);
	if (t->asked)
		rec_clock_stopped(t);
	t->asked = false;
	t->stops++;
	rec_count(t, REC_COUNT_CLOCK);
	if (again) {
		rec_run(t, REC_CONT, 0);
		return REC_CACHE;
	}
	if ((rec_digest_is_due(t, rec_lagged(t)) || rec_idle_wants(t) || rec_keyframe_wants(t)) &&
	    !rec_get_regs(t, &r) && tr_in_cache(t->proc->tr, r.rip) && !*rec_tcb(t, T_IN_SYSCALL)) {
		t->hand_over = true;
		return rec_step_to_boundary(t);
	}
	rec_run(t, REC_CONT, 0);
	return REC_CACHE;
}

/* Whether that is what it says. (A program can send itself a signal that looks like a trap:
 * rt_sigqueueinfo(2).) */
static bool trapped(struct rec_thread *t, const struct rec_stop *stop,
		    const struct user_regs_struct *r)
{
	uint64_t at = r->rip - 1;
	uint32_t runtime = 0;
	uint8_t byte = 0;
	if (stop->info.si_code != SI_KERNEL || !tr_in_cache(t->proc->tr, at))
		return false;
	return tr_stop_at(t->proc->tr, at, r->r11, &runtime) || runtime ||
	       (rec_read(t->proc, at, &byte, 1) == 1 && byte == 0xcc);
}

enum rec_state rec_on_cache(struct rec_thread *t, const struct rec_stop *stop)
{
	struct user_regs_struct r;
	rec_late_stopped(t);
	if (stop->event == PTRACE_EVENT_STOP)
		return interrupted(t);
	if (stop->event) {
		rec_run(t, REC_CONT, 0);
		return REC_CACHE;
	}
	if (rec_get_regs(t, &r))
		return REC_KILLED;
	if (stop->sig != SIGTRAP || !stop->sync)
		return rec_signal_stop(t, stop);
	if (trapped(t, stop, &r))
		return our_trap(t, &r);
	struct rec_stop sent = *stop;
	sent.sync = false;
	return rec_signal_stop(t, &sent);
}

/* A handler's frame shows the arithmetic flags. Where they are dead what is in the processor may be
 * ours; a few instructions on the program has made them anew. */
bool rec_goes_beyond(struct rec_thread *t)
{
	return t->n_pending && t->flags_lost && !t->proc->gather.by && !rec_trap_held(t) &&
	       !t->group->leaving && t->idle.state != REC_IDLE_GONE && t->beyond++ < BEYOND;
}

static enum rec_state towards_boundary(struct rec_thread *t)
{
	struct user_regs_struct r;
	struct tr_where w;
	if (rec_get_regs(t, &r))
		return REC_KILLED;
	bool takeable = rec_takeable(t, &r, &w);
	t->flags_lost = takeable && w.flags_lost;
	if (takeable && !rec_goes_beyond(t)) {
		t->in_rep = rec_repeats(t, &w);
		rec_take(t, &r, &w);
		return REC_IN_HAND;
	}
	if (t->count++ > 1000000) { /* it has been led astray: nothing of ours is that long */
		rec_overwritten(t, T_BASE);
		return REC_KILLED;
	}
	if (tr_waits(t->proc->tr, r.rip)) /* for longer than one who is stepped cares to look */
		r.rax = 1;
	if (tr_asks(t->proc->tr, r.rip))
		rec_ask_over(t);
	t->pushes = tr_pushes_flags(t->proc->tr, r.rip);
	return rec_step(t, &r, REC_BOUNDARY);
}

enum rec_state rec_step_to_boundary(struct rec_thread *t)
{
	t->count = 0;
	return towards_boundary(t);
}

enum rec_state rec_on_boundary(struct rec_thread *t, const struct rec_stop *stop)
{
	struct user_regs_struct r;
	if (stop->event) {
		rec_run(t, REC_STEP, 0);
		return REC_BOUNDARY;
	}
	if (stop->sig != SIGTRAP) /* it faults before it gets there */
		return rec_signal_stop(t, stop);
	if (t->pushes && !rec_get_regs(t, &r))
		rec_take_trap_flag(t, r.rsp);
	if (stop->info.si_code != SI_KERNEL)
		return towards_boundary(t);
	return rec_get_regs(t, &r) ? REC_KILLED : our_trap(t, &r);
}
