/*
 * Where the program's registers and flags are while a fragment is being emitted, and the ways out
 * of a fragment. translate.h has the rules.
 */
#include "translator/translate-priv.h"

#include <stdlib.h>

/* ---- registers -------------------------------------------------------------------- */

uint32_t tr_reg_used(const struct tr_build *b)
{
	const struct insn *in = &b->insn[b->i];
	return in->gpr_read | in->gpr_written;
}

void tr_reg_spill(struct tr_build *b, unsigned r)
{
	if (b->st.spilled & 1u << r)
		return;
	if (!(b->st.clean & 1u << r))
		cg_store_gs(b->c, r, T_SLOT((int)r));
	b->st.spilled |= 1u << r;
	b->st.clean &= ~(1u << r);
}

void tr_reg_reload(struct tr_build *b, struct cg *c, unsigned r)
{
	(void)b;
	cg_load_gs(c, r, T_SLOT((int)r));
}

/* A register the translation may overwrite: not used by the current instruction, not in `avoid`,
 * below r8 if `low`. Prefers one that is spilled already, then the one needed latest. */
int tr_reg_scratch(struct tr_build *b, uint32_t avoid, bool low)
{
	uint32_t no = avoid | tr_reg_used(b) | 1u << 4;
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
	tr_reg_spill(b, (unsigned)best);
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

void tr_emit_save_flags(struct cg *c, enum aside aside)
{
	struct ea m = ea_gs(T_FLAGS);
	rax_aside(c, aside, false);
	cg8(c, 0x9f);			/* lahf */
	cg_bytes(c, "\x0f\x90\xc0", 3); /* seto al */
	cg_rm(c, 4, 0x89, 0, &m, 0);
	rax_aside(c, aside, true);
}

void tr_emit_restore_flags(struct cg *c, enum aside aside)
{
	struct ea m = ea_gs(T_FLAGS);
	rax_aside(c, aside, false);
	cg_rm(c, 4, 0x8b, 0, &m, 0);
	cg_bytes(c, "\x04\x7f", 2); /* add al, 127: overflows if al is 1 */
	cg8(c, 0x9e);		    /* sahf */
	rax_aside(c, aside, true);
}

static enum aside aside_for(const struct tr_build *b)
{
	uint32_t free_regs = b->st.spilled & ~b->busy;
	return free_regs & 1 ? RAX_FREE : free_regs & HOME_BIT ? RAX_TO_HOME : RAX_TO_MEMORY;
}

void tr_flags_save(struct tr_build *b)
{
	if (b->st.flags != TR_FLAGS_HW)
		return;
	tr_emit_save_flags(b->c, aside_for(b));
	b->st.flags = TR_FLAGS_BOTH;
}

void tr_flags_clobber(struct tr_build *b, bool after)
{
	uint32_t live = b->live[after ? b->i + 1 : b->i];
	if (b->st.flags == TR_FLAGS_HW) {
		if (!live)
			return;
		tr_flags_save(b);
	}
	b->st.flags = TR_FLAGS_SAVED;
}

void tr_flags_need(struct tr_build *b, struct cg *c)
{
	if (b->st.flags != TR_FLAGS_SAVED)
		return;
	tr_emit_restore_flags(c, aside_for(b));
	b->st.flags = TR_FLAGS_BOTH;
}

void tr_mark_body(struct tr_build *b)
{
	if (b->body_marked)
		return;
	struct tr_finsn *fi = &b->f->insn[b->i];
	fi->body = (uint32_t)(cg_va(b->c) - b->f->entry);
	fi->spilled_body = (uint16_t)b->st.spilled;
	fi->flags_body = (uint8_t)b->st.flags;
	b->body_marked = true;
}

/* ---- stops ------------------------------------------------------------------------- */

uint32_t tr_new_stop(struct translator *tr, enum tr_stop_kind kind, uint64_t pc, struct tr_arena *a)
{
	if (tr->n_stops == tr->cap_stops) {
		tr->cap_stops = tr->cap_stops ? tr->cap_stops * 2 : 4096;
		tr->stops = realloc(tr->stops, tr->cap_stops * sizeof(*tr->stops));
		DJ_ASSERT(tr->stops, "out of memory for %u stops", tr->cap_stops);
	}
	tr->stops[tr->n_stops] = (struct tr_stop){ .kind = kind, .pc = pc, .arena = a };
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

static void home_to_slot(struct cg *c, const struct tr_state *st)
{
	if (!((st->spilled | st->clean) & HOME_BIT))
		cg_store_gs(c, HOME, T_SLOT(HOME));
}

/* Everything that leaving takes except the jump: steps, flags, registers but the home one. */
void tr_exit_leave(struct cg *c, const struct tr_state *st, unsigned executed, uint32_t live)
{
	home_to_slot(c, st);
	emit_steps(c, executed, live && st->flags != TR_FLAGS_SAVED);
	if (st->flags == TR_FLAGS_SAVED && live)
		tr_emit_restore_flags(c, st->spilled & 1 ? RAX_FREE : RAX_TO_HOME);
	for (unsigned r = 0; r < 16; r++)
		if (r != HOME && st->spilled & 1u << r)
			cg_load_gs(c, r, T_SLOT((int)r));
}

unsigned tr_slot(uint64_t pc)
{
	return (unsigned)((pc * 0x9e3779b97f4a7c15ULL) >> 46);
}

struct tr_frag *tr_find(struct translator *tr, uint64_t pc)
{
	for (struct tr_frag *f = tr->hash[tr_slot(pc)]; f; f = f->hash_next)
		if (f->pc == pc)
			return f;
	return NULL;
}

bool tr_reachable(uint64_t from, uint64_t to)
{
	int64_t d = (int64_t)(to - from);
	return d > -0x7ff00000LL && d < 0x7ff00000LL;
}

void tr_link_stop(struct translator *tr, struct tr_stop *s, const struct tr_frag *f)
{
	uint64_t site_va = (uint64_t)(uintptr_t)s->site + s->arena->hot.delta;
	(void)tr;
	if (tr_reachable(site_va, f->entry)) {
		cg_patch32(s->site, s->arena->hot.delta, f->entry);
	} else {
		uint8_t far[14] = { 0xff, 0x25, 0, 0, 0, 0 };
		memcpy(far + 6, &f->entry, 8);
		memcpy(s->stub, far, sizeof(far));
	}
}

void tr_exit_to(struct tr_build *b, struct cg *c, struct tr_state st, uint64_t target,
		unsigned executed)
{
	struct translator *tr = b->tr;
	uint32_t live = tr_flags_live_at(tr, target, 1);
	tr_exit_leave(c, &st, executed, live);
	struct tr_frag *f = target == b->f->pc && !b->changing ? b->f : tr_find(tr, target);
	if (f && tr_reachable(cg_va(c), f->entry)) {
		cg_jmp(c, f->entry);
		return;
	}
	uint32_t number = tr_new_stop(tr, TR_STOP_LINK, target, b->arena);
	struct tr_stop *s = &tr->stops[number];
	uint64_t stub = cg_va(b->cold);
	if (c == b->cold)
		stub += 5;
	s->site = cg_jmp(c, stub);
	s->stub = b->cold->p;
	emit_stop(b->cold, number);
	cg_bytes(b->cold, "\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90", 11);
	if (f) {
		if (!c->overflow && !b->cold->overflow)
			tr_link_stop(tr, s, f);
		return;
	}
	s->next = tr->pending[tr_slot(target)];
	tr->pending[tr_slot(target)] = number;
	if (b->n_targets < sizeof(b->target) / sizeof(*b->target))
		b->target[b->n_targets++] = target;
}

void tr_exit_side(struct tr_build *b, uint8_t *site, uint64_t target, unsigned executed)
{
	b->side[b->n_sides++] = (struct side_exit){ site, b->st, target, executed };
}

void tr_exit_stop(struct tr_build *b, struct cg *c, struct tr_state st, enum tr_stop_kind kind,
		  uint64_t pc, unsigned executed, uint32_t live)
{
	tr_exit_leave(c, &st, executed, live);
	emit_stop(c, tr_new_stop(b->tr, kind, pc, b->arena));
}

void tr_exit_indirect(struct tr_build *b, unsigned executed)
{
	struct cg *c = b->c;
	tr_reg_spill(b, 0);
	DJ_ASSERT(b->st.spilled & 2, "indirect exit without rcx spilled");
	bool hw = b->st.flags != TR_FLAGS_SAVED;
	home_to_slot(c, &b->st);
	emit_steps(c, executed, hw);
	for (unsigned r = 2; r < 16; r++)
		if (r != HOME && b->st.spilled & 1u << r)
			cg_load_gs(c, r, T_SLOT((int)r));
	/* who it was, for a target that the processor refuses */
	cg_imm_gs(c, T_BRANCH, tr_new_stop(b->tr, TR_STOP_BRANCH, b->insn[b->i].addr, b->arena));
	cg_bytes(c, "\x0f\xb7\xc1", 3); /* movzx eax, cx */
	struct ea stub = {
		.base = -1, .index = 0, .scale = 8, .disp = hw ? T_FAST : T_FAST_SAVED, .gs = true
	};
	cg_rm(c, 4, 0xff, 4, &stub, 0);
}

void tr_ring_check(struct tr_build *b, unsigned head_reg)
{
	struct ea limit = ea_gs(T_LIMIT);
	cg_cmp(b->c, 8, head_reg, &limit);
	cg_jcc(b->c, 3, cg_va(b->cold));
	emit_stop(b->cold, STOP_RING_FULL);
	cg_jmp(b->cold, cg_va(b->c));
}
