/*
 * Bit test and scan, BMI1/2, POPCNT, CRC32, ADCX and ADOX.
 *
 * Undefined flags and results are those of the recording's processor (found by running it;
 * tests/unit/test-emu-int.c compares): BT and its kin change CF only; a scan of zero leaves the
 * whole destination alone, all 64 bits of it; scans clear CF, AF, SF, OF and set PF
 * by the result. On Intel's the BMI instructions clear PF and AF; on AMD's they set PF by the
 * result, BEXTR sets AF, and TZCNT and LZCNT leave OF alone.
 */
#include "emu/emu-int.h"

/* ---- BT BTS BTR BTC ------------------------------------------------------------------ */

enum bt_op { BT_BT, BT_BTS, BT_BTR, BT_BTC };

/* How the bit is found: in a register by register or immediate, in memory by immediate, or
 * in the bit string that starts at the operand and is indexed by a signed register. */
enum bt_form { BT_RR, BT_RI, BT_MI, BT_MR };

ALWAYS_INLINE void bit_test(struct emu *e, const struct emu_uop *u, enum bt_op op, unsigned lg,
			    enum bt_form form)
{
	const unsigned w = 8u << lg;
	uint64_t ea = 0, x;
	uint64_t index =
		form == BT_RI || form == BT_MI ? (uint64_t)u->imm : sext(lg, e->cpu.gpr[u->b]);

	if (form == BT_MI) {
		ea = emu_ea(e, u);
	} else if (form == BT_MR) {
		ea = e->cpu.gpr[u->base] + (e->cpu.gpr[u->index] << u->shift) + (uint64_t)u->disp;
		ea += (uint64_t)((int64_t)index >> (3 + lg)) << lg;
		if (u->addr32)
			ea = (uint32_t)ea;
		ea += e->cpu.segbase[u->seg];
	}
	x = form >= BT_MI ? get_mem(e, lg, ea) : get_reg(e, lg, u->a, 0);

	uint64_t bit = (uint64_t)1 << (index & (w - 1)), r;
	switch (op) {
	case BT_BTS:
		r = x | bit;
		break;
	case BT_BTR:
		r = x & ~bit;
		break;
	case BT_BTC:
		r = x ^ bit;
		break;
	default:
		change_flags(e, DJ_FLAG_CF, x & bit ? DJ_FLAG_CF : 0);
		return;
	}
	if (form >= BT_MI)
		set_mem(e, lg, ea, r);
	else
		set_reg(e, lg, u->a, 0, r);
	change_flags(e, DJ_FLAG_CF, x & bit ? DJ_FLAG_CF : 0);
}

