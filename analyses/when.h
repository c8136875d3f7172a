/*
 * When a thread was where: what the recorder noted of time (dj_trace_times()), and between two
 * notes as if the thread had gone at one speed. Of recordings without such notes nothing is known.
 */
#ifndef DEJA_ANALYSES_WHEN_H
#define DEJA_ANALYSES_WHEN_H

#include "format/trace.h"

struct ana_when;

/* Of a thread, by number; `*when` is NULL if nothing is known of it. -1: err. */
int ana_when_new(struct dj_trace *t, size_t thread, struct ana_when **when, struct dj_error *err);
void ana_when_free(struct ana_when *when);

/* Microseconds since the recording began, when the thread had first executed so many instructions,
 * and when it went on from there: later, if it stood there (waited, or had no processor). */
uint64_t ana_when_reached(struct ana_when *when, uint64_t steps);
uint64_t ana_when_left(struct ana_when *when, uint64_t steps);

/* All pairs of neighbouring notes, and what is known of the ends, between two numbers of
 * instructions. */
void ana_when_between(struct ana_when *when, uint64_t from, uint64_t to,
		      void (*tell)(void *ctx, const struct dj_time *from, const struct dj_time *to),
		      void *ctx);

/*
 * Snapshots at every multiple of so many microseconds: how many there were before the thread first
 * had executed `steps` instructions; `running`: of those that found it running only. Cheap if steps
 * grow from call to call. -1: out of memory. At the `end` of its history: and while it stood there.
 */
int ana_when_sample(struct ana_when *when, uint64_t every, bool running);
uint64_t ana_when_samples(struct ana_when *when, uint64_t steps, bool end);

#endif
