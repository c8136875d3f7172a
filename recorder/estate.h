/* Between heir.c and estate.c: what an image leaves, to the next one of this recording or of
 * another. */
#ifndef DEJA_RECORDER_ESTATE_H
#define DEJA_RECORDER_ESTATE_H

#include "recorder/recorder.h"

#define REC_RANGES 64u /* mappings of code */

/* A mapping of the program's code. */
struct rec_code_range {
	uint64_t start, end, offset;
	int32_t module; /* REC_OF_FILE: see rec_code_ranges */
	uint32_t file;
	bool there; /* in the heir, too */
};

/* Which module it is of is not known in this recording yet, but what file. */
#define REC_OF_FILE (-2)

struct rec_code_file {
	uint64_t dev, ino, size;
	int64_t mtime, mtime_ns, ctime, ctime_ns;
};

struct rec_code_ranges {
	unsigned n, n_files;
	struct rec_code_range range[REC_RANGES];
	struct rec_code_file file[REC_RANGES];
};

struct rec_heir {
	struct rec_heir *next;
	struct translator *tr;
	int memfd;
	uint64_t memfd_end, memfd_size, tables_off, window_off, own_off;
	uint8_t *tables; /* in us; NULL: not yet, or not any more */
	struct rec_arena arena[REC_ARENAS];
	struct rec_code_ranges *code;
	bool copy, faults, fixed;
	bool before; /* an earlier recording has left it */
	uint64_t who, n;
	int program;	 /* the module that it executed, or none of those there are */
	uint64_t needed; /* fragments: so many were made for one image */
};

/* What a process may do, in one word; 0 if that cannot be known. `status` is that of the process in
 * /proc, `label` what security modules call it (attr/current) or NULL, both of which are closed,
 * `space` the path of its user namespace there. And that of the thread. */
uint64_t rec_who(FILE *status, FILE *label, const char *space);
uint64_t rec_who_is(struct rec_thread *t);
/* It is not going to be anybody's any more. */
void rec_heir_free(struct rec_heir *h);
/* Whether that is the module of the range. */
bool rec_range_is_of(const struct rec_recording *rec, struct rec_code_ranges *in,
		     struct rec_code_range *r, int32_t module);
/* The mappings of code of which it can be said where the next one has them; NULL: there are none,
 * or too many. */
struct rec_code_ranges *rec_ranges_of(struct rec_process *proc);
struct rec_code_range *rec_range_at(struct rec_code_ranges *in, uint64_t page);

/* Whether the image, which has this code so far, is of the heir's kind; then it is known which of
 * its ranges are there, */
bool rec_heir_fits(const struct rec_heir *h, const struct rec_process *proc,
		   const struct rec_code_ranges *now, bool faults);
/* and of which of them the page is: see tr_take_over(). */
uint32_t rec_heir_unit(void *ranges, uint64_t page);

/* ---- estate.c ---- */

/* Whether the image, which is about to end and has made so many fragments, leaves so much that it
 * is of use to write it down. */
bool rec_estate_wanted(struct rec_process *proc, uint64_t made);
/* What such an image has left, when nobody is going to take it over: it is written down if it is
 * worth it. Only rec_heir_free() may follow. */
void rec_estate_write(struct rec_recording *rec, struct rec_heir *h);
/* What was written down for the program whose image begins, with this code so far, if it may have
 * that: its translator is made already. NULL: nothing. */
struct rec_heir *rec_estate_find(struct rec_thread *t, const struct rec_code_ranges *now,
				 bool faults);

#endif
