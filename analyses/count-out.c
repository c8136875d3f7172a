/* What deja count answers (analyses/count.h). */
#include "analyses/count.h"
#include "analyses/calltree.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Of threads that end in any order the same are kept: the first by position. */
void ana_count_add_report(struct count *o, struct count_report *r)
{
	struct count_report **at = &o->report;

	while (*at && replay_pos_cmp(&(*at)->pos, &r->pos) < 0)
		at = &(*at)->next;
	r->next = *at;
	*at = r;
	if (++o->n_reports <= COUNT_REPORTS)
		return;
	for (at = &o->report; (*at)->next; at = &(*at)->next)
		;
	free(*at);
	*at = NULL;
	o->n_reports--;
}

static void line_text(struct count *o, const struct replay_code *code, char *buf, size_t size)
{
	const char *file = NULL;
	int line = 0;

	buf[0] = 0;
	if (code->module >= 0 && ana_symbols_line(ana_functions_symbols(o->job->functions),
						  (size_t)code->module, code->offset, &file, &line))
		snprintf(buf, size, "%.200s:%d", ana_base(file), line);
}

static int print_reports(struct count *o)
{
	struct ana_table *t =
		ana_table_new("reports", (struct ana_column[]){ { "position", ANA_TEXT },
								{ "line", ANA_TEXT },
								{ "stack", ANA_TEXT },
								{ 0 } });

	if (!t)
		return -1;
	ana_table_limit(t, o->limit);
	for (const struct count_report *r = o->report; r; r = r->next) {
		char pos[64], line[240], stack[4000] = "";
		size_t used = 0;
		replay_pass_text(o->job->t, &r->pos, pos, sizeof(pos));
		line_text(o, &r->code[0], line, sizeof(line));
		for (size_t i = 0; i < r->n; i++) {
			char name[150];
			ana_function_text(ana_function_of(o->job->functions, &r->code[i]), name,
					  sizeof(name));
			used += (size_t)snprintf(stack + used, sizeof(stack) - used, "%s%s",
						 i ? " < " : "", name);
		}
		if (r->more)
			snprintf(stack + used, sizeof(stack) - used, " < %zu more", r->more);
		ana_table_row(t, (struct ana_cell[]){
					 { .text = pos }, { .text = line }, { .text = stack } });
	}
	ana_table_end(&o->job->out, t);
	if (o->reports > o->n_reports)
		ana_out_lack(&o->job->out, "(the first %zu of %" PRIu64 " reports)", o->n_reports,
			     o->reports);
	return 0;
}

static bool in_types(const struct count *o, const struct ana_item *it)
{
	return !o->types || o->types & COUNT_UNALIGNED || it->user & o->types;
}

static bool in_word(const struct ana_item *it, size_t word)
{
	return it->b.offset >> word & 1;
}

/* How often the first instruction of a stretch was executed beyond all branches there. */
static uint64_t beyond_branches(const struct count *o, size_t word, const struct replay_code *code,
				uint64_t executed)
{
	uint64_t by_branch = 0;

	for (const struct ana_item *it = ana_tally_sorted(&o->into, code);
	     it && it < o->into.item + o->into.n && !ana_code_cmp(&it->a, code); it++)
		if (it->b.offset == word)
			by_branch = it->n[COUNT_BRANCHED];
	return executed > by_branch ? executed - by_branch : 0;
}

/* How often control came into what a --code word has from outside: by branches, and where it went
 * on or was put to the first instructions otherwise, which is what these were executed beyond all
 * branches there. */
static uint64_t entered(const struct count *o, size_t word)
{
	uint64_t n = 0;
	bool before = false; /* the instruction before is in it */

	for (size_t i = 0; i < o->into.n; i++)
		if (o->into.item[i].b.offset == word)
			n += o->into.item[i].n[COUNT_FROM_OUTSIDE];
	for (size_t i = 0, end; i < o->item.n; i = end) {
		const struct replay_code *code = &o->item.item[i].a;
		uint64_t executed = 0;
		bool here = false;
		for (end = i; end < o->item.n && !ana_code_cmp(&o->item.item[end].a, code); end++)
			if (in_word(&o->item.item[end], word)) {
				executed += o->item.item[end].n[COUNT_EXECUTED];
				here = true;
			}
		if (here && !before)
			n += beyond_branches(o, word, code, executed);
		before = here;
	}
	return n;
}

