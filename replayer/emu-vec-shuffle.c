/*
 * Vector instructions that move elements about without changing them: shuffles, unpacks,
 * packs, blends, permutations, widening moves, inserts and broadcasts within registers.
 *
 * Elements have an order here, so all access is through VB/VW/VD/VQ.
 *
 * Facts are from the SDM, volume 2, the page of each instruction.
 */
#include "replayer/emu-vec.h"

#define KERNEL(name)                                                                               \
	VEC_INLINE void k_##name(V *r, const V *a, const V *b, unsigned n, unsigned lane,          \
				 unsigned imm)
#define UNUSED (void)a, (void)b, (void)n, (void)lane, (void)imm

/* ---- bytes ------------------------------------------------------------------------------- */

KERNEL(PSHUFB)
{
	UNUSED;
	for (unsigned l = 0; l < n; l += lane)
		for (unsigned i = 0; i < lane; i++) {
			uint8_t c = VB(b, l + i);

			VB(r, l + i) = c & 0x80 ? 0 : VB(a, l + (c & (lane - 1)));
		}
}
VEC_HOT(PSHUFB)

/* Bytes imm... of the lane pair a:b, b being the low one. */
KERNEL(PALIGNR)
{
	UNUSED;
	for (unsigned l = 0; l < n; l += lane) {
		uint8_t bytes[64] = {0}; /* zeros follow the pair */

		if (imm >= 2 * lane)
			imm = 2 * lane;
		for (unsigned i = 0; i < lane; i++) {
			bytes[i] = VB(b, l + i);
			bytes[lane + i] = VB(a, l + i);
		}
		for (unsigned i = 0; i < lane; i++)
			VB(r, l + i) = bytes[imm + i];
	}
}
VEC_HOT(PALIGNR)

/* ---- elements picked by an immediate ------------------------------------------------------ */

/* N elements a lane; element i comes from `expr`, in which L is the lane's first element. */
#define PICK(name, macro, N, expr)                                                                 \
	KERNEL(name)                                                                               \
	{                                                                                          \
		UNUSED;                                                                            \
		for (unsigned L = 0; L < n / (lane / (N)); L += (N))                               \
			for (unsigned i = 0; i < (N); i++)                                         \
				macro(r, L + i) = (expr);                                          \
	}

#define TWO(i) (imm >> (2 * (i)) & 3)

PICK(PSHUFD, VD, 4, VD(b, L + TWO(i)))
PICK(PSHUFLW, VW, 8, VW(b, L + (i < 4 ? TWO(i) : i)))
PICK(PSHUFHW, VW, 8, VW(b, L + (i < 4 ? i : 4 + TWO(i - 4))))
PICK(SHUFPS, VD, 4, i < 2 ? VD(a, L + TWO(i)) : VD(b, L + TWO(i)))
PICK(SHUFPD, VQ, 2, i < 1 ? VQ(a, L + (imm >> L & 1)) : VQ(b, L + (imm >> (L + 1) & 1)))
PICK(VPERMILPS, VD, 4, VD(a, L + (VD(b, L + i) & 3)))
PICK(VPERMILPD, VQ, 2, VQ(a, L + (VQ(b, L + i) >> 1 & 1)))
PICK(VPERMILPSI, VD, 4, VD(b, L + TWO(i)))
PICK(VPERMILPDI, VQ, 2, VQ(b, L + (imm >> (L + i) & 1)))
PICK(PBLENDW, VW, 8, imm >> i & 1 ? VW(b, L + i) : VW(a, L + i))
PICK(BLENDPS, VD, 4, imm >> (L + i) & 1 ? VD(b, L + i) : VD(a, L + i))
PICK(BLENDPD, VQ, 2, imm >> (L + i) & 1 ? VQ(b, L + i) : VQ(a, L + i))
PICK(MOVDDUP, VQ, 2, VQ(b, L))
PICK(MOVSLDUP, VD, 4, VD(b, (L + i) & ~1u))
PICK(MOVSHDUP, VD, 4, VD(b, (L + i) | 1))
/* no lanes: all 256 bits are one */
PICK(VPERMD, VD, 4, VD(b, VD(a, L + i) & 7))
PICK(VPERMQ, VQ, 2, VQ(b, TWO(L + i)))
PICK(VPBROADCASTB, VB, 16, VB(b, 0))
PICK(VPBROADCASTW, VW, 8, VW(b, 0))
PICK(VPBROADCASTD, VD, 4, VD(b, 0))
PICK(VPBROADCASTQ, VQ, 2, VQ(b, 0))
PICK(VBROADCASTI128, VQ, 2, VQ(b, i))
PICK(VINSERTI128, VQ, 2, (L >> 1) == (imm & 1) ? VQ(b, i) : VQ(a, L + i))

