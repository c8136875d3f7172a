/* Programs run by the CPU, as translated code, and in the emulator: see translate-run.c. */
#ifndef DEJA_TESTS_LIB_TRANSLATE_RUN_H
#define DEJA_TESTS_LIB_TRANSLATE_RUN_H

#include "tests/lib/translate-gen.h"

#include <stdbool.h>

int run_set_up(void);
int run_tear_down(void);
/* Where a program of GEN_CODE bytes can be put, in low memory or high. */
uint64_t run_place(bool high);
/* Run it in all three ways and compare; prints what differs. `step`: also one instruction at a
 * time. */
bool run_program(struct gen *g, bool step);

extern struct run_counts {
	unsigned long programs, steps, imports, natives, faults, misses, boundaries, ordered,
		orders, exact;
	unsigned long numbers, waits, locked_faults, found_again[2];
} run_counts;

#endif
