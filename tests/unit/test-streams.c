/*
 * Streams of threads and processes. The tests are in test-streams-*.c; here is what they share: one
 * file, records put into it, and what a cursor serves of it.
 */
#include "tests/unit/test-streams.h"

#include <stdio.h>
#include <unistd.h>

char path[64];
const struct dj_trace_meta meta;

struct dj_trace *reopen(struct dj_writer *w)
{
	struct dj_error err = { 0 };
	struct dj_trace *t;

	CU_ASSERT_EQUAL(dj_writer_close(w, &(struct dj_trace_end){ .present = true }, &err), 0);
	t = dj_trace_open(path, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	return t;
}

/* A record of `kind` at `steps`; `addr` tells it from others. */
void put(struct dj_stream *s, unsigned kind, uint64_t steps, uint64_t addr, uint64_t seq)
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
void sequence(struct dj_cursor *c, int32_t thread, char *out)
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

int main(void)
{
	CU_SuiteInfo suites[] = {
		{ "order", NULL, NULL, NULL, NULL, streams_order },
		{ "written at once", NULL, NULL, NULL, NULL, streams_writing },
		{ "kinds of record", NULL, NULL, NULL, NULL, streams_kinds },
		{ "damaged and hostile", NULL, NULL, NULL, NULL, streams_hostile },
		CU_SUITE_INFO_NULL,
	};
	int failed;

	printf("seed %d\n", SEED);
	snprintf(path, sizeof(path), "/tmp/deja-test-streams-%d.deja", (int)getpid());
	suites_begin();
	CU_register_suites(suites);
	failed = suites_run();
	unlink(path);
	return failed;
}
