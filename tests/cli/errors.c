/*
 * The programs that tests/cli/errors.sh records: one mode each, named by the first argument. Built
 * once with the C library, and once with -DTINY -nostdlib -static for a trace of a few kilobytes.
 */
#ifdef TINY

static long call(long nr, long a, long b, long c)
{
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "0"(nr), "D"(a), "S"(b), "d"(c)
			 : "rcx", "r11", "memory");
	return result;
}

void _start(void)
{
	static unsigned char table[4096];
	unsigned sum = 1;

	for (unsigned i = 0; i < 40000; i++) {
		sum = sum * 69069 + i;
		table[sum >> 20] += (unsigned char)sum;
		if (i % 4000 == 0)
			call(1, 1, (long)"tick\n", 5);
	}
	call(231, table[5] & 1 ? 3 : 3, 0, 0);
}

#else

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../translator/area.h"

extern char **environ;
static volatile int zero;

static unsigned work(unsigned n)
{
	static unsigned table[4096];
	unsigned sum = 1;

	for (unsigned i = 0; i < n; i++) {
		sum = sum * 69069 + i;
		table[sum >> 20] += sum;
	}
	return table[7] ? sum : 0;
}

static void say(const char *text)
{
	if (write(1, text, strlen(text)) < 0)
		exit(9);
}

static int waited(pid_t pid)
{
	int status = -1;

	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	return status;
}

/* A child computes, allocates, uses its own thread-local errno, signals and a grandchild. */
static void child_work(void)
{
	char *p = malloc(100000);
	int status;

	memset(p, 'x', 100000);
	errno = 0;
	close(-1);
	status = errno == EBADF && p[99999] == 'x' && work(3000000);
	pid_t pid = fork();
	if (pid == 0)
		_exit(21);
	_exit(status && waited(pid) == 21 << 8 ? 20 : 1);
}

static int do_fork(void)
{
	pid_t pid = fork();

	if (pid == 0)
		child_work();
	printf("fork %d\n", waited(pid));
	for (int i = 0; i < 20; i++) {
		pid = fork();
		if (pid == 0)
			_exit(i);
		printf("%d ", waited(pid));
	}
	puts("");
	return 0;
}

static int do_vfork(void)
{
	pid_t pid = vfork();

	if (pid == 0) {
		execl("/bin/echo", "echo", "from a vfork child", (char *)NULL);
		_exit(127);
	}
	printf("vfork %d\n", waited(pid));
	pid = vfork();
	if (pid == 0)
		_exit(5);
	printf("vfork %d\n", waited(pid));
	return 0;
}

static int do_spawn(void)
{
	char *argv[] = { "sh", "-c", "echo spawned; exit 6", NULL };
	pid_t pid;
	int r = posix_spawn(&pid, "/bin/sh", NULL, NULL, argv, environ);

	printf("spawn %d %d\n", r, waited(pid));
	r = posix_spawn(&pid, "/no/such/file", NULL, NULL, argv, environ);
	printf("spawn of nothing: %s\n", strerror(r));
	printf("system %d\n", system("exit 7"));
	FILE *f = popen("echo piped | tr a-z A-Z", "r");
	char line[80] = "";
	if (!f || !fgets(line, sizeof(line), f))
		return 1;
	printf("popen %s", line);
	return pclose(f);
}

static int do_exec(const char *self)
{
	say("before exec\n");
	execl(self, self, "after", (char *)NULL);
	return 1;
}

static int fds[2];
static void *in_thread(void *arg)
{
	return arg;
}

static int do_thread(void)
{
	pthread_t t;

	say("before the thread\n");
	work(200000);
	if (pthread_create(&t, NULL, in_thread, fds))
		return 1;
	pthread_join(t, NULL);
	say("after the thread\n");
	return 0;
}

static void on_term(int sig)
{
	say(sig == SIGTERM ? "terminated\n" : "interrupted\n");
	_exit(40 + sig);
}

static int do_loop(int catching)
{
	if (catching) {
		signal(SIGTERM, on_term);
		signal(SIGINT, on_term);
	}
	say("ready\n");
	for (;;)
		work(100000);
}

static int do_sleep(int catching)
{
	if (catching) {
		signal(SIGTERM, on_term);
		signal(SIGINT, on_term);
	}
	say("ready\n");
	for (;;)
		pause();
}

