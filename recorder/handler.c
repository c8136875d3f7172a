/*
 * Whether a signal's handler looks at the context that it is called with.
 *
 * The kernel tells every handler where siginfo and context are, in rsi and rdx, whether it was
 * asked to with SA_SIGINFO or not (Linux, arch/x86/kernel/signal_64.c, x64_setup_rt_frame). So one
 * that was not asked for them may have three parameters all the same. Its code shows it: somewhere
 * rdx is read before it is written. That is searched for along the code from the handler on, into
 * what it calls, as parameters may be passed on. Behind a call rdx is the callee's (System V
 * ABI, 3.2.1).
 *
 * The answer decides only whether flags that are dead are kept for faults (doc/recorder.md,
 * "Flags"), which costs time. What cannot be followed (an indirect call, a function that the
 * dynamic linker has not bound yet, more code than is looked at) counts as not reading it.
 */
#include "insn/insn.h"
#include "recorder/recorder.h"
#include "recorder/signals.h"

#include <string.h>

#define CONTEXT	 2   /* rdx */
#define PLACES	 32  /* where code goes on that is looked at, */
#define INSNS	 400 /* and instructions in all, */
#define DEPTH	 2   /* and calls within calls */
#define PUSH_IMM 0x68

struct walk {
	struct rec_process *proc;
	uint64_t place[PLACES];
	unsigned depth[PLACES]; /* of calls; with the handler's parameters, perhaps */
	unsigned n, insns;
};

static void go_to(struct walk *w, uint64_t pc, unsigned depth)
{
	for (unsigned i = 0; i < w->n; i++)
		if (w->place[i] == pc)
			return;
	if (w->n < PLACES && depth <= DEPTH) {
		w->depth[w->n] = depth;
		w->place[w->n++] = pc;
	}
}

/* xor r, r and its like: what the register was does not matter. */
static bool makes_zero(const struct insn *in)
{
	return (in->id == INSN_XOR || in->id == INSN_SUB) && in->nopnd == 2 &&
	       in->opnd[0].kind == OPND_GPR && in->opnd[1].kind == OPND_GPR &&
	       in->opnd[0].reg == in->opnd[1].reg && in->opsize >= 4;
}

/* A function of a variable number of arguments saves the registers of all that there may be, those
 * of vectors if al says that there are any (System V ABI, 3.5.7). */
static bool asks_for_vectors(const struct insn *in)
{
	return in->id == INSN_TEST && in->nopnd == 2 && in->opnd[0].kind == OPND_GPR &&
	       in->opnd[1].kind == OPND_GPR && in->opnd[0].size == 1 && !in->opnd[0].reg &&
	       !in->opnd[1].reg;
}

static bool only_saves(const struct insn *in)
{
	return in->id == INSN_MOV && in->mem_access == INSN_W && in->opnd[1].kind == OPND_GPR &&
	       in->opnd[1].reg == CONTEXT && in->base != CONTEXT && in->index != CONTEXT;
}

/* Where the branch leads, as far as that can be told. */
static void follow(struct walk *w, const struct insn *in, unsigned depth)
{
	uint64_t to = (uint64_t)in->imm;
	if (in->attr & INSN_A_CALL)
		depth++;
	if (in->attr & INSN_A_INDIRECT) {
		if (!in->has_mem || in->base != INSN_RIP ||
		    rec_read(w->proc, in->target, &to, sizeof(to)) != sizeof(to))
			return;
	}
	go_to(w, to, depth);
}

/* Straight on from there, to where the context is lost. */
static bool reads_from(struct walk *w, uint64_t pc, unsigned depth)
{
	const uint32_t bit = 1u << CONTEXT;
	bool saved = false;
	while (w->insns++ < INSNS) {
		uint8_t code[INSN_MAX];
		struct insn in;
		size_t n = rec_read(w->proc, pc, code, sizeof(code));
		if (!n || insn_decode(&in, code, n, pc) <= 0)
			return saved;
		if (depth && asks_for_vectors(&in))
			return false;
		if (depth && only_saves(&in)) {
			saved = true;
		} else if (in.gpr_read & bit && !(makes_zero(&in) && in.opnd[0].reg == CONTEXT)) {
			return true;
		}
		if (in.gpr_written & bit || in.attr & (INSN_A_SYSCALL | INSN_A_PRIV | INSN_A_RET))
			return saved;
		pc += in.len;
		if (in.opcode == PUSH_IMM && !in.map) /* of a PLT: to the dynamic linker */
			return saved;
		if (!(in.attr & INSN_A_BRANCH))
			continue;
		follow(w, &in, depth);
		if (saved || !(in.attr & INSN_A_COND))
			return saved;
	}
	return saved;
}

bool rec_handler_reads_context(struct rec_process *proc, uint64_t handler)
{
	struct walk w = { .proc = proc };
	go_to(&w, handler, 0);
	for (unsigned i = 0; i < w.n; i++)
		if (reads_from(&w, w.place[i], w.depth[i]))
			return true;
	return false;
}
