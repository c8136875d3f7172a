/*
 * Translation of atomic instructions, with a LOCK prefix, and xchg with memory; of fences; and of
 * those that find a bit in a bit string, by a register, atomic or not.
 *
 * An atomic instruction is performed on memory first, in a form that leaves the old value in a
 * register; that value is what was consumed: it is compared with the shadow (and put into the
 * imported line if it differs); then the instruction is executed on the shadow for its flags and
 * registers.
 *
 * Locked instructions and fences are ordered events (insn_is_ordered), with a number each. One that
 * faults is not.
 */
#include "translator/runtime.h"
#include "translator/build.h"

/* Compare register `old` (what was consumed) with the shadow at [a]; `hi` >= 0 is the upper half.
 */
static void check_consumed(struct tr_build *b, unsigned a, unsigned old, int hi, unsigned size)
{
	struct ea sh = ea_base((int)a, 0);
	sh.gs = sh.a32 = true;
	unsigned half = hi >= 0 ? size / 2 : size;
	struct cg *c = b->c;
	uint8_t *j[2] = { NULL, NULL };
	cg_cmp(c, half, old, &sh);
	j[0] = cg_jcc(c, 5, 0);
	if (hi >= 0) {
		struct ea sh2 = ea_add(sh, (int32_t)half);
		cg_cmp(c, half, (unsigned)hi, &sh2);
		j[1] = cg_jcc(c, 5, 0);
	}
	if (!c->overflow)
		for (int k = 0; k < 2; k++)
			if (j[k])
				cg_patch32(j[k], c->delta, cg_va(b->cold));
	cg_store_gs(b->cold, old, T_SAVE(4));
	if (hi >= 0) {
		struct ea m = ea_gs(half == 4 ? T_SAVE(4) + 4 : T_SAVE(5));
		cg_rm(b->cold, half, 0x89, (unsigned)hi, &m, 0);
	}
	cg_store_gs(b->cold, a, T_IMP_ADDR);
	cg_imm_gs(b->cold, T_IMP_DESC, size | tr_lag(b) << 16);
	cg_store_gs(b->cold, a, T_SAVE(6));
	struct ea back = { .rip = true, .target = cg_va(c) };
	/* the routine keeps all registers; borrow the address register for the return address */
	cg_rm(b->cold, 8, 0x8d, a, &back, 0);
	cg_store_gs(b->cold, a, T_IMP_RET);
	cg_load_gs(b->cold, a, T_SAVE(6));
	cg_jmp(b->cold, rt_va(b->arena, rt_import_patch8));
}

static bool is_bit_string(const struct insn *in)
{
	return in->attr & INSN_A_BITSTRING;
}

/* Register `a` = the address of the word that holds the bit, which lies as many words from the
 * operand as the index, a signed number, says. Clobbers flags and `s`. */
static void bit_address(struct tr_build *b, const struct insn *in, const struct ea *mem, unsigned a,
			unsigned s)
{
	struct cg *c = b->c;
	unsigned index = in->opnd[1].reg, size = in->opnd[0].size;
	struct ea sum = { .base = (int8_t)a, .index = (int8_t)s, .scale = (uint8_t)size };
	if (size == 2)
		cg_rr(c, 8, 0x0fbf, s, index);
	else if (size == 4)
		cg_rr(c, 8, 0x63, s, index);
	else
		cg_rr(c, 8, 0x8b, s, index);
	cg_rr(c, 8, 0xc1, 7, s); /* sar */
	cg8(c, size == 2 ? 4 : size == 4 ? 5 : 6);
	if (mem->rip)
		cg_addr(c, a, mem->target);
	else
		cg_rm(c, 8, 0x8d, a, mem, 0);
	cg_rm(c, 8, 0x8d, a, &sum, 0);
}

