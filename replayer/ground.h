/*
 * Covering ground: history that nobody has gone through yet, gone through by a process of its own
 * in generated code, ten times as fast as the emulator does it.
 *
 * What a debugger needs of ground that it only passes is little: checkpoints, and what is known of
 * the intervals between them (checkpoint.h, lines.h). Who lands in an interval has the emulator go
 * through it again from the checkpoint before. So another process, begun as a copy of this one at a
 * thread's last checkpoint, goes on from there to the end of the thread's history, and hands back
 * checkpoints through a pipe (wire.h): as many full ones as the budget has room for, and light ones
 * between. It waits when the pipe is full, so it goes on while nobody
 * reads, and costs nothing when everything has been read.
 *
 * Generated code is executed there and nowhere else: that process is confined (doc/security.md),
 * and what it says is checked as a trace is. It hands back what a digest of the recording has
 * confirmed. If something goes wrong in generated code it takes a step back and emulates; if that
 * goes wrong too it ends, and whoever wants to know what is there replays it himself.
 */
#ifndef DEJA_REPLAYER_GROUND_H
#define DEJA_REPLAYER_GROUND_H

#include "replayer/replay-internal.h"

struct rp_ground;

/* Whether the thread in hand has, or now gets, somebody who covers the ground behind its last
 * checkpoint. It may move to there and back. */
bool rp_ground_have(struct replay *r);
/* Whether that is so, or could be. */
bool rp_ground_likely(const struct replay *r);
/* Wait for one more checkpoint of the thread in hand: true, there is one. False: there will be none
 * any more, or somebody waits (busy says so; NULL: somebody has interrupted, r->cancelled). */
bool rp_ground_more(struct replay *r, bool (*busy)(void *ctx), void *ctx);
/* Cover the ground of the thread in hand up to there, as far as that goes. False: interrupted. */
bool rp_ground_cover(struct replay *r, const struct rp_thread_pos *to);
/* Of known ground have full checkpoints made, from the full one list[n - 1] on, and wait until they
 * come up to `to`, or somebody waits (as above). The thread may be elsewhere then. Who covers
 * ground is not sent away for that. True: there is more to come up to `to`, but somebody waits. */
bool rp_ground_fill(struct replay *r, size_t n, const struct rp_thread_pos *to,
		    bool (*busy)(void *ctx), void *ctx);
/* Whether the last process that was begun for the thread in hand has gone on from the checkpoint
 * list[n - 1], or there is none: then there is no room for more full ones behind it. */
bool rp_ground_filled(const struct replay *r, size_t n);
/* How far apart full checkpoints must be that more are made. There may be no room for denser ones.
 */
uint64_t rp_sparse(const struct replay *r);
void rp_ground_free(struct rp_ground *g);

/* ground-work.c: in the process of its own. Answers go to `fd`. */
_Noreturn void rp_ground_work(struct replay *r, int in, int fd);

#endif
