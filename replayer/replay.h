/*
 * The replay interface: everything above the replayer (gdb stub, commands, profiles) uses
 * this and nothing below it.
 *
 * A recording has processes and threads, each with a number of its own (its index in the trace):
 * unlike a tid it means one thread in all of history. Ordered events (system calls, signals; with
 * the `fence` memory model also locked and fence instructions) are numbered over all threads.
 *
 * A position belongs to a thread. What a user sees is SEQ:STEPS[+REP]: the number of the last
 * ordered event that the thread has passed, the instructions it has executed since, and the
 * iterations done of a REP instruction under way. All positions of a recording have one total
 * order: by SEQ; where two threads have the same (before a thread's first event, or where nothing
 * numbers events across threads) by the thread's number; then by steps. So between two events of
 * its own a thread does all it does at once, as far as the order is concerned: what really
 * happened at the same time needs some order, and this one contradicts no ordered event.
 *
 * A replay has one current position, the moment. Moving it is exact and deterministic; going back
 * uses checkpoints made on the way. At the moment every other thread stands at its last position
 * that sorts before. One thread is selected: registers, memory and mappings are as it sees
 * them. Selecting another thread leaves the moment where it is.
 *
 * Who goes along when the moment is moved is the scope, see replay_set_scope(). By default it is
 * the selected thread's process: replay_continue() goes through the histories of all its threads in
 * that one order, from the moment on, and stops in whichever thread something comes first;
 * replay_step() takes the selected thread a step further, and everybody else to where the order has
 * them then. After a move the selected thread is the one that stopped.
 */
#ifndef DEJA_REPLAYER_REPLAY_H
#define DEJA_REPLAYER_REPLAY_H

#include "format/error.h"
#include "format/regs.h"
#include "format/trace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct replay;

struct replay_pos {
	uint32_t thread;      /* number */
	uint32_t signals;     /* delivered after `steps` instructions; positions of a thread order
			       * by steps, then this, then rep */
	uint64_t steps, rep;  /* executed by the thread; iterations of a REP instruction */
	uint64_t seq, within; /* SEQ:STEPS. replay_seek() does not look at them */
};

/* Negative, 0 or positive as `a` sorts before, is, or sorts after `b`. */
int replay_pos_cmp(const struct replay_pos *a, const struct replay_pos *b);

enum replay_dir { REPLAY_FORWARD, REPLAY_BACKWARD };

enum replay_reason {
	REPLAY_STEPPED,	       /* the asked-for steps are done */
	REPLAY_BREAK,	       /* at a breakpoint address */
	REPLAY_WATCH,	       /* a watchpoint triggered: `watch` */
	REPLAY_SYSCALL_ENTRY,  /* before a caught system call: `sysno` */
	REPLAY_SYSCALL_RETURN, /* after it */
	REPLAY_SIGNAL, /* a signal is about to be delivered: `signo` (only if signals are reported)
			*/
	REPLAY_FORKED, /* a child was made: `child` */
	REPLAY_EXECED, /* the image was replaced */
	REPLAY_BEGIN,  /* the beginning of history */
	REPLAY_END,    /* the end of history; `exited`/`status` if the program ended there */
	REPLAY_INTERRUPTED, /* replay_interrupt() */
	REPLAY_FAILED,	    /* divergence or damage: `err` */
};

struct replay_stop {
	enum replay_reason reason;
	struct replay_pos pos;
	int32_t pid, tid;    /* of the process and the thread that stopped, which is selected */
	int watch;	     /* REPLAY_WATCH: the id given to replay_watch_add */
	uint64_t watch_addr; /* an address inside the watched range that was accessed */
	uint64_t sysno;
	int signo;
	int32_t child;	/* REPLAY_FORKED: its pid */
	uint32_t how;	/* and how it was made: DJ_CHILD_FORK and so on */
	bool exited;	/* REPLAY_END: the program ended (else recording just stops) */
	int32_t status; /* wait(2) status when exited */
	struct dj_error err;
};

/* A divergence found by checking digests or by the emulator getting stuck. */
struct replay_divergence {
	bool found;
	struct replay_pos pos;
	char part[16];	/* first register that differs if known, else "" */
	char text[400]; /* one line, with expected and found */
};

/* Open for debugging (memory is tracked so that a debugger can read it). NULL on error. */
struct replay *replay_open(const char *path, struct dj_error *err);
void replay_close(struct replay *r);
struct dj_trace *replay_trace(struct replay *r);

