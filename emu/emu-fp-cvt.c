/*
 * SSE, AVX and F16C conversions (SDM vol. 2, CVTxx2xx). The forms with mm registers are with
 * the x87 state in emu-x87.c.
 */
#include "emu/emu-fp.h"

/* ---- scalar --------------------------------------------------------------------------- */

/* Float to float and integer to float: `x` is the source of WI bits, CALL the result of WO. */
#define TO_XMM1(NAME, WI, WO, CALL, VEX, FORM, SOURCE)                                             \
	static void NAME##_##FORM(struct emu *e, const struct emu_uop *u)                          \
	{                                                                                          \
		uint##WI##_t x = SOURCE;                                                           \
		struct sfp s = emu_fp_begin(e);                                                    \
		uint##WO##_t r = CALL;                                                             \
		emu_fp_commit(e, &s);                                                              \
		FP_PUT_SCALAR(WO, e, u, VEX, r);                                                   \
	}
#define TO_XMM(NAME, WI, WO, CALL, REGISTER)                                                       \
	TO_XMM1(NAME, WI, WO, CALL, 0, r, REGISTER)                                                \
	TO_XMM1(NAME, WI, WO, CALL, 0, m, emu_load##WI(e, emu_ea(e, u)))                           \
	TO_XMM1(NAME, WI, WO, CALL, 1, vr, REGISTER)                                               \
	TO_XMM1(NAME, WI, WO, CALL, 1, vm, emu_load##WI(e, emu_ea(e, u)))
TO_XMM(cvtss2sd, 32, 64, sfp_f32_to_f64(x, &s), VD(&e->cpu.v[u->c], 0))
TO_XMM(cvtsd2ss, 64, 32, sfp_f64_to_f32(x, &s), VQ(&e->cpu.v[u->c], 0))
TO_XMM(cvtsl2ss, 32, 32, sfp_i32_to_f32((int32_t)x, &s), (uint32_t)e->cpu.gpr[u->c])
TO_XMM(cvtsl2sd, 32, 64, sfp_i32_to_f64((int32_t)x, &s), (uint32_t)e->cpu.gpr[u->c])
TO_XMM(cvtsq2ss, 64, 32, sfp_i64_to_f32((int64_t)x, &s), e->cpu.gpr[u->c])
TO_XMM(cvtsq2sd, 64, 64, sfp_i64_to_f64((int64_t)x, &s), e->cpu.gpr[u->c])

/* Float to integer register; writing 32 bits clears the upper half. */
#define TO_GPR1(NAME, WI, WO, RM, FORM, SOURCE)                                                    \
	static void NAME##_##FORM(struct emu *e, const struct emu_uop *u)                          \
	{                                                                                          \
		uint##WI##_t x = SOURCE;                                                           \
		struct sfp s = emu_fp_begin(e);                                                    \
		uint64_t r = sfp_f##WI##_to_i##WO(x, RM, &s);                                      \
		emu_fp_commit(e, &s);                                                              \
		e->cpu.gpr[u->a] = r;                                                              \
	}
#define TO_GPR(NAME, WI, WO, RM)                                                                   \
	TO_GPR1(NAME, WI, WO, RM, r, V##WI(&e->cpu.v[u->c], 0))                                    \
	TO_GPR1(NAME, WI, WO, RM, m, emu_load##WI(e, emu_ea(e, u)))
TO_GPR(cvtss2sl, 32, 32, sfp_rm(&s))
TO_GPR(cvtss2sq, 32, 64, sfp_rm(&s))
TO_GPR(cvtsd2sl, 64, 32, sfp_rm(&s))
TO_GPR(cvtsd2sq, 64, 64, sfp_rm(&s))
TO_GPR(cvttss2sl, 32, 32, SFP_ZERO)
TO_GPR(cvttss2sq, 32, 64, SFP_ZERO)
TO_GPR(cvttsd2sl, 64, 32, SFP_ZERO)
TO_GPR(cvttsd2sq, 64, 64, SFP_ZERO)

/* ---- packed --------------------------------------------------------------------------- */

/*
 * u->size is the width of the wider side and so gives the number of elements; the other side
 * is narrower in proportion. A 64-bit result leaves zeros up to bit 127.
 */
#define WIDER(WI, WO) ((WI) > (WO) ? (WI) : (WO))
#define PACKED1(NAME, WI, WO, CALL, FORM, SOURCE)                                                  \
	static void NAME##_##FORM(struct emu *e, const struct emu_uop *u)                          \
	{                                                                                          \
		unsigned n = u->size * 8u / WIDER(WI, WO);                                         \
		const union emu_vec *y;                                                            \
		union emu_vec r = { 0 }, mem;                                                      \
		(void)mem;                                                                         \
		SOURCE;                                                                            \
		struct sfp s = emu_fp_begin(e);                                                    \
		for (unsigned i = 0; i < n; i++) {                                                 \
			uint##WI##_t x = V##WI(y, i);                                              \
			V##WO(&r, i) = CALL;                                                       \
		}                                                                                  \
		emu_fp_commit(e, &s);                                                              \
		emu_fp_put_packed(e, u, &r, n *WO / 8 == 32 ? 32 : 16);                            \
	}
#define PACKED(NAME, WI, WO, CALL)                                                                 \
	PACKED1(NAME, WI, WO, CALL, r, y = &e->cpu.v[u->c])                                        \
	PACKED1(NAME, WI, WO, CALL, m, (emu_load_vec(e, emu_ea(e, u), &mem, n * WI / 8), y = &mem))
PACKED(cvtps2pd, 32, 64, sfp_f32_to_f64(x, &s))
PACKED(cvtpd2ps, 64, 32, sfp_f64_to_f32(x, &s))
PACKED(cvtdq2ps, 32, 32, sfp_i32_to_f32((int32_t)x, &s))
PACKED(cvtdq2pd, 32, 64, sfp_i32_to_f64((int32_t)x, &s))
PACKED(cvtps2dq, 32, 32, sfp_f32_to_i32(x, sfp_rm(&s), &s))
PACKED(cvttps2dq, 32, 32, sfp_f32_to_i32(x, SFP_ZERO, &s))
PACKED(cvtpd2dq, 64, 32, sfp_f64_to_i32(x, sfp_rm(&s), &s))
PACKED(cvttpd2dq, 64, 32, sfp_f64_to_i32(x, SFP_ZERO, &s))
PACKED(cvtph2ps, 16, 32, sfp_f16_to_f32(x, &s))

/* VCVTPS2PH stores its result; bit 2 of the immediate chooses MXCSR's rounding. */
static void cvtps2ph(struct emu *e, const struct emu_uop *u)
{
	struct sfp s = emu_fp_begin(e);
	unsigned n = u->size / 4u, rm = u->imm & 4 ? sfp_rm(&s) : u->imm & 3;
	union emu_vec r = { 0 };

	for (unsigned i = 0; i < n; i++)
		VW(&r, i) = u->insn->cpu == DJ_CPU_AMD
				    ? sfp_f32_to_f16(VD(&e->cpu.v[u->c], i), rm, &s)
				    : sfp_f32_to_f16_intel(VD(&e->cpu.v[u->c], i), rm, &s);
	emu_fp_commit(e, &s);
	if (u->insn->has_mem)
		emu_store_vec(e, emu_ea(e, u), &r, n * 2);
	else
		emu_fp_put_packed(e, u, &r, 16);
}

/* ---- binding ---------------------------------------------------------------------------- */

/* By form: register, memory, VEX register, VEX memory; the second row is for 64-bit integers. */
struct row {
	emu_fn *fn[4], *wide[4];
};
#define P(NAME)                                                                                    \
	{                                                                                          \
		NAME##_r, NAME##_m, NAME##_r, NAME##_m                                             \
	}
#define S(NAME)                                                                                    \
	{                                                                                          \
		NAME##_r, NAME##_m, NAME##_vr, NAME##_vm                                           \
	}
#define FIRST INSN_CVTSI2SS
/* clang-format off */
static const struct row rows[] = {
    [INSN_CVTSI2SS - FIRST] = {S(cvtsl2ss), S(cvtsq2ss)},
    [INSN_CVTSI2SD - FIRST] = {S(cvtsl2sd), S(cvtsq2sd)},
    [INSN_CVTSS2SI - FIRST] = {P(cvtss2sl), P(cvtss2sq)},
    [INSN_CVTSD2SI - FIRST] = {P(cvtsd2sl), P(cvtsd2sq)},
    [INSN_CVTTSS2SI - FIRST] = {P(cvttss2sl), P(cvttss2sq)},
    [INSN_CVTTSD2SI - FIRST] = {P(cvttsd2sl), P(cvttsd2sq)},
    [INSN_CVTSS2SD - FIRST] = {S(cvtss2sd), {0}},
    [INSN_CVTSD2SS - FIRST] = {S(cvtsd2ss), {0}},
    [INSN_CVTPS2PD - FIRST] = {P(cvtps2pd), {0}},
    [INSN_CVTPD2PS - FIRST] = {P(cvtpd2ps), {0}},
    [INSN_CVTDQ2PS - FIRST] = {P(cvtdq2ps), {0}},
    [INSN_CVTDQ2PD - FIRST] = {P(cvtdq2pd), {0}},
    [INSN_CVTPS2DQ - FIRST] = {P(cvtps2dq), {0}},
    [INSN_CVTPD2DQ - FIRST] = {P(cvtpd2dq), {0}},
    [INSN_CVTTPS2DQ - FIRST] = {P(cvttps2dq), {0}},
    [INSN_CVTTPD2DQ - FIRST] = {P(cvttpd2dq), {0}},
    [INSN_VCVTPH2PS - FIRST] = {P(cvtph2ps), {0}},
    [INSN_VCVTPS2PH - FIRST] = {{cvtps2ph, cvtps2ph, cvtps2ph, cvtps2ph}, {0}},
};
/* clang-format on */

emu_fn *emu_fp_bind_cvt(const struct insn *in, struct emu_uop *u)
{
	unsigned form = (in->vex ? 2 : 0) + (in->has_mem ? 1 : 0);
	const struct row *row;
	bool wide = false;

	if (in->id < FIRST || in->id > INSN_VCVTPS2PH || in->nopnd < 2)
		return NULL;
	row = &rows[in->id - FIRST];
	emu_fp_operands(in, u);
	if (row->wide[0]) {
		/* the operand that is not a vector register or a float in memory */
		bool from_int = in->id == INSN_CVTSI2SS || in->id == INSN_CVTSI2SD;
		wide = in->opnd[from_int ? in->nopnd - 1 : 0].size == 8;
	}
	return wide ? row->wide[form] : row->fn[form];
}
