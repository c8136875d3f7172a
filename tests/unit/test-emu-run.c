/*
 * The emulator's memory and run loop, on any host: small programs whose every effect is known.
 * The families' tests compare single instructions with the processor's.
 */
#include "emu/emu.h"
#include "tests/lib/code-bytes.h"
#include "tests/lib/suites.h"

#include <CUnit/CUnit.h>

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define CODE   0x401000u
#define SHADOW (1ULL << 32)

static struct code_bytes code = { .at = CODE };

/* The emulator's context is an observer's. */
static size_t fetch(void *ctx, uint64_t addr, uint8_t *buf, size_t len)
{
	(void)ctx;
	return code_bytes_fetch(&code, addr, buf, len);
}

static struct emu *start(const uint8_t *bytes, size_t len)
{
	struct emu *e = emu_new(NULL);
	struct dj_regs regs = { .rip = CODE, .rflags = 0x202, .mxcsr = 0x1f80 };

	CU_ASSERT_FATAL(e != NULL);
	code.bytes = bytes;
	code.len = len;
	e->fetch = fetch;
	emu_set_regs(e, &regs, DJ_REG_ALL);
	return e;
}

/* An access that goes past 2^32 goes on at 0, from both sides. */
static void test_edge(void)
{
	static const uint8_t prog[] = {
		0x48, 0x89, 0x03, /* mov [rbx], rax */
		0x8b, 0x09,	  /* mov ecx, [rcx] */
		0x89, 0x02,	  /* mov [rdx], eax */
		0x48, 0x8b, 0x03, /* mov rax, [rbx] */
	};
	struct emu *e = start(prog, sizeof(prog));

	e->cpu.gpr[DJ_RAX] = 0x8877665544332211;
	e->cpu.gpr[DJ_RBX] = 7 * SHADOW - 3;
	e->cpu.gpr[DJ_RCX] = 1;
	e->cpu.gpr[DJ_RDX] = 3 * SHADOW;
	CU_ASSERT(emu_run(e, 4) == EMU_STOP_STEPS);
	CU_ASSERT(e->cpu.gpr[DJ_RCX] == 0x88776655);
	CU_ASSERT(e->cpu.gpr[DJ_RAX] == 0x8844332211332211);
	CU_ASSERT(!memcmp(e->shadow, "\x11\x22\x33\x44\x88", 6));
	/* the same far behind the first page */
	CU_ASSERT(!memcmp(e->shadow, e->shadow + SHADOW, 4096));
	emu_free(e);
}

static bool there(const struct emu *e)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return msync(e->shadow, page, MS_ASYNC) == 0 ||
	       msync(e->shadow + SHADOW, page, MS_ASYNC) == 0;
}

/* If a process lacks what its maker marked with MADV_DONTFORK (madvise(2)), as it does with Linux
 * itself. Programs that run another processor's programs may take the mark for advice and ignore
 * it, and tell nobody: only trying tells. */
static bool fork_leaves_out(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *at = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status = -1;

	CU_ASSERT_FATAL(at != MAP_FAILED && madvise(at, page, MADV_DONTFORK) == 0);
	pid_t child = fork();
	if (!child)
		_exit(msync(at, page, MS_ASYNC) == 0);
	CU_ASSERT_FATAL(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
	munmap(at, page);
	return WEXITSTATUS(status) == 0;
}

/* A process made for one emulator has a shadow of its own, and nothing of the others' that both
 * processes could write to. */
static void test_fork(void)
{
	const uint8_t nop[] = "\x90";
	struct emu *mine = start(nop, 1), *other = start(nop, 1);
	bool leaves_out = fork_leaves_out();
	int status = -1, fd;

	memcpy(mine->shadow, "mine", 4);
	memcpy(other->shadow, "other", 5);
	fd = emu_before_fork(mine);
	CU_ASSERT_FATAL(fd >= 0);
	pid_t child = fork();
	if (!child) {
		if (leaves_out && (there(mine) || there(other)))
			_exit(2);
		if (!emu_after_fork(mine, fd) || memcmp(mine->shadow + SHADOW, "mine", 4))
			_exit(3);
		memcpy(mine->shadow, "gone", 4);
		_exit(leaves_out && there(other) ? 4 : 0);
	}
	close(fd);
	CU_ASSERT(child > 0 && waitpid(child, &status, 0) == child && status == 0);
#ifdef __x86_64__
	CU_ASSERT(leaves_out);
#endif
	CU_ASSERT(!memcmp(mine->shadow, "mine", 4) && !memcmp(other->shadow, "other", 5));
	emu_free(mine);
	emu_free(other);
}

/* Memory is zero everywhere after a reset, and only its own emulator's. */
static void test_reset(void)
{
	static const uint32_t places[] = { 0, 5, 0xfff8, 0xfffc, 0x10000, 0x7fffffff, 0xfffffff8 };
	struct emu *e = start(NULL, 0), *other = start(NULL, 0);

	for (unsigned round = 0; round < 3; round++) {
		for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
			CU_ASSERT(emu_load64(e, places[i]) == 0);
			CU_ASSERT(emu_load64(other, places[i]) == 0);
		}
		for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++)
			emu_store64(e, places[i], 0x0101010101010101);
		CU_ASSERT(emu_load32(e, 0xfffffffe) == 0x01010101);
		CU_ASSERT(emu_load8(e, 0x10003) == 1);
		emu_reset_memory(e);
	}
	emu_free(other);
	emu_free(e);
}

