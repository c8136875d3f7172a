/*
 * The floating-point handlers (emu/emu-fp*.c) against the CPU: every instruction in every
 * form (legacy, VEX.128, VEX.256, register and memory operands) on random registers with
 * nasty operands and random MXCSR; all registers, MXCSR, flags and memory are compared.
 */
#include "emu/emu-core.h"
#include "tests/lib/fp-operands.h"
#include "tests/lib/oracle.h"
#include "tests/lib/random.h"
#include "tests/lib/suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEED	 4242u
#define PER_FORM 500

enum {
	L = 1,	     /* legacy encoding exists */
	V = 2,	     /* VEX encoding exists */
	Y = 4,	     /* VEX.256 too */
	NDS = 8,     /* the VEX form has a further source in vvvv */
	IMM = 16,    /* immediate byte */
	W = 32,	     /* W set or clear makes a difference: try both */
	W1 = 64,     /* W must be set */
	GDST = 128,  /* destination is a general register */
	GSRC = 256,  /* source is a general register or memory */
	STORE = 512, /* modrm.rm is the destination */
	INTS = 1024, /* vector source is integers */
	HALF = 2048, /* vector source is binary16 */
};
#define LV (L | V)

static const struct op {
	const char *name;
	uint8_t pp, map, opcode; /* pp: 0, 0x66, 0xf3, 0xf2 */
	int size;		 /* element: 4 or 8 */
	unsigned is;
	/* clang-format off */
} ops[] = {
#define FOUR(NAME, OP, IS)                                                                         \
	{NAME "ps", 0, 1, OP, 4, LV | Y | (IS)}, {NAME "pd", 0x66, 1, OP, 8, LV | Y | (IS)},       \
	{NAME "ss", 0xf3, 1, OP, 4, LV | NDS | (IS)}, {NAME "sd", 0xf2, 1, OP, 8, LV | NDS | (IS)},
	FOUR("add", 0x58, NDS)
	FOUR("mul", 0x59, NDS)
	FOUR("sub", 0x5c, NDS)
	FOUR("min", 0x5d, NDS)
	FOUR("div", 0x5e, NDS)
	FOUR("max", 0x5f, NDS)
	FOUR("sqrt", 0x51, 0)
	FOUR("cmp", 0xc2, NDS | IMM)
	FOUR("cmp", 0xc2, NDS | IMM)
	{"ucomiss", 0, 1, 0x2e, 4, LV},
	{"ucomisd", 0x66, 1, 0x2e, 8, LV},
	{"comiss", 0, 1, 0x2f, 4, LV},
	{"comisd", 0x66, 1, 0x2f, 8, LV},
	{"addsubps", 0xf2, 1, 0xd0, 4, LV | Y | NDS},
	{"addsubpd", 0x66, 1, 0xd0, 8, LV | Y | NDS},
	{"haddps", 0xf2, 1, 0x7c, 4, LV | Y | NDS},
	{"haddpd", 0x66, 1, 0x7c, 8, LV | Y | NDS},
	{"hsubps", 0xf2, 1, 0x7d, 4, LV | Y | NDS},
	{"hsubpd", 0x66, 1, 0x7d, 8, LV | Y | NDS},
	{"dpps", 0x66, 3, 0x40, 4, LV | Y | NDS | IMM},
	{"dppd", 0x66, 3, 0x41, 8, LV | NDS | IMM},
	{"roundps", 0x66, 3, 0x08, 4, LV | Y | IMM},
	{"roundpd", 0x66, 3, 0x09, 8, LV | Y | IMM},
	{"roundss", 0x66, 3, 0x0a, 4, LV | NDS | IMM},
	{"roundsd", 0x66, 3, 0x0b, 8, LV | NDS | IMM},
	{"cvtsi2ss", 0xf3, 1, 0x2a, 4, LV | NDS | W | GSRC},
	{"cvtsi2sd", 0xf2, 1, 0x2a, 8, LV | NDS | W | GSRC},
	{"cvttss2si", 0xf3, 1, 0x2c, 4, LV | W | GDST},
	{"cvttsd2si", 0xf2, 1, 0x2c, 8, LV | W | GDST},
	{"cvtss2si", 0xf3, 1, 0x2d, 4, LV | W | GDST},
	{"cvtsd2si", 0xf2, 1, 0x2d, 8, LV | W | GDST},
	{"cvtps2pd", 0, 1, 0x5a, 4, LV | Y},
	{"cvtpd2ps", 0x66, 1, 0x5a, 8, LV | Y},
	{"cvtss2sd", 0xf3, 1, 0x5a, 4, LV | NDS},
	{"cvtsd2ss", 0xf2, 1, 0x5a, 8, LV | NDS},
	{"cvtdq2ps", 0, 1, 0x5b, 4, LV | Y | INTS},
	{"cvtps2dq", 0x66, 1, 0x5b, 4, LV | Y},
	{"cvttps2dq", 0xf3, 1, 0x5b, 4, LV | Y},
	{"cvtdq2pd", 0xf3, 1, 0xe6, 4, LV | Y | INTS},
	{"cvttpd2dq", 0x66, 1, 0xe6, 8, LV | Y},
	{"cvtpd2dq", 0xf2, 1, 0xe6, 8, LV | Y},
	{"vcvtph2ps", 0x66, 2, 0x13, 2, V | Y | HALF},
	{"vcvtps2ph", 0x66, 3, 0x1d, 4, V | Y | IMM | STORE},
#define FMA1(NAME, OP)                                                                             \
	{NAME "ps", 0x66, 2, OP, 4, V | Y | NDS}, {NAME "pd", 0x66, 2, OP, 8, V | Y | NDS | W1},
#define FMA2(NAME, OP)                                                                             \
	FMA1(NAME, OP)                                                                             \
	{NAME "ss", 0x66, 2, OP + 1, 4, V | NDS}, {NAME "sd", 0x66, 2, OP + 1, 8, V | NDS | W1},
#define FMA_FORM(F, OP)                                                                            \
	FMA1("vfmaddsub" F, OP + 0x6)                                                              \
	FMA1("vfmsubadd" F, OP + 0x7)                                                              \
	FMA2("vfmadd" F, OP + 0x8)                                                                 \
	FMA2("vfmsub" F, OP + 0xa)                                                                 \
	FMA2("vfnmadd" F, OP + 0xc)                                                                \
	FMA2("vfnmsub" F, OP + 0xe)
	FMA_FORM("132", 0x90)
	FMA_FORM("213", 0xa0)
	FMA_FORM("231", 0xb0)
};
/* clang-format on */

