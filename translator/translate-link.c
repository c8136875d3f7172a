/*
 * Numbers, which name the stops in translated code, and links, the direct exits among them: taken
 * to a fragment and back by one store each, while other threads execute them.
 */
#include "translator/cache.h"

#include <stdlib.h>
#include <string.h>

/* ---- numbers ---- */

/*
 * Those that are free lie in runs, as long as they can be: a bale wants many in a row, and of each
 * program that loads and unloads its libraries there are many bales. The first of a run and the
 * last know how long it is (`site`), and the first ones are in a list (`next`, `prev`).
 */
static void run_add(struct translator *tr, uint32_t first, uint32_t len)
{
	struct tr_number *n = tr->numbers;
	n[first].site = n[first + len - 1].site = len;
	n[first].prev = 0;
	n[first].next = tr->free_run;
	if (tr->free_run)
		n[tr->free_run].prev = first;
	tr->free_run = first;
}

static void run_remove(struct translator *tr, uint32_t first)
{
	struct tr_number *n = tr->numbers;
	if (n[first].prev)
		n[n[first].prev].next = n[first].next;
	else
		tr->free_run = n[first].next;
	if (n[first].next)
		n[n[first].next].prev = n[first].prev;
}

/* The last `len` of a run. */
static uint32_t run_take(struct translator *tr, uint32_t first, uint32_t len)
{
	struct tr_number *n = tr->numbers;
	uint32_t left = n[first].site - len;
	if (left)
		n[first].site = n[first + left - 1].site = left;
	else
		run_remove(tr, first);
	return first + left;
}

static void give_back(struct translator *tr, uint32_t number)
{
	struct tr_number *n = tr->numbers;
	uint32_t first = number, len = 1;
	if (number + 1 < tr->n_numbers && n[number + 1].free) {
		len += n[number + 1].site;
		run_remove(tr, number + 1);
	}
	if (n[number - 1].free) {
		first -= n[number - 1].site;
		len += number - first;
		run_remove(tr, first);
	}
	n[number] = (struct tr_number){ .free = true };
	run_add(tr, first, len);
}

/* From so many numbers on, which take a few megabytes, their memory comes in large pages. There is
 * room for many more then: what is not touched costs nothing, and to move takes as long as to fill.
 */
#define MANY (TR_HUGE / sizeof(struct tr_number))

static void free_numbers(struct tr_number *numbers, uint32_t cap)
{
	if (cap < MANY)
		free(numbers);
	else
		tr_used_free(numbers, cap * sizeof(*numbers));
}

void tr_numbers_free(struct translator *tr)
{
	free_numbers(tr->numbers, tr->cap_numbers);
}

/* Those there are move to where there is room for `cap`. */
static void move_numbers(struct translator *tr, uint32_t cap)
{
	size_t size = cap * sizeof(*tr->numbers);
	struct tr_number *to = cap < MANY ? malloc(size) : tr_used(size);
	DJ_ASSERT(to, "out of memory for %u numbers", cap);
	if (tr->n_numbers)
		memcpy(to, tr->numbers, tr->n_numbers * sizeof(*to));
	tr_numbers_free(tr);
	tr->numbers = to;
	tr->cap_numbers = cap;
}

/* So many that there have not been yet. */
static uint32_t more_numbers(struct translator *tr, uint32_t len)
{
	uint32_t first = tr->n_numbers, cap = tr->cap_numbers;
	while (cap - first < len)
		cap = !cap ? 4096 : cap < MANY / 2 ? cap * 2 : cap < MANY ? cap * 32 : cap * 4;
	if (cap != tr->cap_numbers)
		move_numbers(tr, cap);
	/* the next large page, from the middle of this one on */
	size_t at = (first * sizeof(*tr->numbers) + TR_HUGE / 2) / TR_HUGE;
	if (cap >= MANY && at != ((first + len) * sizeof(*tr->numbers) + TR_HUGE / 2) / TR_HUGE &&
	    (at + 2) * TR_HUGE <= cap * sizeof(*tr->numbers))
		tr_warm((uint8_t *)tr->numbers + (at + 1) * TR_HUGE, TR_HUGE);
	tr->n_numbers += len;
	return first;
}

void tr_numbers_room(struct translator *tr, uint32_t n)
{
	uint32_t first = tr->n_numbers;
	more_numbers(tr, n);
	tr->n_numbers = first;
	if (tr->cap_numbers >= MANY)
		tr_warm(tr->numbers, (first + n) * sizeof(*tr->numbers));
}