static int print_code(struct count *o)
{
	struct ana_table *t =
		ana_table_new("code", (struct ana_column[]){ { "executed", ANA_NUMBER },
							     { "entered", ANA_NUMBER },
							     { "range", ANA_TEXT },
							     { 0 } });
	bool plain = !o->start.n && !o->threshold && !(o->types & COUNT_UNALIGNED);

	if (!t)
		return -1;
	for (size_t w = 0; w < (o->n_word[W_CODE] ? o->n_word[W_CODE] : 1); w++) {
		bool all = !o->n_word[W_CODE];
		uint64_t n = 0;
		for (size_t i = 0; i < o->item.n; i++)
			if ((all || in_word(&o->item.item[i], w)) && in_types(o, &o->item.item[i]))
				n += o->item.item[i].n[COUNT_EXECUTED];
		ana_table_row(t, (struct ana_cell[]){
					 { .number = n },
					 { .number = plain && !all ? entered(o, w) : 0,
					   .none = !plain || all },
					 { .text = all ? "everything" : o->word[W_CODE][w] } });
	}
	ana_table_end(&o->job->out, t);
	return 0;
}

static int print_data(struct count *o)
{
	struct ana_table *t = ana_table_new("data", (struct ana_column[]){ { "reads", ANA_NUMBER },
									   { "writes", ANA_NUMBER },
									   { "data", ANA_TEXT },
									   { 0 } });

	if (!t)
		return -1;
	for (size_t i = 0; i < o->n_data; i++)
		ana_table_row(t, (struct ana_cell[]){ { .number = o->accesses[i][0] },
						      { .number = o->accesses[i][1] },
						      { .text = o->word[W_DATA][i] } });
	ana_table_end(&o->job->out, t);
	return 0;
}

/* ---- groups ---- */

struct group {
	struct replay_code code;
	const struct ana_function *fn;
	uint64_t n, entered, type[6];
};

static int by_key(const void *x, const void *y)
{
	const struct group *a = x, *b = y;
	int c = ana_code_cmp(&a->code, &b->code);

	return c ? c : a->fn == b->fn ? 0 : a->fn < b->fn ? -1 : 1;
}

static int by_size(const void *x, const void *y)
{
	const struct group *a = x, *b = y;

	if (a->n != b->n)
		return a->n > b->n ? -1 : 1;
	return ana_code_cmp(&a->code, &b->code);
}

static struct group group_of(struct count *o, const struct ana_item *it)
{
	struct group g = { .code = it->a, .n = it->n[COUNT_EXECUTED] };

	g.fn = ana_function_of(o->job->functions, &it->a);
	if (!strcmp(o->by, "function")) {
		g.code = g.fn->code;
		g.entered = it->a.offset == g.fn->code.offset && g.fn->name ? g.n : 0;
	} else if (!strcmp(o->by, "module")) {
		g.code.offset = 0;
	} else if (!strcmp(o->by, "page")) {
		g.code.offset &= ~(uint64_t)4095;
	}
	if (strcmp(o->by, "function") && strcmp(o->by, "instruction"))
		g.fn = NULL;
	for (unsigned k = 0; k < 6; k++)
		g.type[k] = it->user & 1u << k ? g.n : 0;
	return g;
}

static size_t merge(struct group *g, size_t n)
{
	size_t kept = 0;

	qsort(g, n, sizeof(*g), by_key);
	for (size_t i = 0; i < n; i++) {
		if (!kept || by_key(&g[kept - 1], &g[i])) {
			g[kept++] = g[i];
			continue;
		}
		g[kept - 1].n += g[i].n;
		g[kept - 1].entered += g[i].entered;
		for (unsigned k = 0; k < 6; k++)
			g[kept - 1].type[k] += g[i].type[k];
	}
	qsort(g, kept, sizeof(*g), by_size);
	return kept;
}

