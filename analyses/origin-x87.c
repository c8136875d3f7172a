/*
 * What x87 instructions make of values (analyses/origin.h). The registers have their names by their
 * distance from the top: st0 becomes st1 when something is loaded. A place is named as it is behind
 * the instruction that is looked at, and its sources as they are before it.
 */
#include "analyses/origin.h"

#include <string.h>

static struct origin_place st(unsigned reg)
{
	return (struct origin_place){ .kind = ORIGIN_X87, .reg = reg & 7, .size = 10 };
}

/* By how much an instruction raises the registers' numbers: what it loads, less what it pops. */
static int loads(const struct insn *in)
{
	switch (in->id) {
	case INSN_FLD:
	case INSN_FILD:
	case INSN_FBLD:
	case INSN_FLD1:
	case INSN_FLDL2T:
	case INSN_FLDL2E:
	case INSN_FLDPI:
	case INSN_FLDLG2:
	case INSN_FLDLN2:
	case INSN_FLDZ:
	case INSN_FPTAN:
	case INSN_FSINCOS:
	case INSN_FXTRACT:
	case INSN_FDECSTP:
		return 1;
	case INSN_FSTP:
	case INSN_FISTP:
	case INSN_FISTTP:
	case INSN_FBSTP:
	case INSN_FADDP:
	case INSN_FMULP:
	case INSN_FSUBP:
	case INSN_FSUBRP:
	case INSN_FDIVP:
	case INSN_FDIVRP:
	case INSN_FCOMP:
	case INSN_FICOMP:
	case INSN_FUCOMP:
	case INSN_FCOMIP:
	case INSN_FUCOMIP:
	case INSN_FFREEP:
	case INSN_FYL2X:
	case INSN_FYL2XP1:
	case INSN_FPATAN:
	case INSN_FINCSTP:
		return -1;
	case INSN_FCOMPP:
	case INSN_FUCOMPP:
		return -2;
	default:
		return 0;
	}
}

void ana_origin_x87_before(const struct origin_step *step, struct origin_place *p)
{
	if (p->kind == ORIGIN_X87 && step->in && step->in->attr & INSN_A_X87)
		p->reg = (p->reg - (unsigned)loads(step->in)) & 7;
}

/* The register that it names first. */
static const struct insn_opnd *first_register(const struct insn *in)
{
	return in->nopnd && in->opnd[0].kind == OPND_X87 ? &in->opnd[0] : NULL;
}

/* Of all the registers: their contents, or which is the top. */
static bool resets(const struct insn *in)
{
	switch (in->id) {
	case INSN_FNINIT:
	case INSN_FNSAVE:
	case INSN_FRSTOR:
	case INSN_FLDENV:
	case INSN_FXRSTOR:
	case INSN_XRSTOR:
		return true;
	default: /* MMX makes the first of them the top (SDM vol. 1, 9.5.1) */
		return in->attr & INSN_A_MMX;
	}
}

bool ana_origin_x87_defines(const struct origin_step *step, const struct origin_place *p)
{
	const struct insn *in = step->in;
	const struct insn_opnd *o = first_register(in);

	if (resets(in))
		return true;
	if (!(in->attr & INSN_A_X87))
		return false;
	switch (in->id) {
	case INSN_FXCH:
		return p->reg == 0 || (o && p->reg == o->reg);
	case INSN_FPTAN:
	case INSN_FSINCOS:
	case INSN_FXTRACT:
		return p->reg <= 1;
	case INSN_FST:
	case INSN_FSTP:
		return o && o->reg + loads(in) == (int)p->reg;
	case INSN_FCHS:
	case INSN_FABS:
	case INSN_FSQRT:
	case INSN_FRNDINT:
	case INSN_FSCALE:
	case INSN_FPREM:
	case INSN_FPREM1:
	case INSN_F2XM1:
	case INSN_FSIN:
	case INSN_FCOS:
	case INSN_FYL2X:
	case INSN_FYL2XP1:
	case INSN_FPATAN:
		return p->reg == 0;
	case INSN_FDECSTP:
		return false;
	}
	if (loads(in) > 0)
		return p->reg == 0;
	if (o)
		return o->access & INSN_W && o->reg + loads(in) == (int)p->reg;
	switch (in->id) { /* with an operand in memory */
	case INSN_FADD:
	case INSN_FMUL:
	case INSN_FSUB:
	case INSN_FSUBR:
	case INSN_FDIV:
	case INSN_FDIVR:
	case INSN_FIADD:
	case INSN_FIMUL:
	case INSN_FISUB:
	case INSN_FISUBR:
	case INSN_FIDIV:
	case INSN_FIDIVR:
		return p->reg == 0;
	default:
		return false;
	}
}

