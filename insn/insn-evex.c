/*
 * The memory operand of EVEX- and XOP-encoded instructions: how many bytes, read or written, and by
 * what an 8-bit displacement is multiplied. Nothing else is known of them (insn-opaque.c).
 *
 * Of an EVEX instruction that follows from its tuple type (SDM vol. 2A, 2.7.5, tables 2-34 and
 * 2-35), which stands with each instruction in volumes 2B to 2D. Most have a whole vector, so only
 * the others are listed. XOP has 16 bytes but where it says otherwise (AMD64 APM vol. 3, 4, 6), and
 * never writes.
 */
#include "insn/insn-parts.h"

enum size {
	FULL, /* the vector, or with EVEX.b one element */
	HALF,
	QUARTER,
	EIGHTH,
	SCALAR,	   /* 4 bytes; 8 with W */
	DUP,	   /* vmovddup: 8 bytes of 16, all of more */
	ELEMENTS,  /* up to a vector, one after the other; displacements count elements */
	BYTES,	   /* the same of bytes; with W words */
	GATHER,	   /* elements that a vector of indices leads to */
	NOTHING,   /* no access */
	IS = 0x80, /* + so many bytes */
};

/* Mandatory prefixes. */
enum { X0 = 1, X66 = 2, XF3 = 4, XF2 = 8, XANY = 15 };

