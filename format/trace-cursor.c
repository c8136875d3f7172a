/*
 * Walking a thread's records (format/trace.h).
 *
 * A cursor walks two streams, the thread's and its process's, each with one chunk unpacked. The
 * thread's leads: where it says that facts of the process hold (CODE_FACTS), or shows by a number
 * that they must have come to pass (SEQ), these are served first, while the record that called for
 * them waits (`held`).
 *
 * A chunk decodes by itself, so a mark is, for either stream, the chunk's number, the places in its
 * two areas, and the state that coding differences needs. A record that waits is decoded again.
 */
#include "format/reader.h"
#include "format/record-code.h"

#include <stdlib.h>

/* So many records of kinds to come in a row make no sense. */
#define PASSED_MAX (1u << 24)

/* One of the two streams. */
struct side {
	struct dj_trace *t;
	const struct dj_reader_stream *stream; /* NULL: there is none */
	size_t chunk; /* number of the chunk in hand, or of chunks if at the end */
	bool loaded;  /* it is unpacked in `raw` */
	bool broken;  /* it is malformed from record `n` on */
	bool held;    /* `rec` is decoded and not yet served; it lies at `before` */
	uint8_t *raw;
	size_t raw_cap;
	const uint8_t *heads, *data, *end; /* areas in raw */
	struct dj_in head_in, data_in;
	struct dj_code_state state;
	uint64_t n; /* records of this chunk already decoded */
	struct {
		const uint8_t *head, *data;
		struct dj_code_state state;
	} before;
	struct dj_record rec;
};

struct dj_cursor {
	struct side own, facts;
	int32_t thread; /* index */
	/* facts by others that have a lower number are to be served at once; 0: none are */
	uint64_t late;
	struct dj_cursor_begin begin; /* functions NULL: nobody is asked */
};

/* ---- one stream ------------------------------------------------------------------------ */

static int malformed(struct side *s, struct dj_error *err)
{
	const struct dj_reader_chunk *chunk = &s->stream->chunks.v[s->chunk];

	s->broken = true;
	return dj_fail(err, 2, "%s: malformed records in the chunk at byte %llu, record %llu",
		       s->t->path, (unsigned long long)(chunk->at - CHUNK_HEADER_SIZE),
		       (unsigned long long)s->n);
}

/* Unpack the chunk in hand and stand before its first record. */
static int load(struct side *s, struct dj_error *err)
{
	const struct dj_reader_chunk *chunk = &s->stream->chunks.v[s->chunk];
	uint32_t heads_len;

	s->n = 0;
	if (chunk->h.raw_len > s->raw_cap) {
		uint8_t *grown = realloc(s->raw, chunk->h.raw_len);

		if (!grown)
			return dj_fail(err, 1, "out of memory");
		s->raw = grown;
		s->raw_cap = chunk->h.raw_len;
	}
	if (chunk->h.raw_len < 4 || dj_chunk_unpack(&chunk->h, s->t->bytes + chunk->at, s->raw))
		return malformed(s, err);
	heads_len = dj_get32(s->raw);
	if (heads_len > chunk->h.raw_len - 4 || heads_len > STREAM_HEADS_MAX)
		return malformed(s, err);
	s->heads = s->raw + 4;
	s->data = s->heads + heads_len;
	s->end = s->raw + chunk->h.raw_len;
	s->head_in = (struct dj_in){ s->heads, s->data, false };
	s->data_in = (struct dj_in){ s->data, s->end, false };
	if (!s->stream->process) {
		/* of records in a hostile trace, too, the positions never go back */
		if (chunk->h.arg && s->state.steps > chunk->h.first)
			return malformed(s, err);
		if (chunk->h.arg)
			s->state.steps = chunk->h.first;
	}
	s->state.addr = 0;
	s->loaded = true;
	return 0;
}

/* Whether the chunk's header says that it begins with a keyframe. There are no others, so that
 * whoever counts them by the headers has them all. */
static bool at_keyframe(const struct side *s)
{
	return !s->stream->process && (s->stream->chunks.v[s->chunk].h.flags & CHUNK_AT_KEYFRAME);
}

