/*
 * Deja's memory in the program, between the files that put it there and make room for it. An
 * operation on it is a chain of calls that the program is made to make (recorder/call.c).
 */
#ifndef DEJA_RECORDER_AREA_H
#define DEJA_RECORDER_AREA_H

#include "recorder/recorder.h"

/* Whether that is an error of a system call's. */
static inline bool rec_failed(int64_t result)
{
	return result < 0 && result > -4096;
}

/* ---- area.c ---- */
void rec_tables_free(struct rec_process *proc);
void rec_own_free(struct rec_thread *t);
/* A part of the shared file, in us. NULL with errno. */
uint8_t *rec_shared_map(struct rec_process *proc, uint64_t off, uint64_t size);
/* How much the area takes; its parts, relative to its start, each in one mapping. */
uint64_t rec_area_span(void);
bool rec_area_part(unsigned i, uint64_t *at, uint64_t *size);
/* The first of some places where there is nothing in `size` bytes, or 0. A list of mappings may be
 * long: it is read once. */
#define REC_PLACES 128 /* at most */
uint64_t rec_hole(struct rec_thread *t, const uint64_t *places, unsigned n, uint64_t size);
/* Whether there is nothing in `size` bytes at each of them. */
bool rec_holes(struct rec_thread *t, const uint64_t *places, unsigned n, uint64_t size);
/* What deja has in the program that this resource limit counts. */
uint64_t rec_area_size(const struct rec_process *proc, int resource);
/* Put tables, the thread's own part and the shadow into the program; `rec_image_ready` follows. */
enum rec_state rec_area_begin(struct rec_thread *t);
enum rec_state rec_image_ready(struct rec_thread *t);
/* The pieces of the address space that are deja's, one after the other; false: there are no more.
 * `what` is that of the next one. */
enum rec_piece { REC_PIECE_FIRST, REC_PIECE_THREAD, REC_PIECE_SPARE, REC_PIECE_ARENA };
struct rec_pieces {
	const struct rec_process *proc;
	enum rec_piece what;
	const struct rec_thread *t;
	const struct rec_spare *spare;
	unsigned arena;
};
bool rec_area_next(struct rec_pieces *p, uint64_t *at, uint64_t *size);
/* All of them, a new array. */
struct rec_range *rec_area_pieces(const struct rec_process *proc, unsigned *n);

/* ---- series.c ---- */
/* What the program executes (series-code.S). */
extern const uint8_t rec_series_begins[], rec_series_ends[];
/* An empty list. A thread has one. */
void rec_series_begin(struct rec_thread *t);
/* `what` says to the caller which call it is, from 0 on. */
void rec_series_add(struct rec_thread *t, unsigned what, enum rec_series_how how, uint64_t nr,
		    uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f);
/* In hand: make them. `then` is told 0, or what the first one returned that must not fail and did:
 * those behind it are not made then. */
enum rec_state rec_series_run(struct rec_thread *t, rec_then *then);
/* Which one that was. */
unsigned rec_series_failed(const struct rec_thread *t);
/* Whether this one has been made, and has not failed. */
bool rec_series_made(const struct rec_thread *t, unsigned what);
void rec_series_free(struct rec_thread *t);

/* In hand: the page at `at`, at `off` in the file `fd` of the program's, which is the shared one,
 * is to be what a series is made with. `then` follows, told 0; without it they are made one by one.
 */
enum rec_state rec_series_place(struct rec_thread *t, uint64_t at, int fd, uint64_t off,
				rec_then *then);

/* ---- call.c ---- */
/* The program executes what is at `at`, with a list, up to the trap before `end`. */
enum rec_state rec_call_series(struct rec_thread *t, rec_then *then, uint64_t at, uint64_t list,
			       uint64_t end);

/* ---- arena.c ---- */
#define REC_WINDOW_SIZE (REC_ARENAS * TR_ARENA_SIZE)
#define REC_OWN_SIZE	((uint64_t)REC_OWN_PARTS * AREA_THREAD)
/* Where it is in the file, behind the tables, the first thread's own part and a page (series.c). */
#define REC_WINDOW_OFF (AREA_TABLES + AREA_THREAD + AREA_PAGE)
/* Such a file, made by deja; or -1. */
int rec_area_file(void);
void rec_window_free(struct rec_process *proc);
/* The arena at `at` is used no more. */
void rec_window_give_back(struct rec_process *proc, uint64_t at);
/* When the window has been mapped, executable, it is made PROT_NONE, if the program may undo that.
 */
bool rec_window_may_hide(const struct rec_thread *t);
/* And executable again, before the program may not. In hand again afterwards. */
bool rec_window_hidden(const struct rec_process *proc);
enum rec_state rec_window_show(struct rec_thread *t);
/* Calls that put one of the window's arenas at `at`, to a series: `what`, to map it, and maybe the
 * next, to make it executable. */
void rec_window_add(struct rec_thread *t, unsigned arena, uint64_t at, unsigned what);
/* An arena near the program's code at `pc`. */
enum rec_state rec_arena_begin(struct rec_thread *t, uint64_t pc);

/* ---- heir.c ---- */
/* The file has been mapped: the translator is the process's, and the arenas are mapped. Without
 * them, rec_image_translator() makes a new one. */
enum rec_state rec_heir_take(struct rec_thread *t, const struct tr_ops *ops);

/* ---- area-thread.c ---- */
/* An area for a thread of a process that has one; `then` gets 0, or a negative error. */
enum rec_state rec_area_thread_begin(struct rec_thread *t, rec_then *then);
/* Whether the area of a thread that ends is kept for another one. */
bool rec_area_thread_keep(const struct rec_thread *t);
/* The area kept and the next one. */
bool rec_spare_next(const struct rec_spare **spare, uint64_t *at);
/* A thread's area is used no more. */
void rec_area_thread_end(struct rec_thread *t);
/* The area with this S has been moved by so many bytes; if it is one of those kept, they know. */
void rec_spares_moved(struct rec_process *proc, uint64_t s, uint64_t by);
/* Areas of threads of an image that is gone. */
void rec_spares_free(struct rec_process *proc);
/* What an area takes of the address space. */
#define REC_AREA_THREAD (AREA_CONTROL + AREA_SHADOW)

/* ---- filter.c ---- */
/* Whether the program's seccomp filters let this call through, made at `at`. */
bool rec_filters_allow(const struct rec_thread *t, uint64_t at, const struct user_regs_struct *r);
/* A thread's filters are those of another one, instead of what it had. */
void rec_filters_copy(struct rec_thread *to, const struct rec_thread *from);
void rec_filters_free(struct rec_thread *t);

/* ---- limits.c ---- */
/* Make room for deja's memory: a new image; another arena. */
enum rec_state rec_limits_begin(struct rec_thread *t, rec_then *then);
enum rec_state rec_limits_raise(struct rec_thread *t, rec_then *then);
/* Whether there is room now, for deja's memory and some of the program's. */
bool rec_limits_suffice(const struct rec_thread *t);
/* A process has run by itself for a while: it may have set limits. */
void rec_limits_look(struct rec_process *proc);
/* Give a process the limits that the program `of` has. */
void rec_limits_own(struct rec_process *proc, const struct rec_process *of);

#endif
