/*
 * Inside the x87 emulation: the register stack and the status word, shared by
 * emu-x87.c (loads, stores, control), emu-x87-arith.c (arithmetic, comparison) and
 * emu-x87-mmx.c.
 *
 * Every handler follows the same order, which is the CPU's: if an unmasked exception is
 * pending (ES) the instruction faults before it does anything; then the memory operand is
 * loaded; then the operation; then emu_x87_done() puts what was raised into the status word
 * and says whether the destination may be written. An unmasked exception of this
 * instruction does not fault here: it sets ES, and the next waiting instruction faults.
 *
 * The instruction and operand pointers (fop, fip, fdp) are not kept up to date.
 */
#ifndef DEJA_EMU_EMU_X87_H
#define DEJA_EMU_EMU_X87_H

#include "emu/emu.h"
#include "emu/soft80.h"

#define X87_ES	       0x0080u
#define X87_B	       0x8000u
#define X87_CC	       (S80_C0 | S80_C1 | S80_C2 | S80_C3)
#define X87_EXCEPTIONS 0x3fu

static inline void emu_x87_wait(struct emu *e)
{
	if (__builtin_expect(e->cpu.fsw & X87_ES, 0))
		emu_raise(e, EMU_STOP_FAULT, "x87 exception pending, status word %#x", e->cpu.fsw);
}

static inline unsigned emu_x87_phys(const struct emu_cpu *cpu, unsigned i)
{
	return (cpu->x87_top + i) & 7;
}

static inline bool emu_x87_empty(const struct emu_cpu *cpu, unsigned i)
{
	return !(cpu->x87_ftw >> emu_x87_phys(cpu, i) & 1);
}

static inline struct s80 emu_x87_get(const struct emu_cpu *cpu, unsigned i)
{
	unsigned r = emu_x87_phys(cpu, i);
	return (struct s80){ .mant = cpu->x87_mant[r], .se = cpu->x87_exp[r] };
}

static inline void emu_x87_put(struct emu_cpu *cpu, unsigned i, struct s80 v)
{
	unsigned r = emu_x87_phys(cpu, i);
	cpu->x87_mant[r] = v.mant;
	cpu->x87_exp[r] = v.se;
	cpu->x87_ftw |= (uint8_t)(1u << r);
}

static inline void emu_x87_pop(struct emu_cpu *cpu)
{
	cpu->x87_ftw &= (uint8_t) ~(1u << cpu->x87_top);
	cpu->x87_top = (cpu->x87_top + 1) & 7;
}

static inline void emu_x87_push(struct emu_cpu *cpu, struct s80 v)
{
	cpu->x87_top = (cpu->x87_top - 1) & 7;
	emu_x87_put(cpu, 0, v);
}

/* Replace C1 and add what was raised. False if the destination must stay as it is. */
static inline bool emu_x87_done(struct emu_cpu *cpu, unsigned fl)
{
	cpu->fsw = (uint16_t)((cpu->fsw & ~S80_C1) | fl);
	unsigned unmasked = fl & ~cpu->fcw & X87_EXCEPTIONS;
	if (__builtin_expect(unmasked == 0, 1))
		return true;
	cpu->fsw |= X87_ES | X87_B;
	return !(unmasked & (S80_IE | S80_DE | S80_ZE));
}

static inline struct s80_ctx emu_x87_ctx(const struct emu_cpu *cpu)
{
	return (struct s80_ctx){ .cw = cpu->fcw };
}

/* A register that should be in use is empty. */
#define X87_UNDERFLOW (S80_IE | S80_SF)
/* The register that a push would take is in use. */
#define X87_OVERFLOW (S80_IE | S80_SF | S80_C1)

emu_fn *emu_x87_bind_arith(const struct insn *in, struct emu_uop *u);
emu_fn *emu_x87_bind_mmx(const struct insn *in, struct emu_uop *u);

#endif
