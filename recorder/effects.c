/*
 * What instructions that are executed in the cache leave in the ring (translator/translate-call.c),
 * as records. It is input, like all that lies there.
 */
#include "recorder/recorder.h"

#include <string.h>

_Static_assert(RING_XRSTOR_SIZE < AREA_SLACK / 2, "there is room for it behind a half's limit");

unsigned rec_effects_size(unsigned type, unsigned insn_len)
{
	switch (type) {
	case RING_TSC:
	case RING_XGETBV:
		return RING_TSC_SIZE;
	case RING_CPUID:
		return RING_SMALL_SIZE;
	case RING_XRSTOR:
		return insn_len && insn_len <= INSN_MAX ? RING_XRSTOR_SIZE : 0;
	case RING_RESULT:
		return insn_len && insn_len <= INSN_MAX ? RING_RESULT_SIZE : 0;
	default:
		return 0;
	}
}

/* rdtsc, rdtscp, which writes rcx, too, or xgetbv. */
static void two(unsigned type, const uint64_t *w, unsigned insn_len, struct dj_record *r)
{
	const char *insn = type == RING_XGETBV ? "\x0f\x01\xd0"
			   : insn_len == 3     ? "\x0f\x01\xf9"
					       : "\x0f\x31";

	r->why = type == RING_XGETBV ? DJ_WHY_CPUID : DJ_WHY_TSC;
	r->mask = DJ_REG_GPR(DJ_RAX) | DJ_REG_GPR(DJ_RDX) | DJ_REG_RIP;
	r->regs.gpr[DJ_RAX] = w[1];
	r->regs.gpr[DJ_RDX] = w[2];
	r->regs.rip = w[4];
	r->insn_len = type == RING_XGETBV || insn_len == 3 ? 3 : 2;
	memcpy(r->insn, insn, r->insn_len);
	if (type == RING_XGETBV || insn_len != 3)
		return;
	r->mask |= DJ_REG_GPR(DJ_RCX);
	r->regs.gpr[DJ_RCX] = w[3];
}

static void cpuid(const uint64_t *w, struct dj_record *r)
{
	r->why = DJ_WHY_CPUID;
	r->mask = DJ_REG_GPR(DJ_RAX) | DJ_REG_GPR(DJ_RBX) | DJ_REG_GPR(DJ_RCX) |
		  DJ_REG_GPR(DJ_RDX) | DJ_REG_RIP;
	r->regs.gpr[DJ_RAX] = (uint32_t)w[1];
	r->regs.gpr[DJ_RBX] = w[1] >> 32;
	r->regs.gpr[DJ_RCX] = (uint32_t)w[2];
	r->regs.gpr[DJ_RDX] = w[2] >> 32;
	r->regs.rip = w[3];
	memcpy(r->insn, "\x0f\xa2", 2);
	r->insn_len = 2;
}

static void xrstor(const uint8_t *bytes, unsigned insn_len, struct dj_record *r)
{
	r->why = DJ_WHY_XSTATE;
	r->mask = DJ_REG_RIP | DJ_REG_MXCSR;
	memcpy(&r->regs.rip, bytes + 8, sizeof(r->regs.rip));
	memcpy(&r->regs.mxcsr, bytes + 16, sizeof(r->regs.mxcsr));
	for (unsigned i = 0; i < 16; i++)
		r->mask |= DJ_REG_YMM(i);
	memcpy(r->regs.ymm, bytes + RING_XRSTOR_YMM, sizeof(r->regs.ymm));
	memcpy(r->insn, bytes + RING_XRSTOR_INSN, insn_len);
	r->insn_len = (uint8_t)insn_len;
}

/* While the thread is stepped the processor's flags have TF, which is not the program's. */
static void result(const uint8_t *bytes, unsigned insn_len, struct dj_record *r)
{
	uint64_t value, flags;
	struct insn in;

	memcpy(&r->regs.rip, bytes + 8, sizeof(r->regs.rip));
	memcpy(&value, bytes + 16, sizeof(value));
	memcpy(&flags, bytes + RING_RESULT_FLAGS, sizeof(flags));
	memcpy(r->insn, bytes + RING_RESULT_INSN, insn_len);
	r->insn_len = (uint8_t)insn_len;
	r->why = DJ_WHY_OTHER;
	r->mask = DJ_REG_RIP;
	if (insn_decode(&in, r->insn, insn_len, 0) != (int)insn_len || in.opnd[0].kind != OPND_GPR)
		return;
	r->why = (uint8_t)rec_why_native(&in);
	r->mask |= DJ_REG_GPR(in.opnd[0].reg);
	r->regs.gpr[in.opnd[0].reg] = value;
	if (!(in.flags_written & DJ_FLAGS_ARITH))
		return;
	r->mask |= DJ_REG_RFLAGS;
	r->regs.rflags = flags & ~(uint64_t)TRAP_FLAG;
}

void rec_effects_from(unsigned type, unsigned insn_len, const uint8_t *bytes, struct dj_record *r)
{
	uint64_t w[RING_TSC_SIZE / sizeof(uint64_t)] = { 0 };

	r->kind = DJ_REC_EFFECTS;
	if (type == RING_XRSTOR) {
		xrstor(bytes, insn_len, r);
		return;
	}
	if (type == RING_RESULT) {
		result(bytes, insn_len, r);
		return;
	}
	memcpy(w, bytes, rec_effects_size(type, insn_len));
	if (type == RING_CPUID)
		cpuid(w, r);
	else
		two(type, w, insn_len, r);
}
