/*
 * Streams of threads and processes: how a cursor puts them in order again, how positions are found,
 * several threads of ours writing at once, kinds of record to come, and what hostile files may
 * cost.
 */
#include "format/bytes.h"
#include "format/chunk.h"
#include "format/writer.h"
#include "tests/lib/suites.h"
#include "tests/lib/trace-sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define SEED 20250911

static char path[64];
static const struct dj_trace_meta meta;

static struct dj_trace *reopen(struct dj_writer *w)
{
	struct dj_error err = { 0 };
	struct dj_trace *t;

	CU_ASSERT_EQUAL(dj_writer_close(w, &(struct dj_trace_end){ .present = true }, &err), 0);
	t = dj_trace_open(path, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	return t;
}

/* ---- order --------------------------------------------------------------------------- */

/* A record of `kind` at `steps`; `addr` tells it from others. */
static void put(struct dj_stream *s, unsigned kind, uint64_t steps, uint64_t addr, uint64_t seq)
{
	static const uint8_t bytes[DJ_LINE];
	struct dj_record r = { .kind = kind,
			       .steps = steps,
			       .addr = addr,
			       .bytes = bytes,
			       .module = -1,
			       .subject = -1,
			       .seq = seq };
	struct dj_error err = { 0 };

	CU_ASSERT_EQUAL(dj_stream_record(s, &r, &err), 0);
}

/* The records that a cursor serves, one letter and the steps each; what others caused in
 * brackets. */
static void sequence(struct dj_cursor *c, int32_t thread, char *out)
{
	static const char letters[DJ_REC_KINDS + 1] = "?IESRGMUPCDHXQNSKAKTY";
	const struct dj_record *r;
	struct dj_error err = { 0 };

	*out = 0;
	while ((r = dj_cursor_next(c, &err))) {
		bool other = dj_record_is_fact(r->kind) && r->thread != thread;

		out += sprintf(out, other ? "[%c%u] " : "%c%u ", letters[r->kind],
			       (unsigned)r->steps);
	}
	CU_ASSERT_STRING_EQUAL(err.text, "");
}

#define UNKNOWN DJ_SEQ_UNKNOWN

/* Two threads of one process. */
static struct dj_trace *two_threads(void)
{
	struct dj_error err = { 0 };
	struct dj_writer *w = dj_writer_create(path, &meta, &err);
	struct dj_stream *p = dj_writer_process(w, 1, NULL, &err);
	struct dj_stream *a = dj_writer_thread(w, p, 1, "a", &err);
	struct dj_stream *b = dj_writer_thread(w, p, 2, "b", &err);

