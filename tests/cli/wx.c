/*
 * Code in pages that are never writable and executable at once, as just-in-time compilers have it:
 * the protection of a whole region changes for the sake of a few bytes.
 *
 * usage: wx patch ROUNDS     one of 512 functions is rewritten in a round, and some are called
 *        wx threads ROUNDS   the same, called by another thread
 *        wx odd              what is not executable faults, what has changed is what it is now
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define FUNCTIONS 512
#define SIZE	  64
#define REGION	  ((size_t)FUNCTIONS * SIZE)
#define RW	  (PROT_READ | PROT_WRITE)
#define RX	  (PROT_READ | PROT_EXEC)

typedef int fn(int);

static uint8_t *code;
static sigjmp_buf back;
static volatile int faults;

/* lea eax, [rdi+imm32]; jmp to the last byte, which is ret */
static void emit(uint8_t *at, int add)
{
	memcpy(at, "\x8d\x87", 2);
	memcpy(at + 2, &add, 4);
	at[6] = 0xeb;
	at[7] = SIZE - 1 - 8;
	at[SIZE - 1] = 0xc3;
}

static int call(unsigned i, int x)
{
	return ((fn *)(code + i * SIZE))(x);
}

static int patch(int rounds)
{
	long sum = 0;
	for (int r = 0; r < rounds; r++) {
		mprotect(code, REGION, RW);
		emit(code + (unsigned)(r * 37 % FUNCTIONS) * SIZE, r);
		mprotect(code, REGION, RX);
		for (unsigned k = 0; k < 64; k++)
			sum = sum * 3 + call((unsigned)(r * 37 + (int)k * 8) % FUNCTIONS, r);
	}
	printf("%ld\n", sum);
	return 0;
}

/* Another thread executes what this one writes, and knows when by an atomic variable alone. */
static volatile int turn, last_round;
static long others;

static void *execute(void *arg)
{
	(void)arg;
	for (int r = 0; r < last_round; r++) {
		while (__atomic_load_n(&turn, __ATOMIC_ACQUIRE) != 2 * r + 1)
			sched_yield();
		for (unsigned k = 0; k < 64; k++)
			others = others * 3 + call((unsigned)(r * 37 + (int)k * 8) % FUNCTIONS, r);
		__atomic_store_n(&turn, 2 * r + 2, __ATOMIC_RELEASE);
	}
	return NULL;
}

static int threads(int rounds)
{
	pthread_t other;
	last_round = rounds;
	pthread_create(&other, NULL, execute, NULL);
	for (int r = 0; r < rounds; r++) {
		while (__atomic_load_n(&turn, __ATOMIC_ACQUIRE) != 2 * r)
			sched_yield();
		mprotect(code, REGION, RW);
		emit(code + (unsigned)(r * 37 % FUNCTIONS) * SIZE, r);
		mprotect(code, REGION, RX);
		others += call((unsigned)(r * 11) % FUNCTIONS, r);
		__atomic_store_n(&turn, 2 * r + 1, __ATOMIC_RELEASE);
	}
	pthread_join(other, NULL);
	printf("%ld\n", others);
	return 0;
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)context;
	faults += info->si_code == SEGV_ACCERR;
	siglongjmp(back, 1);
}

static int called(unsigned i, int x)
{
	return sigsetjmp(back, 1) ? -1 : call(i, x);
}

/* cmp edi, 3; mov eax, [rsp]; jmp to the next page, where it says: add edi, edi; lea eax, [rdi];
 * ret, or sete al; movzx eax, al; ret. In the first case the flags are of no use to anybody, and
 * the check of the load may destroy them. */
static void flags_below(uint8_t *page, int use)
{
	memcpy(page, use ? "\x0f\x94\xc0\x0f\xb6\xc0\xc3" : "\x01\xff\x8d\x07\xc3\xc3\xc3", 7);
}

static void flags(uint8_t *page, int use)
{
	memcpy(page - SIZE, "\x83\xff\x03\x8b\x04\x24\xe9\x35\0\0\0", 11);
	flags_below(page, use);
}

static int odd(void)
{
	struct sigaction sa = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
	sigaction(SIGSEGV, &sa, NULL);
	int last = 4096 / SIZE - 1;
	for (int i = 0; i < 6; i++) {
		printf("first %d ", called(0, i));
		mprotect(code, 4096, RW); /* the second page stays code */
		printf("not now %d, the other page %d ", called(0, i), called(64 + 1, i));
		if (i % 2)
			emit(code, 1000 * i);
		mprotect(code, 4096, RX);
		printf("again %d\n", called(0, i));
	}
	/* code at the end of a page, of which the next page says how it goes on */
	for (int i = 0; i < 6; i++) {
		mprotect(code + 4096, 4096, RW);
		if (!i)
			mprotect(code, 4096, RW);
		flags(code + 4096, i % 3 == 1);
		mprotect(code, 4096, RX);
		printf("asleep %d ", called((unsigned)last, 3));
		mprotect(code + 4096, 4096, RX);
		printf("flags %d %d\n", called((unsigned)last, 3), called((unsigned)last, 4));
		mprotect(code, 8192, PROT_READ);
		mprotect(code, 8192, i % 2 ? RX : RX | PROT_WRITE);
		printf("both %d %d\n", called((unsigned)last, 3), called((unsigned)last, 4));
		mprotect(code, 8192, RW);
	}
	/* the same elsewhere, while the first page stays code */
	uint8_t *page = code + 3 * 4096;
	mprotect(page - 4096, 8192, RW);
	flags(page, 0);
	mprotect(page - 4096, 8192, RX);
	for (int i = 0; i < 6; i++) {
		fn *f = (fn *)(page - SIZE);
		printf("below %d %d\n", f(3), f(4));
		mprotect(page, 4096, RW);
		flags_below(page, i % 3 == 0);
		mprotect(page, 4096, RX);
	}
	/* other memory at the same place, with the same in it, or not */
	for (int i = 0; i < 4; i++) {
		mprotect(code, 8192, RW);
		emit(code, 7);
		mprotect(code, 8192, RX);
		printf("before %d ", called(0, i));
		mprotect(code, 8192, RW);
		munmap(code, 4096);
		printf("gone %d ", called(0, i));
		mmap(code, 4096, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		emit(code, i % 2 ? 7 : 8);
		mprotect(code, 8192, RX);
		printf("new %d\n", called(0, i));
	}
	printf("%d faults\n", faults);
	return 0;
}

int main(int argc, char **argv)
{
	code = mmap(NULL, REGION, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (unsigned i = 0; i < FUNCTIONS; i++)
		emit(code + i * SIZE, (int)i);
	if (argc > 2 && !strcmp(argv[1], "patch"))
		return patch(atoi(argv[2]));
	if (argc > 2 && !strcmp(argv[1], "threads"))
		return threads(atoi(argv[2]));
	mprotect(code, REGION, RX);
	return odd();
}
