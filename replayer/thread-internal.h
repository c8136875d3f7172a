/*
 * Between the files that make a thread: thread.c (beginning, positions, what the emulator asks),
 * thread-records.c (the stream, and records that take no step), thread-run.c (steps),
 * thread-native.c (what natively executed instructions read and wrote) and thread-fail.c (what went
 * wrong, in words).
 */
#ifndef DEJA_REPLAYER_THREAD_INTERNAL_H
#define DEJA_REPLAYER_THREAD_INTERNAL_H

#include "replayer/thread.h"

/* ---- thread-fail.c ------------------------------------------------------------------ */

/* The program does not do what the trace says. */
enum rp_thread_stop rp_thread_diverged(struct rp_thread *th, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* The trace makes no sense. */
enum rp_thread_stop rp_thread_damaged(struct rp_thread *th, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* The emulator cannot go on, and the next record does not help. In a throw-away copy a system call
 * that someone answers is a step: THREAD_LIMIT. */
enum rp_thread_stop rp_thread_stuck(struct rp_thread *th, enum emu_stop why);

/* ---- thread.c ----------------------------------------------------------------------- */

/* Copy an import's line to where the thread will load it. */
void rp_thread_import_line(struct rp_thread *th, const struct rp_thread_import *imp);

/* Tell the observer of an edge from `from` to where the thread is now. */
void rp_thread_see(struct rp_thread *th, unsigned kind, uint64_t from);

/* Tell whoever hears the thread of a record that is about to be applied. */
static inline void rp_thread_hear(struct rp_thread *th, const struct dj_record *r)
{
	if (th->hearer)
		th->hearer->record(th->hearer->ctx, r);
}

/* ---- thread-native.c ---------------------------------------------------------------- */

/* Tell of what the instruction at hand read and wrote, before the record of its effects is applied.
 */
void rp_thread_native_accesses(struct rp_thread *th, const struct dj_record *r);

/* ---- thread-records.c --------------------------------------------------------------- */

/* Read the next record. What is wrong with it shows when its turn comes. */
void rp_thread_advance(struct rp_thread *th);
/* Apply what has its place before the next step; gather the next instruction's imports. */
enum rp_thread_stop rp_thread_settle(struct rp_thread *th);
/* Apply the gathered imports now. */
void rp_thread_flush_imports(struct rp_thread *th);
/* The count register, as a record with the count `like` sees it. */
uint64_t rp_thread_count_reg(const struct rp_thread *th, uint64_t like);

/* Whether the next record belongs to the current position. */
static inline bool rp_thread_here(const struct rp_thread *th)
{
	return th->next && th->next->steps == th->e->steps;
}

#endif
