/*
 * Heirs: what was translated for an image that has ended goes to the next one of its kind.
 *
 * A build starts its compiler a hundred times, and each time the same hundred thousand fragments
 * are wanted. To make them again of what was kept takes a third of the supervisor's time, and the
 * memory for them is as much as the compiler's own. But a program that is not position independent
 * lies where it lay, and so does the arena near it; its code is the same; and what is translated
 * says nothing of the process that it is executed in. So when such a program has ended, its
 * translator stays, and with it the file that its arenas lie in, of which the next image has them
 * mapped where they were. In the forked children of a process, a shell's for instance, all modules
 * lie where they lay in the child before.
 *
 * What was translated of anything else goes: the libraries of an image lie elsewhere each time, and
 * so does the vdso. So does what the program has changed. That the code is what it was is not taken
 * for granted: all of its pages are summed up when the image ends, in its memory, and when the next
 * one begins, in its. Tables, control blocks, rings and shadows are new.
 *
 * Who is to have it is the same as whoever had it: same user, groups, capabilities, filters. For
 * the arenas are code that the one before might have written to, had it got away from us, and the
 * other will execute. doc/security.md has the argument.
 *
 * An image that becomes another one by exec leaves a translator, too, but nobody gets it before
 * that other one has memory of its own for what only deja looks at.
 */
#include "recorder/heir.h"
#include "recorder/area.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define HEIRS  4u	    /* in a recording: who has not been wanted longest goes */
#define FEWEST 1000u	    /* fragments: fewer are made again as soon */
#define LOW    (1ULL << 32) /* a program below that is not position independent */
#define RANGES 64u	    /* mappings of code */

/* A mapping of the program's code. */
struct range {
	uint64_t start, end, offset;
	int32_t module;
};

struct rec_heir {
	struct rec_heir *next;
	struct translator *tr;
	int memfd;
	uint64_t memfd_end, memfd_size, tables_off, window_off, own_off;
	struct rec_arena arena[REC_ARENAS];
	struct range range[RANGES];
	unsigned n_ranges;
	bool copy;
	uint64_t who, sum, n;
};

/* ---- which program it is -------------------------------------------------------------------- */

/* Whether code there may be where the next one has it. */
static bool lies_there(const struct rec_process *proc, uint64_t addr)
{
	return proc->heir.copy || addr < LOW;
}

/* The mappings of code of which that can be said. False: there are none, or too many. */
static bool ranges_of(struct rec_process *proc, struct range range[RANGES], unsigned *n)
{
	const struct dj_mapping *m = dj_mappings_after(&proc->maps, 0, PROT_EXEC);
	for (*n = 0; m && lies_there(proc, m->start);
	     m = dj_mappings_after(&proc->maps, m->end, PROT_EXEC)) {
		if (m->module < 0)
			continue;
		if (*n == RANGES)
			return false;
		range[(*n)++] = (struct range){ m->start, m->end, m->offset, m->module };
	}
	return *n > 0;
}

static bool same_ranges(const struct rec_heir *h, const struct range range[RANGES], unsigned n)
{
	if (n != h->n_ranges)
		return false;
	for (unsigned i = 0; i < n; i++)
		if (range[i].start != h->range[i].start || range[i].end != h->range[i].end ||
		    range[i].offset != h->range[i].offset || range[i].module != h->range[i].module)
			return false;
	return true;
}

/* What it may do, in one word; 0 if that cannot be known. */
static uint64_t who_is(struct rec_thread *t)
{
	static const char *const lines[] = { "Uid:", "Gid:", "Groups:", "Cap", "NoNew", "Seccomp" };
	struct rec_tracer *tracer = t->rec->tracer;
	char path[64], space[64], *line = NULL;
	size_t room = 0;
	uint64_t sum = 0;
	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)t->tid);
	ssize_t len = readlink(path, space, sizeof(space));
	FILE *f = len > 0 ? tracer->open_proc(tracer, t->tid, "status") : NULL;
	if (!f)
		return 0;
	sum = dj_sum(sum, space, (size_t)len);
	while (getline(&line, &room, f) > 0)
		for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++)
			if (!strncmp(line, lines[i], strlen(lines[i])))
				sum = dj_sum(sum, line, strlen(line));
	free(line);
	fclose(f);
	return sum;
}

/* ---- its code ------------------------------------------------------------------------------- */

static bool is_kept(void *ctx, uint64_t page)
{
	struct rec_process *proc = ctx;
	return lies_there(proc, page << 12) && rec_code_is_modules(proc, page << 12);
}

