/*
 * deja races: accesses of two threads to one place, one of them a write, with no order between
 * them.
 *
 * What threads do is gone through in the order of positions; each thread has a clock for every
 * other one: how far it is known to have come, by what was left at places of order and taken over
 * there (Lamport's happened-before). An access that another thread's clock does not cover has no
 * order to that thread's next access to the same place. Two things wait for others, whatever their
 * position: a thread's beginning for who made it, and finding it ended for its end.
 *
 * Of a part of history that is asked for the accesses count that lie there (--from), or of which
 * one is of the threads (--thread, --process); what has an order is known by all of history.
 */
#include "analyses/races.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define RACES 1000
#define HASH  65536u

/* The last accesses of a thread to 8 bytes. */
struct last {
	uint32_t thread, read, write; /* clocks; 0: none */
	struct replay_pos read_pos, write_pos;
	struct replay_code read_code, write_code;
	struct last *next;
};

/* 8 bytes, or a place of order. */
struct place {
	uint64_t addr;
	uint32_t process;
	struct last *last;
	uint32_t *clock; /* what was left there */
	struct place *next;
};

struct races {
	struct race_world w;
	uint32_t **clocks; /* by thread; those of threads that have ended stay */
	size_t *at;	   /* the next event */
	bool *made, *ended;
	struct place *places[HASH];
	struct ana_table *t;
	struct {
		struct replay_code a, b;
	} told[RACES];
	size_t n_told;
	bool all; /* those within the C library, too */
};

static uint32_t *new_clock(const struct races *r)
{
	return calloc(r->w.n + 1, sizeof(uint32_t));
}

static void join(const struct races *r, uint32_t *to, const uint32_t *from)
{
	for (size_t i = 0; i < r->w.n; i++)
		if (from[i] > to[i])
			to[i] = from[i];
}

static struct place *place_of(struct races *r, uint32_t process, uint64_t addr)
{
	struct place **at = &r->places[(addr >> 3 ^ process * 977) % HASH];

	while (*at && ((*at)->addr != addr || (*at)->process != process))
		at = &(*at)->next;
	if (!*at && (*at = calloc(1, sizeof(**at)))) {
		(*at)->addr = addr;
		(*at)->process = process;
	}
	return *at;
}

/* ---- races ---- */

/* Begins the name of the module that the code is in so? */
static bool is_in(const struct races *r, const struct replay_code *code, const char *prefix)
{
	return code->module >= 0 &&
	       !strncmp(ana_base(dj_trace_module(r->w.job->t, (size_t)code->module)->path), prefix,
			strlen(prefix));
}

/* The C library's own ways of not needing order are not the program's; nor is that the dynamic
 * linker fills tables while others use them. */
static bool is_library(const struct races *r, const struct replay_code *code)
{
	return is_in(r, code, "libc.so") || is_in(r, code, "libc-") || is_in(r, code, "libpthread");
}

static bool is_uninteresting(const struct races *r, const struct replay_code *a,
			     const struct replay_code *b)
{
	return is_in(r, a, "ld-linux") || is_in(r, b, "ld-linux") ||
	       (is_library(r, a) && is_library(r, b));
}

static bool same_code(const struct replay_code *a, const struct replay_code *b)
{
	return a->module == b->module && a->process == b->process && a->offset == b->offset;
}

/* Whether one of the two threads was asked for. */
static bool is_asked(const struct races *r, uint32_t a, uint32_t b)
{
	const bool *threads = r->w.job->threads;

	return !threads || threads[a] || threads[b];
}

static void tell(struct races *r, const struct race_event *e, const struct replay_pos *pos,
		 const struct replay_code *code, bool wrote)
{
	struct ana_job *job = r->w.job;
	char at[64], before[64], here[300], there[300];

	if (r->n_told == RACES || !is_asked(r, e->pos.thread, pos->thread) ||
	    (!r->all && is_uninteresting(r, &e->code, code)))
		return;
	for (size_t i = 0; i < r->n_told; i++)
		if ((same_code(&r->told[i].a, code) && same_code(&r->told[i].b, &e->code)) ||
		    (same_code(&r->told[i].b, code) && same_code(&r->told[i].a, &e->code)))
			return;
	r->told[r->n_told].a = *code;
	r->told[r->n_told++].b = e->code;
	replay_pass_text(job->t, &e->pos, at, sizeof(at));
	replay_pass_text(job->t, pos, before, sizeof(before));
	ana_code_text(job->functions, &e->code, here, sizeof(here));
	ana_code_text(job->functions, code, there, sizeof(there));
	ana_table_row(r->t,
		      (struct ana_cell[]){ { .text = at },
					   { .text = e->kind == RACE_WRITE ? "write" : "read" },
					   { .text = here },
					   { .text = before },
					   { .text = wrote ? "write" : "read" },
					   { .text = there },
					   { .number = e->addr } });
}

