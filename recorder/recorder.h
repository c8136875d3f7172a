/*
 * The recorder's own header: what its files share.
 *
 * What a recording consists of:
 *   struct rec_recording  one trace and whatever takes part in it
 *   struct rec_process    an address space: mappings, code, the translator; and a process of the
 *                         kernel's: its number, limits, what SIGTRAP does
 *   struct rec_thread     a traced thread: registers, control block, ring, and its state
 *
 * Files, from the loop outwards:
 *   loop.c       the states of a thread, and the one wait (its essay first)
 *   tracer.h     what is asked of the kernel; tracer-ptrace.c asks it
 *   hand.c       taking a thread in hand and letting it go on
 *   gather.c     bringing all threads out of the cache
 *   cache.c      stops in translated code; ahead.c, store.c, ask.c: those that need not be
 *   near.c       those that come so often that a processor is to be shared
 *   call.c       system calls made in a thread for our own purposes
 *   image.c      a new process image; layout.c: where it lies; heir.c, estate.c: what others had
 *   area.c       deja's memory in it (area.h); limits.c, filter.c, collide.c, locked.c: its room
 *   thread.c     threads that the program starts; area-thread.c: deja's memory for them
 *   child.c      processes that it starts; follow.c: those that are recorded (copy.c: their
 *                memory), vfork.c: in their parent's memory; leave.c: no more; helper.c: others
 *                that share its memory
 *   syscalls.c   the system calls that the supervisor performs, in a table
 *   native.c     instructions executed natively; cpuid.c
 *   signals.c    what signals mean and where they are delivered (its essay first)
 *   deliver.c    how they are; sigtrap.c: the one that deja uses itself; handler.c: what they see
 *   maps.c       mappings; maplog.c, mapturn.c: without a stop; hide.c: lists; modules.c, perfmap.c
 *   code.c       the program's code as the translator reads it
 *   calldata.c   what system calls wrote, for a debugger; written.c: to the stack
 *   check.c      digests: what a replay is compared with; keyframe.c: where it can begin;
 *                idle.c: where a thread sleeps and others want its memory
 *   order.c      numbers of ordered events, and what they take
 *   ring.c       the ring buffer and the thread that writes it out
 *   start.c      start; end.c; clock.c; meta.c: of machine and program; forward.c: deja's signals
 *
 * One rule holds it together: a thread is either in the cache (its registers are the processor's,
 * its gs base is S) or in hand: stopped, with the program's registers in `t->regs` and `t->steps`
 * exact. Handlers bring it from the first state to the second (rec_take), work there, and return
 * REC_IN_HAND, whereupon it goes on (rec_go_on).
 */
#ifndef DEJA_RECORDER_RECORDER_H
#define DEJA_RECORDER_RECORDER_H

#include "format/error.h"
#include "format/mappings.h"
#include "format/record.h"
#include "format/trace.h"
#include "insn/insn.h"
#include "recorder/ask.h"
#include "recorder/heir.h"
#include "recorder/module.h"
#include "recorder/hide.h"
#include "recorder/clock.h"
#include "recorder/counts.h"
#include "recorder/cpuid.h"
#include "recorder/idle.h"
#include "recorder/keyframe.h"
#include "recorder/layout.h"
#include "recorder/near.h"
#include "recorder/permit.h"
#include "recorder/record.h"
#include "recorder/series.h"
#include "recorder/tracer.h"
#include "translator/area.h"
#include "translator/translate.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/user.h>

#define TRAP_FLAG 0x100ULL /* TF in RFLAGS */

struct rec_ring;
struct rec_spare;
struct rec_process;
struct rec_filter;

/* What a signal does, as rt_sigaction has it. */
struct rec_action {
	uint64_t handler, flags, restorer, mask;
};

