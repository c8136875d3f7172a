/*
 * Translation of control transfers, stack instructions, system calls and the time-stamp counter.
 *
 * Return addresses on the program's stack are the program's own. A return is an indirect
 * branch: its target is looked up in the table of entries by generated code.
 */
#include "format/regs.h"
#include "translator/translate-priv.h"

static const struct ea stack_top = { .base = 4, .index = -1, .scale = 1 };
static const struct ea shadow_top = { .base = 4, .index = -1, .scale = 1, .gs = true, .a32 = true };

static void mirror_top(struct tr_build *b, unsigned size, unsigned reg)
{
	if (b->policy.mirror)
		cg_store_size(b->c, size, reg, &shadow_top);
}

static void lea(struct tr_build *b, unsigned reg, unsigned base, int32_t disp)
{
	struct ea m = ea_base((int)base, disp);
	cg_rm(b->c, 8, 0x8d, reg, &m, 0);
}

static void push_reg(struct tr_build *b, unsigned size, unsigned reg)
{
	if (size == 2)
		cg8(b->c, 0x66);
	if (reg >= 8)
		cg8(b->c, 0x41);
	cg8(b->c, (uint8_t)(0x50 | (reg & 7)));
}

/* rcx = the target held in the memory operand; rcx is spilled. */
static bool load_target(struct tr_build *b)
{
	struct ea mem, shadow;
	if (b->insn[b->i].mem_size != 8 || !tr_mem_operand(b, &mem, &shadow))
		return false;
	if (mem.base == 1 || mem.index == 1 || mem.base == 0 || mem.index == 0) {
		tr_flags_clobber(b, false);
		tr_mem_check(b, &mem, &shadow, 8);
		if (b->failed)
			return false;
		tr_reg_spill(b, 1);
		cg_load(b->c, 1, &shadow);
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
	push_reg(b, 8, s);
	mirror_top(b, 8, s);
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
		tr_mem_target(b, &stack_top, &shadow_top);
		lea(b, 4, 4, 8 + pop);
		tr_exit_indirect(b, b->i + 1);
		return true;
	}
	if (!(in->attr & INSN_A_INDIRECT)) {
		if (in->attr & INSN_A_CALL) {
			int s = tr_reg_scratch(b, 0, false);
			push_return(b, (unsigned)s);
		}
		tr_exit_to(b, c, b->st, (uint64_t)in->imm, b->i + 1);
		return true;
	}
	/* indirect: the target first, it may depend on rsp */
	if (in->has_mem) {
		if (!load_target(b)) {
			b->failed = true;
			return true;
		}
	} else {
		unsigned r = in->opnd[0].reg;
		tr_reg_spill(b, 1);
		if (r != 1)
			cg_rr(c, 8, 0x89, r, 1);
	}
	if (in->attr & INSN_A_CALL) {
		int s = tr_reg_scratch(b, 1u << 1, false);
		push_return(b, (unsigned)s);
	}
	tr_exit_indirect(b, b->i + 1);
	return true;
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
		tr_mark_body(b);
		push_reg(b, size, r);
		mirror_top(b, size, (unsigned)s);
	} else if (in->opnd[0].kind == OPND_IMM) {
		tr_mark_body(b);
		cg_bytes(c, in->bytes, in->len);
		if (b->policy.mirror) {
			unsigned n = size == 2 ? 2 : 4;
			uint32_t imm = (uint32_t)in->imm;
			cg_rm(c, size, 0xc7, 0, &shadow_top, n);
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
		push_reg(b, size, (unsigned)s);
		mirror_top(b, size, (unsigned)s);
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
		tr_mem_load(b, size, (unsigned)s, &stack_top, &shadow_top);
		if (in->base == 4) {
			mem = ea_add(mem, (int32_t)size);
			shadow = ea_add(shadow, (int32_t)size);
		}
		cg_store_size(c, size, (unsigned)s, &mem);
		if (b->policy.mirror)
			cg_store_size(c, size, (unsigned)s, &shadow);
		lea(b, 4, 4, (int32_t)size);
	} else if (r == 4 || size == 2) {
		if (r == 4 && size == 2) {
			b->failed = true;
			return;
		}
		int s = tr_reg_scratch(b, 0, false);
		if (b->failed)
			return;
		tr_mem_load(b, size, (unsigned)s, &stack_top, &shadow_top);
		cg_rr(c, size, 0x89, (unsigned)s, r);
		if (r != 4)
			lea(b, 4, 4, 2);
	} else {
		tr_mem_load(b, 8, r, &stack_top, &shadow_top);
		lea(b, 4, 4, 8);
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
		lea(b, 4, 5, 8);
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
			cg_load(c, (unsigned)s, &stack_top);
			cg_store(c, (unsigned)s, &shadow_top);
		}
		return;
	}
	case INSN_POPF: {
		tr_flags_clobber(b, false);
		tr_mem_check(b, &stack_top, &shadow_top, 8);
		cg8(c, 0x9d);
		b->st.flags = TR_FLAGS_HW;
		return;
	}
	default:
		b->failed = true;
	}
}

