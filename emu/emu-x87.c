/*
 * x87 loads, stores, moves between registers, and control; and the binder of all x87 and
 * MMX-only instructions.
 *
 * Not bound, and so recorded by their side effects: the transcendentals (their last
 * bit differs between CPUs) and the instructions that load or store the whole
 * environment. Semantics after Intel's SDM vol. 1 chapter 8 and vol. 2.
 */
#include "emu/emu-flags.h"
#include "emu/emu-x87.h"

/* ---- loads ------------------------------------------------------------------------------- */

/* Push `v`, in which `fl` was raised, unless the stack is full. An unmasked DE does not
 * keep it from being pushed (measured). */
static inline void push_checked(struct emu *e, unsigned fl, struct s80 v)
{
	struct emu_cpu *cpu = &e->cpu;

	if (__builtin_expect(!emu_x87_empty(cpu, 7), 0)) {
		fl = X87_OVERFLOW;
		v = S80_INDEFINITE;
	}
	if (emu_x87_done(cpu, fl) || !(fl & ~cpu->fcw & S80_IE))
		emu_x87_push(cpu, v);
}

#define LOAD(name, expr)                                                                           \
	static void name(struct emu *e, const struct emu_uop *u)                                   \
	{                                                                                          \
		struct s80_ctx c = emu_x87_ctx(&e->cpu);                                           \
		emu_x87_wait(e);                                                                   \
		struct s80 v = expr;                                                               \
		push_checked(e, c.fl, v);                                                          \
	}
LOAD(fld_m32, s80_loaded(&c, s80_from_f32(&c, emu_load32(e, emu_ea(e, u)))))
LOAD(fld_m64, s80_loaded(&c, s80_from_f64(&c, emu_load64(e, emu_ea(e, u)))))
LOAD(fild_m16, s80_from_int((int16_t)emu_load16(e, emu_ea(e, u))))
LOAD(fild_m32, s80_from_int((int32_t)emu_load32(e, emu_ea(e, u))))
LOAD(fild_m64, s80_from_int((int64_t)emu_load64(e, emu_ea(e, u))))
LOAD(fbld, s80_from_bcd(emu_load_ptr(e, emu_ea(e, u), 10)))
LOAD(fld_constant, s80_constant(e->cpu.fcw, u->a))

static void fld_m80(struct emu *e, const struct emu_uop *u)
{
	struct s80 v;

	emu_x87_wait(e);
	const uint8_t *p = emu_load_ptr(e, emu_ea(e, u), 10);
	memcpy(&v.mant, p, 8);
	memcpy(&v.se, p + 8, 2);
	v.mant = le64toh(v.mant);
	v.se = le16toh(v.se);
	push_checked(e, 0, v);
}

static void fld_sti(struct emu *e, const struct emu_uop *u)
{
	emu_x87_wait(e);
	if (__builtin_expect(!emu_x87_empty(&e->cpu, u->a), 1))
		push_checked(e, 0, emu_x87_get(&e->cpu, u->a));
	else if (emu_x87_done(&e->cpu, X87_UNDERFLOW)) /* before overflow (measured) */
		emu_x87_push(&e->cpu, S80_INDEFINITE);
}

/* ---- stores ------------------------------------------------------------------------------ */

/* Nothing is stored or popped if an exception other than PE is unmasked. */
static inline bool storable(struct emu *e, unsigned fl)
{
	bool stores = !(fl & ~e->cpu.fcw & (S80_IE | S80_OE | S80_UE));

	if (!stores)
		fl &= ~(unsigned)(S80_PE | S80_C1);
	emu_x87_done(&e->cpu, fl);
	return stores;
}

/* ST(0) to memory: `convert` for a register in use, `indefinite` for an empty one. u->b: pop */
#define STORE(name, type, store, convert, indefinite)                                              \
	static void name(struct emu *e, const struct emu_uop *u)                                   \
	{                                                                                          \
		struct s80_ctx c = emu_x87_ctx(&e->cpu);                                           \
		type v = (type)(indefinite);                                                       \
		emu_x87_wait(e);                                                                   \
		if (__builtin_expect(emu_x87_empty(&e->cpu, 0), 0))                                \
			c.fl = X87_UNDERFLOW;                                                      \
		else                                                                               \
			v = (type)(convert);                                                       \
		if (storable(e, c.fl)) {                                                           \
			store(e, emu_ea(e, u), v);                                                 \
			if (u->b)                                                                  \
				emu_x87_pop(&e->cpu);                                              \
		}                                                                                  \
	}
