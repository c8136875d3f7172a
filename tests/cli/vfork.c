/* A program whose children execute in its memory, for tests/cli/vfork.sh: what it prints is the
 * same every time. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEEP __attribute__((noinline, noclone))

extern char **environ;
static volatile int counter;
static char *volatile heap;
static volatile unsigned table[4096];

static int waited(pid_t pid)
{
	int status = -1;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* What the tests look for in a recording. */
KEEP void in_child(int n)
{
	counter += n;
	for (unsigned i = 0; i < 4096; i++)
		table[i] = table[i] * 5 + i + (unsigned)n;
}

static unsigned sum(void)
{
	unsigned s = 0;
	for (unsigned i = 0; i < 4096; i++)
		s = s * 31 + table[i];
	return s;
}

static int spawn(char *program, char *arg1, char *arg2)
{
	char *argv[] = { program, arg1, arg2, NULL };
	pid_t pid;
	int error = posix_spawn(&pid, program, NULL, NULL, argv, environ);
	return error ? 1000 + error : waited(pid);
}

/* The parent's variables, stack, heap and mappings are the child's. */
static int do_writes(void)
{
	volatile int local = 1;
	char *volatile mapped = NULL;
	for (int i = 0; i < 5; i++) {
		pid_t pid = vfork();
		if (!pid) {
			in_child(10);
			local += 2;
			heap = strdup("made by a child");
			mapped = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE,
				      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			memset(mapped, 'a' + i, 1 << 20);
			if (i & 1)
				mprotect(mapped, 1 << 20, PROT_READ);
			execl("/no/such/program", "program", (char *)NULL);
			_exit(errno == ENOENT ? i : 99);
		}
		int status = waited(pid);
		in_child(1);
		printf("%d %d %s %c%c %d %u\n", counter, local, heap, mapped[0],
		       mapped[(1 << 20) - 1], status, sum());
		free(heap);
		munmap(mapped, 1 << 20);
	}
	return 0;
}

/* Code that the child makes, and the parent calls; and the other way round. */
static int do_code(void)
{
	static const unsigned char code[] = { 0xb8, 7, 0, 0, 0, 0xc3 }; /* mov eax, 7; ret */
	unsigned char *volatile p = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
					 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < 4; i++) {
		pid_t pid = vfork();
		if (!pid) {
			memcpy((void *)p, code, sizeof(code));
			p[1] = (unsigned char)(10 * i);
			_exit(((int (*)(void))p)());
		}
		printf("%d", waited(pid));
		printf(" %d", ((int (*)(void))p)());
		p[1]++;
		printf(" %d\n", ((int (*)(void))p)());
	}
	return 0;
}

static int do_exec(void)
{
	for (int i = 0; i < 3; i++) {
		pid_t pid = vfork();
		if (!pid) {
			in_child(i);
			execl("/bin/sh", "sh", "-c", "echo from a shell; exit 4", (char *)NULL);
			_exit(1);
		}
		printf("%d %d\n", waited(pid), counter);
	}
	printf("%d\n", spawn("/bin/sh", "-c", "exit 7"));
	printf("%d\n", spawn("/no/such/program", NULL, NULL));
	printf("%d\n", system("exit 9") >> 8);
	FILE *f = popen("echo piped", "r");
	char line[64] = "";
	(void)!fgets(line, sizeof(line), f);
	printf("%s%d\n", line, pclose(f));
	return 0;
}

/* What comes through a pipe that a child has made its output by itself. */
KEEP void check(const char *text)
{
	puts(text);
}

static char piped[64];

static int do_pipe(void)
{
	posix_spawn_file_actions_t actions;
	char *argv[] = { "echo", "through a pipe", NULL };
	int p[2];
	pid_t pid;
	if (pipe(p))
		return 1;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, p[1], 1);
	posix_spawn_file_actions_addclose(&actions, p[0]);
	posix_spawn(&pid, "/bin/echo", &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	int status = waited(pid);
	if (read(p[0], piped, sizeof(piped) - 1) <= 0)
		return 1;
	check(piped);
	return status;
}

