/*
 * Between translate-estate-write.c and translate-estate.c: what a file consists of.
 */
#ifndef DEJA_TRANSLATOR_ESTATE_FILE_H
#define DEJA_TRANSLATOR_ESTATE_FILE_H

#include "translator/build.h"
#include "translator/estate.h"

#include <xxhash.h>

#define ESTATE_MAGIC 0x3130747365616a64ULL /* "djaest01" */
#define ESTATE_NONE  UINT32_MAX

struct estate_head {
	uint64_t magic, size; /* of the file */
	uint8_t id[TR_KEPT_ID];
	uint64_t sum;	   /* of everything behind the head */
	uint64_t head_sum; /* of the head, this being 0 */
	uint32_t about;	   /* bytes, a multiple of eight */
	uint32_t arenas, chunks, pages, frags, uses, numbers, insns;
	uint64_t code; /* bytes */
};
_Static_assert(sizeof(struct estate_head) % 8 == 0, "rows are aligned");

/* Rows, in this order, behind what the caller says. Code comes last: of each chunk first the hot,
 * then the cold. */
struct estate_arena {
	uint64_t va;
};

struct estate_chunk {
	uint32_t arena, chunk;
	uint32_t hot, cold; /* bytes, multiples of eight */
	uint32_t frags, pad;
};

struct estate_page {
	uint64_t page, sum;
};

/* By chunks, and by address in each. */
struct estate_frag {
	uint64_t pc, ret_site;
	uint32_t entry, end; /* offsets in the arena */
	uint32_t stub;	     /* in its arena, or 0 */
	uint32_t stub_arena; /* ESTATE_NONE: it lies right before the entry */
	uint16_t live, lag, n_uses, n;
	uint32_t indirect, pad;
};

struct estate_use {
	uint64_t lines;
	uint32_t page, pad;
};

/* Of all numbers from STOP_TABLE on. */
struct estate_number {
	uint64_t pc;
	uint32_t frag; /* ESTATE_NONE: it is free */
	uint32_t to;   /* ESTATE_NONE: it waits */
	uint32_t site, stub, far;
	uint16_t lag, kind;
};

static inline uint64_t estate_head_sum(const struct estate_head *head)
{
	struct estate_head h = *head;
	h.head_sum = 0;
	return XXH3_64bits(&h, sizeof(h));
}

#endif
