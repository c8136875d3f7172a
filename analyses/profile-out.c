/*
 * A profile in other programs' formats: callgrind's (Valgrind's manual, "Callgrind Format
 * Specification"), folded stacks (a path in a line, as FlameGraph's stackcollapse scripts write),
 * speedscope's (its file-format-schema.json).
 */
#include "analyses/profile.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A name in a format of lines: what is no letter as '?'. */
static void put_name(FILE *f, const char *text)
{
	ana_put(f, text);
}

/* ---- callgrind ---- */

/* Costs of a function: its own by line, and its calls by line and callee. */
struct cost {
	const struct ana_function *fn, *callee;
	const char *file;
	int line, callee_line;
	const char *callee_file;
	uint64_t count, inclusive;
};

struct costs {
	struct ana_profile *p;
	struct cost *c;
	size_t n;
};

static void line_of(struct ana_profile *p, const struct replay_code *code, const char **file,
		    int *line)
{
	*file = NULL;
	*line = 0;
	if (code->module >= 0 && !ana_symbols_line(ana_functions_symbols(p->job->functions),
						   (size_t)code->module, code->offset, file, line))
		*file = NULL;
	if (!*file)
		*line = 0;
}

static void add_call(void *ctx, const struct ana_node *node, unsigned depth)
{
	struct costs *k = ctx;
	struct cost *c = &k->c[k->n];

	if (!depth || !node->calls)
		return;
	*c = (struct cost){ .callee = node->fn, .count = node->calls, .inclusive = node->total };
	c->fn = ana_function_of(k->p->job->functions, &node->from);
	line_of(k->p, &node->from, &c->file, &c->line);
	line_of(k->p, &node->fn->code, &c->callee_file, &c->callee_line);
	k->n++;
}

static int fn_cmp(const struct ana_function *a, const struct ana_function *b)
{
	if (a == b)
		return 0;
	if (!a || !b)
		return a ? 1 : -1;
	int c = ana_code_cmp(&a->code, &b->code);
	return c ? c : a->name ? 1 : -1;
}

static int by_function(const void *x, const void *y)
{
	const struct cost *a = x, *b = y;
	int c = fn_cmp(a->fn, b->fn);

	c = c ? c : fn_cmp(a->callee, b->callee);
	if (c)
		return c;
	c = a->file && b->file ? strcmp(a->file, b->file) : !!a->file - !!b->file;
	return c ? c : a->line - b->line;
}

static void put_function(FILE *f, const struct ana_function *fn)
{
	/* the whole of it: a reader takes functions with the same name for one */
	if (fn->name) {
		put_name(f, fn->name);
	} else {
		fputs("??? (", f);
		put_name(f, ana_base(fn->module));
		putc(')', f);
	}
	putc('\n', f);
}

static void put_cost(FILE *f, struct ana_profile *p, const struct cost *c, const char **file)
{
	const char *in = c->file ? c->file : "???";
	const char *own;
	int line;

	line_of(p, &c->fn->code, &own, &line);
	if (strcmp(in, *file) != 0) {
		fputs(!strcmp(in, own ? own : "???") ? "fe=" : "fi=", f);
		put_name(f, in);
		putc('\n', f);
		*file = in;
	}
	if (c->callee) {
		fputs("cob=", f);
		put_name(f, c->callee->module ? c->callee->module : "???");
		fputs("\ncfi=", f);
		put_name(f, c->callee_file ? c->callee_file : "???");
		fputs("\ncfn=", f);
		put_function(f, c->callee);
		fprintf(f, "calls=%" PRIu64 " %d\n%d %" PRIu64 "\n", c->count, c->callee_line,
			c->line, c->inclusive);
	} else {
		fprintf(f, "%d %" PRIu64 "\n", c->line, c->count);
	}
}

static size_t merge(struct cost *c, size_t n)
{
	size_t kept = 0;

	qsort(c, n, sizeof(*c), by_function);
	for (size_t i = 0; i < n; i++) {
		if (kept && !by_function(&c[kept - 1], &c[i])) {
			c[kept - 1].count += c[i].count;
			c[kept - 1].inclusive += c[i].inclusive;
		} else {
			c[kept++] = c[i];
		}
	}
	return kept;
}

/* Returns the file that the following lines are in. */
static const char *begin_function(FILE *f, struct ana_profile *p, const struct ana_function *fn)
{
	const char *file;
	int line;

	line_of(p, &fn->code, &file, &line);
	file = file ? file : "???";
	fputs("\nob=", f);
	put_name(f, fn->module ? fn->module : "???");
	fputs("\nfl=", f);
	put_name(f, file);
	fputs("\nfn=", f);
	put_function(f, fn);
	return file;
}

void ana_profile_callgrind(struct ana_profile *p, FILE *f)
{
	struct costs k = { .p = p };
	const char *file = "???";

	k.c = calloc(p->count.n + p->tree.n + 1, sizeof(*k.c));
	if (!k.c)
		return;
	for (size_t i = 0; i < p->count.n; i++) {
		struct cost *c = &k.c[k.n++];
		c->fn = ana_function_of(p->job->functions, &p->count.item[i].a);
		c->count = p->count.item[i].n[0];
		line_of(p, &p->count.item[i].a, &c->file, &c->line);
	}
	ana_tree_walk(&p->tree, add_call, &k);
	fprintf(f,
		"# callgrind format\nversion: 1\ncreator: deja\npositions: line\nevents: Ir\n"
		"summary: %" PRIu64 "\n",
		p->total);
	k.n = merge(k.c, k.n);
	for (size_t i = 0; i < k.n; i++) {
		if (!i || k.c[i].fn != k.c[i - 1].fn)
			file = begin_function(f, p, k.c[i].fn);
		put_cost(f, p, &k.c[i], &file);
	}
	fprintf(f, "\ntotals: %" PRIu64 "\n", p->total);
	free(k.c);
}

