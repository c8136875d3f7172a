/*
 * The emulator of one thread: registers, a shadow of memory, and the means to run.
 *
 * It knows nothing of trace files. Whoever drives it (replayer/thread.c) gives it code (the
 * fetch callback), tells it how far to run, and applies records at the positions where they
 * belong. Loads and stores touch the shadow only, exactly as the recorded program's
 * instrumentation did: each byte at its address mod 2^32, which an access reaches by going straight
 * on past the shadow's end, where its beginning is mapped once more. No address is ever "unmapped"
 * here.
 *
 * An instruction is bound once to a handler (emu_bind_* find one from the decoded
 * instruction) and kept in a block; running is calling handlers in a row. A handler
 * performs the whole instruction except for rip and the step count, which the block
 * loop owns; only control transfers set cpu.rip.
 */
#ifndef DEJA_EMU_EMU_H
#define DEJA_EMU_EMU_H

#include "format/cpu.h"
#include "format/error.h"
#include "format/regs.h"
#include "insn/insn.h"

#include <endian.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* A vector register: four 64-bit words, host-endian each. Element access goes through
 * the macros, so that a big-endian host sees the same elements. */
union emu_vec {
	uint64_t q[4];
	uint32_t d[8];
	uint16_t w[16];
	uint8_t b[32];
};
#if __BYTE_ORDER == __BIG_ENDIAN
#define VQ(v, i) ((v)->q[i])
#define VD(v, i) ((v)->d[(i) ^ 1])
#define VW(v, i) ((v)->w[(i) ^ 3])
#define VB(v, i) ((v)->b[(i) ^ 7])
#else
#define VQ(v, i) ((v)->q[i])
#define VD(v, i) ((v)->d[i])
#define VW(v, i) ((v)->w[i])
#define VB(v, i) ((v)->b[i])
#endif

/* Where the emulator is left for good. The compiler's own way, where it can be had,
 * asks nothing of the thread, which may be without fs for a while (fast/fast-fault.c); sanitizers
 * know the C library's only. */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) &&      \
	!defined(__clang__)
#define EMU_OWN_JUMPS	   1
#define emu_setjmp(place)  __builtin_setjmp(place)
#define emu_longjmp(place) __builtin_longjmp(place, 1)
typedef void *emu_jmp_buf[5];
#else
#define EMU_OWN_JUMPS	   0
#define emu_setjmp(place)  setjmp(place)
#define emu_longjmp(place) longjmp(place, 1)
typedef jmp_buf emu_jmp_buf;
#endif

#define EMU_ZERO_REG 16 /* gpr[16] is always 0: "no base", "no index" */

/* Lazy flags. What the last flag-setting instruction left behind, from which the six
 * arithmetic flags are computed when someone asks. Owned by emu/emu-flags.h. */
struct emu_lazy {
	uint32_t op;
	uint64_t a, b, r;
};

struct emu_cpu {
	uint64_t gpr[17];
	uint64_t rip;
	struct emu_lazy lazy; /* arithmetic flags: use emu_get_flags()/emu_set_flags() */
	uint64_t other_flags; /* the rest of rflags, DF included (bit 1 and IF set) */
	uint64_t segbase[3];  /* [0] is 0, [1] fs base, [2] gs base */
	uint16_t sel[6];      /* es cs ss ds fs gs */
	union emu_vec v[16];
	uint32_t mxcsr;
	/* x87, by PHYSICAL register; top is bits 11..13 of fsw, kept apart */
	uint64_t x87_mant[8];
	uint16_t x87_exp[8];
	uint8_t x87_top, x87_ftw; /* ftw: abridged, bit r = physical register r in use */
	uint16_t fcw, fsw;	  /* fsw without top */
	uint16_t fop;
	uint64_t fip, fdp;
};

struct emu;
struct emu_uop;
typedef void emu_fn(struct emu *e, const struct emu_uop *u);

