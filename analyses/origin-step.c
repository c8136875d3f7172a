/*
 * What an instruction made a value of (analyses/origin.h), after the decoder's operands: the place
 * behind a copy; the operands of arithmetic; nothing, where it is a constant.
 */
#include "analyses/origin.h"

#include <string.h>

#define GPR(n, o, z) ((struct origin_place){ .kind = ORIGIN_GPR, .reg = n, .off = o, .size = z })

static struct origin_place memory(uint64_t addr, uint64_t size)
{
	return (struct origin_place){ .kind = ORIGIN_MEMORY, .addr = addr, .size = size };
}

static void add(struct origin_sources *out, struct origin_place p)
{
	if (out->n < ORIGIN_SOURCES)
		out->s[out->n++] = p;
}

/* The first load of the step; NULL if it has none. */
static const struct origin_access *first_load(const struct origin_window *w, size_t i)
{
	const struct origin_access *a;
	size_t count = ana_origin_window_accesses(w, i, &a);

	for (size_t k = 0; k < count; k++)
		if (!a[k].write)
			return &a[k];
	return NULL;
}

/* That holds (a part of) the place, which is memory. */
static const struct origin_access *write_of(const struct origin_window *w, size_t i,
					    const struct origin_place *p)
{
	const struct origin_access *a;
	size_t count = ana_origin_window_accesses(w, i, &a);

	for (size_t k = count; k-- > 0;)
		if (a[k].write && a[k].addr < p->addr + p->size && p->addr < a[k].addr + a[k].size)
			return &a[k];
	return NULL;
}

static struct origin_place operand(const struct insn_opnd *o)
{
	if (o->kind == OPND_GPR8H)
		return GPR(o->reg, 1, 1);
	if (o->kind == OPND_VEC)
		return (struct origin_place){ .kind = ORIGIN_VECTOR,
					      .reg = o->reg,
					      .size = o->size };
	if (o->kind == OPND_X87)
		return (struct origin_place){ .kind = ORIGIN_X87, .reg = o->reg, .size = 10 };
	return GPR(o->reg, 0, o->size);
}

static bool is_register(const struct insn_opnd *o)
{
	return o->kind == OPND_GPR || o->kind == OPND_GPR8H || o->kind == OPND_VEC ||
	       o->kind == OPND_X87;
}

/* Instructions that keep registers in memory, and those that bring them back. */
static bool saves_state(const struct insn *in)
{
	return in->id == INSN_FXSAVE || in->id == INSN_XSAVE || in->id == INSN_XSAVEC ||
	       in->id == INSN_XSAVEOPT;
}

static bool loads_state(const struct insn *in)
{
	return in->id == INSN_FXRSTOR || in->id == INSN_XRSTOR;
}

bool ana_origin_defines(const struct origin_step *step, const struct origin_place *p)
{
	const struct insn *in = step->in;

	if (step->kind == ORIGIN_SIGNAL || step->kind == ORIGIN_EXEC)
		return true; /* a handler or program begins with registers of the kernel's making */
	if (p->kind == ORIGIN_GPR)
		return in->gpr_written >> p->reg & 1;
	if (p->kind == ORIGIN_FLAGS)
		return (in->flags_written & p->flags) != 0;
	if (p->kind == ORIGIN_X87)
		return ana_origin_x87_defines(step, p);
	if (loads_state(in) || in->id == INSN_EVEX || in->id == INSN_XOP)
		return true;
	for (unsigned k = 0; k < in->nopnd; k++)
		if (in->opnd[k].kind == OPND_VEC && in->opnd[k].reg == p->reg &&
		    in->opnd[k].access & INSN_W)
			return true;
	return false;
}

/* ---- kinds of instructions ---- */

static bool is_zeroing(const struct insn *in)
{
	switch (in->id) {
	case INSN_XOR:
	case INSN_SUB:
	case INSN_PXOR:
	case INSN_XORPS:
	case INSN_XORPD:
	case INSN_PSUBB:
	case INSN_PSUBD:
	case INSN_PSUBQ:
		break;
	default:
		return false;
	}
	const struct insn_opnd *a = &in->opnd[in->nopnd - 1], *b = &in->opnd[in->nopnd - 2];
	return is_register(a) && a->kind == b->kind && a->reg == b->reg;
}

/* Moves, which change nothing of the value but its length. */
static bool is_move(const struct insn *in)
{
	switch (in->id) {
	case INSN_MOV:
	case INSN_MOVZX:
	case INSN_MOVSX:
	case INSN_MOVSXD:
	case INSN_MOVBE:
	case INSN_MOVNTI:
	case INSN_PUSH:
	case INSN_POP:
	case INSN_XCHG:
	case INSN_MOVD:
	case INSN_MOVQ:
	case INSN_MOVDQA:
	case INSN_MOVDQU:
	case INSN_MOVAPS:
	case INSN_MOVAPD:
	case INSN_MOVUPS:
	case INSN_MOVUPD:
	case INSN_MOVSS:
	case INSN_MOVSD:
	case INSN_MOVNTDQ:
	case INSN_MOVNTPS:
	case INSN_MOVNTPD:
	case INSN_LDDQU:
	case INSN_CMOVCC:
		return true;
	default:
		return false;
	}
}

