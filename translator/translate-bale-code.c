/*
 * The code of bales (translate-bale.c). Most bales are put once in a recording: their code is
 * written where it is executed. For one that is put again a copy is made, of which it is known
 * where the sums are that depend on the place; so it need not be put together again.
 */
#include "translator/bale.h"

#include <stdlib.h>

void *tr_bale_part(struct tr_bale *b, size_t n, size_t size)
{
	void *p = calloc(n + 1, size);
	DJ_ASSERT(p, "out of memory for kept translations");
	b->size += (n + 1) * size;
	return p;
}

/* Sums in code that is being written: for what place, and whether it is the bale's own copy, of
 * which is noted where they are. */
struct written {
	struct tr_bale *b;
	uint8_t *hot, *cold;
	uint64_t add[KINDS];
	bool copy;
};

static uint8_t *byte_at(const struct written *w, uint32_t at)
{
	return at < w->b->hot ? w->hot + at : w->cold + (at - w->b->hot);
}

/* A word that is `value` plus what belongs to the kind. */
static void word(const struct written *w, enum kind kind, uint32_t at, uint64_t value)
{
	struct tr_bale *b = w->b;
	value += kind == SAME ? 0 : w->add[kind];
	memcpy(byte_at(w, at), &value, kind == WHOLE ? 8 : 4);
	if (w->copy && kind != SAME)
		b->place[kind][b->n_places[kind]++] = at;
}

static enum kind kind_of(const struct tr_kept_frag *k, const struct fix *f)
{
	bool hot = f->at < k->hot;
	switch ((enum fix_kind)f->kind) {
	case FIX_NUMBER:
		return NUMBER;
	case FIX_LOW:
		return LOW;
	case FIX_WHOLE:
		return WHOLE;
	case FIX_FACTS:
		return FACTS;
	case FIX_RUNTIME:
		return hot ? HOT_TO_RUNTIME : COLD_TO_RUNTIME;
	case FIX_CODE:
		return hot ? HOT_TO_CODE : COLD_TO_CODE;
	case FIX_HOT:
		return hot ? SAME : COLD_TO_HOT;
	default:
		return hot ? HOT_TO_COLD : SAME;
	}
}

static void set(const struct written *w, const struct member *m, const struct fix *f)
{
	const struct tr_kept_frag *k = m->kept;
	bool hot = f->at < k->hot;
	/* in the bale's code; and, in its half, where the word ends */
	uint32_t at = hot ? m->hot + f->at : w->b->hot + m->cold + (f->at - k->hot);
	uint64_t to = (uint64_t)(int64_t)f->to, end = (hot ? at : at - w->b->hot) + 4;
	enum kind kind = kind_of(k, f);
	switch (kind) {
	case NUMBER: /* the last one comes first */
		word(w, kind, at, m->number + k->n_numbers - 1 - (uint32_t)f->to);
		break;
	case LOW:
	case WHOLE:
		word(w, kind, at, m->at + to);
		break;
	case FACTS:
		word(w, kind, at, 0);
		break;
	case HOT_TO_RUNTIME:
	case COLD_TO_RUNTIME:
		word(w, kind, at, to - end);
		break;
	case HOT_TO_CODE:
	case COLD_TO_CODE:
		word(w, kind, at, m->at + to - end);
		break;
	default:
		word(w, kind, at, (f->kind == FIX_HOT ? m->hot : m->cold) + to - end);
	}
}

/* Whether the jump there is one that leads to another member. */
static bool is_inner(const struct tr_bale *b, const struct member *m, uint32_t at)
{
	const struct kept_number *n = parts_of(m->kept).numbers;
	for (unsigned i = 0; i < m->kept->n_numbers; i++)
		if (n[i].kind == TR_STOP_LINK && n[i].site == at &&
		    b->inner[m->number + m->kept->n_numbers - 1 - i].to)
			return true;
	return false;
}

/* The same in the code. */
static void write_inner(const struct written *w, const struct member *m)
{
	const struct tr_bale *b = w->b;
	const struct kept_number *n = parts_of(m->kept).numbers;
	for (unsigned j = 0; j < m->kept->n_numbers; j++) {
		const struct inner *in = &b->inner[m->number + m->kept->n_numbers - 1 - j];
		if (!in->to)
			continue;
		const struct member *o = &b->member[in->to - 1];
		uint32_t at = m->hot + n[j].site;
		uint32_t rel = o->hot + o->kept->entry - (at + 4);
		memcpy(w->hot + at, &rel, 4);
	}
}

