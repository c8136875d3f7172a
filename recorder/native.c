/*
 * Instructions executed natively, one at a time, recorded by their side effects: what the emulator
 * does not know, what is not deterministic, and what is about to fault for reasons only the
 * processor knows (no such page, no such instruction).
 *
 * A single step of a REP instruction traps at every iteration, and behind what the kernel emulates
 * it traps too late: both are executed apart (apart.c). A load of ss holds the trap back by an
 * instruction, too, breakpoints included (SDM vol. 3, 6.8.3). It is not executed if it changes
 * nothing; else the two instructions are one step of the recording.
 *
 * A program that sets the trap flag (by popf, iret or rt_sigreturn) has every instruction executed
 * here as long as it is set, and gets SIGTRAP after each, as from the processor. `t->trap_flag` is
 * the program's; what the kernel sets for a single step it hides from us, and from the program in
 * all places but the flags that pushf pushes (arch/x86/kernel/step.c).
 */
#include "recorder/apart.h"
#include "recorder/area.h"
#include "recorder/cpuid.h"

#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/ptrace.h>

/* The instruction was executed, and left these registers. */
static void effects(struct rec_thread *t, const struct dj_regs *after, unsigned why)
{
	struct dj_record r = {
		.kind = DJ_REC_EFFECTS, .steps = t->steps, .why = (uint8_t)why, .regs = *after
	};
	r.mask = dj_regs_diff(&t->native.before, after) | DJ_REG_RIP;
	/* Flags that it overwrites may have been dead before, and then what was there is only ours.
	 */
	if (!t->native.known || t->native.in.flags_written & DJ_FLAGS_ARITH)
		r.mask |= DJ_REG_RFLAGS;
	r.insn_len = t->native.known ? (uint8_t)t->native.in.len : 0;
	memcpy(r.insn, t->native.code, r.insn_len);
	if (t->native.known && insn_is_ordered(&t->native.in) &&
	    t->rec->opt.memory_model >= DJ_ORDER_FENCE)
		rec_event(t, &r);
	else
		rec_ring_record(t, &r);
	t->steps++;
	t->flags_lost = false;
	t->flags_made = true;
	rec_order_release(t);
}

unsigned rec_why_native(const struct insn *in)
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
		uint32_t leaf = (uint32_t)t->regs.rax, sub = (uint32_t)t->regs.rcx;
		rec_cpuid_of(t, leaf, sub, r);
		rec_cpuid_keep(t, leaf, sub, r);
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
	siginfo_t info = { .si_signo = SIGTRAP, .si_code = TRAP_TRACE };
	info.si_addr = (void *)(uintptr_t)t->regs.rip;
	if (t->trap_flag && (t->native.in.id != INSN_CPUID || rec_cpuid_traps()))
		rec_put_aside(t, &info);
	return REC_IN_HAND;
}

/* What the program cannot know of: to it, nothing is mapped there. */
static bool is_ours(const struct rec_process *proc, uint64_t addr)
{
	struct rec_pieces p = { proc };
	uint64_t at, size;
	while (rec_area_next(&p, &at, &size))
		if (addr - at < size)
			return true;
	return false;
}

/* An address at which the processor finds nothing. */
static uint64_t nowhere(const struct rec_process *proc)
{
	uint64_t at = 4096;
	while (rec_maps_find(proc, at) || is_ours(proc, at))
		at += 4096;
	return at;
}

static bool loads_ss(const struct insn *in)
{
	return in->id == INSN_MOVSEG && in->opnd[0].kind == OPND_SEG && in->opnd[0].reg == 2;
}

/* A load of ss with what it has: done. */
static bool keeps_ss(const struct rec_thread *t)
{
	const struct insn *in = &t->native.in;
	return loads_ss(in) && !in->lock && in->opnd[1].kind == OPND_GPR &&
	       (uint16_t)t->native.before.gpr[in->opnd[1].reg] == t->native.before.ss;
}

/* Code that changes unheard has changed since it was read: where nothing could be translated no
 * fragment has compared it. */
