/*
 * A recorder that may outlive its command.
 *
 * A traced process cannot be handed to another tracer, so whoever is to go on recording when the
 * command has ended has to be another process from the start: the recorder is a child of the one
 * that the user has started. That one does nothing but wait, and pass on signals that are sent to
 * it, with the sender's id, so that the recorder does not take what came to the whole process group
 * for two signals (recorder/forward.c). What the recorder sends it is for its own parent. If it is
 * killed, the recorder is, too, and the program with it.
 */
#include "cli/background.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static int told = -1; /* where the child says how the first process ended */
static bool alone;    /* it has been said */
static volatile pid_t recorder;

static void pass_on(int sig, siginfo_t *info, void *context)
{
	int saved = errno;
	(void)context;
	if (info->si_code <= 0 && info->si_pid == recorder)
		kill(getppid(), sig);
	else if (info->si_code <= 0 && recorder > 0)
		sigqueue(recorder, sig, (union sigval){ .sival_int = info->si_pid });
	errno = saved;
}

static void handle_signals(void)
{
	static const int passed[] = { SIGHUP,  SIGINT,	SIGQUIT, SIGUSR1, SIGUSR2,   SIGALRM,
				      SIGTERM, SIGPOLL, SIGPWR,	 SIGPROF, SIGVTALRM, SIGWINCH };
	struct sigaction sa = { .sa_sigaction = pass_on, .sa_flags = SA_SIGINFO | SA_RESTART };

	for (size_t i = 0; i < sizeof(passed) / sizeof(passed[0]); i++)
		sigaction(passed[i], &sa, NULL);
	for (int sig = SIGRTMIN; sig <= SIGRTMAX; sig++)
		sigaction(sig, &sa, NULL);
}

/* How the recorder has ended, or the first process, while the recorder goes on. */
static int wait_for(int fd)
{
	int status = 0;
	ssize_t n;

	while ((n = read(fd, &status, sizeof(status))) < 0 && errno == EINTR)
		;
	if (n == sizeof(status))
		return status;
	while (waitpid(recorder, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

int cli_background(void)
{
	sigset_t all, before;
	pid_t parent = getpid();
	int fds[2];

	if (pipe2(fds, O_CLOEXEC))
		return -1;
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &before);
	pid_t pid = fork();
	if (pid) {
		recorder = pid;
		close(fds[1]);
		if (pid > 0)
			handle_signals();
		sigprocmask(SIG_SETMASK, &before, NULL);
		if (pid < 0)
			close(fds[0]);
		else
			_exit(cli_end_like(wait_for(fds[0])));
		return -1;
	}
	close(fds[0]);
	told = fds[1];
	sigprocmask(SIG_SETMASK, &before, NULL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	return 0;
}

void cli_background_ended(int status)
{
	prctl(PR_SET_PDEATHSIG, 0);
	alone = told >= 0 && write(told, &status, sizeof(status)) == sizeof(status);
}

bool cli_in_background(void)
{
	return alone;
}
