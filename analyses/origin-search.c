/*
 * Who wrote memory last (analyses/origin.h): a pass over all threads that could have.
 *
 * A word is looked for in translated code; but where it is accessed all the time nearly everything
 * would have to be told. Then a part of history is looked at first that is not long, and a longer
 * one only if nobody has written it there; what comes before is executed in translated code.
 */
#include "analyses/call-writes.h"
#include "analyses/origin.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define HOT  50000u   /* accesses that a pass over all of history may tell */
#define NEAR 1000000u /* instructions that are looked at first instead, */
#define MORE 32u      /* and so many times as many then */

struct search {
	uint32_t process;
	uint64_t addr, last;
	const uint8_t *bytes;
	struct origin_write best, alike; /* of all; of those that wrote the bytes */
	bool exec;
	bool whole;	  /* all of history is looked at, unless it is hot */
	atomic_uint told; /* accesses */
};

struct thread {
	struct search *s;
	struct replay_run *run;
	struct origin_write best, alike;
	bool exec;
};

static void *begin(void *ctx, struct replay_run *run)
{
	struct search *s = ctx;

	if (replay_run_info(run)->process != s->process)
		return NULL;
	struct thread *th = calloc(1, sizeof(*th));
	if (!th) {
		replay_run_fail(run, "out of memory");
		return NULL;
	}
	th->s = s;
	th->run = run;
	return th;
}

static void better(struct origin_write *have, const struct origin_write *w)
{
	if (w->found && (!have->found || replay_pos_cmp(&w->pos, &have->pos) > 0))
		*have = *w;
}

static void end(void *ctx, struct replay_run *run, void *data)
{
	struct search *s = ctx;
	struct thread *th = data;

	(void)run;
	if (!th)
		return;
	better(&s->best, &th->best);
	better(&s->alike, &th->alike);
	s->exec |= th->exec;
	free(th);
}

/* The part of [addr, addr+size) that counts. */
static bool overlap(const struct search *s, uint64_t addr, uint64_t size, struct origin_write *w)
{
	if (!size || addr > s->last || addr + size - 1 < s->addr)
		return false;
	w->first = addr > s->addr ? addr : s->addr;
	uint64_t last = addr + size - 1 < s->last ? addr + size - 1 : s->last;
	w->length = last - w->first + 1;
	return true;
}

static void access(void *data, struct replay_run *run, const struct replay_access *a)
{
	struct thread *th = data;
	struct origin_write w = { .found = true };

	if (th->s->whole && atomic_fetch_add(&th->s->told, 1) >= HOT) {
		replay_run_stop(run);
		return;
	}
	if (!a->write || !overlap(th->s, a->addr, a->size, &w))
		return;
	replay_run_pos(run, &w.pos);
	th->best = w;
	if (!a->bytes ||
	    (th->s->bytes && !memcmp(a->bytes + (w.first - a->addr),
				     th->s->bytes + (w.first - th->s->addr), w.length)))
		th->alike = w;
}

static bool within(void *data, struct replay_run *run, uint64_t *first, uint64_t *last)
{
	const struct thread *th = data;

	(void)run;
	*first = th->s->addr;
	*last = th->s->last;
	return true;
}

static void wrote(void *ctx, uint64_t addr, uint64_t length)
{
	struct thread *th = ctx;
	struct origin_write w = { .found = true, .call = true };

	if (!overlap(th->s, addr, length, &w))
		return;
	replay_run_pos(th->run, &w.pos);
	th->best = th->alike = w; /* nobody knows what it wrote */
}

static void event(void *data, struct replay_run *run, const struct replay_event *e)
{
	struct thread *th = data;

	if (e->kind == REPLAY_EV_EXEC)
		th->best.found = th->alike.found = !(th->exec = true);
	ana_call_wrote(run, e, wrote, th);
}

static int pass_over(struct ana_job *job, const struct replay_listener *l,
		     const struct replay_pos *from, const struct replay_pos *to, bool *threads,
		     struct dj_error *err)
{
	struct replay_pass pass = {
		.from = from, .to = to, .threads = threads, .listeners = &l, .n = 1
	};

	return ana_pass_whole(job, job->t, &pass, err);
}

/* The position so many instructions before, or one that comes earlier in the order of threads;
 * false: the beginning. */