struct emu_form {
	bool vex, l, w, mem;
};

/* Registers an instruction uses, and its bytes. */
struct code {
	uint8_t bytes[15];
	size_t n;
	unsigned reg, rm, vvvv;
};

static void encode(struct code *c, const struct op *o, struct emu_form f, uint64_t *seed)
{
	uint64_t r = random_next(seed);
	uint8_t *p = c->bytes;

	c->reg = r & 15;
	c->vvvv = r >> 4 & 15;
	c->rm = r >> 8 & 15;
	if (o->is & GDST && c->reg == 4)
		c->reg = 5;
	if (f.mem)
		c->rm = 3; /* [rbx + disp8] */
	if (f.vex) {
		static const uint8_t pp[256] = { [0x66] = 1, [0xf3] = 2, [0xf2] = 3 };
		unsigned v = o->is & NDS ? c->vvvv : 0;
		*p++ = 0xc4;
		*p++ = (uint8_t)((c->reg < 8) << 7 | 1 << 6 | (c->rm < 8) << 5 | o->map);
		*p++ = (uint8_t)(f.w << 7 | (v ^ 15) << 3 | f.l << 2 | pp[o->pp]);
	} else {
		unsigned rex = f.w << 3 | (c->reg >= 8) << 2 | (c->rm >= 8);
		if (o->pp)
			*p++ = o->pp;
		if (rex)
			*p++ = (uint8_t)(0x40 | rex);
		*p++ = 0x0f;
		if (o->map == 2)
			*p++ = 0x38;
		if (o->map == 3)
			*p++ = 0x3a;
	}
	*p++ = o->opcode;
	*p++ = (uint8_t)((f.mem ? 0x40 : 0xc0) | (c->reg & 7) << 3 | (c->rm & 7));
	if (f.mem)
		*p++ = 0x20;
	if (o->is & IMM)
		*p++ = (uint8_t)(r >> 16);
	c->n = (size_t)(p - c->bytes);
}

