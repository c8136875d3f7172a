/*
 * Vector moves: whole registers, parts of them, to and from general registers and memory;
 * inserts and extracts; vzeroupper.
 *
 * These are the instructions replay meets most, so each direction and form has a handler.
 * A legacy form leaves the upper half of the ymm register, a VEX form clears it.
 *
 * Facts are from the SDM, volume 2, the page of each instruction.
 */
#include "emu/emu-vec.h"

/* ---- whole registers ------------------------------------------------------------------------ */

#define WHOLE(suffix, form, bytes)                                                                 \
	static void load_##suffix(struct emu *e, const struct emu_uop *u)                          \
	{                                                                                          \
		V *d = &e->cpu.v[u->a];                                                            \
		emu_load_vec(e, emu_ea(e, u), d, bytes);                                           \
		if (form == VEC_128)                                                               \
			d->q[2] = d->q[3] = 0;                                                     \
	}                                                                                          \
	static void copy_##suffix(struct emu *e, const struct emu_uop *u)                          \
	{                                                                                          \
		V x;                                                                               \
		memcpy(&x, &e->cpu.v[u->b], bytes);                                                \
		vec_put(e, u->a, &x, form);                                                        \
	}
WHOLE(leg, VEC_LEGACY, 16)
WHOLE(128, VEC_128, 16)
WHOLE(256, VEC_256, 32)

static void store_16(struct emu *e, const struct emu_uop *u)
{
	emu_store_vec(e, emu_ea(e, u), &e->cpu.v[u->b], 16);
}

static void store_32(struct emu *e, const struct emu_uop *u)
{
	emu_store_vec(e, emu_ea(e, u), &e->cpu.v[u->b], 32);
}

static emu_fn *bind_whole(const struct insn *in)
{
	static emu_fn *const load[] = { load_leg, load_128, load_256 };
	static emu_fn *const copy[] = { copy_leg, copy_128, copy_256 };
	enum emu_vec_form form = emu_vec_form(in);

	if (form >= VEC_FORMS)
		return NULL;
	if (in->opnd[0].kind == OPND_MEM)
		return form == VEC_256 ? store_32 : store_16;
	return in->opnd[1].kind == OPND_MEM ? load[form] : copy[form];
}

/* ---- 4 or 8 bytes zero-extended: movd, movq ---------------------------------------------- */

/* How each kind of operand is read and written; u->size is 4 or 8, u->d the form. */
#define GET_GPR e->cpu.gpr[u->b]
#define GET_VEC e->cpu.v[u->b].q[0]
#define GET_MMX e->cpu.x87_mant[u->b & 7]
#define GET_MEM (u->size == 8 ? emu_load64(e, emu_ea(e, u)) : emu_load32(e, emu_ea(e, u)))
#define PUT_GPR e->cpu.gpr[u->a] = x
#define PUT_MMX mmx_write(e, u->a, x)
#define PUT_MEM                                                                                    \
	if (u->size == 8)                                                                          \
		emu_store64(e, emu_ea(e, u), x);                                                   \
	else                                                                                       \
		emu_store32(e, emu_ea(e, u), (uint32_t)x)
#define PUT_VEC                                                                                    \
	V *d = &e->cpu.v[u->a];                                                                    \
	d->q[0] = x;                                                                               \
	d->q[1] = 0;                                                                               \
	if ((u->d & VEC_FORM) != VEC_LEGACY)                                                       \
	d->q[2] = d->q[3] = 0

#define LOW(to, from, mmx)                                                                         \
	static void low_##to##_##from(struct emu *e, const struct emu_uop *u)                      \
	{                                                                                          \
		uint64_t x = GET_##from;                                                           \
		if (u->size == 4)                                                                  \
			x = (uint32_t)x;                                                           \
		if (mmx)                                                                           \
			mmx_enter(e);                                                              \
		PUT_##to;                                                                          \
	}
LOW(VEC, GPR, 0)
LOW(VEC, MEM, 0)
LOW(VEC, VEC, 0)
LOW(GPR, VEC, 0)
LOW(MEM, VEC, 0)
LOW(MMX, GPR, 1)
LOW(MMX, MEM, 1)
LOW(MMX, MMX, 1)
LOW(GPR, MMX, 1)
LOW(MEM, MMX, 1)

