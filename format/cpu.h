/*
 * What kind of processor a recording was made on.
 *
 * Where the manuals leave a value undefined the makers' processors differ, in flags above all,
 * and a few instructions decode differently (doc/cpu.md). The recording has what its processor
 * did, so the decoder and the emulator go by that processor, whatever machine they run on.
 */
#ifndef DEJA_FORMAT_CPU_H
#define DEJA_FORMAT_CPU_H

#include <stdbool.h>
#include <stddef.h>

enum dj_cpu_kind {
	DJ_CPU_INTEL = 0,     /* and every maker not named below */
	DJ_CPU_AMD = 1,	      /* AMD, and Hygon's, which are of the same design */
	DJ_CPU_AMD_KEEPS = 2, /* the same, but BSF and BSR leave all flags but ZF as they were */
};

/* The processor this runs on; DJ_CPU_INTEL on a machine that is no x86. */
enum dj_cpu_kind dj_cpu_host(void);

/* Extensions that not every processor with AVX2 has: bits of CPUID's leaf 7, those of ecx and 32 on
 * those of ebx (SDM vol. 2A). */
enum dj_cpu_extension {
	DJ_CPU_GFNI = 8,
	DJ_CPU_VAES = 9,
	DJ_CPU_VPCLMULQDQ = 10,
	DJ_CPU_ADX = 32 + 19,
	DJ_CPU_CLFLUSHOPT = 32 + 23,
	DJ_CPU_CLWB = 32 + 24,
	DJ_CPU_SHA = 32 + 29,
};

/* Whether the processor this runs on has it; false on a machine that is no x86. */
bool dj_cpu_has(enum dj_cpu_extension which);

/* A line about the processor this runs on, for the trace: "AMD EPYC 9755 (AuthenticAMD family 26
 * model 2)", and behind the model ", BSF keeps flags" where it was seen to. */
void dj_cpu_describe(char *buf, size_t size);

/* The kind that such a line is about. Families do not tell what BSF does, as not all were measured.
 * A line without a maker's identification, which has the model name only, counts as AMD's if it
 * begins with the name. NULL is as good as "". */
enum dj_cpu_kind dj_cpu_kind_of(const char *line);

#endif
