/*
 * Processes that the program starts. They are not recorded: a new child stops first thing, gets
 * the program's registers as after the call, loses deja's area and arenas if the address space is
 * its own, and is let go. Its parent does not wait for that.
 *
 * While calls are made for the child it blocks all signals but SIGTRAP (whose disposition
 * a forced signal would reset if it were blocked), so that none has to be taken from the kernel
 * and given back.
 */
#include "recorder/area.h"

#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

void rec_child_new(struct rec_thread *t, pid_t pid, bool own_space)
{
	struct rec_process *proc = rec_process_new(t->rec, pid);
	struct rec_thread *c = rec_thread_new(proc, pid, REC_CHILD);
	proc->child = true;
	proc->vdso_syscall = t->proc->vdso_syscall;
	memcpy(proc->limits, t->proc->limits, sizeof(proc->limits));
	memcpy(proc->kernel_limits, t->proc->kernel_limits, sizeof(proc->kernel_limits));
	proc->raised = t->proc->raised;
	rec_filters_copy(proc, t->proc);
	c->s = t->s;
	c->regs = t->regs;
	c->regs.rip = t->regs.rip + 2;
	c->regs.rax = 0;
	c->regs.rcx = c->regs.rip;
	c->regs.r11 = t->regs.eflags & ~0x10100ULL;
	c->regs.eflags = (t->regs.eflags & ~TRAP_FLAG) | (t->trap_flag ? TRAP_FLAG : 0);
	c->regs.gs_base = *rec_tcb(t, T_GSBASE);
	c->regs.orig_rax = (unsigned long long)-1;
	/* a forced signal would reset what it inherits (sigtrap.c) */
	c->quiet = t->proc->trap.action.handler;
	if (own_space && proc->vdso_syscall) {
		uint64_t at = 0, size;
		unsigned n = 0;
		while (tr_arena(t->proc->tr, n, &at, &size))
			n++;
		c->child.unmap = calloc(n + 1, sizeof(*c->child.unmap));
		DJ_ASSERT(c->child.unmap, "out of memory for a child");
		for (unsigned i = 0; i < n; i++)
			tr_arena(t->proc->tr, i, &c->child.unmap[i].at, &c->child.unmap[i].size);
		c->child.unmap[n].at = t->s - AREA_CONTROL;
		c->child.unmap[n].size = rec_area_size(proc, RLIMIT_AS);
		c->child.n_unmap = n + 1;
	}
	struct dj_record r = { .kind = DJ_REC_CHILD,
			       .steps = t->steps,
			       .pid = pid,
			       .what = own_space ? DJ_CHILD_FORK : DJ_CHILD_VFORK,
			       .subject = -1 };
	rec_ring_record(t, &r);
}

static enum rec_state let_go(struct rec_thread *c, int64_t result)
{
	struct rec_tracer *tracer = c->rec->tracer;
	(void)result;
	if (c->child.unmap || c->proc->raised)
		tracer->set_sigmask(tracer, c->tid, c->child.mask);
	if (rec_set_regs(c, &c->regs))
		return REC_KILLED;
	rec_run(c, REC_DETACH, 0);
	return REC_GONE;
}

static enum rec_state unmap_next(struct rec_thread *c, int64_t result)
{
	(void)result;
	if (!c->child.n_unmap)
		return rec_limits_raise(c, let_go);
	unsigned i = --c->child.n_unmap;
	return rec_call(c, unmap_next, SYS_munmap, c->child.unmap[i].at, c->child.unmap[i].size, 0,
			0, 0, 0);
}

enum rec_state rec_on_child(struct rec_thread *c, const struct rec_stop *stop)
{
	struct rec_tracer *tracer = c->rec->tracer;
	const uint64_t trap = 1ULL << (SIGTRAP - 1);
	struct user_regs_struct now;
	(void)stop;
	if (rec_get_regs(c, &now))
		return REC_KILLED;
	c->regs.rsp = now.rsp;	       /* clone may have given it a stack */
	c->regs.fs_base = now.fs_base; /* and a thread-local block */
	if (!c->child.unmap && !c->proc->raised)
		return let_go(c, 0);
	if (tracer->get_sigmask(tracer, c->tid, &c->child.mask) ||
	    tracer->set_sigmask(tracer, c->tid, ~trap))
		return REC_KILLED;
	return unmap_next(c, 0);
}
