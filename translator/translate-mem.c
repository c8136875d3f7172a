/*
 * Translation of instructions with a memory operand.
 *
 * A load: the value goes from memory into a register once and is compared with the shadow.
 *
 *	mov    s, [mem]
 *	cmp    s, gs:[mem32]
 *	jne    cold		; imports the line(s) and comes back
 *	OP     ..., gs:[mem32]	; the instruction itself, on the shadow
 *
 * From the comparison on the shadow, which is this thread's alone, holds the value that was
 * read, so the instruction may take it from there in whatever way it likes. gs:[mem32]
 * is the program's own operand with a gs and an address-size prefix. A plain mov to a
 * register needs no scratch: its destination is loaded, compared, and reloaded from the shadow
 * after an import.
 *
 * A store is the instruction itself and then the instruction on the shadow. A read-modify-write
 * is checked like a load, executed on the shadow, and the result is copied to memory.
 *
 * translator/build.h says where the instructions are that do it in another way.
 */
#include "format/regs.h"
#include "translator/runtime.h"
#include "translator/build.h"

/* The instruction's memory operand as it is to be used on memory and on the shadow. May take a
 * scratch register (relative to fs or gs, or an absolute address out of reach). */
bool tr_mem_operand(struct tr_build *b, struct ea *mem, struct ea *shadow)
{
	const struct insn *in = &b->insn[b->i];
	bool low = in->vex == 2 || !(in->rex || in->vex);
	struct ea m = { .base = -1, .index = -1, .scale = 1 };
	if (in->base == INSN_RIP) {
		uint64_t t = in->addr32 ? (uint32_t)in->target : in->target;
		*shadow = (struct ea){ .base = -1,
				       .index = -1,
				       .scale = 1,
				       .disp = (int32_t)(uint32_t)t,
				       .gs = true,
				       .a32 = true,
				       .low = true };
		b->cannot_keep |= in->addr32;
		if ((int64_t)t == (int32_t)t) {
			m.disp = (int32_t)t;
		} else {
			int64_t d = (int64_t)(t - cg_va(b->c));
			if (d > -0x7f000000LL && d < 0x7f000000LL) {
				m.rip = true;
				m.target = t;
			} else {
				int s = tr_reg_scratch(b, 0, low);
				if (b->failed)
					return false;
				cg_addr(b->c, (unsigned)s, t);
				m.base = (int8_t)s;
			}
		}
		if (in->seg)
			return false;
		*mem = m;
		return true;
	}
	m.base = in->base == INSN_NOREG ? -1 : (int8_t)in->base;
	m.index = in->index == INSN_NOREG ? -1 : (int8_t)in->index;
	m.scale = in->scale ? in->scale : 1;
	m.disp = (int32_t)in->disp;
	m.a32 = in->addr32;
	if (in->seg) {
		if (in->addr32)
			return false;
		int s = tr_reg_scratch(b, 0, low);
		if (b->failed)
			return false;
		cg_load_gs(b->c, (unsigned)s, in->seg == 4 ? T_FSBASE : T_GSBASE);
		if (m.base >= 0) {
			struct ea sum = { .base = (int8_t)s,
					  .index = m.base == 4 ? -1 : m.base,
					  .scale = 1 };
			if (m.base == 4) {
				sum.base = 4;
				sum.index = (int8_t)s;
			}
			if (s == 4)
				return false;
			cg_rm(b->c, 8, 0x8d, (unsigned)s, &sum, 0);
		}
		m.base = (int8_t)s;
	}
	*mem = m;
	*shadow = m;
	shadow->gs = true;
	shadow->a32 = true;
	return true;
}

/*
 * The processor may guess that a load at rsp + d has the value that was last loaded or stored at
 * rsp + d, and does so well: the stack is where most values wait for a moment. (AMD's of the Zen 5
 * generation do.) But it takes gs:[esp + d] for the same place, so that each of the two is guessed
 * to be the other. The value is right, the place is not, and that is as bad as a wrong guess. By
 * way of another register they are two places.
 */
struct ea tr_by_copy(struct tr_build *b, const struct ea *shadow, uint32_t avoid, bool low)
{
	struct ea by = *shadow;
	if (by.base != 4 || !b->policy.copy_rsp)
		return by;
	int s = tr_reg_scratch(b, avoid | ea_regs(shadow) | b->busy, low);
	if (b->failed)
		return by;
	cg_rr(b->c, 4, 0x89, 4, (unsigned)s);
	by.base = (int8_t)s;
	return by;
}

