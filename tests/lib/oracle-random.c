/*
 * Random registers that are likely to make a difference: see oracle.h.
 */
#include "tests/lib/oracle.h"
#include "tests/lib/random.h"

#include <string.h>

static uint64_t random_int(uint64_t *seed)
{
	uint64_t x = random_next(seed), kind = random_next(seed) % 8;

	switch (kind) {
	case 0:
		return x % 70; /* shift counts and their like */
	case 1:
		return -(x % 70);
	case 2: { /* next to a power of two */
		uint64_t bit = 1ULL << (x & 63);

		return bit + (x >> 6) % 3 - 1;
	}
	case 3: { /* the limits of each width, sign-extended or not */
		unsigned width = 8u << ((x >> 8) & 3);
		uint64_t max = ~0ULL >> (65 - width);

		x >>= 16;
		return (x & 1 ? max : max + 1) + (x >> 1) % 2;
	}
	case 4:
		return x >> (x & 63); /* any magnitude */
	default:
		return x;
	}
}

static uint32_t random_float(uint64_t *seed)
{
	static const uint32_t special[] = {
		0x00000000, 0x00000001, 0x007fffff, 0x00800000, 0x3f800000, 0x3f7fffff,
		0x7f7fffff, 0x7f800000, 0x7fc00000, 0x7f800001, 0x7fffffff, 0x4f000000,
		0x5f000000, 0x3f000000, 0x40490fdb, 0x4b000000,
	};
	uint64_t x = random_next(seed);
	uint32_t sign = (uint32_t)(x >> 63) << 31;

	switch (x & 3) {
	case 0:
		return special[(x >> 8) % 16] | sign;
	case 1: /* near one, so that sums cancel and round */
		return (uint32_t)(120 + (x >> 8) % 16) << 23 | (uint32_t)(x >> 40 & 0x7fffff) |
		       sign;
	case 2: /* a small integer */
	{
		float f = (float)((x >> 8) % 2000);
		uint32_t bits;

		memcpy(&bits, &f, 4);
		return bits | sign;
	}
	default:
		return (uint32_t)(x >> 16);
	}
}

static uint64_t random_double(uint64_t *seed)
{
	static const uint64_t special[] = {
		0x0000000000000000, 0x0000000000000001, 0x000fffffffffffff, 0x0010000000000000,
		0x3ff0000000000000, 0x3fefffffffffffff, 0x7fefffffffffffff, 0x7ff0000000000000,
		0x7ff8000000000000, 0x7ff0000000000001, 0x7fffffffffffffff, 0x41e0000000000000,
		0x43e0000000000000, 0x3fe0000000000000, 0x400921fb54442d18, 0x4330000000000000,
	};
	uint64_t x = random_next(seed), y = random_next(seed);
	uint64_t sign = x & (1ULL << 63);

	switch (x & 3) {
	case 0:
		return special[(x >> 8) % 16] | sign;
	case 1:
		return (1000 + (x >> 8) % 48) << 52 | y >> 12 | sign;
	case 2: {
		double f = (double)((x >> 8) % 100000);
		uint64_t bits;

		memcpy(&bits, &f, 8);
		return bits | sign;
	}
	default:
		return y;
	}
}

void oracle_random_regs(struct dj_regs *r, uint64_t *seed)
{
	memset(r, 0, sizeof(*r));
	for (int i = 0; i < 16; i++)
		r->gpr[i] = random_int(seed);
	r->gpr[DJ_RSP] = ORACLE_MEM + ORACLE_MEM_SIZE / 2 + (random_next(seed) % 64) * 8;
	r->rip = ORACLE_CODE;
	r->rflags = (random_next(seed) & DJ_FLAGS_ARITH) | 0x202;
	if (random_next(seed) % 4 == 0)
		r->rflags |= DJ_FLAG_DF;
	r->cs = 0x33;
	r->ss = 0x2b;
	for (int i = 0; i < 16; i++) {
		uint64_t kind = random_next(seed) % 8;

		for (int k = 0; k < 32; k += 8) {
			uint64_t x;

			switch (kind) {
			case 0:
			case 1:
				x = random_float(seed) | (uint64_t)random_float(seed) << 32;
				break;
			case 2:
			case 3:
				x = random_double(seed);
				break;
			case 4: /* bytes near their limits */
				x = random_next(seed) & 0x8383838383838383;
				x ^= random_next(seed) % 2 ? 0x7f7f7f7f7f7f7f7f : 0;
				break;
			case 5:
				x = random_int(seed);
				break;
			case 6:
				x = random_int(seed) << 32;
				x |= (uint32_t)random_int(seed);
				break;
			default:
				x = random_next(seed);
			}
			for (int b = 0; b < 8; b++)
				r->ymm[i][k + b] = (uint8_t)(x >> (8 * b));
		}
	}
	r->mxcsr = 0x1f80;
	r->fcw = 0x37f;
}