STORE(fst_m32, uint32_t, emu_store32, s80_to_f32(&c, emu_x87_get(&e->cpu, 0)), 0xffc00000)
STORE(fst_m64, uint64_t, emu_store64, s80_to_f64(&c, emu_x87_get(&e->cpu, 0)), 0xfff8000000000000)
STORE(fist_m16, uint16_t, emu_store16, s80_to_int(&c, emu_x87_get(&e->cpu, 0), 16, u->c), 0x8000)
STORE(fist_m32, uint32_t, emu_store32, s80_to_int(&c, emu_x87_get(&e->cpu, 0), 32, u->c),
      0x80000000)
STORE(fist_m64, uint64_t, emu_store64, s80_to_int(&c, emu_x87_get(&e->cpu, 0), 64, u->c),
      1ULL << 63)

static void fstp_m80(struct emu *e, const struct emu_uop *u)
{
	struct s80 v = S80_INDEFINITE;
	uint8_t bytes[10];
	unsigned fl = 0;

	emu_x87_wait(e);
	if (__builtin_expect(emu_x87_empty(&e->cpu, 0), 0))
		fl = X87_UNDERFLOW;
	else
		v = emu_x87_get(&e->cpu, 0);
	if (!storable(e, fl))
		return;
	v.mant = htole64(v.mant);
	v.se = htole16(v.se);
	memcpy(bytes, &v.mant, 8);
	memcpy(bytes + 8, &v.se, 2);
	emu_store(e, emu_ea(e, u), bytes, 10);
	emu_x87_pop(&e->cpu);
}

static void fbstp(struct emu *e, const struct emu_uop *u)
{
	struct s80_ctx c = emu_x87_ctx(&e->cpu);
	uint8_t bcd[10];

	emu_x87_wait(e);
	if (emu_x87_empty(&e->cpu, 0)) {
		s80_to_bcd(&c, S80_INDEFINITE, bcd);
		c.fl = X87_UNDERFLOW;
	} else {
		s80_to_bcd(&c, emu_x87_get(&e->cpu, 0), bcd);
	}
	if (!storable(e, c.fl))
		return;
	emu_store(e, emu_ea(e, u), bcd, 10);
	emu_x87_pop(&e->cpu);
}

/* ---- between registers --------------------------------------------------------------------- */

/* FST, FSTP: u->b: pop */
static void fst_sti(struct emu *e, const struct emu_uop *u)
{
	struct emu_cpu *cpu = &e->cpu;
	bool empty = emu_x87_empty(cpu, 0);

	emu_x87_wait(e);
	if (!emu_x87_done(cpu, empty ? X87_UNDERFLOW : 0))
		return;
	emu_x87_put(cpu, u->a, empty ? S80_INDEFINITE : emu_x87_get(cpu, 0));
	if (u->b)
		emu_x87_pop(cpu);
}

/* FSTP's second encoding (D9 D8+i): from an empty register it only pops (measured). */
static void fstp_quiet(struct emu *e, const struct emu_uop *u)
{
	if (!emu_x87_empty(&e->cpu, 0)) {
		fst_sti(e, u);
		return;
	}
	emu_x87_wait(e);
	emu_x87_done(&e->cpu, 0);
	emu_x87_pop(&e->cpu);
}

static void fxch(struct emu *e, const struct emu_uop *u)
{
	struct emu_cpu *cpu = &e->cpu;
	struct s80 a = emu_x87_get(cpu, 0), b = emu_x87_get(cpu, u->a);
	unsigned fl = 0;

	emu_x87_wait(e);
	if (emu_x87_empty(cpu, 0)) {
		fl = X87_UNDERFLOW;
		a = S80_INDEFINITE;
	}
	if (emu_x87_empty(cpu, u->a)) {
		fl = X87_UNDERFLOW;
		b = S80_INDEFINITE;
	}
	if (emu_x87_done(cpu, fl)) {
		emu_x87_put(cpu, 0, b);
		emu_x87_put(cpu, u->a, a);
	}
}

