/*
 * Verification: every thread is replayed from its start, without a memory view, as fast as the
 * emulator goes; the digests in its stream are compared on the way.
 *
 * A thread is replayed by its own records and its process's, so threads do not need each other:
 * they are spread over the processors, the longest first. What comes out does not depend on who was
 * faster: all are replayed, and of several divergences the one is told that is the first in the
 * order of positions.
 */
#include "replayer/replay.h"
#include "replayer/thread.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SLICE	    20000000u /* instructions between two reports of progress */
#define WORKERS_MAX 64u
#define LOOK_NS	    100000000 /* and between two looks at what the others have done */

struct outcome {
	struct replay_verify_result res;
	struct dj_error err;
	bool failed;
};

struct pool {
	struct dj_trace *t;
	const struct replay_observer *observer;
	uint32_t *queue;    /* numbers of threads */
	struct outcome *of; /* by thread */
	size_t n;
	unsigned workers;
	pthread_mutex_t shared; /* what they share of the trace */

	pthread_mutex_t lock; /* the rest */
	pthread_cond_t done_one;
	size_t next, finished;
	uint64_t done; /* instructions */
	uint64_t most; /* bytes mapped in any process (patience.h) */
};

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static uint64_t length_of(struct dj_trace *t, size_t thread)
{
	const struct dj_thread_info *info = dj_trace_thread(t, thread);

	return info->last_steps - info->first_steps;
}

static uint64_t account(struct pool *p, uint64_t instructions)
{
	pthread_mutex_lock(&p->lock);
	uint64_t done = p->done += instructions;
	pthread_mutex_unlock(&p->lock);
	return done;
}

/* `progress` is NULL where somebody else tells. */
static enum rp_thread_stop run_thread(struct pool *p, struct rp_thread *th, uint64_t total,
				      void (*progress)(uint64_t done, uint64_t total))
{
	enum rp_thread_stop res = rp_thread_begin(th);
	uint64_t told = th->e->steps;

	while (res == THREAD_LIMIT) {
		struct rp_thread_pos to = { .steps = th->e->steps + SLICE };
		uint64_t done = account(p, th->e->steps - told);
		told = th->e->steps;
		if (progress)
			progress(done, total);
		if (to.steps < th->e->steps)
			to.steps = UINT64_MAX;
		res = rp_thread_run(th, &to, 0);
	}
	account(p, th->e->steps - told);
	return res;
}

static void verify_thread(struct pool *p, uint32_t thread, uint64_t total,
			  void (*progress)(uint64_t done, uint64_t total))
{
	struct outcome *o = &p->of[thread];
	struct rp_space_names names = { 0 };
	struct rp_patience patience;
	struct rp_thread *th = rp_thread_new(p->t, thread, &names, &o->err);

	if (!th) {
		o->failed = true;
		return;
	}
	rp_patience_init(&patience, NULL, NULL);
	patience.users = p->workers;
	patience.most = &p->most;
	th->patience = &patience;
	th->shared = p->workers > 1 ? &p->shared : NULL;
	if (p->observer)
		rp_thread_observe(th, p->observer);
	enum rp_thread_stop res = run_thread(p, th, total, progress);
	o->res.instructions = th->e->steps - th->info->first_steps;
	o->res.events = th->events;
	o->res.digests = th->count_digests;
	o->res.flags = th->count_flags;
	o->res.memory = th->count_memory;
	o->res.imports = th->count_imports;
	o->res.effects = th->count_effects;
	o->res.div = th->div;
	if (res == THREAD_FAILED && !th->div.found) {
		o->failed = true;
		o->err = th->err;
	}
	rp_thread_free(th);
	rp_patience_free(&patience);
	rp_space_names_free(&names);
}

static void *work(void *arg)
{
	struct pool *p = arg;

	for (;;) {
		pthread_mutex_lock(&p->lock);
		size_t i = p->next < p->n ? p->next++ : p->n;
		pthread_mutex_unlock(&p->lock);
		if (i == p->n)
			return NULL;
		verify_thread(p, p->queue[i], 0, NULL);
		pthread_mutex_lock(&p->lock);
		p->finished++;
		pthread_cond_signal(&p->done_one);
		pthread_mutex_unlock(&p->lock);
	}
}

