/*
 * Processes that the program starts. Those that are not recorded (follow.c, vfork.c): a new child
 * stops first thing, gets the program's registers as after the call, loses deja's area and arenas
 * if the address space is its own, and is let go. Its parent does not wait for that.
 *
 * A child that shares the program's memory and does not wait for an exec (CLONE_VM without
 * CLONE_VFORK) is let go as well: it executes the program's own code, which is as the program made
 * it, and what it writes is imported when the recorded thread reads it. Only a thread of the same
 * process ends the recording; and only when there is one, because clone may fail. CLONE_UNTRACED
 * would keep the child from us, and it would run into translated code: the flag is taken out.
 *
 * While calls are made for the child it blocks all signals but SIGTRAP (whose disposition
 * a forced signal would reset if it were blocked), so that none has to be taken from the kernel
 * and given back.
 */
#include "recorder/area.h"

#include <linux/sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

/*
 * clone3's arguments are in memory, where another thread may change them until the kernel has read
 * them, and behind that. So the kernel gets a copy, and the flags that were in it are what is
 * believed of the child. What the kernel would refuse it refuses: sizes below the first version's,
 * or above a page's, without reading anything; what cannot be read; and anything but zeros behind
 * what it knows (kernel/fork.c, copy_clone_args_from_user()).
 */
static uint64_t copy_arguments(struct rec_thread *t, struct user_regs_struct *r)
{
	uint64_t args[AREA_PAGE / sizeof(uint64_t)], size = r->rsi;
	if (size < CLONE_ARGS_SIZE_VER0 || size > sizeof(args))
		return 0;
	memset(args, 0, sizeof(args));
	if (!rec_read_as_it(t->proc, r->rdi, args, size)) {
		r->rdi = -(uint64_t)AREA_PAGE; /* EFAULT, whatever is there by then */
		return 0;
	}
	for (size_t i = T_ARGS_SIZE / sizeof(*args); i < sizeof(args) / sizeof(*args); i++)
		if (args[i]) {
			r->rsi = sizeof(args) + 1; /* E2BIG, likewise */
			return 0;
		}
	args[0] &= ~(uint64_t)CLONE_UNTRACED;
	memcpy(rec_tcb(t, T_ARGS), args, T_ARGS_SIZE);
	r->rdi = t->s + (uint64_t)T_ARGS;
	r->rsi = size < T_ARGS_SIZE ? size : T_ARGS_SIZE;
	return args[0];
}

void rec_child_traced(struct rec_thread *t, struct user_regs_struct *r)
{
	t->sys.clone_flags = 0;
	switch (r->rax) {
	case SYS_clone:
		r->rdi &= ~(uint64_t)CLONE_UNTRACED;
		t->sys.clone_flags = r->rdi;
		break;
	case SYS_clone3:
		t->sys.clone_flags = copy_arguments(t, r);
		break;
	case SYS_vfork:
		t->sys.clone_flags = CLONE_VM | CLONE_VFORK;
		return;
	case SYS_fork:
		break;
	default:
		return;
	}
	if ((t->sys.clone_flags & CLONE_FILES) && !(t->sys.clone_flags & CLONE_THREAD))
		t->rec->files = true;
	rec_x87_place(t); /* it has that, too, and perhaps other translations */
}

/* The copy is where the program can write to, too: whether the kernel has made what the flags say.
 */
static bool as_believed(struct rec_thread *t, pid_t pid, uint64_t flags, int event)
{
	struct rec_tracer *tracer = t->rec->tracer;
	char line[64];
	int group = 0;
	if (t->sys.regs.rax != SYS_clone3)
		return true;
	FILE *f = tracer->open_proc(tracer, pid, "status");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Tgid: %d", &group) == 1)
			break;
	if (f)
		fclose(f);
	return (event == PTRACE_EVENT_VFORK) == !!(flags & CLONE_VFORK) &&
	       (!group || (group == t->group->pid) == !!(flags & CLONE_THREAD));
}

void rec_child_inherits(struct rec_process *group, const struct rec_thread *t)
{
	const struct rec_process *from = t->group;
	group->vdso_syscall = t->proc->vdso_syscall;
	memcpy(group->limits, from->limits, sizeof(group->limits));
	memcpy(group->kernel_limits, from->kernel_limits, sizeof(group->kernel_limits));
	group->limits_known = from->limits_known;
	group->raised = from->raised;
}

