/*
 * Watched bytes in a process with several threads.
 *
 * A write watch is about what memory holds as the one order of positions has it. What one thread
 * knew of the bytes is no measure: that it finds what another has stored there is no change, and
 * what it stores may be what it had stored before and yet undo what another did in between.
 *
 * Going forward the threads take turns in that order. So the bytes are kept here, as they are at
 * the moment, and whatever stores to them or imports them is compared with that. Bytes that nobody
 * has met are as they were mapped, also when other memory has been mapped there since (remaps.h).
 * What nobody can know changes by a store, and by being seen only if the thread that sees it had
 * seen something else there.
 *
 * A search back goes through the threads one by one. There a store or an import is compared only
 * with what the thread itself did in the same segment; any other may be a change. What comes last
 * in the order is gone to, and then memory at the moment before it says whether it was one
 * (replay-shared.c); if not, the search goes on from there. Both have to find the same.
 *
 * Ranges longer than a page are compared with what each thread knew.
 */
#include "replayer/replay-internal.h"

#include <stdlib.h>
#include <string.h>

#define KEPT_MAX 4096u

static bool bit(const uint64_t *bits, uint64_t i)
{
	return bits[i / 64] >> i % 64 & 1;
}

static void set(uint64_t *bits, uint64_t i, bool on)
{
	bits[i / 64] = (bits[i / 64] & ~(1ULL << i % 64)) | (uint64_t)on << i % 64;
}

static size_t words(const struct replay_watch *w)
{
	return (w->len + 63) / 64;
}

static struct replay_watch *find(struct replay *r, int id)
{
	for (size_t i = 0; i < r->nwatches; i++)
		if (r->watches[i].id == id)
			return &r->watches[i];
	return NULL;
}

void rp_watched_free(struct replay_watch *w)
{
	free(w->all.known);
	free(w->all.lost);
	free(w->all.value);
	free(w->all.seq);
	free(w->all.was_known);
	free(w->all.was_lost);
	free(w->all.was_seq);
	free(w->all.was_value);
	w->all = (struct rp_watched){ 0 };
}

/* Room for what is kept of a watch: false if there is none. */
static bool room(struct replay_watch *w)
{
	struct rp_watched *a = &w->all;

	if (a->known || w->len > KEPT_MAX || !(w->kind & REPLAY_WATCH_WRITE))
		return a->known != NULL;
	a->known = calloc(words(w), sizeof(*a->known));
	a->was_known = calloc(words(w), sizeof(*a->was_known));
	a->lost = calloc(words(w), sizeof(*a->lost));
	a->was_lost = calloc(words(w), sizeof(*a->was_lost));
	a->value = calloc(w->len, 1);
	a->was_value = calloc(w->len, 1);
	a->seq = calloc(w->len, sizeof(*a->seq));
	a->was_seq = calloc(w->len, sizeof(*a->was_seq));
	if (a->known && a->was_known && a->lost && a->was_lost && a->value && a->was_value &&
	    a->seq && a->was_seq)
		return true;
	rp_watched_free(w);
	return false;
}

/* ---- forward ----------------------------------------------------------------------------------
 */

/* The first touch by an instruction: it may have to be executed again. */
static void keep_before(struct replay *r, struct replay_watch *w)
{
	struct rp_watched *a = &w->all;

	if (a->thread == r->selected && a->steps == r->th->e->steps)
		return;
	a->thread = r->selected;
	a->steps = r->th->e->steps;
	memcpy(a->was_known, a->known, words(w) * sizeof(*a->known));
	memcpy(a->was_lost, a->lost, words(w) * sizeof(*a->lost));
	memcpy(a->was_value, a->value, w->len);
	memcpy(a->was_seq, a->seq, w->len * sizeof(*a->seq));
}

void rp_watch_again(struct replay *r, uint64_t steps)
{
	for (size_t i = 0; r->watch_how == WATCH_IN_ORDER && i < r->nwatches; i++) {
		struct replay_watch *w = &r->watches[i];
		struct rp_watched *a = &w->all;
		if (!a->known || a->thread != r->selected || a->steps != steps)
			continue;
		memcpy(a->known, a->was_known, words(w) * sizeof(*a->known));
		memcpy(a->lost, a->was_lost, words(w) * sizeof(*a->lost));
		memcpy(a->value, a->was_value, w->len);
		memcpy(a->seq, a->was_seq, w->len * sizeof(*a->seq));
	}
}

/* Whether the instruction under way is itself an ordered event. */
static bool ordered(struct replay *r)
{
	struct insn in;

	return r->th->order ||
	       (r->th->ordered_fences && emu_peek(r->th->e, &in) && insn_is_ordered(&in));
}

static bool bit_of(uint64_t bits, unsigned i)
{
	return bits >> i & 1;
}

/* What no memory at the moment can be compared with. */
static bool appears(const struct rp_memview_touch *touch, unsigned i)
{
	return touch->how == TOUCH_STORE || bit_of(touch->news, i);
}

static bool changes_byte(struct replay *r, const struct replay_watch *w,
			 const struct rp_memview_touch *touch, unsigned i, uint64_t now)
{
	const struct rp_watched *a = &w->all;
	const uint64_t addr = touch->addr + i, at = addr - w->addr;

	if (!rp_remapped(&r->remaps, r->t, dj_trace_thread(r->t, r->selected)->process, addr,
			 a->seq[at], now)) {
		if (bit(a->known, at))
			return a->value[at] != touch->bytes[i];
		if (bit(a->lost, at))
			return appears(touch, i);
	}
	return bit_of(touch->had, i) ? touch->was[i] != touch->bytes[i] : appears(touch, i);
}

