/* The tracer that is real: ptrace(2), waitpid(2) and /proc. */
#include "recorder/tracer.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stddef.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t pt_wait(struct rec_tracer *tr, pid_t tid, bool block, int *status)
{
	(void)tr;
	return waitpid(tid, status, __WALL | (block ? 0 : WNOHANG));
}

static int pt_resume(struct rec_tracer *tr, pid_t tid, enum rec_resume how, int sig)
{
	void *const data = (void *)(long)sig;
	(void)tr;
	switch (how) {
	case REC_CONT:
		return (int)ptrace(PTRACE_CONT, tid, NULL, data);
	case REC_STEP:
		return (int)ptrace(PTRACE_SINGLESTEP, tid, NULL, data);
	case REC_TO_SYSCALL:
		return (int)ptrace(PTRACE_SYSCALL, tid, NULL, data);
	case REC_LISTEN:
		return (int)ptrace(PTRACE_LISTEN, tid, NULL, NULL);
	case REC_DETACH:
		return (int)ptrace(PTRACE_DETACH, tid, NULL, data);
	}
	return -1;
}

static int pt_resume_here(struct rec_tracer *tr, pid_t tid, enum rec_resume how, int sig)
{
	cpu_set_t own, here;
	int cpu = sched_getcpu();
	bool bound = false;
	if (cpu >= 0 && cpu < CPU_SETSIZE && !sched_getaffinity(tid, sizeof(own), &own) &&
	    CPU_ISSET(cpu, &own) && CPU_COUNT(&own) > 1) {
		CPU_ZERO(&here);
		CPU_SET(cpu, &here);
		bound = !sched_setaffinity(tid, sizeof(here), &here);
	}
	int rc = pt_resume(tr, tid, how, sig);
	int error = errno;
	if (bound)
		sched_setaffinity(tid, sizeof(own), &own);
	errno = error;
	return rc;
}

static int pt_interrupt(struct rec_tracer *tr, pid_t tid)
{
	(void)tr;
	return (int)ptrace(PTRACE_INTERRUPT, tid, NULL, NULL);
}

static int pt_kill(struct rec_tracer *tr, pid_t pid)
{
	(void)tr;
	return kill(pid, SIGKILL);
}

static int pt_loosen(struct rec_tracer *tr, pid_t tid)
{
	(void)tr;
	return (int)ptrace(PTRACE_SETOPTIONS, tid, NULL, NULL);
}

static int pt_watch_vfork(struct rec_tracer *tr, pid_t tid)
{
	const long options = REC_TRACE_OPTIONS | PTRACE_O_TRACEVFORKDONE;
	(void)tr;
	return (int)ptrace(PTRACE_SETOPTIONS, tid, NULL, (void *)options);
}

static int pt_get_regs(struct rec_tracer *tr, pid_t tid, struct user_regs_struct *r)
{
	(void)tr;
	return (int)ptrace(PTRACE_GETREGS, tid, NULL, r);
}

static int pt_set_regs(struct rec_tracer *tr, pid_t tid, const struct user_regs_struct *r)
{
	/* A program may have selectors in ds, es, fs and gs that ptrace does not set
	 * (linux/arch/x86/kernel/ptrace.c, invalid_selector). They come last, and deja never
	 * changes them: so then all but those. (Not at once: this request takes the registers in
	 * the form of the mode that the thread is in, and that may be the 32-bit one.) */
	struct user_regs_struct copy = *r;
	struct iovec v = { &copy, offsetof(struct user_regs_struct, ds) };
	(void)tr;
	if (!ptrace(PTRACE_SETREGS, tid, NULL, r))
		return 0;
	return errno == EIO ? (int)ptrace(PTRACE_SETREGSET, tid, (void *)NT_PRSTATUS, &v) : -1;
}

static int pt_get_fpregs(struct rec_tracer *tr, pid_t tid, struct user_fpregs_struct *f)
{
	(void)tr;
	return (int)ptrace(PTRACE_GETFPREGS, tid, NULL, f);
}

static int pt_set_fpregs(struct rec_tracer *tr, pid_t tid, const struct user_fpregs_struct *f)
{
	(void)tr;
	return (int)ptrace(PTRACE_SETFPREGS, tid, NULL, f);
}

static ssize_t pt_get_xstate(struct rec_tracer *tr, pid_t tid, void *buf, size_t size)
{
	struct iovec v = { buf, size };
	(void)tr;
	return ptrace(PTRACE_GETREGSET, tid, (void *)NT_X86_XSTATE, &v) ? -1 : (ssize_t)v.iov_len;
}

