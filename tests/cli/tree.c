/* A program with processes, for tests/cli/tree.sh: what it prints is the same every time. */
#include <linux/sched.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int counter = 1;

static int waited(pid_t pid)
{
	int status = -1;
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* One child after the other; every other one becomes another program. */
static int do_order(void)
{
	counter = 77;
	for (int i = 0; i < 10; i++) {
		pid_t pid = fork();
		if (!pid && i % 2)
			execl("/bin/true", "true", (char *)NULL);
		if (!pid)
			_exit(i);
		printf("%d ", waited(pid));
	}
	puts("");
	return 0;
}

/* Children that compute, call, make children, and are killed at some moment. */
static int do_killed(unsigned seed)
{
	srand(seed);
	for (int i = 0; i < 12; i++) {
		pid_t pid = fork();
		if (!pid) {
			for (;;) {
				volatile unsigned x = 0;
				for (int k = 0; k < 1000; k++)
					x += (unsigned)k;
				if (!fork())
					_exit(0);
				wait(NULL);
			}
		}
		usleep((unsigned)rand() % 60000);
		kill(pid, SIGKILL);
		printf("%d ", waited(pid));
	}
	puts("");
	return 0;
}

static void *busy(void *arg)
{
	volatile int *stop = arg;
	char *p = NULL;
	while (!*stop) {
		free(p);
		p = malloc(100);
		usleep(100);
	}
	free(p);
	return NULL;
}

static void *forking(void *arg)
{
	(void)arg;
	for (int i = 0; i < 10; i++) {
		pid_t pid = fork();
		if (!pid) {
			counter += i;
			_exit(counter + (int)strlen(getenv("TREE")));
		}
		printf("%d ", waited(pid));
	}
	return NULL;
}

/* Forks of a thread, while others run. */
static int do_threads(void)
{
	pthread_t t[3];
	static volatile int stop;
	setenv("TREE", "five!", 1);
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, busy, (void *)&stop);
	pthread_create(&t[2], NULL, forking, NULL);
	pthread_join(t[2], NULL);
	stop = 1;
	pthread_join(t[0], NULL);
	pthread_join(t[1], NULL);
	puts("");
	return 0;
}

static void *patient(void *lock)
{
	pthread_mutex_lock(lock);
	pthread_mutex_unlock(lock);
	return NULL;
}

/* Eight threads at once, as far as they can be made; twice. The process can fork all the same. */
static int do_crowd(void)
{
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	for (int round = 0; round < 2; round++) {
		pthread_t t[8];
		int n = 0, why = 0;
		pthread_mutex_lock(&lock);
		while (n < 8 && !(why = pthread_create(&t[n], NULL, patient, &lock)))
			n++;
		pid_t pid = fork();
		if (!pid)
			_exit(pthread_create(&t[0], NULL, patient, &lock) ? 1 : 6);
		printf("%d threads, %s; %d\n", n, strerror(why), waited(pid));
		pthread_mutex_unlock(&lock);
		while (n > 0)
			pthread_join(t[--n], NULL);
	}
	return 0;
}

/* A daemon: two forks and a session of its own; what it does later is told through a pipe. */
static int do_daemon(void)
{
	int p[2];
	char c = 0;
	if (pipe(p))
		return 1;
	pid_t pid = fork();
	if (!pid) {
		setsid();
		if (fork())
			_exit(0);
		usleep(200000);
		(void)!write(p[1], "d", 1);
		_exit(9);
	}
	close(p[1]);
	printf("%d", waited(pid));
	(void)!read(p[0], &c, 1);
	printf(" %c\n", c);
	return 4;
}

/* A child that wants to be traced, and one that is attached to, as by a debugger. */
static int do_traced(void)
{
	int status;
	pid_t pid = fork();
	if (!pid) {
		printf("traceme %ld\n", ptrace(PTRACE_TRACEME, 0, NULL, NULL));
		raise(SIGSTOP);
		_exit(5);
	}
	waitpid(pid, &status, 0);
	printf("stopped by %d\n", WIFSTOPPED(status) ? WSTOPSIG(status) : -1);
	ptrace(PTRACE_CONT, pid, NULL, NULL);
	printf("%d\n", waited(pid));
	for (int stopped = 0; stopped < 3; stopped++) {
		pid = fork();
		for (volatile unsigned x = 0; !pid; x++) {
			if (stopped == 1)
				pause();
			else if (stopped == 2)
				raise(SIGSTOP);
		}
		usleep(50000);
		if (stopped == 2)
			waitpid(pid, &status, WUNTRACED);
		printf("attach %ld\n", ptrace(PTRACE_SEIZE, pid, NULL, NULL));
		printf("interrupt %ld\n", ptrace(PTRACE_INTERRUPT, pid, NULL, NULL));
		waitpid(pid, &status, __WALL);
		printf("stopped by %d\n", WIFSTOPPED(status) ? WSTOPSIG(status) : -1);
		printf("detach %ld\n", ptrace(PTRACE_DETACH, pid, NULL, NULL));
		kill(pid, SIGKILL);
		printf("%d\n", waited(pid));
	}
	return 0;
}

