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
	struct rec_heir *of;   /* that it is about to take over, or NULL */
	struct rec_heir *left; /* that it has left, or NULL */
	bool copy;	       /* it is a forked child, with the image of its parent */
	bool alone;	       /* it has had one thread only */
	uint64_t had;	       /* fragments, from the one before */
	uint64_t made;	       /* and of its own, when it was about to exit; */
	uint64_t sum, who;     /* its code, and what it might do, then. 0: it leaves nothing */
};

/* In hand, about to exit: find out what there is to be left. */
void rec_heir_prepare(struct rec_thread *t);
/* Its image has ended, and is counted: it has no translator any more, if that is of any use to
 * another one. */
void rec_heir_leave(struct rec_process *proc);
/* And none of the memory that it had with it: who comes now gets it. */
void rec_heir_settle(struct rec_process *proc);
void rec_heirs_free(struct rec_recording *rec);
/* A new image, in which there is nothing of deja's yet: whether it is another one's heir. */
bool rec_heir_find(struct rec_thread *t);
/* The file that the arenas lie in: a descriptor for the caller, or -1. And what there is in it. */
int rec_heir_file(const struct rec_process *proc);
void rec_heir_places(struct rec_process *proc);
/* It is not going to be. */
void rec_heir_give_up(struct rec_process *proc);
#endif
