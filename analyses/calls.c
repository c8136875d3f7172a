/*
 * deja calls: every call of a function, with the position of its first instruction, who called,
 * arguments, result, and how many instructions it took, what it called included.
 *
 * A call begins where the function's first instruction is about to be executed, however it came
 * there: by a call, by a tail call, by a jump out of the linker's tables. It has ended when
 * somebody returns to the address that was on top of the stack then, with the stack as it was
 * before; what has lain below on the same stack is gone without a return (longjmp, an exception).
 */
#include "analyses/call-writes.h"
#include "analyses/log.h"
#include "analyses/prototype.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT 100000	 /* unless --limit or --all says something else */
#define SAME  (8u << 20) /* stack pointers nearer than this belong to one stack */
#define OPEN  100000	 /* calls under way that are looked at */

struct call {
	struct replay_pos pos;
	struct replay_code entry, caller;
	struct ana_entry values;
	uint64_t steps, sp, ret;
	uint64_t rax, xmm, instructions;
	bool returned;
};

struct thread {
	struct calls *all;
	struct ana_log log;
	struct open {
		size_t call;
		uint64_t lowest; /* stack pointer of this and those before */
	} * open;		 /* calls under way, outermost first */
	size_t n, cap;
};

struct calls {
	uint64_t limit;
	struct ana_ranges entries;
	struct ana_log log;
	struct ana_job *job;
};

static void *begin(void *ctx, struct replay_run *run)
{
	struct calls *c = ctx;
	struct thread *th = calloc(1, sizeof(*th));

	if (!th) {
		replay_run_fail(run, "out of memory");
		return NULL;
	}
	th->all = c;
	th->log = (struct ana_log){ .size = sizeof(struct call), .limit = c->limit };
	return th;
}

static void end(void *ctx, struct replay_run *run, void *data)
{
	struct calls *c = ctx;
	struct thread *th = data;

	(void)run;
	ana_log_join(&c->log, &th->log);
	free(th->open);
	free(th);
}

/* Whether one of the functions begins there. */
static bool is_entry(const struct calls *c, const struct replay_code *code, uint64_t addr)
{
	for (size_t i = 0; i < c->entries.n; i++) {
		const struct ana_range *r = &c->entries.r[i];

		if (r->absolute
			    ? r->code.offset == addr
			    : r->code.module == code->module && r->code.process == code->process &&
				      r->code.offset == code->offset)
			return true;
	}
	return false;
}

static unsigned wants(void *data, struct replay_run *run, const struct insn *in)
{
	const struct thread *th = data;
	struct replay_code code;
	unsigned want = in->attr & INSN_A_RET ? REPLAY_WANT_EDGE : 0;

	replay_run_code(run, in->addr, &code);
	return is_entry(th->all, &code, in->addr) ? want | REPLAY_WANT_POINT : want;
}

static void look(struct replay_run *run, uint64_t sp, struct ana_entry *e)
{
	static const uint8_t gpr[6] = { DJ_RDI, DJ_RSI, DJ_RDX, DJ_RCX, DJ_R8, DJ_R9 };
	struct dj_regs regs;

	replay_run_regs(run, &regs);
	for (unsigned i = 0; i < 6; i++)
		e->gpr[i] = regs.gpr[gpr[i]];
	for (unsigned i = 0; i < 8; i++)
		for (unsigned k = 8; k-- > 0;)
			e->xmm[i] = e->xmm[i] << 8 | regs.ymm[i][k];
	for (unsigned i = 0; i < ANA_STACK_WORDS; i++)
		e->stack[i] = ana_number_at(run, sp + 8 + 8 * i, 8);
}

/* Returns above the lowest of them may be theirs. */
static void want_returns(const struct thread *th, struct replay_run *run)
{
	replay_run_returns(run, th->n ? th->open[th->n - 1].lowest : UINT64_MAX);
}

static bool push_open(struct thread *th, size_t i, uint64_t sp)
{
	if (th->n == th->cap) {
		size_t cap = th->cap ? th->cap * 2 : 64;
		struct open *grown =
			cap <= OPEN ? reallocarray(th->open, cap, sizeof(*grown)) : NULL;
		if (!grown)
			return false;
		th->open = grown;
		th->cap = cap;
	}
	uint64_t below = th->n ? th->open[th->n - 1].lowest : sp;
	th->open[th->n++] = (struct open){ i, sp < below ? sp : below };
	return true;
}

/* Nothing above `sp` on the same stack can be under way any more but what called. */
static void drop_gone(struct thread *th, uint64_t sp)
{
	while (th->n) {
		const struct call *top = ana_log_at(&th->log, th->open[th->n - 1].call);
		if (top->sp >= sp || sp - top->sp > SAME)
			return;
		th->n--;
	}
}

static void point(void *data, struct replay_run *run, const struct insn *in)
{
	struct thread *th = data;
	uint64_t sp = replay_run_gpr(run, DJ_RSP), ret = ana_number_at(run, sp, 8);
	struct replay_code code;

	replay_run_code(run, in->addr, &code);
	if (!is_entry(th->all, &code, in->addr)) /* only another listener wanted it */
		return;
	drop_gone(th, sp);
	want_returns(th, run);
	if (th->n) { /* a loop back to the first instruction is no call */
		const struct call *top = ana_log_at(&th->log, th->open[th->n - 1].call);
		if (top->sp == sp && top->ret == ret && top->entry.offset == code.offset)
			return;
	}
	struct call *c = ana_log_add(&th->log);
	if (!c) {
		if (th->log.failed)
			replay_run_fail(run, "there is no room to note what is found");
		else if (!th->n) /* nor is anything looked for that has been found */
			replay_run_stop(run);
		return;
	}
	replay_run_pos(run, &c->pos);
	c->entry = code;
	c->steps = replay_run_steps(run);
	c->sp = sp;
	c->ret = ret;
	replay_run_code(run, ret - 1, &c->caller);
	look(run, sp, &c->values);
	push_open(th, th->log.n - 1, sp);
	want_returns(th, run);
}

