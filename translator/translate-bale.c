/*
 * Bales: kept translations that are taken over together.
 *
 * A compiler that is started again needs a hundred thousand fragments that were kept, and to make
 * each of them again by itself (translate-keep.c) takes a sixth of the time that the compiler then
 * runs. So kept fragments that were made one after the other are tied together, some dozens of
 * them, when one of them is asked for and is in no bale yet. What is found out then holds wherever
 * the bale goes: where each fragment lies in it, which links lead from one of them to another
 * (those are jumps in its code already, and in the lists), that they agree about the lags at their
 * entries, which pages they depend on. Wherever one of its fragments is wanted the whole bale is
 * put: its code in one piece, numbers in a row.
 *
 * What depends on where that is are words in the code: a constant plus one of a few parameters,
 * such as the distance of the module from the bale's hot code. The bale's code has these sums for
 * where it was put last; before it is put somewhere else the difference of each parameter that
 * changed is added to the words of its kind. In the next process that is often none but the
 * numbers: a program that is not position independent is where it was, and so is the arena near it.
 *
 * A bale is put all or not at all. It is not if one of its fragments is there already, or if
 * anybody who leads there, or to where it leads, has another lag in mind. Then it is untied, and
 * another is tied of those that are welcome: the next process of the program comes to the same
 * place in the same way, most likely. (A few times: two kinds of process may want it differently.)
 * Nor is it if a page that it depends on is not what it was, or if it does not reach what it refers
 * to. Then the fragment that was wanted is made by itself, as it is if too few others go with it.
 * After that nothing tells the fragments from others: each can be retired by itself.
 *
 * tests/unit/test-keep.c compares what comes of it, byte by byte, with fragments made one by one.
 */
#include "translator/runtime.h"
#include "translator/bale.h"

#include <stdlib.h>

#define FEWEST	   8u
#define BALE_HOT   (15u << 10) /* bytes: some of them go into a chunk */
#define BALE_COLD  (24u << 10)
#define BALE_PAGES 128u
#define LOOK_AT	   (3 * MOST) /* that many kept fragments, to find some for a bale */
#define LAGS	   4096u
#define TIES	   4u /* that often what goes with a fragment is found anew */
#define ABSENT	   8u /* so many in a row, of which the code is not there: nor is what follows */

/* ---- which fragments go into a bale --------------------------------------------------------- */

struct lag {
	uint64_t offset;      /* plus 1 */
	uint32_t tied;	      /* in which tying; of another one it is empty */
	uint16_t lag, member; /* the latter plus 1, of whose entry it is; or 0 */
};

/* There is one, used again and again: to empty its tables takes as long as to tie a bale. */
struct tying {
	uint32_t ties;	 /* so many were begun with it */
	unsigned absent; /* so many were looked at since the last member, the code being other */
	struct translator *tr;
	struct tr_kept *kept;
	uint64_t base, flag; /* what is in the offsets beside the place in the module */
	struct member member[MOST];
	unsigned n;
	uint32_t hot, cold, numbers, align;
	struct tr_lines page[BALE_PAGES];
	unsigned n_pages;
	unsigned n_lags;
	struct lag lag[LAGS];
};

static struct lag *lag_of(struct tying *t, uint64_t offset)
{
	uint32_t i = (uint32_t)(offset * 0x9e3779b97f4a7c15ULL >> 40);
	for (i &= LAGS - 1;; i = (i + 1) & (LAGS - 1)) {
		struct lag *l = &t->lag[i];
		if (l->tied != t->ties)
			*l = (struct lag){ .tied = t->ties };
		if (!l->offset || l->offset == offset + 1)
			return l;
	}
}

static uint64_t place_of(const struct tying *t, const struct tr_kept_frag *k)
{
	return k->offset ^ t->flag;
}

/* Whether it is what would be found if somebody looked for it; but a file may have others of its
 * place. */
