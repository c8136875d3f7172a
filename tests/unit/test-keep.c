/*
 * Translations made again at another address (translator/translate-keep.c) are what translating
 * there gives, byte by byte: of the code of all libraries that this process has, from random places
 * on.
 */
#include "tests/lib/keep-world.h"

#include <CUnit/Basic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Facts that threads do not know of, in every other round. */
static uint64_t asked_for(unsigned round)
{
	return round / 2 % 2 ? 1 + random_of(round) % 1000000 : 0;
}

static void test_same(void)
{
	uint64_t room = 1 << 30, again = 0, anew = 0;
	for (unsigned round = 0; round < ROUNDS; round++) {
		changes = round % 3 == 1;
		const struct text *text = &texts[round % n_texts];
		struct tr_kept *k = tr_kept_new(&room);
		uint64_t facts = asked_for(round);
		struct world first = { .text = text, .base = THERE, .kept = k, .facts = facts };
		struct world second = { .text = text, .base = THERE + 0x31234000, .kept = k };
		struct world plain = { .text = text, .base = THERE + 0x31234000 };
		second.facts = plain.facts = facts * 1000;
		begin(&first, round);
		begin(&second, round);
		begin(&plain, round);
		compare(&second, &plain);
		CU_ASSERT(made_again(&first) == 0);
		again += made_again(&second);
		anew += second.tr->stats.fragments;
		end(&first);
		end(&second);
		end(&plain);
		tr_kept_free(k);
	}
	CU_ASSERT(room == 1 << 30);
	CU_ASSERT(anew < again / 100);
	printf("(%llu fragments, %llu others) ", (unsigned long long)again,
	       (unsigned long long)anew);
}

/* What asks for facts and what does not are kept beside each other, and each is good for itself
 * only. What asks for more than fits is not kept. */
static void test_asks(void)
{
	static const uint64_t facts[] = { 0, 7, 0, UINT32_MAX, UINT32_MAX + 1ULL };
	static const bool again[] = { false, false, true, true, false };
	uint64_t room = 1 << 30, kept = 0, anew = 0;
	for (unsigned round = 0; round < 20; round++) {
		struct tr_kept *k = tr_kept_new(&room);
		for (unsigned i = 0; i < sizeof(again); i++) {
			struct world w = { .text = &texts[0],
					   .base = THERE,
					   .kept = k,
					   .bales = round & 1,
					   .facts = facts[i] };
			uint32_t had = k->n;
			changes = round & 2;
			begin(&w, round);
			CU_ASSERT(again[i] ? made_again(&w) > 0 : made_again(&w) == 0);
			CU_ASSERT(again[i] || w.tr->stats.fragments > 0);
			CU_ASSERT(i < 2 ? k->n > had : i < 4 || k->n == had);
			kept += made_again(&w);
			anew += again[i] ? w.tr->stats.fragments : 0;
			end(&w);
		}
		tr_kept_free(k);
	}
	changes = false;
	CU_ASSERT(room == 1 << 30 && anew < kept / 100);
	printf("(%llu fragments, %llu others) ", (unsigned long long)kept,
	       (unsigned long long)anew);
}

/* Whether the fragment asks for so many facts, or for none. */
static bool asks_for(const struct world *w, const struct tr_frag *f, uint32_t facts)
{
	const uint8_t *code = w->arena + (f->entry - w->tr->arenas->va);
	uint8_t load[5] = { 0xb9 };
	memcpy(load + 1, &facts, 4);
	return f->checks == (facts || changes) && (!facts || memmem(code, 64, load, sizeof(load)));
}

