/*
 * Estates: all that was translated for an image of a program, in a file, for the next recording's.
 *
 * To make kept fragments again (translate-keep.c), also in bales, takes a microsecond or two for
 * each, because they may come in any order, anywhere, beside any others. But the images of a
 * program mostly want the same, and lie where they lay. So what one leaves (translate-heir.c) is
 * written down as it is: the arenas' chunks byte by byte, in which links are jumps already, and
 * fragments, numbers, pages and the instructions' places in rows, each of which names others by
 * their places in their rows. To read it is to copy the code and to go through each row once.
 *
 * Whose file it is, and who may write to it, is the caller's business, as with kept translations
 * (translate-keep-file.c). Damage is found by a checksum of everything, before anybody executes it:
 * another thread may copy the code and sum all up while the rows are read. A file that was forged
 * can have the program execute anything, which is what such a file means; but nothing in it makes
 * us look or write where we should not: each place is compared with the length of its row, and each
 * offset with what it must lie in. Pages have the sums that translate-heir.c has, so that the code
 * is compared when somebody takes it over.
 *
 * What is known of instructions stays where the file is mapped, for as long as the translator
 * lives.
 */
#include "format/lease.h"
#include "translator/estate-file.h"
#include "translator/runtime.h"

#include <stdlib.h>
#include <unistd.h>

struct rows {
	const uint8_t *about;
	const struct estate_arena *arena;
	const struct estate_chunk *chunk;
	const struct estate_page *page;
	const struct estate_frag *frag;
	const struct estate_use *use;
	const struct estate_number *number;
	const struct tr_finsn *insn;
	const uint8_t *code;
};

struct tr_estate {
	uint8_t *bytes; /* of the file */
	size_t size;
	bool leased; /* mapped; else copied */
	struct estate_head head;
	struct rows rows;
};

/* ---- whether it is sound ---------------------------------------------------------- */

/* Where the rows are. False if they are not as long as the file. */
static bool find_rows(struct tr_estate *e)
{
	const struct estate_head *h = &e->head;
	struct rows *r = &e->rows;
	const uint8_t *at = e->bytes + sizeof(*h);
	uint64_t size =
		sizeof(*h) + h->about + (uint64_t)h->arenas * sizeof(*r->arena) +
		(uint64_t)h->chunks * sizeof(*r->chunk) + (uint64_t)h->pages * sizeof(*r->page) +
		(uint64_t)h->frags * sizeof(*r->frag) + (uint64_t)h->uses * sizeof(*r->use) +
		(uint64_t)h->numbers * sizeof(*r->number) + (uint64_t)h->insns * sizeof(*r->insn);
	if (h->code > e->size || size + h->code != e->size || h->about % 8)
		return false;
	r->about = at;
	r->arena = (const void *)(at + h->about);
	r->chunk = (const void *)(r->arena + h->arenas);
	r->page = (const void *)(r->chunk + h->chunks);
	r->frag = (const void *)(r->page + h->pages);
	r->use = (const void *)(r->frag + h->frags);
	r->number = (const void *)(r->use + h->uses);
	r->insn = (const void *)(r->number + h->numbers);
	r->code = (const void *)(r->insn + h->insns);
	return true;
}

/* No arena twice, and none beside the addresses that a program has. */
static bool sound_arenas(const struct tr_estate *e)
{
	const struct estate_arena *a = e->rows.arena;
	for (uint32_t i = 0; i < e->head.arenas; i++) {
		if (!a[i].va || a[i].va & 0xfff || a[i].va >> 47)
			return false;
		for (uint32_t k = 0; k < i; k++)
			if (a[i].va < a[k].va + TR_ARENA_SIZE && a[k].va < a[i].va + TR_ARENA_SIZE)
				return false;
	}
	return e->head.arenas && e->head.arenas <= TR_ESTATE_ARENAS;
}

