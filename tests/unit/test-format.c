/*
 * The trace format: registers, round trips of random records, facts, and what becomes of traces
 * that are cut, damaged, foreign or could not be written.
 */
#include "format/bytes.h"
#include "format/chunk.h"
#include "format/cpu.h"
#include "format/trace.h"
#include "tests/lib/random.h"
#include "tests/lib/suites.h"
#include "tests/lib/trace-sample.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEED 20240817
/* xxhsum -H3 of the mask (little-endian) and zero bytes for all parts */
#define DIGEST_OF_ZEROS 0x9276adeb15fadccaull

static char path[64];

static const struct sample_shape small = {
	.threads = 4, .processes = 2, .records = 12, .flush = 4, .module = 300, .memory = 500
};
static const struct sample_shape large = {
	.threads = 3, .records = 30000, .flush = 7001, .module = 2500000, .memory = 700000
};

static void write_sample(const struct sample_shape *shape)
{
	struct dj_error err = { 0 };

	CU_ASSERT_EQUAL_FATAL(sample_write(path, shape, SEED, &err), 0);
}

/* ---- registers -------------------------------------------------------------------- */

static void test_regs_pack(void)
{
	uint64_t rng = SEED;

	for (int i = 0; i < 2000; i++) {
		uint8_t packed[DJ_REGS_PACKED_MAX];
		struct dj_regs a, b, c;
		uint64_t mask = random_next(&rng) & DJ_REG_ALL, got = 0;
		size_t n;

		if (i % 16 == 0)
			mask = DJ_REG_ALL;
		sample_fill(&rng, &a, sizeof(a));
		sample_fill(&rng, &b, sizeof(b));
		c = b;
		n = dj_regs_pack(&a, mask, packed);
		CU_ASSERT(n <= sizeof(packed));
		CU_ASSERT(mask != DJ_REG_ALL || n == DJ_REGS_PACKED_MAX);
		CU_ASSERT_EQUAL(dj_regs_unpack(&b, &got, packed, n - 1), 0);
		CU_ASSERT_EQUAL(dj_regs_diff(&b, &c), 0);
		CU_ASSERT_EQUAL(dj_regs_unpack(&b, &got, packed, n), n);
		CU_ASSERT_EQUAL(got, mask);
		CU_ASSERT_EQUAL(dj_regs_diff(&a, &b) & mask, 0);
		CU_ASSERT_EQUAL(dj_regs_diff(&b, &c) & ~mask, 0);
		packed[3] |= 0x80; /* bit 31 names nothing */
		CU_ASSERT_EQUAL(dj_regs_unpack(&b, &got, packed, n), 0);
	}
}

static void test_regs_digest(void)
{
	uint64_t rng = SEED;
	struct dj_regs a, b;

	sample_fill(&rng, &a, sizeof(a));
	b = a;
	b.rflags++, b.cs++, b.gs++, b.fop++, b.fip++, b.fdp++;
	CU_ASSERT_EQUAL(dj_regs_digest(&a), dj_regs_digest(&b));
	CU_ASSERT_EQUAL(dj_regs_diff(&a, &b), DJ_REG_RFLAGS | DJ_REG_SEGS | DJ_REG_X87);
#define DIFFERS(change)                                                                            \
	b = a;                                                                                     \
	b.change++;                                                                                \
	CU_ASSERT_NOT_EQUAL(dj_regs_digest(&a), dj_regs_digest(&b))
	DIFFERS(gpr[DJ_R15]);
	DIFFERS(rip);
	DIFFERS(fs_base);
	DIFFERS(gs_base);
	DIFFERS(mxcsr);
	DIFFERS(fcw);
	DIFFERS(fsw);
	DIFFERS(ftw);
	DIFFERS(st_mant[0]);
	DIFFERS(st_exp[7]);
	DIFFERS(ymm[0][0]);
	DIFFERS(ymm[15][31]);
	/* part of the format: the same on every host and for ever */
	memset(&a, 0, sizeof(a));
	CU_ASSERT_EQUAL(dj_regs_digest(&a), DIGEST_OF_ZEROS);
	CU_ASSERT_STRING_EQUAL(dj_regs_part_name(DJ_REG_X87 | DJ_REG_YMM(3)), "x87");
	CU_ASSERT_STRING_EQUAL(dj_regs_part_name(DJ_REG_YMM(3)), "ymm3");
	CU_ASSERT_STRING_EQUAL(dj_regs_part_name(0), "?");
}

