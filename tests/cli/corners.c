/*
 * Where processors of one kind differ: what a gather that faults has loaded, whether all of an
 * operand is read, and what some do not have. Says what it saw; for tests/cli/native.sh.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#define PAGE 4096

static sigjmp_buf back;

static void handler(int sig, siginfo_t *info, void *context)
{
	const uint32_t *v =
		context ? ((ucontext_t *)context)->uc_mcontext.fpregs->_xmm[0].element : NULL;
	printf("signal %d, code %d, xmm0 %x %x %x %x, xmm2 %x %x %x %x\n", sig, info->si_code, v[0],
	       v[1], v[2], v[3], v[8], v[9], v[10], v[11]);
	siglongjmp(back, 1);
}

/* The element `bad` of four, and all others, if they are selected; -1: none. The registers stay as
 * the fault left them while something else runs. */
static void gather(const uint32_t *table, int bad, int selected)
{
	int32_t index[4] = { 0, 1, 2, 3 }, mask[4];
	uint32_t r[8];
	for (int i = 0; i < 4; i++)
		mask[i] = selected >> i & 1 ? -1 : 0;
	if (bad >= 0)
		index[bad] = 0x40000000;
	if (!sigsetjmp(back, 1)) {
		__asm__ volatile("vmovdqu %1, %%xmm1\n vmovdqu %2, %%xmm2\n"
				 " vpxor %%xmm0, %%xmm0, %%xmm0\n"
				 " vgatherdps %%xmm2, (%3, %%xmm1, 4), %%xmm0\n"
				 " vmovdqu %%xmm0, %0"
				 : "=m"(*(uint32_t(*)[4])r)
				 : "m"(index), "m"(mask), "r"(table)
				 : "xmm0", "xmm1", "xmm2");
		printf("%u %u %u %u\n", r[0], r[1], r[2], r[3]);
	}
}

/* So many bytes of VMOVDDUP's 32 are there. */
static void duplicate(const uint8_t *end, unsigned there)
{
	double r[4];
	if (!sigsetjmp(back, 1)) {
		__asm__ volatile("vpxor %%xmm0, %%xmm0, %%xmm0\n vpxor %%xmm2, %%xmm2, %%xmm2\n"
				 " vmovddup (%1), %%ymm0\n vmovdqu %%ymm0, %0"
				 : "=m"(r)
				 : "r"(end - there)
				 : "xmm0", "xmm2");
		for (unsigned i = 0; i < sizeof(r); i++)
			printf("%02x", ((uint8_t *)r)[i]);
		puts("");
	}
}

#define TRY(name, ...)                                                                             \
	do {                                                                                       \
		puts(name);                                                                        \
		__asm__ volatile("vpxor %%xmm0, %%xmm0, %%xmm0\n vpxor %%xmm2, %%xmm2, %%xmm2" ::  \
					 : "xmm0", "xmm2");                                        \
		if (!sigsetjmp(back, 1)) {                                                         \
			__asm__ volatile(__VA_ARGS__);                                             \
			puts("is there");                                                          \
		}                                                                                  \
	} while (0)

int main(void)
{
	struct sigaction sa = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };
	static uint32_t table[64];
	uint8_t *page =
		mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint32_t n = 0;

	sigaction(SIGILL, &sa, NULL);
	sigaction(SIGSEGV, &sa, NULL);
	munmap(page + PAGE, PAGE);
	for (int i = 0; i < PAGE; i++)
		page[i] = (uint8_t)(i * 37);
	for (int i = 0; i < 64; i++)
		table[i] = 1000u + (unsigned)i;
	for (int bad = -1; bad < 4; bad++)
		for (int selected = 0; selected < 16; selected++)
			gather(table, bad, selected);
	for (unsigned there = 36; there > 6; there--)
		duplicate(page + PAGE, there);
	TRY("clwb", "clwb %0" : "+m"(table[0]));
	TRY("clflushopt", "clflushopt %0" : "+m"(table[0]));
	TRY("adcx", "adcx %0, %0" : "+r"(n)::"cc");
	TRY("adox", "adox %0, %0" : "+r"(n)::"cc");
	TRY("sha1msg1", "sha1msg1 %%xmm0, %%xmm0" ::: "xmm0");
	TRY("sha256rnds2", "sha256rnds2 %%xmm0, %%xmm0, %%xmm0" ::: "xmm0");
	TRY("gf2p8mulb", "gf2p8mulb %%xmm0, %%xmm0" ::: "xmm0");
	TRY("vpcmpestri with W and three registers",
	    "xor %%eax, %%eax\n xor %%edx, %%edx\n .byte 0xc4, 0xe3, 0xc9, 0x61, 0xc0, 0x0c" ::
		    : "eax", "ecx", "edx", "cc");
	return 0;
}
