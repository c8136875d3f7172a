/*
 * When a thread was where: pairs of a moment and a number of instructions, in chunks that nothing
 * depends on. A replay is the same without them.
 */
#include "format/reader.h"
#include "format/writer.h"

#include <stdlib.h>

/* ---- writing ------------------------------------------------------------------------------- */

/* Two varints. */
#define PAIR_MAX 20

int dj_stream_write_times(struct dj_stream *s, struct dj_error *err)
{
	struct dj_chunk_header h = { .type = CHUNK_TIMES,
				     .stream = s->number,
				     .number = s->times.chunks,
				     .first = s->times.first.steps,
				     .last = s->times.latest.steps,
				     .arg = s->times.first.us };
	int r = 0;

	if (s->times.len) {
		r = dj_writer_chunk(s->w, &h, s->times.bytes, s->times.len, err);
		s->times.chunks++;
		s->times.len = 0;
	}
	return r;
}

int dj_stream_time(struct dj_stream *s, const struct dj_time *time, struct dj_error *err)
{
	struct dj_time *latest = &s->times.latest;
	uint8_t *p;

	DJ_ASSERT(s->process && s->block, "a time for stream %u", s->number);
	DJ_ASSERT(time->us >= latest->us && time->steps >= latest->steps,
		  "thread %d: at %llu after %llu us, after %llu after %llu us", s->id,
		  (unsigned long long)time->steps, (unsigned long long)time->us,
		  (unsigned long long)latest->steps, (unsigned long long)latest->us);
	if (s->times.len > TIMES_RAW_MAX - PAIR_MAX && dj_stream_write_times(s, err))
		return -1;
	if (!s->times.bytes && !(s->times.bytes = malloc(TIMES_RAW_MAX)))
		return dj_writer_no_memory(s->w, err);
	if (!s->times.len) /* a chunk decodes by itself */
		s->times.first = *latest = *time;
	p = s->times.bytes + s->times.len;
	p = dj_put_varint(p, time->us - latest->us);
	p = dj_put_varint(p, time->steps - latest->steps);
	s->times.len = (size_t)(p - s->times.bytes);
	*latest = *time;
	return 0;
}

/* ---- reading ------------------------------------------------------------------------------- */

int dj_reader_take_times(struct dj_trace *t, const struct dj_reader_chunk *c, const uint8_t *raw)
{
	struct dj_reader_stream *s = dj_reader_find_stream(t, c->h.stream);

	(void)raw;
	if (!s || s->process || c->h.raw_len > TIMES_RAW_MAX)
		return -1;
	return dj_reader_add(&s->times, c);
}

/* Where there would be more, every other one goes. */
static size_t thin(struct dj_time *time, size_t n)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i += 2)
		time[kept++] = time[i];
	return kept;
}

struct gathered {
	struct dj_time *v;
	size_t n;
	uint64_t last_steps;
};

static int add_chunk(struct gathered *g, const struct dj_reader_chunk *c, const uint8_t *raw)
{
	struct dj_in in = { raw, raw + c->h.raw_len, false };
	struct dj_time now = { c->h.arg, c->h.first };

	while (in.p < in.end) {
		const struct dj_time *before = g->n ? &g->v[g->n - 1] : NULL;
		uint64_t us = dj_in_varint(&in), steps = dj_in_varint(&in);
		struct dj_time *v;

		/* neither goes back, and what is beyond the history says nothing */
		if (in.bad || us > TIMES_US_MAX - now.us || now.us > TIMES_US_MAX ||
		    steps > STEPS_MAX || now.steps > STEPS_MAX)
			return 0;
		now.us += us;
		now.steps += steps;
		if (before && (now.us < before->us || now.steps < before->steps))
			return 0;
		if (now.steps > g->last_steps)
			return 0;
		if (g->n == DJ_TIMES_MAX)
			g->n = thin(g->v, g->n);
		v = dj_reader_grow(g->v, g->n, sizeof(*v));
		if (!v)
			return -1;
		g->v = v;
		g->v[g->n++] = now;
	}
	return 0;
}

int dj_trace_times(const struct dj_trace *t, size_t thread, struct dj_time **times, size_t *n,
		   struct dj_error *err)
{
	struct gathered g = { 0 };
	const struct dj_reader_chunks *chunks;
	int r = 0;

	*times = NULL;
	*n = 0;
	if (thread >= t->nthreads)
		return 0;
	chunks = &t->streams[t->threads[thread].stream].times;
	g.last_steps = t->threads[thread].info.last_steps;
	for (size_t i = 0; i < chunks->n && !r; i++) {
		uint8_t *raw = dj_reader_unpack(t->bytes, &chunks->v[i]);

		if (raw)
			r = add_chunk(&g, &chunks->v[i], raw);
		free(raw);
	}
	if (r) {
		free(g.v);
		return dj_fail(err, 1, "%s: out of memory", t->path);
	}
	*times = g.v;
	*n = g.n;
	return 0;
}
