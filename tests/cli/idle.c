/*
 * Threads that touch much memory and then sleep, each in another way, for tests/cli/idle.sh.
 *
 * usage: idle threads WAIT | idle process WAIT | idle pipe WAIT | idle terminal WAIT
 *
 * Once all sleep, it is waited until the process takes no more than WAIT megabytes beside what the
 * threads have filled, which is more than it has natively and less than with the shadows of
 * all threads; if that takes too long, that is said. Then the threads are woken and go through
 * their memory, which must be as they left it, and all again. Signals, a fork and the end of the
 * process come while shadows are gone.
 *
 * threads: the first thread looks. process: a child looks at its parent, in which nobody is awake.
 * pipe: the same, and the parent reads. terminal: it reads what comes in two pieces, which is one
 * read of all only for who is not interrupted in between; so nothing of its memory may go.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

enum { WAYS = 6, THREADS = 2 * WAYS, WORDS = 2 << 18, ROUNDS = 2 };

static struct {
	pthread_t thread;
	unsigned *memory;
	int pipe[2];
	atomic_int asleep;
	unsigned sum, signals;
} all[THREADS];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t come = PTHREAD_COND_INITIALIZER;
static int turn;
static _Thread_local volatile unsigned signals;

static void on_signal(int sig)
{
	(void)sig;
	signals++;
}

static void fill(unsigned *memory, unsigned seed)
{
	for (unsigned i = 0; i < WORDS; i++)
		memory[i] = (seed + i) * 2654435761u;
}

static unsigned sum(const unsigned *memory)
{
	unsigned s = 0;
	for (unsigned i = 0; i < WORDS; i++)
		s = s * 31 + memory[i];
	return s;
}

static void await_turn(int n)
{
	pthread_mutex_lock(&lock);
	while (turn < n)
		pthread_cond_wait(&come, &lock);
	pthread_mutex_unlock(&lock);
}

static void sleep_somehow(unsigned i, int round)
{
	struct pollfd p = { all[i].pipe[0], POLLIN, 0 };
	sigset_t usr1, most;
	char c;
	switch (i % WAYS) {
	case 0:
		await_turn(round);
		break;
	case 1:
		if (read(all[i].pipe[0], &c, 1) != 1)
			abort();
		break;
	case 2: /* with a limit, which the signal does not change */
		while (poll(&p, 1, 100000) != 1)
			;
		if (read(all[i].pipe[0], &c, 1) != 1)
			abort();
		break;
	case 3: /* EINTR, and the mask of the call */
		sigfillset(&most);
		sigdelset(&most, SIGUSR1);
		sigsuspend(&most);
		break;
	case 4: /* made again behind the handler */
		while (read(all[i].pipe[0], &c, 1) != 1)
			;
		break;
	case 5: /* the handler runs in front of the wait that goes on */
		sigemptyset(&usr1);
		sigaddset(&usr1, SIGUSR1);
		pthread_sigmask(SIG_UNBLOCK, &usr1, NULL);
		await_turn(round);
		pthread_sigmask(SIG_BLOCK, &usr1, NULL);
	}
}

static void *work(void *arg)
{
	unsigned i = (unsigned)(size_t)arg;
	for (int round = 1; round <= ROUNDS; round++) {
		fill(all[i].memory, i * 7 + (unsigned)round);
		all[i].asleep = round;
		sleep_somehow(i, round);
		all[i].sum = all[i].sum * 17 + sum(all[i].memory) + signals;
	}
	all[i].signals = signals;
	all[i].asleep = ROUNDS + 1;
	if (i % 2)
		pause(); /* for good: the process ends while its shadow is gone */
	return NULL;
}

/* What it has of memory that is no file's. */
static double megabytes(pid_t pid)
{
	char path[64], line[256];
	double kb = 0;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, "RssAnon:", 8))
			kb = atof(line + 8);
	if (!f || !kb)
		abort();
	fclose(f);
	return kb / 1024;
}

/* Until the process takes little. */
static void await_small(pid_t pid, double most)
{
	struct timespec a_little = { 0, 20000000 };
	double mb = 0;
	for (int tries = 0; tries < 3000; tries++) {
		mb = megabytes(pid);
		if (mb <= most)
			return;
		nanosleep(&a_little, NULL);
	}
	printf("still %.0f MB\n", mb);
}

static void await_asleep(int round)
{
	struct timespec a_little = { 0, 20000000 };
	for (unsigned i = 0; i < THREADS; i++)
		while (all[i].asleep < round)
			nanosleep(&a_little, NULL);
	nanosleep(&a_little, NULL);
}

