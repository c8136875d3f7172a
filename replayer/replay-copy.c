/*
 * A throw-away copy of one moment: the same thread, cut off from its records, with a checkpoint to
 * come back to.
 *
 * In the copy every load first makes the shadow agree with what the debugger would be shown
 * for that address (rp_memview_fill), since the shadow alone cannot tell what it knows from what it
 * merely holds. What is written to code shows in the copy's own code space.
 */
#include "replayer/replay-internal.h"

int replay_fork_copy(struct replay *r, struct dj_error *err)
{
	struct rp_thread *th = r->th;

	if (r->in_copy)
		return 0;
	replay_threads(r, REPLAY_ALL, NULL, 0); /* who is alive, as long as the copy lives */
	rp_checkpoint_take(r->cs);
	rp_thread_pos(th, &r->copy_origin);
	if (!rp_checkpoint_here(r->cs))
		return dj_fail(err, 1, "cannot make a copy of this moment");
	r->in_copy = true;
	r->copy_end = th->end_steps;
	rp_thread_enter_copy(th);
	th->answer = rp_copycall_answer;
	th->answer_ctx = r;
	r->mv->copy = true;
	th->e->hooks |= EMU_HOOK_IMPORT;
	return 0;
}

void replay_set_output(struct replay *r, void (*output)(void *ctx, const void *bytes, size_t len),
		       void *ctx)
{
	r->output = output;
	r->output_ctx = ctx;
}

bool replay_in_copy(struct replay *r)
{
	return r->in_copy;
}

void replay_discard(struct replay *r)
{
	struct dj_error err;

	if (!r->in_copy)
		return;
	r->in_copy = false;
	r->mv->copy = false;
	r->th->copy = false;
	r->th->e->hooks &= ~(unsigned)EMU_HOOK_IMPORT;
	r->th->end_steps = r->copy_end;
	/* the checkpoint is the base, whatever position the copy calls its own */
	if (rp_checkpoint_go(r->cs, &r->copy_origin, &err) == 0)
		replay_move(r, &r->copy_origin, &err);
}

int replay_write(struct replay *r, uint64_t addr, const void *buf, size_t len)
{
	const uint8_t *p = buf;

	if (!r->in_copy || addr + len < addr)
		return -1;
	rp_memview_write(r->mv, addr, p, len);
	for (size_t done = 0; done < len;) {
		size_t n = len - done < DJ_CODE_MAX ? len - done : DJ_CODE_MAX;
		if (rp_space_code(&r->th->space, addr + done, p + done, n, &r->th->err))
			return -1;
		done += n;
	}
	emu_forget_code(r->th->e, addr, len);
	return 0;
}

int replay_set_regs(struct replay *r, const struct dj_regs *regs, uint64_t mask)
{
	if (!r->in_copy)
		return -1;
	emu_set_regs(r->th->e, regs, mask);
	return 0;
}
