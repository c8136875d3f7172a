/* CPUID as the program sees it (cpuid.c). Part of recorder/recorder.h, which includes it. */
#ifndef DEJA_RECORDER_CPUID_H
#define DEJA_RECORDER_CPUID_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/user.h>

struct rec_process;
struct rec_thread;

/* What is known, of a recording. */
struct rec_cpuids {
	uint8_t *entry; /* like those of T_CPUID */
	unsigned n;
	bool placed; /* somebody has said where a thread may be */
};

/* What the program gets from CPUID: eax, ebx, ecx, edx. */
void rec_cpuid(uint32_t leaf, uint32_t sub, uint32_t r[4]);
/* The same, where the thread may be, if it tells which processor it is. */
void rec_cpuid_of(struct rec_thread *t, uint32_t leaf, uint32_t sub, uint32_t r[4]);
/* Whether CPUID traps with the trap flag set, on this machine. */
bool rec_cpuid_traps(void);
/* It has been asked for this. */
void rec_cpuid_keep(struct rec_thread *t, uint32_t leaf, uint32_t sub, const uint32_t r[4]);
/* The process's tables have all that is known. */
void rec_cpuid_table(struct rec_process *proc);
/* After a sched_setaffinity: from now on it matters which processor a thread is on. */
void rec_cpuid_placed(struct rec_thread *t, const struct user_regs_struct *in, uint64_t result);

#endif
