/*
 * From notes of generated code to what the memory view knows: see trail.h.
 */
#include "replayer/trail.h"
#include "fast/fast.h"
#include "replayer/memview-page.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#define TABLE_PAGES FAST_NOTE_PAGES
_Static_assert(RP_PAGE == FAST_NOTE_PAGE, "a page of the tables is about a page of the shadow");
#define STACK_GROWS (8u << 20) /* as far as most may: getrlimit(2), and Linux's usual limit */
#define WHOSE_SIZE  (SHADOW_PAGES * sizeof(uint64_t))
#define GIVE_BACK   64u /* each so many times pages without notes are given back */

/* What t->there has of a page beside what fast.h says. */
#define TOLD 4u /* it had notes, and they were told */

struct rp_trail {
	struct fast *fast;
	bool strays;
	uint32_t generation; /* of mappings */
	uint32_t *alone;     /* by shadow page: the generation in which only one mapping had it */
	unsigned char
		*there; /* by page of the tables: whether they exist (fast.h); 0 but in between */
	unsigned gathered; /* how often */
	/* By shadow page: the page of memory that it belongs to, 1 more than its number; 0: none
	 * (trail.h). NULL: notes are about what is mapped. */
	uint64_t *whose;
};

/* ---- tables ---------------------------------------------------------------------------------- */

#define THERE (FAST_NOTE_FOUND | FAST_NOTE_WROTE)

static uint8_t *bytes_of(const struct rp_trail *t, bool wrote, uint64_t idx)
{
	bool there = t->there[idx] & (wrote ? FAST_NOTE_WROTE : FAST_NOTE_FOUND);

	return there ? fast_note_byte(t->fast, wrote, idx * RP_PAGE) : NULL;
}

#ifdef __x86_64__
/* Who has generated code has AVX2 (fast_possible()). */
#define AVX2 __attribute__((target("avx2")))

/* Which of 64 bytes are not 0; they are 0 or 255, and all 0 from now on. */
AVX2 static uint64_t take_mask(uint8_t *bytes)
{
	__m256i *v = (__m256i *)bytes;
	__m256i low = _mm256_loadu_si256(v), high = _mm256_loadu_si256(v + 1);
	uint64_t mask = (uint32_t)_mm256_movemask_epi8(low) |
			(uint64_t)(uint32_t)_mm256_movemask_epi8(high) << 32;

	if (mask) {
		_mm256_storeu_si256(v, _mm256_setzero_si256());
		_mm256_storeu_si256(v + 1, _mm256_setzero_si256());
	}
	return mask;
}

/* Whether all of 256 bytes are 0. */
AVX2 static bool none_of(const uint8_t *bytes)
{
	const __m256i *v = (const __m256i *)bytes;
	__m256i any = _mm256_loadu_si256(v);

	for (unsigned i = 1; i < 8; i++)
		any = _mm256_or_si256(any, _mm256_loadu_si256(v + i));
	return _mm256_testz_si256(any, any);
}
#else
#define AVX2

static uint64_t take_mask(uint8_t *bytes)
{
	uint64_t v, mask = 0;

	for (unsigned i = 0; i < 8; i++) {
		memcpy(&v, bytes + 8 * i, sizeof(v));
		if (v)
			mask |= ((v & 0x0101010101010101) * 0x0102040810204080 >> 56) << 8 * i;
	}
	memset(bytes, 0, 64);
	return mask;
}

static bool none_of(const uint8_t *bytes)
{
	uint64_t v, any = 0;

	for (unsigned i = 0; i < 256; i += sizeof(v)) {
		memcpy(&v, bytes + i, sizeof(v));
		any |= v;
	}
	return !any;
}
#endif

