/*
 * System calls in a throw-away copy: functions that a debugger calls want memory, and print.
 *
 * Nothing here reaches the outside world but text for standard output and error, which goes to
 * the debugger's console. Memory comes and goes in the copy's own space, which is forgotten with
 * it. What cannot be made up without lying is left unanswered, and the copy ends there.
 */
#include "replayer/replay-internal.h"

#include <string.h>

/* Error numbers and constants of x86-64 Linux, which need not be the host's. */
enum { X_EBADF = 9, X_ENOMEM = 12, X_EINVAL = 22, X_ENOTTY = 25, X_ENOSYS = 38 };
enum { X_MAP_SHARED = 1, X_MAP_FIXED = 0x10, X_MAP_ANONYMOUS = 0x20 };
enum { X_FUTEX_WAKE = 1, X_FUTEX_COMMAND = 0x7f };
#define X_S_IFCHR 0020000
#define STAT_SIZE 144
#define STAT_MODE 24 /* offsets in struct stat */
#define STAT_RDEV 40
#define PTS_MAJOR 136

#define PAGE	   4096ULL
#define MEMORY_MAX (1ULL << 32)
#define OUTPUT_MAX (1u << 20)

static uint64_t error(int number)
{
	return -(uint64_t)number;
}

static uint64_t pages(uint64_t x)
{
	return (x + PAGE - 1) & ~(PAGE - 1);
}

static bool map_fresh(struct replay *r, uint64_t start, uint64_t end, uint32_t prot,
		      const char *name)
{
	struct dj_mapping m = {
		.start = start, .end = end, .prot = prot, .module = -1, .flags = 2 | X_MAP_ANONYMOUS
	};

	m.name = rp_space_intern(&r->names, name);
	if (rp_space_map(&r->th->space, &m, &r->th->err))
		return false;
	emu_forget_code(r->th->e, start, end - start);
	rp_memview_forget(r->mv, start, end - start);
	return true;
}

/* As the kernel does: the new break, or the old one if it cannot be moved. */
static bool do_brk(struct replay *r, const uint64_t *a, uint64_t *result)
{
	const struct dj_mappings *maps = &r->th->space->maps;
	const struct dj_mapping *heap = NULL, *above;
	uint64_t want = pages(a[0]);

	for (const struct dj_mapping *m = dj_mappings_after(maps, 0, 0); m;
	     m = dj_mappings_after(maps, m->end, 0))
		if (!strcmp(m->name, "[heap]"))
			heap = m;
	if (!heap)
		return *result = error(X_ENOMEM), true;
	above = dj_mappings_after(maps, heap->end, 0);
	uint64_t end = heap->end, next = above ? above->start : ~0ULL;
	*result = end;
	if (a[0] >= heap->start && a[0] <= end)
		*result = a[0];
	else if (a[0] > end && want >= a[0] && want <= next && want - end <= MEMORY_MAX &&
		 map_fresh(r, end, want, heap->prot, "[heap]"))
		*result = a[0];
	return true;
}

/* The upper end of the widest gap between mappings. */
static uint64_t widest_gap(const struct rp_space *s, uint64_t len)
{
	const struct dj_mapping *m = dj_mappings_after(&s->maps, 0, 0), *next;
	uint64_t best = 0, top = 0;

	for (; m && (next = dj_mappings_after(&s->maps, m->end, 0)); m = next) {
		uint64_t gap = next->start - m->end;
		/* where the vsyscall page is, nothing can be mapped below it */
		if (gap > best && !(next->start >> 47)) {
			best = gap;
			top = next->start;
		}
	}
	return best > len + 2 * (8u << 20) ? top - (8u << 20) - len : 0;
}

static bool do_mmap(struct replay *r, const uint64_t *a, uint64_t *result)
{
	uint64_t len = pages(a[1]);

	if (!(a[3] & X_MAP_ANONYMOUS) || (a[3] & X_MAP_SHARED))
		return false;
	uint64_t at = a[3] & X_MAP_FIXED ? a[0] : widest_gap(r->th->space, len);
	if (!len || len > MEMORY_MAX || !at || at % PAGE || at + len < at ||
	    !map_fresh(r, at, at + len, (uint32_t)a[2], ""))
		at = error(X_ENOMEM);
	*result = at;
	return true;
}

static bool do_munmap(struct replay *r, const uint64_t *a, uint64_t *result)
{
	uint64_t len = pages(a[1]);

	*result = error(X_EINVAL);
	if (!len || a[0] % PAGE || rp_space_unmap(&r->th->space, a[0], len, &r->th->err))
		return true;
	emu_forget_code(r->th->e, a[0], len);
	rp_memview_forget(r->mv, a[0], len);
	*result = 0;
	return true;
}

