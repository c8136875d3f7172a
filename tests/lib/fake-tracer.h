/*
 * A machine in place of the kernel, for tests of the recorder's loop: threads that run short
 * scripts, stop as ptrace(2) makes threads stop, and can be interleaved in every order. With it
 * comes a translator of its own (the tr_ functions), whose translated code is only addresses.
 *
 * fake_wait(), which the loop calls as its tracer, is where something happens: it collects all that
 * could happen next (any running thread's next stop, any outside event) and asks fake.pick which
 * of it does.
 */
#ifndef DEJA_TESTS_FAKE_TRACER_H
#define DEJA_TESTS_FAKE_TRACER_H

#include "recorder/area.h"

#define FAKE_THREADS 16
#define FAKE_GS	     0x12340u /* the gs base of every program */

enum fake_kind {
	FAKE_CALL,   /* the system call `nr` */
	FAKE_NATIVE, /* an instruction that is executed natively */
	FAKE_REP,    /* ... a string instruction with a long count */
	FAKE_AWAY,   /* none that anybody sees: the program is gone */
};

struct fake_action {
	enum fake_kind kind;
	long nr;
};

/* Something from outside that happens to a thread at any moment while it runs. */
struct fake_outside {
	int thread; /* number */
	int sig;    /* SIGSTOP is followed by SIGCONT when the process has stopped */
	bool fired;
};

struct fake_thread {
	pid_t tid, pid;
	int number;
	const struct fake_action *script;
	unsigned n_script, done;   /* actions, and how many have been performed */
	bool alive, traced, child; /* child: of a fork or vfork, not recorded */
	bool own_space;
	bool clone; /* a thread that ends, or a recorded child that exits, as soon as it executes
		       anything */

	bool running, listening, continued, born;
	enum rec_resume how;
	int inject;
	bool injectable; /* the stop it is in takes a signal */
	siginfo_t info;
	struct user_regs_struct regs;
	uint64_t mask;
	uint64_t
		own_mask; /* what the program made of it; the recorder may block more for a while */
	siginfo_t queue[64]; /* pending signals */
	unsigned n_queue;
	struct {
		struct user_regs_struct regs;
		uint64_t mask;
	} frames[16];
	unsigned depth;
	long expected;	  /* the system call it has come to, or -1 */
	int memfd;	  /* that the recorder has taken from it; */
	uint64_t series;  /* where it has the page of it that makes calls in a row, */
	off_t series_off; /* and where that is in the file */
	bool in_exec, in_fork;
	int fork_event; /* due */
	struct fake_thread *vfork_child;
	bool stop_due, in_stop; /* by job control */
	unsigned handled[65], stopped, unmapped, natives, detached;
	pid_t message;
	int end; /* wait(2) status, when !alive and not yet reported */
	bool killed;
};

struct fake {
	struct rec_tracer tracer; /* first: what the recorder gets */
	struct rec_recording *rec;
	struct fake_thread threads[FAKE_THREADS];
	unsigned n_threads;
	struct fake_outside outside[16];
	unsigned n_outside;
	uint64_t caught; /* signals that programs handle, by bit */
	bool follows;	 /* forked children are recorded */
	bool no_room;	 /* for the memory of another thread */
	int vfork_needs; /* number of the thread that must have ended before a vfork child execs */
	unsigned (*pick)(unsigned options);
	bool (*at_once)(unsigned options); /* whether more has happened by now; NULL: never */
	const void *frame;		   /* from where wait() is called */
	unsigned waits;
	bool verbose;	   /* say what happens */
	char failure[256]; /* the first thing that went wrong */
};

extern struct fake fake;
extern unsigned fake_bound; /* so many went on bound to a processor, since the test set it to 0 */

void fake_reset(void);
/* A recorded thread in process `pid`, about to begin its script. */
struct fake_thread *fake_thread(pid_t pid, const struct fake_action *script, unsigned n);
void fake_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The control block's process for the recorder. */
struct rec_thread *fake_record(struct rec_process *proc, struct fake_thread *m);

#endif
