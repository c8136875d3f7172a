/*
 * IEEE 754 arithmetic in integers: comparing, and conversions to and from integers and between
 * formats. See softfp.h; softfp-priv.h says how numbers are held.
 */
#include "emu/softfp-priv.h"

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
