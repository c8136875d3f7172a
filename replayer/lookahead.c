/*
 * Learned bytes: see lookahead.h.
 */
#include "replayer/lookahead.h"
#include "format/scatter.h"
#include "replayer/memview.h"
#include "replayer/replay-internal.h"

#include <stdlib.h>
#include <string.h>

#define LOOK_STRETCH 131072u  /* instructions; two of them take a few milliseconds, */
#define LOOK_WORK    5000000u /* what REP instructions and records may add, */
#define LOOK_MET     100000u  /* and how much is learned */
#define LOOK_SPOILT  1000u

struct rp_lookahead_page {
	uint64_t num;
	struct rp_lookahead_page *next;
	uint32_t first[64], last[64]; /* by line: numbers of meetings, plus one */
};

void rp_lookahead_clear(struct rp_lookahead *l)
{
	for (size_t i = 0; i < LOOKAHEAD_HASH; i++)
		for (struct rp_lookahead_page *p = l->hash[i], *next; p; p = next) {
			next = p->next;
			free(p);
		}
	free(l->met);
	free(l->spoilt);
	*l = (struct rp_lookahead){ 0 };
}

/* ---- learning ------------------------------------------------------------------------------ */

static struct rp_lookahead_page *find(const struct rp_lookahead *l, uint64_t num)
{
	struct rp_lookahead_page *p = l->hash[dj_scatter(num, LOOKAHEAD_HASH)];

	while (p && p->num != num)
		p = p->next;
	return p;
}

/* Room for one more of `*n` elements of that size, `max` at most. */
static bool room(struct rp_lookahead *l, void *array, size_t n, size_t *cap, size_t size,
		 size_t max)
{
	void **p = array;

	if (n < *cap)
		return true;
	size_t grown = *cap ? 2 * *cap : 64;
	void *q = n < max ? realloc(*p, grown * size) : NULL;
	if (!q) {
		l->full = true;
		return false;
	}
	*p = q;
	*cap = grown;
	return true;
}

void rp_lookahead_meet(struct rp_lookahead *l, uint64_t line, uint64_t mask, const uint8_t *bytes)
{
	struct rp_lookahead_page *p;
	unsigned w = line >> 6 & 63;

	if (!mask || l->full || !room(l, &l->met, l->n_met, &l->met_cap, sizeof(*l->met), LOOK_MET))
		return;
	p = find(l, line >> 12);
	if (!p) {
		p = calloc(1, sizeof(*p));
		if (!p) {
			l->full = true;
			return;
		}
		l->pages++;
		p->num = line >> 12;
		struct rp_lookahead_page **list = &l->hash[dj_scatter(p->num, LOOKAHEAD_HASH)];
		p->next = *list;
		*list = p;
	}
	struct rp_lookahead_met *m = &l->met[l->n_met++];
	*m = (struct rp_lookahead_met){ .mask = mask, .found = bytes != NULL };
	if (bytes)
		memcpy(m->bytes, bytes, sizeof(m->bytes));
	if (p->last[w])
		l->met[p->last[w] - 1].next = (uint32_t)l->n_met;
	else
		p->first[w] = (uint32_t)l->n_met;
	p->last[w] = (uint32_t)l->n_met;
}

void rp_lookahead_spoil(struct rp_lookahead *l, struct rp_thread_pos pos, uint64_t addr,
			uint64_t last)
{
	if (l->full ||
	    !room(l, &l->spoilt, l->n_spoilt, &l->spoilt_cap, sizeof(*l->spoilt), LOOK_SPOILT))
		return;
	l->spoilt[l->n_spoilt++] = (struct rp_lookahead_spoilt){
		.pos = pos, .addr = addr, .last = last, .met = (uint32_t)l->n_met
	};
}

bool rp_lookahead_byte(const struct rp_lookahead *l, const struct rp_thread_pos *pos, uint64_t addr,
		       uint8_t *value)
{
	const struct rp_lookahead_page *p = find(l, addr >> 12);
	size_t lo = 0, hi = l->n_met;

	if (!p)
		return false;
	for (size_t i = 0; i < l->n_spoilt; i++) {
		const struct rp_lookahead_spoilt *s = &l->spoilt[i];
		if (addr < s->addr || addr > s->last)
			continue;
		if (rp_thread_pos_cmp(&s->pos, pos) > 0) {
			hi = s->met;
			break;
		}
		lo = s->met;
	}
	for (uint32_t i = p->first[addr >> 6 & 63]; i && i <= hi; i = l->met[i - 1].next) {
		const struct rp_lookahead_met *m = &l->met[i - 1];
		if (i <= lo || !(m->mask >> (addr & 63) & 1))
			continue;
		*value = m->bytes[addr & 63];
		return m->found;
	}
	return false;
}

