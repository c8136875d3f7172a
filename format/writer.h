/*
 * What the parts of the trace writer share. Private to format/.
 */
#ifndef DEJA_FORMAT_WRITER_H
#define DEJA_FORMAT_WRITER_H

#include "format/chunk.h"
#include "format/record-code.h"
#include "format/trace.h"

#include <pthread.h>
#define ZSTD_STATIC_LINKING_ONLY /* ZSTD_c_literalCompressionMode: see pack() */
#include <zstd.h>

/* On lines of a Python heap: level 1 packs 6.1:1 at 290 MB/s, level 3 6.4:1 at 207, level -1
 * 5.5:1 at 329. */
#define WRITER_LEVEL 1
/* When the program waits for what it recorded to be written. Of text that is only read (openssl
 * dgst in bench/) level 1 makes 0.186 bits an instruction, and recording takes 3.1 times the native
 * time; this 0.193 and 2.7 times; -7 0.209 and 2.4 times. Bytes that repeat nothing are coded by
 * how frequent they are at every level (pack() in trace-write.c). */
#define WRITER_HURRY -2
/* And where that takes less than two fifths away: nothing is looked for that repeats itself, 1.7:1
 * at 1,250 MB/s of the same text. Now and then it is tried what the other way would do. */
#define WRITER_HASTE	 -1000
#define WRITER_TRY_AGAIN 8 /* chunks */
/* Unpacked sizes of the chunks that are written. Smaller: quicker seeking and less lost when
 * everything dies; larger: better compression. */
#define WRITER_DATA	(1u << 20)   /* data area of a stream chunk */
#define WRITER_HEADS	(256u << 10) /* heads area */
#define WRITER_MODULE	(1u << 20)
#define WRITER_SNAPSHOT (256u << 10)
#define WRITER_META	(256u << 10)
#define WRITER_INDEX	16384 /* entries in an INDEX chunk */

/*
 * Who may touch what. A thread's stream belongs to whoever writes that thread's records, without a
 * lock. A process's stream has a lock, since all threads of the process put facts there. Coding,
 * packing and checksums happen under neither of the writer's own locks: `facts` is held while
 * something is numbered and written that must lie in the file in the order of its number
 * (descriptions of streams, modules), `lock` only while a finished chunk is appended. They are
 * taken in this order: a process's, `facts`, `lock`.
 *
 * What modules contain is packed by a thread of the writer's own. Records that tell of a module do
 * not get into the file before it: whoever appends a STREAM chunk waits until all modules are
 * there. So a recording that is killed at any moment can be replayed as far as there are records.
 */
struct dj_stream {
	struct dj_writer *w;
	struct dj_stream *process; /* of a thread's stream; NULL: it is a process's */
	struct dj_stream *next;	   /* in the writer's list */
	pthread_mutex_t lock;	   /* of a process's stream; and of its start memory: */
	pthread_mutex_t snapshot;
	pthread_cond_t no_later;      /* with `lock`: */
	int32_t id;		      /* the thread's number, or the process's */
	uint32_t number;	      /* of the stream in the file */
	uint32_t chunks;	      /* written, the description included */
	uint32_t snapshots;	      /* chunks of start memory written, of a process */
	bool later;		      /* a worker writes some (trace-snapshot.c) */
	uint32_t records;	      /* in the chunk that gathers */
	uint16_t flags;		      /* of that chunk */
	bool hurry;		      /* pack quickly rather than well */
	uint8_t haste;		      /* in a hurry: so many chunks more more quickly still */
	uint64_t first;		      /* thread: position at which that chunk starts */
	uint64_t reach;		      /* thread: how far it has come, as far as known */
	uint64_t first_seq, last_seq; /* of that chunk; thread: at first and reach */
	/* Process: facts written or gathered. Thread: those that hold where it has come to. */
	uint64_t facts;
	struct dj_code_state code;
	struct { /* trace-times.c: of a thread, those that gather */
		uint8_t *bytes;
		size_t len;
		uint32_t chunks; /* written */
		struct dj_time first, latest;
	} times;
	/* one block: [4 bytes][heads, WRITER_HEADS][data, WRITER_DATA] */
	uint8_t *block, *head, *data;
};

/* trace-snapshot.c: none is to be written any more. */
void dj_snapshot_wait(struct dj_stream *process);

/* What packing a chunk needs. One for each thread that packs at the same time. */
struct dj_writer_packer {
	struct dj_writer_packer *next;
	ZSTD_CCtx *zstd;
	uint8_t *out; /* chunk header and packed payload, so that one write() does */
	size_t out_cap;
};

struct dj_writer_module {
	char *path;
	uint8_t build_id[32];
	uint8_t build_id_len;
};

/* Of packed modules for later traces there are so many bytes, and of smaller ones there are none.
 */
#define WRITER_PACKED	  ((uint64_t)512 << 20)
#define WRITER_PACKED_MIN ((size_t)1 << 20)

/* Of how many bytes of modules the writer keeps a copy, to pack them while others go on. */
#define WRITER_LATER ((size_t)64 << 20)

struct dj_store_file;

