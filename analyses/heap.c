/*
 * deja heap: blocks that are alive at a position (the end, where they are leaks, unless --to says
 * another), and what was freed twice or was never allocated, with all stacks.
 *
 * Calls of malloc's family are gone through in the order of their effects (analyses/heaplog.h). A
 * process begins with the blocks of the one that made it. Of a part of history that is asked for
 * (--from, --thread, --process) only the frees are judged, and only what was allocated there is
 * alive: but what they find is known by all that was before, in all threads.
 */
#include "analyses/heaplog.h"
#include "format/scatter.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define EVENTS	10000000
#define STACK	2000 /* letters of a stack */
#define DEFECTS 1000

/* What is known of an address: the events that allocated and freed it last. */
struct block {
	uint64_t addr;
	uint32_t process;
	bool used, alive;
	size_t alloc, freed; /* index + 1 of events; 0: none */
};

struct leak {
	uint32_t stack;
	uint64_t bytes, blocks;
	struct replay_pos first;
};

struct heap {
	struct ana_heaplog log;
	struct ana_job *job;
	struct block *blocks; /* a hash table, half of it empty */
	size_t n, cap;
	size_t *borrowed; /* by process: the last such event, and 1 */
	struct ana_table *defects;
	uint64_t allocations, frees, bytes, wrong;
};

static struct block *slot(struct block *blocks, size_t cap, uint32_t process, uint64_t addr)
{
	size_t i = dj_scatter(dj_scatter_mix(process, addr), cap);

	while (blocks[i].used && (blocks[i].addr != addr || blocks[i].process != process))
		i = (i + 1) & (cap - 1);
	return &blocks[i];
}

/* The block there, known or not yet. NULL when out of memory. */
static struct block *block_at(struct heap *h, uint32_t process, uint64_t addr)
{
	if (2 * h->n >= h->cap) {
		size_t cap = h->cap ? 2 * h->cap : 1024;
		struct block *grown = calloc(cap, sizeof(*grown));
		if (!grown)
			return NULL;
		for (size_t i = 0; i < h->cap; i++)
			if (h->blocks[i].used)
				*slot(grown, cap, h->blocks[i].process, h->blocks[i].addr) =
					h->blocks[i];
		free(h->blocks);
		h->blocks = grown;
		h->cap = cap;
	}
	struct block *b = slot(h->blocks, h->cap, process, addr);
	if (!b->used) {
		*b = (struct block){ .addr = addr, .process = process, .used = true };
		h->n++;
	}
	return b;
}

static const struct ana_heap_event *event_at(const struct heap *h, size_t i)
{
	return ana_log_at(&h->log.events, i);
}

/* Whether it lies in the part of history that was asked for. */
static bool asked(const struct heap *h, const struct ana_heap_event *e)
{
	const struct ana_job *job = h->job;

	return (!job->has_from || replay_pos_cmp(&e->pos, &job->from) >= 0) &&
	       (!job->threads || job->threads[e->pos.thread]);
}

/* ---- defects ------------------------------------------------------------------------------------
 */

/* The block that the address lies in, but not at its beginning; of several the innermost. */
static const struct block *around(const struct heap *h, uint32_t process, uint64_t addr)
{
	const struct block *found = NULL;

	for (size_t i = 0; i < h->cap; i++) {
		const struct block *b = &h->blocks[i];

		if (b->used && b->alive && b->process == process && b->addr < addr &&
		    addr - b->addr < event_at(h, b->alloc - 1)->size &&
		    (!found || b->addr > found->addr))
			found = b;
	}
	return found;
}

static void defect(struct heap *h, const struct ana_heap_event *e, const char *what,
		   const struct block *b)
{
	char position[64], stack[STACK], allocated[STACK] = "", freed[STACK] = "";
	char alloc_at[64] = "", free_at[64] = "";

	replay_pass_text(h->job->t, &e->pos, position, sizeof(position));
	ana_heap_stack_text(&h->log, h->job, e->stack, stack, sizeof(stack));
	if (b && b->alloc) {
		const struct ana_heap_event *a = event_at(h, b->alloc - 1);
		replay_pass_text(h->job->t, &a->pos, alloc_at, sizeof(alloc_at));
		ana_heap_stack_text(&h->log, h->job, a->stack, allocated, sizeof(allocated));
	}
	if (b && b->freed) {
		const struct ana_heap_event *f = event_at(h, b->freed - 1);
		replay_pass_text(h->job->t, &f->pos, free_at, sizeof(free_at));
		ana_heap_stack_text(&h->log, h->job, f->stack, freed, sizeof(freed));
	}
	ana_table_row(h->defects, (struct ana_cell[]){ { .text = position },
						       { .text = what },
						       { .number = e->addr },
						       { .text = stack },
						       { .text = free_at, .none = !*free_at },
						       { .text = freed, .none = !*free_at },
						       { .text = alloc_at, .none = !*alloc_at },
						       { .text = allocated, .none = !*alloc_at } });
}

