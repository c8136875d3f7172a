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
/* These fragments lie in the chunk, of which nobody else has been told. When all chunks have been
 * filled that are, the rest of the arena is free; the last one is. */
void tr_chunk_settle(struct tr_arena *a, uint32_t chunk, struct tr_frag **frags, uint32_t n);
void tr_arena_settle(struct tr_arena *a);

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

/* What is in slots before a fragment's first instruction, while the code is compared: rax, rcx, and
 * r11. */
#define CHECKS_SPILL (3 | TR_HOME_BIT)

/* One program instruction in a fragment. Offsets are from the fragment's main entry, and no chunk
 * is longer than they can say. There are many of these. */
struct tr_finsn {
	uint16_t start;			      /* its code; the instruction boundary */
	uint16_t body;			      /* first access that can fault */
	uint16_t after_syscall;		      /* just behind the syscall instruction, or 0 */
	uint16_t spilled_start, spilled_body; /* registers in slots, by bit */
	/* of a system call: how long flags are put back, and how much lies from there to
	 * after_syscall */
	uint8_t flags_length, flags_before;
	uint32_t pc_off : 11;	  /* its address minus the fragment's */
	uint32_t lag : 13;	  /* steps there that are not in T_STEPS */
	uint32_t flags_start : 2; /* enum tr_flags_state */
	uint32_t flags_body : 2;
	uint32_t id_string : 1;	 /* a string instruction (runtime routine) */
	uint32_t flags_lost : 1; /* at its start they may not be the program's: it is about to
				    overwrite them */
} __attribute__((aligned(8)));

/* A fragment depends on the code in a page. */
struct tr_page;
struct tr_use {
	struct tr_frag *frag;
	struct tr_page *page;
	uint64_t lines; /* of 64 bytes: those that it depends on */
	struct tr_use *next, **at;
};

#define TR_NO_SLOT  ~0u
#define TR_NO_CHUNK ~0u

struct tr_frag {
	struct tr_frag *next; /* in the hash, also if it is asleep; retired: in the queue */
	struct tr_block *block;
	struct tr_arena *arena;
	uint64_t pc;	     /* of the program */
	uint64_t entry;	     /* main entry */
	uint64_t end;	     /* hot code is [entry, end) */
	uint64_t stub;	     /* for indirect branches, or 0 */
	uint64_t retired;    /* in this epoch, or 0 */
	uint64_t ret_site;   /* return address of the call that ends it, or 0 */
	struct tr_use *uses; /* behind the instructions */
	uint32_t n_uses;
	uint32_t slot;		     /* in the target table, or TR_NO_SLOT */
	uint32_t stub_chunk;	     /* where the stub lies, unless that is before the entry: */
	struct tr_arena *stub_arena; /* its arena, which may be another one */
	uint32_t chunk;		     /* where the fragment lies */
	uint32_t incoming, numbers;  /* first link that leads here; first number of its own */
	uint32_t live;		     /* arithmetic flags that are live at the entry */
	uint32_t lag;		     /* of the entry: steps that are not in T_STEPS */
	bool asleep;		     /* nothing leads to it, but it may still be of use */
	bool parked;   /* its module is not there yet (translate-heir.c), and nobody finds it */
	bool checks;   /* code or the number of facts, before it is executed */
	bool indirect; /* the tables lead to it, or will when it is awake */
	uint32_t n;
	struct tr_finsn *insn; /* behind this; or what was kept has them (tr_frag_of_kept) */
};
_Static_assert(sizeof(struct tr_finsn) % 8 == 0, "uses lie behind instructions");

#define TR_FRAG_SIZE(insns, uses)                                                                  \
	(sizeof(struct tr_frag) + (insns) * sizeof(struct tr_finsn) +                              \
	 (uses) * sizeof(struct tr_use))

/* Memory for one, of which only `block`, `n`, `insn`, `n_uses` and `uses` are set
 * (translate-block.c). */
struct tr_frag *tr_frag_new(struct translator *tr, uint32_t insns, uint32_t uses);
void tr_frag_free(struct translator *tr, struct tr_frag *f);
/* Where there are many of them: a large page, which blocks are cut from. */
struct tr_slab {
	struct tr_slab *next;
};
/* That of all there are. */
void tr_blocks_free(struct translator *tr);

#define FRAG_MAYBE (1u << 20)

/* Which of the lists of tr->hash and tr->waiting. What lies together in the program lies together
 * in the tables, so that a small one touches few of their pages. */
