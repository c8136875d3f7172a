/*
 * The decoder against the CPU: every opcode of the legacy and VEX maps, with all mandatory
 * prefixes, REX.W, VEX.L and every modrm.reg, with a memory and with a register operand, is
 * decoded and run.
 *
 * - What the decoder refuses raises SIGILL, and nothing else does.
 * - The memory operand's size: placed so that it ends at an inaccessible page nothing
 *   happens, one byte further it faults. What is only read does not fault on a read-only
 *   page, what is written does; what is only written does not depend on what was there.
 * - Registers and flags: only those said to be written change, and results do not depend on
 *   those said not to be read.
 * - Of what is decoded for its length only: it goes on behind the instruction.
 *
 * A processor may be newer than the decoder. What such a one runs and the decoder refuses is no
 * fault if the second opinion (Capstone) refuses it too; it is printed. What tells a newer
 * processor is a feature bit of CPUID that is not among those known here, so that on the processors
 * that are known the decoder has to have everything they run.
 */
#include "tests/lib/insn-cpu.h"
#include "format/cpu.h"
#include "format/error.h"
#include "insn/insn.h"
#include "tests/lib/oracle.h"
#include "tests/lib/random.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE	  4096UL
#define GUARD	  (ORACLE_MEM + ORACLE_MEM_SIZE)
#define MIDDLE	  (ORACLE_MEM + 4096)
#define FLAG_BITS (DJ_FLAGS_ARITH | DJ_FLAG_DF)

static uint64_t seed = 20240607;
static unsigned failures;
static insn_cpu_second *second;

/* ---- processors newer than the decoder ------------------------------------------------ */

#ifdef __x86_64__

/* Feature bits that say nothing new of the instructions tried here: those of instructions in the
 * decoder's tables or in the EVEX maps, of mitigations and of what is the operating system's (SDM
 * vol. 2A, CPUID; Architecture Instruction Set Extensions Programming Reference, table 1-2). */
static const struct {
	uint32_t sub, known[4]; /* of leaf 7: eax ebx ecx edx */
} features[] = {
	/* all but key locker (ecx 23) and reserved bits */
	{ 0, { ~0u, ~0u, ~(1u << 23), ~0x2210c3u } },
	/* eax: SHA512 SM3 SM4 RAO-INT AVX-VNNI AVX512-BF16 LASS CMPCCXADD ArchPerfmonExt,
	 * FZRM FSRS FSRCS, FRED LKGS WRMSRNS NMI_SRC AMX-FP16 HRESET AVX-IFMA, LAM MSRLIST,
	 * INVD_DISABLE; edx: AVX-VNNI-INT8 AVX-NE-CONVERT, AMX-COMPLEX, AVX-VNNI-INT16,
	 * UTMR PREFETCHI, UIRET_UIF CET_SSS AVX10, MWAIT */
	{ 1, { 0x4cfe1dffu, 0xfu, 0x3fu, 0x008e6530u } },
};

static bool newer_than_us(void)
{
	for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); i++) {
		uint32_t r[4] = { 0 };

		__get_cpuid_count(7, features[i].sub, &r[0], &r[1], &r[2], &r[3]);
		if (features[i].sub == 0)
			r[0] = 0; /* the number of subleaves */
		for (unsigned k = 0; k < 4; k++)
			if (r[k] & ~features[i].known[k])
				return true;
	}
	return false;
}

#else

static bool newer_than_us(void)
{
	return false;
}

#endif

/* ---- reporting: a few examples of each kind and instruction -------------------------- */

static void complain(const char *what, const struct insn *in, const uint8_t *code, unsigned n,
		     unsigned long detail)
{
	static struct {
		const char *what;
		unsigned id, n;
	} seen[400];
	unsigned i, key = in->id ? in->id : 1000u + in->map * 256u + in->opcode;

	failures++;
	for (i = 0; i < 400 && seen[i].what; i++)
		if (seen[i].what == what && seen[i].id == key)
			break;
	if (i == 400 || seen[i].n >= 2)
		return;
	seen[i].what = what;
	seen[i].id = key;
	seen[i].n++;
	fprintf(stderr, "insn: %s (%#lx): %s, %u bytes of memory:", what, detail,
		insn_id_name(in->id), in->mem_size);
	for (unsigned k = 0; k < n; k++)
		fprintf(stderr, " %02x", code[k]);
	fprintf(stderr, "\n");
}

