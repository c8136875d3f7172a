/*
 * SIGTRAP belongs to the program, and deja's own traps must not show in it.
 *
 * A breakpoint or a single step makes the kernel *force* SIGTRAP on the thread. If it is blocked
 * then, it is unblocked and its handler reset to SIG_DFL; if it is ignored, it is reset to SIG_DFL
 * (kernel/signal.c, force_sig_info_to_task). Nothing changes if it is neither. So with SIGTRAP
 * blocked or ignored every stop of ours destroys something that the program can see. Therefore we
 * know at all times what the program made of it (`group->trap`, `t->trap.blocked`):
 *
 *  - The disposition changes by rt_sigaction for SIGTRAP, which the supervisor performs (generated
 *    code looks at the first argument), by exec, and when a handler with SA_RESETHAND is entered.
 *  - Whether it is blocked changes by rt_sigprocmask (performed by the supervisor if it may block
 *    SIGTRAP, and as long as it is blocked), at a handler's entry (asked of the kernel there: that
 *    stop is no forced signal), and by rt_sigreturn (read from the frame). It is inherited by exec.
 *
 * After a trap of ours, the mask gets its bit back at once (rec_trap_stop). So a SIGTRAP that comes
 * meanwhile stays pending, and sigpending, sigtimedwait and signalfd find it. The handler is put
 * back (rec_trap_restore) where somebody could find out:
 *
 *  - when SIGTRAP is not blocked any more, before the thread goes on;
 *  - in a new child, before it is let go (child.c);
 *  - before a system call that exchanges the mask while it waits, which could let a SIGTRAP in;
 *  - to rt_sigaction we give our own copy.
 *
 * Where there are several threads, one can wait for SIGTRAP (sigsuspend, pause...) while another
 * blocks it, and each trap of ours in the second takes the first one's handler away. So there:
 *
 *  - The handler is put back whenever a thread goes on, also one that blocks SIGTRAP, and before
 *    each call that the supervisor makes for the program, which may sleep.
 *    The call that does it takes two stops, and while it is made another thread may trap: which
 *    came first nobody knows, so it is made again (`trap.resets`). If others are about to make it
 *    too, that is left to the last of them (`trap.left`): else each trap would cost as many calls
 *    as there are threads that make one. And while another one is stepped to a boundary it is left
 *    to that one, which takes the handler away with each step.
 *  - Not, however, by a thread that stops in the midst of a fragment: it would be stepped to the
 *    next boundary, often with a place of the order in its hands (order.c), for which others would
 *    stop and be stepped in their turn. If that thread lets SIGTRAP in itself, by a call, it comes
 *    here first (rec_trap_classes), unless another one that blocks SIGTRAP will put it back
 *    (rec_trap_needs): that one may trap while the call waits, too. If another is to get one, that
 *    waits as below, and this thread is brought out, and puts the handler back.
 *  - Between a trap of ours and that, the kernel may find a SIGTRAP for another thread. But it asks
 *    us first, and there we let that thread wait (REC_TRAP_WAIT) until nobody who blocks SIGTRAP
 *    can run into a trap of ours: such threads are brought out of the cache, as for gather.c, and
 *    do not go on, nor does a new one begin, whose mask is that of the call that made it: libc
 *    blocks all signals in there. When the frame is built and its thread goes on, so do they. That
 *    holds, too, if nobody had to be waited for: until the thread that gets the signal runs others
 *    may come to block SIGTRAP. Who sleeps until its child by vfork lets it go is not waited for,
 *    as the child may need what the handler does (rec_vfork_holds).
 *  - Threads that say what it does, by rt_sigaction, take turns, and none does so while a SIGTRAP
 * is on its way to a handler.
 *
 * If it is ignored nothing needs to be put back: a SIGTRAP that comes is thrown away by us. It must
 * not be, either, because ignoring a signal discards it where it is pending. An exec does not
 * change that it is ignored. Where there are several threads the kernel is not even told that the
 * program ignores it: what it discards then may be a trap of ours that another thread has just run
 * into, which would go on behind it as if there had been none.
 *
 * rt_sigprocmask is made without the thread where that can be (sigmask.c). Where it cannot, it is
 * made without a trap, and so are rt_sigaction and rt_sigreturn if there is anything to lose
 * (rec_trap_matters), so that what they let in comes out of the kernel's queues in the kernel's
 * order.
 *
 * It is put back by an rt_sigaction in the thread which stops at the entry and exit of the call,
 * where no signal is forced. No instruction of the program's is executed meanwhile, so all
 * signals are blocked: none must come out of the kernel's queues before its turn.
 *
 * A SIGTRAP that is pending for the thread swallows ours: the kernel keeps only one of each, and
 * the stop then has the siginfo of the program's, which is no longer pending. Where SIGTRAP is
 * blocked it can only be our trap; the program's own goes back to the kernel, which puts it into
 * the queue again because it is blocked, with the next request (rec_trap_again). Where it is not
 * blocked a SIGTRAP comes by itself, too; then the trap was swallowed if the thread is behind it
 * (has_trapped), and the signal is put aside like any that comes at an awkward moment.
 *
 * A trap that the program makes itself (int3, int1, the trap flag) is executed natively, and
 * there the kernel's rule holds (rec_trap_forced).
 */