static inline unsigned tr_hash(const struct translator *tr, uint64_t pc);
static inline unsigned tr_maybe_bit(uint64_t pc)
{
	return (unsigned)((pc * 0x9e3779b97f4a7c15ULL) >> 44);
}
struct tr_frag *tr_find(const struct translator *tr, uint64_t pc);
/* One that is asleep, although it need not be any more, is awake again. */
struct tr_frag *tr_wake_at(struct translator *tr, uint64_t pc);
/* Whether one was kept for code such as is at pc (translate-keep.c). */
bool tr_is_kept(struct translator *tr, uint64_t pc);
/* The fragment is written: it can be found, and what waited for it leads to it. */
void tr_publish(struct translator *tr, struct tr_frag *f);
/* The first half of that: without any links. */
void tr_enter(struct translator *tr, struct tr_frag *f);
/* And of that: it can be found by its address in the program. */
void tr_enter_hash(struct translator *tr, struct tr_frag *f);
void tr_leave_hash(struct translator *tr, struct tr_frag *f);
/* Tables for so many fragments; they grow by themselves, too. */
void tr_index_room(struct translator *tr, uint32_t n);
void tr_index_free(struct translator *tr);

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
	uint32_t sibling; /* next number of the same fragment */
	bool listed;
	bool free; /* translate-link.c has its own use for it */
};

uint32_t tr_number_new(struct translator *tr, enum tr_stop_kind kind, uint64_t pc,
		       uint32_t sibling);
void tr_numbers_free(struct translator *tr); /* all there are */
/* So many will be added soon. */
void tr_numbers_room(struct translator *tr, uint32_t n);
/* So many in a row, to be filled in. */
uint32_t tr_numbers_row(struct translator *tr, uint32_t n);
/* So many that nobody has, of those that there are. */
void tr_numbers_free_row(struct translator *tr, uint32_t first, uint32_t n);
/* Give back the numbers from `first` on. */
void tr_numbers_drop(struct translator *tr, uint32_t first);
/* The lag of the entry at pc: whoever leads or led there and is remembered agrees about it, the
 * numbers from `own` on (of a fragment under construction) too. `or` if that is nobody. */
uint32_t tr_lag_at(const struct translator *tr, uint64_t pc, uint32_t own, uint32_t or);
/* Of one that was kept for code such as is at pc; `or` if there is none. */
uint32_t tr_lag_kept(const struct translator *tr, uint64_t pc, uint32_t or);
/* Whether a fragment that was asleep still agrees with the others. */
bool tr_lags_agree(const struct translator *tr, const struct tr_frag *f);
/* A fragment's links, now that it is written. */
void tr_links_begin(struct translator *tr, struct tr_frag *f);
void tr_links_end(struct translator *tr, struct tr_frag *f);
/* One of them, of a fragment that is written. */
void tr_link_out(struct translator *tr, uint32_t number);
/* The same of one of which the code says so already: it leads there, or waits if that is NULL. */
void tr_link_known(struct translator *tr, uint32_t number, struct tr_frag *to);
/* The links that wait for this fragment lead to it; those that lead to it wait again. */
void tr_links_join(struct translator *tr, struct tr_frag *f);
void tr_links_part(struct translator *tr, struct tr_frag *f);

/* ---- indirect targets (translate-table.c) ---- */

void tr_tables_init(struct translator *tr);
/* There is another arena. */
void tr_tables_arena(struct translator *tr);
/* So many are going to have places, in tables that are empty. */
void tr_tables_room(struct translator *tr, uint32_t n);
/* They are empty: of the fragments that were in there none is left. */
void tr_tables_clear(struct translator *tr);
/* They are other ones, and zero: who had a place has it again, but for those that are parked. */
void tr_tables_again(struct translator *tr);
void tr_remove_indirect(struct translator *tr, struct tr_frag *f);
/* Its place in the fast table alone. A thread that was just putting it there when it was removed
 * has done so by the time it is given up. */
void tr_leave_fast(struct translator *tr, const struct tr_frag *f);
/* From an indirect branch to what follows, the entry of f, if that is the target. Returns where it
 * begins. */
uint64_t tr_emit_indirect(struct cg *c, const struct tr_arena *a, const struct tr_frag *f);
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
	bool parked;   /* and so are all its fragments */
	uint32_t unit; /* translate-heir.c has its own use for it */
	uint64_t sum;  /* of its bytes, for whoever asks for it; 0 since they changed */
};
struct tr_page *tr_page_of(struct translator *tr, uint64_t page);
/* The i-th page that the fragment depends on. */
void tr_use_page(struct tr_frag *f, unsigned i, struct tr_page *p, uint64_t lines);
/* The fragment leaves, and nothing leads to it any more; tr_reclaim() gives it up. */
void tr_retire(struct translator *tr, struct tr_frag *f);
/* What was parked there is of no use: there is something else now. */
void tr_page_taken(struct translator *tr, struct tr_page *p);
/* The fragment depends on these f->n_uses pages. */
void tr_use_pages(struct translator *tr, struct tr_frag *f, const struct tr_lines *in);

