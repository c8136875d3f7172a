/* For tests/cli/signals.sh: timers that are faster than the recorder. What the program does between
 * their signals it does natively and recorded, and the signals come.
 *
 * usage: timers interval|again|timer MICROSECONDS */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t came, again;
static long us;
static timer_t timer;

static void arm(int interval)
{
	struct itimerval v = { { 0, interval ? us : 0 }, { 0, us } };
	setitimer(ITIMER_REAL, &v, NULL);
}

static void handler(int sig)
{
	came += sig == SIGALRM || sig == SIGRTMIN;
	if (again)
		arm(0);
}

/* String instructions of so few elements that the signal often comes when the last one is done. */
static uint64_t short_strings(uint64_t seed)
{
	static char from[64], to[64];
	for (int i = 0; i < 800; i++) {
		size_t n = i % 3;
		void *d = to + i % 40, *s = from + i % 50;
		__asm__ volatile("rep movsb" : "+c"(n), "+D"(d), "+S"(s) : : "memory");
		n = i % 2 + 1;
		d = from + i % 50;
		__asm__ volatile("rep stosb" : "+c"(n), "+D"(d) : "a"(seed >> i % 50) : "memory");
		n = 2;
		__asm__ volatile("repe cmpsb" : "+c"(n), "+D"(d), "+S"(s) : : "cc", "memory");
		seed += n + (unsigned char)to[i % 40];
	}
	return seed;
}

/* Arithmetic, string instructions, calls that are made in the cache, by the recorder, and natively
 * executed instructions. */
static uint64_t work(uint64_t seed)
{
	static char from[5000], to[5000];
	struct timespec now;
	for (int i = 0; i < 3000; i++) {
		seed = seed * 6364136223846793005 + 1442695040888963407;
		from[i] = (char)(seed >> 60);
	}
	size_t n = sizeof(to);
	void *d = to, *s = from;
	__asm__ volatile("rep movsb" : "+c"(n), "+D"(d), "+S"(s) : : "memory");
	seed += (unsigned)memcmp(from, to, sizeof(to));
	seed += short_strings(seed) & 255;
	seed += (unsigned)clock_gettime(CLOCK_MONOTONIC, &now);
	char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	p[4096] = (char)seed;
	mprotect(p, 4096, PROT_READ);
	seed += (unsigned char)p[4096];
	munmap(p, 8192);
	unsigned short mask;
	__asm__ volatile("str %0" : "=r"(mask));
	return seed;
}

int main(int argc, char **argv)
{
	struct sigaction sa = { .sa_handler = handler, .sa_flags = SA_RESTART };
	us = argc > 2 ? atol(argv[2]) : 1000;
	again = !strcmp(argv[1], "again");
	sigaction(SIGALRM, &sa, NULL);
	sigaction(SIGRTMIN, &sa, NULL);
	if (!strcmp(argv[1], "timer")) {
		struct sigevent e = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN };
		struct itimerspec v = { { 0, us * 1000 }, { 0, us * 1000 } };
		timer_create(CLOCK_MONOTONIC, &e, &timer);
		timer_settime(timer, 0, &v, NULL);
	} else {
		arm(!again);
	}
	uint64_t sum = 1;
	unsigned n = 0, waits = 0;
	for (; n < 30; n++)
		sum = work(sum);
	/* the last one before a wait may have been the only one that was on its way */
	for (; waits < 5 && !again; waits++)
		pause();
	while (came < 100)
		sum += work(sum) & 0;
	printf("%u %u %llx\n", n, waits, (unsigned long long)sum);
	return 0;
}
