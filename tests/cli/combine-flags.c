/* Faults where the program's arithmetic flags are dead, in code made at random: see combine.h. */
#define _GNU_SOURCE
#include "combine.h"

#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

/* rdi: memory to read and write, of which the second quadword stays zero. r12: where a fault is to
 * be had. Others than these and rsp are free. */
enum { RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, R12 = 12 };
#define ONE_CODE 512
#define AT_ONCE	 12

static uint8_t *at;
static sigjmp_buf back;
static const uint8_t *code;

static void bytes(const char *p, size_t n)
{
	memcpy(at, p, n);
	at += n;
}
#define EMIT(text) bytes(text, sizeof(text) - 1)

static void number(uint64_t v, unsigned n)
{
	memcpy(at, &v, n);
	at += n;
}

static unsigned any(void)
{
	static const uint8_t free_ones[] = { RAX, RCX, RDX, RBX, RSI, R8, 9, 10, 11, 14, 15 };
	return free_ones[rnd(sizeof(free_ones))];
}

/* [prefixes] REX opcode modrm, with a register or with memory at base + disp32 */
static void op(unsigned size, unsigned opcode, unsigned reg, int base, unsigned rm, int32_t disp)
{
	unsigned r = base >= 0 ? (unsigned)base : rm;
	if (size == 2)
		*at++ = 0x66;
	*at++ = (uint8_t)(0x40 | (size == 8) << 3 | (reg >> 3) << 2 | r >> 3);
	if (opcode > 0xff)
		*at++ = (uint8_t)(opcode >> 8);
	*at++ = (uint8_t)opcode;
	*at++ = (uint8_t)((base >= 0 ? 0x80 : 0xc0) | (reg & 7) << 3 | (r & 7));
	if (base >= 0 && (r & 7) == RSP)
		*at++ = 0x24;
	if (base >= 0)
		number((uint32_t)disp, 4);
}

static unsigned size_2_to_8(void)
{
	return 2u << rnd(3);
}

static int32_t good(void)
{
	return 16 + (int32_t)rnd(200);
}

/* Something that sets all flags, or some. */
static void setter(void)
{
	static const uint16_t two[] = {
		0x01, 0x29,   0x21,   0x09,   0x31,   0x39,   0x85,   0x11,
		0x19, 0x0fa3, 0x0fab, 0x0fc1, 0x0fb1, 0x0faf, 0x0fbc, 0x0fbd
	};
	static const uint8_t shifts[] = { 0, 1, 2, 3, 4, 5, 7 };
	unsigned size = size_2_to_8();
	bool memory = rnd(4) == 0;
	switch (rnd(8)) {
	default: {
		unsigned k = rnd(sizeof(two) / sizeof(*two));
		if (two[k] == 0x0fa3 || two[k] == 0x0fab) /* elsewhere by the register's value */
			memory = false;
		op(size, two[k], any(), memory ? RDI : -1, any(), good());
		break;
	}
	case 4:
		op(size, 0xff, rnd(2), memory ? RDI : -1, any(), good());
		break;
	case 5:
		op(size, 0xc1, shifts[rnd(7)], memory ? RDI : -1, any(), good());
		*at++ = (uint8_t)rnd(34);
		break;
	case 6:
		op(size, 0xd3, shifts[rnd(7)], -1, any(), 0);
		break;
	case 7:
		op(size, 0xf7, rnd(2) ? 3 : 4 + rnd(2), -1, any(), 0);
		break;
	}
}

