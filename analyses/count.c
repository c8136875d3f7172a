/*
 * deja count: counters on what a user names.
 *
 * What is executed in ranges of code comes from the emulator's counts, at no cost. Accesses to data
 * are told one by one. With marks that start and stop counting, or a threshold, the instructions
 * that count are told one by one, too.
 */
#include "analyses/analysis.h"
#include "analyses/callstack.h"
#include "analyses/count.h"
#include "analyses/tally.h"
#include "analyses/variable.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- types of instructions ---- */

static const struct {
	const char *name;
	unsigned bit;
} types[] = {
	{ "branches", COUNT_BRANCHES },	  { "calls", COUNT_CALLS },   { "returns", COUNT_RETURNS },
	{ "strings", COUNT_STRINGS },	  { "memory", COUNT_MEMORY }, { "vector", COUNT_VECTOR },
	{ "unaligned", COUNT_UNALIGNED },
};

static unsigned types_of(const struct insn *in)
{
	return (in->attr & INSN_A_BRANCH ? COUNT_BRANCHES : 0) |
	       (in->attr & INSN_A_CALL ? COUNT_CALLS : 0) |
	       (in->attr & INSN_A_RET ? COUNT_RETURNS : 0) |
	       (in->attr & INSN_A_STRING ? COUNT_STRINGS : 0) |
	       (in->mem_access || in->attr & (INSN_A_STACK | INSN_A_STRING | INSN_A_XSTATE)
			? COUNT_MEMORY
			: 0) |
	       (in->attr & (INSN_A_VEC | INSN_A_MMX) ? COUNT_VECTOR : 0);
}

/* ---- a thread ---- */

struct thread {
	struct count *o;
	struct ana_tally item, into;  /* COUNT_... */
	uint64_t data[COUNT_DATA][2]; /* reads, writes */
	uint32_t process;
	struct ana_stack *stack;
	bool on;
	uint64_t since; /* instructions, when it was switched on */
	uint64_t whole; /* executed while it was on */
	uint64_t times; /* it was switched on */
	uint64_t since_report, reports;
	struct count_report *report, **last_report;
};

static void *begin(void *ctx, struct replay_run *run)
{
	struct count *o = ctx;
	struct thread *t = calloc(1, sizeof(*t));

	if (t && o->threshold)
		t->stack = ana_stack_new(&o->rules, run, NULL);
	if (!t || (o->threshold && !t->stack)) {
		replay_run_fail(run, "out of memory");
		free(t);
		return NULL;
	}
	t->last_report = &t->report;
	t->o = o;
	t->process = replay_run_info(run)->process;
	t->on = !o->start.n;
	t->since = replay_run_steps(run);
	return t;
}

static bool chosen(const struct count *o, const struct replay_code *code, const struct insn *in)
{
	if (o->types && !(types_of(in) & o->types) && !(o->types & COUNT_UNALIGNED))
		return false;
	if (o->threshold && o->n_data && !o->code.n) /* of accesses */
		return false;
	return !o->code.n || ana_ranges_have(&o->code, code, in->addr);
}

static unsigned wants(void *data, struct replay_run *run, const struct insn *in)
{
	struct thread *t = data;
	struct count *o = t->o;
	struct replay_code code;
	unsigned w = t->stack ? ana_stack_wants(t->stack, run, in) : 0;

	replay_run_code(run, in->addr, &code);
	if (ana_ranges_have(&o->start, &code, in->addr) ||
	    ana_ranges_have(&o->stop, &code, in->addr) || chosen(o, &code, in))
		w |= REPLAY_WANT_POINT;
	return w;
}

static void edge(void *data, struct replay_run *run, const struct replay_edge *e)
{
	ana_stack_edge(((struct thread *)data)->stack, run, e);
}

static void event(void *data, struct replay_run *run, const struct replay_event *ev)
{
	ana_stack_event(((struct thread *)data)->stack, run, ev);
}

static bool word_has(const struct count *o, size_t w, const struct replay_code *code, uint64_t addr)
{
	return ana_ranges_have(&o->code_of[w], code, addr);
}

