/*
 * The module store: what modules contain, once for all traces in a directory. Private to format/.
 *
 * Most of a short trace is the program and its libraries, and the next trace has the same ones. So
 * the recordings of a directory keep them in its subdirectory `modules`, one file for each
 * contents, and the trace has a STORED chunk instead (deja-trace(5)). A file's name is the hash of
 * what it contains, and how much that is: nothing in a trace leads anywhere else, and whoever
 * writes a file of that name writes the same bytes. A file appears with rename(2), complete, and is
 * never changed.
 *
 * Removing. A file may go if no trace in the directory refers to it. A recording looks for the
 * file, or makes it, before its trace refers to it, so it holds a shared lock on the store in
 * between, and who removes files holds the exclusive one, from before looking into the traces. No
 * recording waits for that: what it cannot put into the store it puts into its trace.
 *
 * The hash is XXH3's of 128 bits, which keeps chance away and not malice. Somebody who can write to
 * the store can do anything there, and to the traces; and a trace also has its own checksum of what
 * the module contains.
 */
#ifndef DEJA_FORMAT_STORE_H
#define DEJA_FORMAT_STORE_H

#include "format/reader.h"
#include "format/writer.h"

#include <sys/stat.h>

#define STORE_DIR	"modules"
#define STORE_NAME_LEN	48    /* hexadecimal: 16 bytes of hash, 8 of size */
#define STORE_NEW_LEN	21    /* .new- and a number */
#define STORE_KNOWN	"of-" /* and device and inode of the file */
#define STORE_KNOWN_LEN 35

void dj_store_key(struct dj_store_key *key, const void *contents, size_t size);
void dj_store_name(char name[STORE_NAME_LEN + 1], const struct dj_store_key *key);

/* The name of the store beside a file; a new string, or NULL if there is no memory. */
char *dj_store_beside(const char *path);
/* Open it; -1 with errno. `create`: make it if it is not there. */
int dj_store_open(const char *store, bool create);

/* Map the file of f->key and check it up to its checksums. On failure, `why` ends a sentence about
 * the file: "is not there". */
int dj_store_map(int store, struct dj_store_file *f, char *why, size_t size);
/* The seed of the checksums in a file, and whether a chunk in it is what comes behind so many
 * bytes.
 */
uint64_t dj_store_seed(const struct dj_store_key *key);
bool dj_store_is_piece(const struct dj_chunk_header *h, const struct dj_store_key *key,
		       uint64_t have);
/* The check, of f->file. NULL, or what ends the sentence. */
const char *dj_store_check(struct dj_store_file *f);
void dj_store_unmap(struct dj_store_file *f);

/* Whether the store has a good file of these contents. */
bool dj_store_has(int store, const struct dj_store_key *key);
/* See that the store has a good file of these contents. On failure there is nothing new in it. */
int dj_store_put(int store, const struct dj_store_key *key, const void *contents);

/*
 * Packed modules for later traces (dj_writer_keep_packed()) lie in a directory with files like the
 * store's. No trace refers to them: they may go at any time, and one that was cut or damaged is
 * written again.
 */

/* A file of f->key, read and checked: whoever writes to it changes nothing that was read.
 * dj_store_unmap() gives it back. -1: there is none that is good. */
int dj_store_read(int directory, struct dj_store_file *f);
/* Write one, whether it is there or not. */
int dj_store_keep(int directory, const struct dj_store_key *key, const void *contents);
/* Open it only: the descriptor, which is the caller's, or -1. */
int dj_store_open_kept(int directory, const struct dj_store_key *key);
/* Those that were of no use for longest go, until no more than so many bytes are left. */
void dj_store_trim(int directory, uint64_t most);
/* A name for a file that is about to be written, and renamed then. */
void dj_store_new_name(char name[STORE_NEW_LEN + 1]);

/*
 * Beside them lie notes of what module files contain, one for each file (format/known.c).
 */

struct dj_known {
	struct dj_store_key key;
	uint64_t sum; /* dj_chunk_sum() with seed 0 */
	uint8_t build_id[32];
	uint8_t build_id_len;
};

/* What the file contains. False: that is not known. */
bool dj_known_read(int directory, int fd, struct dj_known *k);
/* Whether it may be noted of a file what it contains that is read now, and its state before that.
 */
bool dj_known_settled(int fd, struct stat *before);
/* Note it, if the file is still in that state. */
void dj_known_write(int directory, int fd, const struct stat *before, const struct dj_known *k);

#endif
