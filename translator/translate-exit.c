/*
 * The ways out of a fragment.
 */
#include "translator/build.h"

static void emit_stop(struct cg *c, uint32_t number)
{
	cg8(c, 0xcc);
	cg32(c, number);
}

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

/* The next instruction is `jmp rel32`, which will be patched while others execute it: its rel32 has
 * to lie within eight aligned bytes. */
static void align_jump(struct cg *c)
{
	static const char nops[4][4] = { "", "\x90", "\x66\x90", "\x0f\x1f\x00" };
	unsigned at = (unsigned)(cg_va(c) + 1) & 7;
	if (at > 4)
		cg_bytes(c, nops[8 - at], 8 - at);
}

void tr_exit_to(struct tr_build *b, struct tr_state st, uint64_t target, unsigned executed)
{
	struct cg *c = b->c;
	struct translator *tr = b->tr;
	tr_exit_leave(c, &st, executed, tr_live_at(b, target));
	b->numbers = tr_number_new(tr, TR_STOP_LINK, target, b->numbers);
	struct tr_number *n = &tr->numbers[b->numbers];
	align_jump(c);
	n->stub = (uint32_t)(b->cold->p - b->arena->ours);
	n->site = (uint32_t)(cg_jmp(c, cg_va(b->cold)) - b->arena->ours);
	emit_stop(b->cold, b->numbers);
	n->to = tr_find(tr, target); /* will be linked to it */
	if (!n->to && b->n_targets < sizeof(b->target) / sizeof(*b->target))
		b->target[b->n_targets++] = target;
}

void tr_exit_side(struct tr_build *b, uint8_t *site, uint64_t target, unsigned executed)
{
	b->side[b->n_sides++] = (struct tr_side){ site, b->st, target, executed };
}

void tr_exit_stop(struct tr_build *b, struct cg *c, struct tr_state st, enum tr_stop_kind kind,
		  uint64_t pc, unsigned executed, uint32_t live)
{
	tr_exit_leave(c, &st, executed, live);
	b->numbers = tr_number_new(b->tr, kind, pc, b->numbers);
	emit_stop(c, b->numbers);
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
	b->numbers = tr_number_new(b->tr, TR_STOP_BRANCH, b->insn[b->i].addr, b->numbers);
	cg_imm_gs(c, T_BRANCH, b->numbers);
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
