/*
 * Vector instructions about masks: sign bits to a general register, tests that set flags,
 * and memory accesses under a mask (masked moves, gathers).
 *
 * A masked or gathered access touches only the elements its mask selects. Each of them is
 * an access of its own, in ascending order of elements: the recorder must number its loads
 * the same way.
 *
 * Facts are from the SDM, volume 2, the page of each instruction.
 */
#include "emu/emu-flags.h"
#include "emu/emu-vec.h"

/* ---- sign bits ------------------------------------------------------------------------------ */

/* The top bits of the eight bytes of x: each is moved to its place in the top byte. */
VEC_INLINE unsigned byte_signs(uint64_t x)
{
	return (unsigned)((x >> 7 & 0x0101010101010101) * 0x0102040810204080 >> 56);
}

static void pmovmskb_mmx(struct emu *e, const struct emu_uop *u)
{
	uint64_t x = e->cpu.x87_mant[u->b & 7];

	mmx_enter(e);
	e->cpu.gpr[u->a] = byte_signs(x);
}

static void pmovmskb_128(struct emu *e, const struct emu_uop *u)
{
	const V *s = &e->cpu.v[u->b];

	e->cpu.gpr[u->a] = byte_signs(s->q[0]) | byte_signs(s->q[1]) << 8;
}

static void pmovmskb_256(struct emu *e, const struct emu_uop *u)
{
	const V *s = &e->cpu.v[u->b];

	e->cpu.gpr[u->a] = byte_signs(s->q[0]) | byte_signs(s->q[1]) << 8 |
			   byte_signs(s->q[2]) << 16 | byte_signs(s->q[3]) << 24;
}

/* u->size: bytes of the source */
static void movmskps(struct emu *e, const struct emu_uop *u)
{
	const V *s = &e->cpu.v[u->b];
	uint64_t m = 0;

	for (unsigned i = 0; i < u->size / 8u; i++)
		m |= (s->q[i] >> 31 & 1) << (2 * i) | (s->q[i] >> 63) << (2 * i + 1);
	e->cpu.gpr[u->a] = m;
}

static void movmskpd(struct emu *e, const struct emu_uop *u)
{
	const V *s = &e->cpu.v[u->b];
	uint64_t m = 0;

	for (unsigned i = 0; i < u->size / 8u; i++)
		m |= (s->q[i] >> 63) << i;
	e->cpu.gpr[u->a] = m;
}

/* ---- tests ------------------------------------------------------------------------------------
 */

/* ZF: no bit of b in common with a; CF: no bit of b outside a; among the bits in `mask`. */
VEC_INLINE void test(struct emu *e, const struct emu_uop *u, uint64_t mask)
{
	V b;
	const V *a = &e->cpu.v[u->b];
	uint64_t both = 0, only = 0;
	unsigned n = (u->d & VEC_FORM) == VEC_256 ? 4 : 2;

	vec_source(e, u, &b);
	for (unsigned i = 0; i < n; i++) {
		both |= a->q[i] & b.q[i] & mask;
		only |= ~a->q[i] & b.q[i] & mask;
	}
	emu_set_flags(e, (both ? 0 : DJ_FLAG_ZF) | (only ? 0 : DJ_FLAG_CF));
}

static void ptest(struct emu *e, const struct emu_uop *u)
{
	test(e, u, ~0ULL);
}

static void vtestps(struct emu *e, const struct emu_uop *u)
{
	test(e, u, 0x8000000080000000);
}

static void vtestpd(struct emu *e, const struct emu_uop *u)
{
	test(e, u, 0x8000000000000000);
}

/* ---- masked moves --------------------------------------------------------------------------- */

static void maskmovdqu(struct emu *e, const struct emu_uop *u)
{
	const V *s = &e->cpu.v[u->a], *m = &e->cpu.v[u->b];
	uint64_t at = e->cpu.gpr[DJ_RDI];

	for (unsigned i = 0; i < 16; i++) {
		uint64_t addr = at + i;

		if (u->addr32)
			addr = (uint32_t)addr;
		if (VB(m, i) & 0x80)
			emu_store8(e, addr + e->cpu.segbase[u->seg], VB(s, i));
	}
}

