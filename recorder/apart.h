/* What is executed at another place than the program has it (apart.c). */
#ifndef DEJA_RECORDER_APART_H
#define DEJA_RECORDER_APART_H

#include "recorder/recorder.h"

/* Whether the processor keeps sgdt, sidt, smsw, sldt and str from programs. */
bool rec_has_umip(void);
/* Whether the kernel emulates the instruction at hand (t->native); it needs a turn. */
bool rec_apart_has(const struct rec_thread *t);
/* Whether it is a string instruction with many iterations to go. */
bool rec_apart_repeats(const struct rec_thread *t);
/* To be executed apart. */
enum rec_state rec_apart_begin(struct rec_thread *t);
/* It has not been executed: t->regs are those from before it. */
void rec_apart_back(struct rec_thread *t);
/* It has stopped with t->regs: they become the program's own, behind the instruction or, where it
 * faults, at it. False if the thread is somewhere else. */
bool rec_apart_done(struct rec_thread *t);

#endif
