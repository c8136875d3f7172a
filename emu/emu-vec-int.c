/*
 * Vector integer arithmetic, logic, comparison and shifts, in all their forms.
 *
 * Most of these work element by element; their kernels are one expression each, written so
 * that the compiler can vectorise the loop. Element order within a word does not matter to
 * them, so they index the arrays of union emu_vec directly.
 *
 * Facts are from the SDM, volume 2, the page of each instruction.
 */
#include "emu/emu-vec.h"

/* ---- element by element ------------------------------------------------------------------ */

VEC_INLINE uint8_t sat_s8(int x)
{
	return (uint8_t)(x < -128 ? -128 : x > 127 ? 127 : x);
}
VEC_INLINE uint8_t sat_u8(int x)
{
	return (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x);
}
VEC_INLINE uint16_t sat_s16(int x)
{
	return (uint16_t)(x < -32768 ? -32768 : x > 32767 ? 32767 : x);
}
VEC_INLINE uint16_t sat_u16(int x)
{
	return (uint16_t)(x < 0 ? 0 : x > 65535 ? 65535 : x);
}
/* |a - b| of the four even bytes, in 16-bit lanes. Bit 8 of a + 256 - b tells which is
 * greater. */
VEC_INLINE uint64_t abs_diff_even(uint64_t a, uint64_t b)
{
	const uint64_t ones = 0x0001000100010001, bytes = ones * 0xff;
	uint64_t d = (a & bytes) + (ones << 8) - (b & bytes);
	uint64_t less = ~d >> 8 & ones;

	return ((d & bytes) ^ less * 0xff) + less;
}
VEC_INLINE uint64_t sum_abs_diff(uint64_t a, uint64_t b)
{
	uint64_t sums = abs_diff_even(a, b) + abs_diff_even(a >> 8, b >> 8);

	return sums * 0x0001000100010001 >> 48;
}

/* The types of each element letter. */
#define S_b int8_t
#define S_w int16_t
#define S_d int32_t
#define S_q int64_t
#define U_b uint8_t
#define U_w uint16_t
#define U_d uint32_t
#define U_q uint64_t

