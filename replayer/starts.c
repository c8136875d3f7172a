/*
 * What a process has mapped where threads of it begin.
 *
 * A replay of one thread applies the facts of its process: what was mapped, what code was made,
 * which threads began. One that begins late has all of them to apply before its first instruction.
 * Of thousands of short threads nearly all the time went into that, and it grew with the square of
 * their number. So threads that have applied their first facts leave here what these came to, every
 * now and then, and others begin with that and apply only what came after.
 *
 * It is worth keeping, and costs no more than the trace does, if it saves more facts than it has
 * mappings and pages of code: so far apart are those that are kept.
 *
 * What is kept is never changed, and is made into a space of the thread's own: spaces and the trees
 * of their mappings belong to one thread of ours, and names to whoever replays. Pages of code,
 * which are large, are shared.
 *
 * A debugger's session begins each thread that it comes to, and again whenever it goes back to
 * before the thread's first checkpoint.
 */
#include "replayer/starts.h"

#include "replayer/memview.h"
#include "replayer/thread-internal.h"

#include <pthread.h>
#include <stdlib.h>

struct start {
	uint64_t facts; /* so many come to this */
	struct dj_mark_place at;
	uint64_t mapped, image_seq;
	uint32_t image;
	size_t nmaps, ncode;
	struct dj_mapping *maps;
	struct rp_space_code **code;
};

struct process {
	struct start **v; /* by facts */
	size_t n, cap;
};

struct rp_starts {
	pthread_mutex_t lock;
	struct rp_space_names names;
	size_t n;
	struct process processes[];
};

struct rp_starts *rp_starts_new(struct dj_trace *t)
{
	size_t n = dj_trace_processes(t);
	struct rp_starts *s = calloc(1, sizeof(*s) + n * sizeof(s->processes[0]));

	if (!s)
		return NULL;
	s->n = n;
	pthread_mutex_init(&s->lock, NULL);
	return s;
}

static void free_start(struct start *o)
{
	for (size_t i = 0; i < o->ncode; i++)
		rp_space_code_unref(o->code[i]);
	free(o->code);
	free(o->maps);
	free(o);
}

void rp_starts_free(struct rp_starts *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->n; i++) {
		for (size_t k = 0; k < s->processes[i].n; k++)
			free_start(s->processes[i].v[k]);
		free(s->processes[i].v);
	}
	pthread_mutex_destroy(&s->lock);
	rp_space_names_free(&s->names);
	free(s);
}

/* The first with more facts than these. */
static size_t behind(const struct process *p, uint64_t facts)
{
	size_t lo = 0, hi = p->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (p->v[mid]->facts <= facts)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* ---- beginning with one ------------------------------------------------------------------- */

static struct rp_space *space_of(const struct start *o, const struct rp_thread *th)
{
	struct rp_space *s = rp_space_new();
	struct rp_space_code **code = malloc((o->ncode + 1) * sizeof(struct rp_space_code *));

	if (!s || !code) {
		rp_space_unref(s);
		free(code);
		return NULL;
	}
	s->process = th->info->process;
	s->image = o->image;
	s->image_seq = o->image_seq;
	s->image_steps = th->begin_steps;
	for (size_t i = 0; i < o->nmaps; i++) {
		struct dj_mapping m = o->maps[i];
		m.name = rp_space_intern(th->names, m.name);
		dj_mappings_put(&s->maps, &m);
	}
	s->code = code;
	s->ncode = s->code_cap = o->ncode;
	for (size_t i = 0; i < o->ncode; i++)
		code[i] = rp_space_code_ref(o->code[i]);
	return s;
}

static bool find(void *arg, uint64_t steps, uint64_t facts, struct dj_mark_place *at)
{
	struct rp_thread *th = arg;
	struct rp_starts *s = th->starts;
	const struct process *p = &s->processes[th->info->process];
	const struct start *o = NULL;

	if (steps != th->begin_steps) { /* what has happened by then may matter */
		th->starts = NULL;
		return false;
	}
	/* who wants each fact for itself; and a mark before what is gathered would not have them */
	if (th->hearer || th->observer.kinds || (th->mem && th->mem->look) || th->nimports)
		return false;
	pthread_mutex_lock(&s->lock);
	size_t i = behind(p, facts);
	if (i)
		o = p->v[i - 1];
	pthread_mutex_unlock(&s->lock);
	struct rp_space *space = o ? space_of(o, th) : NULL;
	if (!space)
		return false;
	rp_space_unref(th->space);
	th->space = space;
	th->mapped = o->mapped;
	*at = o->at;
	/* who comes back to before the first record that is served now does so with these */
	th->next_mark.facts = o->at;
	return true;
}

/* ---- keeping one ---------------------------------------------------------------------------- */

static struct start *make(struct rp_starts *s, const struct rp_thread *th)
{
	const struct rp_space *space = th->space;
	size_t n = dj_mappings_count(&space->maps);
	struct start *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->maps = malloc((n + 1) * sizeof(*o->maps));
	o->code = malloc((space->ncode + 1) * sizeof(struct rp_space_code *));
	if (!o->maps || !o->code) {
		free_start(o);
		return NULL;
	}
	o->mapped = th->mapped;
	o->image = space->image;
	o->image_seq = space->image_seq;
	for (const struct dj_mapping *m = dj_mappings_after(&space->maps, 0, 0); m && o->nmaps < n;
	     m = dj_mappings_after(&space->maps, m->end, 0)) {
		o->maps[o->nmaps] = *m;
		o->maps[o->nmaps++].name = rp_space_intern(&s->names, m->name);
	}
	for (; o->ncode < space->ncode; o->ncode++)
		o->code[o->ncode] = rp_space_code_ref(space->code[o->ncode]);
	return o;
}

static void add(struct process *p, size_t i, struct start *o)
{
	if (p->n == p->cap) {
		size_t cap = p->cap ? 2 * p->cap : 16;
		struct start **v = realloc(p->v, cap * sizeof(struct start *));
		if (!v) {
			free_start(o);
			return;
		}
		p->v = v;
		p->cap = cap;
	}
	memmove(&p->v[i + 1], &p->v[i], (p->n - i) * sizeof(struct start *));
	p->v[i] = o;
	p->n++;
}

static void keep(void *arg, uint64_t facts, const struct dj_mark_place *at)
{
	struct rp_thread *th = arg;
	struct rp_starts *s = th->starts;

	if (!s || th->e->steps != th->begin_steps)
		return;
	struct process *p = &s->processes[th->info->process];
	uint64_t cost = dj_mappings_count(&th->space->maps) + th->space->ncode;
	pthread_mutex_lock(&s->lock);
	size_t i = behind(p, facts);
	uint64_t before = i ? p->v[i - 1]->facts : 0, next = i < p->n ? p->v[i]->facts : UINT64_MAX;
	if (facts - before > cost && next - facts > cost) {
		struct start *o = make(s, th);
		if (o) {
			o->facts = facts;
			o->at = *at;
			add(p, i, o);
		}
	}
	pthread_mutex_unlock(&s->lock);
}

void rp_starts_use(struct rp_starts *s, struct rp_thread *th)
{
	const struct dj_process_info *info = dj_trace_process(th->trace, th->info->process);

	/* the first thread's facts are its own, and come one by one */
	if (!s || th->info->late || th->from != RP_NO_KEYFRAME || th->info->tid == info->pid)
		return;
	th->starts = s;
}

void rp_starts_begin(struct rp_thread *th)
{
	if (th->starts)
		dj_cursor_on_begin(th->cur, &(struct dj_cursor_begin){ find, keep, th });
}
