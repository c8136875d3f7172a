/*
 * The facts in a trace: description, processes, threads, modules, start memory (format/trace.h).
 */
#include "format/reader.h"

#include <stdlib.h>

int dj_reader_add(struct dj_reader_chunks *list, const struct dj_reader_chunk *c)
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
	if (c->h.number != t->metas++)
		return -1;
	t->meta_bytes += c->h.raw_len;
	return t->meta_bytes > META_TOTAL_MAX ? -1 : dj_meta_decode(&t->meta, raw, c->h.raw_len);
}

struct dj_reader_stream *dj_reader_find_stream(const struct dj_trace *t, uint32_t number)
{
	size_t lo = 0, hi = t->nstreams;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (t->streams[mid].number == number)
			return &t->streams[mid];
		if (t->streams[mid].number < number)
			lo = mid + 1;
		else
			hi = mid;
	}
	return NULL;
}

static struct dj_reader_process *process_of(struct dj_trace *t, uint32_t number)
{
	const struct dj_reader_stream *s = dj_reader_find_stream(t, number);

	return s && s->process ? &t->processes[s->index] : NULL;
}

/* Begin a stream. NULL if it is out of order. */
static struct dj_reader_stream *add_stream(struct dj_trace *t, const struct dj_reader_chunk *c)
{
	struct dj_reader_stream *v, *last = t->nstreams ? &t->streams[t->nstreams - 1] : NULL;

	if (c->h.number != 0 || (last && last->number >= c->h.stream))
		return NULL;
	v = dj_reader_grow(t->streams, t->nstreams, sizeof(*v));
	if (!v)
		return NULL;
	t->streams = v;
	v = &t->streams[t->nstreams++];
	*v = (struct dj_reader_stream){ .number = c->h.stream };
	return v;
}

static int take_process(struct dj_trace *t, const struct dj_reader_chunk *c, const uint8_t *raw)
{
	struct dj_reader_process *v, *parent;
	struct dj_reader_stream *s;

	if (c->h.raw_len != 8)
		return -1;
	v = dj_reader_grow(t->processes, t->nprocesses, sizeof(*v));
	if (!v)
		return -1;
	t->processes = v;
	parent = process_of(t, dj_get32(raw + 4));
	s = add_stream(t, c);
	if (!s)
		return -1;
	s->process = true;
	s->index = t->nprocesses++;
	v = &t->processes[s->index];
	*v = (struct dj_reader_process){ .stream = (size_t)(s - t->streams) };
	v->info.pid = (int32_t)dj_get32(raw);
	v->info.parent = parent ? (int32_t)(parent - t->processes) : -1;
	return 0;
}

static int take_thread(struct dj_trace *t, const struct dj_reader_chunk *c, const uint8_t *raw)
{
	struct dj_reader_thread *v;
	struct dj_reader_process *process;
	struct dj_reader_stream *s;
	char *name;

	if (c->h.raw_len < 8 || !(process = process_of(t, dj_get32(raw))))
		return -1;
	v = dj_reader_grow(t->threads, t->nthreads, sizeof(*v));
	if (!v)
		return -1;
	t->threads = v;
	name = string_of(raw + 8, c->h.raw_len - 8);
	s = name ? add_stream(t, c) : NULL;
	if (!s) {
		free(name);
		return -1;
	}
	s->index = t->nthreads++;
	v = &t->threads[s->index];
	*v = (struct dj_reader_thread){ .name = name, .stream = (size_t)(s - t->streams) };
	v->info.tid = (int32_t)dj_get32(raw + 4);
	v->info.process = (uint32_t)(process - t->processes);
	v->info.first_seq = v->info.last_seq = DJ_SEQ_UNKNOWN;
	return 0;
}

/* Facts of a process. -1: they do not follow what is there. */
static int take_facts(struct dj_trace *t, struct dj_reader_stream *s,
		      const struct dj_reader_chunk *c)
{
	struct dj_process_info *info = &t->processes[s->index].info;

	if (c->h.first != info->facts || c->h.last - c->h.first != c->h.arg)
		return -1;
	info->facts = c->h.last;
	return 0;
}

/* Records of a thread. -1: they do not follow what is there, or need facts that are not. */
static int take_records(struct dj_trace *t, struct dj_reader_stream *s,
			const struct dj_reader_chunk *c)
{
	const struct dj_thread_info *info = &t->threads[s->index].info;
	const struct dj_reader_chunk *before = s->chunks.n ? &s->chunks.v[s->chunks.n - 1] : NULL;

	if (c->h.last > STEPS_MAX)
		return -1;
	if (before && (before->h.first > c->h.first || before->h.last > c->h.last ||
		       before->h.facts > c->h.facts))
		return -1;
	return c->h.facts > t->processes[info->process].info.facts ? -1 : 0;
}

