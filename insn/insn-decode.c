/*
 * Decoding one instruction: prefixes, the opcode's row, modrm memory operand, operands,
 * immediates, and what follows from them (register and flag use). Everything particular to
 * an opcode is in its row; see insn-table.h. Encoding rules: SDM vol. 2A, chapter 2.
 */
#include "insn/insn-table.h"
#include "format/error.h"

#include <string.h>

struct opnd_spec {
	uint8_t source, zreg, zmem;
};
static const struct opnd_spec opnd_specs[O_COUNT] = {
#define X(name, src, zr, zm) [name] = { src, zr, zm },
	INSN_OPNDS(X)
#undef X
};

struct flag_use {
	uint16_t r, w, u;
};
/* clang-format off */
static const struct flag_use flag_kinds[] = {
	[FL_NONE] = { 0, 0, 0 },
#define X(name, r, w, u) [FL_##name] = { r, w, u },
	INSN_FLAG_KINDS(X)
#undef X
};
/* clang-format on */
struct gpr_use {
	uint16_t r, w, f;
};
/* clang-format off */
static const struct gpr_use implicits[] = {
	[IM_NONE] = { 0, 0, 0 },
#define X(name, r, w, f) [IM_##name] = { r, w, f },
	INSN_IMPLICITS(X)
#undef X
};
/* clang-format on */
/* Flags that condition code cc reads, by cc >> 1. */
static const uint16_t cond_flags[8] = { F_O, F_C, F_Z,	     F_C | F_Z,
					F_S, F_P, F_S | F_O, F_Z | F_S | F_O };

/*
 * The index: for each encoding, map and opcode the rows to try, as a range of `order`.
 * Made once when the program starts (counting sort, so rows keep their order).
 */
#define ORDER_MAX 4096
static const struct insn_row *order[ORDER_MAX];
static uint16_t first_row[2][4][257];
static uint8_t has_modrm[2][4][256];
static enum dj_cpu_kind host;

static bool row_has_modrm(const struct insn_row *r)
{
	if (r->match & MATCH(0x7f, 0))
		return true;
	for (int i = 0; i < 5 && r->opnd[i]; i++) {
		switch (opnd_specs[r->opnd[i]].source) {
		case S_E:
		case S_M:
		case S_R:
		case S_G:
		case S_SEG:
		case S_CR:
		case S_V:
		case S_W:
		case S_U:
		case S_P:
		case S_Q:
		case S_N:
		case S_K:
		case S_KE:
		case S_STI:
		case S_VSIB:
			return true;
		}
	}
	return false;
}

__attribute__((constructor)) static void build_index(void)
{
	static const struct insn_table *const tables[] = {
		&insn_table_base,      &insn_table_x87,	      &insn_table_0f,
		&insn_table_sys,       &insn_table_sse,	      &insn_table_sse2,
		&insn_table_38,	       &insn_table_3a,	      &insn_table_opaque_0f,
		&insn_table_opaque_38, &insn_table_opaque_3a,
	};
	const size_t ntables = sizeof(tables) / sizeof(tables[0]);
	static uint16_t count[2][4][256], next[2][4][256];
	size_t total = 0;

	host = dj_cpu_host();
	for (int pass = 0; pass < 2; pass++) {
		for (size_t t = 0; t < ntables; t++) {
			for (size_t i = 0; i < tables[t]->n; i++) {
				const struct insn_row *r = &tables[t]->rows[i];
				for (int e = 0; e < 2; e++) {
					if (!(r->enc & (1 << e)))
						continue;
					for (int o = r->opcode; o < r->opcode + r->span; o++) {
						if (pass == 0)
							count[e][tables[t]->map][o]++;
						else
							order[next[e][tables[t]->map][o]++] = r;
						has_modrm[e][tables[t]->map][o] |= row_has_modrm(r);
					}
				}
			}
		}
		for (int e = 0; pass == 0 && e < 2; e++) {
			for (int m = 0; m < 4; m++) {
				for (int o = 0; o < 256; o++) {
					first_row[e][m][o] = next[e][m][o] = (uint16_t)total;
					total += count[e][m][o];
				}
				first_row[e][m][256] = (uint16_t)total;
			}
		}
		DJ_ASSERT(total <= ORDER_MAX, "opcode index: %zu rows", total);
	}
}

