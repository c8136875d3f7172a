/* Counters, as their listener leaves them and the answer takes them (analyses/count*.c). */
#ifndef DEJA_ANALYSES_COUNT_H
#define DEJA_ANALYSES_COUNT_H

#include "analyses/analysis.h"
#include "analyses/callstack.h"
#include "analyses/tally.h"
#include "analyses/variable.h"

#define COUNT_DATA    16u   /* ranges of data, and of each other option */
#define COUNT_FRAMES  24u   /* of a report */
#define COUNT_REPORTS 1000u /* that are kept */

/* Of an instruction: n, and user. Addresses are known only while the history is gone through, so
 * which --code words it was in, there, is a part of its place: a bit each, as the offset of `b`. */
enum { COUNT_EXECUTED };
/* Of an instruction that a --code word has, whose number is the offset of `b`: branches to it, and
 * those of them from what the word has not. */
enum { COUNT_BRANCHED, COUNT_FROM_OUTSIDE };
enum {
	COUNT_BRANCHES = 1,
	COUNT_CALLS = 2,
	COUNT_RETURNS = 4,
	COUNT_STRINGS = 8,
	COUNT_MEMORY = 16,
	COUNT_VECTOR = 32,
	COUNT_UNALIGNED = 64,
};
enum { W_CODE, W_DATA, W_START, W_STOP, W_ALL };

struct count_report {
	struct replay_pos pos;
	struct replay_code code[COUNT_FRAMES]; /* innermost first */
	size_t n, more;
	struct count_report *next;
};

struct count {
	struct ana_job *job;
	struct replay_listener listener;
	struct ana_stack_rules rules;
	const char *word[W_ALL][COUNT_DATA];
	size_t n_word[W_ALL];
	struct ana_ranges code, start, stop;
	struct ana_ranges code_of[COUNT_DATA]; /* each word of `code` */
	struct ana_place_ranges data[COUNT_DATA];
	size_t n_data;
	unsigned types;
	uint64_t threshold, limit, hot;
	const char *by, *callers;

	struct ana_tally item, into;
	uint64_t accesses[COUNT_DATA][2];
	uint64_t whole, times, reports;
	struct count_report *report; /* by position, the first COUNT_REPORTS */
	size_t n_reports;
};

void ana_count_add_report(struct count *o, struct count_report *r);
/* -1 when out of memory. */
int ana_count_print(struct count *o);
/* The whole of --callers. */
int ana_count_callers(struct count *o, struct dj_error *err);

#endif
