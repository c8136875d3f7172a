/* Operations of system calls: signals, masks, children, mappings, filters, limits: see combine.h.
 */
#define _GNU_SOURCE
#include "combine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void queue_some(void)
{
	unsigned n = 1 + rnd(rnd(4) ? 4 : rnd(4) ? 60 : 400);
	int sig = rnd(2) ? 34 + (int)rnd(3) : plain_signal();

	if (sig == SIGSEGV || sig == SIGFPE || sig == SIGILL || sig == SIGBUS || sig == SIGSYS)
		sig = SIGUSR1;
	note("queue", sig);
	for (unsigned i = 0; i < n; i++)
		if (sigqueue(getpid(), sig, (union sigval){ .sival_int = (int)i }) != 0)
			note("errno", errno);
}

void many_at_once(void)
{
	sigset_t set, old;
	unsigned n = 2 + rnd(rnd(3) ? 20 : 60);

	random_set(&set, 100);
	sigprocmask(SIG_BLOCK, &set, &old);
	for (unsigned i = 0; i < n; i++) {
		int sig = plain_signal();
		switch (rnd(3)) {
		case 0:
			kill(getpid(), sig);
			break;
		case 1:
			syscall(SYS_tgkill, getpid(), getpid(), sig);
			break;
		default:
			sigqueue(getpid(), sig, (union sigval){ .sival_int = (int)i });
			break;
		}
	}
	note("at-once", n);
	switch (rnd(4)) {
	case 0: {
		sigset_t none;
		sigemptyset(&none);
		note("suspend", sigsuspend(&none));
		note("errno", errno);
		break;
	}
	case 1: {
		sigset_t none;
		struct timespec ts = { 0, 1000000 };
		sigemptyset(&none);
		note("ppoll", ppoll(NULL, 0, &ts, &none));
		break;
	}
	case 2: {
		struct timespec zero = { 0, 0 };
		siginfo_t info;
		for (int got; (got = sigtimedwait(&set, &info, &zero)) > 0;)
			note("got", got);
		break;
	}
	default:
		break;
	}
	sigprocmask(SIG_SETMASK, &old, NULL);
}

/* Another process sends them, two or more at a time; it has ended before they are let in. */
void from_outside(void)
{
	sigset_t set, old;
	pid_t parent = getpid();
	unsigned n = 2 + rnd(5);
	int sigs[8];

	for (unsigned i = 0; i < n; i++)
		sigs[i] = plain_signal();
	random_set(&set, 100);
	sigprocmask(SIG_BLOCK, &set, &old);
	pid_t child = fork();
	if (child == 0) {
		for (unsigned i = 0; i < n; i++)
			kill(parent, sigs[i]);
		_exit(7);
	}
	int status = 0;
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	note("outside", n);
	note("child", status);
	sigprocmask(SIG_SETMASK, &old, NULL);
}

static volatile sig_atomic_t came;

/* In one instruction: another one's handler may come in between. */
static void count_one(int sig)
{
	(void)sig;
	__atomic_fetch_add(&came, 1, __ATOMIC_RELAXED);
}

/* The same while it computes: several at a time, and the next when all of these have been handled.
 * In what order they come is open. */
void from_outside_while_computing(void)
{
	static const int sigs[] = { SIGUSR1, SIGUSR2, SIGWINCH, 35 };
	const struct sigaction counts = { .sa_handler = count_one, .sa_flags = SA_RESTART };
	struct sigaction before[4];
	sigset_t set, old;
	int go[2], n = 2 + (int)rnd(3), status = 0;
	pid_t parent = getpid();
	char byte = 0;

	sigemptyset(&set);
	for (int i = 0; i < n; i++) {
		sigaction(sigs[i], &counts, &before[i]);
		sigaddset(&set, sigs[i]);
	}
	came = 0;
	sigprocmask(SIG_UNBLOCK, &set, &old);
	if (pipe(go))
		return;
	pid_t child = fork();
	if (child == 0) {
		close(go[1]);
		while (read(go[0], &byte, 1) == 1)
			for (int i = 0; i < n; i++)
				kill(parent, sigs[i]);
		_exit(8);
	}
	close(go[0]);
	for (int round = 1; round <= 10 && child > 0; round++) {
		if (write(go[1], &byte, 1) != 1)
			break;
		for (unsigned long spent = 0; came < round * n && spent < 2000000000; spent++)
			;
	}
	note("came", came);
	close(go[1]);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	note("child", status);
	for (int i = 0; i < n; i++)
		sigaction(sigs[i], &before[i], NULL);
	sigprocmask(SIG_SETMASK, &old, NULL);
}

