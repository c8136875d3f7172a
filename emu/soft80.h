/*
 * The 80-bit extended format of the x87 in integer arithmetic.
 *
 * Values are encodings, as they sit in a register: any bit pattern is allowed, the
 * unsupported ones included. An operation takes a context with the x87 control word (which
 * exceptions are masked, precision and rounding control) and adds what it raised to `fl`,
 * in the bit positions of the status word: the six exception flags, and C1 if the result's
 * magnitude was rounded up. Rules are those of Intel's SDM vol. 1 chapters 4 and 8: NaNs
 * propagate by larger significand, tininess is found after rounding, precision control
 * narrows the significand but not the exponent, an unmasked overflow or underflow gives
 * the result with its exponent moved by 24576.
 *
 * If an unmasked IE, DE or ZE was raised the return value means nothing, as the CPU then
 * leaves the destination alone: s80_no_result() tells.
 */
#ifndef DEJA_EMU_SOFT80_H
#define DEJA_EMU_SOFT80_H

#include <stdbool.h>
#include <stdint.h>

enum {
	S80_IE = 0x01,
	S80_DE = 0x02,
	S80_ZE = 0x04,
	S80_OE = 0x08,
	S80_UE = 0x10,
	S80_PE = 0x20,
	S80_SF = 0x40, /* stack fault: raised by whoever keeps the stack */
	S80_C0 = 0x100,
	S80_C1 = 0x200,
	S80_C2 = 0x400,
	S80_C3 = 0x4000,
};

struct s80 {
	uint64_t mant;
	uint16_t se; /* sign and exponent */
};

struct s80_ctx {
	uint16_t cw; /* control word */
	uint16_t fl; /* raised, S80_... */
	bool de;     /* a memory operand was denormal in its own format */
};

#define S80_BIAS 0x3fff
#define S80_TOP	 (1ULL << 63)
/* The "real indefinite" QNaN. */
#define S80_INDEFINITE ((struct s80){ .mant = 0xc000000000000000ULL, .se = 0xffff })

static inline bool s80_no_result(const struct s80_ctx *c)
{
	return (c->fl & ~c->cw & (S80_IE | S80_DE | S80_ZE)) != 0;
}

/* Arithmetic under precision control (soft80.c). */
struct s80 s80_add(struct s80_ctx *c, struct s80 a, struct s80 b);
struct s80 s80_sub(struct s80_ctx *c, struct s80 a, struct s80 b);
struct s80 s80_mul(struct s80_ctx *c, struct s80 a, struct s80 b);
struct s80 s80_div(struct s80_ctx *c, struct s80 a, struct s80 b);
struct s80 s80_sqrt(struct s80_ctx *c, struct s80 a);

/* Always in full precision (soft80-full.c). */
struct s80 s80_round_int(struct s80_ctx *c, struct s80 a);
/* a * 2^trunc(b) */
struct s80 s80_scale(struct s80_ctx *c, struct s80 a, struct s80 b);
/* The significand of `a`, and its exponent as a number in *exponent. */
struct s80 s80_extract(struct s80_ctx *c, struct s80 a, struct s80 *exponent);
/* FPREM, or FPREM1 with `nearest`. *cc gets the condition codes: C2 if the result is partial,
 * else the three low bits of the quotient; it is left alone if there is no quotient. */
struct s80 s80_remainder(struct s80_ctx *c, struct s80 a, struct s80 b, bool nearest, unsigned *cc);

/* C3, C2, C0 as FCOM sets them. `quiet`: a QNaN raises nothing (FUCOM). */
unsigned s80_compare(struct s80_ctx *c, struct s80 a, struct s80 b, bool quiet);
/* C3, C2, C1, C0 as FXAM sets them for a register in use. */
unsigned s80_examine(struct s80 a);

/* ---- conversions (soft80-conv.c) -------------------------------------------------- */

/* A memory operand of an arithmetic instruction: exact, raises nothing, notes a
 * denormal in c->de for the operation that follows. */
struct s80 s80_from_f32(struct s80_ctx *c, uint32_t bits);
struct s80 s80_from_odd_f64(struct s80_ctx *c, uint64_t bits); /* for the next */
static inline struct s80 s80_from_f64(struct s80_ctx *c, uint64_t bits)
{
	unsigned exp = bits >> 52 & 0x7ff;
	if (__builtin_expect(exp - 1 >= 0x7fe, 0))
		return s80_from_odd_f64(c, bits);
	return (struct s80){ .mant = bits << 11 | S80_TOP,
			     .se = (uint16_t)((bits >> 48 & 0x8000) | (exp - 1023 + S80_BIAS)) };
}
struct s80 s80_from_int(int64_t v);
/* What FLD does after the above: raise DE or IE, make an SNaN quiet. */
static inline struct s80 s80_loaded(struct s80_ctx *c, struct s80 a)
{
	if (__builtin_expect(c->de, 0)) {
		c->fl |= S80_DE;
	} else if (__builtin_expect((a.se & 0x7fff) == 0x7fff, 0)) {
		if (a.mant != S80_TOP && !(a.mant & S80_TOP >> 1)) {
			c->fl |= S80_IE;
			a.mant |= S80_TOP >> 1;
		}
	}
	return a;
}

/* FST. Nothing is to be stored if an unmasked exception other than PE came up. */
uint32_t s80_to_f32(struct s80_ctx *c, struct s80 a);
uint64_t s80_to_f64(struct s80_ctx *c, struct s80 a);
/* FIST, FISTTP: to a signed integer of 16, 32 or 64 bits. */
int64_t s80_to_int(struct s80_ctx *c, struct s80 a, unsigned bits, bool truncate);

/* Packed decimal, 18 digits and a sign (FBLD, FBSTP). */
struct s80 s80_from_bcd(const uint8_t bcd[10]);
void s80_to_bcd(struct s80_ctx *c, struct s80 a, uint8_t bcd[10]);

/* The constants of FLD1, FLDL2T, FLDL2E, FLDPI, FLDLG2, FLDLN2, FLDZ (n = 0..6, the low bits
 * of the opcode), rounded as the control word says. */
struct s80 s80_constant(uint16_t cw, unsigned n);

/* ---- encodings ----------------------------------------------------------------------- */

static inline unsigned s80_rc(uint16_t cw)
{
	return cw >> 10 & 3;
}

static inline struct s80 s80_make(bool sign, int exp, uint64_t mant)
{
	return (struct s80){ .mant = mant, .se = (uint16_t)(exp | (sign ? 0x8000 : 0)) };
}

static inline struct s80 s80_invalid(struct s80_ctx *c)
{
	c->fl |= S80_IE;
	return S80_INDEFINITE;
}

#endif