static void write_code(const struct written *w)
{
	const struct tr_bale *b = w->b;
	uint32_t end = 0;
	for (unsigned i = 0; i < b->n; i++) {
		const struct member *m = &b->member[i];
		struct parts p = parts_of(m->kept);
		memset(w->hot + end, 0xcc, m->hot - end);
		end = m->hot + m->kept->hot;
		memcpy(w->hot + m->hot, p.code, m->kept->hot);
		memcpy(w->cold + m->cold, p.code + m->kept->hot, m->kept->cold);
		for (unsigned j = 0; j < m->kept->n_fixes; j++)
			if (!w->copy || p.fixes[j].kind != FIX_COLD ||
			    p.fixes[j].at >= m->kept->hot || !is_inner(b, m, p.fixes[j].at))
				set(w, m, &p.fixes[j]);
		write_inner(w, m);
	}
}

void tr_bale_forget_code(struct tr_bale *b)
{
	for (unsigned i = 0; i < KINDS; i++) {
		free(b->place[i]);
		b->place[i] = NULL;
	}
	free(b->code);
	b->code = NULL;
}

/* A copy of the code, for a bale that is put more than once. There is none if there is no room for
 * it. */
static void copy_code(struct tr_kept *kept, struct tr_bale *b)
{
	uint32_t fixes[KINDS + 1] = { 0 };
	size_t before = b->size;
	for (unsigned i = 0; i < b->n; i++) {
		const struct tr_kept_frag *k = b->member[i].kept;
		const struct fix *f = parts_of(b->member[i].kept).fixes;
		for (unsigned j = 0; j < k->n_fixes; j++)
			fixes[kind_of(k, &f[j])]++;
	}
	b->code = tr_bale_part(b, b->hot + b->cold + 8, 1);
	for (unsigned i = 0; i < KINDS; i++)
		b->place[i] = tr_bale_part(b, fixes[i], sizeof(*b->place[i]));
	if (b->size - before > *kept->room) {
		tr_bale_forget_code(b);
		b->size = before;
		return;
	}
	*kept->room -= b->size - before;
	struct written w = { .b = b, .hot = b->code, .cold = b->code + b->hot, .copy = true };
	write_code(&w);
}

/* What is added to the sums in the code of a bale that is put there. */
static void sums_of(uint64_t add[KINDS], const struct tr_arena *a, const struct bale_place *at)
{
	uint64_t hot = cg_va(&a->hot), cold = cg_va(&a->cold);
	add[COLD_TO_HOT] = hot - cold;
	add[HOT_TO_COLD] = cold - hot;
	add[HOT_TO_RUNTIME] = a->va - hot;
	add[COLD_TO_RUNTIME] = a->va - cold;
	add[HOT_TO_CODE] = at->base - hot;
	add[COLD_TO_CODE] = at->base - cold;
	add[LOW] = at->base;
	add[NUMBER] = at->number;
	add[FACTS] = at->facts;
	add[WHOLE] = at->base;
}

/* The sums in its copy of the code become these. */
static void move(struct tr_bale *b, const uint64_t add[KINDS])
{
	for (unsigned kind = 0; kind < KINDS; kind++) {
		uint64_t more = add[kind] - b->added[kind], v = 0;
		size_t size = kind == WHOLE ? 8 : 4;
		b->added[kind] = add[kind];
		for (uint32_t i = 0; more && i < b->n_places[kind]; i++) {
			uint8_t *at = b->code + b->place[kind][i];
			memcpy(&v, at, size);
			v += more;
			memcpy(at, &v, size);
		}
	}
}

void tr_bale_code(struct tr_kept *kept, struct tr_bale *b, struct tr_arena *a,
		  const struct bale_place *at)
{
	struct written w = { .b = b, .hot = a->hot.p, .cold = a->cold.p };
	sums_of(w.add, a, at);
	if (b->was_put && !b->code)
		copy_code(kept, b);
	b->was_put = true;
	if (b->code) {
		move(b, w.add);
		cg_bytes(&a->hot, b->code, b->hot);
		cg_bytes(&a->cold, b->code + b->hot, b->cold);
		return;
	}
	write_code(&w);
	a->hot.p += b->hot;
	a->cold.p += b->cold;
}
