/*
 * The trace writer's start memory, in pieces: at once, or by a worker, so that the program need not
 * wait until what a forked child has from its parent has been packed.
 */
#include "format/thread.h"
#include "format/writer.h"

#include <stdlib.h>

struct dj_snapshot {
	struct dj_stream *process; /* when it is to be written */
	uint32_t image;
	uint8_t *bytes; /* of all pieces */
	size_t len, cap;
	struct piece {
		uint64_t addr;
		size_t len;
	} * pieces;
	size_t n;
};

struct dj_snapshot *dj_snapshot_new(uint32_t image)
{
	struct dj_snapshot *s = calloc(1, sizeof(*s));

	if (s)
		s->image = image;
	return s;
}

static void snapshot_free(struct dj_snapshot *s)
{
	free(s->bytes);
	free(s->pieces);
	free(s);
}

uint8_t *dj_snapshot_room(struct dj_snapshot *s, size_t len)
{
	size_t need = s->len + len, cap = s->cap + s->cap / 2;
	uint8_t *grown;

	if (need <= s->cap)
		return s->bytes + s->len;
	cap = cap < need ? need : cap;
	grown = realloc(s->bytes, cap);
	if (!grown)
		return NULL;
	s->bytes = grown;
	s->cap = cap;
	return s->bytes + s->len;
}

int dj_snapshot_add(struct dj_snapshot *s, uint64_t addr, size_t len)
{
	struct piece *grown = s->pieces;

	if (!(s->n & (s->n - 1))) /* 0, or a power of two: all are used */
		grown = realloc(s->pieces, (s->n ? 2 * s->n : 1) * sizeof(*grown));
	if (!grown)
		return -1;
	s->pieces = grown;
	s->pieces[s->n++] = (struct piece){ addr, len };
	s->len += len;
	return 0;
}

size_t dj_snapshot_size(const struct dj_snapshot *s)
{
	return s->len;
}

/* One at a time: their numbers are in the order of the file. (The stream's other lock is not to be
 * had as long as it takes to pack them.) */
static int write_piece(struct dj_stream *process, uint32_t image, uint64_t addr,
		       const uint8_t *bytes, size_t len, struct dj_error *err)
{
	int r = 0;

	pthread_mutex_lock(&process->snapshot);
	for (size_t at = 0, n; at < len && !r; at += n) {
		struct dj_chunk_header h = { .type = CHUNK_SNAPSHOT,
					     .stream = process->number,
					     .number = process->snapshots++,
					     .first = image,
					     .last = image,
					     .arg = addr + at };

		n = len - at < WRITER_SNAPSHOT ? len - at : WRITER_SNAPSHOT;
		r = dj_writer_chunk(process->w, &h, bytes + at, n, err);
	}
	pthread_mutex_unlock(&process->snapshot);
	return r;
}

int dj_stream_snapshot(struct dj_stream *process, uint32_t image, uint64_t addr, const void *bytes,
		       size_t len, struct dj_error *err)
{
	DJ_ASSERT(!process->process, "start memory of a thread");
	dj_snapshot_wait(process);
	return write_piece(process, image, addr, bytes, len, err);
}

/* What fails is known to the writer, which does not write any more. */
static void write_all(void *arg)
{
	struct dj_snapshot *s = arg;
	struct dj_error err = { 0 };
	size_t at = 0;

	for (size_t i = 0; i < s->n; i++) {
		struct piece p = s->pieces[i];

		if (write_piece(s->process, s->image, p.addr, s->bytes + at, p.len, &err))
			break;
		at += p.len;
	}
	pthread_mutex_lock(&s->process->lock);
	s->process->later = false;
	pthread_cond_broadcast(&s->process->no_later);
	pthread_mutex_unlock(&s->process->lock);
	snapshot_free(s);
}

void dj_snapshot_wait(struct dj_stream *process)
{
	pthread_mutex_lock(&process->lock);
	while (process->later)
		pthread_cond_wait(&process->no_later, &process->lock);
	pthread_mutex_unlock(&process->lock);
}

void dj_stream_snapshot_later(struct dj_stream *process, struct dj_snapshot *s)
{
	DJ_ASSERT(!process->process, "start memory of a thread");
	dj_snapshot_wait(process);
	s->process = process;
	process->later = s->n != 0;
	if (!s->n || !dj_work_alone(write_all, s)) /* nobody else does it, or not soon */
		write_all(s);
}
