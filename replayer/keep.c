/*
 * Keeping what a replay has found out: see keep.h.
 *
 * A thread has one block with all its checkpoints as light ones, each with its lines as what
 * differs from those before; and one block for each of which the memory is kept: what has changed
 * since the last one of these, each page as what differs from its version before. An index has a
 * size that it must keep to. Half of it may be lines; if they are more, checkpoints are left out.
 * The rest is memory, evenly over the history: the next one is put there as soon as there is room.
 */
#include "replayer/keep.h"
#include "format/index.h"
#include "replayer/ground.h"
#include "replayer/land.h"
#include "replayer/tail.h"
#include "replayer/wire.h"

#include <stdlib.h>
#include <string.h>

#define LINES_MOST  ((size_t)48 << 20)	/* bytes, for a reader */
#define MEMORY_MOST ((size_t)96 << 20)	/* the same, of RP_WIRE_PAGE for each page besides */
#define LIGHT_MOST  4096u		/* checkpoints of a thread, the same */
#define READ_MOST   ((uint64_t)1 << 30) /* bytes of all threads' blocks that are unpacked */
#define WORTH	    50000000u		/* instructions that are worth being kept */

/* ---- lines ----------------------------------------------------------------------------------- */

/* What differs between two lists; and from one and the differences to the other. */
static bool differ(const struct rp_lines *a, const struct rp_lines *b, struct rp_lines *out)
{
	size_t i = 0, k = 0;

	*out = (struct rp_lines){ .all = b->all };
	out->list = malloc((a->n + b->n + 1) * sizeof(*out->list));
	while (out->list && (i < a->n || k < b->n)) {
		bool in_a = i < a->n && (k == b->n || a->list[i].num <= b->list[k].num);
		bool in_b = k < b->n && (i == a->n || b->list[k].num <= a->list[i].num);
		struct rp_line_row row = in_a ? a->list[i] : b->list[k];
		uint64_t any = 0;
		for (unsigned kind = 0; kind < LINE_KINDS; kind++) {
			if (in_a && in_b)
				row.lines[kind] ^= b->list[k].lines[kind];
			any |= row.lines[kind];
		}
		if (any)
			out->list[out->n++] = row;
		i += in_a;
		k += in_b;
	}
	return out->list;
}

/* ---- writing --------------------------------------------------------------------------------- */

struct keeping {
	struct replay *r;
	struct rp_thread *th;
	const struct rp_checkpoints *cs;
	struct dj_index_writer *w;
	uint32_t thread;
	size_t stride,
		full; /* each so many-th of them; and full ones, of which there are so many */
	struct rp_wire wire, all;
};

static bool chosen(const struct keeping *k, size_t i)
{
	return (i + 1) % k->stride == 0 || i + 1 == k->cs->n ||
	       (!k->cs->list[i]->light && k->full <= k->cs->n / k->stride);
}

static bool append(struct rp_wire *to, const struct rp_wire *more)
{
	if (more->failed || to->n + more->n > DJ_INDEX_BLOCK_MAX)
		return false;
	if (to->n + more->n > to->cap) {
		size_t cap = 2 * (to->n + more->n);
		uint8_t *grown = realloc(to->bytes, cap);
		if (!grown)
			return false;
		to->bytes = grown;
		to->cap = cap;
	}
	memcpy(to->bytes + to->n, more->bytes, more->n);
	to->n += more->n;
	return true;
}

