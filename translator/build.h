/*
 * Between the translator's files: a fragment under construction, and what emits it. translate.h has
 * the rules it follows.
 *
 *   translate-scan.c    which instructions, which flags are live between them
 *   translate-emit.c    one instruction after the other, and the fragment's ends
 *   translate-keep.c    translations that are made again elsewhere
 *   translate-bale.c    the same of many at once
 *   translate-regs.c    where registers and flags are
 *   translate-exit.c    ways out
 *   translate-mem.c     memory operands: checked loads, mirrored stores
 *   translate-wide.c    operands that are no plain loads or stores: xsave, x87 stores that pop...
 *   translate-vec.c     vector loads, masks, gathers
 *   translate-atomic.c  locked instructions and fences, bit strings
 *   translate-order.c   numbers of ordered events, and the locks they are taken under
 *   translate-string.c  string instructions
 *   translate-flow.c    branches, calls, returns
 *   translate-stack.c   push, pop and the like
 *   translate-call.c    system calls, the time-stamp counter
 */
#ifndef DEJA_TRANSLATOR_BUILD_H
#define DEJA_TRANSLATOR_BUILD_H

#include "translator/cache.h"

#define ARITH	     0x8d5u
#define FRAG_MAX     64
#define JOIN	     6	/* a fragment this long ends where another one begins */
#define AROUND_MOST  4	/* a short loop is written so often in a row, */
#define AROUND_INSNS 32 /* if it is not longer than this then */
#define USES_MAX     8	/* pages that a fragment may depend on */

/* The register that is in its slot whenever control passes from one fragment to another, and so
 * free as scratch from the start: compilers hardly use it. */
#define HOME	 11
#define HOME_BIT TR_HOME_BIT

/* Where the program's registers and flags are. `spilled`: only in their slots. `clean`: in the
 * processor and, with the same value, in their slots. */
struct tr_state {
	uint32_t spilled, clean;
	uint32_t lost; /* arithmetic flags that are dead, and no more what the program made them */
	enum tr_flags_state flags;
};

/* The taken side of a conditional branch, emitted behind the fragment's straight run. */
struct tr_side {
	uint8_t *site;
	struct tr_state st;
	uint64_t target;
	unsigned steps; /* not in T_STEPS */
};

struct tr_build {
	struct translator *tr;
	struct tr_policy policy;
	struct tr_arena *arena;
	struct cg *c; /* hot */
	struct cg *cold;
	struct tr_frag *f; /* room for FRAG_MAX instructions */
	struct insn insn[FRAG_MAX];
	uint32_t live[FRAG_MAX + 1]; /* arithmetic flags live before instruction i */
	/* the same, for what its translation does to them before the instruction's own operation */
	uint32_t within[FRAG_MAX + 1];
	uint64_t around; /* jumps back to the start whose target is what follows in the fragment */
	unsigned n;
	unsigned i; /* the one being emitted */
	int lag;    /* b->lag + b->i steps are not in T_STEPS before it */
	struct tr_state st;
	uint32_t busy; /* scratch registers the current instruction holds something in */
	bool body_marked;
	/* The code [op, op_end) is one operation of the instruction before, right before a
	 * conditional jump and moved with it: the processor executes the two as one. NULL if there
	 * is none. */
	uint8_t *op, *op_end;
	bool failed;   /* the current instruction cannot be translated: run it natively */
	bool changing; /* code that may change unheard */
	struct tr_side side[FRAG_MAX];
	unsigned n_sides;
	struct tr_lines use[USES_MAX]; /* what it depends on */
	unsigned n_uses;
	uint32_t numbers; /* the fragment's, linked by `sibling` */
	/* direct exits' targets, for translating ahead */
	uint64_t target[2 * FRAG_MAX];
	unsigned n_targets;
	uint64_t ret_site; /* return address of the call that ends it, or 0 */
	struct cg_log log; /* what of its code depends on where it lies */
	bool asks;	   /* for a number of facts, at its entry */
	bool cannot_keep;  /* there is more of that */
	bool other_lags;   /* it was kept with lags that nobody here agrees with */
};

/* ---- translate-scan.c ---- */
/* Read the run of code at pc; b->n is 0 if there is none. */
void tr_scan(struct tr_build *b, uint64_t pc);
/* So many bytes of the program's code it is. */
size_t tr_scanned(const struct tr_build *b);
/* Whether what follows instruction i in the fragment is its target, the fragment's start. */
static inline bool tr_goes_around(const struct tr_build *b, unsigned i)
{
	return b->around >> i & 1;
}
/* Arithmetic flags that are live at pc, code outside the fragment. */
uint32_t tr_live_at(struct tr_build *b, uint64_t pc);
/* XRSTOR that is executed in the cache, if it is about vector registers alone. */
bool tr_is_xrstor(const struct insn *in);
bool tr_is_result(const struct insn *in);
/* Instructions that always go through the supervisor. */
bool tr_must_be_native(const struct insn *in);

