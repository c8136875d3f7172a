/*
 * A program run by the CPU as it is, as translated code in this process, and in the emulator from
 * what the translated code logged: registers, memory, shadow and step counts must agree.
 *
 * This process is recorded program and supervisor in one. The area hangs off its own gs base,
 * stops arrive as SIGTRAP, and what the supervisor does between stops is done by the handler. The
 * end of a program, or its fault, goes to the oracle's exit with the program's registers in place.
 *
 * The parts: translate-stops.c is the supervisor, translate-points.c compares at each boundary, and
 * translate-replayed.c has the emulator; this file runs and compares.
 */
#include "tests/lib/oracle.h"
#include "tests/lib/random.h"
#include "tests/lib/translate-parts.h"

#include <asm/prctl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>

#define PLACES 1024 /* programs before the translator starts over */
#define PARTS  (0xffffULL | DJ_REG_RIP | DJ_REG_MXCSR | DJ_REG_X87 | 0x0000ffff00000000ULL)

struct run_counts run_counts;
struct run run;
uint8_t *area;
uint64_t area_s;
struct translator *tr;
struct emu *emu;
const struct gen *prog;

static const uint64_t code_at[2] = { 0x24000000, 0x2a0020000000 };
static unsigned place[2];
static uint64_t parts; /* of the registers that count */

void complain(const char *fmt, ...)
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

/* ---- memory ---- */

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
	set_gs(run.translated ? area_s : GEN_GS);
	oracle_run(entry, in, out, mem_now[0]);
	set_gs(area_s);
	run.active = false;
	for (int i = 1; i < GEN_REGIONS; i++)
		memcpy(mem_now[i], (void *)gen_region[i], GEN_REGION);
	out->rip = run.pc;
	out->fop = 0;
	out->fip = out->fdp = 0;
}

/* ---- comparison ---- */

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

/* ---- one program, and where it is ---- */

/* Processor time: that of a busy machine's other work does not end a program. */
static void set_timer(long us)
{
	struct itimerval t = { { 0, 0 }, { 0, us } };

	setitimer(ITIMER_PROF, &t, NULL);
	setitimer(ITIMER_REAL, &t,
		  NULL); /* a locked operation across two lines may sleep each time */
}

uint64_t steps_now(void)
{
	uint64_t sum = 0;

	for (int i = 0; i < TR_COUNTERS; i++)
		sum += *tcb(T_STEPS(i));
	return sum;
}

void set_steps(uint64_t steps)
{
	*tcb(T_STEPS(0)) += steps - steps_now();
}

static void start_control(void)
{
	run.n_imports = run.n_effects = 0;
	run.steps = 0;
	run.n_numbers = 0;
	set_steps(0);
	*tcb(T_SEQ) = run.first_seq = gen_rnd(5);
	*tcb(T_ORDER_NUMBER) = run.first_seq + gen_rnd(5);
	*tcb(T_ORDER_SHARED) = gen_chance(60) ? gen_chance(50) ? 1 : 3 : 0;
	*tcb(T_ORDER_ID) = OURS;
	for (unsigned i = 0; i < 64; i++)
		*lock_at(i) = gen_chance(1) ? OTHERS : 0;
	*tcb(T_ALONE) = gen_chance(50);
	*tcb(T_TURN) = 0;
	run.forgot = NULL;
	*tcb(T_GSBASE) = GEN_GS;
	*tcb(T_HEAD) = area_s + (uint64_t)(int64_t)T_RING;
	/* at times a ring that is full soon */
	*tcb(T_LIMIT) = *tcb(T_HEAD) + (gen_chance(70) ? AREA_HALF - AREA_SLACK : 1 + gen_rnd(400));
}

/* The first instruction of the translated run is a stop. */
static uint64_t entry_of(uint64_t pc, const struct dj_regs *r)
{
	struct tr_frag *f = fragment(pc);

	if (f) {
		*tcb(T_SLOT(DJ_R11)) = r->gpr[DJ_R11];
		set_steps(steps_now() - tr_entry_lag(f));
		return tr_entry(f);
	}
	return 0;
}

