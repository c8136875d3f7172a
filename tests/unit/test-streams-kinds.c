/*
 * What kinds of record mean to a reader: children and threads, keyframes, kinds of a later deja;
 * and what damaged and hostile files may cost.
 */
#include "tests/lib/trace-sample.h"
#include "tests/unit/test-streams.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

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
		} else if (kind == 23 || kind == DJ_REC_CHECK ||
			   dj_record_is_fact((unsigned)kind)) {
			CU_ASSERT_PTR_NULL(dj_cursor_next(c, &err));
			CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "malformed"));
		}
		dj_cursor_free(c);
		dj_trace_close(t);
	}
}

/* ---- keyframes ---- */

/* Where chunk `number` of a stream is in a file. */
static size_t chunk_of(const uint8_t *bytes, size_t len, uint32_t stream, uint32_t number,
		       struct dj_chunk_header *h)
{
	for (size_t at = FILE_HEADER_SIZE;
	     dj_chunk_header_unpack(h, bytes + at, len - at, dj_get64(bytes + 16));
	     at += CHUNK_HEADER_SIZE + h->len)
		if (h->type == CHUNK_STREAM && h->stream == stream && h->number == number)
			return at;
	CU_FAIL_FATAL("the chunk is not there");
	return 0;
}

/* Thread 0 has these records from its keyframe `i` on (SIZE_MAX: from the beginning). */
static void expect_from(struct dj_trace *t, size_t i, const char *want)
{
	struct dj_error err = { 0 };
	struct dj_cursor *c = dj_cursor_new(t, 0, &err);
	char got[400] = "", *out = got;
	const struct dj_record *r;

	if (i != SIZE_MAX)
		CU_ASSERT_EQUAL(dj_cursor_seek_keyframe(c, i, &err), 0);
	while ((r = dj_cursor_next(c, &err)))
		out += sprintf(out, "%c%u ", "?I??R?M?????????K"[r->kind], (unsigned)r -> steps);
	if (err.text[0])
		sprintf(out, "! ");
	CU_ASSERT_STRING_EQUAL(got, want);
	dj_cursor_free(c);
}

/* The file with chunk `number` of thread 0 changed: its payload damaged, or its flags. */
static struct dj_trace *spoiled(uint8_t *bytes, size_t len, uint32_t number, int flags)
{
	struct dj_chunk_header h;
	struct dj_error err = { 0 };
	size_t at = chunk_of(bytes, len, 1, number, &h);
	uint8_t was[CHUNK_HEADER_SIZE + 1];
	struct dj_trace *t;

	memcpy(was, bytes + at, sizeof(was));
	if (flags < 0)
		bytes[at + CHUNK_HEADER_SIZE] ^= 1;
	h.flags = (uint16_t)flags;
	if (flags >= 0)
		dj_chunk_header_pack(bytes + at, &h, dj_get64(bytes + 16));
	t = dj_trace_open_memory(bytes, len, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	if (flags < 0) /* the good ones have been copied */
		memcpy(bytes + at, was, sizeof(was));
	return t;
}

static void test_keyframes(void)
{
	struct dj_error err = { 0 };
	struct dj_writer *w = dj_writer_create(path, &meta, &err);
	struct dj_stream *p = dj_writer_process(w, 1, NULL, &err);
	struct dj_stream *a = dj_writer_thread(w, p, 1, "a", &err);
	const struct dj_thread_info *info;
	uint64_t steps, seq;
	struct dj_trace *t;
	uint8_t *bytes;
	size_t len;

	put(a, DJ_REC_REGS, 0, 0, 0);
	put(a, DJ_REC_MAP, 1, 0x1000, 0);
	put(a, DJ_REC_KEYFRAME, 10, 0, 7);
	put(a, DJ_REC_MAP, 11, 0x2000, 8);
	put(a, DJ_REC_REGS, 12, 0, 0);
	put(a, DJ_REC_KEYFRAME, 20, 0, 9);
	put(a, DJ_REC_REGS, 21, 0, 0);
	dj_stream_flush(a, 30, 11, &err);
	t = reopen(w);
	info = dj_trace_thread(t, 0);
	CU_ASSERT(info->keyframes == 2 && !info->late && info->records == 7);
	CU_ASSERT(dj_trace_keyframe(t, 0, 0, &steps, &seq) && steps == 10 && seq == 7);
	CU_ASSERT(dj_trace_keyframe(t, 0, 1, &steps, &seq) && steps == 20 && seq == 9);
	CU_ASSERT(!dj_trace_keyframe(t, 0, 2, &steps, &seq));
	expect_from(t, SIZE_MAX, "R0 M1 K10 M11 R12 K20 R21 ");
	/* all facts that hold there come with a keyframe */
	expect_from(t, 0, "K10 M10 M11 R12 K20 R21 ");
	expect_from(t, 1, "K20 M20 M20 R21 ");
	dj_trace_close(t);

	bytes = sample_read(path, &len);
	/* its beginning is lost: it begins with the first keyframe */
	t = spoiled(bytes, len, 1, -1);
	info = dj_trace_thread(t, 0);
	CU_ASSERT(info->late && info->keyframes == 2 && info->first_steps == 10);
	CU_ASSERT(info->last_steps == 30 && info->first_seq == 7);
	CU_ASSERT_PTR_NOT_NULL(strstr(dj_trace_damage(t), "that of thread 1 begins after 10"));
	expect_from(t, SIZE_MAX, "K10 M10 M11 R12 K20 R21 ");
	dj_trace_close(t);
	/* in the middle: the longest part that is left counts, of equal ones the first */
	t = spoiled(bytes, len, 2, -1);
	info = dj_trace_thread(t, 0);
	CU_ASSERT(!info->late && !info->keyframes && info->last_steps == 10);
	CU_ASSERT_PTR_NOT_NULL(strstr(dj_trace_damage(t), "history of thread 1 ends after 10"));
	expect_from(t, SIZE_MAX, "R0 M1 ");
	dj_trace_close(t);
	t = spoiled(bytes, len, 3, -1);
	info = dj_trace_thread(t, 0);
	CU_ASSERT(!info->late && info->keyframes == 1 && info->last_steps == 20);
	dj_trace_close(t);
	/* headers that lie: a keyframe that is none, one that nobody announced */
	t = spoiled(bytes, len, 2, 0);
	CU_ASSERT(dj_trace_thread(t, 0)->keyframes == 1);
	expect_from(t, SIZE_MAX, "R0 M1 ! ");
	dj_trace_close(t);
	t = spoiled(bytes, len, 1, CHUNK_AT_KEYFRAME);
	CU_ASSERT(dj_trace_thread(t, 0)->late);
	expect_from(t, SIZE_MAX, "! ");
	dj_trace_close(t);
	free(bytes);
}

/* ---- damaged and hostile ---- */

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

CU_TestInfo streams_kinds[] = {
	{ "children and threads", test_subjects },
	{ "of a later deja", test_later },
	{ "keyframes", test_keyframes },
	CU_TEST_INFO_NULL,
};

CU_TestInfo streams_hostile[] = {
	{ "facts that are lost", test_lost_facts },
	{ "floods", test_floods },
	CU_TEST_INFO_NULL,
};
