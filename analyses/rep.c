/*
 * deja rep: REP instructions, each with how often it was executed, how many iterations it was asked
 * for and did, and how often it ended early: by its condition (REPE, REPNE) or for a signal. After
 * a signal's handler the rest is an occurrence of its own, as it is for the processor. Or each
 * occurrence as a record, beside taken branches (rep-log.c); or where the N-th one was.
 */
#include "analyses/rep.h"
#include "analyses/log.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A REP instruction. */
struct place {
	struct replay_code code;
	struct insn insn;
	uint64_t occurrences, asked, done, condition, interrupted;
	struct place *next;
};

#define HASH	   1024
#define BUFFER	   65536u
#define BUFFER_MAX (1u << 24)

struct places {
	struct place *hash[HASH];
	size_t n;
};

/* Where a thread had come to as many occurrences as were waited for. */
struct reached {
	struct replay_pos pos;
	struct replay_code code;
	uint64_t address;
};

struct rep {
	struct places all;
	bool failed;
	struct replay_listener listener;
	const char *word[16]; /* --at */
	size_t words;
	struct ana_ranges chosen;
	uint64_t after;
	bool stop;
	struct ana_log reached;
	struct rep_log log;
};

struct thread {
	struct rep *o;
	struct places places;
	struct rep_buffer *buffer;
	uint64_t occurrences;
};

static struct place *place_of(struct places *p, const struct replay_code *code,
			      const struct insn *in)
{
	struct place **at = &p->hash[(code->offset ^ code->offset >> 10) % HASH];

	while (*at && ((*at)->code.offset != code->offset || (*at)->code.module != code->module ||
		       (*at)->code.process != code->process))
		at = &(*at)->next;
	if (!*at && (*at = calloc(1, sizeof(**at)))) {
		(*at)->code = *code;
		(*at)->insn = *in;
		p->n++;
	}
	return *at;
}

static void *begin(void *ctx, struct replay_run *run)
{
	struct rep *r = ctx;
	struct thread *t = calloc(1, sizeof(*t));

	if (t && r->log.on)
		t->buffer = ana_rep_buffer_new(&r->log);
	if (!t || (r->log.on && !t->buffer)) {
		replay_run_fail(run, "out of memory");
		free(t);
		return NULL;
	}
	t->o = r;
	return t;
}

static bool chosen(const struct rep *r, struct replay_run *run, uint64_t addr,
		   struct replay_code *code)
{
	replay_run_code(run, addr, code);
	return !r->chosen.n || ana_ranges_have(&r->chosen, code, addr);
}

static unsigned wants(void *data, struct replay_run *run, const struct insn *in)
{
	const struct thread *t = data;
	struct replay_code code;

	return (t->o->log.branches ? REPLAY_WANT_EDGE : 0u) |
	       (in->attr & INSN_A_REP && chosen(t->o, run, in->addr, &code) ? REPLAY_WANT_REP : 0u);
}

/* Where the thread was at so many steps, which it has just passed. */
static void before(struct replay_run *run, uint64_t steps, struct replay_pos *pos)
{
	replay_run_pos(run, pos);
	uint64_t passed = pos->steps - steps;
	if (passed && passed <= pos->within) {
		pos->steps = steps;
		pos->within -= passed;
		pos->signals = 0;
	}
	pos->rep = 0;
}

static void edge(void *data, struct replay_run *run, const struct replay_edge *e)
{
	struct thread *t = data;
	struct rep_record r = { .kind = REP_BRANCH, .from_address = e->from, .to_address = e->to };

	before(run, e->steps - 1, &r.pos);
	replay_run_code(run, e->from, &r.from);
	replay_run_code(run, e->to, &r.to);
	ana_rep_buffer_add(t->buffer, run, &r);
}

/* The occurrence that was waited for. */
static void reach(struct thread *t, struct replay_run *run, const struct rep_record *r)
{
	struct rep_record here = *r;

	here.kind = REP_REACHED;
	here.asked = here.done = t->occurrences;
	if (t->buffer) {
		ana_rep_buffer_add(t->buffer, run, &here);
	} else {
		struct reached *reached = ana_log_add(&t->o->reached);
		if (reached)
			*reached = (struct reached){ r->pos, r->from, r->from_address };
	}
	if (t->o->stop)
		replay_run_stop(run);
}

static void rep(void *data, struct replay_run *run, const struct replay_rep *rep)
{
	struct thread *t = data;
	struct rep_record r = { .from_address = rep->insn->addr,
				.asked = rep->asked,
				.done = rep->done,
				.kind = rep->interrupted	 ? REP_INTERRUPTED
					: rep->done < rep->asked ? REP_CONDITION
								 : REP_DONE };

	if (!chosen(t->o, run, rep->insn->addr, &r.from))
		return;
	struct place *p = place_of(&t->places, &r.from, rep->insn);
	if (!p) {
		replay_run_fail(run, "out of memory");
		return;
	}
	p->occurrences++;
	p->asked += rep->asked;
	p->done += rep->done;
	p->interrupted += r.kind == REP_INTERRUPTED;
	p->condition += r.kind == REP_CONDITION;
	before(run, rep->steps - !rep->interrupted, &r.pos);
	if (t->buffer)
		ana_rep_buffer_add(t->buffer, run, &r);
	if (++t->occurrences == t->o->after)
		reach(t, run, &r);
}

