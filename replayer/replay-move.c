/*
 * Moving to a known position: seeking, one step back.
 *
 * That is going to the last checkpoint before the wanted position, unless it is behind the thread
 * and the position before it, and running from there. Going back leaves new checkpoints ever denser
 * towards the position: whoever goes back once usually goes back again.
 */
#include "replayer/ground.h"
#include "replayer/keep.h"
#include "replayer/land.h"

#include <string.h>

#define SLICE 200000u /* instructions between two looks at interrupts: a few milliseconds */
#define CLOSE 64u     /* instructions from a checkpoint that need no further one between */
#define WAY   400000u /* that the emulator goes without leaving a checkpoint near the end of it, */
#define NEAR  20000u  /* so near: whoever looks at a place often steps back there */
/* Instructions for which the emulator takes less than a tenth of a second. */
#define BACK 8000000u

/* How far apart checkpoints are at most: so that there is room for all of the thread's history. */
uint64_t rp_spacing(const struct replay *r)
{
	const struct rp_thread *th = r->th;
	uint64_t even = (th->end_steps - th->info->first_steps) / (r->cs->max - r->cs->max / 4);

	return even > r->spacing ? even : r->spacing;
}

/* How far to run before the next checkpoint or look around. One that is overdue was not wanted, or
 * could not be had. */
static uint64_t slice(struct replay *r, uint64_t left, bool dense)
{
	const struct rp_checkpoint *c = rp_checkpoint_last(r->cs);
	uint64_t last = c ? c->pos.steps : r->th->info->first_steps, now = r->th->e->steps;
	uint64_t spacing = rp_spacing(r);
	uint64_t due = last + spacing > now ? last + spacing - now : spacing;
	uint64_t n = left < SLICE ? left : SLICE;

	if (dense && left > CLOSE && n > left / 2)
		n = left / 2;
	return n < due ? n : due;
}

/* Whether a checkpoint here is worth its while, on the way to `to`. */
static bool wanted_here(const struct replay *r, const struct rp_thread_pos *to, bool dense)
{
	const struct rp_checkpoint *c = rp_checkpoint_last(r->cs),
				   *next = rp_checkpoint_next(r->cs);
	uint64_t now = r->th->e->steps, last = c ? c->pos.steps : r->th->info->first_steps;
	uint64_t since = now - last;

	/* there is one soon */
	if (next && !next->light && rp_thread_pos_cmp(&next->pos, to) <= 0 &&
	    next->pos.steps - now <= since)
		return false;
	return since >= rp_spacing(r) || (dense && to->steps - now <= since);
}

enum rp_thread_stop replay_run_to(struct replay *r, const struct rp_thread_pos *to, unsigned events,
				  bool dense)
{
	struct rp_thread_pos now, part, from;

	rp_thread_pos(r->th, &from);
	for (;;) {
		rp_thread_pos(r->th, &now);
		if (rp_thread_pos_cmp(&now, to) >= 0)
			return THREAD_LIMIT;
		uint64_t left = to->steps - now.steps;
		part = *to;
		if (left) {
			uint64_t n = slice(r, left, dense);
			if (n < left)
				part = (struct rp_thread_pos){ .steps = now.steps + n };
		}
		enum rp_thread_stop res = rp_thread_run(r->th, &part, events);
		if (res == THREAD_FAILED && rp_keep_refuse(r, &from))
			continue;
		if (res != THREAD_LIMIT)
			return res;
		if (part.steps == to->steps)
			return THREAD_LIMIT;
		if (!r->in_copy && wanted_here(r, to, dense))
			rp_checkpoint_take(r->cs);
	}
}

enum rp_thread_stop rp_pass_to(struct replay *r, const struct rp_thread_pos *to, unsigned events)
{
	struct rp_thread_pos from;
	enum rp_thread_stop res;

