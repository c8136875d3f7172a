/*
 * For tests/cli/vfork.sh: a thread that blocks SIGTRAP makes a child by vfork(2), which does not
 * let it go before another thread has had a SIGTRAP, again and again; and a third has threads stop
 * at system calls. Prints how many came.
 *
 * usage: vfork-trap ROUNDS
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int pipes[2];
static atomic_int handled, children, over;
static int rounds;

static void on_trap(int sig)
{
	(void)sig;
	handled++;
	(void)!write(pipes[1], "x", 1);
}

static void *parent(void *arg)
{
	sigset_t trap;
	(void)arg;
	sigemptyset(&trap);
	sigaddset(&trap, SIGTRAP);
	pthread_sigmask(SIG_BLOCK, &trap, NULL);
	for (int i = 0; i < rounds; i++) {
		children++;
		pid_t pid = vfork();
		if (pid == 0) {
			char c;
			(void)!read(pipes[0], &c, 1);
			_exit(0);
		}
		waitpid(pid, NULL, 0);
	}
	return NULL;
}

static void *other(void *arg)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGTRAP);
	while (!over) {
		pthread_sigmask(SIG_BLOCK, &set, NULL);
		sched_yield();
		pthread_sigmask(SIG_UNBLOCK, &set, NULL);
		usleep(100);
	}
	return arg;
}

int main(int argc, char **argv)
{
	struct sigaction sa = { .sa_handler = on_trap, .sa_flags = SA_RESTART };
	pthread_t a, b;
	rounds = argc > 1 ? atoi(argv[1]) : 10;
	if (pipe(pipes))
		return 1;
	sigaction(SIGTRAP, &sa, NULL);
	pthread_create(&a, NULL, parent, NULL);
	pthread_create(&b, NULL, other, NULL);
	for (int i = 1; i <= rounds; i++) {
		while (children < i)
			sched_yield();
		if (i % 3)
			usleep((useconds_t)(i % 7 * 300));
		pthread_kill(pthread_self(), SIGTRAP);
		while (handled < i)
			sched_yield();
	}
	pthread_join(a, NULL);
	over = 1;
	pthread_join(b, NULL);
	printf("%d of %d\n", (int)handled, rounds);
	return 0;
}
