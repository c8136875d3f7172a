/*
 * Memory of a process with several threads, for people to look at.
 *
 * Each thread has replayed what it saw, and knows nothing of what the others did meanwhile. What a
 * person wants to see at a moment is what memory had then, as far as the one order of positions
 * says. For each byte:
 *
 *   What the selected thread knows of it holds, from the position at which the thread last read or
 *   wrote it, unless another thread has changed it at a later position: has stored to it, imported
 *   its line, or made a system call that wrote to it.
 *   What the selected thread has never met is as the thread has it that changed it last.
 *
 * So a variable that another thread has written and handed over by a mutex is shown as written,
 * although the selected thread has not looked yet; and in a data race, in which a thread still
 * reads the old value after the order says that it was written, that thread shows the old one. A
 * reading by another thread is no reason against what the selected one knows. What the selected
 * thread executes is another matter: it always gets what it really got.
 *
 * What somebody knows of a page holds until something else is mapped there. A thread comes to know
 * of what another has mapped when it passes its next event, be that long after; and before that
 * event it may have been told already, be that long before: at the last position, or behind a
 * system call during which it came to pass. So where mappings changed between what a thread has
 * passed and the moment, it knows nothing (mapped_since()); and where they changed behind the
 * moment, but before its next event, what it knew before it heard of that counts, too
 * (listen_before()).
 *
 * Positions of bytes are not kept, since nearly all bytes need none: where threads that know a byte
 * agree about it there is no question. Where they do not, the histories of those that take part are
 * searched back for when they met the bytes last (shared-order.c).
 */
#include "replayer/shared.h"

#include <stdlib.h>
#include <string.h>

#define PAGE  SHARED_PAGE
#define LINE  SHARED_LINE
#define TIMES 8u    /* that often a page is looked at for some of its lines */
#define TOLD  1024u /* that a thread is told of on a way are remembered */

/* ---- who knows what ------------------------------------------------------------------------- */

bool rp_sharing(const struct replay *r)
{
	const uint32_t process = dj_trace_thread(r->t, r->selected)->process;

	for (uint32_t i = 0; !r->in_copy && i < r->nthreads; i++)
		if (i != r->selected && dj_trace_thread(r->t, i)->process == process)
			return true;
	return false;
}

/* What the thread in hand says about the page; NULL: nothing, or there is no memory. */
static struct voice *listen(struct replay *r, uint64_t num)
{
	struct voice *v = calloc(1, sizeof(*v));

	if (!v)
		return NULL;
	v->thread = r->selected;
	v->notes.num = num;
	if (rp_memview_bytes(r->mv, num, v->state, v->value))
		return v;
	free(v);
	return NULL;
}

/* Whether others have mapped something else at the page of which the thread in hand has yet to come
 * to know: then it knows nothing of it. */
static bool mapped_since(struct replay *r, uint64_t num, uint64_t upto)
{
	uint64_t seq, within;

	rp_thread_seq(r->th, &seq, &within);
	return rp_remapped(&r->remaps, r->t, dj_trace_thread(r->t, r->selected)->process,
			   num * PAGE, seq, upto);
}

/* The same behind event `upto`, of which it may have been told; at its end that may be any. */
static bool mapped_soon(struct replay *r, uint64_t num, uint64_t upto)
{
	uint64_t next = rp_thread_at_end(r->th) ? UINT64_MAX : rp_thread_next_seq(r->th);

	return rp_remapped(&r->remaps, r->t, dj_trace_thread(r->t, r->selected)->process,
			   num * PAGE, upto, next);
}

/* A thread on its way to where it stands. */
struct before_told {
	struct replay *r;
	struct voice *v; /* what it has known of the page, also if that was mapped anew; or NULL */
	uint64_t num, upto;
	bool told;
};

/* Whether the record tells the thread in hand that another has mapped something else. */
static bool tells(const struct replay *r, const struct dj_record *rec)
{
	return (rec->kind == DJ_REC_MAP || rec->kind == DJ_REC_UNMAP) &&
	       rec->thread != (int32_t)r->selected && rec->seq != DJ_SEQ_UNKNOWN;
}

