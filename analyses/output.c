/* Answers of analyses (analyses/output.h). */
#include "analyses/output.h"
#include "format/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS 16
#define GAP	2
#define LEAST	12   /* columns of a text, however narrow the terminal */
#define BATCH	1000 /* rows that are looked at together, where they are printed as they come */

struct ana_table {
	const char *name;
	struct ana_column column[COLUMNS];
	size_t columns;
	char **cell; /* as printed */
	struct ana_cell *raw;
	size_t n, cap, limit;
	bool short_of_memory;
	struct ana_out *stream; /* rows are printed as they come */
	size_t printed, wide[COLUMNS];
};

/* ---- text ---- */

void ana_put(FILE *f, const char *text)
{
	while (*text) {
		size_t n = dj_text_letter(text);
		if (n)
			fwrite(text, 1, n, f);
		else
			putc('?', f);
		text += n ? n : 1;
	}
}

void ana_put_json(FILE *f, const char *text)
{
	if (!text) {
		fputs("null", f);
		return;
	}
	putc('"', f);
	while (*text) {
		size_t n = dj_text_letter(text);
		if (!n)
			fprintf(f, (unsigned char)*text < 0x80 ? "\\u%04x" : "\\ufffd",
				(unsigned char)*text);
		else if (*text == '"' || *text == '\\')
			fprintf(f, "\\%c", *text);
		else if (*text == '<' || *text == '>' || *text == '&')
			fprintf(f, "\\u%04x", (unsigned char)*text);
		else
			fwrite(text, 1, n, f);
		text += n ? n : 1;
	}
	putc('"', f);
}

void ana_put_xml(FILE *f, const char *text)
{
	while (*text) {
		size_t n = dj_text_letter(text);
		if (*text == '<')
			fputs("&lt;", f);
		else if (*text == '>')
			fputs("&gt;", f);
		else if (*text == '&')
			fputs("&amp;", f);
		else if (*text == '"')
			fputs("&quot;", f);
		else if (n)
			fwrite(text, 1, n, f);
		else
			putc('?', f);
		text += n ? n : 1;
	}
}

/* ---- tables ---- */

struct ana_table *ana_table_new(const char *name, const struct ana_column *columns)
{
	struct ana_table *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->name = name;
	while (t->columns < COLUMNS && columns[t->columns].name) {
		t->column[t->columns] = columns[t->columns];
		t->columns++;
	}
	return t;
}

static char *cell_text(const struct ana_column *c, const struct ana_cell *cell)
{
	char buf[40];

	if (cell->none)
		return strdup(c->kind == ANA_TEXT ? "" : "-");
	switch (c->kind) {
	case ANA_TEXT:
		return strdup(cell->text ? cell->text : "");
	case ANA_SHARE:
		snprintf(buf, sizeof(buf), "%.2f%%",
			 cell->whole ? 100.0 * (double)cell->number / (double)cell->whole : 0.0);
		break;
	case ANA_HEX:
		snprintf(buf, sizeof(buf), "%#" PRIx64, cell->number);
		break;
	default:
		snprintf(buf, sizeof(buf), "%" PRIu64, cell->number);
	}
	return strdup(buf);
}

static void add_row(struct ana_table *t, const struct ana_cell *cells)
{
	if (t->n == t->cap) {
		size_t cap = t->cap ? t->cap * 2 : 64;
		char **cell = realloc(t->cell, cap * t->columns * sizeof(*cell));
		if (cell)
			t->cell = cell;
		struct ana_cell *raw = realloc(t->raw, cap * t->columns * sizeof(*raw));
		if (raw)
			t->raw = raw;
		if (!cell || !raw) {
			t->short_of_memory = true;
			return;
		}
		t->cap = cap;
	}
	for (size_t i = 0; i < t->columns; i++) {
		char *text = cell_text(&t->column[i], &cells[i]);
		t->cell[t->n * t->columns + i] = text;
		t->raw[t->n * t->columns + i] = cells[i];
		t->raw[t->n * t->columns + i].text = cells[i].text ? text : NULL;
		t->short_of_memory |= !text;
	}
	t->n++;
}

void ana_table_limit(struct ana_table *t, size_t rows)
{
	if (t)
		t->limit = rows;
}

static size_t letters(const char *text)
{
	size_t n = 0;

	while (*text) {
		size_t len = dj_text_letter(text);
		text += len ? len : 1;
		n++;
	}
	return n;
}

/* The first `max` letters; the last of them is a '~' if there are more. */
static void put_cut(FILE *f, const char *text, size_t max)
{
	size_t n = letters(text);

	for (size_t i = 0; *text && i < max; i++) {
		size_t len = dj_text_letter(text);
		if (n > max && i + 1 == max)
			putc('~', f);
		else if (len)
			fwrite(text, 1, len, f);
		else
			putc('?', f);
		text += len ? len : 1;
	}
}

/* How wide each column is: as wide as its contents (and as rows before), but the texts share what
 * the terminal has. */
static void measure(const struct ana_table *t, size_t rows, unsigned width, size_t *wide)
{
	size_t sum = 0, texts = 0, text_sum = 0;

	for (size_t i = 0; i < t->columns; i++) {
		size_t least = letters(t->column[i].name);
		wide[i] = wide[i] > least ? wide[i] : least;
		for (size_t r = 0; r < rows; r++) {
			size_t n = letters(t->cell[r * t->columns + i]);
			wide[i] = n > wide[i] ? n : wide[i];
		}
		sum += wide[i] + (i ? GAP : 0);
		if (t->column[i].kind == ANA_TEXT) {
			texts++;
			text_sum += wide[i];
		}
	}
	if (!width || sum <= width || !texts)
		return;
	size_t room = sum - text_sum < width ? width - (sum - text_sum) : 0;
	for (size_t i = 0; i < t->columns; i++) {
		if (t->column[i].kind != ANA_TEXT)
			continue;
		size_t share = room * wide[i] / (text_sum ? text_sum : 1);
		wide[i] = share > LEAST ? share : LEAST < wide[i] ? LEAST : wide[i];
	}
}