#include "recorder/ahead.h"
#include "recorder/syscalls.h"

#include <errno.h>
#include <linux/sched.h>
#include <string.h>
#include <sys/syscall.h>

#ifndef CLONE_CLEAR_SIGHAND
#define CLONE_CLEAR_SIGHAND 0x100000000ULL /* linux/sched.h, since Linux 5.5 */
#endif

#define TRAP_BIT (1ULL << (SIGTRAP - 1))
#define DEFAULT	 ((uint64_t)(uintptr_t)SIG_DFL)
#define IGNORE	 ((uint64_t)(uintptr_t)SIG_IGN)

/* Calls that wait with another signal mask. */
static const unsigned waits[] = { SYS_rt_sigsuspend, SYS_ppoll,	       SYS_pselect6,
				  SYS_epoll_pwait,   SYS_epoll_pwait2, SYS_io_pgetevents };

static void set_blocked(struct rec_thread *t, bool on)
{
	struct rec_tracer *tracer = t->rec->tracer;
	uint64_t mask;
	if (!tracer->get_sigmask(tracer, t->tid, &mask))
		tracer->set_sigmask(tracer, t->tid, on ? mask | TRAP_BIT : mask & ~TRAP_BIT);
	if (t->held)
		t->mask = on ? t->mask | TRAP_BIT : t->mask & ~TRAP_BIT;
}

/* The kernel has SIG_DFL instead of a handler. */
bool rec_trap_lost(const struct rec_thread *t)
{
	return t->group->trap.lost && t->group->trap.action.handler != IGNORE;
}

void rec_trap_ignore(struct rec_thread *t, struct user_regs_struct *r)
{
	struct rec_action action;
	t->trap.instead = r->rax == SYS_rt_sigaction && (int)r->rdi == SIGTRAP && r->rsi &&
			  r->r10 == sizeof(uint64_t) && t->proc->n_threads > 1 &&
			  rec_read_as_it(t->proc, r->rsi, &action, sizeof(action)) &&
			  action.handler == IGNORE;
	if (!t->trap.instead)
		return;
	t->trap.action = action;
	action.handler = DEFAULT;
	memcpy(rec_tcb(t, T_ARGS), &action, sizeof(action));
	r->rsi = t->s + (uint64_t)T_ARGS;
}

bool rec_trap_exchanges(uint64_t nr)
{
	for (size_t i = 0; i < sizeof(waits) / sizeof(*waits); i++)
		if (waits[i] == nr)
			return true;
	return false;
}

bool rec_trap_needs(const struct rec_thread *t)
{
	if (!rec_trap_lost(t))
		return false;
	for (const struct rec_thread *o = t->rec->threads; o; o = o->next)
		if (o->group == t->group && o != t && o->own && o->trap.blocked && !o->stopped &&
		    o->state != REC_GONE && o->state != REC_KILLED && o->state != REC_SYSCALL)
			return false;
	return true;
}

