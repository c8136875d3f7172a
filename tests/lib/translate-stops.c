/*
 * The supervisor's part of translate-run.c, all of it in the handler of a signal: what a stop, a
 * miss, a native instruction and a fault mean, and another thread that is not there.
 */
#include "tests/lib/arena.h"
#include "tests/lib/oracle.h"
#include "tests/lib/translate-parts.h"

#include <asm/prctl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

const int greg[16] = { REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
		       REG_R8,	REG_R9,	 REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15 };

/* SDM vol. 1, 13.4: the legacy area and, at 576, the upper halves. */
static void full_regs(const ucontext_t *uc, struct dj_regs *r)
{
	const uint8_t *x = (const uint8_t *)uc->uc_mcontext.fpregs;

	memset(r, 0, sizeof(*r));
	for (int i = 0; i < 16; i++)
		r->gpr[i] = (uint64_t)uc->uc_mcontext.gregs[greg[i]];
	r->rip = (uint64_t)uc->uc_mcontext.gregs[REG_RIP];
	r->rflags = (uint64_t)uc->uc_mcontext.gregs[REG_EFL] & ~(TF | RF);
	memcpy(&r->fcw, x, 2);
	memcpy(&r->fsw, x + 2, 2);
	r->ftw = x[4];
	memcpy(&r->mxcsr, x + 24, 4);
	for (int i = 0; i < 8; i++) {
		memcpy(&r->st_mant[i], x + 32 + 16 * i, 8);
		memcpy(&r->st_exp[i], x + 40 + 16 * i, 2);
	}
	for (int i = 0; i < 16; i++) {
		memcpy(r->ymm[i], x + 160 + 16 * i, 16);
		if (x[512] & 4)
			memcpy(r->ymm[i] + 16, x + 576 + 16 * i, 16);
	}
}

void set_gs(uint64_t base)
{
	syscall(SYS_arch_prctl, ARCH_SET_GS, base);
}

void end_run(ucontext_t *uc, int sig, uint64_t pc)
{
	run.sig = sig;
	run.pc = pc;
	run.active = false;
	uc->uc_mcontext.gregs[REG_RIP] = (greg_t)(uintptr_t)oracle_leave;
	uc->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)(TF | RF);
}

/* ---- the supervisor ---- */

size_t read_code(void *ctx, uint64_t pc, uint8_t *buf, size_t len, bool *changing)
{
	(void)ctx;
	*changing = false;
	if (pc < prog->base || pc >= prog->end)
		return 0;
	size_t n = prog->end - pc < len ? prog->end - pc : len;
	memcpy(buf, prog->code + (pc - prog->base), n);
	return n;
}

static const uint64_t arena_at_[2] = { 0x40000000, 0x2a0040000000 };

static void new_arena(uint64_t pc)
{
	static bool made[2];
	bool high = pc >> 32 != 0;
	uint64_t at = arena_at_[high];

	if (made[high]) { /* a wild jump */
		tr_no_arena(tr);
		return;
	}
	made[high] = true;
	uint8_t *ours = arena_map(at);
	DJ_ASSERT(ours, "cannot map an arena");
	tr_add_arena(tr, at, ours);
}

struct tr_frag *fragment(uint64_t pc)
{
	struct tr_frag *f;

	for (;;) {
		enum tr_found found = tr_fragment(tr, pc, &f);
		if (found == TR_FOUND || found == TR_NATIVE)
			return found == TR_FOUND ? f : NULL;
		if (found == TR_NO_ARENA)
			new_arena(pc);
		else
			tr_reclaim(tr, tr_epoch(tr));
	}
}

/* Take what is in the ring and let it begin again. */
void drain(void)
{
	const uint8_t *p = (uint8_t *)tcb(T_RING), *end;

	end = p + (*tcb(T_HEAD) - (area_s + (uint64_t)(int64_t)T_RING));
	while (p < end) {
		uint64_t w[3];
		memcpy(w, p, 24);
		bool order = w[0] >> 56 == RING_ORDER;
		if ((w[0] >> 56 == RING_SEQ || order) && run.n_numbers < 2000) {
			struct number *n = &run.number[run.n_numbers++];
			n->steps = w[0] & 0xffffffffffffULL;
			n->seq = w[1];
			n->order = order;
			p += order ? RING_ORDER_SIZE : RING_SEQ_SIZE;
			continue;
		}
		if (w[0] >> 56 != RING_IMPORT || run.n_imports == 8192) {
			complain("strange ring record %#llx", (unsigned long long)w[0]);
			break;
		}
		struct import *im = &run.import[run.n_imports++];
		im->steps = w[0] & 0xffffffffffffULL;
		im->ordinal = (uint8_t)(w[0] >> 48);
		im->addr = w[1];
		im->rep = w[2];
		memcpy(im->line, p + 24, 64);
		p += RING_IMPORT_SIZE;
	}
	*tcb(T_HEAD) = area_s + (uint64_t)(int64_t)T_RING;
}

