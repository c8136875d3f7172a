/*
 * The memory view's pages, and the shadow's, as versions (versions.h): what has changed since a
 * checkpoint, and going from one checkpoint to another.
 *
 * Of every page the version is known that it had at the checkpoint from which the thread has come
 * (NULL at the beginning of history: zeros in the shadow, no page in the view). A page is noted
 * before its first change after that. So a new checkpoint copies the pages that were noted, and
 * whoever goes to another one puts back what was noted and what differs between the two, no more.
 */
#include "replayer/memview-page.h"
#include "format/scatter.h"

#include <stdlib.h>
#include <string.h>

/* ---- which version a page had ---------------------------------------------------------------- */

/* The first page of the shadow from i on that may have a version, as far as bits tell;
 * SHADOW_PAGES: none. Nearly all of the table has never been touched. */
static size_t based_from(const struct rp_memview *mv, size_t i)
{
	while (i < SHADOW_PAGES &&
	       !(mv->shadow_based[i / BASED_PAGES / 64] >> i / BASED_PAGES % 64 & 1))
		i = (i / BASED_PAGES + 1) * BASED_PAGES;
	return i;
}

static struct rp_view_base *view_slot(struct rp_memview *mv, uint64_t num)
{
	size_t i = dj_scatter(num, mv->bases_size);

	for (;; i++) {
		struct rp_view_base *b = &mv->bases[i & (mv->bases_size - 1)];
		if (!b->used || b->num == num)
			return b;
	}
}

static bool bases_grow(struct rp_memview *mv)
{
	struct rp_view_base *old = mv->bases;
	size_t n = mv->bases_size, size = n ? 2 * n : 1024;

	mv->bases = calloc(size, sizeof(*mv->bases));
	if (!mv->bases) {
		mv->bases = old;
		return false;
	}
	mv->bases_size = size;
	for (size_t i = 0; i < n; i++)
		if (old[i].used)
			*view_slot(mv, old[i].num) = old[i];
	free(old);
	return true;
}

/* Where the base of a page of the view is kept; NULL without memory. */
static struct rp_view_base *view_base(struct rp_memview *mv, uint64_t num)
{
	if (2 * mv->nbases >= mv->bases_size && !bases_grow(mv))
		return NULL;
	struct rp_view_base *b = view_slot(mv, num);
	if (!b->used) {
		*b = (struct rp_view_base){ .num = num, .used = true };
		mv->nbases++;
	}
	return b;
}

void *rp_memview_base(struct rp_memview *mv, uint64_t key)
{
	if (!(key & 1))
		return mv->shadow_base[key >> 1];
	return mv->bases_size ? view_slot(mv, key >> 1)->version : NULL;
}

static void set_base(struct rp_memview *mv, uint64_t key, void *version)
{
	void **at = NULL;

	if (key & 1) {
		struct rp_view_base *b = view_base(mv, key >> 1);
		at = b ? &b->version : NULL;
	} else {
		uint64_t part = (key >> 1) / BASED_PAGES;
		at = (void **)&mv->shadow_base[key >> 1];
		mv->shadow_based[part / 64] |= 1ULL << part % 64;
	}
	if (!at) {
		mv->lost = true;
		return;
	}
	version = rp_version_ref(key, version);
	rp_version_unref(key, *at);
	*at = version;
}

void rp_memview_bases(const struct rp_memview *mv,
		      void (*each)(void *ctx, uint64_t key, void *version), void *ctx)
{
	for (size_t i = 0; i < mv->bases_size; i++)
		if (mv->bases[i].used && mv->bases[i].version)
			each(ctx, rp_key_view(mv->bases[i].num), mv->bases[i].version);
	for (size_t i = based_from(mv, 0); i < SHADOW_PAGES; i = based_from(mv, i + 1))
		if (mv->shadow_base[i])
			each(ctx, rp_key_shadow(i), mv->shadow_base[i]);
}

/* Code is told when it runs again. */
static void mark_anew(struct rp_memview *mv)
{
	struct emu *e = mv->th->e;

	e->mark += e->mark == UINT32_MAX ? 2 : 1;
}

void rp_bases_free(struct rp_memview *mv)
{
	for (size_t i = 0; i < mv->bases_size; i++)
		if (mv->bases[i].used)
			rp_version_unref(1, mv->bases[i].version);
	free(mv->bases);
	mv->bases = NULL;
	mv->nbases = mv->bases_size = 0;
	for (size_t i = based_from(mv, 0); i < SHADOW_PAGES; i = based_from(mv, i + 1)) {
		rp_bytes_unref(mv->shadow_base[i]);
		mv->shadow_base[i] = NULL;
	}
	memset(mv->shadow_based, 0, sizeof(mv->shadow_based));
	mv->nnoted = 0;
	mv->lost = false;
	rp_line_log_clear(&mv->lines);
	mv->line_epoch++;
	mark_anew(mv);
}

