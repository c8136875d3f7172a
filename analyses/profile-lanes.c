/*
 * The time line of a profile: of each thread, how many instructions, system calls and signals there
 * were in each part of it, and the first of the events one by one. Where the recording says when
 * its threads were where, the line is of time; else of the numbers of events, which all threads
 * have in common, too.
 */
#include "analyses/profile.h"

#include <stdlib.h>
#include <string.h>

/* The first width of a bin of time: more exactly it is not known. */
#define MICROSECONDS 1000

/* The bin of a moment; as history goes on they become wider. */
static struct ana_bin *bin_at(struct ana_lane *l, uint64_t moment)
{
	uint64_t at = moment > l->first ? moment - l->first : 0;

	while (at / l->width >= ANA_BINS) {
		for (unsigned i = 0; i < ANA_BINS; i++) {
			struct ana_bin b = l->bin[i];
			l->bin[i] = (struct ana_bin){ 0 };
			l->bin[i / 2].instructions += b.instructions;
			l->bin[i / 2].calls += b.calls;
			l->bin[i / 2].signals += b.signals;
		}
		l->width *= 2;
	}
	return &l->bin[at / l->width];
}

static uint64_t moment_of(struct ana_lane *l, const struct replay_pos *pos)
{
	return l->when ? ana_when_reached(l->when, pos->steps) : pos->seq;
}

struct ana_lane *ana_lane_new(struct replay_run *run)
{
	struct dj_trace *t = replay_run_trace(run);
	const struct dj_thread_info *info = replay_run_info(run);
	struct ana_lane *l = calloc(1, sizeof(*l));
	struct replay_pos pos;
	struct dj_error err;

	if (!l || ana_when_new(t, replay_run_thread(run), &l->when, &err)) {
		free(l);
		return NULL;
	}
	replay_run_pos(run, &pos);
	l->thread = replay_run_thread(run);
	l->tid = info->tid;
	l->pid = dj_trace_process(t, info->process)->pid;
	snprintf(l->name, sizeof(l->name), "%s", info->name ? info->name : "");
	l->timed = l->when != NULL;
	l->first = moment_of(l, &pos);
	l->width = l->timed ? MICROSECONDS : 1;
	l->begin = l->last = pos.steps;
	return l;
}

static void keep(struct ana_lane *l, struct replay_run *run, const struct replay_pos *pos,
		 const struct replay_event *ev)
{
	if (l->moments == ANA_MOMENTS)
		return;
	if (!l->moment)
		l->moment = calloc(ANA_MOMENTS, sizeof(*l->moment));
	if (!l->moment)
		return;
	struct ana_moment *m = &l->moment[l->moments++];
	m->at = moment_of(l, pos);
	if (ev->kind == REPLAY_EV_SIGNAL)
		m->signal = (int32_t)ev->number;
	else
		m->call = (uint32_t)ev->number;
	replay_pass_text(replay_run_trace(run), pos, m->pos, sizeof(m->pos));
}

void ana_lane_event(struct ana_lane *l, struct replay_run *run, const struct replay_event *ev)
{
	struct replay_pos pos;

	if (ev->kind != REPLAY_EV_SYSCALL && ev->kind != REPLAY_EV_SIGNAL)
		return;
	replay_run_pos(run, &pos);
	struct ana_bin *b = bin_at(l, moment_of(l, &pos));
	if (!l->timed)
		b->instructions += pos.steps - l->last;
	l->last = pos.steps;
	if (ev->kind == REPLAY_EV_SIGNAL) {
		b->signals++;
		l->signals++;
	} else {
		b->calls++;
		l->calls++;
	}
	keep(l, run, &pos, ev);
}

/* Between two notes the thread has gone at one speed: a share of the instructions for each bin. */
static void spread(void *ctx, const struct dj_time *from, const struct dj_time *to)
{
	struct ana_lane *l = ctx;
	uint64_t done = 0, all = to->steps - from->steps;

	bin_at(l, to->us); /* they are as wide as they will be */
	for (uint64_t at = from->us; all && at < to->us;) {
		uint64_t next = l->first + (at - l->first) / l->width * l->width + l->width;
		uint64_t end = next < to->us ? next : to->us;
		double part = (double)(end - from->us) / (double)(to->us - from->us);
		uint64_t n = end == to->us ? all : (uint64_t)(part * (double)all);

		bin_at(l, at)->instructions += n - done;
		done = n;
		at = end;
	}
	if (from->us == to->us)
		bin_at(l, to->us)->instructions += all;
}

void ana_lane_end(struct ana_lane *l, struct replay_run *run)
{
	struct replay_pos pos;

	replay_run_pos(run, &pos);
	l->instructions = pos.steps - l->begin;
	if (l->timed)
		ana_when_between(l->when, l->begin, pos.steps, spread, l);
	else
		bin_at(l, pos.seq)->instructions += pos.steps - l->last;
	ana_when_free(l->when);
	l->when = NULL;
}
