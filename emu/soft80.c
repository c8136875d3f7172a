/*
 * 80-bit extended arithmetic in integers: addition, multiplication, division and square root,
 * which precision control narrows. See soft80.h, and soft80-priv.h for how operations are made.
 */
#include "emu/soft80-priv.h"

/* Round under precision control. The common case, full precision to nearest and no exponent near
 * an end, has no branch that depends on the value. */
static inline struct s80 finish(struct s80_ctx *c, bool sign, int exp, uint64_t hi, uint64_t lo)
{
	if (__builtin_expect((c->cw & 0xf00) != 0x300 || exp < 1 || exp > 0x7ffd, 0))
		return s80_round(c, sign, exp, hi, lo, &s80_formats[c->cw >> 8 & 3]);
	unsigned up = (lo > S80_TOP) | ((lo == S80_TOP) & (unsigned)(hi & 1));
	c->fl |= (uint16_t)((lo != 0) * S80_PE | up * S80_C1);
	hi += up;
	unsigned carry = up & (hi == 0);
	return s80_make(sign, exp + (int)carry, hi | (uint64_t)carry << 63);
}

/* ---- addition ---------------------------------------------------------------------------- */

/* Sum of two normalised magnitudes; `sign` is a's, `minus` that the signs differ. */
static inline struct s80 add_mags(struct s80_ctx *c, bool sign, bool minus, int ea, uint64_t ma,
				  int eb, uint64_t mb)
{
	if (ea < eb || (ea == eb && ma < mb)) {
		int e = ea;
		uint64_t m = ma;
		ea = eb;
		ma = mb;
		eb = e;
		mb = m;
		sign ^= minus;
	}
	u128 a = (u128)ma << 64;
	u128 b = s80_shift_jam((u128)mb << 64, (unsigned)(ea - eb));
	if (!minus) {
		u128 s = a + b;
		if (s < a) {
			s = s >> 1 | (s & 1) | (u128)1 << 127;
			ea++;
		}
		return finish(c, sign, ea, (uint64_t)(s >> 64), (uint64_t)s);
	}
	u128 s = a - b;
	if (s == 0)
		return s80_make(s80_rc(c->cw) == 1, 0, 0);
	uint64_t hi = (uint64_t)(s >> 64);
	unsigned n =
		hi ? (unsigned)__builtin_clzll(hi) : 64 + (unsigned)__builtin_clzll((uint64_t)s);
	s <<= n;
	return finish(c, sign, ea - (int)n, (uint64_t)(s >> 64), (uint64_t)s);
}

static struct s80 add_special(struct s80_ctx *c, struct s80 a, struct s80 b, bool flip)
{
	struct s80_num x = s80_unpack(a), y = s80_unpack(b);
	struct s80 r;
	if (s80_nan_result(c, a, b, &x, &y, &r))
		return r;
	y.sign ^= flip;
	if (x.cls == S80_INF && y.cls == S80_INF && x.sign != y.sign)
		return s80_invalid(c);
	if (s80_denormal(c, x.denormal || y.denormal))
		return a;
	if (x.cls == S80_INF)
		return a;
	if (y.cls == S80_INF)
		return s80_make(y.sign, 0x7fff, S80_TOP);
	if (x.cls == S80_ZERO && y.cls == S80_ZERO)
		return s80_make(x.sign == y.sign ? x.sign : s80_rc(c->cw) == 1, 0, 0);
	if (x.cls == S80_ZERO)
		return finish(c, y.sign, y.exp, y.mant, 0);
	if (y.cls == S80_ZERO)
		return finish(c, x.sign, x.exp, x.mant, 0);
	return add_mags(c, x.sign, x.sign != y.sign, x.exp, x.mant, y.exp, y.mant);
}

static inline struct s80 addsub(struct s80_ctx *c, struct s80 a, struct s80 b, bool flip)
{
	if (__builtin_expect(!s80_normal(a) || !s80_normal(b) || c->de, 0))
		return add_special(c, a, b, flip);
	bool sa = a.se >> 15, sb = (b.se >> 15) ^ flip;
	return add_mags(c, sa, sa != sb, a.se & 0x7fff, a.mant, b.se & 0x7fff, b.mant);
}

struct s80 s80_add(struct s80_ctx *c, struct s80 a, struct s80 b)
{
	return addsub(c, a, b, false);
}

struct s80 s80_sub(struct s80_ctx *c, struct s80 a, struct s80 b)
{
	return addsub(c, a, b, true);
}

/* ---- multiplication, division, square root -------------------------------------------------- */

static inline struct s80 mul_mags(struct s80_ctx *c, bool sign, int exp, uint64_t ma, uint64_t mb)
{
	u128 p = (u128)ma * mb;
	if (p >> 127)
		exp++;
	else
		p <<= 1;
	return finish(c, sign, exp, (uint64_t)(p >> 64), (uint64_t)p);
}

struct s80 s80_mul(struct s80_ctx *c, struct s80 a, struct s80 b)
{
	if (__builtin_expect(s80_normal(a) && s80_normal(b) && !c->de, 1))
		return mul_mags(c, (a.se ^ b.se) >> 15,
				(a.se & 0x7fff) + (b.se & 0x7fff) - S80_BIAS, a.mant, b.mant);