/* Tell how far they are until they are done. */
static void watch(struct pool *p, uint64_t total, void (*progress)(uint64_t done, uint64_t total))
{
	pthread_mutex_lock(&p->lock);
	while (p->finished < p->n) {
		struct timespec until;
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += LOOK_NS;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		pthread_cond_timedwait(&p->done_one, &p->lock, &until);
		uint64_t done = p->done;
		if (!progress)
			continue;
		pthread_mutex_unlock(&p->lock);
		progress(done, total);
		pthread_mutex_lock(&p->lock);
	}
	pthread_mutex_unlock(&p->lock);
	if (progress)
		progress(p->done, total);
}

/* As many as there are processors for it. Observers hear of one thread at a time. */
static unsigned workers_for(const struct pool *p)
{
	cpu_set_t cpus;
	unsigned n = 1;

	if (p->observer || p->n < 2)
		return 1;
	if (!sched_getaffinity(0, sizeof(cpus), &cpus))
		n = (unsigned)CPU_COUNT(&cpus);
	if (n > p->n)
		n = (unsigned)p->n;
	return n < 1 ? 1 : n < WORKERS_MAX ? n : WORKERS_MAX;
}

static void run_pool(struct pool *p, uint64_t total,
		     void (*progress)(uint64_t done, uint64_t total))
{
	pthread_t ids[WORKERS_MAX];
	unsigned n = 0;

	p->workers = workers_for(p);
	while (p->workers > 1 && n < p->workers && !pthread_create(&ids[n], NULL, work, p))
		n++;
	if (n)
		watch(p, total, progress);
	else
		p->workers = 1;
	for (unsigned i = 0; i < n; i++)
		pthread_join(ids[i], NULL);
	for (; !n && p->next < p->n; p->next++)
		verify_thread(p, p->queue[p->next], total, progress);
}

static int by_length(const void *a, const void *b, void *t)
{
	const uint32_t *x = a, *y = b;
	uint64_t l = length_of(t, *x), m = length_of(t, *y);

	if (l != m)
		return l > m ? -1 : 1;
	return *x < *y ? -1 : *x > *y;
}

/* What all threads have come to. */
static int sum_up(const struct pool *p, struct replay_verify_result *out, struct dj_error *err)
{
	const struct outcome *failed = NULL;

	for (size_t i = 0; i < p->n; i++) {
		const struct outcome *o = &p->of[i];
		out->instructions += o->res.instructions;
		out->events += o->res.events;
		out->digests += o->res.digests;
		out->flags += o->res.flags;
		out->memory += o->res.memory;
		out->imports += o->res.imports;
		out->effects += o->res.effects;
		if (o->res.div.found &&
		    (!out->div.found || replay_pos_cmp(&o->res.div.pos, &out->div.pos) < 0))
			out->div = o->res.div;
		if (o->failed && !failed)
			failed = o;
	}
	if (!failed || out->div.found)
		return 0;
	return dj_fail(err, failed->err.exit_status, "%s", failed->err.text);
}

int replay_verify(struct dj_trace *t, struct replay_verify_result *out,
		  const struct replay_observer *o, void (*progress)(uint64_t done, uint64_t total),
		  struct dj_error *err)
{
	struct pool p = { .t = t, .observer = o, .n = dj_trace_threads(t) };
	uint64_t total = 0;
	double start = now();
	int ret;

	memset(out, 0, sizeof(*out));
	p.queue = calloc(p.n + 1, sizeof(*p.queue));
	p.of = calloc(p.n + 1, sizeof(*p.of));
	if (p.queue && p.of) {
		pthread_mutex_init(&p.shared, NULL);
		pthread_mutex_init(&p.lock, NULL);
		pthread_cond_init(&p.done_one, NULL);
		for (size_t i = 0; i < p.n; i++) {
			p.queue[i] = (uint32_t)i;
			total += length_of(t, i);
		}
		qsort_r(p.queue, p.n, sizeof(*p.queue), by_length, t);
		run_pool(&p, total, progress);
		ret = sum_up(&p, out, err);
		pthread_cond_destroy(&p.done_one);
		pthread_mutex_destroy(&p.lock);
		pthread_mutex_destroy(&p.shared);
	} else {
		ret = dj_fail(err, 1, "out of memory");
	}
	free(p.queue);
	free(p.of);
	out->seconds = now() - start;
	return ret;
}
