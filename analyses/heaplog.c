/* What a program did to its heap (analyses/heaplog.h). */
#include "analyses/call-writes.h"
#include "analyses/groups.h"
#include "analyses/heaplog.h"
#include "format/scatter.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define SAME  (8u << 20) /* stack pointers nearer than this belong to one stack */
#define DEPTH 4096	 /* calls that are kept of a stack */

enum member { MALLOC, CALLOC, REALLOC, FREE, MEMALIGN, POSIX_MEMALIGN, VALLOC, REALLOCARRAY };
static const struct {
	const char *name;
	enum member member;
} family[] = {
	{ "malloc", MALLOC },
	{ "calloc", CALLOC },
	{ "realloc", REALLOC },
	{ "free", FREE },
	{ "cfree", FREE },
	{ "memalign", MEMALIGN },
	{ "aligned_alloc", MEMALIGN },
	{ "posix_memalign", POSIX_MEMALIGN },
	{ "valloc", VALLOC },
	{ "pvalloc", VALLOC },
	{ "reallocarray", REALLOCARRAY },
};
#define FAMILY (sizeof(family) / sizeof(family[0]))

/* What glibc calls when a thread ends, under the names that this has had in 2.26 and later: it
 * frees what the thread's cache (tcache, malloc/malloc.c) has. */
static const char *const ends_cache[] = { "__malloc_arena_thread_freeres", "tcache_thread_shutdown",
					  "tcache_thread_freeres" };
#define ENDS_CACHE (sizeof(ends_cache) / sizeof(ends_cache[0]))

struct frame {
	uint64_t call, sp; /* address of the call instruction; where its return address lies */
};

/* Where a stack is to be found by its hash. */
struct place {
	uint32_t hash, index; /* index + 1; 0: free */
};

struct thread {
	struct ana_heaplog *heap;
	struct ana_log events;
	struct ana_heap_stack *stacks;
	size_t n_stacks, cap_stacks;
	struct place *places; /* a hash table, half of it free */
	size_t cap_places;    /* a power of two */
	struct frame frames[DEPTH];
	size_t depth, gone; /* gone: outer ones that there was no room for */
	uint32_t process, number;
	/* the call under way */
	bool open;
	enum member member;
	uint64_t arg[3], sp, ret;
	struct replay_pos pos;
	uint32_t stack;
};

static void *begin(void *ctx, struct replay_run *run)
{
	struct ana_heaplog *heap = ctx;
	struct thread *th = calloc(1, sizeof(*th));

	if (!th) {
		replay_run_fail(run, "out of memory");
		return NULL;
	}
	th->heap = heap;
	th->process = replay_run_info(run)->process;
	th->events = (struct ana_log){ .size = sizeof(struct ana_heap_event),
				       .limit = heap->events.limit };
	return th;
}

static void *grown(void *old, size_t *cap, size_t n, size_t size)
{
	if (n < *cap)
		return old;
	size_t more = *cap ? *cap * 2 : 64;
	void *p = reallocarray(old, more, size);
	if (p)
		*cap = more;
	return p;
}

static void end(void *ctx, struct replay_run *run, void *data)
{
	struct ana_heaplog *heap = ctx;
	struct thread *th = data;
	uint32_t base = (uint32_t)heap->n_stacks;

	for (size_t i = 0; i < th->n_stacks; i++) {
		struct ana_heap_stack *s =
			grown(heap->stacks, &heap->cap_stacks, heap->n_stacks, sizeof(*s));
		if (!s) {
			replay_run_fail(run, "out of memory");
			break;
		}
		heap->stacks = s;
		heap->stacks[heap->n_stacks++] = th->stacks[i];
	}
	for (size_t i = 0; i < th->events.n && !heap->plain; i++)
		((struct ana_heap_event *)ana_log_at(&th->events, i))->stack += base;
	ana_log_join(&heap->events, &th->events);
	free(th->stacks);
	free(th->places);
	free(th);
}

