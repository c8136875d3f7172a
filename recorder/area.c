/*
 * Deja's memory in the program: the area of a thread (control region and shadow), and arenas for
 * translated code. Both come from the shared file, which the program itself opens and maps, in
 * system calls made for it.
 */
#include "recorder/recorder.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool failed(int64_t r)
{
	return r < 0 && r > -4096;
}

/* The shared file as the program can open it. */
static void link_text(const struct rec_process *proc, char text[40])
{
	memset(text, 0, 40);
	snprintf(text, 40, "/proc/%d/fd/%d", getpid(), proc->memfd);
}

/* ---- shared memory ---- */

/* `size` bytes of the shared file that nobody has, mapped in us. NULL with errno. */
static uint8_t *shared(struct rec_process *proc, uint64_t size, uint64_t *off)
{
	uint64_t at = proc->memfd_end;
	if (ftruncate(proc->memfd, (off_t)(at + size)))
		return NULL;
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, proc->memfd, (off_t)at);
	if (p == MAP_FAILED)
		return NULL;
	proc->memfd_end = at + size;
	*off = at;
	return p;
}

int rec_tables_make(struct rec_process *proc)
{
	proc->tables = shared(proc, AREA_TABLES, &proc->tables_off);
	return proc->tables ? 0 : -1;
}

int rec_own_make(struct rec_thread *t)
{
	t->own = shared(t->proc, AREA_THREAD, &t->own_off);
	return t->own ? 0 : -1;
}

void rec_tables_free(struct rec_process *proc)
{
	if (proc->tables)
		munmap(proc->tables, AREA_TABLES);
	proc->tables = NULL;
}

void rec_own_free(struct rec_thread *t)
{
	if (t->own)
		munmap(t->own, AREA_THREAD);
	t->own = NULL;
}

/* ---- the area of a thread: tables and the thread's own part up to the shadow's first page
 * (shared), the rest of the shadow (private), and the first page again, in one piece ---- */

/* Where it is put if nothing is there yet. Sanitizers, language runtimes and Wine map memory at
 * fixed places; doc/recorder.md says which, and why this is none of them. */
#define AREA_HINT  0x7e8100000000ULL
#define AREA_TOTAL (AREA_CONTROL + AREA_SHADOW)

static enum rec_state area_failed(struct rec_thread *t, const char *what, int64_t result,
				  const char *hint)
{
	rec_fatal(t->rec, "cannot %s the program: %s%s", what, strerror((int)-result), hint);
	return REC_KILLED;
}

static enum rec_state area_done(struct rec_thread *t, int64_t result)
{
	(void)result;
	return rec_image_ready(t);
}

static enum rec_state area_closed(struct rec_thread *t, int64_t result)
{
	(void)result;
	return rec_call(t, area_done, SYS_madvise, t->s, AREA_SHADOW, MADV_NOHUGEPAGE, 0, 0, 0);
}

static enum rec_state area_aliased(struct rec_thread *t, int64_t result)
{
	if (failed(result))
		return area_failed(t, "map the control block into", result, "");
	return rec_call(t, area_closed, SYS_close, (uint64_t)t->area.fd, 0, 0, 0, 0, 0);
}

static enum rec_state area_own(struct rec_thread *t, int64_t result)
{
	if (failed(result))
		return area_failed(t, "map the control block into", result, "");
	t->s = t->area.at + AREA_CONTROL;
	return rec_call(t, area_aliased, SYS_mmap, t->s + (1UL << 32), AREA_PAGE,
			PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, (uint64_t)t->area.fd,
			t->own_off + AREA_THREAD - AREA_PAGE);
}

static enum rec_state area_tables(struct rec_thread *t, int64_t result)
{
	if (failed(result))
		return area_failed(t, "map the tables into", result, "");
	return rec_call(t, area_own, SYS_mmap, t->area.at + AREA_TABLES, AREA_THREAD,
			PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, (uint64_t)t->area.fd,
			t->own_off);
}

static enum rec_state area_mapped(struct rec_thread *t, int64_t result)
{
	if (failed(result)) {
		char what[64];
		snprintf(what, sizeof(what), "map %llu MiB into",
			 (unsigned long long)(AREA_TOTAL >> 20));
		return area_failed(t, what, result, " (memory limit?)");
	}
	t->area.at = (uint64_t)result;
	return rec_call(t, area_tables, SYS_mmap, t->area.at, AREA_TABLES, PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_FIXED, (uint64_t)t->area.fd, t->proc->tables_off);
}

