/*
 * What a program did to its heap: calls of malloc's family, recognised by name, in the order in
 * which blocks changed hands, each with the stack of calls that led to it. A function of the family
 * that another one calls does not count, so that it does not matter who is made of whom.
 */
#ifndef DEJA_ANALYSES_HEAPLOG_H
#define DEJA_ANALYSES_HEAPLOG_H

#include "analyses/log.h"

/* BORROWED: by a process that executes in this one's memory and is not recorded in there; nobody
 * knows what it did to the heap. */
enum ana_heap_kind { ANA_HEAP_ALLOC, ANA_HEAP_FREE, ANA_HEAP_NEW_IMAGE, ANA_HEAP_BORROWED };

/* Calls of several threads lie beside each other, and one may wait in malloc for the block that
 * another one frees meanwhile. A block is the caller's from the moment that malloc has returned to
 * the one that free is called: these are the places in the order. Of realloc, it gives up the old
 * block when it is called, since somebody else may have that before it returns; and has the new one
 * when it returns. */
struct ana_heap_event {
	struct replay_pos order;
	struct replay_pos pos; /* of the call: where malloc or free is entered */
	uint64_t addr, size;   /* size: ALLOC */
	uint32_t number;       /* of the thread's event, where `order` is the same */
	uint32_t stack;	       /* index into stacks, or ANA_HEAP_NO_STACK */
	uint32_t process;
	uint8_t kind;
};

#define ANA_HEAP_NO_STACK UINT32_MAX
#define ANA_HEAP_FRAMES	  12
struct ana_heap_stack {
	unsigned n;
	struct replay_code frames[ANA_HEAP_FRAMES]; /* of calls, innermost first */
};

struct ana_heaplog {
	uint32_t *groups; /* by thread (analyses/groups.h), or NULL */
	struct ana_log events;
	struct ana_heap_stack *stacks;
	size_t n_stacks, cap_stacks;
	bool plain; /* no stacks are kept */
	/* which code is whose */
	struct ana_ranges entries[12];
	struct ana_ranges cache; /* what frees an ended thread's cache */
};

/* The listener that makes it; `heap` is zeros but for events.limit. -1 if the recording has no
 * function of the family. Without stacks the pass may execute translated code. */
int ana_heap_listener(struct ana_heaplog *heap, struct ana_job *job, bool stacks,
		      struct replay_listener *l);
/* The stack of one event that was noted without, by a pass over its thread; ANA_HEAP_NO_STACK if
 * that cannot be had. */
uint32_t ana_heap_stack_of(struct ana_heaplog *heap, struct ana_job *job,
			   const struct ana_heap_event *e);
/* After the pass. */
void ana_heap_sort(struct ana_heaplog *heap);
void ana_heap_free(struct ana_heaplog *heap);
/* "main at a.c:3 < ...". */
void ana_heap_stack_text(struct ana_heaplog *heap, struct ana_job *job, uint32_t stack, char *buf,
			 size_t size);

#endif
