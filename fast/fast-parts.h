/*
 * Between the engine's files.
 *
 *   fast.c        life, running, registers between the emulator and the processor
 *   fast-block.c  blocks: finding, linking, forgetting them
 *   fast-scan.c   which instructions make a block, and what is done with each
 *   fast-emit.c   their code
 *   fast-tell.c   what an observer wants to know of it: counts, branches
 *   fast-watch.c  leaving it before what the emulator has to tell
 *   fast-fault.c  exceptions in generated code
 *   fast-note.c   notes of what generated code reads, writes and runs
 *   fast-whose.c  and whether it is about what the page of the shadow belongs to
 *   fast-x87.c    x87 state between emulator and processor
 *   fast-enter.S  into generated code and out of it
 */
#ifndef DEJA_FAST_FAST_PARTS_H
#define DEJA_FAST_FAST_PARTS_H

#include "fast/fast-area.h"
#include "fast/fast.h"
#include "translator/cg.h"

#include <sys/types.h>

#define FAST_MAX   64 /* instructions of a block */
#define FAST_BIAS  16 /* generated code is left so many instructions before the wanted one */
#define FAST_CODE  (64UL << 20) /* bytes of code, mapped sparsely */
#define FAST_PAGES 4		/* that a block may be made from */

/* What is done with an instruction. */
enum fast_how {
	FAST_OUT, /* the emulator executes it */
	FAST_NOTHING,
	FAST_COPY,   /* as it is */
	FAST_SHADOW, /* with its memory operand on the shadow */
	FAST_LEA,    /* of an address relative to rip */
	FAST_FENCE,
	FAST_PUSH,
	FAST_POP,
	FAST_LEAVE,
	FAST_JUMP,
	FAST_COND, /* jcc, jrcxz, loop */
	FAST_CALL,
	FAST_RET,
	FAST_INDIRECT, /* jump or call */
};

#define FAST_EXITS (1u << 22) /* at most; each has a counter behind the code */
#define FAST_SLOT  12	      /* bytes of a jump out of a block that counts */

/* One way out of a block. */
struct fast_exit {
	enum { FAST_LIMIT, FAST_LINK, FAST_STEP, FAST_X87, FAST_WHOM } kind;
	bool taken;	  /* by a conditional branch, the last that was executed */
	uint8_t executed; /* instructions of the block */
	uint64_t target;  /* rip there */
	uint8_t *site;	  /* rel32 of the jump, in our mapping; NULL if it is no link */
	uint64_t thunk;	  /* where that leads if not linked */
	uint32_t next;	  /* of the exits that lead to the same block, 0: none */
};

/* A branch that is noted whenever it is executed. */
struct fast_branch {
	uint64_t from, to; /* to: 0 if it is indirect */
	unsigned kind;	   /* of edge, as the observer is told; 0: it is only counted */
	uint16_t rest;	   /* instructions of the block that are not executed by then */
	int16_t sp;	   /* to be added to what was noted */
	bool indirect;
	uint32_t ways, last; /* where it led, and where it did last: indices of struct fast_way */
};

/* Where an indirect branch led, and how often. */
struct fast_way {
	uint64_t to, count;
	uint32_t branch;
	uint32_t next; /* of the branch's; 0: none */
};

/* What generated code notes of it. */
struct fast_entry {
	uint32_t branch, unused;
	uint64_t to;   /* if it is indirect */
	uint64_t left; /* instructions, those of the block deducted */
	uint64_t sp;
};

struct fast_block {
	struct fast_block *next; /* in the hash */
	uint64_t pc;
	uint64_t entry;	   /* 0: nothing here can be translated, the emulator makes a step */
	uint64_t stub, in; /* for indirect branches: with the check, and behind it; 0: none yet */
	uint32_t incoming; /* first exit that leads here */
	bool flags_live;   /* at its entry flags may not be lost */
	/* if executions are counted: its ways out, its indirect branch, and its code */
	uint8_t n;
	uint8_t n_exits;
	uint16_t size; /* of its code */
	uint32_t exits, branch;
	uint8_t *bytes;
	unsigned n_pages;
	struct fast_use {
		uint64_t page;
		struct fast_use *next;
		struct fast_block *block;
	} use[FAST_PAGES];
};