VEC_HOT(PSHUFD)
VEC_ANY_XY(PSHUFLW)
VEC_ANY_XY(PSHUFHW)
VEC_HOT(SHUFPS)
VEC_HOT(SHUFPD)
VEC_ANY_XY(VPERMILPS)
VEC_ANY_XY(VPERMILPD)
VEC_ANY_XY(VPERMILPSI)
VEC_ANY_XY(VPERMILPDI)
VEC_ANY_XY(PBLENDW)
VEC_ANY_XY(BLENDPS)
VEC_ANY_XY(BLENDPD)
VEC_ANY_XY(MOVDDUP)
VEC_ANY_XY(MOVSLDUP)
VEC_ANY_XY(MOVSHDUP)
VEC_ANY_XY(VPERMD)
VEC_ANY_XY(VPERMQ)
VEC_ANY_XY(VPBROADCASTB)
VEC_ANY_XY(VPBROADCASTW)
VEC_ANY_XY(VPBROADCASTD)
VEC_ANY_XY(VPBROADCASTQ)
VEC_ANY_XY(VBROADCASTI128)
VEC_ANY_XY(VINSERTI128)

/* Each half of the result is one of four halves, or zero (SDM, VPERM2F128). */
KERNEL(VPERM2I128)
{
	UNUSED;
	for (unsigned l = 0; l < 4; l += 2, imm >>= 4) {
		const V *s = imm & 2 ? b : a;

		r->q[l] = imm & 8 ? 0 : s->q[(imm & 1) * 2];
		r->q[l + 1] = imm & 8 ? 0 : s->q[(imm & 1) * 2 + 1];
	}
}
VEC_ANY_XY(VPERM2I128)

/* ---- unpack and pack ---------------------------------------------------------------------- */

/* Elements of a and b in turn, from element `from` of each lane on. */
#define UNPACK(name, macro, bytes, high)                                                           \
	KERNEL(name)                                                                               \
	{                                                                                          \
		UNUSED;                                                                            \
		const unsigned N = lane / (bytes), from = (high) ? N / 2 : 0;                      \
		for (unsigned L = 0; L < n / (bytes); L += N)                                      \
			for (unsigned i = 0; i < N; i += 2) {                                      \
				macro(r, L + i) = macro(a, L + from + i / 2);                      \
				macro(r, L + i + 1) = macro(b, L + from + i / 2);                  \
			}                                                                          \
	}                                                                                          \
	VEC_HOT(name)

UNPACK(PUNPCKLBW, VB, 1, 0)
UNPACK(PUNPCKLWD, VW, 2, 0)
UNPACK(PUNPCKLDQ, VD, 4, 0)
UNPACK(PUNPCKHBW, VB, 1, 1)
UNPACK(PUNPCKHWD, VW, 2, 1)
UNPACK(PUNPCKHDQ, VD, 4, 1)

PICK(PUNPCKLQDQ, VQ, 2, i ? VQ(b, L) : VQ(a, L))
PICK(PUNPCKHQDQ, VQ, 2, i ? VQ(b, L + 1) : VQ(a, L + 1))
VEC_HOT(PUNPCKLQDQ)
VEC_HOT(PUNPCKHQDQ)

/* Narrow the elements of a, then those of b, within each lane. */
#define PACK(name, to, from, type, bytes, low, high)                                               \
	KERNEL(name)                                                                               \
	{                                                                                          \
		UNUSED;                                                                            \
		const unsigned N = lane / (bytes);                                                 \
		for (unsigned L = 0; L < n / (bytes); L += N)                                      \
			for (unsigned i = 0; i < N; i++) {                                         \
				const V *s = i < N / 2 ? a : b;                                    \
				type x = (type)from(s, L / 2 + i % (N / 2));                       \
				to(r, L + i) = x < (low) ? (low) : x > (high) ? (high) : x;        \
			}                                                                          \
	}                                                                                          \
	VEC_HOT(name)

