/*
 * A program that makes its recorder stop it again and again, so that the two share a processor
 * (recorder/near.c), and that looks all the while where it may be: by asking, in what threads,
 * children and other programs have from it, and after it has said so itself; or, as `near status`,
 * in /proc/self/status. Prints how often it was not where it should have been able to be.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 15

static cpu_set_t mine;
static int (*code)(void);
static unsigned wrong[6];

/* Stops: code that is made anew. */
static void burst(unsigned n)
{
	while (n--) {
		mprotect((void *)code, 4096, PROT_READ | PROT_WRITE);
		memcpy((void *)code, "\xb8\x07\x00\x00\x00\xc3", 6);
		mprotect((void *)code, 4096, PROT_READ | PROT_EXEC);
		code();
	}
}

static int differs(void)
{
	cpu_set_t now;
	return sched_getaffinity(0, sizeof(now), &now) || !CPU_EQUAL(&now, &mine);
}

static void *thread(void *arg)
{
	(void)arg;
	wrong[1] += (unsigned)differs();
	return NULL;
}

static unsigned status(pid_t pid)
{
	int s = -1;
	waitpid(pid, &s, 0);
	return s != 0;
}

/* As another program: told where it should be able to be. */
static int other(const char *text)
{
	for (int i = 0; text[i]; i++)
		if (text[i] == '1')
			CPU_SET(i, &mine);
	return differs();
}

static void start_other(void)
{
	char text[CPU_SETSIZE + 1] = "";
	for (int i = 0; i < CPU_SETSIZE; i++)
		text[i] = CPU_ISSET(i, &mine) ? '1' : '0';
	execl("/proc/self/exe", "other", text, NULL);
	_exit(1);
}

static void rounds(void)
{
	static unsigned i; /* not a register's, which the child of vfork has too */
	for (i = 0; i < ROUNDS; i++) {
		pthread_t id;
		burst(5);
		wrong[0] += (unsigned)differs();
		burst(4 + i % 3);
		if (!pthread_create(&id, NULL, thread, NULL))
			pthread_join(id, NULL);
		burst(4 + i % 3);
		pid_t pid = fork();
		if (!pid)
			_exit(differs());
		wrong[2] += status(pid);
		burst(4 + i % 3);
		if (i % 4 == 0 && !(pid = fork())) {
			burst(6);
			start_other();
		}
		if (i % 4 == 0)
			wrong[3] += status(pid);
		burst(4 + i % 3);
		if (i % 4 == 1 && !(pid = vfork()))
			_exit(0);
		if (i % 4 == 1)
			wrong[4] += status(pid) + (unsigned)differs();
	}
}

/* Who has opened that may read there at any time where it may be just then. */
static unsigned look(void)
{
	unsigned wrong = 0;
	char text[4096], name[] = "\nCpus_allowed_list:\t", first[64];
	int fd = open("/proc/self/status", O_RDONLY);
	for (int i = 0; i < 500; i++) {
		burst(1);
		ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
		text[n < 0 ? 0 : n] = 0;
		char *at = strstr(text, name);
		size_t len = at ? strcspn(at + sizeof(name) - 1, "\n") : 0;
		if (!len || len >= sizeof(first)) {
			wrong++;
			continue;
		}
		at += sizeof(name) - 1;
		if (!i)
			memcpy(first, at, len + 1);
		wrong += memcmp(first, at, len + 1) != 0;
	}
	close(fd);
	return wrong;
}

int main(int argc, char **argv)
{
	bool looks = argc > 1 && !strcmp(argv[1], "status");
	if (argc > 1 && !looks)
		return other(argv[1]);
	code = (int (*)(void))mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				   -1, 0);
	if ((void *)code == MAP_FAILED || sched_getaffinity(0, sizeof(mine), &mine))
		return 1;
	if (looks) {
		printf("%u\n", look());
		return 0;
	}
	rounds();
	/* on each processor alone, and wherever it was */
	cpu_set_t all = mine;
	for (int i = 0; i < CPU_SETSIZE; i++) {
		if (!CPU_ISSET(i, &all))
			continue;
		CPU_ZERO(&mine);
		CPU_SET(i, &mine);
		burst(6);
		wrong[5] += sched_setaffinity(0, sizeof(mine), &mine) != 0;
		burst(6);
		wrong[5] += (unsigned)differs() + (sched_getcpu() != i);
	}
	mine = all;
	wrong[5] += sched_setaffinity(0, sizeof(mine), &mine) != 0;
	rounds();
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		printf("%u ", wrong[i]);
	putchar('\n');
	return 0;
}
