/*
 * An analysis: a question to a history, which is a command of deja (cli/cmd-analysis.c).
 *
 * It is one file here and one row in analyses/table.c. The command line, the choice of threads and
 * positions, progress and errors are the same for all; what is left to an analysis is what it wants
 * to hear (struct replay_listener, replayer/pass.h), adding it up, and its answer: tables
 * (analyses/output.h), which are printed for people or as JSON, or files in other programs'
 * formats. doc/how-to-add-an-analysis.md leads through it.
 *
 * Modules are hostile input and libdw reads them, so all of it runs in a child process of the
 * command.
 */
#ifndef DEJA_ANALYSES_ANALYSIS_H
#define DEJA_ANALYSES_ANALYSIS_H

#include "analyses/functions.h"
#include "analyses/output.h"
#include "replayer/pass.h"

/* What an analysis was asked, beside its own options. */
struct ana_job {
	struct dj_trace *t;
	struct replay_pos from, to;
	bool has_from, has_to;
	bool *threads; /* by number; NULL: all */
	char **operands;
	size_t n_operands;
	struct ana_out out;
	void (*progress)(uint64_t done, uint64_t total);
	const volatile int *interrupt;	/* not 0: the user wants what there is by now */
	struct replay *volatile moving; /* is to be interrupted then, if there is one */
	struct ana_functions *functions;
	bool translate; /* passes may execute translated code */
	bool again; /* that went astray: the answer is worth nothing, the emulator has to give it */
	struct ana_file {
		const char *name;
		FILE *f;
	} files[8];		     /* that are written to: opened, in ana_create() */
	bool all;		     /* the pass under way is ana_pass_history()'s */
	bool in_order;		     /* threads are replayed one after the other, by number */
	struct replay_passed passed; /* by ana_pass() */
	bool cut;		     /* history is damaged, or was not replayed to its end */

	const struct ana_analysis *analysis;
	void *state;
	/* Another one that the same pass is to tell, and that answers first; NULL: none. */
	struct ana_job *with;
	/* Set by ana_pass(): that pass is over; and the listeners of those whose `with` this is. */
	bool was_told;
	const struct replay_listener *const *others;
	size_t n_others;
};

struct ana_option {
	const char *name;
	bool argument;
	bool is_to;  /* its argument is --to's */
	bool writes; /* its argument is a file that is written to */
};

struct ana_analysis {
	const char *name, *args, *help; /* for deja --help */
	const char *usage;		/* what it does and its own options, for --help */
	unsigned operands;		/* words that it takes, before FILE */
	struct ana_option options[16];
	bool translated; /* its passes are such as translated code can tell it of */
	bool alone;	 /* others cannot be told in the same pass */
	size_t size;	 /* of its state, which begins as zeros */
	/* One of its options, by its index. */
	int (*option)(void *state, unsigned option, const char *arg, struct dj_error *err);
	/* May be NULL: called first, while the replay may have other processes execute translated
	 * code for it. Nothing but the history is to be looked at by then. -1 with err, or 0. */
	int (*prepare)(void *state, struct ana_job *job, struct dj_error *err);
	/* -1 with err, or 0. */
	int (*run)(void *state, struct ana_job *job, struct dj_error *err);
};

/* The analysis of this name, or NULL; and the i-th. */
const struct ana_analysis *ana_find(const char *name);
const struct ana_analysis *ana_nth(size_t i);

/* The answer. Several analyses in one pass are nested: each asks for its pass from within its
 * run(), the first of them asks that of the next (job->with), and so on; the last one makes it, for
 * all, and then they answer one after the other. */
int ana_run(struct ana_job *job, struct dj_error *err);
#define ANA_TOGETHER 8 /* listeners of one pass */

/* Replay what was asked for, telling these listeners. What stopped it before the end is said in
 * job->cut and err->text, with 0 returned if there is something to show. */
int ana_pass(struct ana_job *job, const struct replay_listener *const *listeners, size_t n,
	     struct dj_error *err);
/* The same for who cannot know what happened in a part of history without what was before, and in
 * other threads: all are told of, from the beginning up to where was asked for (job->to). What of
 * it belongs to the answer (job->from, job->threads) is left to who asks. */
int ana_pass_history(struct ana_job *job, const struct replay_listener *const *listeners, size_t n,
		     struct dj_error *err);
/* A pass of an analysis' own, of which all is wanted: interrupted, it fails. */
int ana_pass_whole(struct ana_job *job, struct dj_trace *t, struct replay_pass *pass,
		   struct dj_error *err);
#define ANA_INTERRUPTED 130 /* exit status: 128 and SIGINT, as a shell has it */

/* The file that an option names, to be written to anew; NULL with err. Analyses may run where no
 * file can be made any more, so cmd_analysis() opens it before. */
FILE *ana_create(struct ana_job *job, const char *name, struct dj_error *err);
/* To be called then, for each. */
int ana_file_open(struct ana_job *job, const char *name, struct dj_error *err);

/* A whole number for an option; -1 with err. */
int ana_number(const char *option, const char *text, uint64_t least, uint64_t *value,
	       struct dj_error *err);

/* An address: a number, or a function's name, with "+OFFSET" behind it, or FILE:LINE... of the
 * modules in the trace, as ranges of code. -1 with err if it is nowhere. */
struct ana_range {
	struct replay_code code;
	uint64_t size; /* 0: the instruction there */
	bool absolute; /* code.offset is an address, in any process */
};
struct ana_ranges {
	struct ana_range *r;
	size_t n, cap;
};
int ana_ranges_add(struct ana_job *job, struct ana_ranges *ranges, const char *word,
		   struct dj_error *err);
bool ana_ranges_have(const struct ana_ranges *ranges, const struct replay_code *code,
		     uint64_t addr);
void ana_ranges_free(struct ana_ranges *ranges);

#endif
