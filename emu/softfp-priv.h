/*
 * What the parts of the IEEE 754 arithmetic share: formats, numbers taken apart, rounding.
 *
 * Every format is unpacked into sign, exponent and a 64-bit significand whose bit 63 is set:
 * value = sig / 2^63 * 2^exp. Even binary64 then has eleven spare bits below, so that a sticky
 * bit in bit 0 is all that rounding needs to know about what was shifted out. The generic
 * functions are inlined with a constant format into the public ones at the end of each file.
 */
#ifndef DEJA_EMU_SOFTFP_PRIV_H
#define DEJA_EMU_SOFTFP_PRIV_H

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

typedef unsigned __int128 u128;

/* a * b of two numbers other than zero, with bit 127 set: value = product / 2^127 * 2^exp. */
INLINE u128 multiply(struct num a, struct num b, int *exp)
{
	u128 p = (u128)a.sig * b.sig;

	*exp = a.exp + b.exp + 1;
	if (!(p >> 127)) {
		p <<= 1;
		--*exp;
	}
	return p;
}

/* The upper half, any bit lost left behind as bit 0. */
INLINE uint64_t upper_half(u128 x)
{
	return (uint64_t)(x >> 64) | ((uint64_t)x != 0);
}

#endif
