/*
 * replay-walk TRACE [N [SEED]]: N random positions of a recording. One replay that only ever
 * goes forward keeps what it saw at each. Another starts at the end and must see the same at
 * each of them, coming from the right; there, stepi then reverse-stepi, reverse-stepi then
 * stepi, and going away and coming back must give identical registers and stack memory.
 * Prints what it did; exit status 1 if anything differs.
 */
#include "replayer/replay.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STACK 512

struct state {
	struct replay_pos pos;
	struct dj_regs regs;
	size_t known;
	uint8_t stack[STACK];
};

static uint64_t random_state = 88172645463325252ULL;

static uint64_t rnd(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

static void look(struct replay *r, struct state *s)
{
	memset(s, 0, sizeof(*s));
	replay_pos(r, &s->pos);
	replay_regs(r, &s->regs);
	s->known = replay_read(r, s->regs.gpr[DJ_RSP], s->stack, STACK);
	memset(s->stack + s->known, 0, STACK - s->known);
}

static unsigned compare(struct replay *r, const struct state *was, const char *what)
{
	struct state now;
	uint64_t parts;

	look(r, &now);
	if (!memcmp(&now, was, sizeof(now)))
		return 0;
	parts = dj_regs_diff(&now.regs, &was->regs);
	printf("%s: %" PRIu64 "/%u+%" PRIu64 " became %" PRIu64 "/%u+%" PRIu64 "%s%s, stack %s\n",
	       what, was->pos.steps, was->pos.signals, was->pos.rep, now.pos.steps, now.pos.signals,
	       now.pos.rep, parts ? ", " : "", parts ? dj_regs_part_name(parts) : "",
	       now.known != was->known || memcmp(now.stack, was->stack, STACK) ? "differs"
									       : "same");
	return 1;
}

static unsigned steps_there_and_back(struct replay *r)
{
	struct replay_stop stop;
	struct state here;
	unsigned bad = 0;

	look(r, &here);
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

static unsigned both_sides(struct replay *r, uint64_t first, uint64_t last)
{
	struct state here;
	struct dj_error err;
	struct replay_pos other;

	look(r, &here);
	other = here.pos;
	uint64_t away = rnd() % 5000;
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

static int by_position(const void *a, const void *b)
{
	const struct state *x = a, *y = b;

	return x->pos.steps < y->pos.steps ? -1 : x->pos.steps > y->pos.steps;
}

static struct replay *start(const char *path)
{
	struct dj_error err;
	struct replay *r = replay_open(path, &err);

	if (!r) {
		fprintf(stderr, "%s\n", err.text);
		exit(2);
	}
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

/* In clusters, so that most moves are short ones. */
static struct state *choose(unsigned n, const struct dj_thread_info *info)
{
	struct state *states = calloc(n, sizeof(*states));
	uint64_t base = 0;

	if (!states)
		exit(2);
	for (unsigned i = 0; i < n; i++) {
		struct replay_pos *pos = &states[i].pos;
		if (i % 50 == 0)
			base = info->first_steps +
			       rnd() % (info->last_steps - info->first_steps + 1);
		pos->steps = base + rnd() % 20000;
		if (pos->steps > info->last_steps)
			pos->steps = info->last_steps;
	}
	qsort(states, n, sizeof(*states), by_position);
	return states;
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
	struct state *states = choose(n, dj_trace_thread(replay_trace(r), 0));
	for (unsigned i = 0; i < n; i++) {
		seek(r, &states[i].pos);
		look(r, &states[i]);
	}
	replay_close(r);

	r = start(argv[1]);
	const struct dj_thread_info *info = dj_trace_thread(replay_trace(r), 0);
	struct replay_pos end;
	replay_end_pos(r, &end);
	seek(r, &end);
	for (unsigned i = n; i-- > 0 && bad < 10;) {
		seek(r, &states[i].pos);
		bad += compare(r, &states[i], "from the right");
		bad += steps_there_and_back(r);
		bad += both_sides(r, info->first_steps, info->last_steps);
	}
	clock_gettime(CLOCK_MONOTONIC, &t1);
	printf("%u positions, %u differences, %.1f s\n", n, bad,
	       (double)(t1.tv_sec - t0.tv_sec) + (double)(t1.tv_nsec - t0.tv_nsec) / 1e9);
	replay_close(r);
	free(states);
	return bad != 0;
}
