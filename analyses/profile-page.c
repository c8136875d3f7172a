/*
 * A profile to look at: a flame graph as SVG, and a page of HTML with a flame graph that can be
 * searched and zoomed, the threads in the order of events, and the hottest lines. Neither refers to
 * anything outside itself, and names, which come from a trace, are only ever text in them.
 */
#include "analyses/profile.h"
#include "analyses/profile-page.h"
#include "analyses/syscall.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH	  1200.0
#define ROW	  17
#define SMALLEST  4000.0 /* of the whole: what is smaller is not drawn */
#define HOT_LINES 200u
#define EVENTS	  40000u /* of all threads that are marked, or some more */

/* ---- SVG ---- */

struct drawing {
	const struct ana_profile *p;
	FILE *f;
	/* where the next node of a depth begins, in instructions */
	double x[ANA_PROFILE_DEEPEST + 1];
	unsigned rows;
	bool draw;
	size_t n; /* nodes of the page */
};

static unsigned colour(const char *name)
{
	unsigned h = 5381;

	while (*name && *name != '(')
		h = h * 33 + (unsigned char)*name++;
	return h;
}

static void draw(void *ctx, const struct ana_node *node, unsigned depth)
{
	struct drawing *d = ctx;
	char name[300];
	double whole = (double)(d->p->total ? d->p->total : 1);

	if (depth >= ANA_PROFILE_DEEPEST)
		return;
	double x = d->x[depth], wide = (double)node->total;
	d->x[depth] += wide;
	d->x[depth + 1] = x;
	if (wide * SMALLEST < whole)
		return;
	if (depth + 1 > d->rows)
		d->rows = depth + 1;
	if (!d->draw)
		return;
	ana_node_text(d->p, node, name, sizeof(name));
	unsigned h = colour(name), room = (unsigned)(wide / whole * WIDTH / 7);
	fputs("<g><title>", d->f);
	ana_put_xml(d->f, name);
	fprintf(d->f,
		" (%" PRIu64 " %s, %.2f%%)</title><rect x=\"%.2f\" y=\"%u\" width=\"%.2f\" "
		"height=\"%d\" fill=\"rgb(%u,%u,%u)\"/>",
		node->total, d->p->unit ? d->p->unit : "instructions", 100 * wide / whole,
		x / whole * WIDTH, (d->rows - 1 - depth) * ROW + 30, wide / whole * WIDTH, ROW - 1,
		205 + h % 50, 80 + h / 50 % 110, 40 + h / 5500 % 40);
	if (room > 3) {
		name[room < sizeof(name) ? room : sizeof(name) - 1] = 0;
		fprintf(d->f, "<text x=\"%.2f\" y=\"%u\">", x / whole * WIDTH + 2,
			(d->rows - 1 - depth) * ROW + 42);
		ana_put_xml(d->f, name);
		fputs("</text>", d->f);
	}
	fputs("</g>\n", d->f);
}

void ana_profile_svg(struct ana_profile *p, FILE *f)
{
	struct drawing d = { .p = p, .f = f };

	ana_tree_walk(&p->merged, draw, &d); /* how many rows there are */
	memset(d.x, 0, sizeof(d.x));
	d.draw = true;
	fprintf(f,
		"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%u\" "
		"font-family=\"monospace\" font-size=\"11\">\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"#fffdf5\"/>\n"
		"<text x=\"10\" y=\"18\" font-size=\"14\">%" PRIu64 " %s</text>\n",
		WIDTH, d.rows * ROW + 40, p->total, p->unit ? p->unit : "instructions");
	ana_tree_walk(&p->merged, draw, &d);
	fputs("</svg>\n", f);
}

/* ---- HTML ---- */

/* A node: depth, self, total, calls, name and module. Those too small to see are left out, with all
 * that is below them. */
