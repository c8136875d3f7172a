/*
 * Which arithmetic flags are live: decoding ahead along direct control flow. Relies on the
 * decoder's tables for what an instruction reads and writes.
 */
#include "format/regs.h"
#include "translator/translate-priv.h"

/* Arithmetic flags that `in` surely overwrites. */
uint32_t tr_flags_killed(const struct insn *in)
{
	return in->attr & (INSN_A_FLAGSCOND | INSN_A_REP)
		       ? 0
		       : in->flags_written & ~in->flags_undefined & ARITH;
}

/* Arithmetic flags that `in` really consumes. Of instructions that may leave flags as they were
 * (shifts by a count of zero, REP CMPS without an iteration) the decoder says that they read what
 * they may keep; that is not a use: whether they are live depends on what follows. */
uint32_t tr_flags_used(const struct insn *in)
{
	uint32_t read = in->flags_read & ARITH;
	if (in->attr & (INSN_A_FLAGSCOND | INSN_A_REP))
		read &= ~in->flags_written;
	if (in->id == INSN_RCL || in->id == INSN_RCR)
		read |= DJ_FLAG_CF;
	return read;
}

struct tr_decoded *tr_decode(struct translator *tr, uint64_t pc)
{
	struct tr_decoded *d = &tr->decoded[(pc * 0x9e3779b97f4a7c15ULL) >> 49];
	if (d->insn.len && d->insn.addr == pc && d->generation == tr->generation)
		return d;
	uint8_t buf[INSN_MAX];
	size_t got = tr->ops.read_code(tr->ops.ctx, pc, buf, sizeof(buf), &d->changing);
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
		const struct tr_decoded *d = tr_decode(tr, pc);
		if (!d)
			return ARITH;
		const struct insn *in = &d->insn;
		uint32_t attr = in->attr;
		uint64_t target = (uint64_t)in->imm;
		live |= tr_flags_used(in) & open;
		if (attr & (INSN_A_SYSCALL | INSN_A_PRIV | INSN_A_NONDET | INSN_A_XSTATE))
			return ARITH;
		open &= ~tr_flags_killed(in);
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
	struct tr_decoded *d = tr_decode(tr, pc);
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
