/*
 * Translations that are kept, to be made again elsewhere: in the next image that has the same
 * module at another address, or in a forked child. That costs a tenth of translating.
 *
 * A fragment is kept as it was written, with a list of all that depends on where it lies (cg.h,
 * struct cg_log): the distances between its hot code, its cold code, the runtime and the program's
 * code and data; addresses of the program; and the numbers of its stops. Making it again is copying
 * it and setting these anew. tests/unit/test-keep.c compares the result, byte by byte, with what
 * translating in the other place gives.
 *
 * Those of code that may change unheard compare it at their entry, as they did. Those that ask
 * there whether the thread knows of so many facts are kept beside those of the same place that do
 * not, and ask for another number each time. Whether the code is what it was is the caller's to
 * know (struct tr_ops, kept): for all pages that the fragment depends on, those included that were
 * only looked at for live flags. And a checksum of that code is kept, too, and compared.
 */
#include "translator/runtime.h"
#include "translator/keep.h"

#include <stdlib.h>
#include <sys/mman.h>

#define KEPT_HASH   4096	      /* to begin with */
#define KEPT_MEMORY ((size_t)2 << 20) /* taken at once */

/* ---- a module's ---------------------------------------------------------------------------- */

static void *room_for(size_t n, size_t size)
{
	void *p = calloc(n, size);
	DJ_ASSERT(p, "out of memory for kept translations");
	return p;
}

struct tr_kept *tr_kept_new(uint64_t *room)
{
	struct tr_kept *kept = room_for(1, sizeof(*kept));
	kept->room = room;
	kept->size = KEPT_HASH;
	kept->hash = room_for(kept->size, sizeof(*kept->hash));
	kept->made = room_for(kept->size / 2, sizeof(*kept->made));
	kept->file.fd = -1;
	return kept;
}

void tr_kept_free(struct tr_kept *kept)
{
	if (!kept)
		return;
	for (uint32_t i = 0; i < kept->n; i++)
		*kept->room += parts_of(kept->made[i]).size;
	while (kept->block) {
		struct kept_block *b = kept->block;
		kept->block = b->older;
		tr_sparse_free(b, KEPT_MEMORY);
	}
	tr_bales_free(kept);
	tr_kept_close(&kept->file);
	free(kept->made);
	free(kept->hash);
	free(kept);
}

/* Memory for more of them; aligned, so that it can be found from each. */
static void another_block(struct tr_kept *kept)
{
	uint8_t *p = tr_sparse(2 * KEPT_MEMORY);
	size_t before = -(uintptr_t)p & (KEPT_MEMORY - 1);
	tr_sparse_free(before ? p : NULL, before);
	tr_sparse_free(p + before + KEPT_MEMORY, KEPT_MEMORY - before);
	struct kept_block *b = (void *)(p + before);
	if (kept->block) { /* who has filled one fills another */
		madvise(b, KEPT_MEMORY, MADV_HUGEPAGE);
		kept->block->newer = b;
	}
	b->older = kept->block;
	kept->block = b;
	kept->at = (uint8_t *)(b + 1);
}

/* Zero. They all go together, so that there is nothing to be gained from having them one by one. */
static struct tr_kept_frag *take(struct tr_kept *kept, size_t size)
{
	if (!kept->block || size > (size_t)((uint8_t *)kept->block + KEPT_MEMORY - kept->at))
		another_block(kept);
	struct tr_kept_frag *k = (struct tr_kept_frag *)(void *)kept->at;
	kept->at += size;
	return k;
}

/* In the place of one that it replaces, if there is one, of which nothing else is known then. */
static void enter(struct tr_kept *kept, struct tr_kept_frag *k)
{
	uint32_t i = tr_kept_place(k->offset) & (kept->size - 1);
	while (kept->hash[i].frag && !tr_kept_usable(kept->hash[i].frag, k->offset, k->pc))
		i = (i + 1) & (kept->size - 1);
	kept->hash[i].offset = k->offset;
	kept->hash[i].frag = k;
}

struct tr_kept_frag *tr_kept_in_memory(const struct tr_kept *kept, uint64_t offset, uint64_t pc)
{
	uint32_t i = tr_kept_place(offset) & (kept->size - 1);
	for (; kept->hash[i].frag; i = (i + 1) & (kept->size - 1))
		if (kept->hash[i].offset == offset &&
		    tr_kept_usable(kept->hash[i].frag, offset, pc))
			return kept->hash[i].frag;
	return NULL;
}

