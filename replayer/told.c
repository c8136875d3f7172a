/*
 * Bytes that the recorder told: see told.h.
 *
 * Lines lie in an array in the order in which they were told. Those that are true are in a hash by
 * page; those that are not any more are in a second array, in the order in which they ended. So
 * whoever looks, or spoils, meets true lines only, however often the same buffer is filled, and
 * going back takes as long as what it takes back.
 */
#include "replayer/told.h"

#include <stdlib.h>
#include <string.h>

/* So many are remembered (some 30 MB): a trace can hold any number of them in little room. Then
 * the half of those that ended first is forgotten. */
#define TOLD_MAX (1u << 18)

struct rp_told_line {
	uint64_t line, mask;
	struct rp_told_pos from, to; /* to.steps UINT64_MAX: still true */
	bool settled;		     /* at `to` it was not true any more */
	uint32_t next;		     /* true: another one with the same hash, plus one */
	uint8_t bytes[64];
};

static uint32_t *slot(struct rp_told *t, uint64_t line)
{
	return &t->hash[(line >> 12) % TOLD_HASH];
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
	free(t->ended);
	*t = (struct rp_told){ 0 };
}

/* ---- the hash of what is true ----------------------------------------------------------- */

static void link_line(struct rp_told *t, uint32_t i)
{
	uint32_t *s = slot(t, t->v[i].line);

	t->v[i].next = *s;
	*s = i + 1;
}

static void unlink_line(struct rp_told *t, uint32_t i)
{
	uint32_t *at = slot(t, t->v[i].line);

	while (*at && *at != i + 1)
		at = &t->v[*at - 1].next;
	if (*at)
		*at = t->v[i].next;
}

/* ---- room --------------------------------------------------------------------------------- */

/* Forget the half of what ended first, or if little has ended, of what was told first. */
static bool forget_some(struct rp_told *t)
{
	size_t gone = t->n_ended / 2, kept = 0;
	bool *drop = calloc(t->n, sizeof(*drop));
	uint32_t *moved = calloc(t->n, sizeof(*moved));

	if (drop && moved) {
		for (size_t i = 0; i < gone; i++)
			drop[t->ended[i]] = true;
		if (gone < t->n / 4) {
			gone = t->n_ended;
			memset(drop, true, t->n / 2 * sizeof(*drop));
			for (size_t i = 0; i < gone; i++)
				drop[t->ended[i]] = true;
		}
		memset(t->hash, 0, sizeof(t->hash));
		for (size_t i = 0; i < t->n; i++) {
			if (drop[i])
				continue;
			moved[i] = (uint32_t)kept;
			t->v[kept] = t->v[i];
			if (is_true(&t->v[kept]))
				link_line(t, (uint32_t)kept);
			kept++;
		}
		t->n = kept;
		for (size_t i = gone; i < t->n_ended; i++)
			t->ended[i - gone] = moved[t->ended[i]];
		t->n_ended -= gone;
	}
	free(drop);
	free(moved);
	return t->n < TOLD_MAX;
}

static struct rp_told_line *append(struct rp_told *t)
{
	if (t->n == t->cap && t->n < TOLD_MAX) {
		size_t cap = t->cap ? 2 * t->cap : 64;
		struct rp_told_line *v = realloc(t->v, cap * sizeof(*v));
		if (v)
			t->v = v;
		/* no more can have ended than there are */
		uint32_t *ended = v ? realloc(t->ended, cap * sizeof(*ended)) : NULL;
		if (!ended)
			return NULL;
		t->ended = ended;
		t->cap = cap;
	}
	return t->n < t->cap ? &t->v[t->n++] : NULL;
}

/* ---- telling and spoiling ----------------------------------------------------------------- */

