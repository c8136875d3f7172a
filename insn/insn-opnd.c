/*
 * The operands that a row names: from which bits of the instruction each is taken, how wide it
 * is, and what the instruction does to it.
 */
#include "insn/insn-parts.h"

static const struct opnd_spec {
	uint8_t source, zreg, zmem;
} opnd_specs[O_COUNT] = {
#define X(name, src, zr, zm) [name] = { src, zr, zm },
	INSN_OPNDS(X)
#undef X
};

/* Where the number of a register is, and what modrm.mod must be for the operand to be one. */
enum field { FIELD_FIXED, FIELD_OPCODE, FIELD_REG, FIELD_RM, FIELD_VVVV };
enum form {
	FORM_ANY,    /* mod does not matter */
	FORM_EITHER, /* memory unless mod is 3 */
	FORM_MEM,    /* memory; mod must not be 3 */
	FORM_REG,    /* a register; mod must be 3 */
	FORM_OTHER,  /* not a register, and memory by a way of its own: take_other() */
};
static const struct source {
	uint8_t form, kind, field, number; /* the field's bits that count, or the register */
} sources[] = {
	/* clang-format off */
	[S_E] = { FORM_EITHER, OPND_GPR, FIELD_RM, 15 },
	[S_W] = { FORM_EITHER, OPND_VEC, FIELD_RM, 15 },
	[S_Q] = { FORM_EITHER, OPND_MMX, FIELD_RM, 7 },
	[S_KE] = { FORM_EITHER, OPND_CR, FIELD_RM, 7 },
	[S_M] = { FORM_MEM },
	[S_R] = { FORM_REG, OPND_GPR, FIELD_RM, 15 },
	[S_U] = { FORM_REG, OPND_VEC, FIELD_RM, 15 },
	[S_N] = { FORM_REG, OPND_MMX, FIELD_RM, 7 },
	[S_G] = { FORM_ANY, OPND_GPR, FIELD_REG, 15 },
	[S_V] = { FORM_ANY, OPND_VEC, FIELD_REG, 15 },
	[S_P] = { FORM_ANY, OPND_MMX, FIELD_REG, 7 },
	[S_K] = { FORM_ANY, OPND_CR, FIELD_REG, 7 },
	[S_CR] = { FORM_ANY, OPND_CR, FIELD_REG, 15 },
	[S_SEG] = { FORM_ANY, OPND_SEG, FIELD_REG, 7 },
	[S_STI] = { FORM_ANY, OPND_X87, FIELD_RM, 7 },
	[S_B] = { FORM_ANY, OPND_GPR, FIELD_VVVV, 15 },
	[S_H] = { FORM_ANY, OPND_VEC, FIELD_VVVV, 15 },
	[S_KH] = { FORM_ANY, OPND_CR, FIELD_VVVV, 15 },
	[S_Z] = { FORM_ANY, OPND_GPR, FIELD_OPCODE },
	[S_A] = { FORM_ANY, OPND_GPR, FIELD_FIXED, 0 },
	[S_C] = { FORM_ANY, OPND_GPR, FIELD_FIXED, 1 },
	[S_D] = { FORM_ANY, OPND_GPR, FIELD_FIXED, 2 },
	[S_XMM0] = { FORM_ANY, OPND_VEC, FIELD_FIXED, 0 },
	[S_ST0] = { FORM_ANY, OPND_X87, FIELD_FIXED, 0 },
	[S_FS] = { FORM_ANY, OPND_SEG, FIELD_FIXED, 4 },
	[S_GS] = { FORM_ANY, OPND_SEG, FIELD_FIXED, 5 },
	[S_ONE] = { FORM_OTHER }, [S_I] = { FORM_OTHER }, [S_SI] = { FORM_OTHER },
	[S_I2] = { FORM_OTHER }, [S_J] = { FORM_OTHER }, [S_L] = { FORM_OTHER },
	[S_O] = { FORM_OTHER }, [S_VSIB] = { FORM_OTHER },
	/* clang-format on */
};

bool insn_opnd_is_vsib(unsigned opnd)
{
	return opnd_specs[opnd].source == S_VSIB;
}

