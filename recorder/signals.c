/*
 * Signals.
 *
 * The kernel itself builds signal frames and applies restart rules; all we do is let it happen at
 * an instruction boundary of the program, with the program's registers in place, and then lead the
 * handler's first instruction into the cache. So frames, saved instruction pointers, restarted
 * system calls, alternate stacks, SA_RESETHAND, masks and sigreturn are the kernel's own.
 *
 * A thread stopped for a signal is in one of these places:
 *
 *  1. In the cache, at an access or operation that faulted (synchronous: SEGV, BUS, FPE, ILL with a
 *     kernel si_code). The fragment's table gives the program's instruction and where its
 *     registers are; the instruction has not been executed. Delivered there. si_addr of FPE, ILL
 *     and TRAP is the address of the instruction and is changed into the program's. Instructions
 *     that the processor would have refused in another way are executed natively, and delivered
 *     from there.
 *  2. In the cache, right behind a system call, where the kernel delivers most signals. Delivered
 *     at once, whatever it is, because the kernel is in the middle of something: sigsuspend, ppoll
 *     and their kin have exchanged the signal mask and put it back when this delivery is over. If
 *     rax is one of the kernel's restart codes, rip is moved behind the program's own system call
 *     instruction and orig_rax left as it is: the kernel then either leaves -EINTR in the frame, or
 *     moves rip back to the instruction. We read from the frame which it was: in the first case the
 *     system call counts as executed (a SYSCALL record precedes the SIGNAL record), in the second
 *     not. Any other result is final, and the thread is at the next instruction. A seccomp filter's
 *     SIGSYS comes here, too; the kernel has put the call's number back into rax.
 *  3. Anywhere else in the cache. The signal is put aside and the thread stepped to the next place
 *     where the program's registers can be found: a boundary between two instructions of a
 *     fragment, the top of an iteration in a string routine, or a stop of ours. It never steps
 *     over a system call instruction, because the boundary before it comes first; a thread caught
 *     between that boundary and the instruction goes back to the boundary.
 *  4. In the middle of an operation of ours (loop.c): a system call made for it, the way to another
 *     handler's first instruction, an instruction executed natively. Put aside until the thread is
 *     in hand again.
 *
 * What makes a signal synchronous is its si_code and, in the cache, its place: a program may send
 * itself a SIGSEGV that looks like a fault (rt_sigqueueinfo), and that is delivered behind the
 * call.
 *
 * Signals that are ignored, or stop the process, or continue it, are passed on where the thread is,
 * also in the middle of an operation: nothing of the program's registers shows.
 *
 * Order. The kernel takes one signal from its queues, builds the frame, blocks what the handler
 * blocks, and only then takes the next, whose frame comes on top of the first: before the first
 * handler has executed anything. So as soon as one signal is put aside, the thread blocks all
 * others (rec_hold) until that one is injected, with the program's mask in place again. The others
 * stay in the kernel's queues, in the kernel's order, and come out when the thread goes on from the
 * first handler's entry. Only signals with the number of a fault can come in between, because they
 * may not be blocked: these are put aside in the order in which they come, and each needs a stop
 * from which it can be injected (deliver.c). A handler that is about to begin may block the
 * next one, or the program has been replaced meanwhile by one that treats it differently: so
 * blocked signals are given back to the kernel, which keeps them pending as if they had just come,
 * and what a signal means is asked when it is delivered.
 *
 * Invariants: a signal put aside is delivered, or pending in the kernel, before the thread enters
 * the cache, and none is dropped; a recorded thread's signal mask is the program's, unless a signal
 * is put aside; at most one signal is injected per stop, which must be a signal-delivery stop.
 */
#include "recorder/recorder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t mask_in(const char *status, const char *field)
{
	const char *p = strstr(status, field);
	unsigned long long m = 0;
	return p && sscanf(p + strlen(field), "%llx", &m) == 1 ? m : 0;
}

static bool in_mask(const char *status, const char *field, int sig)
{
	return mask_in(status, field) >> (sig - 1) & 1;
}

static void read_status(struct rec_thread *t, char *text, size_t size)
{
	FILE *f = t->rec->tracer->open_proc(t->rec->tracer, t->tid, "status");
	size_t n = f ? fread(text, 1, size - 1, f) : 0;
	if (f)
		fclose(f);
	text[n] = 0;
}

