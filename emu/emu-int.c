/*
 * Binding of integer instructions, and those that fit nowhere else: flag manipulation,
 * what does nothing here (hints, fences, cache control), and MXCSR.
 *
 * XSAVE, FXSAVE and their kin do nothing to the shadow: the recorder does not mirror their stores
 * either (see the invariants: memory heals itself). A fence orders nothing within one thread; it
 * is counted by the run loop.
 */
#include "emu/emu-int.h"

static void nothing(struct emu *e, const struct emu_uop *u)
{
	(void)e, (void)u;
}

#define SIMPLE(name, statement)                                                                    \
	static void name(struct emu *e, const struct emu_uop *u)                                   \
	{                                                                                          \
		(void)u;                                                                           \
		statement;                                                                         \
	}
SIMPLE(clc, change_flags(e, DJ_FLAG_CF, 0))
SIMPLE(stc, change_flags(e, DJ_FLAG_CF, DJ_FLAG_CF))
SIMPLE(cmc, change_flags(e, DJ_FLAG_CF, emu_flag_cf(e) ? 0 : DJ_FLAG_CF))
SIMPLE(cld, e->cpu.other_flags &= ~(uint64_t)DJ_FLAG_DF)
SIMPLE(std, e->cpu.other_flags |= DJ_FLAG_DF)
SIMPLE(lahf, set_reg(e, 0, DJ_RAX, 8, (emu_get_flags(e) & 0xd5) | 2))
SIMPLE(sahf, change_flags(e, DJ_FLAGS_ARITH & ~DJ_FLAG_OF, (uint8_t)(e->cpu.gpr[DJ_RAX] >> 8)))

static void ldmxcsr(struct emu *e, const struct emu_uop *u)
{
	uint32_t x = emu_load32(e, emu_ea(e, u));

	/* bits that CPUs with DAZ define; others raise #GP (SDM vol. 1, 11.6.6). AMD's have bit 17,
	 * "misaligned exception mask", too (APM vol. 1, 4.2.2). */
	if (x & ~(u->insn->cpu == DJ_CPU_AMD ? 0x2ffffu : 0xffffu))
		emu_raise(e, EMU_STOP_FAULT, "reserved bits set in mxcsr");
	e->cpu.mxcsr = x;
}
static void stmxcsr(struct emu *e, const struct emu_uop *u)
{
	emu_store32(e, emu_ea(e, u), e->cpu.mxcsr);
}

static void save(struct emu *e, const struct emu_uop *u)
{
	if (e->hooks & EMU_HOOK_TRACK)
		emu_tell_saved(e, u->insn, emu_ea(e, u));
}

static const struct {
	uint16_t id;
	emu_fn *fn;
	/* clang-format off */
} simple[] = {
	{ INSN_RDSSP, nothing },
	{ INSN_NOP, nothing },	     { INSN_ENDBR, nothing },	 { INSN_PAUSE, nothing },
	{ INSN_PREFETCH, nothing },  { INSN_CLFLUSH, nothing },	 { INSN_CLFLUSHOPT, nothing },
	{ INSN_CLWB, nothing },	     { INSN_MFENCE, nothing },
	{ INSN_LFENCE, nothing },    { INSN_SFENCE, nothing },	 { INSN_XSAVE, save },
	{ INSN_XSAVEC, save },	     { INSN_XSAVEOPT, save },	 { INSN_FXSAVE, save },
	{ INSN_CLC, clc },	     { INSN_STC, stc },		 { INSN_CMC, cmc },
	{ INSN_CLD, cld },	     { INSN_STD, std },		 { INSN_LAHF, lahf },
	{ INSN_SAHF, sahf },	     { INSN_LDMXCSR, ldmxcsr },	 { INSN_VLDMXCSR, ldmxcsr },
	{ INSN_STMXCSR, stmxcsr },   { INSN_VSTMXCSR, stmxcsr },
};
/* clang-format on */

static emu_fn *bind_misc(const struct insn *in, struct emu_uop *u)
{
	(void)u;
	for (size_t i = 0; i < sizeof(simple) / sizeof(simple[0]); i++)
		if (simple[i].id == in->id)
			return simple[i].fn;
	return NULL;
}

emu_fn *emu_bind_int(const struct insn *in, struct emu_uop *u)
{
	static emu_fn *(*const groups[])(const struct insn *, struct emu_uop *) = {
		emu_bind_int_alu,   emu_bind_int_mov,  emu_bind_int_flow,
		emu_bind_int_shift, emu_bind_int_bits, bind_misc,
	};
	const struct emu_uop preset = *u;

	for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
		emu_fn *fn = groups[i](in, u);
		if (fn)
			return fn;
		*u = preset;
	}
	return NULL;
}
