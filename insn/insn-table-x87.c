/*
 * The x87 escapes D8..DF (SDM vol. 2D, tables ). The stack top is an explicit
 * operand where Intel's syntax writes it.
 */
#include "insn/insn-table.h"

#define F(op, m, name, acc, ...)                                                                   \
	ROW(ENC_LEGACY, op, 1, m, name, acc, NONE, NONE, INSN_A_X87, __VA_ARGS__)
#define FF(op, m, name, acc, fl, ...)                                                              \
	ROW(ENC_LEGACY, op, 1, m, name, acc, fl, NONE, INSN_A_X87, __VA_ARGS__)
#define FX(op, m, name, acc, ...)                                                                  \
	ROW(ENC_LEGACY, op, 1, m, name, acc, NONE, NONE, INSN_A_X87 | INSN_A_XSTATE, __VA_ARGS__)

/* Arithmetic with a memory operand: the eight of D8, DA, DC and DE. */
#define FMEM(op, prefix, mem)                                                                      \
	F(op, MEM | REG(0), prefix##ADD, R, mem)                                                   \
	F(op, MEM | REG(1), prefix##MUL, R, mem)                                                   \
	F(op, MEM | REG(2), prefix##COM, R, mem)                                                   \
	F(op, MEM | REG(3), prefix##COMP, R, mem)                                                  \
	F(op, MEM | REG(4), prefix##SUB, R, mem)                                                   \
	F(op, MEM | REG(5), prefix##SUBR, R, mem)                                                  \
	F(op, MEM | REG(6), prefix##DIV, R, mem) F(op, MEM | REG(7), prefix##DIVR, R, mem)

/* clang-format off */
static const struct insn_row rows[] = {
	FMEM(0xd8, F, Md)
	F(0xd8, RGS | REG(0), FADD, RW, ST0, STi)
	F(0xd8, RGS | REG(1), FMUL, RW, ST0, STi)
	F(0xd8, RGS | REG(2), FCOM, R, STi)
	F(0xd8, RGS | REG(3), FCOMP, R, STi)
	F(0xd8, RGS | REG(4), FSUB, RW, ST0, STi)
	F(0xd8, RGS | REG(5), FSUBR, RW, ST0, STi)
	F(0xd8, RGS | REG(6), FDIV, RW, ST0, STi)
	F(0xd8, RGS | REG(7), FDIVR, RW, ST0, STi)

	F(0xd9, MEM | REG(0), FLD, R, Md)
	F(0xd9, MEM | REG(2), FST, W, Md)
	F(0xd9, MEM | REG(3), FSTP, W, Md)
	FX(0xd9, MEM | REG(4), FLDENV, R, Menv)
	F(0xd9, MEM | REG(5), FLDCW, R, Mw)
	FX(0xd9, MEM | REG(6), FNSTENV, W, Menv)
	F(0xd9, MEM | REG(7), FNSTCW, W, Mw)
	F(0xd9, RGS | REG(0), FLD, R, STi)
	F(0xd9, RGS | REG(1), FXCH, RW, STi)
	F(0xd9, MODRM(0xd0), FNOP, N)
	F(0xd9, RGS | REG(3), FSTP, W, STi)
	F(0xd9, MODRM(0xe0), FCHS, N)
	F(0xd9, MODRM(0xe1), FABS, N)
	F(0xd9, MODRM(0xe4), FTST, N)
	F(0xd9, MODRM(0xe5), FXAM, N)
	F(0xd9, MODRM(0xe8), FLD1, N)
	F(0xd9, MODRM(0xe9), FLDL2T, N)
	F(0xd9, MODRM(0xea), FLDL2E, N)
	F(0xd9, MODRM(0xeb), FLDPI, N)
	F(0xd9, MODRM(0xec), FLDLG2, N)
	F(0xd9, MODRM(0xed), FLDLN2, N)
	F(0xd9, MODRM(0xee), FLDZ, N)
	F(0xd9, MODRM(0xf0), F2XM1, N)
	F(0xd9, MODRM(0xf1), FYL2X, N)
	F(0xd9, MODRM(0xf2), FPTAN, N)
	F(0xd9, MODRM(0xf3), FPATAN, N)
	F(0xd9, MODRM(0xf4), FXTRACT, N)
	F(0xd9, MODRM(0xf5), FPREM1, N)
	F(0xd9, MODRM(0xf6), FDECSTP, N)
	F(0xd9, MODRM(0xf7), FINCSTP, N)
	F(0xd9, MODRM(0xf8), FPREM, N)
	F(0xd9, MODRM(0xf9), FYL2XP1, N)
	F(0xd9, MODRM(0xfa), FSQRT, N)
	F(0xd9, MODRM(0xfb), FSINCOS, N)
	F(0xd9, MODRM(0xfc), FRNDINT, N)
	F(0xd9, MODRM(0xfd), FSCALE, N)
	F(0xd9, MODRM(0xfe), FSIN, N)
	F(0xd9, MODRM(0xff), FCOS, N)

	FMEM(0xda, FI, Md)
	FF(0xda, RGS | REG(0), FCMOVB, RW, RDC, ST0, STi)
	FF(0xda, RGS | REG(1), FCMOVE, RW, RDZ, ST0, STi)
	FF(0xda, RGS | REG(2), FCMOVBE, RW, RDCZ, ST0, STi)
	FF(0xda, RGS | REG(3), FCMOVU, RW, RDP, ST0, STi)
	F(0xda, MODRM(0xe9), FUCOMPP, N)

	F(0xdb, MEM | REG(0), FILD, R, Md)
	F(0xdb, MEM | REG(1), FISTTP, W, Md)
	F(0xdb, MEM | REG(2), FIST, W, Md)
	F(0xdb, MEM | REG(3), FISTP, W, Md)
	F(0xdb, MEM | REG(5), FLD, R, Mt)
	F(0xdb, MEM | REG(7), FSTP, W, Mt)
	FF(0xdb, RGS | REG(0), FCMOVNB, RW, RDC, ST0, STi)
	FF(0xdb, RGS | REG(1), FCMOVNE, RW, RDZ, ST0, STi)
	FF(0xdb, RGS | REG(2), FCMOVNBE, RW, RDCZ, ST0, STi)
	FF(0xdb, RGS | REG(3), FCMOVNU, RW, RDP, ST0, STi)
	/* fneni, fndisi, fnsetpm: nothing since the 387 */
	F(0xdb, MODRM(0xe0), FNOP, N)
	F(0xdb, MODRM(0xe1), FNOP, N)
	F(0xdb, MODRM(0xe2), FNCLEX, N)
	F(0xdb, MODRM(0xe3), FNINIT, N)
	F(0xdb, MODRM(0xe4), FNOP, N)
	FF(0xdb, RGS | REG(5), FUCOMI, R, ARITH, ST0, STi)
	FF(0xdb, RGS | REG(6), FCOMI, R, ARITH, ST0, STi)

	FMEM(0xdc, F, Mq)
	F(0xdc, RGS | REG(0), FADD, RW, STi, ST0)
	F(0xdc, RGS | REG(1), FMUL, RW, STi, ST0)
	/* aliases, in AMD64 APM vol. 3, table A-15 */
	F(0xdc, RGS | REG(2), FCOM, R, STi)
	F(0xdc, RGS | REG(3), FCOMP, R, STi)
	F(0xdc, RGS | REG(4), FSUBR, RW, STi, ST0)
	F(0xdc, RGS | REG(5), FSUB, RW, STi, ST0)
	F(0xdc, RGS | REG(6), FDIVR, RW, STi, ST0)
	F(0xdc, RGS | REG(7), FDIV, RW, STi, ST0)

	F(0xdd, MEM | REG(0), FLD, R, Mq)
	F(0xdd, MEM | REG(1), FISTTP, W, Mq)
	F(0xdd, MEM | REG(2), FST, W, Mq)
	F(0xdd, MEM | REG(3), FSTP, W, Mq)
	FX(0xdd, MEM | REG(4), FRSTOR, R, Msave)
	FX(0xdd, MEM | REG(6), FNSAVE, W, Msave)
	F(0xdd, MEM | REG(7), FNSTSW, W, Mw)
	F(0xdd, RGS | REG(0), FFREE, N, STi)
	F(0xdd, RGS | REG(1), FXCH, RW, STi)
	F(0xdd, RGS | REG(2), FST, W, STi)
	F(0xdd, RGS | REG(3), FSTP, W, STi)
	F(0xdd, RGS | REG(4), FUCOM, R, STi)
	F(0xdd, RGS | REG(5), FUCOMP, R, STi)

	FMEM(0xde, FI, Mw)
	F(0xde, RGS | REG(0), FADDP, RW, STi, ST0)
	F(0xde, RGS | REG(1), FMULP, RW, STi, ST0)
	F(0xde, RGS | REG(2), FCOMP, R, STi)
	F(0xde, MODRM(0xd9), FCOMPP, N)
	F(0xde, RGS | REG(4), FSUBRP, RW, STi, ST0)
	F(0xde, RGS | REG(5), FSUBP, RW, STi, ST0)
	F(0xde, RGS | REG(6), FDIVRP, RW, STi, ST0)
	F(0xde, RGS | REG(7), FDIVP, RW, STi, ST0)

	F(0xdf, MEM | REG(0), FILD, R, Mw)
	F(0xdf, MEM | REG(1), FISTTP, W, Mw)
	F(0xdf, MEM | REG(2), FIST, W, Mw)
	F(0xdf, MEM | REG(3), FISTP, W, Mw)
	F(0xdf, MEM | REG(4), FBLD, R, Mt)
	F(0xdf, MEM | REG(5), FILD, R, Mq)
	F(0xdf, MEM | REG(6), FBSTP, W, Mt)
	F(0xdf, MEM | REG(7), FISTP, W, Mq)
	F(0xdf, RGS | REG(0), FFREEP, N, STi)
	F(0xdf, RGS | REG(1), FXCH, RW, STi)
	F(0xdf, RGS | REG(2), FSTP, W, STi)
	F(0xdf, RGS | REG(3), FSTP, W, STi)
	F(0xdf, MODRM(0xe0), FNSTSW, W, AX)
	FF(0xdf, RGS | REG(5), FUCOMIP, R, ARITH, ST0, STi)
	FF(0xdf, RGS | REG(6), FCOMIP, R, ARITH, ST0, STi)
};
/* clang-format on */

INSN_TABLE(insn_table_x87, 0);