/* In ascending order, and some are left. */
static bool sound_chunks(const struct tr_estate *e)
{
	uint64_t code = 0, frags = 0;
	for (uint32_t i = 0; i < e->head.chunks; i++) {
		const struct estate_chunk *c = &e->rows.chunk[i];
		if (c->arena >= e->head.arenas || c->chunk >= CHUNKS - 1 || c->hot > CHUNK_HOT ||
		    c->cold > CHUNK_COLD || c->hot % 8 || c->cold % 8 ||
		    (i && (c->arena < c[-1].arena ||
			   (c->arena == c[-1].arena && c->chunk <= c[-1].chunk))))
			return false;
		code += c->hot + c->cold;
		frags += c->frags;
	}
	return code == e->head.code && frags == e->head.frags;
}

/* Whether that lies in cold code of the arena, but not in the chunk that is free. */
static bool is_cold(uint32_t at)
{
	return at >= ARENA_HOT && at < ARENA_HOT + (CHUNKS - 1) * CHUNK_COLD;
}

static bool sound_frag(const struct tr_estate *e, const struct estate_chunk *c,
		       const struct estate_frag *f, uint32_t from)
{
	uint32_t end = c->chunk * CHUNK_HOT + c->hot;
	bool apart = f->stub && f->stub_arena != ESTATE_NONE;
	return f->entry >= from && f->end > f->entry && f->end <= end && f->n && f->n <= FRAG_MAX &&
	       f->n_uses && f->n_uses <= USES_MAX && f->lag <= TR_LAG_MAX &&
	       (!apart || (f->stub_arena < e->head.arenas && is_cold(f->stub))) &&
	       (apart || !f->stub || (f->stub >= from && f->stub < f->entry)) &&
	       (f->stub || !f->indirect);
}

static bool sound_frags(const struct tr_estate *e)
{
	const struct estate_frag *f = e->rows.frag;
	uint64_t uses = 0, insns = 0;
	for (uint32_t i = 0; i < e->head.chunks; i++) {
		const struct estate_chunk *c = &e->rows.chunk[i];
		uint32_t from = c->chunk * CHUNK_HOT;
		for (uint32_t k = 0; k < c->frags; k++, f++) {
			if (!sound_frag(e, c, f, from))
				return false;
			from = f->end;
			uses += f->n_uses;
			insns += f->n;
		}
	}
	return uses == e->head.uses && insns == e->head.insns;
}

/* A jump that will be patched lies within eight aligned bytes. */
static bool sound_link(const struct estate_number *n)
{
	return n->site <= ARENA_HOT - 8 && (n->site & 7) <= 4 && is_cold(n->stub) &&
	       (!n->far || (is_cold(n->far) && ((n->far + 6) & 7) == 0));
}

static bool sound_numbers(const struct tr_estate *e)
{
	for (uint32_t i = 0; i < e->head.numbers; i++) {
		const struct estate_number *n = &e->rows.number[i];
		if (n->frag == ESTATE_NONE)
			continue;
		if (n->frag >= e->head.frags || n->kind > TR_STOP_BRANCH || n->lag > TR_LAG_MAX ||
		    (n->kind == TR_STOP_LINK &&
		     (!sound_link(n) || (n->to != ESTATE_NONE && n->to >= e->head.frags))))
			return false;
	}
	return true;
}

/* A fragment depends on a page once. */
static bool sound_uses(const struct tr_estate *e)
{
	const struct rows *r = &e->rows;
	const struct estate_use *u = r->use;
	for (uint32_t i = 0; i < e->head.frags; u += r->frag[i++].n_uses)
		for (unsigned j = 0; j < r->frag[i].n_uses; j++) {
			if (u[j].page >= e->head.pages)
				return false;
			for (unsigned k = 0; k < j; k++)
				if (r->page[u[j].page].page == r->page[u[k].page].page)
					return false;
		}
	return true;
}

static bool sound_rest(const struct tr_estate *e)
{
	const struct rows *r = &e->rows;
	for (uint32_t i = 0; i < e->head.pages; i++)
		if (r->page[i].page >> 35)
			return false;
	for (uint32_t i = 0; i < e->head.insns; i++)
		if (r->insn[i].flags_start > TR_FLAGS_SAVED ||
		    r->insn[i].flags_body > TR_FLAGS_SAVED)
			return false;
	return true;
}