/* ---- whole traces -------------------------------------------------------------------- */

/* What a reader serves of a thread must be the beginning of what was written. Returns the
 * number of records, or -1 if they differ. */
static int64_t count_prefix(struct dj_trace *t, size_t i, const struct sample_shape *shape)
{
	struct sample_stream *s = malloc(sizeof(*s));
	struct dj_error err = { 0 };
	struct dj_cursor *c = dj_cursor_new(t, i, &err);
	const struct dj_record *got, *want = NULL;
	bool late = dj_trace_thread(t, i)->late, used = false; /* `want` has not been served */
	int64_t n = 0;

	sample_start(s, (unsigned)(dj_trace_thread(t, i)->tid - SAMPLE_TID), SEED, shape->records);
	while (n >= 0 && (got = dj_cursor_next(c, &err))) {
		/* what others caused may come as soon as a number shows that it must have */
		if (dj_record_is_fact(got->kind) && got->thread != (int32_t)i)
			continue;
		if (!used)
			want = sample_next(s);
		used = false;
		/* a history that begins with a keyframe, and the facts that hold there */
		while (late && !n && want && !sample_equal(got, want))
			want = sample_next(s);
		if (late && want && dj_record_is_fact(got->kind) && !sample_equal(got, want)) {
			used = true;
			continue;
		}
		n = want && sample_equal(got, want) ? n + 1 : -1;
	}
	if (err.text[0] || (n >= 0 && (uint64_t)n != dj_trace_thread(t, i)->records))
		n = -1;
	dj_cursor_free(c);
	free(s);
	return n;
}