/* ---- paths ---- */

/* What is written for a node that has a path of its own. Files whose paths are written one by one
 * would grow with the square of how deep a recursion goes: the deepest that is written has all that
 * is below it. */
static uint64_t written(const struct ana_node *node, unsigned depth)
{
	return depth + 1 < ANA_PROFILE_DEEPEST	  ? node->self
	       : depth + 1 == ANA_PROFILE_DEEPEST ? node->total
						  : 0;
}

static void say_deepest(struct ana_profile *p, const char *what, bool deeper)
{
	if (deeper)
		ana_out_warn(&p->job->out,
			     "%s: calls deeper than %u belong to the functions that they are below",
			     what, ANA_PROFILE_DEEPEST);
}

/* ---- folded stacks ---- */

struct folding {
	const struct ana_profile *p;
	FILE *f;
	const struct ana_node **path;
	size_t cap;
	bool deeper; /* than is written */
};

static void put_folded_name(FILE *f, const char *name)
{
	char text[300];
	size_t n = 0;

	for (; name[n] && n + 1 < sizeof(text); n++)
		text[n] = name[n] == ';' || name[n] == '\n' ? ':' : name[n];
	text[n] = 0;
	put_name(f, text);
}

static void fold(void *ctx, const struct ana_node *node, unsigned depth)
{
	struct folding *k = ctx;
	char name[300];
	uint64_t count = written(node, depth);

	k->deeper |= depth >= ANA_PROFILE_DEEPEST;
	if (depth >= ANA_PROFILE_DEEPEST)
		return;
	if (depth >= k->cap) {
		size_t cap = k->cap ? 2 * k->cap : 256;
		const struct ana_node **grown = realloc(k->path, cap * sizeof(*grown));
		if (!grown)
			return;
		k->path = grown;
		k->cap = cap;
	}
	k->path[depth] = node;
	if (!count)
		return;
	for (unsigned i = 0; i <= depth; i++) {
		if (i)
			putc(';', k->f);
		ana_node_text(k->p, k->path[i], name, sizeof(name));
		put_folded_name(k->f, name);
	}
	fprintf(k->f, " %" PRIu64 "\n", count);
}

void ana_profile_folded(struct ana_profile *p, FILE *f)
{
	struct folding k = { .p = p, .f = f };

	ana_tree_walk(&p->merged, fold, &k);
	say_deepest(p, "folded stacks", k.deeper);
	free(k.path);
}

/* ---- speedscope ---- */

struct scoping {
	const struct ana_profile *p;
	FILE *f;
	bool weights, more;
	int32_t thread; /* whose paths are written */
	bool on;
	uint32_t *path; /* indices of nodes */
	size_t cap;
	bool deeper; /* than is written */
};

static void scope(void *ctx, const struct ana_node *node, unsigned depth)
{
	struct scoping *k = ctx;
	uint64_t count = written(node, depth);

	if (!depth)
		k->on = node->thread == k->thread;
	k->deeper |= depth >= ANA_PROFILE_DEEPEST;
	if (!k->on || depth >= ANA_PROFILE_DEEPEST)
		return;
	if (depth >= k->cap) {
		size_t cap = k->cap ? 2 * k->cap : 256;
		uint32_t *grown = realloc(k->path, cap * sizeof(*grown));
		if (!grown)
			return;
		k->path = grown;
		k->cap = cap;
	}
	k->path[depth] = (uint32_t)(node - k->p->merged.node);
	if (!count)
		return;
	fputs(k->more ? "," : "", k->f);
	k->more = true;
	if (k->weights) {
		fprintf(k->f, "%" PRIu64, count);
		return;
	}
	putc('[', k->f);
	for (unsigned i = 0; i <= depth; i++)
		fprintf(k->f, "%s%" PRIu32, i ? "," : "", k->path[i] - 1);
	putc(']', k->f);
}

void ana_profile_speedscope(struct ana_profile *p, FILE *f)
{
	struct scoping k = { .p = p, .f = f };
	char name[300];

	fputs("{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\","
	      "\"exporter\":\"deja\",\"shared\":{\"frames\":[",
	      f);
	for (uint32_t i = 1; i < p->merged.n; i++) {
		ana_node_text(p, &p->merged.node[i], name, sizeof(name));
		fputs(i > 1 ? ",\n{\"name\":" : "\n{\"name\":", f);
		ana_put_json(f, name);
		putc('}', f);
	}
	fputs("]},\"profiles\":[", f);
	for (const struct ana_lane *l = p->lanes; l; l = l->next) {
		snprintf(name, sizeof(name), "thread %d", l->tid);
		fprintf(f,
			"%s\n{\"type\":\"sampled\",\"name\":\"%s\",\"unit\":\"none\","
			"\"startValue\":0,\"endValue\":%" PRIu64 ",\"samples\":[",
			l == p->lanes ? "" : ",", name, l->instructions);
		k.thread = (int32_t)l->thread;
		k.more = k.weights = false;
		ana_tree_walk(&p->merged, scope, &k);
		fputs("],\"weights\":[", f);
		k.more = false;
		k.weights = true;
		ana_tree_walk(&p->merged, scope, &k);
		fputs("]}", f);
	}
	fputs("]}\n", f);
	say_deepest(p, "speedscope", k.deeper);
	free(k.path);
}