/* ---- all of it ---- */

struct tr_build;
struct tr_estate;
struct ahead;
struct tying;

struct translator {
	struct tr_ops ops;
	uint8_t *tables;
	struct tr_policy policy;
	struct tr_build *build; /* the fragment being made */
	bool expect_indirect;	/* the next one will be a target of indirect branches */
	struct tr_arena *arenas;
	uint64_t no_arena; /* none can be had in this region of addresses */
	uint64_t asked;	   /* the pc for which an arena was asked for */
	bool start_over;   /* something found no room */
	bool some_go;	   /* when the image ends: that were asleep, or checked */
	unsigned sparing; /* so many fragments ahead, and not more if they were kept; 0: as usual */

	struct tr_frag **hash; /* lists of fragments, 1 << hash_bits of them */
	uint32_t *waiting;     /* by tr_hash() of the target: first link that waits */
	unsigned hash_bits;
	uint32_t n_hashed; /* fragments in there */
	/* A bit for what may be in there: most who ask ask for what is not. */
	uint64_t maybe[FRAG_MAYBE / 64];
	uint32_t published;	   /* since it was made anew */
	struct tr_number *numbers; /* those below STOP_TABLE are the runtime's */
	uint32_t n_numbers, cap_numbers, free_run;

	struct tr_frag **target;      /* who has which place of the target table */
	uint32_t target_bits, n_keys; /* 1 << target_bits places, of which so many have a key */

	struct tr_decoded decoded[DECODED]; /* by a hash of the address */
	/* the latest answer of tr_is_kept() */
	struct {
		uint64_t pc;
		struct tr_kept_frag *frag;
	} asked_kept;
	uint64_t generation[GENERATIONS], every; /* of pages, by their low bits; of all */

	struct tr_page **pages; /* that code depends on: a set, open addressing */
	uint32_t n_pages, cap_pages;
	uint64_t epoch;
	struct tr_frag *retired, **retired_end; /* oldest first */
	struct tr_block *blocks, *spare_blocks;
	struct tr_slab *slabs;
	uint32_t n_blocks;
	bool only_kept;	     /* the program runs: nothing else is made */
	bool only_known;     /* the program runs: nor of code that nobody has told the trace of */
	struct tying *tying; /* a bale (translate-bale.c), or NULL */
	struct ahead *ahead; /* what comes after what the program asked for (translate.c) */
	bool bales;	     /* what was kept is taken over in bales, */
	uint64_t refused[4096 / 64]; /* but for these (translate-bale.c) */
	struct tr_stats stats;
	struct tr_estate *estate; /* that it was read from, or NULL */
};

/* What comes after what some program asked for is not made. */
void tr_forget_ahead(struct translator *tr);

/* Memory for large tables: zero, and only what is touched of it is taken. */
void *tr_sparse(size_t size);
/* The same, for what is going to be filled: in pages of 2 MB where the kernel has some, as a fault
 * for each 4 KB costs more than what is done with them. `size` is a multiple of a page. */
#define TR_HUGE ((size_t)2 << 20)
void *tr_huge(size_t size);
void tr_sparse_free(void *p, size_t size); /* either */
/* Like tr_huge(), for what may have anything in it at first. What is freed may be used again, by
 * any thread; there is a limit to what is kept for that. */
void *tr_used(size_t size);
void tr_used_free(void *p, size_t size);
bool tr_used_is_there(size_t size); /* some that is used again */
size_t tr_size(void);		    /* of a translator */

/* ---- memory made ready beforehand (translate-warm.c) ---- */

/* Some that will be read soon; some for tr_used(). */
void tr_warm_read(void *at, size_t size);
void tr_warm_used(size_t size);
/* As from tr_huge(), for a translator; NULL: there is none. */
void *tr_warm_zero(size_t size);

static inline unsigned tr_hash(const struct translator *tr, uint64_t pc)
{
	return (unsigned)((pc >> 4) + (pc >> 22) * 0x9e3779b1u) & ((1u << tr->hash_bits) - 1);
}

/* Our pointer to one of the tables, given its place relative to S. */
static inline void *tr_table(const struct translator *tr, int64_t off)
{
	return tr->tables + (off - T_TABLES);
}

#endif
