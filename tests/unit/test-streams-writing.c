/*
 * Several threads of ours write a trace at once, also where there is no room, and in a hurry.
 */
#include "tests/lib/random.h"
#include "tests/lib/trace-sample.h"
#include "tests/unit/test-streams.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* ---- in a hurry ---- */

/* What the thread reads at a step: words, or (`few`) noise with some of them in it. */
static void words(uint8_t line[DJ_LINE], uint64_t *rng, bool few)
{
	static const char *const word[] = {
		"quick ", "brown ", "fox ", "jumps ", "over ", "lazy "
	};
	char text[DJ_LINE + 32];
	size_t n = 0;

	while (n < DJ_LINE) {
		n += (size_t)sprintf(text + n, "%s%u ", word[random_next(rng) % 6],
				     (unsigned)random_next(rng) % 1000);
	}
	memcpy(line, text, DJ_LINE);
	for (unsigned i = 0; few && i < 40; i++)
		line[i] = (uint8_t)random_next(rng);
}

/* `n` of them, the first `noise` of the other kind, of a thread that is waited for or not; returns
 * the size of the trace. */
static long words_written(bool hurry, unsigned n, unsigned noise)
{
	struct dj_error err = { 0 };
	struct dj_writer *w = dj_writer_create(path, &meta, &err);
	struct dj_stream *p = dj_writer_process(w, 1, NULL, &err);
	struct dj_stream *s = dj_writer_thread(w, p, 1, "a", &err);
	uint64_t rng = SEED;
	uint8_t line[DJ_LINE];
	bool same = true;
	struct stat st;

	dj_stream_hurry(s, hurry);
	for (uint64_t i = 0; i < n; i++) {
		words(line, &rng, i < noise);
		dj_stream_import(s, i, 0, 0, i * DJ_LINE, line, &err);
	}
	struct dj_trace *t = reopen(w);
	struct dj_cursor *c = dj_cursor_new(t, 0, &err);
	rng = SEED;
	for (uint64_t i = 0; i < n; i++) {
		const struct dj_record *r = dj_cursor_next(c, &err);
		words(line, &rng, i < noise);
		same &= r && r->steps == i && memcmp(r->bytes, line, DJ_LINE) == 0;
	}
	CU_ASSERT(same);
	CU_ASSERT_STRING_EQUAL(err.text, "");
	dj_cursor_free(c);
	dj_trace_close(t);
	return stat(path, &st) ? 0 : (long)st.st_size;
}

static void test_hurry(void)
{
	const unsigned chunk = (1u << 20) / DJ_LINE;
	long well = words_written(false, 20000, 0), quickly = words_written(true, 20000, 0);

	CU_ASSERT(well > 100000);
	CU_ASSERT(quickly > well + well / 64);
	/* where that takes little away it is done quicker still, from the second chunk on */
	long first = words_written(true, chunk, chunk);
	CU_ASSERT(words_written(true, 4 * chunk, 4 * chunk) > 4 * first + first / 8);
	/* but not for ever, when more would be taken away again */
	long few = words_written(true, 4 * chunk, chunk),
	     more = words_written(true, 20 * chunk, chunk), each = (few - first) / 3;
	CU_ASSERT(more - few < 14 * each);
}

/* ---- modules that are packed while others go on ---- */

#define MODULE_CHUNKS 5 /* of a megabyte */
#define MODULE_BYTES  ((MODULE_CHUNKS << 20) - 1000)

/* What comes out of a FIFO. */
struct drain {
	int fd;
	uint8_t *bytes;
	size_t len, cap;
};

static void *drain(void *arg)
{
	struct drain *d = arg;
	ssize_t n;

	while (d->len < d->cap && (n = read(d->fd, d->bytes + d->len, d->cap - d->len)) > 0)
		d->len += (size_t)n;
	return NULL;
}

/* Nobody reads, so that nothing of a module's contents can be written; the call returns all the
 * same, and what becomes of the caller's bytes then is of no matter. Records wait until it is
 * there. */
