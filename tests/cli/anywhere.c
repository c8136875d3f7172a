/* For tests/cli/anywhere.sh: signals that come anywhere in instructions of every kind that is
 * translated or executed in its own way. What the program computes does not depend on them.
 *
 * usage: anywhere SEED MICROSECONDS SIGNALS [any|strings|stack|unknown]: six kinds of them, a
 * signal every so many microseconds, until so many have come. */
#define _GNU_SOURCE
#include <immintrin.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t came;
static uint64_t seed;
static uint8_t from[4096 + 64] __attribute__((aligned(64))),
	to[4096 + 64] __attribute__((aligned(64)));
static uint8_t area[4096] __attribute__((aligned(64)));

static void handler(int sig)
{
	(void)sig;
	came++;
}

static uint64_t next(void)
{
	seed = seed * 6364136223846793005 + 1442695040888963407;
	return seed >> 33;
}

#define STRING(name, text, in_count)                                                               \
	static uint64_t name(void)                                                                 \
	{                                                                                          \
		uint64_t n = in_count, a = next();                                                 \
		void *d = to + 1024 + next() % 64, *s = from + 1024 + next() % 64;                 \
		__asm__ volatile(text : "+c"(n), "+D"(d), "+S"(s), "+a"(a) : : "cc", "memory");    \
		return n + a + (uint64_t)((uint8_t *)d - to) +                                     \
		       7 * (uint64_t)((uint8_t *)s - from);                                        \
	}
#define FEW  (next() % 5)
#define MANY (next() % 60)
STRING(movsb, "rep movsb", FEW)
STRING(movsw, "rep movsw", MANY)
STRING(movsl, "rep movsl", FEW)
STRING(movsq, "rep movsq", FEW)
STRING(movsb_down, "std; rep movsb; cld", MANY)
STRING(movsq_down, "std; rep movsq; cld", FEW)
STRING(stosb, "rep stosb", FEW)
STRING(stosq, "rep stosq", FEW)
STRING(stosl_down, "std; rep stosl; cld", FEW)
STRING(lodsb, "rep lodsb", FEW)
STRING(lodsq_one, "lodsq", 0)
STRING(stosw_one, "stosw", 0)
STRING(movsb_one, "movsb", 0)
STRING(cmpsb, "repe cmpsb", FEW)
STRING(cmpsb_flags, "cmp %%al, %%al; repe cmpsb; setc %%al; sete %%ah", FEW)
STRING(cmpsw_ne, "repne cmpsw", MANY)
STRING(scasb, "repne scasb", MANY)
STRING(scasb_flags, "cmp %%al, %%al; repne scasb; seto %%al; sets %%ah", FEW)
STRING(scasl_down, "std; repe scasl; cld", FEW)

#define MEMORY(name, text)                                                                         \
	static uint64_t name(void)                                                                 \
	{                                                                                          \
		uint64_t a = next(), c = next(), d = next(), *m = (void *)(area + next() % 2048);  \
		__asm__ volatile(text                                                              \
				 : "+a"(a), "+c"(c), "+d"(d)                                       \
				 : "D"(m)                                                          \
				 : "rbx", "r11", "cc", "memory");                                  \
		return a + 3 * c + 5 * d + m[0] + m[1];                                            \
	}
MEMORY(add, "add %%rax, (%%rdi); adc %%rcx, 8(%%rdi); setc %%al; sbb (%%rdi), %%rdx")
MEMORY(inc, "inc (%%rdi)\n\tdecq 8(%%rdi); seto %%al")
MEMORY(rotate, "rolq $5, (%%rdi); rcrq $3, 8(%%rdi); rorl %%cl, (%%rdi); setc %%al")
MEMORY(shift, "shlq %%cl, (%%rdi); sarl $7, 8(%%rdi); shldq $9, %%rdx, (%%rdi); setc %%al")
MEMORY(bits,
       "btsq %%rcx, %%rdx; and $0x1ff, %%ecx; btcq %%rcx, (%%rdi); setc %%al; bsr %%rdx, %%rdx")
