/*
 * The x87 emulation against the CPU: random instruction sequences from random states.
 *
 * States cover every kind of encoding (denormals, pseudo-denormals, unsupported ones, NaNs,
 * values next to the limits of all formats), all rounding and precision controls, any top
 * and any registers in use. With masked exceptions sequences of up to six instructions are
 * compared; with random masks single ones, and that the next waiting instruction faults.
 */
#include "tests/lib/oracle.h"

#include "insn/insn.h"
#include "emu/emu.h"
#include "emu/soft80.h"
#include "tests/lib/random.h"
#include "tests/lib/suites.h"

#include <CUnit/CUnit.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the oracle binds with is linked in because it is named here. */
emu_fn *(*const under_test)(const struct insn *in, struct emu_uop *u) = emu_bind_x87;

static uint64_t seed;

static uint64_t rnd(uint64_t n)
{
	return random_next(&seed) % n;
}

/* ---- values --------------------------------------------------------------------------- */

static uint64_t random_mantissa(void)
{
	uint64_t m = random_next(&seed);
	switch (rnd(6)) {
	case 0: /* few bits at the top */
		return m << rnd(64);
	case 1: /* ones to the end */
		return m | ~0ULL >> rnd(64);
	case 2: /* next to halfway in some precision */
		return (m & ~0xffffffffffULL) + (1ULL << 39) + rnd(3) - 1;
	case 3:
		return (m & ~0x7ffULL) + (1ULL << 10) + rnd(3) - 1;
	case 4:
		return rnd(2) ? ~0ULL - rnd(4) : S80_TOP + rnd(4);
	default:
		return m;
	}
}

static struct s80 random_s80(void)
{
	/* clang-format off */
	static const struct s80 special[] = {
		{ 0, 0 },
		{ S80_TOP, 0x3fff },		   /* 1 */
		{ S80_TOP, 0x7fff },		   /* infinity */
		{ 0xc000000000000000, 0x7fff },	   /* QNaN */
		{ 0x8000000000000001, 0x7fff },	   /* SNaN */
		{ 0xbfffffffffffffff, 0x7fff },	   /* SNaN */
		{ 1, 0 },			   /* denormals */
		{ S80_TOP - 1, 0 },
		{ S80_TOP, 0 },			   /* pseudo-denormals */
		{ 0xc000000000000001, 0 },
		{ S80_TOP, 1 },			   /* smallest normal */
		{ ~0ULL, 0x7ffe },		   /* largest */
		{ 0x4000000000000000, 0x4000 },	   /* unnormal */
		{ 0, 0x3fff },
		{ 0, 0x7fff },			   /* pseudo-infinity */
		{ 1, 0x7fff },			   /* pseudo-NaN */
		{ 0x4000000000000000, 0x7fff },
		{ 0xde0b6b3a76400000, 0x403a },	   /* 10^18 */
		{ 0xde0b6b3a763fffff, 0x403a },
	};
	/* clang-format on */
	struct s80 v = { .mant = random_mantissa() | S80_TOP };
	int exp;

	switch (rnd(12)) {
	case 0:
		v = special[rnd(sizeof(special) / sizeof(special[0]))];
		exp = v.se;
		break;
	case 1:
		return s80_from_int((int64_t)rnd(200) - 100);
	case 2: /* next to the ends of the range */
		exp = rnd(2) ? (int)rnd(70) : 0x7ffe - (int)rnd(70);
		if (exp == 0 && rnd(2))
			v.mant = random_mantissa() >> rnd(64);
		break;
	case 3: /* and to those of double and single precision */
		exp = 0x3fff + (rnd(2) ? 1 : -1) * (int)(rnd(2) ? 1015 + rnd(75) : 120 + rnd(40));
		break;
	case 4: /* and of integers */
		exp = 0x3fff + (int[]){ 15, 31, 59, 63 }[rnd(4)] - 1 + (int)rnd(3) - 1;
		break;
	case 5:
		exp = 0x7fff;
		v.mant = random_mantissa() | (rnd(8) ? S80_TOP : 0);
		break;
	case 6:
		exp = (int)rnd(0x8000);
		v.mant = random_mantissa();
		break;
	case 7: /* what FSCALE multiplies by */
		exp = 0x3fff + (int)rnd(20);
		break;
	case 8: /* anywhere */
		exp = 1 + (int)rnd(0x7ffe);
		break;
	default:
		exp = 0x3fff + (int)rnd(140) - 70;
		break;
	}
	v.se = (uint16_t)(exp | rnd(2) << 15);
	return v;
}

