/* The paths of calls (analyses/calltree.h). */
#include "analyses/calltree.h"
#include "analyses/analysis.h"
#include "analyses/tally.h"
#include "format/scatter.h"

#include <stdlib.h>
#include <string.h>

/* ---- nodes ---- */

/* Room for another node; 0: none. */
static uint32_t new_node(struct ana_tree *t)
{
	if (t->n == t->cap) {
		uint32_t cap = t->cap ? t->cap * 2 : 64;
		struct ana_node *grown = realloc(t->node, cap * sizeof(*grown));
		if (!grown) {
			t->failed = true;
			return 0;
		}
		t->node = grown;
		t->cap = cap;
	}
	t->node[t->n] = (struct ana_node){ .thread = -1 };
	return t->n++;
}

static void hash_in(struct ana_tree *t, uint32_t i, uint64_t h)
{
	uint32_t at = (uint32_t)dj_scatter(h, t->hash_size);

	while (t->hash[at])
		at = (at + 1) & (t->hash_size - 1);
	t->hash[at] = i;
}

static uint64_t place_hash(const struct ana_tree *t, uint32_t i);

static bool grow_hash(struct ana_tree *t)
{
	uint32_t size = t->hash_size ? t->hash_size * 2 : 256;
	uint32_t *hash = calloc(size, sizeof(*hash));

	if (!hash) {
		t->failed = true;
		return false;
	}
	free(t->hash);
	t->hash = hash;
	t->hash_size = size;
	for (uint32_t i = 1; i < t->n; i++)
		hash_in(t, i, place_hash(t, i));
	return true;
}

/* ---- a thread's, by addresses ---- */

/* Whose table of children is one line of memory for each: this is looked up at every call. */
static uint32_t child_slot(const struct ana_grower *g, uint32_t parent, uint64_t from,
			   uint64_t entry)
{
	uint64_t h = dj_scatter_mix(dj_scatter_mix(parent, from), entry);

	return (uint32_t)dj_scatter(h, g->child_size);
}

static struct ana_child *child_place(struct ana_grower *g, uint32_t parent, uint64_t from,
				     uint64_t entry)
{
	struct ana_child *c;

	for (uint32_t at = child_slot(g, parent, from, entry);;
	     at = (at + 1) & (g->child_size - 1)) {
		c = &g->child[at];
		if (!c->node || (c->parent == parent && c->from == from && c->entry == entry))
			return c;
	}
}

static bool grow_children(struct ana_grower *g)
{
	uint32_t size = g->child_size;
	struct ana_child *old = g->child, *grown = calloc(2 * (size_t)size, sizeof(*grown));

	if (!grown)
		return false;
	g->child = grown;
	g->child_size = 2 * size;
	for (uint32_t i = 0; i < size; i++)
		if (old[i].node)
			*child_place(g, old[i].parent, old[i].from, old[i].entry) = old[i];
	free(old);
	return true;
}

static uint32_t make_child(struct ana_grower *g, struct replay_run *run, uint32_t parent,
			   uint64_t from, uint64_t entry, bool under)
{
	struct ana_tree *t = &g->tree;

	if (2 * t->n >= g->child_size && !grow_children(g)) {
		t->failed = true;
		return 0;
	}
	uint32_t i = t->n < ANA_TREE_NODES ? new_node(t) : 0;
	if (!i)
		return 0;
	t->node[i].parent = parent;
	replay_run_code(run, from, &t->node[i].from);
	replay_run_code(run, entry, &t->node[i].entry);
	uint64_t addr = entry;
	if (under) { /* returned into: what counts is the function */
		uint64_t offset = t->node[i].entry.offset;
		replay_run_lock(run);
		t->node[i].entry = ana_function_of(g->functions, &t->node[i].entry)->code;
		replay_run_unlock(run);
		addr -= offset - t->node[i].entry.offset;
	}
	t->node[i].watched = g->watched && ana_ranges_have(g->watched, &t->node[i].entry, addr);
	*child_place(g, parent, from, entry) =
		(struct ana_child){ .from = from, .entry = entry, .parent = parent, .node = i };
	return i;
}

static uint32_t child_of(struct ana_grower *g, struct replay_run *run, uint32_t parent,
			 uint64_t from, uint64_t entry, bool under)
{
	uint32_t i = child_place(g, parent, from, entry)->node;

	if (!i)
		i = make_child(g, run, parent, from, entry, under);
	if (!i) {
		g->tree.lost++;
		return parent;
	}
	return i;
}