/* The item of an instruction, which is at `addr` now. */
static struct ana_item *item_at(struct thread *t, const struct replay_code *code, uint64_t addr)
{
	struct replay_code words = { 0 };

	for (size_t w = 0; w < t->o->n_word[W_CODE]; w++)
		words.offset |= (uint64_t)word_has(t->o, w, code, addr) << w;
	return ana_tally_at(&t->item, code, &words);
}

static void count(void *data, struct replay_run *run, const struct replay_count *c)
{
	struct thread *t = data;

	(void)run;
	struct ana_item *it = item_at(t, &c->code, c->insn->addr);
	if (!it)
		return;
	it->n[COUNT_EXECUTED] += c->count;
	it->user |= types_of(c->insn);
}

static void branch(void *data, struct replay_run *run, const struct replay_branch *b)
{
	struct thread *t = data;

	(void)run;
	for (size_t w = 0; w < t->o->n_word[W_CODE]; w++) {
		const struct replay_code word = { .offset = w };
		if (!word_has(t->o, w, &b->target, b->to))
			continue;
		struct ana_item *it = ana_tally_at(&t->into, &b->target, &word);
		if (!it)
			continue;
		it->n[COUNT_BRANCHED] += b->count;
		if (!word_has(t->o, w, &b->code, b->insn->addr))
			it->n[COUNT_FROM_OUTSIDE] += b->count;
	}
}

/* ---- one by one ---- */

/* A counter has passed the threshold: where, and the stack. */
static void report(struct thread *t, struct replay_run *run, const struct replay_code *code)
{
	const struct ana_call *frames;
	size_t n = ana_stack_frames(t->stack, &frames), used = 0;
	struct count_report *r;

	t->since_report = 0;
	t->reports++;
	if (t->reports > COUNT_REPORTS)
		return;
	r = calloc(1, sizeof(*r));
	if (!r) {
		replay_run_fail(run, "out of memory");
		return;
	}
	replay_run_pos(run, &r->pos);
	r->code[used++] = *code;
	while (n && used < COUNT_FRAMES)
		replay_run_code(run, frames[--n].from, &r->code[used++]);
	r->n = used;
	r->more = n;
	*t->last_report = r;
	t->last_report = &r->next;
}

static void note(struct thread *t, struct replay_run *run, const struct insn *in,
		 const struct replay_code *code)
{
	struct ana_item *it = item_at(t, code, in->addr);

	if (!it)
		return;
	it->n[COUNT_EXECUTED]++;
	it->user |= types_of(in);
	if (t->o->threshold && ++t->since_report == t->o->threshold)
		report(t, run, code);
}

static void point(void *data, struct replay_run *run, const struct insn *in)
{
	struct thread *t = data;
	struct count *o = t->o;
	struct replay_code code;

	if (t->stack)
		ana_stack_point(t->stack, run, in);
	replay_run_code(run, in->addr, &code);
	if (!t->on && ana_ranges_have(&o->start, &code, in->addr)) {
		t->on = true;
		t->times++;
		t->since = replay_run_steps(run);
	} else if (t->on && ana_ranges_have(&o->stop, &code, in->addr)) {
		t->on = false;
		t->whole += replay_run_steps(run) - t->since;
	}
	if (t->on && chosen(o, &code, in) && !(o->types & COUNT_UNALIGNED))
		note(t, run, in, &code);
}

static void access(void *data, struct replay_run *run, const struct replay_access *a)
{
	struct thread *t = data;
	struct count *o = t->o;
	uint64_t first, length;

	if (!t->on)
		return;
	struct replay_code code;
	for (size_t i = 0; i < o->n_data; i++) {
		if (!ana_place_ranges_have(&o->data[i], t->process, a->addr, a->size, &first,
					   &length))
			continue;
		t->data[i][a->write]++;
		if (!o->threshold || o->code.n || ++t->since_report < o->threshold)
			continue;
		replay_run_code(run, replay_run_rip(run), &code);
		report(t, run, &code);
	}
	if (!(o->types & COUNT_UNALIGNED) || a->size < 2 || a->size & (a->size - 1) ||
	    !(a->addr & (a->size - 1)))
		return;
	replay_run_code(run, replay_run_rip(run), &code);
	if (o->code.n && !ana_ranges_have(&o->code, &code, replay_run_rip(run)))
		return;
	struct ana_item *it = item_at(t, &code, replay_run_rip(run));
	if (it)
		it->n[COUNT_EXECUTED]++;
}