static void random_x87(struct dj_regs *r)
{
	for (int i = 0; i < 8; i++) {
		struct s80 v = random_s80();
		if (i && rnd(6) == 0) { /* the neighbour's value, or nearly: sums cancel */
			v.mant = r->st_mant[i - 1] + (rnd(2) ? rnd(3) - 1 : 0);
			v.se = (uint16_t)(r->st_exp[i - 1] ^ rnd(2) << 15);
			if (rnd(4) == 0)
				v.se = (uint16_t)((v.se & 0x8000) | ((v.se + rnd(3) - 1) & 0x7fff));
		}
		r->st_mant[i] = v.mant;
		r->st_exp[i] = v.se;
	}
	r->ftw = rnd(2) ? 0xff : rnd(4) == 0 ? (uint8_t)random_next(&seed) : 0xff << rnd(9);
	r->fsw = (uint16_t)((random_next(&seed) & 0x7f00) |
			    (rnd(2) ? random_next(&seed) & 0x7f : 0));
	r->fcw = (uint16_t)(0x7f | rnd(4) << 8 | rnd(4) << 10 | rnd(2) << 12);
	if (rnd(2))
		r->fcw |= 0x300;
}

/* A memory operand, written in one of the formats. */
static void random_operand(uint8_t *at)
{
	struct s80_ctx c = { .cw = 0x37f };
	struct s80 v = random_s80();
	uint64_t bits = random_next(&seed);

	memset(at, 0, 16);
	switch (rnd(7)) {
	case 0:
		bits = s80_to_f32(&c, v);
		oracle_put(at, bits, 4);
		break;
	case 1: /* shape of single precision next to its limits */
		bits = (bits & 0x807fffff) | (uint64_t[]){ 0, 1, 0xfe, 0xff, 0x7f }[rnd(5)] << 23;
		oracle_put(at, bits, 4);
		break;
	case 2:
		bits = (bits & 0x800fffffffffffff) |
		       (uint64_t[]){ 0, 1, 0x7fe, 0x7ff, 0x3ff }[rnd(5)] << 52;
		oracle_put(at, bits, 8);
		break;
	case 3:
		bits = s80_to_f64(&c, v);
		oracle_put(at, bits, 8);
		break;
	case 4:
		bits >>= rnd(64);
		bits = rnd(2) ? bits : -bits;
		oracle_put(at, bits, 8);
		break;
	case 5:
		s80_to_bcd(
			&c,
			s80_from_int((int64_t)(bits % 2000000000000000000) - 1000000000000000000),
			at);
		break;
	default:
		oracle_put(at, v.mant, 8);
		oracle_put(at + 8, v.se, 2);
	}
}

/* ---- instructions ---------------------------------------------------------------------- */

/* Memory forms that exist and are emulated, by opcode - 0xd8: bits of the reg field. */
static const uint8_t memory_forms[8] = { 0xff, 0x8d, 0xff, 0xaf, 0xff, 0x8f, 0xff, 0xef };

