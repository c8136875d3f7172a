/*
 * Verification: every thread is replayed from its start, without a memory view, as fast as the
 * emulator goes; the digests in its stream are compared on the way.
 *
 * A thread is replayed by its own records and its process's, so threads do not need each other; and
 * neither do the parts of one thread between its keyframes. Who replays a part goes on with the
 * next one, and keeps what is translated: so as few parts as can be are begun. Threads are begun
 * in the order of their lengths; who finds none any more takes over the second half of what lies
 * before somebody else. Each run of parts ends with the keyframe that the next begins with: there
 * the registers are compared, so that all together are the whole. What comes out does not depend on
 * who was faster, nor on how a history was divided: of a thread those count that come before the
 * first that failed, it included, and of several divergences the one is told that is the first in
 * the order of positions.
 */
#include "replayer/replay.h"
#include "replayer/starts.h"
#include "replayer/thread.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SLICE	       20000000u /* instructions between two reports of progress */
#define WORKERS_MAX    64u
#define TRANSLATE_FROM 50000	 /* instructions: shorter threads are done before that pays */
#define LOOK_NS	       100000000 /* and between two looks at what the others have done */

/* For each processor, if there are keyframes enough. Whoever is done first waits for half a part of
 * another's; a part's end costs nothing to who goes on with the next. */
#define PARTS 32u

struct part {
	uint32_t thread;
	size_t from, to; /* as rp_thread_part() has it */
	uint64_t length; /* instructions */
	/* what came of it, and of those that were replayed with it: */
	struct replay_verify_result res;
	struct dj_error err;
	bool failed;
	bool translated; /* or meant to be */
};

/* What one worker replays: parts of one thread, the first that is begun, up to `at`, which it is
 * in, and then those before `end`. */
struct run {
	struct pool *p;
	struct part *first;
	size_t at, end;
};

struct pool {
	struct dj_trace *t;
	const struct replay_observer *observer;
	struct part *parts; /* by thread and position */
	size_t n, cap;
	size_t *queue; /* each thread's first part, as they are begun */
	size_t threads;
	unsigned workers;
	pthread_mutex_t shared; /* what they share of the trace */
	struct rp_starts *starts;

