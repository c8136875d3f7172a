/*
 * The CPU as oracle: run machine code on the bare CPU and in the emulator from the same
 * registers and memory, for comparison.
 *
 * Memory operands must stay inside [ORACLE_MEM, ORACLE_MEM + ORACLE_MEM_SIZE), which is
 * mapped at that fixed address for the CPU and copied to the shadow for the emulator.
 */
#ifndef DEJA_TESTS_LIB_ORACLE_H
#define DEJA_TESTS_LIB_ORACLE_H

#include "format/cpu.h"
#include "format/regs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ORACLE_MEM	0x10000000UL
#define ORACLE_MEM_SIZE 8192
#define ORACLE_CODE	0x20000000UL

/* Whether this CPU can run the oracle at all (x86-64 with AVX2). */
bool oracle_available(void);

/* Whether oracle_cpu() can answer: by the CPU, or, on a machine that is no x86-64, in the way of
 * the log that the same test left on one (the environment's ORACLE_LOG names it): then its answer
 * is the emulator's, but for the signal, and it is the emulator's results that must be the log's.
 */
bool oracle_ready(void);

/* Whose processor it is that answers: this CPU's kind, or that of the log's. An emulator that is
 * compared with it must be of the same kind. */
enum dj_cpu_kind oracle_kind(void);

/* A result of the emulator, for the log or to be compared with it: whether it is the same. */
bool oracle_log(const struct dj_regs *out, const uint8_t *mem);

/* Run `n` bytes of straight-line code at ORACLE_CODE with registers *in (all 16 gprs including
 * rsp, arithmetic flags and DF, ymm, mxcsr, x87) and memory `mem` (ORACLE_MEM_SIZE bytes,
 * updated). Returns 0 and fills *out, or the signal number if the CPU raised one. */
int oracle_cpu(const uint8_t *code, size_t n, const struct dj_regs *in, struct dj_regs *out,
	       uint8_t *mem);

/* The parts of it: run what is at `entry` until it goes to oracle_leave with its registers in
 * place. Flags may have TF set. A signal handler may be replaced once something was run. Code that
 * ends by itself ends with what oracle_put_leave() writes. */
#define ORACLE_TF    0x100u
#define ORACLE_LEAVE 14 /* bytes: jmp *0(%rip) and the address */
int oracle_run(uint64_t entry, const struct dj_regs *in, struct dj_regs *out, uint8_t *mem);
void oracle_put_leave(uint8_t *at);
void oracle_leave(void);

/* The same in the emulator. Returns 0, or -1 if an instruction is not bound or raised. Instructions
 * are decoded and bound with the emu_bind_* functions directly. */
int oracle_emu(const uint8_t *code, size_t n, const struct dj_regs *in, struct dj_regs *out,
	       uint8_t *mem);

/* How many loads the last oracle_emu() made. */
extern unsigned oracle_emu_loads;

/* Families are weak references of the oracle, which pull nothing out of an archive: a test
 * names the binders it needs at file scope, as in ORACLE_FAMILY(emu_bind_vec). */
#define ORACLE_FAMILY(binder)                                                                      \
	emu_fn *(*const oracle_needs_##binder)(const struct insn *,                                \
					       struct emu_uop *)__attribute__((used)) = binder

/* A number in memory as the program has it, whatever the host's byte order. */
static inline void oracle_put(uint8_t *at, uint64_t x, unsigned size)
{
	for (unsigned i = 0; i < size; i++)
		at[i] = (uint8_t)(x >> 8 * i);
}
static inline uint64_t oracle_get(const uint8_t *at, unsigned size)
{
	uint64_t x = 0;

	for (unsigned i = size; i--;)
		x = x << 8 | at[i];
	return x;
}

/* Random registers: integers with many small, negative, boundary values; vectors with
 * integer and floating-point patterns (zeros, denormals, infinities, NaNs, ones, near-overflow);
 * rsp and rip inside the oracle's memory and code; x87 empty; mxcsr default. */
void oracle_random_regs(struct dj_regs *r, uint64_t *seed);

/* Print a one-line description of the first difference (parts in `mask`, rflags restricted to
 * `flags`) to stderr with the code bytes and inputs; returns whether they are equal. */
bool oracle_same(const char *what, const uint8_t *code, size_t n, const struct dj_regs *in,
		 const struct dj_regs *cpu, const struct dj_regs *emu, uint64_t mask,
		 uint32_t flags, const uint8_t *mem_cpu, const uint8_t *mem_emu);

#endif