/* clang-format off */
#define ALL 0, 0xff
static const struct row {
	uint8_t map, prefixes, first, last;
	uint8_t size[2];	/* without W, with W */
	uint8_t element;	/* with EVEX.b; 0: 4 bytes, 8 with W */
} rows[] = {
	/* 0F: moves of parts, scalar arithmetic, conversions */
	{ 1, X0 | X66, 0x12, 0x13, { IS + 8, IS + 8 }, 0 },
	{ 1, X0 | X66, 0x16, 0x17, { IS + 8, IS + 8 }, 0 },
	{ 1, XF2, 0x12, 0x12, { DUP, DUP }, 0 },
	{ 1, XF3, 0x12, 0x12, { FULL, FULL }, 0 },
	{ 1, XF3, 0x16, 0x16, { FULL, FULL }, 0 },
	{ 1, XF3 | XF2, 0x2a, 0x2a, { SCALAR, SCALAR }, 0 },
	{ 1, X0, 0x2e, 0x2f, { IS + 4, IS + 4 }, 0 },
	{ 1, X66, 0x2e, 0x2f, { IS + 8, IS + 8 }, 0 },
	{ 1, X0, 0x5a, 0x5a, { HALF, HALF }, 4 },
	{ 1, XF3, 0x5b, 0x5b, { FULL, FULL }, 0 },
	{ 1, XANY, 0x6f, 0x73, { FULL, FULL }, 0 },
	{ 1, X66, 0x6e, 0x6e, { SCALAR, SCALAR }, 0 },
	{ 1, X66, 0x78, 0x7b, { HALF, FULL }, 0 },
	{ 1, XF3, 0x7a, 0x7a, { HALF, FULL }, 0 },
	{ 1, XF2, 0x7a, 0x7a, { FULL, FULL }, 0 },
	{ 1, XF3 | XF2, 0x7b, 0x7b, { SCALAR, SCALAR }, 0 },
	{ 1, X66 | XF3, 0x7e, 0x7e, { SCALAR, SCALAR }, 0 },
	{ 1, XANY, 0x7f, 0x7f, { FULL, FULL }, 0 },
	{ 1, X66, 0xc4, 0xc4, { IS + 2, IS + 2 }, 0 },
	{ 1, X66, 0xd1, 0xd3, { IS + 16, IS + 16 }, 0 },
	{ 1, X66, 0xd6, 0xd6, { SCALAR, SCALAR }, 0 },
	{ 1, X66, 0xe1, 0xe2, { IS + 16, IS + 16 }, 0 },
	{ 1, XF3, 0xe6, 0xe6, { HALF, FULL }, 0 },
	{ 1, XF2, 0xe6, 0xe6, { FULL, FULL }, 0 },
	{ 1, X66, 0xf1, 0xf3, { IS + 16, IS + 16 }, 0 },
	{ 1, XF3, ALL, { IS + 4, IS + 4 }, 0 },
	{ 1, XF2, ALL, { IS + 8, IS + 8 }, 0 },

	/* 0F38: conversions of width, broadcasts, scalar arithmetic, gathers */
	{ 2, X66, 0x13, 0x13, { HALF, HALF }, 0 },
	{ 2, XF3, 0x10, 0x10, { HALF, HALF }, 0 }, { 2, XF3, 0x11, 0x11, { QUARTER, QUARTER }, 0 },
	{ 2, XF3, 0x12, 0x12, { EIGHTH, EIGHTH }, 0 }, { 2, XF3, 0x13, 0x13, { HALF, HALF }, 0 },
	{ 2, XF3, 0x14, 0x14, { QUARTER, QUARTER }, 0 }, { 2, XF3, 0x15, 0x15, { HALF, HALF }, 0 },
	{ 2, X66, 0x18, 0x18, { IS + 4, IS + 4 }, 0 }, { 2, X66, 0x19, 0x19, { IS + 8, IS + 8 }, 0 },
	{ 2, X66, 0x1a, 0x1a, { IS + 16, IS + 16 }, 0 }, { 2, X66, 0x1b, 0x1b, { IS + 32, IS + 32 }, 0 },
	{ 2, X66 | XF3, 0x20, 0x20, { HALF, HALF }, 0 }, { 2, X66 | XF3, 0x21, 0x21, { QUARTER, QUARTER }, 0 },
	{ 2, X66 | XF3, 0x22, 0x22, { EIGHTH, EIGHTH }, 0 }, { 2, X66 | XF3, 0x23, 0x23, { HALF, HALF }, 0 },
	{ 2, X66 | XF3, 0x24, 0x24, { QUARTER, QUARTER }, 0 }, { 2, X66 | XF3, 0x25, 0x25, { HALF, HALF }, 0 },
	{ 2, X66, 0x2d, 0x2d, { SCALAR, SCALAR }, 0 },
	{ 2, X66 | XF3, 0x30, 0x30, { HALF, HALF }, 0 }, { 2, X66 | XF3, 0x31, 0x31, { QUARTER, QUARTER }, 0 },
	{ 2, X66 | XF3, 0x32, 0x32, { EIGHTH, EIGHTH }, 0 }, { 2, X66 | XF3, 0x33, 0x33, { HALF, HALF }, 0 },
	{ 2, X66 | XF3, 0x34, 0x34, { QUARTER, QUARTER }, 0 }, { 2, X66 | XF3, 0x35, 0x35, { HALF, HALF }, 0 },
	{ 2, X66, 0x43, 0x43, { SCALAR, SCALAR }, 0 },
	{ 2, X66, 0x4d, 0x4d, { SCALAR, SCALAR }, 0 }, { 2, X66, 0x4f, 0x4f, { SCALAR, SCALAR }, 0 },
	{ 2, XF2, 0x52, 0x53, { IS + 16, IS + 16 }, 0 },
	{ 2, X66, 0x58, 0x58, { IS + 4, IS + 4 }, 0 }, { 2, X66, 0x59, 0x59, { IS + 8, IS + 8 }, 0 },
	{ 2, X66, 0x5a, 0x5a, { IS + 16, IS + 16 }, 0 }, { 2, X66, 0x5b, 0x5b, { IS + 32, IS + 32 }, 0 },
	{ 2, X66, 0x62, 0x63, { BYTES, BYTES }, 0 },
	{ 2, X66, 0x78, 0x78, { IS + 1, IS + 1 }, 0 }, { 2, X66, 0x79, 0x79, { IS + 2, IS + 2 }, 0 },
	{ 2, X66, 0x88, 0x8b, { ELEMENTS, ELEMENTS }, 0 },
	{ 2, X66, 0x90, 0x93, { GATHER, GATHER }, 0 }, { 2, X66, 0xa0, 0xa3, { GATHER, GATHER }, 0 },
	{ 2, XF2, 0x9a, 0x9b, { IS + 16, IS + 16 }, 0 }, { 2, XF2, 0xaa, 0xab, { IS + 16, IS + 16 }, 0 },
	{ 2, X66, 0x99, 0x99, { SCALAR, SCALAR }, 0 }, { 2, X66, 0x9b, 0x9b, { SCALAR, SCALAR }, 0 },
	{ 2, X66, 0x9d, 0x9d, { SCALAR, SCALAR }, 0 }, { 2, X66, 0x9f, 0x9f, { SCALAR, SCALAR }, 0 },
	{ 2, X66, 0xa9, 0xa9, { SCALAR, SCALAR }, 0 }, { 2, X66, 0xab, 0xab, { SCALAR, SCALAR }, 0 },
	{ 2, X66, 0xad, 0xad, { SCALAR, SCALAR }, 0 }, { 2, X66, 0xaf, 0xaf, { SCALAR, SCALAR }, 0 },
	{ 2, X66, 0xb9, 0xb9, { SCALAR, SCALAR }, 0 }, { 2, X66, 0xbb, 0xbb, { SCALAR, SCALAR }, 0 },
	{ 2, X66, 0xbd, 0xbd, { SCALAR, SCALAR }, 0 }, { 2, X66, 0xbf, 0xbf, { SCALAR, SCALAR }, 0 },
	{ 2, X66, 0xc6, 0xc7, { NOTHING, NOTHING }, 0 },
	{ 2, X66, 0xcb, 0xcb, { SCALAR, SCALAR }, 0 }, { 2, X66, 0xcd, 0xcd, { SCALAR, SCALAR }, 0 },

	/* 0F3A: insertions and extractions, scalar arithmetic; without a prefix, of 16 bits */
	{ 3, X0, 0x0a, 0x0a, { IS + 2, IS + 2 }, 0 }, { 3, X66, 0x0a, 0x0b, { SCALAR, SCALAR }, 0 },
	{ 3, X66, 0x14, 0x14, { IS + 1, IS + 1 }, 0 }, { 3, X66, 0x15, 0x15, { IS + 2, IS + 2 }, 0 },
	{ 3, X66, 0x16, 0x16, { SCALAR, SCALAR }, 0 }, { 3, X66, 0x17, 0x17, { IS + 4, IS + 4 }, 0 },
	{ 3, X66, 0x18, 0x19, { IS + 16, IS + 16 }, 0 }, { 3, X66, 0x1a, 0x1b, { IS + 32, IS + 32 }, 0 },
	{ 3, X66, 0x1d, 0x1d, { HALF, HALF }, 0 }, { 3, X66, 0x20, 0x20, { IS + 1, IS + 1 }, 0 },
	{ 3, X66, 0x21, 0x21, { IS + 4, IS + 4 }, 0 }, { 3, X66, 0x22, 0x22, { SCALAR, SCALAR }, 0 },
	{ 3, X66, 0x38, 0x39, { IS + 16, IS + 16 }, 0 }, { 3, X66, 0x3a, 0x3b, { IS + 32, IS + 32 }, 0 },
	{ 3, X66, 0x27, 0x27, { SCALAR, SCALAR }, 0 }, { 3, X0, 0x27, 0x27, { IS + 2, IS + 2 }, 0 },
	{ 3, X66, 0x51, 0x51, { SCALAR, SCALAR }, 0 },
	{ 3, X66, 0x55, 0x55, { SCALAR, SCALAR }, 0 },
	{ 3, X66, 0x57, 0x57, { SCALAR, SCALAR }, 0 }, { 3, X0, 0x57, 0x57, { IS + 2, IS + 2 }, 0 },
	{ 3, X66, 0x67, 0x67, { SCALAR, SCALAR }, 0 }, { 3, X0, 0x67, 0x67, { IS + 2, IS + 2 }, 0 },
	{ 3, XF3, 0xc2, 0xc2, { IS + 2, IS + 2 }, 0 },
	{ 3, X0, ALL, { FULL, FULL }, 2 },

	/* map 5: what 0F has, of 16 bits */
	{ 5, X0, 0x1d, 0x1d, { IS + 4, IS + 4 }, 0 }, { 5, X66, 0x1d, 0x1d, { FULL, FULL }, 0 },
	{ 5, XF3, 0x2a, 0x2a, { SCALAR, SCALAR }, 0 }, { 5, XF3, 0x7b, 0x7b, { SCALAR, SCALAR }, 0 },
	{ 5, X0, 0x2e, 0x2f, { IS + 2, IS + 2 }, 0 },
	{ 5, X0, 0x5a, 0x5a, { QUARTER, QUARTER }, 2 }, { 5, X66, 0x5a, 0x5a, { FULL, FULL }, 0 },
	{ 5, XF2, 0x5a, 0x5a, { IS + 8, IS + 8 }, 0 },
	{ 5, X0, 0x5b, 0x5b, { FULL, FULL }, 0 }, { 5, X66 | XF3, 0x5b, 0x5b, { HALF, HALF }, 2 },
	{ 5, X66 | XF3, 0x6e, 0x6e, { IS + 2, IS + 2 }, 0 }, { 5, X66 | XF3, 0x7e, 0x7e, { IS + 2, IS + 2 }, 0 },
	{ 5, X0, 0x78, 0x79, { HALF, HALF }, 2 }, { 5, X66, 0x78, 0x7b, { QUARTER, QUARTER }, 2 },
	{ 5, XF2, 0x7a, 0x7a, { FULL, FULL }, 0 }, { 5, XF3 | XF2, 0x7d, 0x7d, { FULL, FULL }, 2 },
	{ 5, XF3, ALL, { IS + 2, IS + 2 }, 0 }, { 5, XANY, ALL, { FULL, FULL }, 2 },

	/* map 6: what 0F38 has, of 16 bits */
	{ 6, X66, 0x13, 0x13, { HALF, HALF }, 2 }, { 6, X0, 0x13, 0x13, { IS + 2, IS + 2 }, 0 },
	{ 6, X66, 0x2d, 0x2d, { IS + 2, IS + 2 }, 0 }, { 6, X66, 0x43, 0x43, { IS + 2, IS + 2 }, 0 },
	{ 6, X66, 0x4d, 0x4d, { IS + 2, IS + 2 }, 0 }, { 6, X66, 0x4f, 0x4f, { IS + 2, IS + 2 }, 0 },
	{ 6, XF3 | XF2, 0x56, 0x56, { FULL, FULL }, 4 }, { 6, XF3 | XF2, 0x57, 0x57, { IS + 4, IS + 4 }, 0 },
	{ 6, XF3 | XF2, 0xd6, 0xd6, { FULL, FULL }, 4 }, { 6, XF3 | XF2, 0xd7, 0xd7, { IS + 4, IS + 4 }, 0 },
	{ 6, X66, 0x99, 0x99, { IS + 2, IS + 2 }, 0 }, { 6, X66, 0x9b, 0x9b, { IS + 2, IS + 2 }, 0 },
	{ 6, X66, 0x9d, 0x9d, { IS + 2, IS + 2 }, 0 }, { 6, X66, 0x9f, 0x9f, { IS + 2, IS + 2 }, 0 },
	{ 6, X66, 0xa9, 0xa9, { IS + 2, IS + 2 }, 0 }, { 6, X66, 0xab, 0xab, { IS + 2, IS + 2 }, 0 },
	{ 6, X66, 0xad, 0xad, { IS + 2, IS + 2 }, 0 }, { 6, X66, 0xaf, 0xaf, { IS + 2, IS + 2 }, 0 },
	{ 6, X66, 0xb9, 0xb9, { IS + 2, IS + 2 }, 0 }, { 6, X66, 0xbb, 0xbb, { IS + 2, IS + 2 }, 0 },
	{ 6, X66, 0xbd, 0xbd, { IS + 2, IS + 2 }, 0 }, { 6, X66, 0xbf, 0xbf, { IS + 2, IS + 2 }, 0 },
	{ 6, XANY, ALL, { FULL, FULL }, 2 },
};

