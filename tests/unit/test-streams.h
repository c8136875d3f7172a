/*
 * What the parts of test-streams share; see test-streams.c.
 */
#ifndef DEJA_TESTS_UNIT_TEST_STREAMS_H
#define DEJA_TESTS_UNIT_TEST_STREAMS_H

#include "format/writer.h"
#include "tests/lib/suites.h"

#define SEED	20250911
#define UNKNOWN DJ_SEQ_UNKNOWN

extern char path[64];
extern const struct dj_trace_meta meta;

/* The file that was written, read. */
struct dj_trace *reopen(struct dj_writer *w);

/* A record of `kind` at `steps`; `addr` tells it from others. */
void put(struct dj_stream *s, unsigned kind, uint64_t steps, uint64_t addr, uint64_t seq);

/* The records that a cursor serves, one letter and the steps each; what others caused in
 * brackets. */
void sequence(struct dj_cursor *c, int32_t thread, char *out);

extern CU_TestInfo streams_order[], streams_writing[], streams_kinds[], streams_hostile[];

#endif
