/*
 * The opcode table behind insn_decode(): what a row says and the short names rows are
 * written with. Private to insn/, which is why the names can be those of the opcode maps in
 * SDM vol. 2D, appendix A (Ev, Gv, Wx ...).
 *
 * A row belongs to one opcode byte (or `span` consecutive ones) of one map, in the legacy
 * encoding, the VEX encoding or both. Rows of one opcode are tried in the order they stand
 * in; the first whose `match` fits the prefixes and the modrm byte is the instruction.
 */
#ifndef DEJA_INSN_INSN_TABLE_H
#define DEJA_INSN_INSN_TABLE_H

/* clang-format off */
#include "format/regs.h"
#include "insn/insn.h"

/* Where an operand comes from. */
enum opnd_source {
	S_NONE,
	S_E,	/* modrm.rm: general register or memory */
	S_M,	/* modrm.rm: memory only */
	S_R,	/* modrm.rm: general register only */
	S_G,	/* modrm.reg: general register */
	S_B,	/* VEX.vvvv: general register */
	S_Z,	/* low three bits of the opcode */
	S_A,	/* rax */
	S_C,	/* rcx */
	S_D,	/* rdx */
	S_ONE,	/* the constant 1 */
	S_I,	/* immediate, zero-extended */
	S_SI,	/* immediate, sign-extended */
	S_I2,	/* enter's second immediate */
	S_J,	/* relative branch target */
	S_O,	/* moffs */
	S_SEG,	/* modrm.reg: segment register */
	S_FS, S_GS,
	S_CR,	/* modrm.reg: control or debug register */
	S_V,	/* modrm.reg: xmm/ymm */
	S_W,	/* modrm.rm: xmm/ymm or memory */
	S_U,	/* modrm.rm: xmm/ymm only */
	S_H,	/* VEX.vvvv: xmm/ymm; absent in the legacy encoding */
	S_L,	/* imm8[7:4]: xmm/ymm */
	S_XMM0, /* xmm0 */
	S_P,	/* modrm.reg: mmx */
	S_Q,	/* modrm.rm: mmx or memory */
	S_N,	/* modrm.rm: mmx only */
	S_ST0, S_STI,
	S_K, S_KH, /* modrm.reg, VEX.vvvv: an AVX-512 mask register, shown as OPND_CR */
	S_KE,	/* modrm.rm: mask register or memory */
	S_VSIB, /* gather: size of the index register, element size in memory */
};

/* How wide it is. */
enum opnd_size {
	Z_0,		  /* not accessed */
	Z_B, Z_W, Z_D, Z_Q, Z_DQ, Z_QQ, Z_T, /* 1 2 4 8 16 32 10 bytes */
	Z_V,		  /* 2, 4 or 8 by operand size */
	Z_Z,		  /* 2 or 4 */
	Z_Y,		  /* 4 or 8 */
	Z_X,		  /* 16, or 32 if VEX.L */
	Z_XH, Z_XQ, Z_XE, /* a half, a quarter, an eighth of that */
	Z_DDUP,		  /* 8, or 32 if VEX.L */
	Z_P,		  /* far pointer: 2 more than Z_V */
	Z_S,		  /* descriptor table pointer: 10 */
	Z_ENV, Z_SAVE,	  /* fnstenv 28 (14), fnsave 108 (94) */
	Z_FX, Z_XS,	  /* 512; xsave area for x87, SSE and AVX: 832 */
	Z_64B,		  /* 64 */
	Z_COUNT
};

