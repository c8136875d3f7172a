/*
 * System calls that the program makes for purposes of ours, with the instruction in the vdso (none
 * of the program's bytes are touched). Where there is none, as a program can take it away, two
 * bytes of the program are borrowed; but not with several threads, as two may be at the same place.
 * Then it is one of ours in an arena, which is not given up meanwhile (gather.c).
 *
 * Several in a row are a chain: what follows a call is a function that gets its result, does
 * what there is to do, and may make the next one.
 */
#include "recorder/area.h"

#include <errno.h>

enum rec_state rec_call(struct rec_thread *t, rec_then *then, uint64_t nr, uint64_t a, uint64_t b,
			uint64_t c, uint64_t d, uint64_t e, uint64_t f)
{
	struct rec_process *proc = t->proc;
	struct user_regs_struct r = t->regs;
	r.rax = nr;
	r.rdi = a;
	r.rsi = b;
	r.rdx = c;
	r.r10 = d;
	r.r8 = e;
	r.r9 = f;
	r.orig_rax = (unsigned long long)-1;
	uint64_t at = proc->vdso_syscall;
	if (!at && proc->n_threads > 1 && proc->tr && proc->gather.by != t)
		at = tr_syscall_insn(proc->tr);
	t->call.borrowed = !at;
	if (t->filters && !rec_filters_allow(t, at ? at : t->regs.rip, &r))
		return then(t, -EPERM);
	if (!at) {
		at = t->regs.rip;
		if (rec_read(proc, at, t->call.saved, 2) != 2 ||
		    !rec_write(proc, at, "\x0f\x05", 2))
			return then(t, -EFAULT);
	}
	r.rip = at;
	t->call.then = then;
	t->call.at = at;
	t->call.end = 0;
	t->call.entry = t->quiet;
	if (rec_set_regs(t, &r))
		return REC_KILLED;
	rec_run(t, t->quiet ? REC_TO_SYSCALL : REC_STEP, 0);
	return REC_CALL;
}

enum rec_state rec_call_series(struct rec_thread *t, rec_then *then, uint64_t at, uint64_t list,
			       uint64_t end)
{
	struct user_regs_struct r = t->regs;
	r.rip = at;
	r.rbx = list;
	r.r12 = 0;
	r.orig_rax = (unsigned long long)-1;
	t->call.borrowed = t->call.entry = false;
	t->call.then = then;
	t->call.at = at;
	t->call.end = end;
	if (rec_set_regs(t, &r))
		return REC_KILLED;
	rec_run(t, REC_CONT, 0);
	return REC_CALL;
}

enum rec_state rec_on_call(struct rec_thread *t, const struct rec_stop *stop)
{
	struct user_regs_struct r;
	if (rec_get_regs(t, &r))
		return REC_KILLED;
	if (t->quiet && t->call.entry) {
		t->call.entry = false;
		rec_run(t, REC_TO_SYSCALL, 0);
		return REC_CALL;
	}
	if (stop->sig == SIGTRAP && r.rip == t->call.at) { /* it was interrupted and starts again */
		rec_run(t, t->how, 0);
		return REC_CALL;
	}
	if (t->call.borrowed)
		rec_write(t->proc, t->call.at, t->call.saved, 2);
	if (stop->sig !=
	    SIGTRAP) /* a seccomp filter's SIGSYS: not for the program, which did nothing */
		return t->call.then(t, -EPERM);
	if (t->call.end && r.rip != t->call.end)
		return t->call.then(t, -EFAULT);
	return t->call.then(t, (int64_t)r.rax);
}