/* clone3, and what it makes ends at once. */
static long clone3_to_end(volatile struct clone_args *args, size_t size)
{
	long result;
	__asm__ volatile("syscall; test %%rax, %%rax; jnz 1f; mov %4, %%eax; xor %%edi, %%edi; "
			 "syscall; 1:"
			 : "=a"(result)
			 : "a"(SYS_clone3), "D"(args), "S"(size), "i"(SYS_exit)
			 : "rcx", "r11", "memory");
	return result;
}

static volatile struct clone_args changing;

static void *change(void *arg)
{
	uint64_t flags = changing.flags;
	for (;;) {
		changing.flags = flags;
		changing.flags = flags ^ CLONE_THREAD ^ CLONE_SIGHAND ^ CLONE_VM;
	}
	return arg;
}

/* Another thread changes whether it is a thread or a process while clone3 is under way. */
static int do_changing(void)
{
	const uint64_t thread = CLONE_VM | CLONE_SIGHAND | CLONE_THREAD;
	uint8_t *page =
		mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct clone_args *at = (struct clone_args *)(void *)page;
	uint64_t stack = (uint64_t)(uintptr_t)malloc(65536);
	pthread_t other;
	unsigned made = 0;

	/* what the kernel says of arguments that are none */
	mprotect(page + 4096, 4096, PROT_NONE);
	*at = (struct clone_args){ .flags = thread, .stack = stack, .stack_size = 65536 };
	printf("%d %ld ", clone3_to_end(at, 4096) > 0, clone3_to_end(at, 4097));
	printf("%ld %ld ", clone3_to_end(at, 63), clone3_to_end(NULL, 88));
	page[4000] = 1;
	printf("%ld %d ", clone3_to_end(at, 4096), clone3_to_end(at, 88) > 0);
	memmove(page + 4096 - 64, page, 64);
	at = (struct clone_args *)(void *)(page + 4096 - 64);
	printf("%d %ld ", clone3_to_end(at, 64) > 0, clone3_to_end(at, 88));
	mprotect(page, 4096, PROT_NONE);
	printf("%ld\n", clone3_to_end(at, 64));

	changing.flags = thread;
	changing.stack = stack;
	changing.stack_size = 65536;
	if (pthread_create(&other, NULL, change, NULL))
		return 2;
	for (int i = 0; i < 60; i++)
		made += clone3_to_end(&changing, sizeof(changing)) > 0;
	printf("%u\n", made);
	_exit(0);
}

/* The user that it is. */
static int do_user(const char *self)
{
	pid_t pid = fork();
	if (!pid) {
		execl(self, self, "who", (char *)NULL);
		_exit(127);
	}
	printf("%d\n", waited(pid));
	pid = vfork();
	if (!pid) {
		execl(self, self, "who", (char *)NULL);
		_exit(127);
	}
	printf("%d\n", waited(pid));
	return 0;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	setvbuf(stdout, NULL, _IONBF, 0);
	if (!strcmp(mode, "order"))
		return do_order();
	if (!strcmp(mode, "killed"))
		return do_killed((unsigned)atoi(argv[2]));
	if (!strcmp(mode, "threads"))
		return do_threads();
	if (!strcmp(mode, "crowd"))
		return do_crowd();
	if (!strcmp(mode, "daemon"))
		return do_daemon();
	if (!strcmp(mode, "traced"))
		return do_traced();
	if (!strcmp(mode, "changing"))
		return do_changing();
	if (!strcmp(mode, "user") && argc > 2)
		return do_user(argv[2]);
	if (!strcmp(mode, "who"))
		return printf("%d %d\n", (int)getuid(), (int)geteuid()) < 0;
	return 2;
}
