/*
 * What the vector families (emu-vec*.c) share: how operands are fetched and results put
 * back, and the macros that make handlers out of kernels.
 *
 * A kernel computes a whole result from whole operands,
 *
 *	kernel(r, a, b, n, lane, imm)
 *
 * where `n` is the number of bytes wanted, `lane` the bytes of a lane that the instruction
 * treats on its own (16, or 8 for MMX), and all but r and imm are constants after
 * inlining. r never aliases a or b. Bytes of r beyond n are not looked at.
 *
 * An instruction comes in seven forms (enum emu_vec_form), with b in a register or in memory.
 * VEC_ANY makes one handler that serves all forms: it computes 32 bytes and keeps what the
 * form keeps. That works because all lanes are computed alike. VEC_HOT adds one
 * handler each for the xmm and ymm forms, for instructions that replay meets often.
 *
 * The binder (emu_vec_bind_operands) leaves u->a the destination, u->b the first source (the
 * destination itself in legacy forms), u->c the second source, u->d the form, and
 * u->size the bytes of the memory operand. The handlers load memory before they change
 * any register, with one load of that size.
 */
#ifndef DEJA_EMU_EMU_VEC_H
#define DEJA_EMU_EMU_VEC_H

#include "emu/emu.h"

enum emu_vec_form {
	VEC_LEGACY, /* xmm, upper half of the ymm register stays */
	VEC_128,    /* VEX.128: upper half becomes zero */
	VEC_256,
	VEC_MMX,
	VEC_FORMS = 3, /* those with specialised handlers */
	VEC_FORM = 3,
	VEC_MEM = 4, /* with a memory operand */
};

#define VEC_INLINE static inline __attribute__((always_inline))

typedef union emu_vec V;

/* The handlers of one instruction: any form, and [form][is memory]. */
struct emu_vec_row {
	emu_fn *any;
	emu_fn *hot[VEC_FORMS][2];
	uint8_t kind; /* enum emu_vec_kind */
};

enum emu_vec_kind {
	VEC_BINARY = 0, /* dst, (src1,) src2 */
	VEC_UNARY,	/* dst, src */
};

/* ---- MMX ------------------------------------------------------------------------------ */

/* SDM vol. 1, 9.5.1: an MMX instruction makes the whole register stack valid with its top at
 * register 0; a register written gets an exponent of all ones. */
VEC_INLINE void mmx_enter(struct emu *e)
{
	e->cpu.x87_top = 0;
	e->cpu.x87_ftw = 0xff;
}

VEC_INLINE void mmx_write(struct emu *e, unsigned reg, uint64_t x)
{
	e->cpu.x87_mant[reg & 7] = x;
	e->cpu.x87_exp[reg & 7] = 0xffff;
}

/* ---- operands ------------------------------------------------------------------------- */

/* Load `size` bytes (1 2 4 8 16 32) and clear the rest. */
VEC_INLINE void vec_load(struct emu *e, uint64_t addr, V *v, unsigned size)
{
	if (size <= 8) {
		v->q[1] = v->q[2] = v->q[3] = 0;
		v->q[0] = size == 8   ? emu_load64(e, addr)
			  : size == 4 ? emu_load32(e, addr)
			  : size == 2 ? emu_load16(e, addr)
				      : emu_load8(e, addr);
	} else {
		v->q[2] = v->q[3] = 0;
		emu_load_vec(e, addr, v, size);
	}
}

VEC_INLINE void vec_store(struct emu *e, uint64_t addr, const V *v, unsigned size)
{
	if (size == 8)
		emu_store64(e, addr, v->q[0]);
	else if (size == 4)
		emu_store32(e, addr, (uint32_t)v->q[0]);
	else if (size == 2)
		emu_store16(e, addr, (uint16_t)v->q[0]);
	else if (size == 1)
		emu_store8(e, addr, (uint8_t)v->q[0]);
	else
		emu_store_vec(e, addr, v, size);
}

/* The operand that may be memory. */
VEC_INLINE void vec_source(struct emu *e, const struct emu_uop *u, V *v)
{
	if (u->d & VEC_MEM) {
		vec_load(e, emu_ea(e, u), v, u->size);
	} else if ((u->d & VEC_FORM) == VEC_MMX) {
		v->q[0] = e->cpu.x87_mant[u->c & 7];
		v->q[1] = v->q[2] = v->q[3] = 0;
	} else {
		*v = e->cpu.v[u->c];
	}
}

/* The first source. */
VEC_INLINE void vec_source1(struct emu *e, const struct emu_uop *u, V *v)
{
	if ((u->d & VEC_FORM) == VEC_MMX) {
		v->q[0] = e->cpu.x87_mant[u->b & 7];
		v->q[1] = v->q[2] = v->q[3] = 0;
	} else {
		*v = e->cpu.v[u->b];
	}
}

/* Put a result into xmm/ymm register `reg` as `form` does. */
VEC_INLINE void vec_put(struct emu *e, unsigned reg, const V *r, unsigned form)
{
	V *d = &e->cpu.v[reg];

	d->q[0] = r->q[0];
	d->q[1] = r->q[1];
	if (form == VEC_256) {
		d->q[2] = r->q[2];
		d->q[3] = r->q[3];
	} else if (form == VEC_128) {
		d->q[2] = d->q[3] = 0;
	}
}

