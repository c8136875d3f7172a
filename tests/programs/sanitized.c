/*
 * What a sanitizer's runtime looks at: the heap, the stack, globals, strings, signals, longjmp,
 * mappings. Built with a sanitizer, which maps its own memory at fixed places all over the address
 * space. With an argument it goes wrong at the end, so that there is a report and an exit status.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static char table[64];
static volatile int handled;
static jmp_buf back;

static void handler(int sig)
{
	handled += sig;
}

__attribute__((noinline)) static long use(int n)
{
	char local[100];
	memset(local, n, sizeof(local));
	long s = 0;
	for (int i = 0; i < n; i++)
		s += local[i % 100];
	if (n == 77)
		longjmp(back, n);
	return s;
}

int main(int argc, char **argv)
{
	char *volatile p[300];
	volatile long s = 0;

	signal(SIGUSR1, handler);
	for (int i = 0; i < 300; i++) {
		p[i] = malloc((size_t)(10 + i * i));
		memset(p[i], i, (size_t)(10 + i * i));
	}
	for (int i = 0; i < 300; i += 2) {
		p[i] = realloc(p[i], (size_t)(20 + i * i));
		s += p[i][i];
	}
	for (int i = 0; i < 300; i++)
		free(p[i]);
	if (!setjmp(back))
		for (int i = 0; i < 100; i++)
			s += use(i);
	raise(SIGUSR1);
	for (int i = 0; i < 20; i++) {
		char *m = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			       -1, 0);
		m[i * 1000] = 1;
		s += m[i * 1000];
		munmap(m, 1 << 20);
	}
	snprintf(table, sizeof(table), "%ld %d", s, handled);
	puts(table);
	fflush(stdout);
	if (argc > 1) {
		volatile char *q = malloc(10);
		q[atoi(argv[1])] = 1;
		free((void *)q);
	}
	return 0;
}
