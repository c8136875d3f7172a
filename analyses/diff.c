/*
 * deja diff: where two recordings of one program first go different ways, thread by thread.
 *
 * The way of a thread is the sequence of edges it took (jumps, calls, returns, signals), by modules
 * and offsets in them, so that it does not matter where they were loaded, and of its system calls
 * with what they returned. A first pass over each recording makes a sum of every PIECE of these;
 * the first piece that differs is then gone through again, and both ways are compared step by step.
 */
#include "analyses/log.h"
#include "analyses/syscall.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PIECE 16384u
#define KEPT                                                                                       \
	400000 /* of the piece that differs, edges and system calls; more than there can be        \
		*/

/* What a thread did next. */
struct step {
	struct replay_pos pos;
	struct replay_code from, to;
	uint64_t result;
	uint32_t call; /* its number + 1 */
};

struct thread {
	struct side *side;
	uint64_t sum, n;
	struct ana_log sums;  /* first pass: struct piece */
	struct ana_log steps; /* second: of the piece `wanted` */
	uint64_t wanted;
};
struct piece {
	struct replay_pos end;
	uint64_t sum;
};

struct side {
	struct dj_trace *t;
	struct ana_job *job;
	struct thread *threads;
	size_t n;
	bool second;
};

struct diff {
	struct side side[2];
	struct ana_table *t;
	struct ana_functions *functions; /* of the first */
};

/* ---- the ways ---- */

static void *begin(void *ctx, struct replay_run *run)
{
	struct side *s = ctx;
	struct thread *th = &s->threads[replay_run_thread(run)];

	if (s->second && th->wanted == UINT64_MAX)
		return NULL;
	th->side = s;
	th->sum = th->n = 0;
	return th;
}

static void close_piece(struct thread *th, struct replay_run *run)
{
	struct piece *p = th->side->second ? NULL : ana_log_add(&th->sums);

	if (p) {
		replay_run_pos(run, &p->end);
		p->sum = th->sum;
	}
	th->sum = 0;
}

static void end(void *ctx, struct replay_run *run, void *data)
{
	struct thread *th = data;

	(void)ctx;
	if (th && th->n % PIECE)
		close_piece(th, run);
}

static void mix(struct thread *th, uint64_t v)
{
	th->sum = (th->sum ^ v) * 0x9e3779b97f4a7c15u;
	th->sum ^= th->sum >> 29;
}

static void next(struct thread *th, struct replay_run *run, const struct step *s)
{
	if (th->side->second && th->n / PIECE == th->wanted) {
		struct step *kept = ana_log_add(&th->steps);
		if (kept) {
			*kept = *s;
			replay_run_pos(run, &kept->pos);
		}
	}
	if (th->side->second && th->n / PIECE > th->wanted) {
		replay_run_stop(run);
		return;
	}
	mix(th, s->from.offset ^ (uint64_t)(uint32_t)s->from.module << 40);
	mix(th, s->to.offset ^ (uint64_t)(uint32_t)s->to.module << 40);
	mix(th, s->result ^ (uint64_t)s->call << 48);
	if (++th->n % PIECE == 0)
		close_piece(th, run);
}

/* Code made at run time lies where it may; so does what has no file. */
static void where(struct replay_run *run, uint64_t addr, struct replay_code *code)
{
	replay_run_code(run, addr, code);
	code->process = 0;
	if (code->module < 0)
		code->offset = 0;
}

static void edge(void *data, struct replay_run *run, const struct replay_edge *e)
{
	struct step s;

	memset(&s, 0, sizeof(s));
	where(run, e->from, &s.from);
	where(run, e->to, &s.to);
	next(data, run, &s);
}

/* Results that are addresses, ids or times are never the same twice. */
static bool comparable(uint64_t nr, uint64_t result)
{
	static const uint16_t different[] = { 9,   12,	25,  30,  39,  56,  57,	 58,  61,  110,
					      111, 112, 121, 124, 186, 201, 218, 247, 435, 334 };

	if (result > -4096ULL)
		return true;
	for (size_t i = 0; i < sizeof(different) / sizeof(different[0]); i++)
		if (different[i] == nr)
			return false;
	return true;
}

