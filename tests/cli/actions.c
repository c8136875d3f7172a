/*
 * For tests/cli/native.sh: what signals of faults do, set and asked for in all ways, wrong ones
 * too, and handlers that look at flags. Prints what comes of it, which is the same in each run.
 *
 * usage: actions SEED CALLS: so many calls, of which only those with a handler, or for SIGTRAP, or
 * with an argument that cannot be read are for the recorder to make; says how many on stderr.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

struct action {
	uint64_t handler, flags, restorer, mask;
};

static uint64_t seed, sum;
static unsigned supervised;
static sigjmp_buf jump;

static uint32_t any(uint32_t below)
{
	seed = seed * 6364136223846793005 + 1442695040888963407;
	return (uint32_t)((seed >> 33) % below);
}

static void add(uint64_t v)
{
	sum = (sum ^ v) * 0x9e3779b97f4a7c15;
	sum ^= sum >> 29;
}

static void on_fault(int sig, siginfo_t *i, void *context)
{
	(void)i;
	const greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs;
	add((uint64_t)sig);
	add((uint64_t)g[REG_EFL] & 0x8d5);
	siglongjmp(jump, 1);
}

static void restorer(void);
__asm__(".type restorer, @function\nrestorer: mov $15, %eax\n\tsyscall\n");

static long action(int sig, const void *set, void *old, size_t size)
{
	long r = syscall(SYS_rt_sigaction, sig, set, old, size);
	return r < 0 ? -errno : r;
}

/* A fault of that kind, with flags that nobody looks at but its handler. */
static void fault(int sig, uint64_t flags)
{
	if (sigsetjmp(jump, 1))
		return;
	switch (sig) {
	case SIGSEGV:
		__asm__ volatile("push %0; popf; mov (%1), %%rax; xor %%eax, %%eax"
				 :
				 : "r"(flags), "r"(8UL)
				 : "rax", "cc", "memory");
		break;
	case SIGILL:
		__asm__ volatile("push %0; popf; ud2" : : "r"(flags) : "cc", "memory");
		break;
	case SIGFPE:
		__asm__ volatile("push %0; popf; mov $0, %%ecx; mov $1, %%eax; cltd; idiv %%ecx"
				 :
				 : "r"(flags)
				 : "rax", "rcx", "rdx", "cc", "memory");
	}
}

int main(int argc, char **argv)
{
	static const int signals[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGUSR1, SIGTRAP };
	unsigned n = argc > 2 ? (unsigned)atoi(argv[2]) : 1000;
	uint8_t *edge =
		mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(edge + 4096, 4096, PROT_NONE);
	seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	for (unsigned i = 0; i < n; i++) {
		int sig = signals[any(16) ? any(5) : 5];
		struct action a = { 0 }, old = { 0 };
		const void *set = any(3) ? &a : NULL;
		switch (any(64)) {
		case 0: /* the last bytes that can be read: its handler, and no more of it */
			set = edge + 4096 - 8;
			memset(edge, 0, 4096);
			break;
		case 1:
			set = (void *)8;
			break;
		case 2:
			set = (void *)0x1234567890abcdef;
			break;
		case 3:
			a.handler = (uint64_t)(uintptr_t)on_fault;
			a.flags = SA_SIGINFO | 0x04000000; /* SA_RESTORER */
			a.restorer = (uint64_t)(uintptr_t)restorer;
			break;
		default:
			a.handler = any(2);
		}
		a.mask = (uint64_t)any(1u << 31) << 16;
		add((uint64_t)action(sig, set, any(4) ? &old : NULL, any(50) ? 8 : 16));
		add(old.handler ? old.handler == 1 ? 1 : 2 : 0);
		add(old.mask);
		supervised +=
			sig == SIGTRAP || (sig != SIGUSR1 && set && (set != &a || a.handler > 1));
		memset(&old, 0, sizeof(old));
		action(sig, NULL, &old, 8);
		supervised += sig == SIGTRAP;
		add(old.mask);
		if (old.handler > 1)
			fault(sig, any(0x1000) & 0x8d5);
	}
	/* what the kernel may not read or write for the program, the recorder could */
	static const int offsets[] = { -8, -4, 0, 8 };
	struct action none = { 0 };
	uint64_t mask, *all = (uint64_t *)(void *)(edge + 4096);
	action(SIGSEGV, &none, NULL, 8);
	mprotect(edge, 8192, PROT_READ | PROT_WRITE);
	memset(edge, 0xff, 8192);
	for (int k = 0; k < 4; k++)
		for (int how = SIG_BLOCK; how <= SIG_SETMASK; how++) {
			mprotect(edge + 4096, 4096, PROT_NONE);
			long r =
				syscall(SYS_rt_sigprocmask, how, (char *)all + offsets[k], NULL, 8);
			add((uint64_t)(r < 0 ? -errno : r));
			mask = 0;
			syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, &mask, 8);
			add(mask);
			mprotect(edge + 4096, 4096, PROT_READ);
			r = syscall(SYS_arch_prctl, 0x1004,
				    (char *)all + offsets[k]); /* ARCH_GET_GS */
			add((uint64_t)(r < 0 ? -errno : r));
		}
	add(*all);
	printf("%u calls: %llx\n", n, (unsigned long long)sum);
	fprintf(stderr, "%u\n", supervised);
	return 0;
}
