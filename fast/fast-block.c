/*
 * Blocks of generated code: finding, making, linking and forgetting them.
 *
 * All of this happens while no generated code runs, by one thread. A block that is forgotten is
 * taken out of the tables and nothing leads to it any more; its code stays where it is until
 * everything is flushed, which happens when there is no room left.
 */
#include "fast/fast-parts.h"
#include "format/scatter.h"

#include <stdlib.h>

#define PAGES_EACH 256 /* to be forgotten one by one; more: all blocks are looked at */

static size_t slot(uint64_t pc)
{
	return dj_scatter(pc, 1u << FAST_BLOCK_BITS);
}

static size_t page_slot(uint64_t page)
{
	return dj_scatter(page, FAST_PAGE_HASH);
}

struct fast_block *fast_block_find(const struct fast *f, uint64_t pc)
{
	struct fast_block *b = f->hash[slot(pc)];

	while (b && b->pc != pc)
		b = b->next;
	return b;
}

/* ---- exits ----------------------------------------------------------------------------------- */

uint32_t fast_exit_new(struct fast *f, const struct fast_exit *x)
{
	if (f->n_exits == f->cap_exits) {
		uint32_t cap = f->cap_exits * 2;
		struct fast_exit *grown = realloc(f->exits, cap * sizeof(*grown));
		if (!grown || cap > FAST_EXITS) {
			f->c.overflow = true;
			f->exits = grown ? grown : f->exits;
			return 1;
		}
		f->exits = grown;
		f->cap_exits = cap;
	}
	f->exits[f->n_exits] = *x;
	return f->n_exits++;
}

void fast_link(struct fast *f, uint32_t exit, struct fast_block *b)
{
	struct fast_exit *x = &f->exits[exit];

	if (x->kind != FAST_LINK || !b->entry)
		return;
	if (!f->counting)
		cg_patch32(x->site, f->c.delta, b->entry);
	else if (!fast_count_link(f, exit, b))
		return;
	x->next = b->incoming;
	b->incoming = exit;
}

/* ---- indirect branches ------------------------------------------------------------------------
 */

static uint64_t *near_of(const struct fast *f, uint64_t pc)
{
	return (uint64_t *)fast_at(f, F_NEAR) + (pc & 0xffff);
}

static uint64_t *pair_of(const struct fast *f, uint64_t pc)
{
	return (uint64_t *)fast_at(f, F_PAIRS) + 2 * ((pc * FAST_MIX) >> (64 - FAST_HASH_BITS));
}

bool fast_indirect(struct fast *f, struct fast_block *b)
{
	uint64_t *pair = pair_of(f, b->pc);

	if (!b->entry)
		return true;
	if (!b->stub && !fast_emit_stub(f, b))
		return false;
	*near_of(f, b->pc) = b->stub;
	pair[0] = b->pc;
	pair[1] = b->in;
	return true;
}

/* ---- forgetting -------------------------------------------------------------------------------
 */

static void take_out(struct fast *f, struct fast_block *b)
{
	struct fast_block **at = &f->hash[slot(b->pc)];

	while (*at != b)
		at = &(*at)->next;
	*at = b->next;
	for (unsigned i = 0; i < b->n_pages; i++) {
		struct fast_use **u = &f->pages[page_slot(b->use[i].page)];
		while (*u != &b->use[i])
			u = &(*u)->next;
		*u = b->use[i].next;
	}
	for (uint32_t k = b->incoming; k; k = f->exits[k].next) {
		if (f->counting)
			fast_count_link(f, k, NULL);
		else
			cg_patch32(f->exits[k].site, f->c.delta, f->exits[k].thunk);
	}
	b->incoming = 0;
	fast_tell_block(f, b);
	if (b->stub && *near_of(f, b->pc) == b->stub)
		*near_of(f, b->pc) = FAST_U64(f, F_OTHER);
	if (b->stub && pair_of(f, b->pc)[1] == b->in)
		memset(pair_of(f, b->pc), 0, 16);
}

static void forget_page(struct fast *f, uint64_t page)
{
	struct fast_use *u = f->pages[page_slot(page)];

	while (u) {
		if (u->page != page) {
			u = u->next;
			continue;
		}
		take_out(f, u->block);
		u = f->pages[page_slot(page)]; /* the list may have lost others, too */
	}
}