/* Every load of memory that others change: much trace in little time. */
static int do_fill(void)
{
	static volatile unsigned char buffer[1 << 20];
	unsigned sum = 0;
	int fd = open("/dev/urandom", O_RDONLY);

	for (int i = 0; i < 40; i++) {
		if (fd < 0 || read(fd, (void *)buffer, sizeof(buffer)) <= 0)
			return 1;
		for (unsigned k = 0; k < sizeof(buffer); k += 64)
			sum += buffer[k];
	}
	puts(sum ? "filled" : "empty");
	return 0;
}

static volatile sig_atomic_t counted[65];

static void count(int sig)
{
	counted[sig]++;
}

static void catch (int sig)
{
	struct sigaction sa = { .sa_handler = count, .sa_flags = SA_RESTART };

	sigaction(sig, &sa, NULL);
}

/* All signals that can be caught pend at once, one of them a hundred times. */
static int do_pending(void)
{
	sigset_t all;
	int sum = 0;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	for (int sig = 1; sig < 65; sig++) {
		if (sig == SIGKILL || sig == SIGSTOP || sig == SIGTRAP || sig == 32 || sig == 33)
			continue;
		catch (sig);
		raise(sig);
	}
	for (int i = 0; i < 99; i++)
		raise(SIGRTMIN + 3);
	sigemptyset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	for (int sig = 1; sig < 65; sig++) {
		sum += counted[sig];
		printf("%d ", counted[sig]);
	}
	printf("= %d\n", sum);
	return 0;
}

static void map_some(int n)
{
	for (int i = 0; i < n; i++) {
		char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			       0);
		if (p == MAP_FAILED)
			exit(8);
		p[4096] = (char)i;
		munmap(p, 8192);
	}
}

static void on_continued(int sig)
{
	(void)sig;
	(void)!write(1, "continued\n", 10);
}

/* Goes on for ever: computes, sleeps, or has the supervisor make calls. */
static int do_continued(const char *how)
{
	const struct sigaction sa = { .sa_handler = on_continued, .sa_flags = SA_RESTART };

	sigaction(SIGCONT, &sa, NULL);
	(void)!write(1, "ready\n", 6);
	for (;;) {
		if (!strcmp(how, "sleep"))
			pause();
		if (!strcmp(how, "map"))
			munmap(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS,
				    -1, 0),
			       4096);
	}
}

/* System calls that the supervisor performs, one after the other. */
static int do_maps(void)
{
	say("ready\n");
	for (;;)
		map_some(100);
}

/* Everything at once: signals from a timer, from children and from itself, mappings, forks, vforks,
 * and now and then another image of the same program. */
static int do_storm(const char *self, int round)
{
	struct itimerval often = { { 0, 1500 }, { 0, 1500 } };
	char number[12];

	catch (SIGALRM);
	catch (SIGUSR1);
	catch (SIGUSR2);
	catch (SIGCHLD);
	setitimer(ITIMER_REAL, &often, NULL);
	for (int i = 0; i < 6; i++) {
		pid_t parent = getpid(), pid = fork();
		if (pid == 0) {
			kill(parent, SIGUSR1);
			map_some(3);
			kill(parent, SIGUSR2);
			_exit(10 + i);
		}
		map_some(20);
		int status = -1;
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
		raise(SIGUSR1);
		pid = vfork();
		if (pid == 0)
			_exit(30 + i);
		int second = -1;
		while (waitpid(pid, &second, 0) < 0 && errno == EINTR)
			;
		printf("%d %d ", status >> 8, second >> 8);
	}
	setitimer(ITIMER_REAL, &(struct itimerval){ 0 }, NULL);
	/* at least those that it sent itself: equal ones that pend together are one */
	printf("round %d: %s\n", round,
	       counted[SIGUSR1] >= 6 && counted[SIGUSR2] >= 6 ? "all" : "lost");
	if (!round)
		return 6;
	snprintf(number, sizeof(number), "%d", round - 1);
	signal(SIGALRM, SIG_IGN);
	execl(self, self, "storm", number, (char *)NULL);
	return 1;
}