	struct s80_num x = s80_unpack(a), y = s80_unpack(b);
	struct s80 r;
	if (s80_nan_result(c, a, b, &x, &y, &r))
		return r;
	bool sign = x.sign != y.sign;
	if ((x.cls == S80_INF && y.cls == S80_ZERO) || (x.cls == S80_ZERO && y.cls == S80_INF))
		return s80_invalid(c);
	if (s80_denormal(c, x.denormal || y.denormal))
		return a;
	if (x.cls == S80_INF || y.cls == S80_INF)
		return s80_make(sign, 0x7fff, S80_TOP);
	if (x.cls == S80_ZERO || y.cls == S80_ZERO)
		return s80_make(sign, 0, 0);
	return mul_mags(c, sign, x.exp + y.exp - S80_BIAS, x.mant, y.mant);
}

static inline struct s80 div_mags(struct s80_ctx *c, bool sign, int exp, uint64_t ma, uint64_t mb)
{
	u128 n = (u128)ma << 63;
	if (ma < mb) {
		n <<= 1;
		exp--;
	}
	uint64_t q = (uint64_t)(n / mb);
	uint64_t rem = (uint64_t)n - q * mb; /* < mb, so the low half suffices */
	uint64_t lo = 0;
	if (rem) /* above or below one half: a 65-bit quotient times mb is no 64-bit number */
		lo = rem > mb - rem ? S80_TOP | 1 : 1;
	return finish(c, sign, exp, q, lo);
}

struct s80 s80_div(struct s80_ctx *c, struct s80 a, struct s80 b)
{
	if (__builtin_expect(s80_normal(a) && s80_normal(b) && !c->de, 1))
		return div_mags(c, (a.se ^ b.se) >> 15,
				(a.se & 0x7fff) - (b.se & 0x7fff) + S80_BIAS, a.mant, b.mant);

	struct s80_num x = s80_unpack(a), y = s80_unpack(b);
	struct s80 r;
	if (s80_nan_result(c, a, b, &x, &y, &r))
		return r;
	bool sign = x.sign != y.sign;
	if (x.cls == y.cls && (x.cls == S80_INF || x.cls == S80_ZERO))
		return s80_invalid(c);
	if (y.cls == S80_ZERO && x.cls == S80_FINITE) {
		c->fl |= S80_ZE;
		return s80_make(sign, 0x7fff, S80_TOP);
	}
	if (s80_denormal(c, x.denormal || y.denormal))
		return a;
	if (x.cls == S80_INF || y.cls == S80_ZERO)
		return s80_make(sign, 0x7fff, S80_TOP);
	if (x.cls == S80_ZERO || y.cls == S80_INF)
		return s80_make(sign, 0, 0);
	return div_mags(c, sign, x.exp - y.exp + S80_BIAS, x.mant, y.mant);
}

/* Integer square root of n >= 2^62, and the remainder. */
static uint32_t isqrt64(uint64_t n, uint64_t *rem)
{
	uint64_t root = 0, rest = n;
	for (uint64_t bit = 1ULL << 62; bit; bit >>= 2) {
		if (rest >= root + bit) {
			rest -= root + bit;
			root = (root >> 1) + bit;
		} else {
			root >>= 1;
		}
	}
	*rem = rest;
	return (uint32_t)root;
}

/* The same for n >= 2^126: the upper half's root, then one division for the lower half
 * (P. Zimmermann, "Karatsuba Square Root", INRIA RR-3805). */
static uint64_t isqrt128(u128 n, u128 *rem)
{
	uint64_t r1, s1 = isqrt64((uint64_t)(n >> 64), &r1);
	u128 t = (u128)r1 << 32 | (uint32_t)(n >> 32);
	u128 q = t / (2 * s1), u = t % (2 * s1);
	u128 s = ((u128)s1 << 32) + q;
	__int128 r = (__int128)(u << 32 | (uint32_t)n) - (__int128)(q * q);
	while (r < 0) {
		r += (__int128)(2 * s - 1);
		s--;
	}
	*rem = (u128)r;
	return (uint64_t)s;
}

struct s80 s80_sqrt(struct s80_ctx *c, struct s80 a)
{
	struct s80_num x = s80_unpack(a);
	struct s80 r;
	if (s80_nan_result(c, a, a, &x, &x, &r))
		return r;
	if (x.cls == S80_ZERO)
		return a;
	if (x.sign)
		return s80_invalid(c);
	if (s80_denormal(c, x.denormal))
		return a;
	if (x.cls == S80_INF)
		return a;
	int e = x.exp - S80_BIAS;
	bool odd = e & 1;
	u128 rem;
	uint64_t root = isqrt128((u128)x.mant << (odd ? 64 : 63), &rem);
	/* (root + 1/2)^2 = root^2 + root + 1/4: above one half if rem > root, never at it */
	uint64_t lo = rem == 0 ? 0 : rem > root ? S80_TOP | 1 : 1;
	return finish(c, false, (e - odd) / 2 + S80_BIAS, root, lo);
}
