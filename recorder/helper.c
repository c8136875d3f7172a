/*
 * Helpers: processes that share the program's memory (clone with CLONE_VM alone) and look at the
 * program with ptrace, as LeakSanitizer's does at exit. A process has one tracer only, and the
 * program's is deja. So deja performs for the helper what it asks of the program, which is little:
 *
 *   PTRACE_ATTACH   the program is interrupted, wherever it is in the cache, or as it enters it
 *   wait4           is answered when it has stopped; the helper stays at the call's entry
 *   PTRACE_GETREGS  (and GETREGSET) the program's own registers, by its fragment's tables
 *   PTRACE_DETACH   it goes on
 *
 * For this the helper stays traced, and stops at the entry and the exit of its system calls; it
 * executes the program's own code. A helper that has made some calls and none of these is let go,
 * as is one that starts or becomes another program. The thread that is held stays in its state
 * REC_CACHE; it only does not run.
 */
#include "recorder/recorder.h"

#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define PATIENCE 400 /* system calls */

static enum rec_state on(struct rec_thread *c)
{
	rec_run(c, REC_TO_SYSCALL, 0);
	return REC_HELPER;
}

enum rec_state rec_helper_begin(struct rec_thread *c)
{
	struct rec_tracer *tracer = c->rec->tracer;
	/* it may outlive us */
	if (tracer->loosen(tracer, c->tid) || rec_set_regs(c, &c->regs))
		return REC_KILLED;
	return on(c);
}

/* The thread that it looks at goes on. */
static void let_run(struct rec_thread *c)
{
	struct rec_thread *t = c->helper.of;
	if (t && t->helper.by == c) {
		t->helper.by = NULL;
		if (t->helper.held)
			rec_run(t, REC_CONT, 0);
		t->helper.held = false;
	}
	c->helper.of = NULL;
}

void rec_helper_ended(struct rec_thread *c)
{
	let_run(c);
}

static enum rec_state answer(struct rec_thread *c, int64_t result)
{
	struct user_regs_struct r;
	if (rec_get_regs(c, &r))
		return REC_KILLED;
	r.orig_rax = (unsigned long long)-1; /* the call is not made */
	r.rax = (unsigned long long)result;
	c->helper.result = result;
	c->helper.answered = true;
	c->helper.waits = false;
	return rec_set_regs(c, &r) ? REC_KILLED : on(c);
}

static enum rec_state answer_wait(struct rec_thread *c)
{
	int status = SIGSTOP << 8 | 0x7f;
	if (c->helper.status &&
	    !rec_write(c->helper.of->proc, c->helper.status, &status, sizeof(status)))
		return answer(c, -EFAULT);
	c->helper.told = true;
	return answer(c, c->helper.of->tid);
}

/* An interrupted thread: whether it is to stay where it is. */
bool rec_helper_holds(struct rec_thread *t, const struct user_regs_struct *r)
{
	struct rec_thread *c = t->helper.by;
	struct tr_where w;
	if (!c || t->helper.held)
		return false;
	struct user_regs_struct *own = &t->helper.regs;
	t->helper.held = true;
	/* not to be taken in hand: it may be in the midst of writing a record */
	if (tr_locate(t->proc->tr, r->rip, *rec_tcb(t, T_RT_RET), &w)) {
		rec_own_regs(t, r, &w, own);
		if (w.after_syscall)
			own->rip += 2;
	} else {
		*own = *r; /* rsp is the program's at least */
	}
	own->gs_base = rec_gs(t);
	if (c->helper.waits)
		c->state = answer_wait(c);
	return true;
}

static int64_t give_regset(struct rec_thread *t, uint64_t type, uint64_t at)
{
	uint8_t buf[16384];
	struct iovec v;
	size_t n = sizeof(t->helper.regs);
	if (rec_read(t->proc, at, &v, sizeof(v)) != sizeof(v))
		return -EFAULT;
	if (type == NT_PRSTATUS) {
		memcpy(buf, &t->helper.regs, n);
	} else {
		ssize_t got = type == NT_X86_XSTATE
				      ? t->rec->tracer->get_xstate(t->rec->tracer, t->tid, buf,
								   sizeof(buf))
				      : -1;
		if (got < 0)
			return -EINVAL;
		n = (size_t)got;
	}
	v.iov_len = v.iov_len < n ? v.iov_len : n;
	return rec_write(t->proc, (uint64_t)(uintptr_t)v.iov_base, buf, v.iov_len) &&
			       rec_write(t->proc, at, &v, sizeof(v))
		       ? 0
		       : -EFAULT;
}

