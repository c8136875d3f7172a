/*
 * The last version of each page: see tail.h.
 */
#include "replayer/tail.h"
#include "format/scatter.h"

#include <stdlib.h>

/* So many places at most, 256 MB: two are for a page that a checkpoint has, and half are free. Who
 * makes checkpoints may be one that has gone wrong. */
#define MOST ((size_t)16 << 20)

static struct rp_tail_page *slot(const struct rp_tail *t, uint64_t key)
{
	size_t i = dj_scatter(key, t->size);

	for (;; i++) {
		struct rp_tail_page *p = &t->pages[i & (t->size - 1)];
		if (!p->key || p->key == key + 1)
			return p;
	}
}

static bool grow(struct rp_tail *t)
{
	size_t n = t->size;
	struct rp_tail_page *old = t->pages, *bigger;

	bigger = n < MOST ? calloc(n ? 2 * n : 4096, sizeof(*bigger)) : NULL;
	if (!bigger)
		return false;
	t->pages = bigger;
	t->size = n ? 2 * n : 4096;
	for (size_t i = 0; i < n; i++)
		if (old[i].key)
			*slot(t, old[i].key - 1) = old[i];
	free(old);
	return true;
}

void rp_tail_set(void *ctx, uint64_t key, void *version)
{
	struct rp_tail *t = ctx;

	if (2 * t->n >= t->size && !grow(t)) {
		t->failed = true;
		return;
	}
	struct rp_tail_page *p = slot(t, key);
	t->n += !p->key;
	p->key = key + 1;
	version = rp_version_ref(key, version);
	rp_version_unref(key, p->version);
	p->version = version;
}

void *rp_tail_get(void *ctx, uint64_t key)
{
	const struct rp_tail *t = ctx;

	return t && t->size ? slot(t, key)->version : NULL;
}

void rp_tail_follow(struct rp_tail *t, const struct rp_changes *c)
{
	for (size_t i = 0; i < c->n && !t->failed; i++)
		rp_tail_set(t, c->list[i].key, c->list[i].after);
}

void rp_tail_free(struct rp_tail *t)
{
	for (size_t i = 0; i < t->size; i++)
		if (t->pages[i].key)
			rp_version_unref(t->pages[i].key - 1, t->pages[i].version);
	free(t->pages);
	*t = (struct rp_tail){ 0 };
}