static void edge(void *data, struct replay_run *run, const struct replay_edge *edge)
{
	struct thread *th = data;
	struct dj_regs regs;
	size_t i = th->n;

	/* `ret n` takes some more */
	while (i > 0) {
		const struct call *c = ana_log_at(&th->log, th->open[i - 1].call);
		if (c->ret == edge->to && edge->sp > c->sp && edge->sp - c->sp <= 8 + 0xffff)
			break;
		if (c->sp > edge->sp && c->sp - edge->sp <= SAME)
			return; /* a return of what this has called */
		i--;
	}
	if (!i)
		return;
	uint64_t sp = ((struct call *)ana_log_at(&th->log, th->open[i - 1].call))->sp;
	replay_run_regs(run, &regs);
	/* tail calls end together */
	for (; i > 0; i--) {
		struct call *c = ana_log_at(&th->log, th->open[i - 1].call);
		if (c->sp != sp || c->ret != edge->to)
			break;
		c->returned = true;
		c->rax = regs.gpr[DJ_RAX];
		for (unsigned k = 8; k-- > 0;)
			c->xmm = c->xmm << 8 | regs.ymm[0][k];
		c->instructions = edge->steps - c->steps;
	}
	th->n = i;
	want_returns(th, run);
}

/* ---- the answer --------------------------------------------------------------------------------
 */

static void row(struct ana_job *job, struct ana_table *t, const struct call *c,
		const struct ana_prototype *proto)
{
	char position[64], caller[300], arguments[400], result[40] = "", name[300];

	replay_pass_text(job->t, &c->pos, position, sizeof(position));
	ana_code_text(job->functions, &c->caller, caller, sizeof(caller));
	ana_arguments_text(proto, &c->values, arguments, sizeof(arguments));
	if (c->returned)
		ana_result_text(proto, c->rax, c->xmm, result, sizeof(result));
	ana_function_text(ana_function_of(job->functions, &c->entry), name, sizeof(name));
	struct ana_cell cells[] = { { .text = position },
				    { .text = caller },
				    { .text = arguments },
				    { .text = result, .none = !c->returned },
				    { .number = c->instructions, .none = !c->returned },
				    { .text = name } };
	ana_table_row(t, cells);
}

static void print(struct calls *c)
{
	struct ana_job *job = c->job;
	struct ana_prototype proto = { 0 };
	struct replay_code last = { .module = -2 };
	struct ana_table *t =
		ana_table_new("calls", (struct ana_column[]){ { "position", ANA_TEXT },
							      { "caller", ANA_TEXT },
							      { "arguments", ANA_TEXT },
							      { "result", ANA_TEXT },
							      { "instructions", ANA_NUMBER },
							      { "function", ANA_TEXT },
							      { 0 } });

	ana_table_stream(t, &job->out);
	for (size_t i = 0; i < c->log.n && !ferror(job->out.f); i++) {
		const struct call *call = ana_log_at(&c->log, i);

		if (call->entry.module != last.module || call->entry.offset != last.offset) {
			last = call->entry;
			memset(&proto, 0, sizeof(proto));
			if (last.module >= 0)
				ana_prototype_of(ana_functions_symbols(job->functions),
						 (size_t)last.module, last.offset, &proto);
		}
		row(job, t, call, &proto);
	}
	ana_table_end(&job->out, t);
	if (c->log.more)
		ana_out_lack(&job->out,
			     "These are the first %" PRIu64
			     " calls; --limit says how many are wanted.",
			     c->limit);
}

static int run(void *state, struct ana_job *job, struct dj_error *err)
{
	struct calls *c = state;
	const struct replay_listener listener = { .ctx = c,
						  .begin = begin,
						  .end = end,
						  .wants = wants,
						  .point = point,
						  .edge = edge,
						  .kinds = REPLAY_SEE_RETURN,
						  .translated = true,
						  .returns = true };
	const struct replay_listener *listeners[] = { &listener };

	if (!c->limit)
		c->limit = LIMIT;
	c->job = job;
	c->log = (struct ana_log){ .size = sizeof(struct call), .limit = c->limit };
	if (ana_ranges_add(job, &c->entries, job->operands[0], err) ||
	    ana_pass(job, listeners, 1, err))
		return -1;
	if (c->log.failed)
		return dj_fail(err, 1, "out of memory");
	ana_log_sort(&c->log);
	print(c);
	ana_log_free(&c->log);
	ana_ranges_free(&c->entries);
	return 0;
}

static int option(void *state, unsigned option, const char *arg, struct dj_error *err)
{
	struct calls *c = state;

	if (!option)
		return ana_number("limit", arg, 1, &c->limit, err);
	c->limit = UINT64_MAX;
	return 0;
}

const struct ana_analysis ana_calls = {
	.name = "calls",
	.args = "[OPTIONS] FUNCTION [FILE]",
	.help = "every call of a function",
	.usage = "Usage: deja calls [OPTIONS] FUNCTION [FILE]\n"
		 "Every call of FUNCTION (a name, MODULE+OFFSET or an address): the position of "
		 "its\n"
		 "first instruction, who called, arguments, result, instructions until it "
		 "returned.\n"
		 "\n"
		 "      --limit N       at most the first N calls (100000)\n"
		 "      --all           as many as there are\n",
	.operands = 1,
	.options = { { "limit", true }, { "all", false } },
	.translated = true,
	.size = sizeof(struct calls),
	.option = option,
	.run = run,
};
