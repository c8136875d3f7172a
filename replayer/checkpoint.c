/*
 * Checkpoints: see checkpoint.h.
 */
#include "replayer/checkpoint.h"

#include <stdlib.h>
#include <string.h>

void checkpoints_init(struct checkpoints *cs, struct thread *th, struct memview *mem)
{
	*cs = (struct checkpoints){.th = th, .mem = mem, .max = 200, .budget = (size_t)384 << 20};
}

static void checkpoint_free(struct checkpoint *c)
{
	space_unref(c->space);
	undo_free(&c->log);
	free(c);
}

void checkpoints_clear(struct checkpoints *cs)
{
	if (cs->mem)
		memview_set_log(cs->mem, NULL);
	for (size_t i = 0; i < cs->n; i++)
		checkpoint_free(cs->list[i]);
	cs->n = 0;
	cs->pinned = 0;
}

void checkpoints_free(struct checkpoints *cs)
{
	checkpoints_clear(cs);
	free(cs->list);
	cs->list = NULL;
}

struct checkpoint *checkpoint_newest(const struct checkpoints *cs)
{
	return cs->n ? cs->list[cs->n - 1] : NULL;
}

/* Merge checkpoint i into the one before it (or into the beginning, which needs no log). */
static void drop(struct checkpoints *cs, size_t i)
{
	struct checkpoint *c = cs->list[i];
	bool newest = i + 1 == cs->n;

	if (i > 0)
		undo_merge(&cs->list[i - 1]->log, &c->log);
	/* the memory view notes into the newest checkpoint's log */
	DJ_ASSERT(!newest, "the newest checkpoint cannot be dropped");
	checkpoint_free(c);
	memmove(&cs->list[i], &cs->list[i + 1], (cs->n - i - 1) * sizeof(*cs->list));
	cs->n--;
}

static size_t total_bytes(const struct checkpoints *cs)
{
	size_t bytes = 0;

	for (size_t i = 0; i < cs->n; i++)
		bytes += cs->list[i]->log.bytes + sizeof(struct checkpoint);
	return bytes;
}

/* Drop what is over the limits: each time the checkpoint whose absence makes the shortest
 * interval for its distance from here. */
static void thin(struct checkpoints *cs)
{
	size_t bytes = total_bytes(cs);

	while ((cs->n > cs->max || bytes > cs->budget) && cs->n > cs->pinned + 1) {
		uint64_t now = cs->th->e->steps;
		double best = 1e300;
		size_t at = cs->pinned;
		for (size_t i = cs->pinned; i + 1 < cs->n; i++) {
			uint64_t before = i ? cs->list[i - 1]->pos.steps : cs->th->info->first_steps;
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

void checkpoint_take(struct checkpoints *cs)
{
	struct thread *th = cs->th;
	struct checkpoint *c = checkpoint_newest(cs);
	struct thread_pos pos;

	thread_pos(th, &pos);
	if (c && !thread_pos_cmp(&c->pos, &pos))
		return;
	if (th->div.found || th->damaged)
		return;
	if (cs->n == cs->cap) {
		size_t cap = cs->cap * 2 + 64;
		struct checkpoint **list = realloc(cs->list, cap * sizeof(*list));
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
	c->signals_total = th->signals_total;
	c->last_sysno = th->last_sysno;
	c->last_result = th->last_result;
	c->mark = *thread_mark(th);
	c->space = space_ref(th->space);
	undo_init(&c->log);
	cs->list[cs->n++] = c;
	memview_set_log(cs->mem, &c->log);
	thin(cs);
}

static int to_beginning(struct checkpoints *cs, struct dj_error *err)
{
	checkpoints_clear(cs);
	memview_reset(cs->mem);
	if (thread_restart(cs->th) != THREAD_LIMIT)
		return dj_fail(err, cs->th->err.exit_status, "%s", cs->th->err.text);
	return 0;
}

int checkpoint_back(struct checkpoints *cs, const struct thread_pos *pos, struct dj_error *err)
{
	struct thread *th = cs->th;
	struct emu *e = th->e;

	/* a log that lacks something makes its checkpoint and all before it useless */
	bool failed = false;
	while (cs->n && (failed || thread_pos_cmp(&cs->list[cs->n - 1]->pos, pos) > 0)) {
		struct checkpoint *c = cs->list[--cs->n];
		failed |= c->log.failed;
		memview_set_log(cs->mem, NULL);
		memview_undo(cs->mem, &c->log);
		checkpoint_free(c);
	}
	if (!cs->n || cs->list[cs->n - 1]->log.failed)
		return to_beginning(cs, err);

	struct checkpoint *c = cs->list[cs->n - 1];
	memview_set_log(cs->mem, NULL);
	memview_undo(cs->mem, &c->log);
	undo_free(&c->log);
	memview_set_log(cs->mem, &c->log);
	if (th->space != c->space) {
		/* other code may be at the same addresses */
		space_unref(th->space);
		th->space = space_ref(c->space);
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
	th->events = c->events;
	th->event_steps = c->event_steps;
	th->signals_total = c->signals_total;
	th->last_sysno = c->last_sysno;
	th->last_result = c->last_result;
	th->exited = c->exited;
	th->status = c->status;
	th->div.found = th->damaged = false;
	if (thread_restore_cursor(th, &c->mark))
		return dj_fail(err, th->err.exit_status, "%s", th->err.text);
	return 0;
}
