/*
 * The registers of one thread, in the form that both sides of a trace agree on.
 *
 * Every member is host-endian in memory; what goes into a file or a digest is put
 * into little-endian order first (dj_regs_pack). Register numbers are the hardware's:
 * 0 rax, 1 rcx, 2 rdx, 3 rbx, 4 rsp, 5 rbp, 6 rsi, 7 rdi, 8..15 r8..r15.
 */
#ifndef DEJA_FORMAT_REGS_H
#define DEJA_FORMAT_REGS_H

#include <stddef.h>
#include <stdint.h>

enum {
	DJ_RAX,
	DJ_RCX,
	DJ_RDX,
	DJ_RBX,
	DJ_RSP,
	DJ_RBP,
	DJ_RSI,
	DJ_RDI,
	DJ_R8,
	DJ_R9,
	DJ_R10,
	DJ_R11,
	DJ_R12,
	DJ_R13,
	DJ_R14,
	DJ_R15
};

struct dj_regs {
	uint64_t gpr[16];
	uint64_t rip;
	uint64_t rflags;
	uint64_t fs_base, gs_base;
	uint16_t cs, ss, ds, es, fs, gs;
	/* vector registers: [i][0..15] is xmmI, [i][16..31] the upper half of ymmI;
	 * byte k is bits 8k..8k+7, on every host */
	uint8_t ymm[16][32];
	uint32_t mxcsr;
	/* x87: st[i] is ST(i) (not R(i)): 64-bit significand and sign/exponent */
	uint64_t st_mant[8];
	uint16_t st_exp[8];
	uint16_t fcw, fsw;
	uint8_t ftw; /* abridged tag, as FXSAVE has it: bit r set = physical register r in use */
	uint16_t fop;
	uint64_t fip, fdp;
};

/* Which parts of a dj_regs a side-effect record or comparison speaks of. */
#define DJ_REG_GPR(n)  (1ULL << (n)) /* bits 0..15 */
#define DJ_REG_RFLAGS  (1ULL << 16)
#define DJ_REG_RIP     (1ULL << 17)
#define DJ_REG_FS_BASE (1ULL << 18)
#define DJ_REG_GS_BASE (1ULL << 19)
#define DJ_REG_MXCSR   (1ULL << 20)
#define DJ_REG_X87     (1ULL << 21)	    /* the whole x87 state */
#define DJ_REG_SEGS    (1ULL << 22)	    /* the six selectors */
#define DJ_REG_YMM(n)  (1ULL << (32 + (n))) /* bits 32..47, all 32 bytes */
#define DJ_REG_ALL     (0x0000ffff007fffffULL)

/* Arithmetic flags, and all flags a user program can change. */
#define DJ_FLAG_CF     0x001u
#define DJ_FLAG_PF     0x004u
#define DJ_FLAG_AF     0x010u
#define DJ_FLAG_ZF     0x040u
#define DJ_FLAG_SF     0x080u
#define DJ_FLAG_DF     0x400u
#define DJ_FLAG_OF     0x800u
#define DJ_FLAGS_ARITH 0x8d5u

/*
 * Packed form: a mask (8 bytes) and then the parts it names, in the order of the bits
 * above, little-endian (gprs, flags, rip, bases 8 bytes; mxcsr 4; x87 is fcw 2, fsw 2,
 * ftw 1, fop 2, fip 8, fdp 8, then 8 times mantissa 8 + exponent 2; segs 12 bytes;
 * ymm 32 bytes).
 */
#define DJ_REGS_PACKED_MAX (8 + 16 * 8 + 4 * 8 + 4 + 103 + 12 + 16 * 32)

/* Write the parts named by `mask`; returns the number of bytes, at most DJ_REGS_PACKED_MAX. */
size_t dj_regs_pack(const struct dj_regs *r, uint64_t mask, uint8_t *out);

/* Read a packed form into `r`, changing only the parts it names. Returns the bytes
 * consumed, or 0 if `len` is too short or the mask has unknown bits. `mask` gets the parts. */
size_t dj_regs_unpack(struct dj_regs *r, uint64_t *mask, const uint8_t *in, size_t len);

/* The parts of DJ_REG_ALL in which a and b differ. */
uint64_t dj_regs_diff(const struct dj_regs *a, const struct dj_regs *b);

/* Parts a digest covers. Left out: rflags (undefined arithmetic flags differ between CPU
 * makers and are dead where digests are taken), selectors, and x87 fop/fip/fdp. */
#define DJ_DIGEST_PARTS (DJ_REG_ALL & ~(DJ_REG_RFLAGS | DJ_REG_SEGS))

/* 64-bit digest (XXH3 over the packed DJ_DIGEST_PARTS with fop, fip, fdp zero). */
uint64_t dj_regs_digest(const struct dj_regs *r);

/* "rax", "ymm3", "mxcsr"...: the name of the lowest part in `mask`. */
const char *dj_regs_part_name(uint64_t mask);

#endif
