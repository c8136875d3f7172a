/*
 * replay-parts TRACE at ADDRESS: the eight bytes there, where the first thread's history begins; or
 * "unknown".
 *
 * replay-parts TRACE [N [SEED]]: N random positions of every thread of a recording, reached from
 * the left and from the keyframe before. Registers, place among the ordered events and what has
 * been stored since must be the same. Prints how many were compared; exit status 1 if anything
 * differs.
 */
#include "replayer/thread.h"
#include "tests/lib/random.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t random_state = 88172645463325252ULL;

static uint64_t rnd(void)
{
	return random_next(&random_state);
}

static _Noreturn void fail(const char *what, const struct dj_error *err)
{
	printf("replay-parts: %s: %s\n", what, err->text);
	exit(1);
}

static int by_number(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static void go(struct rp_thread *th, uint64_t steps)
{
	const struct rp_thread_pos to = { .steps = steps };
	enum rp_thread_stop res = rp_thread_run(th, &to, 0);

	if (res != THREAD_LIMIT && res != THREAD_END)
		fail("replay", &th->err);
}

/* The stack as the shadow has it: all that it has was stored or imported since the keyframe. */
#define STACK 256
static void stack(const struct rp_thread *th, uint8_t out[STACK])
{
	uint32_t at = (uint32_t)(th->e->cpu.gpr[DJ_RSP] - STACK / 2);

	for (unsigned i = 0; i < STACK; i++)
		out[i] = th->e->shadow[(uint32_t)(at + i)];
}

static unsigned compare(struct rp_thread *left, struct rp_thread *part, size_t keyframe)
{
	uint8_t sl[STACK], sp[STACK];
	uint64_t seq[2], within[2], differ;
	struct dj_regs l, p;

	emu_get_regs(left->e, &l);
	emu_get_regs(part->e, &p);
	rp_thread_seq(left, &seq[0], &within[0]);
	rp_thread_seq(part, &seq[1], &within[1]);
	stack(left, sl);
	stack(part, sp);
	differ = dj_regs_diff(&l, &p);
	if (!differ && seq[0] == seq[1] && within[0] == within[1] && !memcmp(sl, sp, STACK))
		return 0;
	printf("thread %d at %" PRIu64 ": from the left %" PRIu64 ":%" PRIu64
	       ", from keyframe %zu %" PRIu64 ":%" PRIu64 "%s%s%s\n",
	       left->info->tid, left->e->steps, seq[0], within[0], keyframe, seq[1], within[1],
	       differ ? ", other " : "", differ ? dj_regs_part_name(differ) : "",
	       memcmp(sl, sp, STACK) ? ", other stack" : "");
	return 1;
}

/* Compare at one position; false: no keyframe is before it. */
static bool look(struct dj_trace *t, struct rp_thread *left, unsigned *differ)
{
	struct rp_space_names names = { 0 };
	size_t keyframe = SIZE_MAX;
	uint64_t steps, seq;
	struct dj_error err = { 0 };
	struct rp_thread *part;

	for (size_t i = 0; dj_trace_keyframe(t, left->index, i, &steps, &seq); i++)
		if (steps <= left->e->steps)
			keyframe = i;
	if (keyframe == SIZE_MAX)
		return false;
	part = rp_thread_new(t, left->index, &names, &err);
	if (!part)
		fail("thread", &err);
	rp_thread_part(part, keyframe, RP_NO_KEYFRAME);
	if (rp_thread_begin(part) != THREAD_LIMIT)
		fail("beginning", &part->err);
	go(part, left->e->steps);
	*differ += compare(left, part, keyframe);
	rp_thread_free(part);
	rp_space_names_free(&names);
	return true;
}

static int show(const char *path, uint64_t addr)
{
	struct dj_error err = { 0 };
	struct replay *r = replay_open(path, &err);
	uint64_t value;

	if (!r)
		fail(path, &err);
	if (replay_read(r, addr, &value, sizeof(value)) == sizeof(value))
		printf("%" PRIu64 "\n", value);
	else
		printf("unknown\n");
	replay_close(r);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[2], "at"))
		return show(argv[1], strtoull(argv[3], NULL, 16));
	size_t n = argc > 2 ? strtoul(argv[2], NULL, 0) : 100;
	uint64_t *at = calloc(n + 1, sizeof(*at));
	unsigned differ = 0, compared = 0;
	struct dj_error err = { 0 };
	struct dj_trace *t = argc > 1 ? dj_trace_open(argv[1], &err) : NULL;

	if (!t || !at)
		fail(argc > 1 ? argv[1] : "usage: replay-parts TRACE [N [SEED]]", &err);
	random_state ^= argc > 3 ? strtoull(argv[3], NULL, 0) << 20 : 0;
	for (size_t i = 0; i < dj_trace_threads(t); i++) {
		const struct dj_thread_info *info = dj_trace_thread(t, i);
		struct rp_space_names names = { 0 };
		struct rp_thread *left = rp_thread_new(t, i, &names, &err);
		if (!left)
			fail("thread", &err);
		if (rp_thread_begin(left) != THREAD_LIMIT)
			fail("beginning", &left->err);
		for (size_t k = 0; k < n; k++)
			at[k] = info->first_steps +
				rnd() % (info->last_steps - info->first_steps + 1);
		qsort(at, n, sizeof(*at), by_number);
		for (size_t k = 0; k < n; k++) {
			go(left, at[k]);
			compared += look(t, left, &differ);
		}
		rp_thread_free(left);
		rp_space_names_free(&names);
	}
	dj_trace_close(t);
	free(at);
	printf("%u positions compared, %u differ\n", compared, differ);
	return differ != 0;
}
