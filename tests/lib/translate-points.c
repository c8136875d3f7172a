/*
 * At each boundary between two instructions the same as the CPU had there: a run by single steps
 * notes what it had, and translated code is stopped everywhere and compared.
 */
#include "tests/lib/translate-parts.h"

#include <signal.h>
#include <string.h>

static const struct point *find_point(uint64_t step, bool head, const uint64_t *gpr)
{
	if (step > STEPS_MAX || run.first[step] == ~0u)
		return NULL;
	const struct point *p = &run.trace[run.first[step]], *end = run.trace + run.n_trace;
	if (!head)
		return p;
	for (; p < end && p->step == step; p++)
		if (p->gpr[DJ_RCX] == gpr[DJ_RCX])
			return p;
	return p < end ? p : NULL; /* all iterations are done: the state behind it */
}

void at_boundary(const greg_t *now)
{
	greg_t g[NGREG];
	struct tr_where w;
	uint64_t gpr[16];

	if (!tr_locate(tr, (uint64_t)now[REG_RIP], *tcb(T_RT_RET), &w) ||
	    !(w.boundary || w.string_head))
		return;
	run_counts.boundaries++;
	if (locks_held())
		complain("a lock is held at %#llx", (unsigned long long)w.pc);
	memcpy(g, now, sizeof(g));
	rebuild(g, &w);
	for (int i = 0; i < 16; i++)
		gpr[i] = (uint64_t)g[greg[i]];
	uint64_t step = steps_now() + w.lag;
	const struct point *p = find_point(step, w.string_head, gpr);
	if (!p) {
		complain("at %#llx: step %llu does not exist", (unsigned long long)w.pc,
			 (unsigned long long)step);
		return;
	}
	if (p->step == step && p->pc != w.pc)
		complain("step %llu is at %#llx, said to be at %#llx", (unsigned long long)step,
			 (unsigned long long)p->pc, (unsigned long long)w.pc);
	for (int i = 0; i < 16; i++)
		if (gpr[i] != p->gpr[i])
			complain("step %llu at %#llx%s: register %d is %#llx, should be %#llx",
				 (unsigned long long)step, (unsigned long long)w.pc,
				 w.string_head ? " (iteration)" : "", i, (unsigned long long)gpr[i],
				 (unsigned long long)p->gpr[i]);
	uint64_t differ = ((uint64_t)g[REG_EFL] ^ p->flags) & (w.flags_lost ? p->live : FLAGS);
	run_counts.exact += !w.flags_lost;
	if (differ && !w.string_head)
		complain("step %llu at %#llx: flags %#llx, should be %#llx, live are %#x%s",
			 (unsigned long long)step, (unsigned long long)w.pc,
			 (unsigned long long)g[REG_EFL] & FLAGS,
			 (unsigned long long)p->flags & FLAGS, p->live,
			 w.flags_lost ? "" : ", and none is said to be lost");
}

void note_point(ucontext_t *uc)
{
	const greg_t *g = uc->uc_mcontext.gregs;
	uint64_t pc = (uint64_t)g[REG_RIP];

	if (pc == prog->end || run.n_trace == TRACE) {
		end_run(uc, pc == prog->end ? 0 : SIGXCPU, pc);
	} else if (pc < prog->base || pc > prog->end) {
		return; /* on the way there */
	}
	if (run.n_trace == TRACE)
		return;
	struct point *p = &run.trace[run.n_trace], *last = p - 1;
	p->step = !run.n_trace ? 0 : last->step + (last->pc != pc);
	if (p->step > STEPS_MAX) {
		end_run(uc, SIGXCPU, pc);
		return;
	}
	p->pc = pc;
	p->flags = (uint64_t)g[REG_EFL];
	for (int i = 0; i < 16; i++)
		p->gpr[i] = (uint64_t)g[greg[i]];
	if (run.first[p->step] == ~0u)
		run.first[p->step] = run.n_trace;
	run.n_trace++;
}

/* Which flags the rest of the run reads before it writes them. */
void trace_live(void)
{
	uint32_t live = run.sig ? 0 : FLAGS; /* a fault needs none */

	for (unsigned i = run.n_trace; i-- > 0;) {
		struct point *p = &run.trace[i];
		struct insn in;
		if (p->pc != prog->end && insn_decode(&in, prog->code + (p->pc - prog->base),
						      prog->end - p->pc, p->pc) > 0) {
			bool may = in.attr & (INSN_A_FLAGSCOND | INSN_A_REP);
			uint32_t read = in.flags_read;
			if (may)
				read &= ~(in.flags_written & DJ_FLAGS_ARITH);
			if (in.id == INSN_RCL || in.id == INSN_RCR)
				read |= DJ_FLAG_CF;
			if (!may)
				live &= ~in.flags_written;
			live |= read & FLAGS;
		}
		p->live = live;
	}
}
