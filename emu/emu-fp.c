/*
 * SSE and AVX floating point: arithmetic, comparing, rounding. Conversions are in emu-fp-cvt.c, FMA
 * in emu-fp-fma.c. Semantics after SDM vol. 2 and vol. 1, chapter 11.
 *
 * An operation is a function on one element; macros make its packed handlers (operand
 * in register or memory) and scalar ones (that times legacy or VEX).
 */
#include "emu/emu-fp.h"

#include "emu/emu-flags.h"

void emu_fp_raise(struct emu *e, uint32_t flags)
{
	const uint32_t before = SFP_IE | SFP_DE | SFP_ZE; /* found before computing */
	uint32_t unmasked = flags & ~(e->cpu.mxcsr >> SFP_MASK_SHIFT);

	/* nothing was computed then: no flag of a result is set (SDM vol. 1, 11.5.3) */
	if (unmasked & before)
		flags &= before;
	e->cpu.mxcsr |= flags;
	emu_raise(e, EMU_STOP_FAULT, "floating-point exception (mxcsr %#x)", e->cpu.mxcsr);
}

/* ---- elements --------------------------------------------------------------------- */

/* What a predicate accepts: quiet sets of outcomes for imm 0..15; 16..31 repeat them. */
/* clang-format off */
static const uint8_t cmp_set[16] = {
    SFP_EQ,		      /* EQ */
    SFP_LT,		      /* LT */
    SFP_LT | SFP_EQ,	      /* LE */
    SFP_UN,		      /* UNORD */
    SFP_LT | SFP_GT | SFP_UN, /* NEQ_U */
    SFP_EQ | SFP_GT | SFP_UN, /* NLT */
    SFP_GT | SFP_UN,	      /* NLE */
    SFP_LT | SFP_EQ | SFP_GT, /* ORD */
    SFP_EQ | SFP_UN,	      /* EQ_U */
    SFP_LT | SFP_UN,	      /* NGE */
    SFP_LT | SFP_EQ | SFP_UN, /* NGT */
    0,			      /* FALSE */
    SFP_LT | SFP_GT,	      /* NEQ_O */
    SFP_EQ | SFP_GT,	      /* GE */
    SFP_GT,		      /* GT */
    15,			      /* TRUE */
};
/* clang-format on */

/* Whether predicate `p` (0..31) signals on quiet NaNs: those with an order, and the upper half
 * the other way round (SDM vol. 2, CMPPD, table 3-1). */
static inline bool cmp_signals(unsigned p)
{
	return ((0x6666u >> (p & 15)) & 1) ^ (p >> 4);
}

