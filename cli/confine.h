/* A process that has nothing to lose: what replays a trace in translated code. */
#ifndef DEJA_CLI_CONFINE_H
#define DEJA_CLI_CONFINE_H

#include <stdbool.h>

/*
 * From now on, and for good, this process and all threads it will have can compute, take and give
 * back memory, make files that have no name, and read and write what is open or may be read: no
 * file can be changed, named or removed in any file system, no program executed, no process made,
 * looked into or sent a signal, nothing sent to anybody. What it must not do fails with EPERM.
 * False if this host does not offer that.
 */
bool cli_confine(void);

#endif
