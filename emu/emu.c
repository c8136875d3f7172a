/*
 * The emulator's run loop.
 *
 * Code runs in stretches: part of one block, from the current instruction to the block's
 * end or to the wanted step, whichever comes first. Mostly a stretch is
 * nothing but handlers called in a row (run_fast): rip, steps and fences are brought up to
 * date when it ends, by what is known of the block. So it goes when hooks only want to know of
 * accesses. A block in which stop_at() might say yes is run in such stretches, too, each up to the
 * next instruction at which it might (run_asked). Otherwise run_careful keeps everything exact at
 * every instruction. Both leave core->cur at the instruction being
 * executed, so that emu_raise(), which jumps out of a handler to emu_run(), can settle the account.
 */
#include "emu/emu-core.h"
#include "emu/emu-flags.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct emu *emu_new(struct dj_error *err)
{
	struct emu *e = calloc(1, sizeof(*e));
	struct emu_core *c = emu_core_new();

	if (!e || !c) {
		dj_fail(err, 1, "out of memory for an emulator");
		free(e);
		emu_core_free(c);
		return NULL;
	}
	e->blocks = c;
	e->shadow = emu_shadow_new();
	if (!e->shadow) {
		dj_fail_errno(err, 1, "cannot reserve 4 GiB of address space for a shadow");
		emu_core_free(c);
		free(e);
		return NULL;
	}
	e->kind = dj_cpu_host();
	e->mirror_stores = true;
	e->cpu.other_flags = 0x202;
	e->cpu.mxcsr = 0x1f80;
	e->cpu.fcw = 0x37f;
	return e;
}

void emu_free(struct emu *e)
{
	if (!e)
		return;
	emu_core_free(e->blocks);
	emu_shadow_free(e->shadow);
	free(e);
}

void emu_reset_memory(struct emu *e)
{
	emu_blocks_flush(e);
	if (e->forgotten)
		e->forgotten(e->forgotten_ctx, 0, UINT64_MAX);
	emu_empty_shadow(e);
}

void emu_raise(struct emu *e, enum emu_stop why, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(e->why, sizeof(e->why), fmt, ap);
	va_end(ap);
	emu_core(e)->why = why;
	emu_longjmp(e->escape);
}

void emu_store_hooked(struct emu *e, uint64_t addr, const uint8_t *bytes, unsigned size)
{
	if (e->hooks & EMU_HOOK_TRACK)
		e->before_store(e->ctx, e, addr, size);
	if (e->mirror_stores)
		memcpy(e->shadow + (uint32_t)addr, bytes, size);
	if (e->hooks & EMU_HOOK_TRACK)
		e->after_store(e->ctx, e, addr, size, bytes);
}

static unsigned count_fences(const struct emu_uop *from, const struct emu_uop *to)
{
	unsigned n = 0;

	for (; from < to; from++)
		n += !!(from->flags & EMU_UOP_FENCE);
	return n;
}

/* Put the account in order: uops [from, to) of `b` have been executed. */
static void settle(struct emu *e, const struct emu_block *b, unsigned from, unsigned to)
{
	struct emu_core *c = emu_core(e);

	e->steps += to - from;
	if (b->fences) {
		unsigned last = to;
		e->fences += from == 0 && to == b->n ? b->fences
						     : count_fences(b->uops + from, b->uops + to);
		while (last > from && !(b->uops[last - 1].flags & EMU_UOP_FENCE))
			last--;
		if (last > from)
			e->fence_steps = e->steps - (to - last);
	}
	if (to < b->n)
		e->cpu.rip = b->uops[to].insn->addr;
	else if (!b->branches)
		e->cpu.rip = b->end;
	c->at = to < b->n ? (struct emu_block *)b : NULL;
	c->at_index = to;
}

static inline void run_fast(struct emu *e, struct emu_core *c, const struct emu_uop *u,
			    const struct emu_uop *end)
{
	do {
		c->cur = u;
		u->fn(e, u);
	} while (++u != end);
}

/* As run_fast, with everything exact at each instruction; stop_at() is asked at those of `ask`,
 * which are bits. Returns true to stop, with *why. */
