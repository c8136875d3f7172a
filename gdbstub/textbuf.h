/*
 * A growing byte buffer for replies, and a reader for the arguments of requests. Both work on
 * bytes with a length, never on NUL-terminated strings: packets may hold any byte.
 */
#ifndef DEJA_GDBSTUB_TEXTBUF_H
#define DEJA_GDBSTUB_TEXTBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stub_textbuf {
	char *p;
	size_t len, cap;
	bool failed; /* memory ran out: the contents are incomplete */
};

void stub_textbuf_reset(struct stub_textbuf *b);
void stub_textbuf_free(struct stub_textbuf *b);
void stub_textbuf_char(struct stub_textbuf *b, char c);
void stub_textbuf_bytes(struct stub_textbuf *b, const void *p, size_t n);
void stub_textbuf_str(struct stub_textbuf *b, const char *s);
void stub_textbuf_printf(struct stub_textbuf *b, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Two hexadecimal digits a byte. */
void stub_textbuf_hex(struct stub_textbuf *b, const void *p, size_t n);
/* Binary with the protocol's escapes ('#', '$', '}', '*'); returns how many of the n bytes
 * went in before the buffer's length reached `limit`. */
size_t stub_textbuf_binary(struct stub_textbuf *b, const void *p, size_t n, size_t limit);
/* Text for an XML attribute. */
/* A name out of the trace, as text: what is no letter as '?'. */
void stub_textbuf_name(struct stub_textbuf *b, const char *s);
/* The same done to what is there, but for ends of lines and tabs. */
void stub_textbuf_clean(struct stub_textbuf *b);
void stub_textbuf_xml(struct stub_textbuf *b, const char *s);

/* ---- reading ---- */

struct stub_scan {
	const char *p, *end;
};

static inline size_t stub_scan_left(const struct stub_scan *s)
{
	return (size_t)(s->end - s->p);
}

/* Skip `c` if it comes next. */
bool stub_scan_char(struct stub_scan *s, char c);
/* Skip the word `w` if it comes next. */
bool stub_scan_word(struct stub_scan *s, const char *w);
/* An unsigned hexadecimal number of at least one digit that fits in 64 bits. */
bool stub_scan_hex(struct stub_scan *s, uint64_t *out);
/* The part up to the next `c`, which is skipped, or all that is left. */
struct stub_scan stub_scan_until(struct stub_scan *s, char c);
/* Decode hexadecimal bytes until the input ends or `max` are there; returns how many, or -1
 * if something is not a pair of digits. */
long stub_scan_hexbytes(struct stub_scan *s, void *out, size_t max);
/* Undo the binary escapes of all that is left; returns the number of bytes, or -1 if an
 * escape is cut off or there are more than `max`. */
long stub_scan_binary(struct stub_scan *s, void *out, size_t max);

int stub_hex_digit(char c); /* -1 if it is none */

#endif
