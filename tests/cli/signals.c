/*
 * For tests/cli/signals.sh: counts the signals that it gets, until SIGTERM.
 *
 *   count group    sends some to its whole process group first, one after the other
 *   count child    the same from a child process
 *   count parent   sends SIGUSR1 to its parent first
 *   count blocked  blocks all until something comes on standard input
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t count[65];

static void handler(int sig)
{
	count[sig]++;
}

static const int signals[] = { SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH,
			       SIGIO,  SIGPWR, SIGABRT, SIGSEGV, SIGTRAP, 34,	   64 };
#define N (sizeof(signals) / sizeof(*signals))

static void send_all(void)
{
	for (size_t i = 0; i < N; i++)
		kill(0, signals[i]);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	struct sigaction sa = { .sa_handler = handler, .sa_flags = SA_RESTART };
	sigset_t all, none;
	char c;

	sigfillset(&all);
	sigemptyset(&none);
	for (size_t i = 0; i < N; i++)
		sigaction(signals[i], &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sigprocmask(SIG_BLOCK, &all, NULL);
	if (strcmp(mode, "group") == 0) {
		send_all();
	} else if (strcmp(mode, "child") == 0) {
		pid_t child = fork();
		if (child == 0) {
			send_all();
			_exit(0);
		}
		waitpid(child, NULL, 0);
	} else if (strcmp(mode, "parent") == 0) {
		kill(getppid(), SIGUSR1);
	}
	if (strcmp(mode, "blocked") != 0)
		sigprocmask(SIG_SETMASK, &none, NULL);
	printf("ready\n");
	fflush(stdout);
	if (strcmp(mode, "blocked") == 0) {
		(void)!read(0, &c, 1);
		sigprocmask(SIG_SETMASK, &none, NULL);
	}
	sigprocmask(SIG_BLOCK, &all, NULL);
	while (!count[SIGTERM])
		sigsuspend(&none);
	for (int sig = 1; sig < 65; sig++)
		if (count[sig])
			printf("%d: %d\n", sig, (int)count[sig]);
	return 7;
}
