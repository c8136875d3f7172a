/*
 * What the commands that ask questions of a history share: the options for a part of it, a process
 * of its own for the answer, since debug information in a trace may be made to harm, ^C, and how
 * answers are shown.
 */
#ifndef DEJA_CLI_QUERY_H
#define DEJA_CLI_QUERY_H

#include "analyses/places.h"
#include "analyses/symbols.h"
#include "cli/json.h"

#include <getopt.h>

struct query {
	const char *command, *word[2]; /* what stands before FILE */
	const char *from, *to;
	uint64_t tid, pid, limit;
	bool json, truncated;
	uint64_t shown;
	/* in the process that answers */
	struct replay *r;
	struct ana_part part;
	struct ana_symbols *symbols;
	struct json out;
	void *own; /* the command's */
};

struct query_command {
	const char *name, *usage; /* usage: what comes before the common options */
	unsigned words;
	const char *lacks; /* what is said when words are missing */
	const struct option *options;
	const char *letters; /* of short options, ":h" and its own; NULL: none */
	/* One of its own options; false: not a good argument. */
	bool (*option)(struct query *q, int c, const char *arg);
	/* Answers. -1 with err, 1 if it was interrupted. */
	int (*run)(struct query *q, struct dj_error *err);
	bool no_array; /* JSON is not an array of answers, but what `run` makes of it */
};

int query_main(const struct query_command *c, void *own, int argc, char **argv);

/* Begin an answer: its position as the first column, or in JSON an object with "position". False if
 * there have been enough. */
bool query_begin(struct query *q, const struct replay_pos *pos);
void query_end(struct query *q);

#endif
