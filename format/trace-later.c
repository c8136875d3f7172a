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
#include <sys/mman.h>
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
}

/* A failure is in the writer then, for whoever comes next. */
static void *pack_all(void *arg)
{
	struct dj_writer *w = arg;

	pthread_mutex_lock(&w->lock);
	while (w->later) {
		struct dj_writer_later *l = w->later;

		pthread_mutex_unlock(&w->lock);
		if (l->packed)
			dj_writer_pieces_packed(w, l->module, l->packed, NULL);
		else
			dj_writer_pieces_kept(w, l->module, &l->key, l->bytes, l->size, NULL);
		give_back(l);
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