/* What a module contains, to be packed by a thread of the writer's, or packed already. */
struct dj_writer_later {
	struct dj_writer_later *next;
	uint32_t module;
	struct dj_store_key key; /* size 0: what is packed is not kept for others */
	size_t size;
	void *bytes;		      /* unpacked, or NULL: */
	struct dj_store_file *packed; /* as an earlier trace has left it, or NULL: */
	int kept, file;		      /* descriptors of that, not read yet, and of the module, */
	const char *path;	      /* whose name this is, in dj_writer.modules */
};

struct dj_writer_index_entry {
	uint64_t offset, last;
	uint32_t stream;
	uint8_t type;
};

struct dj_writer {
	char *path;
	uint64_t id; /* of the file: seed of all checksums */

	pthread_mutex_t facts; /* guards: */
	struct dj_stream *streams;
	uint32_t nstreams;
	struct dj_writer_module *modules;
	size_t nmodules;

	pthread_mutex_t lock; /* guards: */
	int fd;
	int store;		/* directory of the module store, or -1 */
	int packed;		/* directory of packed modules for later traces, or -1; `store`: */
				/* only what is known of files is taken from it */
	bool packed_more;	/* there is a new one */
	uint64_t size;		/* bytes in whole chunks */
	struct dj_error failed; /* the first failure, repeated ever after; exit_status 0: none */
	struct dj_writer_packer *packers; /* not in use */
	/* trace-later.c: those not yet in the file, the first being packed; signalled when there
	 * are none; how many bytes they have */
	struct dj_writer_later *later;
	pthread_cond_t none_later;
	size_t later_size;
	pthread_t packing;
	bool packs, begun; /* that thread has something to do; is to be joined */
	struct dj_writer_index_entry *index;
	size_t nindex;
};

/* A writer that appends to `fd`, which it owns; `path` is for messages. `id` is a number that no
 * other trace has. NULL if there is no memory. */
struct dj_writer *dj_writer_on(int fd, uint64_t id, const char *path);
/* Close the file and free the writer. */
int dj_writer_free(struct dj_writer *w, struct dj_error *err);
/* Append bytes, all or none; a chunk that is ready, header and payload; what all of them need at
 * the end. */
int dj_writer_append(struct dj_writer *w, const void *bytes, size_t len, struct dj_error *err);
int dj_writer_ready_chunk(struct dj_writer *w, const struct dj_chunk_header *h,
			  const uint8_t *bytes, struct dj_error *err);
int dj_writer_index(struct dj_writer *w, struct dj_error *err);
/* The contents of a module, as MODULE_DATA chunks. */
int dj_writer_pieces(struct dj_writer *w, uint32_t module, const void *contents, size_t size,
		     struct dj_error *err);

/* The rest of them: from an offset, as the chunks of these numbers. */
int dj_writer_pieces_from(struct dj_writer *w, uint32_t module, uint32_t number, size_t at,
			  const void *contents, size_t size, struct dj_error *err);

/* The same, which are kept for later traces if there is a key of some size. */
int dj_writer_pieces_kept(struct dj_writer *w, uint32_t module, const struct dj_store_key *key,
			  const void *contents, size_t size, struct dj_error *err);
/* The same as an earlier trace has packed them. */
int dj_writer_pieces_packed(struct dj_writer *w, uint32_t module, const struct dj_store_file *f,
			    struct dj_error *err);

/* One of these by a thread of the writer's, which has what is in `what` then. False: it has to be
 * done at once. */
bool dj_writer_pieces_later(struct dj_writer *w, const struct dj_writer_later *what);
/* Write it now, and give back all that it has. */
int dj_writer_pieces_now(struct dj_writer *w, struct dj_writer_later *what, struct dj_error *err);
/* A copy for that, or NULL: there is no room. It is given back by the thread, or by the caller. If
 * the contents are those of a file it is read, unless `fd` is -1. */
void *dj_writer_copy(struct dj_writer *w, int fd, const void *contents, size_t size);
void dj_writer_copy_free(void *copy, size_t size);
/* Read a file from its beginning. False: it is shorter, or cannot be read. */
bool dj_read_all(int fd, uint8_t *to, size_t size);
/* Wait until nothing is to be packed by that thread; it is gone then. */
void dj_writer_end_later(struct dj_writer *w);

/* Pack and append a chunk. The rest of the header is the caller's. */
int dj_writer_chunk(struct dj_writer *w, struct dj_chunk_header *h, const void *raw, size_t len,
		    struct dj_error *err);
/* The same, packed as well as `level` says. */
int dj_writer_chunk_at(struct dj_writer *w, struct dj_chunk_header *h, const void *raw, size_t len,
		       int level, struct dj_error *err);

/* Append one that is packed. */
int dj_writer_chunk_packed(struct dj_writer *w, const struct dj_chunk_header *h,
			   const void *payload, struct dj_error *err);

/* Write what a stream has gathered, if anything, and free it. */
int dj_stream_finish(struct dj_stream *s, struct dj_error *err);
void dj_stream_free(struct dj_stream *s);
/* trace-times.c: write those that have gathered. */
int dj_stream_write_times(struct dj_stream *s, struct dj_error *err);

/* Report a failure and stop the writing; returns -1. */
int dj_writer_no_memory(struct dj_writer *w, struct dj_error *err);
/* What a module contains can be had from nowhere any more. */
int dj_writer_lost(struct dj_writer *w, const char *module, struct dj_error *err);

/* Make room for one more element in an array that grows by doubling; -1 if there is no memory. */
int dj_writer_grow(void **array, size_t n, size_t element);

#endif