/* ---- observers ----------------------------------------------------------------------------- */

/* Ten times: a call of f, whose conditional jump falls through at odd counts; a jump
 * through a register; LOOP. */
static const uint8_t branchy[] = {
	0xb9, 0x0a, 0x00, 0x00, 0x00,		  /* 00 mov ecx, 10 */
	0x48, 0x8d, 0x15, 0x09, 0x00, 0x00, 0x00, /* 05 lea rdx, [rip + 9]: 15 */
	0xe8, 0x0b, 0x00, 0x00, 0x00,		  /* 0c call f */
	0xff, 0xe2,				  /* 11 jmp rdx */
	0x90, 0x90,				  /* 13 never executed */
	0x48, 0xff, 0xc0,			  /* 15 inc rax */
	0xe2, 0xf2,				  /* 18 loop 0c */
	0xeb, 0x09,				  /* 1a jmp to the end */
	0xf6, 0xc1, 0x01,			  /* 1c f: test cl, 1 */
	0x74, 0x03,				  /* 1f jz 24 */
	0x48, 0xff, 0xc3,			  /* 21 inc rbx */
	0xc3,					  /* 24 ret */
};
#define ROUNDS	     10u
#define BRANCHY_SPAN (ROUNDS * 7 + ROUNDS / 2 + 3)

struct seen {
	size_t n;
	struct emu_edge edges[200];
};

static void see(void *ctx, struct emu *e, const struct emu_edge *edge)
{
	struct seen *s = ctx;

	(void)e;
	CU_ASSERT_FATAL(s->n < sizeof(s->edges) / sizeof(*s->edges));
	s->edges[s->n++] = *edge;
}

static void no_access(void *ctx, struct emu *e, uint64_t addr, unsigned size)
{
	(void)ctx, (void)e, (void)addr, (void)size;
}

static void no_store(void *ctx, struct emu *e, uint64_t addr, unsigned size, const uint8_t *bytes)
{
	(void)ctx, (void)e, (void)addr, (void)size, (void)bytes;
}

static struct emu *start_branchy(struct seen *s, unsigned kinds)
{
	struct emu *e = start(branchy, sizeof(branchy));

	*s = (struct seen){ 0 };
	e->ctx = s;
	e->before_load = e->after_load = e->before_store = no_access;
	e->after_store = no_store;
	e->cpu.gpr[DJ_RSP] = 0x8000;
	if (kinds)
		emu_observe(e, &(struct emu_observer){ .kinds = kinds, .see = see });
	return e;
}

/* What must be seen, from single steps and the decoder alone. */
static void expected(struct seen *s)
{
	struct emu *e = start_branchy(s, 0);
	struct insn in;

	while (emu_peek(e, &in)) {
		CU_ASSERT_FATAL(emu_step(e) == EMU_STOP_STEPS);
		if (!(in.attr & INSN_A_BRANCH))
			continue;
		bool fell = (in.attr & INSN_A_COND) && e->cpu.rip == in.addr + in.len;
		s->edges[s->n++] = (struct emu_edge){
			.kind = in.attr & INSN_A_CALL  ? EMU_SEE_CALL
				: in.attr & INSN_A_RET ? EMU_SEE_RETURN
				: fell		       ? EMU_SEE_FALL
						       : EMU_SEE_JUMP,
			.from = in.addr,
			.to = e->cpu.rip,
			.steps = e->steps,
		};
	}
	CU_ASSERT(e->steps == BRANCHY_SPAN);
	emu_free(e);
}

