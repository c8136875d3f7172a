/* What was translated for a program that has ended goes to its next image (heir.c). Part of
 * recorder/recorder.h, which includes it. */
#ifndef DEJA_RECORDER_HEIR_H
#define DEJA_RECORDER_HEIR_H

#include "translator/translate.h"

struct rec_recording;
struct rec_process;
struct rec_thread;
struct rec_heir;

/* Memory for translated code. */
struct rec_arena {
	uint64_t at; /* where the program has it; 0: it is free */
	uint8_t *ours;
};

/* Of a process: */
struct rec_heritage {
	struct rec_heir *of; /* that it is about to take over, or NULL */
	bool alone;	     /* it is no copy of another one, and has had one thread only */
	uint64_t made;	     /* fragments, when it was about to exit, */
	uint64_t sum, who;   /* its code, and what it might do, then; 0: it leaves nothing */
};

/* In hand, about to exit: find out what there is to be left. */
void rec_heir_prepare(struct rec_thread *t);
/* It has ended, and is counted: leave its translator to the next one, if that is of any use. */
void rec_heir_leave(struct rec_process *proc);
void rec_heirs_free(struct rec_recording *rec);
/* A new image, in which there is nothing of deja's yet: whether it is another one's heir. */
bool rec_heir_find(struct rec_thread *t);
/* The file that the arenas lie in: a descriptor for the caller, or -1. And what there is in it. */
int rec_heir_file(const struct rec_process *proc);
void rec_heir_places(struct rec_process *proc);
/* It is not going to be. */
void rec_heir_give_up(struct rec_process *proc);
#endif
