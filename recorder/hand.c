/* Taking a thread in hand, what is done with one in hand, and letting it go on. */
#include "recorder/ahead.h"
#include "recorder/area.h"

#include <string.h>

static unsigned long long *user_gpr(struct user_regs_struct *u, unsigned r)
{
	unsigned long long *const p[16] = { &u->rax, &u->rcx, &u->rdx, &u->rbx, &u->rsp, &u->rbp,
					    &u->rsi, &u->rdi, &u->r8,  &u->r9,	&u->r10, &u->r11,
					    &u->r12, &u->r13, &u->r14, &u->r15 };
	return p[r];
}

/* T_FLAGS: al is OF, ah is SF ZF - AF - PF - CF */
static unsigned long long saved_flags(const struct rec_thread *t, unsigned long long eflags)
{
	uint64_t f = *rec_tcb(t, T_FLAGS);
	eflags &= ~(unsigned long long)DJ_FLAGS_ARITH;
	eflags |= (f >> 8) & 0xd5;
	if (f & 1)
		eflags |= DJ_FLAG_OF;
	return eflags;
}

uint64_t rec_lagged(const struct rec_thread *t)
{
	uint64_t sum = 0;
	for (int i = 0; i < TR_COUNTERS; i++)
		sum += *rec_tcb(t, T_STEPS(i));
	return sum;
}

void rec_lagged_set(struct rec_thread *t, uint64_t steps)
{
	*rec_tcb(t, T_STEPS(0)) += steps - rec_lagged(t);
}

/* The thread's steps, at a place whose lag is known. */
static uint64_t counted(struct rec_thread *t, uint32_t lag)
{
	uint64_t steps = rec_lagged(t) + lag;
	if (steps >= t->steps && steps < 1ULL << 48) /* as many bits as a record has for it */
		return steps;
	t->overwritten = true;
	rec_cut(t->rec,
		"the program overwrote deja's memory at %#llx, where %llu instructions of thread "
		"%d are counted (%u of them by where it is), after %llu; the recording ends there",
		(unsigned long long)(t->s + (uint64_t)(int64_t)T_STEPS(0)),
		(unsigned long long)steps, (int)t->tid, lag, (unsigned long long)t->steps);
	return t->steps;
}

uint64_t rec_steps(struct rec_thread *t)
{
	if (t->in_hand || t->state == REC_GONE)
		return t->steps;
	/* somewhere in the cache: so many at least */
	uint64_t behind = t->steps - rec_lagged(t);
	return behind <= TR_LAG_MAX ? t->steps : counted(t, 0);
}

/* The thread has come this far. */
static void count(struct rec_thread *t, uint32_t lag)
{
	uint64_t steps = counted(t, lag), seq = *rec_tcb(t, T_SEQ);
	if (!rec_order_passed(t, seq, steps)) {
		rec_overwritten(t, T_SEQ);
		seq = t->seq;
	}
	if (seq != t->seq) {
		uint64_t at = *rec_tcb(t, T_SEQ_AT);
		if (at < t->steps || at > steps + 1)
			rec_overwritten(t, T_SEQ_AT);
		else
			t->seq_at = at;
	}
	t->steps = steps;
	t->seq = seq;
}

void rec_own_regs(const struct rec_thread *t, const struct user_regs_struct *r,
		  const struct tr_where *w, struct user_regs_struct *own)
{
	*own = *r;
	for (unsigned i = 0; i < 16; i++)
		if (w->spilled & 1u << i)
			*user_gpr(own, i) = *rec_tcb(t, T_SLOT((int)i));
	if (w->flags == TR_FLAGS_SAVED)
		own->eflags = saved_flags(t, own->eflags);
	own->eflags &= ~TRAP_FLAG;
	own->rip = w->pc;
}

void rec_take_place(struct rec_thread *t, uint32_t lag)
{
	count(t, lag);
	t->in_hand = true;
	t->proc->hand = t;
	rec_log_drain(t);
	rec_ring_facts(t);
}

void rec_take(struct rec_thread *t, const struct user_regs_struct *r, const struct tr_where *w)
{
	rec_own_regs(t, r, w, &t->regs);
	t->flags_lost = w->flags_lost;
	t->flags_made = false;
	if (w->before_syscall) /* it was let through, and will come to the check again */
		*rec_tcb(t, T_CALL) = 0;
	if (!w->after_syscall) /* else the call has been made, and is not over */
		rec_log_leave(t);
	rec_take_place(t, w->lag);
	rec_idle_back(t);
}

void rec_leave_place(struct rec_thread *t)
{
	*rec_tcb(t, T_FACTS) = t->facts;
	t->in_hand = false;
}

/* Not canonical, whatever the low half (SDM vol. 1, 3.3.7.1). */
#define NOWHERE 0x8000000000000000ULL

void rec_import(struct rec_thread *t, uint64_t addr, unsigned size)
{
	uint8_t line[DJ_LINE];
	for (uint64_t at = addr & -(uint64_t)DJ_LINE; at < addr + size; at += DJ_LINE) {
		struct dj_record r = {
			.kind = DJ_REC_IMPORT, .steps = t->steps, .addr = at, .bytes = line
		};
		if (rec_read(t->proc, at, line, sizeof(line)) != sizeof(line)) {
			/* There is no memory to put the shadow right from: the replay's is to be
			 * like it. No address that a program can have stands for the line, so
			 * that nobody takes it for what is there. */
			r.addr = NOWHERE | (uint32_t)at;
			if (rec_read(t->proc, t->s + (uint32_t)at, line, sizeof(line)) !=
			    sizeof(line))
				return;
		} else if (!rec_write(t->proc, t->s + (uint32_t)at, line, sizeof(line))) {
			return;
		}
		rec_ring_record(t, &r);
	}
}