/* ---- several at once ---- */

static atomic_int spinning = 1;

static void *maps(void *arg)
{
	while (spinning) {
		char *p = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			       0);
		memset(p, 1, 65536);
		munmap(p, 65536);
	}
	return arg;
}

static void *spawns(void *arg)
{
	long n = (long)arg, good = 0;
	volatile long mine = 0;
	for (int i = 0; i < 12; i++) {
		if (i % 3 == 0) {
			good += spawn("/bin/true", NULL, NULL) == 0;
			continue;
		}
		pid_t pid = vfork();
		if (!pid) {
			mine += n;
			if (i % 3 == 1)
				execl("/bin/sh", "sh", "-c", "exit 5", (char *)NULL);
			char *p = malloc(5000);
			memset(p, (int)n, 5000);
			mine += p[4999];
			free(p);
			_exit(6);
		}
		good += waited(pid) == (i % 3 == 1 ? 5 : 6);
	}
	return (void *)(good * 1000 + mine);
}

static int do_several(void)
{
	pthread_t t[8], m[2];
	void *result;
	for (int i = 0; i < 2; i++)
		pthread_create(&m[i], NULL, maps, NULL);
	for (long i = 0; i < 8; i++)
		pthread_create(&t[i], NULL, spawns, (void *)i);
	for (int i = 0; i < 8; i++) {
		pthread_join(t[i], &result);
		printf("%ld\n", (long)result);
	}
	spinning = 0;
	for (int i = 0; i < 2; i++)
		pthread_join(m[i], NULL);
	return 0;
}

/* One after the other, in the areas that those before have left. */
static int do_many(void)
{
	char *volatile p = malloc(300000);
	memset((void *)p, 1, 300000);
	for (int i = 0; i < 100; i++) {
		pid_t pid = vfork();
		if (!pid) {
			for (int k = 0; k < 300000; k += 1000)
				p[k] = (char)(p[k] * 3 + i);
			if (i % 4 == 0)
				execl("/bin/true", "true", (char *)NULL);
			if (i % 4 == 1)
				raise(SIGKILL);
			if (i % 4 == 2)
				syscall(SYS_exit, 3);
			_exit(4);
		}
		printf("%d ", waited(pid));
		for (int k = 0; k < 300000; k += 1000)
			p[k] = (char)(p[k] * 7 + 1);
	}
	unsigned s = 0;
	for (int k = 0; k < 300000; k++)
		s = s * 31 + (unsigned char)p[k];
	printf("%u\n", s);
	return 0;
}

/* ---- signals ---- */

static volatile int traps, users, others;

static void on_trap(int sig)
{
	(void)sig;
	traps++;
}

static void on_user(int sig)
{
	(void)sig;
	users++;
}

static void on_other(int sig)
{
	(void)sig;
	others++;
}

static void handle(int sig, void (*handler)(int))
{
	struct sigaction sa = { .sa_handler = handler };
	sigaction(sig, &sa, NULL);
}

static const char *handler_of(int sig)
{
	struct sigaction sa;
	sigaction(sig, NULL, &sa);
	return sa.sa_handler == SIG_DFL	   ? "default"
	       : sa.sa_handler == SIG_IGN  ? "ignored"
	       : sa.sa_handler == on_trap  ? "trap"
	       : sa.sa_handler == on_user  ? "user"
	       : sa.sa_handler == on_other ? "other"
					   : "?";
}

static void tell(const char *who)
{
	printf("%s: %s %s, %d %d %d\n", who, handler_of(SIGTRAP), handler_of(SIGUSR1), traps, users,
	       others);
}

