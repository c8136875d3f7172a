/*
 * Shadows of threads that do not run.
 *
 * A thread's shadow grows to what the thread has touched, and stays. A thousand threads that wait
 * for work may never read most of it again. So if all shadows of the recording together take more
 * than --shadow-memory says, threads that sleep lose theirs, first those that have slept longest:
 * it is emptied, and a light keyframe (keyframe.c) says so in the trace, where the thread goes on.
 * It imports again what it then reads.
 *
 * Nobody is woken for that, because a call that is interrupted may show it (recorder.md). Shadows
 * are the program's memory, so it is a thread of the same process that gives back another's, in a
 * call that it is made to make when it is in hand anyhow. The one that sleeps must find, when it
 * wakes up, either the shadow that it had, or an empty one and the keyframe before it has used it.
 * So:
 *
 *  1. T_LIMIT of the thread becomes zero. Behind its system call it writes a record, finds that the
 *     ring is full, and stops; between the call and that stop nothing is done with the shadow
 *     (translator/translate-call.c).
 *  2. Only then is the kernel asked whether the thread sleeps, and where: /proc/TID/syscall tells
 *     only of a thread that is off its processor (lib/syscall.c, wait_task_inactive()). If that
 *     sleeps in a system call in the cache, it has not read T_LIMIT yet and will find the
 *     zero: it is *chosen*. A thread that runs may have read it before, whatever T_IN_SYSCALL
 *     says; it is left alone.
 *  3. The next thread of the process that is in hand has the shadows given back one after the
 *     other. From the beginning of that call to its end the owner is *going*: should it stop, that
 *     stop is kept, and nothing is done about it (rec_idle_held()).
 *  4. The owner's shadow is *gone*. Its next stop is the one of 1, or that of a signal, or it is
 *     brought out for another thread; in every case it is taken in hand (rec_take()) at the
 *     call or right behind it, and there the keyframe is recorded. If it never wakes up there is
 *     nothing to say.
 *
 * Any stop before 3 makes it one that is not chosen. What else looks at a thread's shadow does so
 * when the thread is in hand.
 *
 * If all threads of a process sleep nobody comes by. Then one of them is brought out, as for
 * another thread (gather.c), if it sleeps in a call that waits without a time limit, and which can
 * be made again without anybody noticing. It gives back its own shadow, too, in the way of any
 * keyframe.
 */
#include "recorder/recorder.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SHARE	 8	       /* of the machine's memory is for shadows, ... */
#define LEAST	 (256UL << 20) /* ... and so many bytes anyhow */
#define WORTH	 (64u << 10)   /* a shadow of fewer bytes stays */
#define ENOUGH	 0.75	       /* of the limit: then no more is given back */
#define LONG	 4	       /* ticks of the clock that a thread has slept */
#define PATIENCE 20	       /* so many times as long as measuring took, to the next time */
#define REST	 100	       /* and as choosing took */

uint64_t rec_shadow_memory(void)
{
	uint64_t all = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	return all / SHARE > LEAST ? all / SHARE : LEAST;
}

