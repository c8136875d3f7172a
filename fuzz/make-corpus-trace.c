/*
 * Makes the seeds of the trace reader's fuzz corpus: small made-up traces, as they are and with
 * all payloads unpacked, so that changes reach what is inside; and one that has its modules in a
 * store, with the file there.
 *
 *   make-corpus-trace DIRECTORY
 */
#include "format/bytes.h"
#include "format/chunk.h"
#include "format/store.h"
#include "tests/lib/trace-sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void fail(const char *what)
{
	fprintf(stderr, "make-corpus-trace: %s\n", what);
	exit(1);
}

static void write_all(FILE *f, const void *bytes, size_t len)
{
	if (len && fwrite(bytes, len, 1, f) != 1)
		fail("cannot write");
}

/* Copy a trace with plain chunks. Its index then no longer fits, so it is left out; the
 * footer is, too. */
static void copy_plain(const char *from, const char *to)
{
	static uint8_t in[1 << 20], out[CHUNK_RAW_MAX];
	FILE *f = fopen(from, "rb"), *g = fopen(to, "wb");
	size_t len, at = FILE_HEADER_SIZE;
	struct dj_chunk_header h;
	uint64_t id;

	if (!f || !g)
		fail("cannot open");
	len = fread(in, 1, sizeof(in), f);
	fclose(f);
	id = dj_get64(in + 16);
	write_all(g, in, FILE_HEADER_SIZE);
	while (dj_chunk_header_unpack(&h, in + at, len - at, id) && h.type != CHUNK_INDEX) {
		uint8_t header[CHUNK_HEADER_SIZE];

		if (dj_chunk_unpack(&h, in + at + CHUNK_HEADER_SIZE, out))
			fail("bad chunk");
		at += CHUNK_HEADER_SIZE + h.len;
		h.encoding = CHUNK_PLAIN;
		h.len = h.raw_len;
		h.payload_sum = dj_chunk_sum(id, out, h.len);
		dj_chunk_header_pack(header, &h, id);
		write_all(g, header, sizeof(header));
		write_all(g, out, h.len);
	}
	if (fclose(g))
		fail("cannot write");
}

/* The file, with what else its name has behind it. */
static void copy_stored(const char *store, const struct dj_store_key *key, const char *to)
{
	char name[STORE_NAME_LEN + 1], path[4200];
	uint8_t bytes[4096], size[8];
	FILE *f, *g = fopen(to, "wb");
	size_t len;

	dj_store_name(name, key);
	snprintf(path, sizeof(path), "%s/%s", store, name);
	f = fopen(path, "rb");
	if (!f || !g)
		fail("cannot open");
	len = fread(bytes, 1, sizeof(bytes), f);
	fclose(f);
	unlink(path);
	rmdir(store);
	write_all(g, bytes, len);
	write_all(g, key->hash + 8, 8);
	dj_put64(size, key->size);
	write_all(g, size, sizeof(size));
	if (fclose(g))
		fail("cannot write");
}

static void make_shared(const char *dir)
{
	static const struct dj_trace_meta meta;
	char path[4096], to[4096];
	struct dj_error err = { 0 };
	struct dj_store_key key;
	struct dj_writer *w;
	uint8_t module[1500];

	sample_module(module, sizeof(module), 0, 1);
	dj_store_key(&key, module, sizeof(module));
	snprintf(path, sizeof(path), "%s/shared", dir);
	w = dj_writer_create_sharing(path, &meta, &err);
	if (!w || dj_writer_module(w, "/a", module, sizeof(module), &err) ||
	    dj_writer_module(w, "/b", module, sizeof(module), &err) != 1 ||
	    dj_writer_close(w, NULL, &err))
		fail(err.text);
	snprintf(path, sizeof(path), "%s/" STORE_DIR, dir);
	snprintf(to, sizeof(to), "%s/stored", dir);
	copy_stored(path, &key, to);
}

int main(int argc, char **argv)
{
	static const struct sample_shape shapes[] = {
		{ .threads = 1, .records = 3, .flush = 3, .module = 0, .memory = 0 },
		{ .threads = 2, .records = 10, .flush = 4, .module = 200, .memory = 256 },
		{ .threads = 1,
		  .records = 60,
		  .flush = 60,
		  .module = 100,
		  .memory = 100,
		  .no_end = true },
		{ .threads = 4,
		  .processes = 2,
		  .records = 12,
		  .flush = 4,
		  .module = 20,
		  .memory = 30 },
		{ .threads = 2, .records = 8, .flush = 8, .times = 30 },
	};

	if (argc != 2)
		fail("usage: make-corpus-trace DIRECTORY");
	for (unsigned i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		char packed[4000], plain[4096];
		struct dj_error err = { 0 };

		snprintf(packed, sizeof(packed), "%s/sample%u", argv[1], i);
		snprintf(plain, sizeof(plain), "%s-plain", packed);
		if (sample_write(packed, &shapes[i], i + 1, &err))
			fail(err.text);
		copy_plain(packed, plain);
	}
	make_shared(argv[1]);
	return 0;
}