static void wake(int round)
{
	for (unsigned i = 0; i < THREADS; i++) {
		if (i % WAYS >= 3)
			pthread_kill(all[i].thread, SIGUSR1);
		if (i % WAYS == 1 || i % WAYS == 2 || i % WAYS == 4)
			if (write(all[i].pipe[1], "x", 1) != 1)
				abort();
	}
	pthread_mutex_lock(&lock);
	turn = round;
	pthread_cond_broadcast(&come);
	pthread_mutex_unlock(&lock);
}

/* A copy of the process, in which nothing is gone. */
static void look_from_child(void)
{
	fflush(stdout);
	pid_t pid = fork();
	if (!pid) {
		printf("child %08x\n", sum(all[3].memory));
		fflush(stdout);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
}

static void begin(void)
{
	struct sigaction sa = { .sa_handler = on_signal };
	sigset_t usr1;
	sigaction(SIGUSR1, &sa, NULL);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &usr1, NULL);
	for (unsigned i = 0; i < THREADS; i++) {
		all[i].memory = mmap(NULL, WORDS * sizeof(unsigned), PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (pipe(all[i].pipe))
			abort();
		sigset_t *mask = i % WAYS == 4 ? &usr1 : NULL;
		if (mask)
			pthread_sigmask(SIG_UNBLOCK, mask, NULL);
		pthread_create(&all[i].thread, NULL, work, (void *)(size_t)i);
		if (mask)
			pthread_sigmask(SIG_BLOCK, mask, NULL);
	}
}

static void threads(double most)
{
	begin();
	for (int round = 1; round <= ROUNDS; round++) {
		await_asleep(round);
		await_small(getpid(), most);
		if (round == 1)
			look_from_child();
		wake(round);
	}
	await_asleep(ROUNDS + 1);
	await_small(getpid(), most);
	for (unsigned i = 0; i < THREADS; i++)
		printf("%u %08x %s\n", i, all[i].sum, all[i].signals ? "signals" : "none");
}

/* A raw terminal whose reads want ten bytes; or a pipe. */
static void make_ends(bool terminal, int ends[2])
{
	struct termios t;
	if (!terminal && pipe(ends) == 0)
		return;
	ends[1] = posix_openpt(O_RDWR | O_NOCTTY);
	if (ends[1] < 0 || grantpt(ends[1]) || unlockpt(ends[1]))
		abort();
	ends[0] = open(ptsname(ends[1]), O_RDWR | O_NOCTTY);
	if (ends[0] < 0 || tcgetattr(ends[0], &t))
		abort();
	cfmakeraw(&t);
	t.c_cc[VMIN] = 10;
	t.c_cc[VTIME] = 0;
	tcsetattr(ends[0], TCSANOW, &t);
}

/* The parent reads. */
static void reading(bool terminal, double most)
{
	struct timespec a_second = { 1, 0 }, some = { 4, 0 };
	pid_t parent = getpid();
	int ends[2];
	char bytes[64];
	unsigned *memory = mmap(NULL, THREADS * WORDS * sizeof(unsigned), PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	make_ends(terminal, ends);
	for (unsigned i = 0; i < THREADS; i++)
		fill(memory + i * WORDS, i);
	pid_t pid = fork();
	if (!pid) {
		munmap(memory, THREADS * WORDS * sizeof(unsigned));
		if (terminal) {
			nanosleep(&a_second, NULL);
			if (write(ends[1], "one", 3) != 3)
				abort();
			nanosleep(&some, NULL);
		} else {
			await_small(parent, most);
		}
		if (write(ends[1], "two and more", 12) != 12)
			abort();
		fflush(stdout);
		_exit(0);
	}
	printf("read %zd\n", read(ends[0], bytes, terminal ? 10 : 12));
	waitpid(pid, NULL, 0);
	for (unsigned i = 0; i < THREADS; i++)
		printf("%u %08x\n", i, sum(memory + i * WORDS));
}

/* The parent sleeps. */
static void process(double most)
{
	pid_t parent = getpid();
	unsigned *memory = mmap(NULL, THREADS * WORDS * sizeof(unsigned), PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (unsigned i = 0; i < THREADS; i++)
		fill(memory + i * WORDS, i);
	pid_t pid = fork();
	if (!pid) {
		munmap(memory, THREADS * WORDS * sizeof(unsigned));
		await_small(parent, most);
		fflush(stdout);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	for (unsigned i = 0; i < THREADS; i++)
		printf("%u %08x\n", i, sum(memory + i * WORDS));
}

int main(int argc, char **argv)
{
	double own = THREADS * (WORDS / 1048576.0) * sizeof(unsigned); /* megabytes */
	double most = own + (argc > 2 ? atof(argv[2]) : 0);
	if (argc > 2 && !strcmp(argv[1], "threads"))
		threads(most);
	else if (argc > 2 && (!strcmp(argv[1], "pipe") || !strcmp(argv[1], "terminal")))
		reading(*argv[1] == 't', most);
	else
		process(most);
	return 0;
}
