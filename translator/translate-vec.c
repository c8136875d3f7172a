/*
 * Translation of loads into vector registers that can do with fewer comparisons than one for every
 * eight bytes, of accesses under a mask, and of gathers.
 *
 * Elements that a mask does not select are not accessed: they may lie where nothing is mapped. A
 * masked load is compared under the same mask, and what is imported goes from the first selected
 * element to the last.
 *
 * A gather is elements here and there. Each selected one is compared by itself, through general
 * registers; if all were equal the instruction is executed on the shadow, else rt_gather_* goes
 * through them one by one. No import is made before all elements were read once, because any of
 * them may fault. A fault then finds destination and mask as they were before the instruction. The
 * processor would have completed the elements before the one that faults; the instruction can be
 * executed again from either state, with the same result.
 *
 * Vector registers that are needed as scratch have their contents in T_VEC() meanwhile. They are
 * not changed before the last access that can fault, or by that access itself.
 */
#include "translator/runtime.h"
#include "translator/build.h"

/* A load of a scalar into a vector register: zero-extended to 128 bits by the instruction, and just
 * so by a movd or movq from the general register that was checked. */
static bool scalar_load(const struct insn *in)
{
	switch (in->id) {
	case INSN_MOVSD:
	case INSN_MOVSS:
	case INSN_MOVQ:
	case INSN_MOVD:
		return in->opnd[0].kind == OPND_VEC && in->nopnd == 2 &&
		       in->opnd[1].kind == OPND_MEM && (in->mem_size == 4 || in->mem_size == 8);
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

bool tr_vec_load(struct tr_build *b, const struct insn *in, const struct ea *mem,
		 const struct ea *shadow)
{
	struct cg *c = b->c;
	if (b->policy.import_all)
		return false;
	if (scalar_load(in)) {
		tr_flags_clobber(b, false); /* while rax has somewhere to go */
		int s = tr_reg_scratch(b, ea_regs(mem), false);
		if (b->failed)
			return true;
		tr_mem_load(b, in->mem_size, (unsigned)s, mem, shadow);
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
	tr_flags_clobber(b, false);
	int s = tr_reg_scratch(b, ea_regs(mem), false); /* for the import only */
	if (b->failed)
		return true;
	tr_mark_body(b);
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
	tr_mem_import(b, (unsigned)s, mem, in->mem_size, cg_va(c), rt_import);
	cg_reencode(c, in, shadow);
	return true;
}

/* ---- under a mask ----------------------------------------------------------------------- */

/* A vector register that is not in `no`, its contents saved to T_VEC(k). */
static unsigned vec_scratch(struct tr_build *b, uint32_t *no, unsigned k)
{
	unsigned x = 15;
	struct ea save = ea_gs(T_VEC((int)k));
	while (*no >> x & 1)
		x--;
	*no |= 1u << x;
	cg_vex_rm(b->c, VMOVUPS_STORE, true, x, 0, &save);
	return x;
}

static void vec_restore(struct tr_build *b, unsigned x, unsigned k)
{
	struct ea save = ea_gs(T_VEC((int)k));
	cg_vex_rm(b->c, VMOVUPS_LOAD, true, x, 0, &save);
}

/* x is loaded from memory and y from the shadow; y is the destination, unless that is the mask,
 * too. */
static void masked_load(struct tr_build *b, const struct insn *in, const struct ea *mem,
			const struct ea *shadow)
{
	struct cg *c = b->c, *cold = b->cold;
	unsigned d = in->opnd[0].reg, m = in->vex_vvvv;
	uint32_t op = CG_VEX(in->map, in->vex_pp, in->vex_w, in->opcode), no = 1u << d | 1u << m;
	bool qwords = in->id == INSN_VMASKMOVPD || in->id == INSN_VPMASKMOVQ, l = in->vex_l;
	struct ea bits = ea_gs(T_MASK);
	int s = tr_reg_scratch(b, ea_regs(mem), false); /* for the import only */
	if (b->failed)
		return;
	tr_flags_clobber(b, false);
	unsigned x = vec_scratch(b, &no, 0), y = d != m ? d : vec_scratch(b, &no, 1);
	tr_mark_body(b);
	cg_vex_rm(c, op, l, x, m, mem);
	cg_vex_rm(c, op, l, y, m, shadow);
	cg_vex_rr(c, VXORPS, l, x, x, y);
	cg_vex_rr(c, VPTEST, l, x, 0, x);
	uint8_t *differs = cg_jcc(c, 5, 0);
	if (!c->overflow)
		cg_patch32(differs, c->delta, cg_va(cold));
	uint64_t resume = cg_va(c);
	cg_vex_rr(cold, qwords ? VMOVMSKPD : VMOVMSKPS, l, (unsigned)s, 0, m);
	cg_rm(cold, 4, 0x89, (unsigned)s, &bits, 0);
	tr_mem_import(b, (unsigned)s, mem, qwords ? 8 : 4, d == m ? resume : 0, rt_import_masked);
	if (d == m) {
		vec_restore(b, y, 1);
		cg_vex_rm(c, op, l, d, m, shadow);
	} else {
		cg_vex_rm(cold, op, l, d, m, shadow);
		cg_jmp(cold, resume);
	}
	vec_restore(b, x, 0);
}

/* ---- gathers ----------------------------------------------------------------------------- */

static void gather(struct tr_build *b, const struct insn *in, const struct ea *mem,
		   const struct ea *shadow)
{
	struct cg *c = b->c, *cold = b->cold;
	unsigned d = in->opnd[0].reg, x = in->index, m = in->opnd[2].reg;
	unsigned size = in->vex_w ? 8 : 4, index = in->opcode & 1 ? 8 : 4;
	unsigned n = (in->vex_l ? 32 : 16) / (size > index ? size : index);
	uint32_t no = mem->base >= 0 ? 1u << mem->base : 0;
	if (d == x || d == m || x == m) { /* an invalid opcode */
		b->failed = true;
		return;
	}
	int mask = tr_reg_scratch(b, no, false), at = tr_reg_scratch(b, no | 1u << mask, false),
	    v = tr_reg_scratch(b, no | 1u << mask | 1u << at, false);
	if (b->failed)
		return;
	struct ea element = *mem, sh = *shadow;
	element.index = sh.index = (int8_t)at;
	tr_flags_clobber(b, false);

	/* the sign bit of `mask` becomes: something differs */
	struct ea save = ea_gs(T_VEC(1));
	cg_vex_rm(c, VMOVUPS_STORE, true, x, 0, &save);
	cg_vex_rr(c, size == 8 ? VMOVMSKPD : VMOVMSKPS, in->vex_l, (unsigned)mask, 0, m);
	tr_mark_body(b);
	for (unsigned i = 0; i < n; i++) {
		struct ea from = ea_gs(T_VEC(1) + (int32_t)(i * index));
		cg_rr(c, 4, 0x0fba, 4, (unsigned)mask); /* bt mask, i */
		cg8(c, (uint8_t)i);
		uint8_t *skip = cg_jcc8(c, 0x73);
		cg_rm(c, 8, index == 4 ? 0x63 : 0x8b, (unsigned)at, &from, 0);
		cg_load_zx(c, size, (unsigned)v, &element);
		cg_cmp(c, size, (unsigned)v, &sh);
		uint8_t *differs = cg_jcc(c, 5, 0);
		if (!c->overflow)
			cg_patch32(differs, c->delta, cg_va(cold));
		cg_rr(cold, 4, 0x0fba, 5, (unsigned)mask); /* bts mask, 31 */
		cg8(cold, 31);
		cg_jmp(cold, cg_va(c));
		cg_here8(c, skip);
	}
	cg_rr(c, 4, 0x85, (unsigned)mask, (unsigned)mask);
	uint8_t *slow = cg_jcc(c, 8, 0); /* js */
	if (!c->overflow)
		cg_patch32(slow, c->delta, cg_va(cold));
	if (!cg_reencode(c, in, shadow)) {
		b->failed = true;
		return;
	}

	struct ea dst = ea_gs(T_VEC(0)), was = ea_gs(T_VEC(2)), base = *mem, back = { .rip = true };
	cg_vex_rm(cold, VMOVUPS_STORE, true, d, 0, &dst);
	cg_vex_rm(cold, VMOVUPS_STORE, true, m, 0, &was);
	base.index = -1;
	cg_rm(cold, 8, 0x8d, (unsigned)v, &base, 0);
	cg_store_gs(cold, (unsigned)v, T_GATHER_BASE);
	cg_imm(cold, (unsigned)v, in->addr32 ? 0xffffffff : ~0ULL);
	cg_store_gs(cold, (unsigned)v, T_GATHER_WRAP);
	cg_imm_gs(cold, T_GATHER, (unsigned)__builtin_ctz(in->scale) | n << 8 | tr_lag(b) << 16);
	cg_rm(cold, 8, 0x8d, (unsigned)v, &back, 0);
	uint8_t *ret = cold->p - 4;
	cg_store_gs(cold, (unsigned)v, T_GATHER_RET);
	cg_jmp(cold, rt_va(b->arena, size == 4 ? (index == 4 ? rt_gather_dd : rt_gather_qd)
					       : (index == 4 ? rt_gather_dq : rt_gather_qq)));
	if (!cold->overflow)
		cg_patch32(ret, cold->delta, cg_va(cold));
	/* what lies above the elements becomes zero */
	cg_vex_rm(cold, n * size == 8 ? VMOVQ_LOAD : VMOVUPS_LOAD, n * size == 32, d, 0, &dst);
	cg_vex_rr(cold, VXORPS, false, m, m, m);
	cg_jmp(cold, cg_va(c));
}

void tr_vec_masked(struct tr_build *b, const struct insn *in, const struct ea *mem,
		   const struct ea *shadow)
{
	if (b->policy.import_all) {
		b->failed = true;
	} else if (in->opnd[1].kind == OPND_VSIB) {
		gather(b, in, mem, shadow);
	} else if (in->opnd[0].kind == OPND_MEM) {
		tr_mark_body(b);
		b->failed = !cg_reencode(b->c, in, mem) ||
			    (b->policy.mirror && !cg_reencode(b->c, in, shadow));
	} else {
		masked_load(b, in, mem, shadow);
	}
}

void tr_vec_masked_bytes(struct tr_build *b)
{
	const struct insn *in = &b->insn[b->i];
	if (in->seg || in->len + 2 > INSN_MAX) {
		b->failed = true;
		return;
	}
	tr_mark_body(b);
	cg_bytes(b->c, in->bytes, in->len);
	if (b->policy.mirror) {
		cg8(b->c, 0x65); /* gs:[edi] */
		if (!in->addr32)
			cg8(b->c, 0x67);
		cg_bytes(b->c, in->bytes, in->len);
	}
}
