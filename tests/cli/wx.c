/*
 * Code in pages that are never writable and executable at once, as just-in-time compilers have it:
 * the protection of a whole region changes for the sake of a few bytes.
 *
 * usage: wx patch ROUNDS     one of 512 functions is rewritten in a round, and some are called
 *        wx threads ROUNDS   the same, called by another thread
 *        wx odd              what is not executable faults, what has changed is what it is now
 *        wx random ROUNDS SEED   mappings and protections of six pages change at random, and code
 * is written, read and called there; in the midst of it a timer's handler does the same in a page
 * of its own
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

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

/* mov eax, 10; syscall; jmp to the page whose protection that changes, which has never run before
 */
static void into_it(int prot)
{
	uint8_t *page = mmap(NULL, 8192, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(page + 4096 - 12, "\xb8\x0a\0\0\0\x0f\x05\xe9\0\0\0\0", 12);
	memcpy(page + 4096, "\x05\x15\0\0\0\xc3", 6); /* add eax, 21; ret */
	mprotect(page, 8192, RX);
	int result = sigsetjmp(back, 1) ? -1
					: ((int (*)(void *, size_t, int))(page + 4096 - 12))(
						  page + 4096, 4096, prot);
	printf("into it %d\n", result);
	munmap(page, 8192);
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
	into_it(RW);
	into_it(PROT_READ);
	into_it(RX);
	printf("%d faults\n", faults);
	return 0;
}

/* ---- at random ------------------------------------------------------------------------------ */

#define PAGES 6u

static uint64_t chance;
static uint8_t *own;
static volatile int handled;

static unsigned below(unsigned n)
{
	chance = chance * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(chance >> 33) % n;
}

static void on_timer(int sig)
{
	(void)sig;
	mprotect(own, 4096, RW);
	emit(own, ++handled);
	mprotect(own, 4096, RX);
	if (((fn *)own)(1) != handled + 1)
		abort();
	if (handled % 3 == 0)
		mprotect(own, 4096, PROT_READ);
}

/* Zeros, which would do anything, are not called; what cannot be read is. */
static bool is_code(const uint8_t *at)
{
	return sigsetjmp(back, 1) || *at;
}

static int protect(uint8_t *at, size_t size, int prot)
{
	return mprotect(at, size, prot) ? -errno : 0;
}

static int change(unsigned what, uint8_t *page, unsigned n)
{
	static const int prots[] = { RW, RX, RX, PROT_READ, RW | PROT_EXEC, PROT_NONE };
	static uint8_t *last;
	static size_t size;
	static int prot;
	int fd, r;
	switch (what) {
	case 0: /* also nothing, half a page, an address within a page, or what is not there */
		last = page + (below(20) ? 0 : 8);
		size = below(4) ? n * 4096ul : below(3) * 2000ul;
		prot = prots[below(6)];
		return protect(last, size, prot);
	case 1:
		return last ? protect(last, size, prot) : 0;
	case 2:
		munmap(page, 4096);
		return below(3) ? mmap(page, 4096, prots[below(6)],
				       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page
				: 0;
	case 3:
		return mremap(page, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED,
			      code + below(PAGES) * 4096) == MAP_FAILED;
	case 4:
		return madvise(page, n * 4096ul, MADV_DONTNEED) ? -errno : 0;
	case 5: /* code that is written by a path that needs no protection */
		fd = open("/proc/self/mem", O_RDWR);
		r = (int)pwrite(fd, "\xb8\7\0\0\0\xc3", 6, (off_t)(uintptr_t)page);
		close(fd);
		return r;
	default: /* as a just-in-time compiler does it, most of all */
		r = protect(page, n * 4096ul, RW);
		if (!sigsetjmp(back, 1))
			emit(page + below(4) * SIZE, (int)chance);
		else
			r -= 100;
		return r + 1000 * protect(page, n * 4096ul, RX);
	}
}

static int at_random(int rounds)
{
	struct sigaction fault = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
	struct sigaction timer = { .sa_handler = on_timer };
	const struct itimerval often = { { 0, 700 }, { 0, 700 } };
	sigaction(SIGSEGV, &fault, NULL);
	sigaction(SIGALRM, &timer, NULL);
	own = code + (PAGES + below(2)) * 4096;
	munmap(own + 4096, REGION - (size_t)(own + 4096 - code));
	setitimer(ITIMER_REAL, &often, NULL);
	for (int r = 0; r < rounds; r++) {
		unsigned k = below(PAGES), n = 1 + below(PAGES - k), what = below(14);
		uint8_t *page = code + k * 4096, *at = page + below(4) * SIZE;
		int result = 0;
		if (what < 10)
			result = change(what, page, n);
		else if (is_code(at))
			result = called((unsigned)(at - code) / SIZE, r);
		if (sigsetjmp(back, 1))
			result += 77;
		else
			result += *at;
		printf("%d: %u at %u+%u: %d\n", r, what, k, n, result);
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
	if (argc > 3 && !strcmp(argv[1], "random")) {
		chance = strtoull(argv[3], NULL, 0);
		return at_random(atoi(argv[2]));
	}
	mprotect(code, REGION, RX);
	return odd();
}
