/*
 * What modules contain, unpacked when somebody asks: out of the trace, or out of the module store
 * beside it (format/store.h).
 *
 * That the store has a trace's modules is found out when the trace is opened, checksums included,
 * so that whoever replays it can say at once that something is missing; and not in the midst of it.
 */
#include "format/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- finding ----------------------------------------------------------------------------- */

static void missing(struct dj_trace *t, const struct dj_reader_module *m, const char *why)
{
	char name[STORE_NAME_LEN + 1];

	if (t->nmissing++)
		return;
	dj_store_name(name, &m->key);
	snprintf(t->missing, sizeof(t->missing),
		 "%.300s: module %.300s is not in the trace but in the module store, and "
		 "%.300s/%s %.60s; where the recording was made, `deja pack' makes a trace that "
		 "has everything in it",
		 t->path, m->path, t->store, name, why);
}

/* The file of the store that module m is in; NULL if it is not there or not good. */
static struct dj_store_file *find_file(struct dj_trace *t, int store, struct dj_reader_module *m)
{
	struct dj_store_file *f, *v;
	char why[120] = "is not there";

	for (size_t i = 0; i < t->nstored; i++)
		if (!memcmp(t->stored[i].key.hash, m->key.hash, sizeof(m->key.hash)) &&
		    t->stored[i].key.size == m->key.size)
			return &t->stored[i];
	v = dj_reader_grow(t->stored, t->nstored, sizeof(*v));
	if (!v) {
		missing(t, m, "needs more memory than there is");
		return NULL;
	}
	t->stored = v;
	f = &t->stored[t->nstored];
	*f = (struct dj_store_file){ .key = m->key };
	if (store < 0 || dj_store_map(store, f, why, sizeof(why))) {
		missing(t, m, why);
		return NULL;
	}
	t->nstored++;
	t->stored_bytes += f->len;
	return f;
}

/* The directory that the trace is really in: it may have been opened by a link. */
static int open_store(struct dj_trace *t, struct dj_error *err)
{
	char *real = realpath(t->path, NULL);

	t->store = dj_store_beside(real ? real : t->path);
	free(real);
	return t->store ? dj_store_open(t->store, false)
			: dj_fail(err, 1, "%s: out of memory", t->path);
}

int dj_reader_find_stored(struct dj_trace *t, struct dj_error *err)
{
	int store = -1;

	for (size_t i = 0; i < t->nmodules; i++) {
		struct dj_reader_module *m = &t->modules[i];
		const struct dj_store_file *f;

		if (!m->known || !m->info.stored)
			continue;
		if (!t->store && (store = open_store(t, err)) < 0 && !t->store)
			return -1;
		f = find_file(t, store, m);
		m->file = f ? (size_t)(f - t->stored) + 1 : 0;
	}
	if (t->nmissing > 1) {
		size_t n = strlen(t->missing);

		snprintf(t->missing + n, sizeof(t->missing) - n, " (%zu more are missing)",
			 t->nmissing - 1);
	}
	if (store >= 0)
		close(store);
	return 0;
}

void dj_reader_free_stored(struct dj_trace *t)
{
	for (size_t i = 0; i < t->nstored; i++)
		dj_store_unmap(&t->stored[i]);
	free(t->stored);
	free(t->store);
}

const char *dj_trace_missing(const struct dj_trace *t)
{
	return t->nmissing ? t->missing : NULL;
}

const char *dj_trace_store(const struct dj_trace *t, size_t *files, uint64_t *bytes)
{
	*files = t->nstored;
	*bytes = t->stored_bytes;
	return t->store;
}

/* ---- unpacking --------------------------------------------------------------------------- */

/* Where the pieces of a module are. */
struct place {
	const uint8_t *file;
	const struct dj_reader_chunks *chunks;
	uint8_t **bytes; /* where they go */
};

/* What a trace's own size, and that of its files in the store, make believable. */
static uint64_t believable(const struct dj_trace *t, uint64_t ratio)
{
	return ratio * (t->size + t->stored_bytes);
}

/*
 * Unpack a piece of a module into memory that is zero. Pages of zeros are left alone, so that they
 * take no memory; what is left must be in proportion to the file, or a small file could claim any
 * amount. -1: malformed, or more than that.
 */
static int load_piece(struct dj_trace *t, const struct place *p, uint64_t size,
		      const struct dj_reader_chunk *c)
{
	enum { PAGE = 4096 };
	static const uint8_t zeros[PAGE];
	uint8_t *raw = c->h.last <= size ? dj_reader_unpack(p->file, c) : NULL;
	int r = raw ? 0 : -1;

	for (uint32_t at = 0; at < c->h.raw_len && !r; at += PAGE) {
		size_t n = c->h.raw_len - at < PAGE ? c->h.raw_len - at : PAGE;

		if (!memcmp(raw + at, zeros, n))
			continue;
		t->unpacked += n;
		if (t->unpacked > UNPACKED_FREE && t->unpacked > believable(t, UNPACKED_RATIO))
			r = -1;
		else
			memcpy(*p->bytes + c->h.first + at, raw + at, n);
	}
	free(raw);
	return r;
}

