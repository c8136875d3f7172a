/*
 * What the parts of the machine in place of the kernel share: fake-tracer.c is what the recorder
 * asks of it and what happens next, fake-machine.c what a thread does when it runs,
 * fake-translator.c the translator.
 */
#ifndef DEJA_TESTS_LIB_FAKE_PARTS_H
#define DEJA_TESTS_LIB_FAKE_PARTS_H

#include "tests/lib/fake-tracer.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Addresses. Thread i's program lies at PROGRAM(i): action k begins at 16 * k, a system call ends
 * two bytes on, which leads to action k + 1; its signal handler, which only returns, lies at
 * HANDLER(i). The cache has 16 bytes for each of these places: its entry E, E + 2 in the midst of
 * it, and a trap at E + 4. At its end are the places of instructions that are executed apart.
 */
#define PROGRAM(i) (0x10000000ULL + ((uint64_t)(i) << 16))
#define HANDLER(i) (PROGRAM(i) + 0x8000)
#define CACHE	   0x50000000ULL
#define CACHE_END  0x60000000ULL
#define RT_SYSCALL (CACHE_END - 0x1000)
#define APART(i)   (RT_SYSCALL + 16 + 16 * (uint64_t)(i))
#define VDSO	   0x70000000ULL
#define VDSO_CALL  (VDSO + 16)

struct fake_thread *fake_by_tid(pid_t tid);

/* What happens to a running thread next; 0 if it runs on, else what wait(2) has for it. */
int fake_run(struct fake_thread *m);

/* A signal becomes pending; without `info', a plain one. */
void fake_queue(struct fake_thread *m, int sig, const siginfo_t *info);

/* The entry in the cache for a program address, and the address for what is in the cache. */
uint64_t fake_entry(uint64_t pc);
uint64_t fake_pc(uint64_t va);

/* What thread and action a program address belongs to. */
struct fake_thread *fake_owner(uint64_t pc, unsigned *action, bool *handler);

#endif
