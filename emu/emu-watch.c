/*
 * Telling an observer what the emulator does: which instructions it wants to hear of, decided when
 * they are bound, and counting how often code is executed.
 *
 * Counts are kept where they cost least. A block that ran whole and was followed by one of the two
 * blocks it is linked to is counted in that link alone: one addition. Whatever else happens (a part
 * of a block was executed, it led elsewhere, the run ended behind it) is rare, and counted per
 * instruction or told at once. What is in the links is told before they change or are freed.
 */
#include "emu/emu-core.h"

#include <string.h>

/* ---- instructions that are wanted ------------------------------------------------------------ */

/* The kinds of edges that an instruction may make. */
static unsigned edge_kinds(const struct insn *in)
{
	uint64_t next = in->addr + in->len;

	return emu_edge_kind(in, next) | emu_edge_kind(in, next + 1);
}

unsigned emu_wants(struct emu *e, const struct insn *in)
{
	const struct emu_observer *o = &e->observer;
	unsigned wants = o->wants ? o->wants(e->ctx, e, in) : EMU_WANT_EDGE;

	if (!o->see || !(in->attr & INSN_A_BRANCH) || !(edge_kinds(in) & o->kinds))
		wants &= ~(unsigned)EMU_WANT_EDGE;
	if (!o->rep || !(in->attr & INSN_A_REP))
		wants &= ~(unsigned)EMU_WANT_REP;
	if (!o->point)
		wants &= ~(unsigned)EMU_WANT_POINT;
	return wants;
}

static void tell_edge(struct emu *e, const struct emu_uop *u)
{
	const struct emu_seen *s = (const struct emu_seen *)u->insn;
	const struct emu_core *c = emu_core(e);
	struct emu_edge edge = { .from = u->insn->addr, .to = e->cpu.rip };

	edge.kind = emu_edge_kind(u->insn, edge.to);
	edge.steps = e->steps + 1 + (c->careful ? 0 : s->index - c->from);
	edge.sp = e->cpu.gpr[DJ_RSP];
	if (edge.kind & e->observer.kinds)
		e->observer.see(e->ctx, e, &edge);
}

static uint64_t iterations_left(const struct emu *e, const struct emu_uop *u)
{
	return u->addr32 ? (uint32_t)e->cpu.gpr[DJ_RCX] : e->cpu.gpr[DJ_RCX];
}

/* Whether this is a REP instruction that goes on where it was left. */
static bool resumed(const struct emu *e, const struct emu_seen *s)
{
	const struct emu_core *c = emu_core((struct emu *)(uintptr_t)e);

	return e->in_rep && (c->careful || s->index == c->from);
}

void emu_seen(struct emu *e, const struct emu_uop *u)
{
	const struct emu_seen *s = (const struct emu_seen *)u->insn;
	const struct emu_core *c = emu_core(e);
	bool again = resumed(e, s);
	uint64_t asked = 0;

	if (e->unseen) {
		s->fn(e, u);
		return;
	}
	if ((s->wants & EMU_WANT_POINT) && !again)
		e->observer.point(e->ctx, e, u->insn);
	if (s->wants & EMU_WANT_REP)
		asked = iterations_left(e, u) + (again ? e->rep_iter : 0);
	s->fn(e, u);
	if (s->wants & EMU_WANT_EDGE)
		tell_edge(e, u);
	if ((s->wants & EMU_WANT_REP) && !emu_core(e)->rep_more)
		e->observer.rep(
			e->ctx, e,
			&(struct emu_rep){ .insn = u->insn,
					   .asked = asked,
					   .done = asked - iterations_left(e, u),
					   .steps = e->steps + 1 +
						    (c->careful ? 0 : s->index - c->from) });
}

void emu_observe(struct emu *e, const struct emu_observer *o)
{
	emu_blocks_flush(e);
	if (e->forgotten)
		e->forgotten(e->forgotten_ctx, 0, UINT64_MAX);
	e->observer = o ? *o : (struct emu_observer){ 0 };
}

void emu_now(const struct emu *e, struct emu_now *now)
{
	const struct emu_core *c = emu_core((struct emu *)(uintptr_t)e);

	*now = (struct emu_now){ e->cpu.rip, e->steps, e->fences, e->fence_steps };
	if (!c->inside || c->careful)
		return;
	now->rip = c->cur->insn->addr;
	for (const struct emu_uop *u = c->running->uops + c->from; u < c->cur; u++) {
		now->steps++;
		if (!(u->flags & EMU_UOP_FENCE))
			continue;
		now->fences++;
		now->fence_steps = now->steps;
	}
}

/* ---- counting ----------------------------------------------------------------------------------
 */

static void branched(struct emu *e, const struct emu_block *b, uint64_t to, uint64_t count)
{
	const struct emu_uop *last = &b->uops[b->n - 1];

	if (b->branches && e->observer.branched)
		e->observer.branched(e->ctx, e, last->insn, to, count);
}

void emu_count_part(struct emu *e, struct emu_block *b, unsigned from, unsigned to)
{
	if (from == to)
		return;
	if (to == b->n)
		branched(e, b, e->cpu.rip, 1);
	if (from == 0 && to == b->n) {
		b->gone++;
		return;
	}
	if (!b->more) {
		b->more = emu_blocks_alloc(emu_core(e), b->n * sizeof(*b->more));
		if (b->more)
			memset(b->more, 0, b->n * sizeof(*b->more));
	}
	if (b->more) {
		for (unsigned i = from; i < to; i++)
			b->more[i]++;
	} else {
		e->observer.counts(
			e->ctx, e,
			&(struct emu_counts){ .uops = b->uops + from, .n = to - from, .whole = 1 });
	}
}

void emu_count_link(struct emu *e, struct emu_block *b, unsigned link)
{
	uint64_t count = b->took[link];

	b->took[link] = 0;
	b->gone += count;
	if (count)
		branched(e, b, b->went[link], count);
}

void emu_count_block(struct emu *e, struct emu_block *b)
{
	emu_count_link(e, b, 0);
	emu_count_link(e, b, 1);
	if (b->gone || b->more)
		e->observer.counts(
			e->ctx, e,
			&(struct emu_counts){
				.uops = b->uops, .n = b->n, .whole = b->gone, .more = b->more });
	b->gone = 0;
	if (b->more)
		memset(b->more, 0, b->n * sizeof(*b->more));
}

void emu_tell_counts(struct emu *e)
{
	struct emu_core *c = emu_core(e);

	if (!emu_counting(e))
		return;
	if (e->tell_counts)
		e->tell_counts(e->forgotten_ctx);
	for (size_t i = 0; i < c->hash_size; i++)
		for (struct emu_block *b = c->hash[i]; b; b = b->hash_next)
			emu_count_block(e, b);
}
