/*
 * Maps, changes and unmaps memory at fixed places, in particular where deja has its own: around the
 * program's code, its libraries, the heap, and where deja's area lies. Nothing but the program may
 * be found there. usage: collide SEED
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#define MiB (1UL << 20)
#define GiB (1UL << 30)

static unsigned long seed;

static unsigned long rnd(unsigned long n)
{
	seed = seed * 6364136223846793005UL + 1442695040888963407UL;
	return (seed >> 33) % n;
}

/* Something to execute: it needs translated code, here and in a library. */
static unsigned long work(void)
{
	unsigned long h = 0;
	char text[32];
	for (unsigned long i = 0; i < 20; i++) {
		snprintf(text, sizeof(text), "%lu", i * h);
		h = h * 31 + strlen(text);
	}
	return h;
}

/* Whether the program has something in the range, as the kernel says: what is deja's is not the
 * program's, and natively is not there. */
static int taken(unsigned long at, unsigned long size)
{
	static char text[1 << 20];
	int fd = open("/proc/self/maps", O_RDONLY), found = 0;
	size_t n = 0;
	ssize_t got;
	while ((got = read(fd, text + n, sizeof(text) - 1 - n)) > 0)
		n += (size_t)got;
	text[n] = 0;
	close(fd);
	for (char *line = strtok(text, "\n"); line && !found; line = strtok(NULL, "\n")) {
		unsigned long start, end;
		if (sscanf(line, "%lx-%lx", &start, &end) != 2 || start >= at + size || end <= at)
			continue;
		found = !strstr(line, "memfd:deja") && end - start != (4UL << 30) - 4096;
	}
	return found;
}

static unsigned long place(unsigned i)
{
	const unsigned long near[] = {
		(unsigned long)work,	(unsigned long)dlsym(RTLD_DEFAULT, "printf"),
		(unsigned long)sbrk(0), 0x7e8100000000,
		0x7e8200000000,		0x60000000
	};
	unsigned long base = near[i % 6] & -MiB;
	if (i % 6 >= 3)
		return base + rnd(9 * GiB / 4096) * 4096 - 64 * MiB;
	return base + 2 * GiB - 256 * MiB * rnd(16) + rnd(100) * 4096;
}

static const char *one(unsigned long at, unsigned long size)
{
	static char result[100];
	unsigned what = (unsigned)rnd(7);
	char *p = MAP_FAILED;
	int id = -1, rc = 0;
	const int rw = PROT_READ | PROT_WRITE, anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
	if (taken(at, size))
		return "taken";
	errno = 0;
	switch (what) {
	case 0:
		p = mmap((void *)at, size, rw, anonymous | MAP_NORESERVE | MAP_FIXED, -1, 0);
		break;
	case 1:
		p = mmap((void *)at, size, rw, anonymous | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1,
			 0);
		break;
	case 2:
		p = mmap((void *)at, size, rw, anonymous | MAP_NORESERVE, -1, 0);
		break;
	case 3:
		p = mmap(NULL, 8192, rw, anonymous, -1, 0);
		memset(p, 7, 8192);
		size = 8192;
		p = mremap(p, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)at);
		break;
	case 4:
		rc = mprotect((void *)at, size, PROT_READ);
		break;
	case 5:
		rc = munmap((void *)at, size);
		break;
	case 6:
		id = shmget(IPC_PRIVATE, 2 * MiB, 0600);
		p = shmat(id, (void *)at, rnd(2) ? SHM_REMAP : 0);
		shmctl(id, IPC_RMID, NULL);
		size = 2 * MiB;
		break;
	}
	int error = errno;
	if (what != 4 && what != 5 && p == (char *)at) {
		p[0]++;
		p[size - 1]++;
		if (p[0] + p[size - 1] != (what == 3 ? 16 : 2))
			rc = 55;
		if (id >= 0)
			shmdt(p);
		else
			munmap(p, size);
		rc += 1000;
	} else if (what == 2 && p != MAP_FAILED) {
		munmap(p, size); /* where is the kernel's choice, which need not be the same */
	}
	snprintf(result, sizeof(result), "%u %d %s", what, rc, strerror(error));
	return result;
}

/* How far the break can go, as some programs find out: by halves, from more than there is. */
static void breaks(void)
{
	for (unsigned long more = 1UL << 63; more > GiB; more /= 2) {
		unsigned long end = (unsigned long)sbrk(0) + more;
		if (end < more || end > 1UL << 46)
			printf("break %lx: %d\n", more, brk((void *)end));
	}
	printf("break: %d, %lu\n", sbrk(MiB) == (void *)-1, work());
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	breaks();
	seed = (unsigned long)atoi(argv[1]);
	for (unsigned i = 0; i < 60; i++) {
		unsigned long at = place(i), size = (1 + rnd(1000)) * 4096;
		if (rnd(8) == 0)
			size = (1 + rnd(5)) * GiB;
		const char *what = one(at, size);
		printf("%u: %s, %lu\n", i % 6, what, work());
		if (i % 20 == 7) {
			int status = 0;
			pid_t pid = fork();
			if (pid == 0)
				_exit(taken(0x7e8100000000, GiB) ? 9 : (int)work() & 7);
			waitpid(pid, &status, 0);
			printf("child: %d\n", status);
		}
	}
	return argc - 2;
}
