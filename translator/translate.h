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
 *  - steps: the thread's instructions are T_STEPS plus a constant of the place in the code, its
 * lag. The lag of an entry is chosen so that the way into it that was seen first has nothing to add
 *    up; other exits add the difference. It is 0 where nothing is known about who comes: at
 *    indirect branches and at most stops.
 *
 * For each program instruction the fragment keeps where its code starts and which
 * registers and flags are elsewhere there, so that the supervisor can rebuild the
 * program's registers at any instruction boundary and at any faulting access.
 *
 * Main entry of a fragment: all program state in the registers, except that r11 is in its slot
 * (TR_HOME_BIT): most fragments need a scratch register, few use r11. The same holds at stops. A
 * fragment that is the target of indirect branches also gets a stub (tr_add_indirect) that is
 * entered with r11 the target and rcx free, the program's in their slots, and flags in T_FLAGS.
 */
#ifndef DEJA_TRANSLATOR_TRANSLATE_H
#define DEJA_TRANSLATOR_TRANSLATE_H

#include "format/error.h"
#include "translator/area.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TR_HOME_BIT (1u << 11)
#define TR_LAG_MAX  4096 /* no place has a longer lag */

enum tr_flags_state {
	TR_FLAGS_HW,	/* in the processor (or dead) */
	TR_FLAGS_BOTH,	/* in the processor and in T_FLAGS */
	TR_FLAGS_SAVED, /* only in T_FLAGS */
};

/* Why the thread has stopped in translated code. */
enum tr_stop_kind {
	TR_STOP_LINK,	 /* the code at `pc` was not translated yet; nobody listened (T_LISTEN) */
	TR_STOP_SYSCALL, /* a system call at `pc` that the supervisor performs; state complete */
	TR_STOP_NATIVE,	 /* the instruction at `pc` is to be executed natively */
	TR_STOP_CHANGED, /* code at `pc` (the fragment's entry) is not what was translated */
	TR_STOP_FACTS,	 /* the code at `pc` is newer than what the thread's stream knows of */
	TR_STOP_BRANCH,	 /* no int3, only a name: the indirect branch at `pc` */
};

struct tr_stop {
	uint64_t pc;
	enum tr_stop_kind kind;
	uint32_t lag; /* T_STEPS lacks so many */
};

struct tr_frag;
struct translator;

struct tr_ops {
	void *ctx;
	/* Copy up to len bytes of executable program memory; returns how many can be had.
	 * `*changing` is set if the bytes may change without the supervisor hearing of it. */
	size_t (*read_code)(void *ctx, uint64_t pc, uint8_t *buf, size_t len, bool *changing);
	/* The code at [pc, pc+len) is about to become executable in translation. Returns 0, or a
	 * number that a thread's T_FACTS must have come to before it executes the fragment. */
	uint64_t (*translated)(void *ctx, uint64_t pc, size_t len);
	/* Where translations of the code in the page of pc are kept, to be made again where the
	 * same code lies elsewhere: it is the same for all pages with the same place and the same
	 * `base` (page-aligned), at the same distance from that. NULL: nowhere. May be NULL. */
	struct tr_kept *(*kept)(void *ctx, uint64_t pc, uint64_t *base);
	/* Whether nothing more has to be said of the code at [pc, pc+len) before it is executed, by
	 * whatever thread: fragments may be made of it while the program runs. */
	bool (*known)(void *ctx, uint64_t pc, size_t len);
};

/* Kept translations, of all translators with the same configuration. As many as there is *room for,
 * in bytes, which may be shared with others. */
struct tr_kept *tr_kept_new(uint64_t *room);
void tr_kept_free(struct tr_kept *kept);
/* All there is, in a file of not much more than `limit` bytes: else as much of it as has been of
 * use lately. `id` says whose they are and who wrote them: they are read again with the same one
 * only. False: there is nothing to be read. */
