/*
 * Shifts and rotates.
 *
 * Where the SDM leaves flags or results undefined these do what the recording's processor does
 * (found by running them; tests/unit/test-emu-int.c compares).
 *
 * Intel's: OF is always that of a shift by one, whatever the count, except that ROL and ROR of a
 * register by an immediate other than 1 leave it; AF is cleared by shifts; a 16-bit double
 * shift by more than 16 goes on with the bits of the destination again.
 *
 * AMD's: OF is told from the result, as if its last place had been a shift by one: to the left
 * the result's sign and CF, to the right the result's upper two bits, differ. AF is set by
 * shifts. A 16-bit double shift by more than 16 goes on with the bits of the source again, and
 * clears CF.
 */
#include "emu/emu-int.h"

enum shift_op { SH_ROL, SH_ROR, SH_RCL, SH_RCR, SH_SHL, SH_SHR, SH_SAR };

#define CF_OF (DJ_FLAG_CF | DJ_FLAG_OF)

ALWAYS_INLINE uint32_t cf_of(uint64_t cf, uint64_t of)
{
	return (cf & 1 ? DJ_FLAG_CF : 0) | (of & 1 ? DJ_FLAG_OF : 0);
}

/* OF on AMD's processors, by the result. */
ALWAYS_INLINE uint64_t of_left(unsigned lg, uint64_t r, uint64_t cf)
{
	return msb(lg, r) ^ cf;
}

ALWAYS_INLINE uint64_t of_right(unsigned lg, uint64_t r)
{
	return msb(lg, r) ^ msb(lg, r << 1);
}

/* The three below: x (zero-extended) shifted by n != 0, which is already masked; flags are set. */

ALWAYS_INLINE uint64_t shift(struct emu *e, enum shift_op op, unsigned lg, uint64_t x, unsigned n,
			     bool amd)
{
	const uint32_t af = amd ? DJ_FLAG_AF : 0;
	const unsigned w = 8u << lg;
	uint64_t r, cf, of;

	switch (op) {
	case SH_SHL:
		cf = n <= w ? x >> (w - n) : 0;
		of = msb(lg, x) ^ msb(lg, x << 1);
		r = n < w ? x << n : 0;
		if (amd)
			of = of_left(lg, r, cf);
		emu_lazy_res(e, sext(lg, r), cf_of(cf, of) | af);
		return r;
	case SH_SHR:
		cf = x >> (n - 1);
		of = msb(lg, x);
		r = n < w ? x >> n : 0;
		if (amd)
			of = of_right(lg, r);
		emu_lazy_res(e, sext(lg, r), cf_of(cf, of) | af);
		return r;
	default: {
		int64_t s = (int64_t)sext(lg, x);
		cf = (uint64_t)(s >> (n - 1));
		r = (uint64_t)(s >> n);
		emu_lazy_res(e, r, cf_of(cf, 0) | af);
		return r;
	}
	}
}

/* ROL and ROR; OF is set unless keep_of. */
ALWAYS_INLINE uint64_t rotate(struct emu *e, enum shift_op op, unsigned lg, uint64_t x, unsigned n,
			      bool keep_of, bool amd)
{
	const uint32_t mask = keep_of ? DJ_FLAG_CF : CF_OF;
	const unsigned w = 8u << lg;
	unsigned m = n & (w - 1);
	uint64_t r, of;

	if (op == SH_ROL) {
		of = msb(lg, x) ^ msb(lg, x << 1);
		r = m ? x << m | x >> (w - m) : x;
		if (amd)
			of = of_left(lg, r, r);
		change_flags(e, mask, cf_of(r, of));
	} else {
		of = msb(lg, x) ^ x;
		r = m ? x >> m | x << (w - m) : x;
		if (amd)
			of = of_right(lg, r);
		change_flags(e, mask, cf_of(msb(lg, r), of));
	}
	return r;
}

/* RCL and RCR: a rotation of w + 1 bits, carry on top. */
ALWAYS_INLINE uint64_t rotate_carry(struct emu *e, enum shift_op op, unsigned lg, uint64_t x,
				    unsigned n, bool amd)
{
	const unsigned w = 8u << lg;
	unsigned m = lg < 2 ? n % (w + 1) : n;
	uint64_t c = emu_flag_cf(e), r, cf, of;

	if (!m) {
		if (amd)
			change_flags(e, DJ_FLAG_OF,
				     cf_of(0, op == SH_RCL ? of_left(lg, x, c) : of_right(lg, x)));
		return x;
	}
	if (op == SH_RCL) {
		of = msb(lg, x) ^ msb(lg, x << 1);
		cf = x >> (w - m);
		r = (m < 64 ? x << m : 0) | c << (m - 1) | (m > 1 ? x >> (w + 1 - m) : 0);
		if (amd)
			of = of_left(lg, r, cf);
	} else {
		of = msb(lg, x) ^ c;
		cf = x >> (m - 1);
		r = (m < 64 ? x >> m : 0) | c << (w - m) | (m > 1 ? x << (w + 1 - m) : 0);
		if (amd)
			of = of_right(lg, r);
	}
	change_flags(e, CF_OF, cf_of(cf, of));
	return r;
}

