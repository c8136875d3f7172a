/* x87 exceptions that are not masked: the store that raises one neither stores nor pops, and the
 * trap comes with the next x87 instruction that looks. */
#define _GNU_SOURCE
#include <fenv.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>

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

int main(void)
{
	volatile long long n[3] = { 1, 2, 3 };
	volatile long double huge = 1e300L * 1e300L;
	volatile double d = 4;
	volatile float f = 5;

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