static int do_access(struct races *r, uint32_t thread, const struct race_event *e)
{
	const uint32_t *clock = r->clocks[thread];
	struct place *p = place_of(r, r->w.threads[thread].process, e->addr);
	struct last *mine = NULL;

	if (!p)
		return -1;
	for (struct last *l = p->last; l; l = l->next) {
		if (l->thread == thread) {
			mine = l;
			continue;
		}
		if (l->write > clock[l->thread])
			tell(r, e, &l->write_pos, &l->write_code, true);
		else if (e->kind == RACE_WRITE && l->read > clock[l->thread])
			tell(r, e, &l->read_pos, &l->read_code, false);
	}
	if (!mine) {
		mine = calloc(1, sizeof(*mine));
		if (!mine)
			return -1;
		mine->thread = thread;
		mine->next = p->last;
		p->last = mine;
	}
	if (e->kind == RACE_WRITE) {
		mine->write = clock[thread];
		mine->write_pos = e->pos;
		mine->write_code = e->code;
	} else {
		mine->read = clock[thread];
		mine->read_pos = e->pos;
		mine->read_code = e->code;
	}
	return 0;
}

/* ---- order ---- */

/* Whether the event can come to pass now, and what it waits for if not. */
static bool is_ready(const struct races *r, uint32_t thread, const struct race_event *e)
{
	if (e->kind == RACE_BEGIN)
		return r->made[thread];
	if (e->kind == RACE_WAIT)
		return e->other >= r->w.n || r->ended[e->other];
	if (e->kind != RACE_JOIN)
		return true;
	for (size_t i = 0; i < r->w.n_words; i++) {
		const struct race_word *word = &r->w.words[i];
		if (word->addr == e->addr && word->process == r->w.threads[thread].process &&
		    r->made[word->thread] && !r->ended[word->thread])
			return false;
	}
	return true;
}

static int leave_and_take(struct races *r, uint32_t thread, const struct race_event *e)
{
	struct place *p = place_of(r, r->w.threads[thread].process, e->addr);

	if (!p || (!p->clock && !(p->clock = new_clock(r))))
		return -1;
	if (e->kind != RACE_RELEASE)
		join(r, r->clocks[thread], p->clock);
	if (e->kind != RACE_ACQUIRE) {
		join(r, p->clock, r->clocks[thread]);
		r->clocks[thread][thread]++;
	}
	return 0;
}

static int come_to_pass(struct races *r, uint32_t thread, const struct race_event *e)
{
	uint32_t *clock = r->clocks[thread];

	switch (e->kind) {
	case RACE_BEGIN:
		clock[thread]++;
		return 0;
	case RACE_END:
		r->ended[thread] = true;
		return 0;
	case RACE_CREATE:
		if (e->other < r->w.n) {
			join(r, r->clocks[e->other], clock);
			r->made[e->other] = true;
		}
		clock[thread]++;
		return 0;
	case RACE_WAIT:
		if (e->other < r->w.n)
			join(r, clock, r->clocks[e->other]);
		return 0;
	case RACE_JOIN:
		for (size_t i = 0; i < r->w.n_words; i++)
			if (r->w.words[i].addr == e->addr &&
			    r->w.words[i].process == r->w.threads[thread].process &&
			    r->ended[r->w.words[i].thread])
				join(r, clock, r->clocks[r->w.words[i].thread]);
		return 0;
	case RACE_READ:
	case RACE_WRITE:
		return do_access(r, thread, e);
	default:
		return leave_and_take(r, thread, e);
	}
}

static const struct race_event *next_of(const struct races *r, size_t thread)
{
	const struct ana_log *log = &r->w.threads[thread].events;

	return r->at[thread] < log->n ? ana_log_at(log, r->at[thread]) : NULL;
}

/* The thread whose turn it is: of those that need not wait, or else of all. -1: none has anything.
 */
