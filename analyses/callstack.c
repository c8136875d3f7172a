/* A thread's call stack, by calls and returns (analyses/callstack.h). */
#include "analyses/analysis.h"
#include "analyses/callstack.h"

#include <stdlib.h>
#include <string.h>

#define AREAS	 1024u	    /* stacks of a thread; beyond that the longest unused is forgotten */
#define NEAR	 4096u	    /* bytes by which a stack may grow at once without being another */
#define NEAR_SIG (1u << 16) /* a signal's frame, whatever vector registers there are */
#define KNOWN	 1024u	    /* places of functions that are remembered; a power of two */

/* One stack. */
struct area {
	struct ana_call *frames;
	size_t n, cap;
	uint64_t base;	 /* the highest it is known to reach */
	uint64_t parked; /* the stack pointer when it was left */
	uint64_t used;	 /* when that was */
	uint64_t under;	 /* `used` of the stack that a signal's handler on this one interrupted */
	uint32_t root;	 /* what ANA_CALL_UNDER is remembered as, or what a handler interrupted */
	bool open;	 /* it began before the history that is looked at */
};

struct known {
	uint64_t addr;
	const struct ana_function *fn;
	bool begins;
};

struct ana_stack {
	const struct ana_stack_rules *rules;
	struct ana_stack_watcher w;
	struct area *areas;
	size_t n_areas;
	struct area *now;
	bool moved; /* the stack pointer was loaded, or may have been */
	uint64_t moved_from, clock;
	unsigned near;
	uint64_t lost, deepest;
	bool failed;
	bool marks; /* there are instructions that are calls or returns though they do not look it
		     */
	struct known known[KNOWN];
};

struct ana_stack *ana_stack_new(const struct ana_stack_rules *rules, struct replay_run *run,
				const struct ana_stack_watcher *watcher)
{
	struct ana_stack *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->rules = rules;
	if (watcher)
		s->w = *watcher;
	s->areas = calloc(AREAS, sizeof(*s->areas));
	if (!s->areas) {
		free(s);
		return NULL;
	}
	s->now = &s->areas[s->n_areas++];
	s->now->base = replay_run_gpr(run, DJ_RSP);
	s->now->open = true;
	s->marks = (rules->calls && rules->calls->n) || (rules->returns && rules->returns->n);
	return s;
}

void ana_stack_free(struct ana_stack *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->n_areas; i++)
		free(s->areas[i].frames);
	free(s->areas);
	free(s);
}

/* ---- functions ---- */

static const struct known *look_up(struct ana_stack *s, struct replay_run *run, uint64_t addr)
{
	struct known *k = &s->known[(addr ^ addr >> 12) & (KNOWN - 1)];
	struct replay_code code;

	if (k->addr == addr && k->fn)
		return k;
	replay_run_code(run, addr, &code);
	replay_run_lock(run);
	*k = (struct known){ .addr = addr,
			     .fn = ana_function_of(s->rules->functions, &code),
			     .begins = ana_function_begins(s->rules->functions, &code) };
	replay_run_unlock(run);
	return k;
}

/* Whether going from one place to the other enters a function at its beginning. */
static bool enters(struct ana_stack *s, struct replay_run *run, uint64_t from, uint64_t to)
{
	const struct known *k = look_up(s, run, to);
	const struct ana_function *fn = k->fn;

	return k->begins && look_up(s, run, from)->fn != fn;
}

static bool marked(const struct ana_ranges *ranges, struct replay_run *run, uint64_t addr)
{
	struct replay_code code;

	if (!ranges || !ranges->n)
		return false;
	replay_run_code(run, addr, &code);
	return ana_ranges_have(ranges, &code, addr);
}

static bool loads_stack_pointer(const struct insn *in)
{
	return (in->id == INSN_MOV || in->id == INSN_XCHG || in->id == INSN_POP) &&
	       in->gpr_written & 1u << DJ_RSP && in->nopnd &&
	       ((in->opnd[0].kind == OPND_GPR && in->opnd[0].reg == DJ_RSP) ||
		(in->id == INSN_XCHG && in->opnd[1].kind == OPND_GPR && in->opnd[1].reg == DJ_RSP));
}

