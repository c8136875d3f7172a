/*
 * A growing byte buffer for replies, and a reader for the arguments of requests. Both work on
 * bytes with a length, never on NUL-terminated strings: packets may hold any byte.
 */
#ifndef DEJA_GDBSTUB_TEXTBUF_H
#define DEJA_GDBSTUB_TEXTBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct textbuf {
	char *p;
	size_t len, cap;
	bool failed; /* memory ran out: the contents are incomplete */
};

void textbuf_reset(struct textbuf *b);
void textbuf_free(struct textbuf *b);
void textbuf_char(struct textbuf *b, char c);
void textbuf_bytes(struct textbuf *b, const void *p, size_t n);
void textbuf_str(struct textbuf *b, const char *s);
void textbuf_printf(struct textbuf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Two hexadecimal digits a byte. */
void textbuf_hex(struct textbuf *b, const void *p, size_t n);
/* Binary with the protocol's escapes ('#', '$', '}', '*'); returns how many of the n bytes
 * went in before the buffer's length reached `limit`. */
size_t textbuf_binary(struct textbuf *b, const void *p, size_t n, size_t limit);
/* Text for an XML attribute. */
void textbuf_xml(struct textbuf *b, const char *s);

/* ---- reading ---- */

struct scan {
	const char *p, *end;
};

static inline size_t scan_left(const struct scan *s)
{
	return (size_t)(s->end - s->p);
}

/* Skip `c` if it comes next. */
bool scan_char(struct scan *s, char c);
/* Skip the word `w` if it comes next. */
bool scan_word(struct scan *s, const char *w);
/* An unsigned hexadecimal number of at least one digit that fits in 64 bits. */
bool scan_hex(struct scan *s, uint64_t *out);
/* The part up to the next `c`, which is skipped, or all that is left. */
struct scan scan_until(struct scan *s, char c);
/* Decode hexadecimal bytes until the input ends or `max` are there; returns how many, or -1
 * if something is not a pair of digits. */
long scan_hexbytes(struct scan *s, void *out, size_t max);
/* Undo the binary escapes of all that is left; returns the number of bytes, or -1 if an
 * escape is cut off or there are more than `max`. */
long scan_binary(struct scan *s, void *out, size_t max);

int hex_digit(char c); /* -1 if it is none */

#endif