/* The chosen checkpoints as one block. False: that is too much. */
static bool put_light(struct keeping *k, size_t most)
{
	struct rp_space *space = rp_space_new();
	struct rp_lines before = { 0 }, since = { 0 };
	bool good = space != NULL;
	size_t held = 0, count = 0, size;

	k->all.n = 0;
	for (size_t i = 0; good && i < k->cs->n; i++) {
		const struct rp_checkpoint *c = k->cs->list[i];
		struct rp_checkpoint out = *c;
		rp_lines_join(&since, &c->lines);
		if (!chosen(k, i))
			continue;
		held += since.n * sizeof(*since.list);
		good = held <= LINES_MOST && count++ < LIGHT_MOST &&
		       differ(&before, &since, &out.lines);
		if (!good)
			break;
		out.light = true;
		out.changes = (struct rp_changes){ 0 };
		rp_wire_put(&k->wire, &out, k->th->e, space);
		good = append(&k->all, &k->wire);
		free(out.lines.list);
		rp_space_unref(space);
		space = rp_space_ref(c->space);
		rp_lines_free(&before);
		before = since;
		since = (struct rp_lines){ 0 };
	}
	rp_lines_free(&before);
	rp_lines_free(&since);
	rp_space_unref(space);
	if (!good)
		return false;
	size = dj_index_put(k->w, k->thread, k->all.bytes, k->all.n, most);
	return size && size <= most;
}

/* The memory of as many as there is room for. */
static void put_memory(struct keeping *k, size_t room)
{
	const struct rp_checkpoints *cs = k->cs;
	const double first = (double)k->th->info->first_steps;
	const double span = (double)cs->list[cs->n - 1]->pos.steps - first + 1;
	struct rp_space *space = rp_space_new();
	struct rp_changes since = { 0 };
	size_t spent = 0, next = 0, raw = 0;

	for (size_t i = 0; space && i < cs->n; i++) {
		const struct rp_checkpoint *c = cs->list[i];
		struct rp_checkpoint out = *c;
		if (c->light)
			continue;
		if (!rp_changes_join(&out.changes, &since, &c->changes))
			break;
		rp_changes_free(&since);
		since = out.changes;
		double here = ((double)c->pos.steps - first + 1) / span;
		size_t may = (size_t)((double)room * here);
		if (!chosen(k, i) || may <= spent || may - spent < next)
			continue;
		out.lines = (struct rp_lines){ 0 };
		rp_wire_put(&k->wire, &out, k->th->e, space);
		size_t takes = k->wire.n + out.changes.n * RP_WIRE_PAGE;
		if (k->wire.failed || raw + takes > MEMORY_MOST)
			break;
		next = dj_index_put(k->w, k->thread, k->wire.bytes, k->wire.n, may - spent);
		if (!next)
			break;
		if (next > may - spent)
			continue;
		spent += next;
		raw += takes;
		rp_changes_free(&since);
		rp_space_unref(space);
		space = rp_space_ref(c->space);
	}
	rp_changes_free(&since);
	rp_space_unref(space);
}

/* False: there is no room for any of it. */
static bool put_thread(struct replay *r, struct dj_index_writer *w, uint32_t thread)
{
	const struct rp_timeline *line = &r->threads[thread];
	struct keeping k = { .r = r,
			     .th = line->th,
			     .cs = &line->cs,
			     .w = w,
			     .thread = thread,
			     .stride = 1,
			     .wire.relative = true };
	uint64_t before = dj_index_size(w);

	for (size_t i = 0; i < k.cs->n; i++)
		k.full += !k.cs->list[i]->light;
	/* its part of the whole, as it has its part of the instructions */
	uint64_t all, done, steps = line->th->info->last_steps - line->th->info->first_steps;
	replay_ahead_progress(r, &done, &all);
	double part = (double)steps / ((double)all + 1);
	size_t own = (size_t)((double)dj_index_room(r->t, all) * part);
	while (k.stride < 2 * k.cs->n && !put_light(&k, own / 2)) {
		dj_index_cut(w, before);
		k.stride *= 2;
	}
	bool good = k.stride < 2 * k.cs->n;
	if (good && own > dj_index_size(w) - before)
		put_memory(&k, own - (size_t)(dj_index_size(w) - before));
	free(k.wire.bytes);
	free(k.all.bytes);
	return good;
}

/* What was kept of a thread that nobody has looked at stays. */
static void put_again(struct replay *r, struct dj_index_writer *w, uint32_t thread)
{
	const uint8_t *block;
	uint64_t at = 0;
	size_t n;

	while (r->index && (block = dj_index_next(r->index, thread, &at, &n)))
		dj_index_put(w, thread, block, n, SIZE_MAX);
}

