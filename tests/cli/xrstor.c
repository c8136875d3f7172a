/*
 * xrstor as anybody may execute it: all masks, areas that xsave, xsavec or nobody has written,
 * other control words, operands relative to all kinds of registers, flags that are read behind it,
 * areas that are not there, not aligned, or cannot be; as one thread or two.
 *
 * usage: xrstor SEED [THREADS [MASK]]
 *
 * MASK has the bits of XCR0 that natively are as in a recording: x87, SSE and AVX, and what the
 * processor does not have. What it has beyond lies in the areas, too, and faults where they end.
 */
#define _GNU_SOURCE
#include <immintrin.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ROUNDS 400

static __thread sigjmp_buf out;
static __thread volatile uint64_t faults;

static void handler(int signo, siginfo_t *info, void *context)
{
	faults = faults * 31 + (uint64_t)signo * 256 + (uint64_t)info->si_code;
	siglongjmp(out, 1);
}

static uint32_t same = 0xff;

static uint64_t next(uint64_t *x)
{
	*x = *x * 6364136223846793005 + 1442695040888963407;
	return *x >> 33;
}

struct all {
	__m256i y[16];
	uint64_t flags;
	uint32_t mxcsr;
	uint16_t fcw;
};

/* Fill all vector registers, execute it, say what they are then; the flags are those of n - 1. */
#define WITH(insn, p, n)                                                                           \
	__asm__ volatile("vzeroall\n\t"                                                            \
			 "vmovdqu (%1), %%ymm0\n\t"                                                \
			 "vmovdqu 32(%1), %%ymm1\n\t"                                              \
			 "vmovdqu 64(%1), %%ymm7\n\t"                                              \
			 "vmovdqu 96(%1), %%ymm8\n\t"                                              \
			 "vmovdqu 128(%1), %%ymm15\n\t"                                            \
			 "dec %3\n\t" insn "\n\t"                                                  \
			 "pushf\n\t"                                                               \
			 "pop 512(%1)\n\t"                                                         \
			 "vmovdqu %%ymm0, (%1)\n\t"                                                \
			 "vmovdqu %%ymm1, 32(%1)\n\t"                                              \
			 "vmovdqu %%ymm2, 64(%1)\n\t"                                              \
			 "vmovdqu %%ymm7, 96(%1)\n\t"                                              \
			 "vmovdqu %%ymm8, 128(%1)\n\t"                                             \
			 "vmovdqu %%ymm14, 160(%1)\n\t"                                            \
			 "vmovdqu %%ymm15, 192(%1)\n\t"                                            \
			 "stmxcsr 520(%1)\n\t"                                                     \
			 "fnstcw 524(%1)"                                                          \
			 :                                                                         \
			 : "a"(mask), "r"(&r), "d"(high), "r"(n), "r"(p), "c"((uint64_t)0)         \
			 : "memory", "cc", "r11", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5",  \
			   "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13",     \
			   "xmm14", "xmm15")

static void *work(void *arg)
{
	uint64_t x = (uintptr_t)arg, sum = 0;
	uint8_t *area =
		mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct all r;

	mprotect(area + 12288, 4096, PROT_NONE);
	for (unsigned i = 0; i < ROUNDS; i++) {
		static const uint32_t masks[] = { 0xee, 6, 2, 4, 7, 1, 0xee, 0, 0xff, 0xe0 };
		uint32_t mask = masks[next(&x) % 10], high = next(&x) % 20 ? 0 : (uint32_t)next(&x);
		mask &= same;
		uint8_t *p = area + next(&x) % 40 * 64;
		uint64_t n = 1 + next(&x) % 2;

		memset(&r, 0, sizeof(r));
		for (unsigned k = 0; k < 20; k++)
			((uint64_t *)r.y)[k] = next(&x) * 0x100000001;
		switch (next(&x) % 12) {
		case 0: /* as it was left */
			break;
		case 1: /* what cannot be: #GP */
			memset(p + 512, (int)next(&x), 64);
			break;
		case 2:
			memset(p, 0, 832); /* nothing is in there */
			break;
		case 3:
			p += 1 + next(&x) % 63;
			break;
		case 4: /* over the end of what is there */
			p = area + 12288 - 64 * (1 + next(&x) % 12);
			break;
		case 5:
			*(uint64_t *)(p + 512) &= next(&x); /* less than was saved */
			break;
		case 6:
			*(uint32_t *)(p + 24) = 0x1f80 | (uint32_t)(next(&x) & 0x603f); /* MXCSR */
			break;
		default:
			_mm_setcsr(0x1f80 | (unsigned)(next(&x) & 0x603f));
			memset(p + 512, 0, 64);
			if (next(&x) % 2)
				__asm__ volatile("vzeroall\n\tvmovdqu %1, %%ymm1\n\tvmovdqu %1, "
						 "%%ymm14\n\txsavec %0"
						 : "+m"(*p)
						 : "m"(r.y[next(&x) % 5]),
						   "a"((0xe6 & same) | next(&x) % 2), "d"(0)
						 : "memory", "xmm1", "xmm14");
			else
				__asm__ volatile("vzeroall\n\txsave %0"
						 : "+m"(*p)
						 : "a"(7), "d"(0)
						 : "memory");
		}
		if (!sigsetjmp(out, 1)) {
			switch (next(&x) % 4) {
			case 0:
				WITH("xrstor (%4)", p, n);
				break;
			case 1:
				WITH("xrstor64 0x40(%4, %5, 8)", p - 64, n);
				break;
			case 2:
				WITH("mov %4, %%r11\n\txrstor (%%r11)", p, n);
				break;
			default:
				WITH("xrstor -0x1234(%4)", p + 0x1234, n);
			}
		}
		_mm_setcsr(0x1f80);
		__asm__ volatile("fninit");
		r.mxcsr &= 0xffc0; /* accrued exceptions are nobody's here */
		for (unsigned k = 0; k < sizeof(r) / 8; k++)
			sum = sum * 31 + ((uint64_t *)&r)[k];
	}
	munmap(area, 16384);
	printf("%llx %llx\n", (unsigned long long)sum, (unsigned long long)faults);
	return NULL;
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	unsigned n = argc > 2 ? (unsigned)atoi(argv[2]) : 1;
	pthread_t t[8];
	if (argc > 3)
		same = (uint32_t)strtoul(argv[3], NULL, 0);
	struct sigaction sa = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };

	sigaction(SIGSEGV, &sa, NULL);
	sigaction(SIGBUS, &sa, NULL);
	setvbuf(stdout, NULL, _IONBF, 0);
	for (unsigned i = 0; i < n && i < 8; i++) /* they say the same, whoever is first */
		pthread_create(&t[i], NULL, work, (void *)seed);
	for (unsigned i = 0; i < n && i < 8; i++)
		pthread_join(t[i], NULL);
	return 0;
}
