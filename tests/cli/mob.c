/*
 * The program that tests/cli/mob.sh records.
 *
 *   mob SEED THREADS ACTS [END]   threads that do things at random, whatever the others are doing:
 *                                 make threads, children and programs, map, load, handle signals,
 *                                 fault, change code... (and what mob-more.c has)
 *
 * It says how often it has done what, unless END says that the first thread ends it in the midst:
 * exit, exec (the next seed, with half as much to do), kill, abort; or only itself (leave).
 */
#define _GNU_SOURCE
#include "mob.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

pid_t mob_tids[MOST];
unsigned mob_n;

static pthread_barrier_t barrier;
static unsigned seed, acts;
static volatile long sum;
static int file;

unsigned draw(unsigned *of, unsigned n)
{
	*of = *of * 1103515245u + 12345u;
	return (*of >> 8) % n;
}

void fail(const char *what)
{
	perror(what);
	abort();
}

void on_signal(int sig)
{
	(void)sig;
	__atomic_fetch_add(&sum, 1, __ATOMIC_SEQ_CST);
}

/* ---- what they do --------------------------------------------------------------------------- */

void *nothing(void *arg)
{
	return arg;
}

void *forever(void *arg)
{
	for (;;)
		pause();
	return arg;
}

void make_thread(pthread_t *thread, void *(*does)(void *), void *arg)
{
	errno = pthread_create(thread, NULL, does, arg);
	if (errno == EAGAIN)
		forever(NULL);
	if (errno)
		fail("thread");
}

static void a_thread(unsigned *of)
{
	pthread_t thread;
	bool cancelled = draw(of, 2);
	make_thread(&thread, cancelled ? forever : nothing, NULL);
	if ((cancelled && pthread_cancel(thread)) || pthread_join(thread, NULL))
		fail("thread");
}

static void a_file(unsigned *of)
{
	char *p = mmap(NULL, 2 * PAGE, PROT_READ, MAP_PRIVATE, file, draw(of, 2) ? PAGE : 0);
	if (p == MAP_FAILED)
		fail("file");
	sum += *p;
	if (munmap(p, 2 * PAGE))
		fail("file");
}

static void some_code(unsigned *of)
{
	char *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < 4; i++) {
		if (mprotect(p, PAGE, PROT_READ | PROT_WRITE))
			fail("code");
		write_code(p, i);
		if (mprotect(p, PAGE, PROT_READ | PROT_EXEC) || call(p) != i)
			fail("code");
	}
	if (draw(of, 2))
		munmap(p, PAGE);
}

static void a_handler(unsigned *of)
{
	struct sigaction sa = { .sa_handler = draw(of, 2) ? SIG_IGN : on_signal };
	if (sigaction(SIGTRAP, &sa, NULL))
		fail("handler");
}

static void a_mask(unsigned *of)
{
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	if (draw(of, 2))
		pthread_kill(pthread_self(), SIGUSR1);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void a_signal(unsigned *of)
{
	static const int signals[] = { SIGUSR1, SIGTRAP };
	struct itimerval soon = { .it_value.tv_usec = 300 };
	unsigned which = draw(of, 4);
	if (which < 2)
		pthread_kill(pthread_self(), signals[which]);
	else if (which == 2)
		kill(getpid(), SIGUSR2);
	else
		setitimer(ITIMER_REAL, &soon, NULL);
}

void wait_for(pid_t pid, int status)
{
	int got = -1;
	if (pid > 0 && waitpid(pid, &got, 0) == pid && got == status)
		return;
	fprintf(stderr, "child %d: status %#x instead of %#x\n", pid, (unsigned)got,
		(unsigned)status);
	fail("child");
}

static void a_child(unsigned *of)
{
	bool touches = draw(of, 2);
	pid_t pid = fork();
	if (!pid) {
		char *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			       0);
		if (touches)
			*p = 1;
		_exit(3);
	}
	wait_for(pid, 3 << 8);
}

static void a_program(unsigned *of)
{
	char *argv[] = { "true", NULL };
	pid_t pid;
	(void)of;
	if (posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ))
		fail("program");
	wait_for(pid, 0);
}

static void a_library(unsigned *of)
{
	static const char *const names[] = { "libm.so.6", "libpthread.so.0", "libresolv.so.2" };
	pthread_mutex_lock(&mob_loading);
	void *handle = dlopen(names[draw(of, 3)], RTLD_NOW | RTLD_LOCAL);
	if (!handle || dlclose(handle))
		fail("library");
	pthread_mutex_unlock(&mob_loading);
}

static void a_list(unsigned *of)
{
	char text[256];
	int fd = open("/proc/thread-self/maps", O_RDONLY | O_CLOEXEC);
	if (read(fd, text, 1 + draw(of, sizeof(text))) <= 0 || close(fd))
		fail("list");
}