static int64_t now(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- who takes how much -------------------------------------------------------------------- */

static int by_place(const void *a, const void *b)
{
	const struct rec_thread *x = *(struct rec_thread *const *)a,
				*y = *(struct rec_thread *const *)b;
	return x->s < y->s ? -1 : x->s > y->s;
}

/* The threads of a process that have a shadow, by its address: a new array. */
static struct rec_thread **threads_of(const struct rec_process *proc, size_t *n)
{
	struct rec_thread **all = malloc((proc->n_threads + 1) * sizeof(struct rec_thread *));
	DJ_ASSERT(all, "out of memory for the threads of a process");
	*n = 0;
	for (struct rec_thread *t = proc->rec->threads; t; t = t->next)
		if (t->proc == proc && t->s && t->own && t->state != REC_GONE &&
		    *n < proc->n_threads)
			all[(*n)++] = t;
	qsort(all, *n, sizeof(*all), by_place);
	return all;
}

/* The thread in whose shadow the address is, but for its first page. */
static struct rec_thread *owner(struct rec_thread **all, size_t n, uint64_t addr)
{
	size_t from = 0;
	while (n > from) {
		size_t middle = from + (n - from) / 2;
		if (all[middle]->s + AREA_PAGE > addr)
			n = middle;
		else if (all[middle]->s + (1UL << 32) > addr)
			return all[middle];
		else
			from = middle + 1;
	}
	return NULL;
}

/* What the shadows of the process take. */
static uint64_t measure(struct rec_process *proc)
{
	struct rec_tracer *tracer = proc->rec->tracer;
	struct rec_thread *t = NULL, **all;
	uint64_t start, kb, sum = 0;
	char line[512];
	size_t n;
	all = threads_of(proc, &n);
	for (size_t i = 0; i < n; i++)
		all[i]->idle.shadow = 0;
	FILE *f = n ? tracer->open_proc(tracer, all[0]->tid, "smaps") : NULL;
	while (f && fgets(line, sizeof(line), f)) {
		if (line[0] >= 'a' || (line[0] >= '0' && line[0] <= '9')) {
			if (sscanf(line, "%" SCNx64 "-", &start) == 1)
				t = owner(all, n, start);
		} else if (t && sscanf(line, "Rss: %" SCNu64 " kB", &kb) == 1) {
			t->idle.shadow += kb << 10;
			sum += kb << 10;
		}
	}
	if (f)
		fclose(f);
	free(all);
	return sum;
}

/* All memory of the process, which its shadows are a part of. */
static uint64_t resident(const struct rec_process *proc)
{
	struct rec_tracer *tracer = proc->rec->tracer;
	uint64_t pages = 0;
	const struct rec_thread *t = proc->rec->threads;
	while (t && (t->proc != proc || t->state == REC_GONE))
		t = t->next;
	FILE *f = t ? tracer->open_proc(tracer, t->tid, "statm") : NULL;
	if (f && fscanf(f, "%*u %" SCNu64, &pages) != 1)
		pages = 0;
	if (f)
		fclose(f);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* What all shadows take, or something that is no less and not too much. */
static uint64_t all_shadows(struct rec_recording *rec, uint64_t limit)
{
	uint64_t sum = 0;
	for (struct rec_process *p = rec->processes; p; p = p->next)
		sum += p->area_at && !p->child ? resident(p) : 0;
	if (sum <= limit)
		return sum;
	sum = 0;
	for (struct rec_process *p = rec->processes; p; p = p->next)
		sum += p->area_at && !p->child ? measure(p) : 0;
	return sum;
}

/* ---- who sleeps ----------------------------------------------------------------------------- */

static bool in_call(const struct rec_thread *t)
{
	return t->state == REC_CACHE && t->own && *rec_tcb(t, T_IN_SYSCALL) && !t->stopped;
}

/* Who has come on since the last look has not slept. */
static void note_places(struct rec_recording *rec, int64_t at)
{
	for (struct rec_thread *t = rec->threads; t; t = t->next) {
		uint64_t place = t->own ? rec_lagged(t) + *rec_tcb(t, T_HEAD) + t->stops : 0;
		if (!in_call(t) || place != t->idle.place)
			t->idle.since = at;
		t->idle.place = place;
	}
}

struct sleep {
	uint64_t nr, arg[6], pc;
};

/* The system call that the thread sleeps in, if it does. */
static bool asleep(const struct rec_thread *t, struct sleep *s)
{
	struct rec_tracer *tracer = t->rec->tracer;
	FILE *f = tracer->open_proc(tracer, t->tid, "syscall");
	uint64_t *a = s->arg, sp;
	int n = f ? fscanf(f,
			   "%" SCNu64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64
			   " %" SCNx64 " %" SCNx64 " %" SCNx64,
			   &s->nr, a, a + 1, a + 2, a + 3, a + 4, a + 5, &sp, &s->pc)
		  : 0;
	if (f)
		fclose(f);
	return n == 9;
}

/* Whether who reads there waits with nothing taken yet. A terminal may have given some of the bytes
 * that are waited for, and a socket may have a time limit of its own (SO_RCVTIMEO). */
static bool takes_nothing(const struct rec_thread *t, uint64_t fd)
{
	char link[64], path[32];
	snprintf(link, sizeof(link), "/proc/%d/fd/%d", t->tid, (int)fd);
	ssize_t n = readlink(link, path, sizeof(path) - 1);
	path[n > 0 ? n : 0] = 0;
	return !strncmp(path, "pipe:", 5) || !strcmp(path, "anon_inode:[eventfd]");
}

/* Whether the call waits for as long as it takes, and can be made again. */
static bool without_limit(const struct rec_thread *t, const struct sleep *s)
{
	switch (s->nr) {
	case SYS_futex: /* FUTEX_WAIT, FUTEX_WAIT_BITSET */
		return ((s->arg[1] & 0x7f) == 0 || (s->arg[1] & 0x7f) == 9) && !s->arg[3];
	case SYS_poll:
		return (int)s->arg[2] < 0;
	case SYS_epoll_wait:
		return (int)s->arg[3] < 0;
	case SYS_read:
		return takes_nothing(t, s->arg[0]);
	case SYS_wait4:
	case SYS_waitid:
		return true;
	}
	return false;
}

/* ---- choosing ------------------------------------------------------------------------------- */

/* 1 and 2 of the above. */
static bool choose(struct rec_thread *t)
{
	struct sleep s;
	struct tr_where w;
	*rec_tcb(t, T_LIMIT) = 0;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!asleep(t, &s) || !tr_locate(t->proc->tr, s.pc, *rec_tcb(t, T_RT_RET), &w) ||
	    !w.after_syscall)
		return false;
	/* a keyframe is not made between a signal and the first instruction of its handler */
	if (rec_lagged(t) + w.lag == t->signalled || t->trap_flag || t->held)
		return false;
	t->idle.state = REC_IDLE_CHOSEN;
	t->idle.call = w.pc;
	return true;
}

/* Whether somebody of the process will be in hand soon. */
static bool somebody_comes(const struct rec_process *proc)
{
	for (const struct rec_thread *t = proc->rec->threads; t; t = t->next)
		if (t->proc == proc && (t->idle.self || (t->state == REC_CACHE && !in_call(t))))
			return true;
	return false;
}

/* Whoever wakes up next is to come by. If nobody is awake one is brought out. */
static void bring_one_out(struct rec_process *proc)
{
	struct rec_tracer *tracer = proc->rec->tracer;
	struct sleep s;
	if (!proc->idle)
		return;
	for (struct rec_thread *t = proc->rec->threads; t; t = t->next)
		if (t->proc == proc && t->own && t->state == REC_CACHE)
			*rec_tcb(t, T_LIMIT) = 0;
	if (somebody_comes(proc))
		return;
	for (struct rec_thread *t = proc->rec->threads; t; t = t->next) {
		if (t->proc != proc || !in_call(t) || !asleep(t, &s) || !without_limit(t, &s))
			continue;
		t->idle.self = t->idle.state == REC_IDLE_CHOSEN;
		t->idle.brought_out = !tracer->interrupt(tracer, t->tid);
		return;
	}
}

static int by_age(const void *a, const void *b)
{
	const struct rec_thread *x = *(struct rec_thread *const *)a,
				*y = *(struct rec_thread *const *)b;
	return x->idle.since < y->idle.since ? -1 : x->idle.since > y->idle.since;
}

static bool may_go(const struct rec_thread *t, int64_t at)
{
	return t->idle.state == REC_IDLE_NOT && in_call(t) && !t->idle.refused &&
	       t->idle.shadow >= WORTH && t->proc->tr && !t->proc->leaving &&
	       at - t->idle.since >= LONG * rec_clock_gap();
}

/* It is as good as gone. */
static void subtract(struct rec_thread *t)
{
	uint64_t *sum = &t->rec->idles.sum;
	*sum -= t->idle.shadow < *sum ? t->idle.shadow : *sum;
	t->idle.shadow = 0;
}

static void choose_some(struct rec_recording *rec, uint64_t enough, int64_t at)
{
	size_t n = 0, most = 0;
	for (struct rec_thread *t = rec->threads; t; t = t->next)
		most++;
	struct rec_thread **all = malloc((most + 1) * sizeof(struct rec_thread *));
	DJ_ASSERT(all, "out of memory for the threads that sleep");
	for (struct rec_thread *t = rec->threads; t; t = t->next)
		if (may_go(t, at))
			all[n++] = t;
	qsort(all, n, sizeof(*all), by_age);
	for (size_t i = 0; i < n && rec->idles.sum > enough; i++) {
		if (!choose(all[i]))
			continue;
		all[i]->proc->idle = true;
		subtract(all[i]);
	}
	free(all);
}

void rec_idle_look(struct rec_recording *rec)
{
	uint64_t limit = rec->opt.shadow_memory;
	int64_t at = now(CLOCK_MONOTONIC), cost = now(CLOCK_THREAD_CPUTIME_ID);
	if (!limit || rec_over(rec))
		return;
	note_places(rec, at);
	if (at >= rec->idles.next) {
		rec->idles.sum = all_shadows(rec, limit);
		for (struct rec_thread *t = rec->threads; t; t = t->next)
			if (t->idle.state == REC_IDLE_CHOSEN) /* and nobody has come by since */
				subtract(t);
		cost = now(CLOCK_THREAD_CPUTIME_ID) - cost;
		rec->idles.next = at + PATIENCE * cost;
	}
	if (at < rec->idles.look)
		return;
	cost = now(CLOCK_THREAD_CPUTIME_ID);
	/* what is not measured anew each time may by now have slept for long enough */
	if (rec->idles.sum > limit)
		choose_some(rec, (uint64_t)(ENOUGH * (double)limit), at);
	for (struct rec_process *p = rec->processes; p; p = p->next)
		bring_one_out(p);
	rec->idles.look = at + REST * (now(CLOCK_THREAD_CPUTIME_ID) - cost);
}

/* ---- giving back ---------------------------------------------------------------------------- */

bool rec_idle_wants(const struct rec_thread *t)
{
	return t->proc->idle || t->idle.self || t->idle.state == REC_IDLE_GONE;
}

/* Of threads in the same memory those of the same process only: if the one that gives it back for
 * another is killed in the middle of it, so is that one. */
static struct rec_thread *one_that_is(const struct rec_thread *by, enum rec_idle_state state)
{
	struct rec_thread *t = by->rec->threads;
	while (t && (t->proc != by->proc || t->group != by->group || t->idle.state != state))
		t = t->next;
	return t;
}

static enum rec_state given_back(struct rec_thread *t, int64_t result);

static enum rec_state give_back_next(struct rec_thread *t)
{
	struct rec_thread *of = one_that_is(t, REC_IDLE_CHOSEN);
	if (!of) {
		t->proc->idle = false;
		return REC_IN_HAND;
	}
	of->idle.state = REC_IDLE_GOING;
	return rec_call(t, given_back, SYS_madvise, of->s + AREA_PAGE, (1UL << 32) - AREA_PAGE,
			MADV_DONTNEED, 0, 0, 0);
}

static enum rec_state given_back(struct rec_thread *t, int64_t result)
{
	struct rec_thread *of = one_that_is(t, REC_IDLE_GOING);
	if (of) {
		of->idle.refused = result != 0; /* a filter, or locked memory */
		of->idle.state = result ? REC_IDLE_NOT : REC_IDLE_GONE;
		if (!result)
			memset(of->own + AREA_THREAD - AREA_PAGE, 0, AREA_PAGE);
	}
	return give_back_next(t);
}

bool rec_idle_is_due(struct rec_thread *t)
{
	return t->proc->idle && rec_turn(t);
}

enum rec_state rec_idle_begin(struct rec_thread *t)
{
	return give_back_next(t);
}

/* ---- the owner ------------------------------------------------------------------------------ */

bool rec_idle_held(const struct rec_thread *t)
{
	return t->idle.state == REC_IDLE_GOING && !rec_over(t->rec);
}

void rec_idle_stopped(struct rec_thread *t)
{
	if (t->idle.state == REC_IDLE_CHOSEN)
		t->idle.state = REC_IDLE_NOT;
}

void rec_idle_back(struct rec_thread *t)
{
	bool gone = t->idle.state == REC_IDLE_GONE;
	struct user_regs_struct regs = t->regs;
	t->idle.state = REC_IDLE_NOT;
	if (!gone || rec_over(t->rec))
		return;
	if (t->regs.rip == t->idle.call) { /* the call is not over: as it was made */
		t->regs.rax = *rec_tcb(t, T_DATA_NR);
		t->regs.rcx = *rec_tcb(t, T_SLOT(DJ_RCX));
		t->regs.r11 = *rec_tcb(t, T_SLOT(DJ_R11));
	} else if (t->regs.rip != t->idle.call + 2) {
		rec_overwritten(t, T_LIMIT); /* it has not stopped where that was zero */
		return;
	}
	rec_keyframe_record(t);
	t->regs = regs;
}

void rec_idle_ended(struct rec_thread *t)
{
	struct rec_thread *of;
	t->idle.state = REC_IDLE_NOT;
	if (t->proc->busy != t)
		return;
	/* it was killed in the middle of it: so are they all */
	while ((of = one_that_is(t, REC_IDLE_GOING)))
		of->idle.state = REC_IDLE_NOT;
}
