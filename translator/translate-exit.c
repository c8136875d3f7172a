/*
 * The ways out of a fragment.
 */
#include "translator/build.h"
#include "translator/runtime.h"

static void emit_stop(struct cg *c, uint32_t number)
{
	cg8(c, 0xcc);
	cg_note(c, CG_NUMBER);
	cg32(c, number);
}

/* To where the supervisor is asked for the fragment. */
static void emit_ask(struct cg *c, const struct tr_arena *a, uint32_t number)
{
	cg8(c, 0x41); /* mov r11d, number */
	cg8(c, 0xb8 + (HOME & 7));
	cg_note(c, CG_NUMBER);
	cg32(c, number);
	cg_jmp(c, rt_va(a, rt_ask));
}

void tr_emit_steps(struct cg *c, int32_t n, bool keep_flags)
{
	struct ea m = ea_gs(T_STEPS((int)(cg_va(c) / 64 % TR_COUNTERS))), plus = ea_base(HOME, n);
	bool small = n >= -128 && n < 128;
	if (!n)
		return;
	if (!keep_flags) {
		cg_rm(c, 8, small ? 0x83 : 0x81, 0, &m, small ? 1 : 4);
		if (small)
			cg8(c, (uint8_t)n);
		else
			cg32(c, (uint32_t)n);
		return;
	}
	cg_load(c, HOME, &m);
	cg_rm(c, 8, 0x8d, HOME, &plus, 0);
	cg_store(c, HOME, &m);
}

void tr_emit_get_steps(struct cg *c, unsigned reg, int32_t lag)
{
	cg_load_gs(c, reg, T_STEPS(0));
	for (int i = 1; i < TR_COUNTERS; i++) {
		struct ea m = ea_gs(T_STEPS(i));
		cg_rm(c, 8, 0x03, reg, &m, 0); /* add */
	}
	cg_lea(c, reg, reg, lag);
}

static void home_to_slot(struct cg *c, const struct tr_state *st)
{
	if (!((st->spilled | st->clean) & HOME_BIT))
		cg_store_gs(c, HOME, T_SLOT(HOME));
}

void tr_exit_leave(struct cg *c, const struct tr_state *st, int32_t n, uint32_t live)
{
	home_to_slot(c, st);
	tr_emit_steps(c, n, live && st->flags != TR_FLAGS_SAVED);
	if (st->flags == TR_FLAGS_SAVED && live)
		tr_emit_restore_flags(c, st->spilled & 1 ? RAX_FREE : RAX_TO_HOME);
	for (unsigned r = 0; r < 16; r++)
		if (r != HOME && st->spilled & 1u << r)
			cg_load_gs(c, r, T_SLOT((int)r));
}

/* Nops needed if a rel32 at `site`, which will be patched while others execute it, is to lie within
 * eight aligned bytes. */
static unsigned nops_before(uint64_t site)
{
	return (site & 7) > 4 ? 8 - (site & 7) : 0;
}

static const char nops[4][4] = { "", "\x90", "\x66\x90", "\x0f\x1f\x00" };

/* The lag of the entry at `target` for one who comes with so many steps that are not in T_STEPS. */
static uint32_t lag_at(const struct tr_build *b, uint64_t target, unsigned steps)
{
	if (target == b->f->pc)
		return b->f->lag;
	steps = tr_lag_kept(b->tr, target, steps <= TR_LAG_MAX / 2 ? steps : 0);
	return tr_lag_at(b->tr, target, b->numbers, steps);
}

/* The rel32 that was emitted last is a link, which leads to its stub. */
static void link_here(struct tr_build *b, uint64_t target, uint32_t lag)
{
	struct translator *tr = b->tr;
	b->numbers = tr_number_new(tr, TR_STOP_LINK, target, b->numbers);
	struct tr_number *n = &tr->numbers[b->numbers];
	n->stop.lag = lag;
	n->stub = (uint32_t)(b->cold->p - b->arena->ours);
	n->site = (uint32_t)(b->c->p - 4 - b->arena->ours);
	emit_ask(b->cold, b->arena, b->numbers);
	n->to = tr_find(tr, target); /* will be linked to it */
	if (!n->to && b->n_targets < sizeof(b->target) / sizeof(*b->target))
		b->target[b->n_targets++] = target;
}