/* One bound instruction. */
struct emu_uop {
	emu_fn *fn;
	uint64_t next; /* address of the instruction after this one */
	int64_t imm;   /* immediate, or absolute branch target */
	int64_t disp;  /* displacement; rip-relative addresses are folded into it */
	uint8_t base, index, shift, seg; /* EMU_ZERO_REG if none; seg indexes cpu.segbase */
	bool addr32;
	uint8_t a, b, c, d; /* register numbers or small constants, as the binder likes */
	uint8_t size;	    /* operand size in bytes */
	uint8_t cond;	    /* condition code 0..15 */
	uint16_t flags;	    /* EMU_UOP_... */
	const struct insn *insn;
};
enum {
	EMU_UOP_BRANCH = 1, /* sets cpu.rip itself; ends a block */
	EMU_UOP_REP = 2,    /* string instruction with a REP prefix */
	EMU_UOP_FENCE = 4,  /* an ordered event in the `fence` model: locked or fence */
};

/* Why emu_run() came back. */
enum emu_stop {
	EMU_STOP_STEPS = 0, /* reached the wanted position */
	EMU_STOP_UNKNOWN,   /* the next instruction cannot be decoded or is not emulated */
	EMU_STOP_FETCH,	    /* no code is known at rip */
	EMU_STOP_FAULT,	    /* the next instruction would fault (divide error...) */
	EMU_STOP_REQUEST,   /* a hook asked to stop (stop_requested) */
	EMU_STOP_BREAK,	    /* stop_at() said yes at cpu.rip, instruction not executed */
	EMU_STOP_YIELD,	    /* in the middle of a REP instruction that takes long: run again */
	EMU_STOP_FENCE,	    /* before a fence, of which fence_limit have been executed */
};

/* How control came from one instruction to another that is not simply the next: what an observer
 * may want to know of, as bits. Each is told after the branch was executed; where it leads begins
 * a basic block. */
enum {
	EMU_SEE_JUMP = 1, /* a jump, conditional or not, that was taken */
	EMU_SEE_FALL = 2, /* a conditional jump that was not */
	EMU_SEE_CALL = 4,
	EMU_SEE_RETURN = 8,
	EMU_SEE_ALL = 15,
};
static inline unsigned emu_edge_kind(const struct insn *in, uint64_t to)
{
	if (in->attr & INSN_A_CALL)
		return EMU_SEE_CALL;
	if (in->attr & INSN_A_RET)
		return EMU_SEE_RETURN;
	/* a conditional jump to the next instruction goes the same way, taken or not */
	return in->attr & INSN_A_COND && to == in->addr + in->len ? EMU_SEE_FALL : EMU_SEE_JUMP;
}
struct emu_edge {
	unsigned kind;	   /* one of the above */
	uint64_t from, to; /* addresses of the branch and of the next instruction */
	uint64_t steps;	   /* e->steps once the branch counts */
	uint64_t sp;	   /* the stack pointer then */
};

/* A REP instruction that is done. */
struct emu_rep {
	const struct insn *insn;
	uint64_t asked, done; /* iterations: the count register at first; and how far it went */
	uint64_t steps;	      /* e->steps once it counts */
};

/* How often the instructions of a stretch of code were executed: each of them `whole` times, and
 * beyond that more[i] times (NULL: none of them). */
struct emu_counts {
	const struct emu_uop *uops;
	unsigned n;
	uint64_t whole;
	const uint64_t *more;
};

/* Of which instruction somebody wants to hear, as bits. */
enum {
	EMU_WANT_EDGE = 1,  /* where it branches to */
	EMU_WANT_POINT = 2, /* that it is about to be executed */
	EMU_WANT_REP = 4,   /* how many iterations it has done */
};

/*
 * Who is told what the emulator does. Everything is decided when code is bound, so what nobody asks
 * for costs nothing; `ctx` is the emulator's.
 */
struct emu_observer {
	unsigned kinds; /* of edges: EMU_SEE_... */
	void (*see)(void *ctx, struct emu *e, const struct emu_edge *edge);
	/* May be NULL: the same of many, in their order, for who has many to tell. */
	void (*see_all)(void *ctx, struct emu *e, const struct emu_edge *edges, size_t n);
	/* Asked of each instruction as it is bound: EMU_WANT_.... NULL: all edges, nothing else. */
	unsigned (*wants)(void *ctx, struct emu *e, const struct insn *in);
	void (*point)(void *ctx, struct emu *e, const struct insn *in);
	void (*rep)(void *ctx, struct emu *e, const struct emu_rep *rep);
	/* If `counts` is not NULL, executions are counted. Counts are told when the code is
	 * forgotten or emu_tell_counts() is called, once and then counted from 0 again: of
	 * instructions, and how often a branch led where. */
	void (*counts)(void *ctx, struct emu *e, const struct emu_counts *c);
	void (*branched)(void *ctx, struct emu *e, const struct insn *in, uint64_t to,
			 uint64_t count);
	/* For who executes code in another way than here (fast/): it may do so, and tell what is
	 * wanted itself. `late`: see() may be called some time after the edge was taken, though in
	 * order and before anything else is told; the emulator's state is that of a later position
	 * then. */
	bool others, late;
	/* `returns`: edges are only wanted of returns, and of those that leave the stack pointer
	 * above e->returns_above (as signed numbers); others may be told. */
	bool returns;
};