static int take_stream(struct dj_trace *t, const struct dj_reader_chunk *c, const uint8_t *raw)
{
	struct dj_reader_stream *s = dj_reader_find_stream(t, c->h.stream);

	(void)raw;
	if (!s) {
		dj_reader_damage(t, c->at - CHUNK_HEADER_SIZE,
				 "records of a thread or process whose description is lost");
		return 0;
	}
	if (s->cut && !dj_reader_begin_part(s, c))
		return 0;
	if (c->h.raw_len > STREAM_RAW_MAX || c->h.arg > c->h.raw_len ||
	    c->h.arg > STREAM_HEADS_MAX) /* a record has a byte at least */
		return -1;
	if (c->h.number != s->number_seen + 1) {
		dj_reader_lose(t, c->at - CHUNK_HEADER_SIZE, CHUNK_STREAM, c->h.stream);
		if (!dj_reader_begin_part(s, c))
			return 0;
	}
	s->number_seen = c->h.number;
	if (s->process ? take_facts(t, s, c) : take_records(t, s, c)) {
		dj_reader_lose(t, c->at - CHUNK_HEADER_SIZE, CHUNK_STREAM, c->h.stream);
		return 0;
	}
	return dj_reader_add(&s->chunks, c);
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
	t->paths += (uint64_t)(in.end - in.p);
	if (t->paths > PATHS_FREE + t->size)
		return -1;
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
	return m && c->h.last - c->h.first == c->h.raw_len ? dj_reader_add(&m->chunks, c) : -1;
}

static int take_stored(struct dj_trace *t, const struct dj_reader_chunk *c, const uint8_t *raw)
{
	struct dj_reader_module *m = get_module(t, c);

	if (!m || m->info.stored || !DJ_TRACE_SHARES(t->version) ||
	    c->h.raw_len != sizeof(m->key.hash))
		return -1;
	m->info.stored = true;
	m->reference = c->at - CHUNK_HEADER_SIZE;
	memcpy(m->key.hash, raw, sizeof(m->key.hash));
	return 0;
}

