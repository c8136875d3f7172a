/*
 * The order in which a cursor serves what threads and processes have, threads that begin late, and
 * how positions are found.
 */
#include "tests/lib/random.h"
#include "tests/lib/trace-sample.h"
#include "tests/unit/test-streams.h"

#include <stdlib.h>
#include <string.h>

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

/* ---- threads that begin late ---- */

#define LATE 100

/* What the first threads' facts came to, as the replay keeps it, with fewer of them. */
static struct {
	uint64_t facts;
	struct dj_mark_place at;
} kept[LATE];
static size_t n_kept;
static uint64_t skipped, asked, told;

static bool find_kept(void *arg, uint64_t steps, uint64_t facts, struct dj_mark_place *at)
{
	(void)arg;
	asked++;
	skipped = 0;
	CU_ASSERT_EQUAL(steps, 0);
	for (size_t i = 0; i < n_kept; i++)
		if (kept[i].facts <= facts && kept[i].facts > skipped) {
			skipped = kept[i].facts;
			*at = kept[i].at;
		}
	return skipped;
}

static void keep_it(void *arg, uint64_t facts, const struct dj_mark_place *at)
{
	(void)arg;
	told++;
	CU_ASSERT_FATAL(n_kept < LATE);
	kept[n_kept].facts = facts;
	kept[n_kept++].at = *at;
}

/* What is served to a thread that skips facts is what is served to one that does not, without
 * these; whatever was kept before, in the midst of chunks and at their ends. */
static void test_begin(void)
{
	struct dj_error err = { 0 };
	struct dj_writer *w = dj_writer_create(path, &meta, &err);
	struct dj_stream *p = dj_writer_process(w, 1, NULL, &err), *late[LATE];
	struct dj_stream *a = dj_writer_thread(w, p, 1, "a", &err);
	uint64_t begins[LATE], n = 0;

	put(a, DJ_REC_REGS, 0, 0, 0);
	srand(SEED);
	for (unsigned i = 0; i < LATE; i++) {
		for (int k = rand() % 400; k > 0; k--)
			put(a, DJ_REC_MAP, 0, ++n << 12, 0);
		late[i] = dj_writer_thread(w, p, (int32_t)i + 2, "late", &err);
		dj_stream_flush(late[i], 0, 0, &err);
		put(late[i], DJ_REC_REGS, 0, 0, 0);
		begins[i] = n;
		if (n)
			CU_ASSERT_EQUAL(dj_stream_facts(late[i], 0, n, &err), 0);
		put(late[i], DJ_REC_IMPORT, 3, 0x40, 0);
	}
	for (unsigned i = 0; i < LATE; i++)
		if (n)
			dj_stream_facts(late[i], 4, n, &err);
	struct dj_trace *t = reopen(w);
	n_kept = 0;
	for (unsigned k = 0; k < LATE; k++) {
		unsigned i = (k * 7 + 3) % LATE; /* some of those kept have more facts */
		struct dj_cursor *c = dj_cursor_new(t, i + 1, &err);
		struct dj_cursor_begin begin = { find_kept, keep_it, NULL };
		const struct dj_record *r;
		uint64_t served = 0, before = 0;

		asked = told = skipped = 0;
		dj_cursor_on_begin(c, &begin);
		while ((r = dj_cursor_next(c, &err))) {
			before = r->kind == DJ_REC_IMPORT ? served + skipped : before;
			if (r->kind == DJ_REC_MAP)
				CU_ASSERT_EQUAL(r->addr, (skipped + ++served) << 12);
		}
		CU_ASSERT_STRING_EQUAL(err.text, "");
		CU_ASSERT_EQUAL(before, begins[i]);
		CU_ASSERT_EQUAL(skipped + served, n);
		CU_ASSERT_EQUAL(asked, 1);
		CU_ASSERT_EQUAL(told, 1);
		CU_ASSERT_EQUAL(kept[n_kept - 1].facts, begins[i] ? begins[i] : n);
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
		size_t thread = random_next(&rng) % 3;
		uint64_t seq = random_next(&rng) % shape.records, skip;
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

CU_TestInfo streams_order[] = {
	{ "order", test_order },
	{ "marks everywhere", test_marks_everywhere },
	{ "threads that begin late", test_begin },
	{ "finding positions", test_seek_small },
	{ "finding positions in a large trace", test_seek_large },
	CU_TEST_INFO_NULL,
};
