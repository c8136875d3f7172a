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
 * it. A byte is told if the recorder says what it was although the thread has not looked
 * (SYSDATA records): that is for people to look at, where nothing better is known, until something
 * changes the byte. For what is neither known nor stale nor told the mappings speak
 * (rp_space_contents).
 *
 * Every page is noted before it changes (memview-state.c). Watched ranges are looked at here as
 * well, since all accesses come by.
 */
#ifndef DEJA_REPLAYER_MEMVIEW_H
#define DEJA_REPLAYER_MEMVIEW_H

#include "format/record.h"
#include "replayer/lines.h"
#include "replayer/lookahead.h"
#include "replayer/thread.h"
#include "replayer/trail.h"
#include "replayer/versions.h"

struct rp_memview;

struct rp_told_bytes {
	uint64_t bits[RP_WORDS]; /* of the page, which were told */
	uint8_t data[RP_PAGE];
	/* which of them at this very position */
	uint64_t steps;
	uint32_t signals;
	uint64_t now[RP_WORDS];
};

struct rp_memview_page {
	uint64_t num; /* address / 4096 */
	struct rp_memview_page *hash_next;
	uint32_t epoch;	      /* == memview's: noted */
	uint32_t store_epoch; /* the same, its shadow page too, and it has no own data */
	uint32_t line_epoch;  /* == memview's: these are good: */
	/* words of 8 bytes met since then, by line, as they are in the log of lines */
	uint8_t wrote[64], read[64];
	uint8_t *own;
	uint64_t *stale;
	struct rp_told_bytes *told;
	uint64_t known[RP_WORDS];
};

/* Watched bytes that a store or an import has put in memory; or that the kernel wrote, where
 * `bytes` tells what (TOLD) or nobody knows (LOST). */
struct rp_memview_touch {
	enum { TOUCH_STORE, TOUCH_IMPORT, TOUCH_TOLD, TOUCH_LOST } how;
	int id; /* of the watch */
	unsigned n;
	uint64_t addr;
	uint8_t bytes[64];
	/* What the thread had there before (by itself or by what is mapped), a bit per byte; and
	 * which of the bytes are others than the last it has seen there, whatever happened since.
	 */
	uint64_t had, news;
	uint8_t was[64];
};

/* What one instruction did of which it is still to be found out whether it was a change. */
#define RP_TOUCHES 4u
struct rp_memview_touches {
	unsigned n;
	struct rp_memview_touch list[RP_TOUCHES];
};

