/*
 * The translator: what can be asked of it, in one place. translate.h has the interface,
 * translator/cache.h and translator/build.h say which file does what.
 */
#include "translator/build.h"
#include "translator/estate.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

const struct tr_policy tr_policies[TR_POLICIES] = {
	[TR_POLICY_SHADOW] = { .name = "shadow", .mirror = true, .number = true },
	[TR_POLICY_LAST] = { .name = "last", .number = true },
	[TR_POLICY_NONE] = { .name = "none", .import_all = true, .number = true },
};

/* ---- which arena ------------------------------------------------------------------------------
 */

#define ARENAS_NEAR 3 /* full ones within reach of some code before everything is retired */

/* What "near" means to tr_no_arena(). Never 0. */
static uint64_t region(uint64_t pc)
{
	return (pc >> 28) + 1;
}

static bool reaches(const struct tr_arena *a, uint64_t pc)
{
	return tr_reachable(a->va, pc) && tr_reachable(a->va + TR_ARENA_SIZE, pc);
}

static bool has_room(const struct tr_arena *a)
{
	return a->n_free || !tr_arena_overflow(a);
}

/* Why there is no arena for code at `pc`; TR_FOUND if there is one. */
static enum tr_found arena_for(const struct translator *tr, uint64_t pc, struct tr_arena **arena)
{
	struct tr_arena *any = NULL;
	unsigned near = 0;
	for (struct tr_arena *a = tr->arenas; a; a = a->next) {
		bool close = reaches(a, pc);
		near += close;
		if (!has_room(a))
			continue;
		any = a;
		*arena = a;
		if (close)
			return TR_FOUND;
	}
	if (near < ARENAS_NEAR && tr->no_arena != region(pc))
		return TR_NO_ARENA;
	if (!near && any) /* all is far from there */
		return TR_FOUND;
	return tr->arenas ? TR_FULL : TR_NATIVE;
}

bool tr_wants_arena(struct translator *tr, uint64_t pc)
{
	struct tr_arena *a;
	tr->asked = pc;
	return arena_for(tr, pc, &a) == TR_NO_ARENA;
}

void tr_no_arena(struct translator *tr)
{
	tr->no_arena = region(tr->asked);
}

/* ---- fragments --------------------------------------------------------------------------------
 */

uint64_t tr_entry(const struct tr_frag *f)
{
	return f->entry;
}

uint64_t tr_indirect_entry(const struct tr_frag *f)
{
	return f->indirect ? f->stub : 0;
}

uint32_t tr_entry_lag(const struct tr_frag *f)
{
	return f->lag;
}

void tr_leads_to(const struct translator *tr, const struct tr_frag *f, struct tr_build *b)
{
	b->ret_site = f->ret_site;
	b->n_targets = 0;
	for (uint32_t k = f->numbers; k; k = tr->numbers[k].sibling)
		if (tr->numbers[k].stop.kind == TR_STOP_LINK &&
		    b->n_targets < sizeof(b->target) / sizeof(*b->target))
			b->target[b->n_targets++] = tr->numbers[k].stop.pc;
}

/* The fragment at pc, which there is not yet. */
static enum tr_found make(struct translator *tr, uint64_t pc, struct tr_frag **found)
{
	struct tr_build *b = tr->build;
	*found = tr_wake_at(tr, pc);
	if (*found) {
		tr_leads_to(tr, *found, b);
		return TR_FOUND;
	}
	if (!tr_is_kept(tr, pc) &&
	    (tr->only_kept ||
	     !tr_decode(tr, pc))) /* nothing there: no arena has to be made for that */
		return TR_NATIVE;
	for (;;) {
		struct tr_arena *a = NULL;
		enum tr_found why = arena_for(tr, pc, &a);
		if (why != TR_FOUND)
			return why;
		bool empty = a->hot.p == a->ours + a->current * CHUNK_HOT;
		*found = tr_arena_overflow(a) ? NULL : tr_translate(b, a, pc);
		if (*found)
			return TR_FOUND;
		if (!tr_arena_overflow(a) || empty) /* nothing there, or too long for a chunk */
			return TR_NATIVE;
		tr_arena_next(a); /* or it is full */
	}
}

/* What a fragment costs, of what a stop may. */
#define COST	  8
#define COST_KEPT 2
#define AHEAD	  (TR_AHEAD * COST)
#define QUEUE	  (AHEAD * 2)

struct ahead {
	struct ahead_to {
		uint64_t pc;
		bool ret;
	} queue[QUEUE];
	unsigned head, tail, spent;
};

