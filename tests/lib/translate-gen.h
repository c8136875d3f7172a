/* Random programs for the translator: see translate-gen.c. */
#ifndef DEJA_TESTS_LIB_TRANSLATE_GEN_H
#define DEJA_TESTS_LIB_TRANSLATE_GEN_H

#include "format/regs.h"
#include "insn/insn.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Where memory operands lie: the oracle's memory, another region with the same shadow (the low 32
 * bits of the address are the same), and one that has a multiple of 4 GiB in its middle.
 */
#define GEN_REGION  8192
#define GEN_REGIONS 3
extern const uint64_t gen_region[GEN_REGIONS];

#define GEN_GS	  96 /* the program's gs base: operands relative to it lie that much further */
#define GEN_CODE  2048
#define GEN_INSNS 200 /* at most */

struct gen {
	uint64_t base; /* where the code will be */
	uint8_t code[GEN_CODE];
	size_t n;
	uint64_t end;  /* it leaves by going here, the first address behind it */
	bool branches; /* wanted: branches, calls and loops */
	bool x87;      /* wanted: x87 and MMX, too */
	bool no_step;  /* single-stepping would show: pushf */
	bool same;     /* while one is made that may overwrite its own address */
	struct dj_regs regs;
	uint32_t reserved; /* registers that only the generator may write */
	unsigned ptr[3], idx, cnt;
};

extern uint64_t gen_seed;
unsigned gen_rnd(unsigned n);
bool gen_chance(unsigned percent);

/* A program of up to `insns` random instructions and what it takes to set them up. base, branches
 * and x87 are given. */
void gen_program(struct gen *g, unsigned insns);

#endif