static uint64_t get_le(const uint8_t *p, unsigned size)
{
	uint64_t x = 0;
	for (unsigned i = 0; i < size; i++)
		x |= (uint64_t)p[i] << (8 * i);
	return x;
}

static int64_t get_sle(const uint8_t *p, unsigned size)
{
	unsigned shift = 64 - 8 * size;
	return (int64_t)(get_le(p, size) << shift) >> shift;
}

static unsigned size_bytes(const struct insn *in, unsigned z)
{
	static const uint8_t fixed[Z_COUNT] = {
		[Z_B] = 1,   [Z_W] = 2,	 [Z_D] = 4,  [Z_Q] = 8,	   [Z_DQ] = 16,
		[Z_QQ] = 32, [Z_T] = 10, [Z_S] = 10, [Z_64B] = 64,
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
	case Z_FX:
		return 512;
	case Z_XS:
		return 832;
	}
	return 0;
}

/* ---- register use ---------------------------------------------------------------- */

static void use_gpr(struct insn *in, unsigned reg, unsigned size, unsigned access, bool maybe)
{
	uint32_t bit = 1u << reg;

	if (access & INSN_R)
		in->gpr_read |= bit;
	if (access & INSN_W) {
		in->gpr_written |= bit;
		if (size >= 4 && !maybe)
			in->gpr_full |= bit;
		else
			in->gpr_read |= bit;
	}
}

static void implicit_gprs(struct insn *in, unsigned im)
{
	const struct gpr_use *g = &implicits[im];
	unsigned size = in->opsize;

	in->gpr_read |= g->r;
	in->gpr_written |= g->w;
	in->gpr_full |= g->f;
	switch (im) {
	case IM_MULDIV: /* rdx:rax, or ax for bytes */
		use_gpr(in, 0, size, INSN_RW, false);
		if (size > 1)
			use_gpr(in, 2, size,
				in->id == INSN_MUL || in->id == INSN_IMUL ? INSN_W : INSN_RW,
				false);
		break;
	case IM_CBW:
		use_gpr(in, 0, size, INSN_RW, false);
		break;
	case IM_CWD:
		in->gpr_read |= G_A;
		use_gpr(in, 2, size, INSN_W, false);
		break;
	case IM_LODS:
		use_gpr(in, 0, size, INSN_W, false);
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
static void flags_by_count(struct insn *in, unsigned kind)
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

static void flag_use(struct insn *in, unsigned kind)
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
	}
}

/* ---- operands -------------------------------------------------------------------- */

static void gpr_opnd(struct insn *in, struct insn_opnd *o, unsigned reg)
{
	o->kind = OPND_GPR;
	o->reg = (uint8_t)reg;
	if (o->size == 1 && !in->rex && !in->vex && reg >= 4 && reg < 8) {
		o->kind = OPND_GPR8H;
		o->reg = (uint8_t)(reg - 4);
	}
}

static void mem_opnd(struct insn *in, struct insn_opnd *o, unsigned size)
{
	o->kind = OPND_MEM;
	o->size = (uint16_t)size;
	in->mem_size = (uint16_t)size;
}

static void reg_opnd(struct insn_opnd *o, unsigned kind, unsigned reg)
{
	o->kind = (uint8_t)kind;
	o->reg = (uint8_t)reg;
}

/* Take an immediate of `size` bytes at *pos; false if the bytes end before it does. */
static bool take_imm(struct insn *in, unsigned *pos, unsigned n, unsigned size)
{
	if (*pos + size > n)
		return false;
	if (!in->imm_off) {
		in->imm_off = (uint8_t)*pos;
		in->imm_size = (uint8_t)size;
	}
	*pos += size;
	return true;
}

enum { TAKE_OK = 1, TAKE_SHORT = 0, TAKE_BAD = -1 };

