/*
 * String instructions: MOVS STOS LODS CMPS SCAS, alone and under REP, REPE, REPNE.
 *
 * A handler of a REP instruction does at most core->rep_limit iterations and says in
 * core->rep_more whether the instruction is still under way. With hooks on, or when stores
 * are not mirrored, iterations are done one by one, with rcx, rsi and rdi up to date
 * before each element is accessed. Otherwise stretches are copied and filled at once; the
 * outcome is that of element after element on the shadow: an element starts at its
 * address modulo 2^32 and is contiguous from there. Hooks that only track accesses, not
 * exactly, hear of a stretch as one large load and one large store.
 */
#include "emu/emu-core.h"
#include "emu/emu-int.h"

enum str_op { STR_MOVS, STR_STOS, STR_LODS, STR_CMPS, STR_SCAS };

/* rcx, rsi or rdi as the address size has it, and how it is written back. */
ALWAYS_INLINE uint64_t addr_reg(const struct emu *e, const struct emu_uop *u, unsigned reg)
{
	return u->addr32 ? (uint32_t)e->cpu.gpr[reg] : e->cpu.gpr[reg];
}

ALWAYS_INLINE void move_reg(struct emu *e, const struct emu_uop *u, unsigned reg, uint64_t by)
{
	uint64_t x = e->cpu.gpr[reg] + by;

	e->cpu.gpr[reg] = u->addr32 ? (uint32_t)x : x;
}

/* The source takes a segment override, the destination does not. */
ALWAYS_INLINE uint64_t source(const struct emu *e, const struct emu_uop *u)
{
	return addr_reg(e, u, DJ_RSI) + e->cpu.segbase[u->seg];
}

ALWAYS_INLINE void compare_flags(struct emu *e, unsigned lg, uint64_t a, uint64_t b)
{
	emu_lazy_set(e, EMU_LAZY(EMU_LAZY_SUB, lg), a, b, sext(lg, a - b));
}

/* One element. Returns whether a comparison found the elements equal. */
ALWAYS_INLINE bool element(struct emu *e, const struct emu_uop *u, enum str_op op, unsigned lg)
{
	uint64_t by = e->cpu.other_flags & DJ_FLAG_DF ? -(uint64_t)(1u << lg) : 1u << lg;
	uint64_t a = 0, b = 0;

	if (op == STR_MOVS || op == STR_LODS || op == STR_CMPS)
		a = get_mem(e, lg, source(e, u));
	else
		a = get_reg(e, lg, DJ_RAX, 0);
	if (op == STR_CMPS || op == STR_SCAS) {
		b = get_mem(e, lg, addr_reg(e, u, DJ_RDI));
		compare_flags(e, lg, a, b);
	} else if (op == STR_LODS) {
		set_reg(e, lg, DJ_RAX, 0, a);
	} else {
		set_mem(e, lg, addr_reg(e, u, DJ_RDI), a);
	}
	if (op != STR_STOS && op != STR_SCAS)
		move_reg(e, u, DJ_RSI, by);
	if (op != STR_LODS)
		move_reg(e, u, DJ_RDI, by);
	return a == b;
}

/* Copy `bytes` forward, element by element, within the shadow. */
static void copy_forward(uint8_t *dst, const uint8_t *src, size_t bytes, unsigned lg)
{
	const size_t size = (size_t)1 << lg;

	if (dst <= src || (size_t)(dst - src) >= bytes) {
		memmove(dst, src, bytes);
	} else if ((size_t)(dst - src) >= size) {
		/* what lies between src and dst repeats itself */
		uint8_t *base = dst - (dst - src);
		size_t have = (size_t)(dst - src), want = have + bytes;
		while (have < want) {
			size_t n = have < want - have ? have : want - have;
			memcpy(base + have, base, n);
			have += n;
		}
	} else {
		for (size_t i = 0; i < bytes; i += size) {
			uint8_t x[8];
			memcpy(x, src + i, size);
			memcpy(dst + i, x, size);
		}
	}
}

/* The same with the direction flag set; dst and src are the lowest bytes of the whole. */
static void copy_backward(uint8_t *dst, const uint8_t *src, size_t bytes, unsigned lg)
{
	const size_t size = (size_t)1 << lg;

	if (dst >= src || (size_t)(src - dst) >= bytes) {
		memmove(dst, src, bytes);
		return;
	}
	for (size_t i = bytes; i; i -= size) {
		uint8_t x[8];
		memcpy(x, src + i - size, size);
		memcpy(dst + i - size, x, size);
	}
}

/* One element, which may overlap itself where the shadow begins again: nothing is stored before all
 * is loaded, which memmove() does for ranges that overlap as far as it can see. */
