/* A program of which every answer is known: tests/cli/queries.sh asks. */
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEEP __attribute__((noinline, noclone))

int query_counter;
char query_buffer[32];
static const char text[] = "hello";
static jmp_buf back;

KEEP double query_scale(double x, int n, const char *s)
{
	query_counter += n;
	return x * n + s[0];
}

KEEP unsigned long query_recurse(unsigned n)
{
	unsigned long below = n ? query_recurse(n - 1) : 0;

	return below + n;
}

KEEP void query_leave(int how)
{
	if (how)
		longjmp(back, how);
}

struct big {
	long a[5];
};

KEEP struct big query_big(signed char c, struct big b, unsigned short last)
{
	b.a[0] += c + last;
	return b;
}

KEEP static void *query_thread(void *arg)
{
	query_scale(2, -1, "A");
	return arg;
}

int main(void)
{
	struct big b = { { 1, 2, 3, 4, 5 } };
	pthread_t t;
	int p[2];
	double d = 0;

	for (int i = 0; i < 3; i++)
		d += query_scale(i * 0.5, i, text);
	query_recurse(3);
	for (volatile int i = 0; i < 2; i++)
		if (!setjmp(back))
			query_leave(i);
	b = query_big(-3, b, 65535);
	if (pipe(p) || write(p[1], "abcdef", 6) != 6 || read(p[0], query_buffer, 6) != 6)
		return 1;
	memcpy(query_buffer + 8, text, sizeof(text));
	pthread_create(&t, NULL, query_thread, NULL);
	pthread_join(t, NULL);
	printf("%d %g %s %ld\n", query_counter, d, query_buffer, b.a[0]);
	return 0;
}
