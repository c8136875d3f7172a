/*
 * The instruction decoder against Capstone, over the code of installed programs and over
 * generated instructions: length, mnemonic, registers, memory operand, immediate.
 * Against the CPU: insn-cpu.c.
 *
 * Capstone 4 has faults of its own; those met are in the tables below, each with what the
 * SDM (and binutils, and the CPU) say instead.
 */
#include "format/error.h"
#include "insn/insn.h"
#include "tests/lib/insn-cpu.h"
#include "tests/lib/oracle.h"
#include "tests/lib/random.h"
#include "tests/lib/suites.h"

#include <capstone/capstone.h>
#include <elf.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static csh handle;
static cs_insn *theirs;
static unsigned failures;

/* ---- reporting ------------------------------------------------------------------------ */

static void complain(const char *what, const struct insn *in, int len, const uint8_t *p)
{
	static struct {
		char key[64];
		unsigned n;
	} seen[2000];
	char key[64];
	unsigned i;

	failures++;
	snprintf(key, sizeof(key), "%s/%s/%s", what, insn_id_name(in->id),
		 len > 0 ? theirs->mnemonic : "-");
	for (i = 0; i < 2000 && seen[i].n; i++)
		if (!strcmp(seen[i].key, key))
			break;
	if (i == 2000 || seen[i].n++ >= 2)
		return;
	strcpy(seen[i].key, key);
	fprintf(stderr, "insn: %s: ours %s (%d), Capstone %s %s (%d):", what, insn_id_name(in->id),
		in->id ? in->len : -1, len > 0 ? theirs->mnemonic : "(bad)",
		len > 0 ? theirs->op_str : "", len);
	for (int k = 0; k < INSN_MAX; k++)
		fprintf(stderr, " %02x", p[k]);
	fprintf(stderr, "\n");
}

/* ---- mnemonics ------------------------------------------------------------------------ */

static const char *const cond_names[16] = { "o", "no", "b", "ae", "e", "ne", "be", "a",
					    "s", "ns", "p", "np", "l", "ge", "le", "g" };

/* Our name (a VEX form's without v) and what Capstone writes; * stands for anything. */
/* clang-format off */
static const char *const aliases[][2] = {
	{"jrcxz", "jecxz"}, {"mov", "movabs"}, {"ud", "ud?*"}, {"prefetch", "prefetch*"},
	{"iret", "iret?"}, {"retf", "retf?"}, {"sysret", "sysret?"}, {"sysexit", "sysexit?"},
	{"cmpps", "*cmp*ps"}, {"cmppd", "*cmp*pd"}, {"cmpss", "*cmp*ss"}, {"cmpsd", "*cmp*sd"},
	{"fxsave", "fxsave64"}, {"fxrstor", "fxrstor64"}, {"xsave", "xsave64"},
	{"xsaveopt", "xsaveopt64"}, {"xsavec", "xsavec64"}, {"xsaves", "xsaves64"},
	{"xrstor", "xrstor64"}, {"xrstors", "xrstors64"},
	{"movq", "movd"}, /* with REX.W */
	{"cldemote", "nop"}, {"cvtpd2dq", "cvtpd2dq?"}, {"cvttpd2dq", "cvttpd2dq?"},
	{"cvtpd2ps", "cvtpd2ps?"}, {"int", "int1"}, {"fwait", "wait"}, {"shl", "sal"},
	{"pushf", "pushf?"}, {"popf", "popf?"}, {"xlat", "xlatb"},
	/* aliases of the 8087, see insn-table-x87.c */
	{"fnop", "f*_nop"}, {"fnop", "fsetpm"}, {"fstp", "fstpnce"},
};
/* clang-format on */

/* vfmadd213sd is our vfmaddsd. */
static bool fma_without_order(const char *want, const char *cs)
{
	size_t letters = strcspn(cs, "12");

	return !strncmp(cs, "vf", 2) && cs[letters] && !strncmp(want, cs, letters) &&
	       !strcmp(want + letters, cs + letters + 3);
}

