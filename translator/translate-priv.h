/* Between the translator's files. PURPOSE: the state of one fragment under construction. */
#ifndef DEJA_TRANSLATOR_TRANSLATE_PRIV_H
#define DEJA_TRANSLATOR_TRANSLATE_PRIV_H

#include "translator/translate.h"

#define FRAG_MAX  64
#define JOIN	  6	       /* a fragment this long ends where another one begins */
#define ARENA_HOT (96UL << 20) /* of an arena; cold code takes half as much again as hot */

struct tr_arena {
	struct tr_arena *next;
	uint8_t *ours;
	uint64_t va;
	struct cg hot, cold;
	struct tr_frag **frags; /* in address order */
	size_t n_frags, cap_frags;
};

#define FRAG_HASH (1u << 18)

/* An instruction decoded before: overlapping fragments and looking ahead for live flags meet the
 * same ones again and again. */
struct tr_decoded {
	struct insn insn; /* .len 0: empty */
	bool changing;
	bool live_known;
	uint32_t generation;
	uint32_t live; /* tr_flags_live_at() here */
};
#define DECODED (1u << 15)

struct translator {
	struct tr_ops ops;
	uint8_t *tables;
	struct tr_policy policy;
	struct tr_build *build; /* the fragment being made */
	uint64_t no_arena;	/* none can be had in this region of addresses */
	uint64_t asked;		/* the pc for which an arena was asked for */
	bool overflowed;	/* some arena is full: start over */
	uint64_t epoch;
	struct tr_arena *arenas;
	struct tr_frag *hash[FRAG_HASH];
	struct tr_stop *stops; /* [0] unused */
	uint32_t n_stops, cap_stops;
	uint32_t *pending;	    /* hash of target pc -> first waiting stop */
	struct tr_decoded *decoded; /* by a hash of the address */
	uint32_t generation;	    /* of what is in there */
	uint64_t *pages;	    /* program pages translated from: a set, open addressing */
	uint32_t n_pages, cap_pages;
	struct tr_stats stats;
};

/* Our pointer to one of the tables, given its place relative to S. */
static inline void *tr_table(const struct translator *tr, int64_t off)
{
	return tr->tables + (off - T_TABLES);
}

/* Where the program's registers and flags are. `spilled`: only in their slots. `clean`: in the
 * processor and, with the same value, in their slots. */
struct tr_state {
	uint32_t spilled, clean;
	enum tr_flags_state flags;
};

/* The register that is in its slot whenever control passes from one fragment to another, and so
 * free as scratch from the start: compilers hardly use it. */
#define HOME	 11
#define HOME_BIT TR_HOME_BIT

/* A fragment being built. */
struct tr_build {
	struct translator *tr;
	struct tr_policy policy;
	struct tr_arena *arena;
	struct cg *c; /* hot */
	struct cg *cold;
	struct tr_frag *f;
	struct insn insn[FRAG_MAX];
	uint32_t live[FRAG_MAX + 1]; /* arithmetic flags live before instruction i */
	unsigned n;
	unsigned i; /* the one being emitted */
	struct tr_state st;
	uint32_t busy; /* scratch registers the current instruction holds something in */
	bool body_marked;
	bool failed;   /* the current instruction cannot be translated: run it natively */
	bool changing; /* code that may change unheard */
	/* taken sides of conditional branches: emitted behind the fragment's straight run */
	struct side_exit {
		uint8_t *site;
		struct tr_state st;
		uint64_t target;
		unsigned executed;
	} side[FRAG_MAX];
	unsigned n_sides;
	/* direct exits' targets, for translating ahead */
	uint64_t target[2 * FRAG_MAX];
	unsigned n_targets;
	uint64_t ret_site; /* return address of the call that ends it, or 0 */
};

#define ARITH 0x8d5u

/* translate-flags.c: arithmetic flags that an instruction surely overwrites, really consumes */
uint32_t tr_flags_killed(const struct insn *in);
uint32_t tr_flags_used(const struct insn *in);

/* translate-cache.c */
/* Whether anything was translated from a page of [addr, addr+len). */
bool tr_covers(const struct translator *tr, uint64_t addr, uint64_t len);
void tr_forget_decoded(struct translator *tr);
void tr_add_page(struct translator *tr, uint64_t page);
/* No indirect target is known. */
void tr_clear_indirect(struct translator *tr);

/* translate-state.c: stops and links */
uint32_t tr_new_stop(struct translator *tr, enum tr_stop_kind kind, uint64_t pc,
		     struct tr_arena *a);
unsigned tr_slot(uint64_t pc);
struct tr_frag *tr_find(struct translator *tr, uint64_t pc);
bool tr_reachable(uint64_t from, uint64_t to);
void tr_link_stop(struct translator *tr, struct tr_stop *s, const struct tr_frag *f);
/* Everything that leaving takes except the jump: steps, flags, registers but the home one. */
void tr_exit_leave(struct cg *c, const struct tr_state *st, unsigned executed, uint32_t live);

/* translate-state.c: registers and flags */
int tr_reg_scratch(struct tr_build *b, uint32_t avoid, bool low);
void tr_reg_spill(struct tr_build *b, unsigned r);
void tr_reg_reload(struct tr_build *b, struct cg *c, unsigned r);
void tr_flags_save(struct tr_build *b);
/* Flags are about to be clobbered before instruction i has done its work (or after it, if
 * `after`). */
