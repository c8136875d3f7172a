/*
 * The clock: four times a second the supervisor looks after threads that compute without ever
 * coming to the ring or to us, so that their digests and their progress get into the trace.
 *
 * A thread is first asked to come by when it next writes to the ring; one that has not stopped
 * at all since the last tick is interrupted. One in a system call is left alone: some calls show
 * that they were interrupted. If it begins one at that moment, the call is made again (cache.c).
 *
 * Tests want it more often, at worst more often than it can be done. So the next tick is asked for
 * when the last one has been looked after, and comes by itself no sooner than a millisecond later;
 * and a thread that was interrupted before it could do anything is left alone for a while, each
 * time for longer.
 *
 * Where the user wants keyframes so far apart and no farther (--keyframes), the supervisor looks
 * more often whether one is due, so that what a thread computes in a quarter of a second may be
 * many of them; who owes none is left alone until the next whole tick.
 */
#include "recorder/recorder.h"

#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#define TICK	  250000 /* microseconds */
#define BY_ITSELF 1000
#define LEAST	  5000
#define LOOKS	  10   /* at least so many times from one keyframe to the next... */
#define FAST	  2000 /* ...of a program that executes so many instructions a microsecond */

static volatile sig_atomic_t ticked;
static bool runs;
static suseconds_t look = TICK; /* how often is looked whether a keyframe is due */
static suseconds_t looked;	/* microseconds since the last whole tick */

static void on_alarm(int sig)
{
	(void)sig;
	ticked = 1;
}

/* What tests want, which is what takes an unlucky moment to happen often; else 0. */
static suseconds_t wanted(void)
{
	const char *text = getenv("DEJA_CLOCK");
	long us = text ? strtol(text, NULL, 10) : 0;
	return us > 0 && us < 1000000 ? us : 0;
}

static suseconds_t tick(void)
{
	suseconds_t us = wanted();
	return us ? us : look;
}

/* How often to look for keyframes that are to be so far apart. */
static suseconds_t look_for(const struct rec_interval *in)
{
	uint64_t us = in->unit == REC_INSTRUCTIONS  ? in->n / LOOKS / FAST
		      : in->unit == REC_NANOSECONDS ? in->n / LOOKS / 1000
						    : TICK;
	return !in->n || us > TICK ? TICK : us < LEAST ? LEAST : (suseconds_t)us;
}

/* Whether to leave a thread alone that is in a system call. For a test now and then not: as if it
 * had begun the call an instant ago. */
static bool leave_call(void)
{
	static unsigned calls;
	return !wanted() || ++calls % 16 != 0;
}

int64_t rec_clock_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t rec_clock_gap(void)
{
	return (wanted() ? wanted() : TICK) * 1000;
}

/* The next tick in so long, and others after it. */
static void next_tick(void)
{
	suseconds_t us = tick(), then = us < BY_ITSELF ? BY_ITSELF : us;
	struct itimerval t = { { 0, then }, { 0, us } };
	setitimer(ITIMER_REAL, &t, NULL);
}

void rec_clock(const struct rec_options *opt)
{
	struct sigaction sa = { .sa_handler = opt ? on_alarm : SIG_IGN };
	const struct itimerval none = { { 0, 0 }, { 0, 0 } };
	if (opt && runs) /* every image asks for it */
		return;
	runs = opt != NULL;
	sigaction(SIGALRM, &sa, NULL);
	if (!opt) {
		setitimer(ITIMER_REAL, &none, NULL);
		return;
	}
	suseconds_t light = opt->keyframes_cheap ? TICK : look_for(&opt->keyframes);
	suseconds_t full = opt->full_keyframes_cheap ? TICK : look_for(&opt->full_keyframes);
	look = light < full ? light : full;
	looked = 0;
	next_tick();
}

bool rec_clock_ticks(void)
{
	return ticked;
}

bool rec_clock_ticked(void)
{
	bool t = ticked;
	ticked = 0;
	if (t && runs && tick() < BY_ITSELF)
		next_tick();
	return t;
}

void rec_clock_tick(struct rec_recording *rec)
{
	looked += look;
	bool whole = wanted() || looked >= TICK;
	if (whole)
		looked = 0;
	for (struct rec_thread *t = rec->threads; t; t = t->next) {
		if (t->state != REC_CACHE || (!whole && !rec_keyframe_wants(t)) ||
		    (*rec_tcb(t, T_IN_SYSCALL) && leave_call()))
			continue;
		*rec_tcb(t, T_LIMIT) = 0; /* the next ring record stops */
		if (t->stops == t->stops_at_tick && t->clock.rest)
			t->clock.rest--;
		else if (t->stops == t->stops_at_tick)
			t->asked = !rec->tracer->interrupt(rec->tracer, t->tid);
		t->stops_at_tick = t->stops;
	}
}

void rec_clock_stopped(struct rec_thread *t)
{
	struct user_regs_struct r;
	uint64_t steps = rec_lagged(t);
	if (!wanted() || rec_get_regs(t, &r))
		return;
	bool same = steps == t->clock.steps && !memcmp(&r, &t->clock.regs, sizeof(r));
	t->clock.wait = !same				? 0
			: t->clock.wait < TICK / tick() ? 2 * t->clock.wait + 1
							: t->clock.wait;
	t->clock.rest = t->clock.wait;
	t->clock.regs = r;
	t->clock.steps = steps;
}
