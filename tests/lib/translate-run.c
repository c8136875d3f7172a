/*
 * A program run by the CPU as it is, as translated code in this process, and in the emulator from
 * what the translated code logged: registers, memory, shadow and step counts must agree.
 *
 * This process is recorded program and supervisor in one. The area hangs off its own gs base,
 * stops arrive as SIGTRAP, and what the supervisor does between stops is done by the handler. The
 * end of a program, or its fault, goes to the oracle's exit with the program's registers in place.
 */
#include "tests/lib/translate-run.h"

#include "format/error.h"
#include "translator/translate.h"
#include "emu/emu.h"
#include "tests/lib/oracle.h"

#include <asm/prctl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#define PLACES	     1024 /* programs before the translator starts over */
#define TRACE	     8192
#define STEPS_MAX    4000
#define EMULATED_MAX 100000
#define PARTS	     (0xffffULL | DJ_REG_RIP | DJ_REG_MXCSR | DJ_REG_X87 | 0x0000ffff00000000ULL)
#define TF	     0x100ULL
#define RF	     0x10000ULL
#define FLAGS	     (DJ_FLAGS_ARITH | DJ_FLAG_DF)
#define OURS	     7 /* the thread's id in a lock */
#define OTHERS	     8

struct run_counts run_counts;

struct point { /* of a run by single steps */
	uint64_t step, pc, flags, gpr[16];
	uint32_t live; /* flags that matter to what comes */
};

struct import {
	uint64_t steps, addr, rep;
	uint8_t ordinal, line[64];
};

struct number {
	uint64_t steps, seq;
};

struct effect {
	uint64_t steps;
	struct dj_regs regs;
};

static const uint64_t code_at[2] = { 0x24000000, 0x2a0020000000 };
static const uint64_t arena_at_[2] = { 0x40000000, 0x2a0040000000 };
static uint8_t *area; /* control region, shadow */
static uint64_t s;
static struct translator *tr;
static struct emu *emu;
static unsigned place[2];

static const struct gen *prog;
static uint64_t parts; /* of the registers that count */
static struct {
	bool active, translated, stepping, complained;
	int sig;	/* it ended by this signal */
	uint64_t pc;	/* it ended here */
	uint64_t steps; /* of the program when in hand */
	bool in_native;
	uint64_t native; /* address of the instruction being executed natively */
	uint64_t stops;
	struct point trace[TRACE];
	unsigned n_trace, first[STEPS_MAX + 2];
	struct import import[8192];
	unsigned n_imports;
	struct number number[2000]; /* that ordered events have, where others came between */
	unsigned n_numbers;
	uint64_t first_seq;
	struct effect effect[2000];
	unsigned n_effects;
} run;

static uint64_t *tcb(int64_t off)
{
	return (uint64_t *)(void *)(area + AREA_CONTROL + off);
}

static void complain(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static void complain(const char *fmt, ...)
{
	static unsigned printed;
	va_list ap;

	run.complained = true;
	if (printed++ >= 40)
		return;
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

/* ---- registers in a signal frame ------------------------------------------------------------ */

static const int greg[16] = { REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
			      REG_RSI, REG_RDI, REG_R8,	 REG_R9,  REG_R10, REG_R11,
			      REG_R12, REG_R13, REG_R14, REG_R15 };

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

static void set_gs(uint64_t base)
{
	syscall(SYS_arch_prctl, ARCH_SET_GS, base);
}

static void end_run(ucontext_t *uc, int sig, uint64_t pc)
{
	run.sig = sig;
	run.pc = pc;
	run.active = false;
	uc->uc_mcontext.gregs[REG_RIP] = (greg_t)(uintptr_t)oracle_leave;
	uc->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)(TF | RF);
}

/* ---- the supervisor -------------------------------------------------------------------------- */

static size_t read_code(void *ctx, uint64_t pc, uint8_t *buf, size_t len, bool *changing)
{
	(void)ctx;
	*changing = false;
	if (pc < prog->base || pc >= prog->end)
		return 0;
	size_t n = prog->end - pc < len ? prog->end - pc : len;
	memcpy(buf, prog->code + (pc - prog->base), n);
	return n;
}

static uint64_t translated(void *ctx, uint64_t pc, size_t len)
{
	(void)ctx, (void)pc, (void)len;
	return 0;
}

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
	int fd = memfd_create("arena", MFD_CLOEXEC);
	DJ_ASSERT(fd >= 0 && !ftruncate(fd, TR_ARENA_SIZE), "no memory for an arena");
	uint8_t *ours = mmap(NULL, TR_ARENA_SIZE, PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_NORESERVE, fd, 0);
	void *va = mmap((void *)at, TR_ARENA_SIZE, PROT_READ | PROT_EXEC,
			MAP_SHARED | MAP_NORESERVE | MAP_FIXED_NOREPLACE, fd, 0);
	DJ_ASSERT(ours != MAP_FAILED && va == (void *)at, "cannot map an arena");
	close(fd);
	tr_add_arena(tr, at, ours);
}

