/*
 * Memory for people to look at, where a history begins: what a forked child has from its parent,
 * and what comes with a full keyframe. For the replay that does not matter, since everything that a
 * thread reads is recorded when it reads it; but a debugger looks at what the thread never does:
 * who called, what a global variable is, which libraries there are.
 *
 * Of a forked child:
 *
 * What the parent changed in private mappings of modules must be in the trace, or a debugger would
 * be shown what the file has there. The kernel says which pages these are (proc(5), pagemap: no
 * page of a file). Then the stack from the stack pointer on, and other private memory, small
 * mappings before large ones: as much as there is room for, so that a large process can fork often.
 * Where not even the first is to be had the trace says that the mapping is of no module.
 *
 * With a full keyframe first the stack comes from the red zone on, then what lies around the
 * thread's control block, where its own variables are; then the same as above, each as far as there
 * is room. Which of a thread's writable memory holds what is unknown where its history begins with
 * a keyframe, so what is left out misleads nobody. Other threads may write to it while it is read,
 * which is why the thread's own comes first.
 */
#include "recorder/recorder.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE	  4096ULL
#define ROOM	  (512ULL << 10)
#define SMALL	  (256ULL << 10)
#define AT_A_TIME 256
#define STACK	  (256ULL << 10) /* of a keyframe: so much of the stack at most */
#define RED_ZONE  128
#define BELOW	  (64ULL << 10) /* of the control block: variables of the modules that came first */
#define LOOK	  (1ULL << 16)	/* pages that are looked at, of programs that reserve terabytes */
#define ABOVE	  (8ULL << 10)	/* and its own bytes (struct pthread has 2,304 with glibc) */

struct copy {
	struct rec_thread *t;
	uint64_t room;
	const char *keyframe; /* it goes into one, and is that; NULL: into the child's snapshot, */
	struct dj_snapshot *snapshot; /* this */
	uint64_t pages;		      /* so many more may be looked at */
	struct copy_range {
		uint64_t at, end;
	} done[2];
	unsigned n_done;
	uint8_t buf[AT_A_TIME * PAGE];
};

/* Which of the next pages, up to AT_A_TIME, are the process's own; returns how many that is known
 * of. */
static unsigned look(struct copy *c, uint64_t at, uint64_t end, bool own[AT_A_TIME])
{
	uint64_t entry[AT_A_TIME];
	uint64_t n = (end - at) / PAGE;
	if (n > AT_A_TIME)
		n = AT_A_TIME;
	if (n > c->pages)
		n = c->pages;
	c->pages -= n;
	size_t got = rec_page_entries(c->t, at, entry, n);
	for (size_t i = 0; i < got; i++)
		own[i] = rec_page_is_own(entry[i]);
	return (unsigned)got;
}

/* How much of the range is the process's own, or UINT64_MAX. */
static uint64_t how_much(struct copy *c, uint64_t at, uint64_t end)
{
	bool own[AT_A_TIME];
	uint64_t sum = 0;
	while (at < end) {
		unsigned n = look(c, at, end, own);
		if (!n)
			return UINT64_MAX;
		for (unsigned i = 0; i < n; i++)
			sum += own[i] ? PAGE : 0;
		at += n * PAGE;
	}
	return sum;
}

static void record(struct copy *c, uint64_t addr, uint64_t length)
{
	struct dj_record r = { .kind = DJ_REC_KEYFRAME,
			       .what = DJ_KEYFRAME_PART,
			       .steps = c->t->steps,
			       .name = c->keyframe };
	for (uint64_t at = 0; at < length; at += r.length) {
		r.addr = addr + at;
		r.length = length - at < DJ_CODE_MAX ? length - at : DJ_CODE_MAX;
		r.bytes = c->buf + at;
		rec_ring_record(c->t, &r);
	}
}

static void put(struct copy *c, uint64_t at, uint64_t len)
{
	struct rec_process *proc = c->t->proc;
	uint8_t *room = c->keyframe ? c->buf : dj_snapshot_room(c->snapshot, len);
	DJ_ASSERT(room, "out of memory for a copy");
	size_t got = rec_read(proc, at, room, len);
	int rc = 0;
	if (c->keyframe)
		record(c, at, got);
	else if (got)
		rc = dj_snapshot_add(c->snapshot, at, got);
	DJ_ASSERT(!rc, "out of memory for a copy");
	c->room -= len;
}

static bool done(const struct copy *c, uint64_t at)
{
	for (unsigned i = 0; i < c->n_done; i++)
		if (at >= c->done[i].at && at < c->done[i].end)
			return true;
	return false;
}