/* X(name, source, size as register, size as memory) */
#define INSN_OPNDS(X) \
	X(Eb, S_E, Z_B, Z_B) X(Ew, S_E, Z_W, Z_W) X(Ed, S_E, Z_D, Z_D) X(Eq, S_E, Z_Q, Z_Q) \
	X(Ev, S_E, Z_V, Z_V) X(Ez, S_E, Z_Z, Z_Z) X(Ey, S_E, Z_Y, Z_Y) \
	X(RdMb, S_E, Z_D, Z_B) X(RdMw, S_E, Z_D, Z_W) X(RvMw, S_E, Z_V, Z_W) \
	X(RwMw, S_E, Z_W, Z_W) \
	X(M0, S_M, Z_0, Z_0) X(Mb, S_M, Z_0, Z_B) X(Mw, S_M, Z_0, Z_W) X(Md, S_M, Z_0, Z_D) \
	X(Mq, S_M, Z_0, Z_Q) X(Mdq, S_M, Z_0, Z_DQ) X(Mx, S_M, Z_0, Z_X) X(Mt, S_M, Z_0, Z_T) \
	X(Mv, S_M, Z_0, Z_V) X(My, S_M, Z_0, Z_Y) X(Mp, S_M, Z_0, Z_P) X(Ms, S_M, Z_0, Z_S) \
	X(Menv, S_M, Z_0, Z_ENV) X(Msave, S_M, Z_0, Z_SAVE) X(Mfx, S_M, Z_0, Z_FX) \
	X(Mxs, S_M, Z_0, Z_XS) X(M64, S_M, Z_0, Z_64B) \
	X(Rd, S_R, Z_D, Z_0) X(Rq, S_R, Z_Q, Z_0) X(Rv, S_R, Z_V, Z_0) X(Ry, S_R, Z_Y, Z_0) \
	X(Gb, S_G, Z_B, Z_0) X(Gw, S_G, Z_W, Z_0) X(Gd, S_G, Z_D, Z_0) X(Gq, S_G, Z_Q, Z_0) \
	X(Gv, S_G, Z_V, Z_0) X(Gy, S_G, Z_Y, Z_0) X(By, S_B, Z_Y, Z_0) \
	X(Zb, S_Z, Z_B, Z_0) X(Zv, S_Z, Z_V, Z_0) X(Zy, S_Z, Z_Y, Z_0) \
	X(AL, S_A, Z_B, Z_0) X(AX, S_A, Z_W, Z_0) X(EAXz, S_A, Z_Z, Z_0) X(RAXv, S_A, Z_V, Z_0) \
	X(CL, S_C, Z_B, Z_0) X(DX, S_D, Z_W, Z_0) X(ONE, S_ONE, Z_B, Z_0) \
	X(Ib, S_I, Z_B, Z_0) X(Iw, S_I, Z_W, Z_0) X(sIb, S_SI, Z_B, Z_0) X(Iz, S_SI, Z_Z, Z_0) \
	X(Iv, S_SI, Z_V, Z_0) X(I2b, S_I2, Z_B, Z_0) X(Jb, S_J, Z_B, Z_0) X(Jz, S_J, Z_D, Z_0) X(Jv, S_J, Z_Z, Z_0) \
	X(Ob, S_O, Z_0, Z_B) X(Ov, S_O, Z_0, Z_V) \
	X(Sw, S_SEG, Z_W, Z_0) X(FS, S_FS, Z_W, Z_0) X(GS, S_GS, Z_W, Z_0) X(Cq, S_CR, Z_Q, Z_0) \
	X(Vd, S_V, Z_D, Z_0) X(Vq, S_V, Z_Q, Z_0) X(Vdq, S_V, Z_DQ, Z_0) X(Vqq, S_V, Z_QQ, Z_0) \
	X(Vx, S_V, Z_X, Z_0) X(Vxh, S_V, Z_XH, Z_0) X(Vss, S_V, Z_D, Z_0) X(Vsd, S_V, Z_Q, Z_0) \
	X(Wb, S_W, Z_B, Z_B) X(Ww, S_W, Z_W, Z_W) X(Wd, S_W, Z_D, Z_D) X(Wq, S_W, Z_Q, Z_Q) \
	X(Wdq, S_W, Z_DQ, Z_DQ) X(Wqq, S_W, Z_QQ, Z_QQ) X(Wx, S_W, Z_X, Z_X) \
	X(Wxh, S_W, Z_XH, Z_XH) X(Wxq, S_W, Z_XQ, Z_XQ) X(Wxe, S_W, Z_XE, Z_XE) \
	X(Wss, S_W, Z_D, Z_D) X(Wsd, S_W, Z_Q, Z_Q) X(Wdd, S_W, Z_DDUP, Z_DDUP) \
	X(UdqMd, S_W, Z_DQ, Z_D) X(WdqMq, S_W, Z_DQ, Z_Q) X(WdqMxh, S_W, Z_DQ, Z_XH) \
	X(Uq, S_U, Z_Q, Z_0) X(Udq, S_U, Z_DQ, Z_0) X(Ux, S_U, Z_X, Z_0) X(Uss, S_U, Z_D, Z_0) \
	X(Usd, S_U, Z_Q, Z_0) \
	X(Hss, S_H, Z_D, Z_0) X(Hsd, S_H, Z_Q, Z_0) X(Hdq, S_H, Z_DQ, Z_0) \
	X(Hqq, S_H, Z_QQ, Z_0) X(Hx, S_H, Z_X, Z_0) X(Hxh, S_H, Z_XH, Z_0) \
	X(Lx, S_L, Z_X, Z_0) X(XMM0, S_XMM0, Z_DQ, Z_0) \
	X(Pd, S_P, Z_D, Z_0) X(Pq, S_P, Z_Q, Z_0) X(Qd, S_Q, Z_D, Z_D) X(Qq, S_Q, Z_Q, Z_Q) \
	X(Nq, S_N, Z_Q, Z_0) X(ST0, S_ST0, Z_T, Z_0) X(STi, S_STI, Z_T, Z_0) \
	X(Kr, S_K, Z_Q, Z_0) X(Kh, S_KH, Z_Q, Z_0) X(KEb, S_KE, Z_Q, Z_B) X(KEw, S_KE, Z_Q, Z_W) \
	X(KEd, S_KE, Z_Q, Z_D) X(KEq, S_KE, Z_Q, Z_Q) \
	X(VSx4, S_VSIB, Z_X, Z_D) X(VSx8, S_VSIB, Z_X, Z_Q) X(VSxh8, S_VSIB, Z_XH, Z_Q)