/* What the child makes of its signals its parent does not know of; and its handlers run in it. */
static int do_signals(void)
{
	sigset_t trap, old;
	sigemptyset(&trap);
	sigaddset(&trap, SIGTRAP);
	handle(SIGTRAP, on_trap);
	handle(SIGUSR1, on_user);
	printf("%d\n", spawn("/bin/true", NULL, NULL));
	tell("parent");
	raise(SIGTRAP);
	for (int i = 0; i < 6; i++) {
		if (i == 4) /* with SIGTRAP blocked every trap of a tracer's is a threat */
			sigprocmask(SIG_BLOCK, &trap, &old);
		pid_t pid = vfork();
		if (!pid) {
			raise(SIGUSR1);
			if (i < 4)
				raise(SIGTRAP);
			handle(SIGTRAP, i % 3 == 0 ? on_other : i % 3 == 1 ? SIG_IGN : SIG_DFL);
			handle(SIGUSR1, SIG_IGN);
			raise(SIGUSR1);
			if (i % 3 < 2)
				raise(SIGTRAP);
			if (i == 5)
				raise(SIGTRAP); /* blocked */
			tell("child");
			if (i == 2)
				raise(SIGTRAP); /* and dies */
			_exit(i);
		}
		int status = waited(pid);
		tell("parent");
		raise(SIGTRAP);
		raise(SIGUSR1);
		if (i >= 4) {
			sigset_t waits;
			sigpending(&waits);
			printf("pending %d, ", sigismember(&waits, SIGTRAP));
			sigprocmask(SIG_SETMASK, &old, NULL);
			sigprocmask(SIG_BLOCK, &trap, &old);
		}
		printf("%d, %d %d %d\n", status, traps, users, others);
	}
	sigprocmask(SIG_UNBLOCK, &trap, NULL);
	/* ignored where it is made: it is so in the program that the child becomes */
	handle(SIGTRAP, SIG_IGN);
	handle(SIGUSR1, SIG_IGN);
	printf("%d\n", spawn("/bin/sh", "-c", "kill -TRAP $$; kill -USR1 $$; exit 3"));
	handle(SIGTRAP, SIG_DFL);
	printf("%d\n", spawn("/bin/sh", "-c", "kill -USR1 $$; kill -TRAP $$; exit 3"));
	return 0;
}

/* A timer's signals, to parent and child. */
static int do_timer(void)
{
	const struct itimerval often = { { 0, 2000 }, { 0, 2000 } }, never = { { 0, 0 }, { 0, 0 } };
	int bad = 0;
	handle(SIGALRM, on_user);
	for (int i = 0; i < 10; i++) {
		setitimer(ITIMER_REAL, &often, NULL);
		pid_t pid = vfork();
		if (!pid) {
			int before = users;
			setitimer(ITIMER_REAL, &often, NULL);
			while (users < before + 5)
				in_child(0);
			setitimer(ITIMER_REAL, &never, NULL);
			if (i & 1)
				execl("/bin/true", "true", (char *)NULL);
			_exit(0);
		}
		setitimer(ITIMER_REAL, &never, NULL);
		bad += waited(pid) != 0;
	}
	printf("%d %d\n", bad, users >= 50);
	return 0;
}

/* ---- children of children ---- */

static int do_nested(void)
{
	for (int i = 0; i < 3; i++) {
		pid_t pid = vfork();
		if (!pid) {
			in_child(1);
			pid_t second = vfork();
			if (!second) {
				in_child(2);
				if (i == 1)
					execl("/bin/sh", "sh", "-c", "exit 11", (char *)NULL);
				_exit(12);
			}
			int status = waited(second);
			pid_t third = fork(); /* in memory of its own */
			if (!third) {
				in_child(100);
				_exit(counter & 127);
			}
			status += 100 * waited(third);
			printf("%d %d %d\n", counter, status, spawn("/bin/sh", "-c", "exit 13"));
			if (i == 2)
				execl("/bin/sh", "sh", "-c", "exit 14", (char *)NULL);
			_exit(15);
		}
		int status = waited(pid);
		printf("%d %d %u\n", counter, status, sum());
	}
	return 0;
}

static char stacks[2][65536] __attribute__((aligned(64)));

static int counts(void *arg)
{
	in_child((int)(long)arg);
	return 20 + (int)(long)arg;
}

