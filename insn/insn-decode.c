/*
 * Decoding one instruction, from front to back: prefixes, the opcode's row, the memory operand
 * of the modrm byte, then what the other parts make of it (insn-parts.h). Everything particular
 * to an opcode is in its row; see insn-table.h. Encoding rules: SDM vol. 2A, chapter 2.
 */
#include "insn/insn-parts.h"

#include <string.h>

static enum dj_cpu_kind host;

__attribute__((constructor)) static void find_host(void)
{
	host = dj_cpu_host();
}

/* ---- modrm ----------------------------------------------------------------------- */

bool insn_take_modrm(struct insn *in, struct insn_at *at, unsigned rex)
{
	if (at->pos >= at->n)
		return false;
	in->modrm_off = (uint8_t)at->pos;
	in->modrm = in->bytes[at->pos++];
	in->mod = in->modrm >> 6;
	in->reg = (in->modrm >> 3 & 7) | (rex & 4) << 1;
	in->rm = (in->modrm & 7) | (rex & 1) << 3;
	return true;
}

bool insn_take_mem(struct insn *in, struct insn_at *at, unsigned rex, bool vsib)
{
	unsigned rm = in->modrm & 7, x = rex >> 1 & 1, b = rex & 1;

	in->has_mem = true;
	in->index = INSN_NOREG;
	in->scale = 1;
	in->base = (uint8_t)(rm | b << 3);
	in->disp_size = in->mod == 1 ? 1 : in->mod == 2 ? 4 : 0;
	if (rm == 4) {
		if (at->pos >= at->n)
			return false;
		in->sib_off = (uint8_t)at->pos;
		in->sib = in->bytes[at->pos++];
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
	if (at->pos + in->disp_size > at->n)
		return false;
	if (in->disp_size) {
		in->disp_off = (uint8_t)at->pos;
		in->disp = insn_get_sle(in->bytes + at->pos, in->disp_size);
		at->pos += in->disp_size;
	}
	return true;
}

void insn_address_regs(struct insn *in, bool vsib)
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

/* ---- prefixes and opcode --------------------------------------------------------- */

/* Legacy prefixes and REX. A REX that is not right before the opcode does not count. */
static bool take_prefixes(struct insn *in, struct insn_at *at)
{
	for (; at->pos < at->n; at->pos++) {
		uint8_t b = in->bytes[at->pos];
		if ((b & 0xf0) == 0x40) {
			in->rex = b;
			in->rex_off = (uint8_t)at->pos;
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

/* Whether there are prefixes that VEX, EVEX and XOP do not go with (SDM vol. 2A, 2.3.2 and 2.3.3).
 */
static bool has_legacy_prefixes(const struct insn *in)
{
	return in->rex || in->lock || in->rep || in->opsize16;
}

/* The VEX prefix and the opcode; rex gets R, X, B and W as REX would have them. */
static int take_vex(struct insn *in, struct insn_at *at, unsigned *rex)
{
	const uint8_t *p = in->bytes + at->pos;
	unsigned last;

	in->vex = p[0] == 0xc5 ? 2 : 3;
	if (at->pos + in->vex >= at->n)
		return INSN_TAKE_SHORT;
	if (has_legacy_prefixes(in))
		return INSN_TAKE_BAD;
	in->rex_off = (uint8_t)at->pos;
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
		return INSN_TAKE_BAD;
	in->vex_vvvv = ~last >> 3 & 15;
	in->vex_l = last >> 2 & 1;
	in->vex_pp = last & 3;
	at->pos += in->vex;
	in->opcode_off = (uint8_t)at->pos;
	in->opcode = in->bytes[at->pos++];
	return INSN_TAKE_OK;
}

static int take_legacy_opcode(struct insn *in, struct insn_at *at)
{
	in->opcode_off = (uint8_t)at->pos;
	in->opcode = in->bytes[at->pos++];
	if (in->opcode != 0x0f)
		return INSN_TAKE_OK;
	in->map = 1;
	if (at->pos >= at->n)
		return INSN_TAKE_SHORT;
	in->opcode = in->bytes[at->pos++];
	if (in->opcode != 0x38 && in->opcode != 0x3a)
		return INSN_TAKE_OK;
	in->map = in->opcode == 0x38 ? 2 : 3;
	if (at->pos >= at->n)
		return INSN_TAKE_SHORT;
	in->opcode = in->bytes[at->pos++];
	return INSN_TAKE_OK;
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

/* What rows are matched against; MATCH in insn-table.h says which bit is what. */
static unsigned row_key(const struct insn *in, unsigned rex, bool has_modrm)
{
	bool w = rex >> 3 & 1;
	unsigned pp = in->vex ? in->vex_pp : in->rep ? (in->rep == 0xf3 ? 2 : 3) : in->opsize16;
	unsigned key = w << 7 | in->vex_l << 8 | pp << 9 | (in->opsize16 && !w) << 11 |
		       (rex & 1) << 12 | (in->cpu == DJ_CPU_AMD) << 13;

	if (has_modrm)
		key |= (in->modrm >> 3 & 7) | (in->mod == 3) << 3 | (in->modrm & 7) << 4;
	return key;
}

/* The row that fits; it takes the modrm byte to tell. */
static int take_row(struct insn *in, struct insn_at *at, unsigned rex, const struct insn_row **row)
{
	const struct insn_slot *slot = insn_slot(in->vex != 0, in->map, in->opcode);

	if (!slot->nrows)
		return INSN_TAKE_BAD;
	if (slot->has_modrm && !insn_take_modrm(in, at, rex))
		return INSN_TAKE_SHORT;
	const unsigned key = row_key(in, rex, slot->has_modrm);
	for (unsigned i = 0; i < slot->nrows; i++) {
		*row = slot->row[i];
		if ((key & (*row)->match >> 16) == ((*row)->match & 0xffff))
			return (*row)->id == INSN_INVALID ? INSN_TAKE_BAD : INSN_TAKE_OK;
	}
	return INSN_TAKE_BAD;
}

/* Everything behind the opcode. */
static int take_rest(struct insn *in, struct insn_at *at, unsigned rex, const struct insn_row *row)
{
	const bool vsib = insn_opnd_is_vsib(row->opnd[1]);

	if (row->attr & RA_MOD3)
		in->mod = 3;
	if (in->modrm_off && in->mod != 3 && !insn_take_mem(in, at, rex, vsib))
		return INSN_TAKE_SHORT;
	in->id = row->id;
	operand_size(in, row, rex >> 3 & 1);
	attributes(in, row);
	int r = insn_take_opnds(in, row, at);
	if (r != INSN_TAKE_OK)
		return r;
	in->len = (uint8_t)at->pos;
	const struct insn_opnd *first = &in->opnd[0];
	if (first->size && first->size <= 8 && !(in->attr & INSN_A_NOACCESS) &&
	    (first->kind == OPND_GPR || first->kind == OPND_GPR8H || first->kind == OPND_MEM))
		in->opsize = (uint8_t)first->size;
	if (row->attr & INSN_A_NOACCESS)
		in->mem_size = 0;
	if (!in->mem_size)
		in->mem_access = 0;
	insn_address_regs(in, vsib);
	if (row->implicit != IM_NONE)
		insn_use_implicit(in, row->implicit);
	if (row->flags != FL_NONE)
		insn_use_flags(in, row->flags);
	return INSN_TAKE_OK;
}

static int decode(struct insn *in, struct insn_at *at)
{
	const struct insn_row *row;
	unsigned rex;
	int r;

	if (!take_prefixes(in, at))
		return INSN_TAKE_SHORT;
	const uint8_t *p = in->bytes + at->pos;
	if (p[0] == 0x62)
		return has_legacy_prefixes(in) ? INSN_TAKE_BAD : insn_take_evex(in, at);
	if (p[0] == 0x8f && at->pos + 1 >= at->n)
		return INSN_TAKE_SHORT;
	if (p[0] == 0x8f && (p[1] & 31) >= 8)
		return has_legacy_prefixes(in) ? INSN_TAKE_BAD : insn_take_xop(in, at);
	if (p[0] == 0xc4 || p[0] == 0xc5) {
		r = take_vex(in, at, &rex);
	} else {
		rex = in->rex & 15;
		r = take_legacy_opcode(in, at);
	}
	if (r != INSN_TAKE_OK)
		return r;
	if (!in->vex && in->map == 1 && in->opcode == 0x0f)
		return insn_take_3dnow(in, at, rex);
	r = take_row(in, at, rex, &row);
	return r == INSN_TAKE_OK ? take_rest(in, at, rex, row) : r;
}

void insn_follow(enum dj_cpu_kind cpu)
{
	host = cpu;
}

int insn_decode(struct insn *out, const uint8_t *code, size_t avail, uint64_t addr)
{
	return insn_decode_as(host, out, code, avail, addr);
}

int insn_decode_as(enum dj_cpu_kind cpu, struct insn *out, const uint8_t *code, size_t avail,
		   uint64_t addr)
{
	struct insn_at at = { .n = avail < INSN_MAX ? (unsigned)avail : INSN_MAX };

	memset(out, 0, sizeof(*out));
	out->addr = addr;
	out->cpu = cpu == DJ_CPU_INTEL ? DJ_CPU_INTEL : DJ_CPU_AMD;
	out->base = out->index = INSN_NOREG;
	memcpy(out->bytes, code, at.n);
	int r = decode(out, &at);
	if (r == INSN_TAKE_SHORT && avail < INSN_MAX) {
		out->id = INSN_INVALID;
		return 0;
	}
	if (r != INSN_TAKE_OK) {
		out->id = INSN_INVALID;
		out->len = (uint8_t)at.n;
		return -1;
	}
	if (cpu == DJ_CPU_AMD_KEEPS && (out->id == INSN_BSF || out->id == INSN_BSR))
		insn_use_flags(out, FL_ZF);
	memset(out->bytes + out->len, 0, sizeof(out->bytes) - out->len);
	return out->len;
}