/* Decode the next record into `rec` and hold it. 0: there is none. */
static int decode(struct side *s, struct dj_error *err)
{
	const struct dj_reader_chunks *chunks = &s->stream->chunks;
	bool good;

	while (s->chunk < chunks->n && s->n == chunks->v[s->chunk].h.arg) {
		s->chunk++;
		s->n = 0;
		s->loaded = false;
	}
	if (s->chunk == chunks->n)
		return 0;
	if (s->broken)
		return malformed(s, err);
	if (!s->loaded && load(s, err)) {
		s->broken = true;
		return -1;
	}
	s->before.head = s->head_in.p;
	s->before.data = s->data_in.p;
	s->before.state = s->state;
	if (s->stream->process)
		good = dj_fact_decode(&s->rec, &s->head_in, &s->data_in);
	else
		good = dj_record_decode(&s->rec, &s->state, &s->head_in, &s->data_in) &&
		       s->rec.steps <= chunks->v[s->chunk].h.last;
	if (!good || dj_record_is_keyframe(&s->rec) != (s->n == 0 && at_keyframe(s)))
		return malformed(s, err);
	s->n++;
	s->held = true;
	return 1;
}

static void mark_side(const struct side *s, struct dj_mark_place *m)
{
	*m = (struct dj_mark_place){ .chunk = (uint32_t)s->chunk,
				     .n = (uint32_t)s->n,
				     .steps = s->state.steps };
	if (!s->loaded)
		return;
	if (s->held) {
		m->n--;
		m->steps = s->before.state.steps;
		m->addr = s->before.state.addr;
		m->head = (uint32_t)(s->before.head - s->heads);
		m->data = (uint32_t)(s->before.data - s->data);
	} else {
		m->addr = s->state.addr;
		m->head = (uint32_t)(s->head_in.p - s->heads);
		m->data = (uint32_t)(s->data_in.p - s->data);
	}
}

static int bad_mark(const struct side *s, struct dj_error *err)
{
	return dj_fail(err, 1, "%s: mark outside the trace", s->t->path);
}

static int restore_side(struct side *s, const struct dj_mark_place *m, struct dj_error *err)
{
	const struct dj_reader_chunks *chunks;

	if (!s->stream)
		return 0;
	chunks = &s->stream->chunks;
	if (m->chunk > chunks->n || (m->chunk < chunks->n && m->n > chunks->v[m->chunk].h.arg))
		return bad_mark(s, err);
	s->held = false;
	if (m->chunk != s->chunk || !s->loaded || s->broken) {
		s->chunk = m->chunk;
		s->broken = false;
		s->loaded = false;
		s->state = (struct dj_code_state){ 0 };
		if (m->chunk < chunks->n && m->n && load(s, err)) {
			s->broken = true;
			return -1;
		}
	}
	s->n = m->n;
	if (m->n == 0) { /* before a chunk: the next record unpacks it */
		s->loaded = false;
	} else if (s->loaded) {
		if (m->head > (size_t)(s->data - s->heads) || m->data > (size_t)(s->end - s->data))
			return bad_mark(s, err);
		s->head_in = (struct dj_in){ s->heads + m->head, s->data, false };
		s->data_in = (struct dj_in){ s->data + m->data, s->end, false };
	}
	s->state = (struct dj_code_state){ m->steps, m->addr };
	return 0;
}

/* ---- both ------------------------------------------------------------------------------- */

static struct dj_cursor *new_cursor(struct dj_trace *t, struct dj_error *err)
{
	struct dj_cursor *c = calloc(1, sizeof(*c));

	if (!c) {
		dj_fail(err, 1, "out of memory");
		return NULL;
	}
	c->own.t = c->facts.t = t;
	c->thread = -1;
	return c;
}

struct dj_cursor *dj_cursor_new(struct dj_trace *t, size_t i, struct dj_error *err)
{
	struct dj_cursor *c;

	if (i >= t->nthreads) {
		dj_fail(err, 2, "%s: there is no thread %zu", t->path, i);
		return NULL;
	}
	c = new_cursor(t, err);
	if (!c)
		return NULL;
	c->thread = (int32_t)i;
	c->own.stream = &t->streams[t->threads[i].stream];
	c->facts.stream = &t->streams[t->processes[t->threads[i].info.process].stream];
	return c;
}

struct dj_cursor *dj_cursor_new_own(struct dj_trace *t, size_t i, struct dj_error *err)
{
	struct dj_cursor *c = dj_cursor_new(t, i, err);

	if (c)
		c->facts.stream = NULL;
	return c;
}

struct dj_cursor *dj_cursor_new_facts(struct dj_trace *t, size_t i, struct dj_error *err)
{
	struct dj_cursor *c;

	if (i >= t->nprocesses) {
		dj_fail(err, 2, "%s: there is no process %zu", t->path, i);
		return NULL;
	}
	c = new_cursor(t, err);
	if (c)
		c->facts.stream = &t->streams[t->processes[i].stream];
	return c;
}

void dj_cursor_free(struct dj_cursor *c)
{
	if (!c)
		return;
	free(c->own.raw);
	free(c->facts.raw);
	free(c);
}

