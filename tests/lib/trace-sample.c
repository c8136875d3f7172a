/* Made-up traces (tests/lib/trace-sample.h). */
#include "tests/lib/trace-sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* splitmix64 (Steele, Lea, Flood 2014) */
uint64_t sample_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

void sample_fill(uint64_t *state, void *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		((uint8_t *)bytes)[i] = (uint8_t)sample_random(state);
}

/* A number of random size, so that all lengths of varints occur. */
static uint64_t some_number(uint64_t *state)
{
	return sample_random(state) >> sample_random(state) % 64;
}

void sample_start(struct sample_stream *s, unsigned thread, uint64_t seed, uint64_t count)
{
	memset(s, 0, sizeof(*s));
	s->rng = seed * 1000003 + thread;
	s->count = count;
}

static void fill_regs(struct sample_stream *s, struct dj_record *r)
{
	r->mask = sample_random(&s->rng) & sample_random(&s->rng) & DJ_REG_ALL;
	if (sample_random(&s->rng) % 8 == 0)
		r->mask = DJ_REG_ALL;
	sample_fill(&s->rng, &r->regs, sizeof(r->regs));
}

static const char *some_name(struct sample_stream *s)
{
	if (sample_random(&s->rng) % 4 == 0)
		return NULL;
	snprintf(s->name, sizeof(s->name), "/lib/%.*s.so", (int)(sample_random(&s->rng) % 20),
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
	r->kind = sample_random(&s->rng) % 2 ? DJ_REC_IMPORT
					     : 1 + sample_random(&s->rng) % (DJ_REC_KINDS - 1);
	if (r->kind == DJ_REC_EXEC && sample_random(&s->rng) % 16)
		r->kind = DJ_REC_IMPORT;
	if (sample_random(&s->rng) % 3)
		s->steps += some_number(&s->rng) >> 20;
	r->steps = s->steps;
	r->rep = sample_random(&s->rng) % 8 ? 0 : some_number(&s->rng);
	r->ordinal = sample_random(&s->rng) % 4 ? 0 : (uint8_t)some_number(&s->rng);
	r->addr = some_number(&s->rng);
	r->length = some_number(&s->rng);
	r->prot = (uint32_t)some_number(&s->rng);
	r->flags = (uint32_t)some_number(&s->rng);
	r->module = (int)(sample_random(&s->rng) % 3) - 1;
	r->offset = some_number(&s->rng);
	r->result = sample_random(&s->rng) % 2 ? some_number(&s->rng) : -some_number(&s->rng);
	r->r11 = some_number(&s->rng);
	r->signo = (uint32_t)some_number(&s->rng);
	sample_fill(&s->rng, r->siginfo, sizeof(r->siginfo));
	r->why = (uint8_t)(sample_random(&s->rng) % DJ_WHYS);
	r->insn_len = (uint8_t)(sample_random(&s->rng) % 16);
	sample_fill(&s->rng, r->insn, sizeof(r->insn));
	r->digest = sample_random(&s->rng);
	r->pid = (int32_t)some_number(&s->rng);
	r->status = (int32_t)some_number(&s->rng);
	fill_regs(s, r);
	r->name = some_name(s);
	if (r->kind == DJ_REC_IMPORT)
		r->addr &= ~(uint64_t)(DJ_LINE - 1);
	bool long_bytes = r->kind == DJ_REC_CODE || r->kind == DJ_REC_SIGNAL;
	if (long_bytes)
		r->length %= sample_random(&s->rng) % 8 ? 64 : DJ_CODE_MAX + 1;
	sample_fill(&s->rng, s->bytes, long_bytes ? r->length : DJ_LINE);
	r->bytes = s->bytes;
	return r;
}

static bool same_name(const char *a, const char *b)
{
	return a == b || (a && b && !strcmp(a, b));
}

/* Which members count for which kind, as format/record.h says. */
bool sample_equal(const struct dj_record *a, const struct dj_record *b)
{
	if (a->kind != b->kind || a->steps != b->steps || a->rep != b->rep ||
	    a->ordinal != b->ordinal)
		return false;
	switch (a->kind) {
	case DJ_REC_IMPORT:
		return a->addr == b->addr && !memcmp(a->bytes, b->bytes, DJ_LINE);
	case DJ_REC_EFFECTS:
		if (a->why != b->why || a->insn_len != b->insn_len ||
		    memcmp(a->insn, b->insn, a->insn_len))
			return false;
		break; /* and registers */
	case DJ_REC_SYSCALL:
		return a->result == b->result && a->r11 == b->r11;
	case DJ_REC_REGS:
		break;
	case DJ_REC_SIGNAL:
		if (a->signo != b->signo || memcmp(a->siginfo, b->siginfo, sizeof(a->siginfo)) ||
		    a->addr != b->addr || a->length != b->length ||
		    memcmp(a->bytes, b->bytes, a->length))
			return false;
		break;
	case DJ_REC_MAP:
		return a->addr == b->addr && a->length == b->length && a->prot == b->prot &&
		       a->flags == b->flags && a->module == b->module && a->offset == b->offset &&
		       same_name(a->name, b->name);
	case DJ_REC_UNMAP:
		return a->addr == b->addr && a->length == b->length;
	case DJ_REC_PROTECT:
		return a->addr == b->addr && a->length == b->length && a->prot == b->prot;
	case DJ_REC_CODE:
		return a->addr == b->addr && a->length == b->length &&
		       !memcmp(a->bytes, b->bytes, a->length);
	case DJ_REC_DIGEST:
		if (a->digest != b->digest)
			return false;
		break;
	case DJ_REC_FORK:
		return a->pid == b->pid;
	case DJ_REC_EXIT:
		return a->status == b->status;
	default:
		return same_name(a->name, b->name);
	}
	return a->mask == b->mask && !(dj_regs_diff(&a->regs, &b->regs) & a->mask);
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

static int write_bulk(struct dj_writer *w, const struct sample_shape *shape, uint64_t seed,
		      struct dj_error *err)
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
		r = dj_writer_snapshot(w, 0, SAMPLE_ADDR, bytes, shape->memory, err);
	free(bytes);
	return r;
}

static int write_streams(struct dj_writer *w, const struct sample_shape *shape, uint64_t seed,
			 struct dj_error *err)
{
	struct sample_stream *s = calloc(shape->threads, sizeof(*s));
	const struct dj_record *rec;
	int r = 0;

	for (unsigned i = 0; i < shape->threads && !r; i++) {
		sample_start(&s[i], i, seed, shape->records);
		r = dj_writer_thread(w, SAMPLE_TID + (int)i, "thread", err);
	}
	for (uint64_t n = 0; n < shape->records && !r; n++) {
		for (unsigned i = 0; i < shape->threads && !r; i++) {
			int32_t tid = SAMPLE_TID + (int)i;

			rec = sample_next(&s[i]);
			if (rec->kind == DJ_REC_IMPORT && n % 2)
				r = dj_writer_import(w, tid, rec->steps, rec->rep, rec->ordinal,
						     rec->addr, rec->bytes, err);
			else
				r = dj_writer_record(w, tid, rec, err);
			if (!r && (n + 1) % shape->flush == 0)
				r = dj_writer_flush(w, tid, rec->steps, err);
		}
	}
	free(s);
	return r;
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
	int r;

	if (!w)
		return -1;
	r = write_bulk(w, shape, seed, err);
	if (!r)
		r = write_streams(w, shape, seed, err);
	if (dj_writer_close(w, &end, r ? NULL : err))
		r = -1;
	return r;
}
