/*
 * IEEE 754 arithmetic in integers; see softfp.h. Relies on nothing of the host but 64-bit
 * integers.
 *
 * Every format is unpacked into sign, exponent and a 64-bit significand whose bit 63 is set:
 * value = sig / 2^63 * 2^exp. Even binary64 then has eleven spare bits below, so that a sticky
 * bit in bit 0 is all that rounding needs to know about what was shifted out. The
 * generic functions are inlined with a constant format into the public ones at the end.
 */
#include "emu/softfp.h"

#define INLINE static inline __attribute__((always_inline))

struct fmt {
	int mant, exp; /* bits of the stored significand and of the exponent */
};
#define F16 ((struct fmt){ 10, 5 })
#define F32 ((struct fmt){ 23, 8 })
#define F64 ((struct fmt){ 52, 11 })

INLINE int fmt_emax(struct fmt f)
{
	return (1 << f.exp) - 1;
}
INLINE int fmt_bias(struct fmt f)
{
	return (1 << (f.exp - 1)) - 1;
}
INLINE uint64_t fmt_mmask(struct fmt f)
{
	return (1ULL << f.mant) - 1;
}
INLINE uint64_t fmt_sign(struct fmt f)
{
	return 1ULL << (f.mant + f.exp);
}
INLINE uint64_t fmt_inf(struct fmt f)
{
	return (uint64_t)fmt_emax(f) << f.mant;
}
INLINE uint64_t fmt_quiet(struct fmt f)
{
	return 1ULL << (f.mant - 1);
}
/* The "QNaN floating-point indefinite" (SDM vol. 1, 4.8.3.7). */
INLINE uint64_t fmt_indefinite(struct fmt f)
{
	return fmt_sign(f) | fmt_inf(f) | fmt_quiet(f);
}
INLINE bool is_nan(struct fmt f, uint64_t a)
{
	return (a & (fmt_sign(f) - 1)) > fmt_inf(f);
}
INLINE bool is_snan(struct fmt f, uint64_t a)
{
	return is_nan(f, a) && !(a & fmt_quiet(f));
}
INLINE bool is_denormal(struct fmt f, uint64_t a)
{
	return !(a & fmt_inf(f)) && (a & fmt_mmask(f));
}

enum { ZERO, FINITE, INF };

struct num {
	uint64_t sig;
	int exp;
	bool sign;
	uint8_t cls; /* ZERO, FINITE, INF */
};

INLINE int clz(uint64_t x)
{
	return __builtin_clzll(x);
}

/* `a` must not be a NaN. Sets *den if it is a denormal that counts as one. */
INLINE struct num unpack(struct fmt f, uint64_t a, bool daz, bool *den)
{
	struct num n = { .sign = (a & fmt_sign(f)) != 0 };
	int e = (int)(a >> f.mant) & fmt_emax(f);
	uint64_t m = a & fmt_mmask(f);

	if (e == fmt_emax(f)) {
		n.cls = INF;
	} else if (e) {
		n.cls = FINITE;
		n.sig = 1ULL << 63 | m << (63 - f.mant);
		n.exp = e - fmt_bias(f);
	} else if (m && !daz) {
		int lz = clz(m);
		n.cls = FINITE;
		n.sig = m << lz;
		n.exp = 1 - fmt_bias(f) - f.mant + 63 - lz;
		*den = true;
	} else {
		n.cls = ZERO;
	}
	return n;
}

/* Whether a value is rounded away from zero: `r` is what is kept, `rem` what is cut off, of
 * which `half` is one half of r's last place. */
INLINE bool round_up(unsigned rm, bool sign, uint64_t r, uint64_t rem, uint64_t half)
{
	switch (rm) {
	case SFP_NEAREST:
		return rem > half || (rem == half && (r & 1));
	case SFP_DOWN:
		return sign && rem;
	case SFP_UP:
		return !sign && rem;
	default:
		return false;
	}
}

/* Shift right, any bit lost left behind as bit 0. */
INLINE uint64_t shift_jam(uint64_t x, int n)
{
	if (n <= 0)
		return x;
	if (n > 63)
		return x != 0;
	return x >> n | ((x << (64 - n)) != 0);
}