static void test_later(void)
{
	static uint8_t module[MODULE_BYTES], was[MODULE_BYTES];
	struct dj_error err = { 0 };
	uint64_t rng = SEED;
	size_t size, chunks = 0;
	struct drain d = { .cap = 2 * sizeof(module) };
	pthread_t reader;

	for (size_t i = 0; i < sizeof(module); i++)
		module[i] = (uint8_t)random_next(&rng);
	memcpy(was, module, sizeof(module));
	unlink(path);
	CU_ASSERT_EQUAL_FATAL(mkfifo(path, 0600), 0);
	d.fd = open(path, O_RDONLY | O_NONBLOCK);
	d.bytes = malloc(d.cap);
	CU_ASSERT_FATAL(d.fd >= 0 && d.bytes);
	fcntl(d.fd, F_SETFL, 0);
	struct dj_writer *w = dj_writer_create(path, &meta, &err);
	struct dj_stream *p = dj_writer_process(w, 1, NULL, &err);
	struct dj_stream *s = dj_writer_thread(w, p, 1, "a", &err);
	alarm(60); /* it may hang here */
	CU_ASSERT_EQUAL(dj_writer_module(w, "/m", module, sizeof(module), &err), 0);
	alarm(0);
	memset(module, 0, sizeof(module));
	put(s, DJ_REC_IMPORT, 1, 64, 0);
	CU_ASSERT_EQUAL_FATAL(pthread_create(&reader, NULL, drain, &d), 0);
	CU_ASSERT_EQUAL(dj_stream_flush(s, 2, UNKNOWN, &err), 0);
	for (size_t i = 0; i < w->nindex; i++)
		chunks += w->index[i].type == CHUNK_MODULE_DATA;
	CU_ASSERT_EQUAL(chunks, MODULE_CHUNKS);
	CU_ASSERT_EQUAL(w->index[w->nindex - 1].type, CHUNK_STREAM);
	CU_ASSERT_EQUAL(dj_writer_close(w, &(struct dj_trace_end){ .present = true }, &err), 0);
	pthread_join(reader, NULL);
	close(d.fd);
	unlink(path);
	struct dj_trace *t = dj_trace_open_memory(d.bytes, d.len, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	CU_ASSERT_PTR_NULL(dj_trace_damage(t));
	const uint8_t *got = dj_trace_module_bytes(t, 0, &size, &err);
	CU_ASSERT(got && size == sizeof(was) && memcmp(got, was, size) == 0);
	dj_trace_close(t);
	free(d.bytes);
}

/* As many as there is room for, and more: all of them are there. */
static void test_many_later(void)
{
	const size_t each = WRITER_LATER / 4;
	struct dj_error err = { 0 };
	struct dj_writer *w = dj_writer_create(path, &meta, &err);
	uint8_t *module = calloc(1, each);
	char name[8];
	size_t size;

	CU_ASSERT_PTR_NOT_NULL_FATAL(module);
	for (int i = 0; i < 12; i++) {
		module[each - 1] = (uint8_t)i;
		snprintf(name, sizeof(name), "/%d", i);
		CU_ASSERT_EQUAL(dj_writer_module(w, name, module, each, &err), i);
	}
	struct dj_trace *t = reopen(w);
	CU_ASSERT_EQUAL(dj_trace_modules(t), 12);
	for (unsigned i = 0; i < 12; i++) {
		const uint8_t *got = dj_trace_module_bytes(t, i, &size, &err);
		CU_ASSERT(got && size == each && got[each - 1] == i);
	}
	dj_trace_close(t);
	free(module);
}

/* Processes end while others pack what they began with, more of them than workers are kept. */
static void test_many_begin(void)
{
	static const struct dj_trace_meta meta;
	enum { PROCESSES = 40, SIZE = 300000 };
	struct dj_error err = { 0 };
	struct dj_writer *w = dj_writer_create(path, &meta, &err);
	uint8_t *bytes = malloc(SIZE);

	CU_ASSERT_PTR_NOT_NULL_FATAL(bytes);
	for (uint32_t i = 0; i < PROCESSES; i++) {
		struct dj_stream *p = dj_writer_process(w, (int32_t)i + 1, NULL, &err);
		for (uint32_t image = 0; image < 2; image++) {
			struct dj_snapshot *s = dj_snapshot_new(image);
			CU_ASSERT_FATAL(p && s && dj_snapshot_room(s, SIZE));
			sample_memory(dj_snapshot_room(s, SIZE), SIZE, SEED + 2 * i + image);
			CU_ASSERT_EQUAL(dj_snapshot_add(s, 0x10000, SIZE), 0);
			dj_stream_snapshot_later(p, s);
		}
		CU_ASSERT_EQUAL(dj_stream_close(p, &err), 0);
	}
	struct dj_trace *t = reopen(w);
	CU_ASSERT_PTR_NULL(dj_trace_damage(t));
	CU_ASSERT_EQUAL(dj_trace_processes(t), PROCESSES);
	for (uint32_t i = 0; i < 2 * PROCESSES; i++) {
		uint8_t *got = malloc(SIZE);
		CU_ASSERT_PTR_NOT_NULL_FATAL(got);
		sample_memory(bytes, SIZE, SEED + i);
		CU_ASSERT_EQUAL(dj_trace_snapshot(t, i / 2, i % 2, 0x10000, got, SIZE), SIZE);
		CU_ASSERT_EQUAL(memcmp(got, bytes, SIZE), 0);
		free(got);
	}
	dj_trace_close(t);
	free(bytes);
}

CU_TestInfo streams_writing[] = {
	{ "several threads", test_at_once },
	{ "no room", test_at_once_no_room },
	{ "in a hurry", test_hurry },
	{ "modules, later", test_later },
	{ "many modules, later", test_many_later },
	{ "many processes' start memory, later", test_many_begin },
	CU_TEST_INFO_NULL,
};
