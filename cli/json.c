/* JSON output (cli/json.h; RFC 8259). */
#include "cli/json.h"

#include "format/text.h"

#include <stddef.h>

/* Length of the valid UTF-8 sequence at s (RFC 3629), or 0. */
static int utf8_length(const unsigned char *s)
{
	static const struct {
		unsigned char first, last, lo, hi, length; /* lo..hi: the second byte */
							   /* clang-format off */
	} forms[] = {
		{ 0x20, 0x7f, 0, 0, 1 },       { 0xc2, 0xdf, 0x80, 0xbf, 2 },
		{ 0xe0, 0xe0, 0xa0, 0xbf, 3 }, { 0xe1, 0xec, 0x80, 0xbf, 3 },
		{ 0xed, 0xed, 0x80, 0x9f, 3 }, { 0xee, 0xef, 0x80, 0xbf, 3 },
		{ 0xf0, 0xf0, 0x90, 0xbf, 4 }, { 0xf1, 0xf3, 0x80, 0xbf, 4 },
		{ 0xf4, 0xf4, 0x80, 0x8f, 4 },
	};
	/* clang-format on */

	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		if (*s < forms[i].first || *s > forms[i].last)
			continue;
		for (int k = 1; k < forms[i].length; k++) {
			unsigned char lo = k == 1 ? forms[i].lo : 0x80;
			unsigned char hi = k == 1 ? forms[i].hi : 0xbf;

			if (s[k] < lo || s[k] > hi)
				return 0;
		}
		return forms[i].length;
	}
	return 0;
}

/* A string in quotes. What a terminal obeys is escaped. */
static void put_text(FILE *f, const char *value)
{
	putc('"', f);
	for (const unsigned char *s = (const unsigned char *)value; *s;) {
		int n = utf8_length(s);

		if (*s == '"' || *s == '\\') {
			fprintf(f, "\\%c", *s++);
		} else if (*s < ' ' || *s == 0x7f) {
			fprintf(f, "\\u%04x", *s++);
		} else if (n && !dj_text_letter((const char *)s)) {
			/* a terminal obeys these; they have two or three bytes */
			fprintf(f, "\\u%04x",
				n == 2 ? (*s & 0x1fu) << 6 | (s[1] & 0x3fu)
				       : (*s & 0xfu) << 12 | (s[1] & 0x3fu) << 6 | (s[2] & 0x3fu));
			s += n;
		} else if (n) {
			fwrite(s, 1, (size_t)n, f);
			s += n;
		} else { /* a file name need not be text */
			fputs("\\ufffd", f);
			s++;
		}
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
