/*
 * Finding events of the selected thread by their numbers.
 *
 * Where an event is, nothing tells but replaying, from the last checkpoint before it.
 */
#include "replayer/ground.h"
#include "replayer/land.h"

/* The event number here against `seq`. */
static int seq_cmp(struct replay *r, uint64_t seq)
{
	uint64_t have, within;

	rp_thread_seq(r->th, &have, &within);
	return have < seq ? -1 : have > seq;
}

/* Where the last checkpoint before event number `seq` is (for 0, the beginning). */
static struct rp_thread_pos checkpoint_before(const struct replay *r, uint64_t seq)
{
	struct rp_thread_pos p = { .steps = r->th->info->first_steps };
	size_t lo = 0, hi = r->cs->n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		if (r->cs->list[mid]->seq < seq)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo)
		p = r->cs->list[lo - 1]->pos;
	return p;
}

/* Go there, unless the thread is between there and the event. */
static int before_seq(struct replay *r, uint64_t seq, struct dj_error *err)
{
	struct rp_thread_pos p = checkpoint_before(r, seq), now;

	rp_thread_pos(r->th, &now);
	if (seq_cmp(r, seq) < 0 && rp_thread_pos_cmp(&p, &now) <= 0)
		return 0;
	return replay_move(r, &p, err);
}

/* Forward to the last checkpoint before that event, as far as ground is covered or can be. False:
 * interrupted. */
static bool cover_before_seq(struct replay *r, uint64_t seq)
{
	while (!r->cs->n || r->cs->list[r->cs->n - 1]->seq < seq)
		if (!rp_ground_more(r, NULL, NULL))
			return !r->cancelled;
	return true;
}

/* Go to the last checkpoint before the event, if that is forward. */
static int go_before_seq(struct replay *r, uint64_t seq)
{
	struct rp_thread_pos p = checkpoint_before(r, seq), now;

	rp_thread_pos(r->th, &now);
	return rp_thread_pos_cmp(&p, &now) <= 0 ? 0 : rp_land(r, &p, false, &r->th->err);
}

/* Forward to the last position before event number `seq` or a higher one. 1: the thread has none,
 * and stands at its end. */
static int run_before_seq(struct replay *r, uint64_t seq, struct dj_error *err)
{
	const struct rp_thread_pos far = { .steps = UINT64_MAX };
	const struct rp_thread_pos safe = { .steps = rp_thread_steps_before(
						    r->t, (uint32_t)r->selected, seq) };

	/* by steps it is quickly gone there */
	if (safe.steps > r->th->e->steps && replay_move(r, &safe, err))
		return -1;
	r->mv->watching = false;
	bool (*stop_at)(void *, struct emu *) = r->th->e->stop_at;
	r->th->e->stop_at = NULL;
	r->th->seq_stop = seq;
	enum rp_thread_stop res = THREAD_LIMIT;
	if (rp_ground_likely(r)) {
		struct rp_thread_pos first = { .steps = r->th->e->steps + r->ground_first };
		res = replay_run_to(r, &first, 0, false);
		if (res == THREAD_LIMIT && (!cover_before_seq(r, seq) || go_before_seq(r, seq)))
			res = r->cancelled ? THREAD_INTERRUPTED : THREAD_FAILED;
	}
	if (res == THREAD_LIMIT)
		res = replay_run_to(r, &far, 0, false);
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
