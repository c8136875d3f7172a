/*
 * Passes (replayer/pass.h): which threads are replayed, by whom, and how far. What listeners are
 * told is in pass-tell.c.
 */
#include "replayer/pass-internal.h"
#include "replayer/starts.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SLICE	    4000000u /* instructions between two looks at what the others do */
#define WORKERS_MAX 64u
#define LOOK_NS	    100000000
#define TRANSLATE   50000 /* instructions: shorter threads are done before that pays */

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* ---- how far ---- */

/* How far a thread goes up to a position, which may be another thread's: then up to the last of its
 * own positions that sorts before. */
struct bound {
	struct rp_thread_pos to;
	uint64_t seq_stop;
};

static struct bound bound_of(const struct replay_pos *p, uint32_t thread)
{
	struct bound b = { .to = { .steps = UINT64_MAX }, .seq_stop = UINT64_MAX };

	if (!p)
		return b;
	if (p->thread == thread)
		b.to = (struct rp_thread_pos){ .steps = p->steps,
					       .rep = p->rep,
					       .signals = p->signals };
	else
		b.seq_stop = p->seq + (thread < p->thread);
	return b;
}

/* Run up to the bound. THREAD_LIMIT: it is there. */
static enum rp_thread_stop run_to(struct replay_run *run, const struct bound *b)
{
	struct rp_thread *th = run->th;
	enum rp_thread_stop res = THREAD_LIMIT;

	if (b->seq_stop != UINT64_MAX && rp_thread_first_seq(th->info) >= b->seq_stop)
		return THREAD_LIMIT;
	th->seq_stop = b->seq_stop;
	th->seq_safe = b->seq_stop == UINT64_MAX
			       ? 0
			       : rp_thread_steps_before(run->pass->t, run->thread, b->seq_stop);
	while (res == THREAD_LIMIT && !run->enough) {
		struct rp_thread_pos at, to = b->to;

		rp_thread_pos(th, &at);
		if (rp_thread_pos_cmp(&at, &b->to) >= 0)
			break;
		run->left = rp_pass_account(run);
		if (run->left)
			break;
		if (to.steps - at.steps > SLICE)
			to = (struct rp_thread_pos){ .steps = at.steps + SLICE };
		res = rp_thread_run(th, &to, 0);
		if (res == THREAD_REQUEST && !run->enough)
			res = THREAD_LIMIT;
		/* a position that does not exist is passed by nobody */
		if (res == THREAD_LIMIT && th->e->steps == to.steps && to.steps == b->to.steps)
			break;
	}
	th->seq_stop = UINT64_MAX;
	rp_pass_account(run);
	/* asked to stop at the bound's event, or by a listener */
	return res == THREAD_EVENT || res == THREAD_REQUEST ? THREAD_LIMIT : res;
}

/* Whether the thread has no history between the two positions. */
static bool outside(const struct pass *p, uint32_t thread)
{
	const struct dj_thread_info *info = dj_trace_thread(p->t, thread);
	struct bound b = bound_of(p->asked->to, thread);

	if (p->asked->threads && !p->asked->threads[thread])
		return true;
	return b.seq_stop != UINT64_MAX && rp_thread_first_seq(info) >= b.seq_stop;
}

/* ---- a thread ---- */

static void run_thread(struct replay_run *run)
{
	struct pass *p = run->pass;
	struct rp_thread *th = run->th;
	struct bound from = bound_of(p->asked->from, run->thread);
	struct bound to = bound_of(p->asked->to, run->thread);
	enum rp_thread_stop res = rp_thread_begin(th);

	run->accounted = th->e->steps;
	if (res == THREAD_LIMIT && p->asked->from)
		res = run_to(run, &from);
	if (res == THREAD_LIMIT && !run->left) {
		uint64_t first = th->e->steps;
		rp_pass_listen(run);
		res = run_to(run, &to);
		rp_pass_unlisten(run);
		run->told = th->e->steps - first;
	}
	if (res == THREAD_FAILED && !th->div.found && !run->failed) {
		run->failed = true;
		run->err = th->err;
	}
}