/* The same for the page, by an event behind `upto`. */
static bool concerns(const struct before_told *b, uint64_t seq, uint64_t addr, uint64_t length)
{
	return seq > b->upto && b->num * PAGE - addr < length;
}

/* What the thread in hand knows now lies above what it has known. */
static void add_voice(struct before_told *b)
{
	struct voice *now = listen(b->r, b->num);

	for (unsigned i = 0; now && b->v && i < PAGE; i++)
		if (now->state[i] == RP_BYTE_NONE) {
			now->state[i] = b->v->state[i];
			now->value[i] = b->v->value[i];
		}
	if (!now)
		return;
	free(b->v);
	b->v = now;
}

static void hear(void *ctx, const struct dj_record *rec)
{
	struct before_told *b = ctx;

	if (!tells(b->r, rec) || !concerns(b, rec->seq, rec->addr, rec->length))
		return;
	b->told = true;
	add_voice(b);
}

int rp_shared_put_back(struct replay *r, const struct rp_thread_pos *here, bool cancelled)
{
	bool (*poll)(void *) = r->patience.poll;

	r->patience.poll = NULL;
	int ret = replay_move(r, here, NULL);
	r->patience.poll = poll;
	r->cancelled = cancelled;
	return ret;
}

/* The thread in hand hears what it is told at `steps`, or where it is told that before `here`. */
static int hear_at(struct before_told *b, uint64_t steps, const struct rp_thread_pos *here)
{
	const struct rp_thread_pos at = { .steps = steps };
	const struct rp_hearer hearer = { .ctx = b, .record = hear };
	struct rp_thread *th = b->r->th;
	struct rp_thread_pos now;

	if (replay_move(b->r, &at, NULL))
		return -1;
	if (replay_move_back(b->r, NULL))
		return b->r->cancelled ? -1 : 0; /* where it begins; it knew nothing before */
	const struct rp_hearer *other = th->hearer;
	th->hearer = &hearer;
	b->told = false;
	do {
		if (rp_thread_step(th) != THREAD_LIMIT)
			break;
		rp_thread_pos(th, &now);
	} while (!b->told && now.steps <= steps && rp_thread_pos_cmp(&now, here) < 0);
	th->hearer = other;
	return 0;
}

static int told_of(struct rp_told *told, const struct dj_record *rec)
{
	if (told->n == told->cap) {
		size_t cap = told->cap * 2 + 16;
		struct rp_told_of *grown = realloc(told->v, cap * sizeof(*grown));
		if (!grown)
			return -1;
		told->v = grown;
		told->cap = cap;
	}
	told->v[told->n++] = (struct rp_told_of){ rec->steps, rec->seq, rec->addr, rec->length };
	return 0;
}

static int find_told(struct replay *r, uint64_t from, uint64_t to, struct rp_told *told)
{
	struct dj_error err = { 0 };
	struct dj_cursor *c = dj_cursor_new(r->t, r->selected, &err);
	const struct dj_record *rec;
	int ret = c ? dj_cursor_seek_steps(c, from, &err) : -1;

	told->n = 0;
	told->from = UINT64_MAX;
	while (!ret && (rec = dj_cursor_next(c, &err)) && rec->steps <= to)
		if (rec->steps >= from && tells(r, rec))
			ret = told_of(told, rec);
	dj_cursor_free(c);
	if (ret)
		return -1;
	told->from = from;
	told->to = to;
	return 0;
}

/* What the thread in hand is told behind its last event, up to where it stands. Many pages are
 * looked at from there, and often at many moments: it may be asleep. If it is little, each thread's
 * is remembered. NULL: that cannot be found out. */
static const struct rp_told *told_here(struct replay *r)
{
	struct rp_told *own = &r->threads[r->selected].told, *told = &r->told;
	const uint64_t to = r->th->e->steps;
	uint64_t seq, within;

	rp_thread_seq(r->th, &seq, &within);
	const uint64_t from = to - within - (to > within);
	if (own->from == from && own->to == to)
		return own;
	if (find_told(r, from, to, told))
		return NULL;
	struct rp_told_of *v = told->n > TOLD ? NULL : malloc((told->n + 1) * sizeof(*v));
	if (!v)
		return told;
	if (told->n)
		memcpy(v, told->v, told->n * sizeof(*v));
	free(own->v);
	*own = (struct rp_told){ from, to, told->n, told->n, v };
	return own;
}