enum rec_state rec_step(struct rec_thread *t, const struct user_regs_struct *r,
			enum rec_state state)
{
	if (rec_set_regs(t, r))
		return REC_KILLED;
	rec_run(t, REC_STEP, 0);
	return state;
}

static enum rec_state enter(struct rec_thread *t, const struct tr_frag *f)
{
	struct user_regs_struct r = t->regs;
	*rec_tcb(t, T_SLOT(DJ_R11)) = r.r11;
	*rec_tcb(t, T_CALL) = 0;
	*rec_tcb(t, T_FACTS) = t->facts;
	rec_lagged_set(t, t->steps - tr_entry_lag(f));
	r.rip = tr_entry(f);
	t->entered.at = r.rip;
	t->entered.lagged = rec_lagged(t);
	t->entered.pc = t->regs.rip;
	t->entered.steps = t->steps;
	t->entered.flags_made = t->flags_made;
	t->entered.in_rep = t->in_rep;
	t->in_rep = false;
	r.gs_base = t->s;
	t->epoch = tr_epoch(t->proc->tr);
	*rec_tcb(t, T_ALONE) = t->proc->n_threads == 1;
	r.orig_rax = (unsigned long long)-1;
	t->in_hand = t->minds = false;
	if (rec_set_regs(t, &r))
		return REC_KILLED;
	if (t->n_pending) { /* which is for the next place where flags are the program's */
		rec_run(t, REC_STEP, 0);
		return REC_BOUNDARY;
	}
	if (rec_late(t)) {
		rec_late_run(t);
	} else {
		rec_ask_listen(t);
		rec_run(t, REC_CONT, 0);
	}
	if (t->helper.by) /* which did not get it in the midst of something else */
		t->rec->tracer->interrupt(t->rec->tracer, t->tid);
	return REC_CACHE;
}

/* In hand: what was retired so far means nothing to the thread any more, but for what the processor
 * remembers of its last x87 instruction. */
static void leave_retired(struct rec_thread *t)
{
	uint64_t now = tr_epoch(t->proc->tr);
	if (t->epoch != now)
		rec_x87_place(t);
	t->epoch = now;
}

/* What was retired before any thread entered the cache, or was in hand here, can be given up. Not
 * `whole`: any thread that is in the cache. (Mostly there is nothing, and there may be many
 * threads.) */
static void reclaim(struct rec_process *proc, bool whole)
{
	uint64_t oldest = tr_epoch(proc->tr);
	if (!tr_retired(proc->tr))
		return;
	for (const struct rec_thread *t = proc->rec->threads; t; t = t->next) {
		bool inside = (t->state == REC_CACHE || t->state == REC_BOUNDARY) && !t->in_hand;
		if (t->proc == proc && t->epoch < oldest && (inside || (whole && t->own)))
			oldest = t->epoch;
	}
	tr_reclaim(proc->tr, oldest);
}

enum tr_found rec_fragment(struct rec_thread *t, uint64_t pc, struct tr_frag **f)
{
	bool whole = true;
	if (rec_code_stale(t->proc, pc))
		rec_code_changed(t->proc, pc);
	for (;;) {
		leave_retired(t);
		reclaim(t->proc, whole);
		enum tr_found found = tr_fragment(t->proc->tr, pc, f);
		if (found != TR_FULL || !rec_alone(t))
			return found;
		rec_x87_places(t->proc);
		whole = false;
	}
}

static enum rec_state all_out(struct rec_thread *t, int64_t result)
{
	(void)t;
	(void)result;
	return REC_IN_HAND;
}

enum rec_state rec_go_on(struct rec_thread *t)
{
	if (!t->own)
		return rec_thread_begin(t);
	t->proc->hand = t;
	t->sys.waits = false;
	if (t->proc->gather.by == t)
		t->proc->gather.by = NULL;
	rec_turn_over(t);
	if (t->proc->n_threads > 1) /* others may have made some while it waited */
		rec_ring_facts(t);
	rec_trap_over(t);
	if (rec_trap_to_restore(t))
		return rec_trap_restore(t);
	if (t->proc->gather.by || rec_trap_held(t))
		return REC_WAIT;
	rec_lagged_set(t, t->steps);
	*rec_tcb(t, T_SEQ) = t->seq;
	rec_order_enter(t);
	rec_late_due(t);
	if (t->group->leaving)
		return rec_leave(t, t->group->leaving);
	if (t->hand_over) {
		t->hand_over = false;
		rec_ring_hand_over(t);
	}
	rec_modules_check(t->rec);
	if (t->n_pending && !rec_goes_beyond(t))
		return rec_deliver_pending(t);
	if (rec_digest_is_due(t, t->steps))
		rec_digest(t, true);
	rec_written(t, false);
	if (rec_keyframe_is_due(t))
		return rec_keyframe_begin(t);
	if (rec_idle_is_due(t))
		return rec_idle_begin(t);
	if (t->trap_flag)
		return rec_native_begin(t);
	struct tr_frag *f;
	rec_ahead(t);
	enum tr_found found = rec_fragment(t, t->regs.rip, &f);
	if (rec_over(t->rec))
		return REC_KILLED;
	switch (found) {
	case TR_FOUND:
		return enter(t, f);
	case TR_NO_ARENA:
		return rec_arena_begin(t, t->regs.rip);
	case TR_FULL: /* others may be in what is to be given up */
		return rec_turn(t) ? rec_gather(t, all_out) : REC_WAIT;
	default:
		return rec_native_begin(t);
	}
}