void tr_bit_string_insn(struct tr_build *b, const struct insn *in, const struct ea *mem)
{
	struct cg *c = b->c;
	unsigned size = in->opnd[0].size;
	/* an index is added before an address is cut to 32 bits */
	if (mem->a32) {
		b->failed = true;
		return;
	}
	int a = tr_reg_scratch(b, ea_regs(mem), false),
	    s = tr_reg_scratch(b, ea_regs(mem) | 1u << a, false);
	if (b->failed)
		return;
	struct ea at = ea_base(a, 0), sh = at;
	sh.gs = sh.a32 = true;
	tr_flags_clobber(b, false);
	bit_address(b, in, mem, (unsigned)a, (unsigned)s);
	tr_mem_load(b, size, (unsigned)s, &at, &sh);
	tr_flags_for_op(b);
	if (!cg_reencode_reg(c, in, (unsigned)s, -1)) {
		b->failed = true;
		return;
	}
	if (in->id == INSN_BT)
		return;
	cg_store_size(c, size, (unsigned)s, &at);
	if (b->policy.mirror)
		cg_store_size(c, size, (unsigned)s, &sh);
}

/* An atomic instruction under way. */
struct atomic {
	unsigned a;   /* register with the operand's address */
	struct ea at; /* the operand, and its shadow, by that register */
	struct ea sh;
	unsigned reg;	/* the register operand */
	uint32_t taken; /* registers that may not be scratch */
};

/* Puts the address into a register, flags aside. */
static bool begin(struct tr_build *b, const struct insn *in, const struct ea *mem, struct atomic *x)
{
	struct cg *c = b->c;
	for (unsigned k = 0; k < in->nopnd; k++)
		if (in->opnd[k].kind == OPND_GPR8H)
			b->failed = true;
	if ((is_bit_string(in) && mem->a32) || in->id == INSN_ADC || in->id == INSN_SBB)
		b->failed = true;
	if (b->failed)
		return false;
	tr_flags_clobber(b, false);
	/* not rax, which cmpxchg wants */
	int a = tr_reg_scratch(b, ea_regs(mem) | 1, !(in->rex || in->vex));
	if (b->failed)
		return false;
	x->a = (unsigned)a;
	x->taken = 1u << a | ea_regs(mem);
	if (is_bit_string(in))
		bit_address(b, in, mem, x->a, (unsigned)tr_reg_scratch(b, x->taken | 1, false));
	else if (mem->rip)
		cg_addr(c, x->a, mem->target);
	else
		cg_rm(c, 8, 0x8d, x->a, mem, 0);
	x->at = x->sh = ea_base(a, 0);
	x->sh.gs = x->sh.a32 = true;
	x->reg = in->nopnd > 1 && in->opnd[1].kind == OPND_GPR ? in->opnd[1].reg : 0;
	if (in->id == INSN_XCHG && in->opnd[0].kind == OPND_GPR)
		x->reg = in->opnd[0].reg;
	return !b->failed;
}

/* Between these two come the operation on memory and what is imported for it: the line has more
 * than the operand, so all of it has been read when the number is taken. */
static void before(struct tr_build *b, const struct insn *in, const struct atomic *x)
{
	if (b->policy.number)
		tr_order_lock(b, x->a, in->mem_size);
}

static void after(struct tr_build *b, const struct insn *in, const struct atomic *x)
{
	if (b->policy.number)
		tr_order_number(b, x->a, in->mem_size);
}

static void exchange(struct tr_build *b, const struct insn *in, const struct atomic *x)
{
	struct cg *c = b->c;
	unsigned size = in->mem_size;
	int s = tr_reg_scratch(b, x->taken, false);
	if (b->failed)
		return;
	cg_rr(c, 8, 0x89, x->reg, (unsigned)s);
	before(b, in, x);
	tr_mark_body(b);
	if (in->id == INSN_XCHG) {
		cg_rm(c, size, size == 1 ? 0x86 : 0x87, (unsigned)s, &x->at, 0);
	} else {
		cg8(c, 0xf0);
		cg_rm(c, size, size == 1 ? 0x0fc0 : 0x0fc1, (unsigned)s, &x->at, 0);
	}
	check_consumed(b, x->a, (unsigned)s, -1, size);
	after(b, in, x);
}

