/*
 * Lines met: see lines.h.
 */
#include "replayer/lines.h"
#include "format/scatter.h"
#include "replayer/versions.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_MAX 1000u /* of a range that is looked up row by row */

/* The line that an address is in; they are numbered through. */
static uint64_t line_of(enum rp_line_kind kind, uint64_t addr)
{
	return addr >> (kind == LINE_RAN ? 2 : 3);
}

/* Those from line `first` to `last` in a row that they touch. */
static uint64_t lines_in(uint64_t row, uint64_t first, uint64_t last)
{
	unsigned from = row == first >> 6 ? first & 63 : 0;
	unsigned to = row == last >> 6 ? last & 63 : 63;

	return (to == 63 ? ~0ULL : (1ULL << (to + 1)) - 1) & ~0ULL << from;
}

/* ---- lists ------------------------------------------------------------------------------------
 */

static atomic_size_t held;

size_t rp_lines_held(void)
{
	return atomic_load_explicit(&held, memory_order_relaxed);
}

void rp_lines_hold(ptrdiff_t bytes)
{
	atomic_fetch_add_explicit(&held, (size_t)bytes, memory_order_relaxed);
	rp_versions_hold(bytes);
}

static size_t size_of(const struct rp_lines *l)
{
	return l->n * sizeof(*l->list);
}

void rp_lines_free(struct rp_lines *l)
{
	rp_lines_hold(-(ptrdiff_t)size_of(l));
	free(l->list);
	*l = (struct rp_lines){ 0 };
}

void rp_lines_join(struct rp_lines *to, const struct rp_lines *more)
{
	struct rp_lines out = { .all = to->all || more->all };
	size_t i = 0, k = 0;

	out.list = malloc((to->n + more->n + 1) * sizeof(*out.list));
	if (!out.list)
		out.all = true;
	while (out.list && (i < to->n || k < more->n)) {
		const struct rp_line_row *a = i < to->n ? &to->list[i] : NULL;
		const struct rp_line_row *b = k < more->n ? &more->list[k] : NULL;
		bool first = a && (!b || a->num <= b->num);
		bool both = a && b && a->num == b->num;
		struct rp_line_row *o = &out.list[out.n++];
		*o = first ? *a : *b;
		for (unsigned kind = 0; both && kind < LINE_KINDS; kind++)
			o->lines[kind] |= b->lines[kind];
		i += first;
		k += !first || both;
	}
	rp_lines_free(to);
	rp_lines_hold((ptrdiff_t)size_of(&out));
	*to = out;
}

static uint64_t lines_of(const struct rp_lines *l, enum rp_line_kind kind, uint64_t num)
{
	size_t lo = 0, hi = l->n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		if (l->list[mid].num < num)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < l->n && l->list[lo].num == num ? l->list[lo].lines[kind] : 0;
}

bool rp_lines_met(const struct rp_lines *l, enum rp_line_kind kind, uint64_t addr, uint64_t last)
{
	uint64_t from = line_of(kind, addr), to = line_of(kind, last);

	if (l->all || (to >> 6) - (from >> 6) > ROWS_MAX)
		return true;
	for (uint64_t row = from >> 6; row <= to >> 6; row++)
		if (lines_of(l, kind, row) & lines_in(row, from, to))
			return true;
	return false;
}

/* ---- logs -------------------------------------------------------------------------------------
 */

void rp_line_log_free(struct rp_line_log *log)
{
	free(log->lines.list);
	free(log->hash);
	*log = (struct rp_line_log){ 0 };
}

void rp_line_log_clear(struct rp_line_log *log)
{
	log->lines.n = 0;
	log->lines.all = false;
	if (log->hash)
		memset(log->hash, 0, log->hash_size * sizeof(*log->hash));
}

/* Where the index of a row is, or belongs. */
static uint32_t *slot(const struct rp_line_log *log, uint64_t num)
{
	size_t i = dj_scatter(num, log->hash_size);

	for (;; i++) {
		uint32_t *s = &log->hash[i & (log->hash_size - 1)];
		if (!*s || log->lines.list[*s - 1].num == num)
			return s;
	}
}

static bool grow(struct rp_line_log *log)
{
	size_t cap = log->cap ? 2 * log->cap : 512;
	struct rp_line_row *list = realloc(log->lines.list, cap * sizeof(*list));
	uint32_t *hash;

	if (list)
		log->lines.list = list;
	hash = list ? calloc(2 * cap, sizeof(*hash)) : NULL;
	if (!hash)
		return false;
	free(log->hash);
	log->hash = hash;
	log->hash_size = 2 * cap;
	log->cap = cap;
	for (size_t i = 0; i < log->lines.n; i++)
		*slot(log, list[i].num) = (uint32_t)i + 1;
	return true;
}

void rp_line_log_row(struct rp_line_log *log, enum rp_line_kind kind, uint64_t num, uint64_t lines)
{
	if (log->lines.n == log->cap && !grow(log)) {
		log->lines.all = true;
		return;
	}
	uint32_t *s = slot(log, num);
	if (!*s) {
		log->lines.list[log->lines.n] = (struct rp_line_row){ .num = num };
		*s = (uint32_t)++log->lines.n;
	}
	log->lines.list[*s - 1].lines[kind] |= lines;
}

void rp_line_log_note(struct rp_line_log *log, enum rp_line_kind kind, uint64_t addr, uint64_t last)
{
	uint64_t from = line_of(kind, addr), to = line_of(kind, last);

	for (uint64_t row = from >> 6; row <= to >> 6; row++)
		rp_line_log_row(log, kind, row, lines_in(row, from, to));
}

bool rp_line_log_met(const struct rp_line_log *log, enum rp_line_kind kind, uint64_t addr,
		     uint64_t last)
{
	uint64_t from = line_of(kind, addr), to = line_of(kind, last);

	if (log->lines.all || (to >> 6) - (from >> 6) > ROWS_MAX)
		return true;
	for (uint64_t row = from >> 6; log->hash && row <= to >> 6; row++) {
		uint32_t s = *slot(log, row);
		if (s && log->lines.list[s - 1].lines[kind] & lines_in(row, from, to))
			return true;
	}
	return false;
}

static int by_num(const void *a, const void *b)
{
	const struct rp_line_row *x = a, *y = b;

	return x->num < y->num ? -1 : x->num > y->num;
}

void rp_line_log_take(struct rp_line_log *log, struct rp_lines *out)
{
	size_t n = log->lines.n;

	*out = (struct rp_lines){ .all = log->lines.all };
	out->list = malloc((n + !n) * sizeof(*out->list));
	if (!out->list) {
		out->all = true;
	} else if (n) {
		memcpy(out->list, log->lines.list, n * sizeof(*out->list));
		qsort(out->list, n, sizeof(*out->list), by_num);
		out->n = n;
	}
	rp_lines_hold((ptrdiff_t)size_of(out));
	rp_line_log_clear(log);
}