void tr_exit_to(struct tr_build *b, struct tr_state st, uint64_t target, unsigned steps)
{
	struct cg *c = b->c;
	uint32_t lag = lag_at(b, target, steps);
	unsigned pad;
	tr_exit_leave(c, &st, (int32_t)(steps - lag), tr_live_at(b, target));
	pad = nops_before(cg_va(c) + 1);
	cg_bytes(c, nops[pad], pad);
	cg_jmp(c, cg_va(b->cold));
	link_here(b, target, lag);
}

void tr_exit_op(struct tr_build *b, uint8_t *op)
{
	b->op = op;
	b->op_end = b->c->p;
}

bool tr_exit_jcc(struct tr_build *b, unsigned cond, uint64_t target, unsigned steps)
{
	struct cg *c = b->c;
	const struct tr_state *st = &b->st;
	uint32_t lag = lag_at(b, target, steps);
	unsigned pad = nops_before(cg_va(c) + 2);
	if (lag != steps || st->spilled & ~HOME_BIT || !((st->spilled | st->clean) & HOME_BIT) ||
	    (st->flags == TR_FLAGS_SAVED && tr_live_at(b, target)))
		return false;
	if (pad && b->op && b->op_end == c->p && !c->overflow) {
		size_t n = (size_t)(c->p - b->op);
		uint8_t op[INSN_MAX];
		struct tr_finsn *fi = &b->f->insn[b->i];
		memcpy(op, b->op, n);
		c->p = b->op;
		cg_bytes(c, nops[pad], pad);
		cg_bytes(c, op, n);
		fi->start = (uint16_t)(fi->start + pad);
		fi->body = (uint16_t)(fi->body + pad);
	} else {
		cg_bytes(c, nops[pad], pad);
	}
	cg_jcc(c, cond, cg_va(b->cold));
	link_here(b, target, lag);
	return true;
}

void tr_exit_side(struct tr_build *b, uint8_t *site, uint64_t target, unsigned steps)
{
	b->side[b->n_sides++] = (struct tr_side){ site, b->st, target, steps };
}

void tr_exit_stop(struct tr_build *b, struct cg *c, struct tr_state st, enum tr_stop_kind kind,
		  uint64_t pc, unsigned steps, uint32_t live)
{
	tr_exit_leave(c, &st, (int32_t)steps, live);
	b->numbers = tr_number_new(b->tr, kind, pc, b->numbers);
	emit_stop(c, b->numbers);
}

void tr_exit_indirect(struct tr_build *b, unsigned steps)
{
	struct cg *c = b->c;
	DJ_ASSERT(b->st.spilled & HOME_BIT, "indirect exit without the home register spilled");
	DJ_ASSERT(b->st.flags == TR_FLAGS_SAVED, "indirect exit with flags in the processor");
	tr_emit_steps(c, (int32_t)steps, false);
	tr_reg_spill(b, 1);
	for (unsigned r = 0; r < 16; r++)
		if (r != 1 && r != HOME && b->st.spilled & 1u << r)
			cg_load_gs(c, r, T_SLOT((int)r));
	/* who it was, for a target that the processor refuses */
	b->numbers = tr_number_new(b->tr, TR_STOP_BRANCH, b->insn[b->i].addr, b->numbers);
	cg_imm_gs(c, T_BRANCH, b->numbers);
	cg_note_at(c, c->p - 4, CG_NUMBER);
	cg_rr(c, 4, 0x0fb7, 1, HOME); /* movzx ecx, r11w */
	struct ea stub = { .base = -1, .index = 1, .scale = 8, .disp = T_FAST, .gs = true };
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
