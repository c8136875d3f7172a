/*
 * Copies a trace, with changes that an attacker might make to it (more modules, modules under other
 * names), or such as a mistake of the recorder's would make. What comes out is a well-formed trace.
 * For tests/cli/hostile.sh and tests/cli/verify.sh.
 *
 * usage: edit-trace IN OUT [add NAME FILE | zeros NAME MEGABYTES | rename OLD NEW |
 *                           drop KIND all | spoil WHAT N]...
 *
 * drop leaves out all records of a kind. spoil changes one bit in the Nth record from the end (1 is
 * the last) that has what it names: import (its line's last byte), digest, flags, memory, keyframe
 * (rbx).
 *
 * Relies on a recording of one process with one thread and one image.
 */
#include "format/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Noreturn void fail(const char *what, const struct dj_error *err)
{
	fprintf(stderr, "edit-trace: %s%s%s\n", what, err ? ": " : "", err ? err->text : "");
	exit(1);
}

static const char *renamed(const char *path, char **edits)
{
	for (; *edits; edits += 3)
		if (!strcmp(edits[0], "rename") && !strcmp(edits[1], path))
			return edits[2];
	return path;
}

static void copy_modules(struct dj_trace *t, struct dj_writer *w, char **edits)
{
	struct dj_error err;

	for (size_t i = 0; i < dj_trace_modules(t); i++) {
		size_t size;
		const uint8_t *bytes = dj_trace_module_bytes(t, i, &size, &err);
		if (!bytes || dj_writer_module(w, renamed(dj_trace_module(t, i)->path, edits),
					       bytes, size, &err) != (int)i)
			fail("module", &err);
	}
}

static void *contents(char **edit, size_t *size)
{
	if (!strcmp(edit[0], "zeros")) {
		*size = (size_t)atoi(edit[2]) << 20;
		return calloc(1, *size);
	}
	FILE *f = fopen(edit[2], "r");
	char *bytes = malloc(1 << 20);
	if (!f || !bytes)
		fail(edit[2], NULL);
	*size = fread(bytes, 1, 1 << 20, f);
	fclose(f);
	return bytes;
}

static void add_modules(struct dj_writer *w, char **edits)
{
	struct dj_error err;

	for (; *edits; edits += 3) {
		if (strcmp(edits[0], "add") != 0 && strcmp(edits[0], "zeros") != 0)
			continue;
		size_t size;
		void *bytes = contents(edits, &size);
		if (!bytes || dj_writer_module(w, edits[1], bytes, size, &err) < 0)
			fail(edits[1], &err);
		free(bytes);
	}
}

/* The start memory of a mapping, as far as it is in the trace. */
static void copy_memory(struct dj_trace *t, struct dj_stream *process, uint64_t start, uint64_t end)
{
	static uint8_t buf[1 << 16];
	struct dj_error err;

	for (uint64_t at = start; at < end;) {
		size_t n = end - at < sizeof(buf) ? (size_t)(end - at) : sizeof(buf);
		size_t got = dj_trace_snapshot(t, 0, 0, at, buf, n);
		if (got && dj_stream_snapshot(process, 0, at, buf, got, &err))
			fail("memory", &err);
		at += got ? got : 4096;
	}
}

static bool has(const struct dj_record *r, const char *what)
{
	struct dj_check c;

	if (!strcmp(what, "import"))
		return r->kind == DJ_REC_IMPORT;
	if (!strcmp(what, "digest"))
		return r->kind == DJ_REC_DIGEST;
	if (!strcmp(what, "keyframe"))
		return dj_record_is_keyframe(r);
	if (r->kind != DJ_REC_CHECK || !dj_check_unpack(&c, r->bytes, r->length))
		return false;
	return strcmp(what, "flags") ? c.n != 0 : (c.flags_known & DJ_FLAGS_ARITH) != 0;
}

static void spoil(struct dj_record *r, const char *what)
{
	static uint8_t bytes[DJ_CODE_MAX];
	struct dj_check c;

	if (r->kind == DJ_REC_DIGEST) {
		r->digest ^= 1;
		return;
	}
	if (r->kind == DJ_REC_KEYFRAME) {
		r->regs.gpr[DJ_RBX] ^= 1;
		return;
	}
	if (r->kind == DJ_REC_IMPORT) {
		memcpy(bytes, r->bytes, DJ_LINE);
		bytes[DJ_LINE - 1] ^= 1;
	} else {
		dj_check_unpack(&c, r->bytes, r->length);
		if (!strcmp(what, "flags")) {
			uint64_t known = c.flags_known & DJ_FLAGS_ARITH;
			c.flags ^= known & -known;
		} else {
			c.piece[c.n - 1].sum ^= 1;
		}
		r->length = dj_check_pack(&c, bytes);
	}
	r->bytes = bytes;
}

/* Apply the edits to this one: false if it is to be left out. `left`: by edit, how many records are
 * yet to come that have what it spoils, this one included. */
static bool edit_record(struct dj_record *r, char **edits, long *left)
{
	for (; *edits; edits += 3, left++) {
		if (!strcmp(edits[0], "drop") && !strcmp(edits[1], dj_record_kind_name(r->kind)))
			return false;
		if (!strcmp(edits[0], "spoil") && has(r, edits[1]) && (*left)-- == atol(edits[2]))
			spoil(r, edits[1]);
	}
	return true;
}

static void count(struct dj_trace *t, char **edits, long *left)
{
	struct dj_error err;
	struct dj_cursor *c = dj_cursor_new(t, 0, &err);
	const struct dj_record *r;

	while (c && (r = dj_cursor_next(c, &err)))
		for (int i = 0; edits[3 * i]; i++)
			if (!strcmp(edits[3 * i], "spoil"))
				left[i] += has(r, edits[3 * i + 1]);
	dj_cursor_free(c);
}

int main(int argc, char **argv)
{
	long left[64] = { 0 };
	struct dj_error err = { 0 };

	if (argc < 3 || argc % 3 || argc > 3 * 64)
		fail("usage: edit-trace IN OUT [add NAME FILE | zeros NAME MEGABYTES | rename OLD "
		     "NEW | drop KIND all | spoil WHAT N]...",
		     NULL);
	struct dj_trace *t = dj_trace_open(argv[1], &err);
	if (!t)
		fail(argv[1], &err);
	struct dj_writer *w = dj_writer_create(argv[2], dj_trace_meta(t), &err);
	if (!w)
		fail(argv[2], &err);
	const struct dj_thread_info *info = dj_trace_thread(t, 0);
	struct dj_stream *process, *thread;
	struct dj_cursor *c = dj_cursor_new(t, 0, &err);
	if (!c || !(process = dj_writer_process(w, dj_trace_meta(t)->pid, NULL, &err)) ||
	    !(thread = dj_writer_thread(w, process, info->tid, info->name, &err)))
		fail("streams", &err);
	copy_modules(t, w, argv + 3);
	add_modules(w, argv + 3);
	count(t, argv + 3, left);
	for (const struct dj_record *r; (r = dj_cursor_next(c, &err));) {
		struct dj_record copy = *r;
		if (r->kind == DJ_REC_MAP && r->steps == info->first_steps)
			copy_memory(t, process, r->addr, r->addr + r->length);
		if (edit_record(&copy, argv + 3, left) && dj_stream_record(thread, &copy, &err))
			fail("record", &err);
	}
	if (err.text[0] || dj_stream_flush(thread, info->last_steps, info->last_seq, &err) ||
	    dj_writer_close(w, dj_trace_end(t), &err))
		fail("end", &err);
	dj_cursor_free(c);
	dj_trace_close(t);
	return 0;
}
