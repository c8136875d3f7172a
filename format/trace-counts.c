/* What the recorder counted while it recorded: a chunk that nothing depends on. */
#include "format/reader.h"
#include "format/writer.h"

#include "format/bytes.h"

#include <string.h>

int dj_writer_counts(struct dj_writer *w, const struct dj_trace_count *counts, size_t n,
		     struct dj_error *err)
{
	struct dj_chunk_header h = { .type = CHUNK_COUNTS, .stream = NO_STREAM };
	uint8_t payload[COUNTS_PAYLOAD_MAX], *p = payload;

	for (size_t i = 0; i < n && i < DJ_COUNTS_MAX; i++) {
		size_t len = strnlen(counts[i].name, sizeof(counts[i].name) - 1);

		*p++ = (uint8_t)len;
		memcpy(p, counts[i].name, len);
		p = dj_put64(p + len, counts[i].value);
	}
	return dj_writer_chunk(w, &h, payload, (size_t)(p - payload), err);
}

int dj_reader_take_counts(struct dj_trace *t, const struct dj_reader_chunk *c, const uint8_t *raw)
{
	struct dj_in in = { raw, raw + c->h.raw_len, false };
	size_t n = 0;

	for (; in.p < in.end && n < DJ_COUNTS_MAX; n++) {
		struct dj_trace_count *count = &t->counts[n];
		uint8_t len = dj_in8(&in);
		const uint8_t *name = dj_in_bytes(&in, len);

		if (!name || len >= sizeof(count->name))
			return -1;
		memcpy(count->name, name, len);
		count->name[len] = 0;
		count->value = dj_in64(&in);
	}
	if (in.bad || in.p < in.end)
		return -1;
	t->ncounts = n;
	return 0;
}

const struct dj_trace_count *dj_trace_counts(const struct dj_trace *t, size_t *n)
{
	*n = t->ncounts;
	return t->counts;
}
