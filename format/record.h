/*
 * The records of a trace: everything about a thread's history that cannot be recomputed from its
 * registers and its code.
 *
 * A record applies at a position in its thread: after `steps` instructions have been
 * executed in that thread, before the next one. A REP instruction counts as ONE step when
 * it is complete; a record that belongs to one of its iterations also carries `rep`, the
 * value of the count register (rcx, or ecx with an address-size prefix) at the start of that
 * iteration; `rep` is 0 for all else. Records of a stream are in order of (steps, then
 * descending rep, then ordinal).
 *
 * Most records lie in the stream of their thread:
 *
 *   IMPORT   The load number `ordinal` (0, 1, ... in the order in which the instruction
 *            loads) at this position found memory different from the shadow. `addr` is a
 *            multiple of 64; `data` is the line. The replayer copies it to the shadow just
 *            before that load. A straddling load may have several IMPORTs.
 *   EFFECTS  The instruction at this position was executed natively; `mask`/`regs` say
 *            which registers it changed (rip is always among them). It counts as a step.
 *            Emulation must not execute it. `why` tells why: time stamp, cpuid, unemulated...
 *   SYSCALL  The instruction at this position is a system call that came back with rax =
 *            `result`; rcx becomes the address of the next instruction and r11 `r11`.
 *            It counts as a step. An ordered event. The number is in the replayed rax.
 *   REGS     Outside of any instruction the registers named by `mask` became `regs`
 *            (first record of a stream: everything; after sigreturn; after exec). No step.
 *   SIGNAL   Signal `signo` arrived here, with `siginfo` (the kernel's 128 bytes). If it has
 *            a handler, `mask`/`regs` give the registers at the handler's first
 *            instruction; for a fatal signal mask is 0 and EXIT follows. A synchronous
 *            fault arrives before its instruction counts. No step. An ordered event.
 *            The kernel's frame for the handler is the `length` `bytes` at `addr` (as much of
 *            it as fits, perhaps nothing): memory for people to look at, of which the shadow
 *            knows nothing.
 *   DIGEST   The registers here have this digest (dj_regs_digest). No step. `mask`/`regs` (possibly
 *            none) are the registers themselves, to name the one that differs. `seq` is the number
 *            of ordered events that the thread has passed here, or DJ_SEQ_UNKNOWN.
 *   EXIT     The thread ended: `status` as wait(2) gives it.
 *   END      Recording of this thread ended here although the thread went on; `name` says
 *            why (a second thread, detach...).
 *   SEQ      The thread's next ordered event has the number `seq`, which is not its last plus one.
 *   ORDER    The instruction at this position is an ordered event with the number `seq` once it is
 *            complete, whatever it does: it read what another thread may have stored. No locked
 *            instruction, fence or system call has one.
 *   KEYFRAME From here on the thread can be replayed without what lies before: `mask`/`regs` are
 *            its registers, `seq` its ordered events. `what` says whether its shadow starts
 *            empty here (light) or what else it needs follows (full), as further KEYFRAMEs at this
 *            position (part): `length` `bytes` at `addr` of what `name` names.
 *   GAP      The next `length` instructions (0: it is not known how many) were not recorded;
 *            `name` says why. A KEYFRAME follows.
 *   MARK     Something for people: `what` it is, at the time `result` (nanoseconds since 1970, or
 *            0), with a text `name` or without. No step.
 *   CHECK    What else is compared here. The `length` `bytes` have (dj_check_unpack) those flags
 *            that are known, checksums of pieces of the shadow, and where memory is as the shadow
 *            has it. No step. A reader may pass over it.
 *   SYSDATA  Memory here has the `length` `bytes` at `addr`: a system call wrote some of them, or
 *            an instruction that leaves the shadow alone. Memory for people to look at.
 *
 * The facts of an address space lie in the stream of its process, since all its threads need them.
 * `thread` (an index, as everywhere outside of the file) caused the fact, at `steps` of its own,
 * having passed `seq` ordered events or DJ_SEQ_UNKNOWN:
 *
 *   MAP      The range [addr, addr+length) became mapped: prot, flags (mmap's), module
 *            number or -1, and the offset within the module; `name` for display.
 *   UNMAP, PROTECT   The range was unmapped, or its protection changed to `prot`.
 *   CODE     From here on the bytes at `addr` are `code`, `length` of them (<= 4096): code
 *            that is not (any more) what the module file says.
 *   EXEC     The process image was replaced here by image number `image` (that of the start is
 *            0), called `name`; REGS and MAPs follow. Shadow, code and mappings start afresh.
 *   CHILD    A child process `pid` was made here, in the way `what`. `subject` is its index among
 *            the recorded processes, or -1: it is not recorded. No step.
 *   THREAD   The thread `pid` was made or (`what`) got the name `name`. `subject` is its index
 *            among the recorded threads, or -1.
 */
