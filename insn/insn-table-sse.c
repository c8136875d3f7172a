/*
 * The 0F map's vector instructions that move and compute floating point: opcodes 10..5F and
 * C2, C6, D0, E6 (SDM vol. 2D, table A-3; operand sizes from the instruction pages).
 *
 * Scalar operands have the size of the scalar; the legacy forms keep the rest of the
 * destination, the VEX forms take it from the H operand.
 */
#include "insn/insn-table.h"

/* ps, pd, ss, sd with two sources */
#define PSD2(op, name)                                                                             \
	B(op, NP, name##PS, W, Vx, Hx, Wx)                                                         \
	B(op, P66, name##PD, W, Vx, Hx, Wx)                                                        \
	B(op, PF3, name##SS, W, Vss, Hss, Wss) B(op, PF2, name##SD, W, Vsd, Hsd, Wsd)
/* ps, pd with two sources */
#define PP2(op, name) B(op, NP, name##PS, W, Vx, Hx, Wx) B(op, P66, name##PD, W, Vx, Hx, Wx)

/* clang-format off */
static const struct insn_row rows[] = {
	B(0x10, NP, MOVUPS, W, Vx, Wx)
	B(0x10, P66, MOVUPD, W, Vx, Wx)
	B(0x10, PF3 | MEM, MOVSS, W, Vdq, Wss)
	B(0x10, PF3 | RGS, MOVSS, W, Vss, Hss, Uss)
	B(0x10, PF2 | MEM, MOVSD, W, Vdq, Wsd)
	B(0x10, PF2 | RGS, MOVSD, W, Vsd, Hsd, Usd)
	B(0x11, NP, MOVUPS, W, Wx, Vx)
	B(0x11, P66, MOVUPD, W, Wx, Vx)
	B(0x11, PF3 | MEM, MOVSS, W, Wss, Vss)
	B(0x11, PF3 | RGS, MOVSS, W, Uss, Hss, Vss)
	B(0x11, PF2 | MEM, MOVSD, W, Wsd, Vsd)
	B(0x11, PF2 | RGS, MOVSD, W, Usd, Hsd, Vsd)
	B(0x12, NP | L0 | MEM, MOVLPS, W, Vdq, Hdq, Mq)
	B(0x12, NP | L0 | RGS, MOVHLPS, W, Vdq, Hdq, Udq)
	B(0x12, P66 | L0 | MEM, MOVLPD, W, Vdq, Hdq, Mq)
	B(0x12, PF3, MOVSLDUP, W, Vx, Wx)
	B(0x12, PF2, MOVDDUP, W, Vx, Wdd)
	B(0x13, NP | L0 | MEM, MOVLPS, W, Mq, Vq)
	B(0x13, P66 | L0 | MEM, MOVLPD, W, Mq, Vq)
	PP2(0x14, UNPCKL)
	PP2(0x15, UNPCKH)
	B(0x16, NP | L0 | MEM, MOVHPS, W, Vdq, Hdq, Mq)
	B(0x16, NP | L0 | RGS, MOVLHPS, W, Vdq, Hdq, Uq)
	B(0x16, P66 | L0 | MEM, MOVHPD, W, Vdq, Hdq, Mq)
	B(0x16, PF3, MOVSHDUP, W, Vx, Wx)
	B(0x17, NP | L0 | MEM, MOVHPS, W, Mq, Vdq)
	B(0x17, P66 | L0 | MEM, MOVHPD, W, Mq, Vdq)
	B(0x28, NP, MOVAPS, W, Vx, Wx)
	B(0x28, P66, MOVAPD, W, Vx, Wx)
	B(0x29, NP, MOVAPS, W, Wx, Vx)
	B(0x29, P66, MOVAPD, W, Wx, Vx)
	L(0x2a, NP, CVTPI2PS, RW, Vq, Qq)
	L(0x2a, P66, CVTPI2PD, W, Vdq, Qq)
	B(0x2a, PF3, CVTSI2SS, W, Vss, Hss, Ey)
	B(0x2a, PF2, CVTSI2SD, W, Vsd, Hsd, Ey)
	B(0x2b, NP | MEM, MOVNTPS, W, Mx, Vx)
	B(0x2b, P66 | MEM, MOVNTPD, W, Mx, Vx)
	/* SSE4a, also 78 and 79 below */
	L(0x2b, PF3 | MEM | AMD, MOVNTSS, W, Md, Vss)
	L(0x2b, PF2 | MEM | AMD, MOVNTSD, W, Mq, Vsd)
	L(0x2c, NP, CVTTPS2PI, W, Pq, Wq)
	L(0x2c, P66, CVTTPD2PI, W, Pq, Wdq)
	B(0x2c, PF3, CVTTSS2SI, W, Gy, Wss)
	B(0x2c, PF2, CVTTSD2SI, W, Gy, Wsd)
	L(0x2d, NP, CVTPS2PI, W, Pq, Wq)
	L(0x2d, P66, CVTPD2PI, W, Pq, Wdq)
	B(0x2d, PF3, CVTSS2SI, W, Gy, Wss)
	B(0x2d, PF2, CVTSD2SI, W, Gy, Wsd)
	BF(0x2e, NP, UCOMISS, Vss, Wss)
	BF(0x2e, P66, UCOMISD, Vsd, Wsd)
	BF(0x2f, NP, COMISS, Vss, Wss)
	BF(0x2f, P66, COMISD, Vsd, Wsd)

	B(0x50, NP | RGS, MOVMSKPS, W, Gd, Ux)
	B(0x50, P66 | RGS, MOVMSKPD, W, Gd, Ux)
	B(0x51, NP, SQRTPS, W, Vx, Wx)
	B(0x51, P66, SQRTPD, W, Vx, Wx)
	B(0x51, PF3, SQRTSS, W, Vss, Hss, Wss)
	B(0x51, PF2, SQRTSD, W, Vsd, Hsd, Wsd)
	B(0x52, NP, RSQRTPS, W, Vx, Wx)
	B(0x52, PF3, RSQRTSS, W, Vss, Hss, Wss)
	B(0x53, NP, RCPPS, W, Vx, Wx)
	B(0x53, PF3, RCPSS, W, Vss, Hss, Wss)
	PP2(0x54, AND)
	PP2(0x55, ANDN)
	PP2(0x56, OR)
	PP2(0x57, XOR)
	PSD2(0x58, ADD)
	PSD2(0x59, MUL)
	B(0x5a, NP, CVTPS2PD, W, Vx, Wxh)
	B(0x5a, P66, CVTPD2PS, W, Vdq, Wx)
	B(0x5a, PF3, CVTSS2SD, W, Vsd, Hsd, Wss)
	B(0x5a, PF2, CVTSD2SS, W, Vss, Hss, Wsd)
	B(0x5b, NP, CVTDQ2PS, W, Vx, Wx)
	B(0x5b, P66, CVTPS2DQ, W, Vx, Wx)
	B(0x5b, PF3, CVTTPS2DQ, W, Vx, Wx)
	PSD2(0x5c, SUB)
	PSD2(0x5d, MIN)
	PSD2(0x5e, DIV)
	PSD2(0x5f, MAX)
	L(0x78, P66 | RGS | REG(0) | AMD, EXTRQ, RW, Udq, Ib, I2b)
	L(0x78, PF2 | RGS | AMD, INSERTQ, RW, Vdq, Udq, Ib, I2b)
	L(0x79, P66 | RGS | AMD, EXTRQ, RW, Vdq, Udq)
	L(0x79, PF2 | RGS | AMD, INSERTQ, RW, Vdq, Udq)
	B(0x7c, P66, HADDPD, W, Vx, Hx, Wx)
	B(0x7c, PF2, HADDPS, W, Vx, Hx, Wx)
	B(0x7d, P66, HSUBPD, W, Vx, Hx, Wx)
	B(0x7d, PF2, HSUBPS, W, Vx, Hx, Wx)

	B(0xc2, NP, CMPPS, W, Vx, Hx, Wx, Ib)
	B(0xc2, P66, CMPPD, W, Vx, Hx, Wx, Ib)
	B(0xc2, PF3, CMPSS, W, Vss, Hss, Wss, Ib)
	B(0xc2, PF2, CMPSDX, W, Vsd, Hsd, Wsd, Ib)
	B(0xc6, NP, SHUFPS, W, Vx, Hx, Wx, Ib)
	B(0xc6, P66, SHUFPD, W, Vx, Hx, Wx, Ib)
	B(0xd0, P66, ADDSUBPD, W, Vx, Hx, Wx)
	B(0xd0, PF2, ADDSUBPS, W, Vx, Hx, Wx)
	B(0xe6, P66, CVTTPD2DQ, W, Vdq, Wx)
	B(0xe6, PF3, CVTDQ2PD, W, Vx, Wxh)
	B(0xe6, PF2, CVTPD2DQ, W, Vdq, Wx)
};
/* clang-format on */

INSN_TABLE(insn_table_sse, 1);