/* Any of them. */
ALWAYS_INLINE uint64_t shift_any(struct emu *e, enum shift_op op, unsigned lg, uint64_t x,
				 unsigned n, bool keep_of, bool amd)
{
	switch (op) {
	case SH_ROL:
	case SH_ROR:
		return rotate(e, op, lg, x, n, keep_of, amd);
	case SH_RCL:
	case SH_RCR:
		return rotate_carry(e, op, lg, x, n, amd);
	default:
		return shift(e, op, lg, x, n, amd);
	}
}

/* By an immediate (already masked, in u->imm) or by CL. */
ALWAYS_INLINE void shift_form(struct emu *e, const struct emu_uop *u, enum shift_op op, unsigned lg,
			      bool mem, bool by_cl, bool amd)
{
	uint64_t ea = mem ? emu_ea(e, u) : 0;
	uint64_t x = mem ? get_mem(e, lg, ea) : get_reg(e, lg, u->a, u->c);
	unsigned n = by_cl ? e->cpu.gpr[DJ_RCX] & (lg == 3 ? 63 : 31) : (unsigned)u->imm;

	if (n)
		x = shift_any(e, op, lg, x, n, !amd && !by_cl && !mem && n != 1, amd);
	if (mem)
		set_mem(e, lg, ea, x);
	else
		set_reg(e, lg, u->a, u->c, x);
}

