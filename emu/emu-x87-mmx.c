/*
 * Instructions that exist for MMX registers only, and conversions between MMX and XMM.
 *
 * mmI is the significand of the PHYSICAL x87 register I. Any instruction that touches one
 * marks all registers as in use and sets top to 0; writing one sets its exponent to all
 * ones (SDM vol. 1, 9.5 and vol. 3A, 12.2). A pending x87 exception faults first.
 */
#include "emu/emu-fp.h"
#include "emu/emu-x87.h"

static inline void to_mmx(struct emu *e)
{
	e->cpu.x87_top = 0;
	e->cpu.x87_ftw = 0xff;
}

static inline void put_mm(struct emu *e, unsigned i, uint64_t v)
{
	to_mmx(e);
	e->cpu.x87_mant[i] = v;
	e->cpu.x87_exp[i] = 0xffff;
}

static void emms(struct emu *e, const struct emu_uop *u)
{
	(void)u;
	emu_x87_wait(e);
	e->cpu.x87_ftw = 0;
	e->cpu.x87_top = 0;
}

static void movntq(struct emu *e, const struct emu_uop *u)
{
	emu_x87_wait(e);
	to_mmx(e);
	emu_store64(e, emu_ea(e, u), e->cpu.x87_mant[u->a]);
}

/* Bytes of mm(a) whose mask byte in mm(b) has its top bit set go to memory at rdi. */
static void maskmovq(struct emu *e, const struct emu_uop *u)
{
	uint64_t v = e->cpu.x87_mant[u->a], mask = e->cpu.x87_mant[u->b];
	uint64_t addr = e->cpu.gpr[DJ_RDI];

	emu_x87_wait(e);
	to_mmx(e);
	if (u->addr32)
		addr = (uint32_t)addr;
	addr += e->cpu.segbase[u->seg];
	for (unsigned i = 0; i < 8; i++)
		if (mask >> (8 * i + 7) & 1)
			emu_store8(e, addr + i, (uint8_t)(v >> 8 * i));
}

static void movdq2q(struct emu *e, const struct emu_uop *u)
{
	emu_x87_wait(e);
	put_mm(e, u->a, VQ(&e->cpu.v[u->b], 0));
}

static void movq2dq(struct emu *e, const struct emu_uop *u)
{
	emu_x87_wait(e);
	to_mmx(e);
	VQ(&e->cpu.v[u->a], 0) = e->cpu.x87_mant[u->b];
	VQ(&e->cpu.v[u->a], 1) = 0;
}

static inline void shuffle(struct emu *e, const struct emu_uop *u, uint64_t v)
{
	uint64_t r = 0;
	for (unsigned i = 0; i < 4; i++)
		r |= (v >> 16 * (u->imm >> 2 * i & 3) & 0xffff) << 16 * i;
	put_mm(e, u->a, r);
}

static void pshufw_mm(struct emu *e, const struct emu_uop *u)
{
	emu_x87_wait(e);
	shuffle(e, u, e->cpu.x87_mant[u->b]);
}

static void pshufw_m64(struct emu *e, const struct emu_uop *u)
{
	emu_x87_wait(e);
	shuffle(e, u, emu_load64(e, emu_ea(e, u)));
}

/* ---- conversions ---------------------------------------------------------------------- */

static inline struct sfp sse(const struct emu *e)
{
	return (struct sfp){ .csr = e->cpu.mxcsr };
}

/* Add the flags to mxcsr; an unmasked one is a fault of this instruction. */
static inline void sse_done(struct emu *e, const struct sfp *s)
{
	if (s->flags & ~(s->csr >> SFP_MASK_SHIFT))
		emu_fp_raise(e, s->flags);
	e->cpu.mxcsr |= s->flags;
}

static inline void pi2ps(struct emu *e, const struct emu_uop *u, uint64_t v)
{
	struct sfp s = sse(e);
	uint32_t lo = sfp_i32_to_f32((int32_t)v, &s);
	uint32_t hi = sfp_i32_to_f32((int32_t)(v >> 32), &s);
	sse_done(e, &s);
	VQ(&e->cpu.v[u->a], 0) = (uint64_t)hi << 32 | lo;
}

static inline void pi2pd(struct emu *e, const struct emu_uop *u, uint64_t v)
{
	struct sfp s = sse(e);
	VQ(&e->cpu.v[u->a], 0) = sfp_i32_to_f64((int32_t)v, &s);
	VQ(&e->cpu.v[u->a], 1) = sfp_i32_to_f64((int32_t)(v >> 32), &s);
}

static void cvtpi2ps_mm(struct emu *e, const struct emu_uop *u)
{
	emu_x87_wait(e);
	pi2ps(e, u, e->cpu.x87_mant[u->b]);
	to_mmx(e);
}

