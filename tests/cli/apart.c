/* For tests/cli/apart.sh: what the kernel emulates, with every kind of operand, many times; where
 * it faults; with the trap flag set; in several threads at once.
 *
 * usage: apart ROUNDS [threads|filtered|iopl|each] */
#define _GNU_SOURCE
#include <cpuid.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define VSYSCALL 0xffffffffff600000

static uint8_t cell[16] __attribute__((used));
static int alone;     /* nobody else writes to it */
static int vsyscalls; /* the kernel maps their page */
static int umip;      /* it emulates the others, and answers the same everywhere */

#define CALL_TIME                                                                                  \
	"mov %%rsp, %%r12\n\tsub $256, %%rsp\n\tand $-16, %%rsp\n\tcall *%1\n\t"                   \
	"inc %0\n\tmov %%r12, %%rsp"

static uint64_t mixed(uint64_t sum, const void *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++)
		sum = sum * 31 + ((const uint8_t *)bytes)[i];
	return sum;
}

/* Without UMIP the processor executes the instructions itself and says what it has, which differs
 * from one processor to the next, also natively. Then it counts that something was stored, and what
 * around it was not. */
static uint64_t told(uint64_t sum, uint8_t *bytes, size_t size, size_t at, size_t length)
{
	const uint8_t fill = bytes[at ? 0 : size - 1];
	uint8_t stored = 0;
	for (size_t i = at; i < at + length && !umip; i++) {
		stored |= bytes[i] != fill;
		bytes[i] = fill;
	}
	return mixed(mixed(sum, bytes, size), &stored, 1);
}

/* One instruction, with another behind it that shows whether it was reached once. It stores
 * `length` bytes `at` a distance from the beginning; or as many `bits`. */
#define MEMORY(insn, distance, length)                                                             \
	memset(at, 0xa5, sizeof(at));                                                              \
	__asm__ volatile(insn "\n\tinc %0"                                                         \
			 : "+r"(reached)                                                           \
			 : "b"(at), "r"(8L)                                                        \
			 : "memory", "rax", "r13");                                                \
	sum = told(sum, at, sizeof(at), distance, length)
#define RELATIVE(insn, distance, length)                                                           \
	memset(cell, 0x5a, sizeof(cell));                                                          \
	__asm__ volatile(insn "\n\tinc %0" : "+r"(reached) : : "memory");                          \
	sum = alone ? told(sum, cell, sizeof(cell), distance, length) : sum
#define REGISTER(insn, bits)                                                                       \
	r = 0x123456789abcdef0;                                                                    \
	__asm__ volatile(insn "\n\tinc %0" : "+r"(reached), "+a"(r) : : "r9");                     \
	stored = (uint16_t)r != 0xdef0;                                                            \
	r = umip ? r : r >> (bits);                                                                \
	sum = mixed(mixed(sum, &r, sizeof(r)), &stored, 1)

/* How many in a round are executed natively one at a time, whether or not the kernel emulates them.
 */
static int each(void)
{
	return vsyscalls + 20;
}

/* Leaf 7 tells of UMIP (SDM vol. 2A, CPUID). deja hides it, so a recording is told by UMIP=1 or 0.
 */
static int has_umip(void)
{
	unsigned a, b, c, d;
	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && c & 1u << 2;
}

static uint64_t all(int rounds, uint64_t *counted)
{
	uint64_t sum = 0, reached = 0, r;
	uint8_t stored;
	uint8_t at[32];
	for (int i = 0; i < rounds; i++) {
		MEMORY("sgdt (%%rbx)", 0, 10);
		MEMORY("sidt 4(%%rbx,%2,2)", 20, 10);
		MEMORY("smsw (%%rbx)", 0, 2);
		MEMORY("sldt 3(%%rbx)", 3, 2);
		MEMORY("str (%%rbx)", 0, 2);
		MEMORY("mov %%rbx, %%r13\n\tsgdt (%%r13)", 0, 10);
		MEMORY("mov %%rbx, %%rax\n\tsidt %%ds:(%%rax)", 0, 10);
		RELATIVE("sgdt cell(%%rip)", 0, 10);
		RELATIVE("sidt cell+2(%%rip)", 2, 10);
		RELATIVE("smsw cell+1(%%rip)", 1, 2);
		RELATIVE("str cell(%%rip)", 0, 2);
		RELATIVE(".byte 0x49\n\tsgdt cell(%%rip)", 0, 10); /* REX.B */
		REGISTER("smsw %%eax", 32);
		REGISTER("smsw %%ax", 16);
		REGISTER("smsw %%rax", 32);
		REGISTER("sldt %%eax", 16);
		REGISTER("sldt %%ax", 16);
		REGISTER("str %%eax", 16);
		REGISTER("str %%rax", 16);
		REGISTER("mov %%rax, %%r9\n\tstr %%r9d\n\tmov %%r9, %%rax", 16);
		if (!vsyscalls)
			continue;
		__asm__ volatile(CALL_TIME
				 : "+b"(reached)
				 : "a"(VSYSCALL + 0x400), "D"(NULL)
				 : "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "r12", "memory",
				   "cc");
	}
	*counted = reached;
	return sum;
}

