/*
 * All that was translated for an image, in a file (translate-estate.c). Between recordings it is
 * what a heir takes over (tr_keep_only, tr_take_over) within one.
 */
#ifndef DEJA_TRANSLATOR_ESTATE_H
#define DEJA_TRANSLATOR_ESTATE_H

#include "translator/translate.h"

#define TR_ESTATE_ARENAS 16 /* at most */
#define TR_ESTATE_ABOUT	 (64u << 10)

struct tr_estate;

/* What tr_keep_only() has left of the translator, which is of no use afterwards but for tr_free().
 * `id` as with kept translations; `n_about` bytes are the caller's, at most TR_ESTATE_ABOUT. The
 * file is at its start. False: it is not whole. */
bool tr_estate_write(struct translator *tr, const uint8_t id[TR_KEPT_ID], const void *about,
		     size_t n_about, FILE *to);

/* The file, if it has this id, and all places and lengths in it are such as there can be; else
 * NULL. Whether it is damaged is not known yet. */
struct tr_estate *tr_estate_open(int fd, size_t size, const uint8_t id[TR_KEPT_ID]);
/* Whether it is as it was written. Takes as long as to read all of it; any thread may ask. */
bool tr_estate_whole(const struct tr_estate *e);
void tr_estate_close(struct tr_estate *e); /* NULL: nothing */

/* What was said about it, up to seven bytes of 0 more; valid until it is closed. */
const void *tr_estate_about(const struct tr_estate *e, size_t *size);
/* Where its i-th arena was for the program; false if there are not that many. */
bool tr_estate_arena(const struct tr_estate *e, unsigned i, uint64_t *va);
/* How many fragments it has. */
uint32_t tr_estate_fragments(const struct tr_estate *e);

/* Code, piece by piece, for the arenas (tr_estate_read says when); begin with zeros. */
struct tr_estate_code {
	unsigned next;
	unsigned arena; /* from here on: a piece */
	uint64_t off;	/* in the arena */
	const uint8_t *bytes;
	size_t size;
};
bool tr_estate_code(const struct tr_estate *e, struct tr_estate_code *c);

struct tr_estate_heir {
	uint8_t *const *ours; /* the arenas, in their order */
	/* as for tr_take_over() */
	uint32_t (*unit)(void *ctx, uint64_t page);
	/* Called when the code must be there: another thread may be copying it until then. False:
	 * it is not, and nothing is read. May be NULL. */
	bool (*ready)(void *ctx);
	void *ctx;
};
/* A translator with that, such as tr_take_over() would have made of what was left just now; or
 * NULL. The tables are zero. It has the estate, and closes it when it is freed; if it is NULL it
 * has been closed. */
struct translator *tr_estate_read(struct tr_estate *e, const struct tr_ops *ops,
				  const struct tr_config *config, const struct tr_estate_heir *h);

#endif
