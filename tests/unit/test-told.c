/*
 * Bytes that the recorder told (replayer/told.h) against a list of all that was told and spoilt,
 * from which a model finds out anew what is true: at random, forwards and backwards. And a buffer
 * that is filled a million times, which anything quadratic would not finish.
 */
#include "replayer/told.h"

#include <CUnit/Basic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SEED   20261121u
#define CASES  60
#define ROUNDS 200
#define EVENTS 400
#define LINES  12

static unsigned seed = SEED;

static unsigned draw(unsigned n)
{
	seed = seed * 1103515245u + 12345u;
	return (seed >> 8) % n;
}

/* Some lines of a page, and of pages that share its place in the hash. */
static uint64_t line_of(unsigned i)
{
	return 0x7f0000000000ull + (i % 3) * 4096ull * TOLD_HASH + i / 3 * 64ull;
}

static uint64_t page_of(unsigned i)
{
	return line_of(i) >> 12;
}

/* ---- the model ---------------------------------------------------------------------------- */

enum what { TOLD, SPOILT, PAGES_GONE };
static struct event {
	enum what what;
	struct rp_told_pos pos;
	unsigned line;
	uint64_t mask;
	bool settled;
	uint8_t bytes[64];
} events[EVENTS];
static unsigned n_events;

static bool same(struct rp_told_pos a, struct rp_told_pos b)
{
	return a.steps == b.steps && a.signals == b.signals;
}

static bool after(struct rp_told_pos a, struct rp_told_pos b)
{
	return a.steps != b.steps ? a.steps > b.steps : a.signals > b.signals;
}

static bool holds(const struct event *e, struct rp_told_pos here)
{
	return !after(e->pos, here) && (e->what != SPOILT || e->settled || !same(e->pos, here));
}

static int model_byte(unsigned line, unsigned i, struct rp_told_pos here)
{
	int value = -1;
	for (unsigned k = 0; k < n_events; k++) {
		const struct event *e = &events[k];
		bool it = e->what == PAGES_GONE ? page_of(e->line) == page_of(line)
						: e->line == line && e->mask >> i & 1;
		if (it && holds(e, here))
			value = e->what == TOLD ? e->bytes[i] : -1;
	}
	return value;
}

static bool agrees(const struct rp_told *t, struct rp_told_pos here)
{
	for (unsigned line = 0; line < LINES; line++) {
		for (unsigned i = 0; i < 64; i++) {
			uint8_t value;
			bool known = rp_told_byte(t, line_of(line) + i, &value);
			int want = model_byte(line, i, here);
			if (known != (want >= 0) || (known && value != want)) {
				printf("case with line %u byte %u at %u: %d, not %d\n", line, i,
				       (unsigned)here.steps, known ? value : -1, want);
				return false;
			}
		}
	}
	return true;
}

/* ---- at random ------------------------------------------------------------------------------ */

static uint64_t some_mask(void)
{
	unsigned from = draw(64), n = 1 + draw(64 - from);
	return (n == 64 ? ~0ull : (1ull << n) - 1) << from;
}

static void one_event(struct rp_told *t, struct rp_told_pos here, enum what what, bool settled)
{
	struct event *e = &events[n_events++];
	*e = (struct event){ .what = what,
			     .pos = here,
			     .line = draw(LINES),
			     .mask = some_mask(),
			     .settled = settled };
	for (unsigned i = 0; i < 64; i++)
		e->bytes[i] = (uint8_t)draw(256);
	if (what == TOLD)
		rp_told_add(t, here, line_of(e->line), e->mask, e->bytes);
	else if (what == SPOILT)
		rp_told_spoil(t, here, line_of(e->line), e->mask, settled);
	else
		rp_told_spoil_pages(t, here, page_of(e->line), page_of(e->line));
}

/* What happens at a position: first what is told there, then the step. */
static void forward(struct rp_told *t, struct rp_told_pos *here)
{
	for (unsigned n = draw(4); n; n--)
		one_event(t, *here, draw(8) ? TOLD : PAGES_GONE, true);
	for (unsigned n = draw(4); n; n--)
		one_event(t, *here, SPOILT, false);
	if (draw(5))
		*here = (struct rp_told_pos){ here->steps + 1 + draw(3), 0 };
	else
		here->signals++;
}

static void back(struct rp_told *t, struct rp_told_pos *here)
{
	*here = (struct rp_told_pos){ draw((unsigned)here->steps + 1), draw(2) };
	rp_told_back(t, *here);
	unsigned kept = 0;
	for (unsigned k = 0; k < n_events; k++)
		if (holds(&events[k], *here))
			events[kept++] = events[k];
	n_events = kept;
}

static void test_random(void)
{
	static struct rp_told t;
	unsigned bad = 0;
	for (unsigned n = 0; n < CASES && !bad; n++) {
		struct rp_told_pos here = { 0, 0 };
		n_events = 0;
		for (unsigned round = 0; round < ROUNDS; round++) {
			if (draw(12) && n_events < EVENTS - 8)
				forward(&t, &here);
			else
				back(&t, &here);
			if (!draw(4))
				bad += !agrees(&t, here);
		}
		rp_told_free(&t);
	}
	CU_ASSERT_EQUAL(bad, 0);
}

static double seconds(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* The same buffer again and again, each time spoilt before; one line that is told once. */
static void test_many(void)
{
	static struct rp_told t;
	uint8_t bytes[64] = { 0 }, value = 0;
	double began = seconds();
	struct rp_told_pos here = { 0, 0 };

	for (unsigned i = 0; i < 1000000; i++) {
		here.steps = 2 * i;
		bytes[0] = (uint8_t)i;
		rp_told_spoil(&t, here, i % 8 * 64, ~0ull, false);
		here.steps++;
		rp_told_add(&t, here, i % 8 * 64, ~0ull, bytes);
	}
	CU_ASSERT(rp_told_byte(&t, 999999 % 8 * 64, &value));
	CU_ASSERT_EQUAL(value, (uint8_t)999999);
	here.steps = 2 * 999991 + 1;
	rp_told_back(&t, here);
	CU_ASSERT(rp_told_byte(&t, 999991 % 8 * 64, &value));
	CU_ASSERT_EQUAL(value, (uint8_t)999991);
	/* nothing ends: it must not grow for ever, and what is latest stays */
	for (unsigned i = 0; i < 1000000; i++) {
		here.steps++;
		bytes[0] = (uint8_t)i;
		rp_told_add(&t, here, 0x100000 + i * 64ull, ~0ull, bytes);
	}
	CU_ASSERT(t.n < 300000);
	CU_ASSERT(rp_told_byte(&t, 0x100000 + 999999 * 64ull, &value));
	CU_ASSERT_EQUAL(value, (uint8_t)999999);
	rp_told_free(&t);
	CU_ASSERT(seconds() - began < 20);
}

int main(void)
{
	CU_pSuite suite;

	if (CU_initialize_registry() != CUE_SUCCESS)
		return 1;
	printf("seed %u\n", SEED);
	suite = CU_add_suite("told", NULL, NULL);
	CU_add_test(suite, "against a list, at random", test_random);
	CU_add_test(suite, "a great many", test_many);
	CU_basic_set_mode(CU_BRM_VERBOSE);
	CU_basic_run_tests();
	unsigned failed = CU_get_number_of_failures();
	CU_cleanup_registry();
	return failed != 0;
}