/* ---- translate-flags.c: arithmetic flags that an instruction surely overwrites, really
 * consumes ---- */
uint32_t tr_flags_killed(const struct insn *in);
uint32_t tr_flags_used(const struct insn *in);
bool tr_may_fault(const struct insn *in);
bool tr_faults_first(const struct insn *in);
/* Which may be read by code from `pc` on before being written; pages looked at are added to
 * `look`. */
uint32_t tr_flags_live_at(struct translator *tr, uint64_t pc, int depth, struct tr_look *look);

/* ---- translate-emit.c ---- */
/* The fragment at pc, published. NULL if there is no code, or if the arena's current chunk has no
 * room for it (tr_arena_overflow()). */
struct tr_frag *tr_translate(struct tr_build *b, struct tr_arena *a, uint64_t pc);
/* Where in the instruction's code the first access that can fault lies, and how registers and flags
 * are there. */
void tr_mark_body(struct tr_build *b);

/* ---- translate-keep.c ---- */
/* Keep the fragment that has been written, hot and cold code from there on, of `len` bytes of the
 * program's code. */
void tr_keep(struct tr_build *b, const struct tr_frag *f, const uint8_t *hot, const uint8_t *cold,
	     size_t len);
/* As tr_translate(), of what was kept. NULL if nothing was, or if the current chunk has no room. */
struct tr_frag *tr_make_again(struct tr_build *b, struct tr_arena *a, uint64_t pc);

/* ---- translate.c ---- */
/* Where the fragment, which was made earlier, goes on: as if it had been made now. */
void tr_leads_to(const struct translator *tr, const struct tr_frag *f, struct tr_build *b);

/* ---- translate-regs.c ---- */
/* A register the translation may overwrite: not used by the current instruction, not in `avoid`,
 * below r8 if `low`. */
int tr_reg_scratch(struct tr_build *b, uint32_t avoid, bool low);
void tr_reg_spill(struct tr_build *b, unsigned r);
void tr_reg_reload(struct cg *c, unsigned r);
/* Save flags to T_FLAGS or restore them. rax goes aside to where `aside` says. */
enum tr_aside { RAX_FREE, RAX_TO_HOME, RAX_TO_MEMORY };
void tr_emit_save_flags(struct cg *c, enum tr_aside aside);
void tr_emit_restore_flags(struct cg *c, enum tr_aside aside);
/* Flags are about to be clobbered before instruction i has done its work (or after it, if
 * `after`). */
void tr_flags_clobber(struct tr_build *b, bool after);
void tr_flags_save(struct tr_build *b);
void tr_flags_need(struct tr_build *b, struct cg *c);
/* Before the operation of instruction i itself: bring flags back if it reads or merges them. */
void tr_flags_for_op(struct tr_build *b);

/* Steps that are not in T_STEPS before instruction i. */
static inline uint32_t tr_lag(const struct tr_build *b)
{
	return (uint32_t)b->lag + b->i;
}

/* ---- translate-exit.c; `steps`: how many are not in T_STEPS when leaving ---- */
/* Add n to one of T_STEPS, through the home register, which must be free, if flags are to be kept.
 */
void tr_emit_steps(struct cg *c, int32_t n, bool keep_flags);
/* Their sum, and the lag, into a register; flags are free. */
void tr_emit_get_steps(struct cg *c, unsigned reg, int32_t lag);
/* Everything that leaving takes except the jump: n is added to T_STEPS, flags, registers but the
 * home one. */
void tr_exit_leave(struct cg *c, const struct tr_state *st, int32_t n, uint32_t live);
/* A link. */
void tr_exit_to(struct tr_build *b, struct tr_state st, uint64_t target, unsigned steps);
/* jcc that is a link itself. False, and nothing is emitted, if leaving takes more than a jump. */
bool tr_exit_jcc(struct tr_build *b, unsigned cond, uint64_t target, unsigned steps);
/* The operation that begins at `op`, and can be moved, has just been emitted. */
void tr_exit_op(struct tr_build *b, uint8_t *op);
/* To the supervisor. */
void tr_exit_stop(struct tr_build *b, struct cg *c, struct tr_state st, enum tr_stop_kind kind,
		  uint64_t pc, unsigned steps, uint32_t live);
/* The taken side of a branch whose rel32 is at `site`. */
void tr_exit_side(struct tr_build *b, uint8_t *site, uint64_t target, unsigned steps);
/* To the address in the home register, whose own value is in its slot, as flags are. */
void tr_exit_indirect(struct tr_build *b, unsigned steps);
/* int3 that asks for ring space, in cold code, coming back to hot code. */
void tr_ring_check(struct tr_build *b, unsigned head_reg);