static bool run_careful(struct emu *e, struct emu_core *c, struct emu_block *b, unsigned from,
			unsigned to, uint64_t ask, enum emu_stop *why)
{
	for (unsigned i = from; i < to; i++) {
		const struct emu_uop *u = &b->uops[i];

		e->cpu.rip = u->insn->addr;
		c->at = b;
		c->at_index = i;
		if ((ask >> i & 1) && !e->in_rep && e->stop_at(e->ctx, e)) {
			*why = EMU_STOP_BREAK;
			return true;
		}
		if ((u->flags & EMU_UOP_FENCE) && (e->hooks & EMU_HOOK_FENCE) &&
		    e->fences >= e->fence_limit) {
			*why = EMU_STOP_FENCE;
			return true;
		}
		e->ordinal = 0;
		c->cur = u;
		u->fn(e, u);
		e->steps++;
		if (__builtin_expect(emu_counting(e), 0))
			emu_count_part(e, b, i, i + 1);
		if (u->flags & EMU_UOP_FENCE) {
			e->fences++;
			e->fence_steps = e->steps;
		}
		e->in_rep = false;
		e->rep_iter = 0;
		if (!(u->flags & EMU_UOP_BRANCH))
			e->cpu.rip = u->next;
		c->at_index = i + 1;
		if (i + 1 == b->n)
			c->at = NULL;
		if (e->stop_requested) {
			e->stop_requested = false;
			*why = EMU_STOP_REQUEST;
			return true;
		}
	}
	return false;
}

/* Find the instruction at rip: the block and the index in it. */
static struct emu_block *locate(struct emu *e, unsigned *index, enum emu_stop *why)
{
	struct emu_core *c = emu_core(e);
	uint64_t rip = e->cpu.rip;

	if (c->at && c->at_index < c->at->n && c->at->uops[c->at_index].insn->addr == rip) {
		*index = c->at_index;
		return c->at;
	}
	*index = 0;
	if (emu_blocks_full(c))
		emu_blocks_flush(e);
	return emu_block_at(e, rip, why);
}

/* The block after `b`, if it is not one of those that followed it lately. */
static __attribute__((noinline)) struct emu_block *find_next(struct emu *e, struct emu_block *b,
							     enum emu_stop *why)
{
	struct emu_core *c = emu_core(e);
	uint64_t rip = e->cpu.rip;

	if (emu_blocks_full(c)) {
		emu_blocks_flush(e);
		return emu_block_at(e, rip, why);
	}
	struct emu_block *n = emu_block_at(e, rip, why);
	if (n) {
		if (b->took[b->next_link])
			emu_count_link(e, b, b->next_link);
		b->link[b->next_link] = n;
		b->went[b->next_link] = rip;
		b->next_link ^= 1;
	}
	return n;
}

/* The block after `b`, which has been executed to its end. A block that was forgotten has lost its
 * address. */
static inline __attribute__((always_inline)) struct emu_block *
follow(struct emu *e, struct emu_block *b, enum emu_stop *why, const bool counted)
{
	uint64_t rip = e->cpu.rip;

	for (int i = 0; i < 2; i++)
		if (b->link[i] && b->link[i]->rip == rip) {
			if (counted)
				b->took[i]++;
			return b->link[i];
		}
	if (counted)
		emu_count_part(e, b, 0, b->n);
	return find_next(e, b, why);
}

/* After emu_raise(): the instructions before core->cur are done, it is not. */
static enum emu_stop raised(struct emu *e)
{
	struct emu_core *c = emu_core(e);
	unsigned at = c->careful ? 0 : (unsigned)(c->cur - c->running->uops);

	if (c->careful)
		e->cpu.rip = c->cur->insn->addr;
	else
		settle(e, c->running, c->from, at);
	if (emu_counting(e) && !c->careful)
		emu_count_part(e, c->running, c->from, at);
	if (c->why != EMU_STOP_YIELD)
		return c->why;
	if (!c->careful && at != c->from)
		e->rep_iter = 0;
	e->in_rep = true;
	e->rep_iter += c->rep_done;
	if (!e->stop_requested)
		return EMU_STOP_YIELD;
	e->stop_requested = false;
	return EMU_STOP_REQUEST;
}

void emu_yield(struct emu *e)
{
	emu_core(e)->why = EMU_STOP_YIELD;
	emu_longjmp(e->escape);
}

/* Ask where in the block stop_at() might say yes. */
static __attribute__((noinline)) void find_stops(struct emu *e, struct emu_block *b)
{
	b->stops_asked = e->stop_generation;
	b->stops = 0;
	if (!e->stop_within(e->ctx, b->rip, b->end))
		return;
	for (unsigned i = 0; i < b->n; i++) {
		uint64_t addr = b->uops[i].insn->addr;
		if (e->stop_within(e->ctx, addr, addr + 1))
			b->stops |= 1ULL << i;
	}
}

/* The instructions of the block at which stop_at() has to be asked. */
static inline uint64_t stops_in(struct emu *e, struct emu_block *b)
{
	if (!e->stop_at)
		return 0;
	if (!e->stop_within)
		return UINT64_MAX;
	if (__builtin_expect(b->stops_asked != e->stop_generation, 0))
		find_stops(e, b);
	return b->stops;
}

