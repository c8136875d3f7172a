/* Reply buffers and argument readers: see textbuf.h. */
#include "gdbstub/textbuf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char hex_chars[] = "0123456789abcdef";

static bool reserve(struct textbuf *b, size_t more)
{
	if (b->failed)
		return false;
	if (b->cap - b->len >= more)
		return true;
	size_t cap = b->cap ? b->cap : 256;
	while (cap - b->len < more)
		cap *= 2;
	char *p = realloc(b->p, cap);
	if (!p) {
		b->failed = true;
		return false;
	}
	b->p = p;
	b->cap = cap;
	return true;
}

void textbuf_reset(struct textbuf *b)
{
	b->len = 0;
	b->failed = false;
}

void textbuf_free(struct textbuf *b)
{
	free(b->p);
	*b = (struct textbuf){ 0 };
}

void textbuf_char(struct textbuf *b, char c)
{
	if (reserve(b, 1))
		b->p[b->len++] = c;
}

void textbuf_bytes(struct textbuf *b, const void *p, size_t n)
{
	if (n && reserve(b, n)) {
		memcpy(b->p + b->len, p, n);
		b->len += n;
	}
}

void textbuf_str(struct textbuf *b, const char *s)
{
	textbuf_bytes(b, s, strlen(s));
}

void textbuf_printf(struct textbuf *b, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0 || !reserve(b, (size_t)n + 1))
		return;
	va_start(ap, fmt);
	vsnprintf(b->p + b->len, (size_t)n + 1, fmt, ap);
	va_end(ap);
	b->len += (size_t)n;
}

void textbuf_hex(struct textbuf *b, const void *p, size_t n)
{
	if (!reserve(b, 2 * n))
		return;
	const uint8_t *bytes = p;
	for (size_t i = 0; i < n; i++) {
		b->p[b->len++] = hex_chars[bytes[i] >> 4];
		b->p[b->len++] = hex_chars[bytes[i] & 15];
	}
}

size_t textbuf_binary(struct textbuf *b, const void *p, size_t n, size_t limit)
{
	const char *bytes = p;
	size_t i;
	for (i = 0; i < n && b->len + 2 <= limit; i++) {
		char c = bytes[i];
		if (c == '#' || c == '$' || c == '}' || c == '*') {
			textbuf_char(b, '}');
			c ^= 0x20;
		}
		textbuf_char(b, c);
	}
	return i;
}

void textbuf_xml(struct textbuf *b, const char *s)
{
	for (; *s; s++) {
		switch (*s) {
		case '<':
			textbuf_str(b, "&lt;");
			break;
		case '>':
			textbuf_str(b, "&gt;");
			break;
		case '&':
			textbuf_str(b, "&amp;");
			break;
		case '"':
			textbuf_str(b, "&quot;");
			break;
		case '\'':
			textbuf_str(b, "&apos;");
			break;
		default:
			/* XML 1.0 has no way to write other control characters, and the
			 * documents are declared UTF-8, which names need not be */
			if ((unsigned char)*s < 0x20 || (unsigned char)*s >= 0x7f)
				textbuf_char(b, '?');
			else
				textbuf_char(b, *s);
		}
	}
}

/* ---- reading ---- */

int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

bool scan_char(struct scan *s, char c)
{
	if (s->p == s->end || *s->p != c)
		return false;
	s->p++;
	return true;
}

bool scan_word(struct scan *s, const char *w)
{
	size_t n = strlen(w);
	if (scan_left(s) < n || memcmp(s->p, w, n) != 0)
		return false;
	s->p += n;
	return true;
}

bool scan_hex(struct scan *s, uint64_t *out)
{
	uint64_t x = 0;
	const char *start = s->p;
	while (s->p < s->end) {
		int d = hex_digit(*s->p);
		if (d < 0)
			break;
		if (x >> 60)
			return false;
		x = x << 4 | (unsigned)d;
		s->p++;
	}
	*out = x;
	return s->p != start;
}

struct scan scan_until(struct scan *s, char c)
{
	const char *q = memchr(s->p, c, scan_left(s));
	struct scan part = { s->p, q ? q : s->end };
	s->p = q ? q + 1 : s->end;
	return part;
}

long scan_hexbytes(struct scan *s, void *out, size_t max)
{
	uint8_t *o = out;
	size_t n = 0;
	while (s->p < s->end && n < max) {
		int hi = hex_digit(s->p[0]);
		int lo = scan_left(s) >= 2 ? hex_digit(s->p[1]) : -1;
		if (hi < 0 || lo < 0)
			return -1;
		o[n++] = (uint8_t)(hi << 4 | lo);
		s->p += 2;
	}
	return (long)n;
}

long scan_binary(struct scan *s, void *out, size_t max)
{
	uint8_t *o = out;
	size_t n = 0;
	while (s->p < s->end) {
		char c = *s->p++;
		if (c == '}') {
			if (s->p == s->end)
				return -1;
			c = *s->p++ ^ 0x20;
		}
		if (n == max)
			return -1;
		o[n++] = (uint8_t)c;
	}
	return (long)n;
}
