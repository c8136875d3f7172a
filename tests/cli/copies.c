/*
 * Copies and fills memory by string instructions, much of it and little, and touches most of what
 * was copied in no other way: what is noted of them is all that is known of it.
 */
#include <stdio.h>
#include <string.h>

#define SIZE 70000u

static char from[SIZE], to[SIZE], filled[SIZE];

static void copy(char *dst, const char *src, size_t n)
{
	__asm__ volatile("rep movsb" : "+D"(dst), "+S"(src), "+c"(n) : : "memory");
}

static void fill(char *dst, int c, size_t n)
{
	__asm__ volatile("rep stosb" : "+D"(dst), "+c"(n) : "a"(c) : "memory");
}

int main(void)
{
	volatile unsigned sum = 0;

	for (unsigned i = 0; i < 3000; i++) {
		unsigned at = i * 977 % 60000, n = i % 3 ? i % 200 : i % 9000;
		from[at] = (char)i;
		copy(to + at, from + (i * 331 % 60000), n);
		fill(filled + at, (int)i, n / 2);
		for (unsigned k = 0; k < 50; k++)
			sum += k * i;
	}
	printf("%u %d %d\n", sum, to[SIZE / 2], filled[SIZE / 3]);
	return 0;
}
