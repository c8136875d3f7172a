/* Made-up traces (tests/lib/trace-sample.h). */
#include "tests/lib/trace-sample.h"
#include "tests/lib/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void sample_fill(uint64_t *state, void *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		((uint8_t *)bytes)[i] = (uint8_t)random_next(state);
}

/* A number of random size, so that all lengths of varints occur. */
static uint64_t some_number(uint64_t *state)
{
	return random_next(state) >> random_next(state) % 64;
}

void sample_start(struct sample_stream *s, unsigned thread, uint64_t seed, uint64_t count)
{
	memset(s, 0, sizeof(*s));
	s->rng = seed * 1000003 + thread;
	s->count = count;
}

static void fill_regs(struct sample_stream *s, struct dj_record *r)
{
	r->mask = random_next(&s->rng) & random_next(&s->rng) & DJ_REG_ALL;
	if (random_next(&s->rng) % 8 == 0)
		r->mask = DJ_REG_ALL;
	sample_fill(&s->rng, &r->regs, sizeof(r->regs));
}

static const char *some_name(struct sample_stream *s)
{
	if (random_next(&s->rng) % 4 == 0)
		return NULL;
	snprintf(s->name, sizeof(s->name), "/lib/%.*s.so", (int)(random_next(&s->rng) % 20),
		 "abcdefghijklmnopqrstuvwxyz");
	return s->name;
}

const struct dj_record *sample_next(struct sample_stream *s)
{
	struct dj_record *r = &s->rec;

	if (s->made == s->count)
		return NULL;
	s->made++;
	memset(r, 0, sizeof(*r));
	/* imports are what a trace mostly has */
	r->kind = random_next(&s->rng) % 2 ? DJ_REC_IMPORT
					   : 1 + random_next(&s->rng) % (DJ_REC_KINDS - 1);
	if (*dj_record_kind_name(r->kind) == '?')
		r->kind = DJ_REC_CHECK;
	if (r->kind == DJ_REC_EXEC && random_next(&s->rng) % 16)
		r->kind = DJ_REC_IMPORT;
	if (random_next(&s->rng) % 3)
		s->steps += some_number(&s->rng) >> 20;
	r->steps = s->steps;
	r->rep = random_next(&s->rng) % 8 ? 0 : some_number(&s->rng);
	r->ordinal = random_next(&s->rng) % 4 ? 0 : (uint8_t)some_number(&s->rng);
	if (dj_record_is_fact(r->kind)) {
		r->rep = 0;
		r->ordinal = 0;
	}
	r->addr = some_number(&s->rng);
	r->length = some_number(&s->rng);
	r->prot = (uint32_t)some_number(&s->rng);
	r->flags = (uint32_t)some_number(&s->rng);
	r->module = (int)(random_next(&s->rng) % 3) - 1;
	r->offset = some_number(&s->rng);
	r->result = random_next(&s->rng) % 2 ? some_number(&s->rng) : -some_number(&s->rng);
	r->r11 = some_number(&s->rng);
	r->signo = (uint32_t)some_number(&s->rng);
	sample_fill(&s->rng, r->siginfo, sizeof(r->siginfo));
	r->why = (uint8_t)(random_next(&s->rng) % DJ_WHYS);
	r->insn_len = (uint8_t)(random_next(&s->rng) % 16);
	sample_fill(&s->rng, r->insn, sizeof(r->insn));
	r->digest = random_next(&s->rng);
	r->pid = (int32_t)some_number(&s->rng);
	r->status = (int32_t)some_number(&s->rng);
	r->seq = random_next(&s->rng) % 4 ? some_number(&s->rng) : DJ_SEQ_UNKNOWN;
	r->what = (uint8_t)some_number(&s->rng);
	if (r->kind == DJ_REC_KEYFRAME) { /* as a writer makes them */
		r->what %= DJ_KEYFRAMES + 1;
		r->seq = s->made;
		r->rep = r->ordinal = 0;
	}
	r->image = (uint32_t)some_number(&s->rng);
	r->subject = -1;
	fill_regs(s, r);
	r->name = some_name(s);
	if (r->kind == DJ_REC_IMPORT)
		r->addr &= ~(uint64_t)(DJ_LINE - 1);
	if (dj_record_has_bytes(r->kind))
		r->length %= random_next(&s->rng) % 8 ? 64 : DJ_CODE_MAX + 1;
	sample_fill(&s->rng, s->bytes, dj_record_has_bytes(r->kind) ? r->length : DJ_LINE);
	r->bytes = s->bytes;
	return r;
}

static bool same_name(const char *a, const char *b)
{
	return a == b || (a && b && !strcmp(a, b));
}

static bool same_regs(const struct dj_record *a, const struct dj_record *b)
{
	return a->mask == b->mask && !(dj_regs_diff(&a->regs, &b->regs) & a->mask);
}