void tr_mem_import(struct tr_build *b, unsigned s, const struct ea *mem, unsigned size,
		   uint64_t resume, const uint8_t *routine)
{
	struct cg *c = b->cold;
	struct ea back = { .rip = true, .target = resume };
	if (mem->rip)
		cg_addr(c, s, mem->target);
	else
		cg_rm(c, 8, 0x8d, s, mem, 0);
	cg_store_gs(c, s, T_IMP_ADDR);
	cg_imm_gs(c, T_IMP_DESC, size | tr_lag(b) << 16);
	cg_rm(c, 8, 0x8d, s, &back, 0);
	uint8_t *at = c->p - 4;
	cg_store_gs(c, s, T_IMP_RET);
	cg_jmp(c, rt_va(b->arena, routine));
	if (!resume && !c->overflow)
		cg_patch32(at, c->delta, cg_va(c));
}

/* The parts of a load that are compared one by one, of up to eight bytes each; returns how many. */
static unsigned parts_of(unsigned size, uint8_t at[5], uint8_t bytes[5])
{
	unsigned n = 0;
	for (unsigned k = 0; k < size; k += bytes[n++]) {
		at[n] = (uint8_t)k;
		bytes[n] = (uint8_t)(size - k >= 8 ? 8 : size - k >= 4 ? 4 : size - k >= 2 ? 2 : 1);
	}
	for (unsigned k = n - 1; k > 1; k--) { /* the last one is the second to be looked at */
		uint8_t last = at[k], w = bytes[k];
		at[k] = at[k - 1];
		bytes[k] = bytes[k - 1];
		at[k - 1] = last;
		bytes[k - 1] = w;
	}
	return n;
}

/*
 * Check a load operand of `size` bytes against the shadow; afterwards the shadow has what was
 * read. Flags are clobbered (the caller has seen to them).
 *
 * A fault is only understood here, not in the routine that imports. So before the first jump to it
 * the operand's first and last bytes have been read: a part is loaded before the jump that depends
 * on the comparison of the part before.
 */
void tr_mem_check(struct tr_build *b, const struct ea *mem, const struct ea *shadow, unsigned size)
{
	int s = tr_reg_scratch(b, ea_regs(mem), false);
	if (b->failed)
		return;
	struct ea by = tr_by_copy(b, shadow, 1u << s | ea_regs(mem), false);
	tr_mark_body(b);
	uint8_t *jumps[5], at[5], bytes[5];
	unsigned n = parts_of(size, at, bytes), n_jumps = 0;
	for (unsigned k = 0; k <= n; k++) {
		if (k && !b->policy.import_all) {
			struct ea sh = ea_add(by, at[k - 1]);
			cg_cmp(b->c, bytes[k - 1], (unsigned)s, &sh);
		}
		if (k < n) {
			struct ea m = ea_add(*mem, at[k]);
			cg_load_zx(b->c, bytes[k], (unsigned)s, &m);
		}
		if (k && !b->policy.import_all)
			jumps[n_jumps++] = cg_jcc(b->c, 5, 0);
	}
	if (b->policy.import_all) /* no prediction: every load is imported */
		jumps[n_jumps++] = cg_jmp(b->c, 0);
	if (!b->c->overflow)
		for (unsigned k = 0; k < n_jumps; k++)
			cg_patch32(jumps[k], b->c->delta, cg_va(b->cold));
	tr_mem_import(b, (unsigned)s, mem, size, cg_va(b->c), rt_import);
}

/* mov/movzx/movsx to a whole register that is not part of the address. */
static void load_to_register(struct tr_build *b, const struct insn *in, const struct ea *mem,
			     const struct ea *shadow)
{
	unsigned d = in->opnd[0].reg, size = in->mem_size;
	tr_flags_clobber(b, false);
	struct ea by = tr_by_copy(b, shadow, 1u << d, false);
	tr_mark_body(b);
	uint8_t *j;
	cg_reencode(b->c, in, mem);
	if (b->policy.import_all) {
		j = cg_jmp(b->c, 0);
	} else {
		cg_cmp(b->c, size, d, &by);
		j = cg_jcc(b->c, 5, 0);
	}
	if (!b->c->overflow)
		cg_patch32(j, b->c->delta, cg_va(b->cold));
	tr_mem_import(b, d, mem, size, 0, rt_import);
	cg_reencode(b->cold, in, shadow);
	cg_jmp(b->cold, cg_va(b->c));
}

void tr_mem_load(struct tr_build *b, unsigned size, unsigned dst, const struct ea *mem,
		 const struct ea *shadow)
{
	tr_flags_clobber(b, false);
	struct ea by = tr_by_copy(b, shadow, 1u << dst, false);
	tr_mark_body(b);
	uint8_t *j;
	cg_load_zx(b->c, size, dst, mem);
	if (b->policy.import_all) {
		j = cg_jmp(b->c, 0);
	} else {
		cg_cmp(b->c, size, dst, &by);
		j = cg_jcc(b->c, 5, 0);
	}
	if (!b->c->overflow)
		cg_patch32(j, b->c->delta, cg_va(b->cold));
	tr_mem_import(b, dst, mem, size, 0, rt_import);
	cg_load_zx(b->cold, size, dst, shadow);
	cg_jmp(b->cold, cg_va(b->c));
	if (b->policy.look && b->insn[b->i].attr & INSN_A_BRANCH)
		tr_order_look(b);
}