bool ana_origin_holds(unsigned cond, uint64_t flags)
{
	bool c = flags & DJ_FLAG_CF, z = flags & DJ_FLAG_ZF, s = flags & DJ_FLAG_SF,
	     o = flags & DJ_FLAG_OF, p = flags & DJ_FLAG_PF, is;

	switch (cond >> 1) {
	case 0:
		is = o;
		break;
	case 1:
		is = c;
		break;
	case 2:
		is = z;
		break;
	case 3:
		is = c || z;
		break;
	case 4:
		is = s;
		break;
	case 5:
		is = p;
		break;
	case 6:
		is = s != o;
		break;
	default:
		is = z || s != o;
	}
	return is != (cond & 1);
}

/* ---- sources ---- */

/* A part of a source: bytes from `off` on of what `size` bytes were moved. */
static void part(struct origin_place *s, uint64_t off, uint64_t size)
{
	if (off >= s->size)
		return;
	if (s->kind == ORIGIN_MEMORY)
		s->addr += off;
	else
		s->off += (unsigned)off;
	s->size = size < s->size - off ? size : s->size - off;
}

/* What an operand is, as a source; false if it is a constant. */
static bool source_of(const struct origin_window *w, size_t i, const struct insn_opnd *o,
		      struct origin_place *s)
{
	if (is_register(o)) {
		*s = operand(o);
		return true;
	}
	const struct origin_access *a =
		o->kind == OPND_MEM || o->kind == OPND_VSIB ? first_load(w, i) : NULL;
	if (a)
		*s = memory(a->addr, a->size);
	return a != NULL;
}

static void move_sources(const struct origin_window *w, size_t i, const struct origin_place *p,
			 uint64_t off, struct origin_sources *out)
{
	const struct insn *in = w->steps[i].in;
	const struct origin_access *a;
	struct origin_place s;

	out->copy = true;
	if (in->id == INSN_POP) {
		a = first_load(w, i);
		if (a)
			add(out, memory(a->addr, a->size));
	} else {
		unsigned from = in->nopnd - 1;

		if (in->id == INSN_XCHG && is_register(&in->opnd[1]) && p->kind == ORIGIN_GPR &&
		    in->opnd[1].reg == p->reg)
			from = 0;
		if (in->nopnd && source_of(w, i, &in->opnd[from], &s)) {
			part(&s, off, p->size);
			add(out, s);
		}
	}
	if (!out->n)
		out->final = "a constant in the instruction";
}

/* All that goes into it but addresses. */
static void computed(const struct origin_window *w, size_t i, struct origin_sources *out)
{
	const struct insn *in = w->steps[i].in;
	struct origin_place s;
	uint32_t seen = 0;

	if (in->id == INSN_LEA) {
		if (in->base < 16)
			add(out, GPR(in->base, 0, 8));
		if (in->index < 16 && in->index != in->base)
			add(out, GPR(in->index, 0, 8));
		if (!out->n)
			out->final = "an address in the instruction";
		return;
	}
	for (unsigned k = 0; k < in->nopnd; k++) {
		const struct insn_opnd *o = &in->opnd[k];

		if (!(o->access & INSN_R) || !source_of(w, i, o, &s))
			continue;
		if (s.kind == ORIGIN_GPR)
			seen |= 1u << s.reg;
		add(out, s);
	}
	if (in->flags_read && !(in->attr & INSN_A_FLAGSCOND) &&
	    (in->id == INSN_SETCC || in->id == INSN_SBB))
		add(out, (struct origin_place){ .kind = ORIGIN_FLAGS, .flags = in->flags_read });
	/* what it reads without naming it */
	if (in->base < 16)
		seen |= 1u << in->base;
	if (in->index < 16)
		seen |= 1u << in->index;
	if (!out->n)
		for (unsigned r = 0; r < 16; r++)
			if (r != DJ_RSP && in->gpr_read >> r & 1 && !(seen >> r & 1))
				add(out, GPR(r, 0, 8));
	if (!out->n)
		out->final = in->attr & INSN_A_X87 ? "x87's control or status word"
						   : "a constant in the instruction";
}

/* Where they lie (SDM vol. 1, 13.4 and 10.5.1). Components that are left out are as if they had
 * been zero, which the value shows. */
static void saved_sources(uint64_t off, const struct origin_place *p, struct origin_sources *out)
{
	struct origin_place s = { .kind = ORIGIN_VECTOR, .size = p->size };

	if (off >= 32 && off < 160 && off % 16 < 10) {
		s.kind = ORIGIN_X87;
		s.reg = (unsigned)(off - 32) / 16;
		s.off = (unsigned)off % 16;
	} else if (off >= 160 && off < 416) {
		s.reg = (unsigned)(off - 160) / 16;
		s.off = (unsigned)off % 16;
	} else if (off >= 576 && off < 832) {
		s.reg = (unsigned)(off - 576) / 16;
		s.off = 16 + (unsigned)off % 16;
	} else {
		out->final = "this instruction, which saves registers";
		return;
	}
	out->copy = out->unsure = true;
	add(out, s);
}

