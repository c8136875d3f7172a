/* JSON output (cli/json.h; RFC 8259). */
#include "cli/json.h"

#include "format/text.h"

#include <stddef.h>
#include <stdint.h>

/* A string in quotes. What a terminal obeys is escaped. */
static void put_text(FILE *f, const char *value)
{
	putc('"', f);
	for (const char *s = value; *s;) {
		uint32_t character;
		size_t n = dj_text_utf8(s, &character);

		if (*s == '"' || *s == '\\')
			fprintf(f, "\\%c", *s);
		else if (!n) /* a file name need not be text */
			fputs("\\ufffd", f);
		else if (!dj_text_letter(s)) /* all of these have four digits */
			fprintf(f, "\\u%04x", character);
		else
			fwrite(s, 1, n, f);
		s += n ? n : 1;
	}
	putc('"', f);
}

static void start(struct json *j, const char *key)
{
	if (j->more)
		putc(',', j->f);
	if (j->depth) {
		putc('\n', j->f);
		for (unsigned i = 0; i < j->depth; i++)
			fputs("  ", j->f);
	}
	if (key) {
		put_text(j->f, key);
		fputs(": ", j->f);
	}
	j->more = true;
}

void json_open(struct json *j, const char *key, char bracket)
{
	start(j, key);
	putc(bracket, j->f);
	j->depth++;
	j->more = false;
}

void json_close(struct json *j, char bracket)
{
	j->depth--;
	if (j->more) {
		putc('\n', j->f);
		for (unsigned i = 0; i < j->depth; i++)
			fputs("  ", j->f);
	}
	putc(bracket, j->f);
	j->more = true;
	if (!j->depth)
		putc('\n', j->f);
}

void json_string(struct json *j, const char *key, const char *value)
{
	start(j, key);
	if (!value) {
		fputs("null", j->f);
		return;
	}
	put_text(j->f, value);
}

void json_u64(struct json *j, const char *key, uint64_t value)
{
	start(j, key);
	fprintf(j->f, "%" PRIu64, value);
}

void json_i64(struct json *j, const char *key, int64_t value)
{
	start(j, key);
	fprintf(j->f, "%" PRId64, value);
}

void json_double(struct json *j, const char *key, double value)
{
	start(j, key);
	fprintf(j->f, "%.6g", value);
}

void json_bool(struct json *j, const char *key, bool value)
{
	start(j, key);
	fputs(value ? "true" : "false", j->f);
}