/* u->b the mask, u->d the form */
#define MASKED(bits, macro)                                                                        \
	static void maskload##bits(struct emu *e, const struct emu_uop *u)                         \
	{                                                                                          \
		const V m = e->cpu.v[u->b];                                                        \
		uint64_t at = emu_ea(e, u);                                                        \
		unsigned n = ((u->d & VEC_FORM) == VEC_256 ? 256 : 128) / bits;                    \
		V r = { .q = { 0 } };                                                              \
		for (unsigned i = 0; i < n; i++)                                                   \
			if (macro(&m, i) >> (bits - 1))                                            \
				macro(&r, i) = emu_load##bits(e, at + i * (bits / 8));             \
		vec_put(e, u->a, &r, u->d &VEC_FORM);                                              \
	}                                                                                          \
	static void maskstore##bits(struct emu *e, const struct emu_uop *u)                        \
	{                                                                                          \
		const V *m = &e->cpu.v[u->b], *s = &e->cpu.v[u->c];                                \
		uint64_t at = emu_ea(e, u);                                                        \
		unsigned n = ((u->d & VEC_FORM) == VEC_256 ? 256 : 128) / bits;                    \
		for (unsigned i = 0; i < n; i++)                                                   \
			if (macro(m, i) >> (bits - 1))                                             \
				emu_store##bits(e, at + i * (bits / 8), macro(s, i));              \
	}
MASKED(32, VD)
MASKED(64, VQ)

/* ---- gathers ------------------------------------------------------------------------------------
 */

/* u->a destination, u->b index register, u->c mask; u->size elements are gathered. The
 * base class of addresses is emu_ea() without an index. */
#define GATHER(name, data_bits, data, index_type, index)                                           \
	static void name(struct emu *e, const struct emu_uop *u)                                   \
	{                                                                                          \
		const V idx = e->cpu.v[u->b], m = e->cpu.v[u->c];                                  \
		uint64_t base = e->cpu.gpr[u->base] + (uint64_t)u->disp;                           \
		V r = { .q = { 0 } };                                                              \
		for (unsigned i = 0; i < u->size; i++) {                                           \
			uint64_t at = (uint64_t)(int64_t)(index_type)index(&idx, i);               \
			at = base + (at << u->shift);                                              \
			if (u->addr32)                                                             \
				at = (uint32_t)at;                                                 \
			at += e->cpu.segbase[u->seg];                                              \
			data(&r, i) = data(&m, i) >> (data_bits - 1) ? emu_load##data_bits(e, at)  \
								     : data(&e->cpu.v[u->a], i);   \
		}                                                                                  \
		e->cpu.v[u->a] = r;                                                                \
		e->cpu.v[u->c] = (V){ .q = { 0 } };                                                \
	}
GATHER(gather_dd, 32, VD, int32_t, VD)
GATHER(gather_dq, 64, VQ, int32_t, VD)
GATHER(gather_qd, 32, VD, int64_t, VQ)
GATHER(gather_qq, 64, VQ, int64_t, VQ)

static emu_fn *bind_gather(const struct insn *in, struct emu_uop *u, emu_fn *fn, unsigned n)
{
	u->a = in->opnd[0].reg;
	u->b = in->index;
	u->c = in->opnd[2].reg;
	u->index = EMU_ZERO_REG;
	u->size = (uint8_t)(in->vex_l ? 2 * n : n);
	return fn;
}

emu_fn *emu_bind_vec_mask(const struct insn *in, struct emu_uop *u)
{
	unsigned form = emu_vec_form(in);
	bool store = in->opnd[0].kind == OPND_MEM;

	switch (in->id) {
	case INSN_PMOVMSKB:
		return form == VEC_MMX	 ? pmovmskb_mmx
		       : form == VEC_256 ? pmovmskb_256
					 : pmovmskb_128;
	case INSN_MOVMSKPS:
		u->size = form == VEC_256 ? 32 : 16;
		return movmskps;
	case INSN_MOVMSKPD:
		u->size = form == VEC_256 ? 32 : 16;
		return movmskpd;
	case INSN_PTEST:
		emu_vec_bind_operands(in, u, VEC_BINARY);
		return ptest;
	case INSN_VTESTPS:
		emu_vec_bind_operands(in, u, VEC_BINARY);
		return vtestps;
	case INSN_VTESTPD:
		emu_vec_bind_operands(in, u, VEC_BINARY);
		return vtestpd;
	case INSN_MASKMOVDQU:
		return maskmovdqu;
	case INSN_VMASKMOVPS:
	case INSN_VPMASKMOVD:
		u->d = (uint8_t)form;
		return store ? maskstore32 : maskload32;
	case INSN_VMASKMOVPD:
	case INSN_VPMASKMOVQ:
		u->d = (uint8_t)form;
		return store ? maskstore64 : maskload64;
	case INSN_VGATHERDPS:
	case INSN_VPGATHERDD:
		return bind_gather(in, u, gather_dd, 4);
	case INSN_VGATHERDPD:
	case INSN_VPGATHERDQ:
		return bind_gather(in, u, gather_dq, 2);
	case INSN_VGATHERQPS:
	case INSN_VPGATHERQD:
		return bind_gather(in, u, gather_qd, 2);
	case INSN_VGATHERQPD:
	case INSN_VPGATHERQQ:
		return bind_gather(in, u, gather_qq, 2);
	default:
		return NULL;
	}
}