static void loaded_sources(const struct insn *in, uint64_t mask, uint64_t area,
			   const struct origin_place *p, struct origin_sources *out)
{
	unsigned component = p->kind == ORIGIN_X87 ? 0 : p->off < 16 ? 1 : 2;

	if (in->id == INSN_FXRSTOR ? component == 2 : !(mask >> component & 1)) {
		out->elsewhere = true;
		return;
	}
	if (p->kind == ORIGIN_X87)
		area += 32 + 16 * p->reg + p->off;
	else
		area += (p->off < 16 ? 160 : 576) + 16 * p->reg + p->off % 16;
	out->copy = out->unsure = true;
	add(out, memory(area, p->size));
}

static void memory_sources(const struct origin_window *w, size_t i, const struct origin_place *p,
			   struct origin_sources *out)
{
	const struct insn *in = w->steps[i].in;
	const struct origin_access *to = write_of(w, i, p), *from;
	uint64_t off = to && p->addr > to->addr ? p->addr - to->addr : 0;

	switch (in->id) {
	case INSN_CALL:
		out->final = "the return address of this call";
		return;
	case INSN_STOS:
		out->copy = true;
		add(out, GPR(DJ_RAX, 0, 8));
		return;
	case INSN_MOVS:
		from = to ? first_load(w, i) : NULL;
		out->copy = true;
		if (from)
			add(out, memory(from->addr + off, p->size));
		return;
	case INSN_PUSH:
	case INSN_MOV:
		break;
	case INSN_CMPXCHG:
	case INSN_XADD:
		add(out, operand(&in->opnd[1]));
		out->copy = in->id == INSN_CMPXCHG;
		return;
	default:
		if (ana_origin_x87_stores(in, out))
			return;
		if (!is_move(in)) {
			computed(w, i, out);
			return;
		}
	}
	move_sources(w, i, p, off, out);
}

/* A part of a vector register that a load or an insertion left as it was. */
static bool leaves(const struct insn *in, const struct origin_place *p)
{
	if (p->kind != ORIGIN_VECTOR)
		return false;
	switch (in->id) {
	case INSN_MOVHPS:
	case INSN_MOVHPD:
	case INSN_MOVLHPS:
		return p->off < 8;
	case INSN_MOVLPS:
	case INSN_MOVLPD:
	case INSN_MOVHLPS:
		return p->off >= 8;
	default:
		return false;
	}
}

void ana_origin_sources(const struct origin_window *w, size_t i, const struct origin_place *p,
			const struct dj_regs *regs, struct origin_sources *out)
{
	const struct origin_step *step = &w->steps[i];
	const struct insn *in = step->in;

	memset(out, 0, sizeof(*out));
	uint64_t area =
		in && in->has_mem ? insn_address(in, regs->gpr, regs->fs_base, regs->gs_base) : 0;
	if (step->kind == ORIGIN_SIGNAL) {
		out->final = "the kernel, which called a signal's handler";
	} else if (step->kind == ORIGIN_EXEC) {
		out->final = "the kernel, which began this program";
	} else if (step->kind == ORIGIN_CALL) {
		out->final = p->kind == ORIGIN_GPR && p->reg != DJ_RAX
				     ? "the kernel, which overwrites this register in calls"
				     : "the result of this system call";
	} else if (loads_state(in) && (p->kind == ORIGIN_VECTOR || p->kind == ORIGIN_X87)) {
		loaded_sources(in, regs->gpr[DJ_RAX], area, p, out);
	} else if (saves_state(in) && p->kind == ORIGIN_MEMORY) {
		saved_sources(p->addr - area, p, out);
	} else if (p->kind == ORIGIN_X87 &&
		   (step->kind != ORIGIN_NATIVE || !(in->attr & INSN_A_XSTATE))) {
		ana_origin_x87_sources(in, p, first_load(w, i), regs, out);
	} else if (step->kind == ORIGIN_NATIVE) {
		out->final = "what this instruction found when it was recorded";
	} else if (leaves(in, p) || (in->id == INSN_CMOVCC && p->kind == ORIGIN_GPR &&
				     !ana_origin_holds(in->cond, regs->rflags))) {
		out->elsewhere = true;
	} else if (p->kind == ORIGIN_GPR && p->reg == DJ_RSP && in->attr & INSN_A_STACK &&
		   in->id != INSN_LEAVE) {
		add(out, GPR(DJ_RSP, 0, 8));
	} else if (is_zeroing(in)) {
		out->final = "zero, made by this instruction";
	} else if (p->kind == ORIGIN_MEMORY) {
		memory_sources(w, i, p, out);
	} else if (in->id == INSN_LODS || (in->id == INSN_LEAVE && p->reg == DJ_RBP)) {
		const struct origin_access *a = first_load(w, i);
		out->copy = true;
		if (a)
			add(out, memory(a->addr, a->size));
	} else if (is_move(in) && p->kind != ORIGIN_FLAGS) {
		move_sources(w, i, p, p->off, out);
	} else {
		computed(w, i, out);
	}
}
