/*
 * Control transfers. These set cpu.rip, to the next instruction when nothing is transferred.
 */
#include "emu/emu-int.h"

static void jmp_rel(struct emu *e, const struct emu_uop *u)
{
	e->cpu.rip = (uint64_t)u->imm;
}
static void jmp_reg(struct emu *e, const struct emu_uop *u)
{
	e->cpu.rip = e->cpu.gpr[u->a];
}
static void jmp_mem(struct emu *e, const struct emu_uop *u)
{
	e->cpu.rip = emu_load64(e, emu_ea(e, u));
}

ALWAYS_INLINE void call(struct emu *e, const struct emu_uop *u, uint64_t target)
{
	uint64_t sp = e->cpu.gpr[DJ_RSP] - 8;

	emu_store64(e, sp, u->next);
	e->cpu.gpr[DJ_RSP] = sp;
	e->cpu.rip = target;
}
static void call_rel(struct emu *e, const struct emu_uop *u)
{
	call(e, u, (uint64_t)u->imm);
}
static void call_reg(struct emu *e, const struct emu_uop *u)
{
	call(e, u, e->cpu.gpr[u->a]);
}
static void call_mem(struct emu *e, const struct emu_uop *u)
{
	call(e, u, emu_load64(e, emu_ea(e, u)));
}

static void ret(struct emu *e, const struct emu_uop *u)
{
	e->cpu.rip = emu_load64(e, e->cpu.gpr[DJ_RSP]);
	e->cpu.gpr[DJ_RSP] += 8 + (uint64_t)u->imm;
}

#define JCC(cond)                                                                                  \
	static void jcc_##cond(struct emu *e, const struct emu_uop *u)                             \
	{                                                                                          \
		e->cpu.rip = emu_cond(e, cond) ? (uint64_t)u->imm : u->next;                       \
	}
JCC(0)
JCC(1)
JCC(2)
JCC(3)
JCC(4)
JCC(5)
JCC(6)
JCC(7)
JCC(8)
JCC(9)
JCC(10)
JCC(11)
JCC(12)
JCC(13)
JCC(14)
JCC(15)
static emu_fn *const jcc_fns[16] = {
	jcc_0, jcc_1, jcc_2,  jcc_3,  jcc_4,  jcc_5,  jcc_6,  jcc_7,
	jcc_8, jcc_9, jcc_10, jcc_11, jcc_12, jcc_13, jcc_14, jcc_15,
};

/* rcx, or ecx with an address-size prefix: u->addr32 */
static inline uint64_t count_reg(const struct emu *e, const struct emu_uop *u)
{
	return u->addr32 ? (uint32_t)e->cpu.gpr[DJ_RCX] : e->cpu.gpr[DJ_RCX];
}

static void jrcxz(struct emu *e, const struct emu_uop *u)
{
	e->cpu.rip = count_reg(e, u) == 0 ? (uint64_t)u->imm : u->next;
}

static inline void loop_if(struct emu *e, const struct emu_uop *u, bool cond)
{
	uint64_t n = count_reg(e, u) - 1;

	if (u->addr32)
		n = (uint32_t)n;
	e->cpu.gpr[DJ_RCX] = n;
	e->cpu.rip = n != 0 && cond ? (uint64_t)u->imm : u->next;
}
static void loop(struct emu *e, const struct emu_uop *u)
{
	loop_if(e, u, true);
}
static void loope(struct emu *e, const struct emu_uop *u)
{
	loop_if(e, u, emu_flag_zf(e));
}
static void loopne(struct emu *e, const struct emu_uop *u)
{
	loop_if(e, u, !emu_flag_zf(e));
}

static emu_fn *find(const struct insn *in, struct emu_uop *u)
{
	bool mem = is_mem(in, 0), reg = is_reg(in, 0);

	switch (in->id) {
	case INSN_JMP:
		return mem ? jmp_mem : reg ? jmp_reg : jmp_rel;
	case INSN_CALL:
		return mem ? call_mem : reg ? call_reg : call_rel;
	case INSN_RET:
		u->imm = is_imm(in, 0) ? (uint16_t)in->imm : 0;
		return ret;
	case INSN_JCC:
		return jcc_fns[in->cond & 15];
	case INSN_JRCXZ:
		return jrcxz;
	case INSN_LOOP:
		return loop;
	case INSN_LOOPE:
		return loope;
	case INSN_LOOPNE:
		return loopne;
	default:
		return NULL;
	}
}

emu_fn *emu_bind_int_flow(const struct insn *in, struct emu_uop *u)
{
	emu_fn *fn = find(in, u);

	if (fn)
		u->flags |= EMU_UOP_BRANCH;
	return fn;
}
