/*
 * Bytes that the recorder told: see told.h.
 */
#include "replayer/told.h"

#include <stdlib.h>
#include <string.h>

/* So many are remembered (some 30 MB): a trace can hold any number of them in little room. */
#define TOLD_MAX (1u << 18)

struct rp_told_line {
	uint64_t line, mask;
	struct rp_told_pos from, to; /* to.steps UINT64_MAX: still true */
	bool settled;		     /* at `to` it was not true any more */
	uint32_t next;		     /* older one with the same hash, plus one */
	uint8_t bytes[64];
};

static unsigned hash(uint64_t line)
{
	return (line >> 6 ^ line >> 16) % TOLD_HASH;
}

static uint32_t *slot(struct rp_told *t, uint64_t line)
{
	return &t->hash[hash(line)];
}

static int order(struct rp_told_pos a, struct rp_told_pos b)
{
	if (a.steps != b.steps)
		return a.steps < b.steps ? -1 : 1;
	return a.signals < b.signals ? -1 : a.signals > b.signals;
}

static bool is_true(const struct rp_told_line *l)
{
	return l->to.steps == UINT64_MAX;
}

void rp_told_free(struct rp_told *t)
{
	free(t->v);
	*t = (struct rp_told){ 0 };
}

static struct rp_told_line *append(struct rp_told *t)
{
	if (t->n == t->cap) {
		size_t cap = t->cap ? 2 * t->cap : 64;
		struct rp_told_line *v = t->n < TOLD_MAX ? realloc(t->v, cap * sizeof(*v)) : NULL;
		if (!v)
			return NULL;
		t->v = v;
		t->cap = cap;
	}
	return &t->v[t->n++];
}

void rp_told_add(struct rp_told *t, struct rp_told_pos here, uint64_t line, uint64_t mask,
		 const uint8_t *bytes)
{
	rp_told_spoil(t, here, line, mask, true);
	struct rp_told_line *l = append(t);
	if (!l)
		return;
	*l = (struct rp_told_line){ .line = line,
				    .mask = mask,
				    .from = here,
				    .to = { UINT64_MAX, 0 },
				    .next = *slot(t, line) };
	memcpy(l->bytes, bytes, sizeof(l->bytes));
	*slot(t, line) = (uint32_t)t->n;
}

static void spoil(struct rp_told *t, size_t i, struct rp_told_pos here, uint64_t mask, bool settled)
{
	struct rp_told_line *l = &t->v[i], old = *l;

	if (!is_true(l) || !(l->mask & mask))
		return;
	l->to = here;
	l->settled = settled;
	if (!(old.mask & ~mask))
		return;
	/* the others stay true: as a line of their own */
	struct rp_told_line *rest = append(t);
	if (!rest)
		return;
	*rest = old;
	rest->mask &= ~mask;
	rest->from = here;
	rest->next = *slot(t, old.line);
	*slot(t, old.line) = (uint32_t)t->n;
}

void rp_told_spoil(struct rp_told *t, struct rp_told_pos here, uint64_t line, uint64_t mask,
		   bool settled)
{
	for (uint32_t i = t->n ? *slot(t, line) : 0, next; i; i = next) {
		next = t->v[i - 1].next;
		if (t->v[i - 1].line == line)
			spoil(t, i - 1, here, mask, settled);
	}
}

void rp_told_spoil_pages(struct rp_told *t, struct rp_told_pos here, uint64_t first, uint64_t last)
{
	for (size_t i = 0; i < t->n; i++)
		if (t->v[i].line >> 12 >= first && t->v[i].line >> 12 <= last)
			spoil(t, i, here, UINT64_MAX, true);
}

void rp_told_back(struct rp_told *t, struct rp_told_pos to)
{
	while (t->n && order(t->v[t->n - 1].from, to) > 0) {
		struct rp_told_line *l = &t->v[--t->n];
		*slot(t, l->line) = l->next;
	}
	for (size_t i = 0; i < t->n; i++) {
		struct rp_told_line *l = &t->v[i];
		int d = order(l->to, to);
		if (d > 0 || (d == 0 && !l->settled))
			l->to = (struct rp_told_pos){ UINT64_MAX, 0 };
	}
}

uint64_t rp_told_at(const struct rp_told *t, struct rp_told_pos here, uint64_t line)
{
	uint64_t mask = 0;

	for (uint32_t i = t->n ? t->hash[hash(line)] : 0; i; i = t->v[i - 1].next)
		if (t->v[i - 1].line == line && !order(t->v[i - 1].from, here))
			mask |= t->v[i - 1].mask;
	return mask;
}

bool rp_told_byte(const struct rp_told *t, uint64_t addr, uint8_t *value)
{
	uint64_t line = addr & ~63ULL;

	for (uint32_t i = t->n ? t->hash[hash(line)] : 0; i; i = t->v[i - 1].next) {
		const struct rp_told_line *l = &t->v[i - 1];
		if (l->line != line || !is_true(l) || !(l->mask >> (addr & 63) & 1))
			continue;
		*value = l->bytes[addr & 63];
		return true;
	}
	return false;
}
