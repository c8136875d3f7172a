/*
 * The replay interface: everything above the replayer (gdb stub, commands, profiles) uses
 * this and nothing below it.
 *
 * A replay has one current position. Moving it is exact and deterministic; going back
 * uses checkpoints made on the way. Memory and registers are those of the current thread
 * at the current position.
 *
 * Positions: `steps` counts the instructions the thread has executed, `rep` the iterations
 * done of a REP string instruction that is under way at this position (0 otherwise). What a
 * user sees is SEQ:STEPS[+REP]: the number of the last ordered event (system call,
 * signal; with the `fence` memory model also locked and fence instructions) and the
 * instructions after it.
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
	int32_t tid;
	uint32_t signals; /* delivered after `steps` instructions; positions order by steps,
			   * then this, then rep */
	uint64_t steps, rep;
};

enum replay_dir { REPLAY_FORWARD, REPLAY_BACKWARD };

enum replay_reason {
	REPLAY_STEPPED,	       /* the asked-for steps are done */
	REPLAY_BREAK,	       /* at a breakpoint address */
	REPLAY_WATCH,	       /* a watchpoint triggered: `watch` */
	REPLAY_SYSCALL_ENTRY,  /* before a caught system call: `sysno` */
	REPLAY_SYSCALL_RETURN, /* after it */
	REPLAY_SIGNAL, /* a signal is about to be delivered: `signo` (only if signals are reported)
			*/
	REPLAY_FORKED, /* a child was made: `pid` */
	REPLAY_EXECED, /* the image was replaced */
	REPLAY_BEGIN,  /* the beginning of history */
	REPLAY_END,    /* the end of history; `exited`/`status` if the program ended there */
	REPLAY_INTERRUPTED, /* replay_interrupt() */
	REPLAY_FAILED,	    /* divergence or damage: `err` */
};

struct replay_stop {
	enum replay_reason reason;
	struct replay_pos pos;
	int watch;	     /* REPLAY_WATCH: the id given to replay_watch_add */
	uint64_t watch_addr; /* an address inside the watched range that was accessed */
	uint64_t sysno;
	int signo;
	int32_t pid;
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

void replay_pos(struct replay *r, struct replay_pos *pos);
/* The ends of history of the current thread. */
void replay_begin_pos(struct replay *r, struct replay_pos *pos);
void replay_end_pos(struct replay *r, struct replay_pos *pos);
/* "SEQ:STEPS[+REP]" of the current position. */
void replay_pos_text(struct replay *r, char *buf, size_t size);
/* Move to a position given as text ("12:345", "12:345+6", "begin", "end", or a plain
 * instruction count). Stays put on error. */
int replay_goto_text(struct replay *r, const char *text, struct dj_error *err);
int replay_seek(struct replay *r, const struct replay_pos *pos, struct dj_error *err);

/* One instruction (one iteration of a REP instruction) either way. Breakpoints are not looked
 * at; watchpoints and catchpoints are. A signal's delivery is a step of its own: from the
 * faulting or interrupted instruction to the first of the handler. */
void replay_step(struct replay *r, enum replay_dir dir, struct replay_stop *stop);
/* Run until a breakpoint, watchpoint, catchpoint, the end of history or replay_interrupt(). A
 * breakpoint at the starting position does not count. */
void replay_continue(struct replay *r, enum replay_dir dir, struct replay_stop *stop);
/* Step while rip is in [lo, hi), as gdb's vCont;r wants (stops also on all that continue does). */
void replay_step_range(struct replay *r, uint64_t lo, uint64_t hi, struct replay_stop *stop);
/* Make a running replay_continue() come back soon; async-signal- and thread-safe. */
void replay_interrupt(struct replay *r);
/* Polled every few milliseconds while running; returns true to interrupt. May be NULL. */
void replay_set_poll(struct replay *r, bool (*poll)(void *), void *ctx);

/* ---- conditions ------------------------------------------------------------------ */
int replay_break_add(struct replay *r, uint64_t addr); /* counted: add twice, remove twice */
int replay_break_del(struct replay *r, uint64_t addr);
enum { REPLAY_WATCH_WRITE = 1, REPLAY_WATCH_READ = 2, REPLAY_WATCH_ACCESS = 3 };
/* Watch `len` bytes. A write watch triggers when the bytes CHANGE value as this thread sees
 * them (stores and imports both; like gdb's hardware watch of a local expression), a read
 * watch when the thread reads them. Forward stops are after the accessing instruction,
 * backward ones before it. Returns an id >= 0. */
int replay_watch_add(struct replay *r, uint64_t addr, uint64_t len, unsigned kind);
void replay_watch_del(struct replay *r, int id);
/* Catch system calls: n numbers, or all if n is 0; on=false stops catching. */
void replay_catch_syscalls(struct replay *r, bool on, const uint64_t *numbers, size_t n);
/* Report signals (REPLAY_SIGNAL) as a debugger wants; bit signo of mask. */
void replay_report_signals(struct replay *r, uint64_t mask);

/* ---- state ---------------------------------------------------------------------- */
void replay_regs(struct replay *r, struct dj_regs *regs);
/* Copy memory as seen at the position; returns how many bytes from addr on are known. */
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

size_t replay_threads(struct replay *r, int32_t *tids, size_t max);
int32_t replay_thread(struct replay *r);

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

/* ---- verification ------------------------------------------------------------------ */
struct replay_verify_result {
	uint64_t instructions, events, digests, imports, effects;
	double seconds;
	struct replay_divergence div;
};
/* Replay every thread from the start without tracking, comparing all digests. Returns 0 if
 * the trace could be replayed as far as it reaches (div.found tells whether it matched),
 * -1 on a bad trace. `progress` (may be NULL) is called now and then with done/total. */
int replay_verify(struct dj_trace *t, struct replay_verify_result *out,
		  void (*progress)(uint64_t done, uint64_t total), struct dj_error *err);

#endif