static void cvtpi2pd_mm(struct emu *e, const struct emu_uop *u)
{
	emu_x87_wait(e);
	to_mmx(e);
	pi2pd(e, u, e->cpu.x87_mant[u->b]);
}

/* From memory no MMX register takes part, and the x87 state is left alone. The SDM says so of
 * CVTPI2PD only, the CPU does it with both. */
static void cvtpi2ps_m64(struct emu *e, const struct emu_uop *u)
{
	pi2ps(e, u, emu_load64(e, emu_ea(e, u)));
}

static void cvtpi2pd_m64(struct emu *e, const struct emu_uop *u)
{
	pi2pd(e, u, emu_load64(e, emu_ea(e, u)));
}

/* u->c: truncate whatever the rounding mode */
static inline unsigned rounding(const struct sfp *s, const struct emu_uop *u)
{
	return u->c ? SFP_ZERO : sfp_rm(s);
}

static inline void ps2pi(struct emu *e, const struct emu_uop *u, uint64_t v)
{
	struct sfp s = sse(e);
	uint32_t lo = sfp_f32_to_i32((uint32_t)v, rounding(&s, u), &s);
	uint32_t hi = sfp_f32_to_i32((uint32_t)(v >> 32), rounding(&s, u), &s);
	sse_done(e, &s);
	put_mm(e, u->a, (uint64_t)hi << 32 | lo);
}

static inline void pd2pi(struct emu *e, const struct emu_uop *u, const union emu_vec *v)
{
	struct sfp s = sse(e);
	uint32_t lo = sfp_f64_to_i32(VQ(v, 0), rounding(&s, u), &s);
	uint32_t hi = sfp_f64_to_i32(VQ(v, 1), rounding(&s, u), &s);
	sse_done(e, &s);
	put_mm(e, u->a, (uint64_t)hi << 32 | lo);
}

static void cvtps2pi_xmm(struct emu *e, const struct emu_uop *u)
{
	emu_x87_wait(e);
	ps2pi(e, u, VQ(&e->cpu.v[u->b], 0));
}

static void cvtps2pi_m64(struct emu *e, const struct emu_uop *u)
{
	emu_x87_wait(e);
	ps2pi(e, u, emu_load64(e, emu_ea(e, u)));
}

static void cvtpd2pi_xmm(struct emu *e, const struct emu_uop *u)
{
	emu_x87_wait(e);
	pd2pi(e, u, &e->cpu.v[u->b]);
}

static void cvtpd2pi_m128(struct emu *e, const struct emu_uop *u)
{
	union emu_vec v;
	emu_x87_wait(e);
	emu_load_vec(e, emu_ea(e, u), &v, 16);
	pd2pi(e, u, &v);
}

/* ---- binding -------------------------------------------------------------------------- */

enum { REG_MM = 1, RM_MM = 2 }; /* numbers of MMX registers ignore REX */

static const struct {
	uint16_t id;
	uint8_t mm, truncate;
	emu_fn *reg, *mem;
	/* clang-format off */
} table[] = {
	{ INSN_EMMS, 0, 0, emms, NULL },
	{ INSN_MOVNTQ, REG_MM, 0, NULL, movntq },
	{ INSN_MASKMOVQ, REG_MM | RM_MM, 0, maskmovq, NULL },
	{ INSN_MOVDQ2Q, REG_MM, 0, movdq2q, NULL },
	{ INSN_MOVQ2DQ, RM_MM, 0, movq2dq, NULL },
	{ INSN_PSHUFW, REG_MM | RM_MM, 0, pshufw_mm, pshufw_m64 },
	{ INSN_CVTPI2PS, RM_MM, 0, cvtpi2ps_mm, cvtpi2ps_m64 },
	{ INSN_CVTPI2PD, RM_MM, 0, cvtpi2pd_mm, cvtpi2pd_m64 },
	{ INSN_CVTPS2PI, REG_MM, 0, cvtps2pi_xmm, cvtps2pi_m64 },
	{ INSN_CVTPD2PI, REG_MM, 0, cvtpd2pi_xmm, cvtpd2pi_m128 },
	{ INSN_CVTTPS2PI, REG_MM, 1, cvtps2pi_xmm, cvtps2pi_m64 },
	{ INSN_CVTTPD2PI, REG_MM, 1, cvtpd2pi_xmm, cvtpd2pi_m128 },
};
/* clang-format on */

emu_fn *emu_x87_bind_mmx(const struct insn *in, struct emu_uop *u)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		if (table[i].id != in->id)
			continue;
		u->a = in->reg & (table[i].mm & REG_MM ? 7 : 15);
		u->b = in->rm & (table[i].mm & RM_MM ? 7 : 15);
		u->c = table[i].truncate;
		return in->has_mem ? table[i].mem : table[i].reg;
	}
	return NULL;
}
