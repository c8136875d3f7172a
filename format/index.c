/*
 * The index beside a trace: see index.h.
 *
 * A header, and blocks, one after the other: each a header and a zstd frame.
 */
#include "format/index.h"
#include "format/bytes.h"
#include "format/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#define MAGIC                                                                                      \
	"\x89"                                                                                     \
	"DEJX\r\n\x1a"
#define VERSION	   2u
#define HEADER	   40u
#define BLOCK	   24u
#define LEVEL	   1
#define SMALLEST   (64u << 10) /* bytes that any index may have */
#define A_TENTH	   10u	       /* of the trace */
#define PER_MB	   1000u       /* instructions for each byte: a megabyte for 1 G of them */
#define BELIEVABLE (256u << 20)

uint64_t dj_index_room(const struct dj_trace *t, uint64_t steps)
{
	uint64_t room = t->size / A_TENTH;

	if (room < steps / PER_MB)
		room = steps / PER_MB;
	return room > SMALLEST ? room : SMALLEST;
}

/* Where the index of a trace is; to be freed. NULL without memory. */
static char *index_path(const struct dj_trace *t)
{
	char *real = realpath(t->path, NULL), *path;

	if (asprintf(&path, "%s.index", real ? real : t->path) < 0)
		path = NULL;
	free(real);
	return path;
}

/* ---- writing ----------------------------------------------------------------------------------
 */

struct dj_index_writer {
	struct dj_trace *t;
	uint8_t *bytes;
	size_t n, cap;
};

static bool room(struct dj_index_writer *w, size_t n)
{
	if (w->cap - w->n >= n)
		return true;
	size_t cap = 2 * w->cap + n;
	uint8_t *grown = realloc(w->bytes, cap);
	if (!grown)
		return false;
	w->bytes = grown;
	w->cap = cap;
	return true;
}

/* magic, version, 0, layout, the trace's sum, the sum of all that before */
static void header(uint8_t out[HEADER], const struct dj_trace *t, uint64_t layout)
{
	memset(out, 0, HEADER);
	memcpy(out, MAGIC, 8);
	dj_put32(out + 8, VERSION);
	dj_put64(out + 16, layout);
	dj_put64(out + 24, t->sum);
	dj_put64(out + 32, dj_chunk_sum(t->id, out, 32));
}

struct dj_index_writer *dj_index_begin(struct dj_trace *t, uint64_t layout)
{
	struct dj_index_writer *w = calloc(1, sizeof(*w));

	if (!w || !room(w, HEADER)) {
		free(w);
		return NULL;
	}
	w->t = t;
	w->n = HEADER;
	header(w->bytes, t, layout);
	return w;
}

size_t dj_index_put(struct dj_index_writer *w, uint32_t thread, const void *bytes, size_t n,
		    size_t most)
{
	size_t bound = ZSTD_compressBound(n);

	if (n > DJ_INDEX_BLOCK_MAX || !room(w, BLOCK + bound))
		return 0;
	uint8_t *out = w->bytes + w->n;
	size_t packed = ZSTD_compress(out + BLOCK, bound, bytes, n, LEVEL);
	if (ZSTD_isError(packed))
		return 0;
	if (BLOCK + packed > most)
		return BLOCK + packed;
	dj_put32(out, thread);
	dj_put32(out + 4, (uint32_t)n);
	dj_put64(out + 8, packed);
	dj_put64(out + 16, dj_chunk_sum(w->t->sum ^ w->n, out + BLOCK, packed));
	w->n += BLOCK + packed;
	return BLOCK + packed;
}

uint64_t dj_index_size(const struct dj_index_writer *w)
{
	return w->n;
}

void dj_index_cut(struct dj_index_writer *w, uint64_t size)
{
	DJ_ASSERT(size >= HEADER && size <= w->n, "what was put last is taken back");
	w->n = size;
}

void dj_index_drop(struct dj_index_writer *w)
{
	if (w)
		free(w->bytes);
	free(w);
}

static int write_to(const struct dj_index_writer *w, int fd)
{
	struct stat st;

	/* who may read the trace may read what is in the index */
	if (stat(w->t->path, &st) || fchmod(fd, st.st_mode & 0666))
		return -1;
	for (size_t at = 0; at < w->n;) {
		ssize_t k = write(fd, w->bytes + at, w->n - at);
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return -1;
		at += (size_t)k;
	}
	return 0;
}