bool rec_signal_waits(struct rec_thread *t)
{
	char text[4096];
	read_status(t, text, sizeof(text));
	return (mask_in(text, "SigPnd:") | mask_in(text, "ShdPnd:")) & ~mask_in(text, "SigBlk:");
}

enum rec_disposition rec_disposition(struct rec_thread *t, int sig)
{
	return sig == SIGTRAP ? rec_trap_disposition(t) : rec_disposition_asked(t, sig);
}

enum rec_disposition rec_disposition_asked(struct rec_thread *t, int sig)
{
	char text[4096];
	read_status(t, text, sizeof(text));
	if (sig == SIGKILL)
		return REC_FATAL;
	if (sig == SIGSTOP)
		return REC_JOB_CONTROL;
	if (in_mask(text, "SigCgt:", sig))
		return REC_CAUGHT;
	if (in_mask(text, "SigIgn:", sig))
		return REC_IGNORED;
	switch (sig) {
	case SIGCHLD:
	case SIGURG:
	case SIGWINCH:
	case SIGCONT:
		return REC_IGNORED;
	case SIGTSTP:
	case SIGTTIN:
	case SIGTTOU:
		return REC_JOB_CONTROL;
	default:
		return REC_FATAL;
	}
}

#define BIT(sig) (1ULL << ((sig)-1))
/* What the kernel makes of a thread's own instruction (kernel/signal.c, SYNCHRONOUS_MASK). */
#define SYNCHRONOUS                                                                                \
	(BIT(SIGSEGV) | BIT(SIGBUS) | BIT(SIGILL) | BIT(SIGFPE) | BIT(SIGTRAP) | BIT(SIGSYS))

bool rec_synchronous(int sig, const siginfo_t *i)
{
	return i->si_code > 0 && sig < 32 && (SYNCHRONOUS & BIT(sig));
}

/* The kernel delivers one signal, with its mask, before it takes the next: so none is taken from
 * it while one is put aside. What instructions cause must not be blocked: the kernel resets the
 * disposition of a forced signal that is. */
void rec_hold(struct rec_thread *t, bool all)
{
	struct rec_tracer *tracer = t->rec->tracer;
	if (t->held || !tracer->get_sigmask(tracer, t->tid, &t->mask))
		t->held =
			!tracer->set_sigmask(tracer, t->tid, all ? ~0ULL : t->mask | ~SYNCHRONOUS);
}

void rec_release(struct rec_thread *t)
{
	if (t->held)
		t->rec->tracer->set_sigmask(t->rec->tracer, t->tid, t->mask);
	t->held = false;
}

static bool is_synchronous(const siginfo_t *info)
{
	return rec_synchronous(info->si_signo, info);
}

/* Behind the others; but what an instruction has caused the kernel takes first
 * (dequeue_synchronous_signal()). The handler of another one might block it, and it is forced. */
void rec_put_aside(struct rec_thread *t, const siginfo_t *info)
{
	unsigned at = t->n_pending;
	if (!t->held)
		rec_hold(t, false);
	if (!t->n_pending)
		t->beyond = 0;
	if (t->n_pending == t->cap_pending) {
		t->cap_pending = t->cap_pending ? 2 * t->cap_pending : 16;
		t->pending = realloc(t->pending, t->cap_pending * sizeof(*t->pending));
		DJ_ASSERT(t->pending, "out of memory for signals");
	}
	while (at && is_synchronous(info) && !is_synchronous(&t->pending[at - 1]))
		at--;
	memmove(t->pending + at + 1, t->pending + at, (t->n_pending - at) * sizeof(*t->pending));
	t->pending[at] = *info;
	t->n_pending++;
}

static bool restarts(int64_t rax)
{
	/* ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND, ERESTART_RESTARTBLOCK (linux/errno.h) */
	return rax == -512 || rax == -513 || rax == -514 || rax == -516;
}

/* At the top of an iteration that is not done any more. Between instructions there is no such
 * place: a record that says "with count 0" is about what comes before the first iteration, as there
 * is none. */
static bool has_repeated(struct rec_thread *t, const struct user_regs_struct *r, uint64_t pc)
{
	struct insn in;
	uint8_t code[INSN_MAX];
	size_t got = r->rcx ? 0 : rec_read(t->proc, pc, code, sizeof(code));
	return got && insn_decode(&in, code, got, pc) > 0 && in.attr & INSN_A_REP;
}

