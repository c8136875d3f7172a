/*
 * Which arithmetic flags are live: decoding ahead along direct control flow. Relies on the
 * decoder's tables for what an instruction reads and writes.
 */
#include "format/regs.h"
#include "translator/build.h"

/* Flags that the SDM leaves undefined after `in` and that do not depend on what they were: what the
 * processor makes of them (doc/cpu.md), and the emulator too, comes from the operands alone. Were
 * AF not among them it would be live nearly everywhere, because compilers write nothing but AND,
 * OR, XOR, TEST and shifts between one return and the next. */
static uint32_t defined_by_operands(const struct insn *in)
{
	switch (in->id) {
	case INSN_AND:
	case INSN_OR:
	case INSN_XOR:
	case INSN_TEST:
		return DJ_FLAG_AF;
	case INSN_SHL:
	case INSN_SHR:
	case INSN_SAR:
		return DJ_FLAG_AF | DJ_FLAG_OF;
	case INSN_BSF: /* as far as they do not leave flags alone */
	case INSN_BSR:
		return ARITH;
	case INSN_MUL:
	case INSN_IMUL:
		return in->cpu == DJ_CPU_AMD ? 0 : ARITH;
	default:
		return 0;
	}
}

/* Arithmetic flags that `in` surely overwrites. */
uint32_t tr_flags_killed(const struct insn *in)
{
	if (in->attr & (INSN_A_FLAGSCOND | INSN_A_REP))
		return 0;
	return in->flags_written & ARITH & (~in->flags_undefined | defined_by_operands(in));
}

/* Arithmetic flags that `in` really consumes. Of instructions that may leave flags as they were
 * (shifts by a count of zero, REP CMPS without an iteration) the decoder says that they read what
 * they may keep; that is not a use: whether they are live depends on what follows. */
uint32_t tr_flags_used(const struct insn *in)
{
	uint32_t read = in->flags_read & ARITH;
	if (in->attr & INSN_A_SYSCALL)
		return ARITH; /* r11 has them afterwards */
	if (in->attr & (INSN_A_FLAGSCOND | INSN_A_REP))
		read &= ~in->flags_written;
	if (in->id == INSN_RCL || in->id == INSN_RCR)
		read |= DJ_FLAG_CF;
	return read;
}

/* Whether `in` may raise what a handler is called for; then somebody sees the flags from before it.
 * Those of vectors and of the x87 may by what they compute. */
bool tr_may_fault(const struct insn *in)
{
	return in->mem_access || in->id == INSN_DIV || in->id == INSN_IDIV ||
	       tr_must_be_native(in) ||
	       in->attr & (INSN_A_STACK | INSN_A_STRING | INSN_A_X87 | INSN_A_MMX | INSN_A_VEC |
			   INSN_A_XSTATE | INSN_A_MASKED | INSN_A_ATOMIC);
}

/* Whether that is one access, made before translated code does anything to flags. */
bool tr_faults_first(const struct insn *in)
{
	return in->mem_access == INSN_R && in->mem_size <= 8 &&
	       !(in->attr &
		 (INSN_A_BITSTRING | INSN_A_STACK | INSN_A_STRING | INSN_A_X87 | INSN_A_MMX |
		  INSN_A_VEC | INSN_A_XSTATE | INSN_A_MASKED | INSN_A_ATOMIC | INSN_A_BRANCH)) &&
	       in->id != INSN_DIV && in->id != INSN_IDIV;
}

/* These lines of a page say something. False if that makes too many pages. */
static bool look_at_lines(struct tr_look *look, uint64_t page, uint64_t lines)
{
	unsigned i = 0;
	while (i < look->n && look->in[i].page != page)
		i++;
	if (i == sizeof(look->in) / sizeof(*look->in))
		return false;
	if (i == look->n)
		look->in[look->n++] = (struct tr_lines){ page, 0 };
	look->in[i].lines |= lines;
	return true;
}

/* The same of code at [pc, pc+len). */
static bool look_at(struct tr_look *look, uint64_t pc, unsigned len)
{
	for (uint64_t page = pc >> 12; page <= (pc + len - 1) >> 12; page++)
		if (!look_at_lines(look, page, tr_lines_of(page, pc, len)))
			return false;
	return true;
}

static uint64_t look_generation(const struct translator *tr, const struct tr_look *look)
{
	uint64_t sum = 0;
	for (unsigned i = 0; i < look->n; i++)
		sum += tr_generation(tr, look->in[i].page);
	return sum;
}

/* What is known of the code at d, if the pages that it depends on can be added to `look`. */
static bool known_live(const struct translator *tr, const struct tr_decoded *d,
		       struct tr_look *look)
{
	struct tr_look more = *look;
	if (!d->live_known || d->live_generation != look_generation(tr, &d->look))
		return false;
	for (unsigned i = 0; i < d->look.n; i++)
		if (!look_at_lines(&more, d->look.in[i].page, d->look.in[i].lines))
			return false;
	*look = more;
	return true;
}

/* Looks a few instructions ahead along direct control flow and says "all" when it does not know:
 * about code that may change without our hearing of it, for one. */
static uint32_t flags_ahead(struct translator *tr, uint64_t pc, int depth, struct tr_look *look)
{
	uint32_t open = ARITH, live = 0;
	for (int k = 0; k < 10; k++) {
		const struct tr_decoded *d = tr_decode(tr, pc);
		if (!d || d->changing || !look_at(look, pc, d->insn.len))
			return live | open;
		const struct insn *in = &d->insn;
		uint32_t attr = in->attr;
		uint64_t target = (uint64_t)in->imm;
		live |= tr_flags_used(in) & open;
		/* A signal may come in the midst of many iterations: no going on to where flags are
		 * the program's again, as rec_goes_beyond() does. */
		if (attr & INSN_A_REP || (tr->policy.fault_flags && tr_may_fault(in)))
			return live | open;
		if (attr & (INSN_A_SYSCALL | INSN_A_PRIV | INSN_A_NONDET | INSN_A_XSTATE))
			return ARITH;
		open &= ~tr_flags_killed(in);
		if (!open || (live & open) == open)
			return live;
		pc += in->len;
		if (!(attr & INSN_A_BRANCH))
			continue;
		if (attr & (INSN_A_INDIRECT | INSN_A_RET))
			return live | open;
		if (attr & INSN_A_COND) {
			if (depth <= 0)
				return live | open;
			live |= open & tr_flags_live_at(tr, target, depth - 1, look);
		} else {
			pc = target;
		}
	}
	return live | open;
}

uint32_t tr_flags_live_at(struct translator *tr, uint64_t pc, int depth, struct tr_look *look)
{
	if (depth < 1)
		return flags_ahead(tr, pc, depth, look);
	struct tr_decoded *d = tr_decode(tr, pc);
	if (!d)
		return ARITH;
	if (known_live(tr, d, look))
		return d->live;
	struct tr_look own = { .n = 0 };
	uint32_t live = flags_ahead(tr, pc, depth, &own);
	d = tr_decode(tr, pc); /* looking ahead may have pushed it out */
	if (!d)
		return ARITH;
	d->live = live;
	d->live_known = true;
	d->look = own;
	d->live_generation = look_generation(tr, &own);
	return known_live(tr, d, look) ? live : ARITH;
}
