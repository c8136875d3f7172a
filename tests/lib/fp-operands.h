/*
 * Nasty floating-point operands for tests: special values, the edges of every range, halfway
 * cases, and numbers close to or far from one another.
 */
#ifndef DEJA_TESTS_LIB_FP_OPERANDS_H
#define DEJA_TESTS_LIB_FP_OPERANDS_H

#include <stdint.h>

#include "tests/lib/random.h"

/* A significand of `mant` bits: random, or with few bits set, or nearly all. */
static inline uint64_t fp_rand_mant(uint64_t *s, int mant)
{
	uint64_t mask = (1ULL << mant) - 1, r = random_next(s), m = random_next(s);
	int k = (int)((r >> 8) % (unsigned)mant);

	switch (r & 7) {
	case 0:
		return 0;
	case 1:
		return mask;
	case 2:
		return 1ULL << k;
	case 3:
		return (mask << k) & mask;
	case 4:
		return mask >> k;
	case 5:
		return (m << k) & mask; /* trailing zeros: exact results */
	default:
		return m & mask;
	}
}

/* A number of `mant` stored significand bits and `exp` exponent bits. `near`: another operand,
 * whose exponent is often taken over, or mirrored so that products come near 1, or near the ends of
 * the range. */
static inline uint64_t fp_rand_operand(uint64_t *s, int mant, int exp, uint64_t near)
{
	uint64_t r = random_next(s), emax = (1ULL << exp) - 1, bias = emax >> 1;
	uint64_t e, m = fp_rand_mant(s, mant), ne = near >> mant & emax;
	int64_t d = (int64_t)(r >> 8 & 7) - 4, wide = (int64_t)(r >> 8 & 127) - 64;

	switch (r & 15) {
	case 0:
		e = 0; /* denormals and zeros */
		break;
	case 1:
		e = emax; /* infinities and NaNs */
		break;
	case 2:
		e = (r >> 16 & 3); /* smallest normals */
		break;
	case 3:
		e = emax - 1 - (r >> 16 & 3); /* largest */
		break;
	case 4:
	case 5:
	case 6:
		e = ne + (uint64_t)d;
		break;
	case 7:
		e = ne + (uint64_t)wide;
		break;
	case 8:
		e = 2 * bias - ne + (uint64_t)d; /* product near 1 */
		break;
	case 9:
		e = bias - ne + (uint64_t)d; /* product near underflow */
		break;
	case 10:
		e = 3 * bias - ne + (uint64_t)d; /* product near overflow */
		break;
	case 11:
		e = ne + bias + (uint64_t)d; /* quotient near the ends */
		break;
	case 12:
		return (near ^ (r >> 16 & 3)) ^ (r >> 32 & 1) << (mant + exp); /* cancels */
	case 13:
		e = bias + (r >> 16) % 70; /* integers' range */
		break;
	default:
		e = bias + (uint64_t)d;
		break;
	}
	return (r >> 40 & 1) << (mant + exp) | (e & emax) << mant | m;
}

/* MXCSR: any rounding, FTZ, DAZ and flags now and then; exceptions masked. */
static inline uint32_t fp_rand_csr(uint64_t *s)
{
	uint64_t r = random_next(s);
	uint32_t csr = 0x1f80;

	if (r & 1)
		csr |= (r >> 1 & 3) << 13;
	if ((r >> 3 & 7) == 0)
		csr |= 0x8000;
	if ((r >> 6 & 7) == 0)
		csr |= 0x40;
	if (r >> 9 & 1)
		csr |= 0x20;
	if ((r >> 10 & 3) == 0)
		csr |= r >> 12 & 0x3f;
	return csr;
}

#endif
