/*
 * x87 arithmetic and comparison: add, subtract, multiply, divide in all their forms, FCOM and
 * its kin, and the operations on ST(0) and ST(1) alone (square root, remainder, scale...).
 *
 * Relies on soft80.h for the numbers and on emu-x87.h for the order in which an instruction
 * checks, computes and writes. Semantics after Intel's SDM vol. 1 chapter 8 and vol. 2.
 */
#include "emu/emu-flags.h"
#include "emu/emu-x87.h"

/* ---- two operands ------------------------------------------------------------------------- */

typedef struct s80 binary_fn(struct s80_ctx *c, struct s80 a, struct s80 b);

static struct s80 subr(struct s80_ctx *c, struct s80 a, struct s80 b)
{
	return s80_sub(c, b, a);
}

static struct s80 divr(struct s80_ctx *c, struct s80 a, struct s80 b)
{
	return s80_div(c, b, a);
}

/* dst = dst op src, both registers; then pop if asked. */
static inline __attribute__((always_inline)) void registers(struct emu *e, binary_fn *op,
							    unsigned dst, unsigned src, bool pop)
{
	struct emu_cpu *cpu = &e->cpu;
	struct s80_ctx c = emu_x87_ctx(cpu);
	struct s80 r = S80_INDEFINITE;

	emu_x87_wait(e);
	if (__builtin_expect(emu_x87_empty(cpu, dst) || emu_x87_empty(cpu, src), 0))
		c.fl = X87_UNDERFLOW;
	else
		r = op(&c, emu_x87_get(cpu, dst), emu_x87_get(cpu, src));
	if (!emu_x87_done(cpu, c.fl))
		return;
	emu_x87_put(cpu, dst, r);
	if (pop)
		emu_x87_pop(cpu);
}

/* ST(0) = ST(0) op v, a loaded memory operand. */
static inline __attribute__((always_inline)) void memory(struct emu *e, binary_fn *op,
							 struct s80_ctx *c, struct s80 v)
{
	struct emu_cpu *cpu = &e->cpu;
	struct s80 r = S80_INDEFINITE;

	if (__builtin_expect(emu_x87_empty(cpu, 0), 0))
		c->fl = X87_UNDERFLOW;
	else
		r = op(c, emu_x87_get(cpu, 0), v);
	if (emu_x87_done(cpu, c->fl))
		emu_x87_put(cpu, 0, r);
}

/* What follows needs `c`, a context, and takes its operand from memory. */
#define LOAD_m32(c)  s80_from_f32(c, emu_load32(e, emu_ea(e, u)))
#define LOAD_m64(c)  s80_from_f64(c, emu_load64(e, emu_ea(e, u)))
#define LOAD_m16i(c) s80_from_int((int16_t)emu_load16(e, emu_ea(e, u)))
#define LOAD_m32i(c) s80_from_int((int32_t)emu_load32(e, emu_ea(e, u)))

#define MEMORY(name, op, kind)                                                                     \
	static void name##_##kind(struct emu *e, const struct emu_uop *u)                          \
	{                                                                                          \
		struct s80_ctx c = emu_x87_ctx(&e->cpu);                                           \
		emu_x87_wait(e);                                                                   \
		struct s80 v = LOAD_##kind(&c);                                                    \
		memory(e, op, &c, v);                                                              \
	}

#define BINARY(name, op)                                                                           \
	static void name##_st0_sti(struct emu *e, const struct emu_uop *u)                         \
	{                                                                                          \
		registers(e, op, 0, u->a, false);                                                  \
	}                                                                                          \
	static void name##_sti_st0(struct emu *e, const struct emu_uop *u)                         \
	{                                                                                          \
		registers(e, op, u->a, 0, false);                                                  \
	}                                                                                          \
	static void name##_pop(struct emu *e, const struct emu_uop *u)                             \
	{                                                                                          \
		registers(e, op, u->a, 0, true);                                                   \
	}                                                                                          \
	MEMORY(name, op, m32)                                                                      \
	MEMORY(name, op, m64)                                                                      \
	MEMORY(name, op, m16i)                                                                     \
	MEMORY(name, op, m32i)

