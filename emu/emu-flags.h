/*
 * Lazy arithmetic flags.
 *
 * An instruction that sets flags stores what it did (cpu.lazy) and goes on; whoever reads
 * flags computes them from that. `r` is the result sign-extended to 64 bits, so ZF, SF
 * and PF need neither the operation nor its width; a and b are the operands zero-extended.
 *
 *   RES       ZF SF PF from r; CF, AF and OF are those bits of b
 *   ADD, SUB  all from a, b, r (CMP is SUB)
 *   ADC, SBB  the same with a carry in: carries are told from the operands' and result's bits
 *   INC, DEC  a is not used; bit 0 of b is CF, which they leave alone
 *   ALL       the six flags are those bits of b
 *
 * lazy.op is EMU_LAZY(kind, log2 of the operand's bytes); the width matters for the kinds
 * from ADD to DEC only. Formulas after SDM vol. 1, 3.4.3.1, and appendix A.
 */
#ifndef DEJA_EMU_EMU_FLAGS_H
#define DEJA_EMU_EMU_FLAGS_H

#include "emu/emu.h"

enum emu_lazy_kind {
	EMU_LAZY_RES,
	EMU_LAZY_ALL,
	EMU_LAZY_ADD,
	EMU_LAZY_SUB,
	EMU_LAZY_ADC,
	EMU_LAZY_SBB,
	EMU_LAZY_INC,
	EMU_LAZY_DEC,
};
#define EMU_LAZY(kind, lg) ((uint32_t)(kind) << 2 | (lg))
#define EMU_LAZY_KIND(op)  ((op) >> 2)
#define EMU_LAZY_LG(op)	   ((op)&3)

static inline void emu_lazy_set(struct emu *e, uint32_t op, uint64_t a, uint64_t b, uint64_t r)
{
	struct emu_lazy *z = &e->cpu.lazy;
	z->op = op;
	z->a = a;
	z->b = b;
	z->r = r;
}

/* ZF, SF and PF by the (sign-extended) result; CF, AF and OF as given. */
static inline void emu_lazy_res(struct emu *e, uint64_t r, uint32_t cf_af_of)
{
	e->cpu.lazy.op = EMU_LAZY(EMU_LAZY_RES, 0);
	e->cpu.lazy.b = cf_af_of;
	e->cpu.lazy.r = r;
}

static inline void emu_set_flags(struct emu *e, uint32_t arith)
{
	e->cpu.lazy.op = EMU_LAZY(EMU_LAZY_ALL, 0);
	e->cpu.lazy.b = arith & DJ_FLAGS_ARITH;
}

/* How far to shift an operand left so that its sign bit is bit 63. */
static inline unsigned emu_lazy_shift(uint32_t op)
{
	return 64 - (8u << EMU_LAZY_LG(op));
}

static inline bool emu_lazy_pf(const struct emu_lazy *z)
{
	return !(__builtin_popcount((uint8_t)z->r) & 1);
}

static inline bool emu_flag_zf(const struct emu *e)
{
	const struct emu_lazy *z = &e->cpu.lazy;
	if (EMU_LAZY_KIND(z->op) == EMU_LAZY_ALL)
		return z->b & DJ_FLAG_ZF;
	return z->r == 0;
}

static inline bool emu_flag_sf(const struct emu *e)
{
	const struct emu_lazy *z = &e->cpu.lazy;
	if (EMU_LAZY_KIND(z->op) == EMU_LAZY_ALL)
		return z->b & DJ_FLAG_SF;
	return (int64_t)z->r < 0;
}

static inline bool emu_flag_pf(const struct emu *e)
{
	const struct emu_lazy *z = &e->cpu.lazy;
	if (EMU_LAZY_KIND(z->op) == EMU_LAZY_ALL)
		return z->b & DJ_FLAG_PF;
	return emu_lazy_pf(z);
}

