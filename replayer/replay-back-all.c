/*
 * Running backward through several threads.
 *
 * What comes last before the moment, in the one order of positions, is what comes last in one of
 * the threads. So each thread's history is searched back by itself, interval by interval
 * (replay-back.c), that whose unsearched part reaches furthest first; and once something was found,
 * no thread is searched further back than that. Positions of different threads are told apart by
 * their event number and the thread's alone. A thread that need not be searched is not replayed
 * either.
 *
 * A condition on the way to a position, such as a changed watchpoint, is stopped for before the
 * instruction. If that is an ordered event, others may have done a lot since the thread's position
 * before it: none of that is passed. The moment is then the last position of all that sorts before
 * the event, which another thread's may be, and the selected thread stands where it did.
 */
#include "replayer/replay-internal.h"

#include <stdlib.h>
#include <string.h>

/* Where segments sort. */
struct key {
	uint64_t seq;
	uint32_t thread;
};

static bool later(struct key a, struct key b)
{
	return a.seq != b.seq ? a.seq > b.seq : a.thread > b.thread;
}

struct party {
	struct rp_hunt h;
	uint32_t thread;
	uint64_t upto; /* the last event it has passed at the moment, or a higher number */
	bool began, done;
};

struct parties {
	struct party *list;
	size_t n;
	struct party *best; /* who has found what sorts last so far */
	struct party *now;  /* who is searched */
};

static struct key unsearched(const struct party *p)
{
	return (struct key){ p->began ? p->h.seq : p->upto, p->thread };
}

static struct key found_at(const struct party *p)
{
	return (struct key){ p->h.last.seq, p->thread };
}

/* All threads of the scope but `except` that may have something before r->moment. */
static int gather(struct replay *r, uint32_t except, struct parties *all)
{
	*all = (struct parties){ .list = calloc(r->nthreads, sizeof(*all->list)) };
	if (!all->list)
		return -1;
	for (uint32_t i = 0; i < r->nthreads; i++) {
		struct party *p = &all->list[all->n];
		uint64_t last;
		if (i == except || !rp_in_scope(r, i))
			continue;
		*p = (struct party){ .thread = i, .upto = r->moment.seq };
		if (i != r->moment.thread) {
			if (!rp_begun(r, &r->moment, i, &p->upto))
				continue;
			if (rp_last_seq(r, i, &last) && last < p->upto)
				p->upto = last;
		}
		all->n++;
	}
	return 0;
}

/* Switch to a thread that has not been looked at yet, and put it where the moment has it. Not 0:
 * that cannot be. */
static int join(struct replay *r, struct party *p, struct dj_error *err)
{
	bool moment = p->thread == r->moment.thread;

	if (moment ? rp_switch(r, p->thread, err) : rp_place_upto(r, p->thread, p->upto, err))
		return -1;
	rp_hunt_begin(r, &p->h, !moment || r->untold);
	p->began = true;
	return 0;
}

static void search(struct replay *r, struct parties *all, struct party *p, struct dj_error *err,
		   enum rp_thread_stop *res)
{
	if (!p->began) {
		/* what cannot be replayed up to the moment has been told, or was passed over */
		if (join(r, p, err))
			p->done = true;
		*res = r->cancelled ? THREAD_INTERRUPTED : THREAD_LIMIT;
		return;
	}
	rp_switch(r, p->thread, NULL); /* open: nothing can fail */
	r->threads[p->thread].placed = false;
	*res = rp_hunt_on(r, &p->h, err);
	if (*res == THREAD_END) {
		p->done = true;
		*res = THREAD_LIMIT;
	}
	if (*res != THREAD_LIMIT || !p->h.last.found)
		return;
	p->done = true;
	if (!all->best || later(found_at(p), found_at(all->best)))
		all->best = p;
}

/* Look for what comes last before the moment; and after `low`, if that is not NULL. THREAD_LIMIT:
 * what there is, is in all->best. */
static enum rp_thread_stop hunt(struct replay *r, struct parties *all, const struct key *low,
				struct dj_error *err)
{
	enum rp_thread_stop res = THREAD_LIMIT;

	while (res == THREAD_LIMIT) {
		struct party *next = NULL;
		for (size_t i = 0; i < all->n; i++) {
			struct party *p = &all->list[i];
			if (!p->done && (!next || later(unsearched(p), unsearched(next))))
				next = p;
		}
		if (!next || (low && !later(unsearched(next), *low)) ||
		    (all->best && !later(unsearched(next), found_at(all->best))))
			break;
		all->now = next;
		search(r, all, next, err, &res);
	}
	if (all->best && low && !later(found_at(all->best), *low))
		all->best = NULL;
	return res;
}

/* The thread in hand stands before its event `seq`: make the last position before that, whosever it
 * is, the moment. False: that was interrupted, and whose it is is not known. */