/* Copy `size` bytes from the shadow to memory through a scratch register. */
void tr_mem_copy_out(struct tr_build *b, const struct ea *mem, const struct ea *shadow,
		     unsigned size)
{
	int s = tr_reg_scratch(b, ea_regs(mem), false);
	if (b->failed)
		return;
	for (unsigned k = 0; k < size;) {
		unsigned w = size - k >= 8 ? 8 : size - k >= 4 ? 4 : size - k >= 2 ? 2 : 1;
		struct ea m = ea_add(*mem, (int32_t)k), sh = ea_add(*shadow, (int32_t)k);
		cg_load_zx(b->c, w, (unsigned)s, &sh);
		cg_store_size(b->c, w, (unsigned)s, &m);
		k += w;
	}
}

void tr_mem_on_shadow(struct tr_build *b, const struct insn *in, const struct ea *shadow,
		      unsigned size, const struct ea *then_copy)
{
	bool mirror = b->policy.mirror;
	int old = -1;
	if (!mirror) {
		if (size > 8) {
			b->failed = true;
			return;
		}
		old = tr_reg_scratch(b, ea_regs(shadow), false);
		if (b->failed)
			return;
		cg_load_zx(b->c, size, (unsigned)old, shadow);
		cg_store_gs(b->c, (unsigned)old, T_SAVE(4));
	}
	if (!cg_reencode(b->c, in, shadow)) {
		b->failed = true;
		return;
	}
	if (then_copy)
		tr_mem_copy_out(b, then_copy, shadow, size);
	if (!mirror && !b->failed) {
		cg_load_gs(b->c, (unsigned)old, T_SAVE(4));
		cg_store_size(b->c, size, (unsigned)old, shadow);
	}
}

/* ---- the general case ------------------------------------------------------------------ */

/* Whether the instruction does the same with a general register in place of its memory operand. */
static bool register_form(const struct insn *in, unsigned size)
{
	/* the integer family comes first among the ids; cvtsd2si and the like have integer
	 * operands, but a register in place of their memory operand would be a vector register */
	if (in->id >= INSN_MOVS || in->vex || size > 8)
		return false;
	for (unsigned i = 0; i < in->nopnd; i++)
		if (in->opnd[i].kind != OPND_GPR && in->opnd[i].kind != OPND_IMM &&
		    in->opnd[i].kind != OPND_MEM)
			return false;
	switch (in->id) {
	case INSN_MOVBE: /* memory only */
	case INSN_LDMXCSR:
		return false;
	}
	return true;
}

static void load(struct tr_build *b, const struct insn *in, const struct ea *mem,
		 const struct ea *shadow)
{
	unsigned size = in->mem_size;
	bool simple = (in->id == INSN_MOV || in->id == INSN_MOVZX || in->id == INSN_MOVSX ||
		       in->id == INSN_MOVSXD) &&
		      in->opnd[0].kind == OPND_GPR && in->opnd[0].size >= 4 &&
		      !(ea_regs(mem) & 1u << in->opnd[0].reg);
	if (simple) {
		load_to_register(b, in, mem, shadow);
		return;
	}
	if (tr_vec_load(b, in, mem, shadow))
		return;
	if (register_form(in, size)) {
		/* the checked value is in a register: use it from there */
		tr_flags_clobber(b, false); /* while rax has somewhere to go */
		int s = tr_reg_scratch(b, ea_regs(mem), false);
		if (b->failed)
			return;
		tr_mem_load(b, size, (unsigned)s, mem, shadow);
		tr_flags_for_op(b);
		uint8_t *op = b->c->p;
		if (!cg_reencode_reg(b->c, in, (unsigned)s, -1))
			b->failed = true;
		tr_exit_op(b, op);
		return;
	}
	tr_flags_clobber(b, false);
	tr_mem_check(b, mem, shadow, size);
	if (b->failed)
		return;
	tr_flags_for_op(b);
	if (!cg_reencode(b->c, in, shadow))
		b->failed = true;
	return;
}