static bool is_stale(struct rec_thread *t, size_t got)
{
	uint8_t was[INSN_MAX];
	bool changing;
	size_t had = rec_code_read(t->proc, t->native.pc, was, sizeof(was), &changing);
	return changing && (had > got || memcmp(was, t->native.code, had) != 0);
}

/* int1 has an opcode of its own, and a vector that `int` cannot name. */
static bool is_int1(const struct rec_thread *t)
{
	const struct insn *in = &t->native.in;
	return t->native.known && in->id == INSN_INT && t->native.code[in->len - 1] == 0xf1 &&
	       (in->len < 2 || t->native.code[in->len - 2] != 0xcd);
}

static enum rec_state step_it(struct rec_thread *t)
{
	return rec_step(t, &t->regs, REC_NATIVE);
}

enum rec_state rec_native_begin(struct rec_thread *t)
{
	struct insn *in = &t->native.in;
	size_t got = rec_read(t->proc, t->regs.rip, t->native.code, sizeof(t->native.code));
	bool known = got && insn_decode(in, t->native.code, got, t->regs.rip) > 0;
	t->native.known = known;
	t->native.pc = t->regs.rip;
	t->native.nowhere = t->native.apart = 0;
	if (is_stale(t, got)) {
		rec_code_forget(t->proc, t->native.pc, t->native.pc + INSN_MAX);
		return REC_IN_HAND;
	}
	bool apart = rec_apart_has(t) && !is_ours(t->proc, t->native.pc);
	if (apart && !tr_syscall_insn(t->proc->tr) && !t->proc->no_arena)
		return rec_arena_begin(t, t->regs.rip);
	if (apart && !rec_turn(t))
		return REC_WAIT;
	t->native.in_rep = t->in_rep;
	t->in_rep = false;
	if (known)
		rec_code_translated(t->proc, t->native.pc, in->len);
	rec_full_regs(t, &t->native.before);
	if (known && in->id == INSN_SYSCALL && !in->lock) /* where no arena can be had */
		return rec_syscall(t);
	t->natives++;
	rec_count(t, REC_COUNT_NATIVE);
	if (known)
		rec_count_native(t->rec, in);
	if (known && !in->lock &&
	    (in->id == INSN_CPUID || (in->id == INSN_XGETBV && (uint32_t)t->regs.rcx <= 1)))
		return answer_cpuid(t);
	if (known && keeps_ss(t)) {
		struct dj_regs after = t->native.before;
		after.rip = t->regs.rip += in->len;
		effects(t, &after, DJ_WHY_OTHER);
		return REC_IN_HAND; /* the trap flag's comes behind the next one */
	}

	rec_late_native(t);
	if (known)
		rec_order_hold(t, in);
	t->minds =
		!known || in->id == INSN_INT || in->id == INSN_SYSENTER || in->id == INSN_SYSCALL;
	t->native.traps = t->trap_flag && !apart;
	if (t->native.traps)
		t->regs.eflags |= TRAP_FLAG;
	t->regs.gs_base = rec_gs(t);
	t->regs.orig_rax = (unsigned long long)-1;
	/* The program's XCR0 has x87, SSE and AVX only (see the translator's xsave). */
	t->native.masked = known && (in->attr & INSN_A_XSTATE) && (in->gpr_read & 5) == 5;
	t->native.rax = t->regs.rax;
	t->native.rdx = t->regs.rdx;
	if (t->native.masked) {
		t->regs.rax &= 7;
		t->regs.rdx = 0;
	}
	if (is_ours(t->proc, t->native.pc)) {
		t->regs.rip = t->native.nowhere = nowhere(t->proc);
		return step_it(t);
	}
	if (is_int1(t)) { /* it traps by itself */
		if (rec_set_regs(t, &t->regs))
			return REC_KILLED;
		rec_run(t, REC_CONT, 0);
		return REC_NATIVE;
	}
	return apart || rec_apart_repeats(t) ? rec_apart_begin(t) : step_it(t);
}

static void unmask(struct rec_thread *t)
{
	if (!t->native.masked)
		return;
	t->regs.rax = t->native.rax;
	t->regs.rdx = t->native.rdx;
}