/* Round sig / 2^63 * 2^exp (bit 63 of sig set) to the format. */
INLINE uint64_t pack(struct fmt f, bool sign, int exp, uint64_t sig, unsigned rm, bool ftz,
		     struct sfp *s)
{
	const int shift = 63 - f.mant;
	const uint64_t mask = (1ULL << shift) - 1, half = 1ULL << (shift - 1);
	uint64_t sbit = sign ? fmt_sign(f) : 0;
	int e = exp + fmt_bias(f);
	uint64_t r = sig >> shift, rem = sig & mask;

	r += round_up(rm, sign, r, rem, half);
	if (r >> (f.mant + 1)) {
		r >>= 1;
		e++;
	}
	if (__builtin_expect(e >= fmt_emax(f), 0)) {
		s->flags |= SFP_OE;
		/* unmasked, the precision flag speaks of the significand only */
		if (rem || (s->csr & SFP_OE << SFP_MASK_SHIFT))
			s->flags |= SFP_PE;
		if (rm == SFP_ZERO || rm == (sign ? SFP_UP : SFP_DOWN))
			return sbit | (fmt_inf(f) - 1);
		return sbit | fmt_inf(f);
	}
	if (__builtin_expect(e < 1, 0)) {
		bool masked = s->csr & SFP_UE << SFP_MASK_SHIFT;

		if (!masked) {
			s->flags |= SFP_UE | (rem ? SFP_PE : 0);
			return sbit; /* the instruction faults: nobody looks */
		}
		if (ftz) {
			s->flags |= SFP_UE | SFP_PE;
			return sbit;
		}
		sig = shift_jam(sig, 1 - (exp + fmt_bias(f)));
		r = sig >> shift;
		rem = sig & mask;
		if (rem)
			s->flags |= SFP_UE | SFP_PE;
		return sbit + r + round_up(rm, sign, r, rem, half);
	}
	if (rem)
		s->flags |= SFP_PE;
	return sbit + ((uint64_t)(e - 1) << f.mant) + r;
}

INLINE uint64_t pack_std(struct fmt f, bool sign, int exp, uint64_t sig, struct sfp *s)
{
	return pack(f, sign, exp, sig, sfp_rm(s), s->csr & SFP_FTZ, s);
}

INLINE uint64_t invalid(struct fmt f, struct sfp *s)
{
	s->flags |= SFP_IE;
	return fmt_indefinite(f);
}

/* The NaN that comes of operands of which at least one is a NaN (SDM vol. 1, table 4-7). */
INLINE uint64_t nan2(struct fmt f, uint64_t a, uint64_t b, struct sfp *s)
{
	if (is_snan(f, a) || is_snan(f, b))
		s->flags |= SFP_IE;
	return (is_nan(f, a) ? a : b) | fmt_quiet(f);
}

/* ---- 128-bit help ------------------------------------------------------------------ */

struct u128 {
	uint64_t hi, lo;
};

INLINE struct u128 mul64(uint64_t a, uint64_t b)
{
#ifdef __SIZEOF_INT128__
	unsigned __int128 p = (unsigned __int128)a * b;
	return (struct u128){ (uint64_t)(p >> 64), (uint64_t)p };
#else
	uint64_t al = (uint32_t)a, ah = a >> 32, bl = (uint32_t)b, bh = b >> 32;
	uint64_t ll = al * bl, m = ah * bl + (ll >> 32), n = al * bh + (uint32_t)m;
	return (struct u128){ ah * bh + (m >> 32) + (n >> 32), n << 32 | (uint32_t)ll };
#endif
}

INLINE struct u128 shift_jam128(struct u128 x, int n)
{
	if (n <= 0)
		return x;
	if (n >= 64) {
		uint64_t lost = x.lo;
		x.lo = shift_jam(x.hi, n - 64) | (lost != 0);
		x.hi = 0;
		return x;
	}
	bool lost = (x.lo << (64 - n)) != 0;
	x.lo = (x.lo >> n | x.hi << (64 - n)) | lost;
	x.hi >>= n;
	return x;
}

INLINE struct u128 add128(struct u128 a, struct u128 b)
{
	struct u128 r = { a.hi + b.hi, a.lo + b.lo };
	r.hi += r.lo < a.lo;
	return r;
}

INLINE struct u128 sub128(struct u128 a, struct u128 b)
{
	return (struct u128){ a.hi - b.hi - (a.lo < b.lo), a.lo - b.lo };
}

