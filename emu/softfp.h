/*
 * IEEE 754 arithmetic in integers, with the semantics of x86's SSE.
 *
 * A trace replays to the same bits on any host, so floating point is computed here rather than by
 * the host. Numbers are passed as their bit patterns. Semantics after SDM vol. 1, chapters
 * 4.8 (NaNs), 4.9 (exceptions) and 11.5/11.6 (MXCSR): tininess is detected after rounding, a NaN
 * operand or an invalid operation hides the denormal-operand flag, the first NaN source wins.
 *
 * `csr` is the guest's MXCSR: rounding control, DAZ, FTZ and the exception masks are
 * read from it (a masked underflow is flagged only when inexact, FTZ works only when
 * underflow is masked). Exceptions are added to `flags` in MXCSR's bit positions; results
 * are those of the masked responses.
 */
#ifndef DEJA_EMU_SOFTFP_H
#define DEJA_EMU_SOFTFP_H

#include <stdbool.h>
#include <stdint.h>

#define SFP_IE	       0x01u
#define SFP_DE	       0x02u
#define SFP_ZE	       0x04u
#define SFP_OE	       0x08u
#define SFP_UE	       0x10u
#define SFP_PE	       0x20u
#define SFP_FLAGS      0x3fu
#define SFP_DAZ	       0x40u
#define SFP_MASK_SHIFT 7 /* mask bit = flag bit << 7 */
#define SFP_RC_SHIFT   13
#define SFP_RC	       0x6000u
#define SFP_FTZ	       0x8000u

enum { SFP_NEAREST = 0, SFP_DOWN = 1, SFP_UP = 2, SFP_ZERO = 3 };

struct sfp {
	uint32_t csr;
	uint32_t flags;
};

/* How two numbers compare, as bits so that sets of outcomes can be made. */
enum { SFP_LT = 1, SFP_EQ = 2, SFP_GT = 4, SFP_UN = 8 };

/* sfp_fma: what to negate (NaNs keep their sign) */
enum { SFP_NEG_PRODUCT = 1, SFP_NEG_ADDEND = 2 };

#define SFP_DECLARE(W)                                                                             \
	uint##W##_t sfp_add##W(uint##W##_t a, uint##W##_t b, struct sfp *s);                       \
	uint##W##_t sfp_sub##W(uint##W##_t a, uint##W##_t b, struct sfp *s);                       \
	uint##W##_t sfp_mul##W(uint##W##_t a, uint##W##_t b, struct sfp *s);                       \
	uint##W##_t sfp_div##W(uint##W##_t a, uint##W##_t b, struct sfp *s);                       \
	uint##W##_t sfp_sqrt##W(uint##W##_t a, struct sfp *s);                                     \
	/* a * b + c rounded once */                                                               \
	uint##W##_t sfp_fma##W(uint##W##_t a, uint##W##_t b, uint##W##_t c, unsigned neg,          \
			       struct sfp *s);                                                     \
	/* MINxx and MAXxx: the second operand if either is NaN or both are zero */                \
	uint##W##_t sfp_min##W(uint##W##_t a, uint##W##_t b, struct sfp *s);                       \
	uint##W##_t sfp_max##W(uint##W##_t a, uint##W##_t b, struct sfp *s);                       \
	/* SFP_LT...; `signal`: a quiet NaN is invalid too */                                      \
	unsigned sfp_cmp##W(uint##W##_t a, uint##W##_t b, bool signal, struct sfp *s);             \
	/* ROUNDxx: to an integral value; never flags DE */                                        \
	uint##W##_t sfp_rint##W(uint##W##_t a, unsigned rm, struct sfp *s);                        \
	/* to integers; out of range: invalid and the "integer indefinite" */                      \
	uint32_t sfp_f##W##_to_i32(uint##W##_t a, unsigned rm, struct sfp *s);                     \
	uint64_t sfp_f##W##_to_i64(uint##W##_t a, unsigned rm, struct sfp *s);                     \
	uint##W##_t sfp_i32_to_f##W(int32_t x, struct sfp *s);                                     \
	uint##W##_t sfp_i64_to_f##W(int64_t x, struct sfp *s);
SFP_DECLARE(32)
SFP_DECLARE(64)
#undef SFP_DECLARE

uint64_t sfp_f32_to_f64(uint32_t a, struct sfp *s);
uint32_t sfp_f64_to_f32(uint64_t a, struct sfp *s);
/* VCVTPH2PS ignores DAZ and flags only SNaNs; VCVTPS2PH ignores FTZ (SDM vol. 2). */
uint32_t sfp_f16_to_f32(uint16_t a, struct sfp *s);
uint16_t sfp_f32_to_f16(uint32_t a, unsigned rm, struct sfp *s);
/* The same on Intel's CPUs, seen at SIGFPE: a denormal whose underflow is unmasked counts as
 * inexact. */
uint16_t sfp_f32_to_f16_intel(uint32_t a, unsigned rm, struct sfp *s);

static inline unsigned sfp_rm(const struct sfp *s)
{
	return (s->csr >> SFP_RC_SHIFT) & 3;
}

#endif