/* ---- one run -------------------------------------------------------------------------- */

struct run {
	struct dj_regs in, out;
	uint8_t mem[ORACLE_MEM_SIZE];
	int sig;
};

static uint8_t memory[ORACLE_MEM_SIZE];

static void run(struct run *r, const uint8_t *code, unsigned n)
{
	memcpy(r->mem, memory, sizeof(memory));
	r->sig = oracle_cpu(code, n, &r->in, &r->out, r->mem);
}

/* Registers for which nearly every instruction does something and none does harm. */
static void make_regs(struct dj_regs *r, const struct insn *in)
{
	oracle_random_regs(r, &seed);
	for (int i = 0; i < 16; i++)
		if (in->attr & INSN_A_BITSTRING)
			r->gpr[i] = random_next(&seed) % 8;
	r->gpr[DJ_RSI] = ORACLE_MEM + 1024;
	r->gpr[DJ_RDI] = ORACLE_MEM + 2048;
	r->gpr[DJ_RSP] = ORACLE_MEM + 3072;
	r->gpr[DJ_RBP] = ORACLE_MEM + 3200;
	r->gpr[DJ_RBX] = MIDDLE;
	if (in->attr & INSN_A_STRING)
		r->gpr[DJ_RCX] = 5;
	if (in->id == INSN_DIV || in->id == INSN_IDIV)
		r->gpr[DJ_RDX] = 0;
	if (in->id == INSN_XLAT)
		r->gpr[DJ_RBX] = MIDDLE;
	if (in->id == INSN_RDPKRU) /* wants it so (SDM vol. 2B, RDPKRU) */
		r->gpr[DJ_RCX] = 0;
	/* masks that select everything */
	for (int i = 0; (in->attr & INSN_A_MASKED) && i < 16; i++)
		for (int k = 0; k < 32; k++)
			r->ymm[i][k] |= 0x80;
	r->rflags = 0x202 | (random_next(&seed) & DJ_FLAGS_ARITH);
}

/* ---- what is left out ----------------------------------------------------------------- */

static bool left_out(const struct insn *in)
{
	/* clang-format off */
	static const uint16_t ids[] = {
		/* change what the harness stands on, or trap by design */
		INSN_SYSCALL, INSN_INT3, INSN_WRFSBASE, INSN_WRGSBASE, INSN_WRPKRU, INSN_MOVSEG,
		INSN_POPSEG, INSN_XRSTOR, INSN_FXRSTOR, INSN_POPF, INSN_XABORT, INSN_XEND,
		INSN_UMWAIT, INSN_TPAUSE, INSN_SYSTEM, INSN_ENTER, INSN_XGETBV, INSN_RDPMC,
		/* write at an address in a register as well */
		INSN_MOVDIR64B, INSN_ENQCMD, INSN_CLZERO,
		/* size depends on the CPU's configuration */
		INSN_XSAVE, INSN_XSAVEC, INSN_XSAVEOPT,
		/* emulated by the kernel where the CPU forbids them to programs (UMIP) */
		INSN_SGDT, INSN_SIDT, INSN_SLDT, INSN_STR, INSN_SMSW,
		/* always raise SIGILL */
		INSN_UD,
		/* their lengths are all there is; check_length() */
		INSN_EVEX, INSN_XOP, INSN_AMD3DNOW,
	};
	/* clang-format on */

	if (in->attr & (INSN_A_BRANCH | INSN_A_PRIV))
		return true;
	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++)
		if (in->id == ids[i])
			return true;
	return false;
}

