/*
 * Translation of loads into vector registers that can do with fewer comparisons than one for every eight bytes.
 */
#include "recorder/translate-priv.h"

/* A load of a scalar into a vector register: zero-extended to 128 bits by the instruction, and just so by
 * a movd or movq from the general register that was checked. */
static bool scalar_load(const struct insn *in)
{
	switch (in->id) {
	case INSN_MOVSD:
	case INSN_MOVSS:
	case INSN_MOVQ:
	case INSN_MOVD:
		return in->opnd[0].kind == OPND_VEC && in->nopnd == 2 && in->opnd[1].kind == OPND_MEM &&
		       (in->mem_size == 4 || in->mem_size == 8);
	}
	return false;
}

/* A load of a whole vector register. */
static bool whole_load(const struct insn *in)
{
	switch (in->id) {
	case INSN_MOVDQU:
	case INSN_MOVUPS:
	case INSN_MOVUPD:
	case INSN_LDDQU:
		/* the legacy form of pxor wants its operand aligned */
		return in->vex && in->opnd[0].kind == OPND_VEC;
	case INSN_MOVDQA:
	case INSN_MOVAPS:
	case INSN_MOVAPD:
		return in->opnd[0].kind == OPND_VEC;
	}
	return false;
}

bool b_vector_load(struct build *b, const struct insn *in, const struct ea *mem, const struct ea *shadow)
{
	struct cg *c = b->c;
	if (b->tr->predict == 2)
		return false;
	if (scalar_load(in)) {
		int s = b_scratch(b, ea_regs(mem), false);
		if (b->failed)
			return true;
		b_checked_load(b, in->mem_size, (unsigned)s, mem, shadow);
		unsigned d = in->opnd[0].reg;
		bool wide = in->mem_size == 8;
		if (in->vex) {
			cg_vex_rr(c, wide ? VMOVQ_XR : VMOVD_XR, false, d, 0, (unsigned)s);
		} else {
			cg8(c, 0x66);
			cg_rr(c, wide ? 8 : 4, 0x0f6e, d, (unsigned)s);
		}
		return true;
	}
	if (!whole_load(in))
		return false;
	/* load; xor with the shadow; nothing left? then load from the shadow */
	int s = b_scratch(b, ea_regs(mem), false); /* for the import only */
	if (b->failed)
		return true;
	b_clobber_flags(b, false);
	b_mark_body(b);
	unsigned d = in->opnd[0].reg;
	cg_reencode(c, in, mem);
	if (in->vex) {
		cg_vex_rm(c, VXORPS, in->vex_l, d, d, shadow);
		cg_vex_rr(c, VPTEST, in->vex_l, d, 0, d);
	} else {
		cg_rm(c, 4, 0x0f57, d, shadow, 0); /* xorps d, gs:[m] */
		cg8(c, 0x66);
		if (d >= 8)
			cg8(c, 0x45);
		cg_bytes(c, "\x0f\x38\x17", 3); /* ptest d, d */
		cg8(c, (uint8_t)(0xc0 | (d & 7) << 3 | (d & 7)));
	}
	uint8_t *j = cg_jcc(c, 5, 0);
	if (!c->overflow)
		cg_patch32(j, c->delta, cg_va(b->cold));
	b_cold_import(b, (unsigned)s, mem, in->mem_size, cg_va(c), rt_import);
	cg_reencode(c, in, shadow);
	return true;
}