/* ---- translate-mem.c ---- */
/* General registers that an operand's address is made of. */
static inline uint32_t ea_regs(const struct ea *m)
{
	return (m->base >= 0 ? 1u << m->base : 0) | (m->index >= 0 ? 1u << m->index : 0);
}
/* The current instruction's memory operand as it is to be used on memory and on the shadow. */
bool tr_mem_operand(struct tr_build *b, struct ea *mem, struct ea *shadow);
/* Check a load of `size` bytes; afterwards the shadow has what was read. */
void tr_mem_check(struct tr_build *b, const struct ea *mem, const struct ea *shadow, unsigned size);
/* Load `size` bytes into register `dst` (not part of the operand), checked. */
/* The operand on the shadow by way of a scratch register, if it is by way of rsp and the policy
 * asks for that. */
struct ea tr_by_copy(struct tr_build *b, const struct ea *shadow, uint32_t avoid, bool low);
void tr_mem_load(struct tr_build *b, unsigned size, unsigned dst, const struct ea *mem,
		 const struct ea *shadow);
/* The cold side of a check: `routine` imports `size` bytes at `mem` and goes on at hot address
 * `resume`, or behind this, in cold code, if that is 0. `s` is overwritten and not part of the
 * operand. */
void tr_mem_import(struct tr_build *b, unsigned s, const struct ea *mem, unsigned size,
		   uint64_t resume, const uint8_t *routine);
/* Copy `size` bytes from the shadow to memory through a scratch register. */
void tr_mem_copy_out(struct tr_build *b, const struct ea *mem, const struct ea *shadow,
		     unsigned size);
/* Execute the instruction on the shadow. Without mirroring the shadow gets its old bytes back
 * afterwards; `then_copy` (may be NULL) is where the result goes in memory before that. */
void tr_mem_on_shadow(struct tr_build *b, const struct insn *in, const struct ea *shadow,
		      unsigned size, const struct ea *then_copy);
void tr_mem_insn(struct tr_build *b);

/* ---- instructions of their own kind ---- */
/* translate-wide.c */
void tr_far_operand(struct tr_build *b, const struct insn *in);
void tr_xlat_insn(struct tr_build *b);
void tr_xsave_insn(struct tr_build *b, const struct insn *in, const struct ea *mem);
/* A store that pops the x87 stack. */
void tr_pop_to_memory(struct tr_build *b, const struct insn *in, const struct ea *mem,
		      const struct ea *shadow, unsigned size);
/* translate-vec.c: a load of a vector register, if it is one that can be checked as a whole; else
 * false */
bool tr_vec_load(struct tr_build *b, const struct insn *in, const struct ea *mem,
		 const struct ea *shadow);
/* An instruction of which a mask selects elements, or which gathers them. */
void tr_vec_masked(struct tr_build *b, const struct insn *in, const struct ea *mem,
		   const struct ea *shadow);
void tr_vec_masked_bytes(struct tr_build *b);
/* translate-atomic.c */
void tr_atomic_insn(struct tr_build *b, const struct insn *in, const struct ea *mem);
void tr_fence_insn(struct tr_build *b);
/* bt, bts, btr, btc of a bit string in memory, without LOCK */
void tr_bit_string_insn(struct tr_build *b, const struct insn *in, const struct ea *mem);
/* translate-order.c; both overwrite flags, and nothing else that the caller sees */
/* Nobody else performs an ordered operation on the `size` bytes at [a] from here to
 * tr_order_number(). */
void tr_order_lock(struct tr_build *b, unsigned a, unsigned size);
/* An ordered event is over: T_SEQ becomes its number. `size` 0: there was no lock. */
void tr_order_number(struct tr_build *b, unsigned a, unsigned size);
/* In the stronger models: before instruction i and behind it. A load by a branch is followed by a
 * look at once, because nothing comes behind it. */
void tr_order_before(struct tr_build *b);
void tr_order_after(struct tr_build *b);
void tr_order_look(struct tr_build *b);
/* translate-string.c */
void tr_string_insn(struct tr_build *b);
/* translate-flow.c; true if the fragment ends with it */
bool tr_flow_insn(struct tr_build *b);
/* translate-stack.c */
/* Push a register, of which `value` is one that has the same and is not rsp; pop one that is not
 * rsp, checked as by tr_mem_load(). */
void tr_push_reg(struct tr_build *b, unsigned size, unsigned reg, unsigned value);
/* Push eight bytes, not more than INT32_MAX; `spare` may be overwritten if policy.copy_rsp. */
void tr_push_low(struct tr_build *b, uint32_t value, unsigned spare);
void tr_pop_reg(struct tr_build *b, unsigned reg);
extern const struct ea tr_stack_top, tr_shadow_top;
void tr_stack_insn(struct tr_build *b);
/* translate-call.c */
void tr_call_insn(struct tr_build *b);
void tr_tsc_insn(struct tr_build *b);
void tr_xgetbv_insn(struct tr_build *b);
void tr_cpuid_insn(struct tr_build *b);
void tr_result_insn(struct tr_build *b);
void tr_xrstor_insn(struct tr_build *b);
/* Call a routine of the runtime that returns to T_CALL_RET. r11 is overwritten. */
void tr_call_runtime(struct tr_build *b, struct cg *c, const uint8_t *routine);

#endif