#define TR_KEPT_ID 128
bool tr_kept_write(struct tr_kept *kept, const uint8_t id[TR_KEPT_ID], size_t limit, FILE *to);
bool tr_kept_read(struct tr_kept *kept, int fd, size_t size, const uint8_t id[TR_KEPT_ID]);
/* Whether there are enough that no file had. */
bool tr_kept_new_ones(const struct tr_kept *kept);

/* What translated code does about memory. */
struct tr_policy {
	const char *name;
	bool import_all;  /* every load is imported; else those that differ from the shadow */
	bool mirror;	  /* stores go to the shadow, too */
	bool number;	  /* locked instructions and fences have numbers, as system calls have */
	bool look;	  /* a load has one, too, if somebody else has had one since the last */
	bool exact_flags; /* arithmetic flags are never taken for dead */
	bool fault_flags; /* nor where an instruction may fault */
	bool copy_rsp;	  /* what is addressed by rsp has a copy of it in the shadow's address, */
	bool copy_pops;	  /* and so has what is popped */
	bool lock;	  /* loads and stores are made under the lock of their place, too */
};
enum { TR_POLICY_SHADOW, TR_POLICY_LAST, TR_POLICY_NONE, TR_POLICIES };
extern const struct tr_policy tr_policies[TR_POLICIES];

struct tr_config {
	uint8_t *tables; /* our mapping of the AREA_TABLES bytes below each thread's S; zero */
	struct tr_policy policy;
	bool bales; /* what was kept is made again many at a time */
	bool large; /* so much is going to be translated that tables may take whole megabytes */
};

/*
 * The image for which all was translated has ended, and another one of the program may take it
 * over. Only what depends on nothing but pages (addresses / 4096) that are to be kept is; all that
 * is not executed by anybody. A page has a word that is the caller's: 0 to begin with, and again
 * when what was known of the page's bytes does not hold any more.
 */
typedef bool tr_each_page(void *ctx, uint64_t page, uint64_t *sum);
void tr_keep_only(struct translator *tr, tr_each_page *keep, void *ctx);
/* Arenas in which nothing is left are forgotten; the program does not execute their runtime. */
void tr_drop_empty_arenas(struct translator *tr);
/* Whether it is so of all pages that anything depends on. */
bool tr_pages(struct translator *tr, tr_each_page *each, void *ctx);
/* How many fragments that would leave, as far as that is known of the first page of each: `keep`
 * does not write to the word. NULL: all there are, none being retired. */
uint64_t tr_count(struct translator *tr, tr_each_page *keep, void *ctx);
/* By this image, with tables that are zero, the fast one excepted. It has, or is going to have, the
 * arenas where they were. What is counted begins anew. `unit` says of a page whether it is there
 * (0), is not yet (another number for each module, whose fragments are parked), or is not going to
 * be. */
#define TR_UNIT_NONE UINT32_MAX
void tr_take_over(struct translator *tr, const struct tr_ops *ops, uint8_t *tables,
		  uint32_t (*unit)(void *ctx, uint64_t page), void *ctx);
/* Whether it is so of the pages from `first` to before `end` that have something parked. */
bool tr_parked(struct translator *tr, uint64_t first, uint64_t end, tr_each_page *each, void *ctx);
/* They are there, with the code that they had. */
void tr_unpark(struct translator *tr, uint64_t first, uint64_t end);

/* A thread of the caller's that gets memory ready for translators runs the first of these, between
 * the two others. */
void *tr_warm_run(void *arg);
void tr_warm_begin(void);
void tr_warm_end(void);
/* Some memory, which is there and will be written to soon. */
void tr_warm(void *at, size_t size);

struct translator *tr_new(const struct tr_ops *ops, const struct tr_config *config);
void tr_free(struct translator *tr);

#define TR_ARENA_SIZE (256UL << 20) /* mapped sparsely */

enum tr_found {
	TR_FOUND,
	TR_NATIVE,   /* there is no code at pc, or its first instruction is not to be translated */
	TR_NO_ARENA, /* make an arena near pc or say that none can be had, and ask again */
	TR_FULL,     /* everything was retired; ask again after tr_reclaim() */
};

