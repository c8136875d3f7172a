/*
 * The translator: turns program code into instrumented code in an arena.
 *
 * A fragment is a straight run of program instructions with one entry and several exits:
 * it follows the fall-through side of conditional branches and ends at an unconditional transfer.
 * Within a fragment
 *
 *  - registers: a program register that is needed as scratch is stored to its slot in the control
 *    block (spilled) and reloaded before the next instruction that reads it, or at an exit. Nothing
 *    is ever assumed dead: any memory access may fault and then all registers must be found.
 *  - flags: a check clobbers the arithmetic flags. Where they are live they are saved first
 *    (lahf, seto) and restored before the next instruction that needs them, or at an exit to code
 *    that may need them. Flags that the program overwrites before reading them are
 *    not preserved.
 *  - steps: the control block counts instructions up to the fragment's entry; exits add
 *    what the fragment executed.
 *
 * For each program instruction the fragment keeps where its code starts and which
 * registers and flags are elsewhere there (struct finsn), so that the supervisor can rebuild the
 * program's registers at any instruction boundary and at any faulting access.
 *
 * Main entry of a fragment: all program state in the registers, except that r11 is in its slot
 * (TR_HOME): most fragments need a scratch register, few use r11. The same holds at stops. A
 * fragment that is the target of indirect branches also gets stubs (tr_add_indirect) that are
 * entered with rcx the target and rax free, the program's in their slots, and flags in the
 * processor or in T_FLAGS.
 */
#ifndef DEJA_TRANSLATOR_TRANSLATE_H
#define DEJA_TRANSLATOR_TRANSLATE_H

#include "format/error.h"
#include "insn/insn.h"
#include "translator/area.h"
#include "translator/cg.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TR_HOME_BIT (1u << 11)

enum flags_state {
	FLAGS_HW,    /* in the processor (or dead) */
	FLAGS_BOTH,  /* in the processor and in T_FLAGS */
	FLAGS_SAVED, /* only in T_FLAGS */
};

/* One program instruction in a fragment. Offsets are from the fragment's main entry. */
struct finsn {
	uint32_t start;			      /* its code; the instruction boundary */
	uint32_t body;			      /* first access that can fault */
	uint32_t after_syscall;		      /* just behind the syscall instruction, or 0 */
	uint16_t pc_off;		      /* its address minus the fragment's */
	uint16_t spilled_start, spilled_body; /* registers in slots, by bit */
	uint8_t flags_start, flags_body;      /* enum flags_state */
	uint8_t id_string;		      /* 1 for a string instruction (runtime routine) */
};

struct arena;

struct frag {
	struct frag *hash_next;
	struct arena *arena;
	uint64_t pc;	 /* of the program */
	uint64_t entry;	 /* main entry */
	uint64_t end;	 /* hot code is [entry, end) */
	uint32_t live;	 /* arithmetic flags that are live at the entry */
	bool indirect;	 /* has stubs for indirect branches */
	uint32_t pc_len; /* bytes of program code covered */
	uint32_t n;
	struct finsn insn[];
};

enum stop_kind {
	STOP_LINK,    /* `pc` is not translated yet; `site` jumps here */
	STOP_SYSCALL, /* a system call at `pc` that the supervisor performs; state complete */
	STOP_NATIVE,  /* the instruction at `pc` is to be executed natively */
	STOP_CHANGED, /* code at `pc` (the fragment's entry) is not what was translated */
	STOP_BRANCH,  /* no int3, only a name: the indirect branch at `pc` */
};

struct stop {
	enum stop_kind kind;
	uint64_t pc;
	uint8_t *site; /* STOP_LINK: the rel32 to patch */
	uint8_t *stub; /* STOP_LINK: 16 bytes at the int3 that may become a far jump */
	struct arena *arena;
	uint32_t next; /* STOP_LINK: next stop waiting for the same pc, 0 ends */
};

struct translator;

struct translator_ops {
	void *ctx;
	/* Copy up to len bytes of executable program memory; returns how many can be had.
	 * `*changing` is set if the bytes may change without the supervisor hearing of it. */
	size_t (*read_code)(void *ctx, uint64_t pc, uint8_t *buf, size_t len, bool *changing);
	/* The code at [pc, pc+len) is about to become executable in translation. */
	void (*translated)(void *ctx, uint64_t pc, size_t len);
	/* A new arena near `pc`: maps `size` bytes in both; returns the program's address or 0. */
	uint64_t (*new_arena)(void *ctx, uint64_t pc, size_t size, uint8_t **ours);
};

/* `control` is the supervisor's mapping of the control region, S at `s`. */
struct translator *tr_new(const struct translator_ops *ops, uint8_t *control, uint64_t s,
			  unsigned predict);
void tr_free(struct translator *tr);

/* The fragment for `pc`, translated now if need be. NULL if there is no code to be read at
 * pc or its first instruction cannot be translated (run it natively). */
struct frag *tr_fragment(struct translator *tr, uint64_t pc);

/* Enter `pc` into the indirect-branch table. */
void tr_add_indirect(struct translator *tr, struct frag *f);

/* The stop whose int3 lies at `va`; runtime stops give *runtime != 0 and NULL. */
struct stop *tr_stop_at(struct translator *tr, uint64_t va, uint32_t *runtime);

/* The program address of the indirect branch that was executed last, by its number in T_BRANCH; 0
 * if there is none. */
uint64_t tr_branch(const struct translator *tr, uint32_t number);

/* Whether `va` lies in any arena. */
bool tr_in_cache(const struct translator *tr, uint64_t va);

/* Where the program is when the processor is at `va` in the cache. */
struct tr_where {
	struct frag *frag;
	uint32_t index;
	bool boundary;	    /* exactly at the start of instruction `index` */
	bool after_syscall; /* just behind a syscall instruction */
	bool string_head;   /* at the top of an iteration in a string routine */
	uint64_t pc;	    /* program address of the instruction */
	uint32_t spilled;   /* registers to be found in slots */
	enum flags_state flags;
};
/* `rt_ret` is the thread's T_RT_RET, needed inside string routines. False if `va` is not in a
 * fragment's hot code or a string routine. */
bool tr_locate(struct translator *tr, uint64_t va, uint64_t rt_ret, struct tr_where *w);

/* Code somewhere changed, or mappings did: forget what was decoded (but not translations). */
void tr_forget_decoded(struct translator *tr);

/* Throw all translations away. */
void tr_flush(struct translator *tr);
/* Whether anything was translated from a page of [addr, addr+len). */
bool tr_covers(const struct translator *tr, uint64_t addr, uint64_t len);

/* Address of the runtime's syscall instruction. 0 before the first arena. */
uint64_t tr_syscall_insn(const struct translator *tr);

/* Where arena number i is; false if there are not that many. */
bool tr_arena(const struct translator *tr, unsigned i, uint64_t *at, uint64_t *size);

struct tr_stats {
	uint64_t fragments, instructions, code_bytes, flushes;
};
void tr_stats(const struct translator *tr, struct tr_stats *s);

#endif
