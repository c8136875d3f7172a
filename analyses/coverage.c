/*
 * deja coverage: how often each line of the program's source was executed, and which way its
 * branches went, as gcov counts and lcov reads it.
 *
 * gcov counts how often a line was entered from another one, and adds, for loops that lie on one
 * line, how often they went round. That follows from exact counts: an instruction that was executed
 * more often than it was jumped to was reached from the one before it, the rest are jumps with
 * known origins. Calls return to their line without entering it.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "analyses/analysis.h"
#include "analyses/symbols-internal.h"
#include "format/scatter.h"

#ifdef HAVE_LIBDW
#include <dwarf.h>
#endif

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define CHAINS 65536u

/* An instruction that was executed, or a way that a branch took. */
struct item {
	struct replay_code code, target;
	uint64_t count;
	uint32_t attr;
	uint8_t len;
	bool is_branch;
	struct item *next;
};
struct items {
	struct item *chain[CHAINS];
	size_t n;
};

struct line {
	const char *file;
	int line;
	uint64_t count;
	unsigned rows; /* of the line table */
};
/* What gcov says otherwise than the line table: a function begins where it is declared, not at its
 * brace; the end of one that returns something is no line. */
struct other {
	const char *file;
	int line, to; /* to: 0: none */
};
/* A conditional jump. */
struct choice {
	const char *file;
	int line;
	uint64_t taken, passed, offset;
};

struct coverage {
	struct items all;
	bool failed, every;
	const char *lcov;
	struct ana_job *job;
	struct item **insns, **ways,
		**out; /* sorted: by place; ways by where they lead; by place */
	size_t n_insns, n_ways;
	struct line *lines;
	size_t n_lines, cap_lines;
	struct choice *choices;
	size_t n_choices, cap_choices;
	struct other *others;
	size_t n_others, cap_others;
};

/* ---- hearing ---- */

static int compare_code(const struct replay_code *a, const struct replay_code *b)
{
	if (a->module != b->module)
		return a->module < b->module ? -1 : 1;
	return a->offset < b->offset ? -1 : a->offset > b->offset;
}

static int by_place(const void *a, const void *b)
{
	const struct item *x = *(struct item *const *)a, *y = *(struct item *const *)b;
	int c = compare_code(&x->code, &y->code);
	return c ? c : compare_code(&x->target, &y->target);
}

static struct item *item_of(struct items *all, const struct item *like)
{
	uint64_t h = dj_scatter_mix((uint64_t)like->code.module << 48 ^ like->code.offset,
				    like->target.offset);
	struct item **at = &all->chain[dj_scatter(h, CHAINS)];

	while (*at && ((*at)->is_branch != like->is_branch || by_place(at, &like)))
		at = &(*at)->next;
	if (!*at && (*at = malloc(sizeof(**at)))) {
		**at = *like;
		(*at)->next = NULL;
		(*at)->count = 0;
		all->n++;
	}
	return *at;
}

static void *begin(void *ctx, struct replay_run *run)
{
	struct items *all = calloc(1, sizeof(*all));

	(void)ctx;
	if (!all)
		replay_run_fail(run, "out of memory");
	return all;
}

static void add(struct items *all, struct replay_run *run, const struct item *like, uint64_t count)
{
	struct item *i = item_of(all, like);

	if (i)
		i->count += count;
	else
		replay_run_fail(run, "out of memory");
}

static void count(void *data, struct replay_run *run, const struct replay_count *c)
{
	const struct item like = { .code = c->code, .attr = c->insn->attr, .len = c->insn->len };

	if (c->code.module >= 0)
		add(data, run, &like, c->count);
}

static void branch(void *data, struct replay_run *run, const struct replay_branch *b)
{
	const struct item like = { .code = b->code,
				   .target = b->target,
				   .attr = b->insn->attr,
				   .len = b->insn->len,
				   .is_branch = true };

	if (b->code.module >= 0 && !(b->insn->attr & INSN_A_RET))
		add(data, run, &like, b->count);
}

