/*
 * Mappings as a tree: see mappings.h.
 *
 * The tree is an AVL tree in which everything is made of one operation that joins two trees with
 * a node between them, whatever their heights (Blelloch, Ferizovic, Sun: Just Join for Parallel
 * Ordered Sets, SPAA 2016, section 4). A change of a range splits the tree at both ends, which cuts
 * the mappings that lie across them, and puts it together again without or with another middle.
 *
 * Nodes count the references to them. A function that takes a tree takes over the caller's
 * reference to it, and what it returns is the caller's.
 */
#include "format/mappings.h"
#include "format/error.h"

#include <stdlib.h>

struct dj_mapping_node {
	struct dj_mapping m;
	struct dj_mapping_node *left, *right;
	uint32_t refs;
	uint32_t count; /* nodes of this tree */
	uint32_t prots; /* all bits that a mapping in it has */
	uint32_t height;
};

typedef struct dj_mapping_node node;

static uint32_t height(const node *t)
{
	return t ? t->height : 0;
}

static node *ref(node *t)
{
	if (t)
		t->refs++;
	return t;
}

static void unref(node *t)
{
	while (t && --t->refs == 0) {
		node *right = t->right;
		unref(t->left);
		free(t);
		t = right;
	}
}

static node *make(const struct dj_mapping *m)
{
	node *t = calloc(1, sizeof(*t));
	DJ_ASSERT(t, "out of memory for mappings");
	t->m = *m;
	t->refs = 1;
	return t;
}

/* The node, not shared with anybody. */
static node *own(node *t)
{
	if (t->refs == 1)
		return t;
	node *mine = make(&t->m);
	mine->left = ref(t->left);
	mine->right = ref(t->right);
	t->refs--;
	return mine;
}

static node *update(node *t)
{
	const node *l = t->left, *r = t->right;
	t->height = 1 + (height(l) > height(r) ? height(l) : height(r));
	t->count = 1 + (l ? l->count : 0) + (r ? r->count : 0);
	t->prots = t->m.prot | (l ? l->prots : 0) | (r ? r->prots : 0);
	return t;
}

static node *rotate_right(node *t)
{
	node *l = own(t->left);
	t->left = l->right;
	l->right = update(t);
	return update(l);
}

static node *rotate_left(node *t)
{
	node *r = own(t->right);
	t->right = r->left;
	r->left = update(t);
	return update(r);
}

/* One of the sides has grown by one at most. */
static node *balance(node *t)
{
	if (height(t->left) > height(t->right) + 1) {
		node *l = t->left = own(t->left);
		if (height(l->left) < height(l->right))
			t->left = rotate_left(l);
		return rotate_right(t);
	}
	if (height(t->right) > height(t->left) + 1) {
		node *r = t->right = own(t->right);
		if (height(r->right) < height(r->left))
			t->right = rotate_right(r);
		return rotate_left(t);
	}
	return update(t);
}

/* All of l, then n (ours alone, its children do not count), then all of r. */
static node *join(node *l, node *n, node *r)
{
	if (height(l) > height(r) + 1) {
		l = own(l);
		l->right = join(l->right, n, r);
		return balance(l);
	}
	if (height(r) > height(l) + 1) {
		r = own(r);
		r->left = join(l, n, r->left);
		return balance(r);
	}
	n->left = l;
	n->right = r;
	return update(n);
}

/* What lies below `at` and what does not; a mapping across it is cut. */
static void split(node *t, uint64_t at, node **below, node **above)
{
	*below = *above = NULL;
	if (!t)
		return;
	t = own(t);
	node *left = t->left, *right = t->right, *middle;
	if (t->m.start >= at) {
		split(left, at, below, &middle);
		*above = join(middle, t, right);
	} else if (t->m.end <= at) {
		split(right, at, &middle, above);
		*below = join(left, t, middle);
	} else {
		struct dj_mapping rest = t->m;
		rest.offset += at - rest.start;
		rest.start = at;
		t->m.end = at;
		*below = join(left, t, NULL);
		*above = join(NULL, make(&rest), right);
	}
}

/* Take out the last node of a tree that has some. */
static node *take_last(node *t, node **last)
{
	t = own(t);
	if (!t->right) {
		*last = t;
		return t->left;
	}
	node *left = t->left, *right = take_last(t->right, last);
	return join(left, t, right);
}

static node *take_first(node *t, node **first)
{
	t = own(t);
	if (!t->left) {
		*first = t;
		return t->right;
	}
	node *right = t->right, *left = take_first(t->left, first);
	return join(left, t, right);
}

