/*
 * seek TRACE [WATCH [BREAK [OFTEN]]]: how long a debugger waits. Goes through a recording by the
 * replay interface and prints seconds of processor time, one "NAME VALUE" a line: opening; to the
 * end, which leaves what later moves use, unless an index is
 * beside the trace; positions at random, both ways; single steps back at
 * random positions; back from the end to the only change of the int at address WATCH, and to the
 * only arrival at address BREAK; arrivals at address OFTEN with a condition that is false, each.
 */
#include "cli/confine.h"
#include "replayer/replay.h"
#include "tests/lib/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PLACES 200u
#define OFTEN  1000000u

static uint64_t random_state = 88172645463325252ULL;

static uint64_t rnd(void)
{
	return random_next(&random_state);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* What has passed for others, who cover ground meanwhile. */
static double elapsed(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void print(const char *name, double value)
{
	printf("%s %.9f\n", name, value);
	fflush(stdout);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void seek(struct replay *r, uint64_t steps)
{
	struct replay_pos pos = { .steps = steps };
	struct dj_error err;

	if (replay_seek(r, &pos, &err)) {
		fprintf(stderr, "seek: going to %llu: %s\n", (unsigned long long)steps, err.text);
		exit(1);
	}
}

static void random_places(struct replay *r, uint64_t last)
{
	double went[PLACES], stepped[PLACES], t;
	struct replay_stop stop;

	for (unsigned i = 0; i < PLACES; i++) {
		uint64_t to = rnd() % last;
		t = now();
		seek(r, to);
		went[i] = now() - t;
		t = now();
		replay_step(r, REPLAY_BACKWARD, &stop);
		stepped[i] = now() - t;
	}
	qsort(went, PLACES, sizeof(*went), by_value);
	qsort(stepped, PLACES, sizeof(*stepped), by_value);
	print("goto-median", went[PLACES / 2]);
	print("goto-worst", went[PLACES - 1]);
	print("back-step-median", stepped[PLACES / 2]);
	print("back-step-99", stepped[PLACES * 99 / 100]);
}

static void back_from_end(struct replay *r, const char *name)
{
	struct replay_stop stop;
	double t;

	seek(r, UINT64_MAX);
	t = now();
	replay_continue(r, REPLAY_BACKWARD, &stop);
	print(name, now() - t);
	if (stop.reason != REPLAY_WATCH && stop.reason != REPLAY_BREAK)
		fprintf(stderr, "seek: %s found nothing\n", name);
	printf("# at %llu\n", (unsigned long long)stop.pos.steps);
}

struct asked {
	struct replay *r;
	unsigned n;
	uint64_t sum;
};

/* As a debugger's condition on a register and a variable would. */
static bool passed_over(void *ctx, uint32_t thread, uint64_t addr)
{
	struct asked *a = ctx;
	uint32_t word = 0;

	(void)thread;
	(void)addr;
	replay_read(a->r, replay_gpr(a->r, DJ_RSP), &word, sizeof(word));
	a->sum += word + replay_gpr(a->r, DJ_RDI);
	return ++a->n >= OFTEN;
}

/* A million arrivals, or as many as there are. Back it is asked in all of the intervals searched,
 * and so more often. */
static void conditions(struct replay *r, uint64_t addr)
{
	struct replay_stop stop;

	replay_break_add(r, addr);
	for (int back = 0; back < 2; back++) {
		struct asked a = { .r = r };
		double t = now();
		replay_set_condition(r, passed_over, &a);
		replay_continue(r, back ? REPLAY_BACKWARD : REPLAY_FORWARD, &stop);
		replay_set_condition(r, NULL, NULL);
		print(back ? "conditions-back" : "conditions", (now() - t) / (a.n + !a.n));
		printf("# %u of them, sum %llu\n", a.n, (unsigned long long)a.sum);
	}
	replay_break_del(r, addr);
}

int main(int argc, char **argv)
{
	struct dj_error err;
	double t = now();
	replay_confine(cli_confine);
	struct replay *r = argc > 1 ? replay_open(argv[1], &err) : NULL;

	if (!r) {
		fprintf(stderr, "seek: %s\n", argc > 1 ? err.text : "usage: seek TRACE [ADDR...]");
		return 2;
	}
	replay_use_index(r);
	print("open", now() - t);
	replay_report_signals(r, 0);
	uint64_t last = dj_trace_thread(replay_trace(r), 0)->last_steps;
	double began = elapsed();
	t = now();
	seek(r, UINT64_MAX);
	print("to-end", now() - t);
	print("to-end-elapsed", elapsed() - began);
	printf("# %llu instructions\n", (unsigned long long)last);
	random_places(r, last);
	if (argc > 2) {
		int id = replay_watch_add(r, strtoull(argv[2], NULL, 0), 4, REPLAY_WATCH_WRITE);
		back_from_end(r, "back-to-change");
		replay_watch_del(r, id);
	}
	if (argc > 3) {
		uint64_t at = strtoull(argv[3], NULL, 0);
		replay_break_add(r, at);
		back_from_end(r, "back-to-break");
		replay_break_del(r, at);
	}
	if (argc > 4) {
		seek(r, last / 2);
		conditions(r, strtoull(argv[4], NULL, 0));
	}
	replay_close(r);
	return 0;
}
