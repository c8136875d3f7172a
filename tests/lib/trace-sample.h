/*
 * Made-up traces for tests of the format and for the fuzz corpus: random records out of a seed,
 * which can be generated again to compare with what a reader serves.
 */
#ifndef DEJA_TESTS_LIB_TRACE_SAMPLE_H
#define DEJA_TESTS_LIB_TRACE_SAMPLE_H

#include "format/trace.h"

/* One thread's records, in order. The records borrow from the generator. */
struct sample_stream {
	uint64_t rng, steps;
	uint64_t made, count; /* records made, and to make */
	struct dj_record rec;
	uint8_t bytes[DJ_CODE_MAX];
	char name[64];
};

struct sample_shape {
	unsigned threads;   /* 1000, 1001, ... are their numbers */
	unsigned processes; /* 0: one; thread n is of process n modulo this, number 1000 + that */
	uint64_t records;   /* of each thread */
	uint64_t flush;	    /* flush a thread after so many records */
	size_t module;	    /* size of each of two modules */
	size_t memory;	    /* bytes of start memory, at SAMPLE_ADDR */
	uint64_t times;	    /* of each thread: sample_time() */
	bool no_end;
};
#define SAMPLE_TID	 1000
#define SAMPLE_PROCESSES 8 /* at most */
#define SAMPLE_ADDR	 0x7ffffff00f00ull

void sample_fill(uint64_t *state, void *bytes, size_t len);

void sample_start(struct sample_stream *s, unsigned thread, uint64_t seed, uint64_t count);
/* The next record, or NULL after `count`. */
const struct dj_record *sample_next(struct sample_stream *s);
/* Whether two records say the same. */
bool sample_equal(const struct dj_record *a, const struct dj_record *b);

/* Its `i`-th note of when it was where. */
struct dj_time sample_time(uint64_t i);

/* Contents of module `n` and of the start memory: the same for the same seed. */
void sample_module(uint8_t *bytes, size_t len, unsigned n, uint64_t seed);
void sample_memory(uint8_t *bytes, size_t len, uint64_t seed);

/* Write a thread's records, flushing as the shape says; what one of several threads of ours does.
 */
int sample_write_thread(struct dj_stream *stream, struct sample_stream *s, uint64_t flush,
			struct dj_error *err);

/* A file whole, in memory to be freed. */
uint8_t *sample_read(const char *path, size_t *len);

/* Write a whole trace. Returns 0, or -1 with err at the first failure. */
int sample_write(const char *path, const struct sample_shape *shape, uint64_t seed,
		 struct dj_error *err);

#endif
