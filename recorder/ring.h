/*
 * What goes into the trace: the ring and the records beside it, numbers of ordered events, digests.
 * Part of recorder/recorder.h, which includes it.
 */
#ifndef DEJA_RECORDER_RING_H
#define DEJA_RECORDER_RING_H

/* ---- ring.c ---- */
void rec_ring_start(struct rec_thread *t);
/* The image that has it in its memory is gone; nothing of it is looked at when it returns. */
void rec_ring_leave(struct rec_thread *t);
/* Whether it has been started in the present image. */
bool rec_ring_placed(const struct rec_thread *t);
/* The area has been moved. */
void rec_ring_moved(struct rec_thread *t);
/* The thread is stopped: hand what it wrote to the writing thread. */
void rec_ring_hand_over(struct rec_thread *t);
/* Records of the supervisor's that follow belong behind the system call whose record ends at
 * `place`, which becomes the position; false if there is none, or only before the last. */
bool rec_ring_at_call(struct rec_thread *t, uint64_t place);
/* They belong behind what is there. */
void rec_ring_at_head(struct rec_thread *t);
/* Append a record of the supervisor's; copies what it borrows. Facts are the process's at once, in
 * the order of these calls. */
void rec_ring_record(struct rec_thread *t, const struct dj_record *r);
/* What time it is, for people: at the beginning and the end of a thread. */
void rec_ring_time(struct rec_thread *t, uint64_t steps);
/* In hand: what the process's facts say by now holds for this thread. */
void rec_ring_facts(struct rec_thread *t);
/* Write everything, handed over or not. */
void rec_ring_write(struct rec_thread *t);
/* Turn everything, handed over or not, into records of the trace, which need not reach the file
 * yet; the latest position it implies: a thread killed inside a fragment has come further than
 * T_STEPS says. Not `whole`: later records are lost. */
uint64_t rec_ring_reached(struct rec_thread *t, bool *whole);
/* Write everything; -1 if writing failed at any time. */
int rec_ring_stop(struct rec_thread *t, struct dj_error *err);
/* Bytes of records that the thread has written so far; but for its ring. */
uint64_t rec_ring_raw(struct rec_thread *t);
bool rec_ring_failed(struct rec_thread *t);
/* Lines that were imported lately, some of them; returns how many. */
unsigned rec_ring_imported(struct rec_thread *t, uint64_t *addr, unsigned max);
/* Cut the recording if the program has overwritten where the next record goes. */
void rec_ring_check(struct rec_thread *t);

/* ---- effects.c ---- */
/* The size of the ring record of an instruction; 0: it is none. */
unsigned rec_effects_size(unsigned type, unsigned insn_len);
/* What it says; r->steps is the caller's. */
void rec_effects_from(unsigned type, unsigned insn_len, const uint8_t *bytes, struct dj_record *r);

/* ---- times.c ---- */
/* The recording begins: a clock that goes from 0. */
void rec_keeper_start(struct rec_recording *rec);
void rec_keeper_stop(struct rec_recording *rec);
/* The thread's shared memory is there: look at it now and then; is going away, but the thread goes
 * on; goes away with the thread, which is to be noted once more. */
void rec_times_start(struct rec_thread *t);
void rec_times_hide(struct rec_thread *t);
void rec_times_end(struct rec_thread *t);
void rec_times_free(struct rec_thread *t);
/* For who writes the thread's records: what has been noted by now is to be written; a record has
 * been written of a system call at `steps`; write what was noted up to there, or (`all`) all. */
void rec_times_take(struct rec_times *x);
void rec_times_called(struct rec_times *x, uint64_t steps);
int rec_times_write(struct rec_times *x, struct dj_stream *stream, uint64_t steps, bool all,
		    struct dj_error *err);

