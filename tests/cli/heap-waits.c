/*
 * An allocator with two blocks for those who ask for SIZE, which waits within malloc and realloc
 * for what another thread does meanwhile: the order is always the same, and no block is freed
 * twice, or left. Whoever asks for another size has it from a pool. tests/cli/queries.sh.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#define SIZE 777
#define KEEP __attribute__((noinline, noclone))

static char blocks[2][1024] __attribute__((aligned(16)));
static char pool[1 << 20] __attribute__((aligned(16)));
static size_t used;
static void *next;	     /* what the next malloc or realloc returns */
static sem_t waits, goes_on; /* if `within` is set: that it is in there, and that it may return */
static int within;

static void meanwhile(void)
{
	if (!__atomic_exchange_n(&within, 0, __ATOMIC_SEQ_CST))
		return;
	sem_post(&waits);
	sem_wait(&goes_on);
}

KEEP void *malloc(size_t size)
{
	if (size != SIZE)
		return pool + __atomic_fetch_add(&used, (size + 15) & ~15UL, __ATOMIC_SEQ_CST);
	meanwhile();
	return next;
}

KEEP void free(void *p)
{
	__asm__ volatile("" : : "r"(p) : "memory");
}

KEEP void *calloc(size_t n, size_t size)
{
	return malloc(n * size);
}

KEEP void *realloc(void *p, size_t size)
{
	if (size == SIZE) {
		meanwhile();
		return next;
	}
	void *q = malloc(size);
	return p ? memcpy(q, p, size) : q;
}

KEEP static void give(void *p)
{
	free(p);
}

/* It asks for the block that is freed while it waits; and then for another in its place, which is
 * freed while it waits, too, and somebody else gets its own. */
static void *other(void *arg)
{
	void *p = malloc(SIZE);

	__atomic_store_n(&within, 1, __ATOMIC_SEQ_CST);
	give(realloc(p, SIZE));
	return arg;
}

int main(void)
{
	pthread_t thread;
	void *first, *second;

	sem_init(&waits, 0, 0);
	sem_init(&goes_on, 0, 0);
	next = blocks[0];
	first = malloc(SIZE);
	next = blocks[1];
	second = malloc(SIZE);

	within = 1;
	if (pthread_create(&thread, NULL, other, NULL))
		return 1;
	sem_wait(&waits);
	give(first);
	next = first;
	sem_post(&goes_on);

	sem_wait(&waits);
	first = malloc(SIZE);
	give(second);
	next = second;
	sem_post(&goes_on);
	pthread_join(thread, NULL);
	give(first);
	return 0;
}
