/* What a profile adds up to: by function, source line, instruction (analyses/profile.h). */
#include "analyses/profile.h"

#include <stdlib.h>
#include <string.h>

void ana_line_text(const char *file, int line, char *buf, size_t size)
{
	if (file)
		snprintf(buf, size, "%s:%d", ana_base(file), line);
	else
		buf[0] = 0;
}

void ana_node_text(const struct ana_profile *p, const struct ana_node *n, char *buf, size_t size)
{
	char name[300];

	if (n->thread < 0) {
		ana_function_text(n->fn, buf, size);
		return;
	}
	const struct dj_thread_info *info = dj_trace_thread(p->job->t, (size_t)n->thread);
	snprintf(name, sizeof(name), "%s", info->name ? info->name : "");
	snprintf(buf, size, "thread %d%s%s%s", info->tid, *name ? " (" : "", name,
		 *name ? ")" : "");
}

static int by_key(const void *x, const void *y)
{
	const struct ana_sum *a = x, *b = y;
	int c;

	if (a->fn != b->fn) {
		c = ana_code_cmp(&a->fn->code, &b->fn->code);
		return c ? c : a->fn->name ? 1 : -1;
	}
	c = a->file && b->file ? strcmp(a->file, b->file) : !!a->file - !!b->file;
	return c ? c : a->line != b->line ? a->line - b->line : ana_code_cmp(&a->code, &b->code);
}

static int by_size(const void *x, const void *y)
{
	const struct ana_sum *a = x, *b = y;

	if (a->self != b->self)
		return a->self > b->self ? -1 : 1;
	if (a->inclusive != b->inclusive)
		return a->inclusive > b->inclusive ? -1 : 1;
	return by_key(x, y);
}

static size_t merge(struct ana_sum *s, size_t n)
{
	size_t kept = 0;

	qsort(s, n, sizeof(*s), by_key);
	for (size_t i = 0; i < n; i++) {
		if (kept && !by_key(&s[kept - 1], &s[i])) {
			s[kept - 1].self += s[i].self;
			s[kept - 1].inclusive += s[i].inclusive;
			s[kept - 1].calls += s[i].calls;
		} else {
			s[kept++] = s[i];
		}
	}
	return kept;
}

/* Nodes as sums; `inclusive` only of those that have none of their own function above. */
struct nodes {
	struct ana_sum *s;
	size_t n;
	struct ana_path path;
	bool failed;
};

static void add_node(void *ctx, const struct ana_node *node, unsigned depth)
{
	struct nodes *k = ctx;
	struct ana_sum s = { .fn = node->fn, .calls = node->calls };
	bool again = false;

	if (!ana_path_put(&k->path, node, depth)) {
		k->failed = true;
		return;
	}
	for (unsigned i = 0; i < depth && !again; i++)
		again = k->path.node[i]->fn == node->fn;
	if (!again)
		s.inclusive = node->total;
	k->s[k->n++] = s;
}

static bool add_nodes(struct ana_profile *p, struct ana_sum *s, size_t *n)
{
	struct nodes k = { .s = s, .n = *n };

	ana_tree_walk(&p->tree, add_node, &k);
	free(k.path.node);
	*n = k.n;
	return !k.failed;
}

/* A row for each instruction, and by function for each node. */
static struct ana_sum *parts(struct ana_profile *p, enum ana_by by, size_t *n)
{
	struct ana_symbols *symbols = ana_functions_symbols(p->job->functions);
	struct ana_sum *s = calloc(p->count.n + p->tree.n + 1, sizeof(*s));

	*n = 0;
	if (!s)
		return NULL;
	for (size_t i = 0; i < p->count.n; i++) {
		const struct ana_item *it = &p->count.item[i];
		struct ana_sum *sum = &s[(*n)++];
		sum->fn = ana_function_of(p->job->functions, &it->a);
		sum->self = it->n[0];
		if (by == ANA_BY_INSTRUCTION)
			sum->code = it->a;
		if (by != ANA_BY_FUNCTION && it->a.module >= 0 &&
		    !ana_symbols_line(symbols, (size_t)it->a.module, it->a.offset, &sum->file,
				      &sum->line))
			sum->file = NULL;
	}
	if (by == ANA_BY_FUNCTION && !add_nodes(p, s, n)) {
		free(s);
		return NULL;
	}
	return s;
}

struct ana_sum *ana_profile_sums(struct ana_profile *p, enum ana_by by, size_t *n)
{
	struct ana_sum *s = by == ANA_BY_INLINED ? ana_profile_inlined(p, n) : parts(p, by, n);

	if (!s)
		return NULL;
	*n = merge(s, *n);
	/* code that was entered by no call is in nobody's path of its own */
	for (size_t i = 0; i < *n; i++)
		if (s[i].inclusive < s[i].self)
			s[i].inclusive = s[i].self;
	qsort(s, *n, sizeof(*s), by_size);
	return s;
}
