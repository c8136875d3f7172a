/*
 * What the thread and others do to memory, as the memory view learns of it.
 *
 * Accesses are cut into pieces that lie within one 64-byte line, so that a piece is a mask in
 * one word of a page's bitmaps.
 */
#include "replayer/memview-page.h"

#include <stdlib.h>
#include <string.h>

/* ---- accesses ------------------------------------------------------------------------ */

/* A piece of an access within one line; from: its data in the shadow. */
struct piece {
	uint64_t addr, mask;
	unsigned size, line;
	uint32_t index; /* in the shadow */
};

static bool next_piece(struct piece *pc, uint64_t addr, unsigned size, unsigned *done)
{
	if (*done >= size)
		return false;
	pc->addr = addr + *done;
	pc->size = 64 - (pc->addr & 63);
	if (pc->size > size - *done)
		pc->size = size - *done;
	pc->mask = rp_memview_mask(pc->addr, pc->size);
	pc->line = pc->addr >> 6 & 63;
	pc->index = (uint32_t)pc->addr;
	*done += pc->size;
	return true;
}

/* Mark a piece known; rp_page_note() first. `found`: it was read, not written. */
static void mark_known(struct rp_memview *mv, struct rp_memview_page *p, const struct piece *pc,
		       bool found)
{
	if (mv->look) {
		uint8_t line[64];
		memcpy(line + (pc->addr & 63), mv->th->e->shadow + pc->index, pc->size);
		rp_lookahead_meet(mv->look, pc->addr & ~63ULL, pc->mask & ~p->known[pc->line],
				  found ? line : NULL);
	}
	p->known[pc->line] |= pc->mask;
	if (p->stale)
		p->stale[pc->line] &= ~pc->mask;
}

static void note_lines(struct rp_memview *mv, struct rp_memview_page *p, const struct piece *pc,
		       bool wrote)
{
	uint8_t *lines = wrote ? p->wrote : p->read, words = rp_memview_words(pc->addr, pc->size);

	if (p->line_epoch != mv->line_epoch) {
		memset(p->wrote, 0, sizeof(p->wrote));
		memset(p->read, 0, sizeof(p->read));
	}
	p->line_epoch = mv->line_epoch;
	if ((lines[pc->line] & words) == words)
		return;
	lines[pc->line] |= words;
	rp_line_log_note(&mv->lines, wrote ? LINE_WROTE : LINE_READ, pc->addr,
			 pc->addr + pc->size - 1);
}

void rp_memview_ran(struct rp_memview *mv, uint64_t lo, uint64_t hi)
{
	rp_line_log_note(&mv->lines, LINE_RAN, lo, hi - 1);
}

/* What a string instruction does at once is many pieces: a note of them, where notes are made,
 * costs next to nothing. */
static bool large(struct rp_memview *mv, uint64_t addr, unsigned size, bool wrote)
{
	return size > DJ_LINE && mv->trail && rp_trail_access(mv, addr, size, wrote);
}

void rp_memview_load_slow(struct rp_memview *mv, uint64_t addr, unsigned size)
{
	struct piece pc;

	if (large(mv, addr, size, false))
		return;
	for (unsigned done = 0; next_piece(&pc, addr, size, &done);) {
		struct rp_memview_page *p = rp_page_get(mv, pc.addr >> 12);
		const uint8_t *now = mv->th->e->shadow + pc.index;
		note_lines(mv, p, &pc, false);
		if ((p->known[pc.line] & pc.mask) != pc.mask) {
			rp_page_note(mv, p);
			mark_known(mv, p, &pc, true);
		}
		if (p->own && memcmp(p->own + pc.addr % RP_PAGE, now, pc.size)) {
			rp_page_note(mv, p);
			memcpy(p->own + pc.addr % RP_PAGE, now, pc.size);
		}
	}
	rp_note(mv, addr, size, true);
	if (mv->nwatches)
		rp_watch_read(mv, addr, size);
}

void rp_memview_before_store_slow(struct rp_memview *mv, uint64_t addr, unsigned size)
{
	struct piece pc;

	mv->slow_store = false;
	if (large(mv, addr, size, true))
		return;
	rp_note(mv, addr, size, false);
	if (mv->nwatches)
		mv->slow_store = rp_watch_before(mv, addr, size);
	for (unsigned done = 0; next_piece(&pc, addr, size, &done);) {
		struct rp_memview_page *p = rp_page_get(mv, pc.addr >> 12);
		note_lines(mv, p, &pc, true);
		if (p->own && mv->trail)
			rp_trail_comes(mv, p->num);
		if (p->own || (p->known[pc.line] & pc.mask) != pc.mask) {
			rp_page_note(mv, p);
			mark_known(mv, p, &pc, false);
		}
		if (!mv->all_own)
			rp_page_note_shadow(mv, pc.index / RP_PAGE);
		if (p->own) {
			mv->slow_store = true;
		} else {
			rp_page_note(mv, p);
			p->store_epoch = mv->epoch;
		}
	}
}

