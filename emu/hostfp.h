/*
 * The host's floating point where it cannot make a difference.
 *
 * IEEE 754 leaves an implementation no choice in add, subtract, multiply, divide, square root
 * and fused multiply-add, rounded to nearest, when the operands are zero or normal
 * and the result is well inside the normal range: no NaN's payload, no detection of tininess, no
 * flushing to zero is involved. Every host that follows the standard gives the same bits
 * then, and those bits are what softfp.c computes (tests/unit/test-softfp.c compares them). So
 * these functions try the host's operation and say whether its result may be used;
 * everything else goes to softfp.c, which is complete without them.
 *
 * The only exception such an operation can raise is the inexact one. The caller either knows
 * that it makes no difference (flag already set and masked: it is sticky), or asks for
 * `exact`, and the result is then used only if it can be shown to be exact.
 *
 * The host must evaluate in the type's own precision (FLT_EVAL_METHOD 0), must not contract
 * (-ffp-contract=off) and must be in its default rounding mode, which nothing of ours
 * changes. DEJA_NO_HOST_FP switches all of it off.
 */
#ifndef DEJA_EMU_HOSTFP_H
#define DEJA_EMU_HOSTFP_H

#include <float.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if !defined(DEJA_NO_HOST_FP) &&                                                                   \
	(!defined(FLT_EVAL_METHOD) || FLT_EVAL_METHOD != 0 || FLT_RADIX != 2 ||                    \
	 FLT_MANT_DIG != 24 || DBL_MANT_DIG != 53 || defined(__FAST_MATH__))
#define DEJA_NO_HOST_FP 1
#endif

#ifdef DEJA_NO_HOST_FP
#define HOSTFP 0
#else
#define HOSTFP 1
#endif

#if HOSTFP && defined(__x86_64__)
#include <immintrin.h>
#define HOSTFP_SQRT 1
#define HOSTFP_FMA  __builtin_cpu_supports("fma")
#elif HOSTFP && defined(__aarch64__)
#include <arm_neon.h>
#define HOSTFP_SQRT 1
#define HOSTFP_FMA  1
#else
#define HOSTFP_SQRT 0
#define HOSTFP_FMA  0
#endif

static inline double hostfp_to_64(uint64_t a)
{
	double x;
	memcpy(&x, &a, 8);
	return x;
}
static inline float hostfp_to_32(uint32_t a)
{
	float x;
	memcpy(&x, &a, 4);
	return x;
}
static inline uint64_t hostfp_of_64(double x)
{
	uint64_t a;
	memcpy(&a, &x, 8);
	return a;
}
static inline uint32_t hostfp_of_32(float x)
{
	uint32_t a;
	memcpy(&a, &x, 4);
	return a;
}

/* Instructions of the host that plain C reaches only through libm's errno handling. */
#if HOSTFP_SQRT && defined(__x86_64__)
static inline double hostfp_raw_sqrt64(double x)
{
	__m128d v = _mm_set_sd(x);
	return _mm_cvtsd_f64(_mm_sqrt_sd(v, v));
}
static inline float hostfp_raw_sqrt32(float x)
{
	return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x)));
}
__attribute__((target("fma"))) static inline double hostfp_raw_fma64(double a, double b, double c)
{
	return _mm_cvtsd_f64(_mm_fmadd_sd(_mm_set_sd(a), _mm_set_sd(b), _mm_set_sd(c)));
}
__attribute__((target("fma"))) static inline float hostfp_raw_fma32(float a, float b, float c)
{
	return _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(a), _mm_set_ss(b), _mm_set_ss(c)));
}
#elif HOSTFP_SQRT
static inline double hostfp_raw_sqrt64(double x)
{
	return vget_lane_f64(vsqrt_f64(vdup_n_f64(x)), 0);
}
static inline float hostfp_raw_sqrt32(float x)
{
	return vget_lane_f32(vsqrt_f32(vdup_n_f32(x)), 0);
}
static inline double hostfp_raw_fma64(double a, double b, double c)
{
	return __builtin_fma(a, b, c);
}
static inline float hostfp_raw_fma32(float a, float b, float c)
{
	return __builtin_fmaf(a, b, c);
}
#else
static inline double hostfp_raw_sqrt64(double x)
{
	return x;
}
static inline float hostfp_raw_sqrt32(float x)
{
	return x;
}
static inline double hostfp_raw_fma64(double a, double b, double c)
{
	(void)b, (void)c;
	return a;
}
static inline float hostfp_raw_fma32(float a, float b, float c)
{
	(void)b, (void)c;
	return a;
}
#endif