BINARY(fadd, s80_add)
BINARY(fmul, s80_mul)
BINARY(fsub, s80_sub)
BINARY(fsubr, subr)
BINARY(fdiv, s80_div)
BINARY(fdivr, divr)

/* ---- comparison ------------------------------------------------------------------------------ */

static inline void pops(struct emu_cpu *cpu, unsigned n)
{
	while (n--)
		emu_x87_pop(cpu);
}

/* Set C3, C2, C0. */
static inline void set_cc(struct emu_cpu *cpu, unsigned cc)
{
	cpu->fsw = (uint16_t)((cpu->fsw & ~(S80_C3 | S80_C2 | S80_C0)) | cc);
}

static inline void compare(struct emu *e, struct s80_ctx *c, bool empty, struct s80 v, bool quiet,
			   unsigned npop)
{
	struct emu_cpu *cpu = &e->cpu;
	unsigned cc = S80_C3 | S80_C2 | S80_C0;

	if (__builtin_expect(empty || emu_x87_empty(cpu, 0), 0))
		c->fl = X87_UNDERFLOW;
	else
		cc = s80_compare(c, emu_x87_get(cpu, 0), v, quiet);
	/* The condition codes are set even if an unmasked exception keeps it from popping. */
	bool good = emu_x87_done(cpu, c->fl);
	set_cc(cpu, cc);
	if (good)
		pops(cpu, npop);
}

/* u->a: register, u->b: how many to pop, u->c: quiet */
static void compare_reg(struct emu *e, const struct emu_uop *u)
{
	struct s80_ctx c = emu_x87_ctx(&e->cpu);
	emu_x87_wait(e);
	compare(e, &c, emu_x87_empty(&e->cpu, u->a), emu_x87_get(&e->cpu, u->a), u->c, u->b);
}

#define COMPARE_MEMORY(kind)                                                                       \
	static void compare_##kind(struct emu *e, const struct emu_uop *u)                         \
	{                                                                                          \
		struct s80_ctx c = emu_x87_ctx(&e->cpu);                                           \
		emu_x87_wait(e);                                                                   \
		struct s80 v = LOAD_##kind(&c);                                                    \
		compare(e, &c, false, v, false, u->b);                                             \
	}
COMPARE_MEMORY(m32)
COMPARE_MEMORY(m64)
COMPARE_MEMORY(m16i)
COMPARE_MEMORY(m32i)

static void ftst(struct emu *e, const struct emu_uop *u)
{
	struct s80_ctx c = emu_x87_ctx(&e->cpu);
	(void)u;
	emu_x87_wait(e);
	compare(e, &c, false, s80_make(false, 0, 0), false, 0);
}

/* FCOMI, FUCOMI: the result goes to ZF, PF, CF; the other arithmetic flags become 0. C1 is
 * left alone but for a stack fault (measured). */
static void compare_flags(struct emu *e, const struct emu_uop *u)
{
	struct emu_cpu *cpu = &e->cpu;
	struct s80_ctx c = emu_x87_ctx(cpu);
	unsigned cc = S80_C3 | S80_C2 | S80_C0;

	emu_x87_wait(e);
	if (__builtin_expect(emu_x87_empty(cpu, 0) || emu_x87_empty(cpu, u->a), 0))
		c.fl = X87_UNDERFLOW;
	else
		cc = s80_compare(&c, emu_x87_get(cpu, 0), emu_x87_get(cpu, u->a), u->c);
	if (!(c.fl & S80_SF))
		c.fl |= cpu->fsw & S80_C1;
	bool good = emu_x87_done(cpu, c.fl);
	emu_set_flags(e, (cc & S80_C3 ? DJ_FLAG_ZF : 0) | (cc & S80_C2 ? DJ_FLAG_PF : 0) |
				 (cc & S80_C0 ? DJ_FLAG_CF : 0));
	if (good)
		pops(cpu, u->b);
}

