/* Threads of deja's own: see thread.h. */
#include "format/thread.h"

#include <sched.h>
#include <signal.h>

/* Of a thread that stays: where it may be otherwise. */
static _Thread_local cpu_set_t elsewhere;
static _Thread_local bool stays;

void dj_thread_stays(bool wanted)
{
	cpu_set_t here;
	int cpu = sched_getcpu();
	if (wanted == stays)
		return;
	if (!wanted) {
		sched_setaffinity(0, sizeof(elsewhere), &elsewhere);
		stays = false;
	} else if (cpu >= 0 && cpu < CPU_SETSIZE &&
		   !sched_getaffinity(0, sizeof(elsewhere), &elsewhere)) {
		CPU_ZERO(&here);
		CPU_SET(cpu, &here);
		stays = !sched_setaffinity(0, sizeof(here), &here);
	}
}

int dj_thread(pthread_t *id, void *(*run)(void *), void *arg)
{
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	bool stayed = stays;
	dj_thread_stays(false);
	int rc = pthread_create(id, NULL, run, arg);
	dj_thread_stays(stayed);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return rc;
}
