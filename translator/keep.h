/*
 * Between translate-keep.c and translate-keep-file.c: what a kept translation consists of.
 */
#ifndef DEJA_TRANSLATOR_KEEP_H
#define DEJA_TRANSLATOR_KEEP_H

#include "translator/build.h"

#include <stddef.h>

/* What is set anew: `to` is relative to what the kind says. */
enum fix_kind {
	FIX_HOT,
	FIX_COLD,
	FIX_RUNTIME,
	FIX_CODE,
	FIX_LOW,
	FIX_WHOLE,
	FIX_NUMBER,
	FIX_FACTS
};

struct fix {
	int32_t to;	  /* FIX_NUMBER: which */
	uint32_t at : 24; /* offset in the hot code and the cold code behind it */
	uint32_t kind : 8;
};

struct kept_number {
	int32_t pc; /* minus the fragment's */
	uint32_t stub : 24;
	uint32_t kind : 8;
	uint16_t site, lag; /* of a link: site and stub are offsets in hot and cold code */
};

/* Of one place there may be several. In an offset, which is below 2^48 by itself: */
#define KEPT_FAULT_FLAGS (1ULL << 62) /* it keeps flags for handlers of faults */
#define KEPT_ASKS	 (1ULL << 61) /* it asks for a number of facts, which is set anew */

struct tr_kept_frag {
	uint64_t sum;	  /* in a file: of everything behind it */
	uint64_t pc;	  /* where it was made */
	uint64_t offset;  /* in the module, with KEPT_... */
	uint64_t code;	  /* checksum of the lines of code that it depends on */
	int32_t ret_site; /* minus pc, or 0 */
	uint32_t cold;	  /* bytes */
	uint16_t hot;	  /* bytes */
	uint16_t entry;	  /* offset in hot code; before it the stub for indirect branches */
	uint16_t live, lag;
	uint16_t n, n_uses, n_numbers, n_fixes;
	uint16_t len;	 /* of the program's code */
	uint8_t align;	 /* of the hot code, modulo 8 */
	uint8_t checks;	 /* code or the number of facts, before it is executed; or 0 */
	uint32_t bale;	 /* see tr_kept_bale(); in a file: its number there */
	uint64_t data[]; /* uses, fixes, numbers, instructions, hot code, cold code */
};

/* A file that cannot be mapped is copied into memory as it is needed. */
#define KEPT_BLOCK (32u << 10)

/* Where an entry is in the file, found by its offset in the module. */
struct kept_index {
	uint32_t offset; /* its low half */
	uint32_t at;	 /* in units of 16 bytes; 0: none */
};

struct kept_file {
	int fd;		/* -1: all of it is there */
	bool leased;	/* it is mapped; else copied */
	uint8_t *bytes; /* as many as the file has, zero where nothing has been copied yet */
	size_t size;
	bool *copied;	 /* blocks */
	uint8_t *state;	 /* of what begins at each 16 bytes: enum, in translate-keep-file.c */
	uint32_t places; /* of the index, a power of two; 0: there is no file */
	uint32_t n;	 /* entries, as it says */
	uint32_t *bale;	 /* of each, by its number: tr_kept_bale() */
};

struct tr_kept {
	/* `size` places, open addressing */
	struct kept_place {
		uint64_t offset;
		struct tr_kept_frag *frag;
	} * hash;
	struct tr_kept_frag **made; /* the same, as they came */
	uint32_t size, n;
	struct kept_block {
		struct kept_block *older, *newer;
	} * block;	/* memory for more of them; the newest block */
	uint8_t *at;	/* and the place in it that is free */
	uint64_t *room; /* bytes that may be kept in all */
	struct tr_bale **bale;
	uint32_t n_bales, free_bale; /* a free place in the list, plus 1; or 0 */
	uint64_t bales_made;
	struct kept_file file;
};

struct parts {
	struct tr_lines *uses;
	struct fix *fixes;
	struct kept_number *numbers;
	struct tr_finsn *insn;
	uint8_t *code;
	size_t size;
};