/* The moment. */
void replay_pos(struct replay *r, struct replay_pos *pos);
/* The ends of history. */
void replay_begin_pos(struct replay *r, struct replay_pos *pos);
void replay_end_pos(struct replay *r, struct replay_pos *pos);
/* The ends of a thread's history. */
void replay_thread_begin(struct replay *r, uint32_t thread, struct replay_pos *pos);
void replay_thread_end(struct replay *r, uint32_t thread, struct replay_pos *pos);
/* "SEQ:STEPS[+REP]" of the moment, with "@TID" behind it if the recording has several threads. */
void replay_pos_text(struct replay *r, char *buf, size_t size);
/* Move to a position given as text: "12:345", "12:345+6", either with "@TID" (without, the
 * selected thread's if it has one, else that of the first thread that has); "begin", "end"; or a
 * plain instruction count of the selected thread; or a time ("1.5s", "20ms@TID"), where the thread
 * (without @TID the selected one if it lived then, or else the first that did) was then. All others
 * are where the order of events has them, as after any move. Stays put on error, as
 * replay_seek() does. */
int replay_goto_text(struct replay *r, const char *text, struct dj_error *err);
/* A time of `len` characters, "250us", "10ms", "1.5s", to the nearest microsecond; false: not one.
 */
bool replay_time(const char *word, size_t len, uint64_t *us);
/* Whether a position is given as a time. */
bool replay_text_is_time(const char *text);
/* Move to a position of any thread. Stays put on error. Being interrupted is one; but that is
 * answered at once, and who is on his way then and would take longer than a tenth of a second to
 * stand where he was is left on it. */
int replay_seek(struct replay *r, const struct replay_pos *pos, struct dj_error *err);

/*
 * Whose histories moves go through, that is, in whose threads conditions are looked for.
 *
 *   REPLAY_THREAD     The selected thread alone. Its position becomes the moment and the others are
 *                     where the order has them then; what they pass on the way is not told. That is
 *                     gdb's `set scheduler-locking on`, a vCont packet with one action for one
 *                     thread and none for the others (vCont;s:pP.T).
 *   REPLAY_PROCESS    The threads of the selected thread's process: gdb's `scheduler-locking off`
 *                     with `schedule-multiple off`, vCont;c:pP.-1 or vCont;s:pP.T;c:pP.-1.
 *   REPLAY_PROCESSES  All threads: `schedule-multiple on`, vCont;c.
 *
 * The scope stays until it is set again. It makes no difference where it holds one thread only, nor
 * in a throw-away copy.
 */
enum replay_scope { REPLAY_THREAD, REPLAY_PROCESS, REPLAY_PROCESSES };
void replay_set_scope(struct replay *r, enum replay_scope scope);

/*
 * One instruction (one iteration of a REP instruction) of the selected thread, either way, from
 * where it stands. Breakpoints at where it comes to are not looked at; watchpoints and catchpoints
 * are. A signal's delivery is a step of its own: from the faulting or interrupted instruction to
 * the first of the handler.
 *
 * Its new position is the moment then. Between two instructions of a thread there may be much of
 * others: forwards, all that sorts before the new position comes to pass. With a scope of several
 * threads that is looked through for conditions, breakpoints included; the first of them stops,
 * with its thread selected, and the step has not been made. So does gdb with a program that runs:
 * while one thread steps the others go on, and a breakpoint that one of them hits is what is
 * reported. An instruction that is no ordered event has nothing between it and the next.
 *
 * A step back that is interrupted is undone, as replay_seek() does it.
 */
void replay_step(struct replay *r, enum replay_dir dir, struct replay_stop *stop);
/*
 * Run until a breakpoint, watchpoint, catchpoint, the end of history or replay_interrupt(). A
 * breakpoint at the starting position does not count.
 *
 * With a scope of several threads this starts from the moment, whichever thread of the scope is
 * selected, and goes from segment to segment of the threads in the order of positions. A thread
 * that ends is no reason to stop: REPLAY_END is when no thread of the scope has any history left,
 * REPLAY_BEGIN when all stand at their beginnings.
 */
void replay_continue(struct replay *r, enum replay_dir dir, struct replay_stop *stop);
/* Step while rip is in [lo, hi), as gdb's vCont;r wants (stops also on all that continue does). */
void replay_step_range(struct replay *r, uint64_t lo, uint64_t hi, struct replay_stop *stop);
/* Make a running replay_continue() come back soon; async-signal- and thread-safe. */
void replay_interrupt(struct replay *r);
/* Polled every few milliseconds while running; returns true to interrupt. May be NULL. */
void replay_set_poll(struct replay *r, bool (*poll)(void *), void *ctx);

/* Right after opening: what checkpoints of all threads may take together,
 * in bytes, instead of 1 GB or a quarter of the machine's memory. */
void replay_budget(struct replay *r, uint64_t bytes);

/*
 * What an earlier replay has found out and kept beside the trace (deja-trace(5)): use it, right
 * after opening; and keep what is known now, if there is much more of it than was kept, or
 * `always`. If there is no room for any of it that is an error, and what was kept stays.
 */
