/* Registers, memory and system calls of the stopped program. */
#include "recorder/supervisor.h"

#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

int tracee_getregs(struct tracee *t, struct user_regs_struct *r)
{
	if (ptrace(PTRACE_GETREGS, t->tid, NULL, r) == 0)
		return 0;
	return -1;
}

int tracee_setregs(struct tracee *t, const struct user_regs_struct *r)
{
	if (ptrace(PTRACE_SETREGS, t->tid, NULL, r) == 0)
		return 0;
	return -1;
}

void tracee_from_user(const struct user_regs_struct *u, struct dj_regs *out)
{
	const unsigned long long g[16] = { u->rax, u->rcx, u->rdx, u->rbx, u->rsp, u->rbp,
					   u->rsi, u->rdi, u->r8,  u->r9,  u->r10, u->r11,
					   u->r12, u->r13, u->r14, u->r15 };
	for (int i = 0; i < 16; i++)
		out->gpr[i] = g[i];
	out->rip = u->rip;
	out->rflags = u->eflags & ~0x10100ULL; /* not our trap flag, nor RF */
	out->fs_base = u->fs_base;
	out->gs_base = u->gs_base;
	out->cs = (uint16_t)u->cs;
	out->ss = (uint16_t)u->ss;
	out->ds = (uint16_t)u->ds;
	out->es = (uint16_t)u->es;
	out->fs = (uint16_t)u->fs;
	out->gs = (uint16_t)u->gs;
}

/* The XSAVE area as ptrace gives it: standard format (SDM vol. 1, 13.4). */
static void from_xsave(const uint8_t *x, size_t len, struct dj_regs *out)
{
	memcpy(&out->fcw, x, 2);
	memcpy(&out->fsw, x + 2, 2);
	out->ftw = x[4];
	memcpy(&out->fop, x + 6, 2);
	memcpy(&out->fip, x + 8, 8);
	memcpy(&out->fdp, x + 16, 8);
	memcpy(&out->mxcsr, x + 24, 4);
	for (int i = 0; i < 8; i++) {
		memcpy(&out->st_mant[i], x + 32 + 16 * i, 8);
		memcpy(&out->st_exp[i], x + 40 + 16 * i, 2);
	}
	for (int i = 0; i < 16; i++) {
		memcpy(out->ymm[i], x + 160 + 16 * i, 16);
		if (len >= 832 && (x[512] & 4))
			memcpy(out->ymm[i] + 16, x + 576 + 16 * i, 16);
		else
			memset(out->ymm[i] + 16, 0, 16);
	}
}

void tracee_full_regs(struct tracee *t, struct dj_regs *out)
{
	static uint8_t x[16384];
	struct iovec v = { x, sizeof(x) };
	memset(out, 0, sizeof(*out));
	tracee_from_user(&t->regs, out);
	out->gs_base = *tcb(t, T_GSBASE);
	if (ptrace(PTRACE_GETREGSET, t->tid, (void *)NT_X86_XSTATE, &v) == 0 && v.iov_len >= 512)
		from_xsave(x, v.iov_len, out);
}

size_t tracee_read(struct process *proc, uint64_t addr, void *buf, size_t len)
{
	size_t done = 0;
	while (done < len) {
		ssize_t n = pread(proc->mem, (char *)buf + done, len - done, (off_t)(addr + done));
		if (n <= 0)
			break;
		done += (size_t)n;
	}
	return done;
}

bool tracee_write(struct process *proc, uint64_t addr, const void *buf, size_t len)
{
	return pwrite(proc->mem, buf, len, (off_t)addr) == (ssize_t)len;
}

int tracee_wait(struct tracee *t, int *status)
{
	for (;;) {
		pid_t p = waitpid(t->tid, status, __WALL);
		if (p == t->tid)
			return 0;
		if (p < 0 && errno != EINTR)
			return -1;
	}
}

static bool synchronous(int sig, const siginfo_t *i)
{
	return i->si_code > 0 && (sig == SIGSEGV || sig == SIGBUS || sig == SIGILL ||
				  sig == SIGFPE || sig == SIGTRAP || sig == SIGSYS);
}

int tracee_step(struct tracee *t, struct user_regs_struct *regs, int sig, siginfo_t *info)
{
	int status;
	if (tracee_setregs(t, regs))
		goto gone;
	for (;;) {
		if (ptrace(PTRACE_SINGLESTEP, t->tid, NULL, (void *)(long)sig))
			goto gone;
		sig = 0;
		if (tracee_wait(t, &status))
			return -1;
		if (!WIFSTOPPED(status))
			return status;
		int event = status >> 16;
		if (event == PTRACE_EVENT_STOP)
			continue;
		if (event)
			return status;
		siginfo_t i;
		memset(&i, 0, sizeof(i));
		ptrace(PTRACE_GETSIGINFO, t->tid, NULL, &i);
		if (synchronous(WSTOPSIG(status), &i)) {
			if (info)
				*info = i;
			tracee_getregs(t, regs);
			return status;
		}
		signals_put_aside(t, &i);
	}
gone:
	if (tracee_wait(t, &status))
		return -1;
	return status;
}

int64_t tracee_syscall(struct tracee *t, uint64_t nr, uint64_t a, uint64_t b, uint64_t c,
		       uint64_t d, uint64_t e, uint64_t f)
{
	struct process *proc = t->proc;
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
	uint8_t saved[2];
	if (!at) { /* no vdso: borrow two bytes of the program */
		at = t->regs.rip;
		if (tracee_read(proc, at, saved, 2) != 2 || !tracee_write(proc, at, "\x0f\x05", 2))
			return -EFAULT;
	}
	r.rip = at;
	int status = tracee_step(t, &r, 0, NULL);
	if (at != proc->vdso_syscall)
		tracee_write(proc, at, saved, 2);
	if (!WIFSTOPPED(status)) {
		proc->ended = true;
		proc->status = status;
		return -ESRCH;
	}
	return (int64_t)r.rax;
}