static inline struct parts parts_of(struct tr_kept_frag *k)
{
	struct parts p;
	p.uses = (struct tr_lines *)(void *)k->data;
	p.insn = (struct tr_finsn *)(void *)(p.uses + k->n_uses);
	p.fixes = (struct fix *)(void *)(p.insn + k->n);
	p.numbers = (struct kept_number *)(void *)(p.fixes + k->n_fixes);
	p.code = (uint8_t *)(p.numbers + k->n_numbers);
	p.size = (size_t)(p.code + k->hot + k->cold - (uint8_t *)k);
	p.size = (p.size + 15) & ~(size_t)15;
	return p;
}

/* Where to look first. What lies together in the program lies together here, too. */
static inline uint32_t tr_kept_place(uint64_t offset)
{
	return (uint32_t)(offset >> 2) + (uint32_t)(offset >> 12) * 0x9e3779b1u;
}

/* Whether it can be made again at `pc`. How long code is may depend on the size of an address, so
 * what was made below HIGH is good for that address only. */
#define HIGH (1ULL << 33)

static inline bool tr_kept_usable(const struct tr_kept_frag *k, uint64_t offset, uint64_t pc)
{
	return k->offset == offset && (k->pc == pc || (k->pc >= HIGH && pc >= HIGH));
}

static inline bool tr_kept_is_in_file(const struct tr_kept *kept, const struct tr_kept_frag *k)
{
	return (uintptr_t)k - (uintptr_t)kept->file.bytes < kept->file.size;
}

static inline bool tr_kept_asks(const struct tr_kept_frag *k)
{
	return k->offset & KEPT_ASKS;
}

/* Which bale it is in, plus 1 (translate-bale.c), or 0. What a file has stays as it is. */
static inline uint32_t *tr_kept_bale(struct tr_kept *kept, struct tr_kept_frag *k)
{
	return tr_kept_is_in_file(kept, k) ? &kept->file.bale[k->bale] : &k->bale;
}

/* One that this recording has made, or NULL: it comes before what a file has. */
struct tr_kept_frag *tr_kept_in_memory(const struct tr_kept *kept, uint64_t offset, uint64_t pc);
/* One that a file has, or NULL. */
struct tr_kept_frag *tr_kept_in_file(struct tr_kept *kept, uint64_t offset, uint64_t pc);
void tr_kept_close(struct kept_file *file);
/* The one behind it in the file, if it is sound. */
struct tr_kept_frag *tr_kept_next_in_file(struct tr_kept *kept, const struct tr_kept_frag *k);

/* ---- translate-keep.c, for bales ---- */

/* Where translations of the code at pc are kept. */
struct tr_kept *tr_kept_at(const struct translator *tr, uint64_t pc, uint64_t *base);
/* Either kind, that which asks for facts only if there is none that does not. */
struct tr_kept_frag *tr_kept_find(const struct translator *tr, uint64_t pc);
/* The one that was made after it. */
struct tr_kept_frag *tr_kept_next(struct tr_kept *kept, struct tr_kept_frag *k);
/* Whether all pages that it depends on are there as they were. */
bool tr_kept_same(const struct translator *tr, const struct tr_kept_frag *k, uint64_t pc);
/* Whether the trace knows the code there, is told of it now, or need not know; while the program
 * runs it cannot be told. `*facts`: the number that a thread's T_FACTS must have come to, or 0. */
bool tr_kept_told(const struct translator *tr, uint64_t pc, size_t len, uint64_t *facts);
/* A checksum of the code in these lines of pages, the pages being relative to that of pc. */
uint64_t tr_kept_code(const struct translator *tr, const struct tr_lines *uses, unsigned n,
		      uint64_t pc);
/* A fragment at pc, but for its numbers and uses; its hot code begins at `hot`. What is known of
 * its instructions stays with what was kept, which so has to live as long as the translator. */
struct tr_frag *tr_frag_of_kept(struct translator *tr, struct tr_kept_frag *k, uint64_t pc,
				struct tr_arena *a, uint64_t hot);

/* ---- translate-bale.c ---- */

/* The fragment at pc, with others, of what was kept. NULL: it has to be made by itself. */
struct tr_frag *tr_bale_put(struct translator *tr, struct tr_arena *a, struct tr_kept_frag *k,
			    uint64_t pc);
void tr_bales_free(struct tr_kept *kept);

/* So that a test can forge one. */
uint64_t tr_kept_sum(const struct tr_kept_frag *k, size_t size);

#endif
