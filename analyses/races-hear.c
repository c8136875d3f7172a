/*
 * What threads do that matters to races (analyses/races.h).
 *
 * The first pass notes for every 8 bytes that a thread touched whether it read them, wrote them, or
 * used a locked instruction on them: a few bits each. What two threads of a process touched, and
 * one of them wrote, is shared; where anybody used a locked instruction, the threads agree on
 * something, so all accesses there are a matter of order (a lock is often released by a plain
 * store). The second pass notes accesses to what is shared, the first of a kind between two steps
 * of order, and these.
 */
#include "analyses/call-writes.h"
#include "analyses/groups.h"
#include "analyses/races.h"
#include "format/scatter.h"

#include <stdlib.h>
#include <string.h>

#define LIMIT  4000000 /* events of a thread */
#define PAGES  4096    /* hash chains */
#define READ   1
#define WRITE  2
#define LOCKED 4
#define IO     UINT64_MAX /* what is written to pipes and read from them has one place */

struct page {
	uint64_t number;
	struct page *next;
	uint8_t touched[512]; /* by 8 bytes */
	uint32_t told[512];   /* second pass: 2 * the steps of order when a read, a write was told,
			       * plus 1; for reads, and in `wrote` for writes */
	uint32_t wrote[512];
};

struct pages {
	struct page *chain[PAGES];
};

struct hearing;
struct thread {
	struct hearing *all;
	struct replay_run *run;
	struct pages *pages;
	uint64_t locked; /* steps + 1 of the locked instruction under way */
	uint32_t order;	 /* steps of order so far */
	/* Events from here on belong to the instruction or call after `pending` - 1 steps, whose
	 * number the thread has only when it has passed it: their position is behind it. */
	size_t pending_from;
	uint64_t pending;
	struct race_thread *out;
	bool asked; /* it has come to job->from */
	int lent;   /* 1 + the thread that is in its memory while it waits */
};

struct hearing {
	struct race_world *w;
	struct pages *touched; /* by thread */
	struct pages *shared;  /* by process */
	uint32_t *groups;      /* by thread (analyses/groups.h) */
	bool second;
};

static struct page *page_of(struct pages *p, uint64_t addr, bool make)
{
	struct page **at = &p->chain[dj_scatter(addr >> 12, PAGES)];

	while (*at && (*at)->number != addr >> 12)
		at = &(*at)->next;
	if (!*at && make && (*at = calloc(1, sizeof(**at))))
		(*at)->number = addr >> 12;
	return *at;
}

static void free_pages(struct pages *p)
{
	for (size_t i = 0; i < PAGES; i++)
		while (p->chain[i]) {
			struct page *next = p->chain[i]->next;
			free(p->chain[i]);
			p->chain[i] = next;
		}
}

/* ---- both passes ---- */

/* The thread has gone on: what it did in the order of events has its place now. */
static void settle(struct thread *th)
{
	struct replay_pos pos;

	if (!th->pending || replay_run_steps(th->run) < th->pending)
		return;
	replay_run_pos(th->run, &pos);
	pos.within = pos.rep = 0;
	pos.steps = th->pending;
	for (size_t i = th->pending_from; i < th->out->events.n; i++)
		((struct race_event *)ana_log_at(&th->out->events, i))->pos = pos;
	th->pending = 0;
}

/* What is noted from now on, and settled later. */
static void wait_for_number(struct thread *th)
{
	if (th->pending)
		return;
	th->pending_from = th->out->events.n;
	th->pending = replay_run_steps(th->run) + 1;
}

static struct race_event *note(struct thread *th, enum race_kind kind, uint64_t addr)
{
	struct race_event *e = ana_log_add(&th->out->events);

	if (!e) {
		if (th->out->events.failed)
			replay_run_fail(th->run, "out of memory");
		return NULL;
	}
	replay_run_pos(th->run, &e->pos);
	e->kind = (uint8_t)kind;
	e->addr = addr;
	return e;
}

static void *begin(void *ctx, struct replay_run *run)
{
	struct hearing *h = ctx;
	uint32_t number = replay_run_thread(run);
	struct thread *th = calloc(1, sizeof(*th));

	if (!th) {
		replay_run_fail(run, "out of memory");
		return NULL;
	}
	th->all = h;
	th->run = run;
	th->pages = &h->touched[number];
	th->out = &h->w->threads[number];
	th->out->is = true;
	th->out->process = replay_run_info(run)->process;
	th->order = 1;
	if (h->second) {
		th->out->events =
			(struct ana_log){ .size = sizeof(struct race_event), .limit = LIMIT };
		note(th, RACE_BEGIN, 0);
	}
	return th;
}

static void end(void *ctx, struct replay_run *run, void *data)
{
	struct thread *th = data;

	(void)ctx;
	(void)run;
	if (th && th->all->second) {
		settle(th);
		note(th, RACE_END, 0);
		th->all->w->more |= th->out->events.more;
	}
	free(th);
}