int replay_keep(struct replay *r, bool always, struct dj_error *err)
{
	uint64_t done, all;
	struct dj_index_writer *w;
	bool had = false, kept = false;

	replay_ahead_progress(r, &done, &all);
	if (!always && done < r->kept + WORTH)
		return 0;
	w = dj_index_begin(r->t, rp_wire_layout());
	if (!w)
		return dj_fail(err, 1, "out of memory");
	for (uint32_t i = 0; i < r->nthreads; i++)
		if (!r->threads[i].th) {
			put_again(r, w, i);
		} else if (r->threads[i].cs.n) {
			kept |= put_thread(r, w, i);
			had |= r->threads[i].th->info->last_steps >
			       r->threads[i].th->info->first_steps;
		}
	int res = had && !kept ? dj_fail(err, 1,
					 "what is to be kept takes more than the %llu KB that the "
					 "index of this recording may have: none is made",
					 (unsigned long long)(dj_index_room(r->t, all) >> 10))
			       : dj_index_write(w, err);
	if (!res)
		r->kept = done;
	dj_index_drop(w);
	return res;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The next message of a block, or NULL at its end, or if it makes no sense. */
static struct rp_checkpoint *message(struct replay *r, const uint8_t **p, size_t *n,
				     struct rp_space *space, struct rp_tail *tail)
{
	uint64_t length = *n < RP_WIRE_HEAD ? 0 : rp_wire_length(*p);
	struct rp_checkpoint *c;

	if (length <= RP_WIRE_HEAD || length > *n)
		return NULL;
	c = rp_wire_get(*p, length, r->th, space, rp_tail_get, tail);
	*p += length;
	*n -= length;
	if (c && (c->pos.steps < r->th->info->first_steps || c->pos.steps > r->th->end_steps)) {
		rp_checkpoint_free(c);
		return NULL;
	}
	return c;
}

/* The thread's light checkpoints. False: there are none, or there is something wrong. */
static bool get_light(struct replay *r, const uint8_t *p, size_t n, struct rp_space **space)
{
	const struct rp_thread_pos first = { .steps = r->th->info->first_steps };
	struct rp_checkpoints *cs = r->cs;
	size_t held = 0, count = 0;

	while (n) {
		struct rp_checkpoint *c = message(r, &p, &n, *space, NULL);
		struct rp_lines none = { 0 }, lines;
		const struct rp_checkpoint *last = cs->n ? cs->list[cs->n - 1] : NULL;
		if (!c)
			return false;
		bool good = c->light && (!last || rp_thread_pos_cmp(&last->pos, &c->pos) < 0) &&
			    differ(last ? &last->lines : &none, &c->lines, &lines);
		if (good) {
			rp_lines_free(&c->lines);
			c->lines = lines;
			rp_lines_hold((ptrdiff_t)(lines.n * sizeof(*lines.list)));
			held += lines.n * sizeof(*lines.list);
			rp_space_unref(*space);
			*space = rp_space_ref(c->space);
		}
		if (!good || held > LINES_MOST || count++ >= LIGHT_MOST) {
			rp_checkpoint_free(c);
			return false;
		}
		if (!rp_checkpoint_add(cs, c, &first))
			return false;
	}
	return cs->n;
}

/* One with memory, which is among the light ones. */
static bool get_memory(struct replay *r, const uint8_t *p, size_t n, struct rp_space **space,
		       struct rp_tail *tail, struct rp_thread_pos *since, size_t *raw)
{
	struct rp_checkpoint *c = message(r, &p, &n, *space, tail);
	struct rp_checkpoints *cs = r->cs;

	if (!c)
		return false;
	size_t i = rp_checkpoint_count(cs, &c->pos);
	struct rp_thread_pos pos = c->pos;
	if (n || c->light || !i || rp_thread_pos_cmp(&cs->list[i - 1]->pos, &pos) != 0 ||
	    rp_thread_pos_cmp(&pos, since) < 0) {
		rp_checkpoint_free(c);
		return false;
	}
	*raw += c->changes.n * RP_WIRE_PAGE;
	rp_tail_follow(tail, &c->changes);
	rp_space_unref(*space);
	*space = rp_space_ref(c->space);
	bool good = !tail->failed && rp_checkpoint_add(cs, c, since);
	if (tail->failed)
		rp_checkpoint_free(c);
	*since = pos;
	return good;
}

/* The next block of the thread in hand. A few kilobytes can be the pack of gigabytes, and there may
 * be many threads: what is read has an end. */
static const uint8_t *next_block(struct replay *r, uint64_t *at, size_t *n)
{
	const uint8_t *p =
		r->index_read < READ_MOST ? dj_index_next(r->index, r->selected, at, n) : NULL;

	r->index_read += p ? *n : 0;
	return p;
}

static struct rp_space *no_space(const struct rp_thread *th)
{
	struct rp_space *s = rp_space_new();

	if (s)
		s->process = th->info->process;
	return s;
}

/* Nothing is known. */
static void forget(struct rp_checkpoints *cs)
{
	while (cs->n)
		rp_checkpoint_free(cs->list[--cs->n]);
	cs->base = 0;
	cs->indexed = cs->whole = cs->held = false;
}

void rp_keep_load(struct replay *r)
{
	struct rp_checkpoints *cs = r->cs;
	struct rp_thread_pos since = { .steps = r->th->info->first_steps };
	struct rp_space *space = r->index ? no_space(r->th) : NULL;
	struct rp_tail tail = { 0 };
	const uint8_t *p;
	uint64_t at = 0;
	size_t n, raw = 0;
	const size_t max = cs->max;

	if (!space)
		return;
	/* None goes while it comes: the next one's lines are what differs from its own, and memory
	 * belongs to one that is there. How many that are is limited. */
	cs->max = SIZE_MAX;
	p = next_block(r, &at, &n);
	bool good = p && get_light(r, p, n, &space);
	rp_space_unref(space);
	space = good ? no_space(r->th) : NULL;
	/* what the next memory goes on from stays full */
	cs->held = true;
	cs->hold = cs->hold_full = since;
	while (space && raw <= MEMORY_MOST && (p = next_block(r, &at, &n)))
		if ((raw += n) > MEMORY_MOST || !get_memory(r, p, n, &space, &tail, &since, &raw))
			break;
		else
			cs->hold = cs->hold_full = since;
	cs->held = false;
	cs->max = max;
	rp_tail_free(&tail);
	rp_space_unref(space);
	if (!good) {
		forget(cs);
		return;
	}
	rp_checkpoints_thin(cs);
	cs->indexed = true;
	cs->whole = cs->list[cs->n - 1]->pos.steps >= r->th->end_steps;
	r->kept += cs->list[cs->n - 1]->pos.steps - r->th->info->first_steps;
}

bool rp_keep_refuse(struct replay *r, const struct rp_thread_pos *to)
{
	const struct rp_thread_pos first = { .steps = r->th->info->first_steps };
	struct rp_timeline *line = &r->threads[r->selected];

	if (!r->cs->indexed || r->in_copy)
		return false;
	bool (*stop_at)(void *, struct emu *) = r->th->e->stop_at;
	bool watching = r->mv->watching;
	uint64_t seq_stop = r->th->seq_stop;
	rp_ground_free(line->ground);
	rp_lander_free(line->lander);
	line->ground = NULL;
	line->lander = NULL;
	forget(r->cs);
	dj_index_close(r->index);
	r->index = NULL;
	r->kept = 0;
	r->mv->lost = true; /* only the beginning is the way back */
	r->mv->watching = false;
	r->th->e->stop_at = NULL;
	r->th->seq_stop = UINT64_MAX;
	if (!rp_checkpoint_go(r->cs, &first, NULL))
		rp_thread_run(r->th, to, 0);
	r->th->e->stop_at = stop_at;
	r->th->seq_stop = seq_stop;
	r->mv->watching = watching;
	return true;
}
