/*
 * Modules that are packed while the recorded program goes on. A compiler has thirty megabytes,
 * which take a tenth of a second to pack, and it would wait for that before its first instruction.
 *
 * Packed is a copy: whoever writes to the file meanwhile does not write into the trace.
 */
#include "format/store.h"
#include "format/thread.h"
#include "format/writer.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* linux/mman.h, since Linux 5.14 */
#endif

static size_t pages(size_t size)
{
	return (size + PAGE - 1) & ~(size_t)(PAGE - 1);
}

bool dj_read_all(int fd, uint8_t *to, size_t size)
{
	for (size_t at = 0; at < size;) {
		ssize_t n = pread(fd, to + at, size - at, (off_t)at);

		if (n <= 0)
			return false;
		at += (size_t)n;
	}
	return true;
}

void *dj_writer_copy(struct dj_writer *w, int fd, const void *contents, size_t size)
{
	bool room;
	void *copy;

	pthread_mutex_lock(&w->lock);
	room = size && size <= WRITER_LATER - w->later_size;
	pthread_mutex_unlock(&w->lock);
	if (!room)
		return NULL;
	copy = mmap(NULL, pages(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (copy == MAP_FAILED)
		return NULL;
	/* all of it at once: a page fault each takes longer than the copying */
	madvise(copy, pages(size), MADV_HUGEPAGE);
	madvise(copy, pages(size), MADV_POPULATE_WRITE);
	if (fd < 0 || !dj_read_all(fd, copy, size))
		memcpy(copy, contents, size);
	return copy;
}

void dj_writer_copy_free(void *copy, size_t size)
{
	if (copy)
		munmap(copy, pages(size));
}

static void give_back(struct dj_writer_later *l)
{
	dj_writer_copy_free(l->bytes, l->size);
	if (l->packed)
		dj_store_unmap(l->packed);
	free(l->packed);
	if (!l->bytes && !l->packed) {
		close(l->kept);
		close(l->file);
	}
}

static bool read_again(const struct dj_writer_later *l, uint8_t *bytes)
{
	struct dj_store_key key;

	if (!dj_read_all(l->file, bytes, l->key.size))
		return false;
	dj_store_key(&key, bytes, l->key.size);
	return !memcmp(key.hash, l->key.hash, sizeof(key.hash));
}

/* A file of packed pieces, of which one is in memory at a time: what all of them take would be
 * cleared by the kernel first, and is in no cache when it is looked at again. */
struct kept_pieces {
	const struct dj_writer_later *l;
	uint64_t at;   /* in the file */
	uint64_t have; /* of the module, written */
	uint32_t next; /* number of the next piece */
	uint8_t *buffer;
};

/* The next piece, behind room for its header, in the buffer. False: it is damaged. */
static bool read_piece(struct kept_pieces *k, struct dj_chunk_header *h)
{
	uint64_t seed = dj_store_seed(&k->l->key);
	uint8_t *payload = k->buffer + CHUNK_HEADER_SIZE;

	if (pread(k->l->kept, k->buffer, CHUNK_HEADER_SIZE, (off_t)k->at) != CHUNK_HEADER_SIZE ||
	    !dj_chunk_header_unpack(h, k->buffer, CHUNK_HEADER_SIZE, seed) ||
	    !dj_store_is_piece(h, &k->l->key, k->have) || h->len > WRITER_MODULE)
		return false;
	return pread(k->l->kept, payload, h->len, (off_t)(k->at + CHUNK_HEADER_SIZE)) ==
		       (ssize_t)h->len &&
	       dj_chunk_sum(seed, payload, h->len) == h->payload_sum;
}

/* All pieces from there on, as far as they are good. */
static int write_pieces(struct dj_writer *w, struct kept_pieces *k, struct dj_error *err)
{
	struct dj_chunk_header h;
	int r = 0;

	while (!r && k->have < k->l->key.size && read_piece(k, &h)) {
		h.stream = k->l->module;
		h.payload_sum = dj_chunk_sum(w->id, k->buffer + CHUNK_HEADER_SIZE, h.len);
		dj_chunk_header_pack(k->buffer, &h, w->id);
		r = dj_writer_ready_chunk(w, &h, k->buffer, err);
		k->at += CHUNK_HEADER_SIZE + h.len;
		k->have = h.last;
		k->next = h.number + 1;
	}
	return r;
}

/* What is left of it when a piece is damaged: there is still the file itself. */
static int write_rest(struct dj_writer *w, const struct kept_pieces *k, struct dj_error *err)
{
	const struct dj_writer_later *l = k->l;
	uint8_t *bytes = malloc(l->key.size);
	int r;

	if (!bytes)
		return dj_writer_no_memory(w, err);
	if (read_again(l, bytes)) {
		w->packed_more |= !dj_store_keep(w->packed, &l->key, bytes);
		r = dj_writer_pieces_from(w, l->module, k->next, k->have, bytes, l->key.size, err);
	} else {
		r = dj_writer_lost(w, l->path, err);
	}
	free(bytes);
	return r;
}

/* What is known of a file, and is there packed. */
static int write_known(struct dj_writer *w, const struct dj_writer_later *l, struct dj_error *err)
{
	struct kept_pieces k = { .l = l, .at = FILE_HEADER_SIZE, .next = 1 };
	uint8_t header[FILE_HEADER_SIZE], good[FILE_HEADER_SIZE];
	int r = 0;

	k.buffer = malloc(CHUNK_HEADER_SIZE + WRITER_MODULE);
	if (!k.buffer)
		return dj_writer_no_memory(w, err);
	dj_store_header_pack(good, dj_store_seed(&l->key));
	if (dj_read_all(l->kept, header, sizeof(header)) && !memcmp(header, good, sizeof(good))) {
		r = write_pieces(w, &k, err);
		futimens(l->kept, NULL); /* it is of use */
	}
	free(k.buffer);
	return r || k.have == l->key.size ? r : write_rest(w, &k, err);
}

int dj_writer_pieces_now(struct dj_writer *w, struct dj_writer_later *l, struct dj_error *err)
{
	int r = l->packed  ? dj_writer_pieces_packed(w, l->module, l->packed, err)
		: l->bytes ? dj_writer_pieces_kept(w, l->module, &l->key, l->bytes, l->size, err)
			   : write_known(w, l, err);

	give_back(l);
	return r;
}

/* A failure is in the writer then, for whoever comes next. */
static void *pack_all(void *arg)
{
	struct dj_writer *w = arg;

	pthread_mutex_lock(&w->lock);
	while (w->later) {
		struct dj_writer_later *l = w->later;

		pthread_mutex_unlock(&w->lock);
		dj_writer_pieces_now(w, l, NULL);
		pthread_mutex_lock(&w->lock);
		w->later = l->next;
		w->later_size -= l->size;
		free(l);
	}
	w->packs = false;
	pthread_cond_broadcast(&w->none_later);
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

/* With the lock held. */
static bool begin_packing(struct dj_writer *w)
{
	if (w->packs)
		return true;
	if (w->begun) /* it does nothing any more but end */
		pthread_join(w->packing, NULL);
	w->begun = w->packs = !dj_thread(&w->packing, pack_all, w);
	return w->packs;
}

bool dj_writer_pieces_later(struct dj_writer *w, const struct dj_writer_later *what)
{
	struct dj_writer_later *l = malloc(sizeof(*l));
	bool taken;

	if (!l)
		return false;
	*l = *what;
	l->next = NULL;
	pthread_mutex_lock(&w->lock);
	taken = !(l->packed && w->later_size > WRITER_LATER) && begin_packing(w);
	if (taken) {
		struct dj_writer_later **end = &w->later;

		while (*end)
			end = &(*end)->next;
		*end = l;
		w->later_size += l->size;
	} else {
		free(l);
	}
	pthread_mutex_unlock(&w->lock);
	return taken;
}

void dj_writer_end_later(struct dj_writer *w)
{
	pthread_mutex_lock(&w->lock);
	while (w->packs)
		pthread_cond_wait(&w->none_later, &w->lock);
	pthread_mutex_unlock(&w->lock);
	if (w->begun)
		pthread_join(w->packing, NULL);
	w->begun = false;
}