uint32_t tr_number_new(struct translator *tr, enum tr_stop_kind kind, uint64_t pc, uint32_t sibling)
{
	uint32_t n = tr->free_run ? run_take(tr, tr->free_run, 1) : more_numbers(tr, 1);
	tr->numbers[n] =
		(struct tr_number){ .stop = { .kind = kind, .pc = pc }, .sibling = sibling };
	return n;
}

#define RUNS 32 /* so many are looked at */

uint32_t tr_numbers_row(struct translator *tr, uint32_t n)
{
	uint32_t run = tr->free_run;
	for (unsigned i = 0; run && i < RUNS; i++, run = tr->numbers[run].next)
		if (tr->numbers[run].site >= n)
			return run_take(tr, run, n);
	return more_numbers(tr, n);
}

void tr_numbers_free_row(struct translator *tr, uint32_t first, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		tr->numbers[first + i] = (struct tr_number){ .free = true };
	if (n)
		run_add(tr, first, n);
}

void tr_numbers_drop(struct translator *tr, uint32_t first)
{
	while (first) {
		struct tr_number *n = &tr->numbers[first];
		uint32_t next = n->sibling;
		DJ_ASSERT(!n->listed, "a link is given up while it is in a list");
		if (n->far)
			tr_chunk_drop(n->frag->arena, n->far_chunk);
		give_back(tr, first);
		first = next;
	}
}

/* ---- lags ---- */

uint32_t tr_lag_at(const struct translator *tr, uint64_t pc, uint32_t own, uint32_t or)
{
	for (const struct tr_frag *f = tr->hash[tr_hash(tr, pc)]; f; f = f->next)
		if (f->pc == pc) /* also if it is asleep */
			return f->lag;
	for (uint32_t k = tr->waiting[tr_hash(tr, pc)]; k; k = tr->numbers[k].next)
		if (tr->numbers[k].stop.pc == pc)
			return tr->numbers[k].stop.lag;
	for (uint32_t k = own; k; k = tr->numbers[k].sibling)
		if (tr->numbers[k].stop.kind == TR_STOP_LINK && tr->numbers[k].stop.pc == pc)
			return tr->numbers[k].stop.lag;
	return or ;
}

bool tr_lags_agree(const struct translator *tr, const struct tr_frag *f)
{
	for (uint32_t k = f->numbers; k; k = tr->numbers[k].sibling) {
		const struct tr_stop *s = &tr->numbers[k].stop;
		if (s->kind == TR_STOP_LINK && tr_lag_at(tr, s->pc, 0, s->lag) != s->lag)
			return false;
	}
	return true;
}

/* ---- one store ---- */

/* The rel32 at `site` leads to `to` from now on. */
static void patch(const struct tr_arena *a, uint32_t site, uint64_t to)
{
	uint32_t rel = (uint32_t)(to - (tr_va(a, site) + 4));
	uint64_t *eight = (uint64_t *)(void *)tr_ours(a, site & ~7u), v;
	DJ_ASSERT((site & 7) <= 4, "a jump at %#llx cannot be patched in one store",
		  (unsigned long long)tr_va(a, site));
	memcpy(&v, eight, 8);
	memcpy((uint8_t *)&v + (site & 7), &rel, 4);
	__atomic_store_n(eight, v, __ATOMIC_RELEASE);
}

/* The link's far jump leads to `to`; made now if need be. False if there is no room for it. */
static bool far_jump(struct tr_number *n, uint64_t to)
{
	struct tr_arena *a = n->frag->arena;
	if (!n->far) {
		struct cg *c = &a->cold;
		if (!tr_arena_room(a, 0, 32))
			return false;
		while ((cg_va(c) + 6) & 7)
			cg8(c, 0x90);
		n->far = (uint32_t)(c->p - a->ours);
		n->far_chunk = tr_chunk_hold(a);
		cg_bytes(c, "\xff\x25\0\0\0\0", 6); /* jmp [rip] */
		cg64(c, to);
		return true;
	}
	__atomic_store_n((uint64_t *)(void *)tr_ours(a, n->far + 6), to, __ATOMIC_RELEASE);
	return true;
}

/* ---- lists ---- */

static uint32_t *list_of(struct translator *tr, const struct tr_number *n)
{
	return n->to ? &n->to->incoming : &tr->waiting[tr_hash(tr, n->stop.pc)];
}

static void list_add(struct translator *tr, uint32_t number)
{
	struct tr_number *n = &tr->numbers[number];
	uint32_t *head = list_of(tr, n);
	n->prev = 0;
	n->next = *head;
	if (n->next)
		tr->numbers[n->next].prev = number;
	*head = number;
	n->listed = true;
}

