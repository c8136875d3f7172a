/*
 * What the thread will find in memory that it has not looked at yet.
 *
 * After read(2), say, nobody knows the buffer until the program reads it. So when a debugger
 * asks for bytes that are not known, the thread is run on for a while, and what it loads
 * before anything could have changed it was there all along. Then it is put back. Bytes that
 * are stored to first, or that a system call may write to, stay unknown.
 */
#ifndef DEJA_REPLAYER_LOOKAHEAD_H
#define DEJA_REPLAYER_LOOKAHEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rp_lookahead_page {
	uint64_t num;
	struct rp_lookahead_page *next;
	uint64_t decided[64], known[64]; /* a bit per byte */
	uint8_t data[4096];
};

#define LOOKAHEAD_HASH 1024u

struct rp_lookahead {
	struct rp_lookahead_page *hash[LOOKAHEAD_HASH];
	size_t pages;
};

void rp_lookahead_clear(struct rp_lookahead *l);
/* The bytes of `mask` in the line at `line` (a multiple of 64) were met for the first time:
 * with these values (64 of them, or NULL if they are spoilt). */
void rp_lookahead_meet(struct rp_lookahead *l, uint64_t line, uint64_t mask, const uint8_t *bytes);
/* The byte at addr, if it was learned. */
bool rp_lookahead_byte(const struct rp_lookahead *l, uint64_t addr, uint8_t *value);

struct replay;
/* Bytes from addr on that the thread will find there; returns how many, contiguous. */
size_t rp_lookahead_read(struct replay *r, uint64_t addr, uint8_t *buf, size_t len);

#endif
