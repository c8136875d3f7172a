/*
 * The emulator's side of the comparison declared in oracle.h, the comparison, and the log.
 *
 * On another machine the CPU's answers come from the emulator itself, and what is compared is the
 * emulator with the one on x86-64, by the log that the same test left there (oracle_ready()).
 *
 * Emulator side: a struct emu without block cache or driver. Instructions are decoded and
 * bound one at a time and their handlers called directly.
 */
#include "format/cpu.h"
#include "format/error.h"
#include "insn/insn.h"
#include "emu/emu-flags.h"
#include "emu/emu.h"
#include "tests/lib/oracle-parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>

unsigned oracle_emu_loads;

/* ---- the log ---- */

/*
 * ORACLE_LOG names a file. On x86-64 it is written: after a byte for the kind of processor, for
 * each question to the CPU a C and the signal, for each result of the emulator an E and a digest.
 * Elsewhere it is read, and must tell the same.
 */
static FILE *log_file;
static enum dj_cpu_kind log_kind;

#ifdef __x86_64__
static const char log_mode[] = "wb";
#else
static const char log_mode[] = "rb";
#endif

bool oracle_log_open(void)
{
	const char *name = getenv("ORACLE_LOG");

	if (log_file || !name)
		return log_file != NULL;
	log_file = fopen(name, log_mode);
	DJ_ASSERT(log_file, "cannot open %s", name);
	log_kind = dj_cpu_host();
	if (*log_mode == 'w')
		fputc((int)log_kind, log_file);
	else
		log_kind = (enum dj_cpu_kind)fgetc(log_file);
	insn_follow(log_kind);
	return true;
}

enum dj_cpu_kind oracle_kind(void)
{
	return oracle_log_open() ? log_kind : dj_cpu_host();
}

int oracle_log_signal(int sig)
{
	if (!oracle_log_open())
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

	if (!oracle_log_open())
		return true;
	digest = dj_regs_digest(out) ^ XXH3_64bits(mem, ORACLE_MEM_SIZE) ^
		 (out->rflags & DJ_FLAGS_ARITH) << 40;
	for (unsigned i = 0; i < 8; i++)
		here[1 + i] = (uint8_t)(digest >> 8 * i);
	if (*log_mode == 'w')
		return fwrite(here, sizeof(here), 1, log_file) == 1;
	return fread(there, sizeof(there), 1, log_file) == 1 && !memcmp(here, there, sizeof(here));
}

/* ---- the emulator ---- */

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
	(void)why;
	emu_longjmp(e->escape);
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

int oracle_run_emu(const uint8_t *code, size_t n, const struct dj_regs *in, struct dj_regs *out,
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
	if (emu_setjmp(e->escape))
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
	int r = oracle_run_emu(code, n, in, out, mem);

	if (!r && !oracle_log(out, mem)) {
		fprintf(stderr, "another result than on x86-64:");
		for (size_t i = 0; i < n; i++)
			fprintf(stderr, " %02x", code[i]);
		fprintf(stderr, "\n");
		return -1;
	}
	return r;
}

/* ---- comparison ---- */

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
