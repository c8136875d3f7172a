/*
 * Who wrote a register last (analyses/origin.h), however long ago: a pass over the thread's history
 * that is told of the instructions which write it, in translated code where these are few.
 *
 * x87's registers have other names as history goes on. What counts is which of the eight it is, by
 * how much was loaded since the pass began: what was st0 then is st1 after one load.
 */
#include "analyses/origin.h"

#include <stdlib.h>
#include <string.h>

#define NEAR 1000000u /* instructions that are looked at first */

struct search {
	const struct origin_place *place;
	unsigned loaded; /* x87: more than at the beginning, modulo 8 */
	uint64_t told;	 /* of which instruction there was word last; and 1 */
	/* of x87 by register, else the first: the last that wrote it, and 1; `loaded` then */
	struct {
		uint64_t steps;
		unsigned loaded;
	} last[8];
};

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

static void note(struct search *s, const struct origin_step *step)
{
	struct origin_place p = *s->place;

	if (s->told == step->steps + 1 && step->in)
		return;
	s->told = step->steps + 1;
	if (p.kind != ORIGIN_X87) {
		if (ana_origin_defines(step, &p))
			s->last[0].steps = step->steps + 1;
		return;
	}
	p.reg = 0;
	ana_origin_x87_before(step, &p);
	s->loaded -= p.reg;
	for (p.reg = 0; p.reg < 8; p.reg++)
		if (ana_origin_defines(step, &p)) {
			s->last[(p.reg - s->loaded) & 7].steps = step->steps + 1;
			s->last[(p.reg - s->loaded) & 7].loaded = s->loaded;
		}
}

static unsigned wants(void *data, struct replay_run *run, const struct insn *in)
{
	const struct search *s = data;
	const struct origin_step step = { .in = in };

	(void)run;
	if (s->place->kind == ORIGIN_X87)
		return in->attr & (INSN_A_X87 | INSN_A_MMX | INSN_A_XSTATE) ? REPLAY_WANT_POINT : 0;
	return ana_origin_defines(&step, s->place) ? REPLAY_WANT_POINT : 0;
}

static void point(void *data, struct replay_run *run, const struct insn *in)
{
	note(data, &(struct origin_step){ .in = in, .steps = replay_run_steps(run) });
}

static void event(void *data, struct replay_run *run, const struct replay_event *e)
{
	struct origin_step step;
	struct insn in;

	if (ana_origin_event_step(run, e, &in, &step))
		note(data, &step);
}

int ana_origin_register(struct ana_job *job, uint32_t thread, struct origin_place *place,
			uint64_t *steps, struct dj_error *err)
{
	struct search s;
	const struct replay_listener listener = { .ctx = &s,
						  .begin = begin,
						  .end = end,
						  .wants = wants,
						  .point = point,
						  .event = event,
						  .translated = true };
	const struct replay_listener *l = &listener;
	const struct replay_pos to = { .thread = thread, .steps = *steps };
	bool *threads = calloc(dj_trace_threads(job->t) + 1, sizeof(*threads));

	if (!threads)
		return dj_fail(err, 1, "out of memory");
	threads[thread] = true;
	/* up to `from` everything is executed in translated code; from there on what writes it is
	 * told, which may be nearly every instruction */
	const uint64_t first = dj_trace_thread(job->t, thread)->first_steps;
	struct replay_pos from = to;
	unsigned i = 0;
	int ret = 0;
	for (uint64_t length = NEAR; !ret; length *= 16) {
		const bool all = to.steps - first <= length;

		from.steps = to.steps - length;
		s = (struct search){ .place = place };
		struct replay_pass pass = { .from = all ? NULL : &from,
					    .to = &to,
					    .threads = threads,
					    .listeners = &l,
					    .n = 1,
					    .workers = 1 };
		ret = ana_pass_whole(job, job->t, &pass, err);
		i = place->kind == ORIGIN_X87 ? (place->reg - s.loaded) & 7 : 0;
		if (all || s.last[i].steps)
			break;
	}
	free(threads);
	if (ret)
		return -1;
	if (!s.last[i].steps)
		return 0;
	*steps = s.last[i].steps - 1;
	if (place->kind == ORIGIN_X87)
		place->reg = (i + s.last[i].loaded) & 7;
	return 1;
}