struct tr_kept_frag *tr_kept_next(struct tr_kept *kept, struct tr_kept_frag *k)
{
	struct tr_kept_frag *next = (void *)((uint8_t *)k + parts_of(k).size);
	struct kept_block *b = (void *)((uintptr_t)k & -KEPT_MEMORY);
	if (tr_kept_is_in_file(kept, k))
		return tr_kept_next_in_file(kept, k);
	if ((uintptr_t)(next + 1) > (uintptr_t)b + KEPT_MEMORY || !next->n)
		return b->newer ? (void *)(b->newer + 1) : NULL;
	return next;
}

static void add(struct tr_kept *kept, struct tr_kept_frag *k)
{
	if (kept->n == kept->size / 2) {
		free(kept->hash);
		kept->size *= 4;
		kept->hash = room_for(kept->size, sizeof(*kept->hash));
		kept->made = realloc(kept->made, kept->size / 2 * sizeof(*kept->made));
		DJ_ASSERT(kept->made, "out of memory for kept translations");
		for (uint32_t n = 0; n < kept->n; n++)
			enter(kept, kept->made[n]);
	}
	kept->made[kept->n++] = k;
	enter(kept, k);
}

struct tr_kept *tr_kept_at(const struct translator *tr, uint64_t pc, uint64_t *base)
{
	return tr->ops.kept ? tr->ops.kept(tr->ops.ctx, pc, base) : NULL;
}

/* Under which offset in its module. What keeps flags for handlers of faults, or asks for facts, is
 * none of those that do not, which have the same code. */
static uint64_t offset_of(const struct translator *tr, uint64_t pc, uint64_t base, bool asks)
{
	return (pc - base) ^ (tr->policy.fault_flags ? KEPT_FAULT_FLAGS : 0) ^
	       (asks ? KEPT_ASKS : 0);
}

/* One that asks for facts, or one that does not. */
static struct tr_kept_frag *find(const struct translator *tr, uint64_t pc, bool asks)
{
	uint64_t base;
	struct tr_kept *kept = tr_kept_at(tr, pc, &base);
	if (!kept)
		return NULL;
	uint64_t offset = offset_of(tr, pc, base, asks);
	struct tr_kept_frag *k = tr_kept_in_memory(kept, offset, pc);
	return k ? k : tr_kept_in_file(kept, offset, pc);
}

struct tr_kept_frag *tr_kept_find(const struct translator *tr, uint64_t pc)
{
	struct tr_kept_frag *k = find(tr, pc, false);
	return k ? k : find(tr, pc, true);
}

bool tr_is_kept(struct translator *tr, uint64_t pc)
{
	tr->asked_kept.pc = pc;
	tr->asked_kept.frag = tr_kept_find(tr, pc);
	return tr->asked_kept.frag != NULL;
}

/* The sum goes on with `n` bytes of code at `at`. */
static uint64_t code_at(const struct translator *tr, uint64_t at, size_t n, uint64_t sum)
{
	uint64_t words[4096 / 8];
	bool changing;
	size_t got = tr->ops.read_code(tr->ops.ctx, at, (uint8_t *)words, n, &changing);
	if (got < n)
		memset((uint8_t *)words + got, 0, n - got);
	for (size_t k = 0; k < n / 8; k++) {
		sum = (sum ^ words[k]) * 0x9e3779b97f4a7c15ULL;
		sum ^= sum >> 29;
	}
	return sum;
}

uint64_t tr_kept_code(const struct translator *tr, const struct tr_lines *uses, unsigned n,
		      uint64_t pc)
{
	uint64_t sum = n;
	for (unsigned i = 0; i < n; i++) {
		uint64_t page = ((pc >> 12) + uses[i].page) << 12, left = uses[i].lines;
		while (left) {
			unsigned first = (unsigned)__builtin_ctzll(left);
			uint64_t others = ~(left >> first);
			unsigned count = others ? (unsigned)__builtin_ctzll(others) : 64;
			count = count > 64 - first ? 64 - first : count;
			sum = code_at(tr, page + first * 64, count * 64, sum);
			left &= count == 64 ? 0 : ~(((1ULL << count) - 1) << first);
		}
	}
	return sum;
}

