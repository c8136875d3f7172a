/* CPUID as the program sees it (cpuid.c). */
#ifndef DEJA_RECORDER_CPUID_H
#define DEJA_RECORDER_CPUID_H

#include "recorder/recorder.h"

/* What the program gets from CPUID: eax, ebx, ecx, edx. */
void rec_cpuid(uint32_t leaf, uint32_t sub, uint32_t r[4]);
/* Whether CPUID traps with the trap flag set, on this machine. */
bool rec_cpuid_traps(void);
/* It has been asked for this. */
void rec_cpuid_keep(struct rec_thread *t, uint32_t leaf, uint32_t sub, const uint32_t r[4]);
/* The process's tables have all that is known. */
void rec_cpuid_table(struct rec_process *proc);

#endif
