/*
 * The facts about a recording as tagged fields, in META chunks. Private to format/.
 *
 * A field is a tag (2 bytes), a length (4 bytes) and that many bytes. Fields come in any
 * order; argv and envp have one field per string. Tags a reader does not know are
 * skipped. META_LAST ends the description: without it some of it is missing.
 */
#ifndef DEJA_FORMAT_META_H
#define DEJA_FORMAT_META_H

#include "format/trace.h"

/* Receives the coded fields one at a time. */
typedef int dj_meta_sink(void *ctx, const uint8_t *field, size_t len, struct dj_error *err);

/* Code `m`, ending with META_LAST. */
int dj_meta_code(const struct dj_trace_meta *m, dj_meta_sink *sink, void *ctx,
		 struct dj_error *err);

/* A description being put together; owns all that `m` points to. */
struct dj_meta_reader {
	struct dj_trace_meta m;
	char **argv, **envp;
	size_t nargv, nenvp;
	bool complete;
};

/* Take in the fields of one unpacked META chunk. -1 if they are malformed. */
int dj_meta_decode(struct dj_meta_reader *r, const uint8_t *bytes, size_t len);
/* Make every pointer of r->m valid. */
int dj_meta_finish(struct dj_meta_reader *r);
void dj_meta_free(struct dj_meta_reader *r);

#endif