/* The recording: one trace, whatever takes part in it. */
struct rec_recording {
	struct rec_options opt;
	struct rec_tracer *tracer;
	struct dj_writer *writer;
	struct dj_error *err;
	char *const *argv, *const *envp;
	struct rec_module *modules; /* by module number of the trace */
	size_t n_modules;
	int inotify;	 /* 0: not needed yet */
	int64_t started; /* seconds, of the clock that files' times are of */
	char **labels;	 /* names that mappings have, of those that are no files */
	size_t n_labels;
	struct rec_process *processes;
	struct rec_process *first;
	struct rec_heir *heirs; /* translators without a process */
	struct rec_thread *threads;
	uint64_t steps, stops, natives;	 /* of threads that are done */
	struct rec_stray *strays;	 /* stops that are to be looked at (loop.c) */
	struct rec_thread *by_tid[2048]; /* a hash (loop.c) */
	bool turns, held; /* somebody waits in WAIT or TRAP_WAIT; and for what is no stop */
	bool rests;	  /* of some process there is something (ahead.c) */
	bool files;	  /* processes may have descriptors in common (clone with CLONE_FILES) */
	uint64_t counts[REC_COUNTS];
	uint64_t kept_room, made_room; /* for kept translations, bytes */
	struct rec_cpuids cpuid;
	struct rec_keyframes keyframes;
	struct rec_keeper *keeper; /* times.c */
	struct rec_idles idles;
	int store;     /* the directory of store.c; 0: not needed yet */
	bool wrote;    /* something to there */
	uint64_t who;  /* what deja may do (estate.c); 0: not needed yet */
	bool umip;     /* the processor has it (apart.c) */
	uint64_t evex; /* instructions with an EVEX prefix, executed natively */
	bool cut;      /* recording ends before the program does: err says why */
	bool fatal;    /* deja failed: err says how */
	bool killing;  /* the program is being killed for either reason */
	struct rec_asking asking;
	struct rec_nearness near;
	bool began;		 /* the program has been started */
	bool told;		 /* that a child goes on unrecorded */
	struct {		 /* order.c */
		bool waits;	 /* some thread does, for a lock */
		bool more;	 /* ... and goes on in a moment, by itself */
		bool shared;	 /* several threads take their numbers from one counter */
		uint64_t number; /* what that began with */
		int fd;		 /* the pages of the order; 0: not needed yet */
		uint8_t *pages;
	} order;
};

#define REC_ARENAS    16 /* at most, in an image; TR_ARENA_SIZE bytes each */
#define REC_LIMITS    3
#define REC_OWN_PARTS 2048 /* threads at once, beside the first of an image */

/* What a thread is doing, and so what its next stop means. loop.c has the table. */
enum rec_state {
	REC_IN_HAND, /* nothing is under way: rec_go_on() finds what is next */
	REC_STARTING,
	REC_EXEC_OUT,
	REC_CACHE,
	REC_BOUNDARY,
	REC_CALL,
	REC_SYSCALL,
	REC_SIGRETURN,
	REC_NATIVE,
	REC_NATIVE_RUN,
	REC_TRAP,
	REC_HANDLER,
	REC_FATAL_SIGNAL,
	REC_NEW_THREAD,
	REC_WAIT,
	REC_TRAP_WAIT,
	REC_CHILD,
	REC_VFORK,
	REC_HELPER,
	REC_KILLED,
	REC_FREE,
	REC_GONE,
	REC_STATES
};

struct rec_thread;
/* What follows an injected system call. */
typedef enum rec_state rec_then(struct rec_thread *t, int64_t result);