static bool same_mnemonic(const struct insn *in)
{
	const char *name = insn_id_name(in->id), *cs = theirs->mnemonic, *space;
	char want[40];

	while ((space = strchr(cs, ' '))) /* rep, lock ... */
		cs = space + 1;
	switch (in->id) {
	case INSN_JCC:
		snprintf(want, sizeof(want), "j%s", cond_names[in->cond]);
		break;
	case INSN_SETCC:
		snprintf(want, sizeof(want), "set%s", cond_names[in->cond]);
		break;
	case INSN_CMOVCC:
		snprintf(want, sizeof(want), "cmov%s", cond_names[in->cond]);
		break;
	case INSN_MOVS:
	case INSN_STOS:
	case INSN_LODS:
	case INSN_CMPS:
	case INSN_SCAS:
	case INSN_INS:
	case INSN_OUTS:
		snprintf(want, sizeof(want), "%s%c", name, " bw d   q"[in->opsize]);
		break;
	default:
		snprintf(want, sizeof(want), "%s", name);
		if (in->vex && cs[0] == 'v')
			cs += name[0] != 'v';
	}
	/* what decides is F3 before REX.B and REX.W (the CPU agrees) */
	if (in->rep == 0xf3 && in->rex && (in->id == INSN_PAUSE || in->id == INSN_MOVQ))
		return true;
	/* and 66 before REX.W, which Capstone takes for xsaveopt64 (the CPU does not) */
	if (in->id == INSN_CLWB && (in->rex & 8) && !strcmp(cs, "xsaveopt64"))
		return true;
	if (!strcmp(want, cs) || fma_without_order(want, cs))
		return true;
	for (size_t i = 0; i < sizeof(aliases) / sizeof(aliases[0]); i++)
		if (!strcmp(aliases[i][0], name) && !fnmatch(aliases[i][1], cs, 0))
			return true;
	return false;
}

/* ---- operands ------------------------------------------------------------------------- */

/* Capstone's registers as ours: kind, number, size. */
struct cs_reg {
	uint8_t kind, reg, size;
};
static struct cs_reg reg_map[X86_REG_ENDING];

static void map_regs(void)
{
	/* clang-format off */
	static const x86_reg gpr[4][16] = {
		{X86_REG_AL, X86_REG_CL, X86_REG_DL, X86_REG_BL, X86_REG_SPL, X86_REG_BPL,
		 X86_REG_SIL, X86_REG_DIL, X86_REG_R8B, X86_REG_R9B, X86_REG_R10B, X86_REG_R11B,
		 X86_REG_R12B, X86_REG_R13B, X86_REG_R14B, X86_REG_R15B},
		{X86_REG_AX, X86_REG_CX, X86_REG_DX, X86_REG_BX, X86_REG_SP, X86_REG_BP,
		 X86_REG_SI, X86_REG_DI, X86_REG_R8W, X86_REG_R9W, X86_REG_R10W, X86_REG_R11W,
		 X86_REG_R12W, X86_REG_R13W, X86_REG_R14W, X86_REG_R15W},
		{X86_REG_EAX, X86_REG_ECX, X86_REG_EDX, X86_REG_EBX, X86_REG_ESP, X86_REG_EBP,
		 X86_REG_ESI, X86_REG_EDI, X86_REG_R8D, X86_REG_R9D, X86_REG_R10D, X86_REG_R11D,
		 X86_REG_R12D, X86_REG_R13D, X86_REG_R14D, X86_REG_R15D},
		{X86_REG_RAX, X86_REG_RCX, X86_REG_RDX, X86_REG_RBX, X86_REG_RSP, X86_REG_RBP,
		 X86_REG_RSI, X86_REG_RDI, X86_REG_R8, X86_REG_R9, X86_REG_R10, X86_REG_R11,
		 X86_REG_R12, X86_REG_R13, X86_REG_R14, X86_REG_R15}};
	static const x86_reg high[4] = {X86_REG_AH, X86_REG_CH, X86_REG_DH, X86_REG_BH};
	static const x86_reg segs[6] = {X86_REG_ES, X86_REG_CS, X86_REG_SS,
					X86_REG_DS, X86_REG_FS, X86_REG_GS};

	for (unsigned s = 0; s < 4; s++)
		for (unsigned i = 0; i < 16; i++)
			reg_map[gpr[s][i]] = (struct cs_reg){OPND_GPR, i, 1 << s};
	for (unsigned i = 0; i < 4; i++)
		reg_map[high[i]] = (struct cs_reg){OPND_GPR8H, i, 1};
	for (unsigned i = 0; i < 6; i++)
		reg_map[segs[i]] = (struct cs_reg){OPND_SEG, i, 2};
	for (unsigned i = 0; i < 16; i++) {
		reg_map[X86_REG_XMM0 + i] = (struct cs_reg){OPND_VEC, i, 16};
		reg_map[X86_REG_YMM0 + i] = (struct cs_reg){OPND_VEC, i, 32};
		reg_map[X86_REG_CR0 + i] = (struct cs_reg){OPND_CR, i, 8};
		reg_map[X86_REG_DR0 + i] = (struct cs_reg){OPND_CR, i, 8};
	}
	for (unsigned i = 0; i < 8; i++) {
		reg_map[X86_REG_MM0 + i] = (struct cs_reg){OPND_MMX, i, 8};
		reg_map[X86_REG_ST0 + i] = (struct cs_reg){OPND_X87, i, 10};
		reg_map[X86_REG_K0 + i] = (struct cs_reg){OPND_CR, i, 8};
	}
}

