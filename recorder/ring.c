/*
 * The ring buffer: two halves that the recorded thread fills by turns, and a thread of ours that
 * turns what is in them into trace records.
 *
 * The recorded thread appends at T_HEAD and calls the supervisor when it reaches T_LIMIT. Only
 * then, or at another stop, when it does not run, does the supervisor hand the filled part to the
 * writing thread and give the recorded thread the other half, waiting until that has been written.
 * So there is no moment at which two parties touch one half.
 *
 * What the supervisor would have to wait for, because the thread or its image has ended, it writes
 * itself: to be woken takes longer. So a short program has no writing thread.
 *
 * Records of the supervisor's own (signals, mappings...) never lie in the ring, which the program
 * can write to: they wait in a list beside the half, each with the offset in the half at which it
 * belongs, and are written when the half's records up to there are.
 *
 * What lies in the ring and T_HEAD itself are input, to be checked like any other. If they do not
 * make sense the program has written over them: the recording ends with the last record that does.
 */
#include "format/thread.h"
#include "recorder/recorder.h"

#include "recorder/image.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* So many own records at most wait beside a half. */
#define OWN_MAX 4096
/* A fragment that is being executed has gone so far at most beyond T_STEPS. */
#define AHEAD	(1u << 16)
#define AT_HEAD UINT64_MAX

/* When the program had to wait for a half to be written, so many are packed quickly rather than
 * well. */
#define HURRIED 16

/* So many lines are remembered of those that were imported. */
#define SEEN 64

struct own {
	struct own *next;
	uint64_t at;	/* offset in the half */
	uint64_t facts; /* so many hold: then it is no record */
	struct dj_record rec;
	uint8_t bytes[];
};

struct half {
	uint8_t *ours;
	uint64_t va;
	struct own *own, **own_end;
	unsigned n_own;
	uint64_t known; /* so much has been written to, when last looked at */
	/* the job: */
	bool busy; /* it is waiting or being written */
	bool hurry;
	uint64_t used, steps, seq;
	uint64_t number; /* the highest that was given out then */
	bool lost;	 /* what came since may be missing: the thread's place says nothing */
};

struct rec_ring {
	struct rec_thread *t;
	struct half half[2];
	unsigned current;
	struct dj_worker *writer; /* NULL: nothing has been handed over yet */
	unsigned next;		  /* the half that is written next */
	pthread_mutex_t lock;
	pthread_cond_t work, done;
	bool quit;
	bool failed;
	bool garbage; /* that is, because the contents of the ring make no sense */
	uint64_t
		own_at; /* own records belong there in the current half; AT_HEAD: behind the last */
	bool placed;	/* the image has it in its memory */
	bool broken;	/* T_HEAD makes no sense: what was recorded since is lost */
	uint64_t last;	/* position of the last record written */
	uint64_t reached; /* the latest position the records written imply */
	uint64_t raw;	  /* bytes handed over */
	unsigned hurried; /* so many halves more are packed quickly */
	uint64_t number;  /* of the last event with a SEQ record */
	/* lines, one replacing another by turns; the writing thread's to write, anybody's to read
	 */
	uint64_t seen[SEEN], n_seen;
	struct dj_error err;
};

/* ---- the writing thread --------------------------------------------------------------- */

static int overwritten(struct dj_error *err, uint64_t va)
{
	return dj_fail(err, 1,
		       "the program overwrote deja's memory at %#llx; the recording ends there",
		       (unsigned long long)va);
}

static bool garbage(struct rec_ring *g, uint64_t va)
{
	overwritten(&g->err, va);
	g->garbage = true;
	return false;
}

static void advanced(struct rec_ring *g, uint64_t at, uint64_t after)
{
	g->last = at;
	if (after > g->reached)
		g->reached = after;
}

static int write_record(struct rec_ring *g, const struct dj_record *r)
{
	bool step = r->kind == DJ_REC_SYSCALL || r->kind == DJ_REC_EFFECTS;
	advanced(g, r->steps, r->steps + step);
	if (r->kind == DJ_REC_SEQ || r->kind == DJ_REC_ORDER)
		g->number = r->seq;
	if (r->kind == DJ_REC_SYSCALL)
		rec_times_called(g->t->times, r->steps);
	return dj_stream_record(g->t->stream, r, &g->err);
}