void tr_flags_clobber(struct tr_build *b, bool after);
void tr_flags_need(struct tr_build *b, struct cg *c);
/* Before the operation of instruction i itself: bring flags back if it reads or merges them. */
void tr_flags_for_op(struct tr_build *b);
void tr_mark_body(struct tr_build *b);
uint32_t tr_reg_used(const struct tr_build *b);

/* Exits. `executed`: instructions of this fragment done when leaving. */
void tr_exit_to(struct tr_build *b, struct cg *c, struct tr_state st, uint64_t target,
		unsigned executed);
void tr_exit_stop(struct tr_build *b, struct cg *c, struct tr_state st, enum tr_stop_kind kind,
		  uint64_t pc, unsigned executed, uint32_t live);
/* The taken side of a branch whose rel32 is at `site`. */
void tr_exit_side(struct tr_build *b, uint8_t *site, uint64_t target, unsigned executed);
/* Leave to the address in rcx (spilled, as rax is). */
void tr_exit_indirect(struct tr_build *b, unsigned executed);
/* Save flags to T_FLAGS or restore them. rax goes aside to where `aside` says. */
enum aside { RAX_FREE, RAX_TO_HOME, RAX_TO_MEMORY };
void tr_emit_save_flags(struct cg *c, enum aside aside);
void tr_emit_restore_flags(struct cg *c, enum aside aside);
/* int3 that asks for ring space, in cold code, coming back to hot code. */
void tr_ring_check(struct tr_build *b, unsigned head_reg);

uint32_t tr_flags_live_at(struct translator *tr, uint64_t pc, int depth);
/* The instruction at pc, or NULL. Valid until the next call. */
struct tr_decoded *tr_decode(struct translator *tr, uint64_t pc);

/* translate-mem.c */
bool tr_mem_operand(struct tr_build *b, struct ea *mem, struct ea *shadow);
void tr_mem_check(struct tr_build *b, const struct ea *mem, const struct ea *shadow, unsigned size);
void tr_mem_insn(struct tr_build *b);
void tr_mem_xlat(struct tr_build *b);
void tr_string_insn(struct tr_build *b);
/* General registers that an operand's address is made of. */
static inline uint32_t ea_regs(const struct ea *m)
{
	return (m->base >= 0 ? 1u << m->base : 0) | (m->index >= 0 ? 1u << m->index : 0);
}
/* The cold side of a check: `routine` imports `size` bytes at `mem` and goes on at hot address
 * `resume`, or behind this, in cold code, if that is 0. `s` is overwritten and not part of the
 * operand. */
void tr_mem_import(struct tr_build *b, unsigned s, const struct ea *mem, unsigned size,
		   uint64_t resume, const uint8_t *routine);
/* Execute the instruction on the shadow. Without mirroring the shadow gets its old bytes back
 * afterwards; `then_copy` (may be NULL) is where the result goes in memory before that. */
void tr_mem_on_shadow(struct tr_build *b, const struct insn *in, const struct ea *shadow,
		      unsigned size, const struct ea *then_copy);
/* Load `size` bytes into register `dst` (not part of the operand), checked. */
void tr_mem_load(struct tr_build *b, unsigned size, unsigned dst, const struct ea *mem,
		 const struct ea *shadow);
/* rcx = the branch target in an 8-byte operand that uses neither rax nor rcx, both of which are
 * spilled. Keeps flags that are in the processor there. */
void tr_mem_target(struct tr_build *b, const struct ea *mem, const struct ea *shadow);

/* translate-atomic.c */
void tr_atomic_insn(struct tr_build *b, const struct insn *in, const struct ea *mem);
/* bt, bts, btr, btc of a bit string in memory, without LOCK */
void tr_bit_string_insn(struct tr_build *b, const struct insn *in, const struct ea *mem);

/* translate-vec.c: a load of a vector register, if it is one that can be checked as a whole; else
 * false */
bool tr_vec_load(struct tr_build *b, const struct insn *in, const struct ea *mem,
		 const struct ea *shadow);
/* An instruction of which a mask selects elements, or which gathers them. */
void tr_vec_masked(struct tr_build *b, const struct insn *in, const struct ea *mem,
		   const struct ea *shadow);
/* maskmovq and maskmovdqu, to where rdi points */
void tr_vec_masked_bytes(struct tr_build *b);

/* translate-flow.c: returns true if the fragment ends with this instruction */
bool tr_flow_insn(struct tr_build *b);
void tr_stack_insn(struct tr_build *b);
void tr_syscall_emit(struct tr_build *b);
void tr_tsc_insn(struct tr_build *b);

/* runtime.S */
extern const uint8_t rt_begin[], rt_end[], rt_import[], rt_import_masked[], rt_import_patch8[],
	rt_syscall[], rt_gather_dd[], rt_gather_dq[], rt_gather_qd[], rt_gather_qq[], rt_other_hw[],
	rt_other_saved[], rt_none_hw[], rt_none_saved[], rt_strings[], rt_strings_end[];
extern const uint32_t rt_heads[], rt_heads_end[];

static inline uint64_t rt_va(const struct tr_arena *a, const uint8_t *routine)
{
	return a->va + (uint64_t)(routine - rt_begin);
}

#endif
