/*
 * IEEE 754 arithmetic in integers: the fused multiply-add, a * b + c rounded once. See softfp.h;
 * softfp-priv.h says how numbers are held.
 */
#include "emu/softfp-priv.h"

/* Shift right, any bit lost left behind as bit 0. */
INLINE u128 shift_jam128(u128 x, int n)
{
	if (n <= 0)
		return x;
	if (n > 127)
		return x != 0;
	return x >> n | ((x << (128 - n)) != 0);
}

/* The exact product plus z, rounded. Both are shifted right by one first, which makes room for a
 * carry: neither loses a bit by this, the product's last bit is above bit 1. */
INLINE uint64_t add_product(struct fmt f, bool psign, int pexp, u128 p, struct num z, struct sfp *s)
{
	u128 q = (u128)z.sig << 63, r;
	int exp = pexp;
	bool sign = psign;

	p >>= 1;
	if (pexp >= z.exp) {
		q = shift_jam128(q, pexp - z.exp);
	} else {
		p = shift_jam128(p, z.exp - pexp);
		exp = z.exp;
	}
	if (psign == z.sign) {
		r = p + q;
	} else if (p >= q) {
		r = p - q;
	} else {
		r = q - p;
		sign = z.sign;
	}
	if (!r)
		return sfp_rm(s) == SFP_DOWN ? fmt_sign(f) : 0;
	int lz = r >> 64 ? clz((uint64_t)(r >> 64)) : 64 + clz((uint64_t)r);
	r <<= lz;
	return pack_std(f, sign, exp + 1 - lz, upper_half(r), s);
}

INLINE uint64_t g_fma(struct fmt f, uint64_t a, uint64_t b, uint64_t c, unsigned neg, struct sfp *s)
{
	if (__builtin_expect(is_nan(f, a) || is_nan(f, b) || is_nan(f, c), 0)) {
		if (is_snan(f, a) || is_snan(f, b) || is_snan(f, c))
			s->flags |= SFP_IE;
		return (is_nan(f, a) ? a : is_nan(f, b) ? b : c) | fmt_quiet(f);
	}
	bool den = false, daz = s->csr & SFP_DAZ;
	struct num x = unpack(f, a, daz, &den), y = unpack(f, b, daz, &den),
		   z = unpack(f, c, daz, &den);
	bool psign = (x.sign != y.sign) != !!(neg & SFP_NEG_PRODUCT);
	z.sign ^= !!(neg & SFP_NEG_ADDEND);
	bool pinf = x.cls == INF || y.cls == INF, pzero = x.cls == ZERO || y.cls == ZERO;

	if (pinf && pzero)
		return invalid(f, s);
	if (pinf && z.cls == INF && psign != z.sign)
		return invalid(f, s);
	if (den)
		s->flags |= SFP_DE;
	if (pinf || z.cls == INF)
		return ((pinf ? psign : z.sign) ? fmt_sign(f) : 0) | fmt_inf(f);
	if (pzero && z.cls == ZERO) {
		bool sign = psign == z.sign ? psign : sfp_rm(s) == SFP_DOWN;
		return sign ? fmt_sign(f) : 0;
	}
	if (pzero)
		return pack_std(f, z.sign, z.exp, z.sig, s);

	int pexp;
	u128 p = multiply(x, y, &pexp);
	if (z.cls == ZERO)
		return pack_std(f, psign, pexp, upper_half(p), s);
	return add_product(f, psign, pexp, p, z, s);
}

/* ---- the public functions for each width ---------------------------------------------- */

#define DEFINE(W)                                                                                  \
	uint##W##_t sfp_fma##W(uint##W##_t a, uint##W##_t b, uint##W##_t c, unsigned neg,          \
			       struct sfp *s)                                                      \
	{                                                                                          \
		return (uint##W##_t)g_fma(F##W, a, b, c, neg, s);                                  \
	}
DEFINE(32)
DEFINE(64)
