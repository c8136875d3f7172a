/*
 * Which instructions make a block, and what is done with each.
 *
 * What is not surely a function of registers and shadow, or accesses memory in a way that is not
 * its ModRM operand, is for the emulator. An instruction is copied only if it has no access to
 * memory at all, so nothing in generated code reaches what it should not.
 */
#include "fast/fast-parts.h"
#include "format/regs.h"

#define JOIN 16 /* a block this long ends where another one begins */

static bool known_operands(const struct insn *in)
{
	for (unsigned i = 0; i < in->nopnd; i++)
		switch (in->opnd[i].kind) {
		case OPND_GPR:
		case OPND_GPR8H:
		case OPND_VEC:
		case OPND_MEM:
		case OPND_IMM:
		case OPND_REL:
		case OPND_VSIB:
		case OPND_X87:
		case OPND_MMX:
			break;
		default:
			return false;
		}
	return true;
}

/* Elements under a mask. Equal registers of a gather are an invalid opcode. */
static enum fast_how masked(const struct insn *in)
{
	if (in->id == INSN_MASKMOVDQU || in->id == INSN_MASKMOVQ || !in->vex)
		return FAST_OUT;
	if (in->nopnd < 3)
		return FAST_OUT;
	if (in->opnd[1].kind == OPND_VSIB &&
	    (in->opnd[0].reg == in->index || in->opnd[0].reg == in->opnd[2].reg ||
	     in->index == in->opnd[2].reg))
		return FAST_OUT;
	return FAST_SHADOW;
}

static enum fast_how branch(const struct insn *in)
{
	if (in->opsize16 && !(in->rex & 8)) /* differs between processors */
		return FAST_OUT;
	switch (in->id) {
	case INSN_JMP:
		return in->attr & INSN_A_INDIRECT ? FAST_INDIRECT : FAST_JUMP;
	case INSN_CALL:
		return in->attr & INSN_A_INDIRECT ? FAST_INDIRECT : FAST_CALL;
	case INSN_RET:
		return FAST_RET;
	case INSN_JCC:
		return FAST_COND;
	case INSN_JRCXZ:
	case INSN_LOOP:
		return in->addr32 ? FAST_OUT : FAST_COND;
	}
	return FAST_OUT;
}

static enum fast_how stack(const struct insn *in)
{
	unsigned kind = in->opnd[0].kind;
	if (in->opsize16 && !(in->rex & 8))
		return FAST_OUT;
	switch (in->id) {
	case INSN_PUSH:
	case INSN_POP:
		if (kind == OPND_MEM && (in->mem_size != 8 || !in->modrm_off))
			return FAST_OUT;
		if (kind == OPND_IMM)
			return in->id == INSN_PUSH ? FAST_PUSH : FAST_OUT;
		if (kind != OPND_GPR && kind != OPND_MEM)
			return FAST_OUT;
		return in->id == INSN_PUSH ? FAST_PUSH : FAST_POP;
	case INSN_LEAVE:
		return FAST_LEAVE;
	}
	return FAST_OUT;
}

static bool on_memory(const struct insn *in)
{
	return in->has_mem && !(in->attr & INSN_A_NOACCESS);
}

static enum fast_how how_of(const struct insn *in)
{
	if (!insn_is_emulated(in) || in->vex > 3 || (in->lock && !insn_lockable(in)))
		return FAST_OUT;
	if (in->attr & (INSN_A_PRIV | INSN_A_NONDET | INSN_A_SYSCALL | INSN_A_STRING))
		return FAST_OUT;
	switch (in->id) {
	case INSN_RDSSP:
	case INSN_NOP:
	case INSN_ENDBR:
	case INSN_PAUSE:
	case INSN_PREFETCH:
	case INSN_CLFLUSH:
	case INSN_CLFLUSHOPT:
	case INSN_CLWB:
		return FAST_NOTHING;
	case INSN_XSAVE: /* their stores are not mirrored, but told */
	case INSN_XSAVEC:
	case INSN_XSAVEOPT:
	case INSN_FXSAVE:
	case INSN_LDMXCSR:
	case INSN_VLDMXCSR:
	case INSN_STD:
	case INSN_XLAT:
		return FAST_OUT;
	}
	if (!known_operands(in) || insn_lacked(in))
		return FAST_OUT;
	if (in->attr & INSN_A_FENCE)
		return FAST_FENCE;
	if (in->attr & INSN_A_BRANCH)
		return branch(in);
	if (in->attr & INSN_A_STACK)
		return stack(in);
	/* the place of a bit is found from a register's 64 bits: it may be anywhere */
	if ((in->attr & (INSN_A_BITSTRING | INSN_A_XSTATE)) && on_memory(in))
		return FAST_OUT;
	if (in->attr & INSN_A_MASKED)
		return masked(in);
	if (!in->has_mem)
		return FAST_COPY;
	if (in->id == INSN_LEA) {
		if (in->base != INSN_RIP)
			return FAST_COPY;
		return in->opnd[0].size >= 4 ? FAST_LEA : FAST_OUT;
	}
	if (!on_memory(in) || !in->mem_access || !in->modrm_off || !in->mem_size ||
	    in->mem_size > 32)
		return FAST_OUT;
	return FAST_SHADOW;
}