enum insn_opnd_code {
	O_NONE,
#define X(name, src, zr, zm) name,
	INSN_OPNDS(X)
#undef X
	O_COUNT
};

/* What is done to the operands. H operands are always read. In a row for both encodings
 * that has an H operand, the legacy form drops it and reads its destination instead. */
enum insn_acc {
	ACC_W,	/* first written, the others read */
	ACC_RW, /* first read and written */
	ACC_R,	/* all read */
	ACC_XX, /* first two read and written */
	ACC_WW, /* first two written */
	ACC_GATHER, /* first and third read and written */
	ACC_N,	/* none accessed */
};

/* X(name, read, written, undefined). SHIFT, SHD, ROT, RC (by their count), COND (by the condition)
 * and CMPS (under REP) are refined in insn-use.c. */
#define F_C DJ_FLAG_CF
#define F_P DJ_FLAG_PF
#define F_A DJ_FLAG_AF
#define F_Z DJ_FLAG_ZF
#define F_S DJ_FLAG_SF
#define F_D DJ_FLAG_DF
#define F_O DJ_FLAG_OF
#define F_ALL DJ_FLAGS_ARITH
#define INSN_FLAG_KINDS(X) \
	X(ARITH, 0, F_ALL, 0) \
	X(ADC, F_C, F_ALL, 0) \
	X(INC, 0, F_ALL & ~F_C, 0) \
	X(LOGIC, 0, F_ALL, F_A) \
	X(MUL, 0, F_ALL, F_S | F_Z | F_A | F_P) \
	X(DIV, 0, F_ALL, F_ALL) \
	X(SHIFT, 0, F_ALL, F_A) \
	X(SHD, 0, F_ALL, F_A) \
	X(ROT, 0, F_C | F_O, 0) \
	X(RC, F_C, F_C | F_O, 0) \
	X(BT, 0, F_ALL & ~F_Z, F_O | F_S | F_A | F_P) \
	X(BSF, 0, F_ALL, F_ALL & ~F_Z) \
	X(TZCNT, 0, F_ALL, F_O | F_S | F_A | F_P) \
	X(ANDN, 0, F_ALL, F_A | F_P) \
	X(BEXTR, 0, F_ALL, F_S | F_A | F_P) \
	X(CF, 0, F_C, 0) \
	X(ADCX, F_C, F_C, 0) \
	X(ADOX, F_O, F_O, 0) \
	X(SAHF, 0, F_ALL & ~F_O, 0) \
	X(LAHF, F_ALL & ~F_O, 0, 0) \
	X(PUSHF, F_ALL | F_D, 0, 0) \
	X(POPF, 0, F_ALL | F_D, 0) \
	X(DFW, 0, F_D, 0) \
	X(STRING, F_D, 0, 0) \
	X(CMPS, F_D, F_ALL, 0) \
	X(COND, 0, 0, 0) \
	X(ZF, 0, F_Z, 0) \
	X(LOOPZ, F_Z, 0, 0) \
	X(RDC, F_C, 0, 0) X(RDZ, F_Z, 0, 0) X(RDCZ, F_C | F_Z, 0, 0) X(RDP, F_P, 0, 0)
