/*
 * A profile in which functions that were inlined have rows of their own, as they have frames of
 * their own in a backtrace. An instruction is of the innermost function that its code comes from;
 * what a function includes is all that its code executed, wherever that was put, and all that this
 * called. How often an inlined function was called nobody knows: it is no call any more.
 */
#include "analyses/profile.h"

#include <stdlib.h>
#include <string.h>

/* A function as it was inlined, anywhere in a module. */
struct inlined {
	struct ana_function fn;
	char *name;
	struct inlined *next;
};

#define HASH 4096u

struct inline_sums {
	struct ana_profile *p;
	struct ana_inlines *inlines;
	struct inlined *hash[HASH];
	uint64_t n_inlined;
	struct ana_sum *s;
	size_t n, cap;
	/* the functions on the path to a node: of depth i those from first[i] on */
	const struct ana_function **path;
	size_t *first;
	size_t path_cap, first_cap;
	bool failed;
};

static bool grow(void **array, size_t *cap, size_t need, size_t size)
{
	size_t n = *cap ? *cap : 256;

	while (n < need)
		n *= 2;
	if (n == *cap)
		return true;
	void *grown = reallocarray(*array, n, size);
	if (!grown)
		return false;
	*array = grown;
	*cap = n;
	return true;
}

static struct ana_sum *add(struct inline_sums *k, const struct ana_function *fn)
{
	if (!fn || !grow((void **)&k->s, &k->cap, k->n + 1, sizeof(*k->s))) {
		k->failed = true;
		return NULL;
	}
	k->s[k->n] = (struct ana_sum){ .fn = fn };
	return &k->s[k->n++];
}

/* The same for all places that it was inlined at. */
static const struct ana_function *inlined(struct inline_sums *k, int32_t module, const char *path,
					  const char *name)
{
	uint32_t h = (uint32_t)module;

	for (const char *c = name; *c; c++)
		h = h * 31 + (unsigned char)*c;
	struct inlined **at = &k->hash[h % HASH];
	while (*at && ((*at)->fn.code.module != module || strcmp((*at)->fn.symbol, name) != 0))
		at = &(*at)->next;
	if (*at)
		return &(*at)->fn;
	struct inlined *in = calloc(1, sizeof(*in));
	if (!in || !(in->name = malloc(strlen(name) + sizeof(" (inlined)")))) {
		free(in);
		return NULL;
	}
	/* no address: behind all that a file can have */
	sprintf(in->name, "%s (inlined)", name);
	in->fn = (struct ana_function){ .name = in->name,
					.symbol = strdup(name),
					.module = path,
					.code = { .module = module,
						  .offset = 1ULL << 63 | k->n_inlined++ } };
	if (!in->fn.symbol) {
		free(in->name);
		free(in);
		return NULL;
	}
	*at = in;
	return &in->fn;
}

/* The functions that code comes from, innermost first; the last is that of the symbol. */
static size_t functions_at(struct inline_sums *k, const struct replay_code *code,
			   const struct ana_function *fn[ANA_PLACES])
{
	const struct ana_function *outer = ana_function_of(k->p->job->functions, code);
	const char *names[ANA_PLACES];
	size_t n = 0, m = 0;

	if (code->module >= 0 && outer->name)
		m = ana_inlines_at(k->inlines, (size_t)code->module, code->offset,
				   outer->code.offset, outer->size, names);
	for (; n < m; n++) {
		fn[n] = inlined(k, code->module, outer->module, names[n]);
		if (!fn[n]) {
			k->failed = true;
			break;
		}
	}
	fn[n++] = outer;
	return n;
}

static bool among(const struct ana_function *const *fn, size_t n, const struct ana_function *one)
{
	for (size_t i = 0; i < n; i++)
		if (fn[i] == one)
			return true;
	return false;
}

/* A node's instructions are those of its function and of all below; of what the call stands in they
 * are, too. The function itself has had them from its caller's calls. */
static void add_node(void *ctx, const struct ana_node *node, unsigned depth)
{
	struct inline_sums *k = ctx;
	const struct ana_function *here[ANA_PLACES];
	size_t n = 0;

	if (!grow((void **)&k->first, &k->first_cap, depth + 2u, sizeof(*k->first)))
		k->failed = true;
	if (k->failed)
		return;
	size_t at = depth ? k->first[depth] : 0;
	if (depth && node->from.module >= 0) {
		n = functions_at(k, &node->from, here);
		n -= n > 0; /* the caller is on the path */
	}
	here[n++] = node->fn;
	if (!grow((void **)&k->path, &k->path_cap, at + n, sizeof(const struct ana_function *))) {
		k->failed = true;
		return;
	}
	for (size_t i = 0; i < n && !k->failed; i++) {
		struct ana_sum *s = add(k, here[i]);
		if (!s)
			return;
		if (i == n - 1)
			s->calls = node->calls;
		if (!among(k->path, at + i, here[i]))
			s->inclusive = node->total;
		k->path[at + i] = here[i];
	}
	k->first[depth + 1] = at + n;
}

/* What instructions of inlined functions executed themselves is in no node of theirs. */
static void add_instructions(struct inline_sums *k)
{
	for (size_t i = 0; i < k->p->count.n && !k->failed; i++) {
		const struct ana_item *it = &k->p->count.item[i];
		const struct ana_function *fn[ANA_PLACES];
		size_t n = functions_at(k, &it->a, fn);

		for (size_t j = 0; j < n && !k->failed; j++) {
			struct ana_sum *s = add(k, fn[j]);
			if (!s)
				return;
			s->self = j ? 0 : it->n[0];
			if (j + 1 < n && !among(fn, j, fn[j]))
				s->inclusive = it->n[0];
		}
	}
}

/* The rows outlive this: their names are given back with the process. */
struct ana_sum *ana_profile_inlined(struct ana_profile *p, size_t *n)
{
	struct inline_sums k = { .p = p };

	*n = 0;
	k.inlines = ana_inlines_new(ana_functions_symbols(p->job->functions));
	k.failed = !k.inlines;
	if (!k.failed) {
		ana_tree_walk(&p->tree, add_node, &k);
		add_instructions(&k);
	}
	ana_inlines_free(k.inlines);
	free(k.path);
	free(k.first);
	if (k.failed) {
		free(k.s);
		return NULL;
	}
	if (!k.s)
		k.s = calloc(1, sizeof(*k.s));
	*n = k.n;
	return k.s;
}