/* Register forms: ranges of modrm. */
static const struct {
	uint8_t opcode, first, last;
	/* clang-format off */
} register_forms[] = {
	{ 0xd8, 0xc0, 0xff }, { 0xd9, 0xc0, 0xd0 }, { 0xd9, 0xe0, 0xe1 }, { 0xd9, 0xe4, 0xe5 },
	{ 0xd9, 0xe8, 0xee }, { 0xd9, 0xf4, 0xf8 }, { 0xd9, 0xfa, 0xfa }, { 0xd9, 0xfc, 0xfd },
	{ 0xda, 0xc0, 0xdf }, { 0xda, 0xe9, 0xe9 }, { 0xdb, 0xc0, 0xdf }, { 0xdb, 0xe2, 0xe3 },
	{ 0xdb, 0xe8, 0xf7 }, { 0xdc, 0xc0, 0xcf }, { 0xdc, 0xe0, 0xff }, { 0xdd, 0xc0, 0xc7 },
	{ 0xdd, 0xd0, 0xef }, { 0xde, 0xc0, 0xcf }, { 0xde, 0xd9, 0xd9 }, { 0xde, 0xe0, 0xff },
	{ 0xdf, 0xc0, 0xc7 }, { 0xdf, 0xe0, 0xe0 }, { 0xdf, 0xe8, 0xf7 },
	/* second encodings */
	{ 0xd9, 0xd8, 0xdf }, { 0xdb, 0xe0, 0xe1 }, { 0xdb, 0xe4, 0xe4 }, { 0xdc, 0xd0, 0xdf },
	{ 0xdd, 0xc8, 0xcf }, { 0xde, 0xd0, 0xd7 }, { 0xdf, 0xc8, 0xdf },
};
/* clang-format on */

static bool is_fldcw(const uint8_t *code)
{
	return code[0] == 0xd9 && code[1] >> 3 == 5;
}

/* Append a random instruction; its operand, if in memory, is put into slot `n` of mem. */
static size_t random_insn(uint8_t *code, uint8_t *mem, unsigned n)
{
	unsigned opcode = 0xd8 + (unsigned)rnd(8), reg = (unsigned)rnd(8);
	uint32_t addr = (uint32_t)(ORACLE_MEM + 16 * n);

	if (rnd(2) && (memory_forms[opcode - 0xd8] >> reg & 1)) {
		code[0] = (uint8_t)opcode;
		code[1] = (uint8_t)(reg << 3 | 4);
		code[2] = 0x25;
		oracle_put(code + 3, addr, 4);
		random_operand(mem + 16 * n);
		if (is_fldcw(code))
			mem[16 * n] |= 0x3f;
		return 7;
	}
	size_t k = rnd(sizeof(register_forms) / sizeof(register_forms[0]));
	code[0] = register_forms[k].opcode;
	code[1] = (uint8_t)(register_forms[k].first +
			    rnd(register_forms[k].last - register_forms[k].first + 1u));
	return 2;
}

#define COMPARED (DJ_REG_X87 | DJ_REG_RFLAGS | DJ_REG_GPR(DJ_RAX) | DJ_REG_MXCSR | 0xffffULL << 32)

static unsigned failures;

/* Each kind of instruction is shown only a few times. */
static bool shown_enough(const uint8_t *code)
{
	static uint8_t shown[256][256];
	return shown[code[0]][code[1] & 0xf8]++ >= 1;
}

static bool same(const struct dj_regs *a, const struct dj_regs *b)
{
	return !(dj_regs_diff(a, b) & COMPARED & ~DJ_REG_RFLAGS) &&
	       !((a->rflags ^ b->rflags) & DJ_FLAGS_ARITH);
}

/* A memory operand that is read is read once, whatever happens. */
static bool loads_right(const uint8_t *code, size_t n)
{
	struct insn insn;
	if (insn_decode(&insn, code, n, ORACLE_CODE) != (int)n)
		return true;
	return oracle_emu_loads == (insn.has_mem && (insn.mem_access & INSN_R));
}

