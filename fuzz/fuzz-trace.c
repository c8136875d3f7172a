/*
 * Fuzz target: the trace reader. Opens the input as a trace and uses all of it. What begins like a
 * file of the module store is taken for one, with what else its name has (half of the hash, and
 * the size) behind it, and modules in it are read.
 *
 * Random changes hardly ever get past the checksums, so the input is tried a second time
 * with all of them put right.
 */
#include "format/bytes.h"
#include "format/chunk.h"
#include "format/store.h"
#include "format/trace.h"
#include "fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

/* Bigger modules are refused here only to spare the fuzzer's memory limit. */
#define MODULE_TRY_MAX (64u << 20)

/* Make the checksums of header, chunks and footer those of what they protect. A length
 * that leads past the end is left alone. */
static void repair(uint8_t *bytes, size_t len)
{
	uint32_t version = len >= FILE_HEADER_SIZE ? dj_get32(bytes + 8) : 0;
	uint64_t id;
	size_t at = FILE_HEADER_SIZE;

	if (len < FILE_HEADER_SIZE)
		return;
	if (version < DJ_TRACE_VERSION_OLDEST || version > DJ_TRACE_VERSION_SHARED)
		version = DJ_TRACE_SHARES(version) ? DJ_TRACE_VERSION_SHARED : DJ_TRACE_VERSION;
	id = dj_get64(bytes + 16);
	if (!memcmp(bytes, STORE_MAGIC, 8))
		dj_store_header_pack(bytes, id);
	else
		dj_file_header_pack(bytes, version, id);
	while (at + CHUNK_HEADER_SIZE <= len) {
		uint8_t *h = bytes + at;
		size_t payload;

		if (memcmp(h, CHUNK_MAGIC, 4)) {
			at++;
			continue;
		}
		payload = dj_get32(h + 68);
		at += CHUNK_HEADER_SIZE;
		if (payload <= len - at) {
			dj_put64(h + CHUNK_HEADER_SIZE - 16,
				 dj_chunk_sum(id, h + CHUNK_HEADER_SIZE, payload));
			at += payload;
		}
		dj_put64(h + CHUNK_HEADER_SIZE - 8, dj_chunk_sum(id, h, CHUNK_HEADER_SIZE - 8));
	}
	if (len >= FILE_HEADER_SIZE + FOOTER_SIZE) {
		uint8_t *footer = bytes + len - FOOTER_SIZE;

		if (!memcmp(footer, FOOTER_MAGIC, 8))
			dj_put64(footer + 24, dj_chunk_sum(id, footer, 24));
	}
}

/* Touch what was served, so that a sanitizer sees what should not have been. */
static uint64_t touch(const void *bytes, size_t len)
{
	return dj_chunk_sum(0, bytes, len);
}

static uint64_t touch_string(const char *s)
{
	return s ? touch(s, strlen(s)) : 0;
}

/* From a position found, records come that reach as far, if any do. */
static void seek(struct dj_cursor *c, uint64_t steps, uint64_t n)
{
	const struct dj_record *r;
	struct dj_error err;
	uint64_t last = 0;

	if (dj_cursor_seek_seq(c, n, &err))
		return;
	dj_cursor_next(c, &err);
	if (dj_cursor_seek_steps(c, steps, &err))
		return;
	while ((r = dj_cursor_next(c, &err))) {
		if (r->steps < last)
			abort();
		last = r->steps;
	}
	if (!err.text[0] && n && last != steps)
		abort();
}

static uint64_t walk_facts(struct dj_trace *t, size_t i)
{
	struct dj_error err;
	struct dj_cursor *c = dj_cursor_new_facts(t, i, &err);
	const struct dj_record *r;
	struct dj_mark mark = { 0 };
	uint64_t n = 0, sum = 0;

	while ((r = dj_cursor_next(c, &err))) {
		if (!dj_record_is_fact(r->kind) || r->thread >= (int64_t)dj_trace_threads(t) ||
		    (r->kind == DJ_REC_CHILD && r->subject >= (int64_t)dj_trace_processes(t)) ||
		    (r->kind == DJ_REC_THREAD && r->subject >= (int64_t)dj_trace_threads(t)))
			abort();
		sum += touch(r, sizeof(*r)) + touch_string(r->name);
		if (r->kind == DJ_REC_CODE)
			sum += touch(r->bytes, r->length);
		if (++n % 4 == 2)
			dj_cursor_mark(c, &mark);
	}
	if (n > dj_trace_process(t, i)->facts)
		abort();
	if (!dj_cursor_restore(c, &mark, &err))
		dj_cursor_next(c, &err);
	dj_cursor_free(c);
	return sum;
}

static uint64_t walk(struct dj_trace *t, size_t i)
{
	struct dj_error err;
	struct dj_cursor *c = dj_cursor_new(t, i, &err);
	const struct dj_record *r;
	struct dj_mark mark, start;
	uint64_t n = 0, sum = 0, steps = 0;

	dj_cursor_mark(c, &start);
	mark = start;
	while ((r = dj_cursor_next(c, &err))) {
		if (r->steps < steps || r->steps > dj_trace_thread(t, i)->last_steps)
			abort();
		steps = r->steps;
		sum += touch(r, sizeof(*r)) + touch_string(r->name);
		if (r->kind == DJ_REC_IMPORT)
			sum += touch(r->bytes, DJ_LINE);
		if (dj_record_has_bytes(r->kind))
			sum += touch(r->bytes, r->length);
		if (r->kind == DJ_REC_MAP && r->module >= (int64_t)dj_trace_modules(t))
			abort();
		if (++n % 16 == 8)
			dj_cursor_mark(c, &mark);
	}
	if (!dj_cursor_restore(c, &mark, &err))
		dj_cursor_next(c, &err);
	if (!dj_cursor_restore(c, &start, &err) && n && !dj_cursor_next(c, &err))
		abort();
	seek(c, steps, n);
	dj_cursor_free(c);
	return sum;
}

