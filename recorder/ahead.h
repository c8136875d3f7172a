/* Translating what others stopped for (ahead.c). */
#ifndef DEJA_RECORDER_AHEAD_H
#define DEJA_RECORDER_AHEAD_H

#include "recorder/recorder.h"

/* A stop for the code at `pc`, or because it was the target of an indirect branch. */
void rec_ahead_note(struct rec_thread *t, uint64_t pc, bool indirect);
/* Whether the program handles faults, and its handlers see flags (sigtrap.c); whether earlier
 * images of it did. */
void rec_ahead_note_faults(struct rec_process *proc, bool on);
bool rec_ahead_faults(struct rec_thread *t);
void rec_notes_free(struct rec_module *mod);
/* The process has another image, or ends. */
void rec_ahead_forget(struct rec_process *proc);
/* In hand: translate what earlier images stopped for in the code where the thread is. */
void rec_ahead(struct rec_thread *t);
/* The same for a thread that runs and asks for the code at `pc` (ask.c). */
void rec_ahead_asked(struct rec_thread *t, uint64_t pc);
/* While nothing has stopped: translate some of what is left of that. False if nothing is, of a
 * process that runs. */
bool rec_ahead_beside(struct rec_recording *rec);

/* The notes about a module from bytes that were made of them; these, behind `head` bytes that are
 * left free, a new memory block, or NULL if nothing is new. */
void rec_notes_read(struct rec_module *mod, const uint8_t *bytes, size_t size);
uint8_t *rec_notes_write(const struct rec_module *mod, size_t head, size_t *size);

/* What is kept of its translations; with notes, it has been read from a file now. */
struct tr_kept *rec_module_kept(struct rec_recording *rec, struct rec_module *m); /* code.c */

/* ---- store.c ---- */
/* What earlier recordings have left about a module; to be left for later ones. */
void rec_store_read(struct rec_recording *rec, struct rec_module *m);
/* The same about code that it has made as a program, changing or not. */
void rec_store_read_made(struct rec_recording *rec, struct rec_module *m, bool changing);
void rec_store_write(struct rec_recording *rec);
/* Whether there is a directory for that. */
bool rec_store_is_there(struct rec_recording *rec);
/* What images of the program have left (estate.c), whose handlers see the flags of faults or do
 * not: NULL if there is nothing. To be left for later ones; false: it could not be. */
struct tr_estate;
struct tr_estate *rec_store_read_estate(struct rec_recording *rec, const struct rec_module *m,
					bool faults);
bool rec_store_write_estate(struct rec_recording *rec, const struct rec_module *m, bool faults,
			    struct translator *tr, const void *about, size_t size);
/* A descriptor of the directory of packed modules for later traces, the caller's, or -1. */
int rec_store_packed(struct rec_recording *rec);

#endif
