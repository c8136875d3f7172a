/*
 * 80-bit extended arithmetic in integers: the operations. See soft80.h.
 *
 * Each operation has a short way for two ordinary numbers and sends everything else through
 * special operand rules. Both end in s80_round(), which is given the exact result as a
 * normalised 64-bit significand plus 64 bits of fraction whose lowest bit is sticky.
 */
#include "emu/soft80.h"

typedef unsigned __int128 u128;

static const struct s80_format formats[4] = {
	/* by precision control; 1 is reserved and acts as full precision */
	{ .drop = 40, .emax = 0x7fff, .adjust = 24576 },
	{ .drop = 0, .emax = 0x7fff, .adjust = 24576 },
	{ .drop = 11, .emax = 0x7fff, .adjust = 24576 },
	{ .drop = 0, .emax = 0x7fff, .adjust = 24576 },
};
static const struct s80_format *const full = &formats[3];

static inline const struct s80_format *controlled(const struct s80_ctx *c)
{
	return &formats[c->cw >> 8 & 3];
}

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

static inline bool normal(struct s80 a)
{
	return (unsigned)(a.se & 0x7fff) - 1u < 0x7ffeu && (a.mant & S80_TOP);
}

/* ---- rounding ------------------------------------------------------------------------ */

/* hi:lo >> n with the lost bits gathered in the lowest one. */
static inline u128 shift_jam(u128 v, unsigned n)
{
	if (n == 0)
		return v;
	if (n > 127)
		return v != 0;
	return v >> n | ((v << (128 - n)) != 0);
}

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
	u128 v = shift_jam((u128)hi << 64 | lo, (unsigned)(1 - exp));
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

/* Round under precision control. The common case, full precision to nearest and no exponent near
 * an end, has no branch that depends on the value. */
static inline struct s80 finish(struct s80_ctx *c, bool sign, int exp, uint64_t hi, uint64_t lo)
{
	if (__builtin_expect((c->cw & 0xf00) != 0x300 || exp < 1 || exp > 0x7ffd, 0))
		return s80_round(c, sign, exp, hi, lo, controlled(c));
	unsigned up = (lo > S80_TOP) | ((lo == S80_TOP) & (unsigned)(hi & 1));
	c->fl |= (uint16_t)((lo != 0) * S80_PE | up * S80_C1);
	hi += up;
	unsigned carry = up & (hi == 0);
	return s80_make(sign, exp + (int)carry, hi | (uint64_t)carry << 63);
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

/* Unsupported operands and NaNs decide the result of any operation. */
static bool nan_result(struct s80_ctx *c, struct s80 a, struct s80 b, const struct s80_num *x,
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

/* Raise DE if called for; true if that ends the instruction. */
static bool denormal(struct s80_ctx *c, bool denormal)
{
	if (!denormal && !c->de)
		return false;
	c->fl |= S80_DE;
	return !(c->cw & S80_DE);
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
	u128 b = shift_jam((u128)mb << 64, (unsigned)(ea - eb));
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
	if (nan_result(c, a, b, &x, &y, &r))
		return r;
	y.sign ^= flip;
	if (x.cls == S80_INF && y.cls == S80_INF && x.sign != y.sign)
		return s80_invalid(c);
	if (denormal(c, x.denormal || y.denormal))
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
	if (__builtin_expect(!normal(a) || !normal(b) || c->de, 0))
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
	if (__builtin_expect(normal(a) && normal(b) && !c->de, 1))
		return mul_mags(c, (a.se ^ b.se) >> 15,
				(a.se & 0x7fff) + (b.se & 0x7fff) - S80_BIAS, a.mant, b.mant);

	struct s80_num x = s80_unpack(a), y = s80_unpack(b);
	struct s80 r;
	if (nan_result(c, a, b, &x, &y, &r))
		return r;
	bool sign = x.sign != y.sign;
	if ((x.cls == S80_INF && y.cls == S80_ZERO) || (x.cls == S80_ZERO && y.cls == S80_INF))
		return s80_invalid(c);
	if (denormal(c, x.denormal || y.denormal))
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
	if (__builtin_expect(normal(a) && normal(b) && !c->de, 1))
		return div_mags(c, (a.se ^ b.se) >> 15,
				(a.se & 0x7fff) - (b.se & 0x7fff) + S80_BIAS, a.mant, b.mant);

	struct s80_num x = s80_unpack(a), y = s80_unpack(b);
	struct s80 r;
	if (nan_result(c, a, b, &x, &y, &r))
		return r;
	bool sign = x.sign != y.sign;
	if (x.cls == y.cls && (x.cls == S80_INF || x.cls == S80_ZERO))
		return s80_invalid(c);
	if (y.cls == S80_ZERO && x.cls == S80_FINITE) {
		c->fl |= S80_ZE;
		return s80_make(sign, 0x7fff, S80_TOP);
	}
	if (denormal(c, x.denormal || y.denormal))
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
	if (nan_result(c, a, a, &x, &x, &r))
		return r;
	if (x.cls == S80_ZERO)
		return a;
	if (x.sign)
		return s80_invalid(c);
	if (denormal(c, x.denormal))
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

/* ---- the rest ------------------------------------------------------------------------ */

struct s80 s80_round_int(struct s80_ctx *c, struct s80 a)
{
	struct s80_num x = s80_unpack(a);
	struct s80 r;
	if (nan_result(c, a, a, &x, &x, &r))
		return r;
	if (x.cls != S80_FINITE || x.exp >= S80_BIAS + 63)
		return a;
	if (denormal(c, x.denormal))
		return a;
	u128 v = shift_jam((u128)x.mant << 64, (unsigned)(S80_BIAS + 63 - x.exp));
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
	if (nan_result(c, a, b, &x, &y, &r))
		return r;
	if (y.cls == S80_INF && x.cls == (y.sign ? S80_INF : S80_ZERO))
		return s80_invalid(c);
	if (denormal(c, x.denormal || y.denormal))
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
	return s80_round(c, x.sign, x.exp + n, x.mant, 0, full);
}

struct s80 s80_extract(struct s80_ctx *c, struct s80 a, struct s80 *exponent)
{
	struct s80_num x = s80_unpack(a);
	struct s80 r;
	if (nan_result(c, a, a, &x, &x, &r)) {
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
	if (denormal(c, x.denormal))
		return a;
	*exponent = s80_from_int(x.exp - S80_BIAS);
	return s80_make(x.sign, S80_BIAS, x.mant);
}

struct s80 s80_remainder(struct s80_ctx *c, struct s80 a, struct s80 b, bool nearest, unsigned *cc)
{
	struct s80_num x = s80_unpack(a), y = s80_unpack(b);
	struct s80 r;
	if (nan_result(c, a, b, &x, &y, &r))
		return r;
	if (x.cls == S80_INF || y.cls == S80_ZERO)
		return s80_invalid(c);
	if (denormal(c, x.denormal || y.denormal))
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
	return s80_round(c, sign, exp - shift, (uint64_t)rem << shift, 0, full);
}

unsigned s80_compare(struct s80_ctx *c, struct s80 a, struct s80 b, bool quiet)
{
	const unsigned less = S80_C0, equal = S80_C3, greater = 0;

	if (__builtin_expect(normal(a) && normal(b) && !c->de, 1)) {
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
	denormal(c, x.denormal || y.denormal);
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