bool tr_kept_told(const struct translator *tr, uint64_t pc, size_t len, uint64_t *facts)
{
	bool beside = tr->only_kept || tr->only_known;
	if (beside && !tr->ops.known(tr->ops.ctx, pc, len))
		return false;
	*facts = tr->ops.translated(tr->ops.ctx, pc, len);
	return true;
}

/* ---- keeping ------------------------------------------------------------------------------- */

/* Of the fragment that is being kept. */
struct written {
	const struct tr_build *b;
	const uint8_t *hot, *cold; /* where its code begins */
	uint64_t pc;
	bool far; /* it refers to what is too far away */
};

static bool fits(int64_t v)
{
	return v == (int32_t)v;
}

/* How far it is from `from`. */
static int32_t distance(struct written *w, uint64_t to, uint64_t from)
{
	w->far |= !fits((int64_t)(to - from));
	return (int32_t)(to - from);
}

static bool fix_distance(struct written *w, const struct cg_place *p, struct fix *f)
{
	const struct tr_arena *a = w->b->arena;
	uint64_t delta = w->b->c->delta;
	bool cold = p->at >= w->cold && p->at < w->b->cold->p;
	int32_t rel;
	memcpy(&rel, p->at, 4);
	uint64_t to = (uint64_t)(uintptr_t)p->at + delta + 4 + (uint64_t)(int64_t)rel;
	const uint8_t *ours = (const uint8_t *)(uintptr_t)(to - delta);
	if (ours >= w->hot && ours <= w->b->c->p) {
		f->kind = FIX_HOT;
		f->to = (int32_t)(ours - w->hot);
		return cold; /* else it is the same everywhere */
	}
	if (ours >= w->cold && ours <= w->b->cold->p) {
		f->kind = FIX_COLD;
		f->to = (int32_t)(ours - w->cold);
		return !cold;
	}
	bool runtime = to >= a->va && to < a->va + (uint64_t)(rt_end - rt_begin);
	f->kind = runtime ? FIX_RUNTIME : FIX_CODE;
	f->to = distance(w, to, runtime ? a->va : w->pc);
	return true;
}

static bool fix_number(const struct written *w, const struct cg_place *p, struct fix *f)
{
	uint32_t number;
	memcpy(&number, p->at, 4);
	f->kind = FIX_NUMBER;
	f->to = 0;
	for (uint32_t k = w->b->numbers; k; k = w->b->tr->numbers[k].sibling, f->to++)
		if (k == number)
			return true;
	return false; /* the runtime's */
}

/* What has to be set anew; false if it is the same everywhere. */
static bool fix_of(struct written *w, const struct cg_place *p, struct fix *f)
{
	bool cold = p->at >= w->cold && p->at < w->b->cold->p;
	uint64_t v = 0;
	f->at = (uint32_t)(cold ? w->b->c->p - w->hot + (p->at - w->cold) : p->at - w->hot);
	switch (p->what) {
	case CG_DISTANCE:
		return fix_distance(w, p, f);
	case CG_NUMBER:
		return fix_number(w, p, f);
	case CG_FACTS:
		f->to = 0;
		f->kind = FIX_FACTS;
		return true;
	case CG_LOW:
		memcpy(&v, p->at, 4);
		f->to = (int32_t)((uint32_t)v - (uint32_t)w->pc);
		f->kind = FIX_LOW;
		return true;
	default:
		memcpy(&v, p->at, 8);
		f->to = distance(w, v, w->pc);
		f->kind = FIX_WHOLE;
		return true;
	}
}

static bool can_be_kept(const struct written *w, const struct tr_kept *kept, uint64_t base)
{
	const struct tr_build *b = w->b;
	uint64_t other;
	if (b->log.overflow || b->cannot_keep)
		return false;
	for (unsigned i = 0; i < b->n_uses; i++)
		if (tr_kept_at(b->tr, b->use[i].page << 12, &other) != kept || other != base)
			return false;
	return true;
}