static bool part_before(struct dj_trace *t, const struct replay_pos *pos, uint64_t length,
			struct replay_pos *from)
{
	const struct dj_thread_info *info = dj_trace_thread(t, pos->thread);
	const struct dj_record *r;
	struct dj_error err;

	if (pos->steps - info->first_steps <= length)
		return false;
	*from = (struct replay_pos){ .thread = pos->thread, .steps = pos->steps - length };
	struct dj_cursor *c = dj_cursor_new(t, pos->thread, &err);
	if (c && !dj_cursor_seek_steps(c, from->steps, &err))
		while ((r = dj_cursor_next(c, &err)) && r->steps <= from->steps)
			if ((r->kind == DJ_REC_DIGEST || r->kind == DJ_REC_SEQ) &&
			    r->seq != DJ_SEQ_UNKNOWN)
				from->seq = r->seq - (r->kind == DJ_REC_SEQ);
	dj_cursor_free(c);
	return true;
}

int ana_origin_search(struct ana_job *job, uint32_t process, uint64_t addr, uint64_t size,
		      const uint8_t *bytes, const struct replay_pos *before,
		      struct origin_write *out, struct dj_error *err)
{
	/* a word in megabytes: nearly all is executed in translated code, which looks for it */
	struct search s = {
		.process = process, .addr = addr, .last = addr + size - 1, .bytes = bytes
	};
	const struct replay_listener l = { .ctx = &s,
					   .begin = begin,
					   .end = end,
					   .access = access,
					   .event = event,
					   .translated = true,
					   .within = within };
	size_t n = dj_trace_threads(job->t);
	bool *threads = calloc(n + 1, sizeof(*threads));
	int ret;

	if (!threads)
		return dj_fail(err, 1, "out of memory");
	for (size_t i = 0; i < n; i++)
		threads[i] = dj_trace_thread(job->t, i)->process == process;
	s.whole = true;
	ret = pass_over(job, &l, NULL, before, threads, err);
	const bool hot = s.told > HOT;
	s.whole = false;
	for (uint64_t length = NEAR; !ret && hot; length *= MORE) {
		struct replay_pos from;
		const bool part = part_before(job->t, before, length, &from);

		s.best.found = s.alike.found = s.exec = false;
		ret = pass_over(job, &l, part ? &from : NULL, before, threads, err);
		if (!part || s.alike.found)
			break;
	}
	free(threads);
	*out = s.alike.found ? s.alike : s.best;
	out->alike = s.alike.found;
	out->exec = s.exec;
	return ret;
}

/* ---- frames that are gone ----------------------------------------------------------------------
 */

struct leaving {
	uint64_t addr;
	bool found;
	struct replay_pos at;
};

static void *leave_begin(void *ctx, struct replay_run *run)
{
	replay_run_returns(run, ((struct leaving *)ctx)->addr);
	return ctx;
}

static void leave_end(void *ctx, struct replay_run *run, void *data)
{
	(void)ctx;
	(void)run;
	(void)data;
}

static unsigned returns(void *data, struct replay_run *run, const struct insn *in)
{
	(void)data;
	(void)run;
	return in->attr & INSN_A_RET ? REPLAY_WANT_EDGE : 0;
}

static void edge(void *data, struct replay_run *run, const struct replay_edge *edge)
{
	struct leaving *l = data;

	if (edge->kind != REPLAY_SEE_RETURN || edge->sp <= l->addr || edge->sp - l->addr > 8u << 20)
		return;
	l->found = true;
	replay_run_pos(run, &l->at);
}

bool ana_origin_left(struct ana_job *job, const struct replay_pos *from,
		     const struct replay_pos *to, uint64_t addr, struct replay_pos *at)
{
	struct leaving l = { .addr = addr };
	const struct replay_listener listener = { .ctx = &l,
						  .begin = leave_begin,
						  .end = leave_end,
						  .wants = returns,
						  .edge = edge,
						  .kinds = REPLAY_SEE_RETURN,
						  .translated = true,
						  .returns = true };
	bool *threads = calloc(dj_trace_threads(job->t) + 1, sizeof(*threads));
	struct dj_error err;

	if (!threads)
		return false;
	threads[from->thread] = true;
	int ret = pass_over(job, &listener, from, to, threads, &err);
	free(threads);
	*at = l.at;
	return !ret && l.found;
}
