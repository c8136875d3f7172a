/* Coding and decoding of the description of a recording (format/meta.h). */
#include "format/meta.h"

#include "format/bytes.h"
#include "format/chunk.h"

#include <stdlib.h>

enum {
	META_LAST = 0,
	META_ARGV = 13,
	META_ENVP = 14,
	META_AUXV = 15,
};

enum meta_kind { META_U32, META_U64, META_STRING };

static const struct meta_field {
	uint16_t tag;
	enum meta_kind kind;
	size_t at;
	/* clang-format off */
} fields[] = {
	{ 1, META_U32, offsetof(struct dj_trace_meta, predict) },
	{ 2, META_U32, offsetof(struct dj_trace_meta, shadow_bits) },
	{ 3, META_U32, offsetof(struct dj_trace_meta, memory_model) },
	{ 4, META_U64, offsetof(struct dj_trace_meta, digest_interval) },
	{ 5, META_U64, offsetof(struct dj_trace_meta, start_time_ns) },
	{ 6, META_U32, offsetof(struct dj_trace_meta, pid) },
	{ 7, META_U32, offsetof(struct dj_trace_meta, page_size) },
	{ 8, META_STRING, offsetof(struct dj_trace_meta, deja_version) },
	{ 9, META_STRING, offsetof(struct dj_trace_meta, machine) },
	{ 10, META_STRING, offsetof(struct dj_trace_meta, cpu) },
	{ 11, META_STRING, offsetof(struct dj_trace_meta, exe) },
	{ 12, META_STRING, offsetof(struct dj_trace_meta, cwd) },
};
/* clang-format on */
#define FIELDS (sizeof(fields) / sizeof(fields[0]))

/* ---- coding -------------------------------------------------------------------- */

static int put_field(dj_meta_sink *sink, void *ctx, uint16_t tag, const void *bytes, size_t len,
		     struct dj_error *err)
{
	uint8_t *field, *p;
	int r;

	if (len > CHUNK_RAW_MAX / 2)
		return dj_fail(err, 1,
			       "cannot write the trace: a string of %zu bytes in the "
			       "program's start-up is too long",
			       len);
	field = malloc(6 + len);
	if (!field)
		return dj_fail(err, 1, "out of memory");
	p = dj_put16(field, tag);
	p = dj_put32(p, (uint32_t)len);
	if (len)
		memcpy(p, bytes, len);
	r = sink(ctx, field, 6 + len, err);
	free(field);
	return r;
}

static int put_strings(dj_meta_sink *sink, void *ctx, uint16_t tag, const char *const *strings,
		       struct dj_error *err)
{
	for (; strings && *strings; strings++)
		if (put_field(sink, ctx, tag, *strings, strlen(*strings), err))
			return -1;
	return 0;
}

int dj_meta_code(const struct dj_trace_meta *m, dj_meta_sink *sink, void *ctx, struct dj_error *err)
{
	for (size_t i = 0; i < FIELDS; i++) {
		const char *member = (const char *)m + fields[i].at;
		uint8_t number[8];
		const void *bytes = number;
		const char *string;
		uint64_t v64;
		uint32_t v32;
		size_t len;

		switch (fields[i].kind) {
		case META_U32:
			memcpy(&v32, member, 4);
			dj_put32(number, v32);
			len = 4;
			break;
		case META_U64:
			memcpy(&v64, member, 8);
			dj_put64(number, v64);
			len = 8;
			break;
		default:
			memcpy(&string, member, sizeof(string));
			bytes = string ? string : "";
			len = strlen(bytes);
		}
		if (put_field(sink, ctx, fields[i].tag, bytes, len, err))
			return -1;
	}
	if (put_strings(sink, ctx, META_ARGV, m->argv, err) ||
	    put_strings(sink, ctx, META_ENVP, m->envp, err) ||
	    put_field(sink, ctx, META_AUXV, m->auxv, m->auxv_len, err))
		return -1;
	return put_field(sink, ctx, META_LAST, NULL, 0, err);
}

/* ---- decoding ------------------------------------------------------------------- */