enum insn_flag_kind {
	FL_NONE,
#define X(name, r, w, u) FL_##name,
	INSN_FLAG_KINDS(X)
#undef X
};

/* X(name, read, written, full): implicit general registers, sets as letters below.
 * Those that depend on operand size (MULDIV CBW CWD LODS AH) are refined in insn-use.c. */
#define G_A 0x0001
#define G_C 0x0002
#define G_D 0x0004
#define G_B 0x0008
#define G_SP 0x0010
#define G_BP 0x0020
#define G_SI 0x0040
#define G_DI 0x0080
#define INSN_IMPLICITS(X) \
	X(SP, G_SP, G_SP, G_SP) \
	X(LEAVE, G_BP, G_SP | G_BP, G_SP | G_BP) \
	X(ENTER, G_SP | G_BP, G_SP | G_BP, G_SP | G_BP) \
	X(MULDIV, 0, 0, 0) X(CBW, 0, 0, 0) X(CWD, 0, 0, 0) \
	X(MOVS, G_SI | G_DI, G_SI | G_DI, G_SI | G_DI) \
	X(STOS, G_A | G_DI, G_DI, G_DI) \
	X(LODS, G_SI, G_SI, G_SI) \
	X(SCAS, G_A | G_DI, G_DI, G_DI) \
	X(INS, G_D | G_DI, G_DI, G_DI) \
	X(OUTS, G_D | G_SI, G_SI, G_SI) \
	X(XLAT, G_A | G_B, G_A, 0) \
	X(CMPXCHG, G_A, G_A, 0) \
	X(CX8, G_A | G_B | G_C | G_D, G_A | G_D, 0) \
	X(SYSCALL, G_A | G_DI | G_SI | G_D | 0x700, G_A | G_C | 0x800, G_A | G_C | 0x800) \
	X(CPUID, G_A | G_C, G_A | G_B | G_C | G_D, G_A | G_B | G_C | G_D) \
	X(TSC, 0, G_A | G_D, G_A | G_D) \
	X(TSCP, 0, G_A | G_C | G_D, G_A | G_C | G_D) \
	X(XGETBV, G_C, G_A | G_D, G_A | G_D) \
	X(WRMSR, G_A | G_C | G_D, 0, 0) \
	X(XSAVE, G_A | G_D, 0, 0) \
	X(LOOP, G_C, G_C, G_C) X(JRCXZ, G_C, 0, 0) \
	X(LAHF, G_A, G_A, 0) X(SAHF, G_A, 0, 0) \
	X(MULX, G_D, 0, 0) X(RDI, G_DI, 0, 0) X(RAX, G_A, 0, 0) X(WRAX, G_A, G_A, 0) \
	X(ESTRI, G_A | G_D, G_C, G_C) X(ESTRM, G_A | G_D, 0, 0) X(ISTRI, 0, G_C, G_C) \
	X(ACD, G_A | G_C | G_D, 0, 0) \
	X(ODD, G_A | G_B | G_C | G_D, G_A | G_B | G_C | G_D, 0)
enum insn_implicit {
	IM_NONE,
#define X(name, r, w, f) IM_##name,
	INSN_IMPLICITS(X)
#undef X
};

/* Attributes of rows that do not show in struct insn. */
#define RA_D64	 (1u << 24) /* operand size is 64 unless 66 */
#define RA_F64	 (1u << 25) /* operand size is 64 */
#define RA_BYTE	 (1u << 26) /* operand size is a byte (where no operand says so) */
#define RA_CONDW (1u << 27) /* the destination may stay as it is */
#define RA_CC	 (1u << 28) /* low four opcode bits are a condition */
#define RA_MOD3	 (1u << 29) /* modrm.mod does not count: the operand is a register */
#define RA_NOW	 (1u << 30) /* REX.W does not count */
#define RA_MASK	 0x00ffffffu

