/*
 * Heirs: what was translated for an image that has ended goes to the next one of its kind.
 *
 * A build starts its compiler a hundred times, and each time the same hundred thousand fragments
 * are wanted. To make them again of what was kept takes a third of the supervisor's time, and the
 * memory for them is as much as the compiler's own. But a program lies where it lay (layout.c), and
 * so does the arena near it; its code is the same; and what is translated says nothing of the
 * process that it is executed in. So when such a program has ended, its translator stays, and with
 * it the file that its arenas lie in, of which the next image has them mapped where they were. In
 * the forked children of a process, a shell's for instance, all modules lie where they lay in the
 * child before.
 *
 * A new image has the program and the dynamic linker. What was translated of libraries is parked
 * until they come to where they were. What is not a module's, or was changed by the program, goes;
 * and where programs are laid out at random, all of an image that is not below 4 GiB.
 *
 * That the code is what it was is not taken for granted: each page's sum is known from when it was
 * translated, and compared with what the next image has there. Tables, control blocks, rings and
 * shadows are new, or written anew.
 *
 * Who is to have it is the same as whoever had it: same user, groups, capabilities, filters. For
 * the arenas are code that the one before might have written to, had it got away from us, and the
 * other will execute. doc/security.md has the argument.
 *
 * An image that becomes another one by exec leaves a translator, too, but nobody gets it before
 * that other one has memory of its own for what only deja looks at.
 */
#include "recorder/estate.h"
#include "recorder/ahead.h"
#include "recorder/area.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* In a recording: who has not been wanted longest goes. A compiler does not go for a few small
 * tools. */
#define HEIRS	  16u
#define SMALL	  8u	  /* beside these, with fewer fragments than MANY */
#define FRAGMENTS 600000u /* that all but the newest have */

#define FEWEST 100u /* fragments: fewer are made again as soon */
#define MANY   1000u
#define LOW    (1ULL << 32) /* a program below that is not position independent */

/* ---- which program it is -------------------------------------------------------------------- */

/* Whether code there may be where the next one has it. */
static bool lies_there(const struct rec_process *proc, uint64_t addr)
{
	return proc->heir.copy || proc->heir.fixed || addr < LOW;
}

struct rec_code_ranges *rec_ranges_of(struct rec_process *proc)
{
	const struct dj_mapping *m = dj_mappings_after(&proc->maps, 0, PROT_EXEC);
	struct rec_code_ranges *in = calloc(1, sizeof(*in));
	DJ_ASSERT(in, "out of memory for an heir");
	for (; m && lies_there(proc, m->start);
	     m = dj_mappings_after(&proc->maps, m->end, PROT_EXEC)) {
		if (m->module < 0)
			continue;
		if (in->n == REC_RANGES) {
			in->n = 0;
			break;
		}
		in->range[in->n++] = (struct rec_code_range){
			.start = m->start, .end = m->end, .offset = m->offset, .module = m->module
		};
	}
	if (in->n)
		return in;
	free(in);
	return NULL;
}

static struct rec_code_range *range_like(const struct rec_recording *rec,
					 struct rec_code_ranges *in, uint64_t start, uint64_t end,
					 uint64_t offset, int32_t module)
{
	for (unsigned i = 0; i < in->n; i++) {
		struct rec_code_range *r = &in->range[i];
		if (r->start == start && r->end == end && r->offset == offset &&
		    rec_range_is_of(rec, in, r, module))
			return r;
	}
	return NULL;
}

struct rec_code_range *rec_range_at(struct rec_code_ranges *in, uint64_t page)
{
	for (unsigned i = 0; i < in->n; i++)
		if (page << 12 >= in->range[i].start && page << 12 < in->range[i].end)
			return &in->range[i];
	return NULL;
}

/* Whether all of the process's are among the heir's, which are then said to be there; and all of
 * the heir's among the process's, if it is a copy, which has everything already. */
static bool are_among(const struct rec_recording *rec, const struct rec_code_ranges *now,
		      struct rec_code_ranges *in, bool all)
{
	for (unsigned i = 0; i < in->n; i++)
		in->range[i].there = false;
	for (unsigned i = 0; i < now->n; i++) {
		const struct rec_code_range *o = &now->range[i];
		struct rec_code_range *r =
			range_like(rec, in, o->start, o->end, o->offset, o->module);
		if (!r)
			return false;
		r->there = true;
	}
	return !all || now->n == in->n;
}

/* (Most kernels have no label to tell.) */
static uint64_t with_label(uint64_t sum, FILE *label)
{
	char text[4096];
	sum = label ? dj_sum(sum, text, fread(text, 1, sizeof(text), label)) : sum;
	if (label)
		fclose(label);
	return sum;
}

