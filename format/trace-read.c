/*
 * Opening a trace: header, finding the chunks, checking them (format/trace.h).
 *
 * All checksums are verified when a trace is opened, so that its threads' ends of history
 * are known from the start and do not come nearer while someone is debugging; XXH3 is
 * as fast as the memory. The chunks are found through the index or, when that is missing
 * or does not fit, by walking from chunk to chunk; after a damaged chunk header the walk
 * goes on at the next place that carries a valid one.
 */
#include "format/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

void dj_reader_damage(struct dj_trace *t, uint64_t at, const char *fmt, ...)
{
	va_list ap;

	if (t->damages++)
		return;
	t->damage_at = at;
	va_start(ap, fmt);
	vsnprintf(t->damage_what, sizeof(t->damage_what), fmt, ap);
	va_end(ap);
}

void *dj_reader_grow(void *array, size_t n, size_t element)
{
	if (n & (n - 1) && n)
		return array;
	return realloc(array, (n ? 2 * n : 1) * element);
}

uint8_t *dj_reader_unpack(const uint8_t *file, const struct dj_reader_chunk *c)
{
	uint8_t *out = malloc(c->h.raw_len ? c->h.raw_len : 1);

	if (out && dj_chunk_unpack(&c->h, file + c->at, out)) {
		free(out);
		return NULL;
	}
	return out;
}

static bool chunk_at(const struct dj_trace *t, uint64_t at, uint64_t limit,
		     struct dj_reader_chunk *c)
{
	return dj_chunk_at(t->bytes, at, limit, t->id, &c->h, &c->at);
}

static bool payload_good(const struct dj_trace *t, const struct dj_reader_chunk *c)
{
	return dj_chunk_sum(t->id, t->bytes + c->at, c->h.len) == c->h.payload_sum;
}

/* Check a chunk whose header is good, and take it in or note what is lost. */
static void check_chunk(struct dj_trace *t, const struct dj_reader_chunk *c)
{
	const uint8_t *header = t->bytes + c->at - CHUNK_HEADER_SIZE;

	if (!payload_good(t, c) || dj_reader_take(t, c))
		dj_reader_lose(t, c->at - CHUNK_HEADER_SIZE, c->h.type, c->h.stream);
	else
		t->sum = dj_chunk_sum(t->sum, header, CHUNK_HEADER_SIZE);
}

/* ---- by the index ----------------------------------------------------------------- */

struct index_entry {
	uint64_t at;
	uint32_t type, stream;
};

struct index {
	struct index_entry *v;
	size_t n;
	uint64_t at; /* where the INDEX chunks start, after all others */
};

/* Read the INDEX chunks from `at` to the footer. False if anything is odd. */
static bool read_index(struct dj_trace *t, struct index *x)
{
	uint64_t at, limit = t->size - FOOTER_SIZE;

	if (t->size < FILE_HEADER_SIZE + FOOTER_SIZE ||
	    !dj_footer_unpack(t->bytes + limit, &x->at, t->id) ||
	    x->at < FILE_HEADER_SIZE + CHUNK_HEADER_SIZE || x->at > limit)
		return false;
	for (at = x->at; at != limit;) {
		struct dj_reader_chunk c;
		uint8_t *raw;

		if (!chunk_at(t, at, limit, &c) || c.h.type != CHUNK_INDEX ||
		    !payload_good(t, &c) || !(raw = dj_reader_unpack(t->bytes, &c)))
			return false;
		for (uint32_t i = 0; i + INDEX_ENTRY_SIZE <= c.h.raw_len; i += INDEX_ENTRY_SIZE) {
			struct index_entry *v = dj_reader_grow(x->v, x->n, sizeof(*v)), *e;

			/* every chunk has a header: more entries than fit are no index */
			if (!v || x->n > t->size / CHUNK_HEADER_SIZE) {
				free(raw);
				return false;
			}
			x->v = v;
			e = &x->v[x->n];
			e->at = dj_get64(raw + i);
			e->type = dj_get32(raw + i + 8);
			e->stream = dj_get32(raw + i + 12);
			if (e->at < (x->n ? e[-1].at + CHUNK_HEADER_SIZE : FILE_HEADER_SIZE) ||
			    e->at > x->at - CHUNK_HEADER_SIZE) {
				free(raw);
				return false;
			}
			x->n++;
		}
		free(raw);
		at = c.at + c.h.len;
	}
	return x->n && x->v[0].at == FILE_HEADER_SIZE;
}