#ifndef DEJA_FORMAT_RECORD_H
#define DEJA_FORMAT_RECORD_H

#include "format/regs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dj_record_kind {
	DJ_REC_IMPORT = 1,
	DJ_REC_EFFECTS,
	DJ_REC_SYSCALL,
	DJ_REC_REGS,
	DJ_REC_SIGNAL,
	DJ_REC_MAP,
	DJ_REC_UNMAP,
	DJ_REC_PROTECT,
	DJ_REC_CODE,
	DJ_REC_DIGEST,
	DJ_REC_CHILD,
	DJ_REC_EXEC,
	DJ_REC_EXIT,
	DJ_REC_END,
	DJ_REC_SEQ,
	DJ_REC_KEYFRAME,
	DJ_REC_GAP,
	DJ_REC_MARK,
	DJ_REC_THREAD,
	DJ_REC_SYSDATA,
	DJ_REC_ORDER = 22, /* 21 and 23 are no records */
	DJ_REC_CHECK = 24, /* the first that older readers pass over */
	DJ_REC_KINDS
};

/* Whether records of this kind lie in the stream of the process. */
static inline bool dj_record_is_fact(unsigned kind)
{
	return 1u << kind &
	       (1u << DJ_REC_MAP | 1u << DJ_REC_UNMAP | 1u << DJ_REC_PROTECT | 1u << DJ_REC_CODE |
		1u << DJ_REC_EXEC | 1u << DJ_REC_CHILD | 1u << DJ_REC_THREAD);
}

/* Whether records of this kind have `length` `bytes`, at most DJ_CODE_MAX. */
static inline bool dj_record_has_bytes(unsigned kind)
{
	return 1u << kind & (1u << DJ_REC_SIGNAL | 1u << DJ_REC_CODE | 1u << DJ_REC_KEYFRAME |
			     1u << DJ_REC_SYSDATA | 1u << DJ_REC_CHECK);
}

/* `what` it is, by kind. A reader takes values it does not know for something else. */
enum dj_child { DJ_CHILD_FORK, DJ_CHILD_VFORK, DJ_CHILD_CLONE, DJ_CHILDREN };
enum dj_thread_what { DJ_THREAD_MADE, DJ_THREAD_NAMED, DJ_THREAD_WHATS };
enum dj_keyframe { DJ_KEYFRAME_LIGHT, DJ_KEYFRAME_FULL, DJ_KEYFRAME_PART, DJ_KEYFRAMES };
enum dj_mark_what {
	DJ_MARK_USER,
	DJ_MARK_TIME,
	DJ_MARK_SWITCH_OUT,
	DJ_MARK_SWITCH_IN,
	DJ_MARK_COMMAND,
	DJ_MARKS
};

enum dj_why {
	DJ_WHY_UNEMULATED,
	DJ_WHY_TSC,
	DJ_WHY_CPUID,
	DJ_WHY_RANDOM,
	DJ_WHY_XSTATE,
	DJ_WHY_FAULTING,
	DJ_WHY_OTHER,
	DJ_WHYS
};

#define DJ_LINE	    64
#define DJ_CODE_MAX 4096
#define DJ_NAME_MAX 4096