	pthread_mutex_t lock; /* the rest */
	pthread_cond_t done_one;
	size_t next;	   /* in the queue */
	unsigned finished; /* workers */
	struct run runs[WORKERS_MAX];
	uint64_t done; /* instructions */
	uint64_t most; /* bytes mapped in any process (patience.h) */
};

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Where a part begins. */
static uint64_t first_of(struct dj_trace *t, const struct part *o)
{
	uint64_t steps, seq;

	if (o->from != RP_NO_KEYFRAME && dj_trace_keyframe(t, o->thread, o->from, &steps, &seq))
		return steps;
	return dj_trace_thread(t, o->thread)->first_steps;
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

static bool may_translate = true;

void replay_translate(bool may)
{
	may_translate = may;
}

/* The worker goes on with the next part. */
static uint64_t extend(void *ctx)
{
	struct run *run = ctx;
	struct pool *p = run->p;
	const struct part *o = NULL;

	pthread_mutex_lock(&p->lock);
	if (run->at + 1 < run->end)
		o = &p->parts[++run->at];
	pthread_mutex_unlock(&p->lock);
	if (!o)
		return 0;
	run->first->to = o->to;
	return o->to == RP_NO_KEYFRAME ? UINT64_MAX : o->to - o->from;
}

/* Replay parts, in translated code or by the emulator alone; with `run` the next ones, too. */
static void one_way(struct pool *p, struct part *o, struct run *run, uint64_t total, bool translate,
		    void (*progress)(uint64_t done, uint64_t total))
{
	struct rp_space_names names = { 0 };
	struct rp_patience patience;
	struct rp_thread *th = rp_thread_new(p->t, o->thread, &names, &o->err);

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
	if (translate)
		o->translated = rp_thread_translate(th);
	rp_thread_part(th, o->from, o->to);
	if (run) {
		th->extend = extend;
		th->extend_ctx = run;
	}
	rp_starts_use(p->starts, th);
	uint64_t first = first_of(p->t, o);
	enum rp_thread_stop res = run_thread(p, th, total, progress);
	o->res.translated = th->fast ? fast_steps(th->fast) : 0;
	o->res.instructions = th->e->steps - first;
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

/* The emulator is the reference: what translated code says is wrong it has to confirm. */
static void verify_run(struct pool *p, struct run *run, uint64_t total,
		       void (*progress)(uint64_t done, uint64_t total))
{
	struct part *o = run->first = &p->parts[run->at];
	bool translate = may_translate && !p->observer && o->length >= TRANSLATE_FROM;

	one_way(p, o, run, total, translate, progress);
	if (!o->translated || (!o->failed && !o->res.div.found))
		return;
	account(p, -o->res.instructions);
	o->res = (struct replay_verify_result){ 0 };
	o->err = (struct dj_error){ 0 };
	o->failed = false;
	one_way(p, o, NULL, total, false, progress);
	o->res.again = 1;
}

/* What lies before the worker. */
static uint64_t rest(const struct pool *p, const struct run *run)
{
	uint64_t length = 0;

	for (size_t i = run->at + 1; i < run->end; i++)
		length += p->parts[i].length;
	return length;
}

/* Something to do for the worker, if there is anything. */
static bool take(struct pool *p, struct run *run)
{
	struct run *from = NULL;
	uint64_t most = 0;

	pthread_mutex_lock(&p->lock);
	if (run->at + 1 < run->end && !run->first->failed && !run->first->res.div.found) {
		run->at++; /* the emulator went no further */
	} else if (p->next < p->threads) {
		run->at = p->queue[p->next++];
		for (run->end = run->at + 1; run->end < p->n; run->end++)
			if (p->parts[run->end].thread != p->parts[run->at].thread)
				break;
	} else {
		run->end = run->at; /* this worker has nothing to give */
		for (unsigned i = 0; i < p->workers; i++) {
			uint64_t length = rest(p, &p->runs[i]);
			if (length > most) {
				most = length;
				from = &p->runs[i];
			}
		}
		if (from) {
			run->end = from->end;
			run->at = from->end = from->at + 1 + (from->end - from->at - 1) / 2;
		}
	}
	bool some = run->at < run->end;
	pthread_mutex_unlock(&p->lock);
	return some;
}

static void *work(void *arg)
{
	struct run *run = arg;
	struct pool *p = run->p;

	while (take(p, run))
		verify_run(p, run, 0, NULL);
	pthread_mutex_lock(&p->lock);
	p->finished++;
	pthread_cond_signal(&p->done_one);
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

/* Tell how far they are until they are done. */
static void watch(struct pool *p, unsigned workers, uint64_t total,
		  void (*progress)(uint64_t done, uint64_t total))
{
	pthread_mutex_lock(&p->lock);
	while (p->finished < workers) {
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

/* As many as there are processors. Observers hear of one thread at a time. */
static unsigned workers_for(const struct pool *p)
{
	cpu_set_t cpus;
	unsigned n = 1;

	if (p->observer)
		return 1;
	if (!sched_getaffinity(0, sizeof(cpus), &cpus))
		n = (unsigned)CPU_COUNT(&cpus);
	return n < 1 ? 1 : n < WORKERS_MAX ? n : WORKERS_MAX;
}

/* ---- parts ------------------------------------------------------------------------------ */

static struct part *add_part(struct pool *p, size_t thread, size_t from, size_t to)
{
	if (p->n == p->cap) {
		size_t cap = p->cap ? 2 * p->cap : 64;
		struct part *v = realloc(p->parts, cap * sizeof(*v));
		if (!v)
			return NULL;
		p->parts = v;
		p->cap = cap;
	}
	struct part *o = &p->parts[p->n++];
	*o = (struct part){ .thread = (uint32_t)thread, .from = from, .to = to };
	return o;
}

/* A thread's history, in parts of at least `least` instructions; 0: in one. */
static int divide(struct pool *p, size_t thread, uint64_t least)
{
	const struct dj_thread_info *info = dj_trace_thread(p->t, thread);
	uint64_t at = info->first_steps, steps, seq;
	size_t from = RP_NO_KEYFRAME;
	struct part *o;

	for (size_t i = info->late; least && dj_trace_keyframe(p->t, thread, i, &steps, &seq);
	     i++) {
		if (steps - at < least || info->last_steps - steps < least)
			continue;
		if (!(o = add_part(p, thread, from, i)))
			return -1;
		o->length = steps - at;
		from = i;
		at = steps;
	}
	if (!(o = add_part(p, thread, from, RP_NO_KEYFRAME)))
		return -1;
	o->length = info->last_steps - at;
	return 0;
}

static int divide_all(struct pool *p, uint64_t *total)
{
	size_t threads = dj_trace_threads(p->t);
	uint64_t least = 0;

	for (size_t i = 0; i < threads; i++)
		*total += rp_thread_length(p->t, i);
	p->workers = workers_for(p);
	if (p->workers > 1)
		least = *total / (p->workers * PARTS) + 1;
	for (size_t i = 0; i < threads; i++)
		if (divide(p, i, least))
			return -1;
	if (p->workers > p->n)
		p->workers = p->n ? (unsigned)p->n : 1;
	p->queue = calloc(p->n + 1, sizeof(*p->queue));
	for (size_t i = 0; p->queue && i < p->n; i++)
		if (!i || p->parts[i].thread != p->parts[i - 1].thread)
			p->queue[p->threads++] = i;
	return p->queue ? 0 : -1;
}

static void run_pool(struct pool *p, uint64_t total,
		     void (*progress)(uint64_t done, uint64_t total))
{
	pthread_t ids[WORKERS_MAX];
	unsigned n = 0;

	for (unsigned i = 0; i < p->workers; i++)
		p->runs[i] = (struct run){ .p = p };
	while (p->workers > 1 && n < p->workers &&
	       !pthread_create(&ids[n], NULL, work, &p->runs[n]))
		n++;
	if (n)
		watch(p, n, total, progress);
	for (unsigned i = 0; i < n; i++)
		pthread_join(ids[i], NULL);
	while (!n && take(p, &p->runs[0]))
		verify_run(p, &p->runs[0], total, progress);
}

static int by_length(const void *a, const void *b, void *pool)
{
	const size_t *x = a, *y = b;
	const struct pool *p = pool;
	uint64_t l = rp_thread_length(p->t, p->parts[*x].thread);
	uint64_t m = rp_thread_length(p->t, p->parts[*y].thread);

	if (l != m)
		return l > m ? -1 : 1;
	return *x < *y ? -1 : *x > *y;
}

/* What all threads have come to. */
static int sum_up(const struct pool *p, struct replay_verify_result *out, struct dj_error *err)
{
	const struct part *failed = NULL, *before = NULL;

	for (size_t i = 0; i < p->n; i++) {
		const struct part *o = &p->parts[i];
		/* where a thread's history cannot be replayed it ends */
		if (before && before->thread == o->thread)
			continue;
		before = o->failed || o->res.div.found ? o : NULL;
		out->instructions += o->res.instructions;
		out->translated += o->res.translated;
		out->again += o->res.again;
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
	struct pool p = { .t = t, .observer = o };
	uint64_t total = 0;
	double start = now();
	int ret;

	memset(out, 0, sizeof(*out));
	if (!divide_all(&p, &total)) {
		pthread_mutex_init(&p.shared, NULL);
		pthread_mutex_init(&p.lock, NULL);
		pthread_cond_init(&p.done_one, NULL);
		p.starts = rp_starts_new(t);
		qsort_r(p.queue, p.threads, sizeof(*p.queue), by_length, &p);
		run_pool(&p, total, progress);
		ret = sum_up(&p, out, err);
		rp_starts_free(p.starts);
		pthread_cond_destroy(&p.done_one);
		pthread_mutex_destroy(&p.lock);
		pthread_mutex_destroy(&p.shared);
	} else {
		ret = dj_fail(err, 1, "out of memory");
	}
	free(p.queue);
	free(p.parts);
	out->seconds = now() - start;
	return ret;
}
