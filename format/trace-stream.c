/*
 * The trace writer's streams: records gather in memory, coded, until they make a chunk.
 *
 * A fact of an address space goes into the stream of the process, and the thread that caused it
 * notes in its own stream (CODE_FACTS) how many of the process's facts hold from there on. So a
 * reader can put both in order again to the record, whatever else has its place at the same
 * position. A thread's chunk is written after the facts that it needs: what is in the file is
 * always complete up to some position.
 */
#include "format/writer.h"

#include <stdlib.h>

/* The block starts with the length of the heads; on packing, the heads are moved up against
 * the data, which is less to move. */
#define HEADS_LEN_SIZE 4

static uint8_t *heads_start(const struct dj_stream *s)
{
	return s->block + HEADS_LEN_SIZE;
}

static uint8_t *data_start(const struct dj_stream *s)
{
	return s->block + HEADS_LEN_SIZE + WRITER_HEADS;
}

static void start_chunk(struct dj_stream *s)
{
	s->head = heads_start(s);
	s->data = data_start(s);
	s->records = 0;
	s->flags = 0;
	s->first = s->process ? s->reach : s->facts;
	s->first_seq = s->process ? s->last_seq : DJ_SEQ_UNKNOWN;
	s->last_seq = DJ_SEQ_UNKNOWN;
}

static int level(const struct dj_stream *s)
{
	if (!s->hurry)
		return WRITER_LEVEL;
	return s->haste ? WRITER_HASTE : WRITER_HURRY;
}

/* What packing the last chunk took away says how the next ones are packed. */
static void learn(struct dj_stream *s, const struct dj_chunk_header *h)
{
	bool little = h->raw_len - h->len < h->raw_len / 5 * 2;

	if (s->haste)
		s->haste = little ? s->haste - 1 : 0;
	else if (s->hurry && little)
		s->haste = WRITER_TRY_AGAIN;
}

/* The chunk that gathers: write it. */
static int write_chunk(struct dj_stream *s, struct dj_error *err)
{
	struct dj_chunk_header h = { .type = CHUNK_STREAM,
				     .flags = s->flags,
				     .stream = s->number,
				     .number = s->chunks,
				     .first = s->first,
				     .last = s->process ? s->reach : s->facts,
				     .first_seq = s->first_seq,
				     .last_seq = s->last_seq,
				     .arg = s->records,
				     .facts = s->process ? s->facts : 0 };
	size_t heads_len = (size_t)(s->head - heads_start(s));
	uint8_t *heads = data_start(s) - heads_len;
	int r;

	memmove(heads, heads_start(s), heads_len);
	dj_put32(heads - HEADS_LEN_SIZE, (uint32_t)heads_len);
	heads -= HEADS_LEN_SIZE;
	r = dj_writer_chunk_at(s->w, &h, heads, (size_t)(s->data - heads), level(s), err);
	learn(s, &h);
	s->chunks++;
	start_chunk(s);
	return r;
}

/* Write what a process's facts have gathered. */
static int flush_facts(struct dj_stream *process, struct dj_error *err)
{
	int r = 0;

	pthread_mutex_lock(&process->lock);
	if (process->records)
		r = write_chunk(process, err);
	pthread_mutex_unlock(&process->lock);
	return r;
}

static int flush(struct dj_stream *s, struct dj_error *err)
{
	if (!s->process)
		return flush_facts(s, err);
	if (!s->records && s->reach == s->first) {
		if (s->last_seq != DJ_SEQ_UNKNOWN)
			start_chunk(s);
		return 0;
	}
	return flush_facts(s->process, err) ? -1 : write_chunk(s, err);
}

/* ---- life ------------------------------------------------------------------------------ */

void dj_stream_free(struct dj_stream *s)
{
	if (!s->process) {
		dj_snapshot_wait(s);
		pthread_mutex_destroy(&s->lock);
		pthread_mutex_destroy(&s->snapshot);
		pthread_cond_destroy(&s->no_later);
	}
	free(s->times.bytes);
	free(s->block);
	free(s);
}

void dj_stream_hurry(struct dj_stream *s, bool hurry)
{
	s->hurry = hurry;
}