static void print_row(FILE *f, const struct ana_table *t, char *const *cells, const size_t *wide)
{
	for (size_t i = 0; i < t->columns; i++) {
		const char *text = cells ? cells[i] : t->column[i].name;
		size_t n = letters(text), pad = n < wide[i] ? wide[i] - n : 0;
		if (i)
			fprintf(f, "%*s", GAP, "");
		if (t->column[i].kind != ANA_TEXT)
			fprintf(f, "%*s", (int)pad, "");
		put_cut(f, text, wide[i]);
		if (t->column[i].kind == ANA_TEXT && i + 1 < t->columns)
			fprintf(f, "%*s", (int)pad, "");
	}
	putc('\n', f);
}

static void print_text(struct ana_out *out, struct ana_table *t)
{
	size_t rows = t->limit && t->limit < t->n ? t->limit : t->n;

	if (!t->printed && out->tables)
		putc('\n', out->f);
	measure(t, rows, out->width, t->wide);
	if (!t->printed)
		print_row(out->f, t, NULL, t->wide);
	for (size_t r = 0; r < rows; r++)
		print_row(out->f, t, t->cell + r * t->columns, t->wide);
	if (rows < t->n)
		fprintf(out->f, "(%zu more)\n", t->n - rows);
	if (!t->n && !t->printed)
		fputs("(none)\n", out->f);
}

static void json_begin(struct ana_out *out, const struct ana_table *t)
{
	if (out->many && !out->tables)
		putc('{', out->f);
	if (out->many) {
		fputs(out->tables ? ",\n" : "\n", out->f);
		ana_put_json(out->f, t->name);
		fputs(": ", out->f);
	}
	putc('[', out->f);
}

static void json_row(struct ana_out *out, const struct ana_table *t, const struct ana_cell *cells)
{
	for (size_t i = 0; i < t->columns; i++) {
		const struct ana_cell *c = &cells[i];
		if (i)
			fputs(", ", out->f);
		ana_put_json(out->f, t->column[i].name);
		fputs(": ", out->f);
		if (c->none)
			fputs("null", out->f);
		else if (t->column[i].kind == ANA_TEXT)
			ana_put_json(out->f, c->text);
		else if (t->column[i].kind == ANA_SHARE)
			fprintf(out->f, "%.8f",
				c->whole ? (double)c->number / (double)c->whole : 0.0);
		else
			fprintf(out->f, "%" PRIu64, c->number);
	}
}

static void print_json(struct ana_out *out, const struct ana_table *t)
{
	size_t rows = t->limit && t->limit < t->n ? t->limit : t->n;

	if (!t->printed)
		json_begin(out, t);
	for (size_t r = 0; r < rows; r++) {
		fputs(r || t->printed ? ",\n {" : "\n {", out->f);
		json_row(out, t, t->raw + r * t->columns);
		putc('}', out->f);
	}
	if (rows < t->n)
		ana_out_warn(out, "%zu more rows of %s; --limit says how many are wanted",
			     t->n - rows, t->name);
}

/* Print the rows there are, which are gone then. */
static void print_rows(struct ana_out *out, struct ana_table *t)
{
	if (out->json)
		print_json(out, t);
	else
		print_text(out, t);
	for (size_t i = 0; i < t->n * t->columns; i++)
		free(t->cell[i]);
	t->printed += t->n;
	t->n = 0;
}

void ana_table_stream(struct ana_table *t, struct ana_out *out)
{
	if (t)
		t->stream = out;
}

void ana_table_row(struct ana_table *t, const struct ana_cell *cells)
{
	if (!t)
		return;
	add_row(t, cells);
	if (t->stream && t->n == BATCH)
		print_rows(t->stream, t);
}

void ana_table_end(struct ana_out *out, struct ana_table *t)
{
	if (!t || t->short_of_memory)
		fputs("deja: out of memory: the answer is not complete\n", stderr);
	if (!t)
		return;
	if (t->n || !t->printed)
		print_rows(out, t);
	if (out->json)
		fputs(t->printed ? "\n]" : "]", out->f);
	out->tables++;
	free(t->cell);
	free(t->raw);
	free(t);
}

void ana_out_end(struct ana_out *out)
{
	if (!out->json || !out->tables)
		return;
	fputs(out->many ? "\n}\n" : "\n", out->f);
}

static void put_line(struct ana_out *out, const char *fmt, va_list ap)
{
	char text[1000];

	vsnprintf(text, sizeof(text), fmt, ap);
	ana_put(out->f, text);
	putc('\n', out->f);
	out->tables++;
}

void ana_out_line(struct ana_out *out, const char *fmt, ...)
{
	va_list ap;

	if (out->json)
		return;
	va_start(ap, fmt);
	put_line(out, fmt, ap);
	va_end(ap);
}

static void put_warning(struct ana_out *out, const char *fmt, va_list ap)
{
	fflush(out->f);
	fputs("deja: ", stderr);
	vfprintf(stderr, fmt, ap);
	putc('\n', stderr);
}

void ana_out_lack(struct ana_out *out, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(out->json ? put_warning : put_line)(out, fmt, ap);
	va_end(ap);
}

void ana_out_warn(struct ana_out *out, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	put_warning(out, fmt, ap);
	va_end(ap);
}