/* ---- flags ----------------------------------------------------------------------------- */

/* Arithmetic flags that it may read. What it may leave as they were counts. */
static uint32_t flags_used(const struct insn *in)
{
	uint32_t used = in->flags_read & DJ_FLAGS_ARITH;

	if (in->attr & INSN_A_FLAGSCOND)
		used |= in->flags_written & DJ_FLAGS_ARITH;
	if (in->id == INSN_RCL || in->id == INSN_RCR)
		used |= DJ_FLAG_CF;
	return used;
}

/* Arithmetic flags that do not depend on those of before any more. Undefined ones may, but for AF
 * after an AND or the like, which is 0 (doc/cpu.md). */
static uint32_t flags_new(const struct insn *in)
{
	switch (in->id) {
	case INSN_AND:
	case INSN_OR:
	case INSN_XOR:
	case INSN_TEST:
		return DJ_FLAGS_ARITH;
	}
	return in->attr & INSN_A_FLAGSCOND ? 0 : in->flags_written & ~in->flags_undefined;
}

/* Whether arithmetic flags of before the block may still be seen after its first FAST_BIAS
 * instructions, or by an instruction. */
static bool flags_live(const struct fast_scan *s)
{
	uint32_t open = DJ_FLAGS_ARITH;

	for (unsigned i = 0; i < s->n && i < FAST_BIAS; i++) {
		const struct insn *in = &s->i[i].in;
		if (s->i[i].how == FAST_OUT || (flags_used(in) & open) || s->i[i].how == FAST_COND)
			return true;
		open &= ~flags_new(in);
		if (!open)
			return false;
	}
	return true;
}

/* ---- reading --------------------------------------------------------------------------- */

/* The block depends on the page. False if these are too many. */
static bool depend(struct fast_scan *s, uint64_t page)
{
	for (unsigned i = 0; i < s->n_pages; i++)
		if (s->pages[i] == page)
			return true;
	if (s->n_pages == FAST_PAGES)
		return false;
	s->pages[s->n_pages++] = page;
	return true;
}

/* Decode the instruction at pc; false if that cannot be done. */
static bool decode(struct fast *f, uint64_t pc, struct insn *in)
{
	struct fast_scan *s = &f->scan;
	struct emu *e = f->e;
	uint64_t off = pc - s->window;

	if (off >= s->window_len || s->window_len - off < INSN_MAX) {
		s->window = pc;
		s->window_len = e->fetch ? e->fetch(e->ctx, pc, s->bytes, sizeof(s->bytes)) : 0;
		off = 0;
	}
	if (!s->window_len)
		return false;
	return insn_decode_as(e->kind, in, s->bytes + off, s->window_len - off, pc) > 0 &&
	       pc + in->len > pc;
}

void fast_scan_at(struct fast *f, uint64_t pc)
{
	struct fast_scan *s = &f->scan;
	const struct emu_observer *o = &f->e->observer;
	bool ends = false, late = o->late;

	f->counting = o->counts != NULL;
	fast_watch_set(f);
	f->asked = o->see || o->point || o->rep;
	s->n = s->n_pages = 0;
	s->x87 = false;
	s->window_len = 0;
	s->next = pc;
	depend(s, pc >> 12);
	while (s->n < FAST_MAX && !ends) {
		struct fast_insn *x = &s->i[s->n];
		const struct insn *in = &x->in;
		if (s->n >= JOIN && fast_block_find(f, pc))
			break;
		if (!decode(f, pc, &x->in) || !depend(s, pc >> 12) ||
		    !depend(s, (pc + in->len - 1) >> 12))
			break;
		x->how = how_of(in);
		x->wants = f->asked ? emu_wants(f->e, in) : 0;
		if ((f->notes || f->watching) &&
		    (in->attr & INSN_A_MASKED)) /* what it accesses only it knows */
			x->how = FAST_OUT;
		if (x->wants & EMU_WANT_POINT ||
		    (x->wants & EMU_WANT_EDGE && !late && !(o->returns && x->how == FAST_RET)))
			x->how = FAST_OUT;
		s->x87 |= x->how != FAST_OUT && (in->attr & (INSN_A_X87 | INSN_A_MMX));
		s->n++;
		pc += in->len;
		switch (x->how) {
		case FAST_JUMP:
			pc = (uint64_t)in->imm;
			break;
		case FAST_COND: /* backwards it is more likely taken, and what follows not reached
				 */
			ends = (uint64_t)in->imm < pc;
			break;
		case FAST_CALL:
			pc = (uint64_t)in->imm;
			ends = true;
			break;
		case FAST_OUT:
		case FAST_RET:
		case FAST_INDIRECT:
			ends = true;
			break;
		default:
			break;
		}
		s->next = pc;
	}
	if (!s->n) /* there may be more of the instruction one day */
		depend(s, (pc + INSN_MAX) >> 12);
	s->flags_live = flags_live(s);
}
