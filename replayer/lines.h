/*
 * Which code ran, and which memory was written and read, between two checkpoints: a search skips
 * the intervals that cannot hold what it looks for.
 *
 * A line is here 4 bytes of code or 8 bytes of memory at a multiple of that; 64 of them in a row
 * have an entry. It may be told of a line although it was not met, not the other way round.
 */
#ifndef DEJA_REPLAYER_LINES_H
#define DEJA_REPLAYER_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum rp_line_kind { LINE_RAN, LINE_WROTE, LINE_READ, LINE_KINDS };

struct rp_line_row {
	uint64_t num;		    /* of code, address / 256 and memory, address / 512 */
	uint64_t lines[LINE_KINDS]; /* a bit per line; of either */
};

/* By number, each once. */
struct rp_lines {
	struct rp_line_row *list;
	size_t n;
	bool all; /* any line may have been met: memory ran out */
};

/* The same while it grows. */
struct rp_line_log {
	struct rp_lines lines; /* in no order */
	size_t cap;
	uint32_t *hash; /* by number: index in the list, plus one */
	size_t hash_size;
};

void rp_lines_free(struct rp_lines *l);
/* Bytes that all lists of this process take; versions.h counts them, too. Who makes a list by
 * himself says that there are so many more. */
size_t rp_lines_held(void);
void rp_lines_hold(ptrdiff_t bytes);
/* Both together, into `to`. */
void rp_lines_join(struct rp_lines *to, const struct rp_lines *more);
/* Whether any line of [addr, last] may have been met. */
bool rp_lines_met(const struct rp_lines *l, enum rp_line_kind kind, uint64_t addr, uint64_t last);

void rp_line_log_free(struct rp_line_log *log);
void rp_line_log_clear(struct rp_line_log *log);
/* Lines of [addr, last] were met. */
void rp_line_log_note(struct rp_line_log *log, enum rp_line_kind kind, uint64_t addr,
		      uint64_t last);
/* Lines of one row (struct rp_line_row). */
void rp_line_log_row(struct rp_line_log *log, enum rp_line_kind kind, uint64_t num, uint64_t lines);
bool rp_line_log_met(const struct rp_line_log *log, enum rp_line_kind kind, uint64_t addr,
		     uint64_t last);
/* What is in it, and nothing is in it any more. */
void rp_line_log_take(struct rp_line_log *log, struct rp_lines *out);

#endif
