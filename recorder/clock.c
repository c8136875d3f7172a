/*
 * The clock: four times a second the supervisor looks after threads that compute without ever
 * coming to the ring or to us, so that their digests and their progress get into the trace.
 *
 * A thread is first asked to come by when it next writes to the ring; one that has not stopped
 * at all since the last tick is interrupted. One in a system call is left alone: some calls show
 * that they were interrupted. If it begins one at that moment, the call is made again (cache.c).
 */
#include "recorder/recorder.h"

#include <stdlib.h>
#include <sys/time.h>

static volatile sig_atomic_t ticked;

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
	return us ? us : 250000;
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

void rec_clock(bool on)
{
	static bool runs;
	struct sigaction sa = { .sa_handler = on_alarm };
	struct itimerval t = { { 0, 0 }, { 0, 0 } };
	if (on && runs) /* every image asks for it */
		return;
	runs = on;
	if (on)
		t.it_interval.tv_usec = t.it_value.tv_usec = tick();
	else
		sa.sa_handler = SIG_IGN;
	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &t, NULL);
}

bool rec_clock_ticked(void)
{
	bool t = ticked;
	ticked = 0;
	return t;
}

void rec_clock_tick(struct rec_recording *rec)
{
	for (struct rec_thread *t = rec->threads; t; t = t->next) {
		if (t->state != REC_CACHE || (*rec_tcb(t, T_IN_SYSCALL) && leave_call()))
			continue;
		*rec_tcb(t, T_LIMIT) = 0; /* the next ring record stops */
		if (t->stops == t->stops_at_tick)
			t->asked = !rec->tracer->interrupt(rec->tracer, t->tid);
		t->stops_at_tick = t->stops;
	}
}