/* Instructions a CPU with AVX2 need not have. */
static bool may_be_missing(const struct insn *in)
{
	if (insn_lacked(in))
		return true;
	switch (in->id) {
	case INSN_AESENC:
	case INSN_AESENCLAST:
	case INSN_AESDEC:
	case INSN_AESDECLAST:
	case INSN_PCLMULQDQ:
	case INSN_RDRAND:
	case INSN_RDSEED:
	case INSN_RDPID:
	case INSN_RDPKRU:
	case INSN_XTEST:
	case INSN_PTWRITE:
	case INSN_CLDEMOTE:
	case INSN_MOVDIRI:
	case INSN_MOVDIR64B:
	case INSN_ENQCMD:
	case INSN_SERIALIZE:
	case INSN_UMONITOR:
	case INSN_INCSSP:
	case INSN_RDFSBASE:
	case INSN_RDGSBASE:
	case INSN_RDTSCP:
	case INSN_RDPMC:
	case INSN_AESIMC:
	case INSN_AESKEYGENASSIST:
	case INSN_FXSAVE:
		return true;
	}
	return false;
}

/* ---- memory operand ------------------------------------------------------------------- */

static int run_at(const struct insn *in, const uint8_t *code, uint64_t addr)
{
	static struct run r;

	make_regs(&r.in, in);
	r.in.gpr[DJ_RBX] = addr;
	run(&r, code, in->len);
	return r.sig == SIGSEGV || r.sig == SIGBUS;
}

static void check_memory(const struct insn *in, const uint8_t *code)
{
	const unsigned size = in->mem_size;
	/* the other operand may be a pointer, whose value is no index into this memory */
	if ((in->attr & INSN_A_BITSTRING) && in->reg >= DJ_RBX && in->reg <= DJ_RDI)
		return;
	/* clflush and its like want an address they could read */
	if (!(in->attr & INSN_A_NOACCESS) && run_at(in, code, GUARD - size))
		complain("faults before its end", in, code, in->len, size);
	/* misaligned operands raise #GP in some, which looks the same */
	bool any_address = size && !run_at(in, code, MIDDLE + 1);
	const unsigned read = insn_may_read_less(in) ? size - 8 : size; /* at the least */
	if (any_address && !run_at(in, code, GUARD - read + 1))
		complain("shorter than said", in, code, in->len, size);
	if (size > 16 && !run_at(in, code, GUARD - size + 16))
		complain("shorter than said", in, code, in->len, size);
	mprotect((void *)GUARD, PAGE, PROT_READ);
	bool writes = run_at(in, code, GUARD);
	mprotect((void *)GUARD, PAGE, PROT_NONE);
	if (writes != ((in->mem_access & INSN_W) != 0))
		complain(writes ? "writes memory" : "does not write memory", in, code, in->len, 0);
}

/* ---- registers ------------------------------------------------------------------------ */

static void vec_use(const struct insn *in, uint32_t *read, uint32_t *written)
{
	*read = *written = 0;
	for (unsigned i = 0; i < in->nopnd; i++) {
		if (in->opnd[i].kind != OPND_VEC)
			continue;
		if (in->opnd[i].access & INSN_R)
			*read |= 1u << in->opnd[i].reg;
		if (in->opnd[i].access & INSN_W) {
			*written |= 1u << in->opnd[i].reg;
			/* bytes beyond the operand stay */
			if (in->opnd[i].size < 16 || !in->vex)
				*read |= 1u << in->opnd[i].reg;
		}
	}
	if (in->id == INSN_PCMPESTRM || in->id == INSN_PCMPISTRM) {
		*written |= 1;
		*read |= !in->vex;
	}
	if (in->id == INSN_VZEROALL || in->id == INSN_VZEROUPPER)
		*read = *written = 0xffff;
}

/* Bytes of a vector operand that is written but not read, and so may not depend on what the
 * register held. */