/* A thread has not been told of from this position on. */
static void left_at(struct pass *p, const struct replay_pos *pos)
{
	if (!p->out->interrupted || replay_pos_cmp(pos, &p->out->reached) < 0)
		p->out->reached = *pos;
	p->out->interrupted = true;
}

static void replay_thread_of(struct pass *p, uint32_t thread)
{
	struct replay_pos pos;
	struct replay_run run = { .pass = p, .thread = thread };
	struct rp_space_names names = { 0 };
	struct rp_patience patience;

	run.data = calloc(p->asked->n + 1, sizeof(*run.data));
	run.th = run.data ? rp_thread_new(p->t, thread, &names, &run.err) : NULL;
	if (run.th) {
		rp_patience_init(&patience, NULL, NULL);
		patience.users = p->workers;
		patience.most = &p->most;
		patience.before = p->before;
		run.th->patience = &patience;
		run.th->shared = &p->shared;
		rp_starts_use(p->starts, run.th);
		if (p->translate && rp_thread_length(p->t, thread) >= TRANSLATE)
			rp_thread_translate(run.th);
		run_thread(&run);
	} else {
		run.failed = true;
		if (!run.data)
			dj_fail(&run.err, 1, "out of memory");
	}
	if (run.left)
		replay_run_pos(&run, &pos);
	pthread_mutex_lock(&p->lock);
	if (run.left)
		left_at(p, &pos);
	if (run.th) {
		p->out->instructions += run.th->e->steps - run.th->info->first_steps;
		p->out->told += run.told;
		p->out->translated += run.th->fast ? fast_steps(run.th->fast) : 0;
		p->out->astray |= run.th->fast && (run.th->div.found || fast_broken(run.th->fast));
		if (run.th->div.found &&
		    (!p->out->div.found || replay_pos_cmp(&run.th->div.pos, &p->out->div.pos) < 0))
			p->out->div = run.th->div;
	}
	/* of several the first by number is told, whoever was faster */
	if (run.failed && (!p->failed || thread < p->failed_thread)) {
		p->failed = true;
		p->failed_thread = thread;
		p->err = run.err;
	}
	pthread_mutex_unlock(&p->lock);
	if (run.th) {
		rp_thread_free(run.th);
		rp_patience_free(&patience);
	}
	rp_space_names_free(&names);
	free(run.data);
}

/* ---- workers ---- */

bool rp_pass_account(struct replay_run *run)
{
	struct pass *p = run->pass;
	uint64_t steps = run->th->e->steps;

	pthread_mutex_lock(&p->lock);
	p->done += steps - run->accounted;
	run->accounted = steps;
	if (p->asked->interrupt && *p->asked->interrupt)
		p->stop = true;
	bool stop = p->stop;
	uint64_t done = p->done;
	pthread_mutex_unlock(&p->lock);
	if (p->alone && p->asked->progress)
		p->asked->progress(done, p->total);
	return stop;
}