static void event(void *data, struct replay_run *run, const struct replay_event *e)
{
	struct step s;

	if (e->kind != REPLAY_EV_SYSCALL)
		return;
	memset(&s, 0, sizeof(s));
	where(run, replay_run_rip(run), &s.from);
	s.call = (uint32_t)e->number + 1;
	s.result = comparable(e->number, e->result) ? e->result : 0;
	next(data, run, &s);
}

static int go(struct side *s, struct ana_job *job, struct dj_error *err)
{
	const struct replay_listener l = { .ctx = s,
					   .begin = begin,
					   .end = end,
					   .edge = edge,
					   .kinds = REPLAY_SEE_BLOCKS & ~REPLAY_SEE_FALL,
					   .event = event };
	const struct replay_listener *listeners[] = { &l };
	struct replay_pass pass = { .listeners = listeners, .n = 1 };

	return ana_pass_whole(job, s->t, &pass, err);
}

/* ---- the answer ---- */

static void step_text(struct ana_functions *f, const struct step *s, char *buf, size_t size)
{
	char name[40], to[300];
	size_t n;

	if (!s) {
		snprintf(buf, size, "the end");
		return;
	}
	if (s->call) {
		n = (size_t)snprintf(buf, size,
				     "%s = ", ana_syscall_name(s->call - 1, name, sizeof(name)));
		snprintf(buf + n, size - n, "%" PRId64, (int64_t)s->result);
		return;
	}
	ana_code_text(f, &s->to, to, sizeof(to));
	snprintf(buf, size, "to %s", to);
}

static bool same_code(const struct replay_code *a, const struct replay_code *b)
{
	return a->module == b->module && a->offset == b->offset;
}

static bool same(const struct step *a, const struct step *b)
{
	return a && b && same_code(&a->from, &b->from) && same_code(&a->to, &b->to) &&
	       a->call == b->call && a->result == b->result;
}

/* The first piece of two threads that differs; UINT64_MAX: none does. */
static uint64_t first_piece(const struct thread *a, const struct thread *b)
{
	size_t i = 0;

	while (i < a->sums.n && i < b->sums.n &&
	       ((struct piece *)ana_log_at(&a->sums, i))->sum ==
		       ((struct piece *)ana_log_at(&b->sums, i))->sum)
		i++;
	return i == a->sums.n && i == b->sums.n ? UINT64_MAX : i;
}

static void compare(struct diff *d, struct ana_functions *f[2], size_t i)
{
	struct thread *a = &d->side[0].threads[i], *b = &d->side[1].threads[i];
	size_t k = 0;
	const struct step *x, *y;

	for (;; k++) {
		x = k < a->steps.n ? ana_log_at(&a->steps, k) : NULL;
		y = k < b->steps.n ? ana_log_at(&b->steps, k) : NULL;
		if ((!x && !y) || !same(x, y))
			break;
	}
	if (!x && !y)
		return;
	char there[2][64] = { "", "" }, text[2][400], code[300];
	if (x)
		replay_pass_text(d->side[0].t, &x->pos, there[0], sizeof(there[0]));
	if (y)
		replay_pass_text(d->side[1].t, &y->pos, there[1], sizeof(there[1]));
	step_text(f[0], x, text[0], sizeof(text[0]));
	step_text(f[1], y, text[1], sizeof(text[1]));
	ana_code_text(f[x ? 0 : 1], x ? &x->from : &y->from, code, sizeof(code));
	ana_table_row(d->t, (struct ana_cell[]){ { .number = i },
						 { .text = code },
						 { .text = there[0], .none = !x },
						 { .text = text[0] },
						 { .text = there[1], .none = !y },
						 { .text = text[1] } });
}