uint64_t rec_who(FILE *status, FILE *label, const char *space)
{
	static const char *const lines[] = { "Uid:", "Gid:", "Groups:", "Cap", "NoNew", "Seccomp" };
	char name[64], *line = NULL;
	size_t room = 0;
	ssize_t len = readlink(space, name, sizeof(name));
	uint64_t sum = status && len > 0 ? dj_sum(0, name, (size_t)len) : 0;
	while (sum && getline(&line, &room, status) > 0)
		for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++)
			if (!strncmp(line, lines[i], strlen(lines[i])))
				sum = dj_sum(sum, line, strlen(line));
	free(line);
	if (status)
		fclose(status);
	uint64_t all = with_label(sum, label);
	return sum ? all : 0;
}

uint64_t rec_who_is(struct rec_thread *t)
{
	struct rec_tracer *tracer = t->rec->tracer;
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)t->tid);
	return rec_who(tracer->open_proc(tracer, t->tid, "status"),
		       tracer->open_proc(tracer, t->tid, "attr/current"), path);
}

/* ---- its code ------------------------------------------------------------------------------- */

/* Sums are never 0. */
static uint64_t sum_of(uint64_t page, const uint8_t bytes[4096])
{
	return dj_sum(page, bytes, 4096) | 1;
}

/* A page that translations depend on, of a process which has ended: what it had is known from when
 * it was translated, or from when it was taken over. */
static bool is_kept(void *ctx, uint64_t page, uint64_t *sum)
{
	struct rec_process *proc = ctx;
	if (!rec_range_at(proc->heir.code, page) || !rec_code_is_modules(proc, page << 12))
		return false;
	const uint8_t *bytes = *sum ? NULL : rec_code_bytes(proc, page << 12);
	if (bytes)
		*sum = sum_of(page, bytes);
	return *sum;
}

/* Whether the program has there what it is the sum of. */
static bool has_sum(void *ctx, uint64_t page, uint64_t *sum)
{
	struct rec_process *proc = ctx;
	uint8_t bytes[4096];
	const uint8_t *file = rec_code_of_file(proc, page << 12);
	if (file)
		return sum_of(page, file) == *sum;
	return rec_code_is_modules(proc, page << 12) &&
	       rec_read(proc, page << 12, bytes, sizeof(bytes)) == sizeof(bytes) &&
	       sum_of(page, bytes) == *sum && rec_code_is_like_file(proc, page << 12, bytes);
}

/* If it is there already. */
static bool is_same(void *ctx, uint64_t page, uint64_t *sum)
{
	struct rec_process *proc = ctx;
	const struct rec_code_range *r = rec_range_at(proc->heir.code, page);
	return r && (!r->there || has_sum(proc, page, sum));
}

/* Whether the code of the process, of which an heir's ranges are there, is what it was. */
static bool same_code(const struct rec_heir *h, struct rec_process *proc)
{
	proc->heir.code = h->code;
	bool same = !rec_modules_told(proc->rec) && tr_pages(h->tr, is_same, proc) &&
		    !rec_modules_told(proc->rec);
	proc->heir.code = NULL;
	return same;
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
	bool useful = t->group == proc && (t->regs.rax != SYS_exit || proc->n_threads == 1) &&
		      proc->tr && proc->heir.had + made(proc->tr) >= FEWEST;
	if (useful && proc == t->rec->first) /* mostly all is over then */
		useful = rec_estate_wanted(proc, made(proc->tr));
	proc->heir.who = useful ? rec_who_is(t) : 0;
	proc->heir.faults = proc->trap.faults;
}

void rec_heir_free(struct rec_heir *h)
{
	tr_free(h->tr);
	for (unsigned i = 0; i < REC_ARENAS; i++)
		if (h->arena[i].ours)
			munmap(h->arena[i].ours, TR_ARENA_SIZE);
	if (h->tables)
		munmap(h->tables, AREA_TABLES);
	if (h->memfd >= 0)
		close(h->memfd);
	free(h->code);
	free(h);
}

