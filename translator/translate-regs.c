/*
 * Where the program's registers and flags are while a fragment is being emitted. translate.h has
 * the rules.
 */
#include "translator/build.h"

static uint32_t reg_used(const struct tr_build *b)
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

void tr_reg_reload(struct cg *c, unsigned r)
{
	cg_load_gs(c, r, T_SLOT((int)r));
}

/* When the program needs register r: the number of the next instruction that reads it. Overwriting
 * it first is better still: no reload. */
static unsigned needed(const struct tr_build *b, unsigned r)
{
	for (unsigned k = b->i + 1; k < b->n; k++) {
		if (b->insn[k].gpr_read & 1u << r)
			return k;
		if (b->insn[k].gpr_full & 1u << r)
			return 4 * FRAG_MAX;
	}
	return 2 * FRAG_MAX;
}

/* A register the translation may overwrite: not used by the current instruction, not in `avoid`,
 * below r8 if `low`. Prefers one that is spilled already, then the one needed latest. */
int tr_reg_scratch(struct tr_build *b, uint32_t avoid, bool low)
{
	uint32_t no = avoid | reg_used(b) | 1u << 4;
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
		unsigned when = needed(b, r);
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

static void rax_aside(struct cg *c, enum tr_aside aside, bool back)
{
	if (aside == RAX_TO_HOME)
		cg_rr(c, 8, 0x89, back ? HOME : 0, back ? 0 : HOME);
	else if (aside == RAX_TO_MEMORY && back)
		cg_load_gs(c, 0, T_SAVE(7));
	else if (aside == RAX_TO_MEMORY)
		cg_store_gs(c, 0, T_SAVE(7));
}

void tr_emit_save_flags(struct cg *c, enum tr_aside aside)
{
	struct ea m = ea_gs(T_FLAGS);
	rax_aside(c, aside, false);
	cg8(c, 0x9f);			/* lahf */
	cg_bytes(c, "\x0f\x90\xc0", 3); /* seto al */
	cg_rm(c, 4, 0x89, 0, &m, 0);
	rax_aside(c, aside, true);
}

void tr_emit_restore_flags(struct cg *c, enum tr_aside aside)
{
	struct ea m = ea_gs(T_FLAGS);
	rax_aside(c, aside, false);
	cg_rm(c, 4, 0x8b, 0, &m, 0);
	cg_bytes(c, "\x04\x7f", 2); /* add al, 127: overflows if al is 1 */
	cg8(c, 0x9e);		    /* sahf */
	rax_aside(c, aside, true);
}

static enum tr_aside aside_for(const struct tr_build *b)
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
	uint32_t live = after ? b->live[b->i + 1] : b->within[b->i];
	if (b->st.flags == TR_FLAGS_HW) {
		if (!live) {
			b->st.lost = ARITH;
			return;
		}
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

/* Right before the instruction's own operation. */
void tr_flags_for_op(struct tr_build *b)
{
	const struct insn *in = &b->insn[b->i];
	if (b->st.flags != TR_FLAGS_SAVED)
		return;
	uint32_t need = tr_flags_used(in);
	if (in->flags_written & ARITH)
		need |= b->live[b->i + 1] & ~tr_flags_killed(in);
	if (need)
		tr_flags_need(b, b->c);
}

void tr_mark_body(struct tr_build *b)
{
	if (b->body_marked)
		return;
	struct tr_finsn *fi = &b->f->insn[b->i];
	fi->body = (uint16_t)(cg_va(b->c) - b->f->entry);
	fi->spilled_body = (uint16_t)b->st.spilled;
	fi->flags_body = b->st.flags;
	b->body_marked = true;
}
