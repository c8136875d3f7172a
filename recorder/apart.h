/* What the kernel emulates (apart.c). */
#ifndef DEJA_RECORDER_APART_H
#define DEJA_RECORDER_APART_H

#include "recorder/recorder.h"

/* Whether the processor keeps sgdt, sidt, smsw, sldt and str from programs. */
bool rec_has_umip(void);
/* Whether the instruction at hand (t->native) is to be executed apart; it needs a turn. */
bool rec_apart_has(const struct rec_thread *t);
enum rec_state rec_apart_begin(struct rec_thread *t);
/* It has not been executed: t->regs are those from before it. */
void rec_apart_back(struct rec_thread *t);
/* It has stopped with t->regs: they become the program's own, behind the instruction or, where it
 * faults, at it. False if the thread is somewhere else. */
bool rec_apart_done(struct rec_thread *t);

#endif
