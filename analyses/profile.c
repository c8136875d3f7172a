/*
 * deja profile: every instruction of the run, by function, line, instruction and path of calls.
 *
 * How often each instruction was executed is counted by the emulator, exactly. What was executed
 * between a function's call and its return comes from the thread's call stack and its count of
 * instructions at both ends, exact as well. Nothing is sampled.
 */
#include "analyses/profile.h"
#include "analyses/symbols.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
	OPT_BY,
	OPT_LIMIT,
	OPT_CALLGRIND,
	OPT_FLAME,
	OPT_HTML,
	OPT_FOLDED,
	OPT_SPEEDSCOPE,
	OPT_DEPTH,
	OPT_CALL,
	OPT_RETURN,
	OPT_THREADS,
	FILES = 5
};

struct profile {
	struct ana_profile p;
	struct replay_listener listener;
	const char *by;
	uint64_t limit, depth;
	bool threads;
	const char *file[FILES]; /* from OPT_CALLGRIND on */
	const char *mark[32];
	bool is_return[32];
	size_t marks;
};

/* ---- a thread ---- */

struct thread {
	struct ana_stacked s; /* the grower's */
	struct ana_profile *p;
	struct ana_grower *grower;
	struct ana_tally count;
	struct ana_lane *lane;
};

static void *begin(void *ctx, struct replay_run *run)
{
	struct ana_profile *p = ctx;
	struct thread *t = calloc(1, sizeof(*t));
	struct ana_lane *lane = ana_lane_new(run);

	if (t)
		t->grower = ana_grower_new(&p->rules, run);
	if (!t || !t->grower || !lane) {
		replay_run_fail(run, "out of memory");
		return NULL;
	}
	t->s.stack = t->grower->s.stack;
	t->p = p;
	t->lane = lane;
	return t;
}

static void count(void *data, struct replay_run *run, const struct replay_count *c)
{
	struct thread *t = data;
	struct ana_item *it = ana_tally_at(&t->count, &c->code, NULL);

	(void)run;
	if (it)
		it->n[0] += c->count;
}

static void event(void *data, struct replay_run *run, const struct replay_event *ev)
{
	struct thread *t = data;

	ana_stack_event(t->grower->s.stack, run, ev);
	ana_lane_event(t->lane, run, ev);
}

static void end(void *ctx, struct replay_run *run, void *data)
{
	struct ana_profile *p = ctx;
	struct thread *t = data;
	struct ana_lane **at = &p->lanes;

	ana_lane_end(t->lane, run);
	p->total += t->lane->instructions;
	p->lost += ana_stack_lost(t->grower->s.stack);
	if (ana_stack_deepest(t->grower->s.stack) > p->deepest)
		p->deepest = ana_stack_deepest(t->grower->s.stack);
	ana_grower_end(t->grower, run, &p->tree);
	ana_tally_add(&p->count, &t->count);
	while (*at && (*at)->thread < t->lane->thread)
		at = &(*at)->next;
	t->lane->next = *at;
	*at = t->lane;
	free(t);
}

/* ---- the answer ---- */

static int print_sums(struct profile *o, enum ana_by by)
{
	static const struct ana_column columns[][8] = {
		{ { "share", ANA_SHARE },
		  { "self", ANA_NUMBER },
		  { "inclusive", ANA_NUMBER },
		  { "calls", ANA_NUMBER },
		  { "function", ANA_TEXT },
		  { "module", ANA_TEXT },
		  { 0 } },
		{ { "share", ANA_SHARE },
		  { "self", ANA_NUMBER },
		  { "line", ANA_TEXT },
		  { "function", ANA_TEXT },
		  { "module", ANA_TEXT },
		  { 0 } },
		{ { "share", ANA_SHARE },
		  { "count", ANA_NUMBER },
		  { "place", ANA_TEXT },
		  { "line", ANA_TEXT },
		  { "module", ANA_TEXT },
		  { "offset", ANA_HEX },
		  { 0 } },
	};
	size_t n;
	struct ana_sum *s = ana_profile_sums(&o->p, by, &n);
	if (by == ANA_BY_INLINED)
		by = ANA_BY_FUNCTION;
	struct ana_table *t = ana_table_new(by == ANA_BY_FUNCTION ? "functions"
					    : by == ANA_BY_LINE	  ? "lines"
								  : "instructions",
					    columns[by]);

	if (!s || !t)
		return -1;
	ana_table_limit(t, o->limit);
	for (size_t i = 0; i < n; i++) {
		char name[300], line[330], place[330];
		struct ana_cell share = { .number = s[i].self, .whole = o->p.total };
		struct ana_cell self = { .number = s[i].self };
		const char *module = ana_base(s[i].fn->module);
		ana_function_text(s[i].fn, name, sizeof(name));
		ana_line_text(s[i].file, s[i].line, line, sizeof(line));
		snprintf(place, sizeof(place), "%s+%#" PRIx64, name,
			 s[i].code.offset - s[i].fn->code.offset);
		if (by == ANA_BY_FUNCTION)
			ana_table_row(t,
				      (struct ana_cell[]){ share,
							   self,
							   { .number = s[i].inclusive },
							   { .number = s[i].calls,
							     .none = s[i].fn->code.offset >> 63 },
							   { .text = name },
							   { .text = module } });
		else
			ana_table_row(t, (struct ana_cell[]){
						 share,
						 self,
						 { .text = by == ANA_BY_LINE ? line : place },
						 { .text = by == ANA_BY_LINE ? name : line },
						 { .text = module },
						 { .number = s[i].code.offset } });
	}
	ana_table_end(&o->p.job->out, t);
	free(s);
	return 0;
}

