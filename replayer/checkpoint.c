/*
 * Checkpoints: see checkpoint.h.
 */
#include "replayer/checkpoint.h"
#include "replayer/trail.h"

#include <stdlib.h>
#include <string.h>

#define FEWEST 8u /* so many stay, whatever the budget */

void rp_checkpoints_init(struct rp_checkpoints *cs, struct rp_thread *th, struct rp_memview *mem,
			 size_t budget)
{
	*cs = (struct rp_checkpoints){ .th = th, .mem = mem, .max = 1000, .budget = budget };
}

void rp_checkpoint_free(struct rp_checkpoint *c)
{
	rp_space_unref(c->space);
	rp_changes_free(&c->changes);
	rp_lines_free(&c->lines);
	free(c);
}

void rp_checkpoints_free(struct rp_checkpoints *cs)
{
	for (size_t i = 0; i < cs->n; i++)
		rp_checkpoint_free(cs->list[i]);
	free(cs->list);
	cs->list = NULL;
	cs->n = cs->base = 0;
}

/* ---- finding -------------------------------------------------------------------------------- */

size_t rp_checkpoint_count(const struct rp_checkpoints *cs, const struct rp_thread_pos *pos)
{
	size_t lo = 0, hi = cs->n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		if (rp_thread_pos_cmp(&cs->list[mid]->pos, pos) <= 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

size_t rp_checkpoint_full(const struct rp_checkpoints *cs, size_t n)
{
	while (n && cs->list[n - 1]->light)
		n--;
	return n;
}

static bool at(const struct rp_checkpoint *c, const struct rp_thread_pos *pos)
{
	return !rp_thread_pos_cmp(&c->pos, pos);
}

/* The index of the first full one from list[i] on; cs->n if there is none. */
static size_t full_from(const struct rp_checkpoints *cs, size_t i)
{
	while (i < cs->n && cs->list[i]->light)
		i++;
	return i;
}

static size_t count_here(const struct rp_checkpoints *cs)
{
	struct rp_thread_pos pos;

	rp_thread_pos(cs->th, &pos);
	return rp_checkpoint_count(cs, &pos);
}

struct rp_checkpoint *rp_checkpoint_last(const struct rp_checkpoints *cs)
{
	size_t n = rp_checkpoint_full(cs, count_here(cs));

	return n ? cs->list[n - 1] : NULL;
}

struct rp_checkpoint *rp_checkpoint_next(const struct rp_checkpoints *cs)
{
	size_t n = count_here(cs);

	return n < cs->n ? cs->list[n] : NULL;
}

bool rp_checkpoint_here(const struct rp_checkpoints *cs)
{
	const struct rp_checkpoint *c = rp_checkpoint_last(cs);
	struct rp_thread_pos pos;

	rp_thread_pos(cs->th, &pos);
	return c && at(c, &pos);
}

/* ---- making room ----------------------------------------------------------------------------- */

/* Checkpoint i becomes light: what changed up to it has changed up to the next full one. */
static bool lighten(struct rp_checkpoints *cs, size_t i)
{
	struct rp_checkpoint *c = cs->list[i];
	size_t k = full_from(cs, i + 1);
	struct rp_changes both;

	DJ_ASSERT(i + 1 != cs->base, "the base stays full");
	if (k < cs->n) {
		struct rp_checkpoint *next = cs->list[k];
		if (!rp_changes_join(&both, &c->changes, &next->changes))
			return false;
		rp_changes_free(&next->changes);
		next->changes = both;
	}
	rp_changes_free(&c->changes);
	c->light = true;
	return true;
}

/* Checkpoint i goes. */
static bool drop(struct rp_checkpoints *cs, size_t i)
{
	struct rp_checkpoint *c = cs->list[i];

	if (!c->light && !lighten(cs, i))
		return false;
	if (i + 1 < cs->n)
		rp_lines_join(&cs->list[i + 1]->lines, &c->lines);
	rp_checkpoint_free(c);
	memmove(&cs->list[i], &cs->list[i + 1], (cs->n - i - 1) * sizeof(*cs->list));
	cs->n--;
	cs->base -= cs->base > i;
	return true;
}

/* Which of them may become light, or go. */
enum which { ANY, FULL, LIGHT };

/* Whether it has to stay: the base, where the user is, what others go on from, and the last, behind
 * which there is none that its lines could be added to. */
static bool needed(const struct rp_checkpoints *cs, size_t i, enum which which)
{
	const struct rp_checkpoint *c = cs->list[i];
	bool goes = which != FULL;

	if ((which == FULL && c->light) || (which == LIGHT && !c->light))
		return true;
	return i + 1 == cs->base || (cs->anchored && at(c, &cs->anchor)) ||
	       (goes && i + 1 == cs->n) ||
	       (cs->held && ((goes && at(c, &cs->hold)) || at(c, &cs->hold_full)));
}

/* Which one is missed least; cs->n: none can go. */
static size_t least(const struct rp_checkpoints *cs, enum which which)
{
	const double now = (double)(cs->anchored ? cs->anchor.steps : cs->th->e->steps);
	const double first = (double)cs->th->info->first_steps;
	const double span = (double)cs->list[cs->n - 1]->pos.steps - first + 1;
	double best = 1e300, before = first;
	size_t found = cs->n;

	for (size_t i = 0; i < cs->n; i++) {
		size_t next = which == FULL ? full_from(cs, i + 1) : i + 1;
		double here = (double)cs->list[i]->pos.steps;
		double after = next < cs->n ? (double)cs->list[next]->pos.steps : here + span / 8;
		double far = (now > here ? now - here : here - now) + 16;
		double even = 8 * span / (double)cs->max;
		double score = (after - before) / (far < even ? far : even);
		if (which != FULL || !cs->list[i]->light)
			before = here;
		if (score < best && !needed(cs, i, which)) {
			best = score;
			found = i;
		}
	}
	return found;
}

static size_t count_full(const struct rp_checkpoints *cs)
{
	size_t n = 0;

	for (size_t i = 0; i < cs->n; i++)
		n += !cs->list[i]->light;
	return n;
}

/* What all checkpoints may take of a trace that is what it seems to be, where there are to be
 * `more` bytes. */
static uint64_t fair(const struct rp_checkpoints *cs, size_t more)
{
	struct rp_thread *th = cs->th;

	if (!th->patience)
		return UINT64_MAX;
	uint64_t most = rp_patience_kept(th->patience, rp_thread_claim(th));
	if (rp_versions_held() + more > most && rp_thread_claim_more(th))
		most = rp_patience_kept(th->patience, rp_thread_claim(th));
	return most;
}

/* Of the full ones that which is missed least becomes light; or one of these goes. False: none can.
 */
static bool thin_one(struct rp_checkpoints *cs, enum which which)
{
	size_t i = least(cs, which);

	return i < cs->n && (which == FULL ? lighten(cs, i) : drop(cs, i));
}

/* Whether `more` bytes may be added, now that those that are missed least have become light or have
 * gone. Where all are kept none goes. Some full ones stay whatever they take; for that no light one
 * goes, unless the lines of all of them take half of the budget. */
static bool thin(struct rp_checkpoints *cs, size_t more)
{
	if (cs->all)
		return rp_versions_held() + more <= cs->all;
	const uint64_t most = fair(cs, more);
	size_t full = count_full(cs);

	for (;;) {
		bool unfair = rp_versions_held() + more > most;
		bool much = rp_versions_held() > cs->budget;
		bool many = cs->n > cs->max || (unfair && cs->n > 1);
		bool heavy = (unfair && full > 1) || (much && full > FEWEST);
		bool wordy = much && rp_lines_held() > cs->budget / 2 && cs->n > FEWEST;
		if (cs->n <= cs->max && heavy && thin_one(cs, FULL))
			full--;
		else if (cs->max == SIZE_MAX || !(many || wordy) ||
			 !thin_one(cs, many ? ANY : LIGHT))
			break;
		else
			full = count_full(cs);
	}
	return rp_versions_held() + more <= most;
}

void rp_checkpoints_thin(struct rp_checkpoints *cs)
{
	thin(cs, 0);
}

/* ---- taking ---------------------------------------------------------------------------------- */

static bool room(struct rp_checkpoints *cs)
{
	if (cs->n < cs->cap)
		return true;
	size_t cap = cs->cap * 2 + 64;
	struct rp_checkpoint **list = realloc(cs->list, cap * sizeof(*list));
	if (!list)
		return false;
	cs->list = list;
	cs->cap = cap;
	return true;
}

static void keep(struct rp_checkpoint *c, struct rp_thread *th)
{
	uint64_t within;

	rp_thread_pos(th, &c->pos);
	c->cpu = th->e->cpu;
	c->fences = th->e->fences;
	c->fence_steps = th->e->fence_steps;
	c->in_rep = th->e->in_rep;
	c->rep_iter = th->e->rep_iter;
	c->exited = th->exited;
	c->status = th->status;
	c->events = th->events;
	c->event_steps = th->event_steps;
	rp_thread_seq(th, &c->seq, &within);
	c->numbers = th->numbers;
	c->order = th->order;
	c->signals_total = th->signals_total;
	c->forks = th->forks;
	c->last_sysno = th->last_sysno;
	c->last_result = th->last_result;
	c->mark = *rp_thread_mark(th);
	c->space = rp_space_ref(th->space);
}

/* The thread has come past checkpoints since its base: the last full one of the `n` up to here is
 * that. */
static void pass(struct rp_checkpoints *cs, size_t n)
{
	for (n = rp_checkpoint_full(cs, n); cs->base < n; cs->base++)
		rp_memview_pass(cs->mem, &cs->list[cs->base]->changes);
}

/* What changes up to the first full one from list[n] on changes in two parts now, of which
 * `changes` is the first. */
static bool split(struct rp_checkpoints *cs, size_t n, struct rp_changes *changes)
{
	struct rp_changes rest;

	n = full_from(cs, n);
	if (n == cs->n)
		return true;
	rp_changes_turn(changes);
	bool good = rp_changes_join(&rest, changes, &cs->list[n]->changes);
	rp_changes_turn(changes);
	if (!good)
		return false;
	rp_changes_free(&cs->list[n]->changes);
	cs->list[n]->changes = rest;
	return true;
}

static void insert(struct rp_checkpoints *cs, size_t n, struct rp_checkpoint *c)
{
	memmove(&cs->list[n + 1], &cs->list[n], (cs->n - n) * sizeof(*cs->list));
	cs->list[n] = c;
	cs->n++;
}

/* The light one that is there gets its memory. */
static void fill(struct rp_checkpoint *there, struct rp_checkpoint *c)
{
	there->changes = c->changes;
	there->light = false;
	there->lander = c->lander;
	c->changes = (struct rp_changes){ 0 };
	rp_checkpoint_free(c);
}

void rp_checkpoint_take(struct rp_checkpoints *cs)
{
	struct rp_thread *th = cs->th;
	struct rp_thread_pos pos;
	struct rp_checkpoint *c;
	size_t n = count_here(cs);

	rp_thread_pos(th, &pos);
	if (th->div.found || th->damaged || th->unsettled || cs->mem->lost)
		return;
	pass(cs, n);
	if (n && at(cs->list[n - 1], &pos) && !cs->list[n - 1]->light) {
		rp_memview_arrive(cs->mem);
		return;
	}
	c = thin(cs, cs->mem->nnoted * RP_PAGE) && room(cs) ? calloc(1, sizeof(*c)) : NULL;
	n = count_here(cs);
	struct rp_checkpoint *there = n && at(cs->list[n - 1], &pos) ? cs->list[n - 1] : NULL;
	if (!c)
		return;
	if (!rp_memview_take(cs->mem, &c->changes, &c->lines)) {
		free(c);
		return;
	}
	keep(c, th);
	if (!split(cs, n, &c->changes)) {
		cs->mem->lost = true; /* its base is no checkpoint */
		rp_checkpoint_free(c);
		return;
	}
	if (there)
		fill(there, c);
	else
		insert(cs, n, c);
	cs->base = there ? n : n + 1;
	thin(cs, 0);
}

struct rp_checkpoint *rp_checkpoint_light(struct rp_checkpoints *cs)
{
	struct rp_checkpoint *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	if (cs->th->div.found || cs->th->damaged || cs->th->unsettled ||
	    !rp_memview_lines(cs->mem, &c->lines)) {
		free(c);
		return NULL;
	}
	c->light = true;
	keep(c, cs->th);
	return c;
}

void rp_checkpoint_note(struct rp_checkpoints *cs)
{
	DJ_ASSERT(count_here(cs) == cs->n, "nothing is known of what lies behind it");
	struct rp_checkpoint *c = room(cs) ? rp_checkpoint_light(cs) : NULL;
	if (!c)
		return;
	insert(cs, cs->n, c);
	thin(cs, 0);
}

/* What changes from the `n` checkpoints at list[from] to c, which has what changes since the full
 * one before them. */
static bool since_last(struct rp_checkpoints *cs, size_t from, size_t n, struct rp_checkpoint *c)
{
	for (size_t i = from; i < from + n; i++) {
		struct rp_changes rest;
		rp_changes_turn(&cs->list[i]->changes);
		bool good = rp_changes_join(&rest, &cs->list[i]->changes, &c->changes);
		rp_changes_turn(&cs->list[i]->changes);
		if (!good)
			return false;
		rp_changes_free(&c->changes);
		c->changes = rest;
	}
	return true;
}

bool rp_checkpoint_add(struct rp_checkpoints *cs, struct rp_checkpoint *c,
		       const struct rp_thread_pos *since)
{
	size_t from = rp_checkpoint_count(cs, since), n = rp_checkpoint_count(cs, &c->pos);

	struct rp_checkpoint *there = n && at(cs->list[n - 1], &c->pos) ? cs->list[n - 1] : NULL;
	if (there && (!there->light || c->light)) {
		rp_checkpoint_free(c);
		return true;
	}
	if (!room(cs) ||
	    (!c->light && (!since_last(cs, from, n - from, c) || !split(cs, n, &c->changes)))) {
		rp_checkpoint_free(c);
		return false;
	}
	if (there) {
		fill(there, c);
	} else {
		insert(cs, n, c);
		cs->base += cs->base > n;
	}
	thin(cs, 0);
	return true;
}

bool rp_checkpoint_part(struct rp_checkpoints *cs, struct rp_checkpoint *c,
			const struct rp_thread_pos *since)
{
	size_t n = rp_checkpoint_count(cs, &c->pos);
	bool there = n && at(cs->list[n - 1], &c->pos);

	/* its lines are those since then, and must not be taken for more */
	if (n < 1u + there || rp_thread_pos_cmp(&cs->list[n - 1 - there]->pos, since) < 0) {
		rp_checkpoint_free(c);
		return false;
	}
	if (!there)
		return rp_checkpoint_add(cs, c, since);
	struct rp_lines before = cs->list[n - 1]->lines;
	cs->list[n - 1]->lines = c->lines;
	c->lines = before;
	rp_checkpoint_free(c);
	return true;
}

void rp_checkpoints_shed(struct rp_checkpoints *cs, size_t n)
{
	DJ_ASSERT(n < cs->base, "the base is needed");
	for (size_t i = 0; i < n; i++)
		rp_checkpoint_free(cs->list[i]);
	memmove(cs->list, cs->list + n, (cs->n - n) * sizeof(*cs->list));
	cs->n -= n;
	cs->base -= n;
}

void rp_checkpoints_cut(struct rp_checkpoints *cs)
{
	while (cs->n > cs->base)
		rp_checkpoint_free(cs->list[--cs->n]);
}

size_t rp_checkpoint_before(const struct rp_checkpoints *cs, const struct rp_thread_pos *pos)
{
	size_t i = rp_checkpoint_count(cs, pos);

	while (i > 0 && rp_thread_pos_cmp(&cs->list[i - 1]->pos, pos) >= 0)
		i--;
	return i;
}

bool rp_checkpoint_quiet(const struct rp_checkpoints *cs, size_t i, const struct rp_thread_pos *to,
			 uint64_t addr, uint64_t last, bool reads)
{
	struct rp_thread_pos now;

	for (i++; i < cs->n; i++) {
		const struct rp_checkpoint *c = cs->list[i];
		if (rp_lines_met(&c->lines, LINE_WROTE, addr, last) ||
		    (reads && rp_lines_met(&c->lines, LINE_READ, addr, last)))
			return false;
		if (rp_thread_pos_cmp(&c->pos, to) >= 0)
			return true;
	}
	/* what has been met since the last one is known, if it has come from there or before */
	rp_thread_pos(cs->th, &now);
	return !cs->mem->lost && rp_thread_pos_cmp(&now, to) >= 0 &&
	       !rp_line_log_met(&cs->mem->lines, LINE_WROTE, addr, last) &&
	       !(reads && rp_line_log_met(&cs->mem->lines, LINE_READ, addr, last));
}

/* ---- going ----------------------------------------------------------------------------------- */

static int to_beginning(struct rp_checkpoints *cs, struct dj_error *err)
{
	cs->base = 0;
	rp_memview_reset(cs->mem);
	if (rp_thread_restart(cs->th) != THREAD_LIMIT)
		return dj_fail(err, cs->th->err.exit_status, "%s", cs->th->err.text);
	return 0;
}

static int become(const struct rp_checkpoint *c, struct rp_thread *th, struct dj_error *err)
{
	struct emu *e = th->e;

	if (th->space != c->space) {
		/* other code may be at the same addresses */
		rp_space_unref(th->space);
		th->space = rp_space_ref(c->space);
		emu_forget_code(e, 0, UINT64_MAX);
	}
	e->cpu = c->cpu;
	e->steps = c->pos.steps;
	e->fences = c->fences;
	e->fence_steps = c->fence_steps;
	e->in_rep = c->in_rep;
	e->rep_iter = c->rep_iter;
	e->stop_requested = false;
	th->jumped = true;
	th->signals = c->pos.signals;
	th->events = c->events;
	th->event_steps = c->event_steps;
	th->numbers = c->numbers;
	th->signals_total = c->signals_total;
	th->forks = c->forks;
	th->last_sysno = c->last_sysno;
	th->last_result = c->last_result;
	th->exited = c->exited;
	th->status = c->status;
	th->div.found = th->damaged = false;
	if (rp_thread_restore_cursor(th, &c->mark))
		return dj_fail(err, th->err.exit_status, "%s", th->err.text);
	th->order = c->order; /* its record may lie before the mark */
	return 0;
}

int rp_checkpoint_go(struct rp_checkpoints *cs, const struct rp_thread_pos *pos,
		     struct dj_error *err)
{
	size_t n = rp_checkpoint_full(cs, rp_checkpoint_count(cs, pos));

	if (cs->mem->trail)
		rp_trail_leave(cs->mem);
	if ((!n || cs->mem->lost) && to_beginning(cs, err))
		return -1;
	if (!n)
		return 0;
	for (; cs->base < n; cs->base++)
		rp_memview_over(cs->mem, &cs->list[cs->base]->changes, true);
	for (; cs->base > n; cs->base--)
		rp_memview_over(cs->mem, &cs->list[cs->base - 1]->changes, false);
	rp_memview_put(cs->mem);
	return become(cs->list[n - 1], cs->th, err);
}
