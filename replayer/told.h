/*
 * Bytes that a SYSDATA record tells: what memory held at a position, which the thread itself had
 * neither read nor written. They are for people to look at; the memory view (memview.h) shows them
 * where it knows nothing better.
 *
 * What was told holds until something changes the bytes again. Both positions are kept, so that
 * going back takes no more than looking at them.
 */
#ifndef DEJA_REPLAYER_TOLD_H
#define DEJA_REPLAYER_TOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOLD_HASH 4096u

struct rp_told_line;

struct rp_told {
	struct rp_told_line *v; /* in the order in which they were told */
	size_t n, cap;
	uint32_t *ended; /* those that are not true any more, as they ended */
	size_t n_ended;
	uint32_t hash[TOLD_HASH]; /* the first of the true lines there, plus one */
};

/* A place in the thread's history: instructions, signals delivered since the last of them. */
struct rp_told_pos {
	uint64_t steps;
	uint32_t signals;
};

void rp_told_free(struct rp_told *t);
/* Here the bytes of `mask` in the line at `line` (a multiple of 64) are these. */
void rp_told_add(struct rp_told *t, struct rp_told_pos here, uint64_t line, uint64_t mask,
		 const uint8_t *bytes);
/* By the next step from here they are no more; or, if `settled`, not here either. */
void rp_told_spoil(struct rp_told *t, struct rp_told_pos here, uint64_t line, uint64_t mask,
		   bool settled);
/* Not here any more: pages `first` to `last`. */
void rp_told_spoil_pages(struct rp_told *t, struct rp_told_pos here, uint64_t first, uint64_t last);
/* The thread went back to `to`. */
void rp_told_back(struct rp_told *t, struct rp_told_pos to);
/* The bytes of the line that were told at this very position, as a mask. */
uint64_t rp_told_at(const struct rp_told *t, struct rp_told_pos here, uint64_t line);
/* The byte at addr, if it was told. */
bool rp_told_byte(const struct rp_told *t, uint64_t addr, uint8_t *value);

#endif
