/*
 * Processes that execute generated code for a debugger: see worker.h.
 */
#include "replayer/worker.h"
#include "replayer/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE    20 /* milliseconds between two looks at whether somebody waits */
#define PIECE	    (1u << 20)
#define DESCRIPTORS 65536

static bool (*confine)(void);
static unsigned at_work;

void replay_confine(bool (*fn)(void))
{
	confine = fn;
}

unsigned rp_workers(void)
{
	return at_work;
}

bool rp_worker_possible(const struct replay *r)
{
	return confine && !r->in_copy && !r->observer.kinds && fast_possible(r->th->e->kind) &&
	       r->th->e->mirror_stores && !r->th->hearer;
}

/* ---- life ------------------------------------------------------------------------------------ */

static bool make_pipes(int ask[2], int answer[2])
{
	if (pipe2(ask, O_CLOEXEC))
		return false;
	if (!pipe2(answer, O_CLOEXEC))
		return true;
	close(ask[0]);
	close(ask[1]);
	return false;
}

bool rp_worker_start(struct rp_worker *w, struct replay *r,
		     void (*work)(struct replay *r, int in, int out))
{
	pid_t parent = getpid();
	int ask[2], answer[2];

	*w = (struct rp_worker){ .to = -1, .from = -1 };
	if (!make_pipes(ask, answer))
		return false;
	fcntl(answer[1], F_SETPIPE_SZ, PIECE);
	int shadow = emu_before_fork(r->th->e);
	w->pid = shadow < 0 ? -1 : fork();
	if (!w->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() == parent && emu_after_fork(r->th->e, shadow))
			work(r, ask[0], answer[1]);
		_exit(1);
	}
	if (shadow >= 0)
		close(shadow);
	close(ask[0]);
	close(answer[1]);
	w->to = ask[1];
	w->from = answer[0];
	fcntl(w->from, F_SETFL, O_NONBLOCK);
	if (w->pid < 0) {
		rp_worker_end(w);
		return false;
	}
	at_work++;
	return true;
}

void rp_worker_end(struct rp_worker *w)
{
	if (w->pid > 0) {
		kill(w->pid, SIGKILL);
		while (waitpid(w->pid, NULL, 0) < 0 && errno == EINTR)
			;
		at_work--;
	}
	if (w->to >= 0)
		close(w->to);
	if (w->from >= 0)
		close(w->from);
	free(w->in);
	*w = (struct rp_worker){ .to = -1, .from = -1 };
}

/* ---- talking --------------------------------------------------------------------------------- */

bool rp_worker_ask(struct rp_worker *w, const void *question, size_t size)
{
	struct sigaction ignore = { .sa_handler = SIG_IGN }, before;

	/* it may have ended */
	sigaction(SIGPIPE, &ignore, &before);
	bool good = write(w->to, question, size) == (ssize_t)size;
	sigaction(SIGPIPE, &before, NULL);
	return good;
}

/* Read what there is. False: the other side has ended. */
static bool receive(struct rp_worker *w)
{
	if (w->cap - w->n < PIECE) {
		size_t cap = 2 * w->cap + PIECE;
		uint8_t *grown = realloc(w->in, cap);
		if (!grown)
			return false;
		w->in = grown;
		w->cap = cap;
	}
	ssize_t n = read(w->from, w->in + w->n, PIECE);
	if (n <= 0)
		return n < 0 && (errno == EAGAIN || errno == EINTR);
	w->n += (size_t)n;
	return true;
}

enum rp_worker_said rp_worker_wait(struct rp_worker *w, struct replay *r, uint64_t *length,
				   bool (*busy)(void *ctx), void *ctx)
{
	bool ended = false;

	for (;;) {
		if (w->n >= RP_WIRE_HEAD) {
			*length = rp_wire_length(w->in);
			if (!*length)
				return WORKER_OVER;
			if (w->n >= *length)
				return WORKER_SAID;
		}
		if (ended)
			return WORKER_OVER;
		struct pollfd p = { .fd = w->from, .events = POLLIN };
		if (busy ? busy(ctx) : replay_interrupted(r))
			return WORKER_BUSY;
		if (poll(&p, 1, PATIENCE) > 0)
			ended = !receive(w);
	}
}

void rp_worker_next(struct rp_worker *w, uint64_t length)
{
	memmove(w->in, w->in + length, w->n - length);
	w->n -= length;
}

/* ---- in the process -------------------------------------------------------------------------- */

/* Only what is read stays open, files of the trace, and the two. */
static void close_others(int to, int from)
{
	struct stat st;

	for (int i = 0; i < DESCRIPTORS; i++) {
		int flags = i == to || i == from ? -1 : fcntl(i, F_GETFL);
		if (flags < 0)
			continue;
		if ((flags & O_ACCMODE) != O_RDONLY || fstat(i, &st) || !S_ISREG(st.st_mode))
			close(i);
	}
}

/* ^C is for the others; what generated code raises is for its handler. */
static void block_signals(void)
{
	sigset_t set;

	sigfillset(&set);
	sigdelset(&set, SIGSEGV);
	sigdelset(&set, SIGBUS);
	sigdelset(&set, SIGFPE);
	sigdelset(&set, SIGILL);
	sigprocmask(SIG_SETMASK, &set, NULL);
	signal(SIGPIPE, SIG_DFL);
}

/* Nobody watches here. */
static void watch_nothing(struct replay *r)
{
	struct emu *e = r->th->e;

	e->stop_at = NULL;
	e->exact = false;
	e->hooks = EMU_HOOK_TRACK;
	e->stop_requested = false;
	r->th->seq_stop = UINT64_MAX;
	r->mv->watching = false;
	r->mv->nwatches = 0;
	r->mv->look = NULL;
	r->mv->notes = NULL;
	memset(r->mv->tlb, 0, sizeof(r->mv->tlb));
}

void rp_work_begin(struct replay *r, int to, int from)
{
	close_others(to, from);
	block_signals();
	watch_nothing(r);
	rp_patience_init(&r->patience, NULL, NULL);
	r->patience.kept = rp_versions_most;
	r->cs->held = r->cs->anchored = false;
	r->cs->max = SIZE_MAX;
	r->cs->budget = SIZE_MAX;
	if (!rp_trail_begin(r->th) || !confine())
		_exit(1);
}

bool rp_work_say(int fd, const void *bytes, size_t n)
{
	const uint8_t *p = bytes;

	while (n) {
		ssize_t k = write(fd, p, n);
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return false;
		p += k;
		n -= (size_t)k;
	}
	return true;
}

bool rp_work_hear(int fd, void *to, size_t n)
{
	uint8_t *p = to;

	while (n) {
		ssize_t k = read(fd, p, n);
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return false;
		p += k;
		n -= (size_t)k;
	}
	return true;
}
