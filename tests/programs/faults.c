/* Branches that the processor refuses, and stores that fault behind a load of the same instruction:
 * a handler sees each at the instruction itself, with nothing of it done. Prints only what is the
 * same in every run. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

extern char at_ret[], at_ret_pop[], at_jmp[], at_call[], at_jmp_mem[], at_call_mem[];

static const struct {
	const char *name, *at;
} places[] = {
	{ "ret", at_ret },	 { "ret 16", at_ret_pop },  { "jmp reg", at_jmp },
	{ "call reg", at_call }, { "jmp mem", at_jmp_mem }, { "call mem", at_call_mem },
};

static sigjmp_buf jump;
static uint64_t target, rsp;
static uint64_t *page;
static int repairs;

static void on_refusal(int sig, siginfo_t *i, void *context)
{
	const ucontext_t *uc = context;
	const char *rip = (const char *)uc->uc_mcontext.gregs[REG_RIP], *name = "elsewhere";

	for (size_t k = 0; k < sizeof(places) / sizeof(*places); k++)
		if (places[k].at == rip)
			name = places[k].name;
	printf("signal %d code %d at %s%s, rsp moved by %ld\n", sig, i->si_code, name,
	       (uint64_t)(uintptr_t)rip == target ? " (the target)" : "",
	       (long)(uc->uc_mcontext.gregs[REG_RSP] - (greg_t)rsp));
	siglongjmp(jump, 1);
}

static void on_write(int sig, siginfo_t *i, void *context)
{
	(void)context;
	printf("signal %d code %d, memory is still %lu\n", sig, i->si_code,
	       (unsigned long)page[repairs]);
	mprotect(page, 4096, PROT_READ | PROT_WRITE);
	if (repairs & 1)
		page[repairs] += 100; /* what the instruction finds when it is tried again */
	repairs++;
}

static void refused(void)
{
#define TRY(...)                                                                                   \
	if (!sigsetjmp(jump, 1))                                                                   \
	__asm__ volatile("mov %%rsp, %0\n\t" __VA_ARGS__                                           \
			 : "=m"(rsp)                                                               \
			 : "m"(target)                                                             \
			 : "rax", "memory")

	TRY("push %1\n\tmov %%rsp, %0\nat_ret:\n\tret");
	TRY("push %1\n\tmov %%rsp, %0\nat_ret_pop:\n\tret $16");
	TRY("mov %1, %%rax\nat_jmp:\n\tjmp *%%rax");
	TRY("mov %1, %%rax\nat_call:\n\tcall *%%rax");
	TRY("\nat_jmp_mem:\n\tjmp *%1");
	TRY("\nat_call_mem:\n\tcall *%1");
}

static void protect(void)
{
	mprotect(page, 4096, PROT_READ);
}

static void on_store(int sig, siginfo_t *i, void *context)
{
	(void)sig, (void)i, (void)context;
	siglongjmp(jump, 1);
}

/* Stores that pop, to where nothing is. What they would have stored comes, by the kernel's hand, to
 * where the low half of the address is the same; and is read there. */
static void popped(void)
{
	const size_t far = (size_t)1 << 32;
	char *here = mmap(NULL, far + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			  -1, 0);
	unsigned char bytes[16] = { 0 };
	volatile unsigned long sum = 0;
	int fds[2];

	munmap(here + 4096, far + 4096);
	if (mprotect(here, 4096, PROT_READ | PROT_WRITE) || pipe(fds))
		abort();
#define POP(op, n, at)                                                                             \
	sum += here[at] + here[at + n - 1];                                                        \
	__asm__ volatile("fldpi; " op " %0; fninit" : "=m"(bytes));                                \
	if (!sigsetjmp(jump, 1))                                                                   \
		__asm__ volatile("fldpi; " op " (%0)" : : "r"(here + far + at) : "memory");        \
	__asm__ volatile("fninit");                                                                \
	if (write(fds[1], bytes, n) != n || read(fds[0], here + at, n) != n)                       \
		abort();                                                                           \
	for (int k = 0; k < n; k++)                                                                \
		for (volatile int m = (unsigned char)here[at + k]; m; m--)                         \
	sum++

	POP("fstps", 4, 256);
	POP("fstpl", 8, 512);
	POP("fstpt", 10, 1024);
	POP("fistpll", 8, 2048);
	POP("fbstp", 10, 2500);
	POP("fstpt", 10, 59); /* in two lines */
	POP("fstpl", 8, 3068);
	printf("popped: %lu\n", sum);
}

int main(void)
{
	static char stack[65536];
	stack_t ss = { .ss_sp = stack, .ss_size = sizeof(stack) };
	struct sigaction sa;
	static const uint64_t targets[] = { 0x4141414141414141, 0x0000800000000000,
					    0xffff7fffffffffff, 0x1000 };

	memset(&sa, 0, sizeof(sa));
	sa.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
	sigaltstack(&ss, NULL);
	sa.sa_sigaction = on_refusal;
	sigaction(SIGSEGV, &sa, NULL);
	for (size_t k = 0; k < sizeof(targets) / sizeof(*targets); k++) {
		target = targets[k];
		refused();
	}

	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int k = 0; k < 16; k++)
		page[k] = (uint64_t)k;
	sa.sa_sigaction = on_write;
	sigaction(SIGSEGV, &sa, NULL);
	protect();
	__asm__ volatile("addq $1000, %0" : "+m"(page[0]));
	protect();
	__asm__ volatile("addq $1000, %0" : "+m"(page[1]));
	protect();
	__asm__ volatile("lock addq $1000, %0" : "+m"(page[2]));
	protect();
	__asm__ volatile("shlq $3, %0" : "+m"(page[3]));
	protect();
	__asm__ volatile("fld1; fistpll %0" : "=m"(page[4]));
	protect();
	__asm__ volatile("push %%rax; pop %0" : "=m"(page[5]) : "a"(55UL));
	protect();
	__asm__ volatile("btsq %1, %0" : "+m"(page[0]) : "r"(6 * 64 + 4L) : "memory");
	protect();
	__asm__ volatile("btcl %1, %0" : "+m"(page[8]) : "r"(-33) : "memory", "cc");
	for (int k = 0; k < 8; k++)
		printf("%lu ", (unsigned long)page[k]);
	printf("\n");
	sa.sa_sigaction = on_store;
	sigaction(SIGSEGV, &sa, NULL);
	popped();
	fflush(stdout);
	/* the end: a return to where nothing can be, unhandled */
	signal(SIGSEGV, SIG_DFL);
	target = targets[0];
	__asm__ volatile("push %0\n\tret" : : "m"(target) : "memory");
	return 0;
}