static void compare_exchange(struct tr_build *b, const struct insn *in, const struct atomic *x)
{
	struct cg *c = b->c;
	uint32_t regs = in->id == INSN_CMPXCHG ? 1u : 5u; /* rax, and rdx for a pair */
	DJ_ASSERT(!(b->st.spilled & regs), "cmpxchg with rax or rdx spilled");
	tr_reg_spill(b, 0);
	if (regs & 4)
		tr_reg_spill(b, 2);
	before(b, in, x);
	tr_mark_body(b);
	cg8(c, 0xf0);
	if (!cg_reencode(c, in, &x->at)) {
		b->failed = true;
		return;
	}
	check_consumed(b, x->a, 0, regs & 4 ? 2 : -1, in->mem_size);
	after(b, in, x);
	tr_reg_reload(c, 0);
	if (regs & 4)
		tr_reg_reload(c, 2);
	b->st.spilled &= ~regs;
}

/* Any other operation: rax = old; loop: t = op(old); lock cmpxchg. Returns t; `u`: the register
 * operand, if that was rax, else -1. */
static unsigned operate(struct tr_build *b, const struct insn *in, const struct atomic *x, int *u)
{
	struct cg *c = b->c;
	unsigned size = in->mem_size;
	bool reg_form = in->nopnd > 1 && in->opnd[1].kind == OPND_GPR;
	bool rax_was_spilled = b->st.spilled & 1;
	int t = tr_reg_scratch(b, x->taken | 1u, false);
	*u = -1;
	if (reg_form && x->reg == 0) {
		*u = tr_reg_scratch(b, x->taken | 1u << t | 1u, false);
		if (b->failed)
			return 0;
		cg_rr(c, 8, 0x89, 0, (unsigned)*u);
	}
	if (b->failed)
		return 0;
	tr_reg_spill(b, 0);
	before(b, in, x);
	tr_mark_body(b);
	cg_load_zx(c, size, 0, &x->at);
	uint64_t loop = cg_va(c);
	cg_rr(c, 8, 0x89, 0, (unsigned)t);
	if (!cg_reencode_reg(c, in, (unsigned)t, !reg_form ? -1 : *u >= 0 ? *u : (int)x->reg)) {
		b->failed = true;
		return 0;
	}
	cg8(c, 0xf0);
	cg_rm(c, size, size == 1 ? 0x0fb0 : 0x0fb1, (unsigned)t, &x->at, 0);
	cg_jcc(c, 5, loop);
	check_consumed(b, x->a, 0, -1, size);
	after(b, in, x);
	if (!rax_was_spilled) {
		tr_reg_reload(c, 0);
		b->st.spilled &= ~1u;
	}
	return (unsigned)t;
}

void tr_atomic_insn(struct tr_build *b, const struct insn *in, const struct ea *mem)
{
	struct cg *c = b->c;
	struct atomic x;
	unsigned t = 0;
	int u = -1;
	if (!begin(b, in, mem, &x))
		return;
	switch (in->id) {
	case INSN_XCHG:
	case INSN_XADD:
		exchange(b, in, &x);
		break;
	case INSN_CMPXCHG:
	case INSN_CMPXCHG8B:
	case INSN_CMPXCHG16B:
		compare_exchange(b, in, &x);
		break;
	default:
		t = operate(b, in, &x, &u);
	}
	if (b->failed)
		return;
	if (is_bit_string(in)) {
		/* on the shadow it would look for the bit from there */
		cg_load_zx(c, in->mem_size, t, &x.sh);
		tr_flags_for_op(b);
		cg_reencode_reg(c, in, t, u);
		if (b->policy.mirror)
			cg_store_size(c, in->mem_size, t, &x.sh);
		return;
	}
	/* inc and dec keep CF, so the operation on the shadow may need the old flags */
	tr_flags_for_op(b);
	tr_mem_on_shadow(b, in, &x.sh, in->mem_size, NULL);
}

void tr_fence_insn(struct tr_build *b)
{
	const struct insn *in = &b->insn[b->i];
	tr_flags_clobber(b, true);
	cg_bytes(b->c, in->bytes, in->len);
	if (b->policy.number)
		tr_order_number(b, 0, 0);
}
