/*
 * One thread of a trace being replayed: an emulator, a cursor over the thread's records, and
 * the rules by which records change the emulated thread.
 *
 * A thread is always at a position (steps, signals, rep): instructions executed, signals
 * delivered since the last of them, iterations done of the REP instruction under way;
 * positions compare in that order. At a position every record that has its place before
 * the next instruction and takes no step has been applied (mappings, code, registers), except
 * a SIGNAL, whose delivery is a step of its own, and IMPORTs, which wait for the
 * instruction they belong to.
 *
 * Verification runs a thread without a memory view (mem is NULL) and at full speed. For
 * a debugger, replay.c gives it one (memview.h), through which every access and import goes.
 */
#ifndef DEJA_REPLAYER_THREAD_H
#define DEJA_REPLAYER_THREAD_H

#include "format/trace.h"
#include "replayer/patience.h"
#include "replayer/space.h"
#include "emu/emu.h"
#include "fast/fast.h"
#include "replayer/replay.h"

#include <pthread.h>

struct rp_memview;
struct rp_thread;

/* Who is told, in a pass, of accesses (if `access` is not NULL: needs EMU_HOOK_TRACK) and of
 * records before they are applied. */
struct rp_hearer {
	void *ctx;
	void (*access)(void *ctx, uint64_t addr, unsigned size, bool write, const uint8_t *bytes);
	void (*record)(void *ctx, const struct dj_record *r);
};

struct rp_thread_import {
	uint8_t ordinal;
	uint64_t addr;
	uint8_t line[DJ_LINE];
};

/* Why rp_thread_run() came back. */
enum rp_thread_stop {
	THREAD_LIMIT,	    /* at the wanted position */
	THREAD_EVENT,	    /* before or after an event it was asked to stop at: th->event */
	THREAD_BREAK,	    /* e->stop_at said yes */
	THREAD_REQUEST,	    /* e->stop_requested was set by a hook */
	THREAD_END,	    /* at the end of the thread's history */
	THREAD_FAILED,	    /* divergence (th->div.found), damage or no memory; th->err says what */
	THREAD_INTERRUPTED, /* somebody wants it to stop, wherever it is */
};

/* Events rp_thread_run() stops at if asked; before the event unless it says otherwise. */
enum {
	THREAD_EV_SYSCALL = 1, /* before a system call */
	THREAD_EV_RETURN = 2,  /* after it */
	THREAD_EV_SIGNAL = 4,  /* before a signal's delivery */
	THREAD_EV_EXEC = 8,    /* after the image was replaced */
	THREAD_EV_FORK = 16,   /* after a child was made: th->fork_pid */
	THREAD_EV_ORDER = 32,  /* before an ordered event, as th->seq_stop says; always */
};

/* From ordered events counted in the thread to their numbers. Each is the last plus one, but where
 * a record says otherwise: then the events up to the count `from` end with number `last`, and the
 * next has the number `next`. */
struct rp_numbers {
	uint64_t from, last, next;
};

struct rp_thread {
	struct dj_trace *trace;
	size_t index;
	const struct dj_thread_info *info;
	struct emu *e;
	struct fast *fast; /* NULL: the emulator executes everything */
	struct rp_space *space;
	struct rp_starts *starts; /* starts.h; NULL: it begins without */
	struct rp_space_names *names;
	struct rp_memview *mem;

	struct dj_cursor *cur;
	const struct dj_record *next; /* not yet applied; NULL at the end of the stream */
	struct dj_mark first_mark, next_mark, imports_mark; /* before the first record, next,
							     * the first of imports[] */
	bool damaged;		   /* the stream ended in damage: th->err */
	uint64_t here_steps, here; /* records read with their place at here_steps */

	pthread_mutex_t
		*shared;   /* whoever looks into the trace for code has it; NULL: nobody else */
	uint64_t unpacked; /* bytes of the trace's modules, when last looked at */