/* An address space and the code translated for it. */
struct rec_process {
	struct rec_process *next;
	struct rec_recording *rec;
	pid_t pid;
	int memfd;			/* the shared areas and arenas */
	uint64_t memfd_size, memfd_end; /* of which so much is used */
	uint64_t number;     /* the counter of ordered events had at least this value (order.c) */
	bool order_mapped;   /* the pages of the order are the recording's */
	bool not_forked;     /* the kernel leaves deja's memory, but for those, out of copies */
	uint64_t area_at;    /* of the first thread, with the windows behind */
	uint8_t *tables;     /* of indirect targets, below the S of each thread; ours... */
	uint64_t tables_off; /* ... and in memfd */
	struct {
		uint64_t at, off; /* of the arenas, in the program and in memfd */
		bool hidden;	  /* PROT_NONE (arena.c) */
		struct rec_arena arena[REC_ARENAS];
	} window;
	struct rec_series_page series; /* with which it makes calls in a row, if any */
	struct rec_heritage heir;
	struct {
		uint64_t at, off; /* of the own parts of threads but the first, in both */
		uint64_t used[REC_OWN_PARTS / 64]; /* bits */
		struct rec_spare *spares;	   /* areas of threads that have ended */
		unsigned n_spares, n_areas;	   /* n_areas: beside the first */
	} own;
	struct rec_thread *busy; /* does what only one thread may at a time (loop.c) */
	struct {
		struct rec_thread *by; /* wants all others out of the cache, */
		rec_then *then;	       /* and this when they are */
	} gather;
	unsigned n_threads;		   /* that have not ended */
	struct rec_code_facts *code_facts; /* what made which code executable; NULL: nothing has */
	uint64_t n_facts;		   /* recorded */
	struct rlimit limits[REC_LIMITS], kernel_limits[REC_LIMITS]; /* the program's own, and what
									the kernel has (limits.c) */
	bool more_files; /* the limit of descriptors leaves room for one */
	bool limits_known, raised;
	int mem;		     /* handle of the memory */
	struct rec_pagemap *pagemap; /* of that, or NULL (untouched.c) */
	struct translator *tr;
	struct rec_process *parent; /* whose copy it is, while both have that image */
	struct rec_note *wanted;    /* what its copies stopped for (ahead.c) */
	unsigned n_wanted, arenas_noted;
	uint64_t program_key;	 /* a hash of the path of what it executes */
	int program;		 /* the module that it executes, or -1: not known yet */
	bool own_code;		 /* it has come to that */
	struct dj_stream *facts; /* its stream in the trace */
	uint32_t image;		 /* how many exec has replaced */
	struct rec_noted *noted; /* by module (ahead.c) */
	size_t n_noted;
	struct rec_notes *stopped; /* for what it stopped last, if that was noted before: which */
	unsigned stopped_at;	   /* its number plus 1 */
	struct rec_rests *rests;   /* what is still to be translated (ahead.c), or NULL */
	struct rec_thread *hand;   /* the thread in hand: the translator works and records for it */

	struct dj_mappings maps;
	uint64_t brk;
	struct rec_logged logged;
	struct rec_code_page **pages, *page; /* hash by page; the one asked for last, or NULL */
	struct rec_told *told; /* pages of modules that the trace has other bytes of (code.c) */
	unsigned n_pages, n_asleep;
	bool telling; /* the trace may be told of code although the program runs (ask.c) */
	uint64_t vdso, vdso_end, vdso_syscall; /* where it is; a syscall instruction in it */

	struct {
		struct rec_action action;  /* what the program wants */
		bool lost;		   /* the kernel has SIG_DFL instead */
		uint64_t resets, restores; /* so often traps of ours saw to that; it was put back */
		struct rec_thread *due;	   /* it is for this thread, as soon as that is safe */
		bool faults, expected; /* a handler of faults has seen flags; or may, says a note */
	} trap;			       /* SIGTRAP (sigtrap.c), and faults */
	bool writes_memory;	       /* through a descriptor of it */
	bool no_arena;		       /* there was no room for an arena */
	bool idle;		       /* shadows of threads that sleep are to be given back */
	bool child;		       /* not recorded, only brought on its way (child.c) */
	bool exits;		       /* it has called exit_group */
	const char *leaving;	       /* it is to be recorded no more (leave.c), for this reason */
	bool follow; /* a child that will be recorded from its exec on (vfork.c) */
	bool free;   /* goes on unrecorded (end.c) */
	bool ended;  /* its first thread has, with this wait(2) status: */
	int status;
};

/* One stop of a thread, as wait() reported it. */
struct rec_stop {
	int status;
	int event; /* PTRACE_EVENT_, or 0 */
	int sig;
	siginfo_t info; /* if there is no event */
	bool sync; /* a signal that the thread's own instruction caused, steps and traps included */
};

