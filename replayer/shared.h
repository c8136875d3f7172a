/*
 * Between replay-shared.c, which asks threads what they know of a page, and shared-order.c, which
 * finds out who of them is right.
 */
#ifndef DEJA_REPLAYER_SHARED_H
#define DEJA_REPLAYER_SHARED_H

#include "replayer/replay-internal.h"

#define SHARED_PAGE 4096u
#define SHARED_LINE 64u

/* What one thread has to say about a page. */
struct voice {
	uint32_t thread;
	uint64_t upto; /* the last event it has passed at the moment, unless it is the moment's */
	uint8_t state[SHARED_PAGE], value[SHARED_PAGE];
	struct rp_memview_notes notes;
	uint64_t want[SHARED_PAGE / 64]; /* bytes about which the order has to be found out */
	/* Its history is searched back for that: from where it stands at the moment, */
	struct rp_thread_pos here;
	/* down to here; what happened before has at most this number. */
	struct rp_thread_pos low;
	uint64_t seq;
	bool moved; /* it does not stand there now */
	bool done;  /* what it did still earlier does not matter */
};

struct page {
	uint64_t num;
	uint64_t lines; /* of 64 bytes: those that somebody wants to see */
	struct voice *own, **others;
	size_t n, cap;
};

static inline bool voices_differ(const struct voice *a, const struct voice *b, unsigned i)
{
	return a->state[i] != b->state[i] ||
	       (a->state[i] == RP_BYTE_HAS && a->value[i] != b->value[i]);
}

/* The thread in hand has to stand where it stood, whoever is impatient. Not 0: it does not. */
int rp_shared_put_back(struct replay *r, const struct rp_thread_pos *here, bool cancelled);

/* Find out about the order, as far as it matters for these lines. All stand where they stand at the
 * moment, and do so afterwards; after an interruption some are not placed any more. Not 0: that
 * cannot be. */
int rp_shared_order(struct replay *r, struct page *p);
/* What is to be shown, after that. */
void rp_shared_decide(const struct page *p, struct rp_shown *s);

#endif
