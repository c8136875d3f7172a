/*
 * Checkpoints as bytes: from the process that covers ground in generated code (ground.h) to the one
 * that serves a debugger.
 *
 * Who reads does not trust who wrote: all that is in a message is checked as a trace is, and what
 * a message makes the reader keep is not much larger than the message.
 */
#ifndef DEJA_REPLAYER_WIRE_H
#define DEJA_REPLAYER_WIRE_H

#include "replayer/checkpoint.h"

struct rp_wire {
	uint8_t *bytes;
	size_t n, cap;
	bool failed;   /* no memory */
	bool relative; /* of a page's bytes what differs from those before: packs better */
};

#define RP_WIRE_HEAD 16u		 /* bytes after which a message's length is known */
#define RP_WIRE_MOST ((uint64_t)2 << 30) /* longer ones are not believed */
/* What a page that changes takes at most of who reads that, in bytes, besides what it has: in a
 * message it may take nine. */
#define RP_WIRE_PAGE 160u

/* Messages of RP_WIRE_HEAD bytes: that was all, and it is as it was asked for, or not. */
extern const uint8_t rp_wire_good[RP_WIRE_HEAD], rp_wire_bad[RP_WIRE_HEAD];

/* The length of a message that begins so; 0: it is none. */
uint64_t rp_wire_length(const uint8_t head[RP_WIRE_HEAD]);

/* Changes when messages do: who has another one cannot read them. */
uint64_t rp_wire_layout(void);

/* The message for a checkpoint; `before`: the mappings in the message before this one, or those
 * that both sides began with. */
void rp_wire_put(struct rp_wire *w, const struct rp_checkpoint *c, struct emu *e,
		 const struct rp_space *before);

/* A checkpoint from a whole message, for this thread; NULL: it makes no sense, or there is no
 * memory. Of its changes only what is afterwards is known: `was` gives the version before. */
struct rp_checkpoint *rp_wire_get(const uint8_t *bytes, size_t n, struct rp_thread *th,
				  struct rp_space *before, void *(*was)(void *ctx, uint64_t key),
				  void *ctx);

#endif
