/*
 * A pass: threads are replayed from their beginnings, as fast as the emulator goes and without what
 * a debugger needs, and listeners are told what they asked for, between two positions.
 *
 * A thread replays by its own records, so threads do not wait for each other: several are replayed
 * at the same time, each in one of the workers. A listener therefore keeps what it hears by thread
 * (what its begin() returned is given back with everything it is told of that thread) and adds it
 * up in end(). begin() and end() are called one at a time, in no particular order: adding up must
 * not depend on it.
 *
 * What is told is decided when code is bound: where nobody listens it costs nothing. Counting how
 * often code was executed costs next to nothing, edges cost their call, accesses all of theirs.
 */
#ifndef DEJA_REPLAYER_PASS_H
#define DEJA_REPLAYER_PASS_H

#include "insn/insn.h"
#include "replayer/replay.h"

struct replay_run; /* a thread that is being replayed */

/* Where code lies: in a module's file, or (module -1) at an address of a process. The same code has
 * the same place wherever it was loaded. */
struct replay_code {
	int32_t module;
	uint32_t process; /* number; 0 in a module */
	uint64_t offset;  /* in the file; without a module the address */
};

/* How often an instruction was executed. */
struct replay_count {
	const struct insn *insn;
	struct replay_code code;
	uint64_t count;
};

/* How often a branch led to `to`. */
struct replay_branch {
	const struct insn *insn;
	struct replay_code code, target;
	uint64_t to;
	uint64_t count;
};

struct replay_access {
	uint64_t addr;
	uint64_t size;
	bool write;
	/* What was read or written, as it lies in memory; NULL if nobody knows. */
	const uint8_t *bytes;
};

/* A REP instruction that is done, or (`interrupted`) left for a signal's handler. */
struct replay_rep {
	const struct insn *insn;
	uint64_t asked, done; /* iterations */
	uint64_t steps;
	bool interrupted;
};

enum replay_event_kind {
	REPLAY_EV_SYSCALL, /* number: the call's; result; args */
	REPLAY_EV_SIGNAL,  /* number: the signal's; handled: a handler is called */
	REPLAY_EV_NATIVE,  /* an instruction that was executed natively when it was recorded */
	REPLAY_EV_REGS,	   /* back from a signal's handler: the registers are loaded */
	REPLAY_EV_EXEC,	   /* the image was replaced */
	REPLAY_EV_CHILD,   /* number: pid of the child */
	REPLAY_EV_EXIT,	   /* number: wait(2) status */
};
struct replay_event {
	enum replay_event_kind kind;
	uint64_t number, result, args[6];
	bool handled;
};

/* What a listener may ask for when an instruction is bound. */
enum {
	REPLAY_WANT_EDGE = 1,  /* where it branches to */
	REPLAY_WANT_POINT = 2, /* that it is about to be executed */
	REPLAY_WANT_REP = 4,
};

/* Whatever is NULL is not wanted. `data` is what begin() returned for the thread. Where there are
 * several listeners, each may be told of instructions that only another wanted. */
struct replay_listener {
	void *ctx;
	/* Its history begins (at `from`). NULL: nothing of this thread is wanted. */
	void *(*begin)(void *ctx, struct replay_run *run);
	/* It has ended; `data` is the listener's again. */
	void (*end)(void *ctx, struct replay_run *run, void *data);

	/* Asked of each instruction when it is bound: REPLAY_WANT_.... NULL: all edges. */
	unsigned (*wants)(void *data, struct replay_run *run, const struct insn *in);
	unsigned kinds; /* of edges: REPLAY_SEE_... */
	void (*edge)(void *data, struct replay_run *run, const struct replay_edge *edge);
	/* May be NULL: the same of many, in their order. Some may be of other kinds, which another
	 * listener wants. */
	void (*edges)(void *data, struct replay_run *run, const struct replay_edge *edges,
		      size_t n);
	void (*point)(void *data, struct replay_run *run, const struct insn *in);
	void (*rep)(void *data, struct replay_run *run, const struct replay_rep *rep);

	/* Executions, added up: told now and then and at the end, several times for the same. */
	void (*count)(void *data, struct replay_run *run, const struct replay_count *count);
	void (*branch)(void *data, struct replay_run *run, const struct replay_branch *branch);

	/* Every load and store. A REP instruction's may be told in one. */
	void (*access)(void *data, struct replay_run *run, const struct replay_access *access);
	/* Before it takes effect. */
	void (*event)(void *data, struct replay_run *run, const struct replay_event *event);