/* ---- stacks ------------------------------------------------------------------------------------
 */

static bool same_stack(const struct ana_heap_stack *a, const struct ana_heap_stack *b)
{
	return a->n == b->n && !memcmp(a->frames, b->frames, a->n * sizeof(a->frames[0]));
}

/* Where a stack of this hash is, or would be: the first place that is free, or has it. */
static struct place *place_of(struct place *places, size_t cap, uint32_t hash,
			      const struct ana_heap_stack *stacks, const struct ana_heap_stack *s)
{
	size_t i = hash & (cap - 1);

	while (places[i].index &&
	       (!s || places[i].hash != hash || !same_stack(&stacks[places[i].index - 1], s)))
		i = (i + 1) & (cap - 1);
	return &places[i];
}

/* Half of the places are free, and one more. */
static bool make_room(struct thread *th)
{
	if (2 * th->n_stacks < th->cap_places)
		return true;
	size_t cap = th->cap_places ? 2 * th->cap_places : 64;
	struct place *more = calloc(cap, sizeof(*more));
	if (!more)
		return false;
	for (size_t i = 0; i < th->cap_places; i++) /* each is another stack */
		if (th->places[i].index)
			*place_of(more, cap, th->places[i].hash, NULL, NULL) = th->places[i];
	free(th->places);
	th->places = more;
	th->cap_places = cap;
	return true;
}

/* The index of the stack as it is now. */
static uint32_t intern(struct thread *th, struct replay_run *run)
{
	struct ana_heap_stack s;
	uint64_t h = 0;

	memset(&s, 0, sizeof(s));
	for (size_t i = th->depth; i-- > 0 && s.n < ANA_HEAP_FRAMES; s.n++) {
		replay_run_code(run, th->frames[i].call, &s.frames[s.n]);
		h = dj_scatter_mix(h, th->frames[i].call);
	}
	struct ana_heap_stack *p =
		make_room(th) ? grown(th->stacks, &th->cap_stacks, th->n_stacks, sizeof(*p)) : NULL;
	if (!p) {
		replay_run_fail(run, "out of memory");
		return 0;
	}
	th->stacks = p;
	struct place *at = place_of(th->places, th->cap_places, (uint32_t)(h >> 32), p, &s);
	if (!at->index) {
		p[th->n_stacks++] = s;
		*at = (struct place){ (uint32_t)(h >> 32), (uint32_t)th->n_stacks };
	}
	return at->index - 1;
}

static void called(struct thread *th, const struct replay_edge *edge)
{
	if (th->depth == DEPTH) { /* of very deep ones the inner half */
		th->depth = DEPTH / 2;
		memmove(th->frames, th->frames + DEPTH / 2, th->depth * sizeof(th->frames[0]));
	}
	th->frames[th->depth++] = (struct frame){ edge->from, edge->sp };
}

static void returned(struct thread *th, uint64_t sp)
{
	while (th->depth && th->frames[th->depth - 1].sp < sp &&
	       sp - th->frames[th->depth - 1].sp < SAME)
		th->depth--;
}

/* ---- calls of the family ------------------------------------------------------------------------
 */

static int member_at(const struct ana_heaplog *heap, const struct replay_code *code)
{
	for (unsigned i = 0; i < FAMILY; i++)
		for (size_t k = 0; k < heap->entries[i].n; k++) {
			const struct replay_code *c = &heap->entries[i].r[k].code;
			if (c->module == code->module && c->offset == code->offset)
				return family[i].member;
		}
	return -1;
}

static unsigned wants(void *data, struct replay_run *run, const struct insn *in)
{
	const struct thread *th = data;
	struct replay_code code;
	const unsigned edges = th->heap->plain ? INSN_A_RET : INSN_A_CALL | INSN_A_RET;
	unsigned want = in->attr & edges ? REPLAY_WANT_EDGE : 0;

	replay_run_code(run, in->addr, &code);
	return member_at(th->heap, &code) >= 0 ? want | REPLAY_WANT_POINT : want;
}