static bool moment_before(struct replay *r, uint64_t seq)
{
	struct replay_pos here, last;
	uint32_t thread = r->selected;

	rp_here(r, &last);
	if (last.seq == seq)
		return true; /* nothing of anybody's is between */
	for (uint32_t i = 0; i < r->nthreads; i++) {
		uint64_t upto = i < thread ? seq : seq - 1, end;
		if (i == thread || !rp_in_scope(r, i) ||
		    rp_thread_first_seq(dj_trace_thread(r->t, i)) > upto)
			continue;
		if (rp_last_seq(r, i, &end) && end < upto)
			upto = end;
		/* the most that its position can be */
		if (!later((struct key){ upto, i }, (struct key){ last.seq, last.thread }))
			continue;
		bool placed = !rp_place_upto(r, i, upto, NULL);
		if (r->cancelled) {
			rp_switch(r, thread, NULL);
			return false;
		}
		if (!placed)
			continue;
		rp_here(r, &here);
		if (replay_pos_cmp(&here, &last) > 0)
			last = here;
	}
	rp_switch(r, thread, NULL);
	r->threads[thread].placed = true;
	r->moment = last;
	return true;
}

/* The search was interrupted in a thread of which no other reaches further: the moment is where
 * that has come to. */
static void leave(struct replay *r, const struct party *p)
{
	struct rp_thread_pos now;

	rp_switch(r, p->thread, NULL); /* open: nothing can fail */
	rp_hunt_leave(r, &p->h);
	r->moment.thread = p->thread;
	r->threads[p->thread].placed = false;
	rp_thread_pos(r->th, &now);
	r->untold = p->h.inclusive && !rp_thread_pos_cmp(&now, &p->h.origin);
}

/* Stop where the search has led to. False: that turns out to be nothing; the moment is there. */
static bool stop_there(struct replay *r, struct party *p, struct replay_stop *stop)
{
	struct rp_last *l = &p->h.last;
	bool before = l->stop.reason == REPLAY_WATCH || l->before;

	rp_switch(r, p->thread, NULL);
	r->moment.thread = p->thread;
	r->threads[p->thread].placed = r->untold = false;
	rp_stop_at_last(r, l, stop);
	bool there = stop->reason != REPLAY_FAILED && stop->reason != REPLAY_INTERRUPTED;
	if (there && before && !moment_before(r, l->seq)) {
		stop->reason = REPLAY_INTERRUPTED;
		there = false;
	}
	if (there) {
		replay_pos(r, &stop->pos);
		r->untold = r->moment.thread != p->thread;
		if (!rp_watch_is_hit(r, &l->unsure, stop)) {
			r->untold = true;
			return false;
		}
	}
	if (stop->reason == REPLAY_INTERRUPTED) {
		leave(r, p);
		rp_fill(r, stop, REPLAY_INTERRUPTED);
	}
	return true;
}

/* To where the first of the threads begins. */
static void stop_at_beginning(struct replay *r, struct replay_stop *stop)
{
	struct dj_error err = { 0 };
	uint32_t first = r->selected;

	for (uint32_t i = r->nthreads; i-- > 0;)
		if (rp_in_scope(r, i) && rp_thread_first_seq(dj_trace_thread(r->t, i)) <=
						 rp_thread_first_seq(dj_trace_thread(r->t, first)))
			first = i;
	if (rp_switch(r, first, &err)) {
		rp_failed(r, stop, &err);
		return;
	}
	r->moment.thread = first;
	r->threads[first].placed = false;
	if (replay_move(r, &(struct rp_thread_pos){ .steps = r->th->info->first_steps }, &err))
		rp_failed(r, stop, &err);
	else
		rp_fill(r, stop, REPLAY_BEGIN);
}

/* A search ended without an answer. */
static void gave_up(struct replay *r, enum rp_thread_stop res, const struct parties *all,
		    const struct dj_error *err, struct replay_stop *stop)
{
	struct party *p = all->now;

	if (res != THREAD_INTERRUPTED) {
		r->moment.thread = r->selected;
		rp_failed(r, stop, err);
		return;
	}
	if (!p->began) {
		/* it is anywhere: the moment stays, and its thread goes back there */
		p = NULL;
		for (size_t i = 0; i < all->n; i++)
			if (all->list[i].thread == r->moment.thread && all->list[i].began)
				p = &all->list[i];
		if (p)
			p->h.clear = p->h.origin;
	}
	if (p)
		leave(r, p);
	else
		rp_switch(r, r->moment.thread, NULL);
	rp_fill(r, stop, REPLAY_INTERRUPTED);
}

/* Go to what comes last before the moment in any thread of the scope but `except`; and after `low`,
 * if that is not NULL. False: there is nothing. */
