/*
 * Translation of control transfers.
 *
 * Return addresses on the program's stack are the program's own. A return is an indirect
 * branch: its target is looked up in the table of entries by generated code.
 */
#include "format/regs.h"
#include "translator/build.h"

/* The target held in the memory operand is put into a register, rcx if it can be. Everything that
 * is used before the return address is pushed, which may fault, is spilled before the first access.
 * `spare` is one of those. False if that cannot be had. */
static bool load_target(struct tr_build *b, unsigned *target, unsigned *spare)
{
	struct ea mem, shadow;
	*target = 1;
	*spare = 0;
	if (b->insn[b->i].mem_size != 8 || !tr_mem_operand(b, &mem, &shadow))
		return false;
	if (mem.base == 1 || mem.index == 1 || mem.base == 0 || mem.index == 0) {
		if (!(b->insn[b->i].attr & INSN_A_CALL)) {
			tr_flags_clobber(b, false);
			tr_mem_check(b, &mem, &shadow, 8);
			if (b->failed)
				return false;
			tr_reg_spill(b, 1);
			cg_load(b->c, 1, &shadow);
			return true;
		}
		*target = (unsigned)tr_reg_scratch(b, ea_regs(&mem) | 2, false);
		*spare = (unsigned)tr_reg_scratch(b, ea_regs(&mem) | 2 | 1u << *target, false);
		tr_flags_clobber(b, false);
		tr_mem_check(b, &mem, &shadow, 8);
		if (b->failed)
			return false;
		cg_load(b->c, *target, &shadow);
		return true;
	}
	tr_reg_spill(b, 1);
	tr_reg_spill(b, 0);
	tr_mem_target(b, &mem, &shadow);
	return true;
}

/* Push the return address of a call, using scratch register `s`. */
static void push_return(struct tr_build *b, unsigned s)
{
	const struct insn *in = &b->insn[b->i];
	uint64_t ret = in->addr + in->len;
	struct ea code = { .rip = true, .target = ret };
	int64_t d = (int64_t)(ret - cg_va(b->c));
	if (ret > 0xffffffffu && d > -0x7f000000LL && d < 0x7f000000LL)
		cg_rm(b->c, 8, 0x8d, s, &code, 0);
	else
		cg_imm(b->c, s, ret);
	tr_mark_body(b);
	tr_push_reg(b, 8, s);
	tr_mirror_top(b, 8, s);
	b->ret_site = ret;
}

static void conditional(struct tr_build *b)
{
	const struct insn *in = &b->insn[b->i];
	struct cg *c = b->c;
	if (in->id == INSN_JCC) {
		tr_flags_for_op(b);
		tr_exit_side(b, cg_jcc(c, in->cond, 0), (uint64_t)in->imm, b->i + 1);
		return;
	}
	/* jrcxz and loop have only short forms */
	uint8_t *unequal = NULL;
	if (in->id != INSN_JRCXZ) {
		struct ea less = ea_base(1, -1);
		tr_flags_for_op(b);
		cg_rm(c, in->addr32 ? 4 : 8, 0x8d, 1, &less, 0);
		if (in->id == INSN_LOOPE || in->id == INSN_LOOPNE)
			unequal = cg_jcc8(c, in->id == INSN_LOOPE ? 0x75 : 0x74);
	}
	if (in->addr32)
		cg8(c, 0x67);
	uint8_t *zero = cg_jcc8(c, 0xe3);
	if (in->id != INSN_JRCXZ) {
		tr_exit_side(b, cg_jmp(c, 0), (uint64_t)in->imm, b->i + 1);
		cg_here8(c, zero);
		if (unequal)
			cg_here8(c, unequal);
	} else {
		uint8_t *over = cg_jcc8(c, 0xeb);
		cg_here8(c, zero);
		tr_exit_side(b, cg_jmp(c, 0), (uint64_t)in->imm, b->i + 1);
		cg_here8(c, over);
	}
}

bool tr_flow_insn(struct tr_build *b)
{
	const struct insn *in = &b->insn[b->i];
	struct cg *c = b->c;

	if (in->attr & INSN_A_COND) {
		conditional(b);
		return false;
	}
	if (in->opsize16 && !in->rex && (in->attr & (INSN_A_CALL | INSN_A_RET | INSN_A_INDIRECT))) {
		b->failed = true; /* 16-bit transfers differ between CPU makers */
		return true;
	}
	if (in->attr & INSN_A_RET) {
		int32_t pop = in->imm_size ? (int32_t)(in->imm & 0xffff) : 0;
		tr_reg_spill(b, 1);
		tr_reg_spill(b, 0);
		tr_mem_target(b, &tr_stack_top, &tr_shadow_top);
		cg_lea(b->c, 4, 4, 8 + pop);
		tr_exit_indirect(b, b->i + 1);
		return true;
	}
	if (!(in->attr & INSN_A_INDIRECT)) {
		if (in->attr & INSN_A_CALL) {
			int s = tr_reg_scratch(b, 0, false);
			push_return(b, (unsigned)s);
		}
		tr_exit_to(b, b->st, (uint64_t)in->imm, b->i + 1);
		return true;
	}
	/* indirect: the target first, it may depend on rsp */
	unsigned target = 1, spare = 0;
	if (in->has_mem) {
		if (!load_target(b, &target, &spare)) {
			b->failed = true;
			return true;
		}
	} else {
		unsigned r = in->opnd[0].reg;
		tr_reg_spill(b, 1);
		spare = (unsigned)tr_reg_scratch(b, 1u << 1, false);
		if (r != 1)
			cg_rr(c, 8, 0x89, r, 1);
	}
	if (in->attr & INSN_A_CALL)
		push_return(b, spare);
	if (target != 1) {
		tr_reg_spill(b, 1);
		cg_rr(c, 8, 0x89, target, 1);
	}
	tr_exit_indirect(b, b->i + 1);
	return true;
}
