/*
 * Between the emulator's registers and the form a trace speaks of (format/regs.h).
 *
 * The emulator keeps x87 registers by physical number and the top of stack apart; dj_regs
 * has them by ST(i) and top within fsw. Arithmetic flags are lazy here.
 */
#include "emu/emu-flags.h"

void emu_get_regs(struct emu *e, struct dj_regs *r)
{
	const struct emu_cpu *c = &e->cpu;

	memset(r, 0, sizeof(*r));
	memcpy(r->gpr, c->gpr, sizeof(r->gpr));
	r->rip = c->rip;
	r->rflags = (c->other_flags & ~(uint64_t)DJ_FLAGS_ARITH) | emu_get_flags(e);
	r->fs_base = c->segbase[1];
	r->gs_base = c->segbase[2];
	r->es = c->sel[0];
	r->cs = c->sel[1];
	r->ss = c->sel[2];
	r->ds = c->sel[3];
	r->fs = c->sel[4];
	r->gs = c->sel[5];
	for (unsigned i = 0; i < 16; i++)
		for (unsigned k = 0; k < 4; k++) {
			uint64_t eight = htole64(VQ(&c->v[i], k));
			memcpy(&r->ymm[i][8 * k], &eight, sizeof(eight));
		}
	r->mxcsr = c->mxcsr;
	for (unsigned i = 0; i < 8; i++) {
		r->st_mant[i] = c->x87_mant[(c->x87_top + i) & 7];
		r->st_exp[i] = c->x87_exp[(c->x87_top + i) & 7];
	}
	r->fcw = c->fcw;
	r->fsw = (uint16_t)((c->fsw & ~0x3800u) | (c->x87_top & 7u) << 11);
	r->ftw = c->x87_ftw;
	r->fop = c->fop;
	r->fip = c->fip;
	r->fdp = c->fdp;
}

void emu_set_regs(struct emu *e, const struct dj_regs *r, uint64_t mask)
{
	struct emu_cpu *c = &e->cpu;

	for (unsigned i = 0; i < 16; i++) {
		if (mask & DJ_REG_GPR(i))
			c->gpr[i] = r->gpr[i];
		if (mask & DJ_REG_YMM(i))
			for (unsigned k = 0; k < 32; k++)
				VB(&c->v[i], k) = r->ymm[i][k];
	}
	c->gpr[EMU_ZERO_REG] = 0;
	if (mask & (DJ_REG_RIP | DJ_REG_GPR(DJ_RCX))) {
		/* whatever REP instruction was under way is not any more */
		e->in_rep = false;
		e->rep_iter = 0;
	}
	if (mask & DJ_REG_RIP)
		c->rip = r->rip;
	if (mask & DJ_REG_RFLAGS) {
		c->other_flags = (r->rflags & ~(uint64_t)DJ_FLAGS_ARITH) | 0x202;
		emu_set_flags(e, (uint32_t)r->rflags);
	}
	if (mask & DJ_REG_FS_BASE)
		c->segbase[1] = r->fs_base;
	if (mask & DJ_REG_GS_BASE)
		c->segbase[2] = r->gs_base;
	if (mask & DJ_REG_MXCSR)
		c->mxcsr = r->mxcsr;
	if (mask & DJ_REG_SEGS) {
		c->sel[0] = r->es;
		c->sel[1] = r->cs;
		c->sel[2] = r->ss;
		c->sel[3] = r->ds;
		c->sel[4] = r->fs;
		c->sel[5] = r->gs;
	}
	if (mask & DJ_REG_X87) {
		c->x87_top = r->fsw >> 11 & 7;
		c->fsw = r->fsw & (uint16_t)~0x3800u;
		for (unsigned i = 0; i < 8; i++) {
			c->x87_mant[(c->x87_top + i) & 7] = r->st_mant[i];
			c->x87_exp[(c->x87_top + i) & 7] = r->st_exp[i];
		}
		c->fcw = r->fcw;
		c->x87_ftw = r->ftw;
		c->fop = r->fop;
		c->fip = r->fip;
		c->fdp = r->fdp;
	}
}
