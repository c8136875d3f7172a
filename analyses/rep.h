/*
 * deja rep in parts: the counts and the command (rep.c), and the records one by one (rep-log.c).
 */
#ifndef DEJA_ANALYSES_REP_H
#define DEJA_ANALYSES_REP_H

#include "analyses/analysis.h"

enum rep_kind {
	REP_DONE,	 /* all iterations that were asked for */
	REP_CONDITION,	 /* ended by REPE's or REPNE's condition */
	REP_INTERRUPTED, /* left for a signal's handler */
	REP_BRANCH,	 /* no REP instruction, but a branch that was taken */
	REP_REACHED,	 /* as many occurrences as were waited for */
};

struct rep_record {
	struct replay_pos pos; /* before it */
	enum rep_kind kind;
	struct replay_code from, to; /* to: of a branch */
	uint64_t from_address, to_address;
	uint64_t asked, done; /* iterations */
};

/* What to do when a thread's buffer is full. */
enum rep_full { REP_FLUSH, REP_STOP, REP_OVERWRITE };

struct rep_log {
	struct ana_job *job;
	bool on, branches;
	enum rep_full full;
	uint64_t size; /* records in the buffer of a thread */
	bool any;      /* something has been printed */
};

struct rep_buffer;
/* Of a thread; NULL when out of memory. */
struct rep_buffer *ana_rep_buffer_new(struct rep_log *log);
/* Keep it, or what is to be done with a full buffer. */
void ana_rep_buffer_add(struct rep_buffer *b, struct replay_run *run, const struct rep_record *r);
/* Print what it has, and free it. */
void ana_rep_buffer_end(struct rep_buffer *b, struct replay_run *run);
/* Behind all threads. */
void ana_rep_log_end(struct rep_log *log);

#endif
