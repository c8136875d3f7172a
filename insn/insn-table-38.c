/*
 * The 0F 38 map (SDM vol. 2D, table A-4; operand sizes from the instruction pages).
 */
#include "insn/insn-table.h"

#define PRIV INSN_A_PRIV

/* An operation on mm, xmm and ymm registers alike; on xmm and ymm only; two operands. */
#define PI(op, name)   L(op, NP, name, RW, Pq, Qq) B(op, P66, name, W, Vx, Hx, Wx)
#define XI(op, name)   B(op, P66, name, W, Vx, Hx, Wx)
#define PABS(op, name) L(op, NP, name, W, Pq, Qq) B(op, P66, name, W, Vx, Wx)

/* Sign and zero extensions at 20.. and 30..: a half, quarter or eighth is read. */
#define EXTEND(op, name)                                                                           \
	B((op) + 0, P66, name##BW, W, Vx, Wxh)                                                     \
	B((op) + 1, P66, name##BD, W, Vx, Wxq)                                                     \
	B((op) + 2, P66, name##BQ, W, Vx, Wxe)                                                     \
	B((op) + 3, P66, name##WD, W, Vx, Wxh)                                                     \
	B((op) + 4, P66, name##WQ, W, Vx, Wxq)                                                     \
	B((op) + 5, P66, name##DQ, W, Vx, Wxh)

#define FMAP(op, name)                                                                             \
	V(op, P66 | W0, name##PS, RW, Vx, Hx, Wx) V(op, P66 | W1, name##PD, RW, Vx, Hx, Wx)
#define FMAS(op, name)                                                                             \
	V(op, P66 | W0, name##SS, RW, Vss, Hss, Wss) V(op, P66 | W1, name##SD, RW, Vsd, Hsd, Wsd)
/* The ten of one operand order, from its first opcode (96, a6, b6). */
#define FMA(op)                                                                                    \
	FMAP((op) + 0, VFMADDSUB)                                                                  \
	FMAP((op) + 1, VFMSUBADD)                                                                  \
	FMAP((op) + 2, VFMADD)                                                                     \
	FMAS((op) + 3, VFMADD)                                                                     \
	FMAP((op) + 4, VFMSUB)                                                                     \
	FMAS((op) + 5, VFMSUB)                                                                     \
	FMAP((op) + 6, VFNMADD)                                                                    \
	FMAS((op) + 7, VFNMADD)                                                                    \
	FMAP((op) + 8, VFNMSUB)                                                                    \
	FMAS((op) + 9, VFNMSUB)

#define MASKED(op, m, name, ...)                                                                   \
	ROW(ENC_VEX, op, 1, m, name, W, NONE, NONE, INSN_A_MASKED, __VA_ARGS__)
#define GATHER(op, m, name, ...)                                                                   \
	ROW(ENC_VEX, op, 1, m, name, GATHER, NONE, NONE, INSN_A_MASKED, __VA_ARGS__)
#define BMI(op, m, name, acc, fl, im, ...)                                                         \
	ROW(ENC_VEX, op, 1, L0 | (m), name, acc, fl, im, 0, __VA_ARGS__)

/* clang-format off */
static const struct insn_row rows[] = {
	PI(0x00, PSHUFB)
	PI(0x01, PHADDW)
	PI(0x02, PHADDD)
	PI(0x03, PHADDSW)
	PI(0x04, PMADDUBSW)
	PI(0x05, PHSUBW)
	PI(0x06, PHSUBD)
	PI(0x07, PHSUBSW)
	PI(0x08, PSIGNB)
	PI(0x09, PSIGNW)
	PI(0x0a, PSIGND)
	PI(0x0b, PMULHRSW)
	V(0x0c, P66 | W0, VPERMILPS, W, Vx, Hx, Wx)
	V(0x0d, P66 | W0, VPERMILPD, W, Vx, Hx, Wx)
	VF(0x0e, P66 | W0, VTESTPS, Vx, Wx)
	VF(0x0f, P66 | W0, VTESTPD, Vx, Wx)
	L(0x10, P66, PBLENDVB, RW, Vdq, Wdq, XMM0)
	V(0x13, P66 | W0, VCVTPH2PS, W, Vx, Wxh)
	L(0x14, P66, BLENDVPS, RW, Vdq, Wdq, XMM0)
	L(0x15, P66, BLENDVPD, RW, Vdq, Wdq, XMM0)
	V(0x16, P66 | L1 | W0, VPERMPS, W, Vqq, Hqq, Wqq)
	BF(0x17, P66, PTEST, Vx, Wx)
	V(0x18, P66 | W0, VBROADCASTSS, W, Vx, Wss)
	V(0x19, P66 | L1 | W0, VBROADCASTSD, W, Vqq, Wsd)
	V(0x1a, P66 | L1 | W0 | MEM, VBROADCASTF128, W, Vqq, Mdq)
	PABS(0x1c, PABSB)
	PABS(0x1d, PABSW)
	PABS(0x1e, PABSD)
	EXTEND(0x20, PMOVSX)
	XI(0x28, PMULDQ)
	XI(0x29, PCMPEQQ)
	B(0x2a, P66 | MEM, MOVNTDQA, W, Vx, Mx)
	XI(0x2b, PACKUSDW)
	MASKED(0x2c, P66 | W0 | MEM, VMASKMOVPS, Vx, Hx, Mx)
	MASKED(0x2d, P66 | W0 | MEM, VMASKMOVPD, Vx, Hx, Mx)
	MASKED(0x2e, P66 | W0 | MEM, VMASKMOVPS, Mx, Hx, Vx)
	MASKED(0x2f, P66 | W0 | MEM, VMASKMOVPD, Mx, Hx, Vx)
	EXTEND(0x30, PMOVZX)
	V(0x36, P66 | L1 | W0, VPERMD, W, Vqq, Hqq, Wqq)
	XI(0x37, PCMPGTQ)
	XI(0x38, PMINSB)
	XI(0x39, PMINSD)
	XI(0x3a, PMINUW)
	XI(0x3b, PMINUD)
	XI(0x3c, PMAXSB)
	XI(0x3d, PMAXSD)
	XI(0x3e, PMAXUW)
	XI(0x3f, PMAXUD)
	XI(0x40, PMULLD)
	B(0x41, P66 | L0, PHMINPOSUW, W, Vdq, Wdq)
	V(0x45, P66 | W0, VPSRLVD, W, Vx, Hx, Wx)
	V(0x45, P66 | W1, VPSRLVQ, W, Vx, Hx, Wx)
	V(0x46, P66 | W0, VPSRAVD, W, Vx, Hx, Wx)
	V(0x47, P66 | W0, VPSLLVD, W, Vx, Hx, Wx)
	V(0x47, P66 | W1, VPSLLVQ, W, Vx, Hx, Wx)
	V(0x58, P66 | W0, VPBROADCASTD, W, Vx, Wd)
	V(0x59, P66 | W0, VPBROADCASTQ, W, Vx, Wq)
	V(0x5a, P66 | L1 | W0 | MEM, VBROADCASTI128, W, Vqq, Mdq)
	V(0x78, P66 | W0, VPBROADCASTB, W, Vx, Wb)
	V(0x79, P66 | W0, VPBROADCASTW, W, Vx, Ww)
	MASKED(0x8c, P66 | W0 | MEM, VPMASKMOVD, Vx, Hx, Mx)
	MASKED(0x8c, P66 | W1 | MEM, VPMASKMOVQ, Vx, Hx, Mx)
	MASKED(0x8e, P66 | W0 | MEM, VPMASKMOVD, Mx, Hx, Vx)
	MASKED(0x8e, P66 | W1 | MEM, VPMASKMOVQ, Mx, Hx, Vx)
	/* the size in memory is one element's */
	GATHER(0x90, P66 | W0 | MEM, VPGATHERDD, Vx, VSx4, Hx)
	GATHER(0x90, P66 | W1 | MEM, VPGATHERDQ, Vx, VSxh8, Hx)
	GATHER(0x91, P66 | W0 | MEM, VPGATHERQD, Vxh, VSx4, Hxh)
	GATHER(0x91, P66 | W1 | MEM, VPGATHERQQ, Vx, VSx8, Hx)
	GATHER(0x92, P66 | W0 | MEM, VGATHERDPS, Vx, VSx4, Hx)
	GATHER(0x92, P66 | W1 | MEM, VGATHERDPD, Vx, VSxh8, Hx)
	GATHER(0x93, P66 | W0 | MEM, VGATHERQPS, Vxh, VSx4, Hxh)
	GATHER(0x93, P66 | W1 | MEM, VGATHERQPD, Vx, VSx8, Hx)
	FMA(0x96)
	FMA(0xa6)
	FMA(0xb6)

	L(0xc8, NP, SHA1NEXTE, RW, Vdq, Wdq)
	L(0xc9, NP, SHA1MSG1, RW, Vdq, Wdq)
	L(0xca, NP, SHA1MSG2, RW, Vdq, Wdq)
	L(0xcb, NP, SHA256RNDS2, RW, Vdq, Wdq, XMM0)
	L(0xcc, NP, SHA256MSG1, RW, Vdq, Wdq)
	L(0xcd, NP, SHA256MSG2, RW, Vdq, Wdq)
	L(0xcf, P66, GF2P8MULB, RW, Vdq, Wdq)
	V(0xcf, P66 | W0, GF2P8MULB, W, Vx, Hx, Wx)
	B(0xdb, P66 | L0, AESIMC, W, Vdq, Wdq)
	XI(0xdc, AESENC)
	XI(0xdd, AESENCLAST)
	XI(0xde, AESDEC)
	XI(0xdf, AESDECLAST)

	/* integer */
	R(0x80, P66 | MEM, SYSTEM, R, ARITH, NONE, PRIV, Gq, Mdq) /* invept */
	R(0x81, P66 | MEM, SYSTEM, R, ARITH, NONE, PRIV, Gq, Mdq) /* invvpid */
	R(0x82, P66 | MEM, SYSTEM, R, NONE, NONE, PRIV, Gq, Mdq) /* invpcid */
	R(0xf0, PF2, CRC32, RW, NONE, NONE, 0, Gy, Eb)
	R(0xf0, NOREP | MEM, MOVBE, W, NONE, NONE, 0, Gv, Mv)
	R(0xf1, PF2, CRC32, RW, NONE, NONE, 0, Gy, Ev)
	R(0xf1, NOREP | MEM, MOVBE, W, NONE, NONE, 0, Mv, Gv)
	R(0xf5, P66 | MEM, SYSTEM, W, NONE, NONE, PRIV, My, Gy) /* wruss */
	R(0xf6, NP | MEM, SYSTEM, W, NONE, NONE, PRIV, My, Gy) /* wrss */
	R(0xf6, P66, ADCX, RW, ADCX, NONE, 0, Gy, Ey)
	R(0xf6, PF3, ADOX, RW, ADOX, NONE, 0, Gy, Ey)
	/* these store 64 bytes at the address in the register */
	R(0xf8, P66 | MEM, MOVDIR64B, R, NONE, NONE, 0, Gq, M64)
	R(0xf8, PF2 | MEM, ENQCMD, R, ARITH, NONE, 0, Gq, M64)
	R(0xf8, PF3 | MEM, ENQCMD, R, ARITH, NONE, PRIV, Gq, M64)
	/* aadd, aand, axor, aor */
	R(0xfc, NP | MEM, SYSTEM, RW, NONE, NONE, INSN_A_ATOMIC, My, Gy)
	R(0xfc, P66 | MEM, SYSTEM, RW, NONE, NONE, INSN_A_ATOMIC, My, Gy)
	R(0xfc, PF2 | MEM, SYSTEM, RW, NONE, NONE, INSN_A_ATOMIC, My, Gy)
	R(0xfc, PF3 | MEM, SYSTEM, RW, NONE, NONE, INSN_A_ATOMIC, My, Gy)
	R(0xf9, NP | MEM, MOVDIRI, W, NONE, NONE, 0, My, Gy)
	BMI(0xf2, NP, ANDN, W, ANDN, NONE, Gy, By, Ey)
	BMI(0xf3, NP | REG(1), BLSR, W, ANDN, NONE, By, Ey)
	BMI(0xf3, NP | REG(2), BLSMSK, W, ANDN, NONE, By, Ey)
	BMI(0xf3, NP | REG(3), BLSI, W, ANDN, NONE, By, Ey)
	BMI(0xf5, NP, BZHI, W, ANDN, NONE, Gy, Ey, By)
	BMI(0xf5, PF3, PEXT, W, NONE, NONE, Gy, By, Ey)
	BMI(0xf5, PF2, PDEP, W, NONE, NONE, Gy, By, Ey)
	BMI(0xf6, PF2, MULX, WW, NONE, MULX, Gy, By, Ey)
	BMI(0xf7, NP, BEXTR, W, BEXTR, NONE, Gy, Ey, By)
	BMI(0xf7, P66, SHLX, W, NONE, NONE, Gy, Ey, By)
	BMI(0xf7, PF3, SARX, W, NONE, NONE, Gy, Ey, By)
	BMI(0xf7, PF2, SHRX, W, NONE, NONE, Gy, Ey, By)
};
/* clang-format on */

INSN_TABLE(insn_table_38, 2);
