/*
 * Deja's memory in the program: the area of a thread (control region and shadow). doc/recorder.md
 * ("What the program is made to do for its area") is the essay.
 *
 * The shared file is made by the program, in a memfd_create() call made for it, and the supervisor
 * takes it from there: so nothing is opened by name, and it does not matter who the program is by
 * now, what it sees of the file system and what it may open. The descriptor is closed again before
 * the program's first instruction. What arenas need later lies in a window, a mapping of the rest
 * of the file (arena.c).
 */
#include "recorder/area.h"
#include "recorder/cpuid.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MFD_EXEC
#define MFD_EXEC 0x10u /* linux/memfd.h, since Linux 6.3 */
#endif

#define FILE_FLAGS (MFD_CLOEXEC | MFD_ALLOW_SEALING)

/* ---- shared memory ---- */

uint8_t *rec_shared_map(struct rec_process *proc, uint64_t off, uint64_t size)
{
	if (off + size > proc->memfd_size) {
		if (ftruncate(proc->memfd, (off_t)(off + size)))
			return NULL;
		proc->memfd_size = off + size;
	}
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, proc->memfd, (off_t)off);
	return p == MAP_FAILED ? NULL : p;
}

/* What nobody has of it begins here: at the end, or where who left it had the same. */
static uint64_t *next_place(struct rec_process *proc)
{
	return proc->heir.of ? &proc->heir.place : &proc->memfd_end;
}

/* The next `size` bytes, which who left them may have mapped. */
static uint8_t *shared(struct rec_process *proc, uint8_t *mapped, uint64_t size, uint64_t *off)
{
	uint64_t *next = next_place(proc);
	uint8_t *p = mapped ? mapped : rec_shared_map(proc, *next, size);
	if (!p)
		return NULL;
	*off = *next;
	*next += size;
	return p;
}

void rec_tables_free(struct rec_process *proc)
{
	if (proc->tables && !rec_heir_leave_tables(proc))
		munmap(proc->tables, AREA_TABLES);
	proc->tables = NULL;
}

void rec_own_free(struct rec_thread *t)
{
	rec_times_hide(t);
	if (t->own)
		munmap(t->own, AREA_THREAD);
	t->own = NULL;
}

/* Shared memory for an address space and for a thread of it, in us and in memfd; 0, or -1 with
 * errno. */
static int make_tables(struct rec_process *proc)
{
	uint8_t *new = shared(proc, rec_heir_tables(proc), AREA_TABLES, &proc->tables_off);
	if (!new)
		return -1;
	rec_order_tables(proc, new);
	rec_tables_free(proc);
	proc->tables = new;
	rec_logs_tables(proc);
	rec_cpuid_table(proc);
	return 0;
}

static int make_own(struct rec_thread *t)
{
	uint8_t *new = shared(t->proc, NULL, AREA_THREAD, &t->own_off);
	if (!new)
		return -1;
	rec_own_free(t);
	t->own = new;
	t->gs_base = 0; /* as there */
	return 0;
}

/* ---- the area of a thread: tables and the thread's own part up to the shadow's first page
 * (shared), the rest of the shadow (private), the first page again, and the window, in one piece
 * ---- */

/* Where it is put if nothing is there yet. Sanitizers, language runtimes and Wine map memory at
 * fixed places; doc/recorder.md says which, and why this is none of them. */
#define AREA_HINT 0x7e8100000000ULL
/* A page (series.c). */
#define SERIES	   (AREA_CONTROL + AREA_SHADOW + REC_WINDOW_SIZE + REC_OWN_SIZE)
#define AREA_TOTAL (SERIES + AREA_PAGE)

uint64_t rec_area_size(const struct rec_process *proc, int resource)
{
	if (resource == RLIMIT_NOFILE)
		return proc->more_files ? 65536 : 0;
	if (resource == RLIMIT_DATA) /* of what is private and writable */
		return ((1ULL << 32) - AREA_PAGE) * (1 + proc->own.n_areas);
	uint64_t size = AREA_TOTAL + proc->own.n_areas * REC_AREA_THREAD;
	for (unsigned i = 0; i < REC_ARENAS; i++)
		size += proc->window.arena[i].at ? TR_ARENA_SIZE : 0;
	return size;
}

uint64_t rec_area_span(void)
{
	return AREA_TOTAL;
}

