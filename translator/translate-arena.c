/*
 * Memory for translated code: arenas, and the chunks they are given out in. Relies on the caller
 * (tr_reclaim) to give back only what no thread is in.
 */
#include "translator/runtime.h"

#include <stdlib.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* linux/mman.h, since Linux 5.14 */
#endif

bool tr_reachable(uint64_t from, uint64_t to)
{
	int64_t d = (int64_t)(to - from);
	return d > -0x7ff00000LL && d < 0x7ff00000LL;
}

struct tr_arena *tr_arena_at(const struct translator *tr, uint64_t va)
{
	for (struct tr_arena *a = tr->arenas; a; a = a->next)
		if (va >= a->va && va < a->va + TR_ARENA_SIZE)
			return a;
	return NULL;
}

/* ---- chunks ---- */

static void chunk_begin(struct tr_arena *a, uint32_t chunk)
{
	uint8_t *hot = a->ours + chunk * CHUNK_HOT, *cold = a->ours + ARENA_HOT;
	uint64_t delta = a->va - (uint64_t)(uintptr_t)a->ours;
	size_t rt = chunk ? 0 : ((size_t)(rt_end - rt_begin) + 63) & ~(size_t)63;
	cold += chunk * CHUNK_COLD;
	a->current = chunk;
	a->hot = (struct cg){ .p = hot + rt, .end = hot + CHUNK_HOT, .delta = delta };
	a->cold = (struct cg){ .p = cold, .end = cold + CHUNK_COLD, .delta = delta };
}

bool tr_arena_next(struct tr_arena *a)
{
	if (!a->n_free)
		return false;
	uint32_t old = a->current;
	chunk_begin(a, a->free[--a->n_free]);
	/* who has filled one chunk fills another: its pages at once are cheaper than one by one */
	madvise(a->ours + (size_t)a->current * CHUNK_HOT, CHUNK_HOT, MADV_POPULATE_WRITE);
	madvise(a->ours + ARENA_HOT + (size_t)a->current * CHUNK_COLD, CHUNK_COLD,
		MADV_POPULATE_WRITE);
	if (a->n_free) {
		tr_warm(a->ours + (size_t)a->free[a->n_free - 1] * CHUNK_HOT, CHUNK_HOT);
		tr_warm(a->ours + ARENA_HOT + (size_t)a->free[a->n_free - 1] * CHUNK_COLD,
			CHUNK_COLD);
	}
	if (!a->chunks[old].holders)
		a->free[a->n_free++] = old;
	return true;
}

bool tr_arena_room(struct tr_arena *a, size_t hot, size_t cold)
{
	if (!tr_arena_overflow(a) && (size_t)(a->hot.end - a->hot.p) >= hot &&
	    (size_t)(a->cold.end - a->cold.p) >= cold)
		return true;
	return tr_arena_next(a);
}

uint32_t tr_chunk_hold(struct tr_arena *a)
{
	a->chunks[a->current].holders++;
	return a->current;
}

void tr_chunk_drop(struct tr_arena *a, uint32_t chunk)
{
	DJ_ASSERT(a->chunks[chunk].holders, "chunk %u is empty already", chunk);
	if (--a->chunks[chunk].holders)
		return;
	if (chunk == a->current)
		chunk_begin(a, chunk);
	else
		a->free[a->n_free++] = chunk;
}

void tr_chunk_settle(struct tr_arena *a, uint32_t chunk, struct tr_frag **frags, uint32_t n)
{
	struct tr_chunk *c = &a->chunks[chunk];
	c->frags = malloc((n + 1UL) * sizeof(*c->frags));
	DJ_ASSERT(c->frags && !c->n, "out of memory for fragments");
	memcpy(c->frags, frags, n * sizeof(*c->frags));
	c->n = n;
	c->cap = n + 1;
	c->holders += n;
}

void tr_arena_settle(struct tr_arena *a)
{
	a->n_free = 0;
	for (uint32_t i = CHUNKS; i-- > 0;)
		if (!a->chunks[i].holders)
			a->free[a->n_free++] = i;
	DJ_ASSERT(a->n_free, "no chunk is free in what was translated before");
	chunk_begin(a, a->free[--a->n_free]);
}

/* ---- which fragment lies where ---- */

