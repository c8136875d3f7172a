/*
 * Instructions and jumps that hardly any program makes, for the end-to-end tests: each is tried
 * with a handler that says which signal came, from where, and what the kernel says of it, and then
 * goes on behind it. Prints only what is the same in every run.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

static sigjmp_buf jump;
static uint64_t from, wild;

static const char *place(uint64_t at)
{
	static char text[32];
	if (at == wild)
		return "the target";
	if (at && at >> 32 == 0)
		return "low";
	if (at - from < 16) {
		snprintf(text, sizeof(text), "+%u", (unsigned)(at - from));
		return text;
	}
	return at ? "elsewhere" : "0";
}

static void on_signal(int sig, siginfo_t *i, void *context)
{
	const ucontext_t *uc = context;
	const greg_t *g = uc->uc_mcontext.gregs;
	printf(" signal %d code %d rip %s", sig, i->si_code, place((uint64_t)g[REG_RIP]));
	if (sig == SIGSEGV || sig == SIGBUS || sig == SIGILL)
		printf(" addr %s", place((uint64_t)(uintptr_t)i->si_addr));
	if (sig == SIGSEGV)
		printf(" error %lx trap %ld", (unsigned long)g[REG_ERR], (long)g[REG_TRAPNO]);
	if (sig == SIGSEGV && g[REG_TRAPNO] == 14) /* a page's; else it is that of an earlier one */
		printf(" cr2 %s", place((uint64_t)g[REG_CR2]));
	siglongjmp(jump, 1);
}

/* ---- one instruction --------------------------------------------------------------------------
 */

static uint8_t *code;
static uint64_t *memory; /* below 4 GiB */

typedef uint64_t fn(uint64_t *memory, uint64_t rsi, uint64_t rdx);

