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
 * and TRAP is the address of the instruction and is changed into the program's.
 *  2. In the cache, behind a system call that the signal interrupted (rax is one of the kernel's
 * restart codes, T_IN_SYSCALL is 1). Delivered at once with rip behind the program's own system
 * call instruction and orig_rax as it is: the kernel then either leaves -EINTR in the frame, or
 * moves rip back to the instruction. We read from the frame which it was: in the first case the
 *     system call counts as executed (a SYSCALL record precedes the SIGNAL record), in the second
 * not.
 *  3. Anywhere else in the cache. The signal is put aside and the thread stepped to the next place
 *     where the program's registers can be found: a boundary between two instructions of a
 *     fragment, the top of an iteration in a string routine, or a stop of ours. It never steps
 *     over a system call instruction, because the boundary before it comes first; a thread caught
 *     between that boundary and the instruction goes back to the boundary.
 *  4. In hand, while we step it for a purpose of our own. Put aside until it is about to enter
 *     the cache again.
 *
 * Signals that are ignored, or stop the process, or continue it, are passed on where the thread is:
 * nothing of the program's registers shows.
 *
 * Invariants: a signal put aside is delivered before the thread enters the cache; the thread's
 * signal mask is never touched by us; at most one signal is injected per stop, which must be
 * a signal-delivery stop.
 */
#include "recorder/supervisor.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

enum disposition { IGNORED, CAUGHT, FATAL, JOB_CONTROL };

static bool in_mask(const char *status, const char *field, int sig)
{
	const char *p = strstr(status, field);
	unsigned long long m = 0;
	return p && sscanf(p + strlen(field), "%llx", &m) == 1 && (m >> (sig - 1) & 1);
}

static enum disposition disposition(struct tracee *t, int sig)
{
	char path[64], text[4096];
	snprintf(path, sizeof(path), "/proc/%d/status", t->tid);
	FILE *f = fopen(path, "re");
	size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;
	if (f)
		fclose(f);
	text[n] = 0;
	if (sig == SIGKILL)
		return FATAL;
	if (sig == SIGSTOP)
		return JOB_CONTROL;
	if (in_mask(text, "SigCgt:", sig))
		return CAUGHT;
	if (in_mask(text, "SigIgn:", sig))
		return IGNORED;
	switch (sig) {
	case SIGCHLD:
	case SIGURG:
	case SIGWINCH:
	case SIGCONT:
		return IGNORED;
	case SIGTSTP:
	case SIGTTIN:
	case SIGTTOU:
		return JOB_CONTROL;
	default:
		return FATAL;
	}
}

void signals_put_aside(struct tracee *t, const siginfo_t *info)
{
	if (t->n_pending == sizeof(t->pending) / sizeof(*t->pending))
		return; /* as the kernel does with a queue that is full */
	t->pending[t->n_pending++] = *info;
}

/* `sp`: what the kernel wrote for a handler lies there and up to `top`. */
static void record_signal(struct tracee *t, const siginfo_t *info, const struct dj_regs *regs,
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
		r.length = tracee_read(t->proc, sp, frame,
				       top > sp && top - sp < sizeof(frame) ? top - sp
									    : sizeof(frame));
		r.bytes = frame;
	}
	ring_record(t, &r);
	t->in_rep = false;
}

/*
 * In hand, at a signal-delivery stop: deliver. t->regs are the program's (orig_rax included).
 * `after` is the address behind the system call that was interrupted, or 0.
 */