	rp_thread_pos(r->th, &from);
	if (rp_thread_pos_cmp(&from, to) >= 0)
		return THREAD_LIMIT;
	do
		res = rp_thread_run(r->th, to, events);
	while (res == THREAD_FAILED && rp_keep_refuse(r, &from));
	return res;
}

/* Whether there is a checkpoint on the way that is quicker gone to than run to. */
static bool worth_going(const struct replay *r, const struct rp_thread_pos *to)
{
	size_t n = r->in_copy ? 0 : rp_checkpoint_count(r->cs, to);

	return n && r->cs->list[n - 1]->pos.steps > r->th->e->steps + r->near;
}

/* Whether there is much to be covered on the way. */
static bool far_ahead(const struct replay *r, const struct rp_thread_pos *to)
{
	uint64_t upto = r->th->e->steps, end = r->th->end_steps;

	if (r->cs->n && r->cs->list[r->cs->n - 1]->pos.steps > upto)
		upto = r->cs->list[r->cs->n - 1]->pos.steps;
	if (to->steps < end)
		end = to->steps;
	return end > upto && end - upto >= r->ground_worth;
}

int replay_move(struct replay *r, const struct rp_thread_pos *to, struct dj_error *err)
{
	struct rp_thread_pos now;
	bool back;

	r->mv->watching = false;
	r->signal_told = false;
	rp_thread_pos(r->th, &now);
	back = rp_thread_pos_cmp(to, &now) < 0;
	if (!back && far_ahead(r, to) && !rp_ground_cover(r, to))
		return dj_fail(err, 1, "interrupted");
	if ((back || worth_going(r, to)) && rp_land_before(r, to, back, err))
		return -1;
	bool (*stop_at)(void *, struct emu *) = r->th->e->stop_at;
	r->th->e->stop_at = NULL;
	enum rp_thread_stop res = THREAD_LIMIT;
	if (!back && !r->in_copy && to->steps > r->th->e->steps + WAY) {
		res = replay_run_to(r, &(struct rp_thread_pos){ .steps = to->steps - NEAR }, 0,
				    false);
		if (res == THREAD_LIMIT)
			rp_checkpoint_take(r->cs);
	}
	if (res == THREAD_LIMIT)
		res = replay_run_to(r, to, 0, back);
	r->th->e->stop_at = stop_at;
	return rp_move_failed(r, res, err);
}

static bool overdue(void *ctx)
{
	return rp_patience_now() >= *(const uint64_t *)ctx;
}

/* From the last full checkpoint to `here`, whoever is impatient; until `poll` says that it takes
 * too long, or so many instructions have been executed. */
static void stand(struct replay *r, const struct rp_thread_pos *here, bool (*poll)(void *),
		  void *ctx, uint64_t allowance)
{
	const struct rp_patience patience = r->patience;
	bool (*stop_at)(void *, struct emu *) = r->th->e->stop_at;
	const uint64_t seq_stop = r->th->seq_stop;

	r->patience.poll = poll;
	r->patience.ctx = ctx;
	r->patience.allowance = allowance;
	r->th->e->stop_at = NULL;
	r->th->seq_stop = UINT64_MAX;
	/* there is a full checkpoint, unless an index was refused */
	if (!rp_checkpoint_go(r->cs, here, NULL))
		replay_run_to(r, here, 0, false);
	r->patience.poll = patience.poll;
	r->patience.ctx = patience.ctx;
	r->patience.allowance = patience.allowance;
	r->th->e->stop_at = stop_at;
	r->th->seq_stop = seq_stop;
}

void rp_stand_again(struct replay *r, const struct rp_thread_pos *here)
{
	stand(r, here, NULL, NULL, UINT64_MAX);
}

void rp_stand_if_near(struct replay *r, const struct rp_thread_pos *here)
{
	struct rp_thread_pos now;

	rp_thread_pos(r->th, &now);
	if (rp_thread_pos_cmp(&now, here))
		stand(r, here, NULL, NULL, BACK);
}

