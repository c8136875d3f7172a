/*
 * What is to be said of memory that a value was read from (analyses/origin.h): whether the program
 * meant anything to be there, and who else could have put it there.
 */
#include "analyses/origin.h"
#include "analyses/syscall.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The last thing that happened to the block around an address before a position. */
static const struct ana_heap_event *heap_event(struct origin *o, uint64_t addr, uint64_t *block)
{
	const struct ana_heap_event *last = NULL;
	uint64_t start = 0, size = 0;

	for (size_t i = 0; i < o->heap.events.n; i++) {
		const struct ana_heap_event *e = ana_log_at(&o->heap.events, i);

		if (replay_pos_cmp(&e->order, &o->pos) >= 0)
			break;
		if (e->process != dj_trace_thread(o->job->t, o->pos.thread)->process)
			continue;
		if (e->kind == ANA_HEAP_ALLOC && addr - e->addr < e->size) {
			last = e;
			start = e->addr;
			size = e->size;
		} else if (e->kind == ANA_HEAP_FREE && last && e->addr == start && size) {
			last = e;
		}
	}
	*block = start;
	return last;
}

bool ana_origin_stale(struct origin *o, const struct origin_write *write, char *how, size_t size,
		      struct replay_pos *since)
{
	char position[64], stack[1000];
	uint64_t block;
	const struct ana_heap_event *e = heap_event(o, o->place.addr, &block);

	if (e && e->kind == ANA_HEAP_ALLOC &&
	    (!write->found || replay_pos_cmp(&write->pos, &e->pos) < 0)) {
		replay_pass_text(o->job->t, &e->pos, position, sizeof(position));
		ana_heap_stack_text(&o->heap, o->job, ana_heap_stack_of(&o->heap, o->job, e), stack,
				    sizeof(stack));
		snprintf(how, size,
			 "never initialised: the block at %#" PRIx64 " was allocated at %s by %s",
			 block, position, stack);
		*since = e->pos;
		return true;
	}
	if (!write->found || write->pos.thread != o->pos.thread ||
	    !ana_origin_left(o->job, &write->pos, &o->pos, o->place.addr, since))
		return false;
	/* it must have been on the stack */
	struct dj_regs regs;
	replay_regs(o->r, &regs);
	int64_t above = (int64_t)(o->place.addr - regs.gpr[DJ_RSP]);
	if (above < -65536 || above > 8 << 20)
		return false;
	replay_pass_text(o->job->t, &write->pos, position, sizeof(position));
	snprintf(how, size,
		 "never initialised: on the stack, where a call that is over wrote it at %s",
		 position);
	return true;
}

void ana_origin_freed_text(struct origin *o, char *how, size_t size)
{
	char position[64], stack[1000];
	uint64_t block;
	const struct ana_heap_event *e = heap_event(o, o->place.addr, &block);

	*how = 0;
	if (!e || e->kind != ANA_HEAP_FREE)
		return;
	replay_pass_text(o->job->t, &e->pos, position, sizeof(position));
	ana_heap_stack_text(&o->heap, o->job, ana_heap_stack_of(&o->heap, o->job, e), stack,
			    sizeof(stack));
	snprintf(how, size, "; the block at %#" PRIx64 " had been freed at %s by %s", block,
		 position, stack);
}

/* ---- ends ---- */

void ana_origin_unwritten_text(struct origin *o, char *how, size_t size)
{
	struct replay_mapping m;

	if (!replay_mapping_at(o->r, o->place.addr, &m))
		snprintf(how, size, "memory that is not mapped");
	else if (m.module >= 0)
		snprintf(how, size, "contents of the file %s",
			 dj_trace_module(o->job->t, (size_t)m.module)->path);
	else if (!strcmp(m.name, "[stack]"))
		snprintf(how, size, "the kernel, at the program's start: arguments, environment");
	else
		snprintf(how, size,
			 "nobody in this recording wrote it: zero since it was mapped, or somebody "
			 "else shares it");
}

void ana_origin_call_text(struct origin *o, char *how, size_t size)
{
	struct replay_stop stop;
	struct ana_syscall call;
	struct dj_regs regs;
	char *text = NULL;
	size_t length;
	FILE *f = open_memstream(&text, &length);

	if (!f)
		return;
	replay_set_scope(o->r, REPLAY_THREAD);
	ana_syscall_begin(o->r, &call);
	replay_step(o->r, REPLAY_FORWARD, &stop);
	replay_regs(o->r, &regs);
	ana_syscall_print(o->r, &call, &regs.gpr[DJ_RAX], f);
	ana_syscall_free(&call);
	fclose(f);
	size_t n = strlen(how);
	snprintf(how + n, size - n, ": %s", text);
	free(text);
}
