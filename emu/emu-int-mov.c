/*
 * Moves: extension, address computation, conditional moves and sets, stack, byte order.
 */
#include "emu/emu-int.h"

/* ---- MOVZX MOVSX MOVSXD -------------------------------------------------------------- */

ALWAYS_INLINE void extend(struct emu *e, const struct emu_uop *u, bool sign, unsigned to,
			  unsigned from, bool mem)
{
	uint64_t x = mem ? get_mem(e, from, emu_ea(e, u)) : get_reg(e, from, u->b, u->d);

	set_reg(e, to, u->a, 0, sign ? sext(from, x) : x);
}

#define FOR_EXTENSIONS(X, name)                                                                    \
	X(name, 1, 0)                                                                              \
	X(name, 2, 0)                                                                              \
	X(name, 3, 0)                                                                              \
	X(name, 1, 1) X(name, 2, 1) X(name, 3, 1) X(name, 2, 2) X(name, 3, 2) X(name, 1, 2)
enum { ZX, SX };
#define EXTEND(name, to, from)                                                                     \
	static void name##_##to##from##_R(struct emu *e, const struct emu_uop *u)                  \
	{                                                                                          \
		extend(e, u, name == SX, to, from, false);                                         \
	}                                                                                          \
	static void name##_##to##from##_M(struct emu *e, const struct emu_uop *u)                  \
	{                                                                                          \
		extend(e, u, name == SX, to, from, true);                                          \
	}
