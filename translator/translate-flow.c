/*
 * Translation of control transfers.
 *
 * Return addresses on the program's stack are the program's own. A return is an indirect
 * branch: its target is looked up in the table of entries by generated code.
 */
#include "format/regs.h"
#include "translator/build.h"

/* The target held in the memory operand is put into a register, the home one if it is not part of
 * the address. That is spilled then, as `spare` is, which pushing a return address needs: a push
 * may fault. False if that cannot be had. */
static bool load_target(struct tr_build *b, unsigned *target, unsigned *spare)
{
	struct ea mem, shadow;
	uint32_t used;
	if (b->insn[b->i].mem_size != 8 || !tr_mem_operand(b, &mem, &shadow))
		return false;
	used = ea_regs(&mem);
	if (used & HOME_BIT) {
		*target = (unsigned)tr_reg_scratch(b, used, false);
	} else {
		tr_reg_spill(b, HOME);
	}
	tr_flags_clobber(b, false);
	b->busy |= 1u << *target;
	*spare = (unsigned)tr_reg_scratch(b, used | 1u << *target, false);
	if (!b->failed)
		tr_mem_load(b, 8, *target, &mem, &shadow);
	return !b->failed;
}

/* Push the return address of a call, using scratch register `spare`; any one, if -1. */
static void push_return(struct tr_build *b, int spare)
{
	const struct insn *in = &b->insn[b->i];
	uint64_t ret = in->addr + in->len;
	struct ea code = { .rip = true, .target = ret };
	int64_t d = (int64_t)(ret - cg_va(b->c));
	bool low = ret <= INT32_MAX;
	unsigned s = 0;
	b->ret_site = ret;
	if (!low || b->policy.copy_rsp)
		s = (unsigned)(spare < 0 ? tr_reg_scratch(b, 0, false) : spare);
	if (low) {
		tr_push_low(b, (uint32_t)ret, s);
		return;
	}
	if (ret > 0xffffffffu && d > -0x7f000000LL && d < 0x7f000000LL)
		cg_rm(b->c, 8, 0x8d, s, &code, 0);
	else
		cg_addr(b->c, s, ret);
	tr_push_reg(b, 8, s, s);
}

static void conditional(struct tr_build *b)
{
	const struct insn *in = &b->insn[b->i];
	struct cg *c = b->c;
	if (in->id == INSN_JCC) {
		bool around = tr_goes_around(b, b->i); /* then it is not jumping that leaves */
		unsigned cond = in->cond ^ around;
		uint64_t target = around ? in->addr + in->len : (uint64_t)in->imm;
		tr_flags_for_op(b);
		if (!tr_exit_jcc(b, cond, target, tr_lag(b) + 1))
			tr_exit_side(b, cg_jcc(c, cond, 0), target, tr_lag(b) + 1);
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
		tr_exit_side(b, cg_jmp(c, 0), (uint64_t)in->imm, tr_lag(b) + 1);
		cg_here8(c, zero);
		if (unequal)
			cg_here8(c, unequal);
	} else {
		uint8_t *over = cg_jcc8(c, 0xeb);
		cg_here8(c, zero);
		tr_exit_side(b, cg_jmp(c, 0), (uint64_t)in->imm, tr_lag(b) + 1);
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
		tr_reg_spill(b, HOME);
		tr_flags_clobber(b, false);
		b->busy |= HOME_BIT;
		tr_pop_reg(b, HOME);
		if (pop)
			cg_lea(b->c, 4, 4, pop);
		tr_exit_indirect(b, tr_lag(b) + 1);
		return true;
	}
	if (!(in->attr & INSN_A_INDIRECT)) {
		if (tr_goes_around(b, b->i))
			return false;
		if (in->attr & INSN_A_CALL)
			push_return(b, -1);
		tr_exit_to(b, b->st, (uint64_t)in->imm, tr_lag(b) + 1);
		return true;
	}
	/* indirect: the target first, it may depend on rsp */
	unsigned target = HOME, spare = 0;
	if (in->has_mem) {
		if (!load_target(b, &target, &spare)) {
			b->failed = true;
			return true;
		}
	} else {
		unsigned r = in->opnd[0].reg;
		tr_flags_clobber(b, false);
		tr_reg_spill(b, HOME);
		b->busy |= HOME_BIT;
		if (r != HOME)
			cg_rr(c, 8, 0x89, r, HOME);
		if (in->attr & INSN_A_CALL)
			spare = (unsigned)tr_reg_scratch(b, HOME_BIT, false);
	}
	if (in->attr & INSN_A_CALL)
		push_return(b, (int)spare);
	tr_reg_spill(b, HOME);
	if (target != HOME)
		cg_rr(c, 8, 0x89, target, HOME);
	tr_exit_indirect(b, tr_lag(b) + 1);
	return true;
}