/* The notes on a page, of which there are none afterwards. False: there were none. */
AVX2 static bool masks_of(const struct rp_trail *t, bool wrote, uint64_t idx,
			  uint64_t mask[RP_WORDS])
{
	uint8_t *bytes = bytes_of(t, wrote, idx);
	uint64_t any = 0;

	memset(mask, 0, RP_WORDS * sizeof(*mask));
	for (unsigned w = 0; bytes && w < RP_WORDS; w += 4, bytes += 256) {
		if (none_of(bytes))
			continue;
		for (unsigned i = 0; i < 4; i++)
			any |= mask[w + i] = take_mask(bytes + 64 * i);
	}
	return any;
}

static bool any_notes(const struct rp_trail *t, uint64_t idx)
{
	for (int wrote = 0; wrote < 2; wrote++) {
		const uint8_t *b = bytes_of(t, wrote, idx);
		for (unsigned i = 0; b && i < RP_PAGE; i += 256)
			if (!none_of(b + i))
				return true;
	}
	return false;
}

/* ---- a page ---------------------------------------------------------------------------------- */

/* Lines of 8 bytes of which a byte was met: a bit for each of 8. */
static uint64_t words_of(uint64_t mask)
{
	mask |= mask >> 4;
	mask |= mask >> 2;
	mask |= mask >> 1;
	return (mask & 0x0101010101010101) * 0x0102040810204080 >> 56;
}

static void tell_lines(struct rp_memview *mv, uint64_t num, enum rp_line_kind kind,
		       const uint64_t mask[RP_WORDS])
{
	for (unsigned row = 0; row < RP_WORDS / 8; row++) {
		uint64_t lines = 0;
		for (unsigned i = 0; i < 8; i++)
			lines |= words_of(mask[8 * row + i]) << 8 * i;
		if (lines)
			rp_line_log_row(&mv->lines, kind, num << 3 | row, lines);
	}
}

/* The page's own data become what the shadow has. */
static void follow(struct rp_memview *mv, struct rp_memview_page *p, unsigned w, uint64_t mask)
{
	const uint8_t *now = mv->th->e->shadow + p->num % SHADOW_PAGES * RP_PAGE + 64 * w;

	rp_page_note(mv, p);
	for (unsigned i = 0; i < 64; i++)
		if (mask >> i & 1)
			p->own[64 * w + i] = now[i];
}

/* Tell of the notes on the page of the shadow that they are about page `num`. False: there are
 * none. */
static bool tell_page(struct rp_memview *mv, uint64_t num)
{
	uint64_t found[RP_WORDS], wrote[RP_WORDS], idx = num % SHADOW_PAGES;
	bool any_found = masks_of(mv->trail, false, idx, found);
	bool any_wrote = masks_of(mv->trail, true, idx, wrote);

	if (!any_found && !any_wrote)
		return false;
	struct rp_memview_page *p = rp_page_get(mv, num);
	if (any_wrote)
		rp_page_note_shadow(mv, idx);
	for (unsigned w = 0; w < RP_WORDS; w++) {
		uint64_t met = found[w] | wrote[w], stale = p->stale ? p->stale[w] & met : 0;
		if ((met & ~p->known[w]) || stale)
			rp_page_note(mv, p);
		p->known[w] |= met;
		if (stale)
			p->stale[w] &= ~stale;
		if (met && p->own)
			follow(mv, p, w, met);
	}
	if (any_found)
		tell_lines(mv, num, LINE_READ, found);
	if (any_wrote)
		tell_lines(mv, num, LINE_WROTE, wrote);
	return true;
}

/* ---- whose a page is --------------------------------------------------------------------------
 */

/* Tell of the notes on the page of the shadow, if there are any. */
static void tell_whose(struct rp_memview *mv, uint64_t idx)
{
	struct rp_trail *t = mv->trail;

	fast_note_there(t->fast, idx, idx + 1, t->there);
	if (t->there[idx] & THERE)
		tell_page(mv, t->whose[idx] - 1);
	t->there[idx] = 0;
}

static bool is_whose(const struct rp_trail *t, uint64_t num)
{
	return t->whose[num % SHADOW_PAGES] == num + 1;
}

