/*
 * The system calls that the supervisor performs: those that change the address space, make
 * processes or threads, change the process image, return from signals or end the thread. All others
 * run in the cache (translate-flow.c) and need no knowledge of what they are.
 *
 * On entry the thread is in hand with rip at the system call instruction. A call is made from the
 * runtime's own syscall instruction, or the vdso's, under a single step.
 */
#include "recorder/supervisor.h"

#include <asm/prctl.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* clang-format off */
static const uint16_t supervised[] = {
	SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_brk, SYS_shmat, SYS_shmdt, SYS_pkey_mprotect,
	SYS_remap_file_pages, SYS_clone, SYS_fork, SYS_vfork, SYS_clone3, SYS_execve, SYS_execveat, SYS_exit,
	SYS_exit_group, SYS_rt_sigreturn, SYS_arch_prctl, SYS_rseq,
};
/* clang-format on */

void syscalls_init(struct tracee *t)
{
	uint8_t *class = (uint8_t *)tcb(t, T_SYSCLASS);
	memset(class, 0, 512);
	for (size_t i = 0; i < sizeof(supervised) / sizeof(*supervised); i++)
		class[supervised[i]] = 1;
}

/* The call is done with this result: what the program sees, and the record. */
static void complete(struct tracee *t, uint64_t result)
{
	uint64_t r11 = t->regs.eflags & ~0x10100ULL;
	struct dj_record r = {
		.kind = DJ_REC_SYSCALL, .steps = t->steps, .result = result, .r11 = r11
	};
	ring_record(t, &r);
	t->steps++;
	t->regs.rip += 2;
	t->regs.rax = result;
	t->regs.rcx = t->regs.rip;
	t->regs.r11 = r11;
}

/* A call in the name of another process that has just been forked. */
static void child_syscall(pid_t pid, uint64_t insn, struct user_regs_struct r, uint64_t nr,
			  uint64_t a, uint64_t b)
{
	r.rip = insn;
	r.rax = nr;
	r.rdi = a;
	r.rsi = b;
	r.orig_rax = (unsigned long long)-1;
	int status;
	if (ptrace(PTRACE_SETREGS, pid, NULL, &r) || ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL))
		return;
	while (waitpid(pid, &status, __WALL) < 0 && errno == EINTR)
		;
}

/* A child process: give it the program's registers and let it go, unrecorded. One with its own
 * address space is rid of the area, too. */
static void release_child(struct tracee *t, pid_t pid, bool own_space)
{
	struct process *proc = t->proc;
	int status;
	struct user_regs_struct r;
	while (waitpid(pid, &status, __WALL) < 0)
		if (errno != EINTR)
			return;
	if (!WIFSTOPPED(status) || ptrace(PTRACE_GETREGS, pid, NULL, &r))
		return;
	uint64_t rsp = r.rsp; /* clone may have given it a stack */
	r = t->regs;
	r.rsp = rsp;
	struct user_regs_struct now;
	ptrace(PTRACE_GETREGS, pid, NULL, &now);
	r.fs_base = now.fs_base; /* and a thread-local block */
	r.rip = t->regs.rip + 2;
	r.rax = 0;
	r.rcx = r.rip;
	r.r11 = t->regs.eflags & ~0x10100ULL;
	r.eflags = t->regs.eflags & ~0x100ULL;
	r.gs_base = *tcb(t, T_GSBASE);
	r.orig_rax = (unsigned long long)-1;
	if (own_space && proc->vdso_syscall) {
		uint64_t lo = t->s - AREA_CONTROL;
		child_syscall(pid, proc->vdso_syscall, r, SYS_munmap, lo,
			      AREA_CONTROL + AREA_SHADOW);
		uint64_t at = 0, size;
		for (unsigned i = 0; tr_arena(proc->tr, i, &at, &size); i++)
			child_syscall(pid, proc->vdso_syscall, r, SYS_munmap, at, size);
	}
	ptrace(PTRACE_SETREGS, pid, NULL, &r);
	ptrace(PTRACE_DETACH, pid, NULL, NULL);
	struct dj_record rec = { .kind = DJ_REC_CHILD,
				 .steps = t->steps,
				 .pid = pid,
				 .what = own_space ? DJ_CHILD_FORK : DJ_CHILD_VFORK,
				 .subject = -1 };
	ring_record(t, &rec);
}

