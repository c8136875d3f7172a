/*
 * Threads that the program starts.
 *
 * A new thread stops before its first instruction, whether that is reported before or after
 * the event of its parent (loop.c). There it gets an area (area-thread.c), a ring and a stream
 * in the trace, and begins in the cache with an empty shadow: everything it reads is recorded when
 * it reads it. From then on it is a thread like the first, in all states.
 *
 * A thread that ends gives its shadow back before it makes the call that ends it, with all
 * signals blocked: no handler must find the shadow empty. Threads that are ended by others
 * (exit_group, exec, a fatal signal) take their process's memory with them, unless that was their
 * parent's (vfork.c).
 *
 * The first thread may end before others. The kernel tells us of that when the last one has
 * ended (ptrace(2), "the thread group leader"), so it stays in the state of the call until then.
 *
 * When a thread that is not the first makes an exec that succeeds, the kernel ends all others and
 * gives it the id of the first one, of whose end nothing is ever reported (ptrace(2), "execve(2)
 * under ptrace").
 */
#include "recorder/area.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

void rec_child_regs(const struct rec_thread *t, struct rec_thread *c)
{
	c->regs = t->regs;
	c->regs.rip = t->regs.rip + 2;
	c->regs.rax = 0;
	c->regs.rcx = c->regs.rip;
	c->regs.r11 = t->regs.eflags & ~0x10100ULL;
	c->regs.eflags = (t->regs.eflags & ~TRAP_FLAG) | (t->trap_flag ? TRAP_FLAG : 0);
	c->regs.gs_base = t->gs_base;
	c->regs.orig_rax = (unsigned long long)-1;
	memcpy(c->signal.exception, t->signal.exception, sizeof(c->signal.exception));
}

/* Several calls that make one may be under way. */
#define THREADS (REC_OWN_PARTS - 64)

/* So many threads beside the first, at most. */
static unsigned most_threads(void)
{
	const char *wanted = getenv("DEJA_THREADS");
	long n = wanted ? strtol(wanted, NULL, 10) : 0;
	return n > 0 && n < THREADS ? (unsigned)n : THREADS;
}

/* As far as its arguments say, which another thread may change before they are copied. */
static uint64_t flags_of(struct rec_thread *t)
{
	uint64_t flags = t->regs.rdi;
	if (t->regs.rax == SYS_clone3 &&
	    rec_read(t->proc, t->regs.rdi, &flags, sizeof(flags)) != sizeof(flags))
		return CLONE_VM;
	return flags;
}

/* One more than there is room for is not made, as where RLIMIT_NPROC has been reached (clone(2)).
 * A copy of the memory is of one moment, as far as mappings go. */
enum rec_state rec_begin_clone(struct rec_thread *t)
{
	uint64_t flags = flags_of(t);
	if (!rec_thread_room(t->proc) && (flags & CLONE_THREAD))
		return rec_answer(t, -EAGAIN);
	if (flags & CLONE_VFORK)
		return rec_begin_vfork(t);
	return (flags & CLONE_VM) || rec_turn(t) ? rec_make_call(t) : REC_WAIT;
}

/* Not while another thread takes the memory away from the child, by exec. */
enum rec_state rec_begin_vfork(struct rec_thread *t)
{
	return t->proc->busy ? REC_WAIT : rec_make_call(t);
}

/* Those that are just being made count, too. */
bool rec_thread_room(const struct rec_process *proc)
{
	const unsigned most = most_threads();
	unsigned n = proc->n_threads;
	for (const struct rec_thread *t = proc->rec->threads; t && 2 * n > most; t = t->next)
		n += t->proc == proc && t->state == REC_SYSCALL &&
		     (t->sys.clone_flags & CLONE_THREAD);
	return n <= most;
}

bool rec_thread_made(struct rec_thread *t, struct rec_thread *c)
{
	struct rec_process *proc = t->proc;
	char name[64];
	rec_child_regs(t, c);
	c->regs.eflags &= ~TRAP_FLAG;
	c->trap_flag = t->trap_flag;
	c->trap.blocked = t->trap.blocked;
	c->seq = rec_order_now(t);
	c->own_part = -1;
	rec_filters_copy(c, t);
	proc->n_threads++;
	rec_thread_name(c, name);
	c->stream = dj_writer_thread(t->rec->writer, proc->facts, c->tid, name, t->rec->err);
	if (!c->stream) {
		t->rec->cut = true;
		return false;
	}
	struct dj_record r = { .kind = DJ_REC_THREAD,
			       .steps = t->steps,
			       .pid = c->tid,
			       .what = DJ_THREAD_MADE,
			       .subject = (int32_t)dj_stream_number(c->stream),
			       .name = name };
	rec_ring_record(t, &r);
	return true;
}

enum rec_state rec_thread_event(struct rec_thread *t, pid_t tid)
{
	struct rec_thread *c = rec_thread_new(t->proc, tid, REC_NEW_THREAD);
	c->group = t->group;
	if (c->group != c->proc)
		c->group->n_threads++;
	if (!rec_thread_made(t, c))
		return REC_KILLED;
	rec_run(t, t->how, 0);
	return REC_SYSCALL;
}