/* u->c: condition code. An empty register counts whether or not the move is made; C1 is left
 * alone otherwise (measured). */
static void fcmov(struct emu *e, const struct emu_uop *u)
{
	struct emu_cpu *cpu = &e->cpu;

	emu_x87_wait(e);
	if (__builtin_expect(emu_x87_empty(cpu, 0) || emu_x87_empty(cpu, u->a), 0)) {
		if (emu_x87_done(cpu, X87_UNDERFLOW))
			emu_x87_put(cpu, 0, S80_INDEFINITE);
	} else if (emu_cond(e, u->c)) {
		emu_x87_put(cpu, 0, emu_x87_get(cpu, u->a));
	}
}

/* FFREE, FFREEP: u->b: pop */
static void ffree(struct emu *e, const struct emu_uop *u)
{
	struct emu_cpu *cpu = &e->cpu;

	emu_x87_wait(e);
	cpu->x87_ftw &= (uint8_t) ~(1u << emu_x87_phys(cpu, u->a));
	emu_x87_done(cpu, 0);
	if (u->b)
		emu_x87_pop(cpu);
}

/* FINCSTP, FDECSTP: u->b: what to add to top */
static void move_top(struct emu *e, const struct emu_uop *u)
{
	emu_x87_wait(e);
	e->cpu.x87_top = (e->cpu.x87_top + u->b) & 7;
	emu_x87_done(&e->cpu, 0);
}

/* ---- control -------------------------------------------------------------------------------- */

/* FNOP, FWAIT */
static void wait_only(struct emu *e, const struct emu_uop *u)
{
	(void)u;
	emu_x87_wait(e);
}

/* FNENI, FNDISI, FNSETPM of older processors */
static void nothing(struct emu *e, const struct emu_uop *u)
{
	(void)e;
	(void)u;
}

static void fnclex(struct emu *e, const struct emu_uop *u)
{
	(void)u;
	e->cpu.fsw &= X87_CC;
}

static void fninit(struct emu *e, const struct emu_uop *u)
{
	(void)u;
	e->cpu.fcw = 0x37f;
	e->cpu.fsw = 0;
	e->cpu.x87_top = 0;
	e->cpu.x87_ftw = 0;
}

static void fnstcw(struct emu *e, const struct emu_uop *u)
{
	emu_store16(e, emu_ea(e, u), e->cpu.fcw);
}

/* Exceptions already flagged become pending, or stop being so, as the new masks say. */
static void fldcw(struct emu *e, const struct emu_uop *u)
{
	struct emu_cpu *cpu = &e->cpu;

	emu_x87_wait(e);
	cpu->fcw = (emu_load16(e, emu_ea(e, u)) & 0x1f3f) | 0x40;
	if (cpu->fsw & ~cpu->fcw & X87_EXCEPTIONS)
		cpu->fsw |= X87_ES | X87_B;
	else
		cpu->fsw &= (uint16_t) ~(X87_ES | X87_B);
}

static inline uint16_t status_word(const struct emu_cpu *cpu)
{
	return (uint16_t)(cpu->fsw | (unsigned)cpu->x87_top << 11);
}

static void fnstsw_m16(struct emu *e, const struct emu_uop *u)
{
	emu_store16(e, emu_ea(e, u), status_word(&e->cpu));
}

static void fnstsw_ax(struct emu *e, const struct emu_uop *u)
{
	(void)u;
	e->cpu.gpr[DJ_RAX] = (e->cpu.gpr[DJ_RAX] & ~0xffffULL) | status_word(&e->cpu);
}

/* ---- binding -------------------------------------------------------------------------------- */

/* Memory operands of D9, DB, DD, DF by the reg field of modrm (SDM vol. 2 appendix A.5); b and c
 * are put into the uop (pop, truncate). */