static bool changed_in_order(struct replay *r, struct replay_watch *w,
			     const struct rp_memview_touch *touch)
{
	struct rp_watched *a = &w->all;
	bool changed = false;
	uint64_t seq, within;

	/* what the kernel did is no part of the instruction that comes next */
	if (touch->how == TOUCH_STORE || touch->how == TOUCH_IMPORT)
		keep_before(r, w);
	else
		a->steps = UINT64_MAX;
	rp_thread_seq(r->th, &seq, &within);
	if (ordered(r))
		seq = rp_thread_next_seq(r->th);
	for (unsigned i = 0; i < touch->n; i++) {
		uint64_t at = touch->addr - w->addr + i;
		if (touch->how == TOUCH_STORE || touch->how == TOUCH_IMPORT)
			changed |= changes_byte(r, w, touch, i, seq);
		set(a->known, at, touch->how != TOUCH_LOST);
		set(a->lost, at, touch->how == TOUCH_LOST);
		a->value[at] = touch->bytes[i];
		a->seq[at] = seq;
	}
	return changed;
}

/* ---- back ---------------------------------------------------------------------------------------
 */

static bool may_have_changed(struct replay *r, struct replay_watch *w,
			     const struct rp_memview_touch *touch)
{
	struct rp_watched *a = &w->all;
	bool may = ordered(r);
	uint64_t seq, within;

	rp_thread_seq(r->th, &seq, &within);
	for (unsigned i = 0; i < touch->n; i++) {
		uint64_t at = touch->addr - w->addr + i;
		may |= !bit(a->known, at) || a->seq[at] != seq || a->value[at] != touch->bytes[i];
		set(a->known, at, touch->how == TOUCH_STORE || touch->how == TOUCH_IMPORT);
		a->value[at] = touch->bytes[i];
		a->seq[at] = seq;
	}
	return may;
}

static bool changed(void *ctx, const struct rp_memview_touch *touch)
{
	struct replay *r = ctx;
	struct replay_watch *w = find(r, touch->id);

	if (!w || !w->all.known)
		return touch->how == TOUCH_STORE;
	return r->watch_how == WATCH_IN_ORDER ? changed_in_order(r, w, touch)
					      : may_have_changed(r, w, touch);
}

static bool differs(struct replay *r, const struct rp_memview_touch *touch)
{
	for (unsigned i = 0; i < touch->n; i++) {
		uint8_t was;
		if (rp_shared_read(r, touch->addr + i, &was, 1) ? was != touch->bytes[i]
								: appears(touch, i))
			return true;
	}
	return false;
}

bool rp_watch_is_hit(struct replay *r, const struct rp_memview_touches *unsure,
		     struct replay_stop *stop)
{
	r->look_cut = false;
	for (unsigned i = 0; i < unsure->n; i++) {
		bool hit = differs(r, &unsure->list[i]);
		if (r->look_cut)
			return rp_fill(r, stop, REPLAY_INTERRUPTED), true;
		if (!hit)
			continue;
		stop->watch = unsure->list[i].id;
		stop->watch_addr = unsure->list[i].addr;
		return true;
	}
	return !unsure->n;
}

/* ---- which of them --------------------------------------------------------------------------- */

void rp_watch_set(struct replay *r)
{
	r->mv->changed = r->watch_how == WATCH_OWN ? NULL : changed;
	r->mv->changed_ctx = r;
}

/* Whether all that is watched for being written can be kept. */
static bool rooms(struct replay *r)
{
	bool good = true;

	for (size_t i = 0; i < r->nwatches; i++)
		good &= room(&r->watches[i]) || !(r->watches[i].kind & REPLAY_WATCH_WRITE);
	return good;
}

bool rp_watch_forward(struct replay *r)
{
	struct replay_pos moment;

	r->watch_how = WATCH_OWN;
	r->look_cut = false;
	if (!r->nwatches || !rp_sharing(r) || !rooms(r))
		return true;
	r->watch_how = WATCH_IN_ORDER;
	for (size_t i = 0; i < r->nwatches; i++)
		r->watches[i].all.steps = UINT64_MAX;
	replay_pos(r, &moment);
	if (r->watched_good && !memcmp(&moment, &r->watched_upto, sizeof(moment)))
		return true;
	r->watched_good = false;
	for (size_t i = 0; i < r->nwatches; i++) {
		struct replay_watch *w = &r->watches[i];
		if (!w->all.known)
			continue;
		for (uint64_t k = 0; k < w->len; k++) {
			bool known = rp_shared_read(r, w->addr + k, &w->all.value[k], 1);
			set(w->all.known, k, known);
			set(w->all.lost, k, !known);
			w->all.seq[k] = moment.seq;
		}
	}
	if (r->look_cut)
		r->watch_how = WATCH_OWN;
	return !r->look_cut;
}

void rp_watch_stopped(struct replay *r)
{
	if (r->watch_how == WATCH_IN_ORDER) {
		replay_pos(r, &r->watched_upto);
		r->watched_good = true;
	}
	rp_watch_own(r);
}

void rp_watch_back(struct replay *r)
{
	r->watch_how = WATCH_OWN;
	r->watched_good = false;
	if (!r->nwatches || !rp_sharing(r) || !rooms(r))
		return;
	r->watch_how = WATCH_BACK;
	for (size_t i = 0; i < r->nwatches; i++)
		if (r->watches[i].all.known)
			memset(r->watches[i].all.known, 0,
			       words(&r->watches[i]) * sizeof(*r->watches[i].all.known));
}

void rp_watch_own(struct replay *r)
{
	r->watch_how = WATCH_OWN;
	for (size_t i = 0; i < r->nthreads; i++)
		if (r->threads[i].mv)
			r->threads[i].mv->changed = NULL;
}
