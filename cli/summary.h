/*
 * What a trace adds up to: records by kind, instructions recorded by side effects, how the
 * threads ended. Found by walking all records once.
 */
#ifndef DEJA_CLI_SUMMARY_H
#define DEJA_CLI_SUMMARY_H

#include "format/mappings.h"
#include "format/trace.h"

/* Instructions recorded by side effects, of one mnemonic and for one reason. */
struct summary_effect {
	char mnemonic[24];
	uint8_t why;
	uint64_t count;
};

/* A place with such instructions: in a module, at this offset in its file; or else (`module` -1) at
 * this address. */
struct summary_place {
	int32_t module;
	uint64_t at;
	uint64_t count;
};

struct summary_thread {
	const struct dj_thread_info *info;
	uint64_t steps; /* instructions in the trace */
	bool exited;	/* its last record is EXIT, with: */
	int32_t status;
	char *stopped;		       /* the reason if its last record is END, else NULL */
	int64_t first_time, last_time; /* nanoseconds since 1970 at the marks there, or 0 */
};

struct summary_process {
	const struct dj_process_info *info;
	size_t threads;
	uint64_t steps;	     /* instructions of all of them */
	uint64_t unfollowed; /* children that are not recorded */
	int64_t first_time, last_time;
	const struct summary_thread *first;   /* the one with the process's number, or NULL */
	const struct summary_thread *stopped; /* one whose recording ended before it, or NULL */
	struct dj_mappings modules;	      /* which is where */
	char *command;			      /* that image's command line, or NULL */
	char *image;			      /* what it executed last, or NULL: what it began as */
};

struct summary {
	uint64_t steps, records;
	uint64_t by_kind[DJ_REC_KINDS];
	struct summary_thread *threads;
	size_t nthreads;
	struct summary_process *processes;
	size_t nprocesses;
	struct summary_effect *effects; /* most frequent first */
	size_t neffects;
	struct summary_place *places; /* likewise */
	size_t nplaces, cap_places;
};

/* -1 with err on malformed records: what was found up to there is in `s` all the same. */
int summary_make(struct summary *s, struct dj_trace *t, struct dj_error *err);
void summary_free(struct summary *s);

/* How a process ended ("exited with status 3"...), or its recording. The first is what the whole
 * recording is about. */
void summary_end_text(const struct summary *s, const struct dj_trace *t, size_t process, char *buf,
		      size_t size);

/* The command line of a process as a shell would take it, or as much as is known of it; a new
 * string. */
char *summary_command(const struct summary *s, const struct dj_trace *t, size_t process);

#endif
