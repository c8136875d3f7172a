/*
 * Starting a recording: the program's first process, and after the loop what came of it.
 */
#include "recorder/apart.h"
#include "recorder/ahead.h"
#include "recorder/ask.h"
#include "format/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- deja's own limits ------------------------------------------------------------------- */

/* Deja's limits are what the program starts with. What deja itself can have is more: as much as the
 * hard limits allow. */
static const int raised[] = { RLIMIT_FSIZE, RLIMIT_AS, RLIMIT_DATA, RLIMIT_NOFILE };
#define N_RAISED (sizeof(raised) / sizeof(*raised))
static struct rlimit limits[N_RAISED];

static void raise_limits(void)
{
	for (size_t i = 0; i < N_RAISED; i++) {
		getrlimit((enum __rlimit_resource)raised[i], &limits[i]);
		struct rlimit to = { limits[i].rlim_max, limits[i].rlim_max };
		setrlimit((enum __rlimit_resource)raised[i], &to);
	}
}

static void give_limits_back(void)
{
	for (size_t i = 0; i < N_RAISED; i++)
		setrlimit((enum __rlimit_resource)raised[i], &limits[i]);
}

/* ---- the first process ---------------------------------------------------------------------- */

/* Why there is no program, from the process that should have become it. */
struct report {
	int error;
};

static void become(const char *file, const struct rec_recording *rec, int go, int report)
{
	char c;
	struct report rep = { 0 };
	rec_signals_give_back();
	give_limits_back();
	if (read(go, &c, 1) == 1) {
		rec_layout_become(rec);
		execve(file, rec->argv, rec->envp);
		rep.error = errno;
	}
	(void)!write(report, &rep, sizeof(rep));
	_exit(127);
}

/* Fork; the child waits to be traced, then becomes the program. `report` is where it says why
 * it could not. */
static int start(struct rec_recording *rec, const char *file, int *report)
{
	int go[2], back[2];
	if (pipe2(go, O_CLOEXEC))
		return dj_fail_errno(rec->err, 1, "cannot make a pipe");
	if (pipe2(back, O_CLOEXEC)) {
		close(go[0]);
		close(go[1]);
		return dj_fail_errno(rec->err, 1, "cannot make a pipe");
	}
	pid_t pid = fork();
	if (pid == 0) {
		close(go[1]);
		become(file, rec, go[0], back[1]);
	}
	close(go[0]);
	close(back[1]);
	*report = back[0];
	int rc = 0;
	long opts = REC_TRACE_OPTIONS;
	if (pid < 0) {
		rc = dj_fail_errno(rec->err, 1, "cannot fork");
	} else if (ptrace(PTRACE_SEIZE, pid, NULL, (void *)opts)) {
		rc = dj_fail(rec->err, 1,
			     "cannot trace a program here: ptrace: %s (a container without "
			     "SYS_PTRACE, a seccomp filter, or kernel.yama.ptrace_scope=3?)",
			     strerror(errno));
		kill(pid, SIGKILL);
		waitpid(pid, NULL, __WALL);
	} else {
		rec->first = rec_process_new(rec, pid);
		rec_layout_start(rec_thread_new(rec->first, pid, REC_STARTING));
		(void)!write(go[1], "x", 1);
	}
	close(go[1]);
	return rc;
}

enum rec_state rec_on_starting(struct rec_thread *t, const struct rec_stop *stop)
{
	struct rec_recording *rec = t->rec;
	if (stop->event != PTRACE_EVENT_EXEC) {
		rec_run(t, REC_CONT, stop->event ? 0 : stop->sig);
		return REC_STARTING;
	}
	rec->began = true;
	rec_trap_begin(t);
	rec->writer = rec_create_trace(t);
	if (!rec->writer) { /* err says why */
		rec->fatal = true;
		return REC_KILLED;
	}
	return rec_image_begin(t, false);
}

/* The first process ended without becoming the program. */
static int not_started(struct rec_recording *rec, int report)
{
	struct report rep = { 0 };
	if (read(report, &rep, sizeof(rep)) == (ssize_t)sizeof(rep) && rep.error)
		return dj_fail(rec->err, rep.error == ENOENT ? 127 : 126, "%s: %s", rec->argv[0],
			       strerror(rep.error));
	return dj_fail(rec->err, 1, "%s ended before it began", rec->argv[0]);
}

/* What translations are kept for later images and children may take. */
#define KEPT_ROOM (512ULL << 20)
/* And those of code that programs have made: there is no end to it. */
#define MADE_ROOM (64ULL << 20)

