/* File header, chunk header, footer (format/chunk.h). */
#include "format/chunk.h"

#include "format/bytes.h"

#include <xxhash.h>
#include <zstd.h>

uint64_t dj_chunk_sum(uint64_t id, const void *bytes, size_t len)
{
	return XXH3_64bits_withSeed(bytes, len, id);
}

/*
 * File header: magic 8, version 4, size of this header 4, file id 8, checksum 8 of all
 * before. Whatever a later version changes, it keeps these 32 bytes.
 */
static void header_pack(uint8_t out[FILE_HEADER_SIZE], const char *magic, uint32_t version,
			uint64_t id)
{
	uint8_t *p = out;

	memcpy(p, magic, 8);
	p = dj_put32(p + 8, version);
	p = dj_put32(p, FILE_HEADER_SIZE);
	p = dj_put64(p, id);
	dj_put64(p, dj_chunk_sum(id, out, (size_t)(p - out)));
}

void dj_file_header_pack(uint8_t out[FILE_HEADER_SIZE], uint32_t version, uint64_t id)
{
	header_pack(out, FILE_MAGIC, version, id);
}

void dj_store_header_pack(uint8_t out[FILE_HEADER_SIZE], uint64_t id)
{
	header_pack(out, STORE_MAGIC, DJ_STORE_VERSION, id);
}

enum dj_file_header_state dj_file_header_unpack(const uint8_t *in, size_t len, uint32_t *version,
						uint64_t *id)
{
	uint64_t sum;

	if (memcmp(in, FILE_MAGIC, len < 8 ? len : 8))
		return HEADER_FOREIGN;
	if (len < FILE_HEADER_SIZE)
		return HEADER_SHORT;
	*version = dj_get32(in + 8);
	*id = dj_get64(in + 16);
	sum = dj_chunk_sum(*id, in, 24);
	if (sum == dj_get64(in + 24) && *version >= DJ_TRACE_VERSION_OLDEST &&
	    *version <= DJ_TRACE_VERSION_SHARED)
		return dj_get32(in + 12) == FILE_HEADER_SIZE ? HEADER_GOOD : HEADER_DAMAGED;
	/* a believable newer version need not compute its checksum as this one does */
	if (sum == dj_get64(in + 24) || (*version > DJ_TRACE_VERSION_SHARED && *version < 1000))
		return HEADER_VERSION;
	return HEADER_DAMAGED;
}

/*
 * Chunk header: magic 4, type 1, encoding 1, flags 2, stream 4, number 4, first 8, last 8,
 * first seq 8, last seq 8, arg 8, facts 8, raw length 4, length 4, payload checksum 8,
 * header checksum 8.
 */
void dj_chunk_header_pack(uint8_t out[CHUNK_HEADER_SIZE], const struct dj_chunk_header *h,
			  uint64_t id)
{
	uint8_t *p = out;

	memcpy(p, CHUNK_MAGIC, 4);
	p += 4;
	*p++ = h->type;
	*p++ = h->encoding;
	p = dj_put16(p, h->flags);
	p = dj_put32(p, h->stream);
	p = dj_put32(p, h->number);
	p = dj_put64(p, h->first);
	p = dj_put64(p, h->last);
	p = dj_put64(p, h->first_seq);
	p = dj_put64(p, h->last_seq);
	p = dj_put64(p, h->arg);
	p = dj_put64(p, h->facts);
	p = dj_put32(p, h->raw_len);
	p = dj_put32(p, h->len);
	p = dj_put64(p, h->payload_sum);
	dj_put64(p, dj_chunk_sum(id, out, (size_t)(p - out)));
}

bool dj_chunk_header_unpack(struct dj_chunk_header *h, const uint8_t *bytes, size_t len,
			    uint64_t id)
{
	struct dj_in in = { bytes, bytes + len, false };

	if (len < CHUNK_HEADER_SIZE || memcmp(bytes, CHUNK_MAGIC, 4) ||
	    dj_get64(bytes + CHUNK_HEADER_SIZE - 8) !=
		    dj_chunk_sum(id, bytes, CHUNK_HEADER_SIZE - 8))
		return false;
	dj_in_bytes(&in, 4);
	h->type = dj_in8(&in);
	h->encoding = dj_in8(&in);
	h->flags = dj_in16(&in);
	h->stream = dj_in32(&in);
	h->number = dj_in32(&in);
	h->first = dj_in64(&in);
	h->last = dj_in64(&in);
	h->first_seq = dj_in64(&in);
	h->last_seq = dj_in64(&in);
	h->arg = dj_in64(&in);
	h->facts = dj_in64(&in);
	h->raw_len = dj_in32(&in);
	h->len = dj_in32(&in);
	h->payload_sum = dj_in64(&in);
	if (h->first_seq != DJ_SEQ_UNKNOWN && h->last_seq < h->first_seq)
		return false;
	return h->first <= h->last && h->raw_len <= CHUNK_RAW_MAX && h->len <= CHUNK_RAW_MAX &&
	       h->encoding <= CHUNK_ZSTD && (h->encoding == CHUNK_ZSTD || h->len == h->raw_len);
}

bool dj_chunk_at(const uint8_t *file, uint64_t at, uint64_t limit, uint64_t id,
		 struct dj_chunk_header *h, uint64_t *payload)
{
	if (at > limit || !dj_chunk_header_unpack(h, file + at, limit - at, id))
		return false;
	*payload = at + CHUNK_HEADER_SIZE;
	return h->len <= limit - *payload;
}

/* Footer: magic 8, offset of the first INDEX chunk 8, zero 8, checksum 8. */
void dj_footer_pack(uint8_t out[FOOTER_SIZE], uint64_t index_at, uint64_t id)
{
	uint8_t *p = out;

	memcpy(p, FOOTER_MAGIC, 8);
	p = dj_put64(p + 8, index_at);
	p = dj_put64(p, 0);
	dj_put64(p, dj_chunk_sum(id, out, (size_t)(p - out)));
}

bool dj_footer_unpack(const uint8_t *in, uint64_t *index_at, uint64_t id)
{
	*index_at = dj_get64(in + 8);
	return !memcmp(in, FOOTER_MAGIC, 8) && dj_get64(in + 24) == dj_chunk_sum(id, in, 24);
}

int dj_chunk_unpack(const struct dj_chunk_header *h, const uint8_t *payload, uint8_t *out)
{
	if (h->encoding == CHUNK_PLAIN) {
		memcpy(out, payload, h->len);
		return 0;
	}
	return ZSTD_decompress(out, h->raw_len, payload, h->len) == h->raw_len ? 0 : -1;
}
