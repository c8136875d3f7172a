/*
 * The code of a block.
 *
 * All of the program's registers are in the processor's, but r11, which is the count of
 * instructions that may still be executed. A block subtracts its length at its entry and leaves
 * before it has done anything if too few were left; exits before the block's end give back the
 * rest. Within the block r11 may be the program's or hold an intermediate value, and the count is
 * in F_LEFT then.
 *
 * A memory operand is the program's own, with two prefixes: one cuts the address to 32 bits, one
 * adds S. The segment bases are constants of the code.
 */
#include "fast/fast-parts.h"
#include "format/regs.h"

#define COUNT	  11
#define BLOCK_MAX 32768 /* bytes that a block can take */

/* ---- r11 ------------------------------------------------------------------------------------ */

void fast_r11_free(struct fast *f)
{
	if (f->r11 == R11_COUNT)
		cg_store_gs(&f->c, COUNT, F_LEFT);
	else if (f->r11 == R11_DIRTY)
		cg_store_gs(&f->c, COUNT, F_R11);
	f->r11 = R11_FREE;
}

void fast_r11_program(struct fast *f)
{
	if (f->r11 == R11_PROG || f->r11 == R11_DIRTY)
		return;
	fast_r11_free(f);
	cg_load_gs(&f->c, COUNT, F_R11);
	f->r11 = R11_PROG;
}

/* r11 holds the count, or nothing, from here on. */
static void r11_count(struct fast *f)
{
	if (f->r11 == R11_COUNT)
		return;
	fast_r11_free(f);
	cg_load_gs(&f->c, COUNT, F_LEFT);
	f->r11 = R11_COUNT;
}

/* ---- operands ------------------------------------------------------------------------------- */

static const struct ea top = { .base = 4, .index = -1, .scale = 1, .gs = true, .a32 = true };

static struct ea below_top(void)
{
	return ea_add(top, -8);
}

/* The instruction's memory operand on the shadow. */
struct ea fast_operand(const struct fast *f, const struct insn *in)
{
	struct ea m = { .base = -1, .index = -1, .scale = 1, .gs = true, .a32 = true };
	uint32_t disp = (uint32_t)(in->base == INSN_RIP ? in->target : (uint64_t)in->disp);

	if (in->base < 16)
		m.base = (int8_t)in->base;
	if (in->index < 16)
		m.index = (int8_t)in->index;
	if (in->scale)
		m.scale = in->scale;
	if (in->seg)
		disp += (uint32_t)(in->seg == 4 ? f->fs_base : f->gs_base);
	m.disp = (int32_t)disp;
	return m;
}

/* ---- instructions --------------------------------------------------------------------------- */

static void lower_stack(struct fast *f)
{
	cg_lea(&f->c, 4, 4, -8);
}

static void push(struct fast *f, const struct insn *in)
{
	struct ea m, to = below_top();

	fast_note_access(f, &to, 8, INSN_W);
	if (in->opnd[0].kind == OPND_GPR) {
		cg_store(&f->c, in->opnd[0].reg, &to);
	} else if (in->opnd[0].kind == OPND_IMM) {
		cg_rm(&f->c, 8, 0xc7, 0, &to, 4);
		cg32(&f->c, (uint32_t)in->imm);
	} else {
		m = fast_operand(f, in);
		if (f->r11 == R11_COUNT)
			fast_r11_free(f);
		else if (f->r11 == R11_DIRTY)
			cg_store_gs(&f->c, COUNT, F_R11);
		fast_note_access(f, &m, 8, INSN_R);
		cg_load(&f->c, COUNT, &m); /* r11 may be part of the address */
		f->r11 = R11_FREE;
		cg_store(&f->c, COUNT, &to);
	}
	lower_stack(f);
}

/* False if r11 would be needed twice. */
static bool pop(struct fast *f, const struct insn *in)
{
	struct ea m;

	fast_note_access(f, &top, 8, INSN_R);
	if (in->opnd[0].kind == OPND_GPR) {
		unsigned r = in->opnd[0].reg;
		cg_load(&f->c, r, &top);
		if (r != 4)
			cg_lea(&f->c, 4, 4, 8);
		return true;
	}
	if (in->base == COUNT || in->index == COUNT)
		return false;
	fast_r11_free(f);
	cg_load(&f->c, COUNT, &top);
	cg_lea(&f->c, 4, 4, 8); /* the address is that with rsp raised (SDM vol. 2B, POP) */
	fast_note_changed(f, 1u << DJ_RSP);
	m = fast_operand(f, in);
	fast_note_access(f, &m, 8, INSN_W);
	cg_store(&f->c, COUNT, &m);
	return true;
}

