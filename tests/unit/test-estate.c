/*
 * Estates (translator/translate-estate.c): what one translator has left another one reads as it
 * was, and goes on with; what is damaged or forged does no harm.
 */
#include "tests/lib/keep-world.h"
#include "translator/estate.h"

#include <CUnit/Basic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

static const uint8_t id[TR_KEPT_ID] = { 1, 2, 3 }, other[TR_KEPT_ID] = { 1, 2, 4 };
static const char about[] = "what the caller says";

/* Of the head of a file: where its checksums are, and how long it is. */
#define SUM	 144
#define HEAD_SUM 152
#define COUNTS	 160
#define HEAD	 200

/* ---- what has to hold of any translator ---------------------------------------------------- */

/* Where the jump of the link leads. */
static uint64_t leads_to(const struct tr_arena *a, const struct tr_number *n)
{
	int32_t rel;
	uint64_t far;
	memcpy(&rel, a->ours + n->site, 4);
	uint64_t to = a->va + n->site + 4 + (uint64_t)(int64_t)rel;
	if (!n->far || to != a->va + n->far)
		return to;
	memcpy(&far, a->ours + n->far + 6, 8);
	return far;
}

static uint32_t in_lists(const struct translator *tr)
{
	uint32_t n = 0;
	for (unsigned i = 0; i < 1u << tr->hash_bits; i++) {
		for (uint32_t k = tr->waiting[i]; k; k = tr->numbers[k].next, n++)
			CU_ASSERT_FATAL(!tr->numbers[k].to && tr->numbers[k].listed);
		for (const struct tr_frag *f = tr->hash[i]; f; f = f->next)
			for (uint32_t k = f->incoming; k; k = tr->numbers[k].next, n++)
				CU_ASSERT_FATAL(tr->numbers[k].to == f && tr->numbers[k].listed);
	}
	return n;
}

/* Each link of who is awake is in its list, and its jump leads where that says; returns how many
 * there are. */
static uint32_t links(const struct translator *tr)
{
	uint32_t n = 0;
	for (unsigned i = 0; i < 1u << tr->hash_bits; i++)
		for (const struct tr_frag *f = tr->hash[i]; f; f = f->next)
			for (uint32_t k = f->numbers; k; k = tr->numbers[k].sibling) {
				const struct tr_number *of = &tr->numbers[k];
				CU_ASSERT_FATAL(of->frag == f && !of->free);
				if (of->stop.kind != TR_STOP_LINK)
					continue;
				CU_ASSERT_FATAL(
					of->listed == !f->asleep &&
					leads_to(f->arena, of) ==
						(of->to ? of->to->entry : f->arena->va + of->stub));
				n += of->listed;
			}
	CU_ASSERT(in_lists(tr) == n);
	return n;
}

/* Chunks have who holds them, and no other one is free. */
static void chunks(const struct translator *tr)
{
	for (const struct tr_arena *a = tr->arenas; a; a = a->next) {
		bool is_free[CHUNKS] = { false };
		for (uint32_t i = 0; i < a->n_free; i++)
			is_free[a->free[i]] = true;
		for (uint32_t i = 0; i < CHUNKS; i++) {
			CU_ASSERT(a->chunks[i].holders >= a->chunks[i].n);
			CU_ASSERT(i == a->current || is_free[i] == !a->chunks[i].holders);
			for (uint32_t k = 0; k < a->chunks[i].n; k++)
				CU_ASSERT(tr_chunk_find(a, a->chunks[i].frags[k]->entry) ==
					  a->chunks[i].frags[k]);
		}
	}
}

/* Who is a target of indirect branches is in the table. */
static uint32_t targets(const struct translator *tr)
{
	uint32_t n = 0;
	const uint64_t *pairs = tr_table(tr, T_TARGETS);
	for (unsigned i = 0; i < 1u << tr->hash_bits; i++)
		for (const struct tr_frag *f = tr->hash[i]; f; f = f->next) {
			if (!f->indirect || f->parked || f->slot == TR_NO_SLOT)
				continue;
			CU_ASSERT(tr->target[f->slot] == f && pairs[2 * f->slot] == f->pc &&
				  pairs[2 * f->slot + 1] == f->stub);
			n++;
		}
	return n;
}

/* ---- one that is left, and another one that has it ------------------------------------------ */

static uint64_t sum_of(uint64_t page)
{
	return random_of(page) | 1;
}

/* All but every seventh page. */
static bool keep(void *ctx, uint64_t page, uint64_t *sum)
{
	(void)ctx;
	*sum = sum_of(page);
	return page % 7 > 0;
}

