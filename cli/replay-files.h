/*
 * The program's files for gdb: what deja replay gives it as sysroot.
 *
 * gdb could ask the stub for them, and does so if there is no room for copies; but it announces
 * each file that it opens or only looks for, in six lines for a library without debugging
 * information, and takes ten times as long to start.
 */
#ifndef DEJA_CLI_REPLAY_FILES_H
#define DEJA_CLI_REPLAY_FILES_H

#include "format/trace.h"

/*
 * Copies of the trace's modules, under their names, in a new directory: its name, a new string,
 * or NULL if there cannot be one. It goes away once this process and what it starts have ended,
 * however they end.
 */
char *replay_files(struct dj_trace *t);

#endif