static void deliver(struct tracee *t, siginfo_t *info, uint64_t after)
{
	int sig = info->si_signo;
	enum disposition d = disposition(t, sig);
	bool forced = info->si_code > 0 && (sig == SIGSEGV || sig == SIGBUS || sig == SIGFPE ||
					    sig == SIGILL || sig == SIGTRAP);
	struct user_regs_struct r = t->regs;
	r.gs_base = *tcb(t, T_GSBASE);
	r.eflags &= ~0x100ULL;
	if (!after)
		r.orig_rax = (unsigned long long)-1;
	if (d == IGNORED && !forced)
		return;
	if (d == JOB_CONTROL)
		return;
	ptrace(PTRACE_SETSIGINFO, t->tid, NULL, info);

	if (d != CAUGHT) {
		if (!after) /* in a system call rax is not the program's */
			sup_digest(t, true);
		record_signal(t, info, NULL, 0, 0);
		tracee_setregs(t, &r);
		int status;
		ptrace(PTRACE_CONT, t->tid, NULL, (void *)(long)sig);
		do {
			if (tracee_wait(t, &status))
				break;
			if (WIFSTOPPED(status))
				ptrace(PTRACE_CONT, t->tid, NULL,
				       (void *)(long)((status >> 16) ? 0 : WSTOPSIG(status)));
		} while (WIFSTOPPED(status));
		sup_end(t, status);
		return;
	}

	if (tracee_setregs(t, &r) || ptrace(PTRACE_SINGLESTEP, t->tid, NULL, (void *)(long)sig)) {
		int status;
		tracee_wait(t, &status);
		sup_end(t, status);
		return;
	}
	int status;
	for (;;) {
		if (tracee_wait(t, &status))
			return;
		if (!WIFSTOPPED(status)) {
			sup_end(t, status);
			return;
		}
		if (status >> 16) {
			ptrace(PTRACE_SINGLESTEP, t->tid, NULL, NULL);
			continue;
		}
		if (WSTOPSIG(status) == SIGTRAP)
			break;
		/* The frame could not be built: the kernel sends SIGSEGV instead. */
		siginfo_t other;
		ptrace(PTRACE_GETSIGINFO, t->tid, NULL, &other);
		if (other.si_signo == SIGSEGV && other.si_code > 0) {
			deliver(t, &other, 0);
			return;
		}
		signals_put_aside(t, &other);
		ptrace(PTRACE_SINGLESTEP, t->tid, NULL, NULL);
	}

	struct user_regs_struct h;
	tracee_getregs(t, &h);
	h.eflags &= ~0x100ULL;
	if (after) {
		/* struct rt_sigframe: return address, then ucontext, whose gregs start at 40 */
		uint64_t rip = 0, rax = 0;
		tracee_read(t->proc, h.rsp + 8 + 40 + 16 * 8, &rip, 8);
		tracee_read(t->proc, h.rsp + 8 + 40 + 13 * 8, &rax, 8);
		if (rip == after) {
			struct dj_record rec = { .kind = DJ_REC_SYSCALL,
						 .steps = t->steps,
						 .result = rax,
						 .r11 = t->regs.r11 };
			ring_record(t, &rec);
			t->steps++;
		}
	}
	struct user_regs_struct before = t->regs;
	t->regs = h;
	struct dj_regs full;
	tracee_full_regs(t, &full);
	uint64_t top = before.rsp - 128; /* the kernel leaves the red zone alone */
	if (t->in_rep) {
		t->regs.rcx = before.rcx;
		record_signal(t, info, &full, h.rsp, top);
		t->regs = h;
	} else {
		record_signal(t, info, &full, h.rsp, top);
	}
}

void signals_deliver(struct tracee *t, siginfo_t *info)
{
	deliver(t, info, 0);
}

void signals_pending(struct tracee *t)
{
	while (t->n_pending && !t->proc->ended && !t->sup->fatal && !t->sup->cut) {
		siginfo_t info = t->pending[0];
		memmove(t->pending, t->pending + 1, --t->n_pending * sizeof(*t->pending));
		deliver(t, &info, 0);
	}
}

static bool restarts(int64_t rax)
{
	/* ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND, ERESTART_RESTARTBLOCK (linux/errno.h) */
	return rax == -512 || rax == -513 || rax == -514 || rax == -516;
}

/* The address in the cache of the fragment's system call instruction that `w` lies in front of. */
static bool before_syscall(const struct tr_where *w, const struct user_regs_struct *r)
{
	const struct tr_finsn *fi = &w->frag->insn[w->index];
	return fi->after_syscall && r->rip < w->frag->entry + fi->after_syscall;
}

/* Whether the thread, being where `r` says, can be taken in hand there. */
static bool takeable(struct tracee *t, const struct user_regs_struct *r, struct tr_where *w)
{
	if (!tr_locate(t->proc->tr, r->rip, *tcb(t, T_RT_RET), w))
		return false;
	if (w->boundary || w->string_head)
		return true;
	if (before_syscall(w, r)) {
		const struct tr_finsn *fi = &w->frag->insn[w->index];
		w->spilled = fi->spilled_start;
		w->flags = r->rip >= w->frag->entry + fi->body ? fi->flags_body : fi->flags_start;
		return true;
	}
	return false;
}

void sup_step_to_boundary(struct tracee *t)
{
	for (unsigned n = 0;; n++) {
		struct user_regs_struct r;
		struct tr_where w;
		if (tracee_getregs(t, &r))
			return;
		if (takeable(t, &r, &w)) {
			t->in_rep = w.string_head;
			sup_take(t, &r, &w);
			/* injecting a signal needs a signal-delivery stop, and a step makes one */
			return;
		}
		siginfo_t info;
		int status = tracee_step(t, &r, 0, &info);
		if (!WIFSTOPPED(status)) {
			sup_end(t, status);
			return;
		}
		if (WSTOPSIG(status) != SIGTRAP) { /* it faults before it gets there */
			signals_stop(t, WSTOPSIG(status));
			return;
		}
		if (info.si_code == SI_KERNEL) {
			sup_trap(t, &r);
			return;
		}
		DJ_ASSERT(n < 1000000, "no instruction boundary after %#llx in the cache",
			  (unsigned long long)r.rip);
	}
}