static void store(struct tr_build *b, const struct insn *in, const struct ea *mem,
		  const struct ea *shadow)
{
	bool mirror = b->policy.mirror;
	tr_flags_for_op(b);
	if (insn_store_pops(in)) {
		if (!mirror) {
			tr_mark_body(b);
			b->failed = !cg_reencode(b->c, in, mem);
			return;
		}
		tr_pop_to_memory(b, in, mem, shadow, in->mem_size);
		return;
	}
	struct ea by = *shadow;
	if (mirror)
		by = tr_by_copy(b, shadow, ea_regs(mem), in->vex == 2 || !(in->rex || in->vex));
	tr_mark_body(b);
	if (!cg_reencode(b->c, in, mem) || (mirror && !cg_reencode(b->c, in, &by)))
		b->failed = true;
}

/*
 * xadd, cmpxchg and its wider forms change registers, too, and may change those that the address is
 * made of. The operation on the shadow comes first, so the address is kept in a register of its own
 * until the result has been copied to memory; and the registers' old values are in their slots
 * until then, because a store that is refused must find nothing changed.
 */
static void keep_for_store(struct tr_build *b, const struct insn *in, struct ea *mem,
			   struct ea *shadow)
{
	if (ea_regs(mem) & in->gpr_written) {
		int a = tr_reg_scratch(b, ea_regs(mem), !(in->rex || in->vex));
		if (b->failed)
			return;
		cg_rm(b->c, 8, 0x8d, (unsigned)a, mem, 0);
		*mem = *shadow = ea_base(a, 0);
		shadow->gs = shadow->a32 = true;
	}
	for (unsigned r = 0; r < 16; r++)
		if (in->gpr_written & 1u << r)
			tr_reg_spill(b, r);
	b->busy |= in->gpr_written; /* the processor has them still */
}

/* Rotates of a register by an immediate other than 1 leave OF alone on Intel's processors, those of
 * memory write it (doc/cpu.md). */
static bool rotates(const struct insn *in)
{
	return (in->id == INSN_ROL || in->id == INSN_ROR || in->id == INSN_RCL ||
		in->id == INSN_RCR) &&
	       in->opnd[in->nopnd - 1].kind != OPND_GPR && in->imm != 1;
}

/* The value is changed in a register, and goes to memory and shadow as by a store. False: it cannot
 * be, and nothing is done yet. */
static bool modify_in_register(struct tr_build *b, const struct insn *in, const struct ea *mem,
			       const struct ea *shadow)
{
	unsigned size = in->mem_size;
	if (!register_form(in, size) || in->gpr_written || rotates(in))
		return false;
	tr_flags_clobber(b, false);
	int s = tr_reg_scratch(b, ea_regs(mem), false);
	struct ea by = tr_by_copy(b, shadow, 1u << s | ea_regs(mem), false);
	if (b->failed)
		return true;
	tr_mem_load(b, size, (unsigned)s, mem, &by); /* from here on it may fault */
	tr_flags_for_op(b);
	if (!cg_reencode_reg(b->c, in, (unsigned)s, -1)) {
		b->failed = true;
		return true;
	}
	cg_store_size(b->c, size, (unsigned)s, mem);
	if (b->policy.mirror)
		cg_store_size(b->c, size, (unsigned)s, &by);
	return true;
}

static void read_modify_write(struct tr_build *b, const struct insn *in, const struct ea *mem,
			      const struct ea *shadow)
{
	unsigned size = in->mem_size;
	struct ea m = *mem, sh = *shadow;
	if (modify_in_register(b, in, mem, shadow))
		return;
	tr_flags_clobber(b, false);
	keep_for_store(b, in, &m, &sh);
	if (b->failed)
		return;
	tr_mem_check(b, &m, &sh, size);
	if (b->failed)
		return;
	tr_flags_for_op(b);
	tr_mem_on_shadow(b, in, &sh, size, &m);
	b->st.spilled &= ~in->gpr_written;
}

void tr_mem_insn(struct tr_build *b)
{
	const struct insn *in = &b->insn[b->i];
	struct ea mem, shadow;
	if (!in->mem_access) {
		b->failed = true;
		return;
	}
	if (!in->modrm_off) {
		tr_far_operand(b, in);
		return;
	}
	if (!tr_mem_operand(b, &mem, &shadow)) {
		b->failed = true;
		return;
	}
	if (in->attr & INSN_A_XSTATE) {
		tr_xsave_insn(b, in, &mem);
		return;
	}
	if (in->attr & INSN_A_ATOMIC) {
		tr_atomic_insn(b, in, &mem);
		return;
	}
	if (in->attr & INSN_A_BITSTRING) {
		tr_bit_string_insn(b, in, &mem);
		return;
	}
	if (in->attr & INSN_A_MASKED) {
		tr_vec_masked(b, in, &mem, &shadow);
		return;
	}
	if (in->mem_size == 0 || in->mem_size > 32) {
		b->failed = true;
		return;
	}
	(in->mem_access == INSN_R   ? load
	 : in->mem_access == INSN_W ? store
				    : read_modify_write)(b, in, &mem, &shadow);
}