static int take_opnd(struct insn *in, struct insn_opnd *o, const struct opnd_spec *s, unsigned *pos,
		     unsigned n)
{
	const bool is_reg = in->mod == 3;
	const uint8_t *at = in->bytes + *pos;

	o->size = (uint16_t)size_bytes(in, s->zreg);
	switch (s->source) {
	case S_E:
	case S_W:
	case S_Q:
	case S_KE:
		if (!is_reg)
			mem_opnd(in, o, size_bytes(in, s->zmem));
		else if (s->source == S_E)
			gpr_opnd(in, o, in->rm);
		else if (s->source == S_W)
			reg_opnd(o, OPND_VEC, in->rm);
		else
			reg_opnd(o, s->source == S_Q ? OPND_MMX : OPND_CR, in->rm & 7);
		return TAKE_OK;
	case S_M:
		if (is_reg)
			return TAKE_BAD;
		mem_opnd(in, o, size_bytes(in, s->zmem));
		return TAKE_OK;
	case S_R:
	case S_U:
	case S_N:
		if (!is_reg)
			return TAKE_BAD;
		if (s->source == S_R)
			gpr_opnd(in, o, in->rm);
		else if (s->source == S_U)
			reg_opnd(o, OPND_VEC, in->rm);
		else
			reg_opnd(o, OPND_MMX, in->rm & 7);
		return TAKE_OK;
	case S_VSIB:
		if (is_reg || !in->sib_off)
			return TAKE_BAD;
		o->kind = OPND_VSIB;
		o->reg = in->index;
		in->mem_size = (uint16_t)size_bytes(in, s->zmem);
		return TAKE_OK;
	case S_G:
		gpr_opnd(in, o, in->reg);
		return TAKE_OK;
	case S_B:
		gpr_opnd(in, o, in->vex_vvvv);
		return TAKE_OK;
	case S_Z:
		gpr_opnd(in, o, (in->opcode & 7u) | (in->rex & 1u) << 3);
		return TAKE_OK;
	case S_A:
		reg_opnd(o, OPND_GPR, 0);
		return TAKE_OK;
	case S_C:
		reg_opnd(o, OPND_GPR, 1);
		return TAKE_OK;
	case S_D:
		reg_opnd(o, OPND_GPR, 2);
		return TAKE_OK;
	case S_V:
		reg_opnd(o, OPND_VEC, in->reg);
		return TAKE_OK;
	case S_H:
		reg_opnd(o, OPND_VEC, in->vex_vvvv);
		return TAKE_OK;
	case S_XMM0:
		reg_opnd(o, OPND_VEC, 0);
		return TAKE_OK;
	case S_P:
		reg_opnd(o, OPND_MMX, in->reg & 7);
		return TAKE_OK;
	case S_ST0:
		reg_opnd(o, OPND_X87, 0);
		return TAKE_OK;
	case S_STI:
		reg_opnd(o, OPND_X87, in->modrm & 7);
		return TAKE_OK;
	case S_FS:
		reg_opnd(o, OPND_SEG, 4);
		return TAKE_OK;
	case S_GS:
		reg_opnd(o, OPND_SEG, 5);
		return TAKE_OK;
	case S_K:
		reg_opnd(o, OPND_CR, in->reg & 7);
		return TAKE_OK;
	case S_KH:
		reg_opnd(o, OPND_CR, in->vex_vvvv);
		return TAKE_OK;
	case S_CR:
		reg_opnd(o, OPND_CR, in->reg);
		return TAKE_OK;
	case S_SEG:
		reg_opnd(o, OPND_SEG, in->modrm >> 3 & 7);
		return o->reg > 5 ? TAKE_BAD : TAKE_OK;
	case S_ONE:
		o->kind = OPND_IMM;
		in->imm = 1;
		return TAKE_OK;
	case S_I:
	case S_SI:
		o->kind = OPND_IMM;
		if (!take_imm(in, pos, n, o->size))
			return TAKE_SHORT;
		in->imm = s->source == S_I ? (int64_t)get_le(at, o->size) : get_sle(at, o->size);
		return TAKE_OK;
	case S_I2:
		o->kind = OPND_IMM;
		if (!take_imm(in, pos, n, 1))
			return TAKE_SHORT;
		in->imm2 = *at;
		return TAKE_OK;
	case S_L:
		if (!take_imm(in, pos, n, 1))
			return TAKE_SHORT;
		in->imm = *at;
		reg_opnd(o, OPND_VEC, *at >> 4);
		return TAKE_OK;
	case S_J:
		o->kind = OPND_REL;
		if (!take_imm(in, pos, n, o->size))
			return TAKE_SHORT;
		in->imm = (int64_t)(in->addr + *pos + (uint64_t)get_sle(at, o->size));
		o->size = 8;
		return TAKE_OK;
	case S_O:
		in->disp_size = in->addr32 ? 4 : 8;
		if (*pos + in->disp_size > n)
			return TAKE_SHORT;
		in->disp_off = (uint8_t)*pos;
		in->disp = (int64_t)get_le(at, in->disp_size);
		*pos += in->disp_size;
		in->has_mem = true;
		in->base = in->index = INSN_NOREG;
		in->scale = 1;
		mem_opnd(in, o, size_bytes(in, s->zmem));
		return TAKE_OK;
	}
	return TAKE_BAD;
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

static int take_opnds(struct insn *in, const struct insn_row *row, unsigned *pos, unsigned n)
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
		vvvv |= s->source == S_H || s->source == S_B || s->source == S_KH;
		int r = take_opnd(in, o, s, pos, n);
		if (r != TAKE_OK)
			return r;
		o->access = (uint8_t)opnd_access(row->acc, i);
		if (o->kind >= OPND_IMM && o->kind != OPND_VSIB)
			o->access = INSN_R;
		k++;
	}
	in->nopnd = (uint8_t)k;
	if (in->vex && !vvvv && in->vex_vvvv)
		return TAKE_BAD;
	if (dropped)
		in->opnd[0].access |= INSN_R;

	for (unsigned i = 0; i < k; i++) {
		struct insn_opnd *o = &in->opnd[i];
		switch (o->kind) {
		case OPND_GPR:
		case OPND_GPR8H:
			use_gpr(in, o->reg, o->size, o->access,
				(row->attr & RA_CONDW) || o->kind == OPND_GPR8H);
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
			if (row->attr & INSN_A_NOACCESS)
				o->access = 0;
			in->mem_access = o->access;
			break;
		}
	}
	return TAKE_OK;
}

