/*
 * Which instructions the replayer's emulator executes. The recorder runs the others
 * natively and records their effects, so this is part of what a trace means: an entry that
 * changes sides needs a new trace version.
 *
 * Every instruction of the lists integer, string, vector, floating point, MMX and x87 of
 * insn-ids.h is emulated unless it is named here, every system instruction is not unless it
 * is named here.
 */
#include "format/cpu.h"
#include "insn/insn.h"

/* System instructions that are emulated all the same. The XSAVE family only writes memory
 * that is not mirrored, and changes no register. */
/* clang-format off */
static const uint16_t system_emulated[] = {
	INSN_XSAVE, INSN_XSAVEC, INSN_XSAVEOPT, INSN_FXSAVE,
	INSN_LDMXCSR, INSN_STMXCSR, INSN_VLDMXCSR, INSN_VSTMXCSR,
	/* does nothing without user shadow stacks, which CPUID does not offer */
	INSN_RDSSP,
};
/* clang-format on */

/* clang-format off */
static const uint16_t not_emulated[] = {
	/* results differ between CPUs */
	INSN_F2XM1, INSN_FYL2X, INSN_FYL2XP1, INSN_FPTAN, INSN_FPATAN, INSN_FSIN, INSN_FCOS,
	INSN_FSINCOS, INSN_RCPPS, INSN_RCPSS, INSN_RSQRTPS, INSN_RSQRTSS,
	/* rare, and much work */
	INSN_FNSAVE, INSN_FRSTOR, INSN_FNSTENV, INSN_FLDENV,
	/* always trap */
	INSN_UD, INSN_INT3,
};
/* clang-format on */

enum { NO = 1, YES = 2 };
static uint8_t verdict[INSN_IDS];

__attribute__((constructor)) static void build_verdicts(void)
{
#define X(name) verdict[INSN_##name] = YES;
	INSN_LIST_INT(X)
	INSN_LIST_STRING(X)
	INSN_LIST_VEC(X)
	INSN_LIST_FP(X)
	INSN_LIST_MMX(X)
	INSN_LIST_X87(X)
#undef X
	for (size_t i = 0; i < sizeof(system_emulated) / sizeof(system_emulated[0]); i++)
		verdict[system_emulated[i]] = YES;
	for (size_t i = 0; i < sizeof(not_emulated) / sizeof(not_emulated[0]); i++)
		verdict[not_emulated[i]] = NO;
}

bool insn_is_emulated(const struct insn *in)
{
	if (in->id >= INSN_IDS || verdict[in->id] != YES || (in->attr & INSN_A_PRIV))
		return false;
	if (in->id == INSN_ENTER && in->imm2 != 0)
		return false;
	return true;
}

bool insn_lacked(const struct insn *in)
{
	switch (in->id) {
	case INSN_GF2P8MULB:
	case INSN_GF2P8AFFINEQB:
	case INSN_GF2P8AFFINEINVQB:
		return !dj_cpu_has(DJ_CPU_GFNI);
	case INSN_AESENC:
	case INSN_AESENCLAST:
	case INSN_AESDEC:
	case INSN_AESDECLAST:
		return in->vex_l && !dj_cpu_has(DJ_CPU_VAES);
	case INSN_PCLMULQDQ:
		return in->vex_l && !dj_cpu_has(DJ_CPU_VPCLMULQDQ);
	case INSN_ADCX:
	case INSN_ADOX:
		return !dj_cpu_has(DJ_CPU_ADX);
	case INSN_CLFLUSHOPT:
		return !dj_cpu_has(DJ_CPU_CLFLUSHOPT);
	case INSN_CLWB:
		return !dj_cpu_has(DJ_CPU_CLWB);
	case INSN_SHA1RNDS4:
	case INSN_SHA1NEXTE:
	case INSN_SHA1MSG1:
	case INSN_SHA1MSG2:
	case INSN_SHA256RNDS2:
	case INSN_SHA256MSG1:
	case INSN_SHA256MSG2:
		return !dj_cpu_has(DJ_CPU_SHA);
	default:
		return false;
	}
}

bool insn_may_read_less(const struct insn *in)
{
	return in->id == INSN_MOVDDUP && in->mem_size == 32;
}
