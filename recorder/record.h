/* Recording a program: the recorder's interface to the command line. */
#ifndef DEJA_RECORDER_RECORD_H
#define DEJA_RECORDER_RECORD_H

#include "format/error.h"
#include "format/trace.h"

#include <stdbool.h>
#include <stdint.h>

struct rec_options {
	const char *output; /* path of the trace file */
	enum dj_predict predict;
	uint32_t memory_model;	  /* enum dj_order */
	uint64_t digest_interval; /* instructions; 0 takes the default */
	bool share;		  /* modules, with other recordings in the directory of `output` */
	uint64_t call_data;	  /* bytes kept of what a system call wrote, for a debugger */
	bool follow;		  /* processes that the program starts are recorded, too */
	bool verbose;		  /* statistics on stderr at the end */
};

#define REC_DIGEST_INTERVAL 10000000u
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