PACK(PACKSSWB, VB, VW, int16_t, 1, -128, 127)
PACK(PACKUSWB, VB, VW, int16_t, 1, 0, 255)
PACK(PACKSSDW, VW, VD, int32_t, 2, -32768, 32767)
PACK(PACKUSDW, VW, VD, int32_t, 2, 0, 65535)

/* ---- widening ------------------------------------------------------------------------------ */

#define WIDEN(name, to, to_bytes, from, type)                                                      \
	KERNEL(name)                                                                               \
	{                                                                                          \
		UNUSED;                                                                            \
		for (unsigned i = 0; i < n / (to_bytes); i++)                                      \
			to(r, i) = (type)from(b, i);                                               \
	}                                                                                          \
	VEC_ANY_XY(name)

#define WIDENING(X)                                                                                \
	X(PMOVSXBW, VW, 2, VB, int8_t)                                                             \
	X(PMOVSXBD, VD, 4, VB, int8_t)                                                             \
	X(PMOVSXBQ, VQ, 8, VB, int8_t)                                                             \
	X(PMOVSXWD, VD, 4, VW, int16_t)                                                            \
	X(PMOVSXWQ, VQ, 8, VW, int16_t)                                                            \
	X(PMOVSXDQ, VQ, 8, VD, int32_t)                                                            \
	X(PMOVZXBW, VW, 2, VB, uint8_t)                                                            \
	X(PMOVZXBD, VD, 4, VB, uint8_t)                                                            \
	X(PMOVZXBQ, VQ, 8, VB, uint8_t)                                                            \
	X(PMOVZXWD, VD, 4, VW, uint16_t)                                                           \
	X(PMOVZXWQ, VQ, 8, VW, uint16_t)                                                           \
	X(PMOVZXDQ, VQ, 8, VD, uint32_t)
WIDENING(WIDEN)

/* ---- blends by a mask register ------------------------------------------------------------- */

/* The mask, register u->cond, selects b by the top bit of each element. */
#define BLENDV(name, macro, count, sign)                                                           \
	static void any_##name(struct emu *e, const struct uop *u)                                 \
	{                                                                                          \
		V a, b, r, m;                                                                      \
		vec_source(e, u, &b);                                                              \
		a = e->cpu.v[u->b];                                                                \
		m = e->cpu.v[u->cond];                                                             \
		for (unsigned i = 0; i < (count); i++)                                             \
			macro(&r, i) = macro(&m, i) & (sign) ? macro(&b, i) : macro(&a, i);        \
		vec_put(e, u->a, &r, u->d & VEC_FORM);                                             \
	}
BLENDV(PBLENDVB, VB, 32, 0x80)
BLENDV(BLENDVPS, VD, 8, 1u << 31)
BLENDV(BLENDVPD, VQ, 4, 1ULL << 63)

/* ---- INSERTPS -------------------------------------------------------------------------------- */

static void any_INSERTPS(struct emu *e, const struct uop *u)
{
	V a, b;
	unsigned imm = (unsigned)u->imm;
	uint32_t x;

	vec_source(e, u, &b);
	a = e->cpu.v[u->b];
	x = VD(&b, u->d & VEC_MEM ? 0 : imm >> 6 & 3);
	VD(&a, imm >> 4 & 3) = x;
	for (unsigned i = 0; i < 4; i++)
		if (imm >> i & 1)
			VD(&a, i) = 0;
	vec_put(e, u->a, &a, u->d & VEC_FORM);
}

/* ---- tables ----------------------------------------------------------------------------------- */

#define BIN(id) [INSN_##id] = VEC_ROW_ANY(id, VEC_BINARY)
#define BIN_HOT(id) [INSN_##id] = VEC_ROW_HOT(id, VEC_BINARY)
#define UN(id) [INSN_##id] = VEC_ROW_ANY(id, VEC_UNARY)

