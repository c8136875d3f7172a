/*
 * 80-bit extended arithmetic in integers: the operations that precision control leaves alone
 * (rounding to an integer, scaling, remainders, comparing). See soft80.h.
 */
#include "emu/soft80-priv.h"

struct s80 s80_round_int(struct s80_ctx *c, struct s80 a)
{
	struct s80_num x = s80_unpack(a);
	struct s80 r;
	if (s80_nan_result(c, a, a, &x, &x, &r))
		return r;
	if (x.cls != S80_FINITE || x.exp >= S80_BIAS + 63)
		return a;
	if (s80_denormal(c, x.denormal))
		return a;
	u128 v = s80_shift_jam((u128)x.mant << 64, (unsigned)(S80_BIAS + 63 - x.exp));
	uint64_t n = (uint64_t)(v >> 64), rest = (uint64_t)v;
	if (rest) {
		c->fl |= S80_PE;
		if (s80_round_up(s80_rc(c->cw), x.sign, n & 1, rest)) {
			c->fl |= S80_C1;
			n++;
		}
	}
	if (n == 0)
		return s80_make(x.sign, 0, 0);
	int shift = __builtin_clzll(n);
	return s80_make(x.sign, S80_BIAS + 63 - shift, n << shift);
}

/* A finite number as a result that was not computed: never tiny, a pseudo-denormal gets the
 * exponent that its value has. */
static struct s80 unchanged(struct s80 a)
{
	if ((a.se & 0x7fff) == 0 && (a.mant & S80_TOP))
		a.se |= 1;
	return a;
}

struct s80 s80_scale(struct s80_ctx *c, struct s80 a, struct s80 b)
{
	struct s80_num x = s80_unpack(a), y = s80_unpack(b);
	struct s80 r;
	if (s80_nan_result(c, a, b, &x, &y, &r))
		return r;
	if (y.cls == S80_INF && x.cls == (y.sign ? S80_INF : S80_ZERO))
		return s80_invalid(c);
	if (s80_denormal(c, x.denormal || y.denormal))
		return a;
	if (x.cls != S80_FINITE)
		return a;
	if (y.cls == S80_INF)
		return y.sign ? s80_make(x.sign, 0, 0) : s80_make(x.sign, 0x7fff, S80_TOP);
	if (y.cls == S80_ZERO)
		return unchanged(a);
	int n = 0;
	if (y.exp >= S80_BIAS) {
		/* Far beyond what any exponent can absorb is all the same. */
		n = y.exp > S80_BIAS + 16 ? 0x20000 : (int)(y.mant >> (S80_BIAS + 63 - y.exp));
		if (y.sign)
			n = -n;
	}
	return s80_round(c, x.sign, x.exp + n, x.mant, 0, S80_FULL);
}

struct s80 s80_extract(struct s80_ctx *c, struct s80 a, struct s80 *exponent)
{
	struct s80_num x = s80_unpack(a);
	struct s80 r;
	if (s80_nan_result(c, a, a, &x, &x, &r)) {
		*exponent = r;
		return r;
	}
	if (x.cls == S80_INF) {
		*exponent = s80_make(false, 0x7fff, S80_TOP);
		return a;
	}
	if (x.cls == S80_ZERO) {
		c->fl |= S80_ZE;
		*exponent = s80_make(true, 0x7fff, S80_TOP);
		return a;
	}
	if (s80_denormal(c, x.denormal))
		return a;
	*exponent = s80_from_int(x.exp - S80_BIAS);
	return s80_make(x.sign, S80_BIAS, x.mant);
}

struct s80 s80_remainder(struct s80_ctx *c, struct s80 a, struct s80 b, bool nearest, unsigned *cc)
{
	struct s80_num x = s80_unpack(a), y = s80_unpack(b);
	struct s80 r;
	if (s80_nan_result(c, a, b, &x, &y, &r))
		return r;
	if (x.cls == S80_INF || y.cls == S80_ZERO)
		return s80_invalid(c);
	if (s80_denormal(c, x.denormal || y.denormal))
		return a;
	*cc = 0;
	if (x.cls == S80_ZERO)
		return a;
	if (y.cls == S80_INF)
		return unchanged(a);