static bool same_edges(const struct seen *want, const struct seen *have, unsigned kinds)
{
	size_t n = 0;

	for (size_t i = 0; i < want->n; i++) {
		const struct emu_edge *a = &want->edges[i], *b = &have->edges[n];
		if (!(a->kind & kinds))
			continue;
		if (n == have->n || a->kind != b->kind || a->from != b->from || a->to != b->to ||
		    a->steps != b->steps)
			return false;
		n++;
	}
	return n == have->n;
}

static unsigned count(const struct seen *s, unsigned kind, unsigned from, unsigned to)
{
	unsigned n = 0;

	for (size_t i = 0; i < s->n; i++)
		n += s->edges[i].kind == kind && s->edges[i].from == CODE + from &&
		     s->edges[i].to == CODE + to;
	return n;
}

/* In one of four ways: all at once, by steps, in pieces, and with code forgotten meanwhile. */
static enum emu_stop go_on(struct emu *e, unsigned way)
{
	enum emu_stop stop;

	if (way == 1 || (way > 1 && rand() % 4 == 0))
		stop = emu_step(e);
	else
		stop = emu_run(e, e->steps + (way ? 1 + rand() % 20 : 1000));
	if (way == 3 && rand() % 10 == 0)
		emu_forget_code(e, CODE + rand() % sizeof(branchy), 1);
	return stop;
}

static void test_edges(void)
{
	static struct seen want, have;

	expected(&want);
	/* by hand */
	CU_ASSERT(count(&want, EMU_SEE_CALL, 0x0c, 0x1c) == ROUNDS);
	CU_ASSERT(count(&want, EMU_SEE_RETURN, 0x24, 0x11) == ROUNDS);
	CU_ASSERT(count(&want, EMU_SEE_JUMP, 0x1f, 0x24) == ROUNDS / 2);
	CU_ASSERT(count(&want, EMU_SEE_FALL, 0x1f, 0x21) == ROUNDS / 2);
	CU_ASSERT(count(&want, EMU_SEE_JUMP, 0x11, 0x15) == ROUNDS);
	CU_ASSERT(count(&want, EMU_SEE_JUMP, 0x18, 0x0c) == ROUNDS - 1);
	CU_ASSERT(count(&want, EMU_SEE_FALL, 0x18, 0x1a) == 1);
	CU_ASSERT(want.n == 5 * ROUNDS + 1);

	/* the same whatever is seen, and however it is run: at once, in pieces, by steps, with and
	 * without hooks, with code forgotten meanwhile */
	for (unsigned i = 0; i < 600; i++) {
		unsigned kinds = i % 16 ? i % 16 : EMU_SEE_ALL, way = i / 16 % 4;
		struct emu *e = start_branchy(&have, kinds);
		enum emu_stop stop = EMU_STOP_STEPS;
		if (i & 64)
			e->hooks = EMU_HOOK_TRACK | EMU_HOOK_IMPORT;
		e->exact = i & 128;
		while (!stop)
			stop = go_on(e, way);
		CU_ASSERT_FATAL(stop == EMU_STOP_FETCH && e->steps == BRANCHY_SPAN);
		CU_ASSERT_FATAL(same_edges(&want, &have, kinds));
		emu_free(e);
	}
}

/* ---- stops --------------------------------------------------------------------------------- */

/* Six times a block of stores that what comes next reads, an ordered event and a REP instruction.
 */
static const uint8_t storing[] = {
	0xb9, 0x06, 0x00, 0x00, 0x00, /* 00 mov ecx, 6 */
	0x89, 0x0f,		      /* 05 mov [rdi], ecx */
	0x48, 0x03, 0x07,	      /* 07 add rax, [rdi] */
	0x48, 0x89, 0x47, 0x08,	      /* 0a mov [rdi + 8], rax */
	0x51,			      /* 0e push rcx */
	0xb9, 0x05, 0x00, 0x00, 0x00, /* 0f mov ecx, 5 */
	0x57,			      /* 14 push rdi */
	0xf3, 0xaa,		      /* 15 rep stosb */
	0x5f,			      /* 17 pop rdi */
	0x59,			      /* 18 pop rcx */
	0xf0, 0x48, 0xff, 0x47, 0x10, /* 19 lock inc qword [rdi + 16] */
	0xe2, 0xe5,		      /* 1e loop 05 */
	0x90,			      /* 20 nop */
};
#define STORING_SPAN (6 * 11 + 2)
#define DATA	     0x3000u