/* A thread (tracee, in the words of ptrace(2)). */
struct rec_thread {
	struct rec_thread *next, *same; /* same: in rec->by_tid */
	struct rec_recording *rec;
	struct rec_process *proc;  /* whose memory it is in, */
	struct rec_process *group; /* and what it is a thread of: another one between vfork and exec
				      (vfork.c) */
	pid_t tid;

	enum rec_state state;
	enum rec_resume
		how; /* the request under way, repeated after a stop that is none of its own */
	struct {
		uint64_t rip, rcx;
	} from;		 /* where it was let go on */
	bool stopped;	 /* by job control */
	bool can_inject; /* stopped for a signal: the next request may carry one */

	uint8_t *own;	  /* its AREA_THREAD bytes, in our address space... */
	uint64_t own_off; /* ... and in memfd */
	int own_part;	  /* which of proc->own, or -1: the first thread's */
	uint64_t s;	  /* S in the program */
	uint64_t gs_base; /* the program's: see rec_gs() */
	struct rec_ring *ring;
	struct rec_times *times;      /* times.c */
	struct dj_stream *stream;     /* its stream in the trace */
	struct user_regs_struct regs; /* the program's, when in hand */
	uint64_t steps;
	uint64_t seq;			  /* ordered events passed */
	uint64_t seq_at;		  /* t->steps just after the last of them */
	uint64_t signalled;		  /* t->steps at the last signal; UINT64_MAX: none */
	uint64_t epoch;			  /* of the translator, when it entered the cache */
	uint64_t last_digest, digest_gap; /* where it was; so many instructions to the next */
	struct rec_keyframe keyframe;
	struct rec_idle idle;
	struct rec_layout layout;
	struct rec_hiding hide;
	char *why;		       /* its history ends before it does */
	uint64_t image_at, written_at; /* where it began; the stack was last compared (written.c) */
	uint64_t checked;	       /* mappings up to here, by the latest digest */
	struct rec_filter *filters;    /* of seccomp (filter.c) */
	siginfo_t *pending;	       /* signals put aside */
	unsigned n_pending, cap_pending;
	struct {
		bool blocked, instead; /* ...; rt_sigaction has SIG_DFL for SIG_IGN */
		bool again; /* `info` has been taken from the kernel, which is to have it back */
		bool then_call, left; /* the handler is put back before a call; by others */
		siginfo_t info;
		struct rec_action action, back; /* the argument of rt_sigaction; of ours, ... */
		uint64_t resets; /* ...and how many there had been when that was begun */
	} trap;			 /* SIGTRAP (sigtrap.c) */
	bool quiet; /* calls made for us stop at their entry and exit, where no signal is forced */
	bool held;  /* all others are blocked meanwhile... */
	uint64_t mask;	     /* ... and this is what the program blocks */
	bool trap_flag;	     /* in hand: the program has it set (native.c) */
	bool in_rep, pushes; /* in hand between iterations of a string; stepped over a pushf */
	bool flags_lost;  /* in hand where arithmetic flags are dead and may not be the program's */
	bool flags_made;  /* in hand: the kernel or the processor has just made them */
	unsigned beyond;  /* so many places were passed for that since a signal was put aside */
	bool in_hand;	  /* regs and steps are valid */
	bool overwritten; /* T_STEPS is not to be believed */
	bool lost;	  /* it was killed while we asked for its registers: they are not known */
	bool asked;	  /* to stop, by the clock */
	bool hand_over;	  /* the ring, when next in hand */
	/* How it entered the cache: there, with this in T_STEPS, with flags just made, at this
	 * instruction of the program's, after so many, between two iterations of it. */
	struct {
		uint64_t at, lagged, pc, steps;
		bool flags_made, in_rep;
	} entered;
	struct {			  /* starve.c */
		siginfo_t info;		  /* a signal that comes late; of none si_signo is 0 */
		unsigned in_a_row, slice; /* came where it entered; microseconds to run first */
		bool runs;		  /* for those, none coming in */
	} late;
	struct rec_ask ask;
	bool minds; /* what it is about to execute may show where it may be (near.c) */
	uint64_t stops, natives, stops_at_tick;
	struct rec_clocked clock;
	uint64_t facts;	   /* of the process, that hold for it */
	uint64_t log_done; /* bytes of its log that have been dealt with (maplog.c) */
	bool closed;	   /* its stream */
	bool ended;	   /* with this wait(2) status: */
	int status;