static void one(const uint8_t *code, size_t n, const struct dj_regs *in, const uint8_t *mem,
		const char *what)
{
	static uint8_t mem_cpu[ORACLE_MEM_SIZE], mem_emu[ORACLE_MEM_SIZE];
	struct dj_regs cpu, emu;

	memcpy(mem_cpu, mem, ORACLE_MEM_SIZE);
	memcpy(mem_emu, mem, ORACLE_MEM_SIZE);
	int sig = oracle_cpu(code, n, in, &cpu, mem_cpu);
	int raised = oracle_emu(code, n, in, &emu, mem_emu);
	if (sig || raised) {
		if (sig == SIGFPE && raised)
			return;
	} else {
		emu.fop = cpu.fop;
		emu.fip = cpu.fip;
		emu.fdp = cpu.fdp;
		if (!loads_right(code, n))
			fprintf(stderr, "%s: %u loads\n", what, oracle_emu_loads);
		else if (same(&cpu, &emu) && !memcmp(mem_cpu, mem_emu, 256))
			return;
	}
	failures++;
	if (shown_enough(code))
		return;
	if (sig || raised)
		fprintf(stderr, "%s [%02x %02x .. %02x %02x]: signal %d, emulator %s\n", what,
			code[0], code[1], code[n - 2], code[n - 1], sig, raised ? "raised" : "ran");
	else
		oracle_same(what, code, n, in, &cpu, &emu, COMPARED, DJ_FLAGS_ARITH, mem_cpu,
			    mem_emu);
	if (!sig)
		fprintf(stderr, "    fsw: cpu %#x, emulator %#x; operand %02x%02x%016llx\n",
			cpu.fsw, raised ? 0 : emu.fsw, mem[9], mem[8],
			*(const unsigned long long *)mem);
}

static void random_state(struct dj_regs *in)
{
	oracle_random_regs(in, &seed);
	random_x87(in);
}

static unsigned cases(unsigned n)
{
	const char *factor = getenv("DEJA_TEST_FACTOR");
	return factor ? n * (unsigned)atoi(factor) : n;
}

static void test_single(void)
{
	static uint8_t mem[ORACLE_MEM_SIZE];
	uint8_t code[16];
	struct dj_regs in;

	for (unsigned i = cases(300000); i; i--) {
		random_state(&in);
		size_t n = random_insn(code, mem, 0);
		one(code, n, &in, mem, "one instruction");
	}
	CU_ASSERT_EQUAL(failures, 0);
	failures = 0;
}

static void test_sequences(void)
{
	static uint8_t mem[ORACLE_MEM_SIZE];
	uint8_t code[64];
	struct dj_regs in;

	for (unsigned i = cases(100000); i; i--) {
		size_t n = 0;
		random_state(&in);
		for (unsigned k = 0, last = 2 + (unsigned)rnd(5); k < last; k++)
			n += random_insn(code + n, mem, k);
		one(code, n, &in, mem, "sequence");
	}
	CU_ASSERT_EQUAL(failures, 0);
	failures = 0;
}

/* Random masks; then perhaps an instruction that waits or does not. */
static void test_unmasked(void)
{
	static uint8_t mem[ORACLE_MEM_SIZE];
	uint8_t code[16];
	struct dj_regs in;

	for (unsigned i = cases(200000); i; i--) {
		random_state(&in);
		in.fcw ^= (uint16_t)rnd(64);
		in.fsw &= (uint16_t) ~(0x3f & ~in.fcw);
		size_t n = random_insn(code, mem, 0);
		one(code, n, &in, mem, "unmasked");
		if (i % 4 == 0) {
			n += i % 16 ? random_insn(code + n, mem, 1) : 1;
			if (i % 16 == 0)
				code[n - 1] = 0x9b;
			one(code, n, &in, mem, "unmasked, then another");
		}
	}
	CU_ASSERT_EQUAL(failures, 0);
	failures = 0;
}

/* FLDCW makes flags pending that were masked so far, or the other way round. */
static void test_fldcw(void)
{
	static uint8_t mem[ORACLE_MEM_SIZE];
	static const uint8_t fldcw[] = { 0xd9, 0x2c, 0x25, 0, 0, 0, 0x10 };
	struct dj_regs in;

	for (unsigned i = cases(5000); i; i--) {
		uint16_t cw = (uint16_t)random_next(&seed);
		random_state(&in);
		oracle_put(mem, cw, 2);
		one(fldcw, sizeof(fldcw), &in, mem, "fldcw");
	}
	CU_ASSERT_EQUAL(failures, 0);
	failures = 0;
}

