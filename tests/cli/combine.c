/*
 * A program of random combinations: signals, masks, handlers' flags, faults, stops, children, exec,
 * mappings, limits, several at a time. What it prints is a function of its seed alone, on a kernel
 * that does what the manual says; so two runs of one seed must print the same and end the same way,
 * recorded or not.
 *
 * usage: combine SEED CASES [FIRST]
 *
 * Each case makes a small script of operations and performs it. Everything observable goes into a
 * log: which handlers ran, in which order, with which siginfo, mask, flags and stack; what calls
 * returned. A case is undone before the next. Relies on nothing that depends on time: what comes
 * from another process is waited for.
 */
#define _GNU_SOURCE
#include "combine.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static char *self;
static unsigned long long seed_arg;
static unsigned cases_arg, case_now;

/* The rest of the cases in a new image; what is blocked and pending goes along. */
static void exec_self(void)
{
	char seed[24], cases[24], first[24], *argv[] = { self, seed, cases, first, NULL };
	sigset_t set;

	random_set(&set, 50);
	sigprocmask(SIG_SETMASK, &set, NULL);
	if (rnd(2))
		signal(rnd(2) ? SIGTRAP : SIGUSR1, SIG_IGN);
	for (int i = 0; i < 5; i++) {
		int sig = plain_signal();
		if (sigismember(&set, sig))
			sigqueue(getpid(), sig, (union sigval){ .sival_int = i });
	}
	put(" exec\n");
	flush_log();
	snprintf(seed, sizeof(seed), "%llu", seed_arg);
	snprintf(cases, sizeof(cases), "%u", cases_arg);
	snprintf(first, sizeof(first), "%u", case_now + 1);
	if (rnd(3) == 0) { /* a limit and an exec */
		struct rlimit low = { 4, 4 };
		setrlimit(RLIMIT_NOFILE, &low);
	}
	execv(self, argv);
	_exit(98);
}

static void after_exec(void)
{
	sigset_t pending;

	put("after exec mask=");
	put_hex(mask_now());
	sigpending(&pending);
	for (int sig = 1; sig < 65; sig++)
		if (sigismember(&pending, sig) == 1)
			note("pending", sig);
	for (size_t i = 0; i < USABLE; i++) {
		struct sigaction sa;
		sigaction(usable[i], NULL, &sa);
		if (sa.sa_handler != SIG_DFL)
			note("not-default", usable[i]);
	}
	put("\n");
}

static void (*const operations[])(void) = {
	queue_some, many_at_once,   many_at_once, from_outside, from_outside,
	some_masks, fault,	    fault,	  trap_flag,	interrupted_call,
	mappings,   vfork_and_exec, limits,	  stop_in_loop, own_traps,
	clones,	    after_calls,    dead_flags,	  seccomp_trap, from_outside_while_computing,
};
#define OPERATIONS (sizeof(operations) / sizeof(*operations))

/* A filter's end: of one of two calls, one in the cache, one not. */
static void filtered_end(void)
{
	static const unsigned ways[] = { SECCOMP_RET_KILL_THREAD, SECCOMP_RET_KILL_PROCESS,
					 SECCOMP_RET_TRAP };
	unsigned nr = rnd(2) ? SYS_getpgrp : SYS_remap_file_pages;
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, ways[rnd(3)]),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(code) / sizeof(*code), code };

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
	syscall(nr, 0, 0, 0, 0, 0);
}

/* The last thing a run does: one of the ways to end. */
static void end(void)
{
	sigset_t set;

	random_set(&set, 100);
	switch (rnd(7)) {
	case 0: /* two fatal ones at once, and handlers in between */
		sigprocmask(SIG_BLOCK, &set, NULL);
		signal(SIGUSR1, SIG_DFL);
		random_handler(34);
		sigqueue(getpid(), 34, (union sigval){ .sival_int = 1 });
		raise(SIGUSR1);
		flush_log();
		sigprocmask(SIG_UNBLOCK, &set, NULL);
		break;
	case 1: /* a fault whose signal is blocked */
		sigprocmask(SIG_BLOCK, &set, NULL);
		flush_log();
		fault_load((void *)8, NULL, NULL);
		break;
	case 2:
		signal(SIGTERM, SIG_DFL);
		sigemptyset(&set);
		sigprocmask(SIG_SETMASK, &set, NULL);
		flush_log();
		kill(getpid(), SIGTERM);
		break;
	case 3:
	case 4: /* SIGSYS is blocked, which does not help */
		sigprocmask(SIG_BLOCK, &set, NULL);
		flush_log();
		filtered_end();
		break;
	default:
		break;
	}
	flush_log();
	exit((int)rnd(256));
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	self = argv[0];
	seed_arg = strtoull(argv[1], NULL, 10);
	cases_arg = (unsigned)atoi(argv[2]);
	unsigned first = argc > 3 ? (unsigned)atoi(argv[3]) : 0;
	const char *only = getenv("ONLY"); /* one kind of operation, for finding out */
	struct rlimit no_core = { 0, 0 };

	setrlimit(RLIMIT_CORE, &no_core);
	counter = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (first)
		after_exec();
	for (case_now = first; case_now < cases_arg; case_now++) {
		state = seed_arg * 1000003 + case_now;
		for (int i = 0; i < 5; i++)
			rnd(2);
		put("case ");
		put_number(case_now);
		reset();
		unsigned n = 1 + rnd(5);
		for (unsigned i = 0; i < n; i++) {
			unsigned k = only ? (unsigned)atoi(only) : rnd(OPERATIONS);
			if (k == OPERATIONS - 1 && rnd(4)) /* a filter stays for ever */
				k = 1;
			put("\n ");
			put_number(k);
			operations[k]();
		}
		put("\n");
		flush_log(); /* the next case may be the end */
		if (!only && rnd(24) == 0)
			exec_self();
	}
	end();
}