/* Bytes came to [addr, addr+size): keep pages' own data in step. */
static void write_own(struct rp_memview *mv, uint64_t addr, unsigned size, const uint8_t *bytes)
{
	struct piece pc;

	for (unsigned done = 0; next_piece(&pc, addr, size, &done);) {
		struct rp_memview_page *p = rp_page_get(mv, pc.addr >> 12);
		if (p->own)
			memcpy(p->own + pc.addr % RP_PAGE, bytes + (pc.addr - addr), pc.size);
	}
}

void rp_memview_after_store_slow(struct rp_memview *mv, uint64_t addr, unsigned size,
				 const uint8_t *bytes)
{
	mv->slow_store = false;
	write_own(mv, addr, size, bytes);
	if (mv->nwatches)
		rp_watch_after(mv, addr, size, false);
}

/* The line's bytes, known from now on, also in the shadow. */
static void put(struct rp_memview *mv, uint64_t addr, const uint8_t *bytes, unsigned size)
{
	struct piece pc;

	rp_note(mv, addr, size, false);
	for (unsigned done = 0; next_piece(&pc, addr, size, &done);) {
		struct rp_memview_page *p = rp_page_get(mv, pc.addr >> 12);
		note_lines(mv, p, &pc, true);
		rp_page_note(mv, p);
		rp_page_note_shadow(mv, pc.index / RP_PAGE);
		if (p->own && mv->trail)
			rp_trail_comes(mv, p->num);
		memcpy(mv->th->e->shadow + pc.index, bytes + (pc.addr - addr), pc.size);
		mark_known(mv, p, &pc, true);
		if (p->own)
			memcpy(p->own + pc.addr % RP_PAGE, bytes + (pc.addr - addr), pc.size);
	}
}

void rp_memview_import(struct rp_memview *mv, uint64_t addr, const uint8_t *line)
{
	bool watched = mv->nwatches && rp_watch_before(mv, addr, DJ_LINE);

	put(mv, addr, line, DJ_LINE);
	if (watched)
		rp_watch_after(mv, addr, DJ_LINE, true);
}

/* ---- what others do to memory ----------------------------------------------------------- */

static void forget_page(struct rp_memview *mv, struct rp_memview_page *p)
{
	rp_page_note(mv, p);
	rp_page_remove(mv, p);
}

/* Call fn for each existing page in the range; fn may remove it. */
static void each_page(struct rp_memview *mv, uint64_t first, uint64_t last,
		      void (*fn)(struct rp_memview *mv, struct rp_memview_page *p))
{
	if (last - first < mv->npages) {
		for (uint64_t n = first;; n++) {
			struct rp_memview_page *p = rp_memview_page(mv, n);
			if (p)
				fn(mv, p);
			if (n == last)
				return;
		}
	}
	for (size_t i = 0; i < mv->hash_size; i++) {
		for (struct rp_memview_page *p = mv->hash[i], *next; p; p = next) {
			next = p->hash_next;
			if (p->num >= first && p->num <= last)
				fn(mv, p);
		}
	}
}

/* From where on what happens now has happened. */
static struct rp_thread_pos done_pos(const struct rp_memview *mv)
{
	const struct rp_thread *th = mv->th;
	struct emu_now now;

	emu_now(th->e, &now);
	if (mv->in_step)
		return (struct rp_thread_pos){ .steps = now.steps + 1 };
	return (struct rp_thread_pos){ .steps = th->e->steps, .signals = th->signals };
}

void rp_memview_forget(struct rp_memview *mv, uint64_t addr, uint64_t length)
{
	if (length && mv->look)
		rp_lookahead_spoil(mv->look, done_pos(mv), addr, addr + length - 1);
	rp_memview_settle(mv, addr, length);
	if (length && mv->npages)
		each_page(mv, addr >> 12, (addr + length - 1) >> 12, forget_page);
}

void rp_memview_forget_all(struct rp_memview *mv)
{
	if (mv->trail)
		rp_trail_gather(mv);
	each_page(mv, 0, UINT64_MAX, forget_page);
	for (uint64_t i = 0; i < SHADOW_PAGES; i++)
		if (mv->shadow_epoch[i])
			rp_page_note_shadow(mv, i);
}

/* What is in the shadow becomes the page's own. */
static void keep_page(struct rp_memview *mv, struct rp_memview_page *p)
{
	if (p->own)
		return;
	rp_page_note(mv, p);
	rp_page_make_own(mv, p);
}