/* Where the emulator is, exactly, also from within a callback. */
struct emu_now {
	uint64_t rip, steps, fences, fence_steps;
};

enum {
	EMU_HOOK_IMPORT = 1, /* this step has imports: call before_load before each load */
	EMU_HOOK_TRACK = 2,  /* call after_load / before_store / after_store for each access */
	EMU_HOOK_FENCE = 4,  /* emu_run() stops before the fence that would exceed fence_limit */
};

struct emu {
	struct emu_cpu cpu;
	enum dj_cpu_kind
		kind;	    /* whose processor to be; the host's until set, before any code runs */
	uint8_t *shadow;    /* 2^32 bytes, sparse, then the first 64 KiB again */
	unsigned hooks;	    /* EMU_HOOK_... */
	bool exact;	    /* hooks want exact rip and steps, and to stop at once */
	bool mirror_stores; /* false with --predict=last|none: stores leave the shadow alone */
	uint64_t steps;	    /* instructions executed */
	uint64_t fences;    /* EMU_UOP_FENCE instructions executed */
	uint64_t fence_steps; /* steps just after the last of them */
	uint64_t fence_limit; /* with EMU_HOOK_FENCE: execute no more than so many */
	uint8_t ordinal;      /* number of the next load within the instruction */
	bool in_rep;	      /* stopped between iterations of the REP instruction at rip */
	uint64_t rep_iter;    /* iterations done of the REP instruction at rip, while in_rep */
	bool stop_requested;
	char why[160]; /* detail for UNKNOWN, FETCH, FAULT */
	emu_jmp_buf escape;

	/* Callbacks of the driver; `ctx` is theirs. */
	void *ctx;
	/* Copy up to `len` code bytes at `addr` into buf; returns how many are known. */
	size_t (*fetch)(void *ctx, uint64_t addr, uint8_t *buf, size_t len);
	void (*before_load)(void *ctx, struct emu *e, uint64_t addr, unsigned size);
	void (*after_load)(void *ctx, struct emu *e, uint64_t addr, unsigned size);
	/* `bytes`: what is (to be) stored, little-endian */
	void (*before_store)(void *ctx, struct emu *e, uint64_t addr, unsigned size);
	void (*after_store)(void *ctx, struct emu *e, uint64_t addr, unsigned size,
			    const uint8_t *bytes);
	/* If not NULL, with EMU_HOOK_TRACK: the instruction wrote there what the shadow does not
	 * have; `bytes` may be NULL, then nobody knows what, or whether. */
	void (*unseen_store)(void *ctx, struct emu *e, uint64_t addr, unsigned size,
			     const uint8_t *bytes);
	/* If not NULL: asked before each instruction (block cache still used); true stops. All of
	 * the emulator's state is exact then. */
	bool (*stop_at)(void *ctx, struct emu *e);
	/* If not NULL: whether stop_at() might say yes for an instruction that begins in
	 * [lo, hi); elsewhere it is not asked. Kept per block until stop_generation changes. */
	bool (*stop_within)(void *ctx, uint64_t lo, uint64_t hi);
	uint32_t stop_generation; /* never 0 when stop_within is set */

	struct emu_observer observer; /* set by emu_observe() */
	uint64_t returns_above;
	/* Not 0: EMU_HOOK_TRACK is only for accesses that touch so many bytes from watch_lo on; of
	 * others there may be calls, too. Set before emu_observe(). */
	uint64_t watch_lo, watch_size;
	bool unseen; /* for the time being it is told nothing; counts go on */

