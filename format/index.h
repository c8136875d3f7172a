/*
 * The index of a trace: a file beside it in which whoever replays keeps what took time to find out.
 * deja-trace(5) shows its outer form. What is in its blocks is the replayer's affair
 * (replayer/keep.c).
 *
 * It can always be made anew, so anything odd about it means that there is none: another trace's,
 * another deja's, damage. It is read as a trace is: every length is checked.
 */
#ifndef DEJA_FORMAT_INDEX_H
#define DEJA_FORMAT_INDEX_H

#include "format/error.h"
#include "format/trace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* No block is larger than this when unpacked. */
#define DJ_INDEX_BLOCK_MAX ((size_t)64 << 20)

/* How large the index of a trace with so many instructions may be. */
uint64_t dj_index_room(const struct dj_trace *t, uint64_t steps);

struct dj_index_writer;
/* `layout`: blocks are understood by who has the same one. NULL without memory. */
struct dj_index_writer *dj_index_begin(struct dj_trace *t, uint64_t layout);
/* Put a block of a thread behind the others, unless it is larger than `most` when packed: how large
 * it is then, which is more. 0 without memory. */
size_t dj_index_put(struct dj_index_writer *w, uint32_t thread, const void *bytes, size_t n,
		    size_t most);
uint64_t dj_index_size(const struct dj_index_writer *w);
/* Forget what was put behind the first `size` bytes. */
void dj_index_cut(struct dj_index_writer *w, uint64_t size);
/* Write the file beside the trace; it is there as a whole or not at all. */
int dj_index_write(struct dj_index_writer *w, struct dj_error *err);
void dj_index_drop(struct dj_index_writer *w);

struct dj_index;
/* The index beside the trace; NULL: there is none that is good for it. */
struct dj_index *dj_index_open(struct dj_trace *t, uint64_t layout);
void dj_index_close(struct dj_index *x);
/* The next block of a thread from *at on, which is 0 at first; NULL: there is none. What it
 * returns is good until the next call. */
const uint8_t *dj_index_next(struct dj_index *x, uint32_t thread, uint64_t *at, size_t *n);

#endif
