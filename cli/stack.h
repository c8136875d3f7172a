/*
 * Call stacks as the commands show them, and the process of its own in which they are found: tables
 * and debug information come from the trace, and libraries read them that were not written for
 * those who mean harm.
 */
#ifndef DEJA_CLI_STACK_H
#define DEJA_CLI_STACK_H

#include "analyses/symbols.h"
#include "cli/json.h"

struct stack_output {
	struct replay *r;
	struct ana_symbols *symbols;
	size_t limit; /* frames */
	const char *indent;
	struct json *json; /* NULL: for people */
};

/* The frames of the selected thread at the moment: lines, or in JSON what is in an array. False
 * with a sentence in `why` if there can be none; else `why` is NULL or says why they end. */
bool stack_frames(struct stack_output *o, const char **why);

/* Run this in a child process; its exit status. If it dies, that is said. */
int stack_apart(int (*run)(void *ctx), void *ctx);

/* In a process of its own, the stack of thread `thread` after `steps` of its instructions, or as
 * near before that as the replay comes, under a line that begins with `title`; in JSON the members
 * of an object that is open. What cannot be found is left out. */
void stack_report(const char *path, uint32_t thread, uint64_t steps, const char *title,
		  struct json *json);

#endif
