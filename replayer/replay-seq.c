/*
 * Finding events of the selected thread by their numbers.
 *
 * Where an event is, nothing tells but replaying, from the newest checkpoint before it.
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

/* Forward to the last position before event number `seq` or a higher one. 1: the thread has none,
 * and stands at its end. */
static int run_before_seq(struct replay *r, uint64_t seq, struct dj_error *err)
{
	const struct rp_thread_pos far = { .steps = UINT64_MAX };

	r->mv->watching = false;
	bool (*stop_at)(void *, struct emu *) = r->th->e->stop_at;
	r->th->e->stop_at = NULL;
	r->th->seq_stop = seq;
	enum rp_thread_stop res = replay_run_to(r, &far, 0, false);
	r->th->seq_stop = UINT64_MAX;
	r->th->e->stop_at = stop_at;
	if (rp_move_failed(r, res, err))
		return -1;
	return res == THREAD_END;
}

int rp_find_seq(struct replay *r, uint64_t seq, struct dj_error *err)
{
	if (before_seq(r, seq, err))
		return -1;
	int res = seq_cmp(r, seq) < 0 ? run_before_seq(r, seq, err) : 0;
	if (res)
		return res;
	rp_checkpoint_take(r->cs);
	while (seq_cmp(r, seq) < 0) {
		enum rp_thread_stop step = rp_thread_step(r->th);
		if (rp_move_failed(r, step, err))
			return -1;
		if (step == THREAD_END)
			return dj_fail(err, 1, "%s", r->th->err.text);
	}
	return 0;
}

int rp_last_upto(struct replay *r, uint64_t seq, struct dj_error *err)
{
	if (seq == UINT64_MAX)
		return replay_move(r, &(struct rp_thread_pos){ .steps = UINT64_MAX }, err);
	if (before_seq(r, seq + 1, err))
		return -1;
	return run_before_seq(r, seq + 1, err) < 0 ? -1 : 0;
}