#define BITOP(op, lg, form)                                                                        \
	static void op##_##lg##_##form(struct emu *e, const struct emu_uop *u)                     \
	{                                                                                          \
		bit_test(e, u, BT_##op, lg, BT_##form);                                            \
	}
#define BITOPS(op, lg)	 BITOP(op, lg, RR) BITOP(op, lg, RI) BITOP(op, lg, MI) BITOP(op, lg, MR)
#define BITOP_WIDTHS(op) BITOPS(op, 1) BITOPS(op, 2) BITOPS(op, 3)
#define FOR_BT(X)	 X(BT) X(BTS) X(BTR) X(BTC)
FOR_BT(BITOP_WIDTHS)
#define BITOP_NAMES(op, lg)                                                                        \
	{                                                                                          \
		op##_##lg##_RR, op##_##lg##_RI, op##_##lg##_MI, op##_##lg##_MR                     \
	}
#define BITOP_ROW(op)                                                                              \
	[BT_##op] = { { NULL }, BITOP_NAMES(op, 1), BITOP_NAMES(op, 2), BITOP_NAMES(op, 3) },
static emu_fn *const bt_fns[][4][4] = { FOR_BT(BITOP_ROW) };

/* ---- one source, register or memory, one destination ------------------------------------- */

ALWAYS_INLINE void zs_flags(struct emu *e, uint64_t r, bool cf, bool pf_too)
{
	if (pf_too)
		emu_lazy_res(e, r, cf ? DJ_FLAG_CF : 0);
	else
		emu_set_flags(e, (r == 0 ? DJ_FLAG_ZF : 0) | ((int64_t)r < 0 ? DJ_FLAG_SF : 0) |
					 (cf ? DJ_FLAG_CF : 0));
}

enum scan_op { SC_BSF, SC_BSR, SC_TZCNT, SC_LZCNT, SC_POPCNT };

ALWAYS_INLINE void scan(struct emu *e, const struct emu_uop *u, enum scan_op op, unsigned lg,
			bool mem, bool keeps)
{
	const unsigned w = 8u << lg;
	uint64_t x = mem ? get_mem(e, lg, emu_ea(e, u)) : get_reg(e, lg, u->b, 0), r;

	switch (op) {
	case SC_BSF:
	case SC_BSR:
		if (keeps) {
			change_flags(e, DJ_FLAG_ZF, x ? 0 : DJ_FLAG_ZF);
			if (!x)
				return;
			r = op == SC_BSF ? (unsigned)__builtin_ctzll(x)
					 : 63u - (unsigned)__builtin_clzll(x);
			break;
		}
		if (!x) {
			emu_set_flags(e, DJ_FLAG_ZF | DJ_FLAG_PF);
			return;
		}
		r = op == SC_BSF ? (unsigned)__builtin_ctzll(x)
				 : 63u - (unsigned)__builtin_clzll(x);
		/* ZF is clear even if the index is 0; 0x100 has the parity of 0 */
		emu_lazy_res(e, r ? r : 0x100, 0);
		break;
	case SC_TZCNT:
	case SC_LZCNT:
		r = !x		     ? w
		    : op == SC_TZCNT ? (unsigned)__builtin_ctzll(x)
				     : (unsigned)__builtin_clzll(x) - (64 - w);
		if (keeps)
			change_flags(e, DJ_FLAGS_ARITH & ~DJ_FLAG_OF,
				     (r == 0 ? DJ_FLAG_ZF : 0) | (!x ? DJ_FLAG_CF : 0));
		else
			zs_flags(e, r, !x, false);
		break;
	default:
		r = (unsigned)__builtin_popcountll(x);
		zs_flags(e, r, false, false);
	}
	set_reg(e, lg, u->a, 0, r);
}

#define SCAN(op, lg, kind, amd)                                                                    \
	static void op##_##lg##_R##kind(struct emu *e, const struct emu_uop *u)                    \
	{                                                                                          \
		scan(e, u, SC_##op, lg, false, amd);                                               \
	}                                                                                          \
	static void op##_##lg##_M##kind(struct emu *e, const struct emu_uop *u)                    \
	{                                                                                          \
		scan(e, u, SC_##op, lg, true, amd);                                                \
	}
#define SCANS(op)   SCAN(op, 1, , false) SCAN(op, 2, , false) SCAN(op, 3, , false)
#define FOR_SCAN(X) X(BSF) X(BSR) X(TZCNT) X(LZCNT) X(POPCNT)
FOR_SCAN(SCANS)
#define SCAN_ROW(op)                                                                               \
	[SC_##op] = { { NULL, NULL },                                                              \
		      { op##_1_R, op##_1_M },                                                      \
		      { op##_2_R, op##_2_M },                                                      \
		      { op##_3_R, op##_3_M } },
static emu_fn *const scan_fns[][4][2] = { FOR_SCAN(SCAN_ROW) };

/* Of AMD's processors TZCNT and LZCNT keep OF, and of some BSF and BSR all flags but ZF. */
#define SCANS_KEEP(op) SCAN(op, 1, _keep, true) SCAN(op, 2, _keep, true) SCAN(op, 3, _keep, true)
SCANS_KEEP(BSF)
SCANS_KEEP(BSR)
SCANS_KEEP(TZCNT)
SCANS_KEEP(LZCNT)
#define SCAN_ROW_KEEP(op)                                                                          \
	[SC_##op] = { { NULL, NULL },                                                              \
		      { op##_1_R_keep, op##_1_M_keep },                                            \
		      { op##_2_R_keep, op##_2_M_keep },                                            \
		      { op##_3_R_keep, op##_3_M_keep } },
static emu_fn *const scan_fns_keep[][4][2] = { SCAN_ROW_KEEP(BSF) SCAN_ROW_KEEP(BSR)
						       SCAN_ROW_KEEP(TZCNT) SCAN_ROW_KEEP(LZCNT) };

/* ---- BMI ------------------------------------------------------------------------------------ */

/* ANDN, PDEP, PEXT: a = op(b, c or memory). BEXTR, BZHI: a = op(b or memory, c). BLSI, BLSMSK,
 * BLSR: a = op(b or memory). MULX: a:b = rdx * (c or memory). */
enum bmi_op {
	BMI_ANDN,
	BMI_PDEP,
	BMI_PEXT,
	BMI_MULX,
	BMI_BEXTR,
	BMI_BZHI,
	BMI_BLSI,
	BMI_BLSMSK,
	BMI_BLSR
};

static uint64_t deposit(uint64_t x, uint64_t mask)
{
	uint64_t r = 0;

	for (; mask; mask &= mask - 1, x >>= 1)
		if (x & 1)
			r |= mask & -mask;
	return r;
}

static uint64_t extract(uint64_t x, uint64_t mask)
{
	uint64_t r = 0;

	for (uint64_t bit = 1; mask; mask &= mask - 1, bit <<= 1)
		if (x & mask & -mask)
			r |= bit;
	return r;
}

ALWAYS_INLINE void bmi(struct emu *e, const struct emu_uop *u, enum bmi_op op, unsigned lg,
		       bool mem, bool amd)
{
	const unsigned w = 8u << lg;
	bool last = op <= BMI_MULX; /* the register-or-memory operand is the last */
	uint64_t x = mem ? get_mem(e, lg, emu_ea(e, u)) : get_reg(e, lg, last ? u->c : u->b, 0);
	uint64_t y = get_reg(e, lg, last ? u->b : u->c, 0), r;

	switch (op) {
	case BMI_ANDN:
		r = ~y & x;
		zs_flags(e, sext(lg, r), false, amd);
		break;
	case BMI_PDEP:
		r = deposit(y, x);
		break;
	case BMI_PEXT:
		r = extract(y, x);
		break;
	case BMI_MULX: {
		unsigned __int128 p = (unsigned __int128)x * get_reg(e, lg, DJ_RDX, 0);
		/* with one register for both, the high half remains */
		set_reg(e, lg, u->b, 0, (uint64_t)p);
		r = (uint64_t)(p >> w);
		break;
	}
	case BMI_BEXTR: {
		unsigned start = (uint8_t)y, len = (uint8_t)(y >> 8);
		r = start < w ? x >> start : 0;
		if (len < w)
			r &= ((uint64_t)1 << len) - 1;
		/* SF is clear whatever the result */
		if (amd)
			emu_lazy_res(e, r & 0xff ? r & 0xff : r ? 0x100 : 0, DJ_FLAG_AF);
		else
			emu_set_flags(e, r == 0 ? DJ_FLAG_ZF : 0);
		break;
	}
	case BMI_BZHI: {
		unsigned n = (uint8_t)y;
		r = n < w ? x & (((uint64_t)1 << n) - 1) : x;
		zs_flags(e, sext(lg, r), n >= w, amd);
		break;
	}
	case BMI_BLSI:
		r = x & -x;
		zs_flags(e, sext(lg, r), x != 0, amd);
		break;
	case BMI_BLSMSK:
		r = cut(lg, x ^ (x - 1));
		zs_flags(e, sext(lg, r), x == 0, amd);
		break;
	default:
		r = x & (x - 1);
		zs_flags(e, sext(lg, r), x == 0, amd);
	}
	set_reg(e, lg, u->a, 0, r);
}

#define BMI(op, lg, kind, amd)                                                                     \
	static void op##_##lg##_R##kind(struct emu *e, const struct emu_uop *u)                    \
	{                                                                                          \
		bmi(e, u, BMI_##op, lg, false, amd);                                               \
	}                                                                                          \
	static void op##_##lg##_M##kind(struct emu *e, const struct emu_uop *u)                    \
	{                                                                                          \
		bmi(e, u, BMI_##op, lg, true, amd);                                                \
	}
#define BMIS(op)                                                                                   \
	BMI(op, 2, , false) BMI(op, 3, , false) BMI(op, 2, _amd, true) BMI(op, 3, _amd, true)
#define FOR_BMI(X) X(ANDN) X(PDEP) X(PEXT) X(MULX) X(BEXTR) X(BZHI) X(BLSI) X(BLSMSK) X(BLSR)
FOR_BMI(BMIS)
#define BMI_ROW(op)                                                                                \
	[BMI_##op] = { { { op##_2_R, op##_2_M }, { op##_3_R, op##_3_M } },                         \
		       { { op##_2_R_amd, op##_2_M_amd }, { op##_3_R_amd, op##_3_M_amd } } },
static emu_fn *const bmi_fns[][2][2][2] = { FOR_BMI(BMI_ROW) };

/* ---- ADCX ADOX --------------------------------------------------------------------------------
 */

ALWAYS_INLINE void add_through(struct emu *e, const struct emu_uop *u, uint32_t flag, unsigned lg,
			       bool mem)
{
	uint64_t b = mem ? get_mem(e, lg, emu_ea(e, u)) : get_reg(e, lg, u->b, 0);
	uint64_t a = get_reg(e, lg, u->a, 0);
	bool c = flag == DJ_FLAG_CF ? emu_flag_cf(e) : emu_flag_of(e);
	unsigned __int128 r = (unsigned __int128)a + b + c;

	set_reg(e, lg, u->a, 0, (uint64_t)r);
	change_flags(e, flag, (uint64_t)(r >> (8u << lg)) ? flag : 0);
}

#define THROUGH(op, flag, lg)                                                                      \
	static void op##_##lg##_R(struct emu *e, const struct emu_uop *u)                          \
	{                                                                                          \
		add_through(e, u, flag, lg, false);                                                \
	}                                                                                          \
	static void op##_##lg##_M(struct emu *e, const struct emu_uop *u)                          \
	{                                                                                          \
		add_through(e, u, flag, lg, true);                                                 \
	}
THROUGH(ADCX, DJ_FLAG_CF, 2)
THROUGH(ADCX, DJ_FLAG_CF, 3)
THROUGH(ADOX, DJ_FLAG_OF, 2)
THROUGH(ADOX, DJ_FLAG_OF, 3)
static emu_fn *const through_fns[2][2][2] = {
	{ { ADCX_2_R, ADCX_2_M }, { ADCX_3_R, ADCX_3_M } },
	{ { ADOX_2_R, ADOX_2_M }, { ADOX_3_R, ADOX_3_M } },
};

/* ---- CRC32 -------------------------------------------------------------------------------------
 */

/* CRC-32C, reflected polynomial 0x82f63b78 (SDM vol. 2A, CRC32), four bits at a time. */
#define CRC_BIT(x)    ((x) >> 1 ^ ((x)&1 ? 0x82f63b78u : 0))
#define CRC_NIBBLE(x) CRC_BIT(CRC_BIT(CRC_BIT(CRC_BIT((uint32_t)(x)))))
static const uint32_t crc_nibbles[16] = {
	CRC_NIBBLE(0),	CRC_NIBBLE(1),	CRC_NIBBLE(2),	CRC_NIBBLE(3),
	CRC_NIBBLE(4),	CRC_NIBBLE(5),	CRC_NIBBLE(6),	CRC_NIBBLE(7),
	CRC_NIBBLE(8),	CRC_NIBBLE(9),	CRC_NIBBLE(10), CRC_NIBBLE(11),
	CRC_NIBBLE(12), CRC_NIBBLE(13), CRC_NIBBLE(14), CRC_NIBBLE(15),
};

ALWAYS_INLINE void crc32_form(struct emu *e, const struct emu_uop *u, unsigned lg, bool mem)
{
	uint64_t x = mem ? get_mem(e, lg, emu_ea(e, u)) : get_reg(e, lg, u->b, u->d);
	uint32_t crc = (uint32_t)e->cpu.gpr[u->a];

	for (unsigned i = 0; i < 2u << lg; i++, x >>= 4)
		crc = crc >> 4 ^ crc_nibbles[(crc ^ x) & 15];
	e->cpu.gpr[u->a] = crc;
}

#define CRC(lg)                                                                                    \
	static void crc32_##lg##_R(struct emu *e, const struct emu_uop *u)                         \
	{                                                                                          \
		crc32_form(e, u, lg, false);                                                       \
	}                                                                                          \
	static void crc32_##lg##_M(struct emu *e, const struct emu_uop *u)                         \
	{                                                                                          \
		crc32_form(e, u, lg, true);                                                        \
	}
CRC(0)
CRC(1)
CRC(2)
CRC(3)
static emu_fn *const crc_fns[4][2] = {
	{ crc32_0_R, crc32_0_M },
	{ crc32_1_R, crc32_1_M },
	{ crc32_2_R, crc32_2_M },
	{ crc32_3_R, crc32_3_M },
};

/* ---- binding
 * ------------------------------------------------------------------------------------- */

emu_fn *emu_bind_int_bits(const struct insn *in, struct emu_uop *u)
{
	unsigned lg = lg_of(in->opnd[0].size);
	bool mem = is_mem(in, 1);
	bool counts = in->id == INSN_TZCNT || in->id == INSN_LZCNT;
	bool keeps = counts ? in->cpu == DJ_CPU_AMD : in->flags_written == DJ_FLAG_ZF;

	switch (in->id) {
#define X(op)                                                                                      \
	case INSN_##op:                                                                            \
		return bt_fns[BT_##op][lg][is_mem(in, 0) ? (is_imm(in, 1) ? BT_MI : BT_MR)         \
							 : (is_imm(in, 1) ? BT_RI : BT_RR)];
		FOR_BT(X)
#undef X
#define X(op)                                                                                      \
	case INSN_##op:                                                                            \
		return (SC_##op < SC_POPCNT && keeps ? scan_fns_keep : scan_fns)[SC_##op][lg][mem];
		FOR_SCAN(X)
#undef X
#define X(op)                                                                                      \
	case INSN_##op:                                                                            \
		return bmi_fns[BMI_##op][in->cpu][lg == 3][in->has_mem];
		FOR_BMI(X)
#undef X
	case INSN_ADCX:
	case INSN_ADOX:
		return through_fns[in->id == INSN_ADOX][lg == 3][mem];
	case INSN_CRC32:
		u->d = byte_shift(in, 1);
		return crc_fns[lg_of(in->opnd[1].size)][mem];
	default:
		return NULL;
	}
}
