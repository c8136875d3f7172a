/*
 * long [MILLIONS]: calls a function so many million times. Near the beginning a variable is
 * written, and a function called, that never are again.
 */
#include <stdio.h>
#include <stdlib.h>

/* All on one line, for a debugger. */
#define REPEAT(n, what)                                                                            \
	for (int i = 0; i < (n); i++)                                                              \
	what

static struct {
	int before[64], counts[64], between[64];
} state;
int first; /* the only writing of it is what a search back looks for */
static unsigned char *memory;

__attribute__((noinline)) void mark(int value)
{
	first = value;
}

__attribute__((noinline)) unsigned step(unsigned x)
{
	x = x * 1103515245 + 12345;
	memory[x % (8u << 20)] += x >> 24;
	state.counts[x >> 26]++;
	return x;
}

int main(int argc, char **argv)
{
	unsigned long n = argc > 1 ? strtoul(argv[1], NULL, 0) : 10;
	unsigned x = 1;

	memory = malloc(8u << 20);
	mark(7);
	REPEAT(2000, x = step(x));
	for (unsigned long i = 0; i < n * 1000000; i++)
		x = step(x);
	printf("%u\n", x);
	free(memory);
	return 0;
}