/* ---- modrm ----------------------------------------------------------------------- */

/* Read sib and displacement of a memory operand. `x`, `b`: the extension bits. */
static bool take_mem(struct insn *in, unsigned *pos, unsigned n, unsigned x, unsigned b, bool vsib)
{
	unsigned rm = in->modrm & 7;

	in->has_mem = true;
	in->index = INSN_NOREG;
	in->scale = 1;
	in->base = (uint8_t)(rm | b << 3);
	in->disp_size = in->mod == 1 ? 1 : in->mod == 2 ? 4 : 0;
	if (rm == 4) {
		if (*pos >= n)
			return false;
		in->sib_off = (uint8_t)*pos;
		in->sib = in->bytes[(*pos)++];
		in->scale = (uint8_t)(1u << (in->sib >> 6));
		in->index = (uint8_t)((in->sib >> 3 & 7) | x << 3);
		if (in->index == 4 && !vsib)
			in->index = INSN_NOREG;
		in->base = (uint8_t)((in->sib & 7) | b << 3);
		if ((in->sib & 7) == 5 && in->mod == 0) {
			in->base = INSN_NOREG;
			in->disp_size = 4;
		}
	} else if (rm == 5 && in->mod == 0) {
		in->base = INSN_RIP;
		in->disp_size = 4;
	}
	if (*pos + in->disp_size > n)
		return false;
	if (in->disp_size) {
		in->disp_off = (uint8_t)*pos;
		in->disp = get_sle(in->bytes + *pos, in->disp_size);
		*pos += in->disp_size;
	}
	return true;
}

static void address_regs(struct insn *in, bool vsib)
{
	if (!in->has_mem)
		return;
	if (in->base < 16)
		in->gpr_read |= 1u << in->base;
	if (in->index < 16 && !vsib)
		in->gpr_read |= 1u << in->index;
	if (in->base == INSN_RIP) {
		in->target = in->addr + in->len + (uint64_t)in->disp;
		if (in->addr32)
			in->target = (uint32_t)in->target;
	}
}

