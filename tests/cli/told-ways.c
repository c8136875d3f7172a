/*
 * told-ways TRACE: a pass over a recording tells the same of it in translated code and in the
 * emulator alone. Several listeners are told of it both ways: counts and branches, which are added
 * up; edges, chosen instructions, repetitions and events, in their order, with what can be asked
 * of each. Exit status 1 if anything differs, 77 if this host cannot execute translated code.
 */
#include "replayer/pass.h"
#include "fast/fast.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELDS 10

/* What was heard of a thread: sums, of which it does not matter in which order they were told, and
 * a sequence, of which it does. */
struct heard {
	uint64_t watched,
		above; /* stack pointers: accesses below this are of interest; returns over */
	uint64_t counts, branches, counted, branched; /* sums; how many */
	uint64_t sequence, edges, points, events;     /* sequence; how many */
};
_Static_assert(sizeof(struct heard) == FIELDS * 8, "all of it is compared");
#define WATCHED 200 /* bytes */

static const char *const names[FIELDS] = { "watched",	   "above",    "counts",   "branches",
					   "instructions", "branched", "sequence", "edges",
					   "points",	   "events" };

struct way {
	struct heard *thread;
	struct replay_passed passed;
};

static uint64_t mix(uint64_t h, uint64_t x)
{
	h = (h ^ x) * 0x9e3779b97f4a7c15ULL;
	return h ^ h >> 29;
}

static uint64_t place(uint64_t h, const struct replay_code *c)
{
	return mix(mix(mix(h, (uint64_t)c->module), c->process), c->offset);
}

static void *begin(void *ctx, struct replay_run *run)
{
	struct heard *h = &((struct way *)ctx)->thread[replay_run_thread(run)];

	h->watched = replay_run_gpr(run, DJ_RSP) - 5 * WATCHED;
	h->above = INT64_MAX;
	return h;
}

static void count(void *data, struct replay_run *run, const struct replay_count *c)
{
	struct heard *h = data;

	(void)run;
	h->counted += c->count;
	h->counts += mix(mix(place(1, &c->code), c->insn->id), c->insn->len) * c->count;
}

static void branch(void *data, struct replay_run *run, const struct replay_branch *b)
{
	struct heard *h = data;

	(void)run;
	h->branched += b->count;
	h->branches += mix(place(place(2, &b->code), &b->target), b->to) * b->count;
}

static void next(struct heard *h, uint64_t x)
{
	h->sequence = mix(h->sequence, x);
}

static void where(struct heard *h, struct replay_run *run)
{
	struct replay_pos pos;

	replay_run_pos(run, &pos);
	next(h, pos.seq);
	next(h, pos.steps);
	next(h, pos.signals);
	next(h, pos.rep);
	next(h, replay_run_rip(run));
	for (unsigned i = 0; i < 16; i++)
		next(h, replay_run_gpr(run, i));
}

static void edge(void *data, struct replay_run *run, const struct replay_edge *e)
{
	struct heard *h = data;
	struct replay_code code;

	h->edges++;
	replay_run_code(run, e->to, &code);
	next(h, e->kind);
	next(h, e->from);
	next(h, e->to);
	next(h, e->steps);
	next(h, e->sp);
	next(h, place(3, &code));
}

static void point(void *data, struct replay_run *run, const struct insn *in)
{
	struct heard *h = data;

	h->points++;
	next(h, in->addr);
	where(h, run);
}

static void rep(void *data, struct replay_run *run, const struct replay_rep *r)
{
	struct heard *h = data;

	h->points++;
	next(h, r->insn->addr);
	next(h, r->asked);
	next(h, r->done);
	next(h, r->steps);
	where(h, run);
}

static void event(void *data, struct replay_run *run, const struct replay_event *e)
{
	struct heard *h = data;

	h->events++;
	next(h, e->kind);
	next(h, e->number);
	next(h, e->result);
	where(h, run);
}