static int pt_get_siginfo(struct rec_tracer *tr, pid_t tid, siginfo_t *info)
{
	(void)tr;
	return (int)ptrace(PTRACE_GETSIGINFO, tid, NULL, info);
}

static int pt_set_siginfo(struct rec_tracer *tr, pid_t tid, const siginfo_t *info)
{
	(void)tr;
	return (int)ptrace(PTRACE_SETSIGINFO, tid, NULL, info);
}

static int pt_get_sigmask(struct rec_tracer *tr, pid_t tid, uint64_t *mask)
{
	(void)tr;
	return (int)ptrace(PTRACE_GETSIGMASK, tid, sizeof(*mask), mask);
}

static int pt_set_sigmask(struct rec_tracer *tr, pid_t tid, uint64_t mask)
{
	(void)tr;
	return (int)ptrace(PTRACE_SETSIGMASK, tid, sizeof(mask), &mask);
}

static bool pt_signals_wait(struct rec_tracer *tr, pid_t tid)
{
	struct __ptrace_peeksiginfo_args args = { .flags = PTRACE_PEEKSIGINFO_SHARED, .nr = 1 };
	siginfo_t info;
	(void)tr;
	return ptrace(PTRACE_PEEKSIGINFO, tid, &args, &info) != 0;
}

static int pt_event_message(struct rec_tracer *tr, pid_t tid, unsigned long *message)
{
	(void)tr;
	return (int)ptrace(PTRACE_GETEVENTMSG, tid, NULL, message);
}

static int pt_open_memory(struct rec_tracer *tr, pid_t pid)
{
	char path[64];
	(void)tr;
	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	return open(path, O_RDWR | O_CLOEXEC);
}

static void pt_close_memory(struct rec_tracer *tr, int memory)
{
	(void)tr;
	close(memory);
}

static ssize_t pt_read(struct rec_tracer *tr, int memory, uint64_t addr, void *buf, size_t len)
{
	(void)tr;
	return pread(memory, buf, len, (off_t)addr);
}

static ssize_t pt_write(struct rec_tracer *tr, int memory, uint64_t addr, const void *buf,
			size_t len)
{
	(void)tr;
	return pwrite(memory, buf, len, (off_t)addr);
}

static FILE *pt_open_proc(struct rec_tracer *tr, pid_t pid, const char *name)
{
	char path[64];
	(void)tr;
	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	return fopen(path, "re");
}

static bool pt_write_as_it(struct rec_tracer *tr, pid_t tid, uint64_t addr, const void *buf,
			   size_t len)
{
	struct iovec from = { (void *)(uintptr_t)buf, len }, to = { (void *)(uintptr_t)addr, len };
	(void)tr;
	return process_vm_writev(tid, &from, 1, &to, 1, 0) == (ssize_t)len;
}

/* The link can be followed by whoever may trace the process, whatever that has become. */
static int pt_take_file(struct rec_tracer *tr, pid_t pid, int fd)
{
	char path[64];
	(void)tr;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
	return open(path, O_RDWR | O_CLOEXEC);
}

static int pt_limit(struct rec_tracer *tr, pid_t pid, int resource, const struct rlimit *to,
		    struct rlimit *was)
{
	(void)tr;
	return prlimit(pid, (enum __rlimit_resource)resource, to, was);
}

struct rec_tracer rec_tracer_ptrace = {
	.wait = pt_wait,
	.resume = pt_resume,
	.resume_here = pt_resume_here,
	.interrupt = pt_interrupt,
	.kill = pt_kill,
	.loosen = pt_loosen,
	.watch_vfork = pt_watch_vfork,
	.get_regs = pt_get_regs,
	.set_regs = pt_set_regs,
	.get_fpregs = pt_get_fpregs,
	.set_fpregs = pt_set_fpregs,
	.get_xstate = pt_get_xstate,
	.get_siginfo = pt_get_siginfo,
	.set_siginfo = pt_set_siginfo,
	.get_sigmask = pt_get_sigmask,
	.set_sigmask = pt_set_sigmask,
	.signals_wait = pt_signals_wait,
	.event_message = pt_event_message,
	.open_memory = pt_open_memory,
	.close_memory = pt_close_memory,
	.read = pt_read,
	.write = pt_write,
	.write_as_it = pt_write_as_it,
	.open_proc = pt_open_proc,
	.take_file = pt_take_file,
	.limit = pt_limit,
};
