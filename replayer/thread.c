/*
 * One emulated thread driven by its records: see thread.h. Here are its beginning and its end, its
 * position, and what the emulator asks of it.
 */
#include "replayer/thread-internal.h"
#include "replayer/memview.h"
#include "replayer/starts.h"

#include <stdlib.h>

#define FETCH_WORK 10

/* Whether the stack reaches further below its mapping than was known: what the kernel maps there by
 * and by no record tells. */
static bool stack_grew(struct rp_thread *th)
{
	uint64_t sp = th->e->cpu.gpr[DJ_RSP];
	const struct dj_mapping *m = dj_mappings_after(&th->space->maps, sp, 0);

	if (!m || strcmp(m->name, "[stack]") != 0 || m->start <= sp || m->start - sp <= th->grown)
		return false;
	th->grown = m->start - sp;
	return true;
}

static uint64_t sum(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

bool rp_thread_claim_more(struct rp_thread *th)
{
	struct dj_error err = { 0 };
	const struct dj_record *r;
	uint64_t mapped = 0;

	if (!th->jumped || th->asked)
		return false;
	th->asked = true;
	struct dj_cursor *c = dj_cursor_new_facts(th->trace, th->info->process, &err);
	while (c && (r = dj_cursor_next(c, &err)))
		if (r->kind == DJ_REC_MAP)
			mapped = sum(mapped, r->length);
	dj_cursor_free(c);
	th->mapped_ever = mapped;
	return mapped > th->mapped;
}

uint64_t rp_thread_claim(const struct rp_thread *th)
{
	uint64_t mapped = th->mapped > th->mapped_ever ? th->mapped : th->mapped_ever;

	return sum(sum(mapped, th->grown),
		   th->shared ? th->unpacked : dj_trace_unpacked(th->trace));
}

enum rp_thread_stop rp_thread_pulse(struct rp_thread *th, uint64_t work)
{
	uint64_t claim;

	enum rp_thread_stop halted = th->halted;

	if (halted !=
	    THREAD_LIMIT) { /* found by a callback; the emulator stopped for another reason */
		th->halted = THREAD_LIMIT;
		th->e->stop_requested = th->mem && th->mem->hit.hit;
		return halted;
	}
	if (!th->patience)
		return THREAD_LIMIT;
	claim = rp_thread_claim(th);
	switch (rp_patience_look(th->patience, work, claim)) {
	case PATIENCE_LASTS:
		return THREAD_LIMIT;
	case PATIENCE_INTERRUPTED:
		return THREAD_INTERRUPTED;
	default:
		if (stack_grew(th) || rp_thread_claim_more(th))
			return THREAD_LIMIT;
		dj_fail(&th->err, 1,
			"replaying this takes more than %llu MB of memory, far more than the "
			"program had mapped (DEJA_MEMORY=... allows more)",
			(unsigned long long)(rp_patience_limit(th->patience, claim) >> 20));
		return THREAD_FAILED;
	}
}

/* ---- the emulator's callbacks -------------------------------------------------------- */

size_t rp_thread_fetch(struct rp_thread *th, uint64_t addr, uint8_t *buf, size_t len)
{
	size_t n;

	/* a module is unpacked when it is first looked at */
	if (th->shared)
		pthread_mutex_lock(th->shared);
	n = rp_space_fetch(th->space, th->trace, addr, buf, len);
	th->unpacked = dj_trace_unpacked(th->trace);
	if (th->shared)
		pthread_mutex_unlock(th->shared);
	return n;
}

static size_t fetch(void *ctx, uint64_t addr, uint8_t *buf, size_t len)
{
	struct rp_thread *th = ctx;
	size_t n = rp_thread_fetch(th, addr, buf, len);

	if (th->halted == THREAD_LIMIT)
		th->halted = rp_thread_pulse(th, FETCH_WORK);
	if (th->halted != THREAD_LIMIT)
		th->e->stop_requested = true;
	if (n < INSN_MAX && n < len && th->mem && rp_memview_in_copy(th->mem))
		n += rp_memview_read(th->mem, addr + n, buf + n, len - n);
	return n;
}

void rp_thread_import_line(struct rp_thread *th, const struct rp_thread_import *imp)
{
	th->count_imports++;
	if (th->mem)
		rp_memview_import(th->mem, imp->addr, imp->line);
	else
		memcpy(th->e->shadow + (uint32_t)imp->addr, imp->line, DJ_LINE);
}

static void before_load(void *ctx, struct emu *e, uint64_t addr, unsigned size)
{
	struct rp_thread *th = ctx;

	for (size_t i = th->used; i < th->nimports && th->imports[i].ordinal == e->ordinal; i++) {
		rp_thread_import_line(th, &th->imports[i]);
		th->used++;
	}
	if (th->mem && rp_memview_in_copy(th->mem))
		rp_memview_fill(th->mem, addr, size);
}

static void after_load(void *ctx, struct emu *e, uint64_t addr, unsigned size)
{
	struct rp_thread *th = ctx;

	if (th->mem)
		rp_memview_load(th->mem, addr, size);
	if (th->hearer && th->hearer->access)
		th->hearer->access(th->hearer->ctx, addr, size, false, e->shadow + (uint32_t)addr);
}

static void before_store(void *ctx, struct emu *e, uint64_t addr, unsigned size)
{
	struct rp_thread *th = ctx;

	(void)e;
	if (th->mem)
		rp_memview_before_store(th->mem, addr, size);
}

static void after_store(void *ctx, struct emu *e, uint64_t addr, unsigned size,
			const uint8_t *bytes)
{
	struct rp_thread *th = ctx;

	(void)e;
	if (th->mem)
		rp_memview_after_store(th->mem, addr, size, bytes);
	if (th->hearer && th->hearer->access)
		th->hearer->access(th->hearer->ctx, addr, size, true, bytes);
}

static void unseen_store(void *ctx, struct emu *e, uint64_t addr, unsigned size,
			 const uint8_t *bytes)
{
	struct rp_thread *th = ctx;

	(void)e;
	if (th->mem)
		rp_memview_unseen(th->mem, addr, size);
	if (th->hearer && th->hearer->access)
		th->hearer->access(th->hearer->ctx, addr, size, true, bytes);
}

static void ran(void *ctx, uint64_t lo, uint64_t hi)
{
	struct rp_thread *th = ctx;

	rp_memview_ran(th->mem, lo, hi);
}

/* ---- observers ------------------------------------------------------------------------ */

static void see_edge(void *ctx, struct emu *e, const struct emu_edge *edge)
{
	struct rp_thread *th = ctx;

	(void)e;
	th->observer.see(th->observer.ctx, &(struct replay_edge){ .thread = (uint32_t)th->index,
								  .kind = edge->kind,
								  .from = edge->from,
								  .to = edge->to,
								  .steps = edge->steps,
								  .sp = edge->sp });
}

void rp_thread_see(struct rp_thread *th, unsigned kind, uint64_t from)
{
	if ((kind & th->observer.kinds) && !th->e->unseen)
		th->observer.see(th->observer.ctx,
				 &(struct replay_edge){ .thread = (uint32_t)th->index,
							.kind = kind,
							.from = from,
							.to = th->e->cpu.rip,
							.steps = th->e->steps,
							.sp = th->e->cpu.gpr[DJ_RSP] });
}

void rp_thread_observe(struct rp_thread *th, const struct replay_observer *o)
{
	_Static_assert((int)REPLAY_SEE_JUMP == (int)EMU_SEE_JUMP &&
			       (int)REPLAY_SEE_FALL == (int)EMU_SEE_FALL &&
			       (int)REPLAY_SEE_CALL == (int)EMU_SEE_CALL &&
			       (int)REPLAY_SEE_RETURN == (int)EMU_SEE_RETURN,
		       "the emulator's kinds of edges are the replay's");
	th->observer = o ? *o : (struct replay_observer){ 0 };
	emu_observe(th->e, &(struct emu_observer){ .kinds = th->observer.kinds & EMU_SEE_ALL,
						   .see = see_edge });
}

/* ---- positions ------------------------------------------------------------------------ */

void rp_thread_pos(const struct rp_thread *th, struct rp_thread_pos *pos)
{
	pos->steps = th->e->steps;
	pos->signals = th->signals;
	pos->rep = th->e->in_rep ? th->e->rep_iter : 0;
}

/* Ordered events that the thread has passed. */
static uint64_t counted(const struct rp_thread *th)
{
	return th->events + (th->ordered_fences ? th->e->fences : 0);
}

void rp_thread_seq(const struct rp_thread *th, uint64_t *seq, uint64_t *within)
{
	uint64_t past = counted(th) - th->numbers.from;

	*seq = past ? th->numbers.next + past - 1 : th->numbers.last;
	*within = th->e->steps - th->event_steps;
	if (th->ordered_fences && th->e->fences && th->e->fence_steps > th->event_steps)
		*within = th->e->steps - th->e->fence_steps;
}

uint64_t rp_thread_next_seq(const struct rp_thread *th)
{
	uint64_t next = th->numbers.next + (counted(th) - th->numbers.from);

	if (!th->order)
		return next;
	if (!rp_thread_signal_here(th))
		return th->order;
	return next > th->order ? next : th->order + 1; /* the instruction is not executed */
}

void rp_thread_ordered(struct rp_thread *th)
{
	uint64_t last, within, next, number = th->order;

	th->order = 0;
	rp_thread_seq(th, &last, &within);
	next = rp_thread_next_seq(th);
	if (number <= last)
		return;
	th->numbers = (struct rp_numbers){ .from = counted(th),
					   .last = number,
					   .next = next > number ? next : number + 1 };
	th->event_steps = th->e->steps;
}

bool rp_thread_renumber(struct rp_thread *th, uint64_t next)
{
	uint64_t last, within;

	rp_thread_seq(th, &last, &within);
	if (next <= last)
		return false;
	th->numbers = (struct rp_numbers){ .from = counted(th), .last = last, .next = next };
	return true;
}

uint64_t rp_thread_first_seq(const struct dj_thread_info *info)
{
	return info->first_seq == DJ_SEQ_UNKNOWN ? 0 : info->first_seq;
}

/* ---- beginning, ending --------------------------------------------------------------------- */

struct rp_thread *rp_thread_new(struct dj_trace *t, size_t index, struct rp_space_names *names,
				struct dj_error *err)
{
	const struct dj_trace_meta *meta = dj_trace_meta(t);
	struct rp_thread *th = calloc(1, sizeof(*th));

	if (!th) {
		dj_fail(err, 1, "out of memory");
		return NULL;
	}
	th->trace = t;
	th->index = index;
	th->info = dj_trace_thread(t, index);
	th->names = names;
	th->e = emu_new(err);
	if (!th->e) {
		rp_thread_free(th);
		return NULL;
	}
	th->space = rp_space_new();
	if (th->space)
		th->space->process = th->info->process;
	if (!th->space)
		dj_fail(err, 1, "out of memory");
	else
		th->cur = dj_cursor_new(t, index, err);
	if (!th->cur) {
		rp_thread_free(th);
		return NULL;
	}
	th->e->kind = dj_cpu_kind_of(meta->cpu);
	th->e->ctx = th;
	th->e->fetch = fetch;
	th->e->before_load = before_load;
	th->e->after_load = after_load;
	th->e->before_store = before_store;
	th->e->after_store = after_store;
	th->e->unseen_store = unseen_store;
	th->e->ran = ran;
	th->e->mirror_stores = meta->predict == DJ_PREDICT_SHADOW;
	rp_thread_part(th, RP_NO_KEYFRAME, RP_NO_KEYFRAME);
	th->end_steps = th->info->last_steps;
	th->last_sysno = UINT64_MAX;
	th->seq_stop = UINT64_MAX;
	th->ordered_fences = meta->memory_model >= DJ_ORDER_FENCE;
	dj_cursor_mark(th->cur, &th->first_mark);
	return th;
}

bool rp_thread_translate(struct rp_thread *th)
{
	if (!th->fast)
		th->fast = fast_new(th->e);
	return th->fast;
}

void rp_thread_free(struct rp_thread *th)
{
	if (!th)
		return;
	fast_free(th->fast);
	emu_free(th->e);
	rp_space_unref(th->space);
	dj_cursor_free(th->cur);
	free(th->imports);
	free(th);
}

void rp_thread_part(struct rp_thread *th, size_t from, size_t to)
{
	th->from = from;
	th->ahead = UINT64_MAX;
	if (to != RP_NO_KEYFRAME)
		th->ahead = to - (from == RP_NO_KEYFRAME ? 0 : from) + 1;
}

enum rp_thread_stop rp_thread_begin(struct rp_thread *th)
{
	uint64_t seq = rp_thread_first_seq(th->info);

	th->e->steps = th->info->first_steps;
	th->late = th->blank = th->info->late || th->from != RP_NO_KEYFRAME;
	th->over = false;
	if (th->from != RP_NO_KEYFRAME) {
		dj_trace_keyframe(th->trace, th->index, th->from, &th->e->steps, &seq);
		if (dj_cursor_seek_keyframe(th->cur, th->from, &th->err))
			return THREAD_FAILED;
		dj_cursor_mark(th->cur, &th->first_mark);
	}
	th->begin_steps = th->space->image_steps = th->e->steps;
	th->event_steps = th->e->steps;
	th->numbers = (struct rp_numbers){ .last = seq == DJ_SEQ_UNKNOWN ? 0 : seq };
	th->numbers.next = th->numbers.last + 1;
	rp_starts_begin(th);
	rp_thread_advance(th);
	return rp_thread_settle(th);
}

enum rp_thread_stop rp_thread_restart(struct rp_thread *th)
{
	struct emu *e = th->e;

	emu_reset_memory(e);
	memset(&e->cpu, 0, sizeof(e->cpu));
	e->cpu.other_flags = 0x202;
	e->cpu.mxcsr = 0x1f80;
	e->cpu.fcw = 0x37f;
	e->fences = e->fence_steps = 0;
	e->in_rep = false;
	e->rep_iter = 0;
	e->stop_requested = false;
	th->events = 0;
	th->order = 0;
	th->signals = 0;
	th->signals_total = 0;
	th->forks = 0;
	th->mapped = th->grown = 0;
	th->last_sysno = UINT64_MAX;
	th->exited = th->damaged = false;
	th->div.found = false;
	if (rp_space_clear(&th->space, th->info->first_steps, &th->err) ||
	    rp_thread_restore_cursor(th, NULL))
		return THREAD_FAILED;
	return rp_thread_begin(th);
}

int rp_thread_restore_cursor(struct rp_thread *th, const struct dj_mark *mark)
{
	th->nimports = 0;
	th->next = NULL;
	th->order = 0;
	th->here = 0;
	th->unsettled = false;
	th->halted = THREAD_LIMIT;
	if (dj_cursor_restore(th->cur, mark ? mark : &th->first_mark, &th->err)) {
		th->damaged = true;
		return -1;
	}
	if (mark) {
		rp_thread_advance(th);
		if (rp_thread_settle(th) == THREAD_FAILED)
			return -1;
	}
	return 0;
}

const struct dj_mark *rp_thread_mark(const struct rp_thread *th)
{
	return th->nimports ? &th->imports_mark : &th->next_mark;
}

void rp_thread_enter_copy(struct rp_thread *th)
{
	rp_thread_flush_imports(th);
	th->next = NULL;
	th->order = 0;
	th->copy = true;
	th->exited = false;
	th->end_steps = UINT64_MAX;
}