static void list_remove(struct translator *tr, uint32_t number)
{
	struct tr_number *n = &tr->numbers[number];
	if (n->prev)
		tr->numbers[n->prev].next = n->next;
	else
		*list_of(tr, n) = n->next;
	if (n->next)
		tr->numbers[n->next].prev = n->prev;
	n->listed = false;
}

/* ---- links ---- */

/* Not in a list: to `f`, or waiting if that has no room. */
static void link_to(struct translator *tr, uint32_t number, struct tr_frag *f)
{
	struct tr_number *n = &tr->numbers[number];
	struct tr_arena *a = n->frag->arena;
	uint64_t to = f->entry;
	if (!tr_reachable(tr_va(a, n->site), to)) {
		if (far_jump(n, to)) {
			to = tr_va(a, n->far);
		} else {
			tr->start_over = true;
			f = NULL;
		}
	}
	if (f)
		patch(a, n->site, to);
	n->to = f;
	list_add(tr, number);
}

/* In a list: back to the stub, and out of the list. */
static void unlink(struct translator *tr, uint32_t number)
{
	struct tr_number *n = &tr->numbers[number];
	list_remove(tr, number);
	if (n->to)
		patch(n->frag->arena, n->site, tr_va(n->frag->arena, n->stub));
	n->to = NULL;
}

void tr_links_begin(struct translator *tr, struct tr_frag *f)
{
	for (uint32_t k = f->numbers; k; k = tr->numbers[k].sibling) {
		struct tr_number *n = &tr->numbers[k];
		n->frag = f;
		if (n->stop.kind != TR_STOP_LINK)
			continue;
		struct tr_frag *to = n->stop.pc == f->pc ? f : n->to;
		n->to = NULL;
		if (to)
			link_to(tr, k, to);
		else
			list_add(tr, k);
	}
}

void tr_link_out(struct translator *tr, uint32_t number)
{
	struct tr_frag *to = tr_find(tr, tr->numbers[number].stop.pc);
	if (to)
		link_to(tr, number, to);
	else
		list_add(tr, number);
}

void tr_link_known(struct translator *tr, uint32_t number, struct tr_frag *to)
{
	tr->numbers[number].to = to;
	list_add(tr, number);
}

void tr_links_end(struct translator *tr, struct tr_frag *f)
{
	for (uint32_t k = f->numbers; k; k = tr->numbers[k].sibling)
		if (tr->numbers[k].listed)
			unlink(tr, k);
}

void tr_links_join(struct translator *tr, struct tr_frag *f)
{
	for (uint32_t k = tr->waiting[tr_hash(tr, f->pc)], next; k; k = next) {
		next = tr->numbers[k].next;
		if (tr->numbers[k].stop.pc != f->pc)
			continue;
		list_remove(tr, k);
		link_to(tr, k, f);
	}
}

void tr_links_part(struct translator *tr, struct tr_frag *f)
{
	while (f->incoming) {
		uint32_t k = f->incoming;
		unlink(tr, k);
		list_add(tr, k);
	}
}

/* ---- questions ---- */

const struct tr_stop *tr_stop_of(const struct translator *tr, uint64_t number)
{
	return number >= STOP_TABLE && number < tr->n_numbers && tr->numbers[number].frag
		       ? &tr->numbers[number].stop
		       : NULL;
}

const struct tr_stop *tr_stop_at(const struct translator *tr, uint64_t va, uint64_t home,
				 uint32_t *runtime)
{
	*runtime = 0;
	const struct tr_arena *a = tr_arena_at(tr, va);
	if (!a || va - a->va > TR_ARENA_SIZE - 5 || a->ours[va - a->va] != 0xcc)
		return NULL;
	uint32_t n;
	memcpy(&n, a->ours + (va - a->va) + 1, 4);
	if (n == STOP_LINK) {
		const struct tr_stop *stop = tr_stop_of(tr, home);
		return stop && stop->kind == TR_STOP_LINK ? stop : NULL;
	}
	if (n < STOP_TABLE) {
		*runtime = n;
		return NULL;
	}
	return tr_stop_of(tr, n);
}

uint64_t tr_branch(const struct translator *tr, uint32_t number)
{
	return number < tr->n_numbers && tr->numbers[number].frag &&
			       tr->numbers[number].stop.kind == TR_STOP_BRANCH
		       ? tr->numbers[number].stop.pc
		       : 0;
}