static unsigned address_reg(x86_reg r)
{
	if (r == X86_REG_INVALID || r == X86_REG_RIZ || r == X86_REG_EIZ)
		return INSN_NOREG;
	if (r == X86_REG_RIP || r == X86_REG_EIP)
		return INSN_RIP;
	return reg_map[r].reg;
}

static bool same_memory(const struct insn *in, const cs_x86_op *op)
{
	if (address_reg(op->mem.base) != in->base || address_reg(op->mem.index) != in->index)
		return false;
	if (in->index != INSN_NOREG && op->mem.scale != in->scale)
		return false;
	if (op->mem.disp != in->disp &&
	    !(in->addr32 && (uint32_t)op->mem.disp == (uint32_t)in->disp))
		return false;
	/* after fs or gs, the other four are ignored (SDM vol. 1, 3.3.7.1; so does the CPU) */
	if (op->mem.segment != X86_REG_INVALID && op->mem.segment < X86_REG_FS)
		return true;
	if (op->mem.segment == X86_REG_FS || op->mem.segment == X86_REG_GS)
		return in->seg == (op->mem.segment == X86_REG_FS ? 4 : 5);
	return in->seg == 0;
}

static uint64_t mask_of(unsigned size)
{
	return size >= 8 ? ~0ULL : (1ULL << 8 * size) - 1;
}

static bool same_imm(const struct insn *in, const struct insn_opnd *o, int64_t imm)
{
	/* Capstone zero-extends to the operand's size in some and sign-extends in others */
	return !(((uint64_t)imm ^ (uint64_t)in->imm) & mask_of(o->size)) ||
	       (uint8_t)imm == in->imm2;
}

/* What Capstone gives another length. */
static bool odd_length(const struct insn *in)
{
	/* ud0 and ud1 have a modrm byte (SDM vol. 2B, UD) */
	if (in->id == INSN_UD)
		return true;
	/* 66 does not make near branches 16 bits wide on Intel's CPUs (SDM vol. 2A, CALL,
	 * Jcc, JMP) */
	if (in->id == INSN_JMP || in->id == INSN_CALL || in->id == INSN_JCC)
		return in->opsize16;
	/* ret's immediate has 16 bits, whatever the prefixes */
	return in->id == INSN_RET && in->opcode == 0xc2;
}