static emu_fn *bind_low(const struct insn *in, struct emu_uop *u)
{
	static const struct {
		uint8_t to, from;
		emu_fn *fn;
		/* clang-format off */
	} rows[] = {
	    {OPND_VEC, OPND_MEM, low_VEC_MEM}, {OPND_MEM, OPND_VEC, low_MEM_VEC},
	    {OPND_VEC, OPND_GPR, low_VEC_GPR}, {OPND_GPR, OPND_VEC, low_GPR_VEC},
	    {OPND_VEC, OPND_VEC, low_VEC_VEC}, {OPND_MMX, OPND_MMX, low_MMX_MMX},
	    {OPND_MMX, OPND_GPR, low_MMX_GPR}, {OPND_GPR, OPND_MMX, low_GPR_MMX},
	    {OPND_MMX, OPND_MEM, low_MMX_MEM}, {OPND_MEM, OPND_MMX, low_MEM_MMX},
	};
	/* clang-format on */

	u->d = (uint8_t)emu_vec_form(in);
	u->size = in->id == INSN_MOVQ ? 8 : 4;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].to == in->opnd[0].kind && rows[i].from == in->opnd[1].kind)
			return rows[i].fn;
	return NULL;
}

/* ---- scalars and halves --------------------------------------------------------------------- */

/* movss/movsd from memory clear the rest of the xmm register; u->d is the form. */
#define SCALAR_LOAD(bits)                                                                          \
	static void load_scalar##bits(struct emu *e, const struct emu_uop *u)                      \
	{                                                                                          \
		V *d = &e->cpu.v[u->a];                                                            \
		d->q[0] = emu_load##bits(e, emu_ea(e, u));                                         \
		d->q[1] = 0;                                                                       \
		if ((u->d & VEC_FORM) != VEC_LEGACY)                                               \
			d->q[2] = d->q[3] = 0;                                                     \
	}
SCALAR_LOAD(32)
SCALAR_LOAD(64)

static void store_32bits(struct emu *e, const struct emu_uop *u)
{
	emu_store32(e, emu_ea(e, u), VD(&e->cpu.v[u->b], 0));
}

static void store_low(struct emu *e, const struct emu_uop *u)
{
	emu_store64(e, emu_ea(e, u), e->cpu.v[u->b].q[0]);
}

static void store_high(struct emu *e, const struct emu_uop *u)
{
	emu_store64(e, emu_ea(e, u), e->cpu.v[u->b].q[1]);
}

/* The rest make their result out of register A (u->b) and the other operand B. */
#define MERGE(name, source, low, high)                                                             \
	static void name(struct emu *e, const struct emu_uop *u)                                   \
	{                                                                                          \
		const V B = source;                                                                \
		const V A = e->cpu.v[u->b];                                                        \
		V r;                                                                               \
		(void)A;                                                                           \
		r.q[0] = (low);                                                                    \
		r.q[1] = (high);                                                                   \
		vec_put_x(e, u->a, &r, u->d &VEC_FORM);                                            \
	}
#define B_REG e->cpu.v[u->c]
#define B_MEM                                                                                      \
	{                                                                                          \
		.q = { emu_load64(e, emu_ea(e, u)) }                                               \
	}
MERGE(movss_reg, B_REG, (A.q[0] & ~0xffffffffULL) | (B.q[0] & 0xffffffff), A.q[1])
MERGE(movsd_reg, B_REG, B.q[0], A.q[1])
MERGE(movlp_mem, B_MEM, B.q[0], A.q[1])
MERGE(movhp_mem, B_MEM, A.q[0], B.q[0])
MERGE(movhlps, B_REG, B.q[1], A.q[1])
MERGE(movlhps, B_REG, A.q[0], B.q[0])

static emu_fn *bind_part(const struct insn *in, struct emu_uop *u)
{
	static const struct {
		uint16_t id;
		emu_fn *store, *load, *reg;
		/* clang-format off */
	} rows[] = {
	    {INSN_MOVSS, store_32bits, load_scalar32, movss_reg},
	    {INSN_MOVSD, store_low, load_scalar64, movsd_reg},
	    {INSN_MOVLPS, store_low, movlp_mem, movhlps},
	    {INSN_MOVLPD, store_low, movlp_mem, NULL},
	    {INSN_MOVHPS, store_high, movhp_mem, movlhps},
	    {INSN_MOVHPD, store_high, movhp_mem, NULL},
	    {INSN_MOVHLPS, NULL, NULL, movhlps},
	    {INSN_MOVLHPS, NULL, NULL, movlhps},
	};
	/* clang-format on */

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (rows[i].id != in->id)
			continue;
		if (in->opnd[0].kind == OPND_MEM)
			return rows[i].store; /* u->b is the source register */
		emu_vec_bind_operands(in, u, VEC_BINARY);
		return u->d & VEC_MEM ? rows[i].load : rows[i].reg;
	}
	return NULL;
}

/* ---- inserts and extracts -------------------------------------------------------------------- */