/* ---- looking --------------------------------------------------------------------------------- */

/* Behind the next step nobody knows what memory has become. */
static void spoil_all(struct replay *r)
{
	struct rp_thread_pos pos;

	rp_thread_pos(r->th, &pos);
	if (rp_thread_signal_here(r->th))
		pos.signals++;
	else
		pos = (struct rp_thread_pos){ .steps = pos.steps + 1 };
	rp_lookahead_spoil(&r->look, pos, 0, UINT64_MAX);
}

/* Run the thread in hand on to instruction `end`, learning, for as long as that may take. False if
 * somebody did not want to wait for it. */
static bool learn(struct replay *r, uint64_t end)
{
	const struct rp_thread_pos to = { .steps = end };
	bool sharing = rp_sharing(r);
	uint64_t sysno;
	struct rp_thread *th = r->th;
	enum rp_thread_stop res = THREAD_LIMIT;

	r->patience.allowance = LOOK_WORK;
	r->mv->look = &r->look;
	/* behind its next event it may find what others have written until then */
	if (sharing)
		th->seq_stop = rp_thread_next_seq(th);
	while (!r->look.full) {
		if (rp_thread_signal_here(th) || (rp_thread_syscall_here(th, &sysno) &&
						  !rp_memview_knows_syscall(th->e->cpu.gpr)))
			spoil_all(r);
		res = rp_thread_run(th, &to, THREAD_EV_SYSCALL | THREAD_EV_SIGNAL | THREAD_EV_EXEC);
		if (res != THREAD_EVENT || th->event == THREAD_EV_EXEC)
			break;
		if (th->event == THREAD_EV_ORDER) {
			spoil_all(r);
			th->seq_stop = rp_thread_next_seq(th) + 1;
		}
	}
	th->seq_stop = UINT64_MAX;
	r->mv->look = NULL;
	bool waited = res != THREAD_INTERRUPTED || !r->patience.allowance;
	r->patience.allowance = UINT64_MAX;
	return waited;
}

/* Look ahead from here, or from `start` before it, and come back. */
static void look(struct replay *r, const struct rp_thread_pos *here, uint64_t start)
{
	struct rp_lookahead *l = &r->look;
	struct rp_thread_pos from = { .steps = start };
	bool told = r->signal_told, cancelled = r->cancelled;
	bool (*poll)(void *) = r->patience.poll;
	bool whole = start < here->steps;

	rp_lookahead_clear(l);
	rp_checkpoint_take(r->cs);
	if (!rp_checkpoint_here(r->cs))
		return;
	r->patience.poll = NULL; /* it has to stand where it stood, whoever is impatient */
	r->th->e->stop_at = NULL;
	if (whole ? !replay_move(r, &from, NULL) : (from = *here, true)) {
		r->patience.poll = poll;
		l->good = learn(r, (here->steps / LOOK_STRETCH + 2) * LOOK_STRETCH);
		r->patience.poll = NULL;
		l->thread = r->selected;
		l->from = from;
		rp_thread_pos(r->th, &l->upto);
	}
	replay_move(r, here, NULL);
	r->patience.poll = poll;
	r->signal_told = told;
	r->cancelled = cancelled;
}

/* Whether what was learned is good for a position. */
static bool covers(const struct rp_lookahead *l, const struct rp_thread_pos *here)
{
	return here->steps / LOOK_STRETCH == l->from.steps / LOOK_STRETCH &&
	       rp_thread_pos_cmp(here, &l->from) >= 0 && rp_thread_pos_cmp(here, &l->upto) < 0;
}

size_t rp_lookahead_read(struct replay *r, uint64_t addr, uint8_t *buf, size_t len)
{
	const struct rp_lookahead *l = &r->look;
	size_t done = 0;
	struct rp_thread_pos here;

	rp_thread_pos(r->th, &here);
	if (r->in_copy || r->th->div.found || rp_thread_at_end(r->th))
		return 0;
	bool same = l->good && l->thread == r->selected;
	if (!same || !covers(l, &here)) {
		/* who goes back will do so again: then all of the stretch is wanted */
		uint64_t start = here.steps / LOOK_STRETCH * LOOK_STRETCH;
		bool back = same && here.steps / LOOK_STRETCH <= l->from.steps / LOOK_STRETCH &&
			    rp_thread_pos_cmp(&here, &l->from) < 0;
		if (start < r->th->info->first_steps)
			start = r->th->info->first_steps;
		look(r, &here, back && start < here.steps ? start : here.steps);
		if (!covers(l, &here) && back)
			look(r, &here, here.steps);
	}
	while (done < len && l->good && rp_lookahead_byte(l, &here, addr + done, &buf[done]))
		done++;
	return done;
}