/* Where it is executed. */
static uint64_t place(const struct rec_thread *t)
{
	if (t->native.nowhere)
		return t->native.nowhere;
	return t->native.apart ? t->native.apart : t->native.pc;
}

bool rec_native_left(struct rec_thread *t)
{
	struct user_regs_struct r;
	if ((t->state != REC_NATIVE && t->state != REC_NATIVE_RUN) || t->flags_lost ||
	    rec_get_regs(t, &r) || r.rip != place(t) || r.rcx != t->native.before.gpr[DJ_RCX])
		return false;
	t->regs = r;
	t->regs.rip = t->native.pc;
	t->in_rep = t->native.in_rep;
	if (t->native.apart)
		rec_apart_back(t);
	t->regs.eflags &= ~TRAP_FLAG;
	unmask(t);
	rec_order_release(t);
	return true;
}

static bool changes_trap_flag(const struct rec_thread *t)
{
	return t->native.known && (t->native.in.id == INSN_POPF || t->native.in.id == INSN_IRET);
}

bool rec_native_stepped(struct rec_thread *t)
{
	struct user_regs_struct r;
	return t->state == REC_NATIVE && changes_trap_flag(t) && !rec_get_regs(t, &r) &&
	       r.rip != place(t);
}

void rec_take_trap_flag(struct rec_thread *t, uint64_t rsp)
{
	uint8_t high;
	if (rec_read(t->proc, rsp + 1, &high, 1) == 1) {
		high &= 0xfe;
		rec_write(t->proc, rsp + 1, &high, 1);
	}
}

/* A far transfer may lead to code of 32 bits. (If there is no code it faults like any other.) */
static bool left_64_bits(struct rec_thread *t)
{
	const struct dj_mapping *m = rec_maps_find(t->proc, t->regs.rip);
	return (uint16_t)t->regs.cs != t->native.before.cs && m && (m->prot & PROT_EXEC);
}

#define HWCAP2_FSGSBASE 2 /* arch/x86/include/uapi/asm/hwcap2.h */

/* Where programs may not set the gs base it is, for the kernel, that of the selector if there is
 * one (linux/arch/x86/kernel/process_64.c, save_base_legacy). In the cache it is the shadow's
 * address. */
static bool loses_base(const struct rec_thread *t)
{
	return (uint16_t)t->regs.gs && !(getauxval(AT_HWCAP2) & HWCAP2_FSGSBASE);
}

/* The instruction has been executed. */
static enum rec_state done(struct rec_thread *t)
{
	struct dj_regs after;
	unmask(t);
	if (!t->native.traps && t->native.known && t->native.in.id == INSN_PUSHF)
		rec_take_trap_flag(t, t->regs.rsp);
	*rec_tcb(t, T_FSBASE) = t->regs.fs_base;
	rec_set_gs(t, t->regs.gs_base);
	rec_full_regs(t, &after);
	effects(t, &after, t->native.known ? rec_why_native(&t->native.in) : DJ_WHY_OTHER);
	if (t->native.known)
		rec_native_data(t, &t->native.in, &t->native.before);
	if (loses_base(t)) {
		rec_cut(t->rec,
			"%s gives gs a selector, which cannot be recorded on a machine where "
			"programs may not set the gs base (FSGSBASE); the recording ends there",
			rec_program_name(t));
		return REC_KILLED;
	}
	if (left_64_bits(t)) {
		rec_cut(t->rec,
			"%s goes on in code that is not of 64 bits, which cannot be recorded; the "
			"recording ends there",
			rec_program_name(t));
		return REC_KILLED;
	}
	return REC_IN_HAND;
}

/* Whether a step may have ended where it has. A gather traps at every element. */
static bool may_be_there(const struct rec_thread *t)
{
	const struct insn *in = &t->native.in;
	uint64_t rip = t->regs.rip, pc = t->native.pc;
	return !t->native.known || rip == pc || rip == pc + in->len || loads_ss(in) ||
	       in->attr & INSN_A_BRANCH || in->id == INSN_INT || in->id == INSN_IRET ||
	       in->id == INSN_SYSENTER || in->id == INSN_SYSCALL || in->id == INSN_XBEGIN;
}