static void take_indexed(struct dj_trace *t, const struct index *x)
{
	for (size_t i = 0; i < x->n; i++) {
		uint64_t limit = i + 1 < x->n ? x->v[i + 1].at : x->at;
		struct dj_reader_chunk c;

		if (chunk_at(t, x->v[i].at, limit, &c) && c.at + c.h.len == limit)
			check_chunk(t, &c);
		else
			dj_reader_lose(t, x->v[i].at, x->v[i].type, x->v[i].stream);
	}
}

/* ---- by scanning ------------------------------------------------------------------- */

uint64_t dj_reader_find_chunk(const struct dj_trace *t, uint64_t at)
{
	struct dj_reader_chunk c;

	while (at < t->size) {
		const uint8_t *p = memmem(t->bytes + at, t->size - at, CHUNK_MAGIC, 4);

		if (!p)
			break;
		at = (uint64_t)(p - t->bytes);
		if (chunk_at(t, at, t->size, &c))
			return at;
		at++;
	}
	return t->size;
}

bool dj_reader_footer_at(const struct dj_trace *t, uint64_t at)
{
	uint64_t index_at;

	return t->size - at == FOOTER_SIZE && dj_footer_unpack(t->bytes + at, &index_at, t->id);
}

static void scan(struct dj_trace *t)
{
	uint64_t at = FILE_HEADER_SIZE;
	uint64_t index_bad = 0; /* where, if it is */
	bool footer = false;

	while (at < t->size && !footer) {
		struct dj_reader_chunk c;

		if (dj_reader_footer_at(t, at)) {
			footer = true;
		} else if (chunk_at(t, at, t->size, &c)) {
			if (c.h.type != CHUNK_INDEX)
				check_chunk(t, &c);
			else if (!payload_good(t, &c))
				index_bad = at;
			at = c.at + c.h.len;
		} else {
			uint64_t next = dj_reader_find_chunk(t, at + 1);

			if (t->end.present) /* nothing but the index follows the end */
				index_bad = at;
			else if (next < t->size)
				dj_reader_damage(t, at, "a chunk header there is damaged");
			else
				dj_reader_damage(t, at,
						 "the recording was cut off or damaged there");
			at = next;
		}
	}
	if (t->damages)
		return;
	if (t->end.present)
		dj_reader_damage(t, index_bad ? index_bad : at, "its index is missing or damaged");
	else
		dj_reader_damage(t, at, "the recording was cut off there");
}

/* ---- life --------------------------------------------------------------------------- */

static int check_header(struct dj_trace *t, struct dj_error *err)
{
	if (t->size == 0)
		return dj_fail(err, 2, "%s: the file is empty", t->path);
	switch (dj_file_header_unpack(t->bytes, t->size, &t->version, &t->id)) {
	case HEADER_GOOD:
		return 0;
	case HEADER_SHORT:
		return dj_fail(err, 2, "%s: the trace is cut off in its header, at byte %llu",
			       t->path, (unsigned long long)t->size);
	case HEADER_DAMAGED:
		return dj_fail(err, 2, "%s: the header of the trace is damaged", t->path);
	case HEADER_VERSION:
		return dj_fail(
			err, 2, "%s: trace format version %u; this deja reads versions %d to %d",
			t->path, t->version, DJ_TRACE_VERSION_OLDEST, DJ_TRACE_VERSION_SHARED);
	default:
		return dj_fail(err, 2, "%s: not a deja trace", t->path);
	}
}

