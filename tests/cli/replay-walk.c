/*
 * replay-walk TRACE [N [SEED]]: N random positions of all threads of a recording. One replay that
 * only ever goes forward in each thread keeps what it saw at each. Another starts at the end, to
 * which it has come over ground that was covered in generated code where this host can, and
 * must see the same at each of them, coming from the right; there, stepi then reverse-stepi,
 * reverse-stepi then stepi, and going away and coming back must give identical registers, stack
 * memory, and samples of everything that is mapped. All that a thread has met is compared. Then it
 * jumps among them. Prints what it did; exit status 1 if anything differs.
 */
#include "cli/confine.h"
#include "replayer/worker.h"
#include "tests/cli/seen.h"
#include "tests/lib/notes.h"
#include "tests/lib/random.h"
#include "tests/lib/share-places.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t random_state = 88172645463325252ULL;
static bool shared; /* some places modulo 4 GiB */

static uint64_t rnd(void)
{
	return random_next(&random_state);
}

static unsigned steps_there_and_back(struct replay *r)
{
	struct replay_stop stop;
	struct state here;
	unsigned bad = 0;

	look(r, &here, false);
	replay_step(r, REPLAY_FORWARD, &stop);
	if (stop.reason == REPLAY_STEPPED) {
		replay_step(r, REPLAY_BACKWARD, &stop);
		bad += compare(r, &here, "stepi, reverse-stepi");
	}
	replay_step(r, REPLAY_BACKWARD, &stop);
	if (stop.reason == REPLAY_STEPPED) {
		replay_step(r, REPLAY_FORWARD, &stop);
		bad += compare(r, &here, "reverse-stepi, stepi");
	}
	return bad;
}

static unsigned both_sides(struct replay *r)
{
	struct replay_thread t;
	struct state here;
	struct dj_error err;
	struct replay_pos other;

	look(r, &here, false);
	other = here.pos;
	replay_thread(r, &t);
	const struct dj_thread_info *info = dj_trace_thread(replay_trace(r), t.number);
	uint64_t first = info->first_steps, last = info->last_steps;
	uint64_t away = rnd() % (rnd() % 4 ? 5000 : last - first + 1);
	other.signals = 0;
	other.rep = 0;
	other.steps = rnd() & 1 ? here.pos.steps + away : here.pos.steps - away;
	if (other.steps < first || other.steps > last)
		other.steps = first;
	if (replay_seek(r, &other, &err) || replay_seek(r, &here.pos, &err)) {
		printf("%s\n", err.text);
		return 1;
	}
	return compare(r, &here, "from the other side");
}

static unsigned pulses, interruptions;

static bool interrupt(void *ctx)
{
	struct replay *r = ctx;

	r->patience.due = 0; /* it asks at each pulse */
	if (pulses && --pulses)
		return false;
	interruptions++;
	return true;
}

/* Who is interrupted while it looks is where it was, and sees then what there is to be seen. */
static unsigned interrupted_look(struct replay *r, const struct state *was)
{
	const struct rp_patience patience = r->patience;
	struct state s;

	pulses = (unsigned)rnd() % (rnd() & 1 ? 10 : 1000);
	r->patience.poll = interrupt;
	r->patience.ctx = r;
	r->patience.due = 0;
	look(r, &s, true);
	r->patience.poll = patience.poll;
	r->patience.ctx = patience.ctx;
	return compare(r, was, "after an interruption");
}

/* Steps both ways with a look at memory that nobody knows after each: a look that ran ahead each
 * time, as a debugger would make one after each step, would take some 10 ms. */
static unsigned cheap_looks(struct replay *r)
{
	struct replay_stop stop;
	struct state s;
	clock_t began = clock();
	double seconds;

	for (unsigned i = 0; i < 1000; i++) {
		replay_step(r, i < 500 ? REPLAY_FORWARD : REPLAY_BACKWARD, &stop);
		look(r, &s, false);
	}
	seconds = (double)(clock() - began) / CLOCKS_PER_SEC;
	if (seconds < 3)
		return 0;
	printf("1000 steps with looks took %.1f s\n", seconds);
	return 1;
}

static int by_position(const void *a, const void *b)
{
	const struct state *x = a, *y = b;

	if (x->pos.thread != y->pos.thread)
		return x->pos.thread < y->pos.thread ? -1 : 1;
	return x->pos.steps < y->pos.steps ? -1 : x->pos.steps > y->pos.steps;
}

/* Bytes by which a replay may grow that has been at many positions, when it goes to more. */
#define GROWTH ((uint64_t)64 << 20)

static struct replay *start(const char *path)
{
	struct replay *r = open_or_exit(path);

	replay_report_signals(r, 0);
	return r;
}

