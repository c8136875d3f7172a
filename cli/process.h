/*
 * Processes of a recording by number or by name: that of a thread when it began, or of a program
 * that was executed.
 */
#ifndef DEJA_CLI_PROCESS_H
#define DEJA_CLI_PROCESS_H

#include "format/trace.h"

/* The process, and its first thread. Of several with one name it is the first, and a message says
 * so. -1 with err if there is none. */
int cli_find_process(struct dj_trace *t, const char *word, uint32_t *process, uint32_t *thread,
		     struct dj_error *err);

#endif
