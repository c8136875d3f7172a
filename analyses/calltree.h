/*
 * Which functions called which, from where, and how many instructions were executed in each: the
 * paths of calls of all threads, as one tree. A path is a node, however often it was taken, so the
 * tree grows with how many paths there are; there is a limit, and what is beyond it is added to the
 * caller.
 */
#ifndef DEJA_ANALYSES_CALLTREE_H
#define DEJA_ANALYSES_CALLTREE_H

#include "analyses/callstack.h"
#include "analyses/when.h"

#define ANA_TREE_NODES (1u << 20)

struct ana_node {
	struct replay_code from;  /* the instruction that called */
	struct replay_code entry; /* what was called; of a thread's node, where it began */
	uint64_t self, calls;
	uint64_t total;		 /* with all below, after ana_tree_finish() */
	uint32_t parent;	 /* less than the node's own index; 0 is above all threads */
	uint32_t child, sibling; /* after ana_tree_finish(): by total, the largest first; 0: none */
	const struct ana_function *fn;
	int32_t thread; /* of a thread's node: its number; else -1 */
	bool watched;	/* what was called is in the grower's `watched` */
};

struct ana_tree {
	struct ana_node *node;
	uint32_t n, cap;
	uint32_t *hash;
	uint32_t hash_size;
	uint64_t lost; /* calls beyond the limit */
	bool failed;
};

/* What was called from where, as addresses, below a node. */
struct ana_child {
	uint64_t from, entry;
	uint32_t parent, node;
};

/* Of one thread, while it is replayed. */
struct ana_grower {
	struct ana_stacked s; /* first, for ana_stack_listen() */
	struct ana_tree tree;
	struct ana_child *child; /* a hash table: `node` is the parent's child; 0: unused */
	uint32_t child_size;
	uint32_t now;
	uint64_t last;
	uint64_t every;	       /* not 0: `self` has the multiples of so many instructions; */
	struct ana_when *when; /* not NULL: ... has the snapshots (analyses/when.h) instead, */
	uint64_t counted;      /* of which so many are */
	struct ana_functions *functions;
	struct ana_stack_rules rules;
	/* The owner's; may be NULL: nodes tell whether their beginning lies there, which of
	 * addresses can be said only here. Those where it does are apart from others. */
	const struct ana_ranges *watched;
};

/* At the thread's current position; NULL when out of memory. */
struct ana_grower *ana_grower_new(const struct ana_stack_rules *rules, struct replay_run *run);
/* Snapshots are counted from here on; `when` is the grower's then. */
void ana_grower_snapshots(struct ana_grower *g, struct ana_when *when);
/* Add the thread's tree to `into`, and free it all. */
void ana_grower_end(struct ana_grower *g, struct replay_run *run, struct ana_tree *into);

/* Put all in its final order, with totals and functions. -1 when out of memory. */
int ana_tree_finish(struct ana_tree *t, struct ana_functions *f);
/* The child of a node that is as `like`, made if need be; 0 if it cannot. */
uint32_t ana_tree_child(struct ana_tree *t, uint32_t parent, const struct ana_node *like);
/* The same without where calls were made from: calls of a function by a function are one. -1 when
 * out of memory. */
int ana_tree_merge(struct ana_tree *into, const struct ana_tree *t, struct ana_functions *f);
void ana_tree_free(struct ana_tree *t);

/* Walk it: each node from the top down, parents first, in the order of children; `depth` of a
 * thread's node is 0. */
void ana_tree_walk(const struct ana_tree *t,
		   void (*visit)(void *ctx, const struct ana_node *node, unsigned depth),
		   void *ctx);

/* The nodes above one that is being walked over, the top first, and itself. */
struct ana_path {
	const struct ana_node **node; /* the owner's to free */
	size_t cap;
};
/* The walk is at this node, with its depth. False when out of memory. */
bool ana_path_put(struct ana_path *p, const struct ana_node *node, unsigned depth);

#endif
