/*
 * Arithmetic and logic: the two-operand family and MOV, unary operations, multiplication
 * and division, and the compare-and-exchange group.
 *
 * Flags the SDM leaves undefined have the values that the recording's processor gives them (found
 * by running it; tests/unit/test-emu-int.c compares). AF is clear after logic. Intel's: MUL and
 * IMUL set SF and PF by the low half and clear ZF and AF, DIV and IDIV change no flag. AMD's: MUL
 * and IMUL leave ZF, SF, PF and AF alone, DIV and IDIV set AF and clear ZF, SF and PF.
 */
#include "emu/emu-int.h"

enum alu_op {
	ALU_ADD,
	ALU_OR,
	ALU_ADC,
	ALU_SBB,
	ALU_AND,
	ALU_SUB,
	ALU_XOR,
	ALU_CMP,
	ALU_TEST,
	ALU_MOV
};

/* The result, zero-extended or with rubbish above the width; sets the flags. */
ALWAYS_INLINE uint64_t alu(struct emu *e, enum alu_op op, unsigned lg, uint64_t a, uint64_t b)
{
	uint64_t r;

	switch (op) {
	case ALU_ADD:
		r = a + b;
		emu_lazy_set(e, EMU_LAZY(EMU_LAZY_ADD, lg), a, b, sext(lg, r));
		return r;
	case ALU_ADC:
		r = a + b + emu_flag_cf(e);
		emu_lazy_set(e, EMU_LAZY(EMU_LAZY_ADC, lg), a, b, sext(lg, r));
		return r;
	case ALU_SUB:
	case ALU_CMP:
		r = a - b;
		emu_lazy_set(e, EMU_LAZY(EMU_LAZY_SUB, lg), a, b, sext(lg, r));
		return r;
	case ALU_SBB:
		r = a - b - emu_flag_cf(e);
		emu_lazy_set(e, EMU_LAZY(EMU_LAZY_SBB, lg), a, b, sext(lg, r));
		return r;
	case ALU_AND:
	case ALU_TEST:
		r = a & b;
		break;
	case ALU_OR:
		r = a | b;
		break;
	case ALU_XOR:
		r = a ^ b;
		break;
	default:
		return b;
	}
	emu_lazy_res(e, sext(lg, r), 0);
	return r;
}

ALWAYS_INLINE void binary(struct emu *e, const struct emu_uop *u, enum alu_op op, unsigned lg,
			  enum emu_form form)
{
	bool to_mem = form == FORM_MR || form == FORM_MI;
	bool writes = op != ALU_CMP && op != ALU_TEST;
	uint64_t ea = form >= FORM_RM ? emu_ea(e, u) : 0, a = 0, b;

	if (form == FORM_RI || form == FORM_MI)
		b = cut(lg, (uint64_t)u->imm);
	else if (form == FORM_RM)
		b = get_mem(e, lg, ea);
	else
		b = get_reg(e, lg, u->b, u->d);
	if (op != ALU_MOV)
		a = to_mem ? get_mem(e, lg, ea) : get_reg(e, lg, u->a, u->c);

	uint64_t r = alu(e, op, lg, a, b);
	if (!writes)
		return;
	if (to_mem)
		set_mem(e, lg, ea, r);
	else
		set_reg(e, lg, u->a, u->c, r);
}

