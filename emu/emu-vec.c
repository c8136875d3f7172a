/*
 * Binding of vector moves, integer and crypto instructions: which part of the family an
 * instruction belongs to, and how its operands map to what handlers expect (emu-vec.h).
 *
 * Facts are from the SDM, volume 2, the page of each instruction.
 */
#include "emu/emu-vec.h"

enum emu_vec_form emu_vec_form(const struct insn *in)
{
	for (int i = 0; i < in->nopnd; i++)
		if (in->opnd[i].kind == OPND_MMX)
			return VEC_MMX;
	if (!in->vex)
		return VEC_LEGACY;
	return in->vex_l ? VEC_256 : VEC_128;
}

void emu_vec_bind_operands(const struct insn *in, struct emu_uop *u, enum emu_vec_kind kind)
{
	int n = in->nopnd, src2 = 1;

	if (n && in->opnd[n - 1].kind == OPND_IMM)
		n--;
	if (kind == VEC_BINARY && n > 2 && in->vex)
		src2 = 2;
	u->a = in->opnd[0].reg;
	u->b = in->opnd[src2 - 1].reg;
	u->c = n > src2 ? in->opnd[src2].reg : u->a;
	u->d = (uint8_t)emu_vec_form(in);
	if (n > src2 && in->opnd[src2].kind == OPND_MEM) {
		u->c = 0;
		u->d |= VEC_MEM;
		u->size = (uint8_t)in->mem_size;
	}
	/* an instruction with one register operand and an immediate (pslldq) reads it */
	if (n == 1)
		u->b = u->c = u->a;
}

emu_fn *emu_vec_bind_row(const struct emu_vec_row *row, const struct insn *in, struct emu_uop *u)
{
	unsigned form, bytes;
	bool mem;

	if (!row->any)
		return NULL;
	emu_vec_bind_operands(in, u, row->kind);
	form = u->d & VEC_FORM;
	mem = u->d & VEC_MEM;
	bytes = form == VEC_256 ? 32 : 16;
	if (form < VEC_FORMS && row->hot[form][mem] && (!mem || u->size == bytes))
		return row->hot[form][mem];
	return row->any;
}

emu_fn *emu_bind_vec(const struct insn *in, struct emu_uop *u)
{
	static emu_fn *(*const parts[])(const struct insn *, struct emu_uop *) = {
		emu_bind_vec_move, emu_bind_vec_int,	emu_bind_vec_shuffle,
		emu_bind_vec_mask, emu_bind_vec_string, emu_bind_vec_crypto,
	};

	if (in->id < INSN_MOVD || in->id > INSN_VZEROALL || in->vex == 4)
		return NULL;
	if (in->has_mem && in->mem_size != 1 && in->mem_size != 2 && in->mem_size != 4 &&
	    in->mem_size != 8 && in->mem_size != 16 && in->mem_size != 32)
		return NULL;
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		emu_fn *fn = parts[i](in, u);

		if (fn)
			return fn;
	}
	return NULL;
}
