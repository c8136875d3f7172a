/*
 * The program that tests/cli/alone.sh records: a thread that is alone again after others were there
 * changes a word by an instruction that deja has the processor execute natively (lock adc), and
 * then has others again, which change the same word.
 */
#include <pthread.h>
#include <stdio.h>

#define ROUNDS 5
#define TIMES  1000

static unsigned long word;

static void *count(void *arg)
{
	for (int i = 0; i < TIMES; i++)
		__atomic_fetch_add(&word, 1, __ATOMIC_SEQ_CST);
	return arg;
}

int main(void)
{
	for (int i = 0; i < ROUNDS; i++) {
		pthread_t thread[2];
		for (int k = 0; k < 2; k++)
			if (pthread_create(&thread[k], NULL, count, NULL))
				return 1;
		for (int k = 0; k < 2; k++)
			pthread_join(thread[k], NULL);
		__asm__ volatile("clc; lock adcq $1, %0" : "+m"(word) : : "cc", "memory");
	}
	printf("%lu\n", word);
	return 0;
}