/* Index of the thread (or process) of a stream, or -1. */
static int32_t index_of(const struct dj_trace *t, int64_t number, bool process)
{
	const struct dj_reader_stream *s =
		number < 0 ? NULL : dj_reader_find_stream(t, (uint32_t)number);

	return s && s->process == process ? (int32_t)s->index : -1;
}

/* How many of the process's facts have been served. */
static uint64_t facts_served(const struct side *s)
{
	const struct dj_reader_chunks *chunks = &s->stream->chunks;

	if (s->chunk == chunks->n)
		return chunks->n ? chunks->v[chunks->n - 1].h.last : 0;
	return chunks->v[s->chunk].h.first + s->n - s->held;
}

/* Hold the process's next fact. 0: there is none. */
static int next_fact(struct dj_cursor *c, struct dj_error *err)
{
	struct dj_record *rec = &c->facts.rec;
	int r = 1;

	if (c->facts.held)
		return 1;
	for (unsigned passed = 0; passed < PASSED_MAX; passed++) {
		r = decode(&c->facts, err);
		if (r <= 0 || rec->kind < CODE_PASS)
			break;
	}
	if (r > 0 && rec->kind >= CODE_PASS)
		r = malformed(&c->facts, err);
	if (r <= 0)
		return r;
	rec->thread = index_of(c->own.t, rec->thread, false);
	if (rec->kind == DJ_REC_CHILD || rec->kind == DJ_REC_THREAD)
		rec->subject = index_of(c->own.t, rec->subject, rec->kind == DJ_REC_CHILD);
	/* a module that is not in the trace is as good as none */
	if (rec->kind == DJ_REC_MAP &&
	    (rec->module < 0 || (size_t)rec->module >= c->own.t->nmodules))
		rec->module = -1;
	return 1;
}

static const struct dj_record *serve_fact(struct dj_cursor *c, uint64_t steps)
{
	c->facts.held = false;
	c->facts.rec.steps = steps;
	return &c->facts.rec;
}

/* Whether the next fact is another thread's and has a lower number than `seq`. -1: malformed. */
static int fact_before(struct dj_cursor *c, uint64_t seq, struct dj_error *err)
{
	int r = next_fact(c, err);

	if (r <= 0)
		return r;
	return c->facts.rec.thread != c->thread && c->facts.rec.seq != DJ_SEQ_UNKNOWN &&
	       c->facts.rec.seq < seq;
}

static bool numbers(unsigned kind)
{
	return kind == DJ_REC_SEQ || kind == DJ_REC_ORDER;
}

void dj_cursor_on_begin(struct dj_cursor *c, const struct dj_cursor_begin *begin)
{
	c->begin = *begin;
}

/* So many facts are called for. */
static int first_facts(struct dj_cursor *c, uint64_t facts, struct dj_error *err)
{
	struct dj_mark_place at;
	bool known = c->begin.find && !facts_served(&c->facts) &&
		     c->begin.find(c->begin.arg, c->own.rec.steps, facts, &at);

	c->begin.find = NULL;
	if (known && restore_side(&c->facts, &at, err))
		return -1;
	if (facts_served(&c->facts) < facts || !c->begin.keep)
		return 0;
	mark_side(&c->facts, &at);
	c->begin.keep(c->begin.arg, facts_served(&c->facts), &at);
	c->begin.keep = NULL;
	return 0;
}

/* A record is held that the user does not see, or that facts may come before. The next to serve;
 * NULL if it was passed over, with *end if nothing more is to come. */
static const struct dj_record *special(struct dj_cursor *c, bool *end, struct dj_error *err)
{
	const struct dj_record *rec = &c->own.rec;
	int r = 0;

	if (!c->facts.stream) { /* nobody wants them */
		c->own.held = false;
		return numbers(rec->kind) ? rec : NULL;
	}
	switch ((unsigned)rec->kind) {
	case CODE_FACTS:
		r = first_facts(c, rec->length, err);
		if (r < 0 || facts_served(&c->facts) >= rec->length)
			break;
		r = next_fact(c, err);
		if (r > 0 && facts_served(&c->facts) < rec->length)
			return serve_fact(c, rec->steps);
		if (!r && facts_served(&c->facts) < rec->length) { /* a fact that is not there */
			c->own.n--;
			malformed(&c->own, err);
			r = -1;
		}
		break;
	case DJ_REC_SEQ:
	case DJ_REC_ORDER:
		r = fact_before(c, rec->seq, err);
		if (r > 0)
			return serve_fact(c, rec->steps);
		if (r < 0)
			break;
		c->own.held = false;
		return rec;
	default: /* a kind to come */
		break;
	}
	*end = r < 0;
	c->own.held = *end;
	return NULL;
}

