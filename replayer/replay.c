/*
 * The replay interface: opening, conditions, and what can be asked at a position. Moving is
 * in replay-move.c and replay-run.c.
 */
#include "format/index.h"
#include "replayer/ground.h"
#include "replayer/keep.h"
#include "replayer/land.h"
#include "replayer/starts.h"
#include "replayer/wire.h"

#include <stdlib.h>
#include <string.h>

#define OPEN_MAX  1024u		    /* threads that are open at the same time, if others are over */
#define BUDGET	  ((size_t)1 << 30) /* bytes that checkpoints may take */
#define WORTH	  20000000u	    /* instructions that are covered by a process of its own */
#define FIRST	  5000000u	    /* that are as soon emulated */
#define LAND	  1000000u	    /* that are as soon emulated as generated code gets ready */
#define FILL	  100000000u	    /* between full checkpoints: more are made */
#define SURVEY	  3000000u	    /* as many are as soon searched as looked at in parts */
#define LAND_MOST (256u << 20)	    /* bytes of checkpoints that are made before another begins */
#define LAND_PAGE 1500u		    /* that are emulated while a changed page is handed back */
#define SHORT	  10000000u	    /* instructions that are soon executed again */

/* ---- opening --------------------------------------------------------------------------- */

static int open_thread(struct replay *r, size_t i, struct dj_error *err)
{
	struct rp_timeline *s = &r->threads[i];

	s->th = rp_thread_new(r->t, i, &r->names, err);
	if (!s->th)
		return -1;
	s->mv = rp_memview_new(s->th);
	if (!s->mv)
		return dj_fail(err, 1, "out of memory");
	s->th->mem = s->mv;
	s->told.from = UINT64_MAX;
	s->th->patience = &r->patience;
	s->th->e->hooks |= EMU_HOOK_TRACK;
	s->th->e->unseen = true; /* but for what is run forward for its own sake */
	if (r->observer.kinds)
		rp_thread_observe(s->th, &r->observer);
	rp_starts_use(r->starts, s->th);
	rp_checkpoints_init(&s->cs, s->th, s->mv, r->budget);
	for (size_t k = 0; k < r->nwatches; k++)
		rp_memview_watch_add(s->mv, r->watches[k].id, r->watches[k].addr, r->watches[k].len,
				     r->watches[k].kind);
	switch (rp_thread_begin(s->th)) {
	case THREAD_FAILED:
		return dj_fail(err, s->th->err.exit_status ? s->th->err.exit_status : 2, "%s",
			       s->th->err.text);
	case THREAD_INTERRUPTED: /* it goes on from there when it is next looked at */
		r->cancelled = true;
		return 0;
	default:
		return 0;
	}
}

static void close_thread(struct rp_timeline *s)
{
	rp_ground_free(s->ground);
	rp_lander_free(s->lander);
	if (s->mv)
		rp_checkpoints_free(&s->cs);
	rp_memview_free(s->mv);
	rp_thread_free(s->th);
	free(s->told.v);
	*s = (struct rp_timeline){ 0 };
}

/* There are many threads open: give up those that are over. Looking at them again means replaying
 * them again, so not those with a long history. The selected and the moment's thread stay. */
static void close_ended(struct replay *r)
{
	for (uint32_t i = 0; i < r->nthreads; i++) {
		struct rp_timeline *s = &r->threads[i];
		if (!s->th || i == r->selected || i == r->moment.thread ||
		    !rp_thread_at_end(s->th) ||
		    s->th->info->last_steps - s->th->info->first_steps > SHORT)
			continue;
		close_thread(s);
		r->nopen--;
	}
}

int rp_switch(struct replay *r, uint32_t thread, struct dj_error *err)
{
	bool fresh = !r->threads[thread].th;

	if (fresh) {
		bool cancelled = r->cancelled;

		if (r->nopen >= r->open_max)
			close_ended(r);
		if (r->nthreads > 1 && replay_interrupted(r)) { /* there may be very many */
			r->cancelled = true;
			return dj_fail(err, 1, "interrupted");
		}
		r->cancelled = false;
		if (open_thread(r, thread, err)) {
			close_thread(&r->threads[thread]);
			r->cancelled |= cancelled;
			return -1;
		}
		r->patience.users = (unsigned)++r->nopen;
		if (r->cancelled)
			return dj_fail(err, 1, "interrupted");
		r->cancelled = cancelled;
	}
	r->selected = thread;
	r->th = r->threads[thread].th;
	r->mv = r->threads[thread].mv;
	r->cs = &r->threads[thread].cs;
	if (fresh)
		rp_keep_load(r);
	return 0;
}

static bool interrupted(void *ctx)
{
	return replay_interrupted(ctx);
}

struct replay *replay_open(const char *path, struct dj_error *err)
{
	struct replay *r = calloc(1, sizeof(*r));

