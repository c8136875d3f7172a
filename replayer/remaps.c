/*
 * When the mappings of a process changed: see remaps.h.
 */
#include "replayer/remaps.h"

#include <stdlib.h>

struct rp_remap {
	uint64_t seq; /* the event that did it */
	uint64_t first, last;
};

struct rp_remaps {
	struct rp_remap *list; /* by seq */
	size_t n, cap;
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
	for (hi = m->n; lo < hi;) {
		size_t mid = lo + (hi - lo) / 2;
		if (m->list[mid].seq <= after)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (; lo < m->n && m->list[lo].seq <= upto; lo++)
		if (m->list[lo].first <= addr && addr <= m->list[lo].last)
			return true;
	return false;
}

void rp_remaps_free(struct rp_remaps_of *all)
{
	for (size_t i = 0; all->by_process && i < all->n; i++) {
		if (all->by_process[i])
			free(all->by_process[i]->list);
		free(all->by_process[i]);
	}
	free(all->by_process);
}
