/*
 * The index over the opcode table: for each encoding, map and opcode the rows to try.
 *
 * It is made once, when the program starts, from all tables. Rows of one opcode keep the order
 * they have in their table, and tables the order they have below, because the first row that
 * fits is the instruction.
 */
#include "format/error.h"
#include "insn/insn-parts.h"

#define ENCODINGS 2 /* legacy, VEX */
#define MAPS	  4
#define ROWS_MAX  4096

static const struct insn_row *ordered[ROWS_MAX];
struct insn_slot insn_slots[ENCODINGS][MAPS][256];

static const struct insn_table *const tables[] = {
	&insn_table_base,      &insn_table_x87,	      &insn_table_0f,	     &insn_table_sys,
	&insn_table_sse,       &insn_table_sse2,      &insn_table_38,	     &insn_table_3a,
	&insn_table_opaque_0f, &insn_table_opaque_38, &insn_table_opaque_3a,
};

static bool row_has_modrm(const struct insn_row *r)
{
	if (r->match & MATCH(0x7f, 0))
		return true;
	for (int i = 0; i < 5 && r->opnd[i]; i++) {
		if (insn_opnd_has_modrm(r->opnd[i]))
			return true;
	}
	return false;
}

/* Count a row at each of its opcodes, or put it there if `place` says how far each has come. */
static void enter_row(unsigned map, const struct insn_row *r, uint16_t place[][MAPS][256])
{
	for (unsigned e = 0; e < ENCODINGS; e++) {
		if (!(r->enc & (1u << e)))
			continue;
		for (unsigned o = r->opcode; o < r->opcode + (unsigned)r->span; o++) {
			struct insn_slot *s = &insn_slots[e][map][o];
			if (place) {
				ordered[place[e][map][o]++] = r;
			} else {
				s->nrows++;
				s->has_modrm |= row_has_modrm(r);
			}
		}
	}
}

static void enter_tables(uint16_t place[][MAPS][256])
{
	for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++) {
		for (size_t i = 0; i < tables[t]->n; i++)
			enter_row(tables[t]->map, &tables[t]->rows[i], place);
	}
}

__attribute__((constructor)) static void build_index(void)
{
	uint16_t place[ENCODINGS][MAPS][256];
	size_t total = 0;

	enter_tables(NULL);
	for (unsigned e = 0; e < ENCODINGS; e++) {
		for (unsigned m = 0; m < MAPS; m++) {
			for (unsigned o = 0; o < 256; o++) {
				place[e][m][o] = (uint16_t)total;
				insn_slots[e][m][o].row = ordered + total;
				total += insn_slots[e][m][o].nrows;
			}
		}
	}
	DJ_ASSERT(total <= ROWS_MAX, "opcode index: %zu rows", total);
	enter_tables(place);
}