static const char *compare_operands(const struct insn *in)
{
	const cs_x86 *x = &theirs->detail->x86;
	unsigned k = 0;

	/* F3 REX.W 0F 7E is movq of an xmm register, but Capstone's is movd of an mm register */
	if (in->id == INSN_MOVQ && in->rep && (in->rex & 8))
		return NULL;
	/* Capstone leaves out st(0) here and there; xchg's operands are in either order */
	if (((in->attr & INSN_A_X87) && !in->has_mem) || in->id == INSN_XCHG)
		return NULL;

	for (unsigned i = 0; i < x->op_count; i++) {
		const cs_x86_op *op = &x->operands[i];
		const struct insn_opnd *o;
		/* string instructions' and other implicit operands are not explicit ours */
		if (k >= in->nopnd)
			return NULL;
		o = &in->opnd[k++];
		switch (op->type) {
		case X86_OP_REG:
			if (reg_map[op->reg].kind != o->kind || reg_map[op->reg].reg != o->reg)
				return "register";
			/* of the general register moved to a segment register 16 bits count */
			if (in->id == INSN_MOVSEG)
				break;
			/* 32 bits here, REX.W or not: the rest is 0 either way */
			if (in->id == INSN_MOVMSKPS || in->id == INSN_MOVMSKPD ||
			    in->id == INSN_PMOVMSKB)
				break;
			/* without REX.W a 32-bit destination (SDM vol. 2B, MOVSXD) */
			if (in->id == INSN_MOVSXD || in->id == INSN_LAR || in->id == INSN_LSL)
				break;
			/* ports have 32 bits at most, REX.W or not */
			if (in->id == INSN_IN || in->id == INSN_OUT)
				break;
			if (o->kind == OPND_GPR && reg_map[op->reg].size != o->size)
				return "register size";
			break;
		case X86_OP_MEM:
			if (o->kind != OPND_MEM && o->kind != OPND_VSIB)
				return "memory operand for another";
			if (!same_memory(in, op))
				return "memory operand";
			break;
		case X86_OP_IMM:
			if (o->kind == OPND_REL && op->imm != in->imm && !odd_length(in))
				return "branch target";
			if (o->kind == OPND_IMM && !same_imm(in, o, op->imm))
				return "immediate";
			break;
		default:
			break;
		}
	}
	/* Capstone has xmm0 implicit, and immediates as part of cmpltps and its like */
	if (k + 1 == in->nopnd &&
	    (in->opnd[k].kind == OPND_VEC || (in->id >= INSN_CMPPS && in->id <= INSN_CMPSDX)))
		return NULL;
	return k < in->nopnd ? "fewer operands" : NULL;
}

/* ---- one instruction ------------------------------------------------------------------ */

/* Decoded for their length only, or not known to Capstone 4. */
static bool opaque(const struct insn *in)
{
	return in->id == INSN_EVEX || in->id == INSN_XOP || in->id == INSN_AMD3DNOW ||
	       in->id == INSN_SYSTEM || in->id == INSN_RDPID || in->id == INSN_PTWRITE ||
	       in->id == INSN_UMONITOR || in->id == INSN_UMWAIT || in->id == INSN_TPAUSE ||
	       in->id == INSN_INCSSP;
}

static int compare(const uint8_t *p, size_t n, uint64_t addr)
{
	struct insn in;
	/* Capstone goes by Intel's manual more often than not */
	int len = insn_decode_as(DJ_CPU_INTEL, &in, p, n, addr), cslen;
	const uint8_t *at = p;
	size_t left = n < INSN_MAX ? n : INSN_MAX;
	uint64_t cs_addr = addr;
	const char *what;

	cslen = cs_disasm_iter(handle, &at, &left, &cs_addr, theirs) ? theirs->size : -1;
	/* Capstone accepts prefixes that the CPU does not; see insn-cpu.c for that */
	if (len <= 0 || cslen <= 0)
		return len;
	if (len != cslen && !odd_length(&in))
		complain("length", &in, cslen, p);
	if (opaque(&in) || len != cslen)
		return len;
	if (!same_mnemonic(&in))
		complain("mnemonic", &in, cslen, p);
	if ((what = compare_operands(&in)) != NULL)
		complain(what, &in, cslen, p);
	return len;
}

/* ---- where instructions come from ----------------------------------------------------- */

struct code {
	const uint8_t *bytes;
	size_t n;
	uint64_t addr;
};

/* The .text section of an ELF file; the mapping stays. */
static bool text_of(const char *path, struct code *c)
{
	int fd = open(path, O_RDONLY);
	struct stat st;
	const Elf64_Ehdr *eh;
	const Elf64_Shdr *sh;
	const char *names;
	uint8_t *m;

	if (fd < 0)
		return false;
	fstat(fd, &st);
	m = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (m == MAP_FAILED)
		return false;
	eh = (const Elf64_Ehdr *)m;
	if (memcmp(eh->e_ident, ELFMAG, SELFMAG) || eh->e_machine != EM_X86_64)
		return false;
	sh = (const Elf64_Shdr *)(m + eh->e_shoff);
	names = (const char *)m + sh[eh->e_shstrndx].sh_offset;
	for (unsigned i = 0; i < eh->e_shnum; i++) {
		if (strcmp(names + sh[i].sh_name, ".text"))
			continue;
		*c = (struct code){m + sh[i].sh_offset, sh[i].sh_size, sh[i].sh_addr};
		return true;
	}
	return false;
}