static void keep_numbers(const struct written *w, struct tr_kept_frag *k, struct kept_number *to)
{
	const struct tr_build *b = w->b;
	unsigned i = 0;
	for (uint32_t m = b->numbers; m; m = b->tr->numbers[m].sibling, i++) {
		const struct tr_number *n = &b->tr->numbers[m];
		to[i] = (struct kept_number){ .pc = (int32_t)(n->stop.pc - w->pc),
					      .lag = (uint16_t)n->stop.lag,
					      .kind = n->stop.kind & 0xff };
		if (n->stop.kind != TR_STOP_LINK)
			continue;
		to[i].site = (uint16_t)(n->site - (uint32_t)(w->hot - b->arena->ours));
		to[i].stub = (n->stub - (uint32_t)(w->cold - b->arena->ours)) & 0xffffff;
	}
	DJ_ASSERT(i == k->n_numbers, "a fragment has %u numbers, not %u", i, k->n_numbers);
}

/* How many numbers the fragment has; 0xffff: too many, or too far away. */
static uint16_t count_numbers(const struct written *w)
{
	uint16_t n = 0;
	for (uint32_t k = w->b->numbers; k; k = w->b->tr->numbers[k].sibling, n++)
		if (n == 1000 || !fits((int64_t)(w->b->tr->numbers[k].stop.pc - w->pc)))
			return 0xffff;
	return n;
}

void tr_keep(struct tr_build *b, const struct tr_frag *f, const uint8_t *hot, const uint8_t *cold,
	     size_t len)
{
	struct written w = { b, hot, cold, f->pc, false };
	uint64_t base;
	struct tr_kept *kept = tr_kept_at(b->tr, f->pc, &base);
	struct fix fixes[CG_PLACES];
	uint16_t n_fixes = 0, n_numbers = kept ? count_numbers(&w) : 0xffff;
	if (n_numbers == 0xffff || !can_be_kept(&w, kept, base))
		return;
	/* if it is already; but code that is made may be other code by now */
	const struct tr_kept_frag *had = find(b->tr, f->pc, b->asks);
	if (had && !b->other_lags && tr_kept_same(b->tr, had, f->pc))
		return;
	for (unsigned i = 0; i < b->log.n; i++)
		n_fixes += fix_of(&w, &b->log.place[i], &fixes[n_fixes]);
	if (w.far || b->c->p - hot > UINT16_MAX)
		return;
	struct tr_kept_frag h = { .pc = f->pc,
				  .offset = offset_of(b->tr, f->pc, base, b->asks),
				  .hot = (uint16_t)(b->c->p - hot),
				  .cold = (uint32_t)(b->cold->p - cold),
				  .entry = (uint16_t)(f->entry - b->c->delta - (uintptr_t)hot),
				  .live = (uint16_t)f->live,
				  .lag = (uint16_t)f->lag,
				  .ret_site = b->ret_site ? (int32_t)(b->ret_site - f->pc) : 0,
				  .n = (uint16_t)f->n,
				  .n_uses = (uint16_t)b->n_uses,
				  .n_numbers = n_numbers,
				  .n_fixes = n_fixes,
				  .len = (uint16_t)len,
				  .align = ((uintptr_t)hot + b->c->delta) & 7,
				  .checks = f->checks };
	size_t size = parts_of(&h).size;
	if (size > *kept->room)
		return;
	struct tr_kept_frag *k = take(kept, size);
	*k = h;
	struct parts p = parts_of(k);
	for (unsigned i = 0; i < k->n_uses; i++)
		p.uses[i] = (struct tr_lines){ b->use[i].page - (f->pc >> 12), b->use[i].lines };
	k->code = tr_kept_code(b->tr, p.uses, k->n_uses, f->pc);
	memcpy(p.insn, f->insn, k->n * sizeof(*p.insn));
	memcpy(p.fixes, fixes, k->n_fixes * sizeof(*p.fixes));
	keep_numbers(&w, k, p.numbers);
	memcpy(p.code, hot, k->hot);
	memcpy(p.code + k->hot, cold, k->cold);
	*kept->room -= size;
	add(kept, k);
}

/* ---- making again -------------------------------------------------------------------------- */

/* Where it is being made. */
struct again {
	struct tr_arena *a;
	uint8_t *hot, *cold;
	uint64_t pc, facts;
	uint32_t numbers[1024];
};