static bool sound(struct tr_estate *e)
{
	return find_rows(e) && sound_arenas(e) && sound_chunks(e) && sound_frags(e) &&
	       sound_numbers(e) && sound_uses(e) && sound_rest(e);
}

bool tr_estate_whole(const struct tr_estate *e)
{
	return XXH3_64bits(e->bytes + sizeof(e->head), e->size - sizeof(e->head)) == e->head.sum;
}

/* ---- reading ------------------------------------------------------------------------------- */

/* A large page more, of which the rest is not touched. */
static size_t whole(size_t size)
{
	return (size + TR_HUGE - 1) & ~(TR_HUGE - 1);
}

static bool read_bytes(struct tr_estate *e, int fd)
{
	e->bytes = dj_lease(fd, e->size);
	e->leased = e->bytes;
	if (e->leased)
		return true;
	e->bytes = tr_huge(whole(e->size));
	size_t at = 0;
	for (ssize_t n = 1; at < e->size && n > 0; at += n > 0 ? (size_t)n : 0)
		n = pread(fd, e->bytes + at, e->size - at, (off_t)at);
	return at == e->size;
}

void tr_estate_close(struct tr_estate *e)
{
	if (!e)
		return;
	if (e->leased)
		dj_lease_end(e->bytes, e->size);
	else
		tr_sparse_free(e->bytes, whole(e->size));
	free(e);
}

struct tr_estate *tr_estate_open(int fd, size_t size, const uint8_t id[TR_KEPT_ID])
{
	struct estate_head h;
	if (pread(fd, &h, sizeof(h), 0) != sizeof(h) || h.magic != ESTATE_MAGIC || h.size != size ||
	    h.head_sum != estate_head_sum(&h) || memcmp(h.id, id, TR_KEPT_ID) != 0)
		return NULL;
	struct tr_estate *e = calloc(1, sizeof(*e));
	DJ_ASSERT(e, "out of memory for what was translated");
	e->head = h;
	e->size = size;
	if (read_bytes(e, fd) && sound(e))
		return e;
	tr_estate_close(e);
	return NULL;
}

const void *tr_estate_about(const struct tr_estate *e, size_t *size)
{
	*size = e->head.about;
	return e->rows.about;
}

bool tr_estate_arena(const struct tr_estate *e, unsigned i, uint64_t *va)
{
	if (i < e->head.arenas)
		*va = e->rows.arena[i].va;
	return i < e->head.arenas;
}

uint32_t tr_estate_fragments(const struct tr_estate *e)
{
	return e->head.frags;
}

bool tr_estate_code(const struct tr_estate *e, struct tr_estate_code *c)
{
	uint32_t i = c->next / 2;
	if (i >= e->head.chunks)
		return false;
	const struct estate_chunk *from = &e->rows.chunk[i];
	bool cold = c->next & 1;
	c->bytes = c->next ? c->bytes + c->size : e->rows.code;
	c->size = cold ? from->cold : from->hot;
	c->arena = from->arena;
	c->off = cold ? ARENA_HOT + from->chunk * CHUNK_COLD : from->chunk * CHUNK_HOT;
	c->next++;
	/* the runtime is there, and is another one in that it knows how large tables are */
	size_t rt = (size_t)(rt_end - rt_begin);
	if (!cold && !from->chunk && c->size >= rt) {
		c->bytes += rt;
		c->size -= rt;
		c->off = rt;
	}
	return true;
}

/* What is being read: the translator, and what is in which place of the rows. */
struct reading {
	const struct tr_estate *e;
	struct translator *tr;
	struct tr_arena *arena[TR_ESTATE_ARENAS];
	struct tr_page **page;
	struct tr_frag **frag;
	uint32_t *unit; /* of each fragment, as translate-heir.c has it */
	bool *entered;	/* from another unit */
};

static void read_arenas(struct reading *r, uint8_t *const ours[])
{
	for (uint32_t i = r->e->head.arenas; i-- > 0;) { /* the last one comes first */
		tr_add_arena(r->tr, r->e->rows.arena[i].va, ours[i]);
		r->arena[i] = r->tr->arenas;
	}
}

