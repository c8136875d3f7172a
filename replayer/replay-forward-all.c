/*
 * Running forward through several threads.
 *
 * The threads take turns in the order of positions (replay-turns.c), each run by the emulator until
 * its next event is not the next of all. A turn may be a few instructions, so within one there is
 * hardly anything to skip, whatever is known of the ground. Hence leaps: each thread's history is
 * looked at by itself, checkpoint by checkpoint, the one that reaches least far first, until
 * that one has something that may be told. Up to there, by event numbers, nobody has anything, and
 * the moment goes there at once. Ground that nobody knows is covered for that (ground.h), no
 * further than the thread that reaches least far: so no stop waits for more than lies before it.
 */
#include "replayer/ground.h"
#include "replayer/land.h"
#include "replayer/worker.h"

#include <stdlib.h>

#define PAUSE_MOST 256u /* times r->leap_first instructions, between trials that were of no use */

/* ---- leaps --------------------------------------------------------------------------------- */

/* How far a thread's history is known to have nothing to tell. */
struct reach {
	uint32_t thread;
	uint64_t seq; /* it has no position before this event that may have */
	bool fresh;   /* its history begins there */
	bool begun;
	struct rp_thread_pos from; /* where it stands at the moment */
	struct rp_upto at;	   /* there, or at a checkpoint up to which there is nothing */
	struct rp_thread_pos sure; /* the one before that, */
	uint64_t sure_seq;	   /* and the event number there */
};

struct leap {
	uint64_t run;	/* instructions since the program was told to go on */
	uint64_t due;	/* so many of them until the next trial, */
	unsigned pause; /* and, times r->leap_first, from that to the one behind it */
	struct rp_survey survey;
	struct reach *list;
	size_t n;
	uint64_t gone, paid; /* instructions that are passed, and those that were emulated for it */
};

static bool less(const struct reach *a, const struct reach *b)
{
	return a->seq != b->seq ? a->seq < b->seq : a->thread < b->thread;
}

/* All threads that have something left. */
static int gather(struct replay *r, struct leap *l)
{
	l->gone = l->paid = 0;
	l->n = r->turns.n;
	l->list = calloc(l->n + 1, sizeof(*l->list));
	if (!l->list)
		return -1;
	for (size_t i = 0; i < l->n; i++)
		l->list[i] = (struct reach){ .thread = r->turns.heap[i].thread,
					     .seq = r->turns.heap[i].seq,
					     .fresh = r->turns.heap[i].fresh };
	return 0;
}

/* Switch to it, and the first time note where it stands. */
static bool take(struct replay *r, struct reach *p)
{
	if (rp_switch(r, p->thread, NULL))
		return false;
	if (!p->begun) {
		if (p->fresh &&
		    replay_move(r, &(struct rp_thread_pos){ .steps = r->th->info->first_steps },
				NULL))
			return false;
		if (p->thread == r->moment.thread)
			rp_checkpoint_take(r->cs); /* for the way back */
		p->at = rp_upto_here(r);
		p->from = p->sure = p->at.pos;
		p->begun = true;
	}
	return true;
}

/* Ground that is not worth a process, or cannot have one, is emulated, a piece of it. Not much, if
 * nobody is faster meanwhile. */
static bool emulate(struct replay *r, struct leap *l, struct reach *p)
{
	const struct rp_thread_pos to = { .steps = p->at.pos.steps + r->spacing };

	if (l->paid > l->gone / 2 || r->cancelled || !rp_worker_possible(r))
		return false;
	if (rp_land(r, &p->at.pos, false, NULL) ||
	    rp_move_failed(r, replay_run_to(r, &to, 0, false), NULL))
		return false;
	l->paid += r->th->e->steps - p->at.pos.steps;
	rp_checkpoint_take(r->cs);
	return true;
}

/* It has come to its end. */
static bool at_end(struct replay *r, struct reach *p)
{
	struct rp_thread_pos now;

	rp_thread_pos(r->th, &now);
	if (!rp_thread_at_end(r->th) || rp_thread_pos_cmp(&now, &p->at.pos))
		return false;
	p->seq = UINT64_MAX;
	return true;
}

/* The checkpoint behind the one that it has reached, known or found out with `cover`. NULL: there
 * is none; it may have come to its end. */