/* What there is when an instruction is about to be executed. */
struct arrival {
	uint64_t steps, rip, fences, fence_steps, regs;
	uint8_t memory[24], stack[16];
};

struct arrivals {
	struct arrival list[STORING_SPAN];
	size_t n;
	bool at[sizeof(storing)]; /* where somebody asks */
	unsigned say_yes;	  /* one in so many times; 0: never */
	uint64_t resumed;	  /* the steps at which it did */
};

static struct arrival arrival_at(struct emu *e)
{
	struct arrival a = { .steps = e->steps,
			     .rip = e->cpu.rip,
			     .fences = e->fences,
			     .fence_steps = e->fence_steps };
	struct dj_regs regs;

	emu_get_regs(e, &regs);
	a.regs = dj_regs_digest(&regs);
	memcpy(a.memory, e->shadow + DATA, sizeof(a.memory));
	memcpy(a.stack, e->shadow + 0x8000 - sizeof(a.stack), sizeof(a.stack));
	return a;
}

static bool arrives(void *ctx, struct emu *e)
{
	struct arrivals *s = ctx;
	struct emu_now now;

	emu_now(e, &now);
	CU_ASSERT_FATAL(now.rip == e->cpu.rip && now.steps == e->steps && now.fences == e->fences &&
			now.fence_steps == e->fence_steps);
	CU_ASSERT_FATAL(e->cpu.rip - CODE < sizeof(storing) && s->at[e->cpu.rip - CODE]);
	CU_ASSERT_FATAL(!e->in_rep);
	if (e->steps == s->resumed)
		return false;
	CU_ASSERT_FATAL(s->n < STORING_SPAN);
	s->list[s->n++] = arrival_at(e);
	if (!s->say_yes || rand() % s->say_yes)
		return false;
	s->resumed = e->steps;
	return true;
}

static bool arrives_within(void *ctx, uint64_t lo, uint64_t hi)
{
	const struct arrivals *s = ctx;

	for (; lo < hi; lo++)
		if (lo - CODE < sizeof(storing) && s->at[lo - CODE])
			return true;
	return false;
}

static struct emu *start_storing(struct arrivals *s)
{
	struct emu *e = start(storing, sizeof(storing));

	e->ctx = s;
	e->before_load = e->after_load = e->before_store = no_access;
	e->after_store = no_store;
	e->stop_generation = 1;
	e->cpu.gpr[DJ_RSP] = 0x8000;
	e->cpu.gpr[DJ_RDI] = DATA;
	e->cpu.gpr[DJ_RAX] = 0x1234567890;
	return e;
}

/* All arrivals, from single steps alone. */
static void all_arrivals(struct arrivals *s)
{
	struct emu *e = start_storing(s);
	struct insn in;

	s->n = 0;
	while (emu_peek(e, &in)) {
		if (!e->in_rep)
			s->list[s->n++] = arrival_at(e);
		CU_ASSERT_FATAL(emu_step(e) == EMU_STOP_STEPS);
	}
	CU_ASSERT_FATAL(s->n == STORING_SPAN);
	emu_free(e);
}

static bool same_arrivals(const struct arrivals *want, const struct arrivals *have,
			  const bool *const at[2], uint64_t changed)
{
	size_t n = 0;

	for (size_t i = 0; i < want->n; i++) {
		const struct arrival *a = &want->list[i];
		if (at[a->steps >= changed][a->rip - CODE] &&
		    (n == have->n || memcmp(a, &have->list[n++], sizeof(*a)) != 0))
			return false;
	}
	return n == have->n;
}