static void group_text(struct count *o, const struct group *g, char *buf, size_t size)
{
	char name[300];
	const char *module =
		g->code.module < 0
			? "code made at run time"
			: ana_base(dj_trace_module(o->job->t, (size_t)g->code.module)->path);

	if (!strcmp(o->by, "module")) {
		snprintf(buf, size, "%s", module);
	} else if (!strcmp(o->by, "page")) {
		snprintf(buf, size, "%s+%#" PRIx64, module, g->code.offset);
	} else {
		ana_function_text(g->fn, name, sizeof(name));
		if (strcmp(o->by, "function"))
			snprintf(buf, size, "%s+%#" PRIx64, name,
				 g->code.offset - g->fn->code.offset);
		else
			snprintf(buf, size, "%s", name);
	}
}

static int print_groups(struct count *o)
{
	struct group *g = calloc(o->item.n + 1, sizeof(*g));
	size_t n = 0;
	uint64_t whole = 0;
	struct ana_table *t =
		ana_table_new(o->by, (struct ana_column[]){ { "share", ANA_SHARE },
							    { "executed", ANA_NUMBER },
							    { "entered", ANA_NUMBER },
							    { "branches", ANA_NUMBER },
							    { "calls", ANA_NUMBER },
							    { "returns", ANA_NUMBER },
							    { "strings", ANA_NUMBER },
							    { "memory", ANA_NUMBER },
							    { "vector", ANA_NUMBER },
							    { "place", ANA_TEXT },
							    { 0 } });

	if (!g || !t)
		return -1;
	for (size_t i = 0; i < o->item.n; i++) {
		const struct ana_item *it = &o->item.item[i];
		if (!in_types(o, it) || (o->code.n && !it->b.offset))
			continue;
		g[n++] = group_of(o, it);
		whole += it->n[COUNT_EXECUTED];
	}
	n = merge(g, n);
	ana_table_limit(t, o->limit);
	for (size_t i = 0; i < n; i++) {
		char text[340];
		if (o->hot && g[i].n * 100 < o->hot * whole)
			break;
		group_text(o, &g[i], text, sizeof(text));
		ana_table_row(t, (struct ana_cell[]){ { .number = g[i].n, .whole = whole },
						      { .number = g[i].n },
						      { .number = g[i].entered,
							.none = strcmp(o->by, "function") != 0 },
						      { .number = g[i].type[0] },
						      { .number = g[i].type[1] },
						      { .number = g[i].type[2] },
						      { .number = g[i].type[3] },
						      { .number = g[i].type[4] },
						      { .number = g[i].type[5] },
						      { .text = text } });
	}
	ana_table_end(&o->job->out, t);
	free(g);
	return 0;
}

int ana_count_print(struct count *o)
{
	bool groups = o->by || o->hot;

	if (o->hot && !o->by)
		o->by = "function";
	o->job->out.many = o->threshold || o->n_data || o->start.n;
	if (o->start.n) {
		struct ana_table *t = ana_table_new(
			"marks", (struct ana_column[]){ { "times", ANA_NUMBER },
							{ "instructions", ANA_NUMBER },
							{ 0 } });
		ana_table_row(
			t, (struct ana_cell[]){ { .number = o->times }, { .number = o->whole } });
		ana_table_end(&o->job->out, t);
	}
	if (o->n_data && print_data(o))
		return -1;
	if (groups ? print_groups(o)
		   : (o->n_word[W_CODE] || o->types || !o->n_data) && print_code(o))
		return -1;
	return o->threshold ? print_reports(o) : 0;
}

/* ---- callers ---- */

struct callers {
	struct count *o;
	struct ana_ranges ranges;
	struct ana_tree tree, merged, inverted;
	struct replay_listener listener;
	struct ana_path path;
	bool failed;
};

