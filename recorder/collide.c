/*
 * A system call of the program's is about to map, unmap or change memory at addresses where deja
 * has something. The program cannot know, and must find what it would find without deja. So before
 * the call is made deja gets out of the way:
 *
 *  - An arena is given up. What was translated into it is translated again elsewhere.
 *  - The area is moved, by mremap. Nothing in it depends on where it is but a few words of the
 *    control block, because translated code reaches it by the gs base.
 *
 * The thread that makes the call is in hand, and all others are brought out of the cache before
 * (gather.c).
 *
 * Places that the program only hints at are kept free, too: it would have got them.
 */
#include "recorder/area.h"
#include "recorder/syscalls.h"

#include <fcntl.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>

#define PAGE	   4096ULL
#define PAGE_UP(x) (((x) + PAGE - 1) & ~(PAGE - 1))

/* ---- arenas -----------------------------------------------------------------------------------
 */

static enum rec_state clear_next(struct rec_thread *t, int64_t result);

/* An arena within the range, or false. */
static bool arena_in(struct rec_thread *t, uint64_t *at)
{
	uint64_t size;
	for (unsigned i = 0; tr_arena(t->proc->tr, i, at, &size); i++)
		if (*at < t->way.end && t->way.start < *at + size)
			return true;
	return false;
}

static enum rec_state give_up_arena(struct rec_thread *t, uint64_t at)
{
	tr_drop_arena(t->proc->tr, at);
	rec_window_give_back(t->proc, at);
	return rec_call(t, clear_next, SYS_munmap, at, TR_ARENA_SIZE, 0, 0, 0, 0);
}

/* ---- the area ---------------------------------------------------------------------------------
 */

static enum rec_state cannot_move(struct rec_thread *t)
{
	/* a break that meets the area is refused as if memory were short, and what is only hinted
	 * at lies elsewhere */
	if (t->regs.rax == SYS_brk || (t->regs.rax == SYS_mmap && !(t->regs.r10 & MAP_FIXED)))
		return rec_make_call(t);
	rec_cut(t->rec,
		"%s maps memory at %#llx, where deja has its own and cannot go elsewhere; the "
		"recording ends there",
		rec_program_name(t), (unsigned long long)t->way.start);
	return REC_KILLED;
}

/* An area within the range; `first`: that of the first thread, with the windows. */
static bool area_in(struct rec_thread *t, uint64_t *at, bool *first)
{
	struct rec_pieces p = { t->proc };
	uint64_t size;
	for (*first = true; rec_area_next(&p, at, &size) && p.what != REC_PIECE_ARENA;
	     *first = false)
		if (*at < t->way.end && t->way.start < *at + size)
			return true;
	return false;
}

/* The parts of another thread's area (area-thread.c), each in one mapping. */
static bool thread_part(unsigned i, uint64_t *at, uint64_t *size)
{
	static const struct {
		uint64_t at, size;
	} parts[] = {
		{ 0, AREA_ORDER },
		{ AREA_ORDER, AREA_TABLES - AREA_ORDER },
		{ AREA_TABLES, AREA_THREAD },
		{ AREA_CONTROL + AREA_PAGE, (1UL << 32) - AREA_PAGE },
		{ AREA_CONTROL + (1UL << 32), AREA_PAGE },
	};
	if (i >= sizeof(parts) / sizeof(*parts))
		return false;
	*at = parts[i].at;
	*size = parts[i].size;
	return true;
}

/* Somewhere out of the way, or 0. */
static uint64_t elsewhere(struct rec_thread *t)
{
	const uint64_t size = t->way.first ? rec_area_span() : REC_AREA_THREAD;
	/* doc/recorder.md ("Where the area lies") says who goes where */
	static const uint64_t tries[] = { 0x7e8100000000, 0x7d0100000000, 0x7b8100000000,
					  0x590100000000, 0x2e0100000000, 0x120100000000 };
	uint64_t places[REC_PLACES];
	unsigned n = 0;
	for (size_t i = 0; i < sizeof(tries) / sizeof(*tries); i++)
		for (uint64_t at = tries[i]; at < tries[i] + (1ULL << 38); at += 1ULL << 34)
			if (at >= t->way.end || at + size <= t->way.start)
				places[n++] = at;
	return rec_hole(t, places, n, size);
}

/* The area is somewhere else now, whosever it is. */
static void has_moved(struct rec_thread *t)
{
	struct rec_process *proc = t->proc;
	uint64_t was = t->way.from + AREA_CONTROL, by = t->way.to - t->way.from;
	if (t->way.first) {
		proc->window.at += by;
		proc->own.at += by;
		proc->series.at += proc->series.at ? by : 0;
		proc->area_at += by;
	}
	rec_spares_moved(proc, was, by);
	rec_data_not(proc, t->way.to,
		     t->way.to + (t->way.first ? rec_area_span() : REC_AREA_THREAD));
	for (struct rec_thread *o = t->rec->threads; o; o = o->next) {
		if (o->proc != proc || o->s != was || o->area.gone)
			continue;
		o->s += by;
		*rec_tcb(o, T_SELF) = o->s;
		if (o->ring)
			rec_ring_moved(o);
	}
}