/* Threads do not know of the code in every other page. */
static void test_odd(void)
{
	uint64_t room = 1 << 30, asked = 0, more = 0, others = 0, anew[3] = { 0 }, kept = 0;
	for (unsigned round = 0; round < 60; round++) {
		struct tr_kept *k = tr_kept_new(&room);
		for (unsigned again = 0; again < 3; again++) {
			struct world w = { .text = &texts[round % n_texts],
					   .base = THERE,
					   .kept = k,
					   .bales = again == 2,
					   .facts = 0x12345670 + again,
					   .odd = true };
			changes = round & 1;
			begin(&w, round);
			const struct tr_chunk *c = &w.tr->arenas->chunks[0];
			CU_ASSERT(again || made_again(&w) == 0);
			kept += made_again(&w);
			anew[again] += w.tr->stats.fragments;
			for (uint32_t i = 0; i < c->n; i++) {
				const struct tr_frag *f = c->frags[i];
				bool asks = asks_for(&w, f, (uint32_t)w.facts);
				/* it may have a byte in the next page, which its first has not */
				bool odd = f->pc >> 12 & 1;
				asked += odd && asks;
				others += !odd && asks_for(&w, f, 0);
				more += !odd && asks;
				CU_ASSERT(odd ? asks : asks || asks_for(&w, f, 0));
			}
			end(&w);
		}
		tr_kept_free(k);
	}
	changes = false;
	CU_ASSERT(room == 1 << 30 && asked > 1000 && others > 1000 && more < others / 10);
	/* where a bale is refused, what is made one by one agrees with others about lags less */
	CU_ASSERT(anew[1] < kept / 100 && anew[2] < kept / 20);
	printf("(%llu, %llu not, %llu more; %llu and %llu others) ", (unsigned long long)asked,
	       (unsigned long long)others, (unsigned long long)more, (unsigned long long)anew[1],
	       (unsigned long long)anew[2]);
}

/* What was kept where lags had come to be others is replaced, and then good for what needs it
 * again. */
static void test_lags(void)
{
	uint64_t room = 1 << 30, once = 0, twice = 0;
	struct tr_kept *k = tr_kept_new(&room);
	for (unsigned pass = 0; pass < 3; pass++)
		for (unsigned round = 0; round < 60; round++) {
			struct world w = { .text = &texts[0], .base = THERE, .kept = k };
			struct world v = { .text = &texts[0], .base = THERE + 0x1000, .kept = k };
			begin(&w, round);
			begin(&v, round);
			once += pass ? w.tr->stats.fragments : 0;
			twice += pass ? v.tr->stats.fragments : 0;
			end(&w);
			end(&v);
		}
	CU_ASSERT(twice < once);
	printf("(%llu, then %llu) ", (unsigned long long)once, (unsigned long long)twice);
	tr_kept_free(k);
}

/* ---- in bales ------------------------------------------------------------------------------ */

/* All that was kept is made again in bales, and then, in the same order, one by one. */
static void bales_at(uint64_t base, const struct text *text, struct tr_kept *k, bool far,
		     uint64_t facts)
{
	struct world in_bales = { .text = text, .base = base, .kept = k, .bales = true };
	struct world singly = { .text = text, .base = base, .kept = k };
	in_bales.facts = singly.facts = facts;
	begin_with_nothing(&in_bales);
	begin_with_nothing(&singly);
	for (uint64_t i = 0; far && i < 77; i++) { /* so that the first bale has other numbers */
		tr_number_new(in_bales.tr, TR_STOP_LINK, 0, 0);
		tr_number_new(singly.tr, TR_STOP_LINK, 0, 0);
	}
	for (uint32_t i = 0; i < k->n; i++) {
		uint64_t pc = base + (k->made[i]->offset & ~KEPT_ASKS);
		struct tr_frag *f = tr_find(in_bales.tr, pc);
		if (!f)
			f = tr_translate(in_bales.tr->build, in_bales.tr->arenas, pc);
		CU_ASSERT_FATAL(f != NULL);
		CU_ASSERT(!k->made[i]->bale || k->made[i]->bale >> 31 || f->indirect == !!f->stub);
		if (f->stub)
			tr_add_indirect(in_bales.tr, f);
	}
	const struct tr_chunk *c = &in_bales.tr->arenas->chunks[0];
	for (uint32_t i = 0; i < c->n; i++) {
		struct tr_frag *f =
			tr_translate(singly.tr->build, singly.tr->arenas, c->frags[i]->pc);
		CU_ASSERT_FATAL(f != NULL);
		if (f->stub)
			tr_add_indirect(singly.tr, f);
	}
	CU_ASSERT(made_again(&in_bales) == c->n && made_again(&singly) == c->n);
	compare(&in_bales, &singly);
	CU_ASSERT(in_bales.tr->n_keys == singly.tr->n_keys);
	/* and their links are taken back as others are */
	tr_invalidate(in_bales.tr, base, text->size / 2);
	tr_invalidate(singly.tr, base, text->size / 2);
	compare(&in_bales, &singly);
	tr_reclaim(in_bales.tr, tr_epoch(in_bales.tr));
	tr_reclaim(singly.tr, tr_epoch(singly.tr));
	compare(&in_bales, &singly);
	tr_flush(in_bales.tr);
	tr_flush(singly.tr);
	compare(&in_bales, &singly);
	end(&in_bales);
	end(&singly);
}

