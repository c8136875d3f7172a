/* ^C while a replay works: it comes to an end early, and says what it has found. */
#ifndef DEJA_CLI_INTERRUPT_H
#define DEJA_CLI_INTERRUPT_H

#include "replayer/replay.h"

/* From now on ^C ends what the replay does; no more. One replay at a time. */
void cli_interruptible(struct replay *r);
void cli_uninterruptible(void);
/* Whether it came. */
bool cli_interrupted(void);

#endif
