/* Numbers kept by place (analyses/tally.h). */
#include "analyses/tally.h"
#include "format/scatter.h"

#include <stdlib.h>

int ana_code_cmp(const struct replay_code *a, const struct replay_code *b)
{
	if (a->module != b->module)
		return a->module < b->module ? -1 : 1;
	if (a->process != b->process)
		return a->process < b->process ? -1 : 1;
	return a->offset < b->offset ? -1 : a->offset > b->offset;
}

static uint64_t mix(uint64_t h, const struct replay_code *c)
{
	h = dj_scatter_mix(h, c->offset);
	return dj_scatter_mix(h, (uint64_t)(uint32_t)c->module << 32 | c->process);
}

static struct ana_item *slot(const struct ana_tally *t, const struct replay_code *a,
			     const struct replay_code *b)
{
	uint64_t h = mix(mix(0, a), b);

	for (size_t i = dj_scatter(h, t->size);; i = (i + 1) & (t->size - 1)) {
		struct ana_item *it = &t->item[i];
		if (!it->used || (!ana_code_cmp(&it->a, a) && !ana_code_cmp(&it->b, b)))
			return it;
	}
}

static bool grow(struct ana_tally *t)
{
	struct ana_tally bigger = { .size = t->size ? t->size * 2 : 256, .n = t->n };

	bigger.item = calloc(bigger.size, sizeof(*bigger.item));
	if (!bigger.item) {
		t->failed = true;
		return false;
	}
	for (size_t i = 0; i < t->size; i++)
		if (t->item[i].used)
			*slot(&bigger, &t->item[i].a, &t->item[i].b) = t->item[i];
	free(t->item);
	*t = bigger;
	return true;
}

static const struct replay_code nowhere;

struct ana_item *ana_tally_find(const struct ana_tally *t, const struct replay_code *a,
				const struct replay_code *b)
{
	struct ana_item *it = t->size ? slot(t, a, b ? b : &nowhere) : NULL;

	return it && it->used ? it : NULL;
}

struct ana_item *ana_tally_at(struct ana_tally *t, const struct replay_code *a,
			      const struct replay_code *b)
{
	if (t->n * 4 >= t->size * 3 && !grow(t))
		return NULL;
	struct ana_item *it = slot(t, a, b ? b : &nowhere);
	if (!it->used) {
		*it = (struct ana_item){ .a = *a, .b = b ? *b : nowhere, .used = true };
		t->n++;
	}
	return it;
}

/* Items are taken in the order of the hash. Put into a smaller table in that order they pile up at
 * its beginning, and each has to look behind all that came before: so there is room for all first.
 */
void ana_tally_add(struct ana_tally *t, struct ana_tally *from)
{
	bool failed = t->failed | from->failed;

	if (!t->n) {
		ana_tally_free(t);
		*t = *from;
		t->failed = failed;
		*from = (struct ana_tally){ 0 };
		return;
	}
	t->failed = failed;
	while (t->size < from->size && grow(t))
		;
	for (size_t i = 0; i < from->size; i++) {
		struct ana_item *f = &from->item[i];
		struct ana_item *it = f->used ? ana_tally_at(t, &f->a, &f->b) : NULL;
		if (!it)
			continue;
		for (unsigned k = 0; k < sizeof(it->n) / sizeof(it->n[0]); k++)
			it->n[k] += f->n[k];
		it->user |= f->user;
	}
	ana_tally_free(from);
}

static int by_place(const void *x, const void *y)
{
	const struct ana_item *a = x, *b = y;
	int c = ana_code_cmp(&a->a, &b->a);

	return c ? c : ana_code_cmp(&a->b, &b->b);
}

void ana_tally_sort(struct ana_tally *t)
{
	size_t n = 0;

	for (size_t i = 0; i < t->size; i++)
		if (t->item[i].used)
			t->item[n++] = t->item[i];
	t->n = t->size = n;
	if (n)
		qsort(t->item, n, sizeof(*t->item), by_place);
}

const struct ana_item *ana_tally_sorted(const struct ana_tally *t, const struct replay_code *a)
{
	size_t low = 0, high = t->n;

	while (low < high) {
		size_t mid = (low + high) / 2;
		if (ana_code_cmp(&t->item[mid].a, a) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low < t->n && !ana_code_cmp(&t->item[low].a, a) ? &t->item[low] : NULL;
}

void ana_tally_free(struct ana_tally *t)
{
	free(t->item);
	*t = (struct ana_tally){ 0 };
}
