/*
 * The threads one after the other, in the order of positions.
 *
 * Between two ordered events of its own a thread's positions have one event number: a segment. The
 * one order of all positions is the segments of all threads by number, then by thread. So going
 * forward through it is running one thread until its next event has a higher number than the next
 * segment of another, then that other, and so on. A thread that waits stands at the last position
 * of its segment, where the number of its next event is known; one that has not begun waits with
 * the number that it begins with. Whose turn is next is at the top of a heap.
 */
#include "replayer/replay-internal.h"

#include <stdlib.h>

void replay_set_scope(struct replay *r, enum replay_scope scope)
{
	r->scope = scope;
}

static uint32_t process_of(const struct replay *r, uint32_t thread)
{
	return dj_trace_thread(r->t, thread)->process;
}

bool rp_in_scope(const struct replay *r, uint32_t thread)
{
	return r->scope == REPLAY_PROCESSES || process_of(r, thread) == process_of(r, r->selected);
}

bool rp_alone(const struct replay *r)
{
	if (r->in_copy || r->scope == REPLAY_THREAD)
		return true;
	for (uint32_t i = 0; i < r->nthreads; i++)
		if (i != r->selected && rp_in_scope(r, i))
			return false;
	return true;
}

/* ---- the heap -------------------------------------------------------------------------------- */

static bool earlier(const struct rp_turn *a, const struct rp_turn *b)
{
	return a->seq != b->seq ? a->seq < b->seq : a->thread < b->thread;
}

static void swap(struct rp_turn *a, struct rp_turn *b)
{
	struct rp_turn t = *a;

	*a = *b;
	*b = t;
}

/* There is room: a thread has one turn at a time. */
static void push(struct rp_turns *q, struct rp_turn turn)
{
	size_t i = q->n++;

	DJ_ASSERT(q->n <= q->cap, "more turns than threads");
	q->heap[i] = turn;
	for (; i && earlier(&q->heap[i], &q->heap[(i - 1) / 2]); i = (i - 1) / 2)
		swap(&q->heap[i], &q->heap[(i - 1) / 2]);
}

static struct rp_turn pop(struct rp_turns *q)
{
	struct rp_turn top = q->heap[0];
	size_t i = 0;

	q->heap[0] = q->heap[--q->n];
	for (;;) {
		size_t least = i;
		for (size_t c = 2 * i + 1; c <= 2 * i + 2 && c < q->n; c++)
			if (earlier(&q->heap[c], &q->heap[least]))
				least = c;
		if (least == i)
			return top;
		swap(&q->heap[i], &q->heap[least]);
		i = least;
	}
}

/* ---- turns ----------------------------------------------------------------------------------- */

void rp_turns_wait(struct replay *r)
{
	r->threads[r->selected].placed = true;
	if (!rp_thread_at_end(r->th))
		push(&r->turns,
		     (struct rp_turn){ .seq = rp_thread_next_seq(r->th), .thread = r->selected });
}

/* Put a thread that is not the moment's in the queue. What cannot be replayed up to the moment is
 * left out: it has been told, or was passed over. */
static int enter(struct replay *r, uint32_t thread, struct dj_error *err)
{
	uint64_t upto, last;

	if (!rp_begun(r, &r->moment, thread, &upto)) {
		push(&r->turns,
		     (struct rp_turn){ .seq = rp_thread_first_seq(dj_trace_thread(r->t, thread)),
				       .thread = thread,
				       .fresh = true });
		return 0;
	}
	/* all that it did lies before the moment */
	if (rp_last_seq(r, thread, &last) && last <= upto)
		return 0;
	if (!rp_place(r, thread, err))
		rp_turns_wait(r);
	return r->cancelled ? -1 : 0;
}

int rp_turns_begin(struct replay *r, struct dj_error *err)
{
	uint32_t selected = r->selected;
	bool running = rp_in_scope(r, r->moment.thread);

	replay_pos(r, &r->moment);
	r->turns.n = 0;
	if (r->turns.cap < r->nthreads) {
		struct rp_turn *heap = realloc(r->turns.heap, r->nthreads * sizeof(*heap));
		if (!heap)
			return dj_fail(err, 1, "out of memory");
		r->turns.heap = heap;
		r->turns.cap = r->nthreads;
	}
	for (uint32_t i = 0; i < r->nthreads; i++) {
		rp_switch(r, selected, NULL); /* rp_in_scope() looks at it */
		if (i == r->moment.thread || !rp_in_scope(r, i))
			continue;
		if (enter(r, i, err)) {
			rp_switch(r, selected, NULL);
			return -1;
		}
	}
	if (!running)
		return rp_switch(r, selected, err) ? -1 : 1;
	return rp_switch(r, r->moment.thread, err);
}

uint64_t rp_turns_limit(const struct replay *r)
{
	const struct rp_turn *next = r->turns.heap;

	if (!r->turns.n || next->seq == UINT64_MAX)
		return UINT64_MAX;
	return next->seq + (r->selected < next->thread);
}

const struct rp_turn *rp_turns_next(struct replay *r, struct dj_error *err)
{
	struct rp_turns *q = &r->turns;

	if (!q->n)
		return NULL;
	q->now = pop(q);
	if (rp_switch(r, q->now.thread, err))
		return NULL;
	if (q->now.fresh &&
	    replay_move(r, &(struct rp_thread_pos){ .steps = r->th->info->first_steps }, err))
		return NULL;
	r->moment.thread = q->now.thread;
	r->threads[q->now.thread].placed = false;
	return &q->now;
}
