/*
 * Delivering a signal, so that the kernel does what it always does and the trace says what came of
 * it. signals.c says when and where.
 *
 * The signal is injected together with a single step, which ends at the handler's first
 * instruction, with the frame built. A signal can only be injected from the stop of a signal. Where
 * the thread is stopped for something else (the handler of another signal, say, which it has not
 * begun) a trap of our own makes such a stop first.
 */
#include "recorder/area.h"

#include <string.h>
#include <sys/wait.h>

/* `sp`: what the kernel wrote for a handler lies there and up to `top`. */
static void record_signal(struct rec_thread *t, const siginfo_t *info, const struct dj_regs *regs,
			  uint64_t sp, uint64_t top)
{
	uint8_t frame[DJ_CODE_MAX];
	struct dj_record r = { .kind = DJ_REC_SIGNAL,
			       .steps = t->steps,
			       .signo = (uint32_t)info->si_signo };
	_Static_assert(sizeof(siginfo_t) == sizeof(r.siginfo), "siginfo is 128 bytes");
	memcpy(r.siginfo, info, sizeof(r.siginfo));
	/* inside a string instruction the count register says which iteration */
	r.rep = t->in_rep ? t->regs.rcx : 0;
	if (regs) {
		r.mask = DJ_REG_ALL & ~DJ_REG_SEGS;
		r.regs = *regs;
		/* above an alternate stack's frame comes what else is there: as true */
		r.addr = sp;
		r.length =
			rec_read(t->proc, sp, frame,
				 top > sp && top - sp < sizeof(frame) ? top - sp : sizeof(frame));
		r.bytes = frame;
	}
	rec_event(t, &r);
	t->in_rep = false;
}

/* ---- one signal ------------------------------------------------------------------------- */

/* The program dies of it. */
static enum rec_state die(struct rec_thread *t, const struct user_regs_struct *r)
{
	record_signal(t, &t->signal.info, NULL, 0, 0);
	if (rec_set_regs(t, r))
		return REC_KILLED;
	rec_run(t, REC_CONT, t->signal.info.si_signo);
	return REC_FATAL_SIGNAL;
}

enum rec_state rec_on_fatal_signal(struct rec_thread *t, const struct rec_stop *stop)
{
	rec_run(t, REC_CONT, stop->event ? 0 : stop->sig);
	return REC_FATAL_SIGNAL;
}

/* An SSE instruction that raises an exception which is not masked does nothing but set its flags
 * (SDM vol. 1, 11.5.3.3). The replay has not executed it. */
static void record_exception_flags(struct rec_thread *t)
{
	struct dj_record r = { .kind = DJ_REC_REGS, .steps = t->steps, .mask = DJ_REG_MXCSR };
	rec_full_regs(t, &r.regs);
	rec_ring_record(t, &r);
}

enum rec_state rec_deliver(struct rec_thread *t, const siginfo_t *info, uint64_t after)
{
	struct rec_tracer *tracer = t->rec->tracer;
	rec_release(t);
	if (info->si_signo == SIGTRAP && rec_synchronous(SIGTRAP, info))
		rec_trap_forced(t);
	enum rec_disposition d = rec_disposition(t, info->si_signo);
	struct user_regs_struct r = t->regs;
	r.gs_base = rec_gs(t);
	r.eflags &= ~TRAP_FLAG;
	if (t->trap_flag)
		r.eflags |= TRAP_FLAG;
	if (!after)
		r.orig_rax = (unsigned long long)-1;
	if ((d == REC_IGNORED && !rec_synchronous(info->si_signo, info)) || d == REC_JOB_CONTROL) {
		t->signal.sent = false;
		return REC_IN_HAND;
	}
	if (info->si_signo == SIGTRAP && d == REC_CAUGHT && !rec_trap_mine(t)) {
		t->signal.info = *info;
		t->signal.after = after;
		return rec_trap_wait(t);
	}
	if (info->si_signo == SIGFPE && rec_synchronous(SIGFPE, info))
		record_exception_flags(t);
	if (after) /* rax is not the program's, nor are rcx and r11 */
		rec_digest_in_call(t);
	else if (t->state != REC_HANDLER || !t->signal.after) /* nor if that had no frame */
		rec_digest(t, d != REC_CAUGHT);
	t->signal.info = *info;
	t->signal.after = after;
	if ((info->si_signo == SIGSEGV || info->si_signo == SIGBUS) &&
	    rec_synchronous(info->si_signo, info) &&
	    (uint64_t)(uintptr_t)info->si_addr != t->native.wanted)
		t->native.faulted = 0; /* the kernel knows of a later one */
	tracer->set_siginfo(tracer, t->tid, info);
	if (d != REC_CAUGHT)
		return die(t, &r);
	rec_x87_place(t);
	if (rec_set_regs(t, &r))
		return REC_KILLED;
	rec_run(t, REC_STEP, info->si_signo);
	return REC_HANDLER;
}

/* The system call that the signal interrupted either counts as executed, with -EINTR in the frame,
 * or is made again after the handler: the frame says which. */
static void record_interrupted_call(struct rec_thread *t, uint64_t frame)
{
	/* struct rt_sigframe: return address, then ucontext, whose gregs start at 40 */
	uint64_t rip = 0, rax = 0;
	rec_read(t->proc, frame + 8 + 40 + 16 * 8, &rip, 8);
	rec_read(t->proc, frame + 8 + 40 + 13 * 8, &rax, 8);
	if (rip != t->signal.after)
		return;
	struct dj_record r = {
		.kind = DJ_REC_SYSCALL, .steps = t->steps, .result = rax, .r11 = t->regs.r11
	};
	rec_event(t, &r);
	t->steps++;
	rec_digest_after_call(t, rax);
}

