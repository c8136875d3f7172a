/*
 * Mappings (format/mappings.h) against an array with an entry for each page, at random, with
 * copies taken in between that must stay as they were; and a million of them, which anything
 * quadratic would not finish.
 */
#include "format/mappings.h"
#include "tests/lib/suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SEED  20261122u
#define PAGE  4096ull
#define PAGES 96
#define BASE  0x7f0000000000ull
#define CASES 40000

static unsigned seed = SEED;

static unsigned draw(unsigned n)
{
	seed = seed * 1103515245u + 12345u;
	return (seed >> 8) % n;
}

/* ---- the model ---------------------------------------------------------------------------- */

struct page {
	bool mapped, initial, moved;
	uint32_t prot, flags;
	int32_t module;
	uint64_t offset;
	const char *name;
};

struct world {
	struct dj_mappings m;
	struct page page[PAGES];
};

static bool same_page(const struct dj_mapping *m, uint64_t addr, const struct page *p)
{
	bool anonymous = m->module < 0 && (m->flags & DJ_MAP_ANONYMOUS);
	return m->prot == p->prot && m->flags == p->flags && m->module == p->module &&
	       m->initial == p->initial && m->moved == p->moved && m->name == p->name &&
	       (anonymous || m->offset + (addr - m->start) == p->offset);
}

/* Mappings and pages say the same, and no two neighbours could be one. */
static bool same(const struct world *w)
{
	const struct dj_mapping *before = NULL;
	size_t n = 0;
	for (const struct dj_mapping *m = dj_mappings_after(&w->m, 0, 0); m;
	     m = dj_mappings_after(&w->m, m->end, 0)) {
		if (m->start >= m->end || m->start < BASE || m->end > BASE + PAGES * PAGE ||
		    (before && before->end > m->start))
			return false;
		struct page next;
		memset(&next, 0, sizeof(next));
		if (before && before->end == m->start) {
			next = w->page[(m->start - BASE) / PAGE];
			if (same_page(before, m->start, &next))
				return false;
		}
		before = m;
		n++;
	}
	if (n != dj_mappings_count(&w->m))
		return false;
	for (unsigned i = 0; i < PAGES; i++) {
		uint64_t addr = BASE + i * PAGE;
		const struct dj_mapping *m = dj_mappings_find(&w->m, addr + draw(PAGE));
		if (!m != !w->page[i].mapped || (m && !same_page(m, addr, &w->page[i])))
			return false;
	}
	return true;
}

/* Questions with a filter, page by page. */
static bool same_answers(const struct world *w)
{
	unsigned at = draw(PAGES), i;
	uint64_t addr = BASE + at * PAGE;
	uint32_t prot = 1u << draw(3);
	const struct dj_mapping *m = dj_mappings_after(&w->m, addr, prot);
	for (i = at; i < PAGES && !(w->page[i].mapped && (w->page[i].prot & prot)); i++)
		;
	if (i == PAGES ? m != NULL : !m || m != dj_mappings_find(&w->m, BASE + i * PAGE))
		return false;
	m = dj_mappings_before(&w->m, addr, prot);
	for (i = at; i > 0 && !(w->page[i - 1].mapped && (w->page[i - 1].prot & prot)); i--)
		;
	return i == 0 ? m == NULL : m && m == dj_mappings_find(&w->m, BASE + (i - 1) * PAGE);
}

static void put(struct world *w, unsigned at, unsigned n)
{
	static const char *const names[] = { "", "[heap]" };
	struct dj_mapping m = { .start = BASE + at * PAGE,
				.end = BASE + (at + n) * PAGE,
				.offset = draw(2) ? at * PAGE : draw(4) * PAGE,
				.prot = draw(8) & draw(8),
				.flags = draw(2) ? 0x02 : 0x02 | DJ_MAP_ANONYMOUS,
				.module = (int32_t)draw(3) - 1,
				.initial = draw(8) == 0,
				.moved = draw(8) == 0,
				.name = names[draw(8) == 0] };
	dj_mappings_put(&w->m, &m);
	for (unsigned i = 0; i < n; i++)
		w->page[at + i] =
			(struct page){ true,	 m.initial,	      m.moved, m.prot, m.flags,
				       m.module, m.offset + i * PAGE, m.name };
}

