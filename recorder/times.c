/*
 * When a thread was where: a clock beside the recording.
 *
 * The program's threads count their instructions in memory that we share with them. So nobody has
 * to stop, or to do anything else for it, if somebody looks at these numbers now and then: a thread
 * of ours, the *keeper*, notes for each recorded thread the time and the instructions that it has
 * come to. It looks every millisecond; less often if none of them has moved for some time, or if
 * there are many threads or to be woken takes long, for it shall not take more than a fiftieth of a
 * processor: that is what the kernel says it took. A number that
 * stays the same is noted when it was first seen and when last, so a thread that waits takes no
 * room.
 *
 * What is noted waits with the thread (struct rec_times) until its writing thread takes it
 * (recorder/ring.c). Inside a fragment the number is behind, which matters where a thread stays
 * there for long: in a system call. So it is also noted whether it was in one; the record of that
 * call has its exact position, and the writing thread, which comes upon it next, puts that in the
 * number's place.
 *
 * The lock is held for as long as the keeper takes to look at all threads, and by whoever takes a
 * thread's shared memory away (rec_times_hide).
 *
 * The program can write to what is looked at. A number that goes back is passed over, and what
 * lies beyond a thread's records is left out when they are written.
 */
#include "format/thread.h"
#include "recorder/recorder.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SHORTEST 1000  /* us between two looks, */
#define LONGEST	 16000 /* if nothing moves */
#define SHARE	 50    /* one part of so many of a processor's time */
#define LOOKS	 16    /* after so many it is asked what they took */
#define WAITING	 1024  /* pairs of a thread: then the latest gives way */

struct when {
	struct dj_time time;
	bool in_call;
};

struct rec_times {
	struct rec_times *next;
	struct rec_keeper *keeper;
	const _Atomic uint64_t *steps, *in_call; /* NULL: that memory is gone */
	struct when latest;			 /* what was seen last */
	bool noted;				 /* ... and is among those that wait */
	size_t n;
	struct when waiting[WAITING];

	/* the writing thread's: */
	size_t n_taken, settled; /* the first so many are where their calls are */
	struct when taken[2 * WAITING];
	struct dj_time written;
};

struct rec_keeper {
	pthread_t thread;
	uint64_t began;
	pthread_mutex_t lock; /* guards, and all that the keeper looks at: */
	pthread_cond_t changed;
	bool quit;
	struct rec_times *all;
	size_t n;
};