static const struct rp_checkpoint *next(struct replay *r, struct leap *l, struct reach *p,
					bool cover)
{
	size_t i;

	while ((i = rp_checkpoint_count(r->cs, &p->at.pos)) == r->cs->n) {
		if (at_end(r, p) || !cover)
			return NULL;
		if (rp_ground_more(r, NULL, NULL))
			continue; /* it may be one that lies before */
		if (!emulate(r, l, p))
			return NULL;
		if (rp_checkpoint_count(r->cs, &p->at.pos) == r->cs->n) { /* no room for any */
			at_end(r, p);
			return NULL;
		}
	}
	return r->cs->list[i];
}

/* Whether what lies before a checkpoint, behind the one that was reached, is better looked at in
 * parts. */
static bool in_parts(struct replay *r, struct leap *l, struct reach *p,
		     const struct rp_checkpoint *c)
{
	const struct rp_thread_pos to = c->pos;
	size_t i = rp_checkpoint_count(r->cs, &p->at.pos);

	/* from a full one, so that the thread need not go to the beginning for it */
	if (!i || rp_thread_pos_cmp(&r->cs->list[i - 1]->pos, &p->at.pos) ||
	    !rp_checkpoint_full(r->cs, i))
		return false;
	return rp_survey(r, &l->survey, &p->at.pos, &to) && !r->cancelled;
}

/* One checkpoint further. False: there may be something to tell, or nobody knows. */
static bool further(struct replay *r, struct leap *l, struct reach *p, bool cover)
{
	const struct rp_checkpoint *c;
	struct rp_upto there;

	if (!take(r, p))
		return false;
	for (;;) {
		c = next(r, l, p, cover);
		if (!c)
			return p->seq == UINT64_MAX;
		there = rp_upto_checkpoint(c);
		if (!rp_same_events(r, &p->at, &there))
			return false;
		if (rp_lines_quiet(r, &c->lines))
			break;
		if (!cover || !in_parts(r, l, p, c))
			return false;
	}
	l->gone += p->at.pos.steps - p->sure.steps;
	p->sure = p->at.pos;
	p->sure_seq = p->seq;
	p->at = there;
	p->seq = c->seq;
	return true;
}

/* As far as nobody has anything to tell, and not past the turn of thread `until`: the event number
 * there. */
static uint64_t reach_out(struct replay *r, struct leap *l, uint32_t until, bool cover)
{
	for (;;) {
		struct reach *least = &l->list[0];
		for (size_t i = 1; i < l->n; i++)
			if (less(&l->list[i], least))
				least = &l->list[i];
		if (least->seq == UINT64_MAX || least->thread == until ||
		    !further(r, l, least, cover))
			return least->seq;
	}
}

/* Who has moved is not where the moment has it. The moment's own thread is put back, unless that
 * has come to be another moment. */
static void moved(struct replay *r, const struct leap *l, bool leapt)
{
	struct rp_thread_pos now;

	for (size_t i = 0; i < l->n; i++) {
		const struct reach *p = &l->list[i];
		if (!p->begun || rp_switch(r, p->thread, NULL))
			continue;
		rp_thread_pos(r->th, &now);
		if (!rp_thread_pos_cmp(&now, &p->from))
			continue;
		if (p->thread != r->moment.thread)
			r->threads[p->thread].placed = false;
		else if (!leapt)
			rp_stand_again(r, &p->from);
	}
}

/* Make the last of the checkpoints before event `seq` the moment, behind which its thread has
 * another without anything to tell before it. False: there is none, or it cannot be. */
static bool go(struct replay *r, struct leap *l, uint64_t seq)
{
	const struct reach *best = NULL;

	for (size_t i = 0; i < l->n; i++) {
		const struct reach *p = &l->list[i];
		if (p->begun && rp_thread_pos_cmp(&p->sure, &p->from) > 0 && p->sure_seq < seq &&
		    (!best || p->sure_seq > best->sure_seq))
			best = p;
	}
	if (!best || rp_switch(r, best->thread, NULL) || rp_land(r, &best->sure, false, NULL))
		return false;
	rp_begin_move(r);
	return true;
}

/*
 * Leap, if it is time to try that, which is when all threads wait for their turns. True: the turns
 * have begun anew, at a moment before which there is nothing to tell, or the same; or there is
 * something to tell, which *told says.
 */