/* What the thread in hand has to say about the page if mappings by events behind `upto` are no
 * reason to forget what it knows. It may have been told of them at any step behind the last event
 * that it has passed: most often at the very last, but also where a system call took its time. Not
 * 0: that cannot be found out, or it could not be put back. */
static int listen_before(struct replay *r, uint64_t num, uint64_t upto, struct voice **v)
{
	struct before_told b = { .r = r, .num = num, .upto = upto };
	const struct rp_told *told = told_here(r);
	struct rp_thread_pos here;
	uint64_t last = UINT64_MAX;
	int ret = told ? 0 : -1;

	rp_thread_pos(r->th, &here);
	for (size_t i = 0; !ret && i < told->n; i++) {
		const struct rp_told_of *o = &told->v[i];
		if (o->steps == last || !concerns(&b, o->seq, o->addr, o->length))
			continue;
		ret = hear_at(&b, o->steps, &here);
		last = o->steps;
	}
	if (rp_shared_put_back(r, &here, r->cancelled) || ret) {
		free(b.v);
		return -1;
	}
	add_voice(&b);
	*v = b.v;
	return 0;
}

/* What the thread in hand has to say about the page at the moment, having passed events up to
 * `upto`. Not 0: that cannot be found out. */
static int listen_at(struct replay *r, uint64_t num, uint64_t upto, struct voice **v)
{
	*v = NULL;
	if (mapped_since(r, num, r->moment.seq))
		return 0;
	if (mapped_soon(r, num, upto))
		return listen_before(r, num, upto, v);
	*v = listen(r, num);
	return 0;
}

/* Whether anybody has anything to say that the thread itself does not know as well. */
static bool matters(const struct page *p)
{
	for (size_t a = 0; a < p->n; a++)
		for (unsigned i = 0; i < PAGE; i++)
			if (p->others[a]->state[i] != RP_BYTE_NONE &&
			    (!p->own || voices_differ(p->others[a], p->own, i)))
				return true;
	return false;
}

static int add(struct page *p, struct voice *v)
{
	if (p->n == p->cap) {
		size_t cap = p->cap * 2 + 8;
		struct voice **grown = realloc(p->others, cap * sizeof(*grown));
		if (!grown)
			return -1;
		p->others = grown;
		p->cap = cap;
	}
	p->others[p->n++] = v;
	return 0;
}

/* Ask all other threads of the process, as they stand at the moment. */
static int ask(struct replay *r, struct page *p, uint32_t thread)
{
	uint32_t process = dj_trace_thread(r->t, thread)->process;
	uint32_t image = r->th->space->image;
	struct replay_pos moment = r->moment;
	struct voice *v;
	uint64_t upto = 0;

	for (uint32_t i = 0; i < r->nthreads; i++) {
		if (i == thread || dj_trace_thread(r->t, i)->process != process)
			continue;
		if (i == moment.thread
			    ? rp_switch(r, i, NULL)
			    : !rp_begun(r, &moment, i, &upto) || rp_place_upto(r, i, upto, NULL)) {
			if (r->cancelled)
				return -1;
			continue;
		}
		/* a thread that ended at an exec has memory of an image that is gone */
		v = NULL;
		if (r->th->space->image == image &&
		    listen_at(r, p->num, i == moment.thread ? moment.seq : upto, &v))
			return -1;
		if (v)
			v->upto = upto;
		if (v && add(p, v))
			free(v);
	}
	return 0;
}

/* ---- what is shown --------------------------------------------------------------------------- */

/* What nobody has met is as the moment's thread finds it mapped, since the selected one has yet to
 * come to know of it. */