/* Where the accesses to chosen data lie. */
static bool within(void *data, struct replay_run *run, uint64_t *first, uint64_t *last)
{
	const struct thread *t = data;
	uint64_t lo, hi;

	(void)run;
	*first = UINT64_MAX;
	*last = 0;
	for (size_t i = 0; i < t->o->n_data; i++)
		if (ana_place_ranges_all(&t->o->data[i], t->process, &lo, &hi)) {
			*first = lo < *first ? lo : *first;
			*last = hi > *last ? hi : *last;
		}
	return *first <= *last;
}

static void end(void *ctx, struct replay_run *run, void *data)
{
	struct count *o = ctx;
	struct thread *t = data;

	if (t->on)
		t->whole += replay_run_steps(run) - t->since;
	o->whole += t->whole;
	o->times += t->times;
	o->reports += t->reports;
	for (size_t i = 0; i < o->n_data; i++) {
		o->accesses[i][0] += t->data[i][0];
		o->accesses[i][1] += t->data[i][1];
	}
	while (t->report) {
		struct count_report *r = t->report;
		t->report = r->next;
		ana_count_add_report(o, r);
	}
	ana_tally_add(&o->item, &t->item);
	ana_tally_add(&o->into, &t->into);
	ana_stack_free(t->stack);
	free(t);
}

/* ---- the command ---- */

static int listen(struct count *o, struct ana_job *job, struct dj_error *err)
{
	bool one_by_one = o->start.n || o->threshold;
	const struct replay_listener *listeners[] = { &o->listener };

	o->listener = (struct replay_listener){ .ctx = o, .begin = begin, .end = end };
	if (one_by_one) {
		o->listener.wants = wants;
		o->listener.point = point;
	} else if (!(o->types & COUNT_UNALIGNED)) {
		o->listener.count = count;
		o->listener.branch = branch;
		o->listener.translated = true;
		o->listener.within = within;
	}
	if (o->threshold) {
		o->listener.kinds = ANA_STACK_KINDS;
		o->listener.edge = edge;
		o->listener.event = event;
	}
	if (o->n_data || o->types & COUNT_UNALIGNED)
		o->listener.access = access;
	if (ana_pass(job, listeners, 1, err))
		return -1;
	ana_tally_sort(&o->item);
	ana_tally_sort(&o->into);
	return o->item.failed || o->into.failed ? dj_fail(err, 1, "out of memory") : 0;
}

static int run(void *state, struct ana_job *job, struct dj_error *err)
{
	struct count *o = state;

	o->job = job;
	o->rules = (struct ana_stack_rules){ .functions = job->functions };
	if (o->callers)
		return ana_count_callers(o, err);
	if (o->n_word[W_STOP] && !o->n_word[W_START])
		return dj_fail(err, 1, "--stop needs a --start");
	for (size_t i = 0; i < o->n_word[W_CODE]; i++)
		if (ana_ranges_add(job, &o->code, o->word[W_CODE][i], err) ||
		    ana_ranges_add(job, &o->code_of[i], o->word[W_CODE][i], err))
			return -1;
	for (size_t i = 0; i < o->n_word[W_START]; i++)
		if (ana_ranges_add(job, &o->start, o->word[W_START][i], err))
			return -1;
	for (size_t i = 0; i < o->n_word[W_STOP]; i++)
		if (ana_ranges_add(job, &o->stop, o->word[W_STOP][i], err))
			return -1;
	for (size_t i = 0; i < o->n_word[W_DATA]; i++, o->n_data++) {
		int n = ana_place_ranges_add(job, &o->data[i], o->word[W_DATA][i], err);
		if (!n)
			return dj_fail(err, 1, "the modules in the recording have no variable '%s'",
				       o->word[W_DATA][i]);
		if (n < 0)
			return -1;
	}
	/* a function as a mark is its first instruction */
	for (size_t i = 0; i < o->start.n; i++)
		o->start.r[i].size = 0;
	for (size_t i = 0; i < o->stop.n; i++)
		o->stop.r[i].size = 0;
	if (listen(o, job, err))
		return -1;
	if (!o->limit && !job->out.json)
		o->limit = 40;
	return ana_count_print(o) ? dj_fail(err, 1, "out of memory") : 0;
}

