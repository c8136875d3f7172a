/*
 * Call stacks by unwinding: libunwind over replayed registers and memory, with the unwind tables
 * of the recorded modules. It needs no frame pointers, but tables: code without them ends a stack.
 *
 * Everything that it reads comes from the trace and may be made to harm. Memory is read by
 * replay_read() only, and how often is bounded, so that no table keeps it busy for ever.
 */
#ifndef DEJA_ANALYSES_UNWIND_H
#define DEJA_ANALYSES_UNWIND_H

#include "replayer/replay.h"

struct ana_frame {
	uint64_t pc; /* of the next instruction: a return address but in innermost and interrupted
			frames */
	uint64_t sp; /* the stack pointer there */
	bool exact;  /* pc is where the frame is; else look up pc - 1, in the call */
	bool signalled; /* the frame that the kernel made to call a signal handler */
};

/* The frames of the selected thread at the moment, innermost first: returns how many, at most
 * `max`, at least one if max is not 0. `why` (may be NULL) becomes NULL if the stack was found up
 * to its outermost frame, else one sentence. -1 if this build cannot unwind. */
int ana_unwind(struct replay *r, struct ana_frame *frames, size_t max, const char **why);

#endif
