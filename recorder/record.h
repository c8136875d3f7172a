/* Recording a program: the recorder's interface to the command line. */
#ifndef DEJA_RECORDER_RECORD_H
#define DEJA_RECORDER_RECORD_H

#include "format/error.h"
#include "format/trace.h"

#include <stdbool.h>
#include <stdint.h>

/* How far it is from one keyframe to the next. */
struct rec_interval {
	enum { REC_INSTRUCTIONS, REC_EVENTS, REC_NANOSECONDS, REC_TRACE_BYTES } unit;
	uint64_t n; /* 0: there are none */
};

struct rec_options {
	const char *output; /* path of the trace file */
	enum dj_predict predict;
	uint32_t memory_model;	  /* enum dj_order */
	bool randomize;		  /* addresses are other ones each time (layout.c) */
	bool exact_flags;	  /* arithmetic flags are the program's even where they are dead */
	uint64_t digest_interval; /* instructions; 0 takes the default */
	struct rec_interval keyframes, full_keyframes;
	/* That is the least, and they are not to cost much. In instructions. */
	bool keyframes_cheap, full_keyframes_cheap;
	uint64_t shadow_memory; /* bytes that shadows take before those of threads that
				   sleep are emptied; 0: no limit */
	bool share;		/* modules, with other recordings in the directory of `output` */
	uint64_t call_data;	/* bytes kept of what a system call wrote, for a debugger */
	bool follow;		/* processes that the program starts are recorded, too */
	/* Told, if it is not NULL, when the first process has ended and others go on. */
	void (*first_ended)(int status);
	const char *cache; /* directory for what later recordings need not do again, or NULL */
	bool cache_asked;  /* by the user: if it cannot be used, that is said */
	bool verbose;	   /* statistics on stderr at the end */
};

/* What is sensible on this machine. */
uint64_t rec_shadow_memory(void);

#define REC_DIGEST_INTERVAL 10000000u
#define REC_KEYFRAMES	    500000000u
#define REC_CALL_DATA	    400u /* the largest structure that a call fills, uname's, has 390 bytes */
#define REC_CALL_DATA_MAX   (1u << 20)

/* What came of it. */
struct rec_result {
	int status;	       /* the wait(2) status the program ended with */
	bool cut;	       /* recording had to end before the program did: `err` says why */
	bool went_on;	       /* unrecorded, then; `err` has been said */
	uint64_t instructions; /* recorded */
};

/*
 * Run `file` (a path, already looked up) with the arguments and environment given, recording it.
 * Returns 0, or -1 with `err`; in that case nothing is left running. If recording had to end before
 * the program did, the trace is intact up to there.
 */
int rec_program(const char *file, char *const argv[], char *const envp[],
		const struct rec_options *opt, struct rec_result *result, struct dj_error *err);

#endif