int dj_stream_finish(struct dj_stream *s, struct dj_error *err)
{
	int r = s->block ? flush(s, err) : 0;

	if (dj_stream_write_times(s, err))
		r = -1;
	free(s->times.bytes);
	free(s->block);
	s->times.bytes = s->block = NULL;
	return r;
}

/* Number the stream, write its description and put it on the list, first. */
static struct dj_stream *begin(struct dj_writer *w, struct dj_stream *s, unsigned type,
			       const uint8_t *payload, size_t len, struct dj_error *err)
{
	struct dj_chunk_header h = { .type = (uint8_t)type };
	int r;

	s->w = w;
	s->chunks = 1;
	s->last_seq = DJ_SEQ_UNKNOWN;
	s->block = malloc(HEADS_LEN_SIZE + WRITER_HEADS + WRITER_DATA);
	pthread_mutex_lock(&w->facts);
	h.stream = s->number = w->nstreams;
	r = s->block ? dj_writer_chunk(w, &h, payload, len, err) : dj_writer_no_memory(w, err);
	if (!r) {
		w->nstreams++;
		s->next = w->streams;
		w->streams = s;
	}
	pthread_mutex_unlock(&w->facts);
	if (r) {
		dj_stream_free(s);
		return NULL;
	}
	start_chunk(s);
	return s;
}

struct dj_stream *dj_writer_process(struct dj_writer *w, int32_t pid, struct dj_stream *parent,
				    struct dj_error *err)
{
	struct dj_stream *s = calloc(1, sizeof(*s));
	uint8_t payload[8];

	if (!s) {
		dj_writer_no_memory(w, err);
		return NULL;
	}
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->snapshot, NULL);
	pthread_cond_init(&s->no_later, NULL);
	s->id = pid;
	dj_put32(payload, (uint32_t)pid);
	dj_put32(payload + 4, parent ? parent->number : NO_STREAM);
	return begin(w, s, CHUNK_PROCESS, payload, sizeof(payload), err);
}

struct dj_stream *dj_writer_thread(struct dj_writer *w, struct dj_stream *process, int32_t tid,
				   const char *name, struct dj_error *err)
{
	struct dj_stream *s = calloc(1, sizeof(*s));
	uint8_t payload[8 + THREAD_NAME_MAX];
	size_t len = strnlen(name ? name : "", sizeof(payload) - 8);

	if (!s) {
		dj_writer_no_memory(w, err);
		return NULL;
	}
	DJ_ASSERT(!process->process, "thread %d of a thread", tid);
	s->process = process;
	s->id = tid;
	dj_put32(payload, process->number);
	dj_put32(payload + 4, (uint32_t)tid);
	memcpy(payload + 8, name ? name : "", len);
	return begin(w, s, CHUNK_THREAD, payload, 8 + len, err);
}

uint32_t dj_stream_number(const struct dj_stream *s)
{
	return s->number;
}

/* ---- records --------------------------------------------------------------------------- */

/* Before a record: there is room for it. */
static int make_room(struct dj_stream *s, struct dj_error *err)
{
	DJ_ASSERT(s->block, "record for stream %u, which is closed", s->number);
	if ((size_t)(data_start(s) - s->head) >= CODE_HEAD_MAX &&
	    (size_t)(s->block + HEADS_LEN_SIZE + WRITER_HEADS + WRITER_DATA - s->data) >=
		    CODE_DATA_MAX)
		return 0;
	/* a process's lock is held already */
	return s->process ? flush(s, err) : write_chunk(s, err);
}

/* Before a record of a thread at `steps`: order is as promised and there is room. */
static int prepare(struct dj_stream *s, uint64_t steps, struct dj_error *err)
{
	DJ_ASSERT(s->process, "record for process %d", s->id);
	DJ_ASSERT(steps >= s->code.steps, "thread %d: record at %llu after one at %llu", s->id,
		  (unsigned long long)steps, (unsigned long long)s->code.steps);
	if (make_room(s, err))
		return -1;
	if (!s->records) { /* a chunk decodes by itself: differences start afresh */
		s->first = steps;
		s->code.steps = steps;
		s->code.addr = 0;
	}
	return 0;
}

static void reached(struct dj_stream *s, uint64_t steps)
{
	if (steps > s->reach)
		s->reach = steps;
}