/* Of which the memory operand is the destination. */
static const struct {
	uint8_t map, prefixes, first, last;
} stores[] = {
	{ 1, XANY, 0x11, 0x11 }, { 1, XANY, 0x13, 0x13 }, { 1, XANY, 0x17, 0x17 }, { 1, XANY, 0x29, 0x29 },
	{ 1, XANY, 0x2b, 0x2b }, { 1, X66, 0x7e, 0x7e }, { 1, XANY, 0x7f, 0x7f }, { 1, X66, 0xd6, 0xd6 },
	{ 1, X66, 0xe7, 0xe7 },
	{ 2, XF3, 0x10, 0x15 }, { 2, XF3, 0x20, 0x25 }, { 2, XF3, 0x30, 0x35 }, { 2, X66, 0x63, 0x63 },
	{ 2, X66, 0x8a, 0x8b }, { 2, X66, 0xa0, 0xa3 },
	{ 3, X66, 0x14, 0x17 }, { 3, X66, 0x19, 0x19 }, { 3, X66, 0x1b, 0x1b }, { 3, X66, 0x1d, 0x1d },
	{ 3, X66, 0x39, 0x39 }, { 3, X66, 0x3b, 0x3b },
	{ 5, XF3, 0x11, 0x11 }, { 5, X66 | XF3, 0x7e, 0x7e },
};
/* clang-format on */

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