#define FAST_BLOCK_BITS 17 /* lists in the hash */
#define FAST_PAGE_HASH	(1u << 12)

/* An instruction on its way into a block. */
struct fast_insn {
	struct insn in;
	enum fast_how how;
	unsigned wants; /* of it: EMU_WANT_... */
};

/* Where the program's r11 and the count are. */
enum fast_r11 {
	R11_COUNT, /* the count is in r11, the program's r11 in F_R11 */
	R11_FREE,  /* both in memory */
	R11_PROG,  /* the program's r11 is in r11 and in F_R11 */
	R11_DIRTY, /* the program's r11 is in r11 only */
};

struct fast_side {
	uint8_t *site;
	uint64_t target;
	unsigned executed;
	enum fast_r11 r11;
	uint32_t branch; /* to be noted, or 0 */
	bool watch;	 /* fast-watch.c: before the instruction at `target`, rcx is in F_RCX */
	bool whom;	 /* the same of fast-whose.c */
};

struct fast_scan {
	struct fast_insn i[FAST_MAX];
	unsigned n;
	uint64_t next; /* where it goes on behind the last one, if that says no other */
	bool flags_live;
	bool x87; /* or MMX: there is some */
	unsigned n_pages;
	uint64_t pages[FAST_PAGES];
	/* code bytes, fetched in pieces larger than an instruction */
	uint64_t window;
	size_t window_len;
	uint8_t bytes[256];
};

/* Notes: see fast-note.c. */
struct fast_notes {
	int fd;			/* the tables' memory */
	uint8_t *low, *high;	/* what is mapped for them */
	uint8_t *wrote, *found; /* the bytes for address 0; there is no first one of `wrote` */
	uint32_t shift;	     /* what generated code adds to the address of a byte that was read */
	unsigned char *seen; /* by page: it has been found to be there, in this way or that */
	bool wide;	     /* ymm31 is all ones while generated code runs */
	/* where C must not find anything while fs is the notes'; none with FAST_NOTE_SETS */
	uint8_t *guard, *guard_end;
	pid_t tid;	 /* whose fs it is */
	uint64_t faults; /* times that C found nothing there */
	struct fast_stretch {
		uint64_t lo, hi;
		unsigned at; /* which instruction of its block is the first */
	} * stretch;
	struct fast_ran {
		unsigned first, n;
	} * ran; /* which stretches a byte at F_RAN is about */
	unsigned n_stretches, n_ran;
	unsigned first, before_ran; /* of the block that is being made: its first, and what n_ran
				       was before */
	struct fast *f;
	/* what the block that is being made has noted by now, while its registers are the same */
	struct fast_noted {
		struct ea at;
		unsigned size, access;
	} noted[FAST_MAX];
	unsigned n_noted;
	/* whose each page of the shadow is: NULL, nobody asks (fast-whose.c) */
	bool (*met)(void *ctx, uint64_t addr);
	void *met_ctx;
	/* what the block that is being made has looked at, while its registers are the same */
	struct fast_looked {
		uint8_t base, index, scale, seg;
		bool addr32;
		uint64_t disp;
	} looked[FAST_MAX];
	unsigned n_looked;
};