static struct tr_frag *fragment(uint64_t pc)
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
static void drain(void)
{
	const uint8_t *p = (uint8_t *)tcb(T_RING), *end;

	end = p + (*tcb(T_HEAD) - (s + (uint64_t)(int64_t)T_RING));
	while (p < end) {
		uint64_t w[3];
		memcpy(w, p, 24);
		if (w[0] >> 56 == RING_SEQ && run.n_numbers < 2000) {
			struct number *n = &run.number[run.n_numbers++];
			n->steps = w[0] & 0xffffffffffffULL;
			n->seq = w[1];
			p += RING_SEQ_SIZE;
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
	*tcb(T_HEAD) = s + (uint64_t)(int64_t)T_RING;
}

/* ---- another thread, which is only seen by what it does to locks and numbers ------------------
 */

static uint64_t *lock_at(unsigned i)
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
static unsigned locks_held(void)
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
static void rebuild(greg_t *g, const struct tr_where *w)
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
	run.steps = *tcb(T_STEPS) + w->index;
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
	    insn_is_emulated(&in) && !in.lock && must_be_translated(&in))
		complain("%s at %#llx is executed natively", insn_id_name(in.id),
			 (unsigned long long)pc);
}

static void enter(ucontext_t *uc, uint64_t pc)
{
	greg_t *g = uc->uc_mcontext.gregs;

	*tcb(T_STEPS) = run.steps;
	if (pc == prog->end) {
		end_run(uc, 0, pc);
		return;
	}
	struct tr_frag *f = fragment(pc);
	if (f) {
		*tcb(T_SLOT(DJ_R11)) = (uint64_t)g[REG_R11];
		g[REG_RIP] = (greg_t)tr_entry(f);
		if (run.stepping)
			g[REG_EFL] |= (greg_t)TF;
		return;
	}
	start_native(uc, pc);
}

static void at_stop(ucontext_t *uc)
{
	greg_t *g = uc->uc_mcontext.gregs;
	struct tr_where w = { .flags = TR_FLAGS_HW, .spilled = TR_HOME_BIT };
	uint32_t runtime;
	const struct tr_stop *stop = tr_stop_at(tr, (uint64_t)g[REG_RIP] - 1, &runtime);

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
		w.pc = (uint64_t)g[REG_RCX];
		w.spilled |= 3;
		w.flags = TR_FLAGS_SAVED;
		take(g, &w);
		struct tr_frag *f = w.pc == prog->end ? NULL : fragment(w.pc);
		if (f)
			tr_add_indirect(tr, f);
		enter(uc, w.pc);
		return;
	}
	if (!stop || stop->kind == TR_STOP_SYSCALL || stop->kind == TR_STOP_CHANGED) {
		complain("strange stop at %#llx", (unsigned long long)g[REG_RIP] - 1);
		end_run(uc, SIGTRAP, 0);
		return;
	}
	w.pc = stop->pc;
	take(g, &w);
	if (stop->kind == TR_STOP_NATIVE) {
		*tcb(T_STEPS) = run.steps;
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
	set_gs(s);
	g[REG_EFL] &= ~(greg_t)TF;
	run_counts.natives++;
	if (run.n_effects < 2000) {
		run.effect[run.n_effects].steps = run.steps;
		full_regs(uc, &run.effect[run.n_effects++].regs);
	}
	run.steps++;
	enter(uc, (uint64_t)g[REG_RIP]);
}

/* ---- at each boundary: the same as the CPU had there ------------------------------------------
 */