static bool has_sum(void *ctx, uint64_t page, uint64_t *sum)
{
	unsigned *n = ctx;
	++*n;
	return *sum == sum_of(page);
}

static uint32_t all_there(void *ctx, uint64_t page)
{
	(void)ctx, (void)page;
	return 0;
}

/* Three libraries, of which one is there, one is to come, and one is not to. */
static uint32_t some_there(void *ctx, uint64_t page)
{
	const struct world *w = ctx;
	uint64_t part = (page - (w->base >> 12)) / ((w->text->size >> 12) / 4 + 1);
	return part == 3 ? TR_UNIT_NONE : part == 2;
}

/* What an image leaves after so many rounds, in which some of it was given up. */
static void leave(struct world *w, unsigned rounds)
{
	begin(w, 1);
	for (unsigned round = 2; round < rounds; round++) {
		translate(w, round);
		if (round % 20 == 0) {
			tr_invalidate(w->tr,
				      w->base + (random_of(round) % w->text->size & ~0xfffULL),
				      0x3000);
			tr_reclaim(w->tr, tr_epoch(w->tr));
		}
	}
	tr_keep_only(w->tr, keep, NULL);
}

static uint8_t *written(struct world *w, size_t *size)
{
	FILE *f = tmpfile();
	CU_ASSERT_FATAL(f && tr_estate_write(w->tr, id, about, sizeof(about), f) &&
			!fseek(f, 0, SEEK_END));
	*size = (size_t)ftell(f);
	uint8_t *bytes = malloc(*size);
	CU_ASSERT_FATAL(bytes && !fseek(f, 0, SEEK_SET) && fread(bytes, *size, 1, f) == 1);
	fclose(f);
	return bytes;
}

static struct tr_estate *open_bytes(const uint8_t *bytes, size_t size, const uint8_t *as)
{
	FILE *f = tmpfile();
	CU_ASSERT_FATAL(f && (!size || fwrite(bytes, size, 1, f) == 1) && !fflush(f));
	struct tr_estate *e = tr_estate_open(fileno(f), size, as);
	fclose(f);
	if (e && !tr_estate_whole(e)) {
		tr_estate_close(e);
		e = NULL;
	}
	return e;
}

/* Arenas for all that a file may have. */
static uint8_t *ours[TR_ESTATE_ARENAS];

/* The world has what was left. */
static void take(struct world *w, struct tr_estate *e, uint32_t (*unit)(void *, uint64_t))
{
	const struct tr_ops ops = w->tr->ops;
	struct tr_estate_code c = { 0 };
	uint64_t va;
	end(w);
	w->tables = sparse(AREA_TABLES);
	for (unsigned i = 0; tr_estate_arena(e, i, &va); i++)
		ours[i] = sparse(TR_ARENA_SIZE);
	w->arena = ours[0];
	while (tr_estate_code(e, &c)) {
		CU_ASSERT_FATAL(tr_estate_arena(e, c.arena, &va));
		CU_ASSERT_FATAL(c.off + c.size <= TR_ARENA_SIZE);
		memcpy(ours[c.arena] + c.off, c.bytes, c.size);
	}
	struct tr_config config = { w->tables, tr_policies[TR_POLICY_SHADOW], w->bales };
	const struct tr_estate_heir h = { ours, unit, NULL, w };
	w->tr = tr_estate_read(e, &ops, &config, &h);
}

static void free_arenas(void)
{
	for (unsigned i = 1; i < TR_ESTATE_ARENAS; i++) { /* the first one is the world's */
		if (ours[i])
			munmap(ours[i], TR_ARENA_SIZE);
		ours[i] = NULL;
	}
}

/* Each fragment of the one is in the other one, of which it is said where that has its arenas; and
 * so are numbers, with the same meaning. */
