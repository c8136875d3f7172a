/*
 * Little-endian bytes and varints: how numbers are put into a trace file, whatever the
 * host's own order and alignment.
 *
 * A varint has 7 bits per byte, lowest first, the top bit of a byte saying that another
 * follows; 64 bits take at most 10 bytes. Signed values are "zigzag" coded first (0, -1, 1,
 * -2, ... become 0, 1, 2, 3, ...), so that small negative numbers stay short. Reading goes
 * through a dj_in, which never passes its end and remembers that something was missing.
 */
#ifndef DEJA_FORMAT_BYTES_H
#define DEJA_FORMAT_BYTES_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define DJ_DEFINE_LE(bits)                                                                         \
	static inline uint8_t *dj_put##bits(uint8_t *p, uint##bits##_t v)                          \
	{                                                                                          \
		v = htole##bits(v);                                                                \
		memcpy(p, &v, sizeof(v));                                                          \
		return p + sizeof(v);                                                              \
	}                                                                                          \
	static inline uint##bits##_t dj_get##bits(const uint8_t *p)                                \
	{                                                                                          \
		uint##bits##_t v;                                                                  \
		memcpy(&v, p, sizeof(v));                                                          \
		return le##bits##toh(v);                                                           \
	}
DJ_DEFINE_LE(16)
DJ_DEFINE_LE(32)
DJ_DEFINE_LE(64)
#undef DJ_DEFINE_LE

#define DJ_VARINT_MAX 10

static inline uint8_t *dj_put_varint(uint8_t *p, uint64_t v)
{
	while (v >= 0x80) {
		*p++ = (uint8_t)v | 0x80;
		v >>= 7;
	}
	*p++ = (uint8_t)v;
	return p;
}

static inline uint64_t dj_zigzag(int64_t v)
{
	return (uint64_t)v << 1 ^ (v < 0 ? ~0ULL : 0);
}

static inline int64_t dj_unzigzag(uint64_t v)
{
	return (int64_t)(v >> 1 ^ (v & 1 ? ~0ULL : 0));
}

/* Bytes being read. After a short or malformed read `bad` is set and every value is 0. */
struct dj_in {
	const uint8_t *p, *end;
	bool bad;
};

static inline const uint8_t *dj_in_bytes(struct dj_in *in, size_t n)
{
	const uint8_t *p = in->p;

	if (in->bad || (size_t)(in->end - in->p) < n) {
		in->bad = true;
		return NULL;
	}
	in->p += n;
	return p;
}

#define DJ_DEFINE_IN(bits, expr)                                                                   \
	static inline uint##bits##_t dj_in##bits(struct dj_in *in)                                 \
	{                                                                                          \
		const uint8_t *p = dj_in_bytes(in, bits / 8);                                      \
		return p ? (expr) : 0;                                                             \
	}
DJ_DEFINE_IN(8, *p)
DJ_DEFINE_IN(16, dj_get16(p))
DJ_DEFINE_IN(32, dj_get32(p))
DJ_DEFINE_IN(64, dj_get64(p))
#undef DJ_DEFINE_IN

static inline uint64_t dj_in_varint(struct dj_in *in)
{
	uint64_t v = 0;

	for (unsigned shift = 0; shift < 70; shift += 7) {
		uint8_t b;

		if (in->bad || in->p == in->end)
			break;
		b = *in->p++;
		if (shift == 63 && b > 1) /* would not fit into 64 bits */
			break;
		v |= (uint64_t)(b & 0x7f) << shift;
		if (!(b & 0x80))
			return v;
	}
	in->bad = true;
	return 0;
}

#endif
