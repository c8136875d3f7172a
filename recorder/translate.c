/*
 * The translator's frame: scanning a run of instructions, flag liveness, scratch registers, exits.
 * translate.h has the rules; translate-mem.c and translate-flow.c emit the instructions.
 */
#include "format/regs.h"
#include "recorder/translate-priv.h"

#include <stdlib.h>

/* ---- flag liveness ---------------------------------------------------------------- */

/* Arithmetic flags that `in` surely overwrites. */
static uint32_t kills(const struct insn *in)
{
	return in->attr & (INSN_A_FLAGSCOND | INSN_A_REP) ? 0
	       : in->flags_written & ~in->flags_undefined & ARITH;
}

/* Arithmetic flags that `in` really consumes. Of instructions that may leave flags as they were (shifts by
 * a count of zero, REP CMPS without an iteration) the decoder says that they read what they may
 * keep; that is not a use: whether they are live depends on what follows. */
static uint32_t uses(const struct insn *in)
{
	uint32_t read = in->flags_read & ARITH;
	if (in->attr & (INSN_A_FLAGSCOND | INSN_A_REP))
		read &= ~in->flags_written;
	if (in->id == INSN_RCL || in->id == INSN_RCR)
		read |= DJ_FLAG_CF;
	return read;
}

struct decoded *tr_decode(struct translator *tr, uint64_t pc)
{
	struct decoded *d = &tr->decoded[(pc * 0x9e3779b97f4a7c15ULL) >> 49];
	if (d->insn.len && d->insn.addr == pc && d->generation == tr->generation)
		return d;
	uint8_t buf[INSN_MAX];
	size_t got = tr->ops.read_code(tr->ops.ctx, pc, buf, sizeof buf, &d->changing);
	if (!got || insn_decode(&d->insn, buf, got, pc) <= 0) {
		d->insn.len = 0;
		return NULL;
	}
	d->live_known = false;
	d->generation = tr->generation;
	return d;
}

void tr_forget_decoded(struct translator *tr)
{
	tr->generation++;
}

/* Which arithmetic flags may be read by code from `pc` on before being written: looks a few
 * instructions ahead along direct control flow and says "all" when it does not know. */
static uint32_t flags_ahead(struct translator *tr, uint64_t pc, int depth)
{
	uint32_t open = ARITH, live = 0;
	for (int k = 0; k < 10; k++) {
		const struct decoded *d = tr_decode(tr, pc);
		if (!d)
			return ARITH;
		const struct insn *in = &d->insn;
		uint32_t attr = in->attr;
		uint64_t target = (uint64_t)in->imm;
		live |= uses(in) & open;
		if (attr & (INSN_A_SYSCALL | INSN_A_PRIV | INSN_A_NONDET | INSN_A_XSTATE))
			return ARITH;
		open &= ~kills(in);
		if (!open || (live & open) == open)
			return live;
		pc += in->len;
		if (!(attr & INSN_A_BRANCH))
			continue;
		if (attr & (INSN_A_INDIRECT | INSN_A_RET))
			return live | open;
		if (attr & INSN_A_COND) {
			if (depth <= 0)
				return live | open;
			live |= open & tr_flags_live_at(tr, target, depth - 1);
		} else {
			pc = target;
		}
	}
	return live | open;
}

uint32_t tr_flags_live_at(struct translator *tr, uint64_t pc, int depth)
{
	if (depth < 1)
		return flags_ahead(tr, pc, depth);
	struct decoded *d = tr_decode(tr, pc);
	if (!d)
		return ARITH;
	if (d->live_known)
		return d->live;
	uint32_t live = flags_ahead(tr, pc, depth);
	d = tr_decode(tr, pc); /* looking ahead may have pushed it out */
	if (d) {
		d->live = live;
		d->live_known = true;
	}
	return live;
}

/* ---- registers -------------------------------------------------------------------- */

uint32_t b_insn_regs(const struct build *b)
{
	const struct insn *in = &b->insn[b->i];
	return in->gpr_read | in->gpr_written;
}

void b_spill(struct build *b, unsigned r)
{
	if (b->st.spilled & 1u << r)
		return;
	if (!(b->st.clean & 1u << r))
		cg_store_gs(b->c, r, T_SLOT((int)r));
	b->st.spilled |= 1u << r;
	b->st.clean &= ~(1u << r);
}

void b_reload(struct build *b, struct cg *c, unsigned r)
{
	(void)b;
	cg_load_gs(c, r, T_SLOT((int)r));
}

/* A register the translation may overwrite: not used by the current instruction, not in `avoid`,
 * below r8 if `low`. Prefers one that is spilled already, then the one needed latest. */
