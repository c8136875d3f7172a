/*
 * When the mappings of a process changed: see remaps.h.
 */
#include "replayer/remaps.h"

#include <stdlib.h>

struct rp_remap {
	uint64_t seq; /* the event that did it */
	uint64_t first, last;
};

#define PAGE   4096u /* mappings are of whole ones */
#define PLACES 16u   /* of which it is kept */

/* The events that did it at one page. */
struct place {
	uint64_t page; /* address / PAGE */
	uint64_t *seqs;
	size_t n;
};

struct rp_remaps {
	struct rp_remap *list; /* by seq */
	size_t n, cap;
	struct place *places[PLACES]; /* by page; NULL: none yet */
};

static bool add(struct rp_remaps *m, const struct dj_record *rec)
{
	if (m->n == m->cap) {
		size_t cap = m->cap * 2 + 64;
		struct rp_remap *grown = realloc(m->list, cap * sizeof(*grown));
		if (!grown)
			return false;
		m->list = grown;
		m->cap = cap;
	}
	m->list[m->n++] = (struct rp_remap){ rec->seq, rec->addr, rec->addr + rec->length - 1 };
	return true;
}

static int by_seq(const void *a, const void *b)
{
	const struct rp_remap *x = a, *y = b;

	return x->seq < y->seq ? -1 : x->seq > y->seq;
}

static struct rp_remaps *load(struct dj_trace *t, uint32_t process)
{
	struct rp_remaps *m = calloc(1, sizeof(*m));
	struct dj_error err = { 0 };
	struct dj_cursor *c = m ? dj_cursor_new_facts(t, process, &err) : NULL;
	const struct dj_record *rec;
	bool room = true;

	while (c && room && (rec = dj_cursor_next(c, &err)))
		if ((rec->kind == DJ_REC_MAP || rec->kind == DJ_REC_UNMAP) && rec->length &&
		    rec->seq != DJ_SEQ_UNKNOWN)
			room = add(m, rec);
	dj_cursor_free(c);
	if (m && m->n)
		qsort(m->list, m->n, sizeof(*m->list), by_seq);
	return m;
}

static void place_free(struct place *p)
{
	if (p)
		free(p->seqs);
	free(p);
}

static bool covers(const struct rp_remap *e, uint64_t page)
{
	return e->first / PAGE <= page && page <= e->last / PAGE;
}

static struct place *place_new(const struct rp_remaps *m, uint64_t page)
{
	struct place *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->page = page;
	for (size_t i = 0; i < m->n; i++)
		p->n += covers(&m->list[i], page);
	p->seqs = malloc((p->n + 1) * sizeof(*p->seqs));
	if (!p->seqs) {
		free(p);
		return NULL;
	}
	p->n = 0;
	for (size_t i = 0; i < m->n; i++)
		if (covers(&m->list[i], page))
			p->seqs[p->n++] = m->list[i].seq;
	return p;
}

/* What is asked about are a few pages, each again and again: of all threads, at each moment. */
static const struct place *place_of(struct rp_remaps *m, uint64_t page)
{
	struct place **slot = &m->places[page % PLACES];

	if (*slot && (*slot)->page == page)
		return *slot;
	place_free(*slot);
	return *slot = place_new(m, page);
}

bool rp_remapped(struct rp_remaps_of *all, struct dj_trace *t, uint32_t process, uint64_t addr,
		 uint64_t after, uint64_t upto)
{
	size_t lo = 0, hi;

	if (after >= upto)
		return false;
	if (!all->by_process)
		all->by_process = calloc(dj_trace_processes(t), sizeof(*all->by_process));
	if (!all->by_process)
		return false;
	all->n = dj_trace_processes(t);
	struct rp_remaps *m = all->by_process[process];
	if (!m && !(m = all->by_process[process] = load(t, process)))
		return false;
	const struct place *p = place_of(m, addr / PAGE);
	for (hi = p ? p->n : 0; lo < hi;) {
		size_t mid = lo + (hi - lo) / 2;
		if (p->seqs[mid] <= after)
			lo = mid + 1;
		else
			hi = mid;
	}
	return p && lo < p->n && p->seqs[lo] <= upto;
}

void rp_remaps_free(struct rp_remaps_of *all)
{
	for (size_t i = 0; all->by_process && i < all->n; i++) {
		struct rp_remaps *m = all->by_process[i];
		for (size_t k = 0; m && k < PLACES; k++)
			place_free(m->places[k]);
		if (m)
			free(m->list);
		free(m);
	}
	free(all->by_process);
}
