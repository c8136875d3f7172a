/*
 * What the floating-point handlers (emu-fp*.c) share: one instruction's state, the arithmetic on
 * elements, and writing results. Handlers compute into temporaries, then emu_fp_commit()
 * flags or raises, and only then registers change.
 *
 * As the binders leave them: u->a destination, u->b first source, u->c second source; u->d
 * whether the encoding is VEX; u->size the vector's width, 16 or 32. A legacy instruction's first
 * source is its destination.
 */
#ifndef DEJA_EMU_EMU_FP_H
#define DEJA_EMU_EMU_FP_H

#include "emu/emu.h"
#include "emu/hostfp.h"
#include "emu/softfp.h"

#define V32(v, i) VD(v, i)
#define V64(v, i) VQ(v, i)
#define V16(v, i) VW(v, i)

/*
 * The state of an instruction is kept in two: `struct sfp`, which only softfp.c touches, and a
 * mode that stays in a register. When hostfp.h does the work nothing is read back from
 * memory, and no flag needs to be added.
 */
enum emu_fp_mode {
	FP_SOFT,  /* no use of hostfp.h */
	FP_EXACT, /* only for exact results: inexactness would have to be flagged */
	FP_HOST,  /* round to nearest, the inexact flag is set and masked */
};

static inline struct sfp emu_fp_begin(const struct emu *e)
{
	return (struct sfp){ .csr = e->cpu.mxcsr };
}

static inline enum emu_fp_mode emu_fp_mode(const struct emu *e)
{
	const uint32_t quiet = SFP_PE | SFP_PE << SFP_MASK_SHIFT;
	uint32_t csr = e->cpu.mxcsr & (SFP_RC | quiet);
	if (HOSTFP && __builtin_expect(csr == quiet, 1))
		return FP_HOST;
	return HOSTFP && !(csr & SFP_RC) ? FP_EXACT : FP_SOFT;
}

/* An exception is unmasked: set the flags that a program finds in its SIGFPE handler and stop. */
_Noreturn void emu_fp_raise(struct emu *e, uint32_t flags);

static inline void emu_fp_commit(struct emu *e, const struct sfp *s)
{
	uint32_t flags = s->flags;
	if (__builtin_expect(flags != 0, 0)) {
		if (flags & ~(s->csr >> SFP_MASK_SHIFT))
			emu_fp_raise(e, flags);
		e->cpu.mxcsr |= flags;
	}
}

/* ---- elements: (state, mode, instruction, index, sources) --------------------- */

#define FP_DEFINE_HOSTED(OP, W)                                                                    \
	static inline uint##W##_t fp_##OP##W(struct sfp *s, enum emu_fp_mode m,                    \
					     const struct emu_uop *u, unsigned i, uint##W##_t a,   \
					     uint##W##_t b)                                        \
	{                                                                                          \
		uint##W##_t r = 0;                                                                 \
		(void)u, (void)i;                                                                  \
		if (__builtin_expect(m != FP_SOFT && hostfp_##OP##W(a, b, m == FP_EXACT, &r), 1))  \
			return r;                                                                  \
		return sfp_##OP##W(a, b, s);                                                       \
	}
FP_DEFINE_HOSTED(add, 32)
FP_DEFINE_HOSTED(add, 64)
FP_DEFINE_HOSTED(sub, 32)
FP_DEFINE_HOSTED(sub, 64)
FP_DEFINE_HOSTED(mul, 32)
FP_DEFINE_HOSTED(mul, 64)
FP_DEFINE_HOSTED(div, 32)
FP_DEFINE_HOSTED(div, 64)

#define FP_DEFINE_FMA(W)                                                                           \
	static inline uint##W##_t fp_fma##W(struct sfp *s, enum emu_fp_mode m, unsigned neg,       \
					    uint##W##_t a, uint##W##_t b, uint##W##_t c)           \
	{                                                                                          \
		const uint##W##_t sign = (uint##W##_t)1 << (W - 1);                                \
		uint##W##_t r = 0;                                                                 \
		if (m != FP_SOFT &&                                                                \
		    hostfp_fma##W(neg & SFP_NEG_PRODUCT ? a ^ sign : a, b,                         \
				  neg & SFP_NEG_ADDEND ? c ^ sign : c, m == FP_EXACT, &r))         \
			return r;                                                                  \
		return sfp_fma##W(a, b, c, neg, s);                                                \
	}
FP_DEFINE_FMA(32)
FP_DEFINE_FMA(64)

/* ---- writing ---------------------------------------------------------------------- */

/* The whole destination from the first `n` bytes of r, 16 or 32. */
static inline void emu_fp_put_packed(struct emu *e, const struct emu_uop *u, const union emu_vec *r,
				     unsigned n)
{
	union emu_vec *d = &e->cpu.v[u->a];
	d->q[0] = r->q[0];
	d->q[1] = r->q[1];
	if (n == 32) {
		d->q[2] = r->q[2];
		d->q[3] = r->q[3];
	} else if (u->d) {
		d->q[2] = d->q[3] = 0;
	}
}

/* The lowest element; VEX takes the rest of the low half from the first source. */
#define FP_PUT_SCALAR(W, e, u, vex, r)                                                             \
	do {                                                                                       \
		union emu_vec *d_ = &(e)->cpu.v[(u)->a];                                           \
		if (vex) {                                                                         \
			const union emu_vec *b_ = &(e)->cpu.v[(u)->b];                             \
			d_->q[0] = b_->q[0];                                                       \
			d_->q[1] = b_->q[1];                                                       \
			d_->q[2] = d_->q[3] = 0;                                                   \
		}                                                                                  \
		V##W(d_, 0) = (r);                                                                 \
	} while (0)

/* ---- binding ---------------------------------------------------------------------- */

/* Fill in a, b, c, d, size as described at the top. */
void emu_fp_operands(const struct insn *in, struct emu_uop *u);

emu_fn *emu_fp_bind_cvt(const struct insn *in, struct emu_uop *u); /* emu-fp-cvt.c */
emu_fn *emu_fp_bind_fma(const struct insn *in, struct emu_uop *u); /* emu-fp-fma.c */

#endif
