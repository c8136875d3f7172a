/*
 * deja stacks: the call stacks of threads, kept by their calls and returns: at a position, sampled,
 * or with every entry and exit.
 */
#include "analyses/profile.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
	OPT_AT,
	OPT_EVERY,
	OPT_RUNNING,
	OPT_LOG,
	OPT_FOLDED,
	OPT_FLAME,
	OPT_DEPTH,
	OPT_CALL,
	OPT_RETURN,
	OPT_LIMIT
};

struct frame {
	struct replay_code code;
	uint64_t addr;
};

struct found {
	uint32_t thread;
	struct replay_pos pos;
	struct frame *frame; /* innermost first */
	size_t n;
	struct found *next;
};

struct stacks {
	struct ana_profile p;
	struct replay_listener listener;
	const char *folded, *flame;
	const char *mark[32];
	bool is_return[32];
	size_t marks;
	bool log, at, running;
	uint64_t every, every_us, limit, depth; /* one of the first two, or none */
	bool any_time;				/* of some thread it is known when it was where */
	struct found *found;			/* by number of the thread */
	uint64_t lines, lost, deepest;
	bool more; /* than are wanted */
};

struct thread {
	struct ana_stacked s;
	struct stacks *o;
	struct ana_grower *grower; /* with --every */
};

/* ---- the log ---- */

static void put_log(struct stacks *o, struct replay_run *run, const char *what, uint64_t entry,
		    uint64_t from, size_t depth)
{
	struct replay_code code;
	struct replay_pos pos;
	char name[300], at[64];
	FILE *f = o->p.job->out.f;

	if (o->limit && o->lines >= o->limit) {
		o->more = true;
		replay_run_stop(run);
		return;
	}
	replay_run_pos(run, &pos);
	replay_pass_text(replay_run_trace(run), &pos, at, sizeof(at));
	replay_run_code(run, entry, &code);
	replay_run_lock(run);
	ana_function_text(ana_function_of(o->p.job->functions, &code), name, sizeof(name));
	replay_run_unlock(run);
	if (o->p.job->out.json) {
		fprintf(f,
			"%s{\"position\": \"%s\", \"what\": \"%s\", \"depth\": %zu, \"function\": ",
			o->lines ? ",\n" : "[", at, what, depth);
		ana_put_json(f, name);
		fprintf(f, ", \"address\": %" PRIu64 ", \"from\": %" PRIu64 "}", entry, from);
	} else {
		fprintf(f, "%-22s %-6s %*s", at, what, (int)(2 * (depth < 40 ? depth : 40)), "");
		ana_put(f, name);
		putc('\n', f);
	}
	o->lines++;
}

static uint32_t enter(void *ctx, struct replay_run *run, const struct ana_call *call)
{
	static const char *const kinds[] = { [ANA_CALL_CALL] = "call",
					     [ANA_CALL_TAIL] = "jump",
					     [ANA_CALL_SIGNAL] = "signal",
					     [ANA_CALL_MARKED] = "marked",
					     [ANA_CALL_UNDER] = "under" };
	struct thread *t = ctx;
	const struct ana_call *frames;

	put_log(t->o, run, kinds[call->kind], call->entry, call->from,
		ana_stack_frames(t->s.stack, &frames));
	return 0;
}

static void leave(void *ctx, struct replay_run *run, const struct ana_call *call, uint64_t steps)
{
	struct thread *t = ctx;
	const struct ana_call *frames;

	(void)steps;
	put_log(t->o, run, "return", call->entry, call->from,
		ana_stack_frames(t->s.stack, &frames));
}

/* ---- a thread ---- */

/* With snapshots at times. A thread of which no times are known is in none of them. */
static bool sample_times(struct stacks *o, struct ana_grower *g, struct replay_run *run)
{
	struct ana_when *when;
	struct dj_error err;

	if (ana_when_new(replay_run_trace(run), replay_run_thread(run), &when, &err))
		return false;
	if (!when) {
		g->every = UINT64_MAX;
		return true;
	}
	o->any_time = true;
	if (ana_when_sample(when, o->every_us, o->running)) {
		ana_when_free(when);
		return false;
	}
	ana_grower_snapshots(g, when);
	return true;
}

