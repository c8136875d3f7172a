/*
 * The one-byte opcode map (SDM vol. 2D, table A-2) without the x87 escapes.
 */
#include "insn/insn-table.h"

#define STACK INSN_A_STACK
#define JMPD  (INSN_A_BRANCH | RA_F64)
#define JMPI  (INSN_A_BRANCH | INSN_A_INDIRECT | RA_F64)
#define STR   INSN_A_STRING
#define PRIV  INSN_A_PRIV

/* Near branches with an operand-size prefix. Intel's processors ignore it; AMD's then take 16-bit
 * displacements, targets and return addresses and cut rip to 16 bits (APM vol. 3, 1.2.2 and
 * the branches' pages), except under REX.W. Nobody writes that, so it goes the way of far
 * transfers. */
#define NEAR16 (AMD | O16)
#define JMP16  (INSN_A_BRANCH | INSN_A_PRIV)
#define JMPI16 (INSN_A_BRANCH | INSN_A_INDIRECT | INSN_A_PRIV)
#define PORT   (INSN_A_PRIV | RA_NOW)

/* The six forms of an arithmetic instruction, and its four immediate forms. */
#define ALU(op, reg, name, acc, fl)                                                                \
	R((op) + 0, ANY, name, acc, fl, NONE, 0, Eb, Gb)                                           \
	R((op) + 1, ANY, name, acc, fl, NONE, 0, Ev, Gv)                                           \
	R((op) + 2, ANY, name, acc, fl, NONE, 0, Gb, Eb)                                           \
	R((op) + 3, ANY, name, acc, fl, NONE, 0, Gv, Ev)                                           \
	R((op) + 4, ANY, name, acc, fl, NONE, 0, AL, sIb)                                          \
	R((op) + 5, ANY, name, acc, fl, NONE, 0, RAXv, Iz)                                         \
	R(0x80, REG(reg), name, acc, fl, NONE, 0, Eb, sIb)                                         \
	R(0x81, REG(reg), name, acc, fl, NONE, 0, Ev, Iz)                                          \
	R(0x83, REG(reg), name, acc, fl, NONE, 0, Ev, sIb)

/* The six forms of a shift or rotate. */
#define SHIFT(reg, name, fl)                                                                       \
	R(0xc0, REG(reg), name, RW, fl, NONE, 0, Eb, Ib)                                           \
	R(0xc1, REG(reg), name, RW, fl, NONE, 0, Ev, Ib)                                           \
	R(0xd0, REG(reg), name, RW, fl, NONE, 0, Eb, ONE)                                          \
	R(0xd1, REG(reg), name, RW, fl, NONE, 0, Ev, ONE)                                          \
	R(0xd2, REG(reg), name, RW, fl, NONE, 0, Eb, CL)                                           \
	R(0xd3, REG(reg), name, RW, fl, NONE, 0, Ev, CL)

/* Byte and full-size form of a group row, and of a string instruction. */
#define BV(op, m, name, acc, fl, im)                                                               \
	R(op, m, name, acc, fl, im, 0, Eb)                                                         \
	R((op) + 1, m, name, acc, fl, im, 0, Ev)
#define STRING(op, name, fl, im, at)                                                               \
	R(op, ANY, name, N, fl, im, STR | RA_BYTE | (at))                                          \
	R((op) + 1, ANY, name, N, fl, im, STR | (at))