static void note(struct thread *th, const struct replay_pos *order, enum ana_heap_kind kind,
		 uint64_t addr, uint64_t size)
{
	struct ana_heap_event *e = ana_log_add(&th->events);

	if (!e)
		return;
	e->order = *order;
	e->pos = th->pos;
	e->kind = (uint8_t)kind;
	e->addr = addr;
	e->size = size;
	e->number = th->number++;
	e->stack = th->stack;
	e->process = th->process;
}

static bool is_c_library(struct replay_run *run, int32_t module)
{
	replay_run_lock(run);
	const char *name = ana_base(dj_trace_module(replay_run_trace(run), (size_t)module)->path);
	bool is = !strncmp(name, "libc.so", 7) || !strncmp(name, "libc-2.", 7);
	replay_run_unlock(run);
	return is;
}

/*
 * Whether the call of free is the allocator's own. When a thread ends, glibc frees the blocks that
 * the program had freed already, and that a cache kept; and the cache, which no malloc returned.
 * These, and none beside, are calls from within the C library that lead to free itself: all others
 * go by way of the linker's table, so that a program can have its own free. In a program that has
 * the C library in it there is no such difference, but names.
 */
static bool is_own(struct thread *th, struct replay_run *run, uint64_t free_at)
{
	struct replay_code callee, caller;
	uint8_t call[5] = { 0 }; /* CALL rel32 */
	int32_t to;

	replay_run_code(run, free_at, &callee);
	replay_run_code(run, th->ret - sizeof(call), &caller);
	if (callee.module < 0 || caller.module != callee.module)
		return false;
	if (ana_ranges_have(&th->heap->cache, &caller, th->ret - sizeof(call)))
		return true;
	if (!is_c_library(run, callee.module) ||
	    replay_run_fetch(run, th->ret - sizeof(call), call, sizeof(call)) != sizeof(call) ||
	    call[0] != 0xe8)
		return false;
	memcpy(&to, call + 1, sizeof(to));
	return th->ret + (uint64_t)to == free_at;
}

static void point(void *data, struct replay_run *run, const struct insn *in)
{
	struct thread *th = data;
	struct replay_code code;
	uint64_t sp = replay_run_gpr(run, DJ_RSP);

	replay_run_code(run, in->addr, &code);
	int member = member_at(th->heap, &code);
	if (member < 0)
		return;
	if (th->open && sp < th->sp && th->sp - sp < SAME)
		return; /* one calls another */
	if (th->open && sp == th->sp && th->member != REALLOCARRAY)
		return; /* goes over to another, or back to its beginning */
	th->open = true;
	th->member = (enum member)member;
	th->sp = sp;
	th->ret = ana_number_at(run, sp, 8);
	th->arg[0] = replay_run_gpr(run, DJ_RDI);
	th->arg[1] = replay_run_gpr(run, DJ_RSI);
	th->arg[2] = replay_run_gpr(run, DJ_RDX);
	replay_run_pos(run, &th->pos);
	if (th->heap->plain)
		replay_run_returns(run, sp);
	th->stack = th->heap->plain ? ANA_HEAP_NO_STACK : intern(th, run);
	/* one that does not come back is the most interesting one */
	if (member == FREE && th->arg[0] && !is_own(th, run, in->addr))
		note(th, &th->pos, ANA_HEAP_FREE, th->arg[0], 0);
}

