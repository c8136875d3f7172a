/*
 * The profile of branches as gcc -fauto-profile reads it: numbers in four bytes (two of them for a
 * counter), the host's order; a table of names; and for each function how often it was entered, and
 * how often each of its lines was executed (gcc 12: auto-profile.cc, gcov-io.cc; strings have their
 * length in bytes since gcc 12). What was inlined is in the lines of the inlined function.
 */
#include "analyses/edges.h"

#include <string.h>

#define MAGIC	  0x67636461u /* GCOV_DATA_MAGIC */
#define VERSION	  2u	      /* AUTO_PROFILE_VERSION */
#define NAMES	  0xaa000000u /* GCOV_TAG_AFDO_FILE_NAMES */
#define FUNCTIONS 0xac000000u /* GCOV_TAG_AFDO_FUNCTION */
#define MODULES	  0xae000000u /* GCOV_TAG_MODULE_GROUPING */

static void put(FILE *f, uint32_t number)
{
	fwrite(&number, sizeof(number), 1, f);
}

static void put_counter(FILE *f, uint64_t count)
{
	put(f, (uint32_t)count);
	put(f, (uint32_t)(count >> 32));
}

static void put_string(FILE *f, const char *text)
{
	uint32_t size = (uint32_t)strlen(text) + 1;

	put(f, size);
	fwrite(text, 1, size, f);
}

static bool same_function(const struct edges_body *a, const struct edges_body *b)
{
	return !strcmp(a->function, b->function);
}

static bool is_line(const struct edges_body *b)
{
	return b->line != EDGES_ENTRY && !b->callee && b->line < 1u << 16;
}

/* gcc knows a place by its line alone; of one's discriminators the greatest count is the line's. */
static uint64_t line_count(const struct edges_body *b, size_t from, size_t to, size_t *next)
{
	uint64_t count = 0;

	for (*next = from; *next < to && (b[*next].line == b[from].line || !is_line(&b[*next]));
	     ++*next)
		if (is_line(&b[*next]) && b[*next].count > count)
			count = b[*next].count;
	return count;
}

static void put_function(const struct edges_body *b, size_t n, uint32_t name, FILE *f)
{
	uint64_t entered = b[n - 1].line == EDGES_ENTRY ? b[n - 1].count : 0;
	uint32_t lines = 0;
	size_t first = 0, next;

	while (first < n && !is_line(&b[first]))
		first++;
	for (size_t i = first; i < n; i = next, lines++)
		line_count(b, i, n, &next);
	put_counter(f, entered);
	put(f, name);
	put(f, lines);
	put(f, 0); /* calls that were inlined */
	for (size_t i = first; i < n; i = next) {
		uint64_t count = line_count(b, i, n, &next);
		put(f, b[i].line << 16);
		put(f, 0); /* targets of an indirect call */
		put_counter(f, count);
	}
}

void ana_edges_gcc(struct ana_edges *e, FILE *f)
{
	struct edges_bodies k = { .e = e };
	uint32_t names = 0;
	size_t end;

	ana_edges_collect(&k);
	for (size_t i = 0; i < k.n; i++)
		names += !i || !same_function(&k.b[i - 1], &k.b[i]);
	put(f, MAGIC);
	put(f, VERSION);
	put(f, 0);
	put(f, NAMES);
	put(f, 0); /* nobody looks at the length of a section */
	put(f, names);
	for (size_t i = 0; i < k.n; i++)
		if (!i || !same_function(&k.b[i - 1], &k.b[i]))
			put_string(f, k.b[i].function);
	put(f, FUNCTIONS);
	put(f, 0);
	put(f, names);
	names = 0;
	for (size_t i = 0; i < k.n; i = end) {
		for (end = i; end < k.n && same_function(&k.b[i], &k.b[end]); end++)
			;
		put_function(&k.b[i], end - i, names++, f);
	}
	put(f, MODULES);
	put(f, 0);
	put(f, 0);
	ana_edges_collected(&k);
}