void replay_use_index(struct replay *r);
int replay_keep(struct replay *r, bool always, struct dj_error *err);
/* Go through all of history, to keep it. -1 with err; 1: interrupted. */
int replay_cover(struct replay *r, struct dj_error *err);

/*
 * Go through history ahead of the user, so that later moves are quick, until busy(ctx), which is
 * asked every few milliseconds, says that somebody waits. Everything stands where it stood then.
 * And how much has been gone through, of how many instructions.
 */
void replay_ahead(struct replay *r, bool (*busy)(void *ctx), void *ctx);
void replay_ahead_progress(struct replay *r, uint64_t *done, uint64_t *all);

/* ---- conditions ------------------------------------------------------------------ */
int replay_break_add(struct replay *r, uint64_t addr); /* counted: add twice, remove twice */
int replay_break_del(struct replay *r, uint64_t addr);
/*
 * Asked of each breakpoint that a thread comes to while it runs, forwards or in a search back:
 * false, and nothing stops there. It may be asked very often, and of the same place more than once.
 * Only replay_regs(), replay_gpr() and replay_read() may be called meanwhile, and memory that only
 * others than the thread could tell of is not known then. What cannot be decided has to be true.
 */
typedef bool replay_holds_fn(void *ctx, uint32_t thread, uint64_t addr);
void replay_set_condition(struct replay *r, replay_holds_fn *holds, void *ctx);
enum { REPLAY_WATCH_WRITE = 1, REPLAY_WATCH_READ = 2, REPLAY_WATCH_ACCESS = 3 };
/*
 * Watch `len` bytes. A write watch triggers when the bytes CHANGE value (stores and imports both;
 * like gdb's hardware watch of a local expression), a read watch when a thread reads them. Forward
 * stops are after the accessing instruction, backward ones before it. Returns an id >= 0.
 *
 * With a scope of several threads any of them triggers it, and is selected then; a change is what
 * is one in the order of positions: that a thread finds what another has stored is none. Before an
 * instruction that is an ordered event others may have done a lot since its thread's last position.
 * A backward stop passes none of that: the moment is the last position of all before the event,
 * often another thread's (`pos`), and the selected thread stands at its own. With a scope of one
 * thread, and for ranges longer than a page, a change is what is one to that thread.
 */
int replay_watch_add(struct replay *r, uint64_t addr, uint64_t len, unsigned kind);
void replay_watch_del(struct replay *r, int id);
/* Catch system calls: n numbers, or all if n is 0; on=false stops catching. */
void replay_catch_syscalls(struct replay *r, bool on, const uint64_t *numbers, size_t n);
/* Report signals (REPLAY_SIGNAL) as a debugger wants; bit signo of mask. */
void replay_report_signals(struct replay *r, uint64_t mask);

/* ---- state, as the selected thread sees it ----------------------------------------- */
void replay_regs(struct replay *r, struct dj_regs *regs);
/* One general register: DJ_RAX, ... For who asks often; replay_regs() copies a kilobyte. */
uint64_t replay_gpr(const struct replay *r, unsigned reg);
/*
 * Copy memory at the moment; returns how many bytes from addr on are known. What the selected
 * thread has read or written last holds, unless another thread of its process has changed the byte
 * at a later position up to the moment (by a store, a system call, or in that it found it changed);
 * what it has never met is as the others have it. So a variable that another thread has written and
 * handed over is shown as written before the selected thread looks, and in a data race each thread
 * shows what it really saw. The others are replayed up to the moment for that, once. In a
 * throw-away copy: as the thread sees it.
 */
size_t replay_read(struct replay *r, uint64_t addr, void *buf, size_t len);
/* siginfo of the signal that arrives at this position; false if there is none. */
bool replay_siginfo(struct replay *r, uint8_t out[128]);
/* The system call in progress or just done at this position, for `catch syscall`. */

struct replay_mapping {
	uint64_t start, end, offset;
	uint32_t prot, flags;
	int32_t module;
	const char *name; /* "" if anonymous */
};
/* The mappings at the current position, by address. Valid until the position changes. */
size_t replay_mappings(struct replay *r, const struct replay_mapping **maps);
/* The one that holds addr; false if there is none. */
bool replay_mapping_at(struct replay *r, uint64_t addr, struct replay_mapping *out);

/* ---- processes and threads ----------------------------------------------------------- */
#define REPLAY_ALL UINT32_MAX

struct replay_process {
	uint32_t number;
	int32_t pid;
};
struct replay_thread {
	uint32_t number, process; /* numbers */
	int32_t pid, tid;
	const char *name; /* at the moment; "" if not known */
};
/* Those that are alive at the moment, by number; of one process, or REPLAY_ALL. A thread is alive
 * from the first position of its history to the last; one whose recording stops before it
 * ended, ever after. Returns how many there are, of which at most `max` are in `out`. */