/* Sums: it does not matter in which order threads end. */
static void end(void *ctx, struct replay_run *run, void *data)
{
	struct rep *r = ctx;
	struct thread *t = data;
	struct places *p = &t->places;

	if (t->buffer)
		ana_rep_buffer_end(t->buffer, run);
	for (size_t i = 0; i < HASH; i++)
		while (p->hash[i]) {
			struct place *from = p->hash[i];
			struct place *to = place_of(&r->all, &from->code, &from->insn);
			p->hash[i] = from->next;
			if (to) {
				to->occurrences += from->occurrences;
				to->asked += from->asked;
				to->done += from->done;
				to->condition += from->condition;
				to->interrupted += from->interrupted;
			}
			r->failed |= !to;
			free(from);
		}
	free(t);
}

static int by_done(const void *a, const void *b)
{
	const struct place *x = *(struct place *const *)a, *y = *(struct place *const *)b;

	if (x->done != y->done)
		return x->done > y->done ? -1 : 1;
	if (x->code.module != y->code.module)
		return x->code.module < y->code.module ? -1 : 1;
	return x->code.offset < y->code.offset ? -1 : x->code.offset > y->code.offset;
}

static void row(struct ana_job *job, struct ana_table *t, const struct place *p)
{
	const struct ana_function *fn = ana_function_of(job->functions, &p->code);
	const char *file = NULL;
	char text[100], name[300], place[330], line[330] = "";
	int number = 0;

	insn_text(&p->insn, true, text, sizeof(text));
	ana_function_text(fn, name, sizeof(name));
	snprintf(place, sizeof(place), "%s+%#" PRIx64, name, p->code.offset - fn->code.offset);
	if (p->code.module >= 0 &&
	    ana_symbols_line(ana_functions_symbols(job->functions), (size_t)p->code.module,
			     p->code.offset, &file, &number))
		snprintf(line, sizeof(line), "%.300s:%d", ana_base(file), number);
	ana_table_row(t, (struct ana_cell[]){ { .number = p->occurrences },
					      { .number = p->asked },
					      { .number = p->done },
					      { .number = p->condition },
					      { .number = p->interrupted },
					      { .text = text },
					      { .text = place },
					      { .text = fn->module ? ana_base(fn->module) : "" },
					      { .text = line } });
}

static void print_reached(struct rep *r, struct ana_job *job)
{
	struct ana_table *t =
		ana_table_new("reached", (struct ana_column[]){ { "position", ANA_TEXT },
								{ "after", ANA_NUMBER },
								{ "address", ANA_HEX },
								{ "code", ANA_TEXT },
								{ 0 } });
	ana_log_sort(&r->reached);
	for (size_t i = 0; i < r->reached.n; i++) {
		const struct reached *at = ana_log_at(&r->reached, i);
		char position[64], code[300];

		replay_pass_text(job->t, &at->pos, position, sizeof(position));
		ana_code_text(job->functions, &at->code, code, sizeof(code));
		ana_table_row(t, (struct ana_cell[]){ { .text = position },
						      { .number = r->after },
						      { .number = at->address },
						      { .text = code } });
	}
	ana_table_end(&job->out, t);
	ana_log_free(&r->reached);
}

static int print(struct rep *r, struct ana_job *job, struct dj_error *err)
{
	struct place **sorted = calloc(r->all.n + 1, sizeof(*sorted));
	size_t n = 0;

	if (!sorted)
		return dj_fail(err, 1, "out of memory");
	for (size_t i = 0; i < HASH; i++)
		for (struct place *p = r->all.hash[i]; p; p = p->next)
			sorted[n++] = p;
	qsort(sorted, n, sizeof(*sorted), by_done);
	struct ana_table *t =
		ana_table_new("instructions", (struct ana_column[]){ { "occurrences", ANA_NUMBER },
								     { "asked", ANA_NUMBER },
								     { "done", ANA_NUMBER },
								     { "condition", ANA_NUMBER },
								     { "interrupted", ANA_NUMBER },
								     { "instruction", ANA_TEXT },
								     { "place", ANA_TEXT },
								     { "module", ANA_TEXT },
								     { "line", ANA_TEXT },
								     { 0 } });
	for (size_t i = 0; i < n; i++)
		row(job, t, sorted[i]);
	ana_table_end(&job->out, t);
	free(sorted);
	return 0;
}