static const struct {
	const char *name;
	uint8_t len;
	const char *bytes;
} insns[] = {
#define I(name, bytes)                                                                             \
	{                                                                                          \
		name, sizeof(bytes) - 1, bytes                                                     \
	}
	I("lock cpuid", "\xf0\x0f\xa2"),
	I("lock xgetbv", "\xf0\x0f\x01\xd0"),
	I("lock rdtsc", "\xf0\x0f\x31"),
	I("lock nop", "\xf0\x90"),
	I("lock mov", "\xf0\x48\x89\x07"),
	I("lock add reg", "\xf0\x01\xc0"),
	I("lock syscall", "\xf0\x0f\x05"),
	I("lock mfence", "\xf0\x0f\xae\xf0"),
	I("lock movups", "\xf0\x0f\x10\x07"),
	I("lock vaddps", "\xf0\xc5\xf0\x58\xc1"),
	I("lock bt", "\xf0\x0f\xa3\x07"),
	I("66 xgetbv", "\x66\x0f\x01\xd0"),
	I("66 cpuid", "\x66\x0f\xa2\x31\xc0"),
	I("xgetbv 77", "\xb9\x4d\x00\x00\x00\x0f\x01\xd0"),
	I("cli", "\xfa"),
	I("hlt", "\xf4"),
	I("in", "\xec"),
	I("int 0x21", "\xcd\x21"),
	I("int 4", "\xcd\x04"),
	I("int3", "\xcc"),
	I("int 3", "\xcd\x03"),
	I("into", "\xce"),
	I("ud2", "\x0f\x0b"),
	I("ud0", "\x0f\xff\xc0"),
	I("mov cr0", "\x0f\x20\xc0"),
	I("mov ds 0x21", "\xb8\x21\x00\x00\x00\x8e\xd8"),
	I("mov ds 0x2b", "\xb8\x2b\x00\x00\x00\x8e\xd8"),
	I("mov ds 0", "\x31\xc0\x8e\xd8"),
	I("mov ds 0x77", "\xb8\x77\x00\x00\x00\x8e\xd8"),
	I("mov es 0x21", "\xb8\x21\x00\x00\x00\x8e\xc0"),
	I("mov es 0", "\x31\xc0\x8e\xc0"),
	I("mov gs 0x2b", "\xb8\x2b\x00\x00\x00\x8e\xe8\x31\xc0\x8c\xe8"),
	I("mov gs 0", "\x31\xc0\x8e\xe8\x8c\xe8"),
	I("mov cs", "\x8e\xc8"),
	I("mov ss same", "\x8c\xd0\x8e\xd0\x48\xff\xc1"),
	I("mov ss 0", "\x31\xc0\x8e\xd0"),
	I("mov ss 0x77", "\xb8\x77\x00\x00\x00\x8e\xd0"),
	I("mov ss, load", "\x8c\xd0\x8e\xd0\x48\x8b\x0c\x25\x00\x00\x00\x00"),
	I("mov ss, int 0x21", "\x8c\xd0\x8e\xd0\xcd\x21"),
	I("mov ss, ud2", "\x8c\xd0\x8e\xd0\x0f\x0b"),
	I("66 pushf", "\x66\x9c\x66\x58\x25\x00\x01\x00\x00"),
	I("pushf", "\x9c\x58\x25\x00\x01\x00\x00"),
	I("66 popf", "\x66\x6a\x02\x66\x9d"),
	I("smsw", "\x0f\x01\xe0\x83\xe0\x01"),
	I("sldt", "\x31\xc0\x0f\x00\xc0"),
	I("str", "\x31\xc0\x0f\x00\xc8\x83\xe0\x07"),
	I("sgdt", "\x0f\x01\x07\x31\xc0"),
	I("sidt", "\x0f\x01\x0f\x31\xc0"),
	I("sgdt, sgdt, count", "\x31\xc0\x0f\x01\x07\xff\xc0\x0f\x01\x07\xff\xc0\xff\xc0"),
	I("lar", "\xb8\x2b\x00\x00\x00\x0f\x02\xc0"),
	I("lsl", "\xb8\x77\x00\x00\x00\x0f\x03\xc0"),
	I("verr", "\xb8\x2b\x00\x00\x00\x0f\x00\xe0\x0f\x94\xc0"),
	I("int 0x80 getpid", "\xb8\x14\x00\x00\x00\xcd\x80\x31\xc0"),
	I("int 0x80 bad", "\xb8\xff\xff\x00\x00\xcd\x80"),
	I("iretq", "\x48\x89\xe0\x6a\x2b\x50\x68\x02\x02\x00\x00\x6a\x33\x48\x8d\x0d\x03\x00\x00"
		   "\x00\x51\x48\xcf\x31\xc0"),
	I("retfq", "\x6a\x33\x48\x8d\x0d\x03\x00\x00\x00\x51\x48\xcb\x31\xc0"),
	I("sysenter", "\xb8\x14\x00\x00\x00\x0f\x34\x31\xc0"),
	I("far jmp null", "\x6a\x00\x6a\x00\xff\x2c\x24"),
	I("far ret null", "\x6a\x00\x6a\x00\x48\xcb"),
#undef I
};

/* Where programs may not set the gs base the kernel takes it from the selector, and the recording
 * ends (doc/limits.md). */
static bool has(const char *name)
{
	bool base = getauxval(AT_HWCAP2) & 2; /* FSGSBASE: arch/x86/include/uapi/asm/hwcap2.h */
	return base || strcmp(name, "mov gs 0x2b") != 0;
}

static void one(unsigned k)
{
	uint64_t r;
	from = (uint64_t)(uintptr_t)code;
	wild = 1;
	memset(code, 0x90, 64);
	uint8_t *p = code;
	/* push rbp; mov rbp, rsp ... leave; ret */
	memcpy(p, insns[k].bytes, insns[k].len);
	memcpy(p + insns[k].len, "\xc9\xc3", 2);
	printf("%s:", insns[k].name);
	fflush(stdout);
	if (!sigsetjmp(jump, 1)) {
		__asm__ volatile(
			"push %%rbp\n\tlea -8(%%rsp), %%rbp\n\t"
			"lea 1f(%%rip), %%rcx\n\tpush %%rcx\n\tpush %%rbp\n\tmov %%rsp, %%rbp\n\t"
			"xor %%eax, %%eax\n\txor %%ecx, %%ecx\n\tcmp %%eax, %%eax\n\tjmp "
			"*%2\n1:\n\tpop %%rbp"
			: "=&a"(r)
			: "D"(memory), "d"(code)
			: "rcx", "rbx", "rsi", "memory", "cc", "r8", "r9", "r10", "r11");
		printf(" %llx", (unsigned long long)r);
	}
	/* ss and ds as they were */
	__asm__ volatile("mov %0, %%ds\n\tmov %0, %%es" : : "r"(0));
	printf("\n");
}