void rec_heirs_free(struct rec_recording *rec)
{
	while (rec->heirs) {
		struct rec_heir *h = rec->heirs;
		rec->heirs = h->next;
		rec_heir_free(h);
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
	unsigned n = 0, small = 0;
	uint64_t fragments = 0;
	h->next = rec->heirs;
	rec->heirs = h;
	for (struct rec_heir **at = &rec->heirs; *at;) {
		struct rec_heir *o = *at;
		bool room = o->n < MANY ? small++ < SMALL : n++ < HEIRS;
		fragments += o->n;
		if (room && (o == h || fragments <= FRAGMENTS)) {
			at = &o->next;
			continue;
		}
		*at = o->next;
		rec_estate_write(rec, o);
		rec_heir_free(o);
	}
}

void rec_heirs_write(struct rec_recording *rec)
{
	for (struct rec_process *p = rec->processes; p; p = p->next) {
		if (!p->n_threads) /* it has ended, the first one mostly */
			rec_heir_leave(p);
		if (!p->heir.left)
			continue;
		rec_estate_write(rec, p->heir.left);
		rec_heir_free(p->heir.left);
		p->heir.left = NULL;
	}
	for (struct rec_heir *h = rec->heirs; h; h = h->next)
		rec_estate_write(rec, h);
}

/* Whether the image has ended as it said it would. */
static bool has_ended(const struct rec_process *proc)
{
	return proc->n_threads ? !proc->exits : WIFEXITED(proc->status);
}

/* Only translations of code that the next one may have are left; false if there is no such code. */
static bool keep_code(struct rec_process *proc)
{
	proc->heir.code = rec_ranges_of(proc);
	if (proc->heir.code)
		tr_keep_only(proc->tr, is_kept, proc);
	return proc->heir.code;
}

void rec_heir_leave(struct rec_process *proc)
{
	struct rec_heir *h;
	free(proc->heir.parked);
	proc->heir.parked = NULL;
	if (!proc->heir.who || !proc->tr || proc->free || !has_ended(proc) || rec_over(proc->rec) ||
	    !keep_code(proc))
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
				.code = proc->heir.code,
				.copy = proc->heir.copy,
				.faults = proc->heir.faults,
				.fixed = proc->heir.fixed,
				.who = proc->heir.who,
				.program = proc->program,
				.needed = proc->heir.needed,
				.n = proc->heir.had + made(proc->tr) };
	if (h->needed < made(proc->tr))
		h->needed = made(proc->tr);
	memcpy(h->arena, proc->window.arena, sizeof(h->arena));
	proc->tr = NULL;
	proc->memfd = -1;
	memset(&proc->window, 0, sizeof(proc->window));
	proc->heir.code = NULL;
	proc->heir.who = 0;
	proc->heir.left = h;
}

static bool zero(const struct rec_heir *h, uint64_t from, uint64_t to)
{
	const int how = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	return from >= to || !fallocate(h->memfd, how, (off_t)from, (off_t)(to - from));
}

/* Tables, control block and ring, which lie in a row, are zero again, and what other threads had;
 * but not the fast table, all of which is written when somebody takes it over: fresh memory for it
 * takes twice as long. */
static bool empty(const struct rec_heir *h)
{
	const uint64_t at = h->tables_off;
	return zero(h, at, at + (T_FAST - T_TABLES)) &&
	       zero(h, at + (T_TARGETS - T_TABLES), at + AREA_TABLES + AREA_THREAD) &&
	       zero(h, h->own_off, h->memfd_size);
}

bool rec_heir_leave_tables(struct rec_process *proc)
{
	struct rec_heir *h = proc->heir.left;
	if (!h || h->tables)
		return false;
	h->tables = proc->tables;
	return true;
}

void rec_heir_settle(struct rec_process *proc)
{
	struct rec_heir *h = proc->heir.left;
	proc->heir.left = NULL;
	if (!h)
		return;
	if (empty(h))
		add_heir(proc->rec, h);
	else
		rec_heir_free(h);
}

/* ---- another one begins --------------------------------------------------------------------- */

void rec_heir_give_up(struct rec_process *proc)
{
	if (proc->heir.of)
		rec_heir_free(proc->heir.of);
	proc->heir.of = NULL;
}

bool rec_heir_fits(const struct rec_heir *h, const struct rec_process *proc,
		   const struct rec_code_ranges *now, bool faults)
{
	return h->copy == proc->heir.copy && h->faults == faults &&
	       are_among(proc->rec, now, h->code, h->copy);
}

/* What an earlier recording has left (estate.c), if it may be taken over. */
static struct rec_heir *from_before(struct rec_thread *t, const struct rec_code_ranges *now,
				    bool faults)
{
	struct rec_heir *h = rec_estate_find(t, now, faults);
	if (h && same_code(h, t->proc))
		return h;
	if (h)
		rec_heir_free(h);
	return NULL;
}

bool rec_heir_find(struct rec_thread *t)
{
	struct rec_process *proc = t->proc;
	struct rec_heir **at = &t->rec->heirs, *h = NULL;
	rec_heir_give_up(proc);
	proc->heir.copy = t->area.forked;
	proc->heir.had = proc->heir.needed = 0;
	bool faults = proc->trap.faults || rec_ahead_faults(t);
	struct rec_code_ranges *now = rec_ranges_of(proc);
	while (now && *at && !rec_heir_fits(*at, proc, now, faults))
		at = &(*at)->next;
	h = now ? *at : NULL;
	if (h && h->who == rec_who_is(t) && same_code(h, proc)) {
		*at = h->next;
		h->next = NULL;
	} else {
		h = now && !h ? from_before(t, now, faults) : NULL;
	}
	free(now);
	proc->heir.of = h;
	return h;
}

