/*
 * Checkpoints: see checkpoint.h.
 */
#include "replayer/checkpoint.h"

#include <stdlib.h>
#include <string.h>

void rp_checkpoints_init(struct rp_checkpoints *cs, struct rp_thread *th, struct rp_memview *mem)
{
	*cs = (struct rp_checkpoints){
		.th = th, .mem = mem, .max = 200, .budget = (size_t)384 << 20
	};
}

static void checkpoint_free(struct rp_checkpoint *c)
{
	rp_space_unref(c->space);
	rp_undo_free(&c->log);
	free(c);
}

void rp_checkpoints_clear(struct rp_checkpoints *cs)
{
	if (cs->mem)
		rp_memview_set_log(cs->mem, NULL);
	for (size_t i = 0; i < cs->n; i++)
		checkpoint_free(cs->list[i]);
	cs->n = 0;
	cs->pinned = 0;
}

void rp_checkpoints_free(struct rp_checkpoints *cs)
{
	rp_checkpoints_clear(cs);
	free(cs->list);
	cs->list = NULL;
}

struct rp_checkpoint *rp_checkpoint_newest(const struct rp_checkpoints *cs)
{
	return cs->n ? cs->list[cs->n - 1] : NULL;
}

/* Merge checkpoint i into the one before it (or into the beginning, which needs no log). */
static void drop(struct rp_checkpoints *cs, size_t i)
{
	struct rp_checkpoint *c = cs->list[i];
	bool newest = i + 1 == cs->n;

	if (i > 0)
		rp_undo_merge(&cs->list[i - 1]->log, &c->log);
	/* the memory view notes into the newest checkpoint's log */
	DJ_ASSERT(!newest, "the newest checkpoint cannot be dropped");
	checkpoint_free(c);
	memmove(&cs->list[i], &cs->list[i + 1], (cs->n - i - 1) * sizeof(*cs->list));
	cs->n--;
}

static size_t total_bytes(const struct rp_checkpoints *cs)
{
	size_t bytes = 0;

	for (size_t i = 0; i < cs->n; i++)
		bytes += cs->list[i]->log.bytes + sizeof(struct rp_checkpoint);
	return bytes;
}

/* Drop what is over the limits: each time the checkpoint whose absence makes the shortest
 * interval for its distance from here. */
static void thin(struct rp_checkpoints *cs)
{
	size_t bytes = total_bytes(cs);

	while ((cs->n > cs->max || bytes > cs->budget) && cs->n > cs->pinned + 1) {
		uint64_t now = cs->th->e->steps;
		double best = 1e300;
		size_t at = cs->pinned;
		for (size_t i = cs->pinned; i + 1 < cs->n; i++) {
			uint64_t before =
				i ? cs->list[i - 1]->pos.steps : cs->th->info->first_steps;
			double gap = (double)(cs->list[i + 1]->pos.steps - before);
			double far = (double)(now - before) + 1;
			if (gap / far < best) {
				best = gap / far;
				at = i;
			}
		}
		drop(cs, at);
		bytes = total_bytes(cs);
	}
}

void rp_checkpoint_take(struct rp_checkpoints *cs)
{
	struct rp_thread *th = cs->th;
	struct rp_checkpoint *c = rp_checkpoint_newest(cs);
	struct rp_thread_pos pos;
	uint64_t within;

	rp_thread_pos(th, &pos);
	if (c && !rp_thread_pos_cmp(&c->pos, &pos))
		return;
	if (th->div.found || th->damaged)
		return;
	if (cs->n == cs->cap) {
		size_t cap = cs->cap * 2 + 64;
		struct rp_checkpoint **list = realloc(cs->list, cap * sizeof(*list));
		if (!list)
			return;
		cs->list = list;
		cs->cap = cap;
	}
	c = calloc(1, sizeof(*c));
	if (!c)
		return;
	c->pos = pos;
	c->cpu = th->e->cpu;
	c->fences = th->e->fences;
	c->fence_steps = th->e->fence_steps;
	c->in_rep = th->e->in_rep;
	c->rep_iter = th->e->rep_iter;
	c->exited = th->exited;
	c->status = th->status;
	c->events = th->events;
	c->event_steps = th->event_steps;
	rp_thread_seq(th, &c->seq, &within);
	c->numbers = th->numbers;
	c->signals_total = th->signals_total;
	c->forks = th->forks;
	c->last_sysno = th->last_sysno;
	c->last_result = th->last_result;
	c->mark = *rp_thread_mark(th);
	c->space = rp_space_ref(th->space);
	rp_undo_init(&c->log);
	cs->list[cs->n++] = c;
	rp_memview_set_log(cs->mem, &c->log);
	thin(cs);
}

static int to_beginning(struct rp_checkpoints *cs, struct dj_error *err)
{
	rp_checkpoints_clear(cs);
	rp_memview_reset(cs->mem);
	if (rp_thread_restart(cs->th) != THREAD_LIMIT)
		return dj_fail(err, cs->th->err.exit_status, "%s", cs->th->err.text);
	return 0;
}

int rp_checkpoint_back(struct rp_checkpoints *cs, const struct rp_thread_pos *pos,
		       struct dj_error *err)
{
	struct rp_thread *th = cs->th;
	struct emu *e = th->e;

	/* a log that lacks something makes its checkpoint and all before it useless */
	bool failed = false;
	while (cs->n && (failed || rp_thread_pos_cmp(&cs->list[cs->n - 1]->pos, pos) > 0)) {
		struct rp_checkpoint *c = cs->list[--cs->n];
		failed |= c->log.failed;
		rp_memview_set_log(cs->mem, NULL);
		rp_memview_undo(cs->mem, &c->log);
		checkpoint_free(c);
	}
	if (!cs->n || cs->list[cs->n - 1]->log.failed)
		return to_beginning(cs, err);

	struct rp_checkpoint *c = cs->list[cs->n - 1];
	rp_memview_set_log(cs->mem, NULL);
	rp_memview_undo(cs->mem, &c->log);
	rp_undo_free(&c->log);
	rp_memview_set_log(cs->mem, &c->log);
	if (th->space != c->space) {
		/* other code may be at the same addresses */
		rp_space_unref(th->space);
		th->space = rp_space_ref(c->space);
		emu_forget_code(e, 0, UINT64_MAX);
	}
	e->cpu = c->cpu;
	e->steps = c->pos.steps;
	e->fences = c->fences;
	e->fence_steps = c->fence_steps;
	e->in_rep = c->in_rep;
	e->rep_iter = c->rep_iter;
	e->stop_requested = false;
	th->signals = c->pos.signals;
	rp_memview_back(cs->mem);
	th->events = c->events;
	th->event_steps = c->event_steps;
	th->numbers = c->numbers;
	th->signals_total = c->signals_total;
	th->forks = c->forks;
	th->last_sysno = c->last_sysno;
	th->last_result = c->last_result;
	th->exited = c->exited;
	th->status = c->status;
	th->div.found = th->damaged = false;
	if (rp_thread_restore_cursor(th, &c->mark))
		return dj_fail(err, th->err.exit_status, "%s", th->err.text);
	return 0;
}