unsigned ana_stack_wants(struct ana_stack *s, struct replay_run *run, const struct insn *in)
{
	if (s->marks &&
	    (marked(s->rules->calls, run, in->addr) || marked(s->rules->returns, run, in->addr)))
		return REPLAY_WANT_EDGE | REPLAY_WANT_POINT;
	if (in->attr & (INSN_A_CALL | INSN_A_RET | INSN_A_INDIRECT) && in->attr & INSN_A_BRANCH)
		return REPLAY_WANT_EDGE;
	if (in->attr & INSN_A_BRANCH)
		return enters(s, run, in->addr, (uint64_t)in->imm) ? REPLAY_WANT_EDGE : 0;
	return loads_stack_pointer(in) ? REPLAY_WANT_POINT : 0;
}

/* ---- pushing and popping ---- */

static uint32_t top_of(const struct area *a)
{
	return a->n ? a->frames[a->n - 1].user : a->root;
}

static void tell_top(struct ana_stack *s, uint64_t steps)
{
	if (s->w.top)
		s->w.top(s->w.ctx, top_of(s->now), steps);
}

static void push(struct ana_stack *s, struct replay_run *run, struct ana_call call)
{
	struct area *a = s->now;

	if (s->rules->limit && a->n >= s->rules->limit) {
		s->lost++;
		return;
	}
	if (a->n == a->cap) {
		size_t cap = a->cap ? a->cap * 2 : 64;
		struct ana_call *grown = realloc(a->frames, cap * sizeof(*grown));
		if (!grown) {
			s->failed = true;
			replay_run_fail(run, "out of memory for a call stack");
			return;
		}
		a->frames = grown;
		a->cap = cap;
	}
	if (s->w.enter)
		call.user = s->w.enter(s->w.ctx, run, &call);
	a->frames[a->n++] = call;
	s->deepest = a->n > s->deepest ? a->n : s->deepest;
	if (call.slot > a->base)
		a->base = call.slot;
}

static void pop(struct ana_stack *s, struct replay_run *run, uint64_t steps)
{
	struct area *a = s->now;

	a->n--;
	if (s->w.leave) {
		struct ana_call call = a->frames[a->n];
		s->w.leave(s->w.ctx, run, &call, steps);
	}
}

/* The frames below the stack pointer are gone. */
static bool pop_below(struct ana_stack *s, struct replay_run *run, uint64_t sp, uint64_t steps)
{
	struct area *a = s->now;
	bool any = false;

	while (a->n && a->frames[a->n - 1].slot < sp) {
		pop(s, run, steps);
		any = true;
	}
	if (any)
		tell_top(s, steps);
	return any;
}

/* ---- several stacks ---- */

static bool one_mapping(struct replay_run *run, uint64_t a, uint64_t b)
{
	struct replay_mapping m;

	return replay_run_mapping(run, a, &m) && b >= m.start && b < m.end;
}

/* Whether the stack pointer, which was `from`, has stayed on the same stack. */
static bool same_stack(struct ana_stack *s, struct replay_run *run, uint64_t from, uint64_t sp)
{
	const struct area *a = s->now;

	if (sp >= from)
		return sp <= a->base || (a->open && one_mapping(run, from, sp));
	return from - sp < s->near;
}

static struct area *another(struct ana_stack *s, uint64_t sp)
{
	struct area *oldest = NULL, *a;

	for (a = s->areas; a < s->areas + s->n_areas; a++) {
		if (a == s->now)
			continue;
		if (sp >= a->parked && sp <= a->base)
			return a;
		oldest = !oldest || a->used < oldest->used ? a : oldest;
	}
	a = s->n_areas < AREAS ? &s->areas[s->n_areas++] : oldest;
	a->n = 0;
	a->base = sp;
	a->open = false;
	a->root = 0;
	a->under = 0;
	return a;
}

static void look_where(struct ana_stack *s, struct replay_run *run, uint64_t sp, uint64_t steps)
{
	uint64_t from = s->moved_from;

	s->moved = false;
	if (same_stack(s, run, from, sp))
		return;
	if (s->now->under && !s->now->n)
		s->now->root = 0;
	s->now->parked = from;
	s->now->used = ++s->clock;
	s->now = another(s, sp);
	tell_top(s, steps);
}