static void seek(struct replay *r, const struct replay_pos *pos)
{
	struct dj_error err;

	if (!replay_seek(r, pos, &err))
		return;
	printf("seek to %" PRIu64 ": %s\n", pos->steps, err.text);
	exit(1);
}

/* Behind a thread's beginning, which is emulated whoever goes there, but not by much. */
#define SOON 700000

/* In clusters, so that most moves are short ones; and one soon. */
static struct state *choose(unsigned n, struct replay *r)
{
	struct dj_trace *t = replay_trace(r);
	const struct dj_thread_info *info = NULL;
	struct state *states = calloc(n, sizeof(*states));
	uint64_t base = 0;
	uint32_t thread = 0;

	if (!states)
		exit(2);
	for (unsigned i = 0; i < n; i++) {
		struct replay_pos *pos = &states[i].pos;
		if (i % 50 == 0)
			info = dj_trace_thread(t, thread = rnd() % dj_trace_threads(t));
		pos->thread = thread;
		if (i % 50 == 0)
			base = info->first_steps +
			       rnd() % (info->last_steps - info->first_steps + 1);
		pos->steps = base + rnd() % 20000;
		if (pos->steps > info->last_steps)
			pos->steps = info->last_steps;
	}
	info = dj_trace_thread(t, states[0].pos.thread);
	if (info->last_steps - info->first_steps > 2 * SOON)
		states[0].pos.steps = info->first_steps + SOON;
	qsort(states, n, sizeof(*states), by_position);
	return states;
}

/* Some of them from what was found out on the way, as the next replay would. */
static unsigned from_index(struct replay *was, const char *path, const struct state *states,
			   unsigned n)
{
	struct dj_error err;
	unsigned bad = 0;

	if (replay_keep(was, true, &err)) {
		printf("%s\n", err.text);
		return 1;
	}
	struct replay *r = start(path);
	r->land_worth = 300000;
	r->land_page = 0;
	replay_use_index(r);
	if (!r->index) {
		printf("there is no index\n");
		bad++;
	}
	for (unsigned i = 0; i < n / 8 && bad < 10; i++) {
		const struct state *s = &states[rnd() % n];
		seek(r, &s->pos);
		bad += compare(r, s, "from an index");
	}
	if (r->cs->indexed && !r->index) {
		printf("the index was refused\n");
		bad++;
	}
	replay_close(r);
	return bad;
}

/* What generated code must save there to be worth asking for, in instructions. */
#define WORTH 300000

/* A process lands a little before the place. */
#define LANDS_BEFORE 100000

/* That is a way back, and behind the last full checkpoint before that are WORTH instructions or
 * more, up to the last checkpoint of all. */
static bool far_back(struct replay *r, const struct replay_pos *to)
{
	const struct rp_thread_pos at = { .steps = to->steps };
	size_t n = rp_checkpoint_full(r->cs, rp_checkpoint_count(r->cs, &at));
	uint64_t from = n ? r->cs->list[n - 1]->pos.steps : r->th->info->first_steps;
	uint64_t upto = r->cs->n ? r->cs->list[r->cs->n - 1]->pos.steps : 0;
	struct rp_thread_pos now;

	rp_thread_pos(r->th, &now);
	if (at.steps < upto)
		upto = at.steps;
	return rp_thread_pos_cmp(&at, &now) < 0 && upto >= from + WORTH + LANDS_BEFORE;
}

/* Some of them where no ground is covered and nothing between was kept: then a process lands the
 * thread at all that are far back, whatever else the machine does. How many are depends on where
 * the full checkpoints are, and so on when the program was stopped. */
static struct replay *land_some(const char *path, const struct state *states, unsigned n,
				uint64_t most, unsigned *far, unsigned *bad)
{
	struct replay *r = start(path);
	struct replay_pos end;

	r->ground_worth = UINT64_MAX / 4;
	replay_limits(r, UINT64_MAX / 4, 1000, 1 << 20);
	r->land_worth = WORTH;
	r->land_page = 0;
	r->land_most = most;
	replay_end_pos(r, &end);
	seek(r, &end);
	shared = share_places(r);
	for (unsigned i = 0; i < n && *bad < 10; i++) {
		*far += r->nthreads == 1 && far_back(r, &states[i].pos);
		seek(r, &states[i].pos);
		*bad += compare(r, &states[i], "landed");
	}
	printf("%u positions are far back, %" PRIu64
	       " landings where no ground is covered, %u processes over, %u failed\n",
	       *far, r->landed, r->landers_over, r->landings_failed);
	return r;
}

/* A process that may hold nothing ends when it has handed something back, and the next landing that
 * would ask it finds that. Which one that is depends on where the full checkpoints are: if none of
 * those before was one, others are tried. */