/* What the fragment just made leads to is next. */
static void add_ahead(struct ahead *a, const struct tr_build *b)
{
	if (b->ret_site && a->tail < QUEUE)
		a->queue[a->tail++] = (struct ahead_to){ b->ret_site, true };
	for (unsigned i = 0; i < b->n_targets && a->tail < QUEUE; i++)
		a->queue[a->tail++] = (struct ahead_to){ b->target[i], false };
}

/* One more fragment. False if that was enough. */
static bool one_ahead(struct translator *tr, struct ahead *a)
{
	struct tr_frag *g = NULL;
	uint64_t kept = tr->stats.kept;
	if (a->spent >= (tr->sparing ? tr->sparing * COST : AHEAD))
		return false;
	while (a->head < a->tail && !g) {
		struct ahead_to to = a->queue[a->head++];
		g = tr_find(tr, to.pc);
		if (g) {
			if (to.ret)
				tr_add_indirect(tr, g);
			g = NULL;
			continue;
		}
		tr->expect_indirect = to.ret;
		if (make(tr, to.pc, &g) != TR_FOUND)
			g = NULL;
		else if (to.ret)
			tr_add_indirect(tr, g);
		tr->expect_indirect = false;
	}
	if (!g)
		return false;
	a->spent += tr->stats.kept != kept && !tr->sparing ? COST_KEPT : COST;
	add_ahead(a, tr->build);
	return true;
}

/* One stop costs as much as translating a handful of fragments, of which one is of use or two: go
 * ahead from the one just made along direct branches, and to return addresses, which are indirect
 * targets soon. */
static void translate_ahead(struct tr_build *b)
{
	struct ahead a = { .spent = 0 };
	add_ahead(&a, b);
	while (one_ahead(b->tr, &a))
		;
}

void tr_expect_indirect(struct translator *tr)
{
	tr->expect_indirect = true;
}

void tr_spare(struct translator *tr, unsigned ahead)
{
	tr->sparing = ahead;
}

enum tr_found tr_fragment(struct translator *tr, uint64_t pc, struct tr_frag **found)
{
	enum tr_found why = tr->start_over ? TR_FULL : TR_FOUND;
	if (why == TR_FOUND) {
		*found = tr_find(tr, pc);
		if (*found) {
			tr->expect_indirect = false;
			return TR_FOUND;
		}
		why = make(tr, pc, found);
	}
	tr->expect_indirect = false;
	if (why == TR_FOUND) {
		translate_ahead(tr->build);
	} else if (why == TR_FULL) {
		tr_flush(tr);
		tr->start_over = false;
	} else if (why == TR_NO_ARENA) {
		tr->asked = pc;
	}
	return why;
}

/* While the program runs. `made`: it was not there. */
static enum tr_found beside(struct translator *tr, uint64_t pc, struct tr_frag **found, bool *made)
{
	enum tr_found why = TR_NATIVE;
	*found = tr->start_over ? NULL : tr_find(tr, pc);
	*made = false;
	if (*found) {
		why = TR_FOUND;
	} else if (!tr->start_over) {
		why = make(tr, pc, found);
		*made = why == TR_FOUND;
	}
	tr->expect_indirect = false;
	return why == TR_FULL ? TR_NATIVE : why;
}

enum tr_found tr_fragment_kept(struct translator *tr, uint64_t pc, struct tr_frag **found)
{
	bool made;
	tr->only_kept = true;
	enum tr_found why = beside(tr, pc, found, &made);
	if (made)
		translate_ahead(tr->build);
	tr->only_kept = false;
	return why;
}

enum tr_found tr_fragment_beside(struct translator *tr, uint64_t pc, struct tr_frag **found)
{
	bool made;
	tr->only_known = true;
	enum tr_found why = beside(tr, pc, found, &made);
	tr->only_known = false;
	if (made) {
		tr_forget_ahead(tr);
		add_ahead(tr->ahead, tr->build);
	}
	return why;
}

void tr_forget_ahead(struct translator *tr)
{
	*tr->ahead = (struct ahead){ .spent = 0 };
}

bool tr_one_beside(struct translator *tr)
{
	tr->only_known = true;
	bool made = !tr->start_over && one_ahead(tr, tr->ahead);
	tr->only_known = false;
	return made;
}

/* ---- life -------------------------------------------------------------------------------------
 */

/* Large tables of which little is touched: memory that the kernel gives out zero, page by page. */
void *tr_sparse(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	DJ_ASSERT(p != MAP_FAILED, "out of memory for the translator");
	return p;
}

