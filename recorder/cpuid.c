/*
 * CPUID as the program sees it: a processor that the replayer emulates fully. That is x86-64-v3
 * with AES, PCLMULQDQ, SHA and GFNI absent or present as on the host, and nothing of VAES, AVX-512,
 * AMX, TSX, MPX, PKU, CET.
 */
#include "recorder/recorder.h"

#include <cpuid.h>
#include <string.h>

/* Feature bits that pass, by leaf and register; other leaves pass as they are. SDM vol. 2A, CPUID;
 * AMD64 APM vol. 3, appendix E, for those from 0x80000000 on. */
enum { EAX, EBX, ECX, EDX };
static const struct {
	uint32_t leaf, sub;
	int reg;
	uint32_t keep;
} features[] = {
	/* sse3 pclmul ssse3 fma cx16 sse4.1 sse4.2 movbe popcnt aes xsave osxsave avx f16c
	 * rdrand hypervisor */
	{ 1, 0, ECX,
	  1u << 0 | 1u << 1 | 1u << 9 | 1u << 12 | 1u << 13 | 1u << 19 | 1u << 20 | 1u << 22 |
		  1u << 23 | 1u << 25 | 1u << 26 | 1u << 27 | 1u << 28 | 1u << 29 | 1u << 30 |
		  1u << 31 },
	/* bmi1 avx2 smep bmi2 erms rdseed adx smap clflushopt clwb sha */
	{ 7, 0, EBX,
	  1u << 3 | 1u << 5 | 1u << 7 | 1u << 8 | 1u << 9 | 1u << 18 | 1u << 19 | 1u << 20 |
		  1u << 23 | 1u << 24 | 1u << 29 },
	{ 7, 0, ECX, 1u << 2 | 1u << 8 | 1u << 22 }, /* umip gfni rdpid */
	{ 7, 0, EDX,
	  1u << 4 | 1u << 10 | 1u << 26 | 1u << 27 | 1u << 28 | 1u << 29 |
		  1u << 31 }, /* fsrm, mitigations */
	{ 7, 0, EAX, 0 },
	{ 7, 1, EAX, 0 },
	{ 7, 1, EBX, 0 },
	{ 7, 1, ECX, 0 },
	{ 7, 1, EDX, 0 },
	{ 7, 2, EAX, 0 },
	{ 7, 2, EBX, 0 },
	{ 7, 2, ECX, 0 },
	{ 7, 2, EDX, 0 },
	{ 0xd, 0, EAX, 7 },
	{ 0xd, 0, EDX, 0 },
	{ 0xd, 1, EAX, 7 }, /* xsaveopt xsavec xgetbv1 */
	{ 0xd, 1, ECX, 0 },
	{ 0xd, 1, EDX, 0 },
	/* lahf abm(lzcnt) 3dnowprefetch; no sse4a, misalignsse, svm, ibs, xop, lwp, fma4, tbm,
	   perfctr, monitorx */
	{ 0x80000001, 0, ECX, 1u << 0 | 1u << 5 | 1u << 8 },
	/* no 3dnow */
	{ 0x80000001, 0, EDX, ~(3u << 30) },
	/* AMD's: no clzero, count of retired instructions, invlpgb, rdpru, mcommit (APM vol. 3,
	   E.4.7) */
	{ 0x80000008, 0, EBX, ~(1u << 0 | 1u << 1 | 1u << 3 | 1u << 4 | 1u << 8) },
	{ 0x80000008, 0, EDX, 0 },
};

void rec_cpuid(uint32_t leaf, uint32_t sub, uint32_t r[4])
{
	__cpuid_count(leaf, sub, r[EAX], r[EBX], r[ECX], r[EDX]);
	for (size_t i = 0; i < sizeof(features) / sizeof(*features); i++)
		if (features[i].leaf == leaf && (features[i].sub == sub || leaf == 1 || leaf >> 31))
			r[features[i].reg] &= features[i].keep;
	if (leaf == 7 && sub > 2)
		memset(r, 0, 16);
	if (leaf == 0xd) {
		if (sub == 0 || sub == 1) {
			r[EBX] = r[EAX] & 4 || sub == 1 ? 832 : 576; /* x87, sse, avx */
			if (sub == 0)
				r[ECX] = r[EBX];
		} else if (sub != 2) {
			memset(r, 0, 16);
		}
	}
	/* SGX, PT, AMX, key locker, hybrid information, history reset */
	if (leaf == 0x12 || leaf == 0x14 || (leaf >= 0x19 && leaf <= 0x24))
		memset(r, 0, 16);
	/* SVM, IBS, LWP, performance counters */
	if (leaf == 0x8000000a || leaf == 0x8000001b || leaf == 0x8000001c || leaf == 0x80000022)
		memset(r, 0, 16);
}
