/*
 * What the integer handlers (emu-int*.c) are made with.
 *
 * Handlers are specialised by operation, operand width and form. Each is one call of an
 * always-inline function with constant arguments, made by macros that run over the widths
 * and forms; `lg` is the logarithm of the width in bytes (0..3) throughout. A byte register
 * is gpr[reg] >> shift, the shift being 8 for AH, CH, DH and BH: operand a's is kept in u->c
 * and operand b's in u->d.
 */
#ifndef DEJA_EMU_EMU_INT_H
#define DEJA_EMU_EMU_INT_H

#include "emu/emu-flags.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* Register or memory, and where the source is. */
enum emu_form {
	FORM_RR, /* a, b registers */
	FORM_RI, /* a, imm */
	FORM_RM, /* a, memory */
	FORM_MR, /* memory, b */
	FORM_MI, /* memory, imm */
};

#define FOR_FORMS(X, op, lg) X(op, lg, RR) X(op, lg, RI) X(op, lg, RM) X(op, lg, MR) X(op, lg, MI)

ALWAYS_INLINE uint64_t cut(unsigned lg, uint64_t x)
{
	return lg == 0 ? (uint8_t)x : lg == 1 ? (uint16_t)x : lg == 2 ? (uint32_t)x : x;
}

ALWAYS_INLINE uint64_t sext(unsigned lg, uint64_t x)
{
	return lg == 0	 ? (uint64_t)(int8_t)x
	       : lg == 1 ? (uint64_t)(int16_t)x
	       : lg == 2 ? (uint64_t)(int32_t)x
			 : x;
}

ALWAYS_INLINE uint64_t msb(unsigned lg, uint64_t x)
{
	return x >> ((8u << lg) - 1) & 1;
}

/* A register, zero-extended. `shift` matters for bytes only. */
ALWAYS_INLINE uint64_t get_reg(const struct emu *e, unsigned lg, unsigned reg, unsigned shift)
{
	return cut(lg, lg == 0 ? e->cpu.gpr[reg] >> shift : e->cpu.gpr[reg]);
}

/* Write a register; 32 bits clear the upper half, 8 and 16 leave the rest alone. */
ALWAYS_INLINE void set_reg(struct emu *e, unsigned lg, unsigned reg, unsigned shift, uint64_t x)
{
	uint64_t *r = &e->cpu.gpr[reg];

	switch (lg) {
	case 0:
		*r = (*r & ~((uint64_t)0xff << shift)) | (uint64_t)(uint8_t)x << shift;
		break;
	case 1:
		*r = (*r & ~(uint64_t)0xffff) | (uint16_t)x;
		break;
	case 2:
		*r = (uint32_t)x;
		break;
	default:
		*r = x;
	}
}

ALWAYS_INLINE uint64_t get_mem(struct emu *e, unsigned lg, uint64_t addr)
{
	switch (lg) {
	case 0:
		return emu_load8(e, addr);
	case 1:
		return emu_load16(e, addr);
	case 2:
		return emu_load32(e, addr);
	default:
		return emu_load64(e, addr);
	}
}

ALWAYS_INLINE void set_mem(struct emu *e, unsigned lg, uint64_t addr, uint64_t x)
{
	switch (lg) {
	case 0:
		emu_store8(e, addr, (uint8_t)x);
		break;
	case 1:
		emu_store16(e, addr, (uint16_t)x);
		break;
	case 2:
		emu_store32(e, addr, (uint32_t)x);
		break;
	default:
		emu_store64(e, addr, x);
	}
}

/* Change only the flags in `mask`. */
static inline void change_flags(struct emu *e, uint32_t mask, uint32_t value)
{
	struct emu_lazy *z = &e->cpu.lazy;

	if (EMU_LAZY_KIND(z->op) == EMU_LAZY_ALL ||
	    (EMU_LAZY_KIND(z->op) == EMU_LAZY_RES &&
	     !(mask & (DJ_FLAG_ZF | DJ_FLAG_SF | DJ_FLAG_PF))))
		z->b = (z->b & ~(uint64_t)mask) | (value & mask);
	else
		emu_set_flags(e, (emu_get_flags(e) & ~mask) | (value & mask));
}

/* log2 of an operand size of 1, 2, 4 or 8 bytes */
static inline unsigned lg_of(unsigned size)
{
	return size <= 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : 3;
}

static inline bool is_mem(const struct insn *in, unsigned i)
{
	return i < in->nopnd && in->opnd[i].kind == OPND_MEM;
}

static inline bool is_imm(const struct insn *in, unsigned i)
{
	return i < in->nopnd && in->opnd[i].kind == OPND_IMM;
}

static inline bool is_reg(const struct insn *in, unsigned i)
{
	return i < in->nopnd && (in->opnd[i].kind == OPND_GPR || in->opnd[i].kind == OPND_GPR8H);
}

/* The shift of byte register operand i. */
static inline uint8_t byte_shift(const struct insn *in, unsigned i)
{
	return i < in->nopnd && in->opnd[i].kind == OPND_GPR8H ? 8 : 0;
}

/* Binders, by group of instructions. */
emu_fn *emu_bind_int_alu(const struct insn *in, struct emu_uop *u);   /* emu-int-alu.c */
emu_fn *emu_bind_int_mov(const struct insn *in, struct emu_uop *u);   /* emu-int-mov.c */
emu_fn *emu_bind_int_shift(const struct insn *in, struct emu_uop *u); /* emu-int-shift.c */
emu_fn *emu_bind_int_bits(const struct insn *in, struct emu_uop *u);  /* emu-int-bits.c */
emu_fn *emu_bind_int_flow(const struct insn *in, struct emu_uop *u);  /* emu-int-flow.c */

#endif
