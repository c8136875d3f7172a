/*
 * Code generation: the handful of x86-64 encodings that translated code is made of.
 *
 * A `struct cg` is a place to write code: `p` is in the supervisor's mapping of a code
 * arena, `delta` turns it into the address at which the recorded program sees it. Running out of
 * space sets `overflow` and drops what is written; the caller checks once per fragment.
 */
#ifndef DEJA_TRANSLATOR_CG_H
#define DEJA_TRANSLATOR_CG_H

#include "insn/insn.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Where code that is being written depends on where it lies and what the program's addresses are:
 * the distance to some address; the low half of an address of the program; a whole one; the number
 * of a stop. And how many facts a thread must know of. */
enum cg_what { CG_DISTANCE, CG_LOW, CG_WHOLE, CG_NUMBER, CG_FACTS };
#define CG_PLACES 2048
struct cg_log {
	unsigned n;
	bool overflow;
	struct cg_place {
		uint8_t *at;
		enum cg_what what;
	} place[CG_PLACES];
};

struct cg {
	uint8_t *p, *end;
	uint64_t delta; /* address for the program minus address for us */
	bool overflow;
	struct cg_log *log; /* or NULL */
};

static inline uint64_t cg_va(const struct cg *c)
{
	return (uint64_t)(uintptr_t)c->p + c->delta;
}

static inline void cg8(struct cg *c, uint8_t x)
{
	if (c->p >= c->end)
		c->overflow = true;
	else
		*c->p++ = x;
}
static inline void cg_bytes(struct cg *c, const void *b, size_t n)
{
	if ((size_t)(c->end - c->p) < n) {
		c->overflow = true;
		return;
	}
	memcpy(c->p, b, n);
	c->p += n;
}
static inline void cg_note_at(struct cg *c, uint8_t *at, enum cg_what what)
{
	struct cg_log *log = c->log;
	if (!log)
		return;
	if (log->n == CG_PLACES)
		log->overflow = true;
	else
		log->place[log->n++] = (struct cg_place){ at, what };
}
/* What is written next is such a place. */
static inline void cg_note(struct cg *c, enum cg_what what)
{
	cg_note_at(c, c->p, what);
}
static inline void cg32(struct cg *c, uint32_t x)
{
	cg_bytes(c, &x, 4);
}
static inline void cg64(struct cg *c, uint64_t x)
{
	cg_bytes(c, &x, 8);
}

/* A memory operand to be emitted. */
struct ea {
	int8_t base, index; /* -1: none */
	uint8_t scale;	    /* 1 2 4 8 */
	int32_t disp;
	bool gs, a32; /* gs segment; 32-bit address arithmetic */
	bool fs;      /* fs segment: cg_rm() only */
	bool low;     /* disp is the low half of an address of the program */
	bool rip;     /* rip-relative to absolute address `target` */
	uint64_t target;
};

/* gs:[offset from S] */
static inline struct ea ea_gs(int32_t off)
{
	return (struct ea){ .base = -1, .index = -1, .scale = 1, .disp = off, .gs = true };
}
static inline struct ea ea_base(int base, int32_t disp)
{
	return (struct ea){ .base = (int8_t)base, .index = -1, .scale = 1, .disp = disp };
}
static inline struct ea ea_add(struct ea e, int32_t more)
{
	e.disp += more;
	e.target += (uint64_t)(int64_t)more;
	return e;
}

/* One instruction with a register and a memory operand: [prefixes] [REX] opcode modrm...; `op` is
 * up to three bytes, most significant first (0x0fb6). size 1 gives registers 4..7 a REX so that
 * they are spl..dil; size 2 adds 66; size 8 REX.W. `immlen` = bytes of immediate that follow. */
void cg_rm(struct cg *c, unsigned size, uint32_t op, unsigned reg, const struct ea *m,
	   unsigned immlen);
/* The same with two registers: modrm.rm = rm. */
void cg_rr(struct cg *c, unsigned size, uint32_t op, unsigned reg, unsigned rm);

/* An instruction with a VEX prefix: `op` as CG_VEX says, `l` for 256 bits, `v` the register in vvvv
 * (0 if there is none). The index of a VSIB operand is a vector register. */
