/*
 * Linked to all of deja: a tracer that is late, that reports what has happened in another order,
 * and that has threads stop for nothing, wherever they are. All of that a kernel may do on a busy
 * machine, and seldom does. DEJA_PESTER has the seed.
 */
#include "recorder/tracer.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <unistd.h>

enum { SEEN = 256, LATEST = 400 /* microseconds */ };

static struct rec_tracer real;
static pid_t seen[SEEN];
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

static void forget(unsigned i)
{
	seen[i] = seen[--n_seen];
}

static void note(pid_t tid, int status)
{
	unsigned i = 0;
	while (i < n_seen && seen[i] != tid)
		i++;
	if (i < n_seen && (status & 0xff) != 0x7f) /* it has ended */
		forget(i);
	else if (i == n_seen && n_seen < SEEN && (status & 0xff) == 0x7f)
		seen[n_seen++] = tid;
}

static pid_t first_of_any(int *status)
{
	for (unsigned tries = n_seen; tries > 0; tries--) {
		unsigned i = any(n_seen);
		pid_t tid = real.wait(&real, seen[i], false, status);
		if (tid > 0)
			return tid;
		if (tid < 0 && errno == ECHILD) {
			forget(i);
			break;
		}
	}
	return 0;
}

static pid_t late_wait(struct rec_tracer *tr, pid_t tid, bool block, int *status)
{
	pid_t got = 0;
	be_late(60);
	if (n_seen && !any(8))
		real.interrupt(&real, seen[any(n_seen)]);
	if (tid == -1 && !any(2))
		got = first_of_any(status);
	if (!got)
		got = real.wait(tr, tid, block, status);
	if (got > 0)
		note(got, *status);
	be_late(60);
	return got;
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