/* What the process had when it was made belongs to it, too. */
static const struct block *inherited(const struct heap *h, uint32_t process, uint64_t addr)
{
	struct dj_trace *t = h->job->t;

	for (unsigned depth = 0; depth < 64 && h->cap; depth++) {
		int32_t parent = dj_trace_process(t, process)->parent;

		if (parent < 0 || (size_t)parent >= dj_trace_processes(t))
			return NULL;
		process = (uint32_t)parent;
		const struct block *b = slot(h->blocks, h->cap, process, addr);
		if (b->used)
			return b;
	}
	return NULL;
}

/* What is wrong with a free, if anything is. */
static void judge(struct heap *h, const struct ana_heap_event *e, struct block *b)
{
	/* each defect takes a search, and more than these nobody reads */
	if (!b->alive && h->borrowed[e->process] > b->freed) {
		; /* a process that executed in this memory may have allocated it */
	} else if (!b->alloc && !b->freed) {
		const struct block *of = inherited(h, e->process, e->addr);

		if (of)
			b->alloc = of->alloc;
		else if (!asked(h, e) || ++h->wrong > DEFECTS)
			;
		else if ((of = around(h, e->process, e->addr)))
			defect(h, e, "free inside a block", of);
		else
			defect(h, e, "free of what was never allocated", NULL);
	} else if (!b->alive && asked(h, e) && ++h->wrong <= DEFECTS) {
		defect(h, e, "double free", b);
	}
}

static int do_free(struct heap *h, size_t i)
{
	const struct ana_heap_event *e = event_at(h, i);
	struct block *b = block_at(h, e->process, e->addr);

	if (!b)
		return -1;
	h->frees += asked(h, e);
	judge(h, e, b);
	b->alive = false;
	b->freed = i + 1;
	return 0;
}

static void forget(struct heap *h, uint32_t process)
{
	for (size_t i = 0; i < h->cap; i++)
		if (h->blocks[i].used && h->blocks[i].process == process) {
			h->blocks[i].alive = false;
			h->blocks[i].freed = h->blocks[i].alloc = 0;
		}
}

static int walk(struct heap *h)
{
	for (size_t i = 0; i < h->log.events.n; i++) {
		const struct ana_heap_event *e = event_at(h, i);
		struct block *b;

		switch (e->kind) {
		case ANA_HEAP_ALLOC:
			b = block_at(h, e->process, e->addr);
			if (!b)
				return -1;
			b->alive = true;
			b->alloc = i + 1;
			b->freed = 0;
			if (asked(h, e)) {
				h->allocations++;
				h->bytes += e->size;
			}
			break;
		case ANA_HEAP_FREE:
			if (do_free(h, i))
				return -1;
			break;
		case ANA_HEAP_BORROWED:
			h->borrowed[e->process] = i + 1;
			break;
		default:
			forget(h, e->process);
			h->borrowed[e->process] = 0;
		}
	}
	return 0;
}

/* ---- what is alive ---- */

static int by_stack(const void *a, const void *b)
{
	const struct leak *x = a, *y = b;

	return x->stack != y->stack ? (x->stack < y->stack ? -1 : 1)
				    : replay_pos_cmp(&x->first, &y->first);
}

static int by_bytes(const void *a, const void *b)
{
	const struct leak *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	return replay_pos_cmp(&x->first, &y->first);
}

static size_t collect(const struct heap *h, struct leak *leaks)
{
	size_t n = 0, kept = 0;

	for (size_t i = 0; i < h->cap; i++) {
		if (!h->blocks[i].used || !h->blocks[i].alive)
			continue;
		const struct ana_heap_event *e = event_at(h, h->blocks[i].alloc - 1);
		if (asked(h, e))
			leaks[n++] = (struct leak){ e->stack, e->size, 1, e->pos };
	}
	qsort(leaks, n, sizeof(*leaks), by_stack);
	for (size_t i = 0; i < n; i++) {
		if (kept && leaks[kept - 1].stack == leaks[i].stack) {
			leaks[kept - 1].bytes += leaks[i].bytes;
			leaks[kept - 1].blocks++;
		} else {
			leaks[kept++] = leaks[i];
		}
	}
	qsort(leaks, kept, sizeof(*leaks), by_bytes);
	return kept;
}

