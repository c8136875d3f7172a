/*
 * Which of several threads is right about a byte of a page: the one that changed it last, or the
 * selected one, if it met it after that (replay-shared.c has the reasons).
 *
 * The histories of all that take part are searched back together, interval by interval between
 * checkpoints, each time that which reaches closest to the moment. As soon as somebody is found to
 * have met a byte, whoever has been searched down to before that is not searched for it any more.
 * So what a thread has written just now is found at once, however long ago the others met it. (One
 * after the other, each down to where it had met all, was a hundred intervals for what one shows.)
 */
#include "replayer/shared.h"

#include "replayer/land.h"

#include <stdlib.h>
#include <string.h>

#define PAGE SHARED_PAGE

static bool bit(const uint64_t *bits, unsigned i)
{
	return bits[i / 64] >> i % 64 & 1;
}

static void set(uint64_t *bits, unsigned i)
{
	bits[i / 64] |= 1ULL << i % 64;
}

/* ---- what has to be found out ---------------------------------------------------------------- */

/* Whether two of those who have met the byte do not say the same. */
static bool disputed(const struct page *p, unsigned i)
{
	const struct voice *first = p->own && p->own->state[i] != RP_BYTE_NONE ? p->own : NULL;

	for (size_t a = 0; a < p->n; a++) {
		if (p->others[a]->state[i] == RP_BYTE_NONE)
			continue;
		if (first && voices_differ(first, p->others[a], i))
			return true;
		first = p->others[a];
	}
	return false;
}

/* The selected one comes first. */
static struct voice *voice(const struct page *p, size_t a)
{
	if (!p->own)
		return a < p->n ? p->others[a] : NULL;
	return !a ? p->own : a <= p->n ? p->others[a - 1] : NULL;
}

/* Mark about which bytes who has to be searched. Who agrees with the selected thread counts, too:
 * it may be right by what the other did. */
static void question(struct page *p)
{
	struct voice *v;

	for (unsigned i = 0; i < PAGE; i++) {
		if (!(p->lines >> i / SHARED_LINE & 1) || !disputed(p, i))
			continue;
		for (size_t a = 0; (v = voice(p, a)); a++)
			if (v->state[i] != RP_BYTE_NONE)
				set(v->want, i);
	}
}

static bool any_wanted(const struct voice *v)
{
	for (unsigned w = 0; w < PAGE / 64; w++)
		if (v->want[w])
			return true;
	return false;
}

/* ---- when they met it ------------------------------------------------------------------------ */

/* For each byte, when it was met last, as far as has been found. */
struct met {
	uint64_t found[PAGE / 64];
	uint64_t seq[PAGE];
};

/* What an interval has shown, of what is not known from a later one. */
static void merge(struct voice *v, const struct rp_memview_notes *from, struct met *met)
{
	for (unsigned i = 0; i < PAGE; i++) {
		if (!bit(from->noted, i) || bit(v->notes.noted, i))
			continue;
		set(v->notes.noted, i);
		v->notes.seq[i] = from->seq[i];
		if (!bit(met->found, i) || met->seq[i] < from->seq[i])
			met->seq[i] = from->seq[i];
		set(met->found, i);
	}
}

/* Whether what the voice's thread did still earlier matters. */
static bool is_open(const struct voice *v, const struct met *met)
{
	for (unsigned w = 0; w < PAGE / 64; w++)
		for (uint64_t left = v->want[w] & ~v->notes.noted[w]; left; left &= left - 1) {
			unsigned i = w * 64 + (unsigned)__builtin_ctzll(left);
			if (!bit(met->found, i) || v->seq >= met->seq[i])
				return true;
		}
	return false;
}

/* Run the thread in hand to `to`, noting. */
static enum rp_thread_stop run_noting(struct replay *r, const struct rp_thread_pos *to,
				      struct rp_memview_notes *part)
{
	memset(part->noted, 0, sizeof(part->noted));
	part->peeked = false;
	rp_memview_note(r->mv, part);
	r->th->e->exact = true;
	enum rp_thread_stop res = replay_run_to(r, to, 0, true);
	r->th->e->exact = false;
	rp_memview_note(r->mv, NULL);
	return res == THREAD_END ? THREAD_LIMIT : res;
}

/* The thread in hand, as it stands at the moment. */
static void begin(const struct replay *r, struct voice *v)
{
	uint64_t within;

	rp_thread_pos(r->th, &v->here);
	rp_thread_seq(r->th, &v->seq, &within);
	v->low = v->here;
}

static bool is_over(const struct replay *r, const struct voice *v)
{
	const struct rp_thread_pos first = {
		.steps = dj_trace_thread(r->t, v->thread)->first_steps
	};

	return rp_thread_pos_cmp(&v->low, &first) <= 0;
}

/* Whether it surely met none of its bytes from checkpoint list[i] on to where it has been searched
 * to. */