/* ---- another thread, which is only seen by what it does to locks and numbers ---- */

uint64_t *lock_at(unsigned i)
{
	return tcb(T_ORDER_LOCKS + 64 * (int64_t)i);
}

static void another_thread(void)
{
	if (gen_chance(30))
		*tcb(T_ORDER_NUMBER) += gen_rnd(3);
	for (unsigned i = 0; i < 64; i++)
		if (*lock_at(i) == OTHERS)
			*lock_at(i) = 0;
	if (gen_chance(2) && !*lock_at(gen_rnd(64)))
		*lock_at(gen_rnd(64)) = OTHERS;
}

/* Locks that the program holds: an operation that faults keeps what it has taken. */
unsigned locks_held(void)
{
	unsigned n = 0;
	for (unsigned i = 0; i < 64; i++)
		if (*lock_at(i) != OTHERS && *lock_at(i)) {
			n += *lock_at(i) == OURS;
			if (*lock_at(i) != OURS)
				complain("lock %u has %llu", i, (unsigned long long)*lock_at(i));
		}
	return n;
}

/* The program's registers out of the processor's, the slots and the flags' place. */
void rebuild(greg_t *g, const struct tr_where *w)
{
	for (unsigned i = 0; i < 16; i++)
		if (w->spilled & 1u << i)
			g[greg[i]] = (greg_t)*tcb(T_SLOT((int)i));
	if (w->flags == TR_FLAGS_SAVED) {
		uint64_t f = *tcb(T_FLAGS);
		g[REG_EFL] &= ~(greg_t)DJ_FLAGS_ARITH;
		g[REG_EFL] |= (greg_t)((f >> 8 & 0xd5) | (f & 1 ? DJ_FLAG_OF : 0));
	}
	g[REG_RIP] = (greg_t)w->pc;
}

static void take(greg_t *g, const struct tr_where *w)
{
	rebuild(g, w);
	run.steps = steps_now() + w->lag;
}

/* Instructions that nobody may find slow. */
static bool must_be_translated(const struct insn *in)
{
	if (in->addr32 || (in->has_mem && in->base == INSN_RIP && in->seg) ||
	    in->len > INSN_MAX - 3)
		return false;
	for (unsigned i = 0; i < in->nopnd; i++)
		if (in->opnd[i].kind == OPND_GPR8H)
			return false;
	if (in->attr & INSN_A_MASKED && in->opnd[1].kind == OPND_VSIB)
		return in->opnd[0].reg != in->index && in->opnd[0].reg != in->opnd[2].reg &&
		       in->index != in->opnd[2].reg;
	return in->attr & (INSN_A_MASKED | INSN_A_BITSTRING) || in->seg || in->id == INSN_XLAT ||
	       in->id == INSN_ENTER || in->id == INSN_LOOPE || in->id == INSN_LOOPNE ||
	       in->id == INSN_PUSH || in->id == INSN_POP || in->id == INSN_MOV;
}

static void start_native(ucontext_t *uc, uint64_t pc)
{
	greg_t *g = uc->uc_mcontext.gregs;
	struct insn in;

	run.in_native = true;
	run.native = pc;
	g[REG_RIP] = (greg_t)pc;
	g[REG_EFL] |= (greg_t)TF;
	set_gs(GEN_GS);
	if (pc - prog->base < prog->n &&
	    insn_decode(&in, prog->code + (pc - prog->base), prog->end - pc, pc) > 0 &&
	    insn_is_emulated(&in) && !in.lock && !insn_lacked(&in) && must_be_translated(&in))
		complain("%s at %#llx is executed natively", insn_id_name(in.id),
			 (unsigned long long)pc);
}

static void enter(ucontext_t *uc, uint64_t pc)
{
	greg_t *g = uc->uc_mcontext.gregs;

	set_steps(run.steps);
	if (pc == prog->end) {
		end_run(uc, 0, pc);
		return;
	}
	struct tr_frag *f = fragment(pc);
	if (f) {
		*tcb(T_SLOT(DJ_R11)) = (uint64_t)g[REG_R11];
		set_steps(run.steps - tr_entry_lag(f));
		g[REG_RIP] = (greg_t)tr_entry(f);
		if (run.stepping)
			g[REG_EFL] |= (greg_t)TF;
		return;
	}
	start_native(uc, pc);
}

/* The target loses its place in the fast table, as to another one with the same low bits. */
static void forget(uint64_t pc)
{
	run.forgot = (uint64_t *)tr_table(tr, T_FAST) + (pc & 0xffff);
	run.forgot_high = pc > INT32_MAX;
	*run.forgot = rt_va(tr->arenas, rt_other);
}

