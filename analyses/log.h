/*
 * What analyses note in passing, in the order of positions: items of one size, each of which begins
 * with its position. A thread notes its own; they are joined when it ends and sorted at last. How
 * many there may be is limited: of all, the first in the order are kept. Many lie in a file, so
 * that memory is limited, too.
 */
#ifndef DEJA_ANALYSES_LOG_H
#define DEJA_ANALYSES_LOG_H

#include "analyses/analysis.h"

struct ana_log {
	uint8_t *items;
	size_t n, cap, size; /* size: of an item */
	uint64_t limit;
	bool more;   /* there would have been */
	bool failed; /* out of memory, or of room on the disk */
	int file;    /* its number and 1, if there is much of it */
};

/* Room for another at the end, zeros; NULL if there is none. */
void *ana_log_add(struct ana_log *log);
static inline void *ana_log_at(const struct ana_log *log, size_t i)
{
	return log->items + i * log->size;
}
/* What `from` has; `from` is empty then. */
void ana_log_join(struct ana_log *to, struct ana_log *from);
/* By position, and no more than the limit. */
void ana_log_sort(struct ana_log *log);
void ana_log_free(struct ana_log *log);

/* An instruction's place as "FUNCTION at FILE:LINE", "FUNCTION+OFFSET" or "MODULE+OFFSET". */
void ana_code_text(struct ana_functions *f, const struct replay_code *code, char *buf, size_t size);

#endif
