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

struct dj_mapping;
struct rec_code_ranges;

/* Of a process: */
struct rec_heritage {
	struct rec_heir *of;   /* that it is about to take over, or NULL */
	struct rec_heir *left; /* that it has left, or NULL */
	bool faults;	 /* flags of faults were seen to when it was about to exit (sigtrap.c) */
	bool before;	 /* what it has taken over is of an earlier recording */
	bool copy;	 /* it is a forked child, with the image of its parent */
	bool fixed;	 /* its image lies where the program's images do (layout.c) */
	uint64_t place;	 /* in the file, of tables and of the thread's own part */
	uint64_t had;	 /* fragments, from the one before */
	uint64_t needed; /* so many were made for one image, as far as is known */
	/* What was taken over of modules that have not been mapped yet, or NULL. */
	struct rec_code_ranges *parked;
	uint64_t who; /* what it might do when it was about to exit; 0: it leaves nothing */
	struct rec_code_ranges *code; /* meanwhile (heir.c) */
};

/* In hand, about to exit or to become another program: find out who is to have what it leaves. */
void rec_heir_prepare(struct rec_thread *t);
/* Its image has ended, and is counted: it has no translator any more, if that is of any use to
 * another one. */
void rec_heir_leave(struct rec_process *proc);
/* Where we have its tables mapped goes with what it leaves, instead of being unmapped: to fault all
 * of the fast table in takes as long as to write it. False: it leaves nothing. */
bool rec_heir_leave_tables(struct rec_process *proc);
/* And none of the memory that it had with it: who comes now gets it. */
void rec_heir_settle(struct rec_process *proc);
void rec_heirs_free(struct rec_recording *rec);
/* The recording is over: what they have left is written down (estate.c). */
void rec_heirs_write(struct rec_recording *rec);
/* A new image, in which there is nothing of deja's yet: whether it is another one's heir. */
bool rec_heir_find(struct rec_thread *t);
/* This code has been mapped: what was taken over of it is of use, if it is what it was. */
void rec_heir_mapped(struct rec_process *proc, const struct dj_mapping *m);
void rec_heritage_free(struct rec_process *proc);
/* The file that the arenas lie in: a descriptor for the caller, or -1. And what there is in it. */
int rec_heir_file(const struct rec_process *proc);
void rec_heir_places(struct rec_process *proc);
/* The tables' mapping in us, which is the caller's now; NULL: there is none. */
uint8_t *rec_heir_tables(struct rec_process *proc);
/* It is not going to be. */
void rec_heir_give_up(struct rec_process *proc);
#endif