static int write_own(struct rec_ring *g, const struct own *o)
{
	if (!o->facts)
		return write_record(g, &o->rec);
	advanced(g, o->rec.steps, o->rec.steps);
	return dj_stream_facts(g->t->stream, o->rec.steps, o->facts, &g->err);
}

/* Write the record at `at`; returns its size, or 0 if it is none or could not be written. */
static unsigned write_from_ring(struct rec_ring *g, const struct half *h, uint64_t at)
{
	const uint8_t *p = h->ours + at;
	uint64_t w[6] = { 0 }, left = h->used - at;
	memcpy(w, p, left < sizeof(w) ? left : sizeof(w));
	uint64_t steps = w[0] & 0xffffffffffffULL;
	unsigned type = (unsigned)(w[0] >> 56), ordinal = (unsigned)(w[0] >> 48) & 0xff, size = 0;
	int rc = 0;
	switch (type) {
	case RING_IMPORT:
		size = RING_IMPORT_SIZE;
		break;
	case RING_SYSCALL:
		size = RING_SMALL_SIZE;
		break;
	case RING_SEQ:
		size = RING_SEQ_SIZE;
		break;
	case RING_ORDER:
		size = RING_ORDER_SIZE;
		break;
	case RING_DATA:
		size = w[2] <= RING_DATA_MAX ? RING_DATA_HEAD + ((unsigned)w[2] + 7) / 8 * 8 : 0;
		break;
	}
	const bool effects = !size && (size = rec_effects_size(type, ordinal)) != 0;
	if (!size || size > left || steps < g->last || steps > h->steps + AHEAD ||
	    (type == RING_IMPORT && w[1] % DJ_LINE != 0) ||
	    ((type == RING_SEQ || type == RING_ORDER) && (w[1] <= g->number || w[1] > h->number))) {
		garbage(g, h->va + at);
		return 0;
	}
	if (type == RING_IMPORT) {
		rc = dj_stream_import(g->t->stream, steps, w[2], ordinal, w[1], p + 24, &g->err);
		__atomic_store_n(&g->seen[g->n_seen++ % SEEN], w[1], __ATOMIC_RELAXED);
		advanced(g, steps, steps);
	} else if (type == RING_SYSCALL) {
		struct dj_record r = {
			.kind = DJ_REC_SYSCALL, .steps = steps, .result = w[1], .r11 = w[2]
		};
		rc = write_record(g, &r);
	} else if (type == RING_SEQ || type == RING_ORDER) {
		struct dj_record r = { .kind = type == RING_SEQ ? DJ_REC_SEQ : DJ_REC_ORDER,
				       .steps = steps,
				       .rep = type == RING_SEQ ? 0 : w[2],
				       .seq = w[1] };
		rc = write_record(g, &r);
	} else if (effects) {
		struct dj_record r = { .steps = steps };
		rec_effects_from(type, ordinal, p, &r);
		rc = write_record(g, &r);
	} else {
		struct dj_record r = { .kind = DJ_REC_SYSDATA,
				       .steps = steps,
				       .addr = w[1],
				       .length = w[2],
				       .bytes = p + RING_DATA_HEAD };
		rc = write_record(g, &r);
	}
	return rc ? 0 : size;
}

/* Write a half, and if nothing is to `follow` soon, all that its stream has gathered into the file.
 * After a failure only the list is freed; but if the file is all right the reason for the end goes
 * there. */
static int write_half(struct rec_ring *g, struct half *h, bool skip, bool follow)
{
	uint64_t at = 0;
	bool good = !skip;
	dj_stream_hurry(g->t->stream, h->hurry);
	rec_times_take(g->t->times);
	while (h->own || (good && at < h->used)) {
		struct own *o = h->own;
		if (o && (!good || o->at <= at)) {
			if (good && o->rec.steps < g->last)
				good = garbage(g, h->va + at);
			if (good)
				good = write_own(g, o) == 0;
			else if (g->garbage && o->rec.kind == DJ_REC_END)
				write_record(g, &o->rec);
			h->own = o->next;
			free(o);
		} else if (good) {
			unsigned size = write_from_ring(g, h, at);
			good = size != 0;
			at += size;
		}
	}
	h->own_end = &h->own;
	h->n_own = 0;
	if (good && !follow && !h->lost && h->steps >= g->last)
		good = !dj_stream_flush(g->t->stream, h->steps, h->seq, &g->err) &&
		       !rec_times_write(g->t->times, g->t->stream, h->steps, false, &g->err);
	return good ? 0 : -1;
}