/* The top `bits` bits of num / den as a number with bit 63 set, sticky in bit 0; both have bit 63
 * set. *less: num < den, the quotient is below 1. `bits` <= 62. */
INLINE uint64_t divide(uint64_t num, uint64_t den, int bits, bool *less)
{
	*less = num < den;
#ifdef __SIZEOF_INT128__
	(void)bits;
	unsigned __int128 n = (unsigned __int128)num << (*less ? 64 : 63);
	uint64_t q = (uint64_t)(n / den);
	return q | (q * den != (uint64_t)n);
#else
	/* shift and subtract, one bit a turn; rem < den throughout */
	uint64_t q = 0, rem = num;
	if (!*less) {
		rem -= den;
		q = 1;
	}
	for (int i = *less ? 0 : 1; i < bits; i++) {
		bool carry = rem >> 63;
		rem <<= 1;
		q <<= 1;
		if (carry || rem >= den) {
			rem -= den;
			q |= 1;
		}
	}
	return q << (64 - bits) | (rem != 0);
#endif
}

/* ---- arithmetic --------------------------------------------------------------------- */

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
	struct u128 p = mul64(x.sig, y.sig);
	int exp = x.exp + y.exp + 1;
	if (!(p.hi >> 63)) {
		p.hi = p.hi << 1 | p.lo >> 63;
		p.lo <<= 1;
		exp--;
	}
	return pack_std(f, sign, exp, p.hi | (p.lo != 0), s);
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
	uint64_t q = divide(x.sig, y.sig, f.mant + 4, &less);
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
	struct u128 n = odd ? (struct u128){ x.sig, 0 } : (struct u128){ x.sig >> 1, x.sig << 63 };
	uint64_t root = 0, rem = 0;
	for (int i = 0; i < bits; i++) {
		rem = rem << 2 | n.hi >> 62;
		n.hi = n.hi << 2 | n.lo >> 62;
		n.lo <<= 2;
		uint64_t trial = root << 2 | 1;
		root <<= 1;
		if (rem >= trial) {
			rem -= trial;
			root |= 1;
		}
	}
	bool sticky = rem || n.hi || n.lo;
	return pack_std(f, false, (x.exp - odd) / 2, root << (64 - bits) | sticky, s);
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

	/* the exact product with bit 127 or 126 set, then room for a carry */
	struct u128 p = mul64(x.sig, y.sig);
	int pexp = x.exp + y.exp + 1;
	if (!(p.hi >> 63)) {
		p.hi = p.hi << 1 | p.lo >> 63;
		p.lo <<= 1;
		pexp--;
	}
	if (z.cls == ZERO)
		return pack_std(f, psign, pexp, p.hi | (p.lo != 0), s);
	/* neither loses a bit by this: the product's last bit is above bit 1 */
	p = shift_jam128(p, 1);
	struct u128 q = { z.sig >> 1, z.sig << 63 }, r;
	int exp = pexp;
	bool sign = psign;

	if (pexp >= z.exp) {
		q = shift_jam128(q, pexp - z.exp > 200 ? 200 : pexp - z.exp);
	} else {
		p = shift_jam128(p, z.exp - pexp > 200 ? 200 : z.exp - pexp);
		exp = z.exp;
	}
	if (psign == z.sign) {
		r = add128(p, q);
	} else if (p.hi > q.hi || (p.hi == q.hi && p.lo >= q.lo)) {
		r = sub128(p, q);
	} else {
		r = sub128(q, p);
		sign = z.sign;
	}
	if (!r.hi && !r.lo)
		return sfp_rm(s) == SFP_DOWN ? fmt_sign(f) : 0;
	if (!r.hi) {
		r.hi = r.lo;
		r.lo = 0;
		exp -= 64;
	}
	int lz = clz(r.hi);
	if (lz) {
		r.hi = r.hi << lz | r.lo >> (64 - lz);
		r.lo <<= lz;
	}
	return pack_std(f, sign, exp + 1 - lz, r.hi | (r.lo != 0), s);
}

/* ---- comparing ---------------------------------------------------------------------- */

/* A key that orders non-NaN numbers as integers; both zeros (and denormals under DAZ) are 0. */
INLINE int64_t order(struct fmt f, uint64_t a, bool daz)
{
	uint64_t mag = a & (fmt_sign(f) - 1);
	if (daz && !(a & fmt_inf(f)))
		mag = 0;
	return a & fmt_sign(f) ? -(int64_t)mag : (int64_t)mag;
}

