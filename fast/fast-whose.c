/*
 * Whether an access goes to what its page of the shadow belongs to. Two addresses that lie a
 * multiple of 4 GiB apart have one place there, so a note of it does not tell which was meant
 * (fast-note.c). Where that matters one page belongs to one address at a time, and generated code
 * is left before an access to the other.
 *
 * A table has the upper half of that address for each page of the shadow. It is compared with the
 * access's, without flags, by the one register that jrcxz looks at and by r11, which holds the
 * count otherwise. Whoever fills in the table does so only if the pages before and behind belong to
 * what lies beside that address. So whatever is nearer than a page to what was looked at needs no
 * look of its own, nor does an operand that straddles two pages, and most blocks look once at each
 * register that they find memory by.
 */
#include "fast/fast-parts.h"
#include "format/regs.h"

#include <sys/mman.h>

#define RCX   1
#define R11   11
#define NEAR  4096u /* FAST_NOTE_PAGE */
#define LARGE 32u   /* bytes of the largest access */
/* What is in the table is this less the upper half, so that none, 0, stands for upper halves that
 * no program's memory has. */
#define NOBODY 0xfffffffdu

#define SHRX CG_VEX(2, 3, 0, 0xf7)

_Static_assert(FAST_WHOSE == 4 * (FAST_NOTE_TABLE - 65536) / FAST_NOTE_PAGE, "four bytes each");

bool fast_whose_begin(struct fast *f, bool (*met)(void *ctx, uint64_t addr), void *ctx)
{
	struct fast_notes *n = f->notes;

	if (!n || mprotect(fast_at(f, F_WHOSE), FAST_WHOSE, PROT_READ | PROT_WRITE))
		return false;
	n->met = met;
	n->met_ctx = ctx;
	fast_flush(f);
	return true;
}

void fast_whose_set(const struct fast *f, uint64_t page, uint32_t upper)
{
	FAST_U32(f, F_WHOSE + 4 * (int32_t)page) = NOBODY - upper;
}

void fast_whose_none(const struct fast *f, uint64_t page)
{
	FAST_U32(f, F_WHOSE + 4 * (int32_t)page) = 0;
}

void fast_whose_clear(const struct fast *f)
{
	madvise(fast_at(f, F_WHOSE), FAST_WHOSE, MADV_DONTNEED);
}

/* ---- code ------------------------------------------------------------------------------------ */

/* Whether something near enough has been looked at by the same registers; it is from now on. */
static bool looked(struct fast_notes *n, const struct fast_looked *at)
{
	for (unsigned i = 0; i < n->n_looked; i++) {
		const struct fast_looked *o = &n->looked[i];
		if (o->base == at->base && o->index == at->index && o->scale == at->scale &&
		    o->seg == at->seg && o->addr32 == at->addr32 &&
		    at->disp - o->disp + NEAR <= 2 * NEAR - LARGE)
			return true;
	}
	if (n->n_looked < FAST_MAX)
		n->looked[n->n_looked++] = *at;
	return false;
}

/* By how much the instruction raises the stack pointer, where its bytes say it. */
static bool raises(const struct fast_insn *x, int64_t *by)
{
	const struct insn *in = &x->in;

	*by = x->how == FAST_PUSH ? -8 : 8;
	if (x->how == FAST_PUSH || x->how == FAST_POP)
		return in->opnd[0].kind != OPND_GPR || in->opnd[0].reg != DJ_RSP;
	if ((in->id != INSN_ADD && in->id != INSN_SUB) || in->opnd[0].kind != OPND_GPR ||
	    in->opnd[0].reg != DJ_RSP || in->opnd[0].size != 8 || in->opnd[1].kind != OPND_IMM)
		return false;
	*by = in->id == INSN_ADD ? in->imm : -in->imm;
	return true;
}

void fast_whose_changed(struct fast *f, const struct fast_insn *x)
{
	struct fast_notes *n = f->notes;
	uint32_t gprs = x->in.gpr_written;
	unsigned kept = 0;
	int64_t by = 0;

	if (!n || !n->met)
		return;
	if ((gprs >> DJ_RSP & 1) && raises(x, &by))
		gprs &= ~(1u << DJ_RSP);
	for (unsigned i = 0; i < n->n_looked; i++) {
		struct fast_looked *o = &n->looked[i];
		if ((o->base < 16 && gprs >> o->base & 1) ||
		    (o->index < 16 && gprs >> o->index & 1))
			continue;
		if (o->base == DJ_RSP)
			o->disp -= (uint64_t)by;
		n->looked[kept++] = *o;
	}
	n->n_looked = kept;
}

static struct fast_looked place(const struct insn *in, int base, int32_t more)
{
	struct fast_looked at = { .base = 0xff, .index = 0xff, .scale = 1 };

	if (base >= 0) {
		at.base = (uint8_t)base;
		at.disp = (uint64_t)(int64_t)more;
		return at;
	}
	at.disp = (in->base == INSN_RIP ? in->target : (uint64_t)in->disp) + (uint64_t)more;
	if (in->base < 16)
		at.base = in->base;
	if (in->index < 16)
		at.index = in->index;
	if (in->scale)
		at.scale = in->scale;
	at.seg = in->seg;
	at.addr32 = in->addr32;
	return at;
}

/* The whole address into rcx; r11 is lost. */
static void address(struct fast *f, const struct fast_looked *at)
{
	const uint64_t base = at->seg ? at->seg == 4 ? f->fs_base : f->gs_base : 0;
	const struct ea m = { .base = at->base < 16 ? (int8_t)at->base : -1,
			      .index = at->index < 16 ? (int8_t)at->index : -1,
			      .scale = at->scale,
			      .disp = (int32_t)at->disp },
			sum = { .base = RCX, .index = R11, .scale = 1 };

	if (m.base < 0 && m.index < 0) {
		cg_imm(&f->c, RCX, (at->addr32 ? (uint32_t)at->disp : at->disp) + base);
		return;
	}
	cg_rm(&f->c, at->addr32 ? 4 : 8, 0x8d, RCX, &m, 0);
	if (base) {
		cg_imm(&f->c, R11, base);
		cg_rm(&f->c, 8, 0x8d, RCX, &sum, 0);
	}
}

void fast_whose(struct fast *f, const struct fast_insn *x, unsigned before, int base, int32_t more)
{
	const struct fast_looked at = place(&x->in, base, more);
	const struct ea
		upper = ea_gs(F_MET + 4),
		whose = { .base = -1, .index = RCX, .scale = 4, .disp = F_WHOSE, .gs = true },
		sum = { .base = RCX, .index = R11, .scale = 1, .disp = (int32_t)(0 - NOBODY) };
	struct cg *c = &f->c;

	if (looked(f->notes, &at))
		return;
	if (at.base == R11 || at.index == R11)
		fast_r11_program(f);
	fast_r11_free(f); /* if that is what r11 is, it stays for a moment */
	cg_store_gs(c, RCX, F_RCX);
	address(f, &at);
	cg_store_gs(c, RCX, F_MET);
	cg_imm(c, R11, 12);
	cg_vex_rr(c, SHRX, false, RCX, R11, RCX);
	cg_rm(c, 4, 0x8b, RCX, &whose, 0);
	cg_rm(c, 4, 0x8b, R11, &upper, 0);
	cg_rm(c, 4, 0x8d, RCX, &sum, 0);
	cg8(c, 0x67);
	uint8_t *meant = cg_jcc8(c, 0xe3); /* jecxz */
	fast_side_before(f, x, before)->whom = true;
	cg_here8(c, meant);
	cg_load_gs(c, RCX, F_RCX);
}