/* clang-format off */
static const struct insn_row rows[] = {
	ALU(0x00, 0, ADD, RW, ARITH)
	ALU(0x08, 1, OR, RW, LOGIC)
	ALU(0x10, 2, ADC, RW, ADC)
	ALU(0x18, 3, SBB, RW, ADC)
	ALU(0x20, 4, AND, RW, LOGIC)
	ALU(0x28, 5, SUB, RW, ARITH)
	ALU(0x30, 6, XOR, RW, LOGIC)
	ALU(0x38, 7, CMP, R, ARITH)

	RS(0x50, 8, ANY, PUSH, R, NONE, SP, STACK | RA_D64, Zv)
	RS(0x58, 8, ANY, POP, W, NONE, SP, STACK | RA_D64, Zv)
	/* seen on AMD's: 32 bits are read even if 16 are kept */
	R(0x63, AMD | O16, MOVSXD, W, NONE, NONE, 0, Gv, Ed)
	R(0x63, ANY, MOVSXD, W, NONE, NONE, 0, Gv, Ez)
	R(0x68, ANY, PUSH, R, NONE, SP, STACK | RA_D64, Iz)
	R(0x69, ANY, IMUL, W, MUL, NONE, 0, Gv, Ev, Iz)
	R(0x6a, ANY, PUSH, R, NONE, SP, STACK | RA_D64, sIb)
	R(0x6b, ANY, IMUL, W, MUL, NONE, 0, Gv, Ev, sIb)
	STRING(0x6c, INS, STRING, INS, PORT)
	STRING(0x6e, OUTS, STRING, OUTS, PORT)
	RS(0x70, 16, NEAR16, JCC, R, COND, NONE, JMP16 | INSN_A_COND | RA_CC, Jb)
	RS(0x70, 16, ANY, JCC, R, COND, NONE, JMPD | INSN_A_COND | RA_CC, Jb)

	R(0x84, ANY, TEST, R, LOGIC, NONE, 0, Eb, Gb)
	R(0x85, ANY, TEST, R, LOGIC, NONE, 0, Ev, Gv)
	R(0x86, ANY, XCHG, XX, NONE, NONE, 0, Eb, Gb)
	R(0x87, ANY, XCHG, XX, NONE, NONE, 0, Ev, Gv)
	R(0x88, ANY, MOV, W, NONE, NONE, 0, Eb, Gb)
	R(0x89, ANY, MOV, W, NONE, NONE, 0, Ev, Gv)
	R(0x8a, ANY, MOV, W, NONE, NONE, 0, Gb, Eb)
	R(0x8b, ANY, MOV, W, NONE, NONE, 0, Gv, Ev)
	R(0x8c, ANY, MOVSEG, W, NONE, NONE, 0, RvMw, Sw)
	/* cs cannot be loaded */
	R(0x8e, REG(1), INVALID, N, NONE, NONE, 0)
	R(0x8e, ANY, MOVSEG, W, NONE, NONE, PRIV, Sw, RwMw)
	R(0x8d, MEM, LEA, W, NONE, NONE, INSN_A_NOACCESS, Gv, M0)
	R(0x8f, REG(0), POP, W, NONE, SP, STACK | RA_D64, Ev)

	/* 90 is xchg with rax only if REX.B names another register (SDM vol. 2B, NOP), and
	 * with F3 not even then (as Intel's CPUs do; on AMD's it is xchg again) */
	R(0x90, INTEL | PF3, PAUSE, N, NONE, NONE, 0)
	R(0x90, RXB, XCHG, XX, NONE, NONE, 0, Zv, RAXv)
	R(0x90, PF3, PAUSE, N, NONE, NONE, 0)
	R(0x90, ANY, NOP, N, NONE, NONE, INSN_A_NOACCESS)
	RS(0x91, 7, ANY, XCHG, XX, NONE, NONE, 0, Zv, RAXv)
	R(0x98, W1, CDQE, N, NONE, CBW, 0)
	R(0x98, O16, CBW, N, NONE, CBW, 0)
	R(0x98, ANY, CWDE, N, NONE, CBW, 0)
	R(0x99, W1, CQO, N, NONE, CWD, 0)
	R(0x99, O16, CWD, N, NONE, CWD, 0)
	R(0x99, ANY, CDQ, N, NONE, CWD, 0)
	R(0x9b, ANY, FWAIT, N, NONE, NONE, INSN_A_X87)
	R(0x9c, ANY, PUSHF, N, PUSHF, SP, STACK | RA_D64)
	R(0x9d, ANY, POPF, N, POPF, SP, STACK | RA_D64)
	R(0x9e, ANY, SAHF, N, SAHF, SAHF, 0)
	R(0x9f, ANY, LAHF, N, LAHF, LAHF, 0)

	R(0xa0, ANY, MOV, W, NONE, NONE, 0, AL, Ob)
	R(0xa1, ANY, MOV, W, NONE, NONE, 0, RAXv, Ov)
	R(0xa2, ANY, MOV, W, NONE, NONE, 0, Ob, AL)
	R(0xa3, ANY, MOV, W, NONE, NONE, 0, Ov, RAXv)
	STRING(0xa4, MOVS, STRING, MOVS, 0)
	STRING(0xa6, CMPS, CMPS, MOVS, 0)
	R(0xa8, ANY, TEST, R, LOGIC, NONE, 0, AL, sIb)
	R(0xa9, ANY, TEST, R, LOGIC, NONE, 0, RAXv, Iz)
	STRING(0xaa, STOS, STRING, STOS, 0)
	STRING(0xac, LODS, STRING, LODS, 0)
	STRING(0xae, SCAS, CMPS, SCAS, 0)
	RS(0xb0, 8, ANY, MOV, W, NONE, NONE, 0, Zb, sIb)
	RS(0xb8, 8, ANY, MOV, W, NONE, NONE, 0, Zv, Iv)

	SHIFT(0, ROL, ROT)
	SHIFT(1, ROR, ROT)
	SHIFT(2, RCL, RC)
	SHIFT(3, RCR, RC)
	SHIFT(4, SHL, SHIFT)
	SHIFT(5, SHR, SHIFT)
	SHIFT(6, SHL, SHIFT)
	SHIFT(7, SAR, SHIFT)
	R(0xc2, NEAR16, RET, R, NONE, SP, JMPI16 | INSN_A_RET | STACK, Iw)
	R(0xc3, NEAR16, RET, N, NONE, SP, JMPI16 | INSN_A_RET | STACK)
	R(0xc2, ANY, RET, R, NONE, SP, JMPI | INSN_A_RET | STACK, Iw)
	R(0xc3, ANY, RET, N, NONE, SP, JMPI | INSN_A_RET | STACK)
	R(0xc6, MODRM(0xf8), XABORT, R, NONE, NONE, PRIV, Ib)
	R(0xc7, MODRM(0xf8), XBEGIN, R, NONE, WRAX, INSN_A_BRANCH | INSN_A_NONDET, Jv)
	R(0xc6, REG(0), MOV, W, NONE, NONE, 0, Eb, sIb)
	R(0xc7, REG(0), MOV, W, NONE, NONE, 0, Ev, Iz)
	R(0xc8, ANY, ENTER, R, NONE, ENTER, STACK | RA_D64, Iw, I2b)
	R(0xc9, ANY, LEAVE, N, NONE, LEAVE, STACK | RA_D64)
	R(0xca, ANY, RETFAR, R, NONE, SP, PRIV | INSN_A_BRANCH | STACK, Iw)
	R(0xcb, ANY, RETFAR, N, NONE, SP, PRIV | INSN_A_BRANCH | STACK)
	R(0xcc, ANY, INT3, N, NONE, NONE, 0)
	R(0xcd, ANY, INT, R, NONE, NONE, PRIV, Ib)
	R(0xcf, ANY, IRET, N, POPF, SP, PRIV | INSN_A_BRANCH | STACK)
	R(0xd7, ANY, XLAT, N, NONE, XLAT, RA_BYTE)

	R(0xe0, NEAR16, LOOPNE, R, LOOPZ, LOOP, JMP16 | INSN_A_COND, Jb)
	R(0xe1, NEAR16, LOOPE, R, LOOPZ, LOOP, JMP16 | INSN_A_COND, Jb)
	R(0xe2, NEAR16, LOOP, R, NONE, LOOP, JMP16 | INSN_A_COND, Jb)
	R(0xe3, NEAR16, JRCXZ, R, NONE, JRCXZ, JMP16 | INSN_A_COND, Jb)
	/* seen on AMD's: repeat prefixes choose the condition */
	R(0xe0, AMD | PF3, LOOPE, R, LOOPZ, LOOP, JMPD | INSN_A_COND, Jb)
	R(0xe1, AMD | PF2, LOOPNE, R, LOOPZ, LOOP, JMPD | INSN_A_COND, Jb)
	R(0xe0, ANY, LOOPNE, R, LOOPZ, LOOP, JMPD | INSN_A_COND, Jb)
	R(0xe1, ANY, LOOPE, R, LOOPZ, LOOP, JMPD | INSN_A_COND, Jb)
	R(0xe2, ANY, LOOP, R, NONE, LOOP, JMPD | INSN_A_COND, Jb)
	R(0xe3, ANY, JRCXZ, R, NONE, JRCXZ, JMPD | INSN_A_COND, Jb)
	R(0xe4, ANY, IN, W, NONE, NONE, PORT, AL, Ib)
	R(0xe5, ANY, IN, W, NONE, NONE, PORT, EAXz, Ib)
	R(0xe6, ANY, OUT, R, NONE, NONE, PORT, Ib, AL)
	R(0xe7, ANY, OUT, R, NONE, NONE, PORT, Ib, EAXz)
	R(0xe8, NEAR16, CALL, R, NONE, SP, JMP16 | INSN_A_CALL | STACK, Jv)
	R(0xe9, NEAR16, JMP, R, NONE, NONE, JMP16, Jv)
	R(0xeb, NEAR16, JMP, R, NONE, NONE, JMP16, Jb)
	R(0xe8, ANY, CALL, R, NONE, SP, JMPD | INSN_A_CALL | STACK, Jz)
	R(0xe9, ANY, JMP, R, NONE, NONE, JMPD, Jz)
	R(0xeb, ANY, JMP, R, NONE, NONE, JMPD, Jb)
	R(0xec, ANY, IN, W, NONE, NONE, PORT, AL, DX)
	R(0xed, ANY, IN, W, NONE, NONE, PORT, EAXz, DX)
	R(0xee, ANY, OUT, R, NONE, NONE, PORT, DX, AL)
	R(0xef, ANY, OUT, R, NONE, NONE, PORT, DX, EAXz)
	R(0xf1, ANY, INT, N, NONE, NONE, PRIV)
	R(0xf4, ANY, HLT, N, NONE, NONE, PRIV)
	R(0xf5, ANY, CMC, N, ADCX, NONE, 0)
	R(0xf6, REG(0), TEST, R, LOGIC, NONE, 0, Eb, sIb)
	R(0xf7, REG(0), TEST, R, LOGIC, NONE, 0, Ev, Iz)
	R(0xf6, REG(1), TEST, R, LOGIC, NONE, 0, Eb, sIb)
	R(0xf7, REG(1), TEST, R, LOGIC, NONE, 0, Ev, Iz)
	BV(0xf6, REG(2), NOT, RW, NONE, NONE)
	BV(0xf6, REG(3), NEG, RW, ARITH, NONE)
	BV(0xf6, REG(4), MUL, R, MUL, MULDIV)
	BV(0xf6, REG(5), IMUL, R, MUL, MULDIV)
	BV(0xf6, REG(6), DIV, R, DIV, MULDIV)
	BV(0xf6, REG(7), IDIV, R, DIV, MULDIV)
	R(0xf8, ANY, CLC, N, CF, NONE, 0)
	R(0xf9, ANY, STC, N, CF, NONE, 0)
	R(0xfa, ANY, CLI, N, NONE, NONE, PRIV)
	R(0xfb, ANY, STI, N, NONE, NONE, PRIV)
	R(0xfc, ANY, CLD, N, DFW, NONE, 0)
	R(0xfd, ANY, STD, N, DFW, NONE, 0)
	BV(0xfe, REG(0), INC, RW, INC, NONE)
	BV(0xfe, REG(1), DEC, RW, INC, NONE)
	R(0xff, NEAR16 | REG(2), CALL, R, NONE, SP, JMPI16 | INSN_A_CALL | STACK, Ev)
	R(0xff, NEAR16 | REG(4), JMP, R, NONE, NONE, JMPI16, Ev)
	R(0xff, REG(2), CALL, R, NONE, SP, JMPI | INSN_A_CALL | STACK, Ev)
	R(0xff, MEM | REG(3) | AMD, CALLFAR, R, NONE, SP, PRIV | INSN_A_BRANCH | STACK | RA_NOW, Mp)
	R(0xff, MEM | REG(3), CALLFAR, R, NONE, SP, PRIV | INSN_A_BRANCH | STACK, Mp)
	R(0xff, REG(4), JMP, R, NONE, NONE, JMPI, Ev)
	R(0xff, MEM | REG(5) | AMD, JMPFAR, R, NONE, NONE, PRIV | INSN_A_BRANCH | RA_NOW, Mp)
	R(0xff, MEM | REG(5), JMPFAR, R, NONE, NONE, PRIV | INSN_A_BRANCH, Mp)
	R(0xff, REG(6), PUSH, R, NONE, SP, STACK | RA_D64, Ev)
};
/* clang-format on */

INSN_TABLE(insn_table_base, 0);
