/* Threads of deja's own: see thread.h. */
#include "format/thread.h"

#include <signal.h>

int dj_thread(pthread_t *id, void *(*run)(void *), void *arg)
{
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int rc = pthread_create(id, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return rc;
}