static int whose_turn(const struct races *r, const struct replay_pos **until)
{
	int best[2] = { -1, -1 };

	*until = NULL;
	for (size_t i = 0; i < r->w.n; i++) {
		const struct race_event *e = next_of(r, i);
		if (!e)
			continue;
		int waits = !is_ready(r, (uint32_t)i, e);
		const struct race_event *have =
			best[waits] < 0 ? NULL : next_of(r, (size_t)best[waits]);
		if (!have || replay_pos_cmp(&e->pos, &have->pos) < 0) {
			if (!waits && have)
				*until = &have->pos;
			best[waits] = (int)i;
		} else if (!waits && (!*until || replay_pos_cmp(&e->pos, *until) < 0)) {
			*until = &e->pos;
		}
	}
	return best[0] >= 0 ? best[0] : best[1];
}

static int go_through(struct races *r)
{
	const struct replay_pos *until;
	int thread;

	while ((thread = whose_turn(r, &until)) >= 0) {
		const struct race_event *e = next_of(r, (size_t)thread);
		/* as long as nobody else's is earlier, and nothing happens that others wait for */
		do {
			uint8_t kind = e->kind;
			if (come_to_pass(r, (uint32_t)thread, e))
				return -1;
			r->at[thread]++;
			e = next_of(r, (size_t)thread);
			if (kind == RACE_CREATE || kind == RACE_END)
				break;
		} while (e && is_ready(r, (uint32_t)thread, e) &&
			 (!until || replay_pos_cmp(&e->pos, until) < 0));
	}
	return 0;
}

/* ---- the question ---- */

static bool prepare(struct races *r)
{
	struct dj_trace *t = r->w.job->t;

	r->clocks = calloc(r->w.n + 1, sizeof(*r->clocks));
	r->at = calloc(r->w.n + 1, sizeof(*r->at));
	r->made = calloc(r->w.n + 1, sizeof(*r->made));
	r->ended = calloc(r->w.n + 1, sizeof(*r->ended));
	if (!r->clocks || !r->at || !r->made || !r->ended)
		return false;
	for (size_t i = 0; i < r->w.n; i++) {
		r->clocks[i] = new_clock(r);
		if (!r->clocks[i])
			return false;
		/* the first of a process is not made by one that it shares anything with */
		r->made[i] = dj_trace_thread(t, i)->tid ==
			     dj_trace_process(t, dj_trace_thread(t, i)->process)->pid;
	}
	return true;
}

static void forget(struct races *r)
{
	for (size_t i = 0; i < HASH; i++)
		while (r->places[i]) {
			struct place *p = r->places[i];
			r->places[i] = p->next;
			while (p->last) {
				struct last *l = p->last;
				p->last = l->next;
				free(l);
			}
			free(p->clock);
			free(p);
		}
	for (size_t i = 0; r->clocks && i < r->w.n; i++)
		free(r->clocks[i]);
	free(r->clocks);
	free(r->at);
	free(r->made);
	free(r->ended);
	ana_races_forget(&r->w);
}

static int run(void *state, struct ana_job *job, struct dj_error *err)
{
	struct races *r = state;

	r->w.job = job;
	if (ana_races_hear(&r->w, err)) {
		forget(r);
		return -1;
	}
	r->t = ana_table_new("races", (struct ana_column[]){ { "position", ANA_TEXT },
							     { "kind", ANA_TEXT },
							     { "code", ANA_TEXT },
							     { "other", ANA_TEXT },
							     { "its kind", ANA_TEXT },
							     { "its code", ANA_TEXT },
							     { "address", ANA_HEX },
							     { 0 } });
	int ret = r->t && prepare(r) && !go_through(r) ? 0 : dj_fail(err, 1, "out of memory");
	if (!ret) {
		ana_table_end(&job->out, r->t);
		if (r->n_told == RACES)
			ana_out_lack(&job->out, "These are the first %u races.", RACES);
		if (r->w.more)
			ana_out_lack(&job->out, "Of a thread that shares very much not all was "
						"looked at.");
	}
	forget(r);
	return ret;
}

static int option(void *state, unsigned option, const char *arg, struct dj_error *err)
{
	(void)option;
	(void)arg;
	(void)err;
	((struct races *)state)->all = true;
	return 0;
}

const struct ana_analysis ana_races = {
	.name = "races",
	.args = "[OPTIONS] [FILE]",
	.help = "accesses of two threads without order",
	.usage =
		"Usage: deja races [OPTIONS] [FILE]\n"
		"Accesses of two threads of a process to the same place, one of them a write, "
		"with\n"
		"nothing that orders them: each pair of instructions once, with both positions.\n"
		"\n"
		"      --all           those of the dynamic linker and within the C library, too\n",
	.options = { { "all", false } },
	.size = sizeof(struct races),
	.option = option,
	.run = run,
};