/* Instructions whose order other threads could see, some of which are executed natively. */
static int do_ordered(void)
{
	static volatile long n, calls;

	for (int i = 0; i < 5000; i++) {
		__asm__ volatile("lock adcq $1, %0\n\tmfence\n\tlock incq %0\n\tlock sbbq $2, %0"
				 : "+m"(n)
				 :
				 : "cc");
		if (i % 50 == 0)
			calls += getppid() > 0;
		__sync_fetch_and_add(&n, 1);
	}
	printf("%ld\n", calls);
	return 0;
}

/* S, as deja's sources call it: the end of the control block. */
static unsigned long control_block_end(void)
{
	char line[512];
	unsigned long start = 0, end = 0, s = 0;
	FILE *f = fopen("//proc/self/maps", "r"); /* with deja's: recorder/hide.c */

	/* tables, ring, log, control page, and the first page of the shadow */
	while (f && fgets(line, sizeof(line), f))
		if (!s && strstr(line, "memfd:deja") && strstr(line, "rw-s") &&
		    sscanf(line, "%lx-%lx", &start, &end) == 2 && end - start > (1 << 20))
			s = end - 4096;
	if (f)
		fclose(f);
	return s;
}

static volatile long added;

static void *adds(void *arg)
{
	for (;;)
		__sync_fetch_and_add(&added, 1);
	return arg;
}

/* The pages of the order of events, which count for several threads. */
static void overwrite_order(volatile unsigned long *order, const char *what)
{
	pthread_t t;

	pthread_create(&t, NULL, adds, NULL);
	while (added < 1000)
		;
	say("before\n");
	if (!strcmp(what, "locks"))
		for (int i = 0; i < 512; i++)
			order[i] = 0x5a;
	else if (!strcmp(what, "alone"))
		order[(T_ORDER_SHARED - T_ORDER) / 8] = 0;
	else
		order[(T_ORDER_NUMBER - T_ORDER) / 8] = !strcmp(what, "number") ? 1 : 1UL << 50;
}

/* Write to deja's part of the address space. */
#define AT(t)	 control[((t)-T_BASE) / 8]
/* Makes deja's files shorter, as far as they are to be had in a directory of links to open or
 * mapped ones. */
static int shorten(const char *directory)
{
	DIR *d = opendir(directory);
	int n = 0;

	for (struct dirent *e; d && (e = readdir(d));) {
		char path[400], to[64] = "";
		snprintf(path, sizeof(path), "%s/%s", directory, e->d_name);
		if (readlink(path, to, sizeof(to) - 1) < 0 || strncmp(to, "/memfd:deja", 11) != 0)
			continue;
		int fd = open(path, O_RDWR);
		if (fd >= 0 && ftruncate(fd, 4096) == 0)
			say("made shorter\n");
		n += fd >= 0;
		close(fd);
	}
	if (d)
		closedir(d);
	return n;
}

static int do_shorten(void)
{
	char directory[64];

	snprintf(directory, sizeof(directory), "/proc/%d/fd", (int)getppid());
	int n = shorten(directory) + shorten("/proc/self/map_files");
	map_some(3);
	say(n ? "some\n" : "none\n");
	return 8;
}