static bool leap(struct replay *r, struct leap *l, uint32_t until, struct replay_stop *stop,
		 bool *told)
{
	struct dj_error err = { 0 };
	uint32_t selected = r->selected;
	bool signal_told = r->signal_told, leapt = false;

	if (l->run < l->due || !r->turns.n || r->in_copy || r->observer.kinds)
		return false;
	replay_pos(r, &r->moment);
	if (gather(r, l))
		return false;
	uint64_t seq = reach_out(r, l, until, l->run >= r->ground_first);
	if (!r->cancelled && l->gone >= r->near * l->n)
		leapt = go(r, l, seq);
	if (leapt)
		selected = r->selected;
	moved(r, l, leapt);
	rp_switch(r, selected, NULL);
	r->signal_told = signal_told && !leapt;
	free(l->list);
	l->pause = leapt ? 1 : l->pause < PAUSE_MOST ? 2 * l->pause : l->pause;
	l->due = l->run + l->pause * r->leap_first;
	r->leaps += leapt;
	*told = r->cancelled;
	if (r->cancelled)
		rp_fill(r, stop, REPLAY_INTERRUPTED);
	if (!*told && (*told = rp_turns_begin(r, &err) < 0))
		rp_failed(r, stop, &err);
	return true;
}

/* ---- turns --------------------------------------------------------------------------------- */

/* The thread in hand has come to an event that is another's turn before, or to its end. */
static bool turn_over(const struct replay *r, int res)
{
	return res == THREAD_END || (res == THREAD_EVENT && r->th->event == THREAD_EV_ORDER);
}

/* Run the thread whose turn it is. True: there is something to tell. */
static bool run_turn(struct replay *r, struct leap *l, struct replay_stop *stop)
{
	const uint64_t began = r->th->e->steps;
	bool done;
	int res;

	do
		done = rp_run_forward(r, rp_turns_limit(r), stop, &res);
	while (!done && !turn_over(r, res));
	if (turn_over(r, res))
		done = false;
	l->run += r->th->e->steps - began;
	return done;
}

/* Whoever was interrupted before the event that its turn begins with stands before the moment,
 * which is still where the turn before has ended. */
static void back_to_moment(struct replay *r, const struct replay_pos *moment,
			   struct replay_stop *stop)
{
	struct replay_pos here;

	rp_here(r, &here);
	if (stop->reason != REPLAY_INTERRUPTED || replay_pos_cmp(&here, moment) >= 0)
		return;
	r->threads[r->selected].placed = true;
	rp_switch(r, moment->thread, NULL); /* open: nothing can fail */
	rp_begin_move(r);
	rp_fill(r, stop, REPLAY_INTERRUPTED);
}

bool rp_all_forward(struct replay *r, uint32_t until, struct replay_stop *stop)
{
	struct leap l = { .due = r->leap_first, .pause = 1 };
	struct replay_pos moment;
	struct dj_error err = { 0 };
	int res = rp_turns_begin(r, &err);
	bool told;

	r->untold = false;
	if (res < 0)
		return rp_failed(r, stop, &err), true;
	bool running = !res;
	if (running && r->selected == until) {
		/* it stands before the event that it is to go on with */
		rp_turns_wait(r);
		running = false;
	}
	if (running && until == REPLAY_ALL && rp_signal_first(r, stop))
		return true;
	replay_pos(r, &moment);
	for (;;) {
		if (running) {
			if (run_turn(r, &l, stop))
				return back_to_moment(r, &moment, stop), true;
			rp_turns_wait(r);
		}
		running = true;
		bool tried = leap(r, &l, until, stop, &told);
		replay_pos(r, &moment);
		if (tried && told)
			return true;
		if (tried)
			continue;
		r->moment = moment;
		const struct rp_turn *next = rp_turns_next(r, &err);
		if (!next && err.text[0]) {
			rp_switch(r, r->moment.thread, NULL);
			return rp_failed(r, stop, &err), true;
		}
		if (!next)
			return rp_fill(r, stop, REPLAY_END), true;
		if (next->thread == until)
			return false;
		if (next->fresh && rp_position_condition(r, stop, true))
			return true;
	}
}
