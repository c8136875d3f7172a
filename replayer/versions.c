/*
 * Versions of pages: see versions.h.
 */
#include "replayer/versions.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t zeros[RP_PAGE + RP_PAGE / 8];
static atomic_size_t held, most;

static void hold(size_t bytes)
{
	size_t now = atomic_fetch_add_explicit(&held, bytes, memory_order_relaxed) + bytes;

	if (now > atomic_load_explicit(&most, memory_order_relaxed))
		atomic_store_explicit(&most, now, memory_order_relaxed);
}

static void release(size_t bytes)
{
	atomic_fetch_sub_explicit(&held, bytes, memory_order_relaxed);
}

void rp_versions_hold(ptrdiff_t bytes)
{
	hold((size_t)bytes);
}

size_t rp_versions_held(void)
{
	return atomic_load_explicit(&held, memory_order_relaxed);
}

size_t rp_versions_most(void)
{
	size_t n = atomic_load_explicit(&most, memory_order_relaxed);

	return n + n / 8;
}

/* ---- heads ---------------------------------------------------------------------------------- */

/* What has a count of references, many in a row. */
union head {
	union head *next; /* of those that are free */
	struct rp_bytes bytes;
	struct rp_view_version view;
};

#define HEADS 1000

struct heads {
	struct heads *next;
	union head head[HEADS];
};

static struct {
	pthread_mutex_t lock;
	struct heads *all;
	union head *spare;
} heads = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void *head_new(void)
{
	union head *h;
	struct heads *more;

	pthread_mutex_lock(&heads.lock);
	if (!heads.spare && (more = malloc(sizeof(*more)))) {
		more->next = heads.all;
		heads.all = more;
		for (unsigned i = HEADS; i-- > 0;) {
			more->head[i].next = heads.spare;
			heads.spare = &more->head[i];
		}
	}
	if ((h = heads.spare))
		heads.spare = h->next;
	pthread_mutex_unlock(&heads.lock);
	return h;
}

static void head_free(void *head)
{
	union head *h = head;

	pthread_mutex_lock(&heads.lock);
	h->next = heads.spare;
	heads.spare = h;
	pthread_mutex_unlock(&heads.lock);
}

/* ---- versions ------------------------------------------------------------------------------ */

static struct rp_bytes *bytes_ref(struct rp_bytes *b)
{
	if (b)
		b->refs++;
	return b;
}

void rp_bytes_unref(struct rp_bytes *b)
{
	if (!b || --b->refs)
		return;
	release(sizeof(union head) + b->size);
	free(b->data);
	head_free(b);
}

bool rp_bytes_make(struct rp_bytes **out, struct rp_bytes *like, const void *bytes, unsigned size)
{
	bool none = !bytes || !memcmp(bytes, zeros, size);

	*out = NULL;
	if (none)
		return true;
	if (like && !memcmp(like->data, bytes, size)) {
		*out = bytes_ref(like);
		return true;
	}
	uint8_t *data = malloc(size);
	struct rp_bytes *b = data ? head_new() : NULL;
	if (!b) {
		free(data);
		return false;
	}
	*b = (struct rp_bytes){ .refs = 1, .size = size, .data = data };
	memcpy(b->data, bytes, size);
	hold(sizeof(union head) + size);
	*out = b;
	return true;
}

struct rp_view_version *rp_view_version_new(void)
{
	struct rp_view_version *v = head_new();

	if (!v)
		return NULL;
	*v = (struct rp_view_version){ .refs = 1 };
	hold(sizeof(union head));
	return v;
}

void *rp_version_ref(uint64_t key, void *version)
{
	struct rp_view_version *v = version;

	if (!(key & 1))
		return bytes_ref(version);
	if (v)
		v->refs++;
	return v;
}

void rp_version_unref(uint64_t key, void *version)
{
	struct rp_view_version *v = version;

	if (!(key & 1)) {
		rp_bytes_unref(version);
		return;
	}
	if (!v || --v->refs)
		return;
	rp_bytes_unref(v->own);
	rp_bytes_unref(v->known);
	rp_bytes_unref(v->stale);
	rp_bytes_unref(v->told);
	release(sizeof(union head));
	head_free(v);
}

/* ---- changes ------------------------------------------------------------------------------- */

bool rp_changes_room(struct rp_changes *c, size_t n)
{
	c->n = 0;
	c->room = n;
	c->list = malloc((n + !n) * sizeof(*c->list));
	if (c->list)
		hold(n * sizeof(*c->list));
	return c->list != NULL;
}

void rp_changes_free(struct rp_changes *c)
{
	for (size_t i = 0; i < c->n; i++) {
		rp_version_unref(c->list[i].key, c->list[i].before);
		rp_version_unref(c->list[i].key, c->list[i].after);
	}
	if (c->list)
		release(c->room * sizeof(*c->list));
	free(c->list);
	*c = (struct rp_changes){ 0 };
}

bool rp_changes_join(struct rp_changes *out, const struct rp_changes *first,
		     const struct rp_changes *second)
{
	size_t i = 0, k = 0;

	if (!rp_changes_room(out, first->n + second->n))
		return false;
	while (i < first->n || k < second->n) {
		const struct rp_change *a = i < first->n ? &first->list[i] : NULL;
		const struct rp_change *b = k < second->n ? &second->list[k] : NULL;
		uint64_t key = !b || (a && a->key <= b->key) ? a->key : b->key;
		bool in_first = a && a->key == key, in_second = b && b->key == key;
		out->list[out->n++] = (struct rp_change){
			.key = key,
			.before = rp_version_ref(key, in_first ? a->before : b->before),
			.after = rp_version_ref(key, in_second ? b->after : a->after),
		};
		i += in_first;
		k += in_second;
	}
	return true;
}

void rp_changes_turn(struct rp_changes *c)
{
	for (size_t i = 0; i < c->n; i++) {
		void *before = c->list[i].before;
		c->list[i].before = c->list[i].after;
		c->list[i].after = before;
	}
}