static unsigned wants(void *data, struct replay_run *run, const struct insn *in)
{
	(void)data;
	(void)run;
	return in->attr & INSN_A_ATOMIC ? REPLAY_WANT_POINT : 0;
}

static void point(void *data, struct replay_run *run, const struct insn *in)
{
	struct thread *th = data;

	settle(th);
	if (in->attr & INSN_A_ATOMIC)
		th->locked = replay_run_steps(run) + 1;
}

static bool is_locked(const struct thread *th)
{
	return th->locked && replay_run_steps(th->run) + 1 == th->locked;
}

static void touch(void *data, struct replay_run *run, const struct replay_access *a)
{
	struct thread *th = data;
	uint8_t how = (uint8_t)((a->write ? WRITE : READ) | (is_locked(th) ? LOCKED : 0));

	for (uint64_t at = a->addr & -8ULL; at - (a->addr & -8ULL) < a->size + (a->addr & 7);
	     at += 8) {
		struct page *p = page_of(th->pages, at, true);
		if (!p) {
			replay_run_fail(run, "out of memory");
			return;
		}
		p->touched[at >> 3 & 511] |= how;
	}
}

/* ---- order ---- */

static const struct race_word *word_at(const struct race_world *w, uint32_t process, uint64_t addr)
{
	for (size_t i = 0; i < w->n_words; i++)
		if (w->words[i].addr == addr && w->words[i].process == process)
			return &w->words[i];
	return NULL;
}

/* A locked instruction is told as a read and a write. */
static void in_order(struct thread *th, const struct replay_access *a)
{
	if (is_locked(th)) {
		wait_for_number(th);
		if (!a->write)
			note(th, RACE_ACQUIRE, a->addr & -8ULL);
		else
			note(th, RACE_BOTH, a->addr & -8ULL);
	} else {
		note(th, a->write ? RACE_RELEASE : RACE_ACQUIRE, a->addr & -8ULL);
	}
	th->order++;
}

/* Accesses before job->from are no part of the answer: only order is. */
static bool asked(struct thread *th)
{
	const struct ana_job *job = th->all->w->job;
	struct replay_pos pos;

	if (th->asked || !job->has_from)
		return true;
	replay_run_pos(th->run, &pos);
	return th->asked = replay_pos_cmp(&pos, &job->from) >= 0;
}

static void shared(struct thread *th, struct page *mine, const struct replay_access *a, uint64_t at)
{
	uint32_t *told = a->write ? &mine->wrote[at >> 3 & 511] : &mine->told[at >> 3 & 511];

	if (*told == th->order || !asked(th))
		return;
	*told = th->order;
	struct race_event *e = note(th, a->write ? RACE_WRITE : RACE_READ, at);
	if (e)
		replay_run_code(th->run, replay_run_rip(th->run), &e->code);
}

static void access(void *data, struct replay_run *run, const struct replay_access *a)
{
	struct thread *th = data;
	struct race_world *w = th->all->w;

	(void)run;
	settle(th);
	for (uint64_t at = a->addr & -8ULL; at - (a->addr & -8ULL) < a->size + (a->addr & 7);
	     at += 8) {
		struct page *p = page_of(&th->all->shared[th->out->process], at, false);
		uint8_t how = p ? p->touched[at >> 3 & 511] : 0;

		if (!how)
			continue;
		if (!a->write && a->size == 4 && a->bytes && !memcmp(a->bytes, "\0\0\0", 4) &&
		    word_at(w, th->out->process, a->addr)) {
			note(th, RACE_JOIN, a->addr);
			th->order++;
		} else if (how & LOCKED) {
			in_order(th, a);
		} else {
			struct page *mine = page_of(th->pages, at, true);
			if (mine)
				shared(th, mine, a, at);
		}
	}
}

/* ---- system calls ---- */

static int find_thread(const struct thread *th, uint64_t tid)
{
	struct dj_trace *t = th->all->w->job->t;

	for (size_t i = 0; i < dj_trace_threads(t); i++)
		if (dj_trace_thread(t, i)->tid == (int64_t)tid &&
		    dj_trace_thread(t, i)->process == th->out->process)
			return (int)i;
	return -1;
}

/* Whoever makes a thread says where the kernel is to clear a word at its end: clone(2). */
static void created(struct thread *th, const struct replay_event *e)
{
	struct race_world *w = th->all->w;
	int child = find_thread(th, e->result);

	if (child < 0)
		return;
	if (th->all->second) {
		struct race_event *noted = note(th, RACE_CREATE, 0);
		if (noted)
			noted->other = (uint32_t)child;
		th->order++;
		return;
	}
	replay_run_lock(th->run);
	struct race_word *grown = reallocarray(w->words, w->n_words + 1, sizeof(*grown));
	if (grown) {
		w->words = grown;
		grown[w->n_words++] = (struct race_word){
			.addr = e->number == 56 ? e->args[3]
						: ana_number_at(th->run, e->args[0] + 16, 8),
			.process = th->out->process,
			.thread = (uint32_t)child
		};
	}
	replay_run_unlock(th->run);
}