static bool is_current(const struct tying *t, const struct tr_kept_frag *k, uint64_t pc)
{
	const struct tr_kept_frag *found = tr_kept_in_memory(t->kept, k->offset, pc);
	return tr_kept_usable(k, k->offset, pc) &&
	       (found == k || (!found && tr_kept_is_in_file(t->kept, k)));
}

/* Whether no other one of its place is a member, and the members agree with it about lags; they do
 * from then on. */
static bool agrees(struct tying *t, const struct tr_kept_frag *k, const struct kept_number *n)
{
	uint64_t own = place_of(t, k);
	struct lag *l = lag_of(t, own);
	if ((l->offset && (l->lag != k->lag || l->member)) ||
	    t->n_lags + 1 + k->n_numbers > LAGS / 2)
		return false;
	for (unsigned i = 0; i < k->n_numbers; i++) {
		uint64_t to = own + (uint64_t)(int64_t)n[i].pc;
		const struct lag *o = lag_of(t, to);
		if (n[i].kind == TR_STOP_LINK &&
		    ((o->offset && o->lag != n[i].lag) || (to == own && n[i].lag != k->lag)))
			return false;
	}
	t->n_lags += !l->offset;
	*l = (struct lag){ own + 1, t->ties, k->lag, (uint16_t)(t->n + 1) };
	for (unsigned i = 0; i < k->n_numbers; i++) {
		uint64_t to = own + (uint64_t)(int64_t)n[i].pc;
		l = lag_of(t, to);
		if (n[i].kind != TR_STOP_LINK || l->offset)
			continue;
		*l = (struct lag){ to + 1, t->ties, n[i].lag, 0 };
		t->n_lags++;
	}
	return true;
}

/* Its pages are among the bale's. False if there are too many. */
static bool add_pages(struct tying *t, struct member *m, const struct tr_lines *uses)
{
	uint64_t first = (place_of(t, m->kept) + t->base) >> 12;
	for (unsigned u = 0; u < m->kept->n_uses; u++) {
		uint64_t page = first + uses[u].page - (t->base >> 12);
		unsigned i = 0;
		while (i < t->n_pages && t->page[i].page != page)
			i++;
		if (i == BALE_PAGES)
			return false;
		if (i == t->n_pages)
			t->page[t->n_pages++] = (struct tr_lines){ page, 0 };
		t->page[i].lines |= uses[u].lines;
		m->page[u] = (uint16_t)i;
	}
	return true;
}

/* Whether it is not there, and whoever leads there, or to where it leads, agrees about the lags; of
 * links to other members of its bale, for which there is an `inner`, nothing is asked. */
static bool is_welcome(const struct translator *tr, struct tr_kept_frag *k, uint64_t pc,
		       const struct inner *inner)
{
	const struct kept_number *n = parts_of(k).numbers;
	for (const struct tr_frag *f = tr->hash[tr_hash(tr, pc)]; f; f = f->next)
		if (f->pc == pc) /* also if it is asleep */
			return false;
	if (tr_lag_at(tr, pc, 0, k->lag) != k->lag)
		return false;
	for (unsigned i = 0; i < k->n_numbers; i++) {
		uint64_t to = pc + (uint64_t)(int64_t)n[i].pc;
		if (n[i].kind == TR_STOP_LINK && !(inner && inner[k->n_numbers - 1 - i].to) &&
		    tr_lag_at(tr, to, 0, n[i].lag) != n[i].lag)
			return false;
	}
	return true;
}

/* It becomes a member if it can. False if the bale is full, or if there will hardly be more of it:
 * a compiler at run time has not made what follows yet. */
