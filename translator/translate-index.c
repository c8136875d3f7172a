/*
 * How fragments are found by their addresses in the program, and the links that wait for one: two
 * tables of lists, which grow as there are more fragments. Most programs have a few thousand, and
 * for each of them the kernel has to fill with zeros what is touched of its tables.
 */
#include "translator/cache.h"

#include <stdlib.h>

#define FEWEST 13 /* bits */
#define MOST   20
#define STEP   2
#define SPARSE                                                                                     \
	2 /* bits: mostly what is looked for is not there, which an empty list says at once */

/* Both tables, one behind the other. */
static size_t bytes_of(unsigned bits)
{
	return (sizeof(struct tr_frag *) + sizeof(uint32_t)) << bits;
}

static bool is_huge(unsigned bits)
{
	return bytes_of(bits) >= TR_HUGE / 2;
}

static size_t whole(unsigned bits)
{
	return (bytes_of(bits) + TR_HUGE - 1) & ~(TR_HUGE - 1);
}

static void *zero(unsigned bits)
{
	void *p = is_huge(bits) ? tr_huge(whole(bits)) : calloc(1, bytes_of(bits));
	DJ_ASSERT(p, "out of memory for an index of fragments");
	return p;
}

static void give_up(void *tables, unsigned bits)
{
	if (is_huge(bits))
		tr_sparse_free(tables, whole(bits));
	else
		free(tables);
}

/* A list's members, from the last to the first, are put before what is in their new lists: so they
 * keep their order. */
static void move_frags(struct translator *tr, struct tr_frag *list)
{
	struct tr_frag *back = NULL;
	for (struct tr_frag *f = list, *next; f; f = next) {
		next = f->next;
		f->next = back;
		back = f;
	}
	for (struct tr_frag *f = back, *next; f; f = next) {
		struct tr_frag **to = &tr->hash[tr_hash(tr, f->pc)];
		next = f->next;
		f->next = *to;
		*to = f;
	}
}

static void move_waiting(struct translator *tr, uint32_t list)
{
	uint32_t last = 0;
	for (uint32_t k = list; k; k = tr->numbers[k].next)
		last = k;
	for (uint32_t k = last, next; k; k = next) {
		struct tr_number *n = &tr->numbers[k];
		uint32_t *to = &tr->waiting[tr_hash(tr, n->stop.pc)];
		next = n->prev;
		n->prev = 0;
		n->next = *to;
		if (n->next)
			tr->numbers[n->next].prev = k;
		*to = k;
	}
}

static void resize(struct translator *tr, unsigned bits)
{
	struct tr_frag **hash = tr->hash;
	uint32_t *waiting = tr->waiting;
	unsigned before = tr->hash_bits;

	tr->hash = zero(bits);
	tr->waiting = (uint32_t *)(void *)(tr->hash + (1UL << bits));
	tr->hash_bits = bits;
	if (!hash)
		return;
	for (uint32_t i = 0; i < 1u << before; i++) {
		move_frags(tr, hash[i]);
		move_waiting(tr, waiting[i]);
	}
	give_up(hash, before);
}

void tr_index_room(struct translator *tr, uint32_t n)
{
	unsigned bits = tr->hash ? tr->hash_bits : FEWEST;
	while (bits < MOST && n > 1u << (bits - SPARSE))
		bits++;
	if (!tr->hash || bits != tr->hash_bits)
		resize(tr, bits);
}

void tr_index_free(struct translator *tr)
{
	give_up(tr->hash, tr->hash_bits);
}

static void may_be_there(struct translator *tr, uint64_t pc)
{
	unsigned bit = tr_maybe_bit(pc);
	tr->maybe[bit / 64] |= 1ULL << (bit % 64);
}

/* Bits of fragments that are gone stay until there are too many. */
static void forget_maybe(struct translator *tr)
{
	tr->published = 0;
	memset(tr->maybe, 0, sizeof(tr->maybe));
	for (uint32_t i = 0; i < 1u << tr->hash_bits; i++)
		for (const struct tr_frag *f = tr->hash[i]; f; f = f->next)
			may_be_there(tr, f->pc);
}

void tr_enter_hash(struct translator *tr, struct tr_frag *f)
{
	if (tr->published++ == FRAG_MAYBE / 4)
		forget_maybe(tr);
	may_be_there(tr, f->pc);
	if (tr->n_hashed++ >> (tr->hash_bits - SPARSE))
		tr_index_room(tr, 1u << (tr->hash_bits - SPARSE + STEP));
	struct tr_frag **to = &tr->hash[tr_hash(tr, f->pc)];
	f->next = *to;
	*to = f;
}

void tr_leave_hash(struct translator *tr, struct tr_frag *f)
{
	struct tr_frag **p = &tr->hash[tr_hash(tr, f->pc)];
	while (*p != f)
		p = &(*p)->next;
	*p = f->next;
	tr->n_hashed--;
}

struct tr_frag *tr_find(const struct translator *tr, uint64_t pc)
{
	unsigned bit = tr_maybe_bit(pc);
	if (!(tr->maybe[bit / 64] >> (bit % 64) & 1))
		return NULL;
	for (struct tr_frag *f = tr->hash[tr_hash(tr, pc)]; f; f = f->next)
		if (f->pc == pc && !f->asleep && !f->parked)
			return f;
	return NULL;
}