int b_scratch(struct build *b, uint32_t avoid, bool low)
{
	uint32_t no = avoid | b_insn_regs(b) | 1u << 4;
	if (low)
		no |= 0xff00;
	uint32_t ready = b->st.spilled & ~no & 0xffff;
	if (ready) {
		b->busy |= ready & -ready;
		return __builtin_ctz(ready);
	}
	int best = -1;
	unsigned best_when = 0;
	for (unsigned r = 0; r < 16; r++) {
		if (no & 1u << r)
			continue;
		unsigned when = 2 * FRAG_MAX;
		for (unsigned k = b->i + 1; k < b->n; k++) {
			if (b->insn[k].gpr_read & 1u << r) {
				when = k;
				break;
			}
			if (b->insn[k].gpr_full & 1u << r) {
				when = 4 * FRAG_MAX; /* needs no reload */
				break;
			}
		}
		if (best < 0 || when > best_when) {
			best = (int)r;
			best_when = when;
		}
	}
	if (best < 0) {
		b->failed = true;
		return 0;
	}
	b_spill(b, (unsigned)best);
	b->busy |= 1u << best;
	return best;
}

/* ---- flags ------------------------------------------------------------------------ */

static void rax_aside(struct cg *c, enum aside aside, bool back)
{
	if (aside == RAX_TO_HOME)
		cg_rr(c, 8, 0x89, back ? HOME : 0, back ? 0 : HOME);
	else if (aside == RAX_TO_MEMORY && back)
		cg_load_gs(c, 0, T_SAVE(7));
	else if (aside == RAX_TO_MEMORY)
		cg_store_gs(c, 0, T_SAVE(7));
}

void emit_save_flags(struct cg *c, enum aside aside)
{
	struct ea m = ea_gs(T_FLAGS);
	rax_aside(c, aside, false);
	cg8(c, 0x9f); /* lahf */
	cg_bytes(c, "\x0f\x90\xc0", 3); /* seto al */
	cg_rm(c, 4, 0x89, 0, &m, 0);
	rax_aside(c, aside, true);
}

void emit_restore_flags(struct cg *c, enum aside aside)
{
	struct ea m = ea_gs(T_FLAGS);
	rax_aside(c, aside, false);
	cg_rm(c, 4, 0x8b, 0, &m, 0);
	cg_bytes(c, "\x04\x7f", 2); /* add al, 127: overflows if al is 1 */
	cg8(c, 0x9e);		    /* sahf */
	rax_aside(c, aside, true);
}

static enum aside aside_for(const struct build *b)
{
	uint32_t free_regs = b->st.spilled & ~b->busy;
	return free_regs & 1 ? RAX_FREE : free_regs & HOME_BIT ? RAX_TO_HOME : RAX_TO_MEMORY;
}

void b_save_flags(struct build *b)
{
	if (b->st.flags != FLAGS_HW)
		return;
	emit_save_flags(b->c, aside_for(b));
	b->st.flags = FLAGS_BOTH;
}

void b_clobber_flags(struct build *b, bool after)
{
	uint32_t live = b->live[after ? b->i + 1 : b->i];
	if (b->st.flags == FLAGS_HW) {
		if (!live)
			return;
		b_save_flags(b);
	}
	b->st.flags = FLAGS_SAVED;
}

void b_need_flags(struct build *b, struct cg *c)
{
	if (b->st.flags != FLAGS_SAVED)
		return;
	emit_restore_flags(c, aside_for(b));
	b->st.flags = FLAGS_BOTH;
}

void b_mark_body(struct build *b)
{
	if (b->body_marked)
		return;
	struct finsn *fi = &b->f->insn[b->i];
	fi->body = (uint32_t)(cg_va(b->c) - b->f->entry);
	fi->spilled_body = (uint16_t)b->st.spilled;
	fi->flags_body = (uint8_t)b->st.flags;
	b->body_marked = true;
}

/* ---- stops ------------------------------------------------------------------------- */

static uint32_t new_stop(struct translator *tr, enum stop_kind kind, uint64_t pc, struct arena *a)
{
	if (tr->n_stops == tr->cap_stops) {
		tr->cap_stops = tr->cap_stops ? tr->cap_stops * 2 : 4096;
		tr->stops = realloc(tr->stops, tr->cap_stops * sizeof *tr->stops);
		DJ_ASSERT(tr->stops, "out of memory for %u stops", tr->cap_stops);
	}
	tr->stops[tr->n_stops] = (struct stop){.kind = kind, .pc = pc, .arena = a};
	return tr->n_stops++;
}

static void emit_stop(struct cg *c, uint32_t number)
{
	cg8(c, 0xcc);
	cg32(c, number);
}

/* ---- exits ------------------------------------------------------------------------- */

/* Add `n` to the step count: shortest if flags need not be kept, else through the home register. */
static void emit_steps(struct cg *c, unsigned n, bool keep_flags)
{
	struct ea m = ea_gs(T_STEPS), plus = ea_base(HOME, (int32_t)n);
	if (!n)
		return;
	if (!keep_flags) {
		cg_rm(c, 8, n < 128 ? 0x83 : 0x81, 0, &m, n < 128 ? 1 : 4);
		if (n < 128)
			cg8(c, (uint8_t)n);
		else
			cg32(c, n);
		return;
	}
	cg_load(c, HOME, &m);
	cg_rm(c, 8, 0x8d, HOME, &plus, 0);
	cg_store(c, HOME, &m);
}

static void home_to_slot(struct cg *c, const struct state *st)
{
	if (!((st->spilled | st->clean) & HOME_BIT))
		cg_store_gs(c, HOME, T_SLOT(HOME));
}