void ana_grower_snapshots(struct ana_grower *g, struct ana_when *when)
{
	g->when = when;
	g->counted = ana_when_samples(when, g->last, false);
}

static void account_snapshots(struct ana_grower *g, uint64_t steps, bool end)
{
	uint64_t n = ana_when_samples(g->when, steps, end);

	if (n > g->counted) {
		g->tree.node[g->now].self += n - g->counted;
		g->counted = n;
	}
}

/* Count up to here. */
static void count_to(struct ana_grower *g, uint64_t steps)
{
	if (g->when)
		account_snapshots(g, steps, false);
	else
		g->tree.node[g->now].self +=
			g->every ? steps / g->every - g->last / g->every : steps - g->last;
	g->last = steps;
}

static uint32_t enter(void *ctx, struct replay_run *run, const struct ana_call *call)
{
	struct ana_grower *g = ctx;
	bool under = call->kind == ANA_CALL_UNDER;
	uint32_t i;

	count_to(g, call->steps);
	/* what is returned into lies below nothing */
	i = under ? child_of(g, run, 0, 0, call->entry, true)
		  : child_of(g, run, g->now, call->from, call->entry, false);
	g->tree.node[i].calls += !under;
	if (!under)
		g->now = i;
	return i;
}

static void top(void *ctx, uint32_t user, uint64_t steps)
{
	struct ana_grower *g = ctx;

	count_to(g, steps);
	g->now = user;
}

struct ana_grower *ana_grower_new(const struct ana_stack_rules *rules, struct replay_run *run)
{
	struct ana_grower *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->functions = rules->functions;
	g->rules = *rules;
	g->last = replay_run_steps(run);
	g->s.stack =
		ana_stack_new(&g->rules, run,
			      &(struct ana_stack_watcher){ .ctx = g, .enter = enter, .top = top });
	new_node(&g->tree);
	g->child_size = 256;
	g->child = calloc(g->child_size, sizeof(*g->child));
	if (!g->s.stack || g->tree.failed || !g->child) {
		ana_stack_free(g->s.stack);
		free(g->child);
		free(g->tree.node);
		free(g);
		return NULL;
	}
	replay_run_code(run, replay_run_rip(run), &g->tree.node[0].entry);
	return g;
}

/* ---- all threads', by places ---- */

static uint64_t code_hash(uint64_t h, const struct replay_code *c)
{
	h = dj_scatter_mix(h, c->offset);
	return dj_scatter_mix(h, (uint64_t)(uint32_t)c->module << 32 | c->process);
}

static uint64_t place_hash(const struct ana_tree *t, uint32_t i)
{
	const struct ana_node *n = &t->node[i];

	uint64_t h = dj_scatter_mix((uint64_t)(uint32_t)n->thread << 32, n->parent);

	return code_hash(code_hash(h, &n->from), &n->entry);
}

static uint32_t add_node(struct ana_tree *t, const struct ana_node *like)
{
	if (!t->n)
		new_node(t);
	if (2 * t->n >= t->hash_size && !grow_hash(t))
		return 0;
	uint32_t i = new_node(t);
	if (!i)
		return 0;
	t->node[i] = *like;
	t->node[i].self = t->node[i].calls = 0;
	uint32_t at = (uint32_t)dj_scatter(place_hash(t, i), t->hash_size), k;
	for (; (k = t->hash[at]); at = (at + 1) & (t->hash_size - 1))
		if (t->node[k].parent == like->parent && t->node[k].thread == like->thread &&
		    t->node[k].watched == like->watched &&
		    !ana_code_cmp(&t->node[k].from, &like->from) &&
		    !ana_code_cmp(&t->node[k].entry, &like->entry)) {
			t->n--;
			return k;
		}
	t->hash[at] = i;
	return i;
}

void ana_grower_end(struct ana_grower *g, struct replay_run *run, struct ana_tree *into)
{
	uint32_t *map = calloc(g->tree.n, sizeof(*map));

	count_to(g, replay_run_steps(run));
	if (g->when && replay_run_steps(run) == replay_run_info(run)->last_steps)
		account_snapshots(g, g->last, true);
	ana_when_free(g->when);
	into->failed |= g->tree.failed || !map;
	into->lost += g->tree.lost;
	for (uint32_t i = 0; map && i < g->tree.n; i++) {
		struct ana_node like = g->tree.node[i];
		like.parent = i ? map[like.parent] : 0;
		like.thread = i ? -1 : (int32_t)replay_run_thread(run);
		uint32_t k = into->n < 2 * ANA_TREE_NODES || !i ? add_node(into, &like) : 0;
		if (!k) { /* beyond the limit for all threads */
			k = like.parent;
			into->lost += like.calls;
		}
		map[i] = k;
		if (!into->n)
			break;
		into->node[k].self += like.self;
		into->node[k].calls += like.calls;
	}
	free(map);
	free(g->child);
	ana_stack_free(g->s.stack);
	ana_tree_free(&g->tree);
	free(g);
}

