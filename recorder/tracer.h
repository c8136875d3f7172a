/*
 * What the supervisor needs of the kernel to trace threads, as an interface, so that a test can
 * drive the event loop with a tracer of its own. The real one is ptrace(2) and /proc
 * (tracer-ptrace.c).
 *
 * Only the loop (loop.c) may call wait(): whoever handles a stop says how the thread is to go on
 * and returns. All functions that can fail return -1 with errno; a thread that was killed meanwhile
 * makes them fail with ESRCH, and its end is the next thing that wait() reports of it.
 */
#ifndef DEJA_RECORDER_TRACER_H
#define DEJA_RECORDER_TRACER_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <sys/user.h>

/* How a stopped thread goes on. */
enum rec_resume {
	REC_CONT,	/* run, until something happens */
	REC_STEP,	/* one instruction */
	REC_TO_SYSCALL, /* to the entry or the exit of a system call */
	REC_LISTEN,	/* stay stopped with the process (job control), until that is continued */
	REC_DETACH,	/* run, and be traced no more */
};

struct rec_tracer {
	/* The next stop or end of this thread, or with -1 of any. Blocks, or returns 0 if there is
	 * none yet. */
	pid_t (*wait)(struct rec_tracer *tr, pid_t tid, bool block, int *status);
	/* `sig`: the signal to deliver, from a signal-delivery stop; else 0. */
	int (*resume)(struct rec_tracer *tr, pid_t tid, enum rec_resume how, int sig);
	/* The same, and it begins on the processor that the caller is on, if it may be there.
	 * Where it may be is as before, but for an instant (near.c). */
	int (*resume_here)(struct rec_tracer *tr, pid_t tid, enum rec_resume how, int sig);
	/* Make a running thread stop with an event. */
	int (*interrupt)(struct rec_tracer *tr, pid_t tid);
	int (*kill)(struct rec_tracer *tr, pid_t pid);
	/* The thread is not to die with us, and its children are not to be traced. */
	int (*loosen)(struct rec_tracer *tr, pid_t tid);
	/* It also stops when the child that it has made by vfork(2) lets it go. */
	int (*watch_vfork)(struct rec_tracer *tr, pid_t tid);

	int (*get_regs)(struct rec_tracer *tr, pid_t tid, struct user_regs_struct *r);
	int (*set_regs)(struct rec_tracer *tr, pid_t tid, const struct user_regs_struct *r);
	int (*get_fpregs)(struct rec_tracer *tr, pid_t tid, struct user_fpregs_struct *f);
	int (*set_fpregs)(struct rec_tracer *tr, pid_t tid, const struct user_fpregs_struct *f);
	/* The XSAVE area in its standard format (SDM vol. 1, 13.4); returns its length. */
	ssize_t (*get_xstate)(struct rec_tracer *tr, pid_t tid, void *buf, size_t size);
	int (*get_siginfo)(struct rec_tracer *tr, pid_t tid, siginfo_t *info);
	int (*set_siginfo)(struct rec_tracer *tr, pid_t tid, const siginfo_t *info);
	/* The signals that the thread blocks, signal 1 in bit 0. */
	int (*get_sigmask)(struct rec_tracer *tr, pid_t tid, uint64_t *mask);
	int (*set_sigmask)(struct rec_tracer *tr, pid_t tid, uint64_t mask);
	/* Whether signals that were sent to the whole process wait, or nobody knows. */
	bool (*signals_wait)(struct rec_tracer *tr, pid_t tid);
	int (*event_message)(struct rec_tracer *tr, pid_t tid, unsigned long *message);

	/* A process's memory, by a handle that is closed again. */
	int (*open_memory)(struct rec_tracer *tr, pid_t pid);
	void (*close_memory)(struct rec_tracer *tr, int memory);
	ssize_t (*read)(struct rec_tracer *tr, int memory, uint64_t addr, void *buf, size_t len);
	ssize_t (*write)(struct rec_tracer *tr, int memory, uint64_t addr, const void *buf,
			 size_t len);
	/* All of it or, if the thread itself may not write there, perhaps nothing. */
	bool (*write_as_it)(struct rec_tracer *tr, pid_t tid, uint64_t addr, const void *buf,
			    size_t len);
	/* A text in /proc/PID: "maps", "status". */
	FILE *(*open_proc)(struct rec_tracer *tr, pid_t pid, const char *name);
	/* What the process has open as `fd`, as a descriptor of ours. */
	int (*take_file)(struct rec_tracer *tr, pid_t pid, int fd);
	/* prlimit(2). */
	int (*limit)(struct rec_tracer *tr, pid_t pid, int resource, const struct rlimit *to,
		     struct rlimit *was);
};

/* Of each thread (PTRACE_SETOPTIONS). */
#define REC_TRACE_OPTIONS                                                                          \
	(PTRACE_O_EXITKILL | PTRACE_O_TRACEEXEC | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |       \
	 PTRACE_O_TRACECLONE)
/* ptrace(2). */
extern struct rec_tracer rec_tracer_ptrace;

#endif
