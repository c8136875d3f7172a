/*
 * Covering ground, in the process that does it: see ground.h.
 *
 * It goes on in generated code from checkpoint to checkpoint. Registers are compared with the
 * recording's digests on the way; what lies before one that was right is handed back. When
 * something is wrong (a digest, an exception, an access that belongs to no mapping) it goes back to
 * what was confirmed last and has the emulator do it.
 */
#include "replayer/ground.h"
#include "replayer/trail.h"
#include "replayer/wire.h"
#include "replayer/worker.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define MOST 64u /* times the wanted distance of checkpoints */
/* The same, only because they take long: taking AVERAGE of them takes more than one of SHARE of the
 * time of getting there. In FAR instructions no search and no move takes longer than anybody wants
 * to wait; with twice as many the worst of 1,000 moves took 0.2 to 0.3 s. */
#define SLOWER	4u
#define SLOWEST 16u /* if that is not farther than FAR; more would be rp_sparse() */
#define FAR	128000000u
#define SHARE	8u
#define AVERAGE 4u

struct work {
	struct replay *r;
	struct rp_thread *th;
	struct rp_checkpoints *cs; /* from the last full one that is confirmed on */
	struct fast *fast;
	int fd;
	uint64_t step, step_least; /* between full ones, and all of them */
	uint64_t bytes;		   /* handed back */
	size_t size;		   /* of the last full one, as a message */
	unsigned slow;	    /* they are at least so many times as far apart as they should be */
	unsigned counted;   /* checkpoints since that was changed, */
	uint64_t ran, took; /* and nanoseconds to get to them and to take them */
	uint64_t digests;   /* compared when the last checkpoint was confirmed */
	uint64_t emulate;   /* up to this step the emulator does it, */
	uint64_t longer;    /* and so far beyond when it has to again */
	size_t confirmed;   /* so many of the list have been handed back */
	uint64_t last;	    /* the position of the last of them */
	struct rp_space *sent;
	struct rp_wire wire;
};

/* ---- getting ready --------------------------------------------------------------------------- */

/* Only the checkpoint where the thread stands matters from here on. The others are left where they
 * are: to free them is to touch all of them. */
static bool keep_last(struct rp_checkpoints *cs)
{
	struct rp_checkpoint **list = malloc(64 * sizeof(*list));

	if (!list || !cs->base)
		return false;
	list[0] = cs->list[cs->base - 1];
	cs->list = list;
	cs->cap = 64;
	cs->n = cs->base = 1;
	cs->held = true; /* what others go on from stays full */
	cs->hold = cs->hold_full = list[0]->pos;
	return true;
}

/* ---- handing back ---------------------------------------------------------------------------- */

/* The checkpoints up to the n-th are right. */
static bool hand_back(struct work *w, size_t n)
{
	for (size_t i = w->confirmed; i < n; i++) {
		const struct rp_checkpoint *c = w->cs->list[i];
		rp_wire_put(&w->wire, c, w->th->e, w->sent);
		if (w->wire.failed || !rp_work_say(w->fd, w->wire.bytes, w->wire.n))
			return false;
		w->bytes += w->wire.n;
		if (!c->light)
			w->size = w->wire.n;
		w->last = c->pos.steps;
		rp_space_unref(w->sent);
		w->sent = rp_space_ref(c->space);
	}
	size_t gone = rp_checkpoint_full(w->cs, n) - 1;
	rp_checkpoints_shed(w->cs, gone);
	w->cs->hold_full = w->cs->list[0]->pos;
	w->confirmed = n - gone;
	w->digests = w->th->count_digests;
	return true;
}

/* ---- going on -------------------------------------------------------------------------------- */

/* The processor's time, in nanoseconds: how busy the machine is makes no difference. */
static uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* Back to the last full checkpoint up to `to`; from there to where the thread is now, and `beyond`,
 * the emulator does it. False: it was the emulator. */
static bool go_back(struct work *w, struct rp_thread_pos to, uint64_t beyond)
{
	uint64_t wrong = w->th->e->steps;

	if (!w->th->fast)
		return false;
	rp_trail_leave(w->th->mem);
	if (w->th->mem->lost || rp_checkpoint_go(w->cs, &to, NULL))
		return false;
	rp_checkpoints_cut(w->cs);
	if (w->confirmed > w->cs->n) /* the next is taken behind those that were handed back */
		w->confirmed = w->cs->n;
	w->digests =
		w->th->count_digests; /* what was compared so far confirms nothing from here on */
	w->th->halted = THREAD_LIMIT;
	w->th->fast = NULL;
	w->emulate = (wrong > to.steps ? wrong : to.steps) + beyond;
	return true;
}

