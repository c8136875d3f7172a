/*
 * Between the files that make the memory view: memview.c (pages, reading), memview-state.c
 * (versions of pages), memview-access.c (what happens to memory) and memview-watch.c (watched
 * ranges).
 */
#ifndef DEJA_REPLAYER_MEMVIEW_PAGE_H
#define DEJA_REPLAYER_MEMVIEW_PAGE_H

#include "replayer/memview.h"

enum rp_memview_byte { VIEW_UNTOUCHED, VIEW_KNOWN, VIEW_STALE };

struct rp_memview_watch {
	int id;
	uint64_t addr, len;
	unsigned kind;
};

/* memview.c */
struct rp_memview_page *rp_memview_page(const struct rp_memview *mv, uint64_t num);
enum rp_memview_byte rp_memview_state(const struct rp_memview_page *p, unsigned off);
const uint8_t *rp_memview_data(const struct rp_memview *mv, const struct rp_memview_page *p);
/* The page, made if need be; with a place for its data. */
struct rp_memview_page *rp_page_get(struct rp_memview *mv, uint64_t num);
void rp_page_remove(struct rp_memview *mv, struct rp_memview_page *p);
/* A new page, of which nothing is known, with no place for its data. */
struct rp_memview_page *rp_page_insert(struct rp_memview *mv, uint64_t num);
/* The page may take its place in the shadow: whoever has its data there gets data of its own. */
void rp_page_share(struct rp_memview *mv, uint64_t num);
/* Nobody's data are at the page's place in the shadow. */
void rp_page_contest(struct rp_memview *mv, uint64_t num);
/* Give a page data of its own, from the shadow. Its state must have been noted. False without
 * memory. */
bool rp_page_make_own(struct rp_memview *mv, struct rp_memview_page *p);
/* There is no memory for the view: the thread fails as soon as it can. Until then what should be
 * noted goes to mv->spare. */
void rp_page_no_memory(struct rp_memview *mv);

/* Room for told bytes; false if there is none. And none of them any more. */
bool rp_told_room(struct rp_memview *mv, struct rp_memview_page *p);
void rp_told_drop(struct rp_memview *mv, struct rp_memview_page *p);

/* memview-state.c */
/* Note a page before it changes, unless it has been; the same for a page of the shadow. */
void rp_page_note(struct rp_memview *mv, struct rp_memview_page *p);
void rp_page_note_shadow(struct rp_memview *mv, uint64_t idx);
/* No page has a version. */
void rp_bases_free(struct rp_memview *mv);

/* memview-watch.c */
/* Note that bytes were met; `read`: it changed nothing. */
void rp_note_met(struct rp_memview *mv, uint64_t addr, uint64_t size, bool read);
static inline void rp_note(struct rp_memview *mv, uint64_t addr, uint64_t size, bool read)
{
	if (__builtin_expect(mv->notes != NULL, 0))
		rp_note_met(mv, addr, size, read);
}
bool rp_watch_on_page(const struct rp_memview *mv, uint64_t num);
void rp_watch_read(struct rp_memview *mv, uint64_t addr, unsigned size);
/* Remember the bytes if a write watch looks at them: true then. */
bool rp_watch_before(struct rp_memview *mv, uint64_t addr, unsigned size);
/* Compare; `import`: what was never seen before has not changed by being seen. */
void rp_watch_after(struct rp_memview *mv, uint64_t addr, unsigned size, bool import);
/* The kernel has written these bytes (NULL: nobody knows what). */
void rp_watch_kernel(struct rp_memview *mv, uint64_t addr, uint64_t length, const uint8_t *bytes);
void rp_watch_free(struct rp_memview *mv);

#endif