static void change(struct world *w)
{
	unsigned at = draw(PAGES), n = 1 + draw(draw(4) ? 6 : PAGES);
	if (n > PAGES - at)
		n = PAGES - at;
	uint64_t start = BASE + at * PAGE, end = start + n * PAGE;
	uint32_t prot = draw(8);
	switch (draw(4)) {
	case 0:
	case 1:
		put(w, at, n);
		break;
	case 2:
		dj_mappings_remove(&w->m, start, end);
		memset(w->page + at, 0, n * sizeof(*w->page));
		break;
	default:
		dj_mappings_protect(&w->m, start, end, prot);
		for (unsigned i = 0; i < n; i++)
			w->page[at + i].prot = prot;
	}
}

static void test_random(void)
{
	enum { COPIES = 4 };
	static struct world now, copy[COPIES];
	for (unsigned i = 0; i < CASES; i++) {
		unsigned c = draw(20 * COPIES);
		if (c < COPIES) { /* an old copy is still right, and makes room for a new one */
			CU_ASSERT(same(&copy[c]));
			dj_mappings_clear(&copy[c].m);
			copy[c] = now;
			copy[c].m.root = NULL;
			dj_mappings_copy(&copy[c].m, &now.m);
			if (draw(4) == 0) { /* go back, as a replay does */
				struct world then = now;
				now = copy[c];
				copy[c] = then;
			}
		}
		change(&now);
		if (!same(&now) || !same_answers(&now)) {
			printf("after %u changes: ", i + 1);
			CU_FAIL("mappings and pages differ");
			break;
		}
	}
	dj_mappings_clear(&now.m);
	CU_ASSERT_EQUAL(dj_mappings_count(&now.m), 0);
	for (unsigned c = 0; c < COPIES; c++) {
		CU_ASSERT(same(&copy[c]));
		dj_mappings_clear(&copy[c].m);
	}
}

/* ---- many --------------------------------------------------------------------------------- */

static double seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Processor seconds for n mappings from the top down, a copy every hundred, and n protections. */
static double many(unsigned n)
{
	struct dj_mappings m = { NULL }, copy = { NULL };
	double began = seconds();
	for (unsigned i = 0; i < n; i++) {
		uint64_t at = BASE - i * PAGE;
		struct dj_mapping one = { .start = at,
					  .end = at + PAGE,
					  .prot = i & 1,
					  .flags = 0x22,
					  .module = -1,
					  .name = "" };
		dj_mappings_put(&m, &one);
		if (i % 100 == 0) {
			dj_mappings_clear(&copy);
			dj_mappings_copy(&copy, &m);
		}
	}
	CU_ASSERT_EQUAL(dj_mappings_count(&m), n);
	for (unsigned i = 0; i < n; i++) {
		uint64_t at = BASE - draw(n) * PAGE;
		dj_mappings_protect(&m, at, at + PAGE, draw(4));
	}
	dj_mappings_clear(&m);
	dj_mappings_clear(&copy);
	return seconds() - began;
}

static void test_many(void)
{
	double few = many(20000), more = many(320000);
	printf("%.0f and %.0f ns each ... ", few / 20000 * 1e9, more / 320000 * 1e9);
	/* 16 times as many: by the logarithm 1.3 times as much each, and the caches matter */
	CU_ASSERT(more < 16 * few * 6);
}

int main(void)
{
	CU_pSuite suite;

	suites_begin();
	printf("seed %u\n", SEED);
	suite = CU_add_suite("mappings", NULL, NULL);
	CU_add_test(suite, "against pages, at random", test_random);
	CU_add_test(suite, "a great many", test_many);
	return suites_run();
}