/* The same for instructions on xmm only, whatever VEX.L says. */
VEC_INLINE void vec_put_x(struct emu *e, unsigned reg, const V *r, unsigned form)
{
	V *d = &e->cpu.v[reg];

	d->q[0] = r->q[0];
	d->q[1] = r->q[1];
	if (form != VEC_LEGACY)
		d->q[2] = d->q[3] = 0;
}

/* The result of an instruction of any form. */
VEC_INLINE void vec_result(struct emu *e, const struct emu_uop *u, const V *r)
{
	if ((u->d & VEC_FORM) == VEC_MMX) {
		mmx_enter(e);
		mmx_write(e, u->a, r->q[0]);
	} else {
		vec_put(e, u->a, r, u->d & VEC_FORM);
	}
}

/* ---- handlers from kernels -------------------------------------------------------------- */

#define VEC_ANY(name)                                                                              \
	static void any_##name(struct emu *e, const struct emu_uop *u)                             \
	{                                                                                          \
		V a, b, r;                                                                         \
		vec_source(e, u, &b);                                                              \
		vec_source1(e, u, &a);                                                             \
		if ((u->d & VEC_FORM) == VEC_MMX)                                                  \
			k_##name(&r, &a, &b, 8, 8, (unsigned)u->imm & 0xff);                       \
		else                                                                               \
			k_##name(&r, &a, &b, 32, 16, (unsigned)u->imm & 0xff);                     \
		vec_result(e, u, &r);                                                              \
	}

/* For kernels that have no MMX form. */
#define VEC_ANY_XY(name)                                                                           \
	static void any_##name(struct emu *e, const struct emu_uop *u)                             \
	{                                                                                          \
		V a, b, r;                                                                         \
		vec_source(e, u, &b);                                                              \
		a = e->cpu.v[u->b];                                                                \
		k_##name(&r, &a, &b, 32, 16, (unsigned)u->imm & 0xff);                             \
		vec_put(e, u->a, &r, u->d &VEC_FORM);                                              \
	}

/* For kernels of instructions that have xmm forms only. */
#define VEC_ANY_X(name)                                                                            \
	static void any_##name(struct emu *e, const struct emu_uop *u)                             \
	{                                                                                          \
		V a, b, r;                                                                         \
		vec_source(e, u, &b);                                                              \
		a = e->cpu.v[u->b];                                                                \
		k_##name(&r, &a, &b, 16, 16, (unsigned)u->imm & 0xff);                             \
		vec_put_x(e, u->a, &r, u->d &VEC_FORM);                                            \
	}

#define VEC_HOT_ONE(name, suffix, form, bytes)                                                     \
	static void name##_##suffix##_r(struct emu *e, const struct emu_uop *u)                    \
	{                                                                                          \
		V a, b, r;                                                                         \
		memcpy(&a, &e->cpu.v[u->b], bytes);                                                \
		memcpy(&b, &e->cpu.v[u->c], bytes);                                                \
		k_##name(&r, &a, &b, bytes, 16, (unsigned)u->imm & 0xff);                          \
		vec_put(e, u->a, &r, form);                                                        \
	}                                                                                          \
	static void name##_##suffix##_m(struct emu *e, const struct emu_uop *u)                    \
	{                                                                                          \
		V a, b, r;                                                                         \
		emu_load_vec(e, emu_ea(e, u), &b, bytes);                                          \
		memcpy(&a, &e->cpu.v[u->b], bytes);                                                \
		k_##name(&r, &a, &b, bytes, 16, (unsigned)u->imm & 0xff);                          \
		vec_put(e, u->a, &r, form);                                                        \
	}

#define VEC_HOT(name)                                                                              \
	VEC_ANY(name)                                                                              \
	VEC_HOT_ONE(name, leg, VEC_LEGACY, 16)                                                     \
	VEC_HOT_ONE(name, 128, VEC_128, 16)                                                        \
	VEC_HOT_ONE(name, 256, VEC_256, 32)

#define VEC_ROW_ANY(name, kind_)                                                                   \
	{                                                                                          \
		.any = any_##name, .kind = kind_                                                   \
	}
#define VEC_ROW_HOT(name, kind_)                                                                   \
	{                                                                                          \
		.any = any_##name,                                                                 \
		.hot = { { name##_leg_r, name##_leg_m },                                           \
			 { name##_128_r, name##_128_m },                                           \
			 { name##_256_r, name##_256_m } },                                         \
		.kind = kind_                                                                      \
	}

/* Fill in a, b, c, d and size as said above, for an instruction whose operands are
 * dst, (src1,) src2 (, imm). */
void emu_vec_bind_operands(const struct insn *in, struct emu_uop *u, enum emu_vec_kind kind);
/* The form of an instruction, by prefix and operand kind. */
enum emu_vec_form emu_vec_form(const struct insn *in);
/* The handler for this form out of a row, operands bound; NULL if the row is empty. */
emu_fn *emu_vec_bind_row(const struct emu_vec_row *row, const struct insn *in, struct emu_uop *u);

/* The parts of the family, asked in turn by emu_bind_vec(). */
emu_fn *emu_bind_vec_move(const struct insn *in, struct emu_uop *u);
emu_fn *emu_bind_vec_int(const struct insn *in, struct emu_uop *u);
emu_fn *emu_bind_vec_shuffle(const struct insn *in, struct emu_uop *u);
emu_fn *emu_bind_vec_mask(const struct insn *in, struct emu_uop *u);
emu_fn *emu_bind_vec_string(const struct insn *in, struct emu_uop *u);
emu_fn *emu_bind_vec_crypto(const struct insn *in, struct emu_uop *u);

#endif
