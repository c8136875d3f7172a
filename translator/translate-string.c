/*
 * Translation of string instructions: a jump to a routine of the runtime, which does all iterations
 * and comes back.
 */
#include "translator/runtime.h"
#include "translator/build.h"

#define RT(op)                                                                                     \
	extern const uint8_t rt_##op##1_0 [], rt_##op##2_0 [], rt_##op##4_0 [], rt_##op##8_0 [],   \
		rt_##op##1_1 [], rt_##op##2_1 [], rt_##op##4_1 [], rt_##op##8_1 [];
#define RT3(op)                                                                                    \
	RT(op)                                                                                     \
	extern const uint8_t rt_##op##1_2 [], rt_##op##2_2 [], rt_##op##4_2 [], rt_##op##8_2 [];
RT(movs)
RT(stos)
RT(lods)
RT3(cmps)
RT3(scas)

#define ROW2(op)                                                                                   \
	{                                                                                          \
		{ rt_##op##1_0, rt_##op##1_1, rt_##op##1_1 },                                      \
			{ rt_##op##2_0, rt_##op##2_1, rt_##op##2_1 },                              \
			{ rt_##op##4_0, rt_##op##4_1, rt_##op##4_1 },                              \
		{                                                                                  \
			rt_##op##8_0, rt_##op##8_1, rt_##op##8_1                                   \
		}                                                                                  \
	}
#define ROW3(op)                                                                                   \
	{                                                                                          \
		{ rt_##op##1_0, rt_##op##1_1, rt_##op##1_2 },                                      \
			{ rt_##op##2_0, rt_##op##2_1, rt_##op##2_2 },                              \
			{ rt_##op##4_0, rt_##op##4_1, rt_##op##4_2 },                              \
		{                                                                                  \
			rt_##op##8_0, rt_##op##8_1, rt_##op##8_2                                   \
		}                                                                                  \
	}

/* [instruction][log2 width][0 none, 1 rep/repe, 2 repne] */
static const uint8_t *const routines[5][4][3] = { ROW2(movs), ROW2(stos), ROW2(lods), ROW3(cmps),
						  ROW3(scas) };

void tr_string_insn(struct tr_build *b)
{
	const struct insn *in = &b->insn[b->i];
	static const uint16_t ids[5] = { INSN_MOVS, INSN_STOS, INSN_LODS, INSN_CMPS, INSN_SCAS };
	unsigned k = 0;
	while (k < 5 && ids[k] != in->id)
		k++;
	if (k == 5 || in->addr32 || in->seg || !b->policy.mirror) {
		b->failed = true;
		return;
	}
	unsigned width = in->opsize == 1 ? 0 : in->opsize == 2 ? 1 : in->opsize == 4 ? 2 : 3;
	unsigned rep = !(in->attr & INSN_A_REP) ? 0 : in->rep == 0xf2 ? 2 : 1;
	struct cg *c = b->c;
	struct tr_finsn *fi = &b->f->insn[b->i];

	tr_flags_clobber(b, false);
	for (unsigned r = 8; r < 12; r++)
		tr_reg_spill(b, r);
	cg_imm_gs(c, T_RT_STEP, tr_lag(b) << 16);
	bool compares = k >= 3;
	uint8_t *skip = NULL;
	if (compares && rep)
		skip = cg_jcc8(c, 0xe3); /* jrcxz: no iteration, flags stay */
	/* return address: behind the jump */
	cg8(c, 0x4c);
	cg8(c, 0x8d);
	cg8(c, 0x05);
	cg32(c, 0); /* lea r8, [rip + ...] */
	uint8_t *at = c->p - 4;
	cg_store_gs(c, 8, T_RT_RET);
	tr_mark_body(b);
	fi->id_string = 1;
	cg_jmp(c, rt_va(b->arena, routines[k][width][rep]));
	cg8(c, 0x90); /* T_RT_RET - 1 lies in this instruction */
	if (!c->overflow)
		cg_patch32(at, c->delta, cg_va(c));
	if (skip) {
		/* both paths meet with flags in the processor */
		uint8_t *over = cg_jcc8(c, 0xeb);
		cg_here8(c, skip);
		if (b->st.flags == TR_FLAGS_SAVED) {
			tr_flags_need(b, c);
			b->st.flags = TR_FLAGS_SAVED;
		}
		cg_here8(c, over);
	}
}
