/*
 * Vector instructions for cryptography: AES, carry-less multiplication, SHA, GF(2^8).
 *
 * AES uses tables of 32-bit columns; they and the tables of GF(2^8) are computed when
 * the first instruction of this kind is bound.
 *
 * Facts are from the SDM, volume 2, the page of each instruction, from FIPS 197 (AES) and
 * FIPS 180-4 (SHA).
 */
#include "emu/emu-vec.h"

#include <pthread.h>

#define KERNEL(name)                                                                               \
	VEC_INLINE void k_##name(V *r, const V *a, const V *b, unsigned n, unsigned lane,          \
				 unsigned imm)
#define UNUSED (void)a, (void)b, (void)n, (void)lane, (void)imm

static inline uint32_t rol32(uint32_t x, unsigned n)
{
	return x << n | x >> (-n & 31);
}

static inline uint32_t ror32(uint32_t x, unsigned n)
{
	return x >> n | x << (-n & 31);
}

/* ---- tables -----------------------------------------------------------------------------------
 */

static uint8_t gf_inverse[256]; /* in GF(2^8) modulo x^8+x^4+x^3+x+1; 0 for 0 */
static uint8_t sbox[256], unsbox[256];
static uint32_t enc_column[256]; /* MixColumns of a column whose row 0 is sbox[i], the rest 0 */
static uint32_t dec_column[256]; /* InvMixColumns, with unsbox[i] */

static uint8_t gf_mul(unsigned a, unsigned b)
{
	unsigned p = 0;

	for (int i = 0; i < 8; i++) {
		p ^= (b >> i & 1) ? a << i : 0;
	}
	for (int i = 14; i >= 8; i--)
		p ^= (p >> i & 1) ? 0x11bu << (i - 8) : 0;
	return (uint8_t)p;
}

static void make_tables(void)
{
	for (unsigned i = 1; i < 256; i++) {
		unsigned x = i;

		/* the inverse is the 254th power */
		for (int k = 0; k < 253; k++)
			x = gf_mul(x, i);
		gf_inverse[i] = (uint8_t)x;
	}
	for (unsigned i = 0; i < 256; i++) {
		unsigned x = gf_inverse[i] * 0x0101u;

		x = (x ^ x >> 4 ^ x >> 5 ^ x >> 6 ^ x >> 7 ^ 0x63) & 0xff;
		sbox[i] = (uint8_t)x;
		unsbox[x] = (uint8_t)i;
		enc_column[i] = gf_mul(x, 2) | x << 8 | x << 16 | (uint32_t)gf_mul(x, 3) << 24;
	}
	for (unsigned i = 0; i < 256; i++) {
		unsigned x = unsbox[i];

		dec_column[i] = gf_mul(x, 14) | (uint32_t)gf_mul(x, 9) << 8 |
				(uint32_t)gf_mul(x, 13) << 16 | (uint32_t)gf_mul(x, 11) << 24;
	}
}

/* ---- AES
 * ------------------------------------------------------------------------------------------ */

/* Row i of column c comes from column c + i (encryption) or c - i (decryption): `step` is 1
 * or 3. Byte of row i for column c of lane l: */
#define AES_BYTE(l, c, i, step) VB(a, 4 * (l) + 4 * (((c) + (step) * (i)) % 4) + (i))

#define AES_MIX(name, table, step)                                                                 \
	VEC_INLINE uint32_t column_##name(const V *a, unsigned l, unsigned c)                      \
	{                                                                                          \
		return table[AES_BYTE(l, c, 0, step)] ^ rol32(table[AES_BYTE(l, c, 1, step)], 8) ^ \
		       rol32(table[AES_BYTE(l, c, 2, step)], 16) ^                                 \
		       rol32(table[AES_BYTE(l, c, 3, step)], 24);                                  \
	}                                                                                          \
	AES_ROUND(name)
