/*
 * Makes hostile indexes beside traces of tests/cli/make-hostile: small files with sums that are
 * right, which would have a debugger take much memory or time, or stand where nobody has been.
 *
 * usage: make-hostile-index --list | NAME TRACE
 *
 * --list also says beside which trace each is to be.
 */
#include "format/index.h"
#include "replayer/keep.h"
#include "replayer/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST  (DJ_INDEX_BLOCK_MAX - 4096)
#define APART 1000u /* instructions from one checkpoint to the next */

static struct dj_index_writer *w;
static struct emu *e;
static struct rp_space *none, *space;
static struct rp_wire wire;
static uint8_t *block;
static size_t n; /* bytes in it */

static void good(bool is, const char *what)
{
	if (is)
		return;
	fprintf(stderr, "make-hostile-index: %s\n", what);
	exit(1);
}

/* ---- what indexes are made of ------------------------------------------------------------------
 */

static struct rp_checkpoint at(uint64_t k)
{
	struct rp_checkpoint c = { .pos = { .steps = k * APART }, .light = true, .space = none };

	c.cpu.rip = 0x4000000;
	c.last_sysno = UINT64_MAX;
	return c;
}

/* Put it into the block at hand; false: there is no room. */
static bool add(struct rp_checkpoint c, struct rp_space *before)
{
	rp_wire_put(&wire, &c, e, before);
	good(!wire.failed, "message");
	if (n + wire.n > MOST)
		return false;
	memcpy(block + n, wire.bytes, wire.n);
	n += wire.n;
	return true;
}

static void put(uint32_t thread)
{
	good(dj_index_put(w, thread, block, n, SIZE_MAX), "block");
	n = 0;
}

/* Light checkpoints that have nothing but a position; up to `most`. */
static void lights(uint64_t most)
{
	for (uint64_t k = 1; k <= most && add(at(k), none); k++)
		;
}

/* ---- all of them -------------------------------------------------------------------------------
 */

static void index_light(void)
{
	lights(UINT64_MAX);
	put(0);
}

/* Each of many threads has so many. */
static void index_threads(void)
{
	lights(UINT64_MAX);
	size_t all = n;
	for (uint32_t i = 0; i < 40; i++, n = all)
		put(i);
}

/* Blocks that are for other threads, and those of each thread behind them. */
static void index_blocks(void)
{
	uint8_t one = 0;

	for (uint32_t i = 0; i < 300000; i++)
		good(dj_index_put(w, 30000, &one, 1, SIZE_MAX), "block");
	for (uint32_t i = 0; i < 200; i++)
		good(dj_index_put(w, i, &one, 1, SIZE_MAX), "block");
}

/* Lines by the million. */
static void index_lines(void)
{
	size_t rows = (size_t)1 << 20;
	struct rp_line_row *list = calloc(rows, sizeof(*list));

	good(list, "memory");
	for (size_t i = 0; i < rows; i++)
		list[i] = (struct rp_line_row){ .num = i, .lines = { UINT64_MAX } };
	for (uint64_t k = 1;; k++) {
		struct rp_checkpoint c = at(k);
		c.lines.list = list;
		c.lines.n = rows;
		if (!add(c, none))
			break;
	}
	put(0);
	free(list);
}

/* All there is of pages, again and again, no two of them the same. */
static void index_memory(void)
{
	struct rp_change *list = calloc(16000, sizeof(*list));

	good(list, "memory");
	lights(100);
	put(0);
	for (uint64_t k = 1; k <= 20; k++) {
		struct rp_checkpoint c = at(k);
		uint8_t bytes[RP_PAGE];
		c.light = false;
		c.changes = (struct rp_changes){ list, 12000, 16000 };
		for (uint64_t i = 0; i < c.changes.n; i++) {
			struct rp_bytes *page = NULL;
			memset(bytes, 1 + (int)(k & 127), sizeof(bytes));
			memcpy(bytes, &i, sizeof(i));
			good(rp_bytes_make(&page, NULL, bytes, RP_PAGE), "page");
			list[i] = (struct rp_change){ .key = rp_key_shadow(i), .after = page };
		}
		add(c, none);
		put(0);
		for (uint64_t i = 0; i < c.changes.n; i++)
			rp_bytes_unref(list[i].after);
	}
	free(list);
}

/* Pages by the million that nobody has, and of which there is nothing: they pack to next to
 * nothing. */
