/*
 * VEX-encoded instructions without an id of their own: AVX-512 mask registers, AVX-VNNI,
 * AVX-IFMA, AVX-NE-CONVERT, CMPccXADD, SHA-512, SM3, SM4, AMX and AMD's FMA4. The program's CPUID
 * does not announce them; what uses them all the same is run natively. They decode as INSN_EVEX
 * (FMA4: INSN_XOP), with memory operands and general registers as the SDM, the Architecture
 * Instruction Set Extensions Programming Reference and the AMD64 APM say. Tiles are shown as mask
 * registers are; a tile's memory operand is its first row, the index register being the distance
 * of one row from the next.
 *
 * Left out, and so refused, is what has more registers or maps than struct insn can name: APX's
 * REX2 prefix (D5) and the VEX maps from 4 on (URDMSR, UWRMSR, AMX-FP8). Both need an operating
 * system that turns them on.
 */
#include "insn/insn-table.h"

#define K(op, m, acc, ...) ROW(ENC_VEX, op, 1, m, EVEX, acc, NONE, NONE, INSN_A_VEC, __VA_ARGS__)
#define KF(op, m, ...)	   ROW(ENC_VEX, op, 1, m, EVEX, R, ARITH, NONE, INSN_A_VEC, __VA_ARGS__)
#define T3(op, m)	   K(op, m | W0 | L0 | RGS, RW, Kr, KEq, Kh)

/* byte, word, doubleword and quadword mask operations of two sources and of one */
#define K3(op)	K(op, NP | L1 | RGS, W, Kr, Kh, KEq) K(op, P66 | L1 | RGS, W, Kr, Kh, KEq)
#define K2(op)	K(op, NP | L0 | RGS, W, Kr, KEq) K(op, P66 | L0 | RGS, W, Kr, KEq)
#define K2F(op) KF(op, NP | L0 | RGS, Kr, KEq) KF(op, P66 | L0 | RGS, Kr, KEq)

/* clang-format off */
static const struct insn_row rows_0f[] = {
	K3(0x41) K3(0x42) K2(0x44) K3(0x45) K3(0x46) K3(0x47) K3(0x4a)
	K(0x4b, NP | L1 | RGS, W, Kr, Kh, KEq)
	K(0x4b, P66 | W0 | L1 | RGS, W, Kr, Kh, KEq)
	K(0x90, NP | W0 | L0, W, Kr, KEw)
	K(0x90, NP | W1 | L0, W, Kr, KEq)
	K(0x90, P66 | W0 | L0, W, Kr, KEb)
	K(0x90, P66 | W1 | L0, W, Kr, KEd)
	K(0x91, NP | W0 | L0 | MEM, W, KEw, Kr)
	K(0x91, NP | W1 | L0 | MEM, W, KEq, Kr)
	K(0x91, P66 | W0 | L0 | MEM, W, KEb, Kr)
	K(0x91, P66 | W1 | L0 | MEM, W, KEd, Kr)
	K(0x92, NP | W0 | L0, W, Kr, Rd)
	K(0x92, P66 | W0 | L0, W, Kr, Rd)
	K(0x92, PF2 | L0, W, Kr, Ry)
	K(0x93, NP | W0 | L0 | RGS, W, Gd, KEq)
	K(0x93, P66 | W0 | L0 | RGS, W, Gd, KEq)
	K(0x93, PF2 | L0 | RGS, W, Gy, KEq)
	K2F(0x98) K2F(0x99)
};
/* clang-format on */

#define ANYPP(op, ...)                                                                             \
	K(op, NP, RW, __VA_ARGS__)                                                                 \
	K(op, P66, RW, __VA_ARGS__) K(op, PF3, RW, __VA_ARGS__) K(op, PF2, RW, __VA_ARGS__)

