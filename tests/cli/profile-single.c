/* Work in functions of several kinds, the same every time, for counting. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct node {
	struct node *left, *right;
	int key;
};

static int compare(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

__attribute__((noinline)) int fib(int n)
{
	return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

__attribute__((noinline)) long primes(int n)
{
	long c = 0;

	for (int i = 2; i < n; i++) {
		int p = 1;
		for (int j = 2; j * j <= i && p; j++)
			p = i % j != 0;
		c += p;
	}
	return c;
}

__attribute__((noinline)) struct node *insert(struct node *t, int key)
{
	if (!t) {
		t = calloc(1, sizeof(*t));
		t->key = key;
	} else if (key < t->key) {
		t->left = insert(t->left, key);
	} else {
		t->right = insert(t->right, key);
	}
	return t;
}

__attribute__((noinline)) double series(int n)
{
	double s = 0;

	for (int i = 1; i <= n; i++)
		s += (i & 1 ? 1.0 : -1.0) / i;
	return s;
}

__attribute__((noinline)) void fill(char *p, size_t n)
{
	__asm__ volatile("rep stosb" : "+D"(p), "+c"(n) : "a"(1) : "memory");
}

int main(void)
{
	static int a[500];
	static char big[5000];
	struct node *t = NULL;

	for (int i = 0; i < 500; i++) {
		a[i] = i * 7919 % 1009;
		t = insert(t, a[i]);
	}
	qsort(a, 500, sizeof(*a), compare);
	for (int i = 0; i < 10; i++)
		fill(big, 100 * i);
	printf("%d %ld %d %.6f %s\n", fib(15), primes(500), a[77], series(1000),
	       strchr("hello, world", 'w'));
	return 0;
}
