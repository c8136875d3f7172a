/* Two threads with many calls, each with an access: more than anyone keeps in memory. */
#include <pthread.h>

#define CALLS 100000

volatile long many_counter[2];

__attribute__((noipa)) void many_step(long who, long i)
{
	many_counter[who] = i;
}

static void *run(void *who)
{
	for (long i = 0; i < CALLS; i++)
		many_step((long)who, i);
	return 0;
}

int main(void)
{
	pthread_t other;

	pthread_create(&other, 0, run, (void *)1);
	run(0);
	pthread_join(other, 0);
	return 0;
}
