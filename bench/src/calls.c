/*
 * What system calls cost that change the address space or the process: prints the nanoseconds of
 * a round, the median of batches.
 *
 * usage: calls KIND ROUNDS
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define BATCHES 15
#define PAGE	4096

static int fd;
static char *memory, *code, *heap;

static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void pair(unsigned i)
{
	(void)i;
	munmap(mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
	       2 * PAGE);
}

static void touched(unsigned i)
{
	char *p = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	p[PAGE] = (char)i;
	munmap(p, 2 * PAGE);
}

static void move_break(unsigned i)
{
	syscall(SYS_brk, heap + (i % 2 ? PAGE : 3 * PAGE));
}

static void protect(unsigned i)
{
	mprotect(memory + PAGE, PAGE, i % 2 ? PROT_READ | PROT_WRITE : PROT_READ);
}

static void resize(unsigned i)
{
	memory = mremap(memory, (i % 2 ? 128 : 64) * PAGE, (i % 2 ? 64 : 128) * PAGE,
			MREMAP_MAYMOVE);
}

static void many(unsigned i)
{
	mmap(NULL, PAGE, i % 2 ? PROT_READ : PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
	     -1, 0);
}

static void file(unsigned i)
{
	(void)i;
	mmap(memory, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0);
}

static void protect_code(unsigned i)
{
	mprotect(code, PAGE, i % 2 ? PROT_READ | PROT_EXEC : PROT_READ);
}

/* The round of a just-in-time compiler whose pages are never writable and executable at once. */
static void rewrite(unsigned i)
{
	unsigned char *at = (unsigned char *)code;
	mprotect(code, PAGE, PROT_READ | PROT_WRITE);
	at[0] = 0xb8; /* mov eax, i; ret */
	memcpy(at + 1, &i, sizeof(i));
	at[5] = 0xc3;
	mprotect(code, PAGE, PROT_READ | PROT_EXEC);
	if (((unsigned (*)(void))(uintptr_t)code)() != i)
		abort();
}

static const struct {
	const char *name;
	void (*call)(unsigned i);
} kinds[] = {
	{ "pair", pair },	 { "touched", touched },   { "brk", move_break },
	{ "mprotect", protect }, { "mremap", resize },	   { "many", many },
	{ "file", file },	 { "code", protect_code }, { "wx", rewrite },
};

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

/* A row of programs that replace each other; the time of the first is handed on. */
static int execs(char **argv, unsigned rounds)
{
	char left[24], total[24], start[24];
	if (!argv[3]) {
		snprintf(start, sizeof(start), "%llu", (unsigned long long)now());
		snprintf(total, sizeof(total), "%u", rounds);
	} else {
		snprintf(total, sizeof(total), "%s", argv[3]);
		snprintf(start, sizeof(start), "%s", argv[4]);
	}
	if (!rounds) {
		printf("%llu\n", (unsigned long long)((now() - strtoull(start, NULL, 10)) /
						      strtoull(total, NULL, 10)));
		return 0;
	}
	snprintf(left, sizeof(left), "%u", rounds - 1);
	execl("/proc/self/exe", argv[0], "exec", left, total, start, (char *)NULL);
	return 1;
}

int main(int argc, char **argv)
{
	uint64_t time[BATCHES];
	unsigned rounds = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
	if (argc < 3)
		return 2;
	if (!strcmp(argv[1], "exec"))
		return execs(argv, rounds);
	fd = open("/proc/self/exe", O_RDONLY);
	memory = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	code = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	heap = sbrk(0);
	for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
		if (strcmp(argv[1], kinds[k].name) != 0)
			continue;
		for (unsigned b = 0; b < BATCHES; b++) {
			uint64_t start = now();
			for (unsigned i = 0; i < rounds; i++)
				kinds[k].call(i);
			time[b] = (now() - start) / rounds;
		}
		qsort(time, BATCHES, sizeof(*time), by_size);
		printf("%llu\n", (unsigned long long)time[BATCHES / 2]);
		return 0;
	}
	return 2;
}