/* Who lies where; and the rest is free. */
static void settle_chunks(struct reading *r)
{
	const struct estate_chunk *c = r->e->rows.chunk;
	struct tr_frag **frag = r->frag;
	for (uint32_t i = 0; i < r->e->head.chunks; frag += c[i++].frags)
		tr_chunk_settle(r->arena[c[i].arena], c[i].chunk, frag, c[i].frags);
	for (uint32_t i = 0; i < r->e->head.arenas; i++)
		tr_arena_settle(r->arena[i]);
}

static struct tr_frag *read_frag(struct reading *r, const struct estate_chunk *c,
				 const struct estate_frag *from)
{
	struct tr_arena *a = r->arena[c->arena];
	struct tr_frag *f = tr_frag_new(r->tr, 0, from->n_uses);
	bool apart = from->stub && from->stub_arena != ESTATE_NONE;
	*f = (struct tr_frag){ .block = f->block,
			       .arena = a,
			       .pc = from->pc,
			       .entry = tr_va(a, from->entry),
			       .end = tr_va(a, from->end),
			       .stub = from->stub && !apart ? tr_va(a, from->stub) : 0,
			       .ret_site = from->ret_site,
			       .uses = f->uses,
			       .n_uses = from->n_uses,
			       .slot = TR_NO_SLOT,
			       .stub_chunk = TR_NO_CHUNK,
			       .chunk = c->chunk,
			       .live = from->live,
			       .lag = from->lag,
			       .indirect = from->indirect,
			       .n = from->n };
	if (apart) {
		f->stub_arena = r->arena[from->stub_arena];
		f->stub = tr_va(f->stub_arena, from->stub);
		f->stub_chunk = (from->stub - (uint32_t)ARENA_HOT) / (uint32_t)CHUNK_COLD;
		f->stub_arena->chunks[f->stub_chunk].holders++;
	}
	return f;
}

static void read_frags(struct reading *r)
{
	const struct rows *rows = &r->e->rows;
	const struct estate_frag *from = rows->frag;
	const struct estate_use *use = rows->use;
	struct tr_finsn *insn = (struct tr_finsn *)(uintptr_t)rows->insn; /* nobody writes to it */
	uint32_t n = 0;
	for (uint32_t i = 0; i < r->e->head.chunks; i++)
		for (uint32_t k = 0; k < rows->chunk[i].frags; k++, from++) {
			struct tr_frag *f = r->frag[n++] = read_frag(r, &rows->chunk[i], from);
			f->insn = insn;
			insn += f->n;
			uint32_t unit = r->page[use->page]->unit;
			for (uint32_t u = 0; u < f->n_uses; u++, use++) {
				struct tr_page *p = r->page[use->page];
				tr_use_page(f, u, p, use->lines);
				unit = p->unit == unit ? unit : TR_UNIT_NONE;
			}
			r->unit[n - 1] = unit;
			tr_enter_hash(r->tr, f);
		}
}

static void read_pages(struct reading *r, uint32_t (*unit)(void *ctx, uint64_t page), void *ctx)
{
	for (uint32_t i = 0; i < r->e->head.pages; i++) {
		r->page[i] = tr_page_of(r->tr, r->e->rows.page[i].page);
		r->page[i]->unit = unit(ctx, r->page[i]->page);
	}
}

static void read_sums(struct reading *r)
{
	for (uint32_t i = 0; i < r->e->head.pages; i++)
		r->page[i]->sum = r->e->rows.page[i].sum;
}

