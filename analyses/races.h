/*
 * Accesses of two threads to one place with no order between them, in parts: what the threads of a
 * process do that matters (races-hear.c: two passes, the first of which finds what they share), and
 * what of it has an order (races.c).
 */
#ifndef DEJA_ANALYSES_RACES_H
#define DEJA_ANALYSES_RACES_H

#include "analyses/log.h"

enum race_kind {
	RACE_BEGIN,   /* the thread begins */
	RACE_END,     /* it ends */
	RACE_CREATE,  /* it makes the thread `other` */
	RACE_WAIT,    /* it goes on when the thread `other` has ended: a child in its memory */
	RACE_JOIN,    /* it finds that whoever clears the word at `addr` when it ends has ended */
	RACE_ACQUIRE, /* it takes over what others left at `addr` */
	RACE_RELEASE, /* it leaves there what it has done */
	RACE_BOTH,
	RACE_READ,
	RACE_WRITE,
};

/* In the order in which the thread did them. */
struct race_event {
	struct replay_pos pos;
	struct replay_code code; /* READ, WRITE */
	uint64_t addr;
	uint32_t other;
	uint8_t kind;
};

struct race_thread {
	uint32_t process;
	bool is;
	struct ana_log events;
};

/* A word that the kernel clears when a thread ends. */
struct race_word {
	uint64_t addr;
	uint32_t process, thread; /* whose end */
};

struct race_world {
	struct ana_job *job;
	struct race_thread *threads; /* by number */
	size_t n;
	struct race_word *words;
	size_t n_words;
	bool more; /* the limit was reached */
};

/* Both passes. */
int ana_races_hear(struct race_world *w, struct dj_error *err);
void ana_races_forget(struct race_world *w);

#endif