static bool add(struct tying *t, struct tr_kept_frag *k)
{
	uint64_t pc = t->base + place_of(t, k);
	struct parts p = parts_of(k);
	if (!t->n)
		t->align = k->align;
	uint32_t hot = t->hot + ((k->align - t->align - t->hot) & 7);
	if (t->n == MOST || hot + k->hot > BALE_HOT || t->cold + k->cold > BALE_COLD)
		return false;
	if (*tr_kept_bale(t->kept, k) || !is_current(t, k, pc) || !is_welcome(t->tr, k, pc, NULL))
		return true;
	if (!tr_kept_same(t->tr, k, pc))
		return ++t->absent < ABSENT;
	struct member *m = &t->member[t->n];
	*m = (struct member){ .kept = k,
			      .at = (uint32_t)place_of(t, k),
			      .hot = hot,
			      .cold = t->cold,
			      .number = t->numbers };
	if (!add_pages(t, m, p.uses) || !agrees(t, k, p.numbers))
		return true; /* a page more that nobody needs does no harm */
	t->hot = hot + k->hot;
	t->cold += k->cold;
	t->numbers += k->n_numbers;
	t->n++;
	t->absent = 0;
	return true;
}

/* ---- a bale --------------------------------------------------------------------------------- */

/* Links from member to member: in their lists. */
static void link_members(struct tr_bale *b, struct tying *t)
{
	for (unsigned i = 0; i < b->n; i++) {
		struct member *m = &b->member[i];
		struct tr_kept_frag *k = m->kept;
		const struct kept_number *n = parts_of(k).numbers;
		for (unsigned j = k->n_numbers; j-- > 0;) {
			uint64_t to = place_of(t, k) + (uint64_t)(int64_t)n[j].pc;
			uint32_t number = m->number + k->n_numbers - 1 - j;
			uint16_t into = n[j].kind == TR_STOP_LINK ? lag_of(t, to)->member : 0;
			if (!into)
				continue;
			struct member *o = &b->member[into - 1];
			b->inner[number] = (struct inner){ into, (uint16_t)o->incoming, 0 };
			if (o->incoming)
				b->inner[o->incoming - 1].prev = (uint16_t)(number + 1);
			o->incoming = number + 1;
		}
	}
}

static void bale_free(struct tr_bale *b)
{
	tr_bale_forget_code(b);
	free(b->member);
	free(b->inner);
	free(b->page);
	free(b);
}

/* How far its code reaches in the module. */
static void find_ends(struct tr_bale *b)
{
	for (unsigned i = 0; i < b->n; i++) {
		const struct member *m = &b->member[i];
		const struct fix *f = parts_of(m->kept).fixes;
		for (unsigned j = 0; j < m->kept->n_fixes; j++) {
			int64_t place = (int64_t)m->at + f[j].to;
			if (f[j].kind != FIX_CODE)
				continue;
			b->lowest = place < b->lowest ? place : b->lowest;
			b->highest = place > b->highest ? place : b->highest;
		}
	}
}

/* Of the fragments that have been chosen. */
static struct tr_bale *bale_of(struct tying *t)
{
	struct tr_bale *b = calloc(1, sizeof(*b));
	DJ_ASSERT(b, "out of memory for kept translations");
	b->base = t->base;
	b->lowest = INT64_MAX;
	b->highest = INT64_MIN;
	b->align = t->align;
	b->hot = t->hot;
	b->cold = t->cold;
	b->n = t->n;
	b->n_numbers = t->numbers;
	b->n_pages = t->n_pages;
	b->member = tr_bale_part(b, b->n, sizeof(*b->member));
	b->inner = tr_bale_part(b, b->n_numbers, sizeof(*b->inner));
	b->page = tr_bale_part(b, b->n_pages, sizeof(*b->page));
	memcpy(b->member, t->member, b->n * sizeof(*b->member));
	memcpy(b->page, t->page, b->n_pages * sizeof(*b->page));
	link_members(b, t);
	find_ends(b);
	b->size += sizeof(*b);
	return b;
}

/* A place in the list of bales. */
static uint32_t slot_for(struct tr_kept *kept)
{
	uint32_t slot = kept->free_bale;
	if (slot) {
		kept->free_bale = 0;
		return slot - 1;
	}
	kept->bale = realloc(kept->bale, (kept->n_bales + 1) * sizeof(*kept->bale));
	DJ_ASSERT(kept->bale, "out of memory for kept translations");
	return kept->n_bales++;
}

