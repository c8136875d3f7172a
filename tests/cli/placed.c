/*
 * What CPUID says of the processor that a thread is on: three threads, each bound to one processor
 * after the other, ask in leaves 1 and 0xb. The output is the same each time, in order of threads.
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define THREADS 3
#define ROUNDS	4
#define MOST	64 /* processors */

static cpu_set_t all;
static unsigned said[THREADS][ROUNDS][MOST][2];

static void ask(unsigned out[2])
{
	unsigned a, b, c, d;
	__cpuid(1, a, b, c, d);
	out[0] = b >> 24;
	__cpuid_count(0xb, 0, a, b, c, d);
	out[1] = d;
}

static void *thread(void *arg)
{
	int number = (int)(intptr_t)arg;
	for (int round = 0; round < ROUNDS; round++)
		for (int k = 0; k < MOST; k++) {
			int cpu = (k + number) % MOST; /* not all on the same one */
			cpu_set_t one;
			if (!CPU_ISSET(cpu, &all))
				continue;
			CPU_ZERO(&one);
			CPU_SET(cpu, &one);
			if (!sched_setaffinity(0, sizeof(one), &one))
				ask(said[number][round][cpu]);
		}
	return NULL;
}

int main(void)
{
	unsigned anywhere[2];
	pthread_t id[THREADS];
	for (int i = 0; i < 3; i++) /* so that it is known */
		ask(anywhere);
	sched_getaffinity(0, sizeof(all), &all);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&id[i], NULL, thread, (void *)(intptr_t)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(id[i], NULL);
	for (int i = 0; i < THREADS; i++)
		for (int round = 0; round < ROUNDS; round++)
			for (int cpu = 0; cpu < MOST; cpu++)
				if (CPU_ISSET(cpu, &all))
					printf("thread %d, processor %d: %u %u\n", i, cpu,
					       said[i][round][cpu][0], said[i][round][cpu][1]);
	return 0;
}
