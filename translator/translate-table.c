/*
 * Targets of indirect branches: the fast table and the target table, which generated code reads
 * while they change (doc/code-cache.md has the order of stores).
 *
 * The tables lie in memory that the program can write to. What is read back from there is only
 * compared; who has which place is known from `target`.
 */
#include "translator/runtime.h"
#include "translator/build.h"

#include <stdlib.h>

#define RUN    64 /* places in a row that may have a key: no search is longer */
#define BITS   12 /* of places, to begin with: a small program touches few pages */
#define SPARSE 4  /* one of so many places may have a key, as long as there can be more places */
#define NO_KEY 1  /* as good as any: whatever is looked for, what is found is a miss */
#define GONE   ((struct tr_frag *)(void *)tr_tables_init) /* a key that leads nowhere any more */

static void store(uint64_t *at, uint64_t value)
{
	__atomic_store_n(at, value, __ATOMIC_RELEASE);
}

static uint64_t *key(const struct translator *tr, uint32_t place)
{
	return (uint64_t *)tr_table(tr, T_TARGETS) + 2 * place;
}

static uint32_t mask(const struct translator *tr)
{
	return (1u << tr->target_bits) - 1;
}

/* As rt_other computes it. */
static uint32_t home_place(const struct translator *tr, uint64_t pc)
{
	uint64_t mix = (uint64_t)(int32_t)AREA_TARGET_MIX;
	return (uint32_t)(pc * mix >> 32) & mask(tr);
}

/* ---- the target table ---- */

static void take_places(struct translator *tr)
{
	tr->target = calloc((size_t)mask(tr) + 1, sizeof(*tr->target));
	DJ_ASSERT(tr->target, "out of memory for targets of indirect branches");
}

/* Empty the places in a row from `i` on, in steps of 1 or -1; or only count them. */
static unsigned row(struct translator *tr, uint32_t i, uint32_t step, bool empty)
{
	unsigned n = 0;
	for (i &= mask(tr); tr->target[i]; i = (i + step) & mask(tr), n++) {
		if (!empty)
			continue;
		store(key(tr, i), 0);
		if (tr->target[i] != GONE)
			tr->target[i]->slot = TR_NO_SLOT;
		tr->target[i] = NULL;
		tr->n_keys--;
	}
	return n;
}

/* Code that searches knows how many places there are: the runtime of every arena. */
static void tell_places(const struct translator *tr)
{
	for (const struct tr_arena *a = tr->arenas; a; a = a->next) {
		uint64_t *at = (uint64_t *)(void *)(a->ours + (rt_places - rt_begin)), v = *at;
		uint32_t twice = 2 * mask(tr);
		memcpy((uint8_t *)&v + 1, &twice, sizeof(twice));
		store(at, v);
	}
}

static void enter(struct translator *tr, struct tr_frag *f);

/*
 * More places. All are emptied first, and then everybody gets a new one; who searches meanwhile, or
 * where it would have been before, finds an empty place, which is a miss.
 */
static void grow(struct translator *tr)
{
	struct tr_frag **old = tr->target;
	uint32_t n = mask(tr) + 1;
	for (uint32_t i = 0; i < n; i++)
		if (old[i])
			store(key(tr, i), 0);
	tr->n_keys = 0;
	tr->target_bits += tr->target_bits + 2 > AREA_TARGET_BITS ? 1 : 2;
	take_places(tr);
	tell_places(tr);
	for (uint32_t i = 0; i < n; i++)
		if (old[i] && old[i] != GONE)
			enter(tr, old[i]);
	free(old);
}

void tr_tables_room(struct translator *tr, uint32_t n)
{
	uint32_t bits = tr->target_bits;
	DJ_ASSERT(!tr->n_keys, "there are %u targets already", tr->n_keys);
	n += n / 4; /* and some that come: to grow is to begin anew */
	while (n > ((1u << bits) - 1) / SPARSE && bits < AREA_TARGET_BITS)
		bits++;
	if (bits == tr->target_bits)
		return;
	tr->target_bits = bits;
	free(tr->target);
	take_places(tr);
	tell_places(tr);
}

static void enter(struct translator *tr, struct tr_frag *f)
{
	if (tr->n_keys * SPARSE > mask(tr) && tr->target_bits < AREA_TARGET_BITS)
		grow(tr);
	uint32_t home = home_place(tr, f->pc), place = home;
	while (tr->target[place] && tr->target[place] != GONE)
		place = (place + 1) & mask(tr);
	if (!tr->target[place] &&
	    row(tr, place + 1, 1, false) + row(tr, place - 1, -1u, false) >= RUN) {
		row(tr, place + 1, 1, true);
		row(tr, place - 1, -1u, true);
		place = home;
		tr->stats.clears++;
	}
	tr->n_keys += !tr->target[place];
	tr->target[place] = f;
	f->slot = place;
	store(key(tr, place) + 1, f->stub);
	store(key(tr, place), f->pc);
}

