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
 * is checked like a load, executed on the shadow, and the result is copied to memory. An
 * atomic one is performed on memory first, in a form that leaves the old value in a register; that
 * value is what was consumed: it is compared with the shadow (and put into the imported line if it
 * differs); then the instruction is executed on the shadow for its flags and registers.
 */
#include "format/regs.h"
#include "recorder/translate-priv.h"

/* The instruction's memory operand as it is to be used on memory and on the shadow. May take a
 * scratch register (fs-relative, or an absolute address out of reach). */
bool b_operand(struct build *b, struct ea *mem, struct ea *shadow)
{
	const struct insn *in = &b->insn[b->i];
	bool low = in->vex == 2 || !(in->rex || in->vex);
	struct ea m = {.base = -1, .index = -1, .scale = 1};
	if (in->base == INSN_RIP) {
		uint64_t t = in->addr32 ? (uint32_t)in->target : in->target;
		*shadow = (struct ea){.base = -1, .index = -1, .scale = 1,
				      .disp = (int32_t)(uint32_t)t, .gs = true, .a32 = true};
		if ((int64_t)t == (int32_t)t) {
			m.disp = (int32_t)t;
		} else {
			int64_t d = (int64_t)(t - cg_va(b->c));
			if (d > -0x7f000000LL && d < 0x7f000000LL) {
				m.rip = true;
				m.target = t;
			} else {
				int s = b_scratch(b, 0, low);
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
	if (in->disp != m.disp)
		return false; /* moffs */
	if (in->seg == 4) {
		if (in->addr32)
			return false;
		int s = b_scratch(b, 0, low);
		if (b->failed)
			return false;
		cg_load_gs(b->c, (unsigned)s, T_FSBASE);
		if (m.base >= 0) {
			struct ea sum = {.base = (int8_t)s, .index = m.base == 4 ? -1 : m.base, .scale = 1};
			if (m.base == 4) {
				sum.base = 4;
				sum.index = (int8_t)s;
			}
			if (s == 4)
				return false;
			cg_rm(b->c, 8, 0x8d, (unsigned)s, &sum, 0);
		}
		m.base = (int8_t)s;
	} else if (in->seg) {
		return false;
	}
	*mem = m;
	*shadow = m;
	shadow->gs = true;
	shadow->a32 = true;
	return true;
}

/* The cold side of a check: import `size` bytes at `mem` and go on at hot address `resume`. `s` may be
 * overwritten and is not part of the operand. If `reload`, s is then loaded from the shadow. */
static void cold_import(struct build *b, unsigned s, const struct ea *mem, const struct ea *shadow,
			unsigned size, unsigned ordinal, uint64_t resume, unsigned reload_size,
			const uint8_t *routine)
{
	struct cg *c = b->cold;
	struct ea m = *mem;
	if (m.rip)
		cg_imm(c, s, m.target);
	else
		cg_rm(c, 8, 0x8d, s, &m, 0);
	cg_store_gs(c, s, T_IMP_ADDR);
	cg_imm_gs(c, T_IMP_DESC, size | ordinal << 8 | b->i << 16);
	uint64_t ret = resume;
	uint8_t *at = NULL;
	if (reload_size) {
		/* the return address is not known yet: fill it in below */
		cg8(c, s >= 8 ? 0x4c : 0x48);
		cg8(c, 0x8d);
		cg8(c, (uint8_t)(5 | (s & 7) << 3));
		cg32(c, 0);
		at = c->p - 4;
	} else {
		struct ea back = {.rip = true, .target = ret};
		cg_rm(c, 8, 0x8d, s, &back, 0);
	}
	cg_store_gs(c, s, T_IMP_RET);
	cg_jmp(c, rt_va(b->arena, routine));
	if (reload_size) {
		if (!c->overflow)
			cg_patch32(at, c->delta, cg_va(c));
		/* as the instruction itself loads */
		(void)shadow;
		(void)reload_size;
	}
}

/* Check a load operand of `size` bytes against the shadow; afterwards the shadow has what was
 * read. Flags are clobbered (the caller has seen to them). */
void b_check(struct build *b, const struct ea *mem, const struct ea *shadow, unsigned size)
{
	uint32_t avoid = 0;
	if (mem->base >= 0)
		avoid |= 1u << mem->base;
	if (mem->index >= 0)
		avoid |= 1u << mem->index;
	int s = b_scratch(b, avoid, false);
	if (b->failed)
		return;
	b_mark_body(b);
	uint8_t *jumps[8];
	unsigned n = 0;
	for (unsigned k = 0; k < size;) {
		unsigned w = size - k >= 8 ? 8 : size - k >= 4 ? 4 : size - k >= 2 ? 2 : 1;
		struct ea m = ea_add(*mem, (int32_t)k), sh = ea_add(*shadow, (int32_t)k);
		cg_load_zx(b->c, w, (unsigned)s, &m);
		if (b->tr->predict == 2) { /* no prediction: every load is imported */
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
	cold_import(b, (unsigned)s, mem, shadow, size, 0, cg_va(b->c), 0, rt_import);
}

/* mov/movzx/movsx to a whole register that is not part of the address. */
static void load_to_register(struct build *b, const struct insn *in, const struct ea *mem,
			     const struct ea *shadow)
{
	unsigned d = in->opnd[0].reg, size = in->mem_size;
	b_clobber_flags(b, false);
	b_mark_body(b);
	uint8_t *j;
	cg_reencode(b->c, in, mem);
	if (b->tr->predict == 2) {
		j = cg_jmp(b->c, 0);
	} else {
		cg_cmp(b->c, size, d, shadow);
		j = cg_jcc(b->c, 5, 0);
	}
	if (!b->c->overflow)
		cg_patch32(j, b->c->delta, cg_va(b->cold));
	cold_import(b, d, mem, shadow, size, 0, 0, size, rt_import);
	cg_reencode(b->cold, in, shadow);
	cg_jmp(b->cold, cg_va(b->c));
}

void b_checked_load(struct build *b, unsigned size, unsigned dst, const struct ea *mem,
		    const struct ea *shadow)
{
	b_clobber_flags(b, false);
	b_mark_body(b);
	uint8_t *j;
	cg_load_zx(b->c, size, dst, mem);
	if (b->tr->predict == 2) {
		j = cg_jmp(b->c, 0);
	} else {
		cg_cmp(b->c, size, dst, shadow);
		j = cg_jcc(b->c, 5, 0);
	}
	if (!b->c->overflow)
		cg_patch32(j, b->c->delta, cg_va(b->cold));
	cold_import(b, dst, mem, shadow, size, 0, 0, size, rt_import);
	cg_load_zx(b->cold, size, dst, shadow);
	cg_jmp(b->cold, cg_va(b->c));
}

/* Copy `size` bytes from the shadow to memory through a scratch register. */
static void copy_out(struct build *b, const struct ea *mem, const struct ea *shadow, unsigned size)
{
	uint32_t avoid = 0;
	if (mem->base >= 0)
		avoid |= 1u << mem->base;
	if (mem->index >= 0)
		avoid |= 1u << mem->index;
	int s = b_scratch(b, avoid, false);
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

/* Execute the instruction on the shadow. Without mirroring the shadow gets its old bytes back
 * afterwards; `then_copy` (may be NULL) is where the result goes in memory before that. */
static void on_shadow(struct build *b, const struct insn *in, const struct ea *shadow, unsigned size,
		      const struct ea *then_copy)
{
	bool mirror = b->tr->predict == 0;
	int old = -1;
	if (!mirror) {
		uint32_t avoid = 0;
		if (size > 8) {
			b->failed = true;
			return;
		}
		if (shadow->base >= 0)
			avoid |= 1u << shadow->base;
		if (shadow->index >= 0)
			avoid |= 1u << shadow->index;
		old = b_scratch(b, avoid, false);
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

void b_checked_target(struct build *b, const struct ea *mem, const struct ea *shadow)
{
	struct cg *c = b->c;
	if (b->st.flags != FLAGS_HW || b->tr->predict == 2) {
		b_checked_load(b, 8, 1, mem, shadow);
		return;
	}
	/* rcx = value - shadow, without flags */
	b_mark_body(b);
	cg_load(c, 1, mem);
	cg_load(c, 0, shadow);
	cg_bytes(c, "\x48\xf7\xd0", 3); /* not rax */
	struct ea sum = {.base = 1, .index = 0, .scale = 1, .disp = 1};
	cg_rm(c, 8, 0x8d, 1, &sum, 0);
	uint8_t *same = cg_jcc8(c, 0xe3);
	cg_jmp(c, cg_va(b->cold));
	cg_here8(c, same);
	uint64_t resume = cg_va(c);
	cg_load(c, 1, shadow);
	emit_save_flags(b->cold, RAX_FREE);
	cold_import(b, 1, mem, shadow, 8, 0, 0, 8, rt_import);
	emit_restore_flags(b->cold, RAX_FREE);
	cg_jmp(b->cold, resume);
}

static bool uses_reg(const struct ea *m, unsigned r)
{
	return m->base == (int)r || m->index == (int)r;
}

/* ---- atomics ------------------------------------------------------------------------- */

/* Compare register `old` (what was consumed) with the shadow at [a]; `hi` >= 0 is the upper half. */
static void check_consumed(struct build *b, unsigned a, unsigned old, int hi, unsigned size)
{
	struct ea sh = ea_base((int)a, 0), mem = sh;
	sh.gs = sh.a32 = true;
	unsigned half = hi >= 0 ? size / 2 : size;
	struct cg *c = b->c;
	uint8_t *j[2] = {NULL, NULL};
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
	cg_imm_gs(b->cold, T_IMP_DESC, size | b->i << 16);
	cg_store_gs(b->cold, a, T_SAVE(6));
	struct ea back = {.rip = true, .target = cg_va(c)};
	/* the routine keeps all registers; borrow the address register for the return address */
	cg_rm(b->cold, 8, 0x8d, a, &back, 0);
	cg_store_gs(b->cold, a, T_IMP_RET);
	cg_load_gs(b->cold, a, T_SAVE(6));
	cg_jmp(b->cold, rt_va(b->arena, rt_import_patch8));
	(void)mem;
}

/* LOCK-prefixed instructions, and xchg with memory. */
static void atomic(struct build *b, const struct insn *in, const struct ea *mem)
{
	struct cg *c = b->c;
	unsigned size = in->mem_size;
	bool low = !(in->rex || in->vex);
	for (unsigned k = 0; k < in->nopnd; k++)
		if (in->opnd[k].kind == OPND_GPR8H)
			b->failed = true;
	if (in->attr & INSN_A_BITSTRING || in->id == INSN_ADC || in->id == INSN_SBB)
		b->failed = true;
	if (b->failed)
		return;
	b_clobber_flags(b, false);
	uint32_t taken = mem->base >= 0 ? 1u << mem->base : 0;
	int a = b_scratch(b, taken | 1, low); /* not rax, which cmpxchg wants */
	if (b->failed)
		return;
	struct ea m = *mem;
	if (m.rip)
		cg_imm(c, (unsigned)a, m.target);
	else
		cg_rm(c, 8, 0x8d, (unsigned)a, &m, 0);
	struct ea at = ea_base(a, 0), sh = at;
	sh.gs = sh.a32 = true;
	unsigned reg = in->nopnd > 1 && in->opnd[1].kind == OPND_GPR ? in->opnd[1].reg : 0;
	if (in->id == INSN_XCHG && in->opnd[0].kind == OPND_GPR)
		reg = in->opnd[0].reg;

	switch (in->id) {
	case INSN_XCHG:
	case INSN_XADD: {
		int s = b_scratch(b, 1u << a | taken, false);
		if (b->failed)
			return;
		cg_rr(c, 8, 0x89, reg, (unsigned)s);
		b_mark_body(b);
		if (in->id == INSN_XCHG) {
			cg_rm(c, size, size == 1 ? 0x86 : 0x87, (unsigned)s, &at, 0);
		} else {
			cg8(c, 0xf0);
			cg_rm(c, size, size == 1 ? 0x0fc0 : 0x0fc1, (unsigned)s, &at, 0);
		}
		check_consumed(b, (unsigned)a, (unsigned)s, -1, size);
		break;
	}
	case INSN_CMPXCHG:
	case INSN_CMPXCHG8B:
	case INSN_CMPXCHG16B: {
		bool pair = in->id != INSN_CMPXCHG;
		bool had_rax = b->st.spilled & 1, had_rdx = b->st.spilled & 4;
		DJ_ASSERT(!had_rax, "cmpxchg with rax spilled");
		b_spill(b, 0);
		if (pair) {
			DJ_ASSERT(!had_rdx, "cmpxchg16b with rdx spilled");
			b_spill(b, 2);
		}
		b_mark_body(b);
		cg8(c, 0xf0);
		if (!cg_reencode(c, in, &at)) {
			b->failed = true;
			return;
		}
		check_consumed(b, (unsigned)a, 0, pair ? 2 : -1, size);
		b_reload(b, c, 0);
		b->st.spilled &= ~1u;
		if (pair) {
			b_reload(b, c, 2);
			b->st.spilled &= ~4u;
		}
		break;
	}
	default: {
		/* rax = old; loop: t = op(old); lock cmpxchg */
		bool reg_form = in->nopnd > 1 && in->opnd[1].kind == OPND_GPR;
		bool rax_was_spilled = b->st.spilled & 1;
		int t = b_scratch(b, 1u << a | 1u | taken, false);
		int u = -1;
		if (reg_form && reg == 0) {
			u = b_scratch(b, 1u << a | 1u << t | 1u | taken, false);
			if (b->failed)
				return;
			cg_rr(c, 8, 0x89, 0, (unsigned)u);
		}
		if (b->failed)
			return;
		b_spill(b, 0);
		b_mark_body(b);
		cg_load_zx(c, size, 0, &at);
		uint64_t loop = cg_va(c);
		cg_rr(c, 8, 0x89, 0, (unsigned)t);
		if (!cg_reencode_reg(c, in, (unsigned)t, reg_form ? (u >= 0 ? u : (int)reg) : -1)) {
			b->failed = true;
			return;
		}
		cg8(c, 0xf0);
		cg_rm(c, size, size == 1 ? 0x0fb0 : 0x0fb1, (unsigned)t, &at, 0);
		cg_jcc(c, 5, loop);
		check_consumed(b, (unsigned)a, 0, -1, size);
		if (!rax_was_spilled) {
			b_reload(b, c, 0);
			b->st.spilled &= ~1u;
		}
		break;
	}
	}
	/* inc and dec keep CF, so the operation on the shadow may need the old flags */
	b_flags_for_op(b);
	on_shadow(b, in, &sh, size, NULL);
}

/* ---- the general case ------------------------------------------------------------------ */

/* Stores that may not be executed twice: they pop the x87 stack. */
static bool store_once(const struct insn *in)
{
	switch (in->id) {
	case INSN_FSTP:
	case INSN_FISTP:
	case INSN_FISTTP:
	case INSN_FBSTP:
	case INSN_FNSTENV:
	case INSN_FNSAVE:
		return true;
	}
	return false;
}

/*
 * Such a store: on the shadow first, then copied. If it raises an exception that is not masked, it neither
 * stores nor pops (SDM vol. 1, 8.5), and nothing may be copied: the status word tells.
 */
static void pop_to_memory(struct build *b, const struct insn *in, const struct ea *mem, const struct ea *shadow,
			  unsigned size)
{
	struct cg *c = b->c, *cold = b->cold;
	struct ea before = ea_gs(T_X87), after = ea_gs(T_X87_AFTER);
	uint32_t avoid = (mem->base >= 0 ? 1u << mem->base : 0) | (mem->index >= 0 ? 1u << mem->index : 0);
	b_clobber_flags(b, false);
	int s = b_scratch(b, avoid, true); /* now: it may not be spilled behind the point of a fault */
	if (b->failed)
		return;
	cg_rm(c, 4, 0xdd, 7, &before, 0); /* fnstsw */
	b_mark_body(b);
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

/* A load of a scalar into a vector register: zero-extended to 128 bits by the instruction, and just so by
 * a movd or movq from the general register that was checked. */
static bool scalar_load(const struct insn *in)
{
	switch (in->id) {
	case INSN_MOVSD:
	case INSN_MOVSS:
	case INSN_MOVQ:
	case INSN_MOVD:
		return in->opnd[0].kind == OPND_VEC && in->nopnd == 2 && in->opnd[1].kind == OPND_MEM &&
		       (in->mem_size == 4 || in->mem_size == 8);
	}
	return false;
}

/* A load of a whole vector register. */
static bool whole_load(const struct insn *in)
{
	switch (in->id) {
	case INSN_MOVDQU:
	case INSN_MOVUPS:
	case INSN_MOVUPD:
	case INSN_LDDQU:
		/* the legacy form of pxor wants its operand aligned */
		return in->vex && in->opnd[0].kind == OPND_VEC;
	case INSN_MOVDQA:
	case INSN_MOVAPS:
	case INSN_MOVAPD:
		return in->opnd[0].kind == OPND_VEC;
	}
	return false;
}

/* Loads of vector registers that can be checked in less than eight bytes at a time. */
static bool vector_load(struct build *b, const struct insn *in, const struct ea *mem, const struct ea *shadow)
{
	struct cg *c = b->c;
	if (b->tr->predict == 2)
		return false;
	uint32_t avoid = (mem->base >= 0 ? 1u << mem->base : 0) | (mem->index >= 0 ? 1u << mem->index : 0);
	if (scalar_load(in)) {
		int s = b_scratch(b, avoid, false);
		if (b->failed)
			return true;
		b_checked_load(b, in->mem_size, (unsigned)s, mem, shadow);
		unsigned d = in->opnd[0].reg;
		bool wide = in->mem_size == 8;
		if (in->vex) { /* vmovd/vmovq xmm, r: VEX.128.66.0F.W0/W1 6E /r */
			cg8(c, 0xc4);
			cg8(c, (uint8_t)((d >= 8 ? 0 : 0x80) | 0x40 | (s >= 8 ? 0 : 0x20) | 1));
			cg8(c, wide ? 0xf9 : 0x79);
			cg8(c, 0x6e);
			cg8(c, (uint8_t)(0xc0 | (d & 7) << 3 | (s & 7)));
		} else {
			cg8(c, 0x66);
			cg_rr(c, wide ? 8 : 4, 0x0f6e, d, (unsigned)s);
		}
		return true;
	}
	if (!whole_load(in))
		return false;
	/* load; xor with the shadow; nothing left? then load from the shadow */
	int s = b_scratch(b, avoid, false); /* for the import only */
	if (b->failed)
		return true;
	b_clobber_flags(b, false);
	b_mark_body(b);
	unsigned d = in->opnd[0].reg;
	cg_reencode(c, in, mem);
	if (in->vex) {
		/* vxorps d, d, gs:[m]: VEX.0F.WIG 57 /r, made from the load by its fields */
		struct insn x = *in;
		x.bytes[0] = 0xc4;
		x.bytes[1] = (uint8_t)((d >= 8 ? 0 : 0x80) | 0x60 | 1);
		x.bytes[2] = (uint8_t)((~d & 15) << 3 | (in->vex_l ? 4 : 0));
		x.bytes[3] = 0x57;
		x.vex = 3;
		x.rex_off = 0;
		x.opcode_off = 3;
		x.modrm_off = 4;
		x.opcode = 0x57;
		cg_reencode(c, &x, shadow);
		/* vptest d, d: VEX.66.0F38.WIG 17 /r */
		cg8(c, 0xc4);
		cg8(c, (uint8_t)((d >= 8 ? 0 : 0x80) | 0x40 | (d >= 8 ? 0 : 0x20) | 2));
		cg8(c, (uint8_t)(0x79 | (in->vex_l ? 4 : 0)));
		cg8(c, 0x17);
	} else {
		cg_rm(c, 4, 0x0f57, d, shadow, 0); /* xorps d, gs:[m] */
		cg8(c, 0x66);
		if (d >= 8)
			cg8(c, 0x45);
		cg_bytes(c, "\x0f\x38\x17", 3); /* ptest d, d */
	}
	cg8(c, (uint8_t)(0xc0 | (d & 7) << 3 | (d & 7)));
	uint8_t *j = cg_jcc(c, 5, 0);
	if (!c->overflow)
		cg_patch32(j, c->delta, cg_va(b->cold));
	cold_import(b, (unsigned)s, mem, shadow, in->mem_size, 0, cg_va(c), 0, rt_import);
	cg_reencode(c, in, shadow);
	return true;
}

/* Whether the instruction does the same with a general register in place of its memory operand. */
static bool register_form(const struct insn *in, unsigned size)
{
	/* the integer family comes first among the ids; cvtsd2si and the like have integer
	 * operands, but a register in place of their memory operand would be a vector register */
	if (in->id >= INSN_MOVS || in->vex || size > 8)
		return false;
	for (unsigned i = 0; i < in->nopnd; i++)
		if (in->opnd[i].kind != OPND_GPR && in->opnd[i].kind != OPND_IMM && in->opnd[i].kind != OPND_MEM)
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
 * edx:eax is cut down to the components the program knows of (XCR0 as it sees it): with more enabled
 * in the processor the area would be larger than what the program has reserved.
 */
static void xsave(struct build *b, const struct insn *in, const struct ea *mem)
{
	struct cg *c = b->c;
	if (in->id == INSN_FXSAVE) {
		b_mark_body(b);
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
	b_clobber_flags(b, false);
	bool rax = b->st.spilled & 1, rdx = b->st.spilled & 4;
	DJ_ASSERT(!rax && !rdx, "xsave with its mask spilled");
	b_spill(b, 0);
	b_spill(b, 2);
	cg_bytes(c, "\x83\xe0\x07\x31\xd2", 5); /* and eax, 7; xor edx, edx */
	b_mark_body(b);
	if (!cg_reencode(c, in, mem)) {
		b->failed = true;
		return;
	}
	b_reload(b, c, 0);
	b_reload(b, c, 2);
	b->st.spilled &= ~5u;
	b->st.clean |= 5u;
}

void b_memory(struct build *b)
{
	const struct insn *in = &b->insn[b->i];
	struct ea mem, shadow;
	if (in->attr & (INSN_A_BITSTRING | INSN_A_MASKED) || !in->modrm_off || !in->mem_access) {
		b->failed = true;
		return;
	}
	if (!b_operand(b, &mem, &shadow)) {
		b->failed = true;
		return;
	}
	if (in->attr & INSN_A_XSTATE) {
		xsave(b, in, &mem);
		return;
	}
	if (in->attr & INSN_A_ATOMIC) {
		atomic(b, in, &mem);
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
			      !uses_reg(&mem, in->opnd[0].reg);
		if (simple) {
			load_to_register(b, in, &mem, &shadow);
			return;
		}
		if (vector_load(b, in, &mem, &shadow))
			return;
		if (register_form(in, size)) {
			/* the checked value is in a register: use it from there */
			uint32_t avoid = (mem.base >= 0 ? 1u << mem.base : 0) |
					 (mem.index >= 0 ? 1u << mem.index : 0);
			int s = b_scratch(b, avoid, false);
			if (b->failed)
				return;
			b_checked_load(b, size, (unsigned)s, &mem, &shadow);
			b_flags_for_op(b);
			if (!cg_reencode_reg(b->c, in, (unsigned)s, -1))
				b->failed = true;
			return;
		}
		b_clobber_flags(b, false);
		b_check(b, &mem, &shadow, size);
		if (b->failed)
			return;
		b_flags_for_op(b);
		if (!cg_reencode(b->c, in, &shadow))
			b->failed = true;
		return;
	}

	bool mirror = b->tr->predict == 0;
	if (in->mem_access == INSN_W) {
		b_flags_for_op(b);
		if (store_once(in)) {
			if (!mirror) {
				b_mark_body(b);
				b->failed = !cg_reencode(b->c, in, &mem);
				return;
			}
			pop_to_memory(b, in, &mem, &shadow, size);
			return;
		}
		b_mark_body(b);
		if (!cg_reencode(b->c, in, &mem) || (mirror && !cg_reencode(b->c, in, &shadow)))
			b->failed = true;
		return;
	}

	/* read-modify-write */
	b_clobber_flags(b, false);
	b_check(b, &mem, &shadow, size);
	if (b->failed)
		return;
	b_flags_for_op(b);
	on_shadow(b, in, &shadow, size, &mem);
}

/* ---- string instructions ------------------------------------------------------------------ */

#define RT(op)                                                                                     \
	extern const uint8_t rt_##op##1_0[], rt_##op##2_0[], rt_##op##4_0[], rt_##op##8_0[],       \
		rt_##op##1_1[], rt_##op##2_1[], rt_##op##4_1[], rt_##op##8_1[];
#define RT3(op)                                                                                    \
	RT(op)                                                                                     \
	extern const uint8_t rt_##op##1_2[], rt_##op##2_2[], rt_##op##4_2[], rt_##op##8_2[];
RT(movs)
RT(stos)
RT(lods)
RT3(cmps)
RT3(scas)

#define ROW2(op) {{rt_##op##1_0, rt_##op##1_1, rt_##op##1_1}, {rt_##op##2_0, rt_##op##2_1, rt_##op##2_1}, \
		  {rt_##op##4_0, rt_##op##4_1, rt_##op##4_1}, {rt_##op##8_0, rt_##op##8_1, rt_##op##8_1}}
#define ROW3(op) {{rt_##op##1_0, rt_##op##1_1, rt_##op##1_2}, {rt_##op##2_0, rt_##op##2_1, rt_##op##2_2}, \
		  {rt_##op##4_0, rt_##op##4_1, rt_##op##4_2}, {rt_##op##8_0, rt_##op##8_1, rt_##op##8_2}}

/* [instruction][log2 width][0 none, 1 rep/repe, 2 repne] */
static const uint8_t *const routines[5][4][3] = {ROW2(movs), ROW2(stos), ROW2(lods), ROW3(cmps), ROW3(scas)};

void b_string(struct build *b)
{
	const struct insn *in = &b->insn[b->i];
	static const uint16_t ids[5] = {INSN_MOVS, INSN_STOS, INSN_LODS, INSN_CMPS, INSN_SCAS};
	unsigned k = 0;
	while (k < 5 && ids[k] != in->id)
		k++;
	if (k == 5 || in->addr32 || in->seg || b->tr->predict != 0) {
		b->failed = true;
		return;
	}
	unsigned width = in->opsize == 1 ? 0 : in->opsize == 2 ? 1 : in->opsize == 4 ? 2 : 3;
	unsigned rep = !(in->attr & INSN_A_REP) ? 0 : in->rep == 0xf2 ? 2 : 1;
	struct cg *c = b->c;
	struct finsn *fi = &b->f->insn[b->i];

	b_clobber_flags(b, false);
	for (unsigned r = 8; r < 12; r++)
		b_spill(b, r);
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
	b_mark_body(b);
	fi->id_string = 1;
	cg_jmp(c, rt_va(b->arena, routines[k][width][rep]));
	cg8(c, 0x90); /* T_RT_RET - 1 lies in this instruction */
	if (!c->overflow)
		cg_patch32(at, c->delta, cg_va(c));
	if (skip) {
		/* both paths meet with flags in the processor */
		uint8_t *over = cg_jcc8(c, 0xeb);
		cg_here8(c, skip);
		if (b->st.flags == FLAGS_SAVED) {
			b_need_flags(b, c);
			b->st.flags = FLAGS_SAVED;
		}
		cg_here8(c, over);
	}
}