void rp_stand_soon(struct replay *r, const struct rp_thread_pos *here, unsigned ms)
{
	uint64_t end = rp_patience_now() + ms;

	stand(r, here, overdue, &end, UINT64_MAX);
}

int rp_move_failed(struct replay *r, enum rp_thread_stop res, struct dj_error *err)
{
	if (res == THREAD_FAILED)
		return dj_fail(err, r->th->err.exit_status, "%s", r->th->err.text);
	if (res != THREAD_INTERRUPTED)
		return 0;
	r->cancelled = true;
	return dj_fail(err, 1, "interrupted");
}

/* From the start of an instruction, (s, g, 0), to the last position before (s+1, 0, 0). */
static int last_within(struct replay *r, const struct rp_thread_pos *end, struct dj_error *err)
{
	for (;;) {
		struct rp_thread *th = r->th;
		struct rp_thread_pos start, now;
		struct insn in;
		const struct dj_record *sig = rp_thread_signal_here(th);

		rp_thread_pos(th, &start);
		if (!sig) {
			bool rec = th->next && th->next->steps == start.steps;
			if (rec &&
			    (th->next->kind == DJ_REC_SYSCALL || th->next->kind == DJ_REC_EFFECTS))
				return 0;
			if (!emu_peek(th->e, &in) || !(in.attr & INSN_A_REP))
				return 0;
		}
		/* A REP instruction: see how many iterations it does, or where the
		 * signal arrives that interrupts it. */
		rp_checkpoint_take(r->cs);
		uint64_t rcx = th->e->cpu.gpr[DJ_RCX];
		enum rp_thread_stop res =
			sig ? THREAD_EVENT : rp_thread_run(th, end, THREAD_EV_SIGNAL);
		if (rp_move_failed(r, res, err))
			return -1;
		rp_thread_pos(th, &now);
		if (res == THREAD_EVENT && rp_thread_pos_cmp(&now, end) < 0) {
			if (rp_move_failed(r, rp_thread_step(th), err))
				return -1;
			continue;
		}
		uint64_t n = rcx - th->e->cpu.gpr[DJ_RCX];
		if (in.addr32)
			n = (uint32_t)rcx - (uint32_t)th->e->cpu.gpr[DJ_RCX];
		start.rep = n > 1 ? n - 1 : 0;
		return replay_move(r, &start, err);
	}
}

int replay_move_back(struct replay *r, struct dj_error *err)
{
	struct rp_thread_pos now, to;

	rp_thread_pos(r->th, &now);
	to = now;
	if (now.rep) {
		to.rep--;
		return replay_move(r, &to, err);
	}
	if (now.signals) {
		to.signals--;
		if (replay_move(r, &to, err))
			return -1;
		if (rp_thread_signal_here(r->th))
			return 0;
		return rp_move_failed(r, rp_thread_run(r->th, &now, THREAD_EV_SIGNAL), err);
	}
	if (now.steps <= r->th->info->first_steps)
		return 1;
	to.steps--;
	if (replay_move(r, &to, err))
		return -1;
	return last_within(r, &now, err);
}

int replay_seek(struct replay *r, const struct replay_pos *pos, struct dj_error *err)
{
	struct rp_thread_pos to = { .steps = pos->steps, .signals = pos->signals, .rep = pos->rep };
	uint32_t from = r->selected;

	rp_forget_interruption(r);
	if (r->in_copy)
		return dj_fail(err, 1, "this is a throw-away copy: it has no history to move in");
	if (pos->thread >= r->nthreads)
		return dj_fail(err, 1, "no thread %u in this trace", pos->thread);
	replay_pos(r, &r->moment);
	if (pos->thread != from && rp_switch(r, pos->thread, err))
		return -1;
	r->threads[pos->thread].placed = false;
	if (to.steps < r->th->info->first_steps)
		to = (struct rp_thread_pos){ .steps = r->th->info->first_steps };
	if (replay_move(r, &to, err)) {
		rp_put_back(r, from);
		return -1;
	}
	rp_begin_move(r);
	return 0;
}