#define SHIFT(op, lg, form, mem, cl)                                                               \
	static void op##_##lg##_##form(struct emu *e, const struct emu_uop *u)                     \
	{                                                                                          \
		shift_form(e, u, SH_##op, lg, mem, cl, false);                                     \
	}                                                                                          \
	static void op##_##lg##_##form##_amd(struct emu *e, const struct emu_uop *u)               \
	{                                                                                          \
		shift_form(e, u, SH_##op, lg, mem, cl, true);                                      \
	}
#define SHIFTS(op, lg)                                                                             \
	SHIFT(op, lg, RI, false, false)                                                            \
	SHIFT(op, lg, RC, false, true) SHIFT(op, lg, MI, true, false) SHIFT(op, lg, MC, true, true)
#define SHIFT_WIDTHS(op) SHIFTS(op, 0) SHIFTS(op, 1) SHIFTS(op, 2) SHIFTS(op, 3)
#define FOR_SHIFTS(X)	 X(ROL) X(ROR) X(RCL) X(RCR) X(SHL) X(SHR) X(SAR)
FOR_SHIFTS(SHIFT_WIDTHS)
/* Indexed by operation, width, register or memory, by CL, and kind of processor. */
#define SHIFT_NAME(op, lg, form)                                                                   \
	{                                                                                          \
		op##_##lg##_##form, op##_##lg##_##form##_amd                                       \
	}
#define SHIFT_NAMES(op, lg)                                                                        \
	{                                                                                          \
		{ SHIFT_NAME(op, lg, RI), SHIFT_NAME(op, lg, RC) },                                \
		{                                                                                  \
			SHIFT_NAME(op, lg, MI), SHIFT_NAME(op, lg, MC)                             \
		}                                                                                  \
	}
#define SHIFT_ROW(op)                                                                              \
	[SH_##op] = { SHIFT_NAMES(op, 0), SHIFT_NAMES(op, 1), SHIFT_NAMES(op, 2),                  \
		      SHIFT_NAMES(op, 3) },
static emu_fn *const shift_fns[][4][2][2][2] = { FOR_SHIFTS(SHIFT_ROW) };

/* ---- SHLD SHRD --------------------------------------------------------------------------- */

ALWAYS_INLINE uint64_t double_shift(struct emu *e, bool left, unsigned lg, uint64_t x, uint64_t y,
				    unsigned n, bool amd)
{
	const unsigned w = 8u << lg;
	uint64_t r, cf, of;

	if (lg == 1) {
		/* three times 16 bits: destination, source, and what is next */
		uint64_t third = amd ? y : x;
		uint64_t three = left ? x << 32 | y << 16 | third : third << 32 | y << 16 | x;
		r = left ? three << n >> 32 : three >> n;
		cf = left ? three >> (48 - n) : three >> (n - 1);
	} else {
		r = left ? x << n | y >> (w - n) : x >> n | y << (w - n);
		cf = left ? x >> (w - n) : x >> (n - 1);
	}
	if (amd) {
		if (n > w)
			cf = 0;
		/* to the left as if zeros had been shifted in */
		of = left ? of_left(lg, x << n, cf) : of_right(lg, r);
	} else {
		of = left ? msb(lg, x) ^ msb(lg, x << 1) : msb(lg, x) ^ y;
	}
	emu_lazy_res(e, sext(lg, r), cf_of(cf, of) | (amd ? DJ_FLAG_AF : 0));
	return r;
}

ALWAYS_INLINE void double_form(struct emu *e, const struct emu_uop *u, bool left, unsigned lg,
			       bool mem, bool by_cl, bool amd)
{
	uint64_t ea = mem ? emu_ea(e, u) : 0;
	uint64_t x = mem ? get_mem(e, lg, ea) : get_reg(e, lg, u->a, 0);
	unsigned n = by_cl ? e->cpu.gpr[DJ_RCX] & (lg == 3 ? 63 : 31) : (unsigned)u->imm;

	if (n)
		x = double_shift(e, left, lg, x, get_reg(e, lg, u->b, 0), n, amd);
	if (mem)
		set_mem(e, lg, ea, x);
	else
		set_reg(e, lg, u->a, 0, x);
}

#define DOUBLE(op, lg, form, mem, cl)                                                              \
	static void op##_##lg##_##form(struct emu *e, const struct emu_uop *u)                     \
	{                                                                                          \
		double_form(e, u, op, lg, mem, cl, false);                                         \
	}                                                                                          \
	static void op##_##lg##_##form##_amd(struct emu *e, const struct emu_uop *u)               \
	{                                                                                          \
		double_form(e, u, op, lg, mem, cl, true);                                          \
	}
#define DOUBLES(op, lg)                                                                            \
	DOUBLE(op, lg, RI, false, false)                                                           \
	DOUBLE(op, lg, RC, false, true)                                                            \
	DOUBLE(op, lg, MI, true, false) DOUBLE(op, lg, MC, true, true)
enum { SHRD, SHLD };
DOUBLES(SHRD, 1)
DOUBLES(SHRD, 2)
DOUBLES(SHRD, 3)
DOUBLES(SHLD, 1)
DOUBLES(SHLD, 2)
DOUBLES(SHLD, 3)
static emu_fn *const double_fns[2][4][2][2][2] = {
	[SHRD] = { [1] = SHIFT_NAMES(SHRD, 1), SHIFT_NAMES(SHRD, 2), SHIFT_NAMES(SHRD, 3) },
	[SHLD] = { [1] = SHIFT_NAMES(SHLD, 1), SHIFT_NAMES(SHLD, 2), SHIFT_NAMES(SHLD, 3) },
};

/* ---- the flagless ones of BMI2: RORX SARX SHLX SHRX ---------------------------------------- */

enum plain_op { P_RORX, P_SARX, P_SHLX, P_SHRX };

/* The value is operand 1, register or memory; the count is operand 2. */
ALWAYS_INLINE void plain(struct emu *e, const struct emu_uop *u, enum plain_op op, unsigned lg,
			 bool mem)
{
	uint64_t x = mem ? get_mem(e, lg, emu_ea(e, u)) : get_reg(e, lg, u->b, 0), r;
	const unsigned w = 8u << lg;
	unsigned n = (unsigned)(op == P_RORX ? (uint64_t)u->imm : e->cpu.gpr[u->c]) & (w - 1);

	switch (op) {
	case P_RORX:
		r = x >> n | x << ((w - n) & (w - 1));
		break;
	case P_SARX:
		r = (uint64_t)((int64_t)sext(lg, x) >> n);
		break;
	case P_SHLX:
		r = x << n;
		break;
	default:
		r = x >> n;
	}
	set_reg(e, lg, u->a, 0, r);
}

#define PLAIN(op, lg, form, mem)                                                                   \
	static void op##_##lg##_##form(struct emu *e, const struct emu_uop *u)                     \
	{                                                                                          \
		plain(e, u, P_##op, lg, mem);                                                      \
	}
#define PLAINS(op)                                                                                 \
	PLAIN(op, 2, R, false) PLAIN(op, 2, M, true) PLAIN(op, 3, R, false) PLAIN(op, 3, M, true)
#define PLAIN_ROW(op) [P_##op] = { { op##_2_R, op##_2_M }, { op##_3_R, op##_3_M } },
#define FOR_PLAIN(X)  X(RORX) X(SARX) X(SHLX) X(SHRX)
FOR_PLAIN(PLAINS)
static emu_fn *const plain_fns[][2][2] = { FOR_PLAIN(PLAIN_ROW) };

/* ---- binding --------------------------------------------------------------------------------- */

emu_fn *emu_bind_int_shift(const struct insn *in, struct emu_uop *u)
{
	unsigned lg = lg_of(in->opnd[0].size);
	bool mem = is_mem(in, 0), by_cl = in->nopnd && is_reg(in, in->nopnd - 1u);
	bool amd = in->cpu == DJ_CPU_AMD;

	switch (in->id) {
#define X(op)                                                                                      \
	case INSN_##op:                                                                            \
		u->c = byte_shift(in, 0);                                                          \
		u->imm &= lg == 3 ? 63 : 31;                                                       \
		return shift_fns[SH_##op][lg][mem][by_cl][amd];
		FOR_SHIFTS(X)
#undef X
	case INSN_SHLD:
	case INSN_SHRD:
		u->imm &= lg == 3 ? 63 : 31;
		return double_fns[in->id == INSN_SHLD][lg][mem][by_cl][amd];
#define X(op)                                                                                      \
	case INSN_##op:                                                                            \
		return plain_fns[P_##op][lg == 3][is_mem(in, 1)];
		FOR_PLAIN(X)
#undef X
	default:
		return NULL;
	}
}