#define DEFINE_ELEMENTS(W)                                                                         \
	static inline uint##W##_t fp_min##W(struct sfp *s, enum emu_fp_mode m,                     \
					    const struct emu_uop *u, unsigned i, uint##W##_t a,    \
					    uint##W##_t b)                                         \
	{                                                                                          \
		(void)u, (void)i, (void)m;                                                         \
		return sfp_min##W(a, b, s);                                                        \
	}                                                                                          \
	static inline uint##W##_t fp_max##W(struct sfp *s, enum emu_fp_mode m,                     \
					    const struct emu_uop *u, unsigned i, uint##W##_t a,    \
					    uint##W##_t b)                                         \
	{                                                                                          \
		(void)u, (void)i, (void)m;                                                         \
		return sfp_max##W(a, b, s);                                                        \
	}                                                                                          \
	static inline uint##W##_t fp_sqrt##W(struct sfp *s, enum emu_fp_mode m,                    \
					     const struct emu_uop *u, unsigned i, uint##W##_t a,   \
					     uint##W##_t b)                                        \
	{                                                                                          \
		uint##W##_t r = 0;                                                                 \
		(void)u, (void)i, (void)a;                                                         \
		if (m != FP_SOFT && hostfp_sqrt##W(b, m == FP_EXACT, &r))                          \
			return r;                                                                  \
		return sfp_sqrt##W(b, s);                                                          \
	}                                                                                          \
	static inline uint##W##_t fp_cmp##W(struct sfp *s, enum emu_fp_mode m,                     \
					    const struct emu_uop *u, unsigned i, uint##W##_t a,    \
					    uint##W##_t b)                                         \
	{                                                                                          \
		unsigned p = u->imm & 31;                                                          \
		(void)i, (void)m;                                                                  \
		return sfp_cmp##W(a, b, cmp_signals(p), s) & cmp_set[p & 15] ? ~(uint##W##_t)0     \
									     : 0;                  \
	}                                                                                          \
	/* bits of the immediate: 1..0 rounding, 2 MXCSR's instead, 3 never inexact */             \
	static inline uint##W##_t fp_round##W(struct sfp *s, enum emu_fp_mode m,                   \
					      const struct emu_uop *u, unsigned i, uint##W##_t a,  \
					      uint##W##_t b)                                       \
	{                                                                                          \
		struct sfp q = { .csr = s->csr };                                                  \
		uint##W##_t r = sfp_rint##W(b, u->imm & 4 ? sfp_rm(&q) : u->imm & 3, &q);          \
		(void)i, (void)a, (void)m;                                                         \
		s->flags |= u->imm & 8 ? q.flags & ~SFP_PE : q.flags;                              \
		return r;                                                                          \
	}                                                                                          \
	static inline uint##W##_t fp_addsub##W(struct sfp *s, enum emu_fp_mode m,                  \
					       const struct emu_uop *u, unsigned i, uint##W##_t a, \
					       uint##W##_t b)                                      \
	{                                                                                          \
		return i & 1 ? fp_add##W(s, m, u, i, a, b) : fp_sub##W(s, m, u, i, a, b);          \
	}
DEFINE_ELEMENTS(32)
DEFINE_ELEMENTS(64)

/* ---- handlers ---------------------------------------------------------------------- */

/* The second operand of a packed instruction: `do_` gets it as a vector. */
#define FROM_BOTH(NAME)                                                                            \
	static void NAME##_r(struct emu *e, const struct emu_uop *u)                               \
	{                                                                                          \
		NAME##_do(e, u, &e->cpu.v[u->c]);                                                  \
	}                                                                                          \
	static void NAME##_m(struct emu *e, const struct emu_uop *u)                               \
	{                                                                                          \
		union emu_vec t;                                                                   \
		emu_load_vec(e, emu_ea(e, u), &t, u->size);                                        \
		NAME##_do(e, u, &t);                                                               \
	}

#define PACKED(NAME, W, EL, VEC)                                                                   \
	static inline void NAME##_do(struct emu *e, const struct emu_uop *u,                       \
				     const union emu_vec *y)                                       \
	{                                                                                          \
		const union emu_vec *x = &e->cpu.v[u->b];                                          \
		struct sfp s = emu_fp_begin(e);                                                    \
		enum emu_fp_mode m = emu_fp_mode(e);                                               \
		unsigned size = u->size;                                                           \
		union emu_vec r = { 0 };                                                           \
		for (unsigned k = 0; k < size / 16; k++) {                                         \
			if (m == FP_HOST && VEC##W(&x->q[2 * k], &y->q[2 * k], &r.q[2 * k]))       \
				continue;                                                          \
			for (unsigned i = k * (128 / W); i < (k + 1) * (128 / W); i++)             \
				V##W(&r, i) = EL##W(&s, m, u, i, V##W(x, i), V##W(y, i));          \
		}                                                                                  \
		emu_fp_commit(e, &s);                                                              \
		emu_fp_put_packed(e, u, &r, size);                                                 \
	}                                                                                          \
	FROM_BOTH(NAME)

/* Pairs of neighbours, of the first source then of the second, within each 16 bytes. */
#define HORIZONTAL(NAME, W, EL)                                                                    \
	static inline void NAME##_do(struct emu *e, const struct emu_uop *u,                       \
				     const union emu_vec *y)                                       \
	{                                                                                          \
		const union emu_vec *x = &e->cpu.v[u->b];                                          \
		const unsigned n = 128 / W;                                                        \
		struct sfp s = emu_fp_begin(e);                                                    \
		enum emu_fp_mode m = emu_fp_mode(e);                                               \
		union emu_vec r;                                                                   \
		for (unsigned i = 0; i < u->size * 8u / W; i++) {                                  \
			const union emu_vec *v = i % n < n / 2 ? x : y;                            \
			unsigned k = i / n * n + i % (n / 2) * 2;                                  \
			V##W(&r, i) = EL##W(&s, m, u, i, V##W(v, k), V##W(v, k + 1));              \
		}                                                                                  \
		emu_fp_commit(e, &s);                                                              \
		emu_fp_put_packed(e, u, &r, u->size);                                              \
	}                                                                                          \
	FROM_BOTH(NAME)

