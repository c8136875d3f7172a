/*
 * Translation of stack instructions.
 */
#include "translator/build.h"
#include "translator/runtime.h"

const struct ea tr_stack_top = { .base = 4, .index = -1, .scale = 1 };
const struct ea tr_shadow_top = { .base = 4, .index = -1, .scale = 1, .gs = true, .a32 = true };

/* The top of the stack in the shadow, where it is when something has been pushed. The copy of rsp,
 * if there is one, is the one to be made then. For a call it would be the second register that has
 * to be saved, and the return address is far from being popped. */
static struct ea top_after(struct tr_build *b, uint32_t avoid)
{
	struct ea top = tr_shadow_top;
	bool call = b->insn[b->i].attr & INSN_A_CALL;
	if (!b->policy.mirror || !b->policy.copy_rsp || (call && !b->policy.copy_pops))
		return top;
	int s = tr_reg_scratch(b, avoid | b->busy, false);
	if (!b->failed)
		top.base = (int8_t)s;
	return top;
}

static void copy_rsp(struct tr_build *b, const struct ea *top)
{
	if (top->base != 4)
		cg_rr(b->c, 4, 0x89, 4, (unsigned)top->base);
}

void tr_push_reg(struct tr_build *b, unsigned size, unsigned reg, unsigned value)
{
	struct ea top = top_after(b, 1u << reg | 1u << value);
	tr_mark_body(b);
	if (size == 2)
		cg8(b->c, 0x66);
	if (reg >= 8)
		cg8(b->c, 0x41);
	cg8(b->c, (uint8_t)(0x50 | (reg & 7)));
	copy_rsp(b, &top);
	if (b->policy.mirror)
		cg_store_size(b->c, size, value, &top);
}

void tr_push_low(struct tr_build *b, uint32_t value, unsigned spare)
{
	struct ea top = tr_shadow_top;
	tr_mark_body(b);
	cg8(b->c, 0x68);
	cg32(b->c, value);
	if (!b->policy.mirror)
		return;
	if (b->policy.copy_rsp)
		top.base = (int8_t)spare;
	copy_rsp(b, &top);
	cg_rm(b->c, 8, 0xc7, 0, &top, 4);
	cg32(b->c, value);
}

/* With a pop of its own the processor knows where the next one finds its value. */
void tr_pop_reg(struct tr_build *b, unsigned reg)
{
	struct ea mem = ea_add(tr_stack_top, -8);
	uint8_t *j;
	if (!b->policy.copy_rsp) {
		tr_mem_load(b, 8, reg, &tr_stack_top, &tr_shadow_top);
		cg_lea(b->c, 4, 4, 8);
		return;
	}
	tr_flags_clobber(b, false);
	struct ea shadow = b->policy.copy_pops ? tr_by_copy(b, &tr_shadow_top, 1u << reg, false)
					       : ea_add(tr_shadow_top, -8);
	tr_mark_body(b);
	if (reg >= 8)
		cg8(b->c, 0x41);
	cg8(b->c, (uint8_t)(0x58 | (reg & 7)));
	if (b->policy.import_all) {
		j = cg_jmp(b->c, 0);
	} else {
		cg_cmp(b->c, 8, reg, &shadow);
		j = cg_jcc(b->c, 5, 0);
	}
	if (!b->c->overflow)
		cg_patch32(j, b->c->delta, cg_va(b->cold));
	tr_mem_import(b, reg, &mem, 8, 0, rt_import);
	cg_load(b->cold, reg, &shadow);
	cg_jmp(b->cold, cg_va(b->c));
	if (b->policy.look && b->insn[b->i].attr & INSN_A_BRANCH)
		tr_order_look(b);
}

static void push(struct tr_build *b, const struct insn *in, unsigned size)
{
	struct cg *c = b->c;
	unsigned r = in->opnd[0].reg;
	if (in->opnd[0].kind == OPND_GPR) {
		int s = (int)r;
		if (r == 4) {
			s = tr_reg_scratch(b, 0, false);
			if (b->failed)
				return;
			cg_rr(c, 8, 0x89, 4, (unsigned)s);
		}
		tr_push_reg(b, size, r, (unsigned)s);
	} else if (in->opnd[0].kind == OPND_IMM) {
		struct ea top = top_after(b, 0);
		tr_mark_body(b);
		cg_bytes(c, in->bytes, in->len);
		copy_rsp(b, &top);
		if (b->policy.mirror) {
			unsigned n = size == 2 ? 2 : 4;
			uint32_t imm = (uint32_t)in->imm;
			cg_rm(c, size, 0xc7, 0, &top, n);
			cg_bytes(c, &imm, n);
		}
	} else {
		struct ea mem, shadow;
		if (in->mem_size != size ||
		    !tr_mem_operand(b, &mem, &shadow)) { /* or a segment register */
			b->failed = true;
			return;
		}
		tr_flags_clobber(b, false);
		int s = tr_reg_scratch(b, ea_regs(&mem), false);
		if (b->failed)
			return;
		tr_mem_load(b, size, (unsigned)s, &mem, &shadow);
		tr_push_reg(b, size, (unsigned)s, (unsigned)s);
	}
}