/* As they are mapped below. */
bool rec_area_part(unsigned i, uint64_t *at, uint64_t *size)
{
	static const struct {
		uint64_t at, size;
	} parts[] = {
		{ 0, AREA_ORDER },
		{ AREA_ORDER, AREA_CONTROL - AREA_ORDER + AREA_PAGE },
		{ AREA_CONTROL + AREA_PAGE, (1UL << 32) - AREA_PAGE },
		{ AREA_CONTROL + (1UL << 32), AREA_PAGE },
		{ AREA_CONTROL + AREA_SHADOW, REC_WINDOW_SIZE },
		{ AREA_CONTROL + AREA_SHADOW + REC_WINDOW_SIZE, REC_OWN_SIZE },
		{ SERIES, AREA_PAGE },
	};
	if (i >= sizeof(parts) / sizeof(*parts))
		return false;
	*at = parts[i].at;
	*size = parts[i].size;
	return true;
}

static enum rec_state no_area(struct rec_thread *t, int64_t result)
{
	(void)result;
	return rec_no_image(t, "%s", t->area.why);
}

/* Something failed: nothing of deja's stays in the program. */
static enum rec_state area_given_up(struct rec_thread *t, int64_t result)
{
	(void)result;
	if (t->area.fd >= 0) {
		uint64_t fd = (uint64_t)t->area.fd;
		t->area.fd = -1;
		return rec_call(t, area_given_up, SYS_close, fd, 0, 0, 0, 0, 0);
	}
	if (t->area.link >= 0)
		close(t->area.link);
	t->area.link = -1;
	t->proc->more_files = false;
	return rec_layout_done(t, no_area);
}

static enum rec_state area_failed(struct rec_thread *t, const char *what, int64_t result)
{
	const char *hint = result == -ENOMEM ? " (a memory limit?)" : "";
	snprintf(t->area.why, sizeof(t->area.why), "cannot %s %s: %s%s", what, rec_program_name(t),
		 strerror((int)-result), hint);
	if (!t->area.at)
		return area_given_up(t, 0);
	return rec_call(t, area_given_up, SYS_munmap, t->area.at, AREA_TOTAL, 0, 0, 0, 0);
}

/* What is to be mapped, from where it is reserved on; and what is to be done about it. */
enum {
	MAP_SHADOW,
	MAP_CONTROL,
	MAP_ALIAS,
	MAP_WINDOW,
	MAP_OWN,
	MUST_BE, /* all of these */
	HIDE_WINDOW = MUST_BE,
	CLOSE_FILE,
	OPEN_ORDER,
	MAP_ORDER,
	CLOSE_ORDER,
	NOT_DUMPED,
	SMALL_PAGES,
	NOT_FORKED,
	OWN_LAYOUT
};

static enum rec_state area_ready(struct rec_thread *t, int64_t result)
{
	(void)result;
	return rec_image_ready(t);
}

static enum rec_state area_complete(struct rec_thread *t, int64_t result)
{
	struct rec_process *proc = t->proc;
	(void)result;
	proc->more_files = false;
	return rec_limits_raise(t, area_ready);
}

static enum rec_state area_laid_out(struct rec_thread *t, int64_t result)
{
	static const char *const what[MUST_BE] = {
		[MAP_SHADOW] = "map the shadow into",
		[MAP_CONTROL] = "map the control block into",
		[MAP_ALIAS] = "map the control block into",
		[MAP_WINDOW] = "map memory for code into",
		[MAP_OWN] = "map memory for threads into",
	};
	struct rec_process *proc = t->proc;
	bool copies = rec_series_made(t, NOT_FORKED);
	rec_write(proc, t->area.text, t->area.saved, sizeof(t->area.saved));
	if (result)
		return area_failed(t, what[rec_series_failed(t)], result);
	t->area.fd = -1;
	t->layout.fixed = false;
	proc->window.at = t->s + AREA_SHADOW;
	proc->window.hidden = rec_series_made(t, HIDE_WINDOW);
	proc->own.at = proc->window.at + REC_WINDOW_SIZE;
	if (rec_series_made(t, MAP_ORDER))
		rec_order_mapped(proc);
	proc->not_forked = copies && proc->order_mapped;
	if (copies && !proc->order_mapped)
		return rec_call(t, area_complete, SYS_madvise, t->area.at + AREA_ORDER,
				AREA_TOTAL - AREA_ORDER, MADV_DOFORK, 0, 0, 0);
	return area_complete(t, 0);
}

static void map(struct rec_thread *t, unsigned what, uint64_t at, uint64_t size, uint64_t off)
{
	rec_series_add(t, what, REC_MUST, SYS_mmap, at, size,
		       what == MAP_WINDOW ? PROT_READ | PROT_EXEC : PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_FIXED, (uint64_t)t->area.fd, off);
}

