/*
 * Instructions executed natively, one at a time, recorded by their side effects: what the emulator
 * does not know, what is not deterministic, and what is about to fault for reasons only the
 * processor knows (no such page, no such instruction).
 *
 * A long REP instruction traps at every iteration of a single step. It runs to a hardware
 * breakpoint behind it instead, if the machine has those; should it stop for another reason, the
 * rest of it is stepped.
 */
#include "recorder/recorder.h"

#include <string.h>
#include <sys/ptrace.h>

/* The instruction was executed, and left these registers. */
static void effects(struct rec_thread *t, const struct dj_regs *after, unsigned why)
{
	struct dj_record r = {
		.kind = DJ_REC_EFFECTS, .steps = t->steps, .why = (uint8_t)why, .regs = *after
	};
	r.mask = dj_regs_diff(&t->native.before, after) | DJ_REG_RIP;
	r.insn_len = t->native.known ? (uint8_t)t->native.in.len : 0;
	memcpy(r.insn, t->native.code, r.insn_len);
	rec_ring_record(t, &r);
	t->steps++;
	if (t->native.known && insn_is_ordered(&t->native.in))
		t->seq++;
}

static unsigned why_native(const struct insn *in)
{
	switch (in->id) {
	case INSN_CPUID:
	case INSN_XGETBV:
		return DJ_WHY_CPUID;
	case INSN_RDTSC:
	case INSN_RDTSCP:
		return DJ_WHY_TSC;
	case INSN_RDRAND:
	case INSN_RDSEED:
		return DJ_WHY_RANDOM;
	}
	if (in->attr & INSN_A_XSTATE)
		return DJ_WHY_XSTATE;
	if (in->attr & (INSN_A_PRIV | INSN_A_NONDET))
		return DJ_WHY_OTHER;
	return DJ_WHY_UNEMULATED;
}

/* CPUID and XGETBV are answered by us. */
static enum rec_state answer_cpuid(struct rec_thread *t)
{
	struct dj_regs after = t->native.before;
	if (t->native.in.id == INSN_CPUID) {
		uint32_t r[4];
		rec_cpuid((uint32_t)t->regs.rax, (uint32_t)t->regs.rcx, r);
		t->regs.rax = r[0];
		t->regs.rbx = r[1];
		t->regs.rcx = r[2];
		t->regs.rdx = r[3];
	} else {
		uint32_t lo, hi;
		__asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"((uint32_t)t->regs.rcx & 1));
		t->regs.rax = lo & 7;
		t->regs.rdx = 0;
	}
	t->regs.rip += t->native.in.len;
	rec_from_user(&t->regs, &after);
	after.gs_base = t->native.before.gs_base;
	effects(t, &after, DJ_WHY_CPUID);
	return REC_IN_HAND;
}

static enum rec_state step_it(struct rec_thread *t)
{
	return rec_step(t, &t->regs, REC_NATIVE);
}

enum rec_state rec_native_begin(struct rec_thread *t)
{
	struct insn *in = &t->native.in;
	struct rec_tracer *tracer = t->rec->tracer;
	size_t got = rec_read(t->proc, t->regs.rip, t->native.code, sizeof(t->native.code));
	bool known = got && insn_decode(in, t->native.code, got, t->regs.rip) > 0;
	t->native.known = known;
	t->native.pc = t->regs.rip;
	rec_full_regs(t, &t->native.before);
	if (known && in->id == INSN_SYSCALL) /* where no arena can be had */
		return rec_syscall(t);
	t->natives++;
	if (known && (in->id == INSN_CPUID || in->id == INSN_XGETBV))
		return answer_cpuid(t);

	t->regs.gs_base = *rec_tcb(t, T_GSBASE);
	t->regs.orig_rax = (unsigned long long)-1;
	/* The program's XCR0 has x87, SSE and AVX only (see the translator's xsave). */
	t->native.masked = known && (in->attr & INSN_A_XSTATE) && (in->gpr_read & 5) == 5;
	t->native.rax = t->regs.rax;
	t->native.rdx = t->regs.rdx;
	if (t->native.masked) {
		t->regs.rax &= 7;
		t->regs.rdx = 0;
	}
	if (known && (in->attr & INSN_A_REP) && t->regs.rcx > 32 &&
	    !tracer->set_breakpoint(tracer, t->tid, t->regs.rip + in->len)) {
		if (rec_set_regs(t, &t->regs))
			return REC_KILLED;
		rec_run(t, REC_CONT, 0);
		return REC_NATIVE_RUN;
	}
	return step_it(t);
}

static void unmask(struct rec_thread *t)
{
	if (!t->native.masked)
		return;
	t->regs.rax = t->native.rax;
	t->regs.rdx = t->native.rdx;
}

/* The instruction has been executed. */
static enum rec_state done(struct rec_thread *t)
{
	struct dj_regs after;
	unmask(t);
	*rec_tcb(t, T_FSBASE) = t->regs.fs_base;
	*rec_tcb(t, T_GSBASE) = t->regs.gs_base;
	rec_full_regs(t, &after);
	effects(t, &after, t->native.known ? why_native(&t->native.in) : DJ_WHY_OTHER);
	return REC_IN_HAND;
}

enum rec_state rec_on_native_run(struct rec_thread *t, const struct rec_stop *stop)
{
	struct rec_tracer *tracer = t->rec->tracer;
	struct user_regs_struct r;
	tracer->set_breakpoint(tracer, t->tid, 0);
	if (rec_get_regs(t, &r))
		return REC_KILLED;
	t->regs = r;
	bool there = !stop->event && stop->sig == SIGTRAP && stop->info.si_code == TRAP_HWBKPT &&
		     r.rip == t->native.pc + t->native.in.len;
	return there ? done(t) : step_it(t);
}

enum rec_state rec_on_native(struct rec_thread *t, const struct rec_stop *stop)
{
	struct user_regs_struct r;
	if (stop->event) {
		rec_fatal(t->rec, "unexpected event %d while executing an instruction at %#llx",
			  stop->event, (unsigned long long)t->native.pc);
		return REC_KILLED;
	}
	if (rec_get_regs(t, &r))
		return REC_KILLED;
	t->regs = r;
	if (stop->sig == SIGTRAP &&
	    (stop->info.si_code == TRAP_TRACE || stop->info.si_code == TRAP_BRKPT)) {
		t->regs.eflags &= ~0x100ULL;
		if (r.rip == t->native.pc && t->native.known && (t->native.in.attr & INSN_A_REP))
			return step_it(t); /* the next iteration */
		return done(t);
	}
	unmask(t);
	if (stop->sig == SIGTRAP && r.rip != t->native.pc) {
		/* int3: a trap, the instruction is done */
		struct dj_regs after;
		rec_full_regs(t, &after);
		effects(t, &after, DJ_WHY_FAULTING);
	}
	return rec_deliver(t, &stop->info, 0);
}
