/*
 * Which version (versions.h) each page has at the last of a row of checkpoints that come one after
 * the other, each with what has changed since the one before.
 */
#ifndef DEJA_REPLAYER_TAIL_H
#define DEJA_REPLAYER_TAIL_H

#include "replayer/versions.h"

struct rp_tail {
	struct rp_tail_page {
		uint64_t key; /* plus one; 0: none */
		void *version;
	} * pages;
	size_t n, size;
	bool failed; /* no memory, or more pages than there is room for */
};

/* Both may be given to who asks for a function: `ctx` is the tail; with get, NULL: an empty one. */
void rp_tail_set(void *ctx, uint64_t key, void *version);
void *rp_tail_get(void *ctx, uint64_t key);
/* What changes lead to. */
void rp_tail_follow(struct rp_tail *t, const struct rp_changes *c);
void rp_tail_free(struct rp_tail *t);

#endif
