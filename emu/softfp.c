/*
 * IEEE 754 arithmetic in integers: addition, multiplication, division and square root. See
 * softfp.h; softfp-priv.h says how numbers are held.
 */
#include "emu/softfp-priv.h"

INLINE uint64_t g_add(struct fmt f, uint64_t a, uint64_t b, bool sub, struct sfp *s)
{
	if (__builtin_expect(is_nan(f, a) || is_nan(f, b), 0))
		return nan2(f, a, b, s);
	if (sub)
		b ^= fmt_sign(f);
	bool den = false, daz = s->csr & SFP_DAZ;
	struct num x = unpack(f, a, daz, &den), y = unpack(f, b, daz, &den);

	if (x.cls == INF || y.cls == INF) {
		if (x.cls == y.cls && x.sign != y.sign)
			return invalid(f, s);
		if (den)
			s->flags |= SFP_DE;
		return x.cls == INF ? a : b;
	}
	if (den)
		s->flags |= SFP_DE;
	if (x.cls == ZERO && y.cls == ZERO) {
		bool sign = x.sign == y.sign ? x.sign : sfp_rm(s) == SFP_DOWN;
		return sign ? fmt_sign(f) : 0;
	}
	if (y.cls == ZERO)
		return pack_std(f, x.sign, x.exp, x.sig, s);
	if (x.cls == ZERO)
		return pack_std(f, y.sign, y.exp, y.sig, s);
	if (x.exp < y.exp || (x.exp == y.exp && x.sig < y.sig)) {
		struct num t = x;
		x = y;
		y = t;
	}
	uint64_t xs = x.sig >> 1, ys = shift_jam(y.sig >> 1, x.exp - y.exp), r;
	if (x.sign == y.sign)
		r = xs + ys;
	else
		r = xs - ys;
	if (!r)
		return sfp_rm(s) == SFP_DOWN ? fmt_sign(f) : 0;
	int lz = clz(r);
	return pack_std(f, x.sign, x.exp + 1 - lz, r << lz, s);
}

INLINE uint64_t g_mul(struct fmt f, uint64_t a, uint64_t b, struct sfp *s)
{
	if (__builtin_expect(is_nan(f, a) || is_nan(f, b), 0))
		return nan2(f, a, b, s);
	bool den = false, daz = s->csr & SFP_DAZ;
	struct num x = unpack(f, a, daz, &den), y = unpack(f, b, daz, &den);
	bool sign = x.sign != y.sign;
	uint64_t sbit = sign ? fmt_sign(f) : 0;

	if (x.cls != FINITE || y.cls != FINITE) {
		bool inf = x.cls == INF || y.cls == INF;
		if (inf && (x.cls == ZERO || y.cls == ZERO))
			return invalid(f, s);
		if (den)
			s->flags |= SFP_DE;
		return inf ? sbit | fmt_inf(f) : sbit;
	}
	if (den)
		s->flags |= SFP_DE;
	int exp;
	u128 p = multiply(x, y, &exp);
	return pack_std(f, sign, exp, upper_half(p), s);
}

/* num / den (both with bit 63 set) as a number with bit 63 set, sticky in bit 0. *less: num < den,
 * the quotient is below 1. */
INLINE uint64_t divide(uint64_t num, uint64_t den, bool *less)
{
	*less = num < den;
	u128 n = (u128)num << (*less ? 64 : 63);
	uint64_t q = (uint64_t)(n / den);

	return q | (q * den != (uint64_t)n);
}

INLINE uint64_t g_div(struct fmt f, uint64_t a, uint64_t b, struct sfp *s)
{
	if (__builtin_expect(is_nan(f, a) || is_nan(f, b), 0))
		return nan2(f, a, b, s);
	bool den = false, daz = s->csr & SFP_DAZ;
	struct num x = unpack(f, a, daz, &den), y = unpack(f, b, daz, &den);
	bool sign = x.sign != y.sign;
	uint64_t sbit = sign ? fmt_sign(f) : 0;

	if (x.cls != FINITE || y.cls != FINITE) {
		if (x.cls == y.cls)
			return invalid(f, s);
		if (y.cls == ZERO && x.cls == FINITE) {
			s->flags |= SFP_ZE; /* hides DE */
			return sbit | fmt_inf(f);
		}
		if (den)
			s->flags |= SFP_DE;
		return x.cls == INF || y.cls == ZERO ? sbit | fmt_inf(f) : sbit;
	}
	if (den)
		s->flags |= SFP_DE;
	bool less;
	uint64_t q = divide(x.sig, y.sig, &less);
	return pack_std(f, sign, x.exp - y.exp - less, q, s);
}

INLINE uint64_t g_sqrt(struct fmt f, uint64_t a, struct sfp *s)
{
	if (__builtin_expect(is_nan(f, a), 0))
		return nan2(f, a, a, s);
	bool den = false, daz = s->csr & SFP_DAZ;
	struct num x = unpack(f, a, daz, &den);

	if (x.cls == ZERO)
		return a & fmt_sign(f);
	if (x.sign)
		return invalid(f, s);
	if (x.cls == INF)
		return a;
	if (den)
		s->flags |= SFP_DE;

	/*
	 * Digit by digit: bring down two bits of the radicand a turn, so that after n turns
	 * `root` is the integer square root of its first 2n bits and `rem` what is left. Made even,
	 * the exponent leaves sig / 2^62 or sig / 2^63 in [1, 4).
	 */
	const int bits = f.mant + 3;
	bool odd = x.exp & 1;
	u128 n = (u128)x.sig << (odd ? 64 : 63);
	uint64_t root = 0, rem = 0;
	for (int i = 0; i < bits; i++) {
		rem = rem << 2 | (uint64_t)(n >> 126);
		n <<= 2;
		uint64_t trial = root << 2 | 1;
		root <<= 1;
		if (rem >= trial) {
			rem -= trial;
			root |= 1;
		}
	}
	bool sticky = rem || n;
	return pack_std(f, false, (x.exp - odd) / 2, root << (64 - bits) | sticky, s);
}

/* ---- the public functions for each width ---------------------------------------------- */

#define DEFINE(W)                                                                                  \
	uint##W##_t sfp_add##W(uint##W##_t a, uint##W##_t b, struct sfp *s)                        \
	{                                                                                          \
		return (uint##W##_t)g_add(F##W, a, b, false, s);                                   \
	}                                                                                          \
	uint##W##_t sfp_sub##W(uint##W##_t a, uint##W##_t b, struct sfp *s)                        \
	{                                                                                          \
		return (uint##W##_t)g_add(F##W, a, b, true, s);                                    \
	}                                                                                          \
	uint##W##_t sfp_mul##W(uint##W##_t a, uint##W##_t b, struct sfp *s)                        \
	{                                                                                          \
		return (uint##W##_t)g_mul(F##W, a, b, s);                                          \
	}                                                                                          \
	uint##W##_t sfp_div##W(uint##W##_t a, uint##W##_t b, struct sfp *s)                        \
	{                                                                                          \
		return (uint##W##_t)g_div(F##W, a, b, s);                                          \
	}                                                                                          \
	uint##W##_t sfp_sqrt##W(uint##W##_t a, struct sfp *s)                                      \
	{                                                                                          \
		return (uint##W##_t)g_sqrt(F##W, a, s);                                            \
	}
DEFINE(32)
DEFINE(64)