static void test_bales(void)
{
	uint64_t room = 1 << 30, bales = 0, copied = 0;
	for (unsigned round = 0; round < ROUNDS; round++) {
		changes = round % 3 == 1;
		const struct text *text = &texts[round % n_texts];
		struct tr_kept *k = tr_kept_new(&room);
		uint64_t facts = asked_for(round);
		struct world first = { .text = text, .base = THERE, .kept = k, .facts = facts };
		begin(&first, round);
		bales_at(THERE + 0x31234000, text, k, false, facts);
		/* the code is copied when it is wanted a second time, if there is room */
		uint64_t tied = room, none = round & 1 ? room : 0;
		room -= none;
		bales_at(THERE + 0x31234000, text, k, true, facts + !!facts);
		copied += tied - none - room;
		room += none;
		tied = room;
		bales_at(THERE, text, k, true, facts);
		CU_ASSERT(none || room == tied);
		bales += k->n_bales;
		end(&first);
		tr_kept_free(k);
	}
	CU_ASSERT(room == 1 << 30 && bales > ROUNDS / 2 && copied > bales / 2 * 1000);
	printf("(%llu) ", (unsigned long long)bales);
}

/* What is there already, and what others expect to have another lag, is in no bale's way. */
static void test_refused(void)
{
	uint64_t room = 1 << 30, alone = 0;
	struct tr_kept *k = tr_kept_new(&room);
	for (unsigned round = 0; round < 2 * ROUNDS; round++) {
		struct world w = { .text = &texts[0],
				   .base = round & 1 ? THERE : THERE + 0x5000,
				   .kept = k,
				   .bales = true };
		begin(&w, round / 2 % 40);
		const struct tr_chunk *c = &w.tr->arenas->chunks[0];
		alone += w.tr->stats.fragments;
		/* of a bale that was put some fragments go, and are wanted again */
		for (uint32_t i = 0; c->n && i < 3; i++)
			tr_invalidate(w.tr, c->frags[random_of(round + i) % c->n]->pc, 1);
		tr_reclaim(w.tr, tr_epoch(w.tr));
		translate(&w, round / 2 % 40);
		for (uint32_t i = 0; i < c->n; i++) /* each is there once, and agrees */
			CU_ASSERT(tr_find(w.tr, c->frags[i]->pc) == c->frags[i] &&
				  tr_lags_agree(w.tr, c->frags[i]));
		tr_flush(w.tr);
		tr_reclaim(w.tr, tr_epoch(w.tr));
		CU_ASSERT(c->n == 0);
		end(&w);
	}
	CU_ASSERT(alone > 0 && k->n_bales > 0);
	tr_kept_free(k);
	CU_ASSERT(room == 1 << 30);
}

static unsigned held(const struct tr_arena *a)
{
	unsigned n = 0;
	for (unsigned i = 0; i < sizeof(a->chunks) / sizeof(*a->chunks); i++)
		n += a->chunks[i].holders;
	return n;
}

/* An arena is full, and a fragment in it becomes the target of an indirect branch: the stub for
 * that lies in another one that has room, and nothing is given up but where none has. */