/* The return address onto the stack, by register `r` if it is a long one. */
static void push_return(struct fast *f, const struct insn *in, unsigned r)
{
	uint64_t ret = in->addr + in->len;
	struct ea to = below_top();

	fast_note_access(f, &to, 8, INSN_W);
	if ((int64_t)ret == (int32_t)ret) {
		cg_rm(&f->c, 8, 0xc7, 0, &to, 4);
		cg32(&f->c, (uint32_t)ret);
	} else {
		cg_imm(&f->c, r, ret);
		cg_store(&f->c, r, &to);
	}
	lower_stack(f);
}

/* Count an ordered event, the instruction that is `after` from the block's end. */
static void fence(struct fast *f, unsigned after)
{
	fast_r11_free(f);
	cg_load_gs(&f->c, COUNT, F_FENCES);
	cg_lea(&f->c, COUNT, COUNT, 1);
	cg_store_gs(&f->c, COUNT, F_FENCES);
	cg_load_gs(&f->c, COUNT, F_LEFT);
	cg_lea(&f->c, COUNT, COUNT, (int32_t)after);
	cg_store_gs(&f->c, COUNT, F_FENCE_LEFT);
}

static void side(struct fast *f, uint8_t *site, const struct fast_insn *x, unsigned executed)
{
	f->side[f->n_sides++] =
		(struct fast_side){ .site = site,
				    .target = (uint64_t)x->in.imm,
				    .executed = executed,
				    .r11 = f->r11,
				    .branch = fast_branch_new(f, x, true, executed) };
}

static void branch(struct fast *f, const struct fast_insn *x, unsigned executed)
{
	const struct insn *in = &x->in;
	struct cg *c = &f->c;

	if (in->id == INSN_JCC) {
		side(f, cg_jcc(c, in->cond, 0), x, executed);
		return;
	}
	/* these have only short forms */
	if (in->id == INSN_LOOP)
		cg_lea(c, 1, 1, -1);
	uint8_t *zero = cg_jcc8(c, 0xe3);
	if (in->id == INSN_LOOP) {
		side(f, cg_jmp(c, 0), x, executed);
		cg_here8(c, zero);
		return;
	}
	uint8_t *over = cg_jcc8(c, 0xeb);
	cg_here8(c, zero);
	side(f, cg_jmp(c, 0), x, executed);
	cg_here8(c, over);
}

/* Note the branch, if somebody wants to know that it was executed. */
static void log_branch(struct fast *f, const struct fast_insn *x, bool taken, unsigned executed)
{
	uint32_t branch = fast_branch_new(f, x, taken, executed);

	if (!branch)
		return;
	r11_count(f);
	fast_log_direct(f, branch);
}

/* To the address in r11; the count is in memory. */
static void leave_indirect(struct fast *f, const struct fast_insn *x, bool rcx_saved)
{
	struct cg *c = &f->c;
	struct ea stub = { .base = -1, .index = 1, .scale = 8, .disp = F_NEAR, .gs = true };

	if (!rcx_saved)
		cg_store_gs(c, 1, F_RCX);
	f->block_branch = fast_branch_new(f, x, true, f->scan.n);
	if (f->block_branch)
		fast_log_indirect(f, f->block_branch);
	cg_bytes(c, "\x41\x0f\xb7\xcb", 4); /* movzx ecx, r11w */
	cg_rm(c, 4, 0xff, 4, &stub, 0);
}

static void ret(struct fast *f, const struct fast_insn *x)
{
	const struct insn *in = &x->in;
	int32_t more = in->imm_size ? (int32_t)(in->imm & 0xffff) : 0;

	fast_r11_free(f);
	fast_note_access(f, &top, 8, INSN_R);
	cg_load(&f->c, COUNT, &top);
	cg_lea(&f->c, 4, 4, 8 + more);
	leave_indirect(f, x, false);
}

