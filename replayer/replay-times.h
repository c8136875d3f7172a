/* Positions by time (replay-times.c): going to one, as replay_goto_text() has it. */
#ifndef DEJA_REPLAYER_REPLAY_TIMES_H
#define DEJA_REPLAYER_REPLAY_TIMES_H

#include "replayer/replay.h"

int rp_goto_time(struct replay *r, const char *text, struct dj_error *err);

#endif