/* ---- noting ------------------------------------------------------------------------------------
 */

static void note(struct rp_memview *mv, uint64_t key)
{
	if (mv->nnoted == mv->noted_cap) {
		size_t cap = mv->noted_cap ? 2 * mv->noted_cap : 256;
		uint64_t *grown = realloc(mv->noted, cap * sizeof(*grown));
		if (!grown) {
			mv->lost = true;
			return;
		}
		mv->noted = grown;
		mv->noted_cap = cap;
	}
	mv->noted[mv->nnoted++] = key;
}

static void note_view(struct rp_memview *mv, uint64_t num)
{
	struct rp_view_base *b = view_base(mv, num);

	if (!b)
		mv->lost = true;
	else if (b->epoch != mv->epoch)
		note(mv, rp_key_view(num));
	if (b)
		b->epoch = mv->epoch;
}

void rp_page_note(struct rp_memview *mv, struct rp_memview_page *p)
{
	if (p->epoch == mv->epoch)
		return;
	note_view(mv, p->num);
	p->epoch = mv->epoch;
}

void rp_page_note_shadow(struct rp_memview *mv, uint64_t idx)
{
	if (mv->shadow_epoch[idx] == mv->epoch)
		return;
	note(mv, rp_key_shadow(idx));
	mv->shadow_epoch[idx] = mv->epoch;
}

static void note_key(struct rp_memview *mv, uint64_t key)
{
	if (key & 1)
		note_view(mv, key >> 1);
	else
		rp_page_note_shadow(mv, key >> 1);
}

static void forget_lines(struct rp_memview *mv)
{
	rp_line_log_clear(&mv->lines);
	mv->line_epoch++;
	mark_anew(mv);
}

static void forget_notes(struct rp_memview *mv)
{
	mv->nnoted = 0;
	mv->epoch++;
	forget_lines(mv);
}

/* ---- taking ------------------------------------------------------------------------------------
 */

static bool any_told(const struct rp_memview_page *p)
{
	for (unsigned i = 0; p->told && i < RP_WORDS; i++)
		if (p->told->bits[i])
			return true;
	return false;
}

/* The page as it is now; `like` once more if that is the same. False without memory. */
static bool take_view(const struct rp_memview *mv, uint64_t num, struct rp_view_version *like,
		      void **out)
{
	static const struct rp_view_version none;
	const struct rp_view_version *old = like ? like : &none;
	const struct rp_memview_page *p = rp_memview_page(mv, num);
	struct rp_view_version *v;

	*out = NULL;
	if (!p)
		return true;
	v = rp_view_version_new();
	if (!v)
		return false;
	v->has_own = p->own != NULL;
	bool good = rp_bytes_make(&v->own, old->own, p->own, RP_PAGE) &&
		    rp_bytes_make(&v->known, old->known, p->known, sizeof(p->known)) &&
		    rp_bytes_make(&v->stale, old->stale, p->stale, sizeof(p->known)) &&
		    rp_bytes_make(&v->told, old->told, any_told(p) ? p->told->bits : NULL,
				  offsetof(struct rp_told_bytes, steps));
	bool same = good && like && v->has_own == like->has_own && v->own == like->own &&
		    v->known == like->known && v->stale == like->stale && v->told == like->told;
	if (!good || same)
		rp_version_unref(1, v);
	*out = same ? rp_version_ref(1, like) : good ? v : NULL;
	return good;
}

static bool take_page(struct rp_memview *mv, uint64_t key, void *like, void **out)
{
	struct rp_bytes *bytes = NULL;
	bool good;

	if (key & 1)
		return take_view(mv, key >> 1, like, out);
	good = rp_bytes_make(&bytes, like, mv->th->e->shadow + (key >> 1) * RP_PAGE, RP_PAGE);
	*out = bytes;
	return good;
}

static int by_key(const void *a, const void *b)
{
	const struct rp_change *x = a, *y = b;

	return x->key < y->key ? -1 : x->key > y->key;
}