/* clang-format off */
static const struct insn_row rows_38[] = {
	/* vpdpb??d, vpdpw??d */
	ANYPP(0x50, Vx, Hx, Wx) ANYPP(0x51, Vx, Hx, Wx)
	K(0x52, P66, RW, Vx, Hx, Wx)
	K(0x53, P66, RW, Vx, Hx, Wx)
	ANYPP(0xd2, Vx, Hx, Wx) ANYPP(0xd3, Vx, Hx, Wx)
	/* vcvtneps2bf16, vbcstnebf162ps, vbcstnesh2ps, vcvtne?(bf16|ph)2ps */
	K(0x72, PF3 | W0, W, Vdq, Wx)
	K(0xb1, PF3 | W0 | MEM, W, Vx, Mw)
	K(0xb1, P66 | W0 | MEM, W, Vx, Mw)
	K(0xb0, NP | W0 | MEM, W, Vx, Mx)
	K(0xb0, P66 | W0 | MEM, W, Vx, Mx)
	K(0xb0, PF3 | W0 | MEM, W, Vx, Mx)
	K(0xb0, PF2 | W0 | MEM, W, Vx, Mx)
	/* vpmadd52luq, vpmadd52huq */
	K(0xb4, P66 | W1, RW, Vx, Hx, Wx)
	K(0xb5, P66 | W1, RW, Vx, Hx, Wx)
	/* vsha512rnds2, vsha512msg1, vsha512msg2 */
	K(0xcb, PF2 | W0 | L1 | RGS, RW, Vqq, Hqq, Udq)
	K(0xcc, PF2 | W0 | L1 | RGS, RW, Vqq, Udq)
	K(0xcd, PF2 | W0 | L1 | RGS, RW, Vqq, Ux)
	/* vsm3msg1, vsm3msg2, vsm4key4, vsm4rnds4 */
	K(0xda, NP | W0 | L0, RW, Vdq, Hdq, Wdq)
	K(0xda, P66 | W0 | L0, RW, Vdq, Hdq, Wdq)
	K(0xda, PF3 | W0, RW, Vx, Hx, Wx)
	K(0xda, PF2 | W0, RW, Vx, Hx, Wx)
	/* ldtilecfg, sttilecfg, tilerelease, tilezero */
	K(0x49, NP | W0 | L0 | MEM | REG(0), R, M64)
	K(0x49, P66 | W0 | L0 | MEM | REG(0), W, M64)
	K(0x49, NP | W0 | L0 | MODRM(0xc0), N)
	K(0x49, PF2 | W0 | L0 | RGS | RM(0), W, Kr)
	/* tileloaddrs, tileloaddrst1, tileloadd, tileloaddt1, tilestored */
	K(0x4a, PF2 | W0 | L0 | MEM | RM(4), W, Kr, M64)
	K(0x4a, P66 | W0 | L0 | MEM | RM(4), W, Kr, M64)
	K(0x4b, PF2 | W0 | L0 | MEM | RM(4), W, Kr, M64)
	K(0x4b, P66 | W0 | L0 | MEM | RM(4), W, Kr, M64)
	K(0x4b, PF3 | W0 | L0 | MEM | RM(4), W, M64, Kr)
	/* tmmultf32ps, tdp(bf16|fp16)ps, tdpb??d, tcmm?mfp16ps */
	T3(0x48, P66)
	T3(0x5c, PF3) T3(0x5c, PF2)
	T3(0x5e, NP) T3(0x5e, P66) T3(0x5e, PF3) T3(0x5e, PF2)
	T3(0x6c, NP) T3(0x6c, P66)
	/* cmp??xadd */
	ROW(ENC_VEX, 0xe0, 16, P66 | L0 | MEM, EVEX, XX, ARITH, NONE, INSN_A_ATOMIC, My, Gy, By)
};
/* clang-format on */

/* FMA4: the four operands with the memory operand third (W0) or fourth (W1). */
#define X4(op, v, h, w, l) ROW(ENC_VEX, op, 1, P66, XOP, W, NONE, NONE, INSN_A_VEC, v, h, w, l)
#define X4P(op)		   X4(op, Vx, Hx, Wx, Lx) X4((op) + 1, Vx, Hx, Wx, Lx)
#define X4PS(op)	   X4P(op) X4((op) + 2, Vdq, Hdq, Wss, Lx) X4((op) + 3, Vdq, Hdq, Wsd, Lx)

/* clang-format off */
static const struct insn_row rows_3a[] = {
	K(0x30, P66 | L0 | RGS, W, Kr, KEq, Ib)
	K(0x31, P66 | L0 | RGS, W, Kr, KEq, Ib)
	K(0x32, P66 | L0 | RGS, W, Kr, KEq, Ib)
	K(0x33, P66 | L0 | RGS, W, Kr, KEq, Ib)
	K(0xde, P66 | W0 | L0, RW, Vdq, Hdq, Wdq, Ib) /* vsm3rnds2 */
	X4P(0x48) /* vpermil2ps, vpermil2pd */
	X4P(0x5c) X4P(0x5e)
	X4PS(0x68) X4PS(0x6c) X4PS(0x78) X4PS(0x7c)
};
/* clang-format on */

#define TABLE(name, r, m) const struct insn_table name = { r, sizeof(r) / sizeof(r[0]), m }

TABLE(insn_table_opaque_0f, rows_0f, 1);
TABLE(insn_table_opaque_38, rows_38, 2);
TABLE(insn_table_opaque_3a, rows_3a, 3);