/* It has not stopped where it should have: what it has done by now nobody knows. */
static enum rec_state ran_away(struct rec_thread *t, const struct rec_stop *stop)
{
	char bytes[2 * INSN_MAX + 1] = "";
	for (unsigned i = 0; t->native.known && i < t->native.in.len; i++)
		snprintf(bytes + 2 * i, 3, "%02x", t->native.code[i]);
	rec_fatal(t->rec,
		  "the instruction %s executed natively at %#llx led to %#llx (signal %d, code %d, "
		  "event %d)",
		  bytes, (unsigned long long)t->native.pc, (unsigned long long)t->regs.rip,
		  stop->sig, stop->info.si_code, stop->event);
	return REC_KILLED;
}

/* The instruction has faulted. What it had done before that is a step of its own: iterations of a
 * string instruction, elements that a gather had loaded (how many, processors differ in), or what
 * the kernel left when it gave up. */
static void part_done(struct rec_thread *t)
{
	const uint64_t its = 0xffffULL << 32 | 0xffff | DJ_REG_MXCSR; /* all YMM and GPR */
	struct dj_regs after;
	rec_full_regs(t, &after);
	if (after.rip != t->native.pc || (dj_regs_diff(&t->native.before, &after) & its))
		effects(t, &after, DJ_WHY_FAULTING);
}

enum rec_state rec_on_native_run(struct rec_thread *t, const struct rec_stop *stop)
{
	if (rec_get_regs(t, &t->regs))
		return REC_KILLED;
	bool trap = !stop->event && stop->sig == SIGTRAP && t->regs.rip == t->native.stop_at + 1;
	if (stop->event || !rec_apart_done(t))
		return ran_away(t, stop);
	if (trap)
		return done(t);
	if (t->regs.rip != t->native.pc) { /* it was made, and something came of it */
		enum rec_state next = done(t);
		return next == REC_IN_HAND ? rec_deliver(t, &stop->info, 0) : next;
	}
	rec_order_release(t);
	part_done(t);
	return rec_deliver(t, &stop->info, 0);
}

/* After a step over popf or iret the kernel takes the trap flag of the next single step for the
 * program's own, and would show it in a frame, if the thread has not run without one in between. */
static enum rec_state after_step(struct rec_thread *t, const struct rec_stop *stop)
{
	bool traps = t->native.traps || is_int1(t);
	if (!changes_trap_flag(t) || !tr_syscall_insn(t->proc->tr))
		return traps ? rec_deliver(t, &stop->info, 0) : REC_IN_HAND;
	if (traps)
		rec_put_aside(t, &stop->info);
	return rec_into_trap(t, 0);
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
		bool rep = t->native.known && (t->native.in.attr & INSN_A_REP);
		if (changes_trap_flag(t)) /* then the kernel does not think that it is ours */
			t->trap_flag = r.eflags & TRAP_FLAG;
		t->regs.eflags &= ~TRAP_FLAG;
		if (r.rip == t->native.pc && rep && !t->native.traps)
			return step_it(t); /* the next iteration */
		if (!may_be_there(t))
			return ran_away(t, stop);
		enum rec_state next = done(t); /* if only of an iteration, which has trapped */
		return next == REC_IN_HAND ? after_step(t, stop) : next;
	}
	unmask(t);
	rec_order_release(t);
	if (t->native.nowhere) {
		siginfo_t info = stop->info;
		t->regs.rip = t->native.pc;
		t->native.faulted = t->native.nowhere;
		t->native.wanted = t->native.pc;
		info.si_addr = (void *)(uintptr_t)t->native.pc;
		return rec_deliver(t, &info, 0);
	}
	/* elsewhere: int3 or int 4, a trap, and the instruction is done; or what came behind a load
	 * of ss, or where sysenter led to, has faulted */
	part_done(t);
	return rec_deliver(t, &stop->info, 0);
}
