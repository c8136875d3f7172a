/*
 * What a forked child has in its memory from its parent. For the replay that does not matter, since
 * everything that the child reads is recorded when it reads it; but a debugger looks at what the
 * child never does: who called, what a global variable is, which libraries there are.
 *
 * What the parent changed in private mappings of modules must be in the trace, or a debugger would
 * be shown what the file has there. The kernel says which pages these are (proc(5), pagemap: no
 * page of a file). Then the stack from the stack pointer on, and other private memory, small
 * mappings before large ones: as much as there is room for, so that a large process can fork often.
 * Where not even the first is to be had the trace says that the mapping is of no module.
 */
#include "recorder/recorder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE	  4096ULL
#define ROOM	  (512ULL << 10)
#define PRESENT	  (3ULL << 62) /* or swapped out */
#define OF_A_FILE (1ULL << 61)
#define SMALL	  (256ULL << 10)
#define AT_A_TIME 256

struct copy {
	struct rec_thread *t;
	FILE *map;
	uint64_t room;
	uint8_t buf[AT_A_TIME * PAGE];
};

/* Which of the next pages, up to AT_A_TIME, are the process's own; 0 if that is not known. */
static unsigned look(struct copy *c, uint64_t at, uint64_t end, bool own[AT_A_TIME])
{
	uint64_t entry[AT_A_TIME];
	uint64_t n = (end - at) / PAGE;
	if (n > AT_A_TIME)
		n = AT_A_TIME;
	if (!c->map || fseeko(c->map, (off_t)(at / PAGE * sizeof(*entry)), SEEK_SET))
		return 0;
	size_t got = fread(entry, sizeof(*entry), n, c->map);
	for (size_t i = 0; i < got; i++)
		own[i] = (entry[i] & PRESENT) && !(entry[i] & OF_A_FILE);
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

static void put(struct copy *c, uint64_t at, uint64_t len)
{
	struct rec_process *proc = c->t->proc;
	struct dj_error err = { 0 };
	size_t got = rec_read(proc, at, c->buf, len);
	if (got && dj_stream_snapshot(proc->facts, proc->image, at, c->buf, got, &err))
		rec_cut(proc->rec, "%s", err.text);
	c->room -= len;
}

/* Into the trace, as far as there is room. */
static void save(struct copy *c, uint64_t at, uint64_t end)
{
	bool own[AT_A_TIME];
	unsigned n;
	while (at < end && (n = look(c, at, end, own)) > 0) {
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
		uint64_t size = how_much(c, m->start, m->end);
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

void rec_copy(struct rec_thread *t)
{
	struct rec_tracer *tracer = t->rec->tracer;
	const struct dj_mapping *stack = rec_maps_find(t->proc, t->regs.rsp);
	struct copy *c = malloc(sizeof(*c));
	DJ_ASSERT(c, "out of memory for a copy");
	c->t = t;
	c->room = ROOM;
	c->map = tracer->open_proc(tracer, t->proc->pid, "pagemap");
	of_modules(c);
	if (stack && private(stack) && stack->module < 0)
		save(c, t->regs.rsp & -PAGE, stack->end);
	of_others(c, stack, true);
	of_others(c, stack, false);
	if (c->map)
		fclose(c->map);
	free(c);
}
