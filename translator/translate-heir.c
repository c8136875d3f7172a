/*
 * What was translated for one image of a program is taken over by the next one: fragments, links,
 * numbers and the arenas, as they are. Whoever does that has seen to it that nobody executes any of
 * it meanwhile, that the code is the same in both, and that the arenas are mapped where they were.
 * Only the tables of indirect targets are written anew: a program can write to its own.
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
			if (u == u->frag->uses) /* its first page */
				what(tr, u->frag);
		}
}

/* What is asleep is not worth keeping. */
static void retire_sleeper(struct translator *tr, struct tr_frag *f)
{
	if (f->asleep)
		tr_retire(tr, f);
}

void tr_keep_only(struct translator *tr, bool (*keep)(void *ctx, uint64_t page), void *ctx)
{
	for (uint32_t i = 0; i < tr->cap_pages; i++) {
		struct tr_page *p = tr->pages[i];
		if (!p || !p->uses || (!p->asleep && keep(ctx, p->page)))
			continue;
		while (p->uses)
			tr_retire(tr, p->uses->frag);
		p->asleep = false;
	}
	each_fragment(tr, retire_sleeper);
	tr_forget_decoded(tr, 0, UINT64_MAX);
	tr->epoch++;
	tr_reclaim(tr, tr->epoch);
}

void tr_pages(const struct translator *tr, void (*each)(void *ctx, uint64_t page), void *ctx)
{
	for (uint32_t i = 0; i < tr->cap_pages; i++)
		if (tr->pages[i] && tr->pages[i]->uses)
			each(ctx, tr->pages[i]->page);
}

void tr_take_over(struct translator *tr, const struct tr_ops *ops, uint8_t *tables)
{
	tr->ops = *ops;
	tr->tables = tables;
	tr->no_arena = 0;
	memset(&tr->asked_kept, 0, sizeof(tr->asked_kept));
	memset(&tr->stats, 0, sizeof(tr->stats));
	tr_tables_forget(tr);
	each_fragment(tr, tr_restore_indirect);
}
