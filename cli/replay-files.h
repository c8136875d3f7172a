/*
 * The program's files for gdb: what deja replay gives it as sysroot.
 *
 * gdb could ask the stub for them, and does so if there is no room for copies; but it announces
 * each file that it opens or only looks for, in six lines for a library without debugging
 * information, takes ten times as long to start, and does not load its scripts for a library
 * (which print C++ containers, say) from a file that is not in the file system.
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

/* The directory in it where gdb finds its scripts for the copied libraries; from the top. */
#define REPLAY_SCRIPTS ".gdb"

#endif