static uint64_t us_of(clockid_t clock)
{
	struct timespec now;
	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static uint64_t now_us(void)
{
	return us_of(CLOCK_MONOTONIC);
}

static void note(struct rec_times *x)
{
	if (x->n == WAITING)
		x->n--;
	x->waiting[x->n++] = x->latest;
	x->noted = true;
}

/* Whether it has moved. */
static bool look(struct rec_times *x, uint64_t now)
{
	struct when seen = { .time.us = now };
	if (!x->steps)
		return false;
	for (unsigned i = 0; i < TR_COUNTERS; i++)
		seen.time.steps += x->steps[i];
	seen.in_call = *x->in_call == 1;
	if (seen.time.steps < x->latest.time.steps || seen.time.steps >> 60)
		return false;
	bool moved = seen.time.steps != x->latest.time.steps || seen.in_call != x->latest.in_call;
	if (moved && !x->noted)
		note(x);
	x->latest = seen;
	x->noted = false;
	if (moved)
		note(x);
	return moved;
}

/* With the lock held: until there is something to look at, or for so long. False: no more. */
static bool wait_a_while(struct rec_keeper *k, uint64_t us)
{
	struct timespec until;
	while (!k->quit && !k->n)
		pthread_cond_wait(&k->changed, &k->lock);
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += (long)us * 1000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	while (!k->quit && !pthread_cond_timedwait(&k->changed, &k->lock, &until))
		;
	return !k->quit;
}

/* With the lock held. Returns whether anybody has moved. */
static bool look_at_all(struct rec_keeper *k)
{
	uint64_t now = now_us() - k->began;
	bool moved = false;
	for (struct rec_times *x = k->all; x; x = x->next)
		moved |= look(x, now);
	return moved;
}

static void *keeper_main(void *arg)
{
	struct rec_keeper *k = arg;
	uint64_t gap = SHORTEST, least = SHORTEST, spent = us_of(CLOCK_THREAD_CPUTIME_ID), now;
	pthread_mutex_lock(&k->lock);
	for (unsigned looks = 1; wait_a_while(k, gap); looks++) {
		bool moved = look_at_all(k);
		if (looks % LOOKS == 0) {
			now = us_of(CLOCK_THREAD_CPUTIME_ID);
			least = (now - spent) * SHARE / LOOKS;
			least = least < SHORTEST ? SHORTEST : least;
			spent = now;
		}
		uint64_t most = least > LONGEST ? least : LONGEST;
		gap = moved ? 0 : gap * 5 / 4;
		gap = gap < least ? least : gap > most ? most : gap;
	}
	pthread_mutex_unlock(&k->lock);
	return NULL;
}

void rec_keeper_start(struct rec_recording *rec)
{
	struct rec_keeper *k = calloc(1, sizeof(*k));
	pthread_condattr_t monotonic;
	DJ_ASSERT(k, "out of memory for a clock");
	k->began = now_us();
	pthread_mutex_init(&k->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&k->changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
	if (dj_thread(&k->thread, keeper_main, k)) {
		free(k); /* a recording is as good without */
		k = NULL;
	}
	rec->keeper = k;
}

void rec_keeper_stop(struct rec_recording *rec)
{
	struct rec_keeper *k = rec->keeper;
	if (!k)
		return;
	pthread_mutex_lock(&k->lock);
	k->quit = true;
	pthread_cond_signal(&k->changed);
	pthread_mutex_unlock(&k->lock);
	pthread_join(k->thread, NULL);
	pthread_mutex_destroy(&k->lock);
	pthread_cond_destroy(&k->changed);
	free(k);
	rec->keeper = NULL;
}

/* ---- a thread ------------------------------------------------------------------------------- */

static struct rec_times *new_times(struct rec_keeper *k, uint64_t steps)
{
	struct rec_times *x = calloc(1, sizeof(*x));
	DJ_ASSERT(x, "out of memory for a clock");
	x->keeper = k;
	x->latest.time = (struct dj_time){ now_us() - k->began, steps };
	note(x);
	pthread_mutex_lock(&k->lock);
	x->next = k->all;
	k->all = x;
	k->n++;
	pthread_cond_signal(&k->changed);
	pthread_mutex_unlock(&k->lock);
	return x;
}

void rec_times_start(struct rec_thread *t)
{
	struct rec_keeper *k = t->rec->keeper;
	if (!k)
		return;
	if (!t->times)
		t->times = new_times(k, t->steps);
	pthread_mutex_lock(&k->lock);
	t->times->steps = rec_tcb(t, T_STEPS(0));
	t->times->in_call = rec_tcb(t, T_IN_SYSCALL);
	pthread_mutex_unlock(&k->lock);
}

void rec_times_hide(struct rec_thread *t)
{
	if (!t->times)
		return;
	pthread_mutex_lock(&t->times->keeper->lock);
	t->times->steps = NULL;
	pthread_mutex_unlock(&t->times->keeper->lock);
}

void rec_times_end(struct rec_thread *t)
{
	struct rec_times *x = t->times;
	if (!x)
		return;
	pthread_mutex_lock(&x->keeper->lock);
	look(x, now_us() - x->keeper->began);
	if (!x->noted)
		note(x);
	x->steps = NULL;
	pthread_mutex_unlock(&x->keeper->lock);
}

void rec_times_free(struct rec_thread *t)
{
	struct rec_times *x = t->times, **at;
	if (!x)
		return;
	pthread_mutex_lock(&x->keeper->lock);
	for (at = &x->keeper->all; *at != x; at = &(*at)->next)
		;
	*at = x->next;
	x->keeper->n--;
	pthread_mutex_unlock(&x->keeper->lock);
	free(x);
	t->times = NULL;
}

/* ---- writing -------------------------------------------------------------------------------- */

void rec_times_take(struct rec_times *x)
{
	if (!x)
		return;
	size_t room = 2 * WAITING - x->n_taken;
	pthread_mutex_lock(&x->keeper->lock);
	size_t n = x->n < room ? x->n : room;
	memcpy(x->taken + x->n_taken, x->waiting, n * sizeof(*x->taken));
	memmove(x->waiting, x->waiting + n, (x->n - n) * sizeof(*x->waiting));
	x->n -= n;
	pthread_mutex_unlock(&x->keeper->lock);
	x->n_taken += n;
}

void rec_times_called(struct rec_times *x, uint64_t steps)
{
	if (!x)
		return;
	for (; x->settled < x->n_taken && x->taken[x->settled].time.steps <= steps; x->settled++)
		if (x->taken[x->settled].in_call)
			x->taken[x->settled].time.steps = steps;
}

int rec_times_write(struct rec_times *x, struct dj_stream *stream, uint64_t steps, bool all,
		    struct dj_error *err)
{
	size_t i = 0;
	int rc = 0;
	if (!x)
		return 0;
	for (; i < x->n_taken && !rc; i++) {
		struct dj_time time = x->taken[i].time;
		if (!all && (time.steps > steps || (x->taken[i].in_call && i >= x->settled)))
			break;
		if (time.steps > steps)
			time.steps = steps;
		if (time.steps < x->written.steps)
			time.steps = x->written.steps;
		rc = dj_stream_time(stream, &time, err);
		x->written = time;
	}
	memmove(x->taken, x->taken + i, (x->n_taken - i) * sizeof(*x->taken));
	x->n_taken -= i;
	x->settled -= x->settled < i ? x->settled : i;
	return rc;
}