static unsigned pure_bytes(const struct insn *in, unsigned reg)
{
	const struct insn_opnd *o = &in->opnd[0];

	for (unsigned i = 1; i < in->nopnd; i++)
		if (in->opnd[i].kind == OPND_VEC && in->opnd[i].reg == reg)
			return 0;
	if (o->kind == OPND_VEC && o->reg == reg && o->access == INSN_W)
		return o->size;
	return 0;
}

static void check_registers(const struct insn *in, const uint8_t *code)
{
	static struct run a, b;
	uint32_t vread, vwritten;
	const bool nondet = in->attr & INSN_A_NONDET;

	make_regs(&a.in, in);
	run(&a, code, in->len);
	if (a.sig)
		return;
	vec_use(in, &vread, &vwritten);
	for (int i = 0; i < 16; i++) {
		if (!(in->gpr_written & 1u << i) && a.in.gpr[i] != a.out.gpr[i])
			complain("register changes", in, code, in->len, (unsigned)i);
		if (!(vwritten & 1u << i) && memcmp(a.in.ymm[i], a.out.ymm[i], 32))
			complain("vector register changes", in, code, in->len, (unsigned)i);
	}
	uint64_t changed = (a.in.rflags ^ a.out.rflags) & FLAG_BITS & ~in->flags_written;
	if (changed)
		complain("flags change", in, code, in->len, changed);

	/* other values in all registers and flags not read */
	b.in = a.in;
	for (int i = 0; i < 16; i++) {
		if (!(in->gpr_read & 1u << i) && i != DJ_RSP)
			b.in.gpr[i] = random_next(&seed);
		if (!(vread & 1u << i))
			for (int k = 0; k < 32; k++)
				b.in.ymm[i][k] = (uint8_t)random_next(&seed);
		for (unsigned k = 0; k < pure_bytes(in, (unsigned)i); k++)
			b.in.ymm[i][k] = (uint8_t)random_next(&seed);
	}
	b.in.rflags ^= DJ_FLAGS_ARITH & ~in->flags_read;
	run(&b, code, in->len);
	if (b.sig) {
		complain("signal depends on what is not read", in, code, in->len, (unsigned)b.sig);
		return;
	}
	if (nondet)
		return;
	for (int i = 0; i < 16; i++) {
		if ((in->gpr_written & 1u << i) && a.out.gpr[i] != b.out.gpr[i])
			complain("register depends on what is not read", in, code, in->len,
				 (unsigned)i);
		if ((vwritten & 1u << i) && memcmp(a.out.ymm[i], b.out.ymm[i], 32))
			complain("vector depends on what is not read", in, code, in->len,
				 (unsigned)i);
	}
	changed = (a.out.rflags ^ b.out.rflags) & in->flags_written & ~in->flags_undefined;
	if (changed)
		complain("flags depend on what is not read", in, code, in->len, changed);
	changed = (b.in.rflags ^ b.out.rflags) & FLAG_BITS & ~in->flags_written;
	if (changed)
		complain("flags change", in, code, in->len, changed);
	if (!(in->attr & INSN_A_XSTATE) && memcmp(a.mem, b.mem, sizeof(a.mem)) &&
	    in->id != INSN_PUSHF)
		complain("memory depends on what is not read", in, code, in->len, 0);

	/* other values in a memory operand that is only written */
	if (in->mem_access == INSN_W && !(in->attr & INSN_A_XSTATE)) {
		uint8_t keep[64];
		uint8_t *at = memory + (MIDDLE - ORACLE_MEM);
		if (in->attr & INSN_A_MASKED)
			return;
		memcpy(keep, at, sizeof(keep));
		for (unsigned i = 0; i < in->mem_size; i++)
			at[i] ^= 0xff;
		run(&b, code, in->len);
		memcpy(at, keep, sizeof(keep));
		b.in = a.in;
		if (memcmp(a.mem, b.mem, sizeof(a.mem)))
			complain("does not write all of its operand", in, code, in->len, 0);
	}
}

/* ---- what is refused, and what is decoded for its length ------------------------------ */

/* VPCMPESTRM and VPCMPESTRI with W set, which processors of the Zen 1 generation run whatever third
 * register they name. */
