/*
 * Both sides of the comparison declared in oracle.h.
 *
 * CPU side: a fixed code page, fixed operand memory and a fixed state page. The trampoline
 * in assembly loads every register from the state page, rsp included, and jumps to the code;
 * the code's last instruction, appended here, jumps back, and every register is stored. The
 * state page is reached by 32-bit absolute addresses, so no register is needed to find it.
 * Faults come back through a signal handler on an alternate stack.
 *
 * On another machine the CPU's answers come from the emulator itself, and what is compared is the
 * emulator with the one on x86-64, by the log that the same test left there (oracle_ready()).
 *
 * Emulator side: a struct emu without block cache or driver. Instructions are decoded and
 * bound one at a time and their handlers called directly.
 */
#include "tests/lib/oracle.h"

#include "format/cpu.h"
#include "format/error.h"
#include "insn/insn.h"
#include "emu/emu-flags.h"
#include "emu/emu.h"

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>

unsigned oracle_emu_loads;

/* ---- the log ------------------------------------------------------------------------ */

/*
 * ORACLE_LOG names a file. On x86-64 it is written: after a byte for the kind of processor, for
 * each question to the CPU a C and the signal, for each result of the emulator an E and a digest.
 * Elsewhere it is read, and must tell the same.
 */
static FILE *log_file;

#ifdef __x86_64__
static const char log_mode[] = "wb";
#else
static const char log_mode[] = "rb";
#endif

static bool log_open(void)
{
	const char *name = getenv("ORACLE_LOG");
	int kind = (int)dj_cpu_host();

	if (log_file || !name)
		return log_file != NULL;
	log_file = fopen(name, log_mode);
	DJ_ASSERT(log_file, "cannot open %s", name);
	if (*log_mode == 'w')
		fputc(kind, log_file);
	else
		kind = fgetc(log_file);
	insn_follow((enum dj_cpu_kind)kind);
	return true;
}

static int log_signal(int sig)
{
	if (!log_open())
		return sig;
	if (*log_mode == 'w') {
		fprintf(log_file, "C%c", sig);
		return sig;
	}
	DJ_ASSERT(fgetc(log_file) == 'C', "the test goes another way here than on x86-64");
	return fgetc(log_file);
}

bool oracle_log(const struct dj_regs *out, const uint8_t *mem)
{
	uint8_t here[9] = { 'E' }, there[9];
	uint64_t digest;

	if (!log_open())
		return true;
	digest = dj_regs_digest(out) ^ XXH3_64bits(mem, ORACLE_MEM_SIZE) ^
		 (out->rflags & DJ_FLAGS_ARITH) << 40;
	for (unsigned i = 0; i < 8; i++)
		here[1 + i] = (uint8_t)(digest >> 8 * i);
	if (*log_mode == 'w')
		return fwrite(here, sizeof(here), 1, log_file) == 1;
	return fread(there, sizeof(there), 1, log_file) == 1 && !memcmp(here, there, sizeof(here));
}

static int run_emu(const uint8_t *code, size_t n, const struct dj_regs *in, struct dj_regs *out,
		   uint8_t *mem);

/* ---- the CPU ------------------------------------------------------------------------ */
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
	"	mov " AT(0) ", %rax\n mov " AT(8) ", %rcx\n mov " AT(16) ", %rdx\n"
	"	mov " AT(24) ", %rbx\n mov " AT(32) ", %rsp\n mov " AT(40) ", %rbp\n"
	"	mov " AT(48) ", %rsi\n mov " AT(56) ", %rdi\n mov " AT(64) ", %r8\n"
	"	mov " AT(72) ", %r9\n mov " AT(80) ", %r10\n mov " AT(88) ", %r11\n"
	"	mov " AT(96) ", %r12\n mov " AT(104) ", %r13\n mov " AT(112) ", %r14\n"
	"	mov " AT(120) ", %r15\n"
	"	jmp *" AT(144) "\n"
	"oracle_leave:\n"
	"	mov %rax, " AT(0) "\n mov %rcx, " AT(8) "\n mov %rdx, " AT(16) "\n"
	"	mov %rbx, " AT(24) "\n mov %rsp, " AT(32) "\n mov %rbp, " AT(40) "\n"
	"	mov %rsi, " AT(48) "\n mov %rdi, " AT(56) "\n mov %r8, " AT(64) "\n"
	"	mov %r9, " AT(72) "\n mov %r10, " AT(80) "\n mov %r11, " AT(88) "\n"
	"	mov %r12, " AT(96) "\n mov %r13, " AT(104) "\n mov %r14, " AT(112) "\n"
	"	mov %r15, " AT(120) "\n"
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
	log_open();
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
	return log_signal(sig);
}

