/*
 * EVEX, XOP and 3DNow!: encodings of which the decoder knows the length and the memory operand
 * (insn-evex.c), and no more. They are never emulated.
 *
 * Immediates: SDM vol. 2D table A, AMD64 APM vol. 6.
 */
#include "insn/insn-parts.h"

/* What follows the opcode: modrm, memory operand and an immediate of `imm` bytes. */
static int finish(struct insn *in, enum insn_id id, struct insn_at *at, unsigned imm, unsigned rex)
{
	if (!insn_take_modrm(in, at, 0))
		return INSN_TAKE_SHORT;
	in->id = (uint16_t)id;
	const bool gather = id == INSN_EVEX && insn_evex_is_gather(in);
	if (in->mod != 3) {
		if (!insn_take_mem(in, at, rex, gather))
			return INSN_TAKE_SHORT;
		in->mem_size = 8;
		in->mem_access = INSN_R;
		if (id == INSN_EVEX)
			insn_evex_memory(in);
		else if (id == INSN_XOP)
			insn_xop_memory(in);
	}
	if (imm && !insn_take_imm(in, at, imm))
		return INSN_TAKE_SHORT;
	if (id == INSN_AMD3DNOW) {
		in->attr = INSN_A_MMX;
	} else {
		in->attr = INSN_A_VEC;
		in->gpr_read = in->gpr_written = 0xffff & ~G_SP;
		in->flags_read = in->flags_written = F_ALL;
	}
	in->len = (uint8_t)at->pos;
	insn_address_regs(in, gather);
	return INSN_TAKE_OK;
}

/* X and B are stored inverted in the second byte of EVEX and XOP. */
static unsigned extension_bits(uint8_t second)
{
	return (~second & 0x60u) >> 5;
}

int insn_take_evex(struct insn *in, struct insn_at *at)
{
	if (at->pos + 5 > at->n)
		return INSN_TAKE_SHORT;
	const uint8_t *p = in->bytes + at->pos;
	unsigned map = p[1] & 7, opcode = p[4], imm = 0;

	if ((p[1] & 8) || !(p[2] & 4) || map == 0 || map == 4 || map == 7)
		return INSN_TAKE_BAD;
	in->vex = 4;
	in->rex_off = (uint8_t)at->pos;
	in->vex_w = p[2] >> 7;
	in->vex_pp = p[2] & 3;
	in->vex_l = p[3] >> 5 & 3;
	in->map = (uint8_t)(map < 4 ? map : map - 4);
	in->opcode = (uint8_t)opcode;
	in->opcode_off = (uint8_t)(at->pos + 4);
	if (map == 3 || (map == 1 && ((opcode >= 0x70 && opcode <= 0x73) || opcode == 0xc2 ||
				      (opcode >= 0xc4 && opcode <= 0xc6))))
		imm = 1;
	at->pos += 5;
	return finish(in, INSN_EVEX, at, imm, extension_bits(p[1]));
}

int insn_take_xop(struct insn *in, struct insn_at *at)
{
	if (at->pos + 4 > at->n)
		return INSN_TAKE_SHORT;
	const uint8_t *p = in->bytes + at->pos;
	unsigned map = p[1] & 31;

	if (map > 10)
		return INSN_TAKE_BAD;
	in->vex = 3;
	in->rex_off = (uint8_t)at->pos;
	in->opcode = p[3];
	in->opcode_off = (uint8_t)(at->pos + 3);
	at->pos += 4;
	return finish(in, INSN_XOP, at, map == 8 ? 1 : map == 10 ? 4 : 0, extension_bits(p[1]));
}

int insn_take_3dnow(struct insn *in, struct insn_at *at, unsigned rex)
{
	in->opcode_off = (uint8_t)(at->pos - 2);
	/* the opcode proper is the last byte, and stays known as the immediate */
	return finish(in, INSN_AMD3DNOW, at, 1, rex);
}