/* Say in one line what is wrong and what it means. */
static void describe_damage(struct dj_trace *t)
{
	const struct dj_thread_info *first = NULL;
	const struct dj_thread_info *late = NULL;
	char more[80] = "", history[160] = "", begins[100] = "";
	size_t ended = 0;

	if (!t->damages)
		return;
	for (size_t i = 0; i < t->nthreads; i++) {
		if (t->threads[i].info.late && !late)
			late = &t->threads[i].info;
		if (t->streams[t->threads[i].stream].cut || !t->end.present) {
			first = first ? first : &t->threads[i].info;
			ended++;
		}
	}
	if (ended > 1)
		snprintf(more, sizeof(more), ", that of %zu others early, too", ended - 1);
	if (first)
		snprintf(history, sizeof(history),
			 "; history of thread %d ends after %llu instructions%s", first->tid,
			 (unsigned long long)first->last_steps, more);
	if (late)
		snprintf(begins, sizeof(begins), "; that of thread %d begins after %llu", late->tid,
			 (unsigned long long)late->first_steps);
	more[0] = 0;
	if (t->damages > 1)
		snprintf(more, sizeof(more), " (and %zu more)", t->damages - 1);
	snprintf(t->damage, sizeof(t->damage), "damaged or incomplete at byte %llu: %s%s%s%s",
		 (unsigned long long)t->damage_at, t->damage_what, more, history, begins);
}

static struct dj_trace *open_bytes(struct dj_trace *t, struct dj_error *err)
{
	struct index index = { 0 };
	bool indexed;

	if (check_header(t, err)) {
		dj_trace_close(t);
		return NULL;
	}
	indexed = read_index(t, &index);
	if (indexed)
		take_indexed(t, &index);
	else
		scan(t);
	free(index.v);
	if (dj_reader_finish(t, err)) {
		dj_trace_close(t);
		return NULL;
	}
	if (indexed && !t->end.present && !t->damages)
		dj_reader_damage(t, t->size, "how the recording ended is not known");
	describe_damage(t);
	return t;
}

static struct dj_trace *new_trace(const char *path, struct dj_error *err)
{
	struct dj_trace *t = calloc(1, sizeof(*t));

	if (t && !(t->path = strdup(path))) {
		free(t);
		t = NULL;
	}
	if (!t)
		dj_fail(err, 1, "out of memory");
	return t;
}

/* Map the file. Not more than what is in it now: it may still be growing. */
static int map_file(struct dj_trace *t, struct dj_error *err)
{
	/* not to hang on a pipe */
	int fd = open(t->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	void *p;

	if (fd < 0)
		return dj_fail_errno(err, 1, "cannot open %s", t->path);
	if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		close(fd);
		return S_ISDIR(st.st_mode)
			       ? dj_fail(err, 2, "%s: is a directory, not a trace", t->path)
			       : dj_fail(err, 2, "%s: not a regular file", t->path);
	}
	t->size = (uint64_t)st.st_size;
	if (t->size) {
		p = mmap(NULL, (size_t)t->size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (p == MAP_FAILED) {
			dj_fail_errno(err, 2, "cannot map %s", t->path);
			close(fd);
			return -1;
		}
		t->bytes = p;
		t->mapped = true;
	}
	close(fd);
	return 0;
}

struct dj_trace *dj_reader_open(const char *path, struct dj_error *err)
{
	struct dj_trace *t = new_trace(path, err);

	if (t && map_file(t, err)) {
		dj_trace_close(t);
		return NULL;
	}
	return t ? open_bytes(t, err) : NULL;
}

struct dj_trace *dj_trace_open(const char *path, struct dj_error *err)
{
	struct dj_trace *t = dj_reader_open(path, err);

	if (t && dj_reader_find_stored(t, err)) {
		dj_trace_close(t);
		return NULL;
	}
	return t;
}

struct dj_trace *dj_trace_open_memory(const void *bytes, size_t len, struct dj_error *err)
{
	struct dj_trace *t = new_trace("(memory)", err);

	if (!t)
		return NULL;
	t->bytes = bytes;
	t->size = len;
	t = open_bytes(t, err);
	if (t && dj_reader_find_stored(t, err)) {
		dj_trace_close(t);
		return NULL;
	}
	return t;
}

void dj_trace_close(struct dj_trace *t)
{
	if (!t)
		return;
	dj_reader_free_facts(t);
	if (t->mapped)
		munmap((void *)t->bytes, (size_t)t->size);
	free(t->path);
	free(t);
}

const char *dj_trace_damage(const struct dj_trace *t)
{
	return t->damages ? t->damage : NULL;
}

const char *dj_trace_path(const struct dj_trace *t)
{
	return t->path;
}

uint64_t dj_trace_file_size(const struct dj_trace *t)
{
	return t->size;
}