#define CG_VEX(map, pp, w, opcode) ((map) << 8 | (pp) << 10 | (w) << 12 | (opcode))
enum {
	VMOVUPS_LOAD = CG_VEX(1, 0, 0, 0x10),
	VMOVUPS_STORE = CG_VEX(1, 0, 0, 0x11),
	VMOVQ_LOAD = CG_VEX(1, 2, 0, 0x7e),
	VMOVMSKPS = CG_VEX(1, 0, 0, 0x50),
	VMOVMSKPD = CG_VEX(1, 1, 0, 0x50),
	VXORPS = CG_VEX(1, 0, 0, 0x57),
	VPTEST = CG_VEX(2, 1, 0, 0x17),
	VMOVD_XR = CG_VEX(1, 1, 0, 0x6e), /* from a general register */
	VMOVQ_XR = CG_VEX(1, 1, 1, 0x6e),
};
void cg_vex_rm(struct cg *c, uint32_t op, bool l, unsigned reg, unsigned v, const struct ea *m);
void cg_vex_rr(struct cg *c, uint32_t op, bool l, unsigned reg, unsigned v, unsigned rm);

static inline void cg_load(struct cg *c, unsigned reg, const struct ea *m)
{
	cg_rm(c, 8, 0x8b, reg, m, 0);
}
static inline void cg_store(struct cg *c, unsigned reg, const struct ea *m)
{
	cg_rm(c, 8, 0x89, reg, m, 0);
}
static inline void cg_load_gs(struct cg *c, unsigned reg, int32_t off)
{
	struct ea m = ea_gs(off);
	cg_load(c, reg, &m);
}
static inline void cg_store_gs(struct cg *c, unsigned reg, int32_t off)
{
	struct ea m = ea_gs(off);
	cg_store(c, reg, &m);
}
/* lea reg, [base + disp] */
static inline void cg_lea(struct cg *c, unsigned reg, unsigned base, int32_t disp)
{
	struct ea m = ea_base((int)base, disp);
	cg_rm(c, 8, 0x8d, reg, &m, 0);
}
/* mov reg, value in the shortest form that keeps flags */
void cg_imm(struct cg *c, unsigned reg, uint64_t value);
/* The same of an address of the program. */
void cg_addr(struct cg *c, unsigned reg, uint64_t value);
/* mov dword gs:[off], value */
void cg_imm_gs(struct cg *c, int32_t off, uint32_t value);
/* Load an element of `size` 1 2 4 8, zero-extended. */
void cg_load_zx(struct cg *c, unsigned size, unsigned reg, const struct ea *m);
void cg_store_size(struct cg *c, unsigned size, unsigned reg, const struct ea *m);
/* cmp reg, [m] of that size */
void cg_cmp(struct cg *c, unsigned size, unsigned reg, const struct ea *m);

/* jmp/jcc rel32 to a known address (which must be within reach); return where the rel32 is. */
uint8_t *cg_jmp(struct cg *c, uint64_t target);
uint8_t *cg_jcc(struct cg *c, unsigned cond, uint64_t target);
void cg_patch32(uint8_t *rel32, uint64_t delta, uint64_t target);
/* short forward jump: returns the byte to patch with cg_here8() */
uint8_t *cg_jcc8(struct cg *c, uint8_t opcode);
static inline void cg_here8(struct cg *c, uint8_t *at)
{
	if (!c->overflow)
		*at = (uint8_t)(c->p - (at + 1));
}

/* Re-emit `in` with another memory operand (segment overrides and LOCK dropped; everything else as
 * it was). Returns false, emitting nothing, if it cannot be encoded; never of INSN_EVEX and
 * INSN_XOP, whose memory operands may be more than an address (a tile's needs a SIB byte, with the
 * distance of its rows as the index). */
bool cg_reencode(struct cg *c, const struct insn *in, const struct ea *m);
/* Re-emit `in`, whose memory operand becomes register `rm`, and whose register operand becomes
 * `reg` if reg >= 0. Integer instructions without high-byte registers only. */
bool cg_reencode_reg(struct cg *c, const struct insn *in, unsigned rm, int reg);

#endif
