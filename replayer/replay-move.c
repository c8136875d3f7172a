/*
 * Moving to a known position: seeking, one step back.
 *
 * Forwards is running. Backwards is a checkpoint at or before the wanted position and running
 * from there, which leaves new checkpoints ever denser towards it: whoever goes back once
 * usually goes back again.
 */
#include "replayer/replay-internal.h"

#include <string.h>

#define SLICE 200000u /* instructions between two looks at interrupts: a few milliseconds */
#define CLOSE 64u     /* instructions from a checkpoint that need no further one between */

/* How far to run before the next checkpoint or look around. */
static uint64_t slice(struct replay *r, uint64_t left, bool dense)
{
	struct rp_checkpoint *c = rp_checkpoint_newest(r->cs);
	uint64_t last = c ? c->pos.steps : r->th->info->first_steps, now = r->th->e->steps;
	uint64_t due = last + r->spacing > now ? last + r->spacing - now : 1;
	uint64_t n = left < SLICE ? left : SLICE;

	if (dense && left > CLOSE && n > left / 2)
		n = left / 2;
	return n < due ? n : due;
}

enum rp_thread_stop replay_run_to(struct replay *r, const struct rp_thread_pos *to, unsigned events,
				  bool dense)
{
	struct rp_thread_pos now, part;

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
		if (res != THREAD_LIMIT)
			return res;
		if (part.steps == to->steps)
			return THREAD_LIMIT;
		struct rp_checkpoint *c = rp_checkpoint_newest(r->cs);
		uint64_t last = c ? c->pos.steps : r->th->info->first_steps;
		uint64_t left_now = to->steps - r->th->e->steps;
		if (!r->in_copy && (r->th->e->steps - last >= r->spacing ||
				    (dense && left_now <= r->th->e->steps - last)))
			rp_checkpoint_take(r->cs);
	}
}

int replay_move(struct replay *r, const struct rp_thread_pos *to, struct dj_error *err)
{
	struct rp_thread_pos now;
	bool back;

	r->mv->watching = false;
	r->signal_told = false;
	rp_thread_pos(r->th, &now);
	back = rp_thread_pos_cmp(to, &now) < 0;
	if (back && rp_checkpoint_back(r->cs, to, err))
		return -1;
	bool (*stop_at)(void *, struct emu *) = r->th->e->stop_at;
	r->th->e->stop_at = NULL;
	enum rp_thread_stop res = replay_run_to(r, to, 0, back);
	r->th->e->stop_at = stop_at;
	return rp_move_failed(r, res, err);
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

	r->cancelled = false;
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
