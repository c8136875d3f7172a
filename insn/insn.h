/*
 * x86-64 instructions, decoded: what the recorder's translator and the replayer's emulator
 * must agree on.
 *
 * insn_decode() reads one 64-bit-mode instruction and fills in everything either side wants:
 * where its bytes are (to re-encode it), its operands with sizes and access, its memory
 * operand, its implicit register use and its flags. The facts come from one table row per
 * opcode (insn-table*.c), after Intel's SDM volume 2 and, where AMD's processors differ, the
 * AMD64 APM volume 3. Capstone disassembles for people and
 * is the tests' second opinion.
 *
 * Legacy-SSE and VEX forms of an instruction share an id (paddd and vpaddd are both
 * INSN_PADDD; `vex` tells them apart), so do the widths; Jcc, SETcc and CMOVcc are one id
 * each with `cond`. Instructions that exist only in VEX form have their own mnemonic
 * (INSN_VBROADCASTSS). An EVEX prefix decodes to id INSN_EVEX with length and memory operand right
 * (as large as it is without a mask); so does XOP to INSN_XOP.
 */
#ifndef DEJA_INSN_INSN_H
#define DEJA_INSN_INSN_H

#include "format/cpu.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "insn/insn-ids.h" /* enum insn_id { INSN_INVALID = 0, INSN_ADD, ... } */

#define INSN_MAX   15
#define INSN_NOREG 16
#define INSN_RIP   17 /* as a base */

enum insn_opnd_kind {
	OPND_NONE,
	OPND_GPR,   /* reg 0..15, size 1 2 4 8 (size 1: the low byte) */
	OPND_GPR8H, /* reg 0..3: ah ch dh bh */
	OPND_VEC,   /* xmm/ymm reg 0..15; size = bytes of it that take part */
	OPND_MMX,   /* mm0..7 */
	OPND_X87,   /* st(reg) */
	OPND_SEG,   /* segment register 0..5: es cs ss ds fs gs */
	OPND_CR,    /* control or debug register */
	OPND_MEM,   /* the instruction's memory operand; size in bytes */
	OPND_IMM,   /* the immediate `imm` (sign-extended as the instruction does) */
	OPND_REL,   /* branch target: absolute address in `imm` */
	OPND_VSIB,  /* gather's or scatter's memory operand: index is a vector register */
};

enum { INSN_R = 1, INSN_W = 2, INSN_RW = 3 };

struct insn_opnd {
	uint8_t kind, reg;
	uint8_t access; /* INSN_R | INSN_W */
	uint16_t size;	/* bytes */
};

/* Attributes */
/* clang-format off */
#define INSN_A_BRANCH    (1u << 0)  /* may set rip: jmp, jcc, call, ret, loop, jrcxz */
#define INSN_A_COND      (1u << 1)  /* conditional branch */
#define INSN_A_CALL      (1u << 2)
#define INSN_A_RET       (1u << 3)
#define INSN_A_INDIRECT  (1u << 4)  /* target from register or memory */
#define INSN_A_STRING    (1u << 5)  /* movs stos lods cmps scas ins outs */
#define INSN_A_REP       (1u << 6)  /* string instruction under a REP prefix */
#define INSN_A_STACK     (1u << 7)  /* implicit stack access: push pop call ret leave enter pushf popf */
#define INSN_A_ATOMIC    (1u << 8)  /* LOCK prefix, or xchg with memory */
#define INSN_A_FENCE     (1u << 9)  /* mfence lfence sfence, cpuid-like serialisers not included */
#define INSN_A_NONDET    (1u << 10) /* result not a function of registers and memory: rdtsc cpuid rdrand... */
#define INSN_A_SYSCALL   (1u << 11) /* syscall (sysenter, int 0x80 are PRIV) */
#define INSN_A_PRIV      (1u << 12) /* faults or is odd in user mode: in out hlt int iret far transfers cli... */
#define INSN_A_X87       (1u << 13)
#define INSN_A_MMX       (1u << 14)
#define INSN_A_VEC       (1u << 15) /* touches xmm/ymm */
#define INSN_A_NOACCESS  (1u << 16) /* has a modrm memory form but does not access it: lea, nop, prefetch, clflush */
#define INSN_A_XSTATE    (1u << 17) /* fxsave fxrstor xsave* xrstor* fnsave frstor fnstenv fldenv: bulky memory operand */
#define INSN_A_BITSTRING (1u << 18) /* bt/bts/btr/btc with memory and register index: address depends on the index */
#define INSN_A_MASKED    (1u << 19) /* masked or gathered access: only some elements are touched */
/* clang-format on */
#define INSN_A_FLAGSCOND (1u << 20) /* may leave flags unchanged (shift by a zero count) */

struct insn {
	uint64_t addr;
	uint8_t bytes[INSN_MAX + 1];
	uint8_t len;
	uint8_t cpu;  /* whose rules were followed: DJ_CPU_INTEL, or DJ_CPU_AMD for all of AMD's */
	uint16_t id;  /* enum insn_id */
	uint8_t cond; /* Jcc/SETcc/CMOVcc: 0 o, 1 no, 2 b, 3 ae, 4 e, 5 ne, 6 be, 7 a, 8 s... */
	uint8_t opsize; /* operand size of the general form: 1, 2, 4 or 8 */
	uint8_t nopnd;
	struct insn_opnd opnd[5]; /* explicit operands, Intel order (destination first) */
	uint32_t attr;		  /* INSN_A_... */