static void same_as(struct translator *tr, struct translator *as)
{
	uint32_t n = 0;
	for (unsigned i = 0; i < 1u << tr->hash_bits; i++)
		for (const struct tr_frag *f = tr->hash[i]; f; f = f->next, n++) {
			const struct tr_frag *g = as->hash[tr_hash(as, f->pc)];
			while (g && g->pc != f->pc)
				g = g->next;
			CU_ASSERT_FATAL(g && same_fragment(f, g) && f->lag == g->lag &&
					f->indirect == g->indirect && f->chunk == g->chunk &&
					f->stub_chunk == g->stub_chunk);
			CU_ASSERT(!memcmp(tr_ours(f->arena, (uint32_t)(f->entry - f->arena->va)),
					  tr_ours(g->arena, (uint32_t)(g->entry - g->arena->va)),
					  f->end - f->entry));
		}
	CU_ASSERT(n == tr_count(as, NULL, NULL) && n == tr_count(tr, NULL, NULL));
	CU_ASSERT(tr->n_numbers == as->n_numbers);
	for (uint32_t i = STOP_TABLE; i < tr->n_numbers && i < as->n_numbers; i++) {
		const struct tr_number *a = &tr->numbers[i], *b = &as->numbers[i];
		CU_ASSERT_FATAL(a->free == b->free);
		if (a->free)
			continue;
		CU_ASSERT(a->frag->pc == b->frag->pc && a->stop.kind == b->stop.kind &&
			  a->stop.pc == b->stop.pc && a->stop.lag == b->stop.lag &&
			  a->listed == b->listed && !a->to == !b->to && a->site == b->site &&
			  a->stub == b->stub && a->far == b->far && a->far_chunk == b->far_chunk);
		CU_ASSERT(!a->to || a->to->pc == b->to->pc);
	}
	for (const struct tr_arena *a = tr->arenas, *b = as->arenas; a; a = a->next, b = b->next)
		for (uint32_t i = 0; i < CHUNKS; i++)
			CU_ASSERT(a->chunks[i].holders == b->chunks[i].holders);
}

/* As within a recording. */
static void take_over(struct world *w, uint32_t (*unit)(void *, uint64_t))
{
	const struct tr_ops ops = w->tr->ops;
	munmap(w->tables, AREA_TABLES);
	w->tables = sparse(AREA_TABLES);
	tr_take_over(w->tr, &ops, w->tables, unit, w);
}

/* Both go on in the same way. */
static void go_on(struct world *a, struct world *b, uint64_t round)
{
	uint64_t at = random_of(round) % a->text->size & ~0xfffULL;
	translate(a, round);
	translate(b, round);
	if (round % 3 == 0) {
		tr_invalidate(a->tr, a->base + at, 0x5000);
		tr_invalidate(b->tr, b->base + at, 0x5000);
	} else if (round % 3 == 1) {
		tr_sleep(a->tr, (a->base + at) >> 12);
		tr_sleep(b->tr, (b->base + at) >> 12);
		tr_wake(a->tr, (a->base + at) >> 12, random_of(at));
		tr_wake(b->tr, (b->base + at) >> 12, random_of(at));
	}
	tr_reclaim(a->tr, tr_epoch(a->tr));
	tr_reclaim(b->tr, tr_epoch(b->tr));
	CU_ASSERT_FATAL(links(a->tr) == links(b->tr));
	CU_ASSERT(targets(a->tr) == targets(b->tr));
	chunks(b->tr);
	for (unsigned i = 0; i < 1u << a->tr->hash_bits; i++)
		for (const struct tr_frag *f = a->tr->hash[i]; f; f = f->next) {
			const struct tr_frag *g = b->tr->hash[tr_hash(b->tr, f->pc)];
			while (g && (g->pc != f->pc || g->asleep != f->asleep))
				g = g->next;
			CU_ASSERT_FATAL(g && g->n == f->n && g->lag == f->lag &&
					g->live == f->live);
		}
}

static void test_same(void)
{
	size_t size, n_about;
	uint64_t va;
	/* the same twice: one is written down, the other one is taken over as within a recording */
	struct world left = { .text = &texts[0], .base = THERE };
	struct world heir = { .text = &texts[0], .base = THERE };
	struct world next = { .text = &texts[0], .base = THERE };
	leave(&left, 120);
	leave(&heir, 120);
	begin_with_nothing(&next);
	CU_ASSERT(tr_count(left.tr, NULL, NULL) > 1000);
	uint32_t n_links = links(left.tr);
	uint8_t *bytes = written(&left, &size);
	CU_ASSERT(!open_bytes(bytes, size, other) && !open_bytes(bytes, size - 1, id) &&
		  !open_bytes(bytes, 0, id));
	struct tr_estate *e = open_bytes(bytes, size, id);
	CU_ASSERT_FATAL(e != NULL);
	CU_ASSERT(tr_estate_fragments(e) == tr_count(left.tr, NULL, NULL));
	CU_ASSERT(!memcmp(tr_estate_about(e, &n_about), about, sizeof(about)));
	CU_ASSERT(n_about == ((sizeof(about) + 7) & ~7UL));
	CU_ASSERT(tr_estate_arena(e, 0, &va) && va == left.tr->arenas->va &&
		  !tr_estate_arena(e, 1, &va));
	take(&next, e, all_there);
	same_as(left.tr, next.tr);
	CU_ASSERT(links(next.tr) == n_links);
	chunks(next.tr);
	unsigned n = 0;
	CU_ASSERT(tr_pages(next.tr, has_sum, &n) && n > 100);
	/* from then on there is no difference to an heir within the recording */
	take_over(&heir, all_there);
	CU_ASSERT(targets(next.tr) > 100);
	for (uint64_t round = 200; round < 260; round++)
		go_on(&heir, &next, round);
	tr_flush(next.tr);
	tr_reclaim(next.tr, tr_epoch(next.tr));
	chunks(next.tr);
	CU_ASSERT(!tr_count(next.tr, NULL, NULL));
	end(&left);
	end(&heir);
	end(&next);
	free_arenas();
	free(bytes);
}

