/*
 * What two threads do, for the benchmark: `threads cpu N' computes in both, each for itself;
 * `threads mutex N' takes a common lock N times in each, with a little work inside and outside.
 * Prints the nanoseconds that it took.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static long rounds;
static int locked;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile uint64_t shared;

static uint64_t work(uint64_t x, int n)
{
	for (int i = 0; i < n; i++)
		x = x * 6364136223846793005ULL + (x >> 33);
	return x;
}

static void *run(void *arg)
{
	uint64_t table[512] = { 0 }, x = (uint64_t)(uintptr_t)arg + 1;

	for (long i = 0; i < rounds; i++) {
		if (locked) {
			pthread_mutex_lock(&lock);
			shared += x & 1;
			pthread_mutex_unlock(&lock);
			x = work(x, 20);
		} else {
			x = work(x, 4);
			table[x % 512] += x;
		}
	}
	return (void *)(uintptr_t)(x + table[7]);
}

int main(int argc, char **argv)
{
	struct timespec from, to;
	pthread_t t[2];

	if (argc != 3)
		return 2;
	locked = !strcmp(argv[1], "mutex");
	rounds = atol(argv[2]);
	clock_gettime(CLOCK_MONOTONIC, &from);
	for (int i = 0; i < 2; i++)
		if (pthread_create(&t[i], NULL, run, (void *)(uintptr_t)i))
			return 1;
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	clock_gettime(CLOCK_MONOTONIC, &to);
	printf("%lld\n", (to.tv_sec - from.tv_sec) * 1000000000LL + to.tv_nsec - from.tv_nsec);
	return 0;
}
