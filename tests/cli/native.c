/* For tests/cli/native.sh: code that is executed one instruction at a time, what the processor says
 * of itself many times, and code of 32 bits. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static __attribute__((noinline)) void wide(int n)
{
	while (n--)
		__asm__ volatile("vpaddd %%zmm1, %%zmm1, %%zmm1" : : : "xmm1");
}

/* A far jump into code of 32 bits that comes back, by another, and exits: what is left of the
 * registers is undefined. */
static void narrow(void)
{
	static const uint8_t code[] = { 0xb8, 0x07, 0, 0, 0,		/* mov eax, 7 */
					0xea, 0,    0, 0, 0, 0x33, 0 }; /* jmp 0x33:... */
	uint8_t *p = mmap((void *)0x20000000, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	static uint32_t far[2] = { 0x20000000, 0x23 };
	uint32_t back = 0x20000040;

	static const uint8_t leave[] = { 0xb8, 231,  0,	   0,	0, /* mov eax, 231: exit_group */
					 0x31, 0xff, 0x0f, 0x05 }; /* xor edi, edi; syscall */
	memcpy(p, code, sizeof(code));
	memcpy(p + 6, &back, 4);
	memcpy(p + 0x40, leave, sizeof(leave));
	__asm__ volatile("ljmp *%0" : : "m"(far) : "rax", "memory");
}

/* Leaves with what is in ecx, or without. */
static const struct {
	uint32_t leaf, sub;
	int has_subs;
} asked[] = {
	{ 0, 0, 0 },	      { 2, 0, 0 },	    { 4, 0, 1 },	  { 4, 1, 1 },
	{ 4, 2, 1 },	      { 6, 0, 0 },	    { 7, 0, 1 },	  { 7, 1, 1 },
	{ 0xd, 0, 1 },	      { 0xd, 1, 1 },	    { 0xd, 2, 1 },	  { 0x80000000, 0, 0 },
	{ 0x80000001, 0, 0 }, { 0x80000002, 0, 0 }, { 0x80000006, 0, 0 },
};
#define ASKED (sizeof(asked) / sizeof(*asked))

/* Each answer is the same as the first; nothing but four registers changes. */
static void *cpuid(void *rounds)
{
	static uint64_t first[ASKED][4];
	for (int n = 0; n < (int)(intptr_t)rounds; n++)
		for (unsigned i = 0; i < ASKED; i++) {
			uint64_t r[4], flags, before, same,
				other = 0x5a5a5a5a5a5a5a5a + (unsigned)n;
			uint64_t a = asked[i].leaf | 7ULL << 40;
			uint64_t c = asked[i].sub | 9ULL << 35;
			if (!asked[i].has_subs)
				c += (unsigned)n * 77u;
			__asm__ volatile("mov %8, %%r11\n\tmov %8, %%r8\n\tcmp $5, %9\n\t"
					 "pushf\n\tpop %5\n\tcpuid\n\tpushf\n\tpop %4\n\t"
					 "xor %%r8, %%r11\n\tmov %%r11, %6"
					 : "=&a"(r[0]), "=&b"(r[1]), "=&c"(r[2]), "=&d"(r[3]),
					   "=&r"(flags), "=&r"(before), "=&r"(same)
					 : "0"(a), "r"(other), "r"(n), "2"(c), "3"(other)
					 : "r8", "r11", "cc");
			if (n == 0 && !first[i][0] && !first[i][1] && !first[i][2] && !first[i][3])
				memcpy(first[i], r, sizeof(r));
			if (memcmp(first[i], r, sizeof(r)) || flags != before || same ||
			    (r[0] | r[1] | r[2] | r[3]) >> 32)
				exit(1);
		}
	return NULL;
}

static void ask(int rounds)
{
	pthread_t other;
	cpuid((void *)(intptr_t)1);
	pthread_create(&other, NULL, cpuid, (void *)(intptr_t)rounds);
	cpuid((void *)(intptr_t)rounds);
	pthread_join(other, NULL);
}

/* The lower half of an address, in a part of a register that keeps its rest. */
static int low_addresses(int n)
{
	uint64_t a, b, far = 0;
	while (n--) {
		a = b = 0x5a5a5a5a5a5a5a5a;
		__asm__ volatile("mov %0, %%rsi\n"
				 "mov %0, %%r11\n"
				 "mov %0, %%r12\n"
				 "lea 1f(%%rip), %2\n"
				 "lea 1f(%%rip), %%si\n"
				 "lea 1f(%%rip), %%r11w\n"
				 "lea 1f(%%rip), %%r12w\n"
				 "1:	mov %%rsi, %0\n"
				 "sub %%r11, %%rsi\n"
				 "sub %%r11, %%r12\n"
				 "or %%r12, %%rsi\n"
				 "mov %%rsi, %1"
				 : "+r"(a), "+r"(b), "+r"(far)
				 :
				 : "rsi", "r11", "r12", "cc");
		if (b || a != (0x5a5a5a5a5a5a0000 | (uint16_t)far))
			return 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 2 && !strcmp(argv[1], "cpuid"))
		ask(atoi(argv[2]));
	else if (argc > 2 && !strcmp(argv[1], "wide"))
		wide(atoi(argv[2]));
	else if (argc > 2 && !strcmp(argv[1], "low"))
		return low_addresses(atoi(argv[2]));
	else
		narrow();
	printf("done\n");
	return 0;
}
