/*
 * Memory at three places that lie a multiple of 4 GiB apart, or nearly, accessed in all ways at
 * random: by words, across pages, in bulk, by system calls, as a stack, through a segment; mapped
 * anew, moved and taken away in between.
 *
 * usage: overlap SEED [ROUNDS]
 */
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <fcntl.h>
#include <immintrin.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PLACES 3u
#define PAGE   4096u
#define PAGES  120u
#define SIZE   (PAGES * PAGE)
#define FAR    ((uint64_t)1 << 32)

static uint8_t *place[PLACES];
static uint64_t x, sum;
static int null;

static unsigned rnd(unsigned n)
{
	x = x * 6364136223846793005 + 1442695040888963407;
	return (unsigned)(x >> 33) % n;
}

static uint8_t *map(unsigned i)
{
	return mmap(place[i], SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
		    -1, 0);
}

static volatile sig_atomic_t depth;
static void handler(int signo)
{
	volatile uint8_t room[512];

	for (unsigned i = 0; i < sizeof(room); i++)
		room[i] = (uint8_t)(signo + i + depth);
	depth += room[7];
}

/* A handler with the place as its stack. */
static void on_stack(uint8_t *p)
{
	stack_t s = { .ss_sp = p, .ss_size = 4 * PAGE }, none = { .ss_flags = SS_DISABLE };

	sigaltstack(&s, NULL);
	raise(SIGUSR1);
	sigaltstack(&none, NULL);
}

/* With the place as the stack of pushes and calls. */
static __attribute__((noinline)) void push_there(uint8_t *p, unsigned n)
{
	__asm__ volatile(
		"mov %%rsp, %%r12\n\tmov %0, %%rsp\n\txor %%eax, %%eax\n\tmov $7, %%edx\n"
		"1:\tpush %%rax\n\tcall 2f\n\tsub $24, %%rsp\n\tpush 8(%%rsp)\n\tpop %%rdx\n\t"
		"mov %%rdx, 16(%%rsp)\n\tdec %1\n\tjne 1b\n\tjmp 3f\n"
		"2:\tpush %%rbp\n\tmov %%rsp, %%rbp\n\tadd (%%rbp), %%rdx\n\tleave\n\tret\n"
		"3:\tmov %%r12, %%rsp"
		: "+r"(p), "+r"(n)
		:
		: "rax", "rdx", "r12", "memory");
}

static uint8_t *somewhere(unsigned room)
{
	return place[rnd(PLACES)] + rnd(SIZE - room);
}

static void words(void)
{
	uint8_t *p = somewhere(PAGE), *q = somewhere(PAGE);
	unsigned n = 1 + rnd(200);

	for (unsigned i = 0; i < n; i++) {
		uint64_t v;
		memcpy(&v, p + 8 * i, sizeof(v));
		sum = sum * 31 + v;
		memcpy(q + 5 * i, &sum, i % 3 ? 8 : 4);
	}
}

static void wide(void)
{
	__m128i v = _mm_loadu_si128((void *)somewhere(64));

	for (unsigned i = 0; i < 40; i++) {
		v = _mm_add_epi8(v, _mm_loadu_si128((void *)(somewhere(64))));
		_mm_storeu_si128((void *)somewhere(64), v);
	}
}

static void segment(void)
{
	uint64_t v;

	syscall(SYS_arch_prctl, ARCH_SET_GS, place[rnd(PLACES)]);
	for (uint64_t at = rnd(PAGE); at < SIZE - 16; at += 500 + rnd(900))
		__asm__ volatile("mov %%gs:(%1), %0\n\tadd %0, %%gs:8(%1)"
				 : "=&r"(v)
				 : "r"(at)
				 : "memory");
	sum += v;
}

static void anew(void)
{
	unsigned i = rnd(PLACES), at = rnd(PAGES / 2) * PAGE;

	switch (rnd(4)) {
	case 0:
		map(i);
		break;
	case 1:
		munmap(place[i] + at, 4 * PAGE);
		mmap(place[i] + at, 4 * PAGE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		break;
	case 2: /* what is there goes to another place */
		mremap(place[i], SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED,
		       place[(i + 1) % PLACES]);
		map(i);
		break;
	default:
		madvise(place[i] + at, 3 * PAGE, MADV_DONTNEED);
	}
}

static void one(void)
{
	switch (rnd(10)) {
	case 0:
		memcpy(somewhere(3 * PAGE), somewhere(3 * PAGE), rnd(3 * PAGE));
		break;
	case 1:
		memset(somewhere(3 * PAGE), (int)rnd(256), rnd(3 * PAGE));
		break;
	case 2:
		sum += (uint64_t)read(null, somewhere(PAGE), rnd(PAGE));
		break;
	case 3:
		push_there(place[rnd(PLACES)] + (4 + rnd(PAGES - 4)) * PAGE - 8 * rnd(40),
			   1 + rnd(90));
		break;
	case 4:
		on_stack(place[rnd(PLACES)] + rnd(PAGES - 4) * PAGE);
		break;
	case 5:
		segment();
		break;
	case 6:
		anew();
		break;
	case 7:
		wide();
		break;
	default:
		words();
	}
}

int main(int argc, char **argv)
{
	uint64_t at = 0x200000700000;
	unsigned rounds = argc > 2 ? (unsigned)atoi(argv[2]) : 1000;

	x = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	null = open("/dev/zero", O_RDONLY);
	signal(SIGUSR1, SIG_DFL);
	sigaction(SIGUSR1, &(struct sigaction){ .sa_handler = handler, .sa_flags = SA_ONSTACK },
		  NULL);
	for (unsigned i = 0; i < PLACES; i++) {
		at += FAR * (1 + rnd(3));
		place[i] = (uint8_t *)at + PAGE * rnd(4);
		if (map(i) != place[i])
			return 1;
	}
	while (rounds--) {
		one();
		for (unsigned i = rnd(2000); i; i--) /* generated code needs a while */
			sum += place[i % PLACES][i];
	}
	for (unsigned i = 0; i < PLACES; i++)
		for (unsigned k = 0; k < SIZE; k += 61)
			sum = sum * 31 + place[i][k];
	printf("%llx %d\n", (unsigned long long)sum, (int)depth);
	return 0;
}
