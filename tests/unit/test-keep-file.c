/*
 * Kept translations in files (translator/translate-keep-file.c): what comes out of them is what
 * went in; what is damaged, forged or about something else does no harm and is not used.
 */
#include "tests/lib/keep-world.h"

#include <CUnit/Basic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static FILE *file_of(const uint8_t *bytes, size_t size)
{
	FILE *f = tmpfile();
	CU_ASSERT_FATAL(f && (!size || fwrite(bytes, size, 1, f) == 1) && !fflush(f));
	return f;
}

static bool can_be_read(const uint8_t *bytes, size_t size, const uint8_t *id, struct tr_kept *to)
{
	FILE *f = file_of(bytes, size);
	bool good = tr_kept_read(to, fileno(f), size, id);
	fclose(f);
	return good;
}

/* What is in a file of all that is kept. */
static uint8_t *written(struct tr_kept *k, const uint8_t *id, size_t limit, size_t *size)
{
	char *bytes = NULL;
	FILE *f = open_memstream(&bytes, size);
	CU_ASSERT_FATAL(f && tr_kept_write(k, id, limit, f) && !fclose(f));
	return (uint8_t *)bytes;
}

static const uint8_t id[TR_KEPT_ID] = { 1, 2, 3 }, other[TR_KEPT_ID] = { 1, 2, 4 };

/* As the second of two recordings; `k` is empty. How many fragments are made again, how many made.
 */
static uint64_t from_file(const uint8_t *bytes, size_t size, struct tr_kept *k, uint64_t round,
			  uint64_t *made)
{
	struct world second = { .text = &texts[0], .base = THERE + 0x777000, .kept = k };
	CU_ASSERT_FATAL(can_be_read(bytes, size, id, k));
	begin(&second, round);
	uint64_t again = made_again(&second);
	*made = second.tr->stats.fragments;
	end(&second);
	return again;
}

static void test_file(void)
{
	uint64_t room = 1 << 30;
	size_t size, small;
	struct tr_kept *k = tr_kept_new(&room), *l = tr_kept_new(&room);
	struct world first = { .text = &texts[0], .base = THERE, .kept = k };
	struct world second = { .text = &texts[0], .base = THERE + 0x777000, .kept = l };
	struct world plain = { .text = &texts[0], .base = THERE + 0x777000 };
	begin(&first, 1);
	uint8_t *bytes = written(k, id, 1 << 30, &size);
	CU_ASSERT(tr_kept_new_ones(k) == (k->n > 64));
	/* a few of a hundred are worth writing the file anew; fewer are not */
	uint32_t n_new = k->n;
	k->n = 100;
	k->file.n = 3000;
	CU_ASSERT(tr_kept_new_ones(k));
	k->file.n = 4000;
	CU_ASSERT(!tr_kept_new_ones(k));
	k->n = n_new;
	k->file.n = 0;

	CU_ASSERT(!can_be_read(bytes, size, other, l));
	CU_ASSERT(!can_be_read(bytes, size - 1, id, l) && !can_be_read(bytes, 0, id, l));
	CU_ASSERT_FATAL(can_be_read(bytes, size, id, l));
	CU_ASSERT(!tr_kept_new_ones(l));
	begin(&second, 1);
	begin(&plain, 1);
	compare(&second, &plain);
	CU_ASSERT(made_again(&second) == first.tr->stats.fragments);

	/* what another place needs comes to it, and what fits into little */
	struct world third = { .text = &texts[0], .base = THERE, .kept = l };
	begin(&third, 2);
	uint64_t new = third.tr->stats.fragments, made;
	CU_ASSERT(new > 0);
	free(bytes);
	bytes = written(l, id, 1 << 30, &size);
	struct tr_kept *m = tr_kept_new(&room), *n = tr_kept_new(&room), *o = tr_kept_new(&room);
	uint64_t all = from_file(bytes, size, m, 1, &made);
	CU_ASSERT(all == first.tr->stats.fragments && made == 0);
	free(bytes);
	bytes = written(m, id, size / 2, &small);
	CU_ASSERT(small < size * 2 / 3);
	uint64_t again = from_file(bytes, small, n, 1, &made);
	CU_ASSERT(again > all / 4 && again + made >= all);
	/* other code is not taken from there */
	struct text changed_text = { bytes, small };
	struct world strange = { .text = &changed_text, .base = THERE, .kept = o };
	CU_ASSERT_FATAL(can_be_read(bytes, small, id, o));
	begin(&strange, 1);
	CU_ASSERT(made_again(&strange) == 0);
	end(&strange);
	free(bytes);
	end(&first);
	end(&second);
	end(&third);
	end(&plain);
	for (unsigned i = 0; i < 5; i++)
		tr_kept_free((struct tr_kept *[]){ k, l, m, n, o }[i]);
	CU_ASSERT(room == 1 << 30);
}