static const struct point *find_point(uint64_t step, bool head, const uint64_t *gpr)
{
	if (step > STEPS_MAX || run.first[step] == ~0u)
		return NULL;
	const struct point *p = &run.trace[run.first[step]], *end = run.trace + run.n_trace;
	if (!head)
		return p;
	for (; p < end && p->step == step; p++)
		if (p->gpr[DJ_RCX] == gpr[DJ_RCX])
			return p;
	return p < end ? p : NULL; /* all iterations are done: the state behind it */
}

static void at_boundary(const greg_t *now)
{
	greg_t g[NGREG];
	struct tr_where w;
	uint64_t gpr[16];

	if (!tr_locate(tr, (uint64_t)now[REG_RIP], *tcb(T_RT_RET), &w) ||
	    !(w.boundary || w.string_head))
		return;
	run_counts.boundaries++;
	if (locks_held())
		complain("a lock is held at %#llx", (unsigned long long)w.pc);
	memcpy(g, now, sizeof(g));
	rebuild(g, &w);
	for (int i = 0; i < 16; i++)
		gpr[i] = (uint64_t)g[greg[i]];
	uint64_t step = *tcb(T_STEPS) + w.index;
	const struct point *p = find_point(step, w.string_head, gpr);
	if (!p) {
		complain("at %#llx: step %llu does not exist", (unsigned long long)w.pc,
			 (unsigned long long)step);
		return;
	}
	if (p->step == step && p->pc != w.pc)
		complain("step %llu is at %#llx, said to be at %#llx", (unsigned long long)step,
			 (unsigned long long)p->pc, (unsigned long long)w.pc);
	for (int i = 0; i < 16; i++)
		if (gpr[i] != p->gpr[i])
			complain("step %llu at %#llx%s: register %d is %#llx, should be %#llx",
				 (unsigned long long)step, (unsigned long long)w.pc,
				 w.string_head ? " (iteration)" : "", i, (unsigned long long)gpr[i],
				 (unsigned long long)p->gpr[i]);
	uint64_t differ = ((uint64_t)g[REG_EFL] ^ p->flags) & p->live;
	if (differ && !w.string_head)
		complain("step %llu at %#llx: flags %#llx, should be %#llx, live are %#x",
			 (unsigned long long)step, (unsigned long long)w.pc,
			 (unsigned long long)g[REG_EFL] & FLAGS,
			 (unsigned long long)p->flags & FLAGS, p->live);
}

static void note_point(ucontext_t *uc)
{
	const greg_t *g = uc->uc_mcontext.gregs;
	uint64_t pc = (uint64_t)g[REG_RIP];

	if (pc == prog->end || run.n_trace == TRACE) {
		end_run(uc, pc == prog->end ? 0 : SIGXCPU, pc);
	} else if (pc < prog->base || pc > prog->end) {
		return; /* on the way there */
	}
	if (run.n_trace == TRACE)
		return;
	struct point *p = &run.trace[run.n_trace], *last = p - 1;
	p->step = !run.n_trace ? 0 : last->step + (last->pc != pc);
	if (p->step > STEPS_MAX) {
		end_run(uc, SIGXCPU, pc);
		return;
	}
	p->pc = pc;
	p->flags = (uint64_t)g[REG_EFL];
	for (int i = 0; i < 16; i++)
		p->gpr[i] = (uint64_t)g[greg[i]];
	if (run.first[p->step] == ~0u)
		run.first[p->step] = run.n_trace;
	run.n_trace++;
}

/* Which flags the rest of the run reads before it writes them. */
static void trace_live(void)
{
	uint32_t live = run.sig ? 0 : FLAGS; /* a fault needs none */

	for (unsigned i = run.n_trace; i-- > 0;) {
		struct point *p = &run.trace[i];
		struct insn in;
		if (p->pc != prog->end && insn_decode(&in, prog->code + (p->pc - prog->base),
						      prog->end - p->pc, p->pc) > 0) {
			bool may = in.attr & (INSN_A_FLAGSCOND | INSN_A_REP);
			uint32_t read = in.flags_read;
			if (may)
				read &= ~(in.flags_written & DJ_FLAGS_ARITH);
			if (in.id == INSN_RCL || in.id == INSN_RCR)
				read |= DJ_FLAG_CF;
			if (!may)
				live &= ~in.flags_written;
			live |= read & FLAGS;
		}
		p->live = live;
	}
}

/* ---- signals ------------------------------------------------------------------------------------
 */