static inline bool emu_flag_cf(const struct emu *e)
{
	const struct emu_lazy *z = &e->cpu.lazy;
	unsigned sh = emu_lazy_shift(z->op);

	switch (EMU_LAZY_KIND(z->op)) {
	case EMU_LAZY_SUB:
		return z->a < z->b;
	case EMU_LAZY_ADD:
		return z->r << sh < z->a << sh;
	case EMU_LAZY_ADC:
		return ((z->a & z->b) | ((z->a | z->b) & ~z->r)) << sh >> 63;
	case EMU_LAZY_SBB:
		return ((~z->a & z->b) | (~(z->a ^ z->b) & z->r)) << sh >> 63;
	default:
		return z->b & DJ_FLAG_CF;
	}
}

static inline bool emu_flag_of(const struct emu *e)
{
	const struct emu_lazy *z = &e->cpu.lazy;
	unsigned sh = emu_lazy_shift(z->op);

	switch (EMU_LAZY_KIND(z->op)) {
	case EMU_LAZY_SUB:
	case EMU_LAZY_SBB:
		return ((z->a ^ z->b) & (z->a ^ z->r)) << sh >> 63;
	case EMU_LAZY_ADD:
	case EMU_LAZY_ADC:
		return ((z->a ^ z->r) & (z->b ^ z->r)) << sh >> 63;
	case EMU_LAZY_INC:
		return z->r << sh == 1ULL << 63;
	case EMU_LAZY_DEC:
		return z->r << sh == ~0ULL >> 1 >> sh << sh;
	default:
		return z->b & DJ_FLAG_OF;
	}
}

static inline bool emu_flag_af(const struct emu *e)
{
	const struct emu_lazy *z = &e->cpu.lazy;

	switch (EMU_LAZY_KIND(z->op)) {
	case EMU_LAZY_SUB:
	case EMU_LAZY_SBB:
	case EMU_LAZY_ADD:
	case EMU_LAZY_ADC:
		return (z->a ^ z->b ^ z->r) & 0x10;
	case EMU_LAZY_INC:
		return (z->r & 0xf) == 0;
	case EMU_LAZY_DEC:
		return (z->r & 0xf) == 0xf;
	default:
		return z->b & DJ_FLAG_AF;
	}
}

/* SF != OF: "less" */
static inline bool emu_flag_lt(const struct emu *e)
{
	const struct emu_lazy *z = &e->cpu.lazy;

	if (EMU_LAZY_KIND(z->op) == EMU_LAZY_SUB) {
		unsigned sh = emu_lazy_shift(z->op);
		return (int64_t)(z->a << sh) < (int64_t)(z->b << sh);
	}
	return emu_flag_sf(e) != emu_flag_of(e);
}

/* The six arithmetic flags. */
static inline uint32_t emu_get_flags(struct emu *e)
{
	if (EMU_LAZY_KIND(e->cpu.lazy.op) == EMU_LAZY_ALL)
		return (uint32_t)e->cpu.lazy.b;
	return (emu_flag_cf(e) ? DJ_FLAG_CF : 0) | (emu_flag_pf(e) ? DJ_FLAG_PF : 0) |
	       (emu_flag_af(e) ? DJ_FLAG_AF : 0) | (emu_flag_zf(e) ? DJ_FLAG_ZF : 0) |
	       (emu_flag_sf(e) ? DJ_FLAG_SF : 0) | (emu_flag_of(e) ? DJ_FLAG_OF : 0);
}

/* Whether condition code `cond` (0..15: o no b ae e ne be a s ns p np l ge le g) holds. */
static inline __attribute__((always_inline)) bool emu_cond(struct emu *e, unsigned cond)
{
	bool yes;

	switch (cond >> 1) {
	case 0:
		yes = emu_flag_of(e);
		break;
	case 1:
		yes = emu_flag_cf(e);
		break;
	case 2:
		yes = emu_flag_zf(e);
		break;
	case 3:
		yes = emu_flag_cf(e) || emu_flag_zf(e);
		break;
	case 4:
		yes = emu_flag_sf(e);
		break;
	case 5:
		yes = emu_flag_pf(e);
		break;
	case 6:
		yes = emu_flag_lt(e);
		break;
	default:
		yes = emu_flag_zf(e) || emu_flag_lt(e);
		break;
	}
	return yes != (cond & 1);
}

#endif