/* u->size: element bytes; u->imm: its index, already reduced; u->d: form and VEC_MEM */
static void insert(struct emu *e, const struct emu_uop *u)
{
	V x, r;
	unsigned i = (unsigned)u->imm, at;
	uint64_t mask;

	if (u->d & VEC_MEM)
		vec_load(e, emu_ea(e, u), &x, u->size);
	else
		x.q[0] = e->cpu.gpr[u->c];
	vec_source1(e, u, &r);
	at = i * u->size % 8 * 8;
	mask = (~0ULL >> (64 - 8 * u->size)) << at;
	if (i * u->size < 8)
		r.q[0] = (r.q[0] & ~mask) | (x.q[0] << at & mask);
	else
		r.q[1] = (r.q[1] & ~mask) | (x.q[0] << at & mask);
	vec_result(e, u, &r);
}

/* ... and here u->a is the destination register if not memory */
static void extract(struct emu *e, const struct emu_uop *u)
{
	V s, x;
	unsigned i = (unsigned)u->imm;

	vec_source1(e, u, &s);
	x.q[0] = s.q[i * u->size / 8] >> (i * u->size % 8 * 8) & (~0ULL >> (64 - 8 * u->size));
	if (u->d & VEC_MEM)
		vec_store(e, emu_ea(e, u), &x, u->size);
	else
		e->cpu.gpr[u->a] = x.q[0];
	if ((u->d & VEC_FORM) == VEC_MMX)
		mmx_enter(e);
}

static void extract_half(struct emu *e, const struct emu_uop *u)
{
	const V *s = &e->cpu.v[u->b];
	V x = { .q = { s->q[(u->imm & 1) * 2], s->q[(u->imm & 1) * 2 + 1] } };

	if (u->d & VEC_MEM)
		emu_store_vec(e, emu_ea(e, u), &x, 16);
	else
		vec_put(e, u->a, &x, VEC_128);
}

static emu_fn *bind_element(const struct insn *in, struct emu_uop *u, unsigned bytes, bool out)
{
	if (out) {
		u->d = (uint8_t)emu_vec_form(in);
		if (in->opnd[0].kind == OPND_MEM)
			u->d |= VEC_MEM;
	} else {
		emu_vec_bind_operands(in, u, VEC_BINARY);
	}
	u->size = (uint8_t)bytes;
	u->imm &= ((u->d & VEC_FORM) == VEC_MMX ? 8 : 16) / bytes - 1;
	return out ? extract : insert;
}

/* ---- clearing ----------------------------------------------------------------------------------
 */

static void vzeroupper(struct emu *e, const struct emu_uop *u)
{
	(void)u;
	for (int i = 0; i < 16; i++)
		e->cpu.v[i].q[2] = e->cpu.v[i].q[3] = 0;
}

static void vzeroall(struct emu *e, const struct emu_uop *u)
{
	(void)u;
	memset(e->cpu.v, 0, sizeof(e->cpu.v));
}

emu_fn *emu_bind_vec_move(const struct insn *in, struct emu_uop *u)
{
	switch (in->id) {
	case INSN_MOVDQA:
	case INSN_MOVDQU:
	case INSN_MOVAPS:
	case INSN_MOVAPD:
	case INSN_MOVUPS:
	case INSN_MOVUPD:
	case INSN_MOVNTDQ:
	case INSN_MOVNTDQA:
	case INSN_MOVNTPS:
	case INSN_MOVNTPD:
	case INSN_LDDQU:
		return bind_whole(in);
	case INSN_MOVD:
	case INSN_MOVQ:
		return bind_low(in, u);
	case INSN_PINSRB:
		return bind_element(in, u, 1, false);
	case INSN_PINSRW:
		return bind_element(in, u, 2, false);
	case INSN_PINSRD:
		return bind_element(in, u, 4, false);
	case INSN_PINSRQ:
		return bind_element(in, u, 8, false);
	case INSN_PEXTRB:
		return bind_element(in, u, 1, true);
	case INSN_PEXTRW:
		return bind_element(in, u, 2, true);
	case INSN_PEXTRD:
	case INSN_EXTRACTPS:
		return bind_element(in, u, 4, true);
	case INSN_PEXTRQ:
		return bind_element(in, u, 8, true);
	case INSN_VEXTRACTF128:
	case INSN_VEXTRACTI128:
		u->d = in->opnd[0].kind == OPND_MEM ? VEC_MEM : 0;
		return extract_half;
	case INSN_VZEROUPPER:
		return vzeroupper;
	case INSN_VZEROALL:
		return vzeroall;
	default:
		return bind_part(in, u);
	}
}
