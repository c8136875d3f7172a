/*
 * Code for an emulator that is nothing but bytes at an address.
 */
#ifndef DEJA_TESTS_LIB_CODE_BYTES_H
#define DEJA_TESTS_LIB_CODE_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct code_bytes {
	uint64_t at;
	const uint8_t *bytes;
	size_t len;
};

/* The emulator's fetch function; `ctx` is a struct code_bytes. */
static inline size_t code_bytes_fetch(void *ctx, uint64_t addr, uint8_t *buf, size_t len)
{
	const struct code_bytes *code = ctx;
	uint64_t off = addr - code->at;

	if (off >= code->len)
		return 0;
	if (len > code->len - off)
		len = code->len - off;
	memcpy(buf, code->bytes + off, len);
	return len;
}

#endif