static uint64_t clone_flags(struct tracee *t, uint64_t nr)
{
	uint64_t flags = 0;
	if (nr == SYS_clone)
		flags = t->regs.rdi;
	else if (nr == SYS_clone3)
		tracee_read(t->proc, t->regs.rdi, &flags, sizeof(flags));
	else if (nr == SYS_vfork)
		flags = CLONE_VM | CLONE_VFORK;
	return flags;
}

static bool shares_memory(struct tracee *t, uint64_t nr)
{
	return clone_flags(t, nr) & CLONE_VM;
}

/* Make the call natively. Returns false if the thread is no longer in hand. */
static bool perform(struct tracee *t, int64_t *result)
{
	struct process *proc = t->proc;
	struct user_regs_struct r = t->regs;
	uint64_t nr = t->regs.rax;
	r.rip = tr_syscall_insn(proc->tr) ? tr_syscall_insn(proc->tr) : proc->vdso_syscall;
	uint64_t at = r.rip;
	r.orig_rax = (unsigned long long)-1;
	int status = tracee_step(t, &r, 0, NULL);
	for (;;) {
		if (!WIFSTOPPED(status)) {
			sup_end(t, status);
			return false;
		}
		int event = status >> 16;
		if (event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK ||
		    event == PTRACE_EVENT_CLONE) {
			unsigned long pid = 0;
			ptrace(PTRACE_GETEVENTMSG, t->tid, NULL, &pid);
			release_child(t, (pid_t)pid, !shares_memory(t, nr));
			tracee_getregs(t, &r);
			status = tracee_step(t, &r, 0, NULL);
			continue;
		}
		if (event == PTRACE_EVENT_EXEC) {
			proc->image_replaced = true;
			return false;
		}
		if (WSTOPSIG(status) == SIGTRAP && r.rip == at) {
			/* an interrupted call that starts again */
			status = tracee_step(t, &r, 0, NULL);
			continue;
		}
		break;
	}
	if (WSTOPSIG(status) != SIGTRAP) {
		sup_fatal(t->sup, "signal %d in the middle of system call %llu", WSTOPSIG(status),
			  (unsigned long long)nr);
		return false;
	}
	*result = (int64_t)r.rax;
	t->regs.fs_base = r.fs_base;
	return true;
}

static bool failed(int64_t r)
{
	return r < 0 && r > -4096;
}

/* A new thread (or a process that shares memory and does not wait for its exec) cannot be recorded.
 */
static bool makes_thread(struct tracee *t, uint64_t nr)
{
	uint64_t flags = clone_flags(t, nr);
	return (flags & CLONE_THREAD) || ((flags & CLONE_VM) && !(flags & CLONE_VFORK));
}

static void do_mremap(struct tracee *t, int64_t r)
{
	uint64_t old = t->regs.rdi, old_len = (t->regs.rsi + 4095) & ~4095ULL;
	uint64_t new_len = (t->regs.rdx + 4095) & ~4095ULL;
	const struct mapping *m = maps_find(t->proc, old);
	struct mapping was = m ? *m
			       : (struct mapping){ .prot = PROT_READ | PROT_WRITE,
						   .flags = MAP_PRIVATE | MAP_ANONYMOUS,
						   .module = -1 };
	uint64_t offset = was.offset + (m ? old - was.start : 0);
	if ((uint64_t)r == old && old_len == new_len)
		return;
	if ((uint64_t)r == old && new_len < old_len) {
		maps_remove(t, old + new_len, old + old_len);
		return;
	}
	if ((uint64_t)r == old) {
		maps_add_like(t, &was, old + old_len, old + new_len, offset + old_len);
		return;
	}
	if (old_len && !(t->regs.r10 & 4)) /* MREMAP_DONTUNMAP */
		maps_remove(t, old, old + old_len);
	maps_add_like(t, &was, (uint64_t)r, (uint64_t)r + new_len, offset);
}

