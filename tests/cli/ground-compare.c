/* A checkpoint that generated code has found against the same one of the emulator's. */
#include "tests/cli/ground-compare.h"
#include "replayer/memview-page.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

unsigned bad;

void differs(const struct rp_checkpoint *c, const char *what, uint64_t where)
{
	if (bad++ < 10)
		printf("at step %" PRIu64 ": %s differ (0x%" PRIx64 ")\n", c->pos.steps, what,
		       where);
}

static void compare_page(const struct rp_checkpoint *c, struct replay *a, struct replay *b,
			 uint64_t num)
{
	static uint8_t state[2][RP_PAGE], value[2][RP_PAGE];
	bool known[2] = { rp_memview_bytes(a->mv, num, state[0], value[0]),
			  rp_memview_bytes(b->mv, num, state[1], value[1]) };

	if (known[0] != known[1]) {
		differs(c, "pages", num << 12);
		return;
	}
	for (unsigned i = 0; known[0] && i < RP_PAGE; i++) {
		if (state[0][i] != state[1][i]) {
			differs(c, "bytes known", (num << 12) + i);
			return;
		}
		if (state[0][i] == RP_BYTE_HAS && value[0][i] != value[1][i]) {
			differs(c, "bytes", (num << 12) + i);
			return;
		}
	}
	if (memcmp(a->th->e->shadow + num % SHADOW_PAGES * RP_PAGE,
		   b->th->e->shadow + num % SHADOW_PAGES * RP_PAGE, RP_PAGE) != 0)
		differs(c, "shadows", num << 12);
}

/* Of the pages that `a` has: others have been seen when it is b's turn. */
static void compare_pages(const struct rp_checkpoint *c, struct replay *a, struct replay *b)
{
	for (size_t i = 0; i < a->mv->hash_size; i++)
		for (const struct rp_memview_page *p = a->mv->hash[i]; p; p = p->hash_next)
			compare_page(c, a, b, p->num);
}

static void compare_lines(const struct rp_checkpoint *c, const struct rp_lines *all,
			  const struct rp_lines *part)
{
	static const char *const names[] = { "lines run", "lines written", "lines read" };
	size_t k = 0;

	for (size_t i = 0; i < part->n && !all->all; i++) {
		while (k < all->n && all->list[k].num < part->list[i].num)
			k++;
		bool there = k < all->n && all->list[k].num == part->list[i].num;
		/* what the emulator says that it ran is by blocks, the end of which it may not have
		 * come to */
		for (unsigned kind = LINE_WROTE; kind < LINE_KINDS; kind++)
			if (part->list[i].lines[kind] & ~(there ? all->list[k].lines[kind] : 0))
				differs(c, names[kind], part->list[i].num);
	}
}

static bool same_bytes(const struct rp_bytes *a, const struct rp_bytes *b)
{
	return a == b || (a && b && a->size == b->size && !memcmp(a->data, b->data, a->size));
}

/* The bytes of a version; zeros, if there is none. */
static const uint8_t *data_of(const struct rp_bytes *b)
{
	static const uint8_t zeros[RP_PAGE];

	return b ? b->data : zeros;
}

/* When one of two pages that share a place in the shadow takes it, what is known of the other goes
 * elsewhere: the emulator notes that as a change, and it is none. `slow` stands behind the changes.
 */
static bool moved_only(const struct replay *slow, const struct rp_changes *ch,
		       const struct rp_change *x)
{
	const struct rp_view_version *a = x->before, *b = x->after;
	const uint64_t idx = (x->key >> 1) % SHADOW_PAGES;
	const uint8_t *is = slow->th->e->shadow + idx * RP_PAGE, *was = is;

	if (!a || !b || a->has_own == b->has_own || !same_bytes(a->known, b->known) ||
	    !same_bytes(a->stale, b->stale) || !same_bytes(a->told, b->told))
		return false;
	for (size_t i = 0; i < ch->n; i++)
		if (ch->list[i].key == rp_key_shadow(idx)) {
			was = data_of(ch->list[i].before);
			is = data_of(ch->list[i].after);
		}
	was = a->has_own ? data_of(a->own) : was;
	is = b->has_own ? data_of(b->own) : is;
	for (unsigned i = 0; a->known && i < RP_PAGE; i++)
		if (a->known->data[i / 8] >> i % 8 & 1 && was[i] != is[i])
			return false;
	return true;
}

/* Whether nothing happened to the page from the full checkpoint list[i] to the next but that it was
 * read: generated code says that bytes were stored that were known before by lines alone. */
static bool nothing_happened(const struct rp_checkpoints *cs, size_t i, uint64_t num)
{
	const uint64_t addr = num * RP_PAGE, last = addr + RP_PAGE - 1;
	bool any = false;

	do {
		if (++i == cs->n || rp_lines_met(&cs->list[i]->lines, LINE_WROTE, addr, last))
			return false;
	} while (cs->list[i]->light);
	const struct rp_changes *ch = &cs->list[i]->changes;
	for (size_t k = 0; k < ch->n; k++)
		any |= ch->list[k].key == rp_key_view(num);
	return !any;
}

/* What the emulator says has changed since its checkpoint before, has by what generated code says
 * of the same interval, or of parts of it. */
static void compare_changes(const struct rp_checkpoint *c, struct replay *quick,
			    struct replay *slow)
{
	const struct rp_checkpoints *cs = quick->cs;
	size_t n = slow->cs->base, end = rp_checkpoint_count(cs, &c->pos) - 1;
	const struct rp_changes *ch = &slow->cs->list[n - 1]->changes;
	size_t begin = n < 2 ? end : rp_checkpoint_count(cs, &slow->cs->list[n - 2]->pos) - 1;

	for (size_t k = 0; begin < end && k < ch->n; k++) {
		uint64_t key = ch->list[k].key;
		bool untouched = key & 1 && !moved_only(slow, ch, &ch->list[k]);
		for (size_t i = begin; untouched && i < end; i++)
			untouched = cs->list[i]->light || nothing_happened(cs, i, key >> 1);
		if (untouched)
			differs(c, "pages changed", key >> 1 << 12);
	}
}

void compare_checkpoint(const struct rp_checkpoint *c, struct replay *quick, struct replay *slow)
{
	const struct rp_checkpoint *s = rp_checkpoint_last(slow->cs);
	struct dj_regs regs[2];

	emu_get_regs(quick->th->e, &regs[0]);
	emu_get_regs(slow->th->e, &regs[1]);
	uint64_t parts = dj_regs_diff(&regs[0], &regs[1]);
	if (parts)
		differs(c, dj_regs_part_name(parts), parts);
	if (c->events != s->events || c->fences != s->fences || c->seq != s->seq ||
	    c->event_steps != s->event_steps || c->fence_steps != s->fence_steps ||
	    c->signals_total != s->signals_total || c->forks != s->forks || c->order != s->order ||
	    c->exited != s->exited || c->status != s->status || c->last_sysno != s->last_sysno ||
	    c->last_result != s->last_result || memcmp(&c->mark, &s->mark, sizeof(c->mark)) != 0)
		differs(c, "counts", 0);
	if (dj_mappings_count(&c->space->maps) != dj_mappings_count(&s->space->maps) ||
	    c->space->ncode != s->space->ncode || c->space->image_steps != s->space->image_steps ||
	    c->space->image != s->space->image || c->space->image_seq != s->space->image_seq)
		differs(c, "mappings", 0);
	compare_pages(c, quick, slow);
	compare_pages(c, slow, quick);
	compare_lines(c, &c->lines, &s->lines);
	compare_changes(c, quick, slow);
}