void fast_forget(struct fast *f, uint64_t addr, uint64_t len)
{
	if (!len || f->n_exits == 1)
		return;
	if (!addr && len == UINT64_MAX) {
		fast_flush(f);
		return;
	}
	uint64_t last = addr + len - 1 < addr ? UINT64_MAX : addr + len - 1;

	if ((last >> 12) - (addr >> 12) >= PAGES_EACH) {
		for (unsigned i = 0; i < FAST_PAGE_HASH; i++)
			for (struct fast_use *u = f->pages[i]; u;) {
				bool in = u->page >= addr >> 12 && u->page <= last >> 12;
				if (in)
					take_out(f, u->block);
				u = in ? f->pages[i] : u->next;
			}
		return;
	}
	for (uint64_t page = addr >> 12; page <= last >> 12; page++)
		forget_page(f, page);
}

void fast_flush(struct fast *f)
{
	uint64_t *slots = fast_at(f, F_NEAR);

	if (f->notes) {
		fast_note_ran(f);
		f->notes->n_ran = f->notes->n_stretches = 0;
	}
	while (f->chunks) {
		struct fast_chunk *c = f->chunks;
		for (size_t i = 0; i < c->used; i++)
			fast_tell_block(f, &c->blocks[i]);
		f->chunks = c->next;
		free(c);
	}
	memset(f->hash, 0, (1u << FAST_BLOCK_BITS) * sizeof(*f->hash));
	memset(f->pages, 0, FAST_PAGE_HASH * sizeof(*f->pages));
	memset(fast_at(f, F_PAIRS), 0, 16u << FAST_HASH_BITS);
	for (unsigned i = 0; i < 1 << 16; i++)
		slots[i] = FAST_U64(f, F_OTHER);
	f->n_exits = 1;
	fast_tell_flush(f);
	f->c = (struct cg){ .p = f->ours,
			    .end = f->ours + FAST_CODE / 2,
			    .delta = (uint64_t)(uintptr_t)f->code - (uint64_t)(uintptr_t)f->ours };
	f->cold = f->c;
	f->cold.p = f->c.end;
	f->cold.end = f->ours + FAST_CODE;
}

/* ---- making -----------------------------------------------------------------------------------
 */

static struct fast_block *new_block(struct fast *f, uint64_t pc)
{
	struct fast_chunk *c = f->chunks;

	if (!c || c->used == sizeof(c->blocks) / sizeof(c->blocks[0])) {
		c = malloc(sizeof(*c));
		if (!c)
			return NULL;
		c->next = f->chunks;
		c->used = 0;
		f->chunks = c;
	}
	struct fast_block *b = &c->blocks[c->used++];
	memset(b, 0, sizeof(*b));
	b->pc = pc;
	return b;
}

struct fast_block *fast_block_at(struct fast *f, uint64_t pc, bool *flushed)
{
	struct fast_block *b = fast_block_find(f, pc);

	*flushed = false;
	if (b)
		return b;
	fast_scan_at(f, pc);
	b = new_block(f, pc);
	if (!b)
		return NULL;
	if (!fast_emit(f, b)) {
		fast_flush(f);
		*flushed = true;
		fast_scan_at(f, pc);
		b = new_block(f, pc);
		if (!b || !fast_emit(f, b))
			return NULL;
	}
	b->next = f->hash[slot(pc)];
	f->hash[slot(pc)] = b;
	b->n_pages = f->scan.n_pages;
	for (unsigned i = 0; i < b->n_pages; i++) {
		struct fast_use **list = &f->pages[page_slot(f->scan.pages[i])];
		b->use[i] = (struct fast_use){ f->scan.pages[i], *list, b };
		*list = &b->use[i];
	}
	return b;
}

bool fast_blocks_begin(struct fast *f)
{
	f->hash = calloc((1u << FAST_BLOCK_BITS), sizeof(*f->hash));
	f->pages = calloc(FAST_PAGE_HASH, sizeof(*f->pages));
	f->cap_exits = 4096;
	f->exits = malloc(f->cap_exits * sizeof(*f->exits));
	if (!f->hash || !f->pages || !f->exits)
		return false;
	memset(f->exits, 0, sizeof(*f->exits));
	fast_flush(f);
	return true;
}

void fast_blocks_end(struct fast *f)
{
	while (f->chunks) {
		struct fast_chunk *c = f->chunks;
		f->chunks = c->next;
		free(c);
	}
	free(f->hash);
	free(f->pages);
	free(f->exits);
}