	/* The pass may execute translated code (doc/replay-code.md), which pays if instructions
	 * that are wanted are rare, and edges `late`: then they are told in their order, and before
	 * whatever else comes after them, but some time after they were taken. Of the thread only
	 * what does not change by executing code may be asked meanwhile: its code and mappings. */
	bool translated, late;
	/* For translated code: all accesses that are wanted of the thread lie between the two
	 * addresses, both included; false: none is. Asked when its history begins. */
	bool (*within)(void *data, struct replay_run *run, uint64_t *first, uint64_t *last);
	/* `kinds` are returns only, of which replay_run_returns() says which are wanted. */
	bool returns;
};

struct replay_pass {
	const struct replay_pos *from, *to; /* NULL: the ends of history */
	const bool *threads;		    /* by number, which to replay; NULL: all */
	const struct replay_listener *const *listeners;
	size_t n;
	/* May be NULL: called now and then by the thread that called replay_pass(). */
	void (*progress)(uint64_t done, uint64_t total);
	const volatile int *interrupt; /* may be NULL: not 0 ends the pass early */
	bool in_order;		       /* one thread after the other, by number */
	unsigned workers; /* at most so many at the same time; 0: as many as there are processors */
	/* Execute translated code where the host can: up to `from`, and then if all listeners allow
	 * it. */
	bool translate;
};

struct replay_passed {
	uint64_t instructions; /* replayed, those before `from` included */
	uint64_t told;	       /* those between `from` and `to` */
	uint64_t translated;   /* executed in translated code */
	bool astray; /* in translated code something went wrong: only the emulator can say what is
		      * true, in another pass */
	double seconds;
	struct replay_divergence div; /* a digest did not match, or the trace made no sense */
	bool interrupted;
	struct replay_pos reached; /* then: all that comes before this was told */
};

/* -1 with err if the trace cannot be replayed, or a listener said so (replay_run_fail()). A thread
 * that cannot be replayed up to the end is told of as far as it goes, and then `out->div` or err
 * says why. */
int replay_pass(struct dj_trace *t, const struct replay_pass *p, struct replay_passed *out,
		struct dj_error *err);

/* ---- what a listener may ask ----------------------------------------------------------------- */

/* The thread. */
uint32_t replay_run_thread(const struct replay_run *run);
const struct dj_thread_info *replay_run_info(const struct replay_run *run);
struct dj_trace *replay_run_trace(const struct replay_run *run);
/* Where it is; exact in any callback. */
void replay_run_pos(const struct replay_run *run, struct replay_pos *pos);
uint64_t replay_run_steps(const struct replay_run *run);
uint64_t replay_run_rip(const struct replay_run *run);
uint64_t replay_run_gpr(const struct replay_run *run, unsigned reg);
void replay_run_regs(const struct replay_run *run, struct dj_regs *regs);
/* Memory as the thread has seen it last: a byte it has never read nor written is 0. */
void replay_run_peek(const struct replay_run *run, uint64_t addr, void *buf, size_t len);
/* Where the code at an address belongs, as the thread has it mapped now. */
void replay_run_code(const struct replay_run *run, uint64_t addr, struct replay_code *code);
bool replay_run_mapping(const struct replay_run *run, uint64_t addr, struct replay_mapping *out);
/* Bytes of the code at an address; how many are known. */
size_t replay_run_fetch(struct replay_run *run, uint64_t addr, uint8_t *buf, size_t len);

/* What the threads share of the trace (its modules) is looked at with this lock held. Not around
 * replay_run_fetch(). */
void replay_run_lock(struct replay_run *run);
void replay_run_unlock(struct replay_run *run);

/* From now on only returns that leave the stack pointer above this are wanted, though others may be
 * told; at first none is. */
void replay_run_returns(struct replay_run *run, uint64_t above);

/* The listener that is being told something has heard enough of this thread, though it may be told
 * a little more; others go on, and other threads. */
void replay_run_stop(struct replay_run *run);
/* The whole pass ends, with this error. */
void replay_run_fail(struct replay_run *run, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* "SEQ:STEPS[+REP]", with "@TID" behind it if the recording has several threads: what
 * replay_goto_text() takes. */
void replay_pass_text(struct dj_trace *t, const struct replay_pos *pos, char *buf, size_t size);

#endif