/* EVEX, XOP and 3DNow!: the length, and a memory operand as large as there is. They are
 * never emulated. Immediates: SDM vol. 2D table A, AMD64 APM vol. 6. */
static int finish_opaque(struct insn *in, unsigned id, unsigned pos, unsigned n, unsigned imm,
			 unsigned x, unsigned b)
{
	if (pos >= n)
		return TAKE_SHORT;
	in->modrm_off = (uint8_t)pos;
	in->modrm = in->bytes[pos++];
	in->mod = in->modrm >> 6;
	in->reg = in->modrm >> 3 & 7;
	in->rm = in->modrm & 7;
	in->id = (uint16_t)id;
	if (in->mod != 3) {
		if (!take_mem(in, &pos, n, x, b, id == INSN_EVEX))
			return TAKE_SHORT;
		in->mem_size = id == INSN_EVEX ? 64 : id == INSN_XOP ? 32 : 8;
		in->mem_access = INSN_RW;
	}
	if (imm && !take_imm(in, &pos, n, imm))
		return TAKE_SHORT;
	if (id == INSN_AMD3DNOW) /* its suffix is the opcode, but stays known as the immediate */
		in->attr = INSN_A_MMX;
	else
		in->attr = INSN_A_VEC;
	if (id != INSN_AMD3DNOW) { /* whatever it is */
		in->gpr_read = in->gpr_written = 0xffff & ~G_SP;
		in->flags_read = in->flags_written = F_ALL;
	}
	in->len = (uint8_t)pos;
	address_regs(in, id == INSN_EVEX);
	return TAKE_OK;
}

static int take_evex(struct insn *in, unsigned pos, unsigned n)
{
	if (pos + 5 > n)
		return TAKE_SHORT;
	const uint8_t *p = in->bytes + pos;
	unsigned map = p[1] & 7, opcode = p[4], imm = 0;

	if ((p[1] & 8) || !(p[2] & 4) || map == 0 || map == 4 || map == 7)
		return TAKE_BAD;
	in->vex = 4;
	in->rex_off = (uint8_t)pos;
	in->vex_w = p[2] >> 7;
	in->vex_pp = p[2] & 3;
	in->vex_l = p[3] >> 5 & 3;
	in->map = (uint8_t)(map < 4 ? map : map - 4);
	in->opcode = (uint8_t)opcode;
	in->opcode_off = (uint8_t)(pos + 4);
	if (map == 3 || (map == 1 && ((opcode >= 0x70 && opcode <= 0x73) || opcode == 0xc2 ||
				      (opcode >= 0xc4 && opcode <= 0xc6))))
		imm = 1;
	return finish_opaque(in, INSN_EVEX, pos + 5, n, imm, ~p[1] >> 6 & 1, ~p[1] >> 5 & 1);
}

static int take_xop(struct insn *in, unsigned pos, unsigned n)
{
	if (pos + 4 > n)
		return TAKE_SHORT;
	const uint8_t *p = in->bytes + pos;
	unsigned map = p[1] & 31;

	if (map > 10)
		return TAKE_BAD;
	in->vex = 3;
	in->rex_off = (uint8_t)pos;
	in->opcode = p[3];
	in->opcode_off = (uint8_t)(pos + 3);
	return finish_opaque(in, INSN_XOP, pos + 4, n,
			     map == 8	 ? 1
			     : map == 10 ? 4
					 : 0,
			     ~p[1] >> 6 & 1, ~p[1] >> 5 & 1);
}

/* ---- prefixes and opcode --------------------------------------------------------- */

/* Legacy prefixes and REX. A REX that is not right before the opcode does not count. */
static bool take_prefixes(struct insn *in, unsigned *pos, unsigned n)
{
	for (; *pos < n; (*pos)++) {
		uint8_t b = in->bytes[*pos];
		if ((b & 0xf0) == 0x40) {
			in->rex = b;
			in->rex_off = (uint8_t)*pos;
			continue;
		}
		switch (b) {
		case 0x66:
			in->opsize16 = true;
			break;
		case 0x67:
			in->addr32 = true;
			break;
		case 0xf0:
			in->lock = true;
			break;
		case 0xf2:
		case 0xf3:
			in->rep = b;
			break;
		case 0x64:
			in->seg = 4;
			break;
		case 0x65:
			in->seg = 5;
			break;
		case 0x26:
		case 0x2e:
		case 0x36:
		case 0x3e:
			break;
		default:
			return true;
		}
		in->rex = 0;
		in->rex_off = 0;
	}
	return false;
}

