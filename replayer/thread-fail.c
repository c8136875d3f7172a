/*
 * What went wrong with a thread, in words: see thread-internal.h.
 */
#include "replayer/thread-internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

/* The instruction at rip, as text, for a message. */
static void here_text(struct rp_thread *th, char *buf, size_t size)
{
	struct insn in;

	if (emu_peek(th->e, &in))
		insn_text(&in, false, buf, size);
	else
		snprintf(buf, size, "no code known");
}

enum rp_thread_stop rp_thread_diverged(struct rp_thread *th, const char *fmt, ...)
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
	th->div.pos = (struct replay_pos){ .thread = (uint32_t)th->index,
					   .signals = pos.signals,
					   .steps = pos.steps,
					   .rep = pos.rep,
					   .seq = seq,
					   .within = within };
	snprintf(th->div.text, sizeof(th->div.text),
		 "thread %" PRId32 " at %" PRIu64 ":%" PRIu64 " (instruction %" PRIu64
		 "), rip 0x%" PRIx64 " (%s): %s",
		 th->info->tid, seq, within, pos.steps, th->e->cpu.rip, insn, what);
	dj_fail(&th->err, 1, "%s", th->div.text);
	return THREAD_FAILED;
}

enum rp_thread_stop rp_thread_damaged(struct rp_thread *th, const char *fmt, ...)
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

enum rp_thread_stop rp_thread_stuck(struct rp_thread *th, enum emu_stop why)
{
	if (th->copy)
		return copy_stuck(th);
	switch (why) {
	case EMU_STOP_UNKNOWN:
		return rp_thread_diverged(th, "%s, and the trace has no record of it",
					  th->e->why[0] ? th->e->why : "unknown instruction");
	case EMU_STOP_FETCH:
		return rp_thread_diverged(th, "%s",
					  th->e->why[0] ? th->e->why : "no code is known here");
	default:
		return rp_thread_diverged(th, "%s, and the trace has no signal here",
					  th->e->why[0] ? th->e->why : "the instruction faults");
	}
}
