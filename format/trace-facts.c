/*
 * The facts in a trace: description, threads, modules, start memory (format/trace.h).
 */
#include "format/reader.h"

#include <stdlib.h>

static int add_chunk(struct dj_reader_chunks *list, const struct dj_reader_chunk *c)
{
	struct dj_reader_chunk *v = dj_reader_grow(list->v, list->n, sizeof(*v));

	if (!v)
		return -1;
	list->v = v;
	list->v[list->n++] = *c;
	return 0;
}

static char *string_of(const uint8_t *bytes, size_t len)
{
	char *s = malloc(len + 1);

	if (s) {
		memcpy(s, bytes, len);
		s[len] = 0;
	}
	return s;
}

/* ---- what each type of chunk says --------------------------------------------------- */

static int take_meta(struct dj_trace *t, const struct dj_reader_chunk *c, const uint8_t *raw)
{
	/* fields behind a gap would be silently fewer */
	if (c->h.seq != t->next_seq[CHUNK_META]++)
		return -1;
	t->meta_bytes += c->h.raw_len;
	return t->meta_bytes > META_TOTAL_MAX ? -1 : dj_meta_decode(&t->meta, raw, c->h.raw_len);
}

struct dj_reader_thread *dj_reader_find_thread(struct dj_trace *t, uint32_t stream)
{
	size_t lo = 0, hi = t->nthreads;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (t->threads[mid].number == stream)
			return &t->threads[mid];
		if (t->threads[mid].number < stream)
			lo = mid + 1;
		else
			hi = mid;
	}
	return NULL;
}

static int take_thread(struct dj_trace *t, const struct dj_reader_chunk *c, const uint8_t *raw)
{
	struct dj_reader_thread *v, *last = t->nthreads ? &t->threads[t->nthreads - 1] : NULL;

	if (c->h.raw_len < 4 || c->h.seq != 0 || (last && last->number >= c->h.stream))
		return -1;
	v = dj_reader_grow(t->threads, t->nthreads, sizeof(*v));
	if (!v)
		return -1;
	t->threads = v;
	v = &t->threads[t->nthreads];
	*v = (struct dj_reader_thread){ .number = c->h.stream };
	v->info.tid = (int32_t)dj_get32(raw);
	v->name = string_of(raw + 4, c->h.raw_len - 4);
	if (!v->name)
		return -1;
	t->nthreads++;
	return 0;
}

static int take_stream(struct dj_trace *t, const struct dj_reader_chunk *c, const uint8_t *raw)
{
	struct dj_reader_thread *th = dj_reader_find_thread(t, c->h.stream);
	struct dj_reader_chunk *before;

	(void)raw;
	if (!th) {
		dj_reader_damage(t, c->at - CHUNK_HEADER_SIZE,
				 "records of a thread whose description is lost");
		return 0;
	}
	if (th->cut)
		return 0;
	if (c->h.arg > c->h.raw_len) /* a record has a byte at least */
		return -1;
	before = th->chunks.n ? &th->chunks.v[th->chunks.n - 1] : NULL;
	if (c->h.seq != th->chunks.n + 1 || (before && before->h.first > c->h.first)) {
		dj_reader_lose(t, c->at - CHUNK_HEADER_SIZE, CHUNK_STREAM, c->h.stream);
		return 0;
	}
	if (!before)
		th->info.first_steps = th->info.last_steps = c->h.first;
	if (c->h.last > th->info.last_steps)
		th->info.last_steps = c->h.last;
	th->info.records += c->h.arg;
	return add_chunk(&th->chunks, c);
}

/* Module `number`, made (empty) with all before it if need be. */
static struct dj_reader_module *get_module(struct dj_trace *t, const struct dj_reader_chunk *c)
{
	/* each module before it took a chunk, even if that is lost */
	if (c->h.stream >= c->at / CHUNK_HEADER_SIZE)
		return NULL;
	while (t->nmodules <= c->h.stream) {
		struct dj_reader_module *v = dj_reader_grow(t->modules, t->nmodules, sizeof(*v));

		if (!v)
			return NULL;
		t->modules = v;
		t->modules[t->nmodules++] = (struct dj_reader_module){ 0 };
	}
	return &t->modules[c->h.stream];
}