static int do_overwrite(const char *what, unsigned seed)
{
	unsigned long s = control_block_end();
	volatile unsigned long *control = (unsigned long *)(s - 4096);
	static char other[65536];
	struct stat status;

	if (!s)
		return 3;
	char *log = (char *)s + T_LOG, *ring = (char *)s + T_RING;
	char *code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!strncmp(what, "order-", 6))
		overwrite_order((unsigned long *)(s + T_ORDER), what + 6);
	else
		say("before\n");
	if (!strcmp(what, "ring")) {
		memset(ring, 0x5a, 8 << 20);
	} else if (!strcmp(what, "log")) { /* entries that nobody wrote */
		memset(log, 0x5a, 3 * LOG_SIZE);
		AT(T_LOG_HEAD) += 3 * LOG_SIZE;
	} else if (!strcmp(what, "log-head")) {
		AT(T_LOG_HEAD) = (unsigned long)other;
	} else if (!strcmp(what, "log-number")) { /* which nobody made */
		AT(T_MAPS_N) += 3;
	} else if (!strcmp(what, "maps-owner")) { /* somebody makes a mapping call, who is not */
		AT(T_MAPS) = 12345;
		map_some(1);
	} else if (!strcmp(what, "maps-closed")) { /* or deja does */
		AT(T_MAPS) = MAPS_CLOSED;
		map_some(1);
	} else if (!strcmp(what, "data")) { /* code is data, says the program */
		AT(T_DATA(0)) = 0;
		AT(T_DATA(0) + 8) = 1ul << 47;
		munmap(code, 4096);
	} else if (!strcmp(what, "head")) {
		AT(T_HEAD) = (unsigned long)other;
	} else if (!strcmp(what, "steps")) {
		for (int i = 0; i < TR_COUNTERS; i++)
			AT(T_STEPS(i)) = i ? 0 : -5UL;
	} else if (!strcmp(what, "back")) {
		for (int i = 0; i < TR_COUNTERS; i++)
			AT(T_STEPS(i)) = i ? 0 : 1;
	} else if (!strcmp(what, "seq")) {
		AT(T_SEQ) += 1UL << 50;
	} else if (!strcmp(what, "gsbase")) {
		AT(T_GSBASE) = 1UL << 60;
	}
	srand(seed);
	for (int i = 0; i < 100; i++) {
		if (!strcmp(what, "random"))
			control[rand() % 512] = rand() % 3 ? rand() * 0x100000001UL
							   : control[rand() % 512] + rand() % 16;
		getppid();
		fstat(0, &status); /* what it writes is kept, by tables that are there, too */
		__sync_fetch_and_add(&added, 1);
		if (!strcmp(what, "random") && i % 10 == 0)
			map_some(1);
	}
	map_some(3);
	__asm__ volatile("cpuid" : : "a"(0) : "rbx", "rcx", "rdx", "cc");
	__asm__ volatile("rdrand %%rax" : : : "rax", "cc");
	return 0;
}

/* Run a command that may not use ptrace. */
static int do_noptrace(char **argv)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ptrace, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { .len = sizeof(code) / sizeof(code[0]), .filter = code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0))
		return 77;
	execv(argv[0], argv);
	return 77;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
#define IS(name) (!strcmp(mode, name))
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (IS("exit"))
		return 42;
	if (IS("fork"))
		return do_fork();
	if (IS("vfork"))
		return do_vfork();
	if (IS("spawn"))
		return do_spawn();
	if (IS("exec"))
		return do_exec(argv[0]);
	if (IS("after"))
		return puts("after exec") < 0 ? 1 : 8;
	if (IS("thread"))
		return do_thread();
	if (IS("loop") || IS("catching-loop"))
		return do_loop(*mode == 'c');
	if (IS("sleep") || IS("catching-sleep"))
		return do_sleep(*mode == 'c');
	if (IS("fill"))
		return do_fill();
	if (IS("pending"))
		return do_pending();
	if (IS("maps"))
		return do_maps();
	if (IS("continued"))
		return do_continued(argc > 2 ? argv[2] : "");
	if (IS("storm"))
		return do_storm(argv[0], argc > 2 ? atoi(argv[2]) : 3);
	if (IS("ordered"))
		return do_ordered();
	if (!strncmp(mode, "overwrite-", 10))
		return do_overwrite(mode + 10, argc > 2 ? (unsigned)atoi(argv[2]) : 0);
	if (IS("shorten"))
		return do_shorten();
	if (IS("noptrace"))
		return do_noptrace(argv + 2);
	if (IS("segv"))
		return *(volatile int *)(intptr_t)(8 + zero);
	if (IS("fpe"))
		return work(9000) / zero;
	if (IS("ill"))
		__builtin_trap();
	if (IS("abort"))
		abort();
	if (IS("trap"))
		__asm__ volatile("int3");
	if (IS("stack")) {
		volatile char deep[1 << 20];

		deep[0] = (char)zero;
		return main(argc, argv) + deep[0];
	}
	if (IS("kill"))
		raise(SIGKILL);
	if (IS("usr1"))
		raise(SIGUSR1);
	if (IS("closed"))
		return fcntl(0, F_GETFD) == -1 && fcntl(1, F_GETFD) == -1 ? 30 : 31;
	if (IS("fds")) {
		for (int fd = 0; fd < 60; fd++)
			if (fcntl(fd, F_GETFD) != -1)
				printf("%d ", fd);
		puts("");
		return 0;
	}
	return 1;
}
#endif
