/*
 * Deja's memory for a thread that the program starts: an area like that of the first thread, but
 * without a window, and with the same tables (area.h).
 *
 * It is made without a descriptor, because other threads of the program are opening files
 * meanwhile, and would get other numbers than without deja. Everything shared that it needs is
 * mapped somewhere already: the tables in the first area, and the own parts of all threads in a
 * window of their own behind it. From there they are mapped once more (mremap with an old size
 * of 0: mremap(2), "BUGS").
 *
 * A thread that ends leaves its area for the next one: only the shadow is given back, by the thread
 * itself before it exits (thread.c). So where threads come and go an area costs nothing. One that
 * cannot do that, because it is killed and its memory is not (vfork.c), leaves it to the next.
 */
#include "recorder/area.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

/* An area that no thread has. */
struct rec_spare {
	struct rec_spare *next;
	uint8_t *own;
	uint64_t own_off, s;
	int part;
	bool empty; /* its shadow is */
};

#define SPARES_MAX 64

/* ---- own parts --------------------------------------------------------------------------- */

static int part_take(struct rec_process *proc)
{
	for (int i = 0; i < REC_OWN_PARTS; i++) {
		uint64_t *word = &proc->own.used[i / 64], bit = 1ULL << i % 64;
		if (*word & bit)
			continue;
		*word |= bit;
		return i;
	}
	return -1;
}

/* Whoever gets it next wants it empty. */
static void part_give_back(struct rec_process *proc, int part, uint64_t off, uint8_t *own)
{
	if (fallocate(proc->memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off,
		      AREA_THREAD))
		memset(own, 0, AREA_THREAD);
	munmap(own, AREA_THREAD);
	proc->own.used[part / 64] &= ~(1ULL << part % 64);
}

/* ---- an area is made --------------------------------------------------------------------- */

static enum rec_state area_given_up(struct rec_thread *t, int64_t result)
{
	t->area.gone = result == 0;
	return t->area.then(t, t->area.error);
}

static enum rec_state area_failed(struct rec_thread *t, int64_t result)
{
	t->s = 0;
	t->area.error = result;
	if (!t->area.at)
		return area_given_up(t, 0);
	return rec_call(t, area_given_up, SYS_munmap, t->area.at, REC_AREA_THREAD, 0, 0, 0, 0);
}

static enum rec_state area_not_forked(struct rec_thread *t, int64_t result)
{
	if (result)
		t->proc->not_forked = false;
	return t->area.then(t, 0);
}

static enum rec_state area_aliased(struct rec_thread *t, int64_t result)
{
	if (rec_failed(result))
		return area_failed(t, result);
	t->s = t->area.at + AREA_CONTROL;
	if (!t->proc->not_forked)
		return t->area.then(t, 0);
	return rec_call(t, area_not_forked, SYS_madvise, t->area.at, REC_AREA_THREAD, MADV_DONTFORK,
			0, 0, 0);
}

static uint64_t part_at(const struct rec_thread *t)
{
	return t->proc->own.at + (uint64_t)t->own_part * AREA_THREAD;
}

static enum rec_state area_own(struct rec_thread *t, int64_t result)
{
	if (rec_failed(result))
		return area_failed(t, result);
	return rec_call(t, area_aliased, SYS_mremap, part_at(t) + AREA_THREAD - AREA_PAGE, 0,
			AREA_PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
			t->area.at + AREA_CONTROL + (1UL << 32), 0);
}

static enum rec_state area_tables(struct rec_thread *t, int64_t result)
{
	if (rec_failed(result))
		return area_failed(t, result);
	return rec_call(t, area_own, SYS_mremap, part_at(t), 0, AREA_THREAD,
			MREMAP_MAYMOVE | MREMAP_FIXED, t->area.at + AREA_TABLES, 0);
}

static enum rec_state area_order(struct rec_thread *t, int64_t result)
{
	if (rec_failed(result))
		return area_failed(t, result);
	return rec_call(t, area_tables, SYS_mremap, t->proc->area_at + AREA_ORDER, 0,
			AREA_TABLES - AREA_ORDER, MREMAP_MAYMOVE | MREMAP_FIXED,
			t->area.at + AREA_ORDER, 0);
}

/* These two are for the better: it does not matter whether they succeed. */
static enum rec_state area_small_pages(struct rec_thread *t, int64_t result)
{
	(void)result;
	return rec_call(t, area_order, SYS_mremap, t->proc->area_at, 0, AREA_ORDER,
			MREMAP_MAYMOVE | MREMAP_FIXED, t->area.at, 0);
}

static enum rec_state area_undumped(struct rec_thread *t, int64_t result)
{
	(void)result;
	return rec_call(t, area_small_pages, SYS_madvise, t->area.at, REC_AREA_THREAD,
			MADV_NOHUGEPAGE, 0, 0, 0);
}

static enum rec_state area_reserved(struct rec_thread *t, int64_t result)
{
	if (rec_failed(result))
		return area_failed(t, result);
	t->area.at = (uint64_t)result;
	rec_data_not(t->proc, t->area.at, t->area.at + REC_AREA_THREAD);
	rec_logs_open(t);
	return rec_call(t, area_undumped, SYS_madvise, t->area.at, REC_AREA_THREAD, MADV_DONTDUMP,
			0, 0, 0);
}