static enum rec_state area_opened(struct rec_thread *t, int64_t result)
{
	rec_write(t->proc, t->area.text, t->area.saved, sizeof(t->area.saved));
	if (failed(result)) {
		char link[40];
		link_text(t->proc, link);
		rec_fatal(t->rec, "the program cannot open %s: %s (is /proc mounted?)", link,
			  strerror((int)-result));
		return REC_KILLED;
	}
	t->area.fd = (int)result;
	return rec_call(t, area_mapped, SYS_mmap, AREA_HINT, AREA_TOTAL, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, (uint64_t)-1, 0);
}

enum rec_state rec_area_begin(struct rec_thread *t)
{
	char link[40];
	link_text(t->proc, link);
	/* the path goes below the stack pointer, out of the red zone, and is taken back */
	t->area.text = (t->regs.rsp - 1024) & ~15ULL;
	if (rec_read(t->proc, t->area.text, t->area.saved, sizeof(link)) != sizeof(link) ||
	    !rec_write(t->proc, t->area.text, link, sizeof(link))) {
		rec_fatal(t->rec, "cannot write to the program's stack");
		return REC_KILLED;
	}
	return rec_call(t, area_opened, SYS_open, t->area.text, O_RDWR | O_CLOEXEC, 0, 0, 0, 0);
}

/* ---- arenas ---- */

static bool hole(struct rec_process *proc, uint64_t at, uint64_t size)
{
	char line[512];
	FILE *f = proc->rec->tracer->open_proc(proc->rec->tracer, proc->pid, "maps");
	bool free_there = f && at >= 0x10000 && at + size < 0x7fffffff0000ULL;
	while (free_there && fgets(line, sizeof(line), f)) {
		uint64_t start, end;
		if (sscanf(line, "%" SCNx64 "-%" SCNx64, &start, &end) == 2 && start < at + size &&
		    at < end)
			free_there = false;
	}
	if (f)
		fclose(f);
	return free_there;
}

/* Where an arena near `pc` may go. */
static uint64_t arena_place(struct rec_process *proc, uint64_t pc)
{
	uint64_t base = pc & ~0xfffffULL;
	/* clang-format off */
	const uint64_t tries[] = {
		pc < 0x60000000 ? 0x60000000ULL : base - 0x40000000, base - 0x20000000,
		base + 0x40000000, base + 0x60000000, base - 0x60000000, base - 0x10000000,
		base + 0x20000000, base - 0x70000000,
	};
	/* clang-format on */
	for (size_t i = 0; i < sizeof(tries) / sizeof(*tries); i++)
		if (hole(proc, tries[i], TR_ARENA_SIZE))
			return tries[i];
	return 0;
}

static enum rec_state no_arena(struct rec_thread *t)
{
	if (t->area.ours)
		munmap(t->area.ours, TR_ARENA_SIZE);
	t->proc->no_arena = true;
	tr_no_arena(t->proc->tr);
	return REC_IN_HAND;
}

static enum rec_state arena_closed(struct rec_thread *t, int64_t result)
{
	(void)result;
	if (!t->area.mapped)
		return no_arena(t);
	tr_add_arena(t->proc->tr, t->area.at, t->area.ours);
	return REC_IN_HAND;
}

static enum rec_state arena_mapped(struct rec_thread *t, int64_t result)
{
	t->area.mapped = !failed(result) && (uint64_t)result == t->area.at;
	return rec_call(t, arena_closed, SYS_close, (uint64_t)t->area.fd, 0, 0, 0, 0, 0);
}

static enum rec_state arena_opened(struct rec_thread *t, int64_t result)
{
	if (failed(result))
		return no_arena(t);
	t->area.fd = (int)result;
	return rec_call(t, arena_mapped, SYS_mmap, t->area.at, TR_ARENA_SIZE, PROT_READ | PROT_EXEC,
			MAP_SHARED | MAP_FIXED_NOREPLACE, (uint64_t)t->area.fd, t->area.off);
}

enum rec_state rec_arena_begin(struct rec_thread *t, uint64_t pc)
{
	struct rec_process *proc = t->proc;
	t->area.ours = NULL;
	t->area.at = arena_place(proc, pc);
	if (!t->area.at)
		return no_arena(t);
	t->area.ours = shared(proc, TR_ARENA_SIZE, &t->area.off);
	if (!t->area.ours)
		return no_arena(t);
	link_text(proc, (char *)rec_tcb(t, T_BASE + 0x700));
	return rec_call(t, arena_opened, SYS_open, t->s + (uint64_t)(int64_t)T_BASE + 0x700,
			O_RDWR | O_CLOEXEC, 0, 0, 0, 0);
}
