/*
 * A recorded process that goes on by itself from the middle of its history, because somebody else
 * has to trace it, or because it is about to become a program that must not be traced.
 *
 * A process has one tracer. When a recorded one asks to be traced by its parent (PTRACE_TRACEME),
 * or another process of the recording attaches to it, as debuggers and strace do with their
 * children, deja leaves it to them: its history ends there, and says why; everything of deja's is
 * taken out of its memory, it gets its own limits back, and is let go in front of its next
 * instruction with the program's registers. The call itself is then made as it would be without
 * deja. A thread that attaches asks for that and makes its call again and again until it has come
 * to pass.
 *
 * The kernel gives a set-user-ID program its privileges only if nobody traces it, unless the tracer
 * is privileged itself (security/commoncap.c, ptracer_capable). So before an exec of one the
 * process leaves, too.
 *
 * The first process does not leave (it is what the recording is about), nor does one with several
 * threads.
 *
 * A child that executes in its parent's memory (vfork.c) leaves that to the others as it is, deja's
 * with it. It leaves, too, when its parent is about to make an exec, in another thread than the one
 * that waits for the child: what its recording goes by is the parent's, and is about to be
 * replaced.
 */
#include "recorder/area.h"
#include "recorder/syscalls.h"

#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TRIES 20000

const char rec_traced[] = "another process traces it";

/* ---- out ----------------------------------------------------------------------------------- */

static enum rec_state left(struct rec_thread *t, int64_t result)
{
	(void)result;
	rec_release(t);
	for (unsigned i = 0; i < t->n_pending; i++)
		syscall(SYS_tgkill, t->group->pid, t->tid, t->pending[i].si_signo);
	t->regs.orig_rax = (unsigned long long)-1;
	if (rec_set_regs(t, &t->regs))
		return REC_KILLED;
	rec_run(t, REC_DETACH, 0);
	t->in_hand = false;
	rec_thread_apart(t);
	if (t->group != t->proc)
		rec_area_thread_end(t);
	return REC_GONE;
}

static enum rec_state next_piece(struct rec_thread *t, int64_t result)
{
	(void)result;
	if (!t->child.n_unmap)
		return rec_limits_raise(t, left);
	unsigned i = --t->child.n_unmap;
	return rec_call(t, next_piece, SYS_munmap, t->child.unmap[i].at, t->child.unmap[i].size, 0,
			0, 0, 0);
}

enum rec_state rec_leave(struct rec_thread *t, const char *why)
{
	rec_digest(t, true);
	rec_order_release(t);
	t->regs.gs_base = rec_gs(t);
	rec_one_less(t, why);
	rec_hold(t, true);
	free(t->child.unmap);
	t->child.unmap = NULL;
	t->child.n_unmap = 0;
	if (t->group == t->proc) /* else the memory is others' as well */
		t->child.unmap = rec_area_pieces(t->proc, &t->child.n_unmap);
	t->group->leaving = why;
	t->group->child = true; /* limits are its own again, what stops it is not looked at */
	return next_piece(t, 0);
}

static bool can_leave(const struct rec_thread *t)
{
	return t->rec->opt.follow && t->group != t->rec->first && t->group->n_threads == 1;
}

/* ---- ptrace ---------------------------------------------------------------------------------- */

bool rec_asks_to_be_traced(const struct user_regs_struct *r, uint64_t nr)
{
	return nr == SYS_ptrace && r->rdi == PTRACE_TRACEME;
}

static struct rec_thread *recorded(const struct rec_recording *rec, pid_t tid)
{
	struct rec_thread *t = rec->threads;
	while (t && (t->tid != tid || t->state == REC_GONE || t->state == REC_FREE))
		t = t->next;
	return t;
}