/* Its fragments are in no bale. */
static void untie(struct tr_kept *kept, uint32_t slot)
{
	struct tr_bale *b = kept->bale[slot];
	for (uint32_t i = 0; i < b->n; i++)
		*tr_kept_bale(kept, b->member[i].kept) = 0;
	*kept->room += b->size;
	bale_free(b);
	kept->bale[slot] = NULL;
	if (!kept->free_bale)
		kept->free_bale = slot + 1;
}

static struct tying *tying(struct translator *tr)
{
	struct tying *t = tr->tying;
	if (!t)
		t = tr->tying = calloc(1, sizeof(*t));
	DJ_ASSERT(t, "out of memory for kept translations");
	t->ties++;
	t->tr = tr;
	t->n = t->n_pages = t->n_lags = t->absent = 0;
	t->hot = t->cold = t->numbers = t->align = 0;
	return t;
}

/* A bale of what was made after `k`, that included; NULL if that is too little. */
static struct tr_bale *tie(struct translator *tr, struct tr_kept *kept, struct tr_kept_frag *k,
			   uint64_t pc, uint64_t base)
{
	struct tying *t = tying(tr);
	struct tr_bale *b = NULL;
	t->kept = kept;
	t->base = base;
	t->flag = k->offset ^ (pc - base);
	struct tr_kept_frag *next = k;
	for (unsigned i = 0; next && i < LOOK_AT; i++, next = tr_kept_next(kept, next))
		if (((next->offset ^ t->flag) >> 32) == 0 && !add(t, next))
			break;
	if (t->n >= FEWEST && t->member[0].kept == k && t->numbers < UINT16_MAX)
		b = bale_of(t);
	if (b && b->size > *kept->room) {
		bale_free(b);
		b = NULL;
	}
	if (b) {
		*kept->room -= b->size;
		uint32_t slot = slot_for(kept);
		kept->bale[slot] = b;
		b->id = ++kept->bales_made;
		for (unsigned i = 0; i < b->n; i++)
			*tr_kept_bale(kept, b->member[i].kept) = slot + 1;
	}
	return b;
}

void tr_bales_free(struct tr_kept *kept)
{
	for (uint32_t i = 0; i < kept->n_bales; i++) {
		if (!kept->bale[i])
			continue;
		*kept->room += kept->bale[i]->size;
		bale_free(kept->bale[i]);
	}
	free(kept->bale);
}

/* ---- putting it somewhere ------------------------------------------------------------------- */

/* Whether the code is the module's, and may be executed by all threads that know of so many facts,
 * which the bale asks for: a few more for some of its pages than they need. */
static bool same_module(struct translator *tr, const struct tr_kept *kept, const struct tr_bale *b,
			uint64_t base, uint64_t *facts)
{
	uint64_t other, own;
	bool asks = tr_kept_asks(b->member[0].kept);
	*facts = 0;
	for (uint32_t i = 0; i < b->n_pages; i++) {
		uint64_t page = base + (b->page[i].page << 12);
		if (tr_kept_at(tr, page, &other) != kept || other != base ||
		    !tr_kept_told(tr, page, 4096, &own) || (own && !asks) || own > UINT32_MAX)
			return false;
		*facts = own > *facts ? own : *facts;
	}
	return true;
}

/* Whether the code is what the bale was made of. The first time each of its fragments is asked, as
 * it was when the bale was tied. */
static bool same_code(struct translator *tr, struct tr_bale *b, uint64_t base)
{
	if (b->summed)
		return tr_kept_code(tr, b->page, b->n_pages, base) == b->sum;
	for (uint32_t i = 0; i < b->n; i++)
		if (!tr_kept_same(tr, b->member[i].kept, base + b->member[i].at))
			return false;
	b->sum = tr_kept_code(tr, b->page, b->n_pages, base);
	b->summed = true;
	return true;
}

