/* REP instructions of which every number is known: rep_copy, rep_fill, rep_find, rep_fault, which
 * is interrupted by a fault in its middle; and rep_long, in which signals arrive (with an
 * argument). */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>

static char a[5000], b[5000];
static char big[64 << 20];
static volatile int ticks;

__attribute__((noinline)) void rep_copy(void *to, const void *from, uint64_t n)
{
	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
}

__attribute__((noinline)) void rep_fill(void *to, uint64_t n)
{
	__asm__ volatile("rep stosl" : "+D"(to), "+c"(n) : "a"(7) : "memory");
}

__attribute__((noinline)) uint64_t rep_find(const void *in, uint64_t n)
{
	__asm__ volatile("repne scasb" : "+D"(in), "+c"(n) : "a"(3) : "memory", "cc");
	return n;
}

__attribute__((noinline)) void rep_long(void *to, uint64_t n)
{
	__asm__ volatile("rep stosb" : "+D"(to), "+c"(n) : "a"(1) : "memory");
}

static char *pages;

static void mend(int sig)
{
	(void)sig;
	mprotect(pages + 4096, 4096, PROT_READ | PROT_WRITE);
}

__attribute__((noinline)) void rep_fault(void *to, uint64_t n)
{
	__asm__ volatile("rep stosb" : "+D"(to), "+c"(n) : "a"(1) : "memory");
}

static void tick(int sig)
{
	(void)sig;
	ticks++;
}

int main(int argc, char **argv)
{
	(void)argv;
	for (int i = 0; i < 10; i++)
		rep_copy(a, b, 100 * i);
	for (int i = 0; i < 7; i++)
		rep_fill(a, 50);
	memset(b, 1, sizeof(b));
	b[40] = 3;
	for (int i = 0; i < 5; i++)
		rep_find(b, i < 2 ? 30 : 1000); /* 41 iterations, where it is found */
	signal(SIGSEGV, mend);
	pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(pages + 4096, 4096, PROT_NONE);
	rep_fault(pages, 5000);
	rep_fault(pages, 5000);
	if (argc > 1) {
		struct itimerval every = { { 0, 3000 }, { 0, 3000 } };
		signal(SIGALRM, tick);
		setitimer(ITIMER_REAL, &every, NULL);
		for (int i = 0; i < 20; i++)
			rep_long(big, sizeof(big));
		printf("%d\n", ticks);
	}
	return 0;
}
