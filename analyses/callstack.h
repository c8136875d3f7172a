/*
 * A thread's call stack, kept while it is replayed: a frame is pushed by a call and popped by a
 * return, from any moment of the history on. Nothing is unwound, so code needs no tables.
 *
 * A frame is known by its slot, the address of its return address. Stacks grow downwards, so
 * whenever the stack pointer is seen above a frame's slot the frame is gone, however that came to
 * be: by a return, by longjmp(), by an exception, by a handler that did not return. A jump to a
 * function's beginning with the stack pointer on the top frame's slot is a tail call: its frame
 * lies on its caller's and both go at once. A thread may have several stacks (coroutines,
 * sigaltstack()): an instruction that loads the stack pointer is watched, and if it leaves the
 * stack that it is on, its frames are put aside until it comes back.
 */
#ifndef DEJA_ANALYSES_CALLSTACK_H
#define DEJA_ANALYSES_CALLSTACK_H

#include "analyses/functions.h"
#include "replayer/pass.h"

struct ana_call {
	uint64_t slot;	/* address of its return address */
	uint64_t from;	/* address of the instruction that called */
	uint64_t entry; /* address that was called */
	uint64_t steps; /* of the thread, there */
	uint32_t user;	/* what enter() returned */
	unsigned kind;
};
enum {
	ANA_CALL_CALL,
	ANA_CALL_TAIL,
	ANA_CALL_SIGNAL,
	ANA_CALL_MARKED,
	ANA_CALL_UNDER, /* no frame: a return led to where nothing is known of a call */
};

struct ana_stack;
/* Who is told; may be NULL. */
struct ana_stack_watcher {
	void *ctx;
	/* A frame is pushed and on top now (but see ANA_CALL_UNDER): returns what it is to
	 * remember. `steps`: of the thread. */
	uint32_t (*enter)(void *ctx, struct replay_run *run, const struct ana_call *call);
	/* A frame is popped; `steps` of the thread by then. */
	void (*leave)(void *ctx, struct replay_run *run, const struct ana_call *call,
		      uint64_t steps);
	/* Frames were popped, or the stack is another: this one is on top now (0: none of this
	 * stack). */
	void (*top)(void *ctx, uint32_t user, uint64_t steps);
};

struct ana_ranges;
/* What is the same for all threads. */
struct ana_stack_rules {
	struct ana_functions *functions;
	uint64_t limit;			  /* frames of a thread; 0: as many as there are */
	const struct ana_ranges *calls;	  /* instructions that are calls, and returns, though */
	const struct ana_ranges *returns; /* they do not look it; may be NULL */
};

/* At the thread's current position, with nothing known of its frames. NULL when out of memory. */
struct ana_stack *ana_stack_new(const struct ana_stack_rules *rules, struct replay_run *run,
				const struct ana_stack_watcher *watcher);
void ana_stack_free(struct ana_stack *s);

/* To be called by a listener's functions of the same names. `kinds` of edges: all but
 * REPLAY_SEE_FALL (with marks, that too: ANA_STACK_KINDS). */
#define ANA_STACK_KINDS REPLAY_SEE_BLOCKS
void ana_stack_edges(struct ana_stack *s, struct replay_run *run, const struct replay_edge *edges,
		     size_t n);
unsigned ana_stack_wants(struct ana_stack *s, struct replay_run *run, const struct insn *in);
void ana_stack_edge(struct ana_stack *s, struct replay_run *run, const struct replay_edge *edge);
void ana_stack_point(struct ana_stack *s, struct replay_run *run, const struct insn *in);
void ana_stack_event(struct ana_stack *s, struct replay_run *run, const struct replay_event *ev);

/* All of that for a listener whose data of a thread begin with its stack (struct ana_stacked), and
 * which may then have an event() of its own that calls this one's. */
struct ana_stacked {
	struct ana_stack *stack;
};
void ana_stack_listen(struct replay_listener *listener);

/* The frames of the stack the thread is on, outermost first; valid until the next call. */
size_t ana_stack_frames(const struct ana_stack *s, const struct ana_call **frames);
/* The same of the stack that the handler on this one (sigaltstack()) interrupted, if `level` is 1;
 * of the one that the handler on that one interrupted, if it is 2; 0 when there is none. */
size_t ana_stack_interrupted(const struct ana_stack *s, size_t level,
			     const struct ana_call **frames);
/* Frames that were not kept because of the limit; and the most that there were. */
uint64_t ana_stack_lost(const struct ana_stack *s);
uint64_t ana_stack_deepest(const struct ana_stack *s);

#endif