static void fill_in(struct replay *r, uint64_t num, struct rp_shown *s)
{
	uint32_t process = dj_trace_thread(r->t, r->selected)->process;
	bool knows = dj_trace_thread(r->t, r->moment.thread)->process == process &&
		     !rp_switch(r, r->moment.thread, NULL);

	for (unsigned i = 0; i < PAGE; i++)
		if (s->state[i] == RP_BYTE_NONE)
			s->state[i] = knows && rp_memview_read(r->mv, num * PAGE + i, &s->value[i],
							       1) == 1
					      ? RP_BYTE_HAS
					      : RP_BYTE_STALE;
}

/* These lines of the page as they are to be shown at the moment. */
static int make(struct replay *r, uint64_t num, uint64_t lines, struct rp_shown *s)
{
	struct page p = { .num = num, .lines = lines };
	uint32_t thread = r->selected;
	bool told = r->signal_told;

	replay_pos(r, &r->moment);
	bool gone = mapped_since(r, num, r->moment.seq);
	uint64_t upto = r->moment.seq - (thread > r->moment.thread && r->moment.seq);
	bool soon = !gone && mapped_soon(r, num, upto);
	int ret = listen_at(r, num, upto, &p.own);
	if (!ret)
		ret = ask(r, &p, thread);
	s->plain = !gone && !soon && !matters(&p);
	if (!ret && !s->plain)
		ret = rp_shared_order(r, &p);
	if (!ret && !s->plain)
		rp_shared_decide(&p, s);
	if (!ret && gone)
		fill_in(r, num, s);
	s->lines = s->plain ? UINT64_MAX : lines;
	rp_switch(r, thread, NULL); /* open already */
	r->signal_told = told;
	free(p.own);
	for (size_t a = 0; a < p.n; a++)
		free(p.others[a]);
	free(p.others);
	return ret;
}

/* ---- the interface ----------------------------------------------------------------------------
 */

/* The page with these lines, as found out before at this moment or now; NULL: that cannot be. What
 * the threads disagree about in other lines may take long to find out, and for naught. Who goes on
 * to look at the page gets all of it. */
static const struct rp_shown *shown(struct replay *r, uint64_t num, uint64_t lines)
{
	struct rp_shown **slot = &r->shown[num % SHOWN_PAGES], *s = *slot;
	struct replay_pos moment;

	replay_pos(r, &moment);
	if (!s && !(s = *slot = calloc(1, sizeof(*s))))
		return NULL;
	bool known = s->good && s->num == num && s->selected == r->selected &&
		     !memcmp(&s->moment, &moment, sizeof(moment));
	if (known && !(lines & ~s->lines))
		return s;
	s->times = known ? s->times + 1 : 1;
	lines = s->times < TIMES ? lines | (known ? s->lines : 0) : UINT64_MAX;
	bool cancelled = r->cancelled;
	r->cancelled = false;
	s->good = !make(r, num, lines, s);
	r->look_cut |= r->cancelled;
	r->cancelled = cancelled;
	s->num = num;
	s->selected = r->selected;
	s->moment = moment;
	return s->good ? s : NULL;
}

static uint64_t lines_of(uint64_t off, size_t n)
{
	uint64_t first = off / LINE, last = (off + n - 1) / LINE;

	return (UINT64_MAX >> (63 - last)) & (UINT64_MAX << first);
}

size_t rp_shared_read(struct replay *r, uint64_t addr, uint8_t *buf, size_t len)
{
	size_t done = 0;

	while (done < len && addr + done >= addr) {
		uint64_t at = addr + done, off = at % PAGE;
		size_t n = PAGE - off < len - done ? PAGE - off : len - done, i = 0;
		const struct rp_shown *s = shown(r, at / PAGE, lines_of(off, n));
		if (!s || s->plain) {
			i = rp_memview_read(r->mv, at, buf + done, n);
		} else {
			for (; i < n && s->state[off + i] != RP_BYTE_STALE; i++) {
				if (s->state[off + i] == RP_BYTE_HAS)
					buf[done + i] = s->value[off + i];
				else if (!rp_memview_read(r->mv, at + i, buf + done + i, 1))
					break;
			}
		}
		done += i;
		if (i < n)
			break;
	}
	return done;
}

void rp_shared_free(struct replay *r)
{
	for (unsigned i = 0; i < SHOWN_PAGES; i++)
		free(r->shown[i]);
	free(r->told.v);
}
