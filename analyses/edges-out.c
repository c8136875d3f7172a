/*
 * The profile of branches in other programs' formats: BOLT's (bolt/docs, "perf2bolt" output,
 * fdata), clang's sample profile (Clang's manual, "Sample Profile Text Format"), callgrind's.
 */
#include "analyses/edges.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- BOLT: "1 FROM OFFSET 1 TO OFFSET MISPREDICTED COUNT" for each taken branch ---- */

static void put_bolt_place(struct ana_edges *e, FILE *f, const struct replay_code *code)
{
	const struct ana_function *fn = ana_function_of(e->job->functions, code);
	uint64_t offset = code->offset - fn->code.offset;

	if (!fn->symbol) {
		fputs("0 [unknown] 0", f);
		return;
	}
	fputs("1 ", f);
	for (const char *c = fn->symbol; *c; c++) /* what separates words is escaped */
		if (*c == ' ' || *c == '\\')
			fprintf(f, "\\%c", *c);
		else
			putc(*c > ' ' ? *c : '?', f);
	fprintf(f, " %" PRIx64, offset);
}

void ana_edges_bolt(struct ana_edges *e, FILE *f)
{
	for (size_t i = 0; i < e->edge.n; i++) {
		const struct ana_item *it = &e->edge.item[i];
		uint64_t next = it->a.offset + it->user / EDGE_LENGTH;
		bool falls = (it->user & EDGE_COND) && it->b.module == it->a.module &&
			     it->b.offset == next;
		if (falls || it->a.module < 0)
			continue;
		put_bolt_place(e, f, &it->a);
		putc(' ', f);
		put_bolt_place(e, f, &it->b);
		fprintf(f, " 0 %" PRIu64 "\n", it->n[0]);
	}
}

/* ---- clang: FUNCTION:TOTAL:ENTRIES, then LINE[.DISCRIMINATOR]: COUNT [CALLEE:COUNT...] ---- */

static void add_body(struct edges_bodies *k, const char *function, unsigned line,
		     unsigned discriminator, uint64_t count, const char *callee)
{
	if (k->n == k->cap) {
		size_t cap = k->cap ? 2 * k->cap : 256;
		struct edges_body *grown = realloc(k->b, cap * sizeof(*grown));
		if (!grown) {
			k->failed = true;
			return;
		}
		k->b = grown;
		k->cap = cap;
	}
	struct edges_body *b = &k->b[k->n++];
	*b = (struct edges_body){ .function = strdup(function),
				  .line = line,
				  .discriminator = discriminator,
				  .count = count,
				  .callee = callee ? strdup(callee) : NULL };
	k->failed |= !b->function;
}

static int by_body(const void *x, const void *y)
{
	const struct edges_body *a = x, *b = y;
	int c = strcmp(a->function, b->function);

	if (c)
		return c;
	if (a->line != b->line)
		return a->line < b->line ? -1 : 1;
	if (a->discriminator != b->discriminator)
		return a->discriminator < b->discriminator ? -1 : 1;
	return a->callee && b->callee ? strcmp(a->callee, b->callee) : !!a->callee - !!b->callee;
}

/* A line was executed as often as the one of its instructions that was executed most; calls add up.
 */
static size_t merge(struct edges_body *b, size_t n)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++) {
		if (!kept || by_body(&b[kept - 1], &b[i])) {
			b[kept++] = b[i];
			continue;
		}
		if (b[i].callee)
			b[kept - 1].count += b[i].count;
		else if (b[i].count > b[kept - 1].count)
			b[kept - 1].count = b[i].count;
		free(b[i].function);
		free(b[i].callee);
	}
	return kept;
}

static void put_bodies(struct edges_bodies *k, FILE *f, size_t from, size_t to)
{
	uint64_t total = 0, head = 0;

	if (k->b[to - 1].line == EDGES_ENTRY)
		head = k->b[--to].count;
	for (size_t i = from; i < to; i++)
		if (!k->b[i].callee)
			total += k->b[i].count;
	ana_put(f, k->b[from].function);
	fprintf(f, ":%" PRIu64 ":%" PRIu64 "\n", total, head);
	for (size_t i = from; i < to; i++) {
		const struct edges_body *b = &k->b[i];
		if (b->callee) {
			putc(' ', f);
			ana_put(f, b->callee);
			fprintf(f, ":%" PRIu64, b->count);
		} else {
			fprintf(f, "%s %u", i > from ? "\n" : "", b->line);
			if (b->discriminator)
				fprintf(f, ".%u", b->discriminator);
			fprintf(f, ": %" PRIu64, b->count);
		}
	}
	putc('\n', f);
}