INLINE unsigned g_cmp(struct fmt f, uint64_t a, uint64_t b, bool signal, struct sfp *s)
{
	if (__builtin_expect(is_nan(f, a) || is_nan(f, b), 0)) {
		if (signal || is_snan(f, a) || is_snan(f, b))
			s->flags |= SFP_IE;
		return SFP_UN;
	}
	bool daz = s->csr & SFP_DAZ;
	if (!daz && (is_denormal(f, a) || is_denormal(f, b)))
		s->flags |= SFP_DE;
	int64_t x = order(f, a, daz), y = order(f, b, daz);
	return x < y ? SFP_LT : x > y ? SFP_GT : SFP_EQ;
}

INLINE uint64_t g_minmax(struct fmt f, uint64_t a, uint64_t b, unsigned want, struct sfp *s)
{
	uint64_t r = g_cmp(f, a, b, true, s) == want ? a : b;
	if ((s->csr & SFP_DAZ) && !(r & fmt_inf(f)))
		r &= fmt_sign(f);
	return r;
}

/* ---- integers ----------------------------------------------------------------------- */

/* The magnitude of a finite number rounded to an integer below 2^64 (exp <= 62, or nothing is
 * rounded). */
INLINE uint64_t integral(struct num n, unsigned rm, bool *inexact)
{
	uint64_t i, frac; /* frac: the part below 1, as a fraction of 2^64 */
	if (n.exp >= 63) {
		i = n.sig;
		frac = 0;
	} else if (n.exp >= 0) {
		i = n.sig >> (63 - n.exp);
		frac = n.sig << (n.exp + 1);
	} else {
		i = 0;
		frac = shift_jam(n.sig, -1 - n.exp);
	}
	*inexact = frac != 0;
	return i + round_up(rm, n.sign, i, frac, 1ULL << 63);
}

INLINE uint64_t g_to_int(struct fmt f, uint64_t a, unsigned rm, int width, struct sfp *s)
{
	uint64_t indefinite = 1ULL << (width - 1);
	bool den, inexact;

	if (is_nan(f, a)) {
		s->flags |= SFP_IE;
		return indefinite;
	}
	struct num n = unpack(f, a, s->csr & SFP_DAZ, &den);
	if (n.cls == ZERO)
		return 0;
	if (n.cls == INF || n.exp >= width) {
		s->flags |= SFP_IE;
		return indefinite;
	}
	uint64_t i = integral(n, rm, &inexact);
	if (i > indefinite - !n.sign) {
		s->flags |= SFP_IE;
		return indefinite;
	}
	if (inexact)
		s->flags |= SFP_PE;
	return n.sign ? -i : i;
}

INLINE uint64_t g_rint(struct fmt f, uint64_t a, unsigned rm, struct sfp *s)
{
	bool den, inexact;

	if (is_nan(f, a))
		return nan2(f, a, a, s);
	struct num n = unpack(f, a, s->csr & SFP_DAZ, &den);
	uint64_t sbit = a & fmt_sign(f);
	if (n.cls == ZERO)
		return sbit;
	if (n.cls == INF || n.exp >= f.mant)
		return a;
	uint64_t i = integral(n, rm, &inexact);
	if (inexact)
		s->flags |= SFP_PE;
	if (!i)
		return sbit;
	int lz = clz(i);
	uint64_t sig = i << lz >> (63 - f.mant); /* exact: at most mant+1 bits */
	return sbit + ((uint64_t)(63 - lz + fmt_bias(f) - 1) << f.mant) + sig;
}

INLINE uint64_t g_from_int(struct fmt f, int64_t x, struct sfp *s)
{
	if (!x)
		return 0;
	uint64_t mag = x < 0 ? -(uint64_t)x : (uint64_t)x;
	int lz = clz(mag);
	return pack_std(f, x < 0, 63 - lz, mag << lz, s);
}

/* ---- between formats ----------------------------------------------------------------- */

/* A NaN keeps its sign and the top of its payload. */
INLINE uint64_t convert_nan(struct fmt from, struct fmt to, uint64_t a, struct sfp *s)
{
	if (is_snan(from, a))
		s->flags |= SFP_IE;
	uint64_t m = (a & fmt_mmask(from)) << (63 - from.mant) >> (63 - to.mant);
	return (a & fmt_sign(from) ? fmt_sign(to) : 0) | fmt_inf(to) | fmt_quiet(to) | m;
}