/* ---- where they fault -------------------------------------------------------------------------
 */

static sigjmp_buf jump;
static uintptr_t base, pages; /* what addresses are told from */

static uintptr_t told_from(uintptr_t address)
{
	if (address - base < 1 << 16)
		return address - base;
	if (address - pages < 1 << 16)
		return address - pages;
	return address;
}

static void faulted(int sig, siginfo_t *info, void *context)
{
	const greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs;
	uint64_t rip = (uint64_t)g[REG_RIP];
	printf(" signal %d code %d address %lx rip %lx rsp %lx rax %llx error %llx", sig,
	       info->si_code, told_from((uintptr_t)info->si_addr), told_from(rip),
	       (unsigned long)g[REG_RSP] % 16, g[REG_RAX], g[REG_ERR]);
	siglongjmp(jump, 1);
}

static int times_ok(void *tv, uint64_t function)
{
	int (*call)(void *, void *) = (int (*)(void *, void *))(VSYSCALL + function);
	return call(tv, NULL);
}

static void faults(uint8_t *page)
{
	struct sigaction sa = { .sa_sigaction = faulted, .sa_flags = SA_SIGINFO };
	sigaction(SIGSEGV, &sa, NULL);
	sigaction(SIGILL, &sa, NULL);
	sigaction(SIGBUS, &sa, NULL);
	for (volatile int k = 0; k < 12; k++) {
		uint8_t *places[] = { page + 4096, page + 4096 - 4, (uint8_t *)8,
				      (uint8_t *)0x8000000000000000 };
		uint8_t *at = places[k & 3];
		printf("fault %d:", k);
		if (!sigsetjmp(jump, 1)) {
			if (k < 4)
				__asm__ volatile("sgdt (%0)" : : "r"(at), "a"(1L) : "memory");
			else if (k < 8)
				__asm__ volatile("str (%0)" : : "r"(at), "a"(2L) : "memory");
			else
				printf(" %d", times_ok(at, 0));
		}
		printf("\n");
	}
	printf("no such call:");
	if (!sigsetjmp(jump, 1))
		printf(" %d", times_ok(page, 0xc00));
	printf("\ninside a call:");
	if (!sigsetjmp(jump, 1))
		printf(" %d", times_ok(page, 7));
	printf("\nread only:");
	mprotect(page, 4096, PROT_READ);
	if (!sigsetjmp(jump, 1))
		__asm__ volatile("sidt (%0)" : : "r"(page), "a"(3L) : "memory");
	printf("\ncli:");
	if (!sigsetjmp(jump, 1))
		__asm__ volatile("cli\n\tinc %%eax" : : "a"(4L));
	printf("\nlock sgdt:");
	if (!sigsetjmp(jump, 1))
		__asm__ volatile(".byte 0xf0\n\tsgdt (%0)" : : "r"(page), "a"(5L) : "memory");
	printf("\n");
}

/* ---- the trap flag ----------------------------------------------------------------------------
 */

static void trapped(int sig, siginfo_t *info, void *context)
{
	const greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs;
	uint64_t rip = (uint64_t)g[REG_RIP];
	printf(" %lx", told_from(rip));
	(void)sig, (void)info;
}

