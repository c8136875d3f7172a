/*
 * Reading a run of program code, and which flags are live in it.
 */
#include "translator/build.h"

bool tr_is_xrstor(const struct insn *in)
{
	const uint8_t r11 = 11, gs = 5;
	return in->id == INSN_XRSTOR && in->has_mem && in->base != INSN_RIP && in->base != r11 &&
	       in->index != r11 && in->seg != gs && __builtin_cpu_supports("avx");
}

/* Not into rsp, which is lent to something else while the result is logged. */
bool tr_is_result(const struct insn *in)
{
	const uint8_t rsp = 4;
	if (in->has_mem || in->opnd[0].reg == rsp)
		return false;
	switch (in->id) {
	case INSN_LSL:
		return in->opnd[1].kind == OPND_GPR;
	case INSN_RDPID:
		return __builtin_cpu_supports("rdpid");
	case INSN_RDRAND:
		return __builtin_cpu_supports("rdrnd");
	case INSN_RDSEED:
		return __builtin_cpu_supports("rdseed");
	default:
		return false;
	}
}

bool tr_must_be_native(const struct insn *in)
{
	if (in->lock && !insn_lockable(in))
		return true; /* faults */
	if (insn_lacked(in))
		return true;
	if (in->id == INSN_RDTSC || in->id == INSN_RDTSCP)
		return false;
	if (in->id == INSN_SYSCALL || (in->id == INSN_CPUID && in->len == 2) || tr_is_xrstor(in) ||
	    tr_is_result(in))
		return false;
	if (in->id == INSN_XGETBV && in->len == 3 && __builtin_cpu_supports("avx"))
		return false;
	if (!insn_is_emulated(in))
		return true;
	if (in->attr & (INSN_A_PRIV | INSN_A_NONDET))
		return true;
	return in->id ==
	       INSN_MOVDIR64B; /* stores where a register points, which has_mem does not speak of */
}

/* The fragment depends on these lines of a page. False if there are too many pages. */
static bool depend(struct tr_build *b, uint64_t page, uint64_t lines)
{
	unsigned i = 0;
	while (i < b->n_uses && b->use[i].page != page)
		i++;
	if (i == USES_MAX)
		return false;
	if (i == b->n_uses)
		b->use[b->n_uses++] = (struct tr_lines){ page, 0 };
	b->use[i].lines |= lines;
	return true;
}

uint32_t tr_live_at(struct tr_build *b, uint64_t pc)
{
	struct tr_look look = { .n = 0 };
	if (b->policy.exact_flags)
		return ARITH;
	uint32_t live = tr_flags_live_at(b->tr, pc, 1, &look);
	if (live == ARITH)
		return live; /* nothing was assumed */
	for (unsigned i = 0; i < look.n; i++)
		if (!depend(b, look.in[i].page, look.in[i].lines))
			return ARITH;
	return live;
}

/* Which flags are live before each instruction. */
static void find_live(struct tr_build *b)
{
	uint32_t live;
	if (b->policy.exact_flags) {
		for (unsigned i = 0; i <= b->n; i++)
			b->live[i] = b->within[i] = ARITH;
		return;
	}
	const struct insn *last = &b->insn[b->n - 1];
	if (tr_must_be_native(last) || (last->attr & (INSN_A_INDIRECT | INSN_A_RET)))
		live = ARITH;
	else if ((last->attr & INSN_A_BRANCH) && !(last->attr & INSN_A_COND))
		live = tr_live_at(b, (uint64_t)last->imm);
	else
		live = tr_live_at(b, last->addr + last->len);
	b->live[b->n] = b->within[b->n] = live;
	for (unsigned i = b->n; i-- > 0;) {
		const struct insn *in = &b->insn[i];
		if ((in->attr & INSN_A_BRANCH) && (in->attr & INSN_A_COND))
			live |= tr_live_at(b, tr_goes_around(b, i) ? in->addr + in->len
								   : (uint64_t)in->imm);
		live &= ~tr_flags_killed(in);
		live |= tr_flags_used(in);
		if (tr_must_be_native(in) || in->attr & INSN_A_REP || /* flags_ahead() */
		    tr_is_result(in)) /* a record of its flags has all of them */
			live = ARITH;
		b->within[i] = live;
		if (b->policy.fault_flags && tr_may_fault(in)) {
			live = ARITH;
			if (b->policy.lock || b->policy.look || !tr_faults_first(in))
				b->within[i] = ARITH;
		}
		b->live[i] = live;
	}
}

/*
 * The last instruction read leads back to the start. A short loop is written several times in a
 * row: steps are added up in memory, at the end of each round otherwise, and the next addition
 * waits for the one before, which takes longer than many a loop. True if it is to be read once
 * more; the instructions that make up a round are `round`, or 0 if this is the first.
 */
static bool once_more(struct tr_build *b, unsigned *round)
{
	const struct insn *in = &b->insn[b->n - 1];
	if (in->id != INSN_JCC && (in->id != INSN_JMP || (in->attr & INSN_A_INDIRECT)))
		return false;
	if (!*round)
		*round = b->n;
	if (b->changing || b->n + *round > AROUND_INSNS || b->n >= *round * AROUND_MOST)
		return false;
	b->around |= 1ULL << (b->n - 1);
	return true;
}

size_t tr_scanned(const struct tr_build *b)
{
	uint64_t end = 0;
	for (unsigned i = 0; i < b->n; i++)
		if (b->insn[i].addr + b->insn[i].len > end)
			end = b->insn[i].addr + b->insn[i].len;
	return (size_t)(end - b->insn[0].addr);
}

void tr_scan(struct tr_build *b, uint64_t pc)
{
	const uint64_t start = pc;
	unsigned round = 0;
	b->n = 0;
	b->around = 0;
	b->changing = false;
	while (b->n < FRAG_MAX) {
		const struct tr_decoded *d = tr_decode(b->tr, pc);
		struct insn *in = &b->insn[b->n];
		if (!d || (b->n >= JOIN && !round && tr_find(b->tr, pc)))
			break; /* go on in the fragment that is there */
		*in = d->insn;
		b->n++;
		pc += in->len;
		b->changing |= d->changing;
		if (b->changing && (b->n >= 16 || (in->mem_access & INSN_W) ||
				    (in->attr & (INSN_A_STACK | INSN_A_STRING | INSN_A_MASKED))))
			break;
		if (tr_must_be_native(in))
			break;
		if (!(in->attr & INSN_A_BRANCH))
			continue;
		bool back = (uint64_t)in->imm == start;
		if (back && once_more(b, &round))
			pc = start;
		else if (!(in->attr & INSN_A_COND) || (back && b->around))
			break;
	}
	b->n_uses = 0;
	if (!b->n)
		return;
	size_t len = tr_scanned(b);
	for (uint64_t page = start >> 12; page <= (start + len - 1) >> 12; page++)
		depend(b, page, tr_lines_of(page, start, len));
	find_live(b);
}