static void moves(struct ana_stack *s, uint64_t sp, unsigned near)
{
	if (s->moved)
		return;
	s->moved = true;
	s->moved_from = sp;
	s->near = near;
}

/* ---- what is told ---- */

static bool mark(struct ana_stack *s, struct replay_run *run, uint64_t from, uint64_t to,
		 uint64_t sp, uint64_t steps)
{
	struct area *a = s->now;

	if (!s->marks)
		return false;
	if (marked(s->rules->calls, run, from)) {
		push(s, run,
		     (struct ana_call){ .slot = sp,
					.from = from,
					.entry = to,
					.steps = steps,
					.kind = ANA_CALL_MARKED });
		return true;
	}
	if (!marked(s->rules->returns, run, from))
		return false;
	if (a->n) {
		pop(s, run, steps);
		tell_top(s, steps);
	}
	return true;
}

/* One that is not known as one has no name. */
static bool is_stub(const struct ana_function *fn)
{
	return fn->stub || !fn->name;
}

static void jumped(struct ana_stack *s, struct replay_run *run, const struct replay_edge *e)
{
	struct area *a = s->now;
	bool bare = !a->n;

	if (!bare && e->sp != a->frames[a->n - 1].slot)
		return;
	if (!enters(s, run, e->from, e->to))
		return;
	/* what goes round by tail calls does not pile up */
	for (size_t i = a->n; i-- && a->frames[i].slot == e->sp;)
		if (a->frames[i].entry == e->to) {
			while (a->n > i + 1)
				pop(s, run, e->steps);
			tell_top(s, e->steps);
			return;
		}
	/* a stub of the linker: the function takes its place */
	if (!bare && is_stub(look_up(s, run, a->frames[a->n - 1].entry)->fn)) {
		struct ana_call stub = a->frames[a->n - 1];
		pop(s, run, e->steps);
		tell_top(s, e->steps);
		stub.entry = e->to;
		stub.steps = e->steps;
		push(s, run, stub);
		return;
	}
	push(s, run,
	     (struct ana_call){ .slot = e->sp,
				.from = e->from,
				.entry = e->to,
				.steps = e->steps,
				.kind = ANA_CALL_TAIL });
}

static void returned(struct ana_stack *s, struct replay_run *run, const struct replay_edge *e)
{
	struct area *a = s->now;

	if (pop_below(s, run, e->sp, e->steps) || a->n) {
		/* "push address; ret" is a jump */
		if (a->n && e->sp == a->frames[a->n - 1].slot)
			jumped(s, run, e);
		return;
	}
	if (e->sp > a->base)
		a->base = e->sp;
	if (!s->w.enter)
		return;
	a->root = s->w.enter(s->w.ctx, run,
			     &(struct ana_call){ .from = e->from,
						 .entry = e->to,
						 .steps = e->steps,
						 .kind = ANA_CALL_UNDER });
	tell_top(s, e->steps);
}

/* What comes now is the first on its stack: if it is the handler of a signal that came on another
 * one, it lies above what it interrupted there. */
static void interrupts(struct ana_stack *s, const struct replay_edge *e, const struct area *left)
{
	struct area *a = s->now;
	bool handler = e->kind == REPLAY_SEE_SIGNAL && a != left;

	a->under = handler ? left->used : 0;
	if (!handler)
		return;
	a->root = top_of(left);
	tell_top(s, e->steps);
}

static inline void take(struct ana_stack *s, struct replay_run *run, const struct replay_edge *e)
{
	const struct area *left = s->now;

	if (s->failed)
		return;
	if (s->moved)
		look_where(s, run, e->sp, e->steps);
	if (mark(s, run, e->from, e->to, e->sp, e->steps))
		return;
	switch (e->kind) {
	case REPLAY_SEE_CALL:
	case REPLAY_SEE_SIGNAL:
		/* a frame with the same slot is gone as well */
		pop_below(s, run, e->sp + 1, e->steps);
		if (!s->now->n)
			interrupts(s, e, left);
		push(s, run,
		     (struct ana_call){ .slot = e->sp,
					.from = e->from,
					.entry = e->to,
					.steps = e->steps,
					.kind = e->kind == REPLAY_SEE_CALL ? ANA_CALL_CALL
									   : ANA_CALL_SIGNAL });
		break;
	case REPLAY_SEE_RETURN:
		returned(s, run, e);
		break;
	case REPLAY_SEE_JUMP:
		pop_below(s, run, e->sp, e->steps);
		jumped(s, run, e);
		break;
	case REPLAY_SEE_ENTRY:
		pop_below(s, run, e->sp, e->steps);
		break;
	default:
		break;
	}
}