static bool all_welcome(const struct translator *tr, const struct tr_bale *b, uint64_t base)
{
	for (uint32_t i = 0; i < b->n; i++) {
		const struct member *m = &b->member[i];
		if (!is_welcome(tr, m->kept, base + m->at, b->inner + m->number))
			return false;
	}
	return true;
}

static bool reaches(const struct tr_bale *b, const struct tr_arena *a, uint64_t base)
{
	uint64_t end = a->va + TR_ARENA_SIZE;
	return b->lowest > b->highest || (tr_reachable(a->va, base + (uint64_t)b->lowest) &&
					  tr_reachable(end, base + (uint64_t)b->lowest) &&
					  tr_reachable(a->va, base + (uint64_t)b->highest) &&
					  tr_reachable(end, base + (uint64_t)b->highest));
}

/* The numbers of a member, which is f now, from `first` on in all. */
static void give_numbers(struct translator *tr, const struct tr_bale *b, const struct member *m,
			 struct tr_frag *f, struct tr_frag **frags, uint32_t first)
{
	const struct tr_arena *a = f->arena;
	const struct kept_number *n = parts_of(m->kept).numbers;
	uint32_t hot = (uint32_t)(f->entry - m->kept->entry - a->va);
	uint32_t cold = (uint32_t)(a->cold.p - a->ours) + m->cold, sibling = 0;
	for (unsigned i = 0, j = m->kept->n_numbers; j-- > 0; i++) {
		const struct inner *in = &b->inner[m->number + i];
		struct tr_number *to = &tr->numbers[first + m->number + i];
		*to = (struct tr_number){ .stop = { .kind = (enum tr_stop_kind)n[j].kind,
						    .pc = f->pc + (uint64_t)(int64_t)n[j].pc,
						    .lag = n[j].lag },
					  .frag = f,
					  .sibling = sibling };
		sibling = first + m->number + i;
		if (to->stop.kind != TR_STOP_LINK)
			continue;
		to->site = hot + n[j].site;
		to->stub = cold + n[j].stub;
		if (!in->to)
			continue;
		to->to = frags[in->to - 1];
		to->next = in->next ? first + in->next - 1 : 0;
		to->prev = in->prev ? first + in->prev - 1 : 0;
		to->listed = true;
	}
	f->numbers = sibling;
	f->incoming = m->incoming ? first + m->incoming - 1 : 0;
}

/* All is written: it can be found, and others lead to it. */
static void publish(struct translator *tr, const struct tr_bale *b, struct tr_frag **frags,
		    uint32_t first)
{
	for (uint32_t i = 0; i < b->n; i++)
		tr_enter(tr, frags[i]);
	for (uint32_t i = 0; i < b->n_numbers; i++)
		if (tr->numbers[first + i].stop.kind == TR_STOP_LINK && !b->inner[i].to)
			tr_link_out(tr, first + i);
	for (uint32_t i = 0; i < b->n; i++) {
		tr_links_join(tr, frags[i]);
		if (frags[i]->stub) /* it was wanted by indirect branches, and will be */
			tr_add_indirect(tr, frags[i]);
	}
	tr->stats.kept += b->n;
}