static bool forgets_vvvv(const uint8_t *code)
{
	return code[0] == 0xc4 && (code[1] & 31) == 3 && (code[2] & 0x87) == 0x81 &&
	       (code[2] & 0x78) != 0x78 && (code[3] == 0x60 || code[3] == 0x61);
}

/* `prefixes`: how many bytes of mandatory prefixes there are. */
static void check_refused(struct run *r, const struct insn *in, const uint8_t *code,
			  unsigned prefixes)
{
	run(r, code, 24);
	if (r->sig == SIGILL)
		return;
	if (newer_than_us() && !second(code, 24, prefixes)) {
		static unsigned told;
		if (told++ < 8)
			fprintf(stderr,
				"insn: newer than the decoder: %02x %02x %02x %02x %02x %02x\n",
				code[0], code[1], code[2], code[3], code[4], code[5]);
		return;
	}
	if (dj_cpu_host() == DJ_CPU_AMD_KEEPS && forgets_vvvv(code))
		return;
	complain("refused, but the CPU runs it", in, code, 8, (unsigned)r->sig);
}

/* Of an opaque instruction the processor may know nothing. If it does, the next instruction that it
 * runs is the one behind. */
static void check_length(struct run *r, const struct insn *in, const uint8_t *code)
{
	/* loads random bytes as a tile configuration, and faults */
	bool may_fault = in->map == 2 && in->opcode == 0x49;

	run(r, code, in->len);
	if (r->sig && r->sig != SIGILL && !(may_fault && r->sig == SIGSEGV))
		complain("has another length", in, code, in->len, (unsigned)r->sig);
}

/* ---- going through the opcodes -------------------------------------------------------- */

/* `n`: bytes up to the modrm byte; `prefixes`: how many of them are mandatory prefixes. */
static void check(const uint8_t *bytes, unsigned n, unsigned prefixes)
{
	struct insn in;
	uint8_t code[32];
	int len = insn_decode(&in, bytes, INSN_MAX, ORACLE_CODE);
	static struct run r;

	memset(code, 0x90, sizeof(code));
	memcpy(code, bytes, len > 0 ? INSN_MAX : n);
	make_regs(&r.in, &in);
	if (len <= 0) {
		check_refused(&r, &in, code, prefixes);
		return;
	}
	if (in.vex && (in.id == INSN_EVEX || in.id == INSN_XOP)) {
		check_length(&r, &in, code);
		return;
	}
	if (left_out(&in))
		return;
	if (in.base == INSN_NOREG && in.has_mem)
		return; /* an absolute address, as in a0 .. a3 */
	if (in.id == INSN_LDMXCSR || in.id == INSN_VLDMXCSR)
		for (unsigned i = 0; i < sizeof(memory); i += 2)
			memcpy(memory + i, i & 2 ? "\0\0" : "\x80\x1f", 2);
	run(&r, code, in.len);
	if (r.sig == SIGILL) {
		if (!may_be_missing(&in))
			complain("the CPU refuses it", &in, code, in.len, 0);
		return;
	}
	if (in.has_mem && in.base == DJ_RBX)
		check_memory(&in, code);
	else if (r.sig && r.sig != SIGFPE)
		complain("unexpected signal", &in, code, in.len, (unsigned)r.sig);
	for (int i = 0; i < 2; i++)
		check_registers(&in, code);
}

static const uint8_t mandatory[6][2] = { { 0, 0 },    { 0x66, 0 },    { 0xf3, 0 },
					 { 0xf2, 0 }, { 0x66, 0xf3 }, { 0x66, 0xf2 } };

/* Operand bytes after the opcode: modrm and what may be immediates. */
static void put_tail(uint8_t *p, unsigned modrm)
{
	uint64_t x = random_next(&seed);

	p[0] = (uint8_t)modrm;
	memcpy(p + 1, &x, 8);
}

