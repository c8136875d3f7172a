/* Two threads: one sleeps for six tenths of a second while the other computes for three. */
#include <pthread.h>
#include <time.h>

static volatile unsigned long sum;

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *busy(void *arg)
{
	double begin = now();
	while (now() - begin < 0.3)
		for (int i = 0; i < 5000; i++)
			sum += i;
	return arg;
}

static void asleep(void)
{
	struct timespec t = { 0, 600000000 };
	nanosleep(&t, NULL);
}

int main(void)
{
	pthread_t t;
	pthread_create(&t, NULL, busy, NULL);
	asleep();
	pthread_join(t, NULL);
	return 0;
}