/* ---- flags behind an instruction that nobody translates
 * ------------------------------------------ */

/* Those that it overwrites may have been lost before, and then be by chance what it makes of them.
 */
static void dead_flags(void)
{
	uint64_t sum = 0, f;
	memory[0] = 1;
	for (unsigned k = 0; k < 64; k++) {
		__asm__ volatile("mov $-1, %%ecx\n\ttest %%ecx, %%ecx\n\taddr32 scasb\n\tpushfq\n\t"
				 "pop %0"
				 : "=r"(f)
				 : "a"(k + 1), "D"(memory)
				 : "rcx", "memory", "cc");
		sum = sum * 31 + (f & 0x8d5);
	}
	printf("flags %lx\n", (unsigned long)sum);
	for (volatile uint64_t k = sum & 1023; k;
	     k--) /* a replay that has others takes another way */
		;
}

/* The kernel's old page of system calls, which it emulates, if it does. */
static void vsyscall(void)
{
	uint64_t r, counted = 0;
	if (!sigsetjmp(jump, 1)) {
		__asm__ volatile("call *%2\n\tinc %1\n\tinc %1"
				 : "=&a"(r), "+r"(counted)
				 : "b"(0xffffffffff600400), "D"(0)
				 : "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory");
		printf("time: %d %d", r > 1000000000, (int)counted);
	}
	printf("\n");
}

/* ---- what overwrites the register that its own address is made of
 * -------------------------------- */

static uint64_t *cells; /* two pages, and nothing behind them */

static void show(const char *what, uint64_t a, uint64_t d)
{
	printf("%s: %lx %lx,", what, (unsigned long)a, (unsigned long)d);
	for (int k = 0; k < 4; k++)
		printf(" %lx", (unsigned long)cells[k]);
	printf("\n");
}

static void own_address(void)
{
	uint64_t a, d, at = (uint64_t)(uintptr_t)cells;
#define OWN(what, text, rax, rdx, rbx, rcx)                                                        \
	do {                                                                                       \
		for (int k = 0; k < 4; k++)                                                        \
			cells[k] = 0x1111 * (uint64_t)(k + 1);                                     \
		__asm__ volatile(text                                                              \
				 : "=a"(a), "=d"(d)                                                \
				 : "0"(rax), "1"(rdx), "b"(rbx), "c"(rcx)                          \
				 : "memory", "cc");                                                \
		show(what, a, d);                                                                  \
	} while (0)
#define OWN2(what, text, ...)                                                                      \
	OWN(what, text, __VA_ARGS__);                                                              \
	OWN("lock " what, "lock " text, __VA_ARGS__)
	OWN2("xadd q", "xaddq %%rax, (%%rax)", at, 0, 0, 0);
	OWN2("xadd l", "xaddl %%eax, 8(%%rax)", at, 0, 0, 0);
	OWN2("xadd b", "xaddb %%dl, 8(%%rdx)", 0, at, 0, 0);
	OWN2("xadd index", "xaddq %%rdx, (%%rax,%%rdx,8)", at, 2, 0, 0);
	OWN2("cmpxchg", "cmpxchgq %%rcx, (%%rax)", at, 0, 0, 7);
	OWN2("cmpxchg l", "cmpxchgl %%ecx, 8(%%rax)", at, 0, 0, 7);
	cells[0] = at;
	OWN("mov, cmpxchg", "movq %%rax, (%%rax)\n\tcmpxchgq %%rcx, (%%rax)", at, 0, 0, 7);
	OWN2("cmpxchg8b rax", "cmpxchg8b (%%rax)", at, 0, 5, 6);
	OWN2("cmpxchg8b rdx", "cmpxchg8b 8(%%rdx)", 0, at, 5, 6);
	OWN2("cmpxchg8b same", "cmpxchg8b 8(%%rdx,%%rax)", 0x2222, at - 0x2222, 5, 6);
	OWN2("cmpxchg16b rax", "cmpxchg16b (%%rax)", at, 0, 5, 6);
	OWN2("cmpxchg16b rdx", "cmpxchg16b 16(%%rdx)", 0, at, 5, 6);
	OWN("xchg", "xchgq %%rax, (%%rax)", at, 0, 0, 0);
	OWN("xchg b", "xchgb %%al, 16(%%rax)", at, 0, 0, 0);
	OWN("mov", "movq 8(%%rax), %%rax", at, 0, 0, 0);
	OWN("add", "addq 8(%%rax), %%rax\n\tsub %%rdx, %%rax", at, at, 0, 0);
	OWN("pop", "pushq $9\n\tpushq $8\n\tpopq (%%rsp)\n\tpopq %%rax", 0, 0, 0, 0);
}

