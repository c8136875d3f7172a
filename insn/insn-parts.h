/*
 * What the parts of the decoder share; private to insn/.
 *
 * insn-decode.c goes through an instruction from front to back: prefixes, opcode, the opcode's
 * row, memory operand, operands. The other parts are asked on the way: insn-index.c which rows
 * an opcode has, insn-opnd.c for the operands a row names, insn-use.c for the registers and
 * flags that follow, insn-opaque.c for the encodings of which only length and memory operand are
 * known, and insn-evex.c for the latter.
 */
#ifndef DEJA_INSN_INSN_PARTS_H
#define DEJA_INSN_INSN_PARTS_H

#include "insn/insn-table.h"

/* How far decoding has come: the next byte of insn.bytes, and how many there are. */
struct insn_at {
	unsigned pos, n;
};

/* What taking something from the bytes comes to: there are too few, or there is no such
 * instruction. */
enum { INSN_TAKE_BAD = -1, INSN_TAKE_SHORT = 0, INSN_TAKE_OK = 1 };

/* A little-endian number of 1, 2, 4 or 8 bytes. Each size is written out because compilers make
 * one load of it. */
static inline uint64_t insn_get_le(const uint8_t *p, unsigned size)
{
	uint32_t low;

	if (size == 1)
		return p[0];
	low = (uint32_t)p[0] | (uint32_t)p[1] << 8;
	if (size == 2)
		return low;
	low |= (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
	if (size == 4)
		return low;
	return low | (uint64_t)p[4] << 32 | (uint64_t)p[5] << 40 | (uint64_t)p[6] << 48 |
	       (uint64_t)p[7] << 56;
}

/* The same, sign-extended. */
static inline int64_t insn_get_sle(const uint8_t *p, unsigned size)
{
	unsigned shift = 64 - 8 * size;

	return (int64_t)(insn_get_le(p, size) << shift) >> shift;
}

/* ---- insn-index.c --------------------------------------------------------------------- */

/* The rows of one opcode, in the order in which they are tried. */
struct insn_slot {
	const struct insn_row *const *row;
	uint16_t nrows;
	bool has_modrm;
};

extern struct insn_slot insn_slots[2][4][256];

static inline const struct insn_slot *insn_slot(bool vex, unsigned map, unsigned opcode)
{
	return &insn_slots[vex][map][opcode];
}

/* ---- insn-opnd.c ---------------------------------------------------------------------- */

/* Whether an operand is taken from the modrm byte, and whether it is a gather's. */
bool insn_opnd_has_modrm(unsigned opnd);
bool insn_opnd_is_vsib(unsigned opnd);

/* All operands of a row, with their access and register use. */
int insn_take_opnds(struct insn *in, const struct insn_row *row, struct insn_at *at);

/* Step over an immediate of `size` bytes and note where it is; false if the bytes end first. */
static inline bool insn_take_imm(struct insn *in, struct insn_at *at, unsigned size)
{
	if (at->pos + size > at->n)
		return false;
	if (!in->imm_off) {
		in->imm_off = (uint8_t)at->pos;
		in->imm_size = (uint8_t)size;
	}
	at->pos += size;
	return true;
}

/* ---- insn-decode.c -------------------------------------------------------------------- */

/* Take the modrm byte. `rex`: the extension bits, laid out as in a REX prefix. */
bool insn_take_modrm(struct insn *in, struct insn_at *at, unsigned rex);
/* Take sib and displacement of a memory operand. */
bool insn_take_mem(struct insn *in, struct insn_at *at, unsigned rex, bool vsib);
/* The registers that an address is made of, and the target of a rip-relative one; in->len must
 * be known. */
void insn_address_regs(struct insn *in, bool vsib);

/* ---- insn-use.c ----------------------------------------------------------------------- */

/* Access (INSN_R, INSN_W) to `size` bytes of a general register; `maybe`: it may stay as it is. */
static inline void insn_use_gpr(struct insn *in, unsigned reg, unsigned size, unsigned access,
				bool maybe)
{
	uint32_t bit = 1u << reg;

	if (access & INSN_R)
		in->gpr_read |= bit;
	if (access & INSN_W) {
		in->gpr_written |= bit;
		if (size >= 4 && !maybe)
			in->gpr_full |= bit;
		else
			in->gpr_read |= bit;
	}
}

void insn_use_implicit(struct insn *in, enum insn_implicit im);
void insn_use_flags(struct insn *in, enum insn_flag_kind kind);

/* ---- insn-opaque.c -------------------------------------------------------------------- */

/* `at` is at the EVEX or XOP prefix, or behind the two opcode bytes of 3DNow!. */
int insn_take_evex(struct insn *in, struct insn_at *at);
int insn_take_xop(struct insn *in, struct insn_at *at);
int insn_take_3dnow(struct insn *in, struct insn_at *at, unsigned rex);

/* ---- insn-evex.c ---------------------------------------------------------------------- */

/* Whether an EVEX-encoded instruction has a vector of indices instead of an index register. */
bool insn_evex_is_gather(const struct insn *in);
/* Size and access of the memory operand, which has been taken. Of EVEX the displacement becomes
 * what it stands for, and a gather's or scatter's operand is the only one in opnd[]. */
void insn_evex_memory(struct insn *in);
void insn_xop_memory(struct insn *in);

#endif