/* In its memory, until an exec or its end, is a process that the thread waits for (vfork): it makes
 * it here, and goes on at the return of that call. */
static void lent(struct thread *th, const struct replay_event *e)
{
	int child = th->lent ? th->lent - 1
			     : ana_group_thread(th->all->w->job->t, th->all->groups,
						th->out->process, e->number);
	struct race_event *noted;

	if (child < 0)
		return;
	noted = th->all->second ? note(th, th->lent ? RACE_WAIT : RACE_CREATE, 0) : NULL;
	if (noted)
		noted->other = (uint32_t)child;
	th->lent = th->lent ? 0 : child + 1;
	th->order++;
}

static void event(void *data, struct replay_run *run, const struct replay_event *e)
{
	struct thread *th = data;

	(void)run;
	settle(th);
	if (e->kind == REPLAY_EV_CHILD || (e->kind == REPLAY_EV_SYSCALL && th->lent)) {
		lent(th, e);
		return;
	}
	if (e->kind != REPLAY_EV_SYSCALL || e->result > -4096ULL)
		return;
	switch (e->number) {
	case 56:  /* clone */
	case 435: /* clone3 */
		created(th, e);
		return;
	case 1: /* write writev sendto sendmsg */
	case 20:
	case 44:
	case 46:
		if (th->all->second)
			note(th, RACE_RELEASE, IO);
		break;
	case 0: /* read readv recvfrom recvmsg poll epoll_wait */
	case 19:
	case 45:
	case 47:
	case 7:
	case 232:
		if (th->all->second) {
			wait_for_number(th);
			note(th, RACE_ACQUIRE, IO);
		}
		break;
	default:
		return;
	}
	th->order++;
}

/* ---- the passes ---- */

/* What two threads of a process touched, and one wrote, and where anybody used a locked
 * instruction. */
static int find_shared(struct hearing *h)
{
	struct race_world *w = h->w;

	for (size_t i = 0; i < w->n; i++) {
		if (!w->threads[i].is)
			continue;
		struct pages *to = &h->shared[w->threads[i].process];
		for (size_t k = 0; k < PAGES; k++)
			for (struct page *p = h->touched[i].chain[k]; p; p = p->next) {
				struct page *s = page_of(to, p->number << 12, true);
				if (!s)
					return -1;
				/* `told` counts threads here, `wrote` those that wrote */
				for (unsigned g = 0; g < 512; g++) {
					s->touched[g] |= p->touched[g];
					s->told[g] += p->touched[g] != 0;
					s->wrote[g] += (p->touched[g] & WRITE) != 0;
				}
			}
	}
	for (size_t i = 0; i < w->n_words; i++) {
		struct page *s = page_of(&h->shared[w->words[i].process], w->words[i].addr, true);
		if (s)
			s->touched[w->words[i].addr >> 3 & 511] |= LOCKED;
	}
	for (size_t i = 0; i < dj_trace_processes(w->job->t); i++)
		for (size_t k = 0; k < PAGES; k++)
			for (struct page *p = h->shared[i].chain[k]; p; p = p->next)
				for (unsigned g = 0; g < 512; g++)
					if (!(p->touched[g] & LOCKED) &&
					    (p->told[g] < 2 || !p->wrote[g]))
						p->touched[g] = 0;
	return 0;
}

static int hear(struct hearing *h, struct dj_error *err)
{
	struct replay_listener l = { .ctx = h,
				     .begin = begin,
				     .end = end,
				     .wants = wants,
				     .point = point,
				     .access = touch,
				     .event = event };
	const struct replay_listener *listeners[] = { &l };

	if (ana_pass_history(h->w->job, listeners, 1, err))
		return -1;
	if (find_shared(h))
		return dj_fail(err, 1, "out of memory");
	h->second = true;
	l.access = access;
	return ana_pass_history(h->w->job, listeners, 1, err);
}

int ana_races_hear(struct race_world *w, struct dj_error *err)
{
	size_t processes = dj_trace_processes(w->job->t);
	struct hearing h = { .w = w, .groups = ana_groups(w->job->t, err) };
	int ret = -1;

	if (!h.groups)
		return -1;

	w->n = dj_trace_threads(w->job->t);
	w->threads = calloc(w->n + 1, sizeof(*w->threads));
	h.touched = calloc(w->n + 1, sizeof(*h.touched));
	h.shared = calloc(processes + 1, sizeof(*h.shared));
	if (w->threads && h.touched && h.shared)
		ret = hear(&h, err);
	else
		dj_fail(err, 1, "out of memory");
	for (size_t i = 0; h.touched && i < w->n; i++)
		free_pages(&h.touched[i]);
	for (size_t i = 0; h.shared && i < processes; i++)
		free_pages(&h.shared[i]);
	free(h.touched);
	free(h.shared);
	free(h.groups);
	return ret;
}

void ana_races_forget(struct race_world *w)
{
	for (size_t i = 0; w->threads && i < w->n; i++)
		ana_log_free(&w->threads[i].events);
	free(w->threads);
	free(w->words);
}