#define DEBUG	   1 /* numbers of exceptions (SDM vol. 3, 6.3.1) */
#define BREAKPOINT 3

/* What the kernel has put into the frame and the program did not make: of the last exception it was
 * told, in all frames, and the last may have been a trap of ours. Before popf or iret it takes the
 * trap flag of the step for the program's own (arch/x86/kernel/step.c), and it would come back from
 * there. And it remembers the address of the last fault that a signal told of, which was ours for a
 * jump into deja's memory (native.c). */
static void put_right(struct rec_thread *t, uint64_t frame)
{
	/* struct rt_sigframe: return address, then ucontext, whose gregs start at 40; of these the
	 * flags are number 17, error code and number of the exception 19 and 20, cr2 22 */
	enum { FLAGS, SELECTORS, ERROR, NUMBER, MASK, CR2, WORDS };
	const uint64_t at = frame + 8 + 40 + 17 * 8;
	uint64_t is[WORDS], right[WORDS], *exception = t->signal.exception;
	const siginfo_t *info = &t->signal.info;
	bool own = rec_synchronous(info->si_signo, info) && !t->signal.sent;
	if (rec_read(t->proc, at, is, sizeof(is)) != sizeof(is))
		return;
	memcpy(right, is, sizeof(is));
	if (own && info->si_signo == SIGTRAP) {
		exception[0] = 0;
		exception[1] = info->si_code == SI_KERNEL ? BREAKPOINT : DEBUG;
	} else if (own && info->si_signo != SIGSYS && is[NUMBER] != BREAKPOINT &&
		   is[NUMBER] != DEBUG) {
		exception[0] = is[ERROR];
		exception[1] = is[NUMBER];
	}
	right[ERROR] = exception[0];
	right[NUMBER] = exception[1];
	if (!t->trap_flag)
		right[FLAGS] &= ~TRAP_FLAG;
	if (t->native.faulted && is[CR2] == t->native.faulted)
		right[CR2] = t->native.wanted;
	if (memcmp(is, right, sizeof(is)) != 0)
		rec_write(t->proc, at, right, sizeof(right));
}

enum rec_state rec_on_handler(struct rec_thread *t, const struct rec_stop *stop)
{
	struct user_regs_struct h, before = t->regs;
	struct dj_regs full;
	if (stop->event) {
		rec_run(t, REC_STEP, 0);
		return REC_HANDLER;
	}
	if (stop->sig != SIGTRAP) /* the frame could not be built: SIGSEGV instead */
		return rec_deliver(t, &stop->info, 0);
	if (rec_get_regs(t, &h))
		return REC_KILLED;
	h.eflags &= ~TRAP_FLAG;
	put_right(t, h.rsp);
	t->signal.sent = false;
	t->trap_flag = false; /* the kernel has cleared it, too */
	t->flags_lost = false;
	t->flags_made = true;
	rec_trap_entered(t, t->signal.info.si_signo);
	if (t->signal.after)
		record_interrupted_call(t, h.rsp);
	t->regs = h;
	rec_full_regs(t, &full);
	t->regs.rcx = before.rcx; /* of a string instruction: the iteration */
	record_signal(t, &t->signal.info, &full, h.rsp,
		      before.rsp - 128); /* the kernel leaves the red zone alone */
	t->regs = h;
	return REC_IN_HAND;
}

/* ---- those that were put aside ------------------------------------------------------------ */

/* Let the thread run into a trap of the runtime's, with `sig` if that is not 0. */
enum rec_state rec_into_trap(struct rec_thread *t, int sig)
{
	struct user_regs_struct r = t->regs;
	r.rip = tr_syscall_insn(t->proc->tr) + 2; /* the trap behind it */
	r.orig_rax = (unsigned long long)-1;
	if (rec_set_regs(t, &r))
		return REC_KILLED;
	rec_run(t, REC_CONT, sig);
	return REC_TRAP;
}

enum rec_state rec_on_trap(struct rec_thread *t, const struct rec_stop *stop)
{
	if (stop->event || stop->sig != SIGTRAP) {
		rec_fatal(t->rec, "signal %d instead of a trap in the cache", stop->sig);
		return REC_KILLED;
	}
	return REC_IN_HAND;
}

static bool blocked(struct rec_thread *t, int sig)
{
	uint64_t mask = 0;
	t->rec->tracer->get_sigmask(t->rec->tracer, t->tid, &mask);
	return mask >> (sig - 1) & 1;
}

enum rec_state rec_deliver_pending(struct rec_thread *t)
{
	struct rec_tracer *tracer = t->rec->tracer;
	bool trap = tr_syscall_insn(t->proc->tr) != 0;
	if (!trap && !t->proc->no_arena)
		return rec_arena_begin(t, t->regs.rip);
	if (!t->can_inject && trap)
		return rec_into_trap(t, 0);
	rec_release(t);
	siginfo_t info = t->pending[0];
	int sig = info.si_signo;
	memmove(t->pending, t->pending + 1, --t->n_pending * sizeof(*t->pending));
	/* What the program blocks by now (a handler's mask) goes back to the kernel, which keeps it
	 * pending; what stops the process by now stops it. */
	bool forced = rec_synchronous(sig, &info);
	if (trap && !forced && (blocked(t, sig) || rec_disposition(t, sig) == REC_JOB_CONTROL)) {
		tracer->set_siginfo(tracer, t->tid, &info);
		return rec_into_trap(t, sig);
	}
	return rec_deliver(t, &info, 0);
}
