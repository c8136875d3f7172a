/* Code generation: see cg.h. Encodings after SDM vol. 2A, ch. 2. */
#include "translator/cg.h"

#include "format/error.h"

static void put_modrm(struct cg *c, unsigned reg, const struct ea *m, unsigned immlen)
{
	uint8_t r = (uint8_t)((reg & 7) << 3);
	if (m->rip) {
		cg8(c, r | 5);
		cg_note(c, CG_DISTANCE);
		cg32(c, (uint32_t)(m->target - (cg_va(c) + 4 + immlen)));
		return;
	}
	if (m->base < 0) {
		static const uint8_t scale_bits[9] = {
			[1] = 0, [2] = 0x40, [4] = 0x80, [8] = 0xc0
		};
		cg8(c, r | 4);
		unsigned idx = m->index < 0 ? 4 : (unsigned)m->index & 7;
		cg8(c, (uint8_t)((m->index < 0 ? 0 : scale_bits[m->scale]) | idx << 3 | 5));
		if (m->low)
			cg_note(c, CG_LOW);
		cg32(c, (uint32_t)m->disp);
		return;
	}
	bool sib = m->index >= 0 || (m->base & 7) == 4;
	uint8_t mod;
	if (m->disp == 0 && (m->base & 7) != 5)
		mod = 0;
	else if (m->disp >= -128 && m->disp < 128)
		mod = 0x40;
	else
		mod = 0x80;
	cg8(c, mod | r | (sib ? 4 : (uint8_t)(m->base & 7)));
	if (sib) {
		static const uint8_t scale_bits[9] = {
			[1] = 0, [2] = 0x40, [4] = 0x80, [8] = 0xc0
		};
		unsigned idx = m->index < 0 ? 4 : (unsigned)m->index & 7;
		cg8(c, (uint8_t)((m->index < 0 ? 0 : scale_bits[m->scale]) | idx << 3 |
				 (m->base & 7)));
	}
	if (mod == 0x40)
		cg8(c, (uint8_t)m->disp);
	else if (mod == 0x80)
		cg32(c, (uint32_t)m->disp);
}

static uint8_t ea_rex(const struct ea *m)
{
	return (uint8_t)((m->base >= 8 && !m->rip ? 1 : 0) | (m->index >= 8 ? 2 : 0));
}

static void put_op(struct cg *c, uint32_t op)
{
	if (op > 0xffff)
		cg8(c, (uint8_t)(op >> 16));
	if (op > 0xff)
		cg8(c, (uint8_t)(op >> 8));
	cg8(c, (uint8_t)op);
}

void cg_rm(struct cg *c, unsigned size, uint32_t op, unsigned reg, const struct ea *m,
	   unsigned immlen)
{
	if (m->gs)
		cg8(c, 0x65);
	if (m->fs)
		cg8(c, 0x64);
	if (m->a32)
		cg8(c, 0x67);
	if (size == 2)
		cg8(c, 0x66);
	uint8_t rex = (uint8_t)((size == 8 ? 8 : 0) | (reg >= 8 ? 4 : 0) | ea_rex(m));
	if (rex || (size == 1 && reg >= 4))
		cg8(c, 0x40 | rex);
	put_op(c, op);
	put_modrm(c, reg, m, immlen);
}

void cg_rr(struct cg *c, unsigned size, uint32_t op, unsigned reg, unsigned rm)
{
	if (size == 2)
		cg8(c, 0x66);
	uint8_t rex = (uint8_t)((size == 8 ? 8 : 0) | (reg >= 8 ? 4 : 0) | (rm >= 8 ? 1 : 0));
	if (rex || (size == 1 && (reg >= 4 || rm >= 4)))
		cg8(c, 0x40 | rex);
	put_op(c, op);
	cg8(c, (uint8_t)(0xc0 | (reg & 7) << 3 | (rm & 7)));
}