static enum rec_state moved(struct rec_thread *t, int64_t result)
{
	if (result < 0 && result > -4096)
		return cannot_move(t);
	uint64_t at, size;
	unsigned part = t->way.part++;
	if (t->way.first ? rec_area_part(part, &at, &size) : thread_part(part, &at, &size))
		return rec_call(t, moved, SYS_mremap, t->way.from + at, size, size,
				MREMAP_MAYMOVE | MREMAP_FIXED, t->way.to + at, 0);
	has_moved(t);
	return clear_next(t, 0);
}

static enum rec_state move_area(struct rec_thread *t, uint64_t from, bool first)
{
	t->way.from = from;
	t->way.first = first;
	t->way.to = elsewhere(t);
	t->way.part = 0;
	return t->way.to ? moved(t, 0) : cannot_move(t);
}

/* ---- the way is clear, then the call ----------------------------------------------------------
 */

static enum rec_state clear_next(struct rec_thread *t, int64_t result)
{
	uint64_t at;
	bool first;
	(void)result;
	if (rec_over(t->rec))
		return REC_KILLED;
	if (arena_in(t, &at))
		return give_up_arena(t, at);
	if (area_in(t, &at, &first))
		return move_area(t, at, first);
	if (t->way.n) {
		t->way.start = t->way.more[--t->way.n].start;
		t->way.end = t->way.more[t->way.n].end;
		return clear_next(t, 0);
	}
	return rec_make_call(t);
}

static void want(struct rec_thread *t, uint64_t start, uint64_t length)
{
	uint64_t end = start + PAGE_UP(length);
	if (end <= start) /* none, or more than the kernel takes */
		return;
	t->way.more[t->way.n].start = start & -PAGE;
	t->way.more[t->way.n++].end = end;
}

/* The kernel refuses a break that reaches something else of the program's (kernel: mm/mmap.c,
 * brk), as programs that look for the highest one know: then nothing need go out of its way. */
static void want_break(struct rec_thread *t, uint64_t end)
{
	const uint64_t now = t->proc->brk;
	const struct dj_mapping *next;

	if (!now || end <= now)
		return;
	next = dj_mappings_after(&t->proc->maps, now, 0);
	if (!next || end < next->start)
		want(t, now, end - now);
}

/* A segment's size is the kernel's to know. */
static uint64_t segment_size(int id)
{
	struct shmid_ds ds;
	return shmctl(id, IPC_STAT, &ds) ? PAGE : ds.shm_segsz;
}

/* What is there may be about to go. If it is the vdso, so may be the instruction that calls are
 * made with. */
static void may_go(struct rec_process *proc, uint64_t start, uint64_t length)
{
	uint64_t end = start + PAGE_UP(length);
	if (start < proc->vdso_end && proc->vdso < end)
		proc->vdso_syscall = 0;
}

static void look_at_vdso(struct rec_thread *t)
{
	const struct user_regs_struct *r = &t->regs;
	switch (r->rax) {
	case SYS_mmap:
		if (r->r10 & MAP_FIXED)
			may_go(t->proc, r->rdi, r->rsi);
		break;
	case SYS_munmap:
	case SYS_mprotect:
	case SYS_pkey_mprotect:
		may_go(t->proc, r->rdi, r->rsi);
		break;
	case SYS_mremap: /* where it grows it replaces nothing */
		may_go(t->proc, r->rdi, r->rsi);
		if (r->r10 & MREMAP_FIXED)
			may_go(t->proc, r->r8, r->rdx);
		break;
	case SYS_shmat:
		if (r->rdx & SHM_REMAP)
			may_go(t->proc, r->rsi, segment_size((int)r->rdi));
		break;
	}
}

/* Whether anything of deja's is. */
static bool in_the_way(struct rec_thread *t)
{
	struct rec_pieces p = { t->proc };
	uint64_t at, size;
	while (rec_area_next(&p, &at, &size))
		for (unsigned k = 0; k < t->way.n; k++)
			if (at < t->way.more[k].end && t->way.more[k].start < at + size)
				return true;
	return false;
}

enum rec_state rec_begin_memory(struct rec_thread *t)
{
	const struct user_regs_struct *r = &t->regs;
	enum rec_state next;
	if (rec_log_again(t, &next))
		return next;
	if (!rec_turn(t))
		return REC_WAIT;
	t->way.start = t->way.end = 0;
	t->way.n = 0;
	switch (r->rax) {
	case SYS_mmap:
		if (r->rdi)
			want(t, r->rdi, r->rsi);
		break;
	case SYS_munmap:
	case SYS_mprotect:
	case SYS_pkey_mprotect:
		want(t, r->rdi, r->rsi);
		break;
	case SYS_mremap:
		want(t, r->rdi, r->rsi > r->rdx ? r->rsi : r->rdx);
		if (r->r10 & MREMAP_FIXED)
			want(t, r->r8, r->rdx);
		break;
	case SYS_brk:
		want_break(t, r->rdi);
		break;
	case SYS_shmat:
		if (r->rsi)
			want(t, r->rsi, segment_size((int)r->rdi));
		break;
	}
	look_at_vdso(t);
	if (in_the_way(t))
		return rec_gather(t, clear_next);
	return rec_permit(t) ? REC_IN_HAND : clear_next(t, 0);
}