/* The VEX prefix at *pos; on return *pos is the opcode and rex has R, X, B and W as REX would. */
static int take_vex(struct insn *in, unsigned *pos, unsigned n, unsigned *rex)
{
	const uint8_t *p = in->bytes + *pos;
	unsigned last;

	in->vex = p[0] == 0xc5 ? 2 : 3;
	if (*pos + in->vex >= n)
		return TAKE_SHORT;
	if (in->rex || in->lock || in->rep || in->opsize16)
		return TAKE_BAD;
	in->rex_off = (uint8_t)*pos;
	last = p[in->vex - 1];
	*rex = (~p[1] & 0x80u) >> 5;
	in->map = 1;
	if (in->vex == 3) {
		*rex = (~p[1] & 0xe0u) >> 5;
		in->map = p[1] & 31;
		in->vex_w = p[2] >> 7;
		*rex |= in->vex_w << 3;
	}
	if (in->map < 1 || in->map > 3)
		return TAKE_BAD;
	in->vex_vvvv = ~last >> 3 & 15;
	in->vex_l = last >> 2 & 1;
	in->vex_pp = last & 3;
	*pos += in->vex;
	in->opcode_off = (uint8_t)*pos;
	in->opcode = in->bytes[(*pos)++];
	return TAKE_OK;
}

static int take_legacy_opcode(struct insn *in, unsigned *pos, unsigned n)
{
	in->opcode_off = (uint8_t)*pos;
	in->opcode = in->bytes[(*pos)++];
	if (in->opcode != 0x0f)
		return TAKE_OK;
	in->map = 1;
	if (*pos >= n)
		return TAKE_SHORT;
	in->opcode = in->bytes[(*pos)++];
	if (in->opcode != 0x38 && in->opcode != 0x3a)
		return TAKE_OK;
	in->map = in->opcode == 0x38 ? 2 : 3;
	if (*pos >= n)
		return TAKE_SHORT;
	in->opcode = in->bytes[(*pos)++];
	return TAKE_OK;
}

static void operand_size(struct insn *in, const struct insn_row *row, bool w)
{
	if (row->attr & RA_F64)
		in->opsize = 8;
	else if (w && !(row->attr & RA_NOW))
		in->opsize = 8;
	else if (in->opsize16)
		in->opsize = 2;
	else
		in->opsize = row->attr & RA_D64 ? 8 : 4;
	if (row->attr & RA_BYTE)
		in->opsize = 1;
}

/* What the row and the prefixes say of the whole instruction. */
static void attributes(struct insn *in, const struct insn_row *row)
{
	in->attr |= row->attr & RA_MASK;
	if (row->attr & RA_CC)
		in->cond = in->opcode & 15;
	if ((in->attr & INSN_A_STRING) && in->rep)
		in->attr |= INSN_A_REP;
	if (in->lock || (in->id == INSN_XCHG && in->has_mem))
		in->attr |= INSN_A_ATOMIC;
}