/* There is room for it. */
static void put(struct translator *tr, struct tr_kept *kept, struct tr_arena *a, struct tr_bale *b,
		uint64_t base, uint64_t facts)
{
	struct tr_frag *frags[MOST];
	struct tr_page *pages[BALE_PAGES];
	uint32_t first = tr_numbers_row(tr, b->n_numbers);
	cg_bytes(&a->hot, "\xcc\xcc\xcc\xcc\xcc\xcc\xcc", (b->align - (size_t)cg_va(&a->hot)) & 7);
	uint64_t hot = cg_va(&a->hot);
	for (uint32_t i = 0; i < b->n_pages; i++)
		pages[i] = tr_page_of(tr, (base >> 12) + b->page[i].page);
	for (uint32_t i = 0; i < b->n; i++) {
		const struct member *m = &b->member[i];
		const struct tr_lines *uses = parts_of(m->kept).uses;
		frags[i] = tr_frag_of_kept(tr, m->kept, base + m->at, a, hot + m->hot);
		for (unsigned u = 0; u < m->kept->n_uses; u++)
			tr_use_page(frags[i], u, pages[m->page[u]], uses[u].lines);
	}
	for (uint32_t i = 0; i < b->n; i++)
		give_numbers(tr, b, &b->member[i], frags[i], frags, first);
	tr_bale_code(kept, b, a, &(struct bale_place){ base, facts, first });
	publish(tr, b, frags, first);
}

/* Bales that were not put once: they will not be the next time, most likely. Some others do not
 * matter. */
static bool was_refused(const struct translator *tr, const struct tr_kept *kept,
			const struct tr_bale *b, uint64_t **word, uint64_t *bit)
{
	uint64_t i = ((uint64_t)(uintptr_t)kept + b->id) * 0x9e3779b97f4a7c15ULL >> 52;
	*word = (uint64_t *)&tr->refused[i / 64];
	*bit = 1ULL << i % 64;
	return **word & *bit;
}

/* It has none, and there were not enough others when there were so many in all. */
#define ALONE	   (1u << 31)
#define MORE_SINCE (4 * FEWEST)

static struct tr_bale *bale_for(struct translator *tr, struct tr_kept *kept, struct tr_kept_frag *k,
				uint64_t pc, uint64_t base, bool *tied)
{
	uint32_t *in = tr_kept_bale(kept, k);
	*tied = false;
	if (*in && !(*in & ALONE))
		return kept->bale[*in - 1];
	if (*in && kept->n < (*in & ~ALONE) + MORE_SINCE)
		return NULL;
	*in = 0;
	struct tr_bale *b = tie(tr, kept, k, pc, base);
	if (!*in)
		*in = ALONE | kept->n;
	*tied = b != NULL;
	return b;
}

/* Another bale for what is in one that is not welcome. */
static struct tr_bale *tie_again(struct translator *tr, struct tr_kept *kept,
				 struct tr_kept_frag *k, uint64_t pc, uint64_t base)
{
	uint32_t slot = *tr_kept_bale(kept, k) - 1;
	unsigned ties = kept->bale[slot]->ties + 1;
	bool tied;
	untie(kept, slot);
	struct tr_bale *b = bale_for(tr, kept, k, pc, base, &tied);
	if (b)
		b->ties = ties;
	return b;
}

struct tr_frag *tr_bale_put(struct translator *tr, struct tr_arena *a, struct tr_kept_frag *k,
			    uint64_t pc)
{
	uint64_t base, facts, *word, bit;
	bool tied = false; /* just now, of what was looked at then */
	struct tr_kept *kept = tr_kept_at(tr, pc, &base);
	struct tr_bale *b = kept ? bale_for(tr, kept, k, pc, base, &tied) : NULL;
	if (!b || was_refused(tr, kept, b, &word, &bit))
		return NULL;
	bool there = base == b->base || (base >= HIGH && b->base >= HIGH);
	bool welcome = tied || (there && all_welcome(tr, b, base));
	if (there && !welcome && b->ties < TIES) {
		b = tie_again(tr, kept, k, pc, base);
		if (!b || was_refused(tr, kept, b, &word, &bit))
			return NULL;
		welcome = all_welcome(tr, b, base);
	}
	if (!welcome || !reaches(b, a, base) || !same_module(tr, kept, b, base, &facts) ||
	    (!tied && !same_code(tr, b, base))) {
		*word |= bit;
		return NULL;
	}
	if (!tr_arena_room(a, b->hot + 7, b->cold))
		return NULL;
	put(tr, kept, a, b, base, facts);
	return tr_find(tr, pc);
}