struct fast {
	struct fast_notes *notes; /* NULL: nobody wants any */
	struct emu *e;
	uint8_t *ours;	   /* the code's writable mapping */
	uint8_t *code;	   /* and its executable one */
	struct cg c, cold; /* in two halves: what is executed, and ways out of it */
	struct fast_scan scan;
	struct fast_side side[3 * FAST_MAX + 1];
	unsigned n_sides;
	enum fast_r11 r11;
	uint64_t fs_base, gs_base; /* that code was made for */
	struct fast_block **hash;
	struct fast_use **pages;
	struct fast_exit *exits; /* 0 is FAST_EXIT_MISS */
	uint32_t n_exits, cap_exits;
	struct fast_chunk {
		struct fast_chunk *next;
		size_t used;
		struct fast_block blocks[512];
	} * chunks;
	uint64_t steps;
	/* what is told */
	bool watching;	    /* accesses to some bytes */
	bool counting;	    /* executions */
	bool asked;	    /* somebody wants to hear of single instructions */
	uint64_t *counters; /* by exit; behind the executable mapping of the code */
	struct fast_branch *branches;
	uint32_t n_branches, cap_branches;
	struct fast_way *ways;
	uint32_t n_ways, cap_ways, *way_hash, way_size;
	uint32_t block_branch;	/* of the block that is being made */
	struct fast_entry *log; /* FAST_LOG */
	struct fast_bytes {
		struct fast_bytes *next;
		size_t used;
		uint8_t bytes[65536];
	} * bytes;
	uint64_t emulated, stretch; /* the step until which the emulator was asked last; how many */
	bool want_x87;		    /* the code that is next asked for it */
	bool broken;
};

/* Our pointer into the control block. */
static inline void *fast_at(const struct fast *f, int32_t offset)
{
	return f->e->shadow + offset;
}
#define FAST_U64(f, offset) (*(uint64_t *)fast_at(f, offset))
#define FAST_U32(f, offset) (*(uint32_t *)fast_at(f, offset))

/* ---- fast.c ---- */
/* Whether this host's processor has registers that no translated instruction names: xmm16 to xmm31.
 */
bool fast_has_avx512(void);
/* Whether a program may execute wrfsbase; else it has to ask the kernel. */
bool fast_sets_bases(void);

/* ---- fast-scan.c ---- */
/* Read a block at pc into f->scan. The last instruction may be one for the emulator. */
void fast_scan_at(struct fast *f, uint64_t pc);

/* ---- fast-emit.c ---- */
/* The code of what was scanned at b->pc; false if there is no room. */
bool fast_emit(struct fast *f, struct fast_block *b);
/* b->stub, b->in; false if there is no room. */
bool fast_emit_stub(struct fast *f, struct fast_block *b);
/* The instruction's memory operand on the shadow. */
struct ea fast_operand(const struct fast *f, const struct insn *in);
/* r11 is the program's from here on; or may hold anything. */
void fast_r11_program(struct fast *f);
void fast_r11_free(struct fast *f);

/* ---- fast-watch.c ---- */
/* What is watched may have changed, with all code. */
void fast_watch_set(struct fast *f);
/* Code that leaves before the instruction if it accesses what is watched, or, where notes want to
 * know, what is on a page that is another's (fast-whose.c); `before` it are so many in the block.
 * r11 is the program's if it is part of an address. */
void fast_watch(struct fast *f, const struct fast_insn *x, unsigned before);
/* A jump out of the block before the instruction, and rcx back from F_RCX on the way. The answer
 * is what the caller fills in further. */
struct fast_side *fast_side_before(struct fast *f, const struct fast_insn *x, unsigned before);
/* The same before a return that is to be told. */
void fast_watch_return(struct fast *f, const struct fast_insn *x, unsigned before);

