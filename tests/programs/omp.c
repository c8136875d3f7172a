/* OpenMP, for the end-to-end tests: loops, reductions, tasks, locks. Prints the same every time. */
#include <omp.h>
#include <stdio.h>

static long fib(int n)
{
	long a, b;

	if (n < 12)
		return n < 2 ? n : fib(n - 1) + fib(n - 2);
#pragma omp task shared(a)
	a = fib(n - 1);
	b = fib(n - 2);
#pragma omp taskwait
	return a + b;
}

int main(void)
{
	static double v[20000];
	long sum = 0, f = 0, ordered = 0, locked = 0;
	omp_lock_t lock;

	omp_set_num_threads(3);
	omp_init_lock(&lock);
	for (int round = 0; round < 10; round++) {
#pragma omp parallel for schedule(static)
		for (int i = 0; i < 20000; i++)
			v[i] += i * 0.5 + round;
#pragma omp parallel for schedule(dynamic, 100) reduction(+ : sum)
		for (int i = 0; i < 20000; i++)
			sum += (long)v[i] % 13;
	}
#pragma omp parallel
#pragma omp single
	f = fib(18);
#pragma omp parallel for ordered schedule(dynamic)
	for (int i = 0; i < 50; i++) {
#pragma omp ordered
		ordered = ordered * 3 % 10007 + i;
	}
#pragma omp parallel
	{
		for (int i = 0; i < 200; i++) {
			omp_set_lock(&lock);
			locked++;
			omp_unset_lock(&lock);
#pragma omp atomic
			sum++;
#pragma omp barrier
		}
	}
	printf("%ld %ld %ld %ld\n", sum, f, ordered, locked);
	return 0;
}
