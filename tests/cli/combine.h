/*
 * What the parts of tests/cli/combine.c share: random numbers and the log, handlers that put into
 * it what they see, and the operations of which cases are made.
 */
#ifndef DEJA_TESTS_CLI_COMBINE_H
#define DEJA_TESTS_CLI_COMBINE_H

#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- combine-log.c ---- */
extern uint64_t state; /* of the random numbers */
unsigned rnd(unsigned n);

void put(const char *s);
void put_number(long long v);
void put_hex(unsigned long long v);
/* note("word", value): " word=value" */
void note(const char *what, long long v);
void flush_log(void);

unsigned long long mask_now(void);
#define USABLE 35
extern const int usable[USABLE]; /* signals */
/* One that has nothing to do with job control. */
int plain_signal(void);
void random_set(sigset_t *set, unsigned percent);
void handler(int sig, siginfo_t *info, void *context);
void random_handler(int sig);
/* Handlers, mask and stack as each case begins. */
void reset(void);

extern volatile long *counter; /* handlers that have begun; children see it */
/* A fault that is expected: the handler goes back. */
extern sigjmp_buf recover;
extern volatile sig_atomic_t recovering;
extern volatile int set_trap_flag; /* in a handler's frame, for so many traps */
extern bool gathers;		   /* the fault is one of a gather */
extern char *edge;		   /* of what may be written, in a fault at one */

/* ---- combine-faults.c ---- */
/* Between the first two lies code whose place handlers tell. */
extern const char at_load[], at_end[];
extern uint8_t target[];
typedef void fault_code(void *at, void *, void *edge);
extern fault_code fault_load;
void fault(void);
void trap_flag(void);
void own_traps(void);
void after_calls(void);

/* ---- combine-flags.c ---- */
void dead_flags(void);

/* ---- combine-operations.c ---- */
void queue_some(void);
void many_at_once(void);
void from_outside(void);
void from_outside_while_computing(void);
void stop_in_loop(void);
void interrupted_call(void);
void some_masks(void);
void vfork_and_exec(void);
void clones(void);
void mappings(void);
void seccomp_trap(void);
void limits(void);

#endif