/* Its turn comes again, unless it has been so for long: false. */
static bool wait_for(struct rec_thread *t, struct rec_thread *o, const char *why)
{
	if (!o->group->leaving) {
		o->group->leaving = why;
		t->tries = 0;
		if (o->state == REC_CACHE)
			t->rec->tracer->interrupt(t->rec->tracer, o->tid);
	}
	t->rec->held = true; /* nothing need stop meanwhile */
	return ++t->tries < TRIES;
}

enum rec_state rec_begin_ptrace(struct rec_thread *t)
{
	const struct user_regs_struct *r = &t->regs;
	if (!rec_call_allowed(t))
		return rec_make_call(t);
	if (rec_asks_to_be_traced(r, r->rax) && can_leave(t))
		return rec_leave(t, rec_traced);
	if (r->rdi != PTRACE_ATTACH && r->rdi != PTRACE_SEIZE)
		return rec_make_call(t);
	struct rec_thread *o = recorded(t->rec, (pid_t)r->rsi);
	if (!o || o->group == t->group)
		return rec_make_call(t);
	if (!o->group->leaving && (o->group->child || !can_leave(o)))
		return rec_make_call(t);
	return wait_for(t, o, rec_traced) ? REC_WAIT : rec_make_call(t);
}

/* ---- set-user-ID programs -------------------------------------------------------------------- */

bool rec_path_at(struct rec_thread *t, uint64_t at, char full[REC_PATH])
{
	char path[PATH_MAX] = "";
	size_t n = rec_read(t->proc, at, path, sizeof(path) - 1);
	path[n] = 0;
	rec_path_of(t, path, full);
	return *path;
}

void rec_path_of(const struct rec_thread *t, const char *path, char full[REC_PATH])
{
	snprintf(full, REC_PATH, "/proc/%d/%s/%s", t->tid, *path == '/' ? "root" : "cwd", path);
}

/* Whether the program at this path, in the process, changes who executes it. */
static bool changes_identity(struct rec_thread *t, uint64_t at)
{
	char full[REC_PATH];
	struct stat st, own;
	if (geteuid() == 0 || !rec_path_at(t, at, full) || stat(full, &st) || !S_ISREG(st.st_mode))
		return false;
	snprintf(full, sizeof(full), "/proc/%d", t->tid);
	if (stat(full, &own))
		return false;
	return ((st.st_mode & S_ISUID) && st.st_uid != own.st_uid) ||
	       ((st.st_mode & S_ISGID) && (st.st_mode & S_IXGRP) && st.st_gid != own.st_gid);
}

bool rec_becomes_another(struct rec_thread *t, const struct user_regs_struct *r, uint64_t nr)
{
	return nr == SYS_execve && changes_identity(t, r->rdi);
}

static enum rec_state exec(struct rec_thread *t, int64_t result)
{
	(void)result;
	return rec_make_last_call(t);
}

/* Whether another thread is about to have a child in the memory, which nobody knows yet. */
static bool makes_vfork(const struct rec_thread *t)
{
	for (const struct rec_thread *o = t->rec->threads; o; o = o->next)
		if (o != t && o->proc == t->proc && o->state == REC_SYSCALL &&
		    (o->sys.clone_flags & CLONE_VFORK) && (o->sys.clone_flags & CLONE_VM))
			return true;
	return false;
}

enum rec_state rec_begin_exec(struct rec_thread *t)
{
	struct rec_thread *o;
	if (rec_vfork_beside(t, &o)) {
		if (wait_for(t, o, "its parent becomes another program"))
			return REC_WAIT;
		rec_cut(t->rec,
			"%s becomes another program while a child of it executes in its "
			"memory; the recording ends there",
			rec_program_name(t));
		return REC_KILLED;
	}
	if (t->group == t->proc && t->proc->n_threads > 1 && (makes_vfork(t) || !rec_turn(t)))
		return REC_WAIT;
	if (can_leave(t) && rec_becomes_another(t, &t->regs, t->regs.rax))
		return rec_leave(t, "it becomes a set-user-ID program");
	return rec_layout_fix(t, exec);
}
