/*
 * Whether generated code can cover a thread's ground: not where two mappings share a place.
 */
#ifndef DEJA_TESTS_SHARE_PLACES_H
#define DEJA_TESTS_SHARE_PLACES_H

#include "replayer/replay-internal.h"

#include <string.h>

#define STACK_GROWS (8u << 20) /* as replayer/trail.c has it */

/* Whether two mappings, or one and where the stack may grow to, share their place modulo 4 GiB, as
 * address space randomization has it once in a hundred recordings. Generated code cannot say then
 * which is meant (replayer/trail.c), and lands nowhere. */
static inline bool share_places(const struct replay *r)
{
	struct {
		uint64_t start, end;
	} m[1000];
	unsigned n = 0;
	const struct dj_mapping *at = dj_mappings_after(&r->th->space->maps, 0, 0);

	for (; at && n < 1000; at = dj_mappings_after(&r->th->space->maps, at->end, 0)) {
		bool grows = !strcmp(at->name, "[stack]") || (at->flags & DJ_MAP_GROWSDOWN);
		if (!at->prot)
			continue;
		m[n].start = at->start - (grows && at->start > STACK_GROWS ? STACK_GROWS : 0);
		m[n++].end = at->end;
	}
	for (unsigned i = 0; i < n; i++)
		for (unsigned k = 0; k < i; k++)
			if ((uint32_t)(m[i].start - m[k].start) < m[k].end - m[k].start ||
			    (uint32_t)(m[k].start - m[i].start) < m[i].end - m[i].start)
				return true;
	return false;
}

#endif