static void writer_main(void *arg)
{
	struct rec_ring *g = arg;
	pthread_mutex_lock(&g->lock);
	for (;;) {
		struct half *h; /* write_here() changes which is next, too */
		while (!(h = &g->half[g->next])->busy && !g->quit)
			pthread_cond_wait(&g->work, &g->lock);
		if (!h->busy)
			break;
		bool skip = g->failed;
		pthread_mutex_unlock(&g->lock);
		int rc = write_half(g, h, skip, false);
		pthread_mutex_lock(&g->lock);
		if (rc)
			g->failed = true;
		h->busy = false;
		g->next ^= 1;
		pthread_cond_broadcast(&g->done);
	}
	pthread_mutex_unlock(&g->lock);
}

/* ---- the supervisor's side ---------------------------------------------------------------- */

/* How much of a half is used: what a thread has written to stays in memory, so that many threads
 * have less each. */
static uint64_t half_size(const struct rec_thread *t)
{
	unsigned n = t->proc->n_threads;
	return n <= 8 ? AREA_HALF : n <= 64 ? AREA_HALF / 8 : AREA_HALF / 64;
}

static void use_half(struct rec_ring *g, unsigned i)
{
	g->current = i;
	g->half[i].known = 0;
	*rec_tcb(g->t, T_HEAD) = g->half[i].va;
	*rec_tcb(g->t, T_LIMIT) = g->half[i].va + half_size(g->t) - AREA_SLACK;
}

static struct rec_ring *new_ring(struct rec_thread *t)
{
	struct rec_ring *g = calloc(1, sizeof(*g));
	DJ_ASSERT(g, "out of memory for the ring");
	g->t = t;
	g->own_at = AT_HEAD;
	for (unsigned i = 0; i < 2; i++)
		g->half[i].own_end = &g->half[i].own;
	pthread_mutex_init(&g->lock, NULL);
	pthread_cond_init(&g->work, NULL);
	pthread_cond_init(&g->done, NULL);
	return g;
}

static void wait_until_written(struct rec_ring *g)
{
	pthread_mutex_lock(&g->lock);
	while (g->half[0].busy || g->half[1].busy)
		pthread_cond_wait(&g->done, &g->lock);
	pthread_mutex_unlock(&g->lock);
}

/* A new image has new memory, and the old one's records are all written. */
void rec_ring_start(struct rec_thread *t)
{
	if (!t->ring)
		t->ring = new_ring(t);
	struct rec_ring *g = t->ring;
	wait_until_written(g);
	for (unsigned i = 0; i < 2; i++) {
		g->half[i].ours = t->own + i * AREA_HALF;
		g->half[i].va = t->s + (uint64_t)(int64_t)T_RING + i * (uint64_t)AREA_HALF;
	}
	use_half(g, g->current);
	g->placed = true;
	rec_log_start(t);
	rec_times_start(t);
}

/* The image is gone. Until the next one has its area a thread may end, too. */
void rec_ring_leave(struct rec_thread *t)
{
	bool whole;
	if (!t->ring)
		return;
	rec_ring_reached(t, &whole);
	t->ring->placed = false;
}

bool rec_ring_placed(const struct rec_thread *t)
{
	return t->ring && t->ring->placed;
}

/* How much of the current half has been written to. */
static uint64_t used(struct rec_thread *t)
{
	struct rec_ring *g = t->ring;
	struct half *h = &g->half[g->current];
	if (!g->placed)
		return 0;
	uint64_t head = *rec_tcb(t, T_HEAD), n = head - h->va;
	if (n >= h->known && n <= AREA_HALF)
		return h->known = n;
	struct dj_error err;
	overwritten(&err, t->s + (uint64_t)(int64_t)T_HEAD);
	rec_cut(t->rec, "%s", err.text);
	g->broken = true;
	return h->known;
}

void rec_ring_moved(struct rec_thread *t)
{
	struct rec_ring *g = t->ring;
	uint64_t n = used(t), was = g->half[g->current].va, limit = *rec_tcb(t, T_LIMIT);
	for (unsigned i = 0; i < 2; i++)
		g->half[i].va = t->s + (uint64_t)(int64_t)T_RING + i * (uint64_t)AREA_HALF;
	*rec_tcb(t, T_HEAD) = g->half[g->current].va + n;
	if (limit) /* else the clock wants it to stop (clock.c) */
		*rec_tcb(t, T_LIMIT) = g->half[g->current].va + (limit - was);
	rec_log_start(t); /* it is empty: the thread is in hand */
}