	/* Code that runs for the first time since `mark` was changed is told, a block at a time; if
	 * that is not 0. */
	uint32_t mark;
	void (*ran)(void *ctx, uint64_t lo, uint64_t hi);

	void *blocks; /* block cache, owned by emu/emu.c */

	/* If not NULL: told of code that is to be forgotten. For who has made something of it. */
	void (*forgotten)(void *ctx, uint64_t addr, uint64_t len);
	void *forgotten_ctx;
	void (*tell_counts)(void *ctx); /* with that context: tells what it has counted, too */
};

/* Below the shadow so many bytes of address space are kept free for what goes with it: they are not
 * accessible, and whoever uses them changes that. */
#define EMU_BELOW ((size_t)8 << 20)

/* Make an emulator with an all-zero shadow. NULL if memory cannot be had. */
struct emu *emu_new(struct dj_error *err);
void emu_free(struct emu *e);
/* Before a fork after which the new process goes on with this emulator: a descriptor of a copy of
 * what it will not have of the shadow, to be closed. -1 with errno. */
int emu_before_fork(const struct emu *e);
/* In the new process: this emulator's shadow is its own, as it was then. Of the others it has no
 * first bytes, and they are not to be used. Closes `fd`. False: it cannot be had. */
bool emu_after_fork(struct emu *e, int fd);
/* Zero the shadow and forget all code (exec). */
void emu_reset_memory(struct emu *e);
/* Zero the shadow (a keyframe). */
void emu_empty_shadow(struct emu *e);
/* Forget bound code in [addr, addr+len): its bytes changed. All of it, 0 and UINT64_MAX, only while
 * no code is being executed. */
void emu_forget_code(struct emu *e, uint64_t addr, uint64_t len);

void emu_get_regs(struct emu *e, struct dj_regs *r);
/* Set the parts named in mask (DJ_REG_...). */
void emu_set_regs(struct emu *e, const struct dj_regs *r, uint64_t mask);

/* Run until e->steps == until (exactly; a REP instruction counts when complete), or another
 * reason. Never executes an instruction partly, except as emu_run_rep() does, and a REP instruction
 * of millions of iterations: then it comes back between two of them with EMU_STOP_YIELD, so that
 * nobody has to wait for 2^60. */
enum emu_stop emu_run(struct emu *e, uint64_t until);
/* Execute one instruction, or ONE ITERATION if it is a REP string instruction (the last
 * iteration completes the instruction and counts the step). */
enum emu_stop emu_step(struct emu *e);
/* Execute iterations of the REP instruction at rip until its count register equals
 * `count` (completing it if that ends it). */
enum emu_stop emu_run_rep(struct emu *e, uint64_t count);

/* From now on tell this observer; NULL: nobody. All code is bound anew. Not while running. */
void emu_observe(struct emu *e, const struct emu_observer *o);
/* Tell all that was counted so far. Not while running. */
void emu_tell_counts(struct emu *e);
void emu_now(const struct emu *e, struct emu_now *now);
/* What the observer wants of an instruction: EMU_WANT_.... */
unsigned emu_wants(struct emu *e, const struct insn *in);

/* Tell unseen_store of all that this one, which is XSAVE, FXSAVE or of their kin, stores there. */
void emu_tell_saved(struct emu *e, const struct insn *in, uint64_t area);

/* Decode the instruction at rip; false if not known. */
bool emu_peek(struct emu *e, struct insn *out);

