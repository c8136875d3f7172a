/* What listeners of a pass are told, and what they may ask (replayer/pass.h). */
#include "replayer/pass-internal.h"

#include <inttypes.h>
#include <stdio.h>

/* Each listener that wants this thread and has the function. */
#define EACH(run, l, function)                                                                     \
	for (size_t i_ = 0; i_ < (run)->pass->asked->n; i_++)                                      \
		for (const struct replay_listener *l = (run)->pass->asked->listeners[i_];          \
		     l && l->function && hears(run, i_); l = NULL)
#define DATA(run) ((run)->data[i_])

#define SEEN_AT_ONCE 64u

/* Whether the listener wants to hear of the thread; then it is the one that is told now. */
static inline bool hears(struct replay_run *run, size_t listener)
{
	run->hearing = listener;
	return run->data[listener] && !(run->has_all >> (listener & 63) & 1);
}

static struct replay_run *run_of(void *th)
{
	return ((struct rp_thread *)th)->hearer->ctx;
}

/* ---- from the emulator ---- */

static void edge(void *ctx, const struct replay_edge *edge)
{
	struct replay_run *run = ctx;

	EACH(run, l, edge)
	if (l->kinds & edge->kind)
		l->edge(DATA(run), run, edge);
}

static void see(void *ctx, struct emu *e, const struct emu_edge *seen)
{
	struct replay_run *run = run_of(ctx);

	(void)e;
	edge(run, &(struct replay_edge){ .thread = run->thread,
					 .kind = seen->kind,
					 .from = seen->from,
					 .to = seen->to,
					 .steps = seen->steps,
					 .sp = seen->sp });
}

/* Many at once, which is for listeners that hear of most calls and returns: told one by one, they
 * would spend half their time between functions. */
static void see_all(void *ctx, struct emu *e, const struct emu_edge *seen, size_t n)
{
	struct replay_run *run = run_of(ctx);
	struct replay_edge edges[SEEN_AT_ONCE];

	(void)e;
	for (size_t k; n; seen += k, n -= k) {
		k = n < SEEN_AT_ONCE ? n : SEEN_AT_ONCE;
		for (size_t i = 0; i < k; i++)
			edges[i] = (struct replay_edge){ .thread = run->thread,
							 .kind = seen[i].kind,
							 .from = seen[i].from,
							 .to = seen[i].to,
							 .steps = seen[i].steps,
							 .sp = seen[i].sp };
		EACH(run, l, edge)
		{
			if (l->edges)
				l->edges(DATA(run), run, edges, k);
			for (size_t i = 0; i < k && !l->edges; i++)
				if (l->kinds & edges[i].kind)
					l->edge(DATA(run), run, &edges[i]);
		}
	}
}

static unsigned wants(void *ctx, struct emu *e, const struct insn *in)
{
	struct replay_run *run = run_of(ctx);
	unsigned wanted = 0;

	(void)e;
	EACH(run, l, begin)
	{
		if (l->wants)
			wanted |= l->wants(DATA(run), run, in);
		else if (l->edge)
			wanted |= REPLAY_WANT_EDGE;
	}
	return wanted;
}

static void point(void *ctx, struct emu *e, const struct insn *in)
{
	struct replay_run *run = run_of(ctx);

	(void)e;
	EACH(run, l, point)
	l->point(DATA(run), run, in);
}

static void tell_rep(struct replay_run *run, const struct replay_rep *rep)
{
	EACH(run, l, rep)
	l->rep(DATA(run), run, rep);
}

static void rep(void *ctx, struct emu *e, const struct emu_rep *rep)
{
	(void)e;
	tell_rep(run_of(ctx), &(struct replay_rep){ .insn = rep->insn,
						    .asked = rep->asked,
						    .done = rep->done,
						    .steps = rep->steps });
}

static void tell_count(struct replay_run *run, const struct insn *in, uint64_t count)
{
	struct replay_count c = { .insn = in, .count = count };

	replay_run_code(run, in->addr, &c.code);
	EACH(run, l, count)
	l->count(DATA(run), run, &c);
}

