/*
 * rt_sigprocmask without letting the thread go. libc blocks all signals, SIGTRAP among them, where
 * it makes a thread, in the new thread, and where it makes a process; each of these calls is the
 * supervisor's (sigtrap.c), and each takes two more stops to be made by the thread. But the thread
 * is in a stop already, where its mask can be set. What the kernel does with it when the thread
 * goes on is what it does at the end of the call: it looks anew for signals that may come in
 * (kernel/ptrace.c, PTRACE_SETSIGMASK).
 *
 * One thing it does not do then: find another thread for a signal of the process that was to be
 * this one's and is blocked now (kernel/signal.c, __set_task_blocked). So with such a signal
 * waiting the call is made by the thread. One that comes later than the new mask goes to somebody
 * who lets it in.
 *
 * The order is the kernel's: what the new mask is, the mask, where the old one goes to. Whatever
 * does not go well is left to the kernel as well.
 */
#include "recorder/syscalls.h"

#define TRAP_BIT (1ULL << (SIGTRAP - 1))

/* The mask that the call wants, the present one being `mask`. False if it is to fail. */
static bool wanted(struct rec_thread *t, uint64_t *mask)
{
	uint64_t set;
	if (t->regs.r10 != sizeof(set))
		return false;
	if (!t->regs.rsi)
		return true;
	if (!rec_read_as_it(t->proc, t->regs.rsi, &set, sizeof(set)))
		return false;
	switch ((int)t->regs.rdi) {
	case SIG_BLOCK:
		*mask |= set;
		return true;
	case SIG_UNBLOCK:
		*mask &= ~set;
		return true;
	case SIG_SETMASK:
		*mask = set;
		return true;
	default:
		return false;
	}
}

bool rec_mask_set(struct rec_thread *t)
{
	struct rec_tracer *tracer = t->rec->tracer;
	uint64_t mask, old;
	if (t->filters || t->held || t->n_pending || t->trap.again || rec_late(t) ||
	    tracer->get_sigmask(tracer, t->tid, &mask))
		return false;
	mask = t->trap.blocked ? mask | TRAP_BIT : mask & ~TRAP_BIT;
	old = mask;
	if (!wanted(t, &mask) || tracer->set_sigmask(tracer, t->tid, mask))
		return false;
	if ((mask & ~old && tracer->signals_wait(tracer, t->tid)) ||
	    (t->regs.rdx && !tracer->write_as_it(tracer, t->tid, t->regs.rdx, &old, sizeof(old)))) {
		tracer->set_sigmask(tracer, t->tid, old);
		return false;
	}
	return true;
}
