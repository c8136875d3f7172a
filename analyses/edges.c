/*
 * deja edges: every branch of the run, how often it was taken and how often not.
 *
 * Exactly, from the emulator's counts. And, to compare, as a sampling profiler with a processor's
 * buffer of last branches would have it: of each thread the last N taken branches are remembered;
 * at every P-th branch, with P changed a little at random each time so that it does not fall into
 * step with the program's loops, the buffer is looked at. Between two taken branches in it the
 * program went straight on, so the code itself says which branches lie between them that were not
 * taken; of the whole path the last M branches are added to the profile.
 */
#include "analyses/edges.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RING_MAX	  1024u
#define PATH_MAX_BRANCHES 8192u

enum {
	OPT_SAMPLE,
	OPT_PERIOD,
	OPT_RANDOM,
	OPT_RING,
	OPT_LAST,
	OPT_UNIT,
	OPT_SEED,
	OPT_CALLS,
	OPT_LIMIT,
	OPT_BOLT,
	OPT_CLANG,
	OPT_CALLGRIND,
	OPT_GCC,
	FILES = 4
};

struct edges {
	struct ana_edges e;
	struct replay_listener listener;
	bool sample, calls, by_instruction;
	uint64_t period, random, ring, last, seed, limit;
	const char *file[FILES];
};

/* A stretch of code that was gone through straight: the conditional branches in it. */
struct straight {
	uint64_t from, to;
	uint64_t branch[62];
	unsigned n;
	bool known;
};
#define STRAIGHTS 1024u

struct thread {
	struct edges *o;
	struct ana_tally count, branch, edge;
	struct {
		uint64_t from, to;
	} ring[RING_MAX];
	uint64_t branches, taken; /* so far */
	uint64_t next;		  /* when the buffer is looked at */
	uint64_t random, samples;
	struct straight *straights;
};

/* xorshift64* (Vigna 2016): the same sequence wherever it is replayed. */
static uint64_t random_of(struct thread *t)
{
	t->random ^= t->random >> 12;
	t->random ^= t->random << 25;
	t->random ^= t->random >> 27;
	return t->random * 0x2545f4914f6cdd1dULL;
}

static uint64_t next_period(struct thread *t)
{
	const struct edges *o = t->o;
	uint64_t spread = o->random ? random_of(t) % (2 * o->random + 1) : 0;
	uint64_t p = o->period + spread - o->random;

	return p ? p : 1;
}