static void counts(void *ctx, struct emu *e, const struct emu_counts *c)
{
	(void)e;
	for (unsigned i = 0; i < c->n; i++) {
		uint64_t n = c->whole + (c->more ? c->more[i] : 0);
		if (n)
			tell_count(run_of(ctx), c->uops[i].insn, n);
	}
}

static void branched(void *ctx, struct emu *e, const struct insn *in, uint64_t to, uint64_t count)
{
	struct replay_run *run = run_of(ctx);
	struct replay_branch b = { .insn = in, .to = to, .count = count };

	(void)e;
	replay_run_code(run, in->addr, &b.code);
	replay_run_code(run, to, &b.target);
	EACH(run, l, branch)
	l->branch(DATA(run), run, &b);
}

static void access(void *ctx, uint64_t addr, unsigned size, bool write, const uint8_t *bytes)
{
	struct replay_run *run = ctx;
	struct replay_access a = { .addr = addr, .size = size, .write = write, .bytes = bytes };

	EACH(run, l, access)
	l->access(DATA(run), run, &a);
}

/* ---- from the records ---- */

static void tell_event(struct replay_run *run, const struct replay_event *ev)
{
	EACH(run, l, event)
	l->event(DATA(run), run, ev);
}

/* The instruction at rip is done by a record, not by the emulator. */
static void count_here(struct replay_run *run)
{
	struct insn in;

	if (run->th->e->observer.counts && emu_peek(run->th->e, &in))
		tell_count(run, &in, 1);
}

static void interrupted(struct replay_run *run)
{
	struct emu *e = run->th->e;
	struct insn in;

	if (!e->in_rep || !emu_peek(e, &in))
		return;
	uint64_t left = in.addr32 ? (uint32_t)e->cpu.gpr[DJ_RCX] : e->cpu.gpr[DJ_RCX];
	tell_rep(run, &(struct replay_rep){ .insn = &in,
					    .asked = left + e->rep_iter,
					    .done = e->rep_iter,
					    .steps = e->steps,
					    .interrupted = true });
}

static void record(void *ctx, const struct dj_record *r)
{
	struct replay_run *run = ctx;
	const uint64_t *gpr = run->th->e->cpu.gpr;
	struct replay_event ev = { 0 };

	switch (r->kind) {
	case DJ_REC_SYSCALL:
		count_here(run);
		ev = (struct replay_event){
			.kind = REPLAY_EV_SYSCALL,
			.number = gpr[DJ_RAX],
			.result = r->result,
			.args = { gpr[DJ_RDI], gpr[DJ_RSI], gpr[DJ_RDX], gpr[DJ_R10], gpr[DJ_R8],
				  gpr[DJ_R9] },
		};
		break;
	case DJ_REC_EFFECTS:
		count_here(run);
		ev.kind = REPLAY_EV_NATIVE;
		break;
	case DJ_REC_SIGNAL:
		if (r->mask)
			interrupted(run);
		ev = (struct replay_event){ .kind = REPLAY_EV_SIGNAL,
					    .number = r->signo,
					    .handled = r->mask != 0 };
		break;
	case DJ_REC_REGS:
		if (!(r->mask & DJ_REG_RIP) || r->steps == run->th->info->first_steps)
			return;
		ev.kind = REPLAY_EV_REGS;
		break;
	case DJ_REC_EXEC:
		ev.kind = REPLAY_EV_EXEC;
		break;
	case DJ_REC_CHILD:
		ev = (struct replay_event){ .kind = REPLAY_EV_CHILD, .number = (uint64_t)r->pid };
		break;
	case DJ_REC_EXIT:
		ev = (struct replay_event){ .kind = REPLAY_EV_EXIT, .number = (uint64_t)r->status };
		break;
	default:
		return;
	}
	tell_event(run, &ev);
}

/* ---- beginning and ending ---- */

#define NO_RETURNS ((uint64_t)INT64_MAX)
#define WATCHED	   65536u /* bytes: of more than that, the emulator had better tell all */

