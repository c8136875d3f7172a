/*
 * Children between vfork and exec (vfork(2), posix_spawn(3), clone with CLONE_VM and CLONE_VFORK).
 *
 * Such a child executes in its parent's memory while the thread that made it waits in the kernel,
 * until the child makes an exec or ends. It is recorded from its first instruction: until then it
 * is one more thread of that address space, with an area, a ring and a stream like any (thread.c),
 * and has mappings, translations, turns and facts in common with the others. To the kernel it is a
 * process of its own, though, which is what `t->group` says: its number, its limits and what
 * SIGTRAP does are copies of its parent's, of which neither learns what the other makes of them.
 * (`t->group` is `t->proc` for all other threads.) So it counts where memory or translated code
 * are shared, and does not where the kernel means a process: an exec or exit_group ends the threads
 * of its group, signals that stop a process stop those, a filter for all is for those. Its parent
 * may be killed meanwhile, or end in other threads; then the memory lives on with the child, and so
 * does the struct of it.
 *
 * At its exec the thread's history ends, and that of its process begins, which has been in the
 * trace since it was made, without a thread: it takes a number of its own, so that no position of
 * the one is also one of the other, which have the same number in the kernel. Its area is left
 * to the next thread as it is, with a shadow that is to be emptied before it is used
 * (area-thread.c): nobody is left in there to do that, and if the exec fails, it goes on as if
 * nothing had been.
 *
 * Some run by themselves, traced but not recorded, until their exec: those that there is no room
 * for, and those that share what signals do with their parent (CLONE_SIGHAND). The program's own
 * code is as the program made it, and what they write the others import when they read it.
 * Processes that they make before their exec run in the same way. Until then each counts as a
 * thread that takes numbers of ordered events (order.c), because at its exec others are in the
 * cache already.
 *
 * An exec of the parent's, by another of its threads, replaces the memory that we know by
 * `t->proc`: before that such children leave the recording (leave.c).
 */
#include "recorder/area.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- recorded ------------------------------------------------------------------------------ */

bool rec_vfork_recorded(const struct rec_thread *t, uint64_t flags)
{
	return t->rec->opt.follow && (flags & CLONE_VM) && (flags & CLONE_VFORK) &&
	       !(flags & (CLONE_THREAD | CLONE_SIGHAND)) && rec_thread_room(t->proc);
}

enum rec_state rec_vfork_event(struct rec_thread *t, pid_t pid)
{
	struct rec_process *group = rec_process_new(t->rec, pid);
	struct rec_thread *c = rec_thread_new(t->proc, pid, REC_NEW_THREAD);
	c->group = group;
	rec_child_inherits(group, t);
	rec_trap_copied(group, t);
	struct dj_record r = { .kind = DJ_REC_CHILD,
			       .steps = t->steps,
			       .pid = pid,
			       .what = DJ_CHILD_VFORK,
			       .subject = rec_process_stream(group, t->group) };
	if (!rec_thread_made(t, c))
		return REC_KILLED;
	rec_ring_record(t, &r);
	rec_run(t, t->how, 0);
	return REC_SYSCALL;
}

enum rec_state rec_vfork_unrecorded(struct rec_thread *c)
{
	struct rec_process *group = c->group;
	c->why = strdup("there was no room for what its recording needs in its parent's memory");
	DJ_ASSERT(c->why, "out of memory for a reason");
	rec_thread_finish(c);
	free(c->why);
	c->why = NULL;
	c->stream = NULL;
	c->closed = false;
	rec_release(c);
	for (unsigned i = 0; i < c->n_pending; i++)
		syscall(SYS_tgkill, group->pid, c->tid, c->pending[i].si_signo);
	c->n_pending = 0;
	rec_thread_apart(c);
	rec_area_thread_end(c);
	c->proc = group;
	group->n_threads = 1;
	group->child = group->follow = true;
	c->in_hand = false;
	return rec_vfork_run(c);
}

/* From here on it is a process like any; signals that wait for it, its mask and its filters stay
 * (execve(2)), and what the kernel remembers of its last exception. */
