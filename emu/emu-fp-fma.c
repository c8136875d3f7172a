/*
 * FMA3. The opcode's high nibble says which operand is what (SDM vol. 2, VFMADD132PD etc.):
 *
 *   9x  132: first * third + second
 *   Ax  213: second * first + third
 *   Bx  231: second * third + first
 *
 * The binder puts the registers of multiplicand, multiplier and addend, in this order, into
 * b, c and d; MEMORY stands for the memory operand (never the multiplicand). The order matters: the
 * first NaN among them is the result. Always VEX: the upper half is zeroed.
 */
#include "emu/emu-fp.h"

#define MEMORY 0xff

static inline const union emu_vec *operand(struct emu *e, uint8_t reg, const union emu_vec *mem)
{
	return reg == MEMORY ? mem : &e->cpu.v[reg];
}

/* The host's vector operation, signs of even and odd elements changed as `neg` says. */
static inline __attribute__((always_inline)) bool host64(const uint64_t *x, const uint64_t *y,
							 const uint64_t *z, unsigned neg_even,
							 unsigned neg_odd, uint64_t *r)
{
	const uint64_t sign = 1ULL << 63;
	uint64_t a[2] = { neg_even & SFP_NEG_PRODUCT ? x[0] ^ sign : x[0],
			  neg_odd & SFP_NEG_PRODUCT ? x[1] ^ sign : x[1] };
	uint64_t c[2] = { neg_even & SFP_NEG_ADDEND ? z[0] ^ sign : z[0],
			  neg_odd & SFP_NEG_ADDEND ? z[1] ^ sign : z[1] };
	return hostfp_fmav64(a, y, c, r);
}

static inline __attribute__((always_inline)) bool host32(const uint64_t *x, const uint64_t *y,
							 const uint64_t *z, unsigned neg_even,
							 unsigned neg_odd, uint64_t *r)
{
	/* an even element is the lower half of its word, on every host */
	const uint64_t even = 1ULL << 31, odd = 1ULL << 63;
	uint64_t p =
		(neg_even & SFP_NEG_PRODUCT ? even : 0) | (neg_odd & SFP_NEG_PRODUCT ? odd : 0);
	uint64_t q = (neg_even & SFP_NEG_ADDEND ? even : 0) | (neg_odd & SFP_NEG_ADDEND ? odd : 0);
	uint64_t a[2] = { x[0] ^ p, x[1] ^ p }, c[2] = { z[0] ^ q, z[1] ^ q };
	return hostfp_fmav32(a, y, c, r);
}

/* NEG(i): what is negated in element i. */
#define PACKED(NAME, W, NEG)                                                                       \
	static void NAME(struct emu *e, const struct emu_uop *u)                                   \
	{                                                                                          \
		union emu_vec mem, r;                                                              \
		if (u->c == MEMORY || u->d == MEMORY)                                              \
			emu_load_vec(e, emu_ea(e, u), &mem, u->size);                              \
		const union emu_vec *x = &e->cpu.v[u->b], *y = operand(e, u->c, &mem),             \
				    *z = operand(e, u->d, &mem);                                   \
		struct sfp s = emu_fp_begin(e);                                                    \
		enum emu_fp_mode m = emu_fp_mode(e);                                               \
		for (unsigned k = 0; k < u->size / 16; k++) {                                      \
			const unsigned first = k * (128 / W);                                      \
			if (m == FP_HOST && host##W(&x->q[2 * k], &y->q[2 * k], &z->q[2 * k],      \
						    NEG(0), NEG(1), &r.q[2 * k]))                  \
				continue;                                                          \
			for (unsigned i = first; i < first + 128 / W; i++)                         \
				V##W(&r, i) = fp_fma##W(&s, m, NEG(i), V##W(x, i), V##W(y, i),     \
							V##W(z, i));                               \
		}                                                                                  \
		emu_fp_commit(e, &s);                                                              \
		union emu_vec *d = &e->cpu.v[u->a];                                                \
		if (u->size == 16)                                                                 \
			r.q[2] = r.q[3] = 0;                                                       \
		*d = r;                                                                            \
	}

