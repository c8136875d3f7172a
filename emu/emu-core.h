/*
 * Inside the emulator's core: blocks of bound instructions and what the run loop
 * (emu.c), the block cache (emu-block.c) and the string handlers (emu-string.c) share.
 *
 * A block is a run of instructions that ends at a control transfer, before an instruction
 * that cannot be executed or fetched, or at BLOCK_MAX. Blocks live in arenas and are
 * freed all at once; forgetting code takes a block out of the tables and gives it the
 * address BLOCK_DEAD, so that links other blocks have to it no longer match.
 */
#ifndef DEJA_EMU_EMU_CORE_H
#define DEJA_EMU_EMU_CORE_H

#include "emu/emu.h"

#define BLOCK_MAX  64			 /* as many as `stops` has bits */
#define BLOCK_DEAD 0x8000dead8000deadULL /* not canonical: no program can be there */

struct emu_block {
	uint64_t rip;
	uint64_t end;		   /* address after the last instruction */
	struct emu_block *link[2]; /* blocks that followed this one lately, or NULL */
	uint64_t took[2];	   /* how often, if that is counted: ran whole, then went there */
	uint64_t went[2];	   /* their addresses */
	uint64_t gone;		   /* ran whole, and what came next has been told */
	uint64_t *more;		   /* executions of each instruction when it did not run whole */
	struct emu_block *hash_next;
	struct emu_block *page_next;
	uint16_t n;
	uint16_t fences;      /* EMU_UOP_FENCE instructions in it */
	uint8_t next_link;    /* the link to overwrite next */
	bool branches;	      /* the last instruction sets rip */
	uint32_t stops_asked; /* the stop_generation in which ... */
	uint64_t stops;	      /* ... stop_at() might say yes at these instructions, as bits */
	uint32_t marked;      /* emu->mark when it last ran */
	struct emu_uop *uops;
};

#define JUMP_CACHE_BITS 12
#define PAGE_HASH_BITS	12

struct emu_core {
	const struct emu_uop *cur; /* the instruction being executed */
	/* where the next instruction was last seen; block NULL if not known */
	struct emu_block *at;
	unsigned at_index;
	/* the stretch being run: its block, its first instruction, and whether all is kept exact
	 * meanwhile */
	struct emu_block *running;
	unsigned from;
	bool careful;

	/* REP string instructions: how many iterations the handler may do, and its answers */
	uint64_t rep_limit;
	uint64_t rep_done;
	bool rep_more;

	enum emu_stop why; /* what emu_raise() brings */
	bool inside;	   /* in a handler: `cur` is being executed */

	struct emu_block *jump_cache[1 << JUMP_CACHE_BITS];
	struct emu_block *pages[1 << PAGE_HASH_BITS];
	struct emu_block **hash;
	size_t hash_size, nblocks; /* a power of two; how many live */
	struct emu_arena *arenas;
	size_t arena_bytes, dead_bytes;
};

static inline struct emu_core *emu_core(struct emu *e)
{
	return e->blocks;
}

/* An instruction that somebody wants to hear of, instead of the handler's own uop->insn. */
struct emu_seen {
	struct insn insn;
	emu_fn *fn;	/* the instruction's handler */
	unsigned index; /* in its block */
	unsigned wants; /* EMU_WANT_... */
};

/* ---- emu-watch.c -------------------------------------------------------------------------- */

/* The handler of an instruction that is wanted: uop->insn is part of a struct emu_seen. */
void emu_seen(struct emu *e, const struct emu_uop *u);
/* The instructions [from, to) of a block have been executed, and if `to` is its end rip says
 * where it led. */
void emu_count_part(struct emu *e, struct emu_block *b, unsigned from, unsigned to);
/* Tell what was counted of a link, which is about to lead elsewhere; of a block; of all. */
void emu_count_link(struct emu *e, struct emu_block *b, unsigned link);
void emu_count_block(struct emu *e, struct emu_block *b);

static inline bool emu_counting(const struct emu *e)
{
	return e->observer.counts != NULL;
}

/* emu-shadow.c: map a shadow, all zeros: NULL with errno if it cannot be had. */
uint8_t *emu_shadow_new(void);
void emu_shadow_free(uint8_t *shadow);

struct emu_core *emu_core_new(void);
void emu_core_free(struct emu_core *c);

/* The block that starts at `rip`, made if need be. NULL if not even one instruction can be
 * executed there: *why and e->why then tell the reason. */
struct emu_block *emu_block_at(struct emu *e, uint64_t rip, enum emu_stop *why);
/* Whether so much code, or dead code, has gathered that it is better to start afresh. */
bool emu_blocks_full(const struct emu_core *c);
/* Drop every block. Not while one is running. */
void emu_blocks_flush(struct emu *e);
/* Memory that lives as long as the blocks. */
void *emu_blocks_alloc(struct emu_core *c, size_t n);

/* From the handler of a REP instruction that has done core->rep_done iterations and has more to do:
 * leave it between two of them. */
_Noreturn void emu_yield(struct emu *e);

/* Bind a decoded instruction; false if no handler knows it. u->insn is set to `in`. */
bool emu_bind(const struct insn *in, struct emu_uop *u);

#endif