/* The pages of the order are the recording's, in all its processes. A forked child has them from
 * its parent. A new image opens them by the supervisor's descriptor, if it can: else the process
 * keeps its own. */
static void want_order(struct rec_thread *t)
{
	char text[sizeof(t->area.saved)];
	int fd = t->proc->order_mapped ? -1 : rec_order_file(t->rec);
	if (fd < 0)
		return;
	snprintf(text, sizeof(text), "/proc/%d/fd/%d", getpid(), fd);
	rec_write(t->proc, t->area.text, text, sizeof(text));
	rec_series_add(t, OPEN_ORDER, REC_KEEPS, SYS_openat, (uint64_t)AT_FDCWD, t->area.text,
		       O_RDWR | O_CLOEXEC, 0, 0, 0);
	rec_series_add(t, MAP_ORDER, REC_MAY, SYS_mmap, t->area.at, AREA_ORDER,
		       PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, (uint64_t)SERIES_KEPT, 0);
	rec_series_add(t, CLOSE_ORDER, REC_MAY, SYS_close, (uint64_t)SERIES_KEPT, 0, 0, 0, 0, 0);
}

/* What may fail is for the better: it does not matter whether it does. */
static enum rec_state area_lay_out(struct rec_thread *t, int64_t result)
{
	struct rec_process *proc = t->proc;
	const uint64_t there = proc->order_mapped ? AREA_ORDER : 0;
	const uint64_t window = t->s + AREA_SHADOW;
	(void)result;
	rec_series_begin(t);
	rec_series_add(t, MAP_SHADOW, REC_MUST, SYS_mmap, t->s, 1UL << 32, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, (uint64_t)-1, 0);
	/* tables and the thread's own part lie in a row in the file, too */
	map(t, MAP_CONTROL, t->area.at + there, AREA_TABLES + AREA_THREAD - there,
	    proc->tables_off + there);
	map(t, MAP_ALIAS, t->s + (1UL << 32), AREA_PAGE, t->own_off + AREA_THREAD - AREA_PAGE);
	map(t, MAP_WINDOW, window, REC_WINDOW_SIZE, proc->window.off);
	if (rec_window_may_hide(t))
		rec_series_add(t, HIDE_WINDOW, REC_MAY, SYS_mprotect, window, REC_WINDOW_SIZE,
			       PROT_NONE, 0, 0, 0);
	map(t, MAP_OWN, window + REC_WINDOW_SIZE, REC_OWN_SIZE, proc->own.off);
	rec_series_add(t, CLOSE_FILE, REC_MAY, SYS_close, (uint64_t)t->area.fd, 0, 0, 0, 0, 0);
	want_order(t);
	rec_series_add(t, NOT_DUMPED, REC_MAY, SYS_madvise, t->area.at, AREA_TOTAL, MADV_DONTDUMP,
		       0, 0, 0);
	rec_series_add(t, SMALL_PAGES, REC_MAY, SYS_madvise, t->s + AREA_PAGE,
		       (1UL << 32) - AREA_PAGE, MADV_NOHUGEPAGE, 0, 0, 0);
	rec_layout_add(t, OWN_LAYOUT);
	if (t->rec->opt.follow)
		rec_series_add(t, NOT_FORKED, REC_MAY, SYS_madvise, t->area.at + AREA_ORDER,
			       AREA_TOTAL - AREA_ORDER, MADV_DONTFORK, 0, 0, 0);
	return rec_series_run(t, area_laid_out);
}

static enum rec_state area_reserved(struct rec_thread *t, int64_t result)
{
	if (rec_failed(result)) {
		char what[64];
		snprintf(what, sizeof(what), "map %llu MiB into",
			 (unsigned long long)(AREA_TOTAL >> 20));
		return area_failed(t, what, result);
	}
	if (!t->proc->order_mapped)
		t->area.at = (uint64_t)result;
	t->proc->area_at = t->area.at;
	t->s = t->area.at + AREA_CONTROL;
	return rec_series_place(t, t->area.at + SERIES, t->area.fd, t->proc->series.off,
				area_lay_out);
}