/* Into the trace, as far as there is room. */
static void save(struct copy *c, uint64_t at, uint64_t end)
{
	bool own[AT_A_TIME];
	unsigned n;
	while (at < end && c->room && (n = look(c, at, end, own)) > 0) {
		for (unsigned i = 0; i < n; i++)
			own[i] = own[i] && !done(c, at + i * PAGE);
		for (unsigned i = 0, k; i < n; i = k + 1) {
			for (k = i; k < n && own[k] && (k + 1 - i) * PAGE <= c->room; k++)
				;
			if (k > i)
				put(c, at + i * PAGE, (k - i) * PAGE);
		}
		at += n * PAGE;
	}
}

static bool private(const struct dj_mapping *m)
{
	return !(m->flags & MAP_SHARED) && (m->prot & PROT_READ);
}

static void of_modules(struct copy *c)
{
	const struct dj_mappings *maps = &c->t->proc->maps;
	for (const struct dj_mapping *m = dj_mappings_after(maps, 0, 0); m;
	     m = dj_mappings_after(maps, m->end, 0)) {
		if (m->module < 0 || (m->prot & PROT_EXEC) || (m->flags & MAP_SHARED))
			continue;
		struct dj_mapping as = *m;
		uint64_t size = c->keyframe ? 0 : how_much(c, m->start, m->end);
		if (size <= c->room) {
			save(c, m->start, m->end);
			continue;
		}
		as.module = -1;
		rec_maps_record(c->t, &as, c->t->rec->modules[m->module].path);
	}
}

static void of_others(struct copy *c, const struct dj_mapping *but, bool small)
{
	const struct dj_mappings *maps = &c->t->proc->maps;
	for (const struct dj_mapping *m = dj_mappings_after(maps, 0, 0); m && c->room;
	     m = dj_mappings_after(maps, m->end, 0))
		if (m != but && m->module < 0 && private(m) &&
		    small == (m->end - m->start <= SMALL))
			save(c, m->start, m->end);
}

static struct copy *begin(struct rec_thread *t, uint64_t room)
{
	struct copy *c = malloc(sizeof(*c));
	DJ_ASSERT(c, "out of memory for a copy");
	c->t = t;
	c->room = room & -PAGE;
	c->pages = UINT64_MAX;
	c->keyframe = NULL;
	c->snapshot = NULL;
	c->n_done = 0;
	return c;
}

void rec_copy(struct rec_thread *t)
{
	const struct dj_mapping *stack = rec_maps_find(t->proc, t->regs.rsp);
	struct copy *c = begin(t, ROOM);
	c->snapshot = dj_snapshot_new(t->proc->image);
	DJ_ASSERT(c->snapshot, "out of memory for a copy");
	of_modules(c);
	if (stack && private(stack) && stack->module < 0)
		save(c, t->regs.rsp & -PAGE, stack->end);
	of_others(c, stack, true);
	of_others(c, stack, false);
	dj_stream_snapshot_later(t->proc->facts, c->snapshot);
	free(c);
}

/* ---- of a full keyframe -----------------------------------------------------------------------
 */

/* What there is of [at, end), which the later ones leave alone. */
static void save_first(struct copy *c, uint64_t at, uint64_t end)
{
	if (at >= end)
		return;
	save(c, at, end);
	c->done[c->n_done++] = (struct copy_range){ at, end };
}

/* Of the stack that the thread is on; returns the mapping that has it. */
static const struct dj_mapping *of_stack(struct copy *c)
{
	uint64_t at = (c->t->regs.rsp - RED_ZONE) & -PAGE;
	const struct dj_mapping *m = dj_mappings_after(&c->t->proc->maps, c->t->regs.rsp, 0);
	/* a stack that has grown is known by where it began */
	if (!m || (m->start > c->t->regs.rsp && strcmp(m->name, "[stack]") != 0) || !private(m))
		return NULL;
	if (at < m->start && strcmp(m->name, "[stack]") != 0)
		at = m->start;
	save_first(c, at, m->end - at > STACK ? at + STACK : m->end);
	return m;
}

static void of_thread(struct copy *c)
{
	uint64_t base = c->t->regs.fs_base & -PAGE;
	const struct dj_mapping *m = rec_maps_find(c->t->proc, c->t->regs.fs_base);
	if (!m || !private(m))
		return;
	save_first(c, base - m->start > BELOW ? base - BELOW : m->start,
		   m->end - base > ABOVE + PAGE ? base + ABOVE + PAGE : m->end);
}

uint64_t rec_copy_parts(struct rec_thread *t, uint64_t room)
{
	struct copy *c = begin(t, room);
	c->pages = LOOK;
	c->keyframe = "stack";
	const struct dj_mapping *stack = of_stack(c);
	c->keyframe = "thread";
	of_thread(c);
	c->keyframe = "module";
	of_modules(c);
	c->keyframe = "memory";
	of_others(c, stack, true);
	of_others(c, stack, false);
	/* a signal's stack, or that of a coroutine, may lie in the midst of a heap */
	if (stack && stack->module < 0 && strcmp(stack->name, "[stack]") != 0)
		save(c, stack->start, stack->end);
	uint64_t copied = (room & -PAGE) - c->room;
	free(c);
	return copied;
}
