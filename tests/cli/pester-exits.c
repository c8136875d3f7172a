/*
 * Threads that exit by the bare system call, blocking nothing, while another one sends them
 * SIGTRAP.
 *
 * usage: pester-exits ROUNDS
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { THREADS = 4 };

static atomic_int tids[THREADS];
static atomic_bool over;

static void on_trap(int sig)
{
	volatile char stack[3000];
	for (unsigned i = 0; i < sizeof(stack); i += 64)
		stack[i] = 0;
}

static void *life(void *arg)
{
	atomic_int *own = arg;
	*own = gettid();
	for (volatile unsigned i = 0; i < 2000; i++)
		;
	*own = 0;
	syscall(SYS_exit, 0);
	return NULL;
}

static void *disturb(void *arg)
{
	sigset_t all;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	for (unsigned i = 0; !over; i = (i + 1) % THREADS) {
		int tid = tids[i];
		if (tid)
			syscall(SYS_tgkill, getpid(), tid, SIGTRAP);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = on_trap, .sa_flags = SA_RESTART };
	pthread_t other, thread[THREADS];
	sigaction(SIGTRAP, &action, NULL);
	if (pthread_create(&other, NULL, disturb, NULL))
		return 1;
	for (int round = 0; round < atoi(argv[1]); round++) {
		for (unsigned i = 0; i < THREADS; i++)
			if (pthread_create(&thread[i], NULL, life, &tids[i]))
				return 1;
		for (unsigned i = 0; i < THREADS; i++)
			pthread_join(thread[i], NULL);
	}
	over = true;
	pthread_join(other, NULL);
	puts("all have ended");
	return 0;
}