void rp_told_add(struct rp_told *t, struct rp_told_pos here, uint64_t line, uint64_t mask,
		 const uint8_t *bytes)
{
	if (t->n >= TOLD_MAX - 128 && !forget_some(t)) /* spoiling splits lines */
		return;
	rp_told_spoil(t, here, line, mask, true);
	struct rp_told_line *l = append(t);
	if (!l)
		return;
	*l = (struct rp_told_line){
		.line = line, .mask = mask, .from = here, .to = { UINT64_MAX, 0 }
	};
	memcpy(l->bytes, bytes, sizeof(l->bytes));
	link_line(t, (uint32_t)(t->n - 1));
}

/* The line, which is true and out of the hash, ends here for the bytes of `mask`. */
static void end(struct rp_told *t, uint32_t i, struct rp_told_pos here, uint64_t mask, bool settled)
{
	struct rp_told_line old = t->v[i];

	t->v[i].to = here;
	t->v[i].settled = settled;
	t->ended[t->n_ended++] = i;
	if (!(old.mask & ~mask))
		return;
	/* the others stay true: as a line of their own */
	struct rp_told_line *rest = append(t);
	if (!rest)
		return;
	*rest = old;
	rest->mask &= ~mask;
	rest->from = here;
	link_line(t, (uint32_t)(t->n - 1));
}

/* All true lines of the hash's place `s` that are meant. */
static void spoil(struct rp_told *t, uint32_t *s, struct rp_told_pos here, uint64_t first,
		  uint64_t last, uint64_t mask, bool settled)
{
	/* links change, but what comes in comes in front */
	for (uint32_t i = *s, next; i; i = next) {
		struct rp_told_line *l = &t->v[i - 1];
		next = l->next;
		if (l->line < first || l->line > last || !(l->mask & mask))
			continue;
		unlink_line(t, i - 1);
		end(t, i - 1, here, mask, settled);
	}
}

void rp_told_spoil(struct rp_told *t, struct rp_told_pos here, uint64_t line, uint64_t mask,
		   bool settled)
{
	spoil(t, slot(t, line), here, line, line, mask, settled);
}

void rp_told_spoil_pages(struct rp_told *t, struct rp_told_pos here, uint64_t first, uint64_t last)
{
	uint64_t low = first << 12, high = last << 12 | 4095;

	if (last >= first && last - first < TOLD_HASH)
		for (uint64_t page = first; page <= last; page++)
			spoil(t, slot(t, page << 12), here, low, high, UINT64_MAX, true);
	else
		for (unsigned i = 0; i < TOLD_HASH; i++)
			spoil(t, &t->hash[i], here, low, high, UINT64_MAX, true);
}

void rp_told_back(struct rp_told *t, struct rp_told_pos to)
{
	while (t->n_ended) {
		uint32_t i = t->ended[t->n_ended - 1];
		struct rp_told_line *l = &t->v[i];
		int d = order(l->to, to);
		if (d < 0 || (d == 0 && l->settled))
			break;
		l->to = (struct rp_told_pos){ UINT64_MAX, 0 };
		link_line(t, i);
		t->n_ended--;
	}
	while (t->n && order(t->v[t->n - 1].from, to) > 0)
		unlink_line(t, (uint32_t)--t->n);
}

/* ---- asking --------------------------------------------------------------------------------- */

uint64_t rp_told_at(const struct rp_told *t, struct rp_told_pos here, uint64_t line)
{
	uint64_t mask = 0;

	for (uint32_t i = t->hash[(line >> 12) % TOLD_HASH]; i; i = t->v[i - 1].next)
		if (t->v[i - 1].line == line && !order(t->v[i - 1].from, here))
			mask |= t->v[i - 1].mask;
	return mask;
}

bool rp_told_byte(const struct rp_told *t, uint64_t addr, uint8_t *value)
{
	uint64_t line = addr & ~63ULL;

	for (uint32_t i = t->hash[(line >> 12) % TOLD_HASH]; i; i = t->v[i - 1].next) {
		const struct rp_told_line *l = &t->v[i - 1];
		if (l->line != line || !(l->mask >> (addr & 63) & 1))
			continue;
		*value = l->bytes[addr & 63];
		return true;
	}
	return false;
}