/* Go on to `until`, or as far as there is code, whatever stops it on the way. */
static void run_through(struct emu *e, struct arrivals *s, unsigned way, uint64_t until)
{
	enum emu_stop stop = EMU_STOP_STEPS;

	while (e->steps < until && stop != EMU_STOP_FETCH) {
		uint64_t piece = way & 1 ? e->steps + 1 + rand() % 20 : until;
		if (way & 2) {
			e->hooks |= EMU_HOOK_FENCE;
			e->fence_limit = e->fences + rand() % 2;
		}
		stop = emu_run(e, piece < until ? piece : until);
		CU_ASSERT_FATAL(stop == EMU_STOP_STEPS || stop == EMU_STOP_FETCH ||
				stop == EMU_STOP_BREAK || stop == EMU_STOP_FENCE);
		if (stop == EMU_STOP_FENCE) /* it has been asked there */
			s->resumed = e->steps;
		if (stop != EMU_STOP_BREAK)
			continue;
		CU_ASSERT_FATAL(s->n && e->steps == s->list[s->n - 1].steps &&
				e->cpu.rip == s->list[s->n - 1].rip);
		/* in the middle of an instruction nobody is asked again */
		if (e->cpu.rip == CODE + 0x15 && rand() % 2)
			CU_ASSERT_FATAL(emu_step(e) == EMU_STOP_STEPS && e->in_rep);
	}
}

/* Whoever may want to stop is asked once at each of the instructions it has named, with all as it
 * is there, however the code is run; and where it stops it stops. */
static void test_stops(void)
{
	static struct arrivals want, have;
	bool other[sizeof(storing)];

	all_arrivals(&want);
	for (unsigned i = 0; i < 2000; i++) {
		struct emu *e = start_storing(&have);
		uint64_t changed = rand() % (2 * STORING_SPAN);
		const bool *const at[] = { other, have.at };
		unsigned few = 1 + rand() % 8;

		have.n = 0;
		have.resumed = UINT64_MAX;
		have.say_yes = i % 3;
		for (size_t k = 0; k < sizeof(storing); k++) {
			other[k] = rand() % few == 0;
			have.at[k] = other[k];
		}
		e->stop_at = arrives;
		e->stop_within = arrives_within;
		if (i & 4)
			e->hooks = EMU_HOOK_TRACK;
		if (i & 8)
			e->hooks |= EMU_HOOK_IMPORT;
		e->exact = i & 16;
		run_through(e, &have, i >> 5, changed);
		for (size_t k = 0; k < sizeof(storing); k++)
			have.at[k] = rand() % few == 0;
		e->stop_generation++;
		run_through(e, &have, i >> 5, 1000);
		CU_ASSERT_FATAL(e->steps == STORING_SPAN);
		CU_ASSERT_FATAL(same_arrivals(&want, &have, at, changed));
		emu_free(e);
	}
}

/* Executions of each instruction, and of each branch from one address to another. */
struct counted {
	uint64_t at[sizeof(branchy)], led[sizeof(branchy)][sizeof(branchy)];
};

static void counts(void *ctx, struct emu *e, const struct emu_counts *c)
{
	struct counted *k = ctx;

	(void)e;
	for (unsigned i = 0; i < c->n; i++)
		k->at[c->uops[i].insn->addr - CODE] += c->whole + (c->more ? c->more[i] : 0);
}

static void branched(void *ctx, struct emu *e, const struct insn *in, uint64_t to, uint64_t count)
{
	struct counted *k = ctx;

	(void)e;
	CU_ASSERT_FATAL(to - CODE <= sizeof(branchy));
	if (to - CODE < sizeof(branchy)) /* not where it ends */
		k->led[in->addr - CODE][to - CODE] += count;
}

