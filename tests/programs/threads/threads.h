/*
 * What the cases of this program have to make threads, to wait for each other, and to say what they
 * found.
 */
#ifndef DEJA_TESTS_PROGRAMS_THREADS_H
#define DEJA_TESTS_PROGRAMS_THREADS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

/* ---- checks and output ---- */

extern const char *running; /* the case */
extern atomic_int wrong;    /* what was not so */

#define expect(c)                                                                                  \
	do {                                                                                       \
		if (!(c)) {                                                                        \
			printf("%s: %s:%d: not so: %s (errno %d)\n", running, __FILE__, __LINE__,  \
			       #c, errno);                                                         \
			wrong++;                                                                   \
		}                                                                                  \
	} while (0)

void say(const char *format, ...);

/* ---- threads ---- */

pid_t tid(void);
void start(pthread_t *t, void *(*f)(void *), void *arg);
void *join(pthread_t t);

/* Runs f(0) to f(n - 1) in threads of their own; the sum of what they return. */
long together(int n, void *(*f)(void *));

/* What threads do: compute, and return their argument. */
void *square_sum(void *arg);
void *nothing(void *arg);

/* ---- time, and waiting for each other ---- */

void pause_ms(long ms);

/* Something that takes time and is few instructions. */
void compute(volatile long *n);

long futex(atomic_int *word, int op, int value, void *timeout, atomic_int *word2, int value3);

/* Waits until *word is value; sets it, or adds to it, and wakes who waits. */
void until(atomic_int *word, int value);
void tell(atomic_int *word, int value);
void add(atomic_int *word, int value);

/* Waits until thread t of this process is in a system call that waits. */
void until_asleep(pid_t t);

/* ---- what several cases use, each anew ---- */

extern char *self; /* the program's file */
extern long shared;
extern atomic_int finished;
extern pthread_mutex_t lock;
extern pthread_cond_t changed;

/* ---- the cases, by file ---- */

/* making.c */
void case_create(void);
void case_detach(void);
void case_short(void);
void case_idle(void);
void case_clone(void);
void case_names(void);

/* locks.c */
void case_mutex(void);
void case_condvar(void);
void case_rwlock(void);
void case_barrier(void);
void case_sem(void);
void case_spin(void);
void case_futex(void);
void case_robust(void);
void case_pi(void);
void case_atomics(void);

/* signals.c */
void case_kill(void);
void case_trap(void);
void case_process(void);
void case_sigwait(void);
void case_eintr(void);
void case_fault(void);
void case_timer(void);
void case_group(void);
void case_cancel(void);

/* calls.c */
void case_calls(void);
void case_setxid(void);
void case_fork(void);
void case_spawn(void);
void case_pipes(void);

/* memory.c */
void case_tls(void);
void case_module(void);
void case_maps(void);
void case_handover(void);
void case_malloc(void);
void case_jit(void);
void case_fresh(void);
void case_stdio(void);

/* ends.c */
void last_first(void);
void last_none(void);
void last_group(void);
void last_exec(void);
void last_execfail(void);
void last_crash(void);
void last_abort(void);
void last_kill(void);
void last_return(void);

#endif
