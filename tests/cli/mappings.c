/*
 * The program that tests/cli/mappings.sh records.
 *
 *   mappings random SEED ROUNDS   maps, unmaps, protects and moves memory and code at random, with
 *                                 signals and child processes in between, and once in a while
 *                                 says what the kernel has mapped: after protecting the page
 *                                 MARK, by which the records of that moment are found
 *   mappings threads SEED ROUNDS  the same by four threads at once, in each other's way, but
 *                                 while one of them says what there is
 *   mappings KIND N               N calls of a kind, N times two of "pair"
 *   mappings threads N            N times two by four threads
 *   mappings exec N               replaces itself N times
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE  4096ul
#define PAGES 200ul
#define FIRST 0x200000000000ul /* where nobody else maps anything */
#define LAST  (FIRST + PAGES * PAGE)
#define MARK  0x1ffff0000000ul
#define ASIDE 0x1fffe0000000ul /* the signal handler's */

static unsigned seed;
static unsigned char state[PAGES]; /* 0: not mapped; 1: data; 2: code */
static volatile unsigned handled;
static unsigned rounds; /* of several threads */

static unsigned draw(unsigned n)
{
	seed = seed * 1103515245u + 12345u;
	return (seed >> 8) % n;
}

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

/* ---- what the kernel says ------------------------------------------------------------------ */

/* Lines of start, end and permissions; neighbours with the same permissions are one. */
static void print_mappings(void)
{
	static char text[1 << 17];
	unsigned long from = 0, to = 0;
	char perm[5] = "", *next;
	size_t n = 0;
	ssize_t got;
	int fd = open("/proc/self/maps", O_RDONLY); /* stdio would want memory */
	while (fd >= 0 && (got = read(fd, text + n, sizeof(text) - 1 - n)) > 0)
		n += (size_t)got;
	if (!n || close(fd))
		fail("/proc/self/maps");
	text[n] = 0;
	for (char *line = text; *line; line = next) {
		next = strchr(line, '\n');
		*next++ = 0;
		unsigned long a, b;
		char p[5];
		if (sscanf(line, "%lx-%lx %4s", &a, &b, p) != 3)
			continue;
		if (!strstr(line, "[heap]") && (a < ASIDE || a >= LAST))
			continue;
		if (a == to && !strcmp(p, perm)) {
			to = b;
			continue;
		}
		if (to)
			printf("%lx %lx %s\n", from, to, perm);
		from = a;
		to = b;
		strcpy(perm, p);
	}
	if (to)
		printf("%lx %lx %s\n", from, to, perm);
}

static void mark(void)
{
	static int prot = PROT_READ;
	sigset_t all, before;
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &before);
	prot ^= PROT_WRITE;
	if (mprotect((void *)MARK, PAGE, prot))
		fail("mark");
	puts("mark");
	print_mappings();
	fflush(stdout);
	sigprocmask(SIG_SETMASK, &before, NULL);
}

/* ---- what it does --------------------------------------------------------------------------- */

