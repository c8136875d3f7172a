/*
 * Several system calls in a row: see series.h.
 *
 * A new image needs some twenty calls before its first instruction, and a stop for each was a tenth
 * of the time that a short program is recorded in. So a page of the shared file, which the program
 * can execute and not write, has a loop that makes the calls of a list (series-code.S), and the
 * list.
 *
 * One thread may use it at a time, and the page is the address space's: so a process with several
 * threads makes the calls one by one. So does one with seccomp filters, each of whose calls is to
 * be asked about, and a thread that is not to be stepped (`quiet`).
 */
#include "recorder/area.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LIST   256u /* bytes from the page's start */
#define BIT(n) (1ULL << (n))

struct rec_series {
	rec_then *then;
	unsigned n, at; /* calls; the next one, or the one that failed */
	uint64_t kept;
	struct {
		uint64_t word[SERIES_CALL / 8];
		unsigned what;
		bool made; /* and has not failed */
	} call[REC_SERIES];
};

/* ---- the list ------------------------------------------------------------------------------ */

void rec_series_begin(struct rec_thread *t)
{
	if (!t->call.series)
		t->call.series = malloc(sizeof(*t->call.series));
	DJ_ASSERT(t->call.series, "out of memory for system calls");
	memset(t->call.series, 0, sizeof(*t->call.series));
}

void rec_series_add(struct rec_thread *t, unsigned what, enum rec_series_how how, uint64_t nr,
		    uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f)
{
	struct rec_series *s = t->call.series;
	const uint64_t flags = (how == REC_KEEPS ? BIT(SERIES_KEEPS_BIT) : 0) |
			       (how != REC_MUST ? BIT(SERIES_MAY_BIT) : 0);
	const uint64_t word[SERIES_CALL / 8] = { nr | flags, a, b, c, d, e, f };
	DJ_ASSERT(s->n < REC_SERIES, "%u calls in a row", s->n);
	memcpy(s->call[s->n].word, word, sizeof(word));
	s->call[s->n++].what = what;
}

unsigned rec_series_failed(const struct rec_thread *t)
{
	const struct rec_series *s = t->call.series;
	return s->call[s->at].what;
}

bool rec_series_made(const struct rec_thread *t, unsigned what)
{
	const struct rec_series *s = t->call.series;
	for (unsigned i = 0; i < s->n; i++)
		if (s->call[i].what == what)
			return s->call[i].made;
	return false;
}

void rec_series_free(struct rec_thread *t)
{
	free(t->call.series);
	t->call.series = NULL;
}

/* ---- one by one ---------------------------------------------------------------------------- */

static enum rec_state next_call(struct rec_thread *t);

static enum rec_state one_made(struct rec_thread *t, int64_t result)
{
	struct rec_series *s = t->call.series;
	uint64_t flags = s->call[s->at].word[0];
	s->call[s->at].made = !rec_failed(result);
	if (flags & BIT(SERIES_KEEPS_BIT))
		s->kept = (uint64_t)result;
	if (rec_failed(result) && !(flags & BIT(SERIES_MAY_BIT)))
		return s->then(t, result);
	s->at++;
	return next_call(t);
}

static uint64_t argument(const struct rec_series *s, uint64_t word)
{
	return word == (uint64_t)SERIES_KEPT ? s->kept : word;
}

static enum rec_state next_call(struct rec_thread *t)
{
	const struct rec_series *s = t->call.series;
	const uint64_t *w = s->call[s->at].word;
	if (s->at == s->n)
		return s->then(t, 0);
	return rec_call(t, one_made, (uint32_t)w[0], argument(s, w[1]), w[2], w[3], w[4],
			argument(s, w[5]), w[6]);
}

/* ---- all at once ---------------------------------------------------------------------------- */

static bool can(const struct rec_thread *t)
{
	return t->proc->series.at && t->group == t->proc && t->proc->n_threads == 1 &&
	       !t->filters && !t->quiet;
}

/* The calls before the place where the list was left, of which a bit each says whether they failed;
 * and that one, if it is a call. */
static enum rec_state all_made(struct rec_thread *t, int64_t result)
{
	struct rec_series *s = t->call.series;
	struct user_regs_struct r;
	if (rec_get_regs(t, &r))
		return REC_KILLED;
	uint64_t at = (r.rbx - (t->proc->series.at + LIST)) / SERIES_CALL;
	if (at > s->n) { /* somebody has written to the file */
		s->at = 0;
		return s->then(t, -EFAULT);
	}
	s->at = (unsigned)at;
	for (unsigned i = 0; i < s->at; i++)
		s->call[i].made = !(r.r12 >> (s->at - 1 - i) & 1);
	return s->then(t, s->at < s->n ? result : 0);
}

enum rec_state rec_series_run(struct rec_thread *t, rec_then *then)
{
	struct rec_series *s = t->call.series;
	struct rec_process *proc = t->proc;
	uint64_t list[REC_SERIES + 1][SERIES_CALL / 8];
	s->then = then;
	s->at = 0;
	for (unsigned i = 0; i < s->n; i++)
		memcpy(list[i], s->call[i].word, sizeof(list[i]));
	list[s->n][0] = BIT(SERIES_END_BIT);
	size_t size = s->n * sizeof(list[0]) + sizeof(list[0][0]);
	if (!can(t) ||
	    pwrite(proc->memfd, list, size, (off_t)(proc->series.off + LIST)) != (ssize_t)size)
		return next_call(t);
	return rec_call_series(t, all_made, proc->series.at, proc->series.at + LIST,
			       proc->series.at + (uint64_t)(rec_series_ends - rec_series_begins));
}

/* ---- the page ------------------------------------------------------------------------------ */

static enum rec_state placed(struct rec_thread *t, int64_t result)
{
	struct rec_process *proc = t->proc;
	const size_t size = (size_t)(rec_series_ends - rec_series_begins);
	DJ_ASSERT(size <= LIST && LIST + (REC_SERIES + 1) * SERIES_CALL <= AREA_PAGE,
		  "a series takes more than a page");
	if (rec_failed(result) ||
	    pwrite(proc->memfd, rec_series_begins, size, (off_t)proc->series.off) != (ssize_t)size)
		proc->series.at = 0;
	return t->call.series->then(t, 0);
}

enum rec_state rec_series_place(struct rec_thread *t, uint64_t at, int fd, uint64_t off,
				rec_then *then)
{
	rec_series_begin(t);
	t->call.series->then = then;
	t->proc->series.at = at;
	t->proc->series.off = off;
	if (can(t))
		return rec_call(t, placed, SYS_mmap, at, AREA_PAGE, PROT_READ | PROT_EXEC,
				MAP_SHARED | MAP_FIXED, (uint64_t)fd, off);
	t->proc->series.at = 0;
	return then(t, 0);
}