	put(a, DJ_REC_REGS, 0, 0, 0);
	put(a, DJ_REC_MAP, 0, 0x1000, 0);
	put(a, DJ_REC_MAP, 0, 0x2000, 0);
	put(a, DJ_REC_SYSCALL, 5, 0, 0); /* event 1 */
	put(a, DJ_REC_MAP, 6, 0x3000, 1);
	put(a, DJ_REC_IMPORT, 6, 0x40, 0);
	dj_stream_flush(b, 0, 0, &err); /* where it begins */
	put(b, DJ_REC_REGS, 0, 0, 0);
	put(b, DJ_REC_SEQ, 3, 0, 2); /* its first event comes after that of a */
	put(b, DJ_REC_SYSCALL, 3, 0, 0);
	put(b, DJ_REC_UNMAP, 4, 0x3000, 2);
	put(b, DJ_REC_IMPORT, 4, 0x80, 0);
	dj_stream_flush(b, 9, 2, &err);
	put(a, DJ_REC_IMPORT, 8, 0xc0, 0);
	dj_stream_flush(a, 8, 1, &err);
	put(a, DJ_REC_DIGEST, 9, 0, 1);
	put(a, DJ_REC_SEQ, 10, 0, 3);
	put(a, DJ_REC_SYSCALL, 10, 0, 0);
	put(a, DJ_REC_PROTECT, 11, 0x1000, 3);
	put(a, DJ_REC_EXIT, 11, 0, 0);
	put(b, DJ_REC_EXIT, 9, 0, 0);
	return reopen(w);
}

static const char order_a[] = "R0 M0 M0 S5 M6 I6 I8 D9 [U10] S10 S10 P11 Q11 ";
static const char order_b[] = "R0 [M3] [M3] [M3] S3 S3 U4 I4 Q9 ";

static void test_order(void)
{
	struct dj_trace *t = two_threads();
	struct dj_error err = { 0 };
	struct dj_cursor *c = dj_cursor_new(t, 0, &err);
	const struct dj_record *r;
	char text[400];

	sequence(c, 0, text);
	CU_ASSERT_STRING_EQUAL(text, order_a);
	dj_cursor_free(c);
	c = dj_cursor_new(t, 1, &err);
	sequence(c, 1, text);
	CU_ASSERT_STRING_EQUAL(text, order_b);
	dj_cursor_free(c);

	/* the process alone, each at its own moment */
	c = dj_cursor_new_facts(t, 0, &err);
	sequence(c, 0, text);
	CU_ASSERT_STRING_EQUAL(text, "M0 M0 M6 [U4] P11 ");
	dj_cursor_free(c);
	c = dj_cursor_new_facts(t, 0, &err);
	for (int i = 0; i < 4; i++)
		r = dj_cursor_next(c, &err);
	CU_ASSERT(r->kind == DJ_REC_UNMAP && r->thread == 1 && r->seq == 2 && r->addr == 0x3000);
	dj_cursor_free(c);
	CU_ASSERT_EQUAL(dj_trace_process(t, 0)->facts, 5);
	CU_ASSERT_EQUAL(dj_trace_thread(t, 0)->records, 12);
	CU_ASSERT_EQUAL(dj_trace_thread(t, 0)->first_seq, UNKNOWN);
	CU_ASSERT_EQUAL(dj_trace_thread(t, 1)->first_seq, 0);
	CU_ASSERT_EQUAL(dj_trace_thread(t, 1)->last_seq, UNKNOWN);
	CU_ASSERT_PTR_NULL(dj_cursor_new_facts(t, 1, &err));
	dj_trace_close(t);
}

/* A mark taken before any record leads to what followed it, whatever was served since: also in the
 * middle of facts that come before a record that waits. */
static void test_marks_everywhere(void)
{
	struct dj_trace *t = two_threads();
	static const char *const want[] = { order_a, order_b };
	struct dj_error err = { 0 };

	for (size_t i = 0; i < 2; i++) {
		struct dj_cursor *c = dj_cursor_new(t, i, &err), *fresh;
		struct dj_mark marks[30];
		size_t n = 0, at = 0;
		char text[400];

		do
			dj_cursor_mark(c, &marks[n++]);
		while (dj_cursor_next(c, &err));
		for (size_t k = 0; k < n; k++) {
			CU_ASSERT_EQUAL(dj_cursor_restore(c, &marks[k], &err), 0);
			sequence(c, (int32_t)i, text);
			CU_ASSERT_STRING_EQUAL(text, want[i] + at);
			fresh = dj_cursor_new(t, i, &err);
			CU_ASSERT_EQUAL(dj_cursor_restore(fresh, &marks[k], &err), 0);
			sequence(fresh, (int32_t)i, text);
			CU_ASSERT_STRING_EQUAL(text, want[i] + at);
			dj_cursor_free(fresh);
			at += strcspn(want[i] + at, " ");
			at += want[i][at] != 0;
		}
		CU_ASSERT_EQUAL(at, strlen(want[i]));
		dj_cursor_free(c);
	}
	dj_trace_close(t);
}

static void test_seek_small(void)
{
	static const struct {
		uint64_t steps, seq;
		const char *want;
	} rows[] = {
		{ 0, UNKNOWN, "R0 M0" },     { 6, UNKNOWN, "R0 M0" }, { 9, UNKNOWN, "D9 [U10]" },
		{ 11, UNKNOWN, "D9 [U10]" }, { 0, 1, "R0 M0" },	      { 0, 2, "D9 [U10]" },
		{ 0, 3, "D9 [U10]" },	     { 0, 99, "D9 [U10]" },
	};
	struct dj_trace *t = two_threads();
	struct dj_error err = { 0 };
	struct dj_cursor *c = dj_cursor_new(t, 0, &err);
	char text[400];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int r = rows[i].seq == UNKNOWN ? dj_cursor_seek_steps(c, rows[i].steps, &err)
					       : dj_cursor_seek_seq(c, rows[i].seq, &err);

		CU_ASSERT_EQUAL(r, 0);
		sequence(c, 0, text);
		CU_ASSERT_EQUAL(strncmp(text, rows[i].want, strlen(rows[i].want)), 0);
	}
	CU_ASSERT_EQUAL(dj_cursor_seek_steps(c, 12, &err), 0);
	CU_ASSERT_PTR_NULL(dj_cursor_next(c, &err));
	dj_cursor_free(c);
	dj_trace_close(t);
}

