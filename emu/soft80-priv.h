/*
 * What the parts of the 80-bit arithmetic share: numbers taken apart, rounding, special operands.
 *
 * Each operation has a short way for two ordinary numbers and sends everything else through
 * s80_nan_result() and s80_denormal() first. Both ways end in s80_round(), which is given the
 * exact result as a normalised 64-bit significand plus 64 bits of fraction whose lowest bit
 * is sticky.
 */
#ifndef DEJA_EMU_SOFT80_PRIV_H
#define DEJA_EMU_SOFT80_PRIV_H

#include "emu/soft80.h"

typedef unsigned __int128 u128;

enum s80_class { S80_ZERO, S80_FINITE, S80_INF, S80_QNAN, S80_SNAN, S80_UNSUPPORTED };

/* An encoding taken apart. Finite numbers are normalised: value = mant * 2^(exp-bias-63), top
 * bit of mant set, exp <= 0 for denormals. */
struct s80_num {
	enum s80_class cls;
	bool sign, denormal;
	int exp;
	uint64_t mant;
};

struct s80_num s80_unpack(struct s80 a);

/* A binary format to round to, with exponents biased as in the format. */
struct s80_format {
	unsigned drop; /* bits of a 64-bit significand that the format does not have */
	int emax;      /* biased exponent of infinity */
	int adjust;    /* exponent change for unmasked overflow and underflow; 0: no result */
};

/* Round sign/exp/hi:lo (top bit of hi set; lo is the fraction below hi, sticky) to a format.
 * Returns the left-justified significand and the format's biased exponent. */
struct s80 s80_round(struct s80_ctx *c, bool sign, int exp, uint64_t hi, uint64_t lo,
		     const struct s80_format *f);

/* Whether to round the magnitude up: `rest` is the fraction, its top bit one half. */
static inline bool s80_round_up(unsigned rc, bool sign, bool odd, uint64_t rest)
{
	switch (rc) {
	case 0:
		return rest > S80_TOP || (rest == S80_TOP && odd);
	case 1:
		return sign && rest != 0;
	case 2:
		return !sign && rest != 0;
	default:
		return false;
	}
}

/* The formats of precision control (bits 8 and 9 of the control word), and full precision. */
extern const struct s80_format s80_formats[4];
#define S80_FULL (&s80_formats[3])

/* Whether the rules for special operands have nothing to say about a number. */
static inline bool s80_normal(struct s80 a)
{
	return (unsigned)(a.se & 0x7fff) - 1u < 0x7ffeu && (a.mant & S80_TOP);
}

/* v >> n with the lost bits gathered in the lowest one. */
static inline u128 s80_shift_jam(u128 v, unsigned n)
{
	if (n == 0)
		return v;
	if (n > 127)
		return v != 0;
	return v >> n | ((v << (128 - n)) != 0);
}

/* Unsupported operands and NaNs decide the result of any operation: true if they do. `x` and `y`
 * are `a` and `b` taken apart. */
bool s80_nan_result(struct s80_ctx *c, struct s80 a, struct s80 b, const struct s80_num *x,
		    const struct s80_num *y, struct s80 *result);

/* Raise DE if an operand is denormal, or came from a denormal in memory; true if that ends the
 * instruction. */
bool s80_denormal(struct s80_ctx *c, bool denormal);

#endif