/* Everything that leaving takes except the jump: steps, flags, registers but the home one. */
static void emit_leave(struct cg *c, const struct state *st, unsigned executed, uint32_t live)
{
	home_to_slot(c, st);
	emit_steps(c, executed, live && st->flags != FLAGS_SAVED);
	if (st->flags == FLAGS_SAVED && live)
		emit_restore_flags(c, st->spilled & 1 ? RAX_FREE : RAX_TO_HOME);
	for (unsigned r = 0; r < 16; r++)
		if (r != HOME && st->spilled & 1u << r)
			cg_load_gs(c, r, T_SLOT((int)r));
}

static unsigned pending_slot(uint64_t pc)
{
	return (unsigned)((pc * 0x9e3779b97f4a7c15ULL) >> 46);
}

static struct frag *find(struct translator *tr, uint64_t pc)
{
	for (struct frag *f = tr->hash[pending_slot(pc)]; f; f = f->hash_next)
		if (f->pc == pc)
			return f;
	return NULL;
}

static bool reachable(uint64_t from, uint64_t to)
{
	int64_t d = (int64_t)(to - from);
	return d > -0x7ff00000LL && d < 0x7ff00000LL;
}

static void link_stop(struct translator *tr, struct stop *s, const struct frag *f)
{
	uint64_t site_va = (uint64_t)(uintptr_t)s->site + s->arena->hot.delta;
	(void)tr;
	if (reachable(site_va, f->entry)) {
		cg_patch32(s->site, s->arena->hot.delta, f->entry);
	} else {
		uint8_t far[14] = {0xff, 0x25, 0, 0, 0, 0};
		memcpy(far + 6, &f->entry, 8);
		memcpy(s->stub, far, sizeof far);
	}
}

void b_exit(struct build *b, struct cg *c, struct state st, uint64_t target, unsigned executed)
{
	struct translator *tr = b->tr;
	uint32_t live = tr_flags_live_at(tr, target, 1);
	emit_leave(c, &st, executed, live);
	struct frag *f = target == b->f->pc && !b->changing ? b->f : find(tr, target);
	if (f && reachable(cg_va(c), f->entry)) {
		cg_jmp(c, f->entry);
		return;
	}
	uint32_t number = new_stop(tr, STOP_LINK, target, b->arena);
	struct stop *s = &tr->stops[number];
	uint64_t stub = cg_va(b->cold);
	if (c == b->cold)
		stub += 5;
	s->site = cg_jmp(c, stub);
	s->stub = b->cold->p;
	emit_stop(b->cold, number);
	cg_bytes(b->cold, "\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90", 11);
	if (f) {
		if (!c->overflow && !b->cold->overflow)
			link_stop(tr, s, f);
		return;
	}
	s->next = tr->pending[pending_slot(target)];
	tr->pending[pending_slot(target)] = number;
	if (b->n_targets < sizeof b->target / sizeof *b->target)
		b->target[b->n_targets++] = target;
}

void b_side_exit(struct build *b, uint8_t *site, uint64_t target, unsigned executed)
{
	b->side[b->n_sides++] = (struct side_exit){site, b->st, target, executed};
}

void b_exit_stop(struct build *b, struct cg *c, struct state st, enum stop_kind kind, uint64_t pc,
		 unsigned executed, uint32_t live)
{
	emit_leave(c, &st, executed, live);
	emit_stop(c, new_stop(b->tr, kind, pc, b->arena));
}

void b_exit_indirect(struct build *b, unsigned executed)
{
	struct cg *c = b->c;
	b_spill(b, 0);
	DJ_ASSERT(b->st.spilled & 2, "indirect exit without rcx spilled");
	bool hw = b->st.flags != FLAGS_SAVED;
	home_to_slot(c, &b->st);
	emit_steps(c, executed, hw);
	for (unsigned r = 2; r < 16; r++)
		if (r != HOME && b->st.spilled & 1u << r)
			cg_load_gs(c, r, T_SLOT((int)r));
	cg_bytes(c, "\x0f\xb7\xc1", 3); /* movzx eax, cx */
	struct ea stub = {.base = -1, .index = 0, .scale = 8, .disp = hw ? T_FAST : T_FAST_SAVED, .gs = true};
	cg_rm(c, 4, 0xff, 4, &stub, 0);
}

void b_ring_check(struct build *b, unsigned head_reg)
{
	struct ea limit = ea_gs(T_LIMIT);
	cg_cmp(b->c, 8, head_reg, &limit);
	cg_jcc(b->c, 3, cg_va(b->cold));
	emit_stop(b->cold, STOP_RING_FULL);
	cg_jmp(b->cold, cg_va(b->c));
}

/* ---- one instruction ----------------------------------------------------------------- */

/* Registers and flags as instruction i wants them: what it reads is reloaded; flags are brought back
 * if it reads them or keeps some that are live. */
