/*
 * A program that is not position independent, with code enough to be worth leaving to the next
 * image of it. It executes most of it, in an order of its own, prints a number that depends on all
 * of it, and does in between what its first argument says. tests/cli/heir.sh has the reasons.
 *
 * usage: heir WHAT [SEED]      (with `again N`: becomes itself N times)
 *        heir rewrite FROM TO
 *        heir meet SEED 3>TO 4<FROM    (and another one the other way round)
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef VERSION
#define VERSION 1
#endif

#include "functions.h"

/* On a page of its own: returns what its constant says, which is changed at run time. */
__attribute__((noinline, aligned(4096))) static int changed_later(void)
{
	int r;
	__asm__ volatile("movl $1111, %0" : "=r"(r));
	return r;
}

__attribute__((noinline, aligned(4096))) static uint64_t compute(uint64_t seed)
{
	return through(seed * 0x9e3779b97f4a7c15ULL + 1, 6) + (uint64_t)changed_later();
}

static void patch(void)
{
	uint8_t *page = (uint8_t *)((uintptr_t)changed_later & ~(uintptr_t)4095);
	const uint32_t from = 1111, to = 2222;
	if (mprotect(page, 4096, PROT_READ | PROT_WRITE))
		_exit(90);
	uint8_t *at = memmem(page, 64, &from, sizeof(from));
	if (!at)
		_exit(91);
	memcpy(at, &to, sizeof(to));
	if (mprotect(page, 4096, PROT_READ | PROT_EXEC))
		_exit(92);
}

static volatile sig_atomic_t faults;

static void skip(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	(void)sig;
	(void)info;
	faults = faults + 1;
	uc->uc_mcontext.gregs[REG_RIP] += 2; /* the load below */
}

static void fault(void)
{
	struct sigaction sa = { .sa_sigaction = skip, .sa_flags = SA_SIGINFO };
	sigaction(SIGSEGV, &sa, NULL);
	for (int i = 0; i < 3; i++)
		__asm__ volatile(".byte 0x8b, 0x00" : : "a"(8L) : "memory"); /* mov (%rax), %eax */
	printf("faults %d\n", (int)faults);
}

static void *in_thread(void *arg)
{
	*(uint64_t *)arg = compute(*(uint64_t *)arg);
	return NULL;
}

/* Memory where the arena may be. */
static void map(void)
{
	const uintptr_t at = 0x60000000 + (1u << 20);
	uint64_t *p = mmap((void *)at, 1 << 20, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	if (p == MAP_FAILED)
		_exit(93);
	p[100] = compute(7);
	printf("mapped %llx\n", (unsigned long long)p[100]);
}

/* getppid fails from now on, and two more calls. */
static void filter(unsigned one, unsigned two)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, one, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, two, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(code) / sizeof(*code), code };
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, 2, &prog))
		_exit(94);
	printf("getppid %ld\n", syscall(SYS_getppid) < 0 ? -1L : 0L);
}

/* A child becomes a program that cannot be recorded. (It needs neither of these calls.) */
static void closed(uint64_t seed)
{
	int status = 0;
	fflush(stdout);
	if (!fork()) {
		printf("child %llx\n", (unsigned long long)compute(seed + 2));
		filter(SYS_memfd_create, SYS_openat);
		fflush(stdout);
		execl("./alone", "alone", NULL);
		_exit(88);
	}
	wait(&status);
	printf("child's status %d\n", status);
}

static void again(char **argv)
{
	int left = argv[2] ? atoi(argv[2]) : 0;
	char text[16];
	if (left < 1)
		return;
	snprintf(text, sizeof(text), "%d", left - 1);
	argv[2] = text;
	fflush(stdout);
	execv("/proc/self/exe", argv);
	_exit(95);
}

/* The file `to`, which is as long, gets what is in `from`, by way of a mapping. */
static int rewrite(const char *from, const char *to)
{
	int in = open(from, O_RDONLY), out = open(to, O_RDWR);
	struct stat a, b;
	if (in < 0 || out < 0 || fstat(in, &a) || fstat(out, &b) || a.st_size != b.st_size)
		return 97;
	void *p = mmap(NULL, (size_t)b.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, out, 0);
	return p == MAP_FAILED || read(in, p, (size_t)a.st_size) != a.st_size ? 98 : 0;
}

/* Where the lower halves of addresses are 0 to 4095: that page of a thread's shadow lies with what
 * is deja's own of it. One that outlives main() leaves there what it has written; another finds the
 * same bytes, which the kernel has put there. */
static volatile int has_written;

static void *low(void *arg)
{
	uint64_t *p = mmap((void *)0x700000000000, 4096, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	uint64_t bytes[512], sum = 0;
	int fds[2];
	bool stays = *(uint64_t *)arg % 2;
	for (unsigned i = 0; i < 512; i++)
		bytes[i] = i * 77 + 5;
	if (stays)
		memcpy(p, bytes, sizeof(bytes));
	else if (pipe(fds) || write(fds[1], bytes, 4096) != 4096 || read(fds[0], p, 4096) != 4096)
		exit(88);
	for (unsigned i = 0; i < 512; i++)
		sum += p[i];
	printf("low %llx\n", (unsigned long long)sum);
	has_written = 1;
	while (stays)
		pause();
	return NULL;
}

static void in_low_thread(uint64_t seed)
{
	pthread_t t;
	pthread_create(&t, NULL, low, &seed);
	while (!has_written)
		usleep(1000);
	if (seed % 2 == 0)
		pthread_join(t, NULL);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	if (!strcmp(what, "rewrite") && argc > 3)
		return rewrite(argv[2], argv[3]);
	char c = 'x';
	if (!strcmp(what, "meet") && (write(3, &c, 1) != 1 || read(4, &c, 1) != 1))
		return 89;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	printf("%llx\n", (unsigned long long)compute(seed));
	if (!strcmp(what, "patch")) {
		patch();
	} else if (!strcmp(what, "fault")) {
		fault();
	} else if (!strcmp(what, "map")) {
		map();
	} else if (!strcmp(what, "thread")) {
		pthread_t t;
		uint64_t x = seed + 1;
		pthread_create(&t, NULL, in_thread, &x);
		pthread_join(t, NULL);
		printf("thread %llx\n", (unsigned long long)x);
	} else if (!strcmp(what, "low")) {
		in_low_thread(seed);
	} else if (!strcmp(what, "fork")) {
		fflush(stdout);
		if (!fork()) {
			printf("child %llx\n", (unsigned long long)compute(seed + 2));
			exit(0);
		}
		wait(NULL);
	} else if (!strcmp(what, "filter") || !strcmp(what, "stay")) {
		filter(SYS_getppid, !strcmp(what, "stay") ? SYS_exit_group : SYS_getppid);
	} else if (!strcmp(what, "closed")) {
		closed(seed);
	} else if (!strcmp(what, "less")) {
		if (geteuid() == 0 && (setgid(65534) || setuid(65534)))
			_exit(96);
	} else if (!strcmp(what, "again")) {
		again(argv);
	} else if (!strcmp(what, "killed")) {
		fflush(stdout);
		raise(SIGKILL);
	}
	printf("%llx\n", (unsigned long long)compute(seed + 3));
	if (!strcmp(what, "stay")) { /* it cannot exit, and changes after it has tried */
		fflush(stdout);
		syscall(SYS_exit_group, 1);
		patch();
		printf("stays %llx\n", (unsigned long long)compute(seed));
		fflush(stdout);
		syscall(SYS_exit, 3);
	}
	return (int)(seed % 5);
}