static void read_numbers(struct reading *r)
{
	const struct estate_number *from = r->e->rows.number;
	uint32_t n = r->e->head.numbers, free = 0; /* in a row */
	uint32_t first = tr_numbers_row(r->tr, n);
	DJ_ASSERT(first == STOP_TABLE, "numbers of a new translator begin with %u", first);
	for (uint32_t i = 0; i < n; i++, from++) {
		if (from->frag == ESTATE_NONE) {
			free++;
			continue;
		}
		tr_numbers_free_row(r->tr, first + i - free, free);
		free = 0;
		struct tr_frag *f = r->frag[from->frag];
		bool link = from->kind == TR_STOP_LINK;
		r->tr->numbers[first + i] =
			(struct tr_number){ .stop = { .kind = (enum tr_stop_kind)from->kind,
						      .pc = from->pc,
						      .lag = from->lag },
					    .frag = f,
					    .sibling = f->numbers };
		f->numbers = first + i;
		if (!link)
			continue;
		struct tr_number *to = &r->tr->numbers[first + i];
		to->site = from->site;
		to->stub = from->stub;
		if (from->far) {
			to->far = from->far;
			to->far_chunk = (from->far - (uint32_t)ARENA_HOT) / (uint32_t)CHUNK_COLD;
			f->arena->chunks[to->far_chunk].holders++;
		}
		if (from->to == ESTATE_NONE) {
			tr_link_known(r->tr, first + i, NULL);
			continue;
		}
		tr_link_known(r->tr, first + i, r->frag[from->to]);
		r->entered[from->to] |= r->unit[from->frag] != r->unit[from->to] &&
					r->unit[from->frag] != TR_UNIT_NONE;
	}
	tr_numbers_free_row(r->tr, first + n - free, free);
}

/* As tr_take_over() does: what is not there yet is parked, or goes if it cannot be; and the tables
 * lead to the rest. */
static void park(struct reading *r)
{
	struct translator *tr = r->tr;
	for (uint32_t i = 0; i < r->e->head.frags; i++) {
		uint32_t unit = r->unit[i];
		struct tr_frag *f = r->frag[i];
		if (unit == TR_UNIT_NONE || (unit && r->entered[i]))
			tr_retire(tr, f);
		else if (unit)
			for (uint32_t u = 0; u < f->n_uses; u++)
				f->parked = f->uses[u].page->parked = true;
	}
	tr->epoch++;
	tr_reclaim(tr, tr->epoch);
	tr->stats.retired = 0;
}

static void restore_indirect(struct reading *r)
{
	const struct estate_frag *from = r->e->rows.frag;
	for (uint32_t i = 0; i < r->e->head.frags; i++)
		if (from[i].indirect && !r->unit[i])
			tr_restore_indirect(r->tr, r->frag[i]);
}

/* How many will have a place in the table of targets. */
static uint32_t targets(const struct reading *r)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < r->e->head.frags; i++)
		n += r->e->rows.frag[i].indirect && !r->unit[i];
	return n;
}

/* All but the code, which may not be there yet. */
static void read_rows(struct reading *r, const struct tr_estate_heir *h)
{
	read_arenas(r, h->ours);
	read_pages(r, h->unit, h->ctx);
	read_frags(r);
	read_sums(r);
	read_numbers(r);
	settle_chunks(r);
	tr_tables_room(r->tr, targets(r));
	restore_indirect(r);
}

struct translator *tr_estate_read(struct tr_estate *e, const struct tr_ops *ops,
				  const struct tr_config *config, const struct tr_estate_heir *h)
{
	struct reading r = { .e = e, .tr = tr_new(ops, config) };
	r.page = malloc((e->head.pages + 1UL) * sizeof(*r.page));
	r.frag = malloc((e->head.frags + 1UL) * sizeof(*r.frag));
	r.unit = malloc((e->head.frags + 1UL) * sizeof(*r.unit));
	r.entered = calloc(e->head.frags + 1UL, sizeof(*r.entered));
	DJ_ASSERT(r.page && r.frag && r.unit && r.entered, "out of memory for what was translated");
	r.tr->estate = e;
	tr_numbers_room(r.tr, e->head.numbers);
	tr_index_room(r.tr, e->head.frags);
	read_rows(&r, h);
	if (!h->ready || h->ready(h->ctx)) {
		park(&r);
	} else {
		tr_free(r.tr);
		r.tr = NULL;
	}
	free(r.page);
	free(r.frag);
	free(r.unit);
	free(r.entered);
	return r.tr;
}
