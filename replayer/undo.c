/*
 * Undo logs: see undo.h.
 */
#include "replayer/undo.h"

#include <stdlib.h>
#include <string.h>

static const uint8_t zeros[UNDO_PAGE];

void rp_undo_init(struct rp_undo *u)
{
	*u = (struct rp_undo){ 0 };
}

static void view_free(struct rp_undo_view *v)
{
	free(v->own);
	free(v->known);
	free(v->stale);
}

void rp_undo_free(struct rp_undo *u)
{
	for (size_t i = 0; i < u->nshadow; i++)
		free(u->shadow[i].data);
	for (size_t i = 0; i < u->nview; i++)
		view_free(&u->view[i]);
	free(u->shadow);
	free(u->view);
	rp_undo_init(u);
}

/* Room for one more in an array of `size`-byte elements. */
static bool reserve(struct rp_undo *u, void *array, size_t n, size_t *cap, size_t size)
{
	void **p = array;

	if (n < *cap)
		return true;
	size_t grown = *cap ? *cap * 2 : 16;
	void *q = realloc(*p, grown * size);
	if (!q) {
		u->failed = true;
		return false;
	}
	u->bytes += (grown - *cap) * size;
	*p = q;
	*cap = grown;
	return true;
}

/* A copy of `n` bytes, or NULL if they are all zero (or absent). */
static void *keep(struct rp_undo *u, const void *bytes, size_t n)
{
	if (!bytes || !memcmp(bytes, zeros, n))
		return NULL;
	void *copy = malloc(n);
	if (!copy) {
		u->failed = true;
		return NULL;
	}
	memcpy(copy, bytes, n);
	u->bytes += n;
	return copy;
}

void rp_undo_note_shadow(struct rp_undo *u, uint64_t num, const uint8_t *data)
{
	if (!reserve(u, &u->shadow, u->nshadow, &u->shadow_cap, sizeof(*u->shadow)))
		return;
	u->shadow[u->nshadow++] =
		(struct rp_undo_shadow){ .num = num, .data = keep(u, data, UNDO_PAGE) };
	u->sorted = false;
}

void rp_undo_note_view(struct rp_undo *u, uint64_t num, bool existed, const uint8_t *own,
		       const uint64_t *known, const uint64_t *stale)
{
	if (!reserve(u, &u->view, u->nview, &u->view_cap, sizeof(*u->view)))
		return;
	struct rp_undo_view *v = &u->view[u->nview++];
	*v = (struct rp_undo_view){ .num = num, .existed = existed };
	v->known = keep(u, known, UNDO_WORDS * 8);
	v->stale = keep(u, stale, UNDO_WORDS * 8);
	if (own) {
		v->own = malloc(UNDO_PAGE); /* zeros, too: NULL means something else */
		if (v->own) {
			memcpy(v->own, own, UNDO_PAGE);
			u->bytes += UNDO_PAGE;
		} else {
			u->failed = true;
		}
	}
	u->sorted = false;
}

static int by_shadow(const void *a, const void *b)
{
	const struct rp_undo_shadow *x = a, *y = b;

	return x->num < y->num ? -1 : x->num > y->num;
}

static int by_view(const void *a, const void *b)
{
	const struct rp_undo_view *x = a, *y = b;

	return x->num < y->num ? -1 : x->num > y->num;
}

static void sort(struct rp_undo *u)
{
	if (u->sorted)
		return;
	if (u->nshadow)
		qsort(u->shadow, u->nshadow, sizeof(*u->shadow), by_shadow);
	if (u->nview)
		qsort(u->view, u->nview, sizeof(*u->view), by_view);
	u->sorted = true;
}

bool rp_undo_has_shadow(struct rp_undo *u, uint64_t num)
{
	struct rp_undo_shadow key = { .num = num };

	if (u->failed)
		return true;
	sort(u);
	return u->nshadow && bsearch(&key, u->shadow, u->nshadow, sizeof(key), by_shadow);
}

bool rp_undo_has_view(struct rp_undo *u, uint64_t num)
{
	struct rp_undo_view key = { .num = num };

	if (u->failed)
		return true;
	sort(u);
	return u->nview && bsearch(&key, u->view, u->nview, sizeof(key), by_view);
}

void rp_undo_merge(struct rp_undo *older, struct rp_undo *younger)
{
	sort(older);
	older->failed |= younger->failed;
	/* the old states stay where they are: only what they lack is added at the end */
	size_t ns = older->nshadow, nv = older->nview;
	for (size_t i = 0; i < younger->nshadow; i++) {
		struct rp_undo_shadow *s = &younger->shadow[i];
		if (ns && bsearch(s, older->shadow, ns, sizeof(*s), by_shadow))
			continue;
		if (!reserve(older, &older->shadow, older->nshadow, &older->shadow_cap, sizeof(*s)))
			break;
		older->shadow[older->nshadow++] = *s;
		older->bytes += s->data ? UNDO_PAGE : 0;
		s->data = NULL;
	}
	for (size_t i = 0; i < younger->nview; i++) {
		struct rp_undo_view *v = &younger->view[i];
		if (nv && bsearch(v, older->view, nv, sizeof(*v), by_view))
			continue;
		if (!reserve(older, &older->view, older->nview, &older->view_cap, sizeof(*v)))
			break;
		older->view[older->nview++] = *v;
		older->bytes += (v->own ? UNDO_PAGE : 0) + (v->known ? UNDO_WORDS * 8 : 0) +
				(v->stale ? UNDO_WORDS * 8 : 0);
		v->own = NULL;
		v->known = v->stale = NULL;
	}
	older->sorted = false;
	rp_undo_free(younger);
}
