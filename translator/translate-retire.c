/*
 * Fragments leave: which ones depend on a page, how they are retired, when they are given up.
 * doc/code-cache.md says why in this order.
 */
#include "translator/cache.h"

#include <stdlib.h>

/* ---- pages, and who depends on them ---- */

static uint32_t page_at(const struct translator *tr, uint64_t page)
{
	uint32_t i = (uint32_t)(page * 0x9e3779b97f4a7c15ULL >> 32) & (tr->cap_pages - 1);
	while (tr->pages[i] && tr->pages[i]->page != page)
		i = (i + 1) & (tr->cap_pages - 1);
	return i;
}

static void grow_pages(struct translator *tr)
{
	struct tr_page **old = tr->pages;
	uint32_t n = tr->cap_pages;
	tr->cap_pages = n ? 2 * n : 1024;
	tr->pages = calloc(tr->cap_pages, sizeof(*tr->pages));
	DJ_ASSERT(tr->pages, "out of memory for pages");
	for (uint32_t i = 0; i < n; i++)
		if (old[i])
			tr->pages[page_at(tr, old[i]->page)] = old[i];
	free(old);
}

struct tr_page *tr_page_of(struct translator *tr, uint64_t page)
{
	if (2 * tr->n_pages >= tr->cap_pages)
		grow_pages(tr);
	struct tr_page **p = &tr->pages[page_at(tr, page)];
	if (!*p) {
		*p = calloc(1, sizeof(**p));
		DJ_ASSERT(*p, "out of memory for a page");
		(*p)->page = page;
		tr->n_pages++;
	}
	if ((*p)->parked)
		tr_page_taken(tr, *p);
	return *p;
}

void tr_use_page(struct tr_frag *f, unsigned i, struct tr_page *p, uint64_t lines)
{
	struct tr_use *u = &f->uses[i];
	if (!p->uses)
		p->sum = 0;
	*u = (struct tr_use){
		.frag = f, .page = p, .lines = lines, .next = p->uses, .at = &p->uses
	};
	if (u->next)
		u->next->at = &u->next;
	p->uses = u;
}

void tr_use_pages(struct translator *tr, struct tr_frag *f, const struct tr_lines *in)
{
	for (unsigned i = 0; i < f->n_uses; i++)
		tr_use_page(f, i, tr_page_of(tr, in[i].page), in[i].lines);
}

static void end_uses(struct tr_frag *f)
{
	for (unsigned i = 0; i < f->n_uses; i++) {
		struct tr_use *u = &f->uses[i];
		*u->at = u->next;
		if (u->next)
			u->next->at = u->at;
	}
}

/* ---- retiring ---- */

/* Nothing leads to it any more. */
static void withdraw(struct translator *tr, struct tr_frag *f)
{
	tr_links_end(tr, f);
	tr_links_part(tr, f);
	tr_remove_indirect(tr, f);
}

void tr_retire(struct translator *tr, struct tr_frag *f)
{
	if (!f->asleep)
		withdraw(tr, f);
	tr_leave_hash(tr, f);
	end_uses(f);
	f->retired = tr->epoch;
	f->next = NULL;
	*tr->retired_end = f;
	tr->retired_end = &f->next;
	tr->stats.retired++;
}

/* What is retired from now on belongs to another epoch. */
static void end_epoch(struct translator *tr, uint64_t retired_before)
{
	if (tr->stats.retired != retired_before)
		tr->epoch++;
}

static void retire_page(struct translator *tr, struct tr_page *p)
{
	while (p->uses)
		tr_retire(tr, p->uses->frag);
	p->asleep = p->parked = false;
}

void tr_page_taken(struct translator *tr, struct tr_page *p)
{
	uint64_t before = tr->stats.retired;
	retire_page(tr, p);
	end_epoch(tr, before);
}

void tr_invalidate(struct translator *tr, uint64_t addr, uint64_t len)
{
	uint64_t first = addr >> 12, last = (addr + len - 1) >> 12;
	uint64_t before = tr->stats.retired;
	if (!len)
		return;
	tr_forget_decoded(tr, addr, len);
	if (!tr->n_pages)
		return;
	if (last - first < tr->cap_pages) {
		for (uint64_t page = first; page <= last; page++) {
			struct tr_page *p = tr->pages[page_at(tr, page)];
			if (p && !p->parked)
				retire_page(tr, p);
		}
	} else {
		for (uint32_t i = 0; i < tr->cap_pages; i++)
			if (tr->pages[i] && !tr->pages[i]->parked && tr->pages[i]->page >= first &&
			    tr->pages[i]->page <= last)
				retire_page(tr, tr->pages[i]);
	}
	end_epoch(tr, before);
}