/* Put a module together. Its pieces must follow each other without gap and amount to its
 * size before any memory is taken for it. */
static int put_together(struct dj_trace *t, struct dj_reader_module *m, const struct place *p,
			struct dj_error *err)
{
	uint64_t at = 0;

	for (size_t i = 0; i < p->chunks->n && p->chunks->v[i].h.first == at; i++)
		at = p->chunks->v[i].h.last;
	if (at != m->info.size)
		return dj_fail(err, 2, "%s: contents of module %s are lost", t->path, m->path);
	if (t->loaded + m->info.size > MODULES_FREE &&
	    t->loaded + m->info.size > believable(t, MODULES_RATIO))
		return dj_fail(err, 2, "%s: module %s is too large to be true", t->path, m->path);
	*p->bytes = calloc(1, m->info.size ? m->info.size : 1);
	if (!*p->bytes)
		return dj_fail(err, 1, "%s: no memory for module %s", t->path, m->path);
	for (size_t i = 0; i < p->chunks->n; i++)
		if (load_piece(t, p, m->info.size, &p->chunks->v[i])) {
			free(*p->bytes);
			*p->bytes = NULL;
			return dj_fail(err, 2, "%s: contents of module %s make no sense", t->path,
				       m->path);
		}
	t->loaded += m->info.size;
	return 0;
}

/* Whether bytes out of the store are what the file's name says. */
static bool has_its_name(const struct dj_reader_module *m, const uint8_t *bytes)
{
	struct dj_store_key key;

	dj_store_key(&key, bytes, m->info.size);
	return !memcmp(key.hash, m->key.hash, sizeof(key.hash));
}

static int wrong_checksum(const struct dj_trace *t, const struct dj_reader_module *m,
			  struct dj_error *err)
{
	return dj_fail(err, 2, "%s: contents of module %s do not have their checksum", t->path,
		       m->path);
}

static uint64_t module_seed(const struct dj_trace *t)
{
	return DJ_TRACE_MODULE_SEED(t->version, t->id);
}

/* Out of the trace. */
static int load_own(struct dj_trace *t, struct dj_reader_module *m, struct dj_error *err)
{
	struct place p = { t->bytes, &m->chunks, &m->bytes };

	if (put_together(t, m, &p, err))
		return -1;
	if (dj_chunk_sum(module_seed(t), m->bytes, m->info.size) == m->sum) {
		m->loaded = m->bytes;
		return 0;
	}
	free(m->bytes);
	m->bytes = NULL;
	return wrong_checksum(t, m, err);
}

/* Out of a file of the store: once, for all modules that have the same contents. */
static int load_stored(struct dj_trace *t, struct dj_reader_module *m, struct dj_error *err)
{
	struct dj_store_file *f = m->file ? &t->stored[m->file - 1] : NULL;
	struct place p = { f ? f->file : NULL, f ? &f->chunks : NULL, f ? &f->bytes : NULL };

	if (f && !f->bytes && !f->wrong) {
		if (put_together(t, m, &p, err))
			return -1;
		if (has_its_name(m, f->bytes)) {
			f->sum = dj_chunk_sum(module_seed(t), f->bytes, m->info.size);
		} else {
			free(f->bytes);
			f->bytes = NULL;
			f->wrong = true;
			missing(t, m, "has other contents than its name says");
		}
	}
	if (!f || f->wrong)
		return dj_fail(err, 2, "%s", t->missing);
	if (f->sum != m->sum)
		return wrong_checksum(t, m, err);
	m->loaded = f->bytes;
	return 0;
}

static int load_module(struct dj_trace *t, struct dj_reader_module *m, struct dj_error *err)
{
	if (!m->known)
		return dj_fail(err, 2, "%s: contents of module (unknown) are lost", t->path);
	return m->info.stored ? load_stored(t, m, err) : load_own(t, m, err);
}

const uint8_t *dj_trace_module_bytes(struct dj_trace *t, size_t i, size_t *size,
				     struct dj_error *err)
{
	struct dj_reader_module *m = i < t->nmodules ? &t->modules[i] : NULL;

	if (!m) {
		dj_fail(err, 2, "%s: there is no module %zu", t->path, i);
		return NULL;
	}
	if (!m->loaded && load_module(t, m, err))
		return NULL;
	*size = m->info.size;
	return m->loaded;
}

uint64_t dj_trace_unpacked(const struct dj_trace *t)
{
	return t->unpacked;
}