static void test_round_trip(void)
{
	struct dj_error err = { 0 };
	struct dj_trace *t;
	const struct dj_trace_meta *m;

	write_sample(&large);
	t = dj_trace_open(path, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	CU_ASSERT_PTR_NULL(dj_trace_damage(t));
	CU_ASSERT_EQUAL(dj_trace_threads(t), 3);
	for (size_t i = 0; i < 3; i++)
		CU_ASSERT_EQUAL(count_prefix(t, i, &large), (int64_t)large.records);
	m = dj_trace_meta(t);
	CU_ASSERT_EQUAL(m->digest_interval, 1000000);
	CU_ASSERT_EQUAL(m->start_time_ns, 1700000000000000000);
	CU_ASSERT_EQUAL(m->pid, SAMPLE_TID);
	CU_ASSERT_EQUAL(m->page_size, 4096);
	CU_ASSERT_EQUAL(m->memory_model, 1);
	CU_ASSERT_STRING_EQUAL(m->cpu, "a processor");
	CU_ASSERT_STRING_EQUAL(m->cwd, "/tmp");
	CU_ASSERT_STRING_EQUAL(m->argv[1], "an argument");
	CU_ASSERT_PTR_NULL(m->argv[2]);
	CU_ASSERT_STRING_EQUAL(m->envp[1], "EMPTY=");
	CU_ASSERT_PTR_NULL(m->envp[3]);
	CU_ASSERT(m->auxv_len == 16 && m->auxv[9] == 0x10);
	CU_ASSERT(dj_trace_end(t)->present && dj_trace_end(t)->status == 3 << 8);
	CU_ASSERT_EQUAL(dj_trace_end(t)->steps, 12345);
	size_t n;
	const struct dj_trace_count *counts = dj_trace_counts(t, &n);
	CU_ASSERT_EQUAL_FATAL(n, 2);
	CU_ASSERT_STRING_EQUAL(counts[0].name, "some");
	CU_ASSERT_EQUAL(counts[0].value, 17);
	CU_ASSERT_STRING_EQUAL(counts[1].name, "others");
	CU_ASSERT_EQUAL(counts[1].value, UINT64_MAX);
	CU_ASSERT_PTR_NULL(dj_trace_thread(t, 3));
	CU_ASSERT_PTR_NULL(dj_cursor_new(t, 3, &err));
	dj_trace_close(t);
}

static void test_marks(void)
{
	enum { MARKS = 300 };
	struct dj_mark marks[MARKS];
	struct {
		uint64_t steps, addr;
		unsigned kind;
	} want[MARKS];
	struct dj_error err = { 0 };
	struct dj_trace *t;
	struct dj_cursor *c, *other;
	const struct dj_record *rec = &(struct dj_record){ 0 };
	uint64_t rng = SEED, others = 0;
	size_t n = 0;

	write_sample(&large);
	t = dj_trace_open(path, &err);
	c = dj_cursor_new(t, 1, &err);
	other = dj_cursor_new(t, 1, &err);
	for (uint64_t i = 0; rec; i++) {
		bool take = n < MARKS - 1 && (i % 7001 < 2 || random_next(&rng) % 100 == 0);

		if (take)
			dj_cursor_mark(c, &marks[n]);
		rec = dj_cursor_next(c, &err);
		others += rec && dj_record_is_fact(rec->kind) && rec->thread != 1;
		if (take && rec) {
			want[n].steps = rec->steps;
			want[n].addr = rec->addr;
			want[n++].kind = rec->kind;
		}
	}
	CU_ASSERT(others > 1000);
	CU_ASSERT(n > 100);
	dj_cursor_mark(c, &marks[n]);
	for (int i = 0; i < 2000; i++) {
		struct dj_cursor *use = i % 2 ? c : other;
		size_t k = random_next(&rng) % n;

		CU_ASSERT_EQUAL(dj_cursor_restore(use, &marks[k], &err), 0);
		rec = dj_cursor_next(use, &err);
		CU_ASSERT_FATAL(rec && rec->steps == want[k].steps && rec->addr == want[k].addr &&
				rec->kind == want[k].kind);
	}
	CU_ASSERT_EQUAL(dj_cursor_restore(other, &marks[n], &err), 0);
	CU_ASSERT_PTR_NULL(dj_cursor_next(other, &err));
	CU_ASSERT_EQUAL(err.text[0], 0);
	marks[0].own.chunk = 1000000;
	CU_ASSERT_EQUAL(dj_cursor_restore(other, &marks[0], &err), -1);
	dj_cursor_free(c);
	dj_cursor_free(other);
	dj_trace_close(t);
}

static void test_modules(void)
{
	static const struct dj_trace_meta meta;
	struct dj_error err = { 0 };
	struct dj_writer *w = dj_writer_create(path, &meta, &err);
	uint8_t *bytes = malloc(3000000);
	const uint8_t *got;
	struct dj_trace *t;
	size_t size = 1;

	sample_module(bytes, 3000000, 0, SEED);
	CU_ASSERT_EQUAL(dj_writer_module(w, "/a", bytes, 3000000, &err), 0);
	CU_ASSERT_EQUAL(dj_writer_module(w, "/b", bytes, 0, &err), 1);
	CU_ASSERT_EQUAL(dj_writer_module(w, "/a", bytes, 3000000, &err), 0);
	CU_ASSERT_EQUAL(dj_writer_module(w, "/c", bytes, 3000000, &err), 2);
	CU_ASSERT_EQUAL(dj_writer_module(w, "/a", bytes, 2999999, &err), 3);
	CU_ASSERT_EQUAL(dj_writer_close(w, NULL, &err), 0);
	t = dj_trace_open(path, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	CU_ASSERT_EQUAL(dj_trace_modules(t), 4);
	CU_ASSERT_STRING_EQUAL(dj_trace_module(t, 2)->path, "/c");
	CU_ASSERT_EQUAL(dj_trace_module(t, 2)->size, 3000000);
	CU_ASSERT_EQUAL(dj_trace_module(t, 2)->build_id_len, 16);
	got = dj_trace_module_bytes(t, 2, &size, &err);
	CU_ASSERT_FATAL(got && size == 3000000);
	CU_ASSERT_EQUAL(memcmp(got, bytes, size), 0);
	CU_ASSERT_PTR_EQUAL(dj_trace_module_bytes(t, 2, &size, &err), got);
	CU_ASSERT(dj_trace_module_bytes(t, 1, &size, &err) && size == 0);
	CU_ASSERT_PTR_NULL(dj_trace_module_bytes(t, 4, &size, &err));
	CU_ASSERT_PTR_NULL(dj_trace_module(t, 4));
	dj_trace_close(t);
	free(bytes);
}

/* An ELF file goes by its build id: two different contents with one id are one module. */
static void test_build_id(void)
{
	static const struct dj_trace_meta meta;
	/* Elf64_Ehdr with one program header at 64: PT_NOTE at 120, 36 bytes */
	uint8_t elf[160] = "\177ELF\2\1\1";
	struct dj_error err = { 0 };
	struct dj_writer *w = dj_writer_create(path, &meta, &err);
	struct dj_trace *t;

	elf[32] = 64, elf[56] = 1;
	elf[64] = 4, elf[72] = 120, elf[96] = 36;
	elf[120] = 4, elf[124] = 20, elf[128] = 3;
	memcpy(elf + 132, "GNU\0 twenty bytes of id.", 24);
	CU_ASSERT_EQUAL(dj_writer_module(w, "/a", elf, sizeof(elf), &err), 0);
	elf[159] = 1;
	CU_ASSERT_EQUAL(dj_writer_module(w, "/a", elf, sizeof(elf), &err), 0);
	elf[150] = 1;
	CU_ASSERT_EQUAL(dj_writer_module(w, "/a", elf, sizeof(elf), &err), 1);
	elf[96] = 35; /* the note is cut: a hash instead */
	CU_ASSERT_EQUAL(dj_writer_module(w, "/a", elf, sizeof(elf), &err), 2);
	CU_ASSERT_EQUAL(dj_writer_close(w, NULL, &err), 0);
	t = dj_trace_open(path, &err);
	CU_ASSERT_EQUAL(dj_trace_module(t, 0)->build_id_len, 20);
	CU_ASSERT_EQUAL(memcmp(dj_trace_module(t, 0)->build_id, " twenty bytes of id.", 20), 0);
	CU_ASSERT_EQUAL(dj_trace_module(t, 2)->build_id_len, 16);
	dj_trace_close(t);
}

static void test_snapshots(void)
{
	static const struct dj_trace_meta meta;
	enum { SIZE = 700000 };
	struct dj_error err = { 0 };
	struct dj_writer *w = dj_writer_create(path, &meta, &err);
	struct dj_stream *p = dj_writer_process(w, 1, NULL, &err),
			 *q = dj_writer_process(w, 2, p, &err);
	uint8_t *bytes = malloc(SIZE), *got = malloc(SIZE + 100);
	struct dj_trace *t;

	sample_memory(bytes, SIZE, SEED);
	dj_stream_snapshot(p, 0, 0x10000, bytes, SIZE, &err);
	dj_stream_snapshot(q, 0, 0x10000, "another", 8, &err);
	dj_stream_snapshot(p, 0, 0x20000, "over it", 7, &err);
	dj_stream_snapshot(p, 0, 0x10000 + SIZE, "behind it", 9, &err);
	dj_stream_snapshot(p, 1, 0x10000, bytes + 1, 5, &err);
	dj_stream_snapshot(p, 3, 0xfffffffffffffff0, bytes, 16, &err);
	CU_ASSERT_EQUAL(dj_writer_close(w, NULL, &err), 0);
	t = dj_trace_open(path, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	CU_ASSERT_EQUAL(dj_trace_processes(t), 2);
	CU_ASSERT(dj_trace_process(t, 0)->pid == 1 && dj_trace_process(t, 0)->parent == -1);
	CU_ASSERT(dj_trace_process(t, 1)->pid == 2 && dj_trace_process(t, 1)->parent == 0);
	/* up to the end of the known, over the border of two calls */
	CU_ASSERT_EQUAL(dj_trace_snapshot(t, 0, 0, 0x10000, got, SIZE + 100), SIZE + 9);
	memcpy(bytes + 0x10000, "over it", 7);
	CU_ASSERT_EQUAL(memcmp(got, bytes, SIZE), 0);
	CU_ASSERT_EQUAL(memcmp(got + SIZE, "behind it", 9), 0);
	CU_ASSERT_EQUAL(dj_trace_snapshot(t, 0, 0, 0x20002, got, 3), 3);
	CU_ASSERT_EQUAL(memcmp(got, "er ", 3), 0);
	CU_ASSERT_EQUAL(dj_trace_snapshot(t, 0, 0, 0xffff, got, 1), 0);
	/* images do not mix, nor do processes */
	CU_ASSERT_EQUAL(dj_trace_snapshot(t, 0, 1, 0x10000, got, 100), 5);
	CU_ASSERT_EQUAL(memcmp(got, bytes + 1, 5), 0);
	CU_ASSERT_EQUAL(dj_trace_snapshot(t, 0, 1, 0x20000, got, 1), 0);
	CU_ASSERT_EQUAL(dj_trace_snapshot(t, 0, 2, 0x10000, got, 100), 0);
	CU_ASSERT_EQUAL(dj_trace_snapshot(t, 0, 3, 0xfffffffffffffff8, got, 100), 8);
	CU_ASSERT_EQUAL(dj_trace_snapshot(t, 0, UINT32_MAX, 0x10000, got, 100), 0);
	CU_ASSERT_EQUAL(dj_trace_snapshot(t, 1, 0, 0x10000, got, 100), 8);
	CU_ASSERT_STRING_EQUAL((char *)got, "another");
	CU_ASSERT_EQUAL(dj_trace_snapshot(t, 1, 1, 0x10000, got, 100), 0);
	CU_ASSERT_EQUAL(dj_trace_snapshot(t, 2, 0, 0x10000, got, 100), 0);
	dj_trace_close(t);
	free(bytes);
	free(got);
}

/* The number of a thread that ended may be used again. */
static void test_same_tid(void)
{
	static const struct dj_trace_meta meta;
	struct dj_record rec = { .kind = DJ_REC_DIGEST, .steps = 10 };
	struct dj_error err = { 0 };
	struct dj_writer *w = dj_writer_create(path, &meta, &err);
	struct dj_stream *p = dj_writer_process(w, 5, NULL, &err);
	struct dj_stream *first = dj_writer_thread(w, p, 5, "first", &err), *second;
	struct dj_trace *t;

	dj_stream_record(first, &rec, &err);
	CU_ASSERT_EQUAL(dj_stream_close(first, &err), 0);
	second = dj_writer_thread(w, p, 5, "second", &err);
	rec.kind = DJ_REC_EFFECTS;
	rec.steps = 3;
	dj_stream_record(second, &rec, &err);
	CU_ASSERT_EQUAL(dj_writer_close(w, NULL, &err), 0);
	t = dj_trace_open(path, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	CU_ASSERT_EQUAL(dj_trace_threads(t), 2);
	CU_ASSERT_STRING_EQUAL(dj_trace_thread(t, 1)->name, "second");
	CU_ASSERT_EQUAL(dj_trace_thread(t, 0)->last_steps, 10);
	CU_ASSERT_EQUAL(dj_trace_thread(t, 1)->last_steps, 4); /* the instruction counts */
	dj_trace_close(t);
}

/* ---- cut and damaged ------------------------------------------------------------------- */

/* Use everything in a trace that may be damaged; all records must be right. Returns how many
 * there are. */
static int64_t use_all(struct dj_trace *t, const struct sample_shape *shape)
{
	uint8_t memory[600], want[600];
	int64_t total = 0;

	for (size_t i = 0; i < dj_trace_threads(t); i++) {
		int64_t n = count_prefix(t, i, shape);

		CU_ASSERT_FATAL(n >= 0);
		total += n;
	}
	for (unsigned i = 0; i < dj_trace_modules(t); i++) {
		struct dj_error err = { 0 };
		size_t size;
		const uint8_t *bytes = dj_trace_module_bytes(t, i, &size, &err);

		sample_module(want, shape->module, i, SEED);
		CU_ASSERT_FATAL(bytes ? size == shape->module && !memcmp(bytes, want, size)
				      : err.exit_status == 2 && err.text[0]);
	}
	sample_memory(want, shape->memory, SEED);
	CU_ASSERT_FATAL(!memcmp(memory, want,
				dj_trace_snapshot(t, 0, 0, SAMPLE_ADDR, memory, sizeof(memory))));
	return total;
}

static void test_truncation(void)
{
	struct dj_error err;
	size_t len, opened = 0;
	int64_t before = 0;
	uint8_t *bytes, *exact;

	write_sample(&small);
	bytes = sample_read(path, &len);
	for (size_t n = 0; n < len; n++) {
		struct dj_trace *t;

		/* so that a sanitizer sees a read past the end */
		exact = malloc(n ? n : 1);
		memcpy(exact, bytes, n);
		err = (struct dj_error){ 0 };
		t = dj_trace_open_memory(exact, n, &err);
		if (t) {
			int64_t records = use_all(t, &small);

			CU_ASSERT_FATAL(records >= before);
			CU_ASSERT_PTR_NOT_NULL_FATAL(dj_trace_damage(t));
			before = records;
			opened++;
		} else {
			CU_ASSERT_FATAL(opened == 0 && err.exit_status == 2 && err.text[0]);
		}
		dj_trace_close(t);
		free(exact);
	}
	CU_ASSERT_EQUAL(before, (int64_t)(small.threads * small.records));
	CU_ASSERT(opened > len / 2);
	free(bytes);
}

static void flip_all(const struct sample_shape *shape)
{
	struct dj_error err;
	uint64_t rng = SEED;
	size_t len, refused = 0;
	uint8_t *bytes = sample_read(path, &len);

	for (size_t i = 0; i < 2 * len; i++) {
		uint8_t *byte = &bytes[i / 2], was = *byte;
		struct dj_trace *t;

		*byte ^= i % 2 ? 0xff : (uint8_t)(1 << random_next(&rng) % 8);
		err = (struct dj_error){ 0 };
		t = dj_trace_open_memory(bytes, len, &err);
		if (t) {
			CU_ASSERT_PTR_NOT_NULL_FATAL(dj_trace_damage(t));
			/* one chunk is lost at most, and what follows it in its thread or in
			 * those of its process */
			CU_ASSERT(use_all(t, shape) >=
				  (int64_t)(shape->threads / 2 * shape->records));
		} else {
			CU_ASSERT_FATAL(err.exit_status == 2 && err.text[0]);
			refused++;
		}
		dj_trace_close(t);
		*byte = was;
	}
	CU_ASSERT(refused < 1300); /* header and description */
	free(bytes);
}

static void test_flips(void)
{
	static const struct sample_shape no_end = {
		.threads = 1, .records = 10, .flush = 3, .module = 30, .memory = 100, .no_end = true
	};

	write_sample(&small);
	flip_all(&small);
	write_sample(&no_end);
	flip_all(&no_end);
}

static size_t times_of(const struct dj_trace *t, size_t thread, struct dj_time **times)
{
	struct dj_error err = { 0 };
	size_t n;

	CU_ASSERT_EQUAL_FATAL(dj_trace_times(t, thread, times, &n, &err), 0);
	for (size_t i = 1; i < n; i++)
		if ((*times)[i].us < (*times)[i - 1].us ||
		    (*times)[i].steps < (*times)[i - 1].steps)
			CU_FAIL("times go back");
	return n;
}

/* All that were written are read, but for those beyond the history, and of very many some. What is
 * lost or makes no sense takes nothing else with it. */
static void test_times(void)
{
	struct sample_shape shape = { .threads = 2, .records = 300, .flush = 300, .times = 3000 };
	struct dj_error err = { 0 };
	struct dj_time *times;
	uint64_t last;
	size_t len, n, first = 0, chunks = 0;
	uint8_t *bytes;

	write_sample(&shape);
	bytes = sample_read(path, &len);
	struct dj_trace *t = dj_trace_open_memory(bytes, len, &err);
	CU_ASSERT_PTR_NULL(dj_trace_damage(t));
	last = dj_trace_thread(t, 1)->last_steps;
	CU_ASSERT_EQUAL(times_of(t, 2, &times), 0);
	n = times_of(t, 1, &times);
	CU_ASSERT_FATAL(last > 1000);
	CU_ASSERT_EQUAL(n, 3000);
	for (size_t i = 0; i < n; i++) {
		struct dj_time want = sample_time(i);
		if (times[i].us != want.us || times[i].steps != want.steps)
			CU_FAIL("not the times that were written");
	}
	free(times);
	dj_trace_close(t);
	for (size_t at = 0; at + 4 < len; at++)
		if (!memcmp(bytes + at, "DJCK", 4) && bytes[at + 4] == 12 && !chunks++)
			first = at;
	CU_ASSERT(chunks >= 4); /* of each thread more than one */
	bytes[first + 90] ^= 1;
	t = dj_trace_open_memory(bytes, len, &err);
	CU_ASSERT_PTR_NOT_NULL(strstr(dj_trace_damage(t), "when a thread was where is lost"));
	CU_ASSERT_EQUAL(dj_trace_thread(t, 0)->records, 300);
	CU_ASSERT(times_of(t, 0, &times) < n);
	free(times);
	CU_ASSERT_EQUAL(times_of(t, 1, &times), n);
	free(times);
	dj_trace_close(t);
	free(bytes);

	shape.threads = 1;
	shape.times = DJ_TIMES_MAX + 10;
	write_sample(&shape);
	t = dj_trace_open(path, &err);
	CU_ASSERT_FATAL(dj_trace_thread(t, 0)->last_steps > shape.times / 3);
	n = times_of(t, 0, &times);
	CU_ASSERT_EQUAL(n, DJ_TIMES_MAX / 2 + 10);
	CU_ASSERT_EQUAL(times[1].us, sample_time(2).us);
	CU_ASSERT_EQUAL(times[n - 1].us, sample_time(shape.times - 1).us);
	free(times);
	dj_trace_close(t);
}

/* The line that says what is wrong names place and consequence. */
static void test_damage_text(void)
{
	struct dj_error err = { 0 };
	struct dj_trace *t;
	size_t len, at;
	uint8_t *bytes;

	write_sample(&small);
	bytes = sample_read(path, &len);
	t = dj_trace_open_memory(bytes, len, &err);
	CU_ASSERT_PTR_NULL(dj_trace_damage(t));
	dj_trace_close(t);
	at = len - 32; /* the last chunk before index, END and COUNTS has records of thread 1003 */
	for (int found = 0; found < 4; at--)
		if (!memcmp(bytes + at, "DJCK", 4))
			found++;
	at++;
	CU_ASSERT_EQUAL(bytes[at + 4], 6);
	bytes[at + 90] ^= 1;
	t = dj_trace_open_memory(bytes, len, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	CU_ASSERT_PTR_NOT_NULL(strstr(dj_trace_damage(t), "history of thread 1003 ends after"));
	CU_ASSERT_PTR_NULL(strchr(dj_trace_damage(t), '\n'));
	CU_ASSERT(dj_trace_thread(t, 3)->records && dj_trace_thread(t, 3)->records < 12);
	CU_ASSERT_EQUAL(dj_trace_thread(t, 0)->records, 12);
	dj_trace_close(t);
	free(bytes);
}

static void expect_refused(const void *bytes, size_t len, const char *text)
{
	struct dj_error err = { 0 };
	struct dj_trace *t = dj_trace_open_memory(bytes, len, &err);

	CU_ASSERT_PTR_NULL(t);
	CU_ASSERT_EQUAL(err.exit_status, 2);
	if (!strstr(err.text, text))
		printf("\n  got: %s\n", err.text);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, text));
	CU_ASSERT_PTR_NULL(strchr(err.text, '\n'));
	dj_trace_close(t);
}

static void test_refused(void)
{
	static const char elf[200] = "\177ELF\2\1\1";
	uint8_t header[FILE_HEADER_SIZE];
	size_t len;
	uint8_t *bytes;

	write_sample(&small);
	bytes = sample_read(path, &len);
	expect_refused(bytes, 0, "empty");
	expect_refused(elf, sizeof(elf), "not a deja trace");
	expect_refused(elf, 1, "not a deja trace");
	dj_file_header_pack(header, 1, 77);
	expect_refused(header, sizeof(header),
		       "trace format version 1; this deja reads versions 2 to 7");
	expect_refused(bytes, 20, "cut off in its header");
	expect_refused(bytes, 40, "cut off or damaged in its description");
	bytes[8] = 8;
	expect_refused(bytes, len, "trace format version 8; this deja reads versions 2 to 7");
	bytes[8] = 2;
	bytes[30] ^= 4;
	expect_refused(bytes, len, "header of the trace is damaged");
	free(bytes);
}

static void test_refused_files(void)
{
	struct dj_error err = { 0 };

	CU_ASSERT_PTR_NULL(dj_trace_open("/", &err));
	CU_ASSERT(err.exit_status == 2 && strstr(err.text, "directory"));
	CU_ASSERT_PTR_NULL(dj_trace_open("/dev/zero", &err));
	CU_ASSERT_EQUAL(err.exit_status, 2);
	CU_ASSERT_PTR_NULL(dj_trace_open("/no such file", &err));
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "No such file"));
}

/* ---- no room -------------------------------------------------------------------------- */

static void test_full_device(void)
{
	static const struct dj_trace_meta meta;
	struct dj_error err = { 0 };

	if (access("/dev/full", W_OK))
		return;
	CU_ASSERT_PTR_NULL(dj_writer_create("/dev/full", &meta, &err));
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, strerror(ENOSPC)));
	CU_ASSERT_EQUAL(err.exit_status, 1);
	CU_ASSERT_PTR_NULL(dj_writer_create("/no such directory/file", &meta, &err));
}