/* The next record but for what other threads caused, whose place depends on where one begins. */
static const struct dj_record *own_next(struct dj_cursor *c, size_t thread)
{
	const struct dj_record *r;
	struct dj_error err;

	do
		r = dj_cursor_next(c, &err);
	while (r && dj_record_is_fact(r->kind) && r->thread != (int32_t)thread);
	if (!r)
		CU_ASSERT_EQUAL(err.text[0], 0);
	return r;
}

/* What a seek leaves out lies wholly before the position, and what comes is what walking finds. */
static void test_seek_large(void)
{
	static const struct sample_shape shape = { .threads = 3, .records = 20000, .flush = 501 };
	struct dj_error err = { 0 };
	uint64_t rng = SEED, left = 0;
	struct dj_trace *t;

	CU_ASSERT_EQUAL_FATAL(sample_write(path, &shape, SEED, &err), 0);
	t = dj_trace_open(path, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	for (int i = 0; i < 60; i++) {
		size_t thread = sample_random(&rng) % 3;
		uint64_t seq = sample_random(&rng) % shape.records, skip;
		struct dj_cursor *c = dj_cursor_new(t, thread, &err),
				 *walk = dj_cursor_new(t, thread, &err);
		const struct dj_record *a, *b = NULL;
		struct dj_mark mark;
		bool same = true;

		/* the sample calls the number of records made the number of events */
		CU_ASSERT_EQUAL(dj_cursor_seek_seq(c, seq + 1, &err), 0);
		dj_cursor_mark(c, &mark);
		for (skip = shape.records; own_next(c, thread); skip--)
			;
		CU_ASSERT(skip <= seq && skip + 6 * shape.flush > seq);
		left += skip;
		while (skip--)
			own_next(walk, thread);
		CU_ASSERT_EQUAL(dj_cursor_restore(c, &mark, &err), 0);
		do {
			a = own_next(c, thread);
			b = own_next(walk, thread);
			same &= !a == !b && (!a || sample_equal(a, b));
		} while (a && b && same);
		CU_ASSERT(same);
		dj_cursor_free(c);
		dj_cursor_free(walk);
	}
	CU_ASSERT(left > 60 * shape.records / 4);
	dj_trace_close(t);
}

/* ---- several at once ------------------------------------------------------------------- */

#define WRITERS 6

struct job {
	struct dj_writer *w;
	struct dj_stream *process, *stream;
	struct sample_stream sample;
	unsigned n;
	int result;
};

static void *write_one(void *arg)
{
	struct job *j = arg;
	struct dj_error err = { 0 };
	uint8_t module[3000];

	sample_start(&j->sample, j->n, SEED, 4000);
	j->stream = dj_writer_thread(j->w, j->process, SAMPLE_TID + (int)j->n, "at once", &err);
	sample_module(module, sizeof(module), j->n % 4, SEED);
	snprintf((char *)module, 16, "%u", j->n % 4);
	if (dj_writer_module(j->w, "/m", module, sizeof(module), &err) < 0 ||
	    dj_stream_snapshot(j->process, j->n, SAMPLE_ADDR, module, sizeof(module), &err) ||
	    !j->stream || sample_write_thread(j->stream, &j->sample, 97, &err))
		j->result = -1;
	return NULL;
}

/* The records of a thread are those of its sample, and facts are in order of the process. */
static void check_one(struct dj_trace *t, size_t i)
{
	static struct sample_stream s;
	struct dj_error err = { 0 };
	struct dj_cursor *c = dj_cursor_new(t, i, &err);
	const struct dj_record *r;
	uint64_t n = 0;
	bool good = true;

	sample_start(&s, (unsigned)(dj_trace_thread(t, i)->tid - SAMPLE_TID), SEED, 4000);
	while (good && (r = dj_cursor_next(c, &err))) {
		if (dj_record_is_fact(r->kind) && r->thread != (int32_t)i)
			continue;
		good = sample_equal(r, sample_next(&s));
		n++;
	}
	CU_ASSERT(good);
	CU_ASSERT_EQUAL(n, 4000);
	CU_ASSERT_EQUAL(err.text[0], 0);
	dj_cursor_free(c);
}

static void test_at_once(void)
{
	static struct job jobs[WRITERS];
	struct dj_error err = { 0 };
	struct dj_writer *w = dj_writer_create(path, &meta, &err);
	struct dj_stream *p[2] = { dj_writer_process(w, 1, NULL, &err), NULL };
	pthread_t threads[WRITERS];
	struct dj_trace *t;
	size_t size;

	p[1] = dj_writer_process(w, 2, p[0], &err);
	for (unsigned i = 0; i < WRITERS; i++) {
		jobs[i] = (struct job){ .w = w, .process = p[i % 2], .n = i };
		CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[i], NULL, write_one, &jobs[i]), 0);
	}
	for (unsigned i = 0; i < WRITERS; i++) {
		pthread_join(threads[i], NULL);
		CU_ASSERT_EQUAL(jobs[i].result, 0);
	}
	t = reopen(w);
	CU_ASSERT_PTR_NULL(dj_trace_damage(t));
	CU_ASSERT_EQUAL(dj_trace_threads(t), WRITERS);
	CU_ASSERT_EQUAL(dj_trace_modules(t), 4); /* the same one stored again is one */
	for (size_t i = 0; i < 4; i++)
		CU_ASSERT_PTR_NOT_NULL(dj_trace_module_bytes(t, i, &size, &err));
	for (size_t i = 0; i < WRITERS; i++) {
		uint8_t memory[10];

		CU_ASSERT_EQUAL((int)dj_trace_thread(t, i)->process,
				(dj_trace_thread(t, i)->tid - SAMPLE_TID) % 2);
		check_one(t, i);
		CU_ASSERT_EQUAL(dj_trace_snapshot(t, i % 2, (uint32_t)i, SAMPLE_ADDR, memory, 10),
				10);
	}
	dj_trace_close(t);
}

