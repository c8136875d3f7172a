/*
 * How long libdw may work, and with how much memory. What it reads is hostile: a few kilobytes of
 * debug information can describe work for days, each lookup of which seems to be an honest one. So
 * the processor time that a process spends in there is added up. It may be a minute, and more the
 * larger the modules are and the more is asked for; then the process says so, in one line, and
 * ends: there is no other way out of libdw's functions.
 */
#ifndef DEJA_ANALYSES_BUDGET_H
#define DEJA_ANALYSES_BUDGET_H

#include <stdint.h>

/* A module of so many bytes will be read. */
void ana_budget_module(uint64_t size);
/* From here on libdw works on the module of this path (NULL: whose that is will be said), in this
 * thread and in no other, until ana_budget_end() is called as often. */
int ana_budget_begin(const char *path);
void ana_budget_end(int *begun);

/* Until the end of the block. */
#define ANA_LIBDW_WORKS(path)                                                                      \
	int libdw_works_ __attribute__((cleanup(ana_budget_end), unused)) = ana_budget_begin(path)

#endif