static void prepare(struct build *b)
{
	const struct insn *in = &b->insn[b->i];
	uint32_t need = b->st.spilled & (in->gpr_read | (in->gpr_written & ~in->gpr_full));
	for (unsigned r = 0; r < 16; r++)
		if (need & 1u << r) {
			b_reload(b, b->c, r);
			b->st.spilled &= ~(1u << r);
			b->st.clean |= 1u << r;
		}
}

/* Right before the instruction's own operation. */
void b_flags_for_op(struct build *b)
{
	const struct insn *in = &b->insn[b->i];
	if (b->st.flags != FLAGS_SAVED)
		return;
	uint32_t need = uses(in);
	if (in->flags_written & ARITH)
		need |= b->live[b->i + 1] & ~kills(in);
	if (need)
		b_need_flags(b, b->c);
}

static void finish(struct build *b)
{
	const struct insn *in = &b->insn[b->i];
	b->st.spilled &= ~in->gpr_full;
	b->st.clean &= ~in->gpr_written;
	if (in->flags_written & ARITH)
		b->st.flags = FLAGS_HW;
}

/* An instruction that does not touch memory. */
static void plain(struct build *b)
{
	const struct insn *in = &b->insn[b->i];
	b_flags_for_op(b);
	if (in->id == INSN_NOP || in->id == INSN_ENDBR)
		return;
	if (in->has_mem && (in->attr & INSN_A_NOACCESS)) {
		if (in->id == INSN_LEA && in->base == INSN_RIP) {
			uint64_t v = in->addr32 ? (uint32_t)in->target : in->target;
			unsigned r = in->opnd[0].reg;
			if (in->opnd[0].size == 8) {
				cg_imm(b->c, r, v);
			} else if (in->opnd[0].size == 4) {
				cg_imm(b->c, r, (uint32_t)v);
			} else {
				b->failed = true;
			}
			return;
		}
		if (in->id != INSN_LEA && (in->base == INSN_RIP || in->seg))
			return; /* a hint about an address: of no consequence */
	}
	if (in->id == INSN_PREFETCH && b->tr->predict == 0) {
		/* the shadow will be read, too */
		struct ea mem, shadow;
		if (b_operand(b, &mem, &shadow))
			cg_reencode(b->c, in, &shadow);
		b->failed = false;
	}
	cg_bytes(b->c, in->bytes, in->len);
}

/* Whether a LOCK prefix is in order here (SDM vol. 2A, LOCK); elsewhere it is an invalid opcode. */
static bool lockable(const struct insn *in)
{
	if (!in->has_mem || !(in->mem_access & INSN_W))
		return false;
	switch (in->id) {
	case INSN_ADD: case INSN_OR: case INSN_ADC: case INSN_SBB: case INSN_AND: case INSN_SUB: case INSN_XOR:
	case INSN_INC: case INSN_DEC: case INSN_NEG: case INSN_NOT: case INSN_BTS: case INSN_BTR: case INSN_BTC:
	case INSN_XADD: case INSN_XCHG: case INSN_CMPXCHG: case INSN_CMPXCHG8B: case INSN_CMPXCHG16B:
		return true;
	}
	return false;
}

/* Instructions that always go through the supervisor. */
static bool must_be_native(const struct insn *in)
{
	if (in->lock && !lockable(in))
		return true; /* faults */
	if (in->id == INSN_RDTSC || in->id == INSN_RDTSCP)
		return false;
	if (in->id == INSN_SYSCALL)
		return false;
	if (!insn_is_emulated(in))
		return true;
	if (in->attr & (INSN_A_PRIV | INSN_A_NONDET))
		return true;
	switch (in->id) { /* memory operands that the decoder's has_mem does not speak of */
	case INSN_XLAT:
	case INSN_MASKMOVDQU:
	case INSN_MASKMOVQ:
	case INSN_MOVDIR64B:
		return true;
	}
	if (in->seg == 5 && in->has_mem && !(in->attr & INSN_A_NOACCESS))
		return true;
	return false;
}

/* Emit instruction i. Returns true if the fragment ends with it. */
static bool emit_insn(struct build *b)
{
	const struct insn *in = &b->insn[b->i];
	if (must_be_native(in)) {
		b->failed = true;
		return true;
	}
	prepare(b);
	if (in->id == INSN_SYSCALL) {
		b_syscall(b);
		return false;
	}
	if (in->id == INSN_RDTSC || in->id == INSN_RDTSCP) {
		b_tsc(b);
	} else if (in->attr & INSN_A_BRANCH) {
		if (b_flow(b))
			return true;
	} else if (in->attr & INSN_A_STRING) {
		b_string(b);
	} else if (in->attr & INSN_A_STACK) {
		b_stack(b);
	} else if (in->has_mem && !(in->attr & INSN_A_NOACCESS)) {
		b_memory(b);
	} else {
		plain(b);
	}
	finish(b);
	return false;
}

/* ---- a fragment ------------------------------------------------------------------------ */