static void fxam(struct emu *e, const struct emu_uop *u)
{
	struct emu_cpu *cpu = &e->cpu;
	struct s80 v = emu_x87_get(cpu, 0);
	unsigned cc;

	(void)u;
	emu_x87_wait(e);
	if (emu_x87_empty(cpu, 0)) /* the sign is told all the same */
		cc = S80_C3 | S80_C0 | (v.se >> 15 ? S80_C1 : 0);
	else
		cc = s80_examine(v);
	cpu->fsw = (uint16_t)((cpu->fsw & ~X87_CC) | cc);
}

/* ---- ST(0) alone, ST(0) with ST(1) --------------------------------------------------------- */

typedef struct s80 unary_fn(struct s80_ctx *c, struct s80 a);

static inline void unary(struct emu *e, unary_fn *op)
{
	struct emu_cpu *cpu = &e->cpu;
	struct s80_ctx c = emu_x87_ctx(cpu);
	struct s80 r = S80_INDEFINITE;

	emu_x87_wait(e);
	if (__builtin_expect(emu_x87_empty(cpu, 0), 0))
		c.fl = X87_UNDERFLOW;
	else
		r = op(&c, emu_x87_get(cpu, 0));
	if (emu_x87_done(cpu, c.fl))
		emu_x87_put(cpu, 0, r);
}

static struct s80 change_sign(struct s80_ctx *c, struct s80 a)
{
	(void)c;
	a.se ^= 0x8000;
	return a;
}

static struct s80 absolute(struct s80_ctx *c, struct s80 a)
{
	(void)c;
	a.se &= 0x7fff;
	return a;
}

#define UNARY(name, op)                                                                            \
	static void name(struct emu *e, const struct emu_uop *u)                                   \
	{                                                                                          \
		(void)u;                                                                           \
		unary(e, op);                                                                      \
	}
UNARY(fchs, change_sign)
UNARY(fabs_st0, absolute)
UNARY(fsqrt, s80_sqrt)
UNARY(frndint, s80_round_int)

static void fscale(struct emu *e, const struct emu_uop *u)
{
	(void)u;
	registers(e, s80_scale, 0, 1, false);
}

static inline void remainder_of(struct emu *e, bool nearest)
{
	struct emu_cpu *cpu = &e->cpu;
	struct s80_ctx c = emu_x87_ctx(cpu);
	struct s80 r = S80_INDEFINITE;
	unsigned cc = cpu->fsw & (S80_C0 | S80_C3); /* kept if there is no quotient (measured) */

	emu_x87_wait(e);
	if (__builtin_expect(emu_x87_empty(cpu, 0) || emu_x87_empty(cpu, 1), 0))
		c.fl = X87_UNDERFLOW;
	else
		r = s80_remainder(&c, emu_x87_get(cpu, 0), emu_x87_get(cpu, 1), nearest, &cc);
	bool good = emu_x87_done(cpu, c.fl);
	cpu->fsw = (uint16_t)((cpu->fsw & ~X87_CC) | cc);
	if (good)
		emu_x87_put(cpu, 0, r);
}

static void fprem(struct emu *e, const struct emu_uop *u)
{
	(void)u;
	remainder_of(e, false);
}

static void fprem1(struct emu *e, const struct emu_uop *u)
{
	(void)u;
	remainder_of(e, true);
}

static void fxtract(struct emu *e, const struct emu_uop *u)
{
	struct emu_cpu *cpu = &e->cpu;
	struct s80_ctx c = emu_x87_ctx(cpu);
	struct s80 r = S80_INDEFINITE, exponent = S80_INDEFINITE;

	(void)u;
	emu_x87_wait(e);
	if (emu_x87_empty(cpu, 0))
		c.fl = X87_UNDERFLOW;
	else if (!emu_x87_empty(cpu, 7))
		c.fl = X87_OVERFLOW;
	else
		r = s80_extract(&c, emu_x87_get(cpu, 0), &exponent);
	if (emu_x87_done(cpu, c.fl)) {
		emu_x87_put(cpu, 0, exponent);
		emu_x87_push(cpu, r);
	}
}

