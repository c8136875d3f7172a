/*
 * Watched ranges of a thread's memory, and notes of when a page's bytes were met.
 *
 * A write watch is about values: the bytes an access is about to change are remembered and
 * compared afterwards. A store to bytes nobody knew before counts as a change; so does an
 * import that differs from what the shadow held for a stale byte. Nothing is looked
 * at unless the page of the access is watched (rp_page_get() keeps such pages off its fast path).
 */
#include "replayer/memview-page.h"

#include <stdlib.h>
#include <string.h>

static uint64_t watch_last(const struct rp_memview_watch *w)
{
	return w->addr + w->len - 1;
}

bool rp_watch_on_page(const struct rp_memview *mv, uint64_t num)
{
	if (mv->notes && mv->notes->num == num)
		return true;
	for (size_t i = 0; i < mv->nwatches; i++)
		if (mv->watches[i].addr >> 12 <= num && watch_last(&mv->watches[i]) >> 12 >= num)
			return true;
	return false;
}

/* ---- notes ----------------------------------------------------------------------------------- */

void rp_memview_note(struct rp_memview *mv, struct rp_memview_notes *notes)
{
	mv->notes = notes;
	memset(mv->tlb, 0, sizeof(mv->tlb));
}

/* The number of the last event once the step that is under way has been made. */
static uint64_t arrival(struct rp_memview *mv)
{
	struct rp_memview_notes *n = mv->notes;
	struct rp_thread *th = mv->th;
	uint64_t seq, within;
	struct insn in;

	if (th->ordered_fences && !n->event && (!n->peeked || n->rip != th->e->cpu.rip)) {
		n->rip = th->e->cpu.rip;
		n->ordered = emu_peek(th->e, &in) && insn_is_ordered(&in);
		n->peeked = true;
	}
	rp_thread_seq(th, &seq, &within);
	return n->event || (th->ordered_fences && n->ordered) ? rp_thread_next_seq(th) : seq;
}

void rp_note_met(struct rp_memview *mv, uint64_t addr, uint64_t size, bool read)
{
	struct rp_memview_notes *n = mv->notes;
	uint64_t lo = n->num << 12, seq;

	if ((read && !n->reads) || !size || addr + size - 1 < lo || addr > lo + 4095)
		return;
	seq = arrival(mv);
	uint64_t from = addr > lo ? addr - lo : 0, to = addr + size - 1 - lo;
	for (uint64_t i = from; i <= to && i < 4096; i++) {
		n->noted[i / 64] |= 1ULL << i % 64;
		n->seq[i] = seq;
	}
}

/* ---- watched ranges -------------------------------------------------------------------------- */

int rp_memview_watch_add(struct rp_memview *mv, int id, uint64_t addr, uint64_t len, unsigned kind)
{
	if (!len || addr + len - 1 < addr)
		return -1;
	if (mv->nwatches == mv->watches_cap) {
		size_t cap = mv->watches_cap * 2 + 4;
		struct rp_memview_watch *w = realloc(mv->watches, cap * sizeof(*w));
		if (!w)
			return -1;
		mv->watches = w;
		mv->watches_cap = cap;
	}
	mv->watches[mv->nwatches++] =
		(struct rp_memview_watch){ .id = id, .addr = addr, .len = len, .kind = kind };
	memset(mv->tlb, 0, sizeof(mv->tlb));
	return 0;
}

void rp_memview_watch_del(struct rp_memview *mv, int id)
{
	for (size_t i = 0; i < mv->nwatches; i++) {
		if (mv->watches[i].id == id) {
			mv->watches[i] = mv->watches[--mv->nwatches];
			return;
		}
	}
}

void rp_watch_free(struct rp_memview *mv)
{
	free(mv->watches);
}

bool rp_memview_watches_quiet(struct rp_memview *mv, struct rp_undo *log)
{
	/* where stores leave the shadow alone the log does not tell them */
	if (mv->all_own)
		return !mv->nwatches;
	for (size_t i = 0; i < mv->nwatches; i++) {
		const struct rp_memview_watch *w = &mv->watches[i];
		uint64_t first = w->addr >> 12, last = watch_last(w) >> 12;
		if ((w->kind & REPLAY_WATCH_READ) || last - first > 64)
			return false;
		for (uint64_t n = first; n <= last; n++)
			if (rp_undo_has_shadow(log, n & 0xfffff))
				return false;
	}
	return true;
}