/* Whether the thread, being where `r` says, can be taken in hand there. */
bool rec_takeable(struct rec_thread *t, const struct user_regs_struct *r, struct tr_where *w)
{
	if (!tr_locate(t->proc->tr, r->rip, *rec_tcb(t, T_RT_RET), w))
		return false;
	/* Not a step on from where it entered: it is no matter what flags others come with. */
	if (t->entered.flags_made && r->rip == t->entered.at && rec_lagged(t) == t->entered.lagged)
		w->flags_lost = false;
	if (w->string_head)
		return !has_repeated(t, r, w->pc);
	return w->boundary || w->before_syscall;
}

bool rec_repeats(const struct rec_thread *t, const struct tr_where *w)
{
	return w->string_head || (t->entered.in_rep && w->pc == t->entered.pc &&
				  rec_lagged(t) + w->lag == t->entered.steps);
}

/* A store that pops was done on the shadow; then memory refused it. The popped register is still
 * there, as ST(7), marked empty (FXSAVE keeps registers by their distance from the top, tags by
 * number; SDM vol. 1, 10.5.1). */
static void undo_pop(struct rec_thread *t)
{
	const uint16_t top_mask = 7 << 11, underflow = 0x41; /* SF, IE */
	struct rec_tracer *tracer = t->rec->tracer;
	struct user_fpregs_struct f;
	uint16_t before = (uint16_t)*rec_tcb(t, T_X87);
	if (tracer->get_fpregs(tracer, t->tid, &f) || (f.swd & top_mask) == (before & top_mask))
		return;
	uint32_t st7[4];
	memcpy(st7, f.st_space + 7 * 4, sizeof(st7));
	memmove(f.st_space + 4, f.st_space, 7 * sizeof(st7));
	memcpy(f.st_space, st7, sizeof(st7));
	bool empty = (f.swd & underflow) == underflow && (before & underflow) != underflow;
	if (!empty)
		f.ftw |= (uint16_t)(1u << (before >> 11 & 7));
	f.swd = before;
	tracer->set_fpregs(tracer, t->tid, &f);
}

/* In hand at an access that faulted. What modifies memory does so on the shadow first: make that
 * undone. True if the fault is not the one that the processor reports, if any: it looks for the
 * right to write first where translated code reads first, it may have loaded some elements of
 * several, and it may not want all that translated code compares. */
static bool undo_store(struct rec_thread *t)
{
	struct dj_regs regs;
	struct insn in;
	uint8_t code[INSN_MAX];
	size_t got = rec_read(t->proc, t->regs.rip, code, sizeof(code));
	if (!got || insn_decode(&in, code, got, t->regs.rip) <= 0)
		return false;
	if (!(in.mem_access & INSN_W))
		return (in.attr & INSN_A_MASKED) || insn_may_read_less(&in);
	if (insn_store_pops(&in) && t->rec->opt.predict == DJ_PREDICT_SHADOW)
		undo_pop(t);
	rec_from_user(&t->regs, &regs);
	rec_import(t, insn_address(&in, regs.gpr, *rec_tcb(t, T_FSBASE), rec_gs(t)), in.mem_size);
	return (in.mem_access & INSN_R) && !(in.attr & INSN_A_STRING);
}

/* 1: the instruction itself caused it. */
static enum rec_state fault(struct rec_thread *t, const struct rec_stop *stop,
			    const struct user_regs_struct *r, const struct tr_where *w)
{
	siginfo_t info = stop->info;
	uint64_t singly = tr_string_singly(t->proc->tr, r->rip);
	if (singly) { /* some elements may come before the fault */
		struct user_regs_struct again = *r;
		again.rip = singly;
		again.orig_rax = (unsigned long long)-1;
		if (rec_set_regs(t, &again))
			return REC_KILLED;
		if (t->n_pending)
			return rec_step_to_boundary(t);
		rec_run(t, REC_CONT, 0);
		return REC_CACHE;
	}
	t->in_rep = w->string || rec_repeats(t, w);
	rec_order_release(t); /* of what it was about to do */
	rec_take(t, r, w);
	if (w->before_syscall) /* an argument was looked at, and is for the kernel to refuse */
		return rec_syscall(t);
	if (stop->sig != SIGSEGV && stop->sig != SIGBUS)
		info.si_addr = (void *)(uintptr_t)t->regs.rip;
	else if (undo_store(t))
		return rec_native_begin(t); /* which faults, with the right error code */
	return rec_deliver(t, &info, 0);
}