/* Where all the accesses lie that are wanted. */
static void watch(struct replay_run *run)
{
	uint64_t lo = UINT64_MAX, hi = 0, first, last;
	struct emu *e = run->th->e;

	EACH(run, l, access)
	if (!l->within) {
		lo = 0;
		hi = UINT64_MAX;
	} else if (l->within(DATA(run), run, &first, &last)) {
		lo = first < lo ? first : lo;
		hi = last > hi ? last : hi;
	}
	e->watch_lo = lo <= hi ? lo : 0;
	e->watch_size = lo <= hi ? hi - lo + 1 : 1;
	if (hi - lo >= WATCHED && lo <= hi)
		e->watch_size = 0;
}

void rp_pass_listen(struct replay_run *run)
{
	struct rp_thread *th = run->th;
	struct emu_observer o = {
		.wants = wants, .others = run->pass->tells, .late = true, .returns = true
	};
	unsigned kinds = 0, any = 0;

	_Static_assert((int)REPLAY_WANT_EDGE == (int)EMU_WANT_EDGE &&
			       (int)REPLAY_WANT_POINT == (int)EMU_WANT_POINT &&
			       (int)REPLAY_WANT_REP == (int)EMU_WANT_REP,
		       "what is wanted of instructions is the emulator's");
	th->e->returns_above = NO_RETURNS;
	pthread_mutex_lock(&run->pass->ends);
	for (size_t i = 0; i < run->pass->asked->n; i++) {
		const struct replay_listener *l = run->pass->asked->listeners[i];
		run->hearing = i;
		run->data[i] = l->begin(l->ctx, run);
		any += run->data[i] != NULL;
	}
	pthread_mutex_unlock(&run->pass->ends);
	if (!any) {
		run->enough = true;
		return;
	}
	run->hearer = (struct rp_hearer){ .ctx = run, .record = record };
	EACH(run, l, edge)
	{
		kinds |= l->kinds;
		o.see = see;
		o.see_all = see_all;
		o.late &= l->late;
		o.returns &= l->returns;
	}
	EACH(run, l, point)
	o.point = point;
	EACH(run, l, rep)
	o.rep = rep;
	EACH(run, l, count)
	o.counts = counts;
	EACH(run, l, branch)
	{
		o.counts = counts;
		o.branched = branched;
	}
	EACH(run, l, access)
	run->hearer.access = access;
	o.kinds = kinds & EMU_SEE_ALL;
	th->observer = (struct replay_observer){ .kinds = kinds, .ctx = run, .see = edge };
	th->hearer = &run->hearer;
	if (run->hearer.access) {
		th->e->hooks |= EMU_HOOK_TRACK;
		watch(run);
	}
	emu_observe(th->e, &o);
}

void rp_pass_unlisten(struct replay_run *run)
{
	struct rp_thread *th = run->th;

	if (th->hearer)
		emu_observe(th->e, NULL); /* which tells all counts */
	run->has_all = 0;
	pthread_mutex_lock(&run->pass->ends);
	EACH(run, l, end)
	l->end(l->ctx, run, DATA(run));
	pthread_mutex_unlock(&run->pass->ends);
	th->e->hooks &= ~(unsigned)EMU_HOOK_TRACK;
	th->observer = (struct replay_observer){ 0 };
	th->hearer = NULL;
}

/* ---- what a listener may ask ---- */

uint32_t replay_run_thread(const struct replay_run *run)
{
	return run->thread;
}

const struct dj_thread_info *replay_run_info(const struct replay_run *run)
{
	return run->th->info;
}

struct dj_trace *replay_run_trace(const struct replay_run *run)
{
	return run->pass->t;
}

void replay_run_pos(const struct replay_run *run, struct replay_pos *pos)
{
	struct rp_thread *th = run->th;
	struct emu *e = th->e;
	struct rp_thread_pos at;
	struct emu_now now;

	emu_now(e, &now);
	const struct emu_now was = { e->cpu.rip, e->steps, e->fences, e->fence_steps };
	rp_thread_pos(th, &at);
	*pos = (struct replay_pos){ .thread = run->thread,
				    .steps = now.steps,
				    .signals = now.steps == th->event_steps ? at.signals : 0,
				    .rep = now.steps == was.steps ? at.rep : 0 };
	/* numbers are told of a thread by where its emulator is */
	e->steps = now.steps;
	e->fences = now.fences;
	e->fence_steps = now.fence_steps;
	rp_thread_seq(th, &pos->seq, &pos->within);
	e->steps = was.steps;
	e->fences = was.fences;
	e->fence_steps = was.fence_steps;
}