	struct rp_patience *patience; /* NULL: it has no end */
	uint64_t mapped, grown;	      /* bytes: all mappings it has made; the stack below its own */
	/* It has been put to a checkpoint, and may not have applied what lies before that. Then it
	 * counts what its process maps in all of the trace, once that was asked for. */
	bool jumped, asked;
	uint64_t mapped_ever;
	enum rp_thread_stop halted; /* what a callback found that the emulator is to stop for */
	bool unsettled; /* interrupted before all records of the position were applied */

	struct rp_thread_import *imports; /* for the next instruction or iteration */
	size_t nimports, imports_cap, used;
	uint64_t imports_rep;

	uint64_t events, event_steps; /* system calls and signals so far; e->steps after the last */
	struct rp_numbers numbers;
	uint64_t order;	  /* number that the instruction here gives the thread, or 0 */
	uint32_t signals; /* delivered at e->steps */
	uint64_t signals_total;
	uint64_t forks;	     /* children made */
	uint64_t end_steps;  /* history reaches here */
	bool ordered_fences; /* memory model 2: they are ordered events */
	bool copy;	     /* a throw-away copy: no records any more */
	/* in a copy: answer the system call at rip, if that can be done */
	bool (*answer)(void *ctx, uint64_t *result);
	void *answer_ctx;
	uint64_t resume_steps; /* stop_at is not to stop here: it has been asked */
	uint64_t seq_stop; /* rp_thread_run() stops before events of this number or a higher one */
	uint64_t seq_safe; /* of which there is none before these e->steps; 0: nothing is known */
	/* A part of its history, between keyframes: rp_thread_part(). */
	size_t from;	/* keyframe that it begins with, or RP_NO_KEYFRAME */
	uint64_t ahead; /* keyframes to come until it ends; UINT64_MAX: it goes on to the end */
	uint64_t (*extend)(
		void *ctx); /* at its end: as many more, or 0 if it is over; may be NULL */
	void *extend_ctx;
	uint64_t begin_steps; /* where it begins */
	bool late;	      /* it begins with a keyframe; what came before is not known */
	bool blank;	      /* and that has not been read yet */
	bool over;	      /* the keyframe that ends it was passed */
	bool exited;	      /* EXIT was passed */
	int32_t status;

	unsigned event;				    /* after THREAD_EVENT */
	bool call_passed, exec_passed, fork_passed; /* to get to this position */
	int32_t fork_pid;
	uint32_t fork_what;
	uint64_t sysno;			  /* THREAD_EV_SYSCALL, _RETURN */
	uint64_t last_sysno, last_result; /* of the last system call passed */
	struct replay_observer observer;  /* told of edges unless e->unseen */
	const struct rp_hearer *hearer;	  /* told of more; NULL: nobody */
	uint64_t count_imports, count_effects, count_digests;
	uint64_t count_flags, count_memory; /* compared: so many times; bytes */
	struct replay_divergence div;
	struct dj_error err;
};

struct rp_thread_pos {
	uint64_t steps, rep;
	uint32_t signals;
};

static inline int rp_thread_pos_cmp(const struct rp_thread_pos *a, const struct rp_thread_pos *b)
{
	if (a->steps != b->steps)
		return a->steps < b->steps ? -1 : 1;
	if (a->signals != b->signals)
		return a->signals < b->signals ? -1 : 1;
	return a->rep < b->rep ? -1 : a->rep > b->rep;
}

/* At the beginning of the thread's history. NULL with err on failure. */
struct rp_thread *rp_thread_new(struct dj_trace *t, size_t index, struct rp_space_names *names,
				struct dj_error *err);
void rp_thread_free(struct rp_thread *th);

/* Execute in translated code from now on, where nobody watches; false if that cannot be. */
bool rp_thread_translate(struct rp_thread *th);
/* Whom to tell of edges; NULL: nobody. */
void rp_thread_observe(struct rp_thread *th, const struct replay_observer *o);
/* Before rp_thread_begin(): only the part of its history from keyframe `from` up to keyframe `to`,
 * registers there included; RP_NO_KEYFRAME: from its beginning, to its end. */
