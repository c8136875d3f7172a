/*
 * A program that makes code in memory, the same each time or not, and executes it.
 * tests/cli/made.sh has the reasons.
 *
 * usage: made SEED HOW...    each way makes and executes a lot of functions, of which the seed says
 *        what they compute:
 *        w in memory that stays writable; x in memory that is made executable after that;
 *        r as x, and writes them anew with another seed then; t as w, in a thread; f as x, in a
 * child; m as w, in three threads at once and here, by turns through what was made and is being
 * made
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define FUNCTIONS 600
#define EACH	  64
#define SIZE	  (FUNCTIONS * EACH + 4096)

typedef uint64_t function(uint64_t x);

/* add or multiply by a number, add one more if that is odd, and return */
static void write_function(uint8_t *at, uint64_t seed, unsigned i)
{
	const uint32_t number = (uint32_t)(seed * 2654435761u + i * 40503u) & 0x7fffffff;
	static const uint8_t code[] = {
		0x48, 0x89, 0xf8, 0x48, 0x05, 0,    0,	  0,	0,    0xa8,
		0x01, 0x74, 0x03, 0x48, 0xff, 0xc0, 0x48, 0xd1, 0xc0, 0xc3
	};
	memcpy(at, code, sizeof(code));
	memcpy(at + 5, &number, 4);
}

static void write_all(uint8_t *code, uint64_t seed)
{
	for (unsigned i = 0; i < FUNCTIONS; i++)
		write_function(code + i * EACH, seed, i);
}

static uint64_t execute(uint8_t *code, uint64_t x)
{
	for (unsigned k = 0; k < 3; k++)
		for (unsigned i = 0; i < FUNCTIONS; i++)
			x = ((function *)(uintptr_t)(code + i * EACH))(x);
	return x;
}

static uint8_t *make(uint64_t seed, int protection)
{
	uint8_t *code = mmap(NULL, SIZE, protection | PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (code == MAP_FAILED)
		exit(90);
	write_all(code, seed);
	if (!(protection & PROT_EXEC) && mprotect(code, SIZE, PROT_READ | PROT_EXEC))
		exit(91);
	return code;
}

static uint64_t seed;

static void *in_thread(void *x)
{
	*(uint64_t *)x = execute(make(seed + 7, PROT_EXEC), *(uint64_t *)x);
	return NULL;
}

/* Each function as soon as it is there: what one thread was told of its code the others may not
 * have heard. */
struct shared {
	uint8_t *code;
	atomic_uint made;
};

static uint64_t as_they_come(struct shared *s, uint64_t x)
{
	for (unsigned i = 0; i < FUNCTIONS; i++) {
		while (atomic_load(&s->made) <= i)
			sched_yield();
		x = ((function *)(uintptr_t)(s->code + i * EACH))(x);
	}
	return x + execute(s->code, x);
}

static void *one_of_them(void *shared)
{
	return (void *)(uintptr_t)as_they_come(shared, 1);
}

static uint64_t many(uint64_t x)
{
	pthread_t t[3];
	void *got;
	struct shared s = { mmap(NULL, SIZE, PROT_READ | PROT_WRITE | PROT_EXEC,
				 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
			    0 };
	if (s.code == MAP_FAILED)
		exit(92);
	for (unsigned i = 0; i < 3; i++)
		if (pthread_create(&t[i], NULL, one_of_them, &s))
			exit(93);
	for (unsigned i = 0; i < FUNCTIONS; i++) {
		write_function(s.code + i * EACH, seed + 8, i);
		atomic_store(&s.made, i + 1);
		if (i % 64 == 63) /* some are executed before what is on their page is complete */
			sched_yield();
	}
	x = as_they_come(&s, x);
	for (unsigned i = 0; i < 3; i++) {
		pthread_join(t[i], &got);
		x = x * 31 + (uintptr_t)got;
	}
	return x;
}

int main(int argc, char **argv)
{
	uint64_t x = 1;
	seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
	for (const char *how = argc > 2 ? argv[2] : ""; *how; how++) {
		pthread_t t;
		uint8_t *code;
		switch (*how) {
		case 'w':
			x = execute(make(seed, PROT_EXEC), x);
			break;
		case 'x':
			x = execute(make(seed + 1, 0), x);
			break;
		case 'r':
			code = make(seed + 2, 0);
			x = execute(code, x);
			mprotect(code, SIZE, PROT_READ | PROT_WRITE);
			write_all(code, seed + 3);
			mprotect(code, SIZE, PROT_READ | PROT_EXEC);
			x = execute(code, x);
			break;
		case 't':
			if (!pthread_create(&t, NULL, in_thread, &x))
				pthread_join(t, NULL);
			break;
		case 'm':
			x = many(x);
			break;
		case 'f':
			if (!fork()) {
				printf("child %llx\n",
				       (unsigned long long)execute(make(seed + 4, 0), x));
				exit(0);
			}
			wait(NULL);
			break;
		}
		printf("%c %llx\n", *how, (unsigned long long)x);
		fflush(stdout);
	}
	return 0;
}