/*
 * zero(a): +0 or -0. normal(a): exponent neither 0 nor the highest. inside(a): the exponent is also
 * two binades away from where tininess begins. In each the sign is shifted out and the rest
 * compared in one subtraction. low_zeros(a): zero bits at the end of a normal's significand.
 */
#define HOSTFP_DEFINE(W, MANT, EMAX, FLOAT)                                                        \
	static inline bool hostfp_zero##W(uint##W##_t a)                                           \
	{                                                                                          \
		return (uint##W##_t)(a << 1) == 0;                                                 \
	}                                                                                          \
	static inline bool hostfp_normal##W(uint##W##_t a)                                         \
	{                                                                                          \
		const uint##W##_t one = (uint##W##_t)1 << (MANT + 1);                              \
		return (uint##W##_t)((uint##W##_t)(a << 1) - one) < (EMAX - 1) * one;              \
	}                                                                                          \
	static inline bool hostfp_inside##W(uint##W##_t a)                                         \
	{                                                                                          \
		const uint##W##_t one = (uint##W##_t)1 << (MANT + 1);                              \
		return (uint##W##_t)((uint##W##_t)(a << 1) - 3 * one) < (EMAX - 3) * one;          \
	}                                                                                          \
	static inline bool hostfp_operand##W(uint##W##_t a)                                        \
	{                                                                                          \
		return hostfp_normal##W(a) || hostfp_zero##W(a);                                   \
	}                                                                                          \
	static inline int hostfp_low_zeros##W(uint##W##_t a)                                       \
	{                                                                                          \
		return __builtin_ctzll((uint64_t)a | (uint64_t)1 << MANT);                         \
	}                                                                                          \
	/* whether a * b fits the significand: then it is exact when inside the range */           \
	static inline bool hostfp_product_fits##W(uint##W##_t a, uint##W##_t b)                    \
	{                                                                                          \
		return hostfp_low_zeros##W(a) + hostfp_low_zeros##W(b) > MANT;                     \
	}                                                                                          \
	static inline bool hostfp_add##W(uint##W##_t a, uint##W##_t b, bool exact, uint##W##_t *r) \
	{                                                                                          \
		FLOAT x = hostfp_to_##W(a), y = hostfp_to_##W(b), z = x + y;                       \
		*r = hostfp_of_##W(z);                                                             \
		if (!HOSTFP || !hostfp_operand##W(a) || !hostfp_operand##W(b))                     \
			return false;                                                              \
		if (exact) { /* Knuth's two-sum: the error of z, itself without error */           \
			FLOAT t = z - x;                                                           \
			if ((x - (z - t)) + (y - t) != 0)                                          \
				return false;                                                      \
		}                                                                                  \
		/* a zero sum of such operands is always exact */                                  \
		return hostfp_inside##W(*r) || hostfp_zero##W(*r);                                 \
	}                                                                                          \
	static inline bool hostfp_sub##W(uint##W##_t a, uint##W##_t b, bool exact, uint##W##_t *r) \
	{                                                                                          \
		return hostfp_add##W(a, b ^ (uint##W##_t)1 << (W - 1), exact, r);                  \
	}                                                                                          \
	static inline bool hostfp_mul##W(uint##W##_t a, uint##W##_t b, bool exact, uint##W##_t *r) \
	{                                                                                          \
		*r = hostfp_of_##W(hostfp_to_##W(a) * hostfp_to_##W(b));                           \
		if (!HOSTFP)                                                                       \
			return false;                                                              \
		if (hostfp_normal##W(a) && hostfp_normal##W(b))                                    \
			return hostfp_inside##W(*r) && (!exact || hostfp_product_fits##W(a, b));   \
		return hostfp_zero##W(*r) && hostfp_operand##W(a) && hostfp_operand##W(b);         \
	}                                                                                          \
	static inline bool hostfp_div##W(uint##W##_t a, uint##W##_t b, bool exact, uint##W##_t *r) \
	{                                                                                          \
		FLOAT x = hostfp_to_##W(a), y = hostfp_to_##W(b), q;                               \
		if (!HOSTFP || !hostfp_normal##W(b))                                               \
			return false;                                                              \
		q = x / y;                                                                         \
		*r = hostfp_of_##W(q);                                                             \
		if (!hostfp_normal##W(a))                                                          \
			return hostfp_zero##W(a);                                                  \
		/* exact if multiplying back is, and gives the dividend */                         \
		return hostfp_inside##W(*r) &&                                                     \
		       (!exact || (hostfp_product_fits##W(*r, b) && q * y == x));                  \
	}                                                                                          \
	static inline bool hostfp_sqrt##W(uint##W##_t a, bool exact, uint##W##_t *r)               \
	{                                                                                          \
		FLOAT q;                                                                           \
		if (!HOSTFP_SQRT || a >> (W - 1) || !hostfp_normal##W(a))                          \
			return false;                                                              \
		q = hostfp_raw_sqrt##W(hostfp_to_##W(a));                                          \
		*r = hostfp_of_##W(q);                                                             \
		return !exact || (hostfp_product_fits##W(*r, *r) && q * q == hostfp_to_##W(a));    \
	}                                                                                          \
	/* a * b + c */                                                                            \
	static inline bool hostfp_fma##W(uint##W##_t a, uint##W##_t b, uint##W##_t c, bool exact,  \
					 uint##W##_t *r)                                           \
	{                                                                                          \
		uint##W##_t p;                                                                     \
		if (exact) /* both steps exact: so is the whole */                                 \
			return hostfp_mul##W(a, b, true, &p) && hostfp_add##W(p, c, true, r);      \
		if (!HOSTFP_FMA || !hostfp_operand##W(a) || !hostfp_operand##W(b) ||               \
		    !hostfp_operand##W(c))                                                         \
			return false;                                                              \
		*r = hostfp_of_##W(                                                                \
			hostfp_raw_fma##W(hostfp_to_##W(a), hostfp_to_##W(b), hostfp_to_##W(c)));  \
		return hostfp_inside##W(*r) || hostfp_zero##W(a) || hostfp_zero##W(b);             \
	}
HOSTFP_DEFINE(32, 23, 0xffu, float)
HOSTFP_DEFINE(64, 52, 0x7ffull, double)
#undef HOSTFP_DEFINE

/*
 * Sixteen bytes of elements at once, in gcc's vector types: hostfp_addv64(a, b, r) and so on. All
 * elements qualify by the rules above and *r is filled in, or none does. These are for the
 * case where inexactness makes no difference. Written with comparisons of floats: a test for
 * "at least the smallest normal" fails for denormals and NaNs, one for "at most the largest" of
 * the result for everything that comes of infinities.
 */
typedef double hostfp_v64 __attribute__((vector_size(16)));
typedef float hostfp_v32 __attribute__((vector_size(16)));
typedef int64_t hostfp_m64 __attribute__((vector_size(16)));
typedef int32_t hostfp_m32 __attribute__((vector_size(16)));

#define HOSTFP_ABS(W, x)	      ((hostfp_v##W)((hostfp_m##W)(x)&INT##W##_MAX))
#define HOSTFP_ZERO(x)		      ((x) == 0)
#define HOSTFP_OPERAND(W, x, MIN)     ((HOSTFP_ABS(W, x) >= MIN) | HOSTFP_ZERO(x))
#define HOSTFP_INSIDE(W, x, MIN, MAX) ((HOSTFP_ABS(W, x) >= 4 * MIN) & (HOSTFP_ABS(W, x) <= MAX))
#define HOSTFP_ALL(mask)	      ((((hostfp_m64)(mask))[0] & ((hostfp_m64)(mask))[1]) == -1)

#define HOSTFP_VECTOR1(NAME, W, OP, OK)                                                            \
	static inline bool hostfp_##NAME##v##W(const void *pa, const void *pb, void *pr)           \
	{                                                                                          \
		hostfp_v##W a, b, r;                                                               \
		memcpy(&a, pa, 16);                                                                \
		memcpy(&b, pb, 16);                                                                \
		r = a OP b;                                                                        \
		memcpy(pr, &r, 16);                                                                \
		return HOSTFP && HOSTFP_ALL(OK);                                                   \
	}
#define HOSTFP_VECTOR(W, MIN, MAX)                                                                 \
	HOSTFP_VECTOR1(add, W, +,                                                                  \
		       (HOSTFP_INSIDE(W, r, MIN, MAX) | HOSTFP_ZERO(r)) &                          \
			       HOSTFP_OPERAND(W, a, MIN) & HOSTFP_OPERAND(W, b, MIN))              \
	HOSTFP_VECTOR1(sub, W, -,                                                                  \
		       (HOSTFP_INSIDE(W, r, MIN, MAX) | HOSTFP_ZERO(r)) &                          \
			       HOSTFP_OPERAND(W, a, MIN) & HOSTFP_OPERAND(W, b, MIN))              \
	HOSTFP_VECTOR1(mul, W, *,                                                                  \
		       (HOSTFP_INSIDE(W, r, MIN, MAX) |                                            \
			(HOSTFP_ZERO(r) & (HOSTFP_ZERO(a) | HOSTFP_ZERO(b)))) &                    \
			       HOSTFP_OPERAND(W, a, MIN) & HOSTFP_OPERAND(W, b, MIN))              \
	HOSTFP_VECTOR1(div, W, /,                                                                  \
		       (HOSTFP_INSIDE(W, r, MIN, MAX) | (HOSTFP_ZERO(r) & HOSTFP_ZERO(a))) &       \
			       HOSTFP_OPERAND(W, a, MIN) & (HOSTFP_ABS(W, b) >= MIN))
HOSTFP_VECTOR(32, FLT_MIN, FLT_MAX)
HOSTFP_VECTOR(64, DBL_MIN, DBL_MAX)

/* For operations without such a version. */
#define hostfp_nonev32(a, b, r) false
#define hostfp_nonev64(a, b, r) false

/* pa * pb + pc; the caller has changed signs as it wants them. */
#if HOSTFP && defined(__x86_64__)
#define HOSTFP_FMA_FUNCTION __attribute__((target("fma"), noinline, unused))
#define hostfp_raw_fmav64   (hostfp_v64) _mm_fmadd_pd
#define hostfp_raw_fmav32   (hostfp_v32) _mm_fmadd_ps
#elif HOSTFP && defined(__aarch64__)
#define HOSTFP_FMA_FUNCTION	   __attribute__((unused))
#define hostfp_raw_fmav64(a, b, c) vfmaq_f64(c, a, b)
#define hostfp_raw_fmav32(a, b, c) vfmaq_f32(c, a, b)
#else
#define HOSTFP_FMA_FUNCTION	   __attribute__((unused))
#define hostfp_raw_fmav64(a, b, c) (a)
#define hostfp_raw_fmav32(a, b, c) (a)
#endif
#define HOSTFP_VECTOR_FMA(W, MIN, MAX)                                                             \
	HOSTFP_FMA_FUNCTION static bool hostfp_fmav##W##_do(const void *pa, const void *pb,        \
							    const void *pc, void *pr)              \
	{                                                                                          \
		hostfp_v##W a, b, c, r;                                                            \
		memcpy(&a, pa, 16);                                                                \
		memcpy(&b, pb, 16);                                                                \
		memcpy(&c, pc, 16);                                                                \
		r = hostfp_raw_fmav##W(a, b, c);                                                   \
		memcpy(pr, &r, 16);                                                                \
		return HOSTFP_ALL(                                                                 \
			(HOSTFP_INSIDE(W, r, MIN, MAX) |                                           \
			 ((HOSTFP_ABS(W, r) <= MAX) & (HOSTFP_ZERO(a) | HOSTFP_ZERO(b)))) &        \
			HOSTFP_OPERAND(W, a, MIN) & HOSTFP_OPERAND(W, b, MIN) &                    \
			HOSTFP_OPERAND(W, c, MIN));                                                \
	}                                                                                          \
	static inline bool hostfp_fmav##W(const void *pa, const void *pb, const void *pc,          \
					  void *pr)                                                \
	{                                                                                          \
		return HOSTFP_FMA && hostfp_fmav##W##_do(pa, pb, pc, pr);                          \
	}
HOSTFP_VECTOR_FMA(32, FLT_MIN, FLT_MAX)
HOSTFP_VECTOR_FMA(64, DBL_MIN, DBL_MAX)

#endif