/* The file is there: take it, and lay it out. */
static enum rec_state area_made(struct rec_thread *t)
{
	struct rec_process *proc = t->proc;
	struct rec_tracer *tracer = t->rec->tracer;
	int fd = t->area.link;
	t->area.link = -1;
	if (fd < 0)
		fd = tracer->take_file(tracer, t->tid, t->area.fd);
	if (fd < 0)
		return area_failed(t, "take a file from", -errno);
	if (proc->memfd >= 0)
		close(proc->memfd);
	/* The program may find it (/proc/PID/fd, map_files): what is mapped here is not to go. */
	fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL);
	proc->memfd = fd;
	proc->memfd_end = proc->memfd_size = 0;
	if (proc->heir.of)
		rec_heir_places(proc);
	if (make_tables(proc) || make_own(t))
		return area_failed(t, "make the shared memory for", -errno);
	rec_heir_settle(proc);
	uint64_t *next = next_place(proc);
	proc->series.off = *next;
	*next += AREA_PAGE;
	DJ_ASSERT(*next == REC_WINDOW_OFF, "the window is not where an estate has it");
	if (!proc->heir.of) {
		proc->window.off = proc->memfd_end;
		proc->own.off = proc->window.off + REC_WINDOW_SIZE;
		proc->memfd_end = proc->own.off + REC_OWN_SIZE;
	}
	if (proc->order_mapped) /* the place behind them has been cleared */
		return rec_call(t, area_reserved, SYS_mmap, t->area.at + AREA_ORDER,
				AREA_TOTAL - AREA_ORDER, PROT_NONE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
				(uint64_t)-1, 0);
	return rec_call(t, area_reserved, SYS_mmap, AREA_HINT, AREA_TOTAL, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, (uint64_t)-1, 0);
}

int rec_area_file(void)
{
	int fd = memfd_create("deja", FILE_FLAGS | MFD_EXEC);
	return fd < 0 ? memfd_create("deja", FILE_FLAGS) : fd;
}

/* Ways to get the file, tried in this order. */
enum { MAKE_EXECUTABLE, MAKE, OPEN, WAYS };

static enum rec_state area_file(struct rec_thread *t, int64_t result);

static enum rec_state make_file(struct rec_thread *t, int64_t result)
{
	char text[sizeof(t->area.saved)] = "deja";
	(void)result;
	if (t->area.way == OPEN && t->area.link < 0)
		t->area.link = rec_area_file();
	if (t->area.way == OPEN)
		snprintf(text, sizeof(text), "/proc/%d/fd/%d", getpid(), t->area.link);
	rec_write(t->proc, t->area.text, text, sizeof(text));
	if (t->area.way == OPEN)
		return rec_call(t, area_file, SYS_openat, (uint64_t)AT_FDCWD, t->area.text,
				O_RDWR | O_CLOEXEC, 0, 0, 0);
	return rec_call(t, area_file, SYS_memfd_create, t->area.text,
			FILE_FLAGS | (t->area.way == MAKE_EXECUTABLE ? MFD_EXEC : 0), 0, 0, 0, 0);
}

static enum rec_state area_file(struct rec_thread *t, int64_t result)
{
	if (result == -EMFILE && !t->proc->more_files) {
		t->proc->more_files = true;
		return rec_limits_raise(t, make_file);
	}
	if (rec_failed(result) && t->proc->heir.of) {
		rec_heir_give_up(t->proc);
		close(t->area.link);
		t->area.link = t->area.way = -1;
	}
	if (rec_failed(result) && ++t->area.way < WAYS)
		return make_file(t, 0);
	rec_write(t->proc, t->area.text, t->area.saved, sizeof(t->area.saved));
	if (rec_failed(result))
		return area_failed(t, "make a file for the shared memory in", result);
	t->area.fd = (int)result;
	return area_made(t);
}

/* Whether the program's filters let it make the calls that all ways have in common. */
static bool allowed(struct rec_thread *t)
{
	static const int calls[] = { SYS_mmap, SYS_close, SYS_mremap, SYS_munmap };
	struct user_regs_struct r = { .rsi = TR_ARENA_SIZE,
				      .rdx = PROT_READ | PROT_EXEC,
				      .r10 = MAP_SHARED | MAP_FIXED };
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		r.rax = (unsigned long long)calls[i];
		if (!rec_filters_allow(t, t->proc->vdso_syscall, &r))
			return false;
	}
	return true;
}

/* Memory that is mapped over a reservation does not count anew, so the kernel would only refuse the
 * program's own. */
static enum rec_state area_room(struct rec_thread *t, int64_t result)
{
	(void)result;
	if (!rec_limits_suffice(t)) /* which are mostly ours, too */
		return area_failed(t, "have room for deja's memory in", -ENOMEM);
	if (rec_heir_find(t)) {
		t->area.link = rec_heir_file(t->proc);
		if (t->area.link >= 0)
			t->area.way = OPEN;
		else
			rec_heir_give_up(t->proc);
	}
	return make_file(t, 0);
}