/* The fragment for `pc`, translated now if need be. */
enum tr_found tr_fragment(struct translator *tr, uint64_t pc, struct tr_frag **f);

/* The fragment for `pc`, if it is there or was kept: made again now, and what it leads to as far as
 * that was kept. For a translator whose program runs meanwhile: nothing is read from the program
 * but pages that are in no way its own, nothing is given up, and TR_FULL is never returned;
 * whatever cannot be had on these terms is TR_NATIVE. */
enum tr_found tr_fragment_kept(struct translator *tr, uint64_t pc, struct tr_frag **f);

/* The same, but for what it leads to; and what was not kept is translated, if nothing has to be
 * said of the code (`known`). */
enum tr_found tr_fragment_beside(struct translator *tr, uint64_t pc, struct tr_frag **f);
/* One fragment of what the last one of those leads to, on the same terms; false if that was enough.
 */
bool tr_one_beside(struct translator *tr);

/* The program handles faults from now on: its handlers will see the flags (fault_flags). */
void tr_keep_fault_flags(struct translator *tr);

/* Whether an arena is so full that nothing should be made which may not be needed. */
bool tr_crowded(const struct translator *tr);
/* From now on no more than so many fragments ahead, also of those that were kept: who asks knows
 * what will be needed. TR_AHEAD is as far as is gone where nothing was kept, 0 as usual. */
#define TR_AHEAD 6
void tr_spare(struct translator *tr, unsigned ahead);

/* An arena of TR_ARENA_SIZE bytes, zero: the program has it at `va` (readable and executable, not
 * writable), we at `ours`. */
void tr_add_arena(struct translator *tr, uint64_t va, uint8_t *ours);
/* Whether there will be none for the code at `pc` unless one is made. */
bool tr_wants_arena(struct translator *tr, uint64_t pc);
/* There is no room for one near the pc that was last asked for: use what is there. */
void tr_no_arena(struct translator *tr);

/* The arena at `va` is given up: everything is retired, and no thread may be in the cache. */
void tr_drop_arena(struct translator *tr, uint64_t va);

/* Where to enter it, with r11 in its slot (TR_HOME_BIT). Until the next call that may retire it. */
uint64_t tr_entry(const struct tr_frag *f);
/* So many steps fewer than there are T_STEPS must have there. */
uint32_t tr_entry_lag(const struct tr_frag *f);

/* Where an indirect branch enters it that has not found it (rt_miss); 0: nowhere. */
uint64_t tr_indirect_entry(const struct tr_frag *f);

/* Indirect branches find it. */
void tr_add_indirect(struct translator *tr, struct tr_frag *f);
/* That is going to be said of the one that tr_fragment() is asked for next: if it has to be made it
 * is laid out accordingly. */
void tr_expect_indirect(struct translator *tr);

/* The stop whose int3 lies at `va`, r11 being `home`, valid until the next call; runtime stops give
 * *runtime != 0 and NULL. */
const struct tr_stop *tr_stop_at(const struct translator *tr, uint64_t va, uint64_t home,
				 uint32_t *runtime);
/* By its number (T_ASK); NULL if that is none. */
const struct tr_stop *tr_stop_of(const struct translator *tr, uint64_t number);

/* The program address of the indirect branch that was executed last, by its number in T_BRANCH; 0
 * if there is none. */
uint64_t tr_branch(const struct translator *tr, uint32_t number);

/* Whether `va` lies in any arena. */
bool tr_in_cache(const struct translator *tr, uint64_t va);

/* Where the program is when the processor is at `va` in the cache. */
struct tr_where {
	uint32_t lag;	     /* instructions that are done and not in T_STEPS */
	bool boundary;	     /* exactly at the start of an instruction */
	bool before_syscall; /* in the code of a system call, before the syscall instruction */
	bool after_syscall;  /* just behind a syscall instruction */
	bool string;	     /* in a string instruction */
	bool string_head;    /* at the top of an iteration in a string routine */
	bool flags_lost;     /* arithmetic flags are dead and may not be the program's */
	uint64_t pc;	     /* program address of the instruction */
	uint32_t spilled;    /* registers to be found in slots */
	enum tr_flags_state flags;
};
/* `rt_ret` is the thread's T_RT_RET, needed inside string routines. False if `va` is not in a
 * fragment's hot code or a string routine. */