MEMORY(xchg, "xchg %%rax, (%%rdi); lock xadd %%rcx, 8(%%rdi)")
MEMORY(cas, "lock cmpxchg %%rcx, (%%rdi); sete %%dl; cmpxchg %%dl, 8(%%rdi)")
MEMORY(locked, "lock addq %%rax, (%%rdi); lock btrq $9, 8(%%rdi); lock negl (%%rdi); setc %%al")
MEMORY(wide, "mov %%rdi, %%r11; and $-16, %%rdi; mov %%rax, %%rbx; lock cmpxchg16b (%%rdi); sete "
	     "%%bl; mov %%r11, %%rdi")
MEMORY(pushpop, "push (%%rdi); pop 8(%%rdi); pushq $9; popq (%%rdi); push %%rax; pop %%rcx; pushf; "
		"pop %%rdx; and $0xdd5, %%edx")
MEMORY(calls,
       "lea 1f(%%rip), %%rbx; mov %%rbx, -16(%%rsp); lea -16(%%rsp), %%rbx; lea -256(%%rsp), "
       "%%rsp; call *(%%rbx); jmp 2f\n1: inc %%rax; ret $0\n2: lea 256(%%rsp), %%rsp")
MEMORY(frames, "lea -256(%%rsp), %%rsp; push %%rbp; enter $32, $0; mov %%rax, -8(%%rbp); leave; "
	       "pop %%rbp; lea 256(%%rsp), %%rsp")
MEMORY(multiply,
       "mulq (%%rdi); imulq $77, 8(%%rdi), %%rcx; mulx (%%rdi), %%rbx, %%rdx; add %%rbx, %%rax")
MEMORY(divide,
       "xor %%edx, %%edx; or $1, %%rcx; div %%rcx; orl $1, (%%rdi); mov $0, %%edx; divl (%%rdi)")
MEMORY(movbe, "movbe (%%rdi), %%rax; movbe %%rcx, 8(%%rdi); crc32q (%%rdi), %%rdx; bswap %%rcx")
MEMORY(xlat, "mov %%rdi, %%rbx; xlatb; and $15, %%ecx; mov %%al, (%%rdi, %%rcx, 2); lahf; and "
	     "$0xff00, %%eax")
MEMORY(x87, "fldl (%%rdi); fstpt 16(%%rdi); fildll 8(%%rdi); fistpll (%%rdi); fnstcw 30(%%rdi); "
	    "fldcw 30(%%rdi)")
MEMORY(sse, "movdqu (%%rdi), %%xmm1; movdqu 16(%%rdi), %%xmm2; pxor %%xmm2, %%xmm1; movdqu %%xmm1, "
	    "8(%%rdi); movq %%xmm1, %%rax; cvtsi2sdl (%%rdi), %%xmm2; movsd %%xmm2, 24(%%rdi)")
MEMORY(avx, "vmovdqu (%%rdi), %%ymm1; vpxor 32(%%rdi), %%ymm1, %%ymm1; vmovdqu %%ymm1, 16(%%rdi); "
	    "vmovq %%xmm1, %%rax; vzeroupper")
MEMORY(masked,
       "vmovdqu (%%rdi), %%ymm2; vpmaskmovd 32(%%rdi), %%ymm2, %%ymm1; vpmaskmovd %%ymm1, %%ymm2, "
       "64(%%rdi); vmaskmovps 8(%%rdi), %%ymm2, %%ymm3; vmovq %%xmm3, %%rax; vzeroupper")
MEMORY(gather, "vmovdqu (%%rdi), %%ymm2; vpcmpeqd %%ymm3, %%ymm3, %%ymm3; vpsrld $27, %%ymm2, "
	       "%%ymm2; vpgatherdd %%ymm3, (%%rdi, %%ymm2, 4), %%ymm1; vmovq %%xmm1, %%rax; "
	       "vmovdqu %%ymm1, (%%rdi); vzeroupper")
MEMORY(xsave, "lea -2048(%%rsp), %%rsp; mov %%rsp, %%rbx; and $-64, %%rbx; fxsave (%%rbx); fxrstor "
	      "(%%rbx); mov 24(%%rbx), %%eax; lea 2048(%%rsp), %%rsp")
MEMORY(native, "cpuid; rdtsc; str %%ax; xor %%eax, %%eax; xor %%ecx, %%ecx; xgetbv; xor %%eax, "
	       "%%eax; xor %%edx, %%edx; xor %%ecx, %%ecx")
MEMORY(counters,
       "rdtscp; lfence; rdtsc; mfence; pause; xor %%eax, %%eax; xor %%edx, %%edx; xor %%ecx, %%ecx")