void rec_ring_check(struct rec_thread *t)
{
	(void)used(t);
}

bool rec_ring_at_call(struct rec_thread *t, uint64_t place)
{
	struct rec_ring *g = t->ring;
	const struct half *h = &g->half[g->current];
	uint64_t at = place - h->va, first = g->own_at == AT_HEAD ? 0 : g->own_at, w;
	if (at > used(t) || at < first + RING_SMALL_SIZE || at % 8)
		return false;
	memcpy(&w, h->ours + at - RING_SMALL_SIZE, sizeof(w));
	if (w >> 56 != RING_SYSCALL)
		return false;
	g->own_at = at;
	t->steps = (w & 0xffffffffffffULL) + 1;
	return true;
}

void rec_ring_at_head(struct rec_thread *t)
{
	t->ring->own_at = AT_HEAD;
}

/* The number of the last ordered event that a thread passed which is gone, so that its history has
 * an end among those of others. It may have ended in the cache. */
static uint64_t last_number(struct rec_thread *t)
{
	uint64_t seq = *rec_tcb(t, T_SEQ);
	return seq > t->seq && seq <= rec_order_now(t) ? seq : t->seq;
}

/* The half that the thread has been writing to is what is written next. */
static struct half *fill(struct rec_thread *t)
{
	rec_log_drain(t);
	struct rec_ring *g = t->ring;
	struct half *h = &g->half[g->current];
	h->used = used(t);
	g->raw += h->used;
	h->lost = g->broken || t->overwritten || t->lost;
	h->steps = h->lost ? t->steps : rec_steps(t);

	/* inside a fragment T_STEPS is behind, T_SEQ is not */
	h->seq = t->in_hand ? t->seq : t->state == REC_GONE ? last_number(t) : DJ_SEQ_UNKNOWN;
	h->number = rec_order_now(t);
	return h;
}

/* Write everything; more is to `follow` soon. */
static void write_here(struct rec_thread *t, bool follow)
{
	struct rec_ring *g = t->ring;
	struct half *h = fill(t);
	wait_until_written(g);
	h->hurry = g->hurried > 0;
	int rc = write_half(g, h, g->failed, follow);
	pthread_mutex_lock(&g->lock);
	g->failed |= rc != 0;
	g->next ^= 1;
	pthread_mutex_unlock(&g->lock);
	use_half(g, g->current ^ 1);
}

void rec_ring_hand_over(struct rec_thread *t)
{
	struct rec_ring *g = t->ring;
	if (!g->writer)
		g->writer = dj_work(writer_main, g);
	if (!g->writer) { /* then without one */
		write_here(t, false);
		return;
	}
	struct half *h = fill(t), *other = &g->half[g->current ^ 1];
	pthread_mutex_lock(&g->lock);
	if (other->busy)
		g->hurried = HURRIED;
	h->hurry = g->hurried > 0;
	g->hurried -= h->hurry;
	h->busy = true;
	pthread_cond_broadcast(&g->work);
	while (other->busy)
		pthread_cond_wait(&g->done, &g->lock);
	pthread_mutex_unlock(&g->lock);
	use_half(g, g->current ^ 1);
}

void rec_ring_write(struct rec_thread *t)
{
	write_here(t, false);
}

static void append(struct rec_thread *t, struct own *o, uint64_t at)
{
	struct rec_ring *g = t->ring;
	struct half *h = &g->half[g->current];
	o->next = NULL;
	o->at = at;
	*h->own_end = o;
	h->own_end = &o->next;
	if (++h->n_own >= OWN_MAX && g->own_at == AT_HEAD)
		rec_ring_hand_over(t);
}

static uint64_t place(struct rec_thread *t)
{
	struct rec_ring *g = t->ring;
	return g->own_at == AT_HEAD ? used(t) : g->own_at;
}

void rec_ring_facts(struct rec_thread *t)
{
	uint64_t at = place(t);
	if (t->ring->broken || t->overwritten || t->lost || t->facts == t->proc->n_facts)
		return;
	struct own *o = calloc(1, sizeof(*o));
	DJ_ASSERT(o, "out of memory for a record");
	o->rec.steps = t->steps;
	o->facts = t->facts = t->proc->n_facts;
	append(t, o, at);
}

/* Facts come to pass in the order in which the supervisor learns of them, whatever has been written
 * of the threads' records by then. Whoever gets a number that nobody has yet comes after them; one
 * that has the thread's own next number may have come before: an exec's facts are made when all
 * other threads have ended, whatever they did meanwhile. */