void *tr_huge(size_t size)
{
	uint8_t *p = tr_sparse(size + TR_HUGE);
	size_t before = -(uintptr_t)p & (TR_HUGE - 1);
	if (before)
		munmap(p, before);
	munmap(p + before + size, TR_HUGE - before);
	madvise(p + before, size, MADV_HUGEPAGE);
	return p + before;
}

void tr_sparse_free(void *p, size_t size)
{
	if (p)
		munmap(p, size);
}

/* Memory of translators that have ended, for the next one: to fill a page of 2 MB with zeros takes
 * as long as to make two hundred kept fragments, and a compiler's have nine of them. */
#define SPARES	     40
#define SPARES_BYTES ((size_t)128 << 20)
static struct {
	pthread_mutex_t lock;
	unsigned n;
	size_t bytes;
	struct spare {
		void *p;
		size_t size;
	} spare[SPARES];
} spares = { .lock = PTHREAD_MUTEX_INITIALIZER };

void *tr_used(size_t size)
{
	void *p = NULL;
	pthread_mutex_lock(&spares.lock);
	for (unsigned i = spares.n; i-- > 0 && !p;) {
		if (spares.spare[i].size != size)
			continue;
		p = spares.spare[i].p;
		spares.spare[i] = spares.spare[--spares.n];
		spares.bytes -= size;
	}
	pthread_mutex_unlock(&spares.lock);
	return p ? p : tr_huge(size);
}

bool tr_used_is_there(size_t size)
{
	bool is = false;
	pthread_mutex_lock(&spares.lock);
	for (unsigned i = 0; i < spares.n && !is; i++)
		is = spares.spare[i].size == size;
	pthread_mutex_unlock(&spares.lock);
	return is;
}

void tr_used_free(void *p, size_t size)
{
	pthread_mutex_lock(&spares.lock);
	bool keep = spares.n < SPARES && spares.bytes + size <= SPARES_BYTES;
	if (keep) {
		spares.spare[spares.n++] = (struct spare){ p, size };
		spares.bytes += size;
	}
	pthread_mutex_unlock(&spares.lock);
	if (!keep)
		tr_sparse_free(p, size);
}

/* With its tables, in whole large pages. */
#define TR_SIZE ((sizeof(struct translator) + TR_HUGE - 1) & ~(TR_HUGE - 1))

size_t tr_size(void)
{
	return TR_SIZE;
}

struct translator *tr_new(const struct tr_ops *ops, const struct tr_config *config)
{
	struct translator *tr = config->large ? tr_warm_zero(TR_SIZE) : tr_sparse(TR_SIZE);
	if (!tr)
		tr = tr_huge(TR_SIZE);
	tr->ops = *ops;
	tr->tables = config->tables;
	tr->policy = config->policy;
	tr->bales = config->bales;
	tr->epoch = 1;
	tr->retired_end = &tr->retired;
	tr_index_room(tr, 0);
	tr->build = calloc(1, sizeof(*tr->build));
	tr->ahead = calloc(1, sizeof(*tr->ahead));
	DJ_ASSERT(tr->build && tr->ahead, "out of memory for the translator");
	tr->build->tr = tr;
	tr->build->f = malloc(TR_FRAG_SIZE(FRAG_MAX, 0));
	DJ_ASSERT(tr->build->f, "out of memory for the translator");
	tr->build->f->insn = (struct tr_finsn *)(void *)(tr->build->f + 1);
	tr->build->policy = tr->policy;
	for (unsigned i = 0; i < STOP_TABLE; i++)
		tr_number_new(tr, TR_STOP_LINK, 0, 0);
	return tr;
}

/* What is there was made for a program in which nobody sees the flags of a fault. */
void tr_keep_fault_flags(struct translator *tr)
{
	if (tr->policy.fault_flags || tr->policy.exact_flags)
		return;
	tr->policy.fault_flags = tr->build->policy.fault_flags = true;
	memset(&tr->asked_kept, 0, sizeof(tr->asked_kept));
	tr_flush(tr);
}

void tr_free(struct translator *tr)
{
	if (!tr)
		return;
	tr_arenas_free(tr);
	tr_blocks_free(tr);
	for (uint32_t i = 0; i < tr->cap_pages; i++)
		free(tr->pages[i]);
	free(tr->pages);
	free(tr->build->f);
	free(tr->build);
	free(tr->ahead);
	free(tr->tying);
	free(tr->target);
	tr_numbers_free(tr);
	tr_index_free(tr);
	tr_estate_close(tr->estate); /* which has what is known of instructions */
	tr_sparse_free(tr, TR_SIZE);
}
