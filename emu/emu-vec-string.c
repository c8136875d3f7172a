/*
 * The SSE4.2 string comparisons: pcmpestri, pcmpestrm, pcmpistri, pcmpistrm.
 *
 * The immediate tells the element type, how elements of the two operands are compared and
 * combined, and which output is wanted (SDM vol. 2B, 4.1). The first operand is the
 * set, the ranges or the needle; the second is the text, to whose elements the bits of the
 * intermediate results belong.
 */
#include "emu/emu-flags.h"
#include "emu/emu-vec.h"

struct text {
	int el[16];
	unsigned n; /* valid elements */
};

/* Elements as the immediate types them: 8 or 16 bits, unsigned or signed. */
static void take(struct text *t, const V *v, unsigned imm)
{
	for (unsigned i = 0; i < 16; i++)
		t->el[i] = !(imm & 1) ? (imm & 2 ? (int8_t)VB(v, i) : VB(v, i))
			   : i < 8    ? (imm & 2 ? (int16_t)VW(v, i) : VW(v, i))
				      : 0;
}

static unsigned implicit_length(const struct text *t, unsigned max)
{
	unsigned n = 0;

	while (n < max && t->el[n])
		n++;
	return n;
}

/* |x|, at most max, of the 32- or 64-bit register value. */
static unsigned explicit_length(uint64_t x, bool wide, unsigned max)
{
	if (!wide)
		x = (uint64_t)(int64_t)(int32_t)x;
	if (x >> 63)
		x = -x;
	return x > max ? max : (unsigned)x;
}

/* IntRes1 of the SDM: a bit for each of the `max` elements of b. */
static unsigned aggregate(const struct text *a, const struct text *b, unsigned max, unsigned how)
{
	unsigned res = 0;

	for (unsigned j = 0; j < max; j++) {
		bool yes = false;

		switch (how) {
		case 0: /* equal any */
			for (unsigned i = 0; i < a->n; i++)
				yes |= a->el[i] == b->el[j];
			yes &= j < b->n;
			break;
		case 1: /* ranges: pairs of bounds, both valid */
			for (unsigned i = 0; i + 1 < a->n; i += 2)
				yes |= a->el[i] <= b->el[j] && b->el[j] <= a->el[i + 1];
			yes &= j < b->n;
			break;
		case 2: /* equal each: two ends of text are equal */
			yes = j < a->n && j < b->n ? a->el[j] == b->el[j] : j >= a->n && j >= b->n;
			break;
		default: /* equal ordered: the needle, as far as it fits, begins at j */
			yes = true;
			for (unsigned i = 0; i < a->n && i + j < max; i++)
				yes &= i + j < b->n && a->el[i] == b->el[i + j];
		}
		res |= (unsigned)yes << j;
	}
	return res;
}

/* u->cond: bit 0, lengths are in rax and rdx; bit 1, all 64 bits of them. */
VEC_INLINE unsigned compare(struct emu *e, const struct emu_uop *u)
{
	unsigned imm = (unsigned)u->imm, max = imm & 1 ? 8 : 16, all = (1u << max) - 1, res;
	struct text a, b;
	V vb;

	vec_source(e, u, &vb);
	take(&a, &e->cpu.v[u->b], imm);
	take(&b, &vb, imm);
	if (u->cond & 1) {
		a.n = explicit_length(e->cpu.gpr[DJ_RAX], u->cond & 2, max);
		b.n = explicit_length(e->cpu.gpr[DJ_RDX], u->cond & 2, max);
	} else {
		a.n = implicit_length(&a, max);
		b.n = implicit_length(&b, max);
	}
	res = aggregate(&a, &b, max, imm >> 2 & 3);
	if (imm & 0x10)
		res ^= imm & 0x20 ? (1u << b.n) - 1 : all;
	emu_set_flags(e, (res ? DJ_FLAG_CF : 0) | (b.n < max ? DJ_FLAG_ZF : 0) |
				 (a.n < max ? DJ_FLAG_SF : 0) | (res & 1 ? DJ_FLAG_OF : 0));
	return res;
}

static void pcmpstri(struct emu *e, const struct emu_uop *u)
{
	unsigned res = compare(e, u);

	e->cpu.gpr[DJ_RCX] = !res	     ? (u->imm & 1 ? 8u : 16u)
			     : u->imm & 0x40 ? 31u - (unsigned)__builtin_clz(res)
					     : (unsigned)__builtin_ctz(res);
}

static void pcmpstrm(struct emu *e, const struct emu_uop *u)
{
	unsigned res = compare(e, u);
	V r = { .q = { 0 } };

	if (!(u->imm & 0x40))
		r.q[0] = res;
	else if (u->imm & 1)
		for (unsigned i = 0; i < 8; i++)
			VW(&r, i) = res >> i & 1 ? 0xffff : 0;
	else
		for (unsigned i = 0; i < 16; i++)
			VB(&r, i) = res >> i & 1 ? 0xff : 0;
	vec_put_x(e, 0, &r, u->d & VEC_FORM);
}

emu_fn *emu_bind_vec_string(const struct insn *in, struct emu_uop *u)
{
	bool explicit = in->id == INSN_PCMPESTRI || in->id == INSN_PCMPESTRM;
	bool wide = in->vex ? in->vex_w : in->rex & 8;

	if (!explicit && in->id != INSN_PCMPISTRI && in->id != INSN_PCMPISTRM)
		return NULL;
	/* both operands are sources, the first always a register */
	emu_vec_bind_operands(in, u, VEC_UNARY);
	u->cond = (uint8_t)(explicit | wide << 1);
	return in->id == INSN_PCMPESTRI || in->id == INSN_PCMPISTRI ? pcmpstri : pcmpstrm;
}
