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
 * Vector registers, masks and gathers are translate-vec.c's, atomic instructions
 *translate-atomic.c's.
 */
#include "format/regs.h"
#include "translator/translate-priv.h"

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
				       .a32 = true };
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
				cg_imm(b->c, (unsigned)s, t);
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

void tr_mem_import(struct tr_build *b, unsigned s, const struct ea *mem, unsigned size,
		   uint64_t resume, const uint8_t *routine)
{
	struct cg *c = b->cold;
	struct ea back = { .rip = true, .target = resume };
	if (mem->rip)
		cg_imm(c, s, mem->target);
	else
		cg_rm(c, 8, 0x8d, s, mem, 0);
	cg_store_gs(c, s, T_IMP_ADDR);
	cg_imm_gs(c, T_IMP_DESC, size | b->i << 16);
	cg_rm(c, 8, 0x8d, s, &back, 0);
	uint8_t *at = c->p - 4;
	cg_store_gs(c, s, T_IMP_RET);
	cg_jmp(c, rt_va(b->arena, routine));
	if (!resume && !c->overflow)
		cg_patch32(at, c->delta, cg_va(c));
}

/* Check a load operand of `size` bytes against the shadow; afterwards the shadow has what was
 * read. Flags are clobbered (the caller has seen to them). */
void tr_mem_check(struct tr_build *b, const struct ea *mem, const struct ea *shadow, unsigned size)
{
	int s = tr_reg_scratch(b, ea_regs(mem), false);
	if (b->failed)
		return;
	tr_mark_body(b);
	uint8_t *jumps[8];
	unsigned n = 0;
	for (unsigned k = 0; k < size;) {
		unsigned w = size - k >= 8 ? 8 : size - k >= 4 ? 4 : size - k >= 2 ? 2 : 1;
		struct ea m = ea_add(*mem, (int32_t)k), sh = ea_add(*shadow, (int32_t)k);
		cg_load_zx(b->c, w, (unsigned)s, &m);
		if (b->policy.import_all) { /* no prediction: every load is imported */
			k += w;
			if (k == size)
				jumps[n++] = cg_jmp(b->c, 0);
			continue;
		}
		cg_cmp(b->c, w, (unsigned)s, &sh);
		jumps[n++] = cg_jcc(b->c, 5, 0);
		k += w;
	}
	if (!b->c->overflow)
		for (unsigned k = 0; k < n; k++)
			cg_patch32(jumps[k], b->c->delta, cg_va(b->cold));
	tr_mem_import(b, (unsigned)s, mem, size, cg_va(b->c), rt_import);
}