void tr_chunk_add(struct tr_arena *a, struct tr_frag *f)
{
	struct tr_chunk *c = &a->chunks[f->chunk];
	if (c->n == c->cap) {
		c->cap = c->cap ? c->cap * 2 : 64;
		c->frags = realloc(c->frags, c->cap * sizeof(*c->frags));
		DJ_ASSERT(c->frags, "out of memory for fragments");
	}
	c->frags[c->n++] = f;
}

/* The first fragment of the chunk that ends behind `va`. */
static uint32_t position(const struct tr_chunk *c, uint64_t va)
{
	uint32_t lo = 0, hi = c->n;
	while (lo < hi) {
		uint32_t mid = (lo + hi) / 2;
		if (c->frags[mid]->end <= va)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

void tr_chunk_remove(struct tr_arena *a, struct tr_frag *f)
{
	struct tr_chunk *c = &a->chunks[f->chunk];
	uint32_t i = position(c, f->entry);
	DJ_ASSERT(i < c->n && c->frags[i] == f, "a fragment is not where it lies");
	memmove(&c->frags[i], &c->frags[i + 1], (c->n - i - 1) * sizeof(*c->frags));
	c->n--;
}

struct tr_frag *tr_chunk_find(const struct tr_arena *a, uint64_t va)
{
	if (va - a->va >= ARENA_HOT)
		return NULL;
	const struct tr_chunk *c = &a->chunks[(va - a->va) / CHUNK_HOT];
	uint32_t i = position(c, va);
	/* what lies between two fragments is a stub, or nothing */
	return i < c->n && c->frags[i]->entry <= va && va < c->frags[i]->end ? c->frags[i] : NULL;
}

/* ---- arenas ---- */

void tr_add_arena(struct translator *tr, uint64_t va, uint8_t *ours)
{
	struct tr_arena *a = calloc(1, sizeof(*a));
	DJ_ASSERT(a, "out of memory for an arena");
	a->va = va;
	a->ours = ours;
	a->free = malloc(CHUNKS * sizeof(*a->free));
	DJ_ASSERT(a->free, "out of memory for an arena");
	for (uint32_t i = CHUNKS; i-- > 1;)
		a->free[a->n_free++] = i;
	memcpy(a->ours, rt_begin, (size_t)(rt_end - rt_begin));
	chunk_begin(a, 0);
	a->next = tr->arenas;
	tr->arenas = a;
	tr_tables_arena(tr);
	if (!a->next)
		tr_tables_init(tr);
}

bool tr_crowded(const struct translator *tr)
{
	const struct tr_arena *a = tr->arenas;
	while (a && a->n_free >= CHUNKS / 3)
		a = a->next;
	return a != NULL;
}

static void arena_free(struct tr_arena *a)
{
	for (unsigned i = 0; i < CHUNKS; i++)
		free(a->chunks[i].frags);
	free(a->free);
	free(a);
}

static bool is_empty(const struct tr_arena *a)
{
	for (unsigned i = 0; i < CHUNKS; i++)
		if (a->chunks[i].holders)
			return false;
	return true;
}

void tr_drop_empty_arenas(struct translator *tr)
{
	for (struct tr_arena **at = &tr->arenas; *at;) {
		struct tr_arena *a = *at;
		if (is_empty(a)) {
			*at = a->next;
			arena_free(a);
		} else {
			at = &a->next;
		}
	}
}

void tr_arenas_free(struct translator *tr)
{
	while (tr->arenas) {
		struct tr_arena *a = tr->arenas;
		tr->arenas = a->next;
		arena_free(a);
	}
}

void tr_drop_arena(struct translator *tr, uint64_t va)
{
	tr_flush(tr);
	tr_reclaim(tr, tr_epoch(tr));
	struct tr_arena **at = &tr->arenas;
	while (*at && (*at)->va != va)
		at = &(*at)->next;
	DJ_ASSERT(*at, "no arena is at %#llx", (unsigned long long)va);
	struct tr_arena *a = *at;
	*at = a->next;
	arena_free(a);
	tr_tables_clear(tr);
}

bool tr_in_cache(const struct translator *tr, uint64_t va)
{
	return tr_arena_at(tr, va) != NULL;
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
