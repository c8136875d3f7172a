/* What system calls wrote to memory, in a pass. */
#ifndef DEJA_ANALYSES_CALL_WRITES_H
#define DEJA_ANALYSES_CALL_WRITES_H

#include "replayer/pass.h"

/* The number of `size` bytes at an address, as the thread has seen it last. */
uint64_t ana_number_at(const struct replay_run *run, uint64_t addr, unsigned size);

/* Tell of each piece that the call wrote; of other events, and of calls that failed, of none. */
void ana_call_wrote(const struct replay_run *run, const struct replay_event *e,
		    void (*wrote)(void *ctx, uint64_t addr, uint64_t length), void *ctx);

#endif
