/*
 * The trace writer: header, description, chunks, index (format/trace.h; who may do what at the same
 * time: format/writer.h).
 *
 * Every chunk goes out with one write(). When that fails (disk full, file size limit), the
 * file is cut back to the end of the last whole chunk, and every later call reports the same
 * failure: what is in the file stays a valid, shorter trace.
 */
#include "format/meta.h"
#include "format/scatter.h"
#include "format/store.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Payloads below this are not worth packing. */
#define PACK_MIN 64

/* With the lock held: what failed first. */
static int failed_locked(struct dj_writer *w, struct dj_error *err)
{
	if (err)
		*err = w->failed;
	return -1;
}

static int has_failed(struct dj_writer *w, struct dj_error *err)
{
	int r = 0;

	pthread_mutex_lock(&w->lock);
	if (w->failed.exit_status)
		r = failed_locked(w, err);
	pthread_mutex_unlock(&w->lock);
	return r;
}

int dj_writer_no_memory(struct dj_writer *w, struct dj_error *err)
{
	pthread_mutex_lock(&w->lock);
	if (!w->failed.exit_status)
		dj_fail(&w->failed, 1, "%s: out of memory while writing", w->path);
	failed_locked(w, err);
	pthread_mutex_unlock(&w->lock);
	return -1;
}

int dj_writer_lost(struct dj_writer *w, const char *module, struct dj_error *err)
{
	pthread_mutex_lock(&w->lock);
	if (!w->failed.exit_status)
		dj_fail(&w->failed, 1,
			"%s: what %s contains is lost: its packed copy is damaged, and the file is "
			"another",
			w->path, module);
	failed_locked(w, err);
	pthread_mutex_unlock(&w->lock);
	return -1;
}

int dj_writer_grow(void **array, size_t n, size_t element)
{
	void *grown;

	if (n & (n - 1) && n) /* grows when the count is 0 or a power of two */
		return 0;
	grown = realloc(*array, (n ? 2 * n : 1) * element);
	if (!grown)
		return -1;
	*array = grown;
	return 0;
}

/*
 * write(2) with a file size limit as an error and not as a signal that kills. The signal is
 * blocked and taken back rather than ignored: a program that is started later would inherit that.
 */
