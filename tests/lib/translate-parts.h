/*
 * What the parts of translate-run.c share: the run there is at a time, and the parts' entries.
 */
#ifndef DEJA_TESTS_LIB_TRANSLATE_PARTS_H
#define DEJA_TESTS_LIB_TRANSLATE_PARTS_H

#include "format/error.h"
#include "translator/build.h"
#include "translator/runtime.h"
#include "emu/emu.h"
#include "tests/lib/translate-gen.h"
#include "tests/lib/translate-run.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <ucontext.h>

#define TRACE	  8192
#define STEPS_MAX 4000
#define TF	  0x100ULL
#define RF	  0x10000ULL
#define FLAGS	  (DJ_FLAGS_ARITH | DJ_FLAG_DF)
#define OURS	  7 /* the thread's id in a lock */
#define OTHERS	  8

struct point { /* of a run by single steps */
	uint64_t step, pc, flags, gpr[16];
	uint32_t live; /* flags that matter to what comes */
};

struct import {
	uint64_t steps, addr, rep;
	uint8_t ordinal, line[64];
};

struct number {
	uint64_t steps, seq;
	bool order; /* of an instruction that has read something new, else of one that is ordered */
};

struct effect {
	uint64_t steps;
	struct dj_regs regs;
};

extern uint8_t *area;	/* control region, shadow */
extern uint64_t area_s; /* the shadow's address */
extern struct translator *tr;
extern struct emu *emu;
extern const struct gen *prog;

extern struct run {
	bool active, translated, stepping, complained;
	int sig;	/* it ended by this signal */
	uint64_t pc;	/* it ended here */
	uint64_t steps; /* of the program when in hand */
	bool in_native;
	uint64_t native; /* address of the instruction being executed natively */
	uint64_t stops;
	struct point trace[TRACE];
	unsigned n_trace, first[STEPS_MAX + 2];
	struct import import[8192];
	unsigned n_imports;
	struct number number[2000]; /* that ordered events have, where others came between */
	unsigned n_numbers;
	uint64_t first_seq;
	uint64_t *forgot; /* place in the fast table that has lost its target, or NULL */
	bool forgot_high; /* that lies above 2 GiB */
	struct effect effect[2000];
	unsigned n_effects;
} run;

static inline uint64_t *tcb(int64_t off)
{
	return (uint64_t *)(void *)(area + AREA_CONTROL + off);
}

/* The sum of T_STEPS; and make it that. */
uint64_t steps_now(void);
void set_steps(uint64_t steps);

void complain(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* ---- translate-stops.c ---- */

extern const int greg[16]; /* where a signal frame has the registers */

void set_gs(uint64_t base);
void end_run(ucontext_t *uc, int sig, uint64_t pc);

size_t read_code(void *ctx, uint64_t pc, uint8_t *buf, size_t len, bool *changing);
struct tr_frag *fragment(uint64_t pc);

/* Take what is in the ring and let it begin again. */
void drain(void);

/* Locks that the program holds: an operation that faults keeps what it has taken. */
uint64_t *lock_at(unsigned i);
unsigned locks_held(void);

/* The program's registers out of the processor's, the slots and the flags' place. */
void rebuild(greg_t *g, const struct tr_where *w);

void on_signal(int sig, siginfo_t *si, void *context);

/* ---- translate-points.c: a run by single steps, and what another has at the same places ---- */

void note_point(ucontext_t *uc);
void at_boundary(const greg_t *now);

/* Which flags the rest of the run reads before it writes them. */
void trace_live(void);

/* ---- translate-replayed.c ---- */

#define EMULATED_MAX 100000

/* The number of the last event that the emulator has passed, as a replay finds it. */
extern struct numbers {
	uint64_t seq, next; /* the next one's, or 0 */
	uint64_t fences, steps;
	uint64_t at;	/* steps just after the last */
	uint64_t order; /* the number this instruction leads to, or 0 */
	unsigned used;
} numbers;

extern uint8_t stored[GEN_REGIONS][GEN_REGION]; /* where the emulator has stored */

int start_emulator(void);
bool emulate(uint64_t steps, struct dj_regs *out);

#endif