static void at_stop(ucontext_t *uc)
{
	greg_t *g = uc->uc_mcontext.gregs;
	struct tr_where w = { .flags = TR_FLAGS_HW, .spilled = TR_HOME_BIT };
	uint32_t runtime;
	const struct tr_stop *stop =
		tr_stop_at(tr, (uint64_t)g[REG_RIP] - 1, (uint64_t)g[REG_R11], &runtime);

	if (runtime == STOP_RING_FULL) {
		drain();
		g[REG_RIP] += 4;
		return;
	}
	if (runtime == STOP_ORDER) {
		uint64_t lock = (uint64_t)g[REG_RCX];
		if (lock & ~(uint64_t)ORDER_PLACE || *lock_at((unsigned)lock / 64) != OTHERS)
			complain("waits for lock %#llx", (unsigned long long)lock);
		another_thread();
		run_counts.waits++;
		g[REG_RIP] += 4;
		return;
	}
	another_thread();
	if (locks_held())
		complain("a lock is held at a stop");
	if (runtime == STOP_IBL_MISS) {
		run_counts.misses++;
		w.pc = (uint64_t)g[REG_R11];
		w.spilled |= 2;
		w.flags = TR_FLAGS_SAVED;
		take(g, &w);
		if (run_counts.misses % 3)
			tr_expect_indirect(tr);
		struct tr_frag *f = w.pc == prog->end ? NULL : fragment(w.pc);
		if (f)
			tr_add_indirect(tr, f);
		if (f && !run.forgot && gen_chance(50))
			forget(w.pc);
		enter(uc, w.pc);
		return;
	}
	if (!stop || stop->kind == TR_STOP_SYSCALL || stop->kind == TR_STOP_CHANGED) {
		complain("strange stop at %#llx", (unsigned long long)g[REG_RIP] - 1);
		end_run(uc, SIGTRAP, 0);
		return;
	}
	w.pc = stop->pc;
	w.lag = stop->lag;
	take(g, &w);
	if (stop->kind == TR_STOP_NATIVE) {
		set_steps(run.steps);
		start_native(uc, stop->pc);
		return;
	}
	enter(uc, stop->pc);
}

static void native_done(ucontext_t *uc)
{
	greg_t *g = uc->uc_mcontext.gregs;

	if ((uint64_t)g[REG_RIP] == run.native)
		return; /* the next iteration */
	run.in_native = false;
	set_gs(area_s);
	g[REG_EFL] &= ~(greg_t)TF;
	run_counts.natives++;
	if (run.n_effects < 2000) {
		run.effect[run.n_effects].steps = run.steps;
		full_regs(uc, &run.effect[run.n_effects++].regs);
	}
	run.steps++;
	enter(uc, (uint64_t)g[REG_RIP]);
}

/* ---- signals ---- */

/* The instruction at `pc` faulted. */
static void check_fault(uint64_t pc)
{
	struct insn in;
	unsigned n = locks_held(), want = 0;

	if (insn_decode(&in, prog->code + (pc - prog->base), prog->end - pc, pc) > 0 &&
	    in.attr & INSN_A_ATOMIC && *tcb(T_ORDER_SHARED))
		want = in.mem_size > 1 ? 2 : 1;
	else if (tr->policy.lock && in.has_mem)
		want = n < 3 ? n : 0;
	if (n > want || !n != !want)
		complain("the fault at %#llx left %u locks", (unsigned long long)pc, n);
	run_counts.locked_faults += n != 0;
	for (unsigned i = 0; i < 64; i++)
		if (*lock_at(i) == OURS)
			*lock_at(i) = 0;
}

void on_signal(int sig, siginfo_t *si, void *context)
{
	ucontext_t *uc = context;
	greg_t *g = uc->uc_mcontext.gregs;
	uint64_t pc = (uint64_t)g[REG_RIP];
	struct tr_where w;

	if (sig == SIGALRM)
		sig = SIGPROF;
	if (!run.active) {
		if (sig != SIGPROF)
			signal(sig, SIG_DFL); /* a bug of the test: it happens again */
		return;
	}
	if (++run.stops > 200000) {
		complain("it does not end");
		end_run(uc, SIGXCPU, pc);
	} else if (sig == SIGPROF) {
		end_run(uc, sig, pc);
	} else if (!run.translated) {
		if (sig == SIGTRAP && run.stepping)
			note_point(uc);
		else
			end_run(uc, sig, pc);
	} else if (run.in_native) {
		if (sig == SIGTRAP)
			native_done(uc);
		else
			end_run(uc, sig, pc);
	} else if (sig == SIGTRAP && si->si_code == SI_KERNEL) {
		at_stop(uc);
	} else if (sig == SIGTRAP) {
		at_boundary(g);
	} else if (tr_locate(tr, pc, *tcb(T_RT_RET), &w)) {
		take(g, &w);
		check_fault(w.pc);
		end_run(uc, sig, w.pc);
	} else {
		complain("signal %d at %#llx, where no instruction of the program is", sig,
			 (unsigned long long)pc);
		end_run(uc, sig, 0);
	}
}
