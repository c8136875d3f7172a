/* The decoder against the CPU, see insn-cpu.c; each returns how many checks failed. */
#ifndef DEJA_TESTS_LIB_INSN_CPU_H
#define DEJA_TESTS_LIB_INSN_CPU_H

#include <stdbool.h>
#include <stdint.h>

/* Whether a second opinion has it that the bytes, of which `prefixes` are mandatory prefixes, are
 * an instruction. */
typedef bool insn_cpu_second(const uint8_t *code, unsigned n, unsigned prefixes);

unsigned insn_cpu_legacy(insn_cpu_second *second);
unsigned insn_cpu_vex(insn_cpu_second *second);
unsigned insn_cpu_branches(void);

#endif
