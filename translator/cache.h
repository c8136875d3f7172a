/*
 * Between the translator's files: the cache of translated code. doc/code-cache.md is the essay;
 * this is what it speaks of.
 */
#ifndef DEJA_TRANSLATOR_CACHE_H
#define DEJA_TRANSLATOR_CACHE_H

#include "translator/cg.h"
#include "translator/translate.h"

/* ---- memory: arenas and chunks (translate-arena.c) ---- */

/* Hot chunks lie in a row at the arena's start, behind them the cold ones. */
#define CHUNKS	   1536
#define CHUNK_HOT  (64UL << 10)
#define CHUNK_COLD (104UL << 10)
#define ARENA_HOT  (CHUNKS * CHUNK_HOT)

struct tr_chunk {
	struct tr_frag **frags; /* whose hot code lies here, in address order */
	uint32_t n, cap;
	uint32_t holders; /* fragments, indirect stubs and far jumps in here */
};

struct tr_arena {
	struct tr_arena *next;
	uint8_t *ours;
	uint64_t va;
	struct cg hot, cold; /* where the current chunk goes on */
	uint32_t current;    /* chunk */
	uint32_t *free;	     /* free chunks, a stack */
	uint32_t n_free;
	struct tr_chunk chunks[CHUNKS];
};

struct tr_arena *tr_arena_at(const struct translator *tr, uint64_t va);
/* Room for so many bytes in the current chunk, after taking another one if need be. */
bool tr_arena_room(struct tr_arena *a, size_t hot, size_t cold);
/* Begin another chunk. False if the arena is full. */
bool tr_arena_next(struct tr_arena *a);
static inline bool tr_arena_overflow(const struct tr_arena *a)
{
	return a->hot.overflow || a->cold.overflow;
}
/* Something lies in the current chunk; returns its number, for tr_chunk_drop(). */
uint32_t tr_chunk_hold(struct tr_arena *a);
void tr_chunk_drop(struct tr_arena *a, uint32_t chunk);
void tr_chunk_add(struct tr_arena *a, struct tr_frag *f);
void tr_chunk_remove(struct tr_arena *a, struct tr_frag *f);
struct tr_frag *tr_chunk_find(const struct tr_arena *a, uint64_t va);
void tr_arenas_free(struct translator *tr);

/* The supervisor's and the program's address of a place in an arena. */
static inline uint8_t *tr_ours(const struct tr_arena *a, uint32_t off)
{
	return a->ours + off;
}
static inline uint64_t tr_va(const struct tr_arena *a, uint32_t off)
{
	return a->va + off;
}
bool tr_reachable(uint64_t from, uint64_t to);

/* ---- fragments ---- */

/* One program instruction in a fragment. Offsets are from the fragment's main entry. */
struct tr_finsn {
	uint32_t start;			      /* its code; the instruction boundary */
	uint32_t body;			      /* first access that can fault */
	uint32_t after_syscall;		      /* just behind the syscall instruction, or 0 */
	uint16_t pc_off;		      /* its address minus the fragment's */
	uint16_t spilled_start, spilled_body; /* registers in slots, by bit */
	uint8_t flags_start, flags_body;      /* enum tr_flags_state */
	uint8_t id_string;		      /* 1 for a string instruction (runtime routine) */
	/* of a system call: how long flags are put back, and how much lies from there to
	 * after_syscall */
	uint8_t flags_length, flags_before;
};

/* A fragment depends on the code in a page. */
struct tr_page;
struct tr_use {
	struct tr_frag *frag;
	struct tr_page *page;
	uint64_t lines; /* of 64 bytes: those that it depends on */
	struct tr_use *next, **at;
};

#define TR_NO_SLOT ~0u

struct tr_frag {
	struct tr_frag *next; /* in the hash, also if it is asleep; retired: in the queue */
	struct tr_arena *arena;
	uint64_t pc;	     /* of the program */
	uint64_t entry;	     /* main entry */
	uint64_t end;	     /* hot code is [entry, end) */
	uint64_t hw, saved;  /* stubs for indirect branches, or 0 */
	uint64_t retired;    /* in this epoch, or 0 */
	uint64_t ret_site;   /* return address of the call that ends it, or 0 */
	struct tr_use *uses; /* behind the instructions */
	uint32_t n_uses;
	uint32_t slot;		    /* in the target table, or TR_NO_SLOT */
	uint32_t stub_chunk;	    /* where hw and saved lie */
	uint32_t chunk;		    /* where the fragment lies */
	uint32_t incoming, numbers; /* first link that leads here; first number of its own */
	uint32_t live;		    /* arithmetic flags that are live at the entry */
	bool asleep;		    /* nothing leads to it, but it may still be of use */
	uint32_t n;
	struct tr_finsn insn[] __attribute__((aligned(8))); /* as `uses` behind them must be */
};
_Static_assert(sizeof(struct tr_finsn) % 8 == 0, "uses lie behind instructions");

#define TR_FRAG_SIZE(insns, uses)                                                                  \
	(sizeof(struct tr_frag) + (insns) * sizeof(struct tr_finsn) +                              \
	 (uses) * sizeof(struct tr_use))

#define FRAG_HASH  (1u << 18)
#define FRAG_MAYBE (1u << 20)

static inline unsigned tr_hash(uint64_t pc)
{
	return (unsigned)((pc * 0x9e3779b97f4a7c15ULL) >> 46);
}
static inline unsigned tr_maybe_bit(uint64_t pc)
{
	return (unsigned)((pc * 0x9e3779b97f4a7c15ULL) >> 44);
}
struct tr_frag *tr_find(const struct translator *tr, uint64_t pc);
/* One that is asleep, although it need not be any more, is awake again. */
struct tr_frag *tr_wake_at(struct translator *tr, uint64_t pc);
/* The fragment is written: it can be found, and what waited for it leads to it. */
void tr_publish(struct translator *tr, struct tr_frag *f);