static const char *const programs[] = {
	"/bin/bash", "/lib/x86_64-linux-gnu/libc.so.6", "/lib/x86_64-linux-gnu/libcrypto.so.3",
	"/lib/x86_64-linux-gnu/libm.so.6", "/usr/bin/python3", "/proc/self/exe",
};

static void test_programs(void)
{
	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
		struct code c;
		if (!text_of(programs[i], &c))
			continue;
		for (size_t o = 0; o < c.n;) {
			int len = compare(c.bytes + o, c.n - o, c.addr + o);
			o += len > 0 ? (size_t)len : 1;
		}
	}
	CU_ASSERT_EQUAL(failures, 0);
}

/* Prefix or escape. */
static bool is_prefix(uint8_t b)
{
	return (b & 0xf0) == 0x40 ||
	       (b && memchr("\x0f\x26\x2e\x36\x3e\x64\x65\x66\x67\xf0\xf2\xf3", b, 12));
}

/* An instruction with random prefixes, opcode, modrm, sib and the rest. */
static void random_insn(uint8_t *b, uint64_t *seed)
{
	/* One prefix of each kind, the mandatory one last, no REX.W after 67:
	 * of the rest Capstone makes what no CPU does. */
	static const uint8_t prefixes[3][4] = {
		{0x67, 0, 0, 0}, {0x64, 0x65, 0, 0}, {0x66, 0xf2, 0xf3, 0}};
	uint64_t x = random_next(seed);
	unsigned n = 0, map = x & 3;

	for (unsigned i = 0; i < 24; i++)
		b[i] = (uint8_t)random_next(seed);
	x >>= 2;
	for (unsigned i = 0; i < 3; i++, x >>= 2)
		if (prefixes[i][x & 3])
			b[n++] = prefixes[i][x & 3];
	if (x & 1)
		b[n++] = (uint8_t)(0x40 | (x >> 1 & (b[0] == 0x67 ? 7 : 15)));
	x >>= 5;
	while (!map && is_prefix(b[n]))
		b[n] = (uint8_t)random_next(seed);
	if (map)
		b[n++] = 0x0f;
	if (map > 1)
		b[n++] = map == 2 ? 0x38 : 0x3a;
}

static void random_vex(uint8_t *b, uint64_t *seed)
{
	uint64_t x = random_next(seed);
	unsigned n = 0;

	for (unsigned i = 0; i < 24; i++)
		b[i] = (uint8_t)random_next(seed);
	if (x & 1)
		b[n++] = 0x67;
	b[n++] = 0xc4;
	b[n] = (uint8_t)((b[n] & 0xe0) | (1 + (x >> 1) % 3));
	n++;
	if (x >> 32 & 1)
		b[n] |= 0x78;
}

static void test_random(void)
{
	uint64_t seed = 4711;
	uint8_t b[24];

	failures = 0;
	for (unsigned i = 0; i < 300000; i++) {
		random_insn(b, &seed);
		compare(b, sizeof(b), 0x7f0012345678 + i * 16);
		random_vex(b, &seed);
		compare(b, sizeof(b), 0x7f0012345678 + i * 16);
	}
	CU_ASSERT_EQUAL(failures, 0);
}

/* With the last byte missing the answer is "too few"; nothing beyond `avail` counts. */
static void test_short(void)
{
	uint64_t seed = 4712;
	uint8_t b[24];
	struct insn in, part;

	for (unsigned i = 0; i < 100000; i++) {
		random_insn(b, &seed);
		enum dj_cpu_kind cpu = i & 1 ? DJ_CPU_AMD : DJ_CPU_INTEL;
		int len = insn_decode_as(cpu, &in, b, sizeof(b), 0);
		if (len <= 0)
			continue;
		for (int k = 0; k < len; k++)
			CU_ASSERT_EQUAL_FATAL(insn_decode_as(cpu, &part, b, (size_t)k, 0), 0);
		CU_ASSERT_EQUAL_FATAL(insn_decode_as(cpu, &part, b, (size_t)len, 0), len);
		CU_ASSERT_EQUAL_FATAL(memcmp(&in, &part, sizeof(in)), 0);
	}
}

/* ---- EVEX and XOP, against objdump, which knows more of them than Capstone 4 -------------- */

#define SLOT 16 /* bytes for an instruction; what is left is filled with nop */