static void scan(struct build *b, uint64_t pc)
{
	b->n = 0;
	b->changing = false;
	while (b->n < FRAG_MAX) {
		const struct decoded *d = tr_decode(b->tr, pc);
		struct insn *in = &b->insn[b->n];
		if (!d || (b->n >= JOIN && find(b->tr, pc)))
			break; /* go on in the fragment that is there */
		*in = d->insn;
		b->n++;
		pc += in->len;
		b->changing |= d->changing;
		if (b->changing && (b->n >= 16 || (in->mem_access & INSN_W) ||
				    (in->attr & (INSN_A_STACK | INSN_A_STRING))))
			break;
		if (must_be_native(in))
			break;
		if ((in->attr & INSN_A_BRANCH) && !(in->attr & INSN_A_COND))
			break;
	}
	/* Backwards: which flags are live before each instruction. */
	uint32_t live = ARITH;
	if (b->n) {
		const struct insn *last = &b->insn[b->n - 1];
		if (must_be_native(last) || (last->attr & (INSN_A_INDIRECT | INSN_A_RET)))
			live = ARITH;
		else if ((last->attr & INSN_A_BRANCH) && !(last->attr & INSN_A_COND))
			live = tr_flags_live_at(b->tr, (uint64_t)last->imm, 1);
		else
			live = tr_flags_live_at(b->tr, last->addr + last->len, 1);
	}
	b->live[b->n] = live;
	for (unsigned i = b->n; i-- > 0;) {
		const struct insn *in = &b->insn[i];
		if ((in->attr & INSN_A_BRANCH) && (in->attr & INSN_A_COND))
			live |= tr_flags_live_at(b->tr, (uint64_t)in->imm, 1);
		live &= ~kills(in);
		live |= uses(in);
		if (must_be_native(in))
			live = ARITH;
		b->live[i] = live;
	}
}

/* The code may be rewritten behind our back: compare it with what is being translated. */
static void emit_code_check(struct build *b, uint64_t pc, size_t len)
{
	struct cg *c = b->c;
	uint8_t bytes[16 * INSN_MAX + 8] = {0};
	bool changing;
	len = b->tr->ops.read_code(b->tr->ops.ctx, pc, bytes, len, &changing);
	cg_store_gs(c, 0, T_SLOT(0));
	cg_store_gs(c, 1, T_SLOT(1));
	if (b->live[0])
		emit_save_flags(c, RAX_FREE);
	struct state st = {.spilled = 3 | HOME_BIT, .flags = b->live[0] ? FLAGS_SAVED : FLAGS_HW};
	cg_imm(c, 1, pc);
	for (size_t k = 0; k < len; k += 8) {
		unsigned n = len - k >= 8 ? 8 : len - k >= 4 ? 4 : 1;
		uint64_t v = 0;
		memcpy(&v, bytes + k, n);
		cg_imm(c, 0, v);
		struct ea m = ea_base(1, (int32_t)k);
		cg_cmp(c, n, 0, &m);
		cg_jcc(c, 5, cg_va(b->cold));
		b_exit_stop(b, b->cold, st, STOP_CHANGED, pc, 0, b->live[0]);
		if (n < 8)
			k -= 8 - n;
	}
	emit_leave(c, &st, 0, b->live[0]);
}

static void clear_indirect(struct translator *tr);

static struct arena *arena_for(struct translator *tr, uint64_t pc)
{
	for (struct arena *a = tr->arenas; a; a = a->next)
		if (reachable(a->va, pc) && reachable(a->va + ARENA_SIZE, pc))
			return a;
	struct arena *a = calloc(1, sizeof *a);
	DJ_ASSERT(a, "out of memory for an arena");
	a->va = tr->ops.new_arena(tr->ops.ctx, pc, ARENA_SIZE, &a->ours);
	if (!a->va) {
		free(a);
		return tr->arenas;
	}
	size_t rt = (size_t)(rt_end - rt_begin);
	memcpy(a->ours, rt_begin, rt);
	rt = (rt + 63) & ~(size_t)63;
	uint64_t delta = a->va - (uint64_t)(uintptr_t)a->ours;
	a->hot = (struct cg){.p = a->ours + rt, .end = a->ours + ARENA_HOT, .delta = delta};
	a->cold = (struct cg){.p = a->ours + ARENA_HOT, .end = a->ours + ARENA_SIZE, .delta = delta};
	a->next = tr->arenas;
	tr->arenas = a;
	if (!a->next)
		clear_indirect(tr);
	return a;
}

/* ---- the set of pages translated from ---- */

static uint32_t page_at(const struct translator *tr, uint64_t page)
{
	uint32_t i = (uint32_t)(page * 0x9e3779b97f4a7c15ULL >> 32) & (tr->cap_pages - 1);
	while (tr->pages[i] && tr->pages[i] != page)
		i = (i + 1) & (tr->cap_pages - 1);
	return i;
}

static void add_page(struct translator *tr, uint64_t page)
{
	if (2 * tr->n_pages >= tr->cap_pages) {
		uint64_t *old = tr->pages;
		uint32_t n = tr->cap_pages;
		tr->cap_pages = n ? 2 * n : 1024;
		tr->pages = calloc(tr->cap_pages, sizeof *tr->pages);
		DJ_ASSERT(tr->pages, "out of memory for pages");
		for (uint32_t i = 0; i < n; i++)
			if (old[i])
				tr->pages[page_at(tr, old[i])] = old[i];
		free(old);
	}
	uint32_t i = page_at(tr, page);
	if (!tr->pages[i]) {
		tr->pages[i] = page;
		tr->n_pages++;
	}
}

