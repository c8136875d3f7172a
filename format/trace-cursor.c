/*
 * Walking a thread's records (format/trace.h).
 *
 * A cursor has one chunk unpacked. A chunk decodes by itself, so a mark is the chunk's
 * number, the places in its two areas, and the state that coding differences needs.
 */
#include "format/reader.h"
#include "format/record-code.h"

#include <stdlib.h>

struct dj_cursor {
	struct dj_trace *t;
	size_t thread;
	size_t chunk; /* number of the chunk in hand, or of chunks if at the end */
	bool loaded;  /* it is unpacked in `raw` */
	bool broken;  /* it is malformed from record `n` on */
	uint8_t *raw;
	size_t raw_cap;
	const uint8_t *heads, *data, *end; /* areas in raw */
	struct dj_in head_in, data_in;
	struct dj_code_state state;
	uint64_t n; /* records of this chunk already returned */
	struct dj_record rec;
};

static const struct dj_reader_thread *thread_of(const struct dj_cursor *c)
{
	return &c->t->threads[c->thread];
}

struct dj_cursor *dj_cursor_new(struct dj_trace *t, size_t i, struct dj_error *err)
{
	struct dj_cursor *c;

	if (i >= t->nthreads) {
		dj_fail(err, 2, "%s: there is no thread %zu", t->path, i);
		return NULL;
	}
	c = calloc(1, sizeof(*c));
	if (!c) {
		dj_fail(err, 1, "out of memory");
		return NULL;
	}
	c->t = t;
	c->thread = i;
	return c;
}

void dj_cursor_free(struct dj_cursor *c)
{
	if (!c)
		return;
	free(c->raw);
	free(c);
}

static int malformed(struct dj_cursor *c, struct dj_error *err)
{
	const struct dj_reader_chunk *chunk = &thread_of(c)->chunks.v[c->chunk];

	return dj_fail(err, 2, "%s: malformed records in the chunk at byte %llu, record %llu",
		       c->t->path, (unsigned long long)(chunk->at - CHUNK_HEADER_SIZE),
		       (unsigned long long)c->n);
}

/* Unpack the chunk in hand and stand before its first record. */
static int load(struct dj_cursor *c, struct dj_error *err)
{
	const struct dj_reader_chunk *chunk = &thread_of(c)->chunks.v[c->chunk];
	uint32_t heads_len;

	c->n = 0;
	if (chunk->h.raw_len > c->raw_cap) {
		uint8_t *grown = realloc(c->raw, chunk->h.raw_len);

		if (!grown)
			return dj_fail(err, 1, "out of memory");
		c->raw = grown;
		c->raw_cap = chunk->h.raw_len;
	}
	if (chunk->h.raw_len < 4 || dj_chunk_unpack(&chunk->h, c->t->bytes + chunk->at, c->raw))
		return malformed(c, err);
	heads_len = dj_get32(c->raw);
	if (heads_len > chunk->h.raw_len - 4)
		return malformed(c, err);
	c->heads = c->raw + 4;
	c->data = c->heads + heads_len;
	c->end = c->raw + chunk->h.raw_len;
	c->head_in = (struct dj_in){ c->heads, c->data, false };
	c->data_in = (struct dj_in){ c->data, c->end, false };
	/* of records in a hostile trace, too, the positions never go back */
	if (chunk->h.arg && c->state.steps > chunk->h.first)
		return malformed(c, err);
	if (chunk->h.arg)
		c->state.steps = chunk->h.first;
	c->state.addr = 0;
	c->loaded = true;
	return 0;
}

const struct dj_record *dj_cursor_next(struct dj_cursor *c, struct dj_error *err)
{
	const struct dj_reader_chunks *chunks = &thread_of(c)->chunks;

	if (err)
		*err = (struct dj_error){ 0 };
	while (c->chunk < chunks->n && c->n == chunks->v[c->chunk].h.arg) {
		c->chunk++;
		c->n = 0;
		c->loaded = false;
	}
	if (c->chunk == chunks->n)
		return NULL;
	if (!c->broken && !c->loaded && load(c, err)) {
		c->broken = true;
		return NULL;
	}
	if (c->broken || !dj_record_decode(&c->rec, &c->state, &c->head_in, &c->data_in) ||
	    c->rec.steps > chunks->v[c->chunk].h.last) {
		c->broken = true;
		malformed(c, err);
		return NULL;
	}
	/* a module that is not in the trace is as good as none */
	if (c->rec.kind == DJ_REC_MAP &&
	    (c->rec.module < 0 || (size_t)c->rec.module >= c->t->nmodules))
		c->rec.module = -1;
	c->n++;
	return &c->rec;
}

void dj_cursor_mark(const struct dj_cursor *c, struct dj_mark *m)
{
	*m = (struct dj_mark){ .chunk = c->chunk, .steps = c->state.steps, .n = c->n };
	if (c->loaded) {
		m->addr = c->state.addr;
		m->offset = (uint64_t)(c->head_in.p - c->heads) | (uint64_t)(c->data_in.p - c->data)
									  << 32;
	}
}

int dj_cursor_restore(struct dj_cursor *c, const struct dj_mark *m, struct dj_error *err)
{
	const struct dj_reader_chunks *chunks = &thread_of(c)->chunks;
	uint64_t head_at = (uint32_t)m->offset, data_at = m->offset >> 32;

	if (m->chunk > chunks->n || (m->chunk < chunks->n && m->n > chunks->v[m->chunk].h.arg))
		return dj_fail(err, 1, "%s: mark outside the trace", c->t->path);
	if (m->chunk != c->chunk || !c->loaded || c->broken) {
		c->chunk = m->chunk;
		c->broken = false;
		c->loaded = false;
		c->state = (struct dj_code_state){ 0 };
		if (m->chunk < chunks->n && m->n && load(c, err))
			return -1;
	}
	c->n = m->n;
	if (m->n == 0) { /* before a chunk: the next record unpacks it */
		c->loaded = false;
	} else {
		if (head_at > (size_t)(c->data - c->heads) || data_at > (size_t)(c->end - c->data))
			return dj_fail(err, 1, "%s: mark outside the trace", c->t->path);
		c->head_in = (struct dj_in){ c->heads + head_at, c->data, false };
		c->data_in = (struct dj_in){ c->data + data_at, c->end, false };
	}
	c->state = (struct dj_code_state){ m->steps, m->addr };
	return 0;
}