static const struct emu_form {
	emu_fn *fn;
	uint8_t b, c;
	/* clang-format off */
} memory_forms[4][8] = {
	{ { fld_m32 }, { NULL }, { fst_m32 }, { fst_m32, 1 }, { NULL }, { fldcw }, { NULL },
	  { fnstcw } },
	{ { fild_m32 }, { fist_m32, 1, 1 }, { fist_m32 }, { fist_m32, 1 }, { NULL }, { fld_m80 },
	  { NULL }, { fstp_m80, 1 } },
	{ { fld_m64 }, { fist_m64, 1, 1 }, { fst_m64 }, { fst_m64, 1 }, { NULL }, { NULL },
	  { NULL }, { fnstsw_m16 } },
	{ { fild_m16 }, { fist_m16, 1, 1 }, { fist_m16 }, { fist_m16, 1 }, { fbld }, { fild_m64 },
	  { fbstp, 1 }, { fist_m64, 1 } },
};
/* clang-format on */

/* Register forms by id, and by opcode where that is not 0 and the second encoding differs.
 * FCMOVcc: c is the condition code. */
static const struct {
	uint16_t id;
	struct emu_form form;
	uint8_t opcode;
	/* clang-format off */
} register_forms[] = {
	{ INSN_FSTP, { fstp_quiet, 1 }, 0xd9 },
	{ INSN_FNOP, { nothing }, 0xdb },
	{ INSN_FLD, { fld_sti } },
	{ INSN_FST, { fst_sti } },
	{ INSN_FSTP, { fst_sti, 1 } },
	{ INSN_FXCH, { fxch } },
	{ INSN_FCMOVB, { fcmov, 0, 2 } },
	{ INSN_FCMOVNB, { fcmov, 0, 3 } },
	{ INSN_FCMOVE, { fcmov, 0, 4 } },
	{ INSN_FCMOVNE, { fcmov, 0, 5 } },
	{ INSN_FCMOVBE, { fcmov, 0, 6 } },
	{ INSN_FCMOVNBE, { fcmov, 0, 7 } },
	{ INSN_FCMOVU, { fcmov, 0, 10 } },
	{ INSN_FCMOVNU, { fcmov, 0, 11 } },
	{ INSN_FFREE, { ffree } },
	{ INSN_FFREEP, { ffree, 1 } },
	{ INSN_FINCSTP, { move_top, 1 } },
	{ INSN_FDECSTP, { move_top, 7 } },
	{ INSN_FNOP, { wait_only } },
	{ INSN_FWAIT, { wait_only } },
	{ INSN_FNCLEX, { fnclex } },
	{ INSN_FNINIT, { fninit } },
	{ INSN_FNSTSW, { fnstsw_ax } },
};
/* clang-format on */

static bool is_constant(unsigned id)
{
	return id == INSN_FLD1 || id == INSN_FLDL2T || id == INSN_FLDL2E || id == INSN_FLDPI ||
	       id == INSN_FLDLG2 || id == INSN_FLDLN2 || id == INSN_FLDZ;
}

emu_fn *emu_bind_x87(const struct insn *in, struct emu_uop *u)
{
	if (in->id < INSN_FLD || in->id > INSN_FRSTOR)
		return emu_x87_bind_mmx(in, u);

	u->a = in->modrm & 7;
	if (in->has_mem && (in->opcode & 1)) {
		const struct emu_form *f = &memory_forms[in->opcode >> 1 & 3][in->modrm >> 3 & 7];
		u->b = f->b;
		u->c = f->c;
		return f->fn;
	}
	if (!in->has_mem) {
		for (size_t i = 0; i < sizeof(register_forms) / sizeof(register_forms[0]); i++) {
			if (register_forms[i].id != in->id ||
			    (register_forms[i].opcode && register_forms[i].opcode != in->opcode))
				continue;
			u->b = register_forms[i].form.b;
			u->c = register_forms[i].form.c;
			return register_forms[i].form.fn;
		}
		if (is_constant(in->id))
			return fld_constant;
	}
	return emu_x87_bind_arith(in, u);
}
