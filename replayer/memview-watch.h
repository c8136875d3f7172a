/*
 * Between the memory view and the watched ranges: memview.c calls these around accesses.
 */
#ifndef DEJA_REPLAYER_MEMVIEW_WATCH_H
#define DEJA_REPLAYER_MEMVIEW_WATCH_H

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

/* memview-watch.c */
bool rp_watch_on_page(const struct rp_memview *mv, uint64_t num);
void rp_watch_read(struct rp_memview *mv, uint64_t addr, unsigned size);
/* Remember the bytes if a write watch looks at them: true then. */
bool rp_watch_before(struct rp_memview *mv, uint64_t addr, unsigned size);
/* Compare; `import`: what was never seen before has not changed by being seen. */
void rp_watch_after(struct rp_memview *mv, uint64_t addr, unsigned size, bool import);
void rp_watch_free(struct rp_memview *mv);

#endif
