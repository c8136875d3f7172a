/* Lines that are executed some times, once and never: tests/cli/coverage.sh compares with gcov. */
#include <stdio.h>
#include <string.h>

static int classify(int n)
{
	if (n < 0)
		return -1;
	switch (n % 4) {
	case 0:
		return 0;
	case 1:
	case 2:
		n += 3;
		break;
	default:
		n -= 1;
	}
	return n > 20 ? n * 2 : n + 1;
}

static int never(int n)
{
	for (int i = 0; i < n; i++)
		n += i;
	return n;
}

static long fib(int n)
{
	return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

static int loops(int n)
{
	int sum = 0;

	for (int i = 0; i < n; i++) {
		for (int k = 0; k < i; k++)
			sum += k;
		if (sum > 1000 && sum % 2)
			sum -= 7;
	}
	while (n-- > 3)
		sum++;
	do {
		sum += 2;
	} while (++n < 10);
	return sum;
}

static void copy(char *to, const char *from)
{
	while ((*to++ = *from++))
		;
}

int main(int argc, char **argv)
{
	char text[100];
	int sum = 0;

	(void)argv;
	for (int i = -2; i < 30; i++)
		sum += classify(i);
	if (argc > 5)
		sum += never(argc);
	sum += loops(25);
	copy(text, "a text that is copied");
	sum += (int)strlen(text) + (int)fib(10);
	printf("%d\n", sum);
	return 0;
}
