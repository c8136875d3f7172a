/*
 * What a thread executed last, with all its accesses (analyses/origin.h): a piece of history that
 * is small enough to be kept, in which the way back is looked for.
 */
#include "analyses/origin.h"
#include "format/scatter.h"

#include <stdlib.h>
#include <string.h>

#define HASH 65536u

/* An instruction as it is kept: once for all its executions, unless it was changed. */
static const struct insn *keep(struct origin_window *w, const struct insn *in)
{
	size_t i = dj_scatter(in->addr, HASH);

	for (unsigned tries = 0; tries < 64; tries++, i = (i + 1) % HASH) {
		struct insn *at = w->insns[i];

		if (at && (at->addr != in->addr || at->len != in->len ||
			   memcmp(at->bytes, in->bytes, in->len) != 0))
			continue;
		if (!at && (w->insns[i] = at = malloc(sizeof(*at))))
			*at = *in;
		return at;
	}
	return NULL;
}

static struct origin_step *add_step(struct origin_window *w, uint64_t steps, unsigned kind,
				    const struct insn *in)
{
	if (w->n == w->cap) {
		size_t cap = w->cap ? 2 * w->cap : 65536;
		struct origin_step *grown = reallocarray(w->steps, cap, sizeof(*grown));
		if (!grown) {
			w->failed = true;
			return NULL;
		}
		w->steps = grown;
		w->cap = cap;
	}
	const struct insn *kept = in ? keep(w, in) : NULL;
	if (in && !kept) {
		w->failed = true;
		return NULL;
	}
	struct origin_step *s = &w->steps[w->n++];
	*s = (struct origin_step){
		.in = kept, .steps = steps, .access = (uint32_t)w->n_accesses, .kind = (uint8_t)kind
	};
	return s;
}

static void *begin(void *ctx, struct replay_run *run)
{
	(void)run;
	return ctx;
}

static void end(void *ctx, struct replay_run *run, void *data)
{
	(void)ctx;
	(void)run;
	(void)data;
}

static unsigned wants(void *data, struct replay_run *run, const struct insn *in)
{
	(void)data;
	(void)run;
	(void)in;
	return REPLAY_WANT_POINT;
}

static void point(void *data, struct replay_run *run, const struct insn *in)
{
	struct origin_window *w = data;
	uint64_t steps = replay_run_steps(run);

	/* iterations of a REP instruction are one step */
	if (w->n && w->steps[w->n - 1].steps == steps && w->steps[w->n - 1].kind == ORIGIN_INSN)
		return;
	if (!add_step(w, steps, ORIGIN_INSN, in))
		replay_run_fail(run, "out of memory");
}

static void access(void *data, struct replay_run *run, const struct replay_access *a)
{
	struct origin_window *w = data;

	(void)run;
	if (w->n_accesses == w->cap_accesses) {
		size_t cap = w->cap_accesses ? 2 * w->cap_accesses : 65536;
		struct origin_access *grown = reallocarray(w->accesses, cap, sizeof(*grown));
		if (!grown) {
			w->failed = true;
			return;
		}
		w->accesses = grown;
		w->cap_accesses = cap;
	}
	w->accesses[w->n_accesses++] = (struct origin_access){ a->addr, a->size, a->write };
}

bool ana_origin_event_step(struct replay_run *run, const struct replay_event *e, struct insn *in,
			   struct origin_step *step)
{
	uint64_t rip = replay_run_rip(run);
	uint8_t code[INSN_MAX];

	*step = (struct origin_step){ .steps = replay_run_steps(run) };
	switch (e->kind) {
	case REPLAY_EV_SIGNAL:
		step->kind = ORIGIN_SIGNAL;
		return e->handled;
	case REPLAY_EV_EXEC:
		step->kind = ORIGIN_EXEC;
		return true;
	case REPLAY_EV_SYSCALL:
	case REPLAY_EV_NATIVE:
		step->kind = e->kind == REPLAY_EV_SYSCALL ? ORIGIN_CALL : ORIGIN_NATIVE;
		step->in = in;
		return insn_decode(in, code, replay_run_fetch(run, rip, code, sizeof(code)), rip) >
		       0;
	default:
		return false;
	}
}

static void event(void *data, struct replay_run *run, const struct replay_event *e)
{
	struct origin_window *w = data;
	struct origin_step step;
	struct insn in;

	if (!ana_origin_event_step(run, e, &in, &step))
		return;
	if (step.in && w->n && w->steps[w->n - 1].steps == step.steps &&
	    w->steps[w->n - 1].kind == ORIGIN_INSN)
		w->n--; /* told as a point, too */
	add_step(w, step.steps, step.kind, step.in);
}

int ana_origin_window_fill(struct origin_window *w, struct ana_job *job, uint32_t thread,
			   uint64_t last, uint64_t length, struct dj_error *err)
{
	const struct replay_listener listener = { .ctx = w,
						  .begin = begin,
						  .end = end,
						  .wants = wants,
						  .point = point,
						  .access = access,
						  .event = event };
	const struct replay_listener *listeners[] = { &listener };
	struct replay_pos from = { .thread = thread }, to = { .thread = thread, .steps = last + 1 };
	uint64_t first = dj_trace_thread(job->t, thread)->first_steps;
	bool *threads = calloc(dj_trace_threads(job->t) + 1, sizeof(*threads));

	ana_origin_window_free(w);
	w->thread = thread;
	w->insns = calloc(HASH, sizeof(struct insn *));
	if (!threads || !w->insns) {
		free(threads);
		return dj_fail(err, 1, "out of memory");
	}
	threads[thread] = true;
	from.steps = last - first >= length ? last - length + 1 : first;
	struct replay_pass pass = { .from = from.steps > first ? &from : NULL,
				    .to = &to,
				    .threads = threads,
				    .listeners = listeners,
				    .n = 1,
				    .workers = 1 };
	int ret = ana_pass_whole(job, job->t, &pass, err);
	free(threads);
	if (!ret && w->failed)
		return dj_fail(err, 1, "out of memory");
	return ret;
}

void ana_origin_window_free(struct origin_window *w)
{
	for (size_t i = 0; w->insns && i < HASH; i++)
		free(w->insns[i]);
	free(w->insns);
	free(w->steps);
	free(w->accesses);
	memset(w, 0, sizeof(*w));
}

size_t ana_origin_window_accesses(const struct origin_window *w, size_t i,
				  const struct origin_access **first)
{
	size_t from = w->steps[i].access;
	size_t to = i + 1 < w->n ? w->steps[i + 1].access : w->n_accesses;

	*first = w->accesses + from;
	return to > from ? to - from : 0;
}