/* SDM vol. 2A, 2.3.5: the three-byte prefix. `xb` as in REX. */
static void put_vex(struct cg *c, uint32_t op, bool l, unsigned reg, unsigned v, uint8_t xb)
{
	cg8(c, 0xc4);
	cg8(c, (uint8_t)((reg >= 8 ? 0 : 0x80) | (xb & 2 ? 0 : 0x40) | (xb & 1 ? 0 : 0x20) |
			 (op >> 8 & 3)));
	cg8(c, (uint8_t)((op >> 12 & 1) << 7 | (~v & 15) << 3 | (l ? 4 : 0) | (op >> 10 & 3)));
	cg8(c, (uint8_t)op);
}

void cg_vex_rm(struct cg *c, uint32_t op, bool l, unsigned reg, unsigned v, const struct ea *m)
{
	if (m->gs)
		cg8(c, 0x65);
	if (m->a32)
		cg8(c, 0x67);
	put_vex(c, op, l, reg, v, ea_rex(m));
	put_modrm(c, reg, m, 0);
}

void cg_vex_rr(struct cg *c, uint32_t op, bool l, unsigned reg, unsigned v, unsigned rm)
{
	put_vex(c, op, l, reg, v, rm >= 8 ? 1 : 0);
	cg8(c, (uint8_t)(0xc0 | (reg & 7) << 3 | (rm & 7)));
}

void cg_imm(struct cg *c, unsigned reg, uint64_t value)
{
	if (value <= 0xffffffffu) {
		if (reg >= 8)
			cg8(c, 0x41);
		cg8(c, (uint8_t)(0xb8 | (reg & 7)));
		cg32(c, (uint32_t)value);
	} else if ((int64_t)value == (int32_t)value) {
		cg8(c, reg >= 8 ? 0x49 : 0x48);
		cg8(c, 0xc7);
		cg8(c, (uint8_t)(0xc0 | (reg & 7)));
		cg32(c, (uint32_t)value);
	} else {
		cg8(c, reg >= 8 ? 0x49 : 0x48);
		cg8(c, (uint8_t)(0xb8 | (reg & 7)));
		cg64(c, value);
	}
}

void cg_addr(struct cg *c, unsigned reg, uint64_t value)
{
	cg_imm(c, reg, value);
	if (value > 0xffffffffu && (int64_t)value != (int32_t)value)
		cg_note_at(c, c->p - 8, CG_WHOLE);
}

void cg_imm_gs(struct cg *c, int32_t off, uint32_t value)
{
	struct ea m = ea_gs(off);
	cg_rm(c, 4, 0xc7, 0, &m, 4);
	cg32(c, value);
}

void cg_load_zx(struct cg *c, unsigned size, unsigned reg, const struct ea *m)
{
	if (size <= 2)
		cg_rm(c, 4, size == 1 ? 0x0fb6 : 0x0fb7, reg, m, 0);
	else
		cg_rm(c, size, 0x8b, reg, m, 0);
}

void cg_store_size(struct cg *c, unsigned size, unsigned reg, const struct ea *m)
{
	cg_rm(c, size, size == 1 ? 0x88 : 0x89, reg, m, 0);
}

void cg_cmp(struct cg *c, unsigned size, unsigned reg, const struct ea *m)
{
	cg_rm(c, size, size == 1 ? 0x3a : 0x3b, reg, m, 0);
}

uint8_t *cg_jmp(struct cg *c, uint64_t target)
{
	cg8(c, 0xe9);
	cg_note(c, CG_DISTANCE);
	cg32(c, (uint32_t)(target - (cg_va(c) + 4)));
	return c->p - 4;
}

uint8_t *cg_jcc(struct cg *c, unsigned cond, uint64_t target)
{
	cg8(c, 0x0f);
	cg8(c, (uint8_t)(0x80 | cond));
	cg_note(c, CG_DISTANCE);
	cg32(c, (uint32_t)(target - (cg_va(c) + 4)));
	return c->p - 4;
}

void cg_patch32(uint8_t *rel32, uint64_t delta, uint64_t target)
{
	uint32_t rel = (uint32_t)(target - ((uint64_t)(uintptr_t)rel32 + delta + 4));
	memcpy(rel32, &rel, 4);
}

uint8_t *cg_jcc8(struct cg *c, uint8_t opcode)
{
	cg8(c, opcode);
	cg8(c, 0);
	return c->p - 1;
}

