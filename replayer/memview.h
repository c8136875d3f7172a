/*
 * Memory as a debugger sees it: what one thread is known to have in memory at its current
 * position, by full address and to the byte.
 *
 * A byte is known once the thread read or wrote it, or imported its line. Its value is in
 * the shadow, at address mod 2^32, as long as only one page of the address space uses that
 * page of the shadow: the owner. Where two pages meet, both get data of their own, written along
 * with the shadow from then on; so do all pages where stores leave the shadow alone (other
 * prediction modes). A byte is stale once something that is not mirrored wrote it (the
 * kernel, a natively executed instruction): until the thread reads it again, nobody knows
 * it. For what is neither known nor stale the mappings speak (space_contents).
 *
 * Every change is noted in the current undo log first. Watched ranges are looked at here as
 * well, since all accesses come by.
 */
#ifndef DEJA_REPLAYER_MEMVIEW_H
#define DEJA_REPLAYER_MEMVIEW_H

#include "format/record.h"
#include "replayer/lookahead.h"
#include "replayer/thread.h"
#include "replayer/undo.h"

struct memview;

struct view_page {
	uint64_t num; /* address / 4096 */
	struct view_page *hash_next;
	uint32_t epoch;	      /* == memview's: noted in the current log */
	uint32_t store_epoch; /* the same, its shadow page too, and it has no own data */
	uint8_t *own;
	uint64_t *stale;
	uint64_t known[UNDO_WORDS];
};

/* What the last watched access was. */
struct memview_hit {
	bool hit, in_rep; /* in_rep: by some iteration of a REP instruction */
	int id;
	uint64_t addr;
	struct thread_pos before; /* where the instruction (or iteration) began */
};

#define VIEW_TLB 256u

struct memview {
	struct thread *th;
	struct undo *log; /* NULL: nothing needs undoing */
	uint32_t epoch;
	bool all_own, copy, slow_store;
	struct view_page *tlb[VIEW_TLB];
	struct view_page **hash;
	size_t hash_size, npages;
	uint32_t *shadow_epoch;	  /* by shadow page: epoch of the last note or change; 0: never */
	struct view_page **owner; /* by shadow page */
	struct memview_watch *watches;
	size_t nwatches, watches_cap;
	struct lookahead *look; /* learning what the thread finds, else NULL */
	bool watching; /* report hits */
	struct memview_hit hit;
	/* the bytes a watched store or import is about to change */
	uint8_t old[1024], old_state[1024];
	unsigned old_size;
};

struct memview *memview_new(struct thread *th);
void memview_free(struct memview *mv);
/* Know nothing, as at the beginning; the log is forgotten. */
void memview_reset(struct memview *mv);
/* From now on, note changes in `log`. */
void memview_set_log(struct memview *mv, struct undo *log);
/* Put back what the log holds (shadow included). */
void memview_undo(struct memview *mv, const struct undo *log);

/* What the emulator does. */
void memview_import(struct memview *mv, uint64_t addr, const uint8_t *line);
void memview_load_slow(struct memview *mv, uint64_t addr, unsigned size);
void memview_before_store_slow(struct memview *mv, uint64_t addr, unsigned size);
void memview_after_store_slow(struct memview *mv, uint64_t addr, unsigned size,
			      const uint8_t *bytes);
/* What others do: mappings came or went, exec, a system call, an EFFECTS record (both before
 * the registers change). */
void memview_forget(struct memview *mv, uint64_t addr, uint64_t length);
void memview_forget_all(struct memview *mv);
void memview_stale(struct memview *mv, uint64_t addr, uint64_t length);
/* The kernel wrote these bytes (a signal's frame); the shadow does not have them. */
void memview_learn(struct memview *mv, uint64_t addr, const uint8_t *bytes, uint64_t length);
/* What was known at `from` is known at `to` (mremap), before `from` is unmapped. */
void memview_move(struct memview *mv, uint64_t from, uint64_t to, uint64_t length);
void memview_syscall(struct memview *mv, const uint64_t *gpr, uint64_t result);
/* Whether memview_syscall() knows all that the call about to be made writes. */
bool memview_knows_syscall(const uint64_t *gpr);
void memview_effects(struct memview *mv, const struct dj_record *r);

/* Copy known memory; returns how many bytes from addr on are known. */
size_t memview_read(struct memview *mv, uint64_t addr, void *buf, size_t len);

/* A throw-away copy: loads must find in the shadow what memview_read() would say, and
 * memory can be written. */
static inline bool memview_in_copy(const struct memview *mv)
{
	return mv->copy;
}
void memview_fill(struct memview *mv, uint64_t addr, unsigned size);
void memview_write(struct memview *mv, uint64_t addr, const uint8_t *bytes, size_t len);

/* Watched ranges; `kind` is REPLAY_WATCH_... A hit asks the emulator to stop. */
int memview_watch_add(struct memview *mv, int id, uint64_t addr, uint64_t len, unsigned kind);
void memview_watch_del(struct memview *mv, int id);
/* Whether all watches are write watches on pages that the log has not seen change. */
bool memview_watches_quiet(struct memview *mv, struct undo *log);

/* ---- the fast paths ------------------------------------------------------------------ */

static inline uint64_t memview_mask(uint64_t addr, unsigned size)
{
	return (size == 64 ? ~0ULL : (1ULL << size) - 1) << (addr & 63);
}

/* The page at addr, if the access stays within a line of it and it was met lately. */
static inline struct view_page *memview_near(struct memview *mv, uint64_t addr, unsigned size)
{
	uint64_t num = addr >> 12;
	struct view_page *p = mv->tlb[num % VIEW_TLB];

	return p && p->num == num && (addr & 63) + size <= 64 ? p : NULL;
}

static inline void memview_load(struct memview *mv, uint64_t addr, unsigned size)
{
	struct view_page *p = memview_near(mv, addr, size);

	if (p && !p->own) {
		uint64_t mask = memview_mask(addr, size);
		if ((p->known[addr >> 6 & 63] & mask) == mask)
			return;
	}
	memview_load_slow(mv, addr, size);
}

static inline void memview_before_store(struct memview *mv, uint64_t addr, unsigned size)
{
	struct view_page *p = memview_near(mv, addr, size);

	if (p && p->store_epoch == mv->epoch) {
		uint64_t mask = memview_mask(addr, size);
		if ((p->known[addr >> 6 & 63] & mask) == mask)
			return;
	}
	memview_before_store_slow(mv, addr, size);
}

static inline void memview_after_store(struct memview *mv, uint64_t addr, unsigned size,
				       const uint8_t *bytes)
{
	if (__builtin_expect(mv->slow_store, 0))
		memview_after_store_slow(mv, addr, size, bytes);
}

#endif