static void index_pages(void)
{
	struct rp_view_version empty = { .refs = 1 };
	size_t pages = 1500000;
	struct rp_change *list = calloc(pages, sizeof(*list));

	good(list, "memory");
	lights(100);
	put(0);
	for (uint64_t k = 1; k <= 7; k++) {
		struct rp_checkpoint c = at(k);
		c.light = false;
		c.changes = (struct rp_changes){ list, pages, pages };
		for (uint64_t i = 0; i < pages; i++)
			list[i] = (struct rp_change){ .key = rp_key_view(k * pages + i),
						      .after = &empty };
		add(c, none);
		put(0);
	}
	free(list);
}

/* One checkpoint with so many mappings. */
static void mappings(bool named)
{
	struct dj_mapping m = { .prot = 7, .flags = 0x22, .module = -1, .name = "" };
	char name[4000];

	memset(name, 'x', sizeof(name));
	for (unsigned i = 0; i < (named ? 16000 : 500000); i++) {
		snprintf(name, 9, "%08x", i);
		name[8] = 'x';
		name[sizeof(name) - 1] = 0;
		m.start = (0x10000ull + i) << 13;
		m.end = m.start + 4096;
		m.name = named ? strdup(name) : "";
		good(!rp_space_map(&space, &m, NULL), "mapping");
	}
}
static void index_mappings(void)
{
	struct rp_checkpoint c = at(1);

	mappings(false);
	c.space = space;
	add(c, none);
	put(0);
}
/* For each thread others. */
static void index_names(void)
{
	struct rp_checkpoint c = at(1);

	mappings(true);
	c.space = space;
	add(c, none);
	for (uint32_t i = 0; i < 20; i++) {
		size_t all = n;
		for (size_t k = 0; k + 12 < all; k++)
			if (!memcmp(block + k, "xxxxxxxx", 8) && block[k - 9] != 'x')
				block[k] = (uint8_t)('A' + i % 26),
				block[k + 1] = (uint8_t)('a' + i / 26);
		put(i);
		n = all;
	}
}

/* Numbers at the ends of what they may be, and places in the trace where nothing begins. */
static void index_wild(void)
{
	for (uint64_t k = 1; k < 1000; k++) {
		struct rp_checkpoint c = at(k);
		uint64_t odd = k % 3 ? UINT64_MAX - k % 7 : k;
		memset(&c.mark, (int)k, sizeof(c.mark));
		if (k % 2)
			c.mark = (struct dj_mark){ .own = { .chunk = (uint32_t)odd,
							    .head = (uint32_t)(k / 2) } };
		c.cpu.rip = odd << 40;
		c.fences = c.fence_steps = c.events = c.event_steps = c.signals_total = odd;
		c.forks = c.last_sysno = c.last_result = c.seq = c.order = odd;
		memset(&c.numbers, (int)odd, sizeof(c.numbers));
		c.exited = k % 5 == 0;
		c.pos.signals = (uint32_t)odd;
		add(c, none);
	}
	put(0);
}

static const struct {
	const char *name, *trace;
	void (*make)(void);
} indexes[] = {
	{ "index_light", "loop_for_ever", index_light },
	{ "index_threads", "threads_many", index_threads },
	{ "index_blocks", "threads_many", index_blocks },
	{ "index_lines", "loop_for_ever", index_lines },
	{ "index_memory", "loop_for_ever", index_memory },
	{ "index_pages", "loop_for_ever", index_pages },
	{ "index_mappings", "loop_for_ever", index_mappings },
	{ "index_names", "threads_many", index_names },
	{ "index_wild", "loop_for_ever", index_wild },
};
#define INDEXES (sizeof(indexes) / sizeof(indexes[0]))

static void make(void (*how)(void), const char *path)
{
	struct dj_error err;
	struct dj_trace *t = dj_trace_open(path, &err);

	good(t, path);
	w = dj_index_begin(t, rp_wire_layout());
	e = emu_new(&err);
	none = rp_space_new();
	space = rp_space_new();
	block = malloc(DJ_INDEX_BLOCK_MAX);
	good(w && e && none && space && block, "memory");
	how();
	good(!dj_index_write(w, &err), "index");
	dj_index_drop(w);
	dj_trace_close(t);
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "--list")) {
		for (size_t i = 0; i < INDEXES; i++)
			printf("%s %s\n", indexes[i].name, indexes[i].trace);
		return 0;
	}
	for (size_t i = 0; argc == 3 && i < INDEXES; i++) {
		if (strcmp(indexes[i].name, argv[1]) != 0)
			continue;
		make(indexes[i].make, argv[2]);
		return 0;
	}
	fprintf(stderr, "usage: make-hostile-index --list | NAME TRACE\n");
	return 2;
}