#else

bool oracle_ready(void)
{
	return log_open();
}

bool oracle_available(void)
{
	return false;
}

int oracle_cpu(const uint8_t *code, size_t n, const struct dj_regs *in, struct dj_regs *out,
	       uint8_t *mem)
{
	int sig = log_signal(0);

	if (!sig && run_emu(code, n, in, out, mem))
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

/* ---- the emulator ------------------------------------------------------------------- */

/* A family that is not linked into the test is simply absent. */
#define WEAK __attribute__((weak))
WEAK emu_fn *emu_bind_int(const struct insn *in, struct emu_uop *u);
WEAK emu_fn *emu_bind_string(const struct insn *in, struct emu_uop *u);
WEAK emu_fn *emu_bind_vec(const struct insn *in, struct emu_uop *u);
WEAK emu_fn *emu_bind_fp(const struct insn *in, struct emu_uop *u);
WEAK emu_fn *emu_bind_x87(const struct insn *in, struct emu_uop *u);

/* What emu/emu.c defines, for tests that do not need the rest of it. */
WEAK void emu_raise(struct emu *e, enum emu_stop why, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(e->why, sizeof(e->why), fmt, ap);
	va_end(ap);
	longjmp(e->escape, (int)why);
}

WEAK void emu_store_hooked(struct emu *e, uint64_t addr, const uint8_t *bytes, unsigned size)
{
	memcpy(e->shadow + (uint32_t)addr, bytes, size);
}

static void count_load(void *ctx, struct emu *e, uint64_t addr, unsigned size)
{
	(void)ctx, (void)e, (void)addr, (void)size;
	oracle_emu_loads++;
}

static void regs_in(struct emu *e, const struct dj_regs *r)
{
	struct emu_cpu *c = &e->cpu;
	unsigned top = (r->fsw >> 11) & 7;

	memcpy(c->gpr, r->gpr, sizeof(r->gpr));
	c->gpr[EMU_ZERO_REG] = 0;
	c->rip = ORACLE_CODE;
	c->other_flags = (r->rflags & DJ_FLAG_DF) | 0x202;
	emu_set_flags(e, (uint32_t)r->rflags & DJ_FLAGS_ARITH);
	c->segbase[1] = r->fs_base;
	c->segbase[2] = r->gs_base;
	for (int i = 0; i < 16; i++)
		for (int k = 0; k < 32; k++)
			VB(&c->v[i], k) = r->ymm[i][k];
	c->mxcsr = r->mxcsr;
	for (unsigned i = 0; i < 8; i++) {
		c->x87_mant[(top + i) & 7] = r->st_mant[i];
		c->x87_exp[(top + i) & 7] = r->st_exp[i];
	}
	c->x87_top = (uint8_t)top;
	c->x87_ftw = r->ftw;
	c->fcw = r->fcw;
	c->fsw = (uint16_t)(r->fsw & ~0x3800);
	c->fop = r->fop;
	c->fip = r->fip;
	c->fdp = r->fdp;
}

static void regs_out(struct emu *e, struct dj_regs *r)
{
	struct emu_cpu *c = &e->cpu;

	memcpy(r->gpr, c->gpr, sizeof(r->gpr));
	r->rip = c->rip;
	r->rflags = c->other_flags | emu_get_flags(e);
	r->fs_base = c->segbase[1];
	r->gs_base = c->segbase[2];
	for (int i = 0; i < 16; i++)
		for (int k = 0; k < 32; k++)
			r->ymm[i][k] = VB(&c->v[i], k);
	r->mxcsr = c->mxcsr;
	for (unsigned i = 0; i < 8; i++) {
		r->st_mant[i] = c->x87_mant[(c->x87_top + i) & 7];
		r->st_exp[i] = c->x87_exp[(c->x87_top + i) & 7];
	}
	r->fcw = c->fcw;
	r->fsw = (uint16_t)(c->fsw | (c->x87_top & 7) << 11);
	r->ftw = c->x87_ftw;
	r->fop = c->fop;
	r->fip = c->fip;
	r->fdp = c->fdp;
}

static emu_fn *bind(const struct insn *in, struct emu_uop *u)
{
	emu_fn *(*const families[])(const struct insn *, struct emu_uop *) = {
		emu_bind_int, emu_bind_string, emu_bind_vec, emu_bind_fp, emu_bind_x87,
	};
	uint8_t *ops[4] = { &u->a, &u->b, &u->c, &u->d };
	struct emu_uop fresh = {
		.next = in->addr + in->len,
		.imm = in->imm,
		.disp = in->base == INSN_RIP ? (int64_t)in->target : in->disp,
		.base = EMU_ZERO_REG,
		.index = EMU_ZERO_REG,
		.seg = in->seg == 4   ? 1
		       : in->seg == 5 ? 2
				      : 0,
		.addr32 = in->addr32,
		.size = (uint8_t)in->opnd[0].size,
		.cond = in->cond,
		.insn = in,
	};

	if (in->has_mem && in->base < 16)
		fresh.base = in->base;
	if (in->has_mem && in->index < 16) {
		fresh.index = in->index;
		fresh.shift = (uint8_t)__builtin_ctz(in->scale ? in->scale : 1);
	}
	for (size_t f = 0; f < sizeof(families) / sizeof(families[0]); f++) {
		emu_fn *fn;

		*u = fresh;
		for (int i = 0; i < 4 && i < in->nopnd; i++)
			if (in->opnd[i].kind != OPND_MEM && in->opnd[i].kind != OPND_VSIB)
				*ops[i] = in->opnd[i].reg;
		fn = families[f] ? families[f](in, u) : NULL;
		if (fn)
			return fn;
	}
	return NULL;
}

static int run_emu(const uint8_t *code, size_t n, const struct dj_regs *in, struct dj_regs *out,
		   uint8_t *mem)
{
	static struct emu *e;
	unsigned budget = 100000;

	if (!e) {
		e = calloc(1, sizeof(*e));
		DJ_ASSERT(e, "no memory");
		e->shadow = mmap(NULL, (1UL << 32) + 4096, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		DJ_ASSERT(e->shadow != MAP_FAILED, "no address space for a shadow");
		e->mirror_stores = true;
		e->hooks = EMU_HOOK_IMPORT;
		e->before_load = count_load;
	}
	memcpy(e->shadow + ORACLE_MEM, mem, ORACLE_MEM_SIZE);
	regs_in(e, in);
	oracle_emu_loads = 0;
	if (setjmp(e->escape))
		return -1;
	while (e->cpu.rip - ORACLE_CODE < n && budget--) {
		uint64_t at = e->cpu.rip;
		struct insn insn;
		struct emu_uop u;

		e->why[0] = 0;
		if (insn_decode(&insn, code + (at - ORACLE_CODE), n - (at - ORACLE_CODE), at) <= 0)
			return -1;
		u.fn = bind(&insn, &u);
		if (!u.fn)
			return -1;
		e->ordinal = 0;
		u.fn(e, &u);
		if (!(u.flags & EMU_UOP_BRANCH))
			e->cpu.rip = u.next;
	}
	*out = *in;
	regs_out(e, out);
	memcpy(mem, e->shadow + ORACLE_MEM, ORACLE_MEM_SIZE);
	return 0;
}

int oracle_emu(const uint8_t *code, size_t n, const struct dj_regs *in, struct dj_regs *out,
	       uint8_t *mem)
{
	int r = run_emu(code, n, in, out, mem);

	if (!r && !oracle_log(out, mem)) {
		fprintf(stderr, "another result than on x86-64:");
		for (size_t i = 0; i < n; i++)
			fprintf(stderr, " %02x", code[i]);
		fprintf(stderr, "\n");
		return -1;
	}
	return r;
}

/* ---- random inputs ------------------------------------------------------------------ */

uint64_t oracle_rand(uint64_t *state)
{
	/* splitmix64 (Steele, Lea, Flood 2014) */
	uint64_t z = *state += 0x9e3779b97f4a7c15;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

static uint64_t random_int(uint64_t *seed)
{
	uint64_t x = oracle_rand(seed), kind = oracle_rand(seed) % 8;

	switch (kind) {
	case 0:
		return x % 70; /* shift counts and their like */
	case 1:
		return -(x % 70);
	case 2: { /* next to a power of two */
		uint64_t bit = 1ULL << (x & 63);

		return bit + (x >> 6) % 3 - 1;
	}
	case 3: { /* the limits of each width, sign-extended or not */
		unsigned width = 8u << ((x >> 8) & 3);
		uint64_t max = ~0ULL >> (65 - width);

		x >>= 16;
		return (x & 1 ? max : max + 1) + (x >> 1) % 2;
	}
	case 4:
		return x >> (x & 63); /* any magnitude */
	default:
		return x;
	}
}

static uint32_t random_float(uint64_t *seed)
{
	static const uint32_t special[] = {
		0x00000000, 0x00000001, 0x007fffff, 0x00800000, 0x3f800000, 0x3f7fffff,
		0x7f7fffff, 0x7f800000, 0x7fc00000, 0x7f800001, 0x7fffffff, 0x4f000000,
		0x5f000000, 0x3f000000, 0x40490fdb, 0x4b000000,
	};
	uint64_t x = oracle_rand(seed);
	uint32_t sign = (uint32_t)(x >> 63) << 31;

	switch (x & 3) {
	case 0:
		return special[(x >> 8) % 16] | sign;
	case 1: /* near one, so that sums cancel and round */
		return (uint32_t)(120 + (x >> 8) % 16) << 23 | (uint32_t)(x >> 40 & 0x7fffff) |
		       sign;
	case 2: /* a small integer */
	{
		float f = (float)((x >> 8) % 2000);
		uint32_t bits;

		memcpy(&bits, &f, 4);
		return bits | sign;
	}
	default:
		return (uint32_t)(x >> 16);
	}
}

static uint64_t random_double(uint64_t *seed)
{
	static const uint64_t special[] = {
		0x0000000000000000, 0x0000000000000001, 0x000fffffffffffff, 0x0010000000000000,
		0x3ff0000000000000, 0x3fefffffffffffff, 0x7fefffffffffffff, 0x7ff0000000000000,
		0x7ff8000000000000, 0x7ff0000000000001, 0x7fffffffffffffff, 0x41e0000000000000,
		0x43e0000000000000, 0x3fe0000000000000, 0x400921fb54442d18, 0x4330000000000000,
	};
	uint64_t x = oracle_rand(seed), y = oracle_rand(seed);
	uint64_t sign = x & (1ULL << 63);

	switch (x & 3) {
	case 0:
		return special[(x >> 8) % 16] | sign;
	case 1:
		return (1000 + (x >> 8) % 48) << 52 | y >> 12 | sign;
	case 2: {
		double f = (double)((x >> 8) % 100000);
		uint64_t bits;

		memcpy(&bits, &f, 8);
		return bits | sign;
	}
	default:
		return y;
	}
}

void oracle_random_regs(struct dj_regs *r, uint64_t *seed)
{
	memset(r, 0, sizeof(*r));
	for (int i = 0; i < 16; i++)
		r->gpr[i] = random_int(seed);
	r->gpr[DJ_RSP] = ORACLE_MEM + ORACLE_MEM_SIZE / 2 + (oracle_rand(seed) % 64) * 8;
	r->rip = ORACLE_CODE;
	r->rflags = (oracle_rand(seed) & DJ_FLAGS_ARITH) | 0x202;
	if (oracle_rand(seed) % 4 == 0)
		r->rflags |= DJ_FLAG_DF;
	r->cs = 0x33;
	r->ss = 0x2b;
	for (int i = 0; i < 16; i++) {
		uint64_t kind = oracle_rand(seed) % 8;

		for (int k = 0; k < 32; k += 8) {
			uint64_t x;

			switch (kind) {
			case 0:
			case 1:
				x = random_float(seed) | (uint64_t)random_float(seed) << 32;
				break;
			case 2:
			case 3:
				x = random_double(seed);
				break;
			case 4: /* bytes near their limits */
				x = oracle_rand(seed) & 0x8383838383838383;
				x ^= oracle_rand(seed) % 2 ? 0x7f7f7f7f7f7f7f7f : 0;
				break;
			case 5:
				x = random_int(seed);
				break;
			case 6:
				x = random_int(seed) << 32;
				x |= (uint32_t)random_int(seed);
				break;
			default:
				x = oracle_rand(seed);
			}
			for (int b = 0; b < 8; b++)
				r->ymm[i][k + b] = (uint8_t)(x >> (8 * b));
		}
	}
	r->mxcsr = 0x1f80;
	r->fcw = 0x37f;
}

/* ---- comparison ----------------------------------------------------------------------- */

static bool differ(char *text, size_t size, const char *name, uint64_t cpu, uint64_t emu)
{
	if (cpu == emu)
		return false;
	snprintf(text, size, "%s: cpu %#llx, emulator %#llx", name, (unsigned long long)cpu,
		 (unsigned long long)emu);
	return true;
}

static void hex(char *out, const uint8_t *bytes, int n, int step)
{
	for (int i = 0; i < n; i++, out += 2)
		sprintf(out, "%02x", bytes[step < 0 ? n - 1 - i : i]);
	*out = 0;
}

static bool find_difference(char *text, size_t size, const struct dj_regs *cpu,
			    const struct dj_regs *emu, uint64_t mask, uint32_t flags,
			    const uint8_t *mem_cpu, const uint8_t *mem_emu)
{
	static const char *const gpr[] = { "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
					   "r8",  "r9",	 "r10", "r11", "r12", "r13", "r14", "r15" };

	for (int i = 0; i < 16; i++)
		if ((mask & DJ_REG_GPR(i)) && differ(text, size, gpr[i], cpu->gpr[i], emu->gpr[i]))
			return true;
	if ((mask & DJ_REG_RFLAGS) &&
	    differ(text, size, "flags", cpu->rflags & flags, emu->rflags & flags))
		return true;
	if ((mask & DJ_REG_RIP) && differ(text, size, "rip", cpu->rip, emu->rip))
		return true;
	if ((mask & DJ_REG_MXCSR) && differ(text, size, "mxcsr", cpu->mxcsr, emu->mxcsr))
		return true;
	if (mask & DJ_REG_X87) {
		if (differ(text, size, "fcw", cpu->fcw, emu->fcw) ||
		    differ(text, size, "fsw", cpu->fsw, emu->fsw) ||
		    differ(text, size, "ftw", cpu->ftw, emu->ftw))
			return true;
		for (int i = 0; i < 8; i++) {
			if (cpu->st_mant[i] == emu->st_mant[i] && cpu->st_exp[i] == emu->st_exp[i])
				continue;
			snprintf(text, size, "st%d: cpu %04x:%016llx, emulator %04x:%016llx", i,
				 cpu->st_exp[i], (unsigned long long)cpu->st_mant[i],
				 emu->st_exp[i], (unsigned long long)emu->st_mant[i]);
			return true;
		}
	}
	for (int i = 0; i < 16; i++) {
		char a[65], b[65];

		if (!(mask & DJ_REG_YMM(i)) || !memcmp(cpu->ymm[i], emu->ymm[i], 32))
			continue;
		hex(a, cpu->ymm[i], 32, -1);
		hex(b, emu->ymm[i], 32, -1);
		snprintf(text, size, "ymm%d: cpu %s, emulator %s", i, a, b);
		return true;
	}
	for (int i = 0; mem_cpu && mem_emu && i < ORACLE_MEM_SIZE; i++)
		if (mem_cpu[i] != mem_emu[i]) {
			snprintf(text, size, "memory at +%#x: cpu %02x, emulator %02x", i,
				 mem_cpu[i], mem_emu[i]);
			return true;
		}
	return false;
}

bool oracle_same(const char *what, const uint8_t *code, size_t n, const struct dj_regs *in,
		 const struct dj_regs *cpu, const struct dj_regs *emu, uint64_t mask,
		 uint32_t flags, const uint8_t *mem_cpu, const uint8_t *mem_emu)
{
	static unsigned printed;
	char text[320], bytes[2 * 64 + 1];

	if (!find_difference(text, sizeof(text), cpu, emu, mask, flags, mem_cpu, mem_emu))
		return true;
	if (printed++ >= 60)
		return false;
	hex(bytes, code, n > 64 ? 64 : (int)n, 1);
	fprintf(stderr, "%s [%s]: %s\n", what, bytes, text);
	fprintf(stderr, "    in: flags %llx mxcsr %x fcw %x fsw %x ftw %x",
		(unsigned long long)in->rflags, in->mxcsr, in->fcw, in->fsw, in->ftw);
	for (int i = 0; i < 16; i++)
		fprintf(stderr, " r%d=%llx", i, (unsigned long long)in->gpr[i]);
	if (mask & DJ_REG_X87)
		for (int i = 0; i < 8; i++)
			fprintf(stderr, " st%d=%04x:%016llx", i, in->st_exp[i],
				(unsigned long long)in->st_mant[i]);
	if (mask & DJ_REG_YMM(0)) {
		/* the operands of short code: its last instruction's registers are among these */
		for (int i = 0; i < 16; i++) {
			char a[65];

			if (!memcmp(cpu->ymm[i], emu->ymm[i], 32) && i > 3)
				continue;
			hex(a, in->ymm[i], 32, -1);
			fprintf(stderr, " ymm%d=%s", i, a);
		}
	}
	fputc('\n', stderr);
	return false;
}
