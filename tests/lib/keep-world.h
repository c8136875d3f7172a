/*
 * A program of one library, which is translated from random places on, with what is kept of that:
 * for the tests of kept translations. (keep-world.c)
 */
#ifndef DEJA_TESTS_KEEP_WORLD_H
#define DEJA_TESTS_KEEP_WORLD_H

#include "translator/keep.h"

#define THERE	  0x2a0080000000ULL
#define ROUNDS	  150
#define STARTS	  4 /* places in a round: what follows fits into a chunk */
#define LIBRARIES 16

/* The code of the libraries that this process has; the first one is the largest. */
struct text {
	const uint8_t *bytes;
	size_t size;
};
extern struct text texts[LIBRARIES];
extern unsigned n_texts;
/* False if there is none. */
bool find_texts(void);

struct world {
	const struct text *text;
	uint64_t base;
	struct tr_kept *kept;
	uint64_t spoilt; /* page that is not what it was */
	uint64_t facts;	 /* that threads have to know of, and do not, */
	bool odd;	 /* if the code is in an odd page */
	bool bales;
	uint8_t *tables, *arena;
	struct translator *tr;
};

extern bool changes; /* the code may change unheard */
extern bool untold;  /* the trace knows nothing of the code */

uint8_t *sparse(size_t size);
uint64_t random_of(uint64_t seed);
void begin_with_nothing(struct world *w);
/* Translate from the places that belong to the round. */
void translate(struct world *w, uint64_t round);
/* Both. */
void begin(struct world *w, uint64_t round);
void end(struct world *w);

bool same_fragment(const struct tr_frag *f, const struct tr_frag *g);
/* What of the first chunk has been made. */
void compare(const struct world *a, const struct world *b);
uint64_t made_again(const struct world *w);

#endif