/*
 * What a row asks for: `value` in the low half, the bits that matter in the high half.
 * Bits 0-2 modrm.reg, 3 mod == 3, 4-6 modrm.rm, 7 W (REX or VEX), 8 VEX.L,
 * 9-10 prefix (none, 66, F3, F2; of several, F2/F3 win), 11 operand size 16, 12 REX.B, 13 which
 * maker's processor.
 */
#define MATCH(mask, value) ((uint32_t)(mask) << 16 | (value))
#define ANY	0u
#define REG(n)	MATCH(0x7, (n))
#define MEM	MATCH(0x8, 0)
#define RGS	MATCH(0x8, 8)
#define RM(n)	MATCH(0x70, (n) << 4)
#define MODRM(b) (RGS | REG((b) >> 3 & 7) | RM((b) & 7)) /* one whole byte, c0..ff */
#define W0	MATCH(0x80, 0)
#define W1	MATCH(0x80, 0x80)
#define L0	MATCH(0x100, 0)
#define L1	MATCH(0x100, 0x100)
#define NP	MATCH(0x600, 0x000)
#define P66	MATCH(0x600, 0x200)
#define PF3	MATCH(0x600, 0x400)
#define PF2	MATCH(0x600, 0x600)
#define NOREP	MATCH(0x400, 0x000) /* none or 66 */
#define O16	MATCH(0x800, 0x800)
#define RXB	MATCH(0x1000, 0x1000)
#define INTEL	MATCH(0x2000, 0)
#define AMD	MATCH(0x2000, 0x2000)

enum { ENC_LEGACY = 1, ENC_VEX = 2 };

struct insn_row {
	uint32_t match;
	uint32_t attr;
	uint16_t id;
	uint8_t opcode, span;
	uint8_t enc, acc, flags, implicit;
	uint8_t opnd[5];
};

/* R: legacy, V: VEX, B: both; RS: legacy, several opcodes in a row. */
#define ROW(enc_, op, n, m, name, acc_, fl, im, at, ...)                                       \
	{ .match = (m), .attr = (at), .id = INSN_##name, .opcode = (op), .span = (n),              \
	  .enc = (enc_), .acc = ACC_##acc_, .flags = FL_##fl, .implicit = IM_##im,                 \
	  .opnd = { __VA_ARGS__ } },
#define R(op, m, name, acc, fl, im, at, ...) \
	ROW(ENC_LEGACY, op, 1, m, name, acc, fl, im, at, __VA_ARGS__)
#define RS(op, n, m, name, acc, fl, im, at, ...) \
	ROW(ENC_LEGACY, op, n, m, name, acc, fl, im, at, __VA_ARGS__)
/* Vector rows: no implicit registers; flags only where named. */
#define L(op, m, name, acc, ...) ROW(ENC_LEGACY, op, 1, m, name, acc, NONE, NONE, 0, __VA_ARGS__)
#define V(op, m, name, acc, ...) ROW(ENC_VEX, op, 1, m, name, acc, NONE, NONE, 0, __VA_ARGS__)
#define B(op, m, name, acc, ...) \
	ROW(ENC_LEGACY | ENC_VEX, op, 1, m, name, acc, NONE, NONE, 0, __VA_ARGS__)
/* The same with all operands read and the arithmetic flags written. */
#define BF(op, m, name, ...) \
	ROW(ENC_LEGACY | ENC_VEX, op, 1, m, name, R, ARITH, NONE, 0, __VA_ARGS__)
#define VF(op, m, name, ...) ROW(ENC_VEX, op, 1, m, name, R, ARITH, NONE, 0, __VA_ARGS__)

struct insn_table {
	const struct insn_row *rows;
	size_t n;
	uint8_t map;
};
extern const struct insn_table insn_table_base, insn_table_x87, insn_table_0f, insn_table_sys,
	insn_table_sse, insn_table_sse2, insn_table_38, insn_table_3a, insn_table_opaque_0f,
	insn_table_opaque_38, insn_table_opaque_3a;

#define INSN_TABLE(name, m) \
	const struct insn_table name = { rows, sizeof(rows) / sizeof(rows[0]), m }

/* clang-format on */
#endif
