/*
 * Where a program lies and what it has asked for, before and after an exec that fails and one that
 * does not, by itself, in a thread and in children of both kinds. tests/cli/layout.sh has the
 * reasons.
 *
 * usage: layout [WAYS]     a letter for each exec that is still to come: e by itself, t in a
 * thread, f in a forked child, v in one made by vfork
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/wait.h>
#include <unistd.h>

static char *next[] = { "layout", NULL, NULL };

static void say(const char *when)
{
	char text[32] = "";
	FILE *f = fopen("/proc/self/personality", "r");
	if (f && fgets(text, sizeof(text), f))
		text[strcspn(text, "\n")] = 0;
	if (f)
		fclose(f);
	printf("%s: personality %x, %s\n", when, (unsigned)personality(0xffffffff), text);
}

static void where(void)
{
	int here = 0;
	void *map = mmap(NULL, 1 << 22, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	printf("at %p %p %p %p %p %lx\n", (void *)(size_t)where, (void *)(size_t)printf,
	       (void *)&here, sbrk(0), map, getauxval(AT_SYSINFO_EHDR));
}

static void *become(void *unused)
{
	(void)unused;
	execv("/nowhere/at/all", next);
	if (errno == ENOENT)
		execv("/proc/self/exe", next);
	_exit(90);
}

int main(int argc, char **argv)
{
	const char *ways = argc > 1 ? argv[1] : "";
	int status = 0;
	pid_t child = 1;
	pthread_t t;
	setvbuf(stdout, NULL, _IOLBF, 0);
	where();
	say("begun");
	execv("/nowhere/at/all", next);
	say("an exec has failed");
	if (!*ways)
		return 0;
	next[1] = strdup(ways + 1);
	switch (*ways) {
	case 'f':
		child = fork();
		break;
	case 'v':
		child = vfork();
		break;
	case 't':
		pthread_create(&t, NULL, become, NULL);
		pthread_join(t, NULL);
		break;
	default:
		child = 0;
	}
	if (!child)
		become(NULL);
	wait(&status);
	say("a child has ended");
	return status;
}
