/*
 * Memory for fragments: taken in blocks, since a program has a hundred thousand of them, most of
 * which live as long as the translator does. A block goes when nobody in it is left.
 */
#include "translator/cache.h"

#include <stdlib.h>

#define BLOCK (64u << 10)
/* After so many blocks others are cut from slabs, of one large page each. */
#define FEW 16

struct tr_block {
	struct tr_block *next, **at; /* in the translator's list; the first is being filled */
	uint32_t live;		     /* fragments */
	uint32_t used, size;	     /* bytes */
	bool cut;		     /* from a slab */
	uint8_t bytes[] __attribute__((aligned(16)));
};

/* The slab's first block has to do without what the slab needs. */
static void cut_slab(struct translator *tr)
{
	struct tr_slab *slab = tr_used(TR_HUGE);
	tr_warm_used(TR_HUGE); /* for the next one */
	slab->next = tr->slabs;
	tr->slabs = slab;
	for (size_t at = TR_HUGE; at > 0; at -= BLOCK) { /* so that the first ones come first */
		size_t less = at == BLOCK ? 64 : 0;
		struct tr_block *b = (void *)((uint8_t *)slab + at - BLOCK + less);
		b->size = (uint32_t)(BLOCK - less - sizeof(*b));
		b->cut = true;
		b->next = tr->spare_blocks;
		tr->spare_blocks = b;
	}
}

static struct tr_block *block_new(struct translator *tr, size_t size)
{
	struct tr_block *b;
	bool cut = size <= BLOCK - 64 - sizeof(*b) && tr->n_blocks >= FEW;
	if (cut && !tr->spare_blocks)
		cut_slab(tr);
	if (cut) {
		b = tr->spare_blocks;
		tr->spare_blocks = b->next;
		size = b->size;
	} else {
		size = size > BLOCK ? size : BLOCK;
		b = malloc(sizeof(*b) + size);
		DJ_ASSERT(b, "out of memory for fragments");
	}
	*b = (struct tr_block){
		.next = tr->blocks, .at = &tr->blocks, .size = (uint32_t)size, .cut = cut
	};
	if (b->next)
		b->next->at = &b->next;
	tr->blocks = b;
	if (++tr->n_blocks == FEW / 2)
		tr_warm_used(TR_HUGE);
	return b;
}

static void block_free(struct translator *tr, struct tr_block *b)
{
	tr->n_blocks--;
	if (b->cut) {
		b->next = tr->spare_blocks;
		tr->spare_blocks = b;
	} else {
		free(b);
	}
}

struct tr_frag *tr_frag_new(struct translator *tr, uint32_t insns, uint32_t uses)
{
	size_t size = (TR_FRAG_SIZE(insns, uses) + 15) & ~(size_t)15;
	struct tr_block *b = tr->blocks;
	if (!b || b->size - b->used < size)
		b = block_new(tr, size);
	struct tr_frag *f = (struct tr_frag *)(void *)(b->bytes + b->used);
	b->used += (uint32_t)size;
	b->live++;
	f->block = b;
	f->n = insns;
	f->n_uses = uses;
	f->insn = (struct tr_finsn *)(void *)(f + 1);
	f->uses = (struct tr_use *)(void *)(f->insn + insns);
	return f;
}

void tr_frag_free(struct translator *tr, struct tr_frag *f)
{
	struct tr_block *b = f->block;
	DJ_ASSERT(b->live, "a block of fragments has none");
	if (--b->live)
		return;
	if (b == tr->blocks) {
		b->used = 0;
		return;
	}
	*b->at = b->next;
	if (b->next)
		b->next->at = b->at;
	block_free(tr, b);
}

void tr_blocks_free(struct translator *tr)
{
	while (tr->blocks) {
		struct tr_block *b = tr->blocks;
		tr->blocks = b->next;
		block_free(tr, b);
	}
	while (tr->slabs) {
		struct tr_slab *slab = tr->slabs;
		tr->slabs = slab->next;
		tr_used_free(slab, TR_HUGE);
	}
}
