/* The program's mappings: maps.c keeps them, maplog.c learns of those made without a stop. Part of
 * recorder.h, which includes it. */
#ifndef DEJA_RECORDER_MAPS_H
#define DEJA_RECORDER_MAPS_H

#include "format/mappings.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/user.h>

struct rec_thread;
struct rec_process;
struct rec_recording;

/* ---- maps.c ---- */
int rec_maps_read(struct rec_process *proc);
void rec_maps_add(struct rec_thread *t, uint64_t start, uint64_t end, uint32_t prot, uint32_t flags,
		  int fd, uint64_t offset);
/* What is open as `fd` in the program: what it is called (DJ_NAME_MAX bytes), and which module, if
 * it is mapped with these flags, or -1. */
int32_t rec_maps_file(struct rec_thread *t, int fd, uint32_t flags, char *path);
/* Of a file that is known so. */
void rec_maps_add_file(struct rec_thread *t, uint64_t start, uint64_t end, uint32_t prot,
		       uint32_t flags, uint64_t offset, int32_t module, const char *path);
void rec_maps_add_named(struct rec_thread *t, uint64_t start, uint64_t end, uint32_t prot,
			uint32_t flags, const char *name);
/* Like an existing mapping, elsewhere. */
void rec_maps_add_like(struct rec_thread *t, const struct dj_mapping *like, uint64_t start,
		       uint64_t end, uint64_t offset);
/* Add whatever the kernel says is mapped at `addr` (shared memory segments). */
void rec_maps_refresh(struct rec_thread *t, uint64_t addr);
/* Remove what the kernel says is not mapped there (any more). */
void rec_maps_lost(struct rec_thread *t, uint64_t start, uint64_t end);
void rec_maps_remove(struct rec_thread *t, uint64_t start, uint64_t end);
/* The mapping that starts at `start`. */
void rec_maps_remove_at(struct rec_thread *t, uint64_t start);
void rec_maps_protect(struct rec_thread *t, uint64_t start, uint64_t end, uint32_t prot);
const struct dj_mapping *rec_maps_find(const struct rec_process *proc, uint64_t addr);
/* Read all of it if the program may, as far as is known: by ptrace it could be read anyhow. */
bool rec_read_as_it(struct rec_process *proc, uint64_t addr, void *buf, size_t len);
/* Put one into the trace. */
void rec_maps_record(struct rec_thread *t, const struct dj_mapping *m, const char *name);
void rec_maps_free(struct rec_process *proc);
void rec_labels_free(struct rec_recording *rec);

/* ---- untouched.c ---- */
/* Private memory of no file. */
bool rec_anonymous(const struct dj_mapping *m);
/* What the kernel says of `n` pages from `addr` on, an entry of pagemap each (proc(5)); returns of
 * how many. */
#define REC_PAGE_PRESENT   (3ULL << 62) /* or swapped out */
#define REC_PAGE_OF_A_FILE (1ULL << 61)
size_t rec_page_entries(struct rec_thread *t, uint64_t addr, uint64_t *entry, size_t n);
/* Whether what is there is the process's alone, of a private mapping. */
bool rec_page_is_own(uint64_t entry);
/* Whether the page at `addr`, of a private mapping of a file, is the file's page still, and no copy
 * of it that was written to. For the thread in hand; false also if that cannot be found out. */
bool rec_is_of_file(struct rec_process *proc, uint64_t addr);
/* What is known of that is not to be relied on from now on: the process runs, or was written to. */
void rec_pages_may_change(struct rec_process *proc);
/* Which of `n` pages from `addr` on, all in such memory, are zero because nobody has touched them;
 * by bit. None, if that cannot be found out. */
#define REC_UNTOUCHED 64
uint64_t rec_untouched(struct rec_thread *t, uint64_t addr, unsigned n);
/* Such memory, which stays untouched where it is. Returns how many bytes could be read: maybe less
 * than there are. */
size_t rec_read_anonymous(struct rec_thread *t, uint64_t addr, uint8_t *buf, size_t len);
/* The process has other memory from now on, or none. */
void rec_untouched_end(struct rec_process *proc);

/* ---- maplog.c (doc/mappings.md) ---- */
/* An empty log. */
void rec_log_start(struct rec_thread *t);
/* Before anything is done for the thread that has to do with mappings or records: it may be
 * anywhere, but does not run. Whatever its process has logged is dealt with, of all threads. */
void rec_log_drain(struct rec_thread *t);
/* The process has new tables: no ranges. */
void rec_logs_tables(struct rec_process *proc);
/* What all threads of the process have logged, in the order in which it was done; false: that
 * cannot be. */
bool rec_logs_drain(struct rec_thread *t);
/* ... and the recording ends. */
void rec_log_overwritten(struct rec_thread *t);

/* A fact of the process comes to pass now: what calls have been logged before is dealt with, so
 * that it comes before it in the trace, and others come behind it. If it is about `code`, a call
 * that is made now may come to pass before it as well, and be overtaken. */
void rec_log_fact(struct rec_thread *t, bool code);
/* Whether that has happened to the call that is being dealt with: then its thread cannot be said to
 * know of all facts up to that at its place. */
bool rec_log_overtaken(const struct rec_process *proc);
/* In hand behind a call that was made in the cache and completed by us instead of there; `r` is how
 * the kernel left it. */
void rec_log_call(struct rec_thread *t, const struct user_regs_struct *r);
/* The supervisor has made this call; the next like it need not come here. */
void rec_data_learn(struct rec_thread *t, const struct user_regs_struct *in);
/* Code or memory of ours will be there. */
void rec_data_not(struct rec_process *proc, uint64_t start, uint64_t end);

/* ---- mapturn.c ---- */
/* A word, or more, of those at T_MAPS; there are tables. */
uint64_t *rec_maps_word(const struct rec_process *proc, int64_t off);
/* From now on no thread of this one's process makes mapping calls in the cache, and all that were
 * made are known. False: somebody is making one; return REC_WAIT. */
bool rec_logs_close(struct rec_thread *t);
/* As far as this thread is concerned they may, if it has closed them: when it goes on, at the
 * latest. */
void rec_logs_open(struct rec_thread *t);
/* Who has the turn, or makes such a call; NULL: nobody. */
const struct rec_thread *rec_turn_of(const struct rec_process *proc);
/* The thread makes no such call just now: it is in hand, or has ended. */
void rec_log_leave(struct rec_thread *t);
/* In hand at a mapping call: whether it has come here only because another thread made one. Then it
 * goes on with `next`. */
bool rec_log_again(struct rec_thread *t, enum rec_state *next);

#endif