	struct {
		bool waits;	       /* in the cache, for a lock: it does not run */
		int64_t lock;	       /* this one */
		uint64_t owner, steps; /* it has been waiting for, at these T_STEPS... */
		int64_t since;
		unsigned stops, looks; /* since then; since the last stop */
	} order;

	/* of the operation under way */
	unsigned count; /* REC_BOUNDARY: steps made */
	unsigned tries; /* leave.c */
	struct {
		rec_then *then;
		struct rec_series *series; /* (series.c) */
		uint64_t at, end;	   /* end: that of what makes them, or 0 */
		bool entry, borrowed; /* quiet: the entry is still to come; `saved` are needed */
		uint8_t saved[2];     /* bytes of the program that the instruction stands in for */
	} call;
	struct {
		uint64_t ahead;		   /* arenas are there for what is mapped before this */
		struct rec_filter *filter; /* that is being installed */
		uint64_t at;		   /* the instruction that makes it */
		struct user_regs_struct regs;
		uint64_t clone_flags; /* of what it makes, if it makes a process or thread */
		bool quiet; /* without a trap: it stops at its entry, which is to come, and exit */
		bool entry, waits;	       /* ...; it waits for its turn */
		bool trap_flag, traps_blocked; /* by what rt_sigreturn reads */
		bool in_vfork, out_of_vfork;   /* asleep; stopped behind that (child.c) */
		bool filtered;		       /* it was not let through; signal.info says so */
	} sys;
	struct {
		struct dj_regs before;
		struct insn in;
		uint8_t code[INSN_MAX];
		bool known, masked, in_rep, traps; /* the trap flag was set before it */
		uint64_t pc, rax, rdx;
		uint64_t nowhere;	  /* where it is made to fault instead */
		uint64_t faulted, wanted; /* there once, instead of here: see deliver.c */
		/* of what is executed apart (apart.c): where, or 0, and at which of the places; the
		 * int3; where the program goes on; and the registers that it is lent */
		uint64_t apart, stop_at, behind, lent_rax, lent_rsp;
		unsigned place;
	} native;
	struct {
		siginfo_t info;
		uint64_t after;
		struct dj_regs full;   /* if it interrupted a system call: at its return */
		bool sent;	       /* by itself, though it may look like an exception */
		uint64_t exception[2]; /* error code and number of the program's last one */
	} signal;
	struct {
		bool exec, closes; /* for it nobody makes mapping calls in the cache */
		bool forked;	   /* the image is the parent's */
		bool out;	   /* execve is over: t->regs are those of the new image */
		int fd;		   /* of the shared file, in the program */
		uint64_t at, text;
		uint8_t saved[40];
		struct dj_regs first;
		unsigned arena;
		int way;  /* to get the file (area.c) */
		int link; /* ours, which the program opens; or -1 */
		rec_then *then;
		int64_t error; /* it cannot be had */
		bool gone;     /* it has been unmapped */
		bool empty;    /* or its shadow been given back */
		char why[200];
	} area;
	struct {
		uint64_t at;
		int flags;
	} lock; /* mlockall */
	struct {
		uint64_t start, end, from, to;
		bool first; /* thread's area is being moved */
		unsigned part, n;
		struct {
			uint64_t start, end;
		} more[2];
	} way; /* that is being cleared (collide.c) */
	struct {
		rec_then *then;
		int next;
		uint64_t at, was;
		uint8_t saved[16];
		struct rlimit old, new, to;
		int asked;
		bool older;
		int64_t result;
	} limits;
	struct { /* helper.c; of a thread that is looked at: */
		struct rec_thread *by;
		bool held;
		struct user_regs_struct regs;
		/* of the helper: */
		struct rec_thread *of;
		bool shares; /* the program's memory */
		bool entry, answered, waits, told;
		unsigned calls;
		uint64_t status; /* where wait4 wants it */
		int64_t result;
	} helper;
	struct {
		uint64_t mask;
		bool held; /* it blocks all signals, and this is its own mask: */
		bool trap; /* it is to have what T_INHERITED says */
		struct rec_range {
			uint64_t at, size;
		} * unmap;
		unsigned n_unmap;
	} child;
};