struct paths {
	struct ana_profile *p;
	struct ana_table *t;
};

static void print_path(void *ctx, const struct ana_node *node, unsigned depth)
{
	struct paths *k = ctx;
	char name[300], text[420];

	ana_node_text(k->p, node, name, sizeof(name));
	snprintf(text, sizeof(text), "%*s%s",
		 k->p->job->out.json ? 0 : (int)(2 * (depth < 50 ? depth : 50)), "", name);
	ana_table_row(k->t, (struct ana_cell[]){ { .number = node->total, .whole = k->p->total },
						 { .number = node->total },
						 { .number = node->self },
						 { .number = node->calls },
						 { .number = depth },
						 { .text = text } });
}

static int print_paths(struct profile *o)
{
	struct paths k = { .p = &o->p };

	k.t = ana_table_new("paths", (struct ana_column[]){ { "share", ANA_SHARE },
							    { "inclusive", ANA_NUMBER },
							    { "self", ANA_NUMBER },
							    { "calls", ANA_NUMBER },
							    { "depth", ANA_NUMBER },
							    { "path", ANA_TEXT },
							    { 0 } });
	if (!k.t)
		return -1;
	ana_table_limit(k.t, o->limit);
	ana_tree_walk(&o->p.merged, print_path, &k);
	ana_table_end(&o->p.job->out, k.t);
	return 0;
}

static void print_threads(struct profile *o)
{
	struct ana_table *t =
		ana_table_new("threads", (struct ana_column[]){ { "share", ANA_SHARE },
								{ "instructions", ANA_NUMBER },
								{ "system calls", ANA_NUMBER },
								{ "signals", ANA_NUMBER },
								{ "tid", ANA_NUMBER },
								{ "pid", ANA_NUMBER },
								{ "name", ANA_TEXT },
								{ 0 } });

	for (const struct ana_lane *l = o->p.lanes; l; l = l->next)
		ana_table_row(
			t, (struct ana_cell[]){ { .number = l->instructions, .whole = o->p.total },
						{ .number = l->instructions },
						{ .number = l->calls },
						{ .number = l->signals },
						{ .number = (uint64_t)l->tid },
						{ .number = (uint64_t)l->pid },
						{ .text = l->name } });
	ana_table_end(&o->p.job->out, t);
}

static int print(struct profile *o, struct dj_error *err)
{
	struct ana_profile *p = &o->p;
	int res;

	p->job->out.many = o->threads;
	if (o->threads)
		print_threads(o);
	else
		ana_out_line(&p->job->out, "%" PRIu64 " instructions", p->total);
	if (!o->by || !strcmp(o->by, "function"))
		res = print_sums(o, ANA_BY_FUNCTION);
	else if (!strcmp(o->by, "inlined"))
		res = print_sums(o, ANA_BY_INLINED);
	else if (!strcmp(o->by, "line"))
		res = print_sums(o, ANA_BY_LINE);
	else if (!strcmp(o->by, "instruction"))
		res = print_sums(o, ANA_BY_INSTRUCTION);
	else
		res = print_paths(o);
	if (p->tree.lost)
		ana_out_lack(&p->job->out,
			     "%" PRIu64 " calls have no path of their own: more than %u paths",
			     p->tree.lost, ANA_TREE_NODES);
	if (p->lost)
		ana_out_lack(&p->job->out,
			     "%" PRIu64 " frames were beyond --depth and belong to their callers",
			     p->lost);
	return res ? dj_fail(err, 1, "out of memory") : 0;
}

/* ---- files ---- */

static int write_file(struct profile *o, unsigned which, struct dj_error *err)
{
	static void (*const writers[FILES])(struct ana_profile *, FILE *) = {
		ana_profile_callgrind, ana_profile_svg,	       ana_profile_html,
		ana_profile_folded,    ana_profile_speedscope,
	};
	const char *name = o->file[which];
	FILE *f = name ? ana_create(o->p.job, name, err) : NULL;

	if (!name)
		return 0;
	if (!f)
		return -1;
	writers[which](&o->p, f);
	bool bad = ferror(f);
	if (fclose(f) || bad)
		return dj_fail_errno(err, 1, "cannot write %s", name);
	return 0;
}