/* How many wait for their library: nobody else leads to them, and no table does. */
static uint32_t parked(const struct translator *tr)
{
	uint32_t n = 0;
	for (unsigned i = 0; i < 1u << tr->hash_bits; i++)
		for (const struct tr_frag *f = tr->hash[i]; f; f = f->next) {
			if (!f->parked)
				continue;
			n++;
			CU_ASSERT_FATAL(f->slot == TR_NO_SLOT && !tr_find(tr, f->pc));
			for (uint32_t k = f->incoming; k; k = tr->numbers[k].next)
				CU_ASSERT_FATAL(tr->numbers[k].frag->parked);
		}
	return n;
}

/* Libraries that come later, and one that does not. */
static void test_parked(void)
{
	size_t size;
	struct world left = { .text = &texts[0], .base = THERE };
	struct world heir = { .text = &texts[0], .base = THERE };
	struct world next = { .text = &texts[0], .base = THERE };
	leave(&left, 150);
	leave(&heir, 150);
	begin_with_nothing(&next);
	uint64_t all = tr_count(left.tr, NULL, NULL);
	uint8_t *bytes = written(&left, &size);
	struct tr_estate *e = open_bytes(bytes, size, id);
	CU_ASSERT_FATAL(e != NULL);
	take(&next, e, some_there);
	/* (within a recording who leads elsewhere may go only after those to whom he leads) */
	take_over(&heir, some_there);
	uint64_t rest = tr_count(next.tr, NULL, NULL);
	CU_ASSERT(rest < all && rest >= tr_count(heir.tr, NULL, NULL) && rest > all / 2);
	uint32_t n = parked(next.tr);
	CU_ASSERT(n >= parked(heir.tr) && n > rest / 8);
	chunks(next.tr);
	for (uint64_t round = 200; round < 240; round++) {
		if (round == 210)
			tr_unpark(next.tr, 0, UINT64_MAX);
		/* (what is translated there before it comes takes the place of what was parked) */
		translate(&next, round);
		if (round % 3 == 0)
			tr_invalidate(next.tr, next.base + (round << 12), 0x5000);
		tr_reclaim(next.tr, tr_epoch(next.tr));
		CU_ASSERT(links(next.tr) > 1000 && targets(next.tr) > 50);
		CU_ASSERT(!parked(next.tr) == (round >= 210));
		chunks(next.tr);
	}
	end(&left);
	end(&heir);
	end(&next);
	free_arenas();
	free(bytes);
}

/* Nothing at all. */
static void test_empty(void)
{
	size_t size;
	struct world left = { .text = &texts[0], .base = THERE }, next = left;
	begin_with_nothing(&left);
	tr_keep_only(left.tr, keep, NULL);
	uint8_t *bytes = written(&left, &size);
	begin_with_nothing(&next);
	struct tr_estate *e = open_bytes(bytes, size, id);
	CU_ASSERT_FATAL(e != NULL);
	take(&next, e, all_there);
	CU_ASSERT(!tr_count(next.tr, NULL, NULL));
	translate(&next, 1);
	CU_ASSERT(links(next.tr) > 0);
	end(&left);
	end(&next);
	free_arenas();
	free(bytes);
}