void rec_trap_classes(struct rec_thread *t)
{
	uint8_t *class = (uint8_t *)rec_tcb(t, T_SYSCLASS);
	if (!t->own)
		return;
	class[SYS_rt_sigaction] = SYS_SIGACTION;
	class[SYS_rt_sigprocmask] = t->trap.blocked ? SYS_SUPERVISED : SYS_SIGMASK;
	for (size_t i = 0; i < sizeof(waits) / sizeof(*waits); i++)
		class[waits[i]] = rec_trap_needs(t) ? SYS_SUPERVISED : SYS_HERE;
}

/* A trap of ours has come. */
static void settle(struct rec_thread *t)
{
	struct rec_process *group = t->group;
	bool ignored = group->trap.action.handler == IGNORE;
	if (t->trap.blocked)
		set_blocked(t, true);
	if (group->trap.action.handler == DEFAULT || !(t->trap.blocked || ignored))
		return;
	t->trap.left = false;
	group->trap.resets++;
	group->trap.lost = true;
	rec_trap_classes(t);
}

/* Whether the trap that the thread was let go on to has come, whatever its stop says. (Behind the
 * byte of a trap in the cache comes its number, so that no code begins there.) */
static bool has_trapped(const struct rec_thread *t, const struct user_regs_struct *r)
{
	const struct translator *tr = t->proc->tr;
	uint32_t runtime = 0;
	if (t->state == REC_NATIVE_RUN)
		return r->rip == t->native.stop_at + 1;
	if (t->how == REC_STEP || t->state == REC_NATIVE)
		return r->rip != t->from.rip || r->rcx != t->from.rcx;
	if (t->how != REC_CONT || !tr)
		return false;
	if (t->state == REC_TRAP)
		return r->rip == tr_syscall_insn(tr) + 3;
	return tr_in_cache(tr, r->rip - 1) &&
	       (tr_stop_at(tr, r->rip - 1, r->r11, &runtime) || runtime);
}

/* What the siginfo of that trap would have been. */
static siginfo_t its_info(const struct rec_thread *t, const struct user_regs_struct *r)
{
	siginfo_t info = { .si_signo = SIGTRAP, .si_code = TRAP_TRACE };
	uint32_t runtime = 0;
	if (t->state == REC_CACHE || t->state == REC_TRAP || t->state == REC_NATIVE_RUN)
		info.si_code = SI_KERNEL;
	if (t->state == REC_BOUNDARY && tr_in_cache(t->proc->tr, r->rip - 1) &&
	    (tr_stop_at(t->proc->tr, r->rip - 1, r->r11, &runtime) || runtime))
		info.si_code = SI_KERNEL;
	if (info.si_code != SI_KERNEL)
		info.si_addr = (void *)(uintptr_t)r->rip;
	return info;
}

/* A SIGTRAP that was pending has swallowed a trap of ours: the stop is that of the trap, and the
 * other signal comes later. */
static bool unswallow(struct rec_thread *t, struct rec_stop *stop)
{
	struct user_regs_struct r;
	struct tr_where w;
	if (rec_get_regs(t, &r))
		return false;
	if (!t->trap.blocked) {
		if (!has_trapped(t, &r))
			return false;
		rec_put_aside(t, &stop->info);
	} else {
		if (t->state == REC_CACHE && tr_locate(t->proc->tr, r.rip, 0, &w) &&
		    w.after_syscall)
			return false; /* sigsuspend or the like let it in */
		t->trap.again = true;
		t->trap.info = stop->info;
	}
	stop->sync = true;
	stop->info = its_info(t, &r);
	return true;
}

void rec_trap_stop(struct rec_thread *t, struct rec_stop *stop)
{
	if (t->group->child || stop->sig != SIGTRAP || stop->info.si_code == SIGTRAP)
		return;
	if (stop->sync || unswallow(t, stop))
		settle(t);
}

int rec_trap_again(struct rec_thread *t)
{
	struct rec_tracer *tracer = t->rec->tracer;
	if (!t->trap.again || !t->can_inject)
		return 0;
	t->trap.again = false;
	tracer->set_siginfo(tracer, t->tid, &t->trap.info);
	return SIGTRAP;
}

/* ---- what changes ---------------------------------------------------------------------- */