static void legacy(unsigned map, unsigned opcode, unsigned pre, bool w, unsigned modrm)
{
	static const uint8_t escapes[4][2] = { { 0 }, { 0x0f }, { 0x0f, 0x38 }, { 0x0f, 0x3a } };
	uint8_t b[32] = { 0 };
	unsigned n = 0, prefixes;

	for (unsigned i = 0; i < 2 && mandatory[pre][i]; i++)
		b[n++] = mandatory[pre][i];
	prefixes = n;
	if (w)
		b[n++] = 0x48;
	for (unsigned i = 0; i < 2 && escapes[map][i]; i++)
		b[n++] = escapes[map][i];
	b[n++] = (uint8_t)opcode;
	put_tail(b + n, modrm);
	check(b, n + 1, prefixes);
}

static void vex(unsigned map, unsigned opcode, unsigned pp, bool w, bool l, unsigned vvvv,
		unsigned modrm)
{
	uint8_t b[32] = { 0xc4, (uint8_t)(0xe0 | map),
			  (uint8_t)(w << 7 | (~vvvv & 15) << 3 | l << 2 | pp), (uint8_t)opcode };

	put_tail(b + 4, modrm);
	check(b, 5, 0);
}

static void setup(void)
{
	void *p = mmap((void *)GUARD, PAGE, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	DJ_ASSERT(p == (void *)GUARD || p == MAP_FAILED, "cannot map the guard page");
	for (unsigned i = 0; i < sizeof(memory); i++)
		memory[i] = (uint8_t)random_next(&seed);
}

/* Prefix bytes and the escapes are no opcodes. */
static bool is_opcode(unsigned map, unsigned op)
{
	if (map == 1)
		return op != 0x38 && op != 0x3a && op != 0x0f;
	if (map != 0)
		return true;
	switch (op) {
	case 0x0f:
	case 0x26:
	case 0x2e:
	case 0x36:
	case 0x3e:
	case 0x64:
	case 0x65:
	case 0x66:
	case 0x67:
	case 0xf0:
	case 0xf2:
	case 0xf3:
	case 0xc4:
	case 0xc5:
	case 0x62:
		return false;
	}
	return op < 0x40 || op > 0x4f;
}

/* A near branch over the MOV behind it, not taken or taken, to the end. Where a prefix makes it 16
 * bits wide it cannot arrive there, nor anywhere: the lowest pages are not mapped. */
static void branch(const uint8_t *prefix, unsigned prefixes, const uint8_t *opcode,
		   unsigned opcodes)
{
	static struct run r;
	struct insn in;
	uint8_t code[32] = { 0 };
	unsigned n = prefixes + opcodes;

	memcpy(code, prefix, prefixes);
	memcpy(code + prefixes, opcode, opcodes);
	int len = insn_decode(&in, code, INSN_MAX, ORACLE_CODE);
	if (len <= 0) {
		complain("a branch is refused", &in, code, n, 0);
		return;
	}
	if (in.imm_size && !(in.attr & INSN_A_RET))
		code[in.imm_off] = 2;
	code[len] = 0xb0; /* mov al, 0x77 */
	code[len + 1] = 0x77;
	for (unsigned k = 0; k < 4; k++) {
		uint64_t target = ORACLE_CODE + (unsigned)len + 2;
		make_regs(&r.in, &in);
		r.in.gpr[DJ_RAX] = 0x11;
		r.in.gpr[DJ_RCX] = k & 1 ? 2 : 1;
		r.in.rflags = 0x202 | (k & 2 ? DJ_FLAGS_ARITH & ~DJ_FLAG_OF : 0);
		if (in.attr & INSN_A_INDIRECT)
			r.in.gpr[DJ_RDX] = target;
		memcpy(memory + (r.in.gpr[DJ_RSP] - ORACLE_MEM), &target, 8);
		memcpy(memory + (MIDDLE - ORACLE_MEM), &target, 8);
		run(&r, code, (unsigned)len + 2);
		bool taken = (r.out.gpr[DJ_RAX] & 0xff) != 0x77, wide = !(in.attr & INSN_A_PRIV);
		if (!r.sig && (r.out.gpr[DJ_RAX] & 0xff) != 0x77 && r.out.gpr[DJ_RAX] != 0x11)
			complain("a branch has another length", &in, code, n, r.out.gpr[DJ_RAX]);
		else if (r.sig ? wide || r.sig != SIGSEGV : taken && !wide)
			complain("a branch has another width", &in, code, n, (unsigned)r.sig);
		else if (!r.sig && !(in.attr & INSN_A_COND) && !taken)
			complain("a branch is not taken", &in, code, n, 0);
	}
}

unsigned insn_cpu_branches(void)
{
	static const uint8_t prefixes[][4] = { { 0 },	       { 0x66 },       { 0x66, 0x48 },
					       { 0x48 },       { 0xf2 },       { 0xf3 },
					       { 0x66, 0x40 }, { 0x66, 0xf2 }, { 0x67, 0x66 },
					       { 0x48, 0x66 } };
	static const uint8_t opcodes[][2] = { { 0xe8 },	      { 0xe9 },	      { 0xeb },
					      { 0xe0 },	      { 0xe1 },	      { 0xe2 },
					      { 0xe3 },	      { 0xc3 },	      { 0xc2 },
					      { 0xff, 0xd2 }, { 0xff, 0xe2 }, { 0xff, 0x13 },
					      { 0xff, 0x23 } };

	setup();
	failures = 0;
	for (size_t p = 0; p < sizeof(prefixes) / sizeof(prefixes[0]); p++) {
		unsigned np = (unsigned)strlen((const char *)prefixes[p]);
		for (size_t o = 0; o < sizeof(opcodes) / sizeof(opcodes[0]); o++)
			branch(prefixes[p], np, opcodes[o], opcodes[o][1] ? 2 : 1);
		for (unsigned cc = 0; cc < 16; cc++) {
			branch(prefixes[p], np, (const uint8_t[]){ (uint8_t)(0x70 | cc) }, 1);
			branch(prefixes[p], np, (const uint8_t[]){ 0x0f, (uint8_t)(0x80 | cc) }, 2);
		}
	}
	return failures;
}

unsigned insn_cpu_legacy(insn_cpu_second *opinion)
{
	second = opinion;
	setup();
	failures = 0;
	for (unsigned map = 0; map < 4; map++) {
		for (unsigned op = 0; op < 256; op++) {
			if (!is_opcode(map, op))
				continue;
			for (unsigned pre = 0; pre < 6; pre++)
				for (unsigned w = 0; w < 2; w++)
					for (unsigned reg = 0; reg < 8; reg++) {
						legacy(map, op, pre, w, reg << 3 | 3);
						legacy(map, op, pre, w, 0xc0 | reg << 3 | 1);
					}
			/* opcodes that use all of modrm */
			if ((map == 0 && op >= 0xd8 && op <= 0xdf) ||
			    (map == 1 && (op == 0x01 || op == 0x1e || op == 0xae)))
				for (unsigned pre = 0; pre < 4; pre++)
					for (unsigned modrm = 0xc0; modrm < 0x100; modrm++)
						legacy(map, op, pre, false, modrm);
		}
	}
	return failures;
}

unsigned insn_cpu_vex(insn_cpu_second *opinion)
{
	second = opinion;
	setup();
	failures = 0;
	for (unsigned map = 1; map < 4; map++)
		for (unsigned op = 0; op < 256; op++)
			for (unsigned i = 0; i < 16 * 8; i++)
				for (unsigned v = 0; v < 2; v++) {
					unsigned vvvv =
						v ? 1 + (unsigned)random_next(&seed) % 15 : 0;
					unsigned reg = (i >> 4) << 3;
					vex(map, op, i & 3, i >> 2 & 1, i >> 3 & 1, vvvv, reg | 3);
					vex(map, op, i & 3, i >> 2 & 1, i >> 3 & 1, vvvv,
					    0xc0 | reg | 2);
				}
	return failures;
}