static void test_file_limit(void)
{
	struct rlimit old, now;
	uint64_t rng = SEED;

	getrlimit(RLIMIT_FSIZE, &old);
	now = old;
	for (int i = 0; i < 12; i++) {
		struct dj_error err = { 0 };
		struct dj_trace *t;
		struct stat st;
		int r;

		now.rlim_cur = 3000000 + random_next(&rng) % 3000000;
		setrlimit(RLIMIT_FSIZE, &now);
		r = sample_write(path, &large, SEED, &err);
		setrlimit(RLIMIT_FSIZE, &old);
		CU_ASSERT_EQUAL(r, -1);
		CU_ASSERT_EQUAL(err.exit_status, 1);
		CU_ASSERT_PTR_NOT_NULL(strstr(err.text, strerror(EFBIG)));
		t = dj_trace_open(path, &err);
		CU_ASSERT_PTR_NOT_NULL_FATAL(t);
		CU_ASSERT_PTR_NOT_NULL_FATAL(dj_trace_damage(t));
		/* cut back to a whole chunk */
		CU_ASSERT(!stat(path, &st) && (uint64_t)st.st_size == dj_trace_file_size(t));
		CU_ASSERT_PTR_NOT_NULL(
			strstr(dj_trace_damage(t), "the recording was cut off there"));
		for (size_t k = 0; k < dj_trace_threads(t); k++)
			CU_ASSERT(count_prefix(t, k, &large) >= 0);
		dj_trace_close(t);
	}
}

