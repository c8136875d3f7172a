/*
 * Keyframes: places in a thread's stream from which it can be replayed without what lies before.
 *
 * A replay needs a thread's registers and its shadow as they were. The registers are recorded; the
 * shadow is emptied, here as it will be there. What the thread reads from then on is imported
 * again, so a keyframe costs as much as the memory that the thread goes on using. It is made where
 * the thread is in hand, between two instructions and not between a signal and the first of its
 * handler, so that a position that steps alone can name is the one meant.
 *
 * Unless the interval is asked for, keyframes are made where they cost little beside everything
 * else: all of them together SHARE of the file. What one will cost is guessed by the size of the
 * shadow, and from what the last ones cost: how much more was recorded in half an interval behind
 * them than in half an interval before. Where one costs much, or the history is long already, the
 * next is farther away; the longest part of a history should not be most of it.
 *
 * The pages of the shadow are the program's own: a call that the thread is made to make gives them
 * back. Its first page lies in the thread's own part, which we can write to (translator/area.h).
 */
#include "recorder/recorder.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define SHARE	     0.12
#define FIRST_FACTOR 0.1
#define LEAST_FACTOR 0.002
#define APART	     8 /* of the history so far, at most so many parts */
#define SPREAD	     3 /* a keyframe that costs all that may be spent: so many times the history */

/* ---- what one costs ------------------------------------------------------------------------ */

/* Bytes of memory that the thread's shadow has; 0 if that cannot be known. */
static uint64_t shadow_size(struct rec_thread *t)
{
	struct rec_tracer *tracer = t->rec->tracer;
	uint64_t start, end, kb, size = 0;
	bool inside = false;
	char line[512];
	FILE *f = tracer->open_proc(tracer, t->tid, "smaps");
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &start, &end) == 2)
			inside = start < t->s + (1UL << 32) && end > t->s + AREA_PAGE;
		else if (inside && sscanf(line, "Rss: %" SCNu64 " kB", &kb) == 1)
			size += kb << 10;
	}
	if (f)
		fclose(f);
	return size;
}

static void sample(struct rec_thread *t, struct rec_keyframe_sample *s)
{
	*s = (struct rec_keyframe_sample){ t->steps, rec_ring_raw(t),
					   dj_writer_size(t->rec->writer) };
}

/* Half an interval has passed since the last keyframe: what has it cost? */
static void learn(struct rec_thread *t)
{
	const struct rec_keyframe_sample *before = &t->keyframe.half, *at = &t->keyframe.last;
	struct rec_keyframe_sample now;
	sample(t, &now);
	if (t->keyframe.shadow > 0) {
		double rate = at->steps > before->steps
				      ? (double)(at->raw - before->raw) /
						(double)(at->steps - before->steps)
				      : 0;
		double raw = (double)(now.raw - at->raw), file = (double)(now.size - at->size);
		double more = raw - rate * (double)(now.steps - at->steps);
		double cost = raw > 0 && more > 0 ? file * more / raw : 0;
		double factor = cost / t->keyframe.shadow;
		t->rec->keyframes.spent += cost;
		t->rec->keyframes.factor = factor > LEAST_FACTOR ? factor : LEAST_FACTOR;
		t->keyframe.shadow = 0;
	}
	t->keyframe.half = now;
}

/* Whether one here, so long after the last, costs little enough. */
static bool cheap(struct rec_thread *t)
{
	struct rec_recording *rec = t->rec;
	double shadow = (double)shadow_size(t), history = (double)t->steps;
	bool known = rec->keyframes.factor > 0;
	double factor = known ? rec->keyframes.factor : FIRST_FACTOR;
	double cost = factor * shadow, may = SHARE * (double)dj_writer_size(rec->writer);
	double since = history - (double)t->keyframe.steps;
	t->keyframe.shadow = shadow;
	return shadow > 0 && rec->keyframes.spent + cost <= may &&
	       (!known || since * may >= history * SPREAD * cost);
}

/* ---- making one ----------------------------------------------------------------------------- */

void rec_keyframe_record(struct rec_thread *t)
{
	struct dj_record r = { .kind = DJ_REC_KEYFRAME,
			       .what = DJ_KEYFRAME_LIGHT,
			       .steps = t->steps,
			       .addr = t->steps - t->seq_at,
			       .mask = DJ_REG_ALL };
	rec_x87_place(t);
	rec_full_regs(t, &r.regs);
	rec_ring_record(t, &r);
	t->keyframe.steps = t->steps;
	t->idle.self = false;
	sample(t, &t->keyframe.last);
	t->rec->counts[REC_COUNT_KEYFRAMES]++;
}

static enum rec_state emptied(struct rec_thread *t, int64_t result)
{
	if (result) { /* a filter, or locked memory: nothing has been given back */
		t->keyframe.off = t->idle.refused = true;
		t->idle.self = false;
		return REC_IN_HAND;
	}
	memset(t->own + AREA_THREAD - AREA_PAGE, 0, AREA_PAGE);
	rec_keyframe_record(t);
	return REC_IN_HAND;
}

/* Whether history can begin at this place. */
static bool place(const struct rec_thread *t)
{
	return !t->in_rep && !t->trap_flag && !t->held && !t->quiet && t->signalled != t->steps &&
	       t->seq_at <= t->steps && !rec_over(t->rec);
}

bool rec_keyframe_is_due(struct rec_thread *t)
{
	const struct rec_options *opt = &t->rec->opt;
	uint64_t since = t->steps - t->keyframe.steps;
	if (t->keyframe.off)
		return false;
	if (t->idle.self && place(t)) {
		t->keyframe.shadow = 0;
		return true;
	}
	if (!opt->keyframes)
		return false;
	if (!opt->keyframes_cheap)
		return since >= opt->keyframes && place(t);
	if (since >= opt->keyframes / 2 && t->keyframe.half.steps <= t->keyframe.steps)
		learn(t);
	if (since < opt->keyframes || since < t->steps / APART || t->steps < t->keyframe.look ||
	    !place(t))
		return false;
	if (cheap(t))
		return true;
	t->keyframe.shadow = 0;
	t->keyframe.look = t->steps + t->steps / APART;
	return false;
}

enum rec_state rec_keyframe_begin(struct rec_thread *t)
{
	return rec_call(t, emptied, SYS_madvise, t->s + AREA_PAGE, (1UL << 32) - AREA_PAGE,
			MADV_DONTNEED, 0, 0, 0);
}
