/*
 * mlockall(2) of the program's memory without deja's, which is 8 GiB that are mostly not there:
 * what exists is locked mapping by mapping, and only the kernel's promise for the future is the
 * call itself. Arenas that come later are duplicates of a mapping that is not locked, and so are
 * not locked either.
 */
#include "recorder/syscalls.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define CAP_IPC_LOCK 14 /* linux/capability.h */

static uint64_t mapped(const struct rec_process *proc)
{
	const struct dj_mapping *m;
	uint64_t sum = 0;
	for (uint64_t at = 0; (m = dj_mappings_after(&proc->maps, at, 0)); at = m->end)
		sum += m->end - m->start;
	return sum;
}

/* RLIMIT_MEMLOCK. Whoever may trace a process may not ask prlimit about it, but can read this. */
static uint64_t may_lock(struct rec_thread *t)
{
	char line[256];
	uint64_t limit = UINT64_MAX;
	FILE *f = t->rec->tracer->open_proc(t->rec->tracer, t->tid, "limits");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Max locked memory %" SCNu64, &limit) == 1)
			break;
	if (f)
		fclose(f);
	return limit;
}

/* What mlockall checks first (mm/mlock.c): 0 or an errno. */
static int refused(struct rec_thread *t)
{
	uint64_t may = may_lock(t);
	if (rec_capable(t, CAP_IPC_LOCK))
		return 0;
	if (!may)
		return EPERM;
	return mapped(t->proc) > may ? ENOMEM : 0;
}

/* The next mapping. What cannot be locked is not, and the call does not say so. */
static enum rec_state lock_next(struct rec_thread *t, int64_t result)
{
	const struct dj_mapping *m = dj_mappings_after(&t->proc->maps, t->lock.at, 0);
	(void)result;
	if (!m)
		return rec_answer(t, 0);
	t->lock.at = m->end;
	return rec_call(t, lock_next, SYS_mlock2, m->start, m->end - m->start,
			t->lock.flags & MCL_ONFAULT ? MLOCK_ONFAULT : 0, 0, 0, 0);
}

static enum rec_state future_known(struct rec_thread *t, int64_t result)
{
	if (result)
		return rec_answer(t, result);
	return lock_next(t, 0);
}

enum rec_state rec_begin_mlockall(struct rec_thread *t)
{
	int flags = (int)t->regs.rdi, error;
	if (!(flags & MCL_CURRENT) || flags & ~(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) ||
	    !rec_call_allowed(t))
		return rec_make_call(t);
	error = refused(t);
	if (error)
		return rec_answer(t, -error);
	t->lock.flags = flags;
	t->lock.at = 0;
	if (flags & MCL_FUTURE)
		return rec_call(t, future_known, SYS_mlockall, (uint64_t)(flags & ~MCL_CURRENT), 0,
				0, 0, 0, 0);
	/* an earlier promise for the future ends */
	return rec_call(t, future_known, SYS_munlockall, 0, 0, 0, 0, 0, 0);
}