/* After a jump: what others had done before. */
static const struct dj_record *late_fact(struct dj_cursor *c, bool *end, struct dj_error *err)
{
	const struct side *own = &c->own;
	int r = fact_before(c, c->late, err);

	if (r > 0)
		return serve_fact(c, own->n || own->chunk == own->stream->chunks.n
					     ? own->state.steps
					     : own->stream->chunks.v[own->chunk].h.first);
	c->late = 0;
	*end = r < 0;
	return NULL;
}

const struct dj_record *dj_cursor_next(struct dj_cursor *c, struct dj_error *err)
{
	const struct dj_record *rec;
	bool end = false;

	if (err)
		*err = (struct dj_error){ 0 };
	if (!c->own.stream) /* facts alone */
		return next_fact(c, err) > 0 ? serve_fact(c, c->facts.rec.steps) : NULL;
	if (c->late && ((rec = late_fact(c, &end, err)) || end))
		return rec;
	for (unsigned passed = 0;; passed++) {
		if (passed == PASSED_MAX)
			malformed(&c->own, err);
		if (passed == PASSED_MAX || (!c->own.held && decode(&c->own, err) <= 0))
			return NULL;
		unsigned kind = c->own.rec.kind;
		if (kind < DJ_REC_KINDS && !numbers(kind) && kind != CODE_FACTS) {
			c->own.held = false;
			return &c->own.rec;
		}
		if ((rec = special(c, &end, err)) || end)
			return rec;
	}
}

void dj_cursor_mark(const struct dj_cursor *c, struct dj_mark *m)
{
	if (c->own.stream)
		mark_side(&c->own, &m->own);
	else
		m->own = (struct dj_mark_place){ 0 };
	mark_side(&c->facts, &m->facts);
	m->late = c->late;
}

int dj_cursor_restore(struct dj_cursor *c, const struct dj_mark *m, struct dj_error *err)
{
	if (restore_side(&c->own, &m->own, err) || restore_side(&c->facts, &m->facts, err))
		return -1;
	c->late = m->late;
	return 0;
}

/* ---- finding a position ------------------------------------------------------------------- */

/* Stand before a chunk of the thread's stream, with the facts served that hold there. */
static int seek_chunk(struct dj_cursor *c, size_t chunk, struct dj_error *err)
{
	const struct dj_reader_chunks *own = &c->own.stream->chunks;
	const struct dj_reader_chunks *facts = &c->facts.stream->chunks;
	uint64_t served = chunk ? own->v[chunk - 1].h.facts : 0;
	struct dj_mark m = { .own.chunk = (uint32_t)chunk };
	size_t lo = 0, hi = facts->n;

	if (chunk < own->n && own->v[chunk].h.first_seq != DJ_SEQ_UNKNOWN)
		m.late = own->v[chunk].h.first_seq;
	while (lo < hi) { /* the chunk of the first fact that has not been served */
		size_t mid = lo + (hi - lo) / 2;

		if (facts->v[mid].h.last <= served)
			lo = mid + 1;
		else
			hi = mid;
	}
	m.facts.chunk = (uint32_t)lo;
	if (dj_cursor_restore(c, &m, err))
		return -1;
	while (facts_served(&c->facts) < served) {
		if (decode(&c->facts, err) < 0)
			return -1;
		c->facts.held = false;
	}
	return 0;
}

int dj_cursor_seek_steps(struct dj_cursor *c, uint64_t steps, struct dj_error *err)
{
	const struct dj_reader_chunks *own = &c->own.stream->chunks;
	size_t lo = 0, hi = own->n;

	while (lo < hi) { /* the first that reaches as far */
		size_t mid = lo + (hi - lo) / 2;

		if (own->v[mid].h.last < steps)
			lo = mid + 1;
		else
			hi = mid;
	}
	return seek_chunk(c, lo, err);
}

int dj_cursor_seek_seq(struct dj_cursor *c, uint64_t seq, struct dj_error *err)
{
	const struct dj_reader_chunks *own = &c->own.stream->chunks;
	size_t i = own->n;

	while (i > 0) { /* the last that begins early enough */
		uint64_t first = own->v[--i].h.first_seq;

		if (first != DJ_SEQ_UNKNOWN && first < seq)
			break;
	}
	return seek_chunk(c, i, err);
}

int dj_cursor_seek_keyframe(struct dj_cursor *c, size_t i, struct dj_error *err)
{
	const struct dj_reader_stream *own = c->own.stream;
	struct dj_mark m = { 0 };

	if (i >= own->nkeyframes)
		return dj_fail(err, 1, "%s: there is no keyframe %zu", c->own.t->path, i);
	m.own.chunk = (uint32_t)own->keyframes[i];
	return dj_cursor_restore(c, &m, err);
}
