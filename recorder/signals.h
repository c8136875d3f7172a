/*
 * Signals: what they mean, where and how they are delivered, the one that deja uses itself, and
 * those that deja gets. Part of recorder/recorder.h, which includes it.
 */
#ifndef DEJA_RECORDER_SIGNALS_H
#define DEJA_RECORDER_SIGNALS_H

/* ---- signals.c ---- */
enum rec_disposition { REC_IGNORED, REC_CAUGHT, REC_FATAL, REC_JOB_CONTROL };
enum rec_disposition rec_disposition(struct rec_thread *t, int sig);
/* ... as the kernel has it. */
enum rec_disposition rec_disposition_asked(struct rec_thread *t, int sig);
bool rec_synchronous(int sig, const siginfo_t *info);
/* Whether a signal is pending that the thread does not block. */
bool rec_signal_waits(struct rec_thread *t);
/* A signal-delivery stop in the cache that is not ours. */
enum rec_state rec_signal_stop(struct rec_thread *t, const struct rec_stop *stop);
void rec_put_aside(struct rec_thread *t, const siginfo_t *info);
/* Block all other signals, but those of faults only if `all`. The program's signal mask again. */
void rec_hold(struct rec_thread *t, bool all);
void rec_release(struct rec_thread *t);
/* Whether the thread, being where `r` says, can be taken in hand there. */
bool rec_takeable(struct rec_thread *t, const struct user_regs_struct *r, struct tr_where *w);
/* Whether it is between two iterations of a string instruction there. */
bool rec_repeats(const struct rec_thread *t, const struct tr_where *w);
/* Whether the thread, in hand or at a place where it could be, rather goes on to the next one,
 * where arithmetic flags are the program's (cache.c). */
bool rec_goes_beyond(struct rec_thread *t);
/* A pushf has just put flags at `rsp`, with the trap flag of a single step, which is ours. */
void rec_take_trap_flag(struct rec_thread *t, uint64_t rsp);

/* ---- starve.c: signals of timers that are faster than we are ---- */
/* Stopped in the cache with these registers for a signal: whether it should come late. If so, the
 * thread goes on without it for a while. */
bool rec_starves(struct rec_thread *t, const struct rec_stop *stop,
		 const struct user_regs_struct *r);
enum rec_state rec_starved(struct rec_thread *t, const struct rec_stop *stop);
/* Whether there is one that comes late. */
bool rec_late(const struct rec_thread *t);
/* The thread goes on into the cache, for a while. It has stopped there, for whatever reason. */
void rec_late_run(struct rec_thread *t);
void rec_late_stopped(struct rec_thread *t);
/* In hand: it is put aside, unless nothing has been executed since it came. */
void rec_late_due(struct rec_thread *t);
/* In hand, about to make a call of the program's, or to execute an instruction natively. */
void rec_late_call(struct rec_thread *t);
void rec_late_native(struct rec_thread *t);
/* Another signal is about to be put aside. */
void rec_late_merge(struct rec_thread *t, const struct rec_stop *stop);

/* ---- deliver.c ---- */
/* In hand at a signal-delivery stop. `after` is the address behind the system call that was
 * interrupted, or 0. */
enum rec_state rec_deliver(struct rec_thread *t, const siginfo_t *info, uint64_t after);
/* In hand: let the thread run into a trap of the runtime's, with `sig` if that is not 0. */
enum rec_state rec_into_trap(struct rec_thread *t, int sig);
/* In hand: deliver the first of those that were put aside. */
enum rec_state rec_deliver_pending(struct rec_thread *t);

/* ---- handler.c ---- */
/* Whether the code of a signal's handler looks at the context in its third argument, as far as that
 * can be told from the code. */
bool rec_handler_reads_context(struct rec_process *proc, uint64_t handler);

/* ---- sigtrap.c ---- */
/* SIGTRAP as the program starts with it; across exec; in a new image. */
void rec_trap_begin(struct rec_thread *t);
void rec_trap_exec(struct rec_thread *t);
void rec_trap_classes(struct rec_thread *t);
/* Whether a system call waits with another signal mask than the thread's. */
bool rec_trap_exchanges(uint64_t nr);
/* A call is about to be made, with these registers. */
void rec_trap_ignore(struct rec_thread *t, struct user_regs_struct *r);
/* At every signal-delivery stop: if it is a trap of ours, undo what it did to the program. */
void rec_trap_stop(struct rec_thread *t, struct rec_stop *stop);
/* SIGTRAP, if the next request is to give one back to the kernel, else 0. */
int rec_trap_again(struct rec_thread *t);
/* A call has changed the program's mask; a handler has been entered; a trap of the program's own.
 */
void rec_trap_masked(struct rec_thread *t, bool blocked);
void rec_trap_entered(struct rec_thread *t, int sig);
void rec_trap_forced(struct rec_thread *t);
enum rec_disposition rec_trap_disposition(const struct rec_thread *t);
/* A child is made that is recorded: what SIGTRAP does in it. */
void rec_trap_copied(struct rec_process *group, const struct rec_thread *t);
/* A child is made: whether it inherits from the kernel what is not the program's. If so,
 * T_INHERITED has that. */
bool rec_trap_inherited(struct rec_thread *t);
/* Whether a trap of ours would destroy something. */
bool rec_trap_matters(const struct rec_thread *t);
bool rec_trap_lost(const struct rec_thread *t);
/* Before it waits with another mask: whether that is lost and nobody else will put it back when a
 * SIGTRAP comes. Another thread that blocks it will, when it goes on or is brought out; one that is
 * in a call of the supervisor's may end there. */
bool rec_trap_needs(const struct rec_thread *t);
/* Before the thread goes on: whether the kernel must first get back what it has lost. */
bool rec_trap_to_restore(const struct rec_thread *t);
enum rec_state rec_trap_restore(struct rec_thread *t);
/* ... because other threads may want it, even if this one blocks SIGTRAP. */
bool rec_trap_urgent(const struct rec_thread *t);
/* A SIGTRAP that is caught is to be delivered: whether no trap of ours in another thread can come
 * between; until that is built nobody begins what could. If not, what is in t->signal waits. */
bool rec_trap_mine(struct rec_thread *t);
enum rec_state rec_trap_wait(struct rec_thread *t);
/* Whether the thread has to stand still for that. */
bool rec_trap_held(const struct rec_thread *t);
/* The one that waited goes on, or has ended. */
void rec_trap_over(struct rec_thread *t);

/* ---- forward.c ---- */
/* Deja's own signals, while it records and afterwards. */
void rec_signals_take(bool passed_on);
void rec_signals_give_back(void);
/* The program is stopped for this one. */
void rec_signals_seen(const siginfo_t *info);
/* Give the program what was sent to deja alone. */
void rec_signals_pass_on(struct rec_recording *rec);

#endif
