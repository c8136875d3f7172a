/*
 * The trace writer's streams: records gather in memory, coded, until they make a chunk.
 */
#include "format/writer.h"

#include <stdlib.h>

/* The block starts with the length of the heads; on packing, the heads are moved up against
 * the data, which is less to move. */
#define HEADS_LEN_SIZE 4

static uint8_t *heads_start(const struct dj_writer_stream *s)
{
	return s->block + HEADS_LEN_SIZE;
}

static uint8_t *data_start(const struct dj_writer_stream *s)
{
	return s->block + HEADS_LEN_SIZE + WRITER_HEADS;
}

static void start_chunk(struct dj_writer_stream *s)
{
	s->head = heads_start(s);
	s->data = data_start(s);
	s->records = 0;
	s->first = s->reach;
}

int dj_writer_flush_stream(struct dj_writer *w, struct dj_writer_stream *s, struct dj_error *err)
{
	struct dj_chunk_header h = { .type = CHUNK_STREAM,
				     .stream = s->number,
				     .seq = s->seq,
				     .first = s->first,
				     .last = s->reach,
				     .arg = s->records };
	size_t heads_len = (size_t)(s->head - heads_start(s));
	uint8_t *heads = data_start(s) - heads_len;

	if (!s->records && s->reach == s->first)
		return 0;
	memmove(heads, heads_start(s), heads_len);
	dj_put32(heads - HEADS_LEN_SIZE, (uint32_t)heads_len);
	heads -= HEADS_LEN_SIZE;
	if (dj_writer_chunk(w, &h, heads, (size_t)(s->data - heads), err)) {
		start_chunk(s);
		return -1;
	}
	s->seq++;
	start_chunk(s);
	return 0;
}

/* The stream of a thread: the newest if the number was used again. */
static struct dj_writer_stream *find_stream(struct dj_writer *w, int32_t tid)
{
	if (w->nstreams && w->streams[w->last_stream].tid == tid)
		return &w->streams[w->last_stream];
	for (size_t i = w->nstreams; i-- > 0;) {
		if (w->streams[i].tid == tid) {
			w->last_stream = i;
			return &w->streams[i];
		}
	}
	dj_broken(__FILE__, __LINE__, "record for thread %d, which has no stream", tid);
}

int dj_writer_thread(struct dj_writer *w, int32_t tid, const char *name, struct dj_error *err)
{
	struct dj_chunk_header h = { .type = CHUNK_THREAD, .stream = (uint32_t)w->nstreams };
	uint8_t payload[4 + 256];
	size_t len = strnlen(name ? name : "", sizeof(payload) - 4);
	struct dj_writer_stream *s;

	for (size_t i = 0; i < w->nstreams; i++)
		if (w->streams[i].tid == tid && dj_writer_flush_stream(w, &w->streams[i], err))
			return -1;
	if (dj_writer_grow(w, (void **)&w->streams, w->nstreams, sizeof(*s), err))
		return -1;
	dj_put32(payload, (uint32_t)tid);
	memcpy(payload + 4, name ? name : "", len);
	if (dj_writer_chunk(w, &h, payload, 4 + len, err))
		return -1;
	s = &w->streams[w->nstreams];
	*s = (struct dj_writer_stream){ .tid = tid, .number = h.stream, .seq = 1 };
	s->block = malloc(HEADS_LEN_SIZE + WRITER_HEADS + WRITER_DATA);
	if (!s->block)
		return dj_fail(err, 1, "out of memory");
	start_chunk(s);
	w->last_stream = w->nstreams++;
	return 0;
}

/* Before a record at `steps`: order is as promised and there is room. */
static int prepare(struct dj_writer *w, struct dj_writer_stream *s, uint64_t steps,
		   struct dj_error *err)
{
	DJ_ASSERT(steps >= s->code.steps, "thread %d: record at %llu after one at %llu", s->tid,
		  (unsigned long long)steps, (unsigned long long)s->code.steps);
	if ((size_t)(data_start(s) - s->head) < CODE_HEAD_MAX ||
	    (size_t)(s->block + HEADS_LEN_SIZE + WRITER_HEADS + WRITER_DATA - s->data) <
		    CODE_DATA_MAX) {
		if (dj_writer_flush_stream(w, s, err))
			return -1;
	}
	if (!s->records) { /* a chunk decodes by itself: differences start afresh */
		s->first = steps;
		s->code.steps = steps;
		s->code.addr = 0;
	}
	return w->failed.exit_status ? dj_writer_failed(w, err) : 0;
}

static void reached(struct dj_writer_stream *s, uint64_t steps)
{
	if (steps > s->reach)
		s->reach = steps;
}

int dj_writer_import(struct dj_writer *w, int32_t tid, uint64_t steps, uint64_t rep,
		     unsigned ordinal, uint64_t addr, const uint8_t *line, struct dj_error *err)
{
	struct dj_writer_stream *s = find_stream(w, tid);

	DJ_ASSERT(addr % DJ_LINE == 0, "import of %#llx", (unsigned long long)addr);
	if (prepare(w, s, steps, err))
		return -1;
	s->head = dj_record_code_start(s->head, &s->code, DJ_REC_IMPORT, steps, rep, ordinal);
	s->head = dj_record_code_line(s->head, &s->code, addr);
	memcpy(s->data, line, DJ_LINE);
	s->data += DJ_LINE;
	s->records++;
	reached(s, steps);
	return 0;
}

int dj_writer_record(struct dj_writer *w, int32_t tid, const struct dj_record *rec,
		     struct dj_error *err)
{
	struct dj_writer_stream *s = find_stream(w, tid);

	DJ_ASSERT(rec->kind > 0 && rec->kind < DJ_REC_KINDS, "record kind %d", rec->kind);
	DJ_ASSERT(rec->kind != DJ_REC_IMPORT || rec->addr % DJ_LINE == 0, "import of %#llx",
		  (unsigned long long)rec->addr);
	DJ_ASSERT((rec->kind != DJ_REC_CODE && rec->kind != DJ_REC_SIGNAL) ||
			  rec->length <= DJ_CODE_MAX,
		  "record with %llu bytes", (unsigned long long)rec->length);
	if (prepare(w, s, rec->steps, err))
		return -1;
	dj_record_code(rec, &s->code, &s->head, &s->data);
	s->records++;
	/* these two are steps themselves */
	reached(s, rec->steps + (rec->kind == DJ_REC_EFFECTS || rec->kind == DJ_REC_SYSCALL));
	/* from here on the memory of the old image is no longer the start memory, even if
	 * none of the new one's comes to be written */
	if (rec->kind == DJ_REC_EXEC)
		return dj_writer_snapshot(w, rec->steps, 0, NULL, 0, err);
	return 0;
}

int dj_writer_flush(struct dj_writer *w, int32_t tid, uint64_t steps, struct dj_error *err)
{
	struct dj_writer_stream *s = find_stream(w, tid);

	reached(s, steps);
	return dj_writer_flush_stream(w, s, err);
}