void rec_trap_begin(struct rec_thread *t)
{
	struct rec_tracer *tracer = t->rec->tracer;
	struct rec_process *group = t->group;
	uint64_t mask = 0;
	bool ignored = rec_disposition_asked(t, SIGTRAP) == REC_IGNORED;
	tracer->get_sigmask(tracer, t->tid, &mask);
	t->trap.blocked = mask & TRAP_BIT;
	memset(&group->trap, 0, sizeof(group->trap));
	if (ignored)
		group->trap.action.handler = IGNORE;
}

void rec_trap_exec(struct rec_thread *t)
{
	struct rec_process *group = t->group;
	t->trap_flag = false;
	if (group->trap.expected) /* in vain */
		rec_ahead_note_faults(group, false);
	bool ignored = group->trap.action.handler == IGNORE, lost = group->trap.lost;
	memset(&group->trap, 0, sizeof(group->trap));
	if (ignored) {
		group->trap.action.handler = IGNORE;
		group->trap.lost = lost;
	}
}

static void now_blocked(struct rec_thread *t, bool blocked)
{
	if (blocked == t->trap.blocked)
		return;
	t->trap.blocked = blocked;
	rec_trap_classes(t);
}

bool rec_trap_matters(const struct rec_thread *t)
{
	return t->trap.blocked || t->group->trap.action.handler != DEFAULT;
}

/* A call has set the mask, and unless it was a quiet one our trap came behind it. */
void rec_trap_masked(struct rec_thread *t, bool blocked)
{
	now_blocked(t, blocked);
	if (t->sys.quiet)
		return;
	if (blocked || !t->trap.again) /* else it is to be put into the queue first */
		set_blocked(t, blocked);
	settle(t);
}

void rec_trap_entered(struct rec_thread *t, int sig)
{
	struct rec_tracer *tracer = t->rec->tracer;
	uint64_t mask = 0;
	if (sig == SIGTRAP && t->group->trap.action.flags & (unsigned)SA_RESETHAND)
		t->group->trap.action.handler = DEFAULT;
	if (!tracer->get_sigmask(tracer, t->tid, &mask))
		now_blocked(t, mask & TRAP_BIT);
}

void rec_trap_forced(struct rec_thread *t)
{
	struct rec_process *group = t->group;
	if (!t->trap.blocked && group->trap.action.handler != IGNORE)
		return;
	group->trap.action.handler = DEFAULT;
	group->trap.lost = false;
	if (t->trap.blocked)
		set_blocked(t, false);
	now_blocked(t, false);
	rec_trap_classes(t);
}

enum rec_disposition rec_trap_disposition(const struct rec_thread *t)
{
	uint64_t handler = t->group->trap.action.handler;
	return handler == DEFAULT ? REC_FATAL : handler == IGNORE ? REC_IGNORED : REC_CAUGHT;
}

/* A handler of a fault finds flags in its frame that the program would have overwritten, had it not
 * faulted. Nobody else does, so translated code does not keep them until there is such a handler.
 * One that neither asks for the context (SA_SIGINFO) nor looks at it (handler.c) is none: it is
 * told a number, and where the frame is it could only guess. Those print a message and end the
 * program, and C programs with a handler like that are many.
 *
 * All that was made before has to go then. So it is noted, and the next image of the program keeps
 * such flags from its beginning.
 */
static bool handler_sees_flags(struct rec_process *proc, int sig, const struct rec_action *a)
{
	return (sig == SIGSEGV || sig == SIGBUS || sig == SIGFPE || sig == SIGILL) &&
	       a->handler != DEFAULT && a->handler != IGNORE &&
	       (a->flags & SA_SIGINFO || rec_handler_reads_context(proc, a->handler));
}

/* Whether it did anything. With a new action that can be read it fails so only because the old one
 * has nowhere to go, which comes last (kernel/signal.c). */
static bool acted(struct rec_thread *t, const struct user_regs_struct *in, uint64_t result)
{
	struct rec_action action;
	return !result || ((int64_t)result == -EFAULT && in->rdx && !t->filters &&
			   rec_read_as_it(t->proc, in->rsi, &action, sizeof(action)));
}