static void *begin(void *ctx, struct replay_run *run)
{
	struct callers *k = ctx;
	struct ana_grower *g = ana_grower_new(&k->o->rules, run);

	if (g)
		g->watched = &k->ranges;
	else
		replay_run_fail(run, "out of memory");
	return g;
}

static void end(void *ctx, struct replay_run *run, void *data)
{
	ana_grower_end(data, run, &((struct callers *)ctx)->tree);
}

/* By a name or a place in a module; or by its address, of what was called there (begin()). */
static bool asked_for(const struct callers *k, const struct ana_node *node)
{
	return node->watched ||
	       (node->fn->name && ana_ranges_have(&k->ranges, &node->fn->code, UINT64_MAX));
}

/* Where the function is in the tree, the path above it turned upside down is added to the answer.
 */
static void invert(void *ctx, const struct ana_node *node, unsigned depth)
{
	struct callers *k = ctx;
	bool again = false;
	uint32_t at = 0;

	if (!ana_path_put(&k->path, node, depth)) {
		k->failed = true;
		return;
	}
	if (!depth || !asked_for(k, node))
		return;
	for (unsigned i = depth + 1; i--;) {
		struct ana_node like = *k->path.node[i];
		again |= i < depth && like.fn == node->fn && (like.fn->name || like.watched);
		like.watched = i == depth;
		at = ana_tree_child(&k->inverted, at, &like);
		if (!at)
			break;
		k->inverted.node[at].calls += node->calls;
	}
	if (at && !again)
		k->inverted.node[at].self += node->total;
}

static void print_caller(void *ctx, const struct ana_node *node, unsigned depth)
{
	void **k = ctx;
	struct count *o = k[0];
	char name[300], text[420];

	if (node->thread >= 0)
		snprintf(name, sizeof(name), "thread %d",
			 dj_trace_thread(o->job->t, (size_t)node->thread)->tid);
	else
		ana_function_text(node->fn, name, sizeof(name));
	snprintf(text, sizeof(text), "%*s%s",
		 o->job->out.json ? 0 : (int)(2 * (depth < 50 ? depth : 50)), "", name);
	ana_table_row(k[1], (struct ana_cell[]){ { .number = node->calls },
						 { .number = node->total },
						 { .number = depth },
						 { .text = text } });
}

int ana_count_callers(struct count *o, struct dj_error *err)
{
	struct callers k = { .o = o };
	const struct replay_listener *listeners[] = { &k.listener };

	if (ana_ranges_add(o->job, &k.ranges, o->callers, err))
		return -1;
	k.listener = (struct replay_listener){
		.ctx = &k, .begin = begin, .end = end, .translated = true, .late = true
	};
	ana_stack_listen(&k.listener);
	if (ana_pass(o->job, listeners, 1, err))
		return -1;
	if (ana_tree_finish(&k.tree, o->job->functions) ||
	    ana_tree_merge(&k.merged, &k.tree, o->job->functions))
		return dj_fail(err, 1, "out of memory");
	ana_tree_walk(&k.merged, invert, &k);
	if (k.failed || ana_tree_finish(&k.inverted, o->job->functions))
		return dj_fail(err, 1, "out of memory");
	struct ana_table *t =
		ana_table_new("callers", (struct ana_column[]){ { "calls", ANA_NUMBER },
								{ "instructions", ANA_NUMBER },
								{ "depth", ANA_NUMBER },
								{ "function", ANA_TEXT },
								{ 0 } });
	void *ctx[] = { o, t };
	ana_table_limit(t, o->limit ? o->limit : o->job->out.json ? 0 : 40);
	ana_tree_walk(&k.inverted, print_caller, ctx);
	ana_table_end(&o->job->out, t);
	free(k.path.node);
	ana_tree_free(&k.tree);
	ana_tree_free(&k.merged);
	ana_tree_free(&k.inverted);
	ana_ranges_free(&k.ranges);
	return 0;
}