/* What leaves flags as they are, or only reads them. */
static void filler(void)
{
	unsigned k = rnd(18), size = size_2_to_8();
	switch (k) {
	default:
		op(size, 0x8b, any(), RDI, 0, good());
		break;
	case 6:
	case 7:
		op(size, 0x89, any(), RDI, 0, good());
		break;
	case 8:
		op(8, 0x8d, any(), RDI, 0, good());
		break;
	case 9:
		op(4, 0x0fb6, any(), RDI, 0, good());
		break;
	case 10:
	case 11: /* movups, one way or the other */
		op(4, k == 10 ? 0x0f10 : 0x0f11, rnd(8), RDI, 0, good());
		break;
	case 12:
		EMIT("\x50\x8f\x87\x80\0\0\0"); /* push rax; pop [rdi + 128] */
		break;
	case 13:
		EMIT("\xff\xb7\x90\0\0\0\x5b"); /* push [rdi + 144]; pop rbx */
		break;
	case 14:
		op(8, 0x0f40 + rnd(16), any(), rnd(2) ? RDI : -1, any(), good());
		break;
	case 15: /* to the next instruction, on a condition or without */
		*at++ = (uint8_t)(rnd(2) ? 0xeb : 0x70 + rnd(16));
		*at++ = 0;
		break;
	case 16:
		op(8, 0xf7, 2, rnd(2) ? RDI : -1, any(), good());
		break;
	case 17:
		op(8, 0x87, any(), -1, any(), 0);
		break;
	}
}

/* What faults; `edge` is where a page ends behind which there is none. */
static void faulty(const uint8_t *edge)
{
	static const uint16_t rmw[] = { 0x01, 0x11, 0x29, 0x19, 0x31, 0x0fc1, 0x0fb1, 0x0fab };
	unsigned k = rnd(14);
	/* a locked access to two lines may take seconds on a host that punishes it */
	bool over = rnd(3) == 0 && k != 8;
	EMIT("\x49\xbc"); /* mov r12, imm64 */
	number(over	? (uintptr_t)edge - (k == 4 || k == 5 ? 8 : 1)
	       : rnd(3) ? 0x1000
			: 1ULL << 63,
	       8);
	switch (k) {
	default:
		op(size_2_to_8(), 0x8b, any(), R12, 0, 0);
		break;
	case 2:
		op(size_2_to_8(), 0x89, any(), R12, 0, 0);
		break;
	case 3:
		op(size_2_to_8(), 0x03, any(), R12, 0, 0);
		break;
	case 4:
	case 5:
		op(4, k == 4 ? 0x0f10 : 0x0f11, 1, R12, 0, 0);
		break;
	case 6:
	case 7:
		op(size_2_to_8(), rmw[rnd(8)], RAX, R12, 0, 0);
		break;
	case 8:
		*at++ = 0xf0;
		op(4 << rnd(2), rmw[rnd(7)], RBX, R12, 0, 0);
		break;
	case 9:
		EMIT("\x4c\x89\xe4\x53"); /* mov rsp, r12; push rbx */
		break;
	case 10:
		op(4 << rnd(2), 0xf7, 6 + rnd(2), RDI, 0, 8); /* div of what is zero */
		break;
	case 11:
		EMIT("\x41\xff\x14\x24"); /* call [r12] */
		break;
	case 12:
		EMIT("\x0f\x0b");
		break;
	case 13:
		EMIT("\x4c\x89\xe6\x48\xa5"); /* mov rsi, r12; movsq */
		break;
	}
}

static void saw(int sig, siginfo_t *info, void *context)
{
	const ucontext_t *u = context;
	const greg_t *g = u->uc_mcontext.gregs;
	note("s", sig);
	if (info->si_code <= 0) { /* one that has waited since before */
		note("sent", info->si_code);
		return;
	}
	put(" ");
	put_hex((unsigned long long)g[REG_EFL] & 0xcd5);
	note("at", (long long)((uintptr_t)g[REG_RIP] - (uintptr_t)code));
	siglongjmp(back, 1);
}

/* Where the last x87 instruction was and its operand, when the register that led to it has gone: a
 * division by zero, and the trap at the next x87 instruction, some others between. */
__asm__(".globl divides, divided, divide_end\n.text\n"
	"divides: fninit\n fldcw divide_word(%rip)\n fld1\n"
	"divided: fdivs (%rdi,%rsi,4)\n xor %edi,%edi\n mov $9,%esi\n"
	"1: cmp (%rdx),%rdi\n dec %esi\n jnz 1b\n fwait\n divide_end: fninit\n ret\n"
	".data\n divide_word: .short 0x37b\n .text\n");
extern void divides(const float *of, long index, const void *any);
extern const char divided[];
static const float *divisor;

