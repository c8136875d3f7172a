/* Masked accesses, gathers and bit strings: vectorised loops, memory that changes under a second
 * mapping, elements in pages that a signal handler makes accessible, gs. Prints only what is the
 * same in every run. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <immintrin.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define AVX2 __attribute__((target("avx2"), noinline))
#define N    4096
#define PAGE 4096

static float a[N], b[N], c[N];
static double d[N], e[N];
static int index32[N], chosen[N], t[N];
static long index64[N];
static volatile int faults;

AVX2 static void loops(void)
{
	for (int i = 0; i < N; i++)
		c[i] = a[index32[i]] * 2 + b[i];
	for (int i = 0; i < N; i++)
		e[i] = d[index64[i]] + 1;
	for (int i = 0; i < N; i++)
		if (chosen[i])
			c[i] = b[i] + a[i];
	for (int i = 0; i < N; i++)
		if (chosen[i] > 0)
			t[i] += index32[i];
	for (int i = 0; i + 8 <= N; i += 8) {
		__m256i at = _mm256_loadu_si256((const __m256i *)&index32[i]);
		_mm256_storeu_ps(&c[i], _mm256_i32gather_ps(a, at, 4));
	}
	for (int i = 0; i + 4 <= N; i += 4) {
		__m256i at = _mm256_loadu_si256((const __m256i *)&index64[i]);
		_mm256_storeu_pd(&e[i], _mm256_i64gather_pd(d, at, 8));
		_mm_storeu_ps(&b[i], _mm256_i64gather_ps(a, at, 4));
	}
}

AVX2 static int fold(__m256i x)
{
	int v[8], r = 0;
	_mm256_storeu_si256((__m256i *)v, x);
	for (int i = 0; i < 8; i++)
		r = r * 31 + v[i];
	return r;
}

AVX2 static __m256i random_vector(void)
{
	return _mm256_set_epi32(2 * rand(), 2 * rand(), 2 * rand(), 2 * rand(), 2 * rand(),
				2 * rand(), 2 * rand(), 2 * rand());
}

/* p and q are the same memory; what is written through one comes as a surprise to the other. */
AVX2 static int surprises(int *p, int *q, long *sum)
{
	__m256i x = _mm256_setzero_si256();
	for (int r = 0; r < 1000; r++) {
		unsigned char carry;
		long bit = rand() % 65536;
		for (int k = 0; k < 16; k++)
			q[rand() % 2048] = rand();
		__m256i mask = random_vector();
		__m256i at = _mm256_and_si256(random_vector(), _mm256_set1_epi32(2047));
		x = _mm256_add_epi32(x, _mm256_mask_i32gather_epi32(x, p, at, mask, 4));
		x = _mm256_xor_si256(x, _mm256_maskload_epi32(p + rand() % 1024, mask));
		_mm256_maskstore_epi32(p + rand() % 1024, mask, x);
		__asm__ volatile("btsq %2, %1; setc %0"
				 : "=r"(carry), "+m"(*(long *)p)
				 : "r"(bit)
				 : "cc", "memory");
		*sum += carry;
		__asm__ volatile("lock btcl %2, %1; setc %0"
				 : "=r"(carry), "+m"(*(long *)p)
				 : "r"((int)bit ^ 77)
				 : "cc", "memory");
		*sum += carry;
	}
	return fold(x);
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	int *page = (int *)((uintptr_t)info->si_addr & -(uintptr_t)PAGE);

	(void)sig, (void)context;
	faults++;
	if (mprotect(page, PAGE, PROT_READ | PROT_WRITE))
		_exit(9);
	for (int i = 0; i < PAGE / 4; i++)
		page[i] = 1000 * faults + i;
}

AVX2 static int absent(char *pages)
{
	__m256i x = _mm256_setzero_si256(), every = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
	every = _mm256_slli_epi32(every, 12);
	for (int i = 0; i < 4; i++)
		x = _mm256_add_epi32(
			x, _mm256_i32gather_epi32((const int *)(pages + i * 8 * PAGE), every, 1));
	for (int i = 0; i < 32; i++)
		mprotect(pages + i * PAGE, PAGE, i & 1 ? PROT_NONE : PROT_READ | PROT_WRITE);
	for (int i = 0; i < 31;
	     i++) { /* seven elements before the end of the page, one behind, at times selected */
		int *at = (int *)(pages + (i + 1) * PAGE - 28);
		__m256i mask =
			_mm256_set_epi32(i & 4 ? -1 : 0, 0, 0, -1, -1, 0, -1, i & 1 ? 0 : -1);
		x = _mm256_add_epi32(x, _mm256_maskload_epi32(at, mask));
		_mm256_maskstore_epi32(at, mask, _mm256_set1_epi32(i));
	}
	return fold(x);
}

int main(void)
{
	static long by_gs[64];
	struct sigaction sa = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
	long sum = 0;
	double total = 0;

	if (!__builtin_cpu_supports("avx2"))
		return 0;
	srand(1);
	for (int i = 0; i < N; i++) {
		a[i] = i * .5f;
		b[i] = i;
		d[i] = i * .25;
		index32[i] = rand() % N;
		index64[i] = rand() % N;
		chosen[i] = rand() % 3 - 1;
	}
	for (int r = 0; r < 20; r++)
		loops();
	for (int i = 0; i < N; i++)
		total += c[i] + e[i] + b[i] + t[i];
	printf("%.3f\n", total);

	int fd = memfd_create("twice", 0);
	if (fd < 0 || ftruncate(fd, 2 * PAGE))
		return 1;
	int *p = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	int *q = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED || q == MAP_FAILED)
		return 1;
	int folded = surprises(p, q, &sum);
	printf("%d %ld\n", folded, sum);

	sigaction(SIGSEGV, &sa, NULL);
	char *pages = mmap(NULL, 32 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pages == MAP_FAILED)
		return 1;
	folded = absent(pages);
	printf("%d, %d faults\n", folded, faults);

	syscall(SYS_arch_prctl, 0x1001 /* ARCH_SET_GS */, by_gs);
	for (long k = 0; k < 60; k++) {
		long x;
		by_gs[k + 1] += k * k;
		__asm__ volatile("movq %%gs:8(,%1,8), %0; addq %0, %%gs:16"
				 : "=r"(x)
				 : "r"(k)
				 : "cc", "memory");
		sum += x;
	}
	printf("%ld %ld\n", sum, by_gs[2]);
	return 0;
}