static int take_snapshot(struct dj_trace *t, const struct dj_reader_chunk *c, const uint8_t *raw)
{
	struct dj_reader_process *p = process_of(t, c->h.stream);

	(void)raw;
	if (!p || c->h.raw_len > SNAPSHOT_RAW_MAX)
		return -1;
	if (c->h.number != p->snapshots)
		dj_reader_damage(t, c->at - CHUNK_HEADER_SIZE,
				 "part of the start memory is missing");
	p->snapshots = (uint64_t)c->h.number + 1;
	return dj_reader_add(&t->memory, c);
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

/* One row per type: whether its payload is needed now, and how large it may be; what takes it in,
 * what it means to lose one, and where its bytes are counted. */
static const struct chunk_rule {
	uint32_t unpack_max;
	int (*take)(struct dj_trace *t, const struct dj_reader_chunk *c, const uint8_t *raw);
	const char *lost;
	size_t usage;
	/* clang-format off */
} rules[CHUNK_TYPES] = {
	[CHUNK_META] = { CHUNK_RAW_MAX, take_meta, "the description of the recording is lost",
			 offsetof(struct dj_trace_usage, meta) },
	[CHUNK_MODULE] = { 49 + DJ_NAME_MAX, take_module, "a module is lost",
			   offsetof(struct dj_trace_usage, modules) },
	[CHUNK_MODULE_DATA] = { 0, take_module_data, "contents of a module are lost",
				offsetof(struct dj_trace_usage, modules) },
	[CHUNK_STORED] = { 16, take_stored, "contents of a module are lost",
			   offsetof(struct dj_trace_usage, modules) },
	[CHUNK_SNAPSHOT] = { 0, take_snapshot, "part of the start memory is lost",
			     offsetof(struct dj_trace_usage, snapshots) },
	[CHUNK_PROCESS] = { 8, take_process, "the description of a process is lost",
			    offsetof(struct dj_trace_usage, streams) },
	[CHUNK_THREAD] = { 8 + THREAD_NAME_MAX, take_thread, "the description of a thread is lost",
			   offsetof(struct dj_trace_usage, streams) },
	[CHUNK_STREAM] = { 0, take_stream, "records are lost",
			   offsetof(struct dj_trace_usage, streams) },
	[CHUNK_TIMES] = { 0, dj_reader_take_times, "when a thread was where is lost",
			  offsetof(struct dj_trace_usage, streams) },
	[CHUNK_COUNTS] = { COUNTS_PAYLOAD_MAX, dj_reader_take_counts, "what was counted is lost",
			   offsetof(struct dj_trace_usage, meta) },
	[CHUNK_END] = { 20, take_end, "how the recording ended is lost",
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
	/* descriptions are unpacked at once: of too much not even that */
	if (c->h.type == CHUNK_META && t->meta_bytes + c->h.raw_len > META_TOTAL_MAX)
		return -1;
	if (rule->unpack_max &&
	    (c->h.raw_len > rule->unpack_max || !(raw = dj_reader_unpack(t->bytes, c))))
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
	struct dj_reader_stream *s = type == CHUNK_STREAM ? dj_reader_find_stream(t, stream) : NULL;

	if (s && s->cut) /* already beyond its end of history */
		return;
	if (s)
		s->cut = true;
	dj_reader_damage(t, at, "%s", rule->lost ? rule->lost : "a chunk is damaged");
}

/* By process and image, and within an image as they were written. */
static int by_image(const void *a, const void *b)
{
	const struct dj_reader_chunk *x = a, *y = b;

	if (x->h.stream != y->h.stream)
		return x->h.stream < y->h.stream ? -1 : 1;
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
	for (size_t i = 0; i < t->nthreads; i++) {
		struct dj_reader_thread *th = &t->threads[i];

		th->info.name = th->name;
		if (dj_reader_finish_thread(&t->streams[th->stream], &th->info))
			return dj_fail(err, 1, "%s: out of memory", t->path);
		struct dj_process_info *process = &t->processes[th->info.process].info;
		if (th->info.late && th->info.first_seq > process->late_seq)
			process->late_seq = th->info.first_seq;
	}
	for (size_t i = 0; i < t->nmodules; i++) {
		t->modules[i].info.path = t->modules[i].path ? t->modules[i].path : "";
		t->modules[i].key.size = t->modules[i].info.size;
	}
	return 0;
}

void dj_reader_free_facts(struct dj_trace *t)
{
	dj_meta_free(&t->meta);
	dj_reader_free_stored(t);
	for (size_t i = 0; i < t->nthreads; i++)
		free(t->threads[i].name);
	for (size_t i = 0; i < t->nstreams; i++) {
		free(t->streams[i].chunks.v);
		free(t->streams[i].longest.v);
		free(t->streams[i].times.v);
		free(t->streams[i].keyframes);
	}
	for (size_t i = 0; i < t->nmodules; i++) {
		free(t->modules[i].path);
		free(t->modules[i].chunks.v);
		free(t->modules[i].bytes);
	}
	for (size_t i = 0; i < SNAPSHOT_SLOTS; i++)
		free(t->slots[i].bytes);
	free(t->streams);
	free(t->threads);
	free(t->processes);
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

size_t dj_trace_processes(const struct dj_trace *t)
{
	return t->nprocesses;
}

const struct dj_process_info *dj_trace_process(const struct dj_trace *t, size_t i)
{
	return i < t->nprocesses ? &t->processes[i].info : NULL;
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

/* ---- start memory --------------------------------------------------------------------- */

static const uint8_t *memory_bytes(struct dj_trace *t, size_t i)
{
	struct reader_slot *slot = &t->slots[t->next_slot];
	uint8_t *bytes;

	for (size_t k = 0; k < SNAPSHOT_SLOTS; k++)
		if (t->slots[k].memory == i + 1)
			return t->slots[k].bytes;
	bytes = dj_reader_unpack(t->bytes, &t->memory.v[i]);
	if (!bytes)
		return NULL;
	free(slot->bytes);
	slot->bytes = bytes;
	slot->memory = i + 1;
	t->next_slot = (t->next_slot + 1) % SNAPSHOT_SLOTS;
	return bytes;
}

/* The first chunk of memory that is not of an image before this one. */
static size_t image_begin(const struct dj_trace *t, uint32_t stream, uint64_t image)
{
	size_t a = 0, b = t->memory.n;

	while (a < b) {
		size_t mid = a + (b - a) / 2;
		const struct dj_chunk_header *h = &t->memory.v[mid].h;

		if (h->stream < stream || (h->stream == stream && h->first < image))
			a = mid + 1;
		else
			b = mid;
	}
	return a;
}

size_t dj_trace_snapshot(struct dj_trace *t, size_t process, uint32_t image, uint64_t addr,
			 void *out, size_t len)
{
	size_t lo, hi, done = 0;
	uint32_t stream;

	if (process >= t->nprocesses)
		return 0;
	stream = t->streams[t->processes[process].stream].number;
	lo = image_begin(t, stream, image);
	hi = image_begin(t, stream, (uint64_t)image + 1);
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
