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
 * it. For what is neither known nor stale the mappings speak (rp_space_contents).
 *
 * Every change is noted in the current undo log first. Watched ranges are looked at here as
 * well, since all accesses come by.
 */
#ifndef DEJA_REPLAYER_MEMVIEW_H
#define DEJA_REPLAYER_MEMVIEW_H

#include "format/record.h"
#include "replayer/lookahead.h"
#include "replayer/thread.h"
#include "replayer/told.h"
#include "replayer/undo.h"

struct rp_memview;

struct rp_memview_page {
	uint64_t num; /* address / 4096 */
	struct rp_memview_page *hash_next;
	uint32_t epoch;	      /* == memview's: noted in the current log */
	uint32_t store_epoch; /* the same, its shadow page too, and it has no own data */
	uint8_t *own;
	uint64_t *stale;
	uint64_t known[UNDO_WORDS];
};

/* Watched bytes that a store or an import has put in memory. */
struct rp_memview_touch {
	int id; /* of the watch */
	bool import;
	unsigned n;
	uint64_t addr;
	uint8_t bytes[64];
};

/* What the last watched access was. */
struct rp_memview_hit {
	bool hit, in_rep; /* in_rep: by some iteration of a REP instruction */
	int id;
	uint64_t addr;
	struct rp_thread_pos before;   /* where the instruction (or iteration) began */
	struct rp_memview_touch touch; /* where mv->changed was asked; else n is 0 */
};

/* When the bytes of one page were met, while somebody wants to know that: see rp_memview_note(). */
struct rp_memview_notes {
	uint64_t num;	      /* of the page */
	bool reads;	      /* they count; else only what can change bytes */
	bool event;	      /* an ordered event is doing it */
	bool ordered, peeked; /* whether the instruction at `rip` is one */
	uint64_t rip;
	uint64_t noted[64]; /* a bit per byte */
	uint64_t seq[4096]; /* number of the last event that had been passed once it had happened */
};

#define VIEW_TLB 256u

struct rp_memview {
	struct rp_thread *th;
	struct rp_undo *log; /* NULL: nothing needs undoing */
	uint32_t epoch;
	bool all_own, copy, slow_store;
	uint64_t stale_left; /* bytes that the system call or instruction at hand may make stale */
	struct rp_memview_page spare; /* what any page is without memory: see rp_page_no_memory() */
	struct rp_memview_page *tlb[VIEW_TLB];
	struct rp_memview_page **hash;
	size_t hash_size, npages;
	uint32_t *shadow_epoch; /* by shadow page: epoch of the last note or change; 0: never */
	struct rp_memview_page **owner; /* by shadow page */
	struct rp_memview_watch *watches;
	size_t nwatches, watches_cap;
	/* If not NULL: asked whether these are other bytes than before, instead of comparing with
	 * what this thread knew. */
	bool (*changed)(void *ctx, const struct rp_memview_touch *touch);
	void *changed_ctx;
	struct rp_lookahead *look; /* learning what the thread finds, else NULL */
	bool watching;		   /* report hits */
	struct rp_memview_notes *notes;
	struct rp_told told;
	struct rp_memview_hit hit;
	/* the bytes a watched store or import is about to change */
	uint8_t old[1024], old_state[1024];
	unsigned old_size;
};

struct rp_memview *rp_memview_new(struct rp_thread *th);
void rp_memview_free(struct rp_memview *mv);
/* Know nothing, as at the beginning; the log is forgotten. */
void rp_memview_reset(struct rp_memview *mv);
/* From now on, note changes in `log`. */
void rp_memview_set_log(struct rp_memview *mv, struct rp_undo *log);
/* Put back what the log holds (shadow included). */
void rp_memview_undo(struct rp_memview *mv, const struct rp_undo *log);

/* What the emulator does. */
void rp_memview_import(struct rp_memview *mv, uint64_t addr, const uint8_t *line);
void rp_memview_load_slow(struct rp_memview *mv, uint64_t addr, unsigned size);
void rp_memview_before_store_slow(struct rp_memview *mv, uint64_t addr, unsigned size);
void rp_memview_after_store_slow(struct rp_memview *mv, uint64_t addr, unsigned size,
				 const uint8_t *bytes);
/* What others do: mappings came or went, exec, a system call, an EFFECTS record (both before
 * the registers change). */