static enum rec_state area_room(struct rec_thread *t, int64_t result)
{
	/* a process that runs by itself until its exec takes nothing of what there is (vfork.c) */
	if (t->group != t->proc && !rec_limits_suffice(t))
		return area_failed(t, -ENOMEM);
	/* near the first one, while there is room; 4.5 GiB apart */
	uint64_t hint = t->proc->area_at + rec_area_span() +
			(uint64_t)t->own_part * (REC_AREA_THREAD + (1UL << 28));
	(void)result;
	return rec_call(t, area_reserved, SYS_mmap, (hint + (1UL << 21)) & -(1UL << 21),
			REC_AREA_THREAD, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, (uint64_t)-1, 0);
}

/* A kept one has been emptied, as that of a thread that exits is (thread.c). */
static enum rec_state spare_empty(struct rec_thread *t, int64_t result)
{
	(void)result;
	memset(t->own + AREA_THREAD - AREA_PAGE, 0, AREA_PAGE);
	return t->area.then(t, 0);
}

/* Whether the calls that the thread makes for an area are allowed. */
static bool allowed(const struct rec_thread *t, bool spare)
{
	static const int calls[] = { SYS_madvise, SYS_munmap, SYS_mremap, SYS_mmap };
	const uint64_t at = t->proc->vdso_syscall ? t->proc->vdso_syscall : t->regs.rip;
	struct user_regs_struct r = { .rdi = t->proc->area_at, .rsi = REC_AREA_THREAD };
	for (size_t i = 0; i < (spare ? 1 : sizeof(calls) / sizeof(*calls)); i++) {
		r.rax = (unsigned long long)calls[i];
		if (!rec_filters_allow(t, at, &r))
			return false;
	}
	return true;
}

static enum rec_state take_spare(struct rec_thread *t)
{
	struct rec_process *proc = t->proc;
	struct rec_spare *spare = proc->own.spares;
	bool empty = spare->empty;
	proc->own.spares = spare->next;
	proc->own.n_spares--;
	t->own = spare->own;
	t->own_off = spare->own_off;
	t->own_part = spare->part;
	t->s = spare->s;
	free(spare);
	/* the control block, which the thread that had it needed until its exit */
	memset(t->own + AREA_THREAD - 2 * AREA_PAGE, 0, AREA_PAGE);
	if (empty)
		return t->area.then(t, 0);
	return rec_call(t, spare_empty, SYS_madvise, t->s + AREA_PAGE, (1UL << 32) - AREA_PAGE,
			MADV_DONTNEED, 0, 0, 0);
}

enum rec_state rec_area_thread_begin(struct rec_thread *t, rec_then *then)
{
	struct rec_process *proc = t->proc;
	const struct rec_spare *spare = proc->own.spares;
	t->area.then = then;
	if (spare && (spare->empty || allowed(t, true)))
		return take_spare(t);
	if (!rec_logs_close(t)) /* where the area will lie there is no data any more */
		return REC_WAIT;
	if (t->group != proc && !allowed(t, false))
		return area_failed(t, -EPERM);
	t->own_part = part_take(proc);
	if (t->own_part < 0)
		return area_failed(t, -EAGAIN);
	t->own_off = proc->own.off + (uint64_t)t->own_part * AREA_THREAD;
	t->own = rec_shared_map(proc, t->own_off, AREA_THREAD);
	if (!t->own)
		return area_failed(t, -errno);
	proc->own.n_areas++;
	return rec_limits_raise(t, area_room);
}

/* ---- and left ---------------------------------------------------------------------------- */

bool rec_area_thread_keep(const struct rec_thread *t)
{
	return t->own_part < 0 || t->proc->own.n_spares < SPARES_MAX;
}

void rec_area_thread_end(struct rec_thread *t)
{
	struct rec_process *proc = t->proc;
	if (!t->own)
		return;
	rec_times_hide(t);
	if (t->s && !t->area.gone) { /* it is there still */
		struct rec_spare *spare = malloc(sizeof(*spare));
		DJ_ASSERT(spare, "out of memory for an area");
		*spare = (struct rec_spare){ proc->own.spares, t->own,	     t->own_off, t->s,
					     t->own_part,      t->area.empty };
		proc->own.spares = spare;
		proc->own.n_spares++;
	} else if (t->own_part >= 0) {
		part_give_back(proc, t->own_part, t->own_off, t->own);
		if (t->area.gone) /* else some of it may have been mapped when the thread was killed
				   */
			proc->own.n_areas--;
	} else {
		munmap(t->own, AREA_THREAD);
	}
	t->own = NULL;
	t->s = 0;
}

bool rec_spare_next(const struct rec_spare **spare, uint64_t *at)
{
	if (!*spare)
		return false;
	*at = (*spare)->s - AREA_CONTROL;
	*spare = (*spare)->next;
	return true;
}

void rec_spares_moved(struct rec_process *proc, uint64_t s, uint64_t by)
{
	for (struct rec_spare *spare = proc->own.spares; spare; spare = spare->next)
		if (spare->s == s)
			spare->s += by;
}

void rec_spares_free(struct rec_process *proc)
{
	while (proc->own.spares) {
		struct rec_spare *spare = proc->own.spares;
		proc->own.spares = spare->next;
		munmap(spare->own, AREA_THREAD);
		free(spare);
	}
	memset(&proc->own, 0, sizeof(proc->own));
}