static void add(struct origin_sources *out, struct origin_place p)
{
	if (out->n < ORIGIN_SOURCES)
		out->s[out->n++] = p;
}

/* The condition of fcmovCC, as others have it; 16: it is none. */
static unsigned condition(const struct insn *in)
{
	switch (in->id) {
	case INSN_FCMOVB:
		return 2;
	case INSN_FCMOVNB:
		return 3;
	case INSN_FCMOVE:
		return 4;
	case INSN_FCMOVNE:
		return 5;
	case INSN_FCMOVBE:
		return 6;
	case INSN_FCMOVNBE:
		return 7;
	case INSN_FCMOVU:
		return 10;
	case INSN_FCMOVNU:
		return 11;
	default:
		return 16;
	}
}

/* What the instruction loads. */
static void loaded(const struct insn *in, const struct origin_access *mem,
		   struct origin_sources *out)
{
	const struct insn_opnd *o = first_register(in);

	if (in->id != INSN_FLD && in->id != INSN_FILD && in->id != INSN_FBLD) {
		out->final = "a constant in the instruction";
		return;
	}
	out->copy = o || (mem && mem->size == 10);
	if (o)
		add(out, st(o->reg));
	else if (mem)
		add(out, (struct origin_place){
				 .kind = ORIGIN_MEMORY, .addr = mem->addr, .size = mem->size });
}

void ana_origin_x87_sources(const struct insn *in, const struct origin_place *p,
			    const struct origin_access *mem, const struct dj_regs *regs,
			    struct origin_sources *out)
{
	const struct insn_opnd *o = first_register(in);

	if (resets(in)) {
		out->final = "this instruction, behind which the x87 registers are others";
		return;
	}
	switch (in->id) {
	case INSN_FXCH:
		out->copy = true;
		add(out, st(p->reg ? 0 : o ? o->reg : 1));
		return;
	case INSN_FST:
	case INSN_FSTP:
		out->copy = true;
		add(out, st(0));
		return;
	case INSN_FPTAN:
		if (!p->reg)
			out->final = "a constant in the instruction";
		else
			add(out, st(0));
		return;
	case INSN_FSCALE:
	case INSN_FPREM:
	case INSN_FPREM1:
	case INSN_FYL2X:
	case INSN_FYL2XP1:
	case INSN_FPATAN:
		add(out, st(0));
		add(out, st(1));
		return;
	case INSN_FSINCOS:
	case INSN_FXTRACT:
		add(out, st(0));
		return;
	}
	if (condition(in) < 16) {
		out->copy = true;
		out->elsewhere = !ana_origin_holds(condition(in), regs->rflags);
		add(out, st(in->opnd[1].reg));
	} else if (loads(in) > 0) {
		loaded(in, mem, out);
	} else {
		add(out, st(o ? o->reg : 0));
		if (o && in->nopnd > 1)
			add(out, st(in->opnd[1].reg));
		if (mem)
			add(out, (struct origin_place){ .kind = ORIGIN_MEMORY,
							.addr = mem->addr,
							.size = mem->size });
	}
}

bool ana_origin_x87_stores(const struct insn *in, struct origin_sources *out)
{
	switch (in->id) {
	case INSN_FST:
	case INSN_FSTP:
	case INSN_FIST:
	case INSN_FISTP:
	case INSN_FISTTP:
	case INSN_FBSTP:
		out->copy = in->mem_size == 10 && in->id == INSN_FSTP;
		add(out, st(0));
		return true;
	default:
		return false;
	}
}