static void test_cpu_kinds(void)
{
	static const struct {
		const char *line;
		enum dj_cpu_kind kind;
		/* clang-format off */
	} lines[] = {
		{ "AMD EPYC 9755 128-Core Processor (AuthenticAMD family 26 model 2)", DJ_CPU_AMD },
		{ "AMD EPYC (AuthenticAMD family 23 model 49, BSF keeps flags)", DJ_CPU_AMD_KEEPS },
		{ "unnamed (CentaurHauls family 7 model 59, BSF keeps flags)", DJ_CPU_INTEL },
		{ "QEMU Virtual CPU version 2.5+ (AuthenticAMD family 15 model 107)", DJ_CPU_AMD },
		{ "Hygon C86 7285 32-core Processor (HygonGenuine family 24 model 1)", DJ_CPU_AMD },
		{ "Intel(R) Xeon(R) Processor (GenuineIntel family 6 model 143)", DJ_CPU_INTEL },
		{ "unnamed (CentaurHauls family 7 model 59)", DJ_CPU_INTEL },
		/* the model name alone */
		{ "AMD Ryzen 7 7840U", DJ_CPU_AMD },
		{ "Intel(R) Xeon(R) Platinum 8481C CPU", DJ_CPU_INTEL },
		{ "unknown", DJ_CPU_INTEL },
		{ "", DJ_CPU_INTEL },
		{ NULL, DJ_CPU_INTEL },
	};
	/* clang-format on */
	char line[128];

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		CU_ASSERT(dj_cpu_kind_of(lines[i].line) == lines[i].kind);
	dj_cpu_describe(line, sizeof(line));
	CU_ASSERT(line[0] && dj_cpu_kind_of(line) == dj_cpu_host());
}