void syscalls_do(struct tracee *t)
{
	struct process *proc = t->proc;
	uint64_t nr = t->regs.rax;
	int64_t r = 0;
	struct user_regs_struct in = t->regs;

	switch (nr) {
	case SYS_rseq:
		complete(t, (uint64_t)-ENOSYS);
		return;

	case SYS_exit:
	case SYS_exit_group:
		t->regs.gs_base = *tcb(t, T_GSBASE);
		perform(t, &r);
		return;

	case SYS_clone:
	case SYS_clone3:
		if (makes_thread(t, nr)) {
			sup_cut(t->sup,
				"%s starts a second thread, which cannot be recorded; the "
				"recording ends there",
				t->sup->argv[0]);
			return;
		}
		/* fall through */
	case SYS_fork:
	case SYS_vfork:
		if (perform(t, &r))
			complete(t, (uint64_t)r);
		return;

	case SYS_execve:
	case SYS_execveat:
		t->regs.gs_base = *tcb(t, T_GSBASE);
		if (perform(t, &r))
			complete(t, (uint64_t)r);
		return;

	case SYS_rt_sigreturn: {
		/* All registers come from the frame; rip leads away from here. */
		struct user_regs_struct u = t->regs;
		u.rip = tr_syscall_insn(proc->tr) ? tr_syscall_insn(proc->tr) : proc->vdso_syscall;
		u.gs_base = *tcb(t, T_GSBASE);
		u.orig_rax = (unsigned long long)-1;
		int status = tracee_step(t, &u, 0, NULL);
		if (!WIFSTOPPED(status)) {
			sup_end(t, status);
			return;
		}
		if (WSTOPSIG(status) != SIGTRAP) {
			siginfo_t info;
			memset(&info, 0, sizeof(info));
			ptrace(PTRACE_GETSIGINFO, t->tid, NULL, &info);
			signals_deliver(t, &info);
			return;
		}
		t->regs = u;
		t->regs.eflags &= ~0x100ULL;
		struct dj_record rec = { .kind = DJ_REC_REGS,
					 .steps = t->steps,
					 .mask = DJ_REG_ALL };
		tracee_full_regs(t, &rec.regs);
		ring_record(t, &rec);
		return;
	}

	case SYS_arch_prctl:
		if (in.rdi >= 0x5001 &&
		    in.rdi <= 0x5005) { /* shadow stacks: not on this processor */
			complete(t, (uint64_t)-EOPNOTSUPP);
			return;
		}
		if (in.rdi == ARCH_SET_GS) {
			if (in.rsi >= 0x7ffffffff000ULL) {
				complete(t, (uint64_t)-EPERM);
				return;
			}
			*tcb(t, T_GSBASE) = in.rsi;
			struct dj_record rec = { .kind = DJ_REC_REGS, .mask = DJ_REG_GS_BASE };
			complete(t, 0);
			rec.steps = t->steps;
			rec.regs.gs_base = in.rsi;
			ring_record(t, &rec);
			return;
		}
		if (in.rdi == ARCH_GET_GS) {
			uint64_t v = *tcb(t, T_GSBASE);
			complete(t, tracee_write(proc, in.rsi, &v, 8) ? 0 : (uint64_t)-EFAULT);
			return;
		}
		if (!perform(t, &r))
			return;
		complete(t, (uint64_t)r);
		if (in.rdi == ARCH_SET_FS && r == 0) {
			*tcb(t, T_FSBASE) = t->regs.fs_base;
			struct dj_record rec = { .kind = DJ_REC_REGS,
						 .steps = t->steps,
						 .mask = DJ_REG_FS_BASE };
			rec.regs.fs_base = t->regs.fs_base;
			ring_record(t, &rec);
		}
		return;
	}

	/* the address space: the effect takes place before the call is over */
	if (!perform(t, &r))
		return;
	complete(t, (uint64_t)r);
	if (failed(r) && nr != SYS_brk)
		return;
	switch (nr) {
	case SYS_mmap:
		maps_add(t, (uint64_t)r, (uint64_t)r + in.rsi, (uint32_t)in.rdx, (uint32_t)in.r10,
			 (int)in.r8, in.r9);
		break;
	case SYS_munmap:
		maps_remove(t, in.rdi, in.rdi + in.rsi);
		break;
	case SYS_mprotect:
	case SYS_pkey_mprotect:
		maps_protect(t, in.rdi, in.rdi + in.rsi, (uint32_t)in.rdx);
		break;
	case SYS_mremap: {
		struct user_regs_struct out = t->regs;
		t->regs = in;
		do_mremap(t, r);
		t->regs = out;
		break;
	}
	case SYS_brk: {
		uint64_t now = ((uint64_t)r + 4095) & ~4095ULL;
		if (!proc->brk)
			proc->brk = now;
		else if (now > proc->brk)
			maps_add_named(t, proc->brk, now, PROT_READ | PROT_WRITE,
				       MAP_PRIVATE | MAP_ANONYMOUS, "[heap]");
		else if (now < proc->brk)
			maps_remove(t, now, proc->brk);
		proc->brk = now;
		break;
	}
	case SYS_shmat: {
		/* the size is the kernel's to know */
		maps_refresh(t, (uint64_t)r);
		break;
	}
	case SYS_shmdt:
		maps_remove_at(t, in.rdi);
		break;
	case SYS_remap_file_pages:
		break;
	}
}