/* mov/movzx/movsx to a whole register that is not part of the address. */
static void load_to_register(struct tr_build *b, const struct insn *in, const struct ea *mem,
			     const struct ea *shadow)
{
	unsigned d = in->opnd[0].reg, size = in->mem_size;
	tr_flags_clobber(b, false);
	tr_mark_body(b);
	uint8_t *j;
	cg_reencode(b->c, in, mem);
	if (b->policy.import_all) {
		j = cg_jmp(b->c, 0);
	} else {
		cg_cmp(b->c, size, d, shadow);
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
	tr_mark_body(b);
	uint8_t *j;
	cg_load_zx(b->c, size, dst, mem);
	if (b->policy.import_all) {
		j = cg_jmp(b->c, 0);
	} else {
		cg_cmp(b->c, size, dst, shadow);
		j = cg_jcc(b->c, 5, 0);
	}
	if (!b->c->overflow)
		cg_patch32(j, b->c->delta, cg_va(b->cold));
	tr_mem_import(b, dst, mem, size, 0, rt_import);
	cg_load_zx(b->cold, size, dst, shadow);
	cg_jmp(b->cold, cg_va(b->c));
}

/* Copy `size` bytes from the shadow to memory through a scratch register. */
static void copy_out(struct tr_build *b, const struct ea *mem, const struct ea *shadow,
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
		copy_out(b, then_copy, shadow, size);
	if (!mirror && !b->failed) {
		cg_load_gs(b->c, (unsigned)old, T_SAVE(4));
		cg_store_size(b->c, size, (unsigned)old, shadow);
	}
}

void tr_mem_target(struct tr_build *b, const struct ea *mem, const struct ea *shadow)
{
	struct cg *c = b->c;
	if (b->st.flags != TR_FLAGS_HW || b->policy.import_all) {
		tr_mem_load(b, 8, 1, mem, shadow);
		return;
	}
	/* rcx = value - shadow, without flags */
	tr_mark_body(b);
	cg_load(c, 1, mem);
	cg_load(c, 0, shadow);
	cg_bytes(c, "\x48\xf7\xd0", 3); /* not rax */
	struct ea sum = { .base = 1, .index = 0, .scale = 1, .disp = 1 };
	cg_rm(c, 8, 0x8d, 1, &sum, 0);
	uint8_t *same = cg_jcc8(c, 0xe3);
	cg_jmp(c, cg_va(b->cold));
	cg_here8(c, same);
	uint64_t resume = cg_va(c);
	cg_load(c, 1, shadow);
	tr_emit_save_flags(b->cold, RAX_FREE);
	tr_mem_import(b, 1, mem, 8, 0, rt_import);
	tr_emit_restore_flags(b->cold, RAX_FREE);
	cg_jmp(b->cold, resume);
}

/* ---- the general case ------------------------------------------------------------------ */

/*
 * A store that pops the x87 stack, which cannot be executed twice: on the shadow first, then
 * copied. If it raises an exception that is not masked, it neither stores nor pops (SDM vol.
 * 1, 8.5), and nothing may be copied: the status word tells.
 */
static void pop_to_memory(struct tr_build *b, const struct insn *in, const struct ea *mem,
			  const struct ea *shadow, unsigned size)
{
	struct cg *c = b->c, *cold = b->cold;
	struct ea before = ea_gs(T_X87), after = ea_gs(T_X87_AFTER);
	tr_flags_clobber(b, false);
	int s = tr_reg_scratch(b, ea_regs(mem),
			       true); /* now: it may not be spilled behind the point of a fault */
	if (b->failed)
		return;
	cg_rm(c, 4, 0xdd, 7, &before, 0); /* fnstsw */
	tr_mark_body(b);
	if (!cg_reencode(c, in, shadow)) {
		b->failed = true;
		return;
	}
	cg_rm(c, 4, 0xdd, 7, &after, 0);
	cg_rm(c, 4, 0xf6, 0, &after, 1); /* test byte: ES */
	cg8(c, 0x80);
	uint8_t *error = cg_jcc(c, 5, 0);
	if (!c->overflow)
		cg_patch32(error, c->delta, cg_va(cold));
	uint64_t copy = cg_va(c);
	copy_out(b, mem, shadow, size);
	cg_load_zx(cold, 2, (unsigned)s, &before);
	cg_rm(cold, 4, 0x33, (unsigned)s, &after, 0);
	cg_bytes(cold, s == 0 ? "\xa9" : "\xf7", 1); /* test s, TOP */
	if (s)
		cg8(cold, (uint8_t)(0xc0 | s));
	cg32(cold, 7 << 11);
	cg_jcc(cold, 5, copy);
	cg_jmp(cold, cg_va(c));
}

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

/*
 * fxsave and the xsave family: memory only; the shadow is left to heal by imports. The mask in
 * edx:eax is cut down to the components the program knows of (XCR0 as it sees it): with more
 * enabled in the processor the area would be larger than what the program has reserved.
 */
static void xsave(struct tr_build *b, const struct insn *in, const struct ea *mem)
{
	struct cg *c = b->c;
	if (in->id == INSN_FXSAVE) {
		tr_mark_body(b);
		b->failed = !cg_reencode(c, in, mem);
		return;
	}
	if (in->id != INSN_XSAVE && in->id != INSN_XSAVEC && in->id != INSN_XSAVEOPT) {
		b->failed = true;
		return;
	}
	if (mem->base == 0 || mem->base == 2 || mem->index == 0 || mem->index == 2) {
		b->failed = true;
		return;
	}
	tr_flags_clobber(b, false);
	bool rax = b->st.spilled & 1, rdx = b->st.spilled & 4;
	DJ_ASSERT(!rax && !rdx, "xsave with its mask spilled");
	tr_reg_spill(b, 0);
	tr_reg_spill(b, 2);
	cg_bytes(c, "\x83\xe0\x07\x31\xd2", 5); /* and eax, 7; xor edx, edx */
	tr_mark_body(b);
	if (!cg_reencode(c, in, mem)) {
		b->failed = true;
		return;
	}
	tr_reg_reload(b, c, 0);
	tr_reg_reload(b, c, 2);
	b->st.spilled &= ~5u;
	b->st.clean |= 5u;
}

/* mov between the accumulator and an address of 64 bits */
static void far_operand(struct tr_build *b, const struct insn *in)
{
	struct cg *c = b->c;
	unsigned size = in->mem_size;
	int at = tr_reg_scratch(b, 1, false);
	struct ea mem = ea_base(at, 0), shadow;
	if (in->seg) {
		mem.index = (int8_t)tr_reg_scratch(b, 1u | 1u << at, false);
		cg_load_gs(c, (unsigned)mem.index, in->seg == 4 ? T_FSBASE : T_GSBASE);
	}
	int value = in->mem_access == INSN_W || size >= 4
			    ? 0
			    : tr_reg_scratch(b, 1u | ea_regs(&mem), false);
	if (b->failed || in->id != INSN_MOV) {
		b->failed = true;
		return;
	}
	shadow = mem;
	shadow.gs = shadow.a32 = true;
	cg_imm(c, (unsigned)at, (uint64_t)in->disp);
	if (in->mem_access == INSN_W) {
		tr_mark_body(b);
		cg_store_size(c, size, 0, &mem);
		if (b->policy.mirror)
			cg_store_size(c, size, 0, &shadow);
		return;
	}
	tr_mem_load(b, size, (unsigned)value, &mem, &shadow);
	if (size < 4)
		cg_rr(c, size, size == 1 ? 0x88 : 0x89, (unsigned)value, 0);
}

/* al = byte at rbx + al */
void tr_mem_xlat(struct tr_build *b)
{
	const struct insn *in = &b->insn[b->i];
	struct ea mem = { .base = 3, .scale = 1, .a32 = in->addr32 }, shadow;
	int at = tr_reg_scratch(b, 0, false), value = tr_reg_scratch(b, 1u << at, false);
	if (in->seg)
		b->failed = true;
	if (b->failed)
		return;
	mem.index = (int8_t)at;
	shadow = mem;
	shadow.gs = shadow.a32 = true;
	cg_rr(b->c, 4, 0x0fb6, (unsigned)at, 0);
	tr_mem_load(b, 1, (unsigned)value, &mem, &shadow);
	cg_rr(b->c, 1, 0x88, (unsigned)value, 0);
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
		far_operand(b, in);
		return;
	}
	if (!tr_mem_operand(b, &mem, &shadow)) {
		b->failed = true;
		return;
	}
	if (in->attr & INSN_A_XSTATE) {
		xsave(b, in, &mem);
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
	unsigned size = in->mem_size;
	if (size == 0 || size > 32) {
		b->failed = true;
		return;
	}

	if (in->mem_access == INSN_R) {
		bool simple = (in->id == INSN_MOV || in->id == INSN_MOVZX || in->id == INSN_MOVSX ||
			       in->id == INSN_MOVSXD) &&
			      in->opnd[0].kind == OPND_GPR && in->opnd[0].size >= 4 &&
			      !(ea_regs(&mem) & 1u << in->opnd[0].reg);
		if (simple) {
			load_to_register(b, in, &mem, &shadow);
			return;
		}
		if (tr_vec_load(b, in, &mem, &shadow))
			return;
		if (register_form(in, size)) {
			/* the checked value is in a register: use it from there */
			int s = tr_reg_scratch(b, ea_regs(&mem), false);
			if (b->failed)
				return;
			tr_mem_load(b, size, (unsigned)s, &mem, &shadow);
			tr_flags_for_op(b);
			if (!cg_reencode_reg(b->c, in, (unsigned)s, -1))
				b->failed = true;
			return;
		}
		tr_flags_clobber(b, false);
		tr_mem_check(b, &mem, &shadow, size);
		if (b->failed)
			return;
		tr_flags_for_op(b);
		if (!cg_reencode(b->c, in, &shadow))
			b->failed = true;
		return;
	}

	bool mirror = b->policy.mirror;
	if (in->mem_access == INSN_W) {
		tr_flags_for_op(b);
		if (insn_store_pops(in)) {
			if (!mirror) {
				tr_mark_body(b);
				b->failed = !cg_reencode(b->c, in, &mem);
				return;
			}
			pop_to_memory(b, in, &mem, &shadow, size);
			return;
		}
		tr_mark_body(b);
		if (!cg_reencode(b->c, in, &mem) || (mirror && !cg_reencode(b->c, in, &shadow)))
			b->failed = true;
		return;
	}

	/* read-modify-write */
	tr_flags_clobber(b, false);
	tr_mem_check(b, &mem, &shadow, size);
	if (b->failed)
		return;
	tr_flags_for_op(b);
	tr_mem_on_shadow(b, in, &shadow, size, &mem);
}

/* ---- string instructions ------------------------------------------------------------------ */

#define RT(op)                                                                                     \
	extern const uint8_t rt_##op##1_0 [], rt_##op##2_0 [], rt_##op##4_0 [], rt_##op##8_0 [],   \
		rt_##op##1_1 [], rt_##op##2_1 [], rt_##op##4_1 [], rt_##op##8_1 [];
#define RT3(op)                                                                                    \
	RT(op)                                                                                     \
	extern const uint8_t rt_##op##1_2 [], rt_##op##2_2 [], rt_##op##4_2 [], rt_##op##8_2 [];
RT(movs)
RT(stos)
RT(lods)
RT3(cmps)
RT3(scas)

#define ROW2(op)                                                                                   \
	{                                                                                          \
		{ rt_##op##1_0, rt_##op##1_1, rt_##op##1_1 },                                      \
			{ rt_##op##2_0, rt_##op##2_1, rt_##op##2_1 },                              \
			{ rt_##op##4_0, rt_##op##4_1, rt_##op##4_1 },                              \
		{                                                                                  \
			rt_##op##8_0, rt_##op##8_1, rt_##op##8_1                                   \
		}                                                                                  \
	}
#define ROW3(op)                                                                                   \
	{                                                                                          \
		{ rt_##op##1_0, rt_##op##1_1, rt_##op##1_2 },                                      \
			{ rt_##op##2_0, rt_##op##2_1, rt_##op##2_2 },                              \
			{ rt_##op##4_0, rt_##op##4_1, rt_##op##4_2 },                              \
		{                                                                                  \
			rt_##op##8_0, rt_##op##8_1, rt_##op##8_2                                   \
		}                                                                                  \
	}

/* [instruction][log2 width][0 none, 1 rep/repe, 2 repne] */
static const uint8_t *const routines[5][4][3] = { ROW2(movs), ROW2(stos), ROW2(lods), ROW3(cmps),
						  ROW3(scas) };

void tr_string_insn(struct tr_build *b)
{
	const struct insn *in = &b->insn[b->i];
	static const uint16_t ids[5] = { INSN_MOVS, INSN_STOS, INSN_LODS, INSN_CMPS, INSN_SCAS };
	unsigned k = 0;
	while (k < 5 && ids[k] != in->id)
		k++;
	if (k == 5 || in->addr32 || in->seg || !b->policy.mirror) {
		b->failed = true;
		return;
	}
	unsigned width = in->opsize == 1 ? 0 : in->opsize == 2 ? 1 : in->opsize == 4 ? 2 : 3;
	unsigned rep = !(in->attr & INSN_A_REP) ? 0 : in->rep == 0xf2 ? 2 : 1;
	struct cg *c = b->c;
	struct tr_finsn *fi = &b->f->insn[b->i];

	tr_flags_clobber(b, false);
	for (unsigned r = 8; r < 12; r++)
		tr_reg_spill(b, r);
	cg_imm_gs(c, T_RT_STEP, b->i << 16);
	bool compares = k >= 3;
	uint8_t *skip = NULL;
	if (compares && rep)
		skip = cg_jcc8(c, 0xe3); /* jrcxz: no iteration, flags stay */
	/* return address: behind the jump */
	cg8(c, 0x4c);
	cg8(c, 0x8d);
	cg8(c, 0x05);
	cg32(c, 0); /* lea r8, [rip + ...] */
	uint8_t *at = c->p - 4;
	cg_store_gs(c, 8, T_RT_RET);
	tr_mark_body(b);
	fi->id_string = 1;
	cg_jmp(c, rt_va(b->arena, routines[k][width][rep]));
	cg8(c, 0x90); /* T_RT_RET - 1 lies in this instruction */
	if (!c->overflow)
		cg_patch32(at, c->delta, cg_va(c));
	if (skip) {
		/* both paths meet with flags in the processor */
		uint8_t *over = cg_jcc8(c, 0xeb);
		cg_here8(c, skip);
		if (b->st.flags == TR_FLAGS_SAVED) {
			tr_flags_need(b, c);
			b->st.flags = TR_FLAGS_SAVED;
		}
		cg_here8(c, over);
	}
}
