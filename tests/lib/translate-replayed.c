/*
 * The emulator's part of translate-run.c: it executes the program from what the translated code
 * logged.
 */
#include "tests/lib/translate-parts.h"

#include <string.h>

struct numbers numbers;
uint8_t stored[GEN_REGIONS][GEN_REGION];

static unsigned next_import;
static uint64_t rep_now;

static size_t fetch(void *ctx, uint64_t addr, uint8_t *buf, size_t len)
{
	bool changing;
	return read_code(ctx, addr, buf, len, &changing);
}

static void put_line(uint8_t *shadow, const struct import *im)
{
	memcpy(shadow + (uint32_t)im->addr, im->line, 64);
	if ((uint32_t)im->addr == 0)
		memcpy(shadow + 0x100000000, im->line, 64);
}

static void before_load(void *ctx, struct emu *e, uint64_t addr, unsigned size)
{
	(void)ctx, (void)addr, (void)size;
	for (; next_import < run.n_imports; next_import++) {
		const struct import *im = &run.import[next_import];
		if (im->steps != e->steps || im->ordinal != e->ordinal ||
		    (im->rep && im->rep != rep_now))
			return;
		put_line(e->shadow, im);
	}
}

static void no_hook(void *ctx, struct emu *e, uint64_t addr, unsigned size)
{
	(void)ctx, (void)e, (void)addr, (void)size;
}

static void after_store(void *ctx, struct emu *e, uint64_t addr, unsigned size,
			const uint8_t *bytes)
{
	(void)ctx, (void)e, (void)bytes;
	for (int i = 0; i < GEN_REGIONS; i++)
		for (unsigned k = 0; k < size; k++)
			if (addr + k - gen_region[i] < GEN_REGION)
				stored[i][addr + k - gen_region[i]] = 1;
}

int start_emulator(void)
{
	struct dj_error err;

	emu = emu_new(&err);
	if (!emu)
		return -1;
	emu->fetch = fetch;
	emu->before_load = before_load;
	emu->after_load = no_hook;
	emu->before_store = no_hook;
	emu->after_store = after_store;
	emu->mirror_stores = true;
	return 0;
}

static void number_next(void)
{
	for (; numbers.used < run.n_numbers && run.number[numbers.used].steps == emu->steps;
	     numbers.used++) {
		const struct number *n = &run.number[numbers.used];
		if (n->order && n->seq <= numbers.seq)
			complain("number %llu comes after %llu", (unsigned long long)n->seq,
				 (unsigned long long)numbers.seq);
		*(n->order ? &numbers.order : &numbers.next) = n->seq;
	}
	numbers.steps = emu->steps;
}

static void number_passed(void)
{
	if (numbers.order && emu->steps != numbers.steps) {
		if (emu->fences != numbers.fences)
			complain("an ordered instruction has two numbers");
		numbers.seq = numbers.order;
		numbers.order = 0;
		numbers.at = emu->steps;
		run_counts.orders++;
	}
	if (emu->fences == numbers.fences)
		return;
	if (numbers.next && numbers.next <= numbers.seq)
		complain("number %llu comes after %llu", (unsigned long long)numbers.next,
			 (unsigned long long)numbers.seq);
	numbers.fences = emu->fences;
	numbers.at = emu->fence_steps;
	numbers.seq = numbers.next ? numbers.next : numbers.seq + 1;
	numbers.next = 0;
}

bool emulate(uint64_t steps, struct dj_regs *out)
{
	unsigned next_effect = 0;

	emu_forget_code(emu, prog->base, GEN_CODE);
	emu_set_regs(emu, &prog->regs, DJ_REG_ALL);
	emu->steps = emu->fences = 0;
	emu->in_rep = false;
	emu->rep_iter = 0;
	emu->hooks = EMU_HOOK_IMPORT | EMU_HOOK_TRACK;
	emu->exact = true;
	next_import = 0;
	memset(stored, 0, sizeof(stored));
	memset(&numbers, 0, sizeof(numbers));
	numbers.seq = run.first_seq;
	for (unsigned n = 0; emu->steps < steps && n < EMULATED_MAX; n++) {
		struct insn in;
		if (next_effect < run.n_effects && run.effect[next_effect].steps == emu->steps) {
			emu_set_regs(emu, &run.effect[next_effect++].regs,
				     DJ_REG_ALL & ~(DJ_REG_SEGS | DJ_REG_FS_BASE | DJ_REG_GS_BASE));
			emu->steps++;
			continue;
		}
		if (!emu_peek(emu, &in)) {
			complain("the emulator has no code at %#llx",
				 (unsigned long long)emu->cpu.rip);
			return false;
		}
		rep_now = in.attr & INSN_A_REP ? emu->cpu.gpr[DJ_RCX] : 0;
		number_next();
		enum emu_stop why = emu_step(emu);
		number_passed();
		if (why) {
			complain("the emulator stops with %d at step %llu: %s", why,
				 (unsigned long long)emu->steps, emu->why);
			return false;
		}
	}
	/* an instruction that faulted may have imported something before */
	for (; next_import < run.n_imports && run.import[next_import].steps == emu->steps;
	     next_import++)
		put_line(emu->shadow, &run.import[next_import]);
	number_next();
	if (numbers.order) { /* which it had been given for that; it is where it would have ended */
		numbers.seq = numbers.order;
		numbers.at = emu->steps + 1;
	}
	if (next_import != run.n_imports)
		complain("import %u of %u (step %llu, ordinal %u, rep %llu) was not used",
			 next_import, run.n_imports,
			 (unsigned long long)run.import[next_import].steps,
			 run.import[next_import].ordinal,
			 (unsigned long long)run.import[next_import].rep);
	emu_get_regs(emu, out);
	out->fop = 0;
	out->fip = out->fdp = 0;
	return true;
}
