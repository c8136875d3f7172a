/* A profile, as its listener leaves it and its writers take it (analyses/profile*.c). */
#ifndef DEJA_ANALYSES_PROFILE_H
#define DEJA_ANALYSES_PROFILE_H

#include "analyses/analysis.h"
#include "analyses/calltree.h"
#include "analyses/tally.h"

#define ANA_PROFILE_DEEPEST 200u  /* calls of a path in graphs, and in files of paths */
#define ANA_BINS	    1024u /* of the time line */
#define ANA_MOMENTS	    2000u /* events of a thread that are kept one by one */

/* What a thread did in a part of the time line. */
struct ana_bin {
	uint64_t instructions, calls, signals;
};

struct ana_moment {
	uint64_t at;	/* on the time line */
	int32_t signal; /* or 0 */
	uint32_t call;
	char pos[48];
};

struct ana_lane {
	uint32_t thread;
	int32_t tid, pid;
	char name[32];
	uint64_t instructions, calls, signals;
	bool timed;
	uint64_t first, width; /* of the bins: microseconds, or numbers of ordered events */
	struct ana_bin bin[ANA_BINS];
	struct ana_moment *moment;
	size_t moments;
	struct ana_lane *next;

	/* while it grows: */
	struct ana_when *when;
	uint64_t begin, last; /* instructions: at its beginning, and told of */
};
/* profile-lanes.c: at the thread's current position; NULL when out of memory. */
struct ana_lane *ana_lane_new(struct replay_run *run);
void ana_lane_event(struct ana_lane *l, struct replay_run *run, const struct replay_event *ev);
void ana_lane_end(struct ana_lane *l, struct replay_run *run);

/* A function, a source line or an instruction. */
struct ana_sum {
	const struct ana_function *fn;
	const char *file;
	int line;
	struct replay_code code;
	uint64_t self, inclusive, calls;
};

struct ana_profile {
	struct ana_job *job;
	struct ana_stack_rules rules;
	struct ana_ranges calls, returns;
	struct ana_tally count;	      /* n[0]: executions */
	struct ana_tree tree, merged; /* by call; and by function alone */
	struct ana_lane *lanes;	      /* by number of the thread, once it is done */
	uint64_t total;
	const char *unit; /* of what is counted; NULL: instructions */
	bool failed;
	uint64_t lost, deepest;
};

/* Sums by function, or by line, or by instruction, the largest first: a new array, NULL when out of
 * memory. */
enum ana_by { ANA_BY_FUNCTION, ANA_BY_LINE, ANA_BY_INSTRUCTION, ANA_BY_INLINED };
struct ana_sum *ana_profile_sums(struct ana_profile *p, enum ana_by by, size_t *n);
/* By function, those that were inlined as well; in no order, and in several parts
 * (profile-inline.c). */
struct ana_sum *ana_profile_inlined(struct ana_profile *p, size_t *n);
/* "FILE:LINE", or "" */
void ana_line_text(const char *file, int line, char *buf, size_t size);
/* How a node is called in a path. */
void ana_node_text(const struct ana_profile *p, const struct ana_node *n, char *buf, size_t size);

void ana_profile_callgrind(struct ana_profile *p, FILE *f);
void ana_profile_folded(struct ana_profile *p, FILE *f);
void ana_profile_speedscope(struct ana_profile *p, FILE *f);
void ana_profile_svg(struct ana_profile *p, FILE *f);
void ana_profile_html(struct ana_profile *p, FILE *f);

#endif
