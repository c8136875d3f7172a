/*
 * What the arithmetic flags are in a signal handler's frame. run() is the same at every call, so
 * its flags at each of its instructions are always the same. They are first found out with the trap
 * flag, and then compared with those of the frames of a great many signals.
 *
 * usage: flags [SIGNALS]          signals at any moment
 *        flags fault [TIMES]      faults at loads before which flags are dead
 *        flags trap [SIGNALS]     the trap flag, in signals directly before popf and iret
 *        flags x87 [TIMES [cut]]  x87's pointers, of code that is no more when the exception is
 *                                 noticed; of which the upper halves may be 0
 *        flags x87 [TIMES [halve]]  ... and the program itself sees to that
 *        flags cuts               whether the machine loses those upper halves: status 0 if so
 *        flags number             a handler of faults that is told no more than the signal's number
 */
#define _GNU_SOURCE
#include <fenv.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define ARITH 0x8d5u

extern const char run_begin[], run_end[], fault_at[];
void run(volatile void *memory);
void fault(volatile void *memory);

/* Loads between instructions that write flags and those that overwrite them; some that write only a
 * part; branches, calls, long string instructions, and a long way without arithmetic. */
__asm__(".text\n"
	"run:\n"
	"run_begin:\n"
	"	xor %eax, %eax\n"
	"	mov $0x7fffffff, %ecx\n"
	"	mov %rdi, %rsi\n"
	"	.rept 3\n"
	"	add $1, %ecx\n" /* OF, SF, AF, PF */
	"	mov (%rsi), %rax\n"
	"	mov 8(%rsi), %rdx\n"
	"	mov 16(%rsi), %r8\n"
	"	sub $1, %ecx\n"
	"	mov 24(%rsi), %rax\n"
	"	stc\n"
	"	mov 32(%rsi), %rax\n"
	"	inc %ecx\n" /* keeps CF */
	"	mov 40(%rsi), %rax\n"
	"	dec %ecx\n"
	"	mov 48(%rsi), %rax\n"
	"	cmp $5, %ecx\n"
	"	.endr\n"
	"	ja 1f\n"
	"	ud2\n"
	"1:	mov (%rsi), %rax\n"
	"	mov 8(%rsi), %rdx\n"
	"	jmp 2f\n"
	"	ud2\n"
	"2:	.rept 150\n"
	"	mov 16(%rsi), %r8\n"
	"	mov %r8, 24(%rsi)\n"
	"	.endr\n"
	"	and $0x55, %ecx\n"
	"	call 3f\n"
	"	mov (%rsi), %rax\n"
	"	test %eax, %eax\n"
	"	mov $0x80, %r8d\n"
	"	mov %r8d, %ecx\n"
	"	shl $1, %r8b\n"
	"	mov %rsi, %rdx\n"
	"	mov 8(%rsi), %r9\n"
	"	mov $3000, %ecx\n"
	"	lea 4096(%rdi), %rdi\n"
	"	rep movsb\n"
	"	lea -3000(%rsi), %rsi\n"
	"	lea -3000(%rdi), %rdi\n"
	"	mov $3000, %ecx\n"
	"	add $0x7fffffff, %r8d\n"
	"	repe cmpsb\n"
	"	lea -3000(%rsi), %rsi\n"
	"	lea -3000(%rdi), %rdi\n"
	"	cmp $5, %ecx\n"
	"	mov 8(%rsi), %r9\n"
	"	neg %r8d\n"
	"	mov 8(%rsi), %r9\n"
	"	xor %eax, %eax\n"
	"	ret\n"
	"3:	mov (%rsi), %rax\n"
	"	sub $0x77, %ecx\n"
	"	mov (%rsi), %rax\n"
	"	ret\n"
	"run_end:\n"
	/* the second load faults; the flags before it are dead */
	"fault:\n"
	"	mov $0x7fffffff, %ecx\n"
	"	add $1, %ecx\n"
	"	mov (%rsp), %rax\n"
	"fault_at:\n"
	"	mov (%rdi), %rax\n"
	"	cmp %eax, %eax\n"
	"	ret\n");

/* At an instruction; before its first iteration, and before its last if it is a string instruction:
 * a processor that an interrupt takes out of repe cmpsb in between may show either (SDM vol. 2B,
 * REP). */
static unsigned flags[4096], first[4096];
static char known[4096];
static volatile unsigned long seen, wrong;
static sigjmp_buf out;

