/*
 * Which registers and flags an instruction uses beyond its operands: what its row says, and
 * where operand size or a shift's count decide, what follows from those.
 */
#include "insn/insn-parts.h"

/* clang-format off */
static const struct flag_use {
	uint16_t r, w, u; /* read, written, undefined */
} flag_kinds[] = {
	[FL_NONE] = { 0, 0, 0 },
#define X(name, r, w, u) [FL_##name] = { r, w, u },
	INSN_FLAG_KINDS(X)
#undef X
};

static const struct gpr_use {
	uint16_t r, w, f; /* read, written, written in full */
} implicits[] = {
	[IM_NONE] = { 0, 0, 0 },
#define X(name, r, w, f) [IM_##name] = { r, w, f },
	INSN_IMPLICITS(X)
#undef X
};

/* Flags that condition code cc reads, by cc >> 1. */
static const uint16_t cond_flags[8] = {
	F_O, F_C, F_Z, F_C | F_Z, F_S, F_P, F_S | F_O, F_Z | F_S | F_O,
};
/* clang-format on */

void insn_use_implicit(struct insn *in, enum insn_implicit im)
{
	const struct gpr_use *g = &implicits[im];
	unsigned size = in->opsize;

	in->gpr_read |= g->r;
	in->gpr_written |= g->w;
	in->gpr_full |= g->f;
	switch (im) {
	case IM_MULDIV: /* rdx:rax, or ax for bytes */
		insn_use_gpr(in, 0, size, INSN_RW, false);
		if (size > 1)
			insn_use_gpr(in, 2, size,
				     in->id == INSN_MUL || in->id == INSN_IMUL ? INSN_W : INSN_RW,
				     false);
		break;
	case IM_CBW:
		insn_use_gpr(in, 0, size, INSN_RW, false);
		break;
	case IM_CWD:
		in->gpr_read |= G_A;
		insn_use_gpr(in, 2, size, INSN_W, false);
		break;
	case IM_LODS:
		insn_use_gpr(in, 0, size, INSN_W, false);
		break;
	default:
		break;
	}
	if (in->attr & INSN_A_REP) { /* a zero count changes nothing */
		in->gpr_read |= G_C | in->gpr_written;
		in->gpr_written |= G_C;
		in->gpr_full = 0;
	}
}

/* Shift and rotate counts decide what happens to the flags (SDM vol. 2B, SAL/SAR/SHL/SHR,
 * RCL/RCR/ROL/ROR; SHLD, SHRD): none for a masked count of 0; OF only for a count of 1; CF is
 * not defined if a shift is by more than the operand's width. */
static void flags_by_count(struct insn *in, enum insn_flag_kind kind)
{
	const struct insn_opnd *o = &in->opnd[in->nopnd - 1];
	unsigned bits = in->opsize * 8u;

	if (o->kind == OPND_GPR) {
		in->flags_undefined |= F_O;
		if ((kind == FL_SHIFT && bits < 32 && in->id != INSN_SAR) ||
		    (kind == FL_SHD && bits < 32))
			in->flags_undefined |= kind == FL_SHD ? F_ALL : F_C;
		in->attr |= INSN_A_FLAGSCOND;
		in->flags_read |= in->flags_written;
		return;
	}
	unsigned count = (unsigned)in->imm & (in->opsize == 8 ? 63 : 31);
	if (count == 0) {
		in->flags_read = in->flags_written = in->flags_undefined = 0;
		return;
	}
	if (count != 1)
		in->flags_undefined |= F_O;
	if (kind == FL_SHIFT && count > bits && in->id != INSN_SAR)
		in->flags_undefined |= F_C;
	if (kind == FL_SHD && count > bits)
		in->flags_undefined |= F_ALL;
}

void insn_use_flags(struct insn *in, enum insn_flag_kind kind)
{
	const struct flag_use *f = &flag_kinds[kind];

	in->flags_read = f->r;
	in->flags_written = f->w;
	in->flags_undefined = f->u;
	switch (kind) {
	case FL_SHIFT:
	case FL_SHD:
	case FL_ROT:
	case FL_RC:
		flags_by_count(in, kind);
		break;
	case FL_COND:
		in->flags_read = cond_flags[in->cond >> 1];
		break;
	case FL_CMPS:
		if (in->attr & INSN_A_REP) {
			in->attr |= INSN_A_FLAGSCOND;
			in->flags_read |= in->flags_written;
		}
		break;
	default:
		break;
	}
}
