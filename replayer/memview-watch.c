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

	if (th->order)
		return th->order;
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

bool rp_memview_watches_quiet(const struct rp_memview *mv, const struct rp_lines *lines)
{
	for (size_t i = 0; i < mv->nwatches; i++) {
		const struct rp_memview_watch *w = &mv->watches[i];
		static const struct {
			unsigned watch;
			enum rp_line_kind kind;
		} ways[] = { { REPLAY_WATCH_WRITE, LINE_WROTE }, { REPLAY_WATCH_READ, LINE_READ } };
		for (unsigned k = 0; k < 2; k++)
			if ((w->kind & ways[k].watch) &&
			    (lines ? rp_lines_met(lines, ways[k].kind, w->addr, watch_last(w))
				   : rp_line_log_met(&mv->lines, ways[k].kind, w->addr,
						     watch_last(w))))
				return false;
	}
	return true;
}

/* The part [*lo, *hi] of an access that a watch covers. */
static bool overlap(const struct rp_memview_watch *w, uint64_t addr, uint64_t size, uint64_t *lo,
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
	if (!mv->watching || (mv->hit.hit && !mv->hit.unsure.n))
		return;
	struct insn in;
	mv->hit = (struct rp_memview_hit){ .hit = true, .id = w->id, .addr = addr };
	rp_thread_pos(mv->th, &mv->hit.before);
	mv->hit.in_rep = emu_peek(mv->th->e, &in) && (in.attr & INSN_A_REP);
	mv->th->e->stop_requested = true;
}

/* It is one if somebody finds out that there were other bytes. */
static void hit_perhaps(struct rp_memview *mv, const struct rp_memview_watch *w,
			const struct rp_memview_touch *touch)
{
	struct rp_memview_touches *unsure = &mv->hit.unsure;

	if (!mv->watching || (mv->hit.hit && !unsure->n))
		return;
	if (!mv->hit.hit)
		hit(mv, w, touch->addr); /* of which `unsure` has nothing yet */
	if (unsure->n < RP_TOUCHES)
		unsure->list[unsure->n++] = *touch;
	else
		unsure->n = 0; /* too many to be asked about: it counts */
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
		unsigned off = (addr + i) % RP_PAGE;
		mv->old_state[i] = (uint8_t)rp_memview_state(p, off);
		mv->old[i] = p ? rp_memview_data(mv, p)[off] : 0;
		if (mv->old_state[i] == VIEW_UNTOUCHED &&
		    rp_memview_read(mv, addr + i, &mv->old[i], 1) == 1)
			mv->old_state[i] = VIEW_KNOWN;
	}
	return true;
}

/* What is there now, of up to as many bytes as a touch has, from touch->addr to `hi`. */
static void now_there(struct rp_memview *mv, struct rp_memview_touch *touch, uint64_t hi)
{
	touch->had = touch->news = 0;
	for (touch->n = 0; touch->n < sizeof(touch->bytes) && touch->addr + touch->n <= hi;
	     touch->n++) {
		uint64_t at = touch->addr + touch->n;
		const struct rp_memview_page *p = rp_memview_page(mv, at >> 12);
		if (!p)
			return;
		touch->bytes[touch->n] = rp_memview_data(mv, p)[at % RP_PAGE];
	}
}

/* What was there before the access at `addr`. */
static void was_there(const struct rp_memview *mv, struct rp_memview_touch *touch, uint64_t addr)
{
	for (unsigned i = 0; i < touch->n; i++) {
		uint64_t k = touch->addr + i - addr;
		if (k >= mv->old_size || mv->old_state[k] == VIEW_UNTOUCHED)
			continue;
		touch->was[i] = mv->old[k];
		touch->had |= (uint64_t)(mv->old_state[k] == VIEW_KNOWN) << i;
		touch->news |= (uint64_t)(mv->old[k] != touch->bytes[i]) << i;
	}
}

/* The watched bytes [lo, hi] were stored or imported by the access at `addr`: ask whether that is a
 * change. */
static void ask_changed(struct rp_memview *mv, const struct rp_memview_watch *w, uint64_t addr,
			uint64_t lo, uint64_t hi, bool import)
{
	struct rp_memview_touch touch = { .id = w->id, .how = import ? TOUCH_IMPORT : TOUCH_STORE };

	for (; lo <= hi && mv->watching; lo += touch.n) {
		touch.addr = lo;
		now_there(mv, &touch, hi);
		if (!touch.n)
			return;
		was_there(mv, &touch, addr);
		if (mv->changed(mv->changed_ctx, &touch))
			hit_perhaps(mv, w, &touch);
	}
}

void rp_watch_kernel(struct rp_memview *mv, uint64_t addr, uint64_t length, const uint8_t *bytes)
{
	struct rp_memview_touch touch = { .how = bytes ? TOUCH_TOLD : TOUCH_LOST };
	uint64_t lo, hi;

	for (size_t i = 0; mv->watching && mv->changed && length && i < mv->nwatches; i++) {
		const struct rp_memview_watch *w = &mv->watches[i];
		if (!(w->kind & REPLAY_WATCH_WRITE) || !overlap(w, addr, length, &lo, &hi))
			continue;
		touch.id = w->id;
		for (; lo <= hi; lo += touch.n) {
			touch.addr = lo;
			touch.n = hi - lo < sizeof(touch.bytes) ? (unsigned)(hi - lo) + 1
								: sizeof(touch.bytes);
			if (bytes)
				memcpy(touch.bytes, bytes + (lo - addr), touch.n);
			mv->changed(mv->changed_ctx, &touch);
		}
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
			ask_changed(mv, w, addr, lo, hi, import);
		for (uint64_t a = lo; a <= hi && !mv->changed; a++) {
			uint64_t k = a - addr;
			const struct rp_memview_page *p = rp_memview_page(mv, a >> 12);
			if (k >= mv->old_size || !p)
				break;
			bool fresh = mv->old_state[k] == VIEW_UNTOUCHED;
			if (fresh ? !import : rp_memview_data(mv, p)[a % RP_PAGE] != mv->old[k]) {
				hit(mv, w, a);
				break;
			}
		}
		/* an access watch is about any access, a store of the same value included */
		if (!import && (w->kind & REPLAY_WATCH_READ))
			hit(mv, w, lo);
	}
}