#define SCALAR1(NAME, W, EL, VEX, FORM, SOURCE)                                                    \
	static void NAME##_##FORM(struct emu *e, const struct emu_uop *u)                          \
	{                                                                                          \
		uint##W##_t y = SOURCE, r;                                                         \
		struct sfp s = emu_fp_begin(e);                                                    \
		enum emu_fp_mode m = emu_fp_mode(e);                                               \
		r = EL##W(&s, m, u, 0, V##W(&e->cpu.v[u->b], 0), y);                               \
		emu_fp_commit(e, &s);                                                              \
		FP_PUT_SCALAR(W, e, u, VEX, r);                                                    \
	}
#define SCALAR(NAME, W, EL)                                                                        \
	SCALAR1(NAME, W, EL, 0, r, V##W(&e->cpu.v[u->c], 0))                                       \
	SCALAR1(NAME, W, EL, 0, m, emu_load##W(e, emu_ea(e, u)))                                   \
	SCALAR1(NAME, W, EL, 1, vr, V##W(&e->cpu.v[u->c], 0))                                      \
	SCALAR1(NAME, W, EL, 1, vm, emu_load##W(e, emu_ea(e, u)))

#define ALL_FOUR(NAME, EL, VEC)                                                                    \
	PACKED(NAME##ps, 32, EL, VEC)                                                              \
	PACKED(NAME##pd, 64, EL, VEC)                                                              \
	SCALAR(NAME##ss, 32, EL)                                                                   \
	SCALAR(NAME##sd, 64, EL)
ALL_FOUR(add, fp_add, hostfp_addv)
ALL_FOUR(sub, fp_sub, hostfp_subv)
ALL_FOUR(mul, fp_mul, hostfp_mulv)
ALL_FOUR(div, fp_div, hostfp_divv)
ALL_FOUR(min, fp_min, hostfp_nonev)
ALL_FOUR(max, fp_max, hostfp_nonev)
ALL_FOUR(sqrt, fp_sqrt, hostfp_nonev)
ALL_FOUR(cmp, fp_cmp, hostfp_nonev)
ALL_FOUR(round, fp_round, hostfp_nonev)
PACKED(addsubps, 32, fp_addsub, hostfp_nonev)
PACKED(addsubpd, 64, fp_addsub, hostfp_nonev)
HORIZONTAL(haddps, 32, fp_add)
HORIZONTAL(haddpd, 64, fp_add)
HORIZONTAL(hsubps, 32, fp_sub)
HORIZONTAL(hsubpd, 64, fp_sub)

/* ZF PF CF: unordered 111, greater 000, less 001, equal 100; OF, AF, SF cleared. */
static inline void put_comparison(struct emu *e, unsigned r)
{
	emu_set_flags(e, r == SFP_UN   ? DJ_FLAG_ZF | DJ_FLAG_PF | DJ_FLAG_CF
			 : r == SFP_GT ? 0
			 : r == SFP_LT ? DJ_FLAG_CF
				       : DJ_FLAG_ZF);
}
#define COMPARE1(NAME, W, SIGNAL, FORM, SOURCE)                                                    \
	static void NAME##_##FORM(struct emu *e, const struct emu_uop *u)                          \
	{                                                                                          \
		uint##W##_t y = SOURCE;                                                            \
		struct sfp s = emu_fp_begin(e);                                                    \
		unsigned r = sfp_cmp##W(V##W(&e->cpu.v[u->a], 0), y, SIGNAL, &s);                  \
		emu_fp_commit(e, &s);                                                              \
		put_comparison(e, r);                                                              \
	}
#define COMPARE(NAME, W, SIGNAL)                                                                   \
	COMPARE1(NAME, W, SIGNAL, r, V##W(&e->cpu.v[u->c], 0))                                     \
	COMPARE1(NAME, W, SIGNAL, m, emu_load##W(e, emu_ea(e, u)))
COMPARE(comiss, 32, true)
COMPARE(comisd, 64, true)
COMPARE(ucomiss, 32, false)
COMPARE(ucomisd, 64, false)

/*
 * Dot products: bits 7..4 of the immediate choose products (others count as +0), bits 3..0 where
 * the sum goes. In which order they are added shows when there are several NaNs: which one wins
 * was found out on the CPUs, the manual leaves it open. On Intel's each element of the result is a
 * sum of its own; on AMD's all are the same sum, of the products in their order.
 */
static inline void dpps_sum(struct emu *e, const struct emu_uop *u, const union emu_vec *y,
			    bool amd)
{
	const union emu_vec *x = &e->cpu.v[u->b];
	struct sfp s = emu_fp_begin(e);
	enum emu_fp_mode m = emu_fp_mode(e);
	union emu_vec r = { 0 };

	for (unsigned k = 0; k < u->size / 4u; k += 4) {
		uint32_t p[4], t[4];
		for (unsigned i = 0; i < 4; i++)
			p[i] = u->imm >> (4 + i) & 1
				       ? fp_mul32(&s, m, u, i, VD(x, k + i), VD(y, k + i))
				       : 0;
		for (unsigned i = 0; i < 4; i++)
			t[i] = amd ? fp_add32(&s, m, u, i, p[i & 2], p[i | 1])
				   : fp_add32(&s, m, u, i, p[i ^ 1], p[i]);
		for (unsigned i = 0; i < 4; i++) {
			uint32_t sum = amd ? fp_add32(&s, m, u, i, t[0], t[2])
					   : fp_add32(&s, m, u, i, t[i], t[i ^ 2]);
			VD(&r, k + i) = u->imm >> i & 1 ? sum : 0;
		}
	}
	emu_fp_commit(e, &s);
	emu_fp_put_packed(e, u, &r, u->size);
}
static inline void dpps_do(struct emu *e, const struct emu_uop *u, const union emu_vec *y)
{
	dpps_sum(e, u, y, false);
}
static inline void dpps_amd_do(struct emu *e, const struct emu_uop *u, const union emu_vec *y)
{
	dpps_sum(e, u, y, true);
}
FROM_BOTH(dpps)
FROM_BOTH(dpps_amd)

static inline void dppd_sum(struct emu *e, const struct emu_uop *u, const union emu_vec *y,
			    bool amd)
{
	const union emu_vec *x = &e->cpu.v[u->b];
	struct sfp s = emu_fp_begin(e);
	enum emu_fp_mode m = emu_fp_mode(e);
	union emu_vec r;
	uint64_t p[2];

	for (unsigned i = 0; i < 2; i++)
		p[i] = u->imm >> (4 + i) & 1 ? fp_mul64(&s, m, u, i, VQ(x, i), VQ(y, i)) : 0;
	for (unsigned i = 0; i < 2; i++) {
		uint64_t sum = amd ? fp_add64(&s, m, u, i, p[0], p[1])
				   : fp_add64(&s, m, u, i, p[i], p[i ^ 1]);
		VQ(&r, i) = u->imm >> i & 1 ? sum : 0;
	}
	emu_fp_commit(e, &s);
	emu_fp_put_packed(e, u, &r, 16);
}
static inline void dppd_do(struct emu *e, const struct emu_uop *u, const union emu_vec *y)
{
	dppd_sum(e, u, y, false);
}
static inline void dppd_amd_do(struct emu *e, const struct emu_uop *u, const union emu_vec *y)
{
	dppd_sum(e, u, y, true);
}
FROM_BOTH(dppd)
FROM_BOTH(dppd_amd)

/* ---- binding ----------------------------------------------------------------------- */

/* Indexed by form: register, memory, VEX register, VEX memory. */
struct row {
	emu_fn *fn[4];
};
#define ROW_P(ID, NAME) [INSN_##ID - INSN_ADDPS] = { { NAME##_r, NAME##_m, NAME##_r, NAME##_m } }
#define ROW_S(ID, NAME) [INSN_##ID - INSN_ADDPS] = { { NAME##_r, NAME##_m, NAME##_vr, NAME##_vm } }
#define ROW_4(ID, NAME)                                                                            \
	ROW_P(ID##PS, NAME##ps), ROW_P(ID##PD, NAME##pd), ROW_S(ID##SS, NAME##ss),                 \
		ROW_S(ID##SD, NAME##sd)

/* clang-format off */
static const struct row rows[] = {
    ROW_4(ADD, add),	     ROW_4(SUB, sub),		ROW_4(MUL, mul),
    ROW_4(DIV, div),	     ROW_4(MIN, min),		ROW_4(MAX, max),
    ROW_4(SQRT, sqrt),	     ROW_4(ROUND, round),	ROW_P(CMPPS, cmpps),
    ROW_P(CMPPD, cmppd),     ROW_S(CMPSS, cmpss),	ROW_S(CMPSDX, cmpsd),
    ROW_P(COMISS, comiss),   ROW_P(COMISD, comisd),	ROW_P(UCOMISS, ucomiss),
    ROW_P(UCOMISD, ucomisd), ROW_P(ADDSUBPS, addsubps), ROW_P(ADDSUBPD, addsubpd),
    ROW_P(HADDPS, haddps),   ROW_P(HADDPD, haddpd),	ROW_P(HSUBPS, hsubps),
    ROW_P(HSUBPD, hsubpd),   ROW_P(DPPS, dpps),		ROW_P(DPPD, dppd),
};
/* clang-format on */
static const struct row rows_amd[] = { ROW_P(DPPS, dpps_amd), ROW_P(DPPD, dppd_amd) };

void emu_fp_operands(const struct insn *in, struct emu_uop *u)
{
	unsigned n = in->nopnd;

	if (n && in->opnd[n - 1].kind == OPND_IMM)
		n--;
	u->a = in->opnd[0].reg;
	u->b = in->opnd[in->vex && n >= 3 ? 1 : 0].reg;
	u->c = n ? in->opnd[n - 1].reg : 0;
	u->d = in->vex != 0;
	u->size = in->vex && in->vex_l ? 32 : 16;
}

/* RCPxx and RSQRTxx have no row: their results differ between CPUs, so they are recorded. */
emu_fn *emu_bind_fp(const struct insn *in, struct emu_uop *u)
{
	if (in->id < INSN_ADDPS || in->id > INSN_VFMSUBADDPD)
		return NULL;
	unsigned k = in->id - INSN_ADDPS;
	if (k < sizeof(rows) / sizeof(rows[0]) && rows[k].fn[0]) {
		emu_fp_operands(in, u);
		/* legacy compares know eight predicates */
		if (!in->vex && (in->id == INSN_CMPPS || in->id == INSN_CMPPD ||
				 in->id == INSN_CMPSS || in->id == INSN_CMPSDX))
			u->imm &= 7;
		bool own = in->cpu == DJ_CPU_AMD && (in->id == INSN_DPPS || in->id == INSN_DPPD);
		return (own ? rows_amd : rows)[k].fn[(in->vex ? 2 : 0) + (in->has_mem ? 1 : 0)];
	}
	emu_fn *fn = emu_fp_bind_cvt(in, u);
	return fn ? fn : emu_fp_bind_fma(in, u);
}