/* Some instructions of any kind, and of branches the ones that a call stack is kept by. */
static unsigned wants_some(void *data, struct replay_run *run, const struct insn *in)
{
	(void)data, (void)run;
	return (mix(4, in->addr) % 101 == 0 ? REPLAY_WANT_POINT : 0) | REPLAY_WANT_REP |
	       (in->attr & (INSN_A_CALL | INSN_A_RET | INSN_A_INDIRECT) || in->addr % 7 == 0
			? REPLAY_WANT_EDGE
			: 0);
}

static bool within(void *data, struct replay_run *run, uint64_t *first, uint64_t *last)
{
	const struct heard *h = data;

	(void)run;
	*first = h->watched;
	*last = h->watched + WATCHED - 1;
	return true;
}

static void access(void *data, struct replay_run *run, const struct replay_access *a)
{
	struct heard *h = data;

	if (a->addr + a->size <= h->watched || a->addr >= h->watched + WATCHED)
		return;
	h->points++;
	next(h, a->addr);
	next(h, a->size);
	next(h, a->write);
	for (unsigned i = 0; i < a->size && i < 64; i++)
		next(h, a->bytes ? a->bytes[i] : 0);
	where(h, run);
}

/* Now and then the stack pointer is remembered, and a return over it is of interest. */
static unsigned wants_returns(void *data, struct replay_run *run, const struct insn *in)
{
	(void)data, (void)run;
	return (mix(5, in->addr) % 211 == 0 ? REPLAY_WANT_POINT : 0) |
	       (in->attr & INSN_A_RET ? REPLAY_WANT_EDGE : 0);
}

static void remember(void *data, struct replay_run *run, const struct insn *in)
{
	struct heard *h = data;

	point(data, run, in);
	h->above = replay_run_gpr(run, DJ_RSP);
	replay_run_returns(run, h->above);
}

static void returned(void *data, struct replay_run *run, const struct replay_edge *e)
{
	struct heard *h = data;

	if ((int64_t)e->sp <= (int64_t)h->above)
		return;
	edge(data, run, e);
	where(h, run);
	h->above = e->sp;
	replay_run_returns(run, h->above);
}

#define COUNTS .count = count, .branch = branch
#define EDGES  .edge = edge, .kinds = REPLAY_SEE_BLOCKS, .late = true
static const struct {
	const char *name;
	struct replay_listener l;
} kinds[] = {
	{ "counts", { COUNTS } },
	{ "counts and edges", { COUNTS, EDGES } },
	{ "calls", { .edge = edge, .kinds = REPLAY_SEE_CALL | REPLAY_SEE_RETURN, .late = true } },
	{ "accesses", { .access = access, .within = within, .event = event } },
	{ "counts and accesses", { COUNTS, .access = access, .within = within } },
	{ "returns",
	  { COUNTS, .wants = wants_returns, .point = remember, .edge = returned,
	    .kinds = REPLAY_SEE_RETURN, .returns = true } },
	{ "all",
	  { COUNTS, EDGES, .wants = wants_some, .point = point, .rep = rep, .event = event } },
};

static const bool *only; /* threads; NULL: all */

static bool pass(struct dj_trace *t, const struct replay_listener *like, struct way *w,
		 const struct replay_pos *from, const struct replay_pos *to, bool translate)
{
	struct replay_listener l = *like;
	const struct replay_listener *listeners[] = { &l };
	const struct replay_pass p = { .listeners = listeners,
				       .n = 1,
				       .from = from,
				       .to = to,
				       .threads = only,
				       .translate = translate };
	struct dj_error err = { 0 };

	l.ctx = w;
	l.begin = begin;
	l.translated = true;
	memset(w->thread, 0, dj_trace_threads(t) * sizeof(*w->thread));
	if (!replay_pass(t, &p, &w->passed, &err) && !w->passed.astray && !w->passed.div.found)
		return true;
	printf("%s: %s %s\n", translate ? "translated" : "emulated", err.text, w->passed.div.text);
	return false;
}