static bool do_mprotect(struct replay *r, const uint64_t *a, uint64_t *result)
{
	bool bad = rp_space_protect(&r->th->space, a[0], pages(a[1]), (uint32_t)a[2], &r->th->err);

	*result = bad ? error(X_EINVAL) : 0;
	return true;
}

static bool put_output(struct replay *r, uint64_t addr, uint64_t len)
{
	uint8_t buf[4096];

	for (uint64_t done = 0; done < len;) {
		size_t n = len - done < sizeof(buf) ? (size_t)(len - done) : sizeof(buf);
		n = rp_memview_read(r->mv, addr + done, buf, n);
		if (!n)
			return false;
		if (r->output)
			r->output(r->output_ctx, buf, n);
		done += n;
	}
	return true;
}

static bool do_write(struct replay *r, const uint64_t *a, uint64_t *result)
{
	if ((a[0] != 1 && a[0] != 2) || a[2] > OUTPUT_MAX || !put_output(r, a[1], a[2]))
		return false;
	*result = a[2];
	return true;
}

/* A terminal, so that the C library passes on lines as they are finished. */
static bool stat_terminal(struct replay *r, uint64_t fd, uint64_t to, uint64_t *result)
{
	uint8_t st[STAT_SIZE] = { 0 };
	uint16_t mode = X_S_IFCHR | 0620;

	if (fd > 2)
		return false;
	st[STAT_MODE] = (uint8_t)mode;
	st[STAT_MODE + 1] = (uint8_t)(mode >> 8);
	st[STAT_RDEV + 1] = PTS_MAJOR;
	rp_memview_write(r->mv, to, st, sizeof(st));
	*result = 0;
	return true;
}

static bool do_fstat(struct replay *r, const uint64_t *a, uint64_t *result)
{
	return stat_terminal(r, a[0], a[1], result);
}

static bool do_newfstatat(struct replay *r, const uint64_t *a, uint64_t *result)
{
	char path;

	/* with an empty path it is about the descriptor */
	if (rp_memview_read(r->mv, a[1], &path, 1) != 1 || path)
		return false;
	return stat_terminal(r, a[0], a[2], result);
}

static bool do_futex(struct replay *r, const uint64_t *a, uint64_t *result)
{
	(void)r;
	*result = 0; /* nobody waits */
	return (a[1] & X_FUTEX_COMMAND) == X_FUTEX_WAKE;
}

static bool do_getpid(struct replay *r, const uint64_t *a, uint64_t *result)
{
	(void)a;
	*result = (uint64_t)dj_trace_meta(r->t)->pid;
	return true;
}

static bool do_gettid(struct replay *r, const uint64_t *a, uint64_t *result)
{
	(void)a;
	*result = (uint64_t)r->th->info->tid;
	return true;
}

static bool nothing(struct replay *r, const uint64_t *a, uint64_t *result)
{
	(void)r;
	(void)a;
	*result = 0;
	return true;
}

static bool no_terminal(struct replay *r, const uint64_t *a, uint64_t *result)
{
	(void)r;
	(void)a;
	*result = error(X_ENOTTY);
	return true;
}

static bool no_such_call(struct replay *r, const uint64_t *a, uint64_t *result)
{
	(void)r;
	(void)a;
	*result = error(X_ENOSYS);
	return true;
}

/* Numbers: arch/x86/entry/syscalls/syscall_64.tbl. */
static const struct {
	uint16_t nr;
	bool (*answer)(struct replay *r, const uint64_t *args, uint64_t *result);
	/* clang-format off */
} calls[] = {
	{1, do_write},
	{5, do_fstat},
	{9, do_mmap},
	{10, do_mprotect},
	{11, do_munmap},
	{12, do_brk},
	{14, nothing},	   /* rt_sigprocmask: no signals come to a copy */
	{16, no_terminal}, /* ioctl */
	{28, nothing},	   /* madvise */
	{39, do_getpid},
	{186, do_gettid},
	{202, do_futex},
	{262, do_newfstatat},
	{318, no_such_call}, /* getrandom: the C library does without */
};
/* clang-format on */

bool rp_copycall_answer(void *ctx, uint64_t *result)
{
	static const uint8_t regs[] = { DJ_RDI, DJ_RSI, DJ_RDX, DJ_R10, DJ_R8, DJ_R9 };
	struct replay *r = ctx;
	const uint64_t *gpr = r->th->e->cpu.gpr;
	uint64_t args[6];

	for (size_t i = 0; i < 6; i++)
		args[i] = gpr[regs[i]];
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (calls[i].nr == gpr[DJ_RAX])
			return calls[i].answer(r, args, result);
	return false;
}
