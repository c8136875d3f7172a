/*
 * What is mapped in a recorded process, and what its code has that files do not: see space.h.
 *
 * Mappings are a sorted array (programs have tens to hundreds); changing a range first cuts
 * the mappings at its ends, so that every change speaks of whole mappings.
 */
#include "replayer/space.h"

#include <stdlib.h>
#include <string.h>

#define MAPS_MAX 1000000u /* far beyond vm.max_map_count's default of 65530 */

const char *rp_space_intern(struct rp_space_names *names, const char *text)
{
	if (!text || !*text)
		return "";
	/* searching is for the usual few; a trace with a flood of names only loses sharing */
	for (size_t i = names->n < 4096 ? names->n : 0; i-- > 0;)
		if (!strcmp(names->text[i], text))
			return names->text[i];
	if (names->n == names->cap) {
		size_t cap = names->cap ? names->cap * 2 : 32;
		char **grown = realloc(names->text, cap * sizeof(*grown));
		if (!grown)
			return "";
		names->text = grown;
		names->cap = cap;
	}
	char *copy = strdup(text);
	if (!copy)
		return "";
	names->text[names->n++] = copy;
	return copy;
}

void rp_space_names_free(struct rp_space_names *names)
{
	for (size_t i = 0; i < names->n; i++)
		free(names->text[i]);
	free(names->text);
	*names = (struct rp_space_names){ 0 };
}

struct rp_space *rp_space_new(void)
{
	struct rp_space *s = calloc(1, sizeof(*s));

	if (s)
		s->refs = 1;
	return s;
}

struct rp_space *rp_space_ref(struct rp_space *s)
{
	s->refs++;
	return s;
}

static void code_unref(struct rp_space_code *c)
{
	if (--c->refs == 0)
		free(c);
}

void rp_space_unref(struct rp_space *s)
{
	if (!s || --s->refs)
		return;
	for (size_t i = 0; i < s->ncode; i++)
		code_unref(s->code[i]);
	free(s->code);
	free(s->maps);
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
	n->process = s->process;
	n->image = s->image;
	n->nmaps = n->maps_cap = s->nmaps;
	n->ncode = n->code_cap = s->ncode;
	n->maps = malloc((s->nmaps + 1) * sizeof(*n->maps));
	n->code = malloc((s->ncode + 1) * sizeof(*n->code));
	if (!n->maps || !n->code) {
		n->ncode = 0;
		rp_space_unref(n);
		return dj_fail(err, 1, "out of memory");
	}
	if (s->nmaps)
		memcpy(n->maps, s->maps, s->nmaps * sizeof(*n->maps));
	for (size_t i = 0; i < s->ncode; i++) {
		n->code[i] = s->code[i];
		n->code[i]->refs++;
	}
	s->refs--;
	*sp = n;
	return 0;
}