/* ---- a fragment's stub ---- */

uint64_t tr_emit_indirect(struct cg *c, const struct tr_arena *a, const struct tr_frag *f)
{
	uint64_t at = cg_va(c), pc = f->pc;
	struct ea code = { .rip = true, .target = pc };
	int64_t d = (int64_t)(pc - cg_va(c));
	if (pc < 1ULL << 31) {
		cg_rr(c, 8, 0x81, 7, HOME); /* cmp r11, imm32 */
		cg32(c, (uint32_t)pc);
	} else {
		if (d > -0x7f000000LL && d < 0x7f000000LL)
			cg_rm(c, 8, 0x8d, 1, &code, 0);
		else
			cg_addr(c, 1, pc);
		cg_rr(c, 8, 0x39, 1, HOME);
	}
	cg_jcc(c, 5, rt_va(a, rt_other));
	tr_emit_steps(c, -(int32_t)f->lag, false);
	if (f->live)
		tr_emit_restore_flags(c, RAX_TO_HOME);
	cg_load_gs(c, 1, T_SLOT(1));
	return at;
}

/* An arena with room for a stub that leads to the fragment: its own, or else any near enough. */
static struct tr_arena *room_for_stub(struct translator *tr, const struct tr_frag *f)
{
	if (tr_arena_room(f->arena, 0, 256))
		return f->arena;
	for (struct tr_arena *a = tr->arenas; a; a = a->next)
		if (tr_reachable(a->va, f->entry) &&
		    tr_reachable(a->va + TR_ARENA_SIZE, f->entry) && tr_arena_room(a, 0, 256))
			return a;
	return NULL;
}

void tr_add_indirect(struct translator *tr, struct tr_frag *f)
{
	if (f->indirect) {
		if (f->slot == TR_NO_SLOT) /* another one took its place */
			enter(tr, f);
		return;
	}
	if (!f->stub) {
		struct tr_arena *a = room_for_stub(tr, f);
		if (!a) {
			tr->start_over = true;
			return;
		}
		struct cg *c = &a->cold;
		f->stub_arena = a;
		f->stub_chunk = tr_chunk_hold(a);
		f->stub = tr_emit_indirect(c, a, f);
		cg_jmp(c, f->entry);
		DJ_ASSERT(!c->overflow, "a stub is longer than thought");
	}
	f->indirect = true;
	tr_restore_indirect(tr, f);
}

void tr_restore_indirect(struct translator *tr, struct tr_frag *f)
{
	if (!f->indirect)
		return;
	store((uint64_t *)tr_table(tr, T_FAST) + (f->pc & 0xffff), f->stub);
	enter(tr, f);
}

void tr_leave_fast(struct translator *tr, const struct tr_frag *f)
{
	uint64_t *fast = (uint64_t *)tr_table(tr, T_FAST) + (f->pc & 0xffff);
	if (f->indirect && *fast == f->stub)
		store(fast, rt_va(tr->arenas, rt_other));
}

void tr_remove_indirect(struct translator *tr, struct tr_frag *f)
{
	if (!f->indirect)
		return;
	tr_leave_fast(tr, f);
	if (f->slot != TR_NO_SLOT) {
		store(key(tr, f->slot) + 1, rt_va(tr->arenas, rt_miss));
		tr->target[f->slot] = GONE;
		f->slot = TR_NO_SLOT;
	}
}

void tr_tables_clear(struct translator *tr)
{
	for (uint32_t i = 0; i <= mask(tr); i++) {
		if (tr->target[i])
			store(key(tr, i), 0);
		tr->target[i] = NULL;
	}
	tr->n_keys = 0;
	if (tr->arenas)
		tr_tables_init(tr);
}

/* Places of those that are gone have a key, too, as searches go on behind them: one that leads
 * nowhere, whoever should look for it. */
void tr_tables_again(struct translator *tr)
{
	tr_tables_init(tr);
	uint64_t *fast = tr_table(tr, T_FAST);
	/* a megabyte, nearly all of it empty */
	for (uint32_t i = 0; i <= mask(tr); i++) {
		struct tr_frag *f = tr->target[i];
		if (!f)
			continue;
		if (f != GONE && f->parked) {
			f->slot = TR_NO_SLOT;
			f = tr->target[i] = GONE;
		}
		if (f != GONE)
			fast[f->pc & 0xffff] = f->stub;
		*(key(tr, i) + 1) = f != GONE ? f->stub : rt_va(tr->arenas, rt_miss);
		*key(tr, i) = f != GONE ? f->pc : NO_KEY;
	}
}

void tr_tables_init(struct translator *tr)
{
	uint64_t *fast = tr_table(tr, T_FAST);
	for (unsigned i = 0; i < 1 << 16; i++)
		fast[i] = rt_va(tr->arenas, rt_other);
}

void tr_tables_arena(struct translator *tr)
{
	if (!tr->target_bits) {
		tr->target_bits = BITS;
		take_places(tr);
	}
	tell_places(tr);
}