static const struct vec_row rows[INSN_IDS] = {
#define X(id, to, to_bytes, from, type) UN(id),
	WIDENING(X)
#undef X
	BIN_HOT(PSHUFB),
	BIN_HOT(PALIGNR),
	[INSN_PSHUFD] = VEC_ROW_HOT(PSHUFD, VEC_UNARY),
	UN(PSHUFLW),
	UN(PSHUFHW),
	BIN_HOT(SHUFPS),
	BIN_HOT(SHUFPD),
	BIN(VPERMILPS),
	BIN(VPERMILPD),
	BIN(PBLENDW),
	BIN(BLENDPS),
	BIN(BLENDPD),
	[INSN_VPBLENDD] = VEC_ROW_ANY(BLENDPS, VEC_BINARY),
	BIN(PBLENDVB),
	BIN(BLENDVPS),
	BIN(BLENDVPD),
	UN(MOVDDUP),
	UN(MOVSLDUP),
	UN(MOVSHDUP),
	BIN(VPERMD),
	[INSN_VPERMPS] = VEC_ROW_ANY(VPERMD, VEC_BINARY),
	UN(VPERMQ),
	[INSN_VPERMPD] = VEC_ROW_ANY(VPERMQ, VEC_UNARY),
	BIN(VPERM2I128),
	[INSN_VPERM2F128] = VEC_ROW_ANY(VPERM2I128, VEC_BINARY),
	UN(VPBROADCASTB),
	UN(VPBROADCASTW),
	UN(VPBROADCASTD),
	UN(VPBROADCASTQ),
	[INSN_VBROADCASTSS] = VEC_ROW_ANY(VPBROADCASTD, VEC_UNARY),
	[INSN_VBROADCASTSD] = VEC_ROW_ANY(VPBROADCASTQ, VEC_UNARY),
	UN(VBROADCASTI128),
	[INSN_VBROADCASTF128] = VEC_ROW_ANY(VBROADCASTI128, VEC_UNARY),
	BIN(VINSERTI128),
	[INSN_VINSERTF128] = VEC_ROW_ANY(VINSERTI128, VEC_BINARY),
	BIN_HOT(PUNPCKLBW),
	BIN_HOT(PUNPCKLWD),
	BIN_HOT(PUNPCKLDQ),
	BIN_HOT(PUNPCKLQDQ),
	BIN_HOT(PUNPCKHBW),
	BIN_HOT(PUNPCKHWD),
	BIN_HOT(PUNPCKHDQ),
	BIN_HOT(PUNPCKHQDQ),
	[INSN_UNPCKLPS] = VEC_ROW_HOT(PUNPCKLDQ, VEC_BINARY),
	[INSN_UNPCKHPS] = VEC_ROW_HOT(PUNPCKHDQ, VEC_BINARY),
	[INSN_UNPCKLPD] = VEC_ROW_HOT(PUNPCKLQDQ, VEC_BINARY),
	[INSN_UNPCKHPD] = VEC_ROW_HOT(PUNPCKHQDQ, VEC_BINARY),
	BIN_HOT(PACKSSWB),
	BIN_HOT(PACKSSDW),
	BIN_HOT(PACKUSWB),
	BIN_HOT(PACKUSDW),
	BIN(INSERTPS),
};

static const struct vec_row permil_ps_imm = VEC_ROW_ANY(VPERMILPSI, VEC_UNARY);
static const struct vec_row permil_pd_imm = VEC_ROW_ANY(VPERMILPDI, VEC_UNARY);

emu_fn *emu_bind_vec_shuffle(const struct insn *in, struct uop *u)
{
	bool by_imm = in->nopnd && in->opnd[in->nopnd - 1].kind == OPND_IMM;

	if (in->id == INSN_VPERMILPS && by_imm)
		return vec_bind_row(&permil_ps_imm, in, u);
	if (in->id == INSN_VPERMILPD && by_imm)
		return vec_bind_row(&permil_pd_imm, in, u);
	if (in->id == INSN_PBLENDVB || in->id == INSN_BLENDVPS || in->id == INSN_BLENDVPD) {
		/* VEX: the fourth operand; legacy: xmm0 */
		u->cond = in->vex ? in->opnd[3].reg : 0;
	}
	return vec_bind_row(&rows[in->id], in, u);
}
