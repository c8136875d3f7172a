/*
 * Positions as text, SEQ:STEPS[+REP], and finding them.
 *
 * Where an event is, nothing tells but replaying: from the newest checkpoint before it forward by
 * checkpointed slices, then by halves.
 */
#include "replayer/replay-internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void replay_pos_text(struct replay *r, char *buf, size_t size)
{
	uint64_t seq, within;
	struct rp_thread_pos p;

	rp_thread_pos(r->th, &p);
	rp_thread_seq(r->th, &seq, &within);
	if (p.rep)
		snprintf(buf, size, "%" PRIu64 ":%" PRIu64 "+%" PRIu64, seq, within, p.rep);
	else
		snprintf(buf, size, "%" PRIu64 ":%" PRIu64, seq, within);
}

static bool number(const char **p, uint64_t *v)
{
	char *end;

	if (**p < '0' || **p > '9')
		return false;
	*v = strtoull(*p, &end, 10);
	*p = end;
	return true;
}

/* The current position's event number against `seq`, and where events of that number began. */
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
			if (rp_thread_seq_at(r->th, r->cs->list[i]->events,
					     r->cs->list[i]->fences) < seq)
				c = r->cs->list[i];
		struct rp_thread_pos p = { .steps = r->th->info->first_steps };
		if (c)
			p = c->pos;
		if (replay_move(r, &p, err))
			return -1;
		if (seq == 0)
			break;
	}
	return 0;
}

/* Forward, to less than a slice before event number `seq`. */
static int near_seq(struct replay *r, uint64_t seq, struct dj_error *err)
{
	for (;;) {
		struct rp_thread_pos start, next;
		rp_thread_pos(r->th, &start);
		next = (struct rp_thread_pos){ .steps = start.steps + r->spacing };
		if (next.steps < start.steps)
			next.steps = UINT64_MAX;
		rp_checkpoint_take(r->cs);
		int res = replay_run_to(r, &next, 0, false, true);
		if (res == THREAD_FAILED)
			return dj_fail(err, r->th->err.exit_status, "%s", r->th->err.text);
		if (res == RUN_INTERRUPTED)
			return dj_fail(err, 1, "interrupted");
		if (seq_cmp(r, seq) >= 0)
			return replay_move(r, &start, err);
		if (res == THREAD_END)
			return dj_fail(err, 1, "history has no event %" PRIu64, seq);
	}
}

/* Move to where event number `seq` has just happened. */
static int find_seq(struct replay *r, uint64_t seq, struct dj_error *err)
{
	if (before_seq(r, seq, err))
		return -1;
	if (seq == 0)
		return 0;
	if (near_seq(r, seq, err))
		return -1;
	while (seq_cmp(r, seq) < 0) {
		/* halve what is left before the event; single steps at the end */
		struct rp_thread_pos start, mid;
		rp_thread_pos(r->th, &start);
		uint64_t n = r->spacing;
		for (; n > 1 && seq_cmp(r, seq) < 0; n /= 2) {
			rp_thread_pos(r->th, &start);
			mid = (struct rp_thread_pos){ .steps = start.steps + n / 2 };
			rp_checkpoint_take(r->cs);
			if (replay_run_to(r, &mid, 0, false, false) == THREAD_FAILED)
				return dj_fail(err, r->th->err.exit_status, "%s", r->th->err.text);
			if (seq_cmp(r, seq) >= 0 && replay_move(r, &start, err))
				return -1;
		}
		enum rp_thread_stop res = rp_thread_step(r->th);
		if (res == THREAD_FAILED || res == THREAD_END)
			return dj_fail(err, 1, "%s", r->th->err.text);
	}
	return 0;
}

static int goto_seq(struct replay *r, uint64_t seq, uint64_t within, uint64_t rep,
		    struct dj_error *err)
{
	uint64_t have, at;
	struct rp_thread_pos p;

	rp_thread_seq(r->th, &have, &at);
	if (have != seq && find_seq(r, seq, err))
		return -1;
	rp_thread_seq(r->th, &have, &at);
	rp_thread_pos(r->th, &p);
	if (have != seq)
		return dj_fail(err, 1, "history has no event %" PRIu64, seq);
	uint64_t base = p.steps - at;
	if (base + within < base)
		return dj_fail(err, 1, "history ends before that");
	/* signals delivered at the same instruction belong to the position */
	struct rp_thread_pos to = { .steps = base + within,
				    .rep = rep,
				    .signals = within		 ? 0
					       : p.steps == base ? p.signals
								 : 0 };
	if (!within && p.steps != base) {
		/* after the event: any signals at `base` that made it */
		if (find_seq(r, seq, err))
			return -1;
		rp_thread_pos(r->th, &to);
		to.rep = rep;
	}
	if (replay_move(r, &to, err))
		return -1;
	rp_thread_seq(r->th, &have, &at);
	rp_thread_pos(r->th, &p);
	if (have != seq || at != within || p.rep != rep)
		return dj_fail(err, 1, "there is no such position: event %" PRIu64 " ends earlier",
			       seq);
	return 0;
}

static int go_text(struct replay *r, const char *text, struct dj_error *err)
{
	uint64_t a, b = 0, rep = 0;
	const char *p = text;
	bool pair = false;

	if (!strcmp(text, "begin") || !strcmp(text, "start"))
		return replay_move(r, &(struct rp_thread_pos){ .steps = r->th->info->first_steps },
				   err);
	if (!strcmp(text, "end"))
		return replay_move(r, &(struct rp_thread_pos){ .steps = UINT64_MAX }, err);
	if (!number(&p, &a))
		return dj_fail(err, 1,
			       "'%s' is no position: SEQ:STEPS[+REP], a number, begin or end",
			       text);
	if (*p == ':') {
		p++;
		pair = number(&p, &b);
		if (!pair)
			p = "?";
	}
	if (*p == '+') {
		p++;
		if (!number(&p, &rep))
			p = "?";
	}
	if (*p)
		return dj_fail(err, 1,
			       "'%s' is no position: SEQ:STEPS[+REP], a number, begin or end",
			       text);
	if (pair)
		return goto_seq(r, a, b, rep, err);
	struct rp_thread_pos to = { .steps = a, .rep = rep }, at;
	if (a < r->th->info->first_steps || a > r->th->end_steps + 1)
		return dj_fail(err, 1, "history reaches from instruction %" PRIu64 " to %" PRIu64,
			       r->th->info->first_steps, r->th->end_steps);
	if (replay_move(r, &to, err))
		return -1;
	rp_thread_pos(r->th, &at);
	if (at.steps != a || at.rep != rep)
		return dj_fail(err, 1, "there is no position %s", text);
	return 0;
}

int replay_goto_text(struct replay *r, const char *text, struct dj_error *err)
{
	struct rp_thread_pos from;

	if (r->in_copy)
		return dj_fail(err, 1, "this is a throw-away copy: it has no history to move in");
	while (*text == ' ')
		text++;
	rp_thread_pos(r->th, &from);
	if (!go_text(r, text, err))
		return 0;
	replay_move(r, &from, NULL);
	return -1;
}
