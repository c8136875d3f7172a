/*
 * CPUID as the program sees it: a processor that the replayer emulates fully. That is x86-64-v3
 * with AES, PCLMULQDQ, SHA and GFNI absent or present as on the host, and nothing of VAES, AVX-512,
 * AMX, TSX, MPX, PKU, CET.
 *
 * The dynamic linker asks some 70 times at each exec. So what was asked for once is kept in a table
 * that the program's translated code looks into. What tells which processor it is, too, as long as
 * nobody has said where a thread may be: a thread may be on the same one each time. From then on it
 * is asked for where the thread is.
 */
#include "recorder/recorder.h"

#include <cpuid.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
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

/* ---- what is known ---------------------------------------------------------------------- */

/* Whether ecx matters to the leaf (SDM vol. 2A, CPUID; APM vol. 3, appendix E). */
static bool has_subs(uint32_t leaf)
{
	static const uint32_t with[] = { 4,    7,	   0xd,	       0xf,	  0x10, 0x12,
					 0x14, 0x17,	   0x18,       0x1a,	  0x1b, 0x1d,
					 0x20, 0x8000001d, 0x80000020, 0x80000026 };
	for (size_t i = 0; i < sizeof(with) / sizeof(*with); i++)
		if (with[i] == leaf)
			return true;
	return leaf > 0x20 && leaf < 0x80000000; /* who knows */
}

/* Those tell which processor it is. */
static bool places(uint32_t leaf)
{
	return leaf == 1 || leaf == 0xb || leaf == 0x1f || leaf == 0x8000001e;
}

/* What comes from a hypervisor may be another thing the next time. */
static bool lasts(uint32_t leaf)
{
	return leaf >> 28 != 4;
}

/* Where the thread may be, if that is in one place only, or in none that we may be, too. */
static bool is_bound(const struct rec_thread *t, cpu_set_t *may)
{
	if (sched_getaffinity(t->tid, sizeof(*may), may))
		return true;
	int cpu = sched_getcpu();
	return CPU_COUNT(may) == 1 || cpu < 0 || cpu >= CPU_SETSIZE || !CPU_ISSET(cpu, may);
}

void rec_cpuid_of(struct rec_thread *t, uint32_t leaf, uint32_t sub, uint32_t r[4])
{
	cpu_set_t may, own;
	bool moved = places(leaf) && is_bound(t, &may) && CPU_COUNT(&may) &&
		     !sched_getaffinity(0, sizeof(own), &own) &&
		     !sched_setaffinity(0, sizeof(may), &may);
	rec_cpuid(leaf, sub, r);
	if (moved)
		sched_setaffinity(0, sizeof(own), &own);
}

static uint8_t *table(const struct rec_process *proc)
{
	return proc->tables + (T_CPUID - T_TABLES);
}

static uint32_t *there(uint8_t *entry)
{
	return (uint32_t *)(void *)(entry + CPUID_THERE);
}

void rec_cpuid_keep(struct rec_thread *t, uint32_t leaf, uint32_t sub, const uint32_t r[4])
{
	struct rec_cpuids *known = &t->rec->cpuid;
	uint32_t mask = has_subs(leaf) ? UINT32_MAX : 0;
	uint32_t entry[CPUID_SIZE / 4] = { leaf, 0, mask, sub & mask, r[0], r[1], r[2], r[3] };
	size_t at = (size_t)known->n * CPUID_SIZE;
	cpu_set_t may;
	if (!lasts(leaf) || at == AREA_CPUID ||
	    (places(leaf) && (known->placed || is_bound(t, &may))))
		return;
	if (!known->entry)
		known->entry = calloc(1, AREA_CPUID);
	DJ_ASSERT(known->entry, "out of memory for what CPUID says");
	for (size_t i = 0; i < at; i += CPUID_SIZE)
		if (!memcmp(known->entry + i, entry, 4) &&
		    !memcmp(known->entry + i + 8, entry + 2, 8)) {
			rec_cpuid_table(t->proc); /* this image began before it was known */
			return;
		}
	memcpy(known->entry + at, entry, sizeof(entry));
	*there(known->entry + at) = 1;
	known->n++;
	rec_cpuid_table(t->proc);
}

/* Others may be looking: an entry is there when all of it is. */
void rec_cpuid_table(struct rec_process *proc)
{
	struct rec_cpuids *known = &proc->rec->cpuid;
	for (size_t at = 0; at < (size_t)known->n * CPUID_SIZE; at += CPUID_SIZE) {
		uint8_t *to = table(proc) + at, *from = known->entry + at;
		memcpy(to, from, 4);
		memcpy(to + 8, from + 8, CPUID_SIZE - 8);
		__atomic_store_n(there(to), *there(from), __ATOMIC_RELEASE);
	}
}

void rec_cpuid_placed(struct rec_thread *t, const struct user_regs_struct *in, uint64_t result)
{
	struct rec_cpuids *known = &t->rec->cpuid;
	(void)in;
	(void)result;
	if (known->placed)
		return;
	known->placed = true;
	for (size_t at = 0; at < (size_t)known->n * CPUID_SIZE; at += CPUID_SIZE) {
		uint32_t leaf;
		memcpy(&leaf, known->entry + at, sizeof(leaf));
		if (places(leaf))
			*there(known->entry + at) = 0;
	}
	for (struct rec_process *p = t->rec->processes; p; p = p->next)
		if (p->tables)
			rec_cpuid_table(p);
}

/* ---- the trap flag ------------------------------------------------------------------------ */

static volatile sig_atomic_t traps;

static void on_trap(int sig)
{
	(void)sig;
	traps++;
}

/* A hypervisor executes CPUID instead of the processor, and some then forget the trap behind it.
 * Tried once, here: CPUID and the four that follow, of which the last clears the flag. */
bool rec_cpuid_traps(void)
{
	static int known;
	struct sigaction sa = { .sa_handler = on_trap }, was;
	uint32_t leaf = 0, sub = 0;
	sigset_t trap, mask;
	if (known)
		return known > 0;
	traps = 0;
	sigemptyset(&trap);
	sigaddset(&trap, SIGTRAP);
	sigaction(SIGTRAP, &sa, &was);
	pthread_sigmask(SIG_UNBLOCK, &trap, &mask); /* deja may have been started with it blocked */
	__asm__ volatile("lea -256(%%rsp), %%rsp\n\t" /* beyond the red zone */
			 "pushf\n\t"
			 "orl $0x100, (%%rsp)\n\t"
			 "popf\n\t"
			 "cpuid\n\t"
			 "nop\n\t"
			 "pushf\n\t"
			 "andl $~0x100, (%%rsp)\n\t"
			 "popf\n\t"
			 "lea 256(%%rsp), %%rsp"
			 : "+a"(leaf), "+c"(sub)
			 :
			 : "rbx", "rdx", "memory", "cc");
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	sigaction(SIGTRAP, &was, NULL);
	known = traps >= 5 ? 1 : -1;
	return known > 0;
}