/* Translated code went wrong, somewhere behind the last digest. It may have met memory of which
 * there are no notes. */
static bool redo_all(struct work *w)
{
	if (!go_back(w, w->cs->list[0]->pos, w->step))
		return false;
	rp_trail_tell_apart(w->th->mem);
	return true;
}

/* What was noted since checkpoint n, counted from 1, is about one of two mappings, and nobody knows
 * which; all else is right. Where there are two such mappings that are in use it will be so again,
 * so they are told apart from now on. Where that is of no use the emulator goes on for a while,
 * each time for longer. */
static bool redo_last(struct work *w, size_t n)
{
	w->longer = w->longer ? 2 * w->longer : w->slow * w->step_least;
	if (!go_back(w, w->cs->list[n - 1]->pos, w->longer))
		return false;
	if (rp_trail_tell_apart(w->th->mem))
		w->th->fast = w->fast;
	return true;
}

/* How many times as far apart they may be for that. */
static uint64_t slowest(const struct work *w)
{
	uint64_t n = FAR / w->step_least;

	return n < SLOWER ? SLOWER : n < SLOWEST ? n : SLOWEST;
}

/* Taking checkpoints should take little of the time of getting there: nanoseconds. */
static void slow_down(struct work *w, uint64_t ran, uint64_t took)
{
	w->ran += ran;
	w->took += took;
	if (++w->counted < AVERAGE)
		return;
	if (2 * w->slow <= slowest(w) && w->took > w->ran / SHARE)
		w->slow *= 2;
	w->ran = w->took = w->counted = 0;
}

/* How far apart full checkpoints are from here on. If each is as large as the last one was, they
 * should fit into the budget up to the end of history. */
static void pace(struct work *w)
{
	const double left = (double)w->th->end_steps - (double)w->th->e->steps;
	const double budget = (double)w->r->budget;
	double room = budget * 3 / 4 - (double)w->bytes;

	if (room < budget / 16)
		room = budget / 16;
	double step = left * (double)w->size / room;
	double least = (double)(w->slow * w->step_least), most = (double)(MOST * w->step_least);
	w->step = (uint64_t)(step < least ? least : step < most ? step : most);
}

/* How many instructions have passed since the last full checkpoint. */
static uint64_t since_full(const struct work *w)
{
	return w->th->e->steps - w->cs->list[rp_checkpoint_full(w->cs, w->cs->n) - 1]->pos.steps;
}

/* One more checkpoint. 1: history ends here; -1: it is not known any further. */
static int next(struct work *w)
{
	uint64_t began = now(), ran, from = w->th->e->steps;
	struct rp_thread_pos to = { .steps = w->last > from ? w->last : from };
	size_t had = w->cs->n;

	to.steps += w->slow * w->step_least;
	enum rp_thread_stop res = rp_thread_run(w->th, &to, 0);
	ran = now();
	if (res != THREAD_LIMIT && res != THREAD_END)
		return redo_all(w) ? 0 : -1;
	if (res == THREAD_END || since_full(w) >= w->step)
		rp_checkpoint_take(w->cs);
	else
		rp_checkpoint_note(w->cs);
	if (rp_trail_strays(w->th->mem))
		return redo_last(w, had) ? 0 : -1;
	if (w->cs->n == had && res != THREAD_END)
		return -1; /* no memory */
	slow_down(w, ran - began, now() - ran);
	pace(w);
	if (w->th->e->steps >= w->emulate)
		w->th->fast = w->fast;
	return res == THREAD_END;
}

void rp_ground_work(struct replay *r, int in, int fd)
{
	const uint64_t step = rp_spacing(r);
	struct work w = { .r = r,
			  .th = r->th,
			  .cs = r->cs,
			  .fd = fd,
			  .step = step,
			  .step_least = step,
			  .slow = 1,
			  .confirmed = 1,
			  .sent = rp_space_ref(r->th->space) };
	int res = 0;

	rp_work_begin(r, in, fd);
	if (!keep_last(r->cs))
		_exit(1);
	w.last = w.th->e->steps;
	w.fast = r->th->fast;
	w.digests = w.th->count_digests;
	while (!res) {
		res = next(&w);
		if (res < 0)
			break;
		/* of the last one nothing is known yet, but at the end, where nothing more comes */
		if ((res || w.th->count_digests != w.digests) &&
		    !hand_back(&w, w.cs->n - (res ? 0 : 1)))
			break;
	}
	_exit(res <= 0);
}