int main(void)
{
	CU_TestInfo regs[] = { { "pack and unpack", test_regs_pack },
			       { "digest", test_regs_digest },
			       CU_TEST_INFO_NULL };
	CU_TestInfo whole[] = { { "round trip", test_round_trip },
				{ "marks", test_marks },
				{ "modules", test_modules },
				{ "build ids", test_build_id },
				{ "start memory", test_snapshots },
				{ "thread number used again", test_same_tid },
				{ "kinds of processors", test_cpu_kinds },
				CU_TEST_INFO_NULL };
	CU_TestInfo damaged[] = { { "cut at every byte", test_truncation },
				  { "every byte changed", test_flips },
				  { "what is said", test_damage_text },
				  { "times", test_times },
				  { "refused", test_refused },
				  { "refused files", test_refused_files },
				  CU_TEST_INFO_NULL };
	CU_TestInfo room[] = { { "full device", test_full_device },
			       { "file size limit", test_file_limit },
			       CU_TEST_INFO_NULL };
	CU_SuiteInfo suites[] = { { "registers", NULL, NULL, NULL, NULL, regs },
				  { "whole traces", NULL, NULL, NULL, NULL, whole },
				  { "cut and damaged traces", NULL, NULL, NULL, NULL, damaged },
				  { "no room", NULL, NULL, NULL, NULL, room },
				  CU_SUITE_INFO_NULL };
	int failed;

	printf("seed %d\n", SEED);
	snprintf(path, sizeof(path), "/tmp/deja-test-format-%d.deja", (int)getpid());
	suites_begin();
	CU_register_suites(suites);
	failed = suites_run();
	unlink(path);
	return failed;
}