/* ---- binding -------------------------------------------------------------------------------- */

/* Arithmetic by form; rows in the order of the reg field of modrm (SDM vol. 2 appendix A.5). */
#define ROW(form)                                                                                  \
	{                                                                                          \
		fadd_##form, fmul_##form, NULL, NULL, fsub_##form, fsubr_##form, fdiv_##form,      \
			fdivr_##form                                                               \
	}
/* With ST(i) as destination the opcodes of the reversed forms change places. */
#define ROW_STI(form)                                                                              \
	{                                                                                          \
		fadd_##form, fmul_##form, NULL, NULL, fsubr_##form, fsub_##form, fdivr_##form,     \
			fdiv_##form                                                                \
	}
static emu_fn *const memory_forms[4][8] = { ROW(m32), ROW(m32i), ROW(m64), ROW(m16i) };
static emu_fn *const memory_compares[4] = { compare_m32, compare_m32i, compare_m64, compare_m16i };
static emu_fn *const st0_forms[8] = ROW(st0_sti);
static emu_fn *const sti_forms[8] = ROW_STI(sti_st0);
static emu_fn *const pop_forms[8] = ROW_STI(pop);

/* Comparisons of registers: what they pop, whether quiet, where the result goes. */
static const struct {
	uint16_t id;
	uint8_t pops;
	bool quiet;
	emu_fn *fn;
	/* clang-format off */
} compares[] = {
	{ INSN_FCOM, 0, false, compare_reg },	 { INSN_FCOMP, 1, false, compare_reg },
	{ INSN_FCOMPP, 2, false, compare_reg },	 { INSN_FUCOM, 0, true, compare_reg },
	{ INSN_FUCOMP, 1, true, compare_reg },	 { INSN_FUCOMPP, 2, true, compare_reg },
	{ INSN_FCOMI, 0, false, compare_flags }, { INSN_FCOMIP, 1, false, compare_flags },
	{ INSN_FUCOMI, 0, true, compare_flags }, { INSN_FUCOMIP, 1, true, compare_flags },
};
/* clang-format on */

static const struct {
	uint16_t id;
	emu_fn *fn;
	/* clang-format off */
} plain[] = {
	{ INSN_FTST, ftst },	   { INSN_FXAM, fxam },	    { INSN_FCHS, fchs },
	{ INSN_FABS, fabs_st0 },   { INSN_FSQRT, fsqrt },   { INSN_FRNDINT, frndint },
	{ INSN_FSCALE, fscale },   { INSN_FPREM, fprem },   { INSN_FPREM1, fprem1 },
	{ INSN_FXTRACT, fxtract },
};
/* clang-format on */

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

emu_fn *emu_x87_bind_arith(const struct insn *in, struct emu_uop *u)
{
	unsigned op = in->opcode & 7, reg = in->modrm >> 3 & 7;

	u->a = in->modrm & 7;
	for (size_t i = 0; i < COUNT(plain); i++)
		if (plain[i].id == in->id)
			return plain[i].fn;
	if (in->has_mem) {
		/* D8, DA, DC, DE have memory operands of one kind each. */
		if (op & 1)
			return NULL;
		u->b = reg == 3;
		return reg == 2 || reg == 3 ? memory_compares[op >> 1] : memory_forms[op >> 1][reg];
	}
	for (size_t i = 0; i < COUNT(compares); i++) {
		if (compares[i].id == in->id) {
			u->b = compares[i].pops;
			u->c = compares[i].quiet;
			return compares[i].fn;
		}
	}
	switch (in->opcode) {
	case 0xd8:
		return st0_forms[reg];
	case 0xdc:
		return sti_forms[reg];
	case 0xde:
		return pop_forms[reg];
	default:
		return NULL;
	}
}