static void end(void *ctx, struct replay_run *run, void *data)
{
	struct coverage *c = ctx;
	struct items *from = data;

	for (size_t i = 0; from && i < CHAINS; i++)
		while (from->chain[i]) {
			struct item *next = from->chain[i]->next;
			add(&c->all, run, from->chain[i], from->chain[i]->count);
			free(from->chain[i]);
			from->chain[i] = next;
		}
	free(from);
}

/* ---- lines ---- */

static void *grown(void *old, size_t *cap, size_t n, size_t size)
{
	if (n < *cap)
		return old;
	size_t more = *cap ? *cap * 2 : 1024;
	void *p = reallocarray(old, more, size);
	if (p)
		*cap = more;
	return p;
}

static void add_line(struct coverage *c, const char *file, int line, uint64_t n, unsigned rows)
{
	struct line *p = grown(c->lines, &c->cap_lines, c->n_lines, sizeof(*p));

	if (!p) {
		c->failed = true;
		return;
	}
	c->lines = p;
	p[c->n_lines++] = (struct line){ file, line, n, rows };
}

static bool line_of(struct coverage *c, const struct replay_code *code, const char **file,
		    int *line)
{
	return ana_symbols_line(ana_functions_symbols(c->job->functions), (size_t)code->module,
				code->offset, file, line) &&
	       *line > 0;
}

static bool same_line(struct coverage *c, const struct replay_code *a, const char *file, int line)
{
	const char *other;
	int n;

	return a->module >= 0 && line_of(c, a, &other, &n) && n == line && !strcmp(other, file);
}

static int by_target(const void *a, const void *b)
{
	const struct item *x = *(struct item *const *)a, *y = *(struct item *const *)b;
	int c = compare_code(&x->target, &y->target);
	return c ? c : compare_code(&x->code, &y->code);
}

static bool sort_items(struct coverage *c)
{
	c->insns = calloc(c->all.n + 1, sizeof(struct item *));
	c->ways = calloc(c->all.n + 1, sizeof(struct item *));
	c->out = calloc(c->all.n + 1, sizeof(struct item *));
	if (!c->insns || !c->ways || !c->out)
		return false;
	for (size_t i = 0; i < CHAINS; i++)
		for (struct item *p = c->all.chain[i]; p; p = p->next) {
			if (p->is_branch)
				c->ways[c->n_ways] = c->out[c->n_ways] = p, c->n_ways++;
			else
				c->insns[c->n_insns++] = p;
		}
	qsort(c->insns, c->n_insns, sizeof(*c->insns), by_place);
	qsort(c->ways, c->n_ways, sizeof(*c->ways), by_target);
	qsort(c->out, c->n_ways, sizeof(*c->out), by_place);
	return true;
}

/* How often the line was entered at the instruction, of which `*way` is the first that leads there.
 */
static uint64_t entered(struct coverage *c, size_t i, size_t *way, const char *file, int line)
{
	const struct item *in = c->insns[i], *before = i ? c->insns[i - 1] : NULL;
	uint64_t n = 0, jumped = 0;

	while (*way < c->n_ways && compare_code(&c->ways[*way]->target, &in->code) < 0)
		++*way;
	for (; *way < c->n_ways && !compare_code(&c->ways[*way]->target, &in->code); ++*way) {
		const struct item *w = c->ways[*way];

		/* a conditional jump that was not taken leads to the next one, too */
		if (w->attr & INSN_A_COND && w->code.offset + w->len == in->code.offset)
			continue;
		jumped += w->count;
		if (w->attr & INSN_A_CALL || !same_line(c, &w->code, file, line) ||
		    w->code.offset >= in->code.offset)
			n += w->count;
	}
	uint64_t fallen = in->count > jumped ? in->count - jumped : 0;
	bool follows = before && before->code.module == in->code.module &&
		       before->code.offset + before->len == in->code.offset;
	if (!follows || !same_line(c, &before->code, file, line))
		n += fallen;
	return n;
}