	if (!r) {
		dj_fail(err, 1, "out of memory");
		return NULL;
	}
	r->spacing = 1000000;
	r->near = 50000;
	r->ground_worth = WORTH;
	r->ground_first = FIRST;
	r->land_worth = LAND;
	r->fill_worth = FILL;
	r->land_page = LAND_PAGE;
	r->land_most = LAND_MOST;
	r->survey_worth = SURVEY;
	r->leap_first = r->near;
	r->scope = REPLAY_PROCESS;
	r->open_max = OPEN_MAX;
	r->break_generation = 1;
	rp_patience_init(&r->patience, interrupted, r);
	r->patience.kept = rp_versions_most;
	r->budget = r->patience.machine / 4 < BUDGET ? (size_t)(r->patience.machine / 4) : BUDGET;
	r->t = dj_trace_open(path, err);
	if (!r->t) {
		replay_close(r);
		return NULL;
	}
	if (dj_trace_missing(r->t)) {
		dj_fail(err, 2, "%s", dj_trace_missing(r->t));
		replay_close(r);
		return NULL;
	}
	r->nthreads = dj_trace_threads(r->t);
	r->starts = rp_starts_new(r->t);
	r->threads = calloc(r->nthreads + 1, sizeof(*r->threads));
	if (!r->threads)
		dj_fail(err, 1, "out of memory");
	else if (!r->nthreads)
		dj_fail(err, 2, "%s: the trace holds no thread", path);
	else if (!rp_open_first(r, err))
		return r;
	replay_close(r);
	return NULL;
}

void replay_use_index(struct replay *r)
{
	if (r->index)
		return;
	r->index = dj_index_open(r->t, rp_wire_layout());
	rp_keep_load(r);
}

void replay_close(struct replay *r)
{
	if (!r)
		return;
	for (size_t i = 0; r->threads && i < r->nthreads; i++)
		close_thread(&r->threads[i]);
	free(r->threads);
	rp_starts_free(r->starts);
	free(r->turns.heap);
	rp_shared_free(r);
	rp_patience_free(&r->patience);
	dj_index_close(r->index);
	dj_trace_close(r->t);
	rp_space_names_free(&r->names);
	rp_thread_names_free(&r->thread_names);
	rp_remaps_free(&r->remaps);
	free(r->breaks);
	for (size_t i = 0; i < r->nwatches; i++)
		rp_watched_free(&r->watches[i]);
	free(r->watches);
	free(r->catch);
	free(r->maps);
	rp_lookahead_clear(&r->look);
	free(r);
}

struct dj_trace *replay_trace(struct replay *r)
{
	return r->t;
}

void replay_limits(struct replay *r, uint64_t spacing, size_t max, size_t budget)
{
	r->spacing = spacing;
	r->near = spacing < r->near ? spacing / 4 : r->near;
	r->cs->max = max;
	r->cs->budget = budget;
	r->budget = budget;
}

void replay_budget(struct replay *r, uint64_t bytes)
{
	r->budget = bytes < SIZE_MAX ? (size_t)bytes : SIZE_MAX;
	if (r->land_most > r->budget / 4)
		r->land_most = r->budget / 4;
	for (uint32_t i = 0; i < r->nthreads; i++)
		r->threads[i].cs.budget = r->budget;
}

/* ---- conditions ------------------------------------------------------------------------- */

static void bloom_make(struct replay *r)
{
	memset(r->bloom, 0, sizeof(r->bloom));
	if (!++r->break_generation)
		r->break_generation = 1;
	for (size_t i = 0; i < r->nbreaks; i++) {
		uint64_t bit = r->breaks[i].addr % BLOOM_BITS;
		r->bloom[bit / 64] |= 1ULL << bit % 64;
	}
}

int replay_break_add(struct replay *r, uint64_t addr)
{
	for (size_t i = 0; i < r->nbreaks; i++) {
		if (r->breaks[i].addr == addr) {
			r->breaks[i].count++;
			return 0;
		}
	}
	if (r->nbreaks == r->breaks_cap) {
		size_t cap = r->breaks_cap * 2 + 8;
		struct replay_break *b = realloc(r->breaks, cap * sizeof(*b));
		if (!b)
			return -1;
		r->breaks = b;
		r->breaks_cap = cap;
	}
	r->breaks[r->nbreaks++] = (struct replay_break){ .addr = addr, .count = 1 };
	bloom_make(r);
	return 0;
}

int replay_break_del(struct replay *r, uint64_t addr)
{
	for (size_t i = 0; i < r->nbreaks; i++) {
		if (r->breaks[i].addr != addr)
			continue;
		if (--r->breaks[i].count == 0) {
			r->breaks[i] = r->breaks[--r->nbreaks];
			bloom_make(r);
		}
		return 0;
	}
	return -1;
}