/* Legacy prefixes of `in` that matter besides segment, address size and LOCK. */
static void put_legacy_prefixes(struct cg *c, const struct insn *in)
{
	unsigned end = in->vex || in->rex ? in->rex_off : in->opcode_off;
	for (unsigned i = 0; i < end; i++) {
		uint8_t b = in->bytes[i];
		if (b == 0x66 || b == 0xf2 || b == 0xf3)
			cg8(c, b);
	}
}

/* REX or VEX prefix of `in` with R kept (or replaced if reg >= 0) and X, B replaced; then opcode.
 */
static bool put_prefix_opcode(struct cg *c, const struct insn *in, uint8_t xb, int reg,
			      bool byte_rex)
{
	if (in->vex) {
		const uint8_t *v = in->bytes + in->rex_off;
		if (in->vex == 2 && xb == 0) {
			cg8(c, v[0]);
			cg8(c, v[1]);
		} else if (in->vex == 2) {
			/* C5 RvvvvLpp -> C4 RXBmmmmm WvvvvLpp with map 0F, W 0 */
			cg8(c, 0xc4);
			cg8(c, (uint8_t)((v[1] & 0x80) | (xb & 2 ? 0 : 0x40) | (xb & 1 ? 0 : 0x20) |
					 1));
			cg8(c, v[1] & 0x7f);
		} else if (in->vex == 3) {
			cg8(c, 0xc4);
			cg8(c,
			    (uint8_t)((v[1] & 0x9f) | (xb & 2 ? 0 : 0x40) | (xb & 1 ? 0 : 0x20)));
			cg8(c, v[2]);
		} else {
			return false;
		}
		cg8(c, in->opcode);
		return true;
	}
	uint8_t rex = (uint8_t)((in->rex & 0x0c) | xb);
	if (reg >= 0)
		rex = (uint8_t)((rex & ~4) | (reg >= 8 ? 4 : 0));
	if (rex || in->rex || byte_rex)
		cg8(c, 0x40 | rex);
	for (unsigned i = in->opcode_off; i < in->modrm_off; i++)
		cg8(c, in->bytes[i]);
	return true;
}

static bool uses_high_byte(const struct insn *in)
{
	for (unsigned i = 0; i < in->nopnd; i++)
		if (in->opnd[i].kind == OPND_GPR8H)
			return true;
	return false;
}

bool cg_reencode(struct cg *c, const struct insn *in, const struct ea *m)
{
	if (!in->modrm_off || in->id == INSN_EVEX || in->id == INSN_XOP)
		return false;
	uint8_t xb = ea_rex(m);
	if (xb && !in->rex && !in->vex && uses_high_byte(in))
		return false;
	uint8_t *start = c->p;
	unsigned noted = c->log ? c->log->n : 0;
	if (m->gs)
		cg8(c, 0x65);
	if (m->a32)
		cg8(c, 0x67);
	put_legacy_prefixes(c, in);
	if (!put_prefix_opcode(c, in, xb, -1, false))
		return false;
	put_modrm(c, (in->modrm >> 3) & 7, m, in->imm_size);
	for (unsigned i = 0; i < in->imm_size; i++)
		cg8(c, in->bytes[in->imm_off + i]);
	if (c->p - start > INSN_MAX) {
		c->p = start;
		if (c->log)
			c->log->n = noted;
		return false;
	}
	return true;
}

bool cg_reencode_reg(struct cg *c, const struct insn *in, unsigned rm, int reg)
{
	if (!in->modrm_off || in->vex || uses_high_byte(in))
		return false;
	put_legacy_prefixes(c, in);
	if (!put_prefix_opcode(c, in, rm >= 8 ? 1 : 0, reg, true))
		return false;
	unsigned r = reg >= 0 ? (unsigned)reg : (in->modrm >> 3) & 7u;
	cg8(c, (uint8_t)(0xc0 | (r & 7) << 3 | (rm & 7)));
	for (unsigned i = 0; i < in->imm_size; i++)
		cg8(c, in->bytes[in->imm_off + i]);
	return true;
}
