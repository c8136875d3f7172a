/*
 * both-ways TRACE [N [SEED]]: each thread of a recording is replayed twice, in translated code and
 * by the emulator, and at N random positions altogether both must have the same: all registers,
 * flags included, ordered events, and all of the shadow. Prints what it did; exit status 1 if
 * anything differs, 77 if this host cannot execute translated code.
 */
#include "replayer/thread.h"
#include "tests/lib/random.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE   4096
#define PAGES  (1u << 20)
#define MEMORY 16 /* memory is compared at each so many positions: there is much of it */

static uint64_t random_state = 88172645463325252ULL;

static uint64_t rnd(void)
{
	return random_next(&random_state);
}

static int by_value(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* Pages that neither has touched are zero in both. */
static uint64_t first_difference(const struct emu *a, const struct emu *b)
{
	static unsigned char in_a[PAGES], in_b[PAGES];

	if (mincore(a->shadow, (size_t)PAGES * PAGE, in_a) ||
	    mincore(b->shadow, (size_t)PAGES * PAGE, in_b))
		abort();
	for (uint64_t i = 0; i < PAGES; i++)
		if (((in_a[i] | in_b[i]) & 1) &&
		    memcmp(a->shadow + i * PAGE, b->shadow + i * PAGE, PAGE))
			return i * PAGE;
	return UINT64_MAX;
}

static bool same(struct rp_thread *quick, struct rp_thread *slow, bool memory)
{
	struct dj_regs a, b;
	uint64_t seq[2], within[2], at = UINT64_MAX;

	emu_get_regs(quick->e, &a);
	emu_get_regs(slow->e, &b);
	rp_thread_seq(quick, &seq[0], &within[0]);
	rp_thread_seq(slow, &seq[1], &within[1]);
	uint64_t differ = dj_regs_diff(&a, &b);
	if (memory)
		at = first_difference(quick->e, slow->e);
	if (!differ && at == UINT64_MAX && seq[0] == seq[1] && within[0] == within[1] &&
	    quick->e->steps == slow->e->steps)
		return true;
	printf("thread %zu at %" PRIu64 " and %" PRIu64 ": parts %" PRIx64 " differ (rip %" PRIx64
	       " and %" PRIx64 ", rflags %" PRIx64 " and %" PRIx64 "), events %" PRIu64 ":%" PRIu64
	       " and %" PRIu64 ":%" PRIu64 ", memory from %" PRIx64 " on\n",
	       quick->index, quick->e->steps, slow->e->steps, differ, a.rip, b.rip, a.rflags,
	       b.rflags, seq[0], within[0], seq[1], within[1], at);
	return false;
}

/* The same end for both: a position, or what stopped them. */
static bool run_both(struct rp_thread *quick, struct rp_thread *slow, uint64_t steps, bool *over)
{
	struct rp_thread_pos to = { .steps = steps };
	enum rp_thread_stop a = rp_thread_run(quick, &to, 0), b = rp_thread_run(slow, &to, 0);

	*over = a != THREAD_LIMIT;
	if (a == b && a != THREAD_FAILED)
		return true;
	printf("thread %zu: translated %d (%s), emulated %d (%s)\n", quick->index, a,
	       quick->err.text, b, slow->err.text);
	return false;
}

/* Compares at n positions of the thread. */
static bool compare(struct dj_trace *t, size_t thread, unsigned n, uint64_t *translated)
{
	struct rp_space_names names[2] = { 0 };
	struct dj_error err = { 0 };
	struct rp_thread *quick = rp_thread_new(t, thread, &names[0], &err),
			 *slow = rp_thread_new(t, thread, &names[1], &err);
	const struct dj_thread_info *info = dj_trace_thread(t, thread);
	uint64_t *at = calloc(n + 1, sizeof(*at)), length = info->last_steps - info->first_steps;
	bool good = quick && slow && at && rp_thread_translate(quick), over = false;

	for (unsigned i = 0; i < n; i++)
		at[i] = info->first_steps + rnd() % (length + 1);
	qsort(at, n, sizeof(*at), by_value);
	good = good && rp_thread_begin(quick) == THREAD_LIMIT &&
	       rp_thread_begin(slow) == THREAD_LIMIT;
	for (unsigned i = 0; i < n && good && !over; i++)
		good = run_both(quick, slow, at[i], &over) &&
		       same(quick, slow, i % MEMORY == 0 || i == n - 1);
	*translated += good ? fast_steps(quick->fast) : 0;
	rp_thread_free(quick);
	rp_thread_free(slow);
	rp_space_names_free(&names[0]);
	rp_space_names_free(&names[1]);
	free(at);
	return good;
}

int main(int argc, char **argv)
{
	unsigned n = argc > 2 ? (unsigned)atoi(argv[2]) : 200;
	struct dj_error err = { 0 };
	uint64_t total = 0, translated = 0, begun;
	bool good = true;

	if (argc > 3)
		random_state ^= strtoull(argv[3], NULL, 0) * 0x9e3779b97f4a7c15ULL;
	struct dj_trace *t = argc > 1 ? dj_trace_open(argv[1], &err) : NULL;
	if (!t) {
		fprintf(stderr, "both-ways: %s\n", argc > 1 ? err.text : "TRACE [N [SEED]]");
		return 2;
	}
	if (!fast_possible(dj_cpu_kind_of(dj_trace_meta(t)->cpu))) {
		puts("this host cannot execute translated code");
		return 77;
	}
	for (size_t i = 0; i < dj_trace_threads(t); i++)
		total += dj_trace_thread(t, i)->last_steps - dj_trace_thread(t, i)->first_steps;
	begun = total;
	for (size_t i = 0; i < dj_trace_threads(t) && good; i++) {
		uint64_t length =
			dj_trace_thread(t, i)->last_steps - dj_trace_thread(t, i)->first_steps;
		good = compare(t, i,
			       1 + (unsigned)((double)n * (double)length / (double)(total + 1)),
			       &translated);
	}
	printf("%s: %" PRIu64 " instructions, %" PRIu64 " of them translated\n", argv[1], begun,
	       translated);
	dj_trace_close(t);
	return !good;
}