static uint64_t use_times(struct dj_trace *t, size_t i)
{
	struct dj_time *times;
	struct dj_error err;
	uint64_t sum = 0;
	size_t n;

	if (dj_trace_times(t, i, &times, &n, &err))
		return touch_string(err.text);
	for (size_t k = 0; k < n; k++) {
		if (times[k].steps > dj_trace_thread(t, i)->last_steps ||
		    (k && (times[k].us < times[k - 1].us || times[k].steps < times[k - 1].steps)))
			abort();
		sum += touch(&times[k], sizeof(times[k]));
	}
	free(times);
	return sum;
}

static uint64_t use_facts(struct dj_trace *t)
{
	const struct dj_trace_meta *m = dj_trace_meta(t);
	uint64_t sum = touch_string(m->exe) + touch_string(m->cpu) + touch(m->auxv, m->auxv_len);

	for (const char *const *s = m->argv; *s; s++)
		sum += touch_string(*s);
	for (const char *const *s = m->envp; *s; s++)
		sum += touch_string(*s);
	for (size_t i = 0; i < dj_trace_modules(t); i++) {
		const struct dj_module_info *info = dj_trace_module(t, i);
		struct dj_error err;
		const uint8_t *bytes;
		size_t size;

		sum += touch_string(info->path) + touch(info->build_id, info->build_id_len);
		if (info->size > MODULE_TRY_MAX)
			continue;
		bytes = dj_trace_module_bytes(t, i, &size, &err);
		if (bytes)
			sum += touch(bytes, size);
	}
	return sum;
}

static uint64_t use_memory(struct dj_trace *t)
{
	static const uint32_t images[] = { 0, 1, UINT32_MAX };
	static const uint64_t addresses[] = { 0, 0x7ffffff00f00, 0x7ffffff00ff0, UINT64_MAX - 8 };
	uint64_t sum = 0;
	uint8_t buf[300];

	for (size_t i = 0; i <= dj_trace_processes(t) && i < 4; i++)
		for (size_t s = 0; s < sizeof(images) / sizeof(images[0]); s++)
			for (size_t a = 0; a < sizeof(addresses) / sizeof(addresses[0]); a++)
				sum += touch(buf, dj_trace_snapshot(t, i, images[s], addresses[a],
								    buf, sizeof(buf)));
	return sum;
}

static uint64_t open_and_use(const uint8_t *bytes, size_t len)
{
	struct dj_error err;
	struct dj_trace *t = dj_trace_open_memory(bytes, len, &err);
	uint64_t sum;

	if (!t)
		return touch_string(err.text);
	sum = touch_string(dj_trace_damage(t)) + use_facts(t) + use_memory(t);
	for (size_t i = 0; i < dj_trace_threads(t); i++)
		sum += walk(t, i) + use_times(t, i) + touch_string(dj_trace_thread(t, i)->name);
	for (size_t i = 0; i < dj_trace_processes(t); i++)
		sum += walk_facts(t, i);
	dj_trace_close(t);
	return sum;
}

/* A file of the module store, and a trace that has two modules there. */
static uint64_t use_stored(const uint8_t *bytes, size_t len)
{
	struct dj_store_file f = { .file = bytes, .len = len - 16 };
	struct dj_reader_module modules[2] = { 0 };
	struct dj_trace t = { .path = "fuzz", .store = "modules", .stored = &f, .nstored = 1 };
	uint64_t sum = 0;
	size_t size;

	memcpy(f.key.hash, bytes + 16, 8);
	memcpy(f.key.hash + 8, bytes + len - 16, 8);
	f.key.size = dj_get64(bytes + len - 8);
	t.stored_bytes = f.len;
	if (!dj_store_check(&f) && f.key.size <= MODULE_TRY_MAX) {
		t.modules = modules;
		t.nmodules = 2;
		for (size_t i = 0; i < 2; i++) {
			modules[i] = (struct dj_reader_module){ .known = true, .file = 1 };
			modules[i].path = "module";
			modules[i].key = f.key;
			modules[i].info.size = f.key.size;
			modules[i].info.stored = true;
		}
		for (size_t i = 0; i < 2; i++) {
			modules[1].sum = f.sum; /* as in an honest trace */
			const uint8_t *got = dj_trace_module_bytes(&t, i, &size, NULL);

			sum += got ? touch(got, size) : touch_string(dj_trace_missing(&t));
		}
	}
	free(f.chunks.v);
	free(f.bytes);
	return sum;
}

static void use(const uint8_t *bytes, size_t len)
{
	if (len >= FILE_HEADER_SIZE + 16 && !memcmp(bytes, STORE_MAGIC, 8))
		use_stored(bytes, len);
	else
		open_and_use(bytes, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	uint8_t *copy = malloc(len ? len : 1);

	use(bytes, len);
	if (!copy)
		abort();
	if (len)
		memcpy(copy, bytes, len);
	repair(copy, len);
	use(copy, len);
	free(copy);
	return 0;
}