#define RP_NO_KEYFRAME SIZE_MAX
void rp_thread_part(struct rp_thread *th, size_t from, size_t to);
/* Apply what belongs to the beginning; call once after rp_thread_new (and setting mem). */
enum rp_thread_stop rp_thread_begin(struct rp_thread *th);
/* Go back to the beginning, with everything as after rp_thread_begin(). */
enum rp_thread_stop rp_thread_restart(struct rp_thread *th);

void rp_thread_pos(const struct rp_thread *th, struct rp_thread_pos *pos);
/* The position as people see it: number of the last ordered event, instructions since. */
void rp_thread_seq(const struct rp_thread *th, uint64_t *seq, uint64_t *within);
/* The number of its next ordered event, if there is one. What a record says of it is known once the
 * thread has come to that event. */
uint64_t rp_thread_next_seq(const struct rp_thread *th);
/* Whether the next step is an ordered event. */
bool rp_thread_order_here(struct rp_thread *th);
/* The instruction that was to give the thread a number is complete, or a signal has come in
 * between.
 */
void rp_thread_ordered(struct rp_thread *th);
/* The next ordered event has the number `next`; false if that does not go up. */
bool rp_thread_renumber(struct rp_thread *th, uint64_t next);
/* Its number at its first position. */
uint64_t rp_thread_first_seq(const struct dj_thread_info *info);

/*
 * Run forward to `to` (not before the current position), stopping earlier at the events in
 * `events` or as enum rp_thread_stop says. An event pending at the starting position is passed
 * without stopping before it.
 */
enum rp_thread_stop rp_thread_run(struct rp_thread *th, const struct rp_thread_pos *to,
				  unsigned events);
/* It was interrupted, having come from `since`: what it would have stopped for where it is now,
 * THREAD_INTERRUPTED if there is nothing. */
enum rp_thread_stop rp_thread_interrupted(struct rp_thread *th, const struct rp_thread_pos *since,
					  unsigned events);

/* The next smallest step: an instruction, an iteration, or a signal's delivery. */
enum rp_thread_stop rp_thread_step(struct rp_thread *th);

/* A signal's delivery is the next step: its record, else NULL. */
const struct dj_record *rp_thread_signal_here(const struct rp_thread *th);
/* The next step is a system call: true, and its number. */
bool rp_thread_syscall_here(struct rp_thread *th, uint64_t *sysno);
bool rp_thread_at_end(const struct rp_thread *th);

/* To be called now and then by what goes on for as long as a trace likes, with `work` as
 * rp_patience_look() has it. THREAD_LIMIT: go on; THREAD_FAILED with th->err or THREAD_INTERRUPTED.
 */
enum rp_thread_stop rp_thread_pulse(struct rp_thread *th, uint64_t work);
/* Bytes that the recorded program is known to have mapped. */
uint64_t rp_thread_claim(const struct rp_thread *th);
/* Whether that is more now that the trace was asked: of what lies before a checkpoint that another
 * process has made, or that was kept, the thread has applied nothing. It takes time, but only
 * once. */
bool rp_thread_claim_more(struct rp_thread *th);

/* Code bytes from addr on; returns how many are known. */
size_t rp_thread_fetch(struct rp_thread *th, uint64_t addr, uint8_t *buf, size_t len);

/* A mark from which reading on gives this position's imports and what comes after. */
const struct dj_mark *rp_thread_mark(const struct rp_thread *th);
/* Cut the thread off from its records: what it does from now on is made up. */
void rp_thread_enter_copy(struct rp_thread *th);
/* Put the cursor back to such a mark (NULL: the first record). With a mark, the emulator is at
 * the mark's position already, and the records are read up to there. */
int rp_thread_restore_cursor(struct rp_thread *th, const struct dj_mark *mark);

/* How many instructions the trace has of a thread. */
static inline uint64_t rp_thread_length(const struct dj_trace *t, size_t thread)
{
	const struct dj_thread_info *info = dj_trace_thread(t, thread);

	return info->last_steps - info->first_steps;
}

/* Steps before which the thread has no ordered event of this number or a higher one, as many as can
 * be told by looking at few records: those that say how many events had been passed. */
uint64_t rp_thread_steps_before(struct dj_trace *t, uint32_t thread, uint64_t seq);

#endif
