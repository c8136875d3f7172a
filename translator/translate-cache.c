/*
 * The cache of translations, looked at from outside: entries for indirect branches, which stop or
 * which instruction an address in the cache belongs to, which program pages were translated from.
 */
#include "translator/translate-priv.h"

#include <stdlib.h>

/* ---- the set of pages translated from ---- */

static uint32_t page_at(const struct translator *tr, uint64_t page)
{
	uint32_t i = (uint32_t)(page * 0x9e3779b97f4a7c15ULL >> 32) & (tr->cap_pages - 1);
	while (tr->pages[i] && tr->pages[i] != page)
		i = (i + 1) & (tr->cap_pages - 1);
	return i;
}

void tr_add_page(struct translator *tr, uint64_t page)
{
	if (2 * tr->n_pages >= tr->cap_pages) {
		uint64_t *old = tr->pages;
		uint32_t n = tr->cap_pages;
		tr->cap_pages = n ? 2 * n : 1024;
		tr->pages = calloc(tr->cap_pages, sizeof(*tr->pages));
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

/* ---- indirect branches ---- */

/* From an indirect branch to the entry of `f`: the stub that the fast table leads to. It checks
 * that it is meant without touching flags: rcx minus the address must be zero. */
static uint64_t emit_stub(struct cg *c, const struct tr_frag *f, bool saved, const uint8_t *other)
{
	uint64_t at = cg_va(c);
	cg_imm(c, 0, -f->pc);
	struct ea sum = { .base = 1, .index = 0, .scale = 1 };
	cg_rm(c, 8, 0x8d, 1, &sum, 0);
	uint8_t *meant = cg_jcc8(c, 0xe3); /* jrcxz */
	cg_jmp(c, rt_va(f->arena, other));
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
	uint64_t *keys = tr_table(tr, T_KEYS), *values = tr_table(tr, T_VALUES);
	uint64_t *fast = tr_table(tr, T_FAST), *fast_saved = tr_table(tr, T_FAST_SAVED);
	uint64_t mask = (1u << AREA_IBL_BITS) - 1;
	if (f->indirect)
		return;
	struct cg *c = &f->arena->cold;
	uint64_t hw = emit_stub(c, f, false, rt_other_hw);
	uint64_t saved = emit_stub(c, f, true, rt_other_saved);
	uint64_t direct = cg_va(c); /* the address has been compared already */
	if (f->live)
		tr_emit_restore_flags(c, RAX_FREE);
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
void tr_clear_indirect(struct translator *tr)
{
	uint64_t *fast = tr_table(tr, T_FAST), *fast_saved = tr_table(tr, T_FAST_SAVED);
	uint64_t *keys = tr_table(tr, T_KEYS);
	for (unsigned i = 0; i < 1 << AREA_IBL_BITS; i++)
		if (keys[i])
			keys[i] = 0;
	for (unsigned i = 0; i < 1 << 16; i++) {
		fast[i] = rt_va(tr->arenas, rt_none_hw);
		fast_saved[i] = rt_va(tr->arenas, rt_none_saved);
	}
}

static struct tr_arena *arena_at(const struct translator *tr, uint64_t va)
{
	for (struct tr_arena *a = tr->arenas; a; a = a->next)
		if (va >= a->va && va < a->va + TR_ARENA_SIZE)
			return a;
	return NULL;
}

bool tr_in_cache(const struct translator *tr, uint64_t va)
{
	return arena_at(tr, va) != NULL;
}

struct tr_stop *tr_stop_at(struct translator *tr, uint64_t va, uint32_t *runtime)
{
	*runtime = 0;
	struct tr_arena *a = arena_at(tr, va);
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

uint64_t tr_branch(const struct translator *tr, uint32_t number)
{
	return number < tr->n_stops && tr->stops[number].kind == TR_STOP_BRANCH
		       ? tr->stops[number].pc
		       : 0;
}

static struct tr_frag *frag_at(const struct tr_arena *a, uint64_t va)
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
	struct tr_arena *a = arena_at(tr, va);
	memset(w, 0, sizeof(*w));
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
	struct tr_frag *f = frag_at(a, at);
	if (!f)
		return false;
	uint32_t off = (uint32_t)(at - f->entry);
	uint32_t i = f->n;
	while (i > 0 && f->insn[i - 1].start > off)
		i--;
	if (!i)
		return false;
	i--;
	const struct tr_finsn *fi = &f->insn[i];
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
	for (struct tr_arena *a = tr->arenas; a; a = a->next)
		if (i-- == 0) {
			*at = a->va;
			*size = TR_ARENA_SIZE;
			return true;
		}
	return false;
}

void tr_stats(const struct translator *tr, struct tr_stats *s)
{
	*s = tr->stats;
}
