/*
 * Which fact of a process made what executable: the number of the last for each range. A fragment
 * that a thread may come to without having heard of it compares numbers (doc/code-cache.md). With
 * one number for all code that was each fragment of a program whose other threads sleep while one
 * compiles, and what compares cannot be kept for the next recording.
 */
#include "recorder/recorder.h"

#include "recorder/image.h"

#include <stdlib.h>
#include <string.h>

#define MOST 8192u /* ranges; more: all are forgotten, and the last number stands for all */

struct range {
	uint64_t start, end, fact;
};

struct rec_code_facts {
	uint64_t others; /* the number for what is in no range */
	size_t n, cap;
	struct range range[]; /* by address, none in another's */
};

/* The first that ends behind addr. */
static size_t first_behind(const struct rec_code_facts *f, uint64_t addr)
{
	size_t lo = 0, hi = f->n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		if (f->range[mid].end <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* Room for two more. */
static struct rec_code_facts *with_room(struct rec_code_facts *f)
{
	size_t n = f ? f->n : 0, cap = f ? f->cap : 0;

	if (f && n + 2 <= cap)
		return f;
	cap = 2 * cap + 16;
	f = realloc(f, sizeof(*f) + cap * sizeof(f->range[0]));
	DJ_ASSERT(f, "out of memory for what made code executable");
	if (!n && cap == 16)
		memset(f, 0, sizeof(*f));
	f->cap = cap;
	return f;
}

void rec_code_fact(struct rec_process *proc, uint64_t start, uint64_t end)
{
	struct rec_code_facts *f = proc->code_facts = with_room(proc->code_facts);
	struct range put[3];
	size_t n = 0, i, to;

	if (start >= end)
		return;
	if (f->n >= MOST) {
		f->n = 0;
		f->others = proc->n_facts;
		return;
	}
	i = first_behind(f, start);
	for (to = i; to < f->n && f->range[to].start < end;)
		to++;
	if (to > i && f->range[i].start < start)
		put[n++] = (struct range){ f->range[i].start, start, f->range[i].fact };
	put[n++] = (struct range){ start, end, proc->n_facts };
	if (to > i && f->range[to - 1].end > end)
		put[n++] = (struct range){ end, f->range[to - 1].end, f->range[to - 1].fact };
	memmove(f->range + i + n, f->range + to, (f->n - to) * sizeof(f->range[0]));
	memcpy(f->range + i, put, n * sizeof(put[0]));
	f->n += n - (to - i);
}

uint64_t rec_code_fact_of(const struct rec_process *proc, uint64_t page)
{
	const struct rec_code_facts *f = proc->code_facts;
	size_t i = f ? first_behind(f, page) : 0;

	if (!f)
		return 0;
	return i < f->n && f->range[i].start <= page ? f->range[i].fact : f->others;
}
