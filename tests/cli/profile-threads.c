/* Three threads that compute, a handler, a coroutine, longjmp: paths of calls with known ends. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

static volatile long sum;
static jmp_buf out;
static ucontext_t here, there;
static char stack[65536], other[65536];

__attribute__((noipa)) long inner(long n)
{
	long s = 0;

	for (long i = 0; i < n; i++)
		s += i % 7;
	return s;
}

__attribute__((noipa)) long outer(long n)
{
	return inner(n) + inner(n / 2);
}

static void *work(void *p)
{
	for (int i = 0; i < 20; i++) {
		__atomic_add_fetch(&sum, outer((long)p * 300), __ATOMIC_SEQ_CST);
		if (i % 5 == 0)
			getppid();
	}
	return NULL;
}

__attribute__((noipa)) void in_handler(void)
{
	sum += inner(50);
}

static void handler(int sig)
{
	(void)sig;
	in_handler();
}

__attribute__((noipa)) void deep(int n)
{
	if (!n)
		longjmp(out, 1);
	deep(n - 1);
	sum++;
}

__attribute__((noipa)) void in_coroutine(int n)
{
	sum += inner(n);
	swapcontext(&there, &here);
	sum += inner(n);
}

static void coroutine(void)
{
	in_coroutine(70);
	in_coroutine(90);
}

__attribute__((noipa)) void after_jump(void)
{
	sum += inner(30);
}

__attribute__((noipa)) void between(void)
{
	sum += inner(20);
}

__attribute__((noipa)) long tail(long n)
{
	__asm__ volatile("" : "+r"(n));
	return inner(n); /* a jump, with optimisation */
}

int main(void)
{
	pthread_t t[3];
	stack_t alt = { .ss_sp = other, .ss_size = sizeof(other) };
	struct sigaction act = { .sa_handler = handler, .sa_flags = SA_ONSTACK };

	for (long i = 0; i < 3; i++)
		pthread_create(&t[i], NULL, work, (void *)(i + 1));
	sigaltstack(&alt, NULL);
	sigaction(SIGUSR1, &act, NULL);
	raise(SIGUSR1);
	if (!setjmp(out))
		deep(10);
	after_jump();
	getcontext(&there);
	there.uc_stack.ss_sp = stack;
	there.uc_stack.ss_size = sizeof(stack);
	there.uc_link = &here;
	makecontext(&there, coroutine, 0);
	for (int i = 0; i < 3; i++) {
		swapcontext(&here, &there);
		between();
	}
	sum += tail(40);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	printf("%d\n", sum != 0);
	return 0;
}