static void on_step(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	uintptr_t at = (uintptr_t)uc->uc_mcontext.gregs[REG_RIP] - (uintptr_t)run_begin;

	if (at >= (uintptr_t)(run_end - run_begin))
		return;
	flags[at] = (unsigned)uc->uc_mcontext.gregs[REG_EFL] & ARITH;
	if (!known[at])
		first[at] = flags[at];
	known[at] = 1;
}

static void on_timer(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	uintptr_t at = (uintptr_t)uc->uc_mcontext.gregs[REG_RIP] - (uintptr_t)run_begin;
	unsigned now = (unsigned)uc->uc_mcontext.gregs[REG_EFL] & ARITH;

	if (!at || at >= (uintptr_t)(run_end - run_begin))
		return;
	seen++;
	if (known[at] && (flags[at] == now || first[at] == now))
		return;
	if (wrong++ < 5)
		printf("at %zu flags are %x, not %x\n", (size_t)at, now, flags[at]);
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;

	seen++;
	/* of 0x7fffffff + 1 */
	if (uc->uc_mcontext.gregs[REG_RIP] != (greg_t)(uintptr_t)fault_at ||
	    (uc->uc_mcontext.gregs[REG_EFL] & ARITH) != 0x894)
		wrong++;
	siglongjmp(out, 1);
}

/* The program never sets it, so it is in no frame, and nothing traps. */
static void on_popf(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;

	seen++;
	wrong += uc->uc_mcontext.gregs[REG_EFL] >> 8 & 1;
}

/* The thread sends itself a signal, which comes directly behind the call. */
static void pop_flags(void)
{
	long pid = getpid(), tid = gettid(), sig = SIGALRM;

	__asm__ volatile("	lea -128(%%rsp), %%rsp\n"
			 "	mov %%rsp, %%r8\n"
			 "	pushf\n"
			 "	mov %3, %%eax\n"
			 "	syscall\n"
			 "	popf\n"
			 "	mov %%ss, %%eax\n"
			 "	push %%rax\n"
			 "	push %%r8\n"
			 "	pushf\n"
			 "	mov %%cs, %%eax\n"
			 "	push %%rax\n"
			 "	lea 1f(%%rip), %%rax\n"
			 "	push %%rax\n"
			 "	mov %3, %%eax\n"
			 "	syscall\n"
			 "	iretq\n"
			 "1:	lea 128(%%rsp), %%rsp"
			 :
			 : "D"(pid), "S"(tid), "d"(sig), "i"(SYS_tgkill)
			 : "rax", "rcx", "r8", "r11", "memory", "cc");
}

static volatile double zero;
static uint8_t *code;
static int may_be_cut, halves;

/* A hypervisor that keeps the registers of x87 in the format of 32 bits, when it lets somebody else
 * have the processor, gives back pointers of 32 bits. */
static int points_to(uint64_t pointer, uintptr_t what)
{
	return pointer == what || (may_be_cut && pointer == (uint32_t)what);
}

static void on_x87(int sig, siginfo_t *info, void *context)
{
	const struct _libc_fpstate *fp = ((ucontext_t *)context)->uc_mcontext.fpregs;

	seen++;
	if (!points_to(fp->rip, (uintptr_t)code + 2) || !points_to(fp->rdp, (uintptr_t)&zero)) {
		if (wrong++ < 5)
			printf("x87 points to %lx and %lx, not %lx and %lx\n", (long)fp->rip,
			       (long)fp->rdp, (long)code + 2, (long)&zero);
	}
	siglongjmp(out, 1);
}

static void make(const char *bytes, size_t n)
{
	mprotect(code, 4096, PROT_READ | PROT_WRITE);
	memcpy(code, bytes, n);
	mprotect(code, 4096, PROT_READ | PROT_EXEC);
	((void (*)(volatile double *))(uintptr_t)code)(&zero);
}

/* Divides by zero; then the code is others', and something else may be where its translation was;
 * then the exception is noticed. Each third time by a child. */
static void divide(unsigned time)
{
	pid_t pid = -1;
	int status = 0;

	__asm__ volatile("fninit");
	feenableexcept(FE_DIVBYZERO);
	make("\xd9\xe8\xdc\x37\xc3", 5); /* fld1; fdivl (%rdi); ret */
	if (halves) {
		static _Alignas(16) char registers[512];
		__asm__ volatile("fxsave %0\n fxrstor %0" : "+m"(registers));
	}
	if (time % 3 == 1)
		pid = fork();
	for (char k = 0; k < 5; k++) {
		char other[] = {
			(char)0xb8, k, (char)time, 0, 0, (char)0xc3
		}; /* mov imm32, %eax; ret */
		make(other, sizeof(other));
	}
	if (time % 3 == 1 && pid) {
		waitpid(pid, &status, 0);
		wrong += status != 0;
	}
	if (!sigsetjmp(out, 1))
		__asm__ volatile("fwait");
	if (!pid)
		_exit(wrong != 0);
}