/* The instruction at `pc` faulted. */
static void check_fault(uint64_t pc)
{
	struct insn in;
	unsigned n = locks_held(), want = 0;

	if (insn_decode(&in, prog->code + (pc - prog->base), prog->end - pc, pc) > 0 &&
	    in.attr & INSN_A_ATOMIC && *tcb(T_ORDER_SHARED))
		want = in.mem_size > 1 ? 2 : 1;
	if (n > want || !n != !want)
		complain("the fault at %#llx left %u locks", (unsigned long long)pc, n);
	run_counts.locked_faults += n != 0;
	for (unsigned i = 0; i < 64; i++)
		if (*lock_at(i) == OURS)
			*lock_at(i) = 0;
}

static void on_signal(int sig, siginfo_t *si, void *context)
{
	ucontext_t *uc = context;
	greg_t *g = uc->uc_mcontext.gregs;
	uint64_t pc = (uint64_t)g[REG_RIP];
	struct tr_where w;

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

/* ---- memory
 * ---------------------------------------------------------------------------------------- */

static uint8_t mem_start[GEN_REGIONS][GEN_REGION], mem_cpu[GEN_REGIONS][GEN_REGION],
	mem_now[GEN_REGIONS][GEN_REGION];

/* The parts of a shadow that a program can reach. */
static const struct {
	uint64_t at;
	size_t n;
} shadow_part[] = {
	{ ORACLE_MEM, GEN_REGION },
	{ 0, GEN_REGION / 2 },
	{ 0x100000000 - GEN_REGION / 2, GEN_REGION / 2 },
};

static void start_shadows(void)
{
	for (size_t i = 0; i < 3; i++) {
		uint8_t *a = area + AREA_CONTROL + shadow_part[i].at;
		memset(a, 0, shadow_part[i].n);
		/* some lines are as in memory already, some nearly so */
		for (size_t k = 0; k + 64 <= GEN_REGION / 2; k += 64) {
			const uint8_t *from =
				i == 0	 ? mem_start[gen_rnd(2)] + k + gen_rnd(2) * GEN_REGION / 2
				: i == 1 ? mem_start[2] + GEN_REGION / 2 + k
					 : mem_start[2] + k;
			uint8_t *to = i == 0 ? a + (from - mem_start[0]) % GEN_REGION : a + k;
			if (gen_chance(50))
				continue;
			memcpy(to, from, 64);
			if (gen_chance(50))
				to[gen_rnd(64)] ^= 1;
		}
		memcpy(emu->shadow + shadow_part[i].at, a, shadow_part[i].n);
	}
}

static void run_at(uint64_t entry, const struct dj_regs *in, struct dj_regs *out)
{
	memcpy(mem_now, mem_start, sizeof(mem_now));
	for (int i = 1; i < GEN_REGIONS; i++)
		memcpy((void *)gen_region[i], mem_start[i], GEN_REGION);
	run.active = true;
	run.in_native = false;
	run.sig = 0;
	run.stops = 0;
	run.pc = prog->end;
	set_gs(run.translated ? s : GEN_GS);
	oracle_run(entry, in, out, mem_now[0]);
	set_gs(s);
	run.active = false;
	for (int i = 1; i < GEN_REGIONS; i++)
		memcpy(mem_now[i], (void *)gen_region[i], GEN_REGION);
	out->rip = run.pc;
	out->fop = 0;
	out->fip = out->fdp = 0;
}

/* ---- the emulator
 * ------------------------------------------------------------------------------------ */

static unsigned next_import;
static uint64_t rep_now;
static uint8_t stored[GEN_REGIONS][GEN_REGION];

static size_t fetch(void *ctx, uint64_t addr, uint8_t *buf, size_t len)
{
	bool changing;
	return read_code(ctx, addr, buf, len, &changing);
}

static void put_line(uint8_t *shadow, const struct import *im)
{
	memcpy(shadow + (uint32_t)im->addr, im->line, 64);
	if ((uint32_t)im->addr == 0)
		memcpy(shadow + 0x100000000, im->line, 64);
}

static void before_load(void *ctx, struct emu *e, uint64_t addr, unsigned size)
{
	(void)ctx, (void)addr, (void)size;
	for (; next_import < run.n_imports; next_import++) {
		const struct import *im = &run.import[next_import];
		if (im->steps != e->steps || im->ordinal != e->ordinal ||
		    (im->rep && im->rep != rep_now))
			return;
		put_line(e->shadow, im);
	}
}

static void no_hook(void *ctx, struct emu *e, uint64_t addr, unsigned size)
{
	(void)ctx, (void)e, (void)addr, (void)size;
}

static void after_store(void *ctx, struct emu *e, uint64_t addr, unsigned size,
			const uint8_t *bytes)
{
	(void)ctx, (void)e, (void)bytes;
	for (int i = 0; i < GEN_REGIONS; i++)
		for (unsigned k = 0; k < size; k++)
			if (addr + k - gen_region[i] < GEN_REGION)
				stored[i][addr + k - gen_region[i]] = 1;
}

/* The number of the last event that the emulator has passed, as a replay finds it. */
static struct {
	uint64_t seq, next; /* the next one's, or 0 */
	uint64_t fences;
	unsigned used;
} numbers;

static void number_next(void)
{
	if (numbers.used < run.n_numbers && run.number[numbers.used].steps == emu->steps)
		numbers.next = run.number[numbers.used++].seq;
}

static void number_passed(void)
{
	if (emu->fences == numbers.fences)
		return;
	if (numbers.next && numbers.next <= numbers.seq)
		complain("number %llu comes after %llu", (unsigned long long)numbers.next,
			 (unsigned long long)numbers.seq);
	numbers.fences = emu->fences;
	numbers.seq = numbers.next ? numbers.next : numbers.seq + 1;
	numbers.next = 0;
}

static bool emulate(uint64_t steps, struct dj_regs *out)
{
	unsigned next_effect = 0;

	emu_forget_code(emu, prog->base, GEN_CODE);
	emu_set_regs(emu, &prog->regs, DJ_REG_ALL);
	emu->steps = emu->fences = 0;
	emu->in_rep = false;
	emu->rep_iter = 0;
	emu->hooks = EMU_HOOK_IMPORT | EMU_HOOK_TRACK;
	emu->exact = true;
	next_import = 0;
	memset(stored, 0, sizeof(stored));
	memset(&numbers, 0, sizeof(numbers));
	numbers.seq = run.first_seq;
	for (unsigned n = 0; emu->steps < steps && n < EMULATED_MAX; n++) {
		struct insn in;
		if (next_effect < run.n_effects && run.effect[next_effect].steps == emu->steps) {
			emu_set_regs(emu, &run.effect[next_effect++].regs,
				     DJ_REG_ALL & ~(DJ_REG_SEGS | DJ_REG_FS_BASE | DJ_REG_GS_BASE));
			emu->steps++;
			continue;
		}
		if (!emu_peek(emu, &in)) {
			complain("the emulator has no code at %#llx",
				 (unsigned long long)emu->cpu.rip);
			return false;
		}
		rep_now = in.attr & INSN_A_REP ? emu->cpu.gpr[DJ_RCX] : 0;
		number_next();
		enum emu_stop why = emu_step(emu);
		number_passed();
		if (why) {
			complain("the emulator stops with %d at step %llu: %s", why,
				 (unsigned long long)emu->steps, emu->why);
			return false;
		}
	}
	/* an instruction that faulted may have imported something before */
	for (; next_import < run.n_imports && run.import[next_import].steps == emu->steps;
	     next_import++)
		put_line(emu->shadow, &run.import[next_import]);
	if (next_import != run.n_imports)
		complain("import %u of %u (step %llu, ordinal %u, rep %llu) was not used",
			 next_import, run.n_imports,
			 (unsigned long long)run.import[next_import].steps,
			 run.import[next_import].ordinal,
			 (unsigned long long)run.import[next_import].rep);
	emu_get_regs(emu, out);
	out->fop = 0;
	out->fip = out->fdp = 0;
	return true;
}

/* ---- comparison
 * ---------------------------------------------------------------------------------------- */

static void compare_regs(const char *who, const struct dj_regs *cpu, const struct dj_regs *it)
{
	uint64_t differ = dj_regs_diff(cpu, it) & parts;

	if (differ) {
		unsigned r = (unsigned)__builtin_ctzll(differ);
		complain("%s: %s differs (%#llx, should be %#llx)", who, dj_regs_part_name(differ),
			 (unsigned long long)(r < 16 ? it->gpr[r] : it->rip),
			 (unsigned long long)(r < 16 ? cpu->gpr[r] : cpu->rip));
	}
	/* where it faulted, flags that the program would have overwritten need not be right */
	if (!run.sig && (cpu->rflags ^ it->rflags) & FLAGS)
		complain("%s: flags are %#llx, should be %#llx", who,
			 (unsigned long long)it->rflags & FLAGS,
			 (unsigned long long)cpu->rflags & FLAGS);
}

static void compare_memory(const char *who, bool mirrored)
{
	for (int i = 0; i < GEN_REGIONS; i++)
		for (unsigned k = 0; k < GEN_REGION; k++)
			if (mem_now[i][k] != mem_cpu[i][k]) {
				complain("%s: memory at %#llx is %02x, should be %02x", who,
					 (unsigned long long)gen_region[i] + k, mem_now[i][k],
					 mem_cpu[i][k]);
				break;
			}
	if (!mirrored)
		return;
	const uint8_t *shadow = area + AREA_CONTROL;
	for (int i = 0; i < 3; i++) {
		const uint8_t *a = shadow + shadow_part[i].at, *b = emu->shadow + shadow_part[i].at;
		for (unsigned k = 0; k < shadow_part[i].n; k++)
			if (a[k] != b[k]) {
				complain("%s: shadow at %#llx is %02x, replayed %02x", who,
					 (unsigned long long)shadow_part[i].at + k, a[k], b[k]);
				break;
			}
	}
	/* Two regions share a shadow: only what was stored in one and not in the other says
	 * anything. Natively executed instructions store to memory only. */
	for (int i = 0; i < GEN_REGIONS && !run.n_effects; i++)
		for (unsigned k = 0; k < GEN_REGION; k++) {
			uint64_t at = gen_region[i] + k;
			const uint8_t *sh = i == 2 && k < GEN_REGION / 2 ? shadow + 0xfffff000 + k
									 : shadow + (uint32_t)at;
			if (stored[i][k] && *sh != mem_now[i][k] && i == 2) {
				complain("%s: shadow at %#llx is not what was stored", who,
					 (unsigned long long)at);
				break;
			}
		}
}

static void dump(const struct gen *g, uint64_t seed)
{
	static unsigned printed;

	if (printed++ >= 12)
		return;
	fprintf(stderr, "    seed %llu, base %#llx, code ", (unsigned long long)seed,
		(unsigned long long)g->base);
	for (size_t i = 0; i < g->n; i++)
		fprintf(stderr, "%02x", g->code[i]);
	fprintf(stderr, "\n   ");
	for (int i = 0; i < 16; i++)
		fprintf(stderr, " r%d=%llx", i, (unsigned long long)g->regs.gpr[i]);
	fprintf(stderr, " flags=%llx\n", (unsigned long long)g->regs.rflags);
	if (getenv("DISASSEMBLE"))
		for (size_t at = 0; at < g->n;) {
			struct insn in;
			char text[128];
			int n = insn_decode(&in, g->code + at, g->n - at, g->base + at);
			if (n <= 0)
				break;
			insn_text(&in, false, text, sizeof(text));
			fprintf(stderr, "    %#llx %s\n", (unsigned long long)(g->base + at), text);
			at += (size_t)n;
		}
}

/* Processor time: that of a busy machine's other work does not end a program. */
static void set_timer(long us)
{
	struct itimerval t = { { 0, 0 }, { 0, us } };

	setitimer(ITIMER_PROF, &t, NULL);
}

static void start_control(void)
{
	run.n_imports = run.n_effects = 0;
	run.steps = 0;
	run.n_numbers = 0;
	*tcb(T_STEPS) = 0;
	*tcb(T_SEQ) = run.first_seq = gen_rnd(5);
	*tcb(T_ORDER_NUMBER) = run.first_seq + gen_rnd(5);
	*tcb(T_ORDER_SHARED) = gen_chance(60);
	*tcb(T_ORDER_ID) = OURS;
	for (unsigned i = 0; i < 64; i++)
		*lock_at(i) = gen_chance(1) ? OTHERS : 0;
	*tcb(T_GSBASE) = GEN_GS;
	*tcb(T_HEAD) = s + (uint64_t)(int64_t)T_RING;
	/* at times a ring that is full soon */
	*tcb(T_LIMIT) = *tcb(T_HEAD) + (gen_chance(70) ? AREA_HALF - AREA_SLACK : 1 + gen_rnd(400));
}

/* The first instruction of the translated run is a stop. */
static uint64_t entry_of(uint64_t pc, const struct dj_regs *r)
{
	struct tr_frag *f = fragment(pc);

	if (f) {
		*tcb(T_SLOT(DJ_R11)) = r->gpr[DJ_R11];
		return tr_entry(f);
	}
	return 0;
}

bool run_program(struct gen *g, bool step)
{
	uint64_t seed = gen_seed;
	struct dj_regs cpu, it, replayed, in;
	uint64_t steps;

	g->regs.gs_base = GEN_GS;
	in = g->regs;
	prog = g;
	parts = PARTS;
	run.complained = false;
	memset((void *)g->base, 0xf4, GEN_CODE + 64); /* hlt: a wild jump faults */
	memcpy((void *)g->base, g->code, g->n);
	oracle_put_leave((uint8_t *)g->end);
	for (int i = 0; i < GEN_REGIONS; i++)
		for (unsigned k = 0; k < GEN_REGION; k += 8) {
			uint64_t x = oracle_rand(&gen_seed);
			if (x % 3 == 0)
				x = oracle_rand(&gen_seed) & 0xff;
			memcpy(mem_start[i] + k, &x, 8);
		}
	run_counts.programs++;

	run.translated = run.stepping = false;
	set_timer(500000);
	run_at(g->base, &in, &cpu);
	set_timer(0);
	int sig = run.sig;
	memset((void *)g->end, 0xf4, ORACLE_LEAVE);
	if ((sig && run.pc - g->base >= g->n) || memcmp((void *)g->base, g->code, g->n))
		return true; /* a return address or the code itself was overwritten */
	struct insn in_fault = { 0 };
	uint64_t off = run.pc - g->base;
	if (sig && off < g->n && insn_decode(&in_fault, g->code + off, g->n - off, run.pc) > 0 &&
	    in_fault.attr & (INSN_A_RET | INSN_A_INDIRECT))
		return true; /* to an address that is none: processors differ in where they notice
			      */
	if (sig && in_fault.attr & INSN_A_MASKED && in_fault.nopnd > 1 &&
	    in_fault.opnd[1].kind == OPND_VSIB)
		/* the CPU has done some of it, we have done nothing: both may be begun again */
		parts &= ~(1ULL << (32 + in_fault.opnd[0].reg) |
			   1ULL << (32 + in_fault.opnd[2].reg));
	if (sig && in_fault.attr & INSN_A_X87 && in_fault.mem_access & INSN_W)
		parts &= ~DJ_REG_X87; /* the supervisor puts back what was popped */
	if (sig && in_fault.id == INSN_VCVTPS2PH)
		parts &= ~DJ_REG_MXCSR; /* Zen 5 notes exceptions although the store faults */
	if (sig == SIGPROF || sig == SIGTRAP)
		return true; /* it has overwritten a return address, and never ends, or came upon a
				trap */
	run_counts.faults += sig != 0;
	memcpy(mem_cpu, mem_now, sizeof(mem_cpu));

	start_shadows();
	start_control();
	uint64_t entry = entry_of(g->base, &in);
	if (!entry)
		return true; /* nothing in it */
	run.translated = true;
	run_at(entry, &in, &it);
	drain();
	steps = run.steps;
	if (steps > EMULATED_MAX)
		return true; /* an overwritten return address again */
	run_counts.steps += steps;
	run_counts.imports += run.n_imports;
	if (run.sig != sig)
		complain("translated: signal %d, should be %d", run.sig, sig);
	compare_regs("translated", &cpu, &it);
	if (!run.complained && emulate(steps, &replayed)) {
		compare_regs("replayed", &cpu, &replayed);
		/* natively executed ones count in neither */
		if (*tcb(T_SEQ) != numbers.seq || numbers.used != run.n_numbers)
			complain("event %llu is the last, replayed %llu (%u numbers of %u)",
				 (unsigned long long)*tcb(T_SEQ), (unsigned long long)numbers.seq,
				 numbers.used, run.n_numbers);
		if (*tcb(T_ORDER_SHARED) && *tcb(T_SEQ) > *tcb(T_ORDER_NUMBER))
			complain("the last number is %llu", (unsigned long long)*tcb(T_SEQ));
		run_counts.ordered += emu->fences;
		run_counts.numbers += run.n_numbers;
		/* a store that pops has been on the shadow when memory refuses it; the supervisor
		 * sees to that */
		compare_memory("translated", !sig || !insn_store_pops(&in_fault));
	}

	if (step && !g->no_step && !run.complained) {
		in.rflags |= TF;
		run.translated = false;
		run.stepping = true;
		run.n_trace = 0;
		memset(run.first, 0xff, sizeof(run.first));
		run_at(g->base, &in, &it);
		if (run.sig == sig && run.n_trace) {
			trace_live();
			if (!sig && run.trace[run.n_trace - 1].step != steps)
				complain("%llu steps, should be %llu", (unsigned long long)steps,
					 (unsigned long long)run.trace[run.n_trace - 1].step);
			start_control();
			entry = entry_of(g->base, &in);
			run.translated = true;
			run_at(entry, &in, &it);
			compare_regs("stepped", &cpu, &it);
			compare_memory("stepped", false);
		}
	}
	if (run.complained)
		dump(g, seed);
	return !run.complained;
}

uint64_t run_place(bool high)
{
	const uint64_t size = GEN_CODE + 64;

	if (place[high] && gen_chance(30)) {
		/* where the last one was: its translation must be gone, and what is next to it must
		 * not miss what they shared */
		place[high]--;
		tr_invalidate(tr, code_at[high] + place[high] * size, size);
		if (gen_chance(50))
			tr_reclaim(tr, tr_epoch(tr));
	} else if (place[high] == PLACES) {
		place[high] = 0;
		tr_flush(tr);
		tr_reclaim(tr, tr_epoch(tr));
	}
	return code_at[high] + place[high]++ * size;
}

int run_set_up(void)
{
	static const struct tr_ops ops = { NULL, read_code, translated };
	static const int signals[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGPROF };
	static uint8_t stack[256 << 10];
	struct sigaction sa = { .sa_flags = SA_ONSTACK | SA_NODEFER | SA_SIGINFO };
	stack_t ss = { .ss_sp = stack, .ss_size = sizeof(stack) };
	int anywhere = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	int fixed = anywhere | MAP_FIXED_NOREPLACE;
	struct dj_error err;
	struct dj_regs r;
	static uint8_t mem[ORACLE_MEM_SIZE];

	/* the oracle sets up its own handlers when it is first used */
	oracle_random_regs(&r, &gen_seed);
	if (oracle_cpu((const uint8_t *)"\x90", 1, &r, &r, mem))
		return -1;
	area = mmap(NULL, AREA_CONTROL + AREA_SHADOW, PROT_READ | PROT_WRITE, anywhere, -1, 0);
	uint8_t *first = area + AREA_CONTROL;
	emu = emu_new(&err);
	if (area == MAP_FAILED || !emu)
		return -1;
	if (mmap(first, AREA_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED,
		 -1, 0) != first ||
	    mremap(first, 0, AREA_PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, first + (1UL << 32)) ==
		    MAP_FAILED)
		return -1;
	emu->fetch = fetch;
	emu->before_load = before_load;
	emu->after_load = no_hook;
	emu->before_store = no_hook;
	emu->after_store = after_store;
	emu->mirror_stores = true;
	s = (uint64_t)(uintptr_t)area + AREA_CONTROL;
	*tcb(T_SELF) = s;
	for (int i = 1; i < GEN_REGIONS; i++)
		if (mmap((void *)gen_region[i], GEN_REGION, PROT_READ | PROT_WRITE, fixed, -1, 0) !=
		    (void *)gen_region[i])
			return -1;
	for (int i = 0; i < 2; i++)
		if (mmap((void *)code_at[i], PLACES * (GEN_CODE + 64UL),
			 PROT_READ | PROT_WRITE | PROT_EXEC, fixed, -1, 0) != (void *)code_at[i])
			return -1;
	if (syscall(SYS_arch_prctl, ARCH_SET_GS, s))
		return -1;
	struct tr_config config = { .tables = area, .policy = tr_policies[TR_POLICY_SHADOW] };
	tr = tr_new(&ops, &config);
	sigaltstack(&ss, NULL);
	sa.sa_sigaction = on_signal;
	for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++)
		sigaction(signals[i], &sa, NULL);
	return 0;
}