uint32_t rec_heir_unit(void *ranges, uint64_t page)
{
	struct rec_code_ranges *in = ranges;
	const struct rec_code_range *r = rec_range_at(in, page);
	if (!r)
		return TR_UNIT_NONE;
	return r->there ? 0 : 1 + (uint32_t)(r - in->range);
}

/* Whether the mapping has the range, where it may be more at first: a linker maps a library as one,
 * and then other parts of it over that. */
static bool has_range(const struct rec_process *proc, const struct dj_mapping *m,
		      struct rec_code_range *r)
{
	return r->start >= m->start && r->end <= m->end &&
	       r->start - m->start == r->offset - m->offset &&
	       rec_range_is_of(proc->rec, proc->heir.parked, r, m->module);
}

/* (Other threads' streams do not say yet that there is code now: what is made anew asks.) */
void rec_heir_mapped(struct rec_process *proc, const struct dj_mapping *m)
{
	struct rec_code_ranges *in = proc->heir.parked;
	if (!in || m->module < 0 || !proc->tr || proc->n_threads > 1)
		return;
	for (unsigned i = 0; i < in->n; i++) {
		uint64_t first = in->range[i].start >> 12, end = in->range[i].end >> 12;
		if (has_range(proc, m, &in->range[i]) && !rec_modules_told(proc->rec) &&
		    tr_parked(proc->tr, first, end, has_sum, proc) && !rec_modules_told(proc->rec))
			tr_unpark(proc->tr, first, end);
	}
}

void rec_heritage_free(struct rec_process *proc)
{
	rec_heir_give_up(proc);
	free(proc->heir.parked);
	proc->heir.parked = NULL;
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
	proc->heir.place = h->tables_off;
}

uint8_t *rec_heir_tables(struct rec_process *proc)
{
	struct rec_heir *h = proc->heir.of;
	uint8_t *tables = h ? h->tables : NULL;
	if (h)
		h->tables = NULL;
	return tables;
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
	/* whoever comes by an indirect branch finds nothing there, instead of what was to be there
	 */
	if (fallocate(proc->memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		      (off_t)(proc->tables_off + (T_TARGETS - T_TABLES)), AREA_TARGET_BYTES))
		memset(proc->tables + (T_TARGETS - T_TABLES), 0, AREA_TARGET_BYTES);
	tr_free(proc->tr);
	proc->tr = NULL;
	proc->heir.had = 0;
	for (unsigned i = 0; i < REC_ARENAS; i++)
		if (proc->window.arena[i].at)
			rec_window_give_back(proc, proc->window.arena[i].at);
	return rec_image_translator(t);
}

static enum rec_state arenas_there(struct rec_thread *t, int64_t result)
{
	struct rec_process *proc = t->proc;
	/* if not all, up to that one */
	t->area.arena = result ? rec_series_failed(t) / 2 + 1 : REC_ARENAS;
	if (result)
		return begin_anew(t, 0);
	for (unsigned i = 0; i < REC_ARENAS; i++)
		if (proc->window.arena[i].at)
			rec_data_not(proc, proc->window.arena[i].at,
				     proc->window.arena[i].at + TR_ARENA_SIZE);
	rec_count(t, proc->heir.before ? REC_COUNT_ESTATES
		     : proc->heir.copy ? REC_COUNT_HEIRS_FORKED
				       : REC_COUNT_HEIRS);
	return REC_IN_HAND;
}

static enum rec_state map_arenas(struct rec_thread *t, int64_t result)
{
	uint64_t at[REC_ARENAS];
	unsigned n = 0;
	(void)result;
	t->area.arena = 0;
	rec_series_begin(t);
	for (unsigned i = 0; i < REC_ARENAS; i++) {
		if (!t->proc->window.arena[i].at)
			continue;
		at[n++] = t->proc->window.arena[i].at;
		rec_window_add(t, i, at[n - 1], 2 * i);
	}
	return rec_holes(t, at, n, TR_ARENA_SIZE) ? rec_series_run(t, arenas_there)
						  : begin_anew(t, 0);
}

enum rec_state rec_heir_take(struct rec_thread *t, const struct tr_ops *ops)
{
	struct rec_process *proc = t->proc;
	struct rec_heir *h = proc->heir.of;
	proc->heir.of = NULL;
	proc->tr = h->tr;
	proc->heir.had = h->n;
	proc->heir.needed = h->needed;
	proc->heir.before = h->before;
	if (!h->before)
		tr_take_over(proc->tr, ops, proc->tables, rec_heir_unit, h->code);
	memcpy(proc->window.arena, h->arena, sizeof(h->arena));
	close(h->memfd);
	proc->heir.parked = h->code;
	free(h);
	return rec_limits_raise(t, map_arenas);
}
