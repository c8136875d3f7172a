/* Threads of deja's own: see thread.h. */
#include "format/thread.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>

struct dj_worker {
	struct dj_worker *next; /* that has nothing to do either */
	pthread_t thread;
	pthread_cond_t change;
	void (*run)(void *); /* NULL: nothing is to be done, or all is done */
	void *arg;
	bool ends;
	bool alone; /* nobody waits for it */
};

/* Those that have nothing to do, how many of the others nobody waits for, and what guards each. */
#define IDLE  8u
#define ALONE 8u
static pthread_mutex_t workers = PTHREAD_MUTEX_INITIALIZER;
static struct dj_worker *idle;
static unsigned n_idle, n_alone;

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

/* It has nothing to do: it is kept, or ends. */
static void rest(struct dj_worker *w)
{
	w->ends = n_idle == IDLE;
	if (w->ends) {
		pthread_cond_broadcast(&w->change);
		return;
	}
	w->next = idle;
	idle = w;
	n_idle++;
}

static void free_worker(struct dj_worker *w)
{
	pthread_cond_destroy(&w->change);
	free(w);
}

static void *worker_main(void *arg)
{
	struct dj_worker *w = arg;
	pthread_mutex_lock(&workers);
	while (!w->ends) {
		void (*run)(void *) = w->run;
		if (!run) {
			pthread_cond_wait(&w->change, &workers);
			continue;
		}
		pthread_mutex_unlock(&workers);
		run(w->arg);
		pthread_mutex_lock(&workers);
		w->run = NULL;
		if (!w->alone) {
			pthread_cond_broadcast(&w->change);
			continue;
		}
		n_alone--;
		rest(w);
	}
	bool alone = w->alone;
	pthread_mutex_unlock(&workers);
	if (alone) {
		pthread_detach(pthread_self());
		free_worker(w);
	}
	return NULL;
}

static struct dj_worker *new_worker(void (*run)(void *), void *arg, bool alone)
{
	struct dj_worker *w = calloc(1, sizeof(*w));
	if (!w)
		return NULL;
	pthread_cond_init(&w->change, NULL);
	w->run = run;
	w->arg = arg;
	w->alone = alone;
	pthread_mutex_lock(&workers); /* or it may be gone before its number is there */
	int rc = dj_thread(&w->thread, worker_main, w);
	pthread_mutex_unlock(&workers);
	if (!rc)
		return w;
	free_worker(w);
	errno = rc;
	return NULL;
}

static struct dj_worker *work(void (*run)(void *), void *arg, bool alone)
{
	pthread_mutex_lock(&workers);
	struct dj_worker *w = idle;
	if (w) {
		idle = w->next;
		n_idle--;
		w->run = run;
		w->arg = arg;
		w->alone = alone;
		pthread_cond_broadcast(&w->change);
	}
	pthread_mutex_unlock(&workers);
	return w ? w : new_worker(run, arg, alone);
}

struct dj_worker *dj_work(void (*run)(void *), void *arg)
{
	return work(run, arg, false);
}

bool dj_work_alone(void (*run)(void *), void *arg)
{
	pthread_mutex_lock(&workers);
	bool may = n_alone < ALONE;
	n_alone += may;
	pthread_mutex_unlock(&workers);
	if (!may || work(run, arg, true))
		return may;
	pthread_mutex_lock(&workers);
	n_alone--;
	pthread_mutex_unlock(&workers);
	return false;
}

void dj_work_done(struct dj_worker *w)
{
	pthread_mutex_lock(&workers);
	while (w->run)
		pthread_cond_wait(&w->change, &workers);
	rest(w);
	bool ends = w->ends;
	pthread_mutex_unlock(&workers);
	if (ends) {
		pthread_join(w->thread, NULL);
		free_worker(w);
	}
}