/* The MMX instructions that emu_bind_x87() is responsible for. */
static void test_mmx(void)
{
	static const struct {
		uint8_t prefix, opcode, mem; /* mem: 0 never, 1 may be, 2 always in memory */
		uint8_t imm;
		/* clang-format off */
	} forms[] = {
		{ 0, 0x77, 0, 0 },    { 0, 0xe7, 2, 0 },    { 0, 0xf7, 0, 0 },	  { 0xf2, 0xd6, 0, 0 },
		{ 0xf3, 0xd6, 0, 0 }, { 0, 0x70, 1, 1 },    { 0, 0x2a, 1, 0 },	  { 0x66, 0x2a, 1, 0 },
		{ 0, 0x2c, 1, 0 },    { 0x66, 0x2c, 1, 0 }, { 0, 0x2d, 1, 0 },	  { 0x66, 0x2d, 1, 0 },
	};
	/* clang-format on */
	static uint8_t mem[ORACLE_MEM_SIZE];
	const uint32_t addr = ORACLE_MEM;
	struct dj_regs in;

	for (unsigned i = cases(100000); i; i--) {
		size_t k = rnd(sizeof(forms) / sizeof(forms[0])), n = 0;
		bool to_mem = forms[k].mem == 2 || (forms[k].mem && rnd(2));
		uint8_t code[16];

		random_state(&in);
		for (int r = 0; r < 8; r++)
			if (rnd(2)) /* floating-point patterns to convert */
				in.st_mant[r] = oracle_get(in.ymm[rnd(16)], 8);
		in.gpr[DJ_RDI] = addr + rnd(40);
		memcpy(mem, in.ymm[rnd(16)], 16);
		in.mxcsr = 0x1f80 | (uint32_t)rnd(4) << 13 | (rnd(4) ? 0 : (uint32_t)rnd(64));
		if (rnd(4) == 0)
			in.mxcsr ^= (uint32_t)rnd(64) << 7;
		if (rnd(16) == 0) {
			in.fcw ^= (uint16_t)rnd(64);
			if (in.fsw & ~in.fcw & 0x3f)
				in.fsw |= 0x8080;
		}
		if (forms[k].prefix)
			code[n++] = forms[k].prefix;
		if (rnd(3) == 0)
			code[n++] = (uint8_t)(0x40 + (rnd(8) & 5)); /* REX.X would add an index */
		code[n++] = 0x0f;
		code[n++] = forms[k].opcode;
		if (to_mem) {
			code[n++] = (uint8_t)(rnd(8) << 3 | 4);
			code[n++] = 0x25;
			oracle_put(code + n, addr, 4);
			n += 4;
		} else if (forms[k].opcode != 0x77) {
			code[n++] = (uint8_t)(0xc0 + rnd(64));
		}
		if (forms[k].imm)
			code[n++] = (uint8_t)rnd(256);
		one(code, n, &in, mem, "mmx");
	}
	CU_ASSERT_EQUAL(failures, 0);
	failures = 0;
}

int main(void)
{
	if (!oracle_ready()) {
		printf("this CPU cannot answer\n");
		return 77;
	}
	const char *other = getenv("DEJA_TEST_SEED");
	seed = other ? strtoull(other, NULL, 0) : 0x8087;
	printf("seed %#llx\n", (unsigned long long)seed);
	suites_begin();
	CU_pSuite s = CU_add_suite("x87", NULL, NULL);
	CU_add_test(s, "single instructions", test_single);
	CU_add_test(s, "sequences", test_sequences);
	CU_add_test(s, "unmasked exceptions", test_unmasked);
	CU_add_test(s, "fldcw", test_fldcw);
	CU_add_test(s, "mmx", test_mmx);
	return suites_run();
}