int dj_index_write(struct dj_index_writer *w, struct dj_error *err)
{
	char *path = index_path(w->t), *new = NULL;
	int fd = -1, r;

	if (!path || asprintf(&new, "%s-XXXXXX", path) < 0) {
		free(path);
		return dj_fail(err, 1, "out of memory");
	}
	fd = mkostemp(new, O_CLOEXEC);
	r = fd < 0 ? -1 : write_to(w, fd);
	if (fd >= 0 && close(fd))
		r = -1;
	if (!r && rename(new, path))
		r = -1;
	if (r) {
		dj_fail_errno(err, 1, "cannot write %s", path);
		if (fd >= 0)
			unlink(new);
	}
	free(new);
	free(path);
	return r;
}

/* ---- reading ----------------------------------------------------------------------------------
 */

struct place {
	uint32_t thread;
	uint64_t at;
};

struct dj_index {
	struct dj_trace *t;
	const uint8_t *bytes;
	size_t len;
	bool mapped;
	uint8_t *block;
	struct place *places; /* of blocks, by thread and then as they lie in the file */
	size_t nplaces;
};

#define BLOCKS_MOST (1u << 20) /* more are not looked at */

static int by_thread(const void *a, const void *b)
{
	const struct place *p = a, *q = b;

	if (p->thread != q->thread)
		return p->thread < q->thread ? -1 : 1;
	return p->at < q->at ? -1 : p->at > q->at;
}

/* Where each thread's blocks are: there may be many of both. */
static void find_places(struct dj_index *x)
{
	size_t cap = 0;

	for (uint64_t at = HEADER; x->len - at >= BLOCK && x->nplaces < BLOCKS_MOST;) {
		uint64_t packed = dj_get64(x->bytes + at + 8);
		if (packed > x->len - at - BLOCK)
			break;
		if (x->nplaces == cap) {
			cap = 2 * cap + 64;
			struct place *grown = realloc(x->places, cap * sizeof(*grown));
			if (!grown)
				break;
			x->places = grown;
		}
		x->places[x->nplaces++] = (struct place){ dj_get32(x->bytes + at), at };
		at += BLOCK + packed;
	}
	if (x->nplaces)
		qsort(x->places, x->nplaces, sizeof(*x->places), by_thread);
}

/* The first block of the thread at `at` or behind it; NULL: there is none. */
static const struct place *place_from(const struct dj_index *x, uint32_t thread, uint64_t at)
{
	const struct place wanted = { thread, at };
	size_t lo = 0, hi = x->nplaces;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		if (by_thread(&x->places[mid], &wanted) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < x->nplaces && x->places[lo].thread == thread ? &x->places[lo] : NULL;
}

/* The index in this memory, if it is good for the trace. */
static struct dj_index *open_memory(struct dj_trace *t, uint64_t layout, const void *bytes,
				    size_t len)
{
	struct dj_index *x;
	uint8_t good[HEADER];

	header(good, t, layout);
	if (len < HEADER || memcmp(bytes, good, HEADER) != 0 || !(x = calloc(1, sizeof(*x))))
		return NULL;
	*x = (struct dj_index){ .t = t, .bytes = bytes, .len = len };
	find_places(x);
	return x;
}

struct dj_index *dj_index_open(struct dj_trace *t, uint64_t layout)
{
	char *path = index_path(t);
	int fd = path ? open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC) : -1;
	struct dj_index *x = NULL;
	struct stat st;
	void *p = MAP_FAILED;

	free(path);
	if (fd < 0)
		return NULL;
	/* a writer gives it a new file, and never changes one that has this name */
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size > 0 &&
	    (uint64_t)st.st_size <= BELIEVABLE + t->size)
		p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (p == MAP_FAILED)
		return NULL;
	x = open_memory(t, layout, p, (size_t)st.st_size);
	if (x)
		x->mapped = true;
	else
		munmap(p, (size_t)st.st_size);
	return x;
}

void dj_index_close(struct dj_index *x)
{
	if (!x)
		return;
	if (x->mapped)
		munmap((void *)x->bytes, x->len);
	free(x->block);
	free(x->places);
	free(x);
}

const uint8_t *dj_index_next(struct dj_index *x, uint32_t thread, uint64_t *at, size_t *n)
{
	const struct place *place = place_from(x, thread, *at);

	if (!place)
		return NULL;
	const uint8_t *b = x->bytes + place->at;
	size_t raw = dj_get32(b + 4);
	uint64_t packed = dj_get64(b + 8);
	*at = place->at + BLOCK + packed;
	if (raw > DJ_INDEX_BLOCK_MAX ||
	    dj_get64(b + 16) != dj_chunk_sum(x->t->sum ^ place->at, b + BLOCK, packed))
		return NULL;
	free(x->block);
	x->block = malloc(raw + !raw);
	if (!x->block || ZSTD_decompress(x->block, raw, b + BLOCK, packed) != raw)
		return NULL;
	*n = raw;
	return x->block;
}