static bool indirect(struct fast *f, const struct fast_insn *x)
{
	const struct insn *in = &x->in;
	struct cg *c = &f->c;
	bool call = in->attr & INSN_A_CALL;

	if (in->has_mem && in->mem_size != 8)
		return false;
	if (in->gpr_read & 1u << COUNT) {
		fast_r11_program(f);
		if (f->r11 == R11_DIRTY)
			cg_store_gs(c, COUNT, F_R11);
	} else {
		fast_r11_free(f);
	}
	if (in->has_mem) {
		struct ea m = fast_operand(f, in);
		fast_note_access(f, &m, 8, INSN_R);
		cg_load(c, COUNT, &m);
	} else if (in->opnd[0].reg != COUNT) {
		cg_rr(c, 8, 0x89, in->opnd[0].reg, COUNT);
	}
	f->r11 = R11_FREE;
	if (call) {
		cg_store_gs(c, 1, F_RCX);
		push_return(f, in, 1);
	}
	leave_indirect(f, x, call);
	return true;
}

static void lea(struct fast *f, const struct insn *in)
{
	uint64_t v = in->addr32 ? (uint32_t)in->target : in->target;

	cg_imm(&f->c, in->opnd[0].reg, in->opnd[0].size == 8 ? v : (uint32_t)v);
}

/* xchg with memory locks the bus by itself, which takes long, and very long if the operand
 * straddles lines: Linux lets who does that wait (Documentation/arch/x86/buslock.rst). Nobody else
 * looks here, so it is done with moves. */
static bool exchange(struct fast *f, const struct insn *in, const struct ea *m)
{
	unsigned k = in->opnd[0].kind == OPND_MEM ? 1 : 0, r = in->opnd[k].reg, size = in->mem_size;

	if (in->opnd[k].kind != OPND_GPR || (in->gpr_read & 1u << COUNT) || size > 8)
		return false;
	fast_r11_free(f);
	cg_load_zx(&f->c, size, COUNT, m);
	cg_store_size(&f->c, size, r, m);
	cg_rr(&f->c, size, size == 1 ? 0x88 : 0x89, COUNT, r);
	return true;
}

/* What is neither a branch nor the emulator's. False if it has to be the emulator's after all. */
static bool plain(struct fast *f, const struct fast_insn *x)
{
	const struct insn *in = &x->in;
	struct ea m;

	switch (x->how) {
	case FAST_COPY:
		cg_bytes(&f->c, in->bytes, in->len);
		return true;
	case FAST_SHADOW:
		m = fast_operand(f, in);
		fast_note_access(f, &m, in->mem_size, in->mem_access);
		return in->id == INSN_XCHG ? exchange(f, in, &m) : cg_reencode(&f->c, in, &m);
	case FAST_LEA:
		lea(f, in);
		return true;
	case FAST_PUSH:
		push(f, in);
		return true;
	case FAST_POP:
		return pop(f, in);
	case FAST_LEAVE:
		m = (struct ea){ .base = 5, .index = -1, .scale = 1, .gs = true, .a32 = true };
		fast_note_access(f, &m, 8, INSN_R);
		cg_lea(&f->c, 4, 5, 8);
		cg_load(&f->c, 5, &m);
		return true;
	default:
		return false;
	}
}

/* ---- ways in and out --------------------------------------------------------------------------
 */

/* Leave unless the processor has the x87 state: the answer is the jump that does so. */
static uint8_t *needs_x87(struct fast *f)
{
	struct cg *c = &f->c;
	struct ea absent = ea_gs(F_NO_X87);

	cg_store_gs(c, 1, F_RCX);
	cg_rm(c, 4, 0x8b, 1, &absent, 0);
	uint8_t *there = cg_jcc8(c, 0xe3);
	cg_load_gs(c, 1, F_RCX);
	uint8_t *out = cg_jmp(c, 0);
	cg_here8(c, there);
	cg_load_gs(c, 1, F_RCX);
	return out;
}

/* Subtract the block's length, which is written later: the answer is where. Too few left: jump to
 * where `*out` says. */
static uint8_t *entry(struct fast *f, bool flags_live, uint8_t **out)
{
	struct cg *c = &f->c;
	uint8_t *length;

	if (!flags_live) {
		cg_bytes(c, "\x49\x83\xeb\x00", 4); /* sub r11, length */
		length = c->p - 1;
		*out = cg_jcc(c, 8, 0);
		return length;
	}
	cg_bytes(c, "\x4d\x8d\x5b\x00", 4); /* lea r11, [r11 - length] */
	length = c->p - 1;
	cg_store_gs(c, 1, F_RCX);
	cg_bytes(c, "\xc4\xc3\xfb\xf0\xcb\x20", 6); /* rorx rcx, r11, 32 */
	cg8(c, 0x67);				    /* the upper half is zero or all ones */
	uint8_t *enough = cg_jcc8(c, 0xe3);	    /* jecxz */
	cg_load_gs(c, 1, F_RCX);
	*out = cg_jmp(c, 0);
	cg_here8(c, enough);
	cg_load_gs(c, 1, F_RCX);
	return length;
}

