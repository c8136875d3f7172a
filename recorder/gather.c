/*
 * Bringing all threads of a process out of the cache.
 *
 * Translated code changes while threads execute it, without anybody being asked
 * (doc/code-cache.md). Only where memory itself is taken away must nobody be inside: an arena or an
 * area that is in the way of a mapping (collide.c), and all translations at once when there is no
 * more room for new ones (TR_FULL).
 *
 * The thread that wants it is in hand and has its turn (rec_turn). All others that are in the cache
 * are interrupted, and each is taken in hand where that can be done: at the next boundary, or in
 * front of the system call that it sleeps in. What wants to go on meanwhile waits (rec_go_on). When
 * nobody is left, the one that wanted it goes on with `then`; when it goes on itself, so do the
 * others.
 *
 * A system call that sleeps shows that it was interrupted: it would return one of the kernel's
 * restart codes, or EINTR. It is undone, and made again later: the registers before it are in the
 * control block. One that waits for a time (nanosleep) then begins its time anew; the kernel, which
 * knows how much is left, has not been asked, because the code that it would return to may be no
 * more.
 */
#include "recorder/recorder.h"

#include <errno.h>
#include <sys/syscall.h>

/* Whether the thread may execute something in an arena. */
static bool in_cache(const struct rec_thread *t)
{
	return t->state == REC_CACHE || t->state == REC_BOUNDARY || t->state == REC_TRAP ||
	       t->state == REC_NATIVE_RUN ||
	       (t->state == REC_CALL && t->proc->tr && tr_in_cache(t->proc->tr, t->call.at));
}

static bool gathered(const struct rec_process *proc)
{
	for (const struct rec_thread *t = proc->rec->threads; t; t = t->next)
		if (t->proc == proc && t != proc->gather.by && in_cache(t))
			return false;
	return true;
}

bool rec_alone(const struct rec_thread *t)
{
	for (const struct rec_thread *o = t->rec->threads; o; o = o->next)
		if (o->proc == t->proc && o != t && in_cache(o))
			return false;
	return true;
}

enum rec_state rec_gather(struct rec_thread *t, rec_then *then)
{
	struct rec_process *proc = t->proc;
	struct rec_tracer *tracer = t->rec->tracer;
	DJ_ASSERT(proc->busy == t, "it is not the turn of thread %d", t->tid);
	proc->gather.by = t;
	if (gathered(proc)) {
		rec_x87_places(proc);
		return then(t, 0);
	}
	proc->gather.then = then;
	for (const struct rec_thread *o = t->rec->threads; o; o = o->next)
		if (o->proc == proc && o != t && in_cache(o))
			tracer->interrupt(tracer, o->tid);
	return REC_WAIT;
}

bool rec_gathered(struct rec_process *proc, enum rec_state *next)
{
	rec_then *then = proc->gather.then;
	if (!then || !gathered(proc))
		return false;
	proc->gather.then = NULL;
	rec_x87_places(proc);
	*next = then(proc->gather.by, 0);
	return true;
}

/* Stopped behind a system call that was interrupted: in hand before it, if it has done nothing. */
static bool undo_call(struct rec_thread *t, struct user_regs_struct *r, struct tr_where *w)
{
	struct rec_tracer *tracer = t->rec->tracer;
	uint64_t mask;
	int64_t rax = (int64_t)r->rax;
	bool again = rax == -512 || rax == -513 || rax == -514 || rax == -516 || rax == -EINTR;
	if (!w->after_syscall || (int64_t)r->orig_rax < 0 || !again || rec_signal_waits(t) ||
	    (rax == -EINTR && (r->orig_rax == SYS_close || r->orig_rax == SYS_connect)))
		return false;
	/* A call that waits with another mask (sigsuspend, ppoll...) would get its own back on the
	 * way out of the kernel. Until then signals would come in that it has not let in yet. What
	 * we are told is the own one; setting it is what the way out would do (kernel/ptrace.c,
	 * PTRACE_GETSIGMASK and PTRACE_SETSIGMASK). */
	if (!tracer->get_sigmask(tracer, t->tid, &mask))
		tracer->set_sigmask(tracer, t->tid, mask);
	r->rax = r->orig_rax;
	r->orig_rax = (unsigned long long)-1;
	w->spilled = 1u << DJ_RCX | 1u << DJ_R11;
	*rec_tcb(t, T_IN_SYSCALL) = 0;
	rec_take(t, r, w);
	rec_log_leave(t);
	return true;
}

enum rec_state rec_bring_out(struct rec_thread *t)
{
	struct user_regs_struct r;
	struct tr_where w;
	if (rec_get_regs(t, &r))
		return REC_KILLED;
	rec_count(t, REC_COUNT_GATHER);
	if (tr_locate(t->proc->tr, r.rip, *rec_tcb(t, T_RT_RET), &w) && undo_call(t, &r, &w))
		return REC_IN_HAND;
	if (tr_in_cache(t->proc->tr, r.rip) && !rec_signal_waits(t))
		return rec_step_to_boundary(t);
	/* it stops for the signal */
	rec_run(t, REC_CONT, 0);
	return REC_CACHE;
}