static void add_choice(struct coverage *c, const struct item *in, const char *file, int line)
{
	struct choice *p = grown(c->choices, &c->cap_choices, c->n_choices, sizeof(*p));

	if (!p) {
		c->failed = true;
		return;
	}
	c->choices = p;
	p[c->n_choices] = (struct choice){ .file = file, .line = line, .offset = in->code.offset };
	size_t w = 0, beyond = c->n_ways;
	while (w < beyond) {
		size_t middle = w + (beyond - w) / 2;
		if (compare_code(&c->out[middle]->code, &in->code) < 0)
			w = middle + 1;
		else
			beyond = middle;
	}
	for (; w < c->n_ways && !compare_code(&c->out[w]->code, &in->code); w++)
		if (c->out[w]->target.offset != in->code.offset + in->len)
			p[c->n_choices].taken += c->out[w]->count;
	p[c->n_choices].passed = in->count - p[c->n_choices].taken;
	c->n_choices++;
}

static bool counts_here(const struct coverage *c, int32_t module)
{
	const struct dj_trace_meta *meta = dj_trace_meta(c->job->t);
	const char *path = dj_trace_module(c->job->t, (size_t)module)->path;

	return c->every || !strcmp(path, meta->exe) || module == 0;
}

static void add_counts(struct coverage *c)
{
	size_t way = 0;

	for (size_t i = 0; i < c->n_insns; i++) {
		const struct item *in = c->insns[i];
		const char *file;
		int line;

		if (!counts_here(c, in->code.module) || !line_of(c, &in->code, &file, &line))
			continue;
		uint64_t n = entered(c, i, &way, file, line);
		if (n)
			add_line(c, file, line, n, 0);
		if (in->attr & INSN_A_COND)
			add_choice(c, in, file, line);
	}
}

#ifdef HAVE_LIBDW
static void add_other(struct coverage *c, const char *file, int line, int to)
{
	struct other *p = grown(c->others, &c->cap_others, c->n_others, sizeof(*p));

	if (!p) {
		c->failed = true;
		return;
	}
	c->others = p;
	p[c->n_others++] = (struct other){ file, line, to };
}

struct functions {
	struct coverage *c;
	Dwfl_Module *mod;
	Dwarf_Addr bias;
};

static int function(Dwarf_Die *die, void *arg)
{
	struct functions *f = arg;
	Dwarf_Addr entry, high;
	Dwarf_Attribute attr;
	int declared = 0, line = 0;

	if (dwarf_entrypc(die, &entry) || dwarf_highpc(die, &high) || high <= entry ||
	    dwarf_decl_line(die, &declared))
		return DWARF_CB_OK;
	Dwfl_Line *first = dwfl_module_getsrc(f->mod, entry + f->bias);
	Dwfl_Line *last = dwfl_module_getsrc(f->mod, high - 1 + f->bias);
	const char *file = first ? dwfl_lineinfo(first, NULL, &line, NULL, NULL, NULL) : NULL;
	if (file && line > declared && declared > 0)
		add_other(f->c, file, line, declared);
	file = last ? dwfl_lineinfo(last, NULL, &line, NULL, NULL, NULL) : NULL;
	if (file && dwarf_attr_integrate(die, DW_AT_type, &attr))
		add_other(f->c, file, line, 0);
	return DWARF_CB_OK;
}