/* When the file can grow no more, every writer hears of it, and what is there is whole. */
static void test_at_once_no_room(void)
{
	static struct job jobs[WRITERS];
	struct dj_error err = { 0 };
	struct dj_writer *w = dj_writer_create(path, &meta, &err);
	struct dj_stream *p = dj_writer_process(w, 1, NULL, &err);
	pthread_t threads[WRITERS];
	struct rlimit old, now;
	struct dj_trace *t;
	int failed = 0;

	getrlimit(RLIMIT_FSIZE, &old);
	now = old;
	now.rlim_cur = 400000;
	setrlimit(RLIMIT_FSIZE, &now);
	for (unsigned i = 0; i < WRITERS; i++) {
		jobs[i] = (struct job){ .w = w, .process = p, .n = i };
		CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[i], NULL, write_one, &jobs[i]), 0);
	}
	for (unsigned i = 0; i < WRITERS; i++) {
		pthread_join(threads[i], NULL);
		failed += jobs[i].result != 0;
	}
	CU_ASSERT_EQUAL(failed, WRITERS);
	CU_ASSERT_EQUAL(dj_writer_close(w, NULL, &err), -1);
	setrlimit(RLIMIT_FSIZE, &old);
	t = dj_trace_open(path, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	CU_ASSERT_PTR_NOT_NULL(strstr(dj_trace_damage(t), "the recording was cut off there"));
	CU_ASSERT(dj_trace_file_size(t) <= 400000);
	dj_trace_close(t);
}

/* ---- kinds to come --------------------------------------------------------------------- */

