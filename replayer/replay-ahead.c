/*
 * Going through history while nobody waits.
 *
 * Checkpoints, and what is known of the intervals between them, come from replaying. Who looks at a
 * moment for a while gives time for that: the thread in hand is run on from its last checkpoint,
 * then the others that are open, and each is put back to where it stood. Where another process can
 * do that (ground.h) its checkpoints are taken in. Nobody can tell but by what is quick afterwards.
 */
#include "replayer/ground.h"
#include "replayer/land.h"

#define KEPT ((size_t)64 << 20) /* bytes of memory at checkpoints that are to be kept */

/* Run the thread in hand on to its end. False: somebody waits. */
static bool run_ahead(struct replay *r)
{
	const struct rp_thread_pos far = { .steps = UINT64_MAX };

	if (r->cs->n && rp_checkpoint_go(r->cs, &r->cs->list[r->cs->n - 1]->pos, NULL))
		return true;
	r->th->e->stop_at = NULL;
	enum rp_thread_stop res = replay_run_to(r, &far, 0, false);
	rp_checkpoint_take(r->cs);
	r->cs->whole = res != THREAD_INTERRUPTED;
	return r->cs->whole;
}

/* The first full checkpoint behind which there is none for long, up to the last checkpoint, by its
 * number; 0: there is none such. */
static size_t sparse(const struct replay *r)
{
	const struct rp_checkpoints *cs = r->cs;
	uint64_t end = cs->list[cs->n - 1]->pos.steps;
	size_t found = 0;

	for (size_t n = cs->n; (n = rp_checkpoint_full(cs, n)) > 0; n--) {
		if (end - cs->list[n - 1]->pos.steps > rp_sparse(r))
			found = n;
		end = cs->list[n - 1]->pos.steps;
	}
	return found;
}

/* Where little memory was kept, have more full checkpoints made. False: somebody waits. */
static bool fill_ahead(struct replay *r, bool (*busy)(void *ctx), void *ctx)
{
	struct rp_thread_pos here;
	bool waits = false;

	rp_thread_pos(r->th, &here);
	rp_checkpoint_take(r->cs);
	r->cs->anchored = true;
	r->cs->anchor = here;
	while (!r->cs->filled && !waits) {
		const struct rp_thread_pos end = r->cs->list[r->cs->n - 1]->pos;
		size_t n = sparse(r);
		/* one that somebody has had begun further on has left out what lies before */
		waits = n && rp_ground_fill(r, n, &end, busy, ctx);
		n = waits ? 0 : sparse(r);
		r->cs->filled = !waits && (!n || rp_ground_filled(r, n));
	}
	r->cs->anchored = false;
	rp_land(r, &here, false, NULL);
	return !waits;
}

/* The same, and back. */
static bool thread_ahead(struct replay *r, bool (*busy)(void *ctx), void *ctx)
{
	struct rp_patience *p = &r->patience;
	bool (*poll)(void *) = p->poll;
	void *poll_ctx = p->ctx;
	struct rp_thread_pos here;
	bool done;

	while (rp_ground_more(r, busy, ctx))
		;
	if (rp_ground_likely(r))
		return false; /* somebody waits */
	if (r->cs->indexed && !r->cs->filled && !fill_ahead(r, busy, ctx))
		return false;
	rp_thread_pos(r->th, &here);
	rp_checkpoint_take(r->cs);
	if (r->cs->whole || !rp_checkpoint_here(r->cs))
		return true;
	p->poll = busy;
	p->ctx = ctx;
	r->mv->watching = false;
	r->cs->anchored = true;
	r->cs->anchor = here;
	done = run_ahead(r);
	r->cs->anchored = false;
	p->poll = NULL; /* it has to stand where it stood, whoever is impatient */
	replay_move(r, &here, NULL);
	p->poll = poll;
	p->ctx = poll_ctx;
	return done;
}

void replay_ahead(struct replay *r, bool (*busy)(void *ctx), void *ctx)
{
	uint32_t selected = r->selected;
	bool told = r->signal_told, cancelled = r->cancelled, more = !r->in_copy;

	for (uint32_t i = 0; more && i < r->nthreads; i++) {
		/* the one in hand first */
		uint32_t thread = !i ? selected : i <= selected ? i - 1 : i;
		if (!r->threads[thread].th)
			continue;
		rp_switch(r, thread, NULL);
		more = thread_ahead(r, busy, ctx);
	}
	rp_switch(r, selected, NULL);
	r->signal_told = told;
	r->cancelled = cancelled;
}

int replay_cover(struct replay *r, struct dj_error *err)
{
	/* of the memory little is kept */
	r->budget = r->budget < KEPT ? r->budget : KEPT;
	r->cancelled = false;
	for (uint32_t i = 0; i < r->nthreads; i++) {
		struct replay_pos end = { .thread = i, .steps = UINT64_MAX };
		if (r->threads[i].th)
			r->threads[i].cs.budget = r->budget;
		if (replay_seek(r, &end, err))
			return r->cancelled ? 1 : -1;
	}
	return 0;
}

void replay_ahead_progress(struct replay *r, uint64_t *done, uint64_t *all)
{
	*done = *all = 0;
	for (uint32_t i = 0; i < r->nthreads; i++) {
		const struct dj_thread_info *info = dj_trace_thread(r->t, i);
		const struct rp_checkpoints *cs = &r->threads[i].cs;
		uint64_t n = info->last_steps - info->first_steps;
		*all += n;
		if (!r->threads[i].th)
			continue;
		uint64_t upto = cs->n ? cs->list[cs->n - 1]->pos.steps - info->first_steps : 0;
		*done += cs->whole || upto > n ? n : upto;
	}
}
