/*
 * Which process of the kernel's a thread was of. That is the one that its memory is of, but for a
 * child that executes in its parent's memory until its exec (vfork): in a recording it is a thread
 * there until then, and its process has nothing but a number.
 */
#ifndef DEJA_ANALYSES_GROUPS_H
#define DEJA_ANALYSES_GROUPS_H

#include "format/error.h"
#include "format/trace.h"

#include <stdint.h>

/* By thread, indices of processes: a new array. What comes behind a malformed fact is not known.
 * NULL with err when out of memory. */
uint32_t *ana_groups(struct dj_trace *t, struct dj_error *err);

/* The thread that the process with this number is in the memory of process `memory`, or -1: none
 * was. */
int ana_group_thread(const struct dj_trace *t, const uint32_t *groups, uint32_t memory,
		     uint64_t pid);

#endif
