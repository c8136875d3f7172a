/*
 * Threads that stop again and again, and the supervisor, on one processor.
 *
 * At a stop either the thread works or the supervisor, never both. The kernel does not know that:
 * whenever it wakes one of the two it finds another processor idle and puts it there. So a stop
 * takes twice what it takes to wake a processor, which on a virtual machine is most of it: 40
 * microseconds instead of 15, or 200. On one processor it is a change from one thread to the other.
 *
 * To stay on a processor is no secret of ours where the supervisor is concerned. But the program's
 * threads may be where the program says, ask where that is, and hand it down to threads and
 * children. So a thread is bound for an instant only: it is put on our processor's queue, to go on
 * when we sleep, and before we do it has back what it had (resume_here in tracer.h). The kernel
 * does not move what waits in a queue of a place where it may be. If the thread gets the processor
 * before, as happens often, the instant lasts until we get it back. So what could show it or hand
 * it down is not resumed like that (`minds`): calls that make threads or processes or become
 * another program, and those about where a thread may be, for which alone the supervisor makes
 * them. (Who has not been bound yet may ask by itself where it may be: that is known to be so from
 * the stop before it is bound first.) And from when on the program opens a /proc/PID/status nothing
 * is.
 *
 * It is right where only one of the two could work anyway. So not: if other threads run, who
 * would share a processor while another is idle; if the supervisor is to do something while the
 * thread goes on (ahead.c), or listens to it (ask.c), where both run at the same time and none is
 * woken.
 */
#include "recorder/near.h"
#include "format/thread.h"
#include "recorder/recorder.h"

#include <string.h>
#include <sys/syscall.h>

#define SOON   5000000 /* nanoseconds */
#define ENOUGH 2       /* stops in a row */
#define OTHERS 8       /* so many other threads are looked at; with more it is left alone */

/* Whether it executes what we have seen to. Others make calls that nobody has looked at. */
static bool is_recorded(const struct rec_thread *t)
{
	switch (t->state) {
	case REC_STARTING:
	case REC_NEW_THREAD:
	case REC_CHILD:
	case REC_VFORK:
	case REC_HELPER:
		return false;
	default:
		return true;
	}
}

/* Whether it is in a system call: one of its own, in which it may sleep; one that it makes for us
 * or that makes a thread, a process or another program, behind which it stops at once. */
static bool in_call(const struct rec_thread *t)
{
	switch (t->state) {
	case REC_CACHE:
		return t->own && *rec_tcb(t, T_IN_SYSCALL);
	case REC_CALL:
		return t->how == REC_STEP;
	case REC_SYSCALL:
		return t->how == REC_STEP && t->minds;
	default:
		return false;
	}
}

/* Whether all other threads are stopped, or in a system call. */
static bool runs_alone(const struct rec_thread *t)
{
	unsigned n = 0;
	for (const struct rec_thread *o = t->rec->threads; o; o = o->next) {
		if (o == t || o->state == REC_GONE || o->stopped)
			continue;
		if (++n > OTHERS || !in_call(o))
			return false;
	}
	return true;
}

/* Whether it leaves it to us to find out where it may be. If it does not, it does so from now on.
 */
static bool leaves_it(struct rec_thread *t)
{
	uint8_t *class = (uint8_t *)rec_tcb(t, T_SYSCLASS) + SYS_sched_getaffinity;
	bool does = !t->own || *class == SYS_SUPERVISED;
	if (!does)
		*class = SYS_SUPERVISED;
	return does;
}

bool rec_near(struct rec_thread *t)
{
	struct rec_recording *rec = t->rec;
	int64_t at = rec_clock_now();
	bool soon = at - rec->near.last < SOON;
	rec->near.last = at;
	rec->near.stops = soon ? rec->near.stops + 1 : 0;
	bool near = rec->near.stops >= ENOUGH && !rec->near.seen && is_recorded(t) &&
		    !rec->asking.n && !rec->rests && !rec->order.more && runs_alone(t);
	dj_thread_stays(near);
	return near && !t->minds && leaves_it(t);
}

void rec_near_opened(struct rec_recording *rec, const char *path)
{
	const char *name = strrchr(path, '/');
	rec->near.seen |= name && !strcmp(name, "/status");
}
