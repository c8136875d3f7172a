/*
 * Driving one emulated thread by its records: see thread.h.
 *
 * The stream is read one record ahead. What takes no step is applied as soon as its
 * position is reached (settle); an instruction's imports are gathered there, so that the
 * record behind them shows whether the instruction was executed at all: a fault's
 * SIGNAL may follow at the same position. What a stream says is never trusted: a record out of
 * order is damage, an instruction that cannot go on without a record is a divergence.
 */
#include "replayer/thread.h"
#include "replayer/memview.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define IMPORTS_MAX 1024u /* 256 loads of an instruction, each straddling, with room */

/* System call numbers of x86-64 Linux (arch/x86/entry/syscalls/syscall_64.tbl). */
#define X_SYS_MREMAP 25

/* ---- failing ------------------------------------------------------------------------ */

/* The instruction at rip, as text, for a message. */
static void here_text(struct rp_thread *th, char *buf, size_t size)
{
	struct insn in;

	if (emu_peek(th->e, &in))
		insn_text(&in, false, buf, size);
	else
		snprintf(buf, size, "no code known");
}

static enum rp_thread_stop diverged(struct rp_thread *th, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static enum rp_thread_stop diverged(struct rp_thread *th, const char *fmt, ...)
{
	struct rp_thread_pos pos;
	char what[220], insn[96];
	uint64_t seq, within;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	here_text(th, insn, sizeof(insn));
	rp_thread_pos(th, &pos);
	rp_thread_seq(th, &seq, &within);
	th->div.found = true;
	th->div.pos = (struct replay_pos){
		.tid = th->info->tid, .steps = pos.steps, .rep = pos.rep, .signals = pos.signals
	};
	snprintf(th->div.text, sizeof(th->div.text),
		 "thread %" PRId32 " at %" PRIu64 ":%" PRIu64 " (instruction %" PRIu64
		 "), rip 0x%" PRIx64 " (%s): %s",
		 th->info->tid, seq, within, pos.steps, th->e->cpu.rip, insn, what);
	dj_fail(&th->err, 1, "%s", th->div.text);
	return THREAD_FAILED;
}

static enum rp_thread_stop damaged(struct rp_thread *th, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static enum rp_thread_stop damaged(struct rp_thread *th, const char *fmt, ...)
{
	char what[300];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	th->damaged = true;
	dj_fail(&th->err, 2, "damaged trace: thread %" PRId32 ": %s", th->info->tid, what);
	return THREAD_FAILED;
}

/* In a throw-away copy: a system call that someone answers, or its end. */
static enum rp_thread_stop copy_stuck(struct rp_thread *th)
{
	struct emu *e = th->e;
	struct insn in;
	char insn[96], why[96];
	uint64_t result;

	if (emu_peek(e, &in) && (in.attr & INSN_A_SYSCALL)) {
		if (th->answer && th->answer(th->answer_ctx, &result)) {
			e->cpu.gpr[DJ_RAX] = result;
			e->cpu.rip = e->cpu.gpr[DJ_RCX] = in.addr + in.len;
			e->steps++;
			return THREAD_LIMIT;
		}
		snprintf(why, sizeof(why), "there is no one to answer system call %" PRIu64,
			 e->cpu.gpr[DJ_RAX]);
	} else {
		snprintf(why, sizeof(why), "%.95s", e->why);
	}
	here_text(th, insn, sizeof(insn));
	dj_fail(&th->err, 1, "the throw-away copy cannot go on at 0x%" PRIx64 " (%s): %s",
		e->cpu.rip, insn, why);
	return THREAD_FAILED;
}

static enum rp_thread_stop stuck(struct rp_thread *th, enum emu_stop why)
{
	if (th->copy)
		return copy_stuck(th);
	switch (why) {
	case EMU_STOP_UNKNOWN:
		return diverged(th, "%s, and the trace has no record of it",
				th->e->why[0] ? th->e->why : "unknown instruction");
	case EMU_STOP_FETCH:
		return diverged(th, "%s", th->e->why[0] ? th->e->why : "no code is known here");
	default:
		return diverged(th, "%s, and the trace has no signal here",
				th->e->why[0] ? th->e->why : "the instruction faults");
	}
}

/* ---- the emulator's callbacks -------------------------------------------------------- */

static size_t fetch(void *ctx, uint64_t addr, uint8_t *buf, size_t len)
{
	struct rp_thread *th = ctx;
	size_t n = rp_space_fetch(th->space, th->trace, addr, buf, len);

	if (n < INSN_MAX && n < len && th->mem && rp_memview_in_copy(th->mem))
		n += rp_memview_read(th->mem, addr + n, buf + n, len - n);
	return n;
}

static void import_line(struct rp_thread *th, const struct rp_thread_import *imp)
{
	th->count_imports++;
	if (th->mem)
		rp_memview_import(th->mem, imp->addr, imp->line);
	else
		memcpy(th->e->shadow + (uint32_t)imp->addr, imp->line, DJ_LINE);
}

static void before_load(void *ctx, struct emu *e, uint64_t addr, unsigned size)
{
	struct rp_thread *th = ctx;

	for (size_t i = th->used; i < th->nimports && th->imports[i].ordinal == e->ordinal; i++) {
		import_line(th, &th->imports[i]);
		th->used++;
	}
	if (th->mem && rp_memview_in_copy(th->mem))
		rp_memview_fill(th->mem, addr, size);
}

static void after_load(void *ctx, struct emu *e, uint64_t addr, unsigned size)
{
	struct rp_thread *th = ctx;

	(void)e;
	rp_memview_load(th->mem, addr, size);
}

static void before_store(void *ctx, struct emu *e, uint64_t addr, unsigned size)
{
	struct rp_thread *th = ctx;

	(void)e;
	rp_memview_before_store(th->mem, addr, size);
}

static void after_store(void *ctx, struct emu *e, uint64_t addr, unsigned size,
			const uint8_t *bytes)
{
	struct rp_thread *th = ctx;

	(void)e;
	rp_memview_after_store(th->mem, addr, size, bytes);
}

/* ---- reading the stream --------------------------------------------------------------- */

/* Read the next record. What is wrong with it shows when its turn comes. */
static void advance(struct rp_thread *th)
{
	if (th->mem)
		dj_cursor_mark(th->cur, &th->next_mark);
	th->err.text[0] = 0;
	th->next = dj_cursor_next(th->cur, &th->err);
	if (!th->next && th->err.text[0]) {
		/* without its records the thread's history is not known any further */
		th->damaged = true;
		th->end_steps = th->e->steps;
	}
}

static uint64_t count_reg(const struct rp_thread *th, uint64_t like)
{
	uint64_t rcx = th->e->cpu.gpr[DJ_RCX];

	/* with an address-size prefix ecx counts, and only its first iteration can find
	 * anything above it */
	return (uint32_t)rcx == like ? like : rcx;
}

static void flush_imports(struct rp_thread *th)
{
	for (size_t i = 0; i < th->nimports; i++)
		import_line(th, &th->imports[i]);
	th->nimports = 0;
}

static enum rp_thread_stop gather(struct rp_thread *th, const struct dj_record *r)
{
	if (th->nimports == IMPORTS_MAX)
		return damaged(th, "more than %u imports by one instruction at %" PRIu64,
			       IMPORTS_MAX, r->steps);
	if (th->nimports == th->imports_cap) {
		size_t cap = th->imports_cap ? th->imports_cap * 2 : 16;
		struct rp_thread_import *grown = realloc(th->imports, cap * sizeof(*grown));
		if (!grown) {
			dj_fail(&th->err, 1, "out of memory");
			return THREAD_FAILED;
		}
		th->imports = grown;
		th->imports_cap = cap;
	}
	if (!th->nimports)
		th->imports_mark = th->next_mark;
	struct rp_thread_import *imp = &th->imports[th->nimports++];
	imp->ordinal = r->ordinal;
	imp->addr = r->addr;
	memcpy(imp->line, r->bytes, DJ_LINE);
	th->imports_rep = r->rep;
	return THREAD_LIMIT;
}

/* ---- records that take no step ---------------------------------------------------------- */

static enum rp_thread_stop rec_regs(struct rp_thread *th, const struct dj_record *r)
{
	emu_set_regs(th->e, &r->regs, r->mask);
	return THREAD_LIMIT;
}

static enum rp_thread_stop rec_map(struct rp_thread *th, const struct dj_record *r)
{
	struct rp_space_map m = { .start = r->addr,
				  .end = r->addr + r->length,
				  .offset = r->offset,
				  .prot = r->prot,
				  .flags = r->flags,
				  .module = r->module };

	m.name = rp_space_intern(th->names, r->name);
	m.initial = th->e->steps == th->space->image_steps;
	/* mremap: growth in place begins elsewhere, and is fresh memory */
	m.moved = th->last_sysno == X_SYS_MREMAP && th->e->steps == th->event_steps &&
		  th->last_result == r->addr;
	if (rp_space_map(&th->space, &m, &th->err))
		return damaged(th, "%s", th->err.text);
	emu_forget_code(th->e, r->addr, r->length);
	if (th->mem && !m.moved)
		rp_memview_forget(th->mem, r->addr, r->length);
	return THREAD_LIMIT;
}

static enum rp_thread_stop rec_unmap(struct rp_thread *th, const struct dj_record *r)
{
	if (rp_space_unmap(&th->space, r->addr, r->length, &th->err))
		return damaged(th, "%s", th->err.text);
	emu_forget_code(th->e, r->addr, r->length);
	if (th->mem)
		rp_memview_forget(th->mem, r->addr, r->length);
	return THREAD_LIMIT;
}

static enum rp_thread_stop rec_protect(struct rp_thread *th, const struct dj_record *r)
{
	if (rp_space_protect(&th->space, r->addr, r->length, r->prot, &th->err))
		return damaged(th, "%s", th->err.text);
	return THREAD_LIMIT;
}

static enum rp_thread_stop rec_code(struct rp_thread *th, const struct dj_record *r)
{
	if (rp_space_code(&th->space, r->addr, r->bytes, r->length, &th->err))
		return damaged(th, "%s", th->err.text);
	emu_forget_code(th->e, r->addr, r->length);
	return THREAD_LIMIT;
}

/* One part of the registers in hexadecimal, most significant byte first. */
static void part_text(char *out, const struct dj_regs *regs, uint64_t part)
{
	uint8_t packed[DJ_REGS_PACKED_MAX];
	size_t n = dj_regs_pack(regs, part, packed);

	for (size_t i = n; i-- > 8;) /* behind the mask */
		out += sprintf(out, "%02x", packed[i]);
}

static enum rp_thread_stop rec_digest(struct rp_thread *th, const struct dj_record *r)
{
	struct dj_regs regs;

	emu_get_regs(th->e, &regs);
	th->count_digests++;
	uint64_t digest = dj_regs_digest(&regs), seq, within;
	rp_thread_seq(th, &seq, &within);
	if (digest == r->digest && (seq == r->seq || r->seq == DJ_SEQ_UNKNOWN))
		return THREAD_LIMIT;
	if (digest == r->digest)
		return diverged(th,
				"%" PRIu64 " ordered events have been passed, expected %" PRIu64,
				seq, r->seq);
	uint64_t differ = dj_regs_diff(&regs, &r->regs) & r->mask;
	if (!differ)
		return diverged(th,
				"the registers' digest is %016" PRIx64 ", expected %016" PRIx64
				" (which of them differ is not recorded)",
				digest, r->digest);
	if (differ & ~DJ_REG_X87)
		differ &= ~DJ_REG_X87; /* say that only if nothing smaller differs */
	differ &= -differ;
	char found[2 * DJ_REGS_PACKED_MAX + 1], expected[2 * DJ_REGS_PACKED_MAX + 1];
	part_text(found, &regs, differ);
	part_text(expected, &r->regs, differ);
	snprintf(th->div.part, sizeof(th->div.part), "%s", dj_regs_part_name(differ));
	return diverged(th, "%s is %s, expected %s", th->div.part, found, expected);
}

static enum rp_thread_stop rec_exec(struct rp_thread *th, const struct dj_record *r)
{
	if (rp_space_clear(&th->space, th->e->steps, &th->err))
		return THREAD_FAILED;
	th->space->image = r->image;
	if (th->mem)
		rp_memview_forget_all(th->mem);
	emu_reset_memory(th->e);
	th->exec_passed = true;
	return THREAD_LIMIT;
}

static enum rp_thread_stop rec_exit(struct rp_thread *th, const struct dj_record *r)
{
	th->exited = true;
	th->status = r->status;
	return THREAD_LIMIT;
}

static enum rp_thread_stop rec_child(struct rp_thread *th, const struct dj_record *r)
{
	th->fork_passed = true;
	th->fork_pid = r->pid;
	return THREAD_LIMIT;
}

static enum rp_thread_stop rec_nothing(struct rp_thread *th, const struct dj_record *r)
{
	(void)th;
	(void)r;
	return THREAD_LIMIT;
}

/* What takes no step, by kind; NULL: the record waits for its step. */
static enum rp_thread_stop (*const apply[DJ_REC_KINDS])(struct rp_thread *,
							const struct dj_record *) = {
	[DJ_REC_REGS] = rec_regs,      [DJ_REC_MAP] = rec_map,
	[DJ_REC_UNMAP] = rec_unmap,    [DJ_REC_PROTECT] = rec_protect,
	[DJ_REC_CODE] = rec_code,      [DJ_REC_DIGEST] = rec_digest,
	[DJ_REC_CHILD] = rec_child,    [DJ_REC_EXEC] = rec_exec,
	[DJ_REC_EXIT] = rec_exit,      [DJ_REC_END] = rec_nothing,
	[DJ_REC_SEQ] = rec_nothing,    [DJ_REC_KEYFRAME] = rec_nothing,
	[DJ_REC_GAP] = rec_nothing,    [DJ_REC_MARK] = rec_nothing,
	[DJ_REC_THREAD] = rec_nothing, [DJ_REC_SYSDATA] = rec_nothing,
};

static bool here(const struct rp_thread *th)
{
	return th->next && th->next->steps == th->e->steps;
}

/* Apply what has its place before the next step; gather the next instruction's imports. */
static enum rp_thread_stop settle(struct rp_thread *th)
{
	const struct dj_record *r;

	while ((r = th->next) && r->steps <= th->e->steps) {
		enum rp_thread_stop res;

		if (r->steps < th->e->steps)
			return damaged(th,
				       "a record for instruction %" PRIu64 " comes after %" PRIu64,
				       r->steps, th->e->steps);
		if ((unsigned)r->kind >= DJ_REC_KINDS)
			return damaged(th, "strange record at %" PRIu64, r->steps);
		if (r->kind == DJ_REC_IMPORT) {
			if (r->rep && count_reg(th, r->rep) != r->rep)
				break;
			if (th->nimports && th->imports_rep != r->rep)
				break;
			res = gather(th, r);
		} else if (apply[r->kind]) {
			flush_imports(th);
			res = apply[r->kind](th, r);
		} else {
			break;
		}
		if (res == THREAD_FAILED)
			return res;
		advance(th);
	}
	return THREAD_LIMIT;
}

/* ---- records that are a step -------------------------------------------------------------- */

static void ordered_event(struct rp_thread *th)
{
	th->events++;
	th->event_steps = th->e->steps;
}

/* The step that began at `from` is done, if it is: settle at the new position. */
static enum rp_thread_stop arrived(struct rp_thread *th, uint64_t from)
{
	if (th->e->steps != from)
		th->signals = 0;
	return settle(th);
}

static enum rp_thread_stop do_syscall(struct rp_thread *th, const struct dj_record *r)
{
	struct emu *e = th->e;
	uint8_t code[2];

	if (rp_space_fetch(th->space, th->trace, e->cpu.rip, code, 2) == 2 &&
	    (code[0] != 0x0f || code[1] != 0x05))
		return diverged(th, "the trace has a system call here");
	flush_imports(th);
	th->last_sysno = e->cpu.gpr[DJ_RAX];
	th->last_result = r->result;
	if (th->mem)
		rp_memview_syscall(th->mem, e->cpu.gpr, r->result);
	e->cpu.gpr[DJ_RAX] = r->result;
	e->cpu.gpr[DJ_R11] = r->r11;
	e->cpu.rip += 2;
	e->cpu.gpr[DJ_RCX] = e->cpu.rip;
	e->steps++;
	ordered_event(th);
	advance(th);
	return arrived(th, e->steps - 1);
}

static enum rp_thread_stop do_effects(struct rp_thread *th, const struct dj_record *r)
{
	struct emu *e = th->e;
	uint8_t code[sizeof(r->insn)];

	if (r->insn_len && r->insn_len <= sizeof(code) &&
	    rp_space_fetch(th->space, th->trace, e->cpu.rip, code, r->insn_len) == r->insn_len &&
	    memcmp(code, r->insn, r->insn_len))
		return diverged(th, "the trace has another instruction here");
	flush_imports(th);
	if (th->mem)
		rp_memview_effects(th->mem, r);
	emu_set_regs(e, &r->regs, r->mask);
	e->in_rep = false;
	e->rep_iter = 0;
	e->steps++;
	th->count_effects++;
	advance(th);
	return arrived(th, e->steps - 1);
}

static enum rp_thread_stop do_signal(struct rp_thread *th, const struct dj_record *r)
{
	struct emu *e = th->e;

	flush_imports(th);
	if (th->mem && r->length)
		rp_memview_learn(th->mem, r->addr, r->bytes, r->length);
	if (r->mask) {
		emu_set_regs(e, &r->regs, r->mask);
		e->in_rep = false;
		e->rep_iter = 0;
	}
	th->signals++;
	th->signals_total++;
	ordered_event(th);
	advance(th);
	return settle(th);
}

/* A record for a later iteration of the REP instruction at rip: the iteration at which the
 * count register is r->rep, counted from the instruction's start. */
static uint64_t iteration_of(const struct rp_thread *th, const struct dj_record *r)
{
	uint64_t rcx = th->e->cpu.gpr[DJ_RCX];

	if (r->rep > rcx)
		return UINT64_MAX;
	/* addr32: the upper half is gone after the first iteration */
	if (rcx >> 32 && r->rep <= (uint32_t)rcx) {
		struct insn in;
		if (emu_peek(th->e, &in) && in.addr32)
			rcx = (uint32_t)rcx;
	}
	return th->e->rep_iter + (rcx - r->rep);
}

/* Run the REP instruction at rip until `iter` iterations are done. */
static enum rp_thread_stop run_iterations(struct rp_thread *th, uint64_t iter)
{
	struct emu *e = th->e;
	uint64_t from = e->steps, n = iter - e->rep_iter, rcx = e->cpu.gpr[DJ_RCX];
	struct insn in;

	if (!emu_peek(e, &in) || !(in.attr & INSN_A_REP))
		return diverged(th, "the trace has a repeat instruction here");
	if (in.addr32)
		rcx = (uint32_t)rcx;
	if (iter < e->rep_iter || n > rcx)
		return diverged(th, "the trace has more iterations here");
	enum emu_stop why = emu_run_rep(e, rcx - n);
	if (why != EMU_STOP_STEPS && why != EMU_STOP_REQUEST)
		return stuck(th, why);
	enum rp_thread_stop res = arrived(th, from);
	return res == THREAD_LIMIT && why == EMU_STOP_REQUEST ? THREAD_REQUEST : res;
}

/* Execute one instruction or iteration; in_hook if its imports wait for their loads. */
static enum rp_thread_stop run_single(struct rp_thread *th, bool in_hook)
{
	struct emu *e = th->e;
	uint64_t from = e->steps;
	unsigned hooks = e->hooks;

	if (in_hook) {
		th->used = 0;
		e->hooks |= EMU_HOOK_IMPORT;
	}
	enum emu_stop why = emu_step(e);
	e->hooks = hooks;
	if (why != EMU_STOP_STEPS && why != EMU_STOP_REQUEST)
		return stuck(th, why);
	if (in_hook) {
		if (th->used != th->nimports)
			return diverged(th,
					"the instruction before did not make load %u, for which "
					"the trace has 0x%" PRIx64,
					th->imports[th->used].ordinal, th->imports[th->used].addr);
		th->nimports = 0;
	}
	enum rp_thread_stop res = arrived(th, from);
	return res == THREAD_LIMIT && why == EMU_STOP_REQUEST ? THREAD_REQUEST : res;
}

/* ---- running ------------------------------------------------------------------------------ */

/* The signal whose delivery is the next step. */
const struct dj_record *rp_thread_signal_here(const struct rp_thread *th)
{
	const struct dj_record *r = th->next;

	if (!here(th) || r->kind != DJ_REC_SIGNAL)
		return NULL;
	return r->rep && count_reg(th, r->rep) != r->rep ? NULL : r;
}

bool rp_thread_syscall_here(const struct rp_thread *th, uint64_t *sysno)
{
	uint8_t code[2];

	/* one that does not come back has no record but EXIT */
	if (th->exited && !th->next &&
	    rp_space_fetch(th->space, th->trace, th->e->cpu.rip, code, 2) == 2 && code[0] == 0x0f &&
	    code[1] == 0x05) {
		*sysno = th->e->cpu.gpr[DJ_RAX];
		return true;
	}
	if (!here(th) || th->next->kind != DJ_REC_SYSCALL)
		return false;
	*sysno = th->e->cpu.gpr[DJ_RAX];
	return true;
}

bool rp_thread_at_end(const struct rp_thread *th)
{
	return th->exited ? !th->next : !th->next && th->e->steps >= th->end_steps;
}

/* Whether the gathered imports can be applied before the instruction: they belong to its
 * first load, before which it stores nothing that matters to them. */
static bool imports_early(const struct rp_thread *th)
{
	for (size_t i = 0; i < th->nimports; i++)
		if (th->imports[i].ordinal)
			return false;
	return true;
}

/* Go on to `to` or the next record, whichever comes first; not past one step of the kinds
 * that records make. */
static enum rp_thread_stop run_chunk(struct rp_thread *th, const struct rp_thread_pos *to)
{
	struct emu *e = th->e;
	const struct dj_record *r = th->next;
	bool in_step = to->steps == e->steps && to->signals == th->signals; /* iterations only */
	const struct dj_record *sig = rp_thread_signal_here(th);

	if (sig)
		return do_signal(th, sig);
	if (th->nimports) {
		if (!imports_early(th))
			return run_single(th, true);
		flush_imports(th);
		if (th->imports_rep)
			return run_single(th, false);
	}
	if (here(th)) {
		if (r->kind == DJ_REC_SYSCALL)
			return do_syscall(th, r);
		if (r->kind == DJ_REC_EFFECTS)
			return do_effects(th, r);
		/* an import or a signal at a later iteration */
		uint64_t iter = iteration_of(th, r);
		if (iter == UINT64_MAX)
			return diverged(th, "the trace has %s at repeat count %" PRIu64,
					dj_record_kind_name(r->kind), r->rep);
		return run_iterations(th, in_step && to->rep < iter ? to->rep : iter);
	}
	if (in_step)
		return run_iterations(th, to->rep);

	uint64_t from = e->steps, until = to->steps;
	if (r && r->steps < until)
		until = r->steps;
	if (!r && th->end_steps < until)
		until = th->end_steps;
	enum emu_stop why = emu_run(e, until);
	switch (why) {
	case EMU_STOP_STEPS:
		return arrived(th, from);
	case EMU_STOP_BREAK:
		if (arrived(th, from) == THREAD_FAILED)
			return THREAD_FAILED;
		return THREAD_BREAK;
	case EMU_STOP_REQUEST:
		if (arrived(th, from) == THREAD_FAILED)
			return THREAD_FAILED;
		return THREAD_REQUEST;
	default:
		if (e->steps != from)
			th->signals = 0;
		/* a breakpoint where nothing can be executed comes first */
		if (e->steps != from && e->stop_at && e->stop_at(th, e))
			return THREAD_BREAK;
		return stuck(th, why);
	}
}

/* An event to stop before, at the position just reached. */
static bool event_here(struct rp_thread *th, unsigned events)
{
	if ((events & THREAD_EV_EXEC) && th->exec_passed)
		th->event = THREAD_EV_EXEC;
	else if ((events & THREAD_EV_FORK) && th->fork_passed)
		th->event = THREAD_EV_FORK;
	else if ((events & THREAD_EV_SIGNAL) && rp_thread_signal_here(th))
		th->event = THREAD_EV_SIGNAL;
	else if ((events & THREAD_EV_SYSCALL) && rp_thread_syscall_here(th, &th->sysno))
		th->event = THREAD_EV_SYSCALL;
	else
		return false;
	return true;
}

/* Whether the instruction at the position has got iterations or signals to go on to without
 * being completed: `to` may name a position that does not exist. */
static bool stays_within(const struct rp_thread *th, const struct rp_thread_pos *to)
{
	struct insn in;
	uint64_t rcx = th->e->cpu.gpr[DJ_RCX];

	if (to->signals > th->signals)
		return here(th) &&
		       (th->next->kind == DJ_REC_SIGNAL || th->next->kind == DJ_REC_IMPORT);
	if (here(th) && th->next->kind != DJ_REC_IMPORT && th->next->kind != DJ_REC_SIGNAL)
		return false;
	if (!emu_peek(th->e, &in) || !(in.attr & INSN_A_REP))
		return false;
	return to->rep - th->e->rep_iter < (in.addr32 ? (uint32_t)rcx : rcx);
}

enum rp_thread_stop rp_thread_run(struct rp_thread *th, const struct rp_thread_pos *to,
				  unsigned events)
{
	struct rp_thread_pos pos;

	if (th->div.found)
		return THREAD_FAILED;
	th->exec_passed = th->fork_passed = false;
	rp_thread_pos(th, &pos);
	th->resume_steps = pos.steps;
	while (rp_thread_pos_cmp(&pos, to) < 0) {
		if (rp_thread_at_end(th))
			return th->damaged ? THREAD_FAILED : THREAD_END;
		if (pos.steps == to->steps && !stays_within(th, to))
			return THREAD_LIMIT;
		bool call = here(th) && th->next->kind == DJ_REC_SYSCALL && !th->nimports;
		enum rp_thread_stop res = run_chunk(th, to);
		if (res != THREAD_LIMIT)
			return res;
		rp_thread_pos(th, &pos);
		if (call && (events & THREAD_EV_RETURN)) {
			th->event = THREAD_EV_RETURN;
			th->sysno = th->last_sysno;
			return THREAD_EVENT;
		}
		if (events && event_here(th, events))
			return THREAD_EVENT;
		if (th->e->stop_at && !pos.rep) {
			/* asked here because the records at this position may change what
			 * the instruction finds; once asked, the emulator need not */
			th->resume_steps = UINT64_MAX;
			bool stop = th->e->stop_at(th, th->e);
			th->resume_steps = pos.steps;
			if (stop)
				return THREAD_BREAK;
		}
	}
	return THREAD_LIMIT;
}

enum rp_thread_stop rp_thread_step(struct rp_thread *th)
{
	struct rp_thread_pos to;

	if (th->div.found)
		return THREAD_FAILED;
	if (rp_thread_at_end(th))
		return th->damaged ? THREAD_FAILED : THREAD_END;
	rp_thread_pos(th, &to);
	th->resume_steps = to.steps;
	if (rp_thread_signal_here(th) ||
	    (here(th) && (th->next->kind == DJ_REC_SYSCALL || th->next->kind == DJ_REC_EFFECTS)))
		return run_chunk(th, &(struct rp_thread_pos){ .steps = UINT64_MAX });
	if (th->nimports && imports_early(th))
		flush_imports(th);
	return run_single(th, th->nimports != 0);
}

void rp_thread_pos(const struct rp_thread *th, struct rp_thread_pos *pos)
{
	pos->steps = th->e->steps;
	pos->signals = th->signals;
	pos->rep = th->e->in_rep ? th->e->rep_iter : 0;
}

void rp_thread_seq(const struct rp_thread *th, uint64_t *seq, uint64_t *within)
{
	*seq = rp_thread_seq_at(th, th->events, th->e->fences);
	*within = th->e->steps - th->event_steps;
	if (th->ordered_fences && th->e->fences && th->e->fence_steps > th->event_steps)
		*within = th->e->steps - th->e->fence_steps;
}

uint64_t rp_thread_seq_at(const struct rp_thread *th, uint64_t events, uint64_t fences)
{
	return events + (th->ordered_fences ? fences : 0);
}

/* ---- beginning, ending --------------------------------------------------------------------- */

struct rp_thread *rp_thread_new(struct dj_trace *t, size_t index, struct rp_space_names *names,
				struct dj_error *err)
{
	const struct dj_trace_meta *meta = dj_trace_meta(t);
	struct rp_thread *th = calloc(1, sizeof(*th));

	if (!th) {
		dj_fail(err, 1, "out of memory");
		return NULL;
	}
	th->trace = t;
	th->index = index;
	th->info = dj_trace_thread(t, index);
	th->names = names;
	th->e = emu_new(err);
	if (!th->e) {
		rp_thread_free(th);
		return NULL;
	}
	th->space = rp_space_new();
	if (th->space)
		th->space->process = th->info->process;
	if (!th->space)
		dj_fail(err, 1, "out of memory");
	else
		th->cur = dj_cursor_new(t, index, err);
	if (!th->cur) {
		rp_thread_free(th);
		return NULL;
	}
	th->e->kind = dj_cpu_kind_of(meta->cpu);
	th->e->ctx = th;
	th->e->fetch = fetch;
	th->e->before_load = before_load;
	th->e->after_load = after_load;
	th->e->before_store = before_store;
	th->e->after_store = after_store;
	th->e->mirror_stores = meta->predict == DJ_PREDICT_SHADOW;
	th->end_steps = th->info->last_steps;
	th->last_sysno = UINT64_MAX;
	th->ordered_fences = meta->memory_model == 2;
	dj_cursor_mark(th->cur, &th->first_mark);
	return th;
}

void rp_thread_free(struct rp_thread *th)
{
	if (!th)
		return;
	emu_free(th->e);
	rp_space_unref(th->space);
	dj_cursor_free(th->cur);
	free(th->imports);
	free(th);
}

enum rp_thread_stop rp_thread_begin(struct rp_thread *th)
{
	th->e->steps = th->info->first_steps;
	th->space->image_steps = th->e->steps;
	th->event_steps = th->e->steps;
	advance(th);
	return settle(th);
}

enum rp_thread_stop rp_thread_restart(struct rp_thread *th)
{
	struct emu *e = th->e;

	emu_reset_memory(e);
	memset(&e->cpu, 0, sizeof(e->cpu));
	e->cpu.other_flags = 0x202;
	e->cpu.mxcsr = 0x1f80;
	e->cpu.fcw = 0x37f;
	e->fences = e->fence_steps = 0;
	e->in_rep = false;
	e->rep_iter = 0;
	e->stop_requested = false;
	th->events = 0;
	th->signals = 0;
	th->signals_total = 0;
	th->last_sysno = UINT64_MAX;
	th->exited = th->damaged = false;
	th->div.found = false;
	if (rp_space_clear(&th->space, th->info->first_steps, &th->err) ||
	    rp_thread_restore_cursor(th, NULL))
		return THREAD_FAILED;
	return rp_thread_begin(th);
}

int rp_thread_restore_cursor(struct rp_thread *th, const struct dj_mark *mark)
{
	th->nimports = 0;
	th->next = NULL;
	if (dj_cursor_restore(th->cur, mark ? mark : &th->first_mark, &th->err)) {
		th->damaged = true;
		return -1;
	}
	if (mark) {
		advance(th);
		if (settle(th) == THREAD_FAILED)
			return -1;
	}
	return 0;
}

const struct dj_mark *rp_thread_mark(const struct rp_thread *th)
{
	return th->nimports ? &th->imports_mark : &th->next_mark;
}

void rp_thread_enter_copy(struct rp_thread *th)
{
	flush_imports(th);
	th->next = NULL;
	th->copy = true;
	th->exited = false;
	th->end_steps = UINT64_MAX;
}