/* The part [*lo, *hi] of an access that a watch covers. */
static bool overlap(const struct rp_memview_watch *w, uint64_t addr, unsigned size, uint64_t *lo,
		    uint64_t *hi)
{
	uint64_t last = addr + size - 1, wlast = watch_last(w);

	if (!size || last < addr || w->addr > last || wlast < addr)
		return false;
	*lo = addr > w->addr ? addr : w->addr;
	*hi = last < wlast ? last : wlast;
	return true;
}

static void hit(struct rp_memview *mv, const struct rp_memview_watch *w, uint64_t addr)
{
	if (!mv->watching || mv->hit.hit)
		return;
	struct insn in;
	mv->hit = (struct rp_memview_hit){ .hit = true, .id = w->id, .addr = addr };
	rp_thread_pos(mv->th, &mv->hit.before);
	mv->hit.in_rep = emu_peek(mv->th->e, &in) && (in.attr & INSN_A_REP);
	mv->th->e->stop_requested = true;
}

void rp_watch_read(struct rp_memview *mv, uint64_t addr, unsigned size)
{
	uint64_t lo, hi;

	for (size_t i = 0; i < mv->nwatches; i++)
		if ((mv->watches[i].kind & REPLAY_WATCH_READ) &&
		    overlap(&mv->watches[i], addr, size, &lo, &hi))
			hit(mv, &mv->watches[i], lo);
}

bool rp_watch_before(struct rp_memview *mv, uint64_t addr, unsigned size)
{
	uint64_t lo, hi;
	bool watched = false;

	for (size_t i = 0; i < mv->nwatches && !watched; i++)
		watched = (mv->watches[i].kind & REPLAY_WATCH_WRITE) &&
			  overlap(&mv->watches[i], addr, size, &lo, &hi);
	if (!watched)
		return false;
	mv->old_size = size < sizeof(mv->old) ? size : sizeof(mv->old);
	for (unsigned i = 0; i < mv->old_size; i++) {
		const struct rp_memview_page *p = rp_memview_page(mv, (addr + i) >> 12);
		unsigned off = (addr + i) % UNDO_PAGE;
		mv->old_state[i] = (uint8_t)rp_memview_state(p, off);
		mv->old[i] = p ? rp_memview_data(mv, p)[off] : 0;
		if (mv->old_state[i] == VIEW_UNTOUCHED &&
		    rp_memview_read(mv, addr + i, &mv->old[i], 1) == 1)
			mv->old_state[i] = VIEW_KNOWN;
	}
	return true;
}

/* The watched bytes [lo, hi] were stored or imported: ask whether that is a change. */
static void ask_changed(struct rp_memview *mv, const struct rp_memview_watch *w, uint64_t lo,
			uint64_t hi, bool import)
{
	struct rp_memview_touch touch = { .id = w->id, .import = import };

	for (; lo <= hi && mv->watching; lo += touch.n) {
		touch.addr = lo;
		for (touch.n = 0; touch.n < sizeof(touch.bytes) && lo + touch.n <= hi; touch.n++) {
			const struct rp_memview_page *p = rp_memview_page(mv, (lo + touch.n) >> 12);
			if (!p)
				return;
			touch.bytes[touch.n] = rp_memview_data(mv, p)[(lo + touch.n) % UNDO_PAGE];
		}
		bool was = mv->hit.hit;
		if (!mv->changed(mv->changed_ctx, &touch))
			continue;
		hit(mv, w, lo);
		if (!was)
			mv->hit.touch = touch;
	}
}

void rp_watch_after(struct rp_memview *mv, uint64_t addr, unsigned size, bool import)
{
	uint64_t lo, hi;

	for (size_t i = 0; i < mv->nwatches; i++) {
		const struct rp_memview_watch *w = &mv->watches[i];
		if (!(w->kind & REPLAY_WATCH_WRITE) || !overlap(w, addr, size, &lo, &hi))
			continue;
		if (mv->changed)
			ask_changed(mv, w, lo, hi, import);
		for (uint64_t a = lo; a <= hi && !mv->changed; a++) {
			uint64_t k = a - addr;
			const struct rp_memview_page *p = rp_memview_page(mv, a >> 12);
			if (k >= mv->old_size || !p)
				break;
			bool fresh = mv->old_state[k] == VIEW_UNTOUCHED;
			if (fresh ? !import : rp_memview_data(mv, p)[a % UNDO_PAGE] != mv->old[k]) {
				hit(mv, w, a);
				break;
			}
		}
		/* an access watch is about any access, a store of the same value included */
		if (!import && (w->kind & REPLAY_WATCH_READ))
			hit(mv, w, lo);
	}
}
