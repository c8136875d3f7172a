/*
 * What pages were like at checkpoints.
 *
 * Of a page of the shadow, and of a page of the memory view, there are versions. A version never
 * changes once it is made, and all checkpoints between which the page stays the same share it. What
 * changes from one checkpoint to the next is a list of pages, each with its version before and
 * after (struct rp_changes): read one way it leads forwards, the other way back. Two such lists in
 * a row make one, which is how a checkpoint between others goes, and how one comes to be between
 * them.
 *
 * Who else refers to a version changes all the time, also while a process that was made from this
 * one goes on from the same versions (worker.h); each page of our memory that is then written to is
 * copied. So what is written to, the counts, lies apart from what is not, the bytes. (Together they
 * made a quarter of what a debugger's move took.)
 */
#ifndef DEJA_REPLAYER_VERSIONS_H
#define DEJA_REPLAYER_VERSIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RP_PAGE	 4096u
#define RP_WORDS (RP_PAGE / 64) /* words of a bitmap with a bit per byte */

/* Bytes that never change. Where there is none they are all zero. */
struct rp_bytes {
	unsigned refs;
	unsigned size;
	uint8_t *data;
};

/* A page of the memory view (memview.h says what the parts mean). Where there is none, the page is
 * not there. */
struct rp_view_version {
	unsigned refs;
	bool has_own;
	struct rp_bytes *own; /* its own data, if has_own */
	struct rp_bytes *known, *stale, *told;
};

/* A new one, to which one refers; NULL without memory. */
struct rp_view_version *rp_view_version_new(void);
void rp_bytes_unref(struct rp_bytes *b);
/* These bytes (NULL: zeros): `like` once more, if that has the same, or new ones. False without
 * memory. */
bool rp_bytes_make(struct rp_bytes **out, struct rp_bytes *like, const void *bytes, unsigned size);

/* Which page: of the shadow, or of the view. */
static inline uint64_t rp_key_shadow(uint64_t num)
{
	return num << 1;
}
static inline uint64_t rp_key_view(uint64_t num)
{
	return num << 1 | 1;
}
/* A version of the page `key`: struct rp_bytes of the shadow, struct rp_view_version of the view.
 */
void *rp_version_ref(uint64_t key, void *version);
void rp_version_unref(uint64_t key, void *version);

struct rp_change {
	uint64_t key;
	void *before, *after;
};
/* By key, each key once. */
struct rp_changes {
	struct rp_change *list;
	size_t n, room;
};

/* Room for `n` changes, of which there are none yet. */
bool rp_changes_room(struct rp_changes *c, size_t n);
void rp_changes_free(struct rp_changes *c);
/* The first and then the second; false without memory. */
bool rp_changes_join(struct rp_changes *out, const struct rp_changes *first,
		     const struct rp_changes *second);
/* The same the other way. */
void rp_changes_turn(struct rp_changes *c);

/* Bytes that all versions and lists of this process take; and the most that ever were, with what
 * malloc() adds: that much memory the process may keep. */
size_t rp_versions_held(void);
size_t rp_versions_most(void);
/* So many more, or fewer, of something else count as that. */
void rp_versions_hold(ptrdiff_t bytes);

#endif
