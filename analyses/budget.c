/* Limits for libdw (analyses/budget.h). A thread of its own watches: nobody comes back from a call
 * that takes for ever. */
#include "analyses/budget.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SECONDS	   60	 /* and one more for ten megabytes of modules, and */
#define EACH	   0.001 /* for each question */
#define LOOK_NS	   50000000
#define BAD_TRACE  2  /* exit status: deja(1) */
#define TIMES_SIZE 64 /* libdw's tables of a file, amply */

static struct {
	pthread_mutex_t lock;
	unsigned depth, serial; /* of calls within each other; of those that are in none */
	clockid_t clock;	/* of the thread that is in there */
	double start, used;
	double allowed;
	uint64_t size; /* of all modules */
	const char *path;
	pthread_t who;
	bool watched;
} budget = { .lock = PTHREAD_MUTEX_INITIALIZER, .allowed = SECONDS };

static double seconds_of(clockid_t clock)
{
	struct timespec ts;

	if (clock_gettime(clock, &ts))
		return 0;
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void over(const char *what)
{
	char path[200];
	size_t n = 0;

	for (const char *c = budget.path ? budget.path : "a module"; *c && n + 1 < sizeof(path);
	     c++)
		path[n++] = *c >= ' ' && *c <= '~' ? *c : '?';
	path[n] = 0;
	dprintf(STDERR_FILENO, "deja: the debug information of %s takes too %s to read\n", path,
		what);
	_exit(BAD_TRACE);
}

static uint64_t resident(void)
{
	char text[100] = "";
	unsigned long long all, pages = 0;
	int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return 0;
	if (read(fd, text, sizeof(text) - 1) <= 0 || sscanf(text, "%llu %llu", &all, &pages) != 2)
		pages = 0;
	close(fd);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void *watch(void *arg)
{
	const struct timespec pause = { .tv_nsec = LOOK_NS };
	uint64_t most = (uint64_t)sysconf(_SC_PHYS_PAGES) / 2 * (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t before = 0;
	unsigned seen = 0;

	(void)arg;
	for (;; nanosleep(&pause, NULL)) {
		pthread_mutex_lock(&budget.lock);
		bool inside = budget.depth > 0;
		if (inside &&
		    budget.used + seconds_of(budget.clock) - budget.start > budget.allowed)
			over("long");
		pthread_mutex_unlock(&budget.lock);
		if (!inside)
			continue;
		uint64_t have = resident();
		pthread_mutex_lock(&budget.lock);
		if (budget.depth && budget.serial == seen &&
		    have > before + most + TIMES_SIZE * budget.size)
			over("much memory");
		before = budget.serial == seen ? before : have;
		seen = budget.serial;
		pthread_mutex_unlock(&budget.lock);
	}
	return NULL;
}

static void begin_watching(void)
{
	const char *wanted = getenv("DEJA_SYMBOLS_SECONDS");
	pthread_attr_t attr;
	pthread_t id;

	budget.watched = true;
	if (wanted && *wanted >= '0' && *wanted <= '9')
		budget.allowed += strtod(wanted, NULL) - SECONDS;
	if (pthread_attr_init(&attr))
		return;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_create(&id, &attr, watch, NULL); /* without it long calls are found at their ends */
	pthread_attr_destroy(&attr);
}

void ana_budget_module(uint64_t size)
{
	pthread_mutex_lock(&budget.lock);
	budget.size += size;
	budget.allowed += (double)size / (10 << 20);
	pthread_mutex_unlock(&budget.lock);
}

/* With the lock held, in no call so far. */
static void begin_call(void)
{
	if (!budget.watched)
		begin_watching();
	if (!budget.clock || !pthread_equal(budget.who, pthread_self())) {
		budget.who = pthread_self();
		if (pthread_getcpuclockid(budget.who, &budget.clock))
			budget.clock = CLOCK_MONOTONIC;
	}
	budget.allowed += EACH;
	budget.start = seconds_of(budget.clock);
	budget.serial++;
}

int ana_budget_begin(const char *path)
{
	pthread_mutex_lock(&budget.lock);
	if (path || !budget.depth)
		budget.path = path;
	if (!budget.depth++)
		begin_call();
	pthread_mutex_unlock(&budget.lock);
	return 1;
}

void ana_budget_end(int *begun)
{
	(void)begun;
	pthread_mutex_lock(&budget.lock);
	if (!--budget.depth) {
		budget.used += seconds_of(budget.clock) - budget.start;
		if (budget.used > budget.allowed)
			over("long");
	}
	pthread_mutex_unlock(&budget.lock);
}