/* Whether the kernel has been asked for large pages there; so it has, if it knows none. */
static bool in_large_pages(const void *p)
{
	FILE *f = fopen("/proc/self/smaps", "r");
	unsigned long long from, to, at = (uintptr_t)p;
	bool here = false, large = access("/sys/kernel/mm/transparent_hugepage", F_OK) != 0;
	char line[512];
	CU_ASSERT_FATAL(f != NULL);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%llx-%llx ", &from, &to) == 2)
			here = at >= from && at < to;
		if (here && !strncmp(line, "VmFlags:", 8))
			large |= strstr(line, " hg") != NULL;
	}
	fclose(f);
	return large;
}

/* Where there is much, its memory is not taken page by page; and what has been given up is used
 * again. */
static void test_much(void)
{
	uint64_t room = 1 << 30, pc = THERE;
	struct tr_kept *k = tr_kept_new(&room), *l = tr_kept_new(&room);
	struct world w = { .text = &texts[0], .base = THERE, .kept = k };
	struct tr_frag *f;
	size_t size, slabs = 0;
	begin_with_nothing(&w);
	CU_ASSERT(!w.tr->slabs);
	for (unsigned round = 0; round < 2; round++) {
		for (pc = THERE; w.tr->n_blocks < 100 && pc < THERE + w.text->size; pc += 5)
			tr_fragment(w.tr, pc, &f);
		CU_ASSERT_FATAL(w.tr->slabs && w.tr->cap_numbers > 32768);
		CU_ASSERT(in_large_pages(w.tr->slabs) && in_large_pages(w.tr->numbers));
		size_t n = 0;
		for (const struct tr_slab *s = w.tr->slabs; s; s = s->next)
			n++;
		CU_ASSERT(n == slabs || !round);
		slabs = n;
		tr_flush(w.tr);
		tr_reclaim(w.tr, tr_epoch(w.tr));
	}
	end(&w);
	uint8_t *bytes = written(k, id, 1 << 30, &size);
	CU_ASSERT(size > TR_HUGE && can_be_read(bytes, size, id, l));
	CU_ASSERT(in_large_pages(l->file.bytes));
	free(bytes);
	tr_kept_free(k);
	tr_kept_free(l);
}

/* Damage in a file: what is made is what would be made without it. */
static void test_damage(void)
{
	uint64_t room = 1 << 30, made, fewer = 0;
	size_t size;
	struct tr_kept *k = tr_kept_new(&room);
	struct world first = { .text = &texts[0], .base = THERE, .kept = k };
	struct world plain = { .text = &texts[0], .base = THERE + 0x777000 };
	begin(&first, 1);
	begin(&plain, 1);
	uint8_t *bytes = written(k, id, 1 << 30, &size);
	for (unsigned round = 0; round < 60; round++) {
		struct tr_kept *l = tr_kept_new(&room);
		struct world second = { .text = &texts[0], .base = THERE + 0x777000, .kept = l };
		uint8_t *spoilt = malloc(size);
		CU_ASSERT_FATAL(spoilt != NULL);
		memcpy(spoilt, bytes, size);
		for (unsigned i = 0; i < 40; i++) {
			uint64_t r = random_of(round * 100 + i);
			size_t at = round < 10 ? r % 200 : round < 20 ? r % 20000 % size : r % size;
			spoilt[at] ^= 1 << (r >> 60 & 7);
		}
		(void)can_be_read(spoilt, round % 7 ? size : size / 2, id, l);
		begin(&second, 1);
		compare(&second, &plain);
		fewer += made_again(&second) < first.tr->stats.fragments;
		end(&second);
		tr_kept_free(l);
		free(spoilt);
	}
	CU_ASSERT(fewer > 50);
	struct tr_kept *l = tr_kept_new(&room);
	CU_ASSERT(from_file(bytes, size, l, 1, &made) == first.tr->stats.fragments && !made);
	tr_kept_free(l);
	free(bytes);
	end(&first);
	end(&plain);
	tr_kept_free(k);
}

/* Files that somebody has forged: any value in any entry, with the right checksum. What is made of
 * it is nobody's concern, but the translator does not come to harm by making and retiring it. */