static void finished(struct thread *th, struct replay_run *run)
{
	uint64_t result = replay_run_gpr(run, DJ_RAX);
	struct replay_pos now;

	replay_run_pos(run, &now);
	switch (th->member) {
	case FREE:
		return;
	case POSIX_MEMALIGN:
		if (!result)
			note(th, &now, ANA_HEAP_ALLOC, ana_number_at(run, th->arg[0], 8),
			     th->arg[2]);
		return;
	case REALLOC:
	case REALLOCARRAY:
		if (th->arg[0] && (result || !th->arg[1]))
			note(th, &th->pos, ANA_HEAP_FREE, th->arg[0], 0);
		if (result)
			note(th, &now, ANA_HEAP_ALLOC, result,
			     th->member == REALLOC ? th->arg[1] : th->arg[1] * th->arg[2]);
		return;
	default:
		break;
	}
	if (result)
		note(th, &now, ANA_HEAP_ALLOC, result,
		     th->member == CALLOC     ? th->arg[0] * th->arg[1]
		     : th->member == MEMALIGN ? th->arg[1]
					      : th->arg[0]);
}

static void edge(void *data, struct replay_run *run, const struct replay_edge *edge)
{
	struct thread *th = data;

	if (edge->kind == REPLAY_SEE_CALL) {
		called(th, edge);
		return;
	}
	returned(th, edge->sp);
	if (!th->open || edge->sp <= th->sp)
		return;
	if (edge->to == th->ret && edge->sp == th->sp + 8)
		finished(th, run);
	if (edge->sp - th->sp < SAME)
		th->open = false;
	if (th->heap->plain && !th->open)
		replay_run_returns(run, UINT64_MAX);
}

/* Whether the process with this number is recorded in the memory of the one that made it. */
static bool is_recorded(const struct ana_heaplog *heap, const struct replay_run *run, uint64_t pid)
{
	struct dj_trace *t = replay_run_trace(run);
	int i = heap->groups ? ana_group_thread(t, heap->groups, replay_run_info(run)->process, pid)
			     : -1;

	return i >= 0 && dj_trace_thread(t, (size_t)i)->last_steps > 0;
}

/* Whether a call made a process that shares the memory: vfork, and clone and clone3 with CLONE_VM
 * and without CLONE_THREAD (clone(2); numbers of syscall_64.tbl). */
static bool lends_memory(const struct replay_run *run, const struct replay_event *e)
{
	uint64_t flags = e->number == 56    ? e->args[0]
			 : e->number == 435 ? ana_number_at(run, e->args[0], 8)
			 : e->number == 58  ? CLONE_VM
					    : 0;

	return e->kind == REPLAY_EV_SYSCALL && (int64_t)e->result > 0 && flags & CLONE_VM &&
	       !(flags & CLONE_THREAD);
}

static void event(void *data, struct replay_run *run, const struct replay_event *e)
{
	struct thread *th = data;
	bool exec = e->kind == REPLAY_EV_EXEC;

	if (!exec && (!lends_memory(run, e) || is_recorded(th->heap, run, e->result)))
		return;
	if (exec)
		th->depth = 0;
	th->open = false;
	if (th->heap->plain)
		replay_run_returns(run, UINT64_MAX);
	replay_run_pos(run, &th->pos);
	th->stack = th->heap->plain ? ANA_HEAP_NO_STACK : intern(th, run);
	note(th, &th->pos, exec ? ANA_HEAP_NEW_IMAGE : ANA_HEAP_BORROWED, 0, 0);
}

/* ---- the interface ---- */

int ana_heap_listener(struct ana_heaplog *heap, struct ana_job *job, bool stacks,
		      struct replay_listener *l)
{
	struct dj_error err;
	int found = -1;

	free(heap->groups);
	heap->groups = ana_groups(job->t, &err); /* or nobody knows what others do */
	heap->plain = !stacks;
	heap->events.size = sizeof(struct ana_heap_event);
	for (unsigned i = 0; i < FAMILY; i++)
		if (!ana_ranges_add(job, &heap->entries[i], family[i].name, &err))
			found = 0;
	for (unsigned i = 0; i < ENDS_CACHE; i++)
		ana_ranges_add(job, &heap->cache, ends_cache[i], &err);
	*l = (struct replay_listener){ .ctx = heap,
				       .begin = begin,
				       .end = end,
				       .wants = wants,
				       .point = point,
				       .edge = edge,
				       .kinds = stacks ? REPLAY_SEE_CALL | REPLAY_SEE_RETURN
						       : REPLAY_SEE_RETURN,
				       .event = event,
				       .translated = !stacks,
				       .returns = !stacks };
	return found;
}