/* EVEX: each opcode with each prefix, W, length of vectors and bit b, of [rax + 0x7f] and of [rdx + x*4 -
 * 0x7f], x being r10 or xmm26 and its like, with a mask. XOP: each opcode with W and L. */
static size_t make_slots(uint8_t *code)
{
	static const uint8_t evex_maps[] = { 1, 2, 3, 5, 6 };
	size_t n = 0;

	for (unsigned m = 0; m < 5; m++)
		for (unsigned i = 0; i < 256 * 4 * 2 * 2 * 3 * 2; i++) {
			const unsigned sib = i >> 12 & 1, l = i >> 13;
			const uint8_t insn[] = { 0x62,
						 (uint8_t)((sib ? 0xb0 : 0xf0) | evex_maps[m]),
						 (uint8_t)(0x7c | (i >> 10 & 1) << 7 | (i >> 8 & 3)),
						 (uint8_t)(l << 5 | (i >> 11 & 1) << 4 | (sib ? 1 : 8)),
						 (uint8_t)i,
						 sib ? 0x44 : 0x40,
						 sib ? 0x92 : 0x7f,
						 0x81 };
			memset(code + n, 0x90, SLOT);
			memcpy(code + n, insn, sib ? 8 : 7);
			n += SLOT;
		}
	for (unsigned i = 0; i < 3 * 256 * 2 * 2; i++, n += SLOT) {
		const uint8_t insn[] = { 0x8f,
					 (uint8_t)(0xe0 | (8 + (i >> 10))),
					 (uint8_t)(0x78 | (i >> 8 & 1) << 7 | (i >> 9 & 1) << 2),
					 (uint8_t)i,
					 0x40,
					 0x7f };
		memset(code + n, 0x90, SLOT);
		memcpy(code + n, insn, sizeof(insn));
	}
	return n;
}

static unsigned size_word(const char *text)
{
	static const struct {
		const char *word;
		unsigned size;
	} words[] = { { " ZMMWORD ", 64 }, { ",ZMMWORD ", 64 }, { " YMMWORD ", 32 }, { ",YMMWORD ", 32 },
		      { " XMMWORD ", 16 }, { ",XMMWORD ", 16 }, { " QWORD ", 8 },    { ",QWORD ", 8 },
		      { " DWORD ", 4 },	   { ",DWORD ", 4 },	{ " WORD ", 2 },     { ",WORD ", 2 },
		      { " BYTE ", 1 },	   { ",BYTE ", 1 } };

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strstr(text, words[i].word))
			return words[i].size;
	return 0;
}

/* Of words there are no copies of one for all (SDM vol. 2C, VDBPSADBW, VPSHLD, VPSHRD). */
static bool nonsense(const char *text)
{
	return strstr(text, "BCST") && (strstr(text, "vdbpsadbw") || strstr(text, "vpshldw") ||
					strstr(text, "vpshrdw"));
}

/* What is wrong with our idea of an instruction of which objdump says this; NULL: nothing. */
static const char *compare_text(const uint8_t *code, const char *text)
{
	const char *memory = strchr(text, '['), *comma = strchr(text, ','), *x = strchr(memory, '*');
	const char *offset = strpbrk(memory, "+-]");
	char base[8], index[16] = "";
	struct insn in;
	int64_t disp = 0;

	if (insn_decode_as(code[0] == 0x8f ? DJ_CPU_AMD : DJ_CPU_INTEL, &in, code, SLOT, 0) <= 0)
		return "no instruction";
	sscanf(memory, "[%3[a-z]", base);
	if (strcmp(base, in.base == 0 ? "rax" : in.base == 2 ? "rdx" : ""))
		return "base";
	if (x)
		sscanf(offset + 1, "%15[a-z0-9]", index);
	const bool vsib = in.nopnd && in.opnd[0].kind == OPND_VSIB;
	char want[16] = "";
	if (vsib)
		snprintf(want, sizeof(want), "%cmm%u",
			 in.opnd[0].size == 64	 ? 'z'
			 : in.opnd[0].size == 32 ? 'y'
						 : 'x',
			 in.index);
	else if (in.index != INSN_NOREG)
		snprintf(want, sizeof(want), "r%u", in.index);
	if (strcmp(index, want))
		return "index";
	if (x)
		offset = strpbrk(x, "+-]");
	if (*offset != ']')
		disp = strtol(offset, NULL, 0);
	if (disp != in.disp)
		return "displacement";
	if (!in.mem_access)
		return strncmp(text, "vgatherpf", 9) && strncmp(text, "vscatterpf", 10) ? "access" : NULL;
	if ((in.mem_access == INSN_W) != (comma > memory))
		return "read or written";
	return in.mem_size == size_word(text) ? NULL : "size";
}

