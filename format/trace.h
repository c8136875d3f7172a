/*
 * The trace file: one append-only file of chunks. deja-trace(5) documents every byte.
 *
 * A trace has processes and threads, each with a stream of records (format/record.h): a thread's
 * says what the thread did, a process's holds the facts of its address space, which all its threads
 * share.
 *
 * Writing: dj_writer_* put permanent facts into the file, dj_stream_* records, as chunks; a chunk
 * is self-contained and checksummed, so a file cut anywhere is a shorter trace. Different streams
 * may be written by different threads of ours at the same time; one stream only by one at a time.
 *
 * Reading: dj_trace_open() maps the file, checks the header, finds the chunks (through the index at
 * the end, or by scanning when there is none or it is damaged) and serves the facts; a
 * dj_cursor walks one thread's records in order and can be moved to any record position
 * quickly. A reader never trusts the file: lengths, counts and offsets are checked.
 */
#ifndef DEJA_FORMAT_TRACE_H
#define DEJA_FORMAT_TRACE_H

#include "format/error.h"
#include "format/record.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of a trace with all its modules in it, and of one that has some in the module store beside it.
 * Versions 4 and 5 are the same but for the checksums of modules, 2 and 3 are that without
 * keyframes. */
#define DJ_TRACE_VERSION	6
#define DJ_TRACE_VERSION_SHARED 7
#define DJ_TRACE_VERSION_OLDEST 2
/* Of a file in the module store. */
#define DJ_STORE_VERSION 3
/* Whether a trace of this version may have modules in the store. */
#define DJ_TRACE_SHARES(version) ((version)&1)
/* The version of the same trace with all its modules in it. */
#define DJ_TRACE_WHOLE(version) ((version) & ~1u)
/* Seed of the checksum of what a module contains. Since version 6 it is the same for all traces, so
 * that it is known of a file that an earlier recording has read. */
#define DJ_TRACE_MODULE_SEED(version, id) ((version) < 6 ? (id) : 0)

enum dj_predict { DJ_PREDICT_SHADOW = 0, DJ_PREDICT_LAST = 1, DJ_PREDICT_NONE = 2 };
/* Which events between threads have numbers: those of the kernel (system calls, signals); locked
 * instructions and fences, too. */
enum dj_order { DJ_ORDER_KERNEL = 1, DJ_ORDER_FENCE, DJ_ORDER_ACQREL, DJ_ORDER_LOAD };

/* What is known when recording starts. Strings and arrays are borrowed. */
struct dj_trace_meta {
	uint32_t predict;	  /* enum dj_predict */
	uint32_t shadow_bits;	  /* n: the shadow has 2^n bytes */
	uint32_t memory_model;	  /* enum dj_order */
	uint64_t digest_interval; /* instructions */
	int64_t start_time_ns;	  /* CLOCK_REALTIME */
	int32_t pid;
	uint32_t page_size;
	const char *deja_version;
	const char *machine; /* uname: "Linux 6.1.0 x86_64 hostname" */
	const char *cpu;     /* as dj_cpu_describe() has it; dj_cpu_kind_of() tells the kind */
	const char *exe;     /* absolute path of the executable */
	const char *cwd;
	const char *const *argv; /* NULL-terminated */
	const char *const *envp; /* NULL-terminated */
	const uint8_t *auxv;	 /* the kernel's auxiliary vector, as in /proc/PID/auxv */
	size_t auxv_len;
};

struct dj_module_info {
	const char *path;
	uint8_t build_id[32]; /* GNU build id, or the first bytes of a content hash */
	uint8_t build_id_len;
	uint64_t size;
	bool stored; /* in the module store, not in the trace */
};

struct dj_trace_end {
	bool present; /* false: the recording was cut off (crash, kill, power) */
	int64_t end_time_ns;
	int32_t status; /* wait(2) status of the process */
	uint64_t steps; /* instructions over all threads */
};

/* Something that the recorder counted, for people who wonder what took the time. */
#define DJ_COUNTS_MAX 64
struct dj_trace_count {
	char name[48];
	uint64_t value;
};

/* ---- writing ------------------------------------------------------------------- */

struct dj_writer;
struct dj_stream;

/* Create `path` (truncating it) and write header and meta. NULL on error. */
struct dj_writer *dj_writer_create(const char *path, const struct dj_trace_meta *meta,
				   struct dj_error *err);

/* The same of a trace that shares its modules with the others in its directory: what they contain
 * goes into the module store there. A module that cannot be put there goes into the trace. */
struct dj_writer *dj_writer_create_sharing(const char *path, const struct dj_trace_meta *meta,
					   struct dj_error *err);

