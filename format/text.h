/*
 * Text out of a trace that is shown to somebody. Names of files and threads, arguments, reasons: a
 * trace decides what they are, and a terminal obeys what is in them.
 */
#ifndef DEJA_FORMAT_TEXT_H
#define DEJA_FORMAT_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Bytes (1 to 4) of the UTF-8 sequence at `s` (RFC 3629), and its character; 0 if it is none. */
size_t dj_text_utf8(const char *s, uint32_t *character);

/* Bytes (1 to 4) of the character at `s`, in UTF-8; 0 if a terminal might take it for more than a
 * letter, or if it is none: control characters (C0, delete, C1, also as single bytes), marks that
 * turn the direction of writing, separators of lines, and bytes that are no UTF-8. */
size_t dj_text_letter(const char *s);

/* Put '?' for each byte of `text` that is not part of a letter. */
void dj_text_clean(char *text);

#endif