static int run(void *state, struct ana_job *job, struct dj_error *err)
{
	struct rep *r = state;
	const struct replay_listener *listeners[] = { &r->listener };

	if ((r->log.branches || r->log.size || r->log.full) && !r->log.on)
		return dj_fail(err, 1, "--branches, --buffer and --full need --log");
	if (r->stop && !r->after)
		return dj_fail(err, 1, "--stop needs --after");
	if (r->log.on && (job->with || job->n_others)) /* it is printed while it is told */
		return dj_fail(err, 1, "--log cannot be asked for together with other questions");
	for (size_t i = 0; i < r->words; i++)
		if (ana_ranges_add(job, &r->chosen, r->word[i], err))
			return -1;
	if (!r->log.size)
		r->log.size = BUFFER;
	r->log.job = job;
	r->reached = (struct ana_log){ .size = sizeof(struct reached), .limit = UINT64_MAX };
	r->listener = (struct replay_listener){
		.ctx = r,
		.begin = begin,
		.end = end,
		.wants = wants,
		.rep = rep,
		.translated = !r->log.on && !r->after, /* which ask for positions */
	};
	if (r->log.branches) {
		r->listener.edge = edge;
		r->listener.kinds = REPLAY_SEE_JUMP | REPLAY_SEE_CALL | REPLAY_SEE_RETURN;
	}
	job->in_order = r->log.on || r->after;
	job->out.many = r->after && !r->log.on;
	if (ana_pass(job, listeners, 1, err))
		return -1;
	if (r->failed || r->reached.failed)
		return dj_fail(err, 1, "out of memory");
	ana_ranges_free(&r->chosen);
	if (r->log.on) {
		ana_rep_log_end(&r->log);
		return 0;
	}
	if (r->after)
		print_reached(r, job);
	return print(r, job, err);
}

enum { OPT_AT, OPT_LOG, OPT_BRANCHES, OPT_BUFFER, OPT_FULL, OPT_AFTER, OPT_STOP };

static int take_full(struct rep *r, const char *arg, struct dj_error *err)
{
	static const char *const names[] = {
		[REP_FLUSH] = "flush", [REP_STOP] = "stop", [REP_OVERWRITE] = "overwrite"
	};

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(arg, names[i])) {
			r->log.full = (enum rep_full)i;
			return 0;
		}
	return dj_fail(err, 1, "--full takes flush, stop or overwrite, not %s", arg);
}

static int option(void *state, unsigned which, const char *arg, struct dj_error *err)
{
	struct rep *r = state;

	switch (which) {
	case OPT_AT:
		if (r->words == sizeof(r->word) / sizeof(r->word[0]))
			return dj_fail(err, 1, "too many --at");
		r->word[r->words++] = arg;
		return 0;
	case OPT_LOG:
		r->log.on = true;
		return 0;
	case OPT_BRANCHES:
		r->log.branches = true;
		return 0;
	case OPT_BUFFER:
		if (ana_number("buffer", arg, 1, &r->log.size, err) || r->log.size > BUFFER_MAX)
			return dj_fail(err, 1,
				       "--buffer takes a number of records from 1 to %u, "
				       "not %s",
				       BUFFER_MAX, arg);
		return 0;
	case OPT_FULL:
		return take_full(r, arg, err);
	case OPT_AFTER:
		return ana_number("after", arg, 1, &r->after, err);
	default:
		r->stop = true;
		return 0;
	}
}

const struct ana_analysis ana_rep = {
	.name = "rep",
	.args = "[OPTIONS] [FILE]",
	.help = "count the iterations of REP instructions",
	.usage = "Usage: deja rep [OPTIONS] [FILE]\n"
		 "For each REP instruction: how often it was executed, how many iterations it was\n"
		 "asked for and did, how often its condition or a signal ended it early.\n"
		 "\n"
		 "      --at PLACE      only those in a function, MODULE, ADDRESS-ADDRESS or at\n"
		 "                      FUNCTION+OFFSET (may be given again)\n"
		 "      --log           every occurrence instead, thread by thread\n"
		 "      --branches      and every branch that was taken\n"
		 "      --buffer N      of each thread N records are kept (65536)\n"
		 "      --full WHAT     and when there are more flush prints them, stop ends the\n"
		 "                      thread's log, overwrite drops the oldest\n"
		 "      --after N       report where each thread had come to N occurrences\n"
		 "      --stop          and look no further\n",
	.options = { [OPT_AT] = { "at", true },
		     [OPT_LOG] = { "log", false },
		     [OPT_BRANCHES] = { "branches", false },
		     [OPT_BUFFER] = { "buffer", true },
		     [OPT_FULL] = { "full", true },
		     [OPT_AFTER] = { "after", true },
		     [OPT_STOP] = { "stop", false } },
	.translated = true,
	.size = sizeof(struct rep),
	.option = option,
	.run = run,
};