bool insn_opnd_has_modrm(unsigned opnd)
{
	const struct source *src = &sources[opnd_specs[opnd].source];

	return src->form == FORM_EITHER || src->form == FORM_MEM || src->form == FORM_REG ||
	       src->field == FIELD_REG || src->field == FIELD_RM || insn_opnd_is_vsib(opnd);
}

static unsigned size_bytes(const struct insn *in, unsigned z)
{
	static const uint16_t fixed[Z_COUNT] = {
		[Z_B] = 1,  [Z_W] = 2,	[Z_D] = 4,    [Z_Q] = 8,    [Z_DQ] = 16,  [Z_QQ] = 32,
		[Z_T] = 10, [Z_S] = 10, [Z_64B] = 64, [Z_FX] = 512, [Z_XS] = 832,
	};
	unsigned x = in->vex_l ? 32 : 16;

	if (fixed[z])
		return fixed[z];
	switch (z) {
	case Z_V:
		return in->opsize;
	case Z_Z:
		return in->opsize == 2 ? 2 : 4;
	case Z_Y:
		return in->opsize == 8 ? 8 : 4;
	case Z_X:
		return x;
	case Z_XH:
		return x / 2;
	case Z_XQ:
		return x / 4;
	case Z_XE:
		return x / 8;
	case Z_DDUP:
		return in->vex_l ? 32 : 8;
	case Z_P:
		return in->opsize + 2u;
	case Z_ENV:
		return in->opsize == 2 ? 14 : 28;
	case Z_SAVE:
		return in->opsize == 2 ? 94 : 108;
	}
	return 0;
}

static int mem_opnd(struct insn *in, struct insn_opnd *o, unsigned size)
{
	o->kind = OPND_MEM;
	o->size = (uint16_t)size;
	in->mem_size = (uint16_t)size;
	return INSN_TAKE_OK;
}

static int reg_opnd(const struct insn *in, struct insn_opnd *o, const struct source *src)
{
	unsigned reg = src->number;

	switch (src->field) {
	case FIELD_OPCODE:
		reg = (in->opcode & 7u) | (in->rex & 1u) << 3;
		break;
	case FIELD_REG:
		reg &= in->reg;
		break;
	case FIELD_RM:
		reg &= in->rm;
		break;
	case FIELD_VVVV:
		reg &= in->vex_vvvv;
		break;
	}
	o->kind = src->kind;
	if (o->kind == OPND_GPR && o->size == 1 && !in->rex && !in->vex && reg >= 4 && reg < 8) {
		o->kind = OPND_GPR8H;
		reg -= 4;
	}
	o->reg = (uint8_t)reg;
	return o->kind == OPND_SEG && reg > 5 ? INSN_TAKE_BAD : INSN_TAKE_OK;
}

/* An address of 4 or 8 bytes instead of a modrm operand (mov al, [moffs]). */
static int moffs_opnd(struct insn *in, struct insn_opnd *o, unsigned size, struct insn_at *at)
{
	in->disp_size = in->addr32 ? 4 : 8;
	if (at->pos + in->disp_size > at->n)
		return INSN_TAKE_SHORT;
	in->disp_off = (uint8_t)at->pos;
	in->disp = (int64_t)insn_get_le(in->bytes + at->pos, in->disp_size);
	at->pos += in->disp_size;
	in->has_mem = true;
	in->base = in->index = INSN_NOREG;
	in->scale = 1;
	return mem_opnd(in, o, size);
}

/* Immediates, branch targets, moffs, a gather's memory. */
static int take_other(struct insn *in, struct insn_opnd *o, const struct opnd_spec *s,
		      struct insn_at *at)
{
	const uint8_t *p = in->bytes + at->pos;

	o->kind = OPND_IMM;
	switch (s->source) {
	case S_ONE:
		in->imm = 1;
		return INSN_TAKE_OK;
	case S_VSIB:
		if (in->mod == 3 || !in->sib_off)
			return INSN_TAKE_BAD;
		o->kind = OPND_VSIB;
		o->reg = in->index;
		in->mem_size = (uint16_t)size_bytes(in, s->zmem);
		return INSN_TAKE_OK;
	case S_O:
		return moffs_opnd(in, o, size_bytes(in, s->zmem), at);
	}