static void *begin(void *ctx, struct replay_run *run)
{
	struct stacks *o = ctx;
	struct thread *t = calloc(1, sizeof(*t));

	if (t) {
		t->o = o;
		t->grower = o->every || o->every_us ? ana_grower_new(&o->p.rules, run) : NULL;
		if (t->grower)
			t->grower->every = o->every;
		t->s.stack =
			t->grower ? t->grower->s.stack
				  : ana_stack_new(
					    &o->p.rules, run,
					    o->log ? &(struct ana_stack_watcher){ .ctx = t,
										  .enter = enter,
										  .leave = leave }
						   : NULL);
	}
	if (!t || !t->s.stack || (o->every_us && !sample_times(o, t->grower, run))) {
		replay_run_fail(run, "out of memory");
		return NULL;
	}
	return t;
}

/* Whether the thread is alive at the position that was asked for. */
static bool alive(const struct stacks *o, struct replay_run *run)
{
	const struct dj_thread_info *info = replay_run_info(run);
	const struct replay_pos *to = &o->p.job->to;

	if (!o->p.job->has_to || to->thread == replay_run_thread(run))
		return true;
	return replay_run_steps(run) < info->last_steps || info->last_seq == DJ_SEQ_UNKNOWN ||
	       info->last_seq >= to->seq;
}

static void keep(struct stacks *o, struct replay_run *run, const struct ana_stack *stack)
{
	const struct ana_call *frames;
	size_t n, all = 0;
	struct found *f = calloc(1, sizeof(*f)), **at = &o->found;

	for (size_t level = 0; (n = ana_stack_interrupted(stack, level, &frames)) > 0; level++)
		all += n;
	if (f)
		f->frame = calloc(all + 1, sizeof(*f->frame));
	if (!f || !f->frame) {
		free(f);
		o->p.failed = true;
		return;
	}
	f->thread = replay_run_thread(run);
	replay_run_pos(run, &f->pos);
	f->frame[f->n++].addr = replay_run_rip(run);
	for (size_t level = 0; (n = ana_stack_interrupted(stack, level, &frames)) > 0; level++)
		while (n)
			f->frame[f->n++].addr = frames[--n].from;
	for (size_t i = 0; i < f->n; i++)
		replay_run_code(run, f->frame[i].addr, &f->frame[i].code);
	while (*at && (*at)->thread < f->thread)
		at = &(*at)->next;
	f->next = *at;
	*at = f;
}

static void end(void *ctx, struct replay_run *run, void *data)
{
	struct stacks *o = ctx;
	struct thread *t = data;

	o->lost += ana_stack_lost(t->s.stack);
	if (ana_stack_deepest(t->s.stack) > o->deepest)
		o->deepest = ana_stack_deepest(t->s.stack);
	/* of one that has done nothing not even where it is is known */
	if (o->at && alive(o, run) && replay_run_rip(run))
		keep(o, run, t->s.stack);
	if (t->grower)
		ana_grower_end(t->grower, run, &o->p.tree);
	else
		ana_stack_free(t->s.stack);
	free(t);
}

/* ---- the answer ---- */

