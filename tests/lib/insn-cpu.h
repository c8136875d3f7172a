/* The decoder against the CPU, see insn-cpu.c; each returns how many checks failed. */
#ifndef DEJA_TESTS_LIB_INSN_CPU_H
#define DEJA_TESTS_LIB_INSN_CPU_H

unsigned insn_cpu_legacy(void);
unsigned insn_cpu_vex(void);
unsigned insn_cpu_branches(void);

#endif