/* Whether the block may have a fence too many. */
static inline bool limited(const struct emu *e, const struct emu_block *b)
{
	return (e->hooks & EMU_HOOK_FENCE) && b->fences && e->fences + b->fences > e->fence_limit;
}

/* Whether somebody has to be asked, or told exactly, about instructions of this block. */
static inline bool watched(struct emu *e, struct emu_block *b)
{
	return stops_in(e, b) ||
	       __builtin_expect(
		       e->hooks && ((e->hooks & EMU_HOOK_IMPORT) || e->exact || limited(e, b)), 0);
}

/* The block is about to run. */
static inline void mark(struct emu *e, struct emu_block *b)
{
	if (__builtin_expect(b->marked == e->mark, 1))
		return;
	b->marked = e->mark;
	if (e->mark)
		e->ran(e->ctx, b->rip, b->end);
}

/* Run whole blocks, one after the other, for as long as nothing is in the way. Returns the block
 * that is next, which has to be run in part or watched; any block when `until` is reached; NULL
 * with *why to stop. This is where replays spend their time; it is a function of its own because
 * setjmp() in its caller keeps what lives there in memory. */
static inline __attribute__((always_inline)) struct emu_block *
run_blocks_as(struct emu *e, struct emu_core *c, struct emu_block *b, uint64_t until,
	      enum emu_stop *why, const bool counted)
{
	c->careful = false;
	c->from = 0;
	c->at = NULL;
	while (b->n <= until - e->steps && !watched(e, b)) {
		c->running = b;
		mark(e, b);
		run_fast(e, c, b->uops, b->uops + b->n);
		if (__builtin_expect(b->fences, 0)) {
			settle(e, b, 0, b->n);
		} else {
			e->steps += b->n;
			if (!b->branches)
				e->cpu.rip = b->end;
		}
		if (__builtin_expect(e->stop_requested || e->steps == until, 0)) {
			if (counted)
				emu_count_part(e, b, 0, b->n);
			if (!e->stop_requested)
				break;
			e->stop_requested = false;
			*why = EMU_STOP_REQUEST;
			return NULL;
		}
		b = follow(e, b, why, counted);
		if (__builtin_expect(!b, 0))
			break;
	}
	return b;
}

static __attribute__((noinline)) struct emu_block *run_blocks(struct emu *e, struct emu_core *c,
							      struct emu_block *b, uint64_t until,
							      enum emu_stop *why)
{
	return run_blocks_as(e, c, b, until, why, false);
}

static __attribute__((noinline)) struct emu_block *count_blocks(struct emu *e, struct emu_core *c,
								struct emu_block *b, uint64_t until,
								enum emu_stop *why)
{
	return run_blocks_as(e, c, b, until, why, true);
}

/* As run_fast, with the account in order at its end. Returns true to stop, with *why. */
static inline bool run_stretch(struct emu *e, struct emu_core *c, struct emu_block *b,
			       unsigned from, unsigned to, enum emu_stop *why)
{
	c->from = from;
	run_fast(e, c, b->uops + from, b->uops + to);
	settle(e, b, from, to);
	if (emu_counting(e))
		emu_count_part(e, b, from, to);
	e->in_rep = false;
	e->rep_iter = 0;
	if (!e->stop_requested)
		return false;
	e->stop_requested = false;
	*why = EMU_STOP_REQUEST;
	return true;
}

/* Run in stretches, each up to the next instruction of `ask`, where everything is exact and
 * stop_at() is asked. Returns true to stop, with *why. */
static bool run_asked(struct emu *e, struct emu_core *c, struct emu_block *b, unsigned from,
		      unsigned to, uint64_t ask, enum emu_stop *why)
{
	c->at = b;
	c->at_index = from;
	while (from < to) {
		uint64_t ahead = ask >> from;
		if ((ahead & 1) && !e->in_rep) {
			c->careful = true; /* as long as nothing is executed */
			bool stop = e->stop_at(e->ctx, e);
			c->careful = false;
			if (stop) {
				*why = EMU_STOP_BREAK;
				return true;
			}
		}
		ahead >>= 1;
		unsigned next = ahead ? from + 1 + (unsigned)__builtin_ctzll(ahead) : to;
		next = next < to ? next : to;
		if (run_stretch(e, c, b, from, next, why))
			return true;
		from = next;
	}
	return false;
}