/* Whether the thread is in the midst of something that is soon over, after which it enters the
 * cache and is interrupted there (hand.c). */
static bool busy(const struct rec_thread *t)
{
	switch (t->state) {
	case REC_BOUNDARY:
	case REC_CALL:
	case REC_HANDLER:
	case REC_NATIVE:
	case REC_NATIVE_RUN:
	case REC_SIGRETURN:
	case REC_TRAP:
	case REC_TRAP_WAIT:
	case REC_WAIT:
		return true;
	case REC_SYSCALL: /* others may take their time */
		return t->sys.regs.rax == SYS_clone || t->sys.regs.rax == SYS_clone3;
	default:
		return false;
	}
}

static int64_t request(struct rec_thread *c, struct rec_thread *t, const struct user_regs_struct *r)
{
	bool stopped = t->helper.by == c && t->helper.held;
	switch (r->rdi) {
	case PTRACE_ATTACH:
		if (t->helper.by || (t->state != REC_CACHE && !busy(t)))
			return -EPERM;
		if (t->state == REC_CACHE && t->rec->tracer->interrupt(t->rec->tracer, t->tid))
			return -ESRCH;
		t->helper.by = c;
		c->helper.of = t;
		c->helper.told = false;
		return 0;
	case PTRACE_DETACH:
		if (!stopped)
			return -ESRCH;
		let_run(c);
		return 0;
	case PTRACE_GETREGS:
		if (!stopped)
			return -ESRCH;
		return rec_write(t->proc, r->r10, &t->helper.regs, sizeof(t->helper.regs))
			       ? 0
			       : -EFAULT;
	case PTRACE_GETREGSET:
		return stopped ? give_regset(t, r->rdx, r->r10) : -ESRCH;
	}
	return -EIO;
}

static struct rec_thread *find(struct rec_thread *c, uint64_t tid)
{
	struct rec_thread *t = c->rec->threads;
	while (t && (t->proc->child || (uint64_t)t->tid != tid || t->state == REC_GONE))
		t = t->next;
	return t;
}

/* At the entry of a system call. */
static enum rec_state entry(struct rec_thread *c, const struct user_regs_struct *r)
{
	struct rec_thread *t = r->orig_rax == SYS_ptrace  ? find(c, r->rsi)
			       : r->orig_rax == SYS_wait4 ? find(c, r->rdi)
							  : NULL;
	if (!t)
		return on(c);
	if (r->orig_rax == SYS_ptrace)
		return answer(c, request(c, t, r));
	if (t->helper.by != c || c->helper.told)
		return on(c);
	c->helper.status = r->rsi;
	if (t->helper.held)
		return answer_wait(c);
	c->helper.waits = true; /* and stays here */
	return REC_HELPER;
}

enum rec_state rec_on_helper(struct rec_thread *c, const struct rec_stop *stop)
{
	struct user_regs_struct r;
	if (stop->event == PTRACE_EVENT_STOP)
		return on(c);
	bool leave = stop->event || (!c->helper.of && ++c->helper.calls > PATIENCE);
	if (!leave && (stop->sig != SIGTRAP || stop->info.si_code != SIGTRAP)) {
		rec_run(c, REC_TO_SYSCALL, stop->sig);
		return REC_HELPER;
	}
	if (rec_get_regs(c, &r))
		return REC_KILLED;
	c->helper.entry = !c->helper.entry;
	if (leave && !c->helper.answered) {
		let_run(c);
		rec_run(c, REC_DETACH, stop->event || stop->sig == SIGTRAP ? 0 : stop->sig);
		return REC_GONE;
	}
	if (c->helper.entry)
		return entry(c, &r);
	if (c->helper.answered) {
		c->helper.answered = false;
		r.rax = (unsigned long long)c->helper.result;
		if (rec_set_regs(c, &r))
			return REC_KILLED;
	}
	return on(c);
}