INLINE uint64_t g_convert(struct fmt from, struct fmt to, uint64_t a, unsigned rm, bool daz,
			  bool ftz, bool flag_den, struct sfp *s)
{
	if (__builtin_expect(is_nan(from, a), 0))
		return convert_nan(from, to, a, s);
	bool den = false;
	struct num n = unpack(from, a, daz, &den);
	if (den && flag_den)
		s->flags |= SFP_DE;
	if (n.cls == FINITE)
		return pack(to, n.sign, n.exp, n.sig, rm, ftz, s);
	return (n.sign ? fmt_sign(to) : 0) | (n.cls == INF ? fmt_inf(to) : 0);
}

uint64_t sfp_f32_to_f64(uint32_t a, struct sfp *s)
{
	return g_convert(F32, F64, a, SFP_NEAREST, s->csr & SFP_DAZ, false, true, s);
}

uint32_t sfp_f64_to_f32(uint64_t a, struct sfp *s)
{
	return (uint32_t)g_convert(F64, F32, a, sfp_rm(s), s->csr & SFP_DAZ, s->csr & SFP_FTZ, true,
				   s);
}

uint32_t sfp_f16_to_f32(uint16_t a, struct sfp *s)
{
	return (uint32_t)g_convert(F16, F32, a, SFP_NEAREST, false, false, false, s);
}

uint16_t sfp_f32_to_f16(uint32_t a, unsigned rm, struct sfp *s)
{
	return (uint16_t)g_convert(F32, F16, a, rm, s->csr & SFP_DAZ, false, true, s);
}

uint16_t sfp_f32_to_f16_intel(uint32_t a, unsigned rm, struct sfp *s)
{
	if (!(s->csr & (SFP_DAZ | SFP_UE << SFP_MASK_SHIFT)) && is_denormal(F32, a))
		s->flags |= SFP_PE;
	return sfp_f32_to_f16(a, rm, s);
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
	}                                                                                          \
	uint##W##_t sfp_fma##W(uint##W##_t a, uint##W##_t b, uint##W##_t c, unsigned neg,          \
			       struct sfp *s)                                                      \
	{                                                                                          \
		return (uint##W##_t)g_fma(F##W, a, b, c, neg, s);                                  \
	}                                                                                          \
	uint##W##_t sfp_min##W(uint##W##_t a, uint##W##_t b, struct sfp *s)                        \
	{                                                                                          \
		return (uint##W##_t)g_minmax(F##W, a, b, SFP_LT, s);                               \
	}                                                                                          \
	uint##W##_t sfp_max##W(uint##W##_t a, uint##W##_t b, struct sfp *s)                        \
	{                                                                                          \
		return (uint##W##_t)g_minmax(F##W, a, b, SFP_GT, s);                               \
	}                                                                                          \
	unsigned sfp_cmp##W(uint##W##_t a, uint##W##_t b, bool signal, struct sfp *s)              \
	{                                                                                          \
		return g_cmp(F##W, a, b, signal, s);                                               \
	}                                                                                          \
	uint##W##_t sfp_rint##W(uint##W##_t a, unsigned rm, struct sfp *s)                         \
	{                                                                                          \
		return (uint##W##_t)g_rint(F##W, a, rm, s);                                        \
	}                                                                                          \
	uint32_t sfp_f##W##_to_i32(uint##W##_t a, unsigned rm, struct sfp *s)                      \
	{                                                                                          \
		return (uint32_t)g_to_int(F##W, a, rm, 32, s);                                     \
	}                                                                                          \
	uint64_t sfp_f##W##_to_i64(uint##W##_t a, unsigned rm, struct sfp *s)                      \
	{                                                                                          \
		return g_to_int(F##W, a, rm, 64, s);                                               \
	}                                                                                          \
	uint##W##_t sfp_i32_to_f##W(int32_t x, struct sfp *s)                                      \
	{                                                                                          \
		return (uint##W##_t)g_from_int(F##W, x, s);                                        \
	}                                                                                          \
	uint##W##_t sfp_i64_to_f##W(int64_t x, struct sfp *s)                                      \
	{                                                                                          \
		return (uint##W##_t)g_from_int(F##W, x, s);                                        \
	}
DEFINE(32)
DEFINE(64)
