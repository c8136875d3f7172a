/*
 * Prints lists of mappings, opened and read in every way. tests/cli/lists.sh has the reasons.
 *
 * usage: lists WAY
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char text[1 << 20];

/* What is left of it, `step` bytes at a time. */
static void print(int fd, size_t step)
{
	size_t n = 0;
	ssize_t got;
	while ((got = read(fd, text + n, step)) > 0)
		n += (size_t)got;
	/* who executes it, and what it has of the machine */
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		bool range = strchr(line, '-') && strchr(line, '-') < line + 17;
		if (range)
			puts(line);
		else if (strncmp(line, "Size:", 5) == 0 || strncmp(line, "VmFlags:", 8) == 0)
			printf("%.5s\n", line);
		else if (strstr(line, " default"))
			printf("%.*s\n", (int)(strstr(line, " default") - line), line);
	}
	memset(text, 0, n + 1);
	fflush(stdout);
}

static void all(int fd)
{
	if (fd < 0)
		printf("not opened: %d\n", errno);
	else
		print(fd, 4096);
	close(fd);
}

static void *in_thread(void *path)
{
	all(open(path, O_RDONLY));
	return NULL;
}

/* At the end of a page, behind which there is nothing. */
static char *last_bytes(const char *what)
{
	char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t n = strlen(what) + 1;
	munmap(p + 4096, 4096);
	return memcpy(p + 4096 - n, what, n);
}

static void ways_of_paths(void)
{
	char path[64];
	all(open("/proc/self/maps", O_RDONLY));
	all((int)syscall(SYS_open, "/proc/self/maps", O_RDONLY | O_CLOEXEC));
	all((int)syscall(SYS_openat, 12345, "/proc/self/maps", O_RDONLY));
	all(open("/proc/thread-self/maps", O_RDONLY));
	snprintf(path, sizeof(path), "/proc/%d/task/%d/maps", getpid(), getpid());
	all(open(path, O_RDONLY));
	all(open(last_bytes("/proc/self/maps"), O_RDONLY));
	all(open(last_bytes("/"), O_RDONLY | O_DIRECTORY));
	all(open(last_bytes("/pro"), O_RDONLY));
	all(open((char *)1, O_RDONLY));
	all((int)syscall(SYS_open, (char *)-8L, O_RDONLY));
	all(open("/proc/self/nothing", O_RDONLY));
	all(open("/proc/self/maps", O_WRONLY));
	int fd = open("/proc/self/maps", O_PATH);
	printf("by path: %s\n", fd >= 0 && read(fd, text, 10) < 0 ? "cannot be read" : "?");
	close(fd);
}

static void ways_of_reading(void)
{
	int fd = open("/proc/self/maps", O_RDONLY), other = open("/dev/zero", O_RDONLY);
	/* it is as it is when it is read */
	mmap(NULL, 3 << 12, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mmap(NULL, 5 << 12, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < 10; i++)
		if (read(other, text, 1) != 1)
			exit(90);
	print(fd, 100);
	close(fd);
	fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	int copy = dup(fd);
	printf("flags %d %d\n", fcntl(fd, F_GETFD), fcntl(copy, F_GETFD));
	print(copy, 4096);
	close(fd);
	close(copy);
	fd = open("/proc/self/maps", O_RDONLY);
	for (int i = 0; i < 200; i++) /* nobody waits for ever that it is read */
		if (read(other, text, 1) != 1)
			exit(91);
	print(fd, 4096);
	FILE *f = fopen("/proc/self/maps", "r");
	while (f && fgets(text, sizeof(text), f))
		fputs(text, stdout);
	all(open("/proc/self/smaps", O_RDONLY));
	all(open("/proc/self/numa_maps", O_RDONLY));
}

int main(int argc, char **argv)
{
	const char *way = argc > 1 ? argv[1] : "";
	char path[64];
	pthread_t t;
	int status;
	snprintf(path, sizeof(path), "/proc/%d/maps", getpid());
	if (!strcmp(way, "paths")) {
		ways_of_paths();
	} else if (!strcmp(way, "reading")) {
		ways_of_reading();
	} else if (!strcmp(way, "threads")) {
		for (int i = 0; i < 3; i++) {
			pthread_create(&t, NULL, in_thread, path);
			pthread_join(t, NULL);
		}
		all(open(path, O_RDONLY));
	} else if (!strcmp(way, "children")) {
		if (!fork()) {
			all(open("/proc/self/maps", O_RDONLY));
			all(open(path, O_RDONLY));
			exit(0);
		}
		wait(&status);
		if (!fork()) {
			execl("/proc/self/exe", "lists", "paths", NULL);
			exit(92);
		}
		wait(&status);
		all(open(path, O_RDONLY));
	} else if (!strcmp(way, "few")) { /* descriptors: what deja makes room for is in there */
		struct rlimit few = { 4, 4 };
		int fd = open("/proc/self/maps", O_RDONLY);
		print(fd, 4096);
		close(fd);
		setrlimit(RLIMIT_NOFILE, &few);
		fd = open("/proc/self/maps", O_RDONLY);
		printf("descriptor %d, %zd\n", fd, read(fd, text, 10));
	}
	return 0;
}
