/*
 * Instructions executed natively, one at a time, recorded by their side effects: what the emulator
 * does not know, what is not deterministic, and what is about to fault for reasons only the
 * processor knows (no such page, no such instruction).
 *
 * CPUID and XGETBV are answered by us: the program is shown a processor that the replayer emulates
 * fully: x86-64-v3 with AES, PCLMULQDQ, SHA, GFNI and VAES absent or present as on the host, and
 * nothing of AVX-512, AMX, TSX, MPX, PKU, CET.
 */
#include "recorder/supervisor.h"

#include <cpuid.h>
#include <stddef.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

/* ---- CPUID ------------------------------------------------------------------------------ */

/* Feature bits that pass, by leaf and register; other leaves pass as they are. SDM vol. 2A, CPUID;
 * AMD64 APM vol. 3, appendix E, for those from 0x80000000 on. */
enum { EAX, EBX, ECX, EDX };
static const struct {
	uint32_t leaf, sub;
	int reg;
	uint32_t keep;
} features[] = {
	/* sse3 pclmul ssse3 fma cx16 sse4.1 sse4.2 movbe popcnt aes xsave osxsave avx f16c
	 * rdrand hypervisor */
	{ 1, 0, ECX,
	  1u << 0 | 1u << 1 | 1u << 9 | 1u << 12 | 1u << 13 | 1u << 19 | 1u << 20 | 1u << 22 |
		  1u << 23 | 1u << 25 | 1u << 26 | 1u << 27 | 1u << 28 | 1u << 29 | 1u << 30 |
		  1u << 31 },
	/* bmi1 avx2 smep bmi2 erms rdseed adx smap clflushopt clwb sha */
	{ 7, 0, EBX,
	  1u << 3 | 1u << 5 | 1u << 7 | 1u << 8 | 1u << 9 | 1u << 18 | 1u << 19 | 1u << 20 |
		  1u << 23 | 1u << 24 | 1u << 29 },
	{ 7, 0, ECX, 1u << 2 | 1u << 8 | 1u << 22 }, /* umip gfni rdpid */
	{ 7, 0, EDX,
	  1u << 4 | 1u << 10 | 1u << 26 | 1u << 27 | 1u << 28 | 1u << 29 |
		  1u << 31 }, /* fsrm, mitigations */
	{ 7, 0, EAX, 0 },
	{ 7, 1, EAX, 0 },
	{ 7, 1, EBX, 0 },
	{ 7, 1, ECX, 0 },
	{ 7, 1, EDX, 0 },
	{ 7, 2, EAX, 0 },
	{ 7, 2, EBX, 0 },
	{ 7, 2, ECX, 0 },
	{ 7, 2, EDX, 0 },
	{ 0xd, 0, EAX, 7 },
	{ 0xd, 0, EDX, 0 },
	{ 0xd, 1, EAX, 7 }, /* xsaveopt xsavec xgetbv1 */
	{ 0xd, 1, ECX, 0 },
	{ 0xd, 1, EDX, 0 },
	/* lahf abm(lzcnt) 3dnowprefetch; no sse4a, misalignsse, svm, ibs, xop, lwp, fma4, tbm,
	   perfctr, monitorx */
	{ 0x80000001, 0, ECX, 1u << 0 | 1u << 5 | 1u << 8 },
	/* no 3dnow */
	{ 0x80000001, 0, EDX, ~(3u << 30) },
	/* AMD's: no clzero, count of retired instructions, invlpgb, rdpru, mcommit (APM vol. 3,
	   E.4.7) */
	{ 0x80000008, 0, EBX, ~(1u << 0 | 1u << 1 | 1u << 3 | 1u << 4 | 1u << 8) },
	{ 0x80000008, 0, EDX, 0 },
};

static void cpuid_for_program(uint32_t leaf, uint32_t sub, uint32_t r[4])
{
	__cpuid_count(leaf, sub, r[EAX], r[EBX], r[ECX], r[EDX]);
	for (size_t i = 0; i < sizeof(features) / sizeof(*features); i++)
		if (features[i].leaf == leaf && (features[i].sub == sub || leaf == 1 || leaf >> 31))
			r[features[i].reg] &= features[i].keep;
	if (leaf == 7 && sub > 2)
		memset(r, 0, 16);
	if (leaf == 0xd) {
		if (sub == 0 || sub == 1) {
			r[EBX] = r[EAX] & 4 || sub == 1 ? 832 : 576; /* x87, sse, avx */
			if (sub == 0)
				r[ECX] = r[EBX];
		} else if (sub != 2) {
			memset(r, 0, 16);
		}
	}
	/* SGX, PT, AMX, key locker, hybrid information, history reset */
	if (leaf == 0x12 || leaf == 0x14 || (leaf >= 0x19 && leaf <= 0x24))
		memset(r, 0, 16);
	/* SVM, IBS, LWP, performance counters */
	if (leaf == 0x8000000a || leaf == 0x8000001b || leaf == 0x8000001c || leaf == 0x80000022)
		memset(r, 0, 16);
}

/* ---- effects ------------------------------------------------------------------------------- */

