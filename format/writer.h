/*
 * What the parts of the trace writer share. Private to format/.
 */
#ifndef DEJA_FORMAT_WRITER_H
#define DEJA_FORMAT_WRITER_H

#include "format/chunk.h"
#include "format/record-code.h"
#include "format/trace.h"

#include <zstd.h>

/* On lines of a Python heap: level 1 packs 6.1:1 at 290 MB/s, level 3 6.4:1 at 207, level -1
 * 5.5:1 at 329. */
#define WRITER_LEVEL 1
/* Unpacked sizes of the chunks that are written. Smaller: quicker seeking and less lost when
 * everything dies; larger: better compression. */
#define WRITER_DATA	(1u << 20)   /* data area of a stream chunk */
#define WRITER_HEADS	(256u << 10) /* heads area */
#define WRITER_MODULE	(1u << 20)
#define WRITER_SNAPSHOT (256u << 10)
#define WRITER_META	(256u << 10)
#define WRITER_INDEX	16384 /* entries in an INDEX chunk */

struct dj_writer_stream {
	int32_t tid;
	uint32_t number, seq;
	uint32_t records; /* in the chunk that gathers */
	uint64_t first;	  /* position at which that chunk starts */
	uint64_t reach;	  /* how far the thread has come, as far as known */
	struct dj_code_state code;
	/* one block: [4 bytes][heads, WRITER_HEADS][data, WRITER_DATA] */
	uint8_t *block, *head, *data;
};

struct dj_writer_module {
	char *path;
	uint8_t build_id[32];
	uint8_t build_id_len;
};

struct dj_writer_index_entry {
	uint64_t offset, last;
	uint32_t stream;
	uint8_t type;
};

struct dj_writer {
	int fd;
	char *path;
	uint64_t id;		/* of the file: seed of all checksums */
	uint64_t size;		/* bytes in whole chunks */
	struct dj_error failed; /* the first failure, repeated ever after; exit_status 0: none */
	ZSTD_CCtx *zstd;
	uint8_t *out; /* chunk header and packed payload, so that one write() does */
	size_t out_cap;

	struct dj_writer_stream *streams;
	size_t nstreams, last_stream;
	struct dj_writer_module *modules;
	size_t nmodules;
	struct dj_writer_index_entry *index;
	size_t nindex, index_cap;
	uint32_t snapshots; /* SNAPSHOT chunks written */
};

/* Pack `raw` and append it as a chunk. `h` says everything but lengths, encoding and sum. */
int dj_writer_chunk(struct dj_writer *w, struct dj_chunk_header *h, const void *raw, size_t len,
		    struct dj_error *err);

/* Write what a stream has gathered, if anything. */
int dj_writer_flush_stream(struct dj_writer *w, struct dj_writer_stream *s, struct dj_error *err);

/* Report and remember a failure; returns -1. */
int dj_writer_failed(struct dj_writer *w, struct dj_error *err);

/* Make room for one more element in an array that grows by doubling. */
int dj_writer_grow(struct dj_writer *w, void **array, size_t n, size_t element,
		   struct dj_error *err);

/* The GNU build id of an ELF file, or else a hash of its contents. Returns its length. */
unsigned dj_writer_build_id(uint8_t id[32], const void *contents, size_t size);

#endif
