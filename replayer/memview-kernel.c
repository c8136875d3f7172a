/*
 * What wrote to memory without being mirrored to the shadow: system calls and natively
 * executed instructions. The bytes are not in the trace unless the thread reads them later,
 * so what was known of them is stale.
 *
 * This is about honesty towards a person who looks at memory, not about replaying: what the
 * thread itself reads is imported where it differs. Calls that write through pointers inside
 * structures are not followed.
 */
#include "replayer/memview.h"
#include "replayer/thread.h"

#define MREMAP	 25
#define MADVISE	 28
#define DONTNEED 4

#define RESULT 0 /* as many bytes as the call returned */

/* Calls that write `size` bytes to where argument `arg` points, times `scale` the result if
 * size is RESULT. Numbers: arch/x86/entry/syscalls/syscall_64.tbl; sizes: the kernel's uapi
 * structures on x86-64. */
static const struct writes {
	uint16_t nr;
	uint8_t arg;
	uint16_t size;
	uint8_t scale;
} table[] = {
	{0, 1, RESULT, 1},	/* read */
	{4, 1, 144, 0},		/* stat */
	{5, 1, 144, 0},		/* fstat */
	{6, 1, 144, 0},		/* lstat */
	{13, 2, 32, 0},		/* rt_sigaction: old action */
	{14, 2, 8, 0},		/* rt_sigprocmask: old mask */
	{17, 1, RESULT, 1},	/* pread64 */
	{22, 0, 8, 0},		/* pipe */
	{35, 1, 16, 0},		/* nanosleep: remaining time */
	{36, 1, 32, 0},		/* getitimer */
	{38, 2, 32, 0},		/* setitimer */
	{45, 1, RESULT, 1},	/* recvfrom */
	{53, 3, 8, 0},		/* socketpair */
	{61, 1, 4, 0},		/* wait4: status */
	{61, 3, 144, 0},	/* wait4: usage */
	{63, 0, 390, 0},	/* uname */
	{78, 1, RESULT, 1},	/* getdents */
	{79, 0, RESULT, 1},	/* getcwd */
	{89, 1, RESULT, 1},	/* readlink */
	{96, 0, 16, 0},		/* gettimeofday */
	{97, 1, 16, 0},		/* getrlimit */
	{98, 1, 144, 0},	/* getrusage */
	{99, 0, 112, 0},	/* sysinfo */
	{100, 0, 32, 0},	/* times */
	{131, 1, 24, 0},	/* sigaltstack: old stack */
	{137, 1, 120, 0},	/* statfs */
	{138, 1, 120, 0},	/* fstatfs */
	{191, 2, RESULT, 1},	/* getxattr */
	{201, 0, 8, 0},		/* time */
	{204, 2, RESULT, 1},	/* sched_getaffinity */
	{217, 1, RESULT, 1},	/* getdents64 */
	{228, 1, 16, 0},	/* clock_gettime */
	{229, 1, 16, 0},	/* clock_getres */
	{232, 1, RESULT, 12},	/* epoll_wait */
	{262, 2, 144, 0},	/* newfstatat */
	{267, 2, RESULT, 1},	/* readlinkat */
	{281, 1, RESULT, 12},	/* epoll_pwait */
	{293, 0, 8, 0},		/* pipe2 */
	{302, 3, 16, 0},	/* prlimit64 */
	{318, 0, RESULT, 1},	/* getrandom */
	{332, 4, 256, 0},	/* statx */
};

bool memview_knows_syscall(uint64_t sysno)
{
	/* open close lseek mprotect brk write pwrite64 writev access getpid getuid
	 * getgid geteuid getegid openat futex exit_group: these write nothing */
	static const uint16_t harmless[] = {1,  2,  3,   8,	  10,  12,  18,	 20,
					    21, 39, 102, 104, 107, 108, 202, 231, 257};

	for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++)
		if (harmless[i] == sysno)
			return true;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (table[i].nr == sysno)
			return true;
	return false;
}

/* Memory given back: it is as freshly mapped. The snapshot is no word on that. */
static void discard(struct memview *mv, uint64_t addr, uint64_t length)
{
	const struct space_map *m = space_find(mv->th->space, addr);

	if (m && !m->initial)
		memview_forget(mv, addr, length);
	else
		memview_stale(mv, addr, length);
}

void memview_syscall(struct memview *mv, const uint64_t *gpr, uint64_t result)
{
	static const uint8_t args[] = {DJ_RDI, DJ_RSI, DJ_RDX, DJ_R10, DJ_R8, DJ_R9};

	if (result > -4096ULL)
		return; /* failed */
	if (gpr[DJ_RAX] == MREMAP && result != gpr[DJ_RDI])
		memview_move(mv, gpr[DJ_RDI], result,
			     gpr[DJ_RSI] < gpr[DJ_RDX] ? gpr[DJ_RSI] : gpr[DJ_RDX]);
	if (gpr[DJ_RAX] == MADVISE && gpr[DJ_RDX] == DONTNEED)
		discard(mv, gpr[DJ_RDI], gpr[DJ_RSI]);
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		const struct writes *w = &table[i];
		if (w->nr != gpr[DJ_RAX])
			continue;
		uint64_t to = gpr[args[w->arg]];
		if (to)
			memview_stale(mv, to, w->size != RESULT ? w->size : result * w->scale);
	}
}

void memview_effects(struct memview *mv, const struct dj_record *r)
{
	struct emu *e = mv->th->e;
	struct insn in;

	if (!r->insn_len || r->insn_len > sizeof(r->insn) ||
	    insn_decode_as(e->kind, &in, r->insn, r->insn_len, e->cpu.rip) <= 0)
		return;
	/* XSAVE and its kin write what is in use: here up to AVX, since the recorded program
	 * is shown no more (SDM vol. 1, 13.4: legacy area, header, upper halves of ymm) */
	uint64_t size = in.attr & INSN_A_XSTATE ? 512 + 64 + 256 : in.mem_size;
	if (in.attr & INSN_A_STACK && !in.has_mem)
		memview_stale(mv, e->cpu.gpr[DJ_RSP] - 8, 8);
	if (in.attr & INSN_A_STRING)
		memview_stale(mv, e->cpu.gpr[DJ_RDI], 64);
	if (in.id == INSN_CLZERO)
		memview_stale(mv, e->cpu.gpr[DJ_RAX] & ~63ULL, 64);
	if (!in.has_mem || (!(in.mem_access & INSN_W) && !(in.attr & INSN_A_XSTATE)))
		return;
	uint64_t a = in.base == INSN_RIP ? in.target : (uint64_t)in.disp;
	if (in.base < 16)
		a += e->cpu.gpr[in.base];
	if (in.index < 16)
		a += e->cpu.gpr[in.index] * in.scale;
	if (in.addr32)
		a = (uint32_t)a;
	a += in.seg == 4 ? e->cpu.segbase[1] : in.seg == 5 ? e->cpu.segbase[2] : 0;
	memview_stale(mv, a, size);
}