int dj_stream_import(struct dj_stream *s, uint64_t steps, uint64_t rep, unsigned ordinal,
		     uint64_t addr, const uint8_t *line, struct dj_error *err)
{
	DJ_ASSERT(addr % DJ_LINE == 0, "import of %#llx", (unsigned long long)addr);
	if (prepare(s, steps, err))
		return -1;
	s->head = dj_record_code_start(s->head, &s->code, DJ_REC_IMPORT, steps, rep, ordinal);
	s->head = dj_record_code_line(s->head, &s->code, addr);
	memcpy(s->data, line, DJ_LINE);
	s->data += DJ_LINE;
	s->records++;
	reached(s, steps);
	return 0;
}

/* Of a chunk of facts: the numbers in it. */
static void widen(struct dj_stream *process, uint64_t seq)
{
	if (seq == DJ_SEQ_UNKNOWN)
		return;
	if (process->first_seq == DJ_SEQ_UNKNOWN || seq < process->first_seq)
		process->first_seq = seq;
	if (process->last_seq == DJ_SEQ_UNKNOWN || seq > process->last_seq)
		process->last_seq = seq;
}

int dj_stream_fact(struct dj_stream *by, const struct dj_record *rec, uint64_t *number,
		   struct dj_error *err)
{
	struct dj_stream *process = by->process;
	int r;

	DJ_ASSERT(process && dj_record_is_fact(rec->kind), "fact of kind %d by stream %u",
		  rec->kind, by->number);
	pthread_mutex_lock(&process->lock);
	r = make_room(process, err);
	if (!r) {
		dj_fact_code(rec, by->number, &process->head, &process->data);
		process->records++;
		widen(process, rec->seq);
		*number = ++process->facts;
	}
	pthread_mutex_unlock(&process->lock);
	return r;
}

int dj_stream_facts(struct dj_stream *s, uint64_t steps, uint64_t number, struct dj_error *err)
{
	if (prepare(s, steps, err))
		return -1;
	s->head = dj_record_code_facts(s->head, &s->code, steps, number);
	if (number > s->facts)
		s->facts = number;
	s->records++;
	reached(s, steps);
	return 0;
}

/* A history can begin with a keyframe: it is the first of its chunk, behind it stands how many
 * facts hold, and the chunk before says where the thread stands here. */
static int begin_at_keyframe(struct dj_stream *s, const struct dj_record *rec, struct dj_error *err)
{
	reached(s, rec->steps);
	if (s->reach == rec->steps)
		s->last_seq = rec->seq;
	if (flush(s, err))
		return -1;
	s->flags = CHUNK_AT_KEYFRAME;
	return 0;
}

int dj_stream_record(struct dj_stream *s, const struct dj_record *rec, struct dj_error *err)
{
	bool keyframe = dj_record_is_keyframe(rec);
	uint64_t number;

	DJ_ASSERT(*dj_record_kind_name(rec->kind) != '?', "record kind %d", rec->kind);
	DJ_ASSERT(rec->kind != DJ_REC_IMPORT || rec->addr % DJ_LINE == 0, "import of %#llx",
		  (unsigned long long)rec->addr);
	DJ_ASSERT(!dj_record_has_bytes(rec->kind) || rec->length <= DJ_CODE_MAX,
		  "record with %llu bytes", (unsigned long long)rec->length);
	if (dj_record_is_fact(rec->kind))
		return dj_stream_fact(s, rec, &number, err) ||
				       dj_stream_facts(s, rec->steps, number, err)
			       ? -1
			       : 0;
	if (keyframe && begin_at_keyframe(s, rec, err))
		return -1;
	if (prepare(s, rec->steps, err))
		return -1;
	dj_record_code(rec, &s->code, &s->head, &s->data);
	s->records++;
	/* these two are steps themselves */
	reached(s, rec->steps + (rec->kind == DJ_REC_EFFECTS || rec->kind == DJ_REC_SYSCALL));
	return keyframe ? dj_stream_facts(s, rec->steps, s->facts, err) : 0;
}

int dj_stream_flush(struct dj_stream *s, uint64_t steps, uint64_t seq, struct dj_error *err)
{
	DJ_ASSERT(s->process, "flush of process %d", s->id);
	reached(s, steps);
	if (s->reach == steps)
		s->last_seq = seq;
	return flush(s, err);
}

int dj_stream_close(struct dj_stream *s, struct dj_error *err)
{
	return dj_stream_finish(s, err);
}