int replay_watch_add(struct replay *r, uint64_t addr, uint64_t len, unsigned kind)
{
	struct replay_watch *w;

	if (!len || addr + len - 1 < addr || !(kind & REPLAY_WATCH_ACCESS))
		return -1;
	w = realloc(r->watches, (r->nwatches + 1) * sizeof(*w));
	if (!w)
		return -1;
	r->watches = w;
	w[r->nwatches] = (struct replay_watch){
		.id = r->next_watch, .addr = addr, .len = len, .kind = kind
	};
	for (size_t i = 0; i < r->nthreads; i++)
		if (r->threads[i].mv &&
		    rp_memview_watch_add(r->threads[i].mv, r->next_watch, addr, len, kind))
			return -1;
	r->nwatches++;
	r->watched_good = false;
	return r->next_watch++;
}

void replay_watch_del(struct replay *r, int id)
{
	for (size_t i = 0; i < r->nwatches; i++) {
		if (r->watches[i].id == id) {
			rp_watched_free(&r->watches[i]);
			r->watches[i] = r->watches[--r->nwatches];
			break;
		}
	}
	for (size_t i = 0; i < r->nthreads; i++)
		if (r->threads[i].mv)
			rp_memview_watch_del(r->threads[i].mv, id);
}

void replay_catch_syscalls(struct replay *r, bool on, const uint64_t *numbers, size_t n)
{
	free(r->catch);
	r->catch = NULL;
	r->ncatch = 0;
	r->catching = on;
	if (!on || !n)
		return;
	r->catch = malloc(n * sizeof(*r->catch));
	if (!r->catch)
		return; /* more is caught than asked for */
	memcpy(r->catch, numbers, n * sizeof(*r->catch));
	r->ncatch = n;
}

void replay_report_signals(struct replay *r, uint64_t mask)
{
	r->signals = mask;
}

void replay_set_condition(struct replay *r, replay_holds_fn *holds, void *ctx)
{
	r->holds = holds;
	r->holds_ctx = ctx;
}

void replay_interrupt(struct replay *r)
{
	atomic_store(&r->interrupt, true);
}

void replay_set_poll(struct replay *r, bool (*poll)(void *), void *ctx)
{
	r->poll = poll;
	r->poll_ctx = ctx;
}

void replay_observe(struct replay *r, const struct replay_observer *o)
{
	r->observer = o ? *o : (struct replay_observer){ 0 };
	for (size_t i = 0; i < r->nthreads; i++)
		if (r->threads[i].th)
			rp_thread_observe(r->threads[i].th, &r->observer);
}

bool replay_interrupted(struct replay *r)
{
	if (atomic_exchange(&r->interrupt, false))
		return true;
	return r->poll && r->poll(r->poll_ctx);
}

/* ---- state ------------------------------------------------------------------------------ */

void replay_regs(struct replay *r, struct dj_regs *regs)
{
	emu_get_regs(r->th->e, regs);
}

uint64_t replay_gpr(const struct replay *r, unsigned reg)
{
	DJ_ASSERT(reg < 16, "there are sixteen");
	return r->th->e->cpu.gpr[reg];
}

size_t replay_read(struct replay *r, uint64_t addr, void *buf, size_t len)
{
	bool sharing = rp_sharing(r);
	size_t done = 0;

	if (r->asking)
		return sharing ? 0 : rp_memview_read(r->mv, addr, buf, len);

	while (done < len) {
		uint8_t *to = (uint8_t *)buf + done;
		size_t n = sharing ? rp_shared_read(r, addr + done, to, len - done)
				   : rp_memview_read(r->mv, addr + done, to, len - done);
		done += n;
		if (done == len || !rp_space_find(r->th->space, addr + done))
			break;
		n = rp_lookahead_read(r, addr + done, (uint8_t *)buf + done, len - done);
		if (!n)
			break;
		done += n;
	}
	return done;
}

bool replay_siginfo(struct replay *r, uint8_t out[128])
{
	const struct dj_record *rec = rp_thread_signal_here(r->th);

	if (!rec)
		return false;
	memcpy(out, rec->siginfo, 128);
	return true;
}

static struct replay_mapping mapping_of(const struct dj_mapping *m)
{
	return (struct replay_mapping){ .start = m->start,
					.end = m->end,
					.offset = m->offset,
					.prot = m->prot,
					.flags = m->flags,
					.module = m->module,
					.name = m->name };
}

bool replay_mapping_at(struct replay *r, uint64_t addr, struct replay_mapping *out)
{
	const struct dj_mapping *m = rp_space_find(r->th->space, addr);

	if (m)
		*out = mapping_of(m);
	return m != NULL;
}

size_t replay_mappings(struct replay *r, const struct replay_mapping **maps)
{
	const struct dj_mappings *all = &r->th->space->maps;
	size_t n = dj_mappings_count(all), i = 0;

	*maps = r->maps;
	if (n > r->maps_cap) {
		struct replay_mapping *m = realloc(r->maps, n * sizeof(*m));
		if (!m)
			return 0;
		r->maps = m;
		r->maps_cap = n;
	}
	for (const struct dj_mapping *m = dj_mappings_after(all, 0, 0); m;
	     m = dj_mappings_after(all, m->end, 0))
		r->maps[i++] = mapping_of(m);
	*maps = r->maps;
	return n;
}