/* The control block, relative to S. The program uses it at the same time. */
static inline _Atomic uint64_t *rec_tcb(const struct rec_thread *t, int off)
{
	return (_Atomic uint64_t *)(void *)(t->own + (off - T_RING));
}

/* ---- loop.c ---- */
/* Until no traced thread is left. */
void rec_loop(struct rec_recording *rec);
struct rec_thread *rec_thread_new(struct rec_process *proc, pid_t tid, enum rec_state state);
struct rec_process *rec_process_new(struct rec_recording *rec, pid_t pid);
/* Let a stopped thread go on; remembers how. */
void rec_run(struct rec_thread *t, enum rec_resume how, int sig);
void rec_strays_free(struct rec_recording *rec);
/* Whether it is this thread's turn to do what only one thread of a process may do at a time; until
 * it goes on, no other gets it, nor makes a mapping call in the cache. If not: return REC_WAIT, and
 * rec_go_on() will be called again. */
bool rec_turn(struct rec_thread *t);
/* It needs it no more, if it has it. */
void rec_turn_over(struct rec_thread *t);

/* ---- the handlers of the states ---- */
typedef enum rec_state rec_handler(struct rec_thread *t, const struct rec_stop *stop);
rec_handler rec_on_starting;	 /* start.c */
rec_handler rec_on_exec_out;	 /* image.c */
rec_handler rec_on_cache;	 /* cache.c */
rec_handler rec_on_boundary;	 /* cache.c */
rec_handler rec_on_call;	 /* call.c */
rec_handler rec_on_syscall;	 /* syscalls.c */
rec_handler rec_on_sigreturn;	 /* syscalls.c */
rec_handler rec_on_native;	 /* native.c */
rec_handler rec_on_native_run;	 /* native.c */
rec_handler rec_on_trap;	 /* deliver.c */
rec_handler rec_on_handler;	 /* deliver.c */
rec_handler rec_on_fatal_signal; /* deliver.c */
rec_handler rec_on_new_thread;	 /* thread.c */
rec_handler rec_on_child;	 /* child.c */
rec_handler rec_on_vfork;	 /* vfork.c */
rec_handler rec_on_helper;	 /* helper.c */

/* ---- regs.c ---- */
int rec_get_regs(struct rec_thread *t, struct user_regs_struct *r);
int rec_set_regs(struct rec_thread *t, const struct user_regs_struct *r);
/* The program's gs base: translated code finds it in the control block, where the program may write
 * to; what is recorded is ours. */
void rec_set_gs(struct rec_thread *t, uint64_t base);
uint64_t rec_gs(struct rec_thread *t);
/* Everything, as the program sees it (general registers from t->regs). */
void rec_full_regs(struct rec_thread *t, struct dj_regs *out);
void rec_from_user(const struct user_regs_struct *u, struct dj_regs *out);
/* In hand: where the last x87 instruction was, and its operand, as the program sees it. */
void rec_x87_place(struct rec_thread *t);
/* The same for all threads in hand that do not run: translations are about to be given up. */
void rec_x87_places(struct rec_process *proc);
size_t rec_read(struct rec_process *proc, uint64_t addr, void *buf, size_t len);
bool rec_write(struct rec_process *proc, uint64_t addr, const void *buf, size_t len);

