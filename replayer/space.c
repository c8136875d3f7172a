/*
 * What is mapped in a recorded process, and what its code has that files do not: see space.h.
 */
#include "replayer/space.h"

#include <stdlib.h>
#include <string.h>

#define MAPS_MAX 1000000u /* far beyond vm.max_map_count's default of 65530 */

struct rp_space *rp_space_new(void)
{
	struct rp_space *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->refs = 1;
	s->image_seq = DJ_SEQ_UNKNOWN;
	return s;
}

struct rp_space *rp_space_ref(struct rp_space *s)
{
	s->refs++;
	return s;
}

/* Pages of code are shared between threads of ours, too (starts.c). */
struct rp_space_code *rp_space_code_ref(struct rp_space_code *c)
{
	__atomic_add_fetch(&c->refs, 1, __ATOMIC_RELAXED);
	return c;
}

void rp_space_code_unref(struct rp_space_code *c)
{
	if (!__atomic_sub_fetch(&c->refs, 1, __ATOMIC_ACQ_REL))
		free(c);
}

void rp_space_unref(struct rp_space *s)
{
	if (!s || --s->refs)
		return;
	for (size_t i = 0; i < s->ncode; i++)
		rp_space_code_unref(s->code[i]);
	free(s->code);
	dj_mappings_clear(&s->maps);
	free(s);
}

/* Make *sp ours alone. */
static int unshare(struct rp_space **sp, struct dj_error *err)
{
	struct rp_space *s = *sp;

	if (s->refs == 1)
		return 0;
	struct rp_space *n = rp_space_new();
	if (!n)
		return dj_fail(err, 1, "out of memory");
	n->image_steps = s->image_steps;
	n->image_seq = s->image_seq;
	n->process = s->process;
	n->image = s->image;
	dj_mappings_copy(&n->maps, &s->maps);
	n->ncode = n->code_cap = s->ncode;
	n->code = malloc((s->ncode + 1) * sizeof(*n->code));
	if (!n->code) {
		n->ncode = 0;
		rp_space_unref(n);
		return dj_fail(err, 1, "out of memory");
	}
	for (size_t i = 0; i < s->ncode; i++)
		n->code[i] = rp_space_code_ref(s->code[i]);
	s->refs--;
	*sp = n;
	return 0;
}

const struct dj_mapping *rp_space_find(const struct rp_space *s, uint64_t addr)
{
	return dj_mappings_find(&s->maps, addr);
}

/* Check a range and get ready to change it. Lengths need not be whole pages in the file; the
 * kernel rounds up, so does this. */
static int begin_change(struct rp_space **sp, uint64_t addr, uint64_t length, uint64_t *end,
			struct dj_error *err)
{
	uint64_t len = (length + CODE_PAGE - 1) & ~(uint64_t)(CODE_PAGE - 1);

	if (addr % CODE_PAGE || len < length || addr + len < addr)
		return dj_fail(err, 2, "a mapping of 0x%llx bytes at 0x%llx makes no sense",
			       (unsigned long long)length, (unsigned long long)addr);
	if (dj_mappings_count(&(*sp)->maps) + 3 > MAPS_MAX)
		return dj_fail(err, 2, "more than %u mappings", MAPS_MAX);
	*end = addr + len;
	return unshare(sp, err);
}

size_t rp_space_code_at(const struct rp_space *s, uint64_t page)
{
	size_t lo = 0, hi = s->ncode;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		if (s->code[mid]->page < page)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static void code_drop(struct rp_space *s, uint64_t addr, uint64_t end)
{
	size_t i = rp_space_code_at(s, addr / CODE_PAGE), j = i;

	if (i == s->ncode)
		return;
	while (j < s->ncode && s->code[j]->page < end / CODE_PAGE)
		rp_space_code_unref(s->code[j++]);
	memmove(&s->code[i], &s->code[j], (s->ncode - j) * sizeof(*s->code));
	s->ncode -= j - i;
}

int rp_space_unmap(struct rp_space **s, uint64_t addr, uint64_t length, struct dj_error *err)
{
	uint64_t end;

	if (begin_change(s, addr, length, &end, err))
		return -1;
	dj_mappings_remove(&(*s)->maps, addr, end);
	code_drop(*s, addr, end);
	return 0;
}

int rp_space_map(struct rp_space **s, const struct dj_mapping *m, struct dj_error *err)
{
	struct dj_mapping whole = *m;

	if (m->end <= m->start)
		return dj_fail(err, 2, "an empty mapping at 0x%llx", (unsigned long long)m->start);
	if (begin_change(s, m->start, m->end - m->start, &whole.end, err))
		return -1;
	dj_mappings_put(&(*s)->maps, &whole);
	code_drop(*s, m->start, whole.end);
	return 0;
}

int rp_space_protect(struct rp_space **s, uint64_t addr, uint64_t length, uint32_t prot,
		     struct dj_error *err)
{
	uint64_t end;

	if (begin_change(s, addr, length, &end, err))
		return -1;
	dj_mappings_protect(&(*s)->maps, addr, end, prot);
	return 0;
}

/* The overlay page for `page`, made if need be and ours alone. */
static struct rp_space_code *code_page(struct rp_space *s, uint64_t page)
{
	size_t i = rp_space_code_at(s, page);
	struct rp_space_code *c, *old = NULL;

	if (i < s->ncode && s->code[i]->page == page) {
		old = s->code[i];
		if (__atomic_load_n(&old->refs, __ATOMIC_ACQUIRE) == 1)
			return old;
	}
	c = malloc(sizeof(*c));
	if (!c)
		return NULL;
	if (old) {
		c->page = page;
		c->refs = 1;
		memcpy(c->data, old->data, sizeof(c->data));
		memcpy(c->known, old->known, sizeof(c->known));
		rp_space_code_unref(old);
		s->code[i] = c;
		return c;
	}
	memset(c, 0, sizeof(*c));
	c->page = page;
	c->refs = 1;
	if (s->ncode >= s->code_cap) {
		size_t cap = s->code_cap * 2 + 16;
		struct rp_space_code **grown = realloc(s->code, cap * sizeof(*grown));
		if (!grown) {
			free(c);
			return NULL;
		}
		s->code = grown;
		s->code_cap = cap;
	}
	memmove(&s->code[i + 1], &s->code[i], (s->ncode - i) * sizeof(*s->code));
	s->code[i] = c;
	s->ncode++;
	return c;
}

int rp_space_code(struct rp_space **s, uint64_t addr, const uint8_t *bytes, size_t length,
		  struct dj_error *err)
{
	if (length > DJ_CODE_MAX || addr + length < addr)
		return dj_fail(err, 2, "%zu bytes of code at 0x%llx make no sense", length,
			       (unsigned long long)addr);
	if (unshare(s, err))
		return -1;
	for (size_t i = 0; i < length;) {
		struct rp_space_code *c = code_page(*s, (addr + i) / CODE_PAGE);
		if (!c)
			return dj_fail(err, 1, "out of memory");
		for (size_t at = (addr + i) % CODE_PAGE; at < CODE_PAGE && i < length; at++, i++) {
			c->data[at] = bytes[i];
			c->known[at / 64] |= 1ULL << at % 64;
		}
	}
	return 0;
}

int rp_space_clear(struct rp_space **s, uint64_t steps, struct dj_error *err)
{
	struct rp_space *n = rp_space_new();

	if (!n)
		return dj_fail(err, 1, "out of memory");
	n->image_steps = steps;
	n->process = (*s)->process;
	rp_space_unref(*s);
	*s = n;
	return 0;
}