/* False if it is too far from what it refers to. */
static bool set_anew(const struct again *g, const struct tr_kept_frag *k, const struct fix *f)
{
	uint8_t *at = f->at < k->hot ? g->hot + f->at : g->cold + (f->at - k->hot);
	uint64_t delta = g->a->hot.delta, v = g->pc + (uint64_t)(int64_t)f->to;
	uint32_t low = (uint32_t)v;
	switch ((enum fix_kind)f->kind) {
	case FIX_NUMBER:
		memcpy(at, &g->numbers[f->to], 4);
		return true;
	case FIX_LOW:
		memcpy(at, &low, 4);
		return true;
	case FIX_FACTS:
		low = (uint32_t)g->facts;
		memcpy(at, &low, 4);
		return true;
	case FIX_WHOLE:
		memcpy(at, &v, 8);
		return true;
	case FIX_HOT:
		v = (uint64_t)(uintptr_t)g->hot + delta + (uint32_t)f->to;
		break;
	case FIX_COLD:
		v = (uint64_t)(uintptr_t)g->cold + delta + (uint32_t)f->to;
		break;
	case FIX_RUNTIME:
		v = g->a->va + (uint32_t)f->to;
		break;
	case FIX_CODE:
		break;
	}
	int64_t rel = (int64_t)(v - ((uint64_t)(uintptr_t)at + delta + 4));
	low = (uint32_t)rel;
	memcpy(at, &low, 4);
	return fits(rel);
}

static void numbers_again(struct tr_build *b, struct again *g, const struct tr_kept_frag *k,
			  const struct kept_number *from)
{
	struct translator *tr = b->tr;
	for (unsigned i = k->n_numbers; i-- > 0;) { /* as they were given out */
		uint64_t pc = g->pc + (uint64_t)(int64_t)from[i].pc;
		b->numbers = tr_number_new(tr, (enum tr_stop_kind)from[i].kind, pc, b->numbers);
		g->numbers[i] = b->numbers;
		struct tr_number *n = &tr->numbers[b->numbers];
		n->stop.lag = from[i].lag;
		if (n->stop.kind != TR_STOP_LINK)
			continue;
		n->site = from[i].site + (uint32_t)(g->hot - g->a->ours);
		n->stub = from[i].stub + (uint32_t)(g->cold - g->a->ours);
		n->to = tr_find(tr, pc);
		if (!n->to && b->n_targets < sizeof(b->target) / sizeof(*b->target))
			b->target[b->n_targets++] = pc;
	}
}

bool tr_kept_same(const struct translator *tr, const struct tr_kept_frag *k, uint64_t pc)
{
	uint64_t base, other;
	const struct tr_lines *uses = (const struct tr_lines *)(const void *)k->data;
	const struct tr_kept *kept = tr_kept_at(tr, pc, &base);
	if (!kept)
		return false;
	for (unsigned i = 0; i < k->n_uses; i++)
		if (tr_kept_at(tr, ((pc >> 12) + uses[i].page) << 12, &other) != kept ||
		    other != base)
			return false;
	return tr_kept_code(tr, uses, k->n_uses, pc) == k->code;
}

/* Whether who leads to where it leads, and to itself, agrees about the lags there. */
static bool same_lags(const struct translator *tr, const struct tr_kept_frag *k,
		      const struct kept_number *n, uint64_t pc)
{
	if (tr_lag_at(tr, pc, 0, k->lag) != k->lag)
		return false;
	for (unsigned i = 0; i < k->n_numbers; i++) {
		uint64_t to = pc + (uint64_t)(int64_t)n[i].pc;
		if (n[i].kind == TR_STOP_LINK && tr_lag_at(tr, to, 0, n[i].lag) != n[i].lag)
			return false;
	}
	return true;
}

uint32_t tr_lag_kept(const struct translator *tr, uint64_t pc, uint32_t or)
{
	const struct tr_kept_frag *k = tr_kept_find(tr, pc);
	return k ? k->lag : or ;
}