/* ---- one stack ---- */

static unsigned wants_frames(void *data, struct replay_run *run, const struct insn *in)
{
	(void)data;
	(void)run;
	return in->attr & (INSN_A_CALL | INSN_A_RET) ? REPLAY_WANT_EDGE : 0;
}

static void frame_edge(void *data, struct replay_run *run, const struct replay_edge *edge)
{
	struct thread *th = data;

	(void)run;
	if (edge->kind == REPLAY_SEE_CALL)
		called(th, edge);
	else
		returned(th, edge->sp);
}

static void frame_event(void *data, struct replay_run *run, const struct replay_event *e)
{
	(void)run;
	if (e->kind == REPLAY_EV_EXEC)
		((struct thread *)data)->depth = 0;
}

static void end_frames(void *ctx, struct replay_run *run, void *data)
{
	if (data)
		intern(data, run);
	end(ctx, run, data);
}

uint32_t ana_heap_stack_of(struct ana_heaplog *heap, struct ana_job *job,
			   const struct ana_heap_event *e)
{
	const struct replay_listener listener = { .ctx = heap,
						  .begin = begin,
						  .end = end_frames,
						  .wants = wants_frames,
						  .edge = frame_edge,
						  .kinds = REPLAY_SEE_CALL | REPLAY_SEE_RETURN,
						  .event = frame_event,
						  .translated = true,
						  .late = true };
	const struct replay_listener *l = &listener;
	bool *threads = calloc(dj_trace_threads(job->t) + 1, sizeof(*threads));
	struct replay_pass pass = { .to = &e->pos, .threads = threads, .listeners = &l, .n = 1 };
	const size_t before = heap->n_stacks;
	struct dj_error err;

	if (e->stack != ANA_HEAP_NO_STACK)
		return e->stack;
	if (threads) {
		threads[e->pos.thread] = true;
		if (ana_pass_whole(job, job->t, &pass, &err))
			heap->n_stacks = before;
	}
	free(threads);
	return heap->n_stacks > before ? (uint32_t)heap->n_stacks - 1 : ANA_HEAP_NO_STACK;
}

static int in_order(const void *a, const void *b)
{
	const struct ana_heap_event *x = a, *y = b;
	int c = replay_pos_cmp(&x->order, &y->order);

	return c ? c : x->number < y->number ? -1 : x->number > y->number;
}

void ana_heap_sort(struct ana_heaplog *heap)
{
	if (heap->events.n)
		qsort(heap->events.items, heap->events.n, heap->events.size, in_order);
}

void ana_heap_free(struct ana_heaplog *heap)
{
	ana_log_free(&heap->events);
	free(heap->stacks);
	for (unsigned i = 0; i < FAMILY; i++)
		ana_ranges_free(&heap->entries[i]);
	ana_ranges_free(&heap->cache);
	free(heap->groups);
	memset(heap, 0, sizeof(*heap));
}

void ana_heap_stack_text(struct ana_heaplog *heap, struct ana_job *job, uint32_t stack, char *buf,
			 size_t size)
{
	size_t n = 0;

	*buf = 0;
	if (stack >= heap->n_stacks)
		return;
	const struct ana_heap_stack *s = &heap->stacks[stack];
	for (unsigned i = 0; i < s->n && n < size; i++) {
		char frame[300];

		ana_code_text(job->functions, &s->frames[i], frame, sizeof(frame));
		n += (size_t)snprintf(buf + n, size - n, "%s%s", i ? " < " : "", frame);
		if (!strncmp(frame, "main ", 5)) /* what called it says nothing */
			break;
	}
}
