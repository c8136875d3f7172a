/*
 * Vector instructions that move elements about without changing them: shuffles, unpacks,
 * packs, blends, permutations, widening moves, inserts and broadcasts within registers.
 *
 * Elements have an order here, so all access is through VB/VW/VD/VQ. Results of the
 * frequent ones are put together as 64-bit words: elements stored one by one and then read
 * as a vector would wait for the stores.
 *
 * Facts are from the SDM, volume 2, the page of each instruction.
 */
#include "emu/emu-vec.h"

#define KERNEL(name)                                                                               \
	VEC_INLINE void k_##name(V *r, const V *a, const V *b, unsigned n, unsigned lane,          \
				 unsigned imm)
#define UNUSED (void)a, (void)b, (void)n, (void)lane, (void)imm

/* A kernel made of word(q), the q-th word of the result; written out so that the words stay
 * in registers. */
#define WORDS(name, a, b)                                                                          \
	r->q[0] = word_##name(a, b, 0, lane, imm);                                                 \
	if (n > 8)                                                                                 \
		r->q[1] = word_##name(a, b, 1, lane, imm);                                         \
	if (n > 16) {                                                                              \
		r->q[2] = word_##name(a, b, 2, lane, imm);                                         \
		r->q[3] = word_##name(a, b, 3, lane, imm);                                         \
	}
#define BY_WORDS(name) KERNEL(name){ WORDS(name, a, b) } VEC_HOT(name)
#define WORD(name)                                                                                 \
	VEC_INLINE uint64_t word_##name(const V *a, const V *b, unsigned q, unsigned lane,         \
					unsigned imm)
#define WORD_UNUSED (void)a, (void)b, (void)q, (void)lane, (void)imm

/* ---- bytes ------------------------------------------------------------------------------- */

WORD(PSHUFB)
{
	const unsigned l = 8 * q & ~(lane - 1);
	const uint64_t c = b->q[q];
	uint64_t x;

	(void)imm;
#define BYTE(i) ((uint64_t)VB(a, l + (c >> 8 * (i) & (lane - 1))) << 8 * (i))
	x = BYTE(0) | BYTE(1) | BYTE(2) | BYTE(3) | BYTE(4) | BYTE(5) | BYTE(6) | BYTE(7);
#undef BYTE
	/* bytes whose selector has bit 7 set are zero */
	return x & ~((c >> 7 & 0x0101010101010101) * 0xff);
}
BY_WORDS(PSHUFB)

/* Word k of the lane pair a:b, b being the low one, and of the zeros that follow it. */
VEC_INLINE uint64_t pair_word(const V *a, const V *b, unsigned l, unsigned k, unsigned lane)
{
	const unsigned words = lane / 8;

	return k < words ? b->q[l + k] : k < 2 * words ? a->q[l + k - words] : 0;
}

WORD(PALIGNR)
{
	const unsigned words = lane / 8, l = q & ~(words - 1), k = (q & (words - 1)) + imm / 8;
	const unsigned bits = imm % 8 * 8;
	const uint64_t lo = pair_word(a, b, l, k, lane), hi = pair_word(a, b, l, k + 1, lane);

	return bits ? lo >> bits | hi << (64 - bits) : lo;
}
BY_WORDS(PALIGNR)

/* ---- dwords and words picked by an immediate ------------------------------------------------ */

#define TWO(i) (imm >> (2 * (i)) & 3)
/* Two dwords of a lane, or four words of a word. */
#define PAIR(v, i, k) (VD(v, (q & ~1u) * 2 + (i)) | (uint64_t)VD(v, (q & ~1u) * 2 + (k)) << 32)
#define QUAD(x)                                                                                    \
	(((x) >> 16 * TWO(0) & 0xffff) | ((x) >> 16 * TWO(1) & 0xffff) << 16 |                     \
	 ((x) >> 16 * TWO(2) & 0xffff) << 32 | ((x) >> 16 * TWO(3) & 0xffff) << 48)