static void *work(void *arg)
{
	struct pass *p = arg;

	for (;;) {
		pthread_mutex_lock(&p->lock);
		size_t i = p->next < p->n && !p->stop ? p->next++ : p->n;
		pthread_mutex_unlock(&p->lock);
		if (i == p->n)
			break;
		replay_thread_of(p, p->queue[i]);
	}
	pthread_mutex_lock(&p->lock);
	p->finished++;
	pthread_cond_signal(&p->one_finished);
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

static void watch(struct pass *p, unsigned workers)
{
	pthread_mutex_lock(&p->lock);
	while (p->finished < workers) {
		struct timespec until;
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += LOOK_NS;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		pthread_cond_timedwait(&p->one_finished, &p->lock, &until);
		uint64_t done = p->done;
		pthread_mutex_unlock(&p->lock);
		if (p->asked->progress)
			p->asked->progress(done, p->total);
		pthread_mutex_lock(&p->lock);
	}
	pthread_mutex_unlock(&p->lock);
}

static unsigned workers_for(const struct pass *p)
{
	cpu_set_t cpus;
	unsigned n = p->asked->in_order ? 1 : p->asked->workers;

	if (!n)
		n = sched_getaffinity(0, sizeof(cpus), &cpus) ? 1 : (unsigned)CPU_COUNT(&cpus);
	if (n > p->n)
		n = (unsigned)p->n;
	return n < 1 ? 1 : n < WORKERS_MAX ? n : WORKERS_MAX;
}

static void run_all(struct pass *p)
{
	pthread_t ids[WORKERS_MAX];
	unsigned n = 0;

	p->workers = workers_for(p);
	while (p->workers > 1 && n < p->workers && !pthread_create(&ids[n], NULL, work, p))
		n++;
	if (n) {
		watch(p, n);
	} else {
		p->workers = 1;
		p->alone = true;
		work(p);
	}
	for (unsigned i = 0; i < n; i++)
		pthread_join(ids[i], NULL);
}

static int by_length(const void *a, const void *b, void *t)
{
	const uint32_t *x = a, *y = b;
	uint64_t l = rp_thread_length(t, *x), m = rp_thread_length(t, *y);

	if (l != m)
		return l > m ? -1 : 1;
	return *x < *y ? -1 : *x > *y;
}

/* The threads that have history in between, the longest first. */
static void make_queue(struct pass *p)
{
	for (uint32_t i = 0; i < dj_trace_threads(p->t); i++)
		if (!outside(p, i)) {
			p->queue[p->n++] = i;
			p->total += rp_thread_length(p->t, i);
		}
	if (!p->asked->in_order)
		qsort_r(p->queue, p->n, sizeof(*p->queue), by_length, p->t);
}

/* What this process has taken is in no proportion to what the pass takes: a replay that stands
 * somewhere, for example. */
static uint64_t taken_before(void)
{
	struct rp_patience p;

	rp_patience_init(&p, NULL, NULL);
	uint64_t n = rp_patience_taken(&p);
	rp_patience_free(&p);
	return n;
}

int replay_pass(struct dj_trace *t, const struct replay_pass *asked, struct replay_passed *out,
		struct dj_error *err)
{
	struct pass p = {
		.t = t, .asked = asked, .out = out, .translate = asked->translate, .tells = true
	};
	double start = now();

	memset(out, 0, sizeof(*out));
	p.queue = calloc(dj_trace_threads(t) + 1, sizeof(*p.queue));
	if (!p.queue)
		return dj_fail(err, 1, "out of memory");
	for (size_t i = 0; i < asked->n; i++) {
		const struct replay_listener *l = asked->listeners[i];
		p.tells &= l->translated && (!l->access || l->within) &&
			   (!l->edge || l->late || l->returns);
	}
	p.translate &= p.tells || asked->from;
	p.before = taken_before();
	p.starts = rp_starts_new(t);
	make_queue(&p);
	pthread_mutex_init(&p.shared, NULL);
	pthread_mutex_init(&p.lock, NULL);
	pthread_mutex_init(&p.ends, NULL);
	pthread_cond_init(&p.one_finished, NULL);
	run_all(&p);
	pthread_cond_destroy(&p.one_finished);
	pthread_mutex_destroy(&p.ends);
	pthread_mutex_destroy(&p.lock);
	pthread_mutex_destroy(&p.shared);
	for (; p.stop && p.next < p.n; p.next++) /* those that nobody has begun */
		left_at(&p, &(struct replay_pos){ .thread = p.queue[p.next],
						  .seq = rp_thread_first_seq(
							  dj_trace_thread(t, p.queue[p.next])) });
	free(p.queue);
	rp_starts_free(p.starts);
	out->seconds = now() - start;
	if (!p.failed)
		return 0;
	return dj_fail(err, p.err.exit_status, "%s", p.err.text);
}