static void record_fact(struct rec_thread *t, const struct dj_record *r)
{
	struct dj_record fact = *r;
	struct dj_error err = { 0 };
	bool now = t->ring->own_at == AT_HEAD, overtaken = now ? false : rec_log_overtaken(t->proc);
	if (now)
		rec_log_fact(t, r->kind == DJ_REC_CODE);
	fact.seq = now ? rec_order_now(t) : t->seq;
	if (dj_stream_fact(t->stream, &fact, &t->proc->n_facts, &err))
		rec_cut(t->rec, "%s", err.text);
	else if (!overtaken)
		rec_ring_facts(t);
	if ((r->kind == DJ_REC_MAP || r->kind == DJ_REC_PROTECT) && (r->prot & PROT_EXEC))
		rec_code_fact(t->proc, r->addr, r->addr + r->length);
}

void rec_ring_record(struct rec_thread *t, const struct dj_record *r)
{
	struct rec_ring *g = t->ring;
	uint64_t at = place(t);
	bool end = r->kind == DJ_REC_END || r->kind == DJ_REC_EXIT;
	if ((g->broken || t->overwritten || t->lost) && !end)
		return;
	if (dj_record_is_fact(r->kind)) {
		record_fact(t, r);
		return;
	}
	size_t n_bytes = r->bytes ? (r->kind == DJ_REC_IMPORT ? DJ_LINE : r->length) : 0;
	size_t n_name = r->name ? strlen(r->name) + 1 : 0;
	struct own *o = malloc(sizeof(*o) + n_bytes + n_name);
	DJ_ASSERT(o, "out of memory for a record");
	o->facts = 0;
	o->rec = *r;
	if (r->kind != DJ_REC_SEQ)
		o->rec.seq = t->seq;
	if (n_bytes) {
		memcpy(o->bytes, r->bytes, n_bytes);
		o->rec.bytes = o->bytes;
	}
	if (n_name) {
		memcpy(o->bytes + n_bytes, r->name, n_name);
		o->rec.name = (char *)o->bytes + n_bytes;
	}
	append(t, o, at);
}

void rec_ring_time(struct rec_thread *t, uint64_t steps)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	struct dj_record r = { .kind = DJ_REC_MARK,
			       .steps = steps,
			       .what = DJ_MARK_TIME,
			       .result =
				       (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec };
	rec_ring_record(t, &r);
}

unsigned rec_ring_imported(struct rec_thread *t, uint64_t *addr, unsigned max)
{
	struct rec_ring *g = t->ring;
	unsigned n = 0;
	for (unsigned i = 0; i < SEEN && n < max; i += SEEN / max) {
		addr[n] = __atomic_load_n(&g->seen[i], __ATOMIC_RELAXED);
		n += addr[n] != 0;
	}
	return n;
}

uint64_t rec_ring_reached(struct rec_thread *t, bool *whole)
{
	write_here(t, true);
	*whole = !t->ring->failed && !t->ring->broken;
	return t->ring->reached;
}

uint64_t rec_ring_raw(struct rec_thread *t)
{
	return t->ring->raw + used(t);
}

bool rec_ring_failed(struct rec_thread *t)
{
	struct rec_ring *g = t->ring;
	if (!g)
		return false;
	pthread_mutex_lock(&g->lock);
	bool f = g->failed;
	if (f && !t->rec->err->text[0])
		*t->rec->err = g->err;
	pthread_mutex_unlock(&g->lock);
	return f;
}

int rec_ring_stop(struct rec_thread *t, struct dj_error *err)
{
	struct rec_ring *g = t->ring;
	if (!g)
		return 0;
	rec_times_end(t);
	write_here(t, false);
	pthread_mutex_lock(&g->lock);
	g->quit = true;
	pthread_cond_broadcast(&g->work);
	pthread_mutex_unlock(&g->lock);
	if (g->writer)
		dj_work_done(g->writer);
	if (!g->failed && rec_times_write(t->times, t->stream, g->reached, true, &g->err))
		g->failed = true;
	int rc = g->failed ? -1 : 0;
	if (rc)
		*err = g->err;
	rec_times_free(t);
	pthread_mutex_destroy(&g->lock);
	pthread_cond_destroy(&g->work);
	pthread_cond_destroy(&g->done);
	free(g);
	t->ring = NULL;
	return rc;
}
