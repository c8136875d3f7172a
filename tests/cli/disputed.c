/*
 * Two threads store to the same words of the first one's stack, one after the other, with some work
 * between: who wrote last is what the order of events says. For tests/cli/walk.sh
 * and tests/cli/pulses.sh.
 */
#include <pthread.h>
#include <stdio.h>

#define ROUNDS 60

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static unsigned work(unsigned x)
{
	for (unsigned i = 0; i < 700; i++)
		x = x * 1103515245 + 12345;
	return x;
}

/* By a string instruction. */
static void fill(volatile long *at, long value, unsigned long n)
{
	__asm__ volatile("rep stosq" : "+D"(at), "+c"(n) : "a"(value) : "memory");
}

static void store(volatile long *words, long value)
{
	for (long i = 0; i < ROUNDS; i++) {
		pthread_mutex_lock(&lock);
		/* the first changes each time, the second hardly ever, two more when it is
		 * another's turn */
		words[0] = value + i;
		words[1] = i / 20;
		fill(words + 2, value, 2);
		pthread_mutex_unlock(&lock);
		words[8 + value / 1000] = (long)work((unsigned)i);
	}
}

static void *other(void *words)
{
	store(words, 1000);
	return NULL;
}

int main(void)
{
	volatile long words[16] = { 0 };
	pthread_t thread;

	pthread_create(&thread, NULL, other, (void *)words);
	store(words, 2000);
	pthread_join(thread, NULL);
	printf("words at %p: %ld %ld %ld\n", (void *)words, words[0], words[1], words[2]);
	return 0;
}
