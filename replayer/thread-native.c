/*
 * What an instruction wrote that was executed natively when it was recorded: where, as far as the
 * decoder knows; for who looks at memory. What it wrote there is in no record that the replay needs
 * (doc/recorder.md).
 */
#include "replayer/thread-internal.h"

#include "replayer/memview.h"

#define MOST (64u << 20) /* bytes; of more than that a record lies */

static void wrote(struct rp_thread *th, uint64_t addr, uint64_t size)
{
	if (size)
		th->e->unseen_store(th->e->ctx, th->e, addr, (unsigned)(size < MOST ? size : MOST),
				    NULL);
}

static uint64_t after(const struct emu *e, const struct dj_record *r, unsigned reg)
{
	return r->mask & DJ_REG_GPR(reg) ? r->regs.gpr[reg] : e->cpu.gpr[reg];
}

static void string_wrote(struct rp_thread *th, const struct dj_record *r, const struct insn *in)
{
	const struct emu *e = th->e;
	const uint64_t size = in->opsize, mask = in->addr32 ? UINT32_MAX : UINT64_MAX;
	uint64_t n = 1, at = e->cpu.gpr[DJ_RDI] & mask;

	if (in->id != INSN_MOVS && in->id != INSN_STOS)
		return;
	if (in->attr & INSN_A_REP)
		n = (e->cpu.gpr[DJ_RCX] - after(e, r, DJ_RCX)) & mask;
	if (n > MOST)
		return;
	if (n && e->cpu.other_flags & DJ_FLAG_DF)
		at -= (n - 1) * size;
	wrote(th, at, n * size);
}

void rp_thread_native_wrote(struct rp_thread *th, const struct dj_record *r)
{
	const struct emu *e = th->e;
	const uint64_t *gpr = e->cpu.gpr;
	struct insn in;

	if (!r->insn_len || r->insn_len > sizeof(r->insn) ||
	    insn_decode_as(e->kind, &in, r->insn, r->insn_len, e->cpu.rip) <= 0)
		return;
	const uint64_t addr =
		in.has_mem ? insn_address(&in, gpr, e->cpu.segbase[1], e->cpu.segbase[2]) : 0;
	const uint64_t pushed = gpr[DJ_RSP] - after(e, r, DJ_RSP);
	switch (in.id) {
	case INSN_XSAVE:
	case INSN_XSAVEC:
	case INSN_XSAVEOPT:
	case INSN_FXSAVE:
		emu_tell_saved(th->e, &in, addr);
		return;
	case INSN_CLZERO:
		wrote(th, gpr[DJ_RAX] & ~63ULL, 64);
		return;
	case INSN_MOVDIR64B:
		wrote(th, gpr[in.reg & 15], 64);
		return;
	case INSN_EVEX:
	case INSN_XOP: /* which do not say whether they read or write */
		if (in.has_mem && th->mem)
			rp_memview_unseen(th->mem, addr, in.mem_size);
		return;
	}
	if (in.attr & INSN_A_STRING)
		string_wrote(th, r, &in);
	else if (in.id == INSN_ENTER)
		wrote(th, gpr[DJ_RSP] - 8 * (1 + (in.imm2 & 31)), 8 * (1 + (in.imm2 & 31)));
	else if (in.attr & INSN_A_STACK && pushed <= 16)
		wrote(th, gpr[DJ_RSP] - pushed, pushed);
	if (in.has_mem && in.mem_access & INSN_W)
		wrote(th, addr, in.mem_size);
}