/* What the last watched access was. */
struct rp_memview_hit {
	bool hit, in_rep; /* in_rep: by some iteration of a REP instruction */
	int id;
	uint64_t addr;
	struct rp_thread_pos before; /* where the instruction (or iteration) began */
	/* mv->changed was asked about these, and nothing else was a hit; else n is 0 */
	struct rp_memview_touches unsure;
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

/* The version that a page of the view had at the checkpoint from which the thread has come. */
struct rp_view_base {
	uint64_t num;
	bool used;
	uint32_t epoch; /* == memview's: noted */
	void *version;
};

#define SHADOW_PAGES (1u << 20)
#define VIEW_TLB     256u
#define BASED_PAGES  512u

struct rp_memview {
	struct rp_thread *th;
	uint32_t epoch;	     /* changes whenever nothing is noted any more */
	uint32_t line_epoch; /* changes whenever nothing is in the log of lines any more */
	uint64_t *noted;     /* keys (versions.h) of pages that may have changed since the last
				checkpoint */
	size_t nnoted, noted_cap;
	struct rp_bytes **shadow_base; /* by shadow page, its version there */
	struct rp_view_base *bases;    /* a hash by page, that of the view */
	size_t nbases, bases_size;
	/* whether there is something in shadow_base, a bit for each BASED_PAGES of it */
	uint64_t shadow_based[SHADOW_PAGES / BASED_PAGES / 64];
	bool lost;		  /* without memory: only the beginning is the way back */
	size_t ntold;		  /* pages with told bytes */
	struct rp_line_log lines; /* met since the last checkpoint */
	bool all_own, copy, slow_store;
	bool in_step;	     /* what changes, changes in the step under way */
	uint64_t stale_left; /* bytes that the system call or instruction at hand may make stale */
	struct rp_memview_page spare; /* what any page is without memory: see rp_page_no_memory() */
	struct rp_memview_page *tlb[VIEW_TLB];
	struct rp_memview_page **hash;
	size_t hash_size, npages;
	uint32_t *shadow_epoch;		/* by shadow page: epoch of the last note; 0: never */
	struct rp_memview_page **owner; /* by shadow page */
	struct rp_memview_watch *watches;
	size_t nwatches, watches_cap;
	/* If not NULL: asked whether these are other bytes than before, instead of comparing with
	 * what this thread knew. */
	bool (*changed)(void *ctx, const struct rp_memview_touch *touch);
	void *changed_ctx;
	struct rp_lookahead *look; /* learning what the thread finds, else NULL */
	struct rp_trail *trail;	   /* generated code has left something, perhaps; else NULL */
	bool watching;		   /* report hits */
	struct rp_memview_notes *notes;
	struct rp_memview_hit hit;
	/* the bytes a watched store or import is about to change */
	uint8_t old[1024], old_state[1024];
	unsigned old_size;
};

struct rp_memview *rp_memview_new(struct rp_thread *th);
void rp_memview_free(struct rp_memview *mv);
/* Know nothing, as at the beginning. */
void rp_memview_reset(struct rp_memview *mv);

/*
 * Checkpoints (checkpoint.c). The thread has come from one, or from the beginning, which is its
 * base.
 */
/* What has changed since then: here is the new base. False without memory, and nothing is done. */
bool rp_memview_take(struct rp_memview *mv, struct rp_changes *out, struct rp_lines *lines);
/* The lines alone, since they were taken last. */
bool rp_memview_lines(struct rp_memview *mv, struct rp_lines *lines);
/* The thread has come past another checkpoint since, which these changes lead to: that is the base.
 */
void rp_memview_pass(struct rp_memview *mv, const struct rp_changes *c);
/* It stands at its base. */
void rp_memview_arrive(struct rp_memview *mv);
/* Going to another checkpoint: over all changes between, one after the other, and then there. */
void rp_memview_over(struct rp_memview *mv, const struct rp_changes *c, bool forward);
void rp_memview_put(struct rp_memview *mv);

/* Something is about to happen to these bytes: what generated code has noted of them comes first.
 */
static inline void rp_memview_settle(struct rp_memview *mv, uint64_t addr, uint64_t length)
{
	if (mv->trail)
		rp_trail_range(mv, addr, length);
}

/* The version that a page (versions.h) has at the base. */
void *rp_memview_base(struct rp_memview *mv, uint64_t key);
/* All of them. */
void rp_memview_bases(const struct rp_memview *mv,
		      void (*each)(void *ctx, uint64_t key, void *version), void *ctx);

/* What the emulator does. */
void rp_memview_import(struct rp_memview *mv, uint64_t addr, const uint8_t *line);
void rp_memview_load_slow(struct rp_memview *mv, uint64_t addr, unsigned size);
void rp_memview_before_store_slow(struct rp_memview *mv, uint64_t addr, unsigned size);
void rp_memview_after_store_slow(struct rp_memview *mv, uint64_t addr, unsigned size,
				 const uint8_t *bytes);
/* Instructions that begin in [lo, hi) were executed, perhaps, or come to. */
void rp_memview_ran(struct rp_memview *mv, uint64_t lo, uint64_t hi);
/* What others do: mappings came or went, exec, a system call, an EFFECTS record (both before
 * the registers change). */
void rp_memview_forget(struct rp_memview *mv, uint64_t addr, uint64_t length);
void rp_memview_forget_all(struct rp_memview *mv);
/* The shadow becomes empty (a keyframe); what is known stays known. */
void rp_memview_empty(struct rp_memview *mv);
void rp_memview_stale(struct rp_memview *mv, uint64_t addr, uint64_t length);
/* The kernel wrote these bytes (a signal's frame); the shadow does not have them. */
void rp_memview_learn(struct rp_memview *mv, uint64_t addr, const uint8_t *bytes, uint64_t length);
/* The recorder found these bytes here; so far as the thread knows better they are nothing new. */
void rp_memview_tell(struct rp_memview *mv, uint64_t addr, const uint8_t *bytes, uint64_t length);
/* The same for what is stale and was not told just now: it is as the shadow has it. */
void rp_memview_tell_same(struct rp_memview *mv, uint64_t addr, uint64_t length);
/* What was known at `from` is known at `to` (mremap), before `from` is unmapped. */
void rp_memview_move(struct rp_memview *mv, uint64_t from, uint64_t to, uint64_t length);
void rp_memview_syscall(struct rp_memview *mv, const uint64_t *gpr, uint64_t result);
/* Whether rp_memview_syscall() knows all that the call about to be made writes. */
bool rp_memview_knows_syscall(const uint64_t *gpr);
/* The instruction at hand, which is not complete yet, writes there what nobody knows. */
void rp_memview_unseen(struct rp_memview *mv, uint64_t addr, unsigned size);

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
/* Whether nothing watched was met; NULL: since the last checkpoint. */
bool rp_memview_watches_quiet(const struct rp_memview *mv, const struct rp_lines *lines);

/* ---- the fast paths ------------------------------------------------------------------ */

static inline uint64_t rp_memview_mask(uint64_t addr, unsigned size)
{
	return (size == 64 ? ~0ULL : (1ULL << size) - 1) << (addr & 63);
}

/* The words of 8 bytes in its line that an access touches, if it stays within that. */
static inline uint8_t rp_memview_words(uint64_t addr, unsigned size)
{
	unsigned first = addr >> 3 & 7, n = ((addr & 7) + size + 7) >> 3;

	return (uint8_t)(n < 8 ? ((1u << n) - 1) << first : 0xffu << first);
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
	uint8_t words = rp_memview_words(addr, size);

	if (p && !p->own && p->line_epoch == mv->line_epoch &&
	    !(words & ~p->read[addr >> 6 & 63])) {
		uint64_t mask = rp_memview_mask(addr, size);
		if ((p->known[addr >> 6 & 63] & mask) == mask)
			return;
	}
	rp_memview_load_slow(mv, addr, size);
}

static inline void rp_memview_before_store(struct rp_memview *mv, uint64_t addr, unsigned size)
{
	struct rp_memview_page *p = rp_memview_near(mv, addr, size);
	uint8_t words = rp_memview_words(addr, size);

	if (p && p->store_epoch == mv->epoch && p->line_epoch == mv->line_epoch &&
	    !(words & ~p->wrote[addr >> 6 & 63])) {
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