/* By total, the largest first; threads by number. */
static int by_total(const void *x, const void *y, void *ctx)
{
	const struct ana_tree *t = ctx;
	const struct ana_node *a = &t->node[*(const uint32_t *)x];
	const struct ana_node *b = &t->node[*(const uint32_t *)y];

	if (a->thread != b->thread)
		return a->thread < b->thread ? -1 : 1;
	if (a->total != b->total)
		return a->total > b->total ? -1 : 1;
	int c = ana_code_cmp(&a->entry, &b->entry);
	return c ? c : ana_code_cmp(&a->from, &b->from);
}

int ana_tree_finish(struct ana_tree *t, struct ana_functions *f)
{
	uint32_t *order = calloc(t->n + 1u, sizeof(*order));

	if (!order || t->failed) {
		free(order);
		return -1;
	}
	for (uint32_t i = 0; i < t->n; i++) {
		t->node[i].total = t->node[i].self;
		t->node[i].child = t->node[i].sibling = 0;
		if (!t->node[i].fn)
			t->node[i].fn = ana_function_of(f, &t->node[i].entry);
		order[i] = i;
	}
	for (uint32_t i = t->n; i-- > 1;)
		t->node[t->node[i].parent].total += t->node[i].total;
	if (t->n)
		qsort_r(order + 1, t->n - 1, sizeof(*order), by_total, t);
	/* from the last, each becomes the first */
	for (uint32_t i = t->n; i-- > 1;) {
		struct ana_node *n = &t->node[order[i]], *p = &t->node[n->parent];
		n->sibling = p->child;
		p->child = order[i];
	}
	free(order);
	return 0;
}

uint32_t ana_tree_child(struct ana_tree *t, uint32_t parent, const struct ana_node *like)
{
	struct ana_node n = *like;

	n.parent = parent;
	n.total = 0;
	n.child = n.sibling = 0;
	return add_node(t, &n);
}

int ana_tree_merge(struct ana_tree *into, const struct ana_tree *t, struct ana_functions *f)
{
	uint32_t *map = calloc(t->n + 1u, sizeof(*map));

	for (uint32_t i = 1; map && i < t->n && !into->failed; i++) {
		struct ana_node like = t->node[i];
		like.parent = map[like.parent];
		like.from = (struct replay_code){ 0 };
		like.entry = like.fn->code;
		/* nameless code is apart from a function at the beginning of a file */
		like.from.process = !like.fn->name;
		map[i] = add_node(into, &like);
		into->node[map[i]].self += like.self;
		into->node[map[i]].calls += like.calls;
	}
	into->failed |= !map;
	free(map);
	if (into->failed || ana_tree_finish(into, f))
		return -1;
	return 0;
}

void ana_tree_walk(const struct ana_tree *t,
		   void (*visit)(void *ctx, const struct ana_node *node, unsigned depth), void *ctx)
{
	uint32_t i = t->n ? t->node[0].child : 0;
	unsigned depth = 0;

	while (i) {
		visit(ctx, &t->node[i], depth);
		if (t->node[i].child) {
			i = t->node[i].child;
			depth++;
			continue;
		}
		while (i && !t->node[i].sibling) {
			i = t->node[i].parent;
			depth--;
		}
		i = i ? t->node[i].sibling : 0;
	}
}

void ana_tree_free(struct ana_tree *t)
{
	free(t->node);
	free(t->hash);
	*t = (struct ana_tree){ 0 };
}

bool ana_path_put(struct ana_path *p, const struct ana_node *node, unsigned depth)
{
	if (depth >= p->cap) {
		size_t cap = p->cap ? 2 * p->cap : 256;
		const struct ana_node **grown = realloc(p->node, cap * sizeof(*grown));
		if (!grown)
			return false;
		p->node = grown;
		p->cap = cap;
	}
	p->node[depth] = node;
	return true;
}