/* Stopped, and continued by a child, in a loop of calls that the supervisor handles. */
void stop_in_loop(void)
{
	pid_t parent = getpid();
	int go[2];
	sigset_t set, old;

	random_set(&set, 100);
	sigprocmask(SIG_BLOCK, &set, &old);
	if (pipe(go))
		return;
	pid_t child = fork();
	if (child == 0) {
		close(go[1]);
		kill(parent, SIGSTOP);
		usleep(2000);
		kill(parent, SIGCONT);
		char c;
		(void)!read(go[0], &c, 1);
		_exit(0);
	}
	close(go[0]);
	for (int i = 0; i < 20; i++) {
		void *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			       0);
		if (p != MAP_FAILED)
			munmap(p, 8192);
	}
	close(go[1]);
	int status = 0;
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	note("stopped", status);
	sigset_t pending;
	sigpending(&pending);
	note("cont", sigismember(&pending, SIGCONT));
	struct timespec zero = { 0, 0 };
	while (sigtimedwait(&set, NULL, &zero) > 0)
		;
	sigprocmask(SIG_SETMASK, &old, NULL);
}

/* Whether a process sleeps in the kernel. Stopped for a tracer it does not. */
static bool asleep(pid_t pid)
{
	char path[64], text[512] = "";
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	int fd = open(path, O_RDONLY);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	const char *state = n > 0 ? strrchr(text, ')') : NULL;
	return state && state[2] == 'S';
}

/* A read that a signal interrupts; what it waits for comes when the handler has run. */
void interrupted_call(void)
{
	int p[2];
	pid_t parent = getpid();
	int sig = 34 + (int)rnd(3), restart = (int)rnd(2);
	struct sigaction sa = { .sa_sigaction = handler,
				.sa_flags = SA_SIGINFO | (restart ? SA_RESTART : 0) };
	sigset_t one, chld;

	sigaction(sig, &sa, NULL);
	sigemptyset(&one);
	sigaddset(&one, sig);
	sigprocmask(SIG_UNBLOCK, &one, NULL);
	if (pipe(p))
		return;
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, NULL);
	long before = *counter;
	pid_t child = fork();
	if (child == 0) {
		close(p[0]);
		while (!asleep(parent))
			usleep(200);
		kill(parent, sig);
		while (*counter == before)
			usleep(200);
		(void)!write(p[1], "x", 1);
		_exit(0);
	}
	char c = 0;
	ssize_t n = read(p[0], &c, 1);
	note("read", n);
	note("errno", n < 0 ? errno : 0);
	while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
	close(p[0]);
	close(p[1]);
	sigprocmask(SIG_UNBLOCK, &chld, NULL);
}

void some_masks(void)
{
	sigset_t set;

	random_set(&set, 30);
	note("mask", sigprocmask(rnd(2) ? SIG_BLOCK : SIG_SETMASK, &set, NULL));
	put(" is=");
	put_hex(mask_now());
}

void vfork_and_exec(void)
{
	int status = 0;
	sigset_t set, old;
	char *argv[] = { "true", NULL };

	random_set(&set, 100);
	sigprocmask(SIG_BLOCK, &set, &old);
	pid_t child = vfork();
	if (child == 0) {
		execv("/bin/true", argv);
		_exit(9);
	}
	raise(SIGUSR1);
	raise(SIGUSR2);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	note("vfork", status);
	sigprocmask(SIG_SETMASK, &old, NULL);
}