/* ---- fast-tell.c ---- */
#define FAST_LOG (FAST_GO + 16) /* each takes an instruction */
bool fast_tell_begin(struct fast *f);
void fast_tell_end(struct fast *f);
/* A branch that is to be noted; 0 if nobody wants to know. `taken`: of a conditional one. */
uint32_t fast_branch_new(struct fast *f, const struct fast_insn *x, bool taken, unsigned executed);
/* Note it here; r11 is the count. */
void fast_log_direct(struct fast *f, uint32_t branch);
/* Note an indirect one: r11 is its target, the count is in F_LEFT, rcx can be lost. */
void fast_log_indirect(struct fast *f, uint32_t branch);
/* The jump of a counted exit, which does not lead to a block yet: what to patch. */
uint8_t *fast_count_slot(struct fast *f, uint64_t thunk);
/* It leads to the entry now, or (0) to where it did first. False if there is no room. */
bool fast_count_link(struct fast *f, uint32_t exit, const struct fast_block *b);
/* Keep what is needed to tell the block's counts: f->scan has it. False if there is no memory. */
bool fast_keep(struct fast *f, struct fast_block *b);
/* Tell what was noted since the code was entered, at step `from` and with `left`. */
void fast_tell_log(struct fast *f, uint64_t from, uint64_t left);
/* Tell what was counted of a block. */
void fast_tell_block(struct fast *f, struct fast_block *b);
/* Tell all that was counted. */
void fast_tell_all(void *engine);
/* All code is gone. */
void fast_tell_flush(struct fast *f);

/* ---- fast-block.c ---- */
struct fast_block *fast_block_find(const struct fast *f, uint64_t pc);
bool fast_blocks_begin(struct fast *f);
void fast_blocks_end(struct fast *f);
void fast_flush(struct fast *f);
void fast_forget(struct fast *f, uint64_t addr, uint64_t len);
/* Made if need be; NULL if there is no memory. It may flush, and says so by `*flushed`. */
struct fast_block *fast_block_at(struct fast *f, uint64_t pc, bool *flushed);
/* The exit leads to the block from now on. */
void fast_link(struct fast *f, uint32_t exit, struct fast_block *b);
/* Indirect branches find it. False if there is no room for that. */
bool fast_indirect(struct fast *f, struct fast_block *b);
uint32_t fast_exit_new(struct fast *f, const struct fast_exit *x);

/* ---- fast-fault.c ---- */
/* The engine with this shadow runs in this thread; NULL: none does. */
void fast_running(uint8_t *shadow);
/* This thread can survive an exception in generated code. */
bool fast_catch(void);

/* ---- fast-note.c ---- */
extern struct fast_notes *fast_notes_here; /* of the engine that makes notes */
/* The access that comes now is noted; its registers are still those of before. */
void fast_note_access(struct fast *f, const struct ea *m, unsigned size, unsigned access);
/* The registers have other values from here on. */
void fast_note_changed(struct fast *f, uint32_t gprs);
/* The block that was scanned is made now, or will not be. */
void fast_note_block(struct fast *f);
void fast_note_undo(struct fast *f);
/* That all of it runs is noted here, if its last stretch without a branch begins with instruction
 * i; that no more than `executed` instructions have run, on a way out. */
void fast_note_last(struct fast *f, unsigned i);
void fast_note_side(struct fast *f, unsigned executed);
void fast_notes_free(struct fast *f);

/* ---- fast-whose.c ---- */
/* Code that leaves before the instruction if the place in the shadow to which it goes belongs to
 * another address, by 4 GiB or more. It is its memory operand with `more` bytes added to the
 * address, or, where `base` is a register's number, so many bytes from there. r11 is lost. */
void fast_whose(struct fast *f, const struct fast_insn *x, unsigned before, int base, int32_t more);
/* The instruction has been executed. */
void fast_whose_changed(struct fast *f, const struct fast_insn *x);

/* ---- fast-x87.c ---- */
/* Whether generated code can go on with it: no exception is unmasked. */
bool fast_x87_fits(const struct emu *e);
/* Into the processor. */
void fast_x87_load(struct fast *f);
/* Back, if the processor has it, which is then as C wants it. `keep`: it is of use. */
void fast_x87_store(struct fast *f, bool keep);

/* ---- fast-enter.S ---- */
void fast_enter(uint64_t entry);
extern const uint8_t fast_leave[], fast_other[], fast_fault[];

#endif