static void test_stub_elsewhere(void)
{
	struct world w = { .text = &texts[0], .base = THERE };
	unsigned stubs = 0;
	begin(&w, 1);
	struct tr_arena *full = w.tr->arenas;
	const struct tr_chunk *c = &full->chunks[0];
	uint8_t *arena = sparse(TR_ARENA_SIZE);
	full->n_free = 0;
	full->cold.p = full->cold.end;
	for (int room = 0; room < 2; room++) {
		for (uint32_t i = 0; i < c->n; i++) {
			struct tr_frag *f = c->frags[i];
			if (f->stub)
				continue;
			tr_add_indirect(w.tr, f);
			CU_ASSERT(w.tr->start_over == !room && !f->stub == !room);
			w.tr->start_over = false;
			if (!room)
				break;
			struct tr_arena *a = tr_arena_at(w.tr, f->stub);
			CU_ASSERT(a && a != full && f->stub_arena == a &&
				  tr_find(w.tr, f->pc) == f);
			stubs++;
		}
		if (!room)
			tr_add_arena(w.tr, full->va - TR_ARENA_SIZE, arena);
	}
	printf("(%u of them) ", stubs);
	CU_ASSERT(stubs > 0 && held(w.tr->arenas) == stubs);
	tr_flush(w.tr);
	tr_reclaim(w.tr, tr_epoch(w.tr));
	CU_ASSERT(held(w.tr->arenas) == 0 && held(full) == 0);
	end(&w);
	munmap(arena, TR_ARENA_SIZE);
}

/* Beside a program that runs only what was kept is made, as it would be otherwise; of all else
 * there is nothing, and nothing has been written. */
/* A checksum of the pages of an arena that have been touched, and where they are. (To look at all
 * of its 256 MB, most of which nobody has touched, takes minutes where a page fault is slow.) */
static uint64_t touched(const uint8_t *arena)
{
	static unsigned char there[TR_ARENA_SIZE / 4096];
	uint64_t sum = 0, word;
	CU_ASSERT_FATAL(mincore((void *)(uintptr_t)arena, TR_ARENA_SIZE, there) == 0);
	for (size_t i = 0; i < sizeof(there); i++)
		for (size_t at = 0; at < 4096 && there[i] & 1; at += sizeof(word)) {
			memcpy(&word, arena + i * 4096 + at, sizeof(word));
			sum = (sum ^ word ^ i) * 0x9e3779b97f4a7c15ULL;
			sum ^= sum >> 29;
		}
	return sum;
}

static void test_beside(void)
{
	uint64_t room = 1 << 30, made = 0, none = 0;
	for (unsigned round = 0; round < ROUNDS; round++) {
		changes = round % 3 == 1;
		const struct text *text = &texts[round % n_texts];
		struct tr_kept *k = tr_kept_new(&room), *empty = tr_kept_new(&room);
		struct world first = { .text = text, .base = THERE, .kept = k };
		struct world plain = { .text = text, .base = THERE + 0x5000 };
		struct world second = { .text = text, .base = THERE + 0x5000, .kept = k };
		struct world third = { .text = text, .base = THERE + 0x5000, .kept = empty };
		struct tr_frag *f;
		begin(&first, round);
		begin(&plain, round);
		second.bales = round & 1;
		begin_with_nothing(&second);
		begin_with_nothing(&third);
		uint64_t before = touched(third.arena), nobody = touched(second.arena);
		untold = true; /* the trace cannot be told while the program runs */
		for (uint32_t i = 0; i < plain.tr->arenas->chunks[0].n; i += 7)
			CU_ASSERT(tr_fragment_kept(second.tr,
						   plain.tr->arenas->chunks[0].frags[i]->pc,
						   &f) == TR_NATIVE);
		untold = false;
		CU_ASSERT(second.tr->stats.kept == 0 && touched(second.arena) == nobody);
		const struct tr_chunk *c = &plain.tr->arenas->chunks[0];
		for (uint32_t i = 0; i < c->n; i++) {
			uint64_t pc = c->frags[i]->pc;
			bool was_kept = tr_is_kept(second.tr, pc);
			enum tr_found found = tr_fragment_kept(second.tr, pc, &f);
			CU_ASSERT(!f == (found != TR_FOUND) && (was_kept || !f));
			CU_ASSERT(!f ||
				  (tr_find(second.tr, pc) == f && tr_lags_agree(second.tr, f)));
			made += f != NULL;
			none += !f;
			CU_ASSERT(tr_fragment_kept(third.tr, pc, &f) == TR_NATIVE && !f);
		}
		CU_ASSERT(second.tr->stats.fragments == 0 && third.tr->stats.kept == 0);
		CU_ASSERT(touched(third.arena) == before);
		end(&first);
		end(&plain);
		end(&second);
		end(&third);
		tr_kept_free(k);
		tr_kept_free(empty);
	}
	CU_ASSERT(room == 1 << 30 && made > 0 && none < made / 50);
	printf("(%llu, not %llu) ", (unsigned long long)made, (unsigned long long)none);
}