/*
 * A system call. Those that change the address space, threads, signals or the process (T_SYSCLASS)
 * leave for the supervisor with all state in place. The others run here. After the
 * instruction rcx and r11 are ours until they get the values the program expects.
 */
void tr_syscall_emit(struct tr_build *b)
{
	const struct insn *in = &b->insn[b->i];
	struct cg *c = b->c;
	struct tr_finsn *fi = &b->f->insn[b->i];

	tr_flags_clobber(b, false);
	for (unsigned r = 0; r < 16; r++)
		if (b->st.spilled & 1u << r)
			tr_reg_reload(b, c, r);
	b->st.clean |= b->st.spilled;
	b->st.spilled = 0;
	tr_mark_body(b);

	cg_bytes(c, "\x48\x3d", 2); /* cmp rax, 512 */
	cg32(c, 512);
	uint8_t *big = cg_jcc(c, 3, 0);
	struct ea class = { .base = 0, .index = -1, .scale = 1, .disp = T_SYSCLASS, .gs = true };
	cg_rm(c, 4, 0x80, 7, &class, 1); /* cmp byte gs:[rax + T_SYSCLASS], 0 */
	cg8(c, 0);
	uint8_t *supervised = cg_jcc(c, 5, 0);
	if (!c->overflow) {
		cg_patch32(big, c->delta, cg_va(b->cold));
		cg_patch32(supervised, c->delta, cg_va(b->cold));
	}
	tr_exit_stop(b, b->cold, b->st, TR_STOP_SYSCALL, in->addr, b->i, b->live[b->i]);

	cg_imm_gs(c, T_IN_SYSCALL, 1);
	cg_bytes(c, "\x0f\x05", 2);
	fi->after_syscall = (uint32_t)(cg_va(c) - b->f->entry);
	cg_imm_gs(c, T_IN_SYSCALL, 0);
	struct ea at = ea_base(1, 0), at8 = ea_base(1, 8), at16 = ea_base(1, 16);
	cg_load_gs(c, 1, T_HEAD);
	cg_store(c, 0, &at8);
	cg_store(c, 11, &at16);
	cg_load_gs(c, 11, T_STEPS);
	lea(b, 11, 11, (int32_t)b->i);
	cg_store(c, 11, &at);
	struct ea type = ea_base(1, 7);
	cg_rm(c, 4, 0xc6, 0, &type, 1);
	cg8(c, RING_SYSCALL);
	cg_load(c, 11, &at16);
	lea(b, 1, 1, RING_SMALL_SIZE);
	cg_store_gs(c, 1, T_HEAD);
	tr_ring_check(b, 1);
	cg_imm(c, 1, in->addr + in->len);
	b->st.clean &= ~(1u << 0 | 1u << 1 | 1u << 11);
}

/* rdtsc, rdtscp: executed here and logged. */
void tr_tsc_insn(struct tr_build *b)
{
	const struct insn *in = &b->insn[b->i];
	struct cg *c = b->c;
	int s = tr_reg_scratch(b, 0x7, false);
	if (b->failed)
		return;
	tr_flags_clobber(b, true);
	cg_bytes(c, in->bytes, in->len);
	struct ea m[5];
	for (int k = 0; k < 5; k++)
		m[k] = ea_base(s, 8 * k);
	cg_load_gs(c, (unsigned)s, T_HEAD);
	cg_store(c, 0, &m[1]);
	cg_store(c, 2, &m[2]);
	cg_store(c, 1, &m[3]);
	cg_imm(c, 0, in->addr + in->len);
	cg_store(c, 0, &m[4]);
	cg_load_gs(c, 0, T_STEPS);
	lea(b, 0, 0, (int32_t)b->i);
	cg_store(c, 0, &m[0]);
	struct ea type = ea_base(s, 7), length = ea_base(s, 6);
	cg_rm(c, 4, 0xc6, 0, &type, 1);
	cg8(c, RING_TSC);
	cg_rm(c, 4, 0xc6, 0, &length, 1);
	cg8(c, in->len);
	cg_load(c, 0, &m[1]);
	lea(b, (unsigned)s, (unsigned)s, RING_TSC_SIZE);
	cg_store_gs(c, (unsigned)s, T_HEAD);
	tr_ring_check(b, (unsigned)s);
}