void ana_edges_collect(struct edges_bodies *k)
{
	struct ana_edges *e = k->e;
	struct ana_symbols *s = ana_functions_symbols(e->job->functions);
	struct ana_body at;

	for (size_t i = 0; i < e->count.n; i++) {
		const struct ana_item *it = &e->count.item[i];
		if (it->a.module >= 0 &&
		    ana_symbols_body(s, (size_t)it->a.module, it->a.offset, &at))
			add_body(k, at.function, at.line, at.discriminator, it->n[0], NULL);
		const struct ana_function *fn = ana_function_of(e->job->functions, &it->a);
		if (fn->symbol && fn->code.offset == it->a.offset)
			add_body(k, fn->symbol, EDGES_ENTRY, 0, it->n[0], NULL);
	}
	for (size_t i = 0; i < e->edge.n; i++) {
		const struct ana_item *it = &e->edge.item[i];
		const struct ana_function *callee = ana_function_of(e->job->functions, &it->b);
		if ((it->user & EDGE_CALL) && it->a.module >= 0 && callee->symbol &&
		    ana_symbols_body(s, (size_t)it->a.module, it->a.offset, &at))
			add_body(k, at.function, at.line, at.discriminator, it->n[0],
				 callee->symbol);
	}
	if (k->n)
		qsort(k->b, k->n, sizeof(*k->b), by_body);
	k->n = merge(k->b, k->n);
}

void ana_edges_collected(struct edges_bodies *k)
{
	for (size_t i = 0; i < k->n; i++) {
		free(k->b[i].function);
		free(k->b[i].callee);
	}
	free(k->b);
}

void ana_edges_clang(struct ana_edges *e, FILE *f)
{
	struct edges_bodies k = { .e = e };
	size_t from = 0;

	ana_edges_collect(&k);
	for (size_t i = 1; i <= k.n; i++)
		if (i == k.n || strcmp(k.b[i].function, k.b[from].function) != 0) {
			if (k.b[from].line != EDGES_ENTRY) /* else nothing is known of its lines */
				put_bodies(&k, f, from, i);
			from = i;
		}
	ana_edges_collected(&k);
}

/* ---- callgrind: lines with instructions, and jumps between lines ---- */

static void line_of(struct ana_edges *e, const struct replay_code *code, const char **file,
		    int *line)
{
	*file = NULL;
	*line = 0;
	if (code->module < 0 || !ana_symbols_line(ana_functions_symbols(e->job->functions),
						  (size_t)code->module, code->offset, file, line)) {
		*file = NULL;
		*line = 0;
	}
}

static void put_file(FILE *f, const char *key, const char *file)
{
	fputs(key, f);
	ana_put(f, file ? file : "???");
	putc('\n', f);
}

/* The jumps of an instruction, all within its function; what leaves it is a call or its end. */
static void put_jumps(struct ana_edges *e, FILE *f, const struct ana_item *it,
		      const struct ana_function *fn, int line, size_t *edge)
{
	for (; *edge < e->edge.n && ana_code_cmp(&e->edge.item[*edge].a, &it->a) <= 0; ++*edge) {
		const struct ana_item *j = &e->edge.item[*edge];
		const struct ana_item *b = ana_tally_sorted(&e->branch, &it->a);
		const char *file;
		int to;
		if (ana_code_cmp(&j->a, &it->a) || (j->user & (EDGE_CALL | EDGE_RET)) ||
		    ana_function_of(e->job->functions, &j->b) != fn)
			continue;
		if ((j->user & EDGE_COND) && j->b.offset == it->a.offset + j->user / EDGE_LENGTH)
			continue;
		line_of(e, &j->b, &file, &to);
		if (j->user & EDGE_COND)
			fprintf(f, "jcnd=%" PRIu64 "/%" PRIu64 " %d\n%d\n", j->n[0],
				b ? b->n[EDGE_TAKEN] + b->n[EDGE_NOT] : j->n[0], to, line);
		else
			fprintf(f, "jump=%" PRIu64 " %d\n%d\n", j->n[0], to, line);
	}
}

void ana_edges_callgrind(struct ana_edges *e, FILE *f)
{
	const struct ana_function *now = NULL;
	const char *in = NULL;
	uint64_t total = 0;
	size_t edge = 0;

	for (size_t i = 0; i < e->count.n; i++)
		total += e->count.item[i].n[0];
	fprintf(f,
		"# callgrind format\nversion: 1\ncreator: deja\npositions: line\nevents: Ir\n"
		"summary: %" PRIu64 "\n",
		total);
	for (size_t i = 0; i < e->count.n; i++) {
		const struct ana_item *it = &e->count.item[i];
		const struct ana_function *fn = ana_function_of(e->job->functions, &it->a);
		const char *file;
		int line;
		line_of(e, &it->a, &file, &line);
		if (fn != now) {
			char nameless[300];
			line_of(e, &fn->code, &in, &line);
			put_file(f, "\nob=", fn->module);
			put_file(f, "fl=", in);
			ana_function_text(fn, nameless, sizeof(nameless));
			/* the whole of it: readers take functions with the same name for one */
			put_file(f, "fn=", fn->name ? fn->name : nameless);
			line_of(e, &it->a, &file, &line);
			now = fn;
		}
		if (file != in && (!file || !in || strcmp(file, in) != 0)) {
			put_file(f, "fi=", file);
			in = file;
		}
		fprintf(f, "%d %" PRIu64 "\n", line, it->n[0]);
		put_jumps(e, f, it, fn, line, &edge);
	}
	fprintf(f, "\ntotals: %" PRIu64 "\n", total);
}