/* Run a part of a block, or a block that is watched. Returns true to stop, with *why. */
static bool run_part(struct emu *e, struct emu_block *b, unsigned from, uint64_t until,
		     enum emu_stop *why)
{
	struct emu_core *c = emu_core(e);
	uint64_t left = until - e->steps;
	unsigned to = b->n - from <= left ? b->n : from + (unsigned)left;
	uint64_t ask = stops_in(e, b);

	mark(e, b);
	c->running = b;
	c->from = from;
	c->careful = (e->hooks & EMU_HOOK_IMPORT) || (e->hooks && e->exact) || limited(e, b);
	if (c->careful)
		return run_careful(e, c, b, from, to, ask, why);
	return ask ? run_asked(e, c, b, from, to, ask, why) : run_stretch(e, c, b, from, to, why);
}

static enum emu_stop run(struct emu *e, uint64_t until)
{
	struct emu_core *c = emu_core(e);
	enum emu_stop why = EMU_STOP_STEPS;
	unsigned i;

	c->rep_limit = UINT64_MAX;
	if (emu_setjmp(e->escape))
		return raised(e);
	struct emu_block *b = locate(e, &i, &why);
	while (b) {
		if (i == 0 && !e->in_rep)
			b = emu_counting(e) ? count_blocks(e, c, b, until, &why)
					    : run_blocks(e, c, b, until, &why);
		if (!b)
			return why;
		if (e->steps >= until)
			return EMU_STOP_STEPS;
		if (run_part(e, b, i, until, &why))
			return why;
		if (e->steps >= until)
			return EMU_STOP_STEPS;
		b = follow(e, b, &why, false);
		i = 0;
	}
	return why;
}

enum emu_stop emu_run(struct emu *e, uint64_t until)
{
	struct emu_core *c = emu_core(e);

	if (e->steps >= until)
		return EMU_STOP_STEPS;
	c->inside = true;
	enum emu_stop why = run(e, until);
	c->inside = false;
	return why;
}

/* Execute the instruction at rip, at most `limit` iterations if it is a REP instruction.
 * stop_at() is not asked: a single step is meant. */
static enum emu_stop run_one(struct emu *e, uint64_t limit)
{
	struct emu_core *c = emu_core(e);
	enum emu_stop why = EMU_STOP_STEPS;
	unsigned i;

	c->rep_limit = UINT64_MAX;
	c->careful = true;
	if (emu_setjmp(e->escape)) {
		c->rep_limit = UINT64_MAX;
		return raised(e);
	}
	struct emu_block *b = locate(e, &i, &why);
	if (!b)
		return why;
	mark(e, b);
	if (!(b->uops[i].flags & EMU_UOP_REP))
		return run_careful(e, c, b, i, i + 1, 0, &why) ? why : EMU_STOP_STEPS;

	const struct emu_uop *u = &b->uops[i];
	e->ordinal = 0;
	c->cur = u;
	c->rep_limit = limit;
	u->fn(e, u);
	c->rep_limit = UINT64_MAX;
	c->at = b;
	c->at_index = i;
	if (c->rep_more) {
		e->in_rep = true;
		e->rep_iter += c->rep_done;
	} else {
		e->steps++;
		e->in_rep = false;
		e->rep_iter = 0;
		e->cpu.rip = u->next;
		c->at_index = i + 1;
		if (emu_counting(e))
			emu_count_part(e, b, i, i + 1);
	}
	if (e->stop_requested) {
		e->stop_requested = false;
		return EMU_STOP_REQUEST;
	}
	return EMU_STOP_STEPS;
}

enum emu_stop emu_step(struct emu *e)
{
	return run_one(e, 1);
}

enum emu_stop emu_run_rep(struct emu *e, uint64_t count)
{
	struct emu_core *c = emu_core(e);
	enum emu_stop why = EMU_STOP_STEPS;
	unsigned i;

	struct emu_block *b = locate(e, &i, &why);
	if (!b)
		return why;
	const struct emu_uop *u = &b->uops[i];
	if (!(u->flags & EMU_UOP_REP)) {
		snprintf(e->why, sizeof(e->why), "not at a REP instruction");
		return EMU_STOP_UNKNOWN;
	}
	c->at = b;
	c->at_index = i;
	uint64_t now = u->addr32 ? (uint32_t)e->cpu.gpr[DJ_RCX] : e->cpu.gpr[DJ_RCX];
	if (count > now) {
		snprintf(e->why, sizeof(e->why), "the REP count is already below the wanted one");
		return EMU_STOP_UNKNOWN;
	}
	if (count == now && count != 0)
		return EMU_STOP_STEPS;
	return run_one(e, now - count + (now == 0));
}