/* All lines that have code, for those that were never executed. */
static void add_all(struct coverage *c, size_t module)
{
	ANA_LIBDW_WORKS(NULL);
	Dwfl_Module *mod = ana_symbols_module(ana_functions_symbols(c->job->functions), module);
	Dwarf_Die *cu = NULL;
	Dwarf_Addr bias;

	while (mod && (cu = dwfl_module_nextcu(mod, cu, &bias))) {
		struct functions f = { c, mod, bias };
		size_t n = 0;

		dwarf_getfuncs(cu, function, &f, 0);
		if (dwfl_getsrclines(cu, &n))
			continue;
		for (size_t i = 0; i < n; i++) {
			Dwfl_Line *l = dwfl_onesrcline(cu, i);
			Dwarf_Line *raw = l ? dwfl_dwarf_line(l, &bias) : NULL;
			bool past = true, begins = false;
			int number = 0;
			const char *file =
				l ? dwfl_lineinfo(l, NULL, &number, NULL, NULL, NULL) : NULL;

			if (raw && file && number > 0 && !dwarf_lineendsequence(raw, &past) &&
			    !past && !dwarf_linebeginstatement(raw, &begins) && begins)
				add_line(c, file, number, 0, 1);
		}
	}
}
#else
static void add_all(struct coverage *c, size_t module)
{
	(void)c;
	(void)module;
}
#endif

static int by_line(const void *a, const void *b)
{
	const struct line *x = a, *y = b;
	int order = strcmp(x->file, y->file);

	return order ? order : x->line < y->line ? -1 : x->line > y->line;
}

