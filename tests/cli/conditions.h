/* Conditions at random to stop a replay for. */
#ifndef DEJA_TESTS_CONDITIONS_H
#define DEJA_TESTS_CONDITIONS_H

#include "replayer/replay-internal.h"

extern uint64_t random_state;
uint64_t rnd(void);

/* 0: a breakpoint at `at`; 1: a watchpoint there that is hit by a change; 2: by any access; 3: a
 * breakpoint with a condition that holds now and then; 4: signals, and a system call that is seldom
 * made. */
#define CONDITIONS 5u
void condition(struct replay *r, unsigned how, uint64_t at);

/* A word of 8 bytes that the thread knows some of; if it knows nothing yet, of its stack. */
uint64_t word_of(struct replay *r);
/* One that several threads know of, by the ends of their histories: that is where they are then. */
uint64_t shared_word(struct replay *r);

#endif