uint64_t replay_run_steps(const struct replay_run *run)
{
	struct emu_now now;

	emu_now(run->th->e, &now);
	return now.steps;
}

uint64_t replay_run_rip(const struct replay_run *run)
{
	struct emu_now now;

	emu_now(run->th->e, &now);
	return now.rip;
}

uint64_t replay_run_gpr(const struct replay_run *run, unsigned reg)
{
	return run->th->e->cpu.gpr[reg & 15];
}

void replay_run_regs(const struct replay_run *run, struct dj_regs *regs)
{
	emu_get_regs(run->th->e, regs);
	regs->rip = replay_run_rip(run);
}

void replay_run_peek(const struct replay_run *run, uint64_t addr, void *buf, size_t len)
{
	uint8_t *out = buf;

	while (len) { /* an address is one modulo 2^32 */
		uint64_t left = (1ULL << 32) - (uint32_t)addr;
		size_t n = len < left ? len : (size_t)left;
		memcpy(out, run->th->e->shadow + (uint32_t)addr, n);
		out += n;
		addr += n;
		len -= n;
	}
}

void replay_run_code(const struct replay_run *run, uint64_t addr, struct replay_code *code)
{
	const struct dj_mapping *m = rp_space_find(run->th->space, addr);

	if (m && m->module >= 0)
		*code = (struct replay_code){ .module = m->module,
					      .offset = addr - m->start + m->offset };
	else
		*code = (struct replay_code){ .module = -1,
					      .process = (uint32_t)run->th->info->process,
					      .offset = addr };
}

bool replay_run_mapping(const struct replay_run *run, uint64_t addr, struct replay_mapping *out)
{
	const struct dj_mapping *m = rp_space_find(run->th->space, addr);

	if (!m)
		return false;
	*out = (struct replay_mapping){ .start = m->start,
					.end = m->end,
					.offset = m->offset,
					.prot = m->prot,
					.flags = m->flags,
					.module = m->module,
					.name = m->name ? m->name : "" };
	return true;
}

size_t replay_run_fetch(struct replay_run *run, uint64_t addr, uint8_t *buf, size_t len)
{
	return rp_thread_fetch(run->th, addr, buf, len);
}

void replay_run_lock(struct replay_run *run)
{
	pthread_mutex_lock(&run->pass->shared);
}

void replay_run_unlock(struct replay_run *run)
{
	pthread_mutex_unlock(&run->pass->shared);
}

void replay_run_returns(struct replay_run *run, uint64_t above)
{
	run->th->e->returns_above = above < NO_RETURNS ? above : NO_RETURNS;
}

static void stop(struct replay_run *run)
{
	run->enough = true;
	run->th->e->stop_requested = true;
}

void replay_run_stop(struct replay_run *run)
{
	size_t n = run->pass->asked->n;

	if (n > 1)
		run->has_all |= 1ULL << (run->hearing & 63);
	for (size_t i = 0; n > 1 && i < n; i++)
		if (run->data[i] && !(run->has_all >> (i & 63) & 1))
			return;
	stop(run);
}

void replay_run_fail(struct replay_run *run, const char *fmt, ...)
{
	va_list ap;

	if (!run->failed) {
		va_start(ap, fmt);
		vsnprintf(run->err.text, sizeof(run->err.text), fmt, ap);
		va_end(ap);
		run->err.exit_status = 1;
		run->failed = true;
	}
	pthread_mutex_lock(&run->pass->lock);
	run->pass->stop = true;
	pthread_mutex_unlock(&run->pass->lock);
	stop(run);
}

void replay_pass_text(struct dj_trace *t, const struct replay_pos *pos, char *buf, size_t size)
{
	char rep[24] = "", tid[16] = "";

	if (pos->rep)
		snprintf(rep, sizeof(rep), "+%" PRIu64, pos->rep);
	if (dj_trace_threads(t) > 1)
		snprintf(tid, sizeof(tid), "@%" PRId32, dj_trace_thread(t, pos->thread)->tid);
	snprintf(buf, size, "%" PRIu64 ":%" PRIu64 "%s%s", pos->seq, pos->within, rep, tid);
}
