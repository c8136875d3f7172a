/*
 * The clock: it looks after threads that compute (clock.c). Part of recorder/recorder.h, which
 * includes it.
 */
#ifndef DEJA_RECORDER_CLOCK_H
#define DEJA_RECORDER_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/user.h>

struct rec_options;
struct rec_recording;
struct rec_thread;

/* Of a thread: where the clock has stopped it last. */
struct rec_clocked {
	struct user_regs_struct regs;
	uint64_t steps;
	unsigned rest, wait; /* so many ticks it leaves it alone from now on; from then on */
};

/* Let it tick, as often as the keyframes that are asked for need it; NULL: no more. */
void rec_clock(const struct rec_options *opt);
/* A tick has passed: look after threads that compute. */
bool rec_clock_ticked(void);
void rec_clock_tick(struct rec_recording *rec);
/* Whether it has passed, without taking note of it. */
bool rec_clock_ticks(void);
/* The clock has stopped the thread in the cache. */
void rec_clock_stopped(struct rec_thread *t);
/* CLOCK_MONOTONIC, nanoseconds. */
int64_t rec_clock_now(void);
/* How long it is from one look after all threads to the next, nanoseconds. */
int64_t rec_clock_gap(void);

#endif