static int take_module(struct dj_trace *t, const struct dj_reader_chunk *c, const uint8_t *raw)
{
	struct dj_in in = { raw, raw + c->h.raw_len, false };
	struct dj_reader_module *m = get_module(t, c);
	const uint8_t *id;
	uint64_t size;

	if (!m || m->known)
		return -1;
	size = dj_in64(&in);
	m->sum = dj_in64(&in);
	m->info.build_id_len = dj_in8(&in);
	id = dj_in_bytes(&in, sizeof(m->info.build_id));
	if (!id || m->info.build_id_len > sizeof(m->info.build_id) || size > MODULE_SIZE_MAX) {
		m->info.build_id_len = 0;
		return -1;
	}
	memcpy(m->info.build_id, id, sizeof(m->info.build_id));
	m->info.size = size;
	m->path = string_of(in.p, (size_t)(in.end - in.p));
	m->known = m->path != NULL;
	return m->known ? 0 : -1;
}

static int take_module_data(struct dj_trace *t, const struct dj_reader_chunk *c, const uint8_t *raw)
{
	struct dj_reader_module *m = get_module(t, c);

	(void)raw;
	return m && c->h.last - c->h.first == c->h.raw_len ? add_chunk(&m->chunks, c) : -1;
}

static int take_snapshot(struct dj_trace *t, const struct dj_reader_chunk *c, const uint8_t *raw)
{
	(void)raw;
	if (c->h.seq != t->next_seq[CHUNK_SNAPSHOT])
		dj_reader_damage(t, c->at - CHUNK_HEADER_SIZE,
				 "part of the start memory is missing");
	t->next_seq[CHUNK_SNAPSHOT] = (uint64_t)c->h.seq + 1;
	return add_chunk(&t->memory, c);
}

static int take_end(struct dj_trace *t, const struct dj_reader_chunk *c, const uint8_t *raw)
{
	struct dj_in in = { raw, raw + c->h.raw_len, false };

	t->end.end_time_ns = (int64_t)dj_in64(&in);
	t->end.status = (int32_t)dj_in32(&in);
	t->end.steps = dj_in64(&in);
	t->end.present = !in.bad;
	return in.bad ? -1 : 0;
}

/* One row per type: whether its payload is needed now, what takes it in, what it means to
 * lose one, and where its bytes are counted. */
static const struct chunk_rule {
	bool unpack;
	int (*take)(struct dj_trace *t, const struct dj_reader_chunk *c, const uint8_t *raw);
	const char *lost;
	size_t usage;
	/* clang-format off */
} rules[CHUNK_TYPES] = {
	[CHUNK_META] = { true, take_meta, "the description of the recording is lost",
			 offsetof(struct dj_trace_usage, meta) },
	[CHUNK_MODULE] = { true, take_module, "a module is lost",
			   offsetof(struct dj_trace_usage, modules) },
	[CHUNK_MODULE_DATA] = { false, take_module_data, "contents of a module are lost",
				offsetof(struct dj_trace_usage, modules) },
	[CHUNK_SNAPSHOT] = { false, take_snapshot, "part of the start memory is lost",
			     offsetof(struct dj_trace_usage, snapshots) },
	[CHUNK_THREAD] = { true, take_thread, "the description of a thread is lost",
			   offsetof(struct dj_trace_usage, streams) },
	[CHUNK_STREAM] = { false, take_stream, "records are lost", offsetof(struct dj_trace_usage, streams) },
	[CHUNK_END] = { true, take_end, "how the recording ended is lost",
			offsetof(struct dj_trace_usage, meta) },
};
/* clang-format on */

