/*
 * Integer and string instructions where the CPU cannot be asked: at the shadow's edge, in runs that
 * are cut, and as the processors of other makers.
 */
#include "tests/unit/test-emu-int.h"
#include "tests/lib/random.h"

#include <stdio.h>
#include <string.h>

static void start(struct trial *t, const uint8_t *code, size_t n)
{
	memset(t, 0, sizeof(*t));
	memcpy(t->code, code, n);
	t->n = n;
	current = t;
	emu_forget_code(emu, ORACLE_CODE, 4096);
	oracle_random_regs(&t->regs, &seed);
	t->regs.rip = ORACLE_CODE;
	emu_set_regs(emu, &t->regs, DJ_REG_ALL);
	emu->steps = emu->fences = 0;
	emu->hooks = 0;
}

static void no_load_hook(void *ctx, struct emu *e, uint64_t addr, unsigned size)
{
	(void)ctx, (void)e, (void)addr, (void)size;
}

/* REP at once and element by element: the same, overlapping and across the shadow's end. */
void test_rep_in_bulk(void)
{
	enum { SPAN = 4096 };
	static uint8_t before[2 * SPAN], once[2 * SPAN];
	static const uint8_t ops[] = { 0xa4, 0xa5, 0xaa, 0xab, 0xa6, 0xa7, 0xae, 0xaf };
	/* the last and the first bytes of the shadow */
	uint8_t *end = emu->shadow + 0x100000000ULL - SPAN, *begin = emu->shadow;
	struct trial t;

	emu->before_load = no_load_hook;
	for (unsigned i = 0; i < 20000; i++) {
		uint8_t code[4] = { 0xf3, 0x40, ops[rnd(sizeof(ops))] };
		struct dj_regs a, b;

		code[1] |= chance(50) ? 8 : 0;
		for (size_t k = 0; k < sizeof(before); k++)
			before[k] = code[2] >= 0xa6 && !chance(2) ? 7 : (uint8_t)rnd(256);
		start(&t, code, 3);
		t.regs.gpr[DJ_RDI] = (random_next(&seed) << 32) - 600 + rnd(1200);
		t.regs.gpr[DJ_RSI] =
			t.regs.gpr[DJ_RDI] + (chance(70) ? rnd(41) - 20 : rnd(900) - 450);
		t.regs.gpr[DJ_RCX] = rnd(300);
		for (unsigned way = 0; way < 2; way++) {
			memcpy(end, before, SPAN);
			memcpy(begin, before + SPAN, SPAN);
			emu_set_regs(emu, &t.regs, DJ_REG_ALL);
			emu->hooks = way ? EMU_HOOK_IMPORT : 0;
			CU_ASSERT_FATAL(emu_run(emu, emu->steps + 1) == EMU_STOP_STEPS);
			emu_get_regs(emu, way ? &b : &a);
			if (!way) {
				memcpy(once, end, SPAN);
				memcpy(once + SPAN, begin, SPAN);
			}
		}
		CU_ASSERT_FATAL(!memcmp(&a, &b, sizeof(a)));
		CU_ASSERT_FATAL(!memcmp(end, once, SPAN));
		CU_ASSERT_FATAL(!memcmp(begin, once + SPAN, SPAN));
	}
	emu->hooks = 0;
	emu->before_load = before_load;
}