MEMORY(unknown,
       "xor %%ecx, %%ecx; xgetbv; and $7, %%eax; mov %%eax, %%r11d; mov $0x2b, %%ecx; cmp %%rcx, "
       "%%rdi; stc; lsl %%ecx, %%ebx; setc %%al; setz %%ah; stc; lsl %%ebx, %%edx; adc %%r11d, "
       "%%eax; mov $0x7b, %%ecx; lsl %%ecx, %%edx; rdrand %%rbx; pushf; pop %%rbx; and $0x8d4, "
       "%%ebx; rdrand %%dx; rdrand %%ecx; sbb %%ecx, %%ecx; add %%rbx, %%rax; xor %%edx, %%edx; "
       "xor %%ecx, %%ecx")
MEMORY(addr32, "mov $3, %%ecx; lea -64(%%rsp), %%rbx; addr32 nop; lea 5(%%eax), %%ecx; jrcxz 1f; "
	       "inc %%rax\n1: loop 2f\n2: setc %%al")
MEMORY(segments, "mov %%fs:0, %%rax; mov %%ds, %%ecx; xor %%eax, %%eax; xor %%edx, %%edx; sub $8, "
		 "%%rsp; popq %%rbx")
MEMORY(call, "mov $39, %%eax; syscall; xor %%eax, %%eax; xor %%ecx, %%ecx; xor %%r11d, %%r11d; mov "
	     "$102, %%eax; syscall; xor %%eax, %%eax; xor %%ecx, %%ecx")

static uint64_t time_of_day(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec == 0;
}

static uint64_t (*const all[])(void) = {
	movsb,
	movsw,
	movsl,
	movsq,
	movsb_down,
	movsq_down,
	stosb,
	stosq,
	stosl_down,
	lodsb,
	lodsq_one,
	stosw_one,
	movsb_one,
	cmpsb,
	cmpsb_flags,
	cmpsw_ne,
	scasb,
	scasb_flags,
	scasl_down,
	/* the stack */
	pushpop,
	calls,
	frames,
	segments,
	/* the others */
	add,
	inc,
	rotate,
	shift,
	bits,
	xchg,
	cas,
	locked,
	wide,
	multiply,
	divide,
	movbe,
	xlat,
	x87,
	sse,
	avx,
	masked,
	gather,
	xsave,
	native,
	counters,
	unknown,
	addr32,
	call,
	time_of_day,
};
#define ALL	(sizeof(all) / sizeof(*all))
#define STRINGS 19u
#define STACK	4u

int main(int argc, char **argv)
{
	struct sigaction sa = { .sa_handler = handler, .sa_flags = SA_RESTART };
	long us = argc > 2 ? atol(argv[2]) : 100;
	int enough = argc > 3 ? atoi(argv[3]) : 200;
	uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 0) : 1, sum = 0;
	struct itimerval v = { { 0, us }, { 0, us } };
	unsigned kinds[6], first_kind = 0, n_kinds = ALL;
	if (argc > 4 && !strcmp(argv[4], "strings")) {
		n_kinds = STRINGS;
	} else if (argc > 4 && !strcmp(argv[4], "stack")) {
		first_kind = STRINGS;
		n_kinds = STACK;
	} else if (argc > 4 && !strcmp(argv[4], "unknown")) {
		while (all[first_kind] != unknown)
			first_kind++;
		n_kinds = 1;
	}
	seed = first;
	for (unsigned i = 0; i < 6; i++)
		kinds[i] = first_kind + (unsigned)(next() % n_kinds);
	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &v, NULL);
	/* the same again and again, so that how often does not matter */
	for (unsigned round = 0; round < 3 || came < enough; round++) {
		uint64_t s = 0;
		seed = first;
		memset(area, 0x5a, sizeof(area));
		memset(from, 1, sizeof(from));
		memset(to, 1, sizeof(to));
		for (unsigned i = 0; i < 2000; i++)
			s = s * 31 + all[kinds[next() % 6]]();
		for (unsigned i = 0; i < sizeof(area); i++)
			s = s * 33 + area[i] + from[i] + to[i];
		if (round && s != sum)
			printf("round %u: %llx, not %llx\n", round, (unsigned long long)s,
			       (unsigned long long)sum);
		sum = s;
	}
	signal(SIGALRM, SIG_IGN);
	printf("%llx\n", (unsigned long long)sum);
	return 0;
}