int dj_reader_take(struct dj_trace *t, const struct dj_reader_chunk *c)
{
	const struct chunk_rule *rule = &rules[c->h.type < CHUNK_TYPES ? c->h.type : 0];
	uint8_t *raw = NULL;
	uint64_t *usage;
	int r;

	if (!rule->take) /* of a type that is not known: nothing in it is needed */
		return 0;
	if (rule->unpack && !(raw = dj_reader_unpack(t, c)))
		return -1;
	r = rule->take(t, c, raw);
	free(raw);
	usage = (uint64_t *)((char *)&t->usage + rule->usage);
	*usage += CHUNK_HEADER_SIZE + c->h.len;
	return r;
}

void dj_reader_lose(struct dj_trace *t, uint64_t at, unsigned type, uint32_t stream)
{
	const struct chunk_rule *rule = &rules[type < CHUNK_TYPES ? type : 0];
	struct dj_reader_thread *th =
		type == CHUNK_STREAM ? dj_reader_find_thread(t, stream) : NULL;

	if (th && th->cut) /* already beyond its end of history */
		return;
	if (th)
		th->cut = true;
	dj_reader_damage(t, at, "%s", rule->lost ? rule->lost : "a chunk is damaged");
}

/* By image, and within an image as they were written. */
static int by_image(const void *a, const void *b)
{
	const struct dj_reader_chunk *x = a, *y = b;

	if (x->h.first != y->h.first)
		return x->h.first < y->h.first ? -1 : 1;
	return x->at < y->at ? -1 : x->at > y->at;
}

int dj_reader_finish(struct dj_trace *t, struct dj_error *err)
{
	if (!t->meta.complete)
		return dj_fail(err, 2,
			       "%s: the trace is cut off or damaged in its description of the "
			       "recording, near byte %llu",
			       t->path, (unsigned long long)t->damage_at);
	if (dj_meta_finish(&t->meta))
		return dj_fail(err, 1, "%s: out of memory", t->path);
	if (t->meta.m.predict > DJ_PREDICT_NONE)
		return dj_fail(err, 2, "%s: unknown prediction mode %u", t->path,
			       t->meta.m.predict);
	if (t->memory.n)
		qsort(t->memory.v, t->memory.n, sizeof(*t->memory.v), by_image);
	for (size_t i = 0; i < t->nthreads; i++)
		t->threads[i].info.name = t->threads[i].name;
	for (size_t i = 0; i < t->nmodules; i++)
		t->modules[i].info.path = t->modules[i].path ? t->modules[i].path : "";
	return 0;
}

void dj_reader_free_facts(struct dj_trace *t)
{
	dj_meta_free(&t->meta);
	for (size_t i = 0; i < t->nthreads; i++) {
		free(t->threads[i].name);
		free(t->threads[i].chunks.v);
	}
	for (size_t i = 0; i < t->nmodules; i++) {
		free(t->modules[i].path);
		free(t->modules[i].chunks.v);
		free(t->modules[i].bytes);
	}
	for (size_t i = 0; i < SNAPSHOT_SLOTS; i++)
		free(t->slots[i].bytes);
	free(t->threads);
	free(t->modules);
	free(t->memory.v);
}

/* ---- what users ask ------------------------------------------------------------------ */

const struct dj_trace_meta *dj_trace_meta(const struct dj_trace *t)
{
	return &t->meta.m;
}

const struct dj_trace_end *dj_trace_end(const struct dj_trace *t)
{
	return &t->end;
}

const struct dj_trace_usage *dj_trace_usage(const struct dj_trace *t)
{
	return &t->usage;
}

size_t dj_trace_threads(const struct dj_trace *t)
{
	return t->nthreads;
}

const struct dj_thread_info *dj_trace_thread(const struct dj_trace *t, size_t i)
{
	return i < t->nthreads ? &t->threads[i].info : NULL;
}

size_t dj_trace_modules(const struct dj_trace *t)
{
	return t->nmodules;
}

const struct dj_module_info *dj_trace_module(const struct dj_trace *t, size_t i)
{
	return i < t->nmodules ? &t->modules[i].info : NULL;
}

/* Put a module together. Its pieces must follow each other without gap and amount to its
 * size before any memory is taken for it. */
