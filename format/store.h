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

#define STORE_DIR      "modules"
#define STORE_NAME_LEN 48 /* hexadecimal: 16 bytes of hash, 8 of size */

void dj_store_key(struct dj_store_key *key, const void *contents, size_t size);
void dj_store_name(char name[STORE_NAME_LEN + 1], const struct dj_store_key *key);

/* The name of the store beside a file; a new string, or NULL if there is no memory. */
char *dj_store_beside(const char *path);
/* Open it; -1 with errno. `create`: make it if it is not there. */
int dj_store_open(const char *store, bool create);

/* Map the file of f->key and check it up to its checksums. On failure, `why` ends a sentence about
 * the file: "is not there". */
int dj_store_map(int store, struct dj_store_file *f, char *why, size_t size);
/* The check, of f->file. NULL, or what ends the sentence. */
const char *dj_store_check(struct dj_store_file *f);
void dj_store_unmap(struct dj_store_file *f);

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
/* Those that were of no use for longest go, until no more than so many bytes are left. */
void dj_store_trim(int directory, uint64_t most);

#endif
