/* A program that has a handler of faults, which sees flags, if it is given an argument. */
#include <signal.h>
#include <stdio.h>

static void handler(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)info;
	(void)context;
}

int main(int argc, char **argv)
{
	struct sigaction sa = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };
	(void)argv;
	printf("%d\n", argc > 1 && sigaction(SIGSEGV, &sa, NULL) == 0);
	return 0;
}