static bool is_quiet(const struct replay *r, const struct voice *v, size_t i)
{
	uint64_t page = v->notes.num * PAGE, first = PAGE, last = 0;

	for (unsigned w = 0; w < PAGE / 64; w++) {
		uint64_t left = v->want[w] & ~v->notes.noted[w];
		if (!left)
			continue;
		if (first == PAGE)
			first = w * 64 + (unsigned)__builtin_ctzll(left);
		last = w * 64 + 63 - (unsigned)__builtin_clzll(left);
	}
	return rp_checkpoint_quiet(r->cs, i, &v->low, page + first, page + last, v->notes.reads);
}

/* Search one interval more: from the last full checkpoint before it on (or from the beginning), or
 * skip it. */
static int search(struct replay *r, struct voice *v, struct rp_memview_notes *part, struct met *met)
{
	size_t i = rp_checkpoint_before(r->cs, &v->low);
	enum rp_thread_stop res = THREAD_LIMIT;
	bool quiet = i && is_quiet(r, v, i - 1);
	if (!quiet)
		i = rp_checkpoint_full(r->cs, i);
	const struct rp_checkpoint *c = i ? r->cs->list[i - 1] : NULL;
	const struct rp_thread_pos first = { .steps = r->th->info->first_steps },
				   from = c ? c->pos : first;
	const uint64_t seq = c ? c->seq : 0;
	if (!quiet) {
		v->moved = true;
		res = rp_land(r, &from, true, NULL) ? THREAD_FAILED : run_noting(r, &v->low, part);
		if (res == THREAD_LIMIT)
			merge(v, part, met);
	}
	v->low = from;
	v->seq = seq;
	if (res == THREAD_INTERRUPTED)
		r->cancelled = true;
	return res == THREAD_LIMIT ? 0 : -1;
}

/* The one to be searched next: what it did is closest to the moment. */
static struct voice *next(const struct replay *r, const struct page *p, const struct met *met)
{
	struct voice *v, *last = NULL;

	for (size_t a = 0; (v = voice(p, a)); a++) {
		if (v->done || (last && v->seq <= last->seq))
			continue;
		v->done = is_over(r, v) || !is_open(v, met);
		if (!v->done)
			last = v;
	}
	return last;
}

/* Its thread stands where it stood. Whoever has been interrupted waits for the two only that have
 * to; the others go there when they are wanted. */
static int stand_again(struct replay *r, const struct page *p, const struct voice *v)
{
	if (r->cancelled && v != p->own && v->thread != r->moment.thread) {
		r->threads[v->thread].placed = false;
		return 0;
	}
	return rp_switch(r, v->thread, NULL) || rp_shared_put_back(r, &v->here, r->cancelled);
}

static int search_all(struct replay *r, struct page *p)
{
	struct rp_memview_notes *part = malloc(sizeof(*part));
	struct met *met = calloc(1, sizeof(*met));
	int ret = part && met ? 0 : -1;
	struct voice *v;

	if (part)
		*part = (struct rp_memview_notes){ .num = p->num };
	while (!ret && (v = next(r, p, met))) {
		part->reads = v->notes.reads;
		ret = rp_switch(r, v->thread, NULL) ? -1 : search(r, v, part, met);
	}
	free(part);
	free(met);
	for (size_t a = 0; (v = voice(p, a)); a++)
		if (v->moved && stand_again(r, p, v))
			ret = -1;
	return ret;
}

int rp_shared_order(struct replay *r, struct page *p)
{
	struct voice *v;
	bool any = false;

	question(p);
	for (size_t a = 0; (v = voice(p, a)); a++) {
		if (!any_wanted(v))
			continue;
		if (v == p->own || v->thread == r->moment.thread
			    ? rp_switch(r, v->thread, NULL)
			    : rp_place_upto(r, v->thread, v->upto, NULL))
			return -1;
		begin(r, v);
		any = true;
	}
	if (p->own)
		p->own->notes.reads = true;
	return any ? search_all(r, p) : 0;
}

/* ---- deciding -------------------------------------------------------------------------------- */

/* Whether `a` met the byte later than `b`. What was not found is older than all. */
static bool met_later(const struct voice *a, const struct voice *b, unsigned i)
{
	bool x = bit(a->notes.noted, i), y = bit(b->notes.noted, i);

	if (!x || !y)
		return x;
	if (a->notes.seq[i] != b->notes.seq[i])
		return a->notes.seq[i] > b->notes.seq[i];
	return a->thread > b->thread;
}

/* Of the others, who changed the byte last; NULL: nobody knows it. */
static struct voice *last_of_others(const struct page *p, unsigned i)
{
	struct voice *last = NULL;

	for (size_t a = 0; a < p->n; a++) {
		struct voice *v = p->others[a];
		if (v->state[i] != RP_BYTE_NONE && (!last || met_later(v, last, i)))
			last = v;
	}
	return last;
}

void rp_shared_decide(const struct page *p, struct rp_shown *s)
{
	for (unsigned i = 0; i < PAGE; i++) {
		const struct voice *v = last_of_others(p, i), *own = p->own;
		if (own && own->state[i] != RP_BYTE_NONE &&
		    (!v || !voices_differ(v, own, i) || !met_later(v, own, i)))
			v = own;
		s->state[i] = v ? v->state[i] : RP_BYTE_NONE;
		s->value[i] = v ? v->value[i] : 0;
	}
}
