/*
 * Which fact made what executable (recorder/code-facts.c) against an array with a number for each
 * page: ranges at random, which begin and end in others, contain them and are the same again.
 * usage: test-code-facts [SEED]
 */
#include "recorder/code-facts.c"

#include "tests/lib/random.h"

#include <stdio.h>

#define PAGES 600u
#define AT    0x7f0000000000

static uint64_t want[PAGES];

/* Which page has another number than it should; PAGES: none. */
static unsigned wrong(const struct rec_process *proc)
{
	unsigned i = 0;

	while (i < PAGES && rec_code_fact_of(proc, AT + i * 4096ULL) == want[i])
		i++;
	return i;
}

static bool one(uint64_t seed)
{
	static struct rec_process proc;

	memset(want, 0, sizeof(want));
	free(proc.code_facts);
	proc.code_facts = NULL;
	for (proc.n_facts = 1; proc.n_facts < 400; proc.n_facts++) {
		unsigned from = (unsigned)(random_next(&seed) >> 33) % PAGES,
			 n = (unsigned)(random_next(&seed) >> 33) % (from % 3 ? 4 : 60);
		n = from + n > PAGES ? PAGES - from : n;
		rec_code_fact(&proc, AT + from * 4096ULL, AT + (from + n) * 4096ULL);
		for (unsigned i = from; i < from + n; i++)
			want[i] = proc.n_facts;
		if (wrong(&proc) < PAGES) {
			printf("FAIL: page %u has %llu, not %llu, after fact %llu\n", wrong(&proc),
			       (unsigned long long)rec_code_fact_of(&proc,
								    AT + wrong(&proc) * 4096ULL),
			       (unsigned long long)want[wrong(&proc)],
			       (unsigned long long)proc.n_facts);
			return false;
		}
	}
	return true;
}

/* More ranges than there is room for: what is nowhere has the number of the last. */
static bool many(void)
{
	struct rec_process proc = { .n_facts = 0 };
	bool good;

	for (unsigned i = 0; i <= MOST; i++) {
		proc.n_facts++;
		rec_code_fact(&proc, AT + 2 * i * 4096ULL, AT + (2 * i + 1) * 4096ULL);
	}
	good = rec_code_fact_of(&proc, AT) == MOST + 1 &&
	       rec_code_fact_of(&proc, AT + 4096) == MOST + 1;
	if (!good)
		printf("FAIL: where there are too many a page has another number than the last\n");
	free(proc.code_facts);
	return good;
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;

	for (unsigned i = 0; i < 200; i++)
		if (!one(seed + i)) {
			printf("with seed %llu\n", (unsigned long long)(seed + i));
			return 1;
		}
	return !many();
}