size_t replay_processes(struct replay *r, struct replay_process *out, size_t max);
size_t replay_threads(struct replay *r, uint32_t process, struct replay_thread *out, size_t max);
/* The thread of these ids (pid 0: in any process) that is alive at the moment; false if there is
 * none. */
bool replay_thread_find(struct replay *r, int32_t pid, int32_t tid, struct replay_thread *out);
/* The selected thread. */
void replay_thread(struct replay *r, struct replay_thread *out);
/* Select a thread that is alive at the moment. Not in a throw-away copy. */
int replay_select(struct replay *r, uint32_t thread, struct dj_error *err);

enum replay_doing {
	REPLAY_RUNS,	/* the next step is an instruction or a signal's delivery */
	REPLAY_CALLS,	/* the next step is a system call: `sysno` */
	REPLAY_FINISHED /* there is no next step */
};
/* Where a thread stands at the moment, and what it does next. */
struct replay_doings {
	struct replay_pos pos;
	enum replay_doing doing;
	uint64_t sysno;
};
int replay_thread_doings(struct replay *r, uint32_t thread, struct replay_doings *out,
			 struct dj_error *err);

/* ---- a throw-away copy ------------------------------------------------------------- */
/* Fork the state at the current position into a copy in which registers and memory can be
 * written and code run forward by plain emulation (most system calls fail with a message;
 * those that allocate memory work, and what is written to standard output or error goes to
 * the function given to replay_set_output()).
 * Everything above then works on the copy until replay_discard(), which goes back to the
 * recorded history. */
int replay_fork_copy(struct replay *r, struct dj_error *err);
bool replay_in_copy(struct replay *r);
void replay_set_output(struct replay *r, void (*output)(void *ctx, const void *bytes, size_t len),
		       void *ctx);
void replay_discard(struct replay *r);
int replay_write(struct replay *r, uint64_t addr, const void *buf, size_t len);	  /* copy only */
int replay_set_regs(struct replay *r, const struct dj_regs *regs, uint64_t mask); /* copy only */

/* ---- observers -------------------------------------------------------------------------- */
/* How a thread came to an instruction that is not simply the next one: an edge, which is told when
 * it has been taken. Where it leads, a basic block was entered. */
enum {
	REPLAY_SEE_JUMP = 1, /* a jump, conditional or not, that was taken */
	REPLAY_SEE_FALL = 2, /* a conditional jump that was not */
	REPLAY_SEE_CALL = 4,
	REPLAY_SEE_RETURN = 8,
	REPLAY_SEE_SIGNAL = 16, /* to a signal's handler, from the instruction it interrupts */
	REPLAY_SEE_ENTRY = 32,	/* by other means: back from a handler, to a new image */
	REPLAY_SEE_BLOCKS = 63, /* all of them: every block that is entered, but the first */
};
struct replay_edge {
	uint32_t thread;   /* number */
	unsigned kind;	   /* one of the above */
	uint64_t from, to; /* addresses of instructions */
	uint64_t steps;	   /* of the thread at `to` */
	uint64_t sp;	   /* its stack pointer there */
};
struct replay_observer {
	unsigned kinds; /* which to tell of */
	void *ctx;
	void (*see)(void *ctx, const struct replay_edge *edge);
};
/* From now on tell of edges taken by replay_step(), replay_step_range() and replay_continue()
 * forward in recorded history; NULL: no more. What one sees is decided when code is bound: where
 * nobody observes it costs nothing. Not from within an observer. */
void replay_observe(struct replay *r, const struct replay_observer *o);

/* ---- verification ------------------------------------------------------------------ */
struct replay_verify_result {
	uint64_t translated; /* instructions executed in translated code */
	uint64_t again; /* threads in which that went wrong, done again by the emulator alone */
	uint64_t instructions, events, digests, imports, effects;
	uint64_t flags, memory; /* compared beside the digests: so many times flags; bytes */
	double seconds;
	struct replay_divergence div;
};
/* Whether replay_verify() may execute what it replays in translated code. It does so from the
 * start, where the host can and where that is worth it. */
void replay_translate(bool may);
/* Ground that is only passed may be covered in translated code, by processes that call this first
 * and end if it answers false: it takes all rights from the process. NULL: they are not begun. */
void replay_confine(bool (*fn)(void));
/* Replay every thread from the start without tracking, comparing all digests, and telling `o` (may
 * be NULL) of all its edges; without `o`, on all processors at once. Returns 0 if the trace could
 * be replayed as far as it reaches (div.found tells whether it matched; div is the first divergence
 * in the order of positions), -1 on a bad trace. `progress` (may be NULL) is called now and then
 * with done/total, by the thread that called this. */
int replay_verify(struct dj_trace *t, struct replay_verify_result *out,
		  const struct replay_observer *o, void (*progress)(uint64_t done, uint64_t total),
		  struct dj_error *err);

#endif
