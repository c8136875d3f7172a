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
 */
#include "recorder/recorder.h"

#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#define TICK	  250000 /* microseconds */
#define BY_ITSELF 1000

static volatile sig_atomic_t ticked;
static bool runs;

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
	return us ? us : TICK;
}

/* Whether to leave a thread alone that is in a system call. For a test now and then not: as if it
 * had begun the call an instant ago. */
static bool leave_call(void)
{
	static unsigned calls;
	return !wanted() || ++calls % 16 != 0;
}

int64_t rec_clock_gap(void)
{
	return tick() * 1000;
}

/* The next tick in so long, and others after it. */
static void next_tick(void)
{
	suseconds_t us = tick(), then = us < BY_ITSELF ? BY_ITSELF : us;
	struct itimerval t = { { 0, then }, { 0, us } };
	setitimer(ITIMER_REAL, &t, NULL);
}

void rec_clock(bool on)
{
	struct sigaction sa = { .sa_handler = on_alarm };
	const struct itimerval none = { { 0, 0 }, { 0, 0 } };
	if (on && runs) /* every image asks for it */
		return;
	runs = on;
	if (!on)
		sa.sa_handler = SIG_IGN;
	sigaction(SIGALRM, &sa, NULL);
	if (on)
		next_tick();
	else
		setitimer(ITIMER_REAL, &none, NULL);
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
	for (struct rec_thread *t = rec->threads; t; t = t->next) {
		if (t->state != REC_CACHE || (*rec_tcb(t, T_IN_SYSCALL) && leave_call()))
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
	uint64_t steps = *rec_tcb(t, T_STEPS);
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
