/*
 * Numbers kept by place, or by pair of places (from, to): what analyses add up. Memory grows with
 * how much code there is, not with how long it ran.
 */
#ifndef DEJA_ANALYSES_TALLY_H
#define DEJA_ANALYSES_TALLY_H

#include "replayer/pass.h"

#include <string.h>

struct ana_item {
	struct replay_code a, b;
	uint64_t n[6];
	uint32_t user;
	bool used;
};

struct ana_tally {
	struct ana_item *item; /* a hash table; `used` ones count */
	size_t n, size;
	bool failed; /* out of memory */
};

/* The item of this place, or pair, made if need be; b may be NULL. NULL when out of memory. Valid
 * until the next call. */
struct ana_item *ana_tally_at(struct ana_tally *t, const struct replay_code *a,
			      const struct replay_code *b);
/* The same, but not made. */
struct ana_item *ana_tally_find(const struct ana_tally *t, const struct replay_code *a,
				const struct replay_code *b);
/* Add all of `from`, and free it. */
void ana_tally_add(struct ana_tally *t, struct ana_tally *from);
/* Put the items in order, by a and b, without holes: no more of the above then. */
void ana_tally_sort(struct ana_tally *t);
/* In a sorted one: the first item of this place, or NULL. */
const struct ana_item *ana_tally_sorted(const struct ana_tally *t, const struct replay_code *a);
void ana_tally_free(struct ana_tally *t);

int ana_code_cmp(const struct replay_code *a, const struct replay_code *b);

#endif
