/*
 * Finding events of the selected thread by their numbers.
 *
 * Where an event is, nothing tells but replaying: from the newest checkpoint before it forward by
 * checkpointed slices, then by halves.
 */
#include "replayer/replay-internal.h"

/* The event number here against `seq`. */
static int seq_cmp(struct replay *r, uint64_t seq)
{
	uint64_t have, within;

	rp_thread_seq(r->th, &have, &within);
	return have < seq ? -1 : have > seq;
}

/* Go back to before event number `seq`, to the newest checkpoint there is (for 0, the beginning).
 */
static int before_seq(struct replay *r, uint64_t seq, struct dj_error *err)
{
	while (seq_cmp(r, seq) >= 0) {
		struct rp_checkpoint *c = NULL;
		for (size_t i = r->cs->n; i-- > 0 && !c;)
			if (r->cs->list[i]->seq < seq)
				c = r->cs->list[i];
		struct rp_thread_pos p = { .steps = r->th->info->first_steps };
		if (c)
			p = c->pos;
		if (replay_move(r, &p, err))
			return -1;
		if (!c)
			break; /* the first position of all has it */
	}
	return 0;
}

/* Forward, to less than a slice before event number `seq`, or to the end: 1. */
static int near_seq(struct replay *r, uint64_t seq, struct dj_error *err)
{
	for (;;) {
		struct rp_thread_pos start, next;
		rp_thread_pos(r->th, &start);
		next = (struct rp_thread_pos){ .steps = start.steps + r->spacing };
		if (next.steps < start.steps)
			next.steps = UINT64_MAX;
		rp_checkpoint_take(r->cs);
		enum rp_thread_stop res = replay_run_to(r, &next, 0, false);
		if (rp_move_failed(r, res, err))
			return -1;
		if (seq_cmp(r, seq) >= 0)
			return replay_move(r, &start, err);
		if (res == THREAD_END)
			return 1;
	}
}

int rp_find_seq(struct replay *r, uint64_t seq, struct dj_error *err)
{
	if (before_seq(r, seq, err))
		return -1;
	int res = seq_cmp(r, seq) < 0 ? near_seq(r, seq, err) : 0;
	if (res)
		return res;
	while (seq_cmp(r, seq) < 0) {
		/* halve what is left before the event; single steps at the end */
		struct rp_thread_pos start, mid;
		rp_thread_pos(r->th, &start);
		uint64_t n = r->spacing;
		for (; n > 1 && seq_cmp(r, seq) < 0; n /= 2) {
			rp_thread_pos(r->th, &start);
			mid = (struct rp_thread_pos){ .steps = start.steps + n / 2 };
			rp_checkpoint_take(r->cs);
			if (rp_move_failed(r, replay_run_to(r, &mid, 0, false), err))
				return -1;
			if (seq_cmp(r, seq) >= 0 && replay_move(r, &start, err))
				return -1;
		}
		enum rp_thread_stop res = rp_thread_step(r->th);
		if (rp_move_failed(r, res, err))
			return -1;
		if (res == THREAD_END)
			return dj_fail(err, 1, "%s", r->th->err.text);
	}
	return 0;
}

int rp_last_upto(struct replay *r, uint64_t seq, struct dj_error *err)
{
	int res = seq == UINT64_MAX ? 1 : rp_find_seq(r, seq + 1, err);

	if (res < 0)
		return -1;
	if (!res)
		return replay_move_back(r, err) < 0 ? -1 : 0;
	return replay_move(r, &(struct rp_thread_pos){ .steps = UINT64_MAX }, err);
}
