/*
 * Leaving generated code before an instruction that somebody wants to be told of, which is known
 * only when it is about to be executed: an access to some bytes, or a return that raises the stack
 * pointer far enough. The emulator executes the instruction, and tells.
 *
 * No flags and no registers may be lost by looking. An address, less that of the bytes, is small if
 * it is one of them; pext gathers those of its bits that are 0 then (SDM vol. 2B: no flags are
 * affected), and jrcxz tells. Addresses are cut to 32 bits as everywhere; and as many bytes are
 * watched as the next power of two, so the code is left too often, which the emulator does not
 * mind.
 */
#include "fast/fast-parts.h"
#include "format/regs.h"

#define RCX    1
#define PEXT   CG_VEX(2, 2, 0, 0xf5)
#define PEXT64 CG_VEX(2, 2, 1, 0xf5)
#define LARGE  32 /* bytes of the largest access */

void fast_watch_set(struct fast *f)
{
	const struct emu *e = f->e;
	uint64_t reach = 64;

	f->watching = (e->hooks & EMU_HOOK_TRACK) && e->watch_size && !f->notes;
	while (f->watching && reach < e->watch_size + LARGE)
		reach *= 2;
	FAST_U64(f, F_WATCH_MASK) = (uint32_t)-reach;
	FAST_U64(f, F_SIGN) = 1ULL << 63;
}

struct fast_side *fast_side_before(struct fast *f, const struct fast_insn *x, unsigned before)
{
	struct fast_side *s = &f->side[f->n_sides++];

	*s = (struct fast_side){ .site = cg_jmp(&f->c, 0),
				 .target = x->in.addr,
				 .executed = before,
				 .r11 = f->r11,
				 .watch = true };
	return s;
}

/* Leave before the instruction, of which rcx says so by being 0. */
static void leave_if_zero(struct fast *f, const struct fast_insn *x, unsigned before, bool wide)
{
	struct cg *c = &f->c;

	if (!wide)
		cg8(c, 0x67); /* jecxz */
	uint8_t *hit = cg_jcc8(c, 0xe3);
	cg_load_gs(c, RCX, F_RCX);
	uint8_t *over = cg_jcc8(c, 0xeb);
	cg_here8(c, hit);
	fast_side_before(f, x, before);
	cg_here8(c, over);
}

static void check(struct fast *f, const struct fast_insn *x, unsigned before, struct ea m,
		  unsigned size)
{
	struct cg *c = &f->c;
	struct ea mask = ea_gs(F_WATCH_MASK);

	m.gs = false;
	m.disp = (int32_t)((uint32_t)m.disp - (uint32_t)f->e->watch_lo + size - 1);
	cg_store_gs(c, RCX, F_RCX);
	cg_rm(c, 4, 0x8d, RCX, &m, 0);
	cg_vex_rm(c, PEXT, false, RCX, RCX, &mask);
	leave_if_zero(f, x, before, false);
}

/* The memory operand, whose address is greater by `more` than it looks. */
static void look_at(struct fast *f, const struct fast_insn *x, unsigned before, int32_t more)
{
	struct ea m = fast_operand(f, &x->in);

	if (f->watching)
		check(f, x, before, ea_add(m, more), x->how == FAST_SHADOW ? x->in.mem_size : 8);
	else
		fast_whose(f, x, before, -1, more);
}

/* The eight bytes on the stack that it also accesses. */
static void look_at_stack(struct fast *f, const struct fast_insn *x, unsigned before, int base,
			  int32_t at)
{
	const struct ea m = {
		.base = (int8_t)base, .index = -1, .scale = 1, .disp = at, .a32 = true
	};

	if (f->watching)
		check(f, x, before, m, 8);
	else
		fast_whose(f, x, before, base, at);
}

void fast_watch(struct fast *f, const struct fast_insn *x, unsigned before)
{
	const struct insn *in = &x->in;

	if (!f->watching && (!f->notes || !f->notes->met))
		return;
	/* the address of a pop is that with rsp raised */
	if (in->has_mem && x->how >= FAST_SHADOW && x->how != FAST_LEA)
		look_at(f, x, before, x->how == FAST_POP && in->base == DJ_RSP ? 8 : 0);
	switch (x->how) {
	case FAST_PUSH:
	case FAST_CALL:
		look_at_stack(f, x, before, DJ_RSP, -8);
		break;
	case FAST_INDIRECT:
		if (in->attr & INSN_A_CALL)
			look_at_stack(f, x, before, DJ_RSP, -8);
		break;
	case FAST_POP:
	case FAST_RET:
		look_at_stack(f, x, before, DJ_RSP, 0);
		break;
	case FAST_LEAVE:
		look_at_stack(f, x, before, DJ_RBP, 0);
		break;
	default:
		break;
	}
}

void fast_watch_return(struct fast *f, const struct fast_insn *x, unsigned before)
{
	const struct insn *in = &x->in;
	int32_t more = in->imm_size ? (int32_t)(in->imm & 0xffff) : 0;
	struct cg *c = &f->c;
	struct ea sign = ea_gs(F_SIGN);
	struct ea sp = { .base = DJ_RSP, .index = RCX, .scale = 1, .disp = 8 + more };

	if (!(x->wants & EMU_WANT_EDGE) || f->e->observer.late)
		return;
	cg_store_gs(c, RCX, F_RCX);
	cg_load_gs(c, RCX, F_ABOVE);
	cg_rm(c, 8, 0x8d, RCX, &sp, 0);
	cg_vex_rm(c, PEXT64, false, RCX, RCX, &sign);
	leave_if_zero(f, x, before, true);
}