static void land_until_over(struct replay *r, const struct state *states, unsigned n)
{
	for (unsigned i = 0; i < 2 * n && !r->landers_over && !r->not_landed; i++)
		seek(r, &states[rnd() % n].pos);
}

/* One process as long as it will do, which is always there; or a new one each time. */
static unsigned landed(const char *path, const struct state *states, unsigned n)
{
	struct state *some = malloc((n / 8 + 1) * sizeof(*some));
	unsigned bad = 0, far = 0, far_anew = 0;

	for (unsigned i = 0; some && i < n / 8; i++)
		some[i] = states[i ? rnd() % n : 0];
	if (!some)
		return 1;
	struct replay *r = land_some(path, some, n / 8, UINT64_MAX / 8, &far, &bad);
	struct replay *anew = land_some(path, some, n / 8, 0, &far_anew, &bad);
	if (r->nthreads == 1 && rp_worker_possible(r) && notes_fit()) {
		if ((r->landed < far || r->landings_failed) && !shared) {
			printf("a process has not landed the thread where it is worth it\n");
			bad++;
		}
		bool many = anew->landed > 8;
		if (many)
			land_until_over(anew, states, n);
		if (r->landers_over || anew->not_landed || (many && !anew->landers_over)) {
			printf("a process was over, or %u landings were not made by another\n",
			       anew->not_landed);
			bad++;
		}
	}
	replay_close(r);
	replay_close(anew);
	free(some);
	return bad;
}

/* Memory that this process has, in bytes. */
static uint64_t resident(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	unsigned long long pages = 0;

	if (!f || fscanf(f, "%*u %llu", &pages) != 1)
		pages = 0;
	if (f)
		fclose(f);
	return pages * 4096;
}

int main(int argc, char **argv)
{
	struct timespec t0, t1;
	unsigned n = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 0) : 100, bad = 0;

	if (argc < 2) {
		fprintf(stderr, "usage: replay-walk TRACE [N [SEED]]\n");
		return 2;
	}
	if (argc > 3)
		random_state += strtoull(argv[3], NULL, 0) * 0x9e3779b97f4a7c15ULL;
	clock_gettime(CLOCK_MONOTONIC, &t0);

	struct replay *r = start(argv[1]);
	struct state *states = choose(n, r);
	for (unsigned i = 0; i < n; i++) {
		seek(r, &states[i].pos);
		look(r, &states[i], true);
	}
	replay_close(r);

	replay_confine(cli_confine);
	r = start(argv[1]);
	r->ground_worth = 100000;
	/* few full checkpoints, and a process that goes from them to positions even when near */
	replay_limits(r, 100000, 1000, 1 << 20);
	/* full checkpoints may be as close as 100000 instructions: how far apart is a matter of
	 * what taking one costs, and so of time */
	r->land_worth = 50000;
	r->land_page = 0;
	struct replay_pos end;
	replay_end_pos(r, &end);
	seek(r, &end);
	uint64_t took = 0, most = GROWTH;
	for (unsigned i = n; i-- > 0 && bad < 10;) {
		seek(r, &states[i].pos);
		bad += compare(r, &states[i], "from the right");
		bad += steps_there_and_back(r);
		bad += both_sides(r);
		/* a thread that is looked at for the first time takes some */
		if (i == (dj_trace_threads(replay_trace(r)) == 1 ? n / 2 : 0))
			took = resident();
	}
	for (unsigned i = 0; i < n && bad < 10; i++) {
		const struct state *s = &states[rnd() % n];
		seek(r, &s->pos);
		bad += compare(r, s, "out of order");
	}
	for (unsigned i = 0; i < n / 2 && bad < 10; i++) {
		const struct state *s = &states[rnd() % n];
		seek(r, &s->pos);
		bad += interrupted_look(r, s);
	}
	if (dj_trace_threads(replay_trace(r)) == 1) {
		seek(r, &states[n / 2].pos);
		bad += cheap_looks(r);
	}
	if (resident() > took + most) {
		printf("from %" PRIu64 " to %" PRIu64 " bytes of memory\n", took, resident());
		bad++;
	}
	bad += from_index(r, argv[1], states, n);
	bad += landed(argv[1], states, n);
	clock_gettime(CLOCK_MONOTONIC, &t1);
	printf("%u positions, %u differences, %" PRIu64 " landings, %u interruptions, %.1f s\n", n,
	       bad, r->landed, interruptions,
	       (double)(t1.tv_sec - t0.tv_sec) + (double)(t1.tv_nsec - t0.tv_nsec) / 1e9);
	replay_close(r);
	free(states);
	return bad != 0;
}