static void saw_division(int sig, siginfo_t *info, void *context)
{
	const ucontext_t *u = context;
	(void)info;
	note("s", sig);
	note("fip", (long long)(u->uc_mcontext.fpregs->rip - (uintptr_t)divided));
	note("fdp", (long long)(u->uc_mcontext.fpregs->rdp - (uintptr_t)divisor));
	siglongjmp(back, 1);
}

static void divide(const uint8_t *memory)
{
	struct sigaction sa = { .sa_sigaction = saw_division, .sa_flags = SA_SIGINFO }, old;
	static float here;
	float there;
	__asm__ volatile("" : "=m"(there));
	there = 0;
	const float *of[] = { (const float *)(const void *)(memory + 8), &here, &there };
	sigaction(SIGFPE, &sa, &old);
	divisor = of[rnd(3)];
	long n = rnd(100);
	if (sigsetjmp(back, 1) == 0)
		divides(divisor - n, n, memory);
	sigaction(SIGFPE, &old, NULL);
}

static const int signals[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL };

void dead_flags(void)
{
	static uint8_t *room, *memory; /* addresses get into flags */
	static char stack[1 << 15];
	stack_t alternate = { .ss_sp = stack, .ss_size = sizeof(stack) }, before;
	struct sigaction sa = { .sa_sigaction = saw, .sa_flags = SA_SIGINFO | SA_ONSTACK }, old[4];
	sigset_t mask;

	if (!room) {
		room = mmap((void *)0x20000000, AT_ONCE * ONE_CODE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		memory = mmap((void *)0x30000000, 8192, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		munmap(memory + 4096, 4096);
	}
	mprotect(room, AT_ONCE * ONE_CODE, PROT_READ | PROT_WRITE);
	for (unsigned i = 0; i < AT_ONCE; i++) {
		static const uint8_t set[] = { RAX, RCX, RDX, RBX, RSI, R8, 9, 10, 11, 14, 15 };
		at = room + i * ONE_CODE;
		EMIT("\xf3\x0f\x1e\xfa"); /* endbr64 */
		for (unsigned k = 0; k < sizeof(set); k++) {
			*at++ = (uint8_t)(0x48 | set[k] >> 3);
			*at++ = (uint8_t)(0xb8 | (set[k] & 7));
			number(rnd(3) ? rnd(1u << 30) * 0x2468acf13579bULL : rnd(4) - 2ULL, 8);
		}
		for (unsigned k = 0; k < 8; k++) /* xorps; what is in them is stored */
			op(4, 0x0f57, k, -1, k, 0);
		for (unsigned k = rnd(4); k-- > 0;) {
			setter();
			for (unsigned n = rnd(5); n-- > 0;)
				filler();
		}
		faulty(memory + 4096);
		if (rnd(2))
			filler();
		EMIT("\x31\xc0\x48\x39\xc0\xc3"); /* xor eax, eax; cmp rax, rax; ret */
	}
	mprotect(room, AT_ONCE * ONE_CODE, PROT_READ | PROT_EXEC);
	sigaltstack(&alternate, &before);
	for (unsigned i = 0; i < 4; i++)
		sigaction(signals[i], &sa, &old[i]);
	sigprocmask(SIG_SETMASK, NULL, &mask);
	for (unsigned i = 0; i < 4; i++)
		sigdelset(&mask, signals[i]);
	sigprocmask(SIG_SETMASK, &mask, NULL);
	for (volatile unsigned i = 0; i < AT_ONCE; i++) {
		for (unsigned k = 2; k < 512; k++) /* all but the zero and what is beside it */
			((uint64_t *)(void *)memory)[k] = k * 0x1234567890abcdf;
		code = room + i * ONE_CODE;
		if (sigsetjmp(back, 1) == 0) {
			const uint8_t *to = code;
			void *with = memory;
			__asm__ volatile("call *%0"
					 : "+a"(to), "+D"(with)
					 :
					 : "rcx", "rdx", "rbx", "rsi", "r8", "r9", "r10", "r11",
					   "r12", "r14", "r15", "xmm0", "xmm1", "xmm2", "xmm3",
					   "xmm4", "xmm5", "xmm6", "xmm7", "cc", "memory");
			put(" none");
		}
	}
	divide(memory);
	for (unsigned i = 0; i < 4; i++)
		sigaction(signals[i], &old[i], NULL);
	sigaltstack(&before, NULL);
}