static void test_memory_operands(void)
{
	static uint8_t code[1u << 20 << 1];
	char name[] = "/tmp/deja-insn.XXXXXX", line[400], command[200], text[300];
	unsigned evex = 0, xop = 0, stores = 0;
	unsigned long addr;
	int fd = mkstemp(name);
	const size_t n = make_slots(code);

	failures = 0;
	CU_ASSERT_FATAL(n <= sizeof(code) && fd >= 0 && write(fd, code, n) == (ssize_t)n);
	close(fd);
	snprintf(command, sizeof(command),
		 "objdump -D -z -b binary -m i386:x86-64 -M intel --no-show-raw-insn %s", name);
	FILE *f = popen(command, "r");
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, " %lx: %299[^\n#]", &addr, text) != 2 || addr % SLOT || addr >= n ||
		    strstr(text, "bad") || !strchr(text, '[') || nonsense(text))
			continue;
		const char *what = compare_text(code + addr, text);
		if (what && failures++ < 30)
			fprintf(stderr, "insn: %s of %s\n", what, text);
		*(code[addr] == 0x62 ? &evex : &xop) += 1;
		stores += strchr(text, ',') > strchr(text, '[');
	}
	if (f)
		pclose(f);
	unlink(name);
	CU_ASSERT_EQUAL(failures, 0);
	CU_ASSERT(evex > 4000 && xop > 70 && stores > 200);
	printf("(%u and %u, %u of them stores) ", evex, xop, stores);
}