static int run(void *state, struct ana_job *job, struct dj_error *err)
{
	struct profile *o = state;
	struct ana_profile *p = &o->p;
	const struct replay_listener *listeners[] = { &o->listener };
	bool files = false;

	p->job = job;
	p->rules = (struct ana_stack_rules){ .functions = job->functions,
					     .limit = o->depth,
					     .calls = &p->calls,
					     .returns = &p->returns };
	for (size_t i = 0; i < o->marks; i++)
		if (ana_ranges_add(job, o->is_return[i] ? &p->returns : &p->calls, o->mark[i], err))
			return -1;
	o->listener = (struct replay_listener){ .ctx = p,
						.begin = begin,
						.end = end,
						.count = count,
						.translated = true,
						.late = true };
	ana_stack_listen(&o->listener);
	o->listener.event = event;
	if (ana_pass(job, listeners, 1, err))
		return -1;
	ana_tally_sort(&p->count);
	if (p->failed || p->count.failed || ana_tree_finish(&p->tree, job->functions) ||
	    ana_tree_merge(&p->merged, &p->tree, job->functions))
		return dj_fail(err, 1, "out of memory");
	for (unsigned i = 0; i < FILES; i++) {
		if (write_file(o, i, err))
			return -1;
		files |= o->file[i] != NULL;
	}
	if (!o->limit && !job->out.json)
		o->limit = 40;
	return files && !o->by && !job->out.json && !o->threads ? 0 : print(o, err);
}

static int option(void *state, unsigned which, const char *arg, struct dj_error *err)
{
	static const char *const bys[] = { "function", "inlined", "line", "instruction", "path" };
	struct profile *o = state;

	switch (which) {
	case OPT_BY:
		o->by = arg;
		for (size_t i = 0; i < sizeof(bys) / sizeof(bys[0]); i++)
			if (!strcmp(arg, bys[i]))
				return 0;
		return dj_fail(err, 1,
			       "--by takes function, inlined, line, instruction or path, not %s",
			       arg);
	case OPT_LIMIT:
		return ana_number("limit", arg, 1, &o->limit, err);
	case OPT_DEPTH:
		return ana_number("depth", arg, 1, &o->depth, err);
	case OPT_THREADS:
		o->threads = true;
		return 0;
	case OPT_CALL:
	case OPT_RETURN:
		if (o->marks == sizeof(o->mark) / sizeof(o->mark[0]))
			return dj_fail(err, 1, "too many --call and --return");
		o->is_return[o->marks] = which == OPT_RETURN;
		o->mark[o->marks++] = arg;
		return 0;
	default:
		o->file[which - OPT_CALLGRIND] = arg;
		return 0;
	}
}

const struct ana_analysis ana_profile = {
	.name = "profile",
	.args = "[OPTIONS] [FILE]",
	.help = "count instructions by function, line and path",
	.usage = "Usage: deja profile [OPTIONS] [FILE]\n"
		 "Every instruction that was executed, by function, with and without what they "
		 "call.\n"
		 "\n"
		 "      --by WHAT       function, inlined (functions, those that were inlined, "
		 "too),\n"
		 "                      line, instruction or path (of calls)\n"
		 "      --threads       and by thread\n"
		 "      --limit N       so many rows (40)\n"
		 "      --callgrind F   write F for callgrind_annotate and kcachegrind\n"
		 "      --flame F       write F, a flame graph (SVG)\n"
		 "      --html F        write F, a page with a flame graph, the threads in time "
		 "and\n"
		 "                      hot lines\n"
		 "      --folded F      write F, folded stacks as flamegraph.pl reads them\n"
		 "      --speedscope F  write F for speedscope\n"
		 "      --call PLACE    the instruction at PLACE is a call\n"
		 "      --return PLACE  is a return\n"
		 "      --depth N       keep stacks of at most N frames\n",
	.options = { [OPT_BY] = { "by", true },
		     [OPT_LIMIT] = { "limit", true },
		     [OPT_CALLGRIND] = { "callgrind", true, .writes = true },
		     [OPT_FLAME] = { "flame", true, .writes = true },
		     [OPT_HTML] = { "html", true, .writes = true },
		     [OPT_FOLDED] = { "folded", true, .writes = true },
		     [OPT_SPEEDSCOPE] = { "speedscope", true, .writes = true },
		     [OPT_DEPTH] = { "depth", true },
		     [OPT_CALL] = { "call", true },
		     [OPT_RETURN] = { "return", true },
		     [OPT_THREADS] = { "threads", false } },
	.translated = true,
	.size = sizeof(struct profile),
	.option = option,
	.run = run,
};
