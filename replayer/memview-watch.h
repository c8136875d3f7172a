/*
 * Between the memory view and the watched ranges: memview.c calls these around accesses.
 */
#ifndef DEJA_REPLAYER_MEMVIEW_WATCH_H
#define DEJA_REPLAYER_MEMVIEW_WATCH_H

#include "replayer/memview.h"

enum memview_byte { VIEW_UNTOUCHED, VIEW_KNOWN, VIEW_STALE };

struct memview_watch {
	int id;
	uint64_t addr, len;
	unsigned kind;
};

/* memview.c */
struct view_page *memview_page(const struct memview *mv, uint64_t num);
enum memview_byte memview_state(const struct view_page *p, unsigned off);
const uint8_t *memview_data(const struct memview *mv, const struct view_page *p);

/* memview-watch.c */
bool watch_on_page(const struct memview *mv, uint64_t num);
void watch_read(struct memview *mv, uint64_t addr, unsigned size);
/* Remember the bytes if a write watch looks at them: true then. */
bool watch_before(struct memview *mv, uint64_t addr, unsigned size);
/* Compare; `import`: what was never seen before has not changed by being seen. */
void watch_after(struct memview *mv, uint64_t addr, unsigned size, bool import);
void watch_free(struct memview *mv);

#endif
