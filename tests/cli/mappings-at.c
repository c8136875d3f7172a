/*
 * mappings-at TRACE: what tests/cli/mappings.c has printed, from the records of the trace alone: at
 * each mark the mappings in its range and the heap.
 */
#include "format/mappings.h"
#include "format/trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FROM 0x1fffe0000000ull /* as there */
#define MARK 0x1ffff0000000ull
#define LAST (0x200000000000ull + 200 * 4096)

static struct dj_mappings maps;

static void print(uint64_t from, uint64_t to, uint32_t prot, bool shared)
{
	printf("%" PRIx64 " %" PRIx64 " %c%c%c%c\n", from, to, prot & 1 ? 'r' : '-',
	       prot & 2 ? 'w' : '-', prot & 4 ? 'x' : '-', shared ? 's' : 'p');
}

static void print_all(void)
{
	uint64_t from = 0, to = 0;
	uint32_t prot = 0;
	bool shared = false;
	puts("mark");
	for (const struct dj_mapping *m = dj_mappings_after(&maps, 0, 0); m;
	     m = dj_mappings_after(&maps, m->end, 0)) {
		bool s = (m->flags & DJ_MAP_TYPE) == DJ_MAP_SHARED;
		if (strcmp(m->name, "[heap]") != 0 && (m->start < FROM || m->start >= LAST))
			continue;
		if (m->start == to && m->prot == prot && s == shared) {
			to = m->end;
			continue;
		}
		if (to)
			print(from, to, prot, shared);
		from = m->start;
		to = m->end;
		prot = m->prot;
		shared = s;
	}
	if (to)
		print(from, to, prot, shared);
}

static void apply(const struct dj_record *r)
{
	struct dj_mapping m = { .start = r->addr,
				.end = r->addr + ((r->length + 4095) & ~4095ull),
				.offset = r->offset,
				.prot = r->prot,
				.flags = r->flags,
				.module = r->module,
				.name = r->name && !strcmp(r->name, "[heap]") ? "[heap]" : "" };
	switch (r->kind) {
	case DJ_REC_EXEC:
		dj_mappings_clear(&maps);
		break;
	case DJ_REC_MAP:
		dj_mappings_put(&maps, &m);
		break;
	case DJ_REC_UNMAP:
		dj_mappings_remove(&maps, m.start, m.end);
		break;
	case DJ_REC_PROTECT:
		dj_mappings_protect(&maps, m.start, m.end, r->prot);
		if (r->addr == MARK)
			print_all();
		break;
	default:
		break;
	}
}

int main(int argc, char **argv)
{
	struct dj_error err = { 0 };
	struct dj_trace *t = argc == 2 ? dj_trace_open(argv[1], &err) : NULL;
	struct dj_cursor *c = t ? dj_cursor_new(t, 0, &err) : NULL;
	const struct dj_record *r;
	if (!c) {
		fprintf(stderr, "mappings-at: %s\n", err.text);
		return 2;
	}
	while ((r = dj_cursor_next(c, &err)))
		apply(r);
	if (err.text[0])
		fprintf(stderr, "mappings-at: %s\n", err.text);
	dj_cursor_free(c);
	dj_trace_close(t);
	dj_mappings_clear(&maps);
	return err.text[0] != 0;
}