void sup_effects(struct tracee *t, const struct dj_regs *before, const struct dj_regs *after,
		 const uint8_t *insn, unsigned len, unsigned why)
{
	struct dj_record r = {
		.kind = DJ_REC_EFFECTS, .steps = t->steps, .why = (uint8_t)why, .regs = *after
	};
	r.mask = dj_regs_diff(before, after) | DJ_REG_RIP;
	r.insn_len = (uint8_t)(len > 15 ? 15 : len);
	memcpy(r.insn, insn, r.insn_len);
	ring_record(t, &r);
	t->steps++;
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

/* A long REP instruction traps at every iteration of a single step. Let it run to a hardware
 * breakpoint behind it instead, if the machine has those. Returns false if that could not be had.
 */
static bool run_to(struct tracee *t, uint64_t end)
{
	const size_t dr = offsetof(struct user, u_debugreg);
	if (ptrace(PTRACE_POKEUSER, t->tid, dr, end) ||
	    ptrace(PTRACE_POKEUSER, t->tid, dr + 7 * sizeof(long), 1)) /* DR7: DR0 on execution */
		return false;
	bool there = false;
	if (!tracee_setregs(t, &t->regs) && !ptrace(PTRACE_CONT, t->tid, NULL, NULL)) {
		int status;
		siginfo_t info;
		struct user_regs_struct r;
		memset(&info, 0, sizeof(info));
		if (tracee_wait(t, &status) || !WIFSTOPPED(status)) {
			sup_end(t, status);
			return true;
		}
		/* a signal, too, ends the run: the rest is stepped, which knows what to do with one
		 */
		if (!(status >> 16) && !ptrace(PTRACE_GETSIGINFO, t->tid, NULL, &info) &&
		    !tracee_getregs(t, &r)) {
			there = WSTOPSIG(status) == SIGTRAP && info.si_code == TRAP_HWBKPT &&
				r.rip == end;
			bool sync = info.si_code > 0 && WSTOPSIG(status) != SIGTRAP;
			if (!there && !sync)
				signals_put_aside(t, &info);
			t->regs = r;
		}
	}
	ptrace(PTRACE_POKEUSER, t->tid, dr + 7 * sizeof(long), 0);
	return there;
}

/* In hand: execute the instruction at t->regs.rip. */
void native_insn(struct tracee *t)
{
	uint8_t code[INSN_MAX];
	struct insn in;
	size_t got = tracee_read(t->proc, t->regs.rip, code, sizeof(code));
	bool known = got && insn_decode(&in, code, got, t->regs.rip) > 0;
	struct dj_regs before, after;
	tracee_full_regs(t, &before);
	t->natives++;

	if (known && (in.id == INSN_CPUID || in.id == INSN_XGETBV)) {
		uint32_t r[4];
		if (in.id == INSN_CPUID) {
			cpuid_for_program((uint32_t)t->regs.rax, (uint32_t)t->regs.rcx, r);
			t->regs.rax = r[EAX];
			t->regs.rbx = r[EBX];
			t->regs.rcx = r[ECX];
			t->regs.rdx = r[EDX];
		} else {
			uint32_t lo, hi;
			__asm__ volatile("xgetbv"
					 : "=a"(lo), "=d"(hi)
					 : "c"((uint32_t)t->regs.rcx & 1));
			t->regs.rax = lo & 7;
			t->regs.rdx = 0;
		}
		t->regs.rip += in.len;
		after = before;
		tracee_from_user(&t->regs, &after);
		after.gs_base = before.gs_base;
		sup_effects(t, &before, &after, code, in.len, DJ_WHY_CPUID);
		return;
	}

	uint64_t pc = t->regs.rip;
	t->regs.gs_base = *tcb(t, T_GSBASE);
	t->regs.orig_rax = (unsigned long long)-1;
	/* The program's XCR0 has x87, SSE and AVX only (see the translator's xsave). */
	bool masked = known && (in.attr & INSN_A_XSTATE) && (in.gpr_read & 5) == 5;
	uint64_t rax = t->regs.rax, rdx = t->regs.rdx;
	if (masked) {
		t->regs.rax &= 7;
		t->regs.rdx = 0;
	}
	bool done = known && (in.attr & INSN_A_REP) && t->regs.rcx > 32 && run_to(t, pc + in.len);
	while (!done && !t->proc->ended) {
		struct user_regs_struct r = t->regs;
		siginfo_t info;
		int status = tracee_step(t, &r, 0, &info);
		if (!WIFSTOPPED(status)) {
			sup_end(t, status);
			return;
		}
		int sig = WSTOPSIG(status);
		if (sig != SIGTRAP || (status >> 16) ||
		    (info.si_code != TRAP_TRACE && info.si_code != TRAP_BRKPT)) {
			if (status >> 16) {
				sup_fatal(t->sup,
					  "unexpected event %d while executing an instruction at "
					  "%#llx",
					  status >> 16, (unsigned long long)pc);
				return;
			}
			t->regs = r;
			if (masked) {
				t->regs.rax = rax;
				t->regs.rdx = rdx;
			}
			if (sig == SIGTRAP && r.rip != pc) {
				/* int3: a trap, the instruction is done */
				tracee_full_regs(t, &after);
				sup_effects(t, &before, &after, code, known ? in.len : 0,
					    DJ_WHY_FAULTING);
			}
			signals_deliver(t, &info);
			return;
		}
		bool again = r.rip == pc && known && (in.attr & INSN_A_REP);
		t->regs = r;
		t->regs.eflags &= ~0x100ULL;
		if (!again)
			break;
	}
	if (t->proc->ended)
		return;
	if (masked) {
		t->regs.rax = rax;
		t->regs.rdx = rdx;
	}
	*tcb(t, T_FSBASE) = t->regs.fs_base;
	*tcb(t, T_GSBASE) = t->regs.gs_base;
	tracee_full_regs(t, &after);
	sup_effects(t, &before, &after, code, known ? in.len : 0,
		    known ? why_native(&in) : DJ_WHY_OTHER);
}