void rp_memview_forget(struct rp_memview *mv, uint64_t addr, uint64_t length);
void rp_memview_forget_all(struct rp_memview *mv);
void rp_memview_stale(struct rp_memview *mv, uint64_t addr, uint64_t length);
/* The kernel wrote these bytes (a signal's frame); the shadow does not have them. */
void rp_memview_learn(struct rp_memview *mv, uint64_t addr, const uint8_t *bytes, uint64_t length);
/* The recorder found these bytes here; so far as the thread knows better they are nothing new. */
void rp_memview_tell(struct rp_memview *mv, uint64_t addr, const uint8_t *bytes, uint64_t length);
/* The same for what is stale and was not told just now: it is as the shadow has it. */
void rp_memview_tell_same(struct rp_memview *mv, uint64_t addr, uint64_t length);
/* The thread went back to where it is now. */
void rp_memview_back(struct rp_memview *mv);
/* What was known at `from` is known at `to` (mremap), before `from` is unmapped. */
void rp_memview_move(struct rp_memview *mv, uint64_t from, uint64_t to, uint64_t length);
void rp_memview_syscall(struct rp_memview *mv, const uint64_t *gpr, uint64_t result);
/* Whether rp_memview_syscall() knows all that the call about to be made writes. */
bool rp_memview_knows_syscall(const uint64_t *gpr);
void rp_memview_effects(struct rp_memview *mv, const struct dj_record *r);

/* From now on note in `notes` when bytes of its page are met; NULL: no more. The emulator has to be
 * exact meanwhile. */
void rp_memview_note(struct rp_memview *mv, struct rp_memview_notes *notes);

/* What a byte is to the thread: RP_BYTE_NONE, it has never met it; RP_BYTE_STALE, something else
 * wrote it since; RP_BYTE_HAS, it has *value. */
enum rp_byte { RP_BYTE_NONE, RP_BYTE_STALE, RP_BYTE_HAS };
/* The same for all of a page; false if they are all RP_BYTE_NONE. */
bool rp_memview_bytes(struct rp_memview *mv, uint64_t num, uint8_t state[4096],
		      uint8_t value[4096]);

/* Copy known memory; returns how many bytes from addr on are known. */
size_t rp_memview_read(struct rp_memview *mv, uint64_t addr, void *buf, size_t len);

/* A throw-away copy: loads must find in the shadow what rp_memview_read() would say, and
 * memory can be written. */
static inline bool rp_memview_in_copy(const struct rp_memview *mv)
{
	return mv->copy;
}
void rp_memview_fill(struct rp_memview *mv, uint64_t addr, unsigned size);
void rp_memview_write(struct rp_memview *mv, uint64_t addr, const uint8_t *bytes, size_t len);

/* Watched ranges; `kind` is REPLAY_WATCH_... A hit asks the emulator to stop. */
int rp_memview_watch_add(struct rp_memview *mv, int id, uint64_t addr, uint64_t len, unsigned kind);
void rp_memview_watch_del(struct rp_memview *mv, int id);
/* Whether all watches are write watches on pages that the log has not seen change. */
bool rp_memview_watches_quiet(struct rp_memview *mv, struct rp_undo *log);

/* ---- the fast paths ------------------------------------------------------------------ */

static inline uint64_t rp_memview_mask(uint64_t addr, unsigned size)
{
	return (size == 64 ? ~0ULL : (1ULL << size) - 1) << (addr & 63);
}

/* The page at addr, if the access stays within a line of it and it was met lately. */
static inline struct rp_memview_page *rp_memview_near(struct rp_memview *mv, uint64_t addr,
						      unsigned size)
{
	uint64_t num = addr >> 12;
	struct rp_memview_page *p = mv->tlb[num % VIEW_TLB];

	return p && p->num == num && (addr & 63) + size <= 64 ? p : NULL;
}

static inline void rp_memview_load(struct rp_memview *mv, uint64_t addr, unsigned size)
{
	struct rp_memview_page *p = rp_memview_near(mv, addr, size);

	if (p && !p->own) {
		uint64_t mask = rp_memview_mask(addr, size);
		if ((p->known[addr >> 6 & 63] & mask) == mask)
			return;
	}
	rp_memview_load_slow(mv, addr, size);
}

static inline void rp_memview_before_store(struct rp_memview *mv, uint64_t addr, unsigned size)
{
	struct rp_memview_page *p = rp_memview_near(mv, addr, size);

	if (p && p->store_epoch == mv->epoch) {
		uint64_t mask = rp_memview_mask(addr, size);
		if ((p->known[addr >> 6 & 63] & mask) == mask)
			return;
	}
	rp_memview_before_store_slow(mv, addr, size);
}

static inline void rp_memview_after_store(struct rp_memview *mv, uint64_t addr, unsigned size,
					  const uint8_t *bytes)
{
	if (__builtin_expect(mv->slow_store, 0))
		rp_memview_after_store_slow(mv, addr, size, bytes);
}

#endif