static void some_memory(unsigned *of)
{
	for (int i = 0; i < 5; i++) {
		size_t size = 1000 + draw(of, 300000);
		char *p = malloc(size);
		p = realloc(p, 2 * size);
		p[2 * size - 1] = 1;
		free(p);
	}
	char *p = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(p, 1, 64 * PAGE);
	if (madvise(p, 64 * PAGE, MADV_DONTNEED) || p[5])
		fail("memory");
	p = mremap(p, 64 * PAGE, (1 + draw(of, 20000)) * PAGE, MREMAP_MAYMOVE);
	if (p == MAP_FAILED)
		fail("mremap");
}

static void fixed(unsigned *of)
{
	char *p = (char *)0x10000000000 + draw(of, 100) * PAGE;
	if (mmap(p, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
	    p)
		fail("fixed");
}

static void a_wait(unsigned *of)
{
	struct timespec soon = { .tv_nsec = draw(of, 300000) };
	sigset_t none;
	int fd[2];
	sigemptyset(&none);
	if (draw(of, 2)) {
		nanosleep(&soon, NULL);
		return;
	}
	if (pipe2(fd, O_CLOEXEC) || write(fd[1], "x", 1) != 1)
		fail("pipe");
	ppoll(&(struct pollfd){ fd[0], POLLIN, 0 }, 1, &soon, &none);
	close(fd[0]);
	close(fd[1]);
}

static void a_limit(unsigned *of)
{
	struct rlimit limit;
	(void)of;
	if (getrlimit(RLIMIT_AS, &limit) || setrlimit(RLIMIT_AS, &limit))
		fail("limit");
}

static mob_act *const all[] = { a_thread,    a_file,  some_code, a_handler, a_mask,
				a_signal,    a_child, a_program, a_library, a_list,
				some_memory, fixed,   a_wait,	 a_limit };
#define KINDS (sizeof(all) / sizeof(*all))

static long done[KINDS + MORE];
static bool first_dies; /* and with it what /proc/self and the process's id mean to the kernel */

static void act(unsigned *of, unsigned n)
{
	while (n-- > 0) {
		unsigned kind = draw(of, KINDS + (first_dies ? 0 : mob_n_more));
		(kind < KINDS ? all[kind] : mob_more[kind - KINDS])(of);
		__atomic_fetch_add(&done[kind], 1, __ATOMIC_SEQ_CST);
	}
}

static void *one(void *arg)
{
	unsigned of = seed * MOST + (unsigned)(unsigned long)arg;
	mob_tids[(unsigned long)arg] = gettid();
	pthread_barrier_wait(&barrier);
	act(&of, acts);
	__atomic_store_n(&mob_tids[(unsigned long)arg], 0, __ATOMIC_SEQ_CST);
	return NULL;
}

static void end(const char *how, char **argv)
{
	char next[16], half[16];
	if (!strcmp(how, "exit"))
		_exit(5);
	if (!strcmp(how, "kill"))
		kill(getpid(), SIGKILL);
	if (!strcmp(how, "abort"))
		abort();
	if (!strcmp(how, "leave"))
		pthread_exit(NULL);
	/* none is to come before the next image handles them */
	signal(SIGUSR1, SIG_IGN);
	signal(SIGUSR2, SIG_IGN);
	signal(SIGALRM, SIG_IGN);
	signal(SIGPROF, SIG_IGN);
	signal(SIGVTALRM, SIG_IGN);
	snprintf(next, sizeof(next), "%u", seed + 1);
	snprintf(half, sizeof(half), "%u", acts / 2);
	execl("/proc/self/exe", argv[0], next, argv[2], half, (char *)NULL);
	fail("exec");
}

int main(int argc, char **argv)
{
	struct sigaction sa = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	unsigned n = argc > 3 ? (unsigned)atoi(argv[2]) : 0, of;
	pthread_t thread[MOST];
	if (!n || n > MOST)
		return 2;
	seed = (unsigned)atoi(argv[1]);
	acts = (unsigned)atoi(argv[3]);
	file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	sigaction(SIGUSR1, &sa, NULL);
	sigaction(SIGUSR2, &sa, NULL);
	sigaction(SIGALRM, &sa, NULL);
	sigaction(SIGTRAP, &sa, NULL);
	mob_begin();
	mob_n = n;
	first_dies = argc > 4 && !strcmp(argv[4], "leave");
	pthread_barrier_init(&barrier, NULL, n);
	for (unsigned long i = 1; i < n; i++)
		if (pthread_create(&thread[i], NULL, one, (void *)i))
			fail("create");
	if (argc > 4) {
		of = seed * MOST;
		pthread_barrier_wait(&barrier);
		act(&of, acts / 2);
		end(argv[4], argv);
	}
	one(NULL);
	for (unsigned i = 1; i < n; i++)
		pthread_join(thread[i], NULL);
	for (size_t i = 0; i < KINDS + mob_n_more; i++)
		printf("%ld ", done[i]);
	puts("");
	return 0;
}