/* A thread of a child's: without the C library, which takes it for one of the parent's. */
static int thread_of_child(void *arg)
{
	in_child(1000);
	return (int)(long)arg;
}

static int makes_thread(void *arg)
{
	static volatile pid_t runs;
	clone(thread_of_child, stacks[1] + sizeof(stacks[1]),
	      CLONE_VM | CLONE_THREAD | CLONE_SIGHAND | CLONE_FS | CLONE_FILES |
		      CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID,
	      NULL, &runs, NULL, &runs);
	while (runs)
		sched_yield();
	if (arg)
		execl("/bin/sh", "sh", "-c", "exit 17", (char *)NULL);
	return 18;
}

/* Stacks of their own; handlers that they share with their parent; threads of theirs. */
static int do_clones(void)
{
	for (long i = 0; i < 4; i++) {
		pid_t pid = clone(counts, stacks[0] + sizeof(stacks[0]),
				  CLONE_VM | CLONE_VFORK | SIGCHLD | (i & 1 ? CLONE_SIGHAND : 0) |
					  (i & 2 ? CLONE_FS | CLONE_FILES : 0),
				  (void *)i);
		printf("%d", waited(pid));
		printf(" %d\n", counter);
	}
	for (long i = 0; i < 4; i++) {
		pid_t pid = clone(makes_thread, stacks[0] + sizeof(stacks[0]),
				  CLONE_VM | CLONE_VFORK | SIGCHLD, (void *)(i & 1));
		printf("%d", waited(pid));
		printf(" %d\n", counter);
	}
	return 0;
}

/* ---- ends ---- */

static int done[2], ready[2];

/* The child goes on when its parent is no more. */
static void outlives(pid_t parent)
{
	char *p;
	(void)!write(ready[1], "r", 1);
	while (getppid() == parent)
		usleep(1000);
	in_child(5);
	p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	sprintf(p, "orphan %d\n", counter);
	(void)!write(done[1], p, strlen(p));
}

static void *vforks(void *arg)
{
	pid_t parent = getpid();
	if (!vfork()) {
		outlives(parent);
		if (arg)
			execl("/bin/echo", "echo", "and became another", (char *)NULL);
		_exit(0);
	}
	return NULL;
}

/* Parents that are killed, or end, or become another program, while a child is in their memory. */
static int do_orphans(void)
{
	char text[64] = "", c;
	for (long i = 0; i < 6; i++) {
		if (pipe(done) || pipe(ready))
			return 1;
		pid_t pid = fork();
		if (!pid) {
			pthread_t t;
			dup2(done[1], 1);
			if (i < 2)
				vforks((void *)(i & 1));
			pthread_create(&t, NULL, vforks, (void *)(i & 1));
			(void)!read(ready[0], &c, 1);
			if (i < 4)
				_exit(8);
			execl("/bin/sh", "sh", "-c", "exit 9", (char *)NULL);
		}
		if (i < 2) {
			(void)!read(ready[0], &c, 1);
			kill(pid, SIGKILL);
		}
		int status = waited(pid);
		close(done[1]);
		FILE *f = fdopen(done[0], "r");
		while (fgets(text, sizeof(text), f))
			printf("%s", text);
		fclose(f);
		printf("%d\n", status);
	}
	return 0;
}

static volatile int witness;

static int second_child(void *arg)
{
	pid_t parent = getppid();
	(void)arg;
	kill(parent, SIGKILL);
	while (getppid() == parent)
		usleep(1000);
	in_child(7);
	witness = 1;
	while (witness == 1)
		usleep(1000);
	in_child(70);
	witness = 3;
	_exit(0);
}

static int first_child(void *arg)
{
	clone(second_child, stacks[1] + sizeof(stacks[1]), CLONE_VM | CLONE_VFORK | SIGCHLD, arg);
	return 1;
}