/* A loop with calls, locked instructions and a REP, run in one go and cut anywhere. */
void test_cuts(void)
{
	/* clang-format off */
	static const uint8_t code[] = {
		0xf0, 0x48, 0xff, 0x04, 0x24,		  /* lock inc qword [rsp] */
		0x48, 0x01, 0xc8,			  /* add rax, rcx */
		0xe8, 0x07, 0x00, 0x00, 0x00,		  /* call f */
		0x48, 0xff, 0xc9,			  /* dec rcx */
		0x75, 0xee,				  /* jnz to the beginning */
		0xeb, 0x0f,				  /* jmp to the end */
		0x51,					  /* f: push rcx */
		0xb1, 0x05, 0x0f, 0xb6, 0xc9,		  /* mov cl, 5; movzx ecx, cl */
		0xf3, 0xaa,				  /* rep stosb */
		0x59,					  /* pop rcx */
		0x48, 0x87, 0x44, 0x24, 0xf0,		  /* xchg [rsp-16], rax */
		0xc3,					  /* ret */
		0x90,
	};
	/* clang-format on */
	const unsigned rounds = 200;
	struct dj_regs whole, cut;
	struct trial t;
	uint64_t steps, fences;

	start(&t, code, sizeof(code));
	t.regs.rflags &= ~(uint64_t)DJ_FLAG_DF;
	t.regs.gpr[DJ_RCX] = rounds;
	t.regs.gpr[DJ_RDI] = ORACLE_MEM;
	for (unsigned i = 0; i < 300; i++) {
		emu_set_regs(emu, &t.regs, DJ_REG_ALL);
		memset(emu->shadow + ORACLE_MEM, 0, ORACLE_MEM_SIZE);
		emu->steps = emu->fences = 0;
		uint64_t at = 0;
		enum emu_stop stop = EMU_STOP_STEPS;
		while (stop == EMU_STOP_STEPS) {
			emu->hooks = i && chance(20) ? EMU_HOOK_TRACK : 0;
			if (i && chance(20)) {
				uint64_t was = emu->steps;
				stop = emu_step(emu);
				if (stop)
					break;
				CU_ASSERT_FATAL(emu->in_rep ? emu->steps == was
							    : emu->steps == was + 1);
			} else {
				at = i ? emu->steps + rnd(40) : 1000000;
				stop = emu_run(emu, at);
				CU_ASSERT_FATAL(stop || emu->steps == at);
			}
			if (chance(1))
				emu_forget_code(emu, ORACLE_CODE + rnd(60), 1 + rnd(8));
			struct insn in;
			if (!stop && emu->cpu.rip != ORACLE_CODE + sizeof(code))
				CU_ASSERT_FATAL(emu_peek(emu, &in));
		}
		CU_ASSERT_FATAL(stop == EMU_STOP_FETCH);
		emu_get_regs(emu, i ? &cut : &whole);
		if (!i) {
			steps = emu->steps;
			fences = emu->fences;
			CU_ASSERT(steps == 12ULL * rounds + 2);
			CU_ASSERT(fences == 2ULL * rounds);
			continue;
		}
		CU_ASSERT_FATAL(!memcmp(&whole, &cut, sizeof(cut)));
		CU_ASSERT_FATAL(emu->steps == steps && emu->fences == fences);
	}
	emu->hooks = 0;
}

/* What an instruction makes of rax and flags, as one kind of processor. */
static void run_as(enum dj_cpu_kind kind, const uint8_t *code, size_t n, const uint64_t gpr[3],
		   uint32_t flags, struct dj_regs *r)
{
	struct trial t;
	start(&t, code, n);
	t.regs.gpr[DJ_RAX] = gpr[0];
	t.regs.gpr[DJ_RBX] = gpr[1];
	t.regs.gpr[DJ_RCX] = gpr[2];
	t.regs.gpr[DJ_RDX] = 0;
	t.regs.rflags = (t.regs.rflags & ~(uint64_t)DJ_FLAGS_ARITH) | flags;
	emu->kind = kind;
	emu_set_regs(emu, &t.regs, DJ_REG_ALL);
	CU_ASSERT(emu_run(emu, UINT64_MAX) == EMU_STOP_FETCH);
	emu_get_regs(emu, r);
	r->rflags &= DJ_FLAGS_ARITH;
}

/*
 * What makers' processors do differently, as each of them, whatever this runs on: so much of
 * what the comparison above finds is fixed here. The instruction works on rax, rbx and
 * rcx; rax and the flags are compared.
 */
