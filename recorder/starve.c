/*
 * Timers that are faster than the recorder. Each of their signals costs a few hundred microseconds;
 * if the next one is there before the handler has returned the thread never executes an instruction
 * outside the handler again, though natively it has time enough.
 *
 * So once such signals have come STARVED times in a row where the thread entered the cache, the
 * next one comes a little late: it is kept, and none comes in, while the thread runs for a short
 * time; it is put aside when the thread is in hand again and has executed something. If it has not,
 * it gets longer. A timer's signal comes at no particular place, so nothing of it can be seen, and
 * what the timer sends meanwhile the kernel would have merged with the one that waits. System calls
 * that the thread makes in that time are interrupted as by the clock, and made again. A call that
 * is ours to make is made without the one that waits if it is a short one; the others may starve.
 * (Signals that somebody sends are another matter: the kernel delivers all that wait before the
 * next instruction.)
 */
#include "recorder/recorder.h"

#include <sys/syscall.h>
#include <time.h>

#define STARVED 8
#define SLICE	50    /* microseconds */
#define LONGEST 10000 /* of them */

static bool timers(const siginfo_t *info)
{
	int sig = info->si_signo;
	return info->si_code == SI_TIMER ||
	       (info->si_code == SI_KERNEL &&
		(sig == SIGALRM || sig == SIGVTALRM || sig == SIGPROF));
}

bool rec_late(const struct rec_thread *t)
{
	return t->late.info.si_signo != 0;
}

bool rec_starves(struct rec_thread *t, const struct rec_stop *stop,
		 const struct user_regs_struct *r)
{
	if (t->state != REC_CACHE || t->n_pending)
		return false;
	if (!timers(&stop->info) || r->rip != t->entered.at || rec_lagged(t) != t->entered.lagged) {
		t->late.in_a_row = 0;
		return false;
	}
	return ++t->late.in_a_row > STARVED && (!rec_late(t) || t->late.info.si_signo == stop->sig);
}

enum rec_state rec_starved(struct rec_thread *t, const struct rec_stop *stop)
{
	if (!rec_late(t))
		t->late.slice = SLICE;
	t->late.info = stop->info;
	rec_late_run(t);
	return REC_CACHE;
}

void rec_late_run(struct rec_thread *t)
{
	struct rec_tracer *tracer = t->rec->tracer;
	rec_hold(t, false);
	((uint8_t *)rec_tcb(t, T_SYSCLASS))[SYS_rt_sigprocmask] = SYS_SUPERVISED;
	t->late.runs = true;
	rec_run(t, REC_CONT, 0);
	nanosleep(&(struct timespec){ .tv_nsec = t->late.slice * 1000L }, NULL);
	tracer->interrupt(tracer, t->tid);
	if (t->late.slice < LONGEST)
		t->late.slice *= 2;
}

void rec_late_stopped(struct rec_thread *t)
{
	if (!t->late.runs)
		return;
	t->late.runs = false;
	rec_release(t);
	rec_trap_classes(t);
}

/* Calls that neither wait nor have to do with signals. */
static bool is_short(uint64_t nr)
{
	switch (nr) {
	case SYS_exit:
	case SYS_exit_group:
	case SYS_mmap:
	case SYS_munmap:
	case SYS_mprotect:
	case SYS_mremap:
	case SYS_brk:
		return true;
	default:
		return false;
	}
}

void rec_late_call(struct rec_thread *t)
{
	if (rec_late(t) && is_short(t->regs.rax))
		rec_hold(t, false);
}

void rec_late_native(struct rec_thread *t)
{
	if (rec_late(t) && !(t->native.known && t->native.in.id == INSN_SYSCALL))
		rec_hold(t, false);
}

void rec_late_due(struct rec_thread *t)
{
	siginfo_t info = t->late.info;
	bool same = t->steps == t->entered.steps && t->regs.rip == t->entered.pc;
	if (!rec_late(t))
		return;
	if (!same || t->group->leaving) {
		t->late.info.si_signo = 0;
		rec_put_aside(t, &info);
	} else if (!t->n_pending) {
		rec_release(t);
	}
}

void rec_late_merge(struct rec_thread *t, const struct rec_stop *stop)
{
	siginfo_t info = t->late.info;
	if (!rec_late(t) || stop->sync)
		return;
	t->late.info.si_signo = 0;
	if (info.si_signo != stop->sig)
		rec_put_aside(t, &info);
}