struct tr_frag *tr_frag_of_kept(struct translator *tr, struct tr_kept_frag *k, uint64_t pc,
				struct tr_arena *a, uint64_t hot)
{
	struct tr_frag *f = tr_frag_new(tr, 0, k->n_uses);
	tr->some_go |= k->checks;
	*f = (struct tr_frag){ .block = f->block,
			       .arena = a,
			       .pc = pc,
			       .entry = hot + k->entry,
			       .end = hot + k->hot,
			       .stub = k->entry ? hot : 0,
			       .ret_site = k->ret_site ? pc + (uint64_t)(int64_t)k->ret_site : 0,
			       .uses = f->uses,
			       .n_uses = k->n_uses,
			       .slot = TR_NO_SLOT,
			       .stub_chunk = TR_NO_CHUNK,
			       .live = k->live,
			       .checks = k->checks,
			       .lag = k->lag,
			       .n = k->n,
			       .insn = parts_of(k).insn };
	return f;
}

/* The fragment, of which the code has been written. */
static struct tr_frag *fragment(struct tr_build *b, const struct again *g, struct tr_kept_frag *k,
				const struct parts *p)
{
	struct tr_lines use[USES_MAX];
	struct tr_frag *f = tr_frag_of_kept(b->tr, k, g->pc, g->a,
					    (uint64_t)(uintptr_t)g->hot + g->a->hot.delta);
	f->numbers = b->numbers;
	for (unsigned i = 0; i < k->n_uses; i++)
		use[i] = (struct tr_lines){ (g->pc >> 12) + p->uses[i].page, p->uses[i].lines };
	tr_use_pages(b->tr, f, use);
	tr_publish(b->tr, f);
	b->tr->stats.kept++;
	return f;
}

/* Give back what has been begun. */
static struct tr_frag *too_far(struct tr_build *b, struct again *g)
{
	g->a->hot.p = g->hot;
	g->a->cold.p = g->cold;
	tr_numbers_drop(b->tr, b->numbers);
	b->numbers = 0;
	b->n_targets = 0;
	return NULL;
}

/* Of what is kept of the place that which asks for facts if some have to be known, and so many. */
static struct tr_kept_frag *fitting(struct translator *tr, uint64_t pc, uint64_t *facts)
{
	struct tr_kept_frag *k = tr->asked_kept.frag;
	if (tr->asked_kept.pc != pc)
		k = tr_is_kept(tr, pc) ? tr->asked_kept.frag : NULL;
	if (!k || !tr_kept_told(tr, pc, k->len, facts))
		return NULL;
	if (tr_kept_asks(k) != (*facts != 0)) {
		k = find(tr, pc, *facts);
		if (!k || !tr_kept_told(tr, pc, k->len, facts))
			return NULL;
	}
	return (tr_kept_asks(k) || !*facts) && *facts <= UINT32_MAX ? k : NULL;
}

struct tr_frag *tr_make_again(struct tr_build *b, struct tr_arena *a, uint64_t pc)
{
	struct translator *tr = b->tr;
	struct again g;
	struct tr_kept_frag *k = fitting(tr, pc, &g.facts);
	if (!k)
		return NULL;
	struct tr_frag *f = tr->bales ? tr_bale_put(tr, a, k, pc) : NULL;
	if (f) {
		tr_leads_to(tr, f, b);
		return f;
	}
	g.a = a;
	g.pc = pc;
	struct parts p = parts_of(k);
	b->other_lags = !same_lags(tr, k, p.numbers, pc);
	if (b->other_lags || !tr_kept_same(tr, k, pc))
		return NULL;
	size_t skip = (k->align - (size_t)cg_va(&a->hot)) & 7;
	if ((size_t)(a->hot.end - a->hot.p) < skip + k->hot ||
	    (size_t)(a->cold.end - a->cold.p) < k->cold) {
		a->hot.overflow = true; /* once more, elsewhere */
		return NULL;
	}
	cg_bytes(&a->hot, "\xcc\xcc\xcc\xcc\xcc\xcc\xcc", skip);
	g.hot = a->hot.p;
	g.cold = a->cold.p;
	cg_bytes(&a->hot, p.code, k->hot);
	cg_bytes(&a->cold, p.code + k->hot, k->cold);
	b->n_targets = 0;
	b->numbers = 0;
	b->ret_site = k->ret_site ? pc + (uint64_t)(int64_t)k->ret_site : 0;
	numbers_again(b, &g, k, p.numbers);
	for (unsigned i = 0; i < k->n_fixes; i++)
		if (!set_anew(&g, k, &p.fixes[i]))
			return too_far(b, &g);
	return fragment(b, &g, k, &p);
}
