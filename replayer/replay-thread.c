/*
 * Threads and processes at a moment, and the total order of positions: see replay.h.
 *
 * Each thread has a history of its own (struct rp_timeline), replayed by itself. The moment is a
 * position of one of them; the others are moved only when somebody looks at them, to the last
 * position that sorts before the moment. Since positions sort by event number first, that is
 * the one before the thread's next event with a higher number: as long as the moment does not come
 * to that event, the thread need not be moved again.
 */
#include "replayer/replay-internal.h"

#include <string.h>

static int compare(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

int replay_pos_cmp(const struct replay_pos *a, const struct replay_pos *b)
{
	int d = compare(a->seq, b->seq);

	d = d ? d : compare(a->thread, b->thread);
	d = d ? d : compare(a->steps, b->steps);
	d = d ? d : compare(a->signals, b->signals);
	return d ? d : compare(a->rep, b->rep);
}

/* ---- where things begin and end ----------------------------------------------------------- */

static const struct dj_thread_info *info(const struct replay *r, uint32_t thread)
{
	return dj_trace_thread(r->t, thread);
}

static uint32_t process_of(const struct replay *r, uint32_t thread)
{
	return info(r, thread)->process;
}

static int32_t pid_of(const struct replay *r, uint32_t process)
{
	return dj_trace_process(r->t, process)->pid;
}

bool rp_last_seq(const struct replay *r, uint32_t thread, uint64_t *seq)
{
	*seq = info(r, thread)->last_seq;
	return *seq != DJ_SEQ_UNKNOWN;
}

void replay_thread_begin(struct replay *r, uint32_t thread, struct replay_pos *pos)
{
	*pos = (struct replay_pos){ .thread = thread,
				    .steps = info(r, thread)->first_steps,
				    .seq = rp_thread_first_seq(info(r, thread)) };
}

void replay_thread_end(struct replay *r, uint32_t thread, struct replay_pos *pos)
{
	const struct rp_thread *th = r->threads[thread].th;

	if (thread == r->selected && rp_thread_at_end(th)) {
		rp_here(r, pos);
		return;
	}
	/* the last records may still be a system call or signals */
	*pos = (struct replay_pos){
		.thread = thread, .steps = (th ? th->end_steps : info(r, thread)->last_steps) + 1
	};
	if (!rp_last_seq(r, thread, &pos->seq))
		pos->seq = UINT64_MAX;
}

void replay_begin_pos(struct replay *r, struct replay_pos *pos)
{
	struct replay_pos p;

	replay_thread_begin(r, 0, pos);
	for (uint32_t i = 1; i < r->nthreads; i++) {
		replay_thread_begin(r, i, &p);
		if (replay_pos_cmp(&p, pos) < 0)
			*pos = p;
	}
}

/* ---- the moment ---------------------------------------------------------------------------- */

void rp_here(const struct replay *r, struct replay_pos *pos)
{
	struct rp_thread_pos p;

	rp_thread_pos(r->th, &p);
	*pos = (struct replay_pos){
		.thread = r->selected, .signals = p.signals, .steps = p.steps, .rep = p.rep
	};
	rp_thread_seq(r->th, &pos->seq, &pos->within);
}

void replay_pos(struct replay *r, struct replay_pos *pos)
{
	if (r->in_copy || r->selected == r->moment.thread)
		rp_here(r, pos);
	else
		*pos = r->moment;
}

void rp_begin_move(struct replay *r)
{
	if (r->in_copy)
		return; /* what a copy does moves nothing */
	if (r->moment.thread != r->selected)
		r->signal_told = false;
	r->untold = false;
	r->moment.thread = r->selected;
	r->threads[r->selected].placed = false;
}

int rp_open_first(struct replay *r, struct dj_error *err)
{
	struct replay_pos begin;

	replay_begin_pos(r, &begin);
	if (rp_switch(r, begin.thread, err))
		return -1;
	rp_begin_move(r);
	return 0;
}

bool rp_begun(const struct replay *r, const struct replay_pos *moment, uint32_t thread,
	      uint64_t *upto)
{
	uint64_t first = rp_thread_first_seq(info(r, thread));

	if (thread > moment->thread && moment->seq == 0)
		return false;
	*upto = thread > moment->thread ? moment->seq - 1 : moment->seq;
	return first <= *upto;
}

/* Whether the thread in hand stands where a moment has it at which it has come up to event `upto`.
 */
static bool in_place(const struct rp_thread *th, uint64_t upto)
{
	uint64_t seq, within;

	rp_thread_seq(th, &seq, &within);
	return seq <= upto && (rp_thread_at_end(th) || rp_thread_next_seq(th) > upto);
}

int rp_place_upto(struct replay *r, uint32_t thread, uint64_t upto, struct dj_error *err)
{
	struct rp_timeline *line = &r->threads[thread];
	bool told = r->signal_told;

	if (rp_switch(r, thread, err))
		return -1;
	if (line->placed && in_place(r->th, upto))
		return 0;
	line->placed = !rp_last_upto(r, upto, err);
	r->signal_told = told;
	return line->placed ? 0 : -1;
}

int rp_place(struct replay *r, uint32_t thread, struct dj_error *err)
{
	uint64_t upto = 0;

	replay_pos(r, &r->moment);
	if (thread == r->moment.thread)
		return rp_switch(r, thread, err);
	if (!rp_begun(r, &r->moment, thread, &upto))
		return dj_fail(err, 1, "thread %d has not begun", (int)info(r, thread)->tid);
	return rp_place_upto(r, thread, upto, err);
}

static bool find_alive(struct replay *r, uint32_t thread)
{
	struct replay_pos moment;
	uint64_t upto, last;

	replay_pos(r, &moment);
	if (thread == moment.thread)
		return true;
	if (!rp_begun(r, &moment, thread, &upto))
		return false;
	if (rp_last_seq(r, thread, &last) && last > upto)
		return true;
	return !rp_place(r, thread, NULL) && !(rp_thread_at_end(r->th) && r->th->exited);
}

/* Whether the thread is alive at the moment. May move it, and switch to it. In a throw-away copy
 * time stands still, and no thread may be moved: it is as it was before. */
static bool alive(struct replay *r, uint32_t thread)
{
	if (!r->in_copy)
		r->threads[thread].alive = find_alive(r, thread);
	return r->threads[thread].alive;
}

/* Back to the thread that was selected. Whatever was switched to meanwhile, it did not move. */
static void reselect(struct replay *r, uint32_t thread)
{
	if (r->selected != thread)
		rp_switch(r, thread, NULL); /* open already: nothing can fail */
}

void rp_put_back(struct replay *r, uint32_t selected)
{
	const struct replay_pos *m = &r->moment;
	struct rp_thread_pos to = { .steps = m->steps, .signals = m->signals, .rep = m->rep };

	r->threads[r->selected].placed = false;
	rp_switch(r, m->thread, NULL);
	/* whoever was interrupted on the way is as impatient now */
	if (r->cancelled || replay_move(r, &to, NULL))
		rp_stand_if_near(r, &to);
	if (selected != m->thread && rp_place(r, selected, NULL))
		rp_switch(r, m->thread, NULL);
}

void replay_end_pos(struct replay *r, struct replay_pos *pos)
{
	struct replay_pos p;

	replay_thread_end(r, 0, pos);
	for (uint32_t i = 1; i < r->nthreads; i++) {
		replay_thread_end(r, i, &p);
		if (replay_pos_cmp(&p, pos) > 0)
			*pos = p;
	}
}

/* ---- the interface ----------------------------------------------------------------------------
 */

static void describe(struct replay *r, uint32_t thread, struct replay_thread *out)
{
	*out = (struct replay_thread){ .number = thread,
				       .process = process_of(r, thread),
				       .pid = pid_of(r, process_of(r, thread)),
				       .tid = info(r, thread)->tid,
				       .name = rp_thread_name(r, thread) };
}

size_t replay_threads(struct replay *r, uint32_t process, struct replay_thread *out, size_t max)
{
	uint32_t selected = r->selected;
	size_t n = 0;

	for (uint32_t i = 0; i < r->nthreads; i++) {
		if (process != REPLAY_ALL && process_of(r, i) != process)
			continue;
		if (!alive(r, i))
			continue;
		if (n < max)
			describe(r, i, &out[n]);
		n++;
	}
	reselect(r, selected);
	return n;
}

size_t replay_processes(struct replay *r, struct replay_process *out, size_t max)
{
	uint32_t selected = r->selected;
	size_t n = 0;

	for (uint32_t p = 0; p < dj_trace_processes(r->t); p++) {
		uint32_t i = 0;
		while (i < r->nthreads && (process_of(r, i) != p || !alive(r, i)))
			i++;
		if (i == r->nthreads)
			continue;
		if (n < max)
			out[n] = (struct replay_process){ .number = p, .pid = pid_of(r, p) };
		n++;
	}
	reselect(r, selected);
	return n;
}

bool replay_thread_find(struct replay *r, int32_t pid, int32_t tid, struct replay_thread *out)
{
	uint32_t selected = r->selected;
	bool found = false;

	for (uint32_t i = 0; i < r->nthreads && !found; i++) {
		describe(r, i, out);
		found = out->tid == tid && (!pid || out->pid == pid) && alive(r, i);
	}
	reselect(r, selected);
	return found;
}

void replay_thread(struct replay *r, struct replay_thread *out)
{
	describe(r, r->selected, out);
}

int replay_select(struct replay *r, uint32_t thread, struct dj_error *err)
{
	uint32_t selected = r->selected;

	if (thread == selected)
		return 0;
	if (r->in_copy)
		return dj_fail(err, 1, "this is a throw-away copy of one thread");
	if (thread < r->nthreads && alive(r, thread)) {
		if (!rp_place(r, thread, err))
			return 0;
	} else {
		dj_fail(err, 1, "there is no such thread at this moment");
	}
	reselect(r, selected);
	return -1;
}

int replay_thread_doings(struct replay *r, uint32_t thread, struct replay_doings *out,
			 struct dj_error *err)
{
	uint32_t selected = r->selected;

	*out = (struct replay_doings){ .doing = REPLAY_RUNS };
	if (replay_select(r, thread, err))
		return -1;
	rp_here(r, &out->pos);
	if (rp_thread_syscall_here(r->th, &out->sysno))
		out->doing = REPLAY_CALLS;
	else if (rp_thread_at_end(r->th))
		out->doing = REPLAY_FINISHED;
	reselect(r, selected);
	return 0;
}