#define SCALAR(NAME, W, NEG)                                                                       \
	static void NAME(struct emu *e, const struct emu_uop *u)                                   \
	{                                                                                          \
		union emu_vec mem;                                                                 \
		if (u->c == MEMORY || u->d == MEMORY)                                              \
			V##W(&mem, 0) = emu_load##W(e, emu_ea(e, u));                              \
		uint##W##_t x = V##W(&e->cpu.v[u->b], 0), y = V##W(operand(e, u->c, &mem), 0),     \
			    z = V##W(operand(e, u->d, &mem), 0);                                   \
		struct sfp s = emu_fp_begin(e);                                                    \
		enum emu_fp_mode m = emu_fp_mode(e);                                               \
		uint##W##_t r = fp_fma##W(&s, m, NEG(0), x, y, z);                                 \
		emu_fp_commit(e, &s);                                                              \
		union emu_vec *d = &e->cpu.v[u->a];                                                \
		V##W(d, 0) = r;                                                                    \
		d->q[2] = d->q[3] = 0;                                                             \
	}

#define NEG_FMADD(i)  0
#define NEG_FMSUB(i)  SFP_NEG_ADDEND
#define NEG_FNMADD(i) SFP_NEG_PRODUCT
#define NEG_FNMSUB(i) (SFP_NEG_PRODUCT | SFP_NEG_ADDEND)
#define NEG_ADDSUB(i) ((i)&1 ? 0 : SFP_NEG_ADDEND)
#define NEG_SUBADD(i) ((i)&1 ? SFP_NEG_ADDEND : 0)

#define ALL_FOUR(NAME, NEG)                                                                        \
	PACKED(NAME##ps, 32, NEG)                                                                  \
	PACKED(NAME##pd, 64, NEG)                                                                  \
	SCALAR(NAME##ss, 32, NEG)                                                                  \
	SCALAR(NAME##sd, 64, NEG)
ALL_FOUR(fmadd, NEG_FMADD)
ALL_FOUR(fmsub, NEG_FMSUB)
ALL_FOUR(fnmadd, NEG_FNMADD)
ALL_FOUR(fnmsub, NEG_FNMSUB)
PACKED(fmaddsubps, 32, NEG_ADDSUB)
PACKED(fmaddsubpd, 64, NEG_ADDSUB)
PACKED(fmsubaddps, 32, NEG_SUBADD)
PACKED(fmsubaddpd, 64, NEG_SUBADD)

#define ROW_4(ID, NAME)                                                                            \
	[INSN_##ID##PS - INSN_VFMADDPS] = NAME##ps, [INSN_##ID##PD - INSN_VFMADDPS] = NAME##pd,    \
			 [INSN_##ID##SS - INSN_VFMADDPS] = NAME##ss,                               \
			 [INSN_##ID##SD - INSN_VFMADDPS] = NAME##sd
static emu_fn *const rows[] = {
	ROW_4(VFMADD, fmadd),
	ROW_4(VFMSUB, fmsub),
	ROW_4(VFNMADD, fnmadd),
	ROW_4(VFNMSUB, fnmsub),
	[INSN_VFMADDSUBPS - INSN_VFMADDPS] = fmaddsubps,
	[INSN_VFMADDSUBPD - INSN_VFMADDPS] = fmaddsubpd,
	[INSN_VFMSUBADDPS - INSN_VFMADDPS] = fmsubaddps,
	[INSN_VFMSUBADDPD - INSN_VFMADDPS] = fmsubaddpd,
};

emu_fn *emu_fp_bind_fma(const struct insn *in, struct emu_uop *u)
{
	if (in->id < INSN_VFMADDPS || in->id > INSN_VFMSUBADDPD || in->nopnd < 3)
		return NULL;
	uint8_t first = in->opnd[0].reg, second = in->opnd[1].reg,
		third = in->has_mem ? MEMORY : in->opnd[2].reg;

	emu_fp_operands(in, u);
	switch (in->opcode >> 4) {
	case 0x9:
		u->b = first, u->c = third, u->d = second;
		break;
	case 0xa:
		u->b = second, u->c = first, u->d = third;
		break;
	case 0xb:
		u->b = second, u->c = third, u->d = first;
		break;
	default:
		return NULL;
	}
	return rows[in->id - INSN_VFMADDPS];
}