/* Index of the first mapping that ends after addr. */
static size_t map_at(const struct rp_space *s, uint64_t addr)
{
	size_t lo = 0, hi = s->nmaps;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		if (s->maps[mid].end <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

const struct rp_space_map *rp_space_find(const struct rp_space *s, uint64_t addr)
{
	size_t i = map_at(s, addr);

	return i < s->nmaps && s->maps[i].start <= addr ? &s->maps[i] : NULL;
}

/* Room for `extra` more mappings. */
static int maps_reserve(struct rp_space *s, size_t extra, struct dj_error *err)
{
	if (s->nmaps + extra <= s->maps_cap)
		return 0;
	if (s->nmaps + extra > MAPS_MAX)
		return dj_fail(err, 2, "more than %u mappings", MAPS_MAX);
	size_t cap = s->maps_cap ? s->maps_cap * 2 : 64;
	if (cap < s->nmaps + extra)
		cap = s->nmaps + extra;
	struct rp_space_map *grown = realloc(s->maps, cap * sizeof(*grown));
	if (!grown)
		return dj_fail(err, 1, "out of memory");
	s->maps = grown;
	s->maps_cap = cap;
	return 0;
}

static void maps_insert(struct rp_space *s, size_t i, const struct rp_space_map *m)
{
	memmove(&s->maps[i + 1], &s->maps[i], (s->nmaps - i) * sizeof(*s->maps));
	s->maps[i] = *m;
	s->nmaps++;
}

/* Cut the mapping that spans `addr` in two there. Room must be reserved. */
static void cut(struct rp_space *s, uint64_t addr)
{
	size_t i = map_at(s, addr);

	if (i == s->nmaps || s->maps[i].start >= addr)
		return;
	struct rp_space_map right = s->maps[i];
	right.offset += addr - right.start;
	right.start = addr;
	s->maps[i].end = addr;
	maps_insert(s, i + 1, &right);
}

/* Check a range and make its ends mapping boundaries; [*first, *last) are the mappings in
 * it. Lengths need not be whole pages in the file; the kernel rounds up, so does this. */
static int isolate(struct rp_space **sp, uint64_t addr, uint64_t length, size_t *first,
		   size_t *last, uint64_t *end, struct dj_error *err)
{
	uint64_t len = (length + CODE_PAGE - 1) & ~(uint64_t)(CODE_PAGE - 1);

	if (addr % CODE_PAGE || len < length || addr + len < addr)
		return dj_fail(err, 2, "a mapping of 0x%llx bytes at 0x%llx makes no sense",
			       (unsigned long long)length, (unsigned long long)addr);
	if (unshare(sp, err) || maps_reserve(*sp, 3, err))
		return -1;
	*end = addr + len;
	cut(*sp, addr);
	cut(*sp, *end);
	*first = map_at(*sp, addr);
	*last = *first;
	while (*last < (*sp)->nmaps && (*sp)->maps[*last].start < *end)
		++*last;
	return 0;
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
		code_unref(s->code[j++]);
	memmove(&s->code[i], &s->code[j], (s->ncode - j) * sizeof(*s->code));
	s->ncode -= j - i;
}

static void maps_remove(struct rp_space *s, size_t first, size_t last)
{
	if (first == last)
		return;
	memmove(&s->maps[first], &s->maps[last], (s->nmaps - last) * sizeof(*s->maps));
	s->nmaps -= last - first;
}

int rp_space_unmap(struct rp_space **s, uint64_t addr, uint64_t length, struct dj_error *err)
{
	size_t first, last;
	uint64_t end;

	if (isolate(s, addr, length, &first, &last, &end, err))
		return -1;
	maps_remove(*s, first, last);
	code_drop(*s, addr, end);
	return 0;
}

/* Whether b goes on where a ends, in every respect. */
static bool continues(const struct rp_space_map *a, const struct rp_space_map *b)
{
	return a->end == b->start && a->prot == b->prot && a->flags == b->flags &&
	       a->module == b->module && a->initial == b->initial && a->moved == b->moved &&
	       a->name == b->name &&
	       (a->module < 0 || a->offset + (a->end - a->start) == b->offset);
}

/* Join the mappings around index i where they are one. */
static void join(struct rp_space *s, size_t i)
{
	if (i + 1 < s->nmaps && continues(&s->maps[i], &s->maps[i + 1])) {
		s->maps[i].end = s->maps[i + 1].end;
		maps_remove(s, i + 1, i + 2);
	}
	if (i > 0 && i < s->nmaps && continues(&s->maps[i - 1], &s->maps[i])) {
		s->maps[i - 1].end = s->maps[i].end;
		maps_remove(s, i, i + 1);
	}
}

int rp_space_map(struct rp_space **s, const struct rp_space_map *m, struct dj_error *err)
{
	size_t first, last;
	uint64_t end;
	struct rp_space_map whole = *m;

	if (m->end <= m->start)
		return dj_fail(err, 2, "an empty mapping at 0x%llx", (unsigned long long)m->start);
	if (isolate(s, m->start, m->end - m->start, &first, &last, &end, err))
		return -1;
	whole.end = end;
	maps_remove(*s, first, last);
	code_drop(*s, m->start, end);
	maps_insert(*s, first, &whole);
	join(*s, first);
	return 0;
}

int rp_space_protect(struct rp_space **s, uint64_t addr, uint64_t length, uint32_t prot,
		     struct dj_error *err)
{
	size_t first, last;
	uint64_t end;

	if (isolate(s, addr, length, &first, &last, &end, err))
		return -1;
	for (size_t i = first; i < last; i++)
		(*s)->maps[i].prot = prot;
	for (size_t i = last; i-- > first;)
		join(*s, i);
	return 0;
}

/* The overlay page for `page`, made if need be and ours alone. */
static struct rp_space_code *code_page(struct rp_space *s, uint64_t page)
{
	size_t i = rp_space_code_at(s, page);
	struct rp_space_code *c, *old = NULL;

	if (i < s->ncode && s->code[i]->page == page) {
		old = s->code[i];
		if (old->refs == 1)
			return old;
	}
	c = malloc(sizeof(*c));
	if (!c)
		return NULL;
	if (old) {
		*c = *old;
		c->refs = 1;
		old->refs--;
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
