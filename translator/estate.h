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

/* The file, if it is sound and has this id; else NULL. */
struct tr_estate *tr_estate_open(int fd, size_t size, const uint8_t id[TR_KEPT_ID]);
void tr_estate_close(struct tr_estate *e); /* NULL: nothing */

/* What was said about it, up to seven bytes of 0 more; valid until it is closed. */
const void *tr_estate_about(const struct tr_estate *e, size_t *size);
/* Where its i-th arena was for the program; false if there are not that many. */
bool tr_estate_arena(const struct tr_estate *e, unsigned i, uint64_t *va);
/* How many fragments it has. */
uint32_t tr_estate_fragments(const struct tr_estate *e);

/* Code, piece by piece, which has to be in the arenas before it is read; begin with zeros. */
struct tr_estate_code {
	unsigned next;
	unsigned arena; /* from here on: a piece */
	uint64_t off;	/* in the arena */
	const uint8_t *bytes;
	size_t size;
};
bool tr_estate_code(const struct tr_estate *e, struct tr_estate_code *c);

/* A translator with that and the arenas at `ours`, in their order, such as tr_take_over() would
 * have made of what was left just now, `unit` being what it is there. The tables are zero. It has
 * the estate, and closes it when it is freed. */
struct translator *tr_estate_read(struct tr_estate *e, const struct tr_ops *ops,
				  const struct tr_config *config, uint8_t *const ours[],
				  uint32_t (*unit)(void *ctx, uint64_t page), void *ctx);

#endif