struct summing {
	struct rec_process *proc;
	uint64_t sum;
	bool failed;
};

static void add_page(void *ctx, uint64_t page)
{
	struct summing *s = ctx;
	uint8_t bytes[4096];
	if (!s->failed && is_kept(s->proc, page) &&
	    rec_read(s->proc, page << 12, bytes, sizeof(bytes)) == sizeof(bytes))
		s->sum ^= dj_sum(page, bytes, sizeof(bytes));
	else
		s->failed = true;
}

/* Of all pages that anything depends on, as they are in the process; 0 if one is not a module's. */
static uint64_t sum_of(const struct translator *tr, struct rec_process *proc)
{
	struct summing s = { .proc = proc };
	tr_pages(tr, add_page, &s);
	return s.failed ? 0 : s.sum;
}

static uint64_t made(const struct translator *tr)
{
	struct tr_stats st;
	tr_stats(tr, &st);
	return st.fragments + st.kept;
}

/* ---- it ends -------------------------------------------------------------------------------- */

void rec_heir_prepare(struct rec_thread *t)
{
	struct rec_process *proc = t->proc;
	struct range range[RANGES];
	unsigned n;
	proc->heir.sum = 0;
	if (proc == t->rec->first) /* mostly all is over then */
		return;
	if (!proc->heir.alone || proc->n_threads != 1 || t->group != proc || proc->trap.faults ||
	    !proc->tr || proc->heir.had + made(proc->tr) < FEWEST || !ranges_of(proc, range, &n))
		return;
	tr_keep_only(proc->tr, is_kept, proc);
	proc->heir.made = made(proc->tr);
	proc->heir.sum = sum_of(proc->tr, proc);
	proc->heir.who = who_is(t);
}

static void heir_free(struct rec_heir *h)
{
	tr_free(h->tr);
	for (unsigned i = 0; i < REC_ARENAS; i++)
		if (h->arena[i].ours)
			munmap(h->arena[i].ours, TR_ARENA_SIZE);
	close(h->memfd);
	free(h);
}

void rec_heirs_free(struct rec_recording *rec)
{
	while (rec->heirs) {
		struct rec_heir *h = rec->heirs;
		rec->heirs = h->next;
		heir_free(h);
	}
}

/* Arenas in which nothing is left. */
static void give_back_arenas(struct rec_process *proc)
{
	for (unsigned i = 0; i < REC_ARENAS; i++) {
		uint64_t at = 0, size;
		if (!proc->window.arena[i].at)
			continue;
		for (unsigned k = 0; tr_arena(proc->tr, k, &at, &size); k++)
			if (at == proc->window.arena[i].at)
				break;
		if (at != proc->window.arena[i].at)
			rec_window_give_back(proc, proc->window.arena[i].at);
	}
}

/* The first of them is the newest. */
static void add_heir(struct rec_recording *rec, struct rec_heir *h)
{
	unsigned n = 0;
	h->next = rec->heirs;
	rec->heirs = h;
	for (struct rec_heir **at = &rec->heirs; *at; n++) {
		struct rec_heir *o = *at;
		if (n < HEIRS) {
			at = &o->next;
			continue;
		}
		*at = o->next;
		heir_free(o);
	}
}

/* Whether the image has ended as it said it would. */
static bool has_ended(const struct rec_process *proc)
{
	return proc->n_threads ? !proc->exits : WIFEXITED(proc->status);
}

void rec_heir_leave(struct rec_process *proc)
{
	struct rec_heir *h;
	struct range range[RANGES];
	const uint64_t sum = proc->heir.sum;
	unsigned n;
	proc->heir.sum = 0;
	if (!sum || !proc->heir.who || !proc->tr || proc->free || !has_ended(proc) ||
	    rec_over(proc->rec) || made(proc->tr) != proc->heir.made || !ranges_of(proc, range, &n))
		return;
	tr_drop_empty_arenas(proc->tr);
	give_back_arenas(proc);
	h = calloc(1, sizeof(*h));
	DJ_ASSERT(h, "out of memory for an heir");
	*h = (struct rec_heir){ .tr = proc->tr,
				.memfd = proc->memfd,
				.memfd_end = proc->memfd_end,
				.memfd_size = proc->memfd_size,
				.tables_off = proc->tables_off,
				.window_off = proc->window.off,
				.own_off = proc->own.off,
				.n_ranges = n,
				.copy = proc->heir.copy,
				.who = proc->heir.who,
				.sum = sum,
				.n = proc->heir.had + made(proc->tr) };
	memcpy(h->arena, proc->window.arena, sizeof(h->arena));
	memcpy(h->range, range, sizeof(range));
	proc->tr = NULL;
	proc->memfd = -1;
	memset(&proc->window, 0, sizeof(proc->window));
	proc->heir.left = h;
}

