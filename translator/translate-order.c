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
	tr_emit_get_steps(c, 0, (int32_t)tr_lag(b));
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

/* T_SEQ_AT, by way of a register. */
static void note_place(const struct tr_build *b, struct cg *c, unsigned reg)
{
	tr_emit_get_steps(c, reg, (int32_t)tr_lag(b) + 1);
	cg_store_gs(c, reg, T_SEQ_AT);
}

void tr_order_number(struct tr_build *b, unsigned a, unsigned size)
{
	struct cg *c = b->cold;
	struct ea seq = ea_gs(T_SEQ), number = ea_gs(T_ORDER_NUMBER);
	if_shared(b);
	cg_rm(b->c, 8, 0x83, 0, &seq, 1); /* add qword gs:[T_SEQ], 1 */
	cg8(b->c, 1);
	cg_store_gs(b->c, 0, T_ORDER_SAVE(0));
	note_place(b, b->c, 0);
	cg_load_gs(b->c, 0, T_ORDER_SAVE(0));

	save(c, false);
	cg_imm(c, 0, 1);
	cg8(c, 0xf0);
	cg_rm(c, 8, 0x0fc1, 0, &number, 0); /* lock xadd */
	if (size)
		unlock(c, a, size);
	note_place(b, c, 1);
	cg_cmp(c, 8, 0, &seq);
	cg_lea(c, 0, 0, 1);
	cg_store_gs(c, 0, T_SEQ);
	uint8_t *next = cg_jcc8(c, 0x74);
	note(b);
	cg_here8(c, next);
	save(c, true);
	cg_jmp(c, cg_va(b->c));
}

/* ---- the stronger models ------------------------------------------------------------------- */

/* Whether the instruction has one memory operand that is a plain load, store, or both, of up to 32
 * bytes. */
static bool plain_operand(const struct insn *in)
{
	const uint64_t others = INSN_A_NOACCESS | INSN_A_ATOMIC | INSN_A_BRANCH | INSN_A_STRING |
				INSN_A_STACK | INSN_A_XSTATE | INSN_A_BITSTRING | INSN_A_MASKED;
	return in->has_mem && in->modrm_off && !(in->attr & others) && in->mem_size &&
	       in->mem_size <= 32;
}

static bool may_load(const struct insn *in)
{
	if (in->attr & (INSN_A_ATOMIC | INSN_A_BRANCH)) /* it has a number; it has been looked at */
		return false;
	/* What these find is recorded, with the registers or the memory that they change; and
	 * behind that record the thread has gone on. */
	if (in->attr & INSN_A_XSTATE)
		return false;
	if (in->attr & INSN_A_STACK)
		return in->id == INSN_POP || in->id == INSN_POPF || in->id == INSN_LEAVE ||
		       in->has_mem;
	if (in->attr & INSN_A_STRING)
		return in->id != INSN_STOS;
	return in->has_mem && !(in->attr & INSN_A_NOACCESS) && in->mem_access != INSN_W;
}

/* rcx = the address of the operand; rax, rcx and rdx are aside, and still the program's. */
static void address(struct cg *c, const struct insn *in)
{
	struct ea m = { .base = -1, .index = -1, .scale = 1 }, base = ea_gs(T_FSBASE);
	if (in->base == INSN_RIP) {
		cg_addr(c, 1, in->target);
		return;
	}
	m.base = in->base == INSN_NOREG ? -1 : (int8_t)in->base;
	m.index = in->index == INSN_NOREG ? -1 : (int8_t)in->index;
	m.scale = in->scale ? in->scale : 1;
	m.disp = (int32_t)in->disp;
	m.a32 = in->addr32;
	cg_rm(c, 8, 0x8d, 1, &m, 0);
	if (in->seg) {
		if (in->seg != 4)
			base = ea_gs(T_GSBASE);
		cg_rm(c, 8, 0x03, 1, &base, 0); /* add rcx */
	}
}

void tr_order_before(struct tr_build *b)
{
	const struct insn *in = &b->insn[b->i];
	struct cg *c = b->cold;
	struct ea back = { .rip = true };
	if (!plain_operand(in))
		return;
	tr_flags_clobber(b, false);
	if_shared(b);
	save(c, false);
	address(c, in);
	back.target = cg_va(b->c);
	cg_rm(c, 8, 0x8d, 2, &back, 0);
	cg_store_gs(c, 2, T_ORDER_BACK);
	cg_lea(c, 0, 1, (int32_t)in->mem_size - 1);
	cg_jmp(c, rt_va(b->arena, rt_order_hold));
}

/* To a routine that returns here; flags are free. */
static void behind(struct tr_build *b, const uint8_t *routine)
{
	struct cg *c = b->cold;
	struct ea back = { .rip = true };
	if_shared(b);
	cg_store_gs(c, 1, T_ORDER_SAVE(1));
	back.target = cg_va(b->c);
	cg_rm(c, 8, 0x8d, 1, &back, 0);
	cg_store_gs(c, 1, T_ORDER_RET);
	cg_imm(c, 1, tr_lag(b));
	cg_jmp(c, rt_va(b->arena, routine));
}

void tr_order_look(struct tr_build *b)
{
	behind(b, rt_order_look);
}

void tr_order_after(struct tr_build *b)
{
	const struct insn *in = &b->insn[b->i];
	bool held = b->policy.lock && plain_operand(in);
	if (!held && !may_load(in))
		return;
	tr_flags_clobber(b, true);
	behind(b, held ? rt_order_give : rt_order_look);
}
