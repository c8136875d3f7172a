/* The profile of branches, as its listener leaves it and its writers take it (analyses/edges*.c).
 */
#ifndef DEJA_ANALYSES_EDGES_H
#define DEJA_ANALYSES_EDGES_H

#include "analyses/analysis.h"
#include "analyses/tally.h"

#include <limits.h>

/* Of a branch: ana_item's n, and user. */
enum { EDGE_TAKEN, EDGE_NOT, EDGE_SEEN_TAKEN, EDGE_SEEN_NOT };
enum { EDGE_COND = 1, EDGE_CALL = 2, EDGE_RET = 4, EDGE_INDIRECT = 8, EDGE_LENGTH = 256 };

struct ana_edges {
	struct ana_job *job;
	struct ana_tally count;	 /* executions of instructions */
	struct ana_tally branch; /* by branch */
	struct ana_tally edge;	 /* by branch and target: n[0] */
	uint64_t samples;
	bool failed;
};

void ana_edges_bolt(struct ana_edges *e, FILE *f);
void ana_edges_clang(struct ana_edges *e, FILE *f);
void ana_edges_gcc(struct ana_edges *e, FILE *f);

#define EDGES_ENTRY UINT_MAX /* instead of a line: how often the function was entered */

/* A source line of a function, counted from the function's own. */
struct edges_body {
	char *function; /* as the compiler has it */
	unsigned line, discriminator;
	uint64_t count;
	char *callee; /* a call there, and its count; or NULL */
};

struct edges_bodies {
	struct ana_edges *e;
	struct edges_body *b; /* by function and line, entries last */
	size_t n, cap;
	bool failed;
};
/* What the lines of all functions that were executed come to; and to give it back. */
void ana_edges_collect(struct edges_bodies *k);
void ana_edges_collected(struct edges_bodies *k);
void ana_edges_callgrind(struct ana_edges *e, FILE *f);

#endif
