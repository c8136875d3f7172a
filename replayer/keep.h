/*
 * What a replay has found out, kept beside the trace (format/index.h): its checkpoints, light ones
 * with the lines that were met between them, and of some of them the memory.
 *
 * What is read back is not trusted more than the trace is, and what the trace says counts: when the
 * thread diverges from its records after it was put to a checkpoint that comes from there, nothing
 * from there is used any more, and the thread replays from its beginning.
 */
#ifndef DEJA_REPLAYER_KEEP_H
#define DEJA_REPLAYER_KEEP_H

#include "replayer/replay-internal.h"

/* Take in what is kept of the thread in hand, which is at its beginning. */
void rp_keep_load(struct replay *r);
/* The thread in hand has gone wrong. If it may have come from what was kept, that is given up, the
 * thread is at `to` now, or as near as it gets, and the answer is true. */
bool rp_keep_refuse(struct replay *r, const struct rp_thread_pos *to);

#endif
