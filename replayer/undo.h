/*
 * Undo logs: what memory was like at a checkpoint, for the pages that have changed since.
 *
 * Of each 4 KiB page of the shadow, and of each page of the memory view, a log keeps the
 * state before the first change after its checkpoint. Applying the logs of all
 * intervals from the newest back to checkpoint i brings back the memory of checkpoint i;
 * two neighbouring logs merge by keeping the older state of each page.
 */
#ifndef DEJA_REPLAYER_UNDO_H
#define DEJA_REPLAYER_UNDO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UNDO_PAGE  4096u
#define UNDO_WORDS (UNDO_PAGE / 64) /* words of a bitmap with a bit per byte */

/* A page of the shadow. */
struct rp_undo_shadow {
	uint64_t num;  /* of the page in the shadow */
	uint8_t *data; /* NULL: all zero */
};

/* A page of the memory view (memview.h says what the parts mean). */
struct rp_undo_view {
	uint64_t num;
	bool existed;
	uint8_t *own;	 /* its own data, NULL: they were in the shadow */
	uint64_t *known; /* NULL: no byte was known */
	uint64_t *stale; /* NULL: no byte was stale */
};

struct rp_undo {
	struct rp_undo_shadow *shadow;
	struct rp_undo_view *view;
	size_t nshadow, shadow_cap, nview, view_cap;
	size_t bytes; /* memory held, all told */
	bool sorted;  /* both arrays, by num */
	bool failed;  /* memory ran out: the log is useless */
};

void rp_undo_init(struct rp_undo *u);
void rp_undo_free(struct rp_undo *u);
/* Note states before a change; each page at most once per log. */
void rp_undo_note_shadow(struct rp_undo *u, uint64_t num, const uint8_t *data);
void rp_undo_note_view(struct rp_undo *u, uint64_t num, bool existed, const uint8_t *own,
		       const uint64_t *known, const uint64_t *stale);
/* Add the younger neighbour's log to the older's; `younger` is empty afterwards. */
void rp_undo_merge(struct rp_undo *older, struct rp_undo *younger);
/* Whether shadow page `num` changed in the interval. */
bool rp_undo_has_shadow(struct rp_undo *u, uint64_t num);
/* Whether page `num` of the view did. */
bool rp_undo_has_view(struct rp_undo *u, uint64_t num);

#endif
