/*
 * The program's limits (getrlimit(2)), of which deja's memory takes nothing as far as the kernel
 * allows. Where the program has a limit on its address space or its data, the kernel is told one
 * that is higher by what deja has there, and the program is told its own.
 *
 * A hard limit that the program lowers stays as it was for the kernel, because it could not be
 * raised again: what the program asks for is checked against its own. So there is room for deja's
 * memory at the next exec, and for one descriptor more while that is made.
 *
 * The supervisor sets limits itself if it may. If it may not (the program is somebody else by now)
 * the program is made to.
 *
 * Limits are inherited by children and survive exec. A child that is let go gets the program's own.
 */
#include "recorder/area.h"
#include "recorder/syscalls.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

static const int resources[REC_LIMITS] = { RLIMIT_AS, RLIMIT_DATA, RLIMIT_NOFILE };

static int set(struct rec_process *proc, int resource, const struct rlimit *to, struct rlimit *was)
{
	struct rec_tracer *tracer = proc->rec->tracer;
	return tracer->limit(tracer, proc->pid, resource, to, was);
}

static int index_of(uint64_t resource)
{
	for (int i = 0; i < REC_LIMITS; i++)
		if (resource == (uint64_t)resources[i])
			return i;
	return -1;
}

/* ---- with deja's memory and without ---- */

/* What the kernel is to be told; false if it has been. */
static bool differs(struct rec_thread *t, int i, struct rlimit *to)
{
	const struct rlimit *own = &t->group->limits[i], *now = &t->group->kernel_limits[i];
	uint64_t ours = rec_area_size(t->proc, resources[i]);
	if (t->group->child) {
		*to = *own;
		return now->rlim_cur != to->rlim_cur || now->rlim_max != to->rlim_max;
	}
	to->rlim_cur = own->rlim_cur + ours < own->rlim_cur || own->rlim_cur == RLIM_INFINITY
			       ? RLIM_INFINITY
			       : own->rlim_cur + ours;
	to->rlim_max = now->rlim_max > to->rlim_cur ? now->rlim_max : to->rlim_cur;
	return now->rlim_cur != to->rlim_cur || now->rlim_max != to->rlim_max;
}

static enum rec_state raise_next(struct rec_thread *t);

static enum rec_state raised(struct rec_thread *t, int64_t result)
{
	int i = t->limits.next - 1;
	if (result && !t->limits.older) { /* a filter may know only the newer call */
		t->limits.older = true;
		return rec_call(t, raised, SYS_setrlimit, (uint64_t)resources[i], t->limits.at, 0,
				0, 0, 0);
	}
	if (result == 0)
		t->group->kernel_limits[t->limits.next - 1] = t->limits.to;
	rec_write(t->proc, t->limits.at, t->limits.saved, sizeof(t->limits.saved));
	return raise_next(t);
}

/* The program sets its limit. It is written into deja's memory or, where there is none yet, below
 * the stack pointer and out of the red zone, and taken back. */
static enum rec_state let_program(struct rec_thread *t, int i)
{
	const struct rlimit *to = &t->limits.to;
	struct rec_tracer *tracer = t->rec->tracer;
	if (t->proc->mem < 0) /* a child */
		t->proc->mem = tracer->open_memory(tracer, t->proc->pid);
	t->limits.older = false;
	t->limits.at = t->s && t->ring && !t->group->child ? t->s + (uint64_t)T_ARGS
							   : (t->regs.rsp - 1024) & ~15ULL;
	if (rec_read(t->proc, t->limits.at, t->limits.saved, sizeof(*to)) != sizeof(*to) ||
	    !rec_write(t->proc, t->limits.at, to, sizeof(*to)))
		return raise_next(t);
	return rec_call(t, raised, SYS_prlimit64, 0, (uint64_t)resources[i], t->limits.at, 0, 0, 0);
}

static enum rec_state raise_next(struct rec_thread *t)
{
	struct rlimit *to = &t->limits.to;
	while (t->limits.next < REC_LIMITS) {
		int i = t->limits.next++;
		struct rlimit *now = &t->group->kernel_limits[i];
		if (!differs(t, i, to))
			continue;
		t->group->raised = true;
		if (set(t->group, resources[i], to, NULL)) {
			if (t->group->child)
				return let_program(t, i);
			/* as far as the hard limit allows */
			to->rlim_max = now->rlim_max;
			if (to->rlim_cur > to->rlim_max)
				to->rlim_cur = to->rlim_max;
			if (to->rlim_cur == now->rlim_cur)
				continue;
			if (set(t->group, resources[i], to, NULL))
				return let_program(t, i);
		}
		*now = *to;
	}
	return t->limits.then(t, 0);
}

enum rec_state rec_limits_raise(struct rec_thread *t, rec_then *then)
{
	t->limits.then = then;
	t->limits.next = 0;
	return raise_next(t);
}