static int decode(struct insn *in, unsigned n)
{
	unsigned pos = 0, rex;
	int r;

	if (!take_prefixes(in, &pos, n))
		return TAKE_SHORT;
	uint8_t b0 = in->bytes[pos];
	if (b0 == 0x62 && (in->rex || in->lock || in->rep || in->opsize16))
		return TAKE_BAD;
	if (b0 == 0x62)
		return take_evex(in, pos, n);
	if (b0 == 0x8f && pos + 1 >= n)
		return TAKE_SHORT;
	if (b0 == 0x8f && (in->bytes[pos + 1] & 31) >= 8)
		return in->rex || in->lock || in->rep || in->opsize16 ? TAKE_BAD
								      : take_xop(in, pos, n);
	if (b0 == 0xc4 || b0 == 0xc5) {
		r = take_vex(in, &pos, n, &rex);
	} else {
		rex = in->rex & 15;
		r = take_legacy_opcode(in, &pos, n);
	}
	if (r != TAKE_OK)
		return r;
	if (!in->vex && in->map == 1 && in->opcode == 0x0f) {
		in->opcode_off = (uint8_t)(pos - 2);
		return finish_opaque(in, INSN_AMD3DNOW, pos, n, 1, rex >> 1 & 1, rex & 1);
	}

	const unsigned enc = in->vex != 0;
	unsigned at = first_row[enc][in->map][in->opcode];
	const unsigned end = in->opcode == 255 ? first_row[enc][in->map][256]
					       : first_row[enc][in->map][in->opcode + 1];
	if (at == end)
		return TAKE_BAD;

	bool w = rex >> 3 & 1;
	unsigned pp = in->vex ? in->vex_pp : in->rep ? (in->rep == 0xf3 ? 2 : 3) : in->opsize16;
	unsigned key = w << 7 | in->vex_l << 8 | pp << 9 | (in->opsize16 && !w) << 11 |
		       (rex & 1) << 12 | (in->cpu == DJ_CPU_AMD) << 13;
	if (has_modrm[enc][in->map][in->opcode]) {
		if (pos >= n)
			return TAKE_SHORT;
		in->modrm_off = (uint8_t)pos;
		in->modrm = in->bytes[pos++];
		in->mod = in->modrm >> 6;
		in->reg = (in->modrm >> 3 & 7) | (rex & 4) << 1;
		in->rm = (in->modrm & 7) | (rex & 1) << 3;
		key |= (in->modrm >> 3 & 7) | (in->mod == 3) << 3 | (in->modrm & 7) << 4;
	}
	const struct insn_row *row;
	for (;; at++) {
		if (at == end)
			return TAKE_BAD;
		row = order[at];
		if ((key & row->match >> 16) == (row->match & 0xffff))
			break;
	}
	if (row->id == INSN_INVALID)
		return TAKE_BAD;
	if (row->attr & RA_MOD3)
		in->mod = 3;
	const bool vsib = opnd_specs[row->opnd[1]].source == S_VSIB;
	if (in->modrm_off && in->mod != 3 && !take_mem(in, &pos, n, rex >> 1 & 1, rex & 1, vsib))
		return TAKE_SHORT;
	in->id = row->id;
	operand_size(in, row, w);
	attributes(in, row);
	r = take_opnds(in, row, &pos, n);
	if (r != TAKE_OK)
		return r;
	in->len = (uint8_t)pos;
	if (in->opnd[0].kind && in->opnd[0].size && in->opnd[0].size <= 8 &&
	    (in->opnd[0].kind <= OPND_GPR8H || in->opnd[0].kind == OPND_MEM) &&
	    !(in->attr & INSN_A_NOACCESS))
		in->opsize = in->opnd[0].size == 10 ? in->opsize : (uint8_t)in->opnd[0].size;
	if (row->attr & INSN_A_NOACCESS)
		in->mem_size = 0;
	if (!in->mem_size)
		in->mem_access = 0;
	address_regs(in, vsib);
	implicit_gprs(in, row->implicit);
	flag_use(in, row->flags);
	return TAKE_OK;
}

int insn_decode(struct insn *out, const uint8_t *code, size_t avail, uint64_t addr)
{
	return insn_decode_as(host, out, code, avail, addr);
}

int insn_decode_as(enum dj_cpu_kind cpu, struct insn *out, const uint8_t *code, size_t avail,
		   uint64_t addr)
{
	unsigned n = avail < INSN_MAX ? (unsigned)avail : INSN_MAX;

	memset(out, 0, sizeof(*out));
	out->addr = addr;
	out->cpu = (uint8_t)cpu;
	out->base = out->index = INSN_NOREG;
	memcpy(out->bytes, code, n);
	int r = decode(out, n);
	if (r == TAKE_SHORT && avail < INSN_MAX) {
		out->id = INSN_INVALID;
		return 0;
	}
	if (r != TAKE_OK) {
		out->id = INSN_INVALID;
		out->len = (uint8_t)n;
		return -1;
	}
	memset(out->bytes + out->len, 0, sizeof(out->bytes) - out->len);
	return out->len;
}