static void page_node(void *ctx, const struct ana_node *node, unsigned depth)
{
	struct drawing *d = ctx;
	char name[300];

	if ((double)node->total * 5 * SMALLEST < (double)d->p->total || depth > ANA_PROFILE_DEEPEST)
		return;
	ana_node_text(d->p, node, name, sizeof(name));
	fprintf(d->f, "%s[%u,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",", d->n++ ? ",\n" : "", depth,
		node->self, node->total, node->calls);
	ana_put_json(d->f, name);
	putc(',', d->f);
	ana_put_json(d->f, node->thread < 0 ? ana_base(node->fn->module) : "");
	putc(']', d->f);
}

static void page_lane(const struct ana_lane *l, bool is_known, size_t events, FILE *f)
{
	char text[80];
	bool more = false;

	fprintf(f, "{\"tid\":%d,\"pid\":%d,\"name\":", l->tid, l->pid);
	ana_put_json(f, l->name);
	fprintf(f,
		",\"instructions\":%" PRIu64 ",\"calls\":%" PRIu64 ",\"signals\":%" PRIu64
		",\"first\":%" PRIu64 ",\"width\":%" PRIu64 ",\"bins\":[",
		l->instructions, l->calls, l->signals, l->first, l->width);
	for (unsigned i = 0; is_known && i < ANA_BINS; i++) {
		const struct ana_bin *b = &l->bin[i];
		if (!b->instructions && !b->calls && !b->signals)
			continue;
		fprintf(f, "%s[%u,%" PRIu64 ",%" PRIu64 ",%" PRIu64 "]", more ? "," : "", i,
			b->instructions, b->calls, b->signals);
		more = true;
	}
	fputs("],\"events\":[", f);
	for (size_t i = 0; is_known && i < l->moments && i < events; i++) {
		const struct ana_moment *m = &l->moment[i];
		if (m->signal)
			ana_signal_name((uint64_t)m->signal, text, sizeof(text));
		const char *name = m->signal ? text : ana_syscall_name(m->call, text, sizeof(text));
		fprintf(f, "%s[%" PRIu64 ",%d,", i ? "," : "", m->at, m->signal != 0);
		ana_put_json(f, name);
		putc(',', f);
		ana_put_json(f, m->pos);
		putc(']', f);
	}
	fputs("]}", f);
}

static void page_lines(struct ana_profile *p, FILE *f)
{
	size_t n = 0;
	struct ana_sum *s = ana_profile_sums(p, ANA_BY_LINE, &n);

	for (size_t i = 0; s && i < n && i < HOT_LINES; i++) {
		char line[330], name[300];
		ana_line_text(s[i].file, s[i].line, line, sizeof(line));
		ana_function_text(s[i].fn, name, sizeof(name));
		fprintf(f, "%s[%" PRIu64 ",", i ? ",\n" : "", s[i].self);
		ana_put_json(f, *line ? line : "?");
		putc(',', f);
		ana_put_json(f, name);
		putc(',', f);
		ana_put_json(f, ana_base(s[i].fn->module));
		putc(']', f);
	}
	free(s);
}

void ana_profile_html(struct ana_profile *p, FILE *f)
{
	struct drawing d = { .p = p, .f = f };

	size_t threads = 0;
	bool timed = false;

	for (const struct ana_lane *l = p->lanes; l; l = l->next) {
		threads++;
		timed = timed || l->timed;
	}
	fputs(ana_page_head, f);
	fprintf(f, "{\"total\":%" PRIu64 ",\"timed\":%s,\"nodes\":[\n", p->total,
		timed ? "true" : "false");
	ana_tree_walk(&p->merged, page_node, &d);
	fputs("],\n\"threads\":[\n", f);
	for (const struct ana_lane *l = p->lanes; l; l = l->next) {
		page_lane(l, l->timed == timed, EVENTS / threads + 10, f);
		fputs(l->next ? ",\n" : "", f);
	}
	fputs("],\n\"lines\":[\n", f);
	page_lines(p, f);
	fputs("]}\n", f);
	fputs(ana_page_tail, f);
}