static void traps(uint8_t *at)
{
	struct sigaction sa = { .sa_sigaction = trapped, .sa_flags = SA_SIGINFO };
	sigaction(SIGTRAP, &sa, NULL);
	printf("traps at");
	__asm__ volatile(
		"pushfq\n\torl $0x100, (%%rsp)\n\tpopfq\n\tnop\n\tsgdt (%0)\n\tnop\n\tnop\n\t"
		"str %%ecx\n\tstr %%ecx\n\tnop\n\tsidt cell(%%rip)\n\tinc %%ecx\n\tnop\n\t"
		"test %%rax, %%rax\n\tje 1f\n\tcall *%1\n1:\tnop\n\tnop\n\tpushfq\n\tandl $~0x100, "
		"(%%rsp)\n\tpopfq"
		:
		: "b"(at), "a"(vsyscalls ? VSYSCALL + 0x400 : 0), "D"(NULL)
		: "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc");
	printf("\n");
}

/* ---- a filter that answers calls of the vsyscall page ------------------------------------------
 */

static void refused(int sig, siginfo_t *info, void *context)
{
	const greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs;
	printf("signal %d code %d call %d at %lx rip %lx\n", sig, info->si_code, info->si_syscall,
	       told_from((uintptr_t)info->si_call_addr), told_from((uintptr_t)g[REG_RIP]));
}

static void filtered(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_time, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 77),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getcpu, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(filter) / sizeof(*filter), filter };
	struct sigaction sa = { .sa_sigaction = refused, .sa_flags = SA_SIGINFO };
	sigaction(SIGSYS, &sa, NULL);
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		return;
	struct timeval tv = { 0 };
	printf("time %d", times_ok(NULL, 0x400));
	printf(" gettimeofday %d", times_ok(&tv, 0));
	printf(" %d\n", tv.tv_sec > 1000000000);
	printf("getcpu %d\n", times_ok(NULL, 0x800));
}

/* ---- cli and sti where the kernel lets them pass
 * -------------------------------------------------
 */

static void interrupts(int rounds)
{
	if (iopl(3)) {
		printf("iopl(3) is not permitted\n");
		return;
	}
	long reached = 0;
	for (int i = 0; i < rounds; i++)
		__asm__ volatile("cli\n\tinc %0\n\tsti\n\tinc %0\n\tsti\n\tcli\n\tinc %0"
				 : "+r"(reached));
	printf("%ld times let pass, traps at", reached);
	__asm__ volatile(
		"pushfq\n\torl $0x100, (%%rsp)\n\tpopfq\n\tnop\n\tcli\n\tnop\n\tsti\n\tcli\n\t"
		"sti\n\tnop\n\tpushfq\n\tandl $~0x100, (%%rsp)\n\tpopfq"
		:
		:
		: "memory", "cc");
	printf("\nafter iopl(0):");
	if (!iopl(0) && !sigsetjmp(jump, 1))
		__asm__ volatile("cli\n\tinc %%eax" : : "a"(4L));
	printf("\n");
}

static int has_page(void)
{
	char line[300];
	int found = 0;
	FILE *maps = fopen("/proc/self/maps", "r");
	while (maps && fgets(line, sizeof(line), maps))
		found |= strstr(line, "[vsyscall]") != NULL;
	if (maps)
		fclose(maps);
	return found;
}

static void *thread(void *rounds)
{
	uint64_t counted, sum = all((int)(intptr_t)rounds, &counted);
	char line[100];
	snprintf(line, sizeof(line), "%lu instructions, %016lx\n", counted, sum);
	return strdup(line);
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 10;
	const char *mode = argc > 2 ? argv[2] : "";
	uint8_t *own =
		mmap(NULL, 4096 * 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pages = (uintptr_t)own;
	base = (uintptr_t)main & ~(uintptr_t)0xfff;
	munmap(own + 4096, 4096);
	vsyscalls = has_page();
	umip = getenv("UMIP") ? atoi(getenv("UMIP")) : has_umip();
	if (!strcmp(mode, "each")) {
		printf("%d %s\n", each(), umip ? "emulated" : "executed");
		return 0;
	}
	pthread_t threads[3];
	int n = strcmp(mode, "threads") ? 0 : 3;
	alone = !n;
	for (int i = 0; i < n; i++)
		pthread_create(&threads[i], NULL, thread, (void *)(intptr_t)rounds);
	fputs(thread((void *)(intptr_t)rounds), stdout);
	for (int i = 0; i < n; i++) {
		void *line;
		pthread_join(threads[i], &line);
		fputs(line, stdout);
	}
	if (!n) {
		traps(own);
		faults(own);
	}
	if (!strcmp(mode, "iopl"))
		interrupts(rounds);
	if (!strcmp(mode, "filtered") && vsyscalls)
		filtered();
	return 0;
}
