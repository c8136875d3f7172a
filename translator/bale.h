/*
 * Between translate-bale.c and translate-bale-code.c: what a bale consists of.
 */
#ifndef DEJA_TRANSLATOR_BALE_H
#define DEJA_TRANSLATOR_BALE_H

#include "translator/keep.h"

#define MOST 96u /* fragments in a bale */

/* Words in the code, by what was added to a constant. */
enum kind {
	COLD_TO_HOT, /* in cold code: the hot code's address minus the cold code's */
	HOT_TO_COLD,
	HOT_TO_RUNTIME,
	COLD_TO_RUNTIME,
	HOT_TO_CODE, /* the module's minus the hot code's */
	COLD_TO_CODE,
	LOW, /* the module's */
	NUMBER,
	FACTS, /* a number of them */
	WHOLE, /* the module's; eight bytes, unlike the others */
	KINDS,
	SAME = KINDS /* nothing: a distance within hot or cold code */
};

struct member {
	struct tr_kept_frag *kept;
	uint32_t at;		 /* in the module */
	uint32_t hot, cold;	 /* where its code begins */
	uint32_t number;	 /* the first of its numbers, the others follow in a row */
	uint32_t incoming;	 /* number plus 1 of the first link from within, or 0 */
	uint16_t page[USES_MAX]; /* which of the bale's pages its uses are */
};

/* Of a link: the member it leads to and its neighbours in the list of those that lead there, all
 * plus 1. */
struct inner {
	uint16_t to, next, prev;
};

struct tr_bale {
	uint64_t base; /* of the module, where the bale was tied */
	uint8_t *code; /* hot and cold code, from its being put a second time on */
	bool was_put;
	uint64_t id;	    /* of all bales of the module that were ever tied */
	unsigned ties;	    /* so many were tied before it, and were not welcome */
	uint32_t hot, cold; /* bytes */
	uint32_t align;	    /* of the hot code, modulo 8 */
	uint32_t n, n_numbers, n_pages;
	struct member *member;
	struct inner *inner;   /* for each number */
	struct tr_lines *page; /* relative to the module's first */
	bool summed;
	uint64_t sum;		 /* of the code there, from its being put a second time on */
	int64_t lowest, highest; /* place in the module that code refers to */
	uint32_t *place[KINDS], n_places[KINDS];
	uint64_t added[KINDS];
	size_t size; /* in bytes, of all this */
};

/* Zero, `n` times `size` bytes, which count as the bale's. */
void *tr_bale_part(struct tr_bale *b, size_t n, size_t size);

/* ---- translate-bale-code.c ---- */

/* What has to be known of the place where a bale is put. */
struct bale_place {
	uint64_t base;	 /* of the module */
	uint64_t facts;	 /* that threads must know of; 0: they do */
	uint32_t number; /* the first of its numbers */
};

/* Write its code where the arena has room for it. */
void tr_bale_code(struct tr_kept *kept, struct tr_bale *b, struct tr_arena *a,
		  const struct bale_place *at);
void tr_bale_forget_code(struct tr_bale *b);

#endif
