/*
 * Threads that share a page: they store to it, have the kernel write to it, give it back, map it
 * anew, and store what is there already. What a watch finds going back must be what it found going
 * forward. For tests/cli/walk.sh.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef OTHERS
#define OTHERS 2
#endif
#define ROUNDS (180 / (OTHERS + 1))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile unsigned long *words;
static int zero[2];

static unsigned long step(unsigned long *seed)
{
	*seed = *seed * 6364136223846793005UL + 1442695040888963407UL;
	return *seed >> 33;
}

static void turn(unsigned long *seed)
{
	unsigned long what = step(seed) % 12, w = step(seed) % 3, value = step(seed) % 3,
		      in = value;
	char bytes[24];

	switch (what) {
	case 0:
		munmap((void *)words, 4096);
		mmap((void *)words, 4096, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		break;
	case 1:
		mmap((void *)words, 4096, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		break;
	case 2:
	case 3:
		if (write(zero[1], &in, 8) != 8 || read(zero[0], (void *)&words[w], 8) != 8)
			abort();
		break;
	case 4:
		memset(bytes, (int)value, sizeof(bytes));
		memcpy((void *)words, bytes, sizeof(bytes));
		break;
	case 5:
	case 6:
		if (words[w] == 77)
			abort();
		break;
	case 7:
		__atomic_store_n(&words[w], value, __ATOMIC_SEQ_CST);
		break;
	default:
		words[w] = value;
	}
}

static void *work(void *arg)
{
	unsigned long seed = (unsigned long)arg;
	volatile unsigned x = 1;

	for (int i = 0; i < ROUNDS; i++) {
		pthread_mutex_lock(&lock);
		turn(&seed);
		pthread_mutex_unlock(&lock);
		for (unsigned k = step(&seed) % 700; k; k--)
			x = x * 1103515245 + 12345;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned long seed = argc > 1 ? strtoul(argv[1], NULL, 0) : 1;
	pthread_t thread[OTHERS];

	if (pipe(zero))
		return 1;
	words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (unsigned long i = 0; i < OTHERS; i++)
		pthread_create(&thread[i], NULL, work, (void *)(seed * (OTHERS + 1) + i));
	work((void *)(seed * (OTHERS + 1) + OTHERS));
	for (int i = 0; i < OTHERS; i++)
		pthread_join(thread[i], NULL);
	printf("words at %p: %lu %lu %lu\n", (void *)words, words[0], words[1], words[2]);
	return 0;
}
