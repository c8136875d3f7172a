/*
 * Processes that the program starts and that are recorded: all of them, unless --no-follow says
 * otherwise (child.c has what those are that are not).
 *
 * A forked child has an address space of its own, a copy of its parent's, deja's memory included;
 * and what is shared there is shared with the parent. So before its first instruction it loses all
 * of that, and gets an area of its own like a new image, with an empty shadow: what it reads is
 * recorded when it reads it. What the parent's struct knows of the address space holds for the copy
 * as well: mappings, the vdso, limits, filters, what SIGTRAP does. Its history begins with all
 * registers and all mappings, at step 0, with the number of the latest ordered event that the
 * parent had passed.
 *
 * A vfork child (and that of posix_spawn) executes in its parent's memory while the parent waits,
 * until it makes an exec or ends. It does so by itself, traced but not recorded: the program's own
 * code is as the program made it, and what it writes the parent imports when it reads it. Its exec
 * begins an image like any other, and its history with it. Until then it counts as a thread that
 * takes numbers of ordered events (order.c), because at its exec others are in the cache already.
 * Processes that it makes before that run in the same way, up to their own exec.
 */
#include "recorder/area.h"

#include <errno.h>
#include <string.h>
#include <sys/ptrace.h>

static void copy_mappings(struct rec_process *to, const struct rec_process *from)
{
	for (const struct dj_mapping *m = dj_mappings_after(&from->maps, 0, 0); m;
	     m = dj_mappings_after(&from->maps, m->end, 0))
		dj_mappings_put(&to->maps, m);
}

/* The stream of a process, of which nothing is known yet but whose child it is. */
static int process_stream(struct rec_process *proc, const struct rec_process *parent)
{
	struct rec_recording *rec = proc->rec;
	proc->facts = dj_writer_process(rec->writer, proc->pid, parent->facts, rec->err);
	if (!proc->facts)
		rec->cut = true;
	return proc->facts ? (int)dj_stream_number(proc->facts) : -1;
}

static bool thread_stream(struct rec_thread *c)
{
	struct rec_recording *rec = c->rec;
	char name[64];
	rec_thread_name(c, name);
	c->stream = dj_writer_thread(rec->writer, c->proc->facts, c->tid, name, rec->err);
	if (!c->stream || dj_stream_flush(c->stream, 0, c->seq, rec->err))
		rec->cut = true;
	return !rec->cut;
}

/* ---- fork -------------------------------------------------------------------------------- */

int rec_follow_fork(struct rec_thread *t, struct rec_thread *c)
{
	const struct rec_process *from = t->proc;
	struct rec_process *proc = c->proc;
	proc->child = false;
	proc->brk = from->brk;
	proc->vdso = from->vdso;
	proc->vdso_end = from->vdso_end;
	proc->trap = from->trap;
	proc->trap.due = NULL;
	proc->writes_memory = from->writes_memory;
	copy_mappings(proc, from);
	/* the copy has the pages of the order where its parent has them */
	proc->order_mapped = from->order_mapped;
	proc->parent = t->proc;
	proc->area_at = from->area_at;
	c->seq = proc->number = rec_order_now(t);
	c->regs.eflags &= ~TRAP_FLAG;
	c->trap_flag = t->trap_flag;
	c->trap.blocked = t->trap.blocked;
	c->quiet = c->child.trap = false;
	int number = process_stream(proc, from);
	return number >= 0 && thread_stream(c) ? number : -1;
}

enum rec_state rec_follow_begin(struct rec_thread *c)
{
	c->s = 0;
	c->area.forked = true;
	return rec_area_begin(c);
}

enum rec_state rec_follow_ready(struct rec_thread *c)
{
	struct dj_record r = { .kind = DJ_REC_REGS, .mask = DJ_REG_ALL };
	if (!rec_ring_start(c))
		return REC_KILLED;
	*rec_tcb(c, T_STEPS) = 0;
	*rec_tcb(c, T_SEQ) = c->seq;
	*rec_tcb(c, T_FSBASE) = c->regs.fs_base;
	*rec_tcb(c, T_GSBASE) = c->regs.gs_base;
	*rec_tcb(c, T_SELF) = c->s;
	rec_syscalls_init(c);
	rec_full_regs(c, &r.regs);
	rec_ring_record(c, &r);
	rec_ring_time(c, 0);
	rec_image_maps(c);
	rec_copy(c);
	rec_digest_start(c);
	rec_image_translator(c);
	return REC_IN_HAND;
}

/* ---- vfork --------------------------------------------------------------------------------- */

int rec_follow_vfork(struct rec_thread *t, struct rec_thread *c)
{
	c->proc->follow = true;
	return process_stream(c->proc, t->proc);
}

enum rec_state rec_follow_run(struct rec_thread *c)
{
	if (rec_set_regs(c, &c->regs))
		return REC_KILLED;
	rec_run(c, REC_TO_SYSCALL, 0);
	return REC_VFORK;
}

/* Its history begins. */
static enum rec_state begin_image(struct rec_thread *c)
{
	struct rec_process *proc = c->proc;
	proc->child = proc->follow = false;
	c->quiet = false;
	c->seq = proc->number = rec_order_latest(c->rec);
	rec_limits_look(proc);
	rec_trap_begin(c);
	return thread_stream(c) ? rec_image_begin(c, true) : REC_KILLED;
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
	proc->vdso_syscall = c->proc->vdso_syscall;
	memcpy(proc->limits, c->proc->limits, sizeof(proc->limits));
	memcpy(proc->kernel_limits, c->proc->kernel_limits, sizeof(proc->kernel_limits));
	proc->limits_known = c->proc->limits_known;
	proc->raised = c->proc->raised;
	rec_filters_copy(d, c);
	rec_follow_vfork(c, d);
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

/* ---- the end ------------------------------------------------------------------------------- */

void rec_follow_ended(struct rec_process *proc)
{
	struct dj_error err = { 0 };
	for (const struct rec_thread *t = proc->rec->threads; t; t = t->next)
		if (t->proc == proc)
			return;
	rec_count_translator(proc);
	if (proc->facts && dj_stream_close(proc->facts, &err))
		rec_cut(proc->rec, "%s", err.text);
	rec_process_free(proc);
}
