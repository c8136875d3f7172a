/* Reply buffers and argument readers: see textbuf.h. */
#include "gdbstub/textbuf.h"
#include "format/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What can be asked for grows with the trace: lists of mappings, of threads. No debugger reads one
 * that is larger. */
#define TEXTBUF_MAX ((size_t)32 << 20)

static const char hex_chars[] = "0123456789abcdef";

static bool reserve(struct stub_textbuf *b, size_t more)
{
	if (b->failed)
		return false;
	if (b->cap - b->len >= more)
		return true;
	size_t cap = b->cap ? b->cap : 256;
	while (cap < TEXTBUF_MAX && cap - b->len < more)
		cap *= 2;
	if (cap - b->len < more) {
		b->failed = true;
		return false;
	}
	char *p = realloc(b->p, cap);
	if (!p) {
		b->failed = true;
		return false;
	}
	b->p = p;
	b->cap = cap;
	return true;
}

void stub_textbuf_reset(struct stub_textbuf *b)
{
	b->len = 0;
	b->failed = false;
}

void stub_textbuf_free(struct stub_textbuf *b)
{
	free(b->p);
	*b = (struct stub_textbuf){ 0 };
}

void stub_textbuf_char(struct stub_textbuf *b, char c)
{
	if (reserve(b, 1))
		b->p[b->len++] = c;
}

void stub_textbuf_bytes(struct stub_textbuf *b, const void *p, size_t n)
{
	if (n && reserve(b, n)) {
		memcpy(b->p + b->len, p, n);
		b->len += n;
	}
}

void stub_textbuf_str(struct stub_textbuf *b, const char *s)
{
	stub_textbuf_bytes(b, s, strlen(s));
}

void stub_textbuf_printf(struct stub_textbuf *b, const char *fmt, ...)
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

void stub_textbuf_hex(struct stub_textbuf *b, const void *p, size_t n)
{
	if (!reserve(b, 2 * n))
		return;
	const uint8_t *bytes = p;
	for (size_t i = 0; i < n; i++) {
		b->p[b->len++] = hex_chars[bytes[i] >> 4];
		b->p[b->len++] = hex_chars[bytes[i] & 15];
	}
}

size_t stub_textbuf_binary(struct stub_textbuf *b, const void *p, size_t n, size_t limit)
{
	const char *bytes = p;
	size_t i;
	for (i = 0; i < n && b->len + 2 <= limit; i++) {
		char c = bytes[i];
		if (c == '#' || c == '$' || c == '}' || c == '*') {
			stub_textbuf_char(b, '}');
			c ^= 0x20;
		}
		stub_textbuf_char(b, c);
	}
	return i;
}

void stub_textbuf_name(struct stub_textbuf *b, const char *s)
{
	while (*s && !b->failed) {
		size_t n = dj_text_letter(s);

		if (n)
			stub_textbuf_bytes(b, s, n);
		else
			stub_textbuf_char(b, '?');
		s += n ? n : 1;
	}
}

void stub_textbuf_clean(struct stub_textbuf *b)
{
	stub_textbuf_char(b, '\0');
	if (b->failed)
		return;
	b->len--;
	for (size_t i = 0; i < b->len;) {
		size_t n = dj_text_letter(b->p + i);

		if (!n && b->p[i] != '\n' && b->p[i] != '\t')
			b->p[i] = '?';
		i += n ? n : 1;
	}
}

void stub_textbuf_xml(struct stub_textbuf *b, const char *s)
{
	for (; *s; s++) {
		switch (*s) {
		case '<':
			stub_textbuf_str(b, "&lt;");
			break;
		case '>':
			stub_textbuf_str(b, "&gt;");
			break;
		case '&':
			stub_textbuf_str(b, "&amp;");
			break;
		case '"':
			stub_textbuf_str(b, "&quot;");
			break;
		case '\'':
			stub_textbuf_str(b, "&apos;");
			break;
		default:
			/* XML 1.0 has no way to write other control characters, and the
			 * documents are declared UTF-8, which names need not be */
			if ((unsigned char)*s < 0x20 || (unsigned char)*s >= 0x7f)
				stub_textbuf_char(b, '?');
			else
				stub_textbuf_char(b, *s);
		}
	}
}

/* ---- reading ---- */

int stub_hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

bool stub_scan_char(struct stub_scan *s, char c)
{
	if (s->p == s->end || *s->p != c)
		return false;
	s->p++;
	return true;
}

bool stub_scan_word(struct stub_scan *s, const char *w)
{
	size_t n = strlen(w);
	if (stub_scan_left(s) < n || memcmp(s->p, w, n) != 0)
		return false;
	s->p += n;
	return true;
}

bool stub_scan_hex(struct stub_scan *s, uint64_t *out)
{
	uint64_t x = 0;
	const char *start = s->p;
	while (s->p < s->end) {
		int d = stub_hex_digit(*s->p);
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

struct stub_scan stub_scan_until(struct stub_scan *s, char c)
{
	const char *q = memchr(s->p, c, stub_scan_left(s));
	struct stub_scan part = { s->p, q ? q : s->end };
	s->p = q ? q + 1 : s->end;
	return part;
}

long stub_scan_hexbytes(struct stub_scan *s, void *out, size_t max)
{
	uint8_t *o = out;
	size_t n = 0;
	while (s->p < s->end && n < max) {
		int hi = stub_hex_digit(s->p[0]);
		int lo = stub_scan_left(s) >= 2 ? stub_hex_digit(s->p[1]) : -1;
		if (hi < 0 || lo < 0)
			return -1;
		o[n++] = (uint8_t)(hi << 4 | lo);
		s->p += 2;
	}
	return (long)n;
}

long stub_scan_binary(struct stub_scan *s, void *out, size_t max)
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
