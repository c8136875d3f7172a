/* Names of code made at run time (analyses/perfmap.h). */
#include "analyses/perfmap.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENTRIES 4000000u /* that are read */
#define NAME	1000u	 /* of a name; what is longer is cut */

struct line {
	struct ana_perf_entry e;
	size_t number;
};

struct ana_perf_map {
	char *text; /* the file, names ended by zeros */
	struct line *lines;
	struct ana_perf_entry *entries;
	size_t n, cap;
};

/* ---- reading ---- */

/* A hexadecimal number, and what is behind it and a blank. */
static const char *number(const char *at, const char *end, uint64_t *value)
{
	const char *first = at;

	*value = 0;
	if (end - at > 2 && at[0] == '0' && (at[1] == 'x' || at[1] == 'X'))
		first = at += 2;
	for (; at < end && at - first < 16; at++) {
		char c = *at;
		unsigned digit = c >= '0' && c <= '9'	? (unsigned)(c - '0')
				 : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a' + 10)
				 : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A' + 10)
							: 16;
		if (digit == 16)
			break;
		*value = *value << 4 | digit;
	}
	return at > first && at < end && *at == ' ' ? at + 1 : NULL;
}

static bool add(struct ana_perf_map *m, const struct ana_perf_entry *e)
{
	if (m->n == m->cap) {
		size_t cap = m->cap ? 2 * m->cap : 1024;
		struct line *grown = reallocarray(m->lines, cap, sizeof(*grown));
		if (!grown)
			return false;
		m->lines = grown;
		m->cap = cap;
	}
	m->lines[m->n] = (struct line){ *e, m->n };
	m->n++;
	return true;
}

/* Lines that make no sense are passed over: it is a file of the program's. */
static void read_lines(struct ana_perf_map *m, size_t size)
{
	char *at = m->text, *end = m->text + size;

	while (at < end && m->n < ENTRIES) {
		char *stop = memchr(at, '\n', (size_t)(end - at));
		struct ana_perf_entry e;
		const char *rest;

		if (!stop)
			stop = end;
		rest = number(at, stop, &e.start);
		rest = rest ? number(rest, stop, &e.size) : NULL;
		if (rest && rest < stop && e.size && e.start + e.size > e.start) {
			if ((size_t)(stop - rest) > NAME)
				m->text[rest - m->text + (ptrdiff_t)NAME] = 0;
			*stop = 0; /* there is room for one behind the end */
			e.name = rest;
			if (!add(m, &e))
				return;
		}
		at = stop + 1;
	}
}

static int by_start(const void *x, const void *y)
{
	const struct line *a = x, *b = y;

	if (a->e.start != b->e.start)
		return a->e.start < b->e.start ? -1 : 1;
	return a->number < b->number ? -1 : a->number > b->number;
}

/* Where lines overlap the later one counts, and the other for what is before it (or behind). */
static bool settle(struct ana_perf_map *m)
{
	size_t kept = 0;

	qsort(m->lines, m->n, sizeof(*m->lines), by_start);
	for (size_t i = 0; i < m->n; i++) {
		struct line l = m->lines[i];
		while (kept) {
			struct line *top = &m->lines[kept - 1];
			uint64_t end = top->e.start + top->e.size;
			if (end <= l.e.start)
				break;
			if (top->number > l.number) {
				uint64_t last = l.e.start + l.e.size;
				l.e.size = last > end ? last - end : 0;
				l.e.start = end;
				break;
			}
			top->e.size = l.e.start > top->e.start ? l.e.start - top->e.start : 0;
			if (top->e.size)
				break;
			kept--;
		}
		if (l.e.size)
			m->lines[kept++] = l;
	}
	m->entries = calloc(kept + 1, sizeof(*m->entries));
	for (size_t i = 0; m->entries && i < kept; i++)
		m->entries[i] = m->lines[i].e;
	m->n = kept;
	free(m->lines);
	m->lines = NULL;
	return m->entries != NULL;
}

/* The newest of that name: it is kept once more if it has grown. */
static int32_t find_file(struct dj_trace *t, int32_t pid)
{
	char path[64];
	int32_t found = -1;

	snprintf(path, sizeof(path), "/tmp/perf-%" PRId32 ".map", pid);
	for (size_t i = 0; i < dj_trace_modules(t); i++)
		if (!strcmp(dj_trace_module(t, i)->path, path))
			found = (int32_t)i;
	return found;
}

struct ana_perf_map *ana_perf_map_new(struct dj_trace *t, uint32_t process)
{
	struct ana_perf_map *m;
	struct dj_error err;
	size_t size = 0;

	if (process >= dj_trace_processes(t))
		return NULL;
	int32_t file = find_file(t, dj_trace_process(t, process)->pid);
	const uint8_t *bytes =
		file < 0 ? NULL : dj_trace_module_bytes(t, (size_t)file, &size, &err);
	m = bytes ? calloc(1, sizeof(*m)) : NULL;
	if (!m)
		return NULL;
	m->text = malloc(size + 1);
	if (m->text) {
		memcpy(m->text, bytes, size);
		m->text[size] = 0;
		read_lines(m, size);
	}
	if (m->n && settle(m) && m->n)
		return m;
	ana_perf_map_free(m);
	return NULL;
}

void ana_perf_map_free(struct ana_perf_map *m)
{
	if (!m)
		return;
	free(m->text);
	free(m->lines);
	free(m->entries);
	free(m);
}

/* ---- asking ---- */

const struct ana_perf_entry *ana_perf_map_entries(const struct ana_perf_map *m, size_t *n)
{
	*n = m->n;
	return m->entries;
}

const struct ana_perf_entry *ana_perf_map_at(const struct ana_perf_map *m, uint64_t addr)
{
	size_t low = 0, high = m->n;

	while (low < high) {
		size_t mid = (low + high) / 2;
		if (m->entries[mid].start <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	if (!low || addr - m->entries[low - 1].start >= m->entries[low - 1].size)
		return NULL;
	return &m->entries[low - 1];
}