/* What is kept of a place is of the code that was there last. */
static void test_made_anew(void)
{
	static uint8_t bytes[8192];
	uint64_t room = 1 << 30, pc = THERE + 0x100, wrong = 0;
	struct text text = { bytes, sizeof(bytes) };
	struct tr_kept *k = tr_kept_new(&room);
	struct tr_frag *f;
	for (unsigned round = 0; round < 8; round++) {
		static const uint8_t code[] = { 0x48, 0x83, 0xc0, 0, 0xc3 }; /* add rax, N; ret */
		struct world first = { .text = &text, .base = THERE, .kept = k };
		struct world second = { .text = &text, .base = THERE, .kept = k };
		changes = round & 1;
		memcpy(bytes + 0x100, code, sizeof(code));
		bytes[0x103] = (uint8_t)(round / 2 + 1);
		begin_with_nothing(&first);
		begin_with_nothing(&second);
		CU_ASSERT(tr_fragment(first.tr, pc, &f) == TR_FOUND);
		uint64_t had = first.tr->stats.kept;
		CU_ASSERT(tr_fragment(second.tr, pc, &f) == TR_FOUND);
		wrong += second.tr->stats.kept != 1 || (round % 2 == 0 && had);
		end(&first);
		end(&second);
	}
	CU_ASSERT(wrong == 0);
	tr_kept_free(k);
}

/* A library that comes and goes takes no more numbers each time, although bales want them in rows.
 */
static void test_numbers(void)
{
	uint64_t room = 1 << 30;
	struct tr_kept *k = tr_kept_new(&room);
	struct world w = { .text = &texts[0], .base = THERE, .kept = k, .bales = true };
	uint32_t most = 0;
	begin_with_nothing(&w);
	for (unsigned round = 0; round < 30; round++) {
		translate(&w, round % 3);
		most = round == 5 ? w.tr->n_numbers : most;
		tr_invalidate(w.tr, w.base, w.text->size);
		tr_reclaim(w.tr, tr_epoch(w.tr));
	}
	CU_ASSERT(k->n_bales > 0 && w.tr->stats.kept > w.tr->stats.fragments);
	CU_ASSERT(most > 0 && w.tr->n_numbers <= most + most / 4);
	printf("(%u, at last %u) ", most, w.tr->n_numbers);
	end(&w);
	tr_kept_free(k);
}

/* From each the one that was made after it is found, over the ends of blocks. */
static void test_next(void)
{
	uint64_t room = 1 << 30;
	struct tr_kept *k = tr_kept_new(&room);
	for (unsigned round = 0; room > (1 << 30) - (5 << 20); round++) {
		struct world w = { .text = &texts[0], .base = THERE, .kept = k };
		begin(&w, round);
		end(&w);
	}
	for (uint32_t i = 0; i < k->n; i++)
		CU_ASSERT_FATAL(tr_kept_next(k, k->made[i]) ==
				(i + 1 < k->n ? k->made[i + 1] : NULL));
	tr_kept_free(k);
}