void rp_memview_empty(struct rp_memview *mv)
{
	if (mv->trail)
		rp_trail_gather(mv);
	each_page(mv, 0, UINT64_MAX, keep_page);
	for (uint64_t i = 0; i < SHADOW_PAGES; i++)
		if (mv->shadow_epoch[i])
			rp_page_note_shadow(mv, i);
	emu_empty_shadow(mv->th->e);
}

void rp_memview_stale(struct rp_memview *mv, uint64_t addr, uint64_t length)
{
	struct piece pc;

	if (length > mv->stale_left)
		length = mv->stale_left;
	mv->stale_left -= length;
	rp_memview_settle(mv, addr, length);
	rp_note(mv, addr, length, false);
	if (mv->look && length) {
		rp_patience_charge(mv->th->patience, length / 8);
		rp_lookahead_spoil(mv->look, done_pos(mv), addr, addr + length - 1);
	}
	for (unsigned done = 0; next_piece(&pc, addr, (unsigned)length, &done);) {
		struct rp_memview_page *p = rp_page_get(mv, pc.addr >> 12);
		rp_page_note(mv, p);
		if (!p->stale) {
			p->stale = calloc(RP_WORDS, sizeof(*p->stale));
			if (!p->stale) {
				rp_page_no_memory(mv);
				return;
			}
		}
		p->known[pc.line] &= ~pc.mask;
		p->stale[pc.line] |= pc.mask;
		note_lines(mv, p, &pc, true);
		if (p->told)
			p->told->bits[pc.line] &= ~pc.mask;
	}
	if (mv->nwatches)
		rp_watch_kernel(mv, addr, length, NULL);
}

/* Whether some of the page was told at this very position. */
static bool told_now(const struct rp_memview *mv, const struct rp_memview_page *p)
{
	return p->told && p->told->steps == mv->th->e->steps && p->told->signals == mv->th->signals;
}

/* Here the bytes of `mask` in the line, of which the view knows no better, are these. */
static void told(struct rp_memview *mv, uint64_t line, uint64_t mask, const uint8_t *bytes)
{
	struct rp_memview_page *p = rp_page_get(mv, line >> 12);
	unsigned w = line >> 6 & 63;

	rp_page_note(mv, p);
	if (!rp_told_room(mv, p))
		return;
	if (!told_now(mv, p)) {
		memset(p->told->now, 0, sizeof(p->told->now));
		p->told->steps = mv->th->e->steps;
		p->told->signals = mv->th->signals;
	}
	p->told->bits[w] |= mask;
	p->told->now[w] |= mask;
	note_lines(mv, p, &(struct piece){ .addr = line, .size = 64, .line = w }, true);
	for (unsigned i = 0; i < 64; i++) {
		if (!(mask >> i & 1))
			continue;
		p->told->data[w * 64 + i] = bytes[i];
		rp_note(mv, line + i, 1, false);
		if (mv->nwatches)
			rp_watch_kernel(mv, line + i, 1, &bytes[i]);
	}
}

void rp_memview_tell(struct rp_memview *mv, uint64_t addr, const uint8_t *bytes, uint64_t length)
{
	struct piece pc;
	/* what a system call wrote of which the view does not know that. (Anywhere else what the
	 * thread knows holds: that there is something else is another thread's doing, which the
	 * order of events may well put behind this.) */
	bool call = mv->th->e->steps == mv->th->event_steps;

	rp_memview_settle(mv, addr, length);
	for (unsigned done = 0; next_piece(&pc, addr, (unsigned)length, &done);) {
		struct rp_memview_page *p = rp_memview_page(mv, pc.addr >> 12);
		uint8_t line[64] = { 0 };
		unsigned off = pc.addr % RP_PAGE;
		memcpy(line + (pc.addr & 63), bytes + (pc.addr - addr), pc.size);
		for (unsigned i = 0; call && p && i < pc.size; i++)
			if (rp_memview_state(p, off + i) == VIEW_KNOWN &&
			    rp_memview_data(mv, p)[off + i] != line[(off + i) & 63]) {
				mv->stale_left = 1;
				rp_memview_stale(mv, pc.addr + i, 1);
			}
		uint64_t mask = pc.mask & ~(p ? p->known[pc.line] : 0);
		if (!mask)
			continue;
		if (mv->look)
			rp_lookahead_meet(mv->look, pc.addr & ~63ULL, mask, line);
		told(mv, pc.addr & ~63ULL, mask, line);
	}
}

