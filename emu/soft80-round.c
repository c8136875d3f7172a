/*
 * 80-bit extended arithmetic in integers: taking numbers apart, rounding, and which NaN comes out.
 * See soft80-priv.h.
 */
#include "emu/soft80-priv.h"

const struct s80_format s80_formats[4] = {
	/* by precision control; 1 is reserved and acts as full precision */
	{ .drop = 40, .emax = 0x7fff, .adjust = 24576 },
	{ .drop = 0, .emax = 0x7fff, .adjust = 24576 },
	{ .drop = 11, .emax = 0x7fff, .adjust = 24576 },
	{ .drop = 0, .emax = 0x7fff, .adjust = 24576 },
};
struct s80_num s80_unpack(struct s80 a)
{
	struct s80_num n = { .cls = S80_FINITE, .sign = a.se >> 15, .mant = a.mant };
	n.exp = a.se & 0x7fff;
	if (n.exp == 0) {
		if (a.mant == 0) {
			n.cls = S80_ZERO;
			return n;
		}
		/* A pseudo-denormal (top bit set) has the value the exponent 1 gives it. */
		unsigned shift = (unsigned)__builtin_clzll(a.mant);
		n.denormal = true;
		n.exp = 1 - (int)shift;
		n.mant = a.mant << shift;
	} else if (!(a.mant & S80_TOP)) {
		n.cls = S80_UNSUPPORTED;
	} else if (n.exp == 0x7fff) {
		n.cls = a.mant == S80_TOP ? S80_INF : a.mant & (S80_TOP >> 1) ? S80_QNAN : S80_SNAN;
	}
	return n;
}

/* ---- rounding ------------------------------------------------------------------------ */

/* The fraction below the kept bits, left-justified with sticky; *hi loses those bits. */
static inline uint64_t split(uint64_t *hi, uint64_t lo, unsigned drop)
{
	if (drop == 0)
		return lo;
	uint64_t rest = *hi << (64 - drop) | lo >> drop | ((lo << (64 - drop)) != 0);
	*hi = *hi >> drop << drop;
	return rest;
}

static struct s80 overflow(struct s80_ctx *c, bool sign, const struct s80_format *f)
{
	unsigned rc = s80_rc(c->cw);
	c->fl |= S80_OE | S80_PE;
	if (rc == 0 || (rc == 1 && sign) || (rc == 2 && !sign)) {
		c->fl |= S80_C1;
		return s80_make(sign, f->emax, S80_TOP);
	}
	c->fl &= (uint16_t)~S80_C1;
	return s80_make(sign, f->emax - 1, ~0ULL >> f->drop << f->drop);
}

/* exp <= 0: the result may be tiny. */
static struct s80 underflow(struct s80_ctx *c, bool sign, int exp, uint64_t hi, uint64_t lo,
			    const struct s80_format *f)
{
	unsigned rc = s80_rc(c->cw);
	uint64_t keep = hi;
	uint64_t rest = split(&keep, lo, f->drop);
	uint64_t ulp = 1ULL << f->drop;

	/* Tiny unless rounding with unlimited exponent carries to the smallest normal. */
	bool carries = s80_round_up(rc, sign, keep & ulp, rest) && keep + ulp < keep;
	bool tiny = exp < 0 || !carries;
	if (tiny && !(c->cw & S80_UE)) {
		c->fl |= S80_UE;
		if (!f->adjust)
			return s80_make(sign, 0, 0);
		/* FSCALE can land below even the adjusted range: then it is zero. */
		if (exp + f->adjust < 1) {
			c->fl |= S80_PE;
			return s80_make(sign, 0, 0);
		}
		return s80_round(c, sign, exp + f->adjust, hi, lo, f);
	}
	u128 v = s80_shift_jam((u128)hi << 64 | lo, (unsigned)(1 - exp));
	keep = (uint64_t)(v >> 64);
	rest = split(&keep, (uint64_t)v, f->drop);
	if (rest) {
		c->fl |= tiny ? S80_UE | S80_PE : S80_PE;
		if (s80_round_up(rc, sign, keep & ulp, rest)) {
			c->fl |= S80_C1;
			keep += ulp;
		}
	}
	return s80_make(sign, keep >> 63, keep);
}

struct s80 s80_round(struct s80_ctx *c, bool sign, int exp, uint64_t hi, uint64_t lo,
		     const struct s80_format *f)
{
	if (__builtin_expect(exp <= 0, 0))
		return underflow(c, sign, exp, hi, lo, f);
	uint64_t in_hi = hi, ulp = 1ULL << f->drop;
	uint64_t rest = split(&hi, lo, f->drop);
	unsigned fl = 0;
	int in_exp = exp;
	if (rest) {
		fl = S80_PE;
		if (s80_round_up(s80_rc(c->cw), sign, hi & ulp, rest)) {
			fl |= S80_C1;
			hi += ulp;
			if (hi < ulp) {
				hi = S80_TOP;
				exp++;
			}
		}
	}
	if (__builtin_expect(exp >= f->emax, 0)) {
		if (c->cw & S80_OE)
			return overflow(c, sign, f);
		c->fl |= S80_OE;
		if (!f->adjust)
			return s80_make(sign, 0, 0);
		if (exp - f->adjust >= f->emax) { /* FSCALE */
			c->fl |= S80_PE | S80_C1;
			return s80_make(sign, f->emax, S80_TOP);
		}
		return s80_round(c, sign, in_exp - f->adjust, in_hi, lo, f);
	}
	c->fl |= (uint16_t)fl;
	return s80_make(sign, exp, hi);
}

/* ---- special operands ------------------------------------------------------------------ */

/* Which NaN comes out (SDM vol. 1 table 4-7, x87 column). */
static struct s80 propagate(struct s80_ctx *c, struct s80 a, struct s80 b, enum s80_class ca,
			    enum s80_class cb)
{
	const uint64_t quiet = S80_TOP >> 1;
	bool first;

	if (ca == S80_SNAN || cb == S80_SNAN)
		c->fl |= S80_IE;
	if (ca < S80_QNAN)
		first = false;
	else if (cb < S80_QNAN)
		first = true;
	else if (ca != cb)
		first = ca == S80_QNAN;
	else if (a.mant != b.mant)
		first = a.mant > b.mant;
	else
		first = a.se <= b.se;
	if (!first)
		a = b;
	a.mant |= quiet;
	return a;
}

bool s80_nan_result(struct s80_ctx *c, struct s80 a, struct s80 b, const struct s80_num *x,
		    const struct s80_num *y, struct s80 *result)
{
	if (x->cls < S80_QNAN && y->cls < S80_QNAN)
		return false;
	if (x->cls == S80_UNSUPPORTED || y->cls == S80_UNSUPPORTED)
		*result = s80_invalid(c);
	else
		*result = propagate(c, a, b, x->cls, y->cls);
	return true;
}

bool s80_denormal(struct s80_ctx *c, bool denormal)
{
	if (!denormal && !c->de)
		return false;
	c->fl |= S80_DE;
	return !(c->cw & S80_DE);
}