/* A directory, whose descriptor is the writer's then, in which packed modules lie for later traces,
 * and notes of what files contain. What a module contains is taken from there, if an earlier trace
 * has left it, and else put there; traces that share a store take and put notes only. Nobody but
 * the user may be able to write there. */
void dj_writer_keep_packed(struct dj_writer *w, int directory);

/* Store a whole file as a module; returns its number (0, 1, ...) or -1. The same build id and
 * path stored again returns the earlier number. `contents` is only read during the call. */
int dj_writer_module(struct dj_writer *w, const char *path, const void *contents, size_t size,
		     struct dj_error *err);
/* The same of a file that is mapped at `contents` and can be read by `fd`, too. */
int dj_writer_module_file(struct dj_writer *w, const char *path, int fd, const void *contents,
			  size_t size, struct dj_error *err);

/* Begin the stream of a process; `parent` is that of the process that made it, or NULL. Streams
 * live until the writer is closed. NULL on error. */
struct dj_stream *dj_writer_process(struct dj_writer *w, int32_t pid, struct dj_stream *parent,
				    struct dj_error *err);
/* Begin the stream of a thread of `process`. */
struct dj_stream *dj_writer_thread(struct dj_writer *w, struct dj_stream *process, int32_t tid,
				   const char *name, struct dj_error *err);
/* What a CHILD or THREAD record calls this stream, as its `subject`. */
uint32_t dj_stream_number(const struct dj_stream *s);

/* Memory as it was at the start of an image of a process (0: that with which the recording starts;
 * 1, 2...: as its EXEC record says): any number of calls, any size. */
int dj_stream_snapshot(struct dj_stream *process, uint32_t image, uint64_t addr, const void *bytes,
		       size_t len, struct dj_error *err);
/* Such memory that is packed and written by another thread, at the latest when the writer is
 * closed. What fails then is an error of the next call that writes. It is gathered first: NULL and
 * -1 say that there is no memory for it. */
struct dj_snapshot;
struct dj_snapshot *dj_snapshot_new(uint32_t image);
/* Where the next piece is to be put, of `len` bytes at most; valid until the next call. */
uint8_t *dj_snapshot_room(struct dj_snapshot *s, size_t len);
/* It has been: `len` bytes, which are at `addr`. */
int dj_snapshot_add(struct dj_snapshot *s, uint64_t addr, size_t len);
/* How many bytes all pieces have. */
size_t dj_snapshot_size(const struct dj_snapshot *s);
/* To be written: it is not the caller's any more. */
void dj_stream_snapshot_later(struct dj_stream *process, struct dj_snapshot *s);

/* Append a record to the stream of a thread. Records gather in memory and become a chunk when
 * enough have gathered or on dj_stream_flush(). A fact goes to the process, and holds for the
 * thread from this place on. */
int dj_stream_record(struct dj_stream *s, const struct dj_record *rec, struct dj_error *err);

/* Fast path for the commonest record. `line` is 64 bytes. */
int dj_stream_import(struct dj_stream *s, uint64_t steps, uint64_t rep, unsigned ordinal,
		     uint64_t addr, const uint8_t *line, struct dj_error *err);

/*
 * The two halves of recording a fact, for when it comes to pass before the thread's earlier records
 * are at hand. Append the fact that thread `by` caused; its number (1, 2...) is in `number`. Of a
 * process's facts the order of these calls is the order in which they came to pass; any thread of
 * ours may make them. Then, in their place among the records of `by` (or of another thread that
 * is known to have had the fact before its next instruction): facts up to that number hold.
 */
int dj_stream_fact(struct dj_stream *by, const struct dj_record *rec, uint64_t *number,
		   struct dj_error *err);
int dj_stream_facts(struct dj_stream *s, uint64_t steps, uint64_t number, struct dj_error *err);

/* Write what has gathered, as chunks. `steps` is how far the thread is known to have
 * come without further records, so that a reader knows the history reaches there; `seq` the number
 * of ordered events that it has passed there, or DJ_SEQ_UNKNOWN. Before the first record this says
 * with which number the thread begins. */
int dj_stream_flush(struct dj_stream *s, uint64_t steps, uint64_t seq, struct dj_error *err);

/* Whether somebody waits for what comes from now on to be written: it is packed quickly then,
 * rather than well. */
void dj_stream_hurry(struct dj_stream *s, bool hurry);

/*
 * When a thread was where, for people: `us` microseconds after the recording began it had executed
 * `steps` instructions. Between two of these it may be taken to have gone at one speed, and where
 * two have the same steps it stood still. Neither number goes back. The caller is who appends the
 * thread's records.
 */
struct dj_time {
	uint64_t us, steps;
};
int dj_stream_time(struct dj_stream *s, const struct dj_time *time, struct dj_error *err);

/* The same when no more will come (steps and seq as last flushed or recorded): the stream's memory
 * is given back. */