/* What generated code is told of the page: nothing, unless those beside it belong to what lies
 * beside it. Of the first pages some have no notes (fast-note.c). */
static void tell_fast(struct rp_trail *t, uint64_t idx)
{
	const uint64_t num = t->whose[idx] - 1;

	if (idx > FAST_NOTE_FIRST / RP_PAGE && idx < SHADOW_PAGES - 1 && t->whose[idx] &&
	    is_whose(t, num - 1) && is_whose(t, num + 1))
		fast_whose_set(t->fast, idx, (uint32_t)(num / SHADOW_PAGES));
	else
		fast_whose_none(t->fast, idx);
}

static void tell_fast_around(struct rp_trail *t, uint64_t num)
{
	for (uint64_t i = num - 1; i != num + 2; i++)
		tell_fast(t, i % SHADOW_PAGES);
}

/* The page of the shadow is to be that page's. Whether it was another's. */
static bool give(struct rp_memview *mv, uint64_t num)
{
	struct rp_trail *t = mv->trail;
	const uint64_t idx = num % SHADOW_PAGES;
	const bool taken = t->whose[idx] != 0;

	if (is_whose(t, num))
		return false;
	if (taken)
		tell_whose(mv, idx);
	rp_page_share(mv, num);
	t->whose[idx] = num + 1;
	tell_fast_around(t, num);
	return taken;
}

static bool met(void *ctx, uint64_t addr)
{
	const uint64_t num = addr / RP_PAGE;
	bool taken = false;

	for (uint64_t i = num - 1; i != num + 2; i++)
		taken |= give(ctx, i);
	return taken || num % SHADOW_PAGES <= FAST_NOTE_FIRST / RP_PAGE;
}

void rp_trail_comes(struct rp_memview *mv, uint64_t num)
{
	struct rp_trail *t = mv->trail;
	const uint64_t idx = num % SHADOW_PAGES;

	if (!t->whose || !t->whose[idx] || is_whose(t, num))
		return;
	tell_whose(mv, idx);
	t->whose[idx] = 0;
	tell_fast_around(t, num);
}