/* ---- order.c ---- */
/* The process has new tables, `tables`, instead of those it had. */
void rec_order_tables(struct rec_process *proc, uint8_t *tables);
/* A descriptor of the pages of the order that all processes of the recording are to have; -1. */
int rec_order_file(struct rec_recording *rec);
void rec_order_mapped(struct rec_process *proc);
void rec_order_free(struct rec_recording *rec);
/* There are several threads, and none is in the cache yet. */
void rec_order_share(struct rec_recording *rec);
/* The thread is about to enter the cache: if there are several now, the same. */
void rec_order_enter(struct rec_thread *t);
/* Whether it can have passed event number `seq` after so many steps. */
bool rec_order_passed(struct rec_thread *t, uint64_t seq, uint64_t steps);
/* The highest number that any thread has. */
uint64_t rec_order_now(struct rec_thread *t);
/* One above that, which no event will have. */
uint64_t rec_order_next(struct rec_thread *t);
/* The highest number of all threads' in all processes. */
uint64_t rec_order_latest(const struct rec_recording *rec);
/* In hand: append the record of an ordered event, which gets its number. */
void rec_event(struct rec_thread *t, const struct dj_record *r);
/* In hand: nobody else performs an ordered operation on the place of this instruction's, if that
 * can be had soon, until rec_order_release(). */
void rec_order_hold(struct rec_thread *t, const struct insn *in);
/* The thread holds no locks of places any more. */
void rec_order_release(struct rec_thread *t);
/* It has been waiting for the lock at T_ORDER_LOCKS + `lock`, and if somebody still has that, does
 * not go on as long as rec_order_waits(): the owner may be in the supervisor's hands, or among
 * those that have stopped and wait to be looked at. */
void rec_order_wait(struct rec_thread *t, uint64_t lock);
bool rec_order_waits(struct rec_thread *t);
/* If nothing keeps it from going on: whether the owner has it still, and is to get more time. Asked
 * again and again, with a pause each time: the oftener, the oftener the thread has stopped for it.
 */
bool rec_order_held(struct rec_thread *t);
/* Stopped at a trap for the lock of a place, which it need not wait for any more (cache.c). */
enum rec_state rec_order_on(struct rec_thread *t);
/* Whether others have stopped, too, and wait to be looked at (loop.c). */
bool rec_others_wait(struct rec_recording *rec);

/* ---- keyframe.c ---- */
/* In the cache: it is to be brought in hand, where one is due, as far as it shows. */
bool rec_keyframe_wants(struct rec_thread *t);
bool rec_keyframe_is_due(struct rec_thread *t);
/* In hand where one is due: make it. */
enum rec_state rec_keyframe_begin(struct rec_thread *t);
/* Its shadow is empty: record that. */
void rec_keyframe_record(struct rec_thread *t);

/* ---- written.c ---- */
/* In hand: put into the trace what the kernel wrote to the stack; if not `now`, then if it is time.
 */
void rec_written(struct rec_thread *t, bool now);
/* Whether it does that after so many instructions. */
bool rec_written_is_due(const struct rec_thread *t, uint64_t steps);

/* ---- calldata.c ---- */
/* Tell the cache which calls write where. */
void rec_call_data_init(struct rec_thread *t);
/* In hand behind a system call made with registers `in`: put into the trace what it wrote. */
void rec_call_data(struct rec_thread *t, uint64_t nr, const struct user_regs_struct *in,
		   uint64_t result);
/* A fault at r->rip in the cache: whether it was nothing but an attempt to copy such data. Then the
 * thread can go on. */
bool rec_call_data_faulted(struct rec_thread *t, struct user_regs_struct *r);

/* In hand behind an instruction that was executed natively: the same. */
void rec_native_data(struct rec_thread *t, const struct insn *in, const struct dj_regs *before);

/* ---- check.c ---- */
/* A new image: digests begin afresh. */
/* Whether all arithmetic flags are the program's, wherever it may have come from. */
bool rec_flags_known(struct rec_thread *t);
void rec_digest_start(struct rec_thread *t);
bool rec_digest_is_due(const struct rec_thread *t, uint64_t steps);
/* In hand: what a replay is to be compared with; unless `whole`, of memory the stack only, and what
 * the kernel wrote there is left for later. */
void rec_digest(struct rec_thread *t, bool whole);
void rec_check_record(struct rec_thread *t, const struct dj_check *c);
/* In hand behind a system call that a signal interrupts: the same as far as it is known there, and
 * the rest when the call turns out to have this result. */
void rec_digest_in_call(struct rec_thread *t);
void rec_digest_after_call(struct rec_thread *t, uint64_t result);
/* At a system call: the flags alone, if that is worth while. */
void rec_check_call(struct rec_thread *t);

#endif