void test_kinds(void)
{
	enum {
		C = DJ_FLAG_CF,
		P = DJ_FLAG_PF,
		A = DJ_FLAG_AF,
		Z = DJ_FLAG_ZF,
		S = DJ_FLAG_SF,
		O = DJ_FLAG_OF,
		ALL = DJ_FLAGS_ARITH
	};
	static const struct {
		const char *what;
		uint8_t code[8];
		size_t n;
		uint64_t rax, rbx, rcx;
		uint32_t flags;
		struct {
			uint64_t rax;
			uint32_t flags;
		} as[2]; /* Intel's, AMD's */
			 /* clang-format off */
	} rows[] = {
		{ "mul", { 0x48, 0xf7, 0xe3 }, 3, 3, 5, 0, Z | A, { { 15, P }, { 15, Z | A } } },
		{ "imul", { 0x0f, 0xaf, 0xc3 }, 3, 3, -5ULL, 0, ALL,
		  { { 0xfffffff1, S }, { 0xfffffff1, Z | S | P | A } } },
		{ "div", { 0xf6, 0xf3 }, 2, 17, 5, 0, C | Z | S, { { 0x203, C | Z | S }, { 0x203, C | A } } },
		{ "shl", { 0xc0, 0xe0, 4 }, 3, 0x51, 0, 0, 0, { { 0x10, C | O }, { 0x10, C | A | O } } },
		{ "shr", { 0xd3, 0xe8 }, 2, 0x80000000, 0, 4, 0,
		  { { 0x8000000, P | O }, { 0x8000000, P | A } } },
		{ "sar", { 0xc1, 0xf8, 3 }, 3, 0x40, 0, 0, 0, { { 8, 0 }, { 8, A } } },
		{ "rol", { 0xc1, 0xc0, 8 }, 3, 0x80, 0, 0, O, { { 0x8000, O }, { 0x8000, 0 } } },
		{ "rcr", { 0xd2, 0xd8 }, 2, 0x80, 0, 9, 0, { { 0x80, 0 }, { 0x80, O } } },
		{ "shld", { 0x66, 0x0f, 0xa4, 0xd8, 20 }, 5, 0x1234, 0x5678, 0, 0,
		  { { 0x6781, C | P }, { 0x6785, A } } },
		{ "tzcnt", { 0xf3, 0x0f, 0xbc, 0xc3 }, 4, 7, 8, 0, O | S, { { 3, 0 }, { 3, O } } },
		{ "andn", { 0xc4, 0xe2, 0x60, 0xf2, 0xc1 }, 5, 0, 0xf0, 0xff, 0,
		  { { 0xf, 0 }, { 0xf, P } } },
		{ "bextr", { 0xc4, 0xe2, 0x70, 0xf7, 0xc3 }, 5, 0, 0x35, 0x804, 0,
		  { { 3, 0 }, { 3, P | A } } },
		{ "blsr", { 0xc4, 0xe2, 0x78, 0xf3, 0xcb }, 5, 0, 7, 0, 0, { { 6, 0 }, { 6, P } } },
		{ "rep lods", { 0x67, 0xf3, 0xac, 0x48, 0x89, 0xc8 }, 6, 0, 0, 1ULL << 32, C,
		  { { 0, C }, { 1ULL << 32, C } } },
		{ "movsxd", { 0x66, 0x63, 0xc3 }, 3, -1ULL, 0x12345678, 0, 0,
		  { { ~0xffffULL | 0x5678, 0 }, { ~0xffffULL | 0x5678, 0 } } },
	};
	/* clang-format on */
	const enum dj_cpu_kind host = emu->kind;
	static const struct {
		uint8_t code[3];
		uint64_t from;
		uint32_t flags[3]; /* by enum dj_cpu_kind; all are set before */
	} scans[] = {
		{ { 0x0f, 0xbc, 0xc3 }, 0x18, { P, P, ALL & ~Z } },
		{ { 0x0f, 0xbd, 0xc3 }, 0, { Z | P, Z | P, ALL } },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		for (enum dj_cpu_kind k = 0; k < 2; k++) {
			struct dj_regs r;
			const uint64_t gpr[3] = { rows[i].rax, rows[i].rbx, rows[i].rcx };
			run_as(k, rows[i].code, rows[i].n, gpr, rows[i].flags, &r);
			bool same = r.gpr[DJ_RAX] == rows[i].as[k].rax &&
				    r.rflags == rows[i].as[k].flags;
			if (!same)
				fprintf(stderr, "%s as %u: rax 0x%llx flags %x\n", rows[i].what, k,
					(unsigned long long)r.gpr[DJ_RAX], (unsigned)r.rflags);
			CU_ASSERT(same);
		}
	for (size_t i = 0; i < sizeof(scans) / sizeof(scans[0]); i++)
		for (enum dj_cpu_kind k = 0; k < 3; k++) {
			const uint64_t gpr[3] = { 0, scans[i].from, 0 };
			struct dj_regs r;
			run_as(k, scans[i].code, 3, gpr, ALL, &r);
			CU_ASSERT_EQUAL(r.rflags, scans[i].flags[k]);
		}
	emu->kind = host;
	emu_forget_code(emu, ORACLE_CODE, 4096);
}