void rec_thread_named(struct rec_thread *t)
{
	char name[64];
	rec_thread_name(t, name);
	struct dj_record r = { .kind = DJ_REC_THREAD,
			       .steps = t->steps,
			       .pid = t->tid,
			       .what = DJ_THREAD_NAMED,
			       .subject = (int32_t)dj_stream_number(t->stream),
			       .name = name };
	rec_ring_record(t, &r);
}

static enum rec_state ready(struct rec_thread *t, int64_t result)
{
	struct dj_record r = { .kind = DJ_REC_REGS, .mask = DJ_REG_ALL };
	uint64_t gs = t->regs.gs_base;
	if (result < 0 && t->group != t->proc)
		return rec_vfork_unrecorded(t);
	if (result < 0) {
		rec_cut(t->rec,
			"cannot make room for the memory of another thread in %s: %s; the "
			"recording ends there",
			rec_program_name(t), strerror((int)-result));
		return REC_KILLED;
	}
	rec_lagged_set(t, 0);
	*rec_tcb(t, T_SEQ) = t->seq;
	*rec_tcb(t, T_FSBASE) = t->regs.fs_base;
	rec_set_gs(t, gs);
	*rec_tcb(t, T_SELF) = t->s;
	*rec_tcb(t, T_IN_SYSCALL) = 0;
	rec_ring_start(t);
	rec_syscalls_init(t);
	dj_stream_flush(t->stream, 0, t->seq, t->rec->err);
	rec_full_regs(t, &r.regs);
	rec_ring_record(t, &r);
	rec_ring_time(t, 0);
	rec_ring_facts(t);
	rec_digest_start(t);
	return REC_IN_HAND;
}

enum rec_state rec_on_new_thread(struct rec_thread *t, const struct rec_stop *stop)
{
	struct user_regs_struct now;
	if (stop->event != PTRACE_EVENT_STOP) { /* nothing comes before that one */
		rec_run(t, REC_CONT, 0);
		return REC_NEW_THREAD;
	}
	if (rec_get_regs(t, &now))
		return REC_KILLED;
	t->regs.rsp = now.rsp;
	t->regs.fs_base = now.fs_base;
	t->in_hand = true;
	return rec_thread_begin(t);
}

enum rec_state rec_thread_begin(struct rec_thread *t)
{
	/* its mask is that of the call that made it, in which libc blocks all signals */
	return rec_trap_held(t) ? REC_WAIT : rec_area_thread_begin(t, ready);
}

/* ---- the end ------------------------------------------------------------------------------- */

/* Without its memory it cannot execute a handler any more, also not that of a SIGTRAP, which was
 * not held for the sake of our own. */
static enum rec_state exit_now(struct rec_thread *t)
{
	rec_hold(t, true);
	return rec_make_call(t);
}

static enum rec_state shadow_gone(struct rec_thread *t, int64_t result)
{
	memset(t->own + AREA_THREAD - AREA_PAGE, 0, AREA_PAGE);
	t->area.empty = result == 0;
	return exit_now(t);
}

static enum rec_state area_gone(struct rec_thread *t, int64_t result)
{
	t->area.gone = result == 0;
	return exit_now(t);
}

enum rec_state rec_thread_exit(struct rec_thread *t)
{
	if (t->proc->n_threads < 2 || !rec_call_allowed(t))
		return rec_make_last_call(t);
	rec_digest(t, true);
	rec_hold(t, false);
	t->quiet = rec_trap_matters(t); /* it will not go on, and put back what a trap resets */
	t->regs.gs_base = rec_gs(t);
	if (rec_area_thread_keep(t))
		return rec_call(t, shadow_gone, SYS_madvise, t->s + AREA_PAGE,
				(1UL << 32) - AREA_PAGE, MADV_DONTNEED, 0, 0, 0);
	return rec_call(t, area_gone, SYS_munmap, t->s - AREA_CONTROL, REC_AREA_THREAD, 0, 0, 0, 0);
}

struct rec_thread *rec_thread_exec(struct rec_thread *t)
{
	struct rec_recording *rec = t->rec;
	struct rec_process *group = t->group;
	unsigned long former = 0;
	struct rec_thread *by = NULL, *next;
	if (group->child)
		return t;
	if (rec->tracer->event_message(rec->tracer, t->tid, &former))
		return NULL; /* it has been killed since */
	for (struct rec_thread *o = rec->threads; o; o = o->next)
		if (o->group == group && o->tid == (pid_t)former && o->state != REC_GONE)
			by = o;
	if (!by || by == t)
		by = t;
	for (struct rec_thread *o = rec->threads; o; o = next) {
		next = o->next;
		if (o->group != group || o == by || o->state == REC_GONE)
			continue;
		rec_order_release(o); /* what it has under the number that it had */
		rec_log_leave(o);
		rec_thread_number(o, 0); /* whatever is still reported of it means nothing */
		rec_ended(o, 0);
		rec_thread_free(o);
	}
	rec_thread_number(by, group->pid);
	return group == by->proc ? by : rec_vfork_exec(by);
}
