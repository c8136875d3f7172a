/*
 * What must not show that a thread was stopped in the midst of it: string instructions of many
 * iterations, traps behind instructions that set and clear the trap flag, and signals in both.
 *
 * usage: pester-traps ROUNDS
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trap-flag.h"

enum { BYTES = 100000 };

static unsigned rounds;
static __thread volatile unsigned traps, steps;
static atomic_uint handled, wrong;
static atomic_bool over;

static void on_trap(int sig, siginfo_t *info, void *context)
{
	traps++;
	steps += info->si_code == TRAP_TRACE;
}

static void on_signal(int sig)
{
	handled++;
}

static void *fill(void *arg)
{
	static unsigned char a[BYTES], b[BYTES];
	for (unsigned i = 0; i < rounds; i++) {
		void *to = a, *from = a, *then = b;
		size_t n = BYTES - i % 100, m = n;
		__asm__ volatile("rep stosb" : "+D"(to), "+c"(n) : "a"(i) : "memory");
		wrong += n != 0 || to != a + m;
		__asm__ volatile("rep movsb" : "+D"(then), "+S"(from), "+c"(m) : : "memory");
		wrong += m != 0 || a[i % 1000] != (unsigned char)i ||
			 memcmp(a, b, BYTES - i % 100) != 0;
	}
	return NULL;
}

static void *trap(void *arg)
{
	for (unsigned i = 0; i < rounds; i++) {
		unsigned before = traps, stepped = steps;
		__asm__ volatile("int3");
		wrong += traps - before != 1;
		before = traps;
		trap_flag_over_five();
		wrong += traps - before != 5 || steps - stepped != 5;
	}
	while (!handled) /* on a busy machine all this may be over before the first signal is sent
			  */
		sched_yield();
	return NULL;
}

static void *disturb(void *arg)
{
	pthread_t *whom = arg;
	for (unsigned i = 0; !over; i++) {
		pthread_kill(whom[i % 2], SIGUSR1);
		sched_yield();
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct sigaction traced = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | SA_RESTART };
	struct sigaction sent = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	pthread_t who[2], other;
	rounds = (unsigned)atoi(argv[1]);
	sigfillset(&sent.sa_mask);
	sigaction(SIGTRAP, &traced, NULL);
	sigaction(SIGUSR1, &sent, NULL);
	if (pthread_create(&who[0], NULL, fill, NULL) ||
	    pthread_create(&who[1], NULL, trap, NULL) || pthread_create(&other, NULL, disturb, who))
		return 1;
	pthread_join(who[1], NULL);
	over = true;
	pthread_join(other, NULL);
	pthread_join(who[0], NULL);
	printf("wrong %u, signals %d\n", wrong, handled > 0);
	return 0;
}