static void copy_element(uint8_t *dst, const uint8_t *src, unsigned lg)
{
	uint16_t w;
	uint32_t d;
	uint64_t q;

	switch (lg) {
	case 0:
		*dst = *src;
		break;
	case 1:
		memcpy(&w, src, 2);
		memcpy(dst, &w, 2);
		break;
	case 2:
		memcpy(&d, src, 4);
		memcpy(dst, &d, 4);
		break;
	default:
		memcpy(&q, src, 8);
		memcpy(dst, &q, 8);
		break;
	}
}

/* How many elements, of at most n, lie in a row in the shadow; one that straddles its end is alone.
 */
static uint64_t stretch(uint32_t index, bool down, unsigned lg, uint64_t n)
{
	uint64_t room = 0x100000000ULL - index;
	uint64_t max = room < 1u << lg ? 1 : down ? ((uint64_t)index >> lg) + 1 : room >> lg;

	return n < max ? n : max;
}

static void fill(uint8_t *dst, size_t bytes, unsigned lg, uint64_t x)
{
	uint8_t pattern[8];

	if (lg == 0 || x == 0) {
		memset(dst, (uint8_t)x, bytes);
		return;
	}
	x = htole64(x);
	memcpy(pattern, &x, 8);
	for (size_t i = 0; i < bytes; i += (size_t)1 << lg)
		memcpy(dst + i, pattern, (size_t)1 << lg);
}

#define BULK_MAX ((uint64_t)1 << 24) /* elements at once: their bytes fit an unsigned */

/* Whether n iterations may be done at once: nobody wants to see each access, and no element
 * that is loaded has been stored on the way if anybody wants to see any. */
static bool can_bulk(const struct emu *e, const struct emu_uop *u, bool movs, unsigned lg,
		     uint64_t n)
{
	if (!e->mirror_stores)
		return false;
	if (!e->hooks)
		return true;
	if (e->hooks != EMU_HOOK_TRACK || e->exact || n > BULK_MAX)
		return false;
	uint64_t bytes = n << lg, size = (uint64_t)1 << lg;
	uint32_t apart = (uint32_t)(addr_reg(e, u, DJ_RDI) - source(e, u));
	return !movs || (apart >= bytes + size && -apart >= bytes + size);
}

/* n iterations of REP MOVS or REP STOS at once. */
static void bulk(struct emu *e, const struct emu_uop *u, bool movs, unsigned lg, uint64_t n)
{
	const bool down = e->cpu.other_flags & DJ_FLAG_DF;
	const uint64_t acc = movs ? 0 : get_reg(e, lg, DJ_RAX, 0);

	move_reg(e, u, DJ_RCX, -n);
	while (n) {
		uint32_t di = (uint32_t)e->cpu.gpr[DJ_RDI];
		uint32_t si = movs ? (uint32_t)source(e, u) : 0;
		uint64_t k = stretch(di, down, lg, n < BULK_MAX ? n : BULK_MAX);
		if (movs)
			k = stretch(si, down, lg, k);
		uint64_t back = down ? (k - 1) << lg : 0, bytes = k << lg;
		uint8_t *dst = e->shadow + (di - back);
		const uint64_t to = addr_reg(e, u, DJ_RDI) - back;
		if (e->hooks) {
			if (movs)
				e->after_load(e->ctx, e, source(e, u) - back, (unsigned)bytes);
			e->before_store(e->ctx, e, to, (unsigned)bytes);
		}
		if (!movs)
			fill(dst, bytes, lg, acc);
		else if (k == 1)
			copy_element(dst, e->shadow + si, lg);
		else if (down)
			copy_backward(dst, e->shadow + (si - back), bytes, lg);
		else
			copy_forward(dst, e->shadow + (si - back), bytes, lg);
		if (e->hooks)
			e->after_store(e->ctx, e, to, (unsigned)bytes, dst);
		move_reg(e, u, DJ_RDI, down ? -bytes : bytes);
		if (movs)
			move_reg(e, u, DJ_RSI, down ? -bytes : bytes);
		n -= k;
	}
}

/* At most `limit` iterations of REPE/REPNE CMPS/SCAS without hooks; u->a is 1 for REPE.
 * Returns how many were done, *ended tells whether the comparison ended it. */
