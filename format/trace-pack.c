/*
 * Making a trace whole: a copy in which what was in the module store is in the file, as
 * MODULE_DATA chunks (format/store.h).
 *
 * All else is copied as it is, under the file's own id, so that no checksum changes: chunks of
 * types that this deja does not know, and what is damaged. The index is made anew, if the trace is
 * complete; else a reader finds the chunks and the damage without it, as before.
 */
#include "format/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* A trace may refer to one file many times, and the copy has the contents as often. Modules of the
 * same contents are few in an honest one. */
#define COPIES_FREE  (64u << 20)
#define COPIES_RATIO 16

static int check_sizes(const struct dj_trace *t, struct dj_error *err)
{
	uint64_t total = 0, most = COPIES_FREE + COPIES_RATIO * t->stored_bytes;

	for (size_t i = 0; i < t->nmodules; i++) {
		const struct dj_reader_module *m = &t->modules[i];

		if (m->file)
			total += t->stored[m->file - 1].len;
		if (total > most)
			return dj_fail(err, 2, "%s: with its modules it is too large to be true",
				       t->path);
	}
	return 0;
}

/* ---- copying ------------------------------------------------------------------------------ */

/* The module that this chunk says the place of, or NULL. */
static const struct dj_reader_module *module_of(const struct dj_trace *t,
						const struct dj_chunk_header *h, uint64_t at)
{
	const struct dj_reader_module *m = h->stream < t->nmodules ? &t->modules[h->stream] : NULL;

	return h->type == CHUNK_STORED && m && m->file && m->reference == at ? m : NULL;
}

/* The pieces of a module out of the store: the same payloads in this trace's sequence. */
static int copy_module(struct dj_writer *w, const struct dj_store_file *f, uint32_t module,
		       struct dj_error *err)
{
	uint8_t *chunk = NULL;
	int r = 0;

	for (size_t i = 0; i < f->chunks.n && !r; i++) {
		const struct dj_reader_chunk *piece = &f->chunks.v[i];
		struct dj_chunk_header h = piece->h;
		uint8_t *grown = realloc(chunk, CHUNK_HEADER_SIZE + h.len);

		if (!grown) {
			r = dj_writer_no_memory(w, err);
			break;
		}
		chunk = grown;
		h.stream = module;
		h.number = (uint32_t)i + 1;
		h.payload_sum = dj_chunk_sum(w->id, f->file + piece->at, h.len);
		dj_chunk_header_pack(chunk, &h, w->id);
		memcpy(chunk + CHUNK_HEADER_SIZE, f->file + piece->at, h.len);
		r = dj_writer_ready_chunk(w, &h, chunk, err);
	}
	free(chunk);
	return r;
}

/* Everything between the header and the index. */
static int copy_chunks(struct dj_trace *t, struct dj_writer *w, struct dj_error *err)
{
	uint64_t at = FILE_HEADER_SIZE, payload, next;
	int r = 0;

	while (at < t->size && !r && !dj_reader_footer_at(t, at)) {
		const struct dj_reader_module *m;
		struct dj_chunk_header h;

		if (!dj_chunk_at(t->bytes, at, t->size, t->id, &h, &payload)) {
			next = dj_reader_find_chunk(t, at + 1);
			r = dj_writer_append(w, t->bytes + at, next - at, err);
			at = next;
			continue;
		}
		m = module_of(t, &h, at);
		if (m)
			r = copy_module(w, &t->stored[m->file - 1], h.stream, err);
		else if (h.type != CHUNK_INDEX)
			r = dj_writer_ready_chunk(w, &h, t->bytes + at, err);
		at = payload + h.len;
	}
	return r || dj_trace_damage(t) ? r : dj_writer_index(w, err);
}

static int write_copy(struct dj_trace *t, int fd, const char *path, struct dj_error *err)
{
	struct dj_writer *w = dj_writer_on(fd, t->id, path);
	uint8_t header[FILE_HEADER_SIZE];
	int r;

	if (!w) {
		close(fd);
		return dj_fail(err, 1, "out of memory");
	}
	dj_file_header_pack(header, DJ_TRACE_WHOLE(t->version), t->id);
	r = dj_writer_append(w, header, sizeof(header), err);
	if (!r)
		r = copy_chunks(t, w, err);
	if (!r && fsync(fd))
		r = dj_fail_errno(err, 1, "cannot write %s", path);
	return dj_writer_free(w, r ? NULL : err) || r ? -1 : 0;
}

/* ---- files ---------------------------------------------------------------------------------- */

/* What is to be replaced must be a regular file that nobody writes to. `mode`: its, if it exists.
 */
static int check_target(const char *path, mode_t *mode, struct dj_error *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), r = 0;
	struct stat st;

	if (fd < 0)
		return errno == ENOENT ? 0 : dj_fail_errno(err, 1, "cannot replace %s", path);
	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		r = dj_fail(err, 1, "cannot replace %s: not a regular file", path);
	else if (flock(fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK)
		r = dj_fail(err, 1, "cannot replace %s: a recording is being written to it", path);
	else
		*mode = st.st_mode & 07777;
	close(fd);
	return r;
}

/* `path` is no link. The copy grows beside it and then takes its name. */
static int pack_to(struct dj_trace *t, const char *path, struct dj_error *err)
{
	mode_t mode = 0600;
	char *new;
	int fd, r;

	if (check_target(path, &mode, err))
		return -1;
	if (asprintf(&new, "%s.packing-XXXXXX", path) < 0)
		return dj_fail(err, 1, "out of memory");
	fd = mkostemp(new, O_CLOEXEC);
	if (fd < 0) {
		free(new);
		return dj_fail_errno(err, 1, "cannot create a file beside %s", path);
	}
	r = fchmod(fd, mode) ? dj_fail_errno(err, 1, "cannot write %s", new) : 0;
	if (r)
		close(fd);
	else
		r = write_copy(t, fd, new, err);
	if (!r && rename(new, path))
		r = dj_fail_errno(err, 1, "cannot replace %s", path);
	if (r)
		unlink(new);
	free(new);
	return r;
}

int dj_trace_pack(struct dj_trace *t, const char *path, struct dj_error *err)
{
	char *real = realpath(path, NULL);
	size_t size;
	int r = check_sizes(t, err);

	for (size_t i = 0; i < t->nmodules && !r; i++)
		if (t->modules[i].info.stored && !dj_trace_module_bytes(t, i, &size, err))
			r = -1;
	if (!r)
		r = pack_to(t, real ? real : path, err);
	free(real);
	return r;
}