/* Some programs are translated for the stronger models of order. */
static void choose_model(void)
{
	tr->policy.look = gen_chance(40);
	tr->policy.lock = tr->policy.look && gen_chance(50);
	tr->policy.fault_flags = gen_chance(40);
	tr->policy.copy_rsp = gen_chance(50);
	tr->policy.copy_pops = gen_chance(50);
	tr->build->policy = tr->policy;
}

/* A target that has lost its place in the fast table gets it back, if there is one thread. */
static void found_again(void)
{
	if (!run.forgot || *run.forgot == rt_va(tr->arenas, rt_other))
		return;
	if (!*tcb(T_ALONE))
		complain("the fast table was written to beside other threads");
	run_counts.found_again[run.forgot_high]++;
}

bool run_program(struct gen *g, bool step)
{
	uint64_t seed = gen_seed;
	struct dj_regs cpu, it, replayed, in;
	uint64_t steps;

	g->regs.gs_base = GEN_GS;
	in = g->regs;
	prog = g;
	choose_model();
	parts = PARTS;
	run.complained = false;
	memset((void *)g->base, 0xf4, GEN_CODE + 64); /* hlt: a wild jump faults */
	memcpy((void *)g->base, g->code, g->n);
	oracle_put_leave((uint8_t *)g->end);
	for (int i = 0; i < GEN_REGIONS; i++)
		for (unsigned k = 0; k < GEN_REGION; k += 8) {
			uint64_t x = random_next(&gen_seed);
			if (x % 3 == 0)
				x = random_next(&gen_seed) & 0xff;
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
	found_again();
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
		if (numbers.at && *tcb(T_SEQ_AT) != numbers.at)
			complain("the last event was at %llu, replayed at %llu",
				 (unsigned long long)*tcb(T_SEQ_AT),
				 (unsigned long long)numbers.at);
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

/* ---- setting up ---- */

static uint64_t translated(void *ctx, uint64_t pc, size_t len)
{
	(void)ctx, (void)pc, (void)len;
	return 0;
}

int run_set_up(void)
{
	static const struct tr_ops ops = { NULL, read_code, translated };
	static const int signals[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGPROF, SIGALRM };
	static uint8_t stack[256 << 10];
	struct sigaction sa = { .sa_flags = SA_ONSTACK | SA_NODEFER | SA_SIGINFO };
	stack_t ss = { .ss_sp = stack, .ss_size = sizeof(stack) };
	int anywhere = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	int fixed = anywhere | MAP_FIXED_NOREPLACE;
	struct dj_regs r;
	static uint8_t mem[ORACLE_MEM_SIZE];

	/* the oracle sets up its own handlers when it is first used */
	oracle_random_regs(&r, &gen_seed);
	if (oracle_cpu((const uint8_t *)"\x90", 1, &r, &r, mem))
		return -1;
	area = mmap(NULL, AREA_CONTROL + AREA_SHADOW, PROT_READ | PROT_WRITE, anywhere, -1, 0);
	uint8_t *first = area + AREA_CONTROL;
	if (area == MAP_FAILED || start_emulator())
		return -1;
	if (mmap(first, AREA_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED,
		 -1, 0) != first ||
	    mremap(first, 0, AREA_PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, first + (1UL << 32)) ==
		    MAP_FAILED)
		return -1;
	area_s = (uint64_t)(uintptr_t)area + AREA_CONTROL;
	*tcb(T_SELF) = area_s;
	for (int i = 1; i < GEN_REGIONS; i++)
		if (mmap((void *)gen_region[i], GEN_REGION, PROT_READ | PROT_WRITE, fixed, -1, 0) !=
		    (void *)gen_region[i])
			return -1;
	for (int i = 0; i < 2; i++)
		if (mmap((void *)code_at[i], PLACES * (GEN_CODE + 64UL),
			 PROT_READ | PROT_WRITE | PROT_EXEC, fixed, -1, 0) != (void *)code_at[i])
			return -1;
	if (syscall(SYS_arch_prctl, ARCH_SET_GS, area_s))
		return -1;
	struct tr_config config = { .tables = area, .policy = tr_policies[TR_POLICY_SHADOW] };
	tr = tr_new(&ops, &config);
	sigaltstack(&ss, NULL);
	sa.sa_sigaction = on_signal;
	for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++)
		sigaction(signals[i], &sa, NULL);
	return 0;
}

int run_tear_down(void)
{
	tr_free(tr);
	tr = NULL;
	return 0;
}