WORD(PSHUFD)
{
	WORD_UNUSED;
	return q & 1 ? PAIR(b, TWO(2), TWO(3)) : PAIR(b, TWO(0), TWO(1));
}
WORD(SHUFPS)
{
	WORD_UNUSED;
	return q & 1 ? PAIR(b, TWO(2), TWO(3)) : PAIR(a, TWO(0), TWO(1));
}
WORD(PSHUFLW)
{
	WORD_UNUSED;
	return q & 1 ? b->q[q] : QUAD(b->q[q]);
}
WORD(PSHUFHW)
{
	WORD_UNUSED;
	return q & 1 ? QUAD(b->q[q]) : b->q[q];
}
BY_WORDS(PSHUFD)
BY_WORDS(SHUFPS)
BY_WORDS(PSHUFLW)
BY_WORDS(PSHUFHW)

/* ---- other elements picked by an immediate ------------------------------------------------ */

/* N elements a lane; element i comes from `expr`, in which L is the lane's first element. */
#define PICK(name, macro, N, expr)                                                                 \
	KERNEL(name)                                                                               \
	{                                                                                          \
		UNUSED;                                                                            \
		for (unsigned L = 0; L < n / (lane / (N)); L += (N))                               \
			for (unsigned i = 0; i < (N); i++)                                         \
				macro(r, L + i) = (expr);                                          \
	}

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

/* The four bytes or two words of x, each followed by as many zero bits. */
VEC_INLINE uint64_t spread_words(uint64_t x)
{
	return (x | x << 16) & 0x0000ffff0000ffff;
}
VEC_INLINE uint64_t spread_bytes(uint64_t x)
{
	x = spread_words(x);
	return (x | x << 8) & 0x00ff00ff00ff00ff;
}
VEC_INLINE uint64_t spread_dwords(uint64_t x)
{
	return x;
}

/* Elements of a and b in turn, out of the lower or upper half of each lane: 32 bits of each
 * make a word. */
#define UNPACK(name, spread, bits, high)                                                           \
	WORD(name)                                                                                 \
	{                                                                                          \
		const unsigned d = lane == 8 ? (high) : (q & ~1u) * 2 + (q & 1) + 2 * (high);      \
		(void)imm;                                                                         \
		return spread(VD(a, d)) | spread((uint64_t)VD(b, d)) << (bits);                    \
	}                                                                                          \
	BY_WORDS(name)

UNPACK(PUNPCKLBW, spread_bytes, 8, 0)
UNPACK(PUNPCKLWD, spread_words, 16, 0)
UNPACK(PUNPCKLDQ, spread_dwords, 32, 0)
UNPACK(PUNPCKHBW, spread_bytes, 8, 1)
UNPACK(PUNPCKHWD, spread_words, 16, 1)
UNPACK(PUNPCKHDQ, spread_dwords, 32, 1)

PICK(PUNPCKLQDQ, VQ, 2, i ? VQ(b, L) : VQ(a, L))
PICK(PUNPCKHQDQ, VQ, 2, i ? VQ(b, L + 1) : VQ(a, L + 1))
VEC_HOT(PUNPCKLQDQ)
VEC_HOT(PUNPCKHQDQ)

/* Every other byte or 16-bit word of x, together in the low 32 bits. */
VEC_INLINE uint64_t squeeze_words(uint64_t x)
{
	x &= 0x0000ffff0000ffff;
	return (x | x >> 16) & 0xffffffff;
}
VEC_INLINE uint64_t squeeze_bytes(uint64_t x)
{
	x &= 0x00ff00ff00ff00ff;
	return squeeze_words(x | x >> 8);
}

