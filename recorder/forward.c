/*
 * Signals that deja itself gets while it records.
 *
 * Whoever sends one to deja means the program: deja passes it on, and does not die of it. But much
 * of what comes to deja has come to the program as well, because both are in one process group: the
 * terminal's keys, a shell's `kill %1`, kill(0) in the program. The program must not get these
 * twice. What the kernel sent is never passed on. Of the rest deja knows who sent it, and the same
 * sender's signal to the program is seen too, as every signal of the program's: at its
 * signal-delivery stop, shortly before or after, or among those that are pending because the
 * program blocks them. Only if it is nowhere there it is passed on, as soon as the program runs and
 * has no stop in store that deja has not seen yet.
 *
 * "The program" is the first process. When that has ended, the signal goes to all that deja still
 * waits for.
 *
 * A signal that the program itself sends to deja was meant for its parent. The parent that it would
 * have without deja is deja's.
 *
 * SIGPIPE and SIGXFSZ show as errors of the write. Signals of faults are for faults, unless
 * somebody sent them. SIGKILL and SIGSTOP are what they are, and the stops of job control stop deja
 * with the program.
 */
#include "format/lease.h"
#include "recorder/recorder.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SIGNALS	 65
#define RECENT	 200 /* milliseconds */
#define AT_MOST	 100 /* milliseconds: who has a timer has stopped whenever one looks */
#define PATIENCE 10  /* milliseconds that whoever sends one to a group may take for it */

static struct sigaction inherited[SIGNALS];
static bool taken[SIGNALS];
static volatile sig_atomic_t any;
static volatile pid_t from[SIGNALS]; /* who sent one to deja, plus 1; 0: nobody */
static struct {
	pid_t from;
	uint64_t when;
} seen[SIGNALS];    /* the program's latest */
static bool behind; /* another process of ours, for --no-wait */
static struct {
	pid_t from;
	uint64_t when;
	bool passed; /* by that one */
} got[SIGNALS];	     /* deja's latest */

static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static bool of_a_fault(int sig)
{
	return sig == SIGSEGV || sig == SIGBUS || sig == SIGILL || sig == SIGFPE ||
	       sig == SIGTRAP || sig == SIGSYS || sig == SIGABRT;
}

/* With --no-wait the process that the user has started passes on what it gets, saying whom it is
 * from. What came to both, because both are in one group, is one signal. */
static bool twice(int sig, const siginfo_t *info, pid_t *sender)
{
	bool passed = info->si_code == SI_QUEUE && behind && info->si_pid == getppid();
	*sender = passed ? info->si_value.sival_int : info->si_pid;
	bool same = behind && got[sig].from == *sender && got[sig].passed != passed &&
		    now() - got[sig].when < RECENT;
	got[sig].from = same ? 0 : *sender;
	got[sig].passed = passed;
	got[sig].when = now();
	return same;
}

static void on_signal(int sig, siginfo_t *info, void *context)
{
	bool sent = info->si_code <= 0 && info->si_pid != getpid();
	pid_t sender;
	(void)context;
	if (!sent && sig == SIGIO)
		dj_leases_broken();
	if (!sent && of_a_fault(sig)) {
		sigaction(sig, &inherited[sig], NULL); /* it comes again */
		if (info->si_code <= 0)
			raise(sig);
		return;
	}
	if (!sent || twice(sig, info, &sender))
		return;
	from[sig] = sender + 1;
	any = 1;
}

void rec_signals_take(bool passed_on)
{
	any = 0;
	behind = passed_on;
	memset((void *)from, 0, sizeof(from));
	for (int sig = 1; sig < SIGNALS; sig++) {
		struct sigaction sa = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO };
		if (sig == SIGCHLD || sig == SIGCONT || sig == SIGTSTP || sig == SIGTTIN ||
		    sig == SIGTTOU || sig == SIGURG)
			continue;
		if (sig == SIGPIPE || sig == SIGXFSZ || sig == SIGALRM) /* the clock comes later */
			sa.sa_handler = SIG_IGN;
		taken[sig] = !sigaction(sig, &sa, &inherited[sig]);
	}
}

void rec_signals_give_back(void)
{
	for (int sig = 1; sig < SIGNALS; sig++)
		if (taken[sig])
			sigaction(sig, &inherited[sig], NULL);
}

void rec_signals_seen(const siginfo_t *info)
{
	if (info->si_code > 0 || info->si_signo >= SIGNALS || info->si_signo < 1)
		return;
	seen[info->si_signo].from = info->si_pid;
	seen[info->si_signo].when = now();
}

/* Whether the program has a signal of this number pending; and whether it has stopped for us. */
static bool has(struct rec_thread *t, int sig, bool *stopped)
{
	char text[4096];
	FILE *f = t->rec->tracer->open_proc(t->rec->tracer, t->tid, "status");
	size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;
	unsigned long long own = 0, shared = 0;
	if (f)
		fclose(f);
	text[n] = 0;
	const char *state = strstr(text, "State:\t"), *p = strstr(text, "SigPnd:"),
		   *s = strstr(text, "ShdPnd:");
	*stopped = state && state[7] == 't';
	if (p)
		sscanf(p + 7, "%llx", &own);
	if (s)
		sscanf(s + 7, "%llx", &shared);
	for (unsigned i = 0; i < t->n_pending; i++)
		if (t->pending[i].si_signo == sig)
			return true;
	return (own | shared) >> (sig - 1) & 1;
}

/* False if that cannot be said yet. */
static bool pass_on(struct rec_thread *t, int sig, pid_t sender)
{
	bool stopped, pending = has(t, sig, &stopped);
	bool recent = seen[sig].from == sender && now() - seen[sig].when < RECENT;
	if (!stopped && !pending && !recent) {
		/* It may be on its way: the kernel sends it to one after the other, and a processor
		 * that is not real may be away in between. */
		nanosleep(&(struct timespec){ .tv_nsec = PATIENCE * 1000000L }, NULL);
		pending = has(t, sig, &stopped);
	}
	static uint64_t since[SIGNALS];
	if (stopped && !pending && !recent) {
		since[sig] = since[sig] ? since[sig] : now();
		if (now() - since[sig] < AT_MOST)
			return false; /* it may be what it has stopped with */
	}
	since[sig] = 0;
	if (recent)
		seen[sig].from = 0;
	else if (!pending)
		kill(sender == t->group->pid ? getppid() : t->group->pid, sig);
	return true;
}

/* The first process has ended, and others have not: they are what deja waits for. */
static void to_the_others(struct rec_recording *rec)
{
	any = 0;
	for (int sig = 1; sig < SIGNALS; sig++) {
		if (!from[sig])
			continue;
		from[sig] = 0;
		for (const struct rec_process *p = rec->processes; p; p = p->next)
			if (p != rec->first && p->n_threads)
				kill(p->pid, sig);
	}
}

void rec_signals_pass_on(struct rec_recording *rec)
{
	struct rec_thread *t = rec->threads;
	if (!any || !rec->began)
		return;
	while (t && (t->group != rec->first || t->state == REC_GONE))
		t = t->next;
	if (!t) {
		to_the_others(rec);
		return;
	}
	any = 0;
	for (int sig = 1; sig < SIGNALS; sig++) {
		pid_t sender = from[sig] - 1;
		if (sender < 0)
			continue;
		from[sig] = 0;
		if (!pass_on(t, sig, sender)) {
			from[sig] = sender + 1;
			any = 1;
		}
	}
}