/* A child's child kills the one between, and goes on in the memory of the first. */
static int do_between(void)
{
	for (int i = 0; i < 4; i++) {
		witness = 0;
		pid_t pid = clone(first_child, stacks[0] + sizeof(stacks[0]),
				  CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
		printf("%d", waited(pid));
		while (!witness)
			usleep(1000);
		printf(" %d", counter);
		free(malloc(100000));
		witness = 2;
		while (witness == 2)
			usleep(1000);
		printf(" %d\n", counter);
	}
	return 0;
}

static volatile pid_t victim;

static int goes_on(void *arg)
{
	victim = getpid();
	for (;;) {
		char *p = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			       0);
		memset(p, 1, 65536);
		mprotect(p, 4096, PROT_READ);
		atomic_fetch_add(&spinning, (int)p[4096]);
		raise(SIGUSR1);
		munmap(p, 65536);
		in_child(0);
	}
	return arg != NULL;
}

static void *made(void *arg)
{
	pid_t pid = clone(goes_on, stacks[0] + sizeof(stacks[0]), CLONE_VM | CLONE_VFORK | SIGCHLD,
			  arg);
	return (void *)(long)waited(pid);
}

/* Children that are killed, whatever they are doing, while threads of their parent's map memory. */
static int do_victims(void)
{
	pthread_t maker, m;
	void *status;
	handle(SIGUSR1, on_user);
	pthread_create(&m, NULL, maps, NULL);
	for (int i = 0; i < 60; i++) {
		victim = 0;
		pthread_create(&maker, NULL, made, NULL);
		while (!victim)
			usleep(100);
		usleep((unsigned)i * 7919 % 5000);
		kill(victim, SIGKILL);
		pthread_join(maker, &status);
		printf("%ld ", (long)status);
	}
	spinning = 0;
	pthread_join(m, NULL);
	puts("");
	return 0;
}

/* A child that kills its parent, which is the first process of all. */
static int do_last(void)
{
	pid_t parent = getpid();
	done[1] = 1;
	if (pipe(ready))
		return 1;
	if (!vfork()) {
		kill(parent, SIGKILL);
		outlives(parent);
		execl("/bin/echo", "echo", "and became another", (char *)NULL);
	}
	return 1;
}

/* Children that die; one that stops for a while. */
static int do_ends(void)
{
	static const int fatal[] = { SIGKILL, SIGTERM, SIGSEGV, SIGABRT };
	for (unsigned i = 0; i < sizeof(fatal) / sizeof(*fatal); i++) {
		pid_t pid = vfork();
		if (!pid) {
			in_child(1);
			if (fatal[i] == SIGSEGV)
				*(volatile int *)8 = 1;
			raise(fatal[i]);
			_exit(1);
		}
		printf("%d %d\n", waited(pid), counter);
	}
	int p[2], q[2];
	if (pipe(p) || pipe(q))
		return 1;
	pid_t helper = fork();
	if (!helper) {
		pid_t whom;
		close(p[1]);
		if (read(p[0], &whom, sizeof(whom)) != sizeof(whom))
			_exit(1);
		fcntl(q[0], F_SETFL, O_NONBLOCK);
		char c;
		close(q[1]);
		while (read(q[0], &c, 1) < 0) {
			kill(whom, SIGCONT);
			usleep(10000);
		}
		_exit(2);
	}
	close(q[0]);
	pid_t pid = vfork();
	if (!pid) {
		pid_t me = getpid();
		(void)!write(p[1], &me, sizeof(me));
		for (int i = 0; i < 5; i++) {
			raise(SIGSTOP);
			in_child(1);
		}
		(void)!write(q[1], "x", 1);
		_exit(16);
	}
	printf("%d %d\n", waited(pid), counter);
	printf("%d\n", waited(helper));
	return 0;
}

/* ---- what else is the child's own ---- */

static void tell_limits(const char *who)
{
	struct rlimit files, space;
	getrlimit(RLIMIT_NOFILE, &files);
	getrlimit(RLIMIT_AS, &space);
	printf("%s: %lu %lu\n", who, (unsigned long)files.rlim_cur, (unsigned long)space.rlim_cur);
}