static int by_choice(const void *a, const void *b)
{
	const struct choice *x = a, *y = b;
	int order = strcmp(x->file, y->file);

	if (order || x->line != y->line)
		return order ? order : x->line < y->line ? -1 : 1;
	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static int by_other(const void *a, const void *b)
{
	const struct other *x = a, *y = b;
	int order = strcmp(x->file, y->file);

	return order ? order : x->line < y->line ? -1 : x->line > y->line;
}

/* As gcov has the lines: to where functions are declared, and without their ends. */
static void as_gcov(struct coverage *c)
{
	size_t kept = 0;
	if (!c->n_others)
		return;
	qsort(c->others, c->n_others, sizeof(*c->others), by_other);
	for (size_t i = 0; i < c->n_lines; i++) {
		struct line *l = &c->lines[i];
		const struct other like = { l->file, l->line, 0 };
		const struct other *o =
			bsearch(&like, c->others, c->n_others, sizeof(like), by_other);

		if (o && !o->to && l->rows == 1)
			continue;
		if (o && o->to)
			l->line = o->to;
		c->lines[kept++] = *l;
	}
	c->n_lines = kept;
	if (kept)
		qsort(c->lines, c->n_lines, sizeof(*c->lines), by_line);
}

static void add_up(struct coverage *c)
{
	size_t kept = 0;
	if (c->n_lines)
		qsort(c->lines, c->n_lines, sizeof(*c->lines), by_line);
	if (c->n_choices)
		qsort(c->choices, c->n_choices, sizeof(*c->choices), by_choice);
	for (size_t i = 0; i < c->n_lines; i++) {
		if (kept && !by_line(&c->lines[kept - 1], &c->lines[i])) {
			c->lines[kept - 1].count += c->lines[i].count;
			c->lines[kept - 1].rows += c->lines[i].rows;
		} else {
			c->lines[kept++] = c->lines[i];
		}
	}
	c->n_lines = kept;
	as_gcov(c);
}

/* ---- the answer ---- */

/* geninfo(1), "TRACEFILE FORMAT". Files come in their order, which is the choices' as well: *choice
 * is the first that is not of a file before. */
static void lcov_file(const struct coverage *c, FILE *f, size_t from, size_t to, size_t *choice)
{
	const char *file = c->lines[from].file;
	size_t hit = 0, branches = 0, taken = 0;
	int before = -1;

	fputs("TN:\nSF:", f);
	ana_put(f, file);
	putc('\n', f);
	for (size_t block = 0; *choice < c->n_choices; ++*choice) {
		const struct choice *x = &c->choices[*choice];
		int order = strcmp(x->file, file);
		if (order > 0)
			break;
		if (order)
			continue;
		block = x->line == before ? block + 1 : 0;
		before = x->line;
		fprintf(f, "BRDA:%d,%zu,0,%" PRIu64 "\nBRDA:%d,%zu,1,%" PRIu64 "\n", x->line, block,
			x->passed, x->line, block, x->taken);
		branches += 2;
		taken += (x->passed != 0) + (x->taken != 0);
	}
	fprintf(f, "BRF:%zu\nBRH:%zu\n", branches, taken);
	for (size_t i = from; i < to; i++) {
		fprintf(f, "DA:%d,%" PRIu64 "\n", c->lines[i].line, c->lines[i].count);
		hit += c->lines[i].count != 0;
	}
	fprintf(f, "LF:%zu\nLH:%zu\nend_of_record\n", to - from, hit);
}

static int print(struct coverage *c, struct dj_error *err)
{
	FILE *f = c->lcov ? ana_create(c->job, c->lcov, err) : NULL;
	struct ana_table *t =
		ana_table_new("files", (struct ana_column[]){ { "file", ANA_TEXT },
							      { "lines", ANA_NUMBER },
							      { "executed", ANA_NUMBER },
							      { "share", ANA_SHARE },
							      { 0 } });

	if (c->lcov && !f)
		return -1;
	if (!t)
		return dj_fail(err, 1, "out of memory");
	for (size_t i = 0, k, choice = 0; i < c->n_lines; i = k) {
		uint64_t hit = 0;

		for (k = i; k < c->n_lines && !strcmp(c->lines[k].file, c->lines[i].file); k++)
			hit += c->lines[k].count != 0;
		ana_table_row(t, (struct ana_cell[]){ { .text = c->lines[i].file },
						      { .number = k - i },
						      { .number = hit },
						      { .number = hit, .whole = k - i } });
		if (f)
			lcov_file(c, f, i, k, &choice);
	}
	ana_table_end(&c->job->out, t);
	bool bad = f && ferror(f);
	if ((f && fclose(f)) || bad)
		return dj_fail_errno(err, 1, "cannot write %s", c->lcov);
	return 0;
}

static int run(void *state, struct ana_job *job, struct dj_error *err)
{
	struct coverage *c = state;
	const struct replay_listener l = {
		.ctx = c,
		.begin = begin,
		.end = end,
		.count = count,
		.branch = branch,
		.translated = true,
	};
	const struct replay_listener *listeners[] = { &l };

	c->job = job;
	if (ana_pass(job, listeners, 1, err))
		return -1;
	if (!sort_items(c))
		return dj_fail(err, 1, "out of memory");
	add_counts(c);
	for (size_t i = 0; i < dj_trace_modules(job->t); i++)
		if (counts_here(c, (int32_t)i))
			add_all(c, i);
	if (c->failed)
		return dj_fail(err, 1, "out of memory");
	if (!c->n_lines)
		return dj_fail(err, 1,
			       "the program has no debug information that tells its source lines");
	add_up(c);
	int ret = print(c, err);
	for (size_t i = 0; i < CHAINS; i++)
		while (c->all.chain[i]) {
			struct item *next = c->all.chain[i]->next;
			free(c->all.chain[i]);
			c->all.chain[i] = next;
		}
	free(c->insns);
	free(c->ways);
	free(c->out);
	free(c->lines);
	free(c->choices);
	free(c->others);
	return ret;
}

static int option(void *state, unsigned option, const char *arg, struct dj_error *err)
{
	struct coverage *c = state;

	(void)err;
	if (option == 0)
		c->lcov = arg;
	else
		c->every = true;
	return 0;
}

const struct ana_analysis ana_coverage = {
	.name = "coverage",
	.args = "[OPTIONS] [FILE]",
	.help = "which lines were executed, how often",
	.usage = "Usage: deja coverage [OPTIONS] [FILE]\n"
		 "How many lines of each source file of the program were executed; and for other\n"
		 "programs how often each line was, and which way its branches went.\n"
		 "\n"
		 "      --lcov OUT      write a file that lcov and genhtml read\n"
		 "      --libraries     of all modules with debug information, not only the "
		 "program\n",
	.options = { { "lcov", true, .writes = true }, { "libraries", false } },
	.translated = true,
	.size = sizeof(struct coverage),
	.option = option,
	.run = run,
};