static int open_side(struct side *s, struct dj_trace *t, struct ana_job *job, struct dj_error *err)
{
	s->t = t;
	s->job = job;
	s->n = dj_trace_threads(t);
	s->threads = calloc(s->n + 1, sizeof(*s->threads));
	if (!s->threads)
		return dj_fail(err, 1, "out of memory");
	for (size_t i = 0; i < s->n; i++) {
		s->threads[i].sums =
			(struct ana_log){ .size = sizeof(struct piece), .limit = UINT64_MAX };
		s->threads[i].steps =
			(struct ana_log){ .size = sizeof(struct step), .limit = KEPT };
		s->threads[i].wanted = UINT64_MAX;
	}
	return go(s, job, err);
}

/* Modules may have other numbers in the other recording: programs of the same build have the same
 * ones in the same order, and others differ at once. */
static int ask(struct diff *d, struct ana_job *job, struct dj_trace *other, struct dj_error *err)
{
	struct ana_functions *f[2] = { NULL, job->functions };
	bool any = false;

	if (open_side(&d->side[0], other, job, err) || open_side(&d->side[1], job->t, job, err))
		return -1;
	size_t n = d->side[0].n < d->side[1].n ? d->side[0].n : d->side[1].n;
	for (size_t i = 0; i < n; i++) {
		uint64_t piece = first_piece(&d->side[0].threads[i], &d->side[1].threads[i]);
		d->side[0].threads[i].wanted = d->side[1].threads[i].wanted = piece;
		any |= piece != UINT64_MAX;
	}
	d->side[0].second = d->side[1].second = true;
	f[0] = ana_functions_new(other);
	if (!f[0])
		return dj_fail(err, 1, "out of memory");
	if (any && (go(&d->side[0], job, err) || go(&d->side[1], job, err))) {
		ana_functions_free(f[0]);
		return -1;
	}
	d->t = ana_table_new("differences", (struct ana_column[]){ { "thread", ANA_NUMBER },
								   { "code", ANA_TEXT },
								   { "position", ANA_TEXT },
								   { "there", ANA_TEXT },
								   { "its position", ANA_TEXT },
								   { "here", ANA_TEXT },
								   { 0 } });
	for (size_t i = 0; d->t && i < n; i++)
		if (d->side[0].threads[i].wanted != UINT64_MAX)
			compare(d, f, i);
	if (d->t)
		ana_table_end(&job->out, d->t);
	if (d->side[0].n != d->side[1].n)
		ana_out_line(&job->out, "The first has %zu threads, the second %zu.", d->side[0].n,
			     d->side[1].n);
	else if (!any)
		ana_out_line(&job->out, "They go the same way.");
	ana_functions_free(f[0]);
	return d->t ? 0 : dj_fail(err, 1, "out of memory");
}

static int run(void *state, struct ana_job *job, struct dj_error *err)
{
	struct diff *d = state;
	struct dj_trace *other = dj_trace_open(job->operands[0], err);

	if (!other)
		return -1;
	int ret = dj_trace_missing(other) ? dj_fail(err, 2, "%s", dj_trace_missing(other))
					  : ask(d, job, other, err);
	if (!ret && !job->cut && dj_trace_damage(other)) {
		job->cut = true;
		dj_fail(err, 2, "%s: %s", dj_trace_path(other), dj_trace_damage(other));
	}
	for (unsigned k = 0; k < 2; k++) {
		for (size_t i = 0; d->side[k].threads && i < d->side[k].n; i++) {
			ana_log_free(&d->side[k].threads[i].sums);
			ana_log_free(&d->side[k].threads[i].steps);
		}
		free(d->side[k].threads);
	}
	dj_trace_close(other);
	return ret;
}

const struct ana_analysis ana_diff = {
	.name = "diff",
	.args = "[OPTIONS] FIRST [FILE]",
	.help = "where two recordings go different ways",
	.usage = "Usage: deja diff [OPTIONS] FIRST [FILE]\n"
		 "Where two recordings of one program first go different ways, for each thread: "
		 "the code\n"
		 "from which they part, with the position in either, and what each did next. Ways "
		 "are\n"
		 "jumps, calls and returns, wherever modules were loaded, and system calls with "
		 "results.\n"
		 "\n",
	.operands = 1,
	.alone = true,
	.size = sizeof(struct diff),
	.run = run,
};