/* Gives the machine two seconds to do that. */
static int cuts(void)
{
	static _Alignas(16) struct _libc_fpstate fp;
	time_t end = time(NULL) + 2;
	int cut = 0;

	__asm__ volatile("fninit");
	feenableexcept(FE_DIVBYZERO); /* some processors keep pointers of pending exceptions only */
	make("\xd9\xe8\xdc\x37\xc3", 5); /* as in divide() */
	while (!cut && time(NULL) <= end) {
		for (volatile int i = 0; i < 100000; i++)
			;
		usleep(1000);
		__asm__ volatile("fxsave64 %0" : "=m"(fp));
		cut = fp.rip == (uint32_t)((uintptr_t)code + 2);
	}
	__asm__ volatile("fninit");
	return cut;
}

static void on_number(int sig)
{
	_exit(sig);
}

/* It has what it was called with for somebody else. */
static void on_passed(int sig, siginfo_t *info, void *context)
{
	on_fault(sig, info, context);
	__asm__ volatile("");
}

static __attribute__((noinline)) void say(const char *format, ...)
{
	va_list list;
	va_start(list, format);
	vprintf(format, list);
	va_end(list);
}

/* Nobody has written its third argument, and say() saves it as if it were one. */
static void on_text(int sig)
{
	say("%d\n", sig);
	_exit(sig);
}

static void handle(int sig, void (*handler)(int, siginfo_t *, void *))
{
	struct sigaction sa = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART };

	sigaction(sig, &sa, NULL);
}

int main(int argc, char **argv)
{
	static _Alignas(64) char memory[2 * 4096];
	const struct itimerval often = { { 0, 150 }, { 0, 150 } };
	/* not asked for, the context is there all the same */
	int plain = argc > 1 && !strcmp(argv[1], "plain");
	int passed = argc > 1 && !strcmp(argv[1], "passed");
	int faults = plain || passed || (argc > 1 && !strcmp(argv[1], "fault"));
	int traps = argc > 1 && !strcmp(argv[1], "trap"), x87 = argc > 1 && !strcmp(argv[1], "x87");
	int named = faults || traps || x87;
	unsigned long want = argc > 1 + named ? strtoul(argv[1 + named], NULL, 0) : 300;

	halves = x87 && argc > 3 && !strcmp(argv[3], "halve");
	may_be_cut = halves || (x87 && argc > 3 && !strcmp(argv[3], "cut"));
	code = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (argc > 1 && !strcmp(argv[1], "cuts"))
		return !cuts();
	if (argc > 1 && !strcmp(argv[1], "number"))
		return signal(SIGSEGV, on_number) == SIG_ERR;
	if (argc > 1 && !strcmp(argv[1], "text"))
		return signal(SIGSEGV, on_text) == SIG_ERR;
	if (faults) {
		volatile unsigned long n = 0;
		if (plain || passed)
			signal(SIGSEGV, (void (*)(int))(void *)(plain ? on_fault : on_passed));
		else
			handle(SIGSEGV, on_fault);
		sigsetjmp(out, 1);
		if (n++ < want)
			fault(NULL);
	} else if (x87) {
		handle(SIGFPE, on_x87);
		for (unsigned k = 0; k < want; k++)
			divide(k);
	} else if (traps) {
		handle(SIGALRM, on_popf);
		while (seen < want)
			pop_flags();
	} else {
		handle(SIGTRAP, on_step);
		__asm__ volatile("pushf\n orl $0x100, (%%rsp)\n popf" ::: "memory", "cc");
		run(memory);
		__asm__ volatile("pushf\n andl $~0x100, (%%rsp)\n popf" ::: "memory", "cc");
		handle(SIGALRM, on_timer);
		setitimer(ITIMER_REAL, &often, NULL);
		while (seen < want)
			run(memory);
		setitimer(ITIMER_REAL, &(struct itimerval){ 0 }, NULL);
	}
	printf("%s: %lu wrong\n", seen < want ? "too few" : "enough", wrong);
	return wrong != 0;
}