static bool same_bytes(const struct dj_record *a, const struct dj_record *b)
{
	return a->addr == b->addr && a->length == b->length &&
	       !memcmp(a->bytes, b->bytes, a->length);
}

/* Which members count for which kind, as format/record.h says. */
bool sample_equal(const struct dj_record *a, const struct dj_record *b)
{
	if (a->kind != b->kind || a->steps != b->steps || a->rep != b->rep ||
	    a->ordinal != b->ordinal)
		return false;
	if (dj_record_is_fact(a->kind) && a->seq != b->seq)
		return false;
	switch (a->kind) {
	case DJ_REC_IMPORT:
		return a->addr == b->addr && !memcmp(a->bytes, b->bytes, DJ_LINE);
	case DJ_REC_EFFECTS:
		return a->why == b->why && a->insn_len == b->insn_len &&
		       !memcmp(a->insn, b->insn, a->insn_len) && same_regs(a, b);
	case DJ_REC_SYSCALL:
		return a->result == b->result && a->r11 == b->r11;
	case DJ_REC_REGS:
		return same_regs(a, b);
	case DJ_REC_SIGNAL:
		return a->signo == b->signo &&
		       !memcmp(a->siginfo, b->siginfo, sizeof(a->siginfo)) && same_bytes(a, b) &&
		       same_regs(a, b);
	case DJ_REC_MAP:
		return a->addr == b->addr && a->length == b->length && a->prot == b->prot &&
		       a->flags == b->flags && a->module == b->module && a->offset == b->offset &&
		       same_name(a->name, b->name);
	case DJ_REC_UNMAP:
		return a->addr == b->addr && a->length == b->length;
	case DJ_REC_PROTECT:
		return a->addr == b->addr && a->length == b->length && a->prot == b->prot;
	case DJ_REC_CODE:
	case DJ_REC_SYSDATA:
		return same_bytes(a, b);
	case DJ_REC_CHECK:
		return a->length == b->length && !memcmp(a->bytes, b->bytes, a->length);
	case DJ_REC_DIGEST:
		return a->digest == b->digest && a->seq == b->seq && same_regs(a, b);
	case DJ_REC_CHILD:
		return a->pid == b->pid && a->what == b->what && a->subject == b->subject;
	case DJ_REC_EXEC:
		return a->image == b->image && same_name(a->name, b->name);
	case DJ_REC_EXIT:
		return a->status == b->status;
	case DJ_REC_SEQ:
	case DJ_REC_ORDER:
		return a->seq == b->seq;
	case DJ_REC_KEYFRAME:
		return a->seq == b->seq && a->what == b->what && same_bytes(a, b) &&
		       same_regs(a, b) && same_name(a->name, b->name);
	case DJ_REC_GAP:
		return a->length == b->length && same_name(a->name, b->name);
	case DJ_REC_MARK:
		return a->result == b->result && a->what == b->what && same_name(a->name, b->name);
	case DJ_REC_THREAD:
		return a->pid == b->pid && a->what == b->what && a->subject == b->subject &&
		       same_name(a->name, b->name);
	default:
		return same_name(a->name, b->name);
	}
}

/* Half of it easy to compress, so that both encodings of chunks occur. */
static void fill_half(uint8_t *bytes, size_t len, uint64_t rng)
{
	memset(bytes, 0x5a, len);
	sample_fill(&rng, bytes, len / 2);
}

void sample_module(uint8_t *bytes, size_t len, unsigned n, uint64_t seed)
{
	fill_half(bytes, len, seed + 77 * n + 1);
}

void sample_memory(uint8_t *bytes, size_t len, uint64_t seed)
{
	fill_half(bytes, len, seed + 5000);
}

static int write_bulk(struct dj_writer *w, struct dj_stream *process,
		      const struct sample_shape *shape, uint64_t seed, struct dj_error *err)
{
	uint8_t *bytes = malloc(shape->module + shape->memory + 1);
	int r = 0;

	for (unsigned n = 0; n < 2 && !r; n++) {
		char path[32];

		sample_module(bytes, shape->module, n, seed);
		snprintf(path, sizeof(path), "/lib/module%u", n);
		if (dj_writer_module(w, path, bytes, shape->module, err) != (int)n)
			r = -1;
	}
	sample_memory(bytes, shape->memory, seed);
	if (!r)
		r = dj_stream_snapshot(process, 0, SAMPLE_ADDR, bytes, shape->memory, err);
	free(bytes);
	return r;
}

static int write_one(struct dj_stream *stream, struct sample_stream *s, uint64_t flush,
		     struct dj_error *err)
{
	const struct dj_record *rec = sample_next(s);
	int r;