int dj_stream_close(struct dj_stream *s, struct dj_error *err);

/* What was counted; before the end, at most once. */
int dj_writer_counts(struct dj_writer *w, const struct dj_trace_count *counts, size_t n,
		     struct dj_error *err);

/* Write the end chunk and the index, close and free (also after an error). Nobody else uses the
 * writer or its streams any more. */
int dj_writer_close(struct dj_writer *w, const struct dj_trace_end *end, struct dj_error *err);

/* Bytes written so far. */
uint64_t dj_writer_size(struct dj_writer *w);

/* ---- reading ------------------------------------------------------------------- */

struct dj_trace;

struct dj_process_info {
	int32_t pid;
	int32_t parent; /* index of the process that made it, or -1: it is not in the trace */
	uint64_t facts; /* records in its stream */
	/* Ordered events that had been passed when the last of those of its threads began whose
	 * histories have lost their beginnings; 0: none has. */
	uint64_t late_seq;
};

struct dj_thread_info {
	int32_t tid;
	const char *name;		  /* when it began */
	uint32_t process;		  /* index */
	uint64_t first_steps, last_steps; /* history reaches from..to (instructions) */
	uint64_t first_seq, last_seq;	  /* ordered events passed there, or DJ_SEQ_UNKNOWN */
	uint64_t records;
	size_t keyframes; /* with which history can begin */
	bool late;	  /* it does begin with one: what came before is missing */
};

/* Open a trace. NULL with err on anything that is not one (exit_status 2). A trace that was
 * cut or damaged in the middle opens as far as it is good; dj_trace_damage() then says so. */
struct dj_trace *dj_trace_open(const char *path, struct dj_error *err);
/* The same over memory the caller keeps alive (fuzzing, tests). */
struct dj_trace *dj_trace_open_memory(const void *bytes, size_t len, struct dj_error *err);
void dj_trace_close(struct dj_trace *t);

/* NULL if undamaged and complete, else one line saying where history ends and why. */
const char *dj_trace_damage(const struct dj_trace *t);

/* NULL if all modules are at hand, else one sentence on what is missing in the module store and how
 * to get it. That a file there has other contents than it should shows when they are asked for. */
const char *dj_trace_missing(const struct dj_trace *t);

const char *dj_trace_path(const struct dj_trace *t);
uint64_t dj_trace_file_size(const struct dj_trace *t);
/* The module store's directory, if modules are there, else NULL; and how many of its files are this
 * trace's, with how many bytes. */
const char *dj_trace_store(const struct dj_trace *t, size_t *files, uint64_t *bytes);
const struct dj_trace_meta *dj_trace_meta(const struct dj_trace *t);
const struct dj_trace_end *dj_trace_end(const struct dj_trace *t);
/* What the recorder counted, `*n` of them; names are as they are in the trace. */
const struct dj_trace_count *dj_trace_counts(const struct dj_trace *t, size_t *n);

/* Bytes of the file by what they are for (chunk headers included). */
struct dj_trace_usage {
	uint64_t meta, modules, snapshots, streams;
};
const struct dj_trace_usage *dj_trace_usage(const struct dj_trace *t);

size_t dj_trace_processes(const struct dj_trace *t);
const struct dj_process_info *dj_trace_process(const struct dj_trace *t, size_t i);

size_t dj_trace_threads(const struct dj_trace *t);
const struct dj_thread_info *dj_trace_thread(const struct dj_trace *t, size_t i);

/* Where keyframe `i` of a thread is: instructions, and ordered events passed (or DJ_SEQ_UNKNOWN).
 * False: there is none. */
bool dj_trace_keyframe(const struct dj_trace *t, size_t thread, size_t i, uint64_t *steps,
		       uint64_t *seq);

/* When the thread was where, in order, in an array that is the caller's; none (NULL) of a recording
 * without. Of more than DJ_TIMES_MAX only some. */
#define DJ_TIMES_MAX (1u << 21)
int dj_trace_times(const struct dj_trace *t, size_t thread, struct dj_time **times, size_t *n,
		   struct dj_error *err);

size_t dj_trace_modules(const struct dj_trace *t);
const struct dj_module_info *dj_trace_module(const struct dj_trace *t, size_t i);
/* The module's file contents, decompressed on first use and kept until close. NULL on error. */
const uint8_t *dj_trace_module_bytes(struct dj_trace *t, size_t i, size_t *size,
				     struct dj_error *err);

/* Write a copy of the trace that has all its modules in it to `path`, which is replaced at once
 * when the copy is complete; it may be the trace itself. */
int dj_trace_pack(struct dj_trace *t, const char *path, struct dj_error *err);