/* Translate the run of code at pc. Ahead targets go to `ahead`. */
static struct frag *translate(struct translator *tr, uint64_t pc, struct build *b)
{
	b->tr = tr;
	b->arena = arena_for(tr, pc);
	if (!b->arena)
		return NULL;
	b->c = &b->arena->hot;
	b->cold = &b->arena->cold;
	b->n_targets = 0;
	b->n_sides = 0;
	b->ret_site = 0;
	scan(b, pc);
	if (!b->n)
		return NULL;
	size_t len = 0;
	for (unsigned i = 0; i < b->n; i++)
		len += b->insn[i].len;
	tr->ops.translated(tr->ops.ctx, pc, len);

	struct frag *f = calloc(1, sizeof *f + b->n * sizeof f->insn[0]);
	DJ_ASSERT(f, "out of memory for a fragment");
	b->f = f;
	f->pc = pc;
	f->pc_len = (uint32_t)len;
	f->arena = b->arena;
	f->entry = cg_va(b->c);
	f->live = b->live[0];
	b->st = (struct state){.spilled = HOME_BIT, .flags = FLAGS_HW};
	if (b->changing) {
		/* boundary 0 is behind the check, where the state is whole again */
		emit_code_check(b, pc, len);
	}

	bool ended = false;
	for (b->i = 0; b->i < b->n && !ended; b->i++) {
		struct finsn *fi = &f->insn[b->i];
		fi->pc_off = (uint16_t)(b->insn[b->i].addr - pc);
		fi->start = fi->body = (uint32_t)(cg_va(b->c) - f->entry);
		fi->spilled_start = fi->spilled_body = (uint16_t)b->st.spilled;
		fi->flags_start = fi->flags_body = (uint8_t)b->st.flags;
		b->body_marked = false;
		b->busy = 0;
		b->failed = false;
		f->n = b->i + 1;
		struct cg hot = *b->c, cold = *b->cold;
		struct state st = b->st;
		uint32_t n_stops = tr->n_stops;
		unsigned n_targets = b->n_targets;
		ended = emit_insn(b);
		if (b->failed) {
			/* Undo whatever was begun and let the supervisor execute it. Stops made
			 * meanwhile are at most unlinked LINK stops at the end of the table. */
			*b->c = hot;
			*b->cold = cold;
			b->st = st;
			DJ_ASSERT(tr->n_stops == n_stops && b->n_targets == n_targets,
				  "instruction at %#llx failed after making an exit",
				  (unsigned long long)b->insn[b->i].addr);
			fi->body = fi->start;
			b_exit_stop(b, b->c, b->st, STOP_NATIVE, b->insn[b->i].addr, b->i,
				    b->live[b->i]);
			ended = true;
		}
	}
	if (!ended) {
		const struct insn *last = &b->insn[b->n - 1];
		b_exit(b, b->c, b->st, last->addr + last->len, b->n);
	}
	for (unsigned k = 0; k < b->n_sides; k++) {
		if (!b->c->overflow)
			cg_patch32(b->side[k].site, b->c->delta, cg_va(b->c));
		b_exit(b, b->c, b->side[k].st, b->side[k].target, b->side[k].executed);
	}
	f->end = cg_va(b->c);
	if (b->c->overflow || b->cold->overflow) {
		free(f);
		return NULL;
	}

	unsigned slot = pending_slot(pc);
	f->hash_next = tr->hash[slot];
	tr->hash[slot] = f;
	struct arena *a = b->arena;
	if (a->n_frags == a->cap_frags) {
		a->cap_frags = a->cap_frags ? a->cap_frags * 2 : 4096;
		a->frags = realloc(a->frags, a->cap_frags * sizeof *a->frags);
		DJ_ASSERT(a->frags, "out of memory for fragments");
	}
	a->frags[a->n_frags++] = f;
	for (uint32_t *p = &tr->pending[slot]; *p;) {
		struct stop *s = &tr->stops[*p];
		if (s->pc == pc) {
			link_stop(tr, s, f);
			*p = s->next;
		} else {
			p = &s->next;
		}
	}
	for (uint64_t page = pc >> 12; page <= (pc + len - 1) >> 12; page++)
		add_page(tr, page);
	tr->stats.fragments++;
	tr->stats.instructions += f->n;
	tr->stats.code_bytes += f->end - f->entry;
	return f;
}

#define AHEAD 24