/* Counts are those of single steps, however it is run, and with others seeing edges. */
static void test_counts(void)
{
	static struct counted want, have;
	static struct seen edges;
	const struct emu_observer o = { .counts = counts, .branched = branched };
	struct emu *e = start_branchy(&edges, 0);
	struct insn in;

	while (emu_peek(e, &in)) {
		CU_ASSERT_FATAL(emu_step(e) == EMU_STOP_STEPS);
		want.at[in.addr - CODE]++;
		if ((in.attr & INSN_A_BRANCH) && e->cpu.rip - CODE < sizeof(branchy))
			want.led[in.addr - CODE][e->cpu.rip - CODE]++;
	}
	emu_free(e);
	CU_ASSERT(want.at[0x15] == ROUNDS && want.led[0x1f][0x21] == ROUNDS / 2);
	for (unsigned i = 0; i < 600; i++) {
		unsigned way = i % 4;
		enum emu_stop stop = EMU_STOP_STEPS;
		e = start_branchy(&edges, 0);
		e->ctx = &have;
		memset(&have, 0, sizeof(have));
		emu_observe(e, &o);
		if (i & 4)
			e->hooks = EMU_HOOK_TRACK | EMU_HOOK_IMPORT;
		e->exact = i & 8;
		while (!stop) {
			stop = go_on(e, way);
			if (way == 2 && rand() % 10 == 0)
				emu_tell_counts(e);
		}
		emu_observe(e, NULL);
		CU_ASSERT_FATAL(stop == EMU_STOP_FETCH && e->steps == BRANCHY_SPAN);
		CU_ASSERT_FATAL(!memcmp(&want, &have, sizeof(want)));
		emu_free(e);
	}
}

/* A REP instruction is told once, whole, in however many parts it was run. */
static void see_rep(void *ctx, struct emu *e, const struct emu_rep *rep)
{
	uint64_t *told = ctx;

	(void)e;
	told[0]++;
	told[1] += rep->asked;
	told[2] += rep->done;
}

static unsigned want_reps(void *ctx, struct emu *e, const struct insn *in)
{
	(void)ctx, (void)e, (void)in;
	return EMU_WANT_REP;
}

static void test_reps(void)
{
	/* mov ecx, 100; rep stosb; mov ecx, 50; repne scasb */
	static const uint8_t code[] = { 0xb9, 100, 0, 0, 0, 0xf3, 0xaa,
					0xb9, 50,  0, 0, 0, 0xf2, 0xae };

	for (unsigned part = 0; part < 60; part++) {
		struct emu *e = start(code, sizeof(code));
		uint64_t told[3] = { 0 };
		e->ctx = told;
		emu_observe(e, &(struct emu_observer){ .rep = see_rep, .wants = want_reps });
		e->before_load = e->after_load = e->before_store = no_access;
		e->after_store = no_store;
		e->cpu.gpr[DJ_RAX] = 7;
		e->cpu.gpr[DJ_RDI] = 0x1000;
		while (e->steps < 3) {
			if (part && e->steps == 1 && rand() % 3)
				emu_step(e);
			else if (part && e->steps == 1 && e->cpu.gpr[DJ_RCX] > part)
				emu_run_rep(e, e->cpu.gpr[DJ_RCX] - part);
			else
				emu_run(e, e->steps + 1);
		}
		CU_ASSERT(told[0] == 1 && told[1] == 100 && told[2] == 100);
		e->cpu.gpr[DJ_RDI] = 0x1000 - 20; /* finds a 7 in the 21st place */
		emu_run(e, 4);
		CU_ASSERT(told[0] == 2 && told[1] == 150 && told[2] == 121);
		emu_free(e);
	}
}

/* Subscribing late, falling silent, and unsubscribing. */
static void test_observing(void)
{
	static struct seen want, have;
	struct emu *e;

	expected(&want);
	e = start_branchy(&have, 0);
	emu_run(e, 20);
	CU_ASSERT(have.n == 0);
	emu_observe(e, &(struct emu_observer){ .kinds = EMU_SEE_ALL, .see = see });
	emu_run(e, 40);
	e->unseen = true;
	emu_run(e, 50);
	e->unseen = false;
	emu_run(e, 60);
	emu_observe(e, NULL);
	emu_run(e, 1000);
	size_t n = 0;
	for (size_t i = 0; i < want.n; i++) {
		uint64_t at = want.edges[i].steps;
		n += (at > 20 && at <= 40) || (at > 50 && at <= 60);
	}
	CU_ASSERT(n > 10 && have.n == n);
	CU_ASSERT(have.edges[0].steps > 20 && have.edges[n - 1].steps <= 60);
	emu_free(e);
}

static void nothing(void *ctx, struct emu *e, uint64_t addr, unsigned size)
{
	(void)ctx;
	(void)e;
	(void)addr;
	(void)size;
}

/* Run until `until`, however often it comes back on the way: how often. */
static unsigned run_in_parts(struct emu *e, uint64_t until, enum emu_stop *why)
{
	unsigned parts = 0;

	while ((*why = emu_run(e, until)) == EMU_STOP_YIELD) {
		CU_ASSERT(e->in_rep && e->rep_iter > 0);
		parts++;
	}
	return parts;
}

