/* What a recording counts, for `deja info`. */
#ifndef DEJA_RECORDER_COUNTS_H
#define DEJA_RECORDER_COUNTS_H

#include "format/error.h"
#include "insn/insn.h"

struct rec_recording;
struct rec_process;
struct rec_thread;

/* What is counted (counts.c has the names). */
enum rec_count {
	REC_COUNT_LINK,
	REC_COUNT_INDIRECT,
	REC_COUNT_ASKED,
	REC_COUNT_SYSCALL,
	REC_COUNT_NATIVE,
	REC_COUNT_CHANGED,
	REC_COUNT_FACTS,
	REC_COUNT_RING,
	REC_COUNT_ORDER,
	REC_COUNT_CLOCK,
	REC_COUNT_GATHER,
	REC_COUNT_SIGNAL,
	REC_COUNT_TRAP_CALLS,
	REC_COUNT_FORGOTTEN,
	REC_COUNT_ARENAS,
	REC_COUNT_FRAGMENTS,
	REC_COUNT_KEPT,
	REC_COUNT_BESIDE,
	REC_COUNT_HEIRS,
	REC_COUNT_HEIRS_FORKED,
	REC_COUNT_ESTATES,
	REC_COUNT_RETIRED,
	REC_COUNT_INSNS,
	REC_COUNT_BYTES,
	REC_COUNT_FLUSHES,
	REC_COUNT_CLEARS,
	REC_COUNT_KEYFRAMES,
	REC_COUNT_FULL_KEYFRAMES,
	REC_COUNTS
};

void rec_count(struct rec_thread *t, enum rec_count what);
/* Add what the process's translator did, which is about to go or will do no more. */
void rec_count_translator(struct rec_process *proc);
/* An instruction was executed natively. */
void rec_count_native(struct rec_recording *rec, const struct insn *in);
/* Put them into the trace, at its end. */
int rec_counts_write(struct rec_recording *rec, struct dj_error *err);

#endif
