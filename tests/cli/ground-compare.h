/* What tests/cli/replay-ground.c compares at each checkpoint. */
#ifndef DEJA_TESTS_GROUND_COMPARE_H
#define DEJA_TESTS_GROUND_COMPARE_H

#include "replayer/replay-internal.h"

extern unsigned bad; /* so much differs; of the first some is said what */
void differs(const struct rp_checkpoint *c, const char *what, uint64_t where);

/* Both stand there, `slow` has just taken a checkpoint, and `quick` has this one. */
void compare_checkpoint(const struct rp_checkpoint *c, struct replay *quick, struct replay *slow);

#endif