/* ---- numbers and links (translate-link.c) ---- */

/* What a number means. A link is in one of two lists: of those that lead to the fragment `to`, or,
 * if that is NULL, of those that wait for a fragment (by the hash of the target). A link of a
 * fragment under construction, or of a retired one, is in none. */
struct tr_number {
	struct tr_stop stop;
	struct tr_frag *frag; /* whose it is; NULL: not given out */
	struct tr_frag *to;
	uint32_t site, stub; /* offsets in the arena: of the rel32, of the int3 */
	uint32_t far;	     /* of its far jump, or 0 */
	uint32_t far_chunk;
	uint32_t next, prev;
	uint32_t sibling; /* next number of the same fragment; next that is free */
	bool listed;
};

uint32_t tr_number_new(struct translator *tr, enum tr_stop_kind kind, uint64_t pc,
		       uint32_t sibling);
/* Give back the numbers from `first` on. */
void tr_numbers_drop(struct translator *tr, uint32_t first);
/* A fragment's links, now that it is written. */
void tr_links_begin(struct translator *tr, struct tr_frag *f);
void tr_links_end(struct translator *tr, struct tr_frag *f);
/* The links that wait for this fragment lead to it; those that lead to it wait again. */
void tr_links_join(struct translator *tr, struct tr_frag *f);
void tr_links_part(struct translator *tr, struct tr_frag *f);

/* ---- indirect targets (translate-table.c) ---- */

void tr_tables_init(struct translator *tr);
/* They are empty: of the fragments that were in there none is left. */
void tr_tables_clear(struct translator *tr);
void tr_remove_indirect(struct translator *tr, struct tr_frag *f);
/* It was in there, and is again. */
void tr_restore_indirect(struct translator *tr, struct tr_frag *f);

/* ---- what was decoded, what depends on it (translate-decode.c) ---- */

/* Pages that something was learnt from, and which lines of them. */
struct tr_look {
	struct tr_lines {
		uint64_t page, lines;
	} in[3];
	unsigned n;
};
/* Those lines of the page that [addr, addr+len) touches. */
static inline uint64_t tr_lines_of(uint64_t page, uint64_t addr, uint64_t len)
{
	uint64_t first = addr >> 12 < page ? 0 : addr >> 6 & 63;
	uint64_t last = (addr + len - 1) >> 12 > page ? 63 : (addr + len - 1) >> 6 & 63;
	return (UINT64_MAX >> (63 - (last - first))) << first;
}

/* An instruction decoded before: overlapping fragments and looking ahead for live flags meet the
 * same ones again and again. */
struct tr_decoded {
	/* what is looked at first lies in one line of the processor's cache */
	uint64_t generation; /* of the pages at that time */
	uint32_t live;	     /* tr_flags_live_at() here, depth 1 */
	bool changing;
	bool live_known;
	struct insn insn;	  /* .len 0: empty */
	uint64_t live_generation; /* what `live` depends on */
	struct tr_look look;
} __attribute__((aligned(64)));
/* What is asked for again is asked for soon: more of them would only not fit into the processor's
 * cache any more. */
#define DECODED	    (1u << 12)
#define GENERATIONS (1u << 12)

/* The instruction at pc, or NULL. Valid until the next call. */
struct tr_decoded *tr_decode(struct translator *tr, uint64_t pc);
void tr_forget_decoded(struct translator *tr, uint64_t addr, uint64_t len);
/* Of one page. */
uint64_t tr_generation(const struct translator *tr, uint64_t page);

/* ---- pages, retiring, epochs (translate-retire.c) ---- */

struct tr_page {
	uint64_t page;
	struct tr_use *uses;
	bool asleep;
};
/* The fragment depends on these f->n_uses pages. */
void tr_use_pages(struct translator *tr, struct tr_frag *f, const struct tr_lines *in);

/* ---- all of it ---- */

struct tr_build;

struct translator {
	struct tr_ops ops;
	uint8_t *tables;
	struct tr_policy policy;
	struct tr_build *build; /* the fragment being made */
	struct tr_arena *arenas;
	uint64_t no_arena; /* none can be had in this region of addresses */
	uint64_t asked;	   /* the pc for which an arena was asked for */
	bool start_over;   /* something found no room */

	struct tr_frag *hash[FRAG_HASH];
	/* A bit for what may be in there: most who ask ask for what is not. */
	uint64_t maybe[FRAG_MAYBE / 64];
	uint32_t published;	   /* since it was made anew */
	struct tr_number *numbers; /* those below STOP_TABLE are the runtime's */
	uint32_t n_numbers, cap_numbers, free_number;
	uint32_t *waiting; /* by tr_hash() of the target: first link that waits */

	struct tr_frag **target; /* who has which place of the target table */

	struct tr_decoded *decoded;		 /* by a hash of the address */
	uint64_t generation[GENERATIONS], every; /* of pages, by their low bits; of all */

	struct tr_page **pages; /* that code depends on: a set, open addressing */
	uint32_t n_pages, cap_pages;
	uint64_t epoch;
	struct tr_frag *retired, **retired_end; /* oldest first */
	struct tr_stats stats;
};

/* Our pointer to one of the tables, given its place relative to S. */
static inline void *tr_table(const struct translator *tr, int64_t off)
{
	return tr->tables + (off - T_TABLES);
}

#endif