/* Of our heap, so much is in large pages. */
#define LARGE ((size_t)32 << 20)
#define SOON  ((size_t)4 << 20) /* and that of them is wanted at once */
#define PAGE  ((uintptr_t)2 << 20)

/* Memory that a process's fragments took is wanted again by the next one. To give it back and to
 * fault it in anew took a fiftieth of the time that a build is recorded in. And it is faulted in by
 * pages of 2 MB: where a fault takes long, the first three thousand small ones are a tenth of the
 * time that `python3 -c pass` is recorded in. Tables of some hundred kilobytes are in there, too.
 */
static void hold_memory(void)
{
	static void *volatile left_alone; /* nobody writes there */
	uintptr_t end = (uintptr_t)sbrk(0);
	size_t before = -end & (PAGE - 1);	/* as far as to a large page, */
	before += before < PAGE / 4 ? PAGE : 0; /* and more than is free now */
	uintptr_t begin = end + before;
	mallopt(M_TRIM_THRESHOLD, 256 << 20);
	mallopt(M_MMAP_THRESHOLD, 4 << 20);
	mallopt(M_TOP_PAD, LARGE);
	left_alone = malloc(before - 4096);
	(void)left_alone;
	end = (uintptr_t)sbrk(0);
	if (end != (uintptr_t)-1 && begin + SOON <= end) {
		madvise((void *)begin, end - begin, MADV_HUGEPAGE);
		tr_warm((void *)begin, SOON);
	}
	mallopt(M_TOP_PAD, 1 << 20);
}

/* ---- the whole ------------------------------------------------------------------------------ */

static void print_statistics(const struct rec_recording *rec)
{
	const uint64_t *n = rec->counts;
	fprintf(stderr,
		"deja: %llu instructions, %llu stops, %llu executed natively, %llu fragments, "
		"%llu instructions translated into %llu bytes, %llu flushes\n",
		(unsigned long long)rec->steps, (unsigned long long)rec->stops,
		(unsigned long long)rec->natives, (unsigned long long)n[REC_COUNT_FRAGMENTS],
		(unsigned long long)n[REC_COUNT_INSNS], (unsigned long long)n[REC_COUNT_BYTES],
		(unsigned long long)n[REC_COUNT_FLUSHES]);
}

struct rec_recording *rec_new(const struct rec_options *opt, struct rec_tracer *tracer,
			      char *const argv[], char *const envp[], struct dj_error *err)
{
	struct rec_recording *rec = calloc(1, sizeof(*rec));
	DJ_ASSERT(rec, "out of memory for a recording");
	memset(err, 0, sizeof(*err));
	rec->opt = *opt;
	if (!rec->opt.digest_interval)
		rec->opt.digest_interval = REC_DIGEST_INTERVAL;
	rec->kept_room = KEPT_ROOM;
	rec->made_room = MADE_ROOM;
	rec->umip = rec_has_umip();
	rec->tracer = tracer;
	rec->err = err;
	rec->argv = argv;
	rec->envp = envp;
	return rec;
}

int rec_program(const char *file, char *const argv[], char *const envp[],
		const struct rec_options *opt, struct rec_result *result, struct dj_error *err)
{
	memset(result, 0, sizeof(*result));
	struct rec_recording *rec = rec_new(opt, &rec_tracer_ptrace, argv, envp, err);
	int report = -1;
	bool warms = false;
	pthread_t warmer;
	rec_signals_take(opt->first_ended != NULL);
	raise_limits();
	rec_layout_look(rec);
	int rc = start(rec, file, &report);
	if (!rc) {
		warms = rec_has_processors() && !dj_thread(&warmer, tr_warm_run, NULL);
		if (warms)
			tr_warm_begin();
		hold_memory(); /* not before the fork: the child would share the large pages */
		rec_loop(rec);
		rec_clock(NULL);
		if (!rec->began && !rec_over(rec))
			rc = not_started(rec, report);
	}
	if (rec->first) {
		rec_modules_unwatch(rec);
		rec_finish_trace(rec);
		rec_store_write(rec);
		if (opt->verbose && rec->began)
			print_statistics(rec);
		result->status = rec->first->status;
		result->went_on = rec->first->free;
		result->instructions = rec->steps;
	}
	if (report >= 0)
		close(report);
	give_limits_back();
	rc = rc || rec->fatal ? -1 : 0;
	result->cut = rec->cut;
	rec_free(rec);
	if (warms) {
		tr_warm_end();
		pthread_join(warmer, NULL);
	}
	rec_signals_give_back(); /* when there are no leases any more */
	return rc;
}
