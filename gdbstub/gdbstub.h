/*
 * Serving a replay to a debugger over the gdb remote serial protocol.
 *
 * gdbstub_serve() talks to one client on a pair of file descriptors (which may be the same
 * socket) until it detaches, kills the program or goes away. Everything it knows of the
 * recording comes from the replay interface.
 */
#ifndef DEJA_GDBSTUB_GDBSTUB_H
#define DEJA_GDBSTUB_GDBSTUB_H

#include "format/error.h"
#include "replayer/replay.h"

/* `looks_again`: the client looks at registers and memory anew after a "monitor" command, so that
 * such a command may move the replay at once. */
int gdbstub_serve(struct replay *r, int in, int out, bool looks_again, struct dj_error *err);

#endif