FOR_EXTENSIONS(EXTEND, ZX)
FOR_EXTENSIONS(EXTEND, SX)
#define EXTEND_ENTRY(name, to, from)                                                               \
	[name][to][from] = { name##_##to##from##_R, name##_##to##from##_M },
static emu_fn *const extend_fns[2][4][4][2] = { FOR_EXTENSIONS(EXTEND_ENTRY, ZX)
							FOR_EXTENSIONS(EXTEND_ENTRY, SX) };

/* ---- LEA ----------------------------------------------------------------------------- */

/* The address without a segment base. */
ALWAYS_INLINE uint64_t flat_ea(const struct emu *e, const struct emu_uop *u)
{
	uint64_t a = e->cpu.gpr[u->base] + (e->cpu.gpr[u->index] << u->shift) + (uint64_t)u->disp;

	return u->addr32 ? (uint32_t)a : a;
}

static void lea_2(struct emu *e, const struct emu_uop *u)
{
	set_reg(e, 1, u->a, 0, flat_ea(e, u));
}
static void lea_4(struct emu *e, const struct emu_uop *u)
{
	set_reg(e, 2, u->a, 0, flat_ea(e, u));
}
static void lea_8(struct emu *e, const struct emu_uop *u)
{
	e->cpu.gpr[u->a] = flat_ea(e, u);
}
static void lea_8_simple(struct emu *e, const struct emu_uop *u)
{
	e->cpu.gpr[u->a] = e->cpu.gpr[u->base] + (uint64_t)u->disp;
}

static emu_fn *bind_lea(const struct insn *in, struct emu_uop *u)
{
	static emu_fn *const fns[] = { NULL, lea_2, lea_4, lea_8 };
	unsigned lg = lg_of(in->opnd[0].size);

	if (lg == 3 && u->index == EMU_ZERO_REG && !u->addr32)
		return lea_8_simple;
	return fns[lg];
}

/* ---- CMOVcc SETcc --------------------------------------------------------------------- */

/* The load happens, and 32 bits clear the upper half, whether or not the condition holds. */
ALWAYS_INLINE void cmov(struct emu *e, const struct emu_uop *u, unsigned cond, unsigned lg,
			bool mem)
{
	uint64_t x = mem ? get_mem(e, lg, emu_ea(e, u)) : e->cpu.gpr[u->b];

	set_reg(e, lg, u->a, 0, emu_cond(e, cond) ? x : e->cpu.gpr[u->a]);
}

#define FOR_CONDS(X)                                                                               \
	X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#define CMOV(cond, lg, form, mem)                                                                  \
	static void cmov_##cond##_##lg##_##form(struct emu *e, const struct emu_uop *u)            \
	{                                                                                          \
		cmov(e, u, cond, lg, mem);                                                         \
	}
#define COND_HANDLERS(cond)                                                                        \
	CMOV(cond, 1, R, false)                                                                    \
	CMOV(cond, 1, M, true)                                                                     \
	CMOV(cond, 2, R, false)                                                                    \
	CMOV(cond, 2, M, true)                                                                     \
	CMOV(cond, 3, R, false)                                                                    \
	CMOV(cond, 3, M, true) static void set_##cond##_R(struct emu *e, const struct emu_uop *u)  \
	{                                                                                          \
		set_reg(e, 0, u->a, u->c, emu_cond(e, cond));                                      \
	}                                                                                          \
	static void set_##cond##_M(struct emu *e, const struct emu_uop *u)                         \
	{                                                                                          \
		emu_store8(e, emu_ea(e, u), emu_cond(e, cond));                                    \
	}
FOR_CONDS(COND_HANDLERS)
#define CMOV_ROW(cond)                                                                             \
	{ { NULL, NULL },                                                                          \
	  { cmov_##cond##_1_R, cmov_##cond##_1_M },                                                \
	  { cmov_##cond##_2_R, cmov_##cond##_2_M },                                                \
	  { cmov_##cond##_3_R, cmov_##cond##_3_M } },
static emu_fn *const cmov_fns[16][4][2] = { FOR_CONDS(CMOV_ROW) };
#define SET_ROW(cond) { set_##cond##_R, set_##cond##_M },
static emu_fn *const set_fns[16][2] = { FOR_CONDS(SET_ROW) };

/* ---- stack ----------------------------------------------------------------------------- */

ALWAYS_INLINE void push(struct emu *e, unsigned lg, uint64_t x)
{
	uint64_t sp = e->cpu.gpr[DJ_RSP] - (1u << lg);

	set_mem(e, lg, sp, x);
	e->cpu.gpr[DJ_RSP] = sp;
}

ALWAYS_INLINE uint64_t pop(struct emu *e, unsigned lg)
{
	uint64_t x = get_mem(e, lg, e->cpu.gpr[DJ_RSP]);

	e->cpu.gpr[DJ_RSP] += 1u << lg;
	return x;
}

/* POP to memory computes its address with the incremented rsp; the store is second. */
ALWAYS_INLINE void pop_mem(struct emu *e, const struct emu_uop *u, unsigned lg)
{
	uint64_t x = pop(e, lg);

	set_mem(e, lg, emu_ea(e, u), x);
}

/* The flags that PUSHF shows: RF and VM read as 0. */
static uint64_t flags_image(struct emu *e)
{
	return (e->cpu.other_flags | emu_get_flags(e)) & ~(uint64_t)0x30000;
}

/* What POPF changes at privilege 3 with IOPL 0: TF DF NT AC ID and the arithmetic flags;
 * RF is cleared. With 16 bits only what lies there. */
static void set_flags_image(struct emu *e, uint64_t x, unsigned lg)
{
	uint64_t mask = 0x244500;

	if (lg == 1)
		mask &= 0xffff;
	e->cpu.other_flags = (e->cpu.other_flags & ~(mask | 0x10000)) | (x & mask);
	emu_set_flags(e, (uint32_t)x);
}

static void leave_frame(struct emu *e, unsigned lg)
{
	uint64_t bp = e->cpu.gpr[DJ_RBP], x = get_mem(e, lg, bp);

	e->cpu.gpr[DJ_RSP] = bp + (1u << lg);
	set_reg(e, lg, DJ_RBP, 0, x);
}

/* SDM vol. 2A, ENTER. */
static void enter_frame(struct emu *e, const struct emu_uop *u, unsigned lg)
{
	uint64_t *g = e->cpu.gpr, sp = g[DJ_RSP], bp = g[DJ_RBP];
	unsigned level = (unsigned)u->insn->imm2 & 31, size = 1u << lg;

	sp -= size;
	set_mem(e, lg, sp, bp);
	uint64_t frame = sp;
	for (unsigned i = 1; i < level; i++) {
		bp -= size;
		uint64_t x = get_mem(e, lg, bp);
		sp -= size;
		set_mem(e, lg, sp, x);
	}
	if (level) {
		sp -= size;
		set_mem(e, lg, sp, frame);
	}
	set_reg(e, lg, DJ_RBP, 0, frame);
	g[DJ_RSP] = sp - (uint16_t)u->imm;
}

#define STACK_HANDLERS(lg)                                                                         \
	static void push_##lg##_R(struct emu *e, const struct emu_uop *u)                          \
	{                                                                                          \
		push(e, lg, e->cpu.gpr[u->a]);                                                     \
	}                                                                                          \
	static void push_##lg##_I(struct emu *e, const struct emu_uop *u)                          \
	{                                                                                          \
		push(e, lg, (uint64_t)u->imm);                                                     \
	}                                                                                          \
	static void push_##lg##_M(struct emu *e, const struct emu_uop *u)                          \
	{                                                                                          \
		push(e, lg, get_mem(e, lg, emu_ea(e, u)));                                         \
	}                                                                                          \
	static void pop_##lg##_R(struct emu *e, const struct emu_uop *u)                           \
	{                                                                                          \
		uint64_t x = pop(e, lg);                                                           \
		set_reg(e, lg, u->a, 0, x);                                                        \
	}                                                                                          \
	static void pop_##lg##_M(struct emu *e, const struct emu_uop *u)                           \
	{                                                                                          \
		pop_mem(e, u, lg);                                                                 \
	}                                                                                          \
	static void pushf_##lg(struct emu *e, const struct emu_uop *u)                             \
	{                                                                                          \
		(void)u;                                                                           \
		push(e, lg, flags_image(e));                                                       \
	}                                                                                          \
	static void popf_##lg(struct emu *e, const struct emu_uop *u)                              \
	{                                                                                          \
		(void)u;                                                                           \
		set_flags_image(e, pop(e, lg), lg);                                                \
	}                                                                                          \
	static void leave_##lg(struct emu *e, const struct emu_uop *u)                             \
	{                                                                                          \
		(void)u;                                                                           \
		leave_frame(e, lg);                                                                \
	}                                                                                          \
	static void enter_##lg(struct emu *e, const struct emu_uop *u)                             \
	{                                                                                          \
		enter_frame(e, u, lg);                                                             \
	}
STACK_HANDLERS(1)
STACK_HANDLERS(3)

static emu_fn *bind_stack(const struct insn *in)
{
	/* 64-bit mode: 8 bytes, or 2 with an operand-size prefix that REX.W does not overrule */
	bool wide = !(in->opsize16 && !(in->rex & 8));

	switch (in->id) {
	case INSN_PUSH:
		if (is_mem(in, 0))
			return wide ? push_3_M : push_1_M;
		if (is_imm(in, 0))
			return wide ? push_3_I : push_1_I;
		return !is_reg(in, 0) ? NULL : wide ? push_3_R : push_1_R;
	case INSN_POP:
		if (is_mem(in, 0))
			return wide ? pop_3_M : pop_1_M;
		return !is_reg(in, 0) ? NULL : wide ? pop_3_R : pop_1_R;
	case INSN_PUSHF:
		return wide ? pushf_3 : pushf_1;
	case INSN_POPF:
		return wide ? popf_3 : popf_1;
	case INSN_LEAVE:
		return wide ? leave_3 : leave_1;
	case INSN_ENTER:
		return wide ? enter_3 : enter_1;
	default:
		return NULL;
	}
}

/* ---- byte order and sign extension of rax -------------------------------------------------- */

ALWAYS_INLINE uint64_t swap(unsigned lg, uint64_t x)
{
	return lg == 1	 ? __builtin_bswap16((uint16_t)x)
	       : lg == 2 ? __builtin_bswap32((uint32_t)x)
			 : __builtin_bswap64(x);
}

/* BSWAP of 16 bits is undefined; CPUs leave zero. */
static void bswap_1(struct emu *e, const struct emu_uop *u)
{
	set_reg(e, 1, u->a, 0, 0);
}

#define SWAP_HANDLERS(lg)                                                                          \
	static void movbe_##lg##_load(struct emu *e, const struct emu_uop *u)                      \
	{                                                                                          \
		set_reg(e, lg, u->a, 0, swap(lg, get_mem(e, lg, emu_ea(e, u))));                   \
	}                                                                                          \
	static void movbe_##lg##_store(struct emu *e, const struct emu_uop *u)                     \
	{                                                                                          \
		set_mem(e, lg, emu_ea(e, u), swap(lg, e->cpu.gpr[u->b]));                          \
	}
SWAP_HANDLERS(1)
SWAP_HANDLERS(2)
SWAP_HANDLERS(3)
static emu_fn *const movbe_fns[4][2] = {
	{ NULL, NULL },
	{ movbe_1_load, movbe_1_store },
	{ movbe_2_load, movbe_2_store },
	{ movbe_3_load, movbe_3_store },
};

#define RAX_HANDLERS(lg)                                                                           \
	static void widen_##lg(struct emu *e, const struct emu_uop *u)                             \
	{                                                                                          \
		(void)u;                                                                           \
		set_reg(e, lg, DJ_RAX, 0, sext(lg - 1, e->cpu.gpr[DJ_RAX]));                       \
	}                                                                                          \
	static void spread_##lg(struct emu *e, const struct emu_uop *u)                            \
	{                                                                                          \
		(void)u;                                                                           \
		set_reg(e, lg, DJ_RDX, 0, -msb(lg, e->cpu.gpr[DJ_RAX]));                           \
	}
RAX_HANDLERS(1)
RAX_HANDLERS(2)
RAX_HANDLERS(3)

static void bswap_2(struct emu *e, const struct emu_uop *u)
{
	e->cpu.gpr[u->a] = __builtin_bswap32((uint32_t)e->cpu.gpr[u->a]);
}
static void bswap_3(struct emu *e, const struct emu_uop *u)
{
	e->cpu.gpr[u->a] = __builtin_bswap64(e->cpu.gpr[u->a]);
}

/* ---- the rest -------------------------------------------------------------------------------- */

static void xlat(struct emu *e, const struct emu_uop *u)
{
	uint64_t a = e->cpu.gpr[DJ_RBX] + (uint8_t)e->cpu.gpr[DJ_RAX];

	if (u->addr32)
		a = (uint32_t)a;
	set_reg(e, 0, DJ_RAX, 0, emu_load8(e, a + e->cpu.segbase[u->seg]));
}

static void movnti_4(struct emu *e, const struct emu_uop *u)
{
	emu_store32(e, emu_ea(e, u), (uint32_t)e->cpu.gpr[u->b]);
}
static void movnti_8(struct emu *e, const struct emu_uop *u)
{
	emu_store64(e, emu_ea(e, u), e->cpu.gpr[u->b]);
}

static emu_fn *bind_extend(const struct insn *in, struct emu_uop *u, bool sign)
{
	unsigned to = lg_of(in->opnd[0].size), from = lg_of(in->opnd[1].size);

	u->d = byte_shift(in, 1);
	return extend_fns[sign][to][from][is_mem(in, 1)];
}

emu_fn *emu_bind_int_mov(const struct insn *in, struct emu_uop *u)
{
	unsigned lg = lg_of(in->opnd[0].size);

	switch (in->id) {
	case INSN_MOVZX:
		return bind_extend(in, u, false);
	case INSN_MOVSX:
	case INSN_MOVSXD:
		return bind_extend(in, u, true);
	case INSN_LEA:
		return bind_lea(in, u);
	case INSN_CMOVCC:
		return cmov_fns[in->cond & 15][lg][is_mem(in, 1)];
	case INSN_SETCC:
		u->c = byte_shift(in, 0);
		return set_fns[in->cond & 15][is_mem(in, 0)];
	case INSN_BSWAP:
		return lg == 1 ? bswap_1 : lg == 2 ? bswap_2 : bswap_3;
	case INSN_MOVBE:
		return movbe_fns[lg][is_mem(in, 0)];
	case INSN_MOVNTI:
		return lg == 3 ? movnti_8 : movnti_4;
	case INSN_CBW:
		return widen_1;
	case INSN_CWDE:
		return widen_2;
	case INSN_CDQE:
		return widen_3;
	case INSN_CWD:
		return spread_1;
	case INSN_CDQ:
		return spread_2;
	case INSN_CQO:
		return spread_3;
	case INSN_XLAT:
		return xlat;
	default:
		return bind_stack(in);
	}
}
