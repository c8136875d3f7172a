/*
 * What makes it hard to say which memory an access of generated code was to (replayer/trail.c):
 * mappings that come, go and move between accesses, that share their place modulo 4 GiB, of which
 * one or both are touched; a stack that grows; what the kernel writes in between; a handler's
 * frame.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIZE 65536
#define LOW  0x100020000000UL
#define HIGH 0x100120000000UL /* the same place modulo 4 GiB */
#define EDGE 0x100300000000UL /* at a multiple of 4 GiB */

static volatile int handled;

static void handler(int signo)
{
	handled += signo;
}

static unsigned work(unsigned n)
{
	unsigned x = 1;

	while (n--)
		x = x * 1103515245 + 12345;
	return x;
}

static unsigned char *map(unsigned long at)
{
	return mmap((void *)at, SIZE, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);
}

static unsigned fill(unsigned char *p, unsigned x)
{
	for (unsigned i = 0; i < SIZE; i += 1 + i % 7)
		p[i] = (unsigned char)(p[i] + (x = x * 1103515245 + 12345));
	return x;
}

/* A stack that reaches further down than it did. */
static unsigned deep(unsigned n)
{
	volatile unsigned char room[3000];

	room[n % 3000] = (unsigned char)n;
	return n ? deep(n - 1) + room[n % 3000] : 0;
}

static unsigned moved(unsigned x)
{
	unsigned char *p = map(0), *q;

	x = fill(p, x);
	q = mremap(p, SIZE, 2 * SIZE, MREMAP_MAYMOVE);
	x = fill(q + SIZE / 2, x);
	munmap(q, SIZE);
	x = fill(q + SIZE, x);
	munmap(q + SIZE, SIZE);
	return x;
}

static unsigned written_by_kernel(unsigned x)
{
	int fd = open("/proc/self/exe", O_RDONLY);
	unsigned char *p = map(0);

	x = fill(p, x);
	read(fd, p + 100, 20000); /* stale from here on, */
	x = work(x % 1000);
	for (unsigned i = 0; i < 5000; i++) /* until it is read */
		x += p[i];
	madvise(p, 8192, MADV_DONTNEED);
	x += p[5] + (p[5000] = (unsigned char)x);
	mprotect(p, SIZE, PROT_READ);
	x += p[9000];
	close(fd);
	munmap(p, SIZE);
	return x;
}

int main(void)
{
	unsigned char *low = map(LOW), *high, *edge = map(EDGE);
	unsigned x = 1;

	signal(SIGUSR1, handler);
	for (unsigned round = 0; round < 12; round++) {
		x = fill(low, x);
		if (round % 11 == 0) /* long nothing happens to it, and at the end it does */
			x = fill(edge, x);
		high = map(HIGH);
		if (round % 3 == 1)
			x = fill(high, x);
		if (round % 3 == 2)
			x = fill(low, fill(high, x));
		munmap(high, SIZE);
		x = moved(written_by_kernel(x));
		x += deep(40 * round);
		raise(SIGUSR1);
		x += work(3000);
	}
	printf("%u %d\n", x, handled);
	return 0;
}