#define AES_LAST(name, table, step)                                                                \
	VEC_INLINE uint32_t column_##name(const V *a, unsigned l, unsigned c)                      \
	{                                                                                          \
		return table[AES_BYTE(l, c, 0, step)] |                                            \
		       (uint32_t)table[AES_BYTE(l, c, 1, step)] << 8 |                             \
		       (uint32_t)table[AES_BYTE(l, c, 2, step)] << 16 |                            \
		       (uint32_t)table[AES_BYTE(l, c, 3, step)] << 24;                             \
	}                                                                                          \
	AES_ROUND(name)
#define AES_ROUND(name)                                                                            \
	KERNEL(name)                                                                               \
	{                                                                                          \
		UNUSED;                                                                            \
		for (unsigned l = 0; l < n / 4; l += 4) {                                          \
			r->q[l / 2] = b->q[l / 2] ^ (column_##name(a, l, 0) |                      \
						     (uint64_t)column_##name(a, l, 1) << 32);      \
			r->q[l / 2 + 1] =                                                          \
				b->q[l / 2 + 1] ^                                                  \
				(column_##name(a, l, 2) | (uint64_t)column_##name(a, l, 3) << 32); \
		}                                                                                  \
	}                                                                                          \
	VEC_HOT(name)

AES_MIX(AESENC, enc_column, 1)
AES_MIX(AESDEC, dec_column, 3)
AES_LAST(AESENCLAST, sbox, 1)
AES_LAST(AESDECLAST, unsbox, 3)

KERNEL(AESIMC)
{
	UNUSED;
	for (unsigned c = 0; c < 4; c++) {
		uint32_t x = 0;

		for (unsigned i = 0; i < 4; i++)
			x ^= rol32(dec_column[sbox[VB(b, 4 * c + i)]], 8 * i & 31);
		VD(r, c) = x;
	}
}
VEC_ANY_X(AESIMC)

static uint32_t sub_word(uint32_t x)
{
	return sbox[x & 0xff] | (uint32_t)sbox[x >> 8 & 0xff] << 8 |
	       (uint32_t)sbox[x >> 16 & 0xff] << 16 | (uint32_t)sbox[x >> 24] << 24;
}

KERNEL(AESKEYGENASSIST)
{
	UNUSED;
	for (unsigned i = 0; i < 4; i += 2) {
		uint32_t x = sub_word(VD(b, i + 1));

		VD(r, i) = x;
		VD(r, i + 1) = ror32(x, 8) ^ imm;
	}
}
VEC_ANY_X(AESKEYGENASSIST)

/* ---- carry-less multiplication -----------------------------------------------------------------
 */

/* Four bits at a time, from the top. */
static __attribute__((noinline)) void clmul(uint64_t x, uint64_t y, uint64_t *lo, uint64_t *hi)
{
	uint64_t tlo[16], thi[16], l = 0, h = 0;

	tlo[0] = thi[0] = thi[1] = 0;
	tlo[1] = x;
	for (int i = 2; i < 16; i += 2) {
		tlo[i] = tlo[i / 2] << 1;
		thi[i] = thi[i / 2] << 1 | tlo[i / 2] >> 63;
		tlo[i + 1] = tlo[i] ^ x;
		thi[i + 1] = thi[i];
	}
	for (int i = 60; i >= 0; i -= 4) {
		unsigned k = y >> i & 15;

		h = (h << 4 | l >> 60) ^ thi[k];
		l = l << 4 ^ tlo[k];
	}
	*lo = l;
	*hi = h;
}

KERNEL(PCLMULQDQ)
{
	UNUSED;
	for (unsigned l = 0; l < n / 8; l += 2)
		clmul(a->q[l + (imm & 1)], b->q[l + (imm >> 4 & 1)], &r->q[l], &r->q[l + 1]);
}
VEC_HOT(PCLMULQDQ)

/* ---- GF(2^8)
 * ------------------------------------------------------------------------------------- */

KERNEL(GF2P8MULB)
{
	UNUSED;
	for (unsigned i = 0; i < n; i++)
		r->b[i] = gf_mul(a->b[i], b->b[i]);
}
VEC_ANY_XY(GF2P8MULB)

/* Bit i of the result is the parity of x and the matrix's byte 7 - i. */
static inline uint8_t affine(uint64_t matrix, unsigned x, unsigned imm)
{
	uint64_t p = matrix & x * 0x0101010101010101ULL;

	p ^= p >> 4;
	p ^= p >> 2;
	p ^= p >> 1;
	p &= 0x0101010101010101;
	for (unsigned i = 0; i < 8; i++)
		imm ^= (unsigned)(p >> (8 * (7 - i)) & 1) << i;
	return (uint8_t)imm;
}

#define AFFINE(name, input)                                                                        \
	KERNEL(name)                                                                               \
	{                                                                                          \
		UNUSED;                                                                            \
		for (unsigned l = 0; l < n; l++) {                                                 \
			uint8_t x = VB(a, l);                                                      \
			VB(r, l) = affine(b->q[l / 8], input, imm);                                \
		}                                                                                  \
	}                                                                                          \
	VEC_ANY_XY(name)
AFFINE(GF2P8AFFINEQB, x)
AFFINE(GF2P8AFFINEINVQB, gf_inverse[x])

/* ---- SHA
 * ------------------------------------------------------------------------------------------- */

KERNEL(SHA1RNDS4)
{
	static const uint32_t constants[] = { 0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6 };
	uint32_t A = VD(a, 3), B = VD(a, 2), C = VD(a, 1), D = VD(a, 0), E = 0;

	UNUSED;
	for (unsigned i = 0; i < 4; i++) {
		uint32_t f, next;

		switch (imm & 3) {
		case 0:
			f = (B & C) ^ (~B & D);
			break;
		case 2:
			f = (B & C) ^ (B & D) ^ (C & D);
			break;
		default:
			f = B ^ C ^ D;
		}
		next = f + rol32(A, 5) + VD(b, 3 - i) + E + constants[imm & 3];
		E = D;
		D = C;
		C = rol32(B, 30);
		B = A;
		A = next;
	}
	VD(r, 3) = A;
	VD(r, 2) = B;
	VD(r, 1) = C;
	VD(r, 0) = D;
}
VEC_ANY_X(SHA1RNDS4)

KERNEL(SHA1NEXTE)
{
	UNUSED;
	*r = *b;
	VD(r, 3) = VD(b, 3) + rol32(VD(a, 3), 30);
}
VEC_ANY_X(SHA1NEXTE)

KERNEL(SHA1MSG1)
{
	UNUSED;
	VD(r, 3) = VD(a, 1) ^ VD(a, 3);
	VD(r, 2) = VD(a, 0) ^ VD(a, 2);
	VD(r, 1) = VD(b, 3) ^ VD(a, 1);
	VD(r, 0) = VD(b, 2) ^ VD(a, 0);
}
VEC_ANY_X(SHA1MSG1)

KERNEL(SHA1MSG2)
{
	UNUSED;
	VD(r, 3) = rol32(VD(a, 3) ^ VD(b, 2), 1);
	VD(r, 2) = rol32(VD(a, 2) ^ VD(b, 1), 1);
	VD(r, 1) = rol32(VD(a, 1) ^ VD(b, 0), 1);
	VD(r, 0) = rol32(VD(a, 0) ^ VD(r, 3), 1);
}
VEC_ANY_X(SHA1MSG2)

/* The round constants plus message words are in xmm0. */
static void any_SHA256RNDS2(struct emu *e, const struct emu_uop *u)
{
	const V wk = e->cpu.v[0], a = e->cpu.v[u->b];
	uint32_t A, B, C = VD(&a, 3), D = VD(&a, 2), E, F, G = VD(&a, 1), H = VD(&a, 0);
	V b, r;

	vec_source(e, u, &b);
	A = VD(&b, 3);
	B = VD(&b, 2);
	E = VD(&b, 1);
	F = VD(&b, 0);
	for (unsigned i = 0; i < 2; i++) {
		uint32_t t1 = ((E & F) ^ (~E & G)) + (ror32(E, 6) ^ ror32(E, 11) ^ ror32(E, 25)) +
			      VD(&wk, i) + H;
		uint32_t t2 =
			((A & B) ^ (A & C) ^ (B & C)) + (ror32(A, 2) ^ ror32(A, 13) ^ ror32(A, 22));

		H = G;
		G = F;
		F = E;
		E = D + t1;
		D = C;
		C = B;
		B = A;
		A = t1 + t2;
	}
	VD(&r, 3) = A;
	VD(&r, 2) = B;
	VD(&r, 1) = E;
	VD(&r, 0) = F;
	vec_put_x(e, u->a, &r, VEC_LEGACY);
}

KERNEL(SHA256MSG1)
{
	UNUSED;
	for (unsigned i = 0; i < 4; i++) {
		uint32_t x = i < 3 ? VD(a, i + 1) : VD(b, 0);

		VD(r, i) = VD(a, i) + (ror32(x, 7) ^ ror32(x, 18) ^ x >> 3);
	}
}
VEC_ANY_X(SHA256MSG1)

KERNEL(SHA256MSG2)
{
	UNUSED;
	for (unsigned i = 0; i < 4; i++) {
		uint32_t x = i < 2 ? VD(b, 2 + i) : VD(r, i - 2);

		VD(r, i) = VD(a, i) + (ror32(x, 17) ^ ror32(x, 19) ^ x >> 10);
	}
}
VEC_ANY_X(SHA256MSG2)

/* ---- binding
 * ------------------------------------------------------------------------------------------ */

static const struct {
	uint16_t id;
	struct emu_vec_row row;
	/* clang-format off */
} rows[] = {
    {INSN_AESENC, VEC_ROW_HOT(AESENC, VEC_BINARY)},
    {INSN_AESENCLAST, VEC_ROW_HOT(AESENCLAST, VEC_BINARY)},
    {INSN_AESDEC, VEC_ROW_HOT(AESDEC, VEC_BINARY)},
    {INSN_AESDECLAST, VEC_ROW_HOT(AESDECLAST, VEC_BINARY)},
    {INSN_AESIMC, VEC_ROW_ANY(AESIMC, VEC_UNARY)},
    {INSN_AESKEYGENASSIST, VEC_ROW_ANY(AESKEYGENASSIST, VEC_UNARY)},
    {INSN_PCLMULQDQ, VEC_ROW_HOT(PCLMULQDQ, VEC_BINARY)},
    {INSN_SHA1RNDS4, VEC_ROW_ANY(SHA1RNDS4, VEC_BINARY)},
    {INSN_SHA1NEXTE, VEC_ROW_ANY(SHA1NEXTE, VEC_BINARY)},
    {INSN_SHA1MSG1, VEC_ROW_ANY(SHA1MSG1, VEC_BINARY)},
    {INSN_SHA1MSG2, VEC_ROW_ANY(SHA1MSG2, VEC_BINARY)},
    {INSN_SHA256RNDS2, VEC_ROW_ANY(SHA256RNDS2, VEC_BINARY)},
    {INSN_SHA256MSG1, VEC_ROW_ANY(SHA256MSG1, VEC_BINARY)},
    {INSN_SHA256MSG2, VEC_ROW_ANY(SHA256MSG2, VEC_BINARY)},
    {INSN_GF2P8MULB, VEC_ROW_ANY(GF2P8MULB, VEC_BINARY)},
    {INSN_GF2P8AFFINEQB, VEC_ROW_ANY(GF2P8AFFINEQB, VEC_BINARY)},
    {INSN_GF2P8AFFINEINVQB, VEC_ROW_ANY(GF2P8AFFINEINVQB, VEC_BINARY)},
};
/* clang-format on */

emu_fn *emu_bind_vec_crypto(const struct insn *in, struct emu_uop *u)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].id == in->id) {
			pthread_once(&once, make_tables);
			return emu_vec_bind_row(&rows[i].row, in, u);
		}
	return NULL;
}
