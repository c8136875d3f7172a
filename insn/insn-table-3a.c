/*
 * The 0F 3A map (SDM vol. 2D, table A-5; operand sizes from the instruction pages).
 */
#include "insn/insn-table.h"

/* clang-format off */
static const struct insn_row rows[] = {
	V(0x00, P66 | L1 | W1, VPERMQ, W, Vqq, Wqq, Ib)
	V(0x01, P66 | L1 | W1, VPERMPD, W, Vqq, Wqq, Ib)
	/* seen on AMD's: W does not count */
	V(0x00, P66 | L1 | W0 | AMD, VPERMQ, W, Vqq, Wqq, Ib)
	V(0x01, P66 | L1 | W0 | AMD, VPERMPD, W, Vqq, Wqq, Ib)
	V(0x02, P66 | W0, VPBLENDD, W, Vx, Hx, Wx, Ib)
	V(0x04, P66 | W0, VPERMILPS, W, Vx, Wx, Ib)
	V(0x05, P66 | W0, VPERMILPD, W, Vx, Wx, Ib)
	V(0x06, P66 | L1 | W0, VPERM2F128, W, Vqq, Hqq, Wqq, Ib)
	B(0x08, P66, ROUNDPS, W, Vx, Wx, Ib)
	B(0x09, P66, ROUNDPD, W, Vx, Wx, Ib)
	B(0x0a, P66, ROUNDSS, W, Vss, Hss, Wss, Ib)
	B(0x0b, P66, ROUNDSD, W, Vsd, Hsd, Wsd, Ib)
	B(0x0c, P66, BLENDPS, W, Vx, Hx, Wx, Ib)
	B(0x0d, P66, BLENDPD, W, Vx, Hx, Wx, Ib)
	B(0x0e, P66, PBLENDW, W, Vx, Hx, Wx, Ib)
	L(0x0f, NP, PALIGNR, RW, Pq, Qq, Ib)
	B(0x0f, P66, PALIGNR, W, Vx, Hx, Wx, Ib)
	B(0x14, P66 | L0, PEXTRB, W, RdMb, Vdq, Ib)
	B(0x15, P66 | L0, PEXTRW, W, RdMw, Vdq, Ib)
	B(0x16, P66 | L0 | W0, PEXTRD, W, Ed, Vdq, Ib)
	B(0x16, P66 | L0 | W1, PEXTRQ, W, Eq, Vdq, Ib)
	B(0x17, P66 | L0, EXTRACTPS, W, Ed, Vdq, Ib)
	V(0x18, P66 | L1 | W0, VINSERTF128, W, Vqq, Hqq, Wdq, Ib)
	V(0x19, P66 | L1 | W0, VEXTRACTF128, W, Wdq, Vqq, Ib)
	V(0x1d, P66 | W0, VCVTPS2PH, W, WdqMxh, Vx, Ib)
	B(0x20, P66 | L0, PINSRB, W, Vdq, Hdq, RdMb, Ib)
	B(0x21, P66 | L0, INSERTPS, W, Vdq, Hdq, UdqMd, Ib)
	B(0x22, P66 | L0 | W0, PINSRD, W, Vdq, Hdq, Ed, Ib)
	B(0x22, P66 | L0 | W1, PINSRQ, W, Vdq, Hdq, Eq, Ib)
	V(0x38, P66 | L1 | W0, VINSERTI128, W, Vqq, Hqq, Wdq, Ib)
	V(0x39, P66 | L1 | W0, VEXTRACTI128, W, Wdq, Vqq, Ib)
	B(0x40, P66, DPPS, W, Vx, Hx, Wx, Ib)
	B(0x41, P66 | L0, DPPD, W, Vdq, Hdq, Wdq, Ib)
	B(0x42, P66, MPSADBW, W, Vx, Hx, Wx, Ib)
	B(0x44, P66, PCLMULQDQ, W, Vx, Hx, Wx, Ib)
	V(0x46, P66 | L1 | W0, VPERM2I128, W, Vqq, Hqq, Wqq, Ib)
	V(0x4a, P66 | W0, BLENDVPS, W, Vx, Hx, Wx, Lx)
	V(0x4b, P66 | W0, BLENDVPD, W, Vx, Hx, Wx, Lx)
	V(0x4c, P66 | W0, PBLENDVB, W, Vx, Hx, Wx, Lx)
	ROW(ENC_LEGACY | ENC_VEX, 0x60, 1, P66 | L0, PCMPESTRM, R, ARITH, ESTRM, 0, Vdq, Wdq, Ib)
	ROW(ENC_LEGACY | ENC_VEX, 0x61, 1, P66 | L0, PCMPESTRI, R, ARITH, ESTRI, 0, Vdq, Wdq, Ib)
	ROW(ENC_LEGACY | ENC_VEX, 0x62, 1, P66 | L0, PCMPISTRM, R, ARITH, NONE, 0, Vdq, Wdq, Ib)
	ROW(ENC_LEGACY | ENC_VEX, 0x63, 1, P66 | L0, PCMPISTRI, R, ARITH, ISTRI, 0, Vdq, Wdq, Ib)
	L(0xcc, NP, SHA1RNDS4, RW, Vdq, Wdq, Ib)
	L(0xce, P66, GF2P8AFFINEQB, RW, Vdq, Wdq, Ib)
	L(0xcf, P66, GF2P8AFFINEINVQB, RW, Vdq, Wdq, Ib)
	V(0xce, P66 | W1, GF2P8AFFINEQB, W, Vx, Hx, Wx, Ib)
	V(0xcf, P66 | W1, GF2P8AFFINEINVQB, W, Vx, Hx, Wx, Ib)
	B(0xdf, P66 | L0, AESKEYGENASSIST, W, Vdq, Wdq, Ib)
	ROW(ENC_VEX, 0xf0, 1, PF2 | L0, RORX, W, NONE, NONE, 0, Gy, Ey, Ib)
	R(0xf0, PF3 | MODRM(0xc0), SYSTEM, N, NONE, RAX, INSN_A_PRIV, Ib) /* hreset */
};
/* clang-format on */

INSN_TABLE(insn_table_3a, 3);
