/*
 * Linked to all of deja: a tracer that is late, that reports what has happened in another order,
 * and that has threads stop for nothing, wherever they are, and lets them stay there for a while.
 * All of that a kernel may do on a busy machine, and seldom does. DEJA_PESTER has the seed.
 */
#include "recorder/tracer.h"

#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SEEN = 256, LATEST = 400, LONGEST = 3000 /* microseconds */ };

static struct rec_tracer real;
static struct {
	pid_t tid;
	int status;    /* of a stop that has not been reported, if `until` is not 0 */
	int64_t until; /* microseconds */
} seen[SEEN];
static unsigned n_seen;
static uint64_t state;

static unsigned any(unsigned n)
{
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (unsigned)((state >> 33) % n);
}

static void be_late(unsigned one_in)
{
	if (!any(one_in))
		usleep(any(LATEST));
}

static int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000) + t.tv_nsec / 1000;
}

/* What has happened to the thread. False: it is a stop for nothing, of which is said later. */
static bool reported(pid_t tid, int status)
{
	unsigned i = 0;
	while (i < n_seen && seen[i].tid != tid)
		i++;
	if (!WIFSTOPPED(status)) { /* it has ended */
		if (i < n_seen)
			seen[i] = seen[--n_seen];
		return true;
	}
	if (i == n_seen && n_seen == SEEN)
		return true;
	if (i == n_seen)
		seen[n_seen++].tid = tid;
	seen[i].until = 0;
	if (status >> 8 != (SIGTRAP | PTRACE_EVENT_STOP << 8) || any(2))
		return true;
	seen[i].status = status;
	seen[i].until = now() + any(LONGEST);
	return false;
}

/* One that is to be reported by now; or `tid`, if it is not -1. */
static pid_t kept(pid_t tid, int *status)
{
	int64_t at = n_seen ? now() : 0;
	for (unsigned i = 0; i < n_seen; i++)
		if (seen[i].until && (tid == seen[i].tid || (tid == -1 && seen[i].until <= at))) {
			seen[i].until = 0;
			*status = seen[i].status;
			return seen[i].tid;
		}
	return 0;
}

static bool are_kept(void)
{
	for (unsigned i = 0; i < n_seen; i++)
		if (seen[i].until)
			return true;
	return false;
}

/* Of those that have stopped not the one that the kernel would name. */
static pid_t of_any(struct rec_tracer *tr, int *status)
{
	if (any(2))
		for (unsigned tries = n_seen; tries > 0; tries--) {
			pid_t tid = real.wait(tr, seen[any(n_seen)].tid, false, status);
			if (tid > 0)
				return tid;
		}
	return real.wait(tr, -1, false, status);
}

static pid_t late_wait(struct rec_tracer *tr, pid_t tid, bool block, int *status)
{
	be_late(60);
	if (n_seen && !any(8))
		real.interrupt(&real, seen[any(n_seen)].tid);
	for (;;) {
		pid_t got = kept(tid, status);
		if (got)
			return got;
		got = tid == -1 ? of_any(tr, status) : real.wait(tr, tid, false, status);
		if (!got && block && !are_kept())
			got = real.wait(tr, tid, true, status);
		if (got > 0 && !reported(got, *status))
			continue;
		if (got || !block) {
			be_late(60);
			return got;
		}
		usleep(20);
	}
}

static int late_resume(struct rec_tracer *tr, pid_t tid, enum rec_resume how, int sig)
{
	be_late(60);
	return real.resume(tr, tid, how, sig);
}

static __attribute__((constructor)) void begin(void)
{
	const char *seed = getenv("DEJA_PESTER");
	if (!seed)
		return;
	state = strtoull(seed, NULL, 10) * 0x9e3779b97f4a7c15ULL + 1;
	real = rec_tracer_ptrace;
	rec_tracer_ptrace.wait = late_wait;
	rec_tracer_ptrace.resume = late_resume;
}
