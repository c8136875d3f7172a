/*
 * Data that a user names: addresses, or variables of the recorded modules, which lie where each
 * process has mapped the module.
 */
#ifndef DEJA_ANALYSES_VARIABLE_H
#define DEJA_ANALYSES_VARIABLE_H

#include "analyses/analysis.h"

struct ana_place_range {
	uint32_t process;     /* number, or REPLAY_ALL */
	uint64_t start, last; /* both belong to it */
};
struct ana_place_ranges {
	struct ana_place_range *r;
	size_t n;
};

/* ADDRESS, ADDRESS:LENGTH, ADDRESS-ADDRESS (the second does not belong to it), VARIABLE,
 * VARIABLE+OFFSET, either with :LENGTH. Returns how many ranges that is; 0 if there is no such
 * variable, -1 with err. */
int ana_place_ranges_add(struct ana_job *job, struct ana_place_ranges *ranges, const char *word,
			 struct dj_error *err);
/* The part of an access that lies in one of them; false if none does. */
bool ana_place_ranges_have(const struct ana_place_ranges *ranges, uint32_t process, uint64_t addr,
			   uint64_t size, uint64_t *first, uint64_t *length);
/* From the first to the last of a process' bytes in them; false if there are none. */
bool ana_place_ranges_all(const struct ana_place_ranges *ranges, uint32_t process, uint64_t *first,
			  uint64_t *last);
void ana_place_ranges_free(struct ana_place_ranges *ranges);

#endif