/* From a handler: leave the block before the current instruction took effect. */
_Noreturn void emu_raise(struct emu *e, enum emu_stop why, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Family binders: return the handler for a decoded instruction and fill in u->a.. as that
 * handler wants, or NULL if it is not theirs. Everything of struct emu_uop that does not
 * depend on the handler (next, imm, disp, base, index, shift, seg, addr32, size =
 * first operand's size, cond, insn) is filled in before; a..d are preset with the
 * register numbers of operands 0..3 (0 where the operand is not a register). Where processors
 * differ in->cpu says which handler it is to be. */
emu_fn *emu_bind_int(const struct insn *in, struct emu_uop *u);	   /* emu-int*.c */
emu_fn *emu_bind_string(const struct insn *in, struct emu_uop *u); /* emu-string.c */
emu_fn *emu_bind_vec(const struct insn *in,
		     struct emu_uop *u); /* emu-vec*.c: moves, integer, crypto */
emu_fn *emu_bind_fp(const struct insn *in,
		    struct emu_uop *u); /* emu-fp*.c: SSE/AVX/FMA/F16C floating point */
emu_fn *emu_bind_x87(const struct insn *in, struct emu_uop *u); /* emu-x87.c: x87 and MMX state */

/* ---- what handlers use ---------------------------------------------------------- */

/* Inlined by force: left to the compiler, half of the handlers call it. */
static inline __attribute__((always_inline)) uint64_t emu_ea(const struct emu *e,
							     const struct emu_uop *u)
{
	uint64_t a = e->cpu.gpr[u->base] + (e->cpu.gpr[u->index] << u->shift) + (uint64_t)u->disp;
	if (__builtin_expect(u->addr32, 0))
		a = (uint32_t)a;
	return a + e->cpu.segbase[u->seg];
}

/* One architectural load of `size` bytes (little-endian bytes in memory). An instruction that
 * loads a 32-byte operand makes ONE call with 32. */
static inline const uint8_t *emu_load_ptr(struct emu *e, uint64_t addr, unsigned size)
{
	const uint8_t *p = e->shadow + (uint32_t)addr;
	if (__builtin_expect(e->hooks != 0, 0)) {
		if (e->hooks & EMU_HOOK_IMPORT)
			e->before_load(e->ctx, e, addr, size);
		e->ordinal++;
		if (e->hooks & EMU_HOOK_TRACK)
			e->after_load(e->ctx, e, addr, size);
	}
	return p;
}

static inline uint8_t emu_load8(struct emu *e, uint64_t addr)
{
	return *emu_load_ptr(e, addr, 1);
}
static inline uint16_t emu_load16(struct emu *e, uint64_t addr)
{
	uint16_t x;
	memcpy(&x, emu_load_ptr(e, addr, 2), 2);
	return le16toh(x);
}
static inline uint32_t emu_load32(struct emu *e, uint64_t addr)
{
	uint32_t x;
	memcpy(&x, emu_load_ptr(e, addr, 4), 4);
	return le32toh(x);
}
static inline uint64_t emu_load64(struct emu *e, uint64_t addr)
{
	uint64_t x;
	memcpy(&x, emu_load_ptr(e, addr, 8), 8);
	return le64toh(x);
}

void emu_store_hooked(struct emu *e, uint64_t addr, const uint8_t *bytes, unsigned size);

/* One architectural store; `bytes` in memory order. */
static inline void emu_store(struct emu *e, uint64_t addr, const void *bytes, unsigned size)
{
	if (__builtin_expect((e->hooks & EMU_HOOK_TRACK) || !e->mirror_stores, 0))
		emu_store_hooked(e, addr, bytes, size);
	else
		memcpy(e->shadow + (uint32_t)addr, bytes, size);
}
static inline void emu_store8(struct emu *e, uint64_t addr, uint8_t x)
{
	emu_store(e, addr, &x, 1);
}
static inline void emu_store16(struct emu *e, uint64_t addr, uint16_t x)
{
	x = htole16(x);
	emu_store(e, addr, &x, 2);
}
static inline void emu_store32(struct emu *e, uint64_t addr, uint32_t x)
{
	x = htole32(x);
	emu_store(e, addr, &x, 4);
}
static inline void emu_store64(struct emu *e, uint64_t addr, uint64_t x)
{
	x = htole64(x);
	emu_store(e, addr, &x, 8);
}
/* 16- and 32-byte operands; `n` is 16 or 32. Bytes of *v beyond n are left alone. */
static inline void emu_load_vec(struct emu *e, uint64_t addr, union emu_vec *v, unsigned n)
{
	memcpy(v, emu_load_ptr(e, addr, n), n);
	for (unsigned i = 0; i < n / 8; i++)
		v->q[i] = le64toh(v->q[i]);
}
static inline void emu_store_vec(struct emu *e, uint64_t addr, const union emu_vec *v, unsigned n)
{
	uint64_t q[4];
	if (htole64(1) == 1) {
		emu_store(e, addr, v, n);
		return;
	}
	for (unsigned i = 0; i < 4; i++)
		q[i] = htole64(v->q[i]);
	emu_store(e, addr, q, n);
}

#endif