struct frag *tr_fragment(struct translator *tr, uint64_t pc)
{
	for (struct arena *a = tr->arenas; a; a = a->next)
		if (a->hot.overflow || a->cold.overflow) {
			tr_flush(tr); /* a full cache: start over */
			break;
		}
	struct frag *f = find(tr, pc);
	if (f)
		return f;
	static struct build b; /* large; the supervisor translates in one thread */
	f = translate(tr, pc, &b);
	if (!f && b.arena && (b.c->overflow || b.cold->overflow)) {
		tr_flush(tr);
		f = translate(tr, pc, &b);
	}
	if (!f)
		return NULL;
	/* One stop costs as much as translating a dozen fragments: go ahead along direct
	 * branches, and to return addresses, which are indirect targets soon. */
	struct { uint64_t pc; bool ret; } queue[AHEAD * 4];
	unsigned head = 0, tail = 0;
	unsigned made = 0;
	do {
		if (b.ret_site && tail < AHEAD * 4) {
			queue[tail].pc = b.ret_site;
			queue[tail++].ret = true;
		}
		for (unsigned i = 0; i < b.n_targets && tail < AHEAD * 4; i++) {
			queue[tail].pc = b.target[i];
			queue[tail++].ret = false;
		}
		struct frag *g = NULL;
		while (head < tail && !g) {
			uint64_t t = queue[head].pc;
			bool ret = queue[head++].ret;
			g = find(tr, t);
			if (g) {
				if (ret)
					tr_add_indirect(tr, g);
				g = NULL;
				continue;
			}
			g = translate(tr, t, &b);
			if (!g && (b.c->overflow || b.cold->overflow))
				return f;
			if (g && ret)
				tr_add_indirect(tr, g);
		}
		if (!g)
			break;
	} while (++made < AHEAD);
	return f;
}

/* ---- looking things up ------------------------------------------------------------------ */

/* From an indirect branch to the entry of `f`: the stub that the fast table leads to. It checks that it is
 * meant without touching flags: rcx minus the address must be zero. */
static uint64_t emit_stub(struct cg *c, const struct frag *f, bool saved, const uint8_t *other)
{
	uint64_t at = cg_va(c);
	cg_imm(c, 0, -f->pc);
	struct ea sum = {.base = 1, .index = 0, .scale = 1};
	cg_rm(c, 8, 0x8d, 1, &sum, 0);
	uint8_t *meant = cg_jcc8(c, 0xe3); /* jrcxz */
	cg_jmp(c, rt_va(f->arena, other));
	cg_here8(c, meant);
	if (saved && f->live)
		emit_restore_flags(c, RAX_FREE);
	cg_load_gs(c, 1, T_SLOT(1));
	cg_load_gs(c, 0, T_SLOT(0));
	cg_jmp(c, f->entry);
	return at;
}

void tr_add_indirect(struct translator *tr, struct frag *f)
{
	uint64_t *keys = tr_control(tr, T_KEYS), *values = tr_control(tr, T_VALUES);
	uint64_t *fast = tr_control(tr, T_FAST), *fast_saved = tr_control(tr, T_FAST_SAVED);
	uint64_t mask = (1u << AREA_IBL_BITS) - 1;
	if (f->indirect)
		return;
	struct cg *c = &f->arena->cold;
	uint64_t hw = emit_stub(c, f, false, rt_other_hw);
	uint64_t saved = emit_stub(c, f, true, rt_other_saved);
	uint64_t direct = cg_va(c); /* the address has been compared already */
	if (f->live)
		emit_restore_flags(c, RAX_FREE);
	cg_load_gs(c, 1, T_SLOT(1));
	cg_load_gs(c, 0, T_SLOT(0));
	cg_jmp(c, f->entry);
	if (c->overflow)
		return; /* the next translation starts over */
	f->indirect = true;
	fast[f->pc & 0xffff] = hw;
	fast_saved[f->pc & 0xffff] = saved;
	for (uint64_t i = f->pc & mask, n = 0; n <= mask / 2; i = (i + 1) & mask, n++)
		if (!keys[i]) {
			values[i] = direct;
			keys[i] = f->pc;
			return;
		}
	dj_broken(__FILE__, __LINE__, "the indirect-branch table is full");
}

/* No indirect target is known. */
static void clear_indirect(struct translator *tr)
{
	uint64_t *fast = tr_control(tr, T_FAST), *fast_saved = tr_control(tr, T_FAST_SAVED);
	uint64_t *keys = tr_control(tr, T_KEYS);
	for (unsigned i = 0; i < 1 << AREA_IBL_BITS; i++)
		if (keys[i])
			keys[i] = 0;
	for (unsigned i = 0; i < 1 << 16; i++) {
		fast[i] = rt_va(tr->arenas, rt_none_hw);
		fast_saved[i] = rt_va(tr->arenas, rt_none_saved);
	}
}

static struct arena *arena_at(const struct translator *tr, uint64_t va)
{
	for (struct arena *a = tr->arenas; a; a = a->next)
		if (va >= a->va && va < a->va + ARENA_SIZE)
			return a;
	return NULL;
}

bool tr_in_cache(const struct translator *tr, uint64_t va)
{
	return arena_at(tr, va) != NULL;
}

struct stop *tr_stop_at(struct translator *tr, uint64_t va, uint32_t *runtime)
{
	*runtime = 0;
	struct arena *a = arena_at(tr, va);
	if (!a || a->ours[va - a->va] != 0xcc)
		return NULL;
	uint32_t n;
	memcpy(&n, a->ours + (va - a->va) + 1, 4);
	if (n < STOP_TABLE) {
		*runtime = n;
		return NULL;
	}
	return n < tr->n_stops ? &tr->stops[n] : NULL;
}