static void new_child(struct rec_thread *t, pid_t pid, uint64_t flags)
{
	bool own_space = !(flags & CLONE_VM);
	struct rec_process *proc = rec_process_new(t->rec, pid);
	struct rec_thread *c = rec_thread_new(proc, pid, REC_CHILD);
	proc->child = true;
	rec_child_inherits(proc, t);
	rec_filters_copy(c, t);
	c->s = t->s;
	c->helper.shares = (flags & CLONE_VM) && !(flags & CLONE_VFORK);
	rec_child_regs(t, c);
	/* a forced signal would reset what it inherits (sigtrap.c) */
	c->quiet = t->group->trap.action.handler;
	c->child.trap = proc->vdso_syscall && rec_trap_inherited(t);
	int subject = !t->rec->opt.follow   ? -1
		      : own_space	    ? rec_follow_fork(t, c)
		      : flags & CLONE_VFORK ? rec_vfork_followed(t, c)
					    : -1;
	if (own_space && (proc->vdso_syscall || !proc->child)) {
		unsigned n;
		c->child.unmap = rec_area_pieces(t->proc, &n);
		if (n && proc->order_mapped) {
			c->child.unmap[0].at += AREA_ORDER;
			c->child.unmap[0].size -= AREA_ORDER;
		}
		c->child.n_unmap = !proc->child && t->proc->not_forked ? 0 : n;
	}
	struct dj_record r = { .kind = DJ_REC_CHILD,
			       .steps = t->steps,
			       .pid = pid,
			       .what = own_space	     ? DJ_CHILD_FORK
				       : flags & CLONE_VFORK ? DJ_CHILD_VFORK
							     : DJ_CHILD_CLONE,
			       .subject = subject };
	rec_ring_record(t, &r);
}

/* A thread that blocks SIGTRAP sleeps until its child lets it go, which may need a SIGTRAP that
 * another thread is to get. That one cannot wait for this to stop (rec_trap_mine); so this stops
 * behind the sleep, before it could run into a trap of ours. */
bool rec_vfork_holds(struct rec_thread *t, int event)
{
	struct rec_tracer *tracer = t->rec->tracer;
	if (event == PTRACE_EVENT_VFORK)
		t->sys.in_vfork = t->trap.blocked && t->proc->n_threads > 1 &&
				  rec_trap_disposition(t) == REC_CAUGHT &&
				  !tracer->watch_vfork(tracer, t->tid);
	else if (event == PTRACE_EVENT_VFORK_DONE)
		t->sys.in_vfork = false;
	t->sys.out_of_vfork = event == PTRACE_EVENT_VFORK_DONE && rec_trap_held(t);
	return t->sys.out_of_vfork;
}

enum rec_state rec_child_event(struct rec_thread *t, int event)
{
	unsigned long pid = 0;
	uint64_t flags = t->sys.clone_flags;
	if (t->rec->tracer->event_message(t->rec->tracer, t->tid, &pid))
		return REC_KILLED;
	if (!as_believed(t, (pid_t)pid, flags, event)) {
		rec_overwritten(t, T_ARGS);
		return REC_KILLED;
	}
	t->sys.clone_flags &= ~(uint64_t)(CLONE_VM | CLONE_THREAD); /* it is there now */
	rec_vfork_holds(t, event);
	if (flags & CLONE_THREAD)
		return rec_thread_event(t, (pid_t)pid);
	if (rec_vfork_recorded(t, flags))
		return rec_vfork_event(t, (pid_t)pid);
	new_child(t, (pid_t)pid, flags);
	rec_run(t, t->how, 0);
	return REC_SYSCALL;
}

static enum rec_state let_go(struct rec_thread *c, int64_t result)
{
	struct rec_tracer *tracer = c->rec->tracer;
	(void)result;
	if (c->child.held)
		tracer->set_sigmask(tracer, c->tid, c->child.mask);
	if (c->helper.shares)
		return rec_helper_begin(c);
	if (c->proc->follow)
		return rec_vfork_run(c);
	if (rec_set_regs(c, &c->regs))
		return REC_KILLED;
	rec_run(c, REC_DETACH, 0);
	return REC_GONE;
}

static enum rec_state unmap_next(struct rec_thread *c, int64_t result)
{
	(void)result;
	if (!c->child.n_unmap && !c->proc->child)
		return rec_follow_begin(c);
	if (!c->child.n_unmap)
		return c->proc->follow ? let_go(c, 0) : rec_limits_raise(c, let_go);
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
	if (!c->proc->child) {
		c->in_hand = true;
		c->proc->mem = tracer->open_memory(tracer, c->proc->pid);
		return unmap_next(c, 0);
	}
	if (!c->child.unmap && !(c->proc->raised && !c->proc->follow) && !c->child.trap)
		return let_go(c, 0);
	c->child.held = true;
	if (tracer->get_sigmask(tracer, c->tid, &c->child.mask) ||
	    tracer->set_sigmask(tracer, c->tid, ~trap))
		return REC_KILLED;
	if (c->child.trap)
		return rec_call(c, unmap_next, SYS_rt_sigaction, SIGTRAP,
				c->s + (uint64_t)T_INHERITED, 0, sizeof(uint64_t), 0, 0);
	return unmap_next(c, 0);
}