bool rp_trail_tell_apart(struct rp_memview *mv)
{
	struct rp_trail *t = mv->trail;
	void *whose;

	if (t->whose)
		return false;
	whose = mmap(NULL, WHOSE_SIZE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (whose == MAP_FAILED)
		return false;
	if (!fast_whose_begin(t->fast, met, mv)) {
		munmap(whose, WHOSE_SIZE);
		return false;
	}
	t->whose = whose;
	return true;
}

bool rp_trail_access(struct rp_memview *mv, uint64_t addr, unsigned size, bool wrote)
{
	const struct fast *f = mv->th->fast; /* there is none where the emulator has to be exact */
	const uint32_t idx = (uint32_t)addr;

	if (!f || mv->nwatches || mv->look || mv->notes || idx < FAST_NOTE_FIRST ||
	    size > FAST_NOTE_TABLE - idx)
		return false;
	if (mv->trail->whose) {
		if (size > (1ULL << 32) - idx)
			return false;
		for (uint64_t num = addr / RP_PAGE; num <= (addr + size - 1) / RP_PAGE; num++)
			give(mv, num);
	}
	memset(fast_note_byte(f, wrote, idx), 0xff, size);
	return true;
}

/* ---- mappings -------------------------------------------------------------------------------- */

/* The first mapping that ends after addr, as far as it reaches: a stack to where it may have grown,
 * which no record tells. */
static const struct dj_mapping *region(const struct rp_space *s, uint64_t addr, uint64_t *start,
				       uint64_t *end)
{
	const struct dj_mapping *m = dj_mappings_after(&s->maps, addr, 0), *before;

	if (!m)
		return NULL;
	*start = m->start;
	*end = m->end;
	if (strcmp(m->name, "[stack]") != 0 && !(m->flags & DJ_MAP_GROWSDOWN))
		return m;
	before = m->start ? dj_mappings_before(&s->maps, m->start - 1, 0) : NULL;
	*start = m->start > STACK_GROWS ? m->start - STACK_GROWS : 0;
	if (before && before->end > *start)
		*start = before->end;
	return m;
}

/* Whether no mapping that can be accessed has the shadow's pages of [first, last], but the one in
 * which these are. */
static bool alone(struct rp_memview *mv, uint64_t first, uint64_t last)
{
	struct rp_trail *t = mv->trail;
	uint64_t start, end, n = last - first;
	bool known = true;

	for (uint64_t i = first; i <= last && known; i++)
		known = t->alone[i % SHADOW_PAGES] == t->generation;
	if (known)
		return true;
	const struct dj_mapping *m = region(mv->th->space, 0, &start, &end);
	for (; m; m = region(mv->th->space, end, &start, &end)) {
		uint64_t from = start / RP_PAGE, pages = (end - start) / RP_PAGE;
		/* where they are within each other, in a circle */
		if (m->prot && !(first >= from && last < from + pages) &&
		    ((first - from) % SHADOW_PAGES < pages || (from - first) % SHADOW_PAGES <= n))
			return false;
		if (m->prot && pages + n >= SHADOW_PAGES)
			return false;
	}
	for (uint64_t i = first; i <= last; i++)
		t->alone[i % SHADOW_PAGES] = t->generation;
	return true;
}

void rp_trail_mapped(struct rp_memview *mv)
{
	mv->trail->generation++;
}

/* ---- ranges ---------------------------------------------------------------------------------- */

/* A part of the shadow that does not wrap around. */
static void tell_pages(struct rp_memview *mv, uint64_t first, uint64_t last)
{
	struct rp_trail *t = mv->trail;
	uint64_t at = first % SHADOW_PAGES, n = last - first + 1;

	fast_note_there(t->fast, at, at + n, t->there);
	for (uint64_t i = 0; i < n; i++) {
		if (t->there[at + i] && any_notes(t, at + i)) {
			if (t->whose && t->whose[at + i])
				tell_page(mv, t->whose[at + i] - 1);
			else if (!t->whose && alone(mv, first + i, first + i))
				tell_page(mv, first + i);
			else
				t->strays = true;
		}
		t->there[at + i] = 0;
	}
}

void rp_trail_range(struct rp_memview *mv, uint64_t addr, uint64_t length)
{
	uint64_t start, end, last = addr + length - 1;

	if (!length || last < addr)
		return;
	while (addr <= last && region(mv->th->space, addr, &start, &end) && start <= last) {
		uint64_t first = (start > addr ? start : addr) / RP_PAGE;
		uint64_t to = (end - 1 < last ? end - 1 : last) / RP_PAGE;
		if (to - first >= SHADOW_PAGES) {
			mv->trail->strays = true;
			return;
		}
		while (first <= to) { /* up to where the shadow begins again */
			uint64_t part = first | (SHADOW_PAGES - 1);
			part = part < to ? part : to;
			tell_pages(mv, first, part);
			first = part + 1;
		}
		if (end > last)
			return;
		addr = end;
	}
}

/* ---- all ------------------------------------------------------------------------------------- */

/* Of n bytes those up to the first eight, at a multiple of it, that are not all 0. */
static uint64_t skip_none(const unsigned char *there, uint64_t i, uint64_t n)
{
	uint64_t eight;

	for (; !(i & 7) && i + 8 <= n; i += 8) {
		memcpy(&eight, there + i, sizeof(eight));
		if (eight)
			break;
	}
	return i;
}

/* Tell of what is noted on the pages of the shadow from `at` on, n of them, which are a mapping's
 * from page `first` on. */
static void tell_part(struct rp_memview *mv, uint64_t at, uint64_t n, uint64_t first)
{
	struct rp_trail *t = mv->trail;

	for (uint64_t i = skip_none(t->there, at, at + n); i < at + n;
	     i = skip_none(t->there, i + 1, at + n)) {
		if (t->there[i] & TOLD)
			t->strays = true; /* another mapping has this page of the shadow */
		if (t->there[i] & THERE)
			t->there[i] = tell_page(mv, first + (i - at)) ? TOLD : 0;
	}
}

/* Tell of what is noted on pages that belong to somebody. */
static void tell_owned(struct rp_memview *mv)
{
	struct rp_trail *t = mv->trail;

	for (uint64_t i = skip_none(t->there, 0, SHADOW_PAGES); i < SHADOW_PAGES;
	     i = skip_none(t->there, i + 1, SHADOW_PAGES))
		if ((t->there[i] & THERE) && t->whose[i])
			t->there[i] = tell_page(mv, t->whose[i] - 1) ? TOLD : 0;
}

/* Tell of what is noted on the pages of a mapping. */
static void tell_region(struct rp_memview *mv, uint64_t first, uint64_t n)
{
	uint64_t at = first % SHADOW_PAGES, part = SHADOW_PAGES - at;

	n = n < SHADOW_PAGES ? n : SHADOW_PAGES;
	part = part < n ? part : n;
	tell_part(mv, at, part, first);
	tell_part(mv, 0, n - part, first + part);
}

/* What is left belongs to no mapping, or is not there. */
static void tell_rest(struct rp_memview *mv)
{
	struct rp_trail *t = mv->trail;
	bool give_back = t->gathered++ % GIVE_BACK == 0;

	for (uint64_t i = skip_none(t->there, 0, TABLE_PAGES); i < TABLE_PAGES;
	     i = skip_none(t->there, i + 1, TABLE_PAGES)) {
		if (t->there[i] & THERE && any_notes(t, i)) {
			t->strays = true;
			rp_page_note_shadow(mv, i % SHADOW_PAGES);
		}
	}
	if (give_back)
		fast_note_drop(t->fast, t->there, TOLD);
	memset(t->there, 0, TABLE_PAGES);
}

bool rp_trail_gather(struct rp_memview *mv)
{
	struct rp_trail *t = mv->trail;
	uint64_t start, end;

	if (!mv->th->fast) /* the emulator tells by itself */
		return !t->strays;
	fast_note_ran(t->fast);
	fast_note_there(t->fast, 0, TABLE_PAGES, t->there);
	if (t->whose)
		tell_owned(mv);
	const struct dj_mapping *m = t->whose ? NULL : region(mv->th->space, 0, &start, &end);
	for (; m; m = region(mv->th->space, end, &start, &end))
		if (m->prot)
			tell_region(mv, start / RP_PAGE, (end - start) / RP_PAGE);
	tell_rest(mv);
	return !t->strays;
}

bool rp_trail_strays(const struct rp_memview *mv)
{
	return mv->trail && mv->trail->strays;
}

void rp_trail_leave(struct rp_memview *mv)
{
	struct rp_trail *t = mv->trail;

	rp_trail_gather(mv);
	fast_note_forget(t->fast);
	if (t->whose) {
		madvise(t->whose, WHOSE_SIZE, MADV_DONTNEED);
		fast_whose_clear(t->fast);
	}
	t->strays = false;
	t->generation++;
}

bool rp_trail_begin(struct rp_thread *th)
{
	struct rp_trail *t = calloc(1, sizeof(*t));

	if (!t)
		return false;
	t->generation = 1;
	t->alone = calloc(SHADOW_PAGES, sizeof(*t->alone));
	t->there = calloc(TABLE_PAGES, 1);
	if (!t->alone || !t->there || !rp_thread_translate(th) || !fast_note_begin(th->fast)) {
		fast_free(th->fast);
		th->fast = NULL;
		free(t->alone);
		free(t->there);
		free(t);
		return false;
	}
	t->fast = th->fast;
	th->mem->trail = t;
	return true;
}
