/*
 * Processes of their own that execute generated code for a debugger: ground.h, land.h.
 *
 * Such a process begins as a copy of this one, and is confined (doc/security.md). It answers
 * through a pipe, with messages as wire.h has them; what it says is checked as a trace is.
 */
#ifndef DEJA_REPLAYER_WORKER_H
#define DEJA_REPLAYER_WORKER_H

#include "replayer/replay-internal.h"

struct rp_worker {
	pid_t pid;
	int to, from; /* what it is asked, and what it answers; -1: none */
	uint8_t *in;  /* what came of the message under way */
	size_t n, cap;
};

/* Whether processes can be had at all, for the thread in hand as it is. */
bool rp_worker_possible(const struct replay *r);
/* How many there are. */
unsigned rp_workers(void);
/* Begin one: `work` is called in it, and does not return. */
bool rp_worker_start(struct rp_worker *w, struct replay *r,
		     void (*work)(struct replay *r, int in, int out));
void rp_worker_end(struct rp_worker *w);
/* Ask it something. */
bool rp_worker_ask(struct rp_worker *w, const void *question, size_t size);

enum rp_worker_said { WORKER_SAID, WORKER_OVER, WORKER_BUSY };
/* Wait until a message is there, of *length bytes at w->in, or it has ended, or somebody waits for
 * something else (busy says so; NULL: somebody has interrupted). */
enum rp_worker_said rp_worker_wait(struct rp_worker *w, struct replay *r, uint64_t *length,
				   bool (*busy)(void *ctx), void *ctx);
/* The message has been read. */
void rp_worker_next(struct rp_worker *w, uint64_t length);

/* In the process: get ready, with the thread in hand in generated code. Does not come back if that
 * cannot be. `to` and `from` stay open. */
void rp_work_begin(struct replay *r, int to, int from);
/* Whether all of it could be said, and whether all of a question came. */
bool rp_work_say(int fd, const void *bytes, size_t n);
bool rp_work_hear(int fd, void *to, size_t n);

#endif