static void pop(struct tr_build *b, const struct insn *in, unsigned size)
{
	struct cg *c = b->c;
	unsigned r = in->opnd[0].reg;
	if (in->opnd[0].kind != OPND_GPR) {
		/* the address is computed with rsp already raised (SDM vol. 2B, POP) */
		struct ea mem, shadow;
		if (!in->has_mem || in->mem_size != size || !tr_mem_operand(b, &mem, &shadow)) {
			b->failed = true;
			return;
		}
		int s = tr_reg_scratch(b, ea_regs(&mem), false);
		if (b->failed)
			return;
		tr_mem_load(b, size, (unsigned)s, &tr_stack_top, &tr_shadow_top);
		if (in->base == 4) {
			mem = ea_add(mem, (int32_t)size);
			shadow = ea_add(shadow, (int32_t)size);
		}
		cg_store_size(c, size, (unsigned)s, &mem);
		if (b->policy.mirror)
			cg_store_size(c, size, (unsigned)s, &shadow);
		cg_lea(b->c, 4, 4, (int32_t)size);
	} else if (r == 4 || size == 2) {
		if (r == 4 && size == 2) {
			b->failed = true;
			return;
		}
		int s = tr_reg_scratch(b, 0, false);
		if (b->failed)
			return;
		tr_mem_load(b, size, (unsigned)s, &tr_stack_top, &tr_shadow_top);
		cg_rr(c, size, 0x89, (unsigned)s, r);
		if (r != 4)
			cg_lea(b->c, 4, 4, 2);
	} else {
		tr_pop_reg(b, r);
	}
}

void tr_stack_insn(struct tr_build *b)
{
	const struct insn *in = &b->insn[b->i];
	struct cg *c = b->c;
	bool narrow = in->opsize16 && !(in->rex & 8);
	if (in->id == INSN_PUSH || in->id == INSN_POP) {
		(in->id == INSN_PUSH ? push : pop)(b, in, narrow ? 2 : 8);
		return;
	}
	if (narrow) {
		b->failed = true;
		return;
	}

	switch (in->id) {
	case INSN_LEAVE: {
		struct ea mem = ea_base(5, 0), shadow = mem;
		shadow.gs = shadow.a32 = true;
		int s = tr_reg_scratch(b, 0, false);
		if (b->failed)
			return;
		tr_mem_load(b, 8, (unsigned)s, &mem, &shadow);
		cg_lea(b->c, 4, 5, 8);
		cg_rr(c, 8, 0x89, (unsigned)s, 5);
		return;
	}
	case INSN_ENTER: {
		/* the instruction itself: it also faults if the new top of the stack cannot be
		 * written to */
		struct ea shadow = { .base = 5, .index = -1, .scale = 1, .gs = true, .a32 = true };
		int s = tr_reg_scratch(b, 0, false);
		if (b->failed)
			return;
		cg_rr(c, 8, 0x89, 5, (unsigned)s);
		tr_mark_body(b);
		cg_bytes(c, in->bytes, in->len);
		if (b->policy.mirror)
			cg_store(c, (unsigned)s, &shadow);
		return;
	}
	case INSN_PUSHF: {
		int s = tr_reg_scratch(b, 0, false);
		if (b->failed)
			return;
		tr_flags_need(b, c);
		tr_mark_body(b);
		cg8(c, 0x9c);
		if (b->policy.mirror) {
			cg_load(c, (unsigned)s, &tr_stack_top);
			cg_store(c, (unsigned)s, &tr_shadow_top);
		}
		return;
	}
	case INSN_POPF: {
		tr_flags_clobber(b, false);
		tr_mem_check(b, &tr_stack_top, &tr_shadow_top, 8);
		if (b->failed)
			return;
		/* with the trap flag the program goes on natively */
		struct ea flags = ea_add(tr_shadow_top, 1);
		cg_rm(c, 4, 0xf6, 0, &flags, 1); /* test byte [], TF >> 8 */
		cg8(c, 1);
		uint8_t *traps = cg_jcc(c, 5, 0);
		if (!c->overflow)
			cg_patch32(traps, c->delta, cg_va(b->cold));
		tr_exit_stop(b, b->cold, b->st, TR_STOP_NATIVE, in->addr, tr_lag(b), b->live[b->i]);
		cg8(c, 0x9d);
		b->st.flags = TR_FLAGS_HW;
		return;
	}
	default:
		b->failed = true;
	}
}
