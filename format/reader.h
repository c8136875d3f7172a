/*
 * What the parts of the trace reader share. Private to format/.
 */
#ifndef DEJA_FORMAT_READER_H
#define DEJA_FORMAT_READER_H

#include "format/bytes.h"
#include "format/chunk.h"
#include "format/meta.h"
#include "format/trace.h"

/* A good chunk. */
struct dj_reader_chunk {
	struct dj_chunk_header h;
	uint64_t at; /* of its payload in the file */
};

struct dj_reader_chunks {
	struct dj_reader_chunk *v;
	size_t n;
};

/* A file of the module store (format/store.h), mapped or read, and checked. */
struct dj_store_file {
	struct dj_store_key key;
	const uint8_t *file;
	uint64_t len;
	struct dj_reader_chunks chunks;
	uint8_t *bytes; /* unpacked, once asked for */
	uint64_t sum;	/* of these, as the trace has it of a module */
	bool wrong;	/* they are not what the name says */
};

/* A stream, of a thread or of a process. */
struct dj_reader_stream {
	uint32_t number;
	bool process;
	size_t index; /* among the threads or the processes */
	bool cut;     /* a chunk is missing: what comes after it does not count, */
		      /* but for a part that begins with a keyframe */
	struct dj_reader_chunks chunks;
	struct dj_reader_chunks longest; /* of the parts before this one */
	uint32_t number_seen;		 /* of the last chunk */
	struct dj_reader_chunks times;	 /* of a thread */
	size_t *keyframes;		 /* indices of the chunks that begin with one */
	size_t nkeyframes;
};

struct dj_reader_thread {
	struct dj_thread_info info;
	char *name;
	size_t stream; /* index */
};

struct dj_reader_process {
	struct dj_process_info info;
	size_t stream;	    /* index */
	uint64_t snapshots; /* chunks of start memory seen */
};

struct dj_reader_module {
	struct dj_module_info info;
	char *path;
	uint64_t sum;			/* of the contents */
	bool known;			/* its MODULE chunk was good */
	struct dj_reader_chunks chunks; /* its MODULE_DATA, in file order */
	uint8_t *bytes;			/* unpacked, once asked for */
	const uint8_t *loaded;		/* these or the store's, when they are checked */
	/* If it is in the store: */
	struct dj_store_key key;
	uint64_t reference; /* offset of the chunk that says so */
	size_t file;	    /* index in `stored` plus one; 0: missing */
};

#define SNAPSHOT_SLOTS 16

/* Of modules so many bytes are unpacked from any file, and beyond that so many for each of its
 * bytes. What is not zeros packs at most a tenth as well. */
#define UNPACKED_FREE  (256u << 20)
#define UNPACKED_RATIO 200
/* The same with zeros, which take time but no memory. */
#define MODULES_FREE  (1u << 30)
#define MODULES_RATIO 1000

struct dj_trace {
	char *path;
	const uint8_t *bytes;
	uint64_t size;
	bool mapped;
	uint32_t version;
	uint64_t id;
	uint64_t sum; /* of the headers of all its good chunks, which have sums of the rest */

	struct dj_meta_reader meta;
	size_t meta_bytes;
	struct dj_trace_end end;
	struct dj_trace_usage usage;
	struct dj_trace_count counts[DJ_COUNTS_MAX];
	size_t ncounts;
	struct dj_reader_stream *streams; /* by number, ascending */
	size_t nstreams;
	struct dj_reader_thread *threads; /* both in the order of their streams */
	size_t nthreads;
	struct dj_reader_process *processes;
	size_t nprocesses;
	struct dj_reader_module *modules; /* by number */
	size_t nmodules;
	uint64_t unpacked;	      /* bytes of modules, pages of zeros not counted */
	uint64_t loaded;	      /* the same, counted */
	uint64_t paths;		      /* bytes of modules' names */
	char *store;		      /* directory of the module store, if it is needed */
	struct dj_store_file *stored; /* what there is in it for this trace */
	size_t nstored;
	uint64_t stored_bytes;
	size_t nmissing; /* modules whose file there is not good */
	char missing[1200];
	struct dj_reader_chunks memory; /* SNAPSHOT chunks, by process and image at the end */

	/* what is wrong */
	uint64_t metas; /* META chunks seen */
	size_t damages;
	uint64_t damage_at; /* the first */
	char damage_what[200];
	char damage[480];

	/* snapshot chunks unpacked lately, round robin */
	struct reader_slot {
		size_t memory; /* plus one; 0: empty */
		uint8_t *bytes;
	} slots[SNAPSHOT_SLOTS];
	unsigned next_slot;
};

/* Note damage at an offset. The first is reported, the others are counted. */
void dj_reader_damage(struct dj_trace *t, uint64_t at, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Take in the facts of a chunk whose checksums are right. -1 if it is malformed all the
 * same. */
int dj_reader_take(struct dj_trace *t, const struct dj_reader_chunk *c);
/* A chunk of this type and stream is lost. */
void dj_reader_lose(struct dj_trace *t, uint64_t at, unsigned type, uint32_t stream);
/* After the last chunk: names and pointers that users see. */
int dj_reader_finish(struct dj_trace *t, struct dj_error *err);
void dj_reader_free_facts(struct dj_trace *t);

/* Open a trace without looking for its modules in the store. */
struct dj_trace *dj_reader_open(const char *path, struct dj_error *err);

/* The next place from `at` on with a valid chunk header, or the end of the file. */
uint64_t dj_reader_find_chunk(const struct dj_trace *t, uint64_t at);
bool dj_reader_footer_at(const struct dj_trace *t, uint64_t at);

/* trace-parts.c: something is missing before this chunk: whether the thread's history can begin
 * with it. And, when all chunks are known, which of them count, and what they amount to. */
bool dj_reader_begin_part(struct dj_reader_stream *s, const struct dj_reader_chunk *c);
int dj_reader_finish_thread(struct dj_reader_stream *s, struct dj_thread_info *info);

/* trace-contents.c: map the files of the store that modules are in. What is missing is noted; -1
 * if there is no memory. */
int dj_reader_find_stored(struct dj_trace *t, struct dj_error *err);
void dj_reader_free_stored(struct dj_trace *t);

/* trace-counts.c */
#define COUNTS_PAYLOAD_MAX (DJ_COUNTS_MAX * sizeof(struct dj_trace_count) + DJ_COUNTS_MAX)
int dj_reader_take_counts(struct dj_trace *t, const struct dj_reader_chunk *c, const uint8_t *raw);

/* trace-times.c */
int dj_reader_take_times(struct dj_trace *t, const struct dj_reader_chunk *c, const uint8_t *raw);

int dj_reader_add(struct dj_reader_chunks *list, const struct dj_reader_chunk *c);
/* Make room for one more in an array that doubles; NULL and the array as it was if there is
 * no memory. */
void *dj_reader_grow(void *array, size_t n, size_t element);
/* Unpack a chunk into a new block of raw_len (at least 1) bytes. NULL if it does not unpack. */
uint8_t *dj_reader_unpack(const uint8_t *file, const struct dj_reader_chunk *c);
struct dj_reader_stream *dj_reader_find_stream(const struct dj_trace *t, uint32_t number);

#endif