static void on_refusal(int sig, siginfo_t *i, void *context)
{
	const greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs;
	printf("signal %d code %d at %ld, rax %lx rdx %lx\n", sig, i->si_code,
	       (long)((char *)i->si_addr - (char *)cells), (unsigned long)g[REG_RAX],
	       (unsigned long)g[REG_RDX]);
	siglongjmp(jump, 1);
}

/* Nothing is changed when memory refuses the store; and loads of which the last part is refused. */
static void refused(void)
{
#define TRY(text, rax, rdx, rcx)                                                                   \
	if (!sigsetjmp(jump, 1))                                                                   \
	__asm__ volatile(text                                                                      \
			 :                                                                         \
			 : "a"((uint64_t)(rax)), "d"((uint64_t)(rdx)), "b"(5), "c"(rcx)            \
			 : "memory", "cc")
	for (int k = 0; k < 1024; k++)
		cells[k] = (uint64_t)k * 0x10001;
	mprotect(cells, 4096, PROT_READ);
	TRY("xaddq %%rax, (%%rcx)", 1, 2, cells);
	TRY("lock xaddl %%eax, 8(%%rcx)", 1, 2, cells);
	TRY("cmpxchgq %%rdx, (%%rcx)", 1, 2, cells);
	TRY("cmpxchgq %%rdx, (%%rcx)", 0, 2, cells);
	TRY("cmpxchg8b (%%rcx)", 1, 2, cells);
	TRY("cmpxchg16b (%%rcx)", 1, 2, cells);
	TRY("xchgq %%rdx, (%%rcx)", 1, 2, cells);
	uint8_t *end = (uint8_t *)(cells + 1024);
	TRY("movups (%%rcx), %%xmm1", 1, 2, end - 8);
	TRY("movups (%%rcx), %%xmm1", 1, 2, end - 3);
	TRY("fldt (%%rcx)", 1, 2, end - 8);
	TRY("vaddps (%%rcx), %%ymm1, %%ymm1", 1, 2, end - 24);
	TRY("vaddps (%%rcx), %%ymm1, %%ymm1", 1, 2, end - 31);
	TRY("vpaddd (%%rcx), %%xmm1, %%xmm1", 1, 2, end - 9);
	mprotect(cells, 4096, PROT_READ | PROT_WRITE);
}

/* ---- jumps to where no code is ------------------------------------------------------------------
 */

static void go(const char *what, uint64_t to)
{
	from = 0;
	wild = to;
	printf("jump to %s:", what);
	fflush(stdout);
	if (!sigsetjmp(jump, 1))
		((void (*)(void))(uintptr_t)to)();
	printf("\n");
}

/* What only a recorder has mapped; elsewhere nothing is there. */
static uint64_t shared_mapping(const char *permissions, uint64_t otherwise, unsigned *lines)
{
	FILE *f = fopen("//proc/self/maps", "r"); /* with deja's: recorder/hide.c */
	char line[512], perm[8];
	unsigned long start;
	*lines = 0;
	while (f && fgets(line, sizeof(line), f)) {
		++*lines;
		if (sscanf(line, "%lx-%*x %7s", &start, perm) == 2 && !strcmp(perm, permissions))
			otherwise = start;
	}
	if (f)
		fclose(f);
	return otherwise;
}

