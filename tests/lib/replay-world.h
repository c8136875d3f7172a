/*
 * A small made-up world for testing the replay: memory that others change, system calls,
 * signals, a program, and a recorder that writes a trace of it and remembers every position.
 */
#ifndef DEJA_TESTS_LIB_REPLAY_WORLD_H
#define DEJA_TESTS_LIB_REPLAY_WORLD_H

#include "format/trace.h"
#include "emu/emu.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CODE_AT	 0x400000ULL
#define DATA_AT	 0x10000000ULL
#define ALIAS_AT 0x110000000ULL /* the same place in the shadow as DATA_AT */
#define STACK_AT 0x7ffe0000f000ULL
#define REGION	 0x4000u
#define WATCHED	 (DATA_AT + 0x108)
#define WATCHED2 (DATA_AT + 0x1030) /* within what the program moves by REP */

#define WORLD_THREADS 6 /* at most, of one process */

/* One position of the recorded run, as it really was. */
struct world_pos {
	uint64_t steps, rep, rip, digest, rflags, seen; /* seen: hash of what memory is known */
	uint32_t signals;
	bool watch;	      /* the step from here changes WATCHED */
	bool watch2;	      /* the step from here changes WATCHED2 */
	bool reads;	      /* the step from here reads WATCHED */
	bool signal, syscall; /* the step from here is one */
	uint64_t seq, within;
	/* of several threads: */
	bool all_watch, all_watch2;	 /* the step changes what the threads' order has there */
	uint64_t seen_by[WORLD_THREADS]; /* hash of what each thread should be shown of all */
};

struct world_region {
	uint64_t start;
	uint8_t mem[REGION], seen[REGION], known[REGION];
	/* as far as the threads' order goes: when this thread stored or imported it, and when it
	 * did that or read it; 0: never */
	uint64_t changed[REGION], touched[REGION];
};

struct world {
	struct emu *e;
	struct dj_writer *w;
	struct dj_stream *thread;
	struct world_region region[4];
	struct world_pos *pos;
	size_t n, cap;
	int32_t tid;
	uint64_t *last, seq; /* numbers of the last ordered event of all threads, of this one */
	uint64_t random, events, event_steps, rep_now, digest_at;
	uint32_t signals;
	struct dj_regs saved; /* interrupted by the signal handler under way */
	bool in_handler;
	uint64_t imports, effects, digests;
	bool watch, watch2, reads;
	unsigned seen_every; /* hash what is known at every such position */
	int predict;
	/* the threads of the process; memory is that of the first */
	struct world *mates[WORLD_THREADS];
	unsigned nmates, number;
	uint64_t stamp;		  /* of what the step under way does, in the threads' order */
	uint8_t last_value[2][8]; /* of the watched bytes, as the order has them; of the first
				     thread */
	bool last_known[2][8];
	bool all_watch[2];
	bool turn_begins;	   /* others may have done something since it came here */
	bool decided, will_signal; /* of the next step */
};

/* Record a run of the built-in program into `path`; `rounds` times through its loop. */
struct world *world_record(const char *path, uint64_t seed, unsigned rounds, int predict,
			   unsigned memory_model);
/* Record two runs into one trace, as the threads 1 and 2 of as many processes; each as if it were
 * alone, but for the numbers of its ordered events. The second begins when the first has passed
 * some. */
void world_record_two(const char *path, uint64_t seed, const unsigned rounds[2],
		      unsigned memory_model, unsigned processes, struct world *out[2]);
/* Record `n` threads of one process, which share memory: each begins when all before it have passed
 * some events. Unless `racy` they take turns only before ordered events, so that memory is what the
 * order of positions says. */
void world_record_many(const char *path, uint64_t seed, unsigned n, unsigned rounds,
		       unsigned memory_model, bool racy, struct world *out[]);
/* Of these threads this digest (the first is 1) is recorded wrong; 0: none. */
extern uint64_t world_spoil[WORLD_THREADS];
void world_free(struct world *w);
uint64_t world_hash(uint64_t h, uint64_t x);
/* The address of a label of the program. */
uint64_t world_label(const char *name);

#endif