/* A number of ordered events that nobody counted. */
#define DJ_SEQ_UNKNOWN UINT64_MAX

struct dj_record {
	enum dj_record_kind kind;
	uint64_t steps;
	uint64_t rep;
	uint8_t ordinal;
	uint64_t addr, length; /* IMPORT, MAP, UNMAP, PROTECT, CODE, SIGNAL, SYSDATA... */
	uint32_t prot, flags;  /* MAP, PROTECT */
	int32_t module;	       /* MAP: index into the trace's modules, or -1 */
	uint64_t offset;       /* MAP */
	uint64_t result, r11;  /* SYSCALL; MARK */
	uint32_t signo;	       /* SIGNAL */
	uint8_t siginfo[128];  /* SIGNAL */
	uint64_t mask;	       /* EFFECTS, REGS, SIGNAL, DIGEST, KEYFRAME: DJ_REG_... */
	uint8_t why;	       /* EFFECTS: enum dj_why */
	uint8_t insn[15];      /* EFFECTS: the instruction's bytes */
	uint8_t insn_len;
	uint8_t what;	     /* CHILD, THREAD, KEYFRAME, MARK: an enum of those above */
	uint64_t digest;     /* DIGEST */
	uint64_t seq;	     /* DIGEST, SEQ, ORDER, KEYFRAME and facts */
	int32_t pid, status; /* CHILD, THREAD; EXIT */
	int32_t subject;     /* CHILD: index of a process; THREAD: of a thread; or -1 */
	int32_t thread; /* facts: index of the thread that caused them; a writer need not say */
	uint32_t image; /* EXEC */
	const uint8_t
		*bytes;	  /* IMPORT (64), CODE, SIGNAL... (length): borrowed, see reader/writer */
	const char *name; /* MAP, END, EXEC...: borrowed, NUL-terminated, or NULL */
	struct dj_regs regs; /* EFFECTS, REGS, SIGNAL, KEYFRAME: the parts in `mask` */
};

/* Whether history can begin with it. */
static inline bool dj_record_is_keyframe(const struct dj_record *r)
{
	return r->kind == DJ_REC_KEYFRAME &&
	       (r->what == DJ_KEYFRAME_LIGHT || r->what == DJ_KEYFRAME_FULL);
}

/*
 * What a CHECK record has. The recorder's hardware flags are not always the program's: where the
 * program is about to overwrite them they may be anything. So it says which are meant.
 */
#define DJ_CHECK_PIECES 128
#define DJ_CHECK_PAGE	4096u
#define DJ_CHECK_SAME	0x100000u
struct dj_check {
	uint64_t flags_known, flags; /* RFLAGS, of which these bits are known; the others are 0 */
	unsigned n;
	struct dj_check_piece {
		uint64_t addr; /* all of it within one page */
		uint32_t length;
		uint32_t sum; /* dj_check_sum() of the thread's shadow there */
	} piece[DJ_CHECK_PIECES];
	/* Memory here is as the shadow has it, but for what SYSDATA records at this position say:
	 * for people to look at. */
	uint64_t same_addr;
	uint32_t same_length; /* at most DJ_CHECK_SAME */
};
uint32_t dj_check_sum(const void *bytes, size_t len);
/* For what is compared within one run of deja and gets into no file. */
uint64_t dj_sum(uint64_t seed, const void *bytes, size_t len);
/* Returns the number of bytes, at most DJ_CODE_MAX. */
size_t dj_check_pack(const struct dj_check *c, uint8_t *out);
/* False if the bytes are none. */
bool dj_check_unpack(struct dj_check *c, const uint8_t *bytes, size_t len);

/* "import", "syscall"...; "?" for strange kinds. */
const char *dj_record_kind_name(enum dj_record_kind k);
const char *dj_why_name(unsigned why);
/* What `what` means in a record of kind `k`; "?" for strange values. */
const char *dj_what_name(enum dj_record_kind k, unsigned what);

#endif
