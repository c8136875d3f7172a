/* Between ahead.c and notes.c: what is noted of the stops of programs. */
#ifndef DEJA_RECORDER_NOTES_H
#define DEJA_RECORDER_NOTES_H

#include "recorder/recorder.h"

struct rec_note {
	uint64_t offset; /* in the file; or the address */
	uint32_t next;	 /* in its row: what the image stopped for then; number plus 1, or 0 */
	uint16_t indirect;
	uint16_t start; /* the program had not come to code of its own */
};

struct rec_notes {
	struct rec_notes *next;	  /* those that were asked for later */
	uint64_t program;	  /* a hash of its path */
	uint64_t serial;	  /* of all that were ever made */
	unsigned n_read;	  /* from a file */
	bool faults, faults_read; /* it has handlers of faults that see flags; so a file says */
	bool seen, vain;	  /* in this recording: one of its images had some; one had none */
	unsigned n, cap;
	struct rec_note *note;
	uint32_t *found; /* 2 * cap places, by a hash: number of a note, plus 1 */
};

/* The notes about a module in a program, which become the last in the list; made if there are none,
 * and then with what is known of the start of others. Where there are too many those go that have
 * not been asked for longest. */
struct rec_notes *rec_notes_of(struct rec_module *mod, uint64_t program);
/* Its number plus 1, also if it was there before; 0 if there is no room. */
unsigned rec_note_add(struct rec_notes *notes, const struct rec_note *note);

#endif