static void print_found(struct stacks *o)
{
	struct ana_table *t =
		ana_table_new("stacks", (struct ana_column[]){ { "tid", ANA_NUMBER },
							       { "position", ANA_TEXT },
							       { "frame", ANA_NUMBER },
							       { "address", ANA_HEX },
							       { "function", ANA_TEXT },
							       { "line", ANA_TEXT },
							       { "module", ANA_TEXT },
							       { 0 } });
	struct ana_job *job = o->p.job;

	ana_table_limit(t, o->limit);
	for (const struct found *f = o->found; f; f = f->next)
		for (size_t i = 0; i < f->n; i++) {
			const struct ana_function *fn =
				ana_function_of(job->functions, &f->frame[i].code);
			char pos[64], name[300], line[330];
			const char *file = NULL;
			int number = 0;
			replay_pass_text(job->t, &f->pos, pos, sizeof(pos));
			ana_function_text(fn, name, sizeof(name));
			if (f->frame[i].code.module < 0 ||
			    !ana_symbols_line(ana_functions_symbols(job->functions),
					      (size_t)f->frame[i].code.module,
					      f->frame[i].code.offset, &file, &number))
				file = NULL;
			ana_line_text(file, number, line, sizeof(line));
			ana_table_row(t, (struct ana_cell[]){ { .number = (uint64_t)dj_trace_thread(
										  job->t, f->thread)
										  ->tid },
							      { .text = pos },
							      { .number = i },
							      { .number = f->frame[i].addr },
							      { .text = name },
							      { .text = line },
							      { .text = ana_base(fn->module) } });
		}
	ana_table_end(&job->out, t);
}

static int write_file(struct stacks *o, const char *name,
		      void (*writer)(struct ana_profile *, FILE *), struct dj_error *err)
{
	FILE *f = name ? ana_create(o->p.job, name, err) : NULL;

	if (!name)
		return 0;
	if (!f)
		return -1;
	writer(&o->p, f);
	bool bad = ferror(f);
	if (fclose(f) || bad)
		return dj_fail_errno(err, 1, "cannot write %s", name);
	return 0;
}

static void sample_row(void *ctx, const struct ana_node *node, unsigned depth)
{
	void **c = ctx;
	char name[300];

	ana_node_text(c[0], node, name, sizeof(name));
	ana_table_row(c[1], (struct ana_cell[]){ { .number = node->total },
						 { .number = node->self },
						 { .number = depth },
						 { .text = name } });
}

static void print_sampled_paths(struct ana_profile *p)
{
	struct ana_table *t =
		ana_table_new("samples", (struct ana_column[]){ { "inclusive", ANA_NUMBER },
								{ "samples", ANA_NUMBER },
								{ "depth", ANA_NUMBER },
								{ "function", ANA_TEXT },
								{ 0 } });

	ana_tree_walk(&p->merged, sample_row, (void *[]){ p, t });
	ana_table_end(&p->job->out, t);
}

static int print_samples(struct stacks *o, struct dj_error *err)
{
	struct ana_profile *p = &o->p;

	if (ana_tree_finish(&p->tree, p->job->functions) ||
	    ana_tree_merge(&p->merged, &p->tree, p->job->functions))
		return dj_fail(err, 1, "out of memory");
	p->unit = "samples";
	p->total = p->merged.n ? p->merged.node[0].total : 0;
	if (write_file(o, o->folded, ana_profile_folded, err) ||
	    write_file(o, o->flame, ana_profile_svg, err))
		return -1;
	if (p->job->out.json)
		print_sampled_paths(p);
	else if (!o->folded && !o->flame)
		ana_profile_folded(p, p->job->out.f);
	return 0;
}