/* Narrow the elements of a, then those of b, within each lane, saturating. */
#define PACK(name, el, type, squeeze, low, high)                                                   \
	WORD(name)                                                                                 \
	{                                                                                          \
		const V *s = q & 1 ? b : a;                                                        \
		(void)imm;                                                                         \
		if (lane == 8)                                                                     \
			return squeeze(a->q[0]) | squeeze(b->q[0]) << 32;                          \
		return squeeze(s->q[q & ~1u]) | squeeze(s->q[q | 1]) << 32;                        \
	}                                                                                          \
	VEC_INLINE void clamp_##name(V *r, const V *s, unsigned n)                                 \
	{                                                                                          \
		for (unsigned i = 0; i < n / sizeof(type); i++) {                                  \
			type x = (type)s->el[i];                                                   \
			x = x < (low) ? (low) : x;                                                 \
			r->el[i] = (u##type)(x > (high) ? (high) : x);                             \
		}                                                                                  \
	}                                                                                          \
	KERNEL(name)                                                                               \
	{                                                                                          \
		V x, y;                                                                            \
		clamp_##name(&x, a, n);                                                            \
		clamp_##name(&y, b, n);                                                            \
		WORDS(name, &x, &y)                                                                \
	}                                                                                          \
	VEC_HOT(name)

PACK(PACKSSWB, w, int16_t, squeeze_bytes, -128, 127)
PACK(PACKUSWB, w, int16_t, squeeze_bytes, 0, 255)
PACK(PACKSSDW, d, int32_t, squeeze_words, -32768, 32767)
PACK(PACKUSDW, d, int32_t, squeeze_words, 0, 65535)

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
	static void any_##name(struct emu *e, const struct emu_uop *u)                             \
	{                                                                                          \
		V a, b, r, m;                                                                      \
		vec_source(e, u, &b);                                                              \
		a = e->cpu.v[u->b];                                                                \
		m = e->cpu.v[u->cond];                                                             \
		for (unsigned i = 0; i < (count); i++)                                             \
			macro(&r, i) = macro(&m, i) & (sign) ? macro(&b, i) : macro(&a, i);        \
		vec_put(e, u->a, &r, u->d &VEC_FORM);                                              \
	}
BLENDV(PBLENDVB, VB, 32, 0x80)
BLENDV(BLENDVPS, VD, 8, 1u << 31)
BLENDV(BLENDVPD, VQ, 4, 1ULL << 63)

/* ---- INSERTPS -------------------------------------------------------------------------------- */

static void any_INSERTPS(struct emu *e, const struct emu_uop *u)
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

/* ---- tables -----------------------------------------------------------------------------------
 */

#define BIN(id)	    [INSN_##id] = VEC_ROW_ANY(id, VEC_BINARY)
#define BIN_HOT(id) [INSN_##id] = VEC_ROW_HOT(id, VEC_BINARY)
#define UN(id)	    [INSN_##id] = VEC_ROW_ANY(id, VEC_UNARY)

static const struct emu_vec_row rows[INSN_IDS] = {
#define X(id, to, to_bytes, from, type) UN(id),
	WIDENING(X)
#undef X
		BIN_HOT(PSHUFB),
	BIN_HOT(PALIGNR),
	[INSN_PSHUFD] = VEC_ROW_HOT(PSHUFD, VEC_UNARY),
	[INSN_PSHUFLW] = VEC_ROW_HOT(PSHUFLW, VEC_UNARY),
	[INSN_PSHUFHW] = VEC_ROW_HOT(PSHUFHW, VEC_UNARY),
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

static const struct emu_vec_row permil_ps_imm = VEC_ROW_ANY(VPERMILPSI, VEC_UNARY);
static const struct emu_vec_row permil_pd_imm = VEC_ROW_ANY(VPERMILPDI, VEC_UNARY);

emu_fn *emu_bind_vec_shuffle(const struct insn *in, struct emu_uop *u)
{
	bool by_imm = in->nopnd && in->opnd[in->nopnd - 1].kind == OPND_IMM;

	if (in->id == INSN_VPERMILPS && by_imm)
		return emu_vec_bind_row(&permil_ps_imm, in, u);
	if (in->id == INSN_VPERMILPD && by_imm)
		return emu_vec_bind_row(&permil_pd_imm, in, u);
	if (in->id == INSN_PBLENDVB || in->id == INSN_BLENDVPS || in->id == INSN_BLENDVPD) {
		/* VEX: the fourth operand; legacy: xmm0 */
		u->cond = in->vex ? in->opnd[3].reg : 0;
	}
	return emu_vec_bind_row(&rows[in->id], in, u);
}