	/* prefixes */
	uint8_t seg; /* effective override: 0 none, 4 fs, 5 gs (es cs ss ds are ignored) */
	uint8_t rep; /* last of 0xf2/0xf3 seen, or 0; mandatory prefixes are reported too */
	bool lock, opsize16, addr32;
	uint8_t rex; /* 0 or 0x40..0x4f */
	uint8_t vex; /* 0 none, 2 or 3: bytes of VEX prefix, 4: EVEX */
	uint8_t vex_l, vex_w, vex_vvvv, vex_pp;
	uint8_t map;	/* 0 one-byte, 1 0F, 2 0F38, 3 0F3A */
	uint8_t opcode; /* the last opcode byte */

	/* where things are in bytes[] (0 = absent) */
	uint8_t rex_off;    /* REX, VEX or EVEX prefix */
	uint8_t opcode_off; /* first opcode byte after all prefixes, REX included */
	uint8_t modrm_off, sib_off, disp_off, disp_size, imm_off, imm_size;
	uint8_t modrm, sib;
	uint8_t mod, reg, rm; /* reg and rm extended by REX/VEX; rm of a register operand */

	/* memory operand by modrm or moffs; valid if has_mem */
	bool has_mem;
	uint8_t base;	    /* 0..15, INSN_RIP or INSN_NOREG */
	uint8_t index;	    /* 0..15 or INSN_NOREG (if OPND_VSIB a vector register, 0..31) */
	uint8_t scale;	    /* 1 2 4 8 */
	int64_t disp;	    /* sign-extended; for INSN_RIP the absolute address is `target` */
	uint64_t target;    /* rip-relative: absolute address */
	uint16_t mem_size;  /* bytes accessed through modrm memory operand; 0 if NOACCESS */
	uint8_t mem_access; /* INSN_R | INSN_W; 0 if NOACCESS or no memory */

	int64_t imm;  /* immediate or absolute branch target */
	int64_t imm2; /* enter's second */

	/* register and flag use, implicit ones and address registers included */
	uint32_t gpr_read;    /* bit n: register n read (partial writes count as a read too) */
	uint32_t gpr_written; /* bit n: register n written, perhaps partly or conditionally */
	uint32_t gpr_full;    /* subset of written: wholly overwritten, always (32-bit writes are
				 whole) */
	uint32_t flags_read, flags_written,
		flags_undefined; /* rflags bits; undefined is a subset of written */
};

/*
 * Decode the instruction at `code` (at most `avail` readable bytes), located at `addr`.
 * Returns its length, 0 if `avail` bytes are too few to tell, or -1 if it is not a valid
 * instruction (out->len is then what was looked at).
 *
 * Makers' processors do not agree on every encoding. insn_decode() follows the one this runs on,
 * which is right for whatever is about to be executed here; for a recording there is
 * insn_decode_as().
 */
int insn_decode_as(enum dj_cpu_kind cpu, struct insn *out, const uint8_t *code, size_t avail,
		   uint64_t addr);
int insn_decode(struct insn *out, const uint8_t *code, size_t avail, uint64_t addr);
/* Which maker's processor insn_decode() follows from now on; for tests. */
void insn_follow(enum dj_cpu_kind cpu);

/* How far from its memory operand a bit string's operand lies: as many operands as the index in a
 * register, a signed number, leads away from it (SDM vol. 2A, BT). */
static inline uint64_t insn_bit_offset(const struct insn *in, uint64_t index)
{
	switch (in->opsize) {
	case 8:
		return (uint64_t)((int64_t)index >> 6) * 8;
	case 4:
		return (uint64_t)(int64_t)((int32_t)index >> 5) * 4;
	default:
		return (uint64_t)(int64_t)((int16_t)index >> 4) * 2;
	}
}

/* Where the memory operand (has_mem, no vector index) lies, given the general registers and segment
 * bases. */
static inline uint64_t insn_address(const struct insn *in, const uint64_t *gpr, uint64_t fs_base,
				    uint64_t gs_base)
{
	uint64_t a = in->base == INSN_RIP ? in->target : (uint64_t)in->disp;

	if (in->base < 16)
		a += gpr[in->base];
	if (in->index < 16)
		a += gpr[in->index] * in->scale;
	if (in->attr & INSN_A_BITSTRING)
		a += insn_bit_offset(in, gpr[in->opnd[1].reg]);
	if (in->addr32)
		a = (uint32_t)a;
	return a + (in->seg == 4 ? fs_base : in->seg == 5 ? gs_base : 0);
}

/* Lower-case Intel mnemonic of an id ("add", "vbroadcastss"). */
const char *insn_id_name(unsigned id);

/* Whether the emulator executes this instruction; the recorder runs the others natively and
 * records what they changed. Both sides ask here (insn/emulated.c). */
bool insn_is_emulated(const struct insn *in);

/* Whether the processor this runs on does not know it, though it may know AVX2: then that is what
 * has to show, and not what its operand in memory might bring about. */
bool insn_lacked(const struct insn *in);

/* Whether there are processors that do not read all of its operand in memory: of VMOVDDUP's four
 * numbers those of the Zen 1 generation leave the last alone (doc/cpu.md). */
bool insn_may_read_less(const struct insn *in);

/* Whether a LOCK prefix is in order here (SDM vol. 2A, LOCK); elsewhere it is an invalid opcode. */
bool insn_lockable(const struct insn *in);

/* Whether executing this is an ordered event of its thread under the `fence` memory model: a locked
 * instruction or a fence. (System calls and signals are ordered events, too, but those have
 * records.) Recorder and replayer count these, so they ask here. */
bool insn_is_ordered(const struct insn *in);

/* Whether this stores to memory and pops the x87 stack: it cannot be executed twice, and what a
 * fault leaves half done must be put back. */
bool insn_store_pops(const struct insn *in);

/* One line of disassembly by Capstone, Intel or AT&T syntax as `att` says, into buf; only the
 * mnemonic if Capstone cannot be loaded. */
void insn_text(const struct insn *in, bool att, char *buf, size_t size);

#endif