static int run(void *state, struct ana_job *job, struct dj_error *err)
{
	struct stacks *o = state;
	struct ana_profile *p = &o->p;
	const struct replay_listener *listeners[] = { &o->listener };

	bool sampled = o->every || o->every_us;

	if (o->running && !o->every_us)
		return dj_fail(err, 1, "--running needs --every with a time, such as 10ms");
	if ((o->folded || o->flame) && !sampled)
		return dj_fail(err, 1, "--folded and --flame need --every");
	if (o->log && (job->with || job->n_others)) /* it is printed while it is told */
		return dj_fail(err, 1, "--log cannot be asked for together with other questions");
	o->at = !o->log && !sampled;
	p->job = job;
	p->rules = (struct ana_stack_rules){ .functions = job->functions,
					     .limit = o->depth,
					     .calls = &p->calls,
					     .returns = &p->returns };
	for (size_t i = 0; i < o->marks; i++)
		if (ana_ranges_add(job, o->is_return[i] ? &p->returns : &p->calls, o->mark[i], err))
			return -1;
	o->listener =
		(struct replay_listener){ .ctx = o,
					  .begin = begin,
					  .end = end,
					  .translated = !o->log, /* which asks for positions */
					  .late = true };
	ana_stack_listen(&o->listener);
	job->in_order = o->log;
	if (ana_pass(job, listeners, 1, err))
		return -1;
	if (p->failed)
		return dj_fail(err, 1, "out of memory");
	if (o->log && job->out.json)
		fputs(o->lines ? "]\n" : "[]\n", job->out.f);
	if (o->more)
		ana_out_lack(&job->out,
			     "These are the first %" PRIu64
			     " lines; --limit says how many are wanted.",
			     o->limit);
	if (o->at)
		print_found(o);
	if (o->every_us && !o->any_time && !job->passed.interrupted)
		return dj_fail(err, 2, "%s: the recording does not say when its threads were where",
			       dj_trace_path(job->t));
	if (sampled && print_samples(o, err))
		return -1;
	if (o->lost)
		ana_out_warn(&job->out,
			     "%" PRIu64
			     " frames are missing: stacks were deeper than --depth %" PRIu64,
			     o->lost, o->depth);
	return 0;
}

static int option(void *state, unsigned which, const char *arg, struct dj_error *err)
{
	struct stacks *o = state;

	switch (which) {
	case OPT_AT:
		return 0; /* where the pass ends */
	case OPT_EVERY:
		o->every = o->every_us = 0;
		return replay_time(arg, strlen(arg), &o->every_us) && o->every_us
			       ? 0
			       : ana_number("every", arg, 1, &o->every, err);
	case OPT_RUNNING:
		o->running = true;
		return 0;
	case OPT_LOG:
		o->log = true;
		return 0;
	case OPT_FOLDED:
		o->folded = arg;
		return 0;
	case OPT_FLAME:
		o->flame = arg;
		return 0;
	case OPT_DEPTH:
		return ana_number("depth", arg, 1, &o->depth, err);
	case OPT_LIMIT:
		return ana_number("limit", arg, 1, &o->limit, err);
	default:
		if (o->marks == sizeof(o->mark) / sizeof(o->mark[0]))
			return dj_fail(err, 1, "too many --call and --return");
		o->is_return[o->marks] = which == OPT_RETURN;
		o->mark[o->marks++] = arg;
		return 0;
	}
}

const struct ana_analysis ana_stacks = {
	.name = "stacks",
	.args = "[OPTIONS] [FILE]",
	.help = "call stacks by calls and returns",
	.usage =
		"Usage: deja stacks [OPTIONS] [FILE]\n"
		"The call stacks of all threads at a position (the end), kept by calls and "
		"returns.\n"
		"\n"
		"      --at POS        at this position (as --to)\n"
		"      --every N       sample each thread's at every N-th of its instructions, as\n"
		"                      folded stacks\n"
		"      --every TIME    sample all threads' at the same moments (10ms, 1.5s, "
		"500us)\n"
		"      --running       of these only threads that were running\n"
		"      --folded F      write those to F\n"
		"      --flame F       write F, a flame graph of them (SVG)\n"
		"      --log           print every entry and exit, thread by thread\n"
		"      --call PLACE    the instruction at PLACE is a call\n"
		"      --return PLACE  is a return\n"
		"      --depth N       keep at most N frames of a stack\n"
		"      --limit N       so many lines\n",
	.options = { [OPT_AT] = { "at", true, true },
		     [OPT_EVERY] = { "every", true },
		     [OPT_RUNNING] = { "running", false },
		     [OPT_LOG] = { "log", false },
		     [OPT_FOLDED] = { "folded", true, .writes = true },
		     [OPT_FLAME] = { "flame", true, .writes = true },
		     [OPT_DEPTH] = { "depth", true },
		     [OPT_CALL] = { "call", true },
		     [OPT_RETURN] = { "return", true },
		     [OPT_LIMIT] = { "limit", true } },
	.translated = true,
	.size = sizeof(struct stacks),
	.option = option,
	.run = run,
};
