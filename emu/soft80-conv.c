/*
 * 80-bit extended arithmetic in integers: conversions and constants. See soft80.h.
 */
#include "emu/soft80-priv.h"

#include <string.h>

/* ---- in ---------------------------------------------------------------------------------- */

/* A narrower binary number with `frac` fraction bits and a bias, already split. */
static struct s80 widen(struct s80_ctx *c, bool sign, int exp, uint64_t fraction, unsigned frac,
			int emax, int bias)
{
	uint64_t m = fraction << (63 - frac);
	if (exp == emax)
		return s80_make(sign, 0x7fff, S80_TOP | m);
	if (exp != 0)
		return s80_make(sign, exp - bias + S80_BIAS, S80_TOP | m);
	if (m == 0)
		return s80_make(sign, 0, 0);
	int shift = __builtin_clzll(m);
	c->de = true;
	return s80_make(sign, 1 - bias + S80_BIAS - shift, m << shift);
}

struct s80 s80_from_f32(struct s80_ctx *c, uint32_t bits)
{
	return widen(c, bits >> 31, bits >> 23 & 0xff, bits & 0x7fffff, 23, 0xff, 127);
}

struct s80 s80_from_odd_f64(struct s80_ctx *c, uint64_t bits)
{
	return widen(c, bits >> 63, bits >> 52 & 0x7ff, bits & 0xfffffffffffff, 52, 0x7ff, 1023);
}

struct s80 s80_from_int(int64_t v)
{
	if (v == 0)
		return s80_make(false, 0, 0);
	uint64_t m = v < 0 ? -(uint64_t)v : (uint64_t)v;
	int shift = __builtin_clzll(m);
	return s80_make(v < 0, S80_BIAS + 63 - shift, m << shift);
}

/* ---- out --------------------------------------------------------------------------------- */

static const struct s80_format single = { .drop = 40, .emax = 0xff, .adjust = 0 };
static const struct s80_format twofold = { .drop = 11, .emax = 0x7ff, .adjust = 0 };

/* The value rounded to a narrower format, NaNs and infinities in that format's shape:
 * left-justified significand and the format's exponent. */
static struct s80 narrow(struct s80_ctx *c, struct s80 a, const struct s80_format *f, int bias)
{
	struct s80_num x = s80_unpack(a);
	switch (x.cls) {
	case S80_ZERO:
		return s80_make(x.sign, 0, 0);
	case S80_FINITE:
		return s80_round(c, x.sign, x.exp - S80_BIAS + bias, x.mant, 0, f);
	case S80_INF:
		return s80_make(x.sign, f->emax, S80_TOP);
	case S80_SNAN:
		c->fl |= S80_IE;
		/* fallthrough */
	case S80_QNAN:
		return s80_make(x.sign, f->emax, a.mant | S80_TOP >> 1);
	default:
		c->fl |= S80_IE;
		return s80_make(true, f->emax, S80_INDEFINITE.mant);
	}
}

uint32_t s80_to_f32(struct s80_ctx *c, struct s80 a)
{
	struct s80 r = narrow(c, a, &single, 127);
	return (uint32_t)(r.se >> 15) << 31 | (uint32_t)(r.se & 0xff) << 23 |
	       (uint32_t)(r.mant >> 40 & 0x7fffff);
}

uint64_t s80_to_f64(struct s80_ctx *c, struct s80 a)
{
	struct s80 r = narrow(c, a, &twofold, 1023);
	return (uint64_t)(r.se >> 15) << 63 | (uint64_t)(r.se & 0x7ff) << 52 |
	       (r.mant >> 11 & 0xfffffffffffff);
}

/* The magnitude rounded to an integer, with PE and C1 in *fl; false if it needs more
 * than 64 bits or is no number. */
static bool magnitude(const struct s80_num *x, unsigned rc, uint64_t *out, unsigned *fl)
{
	*fl = 0;
	*out = 0;
	if (x->cls == S80_ZERO)
		return true;
	if (x->cls != S80_FINITE || x->exp > S80_BIAS + 63)
		return false;
	int shift = S80_BIAS + 63 - x->exp;
	uint64_t n = shift > 63 ? 0 : x->mant >> shift;
	uint64_t rest = shift == 0    ? 0
			: shift < 64  ? x->mant << (64 - shift)
			: shift == 64 ? x->mant
				      : 1;
	if (rest) {
		*fl = S80_PE;
		if (s80_round_up(rc, x->sign, n & 1, rest)) {
			*fl |= S80_C1;
			n++; /* no carry: what was shifted out leaves room */
		}
	}
	*out = n;
	return true;
}

int64_t s80_to_int(struct s80_ctx *c, struct s80 a, unsigned bits, bool truncate)
{
	struct s80_num x = s80_unpack(a);
	uint64_t limit = 1ULL << (bits - 1), n;
	unsigned fl;
	if (!magnitude(&x, truncate ? 3 : s80_rc(c->cw), &n, &fl) || n > limit - !x.sign) {
		c->fl |= S80_IE;
		return (int64_t)-limit;
	}
	c->fl |= (uint16_t)fl;
	return (int64_t)(x.sign ? -n : n);
}

/* ---- packed decimal ------------------------------------------------------------------------ */

/* Digits above 9 are undefined; the CPU, too, takes each half byte for its value (measured). */
struct s80 s80_from_bcd(const uint8_t bcd[10])
{
	uint64_t n = 0;
	for (int i = 8; i >= 0; i--)
		n = n * 100 + (bcd[i] >> 4) * 10u + (bcd[i] & 15);
	struct s80 r = s80_from_int((int64_t)n);
	r.se |= (uint16_t)((bcd[9] & 0x80) << 8);
	return r;
}

void s80_to_bcd(struct s80_ctx *c, struct s80 a, uint8_t bcd[10])
{
	struct s80_num x = s80_unpack(a);
	uint64_t n;
	unsigned fl;
	if (!magnitude(&x, s80_rc(c->cw), &n, &fl) || n > 999999999999999999ULL) {
		static const uint8_t indefinite[10] = { [7] = 0xc0, [8] = 0xff, [9] = 0xff };
		c->fl |= S80_IE;
		memcpy(bcd, indefinite, 10);
		return;
	}
	c->fl |= (uint16_t)fl;
	for (int i = 0; i < 9; i++) {
		bcd[i] = (uint8_t)((n / 10 % 10) << 4 | n % 10);
		n /= 100;
	}
	bcd[9] = x.sign ? 0x80 : 0;
}

/* ---- constants --------------------------------------------------------------------------- */

struct s80 s80_constant(uint16_t cw, unsigned n)
{
	/* The first 64 bits of each, cut off, and whether what follows is above one half. */
	static const struct {
		uint64_t mant;
		uint16_t exp;
		bool more, half;
		/* clang-format off */
	} table[7] = {
		{ 0x8000000000000000, 0x3fff, false, false }, /* 1 */
		{ 0xd49a784bcd1b8afe, 0x4000, true, false },  /* log2 10 */
		{ 0xb8aa3b295c17f0bb, 0x3fff, true, true },   /* log2 e */
		{ 0xc90fdaa22168c234, 0x4000, true, true },   /* pi */
		{ 0x9a209a84fbcff798, 0x3ffd, true, true },   /* log10 2 */
		{ 0xb17217f7d1cf79ab, 0x3ffe, true, true },   /* ln 2 */
		{ 0, 0, false, false },
	};
	/* clang-format on */
	uint64_t rest = (table[n].half ? S80_TOP : 0) | table[n].more;
	bool up = s80_round_up(s80_rc(cw), false, false, rest);
	return s80_make(false, table[n].exp, table[n].mant + up);
}