static ssize_t write_unsignalled(int fd, const void *bytes, size_t len)
{
	const struct timespec now = { 0 };
	sigset_t xfsz, old;
	ssize_t n;

	sigemptyset(&xfsz);
	sigaddset(&xfsz, SIGXFSZ);
	pthread_sigmask(SIG_BLOCK, &xfsz, &old);
	n = write(fd, bytes, len);
	if (n < 0 && errno == EFBIG) {
		sigtimedwait(&xfsz, NULL, &now);
		errno = EFBIG;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return n;
}

/* Append bytes to the file, all or none. With the lock held. */
static int append(struct dj_writer *w, const uint8_t *bytes, size_t len, struct dj_error *err)
{
	size_t done = 0;

	if (w->failed.exit_status)
		return failed_locked(w, err);
	while (done < len) {
		ssize_t n = write_unsignalled(w->fd, bytes + done, len - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			if (n == 0)
				errno = ENOSPC;
			dj_fail_errno(&w->failed, 1, "cannot write %s", w->path);
			/* a reader copes with a torn chunk, too, so this may fail */
			if (done && !ftruncate(w->fd, (off_t)w->size))
				lseek(w->fd, (off_t)w->size, SEEK_SET);
			return failed_locked(w, err);
		}
		done += (size_t)n;
	}
	w->size += len;
	return 0;
}

int dj_writer_append(struct dj_writer *w, const void *bytes, size_t len, struct dj_error *err)
{
	int r;

	pthread_mutex_lock(&w->lock);
	r = append(w, bytes, len, err);
	pthread_mutex_unlock(&w->lock);
	return r;
}

int dj_writer_ready_chunk(struct dj_writer *w, const struct dj_chunk_header *h,
			  const uint8_t *bytes, struct dj_error *err)
{
	int r = 0;

	pthread_mutex_lock(&w->lock);
	while (h->type == CHUNK_STREAM && w->packs)
		pthread_cond_wait(&w->none_later, &w->lock);
	if (dj_writer_grow((void **)&w->index, w->nindex, sizeof(w->index[0]))) {
		dj_fail(&w->failed, 1, "%s: out of memory while writing", w->path);
		r = failed_locked(w, err);
	} else {
		struct dj_writer_index_entry entry = { w->size, h->last, h->stream, h->type };

		r = append(w, bytes, CHUNK_HEADER_SIZE + h->len, err);
		if (!r)
			w->index[w->nindex++] = entry;
	}
	pthread_mutex_unlock(&w->lock);
	return r;
}

/* ---- packing ------------------------------------------------------------------------ */

static void free_packer(struct dj_writer_packer *p)
{
	ZSTD_freeCCtx(p->zstd);
	free(p->out);
	free(p);
}

/* A packer with room for `len` unpacked bytes however they pack. */
static struct dj_writer_packer *take_packer(struct dj_writer *w, size_t len)
{
	size_t need = CHUNK_HEADER_SIZE + ZSTD_compressBound(len);
	struct dj_writer_packer *p;
	uint8_t *grown;

	pthread_mutex_lock(&w->lock);
	p = w->packers;
	if (p)
		w->packers = p->next;
	pthread_mutex_unlock(&w->lock);
	if (!p) {
		p = calloc(1, sizeof(*p));
		if (!p || !(p->zstd = ZSTD_createCCtx())) {
			free(p);
			return NULL;
		}
	}
	if (need <= p->out_cap)
		return p;
	grown = realloc(p->out, need);
	if (!grown) {
		free_packer(p);
		return NULL;
	}
	p->out = grown;
	p->out_cap = need;
	return p;
}

static void give_packer(struct dj_writer *w, struct dj_writer_packer *p)
{
	pthread_mutex_lock(&w->lock);
	p->next = w->packers;
	w->packers = p;
	pthread_mutex_unlock(&w->lock);
}

/* Pack at one of zstd's levels. Bytes that repeat nothing are always coded by how frequent they
 * are; zstd itself leaves them as they are where the level is negative (its manual, ZSTD_lcm_auto).
 * Returns 0 or zstd's error if they were not packed. */
static size_t pack(struct dj_writer_packer *p, const void *raw, size_t len, int level)
{
	if (ZSTD_isError(ZSTD_CCtx_setParameter(p->zstd, ZSTD_c_compressionLevel, level)) ||
	    ZSTD_isError(ZSTD_CCtx_setParameter(p->zstd, ZSTD_c_literalCompressionMode,
						ZSTD_lcm_huffman)))
		return 0;
	return ZSTD_compress2(p->zstd, p->out + CHUNK_HEADER_SIZE, p->out_cap - CHUNK_HEADER_SIZE,
			      raw, len);
}

int dj_writer_chunk(struct dj_writer *w, struct dj_chunk_header *h, const void *raw, size_t len,
		    struct dj_error *err)
{
	return dj_writer_chunk_at(w, h, raw, len, WRITER_LEVEL, err);
}

int dj_writer_chunk_at(struct dj_writer *w, struct dj_chunk_header *h, const void *raw, size_t len,
		       int level, struct dj_error *err)
{
	struct dj_writer_packer *p;
	uint8_t *payload;
	size_t packed = 0;
	int r;

	DJ_ASSERT(len <= CHUNK_RAW_MAX, "chunk of %zu bytes", len);
	if (has_failed(w, err))
		return -1;
	p = take_packer(w, len);
	if (!p)
		return dj_writer_no_memory(w, err);
	payload = p->out + CHUNK_HEADER_SIZE;
	if (len >= PACK_MIN)
		packed = pack(p, raw, len, level);
	h->encoding = CHUNK_ZSTD;
	if (packed == 0 || ZSTD_isError(packed) || packed >= len) {
		if (len)
			memcpy(payload, raw, len);
		h->encoding = CHUNK_PLAIN;
		packed = len;
	}
	h->raw_len = (uint32_t)len;
	h->len = (uint32_t)packed;
	h->payload_sum = dj_chunk_sum(w->id, payload, packed);
	dj_chunk_header_pack(p->out, h, w->id);
	r = dj_writer_ready_chunk(w, h, p->out, err);
	give_packer(w, p);
	return r;
}

int dj_writer_chunk_packed(struct dj_writer *w, const struct dj_chunk_header *h,
			   const void *payload, struct dj_error *err)
{
	struct dj_chunk_header mine = *h;
	struct dj_writer_packer *p;
	int r;

	if (has_failed(w, err))
		return -1;
	p = take_packer(w, h->len);
	if (!p)
		return dj_writer_no_memory(w, err);
	memcpy(p->out + CHUNK_HEADER_SIZE, payload, h->len);
	mine.payload_sum = dj_chunk_sum(w->id, payload, h->len);
	dj_chunk_header_pack(p->out, &mine, w->id);
	r = dj_writer_ready_chunk(w, &mine, p->out, err);
	give_packer(w, p);
	return r;
}

/* ---- the description ------------------------------------------------------------- */

struct meta_buffer {
	struct dj_writer *w;
	uint8_t *bytes;
	size_t len;
	uint32_t number;
};

static int meta_flush(struct meta_buffer *b, struct dj_error *err)
{
	struct dj_chunk_header h = { .type = CHUNK_META,
				     .stream = NO_STREAM,
				     .number = b->number++ };
	size_t len = b->len;

	b->len = 0;
	return dj_writer_chunk(b->w, &h, b->bytes, len, err);
}

static int meta_take(void *ctx, const uint8_t *field, size_t len, struct dj_error *err)
{
	struct meta_buffer *b = ctx;
	uint8_t *grown;

	if (b->len && b->len + len > WRITER_META && meta_flush(b, err))
		return -1;
	grown = realloc(b->bytes, b->len + len);
	if (!grown)
		return dj_writer_no_memory(b->w, err);
	b->bytes = grown;
	memcpy(b->bytes + b->len, field, len);
	b->len += len;
	return 0;
}

static int write_meta(struct dj_writer *w, const struct dj_trace_meta *meta, struct dj_error *err)
{
	struct meta_buffer b = { .w = w };
	int r = dj_meta_code(meta, meta_take, &b, err);

	if (!r)
		r = meta_flush(&b, err);
	free(b.bytes);
	return r;
}

/* ---- life ------------------------------------------------------------------------- */

static void writer_free(struct dj_writer *w)
{
	while (w->streams) {
		struct dj_stream *s = w->streams;

		w->streams = s->next;
		dj_stream_free(s);
	}
	while (w->packers) {
		struct dj_writer_packer *p = w->packers;

		w->packers = p->next;
		free_packer(p);
	}
	for (size_t i = 0; i < w->nmodules; i++)
		free(w->modules[i].path);
	free(w->modules);
	free(w->index);
	free(w->path);
	if (w->store >= 0)
		close(w->store);
	if (w->packed >= 0) {
		if (w->packed_more)
			dj_store_trim(w->packed, WRITER_PACKED);
		close(w->packed);
	}
	pthread_mutex_destroy(&w->facts);
	pthread_mutex_destroy(&w->lock);
	pthread_cond_destroy(&w->none_later);
	free(w);
}

#define CREATE (O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)

static int in_use(const char *path, int fd, struct dj_error *err)
{
	if (fd >= 0)
		close(fd);
	return dj_fail(err, 1, "cannot create %s: another recording is being written to it", path);
}

/* Open and lock the file that has this name. */
static int open_locked(const char *path, struct stat *st, struct dj_error *err)
{
	struct stat named;

	for (unsigned tries = 0; tries < 100; tries++) {
		int fd = open(path, CREATE, 0600);
		if (fd < 0 && errno == ENXIO)
			return dj_fail(err, 1, "cannot create %s: nobody reads from it", path);
		if (fd < 0)
			return dj_fail_errno(err, 1, "cannot create %s", path);
		bool device = !fstat(fd, st) && S_ISCHR(st->st_mode); /* as /dev/null: for all */
		if (!device && flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
			return in_use(path, fd, err);
		if (!fstat(fd, st) && !stat(path, &named) && named.st_dev == st->st_dev &&
		    named.st_ino == st->st_ino)
			return fd;
		close(fd); /* it has been replaced meanwhile */
	}
	return in_use(path, -1, err);
}

/* Put an empty file in the place of an earlier trace, which is locked. To empty that one would pull
 * it away from under whoever reads it, and a file system may write all of a file that was emptied
 * to the disk when it is closed (ext4(5), auto_da_alloc). Only what a recording would have made is
 * replaced: a regular file, its user's, with no other name. Returns the file, which is `fd` if that
 * is not so; -1 with errno if there is none any more. */
static int replace(const char *path, int fd, const struct stat *st)
{
	struct stat named;

	if (!S_ISREG(st->st_mode) || !st->st_size || st->st_nlink != 1 || st->st_uid != geteuid() ||
	    (st->st_mode & 07777) != 0600 || lstat(path, &named) || !S_ISREG(named.st_mode) ||
	    unlink(path))
		return fd;
	int new = open(path, CREATE | O_EXCL, 0600), e;
	if (new >= 0 && flock(new, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
		close(new);
		new = -1;
		errno = EEXIST;
	}
	e = errno;
	close(fd);
	errno = e;
	return new;
}

/* The file is its writer's alone until it is closed. A FIFO must have a reader: nobody waits for
 * one. */
static int create(const char *path, struct dj_error *err)
{
	struct stat st;
	int fd = open_locked(path, &st, err);

	if (fd < 0)
		return -1;
	fd = replace(path, fd, &st);
	if (fd < 0)
		return errno == EEXIST ? in_use(path, fd, err)
				       : dj_fail_errno(err, 1, "cannot create %s", path);
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
	/* to make an empty file empty would have the same effect on the disk */
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size && ftruncate(fd, 0)) {
		close(fd);
		return dj_fail_errno(err, 1, "cannot create %s", path);
	}
	return fd;
}

struct dj_writer *dj_writer_on(int fd, uint64_t id, const char *path)
{
	struct dj_writer *w = calloc(1, sizeof(*w));

	if (!w || !(w->path = strdup(path))) {
		free(w);
		return NULL;
	}
	pthread_mutex_init(&w->facts, NULL);
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->none_later, NULL);
	w->fd = fd;
	w->store = w->packed = -1;
	w->id = id;
	return w;
}

int dj_writer_free(struct dj_writer *w, struct dj_error *err)
{
	int r = 0;

	dj_writer_end_later(w);
	if (w->failed.exit_status)
		r = failed_locked(w, err);
	if (close(w->fd) && !r)
		r = dj_fail_errno(err, 1, "cannot write %s", w->path);
	writer_free(w);
	return r;
}

static struct dj_writer *create_writer(const char *path, int store,
				       const struct dj_trace_meta *meta, struct dj_error *err)
{
	uint32_t version = store < 0 ? DJ_TRACE_VERSION : DJ_TRACE_VERSION_SHARED;
	uint8_t header[FILE_HEADER_SIZE];
	int fd = create(path, err);
	struct dj_writer *w = fd < 0 ? NULL : dj_writer_on(fd, dj_random(), path);

	if (!w) {
		if (fd >= 0) {
			close(fd);
			dj_fail(err, 1, "out of memory");
		}
		if (store >= 0)
			close(store);
		return NULL;
	}
	w->store = store;
	dj_file_header_pack(header, version, w->id);
	if (append(w, header, sizeof(header), err) || write_meta(w, meta, err)) {
		dj_writer_free(w, NULL);
		return NULL;
	}
	return w;
}

struct dj_writer *dj_writer_create(const char *path, const struct dj_trace_meta *meta,
				   struct dj_error *err)
{
	return create_writer(path, -1, meta, err);
}

struct dj_writer *dj_writer_create_sharing(const char *path, const struct dj_trace_meta *meta,
					   struct dj_error *err)
{
	char *store = dj_store_beside(path);
	int fd = store ? dj_store_open(store, true) : -1;

	free(store);
	return create_writer(path, fd, meta, err);
}

void dj_writer_keep_packed(struct dj_writer *w, int directory)
{
	w->packed = directory;
}

uint64_t dj_writer_size(struct dj_writer *w)
{
	uint64_t size;

	pthread_mutex_lock(&w->lock);
	size = w->size;
	pthread_mutex_unlock(&w->lock);
	return size;
}

static int write_end(struct dj_writer *w, const struct dj_trace_end *end, struct dj_error *err)
{
	struct dj_chunk_header h = { .type = CHUNK_END, .stream = NO_STREAM };
	uint8_t payload[20], *p = payload;

	p = dj_put64(p, (uint64_t)end->end_time_ns);
	p = dj_put32(p, (uint32_t)end->status);
	dj_put64(p, end->steps);
	return dj_writer_chunk(w, &h, payload, sizeof(payload), err);
}

int dj_writer_index(struct dj_writer *w, struct dj_error *err)
{
	uint64_t index_at = w->size;
	size_t total = w->nindex; /* INDEX chunks do not list themselves */
	uint8_t footer[FOOTER_SIZE], *payload = malloc(WRITER_INDEX * INDEX_ENTRY_SIZE);
	int r = payload ? 0 : dj_writer_no_memory(w, err);

	for (size_t i = 0, number = 0; i < total && !r; number++) {
		struct dj_chunk_header h = { .type = CHUNK_INDEX,
					     .stream = NO_STREAM,
					     .number = (uint32_t)number };
		uint8_t *p = payload;

		for (size_t n = 0; i < total && n < WRITER_INDEX; i++, n++) {
			const struct dj_writer_index_entry *e = &w->index[i];

			p = dj_put64(p, e->offset);
			p = dj_put32(p, e->type);
			p = dj_put32(p, e->stream);
			p = dj_put64(p, e->last);
		}
		r = dj_writer_chunk(w, &h, payload, (size_t)(p - payload), err);
	}
	free(payload);
	if (r)
		return -1;
	dj_footer_pack(footer, index_at, w->id);
	return append(w, footer, sizeof(footer), err);
}

int dj_writer_close(struct dj_writer *w, const struct dj_trace_end *end, struct dj_error *err)
{
	int r = 0;

	dj_writer_end_later(w);
	/* after a failure each of these reports it again and writes nothing; a process's stream
	 * is behind those of its threads in the list */
	for (struct dj_stream *s = w->streams; s && !r; s = s->next) {
		if (!s->process)
			dj_snapshot_wait(s);
		r = dj_stream_finish(s, err);
	}
	if (!r && end && end->present)
		r = write_end(w, end, err);
	if (!r)
		r = dj_writer_index(w, err);
	return dj_writer_free(w, r ? NULL : err) || r ? -1 : 0;
}
