/*
 * Targets of indirect branches: the fast tables and the target table, which generated code reads
 * while they change (doc/code-cache.md has the order of stores).
 *
 * The tables lie in memory that the program can write to. What is read back from there is only
 * compared; who has which place is known from `target`.
 */
#include "translator/runtime.h"
#include "translator/build.h"

#define PLACES (1u << AREA_TARGET_BITS)
#define RUN    64 /* places in a row that may have a key: no search is longer */
#define GONE   ((struct tr_frag *)(void *)tr_tables_init) /* a key that leads nowhere any more */

static void store(uint64_t *at, uint64_t value)
{
	__atomic_store_n(at, value, __ATOMIC_RELEASE);
}

static uint64_t *key(const struct translator *tr, uint32_t place)
{
	return (uint64_t *)tr_table(tr, T_TARGETS) + 2 * place;
}

/* As rt_none_saved computes it. */
static uint32_t home_place(uint64_t pc)
{
	uint32_t mixed = (uint32_t)(pc >> AREA_TARGET_BITS) * AREA_TARGET_MIX + (uint32_t)pc;
	return mixed & (PLACES - 1);
}

/* ---- the target table ---- */

/* Empty the places in a row from `i` on, in steps of 1 or -1; or only count them. */
static unsigned row(struct translator *tr, uint32_t i, uint32_t step, bool empty)
{
	unsigned n = 0;
	for (i &= PLACES - 1; tr->target[i]; i = (i + step) & (PLACES - 1), n++) {
		if (!empty)
			continue;
		store(key(tr, i), 0);
		if (tr->target[i] != GONE)
			tr->target[i]->slot = TR_NO_SLOT;
		tr->target[i] = NULL;
	}
	return n;
}

static void enter(struct translator *tr, struct tr_frag *f)
{
	uint32_t home = home_place(f->pc), place = home;
	while (tr->target[place] && tr->target[place] != GONE)
		place = (place + 1) & (PLACES - 1);
	if (!tr->target[place] &&
	    row(tr, place + 1, 1, false) + row(tr, place - 1, -1u, false) >= RUN) {
		row(tr, place + 1, 1, true);
		row(tr, place - 1, -1u, true);
		place = home;
		tr->stats.clears++;
	}
	tr->target[place] = f;
	f->slot = place;
	store(key(tr, place) + 1, f->saved);
	store(key(tr, place), f->pc);
}

/* ---- a fragment's stubs ---- */

/* From an indirect branch to the entry of `f`. It checks that it is meant without touching flags:
 * rcx minus the address must be zero. */
static uint64_t emit_stub(struct cg *c, const struct tr_frag *f, bool saved)
{
	uint64_t at = cg_va(c);
	cg_imm(c, 0, -f->pc);
	struct ea sum = { .base = 1, .index = 0, .scale = 1 };
	cg_rm(c, 8, 0x8d, 1, &sum, 0);
	uint8_t *meant = cg_jcc8(c, 0xe3); /* jrcxz */
	cg_jmp(c, rt_va(f->arena, saved ? rt_other_saved : rt_other_hw));
	cg_here8(c, meant);
	if (saved && f->live)
		tr_emit_restore_flags(c, RAX_FREE);
	cg_load_gs(c, 1, T_SLOT(1));
	cg_load_gs(c, 0, T_SLOT(0));
	cg_jmp(c, f->entry);
	return at;
}

void tr_add_indirect(struct translator *tr, struct tr_frag *f)
{
	if (f->hw) {
		if (f->slot == TR_NO_SLOT) /* another one took its place */
			enter(tr, f);
		return;
	}
	if (!tr_arena_room(f->arena, 0, 256)) {
		tr->start_over = true;
		return;
	}
	struct cg *c = &f->arena->cold;
	uint64_t *fast = tr_table(tr, T_FAST), *fast_saved = tr_table(tr, T_FAST_SAVED);
	f->stub_chunk = tr_chunk_hold(f->arena);
	f->hw = emit_stub(c, f, false);
	f->saved = emit_stub(c, f, true);
	DJ_ASSERT(!c->overflow, "stubs are longer than thought");
	store(&fast[f->pc & 0xffff], f->hw);
	store(&fast_saved[f->pc & 0xffff], f->saved);
	enter(tr, f);
}

void tr_restore_indirect(struct translator *tr, struct tr_frag *f)
{
	if (!f->hw)
		return;
	store((uint64_t *)tr_table(tr, T_FAST) + (f->pc & 0xffff), f->hw);
	store((uint64_t *)tr_table(tr, T_FAST_SAVED) + (f->pc & 0xffff), f->saved);
	enter(tr, f);
}

void tr_remove_indirect(struct translator *tr, struct tr_frag *f)
{
	if (!f->hw)
		return;
	uint64_t *fast = (uint64_t *)tr_table(tr, T_FAST) + (f->pc & 0xffff);
	uint64_t *fast_saved = (uint64_t *)tr_table(tr, T_FAST_SAVED) + (f->pc & 0xffff);
	if (*fast == f->hw)
		store(fast, rt_va(tr->arenas, rt_none_hw));
	if (*fast_saved == f->saved)
		store(fast_saved, rt_va(tr->arenas, rt_none_saved));
	if (f->slot != TR_NO_SLOT) {
		store(key(tr, f->slot) + 1, rt_va(tr->arenas, rt_miss));
		tr->target[f->slot] = GONE;
		f->slot = TR_NO_SLOT;
	}
}

void tr_tables_clear(struct translator *tr)
{
	for (uint32_t i = 0; i < PLACES; i++) {
		if (tr->target[i])
			store(key(tr, i), 0);
		tr->target[i] = NULL;
	}
	if (tr->arenas)
		tr_tables_init(tr);
}

void tr_tables_init(struct translator *tr)
{
	uint64_t *fast = tr_table(tr, T_FAST), *fast_saved = tr_table(tr, T_FAST_SAVED);
	for (unsigned i = 0; i < 1 << 16; i++) {
		fast[i] = rt_va(tr->arenas, rt_none_hw);
		fast_saved[i] = rt_va(tr->arenas, rt_none_saved);
	}
}
