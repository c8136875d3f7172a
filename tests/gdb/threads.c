/* A program with two threads besides its first, which take turns: for tests/gdb/cases. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
int turn, total;

__attribute__((noinline)) void work(int who, int n)
{
	total += 10 * n + who;
}

static void *run(void *p)
{
	int me = *(int *)p;
	pthread_setname_np(pthread_self(), me ? "odd" : "even");
	for (int i = 0; i < 5; i++) {
		pthread_mutex_lock(&lock);
		while (turn % 2 != me)
			pthread_cond_wait(&cond, &lock);
		work(me, i);
		turn++;
		pthread_cond_broadcast(&cond);
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

int main(void)
{
	pthread_t t[2];
	int id[2] = { 0, 1 };
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, run, &id[i]);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	printf("total %d\n", total);
	return 3;
}