static int print_alive(struct heap *h, uint64_t *bytes, uint64_t *blocks)
{
	struct leak *leaks = calloc(h->n + 1, sizeof(*leaks));
	struct ana_table *t =
		ana_table_new("alive", (struct ana_column[]){ { "bytes", ANA_NUMBER },
							      { "blocks", ANA_NUMBER },
							      { "first", ANA_TEXT },
							      { "stack", ANA_TEXT },
							      { 0 } });

	if (!leaks || !t) {
		free(leaks);
		return -1;
	}
	size_t n = collect(h, leaks);
	for (size_t i = 0; i < n; i++) {
		char position[64], stack[STACK];

		replay_pass_text(h->job->t, &leaks[i].first, position, sizeof(position));
		ana_heap_stack_text(&h->log, h->job, leaks[i].stack, stack, sizeof(stack));
		ana_table_row(t, (struct ana_cell[]){ { .number = leaks[i].bytes },
						      { .number = leaks[i].blocks },
						      { .text = position },
						      { .text = stack } });
		*bytes += leaks[i].bytes;
		*blocks += leaks[i].blocks;
	}
	free(leaks);
	ana_table_end(&h->job->out, t);
	return 0;
}

static int print(struct heap *h)
{
	struct ana_job *job = h->job;
	uint64_t bytes = 0, blocks = 0;

	job->out.many = true;
	h->defects = ana_table_new("defects", (struct ana_column[]){ { "position", ANA_TEXT },
								     { "defect", ANA_TEXT },
								     { "address", ANA_HEX },
								     { "stack", ANA_TEXT },
								     { "freed", ANA_TEXT },
								     { "freed by", ANA_TEXT },
								     { "allocated", ANA_TEXT },
								     { "allocated by", ANA_TEXT },
								     { 0 } });
	if (!h->defects || walk(h))
		return -1;
	ana_table_end(&job->out, h->defects);
	if (print_alive(h, &bytes, &blocks))
		return -1;
	ana_out_line(&job->out,
		     "%" PRIu64 " bytes in %" PRIu64 " blocks are alive; %" PRIu64
		     " allocations of %" PRIu64 " bytes, %" PRIu64 " frees",
		     bytes, blocks, h->allocations, h->bytes, h->frees);
	if (h->wrong > DEFECTS)
		ana_out_lack(&job->out, "These are the first %u defects.", DEFECTS);
	if (h->log.events.more)
		ana_out_lack(&job->out, "Only the first %u calls of a thread were looked at.",
			     EVENTS);
	return 0;
}

static int run(void *state, struct ana_job *job, struct dj_error *err)
{
	struct heap *h = state;
	struct replay_listener listener;
	const struct replay_listener *listeners[] = { &listener };

	h->job = job;
	h->log.events.limit = EVENTS;
	if (ana_heap_listener(&h->log, job, true, &listener))
		return dj_fail(err, 1,
			       "no module in the recording has a function malloc or free (are "
			       "they stripped?)");
	if (ana_pass_history(job, listeners, 1, err))
		return -1;
	ana_heap_sort(&h->log);
	h->borrowed = calloc(dj_trace_processes(job->t) + 1, sizeof(*h->borrowed));
	int ret = h->log.events.failed || !h->borrowed || print(h)
			  ? dj_fail(err, 1, "out of memory")
			  : 0;
	ana_heap_free(&h->log);
	free(h->blocks);
	free(h->borrowed);
	return ret;
}

const struct ana_analysis ana_heap = {
	.name = "heap",
	.args = "[OPTIONS] [FILE]",
	.help = "blocks alive, leaks, double and wild frees",
	.usage = "Usage: deja heap [OPTIONS] [FILE]\n"
		 "What was freed twice or never allocated, with the stacks of both; and the blocks "
		 "that\n"
		 "are alive at the end, or at the position that --to says, by the stacks that\n"
		 "allocated them. The functions of malloc's family are recognised by their names.\n"
		 "\n",
	.size = sizeof(struct heap),
	.run = run,
};
