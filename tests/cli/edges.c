/* Branches of every kind, for counting; a program that can be compiled with --coverage. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOIPA __attribute__((noinline))

static jmp_buf out;
static unsigned state = 12345;

NOIPA unsigned next(void)
{
	state = state * 1103515245 + 12345;
	return state >> 16;
}

NOIPA int both(int a, int b)
{
	if (a > 3 && b > 5)
		return 1;
	if (a < 2 || b < 1 || (a == 2 && b == 3))
		return 2;
	return a == b ? 3 : 4;
}

NOIPA int chain(int n)
{
	if (n == 0)
		return 1;
	else if (n == 1)
		return 5;
	else if (n < 10)
		return n;
	else
		return -n;
}

NOIPA int loops(int n)
{
	int s = 0;

	for (int i = 0; i < n; i++) {
		int j = i;
		while (j > 0) {
			j -= 3;
			if (j == 4)
				continue;
			if (j == 7)
				break;
			s++;
		}
		do
			s++;
		while (s % 4 != 0);
	}
	return s;
}

NOIPA int recursive(int n)
{
	return n < 2 ? n : recursive(n - 1) + recursive(n - 2);
}

NOIPA void thrower(int n)
{
	if (n > 6)
		longjmp(out, n);
}

static int (*const table[])(int) = { chain, loops, recursive };

int main(int argc, char **argv)
{
	volatile int sum = 0;
	int rounds = argc > 1 ? atoi(argv[1]) : 100;

	for (int i = 0; i < rounds; i++) {
		sum += both((int)(next() % 6), (int)(next() % 8));
		sum += table[next() % 3]((int)(next() % 12));
		if (!setjmp(out))
			thrower((int)(next() % 10));
		else
			sum++;
	}
	printf("%d\n", sum);
	return 0;
}