/* ---- hand.c ---- */
/* The sum of T_STEPS: the instructions executed, but for the lag of the place; and make it that. */
uint64_t rec_lagged(const struct rec_thread *t);
void rec_lagged_set(struct rec_thread *t, uint64_t steps);
/* How far the thread has come: in the cache, T_STEPS, if that can be; else recording ends, and it
 * is what was last known. */
uint64_t rec_steps(struct rec_thread *t);
/* Registers of the program from where the thread is stopped in the cache; with `rec_take` they are
 * t->regs, and the thread is in hand. */
void rec_own_regs(const struct rec_thread *t, const struct user_regs_struct *r,
		  const struct tr_where *w, struct user_regs_struct *own);
void rec_take(struct rec_thread *t, const struct user_regs_struct *r, const struct tr_where *w);
/* In hand: signals put aside, then the cache. */
enum rec_state rec_go_on(struct rec_thread *t);
/* The fragment for the program's code at `pc`; what tr_fragment() says. TR_FULL only if there are
 * other threads in the cache. */
enum tr_found rec_fragment(struct rec_thread *t, uint64_t pc, struct tr_frag **f);
/* Execute one instruction at r->rip with these registers, as part of the operation `state`. */
enum rec_state rec_step(struct rec_thread *t, const struct user_regs_struct *r,
			enum rec_state state);
/* In hand: an instruction that wrote to the shadow will not be executed after all. Shadow and trace
 * get the lines of memory at [addr, addr+size) as they are; what cannot be read is left out. */
void rec_import(struct rec_thread *t, uint64_t addr, unsigned size);

/* ---- cache.c ---- */
/* Step the thread to where it can be taken in hand (signals.c). */
enum rec_state rec_step_to_boundary(struct rec_thread *t);

/* ---- call.c ---- */
/* A system call made by the program on our behalf; in hand; registers are kept. `then` is told its
 * result. */
enum rec_state rec_call(struct rec_thread *t, rec_then *then, uint64_t nr, uint64_t a, uint64_t b,
			uint64_t c, uint64_t d, uint64_t e, uint64_t f);

/* ---- idle.c ---- */
/* In hand: shadows of others are to be given back, and it is its turn. */
bool rec_idle_is_due(struct rec_thread *t);
enum rec_state rec_idle_begin(struct rec_thread *t);

/* ---- native.c ---- */
/* In hand: execute the instruction at t->regs.rip. */
enum rec_state rec_native_begin(struct rec_thread *t);
unsigned rec_why_native(const struct insn *in); /* DJ_WHY_ */
/* Stopped for a signal: in hand before the instruction, if nothing of it has been executed. */
bool rec_native_left(struct rec_thread *t);
/* It has changed the trap flag, which another single step would set before anybody has looked. */
bool rec_native_stepped(struct rec_thread *t);

/* ---- syscalls.c ---- */
/* The map of system calls that generated code leaves to us. */
void rec_syscalls_init(struct rec_thread *t);
bool rec_call_allowed(struct rec_thread *t);
/* Make the call natively; or it has this result. */
enum rec_state rec_make_call(struct rec_thread *t);
enum rec_state rec_make_last_call(struct rec_thread *t);
enum rec_state rec_answer(struct rec_thread *t, int64_t result);
/* In hand at a system call of that map. */
enum rec_state rec_syscall(struct rec_thread *t);
/* In hand at a system call that is done, with this result: what the program sees, and the record.
 */
void rec_complete_call(struct rec_thread *t, uint64_t result);
/* Stopped in an operation that makes a system call of the program's: whether that can still be left
 * undone. */
bool rec_call_not_begun(struct rec_thread *t);

/* ---- meta.c ---- */
struct dj_writer *rec_create_trace(struct rec_thread *t);
/* Put the command line of the image into the trace. */
void rec_command(struct rec_thread *t);
/* A thread's name, as the kernel has it. */
void rec_thread_name(const struct rec_thread *t, char name[64]);

#include "recorder/children.h"
#include "recorder/end.h"
#include "recorder/image.h"
#include "recorder/maps.h"
#include "recorder/ring.h"
#include "recorder/signals.h"

#endif