static int load_module(struct dj_trace *t, struct dj_reader_module *m, struct dj_error *err)
{
	uint64_t at = 0;

	for (size_t i = 0; i < m->chunks.n && m->chunks.v[i].h.first == at; i++)
		at = m->chunks.v[i].h.last;
	if (!m->known || at != m->info.size)
		return dj_fail(err, 2, "%s: contents of module %s are lost", t->path,
			       m->known ? m->path : "(unknown)");
	m->bytes = malloc(m->info.size ? m->info.size : 1);
	if (!m->bytes)
		return dj_fail(err, 1, "%s: no memory for module %s", t->path, m->path);
	for (size_t i = 0; i < m->chunks.n; i++) {
		const struct dj_reader_chunk *c = &m->chunks.v[i];

		if (c->h.last > m->info.size ||
		    dj_chunk_unpack(&c->h, t->bytes + c->at, m->bytes + c->h.first))
			goto malformed;
	}
	if (dj_chunk_sum(t->id, m->bytes, m->info.size) == m->sum)
		return 0;
malformed:
	free(m->bytes);
	m->bytes = NULL;
	return dj_fail(err, 2, "%s: contents of module %s do not have their checksum", t->path,
		       m->path);
}

const uint8_t *dj_trace_module_bytes(struct dj_trace *t, size_t i, size_t *size,
				     struct dj_error *err)
{
	struct dj_reader_module *m = i < t->nmodules ? &t->modules[i] : NULL;

	if (!m) {
		dj_fail(err, 2, "%s: there is no module %zu", t->path, i);
		return NULL;
	}
	if (!m->bytes && load_module(t, m, err))
		return NULL;
	*size = m->info.size;
	return m->bytes;
}

/* ---- start memory --------------------------------------------------------------------- */

static const uint8_t *memory_bytes(struct dj_trace *t, size_t i)
{
	struct reader_slot *slot = &t->slots[t->next_slot];
	uint8_t *bytes;

	for (size_t k = 0; k < SNAPSHOT_SLOTS; k++)
		if (t->slots[k].memory == i + 1)
			return t->slots[k].bytes;
	bytes = dj_reader_unpack(t, &t->memory.v[i]);
	if (!bytes)
		return NULL;
	free(slot->bytes);
	slot->bytes = bytes;
	slot->memory = i + 1;
	t->next_slot = (t->next_slot + 1) % SNAPSHOT_SLOTS;
	return bytes;
}

/* The chunks [*lo, *hi) of the image that is current at `steps`. */
static void find_image(const struct dj_trace *t, uint64_t steps, size_t *lo, size_t *hi)
{
	size_t a = 0, b = t->memory.n;

	while (a < b) { /* first chunk of a later image */
		size_t mid = a + (b - a) / 2;

		if (t->memory.v[mid].h.first <= steps)
			a = mid + 1;
		else
			b = mid;
	}
	*hi = *lo = a;
	while (*lo > 0 && t->memory.v[*lo - 1].h.first == t->memory.v[*hi - 1].h.first)
		(*lo)--;
}

size_t dj_trace_snapshot(struct dj_trace *t, uint64_t steps, uint64_t addr, void *out, size_t len)
{
	size_t lo, hi, done = 0;

	find_image(t, steps, &lo, &hi);
	while (done < len) {
		uint64_t at = addr + done, skip, n;
		const uint8_t *bytes;
		size_t i = hi;

		/* what was written last counts */
		while (i > lo && at - t->memory.v[i - 1].h.arg >= t->memory.v[i - 1].h.raw_len)
			i--;
		if (i == lo || !(bytes = memory_bytes(t, i - 1)))
			break;
		skip = at - t->memory.v[i - 1].h.arg;
		n = t->memory.v[i - 1].h.raw_len - skip;
		if (n > len - done)
			n = len - done;
		for (size_t k = i; k < hi; k++) /* as far as nothing later covers it */
			if (t->memory.v[k].h.raw_len && t->memory.v[k].h.arg - at < n)
				n = t->memory.v[k].h.arg - at;
		memcpy((uint8_t *)out + done, bytes + skip, n);
		done += n;
	}
	return done;
}
