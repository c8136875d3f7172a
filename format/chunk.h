/*
 * The outer form of a trace file: file header, chunks, footer. Private to format/;
 * deja-trace(5) shows every byte.
 *
 * All checksums are XXH3 (64 bits), seeded with the file's random id: a chunk of another
 * trace, or of an earlier file in the same disk blocks, or in the memory of a program that
 * handles traces itself, is never taken for one of ours.
 */
#ifndef DEJA_FORMAT_CHUNK_H
#define DEJA_FORMAT_CHUNK_H

#include "format/trace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a file of the module store (format/store.h) is called by. */
struct dj_store_key {
	uint8_t hash[16]; /* XXH3, big-endian */
	uint64_t size;
};

#define FILE_MAGIC                                                                                 \
	"\x89"                                                                                     \
	"DEJA\r\n\x1a" /* like PNG's: shows line-end conversion and 7-bit paths */
/* The same of a file in the module store. */
#define STORE_MAGIC                                                                                \
	"\x89"                                                                                     \
	"DEJM\r\n\x1a"
#define CHUNK_MAGIC  "DJCK"
#define FOOTER_MAGIC "DJINDEX\n"

#define FILE_HEADER_SIZE  32
#define CHUNK_HEADER_SIZE 88
#define FOOTER_SIZE	  32
#define INDEX_ENTRY_SIZE  24

/* No chunk is larger than this when unpacked; a header that says so is not valid. */
#define CHUNK_RAW_MAX (16u << 20)

/* Of some types less: what a writer makes is a part of it, and more is not believed. */
#define STREAM_RAW_MAX	 (2u << 20)   /* a STREAM chunk, */
#define STREAM_HEADS_MAX (256u << 10) /* its heads area: and a record has a byte there at least */
#define SNAPSHOT_RAW_MAX (1u << 20)
#define STEPS_MAX	 (1ull << 60) /* instructions of a thread: decades */
#define PATHS_FREE	 (4u << 20) /* bytes of modules' paths, and one more for each of the file */
#define TIMES_RAW_MAX	 4096	    /* a TIMES chunk */
#define TIMES_US_MAX	 (1ull << 60)
/* META is parsed as a whole; a module is unpacked as a whole. Linux lets arguments and environment
 * have 6 MiB (fs/exec.c, bprm_stack_limits), pointers to them included. */
#define META_TOTAL_MAX	(16u << 20)
#define MODULE_SIZE_MAX (4ull << 30)
/* Of a thread, in bytes. */
#define THREAD_NAME_MAX 256

enum dj_chunk_type {
	CHUNK_META = 1,	   /* facts about the recording, in tagged fields */
	CHUNK_MODULE,	   /* describes module `stream` */
	CHUNK_MODULE_DATA, /* bytes first..last of module `stream` */
	CHUNK_SNAPSHOT,	   /* memory at position `first` */
	CHUNK_THREAD,	   /* describes the thread of stream `stream` */
	CHUNK_STREAM,	   /* records of stream `stream` */
	CHUNK_END,	   /* how the recording ended */
	CHUNK_INDEX,	   /* where the chunks are */
	CHUNK_PROCESS,	   /* describes the process of stream `stream` */
	CHUNK_COUNTS,	   /* what the recorder counted */
	CHUNK_STORED,	   /* where the contents of module `stream` are */
	CHUNK_TIMES,	   /* when the thread of stream `stream` was where */
	CHUNK_TYPES
};

enum dj_chunk_encoding { CHUNK_PLAIN, CHUNK_ZSTD };

#define NO_STREAM 0xffffffffu

/* Of a STREAM chunk of a thread: its first record is a keyframe, with which a history can begin. */
#define CHUNK_AT_KEYFRAME 1u

struct dj_chunk_header {
	uint8_t type, encoding;
	uint16_t flags; /* CHUNK_AT_KEYFRAME; a reader passes over others */
	uint32_t stream;
	/* Number among the chunks of its sequence: the PROCESS or THREAD and STREAM chunks of a
	 * stream are counted together, so are MODULE, MODULE_DATA and STORED of a module, META,
	 * SNAPSHOT and INDEX chunks each by themselves, and the TIMES chunks of a stream. A missing
	 * number tells that a chunk is lost. */
	uint32_t number;
	/* STREAM of a thread: positions. STREAM of a process: facts before and up to the end of
	 * it. MODULE_DATA: a range of bytes. SNAPSHOT: number of the image. */
	uint64_t first, last;
	uint64_t first_seq, last_seq; /* STREAM: ordered events, or DJ_SEQ_UNKNOWN; else 0 */
	/* STREAM: number of records; SNAPSHOT: address of its first byte; TIMES: first moment */
	uint64_t arg;
	uint64_t facts;	  /* STREAM of a thread: facts of the process that hold at its end */
	uint32_t raw_len; /* of the payload when unpacked */
	uint32_t len;	  /* of the payload as it is in the file, right after the header */
	uint64_t payload_sum;
};

void dj_file_header_pack(uint8_t out[FILE_HEADER_SIZE], uint32_t version, uint64_t id);

enum dj_file_header_state {
	HEADER_GOOD,
	HEADER_FOREIGN,
	HEADER_SHORT,
	HEADER_DAMAGED,
	HEADER_VERSION
};
/* Of a file in the module store. */
void dj_store_header_pack(uint8_t out[FILE_HEADER_SIZE], uint64_t id);
enum dj_file_header_state dj_file_header_unpack(const uint8_t *in, size_t len, uint32_t *version,
						uint64_t *id);

uint64_t dj_chunk_sum(uint64_t id, const void *bytes, size_t len);

/* Writes the header with its own checksum. */
void dj_chunk_header_pack(uint8_t out[CHUNK_HEADER_SIZE], const struct dj_chunk_header *h,
			  uint64_t id);
/* False unless magic, checksum and lengths are those of a chunk. */
bool dj_chunk_header_unpack(struct dj_chunk_header *h, const uint8_t *in, size_t len, uint64_t id);

void dj_footer_pack(uint8_t out[FOOTER_SIZE], uint64_t index_at, uint64_t id);
bool dj_footer_unpack(const uint8_t *in, uint64_t *index_at, uint64_t id);

/* The header of a chunk that lies wholly in [at, limit) of a file; `payload` is where that begins.
 */
bool dj_chunk_at(const uint8_t *file, uint64_t at, uint64_t limit, uint64_t id,
		 struct dj_chunk_header *h, uint64_t *payload);

/* Unpack a payload into `out`, which has h->raw_len bytes. */
int dj_chunk_unpack(const struct dj_chunk_header *h, const uint8_t *payload, uint8_t *out);

#endif
