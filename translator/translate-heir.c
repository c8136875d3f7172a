/*
 * What was translated for one image of a program is taken over by the next one: fragments, links,
 * numbers and the arenas, as they are. Whoever does that has seen to it that nobody executes any of
 * it meanwhile, that the code is the same in both, and that the arenas are mapped where they were.
 * Only the tables of indirect targets are written anew: a program can write to its own.
 *
 * A new image has not mapped its libraries yet. What is of those is parked: no table leads to it
 * and it is not found, but all of a library's fragments lead to each other as they did, so that
 * there is hardly anything to be done when the library comes. (Nobody else leads there, or it goes:
 * what a branch leads to directly is mostly of the same module.)
 */
#include "translator/cache.h"

#include <string.h>

/* Call it for each fragment, which may be retired then. (Each depends on a page. To go through the
 * hash would touch all of that, and most of it is empty.) */
static void each_fragment(struct translator *tr,
			  void (*what)(struct translator *, struct tr_frag *))
{
	for (uint32_t i = 0; i < tr->cap_pages; i++)
		for (struct tr_use *u = tr->pages[i] ? tr->pages[i]->uses : NULL, *next; u;
		     u = next) {
			next = u->next;
			if (next) /* they lie all over the place */
				__builtin_prefetch(next->frag);
			if (u == u->frag->uses) /* its first page */
				what(tr, u->frag);
		}
}

/* What is asleep is not worth keeping; and numbers of facts are other ones in another image. */
static void retire_some(struct translator *tr, struct tr_frag *f)
{
	if (f->asleep || f->checks)
		tr_retire(tr, f);
}

void tr_keep_only(struct translator *tr, tr_each_page *keep, void *ctx)
{
	for (uint32_t i = 0; i < tr->cap_pages; i++) {
		struct tr_page *p = tr->pages[i];
		if (!p || !p->uses || (!p->asleep && !p->parked && keep(ctx, p->page, &p->sum)))
			continue;
		while (p->uses)
			tr_retire(tr, p->uses->frag);
		p->asleep = p->parked = false;
	}
	if (tr->some_go)
		each_fragment(tr, retire_some);
	tr->some_go = false;
	tr_forget_decoded(tr, 0, UINT64_MAX);
	tr->epoch++;
	tr_reclaim(tr, tr->epoch);
}

bool tr_pages(struct translator *tr, tr_each_page *each, void *ctx)
{
	for (uint32_t i = 0; i < tr->cap_pages; i++) {
		struct tr_page *p = tr->pages[i];
		if (p && p->uses && !each(ctx, p->page, &p->sum))
			return false;
	}
	return true;
}

uint64_t tr_count(struct translator *tr, tr_each_page *keep, void *ctx)
{
	uint64_t n = 0;
	for (const struct tr_arena *a = tr->arenas; a && !keep; a = a->next)
		for (uint32_t i = 0; i < CHUNKS; i++)
			n += a->chunks[i].n;
	for (uint32_t i = 0; keep && i < tr->cap_pages; i++) {
		struct tr_page *p = tr->pages[i];
		if (!p || !p->uses || !keep(ctx, p->page, &p->sum))
			continue;
		for (const struct tr_use *u = p->uses; u; u = u->next)
			n += u == u->frag->uses && !u->frag->asleep && !u->frag->parked &&
			     !u->frag->checks;
	}
	return n;
}

/* Which module its code is of; TR_UNIT_NONE if it is more than one. */
static uint32_t unit_of(const struct tr_frag *f)
{
	uint32_t unit = f->uses[0].page->unit;
	for (unsigned i = 1; i < f->n_uses; i++)
		if (f->uses[i].page->unit != unit)
			return TR_UNIT_NONE;
	return unit;
}

/* It is parked if it can be: its code, or some of it, is not there yet. */
static void park(struct translator *tr, struct tr_frag *f)
{
	uint32_t unit = unit_of(f);
	bool alone = unit != TR_UNIT_NONE;
	for (uint32_t k = f->incoming; alone && k; k = tr->numbers[k].next)
		alone = unit_of(tr->numbers[k].frag) == unit;
	if (!alone)
		tr_retire(tr, f);
	for (unsigned i = 0; alone && i < f->n_uses; i++)
		f->parked = f->uses[i].page->parked = true;
}

/* Who lies in more than one page is looked at in each, which makes no difference. */
static void park_page(struct translator *tr, const struct tr_page *p)
{
	for (struct tr_use *u = p->uses, *next; u; u = next) {
		next = u->next;
		if (next)
			__builtin_prefetch(next->frag);
		park(tr, u->frag);
	}
}

static void come(struct translator *tr, struct tr_page *p)
{
	p->parked = false;
	for (struct tr_use *u = p->uses; u; u = u->next)
		if (u == u->frag->uses) {
			u->frag->parked = false;
			tr_restore_indirect(tr, u->frag);
			tr_links_join(tr, u->frag);
		}
}

bool tr_parked(struct translator *tr, uint64_t first, uint64_t end, tr_each_page *each, void *ctx)
{
	for (uint32_t i = 0; i < tr->cap_pages; i++) {
		struct tr_page *p = tr->pages[i];
		if (p && p->parked && p->page >= first && p->page < end &&
		    !each(ctx, p->page, &p->sum))
			return false;
	}
	return true;
}

void tr_unpark(struct translator *tr, uint64_t first, uint64_t end)
{
	for (uint32_t i = 0; i < tr->cap_pages; i++) {
		struct tr_page *p = tr->pages[i];
		if (p && p->parked && p->page >= first && p->page < end)
			come(tr, p);
	}
}

void tr_take_over(struct translator *tr, const struct tr_ops *ops, uint8_t *tables,
		  uint32_t (*unit)(void *ctx, uint64_t page), void *ctx)
{
	tr->ops = *ops;
	tr->tables = tables;
	tr->no_arena = 0;
	memset(&tr->asked_kept, 0, sizeof(tr->asked_kept));
	memset(&tr->stats, 0, sizeof(tr->stats));
	for (uint32_t i = 0; i < tr->cap_pages; i++)
		if (tr->pages[i] && tr->pages[i]->uses)
			tr->pages[i]->unit = unit(ctx, tr->pages[i]->page);
	tr_forget_ahead(tr);
	for (uint32_t i = 0; i < tr->cap_pages; i++)
		if (tr->pages[i] && tr->pages[i]->uses && tr->pages[i]->unit)
			park_page(tr, tr->pages[i]);
	tr->epoch++;
	tr_reclaim(tr, tr->epoch);
	tr->stats.retired = 0;
	tr_tables_again(tr);
}