void ana_stack_edge(struct ana_stack *s, struct replay_run *run, const struct replay_edge *e)
{
	take(s, run, e);
}

void ana_stack_edges(struct ana_stack *s, struct replay_run *run, const struct replay_edge *edges,
		     size_t n)
{
	for (size_t i = 0; i < n; i++)
		take(s, run, &edges[i]);
}

void ana_stack_point(struct ana_stack *s, struct replay_run *run, const struct insn *in)
{
	uint64_t sp = replay_run_gpr(run, DJ_RSP);

	if (loads_stack_pointer(in))
		moves(s, sp, NEAR);
	if (!(in->attr & INSN_A_BRANCH)) /* a branch is told when it has been taken */
		mark(s, run, in->addr, in->addr, sp, replay_run_steps(run));
}

void ana_stack_event(struct ana_stack *s, struct replay_run *run, const struct replay_event *ev)
{
	if ((ev->kind == REPLAY_EV_SIGNAL && ev->handled) || ev->kind == REPLAY_EV_REGS)
		moves(s, replay_run_gpr(run, DJ_RSP), NEAR_SIG);
	if (ev->kind != REPLAY_EV_EXEC)
		return;
	for (size_t i = 0; i < s->n_areas; i++) {
		s->now = &s->areas[i];
		while (s->now->n)
			pop(s, run, replay_run_steps(run));
		s->now->root = 0;
		s->now->base = s->now->parked = s->now->under = 0;
	}
	s->now = &s->areas[0];
	s->now->open = true;
	s->moved = false;
	memset(s->known, 0, sizeof(s->known));
	tell_top(s, replay_run_steps(run));
}

size_t ana_stack_frames(const struct ana_stack *s, const struct ana_call **frames)
{
	return ana_stack_interrupted(s, 0, frames);
}

size_t ana_stack_interrupted(const struct ana_stack *s, size_t level,
			     const struct ana_call **frames)
{
	const struct area *a = s->now;

	while (level-- && a) {
		uint64_t under = a->under;
		for (a = s->areas; a < s->areas + s->n_areas; a++)
			if (under && a != s->now && a->used == under)
				break;
		if (a == s->areas + s->n_areas)
			a = NULL;
	}
	*frames = a ? a->frames : NULL;
	return a ? a->n : 0;
}

uint64_t ana_stack_lost(const struct ana_stack *s)
{
	return s->lost;
}

uint64_t ana_stack_deepest(const struct ana_stack *s)
{
	return s->deepest;
}

/* ---- as a listener ---- */

static unsigned listen_wants(void *data, struct replay_run *run, const struct insn *in)
{
	return ana_stack_wants(((struct ana_stacked *)data)->stack, run, in);
}

static void listen_edge(void *data, struct replay_run *run, const struct replay_edge *e)
{
	ana_stack_edge(((struct ana_stacked *)data)->stack, run, e);
}

static void listen_edges(void *data, struct replay_run *run, const struct replay_edge *e, size_t n)
{
	ana_stack_edges(((struct ana_stacked *)data)->stack, run, e, n);
}

static void listen_point(void *data, struct replay_run *run, const struct insn *in)
{
	ana_stack_point(((struct ana_stacked *)data)->stack, run, in);
}

static void listen_event(void *data, struct replay_run *run, const struct replay_event *ev)
{
	ana_stack_event(((struct ana_stacked *)data)->stack, run, ev);
}

void ana_stack_listen(struct replay_listener *listener)
{
	listener->wants = listen_wants;
	listener->kinds = ANA_STACK_KINDS;
	listener->edge = listen_edge;
	listener->edges = listen_edges;
	listener->point = listen_point;
	listener->event = listen_event;
}