/* Whether b goes on where a ends, in every respect. Where nothing can be read from a file the
 * offset says nothing. */
static bool continues(const struct dj_mapping *a, const struct dj_mapping *b)
{
	return a->end == b->start && a->prot == b->prot && a->flags == b->flags &&
	       a->module == b->module && a->initial == b->initial && a->moved == b->moved &&
	       a->sure == b->sure && a->early == b->early && a->lost == b->lost &&
	       a->name == b->name &&
	       ((a->module < 0 && (a->flags & DJ_MAP_ANONYMOUS)) ||
		a->offset + (a->end - a->start) == b->offset);
}

/* n, which lies above all of t, at its end. */
static node *append(node *t, node *n)
{
	const node *last = t;
	while (last && last->right)
		last = last->right;
	if (!last || !continues(&last->m, &n->m))
		return join(t, n, NULL);
	node *longer;
	t = take_last(t, &longer);
	longer->m.end = n->m.end;
	free(n);
	return join(t, longer, NULL);
}

static node *append_all(node *t, node *more)
{
	if (!more)
		return t;
	if (!t)
		return more;
	node *first;
	more = take_first(more, &first);
	t = append(t, first);
	if (!more)
		return t;
	t = take_last(t, &first);
	return join(t, first, more);
}

/* ---- the interface ------------------------------------------------------------------------ */

void dj_mappings_copy(struct dj_mappings *to, const struct dj_mappings *from)
{
	to->root = ref(from->root);
}

void dj_mappings_clear(struct dj_mappings *m)
{
	unref(m->root);
	m->root = NULL;
}

size_t dj_mappings_count(const struct dj_mappings *m)
{
	return m->root ? m->root->count : 0;
}

static bool is(uint32_t prots, uint32_t wanted)
{
	return !wanted || (prots & wanted);
}

/* In a subtree; `addr` may cut off its lower part only on the way to it, so that no more than two
 * paths are gone down. */
static const struct dj_mapping *after(const node *t, uint64_t addr, uint32_t prot)
{
	if (!t || !is(t->prots, prot))
		return NULL;
	if (t->m.end <= addr)
		return after(t->right, addr, prot);
	const struct dj_mapping *found = after(t->left, addr, prot);
	if (found)
		return found;
	return is(t->m.prot, prot) ? &t->m : after(t->right, addr, prot);
}

static const struct dj_mapping *before(const node *t, uint64_t addr, uint32_t prot)
{
	if (!t || !is(t->prots, prot))
		return NULL;
	if (t->m.start >= addr)
		return before(t->left, addr, prot);
	const struct dj_mapping *found = before(t->right, addr, prot);
	if (found)
		return found;
	return is(t->m.prot, prot) ? &t->m : before(t->left, addr, prot);
}

const struct dj_mapping *dj_mappings_after(const struct dj_mappings *m, uint64_t addr,
					   uint32_t prot)
{
	return after(m->root, addr, prot);
}

const struct dj_mapping *dj_mappings_before(const struct dj_mappings *m, uint64_t addr,
					    uint32_t prot)
{
	return before(m->root, addr, prot);
}

const struct dj_mapping *dj_mappings_find(const struct dj_mappings *m, uint64_t addr)
{
	const struct dj_mapping *found = after(m->root, addr, 0);
	return found && found->start <= addr ? found : NULL;
}

void dj_mappings_put(struct dj_mappings *m, const struct dj_mapping *what)
{
	node *below, *rest, *middle, *above;
	split(m->root, what->start, &below, &rest);
	split(rest, what->end, &middle, &above);
	unref(middle);
	m->root = append_all(append(below, make(what)), above);
}

void dj_mappings_remove(struct dj_mappings *m, uint64_t start, uint64_t end)
{
	node *below, *rest, *middle, *above;
	split(m->root, start, &below, &rest);
	split(rest, end, &middle, &above);
	unref(middle);
	m->root = append_all(below, above);
}

void dj_mappings_protect(struct dj_mappings *m, uint64_t start, uint64_t end, uint32_t prot)
{
	node *below, *rest, *middle, *above, *n;
	split(m->root, start, &below, &rest);
	split(rest, end, &middle, &above);
	while (middle) {
		middle = take_first(middle, &n);
		n->m.prot = prot;
		n->m.lost |= n->m.early && (prot & DJ_PROT_WRITE);
		below = append(below, n);
	}
	m->root = append_all(below, above);
}
