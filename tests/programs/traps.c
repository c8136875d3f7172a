/* Floating-point exceptions that are not masked. x87: the store that raises one neither stores nor
 * pops, and the trap comes with the next x87 instruction that looks. SSE: the instruction does
 * nothing, but that its flags are set. */
#define _GNU_SOURCE
#include <fenv.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

static sigjmp_buf jump;

static void on_fpe(int sig)
{
	siglongjmp(jump, sig);
}

static void unmask(int exceptions)
{
	__asm__ volatile("fninit");
	feenableexcept(exceptions);
}

/* Where the exception was and with what operand: processors say that while it is pending, and the
 * handler's frame has it. */
static volatile double divisor;
static double below[2];
extern const char divides[], stores[], behind[];

static void on_fpe_where(int sig, siginfo_t *info, void *context)
{
	const struct _libc_fpstate *fp = ((ucontext_t *)context)->uc_mcontext.fpregs;
	const char *at = (const char *)(uintptr_t)fp->rip;
	printf("at %s, operand %s\n", at >= divides && at < behind ? "home" : "sea",
	       fp->rdp == (uintptr_t)&divisor	 ? "divisor"
	       : fp->rdp == (uintptr_t)&below[1] ? "below"
						 : "unknown");
	siglongjmp(jump, sig);
}

static void pointers(void)
{
	struct sigaction sa = { .sa_sigaction = on_fpe_where, .sa_flags = SA_SIGINFO };
	sigaction(SIGFPE, &sa, NULL);
	unmask(FE_DIVBYZERO);
	if (!sigsetjmp(jump, 1))
		__asm__ volatile("divides: fld1\n\tfdivl %0\n\tnop\n\tfwait" ::"m"(divisor));
	unmask(FE_OVERFLOW);
	if (!sigsetjmp(jump, 1)) {
		volatile long double huge = 1e300L * 1e300L;
		double *to = below;
		__asm__ volatile("fldt %1\n\tstores: fstpl 8(%0)\n\tfwait\n\tbehind:" ::"r"(to),
				 "m"(huge)
				 : "memory");
	}
	signal(SIGFPE, on_fpe);
}

static volatile unsigned loops; /* a replay with other flags takes another way */

static void on_fpe_flags(int sig, siginfo_t *info, void *context)
{
	unsigned mxcsr = ((ucontext_t *)context)->uc_mcontext.fpregs->mxcsr;
	printf("code %d, mxcsr %x\n", info->si_code, mxcsr);
	siglongjmp(jump, sig);
}

static void sse(void)
{
	struct sigaction sa = { .sa_sigaction = on_fpe_flags, .sa_flags = SA_SIGINFO };
	volatile double zero = 0, one = 1;
	volatile unsigned mxcsr = 0x1f80;
	int status;

	sigaction(SIGFPE, &sa, NULL);
#define RAISE(text, ...)                                                                           \
	__asm__ volatile("ldmxcsr %0" : : "m"((unsigned){ 0x1800 }));                              \
	if (!sigsetjmp(jump, 1))                                                                   \
		__asm__ volatile(text : : __VA_ARGS__ : "xmm0", "xmm1", "rax");                    \
	__asm__ volatile("stmxcsr %0" : "=m"(mxcsr));                                              \
	for (unsigned i = mxcsr & 63; i; i--)                                                      \
	loops++
	for (int k = 0; k < 3; k++) {
		RAISE("movsd %0, %%xmm0; divsd %1, %%xmm0", "m"(one), "m"(zero));
		RAISE("movsd %1, %%xmm0; divsd %1, %%xmm0", "m"(one), "m"(zero));
		RAISE("xorps %%xmm0, %%xmm0; sqrtps %%xmm0, %%xmm1;"
		      "divps %%xmm0, %%xmm1",
		      "m"(one));
		RAISE("pcmpeqd %%xmm0, %%xmm0; cvttsd2si %%xmm0, %%eax", "m"(one));
	}
	__asm__ volatile("ldmxcsr %0" : : "m"((unsigned){ 0x1800 }));
	signal(SIGFPE, SIG_DFL);
	fflush(stdout);
	if (!fork()) /* with nobody to handle it */
		__asm__ volatile("movsd %0, %%xmm0; divsd %1, %%xmm0" : : "m"(one), "m"(zero));
	wait(&status);
	printf("a child: %x\n", status & 0x7f);
	__asm__ volatile("ldmxcsr %0" : : "m"((unsigned){ 0x1f80 }));
}

int main(void)
{
	volatile long long n[3] = { 1, 2, 3 };
	volatile long double huge = 1e300L * 1e300L;
	volatile double d = 4;
	volatile float f = 5;

	pointers();
	sse();
	signal(SIGFPE, on_fpe);
	for (int k = 0; k < 3; k++) {
		unmask(FE_INVALID | FE_OVERFLOW);
		if (!sigsetjmp(jump, 1)) {
			__asm__ volatile("fldt %1\n\tfistpll %0\n\tfwait" : "=m"(n[k]) : "m"(huge));
			printf("no trap\n");
		}
		unmask(FE_INVALID | FE_OVERFLOW);
		if (!sigsetjmp(jump, 1)) {
			__asm__ volatile("fldt %1\n\tfstpl %0\n\tfwait" : "=m"(d) : "m"(huge));
			printf("no trap\n");
		}
		printf("%lld %g\n", n[k], d);
	}
	/* an inexact result is stored and popped all the same */
	unmask(FE_INEXACT);
	if (!sigsetjmp(jump, 1)) {
		__asm__ volatile("fldpi\n\tfstps %0\n\tfwait" : "=m"(f));
		printf("no trap\n");
	}
	printf("%g\n", f);
	return 6;
}