/* What the two kinds of processors decode differently: whatever this runs on, both are known. */
static void test_kinds(void)
{
	struct row {
		uint8_t bytes[INSN_MAX];
		struct {
			int len;
			uint16_t id, mem_size;
			bool emulated;
		} as[2]; /* by enum dj_cpu_kind */
	};
	/* clang-format on */
	static const struct row rows[] = {
		{ { 0x66, 0x63, 0x03 },
		  { { 3, INSN_MOVSXD, 2, true }, { 3, INSN_MOVSXD, 4, true } } },
		{ { 0x0f, 0x0d, 0xc1 },
		  { { 3, INSN_NOP, 0, true }, { -1, INSN_INVALID, 0, false } } },
		{ { 0xf3, 0x0f, 0x2b, 0x03 },
		  { { -1, INSN_INVALID, 0, false }, { 4, INSN_MOVNTSS, 4, false } } },
		{ { 0x66, 0x0f, 0x78, 0xc1, 5, 6 },
		  { { -1, INSN_INVALID, 0, false }, { 6, INSN_EXTRQ, 0, false } } },
		{ { 0xf2, 0x0f, 0x79, 0xc1 },
		  { { -1, INSN_INVALID, 0, false }, { 4, INSN_INSERTQ, 0, false } } },
		{ { 0xc4, 0xe3, 0x7d, 0x00, 0x03, 7 },
		  { { -1, INSN_INVALID, 0, false }, { 6, INSN_VPERMQ, 32, true } } },
		{ { 0xf3, 0x41, 0x90 }, { { 3, INSN_PAUSE, 0, true }, { 3, INSN_XCHG, 0, true } } },
		{ { 0xf3, 0x90 }, { { 2, INSN_PAUSE, 0, true }, { 2, INSN_PAUSE, 0, true } } },
		{ { 0xf3, 0xe0, 2 }, { { 3, INSN_LOOPNE, 0, true }, { 3, INSN_LOOPE, 0, true } } },
		{ { 0xf2, 0xe1, 2 }, { { 3, INSN_LOOPE, 0, true }, { 3, INSN_LOOPNE, 0, true } } },
		{ { 0x66, 0xe8, 1, 2 }, { { 6, INSN_CALL, 0, true }, { 4, INSN_CALL, 0, false } } },
		{ { 0x66, 0x48, 0xe8, 1, 2 },
		  { { 7, INSN_CALL, 0, true }, { 7, INSN_CALL, 0, true } } },
		{ { 0x66, 0x0f, 0x84, 1 },
		  { { 7, INSN_JCC, 0, true }, { 5, INSN_JCC, 0, false } } },
		{ { 0x66, 0xc3 }, { { 2, INSN_RET, 0, true }, { 2, INSN_RET, 0, false } } },
		{ { 0x66, 0xff, 0x23 }, { { 3, INSN_JMP, 8, true }, { 3, INSN_JMP, 2, false } } },
		{ { 0x48, 0x0f, 0xb5, 0x03 },
		  { { 4, INSN_LGS, 10, false }, { 4, INSN_LGS, 6, false } } },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		for (unsigned cpu = 0; cpu < 2; cpu++) {
			const struct row *r = &rows[i];
			struct insn in;
			int len = insn_decode_as(cpu, &in, r->bytes, INSN_MAX, 0x1000);
			bool same = len == r->as[cpu].len && in.id == r->as[cpu].id &&
				    in.cpu == cpu && in.mem_size == r->as[cpu].mem_size &&
				    (len < 0 || insn_is_emulated(&in) == r->as[cpu].emulated);
			if (!same)
				fprintf(stderr, "insn: row %zu as %u: %s, %d bytes, memory %u\n", i,
					cpu, insn_id_name(in.id), len, in.mem_size);
			CU_ASSERT(same);
		}
}

static void test_speed(void)
{
	struct code c;
	struct insn in;
	struct timespec t0, t1;
	size_t count = 0;

	if (!text_of("/bin/bash", &c))
		return;
	clock_gettime(CLOCK_MONOTONIC, &t0);
	for (size_t o = 0; o < c.n; count++) {
		int len = insn_decode(&in, c.bytes + o, c.n - o, c.addr + o);
		o += len > 0 ? (size_t)len : 1;
	}
	clock_gettime(CLOCK_MONOTONIC, &t1);
	printf("%.0f ns per instruction ",
	       ((double)(t1.tv_sec - t0.tv_sec) * 1e9 + (double)(t1.tv_nsec - t0.tv_nsec)) /
		       (double)count);
}

/* Capstone as the second opinion; it passes over prefixes that it does not know to matter. */
static bool capstone_knows(const uint8_t *code, unsigned n, unsigned prefixes)
{
	const uint8_t *at = code;
	size_t left = n;
	uint64_t addr = 0x1000;
	char operands[sizeof(theirs->op_str)];
	unsigned id;

	if (!cs_disasm_iter(handle, &at, &left, &addr, theirs))
		return false;
	if (!prefixes)
		return true;
	id = theirs->id;
	memcpy(operands, theirs->op_str, sizeof(operands));
	at = code + prefixes;
	left = n - prefixes;
	addr = 0x1000;
	return !cs_disasm_iter(handle, &at, &left, &addr, theirs) || theirs->id != id ||
	       strcmp(theirs->op_str, operands);
}

static void test_cpu_legacy(void)
{
	if (oracle_available())
		CU_ASSERT_EQUAL(insn_cpu_legacy(capstone_knows), 0);
}

static void test_cpu_vex(void)
{
	if (oracle_available())
		CU_ASSERT_EQUAL(insn_cpu_vex(capstone_knows), 0);
}

static void test_cpu_branches(void)
{
	if (oracle_available())
		CU_ASSERT_EQUAL(insn_cpu_branches(), 0);
}

int main(void)
{
	CU_pSuite s;

	DJ_ASSERT(cs_open(CS_ARCH_X86, CS_MODE_64, &handle) == CS_ERR_OK, "no Capstone");
	cs_option(handle, CS_OPT_DETAIL, CS_OPT_ON);
	theirs = cs_malloc(handle);
	map_regs();
	suites_begin();
	s = CU_add_suite("insn", NULL, NULL);
	CU_add_test(s, "programs, against Capstone", test_programs);
	CU_add_test(s, "random instructions, against Capstone", test_random);
	CU_add_test(s, "memory operands of EVEX and XOP, against objdump", test_memory_operands);
	CU_add_test(s, "truncated instructions", test_short);
	CU_add_test(s, "legacy opcodes, against the CPU", test_cpu_legacy);
	CU_add_test(s, "VEX opcodes, against the CPU", test_cpu_vex);
	CU_add_test(s, "near branches under prefixes, against the CPU", test_cpu_branches);
	CU_add_test(s, "what processors decode differently", test_kinds);
	CU_add_test(s, "speed", test_speed);
	return suites_run();
}
