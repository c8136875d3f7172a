/*
 * Positions as text, SEQ:STEPS[+REP][@TID], and going to them.
 */
#include "replayer/replay-internal.h"
#include "replayer/replay-times.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void replay_pos_text(struct replay *r, char *buf, size_t size)
{
	struct replay_pos p;
	char rep[24] = "", tid[16] = "";

	replay_pos(r, &p);
	if (p.rep)
		snprintf(rep, sizeof(rep), "+%" PRIu64, p.rep);
	if (r->nthreads > 1)
		snprintf(tid, sizeof(tid), "@%" PRId32, dj_trace_thread(r->t, p.thread)->tid);
	snprintf(buf, size, "%" PRIu64 ":%" PRIu64 "%s%s", p.seq, p.within, rep, tid);
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

struct wanted {
	uint64_t seq, within, rep;
	uint64_t tid; /* 0: any */
};

static int no_event(const struct replay *r, uint64_t seq, struct dj_error *err)
{
	if (r->th->damaged)
		return dj_fail(err, r->th->err.exit_status, "%s", r->th->err.text);
	return dj_fail(err, 1, "history has no event %" PRIu64, seq);
}

/* Go there in the thread in hand. */
static int goto_seq(struct replay *r, const struct wanted *w, struct dj_error *err)
{
	uint64_t have, at;
	struct rp_thread_pos p;

	rp_thread_seq(r->th, &have, &at);
	int res = have != w->seq ? rp_find_seq(r, w->seq, err) : 0;
	if (res)
		return res < 0 ? -1 : no_event(r, w->seq, err);
	rp_thread_seq(r->th, &have, &at);
	rp_thread_pos(r->th, &p);
	if (have != w->seq)
		return no_event(r, w->seq, err);
	uint64_t base = p.steps - at;
	if (base + w->within < base)
		return dj_fail(err, 1, "history ends before that");
	/* signals delivered at the same instruction belong to the position */
	struct rp_thread_pos to = { .steps = base + w->within,
				    .rep = w->rep,
				    .signals = w->within	 ? 0
					       : p.steps == base ? p.signals
								 : 0 };
	if (!w->within && p.steps != base) {
		/* after the event: any signals at `base` that made it */
		if (rp_find_seq(r, w->seq, err))
			return -1;
		rp_thread_pos(r->th, &to);
		to.rep = w->rep;
	}
	if (replay_move(r, &to, err))
		return -1;
	rp_thread_seq(r->th, &have, &at);
	rp_thread_pos(r->th, &p);
	if (have != w->seq || at != w->within || p.rep != w->rep)
		return dj_fail(err, 1, "there is no such position: event %" PRIu64 " ends earlier",
			       w->seq);
	return 0;
}

/* Go there in the selected thread, or if that has no such position, in the first that has. */
static int goto_wanted(struct replay *r, const struct wanted *w, struct dj_error *err)
{
	uint32_t selected = r->selected;
	struct dj_error other;
	bool any = false;

	if (!w->tid || r->th->info->tid == (int64_t)w->tid) {
		if (!goto_seq(r, w, err))
			return 0;
		if (r->cancelled)
			return -1;
		any = true;
	}
	for (uint32_t i = 0; i < r->nthreads; i++) {
		const struct dj_thread_info *info = dj_trace_thread(r->t, i);
		if (i == selected || (w->tid && info->tid != (int64_t)w->tid) ||
		    rp_thread_first_seq(info) > w->seq)
			continue;
		r->threads[i].placed = false;
		if (!rp_switch(r, i, &other) && !goto_seq(r, w, &other))
			return 0;
		if (r->cancelled)
			return err ? (*err = other, -1) : -1;
		if (!any && err)
			*err = other;
		any = true;
	}
	return any ? -1 : dj_fail(err, 1, "no thread %" PRIu64 " in this trace", w->tid);
}

static int not_a_position(const char *text, struct dj_error *err)
{
	return dj_fail(
		err, 1,
		"'%s' is no position: SEQ:STEPS[+REP], a number, a time (1.5s, 20ms), begin or end",
		text);
}

/* A plain number of instructions of the selected thread. */
static int goto_count(struct replay *r, const struct wanted *w, const char *text,
		      struct dj_error *err)
{
	struct rp_thread_pos to = { .steps = w->within, .rep = w->rep }, at;

	if (to.steps < r->th->info->first_steps || to.steps > r->th->end_steps + 1)
		return dj_fail(err, 1, "history reaches from instruction %" PRIu64 " to %" PRIu64,
			       r->th->info->first_steps, r->th->end_steps);
	if (replay_move(r, &to, err))
		return -1;
	rp_thread_pos(r->th, &at);
	if (at.steps != to.steps || at.rep != to.rep)
		return dj_fail(err, 1, "there is no position %s", text);
	return 0;
}

static int go_text(struct replay *r, const char *text, struct dj_error *err)
{
	struct wanted w = { 0 };
	const char *p = text;
	bool pair = false;

	if (replay_text_is_time(text))
		return rp_goto_time(r, text, err);
	if (!number(&p, &w.within))
		return not_a_position(text, err);
	if (*p == ':') {
		pair = true;
		p++;
		w.seq = w.within;
		if (!number(&p, &w.within))
			return not_a_position(text, err);
	}
	if (*p == '+' && (p++, !number(&p, &w.rep)))
		return not_a_position(text, err);
	if (pair && *p == '@' && (p++, !number(&p, &w.tid) || !w.tid))
		return not_a_position(text, err);
	if (*p)
		return not_a_position(text, err);
	return pair ? goto_wanted(r, &w, err) : goto_count(r, &w, text, err);
}

int replay_goto_text(struct replay *r, const char *text, struct dj_error *err)
{
	struct replay_pos end;
	uint32_t selected = r->selected;

	rp_forget_interruption(r);
	if (r->in_copy)
		return dj_fail(err, 1, "this is a throw-away copy: it has no history to move in");
	while (*text == ' ')
		text++;
	if (!strcmp(text, "begin") || !strcmp(text, "start")) {
		replay_begin_pos(r, &end);
		return replay_seek(r, &end, err);
	}
	if (!strcmp(text, "end")) {
		replay_end_pos(r, &end);
		end.steps = UINT64_MAX;
		return replay_seek(r, &end, err);
	}
	replay_pos(r, &r->moment);
	if (!go_text(r, text, err)) {
		rp_begin_move(r);
		return 0;
	}
	rp_put_back(r, selected);
	return -1;
}