static bool same(struct dj_trace *t, const char *name, const struct way *quick,
		 const struct way *slow)
{
	bool good = true;

	for (size_t i = 0; i < dj_trace_threads(t); i++) {
		uint64_t a[FIELDS], b[FIELDS];
		memcpy(a, &quick->thread[i], sizeof(a));
		memcpy(b, &slow->thread[i], sizeof(b));
		for (unsigned k = 0; k < FIELDS; k++) {
			if (a[k] == b[k])
				continue;
			printf("%s, thread %zu: %s are %" PRIx64 " translated, %" PRIx64
			       " emulated\n",
			       name, i, names[k], a[k], b[k]);
			good = false;
		}
	}
	return good;
}

/* The longest thread's positions at a third and at two thirds. */
static void between(struct dj_trace *t, struct replay_pos *from, struct replay_pos *to)
{
	uint64_t most = 0;

	for (uint32_t i = 0; i < dj_trace_threads(t); i++) {
		const struct dj_thread_info *info = dj_trace_thread(t, i);
		uint64_t length = info->last_steps - info->first_steps;
		if (length < most)
			continue;
		most = length;
		*from = (struct replay_pos){ .thread = i, .steps = info->first_steps + length / 3 };
		*to = (struct replay_pos){ .thread = i,
					   .steps = info->first_steps + length / 3 * 2 };
	}
}

/* Without the thread itself, so that nothing but the others counts. */
static bool up_to_others(struct dj_trace *t, struct way *quick, struct way *slow,
			 const struct replay_pos *at)
{
	const size_t n = dj_trace_threads(t);
	uint64_t told = 0, translated = 0;
	bool *others = malloc(n + 1), good = true;
	struct replay_pos to = *at;

	memset(others, true, n);
	others[to.thread] = false;
	only = others;
	for (to.seq = 0; good && to.seq < 100000; to.seq = 5 * to.seq / 2 + 1) {
		good = pass(t, &kinds[6].l, quick, NULL, &to, true) &&
		       pass(t, &kinds[6].l, slow, NULL, &to, false) &&
		       same(t, "others", quick, slow);
		/* In those passes some instructions are asked for by their address, which the
		 * emulator executes, perhaps in a loop: how much is translated, others tell. */
		good = good && pass(t, &kinds[0].l, quick, NULL, &to, true);
		told += quick->passed.instructions;
		translated += quick->passed.translated;
	}
	only = NULL;
	free(others);
	if (told > 1000000)
		printf("of others %.1f %%\n", 100.0 * (double)translated / (double)told);
	return good;
}

int main(int argc, char **argv)
{
	struct dj_error err = { 0 };
	struct dj_trace *t = argc > 1 ? dj_trace_open(argv[1], &err) : NULL;
	uint64_t told = 0, translated = 0;
	struct replay_pos from, to;
	bool good = true;

	if (!t) {
		fprintf(stderr, "told-ways: %s\n", argc > 1 ? err.text : "TRACE");
		return 2;
	}
	if (!fast_possible(dj_cpu_kind_of(dj_trace_meta(t)->cpu))) {
		puts("this host cannot execute translated code");
		return 77;
	}
	struct way quick = { .thread = calloc(dj_trace_threads(t), sizeof(*quick.thread)) };
	struct way slow = { .thread = calloc(dj_trace_threads(t), sizeof(*slow.thread)) };
	between(t, &from, &to);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		bool part = i == sizeof(kinds) / sizeof(kinds[0]) - 1;
		for (unsigned k = 0; k <= part; k++) {
			const struct replay_pos *a = k ? &from : NULL, *b = k ? &to : NULL;
			good &= pass(t, &kinds[i].l, &quick, a, b, true) &&
				pass(t, &kinds[i].l, &slow, a, b, false) &&
				same(t, kinds[i].name, &quick, &slow);
			told += quick.passed.instructions;
			translated += quick.passed.translated;
		}
	}
	/* up to where another thread is at two thirds of its own history: known by numbers of
	 * events */
	good &= up_to_others(t, &quick, &slow, &to);
	printf("%s: %" PRIu64 " instructions, %.1f %% of them translated\n", argv[1], told,
	       told ? 100.0 * (double)translated / (double)told : 0);
	free(quick.thread);
	free(slow.thread);
	dj_trace_close(t);
	return !good;
}
