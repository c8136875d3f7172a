/* Signals of every kind, for the end-to-end tests: synchronous ones with handlers that jump away or
 * repair, asynchronous ones that hit computation, string instructions and system calls. Prints only
 * what does not depend on timing. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static volatile sig_atomic_t ticks;
static sigjmp_buf jump;
static char *page;

static void on_tick(int sig, siginfo_t *i, void *uc)
{
	(void)sig;
	(void)i;
	(void)uc;
	ticks++;
}

static void on_segv(int sig, siginfo_t *i, void *uc)
{
	(void)uc;
	printf("signal %d code %d address offset %ld\n", sig, i->si_code,
	       (long)((char *)i->si_addr - page));
	siglongjmp(jump, 1);
}

static void on_segv_repair(int sig, siginfo_t *i, void *uc)
{
	(void)sig;
	(void)i;
	(void)uc;
	mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

static void on_fpe(int sig, siginfo_t *i, void *uc)
{
	ucontext_t *u = uc;
	printf("signal %d code %d at its own rip: %d\n", sig, i->si_code,
	       (uintptr_t)i->si_addr == (uintptr_t)u->uc_mcontext.gregs[REG_RIP]);
	u->uc_mcontext.gregs[REG_RCX] = 7; /* another divisor */
}

static void install(int sig, void (*h)(int, siginfo_t *, void *), int flags)
{
	struct sigaction sa;
	memset(&sa, 0, sizeof(sa));
	sa.sa_sigaction = h;
	sa.sa_flags = SA_SIGINFO | flags;
	sigaction(sig, &sa, NULL);
}

static unsigned long work(unsigned long n)
{
	unsigned long h = 1469598103934665603UL;
	static char a[4096], b[4096];
	for (unsigned long k = 0; k < n; k++) {
		h = (h ^ k) * 1099511628211UL;
		a[k % 4096] = (char)h;
		if (k % 4096 == 0) {
			unsigned long len = 4096;
			char *src = a, *dst = b;
			__asm__ volatile("rep movsb"
					 : "+S"(src), "+D"(dst), "+c"(len)
					 :
					 : "memory");
			h += (unsigned char)b[k % 4096];
		}
	}
	return h;
}

int main(void)
{
	page = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	install(SIGSEGV, on_segv, 0);
	if (!sigsetjmp(jump, 1))
		page[123] = 1;
	if (!sigsetjmp(jump, 1))
		printf("%d\n", page[4096 + 77]);
	install(SIGSEGV, on_segv_repair, 0);
	page[5] = 42;
	printf("repaired: %d\n", page[5]);

	install(SIGFPE, on_fpe, 0);
	unsigned long q = 100, zero = 0;
	__asm__ volatile("xor %%edx, %%edx; divq %%rcx" : "+a"(q), "+c"(zero) : : "rdx");
	printf("quotient %lu\n", q);

	/* alternate stack */
	stack_t ss = { .ss_sp = malloc(65536), .ss_size = 65536 };
	sigaltstack(&ss, NULL);
	install(SIGUSR1, on_tick, SA_ONSTACK);
	raise(SIGUSR1);
	kill(getpid(), SIGUSR1);
	printf("raised: %d\n", (int)ticks);

	/* a storm while computing: the result must not change */
	unsigned long quiet = work(3000000);
	struct sigaction sa = { .sa_sigaction = on_tick, .sa_flags = SA_RESTART | SA_SIGINFO };
	sigaction(SIGALRM, &sa, NULL);
	struct itimerval it = { { 0, 3000 }, { 0, 3000 } };
	setitimer(ITIMER_REAL, &it, NULL);
	unsigned long noisy = work(3000000);
	printf("same result under signals: %d\n", quiet == noisy);

	/* restarted and interrupted system calls */
	int fd[2];
	if (pipe(fd))
		return 1;
	pid_t child = fork();
	if (!child) {
		struct timespec t = { 0, 60000000 };
		nanosleep(&t, NULL);
		(void)!write(fd[1], "x", 1);
		_exit(3);
	}
	char c = 0;
	long n = read(fd[0], &c, 1); /* SA_RESTART: goes on */
	printf("read %ld %c\n", n, c);
	int st;
	while (waitpid(child, &st, 0) < 0)
		;
	printf("child %d\n", WEXITSTATUS(st));
	sa.sa_flags = SA_SIGINFO;
	sigaction(SIGALRM, &sa, NULL);
	n = read(fd[0], &c, 1);
	printf("read %ld %s\n", n, strerror(errno));
	struct timespec t = { 5, 0 }, left;
	n = nanosleep(&t, &left);
	printf("nanosleep %ld %s\n", n, strerror(errno));
	n = pause();
	printf("pause %ld %s\n", n, strerror(errno));
	sigset_t none;
	sigemptyset(&none);
	n = sigsuspend(&none);
	printf("sigsuspend %ld %s\n", n, strerror(errno));
	it.it_interval.tv_usec = it.it_value.tv_usec = 0;
	setitimer(ITIMER_REAL, &it, NULL);
	printf("storm: %d\n", ticks > 5);
	fflush(stdout);
	abort();
}