enum rec_state rec_area_begin(struct rec_thread *t)
{
	t->area.fd = t->area.link = -1;
	t->area.at = t->proc->order_mapped ? t->proc->area_at : 0;
	t->proc->area_at = t->proc->series.at = 0;
	t->area.way = MAKE_EXECUTABLE;
	if (!allowed(t)) {
		snprintf(t->area.why, sizeof(t->area.why),
			 "a seccomp filter forbids %s what deja needs", rec_program_name(t));
		return t->area.at ? rec_call(t, area_given_up, SYS_munmap, t->area.at, AREA_ORDER,
					     0, 0, 0, 0)
				  : area_given_up(t, 0);
	}
	/* names go below the stack pointer, out of the red zone, and are taken back */
	t->area.text = (t->regs.rsp - 2048) & ~15ULL;
	if (rec_read(t->proc, t->area.text, t->area.saved, sizeof(t->area.saved)) !=
	    sizeof(t->area.saved)) {
		snprintf(t->area.why, sizeof(t->area.why), "cannot write to the stack of %s",
			 rec_program_name(t));
		return area_given_up(t, 0);
	}
	return rec_limits_begin(t, area_room);
}

/* ---- its pieces ---- */

bool rec_area_next(struct rec_pieces *p, uint64_t *at, uint64_t *size)
{
	const struct rec_process *proc = p->proc;
	*size = REC_AREA_THREAD;
	switch (p->what) {
	case REC_PIECE_FIRST:
		if (!proc->area_at)
			return false;
		p->what = REC_PIECE_THREAD;
		p->t = proc->rec->threads;
		*at = proc->area_at;
		*size = AREA_TOTAL;
		return true;
	case REC_PIECE_THREAD:
		while (p->t &&
		       (p->t->proc != proc || !p->t->s || p->t->own_part < 0 || p->t->area.gone))
			p->t = p->t->next;
		if (p->t) {
			*at = p->t->s - AREA_CONTROL;
			p->t = p->t->next;
			return true;
		}
		p->what = REC_PIECE_SPARE;
		p->spare = proc->own.spares;
		/* fall through */
	case REC_PIECE_SPARE:
		if (rec_spare_next(&p->spare, at))
			return true;
		p->what = REC_PIECE_ARENA;
		/* fall through */
	default:
		return proc->tr && tr_arena(proc->tr, p->arena++, at, size);
	}
}

struct rec_range *rec_area_pieces(const struct rec_process *proc, unsigned *n)
{
	struct rec_pieces count = { proc }, p = { proc };
	struct rec_range *pieces, r;
	for (*n = 0; rec_area_next(&count, &r.at, &r.size);)
		++*n;
	pieces = calloc(*n + 1, sizeof(*pieces));
	DJ_ASSERT(pieces, "out of memory for what is deja's");
	for (unsigned i = 0; i < *n; i++)
		rec_area_next(&p, &pieces[i].at, &pieces[i].size);
	return pieces;
}

/* Which of the places are no room for so much, because something is mapped there. */
static void see_taken(struct rec_thread *t, const uint64_t *places, unsigned n, uint64_t size,
		      bool taken[REC_PLACES])
{
	char line[512];
	FILE *f = t->rec->tracer->open_proc(t->rec->tracer, t->tid, "maps");

	DJ_ASSERT(n <= REC_PLACES, "%u places", n);
	for (unsigned i = 0; i < n; i++)
		taken[i] = !f || places[i] < 0x10000 || places[i] >= 0x7fffffff0000ULL - size;
	while (f && fgets(line, sizeof(line), f)) {
		uint64_t start, end;
		if (sscanf(line, "%" SCNx64 "-%" SCNx64, &start, &end) != 2)
			continue;
		for (unsigned i = 0; i < n; i++)
			if (start < places[i] + size && places[i] < end)
				taken[i] = true;
	}
	if (f)
		fclose(f);
}

uint64_t rec_hole(struct rec_thread *t, const uint64_t *places, unsigned n, uint64_t size)
{
	bool taken[REC_PLACES];

	see_taken(t, places, n, size, taken);
	for (unsigned i = 0; i < n; i++)
		if (!taken[i])
			return places[i];
	return 0;
}

bool rec_holes(struct rec_thread *t, const uint64_t *places, unsigned n, uint64_t size)
{
	bool taken[REC_PLACES], all = true;

	see_taken(t, places, n, size, taken);
	for (unsigned i = 0; i < n; i++)
		all &= !taken[i];
	return all;
}