/* Whether the jump out of the block has to count. */
static bool counted(const struct fast *f, const struct fast_exit *x)
{
	return f->counting && x->kind == FAST_LINK;
}

/* Leave by the exit `x`, giving back `rest`. `site`: this jump may go there at once, if there is
 * nothing to be done on the way. What says which exit it was lies apart, for it is hardly ever
 * executed again once the exit is linked. */
static void leave(struct fast *f, struct fast_exit x, unsigned rest, uint8_t *site)
{
	struct cg *c = &f->c, *cold = &f->cold;
	struct ea out = ea_gs(F_LEAVE);

	x.thunk = cg_va(cold);
	x.site = site;
	if (rest || !site) {
		if (rest)
			cg_lea(c, COUNT, COUNT, (int32_t)rest);
		x.site = counted(f, &x) ? fast_count_slot(f, x.thunk) : cg_jmp(c, x.thunk);
	} else if (!c->overflow) {
		cg_patch32(site, c->delta, x.thunk);
	}
	cg_imm_gs(cold, F_EXIT, fast_exit_new(f, &x));
	cg_rm(cold, 4, 0xff, 4, &out, 0);
}

/* Too few were left for the block of n. */
static void leave_limit(struct fast *f, uint64_t pc, unsigned n, uint8_t *site)
{
	uint64_t at = cg_va(&f->cold);

	cg_lea(&f->cold, COUNT, COUNT, (int32_t)n);
	leave(f, (struct fast_exit){ .kind = FAST_LIMIT, .target = pc }, 0, site);
	if (!f->c.overflow)
		cg_patch32(site, f->c.delta, at);
}

static void patch(struct fast *f, uint8_t *site)
{
	if (!f->c.overflow)
		cg_patch32(site, f->c.delta, cg_va(&f->c));
}

static void leave_watched(struct fast *f, const struct fast_side *s, unsigned n)
{
	const struct fast_exit x = { .kind = s->whom ? FAST_WHOM : FAST_STEP,
				     .executed = (uint8_t)s->executed,
				     .target = s->target };

	patch(f, s->site);
	cg_load_gs(&f->c, 1, F_RCX);
	fast_note_side(f, s->executed);
	f->r11 = s->r11;
	r11_count(f);
	leave(f, x, n - s->executed, NULL);
}

static void leave_sides(struct fast *f, unsigned n)
{
	for (unsigned k = 0; k < f->n_sides; k++) {
		const struct fast_side *s = &f->side[k];
		const struct fast_exit x = { .kind = FAST_LINK,
					     .taken = true,
					     .executed = (uint8_t)s->executed,
					     .target = s->target };
		bool direct =
			s->r11 == R11_COUNT && s->executed == n && !counted(f, &x) && !s->branch;
		if (s->watch) {
			leave_watched(f, s, n);
			continue;
		}
		if (!direct)
			patch(f, s->site);
		fast_note_side(f, s->executed);
		f->r11 = s->r11;
		r11_count(f);
		if (s->branch)
			fast_log_direct(f, s->branch);
		leave(f, x, n - s->executed, direct ? s->site : NULL);
	}
}

/* The instruction is executed, `before` in the block are; what follows is another's. False if the
 * emulator has to do it. */
