/*
 * Numbers of ordered events (doc/order.md).
 *
 * A thread alone counts its events in T_SEQ. Where there are several the numbers come from a
 * counter that all share, and an operation on memory has its number taken while nobody else can
 * touch the place: under one of the locks of places. All that is in cold code, behind a look at
 * T_ORDER_SHARED, which changes only while the one thread there is is in hand. A number that is not
 * the thread's last plus one goes into the ring, in front of the event's own records.
 */
#include "translator/runtime.h"
#include "translator/build.h"

/* To the cold code that follows, if there are several threads. */
static void if_shared(struct tr_build *b)
{
	struct ea shared = ea_gs(T_ORDER_SHARED);
	cg_rm(b->c, 4, 0x83, 7, &shared, 1); /* cmp dword gs:[T_ORDER_SHARED], 0 */
	cg8(b->c, 0);
	cg_jcc(b->c, 5, cg_va(b->cold));
}

static void save(struct cg *c, bool back)
{
	for (unsigned r = 0; r < 3; r++)
		if (back)
			cg_load_gs(c, r, T_ORDER_SAVE((int)r));
		else
			cg_store_gs(c, r, T_ORDER_SAVE((int)r));
}

/* and reg, ORDER_PLACE */
static void place_of(struct cg *c, unsigned reg)
{
	cg_rr(c, 4, 0x81, 4, reg);
	cg32(c, ORDER_PLACE);
}

static struct ea lock_by(unsigned reg)
{
	struct ea m = ea_base((int)reg, T_ORDER_LOCKS);
	m.gs = true;
	return m;
}

/* Wait for the lock by rcx and go on at `back`. */
static void wait(struct tr_build *b, uint64_t back)
{
	struct ea to = { .rip = true, .target = back };
	cg_rm(b->cold, 8, 0x8d, 2, &to, 0); /* lea rdx */
	cg_jmp(b->cold, rt_va(b->arena, rt_order_wait));
}

/* Take the locks of an operand of so many bytes at ecx, and go on behind this. */
static void lock_two(struct tr_build *b, unsigned size)
{
	struct cg *c = b->cold;
	struct ea to = { .rip = true };
	cg_lea(c, 0, 1, (int32_t)size - 1);
	cg_rm(c, 8, 0x8d, 2, &to, 0);
	uint8_t *rel = c->p - 4;
	cg_store_gs(c, 2, T_ORDER_RET);
	cg_jmp(c, rt_va(b->arena, rt_order_two));
	if (!c->overflow)
		cg_patch32(rel, c->delta, cg_va(c));
}

void tr_order_lock(struct tr_build *b, unsigned a, unsigned size)
{
	struct cg *c = b->cold;
	struct ea lock = lock_by(1);
	uint8_t *odd = NULL;
	if_shared(b);
	save(c, false);
	if (a != 1)
		cg_rr(c, 4, 0x8b, 1, a); /* mov ecx */
	if (size > 1) {
		cg_bytes(c, "\xf6\xc1", 2); /* test cl: aligned operands do not straddle */
		cg8(c, (uint8_t)(size - 1));
		odd = cg_jcc(c, 5, 0);
	}
	place_of(c, 1);
	uint64_t again = cg_va(c);
	cg_load_gs(c, 2, T_ORDER_ID);
	cg_bytes(c, "\x31\xc0\xf0", 3); /* xor eax, eax; lock */
	cg_rm(c, 8, 0x0fb1, 2, &lock, 0);
	uint8_t *taken = cg_jcc8(c, 0x74);
	wait(b, again);
	if (odd) {
		if (!c->overflow)
			cg_patch32(odd, c->delta, cg_va(c));
		lock_two(b, size);
	}
	cg_here8(c, taken);
	save(c, true);
	cg_jmp(c, cg_va(b->c));
}

/* Give back what tr_order_lock() took. rcx and rdx are free. */
static void unlock(struct cg *c, unsigned a, unsigned size)
{
	struct ea first = lock_by(1), last = lock_by(2);
	if (a == 2 || a == 1) {
		if (a == 2)
			cg_rr(c, 4, 0x8b, 1, 2);
	} else {
		cg_rr(c, 4, 0x8b, 1, a);
	}
	if (size > 1)
		cg_lea(c, 2, 1, (int32_t)size - 1);
	place_of(c, 1);
	cg_rm(c, 8, 0xc7, 0, &first, 4); /* mov qword, 0 */
	cg32(c, 0);
	if (size > 1) {
		place_of(c, 2);
		cg_rr(c, 4, 0x3b, 1, 2);
		uint8_t *one = cg_jcc8(c, 0x74);
		cg_rm(c, 8, 0xc7, 0, &last, 4);
		cg32(c, 0);
		cg_here8(c, one);
	}
}

/* Cold: rax is the number; into the ring. rcx is free. */
static void note(struct tr_build *b)
{
	struct cg *c = b->cold;
	struct ea at = ea_base(1, 0), at8 = ea_base(1, 8), type = ea_base(1, 7),
		  limit = ea_gs(T_LIMIT);
	cg_load_gs(c, 1, T_HEAD);
	cg_store(c, 0, &at8);
	cg_load_gs(c, 0, T_STEPS);
	cg_lea(c, 0, 0, (int32_t)b->i);
	cg_store(c, 0, &at);
	cg_rm(c, 4, 0xc6, 0, &type, 1); /* mov byte */
	cg8(c, RING_SEQ);
	cg_lea(c, 1, 1, RING_SEQ_SIZE);
	cg_store_gs(c, 1, T_HEAD);
	cg_cmp(c, 8, 1, &limit);
	uint8_t *room = cg_jcc8(c, 0x72);
	cg8(c, 0xcc);
	cg32(c, STOP_RING_FULL);
	cg_here8(c, room);
}

void tr_order_number(struct tr_build *b, unsigned a, unsigned size)
{
	struct cg *c = b->cold;
	struct ea seq = ea_gs(T_SEQ), number = ea_gs(T_ORDER_NUMBER);
	if_shared(b);
	cg_rm(b->c, 8, 0x83, 0, &seq, 1); /* add qword gs:[T_SEQ], 1 */
	cg8(b->c, 1);

	save(c, false);
	cg_imm(c, 0, 1);
	cg8(c, 0xf0);
	cg_rm(c, 8, 0x0fc1, 0, &number, 0); /* lock xadd */
	if (size)
		unlock(c, a, size);
	cg_cmp(c, 8, 0, &seq);
	cg_lea(c, 0, 0, 1);
	cg_store_gs(c, 0, T_SEQ);
	uint8_t *next = cg_jcc8(c, 0x74);
	note(b);
	cg_here8(c, next);
	save(c, true);
	cg_jmp(c, cg_va(b->c));
}