/* Within `expr`: A and B are the elements, unsigned; SA and SB the same, signed. */
#define EACH(name, el, expr)                                                                       \
	VEC_INLINE void k_##name(V *r, const V *a, const V *b, unsigned n, unsigned lane,          \
				 unsigned imm)                                                     \
	{                                                                                          \
		(void)lane, (void)imm, (void)a, (void)b;                                           \
		for (unsigned i = 0; i < n / sizeof(U_##el); i++) {                                \
			const U_##el A = a->el[i], B = b->el[i];                                   \
			const S_##el SA = (S_##el)A, SB = (S_##el)B;                               \
			(void)A, (void)B, (void)SA, (void)SB;                                      \
			r->el[i] = (U_##el)(expr);                                                 \
		}                                                                                  \
	}

/* X(HOT or ANY, kernel, element, kind, expression); the instruction is INSN_<ID>. */
#define ELEMENTWISE(X)                                                                             \
	X(HOT, PADDB, b, BINARY, A + B)                                                            \
	X(HOT, PADDW, w, BINARY, A + B)                                                            \
	X(HOT, PADDD, d, BINARY, A + B)                                                            \
	X(HOT, PADDQ, q, BINARY, A + B)                                                            \
	X(HOT, PSUBB, b, BINARY, A - B)                                                            \
	X(HOT, PSUBW, w, BINARY, A - B)                                                            \
	X(HOT, PSUBD, d, BINARY, A - B)                                                            \
	X(HOT, PSUBQ, q, BINARY, A - B)                                                            \
	X(ANY, PADDSB, b, BINARY, sat_s8(SA + SB))                                                 \
	X(HOT, PADDSW, w, BINARY, sat_s16(SA + SB))                                                \
	X(ANY, PADDUSB, b, BINARY, sat_u8(A + B))                                                  \
	X(HOT, PADDUSW, w, BINARY, sat_u16(A + B))                                                 \
	X(ANY, PSUBSB, b, BINARY, sat_s8(SA - SB))                                                 \
	X(ANY, PSUBSW, w, BINARY, sat_s16(SA - SB))                                                \
	X(HOT, PSUBUSB, b, BINARY, A > B ? A - B : 0)                                              \
	X(HOT, PSUBUSW, w, BINARY, A > B ? A - B : 0)                                              \
	X(HOT, PMULLW, w, BINARY, (uint32_t)A *B)                                                  \
	X(HOT, PMULLD, d, BINARY, A *B)                                                            \
	X(HOT, PMULHW, w, BINARY, (SA * SB) >> 16)                                                 \
	X(ANY, PMULHUW, w, BINARY, ((uint32_t)A * B) >> 16)                                        \
	X(ANY, PMULHRSW, w, BINARY, (((SA * SB) >> 14) + 1) >> 1)                                  \
	X(HOT, PMULUDQ, q, BINARY, (A & 0xffffffff) * (B & 0xffffffff))                            \
	X(ANY, PMULDQ, q, BINARY, (int64_t)(int32_t)A *(int32_t)B)                                 \
	X(ANY, PMADDWD, d, BINARY,                                                                 \
	  (uint32_t)((int16_t)A * (int16_t)B) + (uint32_t)((SA >> 16) * (SB >> 16)))               \
	X(HOT, PMADDUBSW, w, BINARY, sat_s16((A & 0xff) * (int8_t)B + (A >> 8) * (SB >> 8)))       \
	X(ANY, PSADBW, q, BINARY, sum_abs_diff(A, B))                                              \
	X(HOT, PAND, q, BINARY, A &B)                                                              \
	X(HOT, PANDN, q, BINARY, ~A &B)                                                            \
	X(HOT, POR, q, BINARY, A | B)                                                              \
	X(HOT, PXOR, q, BINARY, A ^ B)                                                             \
	X(HOT, PCMPEQB, b, BINARY, A == B ? 0xff : 0)                                              \
	X(HOT, PCMPEQW, w, BINARY, A == B ? 0xffff : 0)                                            \
	X(HOT, PCMPEQD, d, BINARY, A == B ? 0xffffffff : 0)                                        \
	X(ANY, PCMPEQQ, q, BINARY, A == B ? ~0ULL : 0)                                             \
	X(HOT, PCMPGTB, b, BINARY, SA > SB ? 0xff : 0)                                             \
	X(HOT, PCMPGTW, w, BINARY, SA > SB ? 0xffff : 0)                                           \
	X(HOT, PCMPGTD, d, BINARY, SA > SB ? 0xffffffff : 0)                                       \
	X(ANY, PCMPGTQ, q, BINARY, SA > SB ? ~0ULL : 0)                                            \
	X(ANY, PMINSB, b, BINARY, SA < SB ? A : B)                                                 \
	X(HOT, PMINSW, w, BINARY, SA < SB ? A : B)                                                 \
	X(ANY, PMINSD, d, BINARY, SA < SB ? A : B)                                                 \
	X(HOT, PMINUB, b, BINARY, A < B ? A : B)                                                   \
	X(ANY, PMINUW, w, BINARY, A < B ? A : B)                                                   \
	X(HOT, PMINUD, d, BINARY, A < B ? A : B)                                                   \
	X(ANY, PMAXSB, b, BINARY, SA > SB ? A : B)                                                 \
	X(HOT, PMAXSW, w, BINARY, SA > SB ? A : B)                                                 \
	X(ANY, PMAXSD, d, BINARY, SA > SB ? A : B)                                                 \
	X(HOT, PMAXUB, b, BINARY, A > B ? A : B)                                                   \
	X(ANY, PMAXUW, w, BINARY, A > B ? A : B)                                                   \
	X(ANY, PMAXUD, d, BINARY, A > B ? A : B)                                                   \
	X(ANY, PAVGB, b, BINARY, (A + B + 1) >> 1)                                                 \
	X(ANY, PAVGW, w, BINARY, (A + B + 1) >> 1)                                                 \
	X(ANY, PABSB, b, UNARY, SB < 0 ? -B : B)                                                   \
	X(ANY, PABSW, w, UNARY, SB < 0 ? -B : B)                                                   \
	X(ANY, PABSD, d, UNARY, SB < 0 ? -B : B)                                                   \
	X(ANY, PSIGNB, b, BINARY, SB < 0 ? -A : SB ? A : 0)                                        \
	X(ANY, PSIGNW, w, BINARY, SB < 0 ? -A : SB ? A : 0)                                        \
	X(ANY, PSIGND, d, BINARY, SB < 0 ? -A : SB ? A : 0)                                        \
	X(ANY, VPSLLVD, d, BINARY, B < 32 ? A << (B & 31) : 0)                                     \
	X(ANY, VPSLLVQ, q, BINARY, B < 64 ? A << (B & 63) : 0)                                     \
	X(ANY, VPSRLVD, d, BINARY, B < 32 ? A >> (B & 31) : 0)                                     \
	X(ANY, VPSRLVQ, q, BINARY, B < 64 ? A >> (B & 63) : 0)                                     \
	X(ANY, VPSRAVD, d, BINARY, SA >> (B < 32 ? B : 31))

#define X(heat, id, el, kind, expr) EACH(id, el, expr) VEC_##heat(id)
ELEMENTWISE(X)
#undef X

/* The floating-point spellings of the logical instructions. */
#define LOGICAL(X)                                                                                 \
	X(ANDPS, PAND)                                                                             \
	X(ANDPD, PAND)                                                                             \
	X(ANDNPS, PANDN)                                                                           \
	X(ANDNPD, PANDN)                                                                           \
	X(ORPS, POR)                                                                               \
	X(ORPD, POR)                                                                               \
	X(XORPS, PXOR)                                                                             \
	X(XORPD, PXOR)

/* ---- across elements of a lane ------------------------------------------------------------- */

/* pairs of a make the lower half of the lane, pairs of b the upper; P and Q are a pair */
#define PAIRS(name, el, type, macro, expr)                                                         \
	VEC_INLINE void k_##name(V *r, const V *a, const V *b, unsigned n, unsigned lane,          \
				 unsigned imm)                                                     \
	{                                                                                          \
		unsigned count = lane / sizeof(type);                                              \
		(void)imm;                                                                         \
		for (unsigned l = 0; l < n / sizeof(type); l += count)                             \
			for (unsigned i = 0; i < count; i++) {                                     \
				const V *s = i < count / 2 ? a : b;                                \
				unsigned k = l + i * 2 % count;                                    \
				const type P = (type)macro(s, k), Q = (type)macro(s, k + 1);       \
				macro(r, l + i) = (expr);                                          \
			}                                                                          \
	}                                                                                          \
	VEC_ANY(name)

PAIRS(PHADDW, w, uint16_t, VW, (uint16_t)(P + Q))
PAIRS(PHADDD, d, uint32_t, VD, P + Q)
PAIRS(PHADDSW, w, int16_t, VW, sat_s16(P + Q))
PAIRS(PHSUBW, w, uint16_t, VW, (uint16_t)(P - Q))
PAIRS(PHSUBD, d, uint32_t, VD, P - Q)
PAIRS(PHSUBSW, w, int16_t, VW, sat_s16(P - Q))

/* The lower lane is told by bits 0-2 of the immediate, the upper by bits 3-5. */
VEC_INLINE void k_MPSADBW(V *r, const V *a, const V *b, unsigned n, unsigned lane, unsigned imm)
{
	for (unsigned l = 0; l < n; l += lane, imm >>= 3) {
		unsigned at = l + (imm & 4), block = l + (imm & 3) * 4;

		for (unsigned i = 0; i < 8; i++) {
			unsigned sum = 0;

			for (unsigned k = 0; k < 4; k++) {
				int d = VB(a, at + i + k) - VB(b, block + k);

				sum += (unsigned)(d < 0 ? -d : d);
			}
			VW(r, l / 2 + i) = (uint16_t)sum;
		}
	}
}
VEC_ANY_XY(MPSADBW)

VEC_INLINE void k_PHMINPOSUW(V *r, const V *a, const V *b, unsigned n, unsigned lane, unsigned imm)
{
	unsigned best = 0;

	(void)a, (void)n, (void)lane, (void)imm;
	for (unsigned i = 1; i < 8; i++)
		if (VW(b, i) < VW(b, best))
			best = i;
	r->q[0] = VW(b, best) | (uint64_t)best << 16;
	r->q[1] = 0;
}
VEC_ANY_X(PHMINPOSUW)

/* ---- shifts of all elements by one count ------------------------------------------------- */

/* The count is the low 64 bits of the second operand, or the immediate. */
#define SHIFT(name, el, expr)                                                                      \
	VEC_INLINE void shift_##name(V *r, const V *a, uint64_t count, unsigned n)                 \
	{                                                                                          \
		const unsigned bits = 8 * sizeof(U_##el);                                          \
		const bool over = count >= bits;                                                   \
		const unsigned c = over ? bits - 1 : (unsigned)count;                              \
		(void)over;                                                                        \
		for (unsigned i = 0; i < n / sizeof(U_##el); i++) {                                \
			const U_##el A = a->el[i];                                                 \
			r->el[i] = (U_##el)(expr);                                                 \
		}                                                                                  \
	}                                                                                          \
	VEC_INLINE void k_##name(V *r, const V *a, const V *b, unsigned n, unsigned lane,          \
				 unsigned imm)                                                     \
	{                                                                                          \
		(void)lane, (void)imm;                                                             \
		shift_##name(r, a, b->q[0], n);                                                    \
	}                                                                                          \
	VEC_ANY(name)                                                                              \
	VEC_INLINE void k_##name##I(V *r, const V *a, const V *b, unsigned n, unsigned lane,       \
				    unsigned imm)                                                  \
	{                                                                                          \
		(void)lane, (void)a;                                                               \
		shift_##name(r, b, imm, n);                                                        \
	}                                                                                          \
	VEC_HOT(name##I)

SHIFT(PSLLW, w, over ? 0 : (uint32_t)A << c)
SHIFT(PSLLD, d, over ? 0 : A << c)
SHIFT(PSLLQ, q, over ? 0 : A << c)
SHIFT(PSRLW, w, over ? 0 : A >> c)
SHIFT(PSRLD, d, over ? 0 : A >> c)
SHIFT(PSRLQ, q, over ? 0 : A >> c)
SHIFT(PSRAW, w, (int16_t)A >> c)
SHIFT(PSRAD, d, (int32_t)A >> c)

/* Whole lanes by bytes; always by an immediate. */
VEC_INLINE uint64_t funnel_right(uint64_t lo, uint64_t hi, unsigned bits)
{
	return bits ? lo >> bits | hi << (64 - bits) : lo;
}

VEC_INLINE void k_PSRLDQ(V *r, const V *a, const V *b, unsigned n, unsigned lane, unsigned imm)
{
	unsigned bits = imm * 8 & 63;

	(void)a, (void)lane;
	for (unsigned l = 0; l < n / 8; l += 2) {
		uint64_t lo = b->q[l], hi = b->q[l + 1];

		r->q[l] = imm < 8 ? funnel_right(lo, hi, bits) : imm < 16 ? hi >> bits : 0;
		r->q[l + 1] = imm < 8 ? hi >> bits : 0;
	}
}
VEC_HOT(PSRLDQ)

VEC_INLINE void k_PSLLDQ(V *r, const V *a, const V *b, unsigned n, unsigned lane, unsigned imm)
{
	unsigned bits = imm * 8 & 63;

	(void)a, (void)lane;
	for (unsigned l = 0; l < n / 8; l += 2) {
		uint64_t lo = b->q[l], hi = b->q[l + 1];
		uint64_t cross = bits ? hi << bits | lo >> (64 - bits) : hi;

		r->q[l] = imm < 8 ? lo << bits : 0;
		r->q[l + 1] = imm < 8 ? cross : imm < 16 ? lo << bits : 0;
	}
}
VEC_HOT(PSLLDQ)

/* ---- tables --------------------------------------------------------------------------------- */

static const struct emu_vec_row rows[INSN_IDS] = {
#define X(heat, id, el, kind_, expr) [INSN_##id] = VEC_ROW_##heat(id, VEC_##kind_),
	ELEMENTWISE(X)
#undef X
#define X(id, as) [INSN_##id] = VEC_ROW_HOT(as, VEC_BINARY),
		LOGICAL(X)
#undef X
			[INSN_PHADDW] = VEC_ROW_ANY(PHADDW, VEC_BINARY),
	[INSN_PHADDD] = VEC_ROW_ANY(PHADDD, VEC_BINARY),
	[INSN_PHADDSW] = VEC_ROW_ANY(PHADDSW, VEC_BINARY),
	[INSN_PHSUBW] = VEC_ROW_ANY(PHSUBW, VEC_BINARY),
	[INSN_PHSUBD] = VEC_ROW_ANY(PHSUBD, VEC_BINARY),
	[INSN_PHSUBSW] = VEC_ROW_ANY(PHSUBSW, VEC_BINARY),
	[INSN_MPSADBW] = VEC_ROW_ANY(MPSADBW, VEC_BINARY),
	[INSN_PHMINPOSUW] = VEC_ROW_ANY(PHMINPOSUW, VEC_UNARY),
	[INSN_PSLLW] = VEC_ROW_ANY(PSLLW, VEC_BINARY),
	[INSN_PSLLD] = VEC_ROW_ANY(PSLLD, VEC_BINARY),
	[INSN_PSLLQ] = VEC_ROW_ANY(PSLLQ, VEC_BINARY),
	[INSN_PSRLW] = VEC_ROW_ANY(PSRLW, VEC_BINARY),
	[INSN_PSRLD] = VEC_ROW_ANY(PSRLD, VEC_BINARY),
	[INSN_PSRLQ] = VEC_ROW_ANY(PSRLQ, VEC_BINARY),
	[INSN_PSRAW] = VEC_ROW_ANY(PSRAW, VEC_BINARY),
	[INSN_PSRAD] = VEC_ROW_ANY(PSRAD, VEC_BINARY),
};

/* Forms with an immediate count. */
static const struct {
	uint16_t id;
	struct emu_vec_row row;
	/* clang-format off */
} by_immediate[] = {
    {INSN_PSLLW, VEC_ROW_HOT(PSLLWI, VEC_UNARY)},  {INSN_PSLLD, VEC_ROW_HOT(PSLLDI, VEC_UNARY)},
    {INSN_PSLLQ, VEC_ROW_HOT(PSLLQI, VEC_UNARY)},  {INSN_PSRLW, VEC_ROW_HOT(PSRLWI, VEC_UNARY)},
    {INSN_PSRLD, VEC_ROW_HOT(PSRLDI, VEC_UNARY)},  {INSN_PSRLQ, VEC_ROW_HOT(PSRLQI, VEC_UNARY)},
    {INSN_PSRAW, VEC_ROW_HOT(PSRAWI, VEC_UNARY)},  {INSN_PSRAD, VEC_ROW_HOT(PSRADI, VEC_UNARY)},
    {INSN_PSLLDQ, VEC_ROW_HOT(PSLLDQ, VEC_UNARY)}, {INSN_PSRLDQ, VEC_ROW_HOT(PSRLDQ, VEC_UNARY)},
};
/* clang-format on */

emu_fn *emu_bind_vec_int(const struct insn *in, struct emu_uop *u)
{
	if (in->nopnd && in->opnd[in->nopnd - 1].kind == OPND_IMM)
		for (size_t i = 0; i < sizeof(by_immediate) / sizeof(by_immediate[0]); i++)
			if (by_immediate[i].id == in->id)
				return emu_vec_bind_row(&by_immediate[i].row, in, u);
	return emu_vec_bind_row(&rows[in->id], in, u);
}