void rec_heir_settle(struct rec_process *proc)
{
	struct rec_heir *h = proc->heir.left;
	proc->heir.left = NULL;
	if (!h)
		return;
	/* tables, control block and ring lie in a row */
	if (fallocate(h->memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)h->tables_off,
		      AREA_TABLES + AREA_THREAD))
		heir_free(h);
	else
		add_heir(proc->rec, h);
}

/* ---- another one begins --------------------------------------------------------------------- */

void rec_heir_give_up(struct rec_process *proc)
{
	if (proc->heir.of)
		heir_free(proc->heir.of);
	proc->heir.of = NULL;
}

bool rec_heir_find(struct rec_thread *t)
{
	struct rec_process *proc = t->proc;
	struct rec_heir **at = &t->rec->heirs;
	struct range range[RANGES];
	unsigned n;
	rec_heir_give_up(proc);
	proc->heir.copy = t->area.forked;
	proc->heir.had = 0;
	if (!*at || proc->trap.faults || !ranges_of(proc, range, &n))
		return false;
	while (*at && ((*at)->copy != proc->heir.copy || !same_ranges(*at, range, n)))
		at = &(*at)->next;
	struct rec_heir *h = *at;
	if (!h || h->who != who_is(t) || h->sum != sum_of(h->tr, proc))
		return false;
	*at = h->next;
	h->next = NULL;
	proc->heir.of = h;
	return true;
}

int rec_heir_file(const struct rec_process *proc)
{
	return dup(proc->heir.of->memfd);
}

void rec_heir_places(struct rec_process *proc)
{
	const struct rec_heir *h = proc->heir.of;
	proc->memfd_end = h->memfd_end;
	proc->memfd_size = h->memfd_size;
	proc->window.off = h->window_off;
	proc->own.off = h->own_off;
}

/* ---- its arenas ----------------------------------------------------------------------------- */

/* They cannot be had: it begins like any other. */
static enum rec_state begin_anew(struct rec_thread *t, int64_t result)
{
	struct rec_process *proc = t->proc;
	(void)result;
	while (t->area.arena > 0) {
		uint64_t at = proc->window.arena[--t->area.arena].at;
		if (at)
			return rec_call(t, begin_anew, SYS_munmap, at, TR_ARENA_SIZE, 0, 0, 0, 0);
	}
	tr_free(proc->tr);
	proc->tr = NULL;
	proc->heir.had = 0;
	for (unsigned i = 0; i < REC_ARENAS; i++)
		if (proc->window.arena[i].at)
			rec_window_give_back(proc, proc->window.arena[i].at);
	return rec_image_translator(t);
}

static enum rec_state next_arena(struct rec_thread *t, int64_t result);

static enum rec_state arena_there(struct rec_thread *t, int64_t result)
{
	struct rec_process *proc = t->proc;
	uint64_t at = proc->window.arena[t->area.arena].at;
	if ((uint64_t)result != at)
		return begin_anew(t, 0);
	rec_data_not(proc, at, at + TR_ARENA_SIZE);
	t->area.arena++;
	return next_arena(t, 0);
}

static enum rec_state next_arena(struct rec_thread *t, int64_t result)
{
	struct rec_process *proc = t->proc;
	(void)result;
	while (t->area.arena < REC_ARENAS && !proc->window.arena[t->area.arena].at)
		t->area.arena++;
	if (t->area.arena == REC_ARENAS) {
		rec_count(t, proc->heir.copy ? REC_COUNT_HEIRS_FORKED : REC_COUNT_HEIRS);
		return REC_IN_HAND;
	}
	uint64_t at = proc->window.arena[t->area.arena].at;
	if (!rec_hole(t, &at, 1, TR_ARENA_SIZE))
		return begin_anew(t, 0);
	return rec_window_map(t, t->area.arena, at, arena_there);
}

enum rec_state rec_heir_take(struct rec_thread *t, const struct tr_ops *ops)
{
	struct rec_process *proc = t->proc;
	struct rec_heir *h = proc->heir.of;
	proc->heir.of = NULL;
	proc->tr = h->tr;
	proc->heir.had = h->n;
	tr_take_over(proc->tr, ops, proc->tables);
	memcpy(proc->window.arena, h->arena, sizeof(h->arena));
	close(h->memfd);
	free(h);
	t->area.arena = 0;
	return rec_limits_raise(t, next_arena);
}