/* The program's code was to be compared with its translation, and is not there any more (the file
 * that it is a mapping of was made shorter, say). What comes of executing it the processor knows.
 */
static enum rec_state code_gone(struct rec_thread *t, const struct user_regs_struct *r,
				const struct tr_where *w)
{
	rec_take(t, r, w);
	rec_code_forget(t->proc, t->regs.rip, t->regs.rip + INSN_MAX);
	return rec_native_begin(t);
}

/* No instruction of the program's is there. A routine of ours faults where it copies a line that
 * the program has just read, which somebody else has taken away; or it has been led astray. */
static enum rec_state nowhere(struct rec_thread *t, const struct rec_stop *stop,
			      const struct user_regs_struct *r)
{
	uint64_t line = *rec_tcb(t, T_IMP_ADDR) & -(uint64_t)DJ_LINE,
		 at = (uint64_t)(uintptr_t)stop->info.si_addr;
	rec_ring_check(t); /* a better reason, if it is that */
	if (!rec_over(t->rec) && (stop->info.si_code == SI_KERNEL || at - line >= 2 * DJ_LINE))
		rec_overwritten(t, T_BASE);
	if (!rec_over(t->rec))
		rec_fatal(t->rec,
			  "signal %d at %#llx in the cache, where no instruction of the program is "
			  "(address %p)",
			  stop->sig, (unsigned long long)r->rip, stop->info.si_addr);
	return REC_KILLED;
}

/* 2: right behind a system call made in the cache. Where an interrupt came there, orig_rax does not
 * have the call's number any more. */
static enum rec_state behind_call(struct rec_thread *t, const struct rec_stop *stop,
				  const struct user_regs_struct *r, struct tr_where *w)
{
	siginfo_t info = stop->info;
	uint64_t after = w->pc + 2;
	w->spilled = 0;
	rec_take(t, r, w);
	*rec_tcb(t, T_IN_SYSCALL) = 0;
	t->signal.sent = stop->sig != SIGSYS || !stop->sync;
	if (stop->sig == SIGSYS && stop->sync) /* a seccomp filter's */
		info.si_call_addr = (void *)(uintptr_t)after;
	if (!restarts((int64_t)r->rax) || (int64_t)r->orig_rax < 0) {
		rec_complete_call(t, r->rax);
		if (stop->sig != SIGSYS || !stop->sync) {
			rec_log_call(t, r);
			rec_call_data(t, *rec_tcb(t, T_DATA_NR), r, r->rax);
		}
		rec_log_leave(t);
		return rec_deliver(t, &info, 0);
	}
	rec_log_leave(t);
	t->regs.rip = after;
	t->regs.rcx = after;
	return rec_deliver(t, &info, after);
}

enum rec_state rec_signal_stop(struct rec_thread *t, const struct rec_stop *stop)
{
	struct user_regs_struct r;
	struct tr_where w;
	if (rec_get_regs(t, &r))
		return REC_KILLED;
	rec_count(t, REC_COUNT_SIGNAL);
	bool located = tr_locate(t->proc->tr, r.rip, *rec_tcb(t, T_RT_RET), &w);
	if (!stop->sync) {
		enum rec_disposition d = rec_disposition(t, stop->sig);
		if (d == REC_IGNORED || d == REC_JOB_CONTROL) {
			rec_run(t, REC_CONT, stop->sig);
			return REC_CACHE;
		}
	}
	if (located && w.after_syscall)
		return behind_call(t, stop, &r, &w);
	if (stop->sync && rec_call_data_faulted(t, &r)) {
		if (t->n_pending || t->state == REC_BOUNDARY || rec_idle_wants(t))
			return rec_step_to_boundary(t);
		rec_run(t, REC_CONT, 0);
		return REC_CACHE;
	}
	if (stop->sync && !located && tr_locate_comparison(t->proc->tr, r.rip, &w))
		return code_gone(t, &r, &w);
	if (stop->sync)
		return located ? fault(t, stop, &r, &w) : nowhere(t, stop, &r);
	if (rec_starves(t, stop, &r))
		return rec_starved(t, stop);
	rec_late_merge(t, stop);
	rec_put_aside(t, &stop->info);
	return rec_step_to_boundary(t);
}