static struct frag *frag_at(const struct arena *a, uint64_t va)
{
	size_t lo = 0, hi = a->n_frags;
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		if (a->frags[mid]->end <= va)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < a->n_frags && a->frags[lo]->entry <= va ? a->frags[lo] : NULL;
}

bool tr_locate(struct translator *tr, uint64_t va, uint64_t rt_ret, struct tr_where *w)
{
	struct arena *a = arena_at(tr, va);
	memset(w, 0, sizeof *w);
	if (!a)
		return false;
	uint64_t at = va;
	bool string = va >= rt_va(a, rt_strings) && va < rt_va(a, rt_strings_end);
	if (string) {
		at = rt_ret - 1; /* inside the code of the string instruction */
		a = arena_at(tr, at);
		if (!a)
			return false;
	}
	struct frag *f = frag_at(a, at);
	if (!f)
		return false;
	uint32_t off = (uint32_t)(at - f->entry);
	uint32_t i = f->n;
	while (i > 0 && f->insn[i - 1].start > off)
		i--;
	if (!i)
		return false;
	i--;
	const struct finsn *fi = &f->insn[i];
	w->frag = f;
	w->index = i;
	w->pc = f->pc + fi->pc_off;
	w->boundary = !string && fi->start == off;
	if (w->boundary) {
		w->spilled = fi->spilled_start;
		w->flags = fi->flags_start;
		return true;
	}
	w->spilled = fi->spilled_body;
	w->flags = fi->flags_body;
	w->after_syscall = fi->after_syscall && off == fi->after_syscall;
	if (string) {
		uint32_t o = (uint32_t)(va - a->va);
		for (const uint32_t *h = rt_heads; h < rt_heads_end; h++)
			w->string_head |= *h == o;
	}
	return true;
}

bool tr_covers(const struct translator *tr, uint64_t addr, uint64_t len)
{
	uint64_t first = addr >> 12, last = (addr + len - 1) >> 12;
	if (!tr->n_pages || !len)
		return false;
	if (last - first < tr->cap_pages) {
		for (uint64_t page = first; page <= last; page++)
			if (tr->pages[page_at(tr, page)])
				return true;
		return false;
	}
	for (uint32_t i = 0; i < tr->cap_pages; i++)
		if (tr->pages[i] && tr->pages[i] >= first && tr->pages[i] <= last)
			return true;
	return false;
}

uint64_t tr_syscall_insn(const struct translator *tr)
{
	return tr->arenas ? rt_va(tr->arenas, rt_syscall) : 0;
}

bool tr_arena(const struct translator *tr, unsigned i, uint64_t *at, uint64_t *size)
{
	for (struct arena *a = tr->arenas; a; a = a->next)
		if (i-- == 0) {
			*at = a->va;
			*size = ARENA_SIZE;
			return true;
		}
	return false;
}

void tr_stats(const struct translator *tr, struct tr_stats *s)
{
	*s = tr->stats;
}

/* ---- life -------------------------------------------------------------------------------- */

struct translator *tr_new(const struct translator_ops *ops, uint8_t *control, uint64_t s, unsigned predict)
{
	struct translator *tr = calloc(1, sizeof *tr);
	DJ_ASSERT(tr, "out of memory for the translator");
	tr->ops = *ops;
	tr->control = control;
	tr->s = s;
	tr->predict = predict;
	tr->pending = calloc(FRAG_HASH, sizeof *tr->pending);
	tr->decoded = calloc(DECODED, sizeof *tr->decoded);
	DJ_ASSERT(tr->pending && tr->decoded, "out of memory for the translator");
	for (unsigned i = 0; i < STOP_TABLE; i++)
		new_stop(tr, STOP_LINK, 0, NULL);
	return tr;
}

void tr_flush(struct translator *tr)
{
	for (struct arena *a = tr->arenas; a; a = a->next) {
		for (size_t i = 0; i < a->n_frags; i++)
			free(a->frags[i]);
		a->n_frags = 0;
		size_t rt = (size_t)(rt_end - rt_begin);
		rt = (rt + 63) & ~(size_t)63;
		a->hot.p = a->ours + rt;
		a->cold.p = a->ours + ARENA_HOT;
		a->hot.overflow = a->cold.overflow = false;
	}
	memset(tr->hash, 0, sizeof tr->hash);
	memset(tr->pending, 0, FRAG_HASH * sizeof *tr->pending);
	if (tr->arenas)
		clear_indirect(tr);
	tr->n_stops = STOP_TABLE;
	if (tr->pages)
		memset(tr->pages, 0, tr->cap_pages * sizeof *tr->pages);
	tr->n_pages = 0;
	tr->stats.flushes++;
}

void tr_free(struct translator *tr)
{
	if (!tr)
		return;
	while (tr->arenas) {
		struct arena *a = tr->arenas;
		tr->arenas = a->next;
		for (size_t i = 0; i < a->n_frags; i++)
			free(a->frags[i]);
		free(a->frags);
		free(a);
	}
	free(tr->pending);
	free(tr->decoded);
	free(tr->pages);
	free(tr->stops);
	free(tr);
}