/* The three bytes of the prefix behind its first. */
static const uint8_t *payload(const struct insn *in)
{
	return in->bytes + in->rex_off + 1;
}

static bool is_store(const struct insn *in, unsigned map)
{
	for (size_t i = 0; i < COUNT(stores); i++)
		if (stores[i].map == map && stores[i].prefixes >> in->vex_pp & 1 &&
		    in->opcode >= stores[i].first && in->opcode <= stores[i].last)
			return true;
	return false;
}

static struct row row_of(const struct insn *in, unsigned map)
{
	for (size_t i = 0; i < COUNT(rows); i++)
		if (rows[i].map == map && rows[i].prefixes >> in->vex_pp & 1 &&
		    in->opcode >= rows[i].first && in->opcode <= rows[i].last)
			return rows[i];
	return (struct row){ .size = { FULL, FULL } };
}

bool insn_evex_is_gather(const struct insn *in)
{
	unsigned op = in->opcode;

	return (payload(in)[0] & 7) == 2 && in->vex_pp == 1 &&
	       ((op >= 0x90 && op <= 0x93) || (op >= 0xa0 && op <= 0xa3) || op == 0xc6 ||
		op == 0xc7);
}

void insn_evex_memory(struct insn *in)
{
	const uint8_t *p = payload(in);
	const unsigned map = p[0] & 7, vector = 16u << in->vex_l;
	const struct row row = row_of(in, map);
	const unsigned kind = row.size[in->vex_w], element = in->vex_w ? 8 : 4;
	unsigned size, unit = 0;

	switch (kind) {
	case FULL:
	case HALF:
	case QUARTER:
	case EIGHTH:
		size = vector >> (kind - FULL);
		if (p[2] & 0x10)
			size = row.element ? row.element : element;
		break;
	case SCALAR:
		size = element;
		break;
	case DUP:
		size = in->vex_l ? vector : 8;
		break;
	case ELEMENTS:
		size = vector;
		unit = element;
		break;
	case BYTES:
		size = vector;
		unit = in->vex_w ? 2 : 1;
		break;
	case GATHER:
	case NOTHING:
		size = element;
		break;
	default:
		size = kind - IS;
	}
	if (in->disp_size == 1)
		in->disp *= (int64_t)(unit ? unit : size);
	in->mem_size = kind == NOTHING ? 0 : (uint16_t)size;
	in->mem_access = kind == NOTHING ? 0 : is_store(in, map) ? INSN_W : INSN_R;
	if (kind != GATHER)
		return;
	/* as many indices as elements, of which a vector has less if they are longer */
	const bool longer = in->vex_w && !(in->opcode & 1);
	in->index |= p[2] & 8 ? 0 : 16;
	in->nopnd = 1;
	in->opnd[0] = (struct insn_opnd){ .kind = OPND_VSIB,
					  .reg = in->index,
					  .access = in->mem_access,
					  .size = (uint16_t)(longer ? vector / 2 : vector) };
}

void insn_xop_memory(struct insn *in)
{
	const uint8_t *p = payload(in);
	const unsigned map = p[0] & 31, op = in->opcode, wide = p[1] & 4 ? 32 : 16;

	in->mem_access = INSN_R;
	if (map == 10 || (map == 9 && op < 0x80)) /* of general registers; lwpins has 4 bytes */
		in->mem_size = p[1] & 0x80 && op != 0x12 ? 8 : 4;
	else if ((map == 8 && op == 0xa2) || (map == 9 && (op == 0x80 || op == 0x81)))
		in->mem_size = (uint16_t)wide;
	else if (map == 9 && (op == 0x82 || op == 0x83))
		in->mem_size = op == 0x82 ? 4 : 8;
	else
		in->mem_size = 16;
}