static void on_signal(int sig)
{
	(void)sig;
	unsigned char *p = mmap((void *)ASIDE, 3 * PAGE, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	if (p == (void *)ASIDE && !rounds) /* else another thread may just unmap it */
		p[PAGE] = 1;
	if (handled++ % 2)
		munmap(p + PAGE, PAGE);
}

static void map(unsigned at, unsigned n)
{
	static const int flags[] = { MAP_PRIVATE | MAP_FIXED, MAP_SHARED | MAP_FIXED,
				     MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
				     MAP_PRIVATE | MAP_FIXED_NOREPLACE, MAP_PRIVATE };
	char *want = (char *)FIRST + at * PAGE;
	char *p = mmap(want, n * PAGE, (int)draw(4), flags[draw(5)] | MAP_ANONYMOUS, -1, 0);
	if (p == want)
		memset(state + at, 1, n);
	else if (p != MAP_FAILED) /* somewhere else, outside of what is printed */
		munmap(p, n * PAGE);
}

/* Of a file, in every way, also such as the kernel refuses. */
static void map_file(unsigned at, unsigned n)
{
	static const int flags[] = { MAP_PRIVATE | MAP_FIXED, MAP_PRIVATE | MAP_FIXED,
				     MAP_PRIVATE | MAP_FIXED | MAP_DENYWRITE, MAP_PRIVATE };
	char *want = draw(8) ? (char *)FIRST + at * PAGE : NULL;
	int fd = draw(10) ? open("/proc/self/exe", O_RDONLY) : -1;
	unsigned long offset = draw(3) * PAGE + (draw(10) ? 0 : 8);
	char *p = mmap(want, n * PAGE, (int)draw(8), flags[draw(4)] & (want ? -1 : ~MAP_FIXED), fd,
		       (off_t)offset);
	if ((p == MAP_FAILED) != (fd < 0 || offset % PAGE) || (fd >= 0 && close(fd)))
		fail("map_file");
	if (p == want && want)
		memset(state + at, 1, n);
	else if (p != MAP_FAILED)
		munmap(p, n * PAGE);
}

static void unmap(unsigned at, unsigned n)
{
	if (munmap((char *)FIRST + at * PAGE, n * PAGE))
		fail("munmap");
	memset(state + at, 0, n);
}

static void protect(unsigned at, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (!state[at + i]) /* the kernel would do the part before the hole */
			return;
	if (mprotect((char *)FIRST + at * PAGE, n * PAGE, (int)draw(4)))
		fail("mprotect");
	memset(state + at, 1, n);
}

/* A function that returns a number, in a page of its own or one that was anything before. */
static void code(unsigned at)
{
	unsigned char text[] = { 0xb8, 0, 0, 0, 0, 0xc3 }; /* mov eax, number; ret */
	unsigned char *p = (unsigned char *)FIRST + at * PAGE;
	int number = (int)draw(1000000);
	if (state[at] == 2 && draw(2)) {
		if (mprotect(p, PAGE, PROT_READ | PROT_WRITE))
			fail("code");
	} else if (mmap(p, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
			-1, 0) != p) {
		fail("code");
	}
	memcpy(text + 1, &number, 4);
	memcpy(p, text, sizeof(text));
	if (mprotect(p, PAGE, PROT_READ | PROT_EXEC))
		fail("code");
	state[at] = 2;
	int got = ((int (*)(void))(void *)p)();
	if (got != number) {
		printf("code returned %d instead of %d\n", got, number);
		exit(1);
	}
}

static void move(unsigned at, unsigned n)
{
	char *p = (char *)FIRST + at * PAGE, *q;
	unsigned to = draw(PAGES - 8), m = 1 + draw(8);
	for (unsigned i = 0; i < n; i++)
		if (state[at + i] != 1)
			return;
	if (draw(2)) { /* to somewhere, and back if it can be */
		q = mremap(p, n * PAGE, m * PAGE, MREMAP_MAYMOVE);
		if (q == MAP_FAILED)
			return;
		if (q == p && m > n)
			memset(state + at + n, 1, m - n);
		else if (q == p)
			memset(state + at + m, 0, n - m);
		else
			memset(state + at, 0, n);
		if (q != p && (unsigned long)q - FIRST >= PAGES * PAGE)
			munmap(q, m * PAGE);
		return;
	}
	if (to < at + n && at < to + m)
		return;
	q = (char *)FIRST + to * PAGE;
	if (mremap(p, n * PAGE, m * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, q) != q)
		return;
	memset(state + at, 0, n);
	memset(state + to, 1, m);
}

static void child(void)
{
	pid_t pid = fork();
	if (pid == 0) {
		for (unsigned i = 0; i < 50; i++)
			munmap((char *)FIRST + draw(PAGES) * PAGE, PAGE);
		_exit(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
		      MAP_FAILED);
	}
	int status = -1;
	while (waitpid(pid, &status, 0) < 0)
		;
	if (status)
		fail("child");
}

/* The same by another thread, without libc, which would have memory on the heap for it; then this
 * one is alone again. */
static int a_few(void *unused)
{
	for (unsigned i = 0; i < 3; i++) {
		map(draw(PAGES - 16), 1 + draw(8));
		unmap(draw(PAGES - 16), 1 + draw(8));
		protect(draw(PAGES - 16), 1 + draw(8));
	}
	(void)unused;
	return 0;
}

static void thread(void)
{
	static char stack[1 << 16];
	static int tid; /* becomes 0 when the thread has ended: clone(2) */
	sigset_t timer; /* its handlers would get in each other's way */
	int now;
	sigemptyset(&timer);
	sigaddset(&timer, SIGALRM);
	sigprocmask(SIG_BLOCK, &timer, NULL);
	if (clone(a_few, stack + sizeof(stack),
		  CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
			  CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID,
		  NULL, &tid, NULL, &tid) < 0)
		fail("thread");
	while ((now = __atomic_load_n(&tid, __ATOMIC_ACQUIRE)))
		syscall(SYS_futex, &tid, FUTEX_WAIT, now, NULL);
	sigprocmask(SIG_UNBLOCK, &timer, NULL);
}

static void step(void)
{
	static char *heap;
	unsigned at = draw(PAGES - 16), n = 1 + draw(8);
	if (!heap)
		heap = sbrk(0);
	switch (draw(24)) {
	case 0 ... 5:
		map(at, n);
		break;
	case 6 ... 10:
		unmap(at, n);
		break;
	case 11 ... 15:
		protect(at, n);
		break;
	case 16 ... 18:
		syscall(SYS_brk, heap + draw(64) * 1000);
		break;
	case 19:
	case 20:
		move(at, n);
		break;
	case 21:
		map_file(at, n);
		break;
	case 22:
		code(at);
		break;
	default:
		if (draw(40) == 0)
			child();
		else if (draw(40) == 0)
			thread();
	}
}

static int at_random(char **argv)
{
	struct sigaction sa = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	struct itimerval every = { { 0, 700 }, { 0, 700 } };
	unsigned n = (unsigned)atoi(argv[3]);
	seed = (unsigned)atoi(argv[2]);
	static char buffer[1 << 16];
	setvbuf(stdout, buffer, _IOFBF, sizeof(buffer));
	if (mmap((void *)MARK, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	    MAP_FAILED)
		fail("mark");
	sigaction(SIGALRM, &sa, NULL);
	if (setitimer(ITIMER_REAL, &every, NULL))
		fail("setitimer");
	for (unsigned i = 0; i < n; i++) {
		if (i % 50 == 0)
			mark();
		step();
	}
	mark();
	if (argv[4]) {
		signal(SIGALRM, SIG_IGN);
		execl(argv[4], argv[0], "random", argv[3], argv[3], (char *)NULL);
		fail("exec");
	}
	fprintf(stderr, "%u signals\n", handled);
	return 0;
}

/* ---- several at once --------------------------------------------------------------------------
 */

#define THREADS 4u
#define FREE	(PAGES - 2 * THREADS) /* pages for all; behind them two for each */
#define APART	40u		      /* rounds between two marks */

static pthread_barrier_t barrier;

static unsigned next(unsigned *of, unsigned n)
{
	*of = *of * 1103515245u + 12345u;
	return (*of >> 8) % n;
}

/* Its own page, as data and as code by turns. */
static void own_code(unsigned who, unsigned number)
{
	unsigned char text[] = { 0xb8, 0, 0, 0, 0, 0xc3 };
	unsigned char *p = (unsigned char *)FIRST + (FREE + 2 * who) * PAGE;
	if (mprotect(p, PAGE, PROT_READ | PROT_WRITE))
		fail("own code");
	memcpy(text + 1, &number, 4);
	memcpy(p, text, sizeof(text));
	if (mprotect(p, PAGE, PROT_READ | PROT_EXEC))
		fail("own code");
	unsigned got = ((unsigned (*)(void))(void *)p)();
	if (got != number) {
		printf("code returned %u instead of %u\n", got, number);
		exit(1);
	}
}

/* Whatever is there just now; it may fail. */
static void one_of_several(unsigned who, unsigned *of)
{
	static const int flags[] = { MAP_PRIVATE | MAP_FIXED, MAP_SHARED | MAP_FIXED,
				     MAP_PRIVATE | MAP_FIXED_NOREPLACE, MAP_PRIVATE };
	unsigned at = next(of, FREE - 8), n = 1 + next(of, 8), m = 1 + next(of, 8), what;
	char *p = (char *)FIRST + at * PAGE, *q = MAP_FAILED;
	switch (what = next(of, 20)) {
	case 0 ... 5:
		q = mmap(p, n * PAGE, (int)next(of, 4), flags[next(of, 4)] | MAP_ANONYMOUS, -1, 0);
		break;
	case 6 ... 8:
		munmap(p, n * PAGE);
		break;
	case 9 ... 12:
		mprotect(p, n * PAGE, (int)next(of, 4));
		break;
	case 13:
		q = mremap(p, n * PAGE, m * PAGE, next(of, 2) ? MREMAP_MAYMOVE : 0);
		break;
	case 14:
		mremap(p, n * PAGE, m * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
		       (char *)FIRST + next(of, FREE - 8) * PAGE);
		break;
	case 15:
	case 16:
		own_code(who, next(of, 1000000));
		break;
	case 17:
		q = mmap(NULL, n * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			 0);
		if (q != MAP_FAILED)
			memset(q, (int)n, n * PAGE);
		break;
	case 18:
		p = sbrk(0);
		syscall(SYS_brk, p + (next(of, 3) - 1) * 3 * PAGE);
		break;
	default:
		if (who == 0 && next(of, 30) == 0)
			child();
	}
	/* elsewhere, outside of what is printed */
	if (q != MAP_FAILED && (unsigned long)q - FIRST >= PAGES * PAGE)
		munmap(q, (what == 13 ? m : n) * PAGE);
}

static void *several(void *arg)
{
	unsigned who = (unsigned)(unsigned long)arg, of = seed * THREADS + who;
	sigset_t timer;
	sigemptyset(&timer);
	sigaddset(&timer, SIGALRM);
	for (unsigned i = 0; i < rounds; i++) {
		if (i % APART == 0) {
			pthread_sigmask(SIG_BLOCK, &timer, NULL);
			pthread_barrier_wait(&barrier);
			if (who == i / APART % THREADS)
				mark();
			pthread_barrier_wait(&barrier);
			pthread_sigmask(SIG_UNBLOCK, &timer, NULL);
		}
		one_of_several(who, &of);
	}
	return NULL;
}

static int by_threads(char **argv)
{
	struct sigaction sa = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	struct itimerval every = { { 0, 700 }, { 0, 700 } };
	static char buffer[1 << 16];
	pthread_t thread[THREADS];
	setvbuf(stdout, buffer, _IOFBF, sizeof(buffer));
	seed = (unsigned)atoi(argv[2]);
	rounds = (unsigned)atoi(argv[3]);
	if (mmap((void *)MARK, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
		    MAP_FAILED ||
	    mmap((char *)FIRST + FREE * PAGE, 2 * THREADS * PAGE, PROT_READ,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		fail("mark");
	sigaction(SIGALRM, &sa, NULL);
	if (seed % 2 && setitimer(ITIMER_REAL, &every, NULL))
		fail("setitimer");
	pthread_barrier_init(&barrier, NULL, THREADS);
	for (unsigned long i = 1; i < THREADS; i++)
		if (pthread_create(&thread[i], NULL, several, (void *)i))
			fail("thread");
	several(NULL);
	for (unsigned long i = 1; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	fprintf(stderr, "%u signals\n", handled);
	return 0;
}

static void *pairs(void *arg)
{
	for (unsigned i = 0; i < rounds; i++)
		munmap(mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0),
		       2 * PAGE);
	return arg;
}

/* N calls in all, by so many threads. */
static void calls_by(unsigned n, unsigned by)
{
	pthread_t thread[64];
	rounds = n / by;
	for (unsigned i = 0; i < by; i++)
		if (pthread_create(&thread[i], NULL, pairs, NULL))
			fail("thread");
	for (unsigned i = 0; i < by; i++)
		pthread_join(thread[i], NULL);
}

static void calls(const char *kind, unsigned n)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
	char *p = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0), *heap = sbrk(0);
	if (!strcmp(kind, "after")) { /* a thread */
		thread();
		kind = "pair";
	}
	if (!strcmp(kind, "threads")) {
		calls_by(n, 4);
		return;
	}
	for (unsigned i = 0; i < n; i++) {
		if (!strcmp(kind, "pair"))
			munmap(mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0),
			       2 * PAGE);
		else if (!strcmp(kind, "brk"))
			syscall(SYS_brk, heap + (i % 2 ? PAGE : 3 * PAGE));
		else if (!strcmp(kind, "mprotect"))
			mprotect(p + PAGE, PAGE, i % 2 ? PROT_READ | PROT_WRITE : PROT_READ);
		else if (!strcmp(kind, "mremap"))
			p = mremap(p, (i % 2 ? 128 : 64) * PAGE, (i % 2 ? 64 : 128) * PAGE,
				   MREMAP_MAYMOVE);
		else if (!strcmp(kind, "many")) /* that the kernel cannot join */
			mmap(NULL, PAGE, i % 2 ? PROT_READ : PROT_READ | PROT_WRITE, flags, -1, 0);
	}
}

int main(int argc, char **argv)
{
	if (argc > 3 && !strcmp(argv[1], "random"))
		return at_random(argv);
	if (argc > 3 && !strcmp(argv[1], "threads"))
		return by_threads(argv);
	if (argc != 3)
		return 2;
	if (!strcmp(argv[1], "exec")) {
		char n[16];
		snprintf(n, sizeof(n), "%d", atoi(argv[2]) - 1);
		if (atoi(argv[2]) > 0)
			execl("/proc/self/exe", argv[0], "exec", n, (char *)NULL);
		return 0;
	}
	calls(argv[1], (unsigned)atoi(argv[2]));
	return 0;
}
