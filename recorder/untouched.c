/*
 * Memory that nobody has touched yet. It is zero, and the kernel says which it is (proc(5),
 * pagemap). To read it would not only take time: the program would get page tables for it, and what
 * is untouched could not be told from what is zero any more.
 *
 * And memory that is still what the file has that it is mapped from. To read that takes seven
 * microseconds a page where nobody has touched it before; what the kernel says of five hundred
 * pages is read in fifteen.
 */
#include "recorder/recorder.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE	4096u
#define WINDOW	512u /* pages that are asked for at once, */
#define WINDOWS 16u  /* and as many times what is remembered until the process runs again */

struct rec_pagemap {
	FILE *file;
	bool any; /* of them is known: this is asked at each stop */
	struct window {
		bool known;
		uint64_t first; /* page */
		bool own[WINDOW];
	} window[WINDOWS];
};

bool rec_anonymous(const struct dj_mapping *m)
{
	return m->flags & MAP_ANONYMOUS && m->flags & MAP_PRIVATE && m->module < 0;
}

static struct rec_pagemap *pagemap(struct rec_thread *t)
{
	struct rec_tracer *tracer = t->rec->tracer;
	struct rec_process *proc = t->proc;
	if (!proc->pagemap) {
		FILE *file = tracer->open_proc(tracer, t->tid, "pagemap");
		if (!file)
			return NULL;
		proc->pagemap = calloc(1, sizeof(*proc->pagemap));
		DJ_ASSERT(proc->pagemap, "out of memory for page entries");
		proc->pagemap->file = file;
	}
	return proc->pagemap;
}

size_t rec_page_entries(struct rec_thread *t, uint64_t addr, uint64_t *entry, size_t n)
{
	off_t at = (off_t)(addr / PAGE * sizeof(*entry));
	struct rec_pagemap *map = pagemap(t);
	ssize_t got = map ? pread(fileno(map->file), entry, n * sizeof(*entry), at) : 0;
	return got > 0 ? (size_t)got / sizeof(*entry) : 0;
}

bool rec_page_is_own(uint64_t entry)
{
	return (entry & REC_PAGE_PRESENT) && !(entry & REC_PAGE_OF_A_FILE);
}

uint64_t rec_untouched(struct rec_thread *t, uint64_t addr, unsigned n)
{
	uint64_t entry[REC_UNTOUCHED], bits = 0;
	DJ_ASSERT(n <= REC_UNTOUCHED, "%u pages at a time", n);
	if (rec_page_entries(t, addr, entry, n) != n)
		return 0;
	for (unsigned i = 0; i < n; i++)
		bits |= entry[i] & REC_PAGE_PRESENT ? 0 : 1ULL << i;
	return bits;
}

/* Which of the `n` pages from `w->first` on are its own: all of which that is not known. */
static void look(struct rec_thread *t, struct window *w, unsigned n)
{
	uint64_t entry[WINDOW];
	size_t got = rec_page_entries(t, w->first * PAGE, entry, n);
	for (unsigned i = 0; i < n; i++)
		w->own[i] = i >= got || rec_page_is_own(entry[i]);
}

/* Another thread may write to a page at any time; it will be heard of (code.c), as whoever has read
 * the page before would hear of it. But what is remembered may be older than what was heard last.
 */
bool rec_is_of_file(struct rec_process *proc, uint64_t addr)
{
	struct rec_thread *t = proc->hand;
	uint64_t page = addr / PAGE, i = page % WINDOW;
	struct rec_pagemap *map = t ? pagemap(t) : NULL;
	struct window alone = { .first = page };
	if (!map)
		return false;
	if (proc->n_threads > 1) {
		look(t, &alone, 1);
		return !alone.own[0];
	}
	struct window *w = &map->window[page / WINDOW % WINDOWS];
	if (!w->known || w->first != page - i) {
		w->known = map->any = true;
		w->first = page - i;
		look(t, w, WINDOW);
	}
	return !w->own[i];
}

void rec_pages_may_change(struct rec_process *proc)
{
	struct rec_pagemap *map = proc->pagemap;
	if (!map || !map->any)
		return;
	for (unsigned i = 0; i < WINDOWS; i++)
		map->window[i].known = false;
	map->any = false;
}

void rec_untouched_end(struct rec_process *proc)
{
	if (proc->pagemap)
		fclose(proc->pagemap->file);
	free(proc->pagemap);
	proc->pagemap = NULL;
}

size_t rec_read_anonymous(struct rec_thread *t, uint64_t addr, uint8_t *buf, size_t len)
{
	size_t done = 0, run;
	for (; done < len; done += run) {
		unsigned n = (unsigned)((len - done) / PAGE), i = 0;
		n = n < REC_UNTOUCHED ? n : REC_UNTOUCHED;
		uint64_t zero = rec_untouched(t, addr + done, n), first = zero & 1;
		while (i < n && (zero >> i & 1) == first)
			i++;
		run = i ? i * (size_t)PAGE : len - done;
		if (first)
			memset(buf + done, 0, run);
		else if (rec_read(t->proc, addr + done, buf + done, run) != run)
			break;
	}
	return done;
}
