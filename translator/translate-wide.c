/*
 * Memory operands that are neither plain loads nor plain stores: what xsave and its kind write, x87
 * stores that pop, addresses of 64 bits, xlat.
 */
#include "format/regs.h"
#include "translator/build.h"
#include "translator/runtime.h"

/*
 * A store that pops the x87 stack, which cannot be executed twice: on the shadow first, then
 * copied. If it raises an exception that is not masked, it neither stores nor pops (SDM vol.
 * 1, 8.5), and nothing may be copied: the status word tells.
 */
void tr_pop_to_memory(struct tr_build *b, const struct insn *in, const struct ea *mem,
		      const struct ea *shadow, unsigned size)
{
	struct cg *c = b->c, *cold = b->cold;
	struct ea before = ea_gs(T_X87), after = ea_gs(T_X87_AFTER);
	tr_flags_clobber(b, false);
	int s = tr_reg_scratch(b, ea_regs(mem),
			       true); /* now: it may not be spilled behind the point of a fault */
	if (b->failed)
		return;
	cg_rm(c, 4, 0xdd, 7, &before, 0); /* fnstsw */
	tr_mark_body(b);
	if (!cg_reencode(c, in, shadow)) {
		b->failed = true;
		return;
	}
	cg_rm(c, 4, 0xdd, 7, &after, 0);
	cg_rm(c, 4, 0xf6, 0, &after, 1); /* test byte: ES */
	cg8(c, 0x80);
	uint8_t *error = cg_jcc(c, 5, 0);
	if (!c->overflow)
		cg_patch32(error, c->delta, cg_va(cold));
	uint64_t copy = cg_va(c);
	tr_mem_copy_out(b, mem, shadow, size);
	cg_load_zx(cold, 2, (unsigned)s, &before);
	cg_rm(cold, 4, 0x33, (unsigned)s, &after, 0);
	cg_bytes(cold, s == 0 ? "\xa9" : "\xf7", 1); /* test s, TOP */
	if (s)
		cg8(cold, (uint8_t)(0xc0 | s));
	cg32(cold, 7 << 11);
	cg_jcc(cold, 5, copy);
	cg_jmp(cold, cg_va(c));
}

/*
 * What lies there now goes to the trace, for people to look at (rt_state_data): to the replay such
 * a store is nothing. `size`: of the area; 0: T_DATA_IOVS has it.
 */
static void state_data(struct tr_build *b, const struct ea *mem, uint32_t size)
{
	struct cg *c = b->c;
	cg_store_gs(c, 11, T_CALL_SAVE);
	cg_rm(c, 8, 0x8d, 11, mem, 0);
	cg_store_gs(c, 11, T_DATA_MSG);
	cg_store_gs(c, 1, T_DATA_IOV);
	cg_imm(c, 1, tr_lag(b) + 1);
	if (size)
		cg_imm_gs(c, T_DATA_IOVS, size);
	tr_call_runtime(b, c, rt_state_data);
	cg_load_gs(c, 1, T_DATA_IOV);
}

/*
 * fxsave and the xsave family: memory only; the shadow is left to heal by imports. The mask in
 * edx:eax is cut down to the components the program knows of (XCR0 as it sees it): with more
 * enabled in the processor the area would be larger than what the program has reserved.
 */
void tr_xsave_insn(struct tr_build *b, const struct insn *in, const struct ea *mem)
{
	struct cg *c = b->c;
	if (in->id == INSN_FXSAVE) {
		tr_flags_clobber(b, false);
		tr_mark_body(b);
		b->failed = !cg_reencode(c, in, mem);
		state_data(b, mem, 512);
		return;
	}
	if (in->id != INSN_XSAVE && in->id != INSN_XSAVEC && in->id != INSN_XSAVEOPT) {
		b->failed = true;
		return;
	}
	if (mem->base == 0 || mem->base == 2 || mem->index == 0 || mem->index == 2) {
		b->failed = true;
		return;
	}
	tr_flags_clobber(b, false);
	bool rax = b->st.spilled & 1, rdx = b->st.spilled & 4;
	DJ_ASSERT(!rax && !rdx, "xsave with its mask spilled");
	tr_reg_spill(b, 0);
	tr_reg_spill(b, 2);
	cg_bytes(c, "\x83\xe0\x07\x31\xd2", 5); /* and eax, 7; xor edx, edx */
	tr_mark_body(b);
	if (!cg_reencode(c, in, mem)) {
		b->failed = true;
		return;
	}
	/* legacy area and header, and upper halves of ymm if asked for (SDM vol. 1, 13.4) */
	cg_bytes(c, "\x83\xe0\x04\xc1\xe0\x06\x05", 7); /* and eax, 4; shl eax, 6; add eax, */
	cg32(c, 512 + 64);
	cg_store_gs(c, 0, T_DATA_IOVS);
	tr_reg_reload(c, 0);
	tr_reg_reload(c, 2);
	b->st.spilled &= ~5u;
	b->st.clean |= 5u;
	state_data(b, mem, 0);
}

/* mov between the accumulator and an address of 64 bits */
void tr_far_operand(struct tr_build *b, const struct insn *in)
{
	struct cg *c = b->c;
	unsigned size = in->mem_size;
	int at = tr_reg_scratch(b, 1, false);
	struct ea mem = ea_base(at, 0), shadow;
	if (in->seg) {
		mem.index = (int8_t)tr_reg_scratch(b, 1u | 1u << at, false);
		cg_load_gs(c, (unsigned)mem.index, in->seg == 4 ? T_FSBASE : T_GSBASE);
	}
	int value = in->mem_access == INSN_W || size >= 4
			    ? 0
			    : tr_reg_scratch(b, 1u | ea_regs(&mem), false);
	if (b->failed || in->id != INSN_MOV) {
		b->failed = true;
		return;
	}
	shadow = mem;
	shadow.gs = shadow.a32 = true;
	cg_imm(c, (unsigned)at, (uint64_t)in->disp);
	if (in->mem_access == INSN_W) {
		tr_mark_body(b);
		cg_store_size(c, size, 0, &mem);
		if (b->policy.mirror)
			cg_store_size(c, size, 0, &shadow);
		return;
	}
	tr_mem_load(b, size, (unsigned)value, &mem, &shadow);
	if (size < 4)
		cg_rr(c, size, size == 1 ? 0x88 : 0x89, (unsigned)value, 0);
}

/* al = byte at rbx + al */
void tr_xlat_insn(struct tr_build *b)
{
	const struct insn *in = &b->insn[b->i];
	struct ea mem = { .base = 3, .scale = 1, .a32 = in->addr32 }, shadow;
	int at = tr_reg_scratch(b, 0, false), value = tr_reg_scratch(b, 1u << at, false);
	if (in->seg)
		b->failed = true;
	if (b->failed)
		return;
	mem.index = (int8_t)at;
	shadow = mem;
	shadow.gs = shadow.a32 = true;
	cg_rr(b->c, 4, 0x0fb6, (unsigned)at, 0);
	tr_mem_load(b, 1, (unsigned)value, &mem, &shadow);
	cg_rr(b->c, 1, 0x88, (unsigned)value, 0);
}
