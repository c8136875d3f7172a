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

#define ROOM	     (1ULL << 20) /* bytes of memory in a full one, of all threads together, ... */
#define ROOM_EACH    (256ULL << 10) /* ... but so many of each */
#define LEAST_ROOM   (96ULL << 10)
#define MEMORY_SHARE 0.05
#define PACKED	     0.4     /* of memory's bytes so many are left in the file */
#define JOIN	     1000000 /* instructions that are worth a keyframe because others make theirs */
#define JOIN_THREADS 64

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

static void here(struct rec_thread *t, struct rec_keyframe_place *p)
{
	*p = (struct rec_keyframe_place){ t->steps, t->seq, rec_ring_raw(t),
					  dj_writer_size(t->rec->writer), rec_clock_now() };
}

/* Half an interval has passed since the last keyframe: what has it cost? */
static void learn(struct rec_thread *t)
{
	const struct rec_keyframe_place *before = &t->keyframe.half, *at = &t->keyframe.last;
	struct rec_keyframe_place now;
	here(t, &now);
	if (t->keyframe.shadow > 0) {
		double rate = at->steps > before->steps
				      ? (double)(at->raw - before->raw) /
						(double)(at->steps - before->steps)
				      : 0;
		double raw = (double)(now.raw - at->raw), file = (double)(now.size - at->size);
		file = file > t->keyframe.memory ? file - t->keyframe.memory : 0;
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
	double since = history - (double)t->keyframe.last.steps;
	t->keyframe.shadow = shadow;
	return shadow > 0 && rec->keyframes.spent + cost <= may &&
	       (!known || since * may >= history * SPREAD * cost);
}

/* How much memory one here may have, if that is to cost little; 0: it is to be light. */
static uint64_t cheap_room(struct rec_thread *t, uint64_t room)
{
	struct rec_recording *rec = t->rec;
	double may = MEMORY_SHARE * (double)dj_writer_size(rec->writer) - rec->keyframes.memory;
	if (may < PACKED * LEAST_ROOM)
		return 0;
	return may < PACKED * (double)room ? (uint64_t)(may / PACKED) : room;
}

/* What it would be where that does not matter. */
static uint64_t whole_room(const struct rec_thread *t)
{
	uint64_t room = ROOM / (t->proc->n_threads ? t->proc->n_threads : 1);
	return room > ROOM_EACH ? room : ROOM_EACH;
}

/* ---- making one ----------------------------------------------------------------------------- */

static void record(struct rec_thread *t, enum dj_keyframe what)
{
	struct dj_record r = { .kind = DJ_REC_KEYFRAME,
			       .what = (uint8_t)what,
			       .steps = t->steps,
			       .addr = t->steps - t->seq_at,
			       .mask = DJ_REG_ALL };
	rec_x87_place(t);
	rec_full_regs(t, &r.regs);
	rec_ring_record(t, &r);
	here(t, &t->keyframe.last);
	t->keyframe.memory = 0;
	t->idle.self = false;
	t->rec->counts[REC_COUNT_KEYFRAMES]++;
}

void rec_keyframe_record(struct rec_thread *t)
{
	record(t, DJ_KEYFRAME_LIGHT);
}

/* All threads are to make a full one as soon as they can, but those that sleep when they wake up:
 * they come by when they next write to the ring. If they do not the clock stops them. */
static void new_round(struct rec_thread *by)
{
	struct rec_recording *rec = by->rec;
	rec->keyframes.rounds++;
	for (struct rec_thread *t = rec->threads; t; t = t->next)
		if (t != by && t->own && t->state == REC_CACHE)
			*rec_tcb(t, T_LIMIT) = 0;
}

static void record_full(struct rec_thread *t)
{
	struct rec_keyframe *k = &t->keyframe;
	record(t, DJ_KEYFRAME_FULL);
	k->full = k->last;
	k->memory = PACKED * (double)rec_copy_parts(t, k->room);
	t->rec->keyframes.memory += k->memory;
	t->rec->counts[REC_COUNT_FULL_KEYFRAMES]++;
	if (k->round == t->rec->keyframes.rounds)
		new_round(t);
	k->round = t->rec->keyframes.rounds;
}

static enum rec_state emptied(struct rec_thread *t, int64_t result)
{
	if (result) { /* a filter, or locked memory: nothing has been given back */
		t->keyframe.off = t->idle.refused = true;
		t->idle.self = false;
		return REC_IN_HAND;
	}
	memset(t->own + AREA_THREAD - AREA_PAGE, 0, AREA_PAGE);
	if (t->keyframe.room)
		record_full(t);
	else
		rec_keyframe_record(t);
	return REC_IN_HAND;
}

/* Whether history can begin at this place. */
static bool place(const struct rec_thread *t)
{
	return !t->in_rep && !t->trap_flag && !t->held && !t->quiet && t->signalled != t->steps &&
	       t->seq_at <= t->steps && !rec_over(t->rec);
}

static uint64_t beyond(uint64_t now, uint64_t then)
{
	return now > then ? now - then : 0;
}

/* How far the thread has come since it was there; in the cache, as far as it shows. */
static uint64_t since(struct rec_thread *t, const struct rec_keyframe_place *p,
		      const struct rec_interval *in)
{
	switch (in->unit) {
	case REC_EVENTS:
		return beyond(t->in_hand ? t->seq : *rec_tcb(t, T_SEQ), p->seq);
	case REC_NANOSECONDS:
		return (uint64_t)(rec_clock_now() - p->time);
	case REC_TRACE_BYTES:
		return dj_writer_size(t->rec->writer) - p->size;
	default:
		return beyond(t->in_hand ? t->steps : rec_lagged(t), p->steps);
	}
}

/* A full one is due, whatever it costs: after so long, or because others are making theirs. */
static bool full_is_due(struct rec_thread *t)
{
	const struct rec_interval *in = &t->rec->opt.full_keyframes;
	struct rec_keyframe *k = &t->keyframe;
	if (k->round == t->rec->keyframes.rounds && since(t, &k->full, in) < in->n)
		return false;
	k->room = whole_room(t);
	return true;
}

/* As `cheap`; if not, its cost will not be of interest. */
static bool is_cheap(struct rec_thread *t)
{
	if (cheap(t))
		return true;
	t->keyframe.shadow = 0;
	return false;
}

/* Others are making full ones, and one here costs little. */
static bool joins(struct rec_thread *t)
{
	const struct rec_options *opt = &t->rec->opt;
	struct rec_keyframe *k = &t->keyframe;
	if (k->round == t->rec->keyframes.rounds)
		return false;
	k->round = t->rec->keyframes.rounds;
	if (t->steps - k->last.steps < (opt->keyframes_cheap ? opt->keyframes.n / 2 : JOIN) ||
	    t->proc->n_threads > JOIN_THREADS)
		return false;
	k->room = cheap_room(t, whole_room(t));
	return k->room && (!opt->keyframes_cheap || is_cheap(t));
}

static bool light_is_due(struct rec_thread *t)
{
	const struct rec_options *opt = &t->rec->opt;
	uint64_t n = opt->keyframes.n, gone = since(t, &t->keyframe.last, &opt->keyframes);
	if (!n || gone < n)
		return false;
	if (!opt->keyframes_cheap)
		return true;
	if (gone < t->steps / APART || t->steps < t->keyframe.look)
		return false;
	if (is_cheap(t))
		return true;
	t->keyframe.look = t->steps + t->steps / APART;
	return false;
}

/* A light one is to be made. It may as well be full, if that costs little and the last full one was
 * long ago. */
static void fill(struct rec_thread *t)
{
	const struct rec_options *opt = &t->rec->opt;
	const struct rec_interval *in = &opt->full_keyframes;
	bool full = opt->full_keyframes_cheap && since(t, &t->keyframe.full, in) >= in->n;
	t->keyframe.room = full ? cheap_room(t, whole_room(t)) : 0;
}

static void begin(struct rec_thread *t)
{
	struct rec_keyframe *k = &t->keyframe;
	here(t, &k->last);
	k->half = k->full = k->last;
	k->round = t->rec->keyframes.rounds;
	k->began = true;
}

bool rec_keyframe_is_due(struct rec_thread *t)
{
	const struct rec_options *opt = &t->rec->opt;
	struct rec_keyframe *k = &t->keyframe;
	if (!k->began)
		begin(t);
	if (k->off || !place(t))
		return false;
	if (opt->keyframes_cheap && t->steps - k->last.steps >= opt->keyframes.n / 2 &&
	    k->half.steps <= k->last.steps)
		learn(t);
	k->room = 0;
	if (k->last.steps == t->steps) /* there is one */
		return false;
	if (opt->full_keyframes.n && (opt->full_keyframes_cheap ? joins(t) : full_is_due(t)))
		return true;
	if (t->idle.self)
		k->shadow = k->room = 0;
	else if (light_is_due(t))
		fill(t);
	else
		return false;
	return true;
}

bool rec_keyframe_wants(struct rec_thread *t)
{
	const struct rec_options *opt = &t->rec->opt;
	const struct rec_keyframe *k = &t->keyframe;
	if (!k->began || k->off)
		return false;
	return (opt->full_keyframes.n && k->round != t->rec->keyframes.rounds) ||
	       (!opt->full_keyframes_cheap && opt->full_keyframes.n &&
		since(t, &k->full, &opt->full_keyframes) >= opt->full_keyframes.n) ||
	       (!opt->keyframes_cheap && opt->keyframes.n &&
		since(t, &k->last, &opt->keyframes) >= opt->keyframes.n);
}

enum rec_state rec_keyframe_begin(struct rec_thread *t)
{
	return rec_call(t, emptied, SYS_madvise, t->s + AREA_PAGE, (1UL << 32) - AREA_PAGE,
			MADV_DONTNEED, 0, 0, 0);
}