bool rp_memview_take(struct rp_memview *mv, struct rp_changes *out, struct rp_lines *lines)
{
	if (mv->trail && !rp_trail_gather(mv))
		return false;
	if (mv->lost || !rp_changes_room(out, mv->nnoted))
		return false;
	for (size_t i = 0; i < mv->nnoted; i++) {
		struct rp_change c = { .key = mv->noted[i] };
		void *base = rp_memview_base(mv, c.key);
		if (!take_page(mv, c.key, base, &c.after)) {
			rp_changes_free(out);
			return false;
		}
		c.before = rp_version_ref(c.key, base);
		out->list[out->n++] = c;
	}
	qsort(out->list, out->n, sizeof(*out->list), by_key);
	for (size_t i = 0; i < out->n; i++)
		set_base(mv, out->list[i].key, out->list[i].after);
	rp_line_log_take(&mv->lines, lines);
	forget_notes(mv);
	return true;
}

bool rp_memview_lines(struct rp_memview *mv, struct rp_lines *lines)
{
	if (mv->trail && !rp_trail_gather(mv))
		return false;
	rp_line_log_take(&mv->lines, lines);
	forget_lines(mv);
	return true;
}

void rp_memview_pass(struct rp_memview *mv, const struct rp_changes *c)
{
	for (size_t i = 0; i < c->n; i++) {
		note_key(mv, c->list[i].key);
		set_base(mv, c->list[i].key, c->list[i].after);
	}
}

void rp_memview_arrive(struct rp_memview *mv)
{
	if (mv->trail)
		rp_trail_gather(mv);
	forget_notes(mv);
}

/* ---- putting back ------------------------------------------------------------------------------
 */

void rp_memview_over(struct rp_memview *mv, const struct rp_changes *c, bool forward)
{
	for (size_t i = 0; i < c->n; i++) {
		note_key(mv, c->list[i].key);
		set_base(mv, c->list[i].key, forward ? c->list[i].after : c->list[i].before);
	}
}

static void put_shadow(struct rp_memview *mv, uint64_t idx)
{
	const struct rp_bytes *b = mv->shadow_base[idx];
	uint8_t *page = mv->th->e->shadow + idx * RP_PAGE;

	if (b)
		memcpy(page, b->data, RP_PAGE);
	else
		memset(page, 0, RP_PAGE);
}

static void put_bits(uint64_t *to, const struct rp_bytes *from)
{
	if (from)
		memcpy(to, from->data, RP_WORDS * sizeof(*to));
	else
		memset(to, 0, RP_WORDS * sizeof(*to));
}

static void put_stale(struct rp_memview *mv, struct rp_memview_page *p, const struct rp_bytes *from)
{
	if (!from) {
		free(p->stale);
		p->stale = NULL;
		return;
	}
	if (!p->stale)
		p->stale = malloc(RP_WORDS * sizeof(*p->stale));
	if (p->stale)
		put_bits(p->stale, from);
	else
		rp_page_no_memory(mv);
}

static void put_told(struct rp_memview *mv, struct rp_memview_page *p, const struct rp_bytes *from)
{
	rp_told_drop(mv, p);
	if (!from)
		return;
	if (rp_told_room(mv, p))
		memcpy(p->told->bits, from->data, from->size);
	else
		rp_page_no_memory(mv);
}

static void put_view(struct rp_memview *mv, uint64_t num, const struct rp_view_version *v)
{
	struct rp_memview_page **owner = &mv->owner[num % SHADOW_PAGES];
	struct rp_memview_page *p = rp_memview_page(mv, num);

	if (!p)
		p = rp_page_insert(mv, num);
	if (p == &mv->spare)
		return;
	put_bits(p->known, v->known);
	put_stale(mv, p, v->stale);
	put_told(mv, p, v->told);
	if (v->has_own) {
		if (!p->own && !rp_page_make_own(mv, p))
			return;
		if (v->own)
			memcpy(p->own, v->own->data, RP_PAGE);
		else
			memset(p->own, 0, RP_PAGE);
		if (!*owner)
			rp_page_contest(mv, num);
	} else {
		free(p->own);
		p->own = NULL;
		*owner = p;
	}
	p->epoch = p->store_epoch = 0;
}

void rp_memview_put(struct rp_memview *mv)
{
	/* first what was not there, so that a page's place in the shadow is free again */
	for (size_t i = 0; i < mv->nnoted; i++) {
		uint64_t key = mv->noted[i];
		if (!(key & 1))
			put_shadow(mv, key >> 1);
		else if (!rp_memview_base(mv, key) && rp_memview_page(mv, key >> 1))
			rp_page_remove(mv, rp_memview_page(mv, key >> 1));
	}
	for (size_t i = 0; i < mv->nnoted; i++) {
		uint64_t key = mv->noted[i];
		const struct rp_view_version *v = key & 1 ? rp_memview_base(mv, key) : NULL;
		if (v)
			put_view(mv, key >> 1, v);
	}
	forget_notes(mv);
}
