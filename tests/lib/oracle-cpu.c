/*
 * The CPU's side of the comparison declared in oracle.h.
 *
 * A fixed code page, fixed operand memory and a fixed state page. The trampoline in assembly loads
 * every register from the state page, rsp included, and jumps to the code; the code's last
 * instruction, appended here, jumps back, and every register is stored. The state page is reached
 * by 32-bit absolute addresses, so no register is needed to find it. Faults come back through a
 * signal handler on an alternate stack.
 */
#include "format/cpu.h"
#include "emu/emu.h"
#include "tests/lib/oracle-parts.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#ifdef __x86_64__

#define STATE 0x20001000UL

/* Offsets are repeated in the assembly below. */
struct state {
	uint64_t gpr[16];     /* 0 */
	uint64_t rflags;      /* 128 */
	uint64_t host_rsp;    /* 136 */
	uint64_t entry;	      /* 144 */
	uint64_t pad[13];     /* 152 */
	uint8_t ymm[16][32];  /* 256 */
	uint8_t fx[512];      /* 768, 16-byte aligned */
	uint8_t host_fx[512]; /* 1280 */
};
_Static_assert(offsetof(struct state, ymm) == 256, "layout known to the assembly");
_Static_assert(offsetof(struct state, host_fx) == 1280, "layout known to the assembly");

#define STR2(x) #x
#define STR(x)	STR2(x)
#define AT(off) "(0x20001000+" STR(off) ")"

void oracle_enter(void);

/* clang-format off */
/* Each of them with its place. */
#define GPRS(how)                                                                                  \
	how(rax, 0) how(rcx, 8) how(rdx, 16) how(rbx, 24) how(rsp, 32) how(rbp, 40) how(rsi, 48)   \
	how(rdi, 56) how(r8, 64) how(r9, 72) how(r10, 80) how(r11, 88) how(r12, 96) how(r13, 104)  \
	how(r14, 112) how(r15, 120)
#define LOAD(reg, at)  "	mov " AT(at) ", %" #reg "\n"
#define STORE(reg, at) "	mov %" #reg ", " AT(at) "\n"

__asm__(".text\n"
	".globl oracle_enter, oracle_leave\n"
	"oracle_enter:\n"
	"	push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n"
	"	mov %rsp, " AT(136) "\n"
	"	fxsave64 " AT(1280) "\n"
	"	fxrstor64 " AT(768) "\n"
	"	.irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"
	"	vmovdqu " AT(256) "+32*\\n, %ymm\\n\n"
	"	.endr\n"
	"	pushq " AT(128) "\n popfq\n"
	GPRS(LOAD)
	"	jmp *" AT(144) "\n"
	"oracle_leave:\n"
	GPRS(STORE)
	"	mov " AT(136) ", %rsp\n"
	"	pushfq\n popq " AT(128) "\n"
	"	cld\n"
	"	.irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"
	"	vmovdqu %ymm\\n, " AT(256) "+32*\\n\n"
	"	.endr\n"
	"	fxsave64 " AT(768) "\n"
	"	fxrstor64 " AT(1280) "\n"
	"	vzeroupper\n"
	"	pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n"
	"	ret\n");
/* clang-format on */

static volatile sig_atomic_t running, caught;

/*
 * Leaves by returning: AddressSanitizer makes a jump out of a handler on another stack read
 * /proc/self/maps.
 */
static void on_signal(int sig, siginfo_t *info, void *context)
{
	greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;

	(void)info;
	if (!running) {
		signal(sig, SIG_DFL); /* a bug of the test itself: it happens again and kills */
		return;
	}
	running = 0;
	caught = sig;
	regs[REG_RIP] = (greg_t)(uintptr_t)oracle_leave;
	regs[REG_EFL] = 0x202;
}

static void cpu_setup(void)
{
	static bool done;
	static uint8_t alt_stack[65536];
	static const int signals[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP };
	struct sigaction sa = { .sa_sigaction = on_signal, .sa_flags = SA_ONSTACK | SA_SIGINFO };
	stack_t ss = { .ss_sp = alt_stack, .ss_size = sizeof(alt_stack) };
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
	void *mem, *code;

	if (done)
		return;
	mem = mmap((void *)ORACLE_MEM, ORACLE_MEM_SIZE, PROT_READ | PROT_WRITE, flags, -1, 0);
	code = mmap((void *)ORACLE_CODE, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, flags, -1, 0);
	DJ_ASSERT(mem == (void *)ORACLE_MEM && code == (void *)ORACLE_CODE,
		  "cannot map the oracle's memory");
	sigaltstack(&ss, NULL);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		sigaction(signals[i], &sa, NULL);
	done = true;
}