	int d = x.exp - y.exp, exp = y.exp;
	uint64_t q = 0;
	bool sign = x.sign;
	u128 rem = x.mant;
	if (d >= 64) {
		/* Partial: reduce the exponent by n, 32..63 (what n is the SDM leaves open). */
		int n = (d & 31) | 32;
		rem = ((u128)x.mant << n) % y.mant;
		exp += d - n;
		*cc = S80_C2;
	} else if (d >= 0) {
		u128 num = (u128)x.mant << d;
		q = (uint64_t)(num / y.mant);
		rem = num % y.mant;
	} else {
		exp = x.exp;
	}
	if (nearest && d >= -1 && d < 64) {
		/* Is it nearer to one divisor more? rem is at scale 2^exp. */
		u128 twice = d == -1 ? rem : rem << 1;
		if (twice > y.mant || (twice == y.mant && (q & 1))) {
			rem = (d == -1 ? (u128)y.mant << 1 : y.mant) - rem;
			q++;
			sign = !sign;
		}
	}
	*cc |= (q & 4 ? S80_C0 : 0) | (q & 2 ? S80_C3 : 0) | (q & 1 ? S80_C1 : 0);
	if (rem == 0)
		return s80_make(x.sign, 0, 0);
	int shift = __builtin_clzll((uint64_t)rem);
	return s80_round(c, sign, exp - shift, (uint64_t)rem << shift, 0, S80_FULL);
}

unsigned s80_compare(struct s80_ctx *c, struct s80 a, struct s80 b, bool quiet)
{
	const unsigned less = S80_C0, equal = S80_C3, greater = 0;

	if (__builtin_expect(s80_normal(a) && s80_normal(b) && !c->de, 1)) {
		if (a.se == b.se && a.mant == b.mant)
			return equal;
		if ((a.se ^ b.se) >> 15)
			return a.se >> 15 ? less : greater;
		bool below = a.se < b.se || (a.se == b.se && a.mant < b.mant);
		return below != (bool)(a.se >> 15) ? less : greater;
	}
	struct s80_num x = s80_unpack(a), y = s80_unpack(b);

	if (x.cls >= S80_QNAN || y.cls >= S80_QNAN) {
		if (!quiet || x.cls > S80_QNAN || y.cls > S80_QNAN)
			c->fl |= S80_IE;
		return S80_C3 | S80_C2 | S80_C0;
	}
	s80_denormal(c, x.denormal || y.denormal);
	if (x.cls == S80_ZERO && y.cls == S80_ZERO)
		return equal;
	if (x.cls == S80_ZERO)
		return y.sign ? greater : less;
	if (y.cls == S80_ZERO)
		return x.sign ? less : greater;
	if (x.sign != y.sign)
		return x.sign ? less : greater;
	if (x.exp == y.exp && x.mant == y.mant)
		return equal;
	bool smaller = x.exp < y.exp || (x.exp == y.exp && x.mant < y.mant);
	return smaller != x.sign ? less : greater;
}

unsigned s80_examine(struct s80 a)
{
	static const uint16_t codes[] = {
		[S80_ZERO] = S80_C3, [S80_FINITE] = S80_C2, [S80_INF] = S80_C2 | S80_C0,
		[S80_QNAN] = S80_C0, [S80_SNAN] = S80_C0,   [S80_UNSUPPORTED] = 0,
	};
	struct s80_num x = s80_unpack(a);
	unsigned cc = codes[x.cls];
	if (x.denormal)
		cc = S80_C3 | S80_C2;
	return cc | (x.sign ? S80_C1 : 0);
}