/* A store that pops was done on the shadow; then memory refused it. The popped register is still
 * there, as ST(7), marked empty (FXSAVE keeps registers by their distance from the top, tags by
 * number; SDM vol. 1, 10.5.1). */
static void undo_pop(struct tracee *t)
{
	const uint16_t top_mask = 7 << 11, underflow = 0x41; /* SF, IE */
	struct user_fpregs_struct f;
	uint16_t before = (uint16_t)*tcb(t, T_X87);
	if (ptrace(PTRACE_GETFPREGS, t->tid, NULL, &f) || (f.swd & top_mask) == (before & top_mask))
		return;
	uint32_t st7[4];
	memcpy(st7, f.st_space + 7 * 4, sizeof(st7));
	memmove(f.st_space + 4, f.st_space, 7 * sizeof(st7));
	memcpy(f.st_space, st7, sizeof(st7));
	bool empty = (f.swd & underflow) == underflow && (before & underflow) != underflow;
	if (!empty)
		f.ftw |= (uint16_t)(1u << (before >> 11 & 7));
	f.swd = before;
	ptrace(PTRACE_SETFPREGS, t->tid, NULL, &f);
}

/* In hand at an access that faulted. What modifies memory does so on the shadow first: make that
 * undone. */
static void undo_store(struct tracee *t)
{
	struct dj_regs regs;
	struct insn in;
	uint8_t code[INSN_MAX];
	size_t got = tracee_read(t->proc, t->regs.rip, code, sizeof(code));
	if (!got || insn_decode(&in, code, got, t->regs.rip) <= 0 || !(in.mem_access & INSN_W))
		return;
	bool pops = in.id == INSN_FSTP || in.id == INSN_FISTP || in.id == INSN_FISTTP ||
		    in.id == INSN_FBSTP;
	if (pops && t->sup->opt.predict == DJ_PREDICT_SHADOW)
		undo_pop(t);
	tracee_from_user(&t->regs, &regs);
	sup_import(t, insn_address(&in, regs.gpr, *tcb(t, T_FSBASE), *tcb(t, T_GSBASE)),
		   in.mem_size);
}

void signals_stop(struct tracee *t, int sig)
{
	struct process *proc = t->proc;
	siginfo_t info;
	struct user_regs_struct r;
	struct tr_where w;
	memset(&info, 0, sizeof(info));
	ptrace(PTRACE_GETSIGINFO, t->tid, NULL, &info);
	tracee_getregs(t, &r);
	bool sync = info.si_code > 0 && (sig == SIGSEGV || sig == SIGBUS || sig == SIGFPE ||
					 sig == SIGILL || sig == SIGTRAP);
	if (sync) {
		if (!tr_locate(proc->tr, r.rip, *tcb(t, T_RT_RET), &w)) {
			sup_fatal(t->sup,
				  "signal %d at %#llx in the cache, where no instruction of the "
				  "program is "
				  "(address %p)",
				  sig, (unsigned long long)r.rip, info.si_addr);
			return;
		}
		t->in_rep = w.frag->insn[w.index].id_string && !w.boundary;
		sup_take(t, &r, &w);
		if (sig == SIGSEGV || sig == SIGBUS)
			undo_store(t);
		else
			info.si_addr = (void *)(uintptr_t)t->regs.rip;
		deliver(t, &info, 0);
		sup_enter(t);
		return;
	}

	enum disposition d = disposition(t, sig);
	if (d == IGNORED || d == JOB_CONTROL) {
		sup_resume(t, sig);
		return;
	}
	if (tr_locate(proc->tr, r.rip, *tcb(t, T_RT_RET), &w) && w.after_syscall &&
	    restarts((int64_t)r.rax) && (int64_t)r.orig_rax >= 0) {
		struct tr_where at = w;
		at.spilled = 0;
		sup_take(t, &r, &at);
		uint64_t after = w.pc + 2;
		t->regs.rip = after;
		t->regs.rcx = after;
		t->regs.orig_rax = r.orig_rax;
		*tcb(t, T_IN_SYSCALL) = 0;
		deliver(t, &info, after);
		sup_enter(t);
		return;
	}
	signals_put_aside(t, &info);
	sup_step_to_boundary(t);
	if (!proc->ended && !t->sup->fatal && !t->sup->cut && t->in_hand)
		sup_enter(t);
}