bool rec_limits_suffice(const struct rec_thread *t)
{
	const uint64_t some = 1UL << 30;
	for (int i = 0; i < REC_LIMITS; i++) {
		uint64_t own = t->group->limits[i].rlim_cur;
		uint64_t ours = rec_area_size(t->proc, resources[i]);
		uint64_t least = ours + (own < some ? own : some);
		if (ours && t->group->kernel_limits[i].rlim_cur < least)
			return false;
	}
	return true;
}

enum rec_state rec_limits_begin(struct rec_thread *t, rec_then *then)
{
	struct rec_process *proc = t->proc;
	for (int i = 0; i < REC_LIMITS && !proc->limits_known; i++)
		if (set(proc, resources[i], NULL, &proc->limits[i]))
			proc->limits[i].rlim_cur = proc->limits[i].rlim_max = RLIM_INFINITY;
	if (!proc->limits_known)
		memcpy(proc->kernel_limits, proc->limits, sizeof(proc->limits));
	proc->limits_known = true;
	return rec_limits_raise(t, then);
}

void rec_limits_look(struct rec_process *proc)
{
	for (int i = 0; i < REC_LIMITS && proc->limits_known; i++) {
		struct rlimit now, *was = &proc->kernel_limits[i];
		if (set(proc, resources[i], NULL, &now) ||
		    (now.rlim_cur == was->rlim_cur && now.rlim_max == was->rlim_max))
			continue;
		*was = proc->limits[i] = now;
	}
}

void rec_limits_own(struct rec_process *proc, const struct rec_process *of)
{
	for (int i = 0; i < REC_LIMITS && of->raised; i++)
		set(proc, resources[i], &of->limits[i], NULL);
}

/* ---- what the program asks ---- */

#define CAP_SYS_RESOURCE 24 /* linux/capability.h */

bool rec_capable(struct rec_thread *t, unsigned capability)
{
	char line[256];
	unsigned long long cap = 0;
	FILE *f = t->rec->tracer->open_proc(t->rec->tracer, t->tid, "status");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "CapEff: %llx", &cap) == 1)
			break;
	if (f)
		fclose(f);
	return cap >> capability & 1;
}

/* The program is told. */
static enum rec_state tell(struct rec_thread *t, int64_t result)
{
	const struct rlimit *old = &t->limits.old;
	uint64_t was = t->limits.was;
	if (t->limits.result)
		return rec_answer(t, t->limits.result);
	(void)result;
	return rec_answer(t, !was || rec_write(t->proc, was, old, sizeof(*old)) ? 0 : -EFAULT);
}

/* The kernel has decided whether the hard limit may be raised. */
static enum rec_state decided(struct rec_thread *t, int64_t result)
{
	int i = t->limits.asked;
	if (result == 0)
		t->group->limits[i] = t->group->kernel_limits[i] = t->limits.new;
	t->limits.result = result;
	return rec_limits_raise(t, tell);
}

/* It is asked with the program's own limit in place, if that can be had. */
static enum rec_state ask_kernel(struct rec_thread *t, int i, uint64_t to)
{
	struct rec_process *group = t->group;
	t->limits.asked = i;
	if (!set(group, resources[i], &group->limits[i], NULL))
		group->kernel_limits[i] = group->limits[i];
	return rec_call(t, decided, SYS_prlimit64, 0, (uint64_t)resources[i], to, 0, 0, 0);
}

/* `to` and `was` are addresses in the program, or 0. */
static enum rec_state begin(struct rec_thread *t, int i, uint64_t to, uint64_t was)
{
	struct rec_process *group = t->group;
	struct rlimit *new = &t->limits.new;
	if (!rec_call_allowed(t))
		return rec_make_call(t);
	t->limits.old = group->limits[i];
	t->limits.was = was;
	t->limits.result = 0;
	if (!to)
		return tell(t, 0);
	if (rec_read(t->proc, to, new, sizeof(*new)) != sizeof(*new))
		return rec_answer(t, -EFAULT);
	if (new->rlim_cur > new->rlim_max)
		return rec_answer(t, -EINVAL);
	if (new->rlim_max > group->limits[i].rlim_max)
		return rec_capable(t, CAP_SYS_RESOURCE) ? ask_kernel(t, i, to)
							: rec_answer(t, -EPERM);
	group->limits[i] = *new;
	return rec_limits_raise(t, tell);
}

enum rec_state rec_begin_getrlimit(struct rec_thread *t)
{
	int i = index_of((uint32_t)t->regs.rdi);
	if (i < 0 || !t->regs.rsi)
		return rec_make_call(t);
	return begin(t, i, 0, t->regs.rsi);
}

enum rec_state rec_begin_setrlimit(struct rec_thread *t)
{
	int i = index_of((uint32_t)t->regs.rdi);
	if (i < 0 || !t->regs.rsi)
		return rec_make_call(t);
	return begin(t, i, t->regs.rsi, 0);
}

enum rec_state rec_begin_prlimit(struct rec_thread *t)
{
	pid_t pid = (pid_t)t->regs.rdi;
	int i = index_of((uint32_t)t->regs.rsi);
	if (i < 0 || (pid && pid != t->group->pid))
		return rec_make_call(t);
	return begin(t, i, t->regs.rdx, t->regs.r10);
}
