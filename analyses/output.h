/*
 * Answers of analyses: tables, for people (aligned, no wider than the terminal) or as JSON (an
 * array of objects, or with several tables an object of arrays), exactly the same every time.
 */
#ifndef DEJA_ANALYSES_OUTPUT_H
#define DEJA_ANALYSES_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct ana_out {
	FILE *f;
	bool json;
	unsigned width;	 /* of the terminal; 0: none */
	unsigned tables; /* written so far */
	bool many;	 /* there will be several tables */
};

enum ana_kind {
	ANA_TEXT,
	ANA_NUMBER,
	ANA_SHARE, /* a number of `whole`: per cent in the table, a fraction in JSON */
	ANA_HEX,
};

struct ana_column {
	const char *name; /* the heading, and the key in JSON */
	enum ana_kind kind;
};

struct ana_cell {
	const char *text;
	uint64_t number, whole;
	bool none; /* there is no value */
};

struct ana_table;
/* Columns end with one without a name. NULL when out of memory. */
struct ana_table *ana_table_new(const char *name, const struct ana_column *columns);
/* One cell for each column; texts are copied. */
void ana_table_row(struct ana_table *t, const struct ana_cell *cells);
/* At most so many rows (0: all); the rest is mentioned. */
void ana_table_limit(struct ana_table *t, size_t rows);
/* Rows are printed as they come, of any number of them: columns are as wide as they have had to be.
 */
void ana_table_stream(struct ana_table *t, struct ana_out *out);
/* Print and free it. */
void ana_table_end(struct ana_out *out, struct ana_table *t);

/* The last word of the answer. */
void ana_out_end(struct ana_out *out);
/* A line between tables; not in JSON. */
void ana_out_line(struct ana_out *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* What the answer lacks: a line in its place; with JSON one on standard error. */
void ana_out_lack(struct ana_out *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The same on standard error always. */
void ana_out_warn(struct ana_out *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Text from a trace: what is no letter as '?'; as a JSON string, in which nothing ends an element
 * of HTML that it stands in; as text in XML or HTML. */
void ana_put(FILE *f, const char *text);
void ana_put_json(FILE *f, const char *text);
void ana_put_xml(FILE *f, const char *text);

#endif