#define BINARY(op, lg, form)                                                                       \
	static void op##_##lg##_##form(struct emu *e, const struct emu_uop *u)                     \
	{                                                                                          \
		binary(e, u, ALU_##op, lg, FORM_##form);                                           \
	}
#define BINARY_WIDTHS(op)                                                                          \
	FOR_FORMS(BINARY, op, 0)                                                                   \
	FOR_FORMS(BINARY, op, 1) FOR_FORMS(BINARY, op, 2) FOR_FORMS(BINARY, op, 3)
#define FOR_ALU(X) X(ADD) X(OR) X(ADC) X(SBB) X(AND) X(SUB) X(XOR) X(CMP) X(TEST) X(MOV)
FOR_ALU(BINARY_WIDTHS)

#define NAME(op, lg, form) op##_##lg##_##form,
#define ROW(op, lg)                                                                                \
	{                                                                                          \
		FOR_FORMS(NAME, op, lg)                                                            \
	}
#define ROWS(op) [ALU_##op] = { ROW(op, 0), ROW(op, 1), ROW(op, 2), ROW(op, 3) },
static emu_fn *const binary_fns[][4][5] = { FOR_ALU(ROWS) };
#undef NAME
#undef ROW
#undef ROWS

/* ---- INC DEC NEG NOT ------------------------------------------------------------- */

enum unary_op { UN_INC, UN_DEC, UN_NEG, UN_NOT };

ALWAYS_INLINE void unary(struct emu *e, const struct emu_uop *u, enum unary_op op, unsigned lg,
			 bool mem)
{
	uint64_t ea = mem ? emu_ea(e, u) : 0, r = 0;
	uint64_t x = mem ? get_mem(e, lg, ea) : get_reg(e, lg, u->a, u->c);

	switch (op) {
	case UN_INC:
		r = x + 1;
		emu_lazy_set(e, EMU_LAZY(EMU_LAZY_INC, lg), 0, emu_flag_cf(e), sext(lg, r));
		break;
	case UN_DEC:
		r = x - 1;
		emu_lazy_set(e, EMU_LAZY(EMU_LAZY_DEC, lg), 0, emu_flag_cf(e), sext(lg, r));
		break;
	case UN_NEG:
		r = 0 - x;
		emu_lazy_set(e, EMU_LAZY(EMU_LAZY_SUB, lg), 0, x, sext(lg, r));
		break;
	case UN_NOT:
		r = ~x;
		break;
	}
	if (mem)
		set_mem(e, lg, ea, r);
	else
		set_reg(e, lg, u->a, u->c, r);
}

/* Handlers of (op, width, register or memory) and their table. */
#define RM_PAIR(op, lg)                                                                            \
	static void op##_##lg##_R(struct emu *e, const struct emu_uop *u)                          \
	{                                                                                          \
		OP_BODY(e, u, op, lg, false);                                                      \
	}                                                                                          \
	static void op##_##lg##_M(struct emu *e, const struct emu_uop *u)                          \
	{                                                                                          \
		OP_BODY(e, u, op, lg, true);                                                       \
	}
#define RM_ALL(op) RM_PAIR(op, 0) RM_PAIR(op, 1) RM_PAIR(op, 2) RM_PAIR(op, 3)
#define RM_ROW(op)                                                                                 \
	{                                                                                          \
		{ op##_0_R, op##_0_M }, { op##_1_R, op##_1_M }, { op##_2_R, op##_2_M },            \
		{                                                                                  \
			op##_3_R, op##_3_M                                                         \
		}                                                                                  \
	}

#define OP_BODY(e, u, op, lg, mem) unary(e, u, UN_##op, lg, mem)
RM_ALL(INC)
RM_ALL(DEC)
RM_ALL(NEG)
RM_ALL(NOT)
#undef OP_BODY
static emu_fn *const unary_fns[][4][2] = {
	[UN_INC] = RM_ROW(INC),
	[UN_DEC] = RM_ROW(DEC),
	[UN_NEG] = RM_ROW(NEG),
	[UN_NOT] = RM_ROW(NOT),
};

/* ---- multiplication and division --------------------------------------------------- */

ALWAYS_INLINE void mul_flags(struct emu *e, uint64_t low, bool overflow, bool amd)
{
	if (amd) {
		change_flags(e, DJ_FLAG_CF | DJ_FLAG_OF, overflow ? DJ_FLAG_CF | DJ_FLAG_OF : 0);
		return;
	}
	/* ZF is clear even for 0; 0x100 has the SF and PF of 0 */
	emu_lazy_res(e, low ? low : 0x100, overflow ? DJ_FLAG_CF | DJ_FLAG_OF : 0);
}

/* The signed product's low half, and whether it does not fit. */
ALWAYS_INLINE uint64_t imul_low(unsigned lg, uint64_t a, uint64_t b, bool *overflow)
{
	__int128 p = (__int128)(int64_t)sext(lg, a) * (int64_t)sext(lg, b);
	uint64_t low = (uint64_t)p;

	*overflow = p != (__int128)(int64_t)sext(lg, low);
	return low;
}

/* rdx:rax (ax for bytes), written in the halves that the width has. */
ALWAYS_INLINE void set_pair(struct emu *e, unsigned lg, uint64_t low, uint64_t high)
{
	if (lg == 0) {
		set_reg(e, 1, DJ_RAX, 0, (uint8_t)low | (high & 0xff) << 8);
		return;
	}
	set_reg(e, lg, DJ_RAX, 0, low);
	set_reg(e, lg, DJ_RDX, 0, high);
}

ALWAYS_INLINE unsigned __int128 get_pair(const struct emu *e, unsigned lg)
{
	if (lg == 0)
		return (uint16_t)e->cpu.gpr[DJ_RAX];
	return (unsigned __int128)get_reg(e, lg, DJ_RDX, 0) << (8u << lg) |
	       get_reg(e, lg, DJ_RAX, 0);
}

enum mul_op { MUL_MUL, MUL_IMUL1, MUL_DIV, MUL_IDIV, MUL_OPS };

static _Noreturn void divide_error(struct emu *e)
{
	emu_raise(e, EMU_STOP_FAULT, "divide error");
}

ALWAYS_INLINE void muldiv(struct emu *e, const struct emu_uop *u, enum mul_op op, unsigned lg,
			  bool mem, bool amd)
{
	uint64_t x = mem ? get_mem(e, lg, emu_ea(e, u)) : get_reg(e, lg, u->a, u->c);
	const unsigned bits = 8u << lg;

	if (op == MUL_MUL) {
		unsigned __int128 p = (unsigned __int128)x * get_reg(e, lg, DJ_RAX, 0);
		uint64_t high = (uint64_t)(p >> bits);
		set_pair(e, lg, (uint64_t)p, high);
		mul_flags(e, sext(lg, (uint64_t)p), high != 0, amd);
	} else if (op == MUL_IMUL1) {
		__int128 p = (__int128)(int64_t)sext(lg, x) *
			     (int64_t)sext(lg, get_reg(e, lg, DJ_RAX, 0));
		uint64_t low = sext(lg, (uint64_t)p);
		set_pair(e, lg, low, (uint64_t)(p >> bits));
		mul_flags(e, low, p != (__int128)(int64_t)low, amd);
	} else if (op == MUL_DIV) {
		unsigned __int128 n = get_pair(e, lg);
		if (x == 0 || (uint64_t)(n >> bits) >= x)
			divide_error(e);
		if (lg < 3 || n >> 64 == 0)
			set_pair(e, lg, (uint64_t)n / x, (uint64_t)n % x);
		else
			set_pair(e, lg, (uint64_t)(n / x), (uint64_t)(n % x));
	} else {
		/* signed, by magnitudes: no case of the division itself can overflow */
		unsigned __int128 n = get_pair(e, lg);
		bool nn = (uint64_t)(n >> (2 * bits - 1)) & 1, xn = msb(lg, x);
		unsigned __int128 un = nn ? -n : n;
		uint64_t ux = cut(lg, xn ? -x : x);
		if (lg < 3)
			un &= ((unsigned __int128)1 << (lg < 3 ? 2 * bits : 0)) - 1;
		if (ux == 0 || (uint64_t)(un >> bits) >= ux)
			divide_error(e);
		uint64_t q, rem;
		if (lg < 3 || un >> 64 == 0) {
			q = (uint64_t)un / ux;
			rem = (uint64_t)un % ux;
		} else {
			q = (uint64_t)(un / ux);
			rem = (uint64_t)(un % ux);
		}
		uint64_t limit = (uint64_t)1 << (bits - 1);
		if (nn != xn ? q > limit : q >= limit)
			divide_error(e);
		set_pair(e, lg, nn != xn ? -q : q, nn ? -rem : rem);
	}
	if (amd && op >= MUL_DIV)
		change_flags(e, DJ_FLAG_ZF | DJ_FLAG_SF | DJ_FLAG_PF | DJ_FLAG_AF, DJ_FLAG_AF);
}

#define OP_BODY(e, u, op, lg, mem) muldiv(e, u, MUL_##op, lg, mem, false)
RM_ALL(MUL)
RM_ALL(IMUL1)
RM_ALL(DIV)
RM_ALL(IDIV)
#undef OP_BODY
#define MUL_MUL_AMD		   MUL_MUL
#define MUL_IMUL1_AMD		   MUL_IMUL1
#define MUL_DIV_AMD		   MUL_DIV
#define MUL_IDIV_AMD		   MUL_IDIV
#define OP_BODY(e, u, op, lg, mem) muldiv(e, u, MUL_##op, lg, mem, true)
RM_ALL(MUL_AMD)
RM_ALL(IMUL1_AMD)
RM_ALL(DIV_AMD)
RM_ALL(IDIV_AMD)
#undef OP_BODY
/* clang-format off */
static emu_fn *const muldiv_fns[2][MUL_OPS][4][2] = {
	[DJ_CPU_INTEL] = { [MUL_MUL] = RM_ROW(MUL), [MUL_IMUL1] = RM_ROW(IMUL1),
			   [MUL_DIV] = RM_ROW(DIV), [MUL_IDIV] = RM_ROW(IDIV) },
	[DJ_CPU_AMD] = { [MUL_MUL] = RM_ROW(MUL_AMD), [MUL_IMUL1] = RM_ROW(IMUL1_AMD),
			 [MUL_DIV] = RM_ROW(DIV_AMD), [MUL_IDIV] = RM_ROW(IDIV_AMD) },
};
/* clang-format on */

/* IMUL with two and three operands. */
ALWAYS_INLINE void imul(struct emu *e, const struct emu_uop *u, unsigned lg, bool mem, bool imm,
			bool amd)
{
	uint64_t x = mem ? get_mem(e, lg, emu_ea(e, u)) : get_reg(e, lg, u->b, 0);
	bool overflow;
	uint64_t r = imul_low(lg, x, imm ? (uint64_t)u->imm : e->cpu.gpr[u->a], &overflow);

	set_reg(e, lg, u->a, 0, r);
	mul_flags(e, sext(lg, r), overflow, amd);
}
#define IMUL2(e, u, lg, mem)	 imul(e, u, lg, mem, false, false)
#define IMUL3(e, u, lg, mem)	 imul(e, u, lg, mem, true, false)
#define IMUL2_AMD(e, u, lg, mem) imul(e, u, lg, mem, false, true)
#define IMUL3_AMD(e, u, lg, mem) imul(e, u, lg, mem, true, true)

#define OP_BODY(e, u, op, lg, mem) op(e, u, lg, mem)
RM_PAIR(IMUL2, 1)
RM_PAIR(IMUL2, 2)
RM_PAIR(IMUL2, 3)
RM_PAIR(IMUL3, 1)
RM_PAIR(IMUL3, 2)
RM_PAIR(IMUL3, 3)
RM_PAIR(IMUL2_AMD, 1)
RM_PAIR(IMUL2_AMD, 2)
RM_PAIR(IMUL2_AMD, 3)
RM_PAIR(IMUL3_AMD, 1)
RM_PAIR(IMUL3_AMD, 2)
RM_PAIR(IMUL3_AMD, 3)
#undef OP_BODY
#define IMUL_ROW(op)                                                                               \
	{                                                                                          \
		{ NULL }, { op##_1_R, op##_1_M }, { op##_2_R, op##_2_M },                          \
		{                                                                                  \
			op##_3_R, op##_3_M                                                         \
		}                                                                                  \
	}
static emu_fn *const imul_fns[2][2][4][2] = {
	[DJ_CPU_INTEL] = { IMUL_ROW(IMUL2), IMUL_ROW(IMUL3) },
	[DJ_CPU_AMD] = { IMUL_ROW(IMUL2_AMD), IMUL_ROW(IMUL3_AMD) },
};

/* ---- XCHG, XADD, CMPXCHG ------------------------------------------------------------- */

/* xchg [mem], r and xchg r, r; the memory operand is the first. */
ALWAYS_INLINE void xchg(struct emu *e, const struct emu_uop *u, unsigned lg, bool mem)
{
	uint64_t ea = mem ? emu_ea(e, u) : 0;
	uint64_t x = mem ? get_mem(e, lg, ea) : get_reg(e, lg, u->a, u->c);
	uint64_t y = get_reg(e, lg, u->b, u->d);

	if (mem)
		set_mem(e, lg, ea, y);
	else
		set_reg(e, lg, u->a, u->c, y);
	set_reg(e, lg, u->b, u->d, x);
}

ALWAYS_INLINE void xadd(struct emu *e, const struct emu_uop *u, unsigned lg, bool mem)
{
	uint64_t ea = mem ? emu_ea(e, u) : 0;
	uint64_t x = mem ? get_mem(e, lg, ea) : get_reg(e, lg, u->a, u->c);
	uint64_t r = alu(e, ALU_ADD, lg, x, get_reg(e, lg, u->b, u->d));

	/* the source first: with one register for both, the sum remains */
	set_reg(e, lg, u->b, u->d, x);
	if (mem)
		set_mem(e, lg, ea, r);
	else
		set_reg(e, lg, u->a, u->c, r);
}

ALWAYS_INLINE void cmpxchg(struct emu *e, const struct emu_uop *u, unsigned lg, bool mem)
{
	uint64_t ea = mem ? emu_ea(e, u) : 0;
	uint64_t x = mem ? get_mem(e, lg, ea) : get_reg(e, lg, u->a, u->c);
	uint64_t y = get_reg(e, lg, u->b, u->d), acc = get_reg(e, lg, DJ_RAX, 0);
	bool same = acc == x;

	alu(e, ALU_CMP, lg, acc, x);
	/* memory is stored to either way; a register only if equal */
	if (mem)
		set_mem(e, lg, ea, same ? y : x);
	else if (same)
		set_reg(e, lg, u->a, u->c, y);
	if (!same)
		set_reg(e, lg, DJ_RAX, 0, x);
}
#define XCHG(e, u, lg, mem)    xchg(e, u, lg, mem)
#define XADD(e, u, lg, mem)    xadd(e, u, lg, mem)
#define CMPXCHG(e, u, lg, mem) cmpxchg(e, u, lg, mem)

#define OP_BODY(e, u, op, lg, mem) op(e, u, lg, mem)
RM_ALL(XCHG)
RM_ALL(XADD)
RM_ALL(CMPXCHG)
#undef OP_BODY
static emu_fn *const exchange_fns[3][4][2] = { RM_ROW(XCHG), RM_ROW(XADD), RM_ROW(CMPXCHG) };

static void cmpxchg8b(struct emu *e, const struct emu_uop *u)
{
	uint64_t *g = e->cpu.gpr, ea = emu_ea(e, u), x = emu_load64(e, ea);
	bool same = x == (g[DJ_RDX] << 32 | (uint32_t)g[DJ_RAX]);

	emu_store64(e, ea, same ? g[DJ_RCX] << 32 | (uint32_t)g[DJ_RBX] : x);
	if (!same) {
		g[DJ_RAX] = (uint32_t)x;
		g[DJ_RDX] = x >> 32;
	}
	change_flags(e, DJ_FLAG_ZF, same ? DJ_FLAG_ZF : 0);
}

static void cmpxchg16b(struct emu *e, const struct emu_uop *u)
{
	uint64_t *g = e->cpu.gpr, ea = emu_ea(e, u), x[2], y[2];

	if (ea & 15)
		emu_raise(e, EMU_STOP_FAULT, "cmpxchg16b on an unaligned address");
	memcpy(x, emu_load_ptr(e, ea, 16), 16);
	uint64_t low = le64toh(x[0]), high = le64toh(x[1]);
	bool same = low == g[DJ_RAX] && high == g[DJ_RDX];
	y[0] = htole64(g[DJ_RBX]);
	y[1] = htole64(g[DJ_RCX]);
	emu_store(e, ea, same ? y : x, 16);
	if (!same) {
		g[DJ_RAX] = low;
		g[DJ_RDX] = high;
	}
	change_flags(e, DJ_FLAG_ZF, same ? DJ_FLAG_ZF : 0);
}

/* ---- binding --------------------------------------------------------------------------- */

static emu_fn *bind_binary(const struct insn *in, struct emu_uop *u, enum alu_op op)
{
	unsigned lg = lg_of(in->opnd[0].size);
	enum emu_form form;

	if (is_mem(in, 0))
		form = is_imm(in, 1) ? FORM_MI : FORM_MR;
	else if (!is_reg(in, 0))
		return NULL;
	else
		form = is_imm(in, 1) ? FORM_RI : is_mem(in, 1) ? FORM_RM : FORM_RR;
	if ((form == FORM_MR || form == FORM_RR) && !is_reg(in, 1))
		return NULL;
	u->c = byte_shift(in, 0);
	u->d = byte_shift(in, 1);
	return binary_fns[op][lg][form];
}

emu_fn *emu_bind_int_alu(const struct insn *in, struct emu_uop *u)
{
	unsigned lg = lg_of(in->opnd[0].size);
	bool mem = is_mem(in, 0);

	switch (in->id) {
#define X(op)                                                                                      \
	case INSN_##op:                                                                            \
		return bind_binary(in, u, ALU_##op);
		FOR_ALU(X)
#undef X
	}
	u->c = byte_shift(in, 0);
	u->d = byte_shift(in, 1);
	switch (in->id) {
	case INSN_INC:
		return unary_fns[UN_INC][lg][mem];
	case INSN_DEC:
		return unary_fns[UN_DEC][lg][mem];
	case INSN_NEG:
		return unary_fns[UN_NEG][lg][mem];
	case INSN_NOT:
		return unary_fns[UN_NOT][lg][mem];
	case INSN_MUL:
		return muldiv_fns[in->cpu][MUL_MUL][lg][mem];
	case INSN_DIV:
		return muldiv_fns[in->cpu][MUL_DIV][lg][mem];
	case INSN_IDIV:
		return muldiv_fns[in->cpu][MUL_IDIV][lg][mem];
	case INSN_IMUL:
		if (in->nopnd == 1)
			return muldiv_fns[in->cpu][MUL_IMUL1][lg][mem];
		return imul_fns[in->cpu][in->nopnd == 3][lg][is_mem(in, 1)];
	case INSN_XCHG:
		if (is_mem(in, 1)) {
			u->b = u->a;
			u->d = u->c;
			mem = true;
		}
		return exchange_fns[0][lg][mem];
	case INSN_XADD:
		return exchange_fns[1][lg][mem];
	case INSN_CMPXCHG:
		return exchange_fns[2][lg][mem];
	case INSN_CMPXCHG8B:
		return cmpxchg8b;
	case INSN_CMPXCHG16B:
		return cmpxchg16b;
	default:
		return NULL;
	}
}