static void *begin(void *ctx, struct replay_run *run)
{
	struct edges *o = ctx;
	struct thread *t = calloc(1, sizeof(*t));

	if (t && o->sample)
		t->straights = calloc(STRAIGHTS, sizeof(*t->straights));
	if (!t || (o->sample && !t->straights)) {
		replay_run_fail(run, "out of memory");
		free(t);
		return NULL;
	}
	t->o = o;
	t->random = (o->seed + replay_run_thread(run)) * 0x9e3779b97f4a7c15ULL + 1;
	if (!t->random)
		t->random = 1;
	t->next = next_period(t) + (o->by_instruction ? replay_run_steps(run) : 0);
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

static uint32_t kind_of(const struct insn *in)
{
	return (in->attr & INSN_A_COND ? EDGE_COND : 0) | (in->attr & INSN_A_CALL ? EDGE_CALL : 0) |
	       (in->attr & INSN_A_RET ? EDGE_RET : 0) |
	       (in->attr & INSN_A_INDIRECT ? EDGE_INDIRECT : 0) | in->len * EDGE_LENGTH;
}

static void branch(void *data, struct replay_run *run, const struct replay_branch *b)
{
	struct thread *t = data;
	bool taken = !(b->insn->attr & INSN_A_COND) || b->to != b->insn->addr + b->insn->len;
	struct ana_item *it = ana_tally_at(&t->branch, &b->code, NULL);

	(void)run;
	if (it) {
		it->n[taken ? EDGE_TAKEN : EDGE_NOT] += b->count;
		it->user = kind_of(b->insn);
	}
	it = ana_tally_at(&t->edge, &b->code, &b->target);
	if (it) {
		it->n[0] += b->count;
		it->user = kind_of(b->insn);
	}
}

/* ---- sampling ---- */

/* The branches between where one led and the next. */
static const struct straight *go_straight(struct thread *t, struct replay_run *run, uint64_t from,
					  uint64_t to)
{
	struct straight *s = &t->straights[(from ^ from >> 10 ^ to << 3) % STRAIGHTS];
	uint8_t bytes[4096 + INSN_MAX];
	struct insn in;

	if (s->known && s->from == from && s->to == to)
		return s;
	*s = (struct straight){ .from = from, .to = to, .known = true };
	if (to < from || to - from > 4096)
		return s;
	size_t have = replay_run_fetch(run, from, bytes, (size_t)(to - from) + INSN_MAX);
	for (uint64_t at = from; at < to && s->n < sizeof(s->branch) / sizeof(s->branch[0]);
	     at += in.len) {
		size_t off = (size_t)(at - from);
		if (off >= have || insn_decode(&in, bytes + off, have - off, at) <= 0)
			break;
		if (in.attr & INSN_A_COND)
			s->branch[s->n++] = at;
	}
	return s;
}

static void add_sample(struct thread *t, struct replay_run *run, uint64_t at, bool taken)
{
	struct replay_code code;

	replay_run_code(run, at, &code);
	struct ana_item *it = ana_tally_at(&t->branch, &code, NULL);
	if (it)
		it->n[taken ? EDGE_SEEN_TAKEN : EDGE_SEEN_NOT]++;
}

/* The last M branches of what the buffer tells, newest first. */
static void take_sample(struct thread *t, struct replay_run *run)
{
	uint64_t n = t->taken < t->o->ring ? t->taken : t->o->ring, left = t->o->last;

	t->samples++;
	for (uint64_t i = 1; i <= n && left; i++) {
		uint64_t k = (t->taken - i) % t->o->ring;
		add_sample(t, run, t->ring[k].from, true);
		if (!--left || i == n)
			break;
		uint64_t before = (t->taken - i - 1) % t->o->ring;
		const struct straight *s = go_straight(t, run, t->ring[before].to, t->ring[k].from);
		for (unsigned j = s->n; j-- && left; left--)
			add_sample(t, run, s->branch[j], false);
	}
}

static void edge(void *data, struct replay_run *run, const struct replay_edge *e)
{
	struct thread *t = data;

	t->branches++;
	if (e->kind != REPLAY_SEE_FALL) {
		t->ring[t->taken % t->o->ring].from = e->from;
		t->ring[t->taken % t->o->ring].to = e->to;
		t->taken++;
	}
	if ((t->o->by_instruction ? e->steps : t->branches) < t->next)
		return;
	if (t->taken >= t->o->ring)
		take_sample(t, run);
	t->next += next_period(t);
}

static void end(void *ctx, struct replay_run *run, void *data)
{
	struct edges *o = ctx;
	struct thread *t = data;

	(void)run;
	o->e.samples += t->samples;
	ana_tally_add(&o->e.count, &t->count);
	ana_tally_add(&o->e.branch, &t->branch);
	ana_tally_add(&o->e.edge, &t->edge);
	free(t->straights);
	free(t);
}

/* How far the sampled profile is from the exact one, both as shares of all: half the sum of the
 * differences, so between 0 and 1; and how far independent samples of that number would be. */
static void sampled_distance(const struct ana_edges *e, double *distance, double *expected,
			     uint64_t *sampled)
{
	double exact = 0, seen = 0, sum = 0, theory = 0;

	for (size_t i = 0; i < e->branch.n; i++) {
		const uint64_t *n = e->branch.item[i].n;
		exact += (double)n[EDGE_TAKEN] + (double)n[EDGE_NOT];
		seen += (double)n[EDGE_SEEN_TAKEN] + (double)n[EDGE_SEEN_NOT];
	}
	*sampled = (uint64_t)seen;
	for (size_t i = 0; i < e->branch.n && seen > 0; i++) {
		const uint64_t *n = e->branch.item[i].n;
		for (unsigned k = 0; k < 2; k++) {
			double p = (double)n[k] / exact, q = (double)n[k + 2] / seen;
			sum += p > q ? p - q : q - p;
			/* the mean of the deviation of a share, normally distributed */
			theory += sqrt(2 / 3.14159265358979 * p * (1 - p) / seen);
		}
	}
	*distance = seen > 0 ? sum / 2 : 1;
	*expected = seen > 0 ? theory / 2 : 1;
}

/* ---- the answer ---- */

static uint64_t executed(const struct ana_item *it)
{
	return it->n[EDGE_TAKEN] + it->n[EDGE_NOT];
}

static int by_count(const void *x, const void *y)
{
	const struct ana_item *a = *(struct ana_item *const *)x, *b = *(struct ana_item *const *)y;

	if (executed(a) != executed(b))
		return executed(a) > executed(b) ? -1 : 1;
	int c = ana_code_cmp(&a->a, &b->a);
	return c ? c : ana_code_cmp(&a->b, &b->b);
}

static void place_text(struct ana_job *job, const struct replay_code *code, char *place, char *line,
		       size_t size)
{
	const struct ana_function *fn = ana_function_of(job->functions, code);
	char name[240];
	const char *file = NULL;
	int number = 0;

	ana_function_text(fn, name, sizeof(name));
	snprintf(place, size, "%s+%#" PRIx64, name, code->offset - fn->code.offset);
	line[0] = 0;
	if (code->module >= 0 &&
	    ana_symbols_line(ana_functions_symbols(job->functions), (size_t)code->module,
			     code->offset, &file, &number))
		snprintf(line, size, "%.200s:%d", ana_base(file), number);
}

static const char *kind_text(uint32_t kind)
{
	if (kind & EDGE_CALL)
		return kind & EDGE_INDIRECT ? "indirect call" : "call";
	if (kind & EDGE_RET)
		return "return";
	if (kind & EDGE_COND)
		return "conditional";
	return kind & EDGE_INDIRECT ? "indirect jump" : "jump";
}

static struct ana_item **sorted(const struct ana_tally *t)
{
	struct ana_item **s = calloc(t->n + 1, sizeof(*s));

	for (size_t i = 0; s && i < t->n; i++)
		s[i] = &t->item[i];
	if (s)
		qsort(s, t->n, sizeof(*s), by_count);
	return s;
}

static int print_branches(struct edges *o)
{
	static const struct ana_column columns[] = {
		{ "taken", ANA_NUMBER },   { "not taken", ANA_NUMBER },	  { "kind", ANA_TEXT },
		{ "place", ANA_TEXT },	   { "line", ANA_TEXT },	  { "module", ANA_TEXT },
		{ "sampled", ANA_NUMBER }, { "sampled not", ANA_NUMBER }, { 0 },
	};
	struct ana_column c[9];
	struct ana_item **s = sorted(&o->e.branch);

	memcpy(c, columns, sizeof(columns));
	if (!o->sample)
		c[6] = (struct ana_column){ 0 };
	struct ana_table *t = ana_table_new("branches", c);
	if (!s || !t)
		return -1;
	ana_table_limit(t, o->limit);
	for (size_t i = 0; i < o->e.branch.n; i++) {
		char place[300], line[300];
		place_text(o->e.job, &s[i]->a, place, line, sizeof(place));
		const struct ana_function *fn = ana_function_of(o->e.job->functions, &s[i]->a);
		ana_table_row(t, (struct ana_cell[]){ { .number = s[i]->n[EDGE_TAKEN] },
						      { .number = s[i]->n[EDGE_NOT] },
						      { .text = kind_text(s[i]->user) },
						      { .text = place },
						      { .text = line },
						      { .text = ana_base(fn->module) },
						      { .number = s[i]->n[EDGE_SEEN_TAKEN] },
						      { .number = s[i]->n[EDGE_SEEN_NOT] } });
	}
	ana_table_end(&o->e.job->out, t);
	free(s);
	return 0;
}

/* The call graph: calls by function and function. */
static int print_calls(struct edges *o)
{
	struct ana_functions *f = o->e.job->functions;
	struct ana_tally graph = { 0 };

	for (size_t i = 0; i < o->e.edge.n; i++) {
		const struct ana_item *it = &o->e.edge.item[i];
		if (!(it->user & EDGE_CALL))
			continue;
		const struct ana_function *a = ana_function_of(f, &it->a);
		const struct ana_function *b = ana_function_of(f, &it->b);
		struct replay_code from = a->code, to = b->code;
		/* code without a name is apart from a function that begins where a module does */
		from.process |= a->name ? 0 : 1u << 31;
		to.process |= b->name ? 0 : 1u << 31;
		struct ana_item *g = ana_tally_at(&graph, &from, &to);
		if (g)
			g->n[0] += it->n[0];
	}
	ana_tally_sort(&graph);
	struct ana_item **s = sorted(&graph);
	struct ana_table *t = ana_table_new("calls", (struct ana_column[]){ { "calls", ANA_NUMBER },
									    { "caller", ANA_TEXT },
									    { "callee", ANA_TEXT },
									    { "module", ANA_TEXT },
									    { 0 } });
	if (!s || !t || graph.failed)
		return -1;
	ana_table_limit(t, o->limit);
	for (size_t i = 0; i < graph.n; i++) {
		struct replay_code from = s[i]->a, to = s[i]->b;
		char caller[300], callee[300];
		from.process &= ~(1u << 31);
		to.process &= ~(1u << 31);
		ana_function_text(ana_function_of(f, &from), caller, sizeof(caller));
		const struct ana_function *b = ana_function_of(f, &to);
		ana_function_text(b, callee, sizeof(callee));
		ana_table_row(t, (struct ana_cell[]){ { .number = s[i]->n[0] },
						      { .text = caller },
						      { .text = callee },
						      { .text = ana_base(b->module) } });
	}
	ana_table_end(&o->e.job->out, t);
	free(s);
	ana_tally_free(&graph);
	return 0;
}

static void print_sampling(struct edges *o)
{
	double distance, expected;
	uint64_t sampled;

	sampled_distance(&o->e, &distance, &expected, &sampled);
	struct ana_table *t =
		ana_table_new("sampling", (struct ana_column[]){ { "samples", ANA_NUMBER },
								 { "branches", ANA_NUMBER },
								 { "distance", ANA_SHARE },
								 { "independent", ANA_SHARE },
								 { 0 } });
	const uint64_t unit = 1000000000;
	ana_table_row(t,
		      (struct ana_cell[]){
			      { .number = o->e.samples },
			      { .number = sampled },
			      { .number = (uint64_t)(distance * (double)unit), .whole = unit },
			      { .number = (uint64_t)(expected * (double)unit), .whole = unit } });
	ana_table_end(&o->e.job->out, t);
}

static int write_file(struct edges *o, unsigned which, struct dj_error *err)
{
	static void (*const writers[FILES])(struct ana_edges *,
					    FILE *) = { ana_edges_bolt, ana_edges_clang,
							ana_edges_callgrind, ana_edges_gcc };
	FILE *f = o->file[which] ? ana_create(o->e.job, o->file[which], err) : NULL;

	if (!o->file[which])
		return 0;
	if (!f)
		return -1;
	writers[which](&o->e, f);
	bool bad = ferror(f);
	if (fclose(f) || bad)
		return dj_fail_errno(err, 1, "cannot write %s", o->file[which]);
	return 0;
}

static int prepare(struct edges *o, struct ana_job *job, struct dj_error *err)
{
	o->e.job = job;
	o->period = o->period ? o->period : 10007;
	o->ring = o->ring ? o->ring : 32;
	o->last = o->last ? o->last : o->ring;
	if (o->ring > RING_MAX)
		return dj_fail(err, 1, "--ring takes a number of at most %u", RING_MAX);
	if (o->last > o->ring)
		return dj_fail(err, 1, "--last takes a number of at most --ring's, %" PRIu64,
			       o->ring);
	if (o->random >= o->period)
		return dj_fail(err, 1, "--random takes a number below --period's, %" PRIu64,
			       o->period);
	o->listener = (struct replay_listener){
		.ctx = o,
		.begin = begin,
		.end = end,
		.count = count,
		.branch = branch,
		.translated = true,
		.late = true,
	};
	if (o->sample) {
		o->listener.kinds =
			REPLAY_SEE_JUMP | REPLAY_SEE_FALL | REPLAY_SEE_CALL | REPLAY_SEE_RETURN;
		o->listener.edge = edge;
	}
	return 0;
}

static int run(void *state, struct ana_job *job, struct dj_error *err)
{
	struct edges *o = state;
	const struct replay_listener *listeners[] = { &o->listener };
	bool files = false;
	int res;

	if (prepare(o, job, err) || ana_pass(job, listeners, 1, err))
		return -1;
	ana_tally_sort(&o->e.count);
	ana_tally_sort(&o->e.branch);
	ana_tally_sort(&o->e.edge);
	if (o->e.count.failed || o->e.branch.failed || o->e.edge.failed)
		return dj_fail(err, 1, "out of memory");
	for (unsigned i = 0; i < FILES; i++) {
		if (write_file(o, i, err))
			return -1;
		files |= o->file[i] != NULL;
	}
	if (files && !job->out.json && !o->calls && !o->sample)
		return 0;
	if (!o->limit && !job->out.json)
		o->limit = 40;
	job->out.many = o->sample;
	if (o->sample)
		print_sampling(o);
	res = o->calls ? print_calls(o) : print_branches(o);
	return res ? dj_fail(err, 1, "out of memory") : 0;
}

static int option(void *state, unsigned which, const char *arg, struct dj_error *err)
{
	struct edges *o = state;

	switch (which) {
	case OPT_SAMPLE:
		o->sample = true;
		return 0;
	case OPT_CALLS:
		o->calls = true;
		return 0;
	case OPT_PERIOD:
		return ana_number("period", arg, 1, &o->period, err);
	case OPT_RANDOM:
		return ana_number("random", arg, 0, &o->random, err);
	case OPT_RING:
		return ana_number("ring", arg, 1, &o->ring, err);
	case OPT_LAST:
		return ana_number("last", arg, 1, &o->last, err);
	case OPT_SEED:
		return ana_number("seed", arg, 0, &o->seed, err);
	case OPT_LIMIT:
		return ana_number("limit", arg, 1, &o->limit, err);
	case OPT_UNIT:
		o->by_instruction = !strcmp(arg, "instructions");
		if (o->by_instruction || !strcmp(arg, "branches"))
			return 0;
		return dj_fail(err, 1, "--unit takes branches or instructions, not %s", arg);
	default:
		o->file[which - OPT_BOLT] = arg;
		return 0;
	}
}

const struct ana_analysis ana_edges = {
	.name = "edges",
	.args = "[OPTIONS] [FILE]",
	.help = "count how often branches were taken",
	.usage =
		"Usage: deja edges [OPTIONS] [FILE]\n"
		"How often each branch was taken and not taken.\n"
		"\n"
		"      --calls         the call graph: which function called which how often\n"
		"      --limit N       so many rows (40)\n"
		"      --bolt F        write F for llvm-bolt (fdata)\n"
		"      --clang F       write F for clang -fprofile-sample-use\n"
		"      --gcc F         write F for gcc -fauto-profile\n"
		"      --callgrind F   write F for callgrind_annotate and kcachegrind, with jumps\n"
		"      --sample        beside the exact profile one of samples, and how far it is "
		"off:\n"
		"      --period N      at every N-th branch (10007)\n"
		"      --random N      more or less up to N, at random (0)\n"
		"      --unit UNIT     the period is of branches, or of instructions\n"
		"      --ring N        the buffer has the last N taken branches (32)\n"
		"      --last N        of the path in it count the last N branches (as --ring)\n"
		"      --seed N        for other random numbers\n",
	.options = { [OPT_SAMPLE] = { "sample", false },
		     [OPT_PERIOD] = { "period", true },
		     [OPT_RANDOM] = { "random", true },
		     [OPT_RING] = { "ring", true },
		     [OPT_LAST] = { "last", true },
		     [OPT_UNIT] = { "unit", true },
		     [OPT_SEED] = { "seed", true },
		     [OPT_CALLS] = { "calls", false },
		     [OPT_LIMIT] = { "limit", true },
		     [OPT_BOLT] = { "bolt", true, .writes = true },
		     [OPT_CLANG] = { "clang", true, .writes = true },
		     [OPT_CALLGRIND] = { "callgrind", true, .writes = true },
		     [OPT_GCC] = { "gcc", true, .writes = true } },
	.translated = true,
	.size = sizeof(struct edges),
	.option = option,
	.run = run,
};