void rec_after_sigaction(struct rec_thread *t, const struct user_regs_struct *in, uint64_t result)
{
	struct rec_process *proc = t->proc, *group = t->group;
	uint64_t old = group->trap.action.handler;
	if (!acted(t, in, result))
		return;
	if ((int)in->rdi != SIGTRAP) {
		bool known = proc->trap.faults && !proc->trap.expected;
		if (!in->rsi || known || !handler_sees_flags(proc, (int)in->rdi, &t->trap.action))
			return;
		proc->trap.faults = true;
		proc->trap.expected = false;
		rec_ahead_note_faults(proc, true);
		tr_keep_fault_flags(proc->tr);
		return;
	}
	if (in->rdx && !result) /* the rest of it is still the kernel's */
		rec_write(proc, in->rdx, &old, sizeof(old));
	if (in->rsi) {
		/* another thread has changed what the kernel has, before the call or after it */
		bool reset = group->trap.resets + group->trap.restores != t->trap.resets;
		bool several = proc->n_threads > 1;
		group->trap.action = t->trap.action;
		group->trap.lost = t->trap.instead ||
				   (reset && (several || t->trap.action.handler != DEFAULT));
		group->trap.resets += several; /* what is being put back is another one */
		if (!t->sys.quiet)
			settle(t);
		rec_trap_classes(t);
	}
}

/* The call may have failed and the mask be another one, if the old one had nowhere to go; and where
 * it went to the new one may have been. It was a quiet one, so the kernel knows. */
void rec_after_sigprocmask(struct rec_thread *t, const struct user_regs_struct *in, uint64_t result)
{
	struct rec_tracer *tracer = t->rec->tracer;
	uint64_t mask;
	(void)in;
	(void)result;
	if (!tracer->get_sigmask(tracer, t->tid, &mask))
		rec_trap_masked(t, mask & TRAP_BIT);
}

void rec_trap_copied(struct rec_process *group, const struct rec_thread *t)
{
	group->trap = t->group->trap;
	group->trap.due = NULL;
	group->trap.faults = group->trap.expected = false;
	if (!(t->sys.clone_flags & CLONE_CLEAR_SIGHAND) || group->trap.action.handler == IGNORE)
		return;
	group->trap.action = (struct rec_action){ .handler = DEFAULT };
	group->trap.lost = false;
}

bool rec_trap_inherited(struct rec_thread *t)
{
	if (t->group->trap.lost)
		*(struct rec_action *)rec_tcb(t, T_INHERITED) = t->group->trap.action;
	return t->group->trap.lost;
}

/* ---- putting it back --------------------------------------------------------------------- */

static rec_then restored;

static bool restores(const struct rec_thread *t)
{
	return t->state == REC_CALL && t->call.then == restored;
}

static bool another_restores(const struct rec_thread *t)
{
	for (const struct rec_thread *o = t->rec->threads; o; o = o->next)
		if (o->group == t->group && o != t && restores(o))
			return true;
	return false;
}

/* Whether another one that blocks it, as this one does, is stepped: it takes the handler away with
 * the next step, and puts it back when it is where it is going. */
static bool another_steps(const struct rec_thread *t)
{
	for (const struct rec_thread *o = t->rec->threads; o && t->trap.blocked; o = o->next)
		if (o->group == t->group && o != t && o->state == REC_BOUNDARY && o->trap.blocked &&
		    !o->stopped)
			return true;
	return false;
}

/* Whether the thread is to put it back. */
static bool wanted(const struct rec_thread *t)
{
	return rec_trap_lost(t) && !another_steps(t) && !(t->trap.left && another_restores(t));
}

/* Another thread may be waiting for it. */
bool rec_trap_urgent(const struct rec_thread *t)
{
	return t->proc->n_threads > 1 && wanted(t);
}

bool rec_trap_to_restore(const struct rec_thread *t)
{
	if (!t->trap.blocked)
		return wanted(t) || t->trap.again;
	/* not between a trap that was made for a signal and that */
	bool now = t->n_pending && t->can_inject && !t->proc->gather.by && !t->group->trap.due;
	return rec_trap_urgent(t) && !now;
}