	if (rec->kind == DJ_REC_IMPORT && s->made % 2 == 0)
		r = dj_stream_import(stream, rec->steps, rec->rep, rec->ordinal, rec->addr,
				     rec->bytes, err);
	else
		r = dj_stream_record(stream, rec, err);
	/* a number that the trace then has of this place */
	if (!r && s->made % flush == 0)
		r = dj_stream_flush(stream, rec->steps, s->made, err);
	return r;
}

int sample_write_thread(struct dj_stream *stream, struct sample_stream *s, uint64_t flush,
			struct dj_error *err)
{
	while (s->made < s->count)
		if (write_one(stream, s, flush, err))
			return -1;
	return dj_stream_close(stream, err);
}

struct dj_time sample_time(uint64_t i)
{
	return (struct dj_time){ 1000 * i + i % 7, i / 3 };
}

static int write_times(struct dj_stream *stream, uint64_t n, struct dj_error *err)
{
	int r = 0;

	for (uint64_t i = 0; i < n && !r; i++) {
		struct dj_time time = sample_time(i);

		r = dj_stream_time(stream, &time, err);
	}
	return r;
}

static int write_streams(struct dj_stream **processes, struct dj_writer *w,
			 const struct sample_shape *shape, uint64_t seed, struct dj_error *err)
{
	struct sample_stream *s = calloc(shape->threads, sizeof(*s));
	struct dj_stream **streams = calloc(shape->threads, sizeof(*streams));
	unsigned nprocesses = shape->processes ? shape->processes : 1;
	int r = 0;

	for (unsigned i = 0; i < shape->threads && !r; i++) {
		sample_start(&s[i], i, seed, shape->records);
		streams[i] = dj_writer_thread(w, processes[i % nprocesses], SAMPLE_TID + (int)i,
					      "thread", err);
		r = streams[i] ? 0 : -1;
	}
	for (uint64_t n = 0; n < shape->records && !r; n++)
		for (unsigned i = 0; i < shape->threads && !r; i++)
			r = write_one(streams[i], &s[i], shape->flush, err);
	for (unsigned i = 0; i < shape->threads && !r; i++)
		r = write_times(streams[i], shape->times, err);
	free(streams);
	free(s);
	return r;
}

uint8_t *sample_read(const char *path, size_t *len)
{
	FILE *f = fopen(path, "rb");
	struct stat st;
	uint8_t *bytes;

	if (!f || fstat(fileno(f), &st) || !(bytes = malloc((size_t)st.st_size + 1)))
		abort();
	*len = fread(bytes, 1, (size_t)st.st_size, f);
	fclose(f);
	return bytes;
}

int sample_write(const char *path, const struct sample_shape *shape, uint64_t seed,
		 struct dj_error *err)
{
	static const char *const argv[] = { "prog", "an argument", NULL };
	static const char *const envp[] = { "PATH=/bin", "EMPTY=", "A=B", NULL };
	const struct dj_trace_meta meta = {
		.predict = DJ_PREDICT_SHADOW,
		.shadow_bits = 32,
		.memory_model = 1,
		.digest_interval = 1000000,
		.start_time_ns = 1700000000000000000,
		.pid = SAMPLE_TID,
		.page_size = 4096,
		.deja_version = "1.2",
		.machine = "Linux 6.1 x86_64 host",
		.cpu = "a processor",
		.exe = "/bin/prog",
		.cwd = "/tmp",
		.argv = argv,
		.envp = envp,
		.auxv = (const uint8_t *)"\6\0\0\0\0\0\0\0\0\x10\0\0\0\0\0",
		.auxv_len = 16,
	};
	struct dj_trace_end end = { .present = !shape->no_end,
				    .status = 3 << 8,
				    .steps = 12345,
				    .end_time_ns = 1700000001000000000 };
	struct dj_writer *w = dj_writer_create(path, &meta, err);
	struct dj_stream *processes[SAMPLE_PROCESSES];
	int r = 0;

	if (!w)
		return -1;
	for (unsigned i = 0; !i || i < shape->processes; i++) {
		DJ_ASSERT(i < SAMPLE_PROCESSES, "%u processes", i);
		processes[i] =
			dj_writer_process(w, SAMPLE_TID + (int)i, i ? processes[i - 1] : NULL, err);
		r |= processes[i] ? 0 : -1;
		if (r)
			break;
	}
	if (!r)
		r = write_bulk(w, processes[0], shape, seed, err);
	if (!r)
		r = write_streams(processes, w, shape, seed, err);
	const struct dj_trace_count counts[] = { { "some", 17 }, { "others", UINT64_MAX } };
	if (!r && !shape->no_end)
		r = dj_writer_counts(w, counts, sizeof(counts) / sizeof(*counts), err);
	if (dj_writer_close(w, &end, r ? NULL : err))
		r = -1;
	return r;
}
