/*
 * What the two parts of test-emu-int share: a case, and the emulator that runs it.
 */
#ifndef DEJA_TESTS_UNIT_TEST_EMU_INT_H
#define DEJA_TESTS_UNIT_TEST_EMU_INT_H

#include "insn/insn.h"
#include "emu/emu.h"
#include "tests/lib/oracle.h"
#include "tests/lib/suites.h"

/* A test case: code, registers and memory. */
struct trial {
	uint8_t code[48];
	size_t n;
	unsigned insns; /* to be executed at most, the filler behind a branch included */
	size_t main_at; /* where the instruction under test begins */
	struct insn in;
	struct dj_regs regs;
	uint8_t mem[ORACLE_MEM_SIZE];
};

extern struct emu *emu;
extern const struct trial *current; /* whose code the emulator fetches */
extern uint64_t seed;

unsigned rnd(unsigned n);
bool chance(unsigned percent);

/* What a load must be like, as the emulator's hook before it. */
void before_load(void *ctx, struct emu *e, uint64_t addr, unsigned size);

/* test-emu-int-alone.c */
void test_rep_in_bulk(void);
void test_cuts(void);
void test_kinds(void);

#endif