static enum rec_state restored(struct rec_thread *t, int64_t result)
{
	(void)result;
	struct rec_process *group = t->group;
	const bool ignored = group->trap.action.handler == IGNORE; /* since a moment ago */
	const bool same = !memcmp(&t->trap.back, &group->trap.action, sizeof(t->trap.back));
	/* by another thread: before the call or since */
	const bool reset = group->trap.resets != t->trap.resets && group->trap.lost;
	t->trap.left = !ignored && same && reset && (another_restores(t) || another_steps(t));
	if (!ignored && !t->trap.left && (reset || !same))
		return rec_trap_restore(t);
	t->quiet = false;
	if (!t->trap.left) {
		group->trap.lost = ignored;
		group->trap.restores++;
	}
	set_blocked(t, t->trap.blocked);
	if (t->n_pending)
		rec_hold(t, false);
	else
		rec_release(t);
	rec_trap_classes(t);
	if (!t->trap.then_call)
		return REC_IN_HAND;
	t->trap.then_call = false;
	return rec_syscall(t);
}

enum rec_state rec_trap_restore(struct rec_thread *t)
{
	if (t->trap.again && !t->can_inject) { /* no queue for this one */
		t->trap.again = false;
		rec_put_aside(t, &t->trap.info);
	}
	rec_count(t, REC_COUNT_TRAP_CALLS);
	rec_hold(t, true);
	t->trap.resets = t->group->trap.resets;
	t->trap.back = t->group->trap.action;
	*(struct rec_action *)rec_tcb(t, T_ARGS) = t->trap.back;
	t->quiet = true;
	return rec_call(t, restored, SYS_rt_sigaction, SIGTRAP, t->s + (uint64_t)T_ARGS, 0,
			sizeof(uint64_t), 0, 0);
}

/* ---- a SIGTRAP for a thread, while others block it ------------------------------------------- */

/* Whether it just says what SIGTRAP is to do, itself or for us: when that has come into force
 * nobody knows. */
static bool acts(const struct rec_thread *o)
{
	return restores(o) || (o->state == REC_SYSCALL && o->sys.regs.rax == SYS_rt_sigaction &&
			       (int)o->sys.regs.rdi == SIGTRAP && o->sys.regs.rsi);
}

/* Whether a trap of ours may come in the thread, and reset the handler. */
static bool may_trap(const struct rec_thread *o)
{
	switch (o->state) {
	case REC_IN_HAND:
	case REC_NEW_THREAD:
	case REC_WAIT:
	case REC_TRAP_WAIT:
	case REC_KILLED:
	case REC_GONE:
		return false;
	default:
		return o->trap.blocked && !o->stopped && !o->sys.in_vfork;
	}
}

/* No trap of ours in another thread can come before a SIGTRAP is delivered in this one. */
static bool calm(const struct rec_thread *t)
{
	if (t->proc->n_threads > 1 && rec_trap_lost(t))
		return false;
	for (const struct rec_thread *o = t->rec->threads; o; o = o->next)
		if (o->group == t->group && o != t && (may_trap(o) || acts(o)))
			return false;
	return true;
}

bool rec_trap_mine(struct rec_thread *t)
{
	struct rec_process *group = t->group;
	if ((group->trap.due && group->trap.due != t) || !calm(t))
		return false;
	group->trap.due = t;
	return true;
}

enum rec_state rec_trap_wait(struct rec_thread *t)
{
	struct rec_tracer *tracer = t->rec->tracer;
	struct rec_process *group = t->group;
	if (group->trap.due == t && calm(t)) {
		siginfo_t info = t->signal.info;
		return rec_deliver(t, &info, t->signal.after);
	}
	if (group->trap.due)
		return REC_TRAP_WAIT;
	group->trap.due = t;
	for (const struct rec_thread *o = t->rec->threads; o; o = o->next)
		if (o->group == group && o != t && o->state == REC_CACHE && may_trap(o))
			tracer->interrupt(tracer, o->tid);
	return REC_TRAP_WAIT;
}

bool rec_trap_held(const struct rec_thread *t)
{
	return t->group->trap.due && t->group->trap.due != t && t->trap.blocked;
}

void rec_trap_over(struct rec_thread *t)
{
	if (t->group->trap.due != t)
		return;
	t->group->trap.due = NULL;
	for (struct rec_thread *o = t->rec->threads; o; o = o->next)
		if (o->group == t->group && o->sys.out_of_vfork) {
			o->sys.out_of_vfork = false;
			if (o->state == REC_SYSCALL) /* and has not been killed */
				rec_run(o, REC_STEP, 0);
		}
}