/* 32 bytes of elements as the instruction wants them (now and then of another kind). */
static void fill(uint8_t *to, const struct op *o, uint64_t *seed, const uint8_t *near, bool tame)
{
	int size = random_next(seed) % 32 ? o->size : o->size == 4 ? 8 : 4;

	for (int i = 0; i < 32; i += size) {
		uint64_t x, n = 0;
		if (near)
			n = oracle_get(near + i, (unsigned)size);
		if (tame && size >= 4) {
			/* around 1, with zeros between: what whole vectors are computed by */
			int mant = size == 4 ? 23 : 52, bias = size == 4 ? 127 : 1023;
			uint64_t r = random_next(seed);
			x = (uint64_t)(bias - 3 + (int)(r & 7)) << mant | fp_rand_mant(seed, mant);
			if ((r >> 3 & 7) == 0)
				x = 0;
			x |= (r >> 6 & 1) << (size * 8 - 1);
		} else if (o->is & INTS)
			x = (uint64_t)((int64_t)random_next(seed) >> (random_next(seed) & 63));
		else if (size == 4)
			x = fp_rand_operand(seed, 23, 8, near ? n : 0x3f800000);
		else if (size == 8)
			x = fp_rand_operand(seed, 52, 11, near ? n : 0x3ff0000000000000ULL);
		else
			x = fp_rand_operand(seed, 10, 5, near ? n : 0x3c00);
		oracle_put(to + i, x, (unsigned)size);
	}
}

static void test_form(const struct op *o, struct emu_form f, uint64_t *seed, unsigned *bad,
		      unsigned *done)
{
	static uint8_t mem_cpu[ORACLE_MEM_SIZE], mem_emu[ORACLE_MEM_SIZE];
	struct dj_regs in, cpu, emu;

	oracle_random_regs(&in, seed);
	for (int k = 0; k < PER_FORM && *bad < 20; k++) {
		struct code c;
		size_t at = (random_next(seed) & 63) * 32;
		bool tame = k % 3 == 0;

		encode(&c, o, f, seed);
		if (!(k & 15))
			oracle_random_regs(&in, seed);
		in.gpr[DJ_RBX] = ORACLE_MEM + at;
		if (o->is & GSRC && !f.mem && c.rm != 4)
			in.gpr[c.rm] =
				(uint64_t)((int64_t)random_next(seed) >> (random_next(seed) & 63));
		in.mxcsr = fp_rand_csr(seed);
		fill(in.ymm[c.reg], o, seed, NULL, tame);
		fill(in.ymm[c.vvvv], o, seed, in.ymm[c.reg], tame);
		fill(in.ymm[c.rm], o, seed, in.ymm[random_next(seed) & 1 ? c.reg : c.vvvv], tame);
		fill(mem_cpu + at + 32, o, seed, in.ymm[random_next(seed) & 1 ? c.reg : c.vvvv],
		     tame);
		memcpy(mem_emu + at + 32, mem_cpu + at + 32, 32);

		int signal = oracle_cpu(c.bytes, c.n, &in, &cpu, mem_cpu);
		int r = oracle_emu(c.bytes, c.n, &in, &emu, mem_emu);
		(*done)++;
		if (signal || r) {
			fprintf(stderr, "\n%s (vex %d l %d w %d mem %d): signal %d, emulator %d\n",
				o->name, f.vex, f.l, f.w, f.mem, signal, r);
			++*bad;
			return;
		}
		if (!oracle_same(o->name, c.bytes, c.n, &in, &cpu, &emu, DJ_REG_ALL & ~DJ_REG_X87,
				 DJ_FLAGS_ARITH, mem_cpu, mem_emu)) {
			fprintf(stderr, "mxcsr before %#x\n", in.mxcsr);
			++*bad;
			memcpy(mem_emu, mem_cpu, sizeof(mem_emu));
		}
	}
}

