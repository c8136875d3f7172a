/*
 * What the thread will find in memory that it has not looked at yet.
 *
 * After read(2), say, nobody knows the buffer until the program reads it. So when a debugger
 * asks for bytes that are not known, the thread is run on for a while, and what it loads
 * before anything could have changed it was there all along. Then it is put back. Bytes that
 * are stored to first, or that a system call may write to, stay unknown.
 *
 * Who steps through a program asks again and again. So what is learned serves all positions from
 * where the look began to the end of their stretch of history (LOOK_STRETCH instructions, counted
 * from 0), and every look goes on to the end of the next stretch: how far ahead a position is
 * looked from is a property of the position, not of who came there and how. For that, what was met
 * is kept in the order in which it was met. A byte that is not known at position P was not met
 * between the last time before P that something else may have written it and P. So what counts is
 * the first meeting after that time, unless the byte may have changed between P and the meeting.
 */
#ifndef DEJA_REPLAYER_LOOKAHEAD_H
#define DEJA_REPLAYER_LOOKAHEAD_H

#include "replayer/thread.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rp_lookahead_page;

#define LOOKAHEAD_HASH 4096u /* lists, for 100,000 pages at most */

/* Bytes of a line that were met for the first time, or again after they were spoilt. */
struct rp_lookahead_met {
	uint64_t mask;
	uint32_t next; /* the one after it in the same line, plus one */
	bool found;    /* they were read; else written, and nobody knows what was there */
	uint8_t bytes[64];
};

/* All meetings from number `met` on come after this; at `pos` it has happened. */
struct rp_lookahead_spoilt {
	struct rp_thread_pos pos;
	uint64_t addr, last; /* bytes that something else may write */
	uint32_t met;
};

struct rp_lookahead {
	struct rp_lookahead_page *hash[LOOKAHEAD_HASH];
	struct rp_lookahead_met *met;
	size_t pages, n_met, met_cap;
	struct rp_lookahead_spoilt *spoilt; /* in order */
	size_t n_spoilt, spoilt_cap;
	bool full; /* no more can be learned */

	/* what it is good for, if `good`: positions of the thread from `from` on, before `upto` */
	bool good;
	uint32_t thread;
	struct rp_thread_pos from, upto;
};

void rp_lookahead_clear(struct rp_lookahead *l);
/* The bytes of `mask` in the line at `line` (a multiple of 64), which were not known, were met:
 * with these values (64 of them, or NULL if they were written). */
void rp_lookahead_meet(struct rp_lookahead *l, uint64_t line, uint64_t mask, const uint8_t *bytes);
/* By `pos` something may have changed bytes from addr to `last`, whoever does it. */
void rp_lookahead_spoil(struct rp_lookahead *l, struct rp_thread_pos pos, uint64_t addr,
			uint64_t last);
/* The byte at addr, which is not known at `pos`, if it was learned. */
bool rp_lookahead_byte(const struct rp_lookahead *l, const struct rp_thread_pos *pos, uint64_t addr,
		       uint8_t *value);

struct replay;
/* Bytes from addr on that the thread will find there; returns how many, contiguous. */
size_t rp_lookahead_read(struct replay *r, uint64_t addr, uint8_t *buf, size_t len);

#endif
