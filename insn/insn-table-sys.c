/*
 * The 0F map's system instructions (SDM vol. 2D, tables ). Nothing here is
 * emulated; what has no id of its own is INSN_SYSTEM.
 */
#include "insn/insn-table.h"

#define PRIV				 INSN_A_PRIV
#define NONDET				 INSN_A_NONDET
#define S(op, m, name, acc, im, at, ...) R(op, m, name, acc, NONE, im, at, __VA_ARGS__)

/* clang-format off */
static const struct insn_row rows[] = {
	/* group 6 */
	S(0x00, REG(0), SLDT, W, NONE, NONDET, RvMw)
	S(0x00, REG(1), STR, W, NONE, NONDET, RvMw)
	S(0x00, REG(2), LLDT, R, NONE, PRIV, RwMw)
	S(0x00, REG(3), LTR, R, NONE, PRIV, RwMw)
	R(0x00, REG(4), VERR, R, ZF, NONE, NONDET, RwMw)
	R(0x00, REG(5), VERW, R, ZF, NONE, NONDET, RwMw)
	S(0x00, PF2 | REG(6), SYSTEM, R, NONE, PRIV, RwMw) /* lkgs */

	/* group 7 */
	S(0x01, PF3 | MEM | REG(5), SYSTEM, RW, NONE, PRIV, Mq) /* rstorssp */
	S(0x01, MEM | REG(0), SGDT, W, NONE, NONDET, Ms)
	S(0x01, MEM | REG(1), SIDT, W, NONE, NONDET, Ms)
	S(0x01, MEM | REG(2), LGDT, R, NONE, PRIV, Ms)
	S(0x01, MEM | REG(3), LIDT, R, NONE, PRIV, Ms)
	S(0x01, REG(4), SMSW, W, NONE, NONDET, RvMw)
	S(0x01, REG(6), LMSW, R, NONE, PRIV, RwMw)
	S(0x01, MEM | REG(7), INVLPG, N, NONE, PRIV | INSN_A_NOACCESS, M0)
	S(0x01, NP | MODRM(0xc8), MONITOR, N, ACD, PRIV)
	S(0x01, NP | MODRM(0xc9), MWAIT, N, XSAVE, PRIV)
	S(0x01, NP | MODRM(0xd0), XGETBV, N, XGETBV, NONDET)
	S(0x01, NP | MODRM(0xd5), XEND, N, NONE, PRIV)
	R(0x01, NP | MODRM(0xd6), XTEST, N, ARITH, NONE, NONDET)
	S(0x01, NP | MODRM(0xe8), SERIALIZE, N, NONE, 0)
	S(0x01, NP | MODRM(0xee), RDPKRU, N, XGETBV, NONDET)
	S(0x01, NP | MODRM(0xef), WRPKRU, N, ACD, 0)
	S(0x01, MODRM(0xf8), SWAPGS, N, NONE, PRIV)
	S(0x01, MODRM(0xf9), RDTSCP, N, TSCP, NONDET)
	S(0x01, NP | MODRM(0xfc), CLZERO, N, RAX, 0)
	R(0x01, RGS | REG(0), SYSTEM, N, ARITH, ODD, PRIV)
	R(0x01, RGS | REG(1), SYSTEM, N, ARITH, ODD, PRIV)
	R(0x01, RGS | REG(2), SYSTEM, N, ARITH, ODD, PRIV)
	R(0x01, RGS | REG(3), SYSTEM, N, ARITH, ODD, PRIV)
	R(0x01, RGS | REG(5), SYSTEM, N, ARITH, ODD, PRIV)
	R(0x01, RGS | REG(7), SYSTEM, N, ARITH, ODD, PRIV)

	R(0x02, ANY, LAR, RW, ZF, NONE, NONDET | RA_CONDW, Gv, RvMw)
	R(0x03, ANY, LSL, RW, ZF, NONE, NONDET | RA_CONDW, Gv, RvMw)
	S(0x06, ANY, CLTS, N, NONE, PRIV)
	R(0x07, ANY, SYSRET, N, POPF, NONE, PRIV | INSN_A_BRANCH)
	S(0x08, ANY, INVD, N, NONE, PRIV)
	S(0x09, ANY, WBINVD, N, NONE, PRIV)
	S(0x20, ANY, MOVCR, W, NONE, PRIV | RA_MOD3, Rq, Cq)
	S(0x21, ANY, MOVCR, W, NONE, PRIV | RA_MOD3, Rq, Cq)
	S(0x22, ANY, MOVCR, W, NONE, PRIV | RA_MOD3, Cq, Rq)
	S(0x23, ANY, MOVCR, W, NONE, PRIV | RA_MOD3, Cq, Rq)
	S(0x30, ANY, WRMSR, N, WRMSR, PRIV)
	S(0x32, ANY, RDMSR, N, XGETBV, PRIV)
	S(0x34, ANY, SYSENTER, N, ODD, PRIV | INSN_A_BRANCH)
	S(0x35, ANY, SYSEXIT, N, ODD, PRIV | INSN_A_BRANCH)
	S(0x37, ANY, SYSTEM, N, ODD, PRIV) /* getsec */
	R(0x78, NP, SYSTEM, RW, ARITH, NONE, PRIV, Eq, Gq) /* vmread */
	R(0x79, NP, SYSTEM, R, ARITH, NONE, PRIV, Gq, Eq) /* vmwrite */
	S(0xaa, ANY, SYSTEM, N, NONE, PRIV) /* rsm */
	/* AMD's have no 64-bit offsets in far pointers (APM vol. 3, LSS, JMP Far) */
	S(0xb2, MEM | AMD, LSS, W, NONE, PRIV | RA_NOW, Gv, Mp)
	S(0xb4, MEM | AMD, LFS, W, NONE, PRIV | RA_NOW, Gv, Mp)
	S(0xb5, MEM | AMD, LGS, W, NONE, PRIV | RA_NOW, Gv, Mp)
	S(0xb2, MEM, LSS, W, NONE, PRIV, Gv, Mp)
	S(0xb4, MEM, LFS, W, NONE, PRIV, Gv, Mp)
	S(0xb5, MEM, LGS, W, NONE, PRIV, Gv, Mp)
	/* group 9 */
	S(0xc7, MEM | REG(3), XRSTORS, R, XSAVE, PRIV | INSN_A_XSTATE, Mxs)
	S(0xc7, MEM | REG(4), XSAVEC, W, XSAVE, INSN_A_XSTATE, Mxs)
	S(0xc7, MEM | REG(5), XSAVES, W, XSAVE, PRIV | INSN_A_XSTATE, Mxs)
	R(0xc7, MEM | REG(6), SYSTEM, R, ARITH, NONE, PRIV, Mq)
	R(0xc7, MEM | REG(7), SYSTEM, W, ARITH, NONE, PRIV, Mq)
	R(0xc7, PF3 | RGS | REG(6), SYSTEM, R, NONE, NONE, PRIV, Rq) /* senduipi */
};
/* clang-format on */

INSN_TABLE(insn_table_sys, 1);