/* Children and threads are named by their streams in the file and by index outside. */
static void test_subjects(void)
{
	struct dj_error err = { 0 };
	struct dj_writer *w = dj_writer_create(path, &meta, &err);
	struct dj_stream *p = dj_writer_process(w, 1, NULL, &err);
	struct dj_stream *a = dj_writer_thread(w, p, 1, "a", &err);
	struct dj_stream *q = dj_writer_process(w, 7, p, &err);
	struct dj_stream *b = dj_writer_thread(w, q, 7, "b", &err);
	struct dj_record r = { .kind = DJ_REC_CHILD,
			       .pid = 7,
			       .what = DJ_CHILD_VFORK,
			       .subject = (int32_t)dj_stream_number(q),
			       .seq = 4 };
	struct dj_trace *t;
	struct dj_cursor *c;
	const struct dj_record *got;

	dj_stream_record(a, &r, &err);
	r.kind = DJ_REC_THREAD; /* a process is no thread */
	dj_stream_record(a, &r, &err);
	r.subject = (int32_t)dj_stream_number(b);
	dj_stream_record(a, &r, &err);
	r.subject = 99;
	dj_stream_record(a, &r, &err);
	t = reopen(w);
	c = dj_cursor_new(t, 0, &err);
	got = dj_cursor_next(c, &err);
	CU_ASSERT(got->kind == DJ_REC_CHILD && got->subject == 1 && got->pid == 7 &&
		  got->what == DJ_CHILD_VFORK && got->seq == 4 && got->thread == 0);
	CU_ASSERT_EQUAL(dj_cursor_next(c, &err)->subject, -1);
	CU_ASSERT_EQUAL(dj_cursor_next(c, &err)->subject, 1);
	CU_ASSERT_EQUAL(dj_cursor_next(c, &err)->subject, -1);
	CU_ASSERT_PTR_NULL(dj_cursor_next(c, &err));
	CU_ASSERT_EQUAL(dj_trace_process(t, 1)->parent, 0);
	CU_ASSERT_STRING_EQUAL(dj_what_name(DJ_REC_CHILD, DJ_CHILD_VFORK), "vfork");
	CU_ASSERT_STRING_EQUAL(dj_what_name(DJ_REC_MARK, 200), "?");
	dj_cursor_free(c);
	dj_trace_close(t);
}

/* Write a chunk of stream number `stream` with these bytes as heads and data. */
static void put_chunk(struct dj_writer *w, uint32_t stream, uint32_t number, uint64_t records,
		      uint64_t facts, const uint8_t *heads, size_t nheads, const uint8_t *data,
		      size_t ndata)
{
	struct dj_chunk_header h = { .type = CHUNK_STREAM,
				     .stream = stream,
				     .number = number,
				     .last = stream ? 10 : records,
				     .arg = records,
				     .facts = facts };
	struct dj_error err = { 0 };
	uint8_t payload[400];

	dj_put32(payload, (uint32_t)nheads);
	memcpy(payload + 4, heads, nheads);
	if (ndata)
		memcpy(payload + 4 + nheads, data, ndata);
	CU_ASSERT_EQUAL(dj_writer_chunk(w, &h, payload, 4 + nheads + ndata, &err), 0);
}