/* A REP instruction of millions of iterations is left between two of them, and goes on where it
 * was. */
static void test_long_repeats(void)
{
	static const uint8_t prog[] = {
		0x90, 0xf3, 0xaa, /* nop; rep stosb */
		0xf3, 0xa4,	  /* rep movsb, which spreads what it has just stored */
		0xf2, 0xae,	  /* repne scasb */
		0xf3, 0x48, 0xab, /* rep stosq */
	};
	const uint64_t n = 10000019;

	for (int hooked = 0; hooked < 2; hooked++) {
		struct emu *e = start(prog, sizeof(prog));
		enum emu_stop why;

		e->mirror_stores = true;
		if (hooked) { /* element by element */
			e->hooks = EMU_HOOK_IMPORT;
			e->before_load = nothing;
		}
		e->cpu.gpr[DJ_RAX] = 0x5a;
		e->cpu.gpr[DJ_RCX] = n;
		e->cpu.gpr[DJ_RDI] = 0x1000;
		CU_ASSERT(run_in_parts(e, 2, &why) > 1 && why == EMU_STOP_STEPS);
		CU_ASSERT(e->steps == 2 && !e->in_rep && !e->rep_iter);
		CU_ASSERT(e->cpu.gpr[DJ_RCX] == 0 && e->cpu.gpr[DJ_RDI] == 0x1000 + n);
		CU_ASSERT(e->shadow[0x1000] == 0x5a && e->shadow[0xfff + n] == 0x5a &&
			  e->shadow[0x1000 + n] == 0);
		memcpy(e->shadow + 0x1000, "abc", 3);
		e->cpu.gpr[DJ_RCX] = n;
		e->cpu.gpr[DJ_RSI] = 0x1000;
		e->cpu.gpr[DJ_RDI] = 0x1003;
		/* single iterations in between make no difference */
		CU_ASSERT(emu_step(e) == EMU_STOP_STEPS && e->rep_iter == 1);
		CU_ASSERT(run_in_parts(e, 3, &why) > 1 && why == EMU_STOP_STEPS);
		CU_ASSERT(e->steps == 3 && !e->in_rep && e->cpu.gpr[DJ_RCX] == 0);
		CU_ASSERT(!memcmp(e->shadow + 0x1000, "abcabcabc", 9));
		CU_ASSERT(e->shadow[0x1002 + n] == "abc"[(n + 2) % 3]);
		e->cpu.gpr[DJ_RAX] = 0;
		e->cpu.gpr[DJ_RCX] = UINT64_MAX;
		e->cpu.gpr[DJ_RDI] = 0x1000;
		CU_ASSERT(run_in_parts(e, 4, &why) > 1 && why == EMU_STOP_STEPS);
		CU_ASSERT(e->cpu.gpr[DJ_RDI] == 0x1004 + n);
		/* to a count in its middle, and no further than there is memory */
		e->cpu.gpr[DJ_RCX] = 1ULL << 60;
		CU_ASSERT(emu_run(e, 5) == EMU_STOP_FAULT && e->steps == 4);
		while ((why = emu_run_rep(e, (1ULL << 60) - n)) == EMU_STOP_YIELD)
			;
		CU_ASSERT(why == EMU_STOP_STEPS && e->rep_iter == n);
		CU_ASSERT(e->cpu.gpr[DJ_RCX] == (1ULL << 60) - n && e->steps == 4);
		emu_free(e);
	}
}

int main(void)
{
	suites_begin();
	CU_pSuite s = CU_add_suite("emu-run", NULL, NULL);
	CU_add_test(s, "the shadow's edge", test_edge);
	CU_add_test(s, "a process made for one of them", test_fork);
	CU_add_test(s, "memory anew", test_reset);
	CU_add_test(s, "long repeats come back", test_long_repeats);
	CU_add_test(s, "who may stop is asked where it wants to be", test_stops);
	CU_add_test(s, "edges are seen, however code is run", test_edges);
	CU_add_test(s, "executions are counted, however code is run", test_counts);
	CU_add_test(s, "repeats are told whole", test_reps);
	CU_add_test(s, "observers come and go", test_observing);
	return suites_run();
}