enum {
	OPT_CODE,
	OPT_DATA,
	OPT_START,
	OPT_STOP,
	OPT_TYPE,
	OPT_THRESHOLD,
	OPT_CALLERS,
	OPT_BY,
	OPT_HOT,
	OPT_LIMIT
};

static int take_type(struct count *o, const char *arg, struct dj_error *err)
{
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (!strcmp(arg, types[i].name)) {
			o->types |= types[i].bit;
			return 0;
		}
	return dj_fail(err, 1,
		       "--type takes branches, calls, returns, strings, memory, vector or "
		       "unaligned, not %s",
		       arg);
}

static int take_by(struct count *o, const char *arg, struct dj_error *err)
{
	o->by = arg;
	if (!strcmp(arg, "page") || !strcmp(arg, "function") || !strcmp(arg, "module") ||
	    !strcmp(arg, "instruction"))
		return 0;
	return dj_fail(err, 1, "--by takes page, function, module or instruction, not %s", arg);
}

static int option(void *state, unsigned which, const char *arg, struct dj_error *err)
{
	struct count *o = state;

	switch (which) {
	case OPT_TYPE:
		return take_type(o, arg, err);
	case OPT_BY:
		return take_by(o, arg, err);
	case OPT_THRESHOLD:
		return ana_number("threshold", arg, 1, &o->threshold, err);
	case OPT_LIMIT:
		return ana_number("limit", arg, 1, &o->limit, err);
	case OPT_HOT:
		if (ana_number("hot", arg, 1, &o->hot, err) || o->hot > 100)
			return dj_fail(err, 1, "--hot takes per cent, not %s", arg);
		return 0;
	case OPT_CALLERS:
		o->callers = arg;
		return 0;
	default: {
		unsigned w = which - OPT_CODE + W_CODE;
		if (o->n_word[w] == COUNT_DATA)
			return dj_fail(err, 1, "more than %u of an option", COUNT_DATA);
		o->word[w][o->n_word[w]++] = arg;
		return 0;
	}
	}
}

const struct ana_analysis ana_count = {
	.name = "count",
	.args = "[OPTIONS] [FILE]",
	.help = "count executions, accesses, callers",
	.usage =
		"Usage: deja count [OPTIONS] [FILE]\n"
		"Count instructions and accesses.\n"
		"\n"
		"      --code RANGE     in a function, MODULE, ADDRESS-ADDRESS, or at "
		"FUNCTION+OFFSET:\n"
		"                       instructions executed, times entered (may be given again)\n"
		"      --data PLACE     accesses to a variable or ADDRESS:LENGTH (may be given "
		"again)\n"
		"      --type TYPE      branches, calls, returns, strings, memory, vector or\n"
		"                       unaligned accesses only\n"
		"      --by WHAT        by page, function, module or instruction\n"
		"      --hot PERCENT    functions that have at least that share\n"
		"      --callers F      who called F, and whom they were called by, and so on\n"
		"      --start PLACE    begin where PLACE is executed, in that thread\n"
		"      --stop PLACE     end there\n"
		"      --threshold N    at every N-th report the position and the call stack\n"
		"      --limit N        so many rows (40)\n",
	.options = { [OPT_CODE] = { "code", true },
		     [OPT_DATA] = { "data", true },
		     [OPT_START] = { "start", true },
		     [OPT_STOP] = { "stop", true },
		     [OPT_TYPE] = { "type", true },
		     [OPT_THRESHOLD] = { "threshold", true },
		     [OPT_CALLERS] = { "callers", true },
		     [OPT_BY] = { "by", true },
		     [OPT_HOT] = { "hot", true },
		     [OPT_LIMIT] = { "limit", true } },
	.translated = true,
	.size = sizeof(struct count),
	.option = option,
	.run = run,
};