/* Not where an address has another size, not if a page is not what it was, not without room. */
static void test_not(void)
{
	uint64_t room = 1 << 30, little = 1 << 12;
	struct tr_kept *k = tr_kept_new(&room), *none = tr_kept_new(&little);
	struct world first = { .text = &texts[0], .base = THERE, .kept = k };
	struct world low = { .text = &texts[0], .base = 0x400000, .kept = k };
	struct world spoilt = { .text = &texts[0], .base = THERE + 0x1000, .kept = k };
	struct world full = { .text = &texts[0], .base = THERE, .kept = none };
	begin(&first, 0);
	begin(&low, 0);
	CU_ASSERT(made_again(&low) == 0);
	/* the page of its first fragment */
	const struct tr_chunk *c = &first.tr->arenas->chunks[0];
	spoilt.spoilt = (c->frags[0]->pc + 0x1000) >> 12;
	begin(&spoilt, 0);
	uint64_t depend = 0;
	c = &spoilt.tr->arenas->chunks[0];
	for (uint32_t i = 0; i < c->n; i++)
		for (uint32_t u = 0; u < c->frags[i]->n_uses; u++)
			depend += c->frags[i]->uses[u].page->page == spoilt.spoilt;
	CU_ASSERT(depend > 0 && spoilt.tr->stats.fragments >= depend);
	CU_ASSERT(made_again(&spoilt) > 0);
	CU_ASSERT(made_again(&spoilt) + spoilt.tr->stats.fragments == c->n);
	begin(&full, 0);
	CU_ASSERT(little < 1 << 12);
	end(&first);
	end(&low);
	end(&spoilt);
	end(&full);
	tr_kept_free(k);
	tr_kept_free(none);
	CU_ASSERT(little == 1 << 12);
}

/* How many fragments depend on lines that are not the same in both texts. */
static uint64_t changed(const struct world *w, const struct text *was)
{
	const struct tr_chunk *c = &w->tr->arenas->chunks[0];
	uint64_t n = 0;
	for (uint32_t i = 0; i < c->n; i++) {
		bool same = true;
		for (uint32_t u = 0; u < c->frags[i]->n_uses; u++)
			for (unsigned l = 0; l < 64; l++) {
				uint64_t at =
					(c->frags[i]->uses[u].page->page << 12) + l * 64 - w->base;
				if (c->frags[i]->uses[u].lines >> l & 1 && at + 64 <= was->size)
					same &= !memcmp(was->bytes + at, w->text->bytes + at, 64);
			}
		n += !same;
	}
	return n;
}

/* Code that is another by a byte here and there, wherever it comes from. */
static void test_other_code(void)
{
	uint64_t room = 1 << 30, again = 0, anew = 0;
	uint8_t *bytes = malloc(texts[0].size);
	CU_ASSERT_FATAL(bytes != NULL);
	memcpy(bytes, texts[0].bytes, texts[0].size);
	for (size_t i = 0; i < texts[0].size; i += 100 + random_of(i) % 300)
		bytes[i] ^= 1 << random_of(i + 1) % 8;
	struct text other = { bytes, texts[0].size };
	for (unsigned round = 0; round < 20; round++) {
		struct tr_kept *k = tr_kept_new(&room);
		struct world first = { .text = &texts[0], .base = THERE, .kept = k };
		struct world second = { .text = &other, .base = THERE + 0x1000, .kept = k };
		begin(&first, round);
		begin(&second, round);
		CU_ASSERT_FATAL(second.tr->arenas->current == 0);
		CU_ASSERT(second.tr->stats.fragments >= changed(&second, &texts[0]));
		again += made_again(&second);
		anew += second.tr->stats.fragments;
		end(&first);
		end(&second);
		tr_kept_free(k);
	}
	CU_ASSERT(again > 0 && anew > 0);
	free(bytes);
}

int main(void)
{
	if (!find_texts() || CU_initialize_registry() != CUE_SUCCESS)
		return 99;
	CU_pSuite s = CU_add_suite("kept translations", NULL, NULL);
	CU_add_test(s, "the same as translated there", test_same);
	CU_add_test(s, "what asks for facts", test_asks);
	CU_add_test(s, "in every other page", test_odd);
	CU_add_test(s, "others agree about lags", test_lags);
	CU_add_test(s, "in bales", test_bales);
	CU_add_test(s, "bales that are refused", test_refused);
	CU_add_test(s, "stubs in another arena", test_stub_elsewhere);
	CU_add_test(s, "beside a program that runs", test_beside);
	CU_add_test(s, "other code at the same place", test_made_anew);
	CU_add_test(s, "numbers of what comes and goes", test_numbers);
	CU_add_test(s, "one after the other", test_next);
	CU_add_test(s, "not where it would be another", test_not);
	CU_add_test(s, "other code", test_other_code);
	CU_basic_set_mode(CU_BRM_VERBOSE);
	CU_basic_run_tests();
	unsigned failed = CU_get_number_of_failures();
	CU_cleanup_registry();
	return failed ? 1 : 0;
}