bool tr_locate(const struct translator *tr, uint64_t va, uint64_t rt_ret, struct tr_where *w);

/* At an access that a fragment makes before its first instruction, to compare the program's code
 * with what was translated: where the program is. False if `va` is elsewhere. */
bool tr_locate_comparison(const struct translator *tr, uint64_t va, struct tr_where *w);

/* Inside the part of a string routine that does several elements at a time: where the same is done
 * one by one, from the same registers. 0 if `va` is elsewhere. */
uint64_t tr_string_singly(const struct translator *tr, uint64_t va);

/* In the routines that copy what a system call wrote, and that look at a path: where they go on if
 * they cannot. 0 if `va` is elsewhere. */
uint64_t tr_call_data_out(const struct translator *tr, uint64_t va);

/* Code or mappings at [addr, addr+len) changed: nothing enters what was translated from there any
 * more. Threads that are inside leave by the next exit. */
void tr_invalidate(struct translator *tr, uint64_t addr, uint64_t len);

/*
 * The page (an address / 4096) is no code, for the time being: nothing enters what was translated
 * from it. When it is code again, it may turn out to be what it was but for some lines of 64 bytes
 * (a bit each in `changed`, the lowest for the first): then what does not depend on these is as it
 * was before.
 */
void tr_sleep(struct translator *tr, uint64_t page);
void tr_wake(struct translator *tr, uint64_t page, uint64_t changed);
/* The page has been code all the time, and has other bytes in these lines. */
void tr_changed(struct translator *tr, uint64_t page, uint64_t changed);

/* Everything changed. */
void tr_flush(struct translator *tr);

/*
 * What is retired stays as it is, code and everything that is known about it, as long as a thread
 * may be inside. tr_epoch() is to be noted for a thread whenever it enters the cache. `oldest`:
 * every thread has entered the cache anew since that epoch (or is out of it); what was retired
 * before is given up.
 */
uint64_t tr_epoch(const struct translator *tr);
void tr_reclaim(struct translator *tr, uint64_t oldest);
/* Whether there is anything that it could give up. */
bool tr_retired(const struct translator *tr);

/* Whether a thread that is at `va` in the cache waits for the lock of a place. If rax is 1 it stops
 * soon (STOP_ORDER), should that not have come. */
bool tr_waits(const struct translator *tr, uint64_t va);
/* Whether it is about to execute a pushf. */
bool tr_pushes_flags(const struct translator *tr, uint64_t va);
/* Whether it asks for code (T_ASK). With an answer in T_ANSWER it goes on soon. */
bool tr_asks(const struct translator *tr, uint64_t va);

/* Address of the runtime's syscall instruction, for calls made on a thread's behalf. 0 before the
 * first arena. */
uint64_t tr_syscall_insn(const struct translator *tr);

/* Put an instruction of at most INSN_MAX bytes where it can be executed apart from the program's
 * code, with an int3 behind it, in one of TR_APART places: nobody may be executing what is there.
 * Returns its address, or 0 before the first arena. */
uint64_t tr_put_apart(struct translator *tr, unsigned place, const uint8_t *code, size_t len);

/* Where arena number i is; false if there are not that many. */
bool tr_arena(const struct translator *tr, unsigned i, uint64_t *at, uint64_t *size);

struct tr_stats {
	uint64_t fragments, instructions, code_bytes; /* made */
	uint64_t kept;				      /* made of what was kept, beside these */
	uint64_t retired, flushes;
	uint64_t clears; /* of crowded places in the table of indirect targets */
};
void tr_stats(const struct translator *tr, struct tr_stats *s);

#endif