/* Remove the files of the module store in `dir` that no trace in `dir` has modules in. No recording
 * that is going on loses any. */
struct dj_store_pruned {
	size_t kept, removed;
	uint64_t bytes; /* of those that are removed */
};
int dj_store_prune(const char *dir, struct dj_store_pruned *result, struct dj_error *err);

/*
 * A directory of files that may go at any time: the packed modules of dj_writer_keep_packed(), the
 * recorder's translations.
 */
enum dj_trim_kind {
	DJ_TRIM_OTHER, /* not ours: it stays, and does not count */
	DJ_TRIM_WHOLE,
	DJ_TRIM_PART, /* somebody has begun to write it; it goes when that was an hour ago */
};

/* Those that were of no use for longest (by their times of modification) go, until the others have
 * no more than `most` bytes. Only regular files are looked at. */
void dj_trim(int directory, uint64_t most, enum dj_trim_kind (*kind)(const char *name));

/* How many bytes of modules are unpacked by now, pages of zeros not counted. */
uint64_t dj_trace_unpacked(const struct dj_trace *t);

/* Copy bytes of memory as it was at the start of an image of a process (by index): returns how
 * many bytes from addr on are known, contiguous, at most len; may be 0. */
size_t dj_trace_snapshot(struct dj_trace *t, size_t process, uint32_t image, uint64_t addr,
			 void *out, size_t len);

/* ---- cursors -------------------------------------------------------------------- */

struct dj_cursor;

/*
 * A cursor at the first record of thread `i` (index, not tid). Borrows the trace. It serves the
 * thread's records and its process's facts in one sequence:
 *
 *   A fact that this thread caused has exactly its place.
 *   A fact that another thread caused comes no later than the first record that shows that it must
 *   have come to pass: a fact of this thread's that follows it, or a SEQ record with a higher
 *   number. Its `steps` are those of that record. (An ordered event of this thread's after the
 *   fact does not have this thread's next number, so there is such a record.) It is told by its
 *   `thread`.
 */
struct dj_cursor *dj_cursor_new(struct dj_trace *t, size_t i, struct dj_error *err);
/* A cursor over the records of thread `i` alone, without facts. It can neither be moved nor marked.
 */
struct dj_cursor *dj_cursor_new_own(struct dj_trace *t, size_t i, struct dj_error *err);
/* A cursor over the facts of process `i` alone, whoever caused them, at the steps of who did. */
struct dj_cursor *dj_cursor_new_facts(struct dj_trace *t, size_t i, struct dj_error *err);
void dj_cursor_free(struct dj_cursor *c);

/* The next record, or NULL at the end of history (err->text empty) or on damage (err filled).
 * The record and what it borrows stay valid until the next call on this cursor. */
const struct dj_record *dj_cursor_next(struct dj_cursor *c, struct dj_error *err);

/* Where the cursor is: an opaque mark that dj_cursor_restore() goes back to. */
struct dj_mark {
	struct dj_mark_place {
		uint32_t chunk, n, head, data;
		uint64_t steps, addr;
	} own, facts;
	uint64_t late;
};
void dj_cursor_mark(const struct dj_cursor *c, struct dj_mark *m);
int dj_cursor_restore(struct dj_cursor *c, const struct dj_mark *m, struct dj_error *err);

/*
 * A thread that begins late begins with all facts that hold by then, and what they amount to is the
 * same for each thread of the process. Whoever keeps that is asked when a thread's first facts are
 * called for, and told when they have been served. Both only once.
 */
struct dj_cursor_begin {
	/* So many facts are called for at `steps`. Whether the first of them are known; then `at`
	 * is the place behind those, and they are not served. */
	bool (*find)(void *arg, uint64_t steps, uint64_t facts, struct dj_mark_place *at);
	/* So many have been served, up to this place. */
	void (*keep)(void *arg, uint64_t facts, const struct dj_mark_place *at);
	void *arg;
};
void dj_cursor_on_begin(struct dj_cursor *c, const struct dj_cursor_begin *begin);

/*
 * Move a thread's cursor near a position, without reading the records before it: what it serves
 * from there on has every record with its place at `steps` instructions or later; or where the
 * thread had passed `seq` ordered events or more (what has its place at the very event included).
 * Where the trace does not have these numbers, the second goes back as far as it must.
 */
int dj_cursor_seek_steps(struct dj_cursor *c, uint64_t steps, struct dj_error *err);
int dj_cursor_seek_seq(struct dj_cursor *c, uint64_t seq, struct dj_error *err);
/* Move a thread's cursor to its keyframe `i`: what it serves from there on is the KEYFRAME record,
 * all facts that hold there, and what comes after. */
int dj_cursor_seek_keyframe(struct dj_cursor *c, size_t i, struct dj_error *err);

#endif