struct rec_thread *rec_vfork_exec(struct rec_thread *t)
{
	struct rec_process *proc = t->proc, *group = t->group;
	if (t->state == REC_KILLED || rec_over(t->rec)) {
		t->state = REC_KILLED;
		return t;
	}
	struct rec_thread *c = rec_thread_new(group, t->tid, REC_VFORK);
	uint64_t next = rec_order_next(t), latest = rec_order_latest(t->rec);
	c->seq = next > latest ? next : latest;
	c->pending = t->pending;
	c->n_pending = t->n_pending;
	c->cap_pending = t->cap_pending;
	c->layout = t->layout;
	c->held = t->held;
	c->mask = t->mask;
	c->trap = t->trap;
	memcpy(c->signal.exception, t->signal.exception, sizeof(c->signal.exception));
	c->native.faulted = t->native.faulted;
	c->native.wanted = t->native.wanted;
	c->filters = t->filters;
	t->pending = NULL;
	t->n_pending = t->cap_pending = 0;
	t->filters = NULL;
	rec_ended(t, 0);
	rec_thread_free(t);
	group->n_threads = 1;
	rec_follow_ended(proc);
	return c;
}

bool rec_vfork_beside(struct rec_thread *t, struct rec_thread **o)
{
	for (*o = t->rec->threads; *o; *o = (*o)->next)
		if ((*o)->proc == t->proc && (*o)->group != t->group && (*o)->state != REC_GONE)
			return t->group == t->proc;
	return false;
}

/* ---- not recorded -------------------------------------------------------------------------- */

int rec_vfork_followed(struct rec_thread *t, struct rec_thread *c)
{
	c->proc->follow = true;
	return rec_process_stream(c->proc, t->group);
}

enum rec_state rec_vfork_run(struct rec_thread *c)
{
	if (rec_set_regs(c, &c->regs))
		return REC_KILLED;
	rec_run(c, REC_TO_SYSCALL, 0);
	return REC_VFORK;
}

/* It has made a process or a thread, which does as it does. */
static void another(struct rec_thread *c)
{
	unsigned long pid = 0;
	if (c->rec->tracer->event_message(c->rec->tracer, c->tid, &pid))
		return;
	struct rec_process *proc = rec_process_new(c->rec, (pid_t)pid);
	struct rec_thread *d = rec_thread_new(proc, (pid_t)pid, REC_VFORK);
	proc->child = true;
	rec_child_inherits(proc, c);
	rec_filters_copy(d, c);
	rec_vfork_followed(c, d);
}

/* At the entry or the exit of a system call: whether it must not be traced. */
static bool must_leave(struct rec_thread *c)
{
	struct user_regs_struct r;
	if (rec_get_regs(c, &r) ||
	    (int64_t)r.rax != -ENOSYS) /* as the kernel has it at the entry */
		return false;
	if (c->proc->mem < 0)
		c->proc->mem = c->rec->tracer->open_memory(c->rec->tracer, c->tid);
	return rec_asks_to_be_traced(&r, r.orig_rax) || rec_becomes_another(c, &r, r.orig_rax);
}

/* ---- exec ---------------------------------------------------------------------------------- */

/* The history of the process begins. */
static enum rec_state begin_image(struct rec_thread *c)
{
	struct rec_process *proc = c->proc;
	c->quiet = false;
	if (proc->follow) {
		c->seq = rec_order_latest(c->rec);
		rec_limits_look(proc);
		rec_trap_begin(c);
	} else {
		rec_trap_exec(c);
	}
	proc->number = c->seq;
	proc->child = proc->follow = false;
	return rec_thread_stream(c) ? rec_image_begin(c, true) : REC_KILLED;
}

enum rec_state rec_on_vfork(struct rec_thread *c, const struct rec_stop *stop)
{
	bool call = !stop->event && stop->sig == SIGTRAP && stop->info.si_code == SIGTRAP;
	switch (stop->event) {
	case PTRACE_EVENT_EXEC:
		return begin_image(c);
	case PTRACE_EVENT_FORK:
	case PTRACE_EVENT_VFORK:
	case PTRACE_EVENT_CLONE:
		another(c);
	}
	if (call && must_leave(c)) {
		rec_run(c, REC_DETACH, 0);
		return REC_GONE;
	}
	rec_run(c, REC_TO_SYSCALL, stop->event || call ? 0 : stop->sig);
	return REC_VFORK;
}