static int do_limits(void)
{
	const struct rlimit few = { 50, 50 }, little = { 3UL << 30, 3UL << 30 };
	struct rlimit own;
	getrlimit(RLIMIT_AS, &own);
	own.rlim_cur = 5UL << 30;
	setrlimit(RLIMIT_AS, &own);
	tell_limits("parent");
	for (int i = 0; i < 3; i++) {
		pid_t pid = vfork();
		if (!pid) {
			setrlimit(RLIMIT_NOFILE, &few);
			setrlimit(RLIMIT_AS, &little);
			tell_limits("child");
			void *p = mmap(NULL, 4UL << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
				       0);
			printf("%d\n", p == MAP_FAILED ? errno : 0);
			if (i == 1)
				execl("/bin/sh", "sh", "-c", "ulimit -n; ulimit -v", (char *)NULL);
			_exit(0);
		}
		printf("%d\n", waited(pid));
		tell_limits("parent");
		void *p = mmap(NULL, 4UL << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		printf("%d\n", p == MAP_FAILED ? errno : 0);
		munmap(p, 4UL << 30);
	}
	return 0;
}

/* A filter of the child's, and one that its parent has, in which there is no room for more. */
static void forbid(int nr, unsigned error)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)nr, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(code) / sizeof(*code), code };
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &prog);
}

static int do_filter(int without)
{
	if (without)
		forbid(without, EPERM);
	for (int i = 0; i < 3; i++) {
		pid_t pid = vfork();
		if (!pid) {
			in_child(1);
			forbid(SYS_getppid, 77);
			_exit(getppid() == -1 ? errno : 1);
		}
		printf("%d %d\n", waited(pid), counter);
		printf("%d\n", getppid() > 0);
	}
	printf("%d\n", spawn("/bin/sh", "-c", "exit 7"));
	return 0;
}

/* One that its parent traces from before its exec on. */
static int do_traced(void)
{
	for (int i = 0; i < 2; i++) {
		int status = 0;
		pid_t pid = vfork();
		if (!pid) {
			in_child(1);
			counter += ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0;
			in_child(1);
			execl("/bin/true", "true", (char *)NULL);
			_exit(1);
		}
		waitpid(pid, &status, 0);
		printf("stopped %d, %d\n", WIFSTOPPED(status) ? WSTOPSIG(status) : -1, counter);
		ptrace(PTRACE_CONT, pid, NULL, NULL);
		printf("%d\n", waited(pid));
	}
	return 0;
}

/* Another user, in the child alone. */
static int do_user(void)
{
	for (int i = 0; i < 2; i++) {
		pid_t pid = vfork();
		if (!pid) {
			in_child(1);
			if (syscall(SYS_setgid, 65534) || syscall(SYS_setuid, 65534))
				_exit(1);
			in_child(1);
			if (i)
				execl("/bin/sh", "sh", "-c", "id -u", (char *)NULL);
			_exit(getuid() == 65534 ? 3 : 2);
		}
		printf("%d %d %d\n", waited(pid), (int)getuid(), counter);
	}
	return 0;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(void);
	} modes[] = {
		{ "writes", do_writes },   { "code", do_code },	      { "pipe", do_pipe },
		{ "exec", do_exec },	   { "several", do_several }, { "many", do_many },
		{ "signals", do_signals }, { "timer", do_timer },     { "nested", do_nested },
		{ "clones", do_clones },   { "orphans", do_orphans }, { "ends", do_ends },
		{ "limits", do_limits },   { "traced", do_traced },   { "between", do_between },
		{ "last", do_last },	   { "victims", do_victims }, { "user", do_user },
	};
	const char *mode = argc > 1 ? argv[1] : "";
	setvbuf(stdout, NULL, _IONBF, 0);
	for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++)
		if (!strcmp(mode, modes[i].name))
			return modes[i].run();
	if (!strcmp(mode, "filter"))
		return do_filter(0);
	if (!strcmp(mode, "filters"))
		return do_filter(SYS_mremap);
	return 2;
}