void rp_memview_tell_same(struct rp_memview *mv, uint64_t addr, uint64_t length)
{
	struct piece pc;

	rp_memview_settle(mv, addr, length);
	for (unsigned done = 0; next_piece(&pc, addr, (unsigned)length, &done);) {
		const struct rp_memview_page *p = rp_memview_page(mv, pc.addr >> 12);
		const uint8_t *now = mv->th->e->shadow + (pc.index & ~63U);
		uint64_t mask =
			p && p->stale ? p->stale[pc.line] & ~p->known[pc.line] & pc.mask : 0;
		if (p && told_now(mv, p))
			mask &= ~p->told->now[pc.line];
		if (!mask)
			continue;
		if (mv->look)
			rp_lookahead_meet(mv->look, pc.addr & ~63ULL, mask, now);
		told(mv, pc.addr & ~63ULL, mask, now);
	}
}

void rp_memview_learn(struct rp_memview *mv, uint64_t addr, const uint8_t *bytes, uint64_t length)
{
	struct piece pc;

	rp_memview_settle(mv, addr, length);
	if (mv->notes) {
		mv->notes->event = true; /* a signal */
		rp_note_met(mv, addr, length, false);
		mv->notes->event = false;
	}
	for (unsigned done = 0; next_piece(&pc, addr, (unsigned)length, &done);) {
		struct rp_memview_page *p = rp_page_get(mv, pc.addr >> 12);
		const uint8_t *from = bytes + (pc.addr - addr);
		rp_page_note(mv, p);
		if (!p->own && memcmp(mv->th->e->shadow + pc.index, from, pc.size))
			rp_page_make_own(mv, p);
		mark_known(mv, p, &pc, false);
		note_lines(mv, p, &pc, true);
		if (p->own)
			memcpy(p->own + pc.addr % RP_PAGE, from, pc.size);
	}
	if (mv->nwatches)
		rp_watch_kernel(mv, addr, length, bytes);
}

/* Page `num` becomes as page `from` is, if that is there. */
static void move_page(struct rp_memview *mv, uint64_t from, uint64_t num)
{
	struct rp_memview_page *old = rp_memview_page(mv, from), *p;

	if (!old)
		return;
	p = rp_page_get(mv, num);
	rp_note(mv, num << 12, RP_PAGE, false);
	rp_line_log_note(&mv->lines, LINE_WROTE, num << 12, (num << 12) + RP_PAGE - 1);
	rp_page_note(mv, p);
	if (!p->own && !rp_page_make_own(mv, p))
		return;
	memcpy(p->own, rp_memview_data(mv, old), RP_PAGE);
	memcpy(p->known, old->known, sizeof(p->known));
}

/* The numbers of the pages that there are from `first` on, `n` at most; how many. */
static size_t list_pages(const struct rp_memview *mv, uint64_t first, uint64_t n, uint64_t *list)
{
	size_t found = 0;

	for (size_t i = 0; i < mv->hash_size; i++)
		for (const struct rp_memview_page *p = mv->hash[i]; p; p = p->hash_next)
			if (p->num - first < n)
				list[found++] = p->num;
	return found;
}

void rp_memview_move(struct rp_memview *mv, uint64_t from, uint64_t to, uint64_t length)
{
	uint64_t n = length >> 12, *list;

	rp_memview_settle(mv, from, length);
	rp_memview_forget(mv, to, length);
	if (n <= mv->npages) {
		for (uint64_t i = 0; i < n; i++)
			move_page(mv, (from >> 12) + i, (to >> 12) + i);
		return;
	}
	list = malloc((mv->npages + 1) * sizeof(*list));
	if (!list) {
		rp_page_no_memory(mv);
		return;
	}
	n = list_pages(mv, from >> 12, n, list);
	for (uint64_t i = 0; i < n; i++)
		move_page(mv, list[i], (to >> 12) + (list[i] - (from >> 12)));
	free(list);
}

/* ---- in a throw-away copy ------------------------------------------------------------------ */

void rp_memview_fill(struct rp_memview *mv, uint64_t addr, unsigned size)
{
	struct piece pc;
	uint8_t bytes[64];

	for (unsigned done = 0; next_piece(&pc, addr, size, &done);) {
		struct rp_memview_page *p = rp_memview_page(mv, pc.addr >> 12);
		if (p && !p->own && (p->known[pc.line] & pc.mask) == pc.mask)
			continue;
		if (rp_memview_read(mv, pc.addr, bytes, pc.size) != pc.size)
			emu_raise(mv->th->e, EMU_STOP_FAULT, "memory at 0x%llx is not in the trace",
				  (unsigned long long)pc.addr);
		rp_page_note_shadow(mv, pc.index / RP_PAGE);
		memcpy(mv->th->e->shadow + pc.index, bytes, pc.size);
	}
}

void rp_memview_write(struct rp_memview *mv, uint64_t addr, const uint8_t *bytes, size_t len)
{
	while (len) {
		unsigned n = 64 - (addr & 63);
		if (n > len)
			n = (unsigned)len;
		put(mv, addr, bytes, n);
		addr += n;
		bytes += n;
		len -= n;
	}
}
