/*
 * Writing estates (translate-estate.c).
 */
#include "translator/estate-file.h"

/* What is being written: what is in which row. */
struct writing {
	const struct translator *tr;
	struct estate_head head;
	FILE *to;
	XXH3_state_t *sum;
	bool good;
	const struct tr_arena *arena[TR_ESTATE_ARENAS];
};

static void put(struct writing *w, const void *bytes, size_t size)
{
	XXH3_64bits_update(w->sum, bytes, size);
	w->good &= !size || fwrite(bytes, size, 1, w->to) == 1;
	w->head.size += size;
}

static uint32_t arena_number(const struct writing *w, const struct tr_arena *a)
{
	uint32_t i = 0;
	while (w->arena[i] != a)
		i++;
	return i;
}

/* Up to the last byte that is not 0, in eights. */
static uint32_t length(const uint8_t *bytes, uint32_t size)
{
	uint64_t eight;
	while (size) {
		memcpy(&eight, bytes + size - 8, 8);
		if (eight)
			break;
		size -= 8;
	}
	return size;
}

static void put_chunks(struct writing *w)
{
	for (uint32_t k = 0; k < w->head.arenas; k++)
		for (uint32_t i = 0; i < CHUNKS; i++) {
			const struct tr_arena *a = w->arena[k];
			if (!a->chunks[i].holders)
				continue;
			struct estate_chunk c = {
				.arena = k,
				.chunk = i,
				.hot = length(a->ours + i * CHUNK_HOT, CHUNK_HOT),
				.cold = length(a->ours + ARENA_HOT + i * CHUNK_COLD, CHUNK_COLD),
				.frags = a->chunks[i].n
			};
			put(w, &c, sizeof(c));
			w->head.chunks++;
			w->head.code += c.hot + c.cold;
		}
}

static void put_code(struct writing *w)
{
	for (uint32_t k = 0; k < w->head.arenas; k++)
		for (uint32_t i = 0; i < CHUNKS; i++) {
			const struct tr_arena *a = w->arena[k];
			const uint8_t *hot = a->ours + i * CHUNK_HOT;
			const uint8_t *cold = a->ours + ARENA_HOT + i * CHUNK_COLD;
			if (!a->chunks[i].holders)
				continue;
			put(w, hot, length(hot, CHUNK_HOT));
			put(w, cold, length(cold, CHUNK_COLD));
		}
}

static void put_pages(struct writing *w)
{
	const struct translator *tr = w->tr;
	for (uint32_t i = 0; i < tr->cap_pages; i++) {
		struct tr_page *p = tr->pages[i];
		if (!p || !p->uses)
			continue;
		struct estate_page to = { .page = p->page, .sum = p->sum };
		p->unit = w->head.pages++;
		put(w, &to, sizeof(to));
	}
}

static struct estate_frag frag_of(const struct writing *w, const struct tr_frag *f)
{
	bool apart = f->stub && f->stub_chunk != TR_NO_CHUNK;
	const struct tr_arena *a = apart ? f->stub_arena : f->arena;
	return (struct estate_frag){ .pc = f->pc,
				     .ret_site = f->ret_site,
				     .entry = (uint32_t)(f->entry - f->arena->va),
				     .end = (uint32_t)(f->end - f->arena->va),
				     .stub = f->stub ? (uint32_t)(f->stub - a->va) : 0,
				     .stub_arena = apart ? arena_number(w, a) : ESTATE_NONE,
				     .live = (uint16_t)f->live,
				     .lag = (uint16_t)f->lag,
				     .n_uses = (uint16_t)f->n_uses,
				     .n = (uint16_t)f->n,
				     .indirect = f->indirect };
}

/* Call it for each fragment, in the order of the row. */
static void each(struct writing *w, void (*what)(struct writing *, struct tr_frag *))
{
	for (uint32_t k = 0; k < w->head.arenas; k++)
		for (uint32_t i = 0; i < CHUNKS; i++)
			for (uint32_t j = 0; j < w->arena[k]->chunks[i].n; j++)
				what(w, w->arena[k]->chunks[i].frags[j]);
}

/* (Its place is where its place in the table of targets was: nobody has one.) */
static void put_frag(struct writing *w, struct tr_frag *f)
{
	struct estate_frag to = frag_of(w, f);
	f->slot = w->head.frags++;
	put(w, &to, sizeof(to));
}

static void put_uses(struct writing *w, struct tr_frag *f)
{
	for (uint32_t i = 0; i < f->n_uses; i++) {
		struct estate_use to = { .lines = f->uses[i].lines, .page = f->uses[i].page->unit };
		put(w, &to, sizeof(to));
	}
	w->head.uses += f->n_uses;
}

static void put_insns(struct writing *w, struct tr_frag *f)
{
	put(w, f->insn, f->n * sizeof(*f->insn));
	w->head.insns += f->n;
}

static void put_numbers(struct writing *w)
{
	const struct translator *tr = w->tr;
	for (uint32_t i = STOP_TABLE; i < tr->n_numbers; i++) {
		const struct tr_number *n = &tr->numbers[i];
		struct estate_number to = { .frag = ESTATE_NONE };
		if (!n->free && n->frag)
			to = (struct estate_number){ .pc = n->stop.pc,
						     .frag = n->frag->slot,
						     .to = n->to ? n->to->slot : ESTATE_NONE,
						     .site = n->site,
						     .stub = n->stub,
						     .far = n->far,
						     .lag = (uint16_t)n->stop.lag,
						     .kind = n->stop.kind & 0xffff };
		put(w, &to, sizeof(to));
		w->head.numbers++;
	}
}

static void put_all(struct writing *w, const void *about, size_t n_about)
{
	static const uint8_t nothing[8];
	put(w, about, n_about);
	put(w, nothing, -n_about & 7);
	w->head.about = (uint32_t)((n_about + 7) & ~(size_t)7);
	for (const struct tr_arena *a = w->tr->arenas; a; a = a->next) {
		struct estate_arena to = { a->va };
		put(w, &to, sizeof(to));
		w->arena[w->head.arenas++] = a;
	}
	put_chunks(w);
	put_pages(w);
	each(w, put_frag);
	each(w, put_uses);
	put_numbers(w);
	each(w, put_insns);
	put_code(w);
}

bool tr_estate_write(struct translator *tr, const uint8_t id[TR_KEPT_ID], const void *about,
		     size_t n_about, FILE *to)
{
	struct writing w = { .tr = tr, .to = to, .good = true };
	uint64_t at, size;
	DJ_ASSERT(!tr->retired && n_about <= TR_ESTATE_ABOUT,
		  "what is written down is not all there is");
	if (tr_arena(tr, TR_ESTATE_ARENAS, &at, &size))
		return false;
	w.sum = XXH3_createState();
	DJ_ASSERT(w.sum, "out of memory for a checksum");
	XXH3_64bits_reset(w.sum);
	w.good = fwrite(&w.head, sizeof(w.head), 1, to) == 1;
	put_all(&w, about, n_about);
	w.head.magic = ESTATE_MAGIC;
	w.head.size += sizeof(w.head);
	memcpy(w.head.id, id, TR_KEPT_ID);
	w.head.sum = XXH3_64bits_digest(w.sum);
	w.head.head_sum = estate_head_sum(&w.head);
	XXH3_freeState(w.sum);
	return w.good && !fseek(to, 0, SEEK_SET) && fwrite(&w.head, sizeof(w.head), 1, to) == 1;
}