static volatile int nulls;

/* A call of nothing returns 77, as a run-time system's handler may want it. */
static void on_null(int sig, siginfo_t *i, void *context)
{
	greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs;
	(void)sig;
	if (g[REG_RIP] != (greg_t)(uintptr_t)i->si_addr || g[REG_ERR] != 0x14)
		_exit(9);
	g[REG_RIP] = *(greg_t *)g[REG_RSP];
	g[REG_RSP] += 8;
	g[REG_RAX] = 77;
	nulls++;
}

static void jumps(void)
{
	unsigned lines, more;
	uint8_t *two = mmap(NULL, 8192, PROT_READ | PROT_WRITE | PROT_EXEC,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(two + 4096, 4096);
	go("0", 0);
	go("a place that is not mapped", 0x123456789000);
	go("one that is not mapped, below", 0x20001234);
	go("data", (uint64_t)(uintptr_t)memory);
	go("the stack", (uint64_t)(uintptr_t)&lines & ~15ULL);
	mprotect(two, 4096, PROT_NONE);
	go("a page without access", (uint64_t)(uintptr_t)two);
	mprotect(two, 4096, PROT_READ);
	go("a page to read", (uint64_t)(uintptr_t)two);
	mprotect(two, 4096, PROT_READ | PROT_WRITE | PROT_EXEC);
	two[4095] = 0x90;
	go("the last byte of a page, a nop", (uint64_t)(uintptr_t)two + 4095);
	two[4095] = 0x48;
	go("the last byte of a page, a prefix", (uint64_t)(uintptr_t)two + 4095);
	munmap(two, 4096);
	go("what was code", (uint64_t)(uintptr_t)two + 4095);
	uint64_t area = shared_mapping("rw-s", 0x7e8100000000, &lines);
	uint64_t cache = shared_mapping("r-xs", 0x60000000, &lines);
	go("a recorder's area", area);
	go("it, further on", area + 12345);
	go("a recorder's code", cache);
	go("it, further on", cache + 0x123);
	struct sigaction sa;
	memset(&sa, 0, sizeof(sa));
	sa.sa_flags = SA_SIGINFO;
	sa.sa_sigaction = on_null;
	sigaction(SIGSEGV, &sa, NULL);
	uint64_t sum = 0;
	for (uint64_t k = 0; k < 200; k++)
		sum += ((uint64_t(*)(void))(uintptr_t)(0x200000000000 + (k << 30)))();
	shared_mapping("", 0, &more);
	printf("%d calls of nothing: %lu, %s\n", nulls, (unsigned long)sum,
	       more > lines + 2 ? "and mappings came of it" : "and nothing came of it");
	_exit(3);
}

int main(int argc, char **argv)
{
	static char stack[65536];
	stack_t ss = { .ss_sp = stack, .ss_size = sizeof(stack) };
	struct sigaction sa;
	static const int signals[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS };

	memset(&sa, 0, sizeof(sa));
	sa.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
	sa.sa_sigaction = on_signal;
	sigaltstack(&ss, NULL);
	for (size_t k = 0; k < sizeof(signals) / sizeof(*signals); k++)
		sigaction(signals[k], &sa, NULL);
	code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		    0);
	memory = mmap((void *)0x20000000, 4096, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	for (unsigned k = 0; k < sizeof(insns) / sizeof(*insns); k++)
		if ((argc < 2 || strstr(insns[k].name, argv[1])) && has(insns[k].name))
			one(k);
	cells = mmap((void *)0x310000000000, 3 * 4096, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	munmap(cells + 1024, 4096);
	dead_flags();
	vsyscall();
	own_address();
	sa.sa_sigaction = on_refusal;
	sigaction(SIGSEGV, &sa, NULL);
	sigaction(SIGBUS, &sa, NULL);
	refused();
	sa.sa_sigaction = on_signal;
	sigaction(SIGSEGV, &sa, NULL);
	fflush(stdout);
	setvbuf(stdout, NULL, _IONBF, 0);
	jumps();
}