static void test_all(void)
{
	uint64_t seed = SEED;
	unsigned bad = 0, done = 0;

	if (!oracle_ready()) {
		printf("skipped: this CPU cannot tell ");
		return;
	}
	for (size_t k = 0; k < sizeof(ops) / sizeof(ops[0]); k++) {
		const struct op *o = &ops[k];
		for (unsigned n = 0; n < 16; n++) {
			struct emu_form f = { n & 1, n & 2, n & 4, n & 8 };
			if (!(o->is & (f.vex ? V : L)) || (f.l && !(f.vex && o->is & Y)))
				continue;
			if (f.w ? !(o->is & (W | W1)) : (o->is & W1) != 0)
				continue;
			unsigned before = bad;
			test_form(o, f, &seed, &bad, &done);
			if (bad - before > 3)
				bad = before + 3;
		}
	}
	printf("%u cases ", done);
	CU_ASSERT_EQUAL(bad, 0);
}

/* Which of several NaNs makers' processors choose, as each of them, whatever this runs on. */
static void test_kinds(void)
{
	static const uint8_t dppd[] = { 0x66, 0x0f, 0x3a, 0x41, 0xc1, 0xff };
	static const uint8_t dpps[] = { 0x66, 0x0f, 0x3a, 0x40, 0xc1, 0xff };
	const uint64_t nan = 0x7ff8000000000000;
	static const struct {
		uint64_t pd[2], ps[2];
	} want[2] = {
		{ { 0x7ff8000000000001, 0x7ff8000000000002 },
		  { 0x7fc000017fc00002, 0x7fc000037fc00004 } },
		{ { 0x7ff8000000000001, 0x7ff8000000000001 },
		  { 0x7fc000017fc00001, 0x7fc000017fc00001 } },
	};

	for (enum dj_cpu_kind kind = 0; kind < 2; kind++) {
		static struct emu e;
		struct insn in;
		struct emu_uop u;

		e.cpu.mxcsr = 0x1f80;
		CU_ASSERT(insn_decode_as(kind, &in, dppd, sizeof(dppd), 0) > 0 &&
			  emu_bind(&in, &u));
		e.cpu.v[0] = (union emu_vec){ .q = { nan + 1, nan + 2 } };
		e.cpu.v[1] = (union emu_vec){ .q = { 0 } };
		u.fn(&e, &u);
		CU_ASSERT(!memcmp(e.cpu.v[0].q, want[kind].pd, 16));
		CU_ASSERT(insn_decode_as(kind, &in, dpps, sizeof(dpps), 0) > 0 &&
			  emu_bind(&in, &u));
		e.cpu.v[0] = (union emu_vec){ .q = { 0x7fc000027fc00001, 0x7fc000047fc00003 } };
		u.fn(&e, &u);
		if (memcmp(e.cpu.v[0].q, want[kind].ps, 16))
			fprintf(stderr, "dpps as %u: %016llx %016llx\n", kind,
				(unsigned long long)e.cpu.v[0].q[1],
				(unsigned long long)e.cpu.v[0].q[0]);
		CU_ASSERT(!memcmp(e.cpu.v[0].q, want[kind].ps, 16));
	}
}

/* The oracle refers to the families weakly: this brings ours out of the library. */
emu_fn *(*const volatile test_emu_fp_family)(const struct insn *, struct emu_uop *) = emu_bind_fp;

int main(void)
{
	CU_pSuite suite;

	suites_begin();
	printf("seed %u\n", SEED);
	suite = CU_add_suite("emu-fp", NULL, NULL);
	CU_add_test(suite, "every instruction and form", test_all);
	CU_add_test(suite, "as either kind of processor", test_kinds);
	return suites_run();
}