static bool find_last(struct replay *r, uint32_t except, const struct key *low,
		      struct replay_stop *stop)
{
	for (;;) {
		enum rp_thread_stop res = THREAD_FAILED;
		struct dj_error err = { .exit_status = 1, .text = "out of memory" };
		struct parties all;
		bool done = true, found = true;

		if (!gather(r, except, &all))
			res = hunt(r, &all, low, &err);
		if (res != THREAD_LIMIT)
			gave_up(r, res, &all, &err, stop);
		else if (all.best)
			done = stop_there(r, all.best, stop);
		else
			found = false;
		free(all.list);
		if (done)
			return found;
	}
}

void rp_continue_all_backward(struct replay *r, struct replay_stop *stop)
{
	replay_pos(r, &r->moment);
	r->signal_told = false;
	rp_watch_back(r);
	if (!find_last(r, REPLAY_ALL, NULL, stop))
		stop_at_beginning(r, stop);
	rp_watch_own(r);
}

/* Whether the step before the thread in hand's position was an ordered event. */
static bool after_event(const struct replay *r)
{
	struct replay_pos here;

	rp_here(r, &here);
	return !here.within && !here.rep;
}

/* The thread in hand is `thread` again, and stands at `to`, which is the moment. */
static void settle_there(struct replay *r, uint32_t thread, const struct rp_thread_pos *to,
			 struct replay_stop *stop)
{
	rp_switch(r, thread, NULL);
	r->threads[thread].placed = false;
	r->moment.thread = thread;
	r->untold = false;
	if (replay_move(r, to, &stop->err))
		stop->reason = r->cancelled ? REPLAY_INTERRUPTED : REPLAY_FAILED;
	replay_pos(r, &stop->pos);
}

/* A step back of thread `thread` that was interrupted, wherever that has left it, is undone. */
static void undo(struct replay *r, uint32_t thread, const struct rp_thread_pos *at,
		 struct replay_stop *stop)
{
	rp_switch(r, thread, NULL); /* open: nothing can fail */
	r->threads[thread].placed = false;
	r->moment.thread = thread;
	r->untold = false;
	rp_stand_if_near(r, at);
	rp_fill(r, stop, REPLAY_INTERRUPTED);
}

/* The selected thread's step back takes it across an event: others may have something to tell of
 * what lies between there and the moment. */
static void step_across(struct replay *r, struct replay_stop *stop)
{
	uint32_t thread = r->selected;
	struct replay_stop other = { 0 };
	struct rp_thread_pos at, to;
	struct replay_pos from, here;

	replay_pos(r, &r->moment);
	rp_here(r, &from);
	rp_thread_pos(r->th, &at);
	rp_step_backward(r, stop);
	struct rp_memview_touches unsure = r->mv->hit.unsure;
	r->threads[thread].placed = false;
	if (stop->reason == REPLAY_FAILED || stop->reason == REPLAY_INTERRUPTED) {
		r->moment.thread = thread;
		return;
	}
	rp_here(r, &here);
	rp_thread_pos(r->th, &to);
	if (stop->reason == REPLAY_WATCH) {
		/* what the instruction does comes to pass where it leads to */
		if (find_last(r, thread, &(struct key){ from.seq, thread }, &other)) {
			*stop = other;
			return;
		}
		settle_there(r, thread, &to, stop);
		if (stop->reason == REPLAY_FAILED)
			return;
		if (stop->reason == REPLAY_INTERRUPTED || !moment_before(r, from.seq)) {
			rp_stand_again(r, &at); /* one step, which is to be undone again */
			rp_fill(r, stop, REPLAY_INTERRUPTED);
			return;
		}
		replay_pos(r, &stop->pos);
		r->untold = r->moment.thread != thread;
		if (rp_watch_is_hit(r, &unsure, stop))
			return;
		r->untold = true;
		rp_fill(r, stop, REPLAY_STEPPED);
	}
	if (find_last(r, thread, &(struct key){ here.seq, thread }, &other))
		*stop = other;
	else
		settle_there(r, thread, &to, stop);
}

void rp_step_all_backward(struct replay *r, struct replay_stop *stop)
{
	const uint32_t thread = r->selected;
	bool alone = rp_alone(r);
	struct rp_thread_pos at;

	rp_thread_pos(r->th, &at);
	if (!alone)
		rp_watch_back(r);
	if (!alone && rp_curious(r) && (r->selected != r->moment.thread || after_event(r))) {
		step_across(r, stop);
	} else {
		rp_begin_move(r);
		rp_step_backward(r, stop);
		if (stop->reason == REPLAY_WATCH && !alone &&
		    !rp_watch_is_hit(r, &r->mv->hit.unsure, stop))
			stop->reason = REPLAY_STEPPED;
	}
	if (stop->reason == REPLAY_INTERRUPTED)
		undo(r, thread, &at, stop);
	rp_watch_own(r);
}
