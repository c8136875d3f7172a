/*
 * What a process has mapped where threads of it begin, for threads that are replayed each for
 * itself.
 */
#ifndef DEJA_REPLAYER_STARTS_H
#define DEJA_REPLAYER_STARTS_H

#include "format/trace.h"

struct rp_starts;
struct rp_thread;

/* NULL if there is no memory, which only takes time. */
struct rp_starts *rp_starts_new(struct dj_trace *t);
void rp_starts_free(struct rp_starts *s);
/* The thread, which has not begun, may begin with what is known, each time that it does, and adds
 * to it. */
void rp_starts_use(struct rp_starts *s, struct rp_thread *th);
/* It begins now. */
void rp_starts_begin(struct rp_thread *th);

#endif