static void test_forged(void)
{
	uint64_t room = 1 << 30, made, again = 0;
	size_t size;
	struct tr_kept *k = tr_kept_new(&room);
	struct world first = { .text = &texts[0], .base = THERE, .kept = k };
	begin(&first, 1);
	uint8_t *bytes = written(k, id, 1 << 30, &size), *forged = malloc(size);
	CU_ASSERT_FATAL(forged != NULL);
	for (unsigned round = 0; round < 300; round++) {
		memcpy(forged, bytes, size);
		size_t at = size;
		for (uint32_t i = 0; i < k->n; i++)
			at -= parts_of(k->made[i]).size;
		for (uint32_t i = 0; i < k->n; i++) {
			struct tr_kept_frag *f = (void *)(forged + at);
			size_t len = parts_of(k->made[i]).size;
			uint64_t r = random_of(round * 10000 + i);
			/* mostly what says how long something is */
			size_t where = r & 1 ? 32 + r / 2 % 32 : 8 + r / 2 % (len - 8);
			uint64_t value = random_of(r);
			if (where + 2 <= len && (r >> 32) % 3 == 0)
				memcpy((uint8_t *)f + where, &value, r >> 62 & 1 ? 2 : 1);
			f->sum = tr_kept_sum(f, len);
			at += len;
		}
		struct tr_kept *l = tr_kept_new(&room);
		struct world second = { .text = &texts[0],
					.base = THERE + 0x777000,
					.kept = l,
					.bales = round % 3 > 0 };
		CU_ASSERT_FATAL(can_be_read(forged, size, id, l));
		begin(&second, 1);
		again += made_again(&second);
		struct tr_where w;
		for (uint64_t v = 0; v < CHUNK_HOT; v += 7)
			tr_locate(second.tr, second.tr->arenas->va + v, 0, &w);
		tr_invalidate(second.tr, second.base, second.text->size / 2);
		tr_reclaim(second.tr, tr_epoch(second.tr));
		tr_flush(second.tr);
		tr_reclaim(second.tr, tr_epoch(second.tr));
		end(&second);
		tr_kept_free(l);
	}
	struct tr_kept *l = tr_kept_new(&room);
	CU_ASSERT(from_file(bytes, size, l, 1, &made) > 0);
	tr_kept_free(l);
	CU_ASSERT(again > 300);
	free(bytes);
	free(forged);
	end(&first);
	tr_kept_free(k);
}

/* Entries that a file has twice, one behind the other. */
static void test_twice(void)
{
	uint64_t room = 1 << 30, twice = 0;
	size_t size, len;
	struct tr_kept *k = tr_kept_new(&room), *l = tr_kept_new(&room);
	struct world first = { .text = &texts[0], .base = THERE, .kept = k };
	struct world second = {
		.text = &texts[0], .base = THERE + 0x777000, .kept = l, .bales = true
	};
	begin(&first, 1);
	for (unsigned round = 2; round < 60; round++)
		translate(&first, round);
	uint8_t *bytes = written(k, id, 1 << 30, &size);
	size_t at = size;
	for (uint32_t i = 0; i < k->n; i++)
		at -= parts_of(k->made[i]).size;
	for (uint32_t i = 0; i + 1 < k->n; i++, at += len) {
		struct tr_kept_frag *f = (void *)(bytes + at);
		size_t to = at;
		len = parts_of(k->made[i]).size;
		for (uint32_t j = i; j < k->n && j < i + 20 && i % 9 == 0; j++) {
			struct tr_kept_frag *g = (void *)(bytes + to);
			uint32_t number = g->bale;
			size_t size_of_it = parts_of(k->made[j]).size;
			to += size_of_it;
			if (j == i || size_of_it != len)
				continue;
			memcpy(g, f, len);
			g->bale = number;
			g->sum = tr_kept_sum(g, len);
			twice++;
			break;
		}
	}
	CU_ASSERT(twice > 10);
	CU_ASSERT_FATAL(can_be_read(bytes, size, id, l));
	begin(&second, 1);
	for (unsigned round = 2; round < 60; round++)
		translate(&second, round);
	printf("(%llu, %u, %u) ", (unsigned long long)twice, l->n_bales, k->n);
	twice = 0;
	for (unsigned i = 0; i < 1u << second.tr->hash_bits; i++)
		for (const struct tr_frag *f = second.tr->hash[i]; f; f = f->next)
			for (const struct tr_frag *g = f->next; g; g = g->next)
				twice += f->pc == g->pc;
	CU_ASSERT(!twice);
	free(bytes);
	end(&first);
	end(&second);
	tr_kept_free(k);
	tr_kept_free(l);
}

int main(void)
{
	if (!find_texts() || CU_initialize_registry() != CUE_SUCCESS)
		return 99;
	CU_pSuite s = CU_add_suite("kept translations in files", NULL, NULL);
	CU_add_test(s, "in a file", test_file);
	CU_add_test(s, "much of it", test_much);
	CU_add_test(s, "a damaged file", test_damage);
	CU_add_test(s, "a forged file", test_forged);
	CU_add_test(s, "entries that are there twice", test_twice);
	CU_basic_set_mode(CU_BRM_VERBOSE);
	CU_basic_run_tests();
	unsigned failed = CU_get_number_of_failures();
	CU_cleanup_registry();
	return failed ? 1 : 0;
}