void tr_flush(struct translator *tr)
{
	uint64_t before = tr->stats.retired;
	for (uint32_t i = 0; i < 1u << tr->hash_bits; i++)
		while (tr->hash[i])
			tr_retire(tr, tr->hash[i]);
	for (uint32_t i = 0; i < tr->cap_pages; i++) /* those asleep */
		if (tr->pages[i])
			retire_page(tr, tr->pages[i]);
	tr_forget_decoded(tr, 0, UINT64_MAX);
	memset(tr->refused, 0, sizeof(tr->refused));
	tr->stats.flushes++;
	end_epoch(tr, before);
}

/* ---- sleeping ---- */

void tr_sleep(struct translator *tr, uint64_t page)
{
	struct tr_page *p = tr->n_pages ? tr->pages[page_at(tr, page)] : NULL;
	tr_forget_decoded(tr, page << 12, 4096);
	if (!p || p->parked)
		return;
	p->asleep = tr->some_go = true;
	for (struct tr_use *u = p->uses; u; u = u->next) {
		if (u->frag->asleep)
			continue;
		withdraw(tr, u->frag);
		u->frag->asleep = true;
	}
}

static void retire_lines(struct translator *tr, struct tr_page *p, uint64_t changed)
{
	uint64_t before = tr->stats.retired;
	p->sum = changed ? 0 : p->sum;
	for (struct tr_use *u = p->uses, *next; changed && u; u = next) {
		next = u->next;
		if (u->lines & changed)
			tr_retire(tr, u->frag);
	}
	end_epoch(tr, before);
}

void tr_wake(struct translator *tr, uint64_t page, uint64_t changed)
{
	struct tr_page *p = tr->n_pages ? tr->pages[page_at(tr, page)] : NULL;
	if (!p)
		return;
	p->asleep = false;
	retire_lines(tr, p, changed);
}

void tr_changed(struct translator *tr, uint64_t page, uint64_t changed)
{
	struct tr_page *p = tr->n_pages ? tr->pages[page_at(tr, page)] : NULL;
	tr_forget_decoded(tr, page << 12, 4096);
	if (p)
		retire_lines(tr, p, changed);
}

/* Whether it is asleep for no reason any more. */
static bool can_wake(const struct translator *tr, const struct tr_frag *f)
{
	for (unsigned i = 0; i < f->n_uses; i++)
		if (f->uses[i].page->asleep)
			return false;
	return f->asleep && tr_lags_agree(tr, f);
}

static void wake(struct translator *tr, struct tr_frag *f)
{
	f->asleep = false;
	for (uint32_t k = f->numbers; k; k = tr->numbers[k].sibling)
		if (tr->numbers[k].stop.kind == TR_STOP_LINK)
			tr->numbers[k].to = tr_find(tr, tr->numbers[k].stop.pc);
	tr_links_begin(tr, f);
	tr_links_join(tr, f);
	tr_restore_indirect(tr, f);
}

/* So many wake with another one, at most. */
#define WAKE_MAX 256

struct tr_frag *tr_wake_at(struct translator *tr, uint64_t pc)
{
	struct tr_frag *f = tr->hash[tr_hash(tr, pc)];
	while (f && (f->pc != pc || !can_wake(tr, f)))
		f = f->next;
	if (!f)
		return NULL;
	wake(tr, f);
	/* where one function of a page is called others are, and each would take a stop */
	unsigned woken = 0;
	for (struct tr_use *u = f->uses[0].page->uses; u && woken < WAKE_MAX; u = u->next) {
		if (!can_wake(tr, u->frag) || tr_find(tr, u->frag->pc))
			continue;
		wake(tr, u->frag);
		woken++;
	}
	return f;
}

/* ---- epochs ---- */

uint64_t tr_epoch(const struct translator *tr)
{
	return tr->epoch;
}

static void give_up(struct translator *tr, struct tr_frag *f)
{
	struct tr_arena *a = f->arena;
	tr_leave_fast(tr, f);
	tr_numbers_drop(tr, f->numbers);
	tr_chunk_remove(a, f);
	tr_chunk_drop(a, f->chunk);
	if (f->stub && f->stub_chunk != TR_NO_CHUNK)
		tr_chunk_drop(f->stub_arena, f->stub_chunk);
	tr_frag_free(tr, f);
}

bool tr_retired(const struct translator *tr)
{
	return tr->retired;
}

void tr_reclaim(struct translator *tr, uint64_t oldest)
{
	while (tr->retired && tr->retired->retired < oldest) {
		struct tr_frag *f = tr->retired;
		tr->retired = f->next;
		if (!tr->retired)
			tr->retired_end = &tr->retired;
		give_up(tr, f);
	}
}
