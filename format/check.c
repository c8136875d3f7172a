/*
 * Packing of what is compared beside the registers (format/record.h). deja-trace(5) has the same.
 */
#include "format/bytes.h"
#include "format/error.h"
#include "format/record.h"

#include <xxhash.h>

_Static_assert((2 + 1 + 2 * DJ_CHECK_PIECES + 2) * DJ_VARINT_MAX + 4 * DJ_CHECK_PIECES <=
		       DJ_CODE_MAX,
	       "a CHECK record has room for all its pieces");

uint32_t dj_check_sum(const void *bytes, size_t len)
{
	return (uint32_t)XXH3_64bits(bytes, len);
}

uint64_t dj_sum(uint64_t seed, const void *bytes, size_t len)
{
	return XXH3_64bits_withSeed(bytes, len, seed);
}

size_t dj_check_pack(const struct dj_check *c, uint8_t *out)
{
	uint8_t *p = dj_put_varint(out, c->flags_known);
	uint64_t at = 0;

	DJ_ASSERT(c->n <= DJ_CHECK_PIECES, "%u pieces to check", c->n);
	p = dj_put_varint(p, c->flags);
	p = dj_put_varint(p, c->n);
	for (unsigned i = 0; i < c->n; i++) {
		const struct dj_check_piece *piece = &c->piece[i];

		p = dj_put_varint(p, dj_zigzag((int64_t)(piece->addr - at)));
		p = dj_put_varint(p, piece->length);
		p = dj_put32(p, piece->sum);
		at = piece->addr;
	}
	p = dj_put_varint(p, c->same_addr);
	p = dj_put_varint(p, c->same_length);
	return (size_t)(p - out);
}

bool dj_check_unpack(struct dj_check *c, const uint8_t *bytes, size_t len)
{
	struct dj_in in = { bytes, bytes + len, false };
	uint64_t at = 0;

	c->flags_known = dj_in_varint(&in);
	c->flags = dj_in_varint(&in);
	uint64_t n = dj_in_varint(&in);
	if (in.bad || n > DJ_CHECK_PIECES || c->flags & ~c->flags_known)
		return false;
	c->n = (unsigned)n;
	for (unsigned i = 0; i < c->n; i++) {
		at += (uint64_t)dj_unzigzag(dj_in_varint(&in));
		uint64_t length = dj_in_varint(&in);
		uint32_t sum = dj_in32(&in);

		if (in.bad || !length || length > DJ_CHECK_PAGE - at % DJ_CHECK_PAGE)
			return false;
		c->piece[i] = (struct dj_check_piece){ at, (uint32_t)length, sum };
	}
	c->same_addr = dj_in_varint(&in);
	uint64_t same = dj_in_varint(&in);
	if (same > DJ_CHECK_SAME || c->same_addr > UINT64_MAX - same)
		return false;
	c->same_length = (uint32_t)same;
	return !in.bad && in.p == in.end;
}