	unsigned size = s->source == S_I2 || s->source == S_L ? 1 : o->size;
	if (!insn_take_imm(in, at, size))
		return INSN_TAKE_SHORT;
	switch (s->source) {
	case S_I:
		in->imm = (int64_t)insn_get_le(p, size);
		break;
	case S_SI:
		in->imm = insn_get_sle(p, size);
		break;
	case S_I2:
		in->imm2 = *p;
		break;
	case S_L:
		in->imm = *p;
		o->kind = OPND_VEC;
		o->reg = *p >> 4;
		break;
	case S_J:
		in->imm = (int64_t)(in->addr + at->pos + (uint64_t)insn_get_sle(p, size));
		o->kind = OPND_REL;
		o->size = 8;
		break;
	}
	return INSN_TAKE_OK;
}

static int take_opnd(struct insn *in, struct insn_opnd *o, const struct opnd_spec *s,
		     struct insn_at *at)
{
	const struct source *src = &sources[s->source];
	const bool is_reg = in->mod == 3;

	o->size = (uint16_t)size_bytes(in, s->zreg);
	switch (src->form) {
	case FORM_EITHER:
		if (!is_reg)
			return mem_opnd(in, o, size_bytes(in, s->zmem));
		break;
	case FORM_MEM:
		return is_reg ? INSN_TAKE_BAD : mem_opnd(in, o, size_bytes(in, s->zmem));
	case FORM_REG:
		if (!is_reg)
			return INSN_TAKE_BAD;
		break;
	case FORM_OTHER:
		return take_other(in, o, s, at);
	}
	return reg_opnd(in, o, src);
}

static unsigned opnd_access(unsigned acc, unsigned i)
{
	switch (acc) {
	case ACC_W:
		return i == 0 ? INSN_W : INSN_R;
	case ACC_RW:
		return i == 0 ? INSN_RW : INSN_R;
	case ACC_XX:
		return i < 2 ? INSN_RW : INSN_R;
	case ACC_WW:
		return i < 2 ? INSN_W : INSN_R;
	case ACC_GATHER:
		return i == 0 || i == 2 ? INSN_RW : INSN_R;
	case ACC_N:
		return 0;
	}
	return INSN_R;
}

/* What an operand means for the instruction as a whole. */
static void note_use(struct insn *in, struct insn_opnd *o, uint32_t row_attr)
{
	switch (o->kind) {
	case OPND_GPR:
	case OPND_GPR8H:
		insn_use_gpr(in, o->reg, o->size, o->access,
			     (row_attr & RA_CONDW) || o->kind == OPND_GPR8H);
		break;
	case OPND_VEC:
		in->attr |= INSN_A_VEC;
		break;
	case OPND_MMX:
		in->attr |= INSN_A_MMX;
		break;
	case OPND_X87:
		in->attr |= INSN_A_X87;
		break;
	case OPND_VSIB:
		in->attr |= INSN_A_VEC; /* fallthrough */
	case OPND_MEM:
		if (row_attr & INSN_A_NOACCESS)
			o->access = 0;
		in->mem_access = o->access;
		break;
	}
}

int insn_take_opnds(struct insn *in, const struct insn_row *row, struct insn_at *at)
{
	bool dropped = false, vvvv = false;
	unsigned k = 0;

	for (unsigned i = 0; i < 5 && row->opnd[i]; i++) {
		const struct opnd_spec *s = &opnd_specs[row->opnd[i]];
		struct insn_opnd *o = &in->opnd[k];
		if (s->source == S_H && !in->vex) {
			dropped = true;
			continue;
		}
		vvvv |= sources[s->source].field == FIELD_VVVV;
		int r = take_opnd(in, o, s, at);
		if (r != INSN_TAKE_OK)
			return r;
		o->access = (uint8_t)opnd_access(row->acc, i);
		if (o->kind == OPND_IMM || o->kind == OPND_REL)
			o->access = INSN_R;
		k++;
	}
	in->nopnd = (uint8_t)k;
	if (in->vex && !vvvv && in->vex_vvvv)
		return INSN_TAKE_BAD;
	if (dropped)
		in->opnd[0].access |= INSN_R;
	for (unsigned i = 0; i < k; i++)
		note_use(in, &in->opnd[i], row->attr);
	return INSN_TAKE_OK;
}