bool oracle_ready(void)
{
	oracle_log_open();
	return oracle_available();
}

bool oracle_available(void)
{
	return __builtin_cpu_supports("avx2");
}

/* FXSAVE64 layout: SDM vol. 1, table 10-2. */
static void to_fx(uint8_t *fx, const struct dj_regs *r)
{
	memset(fx, 0, 512);
	oracle_put(fx + 0, r->fcw, 2);
	oracle_put(fx + 2, r->fsw, 2);
	oracle_put(fx + 4, r->ftw, 1);
	oracle_put(fx + 6, r->fop, 2);
	oracle_put(fx + 8, r->fip, 8);
	oracle_put(fx + 16, r->fdp, 8);
	oracle_put(fx + 24, r->mxcsr, 4);
	for (int i = 0; i < 8; i++) {
		oracle_put(fx + 32 + 16 * i, r->st_mant[i], 8);
		oracle_put(fx + 40 + 16 * i, r->st_exp[i], 2);
	}
}

static void from_fx(struct dj_regs *r, const uint8_t *fx)
{
	r->fcw = oracle_get(fx + 0, 2);
	r->fsw = oracle_get(fx + 2, 2);
	r->ftw = oracle_get(fx + 4, 1);
	r->fop = oracle_get(fx + 6, 2);
	r->fip = oracle_get(fx + 8, 8);
	r->fdp = oracle_get(fx + 16, 8);
	r->mxcsr = oracle_get(fx + 24, 4);
	for (int i = 0; i < 8; i++) {
		r->st_mant[i] = oracle_get(fx + 32 + 16 * i, 8);
		r->st_exp[i] = oracle_get(fx + 40 + 16 * i, 2);
	}
}

int oracle_run(uint64_t entry, const struct dj_regs *in, struct dj_regs *out, uint8_t *mem)
{
	struct state *s = (struct state *)STATE;

	cpu_setup();
	memcpy((void *)ORACLE_MEM, mem, ORACLE_MEM_SIZE);
	memcpy(s->gpr, in->gpr, sizeof(s->gpr));
	memcpy(s->ymm, in->ymm, sizeof(s->ymm));
	s->rflags = (in->rflags & (DJ_FLAGS_ARITH | DJ_FLAG_DF | ORACLE_TF)) | 0x202;
	s->entry = entry;
	to_fx(s->fx, in);

	caught = 0;
	running = 1;
	oracle_enter();
	running = 0;
	memcpy(mem, (void *)ORACLE_MEM, ORACLE_MEM_SIZE);
	if (caught)
		return caught;
	*out = *in;
	memcpy(out->gpr, s->gpr, sizeof(s->gpr));
	memcpy(out->ymm, s->ymm, sizeof(s->ymm));
	out->rflags = s->rflags;
	from_fx(out, s->fx);
	return 0;
}

void oracle_put_leave(uint8_t *at)
{
	static const uint8_t jump[6] = { 0xff, 0x25, 0, 0, 0, 0 };
	uint64_t leave = (uint64_t)(uintptr_t)oracle_leave;

	memcpy(at, jump, sizeof(jump));
	memcpy(at + sizeof(jump), &leave, 8);
}

int oracle_cpu(const uint8_t *code, size_t n, const struct dj_regs *in, struct dj_regs *out,
	       uint8_t *mem)
{
	uint8_t *at = (uint8_t *)ORACLE_CODE;

	DJ_ASSERT(n + ORACLE_LEAVE <= 4096, "%zu bytes of code are too many", n);
	cpu_setup();
	memcpy(at, code, n);
	oracle_put_leave(at + n);
	int sig = oracle_run(ORACLE_CODE, in, out, mem);
	if (!sig)
		out->rip = ORACLE_CODE + n;
	return oracle_log_signal(sig);
}

#else

bool oracle_ready(void)
{
	return oracle_log_open();
}

bool oracle_available(void)
{
	return false;
}

int oracle_cpu(const uint8_t *code, size_t n, const struct dj_regs *in, struct dj_regs *out,
	       uint8_t *mem)
{
	int sig = oracle_log_signal(0);

	if (!sig && oracle_run_emu(code, n, in, out, mem))
		sig = SIGILL;
	return sig;
}

int oracle_run(uint64_t entry, const struct dj_regs *in, struct dj_regs *out, uint8_t *mem)
{
	(void)entry, (void)in, (void)out, (void)mem;
	return SIGILL;
}

void oracle_put_leave(uint8_t *at)
{
	(void)at;
}

void oracle_leave(void)
{
}

#endif
