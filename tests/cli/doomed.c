/*
 * The program that tests/cli/doomed.sh records.
 *
 *   doomed N SEED MS COMMAND...   run COMMAND N times and kill it (SIGKILL) after up to MS
 *                                 milliseconds, wherever it is by then
 *   doomed again KIND             become itself again and again: `first` by the first thread,
 *                                 `other` by another one, `left` by another one when the first has
 *                                 ended, `vfork` by a child of vfork that another one waits for
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *kind;

static void again(void)
{
	execl("/proc/thread-self/exe", "doomed", "again", kind, (char *)NULL);
	_exit(9);
}

static void *waits(void *arg)
{
	for (;;)
		pause();
	return arg;
}

static void *becomes(void *arg)
{
	if (!strcmp(kind, "vfork") && vfork() > 0)
		pause();
	again();
	return arg;
}

static int again_and_again(void)
{
	pthread_t thread;
	if (!strcmp(kind, "first"))
		again();
	if (pthread_create(&thread, NULL, waits, NULL) ||
	    pthread_create(&thread, NULL, becomes, NULL))
		return 9;
	if (!strcmp(kind, "left"))
		pthread_exit(NULL);
	waits(NULL);
	return 0;
}

int main(int argc, char **argv)
{
	int status;
	if (argc == 3 && !strcmp(argv[1], "again")) {
		kind = argv[2];
		return again_and_again();
	}
	if (argc < 5)
		return 2;
	unsigned of = (unsigned)atoi(argv[2]), most = (unsigned)atoi(argv[3]) * 1000000;
	for (int i = atoi(argv[1]); i > 0; i--) {
		struct timespec when = { .tv_nsec = rand_r(&of) % most };
		pid_t pid = fork();
		if (!pid) {
			setpgid(0, 0);
			execv(argv[4], argv + 4);
			_exit(9);
		}
		setpgid(pid, pid);
		nanosleep(&when, NULL);
		kill(-pid, SIGKILL);
		if (waitpid(pid, &status, 0) != pid || status != SIGKILL) {
			printf("%d more: status %#x\n", i, (unsigned)status);
			return 1;
		}
	}
	puts("all killed");
	return 0;
}