/* Any byte. */
static void test_damage(void)
{
	size_t size;
	struct world left = { .text = &texts[0], .base = THERE };
	leave(&left, 10);
	uint8_t *bytes = written(&left, &size);
	for (uint64_t i = 0; i < 1000; i++) {
		uint64_t r = random_of(i);
		size_t at = i < HEAD ? i : r % size;
		bytes[at] ^= 1 << (r >> 60 & 7);
		CU_ASSERT_FATAL(!open_bytes(bytes, size, id));
		bytes[at] ^= 1 << (r >> 60 & 7);
	}
	struct tr_estate *e = open_bytes(bytes, size, id);
	CU_ASSERT(e != NULL);
	tr_estate_close(e);
	end(&left);
	free(bytes);
}

/* The file says that it is whole. */
static void sign(uint8_t *bytes, size_t size)
{
	uint64_t sum = XXH3_64bits(bytes + HEAD, size - HEAD);
	memcpy(bytes + SUM, &sum, 8);
	memset(bytes + HEAD_SUM, 0, 8);
	sum = XXH3_64bits(bytes, HEAD);
	memcpy(bytes + HEAD_SUM, &sum, 8);
}

/* Some value where another one was: mostly one that is a little wrong, or that another place has.
 */
static void forge(uint8_t *bytes, size_t size, uint64_t seed)
{
	uint64_t r = random_of(seed), value;
	size_t rows = size - HEAD - 8;
	size_t at = r % 9 == 0 ? COUNTS + (r >> 8) % (HEAD - COUNTS) / 4 * 4
			       : HEAD + (r >> 8) % rows / 4 * 4;
	memcpy(&value, bytes + HEAD + (random_of(r) % rows & ~3ULL), 8);
	value = r >> 60 & 1 ? value : r >> 59 & 1 ? UINT64_MAX : random_of(value);
	if (r >> 61 & 1) {
		memcpy(&value, bytes + at, 8);
		value += r >> 62 & 1 ? 1 : UINT64_MAX;
	}
	memcpy(bytes + at, &value, r >> 63 ? 4 : 8);
}

/* Files that somebody has forged: any value anywhere, with the right checksums. What is made of it
 * is nobody's concern, but the translator does not come to harm by having, executing and giving it
 * up. */
static void test_forged(void)
{
	size_t size;
	unsigned read = 0, refused = 0;
	struct world left = { .text = &texts[0], .base = THERE };
	leave(&left, 30);
	uint8_t *bytes = written(&left, &size), *forged = malloc(size);
	CU_ASSERT_FATAL(forged != NULL);
	/* (the rows only, of which code is a third: there nothing can be wrong) */
	for (uint64_t round = 0; round < 1500; round++) {
		memcpy(forged, bytes, size);
		for (unsigned i = 0; i < 1 + round % 5; i++)
			forge(forged, round % 2 ? size * 2 / 3 : size / 4, round * 10 + i);
		sign(forged, size);
		struct tr_estate *e = open_bytes(forged, size, id);
		refused += !e;
		if (!e)
			continue;
		read++;
		struct world next = { .text = &texts[0], .base = THERE };
		struct tr_where w;
		begin_with_nothing(&next);
		take(&next, e, round % 3 ? some_there : all_there);
		if (round % 2)
			tr_unpark(next.tr, 0, UINT64_MAX);
		for (uint64_t v = 0; v < 4 * CHUNK_HOT; v += 7)
			tr_locate(next.tr, next.tr->arenas->va + v, 0, &w);
		translate(&next, 1);
		tr_invalidate(next.tr, next.base, next.text->size / 4);
		for (uint64_t page = next.base >> 12, n = 0; n < next.text->size >> 12; n++)
			tr_changed(next.tr, page + n, random_of(n) & random_of(page));
		tr_reclaim(next.tr, tr_epoch(next.tr));
		tr_flush(next.tr);
		tr_reclaim(next.tr, tr_epoch(next.tr));
		end(&next);
		free_arenas();
	}
	printf("(%u read, %u refused) ", read, refused);
	CU_ASSERT(read > 300 && refused > 300);
	end(&left);
	free(bytes);
	free(forged);
}

int main(void)
{
	if (!find_texts() || CU_initialize_registry() != CUE_SUCCESS)
		return 99;
	CU_pSuite s = CU_add_suite("what was translated, in a file", NULL, NULL);
	CU_add_test(s, "as it was", test_same);
	CU_add_test(s, "libraries that come later", test_parked);
	CU_add_test(s, "nothing", test_empty);
	CU_add_test(s, "a damaged file", test_damage);
	CU_add_test(s, "a forged file", test_forged);
	CU_basic_set_mode(CU_BRM_VERBOSE);
	CU_basic_run_tests();
	unsigned failed = CU_get_number_of_failures();
	CU_cleanup_registry();
	return failed ? 1 : 0;
}