static bool emit_insn(struct fast *f, const struct fast_insn *x, unsigned before)
{
	const struct insn *in = &x->in;
	const struct cg was = f->c;
	const enum fast_r11 r11 = f->r11;
	uint32_t own = 1u << COUNT;

	if (f->watching && in->has_mem && (in->gpr_read & own))
		fast_r11_program(f);
	fast_watch(f, x, before);
	switch (x->how) {
	case FAST_OUT:
		return false;
	case FAST_NOTHING:
		return true;
	case FAST_JUMP:
		log_branch(f, x, true, before + 1);
		return true;
	case FAST_FENCE:
		fence(f, f->scan.n - before - 1);
		return true;
	case FAST_COND:
		branch(f, x, before + 1);
		log_branch(f, x, false, before + 1);
		return true;
	case FAST_CALL:
		log_branch(f, x, true, before + 1);
		fast_r11_free(f);
		push_return(f, in, COUNT);
		return true;
	case FAST_RET:
		fast_watch_return(f, x, before);
		ret(f, x);
		return true;
	case FAST_INDIRECT:
		return indirect(f, x);
	default:
		break;
	}
	if ((in->gpr_read | in->gpr_written) & own)
		fast_r11_program(f);
	if (!plain(f, x)) {
		bool overflow = f->c.overflow;
		f->c = was;
		f->c.overflow = overflow;
		f->r11 = r11;
		return false;
	}
	if (in->gpr_written & own)
		f->r11 = R11_DIRTY;
	if (in->attr & INSN_A_ATOMIC)
		fence(f, f->scan.n - before - 1);
	return true;
}

bool fast_emit(struct fast *f, struct fast_block *b)
{
	struct fast_scan *s = &f->scan;
	struct cg *c = &f->c;
	uint8_t *out, *start = c->p, *x87 = NULL;
	unsigned n = s->n;
	bool whole = true;

	if ((size_t)(c->end - c->p) < BLOCK_MAX || (size_t)(f->cold.end - f->cold.p) < BLOCK_MAX)
		return false;
	/* what the emulator must do is not part of it */
	while (n && s->i[n - 1].how == FAST_OUT) {
		n--;
		whole = false;
	}
	s->n = n;
	if (!n) {
		b->entry = 0;
		return true;
	}
	uint64_t at = cg_va(c);
	if (s->x87)
		x87 = needs_x87(f);
	uint8_t *length = entry(f, s->flags_live, &out);
	f->r11 = R11_COUNT;
	f->n_sides = 0;
	f->block_branch = 0;
	unsigned i = 0;
	fast_note_block(f);
	while (i < n) {
		fast_note_last(f, i);
		if (!emit_insn(f, &s->i[i], i))
			break;
		fast_note_changed(f, s->i[i].in.gpr_written);
		fast_whose_changed(f, &s->i[i]);
		i++;
	}
	if (i < n) { /* found only now; the count of fences is relative to the end */
		c->p = start;
		fast_note_undo(f);
		s->n = i;
		s->i[i].how = FAST_OUT;
		s->n = i + 1;
		return fast_emit(f, b);
	}
	*length = (uint8_t)(s->flags_live ? -n : n);
	const struct fast_insn *last = &s->i[n - 1];
	struct fast_exit end = { .kind = FAST_LINK, .executed = (uint8_t)n, .target = s->next };
	b->exits = f->n_exits;
	if (!whole) {
		r11_count(f);
		end.kind = FAST_STEP;
		end.target = s->i[n].in.addr;
		leave(f, end, 0, NULL);
	} else if (last->how != FAST_RET && last->how != FAST_INDIRECT) {
		r11_count(f);
		leave(f, end, 0, NULL);
	}
	leave_sides(f, n);
	leave_limit(f, b->pc, n, out);
	if (x87)
		leave(f, (struct fast_exit){ .kind = FAST_X87, .target = b->pc }, 0, x87);
	b->entry = at;
	b->flags_live = s->flags_live || x87;
	b->n_exits = (uint8_t)(f->n_exits - b->exits);
	b->branch = f->block_branch;
	return !c->overflow && !f->cold.overflow && fast_keep(f, b);
}

bool fast_emit_stub(struct fast *f, struct fast_block *b)
{
	struct cg *c = &f->c;
	struct ea sum = { .base = 1, .index = COUNT, .scale = 1 }, other = ea_gs(F_OTHER);

	if ((size_t)(c->end - c->p) < BLOCK_MAX)
		return false;
	b->stub = cg_va(c);
	cg_imm(c, 1, -b->pc);
	cg_rm(c, 8, 0x8d, 1, &sum, 0);
	uint8_t *meant = cg_jcc8(c, 0xe3);
	cg_rm(c, 4, 0xff, 4, &other, 0);
	cg_here8(c, meant);
	b->in = cg_va(c);
	cg_load_gs(c, 1, F_RCX);
	cg_load_gs(c, COUNT, F_LEFT);
	cg_jmp(c, b->entry);
	return true;
}
