/*
 * The program that tests/cli/crowd.sh records.
 *
 *   crowd KIND N    N threads that wait for each other, and then all do the same thing
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define TIMES 10
#define PAGE  4096ul

static pthread_barrier_t barrier;
static pthread_attr_t small;
static int file;
static long sum;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void on_signal(int sig)
{
	__atomic_fetch_add(&sum, sig == SIGUSR1, __ATOMIC_SEQ_CST);
}

static void *nothing(void *arg)
{
	return arg;
}

static void make_thread(void)
{
	pthread_t thread;
	if (pthread_create(&thread, &small, nothing, NULL) || pthread_join(thread, NULL))
		fail("thread");
}

static void map_file(void)
{
	for (int i = 0; i < TIMES; i++) {
		char *p = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, file, 0);
		if (p == MAP_FAILED || *p != 0x7f || munmap(p, PAGE))
			fail("file");
	}
}

static void make_code(void)
{
	unsigned char text[] = { 0xb8, 0, 0, 0, 0, 0xc3 }; /* mov eax, number; ret */
	unsigned char *p =
		mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		fail("code");
	for (int i = 0; i < TIMES; i++) {
		if (mprotect(p, PAGE, PROT_READ | PROT_WRITE))
			fail("code");
		text[1] = (unsigned char)i;
		memcpy(p, text, sizeof(text));
		if (mprotect(p, PAGE, PROT_READ | PROT_EXEC) || ((int (*)(void))(void *)p)() != i)
			fail("code");
	}
}

/* What the kernel throws away then may be a trap of somebody else's. */
static void ignore_traps(void)
{
	struct sigaction ignore = { .sa_handler = SIG_IGN }, old;
	for (int i = 0; i < TIMES; i++)
		if (sigaction(SIGTRAP, &ignore, &old) || (i && old.sa_handler != SIG_IGN))
			fail("ignore");
	if (raise(SIGTRAP))
		fail("raise");
}

/* One puts a handler there while others ignore it, or have it blocked and trap. */
static void handle_traps(void)
{
	struct sigaction sa = { .sa_flags = SA_RESTART };
	sigset_t all, old;
	unsigned of = (unsigned)gettid();
	sigfillset(&all);
	for (int i = 0; i < TIMES; i++) {
		sa.sa_handler = of >> i & 1 ? SIG_IGN : on_signal;
		if (sigaction(SIGTRAP, &sa, NULL) || pthread_sigmask(SIG_BLOCK, &all, &old))
			fail("handle");
		make_thread();
		if (pthread_sigmask(SIG_SETMASK, &old, NULL))
			fail("handle");
	}
}

/* The first waits for it again and again, sent by the second, while all others have it blocked and
 * are in each other's way: no system call brings them to the supervisor. */
static void await_traps(void)
{
	static unsigned n, got;
	static pthread_t first;
	const unsigned i = __atomic_fetch_add(&n, 1, __ATOMIC_SEQ_CST);
	sigset_t all, old;
	sigfillset(&all);
	if (pthread_sigmask(SIG_BLOCK, &all, &old))
		fail("await");
	if (i == 0) {
		__atomic_store_n(&first, pthread_self(), __ATOMIC_SEQ_CST);
		for (; got < TIMES; __atomic_fetch_add(&got, 1, __ATOMIC_SEQ_CST))
			sigsuspend(&old);
		return;
	}
	for (unsigned sent = 0; __atomic_load_n(&got, __ATOMIC_SEQ_CST) < TIMES;) {
		pthread_t whom = __atomic_load_n(&first, __ATOMIC_SEQ_CST);
		__atomic_fetch_add(&n, 1, __ATOMIC_SEQ_CST);
		if (i == 1 && whom && sent == __atomic_load_n(&got, __ATOMIC_SEQ_CST)) {
			sent++;
			if (pthread_kill(whom, SIGTRAP))
				fail("await");
		}
	}
}

static void change_mask(void)
{
	sigset_t all, old;
	sigfillset(&all);
	for (int i = 0; i < TIMES; i++)
		if (pthread_sigmask(SIG_BLOCK, &all, &old) ||
		    pthread_sigmask(SIG_SETMASK, &old, NULL))
			fail("mask");
}

static void send_signals(void)
{
	for (int i = 0; i < TIMES; i++)
		if (pthread_kill(pthread_self(), SIGUSR1))
			fail("kill");
}

static void wait_for(pid_t pid)
{
	int status;
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		fail("child");
}

static void make_child(void)
{
	pid_t pid = fork();
	if (!pid)
		_exit(0);
	wait_for(pid);
}

static void execute(void)
{
	char *argv[] = { "true", NULL };
	pid_t pid;
	if (posix_spawn(&pid, "/bin/true", NULL, NULL, argv, NULL))
		fail("spawn");
	wait_for(pid);
}

/* Where it grows to may be what other things are at, the vdso for instance: it moves. */
static void grow(void)
{
	for (int i = 0; i < 3; i++) {
		const size_t size = 64ul << 20;
		char *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			       0);
		if (p != MAP_FAILED)
			p = mremap(p, PAGE, size, MREMAP_MAYMOVE);
		if (p == MAP_FAILED)
			fail("grow");
		p[size - 1] = 1;
		make_thread();
		if (munmap(p, size))
			fail("grow");
	}
	execute();
}

/* With "vdso" there is none, and deja has no instruction in there. */
static void use_none(void)
{
	make_thread();
	execute();
}

static const struct {
	const char *name;
	void (*act)(void);
} kinds[] = {
	{ "thread", make_thread },  { "file", map_file },	{ "code", make_code },
	{ "ignore", ignore_traps }, { "mask", change_mask },	{ "handle", handle_traps },
	{ "await", await_traps },   { "signal", send_signals }, { "fork", make_child },
	{ "spawn", execute },	    { "grow", grow },		{ "vdso", use_none },
};

static void *one(void *arg)
{
	void (**act)(void) = arg;
	pthread_barrier_wait(&barrier);
	(*act)();
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned n = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
	pthread_t *thread = calloc(n, sizeof(*thread));
	void (*act)(void) = NULL;
	for (size_t i = 0; argc > 1 && i < sizeof(kinds) / sizeof(*kinds); i++)
		if (!strcmp(argv[1], kinds[i].name))
			act = kinds[i].act;
	if (!act || !n || !thread)
		return 2;
	if (act == use_none && munmap((void *)getauxval(AT_SYSINFO_EHDR), 2 * PAGE))
		fail("vdso");
	signal(SIGUSR1, on_signal);
	if (act == handle_traps || act == await_traps)
		signal(SIGTRAP, on_signal);
	file = open("/proc/self/exe", O_RDONLY);
	pthread_barrier_init(&barrier, NULL, n);
	if (pthread_attr_init(&small) || pthread_attr_setstacksize(&small, 1 << 16))
		fail("attributes");
	for (unsigned i = 0; i < n; i++)
		if (pthread_create(&thread[i], &small, one, &act))
			fail("thread");
	for (unsigned i = 0; i < n; i++)
		pthread_join(thread[i], NULL);
	printf("%ld\n", sum);
	return 0;
}