/* Records and chunks of a later deja are passed over; those that cannot be are malformed. */
static void test_later(void)
{
	static const uint8_t facts[] = {
		27, 1, 3, 0, 2,	   'x',	 'y',  0, /* a kind to come: two bytes, no data */
		7,  1, 3, 0, 0x80, 0x20, 0x40,	  /* unmap 0x1000, 0x40 */
	};
	static const uint8_t heads[] = {
		25 | 0x80, 3, 'a', 'b', 'c', 1, /* a kind to come: three bytes, one of data */
		20 | 0x80, 5, 2,		/* sysdata: 2 bytes at 5 */
		31,	   3, 0,   0,		/* another, at 3 */
		21 | 0x80, 2,			/* facts */
		13 | 0x80, 8,			/* exit */
	};
	for (int kind = 0; kind <= 31; kind++) {
		struct dj_error err = { 0 };
		struct dj_writer *w = dj_writer_create(path, &meta, &err);
		struct dj_stream *p = dj_writer_process(w, 1, NULL, &err);
		struct dj_chunk_header strange = { .type = 77, .stream = 3 };
		struct dj_trace *t;
		struct dj_cursor *c;
		uint8_t other[sizeof(heads)];
		char text[400];

		dj_writer_thread(w, p, 1, "a", &err);
		dj_writer_chunk(w, &strange, "whatever", 8, &err);
		memcpy(other, heads, sizeof(heads));
		other[0] = (uint8_t)kind | 0x80;
		put_chunk(w, 0, 1, 2, 0, facts, sizeof(facts), NULL, 0);
		put_chunk(w, 1, 1, 5, 2, kind ? other : heads, sizeof(heads),
			  (const uint8_t *)"?ab", 3);
		t = reopen(w);
		CU_ASSERT_PTR_NULL(dj_trace_damage(t));
		c = dj_cursor_new(t, 0, &err);
		if (!kind || kind > DJ_REC_CHECK) {
			sequence(c, 0, text);
			CU_ASSERT_STRING_EQUAL(text, "Y0 U3 Q3 ");
		} else if (kind == 22 || kind == 23 || kind == DJ_REC_CHECK ||
			   dj_record_is_fact((unsigned)kind)) {
			CU_ASSERT_PTR_NULL(dj_cursor_next(c, &err));
			CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "malformed"));
		}
		dj_cursor_free(c);
		dj_trace_close(t);
	}
}

/* ---- damaged and hostile ----------------------------------------------------------------- */