ALWAYS_INLINE uint64_t scan(struct emu *e, const struct emu_uop *u, bool cmps, unsigned lg,
			    uint64_t limit, bool *ended)
{
	const uint64_t by = e->cpu.other_flags & DJ_FLAG_DF ? -(uint64_t)(1u << lg) : 1u << lg;
	const bool repe = u->a;
	uint64_t si = cmps ? source(e, u) : 0, di = addr_reg(e, u, DJ_RDI), done = 0;
	uint64_t a = get_reg(e, lg, DJ_RAX, 0), b;

	*ended = false;
	if (!limit)
		return 0;
	do {
		if (cmps)
			a = get_mem(e, lg, si);
		b = get_mem(e, lg, di);
		si += by;
		di += by;
		done++;
		*ended = (a == b) != repe;
	} while (!*ended && done != limit);
	compare_flags(e, lg, a, b);
	move_reg(e, u, DJ_RCX, -done);
	move_reg(e, u, DJ_RDI, by * done);
	if (cmps)
		move_reg(e, u, DJ_RSI, by * done);
	return done;
}

/* So many iterations are done in one go, of those that cost little and of those that are done one
 * by one: some milliseconds. */
#define GO_FAST ((uint64_t)1 << 22)
#define GO_SLOW ((uint64_t)1 << 18)

/* Memory that a program can have, in bytes: 47 bits of addresses. What stores or loads more than
 * that without a comparison to end it never came to its end. */
#define MEMORY_BITS 47

ALWAYS_INLINE void repeat(struct emu *e, const struct emu_uop *u, enum str_op op, unsigned lg)
{
	struct emu_core *c = emu_core(e);
	const bool compares = op == STR_CMPS || op == STR_SCAS;
	uint64_t limit = c ? c->rep_limit : UINT64_MAX, n = addr_reg(e, u, DJ_RCX), done = 0;
	bool ended = n == 0;

	if (ended && u->addr32) {
		/* nothing to do, and AMD's cores do nothing; Intel's clear upper halves even so,
		 * but not all */
		if (u->insn->cpu == DJ_CPU_AMD) {
			if (c) {
				c->rep_done = 0;
				c->rep_more = false;
			}
			return;
		}
		move_reg(e, u, DJ_RCX, 0);
		if (op == STR_MOVS)
			move_reg(e, u, DJ_RSI, 0);
		if (op == STR_MOVS || op == STR_STOS)
			move_reg(e, u, DJ_RDI, 0);
	}
	if (limit > n)
		limit = n;
	if (!compares && limit >> (MEMORY_BITS - lg))
		emu_raise(e, EMU_STOP_FAULT, "it repeats more often than there is memory");
	const uint64_t wanted = limit;
	if (c && limit > GO_FAST)
		limit = GO_FAST;
	if (compares && !e->hooks) {
		done = scan(e, u, op == STR_CMPS, lg, limit, &ended);
	} else if ((op == STR_MOVS || op == STR_STOS) &&
		   can_bulk(e, u, op == STR_MOVS, lg, limit)) {
		bulk(e, u, op == STR_MOVS, lg, limit);
		done = limit;
	} else {
		if (c && limit > GO_SLOW)
			limit = GO_SLOW;
		for (; done < limit && !ended; done++) {
			e->ordinal = 0;
			bool same = element(e, u, op, lg);
			move_reg(e, u, DJ_RCX, -(uint64_t)1);
			ended = compares && same != (bool)u->a;
		}
	}
	if (c) {
		c->rep_done = done;
		c->rep_more = !ended && done < n;
		if (c->rep_more && done < wanted)
			emu_yield(e);
	}
}

#define STRING(op, lg)                                                                             \
	static void op##_##lg##_once(struct emu *e, const struct emu_uop *u)                       \
	{                                                                                          \
		element(e, u, STR_##op, lg);                                                       \
	}                                                                                          \
	static void op##_##lg##_rep(struct emu *e, const struct emu_uop *u)                        \
	{                                                                                          \
		repeat(e, u, STR_##op, lg);                                                        \
	}
#define STRINGS(op) STRING(op, 0) STRING(op, 1) STRING(op, 2) STRING(op, 3)
INSN_LIST_STRING(STRINGS)
#define STRING_ROW(op)                                                                             \
	[STR_##op] = { { op##_0_once, op##_0_rep },                                                \
		       { op##_1_once, op##_1_rep },                                                \
		       { op##_2_once, op##_2_rep },                                                \
		       { op##_3_once, op##_3_rep } },
static emu_fn *const string_fns[][4][2] = { INSN_LIST_STRING(STRING_ROW) };

emu_fn *emu_bind_string(const struct insn *in, struct emu_uop *u)
{
	/* the opcode's low bit tells bytes from the general operand size */
	unsigned lg = in->opcode & 1 ? lg_of(in->opsize) : 0;
	bool rep = in->rep != 0;

	switch (in->id) {
#define X(op)                                                                                      \
	case INSN_##op:                                                                            \
		u->a = in->rep == 0xf3;                                                            \
		u->flags |= rep ? EMU_UOP_REP : 0;                                                 \
		return string_fns[STR_##op][lg][rep];
		INSN_LIST_STRING(X)
#undef X
	default:
		return NULL;
	}
}