static volatile long shared;

static int child_of_clone(void *by)
{
	for (int i = 0; i < 100; i++)
		shared += (long)by;
	return 5;
}

/* clone in ways that fork and vfork do not use; some fail. */
void clones(void)
{
	static char stack[1 << 16] __attribute__((aligned(16)));
	static const int flags[] = { SIGCHLD,
				     CLONE_VM,
				     CLONE_VM | CLONE_FS | CLONE_FILES,
				     CLONE_VM | SIGCHLD,
				     CLONE_VM | CLONE_VFORK | SIGCHLD,
				     CLONE_THREAD,
				     CLONE_SIGHAND | SIGCHLD,
				     CLONE_VM | SIGUSR1 };
	unsigned k = rnd(sizeof(flags) / sizeof(*flags)), untraced = rnd(2) * CLONE_UNTRACED;
	sigset_t set, old;
	int status = 0;

	random_set(&set, 100);
	sigprocmask(SIG_BLOCK, &set, &old);
	shared = 0;
	pid_t child;
	if (k || rnd(2)) {
		child = clone(child_of_clone, stack + sizeof(stack), flags[k] | (int)untraced,
			      (void *)3L);
	} else {
		uint64_t args[8] = { untraced, 0, 0, 0, SIGCHLD };
		child = (pid_t)syscall(SYS_clone3, args, sizeof(args));
		if (child == 0)
			_exit(6);
		note("flags", args[0] == untraced);
	}
	note("clone", k);
	note("errno", child < 0 ? errno : 0);
	if (child > 0)
		note("reaped", waitpid(child, &status, __WALL) == child);
	note("status", status);
	note("shared", shared);
	sigprocmask(SIG_SETMASK, &old, NULL);
}

void mappings(void)
{
	for (volatile unsigned i = 0; i < 5; i++) {
		size_t n = 4096 * (1 + rnd(20));
		char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p == MAP_FAILED)
			continue;
		memset(p, (int)i, n);
		if (rnd(2))
			mprotect(p, 4096, PROT_READ);
		if (rnd(2)) {
			recovering = 1;
			sigset_t segv;
			sigemptyset(&segv);
			sigaddset(&segv, SIGSEGV);
			sigprocmask(SIG_UNBLOCK, &segv, NULL);
			random_handler(SIGSEGV);
			if (sigsetjmp(recover, 1) == 0)
				p[100] = 9;
			recovering = 0;
		}
		note("byte", p[100]);
		munmap(p, n);
	}
}

/* seccomp's RET_TRAP for a call that nobody needs here: getppid runs in the cache, remap_file_pages
 * does not.
 */
void seccomp_trap(void)
{
	static int done;
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_remap_file_pages, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(code) / sizeof(*code), code };
	sigset_t sys;

	if (!done) {
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		note("seccomp", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog));
		done = 1;
	}
	sigemptyset(&sys);
	sigaddset(&sys, SIGSYS);
	sigprocmask(SIG_UNBLOCK, &sys, NULL);
	random_handler(SIGSYS);
	errno = 0;
	note("getppid", syscall(SYS_getppid));
	note("errno", errno);
	errno = 0;
	note("remap", syscall(SYS_remap_file_pages, 0, 0, 0, 0, 0) == -1);
	note("errno", errno);
}

void limits(void)
{
	struct rlimit old, low;

	getrlimit(RLIMIT_NOFILE, &old);
	low = old;
	low.rlim_cur = 4;
	setrlimit(RLIMIT_NOFILE, &low);
	int fd = dup(1), fd2 = dup(1);
	note("dup", fd >= 0);
	note("dup", fd2 >= 0);
	void *p = mmap(NULL, 1 << 16, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	note("mmap", p != MAP_FAILED);
	if (p != MAP_FAILED)
		munmap(p, 1 << 16);
	if (fd >= 0)
		close(fd);
	if (fd2 >= 0)
		close(fd2);
	setrlimit(RLIMIT_NOFILE, &old);
}