/* When facts are lost, history ends before what needs them, and not before. */
static void test_lost_facts(void)
{
	struct dj_error err = { 0 };
	struct dj_writer *w = dj_writer_create(path, &meta, &err);
	struct dj_stream *p = dj_writer_process(w, 1, NULL, &err);
	struct dj_stream *a = dj_writer_thread(w, p, 1, "a", &err);
	struct dj_stream *b = dj_writer_thread(w, p, 2, "b", &err);
	static uint8_t bytes[1 << 16];
	struct dj_chunk_header h;
	struct dj_trace *t;
	size_t len, at, hit = 0;
	FILE *f;

	put(a, DJ_REC_MAP, 0, 0x1000, UNKNOWN);
	dj_stream_flush(a, 5, UNKNOWN, &err);
	put(a, DJ_REC_MAP, 6, 0x2000, UNKNOWN); /* this one will be lost */
	put(b, DJ_REC_REGS, 0, 0, 0);
	dj_stream_flush(b, 3, UNKNOWN, &err);
	dj_stream_flush(a, 7, UNKNOWN, &err);
	put(b, DJ_REC_REGS, 4, 0, 0); /* does not need it */
	dj_stream_flush(b, 9, UNKNOWN, &err);
	put(b, DJ_REC_MAP, 10, 0x3000, UNKNOWN); /* has to come after it */
	dj_trace_close(reopen(w));
	f = fopen(path, "rb");
	len = fread(bytes, 1, sizeof(bytes), f);
	fclose(f);
	for (at = FILE_HEADER_SIZE;
	     dj_chunk_header_unpack(&h, bytes + at, len - at, dj_get64(bytes + 16));
	     at += CHUNK_HEADER_SIZE + h.len)
		if (h.type == CHUNK_STREAM && h.stream == 0 && h.number == 2)
			hit = at;
	CU_ASSERT_FATAL(hit != 0);
	bytes[hit + CHUNK_HEADER_SIZE + 5] ^= 1;
	t = dj_trace_open_memory(bytes, len, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	CU_ASSERT_EQUAL(dj_trace_thread(t, 0)->last_steps, 5);
	CU_ASSERT_EQUAL(dj_trace_thread(t, 1)->last_steps, 9);
	CU_ASSERT_EQUAL(dj_trace_process(t, 0)->facts, 1);
	CU_ASSERT_PTR_NOT_NULL(strstr(dj_trace_damage(t), "history of thread 1 ends after 5"));
	CU_ASSERT_PTR_NOT_NULL(strstr(dj_trace_damage(t), "1 others early"));
	dj_trace_close(t);
}

/* Sanitizers need memory of their own. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PEAK_FACTOR 4
#else
#define PEAK_FACTOR 1
#endif

/* Peak memory of this process so far, in MiB. */
static long peak(void)
{
	struct rusage ru;

	getrusage(RUSAGE_SELF, &ru);
	return ru.ru_maxrss >> 10;
}

/* Chunks that pack well and mean much: what they claim is refused before it costs anything. */
static void test_floods(void)
{
	static uint8_t zeros[CHUNK_RAW_MAX];
	struct dj_error err = { 0 };
	struct dj_writer *w = dj_writer_create(path, &meta, &err);
	long before;
	size_t size;
	struct dj_trace *t;

	dj_put32(zeros, 0);
	dj_writer_process(w, 1, NULL, &err);
	/* names of 16 MiB, streams that there are not, modules that there are not */
	for (uint32_t i = 1; i < 200; i++) {
		struct dj_chunk_header name = { .type = CHUNK_THREAD, .stream = i },
				       stream = { .type = CHUNK_STREAM,
						  .stream = 1000 + i,
						  .number = 1 },
				       data = { .type = CHUNK_MODULE_DATA,
						.stream = 1000000 + i,
						.last = CHUNK_RAW_MAX };

		dj_writer_chunk(w, &name, zeros, sizeof(zeros), &err);
		dj_writer_chunk(w, &stream, zeros, sizeof(zeros), &err);
		dj_writer_chunk(w, &data, zeros, sizeof(zeros), &err);
	}
	before = peak();
	t = reopen(w);
	CU_ASSERT_EQUAL(dj_trace_threads(t), 0);
	CU_ASSERT_EQUAL(dj_trace_modules(t), 0);
	CU_ASSERT(peak() - before < 100 * PEAK_FACTOR);
	dj_trace_close(t);

	/* a module of 4 GiB out of a small file */
	memset(zeros, 0x55, sizeof(zeros));
	w = dj_writer_create(path, &meta, &err);
	uint8_t info[49 + 2] = { 0 };
	struct dj_chunk_header h = { .type = CHUNK_MODULE, .last = 4ull << 30 };
	dj_put64(info, 4ull << 30);
	dj_writer_chunk(w, &h, info, sizeof(info), &err);
	for (uint32_t i = 0; i < 256; i++) {
		h = (struct dj_chunk_header){ .type = CHUNK_MODULE_DATA,
					      .number = i + 1,
					      .first = (uint64_t)i * CHUNK_RAW_MAX,
					      .last = ((uint64_t)i + 1) * CHUNK_RAW_MAX };
		dj_writer_chunk(w, &h, zeros, sizeof(zeros), &err);
	}
	before = peak();
	t = reopen(w);
	CU_ASSERT_PTR_NULL(dj_trace_module_bytes(t, 0, &size, &err));
	CU_ASSERT(err.exit_status == 2 && err.text[0]);
	CU_ASSERT(peak() - before < 700 * PEAK_FACTOR);
	dj_trace_close(t);
}

int main(void)
{
	CU_TestInfo order[] = { { "order", test_order },
				{ "marks everywhere", test_marks_everywhere },
				{ "finding positions", test_seek_small },
				{ "finding positions in a large trace", test_seek_large },
				CU_TEST_INFO_NULL };
	CU_TestInfo at_once[] = { { "several threads", test_at_once },
				  { "no room", test_at_once_no_room },
				  CU_TEST_INFO_NULL };
	CU_TestInfo kinds[] = { { "children and threads", test_subjects },
				{ "of a later deja", test_later },
				CU_TEST_INFO_NULL };
	CU_TestInfo hostile[] = { { "facts that are lost", test_lost_facts },
				  { "floods", test_floods },
				  CU_TEST_INFO_NULL };
	CU_SuiteInfo suites[] = { { "order", NULL, NULL, NULL, NULL, order },
				  { "written at once", NULL, NULL, NULL, NULL, at_once },
				  { "kinds of record", NULL, NULL, NULL, NULL, kinds },
				  { "damaged and hostile", NULL, NULL, NULL, NULL, hostile },
				  CU_SUITE_INFO_NULL };
	int failed;

	printf("seed %d\n", SEED);
	snprintf(path, sizeof(path), "/tmp/deja-test-streams-%d.deja", (int)getpid());
	suites_begin();
	CU_register_suites(suites);
	failed = suites_run();
	unlink(path);
	return failed;
}