static char *copy_string(const uint8_t *bytes, size_t len)
{
	char *s = malloc(len + 1);

	if (s) {
		memcpy(s, bytes, len);
		s[len] = 0;
	}
	return s;
}

/* More than fit into the memory that Linux has for them: each takes nine bytes there. */
#define STRINGS_MAX (META_TOTAL_MAX / 16)

/* Append a string, keeping the array NULL-terminated. */
static int add_string(char ***array, size_t *n, const uint8_t *bytes, size_t len)
{
	if (*n == STRINGS_MAX)
		return -1;
	/* grow when the count (with terminator) reaches a power of two */
	if ((*n & (*n + 1)) == 0) {
		char **grown = realloc(*array, 2 * (*n + 1) * sizeof(char *));

		if (!grown)
			return -1;
		*array = grown;
	}
	(*array)[*n] = copy_string(bytes, len);
	if (!(*array)[*n])
		return -1;
	(*array)[++*n] = NULL;
	return 0;
}

static int take_field(struct dj_meta_reader *r, const struct meta_field *f, const uint8_t *bytes,
		      size_t len)
{
	char *member = (char *)&r->m + f->at, *string;

	if (f->kind == META_STRING) {
		memcpy(&string, member, sizeof(string));
		free(string);
		string = copy_string(bytes, len);
		memcpy(member, &string, sizeof(string));
		return string ? 0 : -1;
	}
	if (len != (f->kind == META_U32 ? 4 : 8))
		return -1;
	if (f->kind == META_U32)
		memcpy(member, &(uint32_t){ dj_get32(bytes) }, 4);
	else
		memcpy(member, &(uint64_t){ dj_get64(bytes) }, 8);
	return 0;
}

int dj_meta_decode(struct dj_meta_reader *r, const uint8_t *bytes, size_t total)
{
	struct dj_in in = { bytes, bytes + total, false };

	while (in.p != in.end) {
		unsigned tag = dj_in16(&in);
		size_t len = dj_in32(&in);
		const uint8_t *value = dj_in_bytes(&in, len);
		int bad = 0;

		if (!value)
			return -1;
		if (tag == META_LAST)
			r->complete = true;
		else if (tag == META_ARGV)
			bad = add_string(&r->argv, &r->nargv, value, len);
		else if (tag == META_ENVP)
			bad = add_string(&r->envp, &r->nenvp, value, len);
		else if (tag == META_AUXV) {
			free((void *)r->m.auxv);
			r->m.auxv = (const uint8_t *)copy_string(value, len);
			r->m.auxv_len = len;
			bad = r->m.auxv ? 0 : -1;
		}
		for (size_t i = 0; i < FIELDS && !bad; i++)
			if (fields[i].tag == tag)
				bad = take_field(r, &fields[i], value, len);
		if (bad)
			return -1;
	}
	return 0;
}

int dj_meta_finish(struct dj_meta_reader *r)
{
	static const char *const none[] = { NULL };

	for (size_t i = 0; i < FIELDS; i++) {
		char *member = (char *)&r->m + fields[i].at, *string;

		memcpy(&string, member, sizeof(string));
		if (fields[i].kind == META_STRING && !string &&
		    take_field(r, &fields[i], (const uint8_t *)"", 0))
			return -1;
	}
	if (!r->m.auxv && !(r->m.auxv = (const uint8_t *)copy_string((const uint8_t *)"", 0)))
		return -1;
	r->m.argv = r->argv ? (const char *const *)r->argv : none;
	r->m.envp = r->envp ? (const char *const *)r->envp : none;
	return 0;
}

void dj_meta_free(struct dj_meta_reader *r)
{
	for (size_t i = 0; i < FIELDS; i++) {
		char *string;

		memcpy(&string, (char *)&r->m + fields[i].at, sizeof(string));
		if (fields[i].kind == META_STRING)
			free(string);
	}
	for (size_t i = 0; i < r->nargv; i++)
		free(r->argv[i]);
	for (size_t i = 0; i < r->nenvp; i++)
		free(r->envp[i]);
	free(r->argv);
	free(r->envp);
	free((void *)r->m.auxv);
}
